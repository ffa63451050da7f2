// SPDX-License-Identifier: Apache-2.0
// A fuzz target is one file with one function, LLVMFuzzerTestOneInput. With -Dfuzz=enabled it is built
// with libFuzzer; otherwise with replay.cpp, which runs the corpus as a unit test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace verbena::fuzz {

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
