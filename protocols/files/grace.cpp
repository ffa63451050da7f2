// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/files/recovery.hpp>

#include <algorithm>
#include <new>
#include <utility>

namespace verbena::files {

std::string_view name_of_key(std::string_view key) noexcept
{
    constexpr std::size_t digits = 16;
    constexpr std::string_view head = "4.0 ";
    constexpr std::size_t all = head.size() + digits + 1;
    const bool is_of_minor_0 =
        key.size() >= all && key.starts_with(head) && key[all - 1] == ' ' &&
        key.substr(head.size(), digits).find_first_not_of("0123456789abcdef") == std::string_view::npos;
    return is_of_minor_0 ? key.substr(all) : key;
}

grace_period::grace_period(std::vector<reclaimer> reclaimers, time_point until)
    : until_(until), phase_(reclaimers.empty() ? phase::over : phase::reclaiming)
{
    for (reclaimer& one : reclaimers)
        if (keys_.emplace(std::move(one.key), waited_for{one.keeps_out}).second)
            count(one.keeps_out, 1);
    clients_.recorded = clients_.absent = keys_.size();
}

void grace_period::count(share keeps_out, std::ptrdiff_t by) noexcept
{
    left_[0] += any(keeps_out & share::read) ? std::size_t(by) : 0;
    left_[1] += any(keeps_out & share::write) ? std::size_t(by) : 0;
}

share grace_period::keeps_out(std::string_view key) const noexcept
{
    const auto it = keys_.find(key);
    return it == keys_.end() ? share::none : it->second.keeps_out;
}

void grace_period::note_back(std::string_view key) noexcept
{
    const auto it = keys_.find(key);
    if (it == keys_.end() || std::exchange(it->second.is_back, true))
        return;
    --clients_.absent;
    ++clients_.back;
}

void grace_period::list_those_left(report& into, std::size_t most) const
{
    std::size_t left = std::min(most, clients_.back) + std::min(most, clients_.absent);
    for (auto at = keys_.begin(); left != 0 && at != keys_.end(); ++at)
        if (auto& keys = at->second.is_back ? into.keys_back : into.keys_absent; keys.size() < most) {
            keys.push_back(at->first);
            --left;
        }
}

grace_period::report grace_period::how_it_goes(time_point now, std::size_t most) const
{
    report told;
    if (phase_ == phase::over) {
        told = ended_;
        told.keys_back.resize(std::min(told.keys_back.size(), most));
        told.keys_absent.resize(std::min(told.keys_absent.size(), most));
    } else {
        list_those_left(told, most);
        told.left = std::max(until_ - now, duration::zero());
    }
    told.now = phase_;
    told.clients = clients_;
    return told;
}

bool grace_period::holds_up(share access) const noexcept
{
    return (any(access & share::read) && left_[0] > 0) || (any(access & share::write) && left_[1] > 0);
}

void grace_period::complete(std::string_view key, part how) noexcept
{
    const auto it = keys_.find(key);
    if (it == keys_.end())
        return;
    count(it->second.keeps_out, -1);
    --(it->second.is_back ? clients_.back : clients_.absent);
    ++(how == part::done ? clients_.done : clients_.lost);
    keys_.erase(it);
}

void grace_period::end(bool written) noexcept
{
    phase_ = written ? phase::over : phase::reclaiming;
    if (!written)
        return;
    try {
        list_those_left(ended_, most_kept);
    } catch (const std::bad_alloc&) { // some are missing
    }
    keys_.clear();
    left_ = {};
}

} // namespace verbena::files
