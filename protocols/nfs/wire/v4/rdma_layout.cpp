// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/wire/v4/rdma_layout.hpp>

#include <algorithm>
#include <limits>

namespace verbena::nfs::v4 {

namespace {

using extent_state = pnfs_rdma_extent_state4;
constexpr std::uint64_t end_of_offsets = std::numeric_limits<std::uint64_t>::max();

std::uint64_t end_of(std::uint64_t offset, std::uint64_t length) noexcept
{
    return length > end_of_offsets - offset ? end_of_offsets : offset + length;
}

bool may_be(extent_state s, layoutiomode4 mode) noexcept
{
    if (mode == layoutiomode4::read)
        return s == extent_state::read_data || s == extent_state::none_data;
    return s != extent_state::none_data;
}

// Of an ordered list: whether extents of invalid_data cover [begin, end) together.
bool is_covered(std::span<const pnfs_rdma_extent4> extents, std::uint64_t begin, std::uint64_t end) noexcept
{
    for (const pnfs_rdma_extent4& e : extents) {
        if (e.state == extent_state::invalid_data && e.file_offset <= begin &&
            begin < e.file_offset + e.length)
            begin = e.file_offset + e.length;
        if (begin >= end)
            return true;
    }
    return false;
}

} // namespace

std::string_view broken_rule(std::span<const pnfs_rdma_extent4> extents,
                             const rdma_layout_request& request) noexcept
{
    const bool writes = request.iomode != layoutiomode4::read;
    if (extents.empty())
        return "a layout has no extents";
    for (const pnfs_rdma_extent4& e : extents) {
        if (!may_be(e.state, request.iomode))
            return writes ? "a writable layout has an extent of NONE_DATA"
                          : "a readable layout has an extent that can be written";
        if (e.length == 0)
            return "an extent has no bytes";
        if (e.length > end_of_offsets - e.file_offset || e.length > end_of_offsets - e.storage_offset)
            return "an extent goes past the largest offset";
    }
    const auto order = [](const pnfs_rdma_extent4& a, const pnfs_rdma_extent4& b) {
        return a.file_offset != b.file_offset ? a.file_offset < b.file_offset : a.state < b.state;
    };
    if (!std::ranges::is_sorted(extents, order))
        return "the extents are not in the order of their offsets and states";
    // Those that can be written, or all that can be read, follow each other without a gap; what is read beneath a writable
    // layout lies within those.
    const pnfs_rdma_extent4* first = nullptr;
    std::uint64_t end = 0;
    std::uint64_t read_to = 0;
    for (const pnfs_rdma_extent4& e : extents) {
        if (writes && !e.is_writable()) {
            if (e.file_offset < read_to)
                return "two extents of READ_DATA overlap";
            read_to = e.file_offset + e.length;
            if (!is_covered(extents, e.file_offset, read_to))
                return "an extent of READ_DATA in a writable layout is not covered by INVALID_DATA";
            continue;
        }
        if (first != nullptr && e.file_offset != end)
            return e.file_offset < end ? "two extents overlap" : "there is a gap between two extents";
        if (first == nullptr)
            first = &e;
        end = e.file_offset + e.length;
    }
    if (first == nullptr || first->file_offset > request.offset ||
        first->file_offset + first->length <= request.offset)
        return "the first extent does not have the requested offset";
    const std::uint64_t covered = std::min(end, end_of(request.offset, request.length)) - request.offset;
    if (covered < request.minimum && !(request.ends_early && !writes))
        return "the extents cover less than the minimum";
    return {};
}

std::string_view broken_rule(const pnfs_rdma_layoutupdate4& update, std::uint64_t block) noexcept
{
    std::uint64_t end = 0;
    for (const pnfs_rdma_range4 r : update.commit_list) {
        if (r.length == 0)
            return "a range has no bytes";
        if (r.length > end_of_offsets - r.file_offset)
            return "a range goes past the largest offset";
        if (r.file_offset % block != 0 || r.length % block != 0)
            return "a range is not of whole blocks";
        if (r.file_offset < end)
            return "the ranges overlap, or are not in the order of their offsets";
        end = r.file_offset + r.length;
    }
    return {};
}

} // namespace verbena::nfs::v4
