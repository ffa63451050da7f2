// SPDX-License-Identifier: Apache-2.0
// File attributes (8881 5, 7862 12, 8275, 8276, 9754): their numbers, their values, and fattr4, which carries some of them.
//
// On the wire a fattr4 is a bitmap and one opaque with the values in ascending order of their numbers. A COMPOUND is decoded with the
// values left as bytes: what is wrong in them is an error of its own for each operation, and the operation behind it must be found
// whatever they are.
#pragma once

#include <verbena/protocols/nfs/wire/v4/bitmap.hpp>
#include <verbena/protocols/nfs/wire/v4/types.hpp>
#include <verbena/protocols/nfs/wire/v4/views.hpp>
#include <verbena/protocols/xdr/codec.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// The attributes of files by number (RFC 8881 5.8, and the RFCs of the extensions).
enum class attribute : std::uint32_t {
    supported_attrs = 0,
    type = 1,
    fh_expire_type = 2,
    change = 3,
    size = 4,
    link_support = 5,
    symlink_support = 6,
    named_attr = 7,
    fsid = 8,
    unique_handles = 9,
    lease_time = 10,
    rdattr_error = 11,
    acl = 12,
    aclsupport = 13,
    archive = 14,
    cansettime = 15,
    case_insensitive = 16,
    case_preserving = 17,
    chown_restricted = 18,
    filehandle = 19,
    fileid = 20,
    files_avail = 21,
    files_free = 22,
    files_total = 23,
    fs_locations = 24,
    hidden = 25,
    homogeneous = 26,
    maxfilesize = 27,
    maxlink = 28,
    maxname = 29,
    maxread = 30,
    maxwrite = 31,
    mimetype = 32,
    mode = 33,
    no_trunc = 34,
    numlinks = 35,
    owner = 36,
    owner_group = 37,
    quota_avail_hard = 38,
    quota_avail_soft = 39,
    quota_used = 40,
    rawdev = 41,
    space_avail = 42,
    space_free = 43,
    space_total = 44,
    space_used = 45,
    system = 46,
    time_access = 47,
    time_access_set = 48,
    time_backup = 49,
    time_create = 50,
    time_delta = 51,
    time_metadata = 52,
    time_modify = 53,
    time_modify_set = 54,
    mounted_on_fileid = 55, ///< the last of minor version 0
    dir_notif_delay = 56,
    dirent_notif_delay = 57,
    dacl = 58,
    sacl = 59,
    change_policy = 60,
    fs_status = 61,
    fs_layout_types = 62,
    layout_hint = 63,
    layout_types = 64,
    layout_blksize = 65,
    layout_alignment = 66,
    fs_locations_info = 67,
    mdsthreshold = 68,
    retention_get = 69,
    retention_set = 70,
    retentevt_get = 71,
    retentevt_set = 72,
    retention_hold = 73,
    mode_set_masked = 74,
    suppattr_exclcreat = 75,
    fs_charset_cap = 76, ///< the last of minor version 1
    clone_blksize = 77,
    space_freed = 78,
    change_attr_type = 79,
    sec_label = 80,
    mode_umask = 81,    // RFC 8275
    xattr_support = 82, ///< RFC 8276
    offline = 83,
    time_deleg_access = 84, ///< RFC 9754
    time_deleg_modify = 85,
    open_arguments = 86,
};

/// What `minor` may carry. A Linux client takes a number behind these for a broken reply.
constexpr bitmap4 attributes_of_minor(std::uint32_t minor) noexcept
{
    // Each GETATTR asks, so the sets are made once.
    constexpr auto up_to = [](attribute last) {
        bitmap4 all;
        for (std::uint32_t i = 0; i <= static_cast<std::uint32_t>(last); ++i)
            all.set(i);
        return all;
    };
    constexpr bitmap4 of_0 = up_to(attribute::mounted_on_fileid), of_1 = up_to(attribute::fs_charset_cap),
                      of_2 = up_to(attribute::open_arguments);
    return minor == 0 ? of_0 : minor == 1 ? of_1 : of_2;
}

/// They can be set but not read: GETATTR, READDIR, VERIFY and NVERIFY answer INVAL to a request for one.
inline constexpr bitmap4 write_only_attributes = {
    attribute::time_access_set, attribute::time_modify_set, attribute::layout_hint, attribute::retention_set,
    attribute::retentevt_set,   attribute::mode_set_masked, attribute::mode_umask,
};

/// What SETATTR may name; another one that the file system has is INVAL.
inline constexpr bitmap4 attributes_for_setattr = {
    attribute::size,
    attribute::acl,
    attribute::archive,
    attribute::hidden,
    attribute::mimetype,
    attribute::mode,
    attribute::owner,
    attribute::owner_group,
    attribute::system,
    attribute::time_access_set,
    attribute::time_backup,
    attribute::time_create,
    attribute::time_modify_set,
    attribute::dacl,
    attribute::sacl,
    attribute::layout_hint,
    attribute::retention_set,
    attribute::retentevt_set,
    attribute::retention_hold,
    attribute::mode_set_masked,
    attribute::sec_label,
    attribute::time_deleg_access,
    attribute::time_deleg_modify,
};

/// What CREATE and OPEN may name (8275 3: mode_umask is for them alone).
inline constexpr bitmap4 attributes_for_create = attributes_for_setattr | bitmap4{attribute::mode_umask};

/// An entry of an ACL (RFC 8881 6.2.1).
struct nfsace4 {
    std::uint32_t type = ace4::type_allowed;
    std::uint32_t flag = 0;
    std::uint32_t access_mask = 0;
    text_view<max_owner, max_text> who; ///< "OWNER@", "user@domain"
};

/// An ACL as it lies in the message. It may be longer than max_aces, which decode_settable() tells.
using acl_view = array_view<nfsace4, max_sent_aces>;

/// How a time is set (RFC 8881 3.3).
struct settime4 {
    time_how4 set_it = time_how4::set_to_server_time;
    nfstime4 time; ///< if set_to_client_time

    friend bool operator==(const settime4&, const settime4&) = default;
};

/// A security label (RFC 7862 12.2.4).
struct sec_label4 {
    std::uint32_t lfs = 0;
    std::uint32_t pi = 0;
    bytes_view<max_security_label> data;
};

/// mode_set_masked: those bits of the mode that `mask` names (RFC 8881 6.2.5).
struct mode_masked4 {
    std::uint32_t value = 0;
    std::uint32_t mask = 0;

    friend bool operator==(const mode_masked4&, const mode_masked4&) = default;
};

/// mode_umask: the mode of what is made, and the caller's umask (RFC 8275 4).
struct mode_umask4 {
    std::uint32_t mode = 0;
    std::uint32_t umask = 0;

    friend bool operator==(const mode_umask4&, const mode_umask4&) = default;
};

/// Numbers of share_access_want: of the want bits that open_arguments4 can announce, which are not numbered as they lie (9754 5).
enum class open_args_want4 : std::uint32_t {
    any_delegation = 3,
    no_delegation = 4,
    cancel = 5,
    signal_when_available = 17,
    push_when_uncontended = 18,
    delegated_timestamps = 20,
    open_xor_delegation = 21,
};

/// What OPEN takes here (9754): sets of values of share_access (1 to 3) and share_deny (0 to 3), of open_args_want4,
/// open_claim_type4 and createmode4.
struct open_arguments4 {
    bitmap4 share_access;
    bitmap4 share_deny;
    bitmap4 share_access_want;
    bitmap4 open_claim;
    bitmap4 create_mode;

    friend bool operator==(const open_arguments4&, const open_arguments4&) = default;
};

/// Values of attributes. `present` says which of them count. Strings, handles, lists and labels are views.
struct attributes {
    bitmap4 present;

    bitmap4 supported_attrs;
    nfs_ftype4 type = nfs_ftype4::reg;
    std::uint32_t fh_expire_type = fh4::persistent;
    changeid4 change = 0;
    std::uint64_t size = 0;
    bool link_support = false;
    bool symlink_support = false;
    bool named_attr = false;
    fsid4 fsid;
    bool unique_handles = false;
    std::uint32_t lease_time = 0; ///< seconds
    nfsstat4 rdattr_error = nfsstat4::ok;
    acl_view acl;
    std::uint32_t aclsupport = 0; ///< bits of acl4_support
    bool cansettime = false;
    bool case_insensitive = false;
    bool case_preserving = false;
    bool chown_restricted = false;
    bytes_view<max_handle_size> filehandle;
    std::uint64_t fileid = 0;
    std::uint64_t files_avail = 0;
    std::uint64_t files_free = 0;
    std::uint64_t files_total = 0;
    bool homogeneous = false;
    std::uint64_t maxfilesize = 0;
    std::uint32_t maxlink = 0;
    std::uint32_t maxname = 0;
    std::uint64_t maxread = 0;
    std::uint64_t maxwrite = 0;
    std::uint32_t mode = 0;
    bool no_trunc = false;
    std::uint32_t numlinks = 0;
    text_view<max_owner, max_text> owner;
    text_view<max_owner, max_text> owner_group;
    std::uint64_t quota_avail_hard = 0;
    std::uint64_t quota_avail_soft = 0;
    std::uint64_t quota_used = 0;
    specdata4 rawdev;
    std::uint64_t space_avail = 0;
    std::uint64_t space_free = 0;
    std::uint64_t space_total = 0;
    std::uint64_t space_used = 0; ///< bytes
    nfstime4 time_access;
    settime4 time_access_set;
    nfstime4 time_create;
    nfstime4 time_delta;
    nfstime4 time_metadata;
    nfstime4 time_modify;
    settime4 time_modify_set;
    std::uint64_t mounted_on_fileid = 0;
    array_view<layouttype4, max_layout_types> fs_layout_types;
    array_view<layouttype4, max_layout_types> layout_types;
    std::uint32_t layout_blksize = 0;
    std::uint32_t layout_alignment = 0;
    mode_masked4 mode_set_masked;
    bitmap4 suppattr_exclcreat;
    std::uint32_t fs_charset_cap = 0; ///< bits of fs_charset_cap4
    std::uint32_t clone_blksize = 0;
    std::uint64_t space_freed = 0;
    change_attr_type4 change_attr_type = change_attr_type4::undefined;
    sec_label4 sec_label;
    mode_umask4 mode_umask;
    bool xattr_support = false;
    bool offline = false;
    nfstime4 time_deleg_access;
    nfstime4 time_deleg_modify;
    open_arguments4 open_arguments;
};

/// Those that have a place in `attributes`. No other is ever encoded.
extern const bitmap4 known_attributes;

/// Some attributes, their values as they came. A view.
struct fattr4 {
    bitmap4 attrmask;
    bytes_view<max_sent_values> attr_vals;

    friend bool operator==(const fattr4&, const fattr4&) = default;
};

/// Writes a fattr4 of those `wanted` that are present: never one more, which a Linux client takes for a broken reply.
void encode_attributes(xdr::encoder& out, const bitmap4& wanted, const attributes& values) noexcept;

/// For who asked for them. False if a value is missing or wrong, if bytes are left over, or if there is an attribute without a
/// place in `attributes`, as nobody can tell where the next one begins. The values are views into those of `raw`.
[[nodiscard]] bool decode_attributes(const fattr4& raw, attributes& values) noexcept;

/// For an operation that sets attributes: ATTRNOTSUPP for one outside of `supported`; then INVAL for one outside of `settable`
/// (attributes_for_setattr, attributes_for_create, or what EXCLUSIVE4_1 leaves of them) and for two that say the mode; then BADXDR
/// for values that can't be read; then FBIG for an ACL of more than max_aces or, with an ACL, of more than max_attribute_values bytes; then INVAL for a mode, a umask
/// or nanoseconds out of range and for an owner without a name. Whether an owner exists is for the caller to find out, and what an ACL says for from_acl().
nfsstat4 decode_settable(const fattr4& raw, const bitmap4& supported, const bitmap4& settable,
                         attributes& values) noexcept;

/// What compare_attributes() says of theirs alone, whatever ours are: ATTRNOTSUPP and INVAL for what can't be compared,
/// BADXDR for values that can't be read, NOT_SAME for an ACL that is too long to be read, and for a value with bits of
/// attributes that are none here. Else OK.
nfsstat4 check_compared(const fattr4& theirs, const bitmap4& supported) noexcept;

/// VERIFY and NVERIFY: same or not_same, or what check_compared() finds. It compares an owner as the text that it is.
/// `scratch` has room for our values twice: each time max_attribute_values at most; SERVERFAULT where it had not.
nfsstat4 compare_attributes(const fattr4& theirs, const bitmap4& supported, const attributes& ours,
                            std::span<std::byte> scratch) noexcept;

} // namespace verbena::nfs::v4

template<>
struct verbena::xdr::codec<verbena::nfs::v4::settime4> {
    static constexpr std::size_t min_size = 4;
    static constexpr std::size_t max_size = 16;
    static void encode(encoder& out, const nfs::v4::settime4& value) noexcept;
    static void decode(decoder& in, nfs::v4::settime4& value) noexcept;
};

#pragma GCC visibility pop
