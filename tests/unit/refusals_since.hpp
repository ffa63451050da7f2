// SPDX-License-Identifier: Apache-2.0
// Refusals are counted for the whole program: a case asks how many more there are since it began.
#pragma once

#include <verbena/core/net/refusals.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace verbena::test {

class refusals_since {
public:
    refusals_since() noexcept
    {
        for (std::size_t i = 0; i < refused_count; ++i)
            before_[i] = refusals(refused(i));
    }
    std::uint64_t operator()(refused why) const noexcept { return refusals(why) - before_[std::size_t(why)]; }

private:
    std::array<std::uint64_t, refused_count> before_{};
};

} // namespace verbena::test
