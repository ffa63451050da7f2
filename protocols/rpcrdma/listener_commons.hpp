// SPDX-License-Identifier: Apache-2.0
// What the connections of a listener share on one shard.
#pragma once

#include "receive_pool.hpp"

#include <verbena/core/memory/idle_memory.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/rpcrdma/chunk_lists.hpp>

#include <vector>

namespace verbena::rpcrdma {

/// Stretches of memory that a reply may consist of: the pieces of each payload, its pad and what stands in front of it.
inline constexpr std::uint32_t max_reply_stretches =
    xdr::encoder::max_payloads * (rpc::payload::max_pieces + 2) + 2;
/// Requests of one reply: a stretch is cut at every segment of its chunk.
inline constexpr std::uint32_t max_reply_requests =
    max_write_segments + max_reply_segments + max_reply_stretches;

struct listener_commons {
    listener_commons(verbs::context& provider, buffer_pool& buffers, const responder_options& options,
                     responder_stats& stats)
        : receives(provider, buffers, options, stats), idle(provider.shard(), options.credit_idle)
    {
        batch.reserve(max_reply_requests);
        local.reserve(max_reply_requests + max_reply_stretches);
    }
    receive_pool receives;
    idle_memory idle;
    // Of the reply that is being put together; nothing waits meanwhile. Their capacity is fixed, so steady work allocates nothing.
    std::vector<verbs::send_request> batch;
    std::vector<verbs::segment> local;
};

} // namespace verbena::rpcrdma
