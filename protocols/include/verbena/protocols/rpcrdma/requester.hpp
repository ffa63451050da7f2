// SPDX-License-Identifier: Apache-2.0
// The requester of RPC-over-RDMA version 1 (RFC 8166): calls a server through any verbs provider.
//
// Small calls and replies travel inline. What is larger goes through chunks: WRITE data and SYMLINK text
// as a Read chunk, READ data and READLINK text as a Write chunk, other long replies as a Reply chunk, other
// long calls as a Position-Zero Read chunk. Never more than one chunk of a kind, and never a Write and a
// Reply chunk together: servers in the field misread those. docs/internals/rpcrdma.md.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/rpc/client.hpp>

#include <cstdint>
#include <memory>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::rpc {
class dispatcher;
}

namespace verbena::rpcrdma {

/// What a requester asks of its server, beside what every client does.
struct requester_options {
    /// max_calls is also how many credits are asked for.
    rpc::client_options client;
    /// Largest inline message either way, in bytes: 1 KiB to 256 KiB.
    std::uint32_t inline_size = 4096;
    /// Answers the server's own calls, which come over the same connection (RFC 8167); nullptr: they are
    /// dropped. Inline only. Outlives the requester.
    rpc::dispatcher* callbacks = nullptr;
    /// Calls of the server that may be outstanding, if there is a dispatcher; as many more receives are posted.
    std::uint32_t callback_credits = 8;
    /// RDMA Reads that the server may have outstanding (IRD). Never 0: knfsd refuses that.
    std::uint32_t responder_resources = 16;
};

/// Counters of one requester, or of several on one shard. One writer; any thread may read.
struct requester_stats {
    counter inline_calls;         ///< that went whole into a Send
    counter read_chunk_calls;     ///< whose argument went in a Read chunk
    counter long_calls;           ///< Position-Zero
    counter write_chunks;         ///< offered for large results
    counter reply_chunks;         ///< offered for long replies
    counter remote_invalidations; ///< chunks that the server invalidated
    counter errors;               ///< RDMA_ERROR received
    counter dropped;              ///< messages that were no reply to anything
    counter credit_waits;         ///< times that a call waited for a credit
    counter callbacks;            ///< calls of the server that were served
    counter wakes;                ///< RDMA Writes of nothing, while a connection's first answer is awaited
};

/// Registers what `s` counts, which outlives what it returns; once for each `requester_stats`. Any thread.
metric_registrations expose(metric_registry& registry, const requester_stats& s);

/// Calls the server at `address`, as verbs::context::connect() takes it. Connects on use, and again when a
/// connection ends, with the same XIDs. rpc::connect() takes a URL and names, and makes all that this asks for. Made, used and destroyed on the shard of `provider`, which with `buffers` and
/// `stats` outlives the client; `stats` may be nullptr. Nothing fails here: calls report what connect() says,
/// ETIMEDOUT when a soft call's time is over, EMSGSIZE and ENOBUFS for a message that no chunk list carries, ENOMEM
/// when the budget has no memory for a chunk, EOVERFLOW for ERR_CHUNK (RFC 8166 4.5), EPROTO for a reply against its
/// rules.
std::unique_ptr<rpc::client_transport> make_requester(verbs::context& provider, buffer_pool& buffers,
                                                      std::string_view address,
                                                      const requester_options& options = {},
                                                      requester_stats* stats = nullptr);

} // namespace verbena::rpcrdma

#pragma GCC visibility pop
