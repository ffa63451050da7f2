// SPDX-License-Identifier: Apache-2.0
// How much room the file system of an export has.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/storage/file_backend.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// What the back end said last, and when. A scrape reads that and asks nobody, so that a disk which hangs holds up neither a scrape nor a
/// shard: what was said before stays, and grows old.
class export_room {
public:
    /// How long after an answer the back end is asked again. While it does not answer it is not asked twice. It is three times as long as a
    /// thread of a lane that has nothing to do stays, so that an export where nothing happens keeps no thread.
    static constexpr duration interval = std::chrono::seconds(30);

    /// Between the first questions of exports that begin together: a thread then answers for one after the other.
    static constexpr duration apart = std::chrono::milliseconds(100);
    /// When the export of that number, of so many, asks first.
    static constexpr duration first_of(std::size_t number, std::size_t count) noexcept
    {
        return std::min<duration>(apart, interval / std::max<std::size_t>(count, 1)) * number;
    }

    /// Asks `files` after `first`, and then each `interval`. Both outlive it.
    ///
    /// Completes when: it was asked to stop, or end() was called. On cancel: it ends, after the answer that it waits for. Errors: none; a back end that fails is
    /// asked again. Lifetime: this and `files` outlive it. Shard: any, one task at a time.
    task<void> tend(storage::file_backend& files, duration first = duration::zero());
    /// Has tend() end: at once, or behind the answer that it waits for. On tend()'s shard.
    void end() noexcept { ends_.set(); }
    /// Whether tend() uses the back end. Any thread.
    bool is_tended() const noexcept { return is_tended_.load(std::memory_order_acquire); }
    /// Whether the metrics of expose() show what is known; they do from the start. Not while nobody may write: then nobody misses room.
    /// It is asked for all the same, so that it is known when somebody may. Any thread.
    void show(bool shown) noexcept { is_shown_.store(shown, std::memory_order_relaxed); }
    /// As show() was told last. Any thread.
    bool is_shown() const noexcept { return is_shown_.load(std::memory_order_relaxed); }

    /// What a back end said of its room.
    struct look {
        storage::filesystem_stat room; ///< as the back end said it
        duration age;                  ///< since the back end said so
    };
    /// Nothing before the first answer. Any thread.
    std::optional<look> last() const noexcept;

private:
    void keep(const storage::filesystem_stat& said, const clock_source& clock) noexcept;

    // Each by itself: two numbers of different answers do no harm.
    std::atomic<std::uint64_t> total_bytes_{0}, free_bytes_{0}, available_bytes_{0};
    std::atomic<std::uint64_t> total_files_{0}, free_files_{0}, available_files_{0};
    std::atomic<time_point::rep> answered_{0};
    std::atomic<const clock_source*> clock_{nullptr}; // set last
    task<result<void>> wait_for_end();
    task<bool> sleeps(duration time);

    event ends_;
    std::atomic<bool> is_tended_{false};
    std::atomic<bool> is_shown_{true};
};

/// Registers what `room`, which outlives the registrations, knows of the export at `pseudo`.
metric_registrations expose(metric_registry& registry, const export_room& room, const std::string& pseudo);

} // namespace verbena::nfs

#pragma GCC visibility pop
