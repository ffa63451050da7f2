// SPDX-License-Identifier: Apache-2.0
// The commands of the control plane that every service has.
#pragma once

#include "control_request.hpp"

#include <verbena/core/module/module.hpp>
#include <verbena/core/module/settings.hpp>
#include <verbena/core/net/connection_list.hpp>
#include <verbena/core/reactor/runtime.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace verbena {
class peer_shares;
}

namespace verbena::services {

/// What they tell of the service, which outlives the commands.
struct told_of_service {
    std::string program;
    std::string version;
    std::string policy;
    std::string state; ///< empty: none is kept
    std::string metrics;
    std::vector<std::string> places; ///< "nfs at tcp://127.0.0.1:2049"
    struct served {
        std::string name;
        std::function<connection_list&(std::size_t shard)> connections; ///< called on the shard
    };
    std::vector<served> protocols;
    runtime* shards = nullptr;
    const module_table* modules = nullptr;
    peer_shares* peers = nullptr;
    std::function<std::uint64_t()> drain_seconds;
    std::function<std::string()> config; ///< as a file of it; called on the thread of the control plane
    /// Begins the orderly stop; empty if nobody waits for that.
    std::function<void()> drain;
};

/// A configuration with "(not shown)" in place of what may be a secret (verbena::is_secret()).
setting_values without_secrets(const setting_values& values);

/// help, status, config, connections, requests, modules, loglevel, log, evict, drain. `table` has help's list, too.
void add_own_commands(control_table& table, told_of_service told);

} // namespace verbena::services
