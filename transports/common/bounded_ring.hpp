// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace verbena {

/// A ring that grows by doubling up to a limit; it shrinks only when it is told to, so steady state allocates nothing.
template<class T>
class bounded_ring {
public:
    explicit bounded_ring(std::size_t limit) : limit_(limit) {}
    /// Takes the memory for all `limit` items now, so that items stay where they are. A page is first touched when an
    /// item on it is pushed: most connections use a small part.
    void preallocate()
    {
        if (empty() && items_.room() < limit_)
            items_ = memory(std::bit_ceil(limit_));
    }
    std::size_t size() const noexcept { return static_cast<std::size_t>(tail_ - head_); }
    bool empty() const noexcept { return head_ == tail_; }
    std::size_t room() const noexcept { return limit_ - size(); }
    /// Indices count for ever; index(i) is valid for head() <= i < tail().
    std::uint64_t head() const noexcept { return head_; }
    std::uint64_t tail() const noexcept { return tail_; }
    T& at(std::uint64_t i) noexcept { return items_[i & (items_.room() - 1)]; }
    T& front() noexcept { return at(head_); }
    void push(const T& item) { push() = item; }
    /// A new last item, with whatever an earlier one left in it.
    T& push()
    {
        if (size() == items_.room())
            grow();
        if (!items_.is_full())
            items_.make_until((tail_ & (items_.room() - 1)) + 1);
        return at(tail_++);
    }
    /// Has memory for so many more items, within the limit: push() of these allocates nothing. Throws std::bad_alloc.
    void make_room(std::size_t more)
    {
        while (items_.room() < size() + more)
            grow();
    }
    void pop() noexcept { ++head_; }
    /// Gives the memory back, if it is empty.
    void shrink() noexcept
    {
        if (empty())
            items_ = memory();
    }
    /// The last item goes.
    void pop_back() noexcept { --tail_; }

private:
    // Room for items, of which the first ones are there.
    class memory {
    public:
        memory() noexcept = default;
        explicit memory(std::size_t room) : items_(std::allocator<T>().allocate(room)), room_(room) {}
        memory(memory&& other) noexcept { swap(other); }
        memory& operator=(memory&& other) noexcept
        {
            memory(std::move(other)).swap(*this);
            return *this;
        }
        ~memory()
        {
            std::destroy_n(items_, made_);
            if (items_ != nullptr)
                std::allocator<T>().deallocate(items_, room_);
        }
        void swap(memory& other) noexcept
        {
            std::swap(items_, other.items_);
            std::swap(room_, other.room_);
            std::swap(made_, other.made_);
        }
        std::size_t room() const noexcept { return room_; }
        bool is_full() const noexcept { return made_ == room_; }
        T& operator[](std::size_t i) noexcept { return items_[i]; }
        void make_until(std::size_t count)
        {
            for (; made_ < count; ++made_)
                std::construct_at(items_ + made_);
        }

    private:
        T* items_ = nullptr;
        std::size_t room_ = 0;
        std::size_t made_ = 0;
    };
    void grow()
    {
        memory larger(items_.room() == 0 ? 16 : items_.room() * 2);
        larger.make_until(larger.room());
        for (std::uint64_t i = head_; i != tail_; ++i)
            larger[i & (larger.room() - 1)] = at(i);
        items_.swap(larger);
    }
    memory items_;
    std::uint64_t head_ = 0;
    std::uint64_t tail_ = 0;
    std::size_t limit_;
};

} // namespace verbena
