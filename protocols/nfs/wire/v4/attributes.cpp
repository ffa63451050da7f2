// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/wire/v4/attributes.hpp>

#include <algorithm>

namespace verbena::nfs::v4 {
namespace {

/// f(the member of `values` that holds `which`); false for an attribute that has none.
template<class Attributes, class F>
constexpr bool with_value(attribute which, Attributes& values, F&& f)
{
    switch (which) {
    case attribute::supported_attrs: f(values.supported_attrs); break;
    case attribute::type: f(values.type); break;
    case attribute::fh_expire_type: f(values.fh_expire_type); break;
    case attribute::change: f(values.change); break;
    case attribute::size: f(values.size); break;
    case attribute::link_support: f(values.link_support); break;
    case attribute::symlink_support: f(values.symlink_support); break;
    case attribute::named_attr: f(values.named_attr); break;
    case attribute::fsid: f(values.fsid); break;
    case attribute::unique_handles: f(values.unique_handles); break;
    case attribute::lease_time: f(values.lease_time); break;
    case attribute::rdattr_error: f(values.rdattr_error); break;
    case attribute::acl: f(values.acl); break;
    case attribute::aclsupport: f(values.aclsupport); break;
    case attribute::cansettime: f(values.cansettime); break;
    case attribute::case_insensitive: f(values.case_insensitive); break;
    case attribute::case_preserving: f(values.case_preserving); break;
    case attribute::chown_restricted: f(values.chown_restricted); break;
    case attribute::filehandle: f(values.filehandle); break;
    case attribute::fileid: f(values.fileid); break;
    case attribute::files_avail: f(values.files_avail); break;
    case attribute::files_free: f(values.files_free); break;
    case attribute::files_total: f(values.files_total); break;
    case attribute::homogeneous: f(values.homogeneous); break;
    case attribute::maxfilesize: f(values.maxfilesize); break;
    case attribute::maxlink: f(values.maxlink); break;
    case attribute::maxname: f(values.maxname); break;
    case attribute::maxread: f(values.maxread); break;
    case attribute::maxwrite: f(values.maxwrite); break;
    case attribute::mode: f(values.mode); break;
    case attribute::no_trunc: f(values.no_trunc); break;
    case attribute::numlinks: f(values.numlinks); break;
    case attribute::owner: f(values.owner); break;
    case attribute::owner_group: f(values.owner_group); break;
    case attribute::quota_avail_hard: f(values.quota_avail_hard); break;
    case attribute::quota_avail_soft: f(values.quota_avail_soft); break;
    case attribute::quota_used: f(values.quota_used); break;
    case attribute::rawdev: f(values.rawdev); break;
    case attribute::space_avail: f(values.space_avail); break;
    case attribute::space_free: f(values.space_free); break;
    case attribute::space_total: f(values.space_total); break;
    case attribute::space_used: f(values.space_used); break;
    case attribute::time_access: f(values.time_access); break;
    case attribute::time_access_set: f(values.time_access_set); break;
    case attribute::time_create: f(values.time_create); break;
    case attribute::time_delta: f(values.time_delta); break;
    case attribute::time_metadata: f(values.time_metadata); break;
    case attribute::time_modify: f(values.time_modify); break;
    case attribute::time_modify_set: f(values.time_modify_set); break;
    case attribute::mounted_on_fileid: f(values.mounted_on_fileid); break;
    case attribute::fs_layout_types: f(values.fs_layout_types); break;
    case attribute::layout_types: f(values.layout_types); break;
    case attribute::layout_blksize: f(values.layout_blksize); break;
    case attribute::layout_alignment: f(values.layout_alignment); break;
    case attribute::mode_set_masked: f(values.mode_set_masked); break;
    case attribute::suppattr_exclcreat: f(values.suppattr_exclcreat); break;
    case attribute::fs_charset_cap: f(values.fs_charset_cap); break;
    case attribute::clone_blksize: f(values.clone_blksize); break;
    case attribute::space_freed: f(values.space_freed); break;
    case attribute::change_attr_type: f(values.change_attr_type); break;
    case attribute::sec_label: f(values.sec_label); break;
    case attribute::mode_umask: f(values.mode_umask); break;
    case attribute::xattr_support: f(values.xattr_support); break;
    case attribute::offline: f(values.offline); break;
    case attribute::time_deleg_access: f(values.time_deleg_access); break;
    case attribute::time_deleg_modify: f(values.time_deleg_modify); break;
    case attribute::open_arguments: f(values.open_arguments); break;
    default: return false;
    }
    return true;
}

struct nothing_done {
    template<class T>
    constexpr void operator()(const T&) const noexcept
    {
    }
};

consteval bitmap4 those_with_a_member() noexcept
{
    const attributes none;
    bitmap4 all;
    for (std::uint32_t i = 0; i < bitmap4::bits; ++i) {
        if (with_value(static_cast<attribute>(i), none, nothing_done{}))
            all.set(i);
    }
    return all;
}

void encode_values(xdr::encoder& out, const bitmap4& which, const attributes& values) noexcept
{
    which.for_each([&](std::uint32_t number) {
        with_value(static_cast<attribute>(number), values,
                   [&out]<class T>(const T& value) { xdr::codec<T>::encode(out, value); });
        return out.ok();
    });
}

bool decode_values(const fattr4& raw, attributes& values) noexcept
{
    xdr::decoder in(raw.attr_vals);
    const bool known = raw.attrmask.for_each([&](std::uint32_t number) {
        return with_value(static_cast<attribute>(number), values,
                          [&in]<class T>(T& value) { xdr::codec<T>::decode(in, value); }) &&
               in.ok();
    });
    values.present = raw.attrmask;
    return known && in.at_end();
}

constexpr std::uint32_t mode_bits = 07777;
constexpr std::uint32_t permission_bits = 0777;

bool in_range(const settime4& value) noexcept
{
    return value.set_it == time_how4::set_to_server_time || value.time.in_range();
}

/// Whether each value is one that its attribute can have.
bool legal(const attributes& values) noexcept
{
    const auto has = [&](attribute which) { return values.present.test(which); };
    return !(has(attribute::mode) && (values.mode & ~mode_bits) != 0) &&
           !(has(attribute::mode_set_masked) &&
             ((values.mode_set_masked.value | values.mode_set_masked.mask) & ~mode_bits) != 0) &&
           !(has(attribute::mode_umask) && ((values.mode_umask.mode & ~mode_bits) != 0 ||
                                            (values.mode_umask.umask & ~permission_bits) != 0)) &&
           !(has(attribute::owner) && values.owner.empty()) &&
           !(has(attribute::owner_group) && values.owner_group.empty()) &&
           !(has(attribute::time_access_set) && !in_range(values.time_access_set)) &&
           !(has(attribute::time_modify_set) && !in_range(values.time_modify_set)) &&
           !(has(attribute::time_create) && !values.time_create.in_range()) &&
           !(has(attribute::time_deleg_access) && !values.time_deleg_access.in_range()) &&
           !(has(attribute::time_deleg_modify) && !values.time_deleg_modify.in_range());
}

bool says_the_mode_twice(const bitmap4& mask) noexcept
{
    return int(mask.test(attribute::mode)) + int(mask.test(attribute::mode_set_masked)) +
               int(mask.test(attribute::mode_umask)) >
           1;
}

bool names_an_owner(const bitmap4& mask) noexcept
{
    return mask.test(attribute::owner) || mask.test(attribute::owner_group);
}

} // namespace

constinit const bitmap4 known_attributes = those_with_a_member();

void encode_attributes(xdr::encoder& out, const bitmap4& wanted, const attributes& values) noexcept
{
    const bitmap4 mask = wanted & values.present & known_attributes;
    xdr::codec<bitmap4>::encode(out, mask);
    const std::size_t length = out.size();
    out.u32(0);
    const std::size_t begin = out.size();
    encode_values(out, mask, values);
    if (out.ok())
        out.patch_u32(length, static_cast<std::uint32_t>(out.size() - begin));
}

bool decode_attributes(const fattr4& raw, attributes& values) noexcept
{
    return !raw.attrmask.beyond() && decode_values(raw, values);
}

nfsstat4 decode_settable(const fattr4& raw, const bitmap4& supported, const bitmap4& settable,
                         attributes& values) noexcept
{
    if (!raw.attrmask.is_subset_of(supported & known_attributes))
        return nfsstat4::attrnotsupp;
    if (!raw.attrmask.is_subset_of(settable) || says_the_mode_twice(raw.attrmask))
        return nfsstat4::inval;
    // Only an ACL or an owner could be so long.
    const bool is_too_long = raw.attr_vals.size() > max_attribute_values;
    if (is_too_long && raw.attrmask.test(attribute::acl))
        return nfsstat4::fbig;
    if (!decode_values(raw, values))
        return nfsstat4::badxdr;
    if (is_too_long)
        return names_an_owner(raw.attrmask) ? nfsstat4::badowner : nfsstat4::badxdr;
    if (values.present.test(attribute::acl) && values.acl.size() > max_aces)
        return nfsstat4::fbig;
    return legal(values) ? nfsstat4::ok : nfsstat4::inval;
}

namespace {

// Whether a bitmap among them has bits that we know none of: these are lost when it is written again.
bool says_more(const attributes& values) noexcept
{
    const open_arguments4& open = values.open_arguments;
    const auto beyond = [](const auto&... each) { return (each.beyond() || ...); };
    return beyond(values.supported_attrs, values.suppattr_exclcreat, open.share_access, open.share_deny,
                  open.share_access_want, open.open_claim, open.create_mode);
}

// `values` are theirs.
nfsstat4 read_compared(const fattr4& theirs, const bitmap4& supported, attributes& values) noexcept
{
    if (!theirs.attrmask.is_subset_of(supported & known_attributes))
        return nfsstat4::attrnotsupp;
    if (theirs.attrmask.test(attribute::rdattr_error) || !(theirs.attrmask & write_only_attributes).none())
        return nfsstat4::inval;
    // One value may have several forms on the wire, and what is none is not compared.
    if (!decode_values(theirs, values)) {
        // An ACL may be too long to be read: nothing here is so long.
        const bool may_be_too_long =
            theirs.attrmask.test(attribute::acl) && theirs.attr_vals.size() > max_attribute_values;
        return may_be_too_long ? nfsstat4::not_same : nfsstat4::badxdr;
    }
    return says_more(values) ? nfsstat4::not_same : nfsstat4::ok;
}

} // namespace

nfsstat4 check_compared(const fattr4& theirs, const bitmap4& supported) noexcept
{
    attributes values;
    return read_compared(theirs, supported, values);
}

nfsstat4 compare_attributes(const fattr4& theirs, const bitmap4& supported, const attributes& ours,
                            std::span<std::byte> scratch) noexcept
{
    attributes values;
    if (const nfsstat4 found = read_compared(theirs, supported, values); found != nfsstat4::ok)
        return found;
    if (!theirs.attrmask.is_subset_of(ours.present))
        return nfsstat4::not_same;
    xdr::encoder out(scratch);
    encode_values(out, theirs.attrmask, ours);
    // What has no room where theirs would have is longer than theirs.
    if (!out.ok())
        return theirs.attr_vals.size() <= scratch.size() ? nfsstat4::not_same : nfsstat4::serverfault;
    if (std::ranges::equal(out.bytes(), theirs.attr_vals))
        return nfsstat4::same;
    xdr::encoder again(scratch.subspan(out.size()));
    encode_values(again, theirs.attrmask, values);
    if (!again.ok())
        return scratch.size() - out.size() >= out.size() ? nfsstat4::not_same : nfsstat4::serverfault;
    return std::ranges::equal(out.bytes(), again.bytes()) ? nfsstat4::same : nfsstat4::not_same;
}

} // namespace verbena::nfs::v4

namespace verbena::xdr {

void codec<nfs::v4::bitmap4>::encode(encoder& out, const nfs::v4::bitmap4& value) noexcept
{
    std::uint32_t count = nfs::v4::bitmap4::words;
    while (count > 0 && value.words_[count - 1] == 0)
        --count;
    out.u32(count);
    for (std::uint32_t i = 0; i < count; ++i)
        out.u32(value.words_[i]);
}

void codec<nfs::v4::bitmap4>::decode(decoder& in, nfs::v4::bitmap4& value) noexcept
{
    value = {};
    const std::uint32_t count = in.array_count(UINT32_MAX, 4); // the message bounds it
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t word = in.u32();
        if (i < nfs::v4::bitmap4::words)
            value.words_[i] = word;
        else if (word != 0)
            value.beyond_ = true;
    }
}

void codec<nfs::v4::settime4>::encode(encoder& out, const nfs::v4::settime4& value) noexcept
{
    codec<nfs::v4::time_how4>::encode(out, value.set_it);
    if (value.set_it == nfs::v4::time_how4::set_to_client_time)
        codec<nfs::v4::nfstime4>::encode(out, value.time);
}

void codec<nfs::v4::settime4>::decode(decoder& in, nfs::v4::settime4& value) noexcept
{
    codec<nfs::v4::time_how4>::decode(in, value.set_it);
    if (value.set_it == nfs::v4::time_how4::set_to_client_time)
        codec<nfs::v4::nfstime4>::decode(in, value.time);
}

} // namespace verbena::xdr
