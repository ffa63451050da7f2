// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/caller_groups.hpp>

#include <algorithm>
#include <new>
#include <optional>
#include <string>

namespace verbena::nfs {

bool caller_groups::matter(const export_options& exported, const rpc::principal& who) noexcept
{
    return !who.is_anonymous() && who.uid() != 0 && who.uid() != no_id && !exported.all_squash;
}

const storage::shared_groups& caller_groups::lists::in(const export_options& exported)
{
    // Of sorted ones root's group is the first.
    if (!exported.root_squash || all->empty() || all->front() != 0)
        return all;
    const auto known = std::ranges::find(squashed, exported.anongid, [](const auto& of) { return of.first; });
    if (known != squashed.end())
        return known->second;
    storage::shared_groups made = without_root(*all, exported.anongid);
    if (squashed.size() == most_squashed)
        squashed.erase(squashed.begin());
    return squashed.emplace_back(exported.anongid, std::move(made)).second;
}

groups_standing caller_groups::act(const export_options& exported, const rpc::call& c, const user_groups* of,
                                   storage::credential& as) noexcept
{
    if (of == nullptr || !matter(exported, c.who())) {
        as = squash(exported, c.who());
        return groups_standing::known;
    }
    const auto* const known = known_.find(c.who().uid(), of->now());
    if (known == nullptr)
        return groups_standing::later;
    if (known->failed)
        return groups_standing::refused;
    try {
        as = squash(exported, c.who(), (*known->value)->in(exported));
    } catch (const std::bad_alloc&) {
        return groups_standing::later;
    }
    return groups_standing::known;
}

bool caller_groups::lacks(const rpc::principal& who, const user_groups& of) noexcept
{
    return !who.is_anonymous() && who.uid() != 0 && who.uid() != no_id &&
           known_.find(who.uid(), of.now()) == nullptr;
}

task<void> caller_groups::learn(const rpc::call& c, user_groups& of)
{
    const std::uint32_t uid = c.who().uid();
    std::string from(c.from().address);
    task<user_groups::answer> asking = of.of(uid, std::move(from));
    user_groups::answer said = co_await asking;
    if (said.is == groups_standing::later)
        co_return;
    try {
        decltype(known_)::entry made{uid, std::nullopt, said.is == groups_standing::refused, said.until};
        if (said.groups)
            made.value = std::make_shared<lists>(lists{std::move(said.groups), {}});
        known_.put(std::move(made));
    } catch (const std::bad_alloc&) {
        // The next call asks again.
    }
}

} // namespace verbena::nfs
