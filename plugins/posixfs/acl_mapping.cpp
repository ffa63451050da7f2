// SPDX-License-Identifier: Apache-2.0
#include "acl_mapping.hpp"

#include <verbena/core/byte_order.hpp>

#include <algorithm>
#include <array>
#include <cerrno>

namespace verbena::posixfs {

namespace {

using storage::ace;
using storage::ace_type;
using storage::ace_who;
using namespace storage::ace_right;

constexpr std::uint32_t xattr_version = 2;
constexpr std::size_t head_size = 4;
constexpr std::size_t entry_size = 8;
constexpr std::uint32_t nobodys_id = ~std::uint32_t(0); // stands with entries that name nobody

constexpr std::uint32_t of_all = read_attributes | read_acl | synchronize;
constexpr std::uint32_t of_owner = write_attributes | write_acl;

constexpr bool is_named(posix_tag tag) noexcept
{
    return tag == posix_tag::named_user || tag == posix_tag::named_group;
}

template<class T>
void append_little_endian(std::vector<std::byte>& to, T value)
{
    std::array<std::byte, sizeof value> octets;
    store_little_endian(octets.data(), value);
    to.insert(to.end(), octets.begin(), octets.end());
}

// As the kernel has it (posix_acl_valid): to_nfs4() counts on it.
bool is_whole(const posix_acl& acl) noexcept
{
    unsigned owners = 0, groups = 0, masks = 0, others = 0, named = 0;
    for (std::size_t i = 0; i < acl.size(); ++i) {
        const posix_entry& entry = acl[i];
        if (entry.rights > 7 || (i > 0 && acl[i - 1].tag > entry.tag))
            return false;
        switch (entry.tag) {
        case posix_tag::owner: ++owners; break;
        case posix_tag::named_user:
        case posix_tag::named_group: ++named; break;
        case posix_tag::group: ++groups; break;
        case posix_tag::mask: ++masks; break;
        case posix_tag::others: ++others; break;
        default: return false;
        }
    }
    return owners == 1 && groups == 1 && others == 1 && masks <= 1 && (named == 0 || masks == 1);
}

// What rights of POSIX are. Who may write a directory may also remove from it.
constexpr std::uint32_t rights_of(unsigned bits, bool directory) noexcept
{
    return ((bits & 4) != 0 ? read_data : 0) |
           ((bits & 2) != 0 ? write_data | append_data | (directory ? delete_child : 0) : 0) |
           ((bits & 1) != 0 ? execute : 0);
}

// A bit is there where all that it means is.
constexpr std::uint16_t bits_of(std::uint32_t rights, bool directory) noexcept
{
    std::uint16_t bits = 0;
    for (const unsigned bit : {4U, 2U, 1U}) {
        const std::uint32_t meant = rights_of(bit, directory);
        if ((rights & meant) == meant)
            bits |= static_cast<std::uint16_t>(bit);
    }
    return bits;
}

// One list, as entries with `flags`. The order is what gives them POSIX's meaning.
void append_nfs4(const posix_acl& acl, bool directory, std::uint8_t flags, storage::access_list& out)
{
    unsigned mask = 7;
    unsigned owner = 0, group = 0, others = 0, users = 0, groups = 0;
    for (const posix_entry& entry : acl) {
        switch (entry.tag) {
        case posix_tag::owner: owner = entry.rights; break;
        case posix_tag::named_user: users |= entry.rights; break;
        case posix_tag::group: group = entry.rights; break;
        case posix_tag::named_group: groups |= entry.rights; break;
        case posix_tag::mask: mask = entry.rights; break;
        case posix_tag::others: others = entry.rights; break;
        }
    }
    users &= mask;
    group &= mask;
    groups &= mask;
    const auto allow = [&](ace_who who, unsigned bits, std::uint32_t id, std::uint32_t more = 0) {
        out.push_back({ace_type::allow, who, flags, rights_of(bits, directory) | of_all | more, id});
    };
    const auto deny = [&](ace_who who, unsigned bits, std::uint32_t id) {
        if (bits != 0)
            out.push_back({ace_type::deny, who, flags, rights_of(bits, directory), id});
    };
    // Only what entries behind it would give is denied.
    deny(ace_who::owner, ~owner & (users | group | groups | others), 0);
    allow(ace_who::owner, owner, 0, of_owner);
    for (const posix_entry& entry : acl) {
        if (entry.tag != posix_tag::named_user)
            continue;
        deny(ace_who::named_user, ~(entry.rights & mask) & (group | groups | others), entry.id);
        allow(ace_who::named_user, entry.rights & mask, entry.id);
    }
    // Somebody may be in several groups, and has what any of them has.
    allow(ace_who::group, group, 0);
    for (const posix_entry& entry : acl) {
        if (entry.tag == posix_tag::named_group)
            allow(ace_who::named_group, entry.rights & mask, entry.id);
    }
    deny(ace_who::group, ~group & others, 0);
    for (const posix_entry& entry : acl) {
        if (entry.tag == posix_tag::named_group)
            deny(ace_who::named_group, ~(entry.rights & mask) & others, entry.id);
    }
    allow(ace_who::everyone, others, 0);
}

/// What the entries so far let somebody do.
struct so_far {
    std::uint32_t allowed = 0;
    std::uint32_t denied = 0;

    void add(ace_type type, std::uint32_t mask) noexcept
    {
        if (type == ace_type::allow)
            allowed |= mask & ~denied;
        else
            denied |= mask & ~allowed;
    }
};

struct named {
    std::uint32_t id = 0;
    so_far has;
};

/// Everybody that a list says something of.
class walk {
public:
    void add(const ace& entry)
    {
        empty_ = false;
        switch (entry.who) {
        case ace_who::owner: owner_.add(entry.type, entry.mask); break;
        case ace_who::named_user: {
            so_far& user = find(users_, entry.id);
            user.add(entry.type, entry.mask);
            if (entry.type == ace_type::deny) // he may be the owner
                owner_.add(ace_type::deny, user.denied);
            break;
        }
        case ace_who::group:
            group_.add(entry.type, entry.mask);
            if (entry.type == ace_type::deny)
                deny_members(group_.denied);
            break;
        case ace_who::named_group: {
            so_far& group = find(groups_, entry.id);
            group.add(entry.type, entry.mask);
            if (entry.type == ace_type::deny) {
                const std::uint32_t denied = group.denied;
                group_.add(ace_type::deny, denied);
                deny_members(denied);
            }
            break;
        }
        case ace_who::everyone:
            for (so_far* each : {&owner_, &group_, &others_, &unnamed_})
                each->add(entry.type, entry.mask);
            add_to_named(entry.type, entry.mask);
            break;
        }
    }

    bool empty() const noexcept { return empty_; }

    result<posix_acl> list(bool directory)
    {
        if (denies_too_much(owner_, of_owner) || denies_too_much(group_) || denies_too_much(others_))
            return too_fine();
        posix_acl out;
        const auto put = [&](posix_tag tag, std::uint32_t allowed, std::uint32_t id = 0) {
            out.push_back({tag, bits_of(allowed, directory), id});
            return out.back().rights;
        };
        std::uint16_t mask = bits_of(group_.allowed, directory);
        put(posix_tag::owner, owner_.allowed);
        const auto put_named = [&](std::vector<named>& all, posix_tag tag) {
            std::ranges::sort(all, {}, &named::id);
            for (const named& each : all) {
                mask |= put(tag, each.has.allowed, each.id);
            }
            return std::ranges::none_of(all, [](const named& n) { return denies_too_much(n.has); });
        };
        bool good = put_named(users_, posix_tag::named_user);
        put(posix_tag::group, group_.allowed);
        good = put_named(groups_, posix_tag::named_group) && good;
        if (!good)
            return too_fine();
        if (!users_.empty() || !groups_.empty())
            out.push_back({posix_tag::mask, mask, 0});
        put(posix_tag::others, others_.allowed);
        return out;
    }

private:
    static error too_fine() noexcept
    {
        return error::from_errno(EOPNOTSUPP, "POSIX ACLs can't deny to look at a file or its ACL");
    }
    static bool denies_too_much(const so_far& who, std::uint32_t more = 0) noexcept
    {
        return (who.denied & (read_attributes | read_acl | more)) != 0;
    }
    // Who is named for the first time was until then one of all others.
    so_far& find(std::vector<named>& in, std::uint32_t id)
    {
        const auto found = std::ranges::find(in, id, &named::id);
        return found != in.end() ? found->has : in.emplace_back(named{id, unnamed_}).has;
    }
    // Anybody but those whom EVERYONE@ means alone may be in a group.
    void deny_members(std::uint32_t mask)
    {
        owner_.add(ace_type::deny, mask);
        unnamed_.add(ace_type::deny, mask);
        add_to_named(ace_type::deny, mask);
    }
    void add_to_named(ace_type type, std::uint32_t mask)
    {
        for (std::vector<named>* all : {&users_, &groups_}) {
            for (named& each : *all)
                each.has.add(type, mask);
        }
    }

    so_far owner_, group_, others_;
    so_far unnamed_; ///< of whoever is not named yet, and may be in any group
    std::vector<named> users_, groups_;
    bool empty_ = true;
};

} // namespace

std::optional<posix_acl> parse_posix_acl(std::span<const std::byte> value)
{
    if (value.empty())
        return posix_acl();
    if (value.size() < head_size || (value.size() - head_size) % entry_size != 0 ||
        load_little_endian<std::uint32_t>(value.data()) != xattr_version)
        return std::nullopt;
    posix_acl acl;
    acl.reserve((value.size() - head_size) / entry_size);
    for (auto rest = value.subspan(head_size); !rest.empty(); rest = rest.subspan(entry_size)) {
        posix_entry entry;
        entry.tag = static_cast<posix_tag>(load_little_endian<std::uint16_t>(rest.data()));
        entry.rights = load_little_endian<std::uint16_t>(rest.data() + 2);
        entry.id = is_named(entry.tag) ? load_little_endian<std::uint32_t>(rest.data() + 4) : 0;
        acl.push_back(entry);
    }
    return acl.empty() || is_whole(acl) ? std::optional(std::move(acl)) : std::nullopt;
}

std::vector<std::byte> encode_posix_acl(const posix_acl& acl)
{
    std::vector<std::byte> value;
    value.reserve(head_size + acl.size() * entry_size);
    append_little_endian(value, xattr_version);
    for (const posix_entry& entry : acl) {
        append_little_endian(value, static_cast<std::uint16_t>(entry.tag));
        append_little_endian(value, entry.rights);
        append_little_endian(value, is_named(entry.tag) ? entry.id : nobodys_id);
    }
    return value;
}

posix_acl posix_acl_of(std::uint32_t mode)
{
    const auto bits = [mode](int shift) { return static_cast<std::uint16_t>(mode >> shift & 7); };
    return {{posix_tag::owner, bits(6), 0}, {posix_tag::group, bits(3), 0}, {posix_tag::others, bits(0), 0}};
}

storage::access_list to_nfs4(const posix_acls& acls, bool directory)
{
    using namespace storage::ace_flag;
    storage::access_list out;
    out.reserve(2 * (acls.access.size() + acls.inherited.size()));
    append_nfs4(acls.access, directory, 0, out);
    if (!acls.inherited.empty())
        append_nfs4(acls.inherited, directory, file_inherit | directory_inherit | inherit_only, out);
    return out;
}

result<posix_acls> to_posix(std::span<const ace> list, bool directory)
{
    using namespace storage::ace_flag;
    walk access, passed_on;
    for (const ace& entry : list) {
        const bool is_inherited = (entry.flags & inherits) != 0;
        // What files alone or directories alone are to have, the default ACL would give to both; a DENY of one may count for both.
        const bool widens =
            is_inherited && entry.type == ace_type::allow && (entry.flags & inherits) != inherits;
        if ((entry.flags & no_propagate) != 0 || (is_inherited && !directory) || widens)
            return error::from_errno(EOPNOTSUPP, "no inheritance that POSIX ACLs know");
        if (is_inherited)
            passed_on.add(entry);
        if (!is_inherited || (entry.flags & inherit_only) == 0)
            access.add(entry);
    }
    posix_acls out;
    auto made = access.list(directory);
    if (!made)
        return made.error();
    out.access = std::move(*made);
    if (passed_on.empty())
        return out;
    made = passed_on.list(directory);
    if (!made)
        return made.error();
    out.inherited = std::move(*made);
    return out;
}

} // namespace verbena::posixfs
