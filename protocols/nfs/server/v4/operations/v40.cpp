// SPDX-License-Identifier: Apache-2.0
// Minor version 0: COMPOUND without a session, SETCLIENTID and its confirmation, RENEW, and what has the numbers of owners.
#include "../compound.hpp"

#include <algorithm>
#include <type_traits>

namespace verbena::nfs::v4 {

namespace {

// What a reply may take: the largest READ or listing, and what stands around it.
constexpr std::size_t largest_reply40 = server::max_transfer + server::max_listing;

constexpr std::uint32_t any_access = share4::access_both;

bool is_share(std::uint32_t access, std::uint32_t deny) noexcept
{
    return access != 0 && access <= any_access && deny <= share4::deny_both;
}

} // namespace

rpc::repeat_rule server::repeats(rpc::call& c) const noexcept
{
    if (c.header().procedure != std::uint32_t(procedure::compound))
        return rpc::repeat_rule::runs_again;
    return rule_of(c.args());
}

bool server::goes_on_alone(rpc::call& c) const noexcept
{
    return c.header().procedure == std::uint32_t(procedure::compound);
}

// By the first of its operations that decides.
rpc::repeat_rule server::rule_of(xdr::decoder ahead) const noexcept
{
    compound_arguments args(ahead);
    if (!args.ok() || args.head().minorversion != 0 || !commons_.minors[0])
        return rpc::repeat_rule::runs_again; // slots answer repeats
    while (args.index() < commons_.v40.most_operations() && args.next()) {
        const nfs_opnum4 operation = args.opcode();
        if (!is_operation(operation, 0))
            break;
        if (changes_something(operation))
            return operation == nfs_opnum4::write ? rpc::repeat_rule::runs_in_turn
                                                  : rpc::repeat_rule::is_answered;
        if (!args.visit([](const auto&) {}))
            break;
    }
    return rpc::repeat_rule::runs_again;
}

task<rpc::outcome> server::serve_v40(rpc::call& c, compound_arguments& args, const xdr::decoder* whole)
{
    const rpc::repeat_rule rule = rule_of(*whole);
    if (args.head().operations > commons_.v40.most_operations()) {
        compound_results results(c.results(), args.head().tag);
        results.refuse(nfsstat4::resource);
        co_return rpc::outcome::success;
    }
    const bool is_kept = rule == rpc::repeat_rule::is_answered;
    const std::size_t start = c.results().position();
    // What is not kept would be lost to a repeat.
    const std::size_t most = is_kept ? c.most_kept() - std::min(start, c.most_kept()) : largest_reply40;
    compound k(c, args, std::min(most, largest_reply40));
    k.kept = is_kept;
    k.whole = whole;
    task<void> running = run_operations(k);
    co_await running;
    // What was done is kept for a repeat, though nobody hears it now.
    if (k.dropped && !(k.changed && k.kept))
        co_return rpc::outcome::drop;
    co_return k.results.ok() ? rpc::outcome::success : rpc::outcome::system_error;
}

namespace {

// Whose COMPOUND it is: the first of its operations that says so.
struct named_client {
    std::optional<clientid4> number;
    std::optional<stateid4> id;

    void see(const stateid4& one)
    {
        if (!one.is_reserved())
            id = one;
    }
    template<class Args>
    void operator()(const Args& args)
    {
        if constexpr (std::is_same_v<Args, OPEN4args>)
            number = args.owner.clientid;
        else if constexpr (std::is_same_v<Args, DELEGRETURN4args>)
            see(args.deleg_stateid);
        else if constexpr (requires { args.open_stateid; })
            see(args.open_stateid);
        else if constexpr (std::is_same_v<Args, READ4args> || std::is_same_v<Args, WRITE4args> ||
                           std::is_same_v<Args, SETATTR4args>)
            see(args.stateid);
    }
};

} // namespace

// A client is not to wait for its own delegation: Linux asks for attributes in front of DELEGRETURN, in the same COMPOUND. What says whose
// delegations are its own may stand behind, so it is looked for in all of it, and only for files that somebody has state of.
task<void> server::learn_client(compound& k)
{
    if (k.minor() != 0 || k.client != files::nobody || std::exchange(k.client_sought, true))
        co_return;
    xdr::decoder ahead = *k.whole;
    compound_arguments args(ahead);
    named_client named;
    while (!named.number && !named.id && args.next() && is_operation(args.opcode(), 0)) {
        if (!args.visit([&named](const auto& each) { named(each); }))
            break;
    }
    if (named.number)
        k.client = co_await commons_.v40.client_of(*named.number, k.c.from().address);
    else if (named.id)
        k.client = co_await commons_.v40.holder_of(*named.id);
}

// --- Clients

task<nfsstat4> server::setclientid(compound& k)
{
    SETCLIENTID4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (const nfsstat4 room = k.check_room<SETCLIENTID4res>(); room != nfsstat4::ok)
        co_return room;
    // Whoever may use no export is not remembered.
    if (!is_visible_at_all(commons_.tree.root(), k.c.from(), host_))
        co_return nfsstat4::perm;
    const auto calls = callback_place::of(args, k.c.who(), k.c.from().address);
    v40_clients::made made = co_await commons_.v40.set_client(args, caller(k.c), k.c.from().address, calls);
    if (made.short_of != session_table::shortage::none) {
        const bool some = co_await commons_.make_room_v40(made.short_of, k.c.from().address);
        if (some)
            made = co_await commons_.v40.set_client(args, caller(k.c), k.c.from().address, calls);
    }
    if (made.short_of != session_table::shortage::none)
        counters_.refused_limits.add(files::limited::clients, made.short_of == session_table::shortage::of_all
                                                                  ? files::limit_of::all
                                                                  : files::limit_of::peer);
    if (made.status != nfsstat4::ok && !made.held_by.empty())
        commons_.note_shared_name(args.id, made.held_by, k.c.from().address);
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

task<nfsstat4> server::setclientid_confirm(compound& k)
{
    SETCLIENTID_CONFIRM4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (const nfsstat4 room = k.check_room<SETCLIENTID_CONFIRM4res>(); room != nfsstat4::ok)
        co_return room;
    const std::string group = commons_.sessions.group_of(k.c.from().address);
    const std::uint64_t peer = siphash(commons_.key, std::as_bytes(std::span(group)));
    v40_state::confirmed done = co_await commons_.v40.confirm_client(args, caller(k.c), peer);
    if (done.is_full) {
        const bool some = co_await commons_.make_room_of_state();
        if (some)
            done = co_await commons_.v40.confirm_client(args, caller(k.c), peer);
    }
    if (!done.held_by.empty())
        commons_.note_shared_name(std::as_bytes(std::span(done.name)), done.held_by, k.c.from().address);
    co_return done.status == nfsstat4::ok ? k.add(SETCLIENTID_CONFIRM4res()) : done.status;
}

task<nfsstat4> server::renew(compound& k)
{
    RENEW4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    const nfsstat4 status = co_await commons_.v40.renew(args.clientid);
    co_return status == nfsstat4::ok ? k.add(RENEW4res()) : status;
}

task<nfsstat4> server::release_lockowner(compound& k)
{
    RELEASE_LOCKOWNER4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (const nfsstat4 room = k.check_room<RELEASE_LOCKOWNER4res>(); room != nfsstat4::ok)
        co_return room;
    const nfsstat4 status = co_await commons_.v40.release_lock_owner(args);
    co_return status == nfsstat4::ok ? k.add(RELEASE_LOCKOWNER4res()) : status;
}

// --- Opens

task<nfsstat4> server::run_open_v40(compound& k, const OPEN4args& args, OPEN4res& res)
{
    // What later minor versions put there is no share (7530 16.16.2).
    if (!is_share(args.share_access, args.share_deny))
        return answer_with(nfsstat4::inval);
    return open_file(k, args, res);
}

task<nfsstat4> server::open_v40(compound& k)
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
    v40_state::begun turn = co_await commons_.v40.begin_open(args);
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
        co_await commons_.v40.end_open(turn, args, answer);
    } else if (answer.status == nfsstat4::ok) {
        // A repeat has the file again, as by its handle: what follows in the COMPOUND is about it.
        counters_.replays.add();
        object opened;
        answer.status = find_exported(k.c, answer.export_id, answer.file, opened);
        if (answer.status == nfsstat4::delay) {
            co_await learn_groups(k.c);
            answer.status = find_exported(k.c, answer.export_id, answer.file, opened);
        }
        if (answer.status == nfsstat4::ok)
            k.set_current(opened);
    }
    if (answer.status != nfsstat4::ok)
        co_return answer.status;
    // Wherever that comes from: a client may have several addresses, and is not to wait for what it has just been given.
    if ((answer.rflags & open4_result::confirm) == 0)
        k.client = turn.client;
    OPEN4res res;
    res.stateid = answer.id;
    res.cinfo = answer.cinfo;
    res.rflags = answer.rflags;
    res.attrset = answer.attrset;
    res.delegation = delegation4_of(answer.delegation_type, answer.delegation, answer.delegation_recalled);
    co_return k.add(res);
}

// What stands against an operation of an owner, and is said only where its number is right.
nfsstat4 server::refusal_v40(const compound& k, nfsstat4 room) const noexcept
{
    const nfsstat4 status = k.need_file(purpose::reading);
    return v40_status(nfs_opnum4::illegal, status != nfsstat4::ok ? status : room);
}

// One that names its owner by a stateid, and is answered with one.
template<class Args, class Results>
task<nfsstat4> server::run_owned(compound& k, stateid4 Results::* id, owned<Args> what)
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
    const storage::handle file = k.key_of_current();
    const v40_answer answer = co_await (commons_.v40.*what)(args, file, refused);
    Results res;
    res.*id = answer.id;
    co_return answer.status == nfsstat4::ok ? k.add(res) : answer.status;
}

// --- Locks

task<nfsstat4> server::lock_v40(compound& k)
{
    LOCK4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 refused = refusal_v40(k, k.check_room<LOCK4res>());
    if (refused == nfsstat4::nofilehandle)
        co_return refused;
    if (refused == nfsstat4::ok)
        refused = v40_status(nfs_opnum4::lock, co_await may_lock(k.current));
    const storage::handle file = k.key_of_current();
    const v40_answer answer = co_await commons_.v40.lock(args, file, refused);
    LOCK4res res;
    res.lock_stateid = answer.id;
    co_return k.add_lock(res, answer.status, answer.holder.get());
}

// What only minor version 0 has, or has otherwise.
task<nfsstat4> server::run_v40(compound& k, nfs_opnum4 operation)
{
    switch (operation) {
    case nfs_opnum4::close: return run_owned(k, &CLOSE4res::open_stateid, &v40_state::close);
    case nfs_opnum4::lock: return lock_v40(k);
    case nfs_opnum4::locku: return run_owned(k, &LOCKU4res::lock_stateid, &v40_state::unlock);
    case nfs_opnum4::open: return open_v40(k);
    case nfs_opnum4::open_confirm:
        return run_owned(k, &OPEN_CONFIRM4res::open_stateid, &v40_state::confirm_open);
    case nfs_opnum4::open_downgrade:
        return run_owned(k, &OPEN_DOWNGRADE4res::open_stateid, &v40_state::downgrade);
    case nfs_opnum4::release_lockowner: return release_lockowner(k);
    case nfs_opnum4::renew: return renew(k);
    case nfs_opnum4::setclientid: return setclientid(k);
    case nfs_opnum4::setclientid_confirm: return setclientid_confirm(k);
    default: return run(k, operation);
    }
}

} // namespace verbena::nfs::v4
