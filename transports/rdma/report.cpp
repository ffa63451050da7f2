// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <verbena/transports/rdma.hpp>

#include <arpa/inet.h>
#include <array>

namespace verbena::rdma {
namespace {

std::string_view state_name(ibv_port_state s) noexcept
{
    switch (s) {
    case IBV_PORT_DOWN: return "down";
    case IBV_PORT_INIT: return "initialising";
    case IBV_PORT_ARMED: return "armed";
    case IBV_PORT_ACTIVE: return "active";
    case IBV_PORT_ACTIVE_DEFER: return "active, deferred";
    default: return "unknown";
    }
}

std::string gid_text(const ibv_gid_entry& e)
{
    std::array<char, INET6_ADDRSTRLEN> text{};
    ::inet_ntop(AF_INET6, e.gid.raw, text.data(), text.size());
    const char* const type = e.gid_type == IBV_GID_TYPE_ROCE_V2   ? "RoCEv2"
                             : e.gid_type == IBV_GID_TYPE_ROCE_V1 ? "RoCEv1"
                                                                  : "IB";
    return std::string(text.data()) + " (" + type + ")";
}

device_report report_of(ibv_context* verbs)
{
    device_report r;
    r.name = ::ibv_get_device_name(verbs->device);
    const auto limits = query(verbs);
    if (limits) {
        r.can = limits->can;
        r.firmware = limits->attributes.fw_ver;
        r.ports = limits->attributes.phys_port_cnt;
        r.max_queue_pairs = static_cast<std::uint32_t>(limits->attributes.max_qp);
        r.max_memory_regions = static_cast<std::uint32_t>(limits->attributes.max_mr);
        r.max_memory_windows = static_cast<std::uint32_t>(limits->attributes.max_mw);
        r.type_2_windows = limits->windows;
    }
    ibv_port_attr port{};
    if (::ibv_query_port(verbs, 1, &port) == 0) {
        r.state = state_name(port.state);
        r.mtu = 128U << port.active_mtu;
        const bool ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
        r.transport = verbs->device->transport_type == IBV_TRANSPORT_IWARP ? "iWARP"
                      : ethernet                                           ? "RoCE"
                                                                           : "InfiniBand";
        for (int i = 0; i < port.gid_tbl_len; ++i) {
            ibv_gid_entry e{};
            if (::ibv_query_gid_ex(verbs, 1, static_cast<std::uint32_t>(i), &e, 0) == 0)
                r.gids.push_back(gid_text(e));
        }
    }
    return r;
}

} // namespace

std::vector<device_report> devices()
{
    std::vector<device_report> all;
    int count = 0;
    ibv_device** list = ::ibv_get_device_list(&count);
    if (list == nullptr)
        return all;
    for (int i = 0; i < count; ++i) {
        if (ibv_context* verbs = ::ibv_open_device(list[i])) {
            all.push_back(report_of(verbs));
            ::ibv_close_device(verbs);
        }
    }
    ::ibv_free_device_list(list);
    return all;
}

std::string_view fork_support() noexcept
{
    switch (::ibv_is_fork_initialized()) {
    case IBV_FORK_UNNEEDED: return "not needed";
    case IBV_FORK_ENABLED: return "enabled";
    default: return "disabled";
    }
}

} // namespace verbena::rdma
