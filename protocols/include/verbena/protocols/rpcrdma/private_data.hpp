// SPDX-License-Identifier: Apache-2.0
// The message that RPC-over-RDMA peers exchange in the private data of connect and accept
// (RFC 8797).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#pragma GCC visibility push(default)

namespace verbena::rpcrdma {

/// Bytes of the message (RFC 8797 4).
inline constexpr std::size_t private_message_size = 8;
/// The inline threshold, in bytes, of a peer that sent no message (RFC 8797 5.1).
inline constexpr std::uint32_t default_inline_threshold = 1024;
/// The least inline threshold, in bytes, that a message can name.
inline constexpr std::uint32_t min_inline_threshold = 1024;
/// The greatest one, in bytes.
inline constexpr std::uint32_t max_inline_threshold = 256 * 1024;

/// What each end tells the other in its private data (RFC 8797 4).
struct private_message {
    /// The sender can bear a Send with Invalidate.
    bool remote_invalidation = false;
    /// The largest message that it sends and that it can receive; bytes, a multiple of 1024.
    std::uint32_t send_size = default_inline_threshold;
    std::uint32_t receive_size = default_inline_threshold; ///< likewise
};

/// Sizes are rounded down to a multiple of 1024 and held between the limits above.
std::array<std::byte, private_message_size> encode(const private_message& message) noexcept;

/// Looks for a version 1 message at any place: other protocols' bytes may come first, and the
/// connection manager may pad (RFC 8797 5.2). Nothing if there is none.
std::optional<private_message> find_private_message(std::span<const std::byte> private_data) noexcept;

/// What holds for one connection, seen from one end.
struct connection_terms {
    std::uint32_t send_threshold = default_inline_threshold;    ///< bytes that this end may send inline
    std::uint32_t receive_threshold = default_inline_threshold; ///< bytes that it may get inline
    bool remote_invalidation = false; ///< the responder may use Send with Invalidate
};

/// RFC 8797 3.1 and 3.2. Sizes of `own` count as encode() tells them. Without a message of the peer the defaults
/// hold both ways.
connection_terms negotiate(const private_message& own, const std::optional<private_message>& peer) noexcept;

} // namespace verbena::rpcrdma

#pragma GCC visibility pop
