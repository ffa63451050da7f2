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

// Of one that is not slow nothing is told, however many are under way as the server ends: lines are limited.
void slow_call::on_stop() noexcept
{
    is_stopped_ = true;
    if (shard_.now() >= begun_ + patience)
        tell();
}

void slow_call::tell() noexcept
{
    shard_.timers().arm(*this, shard_.now() + again);
    std::uint64_t suppressed = 0;
    if (!log_enabled(log_level::warning) || !logged_.admit(std::chrono::steady_clock::now(), suppressed))
        return;
    // The kernel knows the name without asking a disk.
    std::array<char, 32> link{};
    std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", what_.fd);
    std::array<char, PATH_MAX> path{};
    const ssize_t length = ::readlink(link.data(), path.data(), path.size());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(shard_.now() - begun_).count();
    try {
        log(log_level::warning, "posixfs",
            is_stopped_ ? "the end of a connection waits for the disk beneath an export"
                        : "a call for a peer waits for the disk beneath an export",
            {{"export", what_.name},
             {"directory", what_.root},
             {"file",
              length > 0 ? std::string_view(path.data(), std::size_t(length)) : "its name is unknown"},
             {"waits_for", what_.operation},
             {"offset", what_.offset},
             {"bytes", what_.size},
             {"seconds", seconds},
             {"suppressed", suppressed}});
    } catch (...) { // no memory for a line
    }
}

} // namespace verbena::posixfs
