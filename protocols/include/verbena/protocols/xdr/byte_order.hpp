// SPDX-License-Identifier: Apache-2.0
// Big-endian words at any alignment, and the XDR unit (RFC 4506 section 3).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#pragma GCC visibility push(default)

namespace verbena::xdr {

/// Every XDR item takes a multiple of this many bytes.
inline constexpr std::size_t unit = 4;

/// `length` with its XDR pad.
constexpr std::size_t padded(std::size_t length) noexcept { return (length + (unit - 1)) & ~(unit - 1); }

/// The number of pad bytes that follow `length` bytes of opaque data.
constexpr std::size_t pad_of(std::size_t length) noexcept { return padded(length) - length; }

/// What an opaque<> or string<> of `length` bytes takes: length word, bytes, pad.
constexpr std::size_t opaque_size(std::size_t length) noexcept { return unit + padded(length); }

/// The number with its octets in the order of the wire, or back.
constexpr std::uint32_t to_from_big_endian(std::uint32_t value) noexcept
{
    if constexpr (std::endian::native == std::endian::little)
        return __builtin_bswap32(value);
    else
        return value;
}

/// The number with its octets in the order of the wire, or back.
constexpr std::uint64_t to_from_big_endian(std::uint64_t value) noexcept
{
    if constexpr (std::endian::native == std::endian::little)
        return __builtin_bswap64(value);
    else
        return value;
}

/// The number in the 4 octets at `from`, which need not be aligned.
inline std::uint32_t load_u32(const std::byte* from) noexcept
{
    std::uint32_t value;
    std::memcpy(&value, from, sizeof value);
    return to_from_big_endian(value);
}

/// The number in the 8 octets at `from`, which need not be aligned.
inline std::uint64_t load_u64(const std::byte* from) noexcept
{
    std::uint64_t value;
    std::memcpy(&value, from, sizeof value);
    return to_from_big_endian(value);
}

/// Writes the 4 octets of the wire to `to`, which need not be aligned.
inline void store_u32(std::byte* to, std::uint32_t value) noexcept
{
    value = to_from_big_endian(value);
    std::memcpy(to, &value, sizeof value);
}

/// Writes the 8 octets of the wire to `to`, which need not be aligned.
inline void store_u64(std::byte* to, std::uint64_t value) noexcept
{
    value = to_from_big_endian(value);
    std::memcpy(to, &value, sizeof value);
}

} // namespace verbena::xdr

#pragma GCC visibility pop
