// SPDX-License-Identifier: Apache-2.0
// What a loadable module and the program that loads it must have in common, as text: lines "key=value".
#pragma once

#include <verbena/core/abi_interfaces.hpp>

#include <cstddef>
#include <cstdint>

/// Changes when the note or the way in which a module is found changes.
#define VERBENA_ABI_EPOCH "1"

#define VERBENA_DETAIL_TEXT_OF(X) #X
#define VERBENA_DETAIL_TEXT(X) VERBENA_DETAIL_TEXT_OF(X)

#if defined(__clang__)
#define VERBENA_DETAIL_COMPILER "clang " VERBENA_DETAIL_TEXT(__clang_major__)
#else
#define VERBENA_DETAIL_COMPILER "gcc " VERBENA_DETAIL_TEXT(__GNUC__)
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VERBENA_DETAIL_SANITIZER "address"
#elif __has_feature(thread_sanitizer)
#define VERBENA_DETAIL_SANITIZER "thread"
#elif __has_feature(memory_sanitizer)
#define VERBENA_DETAIL_SANITIZER "memory"
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define VERBENA_DETAIL_SANITIZER "address"
#elif defined(__SANITIZE_THREAD__)
#define VERBENA_DETAIL_SANITIZER "thread"
#endif
#ifndef VERBENA_DETAIL_SANITIZER
#define VERBENA_DETAIL_SANITIZER "none"
#endif

#if defined(_GLIBCXX_DEBUG)
#define VERBENA_DETAIL_CHECKS "debug containers"
#elif defined(_GLIBCXX_ASSERTIONS)
#define VERBENA_DETAIL_CHECKS "assertions"
#else
#define VERBENA_DETAIL_CHECKS "none"
#endif

#ifdef NDEBUG
#define VERBENA_DETAIL_ASSERTIONS "off"
#else
#define VERBENA_DETAIL_ASSERTIONS "on"
#endif

/// The build: what changes layouts or calls without a change in any header.
#define VERBENA_ABI_BUILD                                                                             \
    "epoch=" VERBENA_ABI_EPOCH "\n"                                                                   \
    "compiler=" VERBENA_DETAIL_COMPILER "\n"                                                          \
    "c++ abi=" VERBENA_DETAIL_TEXT(                                                                   \
        __GXX_ABI_VERSION) "\n"                                                                       \
                           "string abi=" VERBENA_DETAIL_TEXT(                                         \
                               _GLIBCXX_USE_CXX11_ABI) "\n"                                           \
                                                       "libstdc++ checks=" VERBENA_DETAIL_CHECKS "\n" \
                                                       "assert()=" VERBENA_DETAIL_ASSERTIONS "\n"     \
                                                       "sanitizer=" VERBENA_DETAIL_SANITIZER "\n"

#pragma GCC visibility push(default)

namespace verbena::detail {

/// An ELF note (elf(5), Elf64_Nhdr) of owner "verbena".
template<std::size_t N>
struct abi_note {
    static constexpr std::uint32_t note_type = 1;

    std::uint32_t name_size = sizeof name;
    std::uint32_t text_size = N;
    std::uint32_t type = note_type;
    char name[8] = {'v', 'e', 'r', 'b', 'e', 'n', 'a', '\0'};
    char text[(N + 3) / 4 * 4] = {};

    constexpr explicit abi_note(const char (&from)[N]) noexcept
    {
        for (std::size_t i = 0; i < N; ++i)
            text[i] = from[i];
    }
};

} // namespace verbena::detail

#pragma GCC visibility pop
