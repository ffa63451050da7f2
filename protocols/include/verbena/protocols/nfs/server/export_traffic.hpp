// SPDX-License-Identifier: Apache-2.0
// What calls of all versions do to one export.
#pragma once

#include <verbena/core/metrics.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// One shard's. Written by that shard, read from any thread. A line of the cache of its own: shards share none.
struct alignas(64) export_counters {
    counter reads;  ///< READ and READ_PLUS
    counter writes; ///< WRITE
    counter others;
    counter bytes_read;
    counter bytes_written;
    counter no_space;  ///< operations that failed with NOSPC
    counter no_quota;  ///< with DQUOT
    counter io_errors; ///< with IO or NXIO
};

/// All shards'. Lives as long as the export.
class export_traffic {
public:
    /// For shards numbered from 0.
    explicit export_traffic(std::size_t shards) : of_shard_(shards) {}

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

private:
    std::vector<export_counters> of_shard_;
};

/// Registers what `traffic`, which outlives the registrations, has counted for the export at `pseudo`.
metric_registrations expose(metric_registry& registry, const export_traffic& traffic,
                            const std::string& pseudo);

} // namespace verbena::nfs

#pragma GCC visibility pop
