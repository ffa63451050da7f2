// SPDX-License-Identifier: Apache-2.0
#include "cm_id.hpp"

#include "queue_pair.hpp"

#include <verbena/core/reactor/sigpipe.hpp>

#include <cerrno>

namespace verbena::rdma {
namespace {

constexpr std::uint8_t retries = 7;
constexpr std::uint8_t receiver_not_ready_retries = 6; // 7 would be for ever

} // namespace

rdma_conn_param parameters(std::span<const std::byte> data, std::uint32_t initiator_depth,
                           std::uint32_t responder_resources) noexcept
{
    rdma_conn_param p{};
    p.private_data = data.data();
    p.private_data_len = static_cast<std::uint8_t>(data.size());
    p.initiator_depth = static_cast<std::uint8_t>(initiator_depth);
    p.responder_resources = static_cast<std::uint8_t>(responder_resources);
    p.retry_count = retries;
    p.rnr_retry_count = receiver_not_ready_retries;
    return p;
}

std::optional<net::endpoint> peer_of(rdma_cm_id* id) noexcept
{
    const sockaddr* from = ::rdma_get_peer_addr(id);
    const socklen_t size = from->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    const auto where = net::endpoint::from(from, size);
    return where ? std::optional(*where) : std::nullopt;
}

std::string name_of_peer(rdma_cm_id* id)
{
    const auto where = peer_of(id);
    return where ? where->to_string() : "unknown";
}

int reject_now(rdma_cm_id& id, std::span<const std::byte> data) noexcept
{
    const sigpipe_guard no_signal(sigpipe_on_iwarp(id));
    return ::rdma_reject(&id, data.data(), static_cast<std::uint8_t>(data.size())) != 0 ? errno : 0;
}

} // namespace verbena::rdma
