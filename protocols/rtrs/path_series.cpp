// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rtrs/path_series.hpp>

#include <algorithm>

namespace verbena::rtrs {

path_counters& path_series::join(std::string_view session, std::string_view peer)
{
    const std::lock_guard lock(mutex_);
    auto at =
        std::ranges::find_if(places_, [&](const place& p) { return p.session == session && p.peer == peer; });
    if (at == places_.end() && places_.size() < max_paths) {
        places_.push_back({std::string(session), std::string(peer), std::make_unique<path_counters>()});
        at = places_.end() - 1;
    } else if (at == places_.end()) {
        at = oldest_ended();
        if (at->users != 0) {
            if (others_ == nullptr)
                others_ = std::make_unique<path_counters>();
            return *others_;
        }
        *at = place{std::string(session), std::string(peer), std::make_unique<path_counters>()};
    }
    ++at->users;
    return *at->counters;
}

void path_series::leave(path_counters& c) noexcept
{
    const std::lock_guard lock(mutex_);
    const auto at = std::ranges::find_if(places_, [&](const place& p) { return p.counters.get() == &c; });
    if (at == places_.end())
        return; // one of the others
    at->left = ++leaves_;
    if (--at->users != 0 || std::ranges::count(places_, 0U, &place::users) <= std::ptrdiff_t(max_ended))
        return;
    places_.erase(oldest_ended());
}

// Or one in use, if none has ended.
std::vector<path_series::place>::iterator path_series::oldest_ended() noexcept
{
    return std::ranges::min_element(places_, {},
                                    [](const place& p) { return p.users == 0 ? p.left : UINT64_MAX; });
}

} // namespace verbena::rtrs
