// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/v4/storage.hpp>
#include <verbena/protocols/nfs/server/v4/storage_acl.hpp>

#include <cerrno>
#include <charconv>

namespace verbena::nfs::v4 {

namespace {

constexpr std::string_view owner_at = "OWNER@";
constexpr std::string_view group_at = "GROUP@";
constexpr std::string_view everyone_at = "EVERYONE@";

constexpr std::uint32_t defined_flags = 0xff;
constexpr std::uint32_t of_audit = ace4::successful_access | ace4::failed_access;

// Those that back ends know are the same numbers.
static_assert(storage::ace_flag::file_inherit == ace4::file_inherit &&
              storage::ace_flag::directory_inherit == ace4::directory_inherit &&
              storage::ace_flag::no_propagate == ace4::no_propagate_inherit &&
              storage::ace_flag::inherit_only == ace4::inherit_only);
static_assert(storage::ace_right::read_data == ace4::read_data &&
              storage::ace_right::write_data == ace4::write_data &&
              storage::ace_right::append_data == ace4::append_data &&
              storage::ace_right::execute == ace4::execute &&
              storage::ace_right::delete_child == ace4::delete_child &&
              storage::ace_right::write_attributes == ace4::write_attributes &&
              storage::ace_right::remove_itself == ace4::remove &&
              storage::ace_right::read_acl == ace4::read_acl &&
              storage::ace_right::write_acl == ace4::write_acl &&
              storage::ace_right::write_owner == ace4::write_owner &&
              storage::ace_right::synchronize == ace4::synchronize);

nfsace4 to_ace(const storage::ace& from, std::array<char, 10>& name) noexcept
{
    nfsace4 to;
    to.type = from.type == storage::ace_type::allow ? ace4::type_allowed : ace4::type_denied;
    to.flag = from.flags;
    to.access_mask = from.mask;
    switch (from.who) {
    case storage::ace_who::owner: to.who = owner_at; break;
    case storage::ace_who::group: to.who = group_at; break;
    case storage::ace_who::everyone: to.who = everyone_at; break;
    case storage::ace_who::named_user: to.who = write_who(name, from.id, false); break;
    case storage::ace_who::named_group:
        to.who = write_who(name, from.id, true);
        to.flag |= ace4::identifier_group;
        break;
    }
    return to;
}

} // namespace

std::optional<std::uint32_t> parse_who(std::string_view who, bool) noexcept
{
    std::uint32_t id = 0;
    return parse_owner(who, id) ? std::optional(id) : std::nullopt;
}

std::string_view write_who(std::array<char, 10>& to, std::uint32_t id, bool) noexcept
{
    return {to.data(), std::to_chars(to.data(), to.data() + to.size(), id).ptr};
}

nfsstat4 from_ace(const nfsace4& from, storage::ace& to) noexcept
{
    if (from.type > ace4::type_alarm || (from.flag & ~defined_flags) != 0 ||
        (from.access_mask & ~storage::ace_right::all) != 0 || from.who.empty())
        return nfsstat4::inval;
    const bool handed_on = (from.flag & storage::ace_flag::inherits) != 0;
    const bool says_how = (from.flag & (ace4::no_propagate_inherit | ace4::inherit_only)) != 0;
    if (from.type > ace4::type_denied || (from.flag & of_audit) != 0 || (says_how && !handed_on))
        return nfsstat4::attrnotsupp;
    to = {};
    to.type = from.type == ace4::type_allowed ? storage::ace_type::allow : storage::ace_type::deny;
    to.flags = static_cast<std::uint8_t>(from.flag & storage::ace_flag::all);
    to.mask = from.access_mask;
    // With these three the flag for groups means nothing.
    if (from.who == owner_at) {
        to.who = storage::ace_who::owner;
    } else if (from.who == group_at) {
        to.who = storage::ace_who::group;
    } else if (from.who == everyone_at) {
        to.who = storage::ace_who::everyone;
    } else {
        const bool group = (from.flag & ace4::identifier_group) != 0;
        const auto id = parse_who(from.who, group);
        if (!id)
            return nfsstat4::badowner;
        to.who = group ? storage::ace_who::named_group : storage::ace_who::named_user;
        to.id = *id;
    }
    return nfsstat4::ok;
}

nfsstat4 from_acl(const attributes& from, storage::access_list& list, storage::set_attributes& to)
{
    if (!from.present.test(attribute::acl))
        return nfsstat4::ok;
    list.clear();
    list.reserve(from.acl.size()); // of them each was read already
    for (auto at = from.acl.begin(); at != from.acl.end(); ++at) {
        const nfsstat4 status = from_ace(*at, list.emplace_back());
        if (status != nfsstat4::ok)
            return status;
    }
    to.acl = list;
    return nfsstat4::ok;
}

nfsstat4 from_settable(const attributes& from, storage::set_attributes& to, storage::access_list& list)
{
    const nfsstat4 status = from_attributes(from, to);
    return status == nfsstat4::ok ? from_acl(from, list, to) : status;
}

nfsstat4 status_of_setting(const error& failure, const storage::set_attributes& what) noexcept
{
    if (what.acl && failure.errno_value() == EOPNOTSUPP)
        return nfsstat4::attrnotsupp;
    if (what.acl && failure.errno_value() == E2BIG)
        return nfsstat4::fbig;
    return status_of_storage(failure);
}

acl_values::acl_values(std::span<const storage::ace> list) : names_(list.size())
{
    aces_.reserve(list.size());
    for (std::size_t i = 0; i < list.size(); ++i)
        aces_.push_back(to_ace(list[i], names_[i]));
}

void object_values::set_acl(std::span<const storage::ace> list)
{
    acl = std::make_unique<const acl_values>(list);
    all.acl = acl->view();
    all.present.set(attribute::acl);
}

} // namespace verbena::nfs::v4
