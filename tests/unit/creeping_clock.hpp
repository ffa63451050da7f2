// SPDX-License-Identifier: Apache-2.0
// The clock of a shard whose peers are threads with sockets.
#pragma once

#include <verbena/core/reactor/reactor.hpp>

#include <algorithm>
#include <atomic>
#include <thread>

namespace verbena::test {

/// Peers take whatever time the machine gives them, so that this clock must not jump to the next time-out while they work. It creeps where
/// the shard has nothing to do, or stands still until the test moves it.
class creeping_clock final : public clock_source {
public:
    time_point now() const noexcept override { return now_; }
    bool is_virtual() const noexcept override { return true; }
    void advance_to(time_point next) noexcept override
    {
        std::this_thread::yield();
        if (creeps)
            now_ = std::max(now_, std::min(next, now_ + step));
    }
    void advance(duration d) noexcept { now_ += d; }

    std::atomic<bool> creeps = true; ///< any thread may change it
    duration step = std::chrono::milliseconds(1);

private:
    time_point now_ = time_point(std::chrono::hours(1));
};

/// Armed far away, it keeps a shard from having nothing to wait for.
class far_timer final : public timer {
public:
    explicit far_timer(reactor& r) { r.timers().arm(*this, r.clock().now() + std::chrono::hours(10'000)); }

private:
    void on_timer() noexcept override {}
};

} // namespace verbena::test
