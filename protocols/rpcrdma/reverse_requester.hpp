// SPDX-License-Identifier: Apache-2.0
// The responder's end of the reverse direction: calls to the requester over its own connection (RFC 8167).
#pragma once

#include "../rpc/calls_under_way.hpp"

#include <verbena/protocols/rpc/reverse_channel.hpp>
#include <verbena/protocols/rpcrdma/header.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>

#include <atomic>

namespace verbena::rpcrdma {

/// Sends messages of the reverse direction; the connection.
class reverse_link {
public:
    virtual bool reverse_room() const noexcept = 0;
    /// Takes the message, which is `length` bytes; there is room.
    virtual result<void> send_reverse(lease message, std::uint32_t length) = 0;

protected:
    ~reverse_link() = default;
};

class reverse_requester final : public rpc::reverse_channel {
public:
    /// `link` and what it gave are used until closed(). `threshold` is the largest message that the peer receives.
    reverse_requester(reverse_link& link, reactor& shard, buffer_pool& buffers,
                      const responder_options& options, responder_stats& stats, std::uint32_t threshold,
                      const rpc::peer& to)
        : link_(&link),
          buffers_(buffers),
          wanted_(options.reverse_credits),
          threshold_(threshold),
          sent_(shard, options.reverse_limit, wanted_, stats.reverse_timeouts, to)
    {
    }
    task<result<rpc::reply>> call(rpc::request& r) override;
    task<lease> acquire(std::size_t size) override;
    bool open() const noexcept override { return open_.load(std::memory_order_acquire); }

    /// A message from the requester: takes it and returns true if it answers a call of this channel, though that may have
    /// been given up.
    bool answered(lease& message, std::uint32_t length) noexcept;
    /// There may be room again.
    void progress() noexcept { sent_.progress(); }
    /// The connection is over.
    void closed() noexcept;

private:
    static result<rpc::reply> take(const header& h, lease message, std::span<const std::byte> payload);
    std::uint32_t build(const rpc::request& r, std::uint32_t xid, std::span<std::byte> to) const noexcept;

    reverse_link* link_;
    std::atomic<bool> open_{true}; // link_, for other threads
    buffer_pool& buffers_;
    std::uint32_t wanted_;
    std::uint32_t threshold_;
    // Its own accounting: the forward direction's credits count for nothing here (RFC 8167 4.1).
    std::uint32_t granted_ = 1;
    rpc::calls_under_way sent_; // each uses a credit; at most wanted_
};

} // namespace verbena::rpcrdma
