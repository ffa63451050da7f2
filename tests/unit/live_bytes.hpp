// SPDX-License-Identifier: Apache-2.0
// How many bytes of the heap are in use. For one source file of an executable: it replaces the global allocation functions, or asks the
// sanitizer that has replaced them already.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <malloc.h>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define VERBENA_TEST_SANITIZED_HEAP
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define VERBENA_TEST_SANITIZED_HEAP
#endif
#endif

#ifdef VERBENA_TEST_SANITIZED_HEAP

extern "C" std::size_t __sanitizer_get_current_allocated_bytes();

namespace verbena::test {
inline std::uint64_t live_bytes() { return __sanitizer_get_current_allocated_bytes(); }
} // namespace verbena::test

#else

namespace verbena::test {
inline std::atomic<std::uint64_t> in_use{0};
inline std::uint64_t live_bytes() { return in_use.load(std::memory_order_relaxed); }
} // namespace verbena::test

// Not inlined, or g++ takes the pairs for mismatched ones.
[[gnu::noinline]] void* operator new(std::size_t size)
{
    void* const memory = std::malloc(size);
    if (memory == nullptr)
        throw std::bad_alloc();
    verbena::test::in_use.fetch_add(::malloc_usable_size(memory), std::memory_order_relaxed);
    return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept
{
    if (memory != nullptr)
        verbena::test::in_use.fetch_sub(::malloc_usable_size(memory), std::memory_order_relaxed);
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

#endif
