// SPDX-License-Identifier: Apache-2.0
// RPC over TCP, the caller's side (RFC 5531 section 11).
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/protocols/rpc/client.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#pragma GCC visibility push(default)

namespace verbena::rpc {

class dispatcher;

/// The largest reply that is received, unless options say less; a longer one ends the connection.
inline constexpr std::size_t max_stream_reply = std::size_t(8) << 20;

/// How a client speaks RPC over a byte stream.
struct stream_client_options {
    client_options client; ///< timeouts, addresses and limits of every client
    /// Binds a port below 1024, which servers with `secure` exports ask for. Needs CAP_NET_BIND_SERVICE;
    /// without it any port is used.
    bool reserved_port = false;
    /// Answers the server's own calls, which come over the same connection; nullptr: they are dropped. Outlives the client.
    dispatcher* callbacks = nullptr;
    /// Calls of the server that may be under way, if there is a dispatcher; one more ends the connection, which is made again. One is under way
    /// until its answer has been sent.
    std::uint32_t callback_credits = 8;
    /// The largest reply that is received, in bytes, for peers that need not mean well; a longer one ends the connection.
    std::size_t max_reply = max_stream_reply;
    /// The largest call of the server, and the largest reply to one, in bytes. A longer call ends the connection, as one does that can't be
    /// read.
    static constexpr std::size_t max_callback = 4096;
};

/// Calls the server at `address`, numeric: "192.0.2.7:2049" or "[2001:db8::7]:2049". Connects on use.
/// rpc::connect() takes a URL and names. `buffers` outlives the client. EINVAL when the address can't be read. One
/// on a network interface that is not there ("[fe80::1%eth0]:2049") is a host that can't be reached now: calls fail with ENODEV, and
/// hard ones wait for it.
result<std::unique_ptr<client_transport>> make_stream_client(reactor& shard, buffer_pool& buffers,
                                                             std::string_view address,
                                                             const stream_client_options& options = {});

} // namespace verbena::rpc

#pragma GCC visibility pop
