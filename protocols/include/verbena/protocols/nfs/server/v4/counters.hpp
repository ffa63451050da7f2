// SPDX-License-Identifier: Apache-2.0
// What one shard's program of version 4 counts.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/protocols/files/options.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/nfs/server/status_counts.hpp>
#include <verbena/protocols/nfs/wire/v4/types.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// Whether an operation does something to an object of an export or to what a client has. Those that only say which object the next one is
/// about, and SEQUENCE, have no time of their own, which would cost as much as they do, and count for no export.
constexpr bool is_timed(nfs_opnum4 operation) noexcept
{
    switch (operation) {
    case nfs_opnum4::getfh:
    case nfs_opnum4::putfh:
    case nfs_opnum4::putpubfh:
    case nfs_opnum4::putrootfh:
    case nfs_opnum4::restorefh:
    case nfs_opnum4::savefh:
    case nfs_opnum4::sequence: return false;
    default: return operation <= last_operation;
    }
}

/// What one shard's program has done. Written by its shard, read from any thread.
struct server_counters {
    /// How an operation ended: done, told to come again (DELAY, GRACE), or refused.
    enum class result_class : std::uint8_t { ok, later, failed };
    static constexpr std::size_t classes = 3;                                          ///< of result_class
    static constexpr std::size_t kinds = static_cast<std::size_t>(last_operation) + 1; ///< of operations

    /// One operation more. On the shard.
    void note(nfs_opnum4 operation, nfsstat4 status) noexcept;
    /// Of an operation that is_timed().
    void note_time(nfs_opnum4 operation, duration took) noexcept
    {
        times[static_cast<std::size_t>(operation)].observe(
            static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count()));
    }

    /// By number; 0 counts those that are none.
    std::array<std::array<counter, classes>, kinds> operations;
    status_counts errors; ///< by operation and status; operation 0 is any number that is none
    std::array<log_linear_histogram, kinds> times;
    counter bytes_read;
    counter bytes_written;
    access_counters refused;
    counter refused_handle;               ///< forged, or signed with another key
    counter refused_export;               ///< a good handle of an export that is gone
    files::limit_counters refused_limits; ///< clients and sessions that were not made
    counter replays;                      ///< calls answered by what their slot kept
    counter layouts_recalled;             ///< refused LAYOUTGETs: while the client is to return what it has
    counter layouts_later;                ///< likewise: for limits, or others who use the file
    counter layouts_unavailable;          ///< likewise: there are none of the file
    counter layouts_beyond_device;        ///< likewise: the device reaches no files that are not in memory
    counter layouts_failed;               ///< likewise: for what was asked, or who asks
    /// What clients say failed by a layout (LAYOUTERROR): io, nxio, access, delay, and all others.
    static constexpr std::size_t layout_faults = 5;
    std::array<counter, layout_faults> layout_errors;
    counter layout_bytes_read, layout_bytes_written; ///< by layouts, as clients say (LAYOUTSTATS)
    counter known_names;                             ///< owners whose names this shard knew
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
