// SPDX-License-Identifier: Apache-2.0
// The procedures on one file: GETATTR, SETATTR, ACCESS, READLINK, READ, WRITE, COMMIT.
#include "reply.hpp"

#include "../located.hpp"

#include <algorithm>
#include <cstring>
#include <unistd.h>

namespace verbena::nfs::v3 {

namespace {

// What off_t can say.
constexpr std::uint64_t last_offset = ~std::uint64_t(0) >> 1;

} // namespace

task<rpc::outcome> server::getattr(rpc::call& c)
{
    GETATTR3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    GETATTR3res res;
    target file;
    res.status = open(c, args.object, purpose::reading, file);
    std::optional<kept_attributes> kept;
    std::optional<storage::attributes> before;
    if (res.status == nfsstat3::ok && state_ != nullptr &&
        state_->may_have_writer(file.exported->space, file.file)) {
        const files::exported_file known(files::file_key(file.exported->space, file.file), file.exported->id);
        // As in version 4.
        const auto attrs = co_await file.backend().getattr(file.request, file.file);
        if (!attrs) {
            res.status = status_of(attrs.error());
        } else {
            before = *attrs;
            const state_home::looking looking{&file.backend(), file.request, file.file, known, *attrs};
            const auto looked = co_await state_->look(files::nobody, looking);
            if (looked)
                kept = *looked;
            else
                res.status = refuse_way(c, looked.error());
        }
    }
    if (res.status == nfsstat3::ok) {
        auto attrs = co_await file.backend().getattr(file.request, file.file);
        if (attrs && before && kept && kept->modified)
            attrs = *before;
        if (attrs && kept)
            kept->apply(*attrs);
        if (attrs)
            res.obj_attributes = to_fattr3(*attrs);
        else
            res.status = status_of(attrs.error());
    }
    co_return reply(c, res);
}

task<rpc::outcome> server::setattr(rpc::call& c)
{
    SETATTR3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    SETATTR3res res;
    target file;
    storage::set_attributes set;
    res.status = open(c, args.object, purpose::changing, file);
    if (res.status == nfsstat3::ok)
        res.status = from_sattr3(args.new_attributes, set);
    if (res.status == nfsstat3::ok && set.size && *set.size > last_offset)
        res.status = nfsstat3::fbig;
    if (res.status == nfsstat3::ok && set.size && is_in_grace(files::operation::set_size))
        res.status = nfsstat3::jukebox;
    files::under_way doing;
    const files::operation op = set.size ? files::operation::set_size : files::operation::set_attributes;
    if (res.status == nfsstat3::ok && begin(doing, file, op))
        res.status = co_await make_way(c, file, op);
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);
    std::optional<storage::file_time> guard;
    if (args.guard)
        guard = storage::file_time{args.guard->seconds, args.guard->nseconds};
    auto done = co_await file.backend().setattr(file.request, file.file, set, guard);
    if (!done)
        co_return co_await refuse(c, res, status_of(done.error()), res.obj_wcc, file);
    res.obj_wcc = to_wcc(*done);
    co_return reply(c, res);
}

task<rpc::outcome> server::access(rpc::call& c)
{
    ACCESS3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    ACCESS3res res;
    target file;
    res.status = open(c, args.object, purpose::reading, file);
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);
    auto attrs = co_await file.backend().getattr(file.request, file.file);
    if (!attrs) {
        res.status = status_of(attrs.error());
        co_return reply(c, res);
    }
    res.obj_attributes = to_fattr3(*attrs);
    std::uint32_t wanted = args.access & access3::all;
    if (file.exported->read_only)
        wanted &= ~(access3::modify | access3::extend | access3::remove);
    auto allowed =
        co_await file.backend().access(file.request, file.file, to_permissions(wanted, attrs->type));
    if (allowed)
        res.access = to_access3(wanted, *allowed, attrs->type);
    else
        res.status = status_of(allowed.error());
    co_return reply(c, res);
}

task<rpc::outcome> server::readlink(rpc::call& c)
{
    READLINK3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    READLINK3res res;
    target link;
    res.status = open(c, args.symlink, purpose::reading, link);
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);
    res.symlink_attributes = co_await attributes_of(link);
    auto path = co_await link.backend().readlink(link.request, link.file);
    if (!path) {
        res.status = status_of(path.error());
        co_return reply(c, res);
    }
    if (path->size() > max_expected_path) {
        res.status = nfsstat3::nametoolong;
        co_return reply(c, res);
    }
    lease buffer = co_await c.acquire(std::max<std::size_t>(path->size(), 1));
    if (!buffer) {
        res.status = nfsstat3::jukebox;
        co_return reply(c, res);
    }
    std::memcpy(buffer.data(), path->data(), path->size());
    const std::span<const std::byte> bytes = buffer.bytes().first(path->size());
    res.data.length = static_cast<std::uint32_t>(bytes.size());
    res.data.external = true;
    const rpc::outcome outcome = reply(c, res);
    c.attach(rpc::payload(std::move(buffer), bytes));
    co_return outcome;
}

task<rpc::outcome> server::read(rpc::call& c)
{
    READ3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    READ3res res;
    target file;
    res.status = open_for_io(c, args.file, files::operation::read, file);
    files::under_way doing;
    if (res.status == nfsstat3::ok && begin(doing, file, files::operation::read))
        res.status = co_await make_way(c, file, files::operation::read);
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);
    // No file reaches beyond last_offset: what is asked for there is behind the end of this one.
    const std::uint64_t offset = std::min(args.offset, last_offset);
    // More than there is room for is refused when it is there, so one byte more will do to tell.
    const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        {std::min(args.count, max_transfer), last_offset - offset, c.most_result() + 1}));
    c.expect_results(count);
    const rpc::sent_in_place in_place = c.sends_in_place();
    if (may_be_located(file.backend(), count, in_place)) {
        auto there =
            co_await file.backend().locate(file.request, file.file, offset, count, locatable_by(in_place));
        if (there && there->here) {
            res.file_attributes = to_post_op(there->read.attrs);
            res.count = there->read.count;
            res.eof = there->read.end_of_file;
            res.data.length = res.count;
            res.data.external = true;
            const rpc::outcome outcome = reply(c, res);
            attach(c, std::move(*there));
            count_read(c, res.count);
            co_return outcome;
        }
    }
    lease buffer = co_await c.acquire(std::max<std::size_t>(count, 1));
    if (!buffer) {
        res.status = nfsstat3::jukebox;
        co_return reply(c, res);
    }
    const std::span<std::byte> space = buffer.bytes().first(count);
    auto done = co_await file.backend().read(file.request, file.file, offset, space);
    if (!done) {
        res.status = status_of(done.error());
        res.file_attributes = co_await attributes_of(file);
        co_return reply(c, res);
    }
    res.file_attributes = to_post_op(done->attrs);
    res.count = std::min(done->count, count);
    res.eof = done->end_of_file;
    res.data.length = res.count;
    res.data.external = true;
    const rpc::outcome outcome = reply(c, res);
    c.attach(rpc::payload(std::move(buffer), space.first(res.count)));
    count_read(c, res.count);
    co_return outcome;
}

task<nfsstat3> server::may_write(const target& file)
{
    auto allowed = co_await file.backend().access(file.request, file.file, W_OK);
    if (!allowed)
        co_return status_of(allowed.error());
    if ((*allowed & W_OK) != 0)
        co_return nfsstat3::ok;
    // The owner may always write: it may have made the file 0444 and opened it in one go.
    auto attrs = co_await file.backend().getattr(file.request, file.file);
    if (!attrs)
        co_return status_of(attrs.error());
    co_return attrs->uid == file.request.who.uid ? nfsstat3::ok : nfsstat3::acces;
}

task<rpc::outcome> server::write(rpc::call& c)
{
    WRITE3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    WRITE3res res;
    target file;
    res.status = open_for_io(c, args.file, files::operation::write, file);
    if (res.status == nfsstat3::ok && (args.offset > last_offset || args.count > last_offset - args.offset))
        res.status = nfsstat3::fbig;
    files::under_way doing;
    if (res.status == nfsstat3::ok && begin(doing, file, files::operation::write))
        res.status = co_await make_way(c, file, files::operation::write);
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);

    rpc::payload pulled;
    std::span<const std::byte> here = args.data.inline_bytes;
    std::span<const std::span<const std::byte>> pieces(&here, 1);
    if (args.data.external) {
        // Nothing has arrived of an item in a Read chunk; what may not be written need not come at all.
        if (here.empty()) {
            const nfsstat3 may = co_await may_write(file);
            if (may != nfsstat3::ok)
                co_return co_await refuse(c, res, may, res.file_wcc, file);
        }
        auto got = co_await c.pull(args.data);
        if (!got && got.error() == std::errc::not_enough_memory) {
            res.status = nfsstat3::jukebox;
            co_return reply(c, res);
        }
        if (!got)
            co_return rpc::outcome::drop;
        pulled = std::move(*got);
        pieces = pulled.pieces();
    }
    // From before: if a sync fails once the data are in memory, they may be lost, and the client must see that the
    // verifier of its COMMIT is another.
    res.verf = to_verifier(file.backend().write_verifier());
    auto done = co_await file.backend().write(file.request, file.file, args.offset, pieces,
                                              storage::stability(args.stable));
    if (!done)
        co_return co_await refuse(c, res, status_of(done.error()), res.file_wcc, file);
    res.file_wcc = to_wcc(done->file);
    res.count = done->count;
    res.committed = stable_how(done->committed);
    counters_.bytes_written.add(done->count);
    if (export_counters* const of_export = counters_of(c))
        of_export->bytes_written.add(done->count);
    co_return reply(c, res);
}

task<rpc::outcome> server::commit(rpc::call& c)
{
    COMMIT3args args;
    if (!read_arguments(c, args))
        co_return rpc::outcome::garbage_args;
    COMMIT3res res;
    target file;
    // Not purpose::changing: what was written before an export became read-only is still owed.
    res.status = open(c, args.file, purpose::reading, file);
    if (res.status != nfsstat3::ok)
        co_return reply(c, res);
    // A range that no file can have means the whole one: more is never wrong.
    const bool whole = args.offset > last_offset || args.count > last_offset - args.offset;
    auto done = co_await file.backend().commit(file.request, file.file, whole ? 0 : args.offset,
                                               whole ? 0 : args.count);
    if (!done)
        co_return co_await refuse(c, res, status_of(done.error()), res.file_wcc, file);
    res.file_wcc = to_wcc(*done);
    res.verf = to_verifier(file.backend().write_verifier());
    co_return reply(c, res);
}

} // namespace verbena::nfs::v3
