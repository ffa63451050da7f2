// SPDX-License-Identifier: Apache-2.0
#include "server_memory.hpp"

#include <algorithm>
#include <bit>

namespace verbena::rtrs {

namespace {

// Before an answer a chunk's key goes, and with it another comes; the two halves of a Send with Immediate may count as one each.
constexpr std::uint32_t most_of_a_renewal = 3;

} // namespace

std::size_t size_of_messages(const server_options& o) noexcept
{
    return std::max(info_request_size, info_response_size(o.queue_depth));
}

std::size_t size_of_path(const server_options& o) noexcept
{
    return size_of_messages(o) + (o.always_invalidate ? o.queue_depth * new_key_size : 0);
}

session_memory memory_of_sessions(const server_options& o, const memory_budget& budget,
                                  std::size_t pools) noexcept
{
    const chunk_pieces chunks(o);
    const std::size_t piece = std::bit_ceil(std::max(chunks.bytes, buffer_pool::min_size));
    const std::size_t path = std::bit_ceil(std::max(size_of_path(o), buffer_pool::min_size));
    const std::size_t slab = budget.slab_size();
    session_memory m;
    m.each = chunks.count * piece + path + 2 * memory_of_queues(o);
    // Each shard may have a slab of either kind that serves for more than it is used for.
    m.beside = slab - std::min(slab, piece) + slab - std::min(slab, path);
    m.shards = pools;
    // Other shards keep what their last sessions have left, and nobody can ask for it.
    const std::size_t kept =
        std::max(piece, slab) > budget.max_kept() ? std::min(slab, budget.max_kept()) : budget.max_kept();
    m.kept = (pools - 1) * kept;
    return m;
}

std::uint32_t send_depth_of(const server_options& o) noexcept
{
    // Answers to all requests, which could come by this connection alone, and heartbeats.
    const std::uint32_t each = most_of_an_answer + (o.always_invalidate ? most_of_a_renewal : 0);
    return each * o.queue_depth + signalled_each + 16;
}

// As iwarp has them, whose rings grow by doubling; a device's are as large at least, in the kernel's memory.
std::size_t memory_of_queues(const server_options& o) noexcept
{
    constexpr std::size_t of_send = 112, of_receive = 32, of_arrival = 32; // which has a place in two lists
    constexpr std::size_t beside = 16384; // the socket, and what a batch needs
    const std::uint32_t receives = std::max<std::uint32_t>(service_queue_depth, o.queue_depth) + 1;
    return of_send * std::bit_ceil(send_depth_of(o)) + of_receive * std::bit_ceil(receives) +
           of_arrival * (receives + o.queue_depth) + beside;
}

} // namespace verbena::rtrs
