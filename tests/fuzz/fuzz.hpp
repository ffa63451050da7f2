// SPDX-License-Identifier: Apache-2.0
// A fuzz target is one file with one function: VERBENA_FUZZ_TARGET(NAME) { reads `data` and `size`, returns 0 }. With -Dfuzz=enabled
// it is a program of libFuzzer's; otherwise replay.cpp runs all targets over their corpora as one unit test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

namespace verbena::fuzz {

using target = int (*)(const std::uint8_t* data, std::size_t size);

/// Makes a target known to replay.cpp by its name, which is that of its corpus.
struct known_target {
    known_target(const char* name, target run);
};

inline std::span<const std::byte> bytes_of(const std::uint8_t* data, std::size_t size) noexcept
{
    return {reinterpret_cast<const std::byte*>(data), size};
}

/// What must hold whatever the input is; the fuzzer reports the abort.
inline void require(bool holds) noexcept
{
    if (!holds)
        std::abort();
}

/// True if `part` lies within `whole`: views that a decoder hands out must.
inline bool within(std::span<const std::byte> part, std::span<const std::byte> whole) noexcept
{
    return part.empty() ||
           (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

} // namespace verbena::fuzz

#ifdef VERBENA_FUZZ_REPLAY
#define VERBENA_FUZZ_TARGET(name)                                               \
    static int run_##name(const std::uint8_t* data, std::size_t size);          \
    static const ::verbena::fuzz::known_target known_##name{#name, run_##name}; \
    static int run_##name([[maybe_unused]] const std::uint8_t* data, [[maybe_unused]] std::size_t size)
#else
#define VERBENA_FUZZ_TARGET(name) \
    extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
#endif
