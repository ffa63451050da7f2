// SPDX-License-Identifier: Apache-2.0
// Copies of bytes that a peer may read or write by RDMA at the same time.
#pragma once

#include <verbena/core/memory/copy.hpp>
#include <verbena/core/memory/peer_order.hpp>

#include <cstddef>
#include <cstring>

namespace verbena::memfs {

inline void copy_reached(std::byte* to, const std::byte* from, std::size_t count) noexcept
{
    const reached_meanwhile here;
    std::memcpy(to, from, count);
}

// Of what a client writes. It is rarely read before other data have gone through the caches.
inline void keep_reached(std::byte* to, const std::byte* from, std::size_t count) noexcept
{
    constexpr std::size_t worth_it = std::size_t(16) << 10;
    if (count < worth_it)
        return copy_reached(to, from, count);
    const reached_meanwhile here;
    copy_past_caches(to, from, count);
}

inline void set_reached(std::byte* to, std::size_t count) noexcept
{
    const reached_meanwhile here;
    std::memset(to, 0, count);
}

} // namespace verbena::memfs
