// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"
#include "ports.hpp"

#include <verbena/transports/rdma.hpp>

#include <algorithm>

namespace verbena::rdma {
namespace {

device_report report_of(ibv_context* verbs)
{
    device_report r;
    r.name = ::ibv_get_device_name(verbs->device);
    const auto limits = query(verbs);
    if (limits) {
        r.can = limits->can;
        r.firmware = limits->attributes.fw_ver;
        r.max_queue_pairs = static_cast<std::uint32_t>(limits->attributes.max_qp);
        r.max_memory_regions = static_cast<std::uint32_t>(limits->attributes.max_mr);
        r.max_memory_windows = static_cast<std::uint32_t>(limits->attributes.max_mw);
        r.grants = limits->grants;
    }
    r.ports = ports_of(verbs);
    const auto active = std::ranges::find(r.ports, true, &port_report::active);
    if (!r.ports.empty()) {
        const port_report& shown = active != r.ports.end() ? *active : r.ports.front();
        r.state = shown.state;
        r.mtu = shown.mtu;
        if (verbs->device->transport_type == IBV_TRANSPORT_IWARP)
            r.transport = "iWARP";
        else
            r.transport = shown.link_layer == "Ethernet" ? "RoCE" : "InfiniBand";
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
