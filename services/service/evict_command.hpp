// SPDX-License-Identifier: Apache-2.0
// `verbena admin evict`: ends a client of whichever protocol, and its connections.
#pragma once

#include "own_commands.hpp"

#include <verbena/core/module/control.hpp>
#include <verbena/core/module/evicting.hpp>

#include <chrono>
#include <memory>

namespace verbena::services {

/// How long calls that have begun may take to end, before they are named as what remains.
inline constexpr std::chrono::milliseconds evict_patience{5000};

control_command evict_command(const std::shared_ptr<const told_of_service>& told,
                              std::chrono::milliseconds patience = evict_patience);

} // namespace verbena::services
