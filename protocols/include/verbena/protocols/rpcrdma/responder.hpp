// SPDX-License-Identifier: Apache-2.0
// The responder of RPC-over-RDMA version 1 (RFC 8166): serves calls on any verbs provider.
//
// A receive completion becomes a call; its header is decoded in place and its receive posted again
// before slow work starts. Large arguments are pulled by RDMA Reads only when the procedure asks for them;
// large results go out as RDMA Writes and one Send, posted together. docs/internals/rpcrdma.md.
#pragma once

#include <verbena/core/log.hpp>
#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/net/connection_list.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/verbs/side_connections.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/rpc/program.hpp>

#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::rpcrdma {

/// What a responder gives each connection, and when it gives up.
struct responder_options {
    /// Most calls a connection may have outstanding.
    std::uint32_t credits = 128;
    /// What a connection begins with, and has again when it made no call for credit_idle. When as many calls come within credit_window
    /// as it has credits, it gets twice as many, up to `credits`: so one that is idle costs little. Receives stand for what has been
    /// granted to all connections of a listener, or there is room for them in memory.
    std::uint32_t idle_credits = 2;
    duration credit_window = std::chrono::milliseconds(100); ///< see idle_credits
    duration credit_idle = std::chrono::seconds(1);          ///< see idle_credits
    /// A requester hears of a smaller grant by a reply, and nobody knows when. Where receives must stand, those of its larger grant do
    /// so long after that.
    duration credit_settling = std::chrono::seconds(30);
    /// Where receives stand before they are needed (capabilities::receives_on_demand is not set), the listener's connections share
    /// them, if the provider can: fewer stand when many clients are busy in turn. A client that sends more than its credits then takes
    /// others' receives, and their connections end with its own: for clients that are trusted. Else each connection has its own.
    bool shares_standing_receives = false;
    static constexpr std::uint32_t receive_slack = 8; ///< for RDMA_DONE and the like, which use no credit
    /// Bytes of receives that connections of the listener may have beyond idle_credits of each. When they are there, those that
    /// have more than an equal share get less.
    std::uint64_t max_raised_bytes = UINT64_MAX;
    /// The same for those from one address, but one connection may always have all its credits. Nobody has to give up any.
    std::uint64_t max_address_raised_bytes = UINT64_MAX;
    /// Largest inline message either way, in bytes: 1 KiB to 256 KiB. The Linux client uses 4 KiB.
    std::uint32_t inline_size = 4096;
    /// Largest call and largest Read chunk total, in bytes; more is answered with ERR_CHUNK.
    std::uint32_t max_call_size = (1u << 20) + 65536;
    std::uint32_t max_connections = 16384; ///< of one listener; more are rejected
    /// Those of one peer (peer_use::rdma_connections), over all listeners that are given the same `peers`: so a host with many of them
    /// leaves room for others.
    std::uint32_t max_peer_connections = UINT32_MAX;
    /// Outlives the service; nullptr: a listener counts its own connections alone.
    peer_shares* peers = nullptr;
    /// Where connections stand from when they are accepted until they end. Of the listener's shard, outlives the task; nullptr: nowhere.
    connection_list* connections = nullptr;
    std::uint32_t read_depth = 32; ///< RDMA Reads outstanding per connection (ORD), if the peer allows
    /// Bytes that the calls of one connection may move through chunks at once, or hold in buffers; more calls wait. So a
    /// peer that takes or gives nothing holds no more of the budget.
    std::uint64_t max_chunk_bytes = 32u << 20;
    /// The same for all connections of the listener from one address, at least one call's: so a host with many of
    /// them doesn't hold all of the budget either.
    std::uint64_t max_address_chunk_bytes = UINT64_MAX;
    /// What one connection is served in a turn of the shard before the others have theirs: a call counts 1, and each
    /// turn_unit that it moves through chunks 1 more.
    std::uint64_t turn_share = 16;
    std::uint64_t turn_unit = 1024; ///< bytes
    /// Calls that programs may have outstanding to one requester (rpc::call::reverse()); as many more receives
    /// are posted. 0: programs can't call back.
    std::uint32_t reverse_credits = 0;
    /// Such a call fails with ETIMEDOUT when it has no reply for so long, and its credit comes back: the requester is taken
    /// to have lost it. Until then its credit is in use, though its caller may have given up earlier.
    duration reverse_limit = std::chrono::seconds(10);
    /// A connection whose RDMA Reads make no progress for this long is ended: as the requester does not answer, or, where its messages
    /// wait for our memory and the answers behind them (verbs::receive_pauses), as that has lasted so long.
    duration read_limit = std::chrono::seconds(30);
    /// Of the provider's device: all listeners that have it use one domain, in which their buffers are registered once. Outlives the
    /// listeners' tasks. nullptr: each listener has one of its own.
    verbs::protection_domain* domain = nullptr;
    /// Where the provider doesn't notice by itself that a peer is gone: a connection that was silent for this long is
    /// sent an RDMA Write of nothing, which the peer's device acknowledges, or else the provider ends the connection.
    duration probe_after = std::chrono::seconds(60);
    /// Has the connections whose private data it takes: they count for max_connections and max_peer_connections, come
    /// only from peers that dispatcher::admits(), and end with the listener, which does not wait for them. nullptr: all
    /// connections are for RPC.
    verbs::side_connections* others = nullptr;
};

/// Counters of one shard's connections. One writer.
struct responder_stats {
    counter calls;                ///< that came
    counter inline_replies;       ///< replies that went whole into a Send
    counter write_chunk_replies;  ///< replies with data in Write chunks
    counter reply_chunk_replies;  ///< replies in a Reply chunk
    counter version_errors;       ///< RDMA_ERROR with ERR_VERS sent
    counter chunk_errors;         ///< RDMA_ERROR with ERR_CHUNK sent
    counter dropped;              ///< messages dropped in silence, as RFC 8166 4.5 asks
    counter remote_invalidations; ///< Sends with Invalidate
    counter read_chunk_bytes;     ///< of arguments that were read
    counter write_chunk_bytes;    ///< Reply chunks included
    counter failed_reads;         ///< RDMA Reads of arguments that failed
    counter
        rejected_connections;  ///< by max_connections, max_peer_connections, or as nobody is admitted there
    counter credits_wanted;    ///< sum over calls of what the requester asked for
    counter credits_granted;   ///< sum over replies
    counter credit_raises;     ///< times that a connection got more credits than it had
    counter receive_shortages; ///< receives not posted again at once, for want of memory
    counter credit_overruns;   ///< connections ended since the requester exceeded its credits
    counter exceptions;        ///< that left a connection's task and ended the connection
    counter stalled_reads;     ///< connections ended by responder_options::read_limit
    counter starved_reads;     ///< likewise, but their messages waited for our memory
    counter read_depth_waits;  ///< RDMA Reads that waited for ORD
    counter
        payload_copied_bytes; ///< of arguments put together of several chunks, and of results without gather lists
    counter stale_completions; ///< whose call is another by now; dropped
    counter probes;            ///< Writes of nothing sent to silent peers (responder_options::probe_after)
    counter chunk_waits;       ///< calls that waited for max_chunk_bytes or max_address_chunk_bytes
    counter yields;            ///< times that a connection with more calls in hand let the others go first
    counter reverse_timeouts;  ///< calls to requesters without a reply for responder_options::reverse_limit
    counter refused_draining;  ///< calls that came while the connection was being drained
    gauge connections;         ///< that stand now
    log_limiter ends_logged;
    log_limiter refusals_logged;
    log_limiter exceptions_logged;
};

/// Registers what `s` counts, which outlives what it returns; once for each shard. Any thread.
metric_registrations expose(metric_registry& registry, const responder_stats& s);

/// Serves every peer of `listener` until it is closed; then starts no more calls, lets those in flight finish and ends their
/// connections.
///
/// Completes when: no connection is left; a back end's call that has begun is waited for. On cancel: connections end with their
/// calls unanswered. Errors: none; without a protection domain, or where the buffers can't be registered, that is logged and it
/// ends at once. What leaves a connection ends that one alone, and is logged. Lifetime: all arguments outlive the task. Shard:
/// the provider's.
task<void> serve(verbs::context& provider, verbs::listener& listener, buffer_pool& buffers,
                 rpc::dispatcher& dispatcher, const responder_options& options, responder_stats& stats);

} // namespace verbena::rpcrdma

#pragma GCC visibility pop
