// SPDX-License-Identifier: Apache-2.0
// Serves RPC over byte streams (RFC 5531 section 11): connected sockets in, calls to the dispatcher,
// replies back.
//
// Whoever accepts connections hands the sockets over with adopt(); nothing here knows how they came
// to be. docs/internals/rpc.md tells the path of a call.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/net/connection_list.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/rpc/program.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace verbena::rpc {
class stream_connection; // hidden, as it is private
}

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// The limits of one stream. Times are kept to within the same time again.
struct stream_options {
    /// Calls, and bytes of calls, being served at once. When either is reached, reading stops.
    std::size_t max_calls = 256;
    std::size_t max_call_bytes = std::size_t(8) << 20; ///< see max_calls
    /// Bytes of replies that the peer has not taken. When it is reached, reading stops.
    std::size_t max_queued_output = std::size_t(4) << 20;
    /// Buffers for results of calls being served and for replies that wait. When it is reached, reading stops, so that it
    /// is exceeded by one call at most. Enough for the read-ahead of a Linux client with reads of 1 MiB.
    std::size_t max_result_bytes = std::size_t(16) << 20;
    /// What one stream is served in a turn of the shard before the others have theirs: a call counts 1, and each
    /// turn_unit of its message and of its reply 1 more.
    std::size_t turn_share = 8;
    std::size_t turn_unit = 1024; ///< bytes
    /// While a stream has more calls in hand than that, its replies wait for this many bytes.
    std::size_t gather = std::size_t(32) << 10;
    /// Replies of this many bytes don't wait for the end of the turn.
    std::size_t flush_at = std::size_t(128) << 10;
    /// One message: a payload of 1 MiB and what stands before it.
    std::size_t max_record = (std::size_t(1) << 20) + (std::size_t(16) << 10);
    /// Of the larger buffers that the streams of one peer hold for messages on their way, at least one: what is
    /// announced and comes slowly, or never, takes memory. Reading of more such messages waits.
    std::size_t max_address_record_bytes = SIZE_MAX;
    /// The same as max_result_bytes for all streams of one peer together, also for calls of streams that ended.
    std::size_t max_address_result_bytes = SIZE_MAX;
    std::size_t max_connections = 16384; ///< of the server; more are closed at once
    /// Those of one peer (peer_use::streams), over all servers that are given the same `peers`: so a host with many of them leaves room
    /// for others.
    std::size_t max_peer_connections = SIZE_MAX;
    /// Bytes of one peer's calls that go on although their streams have ended (peer_use::calls_left), over the same servers. While it
    /// holds more, new streams of that peer are closed at once.
    std::uint64_t max_peer_left_bytes = UINT64_MAX;
    /// Streams of peers that no program admits (program::admits()), so that programs can tell them why. They end when they are without a
    /// call for first_call_limit; more are closed at once.
    std::size_t max_strangers = 64;
    /// Outlives the server; nullptr: it counts its own streams alone.
    peer_shares* peers = nullptr;
    /// Where streams stand until they end. Of the server's shard, outlives the server; nullptr: nowhere.
    connection_list* connections = nullptr;
    /// Calls that programs may have outstanding to the client of one stream (call::reverse()); further ones wait. 0: they
    /// can't call back.
    std::size_t max_reverse_calls = 16;
    /// One of them, in bytes with its record mark.
    static constexpr std::size_t max_reverse_message = std::size_t(64) << 10;

    duration first_call_limit = std::chrono::seconds(15); ///< from the connect to the first whole call
    duration record_limit = std::chrono::seconds(60);     ///< for the rest of a record that has begun
    duration output_limit = std::chrono::seconds(60);     ///< for a peer to take anything that waits for it
    duration idle_limit = std::chrono::minutes(6);        ///< without a call
    /// For a peer that sends no more: without a byte of a reply that it takes. It counts as gone then, whatever its calls still do.
    duration half_closed_limit = std::chrono::seconds(60);
    /// A call to the client fails with ETIMEDOUT when it has no reply for so long. Until then it counts among
    /// max_reverse_calls, though its caller may have given up earlier.
    duration reverse_limit = std::chrono::seconds(10);
};

/// Why a stream ended.
enum class stream_end : std::uint8_t {
    closed_by_peer,     ///< and its calls are answered, or half_closed_limit is over
    lost,               ///< reset, timed out by keep-alive or another socket error
    idle,               ///< stream_options::idle_limit
    no_first_call,      ///< first_call_limit
    slow_record,        ///< record_limit
    output_not_taken,   ///< output_limit
    record_too_long,    ///< max_record
    too_many_fragments, ///< record_reader::max_fragments
    refused,            ///< max_connections, a limit of its peer, or the server is ending
    shutdown,
    exception,    ///< left the dispatcher
    not_admitted, ///< max_strangers
    evicted,      ///< by an operator
};
/// How many values stream_end has.
inline constexpr std::size_t stream_end_count = 13;
/// A label of the metrics. A literal.
std::string_view to_string(stream_end cause) noexcept;

/// Single-writer counts of one shard's streams; any thread may read them.
struct stream_stats {
    gauge connections;                           ///< streams that are there now
    gauge calls_in_flight;                       ///< being served
    counter accepted;                            ///< taken so far
    std::array<counter, stream_end_count> ended; ///< by stream_end
    counter received_bytes;                      ///< with record marks
    counter sent_bytes;                          ///< likewise
    counter calls;                               ///< that came
    counter receives;                            ///< system calls that brought bytes
    counter sends;                               ///< system calls that took bytes
    counter pauses;                              ///< times that reading stopped at a limit of stream_options
    counter yields;               ///< times that a stream with more calls in hand let the others go first
    counter memory_waits;         ///< times that a stream waited for a buffer
    counter share_waits;          ///< times that a stream waited for max_address_record_bytes
    counter unanswered;           ///< calls without a reply: not a call, or dropped by the procedure
    counter reverse_calls;        ///< to clients
    counter reverse_timeouts;     ///< of these, without a reply for stream_options::reverse_limit
    counter payload_copied_bytes; ///< of large arguments and results, copied in user space
};

/// Registers what `s` counts of streams whose calls come by `transport` ("tcp"). Once for each shard; both outlive what it
/// returns. Any thread.
metric_registrations expose(metric_registry& registry, const stream_stats& s,
                            std::string_view transport = "tcp");

/// The streams of one shard. Made, used and destroyed on it; outlived by `pool` and `calls`. Before it
/// is destroyed, shut_down() must have returned, or no call be in flight.
class stream_server {
public:
    /// `shard`, `pool` and `calls` outlive it. On the shard.
    stream_server(reactor& shard, buffer_pool& pool, dispatcher& calls, const stream_options& options = {});
    ~stream_server();
    stream_server(const stream_server&) = delete;

    /// Serves a connected, non-blocking stream socket from now on. `transport` is a string literal. Works
    /// inside a poll; closes the socket when there is no room for it, or none for strangers. So too if a program's admits()
    /// throws or memory is short: that is counted as the end `exception`.
    void adopt(net::unique_fd socket, const net::endpoint& peer, std::string_view transport = "tcp") noexcept;

    /// Starts no more calls, lets those in flight finish and their replies go out, and closes. At `deadline` the calls' context
    /// is asked to stop and replies that wait are given up. One task at a time.
    ///
    /// Completes when: no call and no stream is left, also of calls that don't heed the stop. On cancel: it waits on; `deadline`
    /// is what limits it. Errors: none. Lifetime: the server outlives the wait. Shard: the server's.
    task<void> shut_down(time_point deadline);

    /// Streams that are there now. On the shard.
    std::size_t connections() const noexcept;
    /// What the streams of this shard did. Any thread may read; as long as the server.
    const stream_stats& stats() const noexcept;
    /// As it was made.
    const stream_options& options() const noexcept;

private:
    friend class stream_connection;
    struct impl;
    std::unique_ptr<impl> impl_;
};

} // namespace verbena::rpc

#pragma GCC visibility pop
