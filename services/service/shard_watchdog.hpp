// SPDX-License-Identifier: Apache-2.0
// Whether each shard turns, for a service manager that restarts what hangs (sd_watchdog_enabled(3)), and for /healthz.
#pragma once

#include <verbena/core/reactor/runtime.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace verbena::services {

/// How often the manager wants to hear from this process: $WATCHDOG_USEC, unless $WATCHDOG_PID is another one's. Nothing: it does not
/// ask, or says no number.
std::optional<std::chrono::microseconds> watchdog_interval();

/// Of one thread, which is no shard; it never waits for one.
class shard_watchdog {
public:
    /// `rt` outlives it.
    explicit shard_watchdog(runtime& rt);
    /// Shards that still hang have it later.
    ~shard_watchdog();
    shard_watchdog(const shard_watchdog&) = delete;

    /// Asks each shard to run something, and tells whether all have since they were asked before. The log names one that has
    /// not, once until it has.
    bool ask() noexcept;
    /// Asks the shards that have answered again, and tells for how long the slowest of the others has been silent: 0 if all had answered.
    std::chrono::steady_clock::duration longest_silence() noexcept;

private:
    class pulse;
    std::vector<std::shared_ptr<pulse>> pulses_;
};

} // namespace verbena::services
