// SPDX-License-Identifier: Apache-2.0
// A peer that asks for a connection, before the shard that serves it is known.
#pragma once

#include "cm_id.hpp"
#include "connection_manager.hpp"

#include <verbena/core/verbs/verbs.hpp>

#include <cstddef>
#include <span>
#include <utility>

namespace verbena::rdma {

class arrived_peer final : public verbs::arrival {
public:
    explicit arrived_peer(cm_event e) noexcept : id(e.id), request(std::move(e))
    {
        id.get()->context = nullptr;
    }
    /// Rejects it, if nobody took its id.
    ~arrived_peer() override
    {
        if (id.get() != nullptr)
            (void)reject_now(*id.get(), {});
    }
    std::span<const std::byte> private_data() const noexcept override { return request.private_data; }
    cm_id id;
    cm_event request;
};

} // namespace verbena::rdma
