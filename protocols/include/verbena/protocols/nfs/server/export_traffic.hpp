// SPDX-License-Identifier: Apache-2.0
// What calls of all versions do to one export.
#pragma once

#include <verbena/core/log.hpp>
#include <verbena/core/metrics.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rpc {
class call;
}

namespace verbena::nfs {

/// What the file system beneath an export fails by: an operator has to look after it.
enum class export_failure : std::uint8_t {
    space,     ///< NOSPC
    quota,     ///< DQUOT
    io,        ///< IO, NXIO
    read_only, ///< ROFS, of an export that is not read-only itself
    count_
};
/// How many kinds of export_failure there are.
inline constexpr std::size_t export_failure_count = std::size_t(export_failure::count_);

/// Lets a line through in a minute.
struct failure_limiter final : log_limiter {
    failure_limiter() noexcept : log_limiter(1, std::chrono::minutes(1)) {}
};

/// What keeps the lines about all exports few: beside the limit of each, one of them together. Any thread.
class failure_lines {
public:
    static constexpr std::uint32_t usual_burst = 20; ///< lines in each usual_interval
    static constexpr std::chrono::seconds usual_interval{10};

    /// Lets `burst` lines through at once, and so many again in each `interval`.
    explicit failure_lines(std::uint32_t burst = usual_burst,
                           std::chrono::steady_clock::duration interval = usual_interval) noexcept
        : all_(burst, interval)
    {
    }
    /// Those of all exports of this process that nothing else is said for.
    static failure_lines& of_process() noexcept;
    /// True if a line that `own` limits may be written at `now`. `suppressed` is then how many of `own` were not since the last one,
    /// and `left_out` how many lines of all exports their common limit has cost since its last line.
    bool admit(log_limiter& own, std::chrono::steady_clock::time_point now, std::uint64_t& suppressed,
               std::uint64_t& left_out) noexcept;

private:
    log_limiter all_;
    std::atomic<std::uint64_t> left_out_{0};
};

/// One shard's. Written by that shard, read from any thread. A line of the cache of its own: shards share none.
struct alignas(64) export_counters {
    counter reads;  ///< READ and READ_PLUS
    counter writes; ///< WRITE
    counter others;
    counter bytes_read;
    counter bytes_written;
    std::array<counter, export_failure_count> failures; ///< operations that failed so
    std::array<failure_limiter, export_failure_count> failures_told;
    std::string_view exported;                           ///< what clients mount; empty: nobody has said
    failure_lines* lines = &failure_lines::of_process(); ///< outlives this

    counter& of(export_failure why) noexcept { return failures[std::size_t(why)]; }
    const counter& of(export_failure why) const noexcept { return failures[std::size_t(why)]; }
};

/// Counts that `operation` of `c` failed so, and writes a line with the client and the cure, at most one a minute
/// for each export, failure and shard, and of all exports no more than `of.lines` lets through. On the shard of `of`.
void note_failure(export_counters& of, export_failure why, const rpc::call& c,
                  std::string_view operation) noexcept;

/// All shards'. Lives as long as the export.
class export_traffic {
public:
    /// For shards numbered from 0. `exported` is what clients mount, for the log.
    explicit export_traffic(std::size_t shards, std::string exported = {})
        : exported_(std::move(exported)), of_shard_(shards)
    {
        for (export_counters& c : of_shard_)
            c.exported = exported_;
    }
    export_traffic(const export_traffic&) = delete;

    /// nullptr for a shard that it has nothing of.
    export_counters* on(unsigned shard) noexcept
    {
        return shard < of_shard_.size() ? &of_shard_[shard] : nullptr;
    }
    /// The sum of one counter over all shards. Any thread.
    std::uint64_t total(counter export_counters::* which) const noexcept
    {
        std::uint64_t sum = 0;
        for (const export_counters& c : of_shard_)
            sum += (c.*which).value();
        return sum;
    }

    std::uint64_t total(export_failure why) const noexcept
    {
        std::uint64_t sum = 0;
        for (const export_counters& c : of_shard_)
            sum += c.of(why).value();
        return sum;
    }

private:
    const std::string exported_;
    std::vector<export_counters> of_shard_;
};

/// Registers what `traffic`, which outlives the registrations, has counted for the export at `pseudo`.
metric_registrations expose(metric_registry& registry, const export_traffic& traffic,
                            const std::string& pseudo);

} // namespace verbena::nfs

#pragma GCC visibility pop
