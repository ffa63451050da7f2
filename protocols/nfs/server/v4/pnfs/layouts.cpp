// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/v4/pnfs/layouts.hpp>

#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/sleep.hpp>

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
    const std::shared_ptr<layout_client> client;
    std::vector<verbs::grant> grants;
    /// The grants are made, or there will be none. Its LAYOUTGET, on another shard, may say so when it can't come here.
    std::atomic<bool> is_ready{false};
};

/// What a client has of a file. It is there until all of it is fenced.
struct layouts::record {
    bool is_ready() const noexcept
    {
        return std::ranges::all_of(segments, [](const segment& s) { return s.is_ready.load(); });
    }
    std::list<segment> segments; ///< whose grants are not revoked
    unsigned fences = 0;         ///< that are under way
    bool is_going = false;       ///< a fence of all of it has begun
};

/// A segment that the state layer knows of, and that waits for its memory.
struct layouts::begun {
    files::stateid id;
    std::shared_ptr<record> of;
    segment* here = nullptr;
};

/// What there is for a segment, and whether the state layer is to hear of less.
struct layouts::mapped {
    std::vector<verbs::grant> grants;
    std::vector<extent> extents;
    std::size_t counted = 0;  ///< of layout_client::grants
    std::uint64_t length = 0; ///< bytes from the segment's begin that are covered
    storage::attributes attrs;
};

layouts::layouts(unsigned homes, layout_recaller& recaller, const layout_limits& limits)
    : limits_(limits), recaller_(recaller), homes_(homes)
{
}

layouts::~layouts() = default;

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
    return op == files::operation::set_attributes || op == files::operation::set_size ||
           op == files::operation::change_extents;
}

// One step with the state layer's decision, so that a fence that begins behind it knows of the segment.
result<layouts::begun> layouts::begin(files::state_table& table, const files::hold_request& r,
                                      const std::shared_ptr<layout_client>& client)
{
    // What needs memory comes first.
    std::map<key, std::shared_ptr<record>> spare;
    spare.emplace(key(), std::make_shared<record>());
    std::list<segment> fresh;
    fresh.emplace_back(r.bytes, r.type, client);
    // Ranges that overlap are one to the table.
    if (const auto known = home_of(r.by).records.find(r.by.other);
        known != home_of(r.by).records.end() && known->second->segments.size() >= limits_.ranges)
        return error(files::errc::busy, "a client got as much of a file as it may, one by one");
    const auto held = table.hold(r);
    if (!held)
        return held.error();
    home& h = home_of(*held);
    auto found = h.records.find(held->other);
    if (found == h.records.end()) {
        auto node = spare.extract(spare.begin());
        node.key() = held->other;
        found = h.records.insert(std::move(node)).position;
    }
    begun out;
    out.id = *held;
    out.of = found->second;
    out.here = &fresh.front();
    out.of->segments.splice(out.of->segments.end(), fresh);
    h.segments.add(1);
    return out;
}

task<result<void>> layouts::map(const request& r, const byte_range& bytes, mapped& made)
{
    const bool writes = r.type == lock_type::write;
    task<result<storage::mapping>> mapping =
        r.backend->map(*r.who, *r.handle, bytes.offset, bytes.length(),
                       writes ? storage::map_use::write : storage::map_use::read);
    auto got = co_await mapping;
    if (!got)
        co_return got.error();
    made.attrs = got->attrs;
    // Holes are told of up to the end of the file, in whole blocks.
    const std::uint64_t block = r.backend->info().map_block;
    const std::uint64_t size = (got->attrs.size + block - 1) / block * block;
    const std::uint64_t mapped_to = (bytes.offset + got->length + block - 1) / block * block;
    std::uint64_t end = bytes.offset;
    std::vector<verbs::grant_request> batch;
    for (storage::mapping::part& part : got->parts) {
        if (made.extents.size() + 3 > limits_.parts) // a hole before it, and one behind it
            break;
        if (part.offset > end)
            made.extents.push_back({end, part.offset - end, true, {}});
        made.extents.push_back({part.offset, part.memory.size(), false, {}});
        end = part.offset + part.memory.size();
        verbs::grant_request& each = batch.emplace_back();
        each.memory = part.memory;
        each.rights =
            writes ? verbs::access::remote_read | verbs::access::remote_write : verbs::access::remote_read;
        each.keep = got->pin;
    }
    const bool is_whole = batch.size() == got->parts.size();
    if (const std::uint64_t last = std::min(mapped_to, size); is_whole && !writes && end < last) {
        made.extents.push_back({end, last - end, true, {}});
        end = last;
    }
    made.length = end - bytes.offset;
    made.grants.reserve(batch.size());
    made.counted = batch.size();
    if (r.client->grants.fetch_add(batch.size()) + batch.size() > limits_.grants_of_client)
        co_return error(files::errc::busy, "a client has as many ranges of memory as it may");
    task<result<void>> making = r.client->domain->make_grants(batch);
    const auto granted = co_await making;
    if (!granted)
        co_return granted.error();
    auto at = made.extents.begin();
    for (verbs::grant_request& each : batch) {
        at = std::find_if(at, made.extents.end(), [](const extent& e) { return !e.is_hole; });
        (at++)->memory = each.made.where();
        made.grants.push_back(std::move(each.made));
    }
    co_return result<void>();
}

// The client has what `made` says of the segment, and no more. Yields the stateid's number from then on.
result<files::stateid> layouts::end(files::state_table& table, const request& r, const begun& b,
                                    mapped& made) noexcept
{
    home& h = home_of(b.id);
    const byte_range asked = b.here->bytes;
    if (made.length == 0) {
        std::erase_if(b.of->segments, [&b](const segment& s) { return &s == b.here; });
        h.segments.add(-1);
    } else {
        b.here->bytes.last = asked.offset + made.length - 1;
        b.here->grants.swap(made.grants);
        b.here->is_ready = true;
        h.granted.add();
    }
    if (b.of->is_going)
        return error(files::errc::busy, "what the client has of the file is being taken");
    // The state layer is to know of no more than there is. Where it can't be told so, it keeps a range that has no memory.
    std::optional<files::stateid> id = b.id;
    try {
        std::optional<byte_range> rest;
        if (asked.offset + made.length <= asked.last)
            rest = first_free(*b.of, {asked.offset + made.length, asked.last}, r.type);
        while (rest) {
            const auto less = table.give_back(r.client->id, *id, r.file, *rest, r.type);
            if (!less)
                break;
            id = *less;
            if (!id || rest->last == asked.last)
                break;
            rest = first_free(*b.of, {rest->last + 1, asked.last}, r.type);
        }
    } catch (const std::bad_alloc&) {
    }
    return id.value_or(files::stateid());
}

task<result<layouts::granted>> layouts::get(state_home& state, const request& r)
{
    const std::uint64_t block = r.backend->info().map_block;
    if (block == 0)
        co_return error(std::errc::operation_not_supported, "a file whose memory can't be mapped");
    files::hold_request hold;
    hold.client = r.client->id;
    hold.file = r.file;
    hold.kind = this;
    hold.by = r.by;
    hold.bytes = in_blocks(r.offset, r.length, block, limits_.bytes);
    hold.type = r.type;
    if (r.type == lock_type::read) {
        auto looking = r.backend->getattr(*r.who, *r.handle);
        const auto attrs = co_await looking;
        if (!attrs)
            co_return attrs.error();
        if (r.offset >= attrs->size)
            co_return error::from_errno(ENODATA, "a layout to read behind the end of the file");
        hold.bytes.last = std::min(hold.bytes.last, (attrs->size + block - 1) / block * block - 1);
    }
    const auto ask = [this, &hold, &r](files::state_table& table) { return begin(table, hold, r.client); };
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
        made.length = 0;
    }
    const bool is_empty = made.length == 0;
    bool is_known = false;
    try {
        const auto finish = [this, &r, &b, &made, &is_known](files::state_table& table) {
            is_known = true;
            return end(table, r, *b, made);
        };
        auto finishing = state.at_home_of(r.file.key, finish);
        id = co_await finishing;
    } catch (...) {
        id = error_of(std::current_exception(), "an exception left the making of a layout");
    }
    if (!is_known)
        b->here->is_ready = true; // without memory; its range goes with the others of the stateid
    if (!is_known || is_empty)
        r.client->grants -= made.counted;
    if (!done)
        co_return done.error();
    if (!id)
        co_return id.error();
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

result<std::optional<files::stateid>>
layouts::give_back(files::state_table& table, files::client_id client, const files::stateid& id,
                   const files::exported_file& file, const byte_range& bytes, std::optional<lock_type> type)
{
    const home& h = home_of(id);
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
    return table.give_back(client, id, file, part, type);
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
    while (!now.of->is_ready()) {
        const bool goes_on = co_await sleep_for(look_again);
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
        task<void> revoking = s.client->domain->revoke(s.grants);
        co_await revoking;
        s.client->grants -= s.grants.size();
        now.mine.pop_front();
        h.segments.add(-1);
        h.revoked.add();
    }
    co_return result<void>();
}

} // namespace verbena::nfs::v4::pnfs
