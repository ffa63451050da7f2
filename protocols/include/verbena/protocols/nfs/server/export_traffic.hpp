// SPDX-License-Identifier: Apache-2.0
// What calls of all versions do to one export.
#pragma once

#include <verbena/core/log.hpp>
#include <verbena/core/metrics.hpp>

#include <array>
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

/// One shard's. Written by that shard, read from any thread. A line of the cache of its own: shards share none.
struct alignas(64) export_counters {
    counter reads;  ///< READ and READ_PLUS
    counter writes; ///< WRITE
    counter others;
    counter bytes_read;
    counter bytes_written;
    std::array<counter, export_failure_count> failures; ///< operations that failed so
    std::array<failure_limiter, export_failure_count> failures_told;
    std::string_view exported; ///< what clients mount; empty: nobody has said

    counter& of(export_failure why) noexcept { return failures[std::size_t(why)]; }
    const counter& of(export_failure why) const noexcept { return failures[std::size_t(why)]; }
};

/// Counts that `operation` of `c` failed so, and writes a line with the client and the cure, at most one a minute
/// for each export, failure and shard. On the shard of `of`.
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
