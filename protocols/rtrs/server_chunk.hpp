// SPDX-License-Identifier: Apache-2.0
// A chunk of a session's memory, into which a client writes its requests.
#pragma once

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/protocols/rtrs/wire.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace verbena::rtrs {

class path_part;
class server_connection;

/// A copy of a request that waits until the one before it is over. What it says was read when it came: another copy may have been written
/// over it when its turn comes, of which data and the service's header are the same.
///
/// Its turn may come on another shard than that of its connection: then it goes there as a message.
class waiting_copy final : public remote_message, public deferred {
public:
    waiting_copy(server_connection& c, std::uint32_t chunk, const io_header& header,
                 std::uint32_t data_size) noexcept
        : from(c), chunk_(chunk), header_(header), data_size_(data_size)
    {
    }
    /// Its turn has come, and path_part::copy_comes() has been called. On any shard.
    static void start(std::unique_ptr<waiting_copy> copy) noexcept;
    void deliver() noexcept override;
    void run() noexcept override;

    server_connection& from;

private:
    const std::uint32_t chunk_;
    const io_header header_;
    const std::uint32_t data_size_; // where the service's header begins
};

/// Whether the request that came into a chunk may be served.
enum class chunk_turn : std::uint8_t {
    now,
    later, ///< the copy before it is under way
    never, ///< its path has one under way, or waiting: a broken client
};

/// Where requests lie. While one copy of a request is under way others of the same number wait, since they came by another path after
/// a failure and an old READ or WRITE must not touch the chunk, or the device, once the new one was answered.
struct server_chunk {
    std::span<std::byte> memory;
    /// Whose copy is under way: the number of its path, shifted, and whether others may wait, as the lowest bit. 0: idle. Any shard.
    std::atomic<std::uint64_t> busy{0};
    std::vector<std::unique_ptr<waiting_copy>>
        waiting; ///< at most one of each path; under server_session's lock
};

/// Clears as much of `memory` as a turn of the shard has time for, and yields the rest.
std::span<std::byte> clear_some(std::span<std::byte> memory) noexcept;

} // namespace verbena::rtrs
