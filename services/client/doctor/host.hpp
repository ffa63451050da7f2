// SPDX-License-Identifier: Apache-2.0
// Looks at this host for what a configuration asks of it. Nothing here waits for a disk for ever.
#pragma once

#include "facts.hpp"
#include "texts.hpp"
#include "wanted.hpp"

#include <optional>
#include <string>

namespace verbena::cli {

/// The unit that serves `file`, by systemctl; nothing if none does, or systemd does not run here.
std::optional<unit_facts> unit_of(const std::string& file);
/// As whom verbenad runs with `file`, by its unit or else as this program.
process_facts look_at_process(const std::string& file, const std::optional<unit_facts>& unit);

struct looked {
    host_facts host;
    bool is_late = false; ///< threads wait for disks, and keep this process: run_apart()
};
/// `peer`: a host to ask for the way to it; empty: none. Takes 5 s for each file system that hangs, and 10 s for the peer.
looked look_at_host(const wanted_host& wanted, process_facts process, const std::string& peer);

} // namespace verbena::cli
