// SPDX-License-Identifier: Apache-2.0
// Random numbers that repeat: for tests and faults, never for secrets.
#pragma once

#include <cstdint>

namespace verbena {

/// splitmix64: every state is good, and neighbouring seeds give unrelated streams.
inline std::uint64_t next_random(std::uint64_t& state) noexcept
{
    state += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

} // namespace verbena
