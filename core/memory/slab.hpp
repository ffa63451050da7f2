// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/memory/budget.hpp>
#include <verbena/core/memory/buffer.hpp>

#include <cstdint>
#include <memory>
#include <span>

namespace verbena::detail {

/// A mapping and the buffers of one size class in it. Stands in one of its pool's lists: some buffers free, all
/// free, none free.
class slab : public list_hook {
public:
    /// Maps `bytes`, which the caller has reserved, for buffers of `each` bytes; nullptr when the system has none.
    static std::unique_ptr<slab> map(buffer_pool& pool, std::size_t bytes, std::size_t each,
                                     std::uint32_t size_class);
    ~slab();

    std::span<std::byte> memory() const noexcept { return {data_, size_}; }
    std::size_t size() const noexcept { return size_; }
    std::uint32_t size_class() const noexcept { return size_class_; }
    bool idle() const noexcept { return in_use_ == 0; }
    bool full() const noexcept { return free_ == nullptr; }
    /// Orders idle slabs by when they became so.
    std::uint64_t idle_since() const noexcept { return idle_since_; }
    void set_idle_since(std::uint64_t turn) noexcept { idle_since_ = turn; }

    buffer_block* take() noexcept
    {
        buffer_block* b = free_;
        free_ = b->next_free;
        ++in_use_;
        return b;
    }
    void put_back(buffer_block& b) noexcept
    {
        b.next_free = free_;
        free_ = &b;
        --in_use_;
    }

private:
    slab(memory_budget& budget, std::size_t bytes, std::uint32_t size_class) noexcept
        : budget_(budget), size_(bytes), size_class_(size_class)
    {
    }
    bool map_memory() noexcept;

    memory_budget& budget_;
    std::byte* data_ = nullptr;
    const std::size_t size_;
    const std::uint32_t size_class_;
    slab_kind kind_ = slab_kind::plain;
    std::size_t in_use_ = 0;
    std::uint64_t idle_since_ = 0;
    std::unique_ptr<buffer_block[]> blocks_;
    buffer_block* free_ = nullptr;
};

} // namespace verbena::detail
