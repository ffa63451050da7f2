// SPDX-License-Identifier: Apache-2.0
// Holes, room, and bytes that go from one file to another.
#include "backend.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <memory>
#include <new>
#include <unistd.h>
#include <utility>
#include <vector>

namespace verbena::memfs {

namespace {

// What is copied under the mutex, for which all shards wait.
constexpr std::uint64_t most_copied_at_once = std::uint64_t(1) << 20;
constexpr std::uint64_t most_blocks_made_at_once = (std::uint64_t(4) << 20) / file_data::block_size;

bool is_too_far(std::uint64_t offset, std::uint64_t length) noexcept
{
    return offset > max_offset || length > max_offset - offset;
}

bool overlap(std::uint64_t a, std::uint64_t b, std::uint64_t length) noexcept
{
    return a < b ? b - a < length : a - b < length;
}

} // namespace

task<result<storage::seek_result>> backend::seek(const storage::request& r, const storage::handle& file,
                                                 std::uint64_t offset, storage::extent what)
{
    std::lock_guard lock(mutex_);
    auto n = find_data(r, file, R_OK);
    if (!n)
        co_return n.error();
    const node& f = **n;
    if (offset >= f.attrs.size)
        co_return fails(ENXIO, "an offset behind the end of the file");
    storage::seek_result out;
    out.offset = f.data.find(what, offset, f.attrs.size);
    out.end_of_file = out.offset == f.attrs.size;
    co_return out;
}

// A file whose range is to be changed.
result<node*> backend::find_range(const storage::request& r, const storage::handle& file,
                                  std::uint64_t offset, std::uint64_t length)
{
    if (refuses_changes())
        return fails(EROFS, "the export is read-only");
    if (length == 0)
        return fails(EINVAL, "an empty range");
    if (is_too_far(offset, length))
        return fails(EFBIG, "a range past the largest offset");
    return find_data(r, file, W_OK);
}

task<result<storage::change>> backend::allocate(const storage::request& r, const storage::handle& file,
                                                std::uint64_t offset, std::uint64_t length)
{
    std::lock_guard lock(mutex_);
    auto n = find_range(r, file, offset, length);
    if (!n)
        co_return n.error();
    node& f = **n;
    const std::uint64_t missing = f.data.missing(offset, length);
    if (missing > free_bytes() / file_data::block_size)
        co_return fails(ENOSPC, "allocate");
    storage::change out;
    out.before = seen(f);
    f.data.reserve(offset, length);
    grow(f, offset + length, offset + length);
    note_change(f, r);
    out.after = seen(f);
    co_return out;
}

task<result<storage::change>> backend::deallocate(const storage::request& r, const storage::handle& file,
                                                  std::uint64_t offset, std::uint64_t length)
{
    std::lock_guard lock(mutex_);
    auto n = find_range(r, file, offset, length);
    if (!n)
        co_return n.error();
    node& f = **n;
    if (is_apart(f, offset, length))
        co_return fails(EAGAIN, "deallocate of bytes that a peer has fresh memory of");
    // Whole blocks are let go; the first and the last may be copied.
    constexpr std::uint64_t unit = file_data::block_size;
    const std::uint64_t end = offset + length;
    const bool is_one = offset / unit == end / unit;
    const std::array parts{file_data::run{offset / unit, offset % unit != 0},
                           file_data::run{end / unit, end % unit != 0 && !(is_one && offset % unit != 0)}};
    if (f.data.last_of_kept(parts) > free_bytes() / unit)
        co_return fails(ENOSPC, "deallocate");
    storage::change out;
    out.before = seen(f);
    f.data.clear(offset, length);
    note_change(f, r);
    out.after = seen(f);
    co_return out;
}

task<result<storage::copy_result>> backend::copy(const storage::request& r, const storage::handle& from,
                                                 std::uint64_t from_offset, const storage::handle& to,
                                                 std::uint64_t to_offset, std::uint64_t length)
{
    if (refuses_changes())
        co_return fails(EROFS, "the export is read-only");
    if (is_too_far(to_offset, length))
        co_return fails(EFBIG, "a range past the largest offset");
    std::lock_guard lock(mutex_);
    auto source = find_source(r, from);
    if (!source)
        co_return source.error();
    auto target = find_data(r, to, W_OK);
    if (!target)
        co_return target.error();
    const node& s = **source;
    node& t = **target;
    if (&s == &t && overlap(from_offset, to_offset, length))
        co_return fails(EINVAL, "a copy onto itself");
    const std::uint64_t left = from_offset < s.attrs.size ? s.attrs.size - from_offset : 0;
    const std::uint64_t count = std::min({left, length, most_copied_at_once});
    if (is_apart(t, to_offset, count))
        co_return fails(EAGAIN, "a copy onto bytes that a peer has fresh memory of");
    const std::uint64_t missing = t.data.missing(to_offset, count) + kept_blocks(t, to_offset, count);
    if (missing > free_bytes() / file_data::block_size)
        co_return fails(ENOSPC, "copy");
    storage::copy_result out;
    out.count = count;
    out.committed = storage::stability::file_sync;
    out.file.before = seen(t);
    if (count != 0) {
        std::vector<std::byte> bytes(count);
        s.data.read(from_offset, bytes);
        t.data.reserve(to_offset, count);
        t.data.make_own(to_offset, count);
        t.data.write(to_offset, bytes);
        grow(t, to_offset, to_offset + count);
        note_change(t, r);
    }
    out.file.after = seen(t);
    co_return out;
}

task<result<storage::change>> backend::clone(const storage::request& r, const storage::handle& from,
                                             std::uint64_t from_offset, const storage::handle& to,
                                             std::uint64_t to_offset, std::uint64_t length)
{
    constexpr std::uint64_t unit = file_data::block_size;
    if (refuses_changes())
        co_return fails(EROFS, "the export is read-only");
    std::lock_guard lock(mutex_);
    auto source = find_source(r, from);
    if (!source)
        co_return source.error();
    auto target = find_data(r, to, W_OK);
    if (!target)
        co_return target.error();
    node& s = **source;
    node& t = **target;
    const std::uint64_t size = s.attrs.size;
    if (from_offset > size || length > size - from_offset)
        co_return fails(EINVAL, "a range beyond the end of what is cloned");
    if (length == 0)
        length = size - from_offset;
    if (is_too_far(to_offset, length))
        co_return fails(EFBIG, "a range past the largest offset");
    // The rest of the last block is zeros in the source. In the target it may hold what stays.
    const bool to_the_end = from_offset + length == size && to_offset + length >= t.attrs.size;
    if (from_offset % unit != 0 || to_offset % unit != 0 || (length % unit != 0 && !to_the_end))
        co_return fails(EINVAL, "a range that is not of whole blocks");
    if (&s == &t && overlap(from_offset, to_offset, length))
        co_return fails(EINVAL, "a clone onto itself");
    storage::change out;
    out.before = out.after = seen(t);
    if (length == 0) // nothing, at the source's end
        co_return out;
    const std::uint64_t count = (length + unit - 1) / unit;
    const std::uint64_t gone = t.data.blocks(to_offset / unit, count);
    const std::uint64_t come = s.data.blocks(from_offset / unit, count);
    if (t.data.is_pinned(to_offset / unit, count))
        co_return fails(EAGAIN, "clone onto a file whose memory is in use");
    // What is pinned is copied.
    if (s.data.pinned(from_offset / unit, count) > most_blocks_made_at_once)
        co_return fails(EAGAIN, "clone of a file whose memory is in use");
    const std::uint64_t held = kept_blocks(t, to_offset, count * unit);
    if (come + held > gone && come + held - gone > free_bytes() / unit)
        co_return fails(ENOSPC, "clone");
    t.data.share(s.data, size, from_offset / unit, to_offset / unit, count);
    grow(t, to_offset, to_offset + length);
    note_change(t, r);
    out.after = seen(t);
    co_return out;
}

// What peers wrote there, and nobody has made a part of the file.
void backend::forget_behind_end(node& n) noexcept
{
    if (!n.reached_behind_end)
        return;
    try {
        n.reached_behind_end = !n.data.forget_behind(n.attrs.size);
    } catch (const std::bad_alloc&) { // it stays, and is zeroed before it can be seen
    }
}

// Memory of a file that somebody has the address of; keeps the file as an open does.
class backend::mapped {
public:
    /// With the mutex held.
    mapped(backend& of, node& n, std::vector<file_data::piece> pieces, std::vector<file_data::fresh> fresh,
           bool writes) noexcept
        : of_(of), node_(n), pieces_(std::move(pieces)), fresh_(std::move(fresh)), writes_(writes)
    {
        node_.data.pin(pieces_, writes_);
        ++node_.opens;
        ++of_.mapped_;
    }
    mapped(const mapped&) = delete;
    ~mapped()
    {
        const std::lock_guard lock(of_.mutex_);
        --of_.mapped_;
        node_.data.unpin(pieces_, writes_);
        node_.data.drop(fresh_);
        forget_behind_end(node_);
        --node_.opens;
        of_.release(node_);
    }

private:
    backend& of_;
    node& node_;
    const std::vector<file_data::piece> pieces_;
    const std::vector<file_data::fresh> fresh_;
    const bool writes_;
};

namespace {

// Memory that goes on in the file, and in memory, is one part.
void add_part(std::vector<storage::mapping::part>& to, const file_data::fresh& f)
{
    const std::uint64_t offset = f.place * file_data::block_size;
    if (!to.empty()) {
        storage::mapping::part& last = to.back();
        const std::size_t size = last.memory.size();
        if (last.offset + size == offset && last.beneath.size() == size &&
            last.memory.data() + size == f.memory.data() && last.beneath.data() + size == f.beneath.data()) {
            last.memory = {last.memory.data(), size + f.memory.size()};
            last.beneath = {last.beneath.data(), size + f.beneath.size()};
            return;
        }
    }
    to.push_back({offset, f.memory, f.beneath});
}

} // namespace

task<result<storage::mapping>> backend::map(const storage::request& r, const storage::handle& file,
                                            std::uint64_t offset, std::uint64_t length, storage::map_use use)
{
    constexpr std::uint64_t unit = file_data::block_size;
    const bool writes = use != storage::map_use::read;
    if (writes && refuses_changes())
        co_return fails(EROFS, "the export is read-only");
    if (length == 0)
        co_return fails(EINVAL, "an empty range");
    if (is_too_far(offset, length)) {
        if (writes || offset > max_offset)
            co_return fails(EFBIG, "a range past the largest offset");
        length = max_offset - offset;
    }
    std::lock_guard lock(mutex_);
    auto n = find_data(r, file, R_OK);
    if (n && writes) // and to read
        n = find_data(r, file, W_OK);
    if (!n)
        co_return n.error();
    node& f = **n;
    if (holding_back_ != 0 && !f.is_kept)
        co_return fails(EAGAIN, "map while a snapshot is being taken");
    if (const snapshot* const in = snapshot_of(f.attrs.fileid); in != nullptr && in->holding_back != 0)
        co_return fails(EAGAIN, "map while the snapshot is being ended");
    // As by a write: a peer that has the memory may write without a word.
    if (writes && r.who.uid != 0) {
        const std::uint32_t mode = without_set_id(f.attrs, r.who);
        if (mode != f.attrs.mode)
            f.touch(now());
        f.attrs.mode = mode;
    }
    if (!writes)
        length = std::min(length, f.attrs.size - std::min(f.attrs.size, offset));
    storage::mapping out;
    out.attrs = seen(f);
    if (length == 0)
        co_return out;
    const std::uint64_t first = offset / unit;
    const std::uint64_t wanted = (offset + length - 1) / unit - first + 1;
    // What a snapshot has is never changed: as long as the file is there, its blocks are.
    if (f.is_kept) {
        for (const file_data::piece& each : f.data.pieces(first, wanted))
            out.parts.push_back({each.first * unit, each.memory});
        out.pin = std::make_shared<pin>(*this, f, r.who, unsigned(R_OK));
        out.length = length;
        co_return out;
    }
    const std::uint64_t count =
        f.data.fresh_before(first, f.data.places_for(first, wanted, writes, most_blocks_made_at_once));
    if (count == 0)
        co_return fails(EAGAIN, "map of bytes that a peer has fresh memory of");
    const std::uint64_t missing = writes ? f.data.missing(first * unit, count * unit) : 0;
    if (missing + kept_blocks(f, first * unit, count * unit) > free_bytes() / unit)
        co_return fails(ENOSPC, "map");
    std::vector<file_data::piece> pieces;
    std::vector<file_data::fresh> fresh;
    try {
        if (writes)
            f.reached_behind_end |= (first + count) * unit > f.attrs.size;
        bool is_kept = false;
        for (std::uint64_t at = first, n = 0; at != first + count; at += n) {
            n = f.data.run_of_kept(at, first + count - at, is_kept);
            if (is_kept && use == storage::map_use::write_apart) {
                fresh.reserve(fresh.size() + n);
                for (const file_data::fresh& each : f.data.make_fresh(at, n))
                    fresh.push_back(each);
                for (const file_data::fresh& each : std::span(fresh).last(n))
                    add_part(out.parts, each);
                fresh_blocks_ += n;
                continue;
            }
            if (writes) {
                f.data.reserve(at * unit, n * unit);
                f.data.make_own(at * unit, n * unit);
            }
            f.data.part(at, n);
            for (const file_data::piece& each : f.data.pieces(at, n)) {
                pieces.push_back(each);
                out.parts.push_back({each.first * unit, each.memory});
            }
        }
        out.pin = std::make_shared<mapped>(*this, f, std::move(pieces), std::move(fresh), writes);
    } catch (const std::bad_alloc&) {
        f.data.drop(fresh);
        forget_behind_end(f);
        co_return fails(ENOMEM, "map");
    }
    out.length = std::min((first + count) * unit - offset, length);
    co_return out;
}

task<result<storage::change>> backend::note_written(const storage::request& r, const storage::handle& file,
                                                    storage::peer_writes what)
{
    const std::uint64_t end = what.end;
    if (refuses_changes())
        co_return fails(EROFS, "the export is read-only");
    if (end > max_offset)
        co_return fails(EFBIG, "a write past the largest offset");
    for (const storage::mapped_range& each : what.filled)
        if (is_too_far(each.offset, each.length))
            co_return fails(EFBIG, "a range past the largest offset");
    std::lock_guard lock(mutex_);
    auto n = find_data(r, file, W_OK, end == 0 ? 0 : end - 1);
    if (!n)
        co_return n.error();
    node& f = **n;
    storage::change out;
    out.before = seen(f);
    for (const storage::mapped_range& each : what.filled) {
        const std::uint64_t first = (each.offset + file_data::block_size - 1) / file_data::block_size;
        const std::uint64_t behind = (each.offset + each.length) / file_data::block_size;
        if (first < behind) // it has a whole block
            taken_in_ += f.data.take_in(first, behind - first);
    }
    grow(f, f.attrs.size, end);
    note_change(f, r);
    out.after = seen(f);
    co_return out;
}

} // namespace verbena::memfs
