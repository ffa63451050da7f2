// SPDX-License-Identifier: Apache-2.0
// A chunk of a session's memory, into which a client writes its requests.
#pragma once

#include <verbena/protocols/rtrs/wire.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace verbena::rtrs {

class server_connection;

/// Where requests lie. While one copy of a request is under way others of the same number wait, since they came by another path after
/// a failure and an old READ or WRITE must not touch the chunk, or the device, once the new one was answered.
struct server_chunk {
    /// What it says was read when it came: another copy may have been written over it when its turn comes, of which data and the
    /// service's header are the same.
    struct copy {
        server_connection* from = nullptr;
        io_header header;
        std::uint32_t data_size = 0; ///< where the service's header begins
    };
    std::span<std::byte> memory;
    server_connection* busy = nullptr; ///< whose copy is under way
    std::vector<copy> waiting;         ///< at most one of each path
};

/// Clears as much of `memory` as a turn of the shard has time for, and yields the rest.
std::span<std::byte> clear_some(std::span<std::byte> memory) noexcept;

} // namespace verbena::rtrs
