// SPDX-License-Identifier: Apache-2.0
// Numbers of a given byte order at any alignment.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

#pragma GCC visibility push(default)

namespace verbena {

namespace detail {
template<std::endian order, std::unsigned_integral T>
constexpr T to_from(T value) noexcept
{
    if constexpr (std::endian::native == order || sizeof(T) == 1)
        return value;
    else if constexpr (sizeof(T) == 2)
        return __builtin_bswap16(value);
    else if constexpr (sizeof(T) == 4)
        return __builtin_bswap32(value);
    else
        return __builtin_bswap64(value);
}
} // namespace detail

/// The number that begins at `from`, of which sizeof(T) bytes can be read.
template<std::unsigned_integral T>
T load_little_endian(const std::byte* from) noexcept
{
    T value;
    std::memcpy(&value, from, sizeof value);
    return detail::to_from<std::endian::little>(value);
}

/// Writes sizeof(T) bytes.
template<std::unsigned_integral T>
void store_little_endian(std::byte* to, T value) noexcept
{
    value = detail::to_from<std::endian::little>(value);
    std::memcpy(to, &value, sizeof value);
}

/// As load_little_endian(), in network byte order.
template<std::unsigned_integral T>
T load_big_endian(const std::byte* from) noexcept
{
    T value;
    std::memcpy(&value, from, sizeof value);
    return detail::to_from<std::endian::big>(value);
}

/// As store_little_endian(), in network byte order.
template<std::unsigned_integral T>
void store_big_endian(std::byte* to, T value) noexcept
{
    value = detail::to_from<std::endian::big>(value);
    std::memcpy(to, &value, sizeof value);
}

} // namespace verbena

#pragma GCC visibility pop
