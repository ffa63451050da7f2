// SPDX-License-Identifier: Apache-2.0
// What a seed draws: the conditions of a world of NFS, and what is in its files.
#pragma once

#include "draws.hpp"
#include "world.hpp"

#include <verbena/core/memory/buffer.hpp>
#include <verbena/protocols/rpc/payload.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace verbena::sim {

// Conditions and abilities of a seed: a fourth of the seeds each has a provider that can less.
inline constexpr std::uint64_t profiles = 6;

/// Of a server, and of its clients. Half of the seeds of each profile have two; of the first, those that are odd.
inline std::size_t shards_of(std::uint64_t seed) { return (seed + seed / profiles) % 2 != 0 ? 2 : 1; }

inline world_options options_of(std::uint64_t seed)
{
    draws luck(seed + 1000);
    world_options o;
    o.seed = seed;
    o.shards = shards_of(seed);
    o.credits = std::uint32_t(1 + luck.below(48));
    loop::conditions& c = o.conditions;
    c.latency = std::chrono::microseconds(luck.below(100));
    c[loop::fault::drop] = std::uint32_t(luck.below(60'000));
    c[loop::fault::delay] = std::uint32_t(luck.below(200'000));
    c[loop::fault::reorder] = std::uint32_t(luck.below(300'000));
    c[loop::fault::receiver_not_ready] = std::uint32_t(luck.below(30'000));
    c[loop::fault::flush] = std::uint32_t(luck.below(3'000));
    c[loop::fault::disconnect] = std::uint32_t(luck.below(3'000));
    c[loop::fault::device_removal] = std::uint32_t(luck.below(1'000));
    switch (seed % profiles) {
    case 1:
        o.device.profile.remote_invalidate = false;
        o.device.profile.grant_per_queue_pair = false;
        o.device.profile.receives_on_demand = false;
        break;
    case 2:
        o.device.profile.shared_receives = false;
        o.device.profile.max_send_segments = 1;
        o.device.profile.max_outstanding_reads = 1;
        break;
    case 3: // what iWARP leaves
        o.device.profile.receive_not_ready_retry = false;
        o.device.profile.completion_means_delivered = false;
        break;
    case 4: // receives must stand, and a message without one is fatal
        o.device.profile.needs_local_keys = true;
        o.device.profile.receives_on_demand = false;
        o.device.profile.receive_not_ready_retry = false;
        break;
    case 5: // what a device without memory windows leaves
        o.device.profile.needs_local_keys = true;
        o.device.profile.receives_on_demand = false;
        o.device.profile.remote_invalidate = false;
        o.device.profile.grant_per_queue_pair = false;
        break;
    default: break;
    }
    // Calls and messages wait for memory now and then.
    if (luck.chance(30))
        o.server_memory = (o.shards << 19) + (luck.below(4) << 16);
    c[loop::fault::late_revocation] = std::uint32_t(luck.below(300'000));
    return o;
}

/// `size` bytes for `offset` of a file, in `memory`, and in what the file must hold from then on.
inline rpc::payload write_into(std::vector<std::byte>& content, std::size_t offset, std::size_t size,
                               lease memory, draws& luck)
{
    const auto tag = static_cast<unsigned>(luck.next());
    if (content.size() < offset + size)
        content.resize(offset + size);
    std::byte* const data = memory.data();
    for (std::size_t k = 0; k < size; ++k)
        data[k] = std::byte((tag + k * 7 + k / 253) & 0xff);
    std::copy_n(data, size, content.begin() + std::ptrdiff_t(offset));
    const std::span<const std::byte> bytes(data, size);
    return rpc::payload(std::move(memory), bytes);
}

} // namespace verbena::sim
