// SPDX-License-Identifier: Apache-2.0
// The RDMA listener of one address: takes peers in and hands them to shards.
#pragma once

#include "../device_choice.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/runtime.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

#include <functional>
#include <memory>

namespace verbena::services {

#ifdef VERBENA_HAS_RDMA
/// Of one shard: made, used and destroyed there.
class rdma_acceptor {
public:
    using handler = std::function<void(std::unique_ptr<verbs::arrival> peer)>;

    /// `h` is called in the poll phase. `lane` outlives it. Errors: those of rdma::make_context() and listen(); ENODEV if
    /// `device` is named and the address leads to another.
    static result<std::unique_ptr<rdma_acceptor>>
    open(shard& s, blocking_pool& lane, const net::endpoint& where, const device_choice& device, handler h)
    {
        rdma::options o;
        o.device = device.name;
        o.port = device.port;
        o.divert = [h = std::move(h)](std::unique_ptr<verbs::arrival>& peer) { h(std::move(peer)); };
        auto context = rdma::make_context(s.reactor(), {lane, lane}, o);
        if (!context)
            return context.error();
        auto listener = (*context)->listen(where.to_string());
        if (!listener)
            return listener.error();
        auto made = std::make_unique<rdma_acceptor>();
        const std::string url = (*listener)->local_url();
        if (auto bound = net::endpoint::parse(url.substr(url.find("://") + 3)))
            made->where_ = *bound;
        made->context_ = std::move(*context);
        made->listener_ = std::move(*listener);
        return made;
    }
    /// Takes nobody in any more. Peers on their way to a shard keep needing this object.
    void close() noexcept { listener_->close(); }
    /// With the real port.
    const net::endpoint& where() const noexcept { return where_; }
    /// Of the peers that it didn't hand to a shard. Any thread.
    const rdma::stats& counters() const noexcept { return context_->counters(); }

private:
    net::endpoint where_;
    std::unique_ptr<rdma::context> context_;
    std::unique_ptr<verbs::listener> listener_;
};
#endif

} // namespace verbena::services
