// SPDX-License-Identifier: Apache-2.0
// Which seeds a simulation runs: fixed ones, so that what was found stays found, and fresh ones, which are printed.
//
//   VERBENA_SIM_SEED=N      that one only
//   VERBENA_SIM_FRESH=N     so many fresh ones (3)
//   VERBENA_SIM_SECONDS=N   of real time, after which no fresh one begins (0: no limit)
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>

namespace verbena::sim {

inline std::uint64_t from_environment(const char* name, std::uint64_t otherwise)
{
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

/// The seed that the environment asks for, or 0 for all.
inline std::uint64_t only_seed() { return from_environment("VERBENA_SIM_SEED", 0); }

/// Calls `f` with fresh seeds and prints which they were; returns how many. They begin at a drawn one. With only_seed() that is the one.
template<class F>
std::uint64_t fresh_seeds(F f)
{
    if (only_seed() != 0) {
        f(only_seed());
        return 1;
    }
    const std::uint64_t count = from_environment("VERBENA_SIM_FRESH", 3);
    const std::chrono::seconds room(from_environment("VERBENA_SIM_SECONDS", 0));
    const std::uint64_t first = std::random_device{}() | std::uint64_t(1) << 32; // none that is fixed
    const auto begun = std::chrono::steady_clock::now();
    std::printf("fresh seeds from VERBENA_SIM_SEED=%llu\n", static_cast<unsigned long long>(first));
    std::fflush(stdout);
    std::uint64_t done = 0;
    while (done < count && (room.count() == 0 || std::chrono::steady_clock::now() - begun < room))
        f(first + done++);
    std::printf("fresh seeds: %llu of %llu, %llu to %llu\n", static_cast<unsigned long long>(done),
                static_cast<unsigned long long>(count), static_cast<unsigned long long>(first),
                static_cast<unsigned long long>(first + done - 1));
    return done;
}

/// Whether they have the same bytes. Not ==, which goes byte by byte where nothing is optimized: a tenth of a simulation's time.
inline bool are_same(std::span<const std::byte> a, std::span<const std::byte> b)
{
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

} // namespace verbena::sim
