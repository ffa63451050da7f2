// SPDX-License-Identifier: Apache-2.0
// Access control lists as back ends and their users tell them each other: those of NFS version 4 (RFC 8881 6), with numbers for names.
// A POSIX ACL can be told by them; docs/internals/nfs4.md, "Access control lists".
#pragma once

#include <cstdint>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// Whom an entry is for.
enum class ace_who : std::uint8_t { owner, group, everyone, named_user, named_group };
/// What an entry does with the rights that it names.
enum class ace_type : std::uint8_t { allow, deny };

/// What is allowed or denied, by the numbers of 8881 6.2.1.3.
namespace ace_right {
inline constexpr std::uint32_t read_data = 0x1;   ///< of a directory: to list it
inline constexpr std::uint32_t write_data = 0x2;  ///< of a directory: to make files
inline constexpr std::uint32_t append_data = 0x4; ///< of a directory: to make directories
inline constexpr std::uint32_t read_named_attributes = 0x8;
inline constexpr std::uint32_t write_named_attributes = 0x10;
inline constexpr std::uint32_t execute = 0x20; ///< of a directory: to search it
inline constexpr std::uint32_t delete_child = 0x40;
inline constexpr std::uint32_t read_attributes = 0x80;
inline constexpr std::uint32_t write_attributes = 0x100;
inline constexpr std::uint32_t write_retention = 0x200;
inline constexpr std::uint32_t write_retention_hold = 0x400;
inline constexpr std::uint32_t remove_itself = 0x10000; ///< of the file itself, whatever its directory says
inline constexpr std::uint32_t read_acl = 0x20000;
inline constexpr std::uint32_t write_acl = 0x40000; ///< and the mode
inline constexpr std::uint32_t write_owner = 0x80000;
inline constexpr std::uint32_t synchronize = 0x100000;
inline constexpr std::uint32_t all = 0x1f07ff;
} // namespace ace_right

/// Who inherits an entry, by the numbers of 8881 6.2.1.4.
namespace ace_flag {
inline constexpr std::uint8_t file_inherit = 0x1;
inline constexpr std::uint8_t directory_inherit = 0x2;
inline constexpr std::uint8_t no_propagate = 0x4; ///< not beyond the next directory
inline constexpr std::uint8_t inherit_only = 0x8; ///< says nothing of the directory itself
inline constexpr std::uint8_t inherits = file_inherit | directory_inherit;
inline constexpr std::uint8_t all = inherits | no_propagate | inherit_only;
} // namespace ace_flag

/// One entry.
struct ace {
    ace_type type = ace_type::allow;
    ace_who who = ace_who::everyone;
    std::uint8_t flags = 0; ///< of ace_flag
    std::uint32_t mask = 0; ///< of ace_right
    std::uint32_t id = 0;   ///< the uid of a named_user, the gid of a named_group

    friend bool operator==(const ace&, const ace&) = default;
};

/// Entries in their order: of each right the first one that says something decides.
using access_list = std::vector<ace>;

} // namespace verbena::storage

#pragma GCC visibility pop
