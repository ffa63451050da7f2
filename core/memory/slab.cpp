// SPDX-License-Identifier: Apache-2.0
#include "slab.hpp"

#include <algorithm>
#include <bit>
#include <sys/mman.h>

#ifndef MAP_HUGE_2MB
#define MAP_HUGE_2MB (21 << 26)
#endif

namespace verbena {

namespace {

// Slabs of one budget that fit into it for each pool: room for one of every size class, and as much again to move in.
constexpr std::size_t slabs_per_pool = 32;
constexpr std::size_t most_kept = std::size_t(32) << 20;

constexpr std::size_t slab_size_for(std::size_t share) noexcept
{
    return std::clamp(std::bit_floor(share / slabs_per_pool), memory_budget::smallest_slab,
                      memory_budget::largest_slab);
}

constexpr int protection = PROT_READ | PROT_WRITE;
constexpr int private_memory = MAP_PRIVATE | MAP_ANONYMOUS;

// `size` bytes at a multiple of `alignment`; nullptr when there are none.
std::byte* map_aligned(std::size_t size, std::size_t alignment) noexcept
{
    const std::size_t larger = size + alignment;
    void* got = ::mmap(nullptr, larger, protection, private_memory, -1, 0);
    if (got == MAP_FAILED)
        return nullptr;
    auto* begin = static_cast<std::byte*>(got);
    const std::size_t off = reinterpret_cast<std::uintptr_t>(begin) % alignment;
    const std::size_t before = off == 0 ? 0 : alignment - off;
    if (before != 0)
        ::munmap(begin, before);
    ::munmap(begin + before + size, larger - before - size);
    return begin + before;
}

std::byte* map_pages(std::size_t size, int flags) noexcept
{
    void* got = ::mmap(nullptr, size, protection, private_memory | flags, -1, 0);
    return got == MAP_FAILED ? nullptr : static_cast<std::byte*>(got);
}

} // namespace

std::string_view to_string(slab_kind k) noexcept
{
    switch (k) {
    case slab_kind::plain: return "plain";
    case slab_kind::transparent: return "transparent";
    case slab_kind::huge: return "huge";
    }
    return "unknown";
}

memory_budget::memory_budget(std::size_t limit, unsigned pools, huge_pages pages) noexcept
    : limit_(limit),
      slab_size_(slab_size_for(limit / std::max(pools, 1U))),
      max_kept_(std::min(most_kept, limit / 4 / std::max(pools, 1U))),
      pages_(pages)
{
}

namespace detail {

bool slab::map_memory() noexcept
{
    constexpr std::size_t huge_page = memory_budget::largest_slab;
    if (size_ % huge_page != 0) {
        data_ = map_pages(size_, 0);
        return data_ != nullptr;
    }
    if (budget_.pages() == huge_pages::automatic) {
        // Reserved by this very call, or refused by it: a page of them is never missing later.
        data_ = map_pages(size_, MAP_HUGETLB | MAP_HUGE_2MB);
        if (data_ != nullptr) {
            kind_ = slab_kind::huge;
            return true;
        }
    }
    data_ = map_aligned(size_, huge_page);
    if (data_ != nullptr && budget_.pages() == huge_pages::automatic &&
        ::madvise(data_, size_, MADV_HUGEPAGE) == 0)
        kind_ = slab_kind::transparent;
    return data_ != nullptr;
}

std::unique_ptr<slab> slab::map(buffer_pool& pool, std::size_t bytes, std::size_t each,
                                std::uint32_t size_class)
{
    std::unique_ptr<slab> made(new slab(pool.budget(), bytes, size_class));
    if (!made->map_memory())
        return nullptr;
    made->budget_.count(made->kind_, 1, static_cast<std::ptrdiff_t>(bytes));
    const std::size_t count = bytes / each;
    made->blocks_ = std::make_unique<buffer_block[]>(count);
    for (std::size_t i = count; i-- > 0;) { // the first one is taken first
        buffer_block& b = made->blocks_[i];
        b.pool = &pool;
        b.home = made.get();
        b.data = made->data_ + i * each;
        b.size = static_cast<std::uint32_t>(each);
        b.next_free = made->free_;
        made->free_ = &b;
    }
    return made;
}

slab::~slab()
{
    if (data_ == nullptr)
        return;
    ::munmap(data_, size_);
    budget_.count(kind_, -1, -static_cast<std::ptrdiff_t>(size_));
}

} // namespace detail

} // namespace verbena
