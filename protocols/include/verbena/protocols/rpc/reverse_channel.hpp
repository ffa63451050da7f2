// SPDX-License-Identifier: Apache-2.0
// Calls from a server to its client, over the connection that the client made.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/rpc/client.hpp>

#include <cstddef>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// The reverse direction of one connection (RFC 8167 over RDMA; over streams a reply is told from a call by its type). May outlive the connection, never the server's buffers; it does
/// not come back with a connection made anew.
///
/// This holds for all its tasks. Lifetime: the channel, and what a task is given, outlive the task. Shard: that of the
/// connection.
class reverse_channel {
public:
    virtual ~reverse_channel() = default;

    /// Sends `r` and waits for the reply; waits for a credit first, over a stream for one of
    /// stream_options::max_reverse_calls. Nothing is sent again. Over RDMA both
    /// messages travel inline, large arguments and results too, so both must fit the thresholds.
    ///
    /// Completes when: the reply is there, or the server's limit has passed (rpcrdma::responder_options::reverse_limit,
    /// stream_options::reverse_limit); the wait
    /// for a credit has no limit of its own, and with_timeout() sets one for both. On cancel: the caller goes on with ECANCELED;
    /// the client may have run the call, and its credit comes back with its reply or when the server's limit has passed. Errors:
    /// ETIMEDOUT; ENOTCONN when the connection ended, EMSGSIZE when the call does not fit, ENOMEM when there is no buffer for it,
    /// EOVERFLOW when the client refuses the message, EPROTO for a reply with chunks, rejections of the RPC layer.
    virtual task<result<reply>> call(request& r) = 0;
    /// Memory for a call's message. Completes when: the budget allows it, as buffer_pool::acquire(). On cancel: it ends. Errors:
    /// an empty lease, of a wait that was stopped, and at once for more than buffer_pool::max_size.
    virtual task<lease> acquire(std::size_t size) = 0;
    /// Whether the connection is there. Any thread.
    virtual bool open() const noexcept = 0;
};

} // namespace verbena::rpc

#pragma GCC visibility pop
