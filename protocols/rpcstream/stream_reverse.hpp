// SPDX-License-Identifier: Apache-2.0
// The server's end of the reverse direction of a stream: calls to the client over the connection that it made.
#pragma once

#include "../rpc/calls_under_way.hpp"

#include <verbena/protocols/rpc/reverse_channel.hpp>
#include <verbena/protocols/rpcstream/record_reader.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace verbena::rpc {

/// Sends records of the reverse direction; the connection.
class stream_reverse_link {
public:
    /// Queues `length` bytes of `bytes`, record mark included.
    virtual void send_reverse(lease bytes, std::size_t length) = 0;

protected:
    ~stream_reverse_link() = default;
};

/// Calls are told apart by XIDs of their own: a message's type says its direction, so both may use the same ones.
class stream_reverse final : public reverse_channel {
public:
    /// `link` and what it gave are used until closed().
    stream_reverse(stream_reverse_link& link, reactor& shard, buffer_pool& buffers,
                   const stream_options& options, stream_stats& stats, const peer& to)
        : link_(&link),
          buffers_(buffers),
          stats_(stats),
          most_(options.max_reverse_calls),
          sent_(shard, options.reverse_limit, most_, stats.reverse_timeouts, to)
    {
    }
    task<result<reply>> call(request& r) override;
    task<lease> acquire(std::size_t size) override;
    bool open() const noexcept override { return open_.load(std::memory_order_acquire); }

    /// A message from the client: takes it and returns true if it is a reply, be it to a call that was given up.
    bool answered(record& message) noexcept;
    /// The connection ends, or brings no replies any more.
    void closed() noexcept;

private:
    stream_reverse_link* link_;
    buffer_pool& buffers_;
    stream_stats& stats_;
    const std::size_t most_;
    std::atomic<bool> open_{true};
    calls_under_way sent_; // at most most_
};

} // namespace verbena::rpc
