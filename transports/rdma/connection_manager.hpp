// SPDX-License-Identifier: Apache-2.0
// The connection manager's events, one channel for each shard.
#pragma once

#include <verbena/core/reactor/io_watch.hpp>

#include <cstdint>
#include <rdma/rdma_cma.h>
#include <vector>

namespace verbena::rdma {

/// A copy: the original has been acknowledged, so that whoever hears of it may destroy its rdma_cm_id.
struct cm_event {
    rdma_cm_event_type what;
    int status;
    rdma_cm_id* id; ///< CONNECT_REQUEST: the new one, owned by who hears of it
    std::vector<std::byte> private_data;
    std::uint32_t responder_resources; ///< Reads that the peer wants to send at once
    std::uint32_t initiator_depth;     ///< Reads that the peer answers at once
};

/// rdma_cm_id::context points at one. Called in the poll phase.
class cm_handler {
public:
    virtual void on_cm_event(cm_event& e) noexcept = 0;

protected:
    ~cm_handler() = default;
};

class event_channel final : private io_watch {
public:
    event_channel(reactor& r, rdma_event_channel* c) noexcept : io_watch(r, c->fd, 0), channel_(c)
    {
        want_read(true);
    }
    ~event_channel()
    {
        io_watch::stop();
        ::rdma_destroy_event_channel(channel_);
    }
    rdma_event_channel* get() const noexcept { return channel_; }

private:
    bool on_readable() noexcept override;
    void on_writable() noexcept override {}
    rdma_event_channel* channel_;
};

} // namespace verbena::rdma
