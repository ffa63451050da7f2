// SPDX-License-Identifier: Apache-2.0
// `verbena admin`: asks a running daemon by its control socket.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace verbena::cli {

struct admin_options {
    std::string socket;             ///< empty: the first that there is where daemons have theirs
    std::vector<std::string> words; ///< the command and its arguments
    std::chrono::seconds patience{60};
    bool json = false;
};
/// The exit code. Without a shard.
int admin(const admin_options& o);

/// Rows as people read them, with lines ended; what peers chose is made printable.
std::string admin_table(const std::vector<std::string>& columns,
                        const std::vector<std::vector<std::string>>& rows);

} // namespace verbena::cli
