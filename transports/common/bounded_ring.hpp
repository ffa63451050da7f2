// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace verbena {

/// A ring that grows by doubling up to a limit; never shrinks, so steady state allocates nothing.
template<class T>
class bounded_ring {
public:
    explicit bounded_ring(std::size_t limit) : limit_(limit) {}
    /// Takes the memory for all `limit` items now.
    void preallocate()
    {
        if (empty() && items_.size() < limit_)
            items_.resize(std::bit_ceil(limit_));
    }
    std::size_t size() const noexcept { return static_cast<std::size_t>(tail_ - head_); }
    bool empty() const noexcept { return head_ == tail_; }
    std::size_t room() const noexcept { return limit_ - size(); }
    /// Indices count for ever; index(i) is valid for head() <= i < tail().
    std::uint64_t head() const noexcept { return head_; }
    std::uint64_t tail() const noexcept { return tail_; }
    T& at(std::uint64_t i) noexcept { return items_[i & (items_.size() - 1)]; }
    T& front() noexcept { return at(head_); }
    void push(const T& item) { push() = item; }
    /// A new last item, with whatever an earlier one left in it.
    T& push()
    {
        if (size() == items_.size())
            grow();
        return at(tail_++);
    }
    void pop() noexcept { ++head_; }

private:
    void grow()
    {
        std::vector<T> larger(items_.empty() ? 16 : items_.size() * 2);
        for (std::uint64_t i = head_; i != tail_; ++i)
            larger[i & (larger.size() - 1)] = at(i);
        items_.swap(larger);
    }
    std::vector<T> items_;
    std::uint64_t head_ = 0;
    std::uint64_t tail_ = 0;
    std::size_t limit_;
};

} // namespace verbena
