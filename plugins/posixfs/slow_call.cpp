// SPDX-License-Identifier: Apache-2.0
#include "slow_call.hpp"

#include <array>
#include <climits>
#include <cstdio>
#include <unistd.h>

namespace verbena::posixfs {

slow_call::slow_call(reactor& shard, const stop_token& by, log_limiter& logged, const what& w) noexcept
    : shard_(shard), logged_(logged), what_(w), begun_(shard.now())
{
    shard_.timers().arm(*this, begun_ + patience);
    if (!by.subscribe(*this))
        is_stopped_ = true; // it is not made
}

void slow_call::on_stop() noexcept
{
    is_stopped_ = true;
    tell("the end of a connection waits for the disk beneath an export");
}

void slow_call::tell(std::string_view message) noexcept
{
    // The kernel knows the name without asking a disk.
    std::array<char, 32> link{};
    std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", what_.fd);
    std::array<char, PATH_MAX> path{};
    const ssize_t length = ::readlink(link.data(), path.data(), path.size());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(shard_.now() - begun_).count();
    try {
        log_limited(logged_, log_level::warning, "posixfs", message,
                    {{"export", what_.export_root},
                     {"file", length > 0 ? std::string_view(path.data(), std::size_t(length))
                                         : "its name is unknown"},
                     {"waits_for", what_.operation},
                     {"offset", what_.offset},
                     {"bytes", what_.size},
                     {"seconds", seconds}});
    } catch (...) { // no memory for a line
    }
}

} // namespace verbena::posixfs
