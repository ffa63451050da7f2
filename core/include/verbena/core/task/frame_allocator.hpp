// SPDX-License-Identifier: Apache-2.0
// The free lists of frames for the standard library: std::allocate_shared() without a heap in steady state.
#pragma once

#include <verbena/core/task/frame_pool.hpp>

#include <cstddef>
#include <new>

#pragma GCC visibility push(default)

namespace verbena::detail {

/// From the calling thread's free list of frames: what lives as long as an operation. Frames are aligned as by operator new, so
/// what wants more than that comes from the heap.
template<class T>
struct frame_allocator {
    using value_type = T;
    frame_allocator() = default;
    template<class U>
    frame_allocator(const frame_allocator<U>&) noexcept
    {
    }
    T* allocate(std::size_t n)
    {
        if constexpr (over_aligned)
            return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(alignof(T))));
        else
            return static_cast<T*>(allocate_frame(n * sizeof(T)));
    }
    void deallocate(T* p, std::size_t n) noexcept
    {
        if constexpr (over_aligned)
            ::operator delete(p, n * sizeof(T), std::align_val_t(alignof(T)));
        else
            release_frame(p, n * sizeof(T));
    }
    friend bool operator==(const frame_allocator&, const frame_allocator&) noexcept { return true; }

private:
    static constexpr bool over_aligned = alignof(T) > __STDCPP_DEFAULT_NEW_ALIGNMENT__;
};

} // namespace verbena::detail

#pragma GCC visibility pop
