// SPDX-License-Identifier: Apache-2.0
// Counts the heap allocations of this process. For one source file of an executable: it replaces the
// global allocation functions, or, where a sanitizer has replaced them already, hooks the sanitizer.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define VERBENA_TEST_ALLOCATION_HOOKS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define VERBENA_TEST_ALLOCATION_HOOKS
#endif
#endif

namespace verbena::test {

inline std::atomic<std::uint64_t> allocations{0};
inline std::atomic<std::uint64_t> allocated_bytes{0}; // what was given back is not taken off

} // namespace verbena::test

#ifdef VERBENA_TEST_ALLOCATION_HOOKS

extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, std::size_t),
                                                         void (*)(const volatile void*));

namespace verbena::test {

inline const int allocation_hooks = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t size) {
        allocations.fetch_add(1, std::memory_order_relaxed);
        allocated_bytes.fetch_add(size, std::memory_order_relaxed);
    },
    [](const volatile void*) {});

} // namespace verbena::test

#else

// Not inlined, or g++ takes the pairs for mismatched ones.
[[gnu::noinline]] void* operator new(std::size_t size)
{
    verbena::test::allocations.fetch_add(1, std::memory_order_relaxed);
    verbena::test::allocated_bytes.fetch_add(size, std::memory_order_relaxed);
    if (void* memory = std::malloc(size))
        return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

#endif
