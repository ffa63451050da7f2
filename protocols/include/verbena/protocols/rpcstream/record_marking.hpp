// SPDX-License-Identifier: Apache-2.0
// Record marking on byte streams (RFC 5531 section 11): each RPC message is a record of one or more
// fragments, each behind a word that holds its length and tells whether it is the last.
#pragma once

#include <verbena/protocols/xdr/byte_order.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// Bytes before each fragment (RFC 5531 11).
inline constexpr std::size_t fragment_header_size = 4;
/// Set in the word of a record's last fragment.
inline constexpr std::uint32_t last_fragment_bit = 0x80000000;
/// The longest fragment that the word can say, in bytes.
inline constexpr std::uint32_t max_fragment_length = 0x7fffffff;

/// The word before a fragment (RFC 5531 11).
struct fragment_header {
    std::uint32_t length = 0; ///< bytes that follow
    bool last = false;        ///< of its record
};

/// Reads the word. All values are good ones.
inline fragment_header decode_fragment_header(std::span<const std::byte, fragment_header_size> bytes) noexcept
{
    const std::uint32_t word = xdr::load_u32(bytes.data());
    return {word & max_fragment_length, (word & last_fragment_bit) != 0};
}

/// length is at most max_fragment_length.
inline void encode_fragment_header(std::span<std::byte, fragment_header_size> bytes,
                                   fragment_header header) noexcept
{
    xdr::store_u32(bytes.data(),
                   (header.length & max_fragment_length) | (header.last ? last_fragment_bit : 0));
}

} // namespace verbena::rpc

#pragma GCC visibility pop
