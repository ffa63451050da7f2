// SPDX-License-Identifier: Apache-2.0
// The argument of --export: DIR[:PSEUDO][,OPTION...]
#pragma once

#include <verbena/core/module/settings.hpp>

#include <string_view>

namespace verbena::nfs {

/// DIR ends at the last ":/", or at the first comma. A backslash takes the next character as it is, in every part. Options:
/// ro, rw, sync, root_squash[=yes|no], clients=CIDR and transport=NAME (both repeated as needed), and every setting of an export and
/// of its back end as NAME=VALUE. Yields what the export's table would hold; DIR has the empty name. Throws config_error.
setting_values parse_export(std::string_view text);

} // namespace verbena::nfs
