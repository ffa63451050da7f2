// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/files/recovery.hpp>

#include <utility>

namespace verbena::files {

grace_period::grace_period(std::vector<reclaimer> reclaimers, time_point until)
    : until_(until), phase_(reclaimers.empty() ? phase::over : phase::reclaiming)
{
    for (reclaimer& one : reclaimers)
        if (keys_.emplace(std::move(one.key), one.keeps_out).second)
            count(one.keeps_out, 1);
}

void grace_period::count(share keeps_out, std::ptrdiff_t by) noexcept
{
    left_[0] += any(keeps_out & share::read) ? std::size_t(by) : 0;
    left_[1] += any(keeps_out & share::write) ? std::size_t(by) : 0;
}

share grace_period::keeps_out(std::string_view key) const noexcept
{
    const auto it = keys_.find(key);
    return it == keys_.end() ? share::none : it->second;
}

bool grace_period::holds_up(share access) const noexcept
{
    return (any(access & share::read) && left_[0] > 0) || (any(access & share::write) && left_[1] > 0);
}

void grace_period::complete(std::string_view key) noexcept
{
    const auto it = keys_.find(key);
    if (it == keys_.end())
        return;
    count(it->second, -1);
    keys_.erase(it);
}

void grace_period::end(bool written) noexcept
{
    phase_ = written ? phase::over : phase::reclaiming;
    if (!written)
        return;
    keys_.clear();
    left_ = {};
}

} // namespace verbena::files
