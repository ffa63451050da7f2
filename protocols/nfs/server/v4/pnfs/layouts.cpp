// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/v4/pnfs/layouts.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/yield.hpp>

#include <algorithm>
#include <cerrno>
#include <list>
#include <optional>
#include <utility>

namespace verbena::nfs::v4::pnfs {

namespace {

using files::byte_range;
using files::lock_type;

// How often a fence looks whether memory that is being granted is there.
constexpr auto look_again = std::chrono::milliseconds(1);
// The same of what has lasted for long.
constexpr duration most_pause = std::chrono::milliseconds(64);
// How long who gives back waits for the fence, and how many turns of them without sleep.
constexpr auto most_wait_for_fences = std::chrono::seconds(1);
constexpr unsigned most_turns = 16;
// Of who wants a layout to write, with the layouts of others that tell of holes.
constexpr auto patience_with_others = std::chrono::seconds(1);
// Layouts that a client gives back in one go before others of the shard have their turn.
constexpr std::size_t back_at_once = 128;
// No file has this byte, so no layout has it.
constexpr byte_range nothing_held{byte_range::to_the_end, byte_range::to_the_end};

bool lies_within(const byte_range& inner, const byte_range& outer) noexcept
{
    return outer.offset <= inner.offset && inner.last <= outer.last;
}

// Whole blocks around it, and no more than `most` bytes.
byte_range in_blocks(std::uint64_t offset, std::uint64_t length, std::uint64_t block,
                     std::uint64_t most) noexcept
{
    constexpr std::uint64_t no_end = byte_range::to_the_end;
    const std::uint64_t first = offset / block * block;
    const std::uint64_t end = length > no_end - offset ? no_end : offset + length;
    const std::uint64_t rounded =
        end > no_end - block ? end / block * block : (end + block - 1) / block * block;
    return {first, first + std::max(std::min(rounded - first, most / block * block), block) - 1};
}

} // namespace

/// What one LAYOUTGET gave.
struct layouts::segment {
    segment(byte_range b, lock_type t, std::shared_ptr<layout_client> c) noexcept
        : bytes(b), type(t), client(std::move(c))
    {
    }
    byte_range bytes;
    const lock_type type;
    files::state_table::told tells; ///< from when its memory is known
    bool is_back = false;
    const std::shared_ptr<layout_client> client;
    std::vector<verbs::grant> grants;
    /// What they are of, where the back end's files are no memory: some of what is written to them may be lost.
    std::vector<std::shared_ptr<verbs::byte_store>> stores;
    /// The grants are made, or there will be none. Its LAYOUTGET, on another shard, may say so when it can't come here.
    std::atomic<bool> is_ready{false};
};

/// What a client has of a file. It is there until all of it is fenced.
struct layouts::record {
    bool is_ready() const noexcept
    {
        return std::ranges::all_of(segments, [](const segment& s) { return s.is_ready.load(); });
    }
    files::state_table::told tells() const noexcept
    {
        files::state_table::told all;
        for (const segment& s : segments) {
            all.holes |= s.tells.holes && !s.is_back;
            all.unshared |= s.tells.unshared && !s.is_back;
        }
        return all;
    }
    storage::file_backend* backend = nullptr; ///< of the file
    storage::handle file;
    std::list<segment> segments;      ///< whose grants are not revoked
    std::atomic<unsigned> commits{0}; ///< under way: what is committed is fenced after that
    unsigned fences = 0;              ///< that are under way
    bool is_going = false;            ///< a fence of all of it has begun
    bool has_stores = false;          ///< some of it has, or had
};

/// A segment that the state layer knows of, and that waits for its memory.
struct layouts::begun {
    files::stateid id;
    storage::handle file; ///< the state layer's name for it
    std::shared_ptr<record> of;
    segment* here = nullptr;
    bool looks = false; ///< files::hold_request::looks
};

/// What there is for a segment, and whether the state layer is to hear of less.
struct layouts::mapped {
    std::vector<verbs::grant> grants;
    std::vector<verbs::grant_request> batch; ///< of which they are made
    std::vector<std::shared_ptr<verbs::byte_store>> stores;
    std::vector<extent> extents;
    std::size_t counted = 0;  ///< of layout_client::grants
    std::uint64_t locked = 0; ///< of layout_client::locked
    std::uint64_t length = 0; ///< bytes from the segment's begin that are covered
    storage::attributes attrs;
    bool is_late = false; ///< another client is about to fill a hole of it
};

/// The way home for a LAYOUTGET on another shard that has no memory for its last step: the segment goes, and whoever waits for what it might
/// tell of holes goes on. Made before there is a segment; it owns itself from send() on.
class layouts::unfinished final : public remote_message {
public:
    unfinished(layouts& of, state_home& state) noexcept : of_(of), state_(state) {}
    /// What was made for it is dropped.
    void send(const begun& b, unsigned home) noexcept
    {
        begun_ = b;
        home_ = home;
        state_.where(home).reactor().post_remote(*this);
    }
    void deliver() noexcept override
    {
        mapped none;
        (void)of_.end(state_.table(home_), begun_, none);
        delete this;
    }

private:
    layouts& of_;
    state_home& state_;
    unsigned home_ = 0;
    begun begun_;
};

layouts::layouts(unsigned homes, layout_recaller& recaller, const layout_limits& limits)
    : limits_(limits), recaller_(recaller), homes_(homes)
{
}

layouts::~layouts() = default;

// Of one that a table gave out, on its shard. What a client says may lead to any home.
layouts::home& layouts::home_of(const files::stateid& id) noexcept
{
    return homes_[files::home_of(id, static_cast<unsigned>(homes_.size()))];
}

layout_counts layouts::counts() const noexcept
{
    layout_counts all;
    for (const home& each : homes_) {
        all.segments += each.segments.value();
        all.granted += each.granted.value();
        all.revoked += each.revoked.value();
    }
    return all;
}

bool layouts::conflicts(lock_type type, files::operation op) const noexcept
{
    switch (op) {
    case files::operation::open_deny_read: return true;
    case files::operation::open_deny_write: return type == lock_type::write;
    default: return conflicts_with_holder(type, op);
    }
}

bool layouts::conflicts_with_holder(lock_type, files::operation op) const noexcept
{
    // Memory of a file that nobody finds any more is to be free again.
    return op == files::operation::set_attributes || op == files::operation::set_size ||
           op == files::operation::change_extents || op == files::operation::remove;
}

// What fills a hole gives the file memory that the holder does not know.
bool layouts::hole_conflicts(files::operation op) const noexcept { return op == files::operation::write; }

// What the holder has fresh memory of, and takes in later, would be as it was before.
bool layouts::unshared_conflicts(files::operation op) const noexcept { return op == files::operation::write; }

// Ranges that overlap are one to the table.
bool layouts::has_room(const files::stateid& id) const noexcept
{
    const auto& records = homes_[files::home_of(id, static_cast<unsigned>(homes_.size()))].records;
    const auto found = records.find(id.other);
    return found == records.end() || found->second->segments.size() < limits_.ranges;
}

// One step with the state layer's decision, so that a fence that begins behind it knows of the segment.
result<layouts::begun> layouts::begin(files::state_table& table, const files::hold_request& hold,
                                      const request& r)
{
    // What needs memory comes first.
    std::map<key, std::shared_ptr<record>> spare;
    spare.emplace(key(), std::make_shared<record>());
    std::list<segment> fresh;
    fresh.emplace_back(hold.bytes, hold.type, r.client);
    const auto held = table.hold(hold);
    if (!held)
        return held.error();
    home& h = home_of(*held);
    auto found = h.records.find(held->other);
    if (found == h.records.end()) {
        auto node = spare.extract(spare.begin());
        node.key() = held->other;
        node.mapped()->backend = r.backend;
        node.mapped()->file = *r.handle;
        found = h.records.insert(std::move(node)).position;
    }
    begun out;
    out.id = *held;
    out.file = hold.file.key;
    out.of = found->second;
    out.here = &fresh.front();
    out.looks = hold.looks;
    out.of->segments.splice(out.of->segments.end(), fresh);
    h.segments.add(1);
    return out;
}

// Adds extents for what was mapped from the end of those that are there. False: there may be no more of them.
bool layouts::add(const request& r, const storage::mapping& got, const byte_range& bytes, mapped& made) const
{
    const std::size_t most = std::min(limits_.parts, r.extents);
    const std::uint64_t block = r.backend->info().map_block;
    std::uint64_t end = bytes.offset + made.length;
    const std::uint64_t mapped_to = (end + got.length + block - 1) / block * block;
    // Bytes without memory, up to `to`.
    const auto add_hole = [&](std::uint64_t to) {
        if (to <= end)
            return true;
        if (!made.extents.empty() && made.extents.back().is == extent::kind::hole) {
            made.extents.back().length += to - end;
        } else {
            if (made.extents.size() == most)
                return false;
            made.extents.push_back({end, to - end, extent::kind::hole, {}});
        }
        made.length += to - end;
        end = to;
        return true;
    };
    // An extent with a grant, which the caller says the bytes of.
    const auto add_extent = [&](std::uint64_t length, extent::kind is) -> verbs::grant_request& {
        made.extents.push_back({end, length, is, {}});
        const bool writes = r.type == lock_type::write && is != extent::kind::beneath;
        if (is != extent::kind::beneath) {
            made.length += length;
            end += length;
        }
        verbs::grant_request& each = made.batch.emplace_back();
        each.rights =
            writes ? verbs::access::remote_read | verbs::access::remote_write : verbs::access::remote_read;
        return each;
    };
    // A read of a hole, or behind the end of the file, gives zeros.
    if (got.store != nullptr) {
        if (made.extents.size() == most)
            return false;
        const std::uint64_t begun = end;
        verbs::grant_request& each = add_extent(mapped_to - begun, extent::kind::data);
        each.store = got.store;
        each.store_offset = begun;
        each.store_length = static_cast<std::uint32_t>(mapped_to - begun);
        made.stores.push_back(got.store);
        return true;
    }
    for (const storage::mapping::part& part : got.parts) {
        const bool is_fresh = !part.beneath.empty();
        if (!add_hole(part.offset) || made.extents.size() + is_fresh >= most)
            return false;
        const auto grant = [&](std::span<std::byte> memory, extent::kind is) {
            verbs::grant_request& each = add_extent(memory.size(), is);
            each.memory = memory;
            each.own_region = true; // so that a client reaches what it was given, and no more
            each.keep = got.pin;
        };
        if (is_fresh) // by a key that does not write
            grant({const_cast<std::byte*>(part.beneath.data()), part.beneath.size()}, extent::kind::beneath);
        grant(part.memory, is_fresh ? extent::kind::fresh : extent::kind::data);
    }
    // Holes are told of up to the end of the file, in whole blocks.
    const std::uint64_t size = (got.attrs.size + block - 1) / block * block;
    return r.type == lock_type::write || add_hole(std::min(mapped_to, size));
}

// Maps until there is what the client needs at least: a back end may do some of it at once.
task<result<void>> layouts::map_some(const request& r, const byte_range& bytes, mapped& made)
{
    // Who asks for no minimum is to have what can be written as it is (draft 2.4.1).
    const auto use = r.type == lock_type::read ? storage::map_use::read
                     : r.minimum == 0          ? storage::map_use::write
                                               : storage::map_use::write_apart;
    for (;;) {
        const std::uint64_t begun = made.length;
        const std::uint64_t at = bytes.offset + begun;
        task<result<storage::mapping>> mapping =
            r.backend->map(*r.who, *r.handle, at, bytes.last - at + 1, use);
        const auto got = co_await mapping;
        if (!got)
            co_return got.error();
        made.attrs = got->attrs;
        const bool is_full = !add(r, *got, bytes, made);
        std::uint64_t needed = r.minimum;
        if (r.type == lock_type::read)
            needed = std::min(needed, got->attrs.size - std::min(got->attrs.size, r.offset));
        const std::uint64_t end = bytes.offset + made.length;
        if (end > r.offset && end - r.offset >= needed)
            co_return result<void>();
        if (is_full && r.extents < limits_.parts)
            co_return error::from_errno(E2BIG, "a layout of more extents than its answer may have");
        if (end > bytes.last || made.length == begun || is_full) {
            if (made.length == 0)
                co_return result<void>(); // the file was cut meanwhile
            co_return error::from_errno(ERANGE, "a layout of more bytes than may be given at once");
        }
        co_await yield(); // a back end may have zeroed what it gave
    }
}

// Locked memory is the process's: a client that takes all of it would have others' connections refused.
bool layouts::lock(const request& r, mapped& made) noexcept
{
    if (!r.client->locks_memory)
        return true;
    for (const verbs::grant_request& each : made.batch)
        made.locked += each.memory.size();
    const bool client_may = r.client->locked.fetch_add(made.locked) + made.locked <= limits_.locked_of_client;
    return (locked_ += made.locked) <= limits_.locked && client_may;
}

void layouts::unlock(layout_client& c, std::uint64_t bytes) noexcept
{
    if (!c.locks_memory)
        return;
    c.locked -= bytes;
    locked_ -= bytes;
}

task<result<void>> layouts::map(const request& r, const byte_range& bytes, mapped& made)
{
    task<result<void>> mapping = map_some(r, bytes, made);
    const auto done = co_await mapping;
    if (!done)
        co_return done;
    made.grants.reserve(made.batch.size());
    made.counted = made.batch.size();
    if (r.client->grants.fetch_add(made.counted) + made.counted > limits_.grants_of_client)
        co_return error(files::errc::busy, "a client has as many ranges of memory as it may");
    if (!lock(r, made))
        co_return error(files::errc::busy, "a device has as much memory registered for layouts as it may");
    task<result<void>> making = r.client->domain->make_grants(made.batch);
    const auto granted = co_await making;
    if (!granted) {
        log_limited(refusals_logged_, log_level::warning, "pnfs",
                    "no layout: the device can't give a client the memory of a file",
                    {{"cause", granted.error().message()}});
        co_return granted.error();
    }
    auto at = made.extents.begin();
    for (verbs::grant_request& each : made.batch) {
        at = std::find_if(at, made.extents.end(), [](const extent& e) { return e.is != extent::kind::hole; });
        (at++)->memory = each.made.where();
        made.grants.push_back(std::move(each.made));
    }
    made.batch.clear(); // the grants alone keep the memory from here on
    co_return result<void>();
}

// A layout to write gives holes of its range memory, at any moment until its client has it. One that is asked for later finds that
// holes were told of, and waits for their return.
bool layouts::is_being_filled(files::state_table& table, const begun& b, const mapped& made) const
{
    return std::ranges::any_of(made.extents, [&](const extent& e) {
        return e.is == extent::kind::hole &&
               table.is_held(*this, b.file, {e.offset, e.offset + (e.length - 1)}, lock_type::write);
    });
}

// The client has what `made` says of the segment, and no more. Yields the stateid's number from then on.
result<files::stateid> layouts::end(files::state_table& table, const begun& b, mapped& made) noexcept
{
    home& h = home_of(b.id);
    const byte_range asked = b.here->bytes;
    const lock_type type = b.here->type;
    const layout_client& client = *b.here->client;
    if (client.grants + limits_.grants_of_client / 8 > limits_.grants_of_client)
        table.ask_for_some(*this, client.id);
    made.is_late = is_being_filled(table, b, made);
    const auto has_some = [&made](extent::kind k) {
        return std::ranges::any_of(made.extents, [k](const extent& e) { return e.is == k; });
    };
    b.here->tells = {has_some(extent::kind::hole), has_some(extent::kind::fresh)};
    if (made.is_late || made.length == 0) {
        made.length = 0;
        b.here->tells = {};
    }
    bool stands = table.note_told(b.id, b.of->tells(), b.looks);
    if (!stands)
        made.length = 0; // its fence may wait for its turn
    if (made.length == 0) {
        made.grants.clear();
        std::erase_if(b.of->segments, [&b](const segment& s) { return &s == b.here; });
        h.segments.add(-1);
    } else {
        b.here->bytes.last = asked.offset + made.length - 1;
        b.here->grants.swap(made.grants);
        b.here->stores.swap(made.stores);
        b.of->has_stores |= !b.here->stores.empty();
        b.here->is_ready = true;
        h.granted.add();
        // Nobody finds the file any more: its memory is not kept for longer than the client has it open.
        if (made.attrs.links == 0)
            stands = table.end_with_last_close(b.id) && stands;
    }
    if (!stands || b.of->is_going)
        return error(files::errc::recalled, "what the client has of the file is being taken");
    // The state layer is to know of no more than there is. Where it can't be told so, it keeps a range that has no memory.
    try {
        std::optional<byte_range> rest;
        bool is_gone = false;
        if (asked.offset + made.length <= asked.last)
            rest = first_free(*b.of, {asked.offset + made.length, asked.last}, type);
        while (rest && !is_gone) {
            is_gone = table.forgo(b.id, *rest, type);
            if (rest->last == asked.last)
                break;
            rest = first_free(*b.of, {rest->last + 1, asked.last}, type);
        }
        if (made.length == 0)
            table.forgo_number(b.id);
        if (is_gone && b.of->fences == 0 && b.of->segments.empty())
            h.records.erase(b.id.other);
    } catch (const std::bad_alloc&) {
    }
    return b.id;
}

files::hold_request layouts::hold_of(files::client_id client, const request& r) noexcept
{
    files::hold_request hold;
    hold.client = client;
    hold.file = r.file;
    hold.kind = this;
    hold.by = r.by;
    hold.bytes = in_blocks(r.offset, r.length, r.backend->info().map_block, limits_.bytes);
    hold.type = r.type;
    hold.looks = r.type == lock_type::read || r.backend->snapshots() != nullptr;
    return hold;
}

task<result<void>> layouts::may_ask(state_home& state, files::client_id client, const request& r)
{
    const files::hold_request hold = hold_of(client, r);
    const auto ask = [&hold](files::state_table& table) { return table.may_hold(hold); };
    auto asking = state.at_home_of(r.file.key, ask);
    const auto may = co_await asking;
    if (!may && (may.error() == files::errc::in_way || may.error() == files::errc::busy))
        co_return result<void>();
    co_return may;
}

task<result<void>> layouts::make_way(state_home& state, const request& r)
{
    const files::hold_request hold = hold_of(r.client->id, r);
    const auto ask = [&hold](files::state_table& table) {
        return table.make_way(files::demand(hold), patience_with_others);
    };
    auto asking = state.at_home_of(r.file.key, ask);
    const auto made = co_await asking;
    co_return made;
}

task<result<layouts::granted>> layouts::get(state_home& state, const request& r)
{
    const std::uint64_t block = r.backend->info().map_block;
    if (block == 0)
        co_return error(std::errc::operation_not_supported, "a file whose memory can't be mapped");
    files::hold_request hold = hold_of(r.client->id, r);
    std::uint64_t needed = r.minimum;
    result<void> may;
    if (r.type == lock_type::read) {
        auto looking = r.backend->getattr(*r.who, *r.handle);
        const auto attrs = co_await looking;
        if (!attrs)
            co_return attrs.error();
        if (r.offset >= attrs->size) {
            may = error::from_errno(ENODATA, "a layout to read behind the end of the file");
        } else {
            hold.bytes.last = std::min(hold.bytes.last, (attrs->size + block - 1) / block * block - 1);
            needed = std::min(needed, attrs->size - r.offset);
        }
    }
    if (may && needed > hold.bytes.last - r.offset + 1)
        may = error::from_errno(ERANGE, "a layout of more bytes than may be given at once");
    if (!may) { // which tells nothing of the file to who does not have it open
        task<result<void>> asking = may_ask(state, r.client->id, r);
        const auto known = co_await asking;
        co_return known ? may.error() : known.error();
    }
    auto last_resort = std::make_unique<unfinished>(*this, state);
    unsigned home = 0;
    const auto ask = [this, &hold, &r, &home](files::state_table& table) {
        home = table.commons().home_of(hold.file.key);
        return begin(table, hold, r);
    };
    auto asking = state.at_home_of(r.file.key, ask);
    const result<begun> b = co_await asking;
    if (!b)
        co_return b.error();
    // From here on the segment has to become ready, whatever happens: else its fence waits for ever.
    mapped made;
    result<void> done;
    result<files::stateid> id = error(std::errc::not_enough_memory, "a layout");
    try {
        task<result<void>> mapping = map(r, hold.bytes, made);
        done = co_await mapping;
    } catch (...) {
        done = error_of(std::current_exception(), "an exception left the making of a layout");
    }
    if (!done) {
        made.grants.clear(); // what was made is dropped, and nobody has heard of it
        made.batch.clear();
        made.length = 0;
    }
    bool is_known = false, is_home_there = true;
    try {
        const auto finish = [this, &b, &made, &is_known](files::state_table& table) {
            is_known = true;
            return end(table, *b, made);
        };
        if (state.where(home).reactor().is_here()) { // which needs no memory
            id = finish(state.table(home));
        } else {
            auto finishing = state.at_home_of(r.file.key, finish);
            id = co_await finishing;
            is_home_there = is_known;
        }
    } catch (...) {
        id = error_of(std::current_exception(), "an exception left the making of a layout");
    }
    if (!is_known)
        made.grants.clear();
    if (!is_known && is_home_there)
        last_resort.release()->send(*b, home);
    else if (!is_known)
        b->here->is_ready = true; // its home stops, and fences all
    const bool is_empty = made.length == 0;
    if (!is_known || is_empty) {
        r.client->grants -= made.counted;
        unlock(*r.client, made.locked);
    }
    if (!done)
        co_return done.error();
    if (!id)
        co_return id.error();
    if (made.is_late)
        co_return error(files::errc::busy, "a layout to write is about to fill a hole");
    granted out;
    out.id = *id;
    out.extents = std::move(made.extents);
    out.attrs = made.attrs;
    if (is_empty)
        co_return error::from_errno(ENODATA, "a layout of a file that was cut meanwhile");
    co_return out;
}

// The first bytes of a range that no segment of the type has.
std::optional<byte_range> layouts::first_free(const record& of, byte_range bytes, lock_type type) noexcept
{
    const auto has_first = [&](const segment& s) {
        return s.type == type && s.bytes.offset <= bytes.offset && bytes.offset <= s.bytes.last;
    };
    for (auto at = of.segments.begin(); at != of.segments.end();) {
        if (!has_first(*at)) {
            ++at;
            continue;
        }
        if (at->bytes.last >= bytes.last)
            return std::nullopt;
        bytes.offset = at->bytes.last + 1;
        at = of.segments.begin();
    }
    for (const segment& s : of.segments)
        if (s.type == type && s.bytes.offset > bytes.offset && s.bytes.offset <= bytes.last)
            bytes.last = s.bytes.offset - 1;
    return bytes;
}

result<std::optional<files::stateid>> layouts::give_back(files::state_table& table, files::client_id client,
                                                         const files::stateid& id,
                                                         const files::exported_file& file,
                                                         const byte_range& bytes,
                                                         std::optional<lock_type> type, files::loss why)
{
    // Not where `id` leads, which is the client's word.
    home& h = homes_[table.commons().home_of(file.key)];
    const auto found = h.records.find(id.other);
    byte_range part = bytes;
    bool is_some = true;
    // A key opens all bytes of its segment. So those of a segment that goes beyond the range stay, and with them those of
    // others that go beyond what is left of the range then.
    for (bool again = found != h.records.end(); std::exchange(again, false) && is_some;) {
        for (const segment& s : found->second->segments) {
            if (!s.bytes.overlaps(part) || lies_within(s.bytes, part) || (type && s.type != *type))
                continue;
            again = true;
            if (s.bytes.offset <= part.offset && s.bytes.last >= part.last) {
                is_some = false;
                break;
            }
            if (s.bytes.offset <= part.offset)
                part.offset = s.bytes.last + 1;
            else
                part.last = s.bytes.offset - 1;
        }
    }
    if (!is_some)
        part = nothing_held; // the stateid has its next number all the same
    const std::shared_ptr<record> of = found != h.records.end() ? found->second : nullptr;
    const auto left = table.give_back(client, id, file, part, type, why);
    if (left && of != nullptr) {
        for (segment& s : of->segments)
            s.is_back |= lies_within(s.bytes, part) && (!type || s.type == *type);
        if (*left)
            table.note_told(**left, of->tells());
    }
    return left;
}

task<result<void>> layouts::wait_until_back(home* at, std::vector<files::stateid> ids, time_point until)
{
    const auto is_over = [at, &ids] {
        const auto is_out = [at](const files::stateid& id) {
            const auto found = at->records.find(id.other);
            return found == at->records.end() ||
                   (found->second->fences == 0 &&
                    std::ranges::none_of(found->second->segments,
                                         [](const segment& s) { return s.is_back; }));
        };
        while (!ids.empty() && is_out(ids.back()))
            ids.pop_back();
        return ids.empty();
    };
    // What a disk holds up would land on what the client writes behind this: that is waited for as a WRITE would wait.
    const auto has_stores = [at, &ids] {
        return std::ranges::any_of(ids, [at](const files::stateid& id) {
            const auto found = at->records.find(id.other);
            return found != at->records.end() && found->second->has_stores;
        });
    };
    const task_context& context = co_await current_context();
    // Mostly it takes a few turns.
    for (unsigned turns = 0; turns < most_turns && !is_over(); ++turns)
        co_await yield();
    bool goes_on = true;
    for (duration pause = look_again;
         goes_on && !is_over() && (context.shard->clock().now() < until || has_stores());
         pause = std::min<duration>(2 * pause, most_pause))
        goes_on = co_await sleep_for(pause);
    co_return result<void>();
}

task<void> layouts::until_back(state_home& state, files::exported_file file, files::stateid id)
{
    const task_context& context = co_await current_context();
    const time_point until = context.shard->clock().now() + most_wait_for_fences;
    const auto wait = [this, id, until, &file](files::state_table& table) {
        return wait_until_back(&homes_[table.commons().home_of(file.key)], std::vector<files::stateid>(1, id),
                               until);
    };
    auto waiting = state.at_home_of(file.key, wait);
    (void)co_await waiting;
}

task<result<void>> layouts::give_back_all(state_home& state, files::client_id client,
                                          std::optional<std::uint32_t> via, std::optional<lock_type> type)
{
    std::vector<std::vector<files::stateid>> back_at(state.homes());
    for (unsigned i = 0; i < state.homes(); ++i) {
        std::vector<files::held_state> held;
        std::size_t done = 0;
        const auto look = [&]() -> result<void> {
            held = state.table(i).all_of(*this, client);
            return {};
        };
        // Some at once, so that others have their turn between them. What goes meanwhile is back as well.
        const auto give_some = [&]() -> result<void> {
            for (std::size_t n = 0; n < back_at_once && done < held.size(); ++n, ++done) {
                const files::held_state& each = held[done];
                if (via && each.via != *via)
                    continue;
                const auto back = give_back(state.table(i), client, each.id, {each.file, each.via},
                                            {0, byte_range::to_the_end}, type);
                if (!back && back.error() == files::errc::busy)
                    return back.error();
            }
            return {};
        };
        auto looking = state.where(i).run(look);
        auto answer = co_await looking;
        while (answer && done < held.size()) {
            auto giving = state.where(i).run(give_some);
            answer = co_await giving;
        }
        if (!answer)
            co_return answer;
        for (const files::held_state& each : held)
            if (!via || each.via == *via)
                back_at[i].push_back(each.id);
    }
    const task_context& context = co_await current_context();
    const time_point until = context.shard->clock().now() + most_wait_for_fences;
    for (unsigned i = 0; i < state.homes(); ++i) {
        if (back_at[i].empty())
            continue;
        const auto wait = [&, i] { return wait_until_back(&homes_[i], std::move(back_at[i]), until); };
        auto waiting = state.where(i).run(wait);
        (void)co_await waiting;
    }
    co_return result<void>();
}

layouts::commit::commit(std::atomic<unsigned>& of, std::shared_ptr<void> keeps, stores written) noexcept
    : keeps_(std::move(keeps)), of_(&of), stores_(std::move(written))
{
    ++of;
}

std::error_code layouts::commit::failure() const noexcept
{
    for (const auto& each : stores_)
        if (const std::error_code why = each->write_failure())
            return why;
    return {};
}

layouts::commit::~commit()
{
    if (keeps_ != nullptr)
        --*of_;
}

result<layouts::commit> layouts::begin_commit(files::state_table& table, files::client_id client,
                                              const files::stateid& id, const files::exported_file& file,
                                              const byte_range& bytes, std::span<const byte_range> all_of)
{
    const auto held = table.ranges_of(*this, client, id, file);
    if (!held)
        return held.error();
    const auto found = home_of(id).records.find(id.other); // the table knows it
    const files::byte_ranges& written = (*held)[std::size_t(lock_type::write)];
    const auto has_all = [&written](const byte_range& r) {
        const auto some = written.overlapping(r);
        return some.size() == 1 && lies_within(r, some.front().bytes);
    };
    if (found == home_of(id).records.end() || written.overlapping(bytes).empty())
        return error::from_errno(!(*held)[0].overlapping(bytes).empty() ? EBADF : ENOENT,
                                 "a commit of what is in no layout to write");
    if (!std::ranges::all_of(all_of, has_all))
        return error::from_errno(ENOENT, "a commit of what is in no layout to write");
    // Fences wait for commits, and not for one after the other.
    if (found->second->fences != 0)
        return error(files::errc::busy, "a commit while some of the layout is being taken");
    // Of all that the client has of the file to write: which of it the bytes went by, nobody knows.
    commit::stores written_to;
    for (const segment& s : found->second->segments)
        if (s.type == lock_type::write)
            written_to.insert(written_to.end(), s.stores.begin(), s.stores.end());
    return commit(found->second->commits, found->second, std::move(written_to));
}

task<result<void>> layouts::fence(const files::lost_state& what)
{
    home& h = home_of(what.id);
    const auto found = h.records.find(what.id.other);
    if (found == h.records.end())
        co_return result<void>();
    if (what.is_all)
        found->second->is_going = true;
    // The fences of one record that run side by side have different segments.
    struct fencing {
        fencing(home& of_all, const files::stateid& i, std::shared_ptr<record> r) noexcept
            : at(of_all), id(i), of(std::move(r))
        {
            ++of->fences;
        }
        fencing(const fencing&) = delete;
        // What was not revoked is so when the fence is tried again.
        ~fencing()
        {
            of->segments.splice(of->segments.end(), mine);
            if (--of->fences == 0 && of->segments.empty())
                at.records.erase(id.other);
        }
        home& at;
        const files::stateid id;
        const std::shared_ptr<record> of;
        std::list<segment> mine;
    };
    fencing now(h, what.id, found->second);
    // Should one be lost in part, its key goes all the same.
    const auto is_lost = [&what](const segment& s) {
        return what.is_all || !what.bytes[std::size_t(s.type)].overlapping(s.bytes).empty();
    };
    // A commit takes as long as the disk does.
    duration pause = look_again;
    while (!now.of->is_ready() || now.of->commits != 0) {
        const bool goes_on = co_await sleep_for(pause);
        pause = std::min<duration>(2 * pause, most_pause);
        if (!goes_on)
            co_return error(std::errc::operation_canceled, "a fence of memory that is being granted");
    }
    auto& segments = now.of->segments;
    for (auto at = segments.begin(); at != segments.end();) {
        const auto next = std::next(at);
        if (is_lost(*at))
            now.mine.splice(now.mine.end(), segments, at);
        at = next;
    }
    while (!now.mine.empty()) {
        segment& s = now.mine.front();
        std::uint64_t locked = 0;
        for (const verbs::grant& each : s.grants)
            locked += each.where().length;
        task<void> revoking = s.client->domain->revoke(s.grants);
        co_await revoking;
        s.client->grants -= s.grants.size();
        unlock(*s.client, locked);
        now.mine.pop_front();
        h.segments.add(-1);
        h.revoked.add();
    }
    // What its client has written by then, and told nobody, others are to see as a change.
    const bool is_told = what.why == files::loss::returned || what.why == files::loss::server_ends;
    if (!is_told && !what.bytes[std::size_t(lock_type::write)].empty()) {
        storage::request server;
        server.who.uid = server.who.gid = 0;
        task<result<storage::change>> noting = now.of->backend->note_written(server, now.of->file, 0);
        (void)co_await noting; // a file that is gone has nobody who looks
    }
    co_return result<void>();
}

} // namespace verbena::nfs::v4::pnfs
