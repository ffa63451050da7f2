// SPDX-License-Identifier: Apache-2.0
// POSIX ACLs: their form as extended attributes, and what they are in terms of NFS version 4 (draft-ietf-nfsv4-acl-mapping, as knfsd does it;
// docs/internals/nfs4.md, "Access control lists"). Functions of their arguments alone.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/protocols/storage/acl.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace verbena::posixfs {

/// The kernel's numbers (linux/posix_acl.h), in the order in which a list has them.
enum class posix_tag : std::uint16_t {
    owner = 0x01,
    named_user = 0x02,
    group = 0x04,
    named_group = 0x08,
    mask = 0x10,
    others = 0x20,
};

struct posix_entry {
    posix_tag tag = posix_tag::owner;
    std::uint16_t rights = 0; ///< 4 read, 2 write, 1 execute
    std::uint32_t id = 0;     ///< of a named user or group

    friend bool operator==(const posix_entry&, const posix_entry&) = default;
};

/// Entries by tag, named ones by id; owner, group and others once each, the mask once where somebody is named.
using posix_acl = std::vector<posix_entry>;

/// The value of system.posix_acl_access or _default; nothing for what is no such list. An empty value is an empty list.
std::optional<posix_acl> parse_posix_acl(std::span<const std::byte> value);
std::vector<std::byte> encode_posix_acl(const posix_acl& acl);
/// What the nine low bits of a mode mean.
posix_acl posix_acl_of(std::uint32_t mode);

struct posix_acls {
    posix_acl access;
    posix_acl inherited; ///< a directory's default ACL; empty: none

    friend bool operator==(const posix_acls&, const posix_acls&) = default;
};

storage::access_list to_nfs4(const posix_acls& acls, bool directory);
/// Of reading, writing and executing never more than the list allows. EOPNOTSUPP where POSIX would give more, or nobody could be denied it; a DENY of what goes by other rights
/// here (DELETE, named attributes, times, owner) is left out. An ALLOW is for both files and directories if it is handed on.
result<posix_acls> to_posix(std::span<const storage::ace> list, bool directory);

} // namespace verbena::posixfs
