// SPDX-License-Identifier: Apache-2.0
// Calls from a server to its client, over the connection that the client made.
#pragma once

#include <verbena/core/buffer.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task.hpp>
#include <verbena/protocols/rpc/client.hpp>

#include <cstddef>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// The reverse direction of one connection (RFC 8167 over RDMA). Shard-local. May outlive the connection,
/// never the server's buffers; it does not come back with a connection made anew.
class reverse_channel {
public:
    virtual ~reverse_channel() = default;

    /// Sends `r` and waits for the reply; waits for a credit first. Nothing is sent again. Over RDMA both
    /// messages travel inline, large arguments and results too, so both must fit the thresholds.
    /// The wait for a credit has no time limit of its own; the wait for the reply ends with ETIMEDOUT after the server's limit
    /// (rpcrdma::responder_options::reverse_limit), and with_timeout() sets a shorter one. Cancellation: the caller goes on with
    /// ECANCELED; the client may have run the call, and its credit comes back with its reply or when the server's limit has
    /// passed. Errors: ENOTCONN when the connection ended, EMSGSIZE when the call does not fit, rejections of the RPC layer.
    virtual task<result<reply>> call(request& r) = 0;
    /// Memory for a call's message. Empty as in buffer_pool::acquire().
    virtual task<lease> acquire(std::size_t size) = 0;
    virtual bool open() const noexcept = 0;
};

} // namespace verbena::rpc

#pragma GCC visibility pop
