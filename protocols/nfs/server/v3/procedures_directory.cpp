// SPDX-License-Identifier: Apache-2.0
// The procedures on entries of directories: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR,
// RENAME, LINK.
#include "reply.hpp"

#include "../snapshots.hpp"

#include <functional>
#include <string>

namespace verbena::nfs::v3 {

namespace {

// Another file that has the name by now may have layouts, which nobody has recalled. `asked` outlives the request.
storage::request request_for(const storage::request& of, const std::optional<storage::handle>& asked)
{
    storage::request request = of;
    request.victim = asked ? &*asked : nullptr;
    return request;
}

// Of such a request: another file has the name.
bool is_another(const storage::request& request, const error& failure) noexcept
{
    return request.victim != nullptr && failure.errno_value() == ESTALE;
}

} // namespace

task<rpc::outcome> server::lookup(rpc::call& c)
{
    LOOKUP3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    LOOKUP3res res;
    target directory;
    res.status = open(c, args.what.dir, purpose::reading, directory);
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);
    // The rules of an export that begins here are gone by, whatever this one's are.
    const export_options* inner = nested_at(directory, args.what.name);
    target root;
    nfsstat3 entered = nfsstat3::noent;
    if (inner != nullptr)
        entered = co_await open_root(c, *inner, root);
    if (entered == nfsstat3::jukebox || entered == nfsstat3::serverfault) {
        res.status = entered;
        co_return reply(c, res);
    }
    if (entered != nfsstat3::ok) {
        auto done = co_await directory.backend().lookup(directory.request, directory.file, args.what.name);
        if (!done) {
            // With these a client can remember that the name does not exist.
            res.status = status_of(done.error());
            res.dir_attributes = co_await attributes_of(directory);
            co_return reply(c, res);
        }
        if (inner == nullptr && exports_.has_nested(*directory.exported)) {
            inner = co_await covering(directory, done->found);
            // What has a handle from before stands beneath it.
            if (inner != nullptr && args.what.name == "..")
                entered = nfsstat3::stale;
            else if (inner != nullptr)
                entered = co_await open_root(c, *inner, root);
        }
        if (entered != nfsstat3::ok) {
            res.dir_attributes = to_post_op(done->directory);
            const auto object = sign(*directory.exported, done->found.handle);
            if (inner != nullptr) {
                res.status = entered;
            } else if (object) {
                res.object = *object;
                res.obj_attributes = to_post_op(done->found.attrs);
            } else {
                res.status = nfsstat3::serverfault;
            }
            co_return reply(c, res);
        }
    }
    res.dir_attributes = co_await attributes_of(directory);
    if (const auto object = sign(*inner, root.file)) {
        res.object = *object;
        res.obj_attributes = co_await attributes_of(root);
    } else {
        res.status = nfsstat3::serverfault;
    }
    co_return reply(c, res);
}

// Fills `res` from what a back end made; the caller adds the directory's attributes if that failed.
void server::end_creation(const target& directory, const result<storage::create_result>& made,
                          CREATE3res& res) noexcept
{
    if (!made) {
        res.status = status_of(made.error());
        return;
    }
    res.obj = sign(*directory.exported, made->made.handle);
    res.obj_attributes = to_post_op(made->made.attrs);
    res.dir_wcc = to_wcc(made->directory);
}

task<rpc::outcome> server::create(rpc::call& c)
{
    CREATE3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    CREATE3res res;
    target directory;
    storage::set_attributes set;
    res.status = open(c, args.where.dir, purpose::changing, directory);
    if (res.status == nfsstat3::ok)
        res.status = from_sattr3(args.obj_attributes, set);
    // It may cut a file that is there.
    if (res.status == nfsstat3::ok && storage::create_mode(args.mode) == storage::create_mode::unchecked &&
        set.size && is_in_grace(files::operation::set_size))
        res.status = nfsstat3::jukebox;
    // What is there already is set, and perhaps cut.
    files::under_way doing;
    if (res.status == nfsstat3::ok && args.mode == createmode3::unchecked)
        res.status = co_await make_way_to(
            c, directory, args.where.name,
            set.size ? files::operation::set_size : files::operation::set_attributes, doing);
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);
    const auto made =
        co_await directory.backend().create(directory.request, directory.file, args.where.name,
                                            storage::create_mode(args.mode), set, from_verifier(args.verf));
    end_creation(directory, made, res);
    if (res.status != nfsstat3::ok)
        co_return co_await refuse(c, res, res.status, res.dir_wcc, directory);
    co_return reply(c, res);
}

task<rpc::outcome> server::mkdir(rpc::call& c)
{
    MKDIR3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    MKDIR3res res;
    target directory;
    storage::set_attributes set;
    res.status = open(c, args.where.dir, purpose::changing, directory);
    if (res.status == nfsstat3::ok)
        res.status = from_sattr3(args.attributes, set);
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);
    const directory_to_change in{state_, directory.exported->space, directory.backend(), directory.request,
                                 directory.file};
    auto making = make_directory(in, args.where.name, set);
    const auto made = co_await making;
    end_creation(directory, made, res);
    if (res.status != nfsstat3::ok)
        co_return co_await refuse(c, res, res.status, res.dir_wcc, directory);
    co_return reply(c, res);
}

task<rpc::outcome> server::symlink(rpc::call& c)
{
    SYMLINK3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    SYMLINK3res res;
    target directory;
    storage::set_attributes set;
    res.status = open(c, args.where.dir, purpose::changing, directory);
    if (res.status == nfsstat3::ok)
        res.status = from_sattr3(args.symlink_attributes, set);
    if (res.status == nfsstat3::ok && args.symlink_data.length > max_expected_path)
        res.status = nfsstat3::nametoolong;
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);

    rpc::payload pulled;
    std::span<const std::byte> here = args.symlink_data.inline_bytes;
    std::span<const std::span<const std::byte>> pieces(&here, 1);
    if (args.symlink_data.external) {
        auto got = co_await c.pull(args.symlink_data);
        if (!got && got.error() == std::errc::not_enough_memory) {
            res.status = nfsstat3::jukebox;
            co_return reply(c, res);
        }
        if (!got)
            co_return rpc::outcome::drop;
        pulled = std::move(*got);
        pieces = pulled.pieces();
    }
    std::string path;
    for (const auto piece : pieces)
        path.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    if (path.empty() || path.find('\0') != path.npos) {
        res.status = nfsstat3::inval;
        co_return reply(c, res);
    }
    const auto made =
        co_await directory.backend().symlink(directory.request, directory.file, args.where.name, path, set);
    end_creation(directory, made, res);
    if (res.status != nfsstat3::ok)
        co_return co_await refuse(c, res, res.status, res.dir_wcc, directory);
    co_return reply(c, res);
}

task<rpc::outcome> server::mknod(rpc::call& c)
{
    MKNOD3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    MKNOD3res res;
    target directory;
    storage::set_attributes set;
    storage::file_type type{};
    res.status = open(c, args.where.dir, purpose::changing, directory);
    if (res.status == nfsstat3::ok) {
        switch (args.type) {
        case ftype3::chr: type = storage::file_type::character_device; break;
        case ftype3::blk: type = storage::file_type::block_device; break;
        case ftype3::sock: type = storage::file_type::socket; break;
        case ftype3::fifo: type = storage::file_type::fifo; break;
        // RFC 1813 3.3.11: the other ones have procedures of their own.
        case ftype3::reg:
        case ftype3::dir:
        case ftype3::lnk: res.status = nfsstat3::badtype; break;
        }
    }
    if (res.status == nfsstat3::ok)
        res.status = from_sattr3(args.attributes, set);
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);
    const auto made = co_await directory.backend().mknod(directory.request, directory.file, args.where.name,
                                                         type, args.spec.specdata1, args.spec.specdata2, set);
    end_creation(directory, made, res);
    if (res.status != nfsstat3::ok)
        co_return co_await refuse(c, res, res.status, res.dir_wcc, directory);
    co_return reply(c, res);
}

task<rpc::outcome> server::remove(rpc::call& c)
{
    REMOVE3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    REMOVE3res res;
    target directory;
    res.status = open_outside_grace(c, args.object.dir, purpose::changing, directory);
    if (res.status == nfsstat3::ok)
        res.status = co_await may_change(c, directory, args.object.name);
    files::under_way doing;
    std::optional<storage::handle> asked;
    if (res.status == nfsstat3::ok) {
        const auto may = [&] {
            return directory.backend().may_remove(directory.request, directory.file, args.object.name);
        };
        auto making = make_way_to(c, directory, args.object.name, files::operation::remove, doing,
                                  std::ref(may), &asked);
        res.status = co_await making;
    }
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);
    const storage::request request = request_for(directory.request, asked);
    auto done = co_await directory.backend().remove(request, directory.file, args.object.name);
    if (!done) {
        const nfsstat3 why = is_another(request, done.error()) ? nfsstat3::jukebox : status_of(done.error());
        co_return co_await refuse(c, res, why, res.dir_wcc, directory);
    }
    res.dir_wcc = to_wcc(*done);
    co_return reply(c, res);
}

task<rpc::outcome> server::rmdir(rpc::call& c)
{
    RMDIR3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    RMDIR3res res;
    target directory;
    res.status = open(c, args.object.dir, purpose::changing, directory);
    // RFC 1813 3.3.13 names these two; what rmdir(2) says of them differs from system to system.
    if (res.status == nfsstat3::ok && args.object.name == ".")
        res.status = nfsstat3::inval;
    if (res.status == nfsstat3::ok && args.object.name == "..")
        res.status = nfsstat3::exist;
    if (res.status == nfsstat3::ok)
        res.status = co_await may_change(c, directory, args.object.name);
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);
    const directory_to_change in{state_, directory.exported->space, directory.backend(), directory.request,
                                 directory.file};
    auto removing = remove_directory(in, args.object.name);
    auto done = co_await removing;
    if (!done)
        co_return co_await refuse(c, res, status_of(done.error()), res.dir_wcc, directory);
    res.dir_wcc = to_wcc(*done);
    co_return reply(c, res);
}

task<rpc::outcome> server::rename(rpc::call& c)
{
    RENAME3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    RENAME3res res;
    target from;
    target to;
    res.status = open_outside_grace(c, args.from.dir, purpose::changing, from);
    if (res.status == nfsstat3::ok)
        res.status = open(c, args.to.dir, purpose::changing, to);
    // Also where both lie on one file system: each export has its own rules of who may do what.
    if (res.status == nfsstat3::ok && from.exported != to.exported)
        res.status = nfsstat3::xdev;
    if (res.status == nfsstat3::ok)
        res.status = co_await may_change(c, from, args.from.name);
    if (res.status == nfsstat3::ok)
        res.status = co_await may_change(c, to, args.to.name);
    files::under_way source, overwritten;
    std::optional<storage::handle> asked;
    if (res.status == nfsstat3::ok) {
        const auto may = [&] {
            return from.backend().may_rename(from.request, from.file, args.from.name, to.file, args.to.name);
        };
        auto making = make_way_to(c, from, args.from.name, files::operation::rename, source, std::ref(may));
        res.status = co_await making;
        if (res.status == nfsstat3::ok) {
            making = make_way_to(c, to, args.to.name, files::operation::remove, overwritten, std::ref(may),
                                 &asked);
            res.status = co_await making;
        }
    }
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);
    const storage::request request = request_for(from.request, asked);
    auto done = co_await from.backend().rename(request, from.file, args.from.name, to.file, args.to.name);
    if (!done) {
        const nfsstat3 why = is_another(request, done.error()) ? nfsstat3::jukebox : status_of(done.error());
        res.fromdir_wcc.after = co_await attributes_of(from);
        co_return co_await refuse(c, res, why, res.todir_wcc, to);
    }
    res.fromdir_wcc = to_wcc(done->from);
    res.todir_wcc = to_wcc(done->to);
    co_return reply(c, res);
}

task<rpc::outcome> server::link(rpc::call& c)
{
    LINK3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    LINK3res res;
    target file;
    target directory;
    res.status = open(c, args.file, purpose::changing, file);
    if (res.status == nfsstat3::ok)
        res.status = open(c, args.link.dir, purpose::changing, directory);
    if (res.status == nfsstat3::ok && file.exported != directory.exported)
        res.status = nfsstat3::xdev;
    files::under_way doing;
    if (res.status == nfsstat3::ok && begin(doing, file, files::operation::link))
        res.status = co_await make_way(c, file, files::operation::link);
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);
    auto done = co_await file.backend().link(file.request, file.file, directory.file, args.link.name);
    if (!done) {
        res.file_attributes = co_await attributes_of(file);
        co_return co_await refuse(c, res, status_of(done.error()), res.linkdir_wcc, directory);
    }
    res.file_attributes = to_post_op(done->file);
    res.linkdir_wcc = to_wcc(done->directory);
    co_return reply(c, res);
}

} // namespace verbena::nfs::v3
