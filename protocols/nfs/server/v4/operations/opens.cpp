// SPDX-License-Identifier: Apache-2.0
// OPEN, OPEN_DOWNGRADE, CLOSE, DELEGRETURN.
#include "opens.hpp"
#include "limits.hpp"
#include "operations.hpp"
#include "steps.hpp"

#include <verbena/protocols/nfs/server/v4/storage_acl.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <cerrno>
#include <unistd.h>
#include <utility>

namespace verbena::nfs::v4::operations {

namespace {

// How often a name may come and go between a look and a creation.
constexpr int most_races = 8;

files::delegation_want want_of(std::uint32_t share_access) noexcept
{
    switch (share_access & share4::want_delegation_mask) {
    case share4::want_no_preference:
    case share4::want_any_delegation: return files::delegation_want::any;
    case share4::want_read_delegation: return files::delegation_want::read;
    case share4::want_write_delegation: return files::delegation_want::write;
    default: return files::delegation_want::none;
    }
}

files::delegation_want reclaimed_want(open_delegation_type4 had) noexcept
{
    switch (had) {
    case open_delegation_type4::read: return files::delegation_want::read;
    case open_delegation_type4::write: return files::delegation_want::write;
    default: return files::delegation_want::none;
    }
}

why_no_delegation4 why_of(files::no_delegation why) noexcept
{
    switch (why) {
    case files::no_delegation::not_wanted: return why_no_delegation4::not_wanted;
    case files::no_delegation::contention: return why_no_delegation4::contention;
    case files::no_delegation::no_upgrade: return why_no_delegation4::not_supp_upgrade;
    case files::no_delegation::no_downgrade: return why_no_delegation4::not_supp_downgrade;
    case files::no_delegation::not_callable:
    case files::no_delegation::resource:
    case files::no_delegation::unsuited: break;
    }
    return why_no_delegation4::resource;
}

open_delegation4 delegation_of(const files::opened& opened, std::uint32_t share_access) noexcept
{
    open_delegation4 out;
    if (const auto& granted = opened.delegation) {
        const bool writes = granted->type == files::delegation_type::write;
        return delegation4_of(writes ? open_delegation_type4::write : open_delegation_type4::read,
                              to_wire(granted->id), granted->recalled);
    }
    // An open that says what it wants is told why there is none, one that doesn't is not (8881 18.16.3).
    if ((share_access & share4::want_delegation_mask) == share4::want_no_preference)
        return out;
    out.delegation_type = open_delegation_type4::none_ext;
    const bool cancels = (share_access & share4::want_delegation_mask) == share4::want_cancel;
    out.why = cancels ? why_no_delegation4::cancelled : why_of(opened.why);
    return out;
}

} // namespace

open_delegation4 delegation4_of(open_delegation_type4 type, const stateid4& id, bool recalled) noexcept
{
    open_delegation4 out;
    out.delegation_type = type;
    if (type == open_delegation_type4::none)
        return out;
    out.stateid = id;
    out.recall = recalled;
    // Nothing is set aside for what the client keeps to itself; it hears of a full disk when it writes back.
    out.space_limit.filesize = UINT64_MAX;
    return out;
}

namespace {

// What is to be opened, once it is there.
struct open_target {
    object file;
    change_info4 directory;
    bitmap4 attrset;
    bool created = false;            // whoever makes a file may open it, whatever its mode
    std::optional<changeid4> change; // attribute, if it is known
    bool truncates = false;
    bool by_delegation = false; // found by that, and not by name
    std::shared_ptr<const storage::open_file> opened;
};

task<nfsstat4> open_target_for(open_target& to, files::share access)
{
    object& file = to.file;
    unsigned wanted = any(access & files::share::read) ? R_OK : 0;
    if (any(access & files::share::write) || to.truncates)
        wanted |= W_OK;
    auto opened =
        co_await file.backend().open(file.request, file.file, wanted,
                                     to.created ? storage::open_right::granted : storage::open_right::asked);
    // What has just been made is open all the same: a client whose creation came to nothing would find its own file when it tries again.
    if (!opened && to.created && opened.error().errno_value() != ESTALE)
        co_return nfsstat4::ok;
    if (!opened) {
        const nfsstat4 status = status_of_storage(opened.error());
        co_return co_await refuse_data(file, status);
    }
    to.opened = std::move(opened->file);
    to.change = change_of(opened->attrs);
    file.type = opened->attrs.type;
    co_return nfsstat4::ok;
}

// Its name is gone, as after a removal on this host. The client has opened it all the same, by its delegation.
task<nfsstat4> find_by_delegation(compound& k, const stateid4& id, open_target& to)
{
    const files::exported_file name = co_await k.server.state.file_of_delegation(k.client, to_state(id));
    const auto wire = sign_state_file(k.server.commons.key, name);
    object found;
    const nfsstat4 status = wire ? k.server.handles.find(k.c, wire->bytes(), found) : nfsstat4::noent;
    if (status == nfsstat4::delay) // its caller's groups are not known any more: the next PUTFH asks for them
        co_return status;
    if (status != nfsstat4::ok || found.exported != k.current.exported)
        co_return nfsstat4::noent;
    to.file = found;
    to.by_delegation = true;
    co_return nfsstat4::ok;
}

// An existing file, by its name or by the current handle.
task<nfsstat4> find_to_open(compound& k, const OPEN4args& args, open_target& to)
{
    const object directory = k.current;
    if (args.claim.claim == open_claim_type4::null || args.claim.claim == open_claim_type4::delegate_cur) {
        // Seen before the name was: a name that came or went since changes it once more.
        std::optional<storage::attributes> searched;
        nfsstat4 status =
            co_await k.server.handles.find_child(k.c, directory, args.claim.file, to.file, &searched);
        if (status == nfsstat4::noent && args.claim.claim == open_claim_type4::delegate_cur &&
            !directory.is_pseudo()) {
            task<nfsstat4> finding = find_by_delegation(k, args.claim.delegate_stateid, to);
            status = co_await finding;
        }
        if (status != nfsstat4::ok) // SYMLINK would say that of the name
            co_return status == nfsstat4::symlink ? nfsstat4::notdir : status;
        if (to.file.is_pseudo())
            co_return nfsstat4::isdir;
        if (!directory.is_pseudo() && !searched) {
            if (const auto attrs = co_await directory.backend().getattr(directory.request, directory.file))
                searched = *attrs;
        }
        if (searched) {
            to.directory.before = to.directory.after = change_of(*searched);
            to.directory.atomic = true; // one look, and nothing is changed
        }
    } else {
        to.file = directory;
        if (directory.is_pseudo())
            co_return nfsstat4::isdir;
    }
    co_return nfsstat4::ok;
}

// Of a file that was just made, and then refused: nothing is to be left of it. But another file that has its name by
// now is, and so is what somebody else has opened meanwhile.
task<void> unmake(server_parts& server, const object& directory, std::string_view name,
                  const storage::handle& file)
{
    files::under_way removing;
    if (server.state.begin(removing, server.under_way, directory.exported->space, file,
                           files::operation::remove))
        co_return;
    storage::request request = directory.request;
    request.victim = &file;
    // For back ends that do not know of a victim.
    const auto found = co_await directory.backend().lookup(request, directory.file, name);
    if (found && found->found.handle == file)
        (void)co_await directory.backend().remove(request, directory.file, name);
}

// What was found by name was stale. Mostly somebody removed it between the two: then the name leads elsewhere by now,
// or nowhere, and the client, which knows no handle that would be stale, tries again (delay). Where the name still
// leads to it the file is broken, and will be: whoever came again would do so for ever.
task<nfsstat4> status_of_stale(compound& k, std::string_view name, const object& file)
{
    object again;
    const nfsstat4 status = co_await k.server.handles.find_child(k.c, k.current, name, again);
    const bool is_same = status == nfsstat4::ok && again.exported == file.exported && again.file == file.file;
    co_return is_same || status == nfsstat4::stale ? nfsstat4::stale : nfsstat4::delay;
}

task<nfsstat4> create_to_open(compound& k, const OPEN4args& args, open_target& to)
{
    const openflag4& how = args.openhow;
    const bool exclusive = how.mode == createmode4::exclusive || how.mode == createmode4::exclusive4_1;
    const bitmap4& settable = exclusive ? attributes_for_exclusive : settable_at_creation;
    attributes wanted;
    storage::set_attributes set;
    storage::access_list acl;
    nfsstat4 status = compound::check_file(k.current, purpose::changing);
    // Where there are layouts a client asks for EXCLUSIVE4_1, so that no verifier lies in the times (8881 18.16.3).
    if (status == nfsstat4::ok && how.mode == createmode4::exclusive && k.minor() != 0 &&
        k.server.commons.pnfs != nullptr && has_layouts(k.current))
        status = nfsstat4::inval;
    // What suppattr_exclcreat leaves out is INVAL, be it supported elsewhere or not (8881 18.16.3).
    if (status == nfsstat4::ok && exclusive &&
        !how.attrs.attrmask.is_subset_of(settable & k.supported(k.current)))
        status = nfsstat4::inval;
    if (status == nfsstat4::ok)
        status = decode_settable(how.attrs, k.supported(k.current), settable, wanted);
    if (status == nfsstat4::ok)
        status = from_settable(wanted, set, acl);
    if (status == nfsstat4::badowner && k.server.names.may_be_said()) {
        task<nfsstat4> naming = k.server.names.to_settable(k.waits, wanted, set, acl);
        status = co_await naming;
    }
    if (status == nfsstat4::ok)
        status = check_name(args.claim.file);
    if (status != nfsstat4::ok)
        co_return status;
    const object directory = k.current;
    storage::file_backend& files = directory.backend();
    storage::handle stale;
    for (int race = 0; race < most_races; ++race) {
        // Of a file that is there UNCHECKED sets the size alone, and only to 0 (8881 18.16.3).
        if (how.mode == createmode4::unchecked) {
            status = co_await find_to_open(k, args, to);
            if (status == nfsstat4::ok)
                to.truncates = set.size == 0;
            if (status != nfsstat4::noent)
                co_return status;
        }
        // Else the file would be there and the client would not have it: a GUARDED one that comes again would find its own.
        const result<void> promised =
            co_await k.server.state.promise_open(k.client, args.owner.owner, files::share(args.share_deny));
        if (!promised) {
            tell_limit(k, promised.error());
            co_return status_of_state(promised.error());
        }
        const auto mode = exclusive ? storage::create_mode::exclusive : storage::create_mode::guarded;
        const auto made = co_await files.create(directory.request, directory.file, args.claim.file, mode, set,
                                                xdr::load_u64(how.verf.data()));
        if (!made && made.error().errno_value() == EEXIST && how.mode == createmode4::unchecked)
            continue;
        if (!made)
            co_return status_of_setting(made.error(), set);
        to.file = directory.other(made->made.handle, made->made.attrs);
        to.directory = to_change_info(made->directory);
        // A repeat by somebody else, who has read the verifier in the times, opens the file as any other.
        to.created =
            !made->existed || (made->made.attrs && made->made.attrs->uid == directory.request.who.uid);
        if (to.created)
            to.attrset = set_at_creation(how.attrs.attrmask, set, made->made.attrs);
        if (made->made.attrs)
            to.change = change_of(*made->made.attrs);
        if (!exclusive || !to.created)
            co_return nfsstat4::ok;
        storage::set_attributes rest = set;
        // It was made with the mode that the umask and the directory's ACL leave.
        if (rest.umask)
            rest.mode.reset();
        // As in the other modes.
        if (directory.request.who.uid != 0)
            rest.uid.reset();
        // Somebody may have opened the file meanwhile, or before a creation that is repeated.
        files::under_way setting;
        if (k.server.state.begin(setting, k.server.under_way, directory.exported->space, to.file.file,
                                 files::operation::set_attributes)) {
            status = co_await make_way(k, to.file, files::operation::set_attributes);
            if (status != nfsstat4::ok)
                co_return status;
        }
        // The back end has kept the verifier, perhaps in the times: the client hears that these are not its own yet.
        const auto done = co_await files.setattr(to.file.request, to.file.file, rest, std::nullopt);
        // Somebody has removed it: it is made again. Where it is there the second time it is broken.
        if (!done && done.error().errno_value() == ESTALE) {
            if (to.file.file == stale)
                co_return nfsstat4::stale;
            stale = to.file.file;
            continue;
        }
        if (!done) {
            if (!made->existed)
                co_await unmake(k.server, directory, args.claim.file, to.file.file);
            co_return status_of_setting(done.error(), set);
        }
        to.attrset = set_at_creation(how.attrs.attrmask, set, done->after);
        to.change = done->after ? std::optional(change_of(*done->after)) : std::nullopt;
        to.attrset.set(attribute::time_access);
        to.attrset.set(attribute::time_modify);
        co_return nfsstat4::ok;
    }
    co_return nfsstat4::delay;
}

} // namespace

task<nfsstat4> open(compound& k)
{
    OPEN4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    OPEN4res res;
    const nfsstat4 status = co_await open_file(k, args, res);
    co_return status == nfsstat4::ok ? k.add(res) : status;
}

task<nfsstat4> open_file(compound& k, const OPEN4args& args, OPEN4res& res)
{
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    const std::uint32_t access_bits = args.share_access & ~share4::want_all;
    if (access_bits == 0 || access_bits > share4::access_both || args.share_deny > share4::deny_both)
        co_return nfsstat4::inval;
    // What the client opened by itself under its delegation was there, as an UNCHECKED creation finds it (8881 10.4.1).
    const bool opens_by_itself = args.claim.claim == open_claim_type4::delegate_cur;
    nfsstat4 status = nfsstat4::ok;
    switch (args.claim.claim) {
    case open_claim_type4::null: break;
    case open_claim_type4::fh: // only a name can be created (8881 18.16.3)
    case open_claim_type4::previous:
        status = args.openhow.opentype == opentype4::create ? nfsstat4::inval : nfsstat4::ok;
        break;
    case open_claim_type4::delegate_cur:
    case open_claim_type4::deleg_cur_fh:
        status = args.openhow.opentype == opentype4::create && !opens_by_itself ? nfsstat4::inval
                 : args.claim.delegate_stateid.is_reserved()                    ? nfsstat4::bad_stateid
                                                                                : nfsstat4::ok;
        break;
    case open_claim_type4::delegate_prev:
    case open_claim_type4::deleg_prev_fh: status = nfsstat4::notsupp; break;
    }
    if (status == nfsstat4::ok)
        status = k.check_room<OPEN4res>();
    files::open_request request;
    request.client = k.client;
    request.owner = args.owner.owner;
    request.access = files::share(access_bits);
    request.deny = files::share(args.share_deny);
    request.want = files::delegation_want::none;
    if (args.claim.claim == open_claim_type4::previous)
        request.claim = files::open_claim::reclaim;
    if (args.claim.claim == open_claim_type4::delegate_cur ||
        args.claim.claim == open_claim_type4::deleg_cur_fh) {
        request.claim = files::open_claim::under_delegation;
        request.delegation = to_state(args.claim.delegate_stateid);
    }
    const bool by_name =
        args.claim.claim == open_claim_type4::null || args.claim.claim == open_claim_type4::delegate_cur;
    open_target to;
    if (status == nfsstat4::ok) {
        // It is not cut again either: the client has written to it since.
        const bool creates = args.openhow.opentype == opentype4::create && !opens_by_itself;
        task<nfsstat4> finding = creates ? create_to_open(k, args, to) : find_to_open(k, args, to);
        status = co_await finding;
        const bool wants_new =
            args.openhow.opentype == opentype4::create && args.openhow.mode != createmode4::unchecked;
        if (status == nfsstat4::ok && !creates && wants_new)
            status = nfsstat4::exist;
    }
    if (status == nfsstat4::ok)
        status = compound::check_file(to.file, any(request.access & files::share::write) ? purpose::changing
                                                                                         : purpose::reading);
    if (status == nfsstat4::ok)
        status = co_await open_target_for(to, request.access);
    if (status == nfsstat4::stale && by_name && !to.by_delegation) {
        status = co_await status_of_stale(k, args.claim.file, to.file);
        if (status == nfsstat4::stale)
            status = co_await open_target_for(to, request.access);
    }
    if (status != nfsstat4::ok)
        co_return status;
    request.file = to.file.state_file();
    request.opened = to.opened;
    request.promised = to.created;
    request.truncates = to.truncates;
    request.change = to.change;
    request.hears_of_locks = k.session && k.session->back().is_up();
    // Where it can't be recalled, or would not be for all who change the file, none is given. Local processes are made to wait by a lease,
    // under which there is none to write.
    const bool is_shared = to.file.exported->local_writers;
    request.leased = is_shared && to.file.backend().info().leases;
    // In minor version 0 the state layer knows by itself who can be called.
    const bool may_delegate = k.minor() == 0 ? k.may_delegate : k.session && k.session->back().is_up();
    if (request.claim == files::open_claim::fresh && (!is_shared || request.leased) && may_delegate)
        request.want = want_of(args.share_access);
    // What a client had before a restart it has, whatever we like (8881 10.2.1): it may be recalled at once. What it has changed
    // since nobody knows, so it is not asked for attributes.
    if (request.claim == files::open_claim::reclaim) {
        if (k.minor() != 0 || k.may_delegate)
            request.want = reclaimed_want(args.claim.delegate_type);
        request.gives_back = is_shared && !request.leased;
        request.change.reset();
    }
    state_home::opening opening = {&to.file.backend(), to.file.request, to.file.file, to.file.exported->space,
                                   &k.server.under_way};
    opening.request.open = to.opened.get();
    result<files::opened> opened = co_await k.server.state.open(request, opening);
    if (!opened && by_name && !to.by_delegation && opened.error().errno_value() == ESTALE)
        co_return co_await status_of_stale(k, args.claim.file, to.file);
    if (!opened && opened.error().code().category() != files::files_category())
        co_return status_of_storage(opened.error());
    if (!opened) {
        tell_limit(k, opened.error());
        co_return status_of_state(opened.error());
    }
    // A reload has come between, which may let the caller in no more: it takes what it finds, and may have been here before this was given.
    if (opened->delegation && k.server.commons.exports.by_id(to.file.exported->id) != &*to.file.exported) {
        (void)co_await k.server.state.return_delegation(k.client, opened->delegation->id, request.file);
        opened->delegation.reset();
        opened->why = files::no_delegation::contention;
    }
    k.set_current(std::move(to.file));
    res.stateid = to_wire(opened->id);
    k.current_id = res.stateid;
    res.cinfo = to.directory;
    res.rflags = open4_result::locktype_posix;
    if (request.hears_of_locks)
        res.rflags |= open4_result::may_notify_lock;
    res.attrset = to.attrset;
    if (to.truncates)
        res.attrset.set(attribute::size);
    if (request.want == files::delegation_want::none &&
        want_of(args.share_access) != files::delegation_want::none)
        opened->why = files::no_delegation::unsuited;
    res.delegation = delegation_of(*opened, args.share_access);
    co_return nfsstat4::ok;
}

task<nfsstat4> open_downgrade(compound& k)
{
    OPEN_DOWNGRADE4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = k.need_file_of_state();
    if (status == nfsstat4::ok)
        status = k.resolve_with_number(args.open_stateid);
    const std::uint32_t access_bits = args.share_access & ~share4::want_all;
    if (status == nfsstat4::ok &&
        (access_bits == 0 || access_bits > share4::access_both || args.share_deny > share4::deny_both))
        status = nfsstat4::inval;
    if (status == nfsstat4::ok && args.open_stateid.is_reserved())
        status = nfsstat4::bad_stateid;
    if (status == nfsstat4::ok)
        status = k.check_room<OPEN_DOWNGRADE4res>();
    if (status != nfsstat4::ok)
        co_return status;
    const files::exported_file file = k.current.state_file();
    const files::stateid id = to_state(args.open_stateid);
    const auto done = co_await k.server.state.downgrade(k.client, id, file, files::share(access_bits),
                                                        files::share(args.share_deny));
    if (!done)
        co_return status_of_state(done.error());
    OPEN_DOWNGRADE4res res;
    res.open_stateid = to_wire(*done);
    k.current_id = res.open_stateid;
    co_return k.add(res);
}

task<nfsstat4> close(compound& k)
{
    CLOSE4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = k.need_file_of_state();
    if (status == nfsstat4::ok)
        status = k.resolve_with_number(args.open_stateid);
    if (status == nfsstat4::ok && args.open_stateid.is_reserved())
        status = nfsstat4::bad_stateid;
    if (status == nfsstat4::ok)
        status = k.check_room<CLOSE4res>();
    if (status != nfsstat4::ok)
        co_return status;
    const files::exported_file file = k.current.state_file();
    const files::stateid id = to_state(args.open_stateid);
    files::back_end_locks unsettled;
    const result<void> closed = co_await k.server.state.close(k.client, id, file, &unsettled);
    if (unsettled)
        co_await k.server.state.settle(file.key, unsettled);
    if (!closed)
        co_return status_of_state(closed.error());
    k.current_id.reset();
    CLOSE4res res;
    res.open_stateid = stateid4::invalid();
    co_return k.add(res);
}

task<nfsstat4> delegreturn(compound& k)
{
    DELEGRETURN4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = k.need_file_of_state();
    if (status == nfsstat4::ok)
        status = k.resolve(args.deleg_stateid);
    if (status == nfsstat4::ok && args.deleg_stateid.is_reserved())
        status = nfsstat4::bad_stateid;
    if (status == nfsstat4::ok)
        status = k.check_room<DELEGRETURN4res>();
    if (status != nfsstat4::ok)
        co_return status;
    const files::exported_file file = k.current.state_file();
    if (k.minor() == 0) {
        status = co_await k.server.commons.v40.return_delegation(args.deleg_stateid, file);
    } else {
        const files::stateid id = to_state(args.deleg_stateid);
        const result<void> returned = co_await k.server.state.return_delegation(k.client, id, file);
        status = status_of_state(returned);
    }
    co_return status == nfsstat4::ok ? k.add(DELEGRETURN4res()) : status;
}

} // namespace verbena::nfs::v4::operations
