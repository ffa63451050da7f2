// SPDX-License-Identifier: Apache-2.0
// Between version 4's types and those of the back ends.
#pragma once

#include <verbena/protocols/nfs/server/file_handle.hpp>
#include <verbena/protocols/nfs/server/v4/storage_acl.hpp>
#include <verbena/protocols/nfs/user_names.hpp>
#include <verbena/protocols/nfs/wire/v4/attributes.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// The status that answers a back end's failure.
nfsstat4 status_of_storage(const error& failure) noexcept;
/// The same of an operation on extended attributes, which has errors of its own: other operations may not answer with those, whatever a
/// disk says.
nfsstat4 status_of_xattrs(const error& failure) noexcept;

/// The type as version 4 has it (RFC 8881 5.8.1.2).
nfs_ftype4 to_ftype4(storage::file_type type) noexcept;
/// What CLAIM_NULL and data operations are answered for what is no regular file.
nfsstat4 refuse_type(storage::file_type type) noexcept;

/// mounted_on_fileid: another number than `fileid` at the root of a mount.
constexpr std::uint64_t mounted_on(const storage::attributes& attrs) noexcept
{
    return attrs.covered_fileid != 0 ? attrs.covered_fileid : attrs.fileid;
}

/// Atomic if the back end gives what was before: it does that only where it saw both in one turn. Without it `before` is `after`.
change_info4 to_change_info(const storage::change& change) noexcept;

/// Attributes of one object with what their views point to. Not copied: the views would go on pointing to the original.
struct object_values {
    object_values() = default;
    object_values(const object_values&) = delete;

    attributes all;
    file_handle handle;
    std::uint32_t uid = 0, gid = 0;
    std::array<char, 10> owner, group;                         // their digits
    std::shared_ptr<const std::string> owner_name, group_name; // what is said in their place, if anything
    std::unique_ptr<const acl_values> acl;

    /// Those that the back end has, fsid apart.
    void set(const storage::attributes& attrs) noexcept;
    /// Owner and group as numbers.
    void set_owners(std::uint32_t uid, std::uint32_t gid) noexcept;
    /// Says `name` in the place of the owner's, or the group's, number.
    void set_name(account_kind kind, std::shared_ptr<const std::string> name) noexcept;
    /// The attribute filehandle (RFC 8881 5.8.1.13).
    void set_handle(const file_handle& value) noexcept;
    /// The attributes space_avail, space_free and space_total, and those of files.
    void set_space(const storage::filesystem_stat& space) noexcept;
    /// The attribute acl: a copy, with names for those who are none of OWNER@, GROUP@ and EVERYONE@.
    void set_acl(std::span<const storage::ace> list); // storage_acl.cpp
};

/// What a client may set, of attributes that decode_settable() has passed. badowner for an owner that is no number: its
/// name may still be looked up.
nfsstat4 from_attributes(const attributes& from, storage::set_attributes& to) noexcept;

/// The number that an owner string says: digits without sign, space or leading zeros, and not 2^32 - 1.
bool parse_owner(std::string_view text, std::uint32_t& id) noexcept;

/// Why a name can't be one; ok if it can. "." and ".." are none.
nfsstat4 check_name(std::string_view name) noexcept;

/// A back end's cookie as one of READDIR's, which are never 0 to 2, and the other way; false for what is none.
std::uint64_t to_wire_cookie(std::uint64_t cookie) noexcept;
/// The other way.
bool from_wire_cookie(std::uint64_t wire, std::uint64_t& cookie) noexcept;

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
