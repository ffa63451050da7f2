// SPDX-License-Identifier: Apache-2.0
// What all sessions of a server share.
#pragma once

#include <verbena/protocols/rtrs/server.hpp>

#include <verbena/core/task/event.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace verbena::rtrs {

class path_part;
class server_session;

/// What all sessions of a server share, and all parts of paths on its shard.
struct server_shared {
    /// As others find it; nullptr: the group spreads no sessions.
    const verbena::shard* const home;
    reactor& shard;
    buffer_pool& buffers;
    rtrs::service& service;
    server_group& group;
    const server_options options;
    server_stats& stats;
    const request_layout layout;
    std::map<uuid, std::unique_ptr<server_session>> sessions;
    std::map<std::uint64_t, std::unique_ptr<path_part>>
        parts;       // of paths whose home is elsewhere, by their number
    event path_over; // one of them, or a part, has gone

    peer_shares& peers() const noexcept { return group.peers(); }
    /// Connections of a path for which there is room beyond the share: what a host of 128 CPUs makes.
    static constexpr std::uint16_t connections_of_first_path = 129;
    /// Bytes that a peer may have whose paths have so many connections each. One session of so many paths is always within the share.
    std::uint64_t most_memory(std::uint16_t connections, unsigned paths) const noexcept
    {
        const std::size_t chunks = std::size_t(options.queue_depth) * options.chunk_size;
        const std::size_t counted = std::min(connections, connections_of_first_path);
        return std::max<std::uint64_t>(peers().options().memory,
                                       chunks + paths * counted * memory_of_queues(options));
    }
    std::uint32_t max_io_size() const noexcept { return options.chunk_size - options.header_size; }
};

} // namespace verbena::rtrs
