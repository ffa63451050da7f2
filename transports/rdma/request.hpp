// SPDX-License-Identifier: Apache-2.0
// A peer's request for a connection, on the shard that serves it.
#pragma once

#include "arrived_peer.hpp"
#include "cm_events.hpp"

#include <verbena/core/verbs/verbs.hpp>

#include <memory>
#include <string>

namespace verbena::rdma {

class context_impl;
class queue_pair;

class request final : public verbs::connect_request {
public:
    request(context_impl& c, std::unique_ptr<arrived_peer> peer);
    ~request() override;

    std::span<const std::byte> private_data() const noexcept override { return peer_->request.private_data; }
    std::string_view peer_address() const noexcept override { return peer_address_; }
    std::string_view peer_name() const noexcept override { return peer_name_; }
    const ibv_context* came_by() const noexcept
    {
        return peer_->id.get() != nullptr ? peer_->id.get()->verbs : nullptr;
    }
    std::uint32_t peer_responder_resources() const noexcept override
    {
        return peer_->request.initiator_depth;
    }
    task<result<std::unique_ptr<verbs::queue_pair>>>
    make_queue_pair(verbs::protection_domain& domain, const verbs::queue_pair_options& o) override;
    task<result<void>> accept(const verbs::connect_options& o) override;
    task<result<void>> reject(std::span<const std::byte> private_data) override;

private:
    context_impl& context_;
    std::unique_ptr<arrived_peer> peer_;
    cm_events events_;
    std::string peer_name_;
    std::string peer_address_;
    queue_pair* made_ = nullptr; // the caller's
};

} // namespace verbena::rdma
