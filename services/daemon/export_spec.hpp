// SPDX-License-Identifier: Apache-2.0
// The argument of --export: DIR[:PSEUDO][,OPTION...]
#pragma once

#include "config.hpp"

#include <string_view>

namespace verbena::daemon {

/// DIR ends at the last ":/", or at the first comma. A backslash takes the next character as it is, in
/// every part. Options: ro, rw, root_squash[=yes|no], all_squash[=yes|no], anonuid=N, anongid=N,
/// clients=CIDR and transport=NAME (both repeated as needed), backend=NAME, crossmnt, async, sync, secure,
/// handles=auto|kernel|path.
/// Throws config_error.
export_config parse_export(std::string_view text);

} // namespace verbena::daemon
