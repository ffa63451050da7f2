// SPDX-License-Identifier: Apache-2.0
// FNV-1a of 64 bits. What is made of it stands in file handles and file system ids, so it stays as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace verbena::posixfs {

constexpr std::uint64_t fnv1a_start = 0xcbf29ce484222325;

/// Goes on from `x`, which may be what came before.
constexpr std::uint64_t fnv1a(std::span<const std::byte> bytes, std::uint64_t x = fnv1a_start) noexcept
{
    for (const std::byte b : bytes)
        x = (x ^ std::uint64_t(b)) * 0x100000001b3;
    return x;
}
inline std::uint64_t fnv1a(std::string_view text, std::uint64_t x = fnv1a_start) noexcept
{
    return fnv1a(std::as_bytes(std::span(text)), x);
}

} // namespace verbena::posixfs
