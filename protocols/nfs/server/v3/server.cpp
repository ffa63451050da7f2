// SPDX-License-Identifier: Apache-2.0
#include "../refused_access.hpp"
#include "reply.hpp"

#include <algorithm>

namespace verbena::nfs::v3 {

void server::begin_counting(rpc::call& c, const export_options& of) noexcept
{
    export_counters* const counters = c.noted() == nullptr ? of.counters(index_) : nullptr;
    if (counters == nullptr)
        return;
    c.note(counters);
    switch (procedure(c.header().procedure)) {
    case procedure::read: counters->reads.add(); break;
    case procedure::write: counters->writes.add(); break;
    default: counters->others.add(); break;
    }
}

void server::count_read(const rpc::call& c, std::uint32_t bytes) noexcept
{
    counters_.bytes_read.add(bytes);
    if (export_counters* const of_export = counters_of(c))
        of_export->bytes_read.add(bytes);
}

void server::count_error(const rpc::call& c, nfsstat3 status) noexcept
{
    counters_.errors.note(c.header().procedure, static_cast<std::uint32_t>(status));
    export_counters* const of_export = counters_of(c);
    if (of_export == nullptr)
        return;
    // By the rule of a reload since the call began.
    const auto is_read_only_now = [&] {
        if (of_export->exported.empty())
            return false;
        const export_options* const now = exports_.by_id(export_id_of(of_export->exported));
        return now == nullptr || now->read_only;
    };
    const auto note = [&](export_failure why) {
        note_failure(*of_export, why, c, to_string(procedure(c.header().procedure)));
    };
    switch (status) {
    case nfsstat3::nospc: return note(export_failure::space);
    case nfsstat3::dquot: return note(export_failure::quota);
    case nfsstat3::io:
    case nfsstat3::nxio: return note(export_failure::io);
    case nfsstat3::rofs:
        if (!is_read_only_now())
            note(export_failure::read_only);
        return;
    default: return;
    }
}

std::uint32_t server::number() const noexcept { return v3::program; }
std::uint32_t server::low_version() const noexcept { return v3::version; }
std::uint32_t server::high_version() const noexcept { return v3::version; }

std::string_view server::procedure_name(std::uint32_t of_version, std::uint32_t number) const noexcept
{
    if (of_version != version || number >= procedure_count)
        return {};
    return to_string(procedure(number));
}

bool server::non_idempotent(std::uint32_t of_version, std::uint32_t number) const noexcept
{
    if (of_version != version)
        return false;
    switch (procedure(number)) {
    case procedure::setattr:
    case procedure::create:
    case procedure::mkdir:
    case procedure::symlink:
    case procedure::mknod:
    case procedure::remove:
    case procedure::rmdir:
    case procedure::rename:
    case procedure::link: return true;
    default: return false;
    }
}

// A WRITE may be repeated, but not behind a later one: a slow first run that ends after the client has its reply to the repeat,
// and has written again, would put old bytes back. It isn't answered from memory, which would lose a WRITE that only looks like
// another one: to tell them apart takes all their data.
bool server::repeats_in_turn(std::uint32_t of_version, std::uint32_t number) const noexcept
{
    return of_version == version && procedure(number) == procedure::write;
}

task<rpc::outcome> server::end_with(rpc::outcome outcome) { co_return outcome; }

task<rpc::outcome> server::serve(rpc::call& c) { return must_learn(c) ? learn_and_run(c) : run(c); }

// Whoever may do nothing here has nothing looked up: lookups take long, and there are not many at once.
bool server::must_learn(rpc::call& c)
{
    const auto what = procedure(c.header().procedure);
    if (exports_.groups() == nullptr || what == procedure::null || what > procedure::commit ||
        !groups_.lacks(c.who(), *exports_.groups()))
        return false;
    xdr::decoder ahead = c.args();
    nfs_fh3 handle;
    decode(ahead, handle);
    if (ahead.ok() && opens_with_groups(c, handle))
        return true;
    // Two procedures have another one behind it, which may be of another export.
    if (what == procedure::rename) {
        RENAME3args both;
        ahead = c.args();
        decode(ahead, both);
        handle = both.to.dir;
    } else if (what == procedure::link) {
        LINK3args both;
        ahead = c.args();
        decode(ahead, both);
        handle = both.link.dir;
    } else {
        return false;
    }
    return ahead.ok() && opens_with_groups(c, handle);
}

bool server::opens_with_groups(const rpc::call& c, const nfs_fh3& handle)
{
    const auto opened = open_handle(key_, handle.bytes());
    const export_options* const exported = opened ? exports_.by_id(opened->export_id) : nullptr;
    return exported != nullptr && caller_groups::matter(*exported, c.who()) &&
           check_access(*exported, c.from(), host_) == access_refusal::none;
}

// Where they are not known enter() says so, in the form that the procedure's results have.
task<rpc::outcome> server::learn_and_run(rpc::call& c)
{
    task<void> learning = groups_.learn(c, *exports_.groups());
    co_await learning;
    task<rpc::outcome> running = run(c);
    co_return co_await running;
}

task<rpc::outcome> server::run(rpc::call& c)
{
    switch (procedure(c.header().procedure)) {
    case procedure::null: return end_with(rpc::outcome::success);
    case procedure::getattr: return getattr(c);
    case procedure::setattr: return setattr(c);
    case procedure::lookup: return lookup(c);
    case procedure::access: return access(c);
    case procedure::readlink: return readlink(c);
    case procedure::read: return read(c);
    case procedure::write: return write(c);
    case procedure::create: return create(c);
    case procedure::mkdir: return mkdir(c);
    case procedure::symlink: return symlink(c);
    case procedure::mknod: return mknod(c);
    case procedure::remove: return remove(c);
    case procedure::rmdir: return rmdir(c);
    case procedure::rename: return rename(c);
    case procedure::link: return link(c);
    case procedure::readdir: return readdir(c);
    case procedure::readdirplus: return readdirplus(c);
    case procedure::fsstat: return fsstat(c);
    case procedure::fsinfo: return fsinfo(c);
    case procedure::pathconf: return pathconf(c);
    case procedure::commit: return commit(c);
    }
    return end_with(rpc::outcome::proc_unavail);
}

nfsstat3 server::status_of(const error& failure) noexcept
{
    if (failure == storage::errc::crosses_mount)
        counters_.refused_mount.add();
    return to_status(failure);
}

nfsstat3 server::open(rpc::call& c, const nfs_fh3& handle, purpose why, target& to)
{
    const nfsstat3 status = find(c, handle, why, to);
    // Who may not use an export must not push out what is kept for those who may.
    if (status != nfsstat3::ok) {
        c.refuse();
        if (status == nfsstat3::rofs)
            c.note(nullptr); // by the rule of this export: the file system of an earlier handle did not fail
    } else {
        begin_counting(c, *to.exported);
        c.set_detail(&to); // of the procedure's frame
    }
    return status;
}

nfsstat3 server::open_outside_grace(rpc::call& c, const nfs_fh3& handle, purpose why, target& to)
{
    const nfsstat3 status = open(c, handle, why, to);
    return status == nfsstat3::ok && is_in_grace() ? nfsstat3::jukebox : status;
}

nfsstat3 server::open_for_io(rpc::call& c, const nfs_fh3& handle, files::operation op, target& to)
{
    const nfsstat3 status =
        open(c, handle, op == files::operation::read ? purpose::reading : purpose::changing, to);
    return status == nfsstat3::ok && is_in_grace(op) ? nfsstat3::jukebox : status;
}

nfsstat3 server::find(const rpc::call& c, const nfs_fh3& handle, purpose why, target& to)
{
    const auto opened = open_handle(key_, handle.bytes());
    if (!opened) {
        counters_.refused_handle.add();
        return nfsstat3::badhandle;
    }
    const export_options* const exported = exports_.by_id(opened->export_id);
    if (exported == nullptr) {
        counters_.refused_export.add();
        return nfsstat3::stale;
    }
    to.lists = exports_.begin_use();
    to.exported = *exported;
    const nfsstat3 status = enter(c, to);
    if (status != nfsstat3::ok)
        return status;
    if (why == purpose::changing && to.exported->read_only) {
        counters_.refused_read_only.add();
        tell_read_only(*to.exported, c.from());
        return nfsstat3::rofs;
    }
    to.file = opened->inner;
    if (covered_.is_settling(*to.exported))
        return nfsstat3::jukebox;
    // Whoever has a handle from before looks its name up again, and gets the other export's.
    if (covered_.at(*to.exported, to.file) != nullptr) {
        counters_.refused_export.add();
        return nfsstat3::stale;
    }
    return nfsstat3::ok;
}

task<nfsstat3> server::open_root(rpc::call& c, const export_options& exported, target& to)
{
    to.lists = exports_.begin_use();
    to.exported = exported;
    to.file = to.backend().root();
    // Found before a reload took it away: from then on nobody begins anything there.
    const auto enter_if_there = [&] {
        return exports_.by_id(to.exported->id) == nullptr ? nfsstat3::stale : enter(c, to);
    };
    nfsstat3 status = enter_if_there();
    // Groups may not matter in the export that the call came by.
    if (status == nfsstat3::jukebox) {
        task<void> learning = groups_.learn(c, *exports_.groups());
        co_await learning;
        status = enter_if_there();
    }
    if (status != nfsstat3::ok)
        c.refuse();
    co_return status;
}

// Of an export that is in the list of now. Again for each call: a handle says what a peer may have learnt, not that it may use it.
nfsstat3 server::enter(const rpc::call& c, target& to)
{
    if (const auto refusal = check_access(*to.exported, c.from(), host_); refusal != access_refusal::none) {
        counters_.refused.note(refusal);
        tell_access(refusal, *to.exported, c.from());
        return nfsstat3::acces;
    }
    switch (groups_.act(*to.exported, c, exports_.groups(), to.request.who)) {
    case groups_standing::known: break;
    case groups_standing::later: return nfsstat3::jukebox;
    case groups_standing::refused: return nfsstat3::serverfault;
    }
    to.request.client = c.from().address;
    return nfsstat3::ok;
}

const export_options* server::nested_at(const target& directory, std::string_view name) const noexcept
{
    const export_options* const inner = exports_.nested(*directory.exported, name);
    return inner != nullptr && directory.file == directory.backend().root() ? inner : nullptr;
}

task<const export_options*> server::covering(const target& directory, const storage::entry& found)
{
    if (found.attrs && found.attrs->type != storage::file_type::directory)
        co_return nullptr;
    co_await covered_.look(*directory.exported);
    co_return covered_.at(*directory.exported, found.handle);
}

// Moved elsewhere, what another export covers would be reached by this one's rules.
task<nfsstat3> server::may_change(rpc::call& c, const target& directory, std::string_view name)
{
    bool stays = nested_at(directory, name) != nullptr;
    if (!stays && exports_.has_nested(*directory.exported)) {
        co_await covered_.look(*directory.exported);
        if (covered_.is_above(*directory.exported, directory.file)) {
            const auto found = co_await directory.backend().lookup(directory.request, directory.file, name);
            stays = found && covered_.must_stay(*directory.exported, found->found.handle);
        }
    }
    if (!stays)
        co_return nfsstat3::ok;
    c.refuse();
    co_return nfsstat3::acces;
}

bool server::is_in_grace() const noexcept { return state_ != nullptr && state_->is_in_grace(); }

bool server::is_in_grace(files::operation op) const noexcept
{
    return state_ != nullptr && state_->is_in_grace(files::access_of(op));
}

bool server::begin(files::under_way& doing, const target& of, files::operation op) noexcept
{
    return state_ != nullptr && state_->begin(doing, *under_way_, of.exported->space, of.file, op);
}

task<nfsstat3> server::make_way(rpc::call& c, const target& of, files::operation op)
{
    const files::exported_file file(files::file_key(of.exported->space, of.file), of.exported->id);
    const result<void> made = co_await state_->make_way(files::nobody, file, op);
    co_return made ? nfsstat3::ok : refuse_way(c, made.error());
}

nfsstat3 server::refuse_way(rpc::call& c, const error& why) noexcept
{
    c.refuse(); // nothing was changed
    if (why.code().category() != files::files_category())
        return nfsstat3::jukebox; // the state layer's shard has stopped
    switch (files::errc(why.code().value())) {
    case files::errc::in_way:
    case files::errc::busy:
    case files::errc::grace: return nfsstat3::jukebox;
    case files::errc::removal_denied:
    case files::errc::locked: return nfsstat3::acces; // an open of version 4 denies it
    default: return nfsstat3::serverfault;
    }
}

// The same for what has a name, if something has: whoever changes the directory finds out by himself. Another file may get the name
// between this and that; it is not asked about then.
task<nfsstat3> server::make_way_to(rpc::call& c, const target& directory, std::string_view name,
                                   files::operation op, files::under_way& doing,
                                   std::function<task<result<void>>()> may,
                                   std::optional<storage::handle>* asked)
{
    if (state_ == nullptr || name == "." || name == "..")
        co_return nfsstat3::ok;
    if (!state_->begin_by_name(doing, *under_way_, op))
        co_return nfsstat3::ok;
    auto found = co_await directory.backend().lookup(directory.request, directory.file, name);
    if (!found) {
        if (asked != nullptr && found.error().errno_value() == ENOENT)
            asked->emplace();
        co_return nfsstat3::ok;
    }
    target file = directory;
    file.file = found->found.handle;
    if (asked != nullptr)
        *asked = file.file;
    if (!begin(doing, file, op))
        co_return nfsstat3::ok;
    // What is refused anyway costs nobody what he has: a client that is silent would lose all of it.
    if (may != nullptr) {
        task<result<void>> asking = may();
        const result<void> allowed = co_await asking;
        if (!allowed)
            co_return status_of(allowed.error());
    }
    co_return co_await make_way(c, file, op);
}

post_op_fh3 server::sign(const export_options& exported, const storage::handle& inner) const noexcept
{
    nfs_fh3 wire;
    const auto made = sign_handle(key_, exported.id, inner);
    if (!made || !wire.assign(made->bytes()))
        return std::nullopt;
    return wire;
}

task<post_op_attr> server::attributes_of(const target& of)
{
    auto attrs = co_await of.backend().getattr(of.request, of.file);
    post_op_attr out;
    if (attrs)
        out = to_fattr3(*attrs);
    co_return out;
}

} // namespace verbena::nfs::v3
