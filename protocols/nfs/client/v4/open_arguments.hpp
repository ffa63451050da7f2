// SPDX-License-Identifier: Apache-2.0
// What the client's OPENs have in common.
#pragma once

#include <verbena/protocols/nfs/client/v4/client.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <array>
#include <cstdint>
#include <string>

namespace verbena::nfs::v4 {

inline const error name_too_long(std::errc::filename_too_long, "a name of more than 1024 octets");

/// What is asked of each file that is found or opened.
inline GETATTR4args file_attributes_wanted() noexcept { return {file_attribute_numbers}; }
inline result<node> node_of(const GETFH4res& handle, const GETATTR4res& values)
{
    auto read = read_attributes(values.obj_attributes);
    if (!read)
        return read.error();
    return node{known_handle(handle.object), *read};
}

/// new_attributes as they go out. Keeps the bytes.
class encoded_attributes {
public:
    explicit encoded_attributes(const new_attributes& given)
        : encoded_attributes(given, given.uid ? std::to_string(*given.uid) : std::string(),
                             given.gid ? std::to_string(*given.gid) : std::string())
    {
    }
    /// With names of at most user_names::max_text bytes, or digits, for owner and group.
    encoded_attributes(const new_attributes& given, const std::string& owner, const std::string& group)
    {
        attributes values;
        if (given.mode) {
            values.mode = *given.mode;
            values.present.set(attribute::mode);
        }
        if (given.size) {
            values.size = *given.size;
            values.present.set(attribute::size);
        }
        if (given.uid) {
            values.owner = std::string_view(owner);
            values.present.set(attribute::owner);
        }
        if (given.gid) {
            values.owner_group = std::string_view(group);
            values.present.set(attribute::owner_group);
        }
        if (given.atime) {
            values.time_access_set = *given.atime;
            values.present.set(attribute::time_access_set);
        }
        if (given.mtime) {
            values.time_modify_set = *given.mtime;
            values.present.set(attribute::time_modify_set);
        }
        xdr::encoder out(bytes_);
        encode_attributes(out, values.present, values);
        xdr::decoder in(out.bytes());
        xdr::codec<fattr4>::decode(in, raw_);
    }
    encoded_attributes(const encoded_attributes&) = delete;
    const fattr4& raw() const noexcept { return raw_; }

private:
    std::array<std::byte, 512> bytes_{};
    fattr4 raw_;
};

/// An open owner.
class owner_name {
public:
    explicit owner_name(std::uint64_t number) noexcept { xdr::store_u64(bytes_.data(), number); }
    std::span<const std::byte> bytes() const noexcept { return bytes_; }

private:
    std::array<std::byte, 8> bytes_{};
};

/// OPEN of the current handle, whose arguments are a view of `owner`. `want` is one of share4's wants.
inline OPEN4args opening_of(const owner_name& owner, std::uint32_t access,
                            std::uint32_t want = share4::want_no_delegation) noexcept
{
    OPEN4args args;
    args.share_access = access | want;
    args.share_deny = share4::deny_none;
    args.owner.owner = owner.bytes();
    args.claim.claim = open_claim_type4::fh;
    return args;
}

/// The server has taken it away and keeps in mind that it has, until FREE_STATEID.
inline bool is_revoked(const error& why) noexcept
{
    return why.code() == make_error_code(nfsstat4::expired) ||
           why.code() == make_error_code(nfsstat4::admin_revoked) ||
           why.code() == make_error_code(nfsstat4::deleg_revoked);
}

/// The server does not know the open, or the delegation, any more.
inline bool is_gone(const error& why) noexcept
{
    return is_revoked(why) || why.code() == make_error_code(nfsstat4::bad_stateid) ||
           why.code() == make_error_code(nfsstat4::stale_stateid) ||
           why.code() == make_error_code(nfsstat4::old_stateid);
}

inline bool gives_delegation(const OPEN4res& res) noexcept
{
    const open_delegation_type4 type = res.delegation.delegation_type;
    return type != open_delegation_type4::none && type != open_delegation_type4::none_ext;
}

} // namespace verbena::nfs::v4
