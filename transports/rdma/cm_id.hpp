// SPDX-License-Identifier: Apache-2.0
// An rdma_cm_id, and what both roles of a connection ask the connection manager about one.
#pragma once

#include <verbena/core/net/net.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <rdma/rdma_cma.h>
#include <span>
#include <string>
#include <utility>

namespace verbena::rdma {

/// Owns an rdma_cm_id without a queue pair.
class cm_id {
public:
    explicit cm_id(rdma_cm_id* id = nullptr) noexcept : id_(id) {}
    cm_id(cm_id&& other) noexcept : id_(other.release()) {}
    cm_id(const cm_id&) = delete;
    ~cm_id()
    {
        if (id_ != nullptr)
            (void)::rdma_destroy_id(id_);
    }
    cm_id& operator=(cm_id&& other) noexcept
    {
        std::swap(id_, other.id_);
        return *this;
    }
    rdma_cm_id* get() const noexcept { return id_; }
    rdma_cm_id* release() noexcept { return std::exchange(id_, nullptr); }

private:
    rdma_cm_id* id_;
};

/// What is said when a connection is asked for or accepted.
rdma_conn_param parameters(std::span<const std::byte> data, std::uint32_t initiator_depth,
                           std::uint32_t responder_resources) noexcept;
std::optional<net::endpoint> peer_of(rdma_cm_id* id) noexcept;
/// For logs; "unknown" where there is none.
std::string name_of_peer(rdma_cm_id* id);
/// An errno or 0.
int reject_now(rdma_cm_id& id, std::span<const std::byte> data) noexcept;

} // namespace verbena::rdma
