// SPDX-License-Identifier: Apache-2.0
#include "attribute_source.hpp"

#include <verbena/protocols/nfs/server/v4/server.hpp>

#include <array>
#include <chrono>
#include <span>
#include <string_view>

namespace verbena::nfs::v4 {

namespace {

constexpr bitmap4 supported_attributes = of_space | bitmap4{
                                                        attribute::supported_attrs,
                                                        attribute::type,
                                                        attribute::fh_expire_type,
                                                        attribute::change,
                                                        attribute::size,
                                                        attribute::link_support,
                                                        attribute::symlink_support,
                                                        attribute::named_attr,
                                                        attribute::fsid,
                                                        attribute::unique_handles,
                                                        attribute::lease_time,
                                                        attribute::rdattr_error,
                                                        attribute::cansettime,
                                                        attribute::case_insensitive,
                                                        attribute::case_preserving,
                                                        attribute::chown_restricted,
                                                        attribute::filehandle,
                                                        attribute::fileid,
                                                        attribute::homogeneous,
                                                        attribute::maxfilesize,
                                                        attribute::maxlink,
                                                        attribute::maxname,
                                                        attribute::maxread,
                                                        attribute::maxwrite,
                                                        attribute::mode,
                                                        attribute::no_trunc,
                                                        attribute::numlinks,
                                                        attribute::owner,
                                                        attribute::owner_group,
                                                        attribute::rawdev,
                                                        attribute::space_used,
                                                        attribute::time_access,
                                                        attribute::time_access_set,
                                                        attribute::time_delta,
                                                        attribute::time_metadata,
                                                        attribute::time_modify,
                                                        attribute::time_modify_set,
                                                        attribute::mounted_on_fileid,
                                                        attribute::suppattr_exclcreat,
                                                        attribute::fs_charset_cap,
                                                        attribute::clone_blksize,
                                                        attribute::change_attr_type,
                                                        attribute::mode_umask,
                                                        attribute::xattr_support,
                                                    };

// Where the back end has any.
constexpr bitmap4 of_acls = {attribute::acl, attribute::aclsupport};
constexpr bitmap4 of_births = {attribute::time_create};

// Where files are reached by layouts, too. layout_hint, which a creation may name, is not served (draft 2.4.8).
constexpr bitmap4 of_layouts = {attribute::fs_layout_types, attribute::layout_types,
                                attribute::layout_blksize, attribute::layout_alignment};
// The same for all objects of an export, and no more than what set_constants() sets.
constexpr bitmap4 constants = {
    attribute::supported_attrs,  attribute::fh_expire_type,   attribute::link_support,
    attribute::symlink_support,  attribute::named_attr,       attribute::unique_handles,
    attribute::lease_time,       attribute::rdattr_error,     attribute::cansettime,
    attribute::case_insensitive, attribute::case_preserving,  attribute::chown_restricted,
    attribute::homogeneous,      attribute::maxfilesize,      attribute::maxlink,
    attribute::maxname,          attribute::maxread,          attribute::maxwrite,
    attribute::no_trunc,         attribute::time_delta,       attribute::suppattr_exclcreat,
    attribute::fs_charset_cap,   attribute::change_attr_type, attribute::clone_blksize,
    attribute::xattr_support,    attribute::aclsupport};
constexpr std::array layout_types_served = {layouttype4::rdma};

// File systems of the pseudo file system and of exports: no device has this number.
constexpr std::uint64_t pseudo_fsid = 0x76657262'656e6134;

constexpr std::uint32_t nanoseconds_per_second = 1'000'000'000;

// The type first: nearly all that is asked for is a file, and that is told without a look at its handle.
bool is_root(const object& of, const storage::attributes& attrs) noexcept
{
    return attrs.type == storage::file_type::directory && of.is_export_root();
}

} // namespace

bool has_layouts(const object& of) noexcept
{
    return !of.is_pseudo() && of.exported->pnfs && of.backend().info().map_block != 0;
}

bitmap4 supported_attributes_of(const object& of, std::uint32_t minor) noexcept
{
    bitmap4 all = supported_attributes;
    if (!of.is_pseudo()) {
        const storage::filesystem_info& info = of.backend().info();
        if (info.acls)
            all = all | of_acls;
        if (info.birth_times)
            all = all | of_births;
        if (of.exported->pnfs && info.map_block != 0)
            all = all | of_layouts;
    }
    return all & attributes_of_minor(minor);
}

void attribute_source::set_constants(const object& of, std::uint32_t minor, object_values& out) const noexcept
{
    static const storage::filesystem_info pseudo_info;
    const storage::filesystem_info& info = of.is_pseudo() ? pseudo_info : of.backend().info();
    attributes& a = out.all;
    a.supported_attrs = supported_attributes_of(of, minor);
    a.aclsupport = acl4_support::allow | acl4_support::deny;
    // What does not last answers STALE, not FHEXPIRED: of that Linux makes EIO, where it looks a stale name up again.
    a.fh_expire_type = info.lasting_handles ? fh4::persistent : fh4::volatile_any;
    a.link_support = info.links;
    a.symlink_support = info.symlinks;
    a.unique_handles = true;
    a.lease_time =
        static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::seconds>(options_.lease).count());
    a.cansettime = true;
    a.case_insensitive = info.case_insensitive;
    a.case_preserving = true;
    a.chown_restricted = info.chown_restricted;
    a.homogeneous = true;
    a.maxfilesize = info.max_file_size;
    a.maxlink = info.max_links;
    a.maxname = info.max_name;
    a.maxread = a.maxwrite = server::max_transfer;
    a.no_trunc = true;
    a.time_delta = {info.time_granularity_ns / nanoseconds_per_second,
                    info.time_granularity_ns % nanoseconds_per_second};
    a.suppattr_exclcreat = a.supported_attrs & attributes_for_exclusive;
    a.fs_charset_cap = fs_charset_cap4::contains_non_utf8;
    a.clone_blksize = info.clone_block;
    a.change_attr_type = change_attr_type4::undefined;
    a.xattr_support = info.xattrs;
    a.rdattr_error = nfsstat4::ok;
    if (has_layouts(of)) {
        a.fs_layout_types = a.layout_types = std::span<const layouttype4>(layout_types_served);
        a.layout_blksize = info.map_block;
        a.layout_alignment = 1; // bytes are read and written one by one, if need be
        a.present = a.present | of_layouts;
    }
    a.present = a.present | constants;
}

void attribute_source::set_pseudo(const rpc::call& c, const pseudo_node& node, object_values& out)
{
    storage::attributes attrs;
    attrs.type = storage::file_type::directory;
    attrs.mode = 0555;
    // Of what the peer may see: exports of others are not counted out to it.
    attrs.links = static_cast<std::uint32_t>(2 + handles_.visible_in(node, c.from()));
    attrs.fileid = node.fileid;
    constexpr std::int64_t second = 1'000'000'000;
    const std::int64_t changed = handles_.tree().changed();
    attrs.atime = attrs.mtime = attrs.ctime = {started_, 0};
    if (changed / second > started_)
        attrs.mtime = attrs.ctime = {changed / second, static_cast<std::uint32_t>(changed % second)};
    out.set(attrs);
    out.all.fsid = {pseudo_fsid, 0};
    out.all.present.set(attribute::fsid);
}

void attribute_source::set_file(const object& of, const storage::attributes& attrs,
                                object_values& out) const noexcept
{
    out.set(attrs);
    // With the export's number: two exports of one device differ.
    out.all.fsid = {attrs.fsid, of.exported->id};
    out.all.present.set(attribute::fsid);
    if (is_root(of, attrs)) {
        if (const pseudo_node* const place = handles_.place_of(*of.exported))
            out.all.mounted_on_fileid = place->fileid;
    }
}

// As a listing of the other export tells it (8881 5.8.2.23); where it tells none the place's number stays.
void attribute_source::set_covered(const object& root, object_values& out) const noexcept
{
    if (const std::uint64_t number = handles_.covered_number(root); number != 0)
        out.all.mounted_on_fileid = number;
}

task<nfsstat4> attribute_source::values_of(call_context& k, const object& of, bitmap4 wanted,
                                           object_values& out, const kept_attributes* kept,
                                           const storage::attributes* known)
{
    // Some forty values, of which those that ask again and again what a file is like want none.
    if (!(wanted & (constants | of_layouts)).none())
        set_constants(of, k.minor(), out);
    if (file_handle handle; wanted.test(attribute::filehandle) && handles_.sign(of, handle))
        out.set_handle(handle);
    if (of.is_pseudo()) {
        set_pseudo(k.c, *of.node, out);
        out.set_space(storage::filesystem_stat());
        if (names_.says(wanted)) {
            task<void> saying = names_.say(k.waits, wanted, out);
            co_await saying;
        }
        co_return nfsstat4::ok;
    }
    std::optional<storage::attributes> attrs;
    if (known != nullptr && (kept == nullptr || kept->modified)) {
        attrs = *known;
    } else {
        const auto now = co_await of.backend().getattr(of.request, of.file);
        if (!now)
            co_return status_of_storage(now.error());
        attrs = *now;
    }
    const changeid4 change = change_of(*attrs);
    if (kept != nullptr)
        kept->apply(*attrs);
    set_file(of, *attrs, out);
    if (wanted.test(attribute::mounted_on_fileid) && is_root(of, *attrs)) {
        co_await handles_.look_around(of);
        set_covered(of, out);
    }
    if (kept != nullptr)
        out.all.change = kept->change_from(change);
    if (!(wanted & of_space).none()) {
        const auto space = co_await of.backend().statfs(of.request, of.file);
        if (!space)
            co_return status_of_storage(space.error());
        out.set_space(*space);
    }
    if (names_.says(wanted)) {
        task<void> saying = names_.say(k.waits, wanted, out);
        co_await saying;
    }
    if (wanted.test(attribute::acl) && of.backend().info().acls)
        co_return co_await values_of_acl(of, out);
    co_return nfsstat4::ok;
}

task<nfsstat4> attribute_source::values_of_acl(const object& of, object_values& out)
{
    const auto list = co_await of.backend().getacl(of.request, of.file);
    if (!list)
        co_return status_of_storage(list.error());
    out.set_acl(*list);
    co_return nfsstat4::ok;
}

} // namespace verbena::nfs::v4
