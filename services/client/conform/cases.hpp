// SPDX-License-Identifier: Apache-2.0
// The checks of `verbena conform`, from the connecting end.
#pragma once

#include "end.hpp"

#include <string>
#include <vector>

namespace verbena::conform {

/// Where the checks connect to, and the connection over which the server is asked for what became of others.
struct target {
    verbs::context& context;
    std::string address;
    end main;
    std::uint64_t last_id;

    target(verbs::context& c, std::string to, std::uint64_t seed)
        : context(c), address(std::move(to)), main(c), last_id(seed)
    {
    }
    /// Connects `e`; returns the connection's id. Errors: failure.
    task<std::uint64_t> connect(end& e);
    /// A bit set of connection_fate, once the connection has ended at the server too.
    task<std::uint64_t> fate(std::uint64_t id);
};

struct check {
    const char* name;
    task<void> (*run)(target& t); ///< throws failure or not_supported
};
/// In the order in which they run.
std::span<const check> all_checks() noexcept;

} // namespace verbena::conform
