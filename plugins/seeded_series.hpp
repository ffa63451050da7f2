// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace verbena::filters {

/// A series of random numbers that all shards draw from, without a lock: the n-th depends on the seed and on n alone
/// (splitmix64).
class seeded_series {
public:
    explicit seeded_series(std::uint64_t seed) noexcept : seed_(seed) {}
    std::uint64_t next() noexcept
    {
        const std::uint64_t n = drawn_.fetch_add(1, std::memory_order_relaxed) + 1;
        std::uint64_t x = seed_ + n * 0x9e3779b97f4a7c15;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
        x = (x ^ x >> 27) * 0x94d049bb133111eb;
        return x ^ x >> 31;
    }

private:
    const std::uint64_t seed_;
    std::atomic<std::uint64_t> drawn_{0};
};

} // namespace verbena::filters
