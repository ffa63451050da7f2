// SPDX-License-Identifier: Apache-2.0
// Private data of connections to a data server of the RDMA layout. The draft leaves them open: docs/internals/pnfs.md.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/protocols/nfs/wire/v4/types.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// What a client says when it connects. Network byte order; 52 bytes, as RDMA/CM has room for 56 over InfiniBand.
struct rdma_layout_connect {
    static constexpr std::size_t size = 52;
    clientid4 client = 0;
    sessionid4 session{};
    deviceid4 device{}; ///< by which the server knows the client again
};

/// Why a data server rejects a connection.
enum class rdma_layout_reject : std::uint8_t {
    none = 0,          ///< it does not
    other_version = 1, ///< the server does not speak the client's version
    unknown =
        2, ///< the server does not know the device id, as after its restart: GETDEVICEINFO gives another one
    too_many = 3, ///< the client has as many connections as it may
    no_room = 4,  ///< the server has no room at the moment
};

/// The answer to a request: accepted, or rejected for a reason.
struct rdma_layout_answer {
    static constexpr std::size_t size = 8;
    std::uint8_t version = 0; ///< the server's
    std::uint8_t reason = 0;  ///< a rdma_layout_reject, or 0 if the connection is accepted
};

/// The private data of the connection request.
std::array<std::byte, rdma_layout_connect::size> encode(const rdma_layout_connect& value) noexcept;
/// The private data of its answer.
std::array<std::byte, rdma_layout_answer::size> encode(const rdma_layout_answer& value) noexcept;
/// Transports may add zeros behind the data. Errors: bad_message where this is no request; protocol_not_supported for another version.
result<rdma_layout_connect> decode_rdma_layout_connect(std::span<const std::byte> data);
/// Errors: bad_message where this is no answer: something else listens there.
result<rdma_layout_answer> decode_rdma_layout_answer(std::span<const std::byte> data);

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
