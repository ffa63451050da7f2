// SPDX-License-Identifier: Apache-2.0
// What RDMA devices count themselves: they repeat a message that found no receive, and tell no program of it.
#pragma once

#include "../device_choice.hpp"

#include <verbena/core/metrics.hpp>

#include <string>
#include <vector>

namespace verbena::services {

/// Registers what the devices' ports count of messages that found no receive, as each scrape finds it in `root`, on its
/// own thread. `of`: devices and ports that are looked at; a choice without a name means all, no choice none. A device,
/// port or counter that isn't there, can't be read or is no number has no sample.
metric_registry::registration expose_rdma_ports(metric_registry& registry, std::vector<device_choice> of,
                                                std::string root = "/sys/class/infiniband");

} // namespace verbena::services
