// SPDX-License-Identifier: Apache-2.0
// `verbena doctor --config`: the host seen by a configuration.
#pragma once

#include "finding.hpp"

#include <string>

namespace verbena::cli {

/// Tells what is wrong with this host for `file`, checked by the verbenad beside this program. `peer`: empty, or a host that is asked for
/// the way to it. Without a shard. True: threads wait for a disk, and keep this process: run_apart().
bool look_at_config(const std::string& file, const std::string& peer, report& out);

} // namespace verbena::cli
