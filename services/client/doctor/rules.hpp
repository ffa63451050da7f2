// SPDX-License-Identifier: Apache-2.0
// What is wrong with a host for a configuration. Looks at nothing itself.
#pragma once

#include "facts.hpp"
#include "finding.hpp"
#include "wanted.hpp"

#include <vector>

namespace verbena::cli {

std::vector<finding> judge(const wanted_host& wanted, const host_facts& host);

/// The RDMA MTU that RoCE has on a network of this MTU; 0: none.
std::uint32_t roce_mtu(std::uint32_t network) noexcept;

} // namespace verbena::cli
