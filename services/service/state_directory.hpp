// SPDX-License-Identifier: Apache-2.0
// Where a service keeps what must survive a restart.
#pragma once

#include <string>

namespace verbena::services {

/// The first of $STATE_DIRECTORY, which systemd sets; else /var/lib/verbena for root, else $XDG_STATE_HOME/verbena or $HOME/.local/state/verbena. Throws config_error without either.
std::string default_state_directory();
/// Makes it, and each level above it, for this user alone; one that is there keeps its mode. Throws config_error if it can't be
/// had, belongs to somebody else or lets others write, who could then replace what is kept there.
void make_state_directory(const std::string& path);
/// Looks at one that is there as make_state_directory() does, and whether this process may write there. False: it is not there, and
/// this process may make it. Makes and changes nothing. Throws config_error, with the cure.
bool look_at_state_directory(const std::string& path);

} // namespace verbena::services
