// SPDX-License-Identifier: Apache-2.0
// For how long shards leave a disk to the pool's threads, as it held one of them up.
#pragma once

#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/voluntary_switches.hpp>

#include <atomic>
#include <cstdint>
#include <optional>

namespace verbena::posixfs {

/// Where a call of a shard to a disk took `long_stall`, shards make none like it for a hundred times as long, and a minute at most:
/// so it costs a shard about 1 % of its time. A thread that is kept from its processor by others, or stopped by a debugger, is as slow,
/// and none of it is the disk's. So after the first such call it is in doubt, likewise for a hundred times as long: calls are looked at
/// then, by two system calls more each, and only the next one that waited has shards leave the disk alone. What took `sure_stall`
/// is believed at once, as a second such call would cost too much. Any thread; times are those of the reactors' clock.
class disk_rest {
public:
    static constexpr duration long_stall = std::chrono::milliseconds(5);
    static constexpr duration sure_stall = std::chrono::milliseconds(100);

    /// Whether the disk is left alone.
    bool is_on(time_point now) const noexcept { return before(until_, now); }
    bool is_in_doubt(time_point now) const noexcept { return before(doubted_until_, now); }
    /// voluntary_switches() before a call that may wait, if it is in doubt.
    std::optional<std::int64_t> begin(time_point now) const noexcept
    {
        return is_in_doubt(now) ? std::optional(voluntary_switches()) : std::nullopt;
    }
    /// A call ended that took so long, and began with what begin() told.
    void note(time_point ended, duration took, std::optional<std::int64_t> switches_before) noexcept
    {
        if (took >= long_stall)
            note_long(ended, took,
                      switches_before ? std::optional(voluntary_switches() != *switches_before)
                                      : std::nullopt);
    }
    /// The same of one of which is known, or not, whether its thread waited.
    void note_long(time_point ended, duration took, std::optional<bool> waited) noexcept;
    /// Has it be left alone for so long; false if it is already.
    bool rest(time_point now, duration time) noexcept { return extend(until_, now, time); }

private:
    static bool before(const std::atomic<std::int64_t>& until, time_point now) noexcept
    {
        return now.time_since_epoch().count() < until.load(std::memory_order_relaxed);
    }
    static bool extend(std::atomic<std::int64_t>& until, time_point now, duration time) noexcept;

    std::atomic<std::int64_t> until_{0};
    std::atomic<std::int64_t> doubted_until_{0};
};

} // namespace verbena::posixfs
