// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace verbena::cli {

/// The `p`th percentile by nearest rank: the least of the values that p in a hundred do not exceed. `sorted` rises and is
/// not empty; p 0 gives the least value, 100 the greatest.
inline double percentile(const std::vector<double>& sorted, double p)
{
    const auto rank = static_cast<std::size_t>(std::ceil(p / 100 * static_cast<double>(sorted.size())));
    return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

} // namespace verbena::cli
