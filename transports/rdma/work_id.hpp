// SPDX-License-Identifier: Apache-2.0
// What wr_id holds: never a pointer, so that a completion that comes too late is counted and not followed.
#pragma once

#include <cstdint>

namespace verbena::rdma {

/// Kind (2 bits), generation of the queue pair's slot (14), slot (16), index in its queue (32).
struct work_id {
    enum class kind : std::uint8_t { send, receive, shared };
    kind what;
    std::uint16_t generation;
    std::uint16_t slot;
    std::uint32_t index;

    static constexpr std::uint16_t max_generation = 0x3fff;
    static std::uint64_t make(kind k, std::uint16_t generation, std::uint16_t slot,
                              std::uint32_t index) noexcept
    {
        return std::uint64_t(k) << 62 | std::uint64_t(generation & max_generation) << 48 |
               std::uint64_t(slot) << 32 | index;
    }
    static std::uint64_t shared_receive(std::uint32_t index) noexcept
    {
        return make(kind::shared, 0, 0, index);
    }
    explicit work_id(std::uint64_t id) noexcept
        : what(static_cast<kind>(id >> 62)),
          generation(static_cast<std::uint16_t>(id >> 48 & max_generation)),
          slot(static_cast<std::uint16_t>(id >> 32)),
          index(static_cast<std::uint32_t>(id))
    {
    }
};

} // namespace verbena::rdma
