// SPDX-License-Identifier: Apache-2.0
#include "disk_rest.hpp"

#include <algorithm>

namespace verbena::posixfs {

namespace {

constexpr int rests = 100; // times as long as the stall
constexpr duration longest_rest = std::chrono::minutes(1);

} // namespace

void disk_rest::note_long(time_point ended, duration took, std::optional<bool> waited) noexcept
{
    if (took < long_stall)
        return;
    const duration time = std::min(took, longest_rest / rests) * rests;
    if (waited.value_or(took >= sure_stall))
        extend(until_, ended, time);
    else
        extend(doubted_until_, ended, time);
}

bool disk_rest::extend(std::atomic<std::int64_t>& until, time_point now, duration time) noexcept
{
    const std::int64_t begun = now.time_since_epoch().count();
    const std::int64_t end = begun + time.count();
    std::int64_t known = until.load(std::memory_order_relaxed);
    while (known < end)
        if (until.compare_exchange_weak(known, end, std::memory_order_relaxed))
            return known <= begun;
    return false;
}

} // namespace verbena::posixfs
