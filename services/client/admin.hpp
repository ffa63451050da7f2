// SPDX-License-Identifier: Apache-2.0
// `verbena admin`: asks a running daemon by its control socket.
#pragma once

#include <chrono>
#include <cstddef>
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

/// What a daemon said, for programs that show it otherwise.
struct admin_reply {
    int code = 0;          ///< an exit_code
    std::string complaint; ///< why there is no `json`, or what is missing in it
    std::string json;      ///< as --json prints it; empty: none
    bool is_cut = false;   ///< it was more than may be
};
/// Asks what `o.words` say. Rows that would make more than `most` bytes are left out.
admin_reply ask_admin(const admin_options& o, std::size_t most);

/// `verbena admin bundle [FILE]`: one archive of what a report needs. The exit code.
int bundle(const admin_options& o);

/// Rows as people read them, with lines ended; what peers chose is made printable.
std::string admin_table(const std::vector<std::string>& columns,
                        const std::vector<std::vector<std::string>>& rows);

} // namespace verbena::cli
