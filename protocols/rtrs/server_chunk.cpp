// SPDX-License-Identifier: Apache-2.0
#include "server_chunk.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace verbena::rtrs {

namespace {

// Of memory that is cleared in one turn of the shard: some 50 us.
constexpr std::size_t cleared_at_once = std::size_t(256) << 10;

} // namespace

// Pages that hold zeros are not written: those that nobody has used yet take no memory of the host until they are.
std::span<std::byte> clear_some(std::span<std::byte> memory) noexcept
{
    static constexpr std::array<std::byte, 4096> zeros{};
    for (std::size_t done = 0; !memory.empty() && done < cleared_at_once; done += zeros.size()) {
        const std::size_t size = std::min(memory.size(), zeros.size());
        if (std::memcmp(memory.data(), zeros.data(), size) != 0)
            std::memset(memory.data(), 0, size);
        memory = memory.subspan(size);
    }
    return memory;
}

} // namespace verbena::rtrs
