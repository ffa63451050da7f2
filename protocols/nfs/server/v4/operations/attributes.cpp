// SPDX-License-Identifier: Apache-2.0
// GETATTR, SETATTR, ACCESS, VERIFY, NVERIFY.
#include "../compound.hpp"

#include <verbena/protocols/nfs/server/v3/storage.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <unistd.h>
#include <vector>

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

// What a client that has a write delegation may have changed without our knowing.
constexpr bitmap4 of_content = {attribute::change, attribute::size, attribute::space_used,
                                attribute::time_metadata, attribute::time_modify};

// File systems of the pseudo file system and of exports: no device has this number.
constexpr std::uint64_t pseudo_fsid = 0x76657262'656e6134;

constexpr std::uint32_t nanoseconds_per_second = 1'000'000'000;

} // namespace

bitmap4 server::supported(const compound& k, const object& of) noexcept
{
    bitmap4 all = supported_attributes;
    if (!of.is_pseudo() && of.backend().info().acls)
        all = all | of_acls;
    if (!of.is_pseudo() && of.backend().info().birth_times)
        all = all | of_births;
    return all & attributes_of_minor(k.minor());
}

void server::set_constants(const compound& k, const object& of, object_values& out) const noexcept
{
    static const storage::filesystem_info pseudo_info;
    const storage::filesystem_info& info = of.is_pseudo() ? pseudo_info : of.backend().info();
    attributes& a = out.all;
    a.supported_attrs = supported(k, of);
    a.aclsupport = acl4_support::allow | acl4_support::deny;
    // What does not last answers STALE, not FHEXPIRED: of that Linux makes EIO, where it looks a stale name up again.
    a.fh_expire_type = info.lasting_handles ? fh4::persistent : fh4::volatile_any;
    a.link_support = info.links;
    a.symlink_support = info.symlinks;
    a.unique_handles = true;
    a.lease_time = static_cast<std::uint32_t>(
        std::chrono::duration_cast<std::chrono::seconds>(commons_.state.options().lease).count());
    a.cansettime = true;
    a.case_insensitive = info.case_insensitive;
    a.case_preserving = true;
    a.chown_restricted = info.chown_restricted;
    a.homogeneous = true;
    a.maxfilesize = info.max_file_size;
    a.maxlink = info.max_links;
    a.maxname = info.max_name;
    a.maxread = a.maxwrite = max_transfer;
    a.no_trunc = true;
    a.time_delta = {info.time_granularity_ns / nanoseconds_per_second,
                    info.time_granularity_ns % nanoseconds_per_second};
    a.suppattr_exclcreat = a.supported_attrs & attributes_for_exclusive;
    a.fs_charset_cap = fs_charset_cap4::contains_non_utf8;
    a.clone_blksize = info.clone_block;
    a.change_attr_type = change_attr_type4::undefined;
    a.xattr_support = info.xattrs;
    a.rdattr_error = nfsstat4::ok;
    a.present =
        a.present |
        bitmap4{attribute::supported_attrs,  attribute::fh_expire_type,   attribute::link_support,
                attribute::symlink_support,  attribute::named_attr,       attribute::unique_handles,
                attribute::lease_time,       attribute::rdattr_error,     attribute::cansettime,
                attribute::case_insensitive, attribute::case_preserving,  attribute::chown_restricted,
                attribute::homogeneous,      attribute::maxfilesize,      attribute::maxlink,
                attribute::maxname,          attribute::maxread,          attribute::maxwrite,
                attribute::no_trunc,         attribute::time_delta,       attribute::suppattr_exclcreat,
                attribute::fs_charset_cap,   attribute::change_attr_type, attribute::clone_blksize,
                attribute::xattr_support,    attribute::aclsupport};
}

void server::set_pseudo(const rpc::call& c, const pseudo_node& node, object_values& out)
{
    storage::attributes attrs;
    attrs.type = storage::file_type::directory;
    attrs.mode = 0555;
    // Of what the peer may see: exports of others are not counted out to it.
    const auto seen = std::ranges::count_if(
        node.children, [&](const auto& child) { return is_visible(*child.second, c.from(), host_); });
    attrs.links = static_cast<std::uint32_t>(2 + seen);
    attrs.fileid = node.fileid;
    attrs.atime = attrs.mtime = attrs.ctime = {commons_.started, 0};
    out.set(attrs);
    out.all.fsid = {pseudo_fsid, 0};
    out.all.present.set(attribute::fsid);
}

void server::set_file(const object& of, const storage::attributes& attrs, object_values& out) const noexcept
{
    out.set(attrs);
    // With the export's number: two exports of one device differ.
    out.all.fsid = {attrs.fsid, of.exported->id};
    out.all.present.set(attribute::fsid);
    if (of.is_export_root()) {
        if (const pseudo_node* const place = commons_.tree.of(*of.exported))
            out.all.mounted_on_fileid = place->fileid;
    }
}

// As a listing of the other export tells it (8881 5.8.2.23); where it tells none the place's number stays. That export is asked once: were its
// disk to hang, who uses this one would wait for it.
task<void> server::set_covered(const rpc::call& c, const object& root, object_values& out)
{
    if (const auto known = covered_numbers_.find(root.exported); known != covered_numbers_.end()) {
        out.all.mounted_on_fileid = known->second;
        co_return;
    }
    const export_table::nest* const nest = commons_.exports.nest_around(*root.exported);
    if (nest == nullptr)
        co_return;
    object outer;
    outer.exported = nest->outer;
    outer.request.client = c.from().address;
    outer.request.who = storage::credential(0, 0); // whoever asks first, all are told the same
    outer.file = outer.backend().root();
    std::string_view rest = nest->path;
    for (auto name = next_component(rest); !name.empty();) {
        const auto found = co_await outer.backend().lookup(outer.request, outer.file, name);
        const bool never = !found && (found.error() == storage::errc::crosses_mount ||
                                      found.error().errno_value() == ENOENT);
        if (!found && !never)
            co_return;
        if (found)
            outer.file = found->found.handle;
        name = found ? next_component(rest) : std::string_view();
        if (found && name.empty() && found->found.attrs)
            out.all.mounted_on_fileid = mounted_on(*found->found.attrs);
    }
    covered_numbers_[root.exported] = out.all.mounted_on_fileid;
}

task<nfsstat4> server::values_of(compound& k, const object& of, bitmap4 wanted, object_values& out,
                                 const kept_attributes* kept, const storage::attributes* before)
{
    set_constants(k, of, out);
    if (file_handle handle; wanted.test(attribute::filehandle) && sign(of, handle))
        out.set_handle(handle);
    if (of.is_pseudo()) {
        set_pseudo(k.c, *of.node, out);
        out.set_space(storage::filesystem_stat());
        if (says_names(wanted)) {
            task<void> saying = say_names(k, wanted, out);
            co_await saying;
        }
        co_return nfsstat4::ok;
    }
    std::optional<storage::attributes> attrs;
    if (kept != nullptr && kept->modified && before != nullptr) {
        attrs = *before;
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
    if (wanted.test(attribute::mounted_on_fileid) && of.is_export_root())
        co_await set_covered(k.c, of, out);
    if (kept != nullptr)
        out.all.change = kept->change_from(change);
    if (!(wanted & of_space).none()) {
        const auto space = co_await of.backend().statfs(of.request, of.file);
        if (!space)
            co_return status_of_storage(space.error());
        out.set_space(*space);
    }
    if (says_names(wanted)) {
        task<void> saying = say_names(k, wanted, out);
        co_await saying;
    }
    if (wanted.test(attribute::acl) && of.backend().info().acls)
        co_return co_await values_of_acl(of, out);
    co_return nfsstat4::ok;
}

// Of the current file, for who compares them too: the holder of a write delegation may know better.
task<nfsstat4> server::current_values(compound& k, bitmap4 wanted, object_values& out)
{
    const object& o = k.current;
    std::optional<kept_attributes> kept;
    std::optional<storage::attributes> before;
    const bool asks = !o.is_pseudo() && !(wanted & of_content).none() &&
                      commons_.state.stats().write_delegations.value() != 0 &&
                      commons_.state.has_state(o.key());
    if (asks) {
        // First what the server has: a size that the holder said never goes with a change attribute from behind its
        // answer.
        const auto attrs = co_await o.backend().getattr(o.request, o.file);
        if (!attrs)
            co_return status_of_storage(attrs.error());
        before = *attrs;
        co_await learn_client(k);
        const storage::handle file = o.key();
        const auto looked = co_await commons_.state.look(k.client, file);
        if (!looked)
            co_return status_of_state(looked.error());
        kept = *looked;
    }
    co_return co_await values_of(k, o, wanted, out, kept ? &*kept : nullptr, before ? &*before : nullptr);
}

task<nfsstat4> server::getattr(compound& k)
{
    GETATTR4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    // What the minor version does not know yet is not there to be read or written.
    if (!(args.attr_request & write_only_attributes & attributes_of_minor(k.minor())).none())
        co_return nfsstat4::inval;
    object_values values;
    const nfsstat4 status = co_await current_values(k, args.attr_request, values);
    if (status != nfsstat4::ok)
        co_return status;
    if (values.acl) {
        if (values.all.acl.size() > max_sent_aces) // before memory is taken for it
            co_return nfsstat4::rep_too_big;
        co_await make_room(k, values);
    }
    encode_attributes(k.results.begin(GETATTR4args::opcode), args.attr_request & supported(k, k.current),
                      values.all);
    co_return k.results.end() ? nfsstat4::ok : k.too_big();
}

task<nfsstat4> server::setattr(compound& k)
{
    SETATTR4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = k.need_file(purpose::changing);
    attributes wanted;
    if (status == nfsstat4::ok)
        status = decode_settable(args.obj_attributes, supported(k, k.current), settable_attributes, wanted);
    storage::set_attributes set;
    storage::access_list acl;
    if (status == nfsstat4::ok)
        status = from_settable(wanted, set, acl);
    if (status == nfsstat4::badowner && commons_.users != nullptr) {
        task<nfsstat4> naming = named_settable(k, wanted, set, acl);
        status = co_await naming;
    }
    if (status == nfsstat4::ok)
        status = k.resolve(args.stateid);
    // Also where no size is set, and nothing would ask for it (8881 8.2.3).
    if (status == nfsstat4::ok && args.stateid.is_reserved() && !args.stateid.is_anonymous() &&
        !args.stateid.is_read_bypass())
        status = nfsstat4::bad_stateid;
    if (status == nfsstat4::ok)
        status = k.check_room<SETATTR4res>();
    files::change_hold change;
    if (status == nfsstat4::ok)
        change.begin(commons_.state.changes(), k.current.key());
    if (status == nfsstat4::ok && (set.size || !args.stateid.is_reserved()))
        status = co_await check_io(k, args.stateid,
                                   set.size ? files::operation::set_size : files::operation::set_attributes);
    // A stateid says nothing of others' delegations where it is not to write.
    if (status == nfsstat4::ok && commons_.state.has_state(k.current.key()))
        status = co_await make_way(k, k.current, files::operation::set_attributes);
    if (status != nfsstat4::ok)
        co_return status;
    const auto done =
        co_await k.current.backend().setattr(k.current.request, k.current.file, set, std::nullopt);
    if (!done)
        co_return status_of_setting(done.error(), set);
    SETATTR4res res;
    res.attrsset = args.obj_attributes.attrmask;
    co_return k.add(res);
}

task<nfsstat4> server::access(compound& k)
{
    ACCESS4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    const std::uint32_t defined = k.minor() >= 2 ? access4::all_with_xattr : access4::all;
    if ((args.access & ~defined) != 0)
        co_return nfsstat4::inval;
    ACCESS4res res;
    const object& o = k.current;
    if (o.is_pseudo()) {
        res.supported = args.access & access4::all & ~access4::execute;
        res.access = args.access & (access4::read | access4::lookup);
        co_return k.add(res);
    }
    const auto attrs = co_await o.backend().getattr(o.request, o.file);
    if (!attrs)
        co_return status_of_storage(attrs.error());
    const bool directory = attrs->type == storage::file_type::directory;
    const bool has_xattrs =
        o.backend().info().xattrs && (directory || attrs->type == storage::file_type::regular);
    const std::uint32_t known = has_xattrs ? access4::all_with_xattr : access4::all;
    res.supported = args.access & known & ~(directory ? access4::execute : access4::lookup | access4::remove);
    std::uint32_t wanted = res.supported;
    if (o.exported->read_only)
        wanted &= ~(access4::modify | access4::extend | access4::remove | access4::xawrite);
    // The first six bits are version 3's. Extended attributes are read and written by whom the file may be; to see their names takes no right.
    unsigned permissions = v3::to_permissions(wanted & access4::all, attrs->type);
    if ((wanted & access4::xaread) != 0)
        permissions |= R_OK;
    if ((wanted & access4::xawrite) != 0)
        permissions |= W_OK;
    const auto allowed = co_await o.backend().access(o.request, o.file, permissions);
    if (!allowed)
        co_return status_of_storage(allowed.error());
    res.access = v3::to_access3(wanted & access4::all, *allowed, attrs->type) | (wanted & access4::xalist);
    if ((*allowed & R_OK) != 0)
        res.access |= wanted & access4::xaread;
    if ((*allowed & W_OK) != 0)
        res.access |= wanted & access4::xawrite;
    co_return k.add(res);
}

namespace {

// Of the owners in `theirs`, those whose text is another one than would be told.
attributes called_otherwise(const fattr4& theirs, const attributes& told)
{
    attributes said, others;
    if (!theirs.attrmask.test(attribute::owner) && !theirs.attrmask.test(attribute::owner_group))
        return others;
    if (!decode_attributes(theirs, said))
        return others; // which is found when they are compared
    others.owner = said.owner;
    others.owner_group = said.owner_group;
    if (said.present.test(attribute::owner) && said.owner != told.owner)
        others.present.set(attribute::owner);
    if (said.present.test(attribute::owner_group) && said.owner_group != told.owner_group)
        others.present.set(attribute::owner_group);
    return others;
}

// What has no ACL in it. As a plain function: its memory is no part of the frame of each VERIFY.
nfsstat4 compare_on_stack(const fattr4& theirs, const bitmap4& known, const attributes& ours) noexcept
{
    std::array<std::byte, 6144> scratch;
    return compare_attributes(theirs, known, ours, scratch);
}

bool is_same_entry(const nfsace4& one, const nfsace4& other) noexcept
{
    return one.type == other.type && one.flag == other.flag && one.access_mask == other.access_mask &&
           one.who == other.who;
}

} // namespace

// Entries of an ACL are for whom the text means, as owners are: if all of theirs are ours, the list is said as the client says it.
task<nfsstat4> server::compare_acl(compound& k, const acl_view& theirs, object_values& values)
{
    if (theirs.size() != values.all.acl.size())
        co_return nfsstat4::ok;
    auto ours = values.all.acl.begin();
    for (auto at = theirs.begin(); at != theirs.end(); ++at, ++ours) {
        nfsace4 each = *at;
        storage::ace meant;
        std::array<char, 10> digits{};
        if (commons_.users != nullptr && from_ace(each, meant) == nfsstat4::badowner) {
            const bool group = (each.flag & ace4::identifier_group) != 0;
            std::uint32_t id = 0;
            const nfsstat4 found =
                co_await id_named(k, group ? account_kind::group : account_kind::user, each.who, id);
            if (k.is_undecided(found))
                co_return nfsstat4::delay;
            if (found == nfsstat4::ok)
                each.who = write_who(digits, id, group);
        }
        if (!is_same_entry(each, *ours))
            co_return nfsstat4::ok;
    }
    values.all.acl = theirs;
    co_return nfsstat4::ok;
}

task<nfsstat4> server::compare(compound& k, const fattr4& theirs)
{
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    // Before a holder is asked, or loses what it holds.
    const bitmap4 known = supported(k, k.current);
    nfsstat4 status = check_compared(theirs, known);
    if (status != nfsstat4::ok)
        co_return status;
    object_values values;
    status = co_await current_values(k, theirs.attrmask, values);
    if (status != nfsstat4::ok)
        co_return status;
    // Owners are compared by whom the text means, as SETATTR takes it: then they are called as the client does.
    if (const attributes owners = called_otherwise(theirs, values.all); !owners.present.none()) {
        storage::set_attributes meant;
        nfsstat4 found = from_attributes(owners, meant);
        if (found == nfsstat4::badowner && commons_.users != nullptr) {
            task<nfsstat4> naming = named_attributes(k, owners, meant);
            found = co_await naming;
        }
        if (k.is_undecided(found))
            co_return nfsstat4::delay;
        if (found == nfsstat4::ok && meant.uid == values.uid)
            values.all.owner = owners.owner;
        if (found == nfsstat4::ok && meant.gid == values.gid)
            values.all.owner_group = owners.owner_group;
    }
    if (values.acl) {
        if (attributes said; decode_attributes(theirs, said)) {
            const nfsstat4 found = co_await compare_acl(k, said.acl, values);
            if (found != nfsstat4::ok)
                co_return found;
        }
        std::vector<std::byte> large(2 * max_attribute_values);
        co_return compare_attributes(theirs, known, values.all, large);
    }
    co_return compare_on_stack(theirs, known, values.all);
}

task<nfsstat4> server::verify(compound& k)
{
    VERIFY4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    const nfsstat4 status = co_await compare(k, args.obj_attributes);
    co_return status == nfsstat4::same ? k.add(VERIFY4res()) : status;
}

task<nfsstat4> server::nverify(compound& k)
{
    NVERIFY4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    const nfsstat4 status = co_await compare(k, args.obj_attributes);
    co_return status == nfsstat4::not_same ? k.add(NVERIFY4res()) : status;
}

} // namespace verbena::nfs::v4
