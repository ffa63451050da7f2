// SPDX-License-Identifier: Apache-2.0
// What changes directories: CREATE, REMOVE, RENAME, LINK.
#include "operations.hpp"
#include "steps.hpp"

#include "../../snapshots.hpp"

#include <verbena/protocols/nfs/server/v4/storage_acl.hpp>

#include <cerrno>
#include <functional>
#include <string>

namespace verbena::nfs::v4::operations {

namespace {

constexpr std::size_t max_link_text = 4096;

// EBUSY says that the file is in use and can't go: of a file that a client has open, that no descriptor is left to keep
// it. REMOVE and RENAME have FILE_OPEN for that; Linux tries again for a second and then says EBUSY, too.
nfsstat4 status_of_removal(const error& failure) noexcept
{
    return failure.errno_value() == EBUSY ? nfsstat4::file_open : status_of_storage(failure);
}

} // namespace

task<nfsstat4> create(compound& k)
{
    CREATE4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = k.need_file(purpose::changing);
    if (status == nfsstat4::ok)
        status = check_name(args.objname);
    attributes wanted;
    if (status == nfsstat4::ok)
        status = decode_settable(args.createattrs, k.supported(k.current), settable_at_creation, wanted);
    storage::set_attributes set;
    storage::access_list acl;
    // Nothing that CREATE makes has a size that can be set (8881 18.4.3).
    if (status == nfsstat4::ok && wanted.present.test(attribute::size))
        status = nfsstat4::inval;
    if (status == nfsstat4::ok)
        status = from_settable(wanted, set, acl);
    if (status == nfsstat4::badowner && k.server.names.may_be_said()) {
        task<nfsstat4> naming = k.server.names.to_settable(k.waits, wanted, set, acl);
        status = co_await naming;
    }
    if (status == nfsstat4::ok)
        status = k.check_room<CREATE4res>();
    if (status != nfsstat4::ok)
        co_return status;
    const object directory = k.current;
    storage::file_backend& files = directory.backend();
    const auto device = [&](storage::file_type type) {
        return files.mknod(directory.request, directory.file, args.objname, type,
                           args.objtype.devdata.specdata1, args.objtype.devdata.specdata2, set);
    };
    std::string text;
    result<storage::create_result> made = error(std::errc::invalid_argument);
    switch (args.objtype.type) {
    case nfs_ftype4::dir: {
        const directory_to_change in{&k.server.state, directory.exported->space, files, directory.request,
                                     directory.file};
        auto making = make_directory(in, args.objname, set);
        made = co_await making;
        break;
    }
    case nfs_ftype4::lnk: {
        const auto& data = args.objtype.linkdata;
        if (data.length > max_link_text)
            co_return nfsstat4::nametoolong;
        rpc::payload pulled;
        std::span<const std::byte> here = data.inline_bytes;
        std::span<const std::span<const std::byte>> pieces(&here, 1);
        if (data.external) {
            auto got = co_await k.c.pull(data);
            if (!got)
                co_return k.not_pulled(got.error());
            pulled = std::move(*got);
            pieces = pulled.pieces();
        }
        for (const auto piece : pieces)
            text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        if (text.empty() || text.find('\0') != text.npos)
            co_return nfsstat4::inval;
        made = co_await files.symlink(directory.request, directory.file, args.objname, text, set);
        break;
    }
    case nfs_ftype4::blk: made = co_await device(storage::file_type::block_device); break;
    case nfs_ftype4::chr: made = co_await device(storage::file_type::character_device); break;
    case nfs_ftype4::sock: made = co_await device(storage::file_type::socket); break;
    case nfs_ftype4::fifo: made = co_await device(storage::file_type::fifo); break;
    default: co_return nfsstat4::badtype;
    }
    if (!made)
        co_return status_of_setting(made.error(), set);
    k.set_current(directory.other(made->made.handle, made->made.attrs));
    CREATE4res res;
    res.cinfo = to_change_info(made->directory);
    res.attrset = set_at_creation(args.createattrs.attrmask, set, made->made.attrs);
    co_return k.add(res);
}

task<nfsstat4> remove(compound& k)
{
    REMOVE4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = k.need_file(purpose::changing);
    if (status == nfsstat4::ok)
        status = check_name(args.target);
    if (status == nfsstat4::ok)
        status = co_await k.server.handles.may_change(k.current, args.target);
    if (status == nfsstat4::ok)
        status = k.check_room<REMOVE4res>();
    // The file may be one that a client has still to reclaim.
    if (status == nfsstat4::ok && k.server.state.is_in_grace())
        status = nfsstat4::grace;
    if (status != nfsstat4::ok)
        co_return status;
    const object& o = k.current;
    const auto may = [&] { return o.backend().may_remove(o.request, o.file, args.target); };
    std::optional<storage::handle> asked;
    auto making = make_way_to(k, o, args.target, files::operation::remove, std::ref(may), &asked);
    const auto made = co_await making;
    if (!made || *made != nfsstat4::ok)
        co_return made ? *made : status_of_removal(made.error());
    const storage::request request = request_of(o, asked);
    auto done = co_await o.backend().remove(request, o.file, args.target);
    // unlink(2) says EISDIR of a directory on Linux, and POSIX has it say EPERM.
    if (!done && (done.error().errno_value() == EISDIR || done.error().errno_value() == EPERM)) {
        const directory_to_change in{&k.server.state, o.exported->space, o.backend(), request, o.file};
        auto removing = remove_directory(in, args.target);
        auto again = co_await removing;
        if (again || again.error().errno_value() != ENOTDIR)
            done = std::move(again);
    }
    if (!done && request.victim != nullptr && done.error().errno_value() == ESTALE)
        co_return nfsstat4::delay;
    if (!done)
        co_return status_of_removal(done.error());
    REMOVE4res res;
    res.cinfo = to_change_info(*done);
    co_return k.add(res);
}

namespace {

// Of RENAME and LINK: the saved handle and the current one.
nfsstat4 need_both(const compound& k)
{
    nfsstat4 status = k.saved.none() ? nfsstat4::nofilehandle : k.need_file(purpose::changing);
    if (status == nfsstat4::ok)
        status = compound::check_file(k.saved, purpose::changing);
    // Also where both lie on one file system: each export has its own rules of who may do what.
    if (status == nfsstat4::ok && k.saved.exported != k.current.exported)
        status = nfsstat4::xdev;
    return status;
}

// A target that is no directory where the source is one, or the other way, is EXIST (8881 18.26.3). So is a directory
// with something in it, by the RFC, but its NOTEMPTY stays: RENAME has that, too (15.2), knfsd says so, and programs
// get what rename(2) on a local disk gives.
task<nfsstat4> status_of_renaming(compound& k, nfsstat4 status)
{
    if (status == nfsstat4::isdir)
        co_return nfsstat4::exist;
    if (status != nfsstat4::notdir)
        co_return status;
    // Unless it is a handle that is none.
    const auto from = co_await k.saved.backend().getattr(k.saved.request, k.saved.file);
    const auto to = co_await k.current.backend().getattr(k.current.request, k.current.file);
    const bool both = from && to && from->type == storage::file_type::directory &&
                      to->type == storage::file_type::directory;
    co_return both ? nfsstat4::exist : status;
}

} // namespace

task<nfsstat4> rename(compound& k)
{
    RENAME4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = need_both(k);
    if (status == nfsstat4::ok)
        status = check_name(args.oldname);
    if (status == nfsstat4::ok)
        status = check_name(args.newname);
    if (status == nfsstat4::ok)
        status = co_await k.server.handles.may_change(k.saved, args.oldname);
    if (status == nfsstat4::ok)
        status = co_await k.server.handles.may_change(k.current, args.newname);
    if (status == nfsstat4::ok)
        status = k.check_room<RENAME4res>();
    // The file may be one that a client has still to reclaim.
    if (status == nfsstat4::ok && k.server.state.is_in_grace())
        status = nfsstat4::grace;
    if (status != nfsstat4::ok)
        co_return status;
    const object& o = k.saved;
    const auto may = [&] {
        return o.backend().may_rename(o.request, o.file, args.oldname, k.current.file, args.newname);
    };
    auto making = make_way_to(k, o, args.oldname, files::operation::rename, std::ref(may));
    auto made = co_await making;
    std::optional<storage::handle> asked;
    if (made && *made == nfsstat4::ok) {
        making = make_way_to(k, k.current, args.newname, files::operation::remove, std::ref(may), &asked);
        made = co_await making;
    }
    if (!made) {
        status = status_of_removal(made.error());
        co_return co_await status_of_renaming(k, status);
    }
    if (*made != nfsstat4::ok)
        co_return *made;
    const storage::request request = request_of(o, asked);
    const auto done =
        co_await o.backend().rename(request, o.file, args.oldname, k.current.file, args.newname);
    if (!done && request.victim != nullptr && done.error().errno_value() == ESTALE)
        co_return nfsstat4::delay;
    if (!done) {
        status = status_of_removal(done.error());
        co_return co_await status_of_renaming(k, status);
    }
    RENAME4res res;
    res.source_cinfo = to_change_info(done->from);
    res.target_cinfo = to_change_info(done->to);
    co_return k.add(res);
}

task<nfsstat4> link(compound& k)
{
    LINK4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = need_both(k);
    if (status == nfsstat4::ok)
        status = check_name(args.newname);
    if (status == nfsstat4::ok)
        status = k.check_room<LINK4res>();
    if (status == nfsstat4::ok && k.begin(k.saved, files::operation::link))
        status = co_await make_way(k, k.saved, files::operation::link);
    if (status != nfsstat4::ok)
        co_return status;
    const object& o = k.saved;
    const auto done = co_await o.backend().link(o.request, o.file, k.current.file, args.newname);
    if (!done) {
        status = status_of_storage(done.error());
        // From minor version 1 on LINK has no NOENT: a file without a name is on its way out. It never has PERM, which
        // file systems without links say, and the kernel to who may not link to others' files.
        const bool has_status = status == nfsstat4::noent ? k.minor() == 0 : status != nfsstat4::perm;
        if (has_status)
            co_return status;
        const auto attrs = co_await o.backend().getattr(o.request, o.file);
        if (status == nfsstat4::noent)
            co_return !attrs || attrs->links == 0 ? nfsstat4::stale : status;
        if (!attrs)
            co_return status_of_storage(attrs.error());
        if (attrs->type == storage::file_type::directory)
            co_return nfsstat4::isdir;
        co_return o.backend().info().links ? nfsstat4::access : nfsstat4::notsupp;
    }
    LINK4res res;
    res.cinfo = to_change_info(done->directory);
    co_return k.add(res);
}

} // namespace verbena::nfs::v4::operations
