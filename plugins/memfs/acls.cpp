// SPDX-License-Identifier: Apache-2.0
// Access control lists: kept as given, and gone by (docs/internals/nfs4.md, "Access control lists").
#include "backend.hpp"

#include <verbena/protocols/storage/acl_rules.hpp>
#include <verbena/protocols/storage/permissions.hpp>

#include <algorithm>
#include <cerrno>
#include <unistd.h>
#include <utility>

namespace verbena::memfs {

using namespace storage::ace_right;

std::uint32_t rights_of(const node& n, const storage::credential& who, std::uint32_t wanted) noexcept
{
    if (n.acl != nullptr)
        return storage::rights_by(*n.acl, n.attrs, who, wanted);
    constexpr std::uint32_t writing = write_data | append_data | delete_child;
    constexpr std::uint32_t of_everybody = read_attributes | read_acl;
    constexpr std::uint32_t of_owner = write_attributes | write_acl;
    const unsigned bits = storage::allowed(n.attrs, who, R_OK | W_OK | X_OK);
    std::uint32_t has = of_everybody;
    if (who.uid == 0 || who.uid == n.attrs.uid)
        has |= of_owner;
    has |= (bits & R_OK) != 0 ? read_data : 0;
    has |= (bits & W_OK) != 0 ? writing : 0;
    has |= (bits & X_OK) != 0 ? execute : 0;
    return has & wanted;
}

// 8881 6.2.1.3.2: the right to the file itself is enough, and so is that to what its directory holds. Where no ACL says anything of either, it is part of writing the
// directory, as without ACLs.
int backend::refuses_removal(const node& directory, const node& victim,
                             const storage::credential& who) noexcept
{
    if (who.uid == 0)
        return 0;
    const auto said_of = [&who](const node& n, std::uint32_t right) {
        return n.acl == nullptr ? storage::verdict() : storage::judge(*n.acl, n.attrs, who, right);
    };
    const storage::verdict child = said_of(directory, delete_child);
    const storage::verdict itself = said_of(victim, remove_itself);
    if (child.allowed != 0 || itself.allowed != 0)
        return 0;
    if (child.denied != 0 || itself.denied != 0 || rights_of(directory, who, write_data) == 0)
        return EACCES;
    const bool sticky = (directory.attrs.mode & 01000) != 0;
    return !sticky || who.uid == victim.attrs.uid || who.uid == directory.attrs.uid ? 0 : EPERM;
}

int backend::refuses_acl(const node& n, std::span<const storage::ace> list) const noexcept
{
    if (n.attrs.type == storage::file_type::symlink)
        return EOPNOTSUPP; // its mode counts for nothing either
    const bool hands_on = std::ranges::any_of(
        list, [](const storage::ace& entry) { return (entry.flags & storage::ace_flag::all) != 0; });
    if (hands_on && !n.is_directory())
        return EOPNOTSUPP;
    const std::uint64_t gone = cost_of_acl(n);
    const std::uint64_t come = list.size_bytes();
    return come > gone && come - gone > free_bytes() ? ENOSPC : 0;
}

void backend::set_acl(node& n, storage::access_list list, const storage::credential& who)
{
    text_bytes_ -= cost_of_acl(n);
    n.attrs.mode = mode_set_by(n.attrs, (n.attrs.mode & ~0777u) | storage::mode_of(list), who);
    n.acl = std::make_unique<storage::access_list>(std::move(list));
    text_bytes_ += cost_of_acl(n);
}

void backend::inherit_acl(node& n, const node& directory, std::optional<std::uint32_t> mode)
{
    if (directory.acl == nullptr || n.attrs.type == storage::file_type::symlink)
        return;
    storage::access_list list = storage::inherited(*directory.acl, n.is_directory());
    if (list.empty())
        return;
    // The umask has no part in it (8275 5). What is handed on alone says nothing of the directory itself.
    const bool says_nothing = std::ranges::all_of(
        list, [](const storage::ace& entry) { return (entry.flags & storage::ace_flag::inherit_only) != 0; });
    if (mode || says_nothing)
        list = storage::with_mode(list, mode.value_or(n.attrs.mode));
    n.attrs.mode = (n.attrs.mode & ~0777u) | storage::mode_of(list);
    n.acl = std::make_unique<storage::access_list>(std::move(list));
}

task<result<storage::access_list>> backend::getacl(const storage::request& r, const storage::handle& file)
{
    std::lock_guard lock(mutex_);
    auto n = find(file);
    if (!n)
        co_return n.error();
    const node& f = **n;
    if (rights_of(f, r.who, read_acl) == 0)
        co_return fails(EACCES, "reading an ACL");
    if (f.acl == nullptr)
        co_return storage::with_mode({}, f.attrs.mode);
    storage::access_list list = *f.acl;
    for (storage::ace& entry : list) // what with_mode() knows its own by is nobody else's
        entry.flags &= storage::ace_flag::all;
    co_return std::move(list);
}

} // namespace verbena::memfs
