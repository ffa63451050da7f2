// SPDX-License-Identifier: Apache-2.0
// What one shard's program of version 4 counts.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/protocols/files/options.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/nfs/wire/v4/types.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// What one shard's program has done. Written by its shard, read from any thread.
struct server_counters {
    enum class result_class : std::uint8_t { ok, later, failed };
    static constexpr std::size_t classes = 3;
    static constexpr std::size_t kinds = static_cast<std::size_t>(last_operation) + 1;

    void note(nfs_opnum4 operation, nfsstat4 status) noexcept;

    /// By number; 0 counts those that are none.
    std::array<std::array<counter, classes>, kinds> operations;
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
