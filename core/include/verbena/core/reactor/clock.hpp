// SPDX-License-Identifier: Apache-2.0
// The clock is injected, so that a test can run hours of timeouts in microseconds.
#pragma once

#include <chrono>

#pragma GCC visibility push(default)

namespace verbena {

/// Moments and lengths of time of all that a reactor does: of the steady clock, whose zero means nothing.
using time_point = std::chrono::steady_clock::time_point;
/// See time_point; in nanoseconds.
using duration = std::chrono::steady_clock::duration;

/// A source of monotonic time. Called from any shard that was given it.
class clock_source {
public:
    /// The time now, which never goes back. reactor::now() reads it once a turn.
    virtual time_point now() const noexcept = 0;
    /// True when time moves only by advance_to(): a reactor with nothing to do then jumps to its
    /// next timer instead of sleeping.
    virtual bool is_virtual() const noexcept { return false; }
    /// Moves a virtual clock forward to that time; a real clock does nothing. The reactor calls it when nothing
    /// happens before.
    virtual void advance_to(time_point) noexcept {}

protected:
    ~clock_source() = default;
};

/// CLOCK_MONOTONIC. Stateless; one serves the whole process.
clock_source& system_clock() noexcept;

/// Time that stands still until told otherwise. For one reactor, or for those of simulated_shards, on one thread.
class virtual_clock final : public clock_source {
public:
    time_point now() const noexcept override { return now_; }
    bool is_virtual() const noexcept override { return true; }
    void advance_to(time_point t) noexcept override
    {
        if (t > now_)
            now_ = t;
    }
    /// Moves the clock forward by `d`. For tests; what is due then happens in the next turn.
    void advance(duration d) noexcept { now_ += d; }

private:
    time_point now_ = time_point(std::chrono::hours(1));
};

} // namespace verbena

#pragma GCC visibility pop
