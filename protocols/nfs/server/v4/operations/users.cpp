// SPDX-License-Identifier: Apache-2.0
// Owners by their names: what clients call them, and what they are called to clients.
#include "../compound.hpp"

#include <algorithm>
#include <string>

namespace verbena::nfs::v4 {

bool server::says_names(const bitmap4& wanted) const noexcept
{
    return commons_.users != nullptr && commons_.users->sends_names() &&
           (wanted.test(attribute::owner) || wanted.test(attribute::owner_group));
}

void server::say_known_names(const bitmap4& wanted, object_values& out, std::vector<account>* unknown)
{
    const time_point now = here_.reactor().clock().now();
    const auto say = [&](account who) {
        const auto* known = names_.find(who, now);
        if (unknown != nullptr && known == nullptr)
            unknown->push_back(who);
        if (unknown != nullptr && known != nullptr)
            counters_.known_names.add();
        if (known != nullptr && known->value)
            out.set_name(who.kind, *known->value);
    };
    if (wanted.test(attribute::owner))
        say({account_kind::user, out.uid});
    if (wanted.test(attribute::owner_group))
        say({account_kind::group, out.gid});
}

time_point server::names_until(const compound& k) const noexcept
{
    const duration left = commons_.users->patience() - k.names_waited;
    return here_.reactor().clock().now() + std::max(left, duration());
}

// What is late is not kept: who comes next asks again. What failed or hangs is, for as long as that would be heard again.
task<void> server::learn_names(compound& k, std::vector<account>& those)
{
    const time_point begun = here_.reactor().clock().now();
    std::ranges::sort(those);
    const auto repeated = std::ranges::unique(those);
    those.erase(repeated.begin(), repeated.end());
    auto ask = [users = commons_.users, until = names_until(k)](std::vector<account> each) {
        return users->texts_of(std::move(each), until);
    };
    const auto told = co_await commons_.state.home().run(std::move(ask), those);
    const time_point now = here_.reactor().clock().now();
    k.names_waited += now - begun;
    for (std::size_t i = 0; i < those.size(); ++i) {
        if (told[i].how == user_names::outcome::found)
            names_.put({those[i], told[i].text, false, told[i].until});
        if (told[i].how == user_names::outcome::unknown)
            names_.put({those[i], std::nullopt, false, told[i].until});
        if (told[i].how == user_names::outcome::later && told[i].until > now)
            names_.put({those[i], std::nullopt, true, told[i].until});
    }
}

task<void> server::say_names(compound& k, bitmap4 wanted, object_values& out)
{
    std::vector<account> unknown;
    say_known_names(wanted, out, &unknown);
    if (unknown.empty())
        co_return;
    co_await learn_names(k, unknown);
    say_known_names(wanted, out, nullptr);
}

task<nfsstat4> server::id_named(compound& k, account_kind kind, std::string_view text, std::uint32_t& id)
{
    if (!split_owner(text))
        co_return nfsstat4::badowner;
    const time_point begun = here_.reactor().clock().now();
    auto ask = [users = commons_.users, kind, until = names_until(k)](std::string of) {
        return users->id_of(kind, std::move(of), until);
    };
    const user_names::id_answer found = co_await commons_.state.home().run(std::move(ask), std::string(text));
    k.names_waited += here_.reactor().clock().now() - begun;
    k.gave_a_name_up = found.how == user_names::outcome::given_up;
    if (found.how != user_names::outcome::found)
        co_return found.how == user_names::outcome::later ? nfsstat4::delay : nfsstat4::badowner;
    id = found.id;
    co_return nfsstat4::ok;
}

task<nfsstat4> server::named_settable(compound& k, const attributes& from, storage::set_attributes& to,
                                      storage::access_list& acl)
{
    nfsstat4 status = co_await named_attributes(k, from, to);
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
            status = co_await id_named(k, group ? account_kind::group : account_kind::user, each.who, id);
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

task<nfsstat4> server::named_attributes(compound& k, const attributes& from, storage::set_attributes& to)
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
        const nfsstat4 status = co_await id_named(k, kind, text, id);
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
