// SPDX-License-Identifier: Apache-2.0
// How much memory sessions, paths and connections of a server take.
#pragma once

#include <verbena/protocols/rtrs/server.hpp>

#include <cstddef>
#include <cstdint>

namespace verbena::rtrs {

/// Of a session's chunks: as few pieces as the buffers allow, all of the same size, since a client takes nothing else.
struct chunk_pieces {
    explicit chunk_pieces(const server_options& o) noexcept
    {
        const std::size_t chunk_size = o.chunk_size;
        while (o.queue_depth % count != 0 || o.queue_depth / count * chunk_size > buffer_pool::max_size)
            ++count;
        bytes = o.queue_depth / count * chunk_size;
    }
    std::uint32_t count = 1;
    std::size_t bytes = 0; // of each
};

/// Of connection 0: one or the other.
std::size_t size_of_messages(const server_options& o) noexcept;
/// A path's messages.
std::size_t size_of_path(const server_options& o) noexcept;
/// Entries of a connection's send queue.
std::uint32_t send_depth_of(const server_options& o) noexcept;
/// The device takes an answer to a request as up to three work requests: data, what invalidates their sink's key, the immediate.
constexpr std::uint32_t most_of_an_answer = 3;
/// Of so many work requests the last one tells that all are over.
constexpr std::uint32_t signalled_each = 64;

} // namespace verbena::rtrs
