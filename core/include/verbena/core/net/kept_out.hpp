// SPDX-License-Identifier: Apache-2.0
// kept_out: whom an operator keeps out for a time (`verbena admin evict`), by an address or by another name.
#pragma once

#include <verbena/core/reactor/clock.hpp>

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena {

/// Names that are kept out, each until its time. Any thread. While nobody is kept out has() is one load.
class kept_out {
public:
    /// That are kept out at once.
    static constexpr std::size_t most = 1024;

    /// Keeps `name` out until then; a time that is over lets it in. False: `most` others are kept out, and it is not.
    bool add(std::string_view name, time_point until, time_point now)
    {
        const std::scoped_lock held(lock_);
        std::erase_if(names_, [now](const auto& known) { return known.second <= now; });
        const auto known = names_.find(name);
        const bool has_room = known != names_.end() || names_.size() < most;
        if (known != names_.end() && until <= now)
            names_.erase(known);
        else if (known != names_.end())
            known->second = until;
        else if (has_room && until > now)
            names_.emplace(name, until);
        count_.store(names_.size(), std::memory_order_release);
        return has_room;
    }
    /// Whether it is kept out now.
    bool has(std::string_view name, time_point now) const noexcept
    {
        if (count_.load(std::memory_order_acquire) == 0)
            return false;
        const std::scoped_lock held(lock_);
        const auto known = names_.find(name);
        return known != names_.end() && now < known->second;
    }
    /// With those whose time is over, until the next add().
    std::size_t size() const noexcept { return count_.load(std::memory_order_relaxed); }

private:
    mutable std::mutex lock_;
    std::map<std::string, time_point, std::less<>> names_;
    std::atomic<std::size_t> count_{0};
};

} // namespace verbena

#pragma GCC visibility pop
