// SPDX-License-Identifier: Apache-2.0
// How large packets get to a host and back, by ICMP echo.
#pragma once

#include "facts.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace verbena::cli {

/// The largest size from `low` to `high` that `passes`, where each that is smaller does, too; 0: not even `low`.
std::uint32_t largest_that(std::uint32_t low, std::uint32_t high,
                           const std::function<bool(std::uint32_t)>& passes);

/// Asks the kernel for the route to `host`, a name or an address, and the host for echoes: packets that nobody on the way may cut. Takes
/// some 10 s at most, beside the resolver.
route_facts look_at_route(const std::string& host);

} // namespace verbena::cli
