// SPDX-License-Identifier: Apache-2.0
// The responder's end of the reverse direction: calls to the requester over its own connection (RFC 8167).
#pragma once

#include <verbena/core/event.hpp>
#include <verbena/protocols/rpc/reverse_channel.hpp>
#include <verbena/protocols/rpcrdma/header.hpp>

#include <optional>
#include <vector>

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
    /// `link` is told of by closed() before it goes. `credits` bounds the calls in flight, `threshold` is
    /// the largest message that the peer receives.
    reverse_requester(reverse_link& link, buffer_pool& buffers, std::uint32_t credits,
                      std::uint32_t threshold)
        : link_(&link), buffers_(buffers), wanted_(credits), threshold_(threshold)
    {
    }
    task<result<rpc::reply>> call(rpc::request& r) override;
    task<lease> acquire(std::size_t size) override;
    bool open() const noexcept override { return link_ != nullptr; }

    /// A message from the requester: takes it and returns true if it answers a call of this channel.
    bool answered(lease& message, std::uint32_t length) noexcept;
    /// There may be room again.
    void progress() noexcept { moved_.set(); }
    /// The connection is over.
    void closed() noexcept;

private:
    struct waiting {
        std::uint32_t xid = 0;
        event done;
        std::optional<result<rpc::reply>> outcome;
    };
    static result<rpc::reply> take(const header& h, lease message, std::span<const std::byte> payload);
    std::uint32_t build(const rpc::request& r, std::uint32_t xid, std::span<std::byte> to) const noexcept;

    reverse_link* link_;
    buffer_pool& buffers_;
    std::uint32_t wanted_;
    std::uint32_t threshold_;
    // Its own accounting: the forward direction's credits count for nothing here (RFC 8167 4.1).
    std::uint32_t granted_ = 1;
    std::uint32_t next_xid_ = 1;
    std::vector<waiting*> in_flight_;
    std::vector<std::uint32_t> abandoned_; // XIDs given up, whose replies still return a credit
    event moved_;
};

} // namespace verbena::rpcrdma
