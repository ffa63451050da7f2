// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/storage/acl_rules.hpp>
#include <verbena/protocols/storage/permissions.hpp>

#include <algorithm>
#include <utility>

namespace verbena::storage {

namespace {

using namespace ace_right;

// What a mode says. To remove is part of writing a directory, but no mode gives it: where no entry says anything of it, writing decides.
constexpr std::uint32_t of_mode = read_data | write_data | append_data | execute;
constexpr std::uint32_t of_writing = write_data | append_data | delete_child;
// What goes with a file that one may see, and with one's own.
constexpr std::uint32_t of_all = read_attributes | read_acl | synchronize;
constexpr std::uint32_t of_owner = write_attributes | write_acl;

bool is_for(const ace& entry, const attributes& of, const credential& who) noexcept
{
    switch (entry.who) {
    case ace_who::owner: return who.uid == of.uid;
    case ace_who::group: return in_group(who, of.gid);
    case ace_who::everyone: return true;
    case ace_who::named_user: return who.uid == entry.id;
    case ace_who::named_group: return in_group(who, entry.id);
    }
    return false;
}

constexpr bool is_named(const ace& entry) noexcept
{
    return entry.who == ace_who::named_user || entry.who == ace_who::named_group;
}

// A flag that no client can give an entry: with_mode() has made it, and takes it out again.
constexpr std::uint8_t made_by_mode = 0x80;
static_assert((made_by_mode & ace_flag::all) == 0);

constexpr bool is_effective(const ace& entry) noexcept { return (entry.flags & ace_flag::inherit_only) == 0; }

constexpr std::uint32_t rights_of_bits(std::uint32_t bits) noexcept
{
    return ((bits & 4) != 0 ? read_data : 0) | ((bits & 2) != 0 ? write_data | append_data : 0) |
           ((bits & 1) != 0 ? execute : 0);
}

constexpr std::uint32_t bits_of_rights(std::uint32_t rights) noexcept
{
    constexpr std::uint32_t writing = write_data | append_data;
    return ((rights & read_data) != 0 ? 4U : 0U) | ((rights & writing) == writing ? 2U : 0U) |
           ((rights & execute) != 0 ? 1U : 0U);
}

// Of OWNER@ or GROUP@, with what EVERYONE@ has.
std::uint32_t bits_of(std::span<const ace> list, ace_who special) noexcept
{
    verdict sum;
    for (const ace& entry : list) {
        if (!is_effective(entry) || (entry.who != special && entry.who != ace_who::everyone))
            continue;
        const std::uint32_t open = entry.mask & ~(sum.allowed | sum.denied);
        (entry.type == ace_type::allow ? sum.allowed : sum.denied) |= open;
    }
    return bits_of_rights(sum.allowed);
}

} // namespace

verdict judge(std::span<const ace> list, const attributes& of, const credential& who,
              std::uint32_t wanted) noexcept
{
    verdict out;
    for (const ace& entry : list) {
        const std::uint32_t open = wanted & entry.mask & ~(out.allowed | out.denied);
        if (open == 0 || !is_effective(entry) || !is_for(entry, of, who))
            continue;
        (entry.type == ace_type::allow ? out.allowed : out.denied) |= open;
    }
    return out;
}

std::uint32_t rights_by(std::span<const ace> list, const attributes& of, const credential& who,
                        std::uint32_t wanted) noexcept
{
    if (who.uid == 0) {
        const bool executable =
            of.type == file_type::directory || std::ranges::any_of(list, [](const ace& entry) {
                return is_effective(entry) && entry.type == ace_type::allow && (entry.mask & execute) != 0;
            });
        return executable ? wanted : wanted & ~execute;
    }
    std::uint32_t has = judge(list, of, who, wanted).allowed;
    if (who.uid == of.uid)
        has |= wanted & (read_acl | read_attributes | of_owner);
    return has;
}

std::uint32_t mode_of(std::span<const ace> list) noexcept
{
    return bits_of(list, ace_who::owner) << 6 | bits_of(list, ace_who::group) << 3 |
           bits_of(list, ace_who::everyone);
}

access_list with_mode(std::span<const ace> list, std::uint32_t mode)
{
    const std::uint32_t owner = mode >> 6 & 7;
    const std::uint32_t group = mode >> 3 & 7;
    const std::uint32_t other = mode & 7;
    const std::uint32_t taken_from_named =
        (of_mode & ~rights_of_bits(group)) | ((group & 2) == 0 ? delete_child : 0);
    // What others have and the group has not would be theirs by EVERYONE@.
    const std::uint32_t denied_to_named = rights_of_bits(~group & other);
    access_list out;
    access_list denials;
    const auto add = [&out](ace_type type, ace_who who, std::uint32_t mask) {
        if (mask != 0)
            out.push_back({type, who, 0, mask, 0});
    };
    // Those behind give no more than the group's and the others' bits.
    add(ace_type::deny, ace_who::owner, rights_of_bits(~owner & (group | other)));
    add(ace_type::allow, ace_who::owner, rights_of_bits(owner) | of_all | of_owner);
    for (const ace& entry : list) {
        if (is_named(entry) && is_effective(entry) && denied_to_named != 0)
            denials.push_back({ace_type::deny, entry.who, made_by_mode, denied_to_named, entry.id});
        if ((entry.flags & made_by_mode) != 0)
            continue;
        std::uint32_t taken = 0;
        if (is_named(entry)) {
            taken = entry.type == ace_type::allow ? taken_from_named : 0;
        } else {
            taken = of_mode;
            if (entry.type == ace_type::allow)
                taken |= of_writing | of_all | (entry.who == ace_who::owner ? of_owner : 0);
        }
        if (!is_effective(entry) || (entry.mask & taken) == 0) {
            out.push_back(entry);
            continue;
        }
        ace effective = entry;
        effective.mask &= ~taken;
        if ((entry.flags & ace_flag::inherits) != 0) {
            ace passed_on = entry;
            passed_on.flags |= ace_flag::inherit_only;
            out.push_back(passed_on);
            effective.flags = 0;
        }
        if (effective.mask != 0)
            out.push_back(effective);
    }
    const auto by_who = [](const ace& entry) { return std::pair(entry.who, entry.id); };
    std::ranges::sort(denials, {}, by_who);
    const auto repeats = std::ranges::unique(denials);
    out.insert(out.end(), denials.begin(), repeats.begin());
    add(ace_type::allow, ace_who::group, rights_of_bits(group) | of_all);
    add(ace_type::deny, ace_who::group, rights_of_bits(~group & other));
    add(ace_type::allow, ace_who::everyone, rights_of_bits(other) | of_all);
    return out;
}

access_list inherited(std::span<const ace> of_directory, bool makes_directory)
{
    access_list out;
    for (ace entry : of_directory) {
        if ((entry.flags & ace_flag::inherits) == 0)
            continue;
        const bool goes_on = makes_directory && (entry.flags & ace_flag::no_propagate) == 0;
        const auto for_this = makes_directory ? ace_flag::directory_inherit : ace_flag::file_inherit;
        if ((entry.flags & for_this) != 0)
            entry.flags = goes_on ? entry.flags & ~ace_flag::inherit_only : 0;
        else if (goes_on)
            entry.flags |= ace_flag::inherit_only;
        else
            continue;
        out.push_back(entry);
    }
    return out;
}

} // namespace verbena::storage
