// SPDX-License-Identifier: Apache-2.0
// I/O of a file with layouts: which bytes go by RDMA, and which by NFS.
#include "../server_open.hpp"
#include "file_layout.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace verbena::nfs::v4::pnfs {
namespace {

constexpr std::size_t most_pieces = 32; // of one read or write by RDMA; what is longer is done in several
constexpr unsigned most_looks = 4096;   // at the extents of a file, for one list of them
constexpr std::size_t most_to_fill = std::size_t(1) << 20; // bytes of a write that fills blocks up

const error io_is_stopped(std::errc::operation_canceled, "I/O by an RDMA layout");
constexpr std::errc look_again = std::errc::resource_unavailable_try_again; // extents may be others by now

// Each write that the file is made longer for has it go on that much further, so that few do; and a client that is killed leaves no more than that.
constexpr std::uint64_t most_beyond_writes = std::uint64_t(8) << 20;

std::uint64_t end_to_be(const layout_sharer& by, std::uint64_t written) noexcept
{
    return std::max(written,
                    std::min(by.expected, written + std::min(most_beyond_writes, UINT64_MAX - written)));
}

bool is_cancelled(const error& e) noexcept { return e == std::errc::operation_canceled; }

// The first `count` bytes from `begin` on that lie in one piece of `data`, which are some.
std::span<std::byte> first_piece(const rpc::payload& data, std::size_t begin, std::size_t count) noexcept
{
    std::size_t at = 0;
    for (const auto piece : data.pieces()) {
        if (begin < at + piece.size()) {
            const auto some = piece.subspan(begin - at, std::min(count, at + piece.size() - begin));
            // A device reads what is sent; its segments are written as those of reads are.
            return {const_cast<std::byte*>(some.data()), some.size()};
        }
        at += piece.size();
    }
    return {};
}

void copy_from(const rpc::payload& data, std::size_t begin, std::span<std::byte> to) noexcept
{
    while (!to.empty()) {
        const auto some = first_piece(data, begin, to.size());
        std::memcpy(to.data(), some.data(), some.size());
        begin += some.size();
        to = to.subspan(some.size());
    }
}

} // namespace

const char* to_string(by_nfs why) noexcept
{
    switch (why) {
    case by_nfs::none: return "no reason";
    case by_nfs::no_server: return "the server gives no layouts";
    case by_nfs::no_type: return "the file's file system has no layouts of the RDMA type";
    case by_nfs::no_way_back: return "the server can't call this client, so it could not recall a layout";
    case by_nfs::small: return "the file is too short for a layout to be worth it";
    case by_nfs::unavailable: return "the server gives no layout of this file";
    case by_nfs::later: return "the server put the layout off for too long";
    case by_nfs::refused: return "the server refused the layout";
    case by_nfs::broken_rule: return "the server's layout breaks a rule of the RDMA layout type";
    case by_nfs::no_connection: return "there is no connection to the data server";
    case by_nfs::lost: return "the layout, or the connection to the data server, was lost";
    case by_nfs::no_lease: return "the lease may have run out";
    case by_nfs::memory: return "there is no memory that the RDMA device can use";
    case by_nfs::behind_end: return "the file has grown since the layout was given";
    case by_nfs::connecting: return "the connection to the data server is being made";
    }
    return "unknown";
}

const char* name_of(by_nfs why) noexcept
{
    switch (why) {
    case by_nfs::none: return "none";
    case by_nfs::no_server: return "no_server";
    case by_nfs::no_type: return "no_type";
    case by_nfs::no_way_back: return "no_way_back";
    case by_nfs::small: return "small";
    case by_nfs::unavailable: return "unavailable";
    case by_nfs::later: return "later";
    case by_nfs::refused: return "refused";
    case by_nfs::broken_rule: return "broken_rule";
    case by_nfs::no_connection: return "no_connection";
    case by_nfs::lost: return "lost";
    case by_nfs::no_lease: return "no_lease";
    case by_nfs::memory: return "memory";
    case by_nfs::behind_end: return "behind_end";
    case by_nfs::connecting: return "connecting";
    }
    return "unknown";
}

layout_file::layout_file(std::shared_ptr<file_layout> of, std::shared_ptr<layout_sharer> mine) noexcept
    : of_(std::move(of)), mine_(std::move(mine))
{
}

// The server keeps what it has given until it recalls it, and hears then that there is nothing.
layout_file::~layout_file() { of_->leave(mine_); }

const v4::node& layout_file::node() const noexcept { return mine_->plain->node(); }
v4::file& layout_file::plain() noexcept { return *mine_->plain; }
void layout_file::expect(std::uint64_t size) noexcept { mine_->expected = size; }
std::size_t layout_file::uncommitted() const noexcept
{
    return of_->uncommitted + mine_->plain->uncommitted();
}
bool layout_file::has_layout() const noexcept { return of_->id.has_value(); }
by_nfs layout_file::last_reason() const noexcept { return of_->last; }

task<result<file::read_result>> layout_file::read(std::uint64_t offset, std::uint32_t count)
{
    return of_->read(mine_, offset, count);
}

task<result<void>> layout_file::write(std::uint64_t offset, rpc::payload data)
{
    return of_->write(mine_, offset, std::move(data));
}

task<result<void>> layout_file::commit()
{
    auto done = co_await of_->commit();
    if (!done)
        co_return done.error();
    auto committed = co_await mine_->plain->commit();
    if (committed && std::exchange(mine_->has_lost_bytes, false))
        co_return locks_are_lost;
    co_return committed;
}

std::uint64_t layout_file::size() const noexcept
{
    return std::max({of_->size, of_->there, node().attributes.size});
}

task<result<void>> layout_file::truncate(std::uint64_t size)
{
    mine_->expected = std::min(mine_->expected, size);
    auto gone = co_await of_->give_back();
    if (!gone)
        co_return gone.error();
    auto done = co_await mine_->plain->truncate(size);
    if (done)
        of_->size = of_->there = size;
    co_return done;
}

task<result<void>> layout_file::close() { return of_->close(mine_); }

// What was had may go back while more is asked for: then all is looked at again.
task<result<std::vector<pnfs_rdma_extent4>>> layout_file::extents(layoutiomode4 mode)
{
    const auto reached = [&](std::uint64_t at) {
        while (at < of_->size) {
            const auto place = mode == layoutiomode4::read ? of_->map.to_read(at) : of_->map.to_write(at);
            if (!place)
                break;
            at += place->length;
        }
        return at;
    };
    unsigned asked = 0;
    for (unsigned looks = 0;;) {
        auto settled = co_await of_->settle();
        if (!settled)
            co_return settled.error();
        const std::uint64_t at = reached(0);
        if (at >= of_->size)
            co_return of_->map.all();
        if (++looks > most_looks)
            co_return of_->not_by_nfs(by_nfs::later);
        const auto chance = co_await of_->have(mine_, mode, at, of_->size - at, asked);
        if (chance.why != by_nfs::none)
            co_return of_->not_by_nfs(chance.why);
        if (!chance.again)
            asked = 0;
    }
}

error file_layout::not_by_nfs(by_nfs why) const noexcept
{
    return error(std::errc::not_supported, to_string(why));
}

void file_layout::note(by_nfs why) noexcept
{
    last = why;
    ++user.counts_.by_reason[static_cast<std::size_t>(why)];
}

// Where there is none, what was to go by it goes by NFS, and the layout back, which is of no use. While one is being made, the layout stays.
task<result<std::shared_ptr<data_connection>>> file_layout::connection_to(deviceid4 device)
{
    const task_context& context = co_await current_context();
    const duration patience =
        user.options_.requires_layouts ? duration::max() : user.options_.connection_patience;
    auto found = co_await user.connections_.get(device, lane, patience);
    // Who is stopped says nothing of the device.
    if (found.connection == nullptr && context.stop.stop_requested())
        co_return io_is_stopped;
    if (found.connection == nullptr && !found.is_being_made)
        lose(by_nfs::no_connection);
    // A Write that is complete may not be placed. A Read behind it on its own connection finds its bytes; on another one it may find older bytes.
    for (const unflushed& each : unplaced) {
        if (!each.by->is_up() || (each.device == device && each.by != found.connection))
            lose(by_nfs::lost);
    }
    if (is_lost)
        co_return not_by_nfs(last);
    if (found.connection == nullptr) {
        last = by_nfs::connecting;
        co_return not_by_nfs(last);
    }
    co_return std::move(found.connection);
}

void file_layout::note_failure(const std::shared_ptr<data_connection>& by, const deviceid4& device,
                               nfs_opnum4 what, const error& why)
{
    if (!is_cancelled(why)) {
        lose(by_nfs::lost);
        failure = {device, nfsstat4::io, static_cast<std::uint32_t>(what)};
    } else if (std::ranges::find(given_up, by) == given_up.end()) {
        given_up.push_back(by);
    }
}

task<result<lease>> file_layout::memory_of(std::size_t size)
{
    lease memory = co_await user.pool_.acquire(size, std::chrono::nanoseconds::zero());
    if (!memory && !pending.empty()) {
        auto committed = co_await commit();
        if (!committed)
            co_return committed.error();
    }
    if (!memory && has_uncommitted_by_nfs()) {
        auto committed = co_await commit_by_nfs();
        if (!committed)
            co_return committed.error();
    }
    if (!memory)
        memory = co_await user.pool_.acquire(size);
    co_return std::move(memory);
}

std::optional<deviceid4> file_layout::device_to_read(std::uint64_t offset, std::uint32_t count) const noexcept
{
    for (const std::uint64_t end = offset + count; offset < end;) {
        const auto place = map.to_read(offset);
        if (!place)
            break;
        if (place->is == layout_map::place::how::memory)
            return place->device;
        offset += place->length;
    }
    return std::nullopt;
}

task<result<v4::file::read_result>> file_layout::read(const std::shared_ptr<layout_sharer>& by,
                                                      std::uint64_t offset, std::uint32_t count)
{
    if ((by->plain->access() & share4::access_read) == 0 || count == 0 || by->plain->has_lost_locks())
        co_return co_await by->plain->read(offset, count);
    count = static_cast<std::uint32_t>(
        std::min<std::uint64_t>({count, buffer_pool::max_size, UINT64_MAX - offset}));
    by_nfs why = by_nfs::behind_end;
    for (unsigned asked = 0;;) {
        auto settled = co_await settle();
        if (!settled)
            co_return settled.error();
        if (offset >= size && !id && !user.options_.requires_layouts) { // the READ tells where the end is
            why = by_nfs::behind_end;
            break;
        }
        if (offset >= size) {
            // Others may have made it longer: no layout is recalled for that.
            auto looked = co_await look_at_size();
            if (!looked)
                co_return looked.error();
            if (offset < size)
                continue;
            v4::file::read_result nothing;
            nothing.eof = true;
            co_return std::move(nothing);
        }
        const auto most = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, size - offset));
        const chance c = co_await have(by, layoutiomode4::read, offset, most, asked);
        why = c.why;
        if (c.again)
            continue;
        if (why != by_nfs::none)
            break;
        auto got = co_await read_by_layout(offset, most);
        if (got || is_cancelled(got.error()))
            co_return got;
        if (got.error() == look_again)
            continue;
        why = last;
        if (!is_lost)
            break;
        auto recovered = co_await settle();
        if (!recovered)
            co_return recovered.error();
        break;
    }
    co_return co_await read_by_nfs(by, offset, count, why);
}

// There is an extent of the first byte. Memory is waited for with nothing in hand that a commit waits for: what is to be committed may have all of it.
task<result<v4::file::read_result>> file_layout::read_by_layout(std::uint64_t offset, std::uint32_t count)
{
    const std::optional<deviceid4> device = device_to_read(offset, count);
    std::shared_ptr<data_connection> by;
    if (device) {
        auto found = co_await connection_to(*device);
        if (!found)
            co_return found.error();
        by = std::move(*found);
    }
    auto got_memory = co_await memory_of(count);
    if (!got_memory)
        co_return got_memory.error();
    lease memory = std::move(*got_memory);
    if (!memory) {
        last = by_nfs::memory;
        co_return not_by_nfs(last);
    }
    // To connect, and to wait for memory, take their time.
    if (shut || is_lost || !has_lease() || (by && !by->is_up()) || !map.to_read(offset) ||
        device_to_read(offset, count) != device)
        co_return error(look_again, "I/O by an RDMA layout");
    const io now(*this);
    std::array<data_connection::piece, most_pieces> pieces;
    std::size_t n = 0;
    std::uint32_t done = 0;
    while (done < count) {
        const auto place = map.to_read(offset + done);
        if (!place)
            break;
        const auto some = static_cast<std::uint32_t>(std::min<std::uint64_t>(place->length, count - done));
        const auto here = memory.bytes().subspan(done, some);
        if (place->is == layout_map::place::how::zeros) {
            std::memset(here.data(), 0, here.size());
        } else {
            if (n == most_pieces || place->device != *device)
                break;
            pieces[n].here = here;
            pieces[n].handle = place->handle;
            pieces[n].address = place->address;
            ++n;
        }
        done += some;
    }
    if (n != 0) {
        auto got = co_await by->read(std::span(pieces).first(n), memory);
        if (!got) {
            note_failure(by, *device, nfs_opnum4::read, got.error());
            co_return got.error();
        }
        ++moved.read.count;
        for (const data_connection::piece& each : std::span(pieces).first(n))
            moved.read.bytes += each.here.size();
        moved.device = *device;
    }
    v4::file::read_result out;
    const std::span<const std::byte> bytes = memory.bytes().first(done);
    out.data.append(std::move(memory), bytes);
    user.counts_.read_by_rdma += done;
    co_return std::move(out);
}

task<result<v4::file::read_result>> file_layout::read_by_nfs(const std::shared_ptr<layout_sharer>& by,
                                                             std::uint64_t offset, std::uint32_t count,
                                                             by_nfs why)
{
    if (user.options_.requires_layouts) {
        note(why);
        co_return not_by_nfs(why);
    }
    // The server knows neither the bytes that wait in its queue of RDMA, nor how long the file is by them.
    if (!pending.empty()) {
        auto committed = co_await commit();
        if (!committed)
            co_return committed.error();
    }
    auto got = co_await by->plain->read(offset, count);
    if (!got || got->data.empty())
        co_return got;
    note(why);
    user.counts_.read_by_nfs += got->data.size();
    size = std::max(size, by->plain->node().attributes.size);
    co_return got;
}

task<result<void>> file_layout::write(const std::shared_ptr<layout_sharer>& by, std::uint64_t offset,
                                      rpc::payload data)
{
    if ((by->plain->access() & share4::access_write) == 0 || data.empty() ||
        offset > UINT64_MAX - data.size() || by->plain->has_lost_locks())
        co_return co_await by->plain->write(offset, std::move(data));
    unsigned asked = 0;
    for (std::size_t done = 0; done < data.size();) {
        if (uncommitted != 0 && uncommitted + data.size() - done > layout_file::max_uncommitted) {
            auto committed = co_await commit();
            if (!committed)
                co_return committed.error();
        }
        auto settled = co_await settle();
        if (!settled)
            co_return settled.error();
        const chance c = co_await have(by, layoutiomode4::rw, offset + done, data.size() - done, asked);
        if (c.again)
            continue;
        by_nfs why = c.why;
        const auto to = map.to_write(offset + done);
        if (why == by_nfs::none && to) {
            // Before anything is done for it: while there is none, bytes go by NFS as if there were no layout.
            auto ready = co_await connection_to(to->device);
            if (!ready && is_cancelled(ready.error()))
                co_return ready.error();
            why = ready ? by_nfs::none : last;
        }
        if (why == by_nfs::none && has_uncommitted_by_nfs()) {
            // What the server loses of that would be sent again, over what is written now.
            auto committed = co_await commit_by_nfs();
            if (!committed)
                co_return committed.error();
            continue;
        }
        if (why == by_nfs::none && offset + data.size() > there) {
            const std::uint64_t before = there;
            auto longer = co_await extend(offset + done, end_to_be(*by, offset + data.size()));
            if (!longer)
                co_return longer.error();
            // What of it the layout reaches is within the file then.
            if (there != before || is_lost || shut || !id)
                continue;
        }
        if (why == by_nfs::none) {
            auto some = co_await write_by_layout(by, offset + done, data, done);
            if (!some && is_cancelled(some.error()))
                co_return some.error();
            if (some) {
                done += *some;
                asked = 0;
                continue;
            }
            why = last;
        }
        auto recovered = co_await settle();
        if (!recovered)
            co_return recovered.error();
        rpc::payload rest = slice(data, done, data.size());
        co_return co_await write_by_nfs(by, offset + done, std::move(rest), why);
    }
    co_return result<void>();
}

void file_layout::note_written(const std::shared_ptr<layout_sharer>& who, std::uint64_t offset,
                               const rpc::payload& data, std::size_t begin, std::size_t end,
                               const std::shared_ptr<data_connection>& by, const deviceid4& device,
                               const data_connection::piece& last_piece)
{
    ++moved.written.count;
    moved.written.bytes += end - begin;
    moved.device = device;
    const std::uint64_t mine = number++;
    pending.emplace_back(mine, offset, slice(data, begin, end), who);
    uncommitted += end - begin;
    size = std::max(size, offset + (end - begin));
    // A hole of a layout to read, that this one hides, is none any more.
    map.cut(offset, end - begin, layoutiomode4::read);
    is_changed();
    const unflushed now{by, device, mine, last_piece.handle, last_piece.address};
    const auto known = std::ranges::find_if(unplaced, [&](const unflushed& each) { return each.by == by; });
    if (known == unplaced.end())
        unplaced.push_back(now);
    else
        *known = now;
}

// There is an extent of the first byte. Yields how many bytes of `data`, from `begin` on, were written: none where all is to be looked at again.
task<result<std::size_t>> file_layout::write_by_layout(const std::shared_ptr<layout_sharer>& who,
                                                       std::uint64_t offset, const rpc::payload& data,
                                                       std::size_t begin)
{
    const auto first = map.to_write(offset);
    if (!first)
        co_return std::size_t(0);
    const deviceid4 device = first->device;
    auto found = co_await connection_to(device);
    if (!found)
        co_return found.error();
    const std::shared_ptr<data_connection> by = std::move(*found);
    const bool fills = first->is == layout_map::place::how::uninitialized;
    const std::size_t filled =
        std::min({data.size() - begin, most_to_fill,
                  static_cast<std::size_t>(std::min<std::uint64_t>(first->length, most_to_fill))});
    lease blocks;
    if (fills) {
        auto got = co_await memory_of(static_cast<std::size_t>(map.blocks_of(offset, filled).length));
        if (!got)
            co_return got.error();
        blocks = std::move(*got);
        if (!blocks) {
            last = by_nfs::memory;
            co_return not_by_nfs(last);
        }
    }
    // To connect, and to wait for memory, take their time.
    const auto now_there = map.to_write(offset);
    if (shut || is_lost || !has_lease() || !by->is_up() || !now_there || now_there->device != device ||
        now_there->is != first->is)
        co_return std::size_t(0);
    const io now(*this);
    if (fills) {
        task<result<std::size_t>> filling =
            write_blocks(who, offset, data, begin, begin + filled, by, device, std::move(blocks));
        co_return co_await filling;
    }
    std::array<data_connection::piece, most_pieces> pieces;
    std::size_t n = 0;
    std::size_t end = begin;
    while (end < data.size() && n < most_pieces) {
        const auto place = map.to_write(offset + (end - begin));
        if (!place || place->device != device || place->is == layout_map::place::how::uninitialized)
            break;
        std::uint64_t address = place->address;
        std::uint64_t left = std::min<std::uint64_t>(place->length, data.size() - end);
        for (; left != 0 && n < most_pieces; ++n) {
            const auto here = first_piece(data, end, static_cast<std::size_t>(left));
            if (!user.connections_.may_send(here)) {
                last = by_nfs::memory;
                co_return not_by_nfs(by_nfs::memory);
            }
            pieces[n].here = here;
            pieces[n].handle = place->handle;
            pieces[n].address = address;
            address += here.size();
            left -= here.size();
            end += here.size();
        }
    }
    auto done = co_await by->write(std::span(pieces).first(n), data);
    // What was given up may land all the same.
    if (done || is_cancelled(done.error())) {
        note_written(who, offset, data, begin, end, by, device, pieces[n - 1]);
        user.counts_.written_by_rdma += end - begin;
    }
    if (!done) {
        note_failure(by, device, nfs_opnum4::write, done.error());
        co_return done.error();
    }
    co_return end - begin;
}

// Of uninitialized blocks whole ones are written: the rest is what lies beneath, or zeros (draft 2.4.5). One write at a time does so, as two may
// want the same block.
task<result<std::size_t>> file_layout::write_blocks(const std::shared_ptr<layout_sharer>& who,
                                                    std::uint64_t offset, const rpc::payload& data,
                                                    std::size_t begin, std::size_t end,
                                                    std::shared_ptr<data_connection> by, deviceid4 device,
                                                    lease memory)
{
    const bool mine = co_await block_turn.acquire();
    if (!mine)
        co_return io_is_stopped;
    const held_permit held(block_turn);
    const auto to = map.to_write(offset);
    if (!to || to->is != layout_map::place::how::uninitialized || to->device != device)
        co_return std::size_t(0); // another one has filled it up
    const layout_map::blocks whole = map.blocks_of(offset, end - begin);
    if (to->length < end - begin || memory.size() < whole.length)
        co_return std::size_t(0); // less of it is left to be filled up
    const std::span<std::byte> bytes = memory.bytes().first(static_cast<std::size_t>(whole.length));
    const std::uint64_t last_byte = offset + (end - begin);
    const std::array<std::pair<std::uint64_t, std::uint64_t>, 2> rest = {
        std::pair(whole.offset, offset), std::pair(last_byte, whole.offset + whole.length)};
    for (const auto& [from, behind] : rest) {
        for (std::uint64_t at = from; at < behind;) {
            const auto place = map.to_read(at);
            const auto some = place ? std::min<std::uint64_t>(place->length, behind - at) : behind - at;
            data_connection::piece piece;
            piece.here =
                bytes.subspan(static_cast<std::size_t>(at - whole.offset), static_cast<std::size_t>(some));
            if (!place || place->is != layout_map::place::how::memory) {
                std::memset(piece.here.data(), 0, piece.here.size());
            } else {
                piece.handle = place->handle;
                piece.address = place->address;
                std::shared_ptr<data_connection> below = by;
                if (place->device != device) {
                    auto found = co_await connection_to(place->device);
                    if (!found)
                        co_return found.error();
                    below = std::move(*found);
                }
                auto got = co_await below->read(std::span(&piece, 1), memory);
                if (!got) {
                    note_failure(below, place->device, nfs_opnum4::read, got.error());
                    co_return got.error();
                }
            }
            at += some;
        }
    }
    copy_from(data, begin, bytes.subspan(static_cast<std::size_t>(offset - whole.offset), end - begin));
    data_connection::piece out;
    out.here = bytes;
    out.handle = to->handle;
    out.address = to->address - (offset - whole.offset);
    const rpc::payload blocks(memory.share(), bytes);
    auto done = co_await by->write(std::span(&out, 1), blocks);
    if (!done) {
        // Whether the blocks are data now, nobody knows.
        note_failure(by, device, nfs_opnum4::write, done.error());
        lose(by_nfs::lost);
        co_return done.error();
    }
    map.initialized(whole);
    note_written(who, offset, data, begin, end, by, device, out);
    user.counts_.written_by_rdma += end - begin;
    co_return end - begin;
}

task<result<void>> file_layout::write_by_nfs(const std::shared_ptr<layout_sharer>& by, std::uint64_t offset,
                                             rpc::payload data, by_nfs why)
{
    note(why);
    if (user.options_.requires_layouts)
        co_return not_by_nfs(why);
    // If the layout were lost, that would be written again, over this.
    if (!pending.empty()) {
        auto committed = co_await commit();
        if (!committed)
            co_return committed.error();
    }
    const std::size_t count = data.size();
    auto done = co_await by->plain->write(offset, std::move(data));
    if (done) {
        user.counts_.written_by_nfs += count;
        size = std::max(size, offset + count);
        there = std::max(there, offset + count);
    }
    co_return done;
}

} // namespace verbena::nfs::v4::pnfs
