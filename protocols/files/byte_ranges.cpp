// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/files/byte_ranges.hpp>

#include <algorithm>

namespace verbena::files {

byte_ranges::change byte_ranges::plan(const byte_range& r, std::optional<lock_type> type) const noexcept
{
    // Neighbours count as touched: they may become one with the new range.
    const auto first = std::partition_point(ranges_.begin(), ranges_.end(), [&](const locked_range& one) {
        return one.bytes.last < r.offset && r.offset - one.bytes.last > 1;
    });
    const auto end = std::partition_point(first, ranges_.end(), [&](const locked_range& one) {
        return one.bytes.offset <= r.last || one.bytes.offset - r.last == 1;
    });
    change c;
    c.first = std::size_t(first - ranges_.begin());
    c.count = std::size_t(end - first);
    const auto add = [&](std::uint64_t offset, std::uint64_t last, lock_type t) {
        if (c.made > 0 && c.pieces[c.made - 1].type == t && c.pieces[c.made - 1].bytes.last + 1 == offset)
            c.pieces[c.made - 1].bytes.last = last;
        else
            c.pieces[c.made++] = {{offset, last}, t};
    };
    // At most one range reaches out of `r` or lies beside it on either side.
    if (c.count > 0 && first->bytes.offset < r.offset)
        add(first->bytes.offset, std::min(first->bytes.last, r.offset - 1), first->type);
    if (type)
        add(r.offset, r.last, *type);
    if (c.count > 0) {
        const locked_range& last = *(end - 1);
        if (last.bytes.last > r.last)
            add(std::max(last.bytes.offset, r.last + 1), last.bytes.last, last.type);
    }
    return c;
}

std::ptrdiff_t byte_ranges::growth(const byte_range& r, std::optional<lock_type> type) const noexcept
{
    const change c = plan(r, type);
    return std::ptrdiff_t(c.made) - std::ptrdiff_t(c.count);
}

void byte_ranges::reserve(const change& c)
{
    if (const std::size_t size = ranges_.size() + c.made - c.count; size > ranges_.capacity())
        ranges_.reserve(std::max(size, 2 * ranges_.capacity()));
}

void byte_ranges::reserve(const byte_range& r, std::optional<lock_type> type) { reserve(plan(r, type)); }

void byte_ranges::replace(const byte_range& r, std::optional<lock_type> type)
{
    const change c = plan(r, type);
    reserve(c); // first what there may be no memory for: half a change would lose bytes
    const auto at = ranges_.begin() + std::ptrdiff_t(c.first);
    const std::size_t in_place = std::min(c.made, c.count);
    std::copy(c.pieces, c.pieces + in_place, at);
    if (c.made > c.count)
        ranges_.insert(at + std::ptrdiff_t(in_place), c.pieces + in_place, c.pieces + c.made);
    else
        ranges_.erase(at + std::ptrdiff_t(in_place), at + std::ptrdiff_t(c.count));
}

std::span<const locked_range> byte_ranges::overlapping(const byte_range& r) const noexcept
{
    const auto first = std::partition_point(ranges_.begin(), ranges_.end(),
                                            [&](const locked_range& l) { return l.bytes.last < r.offset; });
    const auto end = std::partition_point(first, ranges_.end(),
                                          [&](const locked_range& l) { return l.bytes.offset <= r.last; });
    return {first, end};
}

const locked_range* byte_ranges::find_conflict(const byte_range& r, lock_type type) const noexcept
{
    auto one = std::partition_point(ranges_.begin(), ranges_.end(),
                                    [&](const locked_range& l) { return l.bytes.last < r.offset; });
    for (; one != ranges_.end() && one->bytes.offset <= r.last; ++one)
        if (conflict(one->type, type))
            return &*one;
    return nullptr;
}

} // namespace verbena::files
