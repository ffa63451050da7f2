// SPDX-License-Identifier: Apache-2.0
// Owners by their names: what clients call them, and what they are called to clients.
#include "owner_names.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/protocols/nfs/server/v4/storage_acl.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

namespace verbena::nfs::v4 {

bool owner_names::says(const bitmap4& wanted) const noexcept
{
    return users_ != nullptr && users_->sends_names() &&
           (wanted.test(attribute::owner) || wanted.test(attribute::owner_group));
}

void owner_names::say_known(const bitmap4& wanted, object_values& out, std::vector<account>* unknown)
{
    const time_point now = here_.reactor().clock().now();
    const auto say = [&](account who) {
        const auto* known = at_hand_.find(who, now);
        if (unknown != nullptr && known == nullptr)
            unknown->push_back(who);
        if (unknown != nullptr && known != nullptr)
            known_.add();
        if (known != nullptr && known->value)
            out.set_name(who.kind, *known->value);
    };
    if (wanted.test(attribute::owner))
        say({account_kind::user, out.uid});
    if (wanted.test(attribute::owner_group))
        say({account_kind::group, out.gid});
}

time_point owner_names::until(const name_waits& waits) const noexcept
{
    const duration left = users_->patience() - waits.waited;
    return here_.reactor().clock().now() + std::max(left, duration());
}

// What is late is not kept: who comes next asks again. What failed or hangs is, for as long as that would be heard
// again.
task<void> owner_names::learn(name_waits& waits, std::vector<account>& those)
{
    const time_point begun = here_.reactor().clock().now();
    std::ranges::sort(those);
    const auto repeated = std::ranges::unique(those);
    those.erase(repeated.begin(), repeated.end());
    auto ask = [users = users_, deadline = until(waits)](std::vector<account> each) {
        return users->texts_of(std::move(each), deadline);
    };
    const auto told = co_await home_.run(std::move(ask), those);
    const time_point now = here_.reactor().clock().now();
    waits.waited += now - begun;
    for (std::size_t i = 0; i < those.size(); ++i) {
        if (told[i].how == user_names::outcome::found)
            at_hand_.put({those[i], told[i].text, false, told[i].until});
        if (told[i].how == user_names::outcome::unknown)
            at_hand_.put({those[i], std::nullopt, false, told[i].until});
        if (told[i].how == user_names::outcome::later && told[i].until > now)
            at_hand_.put({those[i], std::nullopt, true, told[i].until});
    }
}

task<void> owner_names::say(name_waits& waits, bitmap4 wanted, object_values& out)
{
    std::vector<account> unknown;
    say_known(wanted, out, &unknown);
    if (unknown.empty())
        co_return;
    co_await learn(waits, unknown);
    say_known(wanted, out, nullptr);
}

task<nfsstat4> owner_names::id_of(name_waits& waits, account_kind kind, std::string_view text,
                                  std::uint32_t& id)
{
    if (text.size() > max_owner || !split_owner(text))
        co_return nfsstat4::badowner;
    const time_point begun = here_.reactor().clock().now();
    auto ask = [users = users_, kind, deadline = until(waits)](std::string of) {
        return users->id_of(kind, std::move(of), deadline);
    };
    const user_names::id_answer found = co_await home_.run(std::move(ask), std::string(text));
    waits.waited += here_.reactor().clock().now() - begun;
    waits.gave_a_name_up = found.how == user_names::outcome::given_up;
    if (found.how != user_names::outcome::found)
        co_return found.how == user_names::outcome::later ? nfsstat4::delay : nfsstat4::badowner;
    id = found.id;
    co_return nfsstat4::ok;
}

task<nfsstat4> owner_names::to_settable(name_waits& waits, const attributes& from,
                                        storage::set_attributes& to, storage::access_list& acl)
{
    nfsstat4 status = co_await to_attributes(waits, from, to);
    if (status != nfsstat4::ok || !from.present.test(attribute::acl))
        co_return status;
    acl.clear();
    for (auto at = from.acl.begin(); at != from.acl.end(); ++at) {
        nfsace4 each = *at;
        storage::ace& made = acl.emplace_back();
        status = from_ace(each, made);
        if (status == nfsstat4::badowner) {
            const bool group = (each.flag & ace4::identifier_group) != 0;
            std::uint32_t id = 0;
            status = co_await id_of(waits, group ? account_kind::group : account_kind::user, each.who, id);
            if (status != nfsstat4::ok)
                co_return status;
            std::array<char, 10> digits{};
            each.who = write_who(digits, id, group);
            status = from_ace(each, made);
        }
        if (status != nfsstat4::ok)
            co_return status;
    }
    to.acl = acl;
    co_return status;
}

task<nfsstat4> owner_names::to_attributes(name_waits& waits, const attributes& from,
                                          storage::set_attributes& to)
{
    attributes numbers = from;
    std::optional<std::uint32_t> user, group;
    for (const account_kind kind : {account_kind::user, account_kind::group}) {
        const bool is_user = kind == account_kind::user;
        const attribute which = is_user ? attribute::owner : attribute::owner_group;
        const std::string_view text = is_user ? from.owner : from.owner_group;
        if (std::uint32_t number = 0; !from.present.test(which) || parse_owner(text, number))
            continue;
        std::uint32_t id = 0;
        const nfsstat4 status = co_await id_of(waits, kind, text, id);
        if (status != nfsstat4::ok)
            co_return status;
        (is_user ? user : group) = id;
        numbers.present.reset(which);
    }
    to = storage::set_attributes();
    const nfsstat4 status = from_attributes(numbers, to);
    if (user)
        to.uid = user;
    if (group)
        to.gid = group;
    co_return status;
}

} // namespace verbena::nfs::v4
