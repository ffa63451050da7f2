// SPDX-License-Identifier: Apache-2.0
// Commands of the control plane about what clients of version 4 have: clients, opens, locks.
#pragma once

#include <verbena/core/module/control.hpp>
#include <verbena/core/module/evicting.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/nfs/server/v4/commons.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace verbena::nfs {

/// `commons` and `exports` outlive what uses the commands.
std::vector<control_command> state_commands(v4::server_commons& commons, const export_table& exports);

// As evicting has them, of clients of version 4. `commons` outlives the shards' tasks.

std::vector<evictable> find_clients(v4::server_commons& commons, const std::string& who, std::size_t most);
bool keep_out(v4::server_commons& commons, const std::string& name, std::chrono::seconds time);
evicted end_client(v4::server_commons& commons, const evictable& client, std::chrono::milliseconds patience);

} // namespace verbena::nfs
