// SPDX-License-Identifier: Apache-2.0
// What verbenad says once it serves: exports, listeners, and what root types on a client.
#pragma once

#include "config.hpp"
#include "nfs_service.hpp"

#include <string>

namespace verbena::daemon {

/// Lines about each export and each listener of `service`. Mount lines that would be refused are left out; why, and
/// what cures it, stands in their place.
std::string start_text(const config& c, const nfs_service& service);

} // namespace verbena::daemon
