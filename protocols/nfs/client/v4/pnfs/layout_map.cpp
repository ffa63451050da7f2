// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/client/v4/pnfs/layout_map.hpp>

#include <algorithm>

namespace verbena::nfs::v4::pnfs {
namespace {

using state = pnfs_rdma_extent_state4;

std::uint64_t end_of_extent(const pnfs_rdma_extent4& e) noexcept { return e.file_offset + e.length; }

// The part of `e` that lies in [begin, end), of which there is some.
pnfs_rdma_extent4 part_of(const pnfs_rdma_extent4& e, std::uint64_t begin, std::uint64_t end) noexcept
{
    pnfs_rdma_extent4 out = e;
    out.file_offset = std::max(begin, e.file_offset);
    out.length = std::min(end, end_of_extent(e)) - out.file_offset;
    if (e.state != state::none_data)
        out.storage_offset += out.file_offset - e.file_offset;
    return out;
}

// One extent could be both.
bool follows(const pnfs_rdma_extent4& e, const pnfs_rdma_extent4& before) noexcept
{
    return e.state == before.state && e.device_id == before.device_id && e.handle == before.handle &&
           e.file_offset == end_of_extent(before) &&
           (e.state == state::none_data || e.storage_offset == before.storage_offset + before.length);
}

layout_map::place place_in(const pnfs_rdma_extent4& e, std::uint64_t offset) noexcept
{
    layout_map::place out;
    out.length = end_of_extent(e) - offset;
    out.device = e.device_id;
    out.handle = e.handle;
    out.address = e.storage_offset + (offset - e.file_offset);
    return out;
}

} // namespace

// The last one that begins at `offset` or before, if it goes on to there.
const pnfs_rdma_extent4* layout_map::find(const extents& in, std::uint64_t offset) noexcept
{
    const auto after = std::ranges::upper_bound(in, offset, {}, &pnfs_rdma_extent4::file_offset);
    if (after == in.begin())
        return nullptr;
    const pnfs_rdma_extent4& e = *std::prev(after);
    return offset < end_of_extent(e) ? &e : nullptr;
}

void layout_map::cut(extents& from, std::uint64_t begin, std::uint64_t end)
{
    auto at = std::ranges::upper_bound(from, begin, {}, &pnfs_rdma_extent4::file_offset);
    if (at != from.begin() && begin < end_of_extent(*std::prev(at)))
        --at;
    while (at != from.end() && at->file_offset < end) {
        const pnfs_rdma_extent4 whole = *at;
        at = from.erase(at);
        if (end < end_of_extent(whole))
            at = from.insert(at, part_of(whole, end, end_of_extent(whole)));
        if (whole.file_offset < begin)
            at = from.insert(at, part_of(whole, whole.file_offset, begin)) + 1;
        if (end < end_of_extent(whole))
            break;
    }
}

void layout_map::insert(extents& into, const pnfs_rdma_extent4& e)
{
    auto at = std::ranges::upper_bound(into, e.file_offset, {}, &pnfs_rdma_extent4::file_offset);
    at = into.insert(at, e);
    if (std::next(at) != into.end() && follows(*std::next(at), *at)) {
        at->length += std::next(at)->length;
        into.erase(std::next(at));
    }
    if (at != into.begin() && follows(*at, *std::prev(at))) {
        std::prev(at)->length += at->length;
        into.erase(at);
    }
}

void layout_map::fill(std::uint64_t begin, std::uint64_t end)
{
    for (std::uint64_t at = begin; at < end;) {
        const auto next = std::ranges::upper_bound(write_, at, {}, &pnfs_rdma_extent4::file_offset);
        const pnfs_rdma_extent4* const found = find(write_, at);
        if (found == nullptr) {
            at = next == write_.end() ? end : next->file_offset;
            continue;
        }
        const std::uint64_t to = std::min(end, end_of_extent(*found));
        if (found->state == state::invalid_data) {
            pnfs_rdma_extent4 data = part_of(*found, at, to);
            data.state = state::read_write_data;
            cut(write_, at, to);
            insert(write_, data);
            cut(beneath_, at, to);
        }
        at = to;
    }
}

result<void> layout_map::add(std::span<const pnfs_rdma_extent4> extents, layoutiomode4 mode,
                             std::uint64_t block)
{
    if (size() + extents.size() > max_extents)
        return error(std::errc::message_size, "more extents of a file than layout_map::max_extents", size());
    for (const pnfs_rdma_extent4& e : extents) {
        if (e.state != state::invalid_data)
            continue;
        // What is written there is whole blocks of the server's (2.4.2).
        if (block == 0)
            return error(std::errc::protocol_error,
                         "a layout has uninitialized blocks, and the server tells no layout_blksize");
        if (e.file_offset % block != 0 || e.length % block != 0)
            return error(std::errc::protocol_error, "an uninitialized extent is not of whole blocks",
                         e.file_offset);
    }
    const auto is_uninitialized = [](const pnfs_rdma_extent4& e) { return e.state == state::invalid_data; };
    if (block != block_ && std::ranges::any_of(write_, is_uninitialized))
        return error(std::errc::protocol_error, "layout_blksize has changed");
    block_ = block;
    for (const pnfs_rdma_extent4& e : extents) {
        const std::uint64_t end = end_of_extent(e);
        if (mode == layoutiomode4::read) {
            cut(read_, e.file_offset, end);
            insert(read_, e);
        } else if (e.is_writable()) {
            cut(write_, e.file_offset, end);
            insert(write_, e);
            cut(read_, e.file_offset, end);
        }
    }
    // Behind the others, as what is beneath an extent comes before that one.
    for (const pnfs_rdma_extent4& e : extents) {
        if (mode != layoutiomode4::read && !e.is_writable()) {
            cut(beneath_, e.file_offset, end_of_extent(e));
            insert(beneath_, e);
        }
    }
    // The server hears by the next LAYOUTCOMMIT that these are data; what lay beneath must not be used any more (2.4.5).
    for (const pnfs_rdma_range4& r : initialized_)
        fill(r.file_offset, r.file_offset + r.length);
    return {};
}

void layout_map::cut(std::uint64_t offset, std::uint64_t length, layoutiomode4 mode)
{
    const std::uint64_t end = length > UINT64_MAX - offset ? UINT64_MAX : offset + length;
    if (mode != layoutiomode4::rw)
        cut(read_, offset, end);
    // What could be written may have got bytes that a layout to read of the same place does not tell of.
    for (const pnfs_rdma_extent4& e : write_) {
        if (mode == layoutiomode4::rw && e.file_offset < end && offset < end_of_extent(e))
            cut(read_, std::max(offset, e.file_offset), std::min(end, end_of_extent(e)));
    }
    if (mode == layoutiomode4::read || length == 0)
        return;
    // What stays uninitialized is whole blocks.
    std::uint64_t first = offset;
    std::uint64_t behind = end;
    if (const auto* const e = find(write_, offset); e != nullptr && e->state == state::invalid_data)
        first -= first % block_;
    if (const auto* const e = find(write_, end - 1); e != nullptr && e->state == state::invalid_data)
        behind = std::min(end_of_extent(*e), behind - 1 - (behind - 1) % block_ + block_);
    cut(write_, first, behind);
    cut(beneath_, first, behind);
}

void layout_map::forget_holes() noexcept
{
    std::erase_if(read_, [](const pnfs_rdma_extent4& e) { return e.state == state::none_data; });
}

void layout_map::clear() noexcept
{
    write_.clear();
    beneath_.clear();
    read_.clear();
    initialized_.clear();
}

std::optional<layout_map::place> layout_map::to_read(std::uint64_t offset) const noexcept
{
    const pnfs_rdma_extent4* found = find(write_, offset);
    const bool is_given_to_write = found != nullptr;
    if (!is_given_to_write)
        found = find(read_, offset);
    if (found == nullptr)
        return std::nullopt;
    place out = place_in(*found, offset);
    if (is_given_to_write) {
        if (found->state == state::read_write_data)
            return out;
        if (const pnfs_rdma_extent4* const below = find(beneath_, offset)) {
            const std::uint64_t most = out.length;
            out = place_in(*below, offset);
            out.length = std::min(out.length, most);
            return out;
        }
        const auto next = std::ranges::upper_bound(beneath_, offset, {}, &pnfs_rdma_extent4::file_offset);
        if (next != beneath_.end())
            out.length = std::min(out.length, next->file_offset - offset);
        out.is = place::how::zeros;
        return out;
    }
    if (found->state != state::read_data)
        out.is = place::how::zeros;
    // What follows may have been given to write since.
    const auto next = std::ranges::upper_bound(write_, offset, {}, &pnfs_rdma_extent4::file_offset);
    if (next != write_.end())
        out.length = std::min(out.length, next->file_offset - offset);
    return out;
}

std::optional<layout_map::place> layout_map::to_write(std::uint64_t offset) const noexcept
{
    const pnfs_rdma_extent4* const found = find(write_, offset);
    if (found == nullptr)
        return std::nullopt;
    place out = place_in(*found, offset);
    if (found->state == state::invalid_data)
        out.is = place::how::uninitialized;
    return out;
}

layout_map::blocks layout_map::blocks_of(std::uint64_t offset, std::uint64_t length) const noexcept
{
    const std::uint64_t begin = offset / block_ * block_;
    const std::uint64_t end =
        (offset + length + block_ - 1) / block_ * block_; // within an extent of whole blocks
    return {begin, end - begin};
}

void layout_map::initialized(const blocks& b)
{
    const std::uint64_t end = b.offset + b.length;
    const pnfs_rdma_extent4* const found = find(write_, b.offset);
    if (found == nullptr || found->state != state::invalid_data)
        return;
    fill(b.offset, end);
    // One range with those that it touches.
    pnfs_rdma_range4 range{b.offset, b.length};
    std::erase_if(initialized_, [&](const pnfs_rdma_range4& r) {
        if (r.file_offset > range.file_offset + range.length || range.file_offset > r.file_offset + r.length)
            return false;
        const std::uint64_t last = std::max(r.file_offset + r.length, range.file_offset + range.length);
        range.file_offset = std::min(r.file_offset, range.file_offset);
        range.length = last - range.file_offset;
        return true;
    });
    initialized_.insert(
        std::ranges::upper_bound(initialized_, range.file_offset, {}, &pnfs_rdma_range4::file_offset), range);
}

// Those may have grown meanwhile.
void layout_map::told(std::span<const pnfs_rdma_range4> ranges)
{
    for (const pnfs_rdma_range4& each : ranges) {
        std::vector<pnfs_rdma_range4> left;
        const std::uint64_t end = each.file_offset + each.length;
        for (const pnfs_rdma_range4& r : initialized_) {
            const std::uint64_t r_end = r.file_offset + r.length;
            if (r_end <= each.file_offset || end <= r.file_offset) {
                left.push_back(r);
                continue;
            }
            if (r.file_offset < each.file_offset)
                left.push_back({r.file_offset, each.file_offset - r.file_offset});
            if (end < r_end)
                left.push_back({end, r_end - end});
        }
        initialized_ = std::move(left);
    }
}

std::vector<pnfs_rdma_extent4> layout_map::all() const
{
    std::vector<pnfs_rdma_extent4> out = write_;
    out.insert(out.end(), beneath_.begin(), beneath_.end());
    out.insert(out.end(), read_.begin(), read_.end());
    return out;
}

} // namespace verbena::nfs::v4::pnfs
