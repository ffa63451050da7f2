// SPDX-License-Identifier: Apache-2.0
// Tells the service manager how far the daemon is (sd_notify(3)).
#pragma once

#include <string_view>

namespace verbena::services {

/// Sends `state`, as "READY=1", to $NOTIFY_SOCKET; does nothing when that isn't set. Failures are ignored:
/// a daemon works without a manager that listens.
void notify_manager(std::string_view state) noexcept;

} // namespace verbena::services
