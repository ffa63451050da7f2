// SPDX-License-Identifier: Apache-2.0
// Which bytes of a file could not be written.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace verbena::posixfs {

/// A set of bytes, as ranges that don't touch, in order. Where there are more than it has room for, the two with the
/// least between them become one, and what lies between counts, too. No memory is asked for. Not thread-safe.
class lost_ranges {
public:
    static constexpr std::size_t most = 64;

    /// The bytes from `from` to before `to` are lost.
    void add(std::uint64_t from, std::uint64_t to) noexcept
    {
        if (from >= to)
            return;
        // Those that touch it become part of it.
        const auto first = std::lower_bound(all_.begin(), end(), from,
                                            [](const range& r, std::uint64_t at) { return r.to < at; });
        auto last = first;
        for (; last != end() && last->from <= to; ++last) {
            from = std::min(from, last->from);
            to = std::max(to, last->to);
        }
        if (first == last) {
            std::move_backward(first, end(), end() + 1);
            ++count_;
        } else {
            erase(static_cast<std::size_t>(first - all_.begin()) + 1,
                  static_cast<std::size_t>(last - first) - 1);
        }
        *first = {from, to};
        if (count_ > most)
            join_nearest();
    }
    /// Whether one of the bytes from `from` to before `to` is.
    bool has(std::uint64_t from, std::uint64_t to) const noexcept
    {
        const auto first = std::lower_bound(all_.begin(), end(), from,
                                            [](const range& r, std::uint64_t at) { return r.to <= at; });
        return first != end() && first->from < to;
    }
    std::size_t size() const noexcept { return count_; }

private:
    struct range {
        std::uint64_t from = 0, to = 0;
    };
    using ranges = std::array<range, most + 1>;
    ranges::iterator end() noexcept { return all_.begin() + static_cast<std::ptrdiff_t>(count_); }
    ranges::const_iterator end() const noexcept { return all_.begin() + static_cast<std::ptrdiff_t>(count_); }
    void erase(std::size_t begin, std::size_t n) noexcept
    {
        std::move(all_.begin() + static_cast<std::ptrdiff_t>(begin + n), end(),
                  all_.begin() + static_cast<std::ptrdiff_t>(begin));
        count_ -= n;
    }
    void join_nearest() noexcept
    {
        std::size_t nearest = 1;
        for (std::size_t i = 2; i < count_; ++i) {
            if (all_[i].from - all_[i - 1].to < all_[nearest].from - all_[nearest - 1].to)
                nearest = i;
        }
        all_[nearest - 1].to = all_[nearest].to;
        erase(nearest, 1);
    }

    ranges all_{};
    std::size_t count_ = 0;
};

} // namespace verbena::posixfs
