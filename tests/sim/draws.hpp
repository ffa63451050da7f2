// SPDX-License-Identifier: Apache-2.0
// Numbers that a seed draws.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::sim {

class draws {
public:
    explicit draws(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 1) {}
    std::uint64_t next() noexcept
    {
        state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
        return (state_ ^ (state_ >> 31)) * 0x9e3779b97f4a7c15ULL >> 11;
    }
    std::size_t below(std::size_t n) noexcept { return static_cast<std::size_t>(next() % n); }
    bool chance(unsigned percent) noexcept { return below(100) < percent; }

private:
    std::uint64_t state_;
};

} // namespace verbena::sim
