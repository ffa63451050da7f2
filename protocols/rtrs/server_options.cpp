// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rtrs/server.hpp>

#include <bit>

namespace verbena::rtrs {

result<void> check(const server_options& o) noexcept
{
    if (o.queue_depth < 2)
        return error(std::errc::invalid_argument, "a session's queue depth is 2 to 65535");
    if (o.chunk_size < min_chunk_size || !std::has_single_bit(o.chunk_size) ||
        o.chunk_size > buffer_pool::max_size)
        return error(std::errc::invalid_argument, "a chunk's size is a power of two from 8 KiB to 16 MiB",
                     o.chunk_size);
    if (o.header_size < 512 || o.header_size >= o.chunk_size || o.header_size % 512 != 0)
        return error(std::errc::invalid_argument,
                     "headers take a multiple of 512 bytes and less than a chunk", o.header_size);
    if (!request_layout(o.queue_depth).fits(o.chunk_size))
        return error(std::errc::invalid_argument, "queue depth, as the next power of two, times chunk size "
                                                  "is at most 256 MiB, as an immediate has 28 bits for both: "
                                                  "make either smaller");
    if (o.max_unfinished == 0 || o.max_peer_sessions == 0 || o.max_peer_connections == 0)
        return error(std::errc::invalid_argument,
                     "a peer that may have no half-made path, session or connection can't make one");
    return {};
}

} // namespace verbena::rtrs
