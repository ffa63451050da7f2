// SPDX-License-Identifier: Apache-2.0
// What only minor version 0 has, or has otherwise: SETCLIENTID and its confirmation, RENEW, and what has the numbers of
// owners.
#include "../compounds.hpp"
#include "limits.hpp"
#include "locks.hpp"
#include "opens.hpp"
#include "operations.hpp"
#include "steps.hpp"

#include <verbena/core/siphash.hpp>

#include <type_traits>
#include <utility>

namespace verbena::nfs::v4::operations {

namespace {

constexpr std::uint32_t any_access = share4::access_both;

bool is_share(std::uint32_t access, std::uint32_t deny) noexcept
{
    return access != 0 && access <= any_access && deny <= share4::deny_both;
}

} // namespace

// --- Clients

task<nfsstat4> setclientid(compound& k)
{
    SETCLIENTID4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (const nfsstat4 room = k.check_room<SETCLIENTID4res>(); room != nfsstat4::ok)
        co_return room;
    // Whoever may use no export is not remembered.
    if (!k.server.handles.shows_anything_to(k.c.from())) {
        k.server.handles.refuse(k.c.from());
        co_return nfsstat4::perm;
    }
    const task_context& context = co_await current_context();
    if (k.server.commons.evicted.turns_away(args.id, k.c.from().address, context.shard->clock().now()))
        co_return nfsstat4::delay;
    const auto calls = callback_place::of(args, k.c.who(), k.c.from().address);
    v40_clients::made made = co_await k.server.commons.v40.set_client(args, caller_of(k.server.commons, k.c),
                                                                      k.c.from().address, calls);
    if (made.short_of != session_table::shortage::none) {
        const bool some = co_await k.server.commons.expire_lapsed_v40(made.short_of, k.c.from().address);
        if (some)
            made = co_await k.server.commons.v40.set_client(args, caller_of(k.server.commons, k.c),
                                                            k.c.from().address, calls);
    }
    if (made.short_of != session_table::shortage::none) {
        const bool of_peer = made.short_of == session_table::shortage::of_peer;
        k.server.counters.refused_limits.add(files::limited::clients,
                                             of_peer ? files::limit_of::peer : files::limit_of::all);
        tell_no_client(k, of_peer);
    }
    if (made.status != nfsstat4::ok && !made.held_by.empty())
        k.server.commons.note_shared_name(args.id, made.held_by, k.c.from().address);
    SETCLIENTID4res res;
    res.status = made.status;
    res.clientid = made.client;
    res.setclientid_confirm = made.confirm;
    res.client_using.netid = std::string_view(made.netid);
    res.client_using.addr = std::string_view(made.address);
    if (made.status != nfsstat4::ok && made.status != nfsstat4::clid_inuse)
        co_return made.status;
    const nfsstat4 added = k.add(res);
    if (added != nfsstat4::ok)
        co_return added;
    k.answered = made.status != nfsstat4::ok;
    co_return made.status;
}

task<nfsstat4> setclientid_confirm(compound& k)
{
    SETCLIENTID_CONFIRM4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (const nfsstat4 room = k.check_room<SETCLIENTID_CONFIRM4res>(); room != nfsstat4::ok)
        co_return room;
    const std::string group = k.server.commons.sessions.group_of(k.c.from().address);
    const std::uint64_t peer = siphash(k.server.commons.key, std::as_bytes(std::span(group)));
    v40_state::confirmed done = co_await k.server.commons.v40.confirm_client(
        args, caller_of(k.server.commons, k.c), peer, k.server.commons.evicted, k.c.from().address);
    if (done.is_full) {
        const bool some = co_await k.server.commons.expire_lapsed_of_any();
        if (some)
            done = co_await k.server.commons.v40.confirm_client(args, caller_of(k.server.commons, k.c), peer,
                                                                k.server.commons.evicted, k.c.from().address);
    }
    if (done.client != files::nobody)
        k.c.from().client = done.client;
    if (done.is_full)
        tell_no_client(k, false);
    if (!done.held_by.empty())
        k.server.commons.note_shared_name(std::as_bytes(std::span(done.name)), done.held_by,
                                          k.c.from().address);
    co_return done.status == nfsstat4::ok ? k.add(SETCLIENTID_CONFIRM4res()) : done.status;
}

task<nfsstat4> renew(compound& k)
{
    RENEW4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    const nfsstat4 status = co_await k.server.commons.v40.renew(args.clientid, k.c.from().client);
    co_return status == nfsstat4::ok ? k.add(RENEW4res()) : status;
}

task<nfsstat4> release_lockowner(compound& k)
{
    RELEASE_LOCKOWNER4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (const nfsstat4 room = k.check_room<RELEASE_LOCKOWNER4res>(); room != nfsstat4::ok)
        co_return room;
    const nfsstat4 status = co_await k.server.commons.v40.release_lock_owner(args);
    co_return status == nfsstat4::ok ? k.add(RELEASE_LOCKOWNER4res()) : status;
}

// --- Opens

namespace {

task<nfsstat4> run_open_v40(compound& k, const OPEN4args& args, OPEN4res& res)
{
    // What later minor versions put there is no share (7530 16.16.2).
    if (!is_share(args.share_access, args.share_deny))
        return answer_with(nfsstat4::inval);
    return open_file(k, args, res);
}

} // namespace

task<nfsstat4> open_v40(compound& k)
{
    OPEN4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    switch (args.claim.claim) {
    case open_claim_type4::null:
    case open_claim_type4::previous:
    case open_claim_type4::delegate_cur:
    case open_claim_type4::delegate_prev: break;
    case open_claim_type4::fh:
    case open_claim_type4::deleg_cur_fh:
    case open_claim_type4::deleg_prev_fh: co_return nfsstat4::badxdr;
    }
    if (args.openhow.opentype == opentype4::create && args.openhow.mode == createmode4::exclusive4_1)
        co_return nfsstat4::badxdr;
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    if (const nfsstat4 room = k.check_room<OPEN4res>(); room != nfsstat4::ok)
        co_return room;
    v40_state::begun turn = co_await k.server.commons.v40.begin_open(args);
    v40_answer answer = turn.answer;
    if (turn.runs) {
        const files::client_id known = std::exchange(k.client, turn.client);
        k.may_delegate = turn.may_delegate;
        OPEN4res res;
        const nfsstat4 status = co_await run_open_v40(k, args, res);
        answer.status = v40_status(nfs_opnum4::open, status);
        k.client = known;
        if (answer.status == nfsstat4::ok) {
            answer.id = res.stateid;
            answer.cinfo = res.cinfo;
            answer.rflags = res.rflags;
            answer.attrset = res.attrset;
            answer.delegation_type = res.delegation.delegation_type;
            answer.delegation = res.delegation.stateid;
            answer.delegation_recalled = res.delegation.recall;
            answer.export_id = k.current.exported->id;
            answer.file = k.current.file;
        }
        co_await k.server.commons.v40.end_open(turn, args, answer);
    } else if (answer.status == nfsstat4::ok) {
        // A repeat has the file again, as by its handle: what follows in the COMPOUND is about it.
        k.server.counters.replays.add();
        object opened;
        answer.status = k.server.handles.find_exported(k.c, answer.export_id, answer.file, opened);
        if (answer.status == nfsstat4::delay) {
            co_await k.server.handles.learn_groups(k.c);
            answer.status = k.server.handles.find_exported(k.c, answer.export_id, answer.file, opened);
        }
        if (answer.status == nfsstat4::ok)
            k.set_current(std::move(opened));
    }
    if (answer.status != nfsstat4::ok)
        co_return answer.status;
    // Wherever that comes from: a client may have several addresses, and is not to wait for what it has just been
    // given.
    if ((answer.rflags & open4_result::confirm) == 0)
        k.is_of(turn.client);
    OPEN4res res;
    res.stateid = answer.id;
    res.cinfo = answer.cinfo;
    res.rflags = answer.rflags;
    res.attrset = answer.attrset;
    res.delegation = delegation4_of(answer.delegation_type, answer.delegation, answer.delegation_recalled);
    co_return k.add(res);
}

namespace {

// What stands against an operation of an owner, and is said only where its number is right.
nfsstat4 refusal_v40(const compound& k, nfsstat4 room) noexcept
{
    const nfsstat4 status = k.need_file(purpose::reading);
    return v40_status(nfs_opnum4::illegal, status != nfsstat4::ok ? status : room);
}

template<class Args>
using owned = task<v40_answer> (v40_state::*)(const Args&, const files::exported_file&, nfsstat4);

// One that names its owner by a stateid, and is answered with one.
template<class Args, class Results>
task<nfsstat4> run_owned(compound& k, stateid4 Results::* id, owned<Args> what)
{
    Args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 refused = refusal_v40(k, k.check_room<Results>());
    if (refused == nfsstat4::nofilehandle)
        co_return refused;
    if (refused == nfsstat4::isdir && k.current.is_pseudo()) // nobody has anything open there
        refused = nfsstat4::bad_stateid;
    if constexpr (std::is_same_v<Args, OPEN_DOWNGRADE4args>) {
        if (refused == nfsstat4::ok && !is_share(args.share_access, args.share_deny))
            refused = nfsstat4::inval;
    }
    const files::exported_file file = k.file_of_current();
    const v40_answer answer = co_await (k.server.commons.v40.*what)(args, file, refused);
    Results res;
    res.*id = answer.id;
    co_return answer.status == nfsstat4::ok ? k.add(res) : answer.status;
}

} // namespace

task<nfsstat4> close_v40(compound& k) { return run_owned(k, &CLOSE4res::open_stateid, &v40_state::close); }

task<nfsstat4> open_confirm(compound& k)
{
    return run_owned(k, &OPEN_CONFIRM4res::open_stateid, &v40_state::confirm_open);
}

task<nfsstat4> open_downgrade_v40(compound& k)
{
    return run_owned(k, &OPEN_DOWNGRADE4res::open_stateid, &v40_state::downgrade);
}

// --- Locks

task<nfsstat4> locku_v40(compound& k) { return run_owned(k, &LOCKU4res::lock_stateid, &v40_state::unlock); }

task<nfsstat4> lock_v40(compound& k)
{
    LOCK4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 refused = refusal_v40(k, k.check_room<LOCK4res>());
    if (refused == nfsstat4::nofilehandle)
        co_return refused;
    if (refused == nfsstat4::ok)
        refused = v40_status(nfs_opnum4::lock, co_await need_regular(k.current));
    const files::exported_file file = k.file_of_current();
    const v40_answer answer = co_await k.server.commons.v40.lock(args, file, refused);
    LOCK4res res;
    res.lock_stateid = answer.id;
    co_return add_lock(k, res, answer.status, answer.holder.get());
}

} // namespace verbena::nfs::v4::operations
