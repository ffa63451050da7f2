// SPDX-License-Identifier: Apache-2.0
#include "arena.hpp"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <memory>
#include <new>

namespace verbena::memfs {

namespace {

constexpr std::uint32_t all_blocks = ~std::uint32_t(0);
// Slabs that are free and keep their memory: files that come and go need not fetch it from the system each time.
constexpr std::size_t most_dirty_slabs = 16;
constexpr std::uint64_t most_copies = 64;

std::uint64_t most_lent_of(std::uint64_t blocks) noexcept
{
    return std::clamp<std::uint64_t>(blocks / 8, 64, 4096);
}

} // namespace

arena::arena(std::uint64_t blocks)
    : most_lent_(most_lent_of(blocks)),
      capacity_(std::min<std::uint64_t>(blocks, none - most_copies - most_lent_) + most_copies + most_lent_)
{
    const std::uint64_t slabs = std::max<std::uint64_t>((capacity_ + per_slab - 1) / per_slab, 1);
    reserved_size_ = (slabs + 1) * slab_size;
    void* mapped =
        ::mmap(nullptr, reserved_size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED)
        throw std::bad_alloc();
    reserved_ = static_cast<std::byte*>(mapped);
    std::size_t room = reserved_size_;
    memory_ = static_cast<std::byte*>(std::align(slab_size, slab_size, mapped, room));
}

arena::~arena()
{
    ASAN_UNPOISON_MEMORY_REGION(memory_, slabs_.size() * slab_size);
    ::munmap(reserved_, reserved_size_);
}

// False where as many are there as may be. Whatever fails leaves things as they were.
bool arena::add_slab()
{
    if (slabs_.size() * per_slab >= capacity_)
        return false;
    std::byte* const begin = memory_ + slabs_.size() * slab_size;
    states_.reserve((slabs_.size() + 1) * per_slab);
    slabs_.reserve(slabs_.size() + 1);
    // From here on it counts as memory of the process, where the system is strict about that.
    if (::mprotect(begin, slab_size, PROT_READ | PROT_WRITE) != 0)
        throw std::bad_alloc();
    ASAN_POISON_MEMORY_REGION(begin, slab_size);
    states_.resize(states_.size() + per_slab);
    slabs_.emplace_back();
    return true;
}

// One that is wholly free for several blocks, where there is one; for a single block one that is in use already, so that small
// files fill slabs.
std::size_t arena::slab_for(std::uint64_t run)
{
    const auto is_empty = [](const slab& s) { return s.free == all_blocks; };
    const auto has_room = [](const slab& s) { return s.free != 0; };
    if (run == 1) {
        const auto begin = slabs_.begin() + static_cast<std::ptrdiff_t>(first_with_room_);
        const auto found = std::find_if(begin, slabs_.end(), has_room);
        first_with_room_ = static_cast<std::size_t>(found - slabs_.begin());
        if (found != slabs_.end() || add_slab())
            return first_with_room_;
    }
    const auto begin = slabs_.begin() + static_cast<std::ptrdiff_t>(first_empty_);
    const auto found = std::find_if(begin, slabs_.end(), is_empty);
    first_empty_ = static_cast<std::size_t>(found - slabs_.begin());
    if (found != slabs_.end() || add_slab())
        return first_empty_;
    // Whatever has the most.
    const auto most = std::max_element(slabs_.begin(), slabs_.end(), [](const slab& a, const slab& b) {
        return std::popcount(a.free) < std::popcount(b.free);
    });
    if (most == slabs_.end() || most->free == 0)
        throw std::bad_alloc(); // not counted as it should be
    return static_cast<std::size_t>(most - slabs_.begin());
}

arena::number arena::take(number before, std::uint64_t run)
{
    if (before != none) {
        const std::uint64_t next = std::uint64_t(before) + 1;
        const bool is_there = next < slabs_.size() * per_slab || (next % per_slab == 0 && add_slab());
        if (is_there && is_free(next))
            return occupy(next / per_slab, next % per_slab);
        ++run; // it goes on, so more are likely to come
    }
    const std::size_t s = slab_for(run);
    return occupy(s, static_cast<unsigned>(std::countr_zero(slabs_[s].free)));
}

arena::number arena::occupy(std::size_t s, unsigned bit) noexcept
{
    slab& of = slabs_[s];
    const std::uint32_t mask = std::uint32_t(1) << bit;
    const auto b = static_cast<number>(s * per_slab + bit);
    ASAN_UNPOISON_MEMORY_REGION(at(b).data(), block_size);
    if (of.free == all_blocks && of.clean != all_blocks)
        --dirty_slabs_;
    if ((of.clean & mask) == 0)
        std::memset(at(b).data(), 0, block_size);
    of.free &= ~mask;
    of.clean &= ~mask;
    states_[b] = {.owners = 1};
    return b;
}

void arena::free_unless_owned(number b) noexcept
{
    if (states_[b].owners != 0 || states_[b].loans != 0)
        return;
    assert(states_[b].pins == 0);
    const std::size_t s = b / per_slab;
    ASAN_POISON_MEMORY_REGION(at(b).data(), block_size);
    slabs_[s].free |= std::uint32_t(1) << (b % per_slab);
    first_with_room_ = std::min(first_with_room_, s);
    if (slabs_[s].free == all_blocks)
        give_back(s);
}

void arena::give_back(std::size_t s) noexcept
{
    first_empty_ = std::min(first_empty_, s);
    ++dirty_slabs_;
    if (dirty_slabs_ <= most_dirty_slabs || ::madvise(memory_ + s * slab_size, slab_size, MADV_DONTNEED) != 0)
        return;
    slabs_[s].clean = all_blocks;
    --dirty_slabs_;
}

} // namespace verbena::memfs
