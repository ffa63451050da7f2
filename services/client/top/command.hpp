// SPDX-License-Identifier: Apache-2.0
// `verbena top`: what a daemon does, interval by interval.
#pragma once

#include "../admin.hpp"

#include <chrono>
#include <string>

namespace verbena::cli {

struct top_options {
    std::string url;    ///< of its metrics; empty: as its control socket says
    std::string socket; ///< as of admin_options
    std::chrono::milliseconds interval{2000};
    std::chrono::seconds patience{60};
    bool once = false; ///< prints what one interval had, and ends
    bool json = false;
};
/// The exit code. Without a shard.
int top(const top_options& o);

} // namespace verbena::cli
