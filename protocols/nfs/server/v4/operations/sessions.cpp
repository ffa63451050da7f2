// SPDX-License-Identifier: Apache-2.0
// EXCHANGE_ID, CREATE_SESSION, DESTROY_SESSION, DESTROY_CLIENTID, BIND_CONN_TO_SESSION, BACKCHANNEL_CTL, RECLAIM_COMPLETE.
#include "../compounds.hpp"
#include "limits.hpp"
#include "operations.hpp"

#include <verbena/core/siphash.hpp>

#include <algorithm>
#include <cerrno>

namespace verbena::nfs::v4::operations {

namespace {

// What EXCHANGE_ID is answered: numbers, and server_commons::owner twice. The type's largest size allows for names of
// others.
constexpr std::size_t exchange_results = 256;

// Of these security parameters of a back channel, how many name a handle of RPCSEC_GSS. We gave nobody one, so none of
// these handles exists.
std::size_t gss_handles_in(const array_view<callback_sec_parms4, max_security_flavours>& parms)
{
    std::size_t found = 0;
    for (const callback_sec_parms4 each : parms) {
        const auto flavor = rpc::auth_flavor(each.cb_secflavor);
        found += flavor != rpc::auth_flavor::none && flavor != rpc::auth_flavor::sys;
    }
    return found;
}

files::limit_of whose(session_table::shortage of) noexcept
{
    switch (of) {
    case session_table::shortage::of_all: return files::limit_of::all;
    case session_table::shortage::of_peer: return files::limit_of::peer;
    case session_table::shortage::none: break;
    }
    return files::limit_of::client;
}

void tell_no_session(compound& k, session_table::shortage of) noexcept
{
    k.server.counters.refused_limits.add(files::limited::sessions, whose(of));
    refusal r{.peer = k.c.from().address, .object = "4.1"};
    switch (of) {
    case session_table::shortage::of_all:
        r.limit = "sessions or slot_memory_mib of [nfs.limits]";
        r.cure = "raise sessions and slot_memory_mib of [nfs.limits]";
        break;
    case session_table::shortage::of_peer:
        r.limit = "sessions_per_peer or slot_memory_mib_per_peer of [nfs.limits]";
        r.cure = "raise sessions_per_peer and slot_memory_mib_per_peer of [nfs.limits]";
        break;
    case session_table::shortage::none:
        r.limit = "sessions_per_client of [nfs.limits]";
        r.cure = "raise sessions_per_client of [nfs.limits]";
        break;
    }
    tell_refusal(refused::client_sessions, r);
}

// One that says which roles it looks for gets this one only if it is among them (8881 13.1).
bool serves_layouts(const compound& k, std::uint32_t asked) noexcept
{
    const std::uint32_t roles = asked & exchgid4::mask_pnfs;
    return k.server.commons.pnfs != nullptr && (roles == 0 || (roles & exchgid4::use_pnfs_mds) != 0) &&
           std::ranges::any_of(k.server.commons.exports.all(),
                               [](const export_options& e) { return e.pnfs; });
}

} // namespace

task<nfsstat4> exchange_id(compound& k)
{
    EXCHANGE_ID4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if ((args.flags & ~exchgid4::of_clients(k.minor())) != 0)
        co_return nfsstat4::inval;
    // Both need RPCSEC_GSS; knfsd answers the same.
    if (args.state_protect.how == state_protect_how4::mach_cred)
        co_return nfsstat4::inval;
    if (args.state_protect.how == state_protect_how4::ssv) {
        const state_protect4_a& ssv = args.state_protect;
        const bool is_complete = !ssv.hash_algs.empty() && !ssv.encr_algs.empty() && ssv.window != 0;
        co_return is_complete ? nfsstat4::encr_alg_unsupp : nfsstat4::inval; // 8881 18.35.3
    }
    if (k.results.room() < exchange_results)
        co_return k.too_big();
    // Whoever may use no export is not remembered.
    if (!k.server.handles.shows_anything_to(k.c.from())) {
        k.server.handles.refuse(k.c.from());
        co_return nfsstat4::perm;
    }
    const task_context& context = co_await current_context();
    if (k.server.commons.evicted.turns_away(args.clientowner.ownerid, k.c.from().address,
                                            context.shard->clock().now()))
        co_return nfsstat4::delay;
    const auto ask = [&](files::client_id yields) {
        return k.server.commons.sessions.exchange_id(
            args.clientowner, (args.flags & exchgid4::upd_confirmed_rec_a) != 0,
            caller_of(k.server.commons, k.c), k.c.from().address, context.shard->clock().now(), yields);
    };
    files::client_id yields = files::nobody; // who does, by what was asked so far
    session_table::exchanged made = ask(yields);
    if (made.rival != files::nobody && made.status == nfsstat4::clid_inuse) {
        // Before its sessions: who comes back until then must find all it had, or nothing.
        const nfsstat4 ended = co_await k.server.commons.end_rival(made.rival);
        if (ended == nfsstat4::ok) {
            yields = made.rival;
            made = ask(yields);
        } else if (ended != made.status) { // then it is not the name that is in the way
            made = session_table::exchanged();
            made.status = ended;
        }
    } else if (made.rival != files::nobody) {
        // It keeps all until CREATE_SESSION confirms the new one.
        const state_home::life life = co_await k.server.state.life_of(made.rival);
        if (!life.active) {
            yields = made.rival;
            made = ask(yields);
        }
    }
    if (made.short_of != session_table::shortage::none) {
        const bool some = co_await k.server.commons.expire_lapsed(made.short_of, k.c.from().address);
        // Without `yields` the client would hear once more of the one that has just given way.
        if (some)
            made = ask(yields);
    }
    if (made.short_of != session_table::shortage::none) {
        k.server.counters.refused_limits.add(files::limited::clients, whose(made.short_of));
        tell_no_client(k, made.short_of == session_table::shortage::of_peer);
    }
    if (!made.held_by.empty())
        k.server.commons.note_shared_name(args.clientowner.ownerid, made.held_by, k.c.from().address);
    if (made.status != nfsstat4::ok)
        co_return made.status;
    EXCHANGE_ID4res res;
    res.clientid = made.client;
    res.sequenceid = made.sequence;
    res.flags = (serves_layouts(k, args.flags) ? exchgid4::use_pnfs_mds : exchgid4::use_non_pnfs) |
                (made.confirmed ? exchgid4::confirmed_r : 0);
    const auto owner = std::as_bytes(std::span(k.server.commons.owner));
    res.server_owner.major_id = owner;
    res.server_scope = owner;
    co_return k.add(res);
}

namespace {

task<nfsstat4> make_session(compound& k, const CREATE_SESSION4args& args, const session_table::creation& made)
{
    // 8881 18.36.3. Beside another flavour the handle is not needed: clients offer what the server may choose from.
    if (const std::size_t handles = gss_handles_in(args.sec_parms);
        handles != 0 && handles == args.sec_parms.size())
        co_return nfsstat4::noent;
    files::client_id state = made.state;
    bool must_reclaim = false;
    const task_context& context = co_await current_context();
    // It may have said its name before it was kept out.
    if (made.confirms &&
        k.server.commons.evicted.turns_away(std::as_bytes(std::span(made.key)), k.c.from().address,
                                            context.shard->clock().now()))
        co_return nfsstat4::delay;
    if (made.confirms) {
        // One name has one client, so the one before its restart goes first, with what it had open.
        nfsstat4 status = nfsstat4::ok;
        if (made.older != files::nobody) {
            const result<void> taken =
                co_await k.server.state.take_name(made.older, name_rule_of(made.stands_against));
            // What it would be refused by is what it is answered.
            status = !taken && taken.error() == files::errc::client_busy ? made.stands_against
                                                                         : status_of_state(taken);
        }
        if (status != nfsstat4::ok && status == made.stands_against)
            k.server.commons.note_shared_name(std::as_bytes(std::span(made.key)), made.held_by,
                                              k.c.from().address);
        if (status != nfsstat4::ok)
            co_return status;
        const std::string group = k.server.commons.sessions.group_of(k.c.from().address);
        const std::uint64_t peer = siphash(k.server.commons.key, std::as_bytes(std::span(group)));
        const files::client_label label{made.key, std::string(k.c.from().address), args.clientid};
        result<state_home::added> known = co_await k.server.state.add_client(made.key, peer, label);
        if (!known && known.error() == files::errc::too_many_clients) {
            const bool some = co_await k.server.commons.expire_lapsed_of_any();
            if (some)
                known = co_await k.server.state.add_client(made.key, peer, label);
        }
        if (!known) {
            if (known.error() == files::errc::too_many_clients)
                tell_no_client(k, false);
            co_return status_of_state(known.error());
        }
        state = known->client;
        must_reclaim = known->must_reclaim;
    }
    // What can't be signed as the client wants is not said, nor over a connection that brings no calls.
    const auto identity = callback_identity::choose(args.cb_program, args.sec_parms);
    std::shared_ptr<rpc::reverse_channel> way;
    if ((args.flags & create_session4::conn_back_chan) != 0 && (identity || args.sec_parms.empty()))
        way = k.c.reverse();
    // Before the client can ask for anything that it must be called for.
    if (way) {
        const result<void> callable = co_await k.server.state.set_callable(state);
        if (!callable) {
            if (made.confirms) // else nobody would ever name it
                co_await k.server.state.abandon(state);
            co_return status_of_state(callable.error());
        }
    }
    const CREATE_SESSION4res res =
        k.server.commons.sessions.end_creation(args, state, must_reclaim, way != nullptr);
    if (res.status != nfsstat4::ok) {
        if (made.confirms)
            co_await k.server.state.abandon(state);
        co_return res.status;
    }
    if (const auto made_session = k.server.commons.sessions.find(res.sessionid)) {
        back_channel& back = made_session->back();
        // Also where this connection is none: another one may be bound later.
        back.set_up(k.minor(), args.back_chan_attrs);
        if (identity)
            back.set_identity(*identity);
        if (way)
            back.bind(std::move(way), k.server.here);
    }
    co_return k.add(res);
}

} // namespace

task<nfsstat4> create_session(compound& k)
{
    CREATE_SESSION4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (const nfsstat4 room = k.check_room<CREATE_SESSION4res>(); room != nfsstat4::ok)
        co_return room;
    const task_context& context = co_await current_context();
    const auto ask = [&] {
        return k.server.commons.sessions.begin_creation(args, caller_of(k.server.commons, k.c),
                                                        context.shard->clock().now());
    };
    session_table::creation made = ask();
    if (made.short_of != session_table::shortage::none) {
        const bool some = co_await k.server.commons.expire_lapsed(made.short_of, k.c.from().address);
        if (some)
            made = ask();
    }
    if (!made.repeat && (made.status == nfsstat4::nospc || made.short_of != session_table::shortage::none))
        tell_no_session(k, made.short_of);
    if (made.repeat) {
        if (made.status != nfsstat4::ok)
            co_return made.status;
        co_return k.add(*made.repeat);
    }
    if (made.status != nfsstat4::ok)
        co_return made.status;
    // Whatever ends this, the next one is not told to come again for ever.
    const session_table::creating begun(k.server.commons.sessions, args.clientid);
    task<nfsstat4> making = make_session(k, args, made);
    const nfsstat4 status = co_await making;
    if (status != nfsstat4::ok)
        k.server.commons.sessions.refuse_creation(args, status);
    co_return status;
}

task<nfsstat4> destroy_session(compound& k)
{
    DESTROY_SESSION4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (const nfsstat4 room = k.check_room<DESTROY_SESSION4res>(); room != nfsstat4::ok)
        co_return room;
    const bool own = k.session && k.session->id() == args.sessionid;
    if (own && !k.is_last())
        co_return nfsstat4::not_only_op;
    const nfsstat4 status = k.server.commons.sessions.destroy_session(
        args.sessionid, caller_of(k.server.commons, k.c), own ? 1 : 0);
    co_return status == nfsstat4::ok ? k.add(DESTROY_SESSION4res()) : status;
}

namespace {

// Of so many files DESTROY_CLIENTID finds out whether they are gone.
constexpr std::size_t most_lost_files = 4096;

// Whether all that the client has is of files that are gone, as when somebody removed them on the host while posixfs
// had closed them. A client can't give that back: its CLOSE stands behind a PUTFH and a GETATTR, and that is STALE.
task<bool> has_lost_all_files(compound& k, files::client_id client)
{
    const auto those = co_await k.server.state.clients().files_of(client, most_lost_files);
    if (!those)
        co_return false;
    for (const files::exported_file& each : *those) {
        const auto name = open_state_file(each);
        object found;
        if (!name || k.server.handles.find_exported(k.c, name->export_id, name->inner, found) != nfsstat4::ok)
            co_return false;
        // What can't be asked for just now is there.
        const auto attrs = co_await found.backend().getattr(found.request, found.file);
        if (attrs || attrs.error().errno_value() != ESTALE)
            co_return false;
    }
    co_return true;
}

} // namespace

task<nfsstat4> destroy_clientid(compound& k)
{
    DESTROY_CLIENTID4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (const nfsstat4 room = k.check_room<DESTROY_CLIENTID4res>(); room != nfsstat4::ok)
        co_return room;
    files::client_id state = files::nobody;
    nfsstat4 status =
        k.server.commons.sessions.may_destroy_client(args.clientid, caller_of(k.server.commons, k.c), state);
    if (status == nfsstat4::ok && state != files::nobody) {
        const state_home::life life = co_await k.server.state.life_of(state);
        if (life.in_use) {
            task<bool> looking = has_lost_all_files(k, state);
            const bool lost = co_await looking;
            if (!lost)
                co_return nfsstat4::clientid_busy;
            // It may have made a session meanwhile.
            status = k.server.commons.sessions.may_destroy_client(args.clientid,
                                                                  caller_of(k.server.commons, k.c), state);
        }
        if (status == nfsstat4::ok) {
            const result<void> forgotten = co_await k.server.state.forget(state);
            status = status_of_state(forgotten);
        }
    }
    if (status != nfsstat4::ok)
        co_return status;
    k.server.commons.sessions.forget(args.clientid);
    co_return k.add(DESTROY_CLIENTID4res());
}

// A session is used over any connection (SP4_NONE, 8881 2.10.3.1): only the way back is bound.
task<nfsstat4> bind_conn_to_session(compound& k)
{
    BIND_CONN_TO_SESSION4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (k.session) // 8881 18.34.3: it is alone, and stands behind no SEQUENCE either
        co_return nfsstat4::not_only_op;
    BIND_CONN_TO_SESSION4res res;
    bool back = true;
    switch (args.dir) {
    case channel_dir_from_client4::fore: back = false; break;
    case channel_dir_from_client4::back:
    // Linux drops a connection that is bound to less.
    case channel_dir_from_client4::fore_or_both:
    case channel_dir_from_client4::back_or_both: break;
    default: co_return nfsstat4::badxdr; // 8881 15.1.1.1
    }
    const std::shared_ptr<session> s = k.server.commons.sessions.find(args.sessid);
    if (!s)
        co_return nfsstat4::badsession;
    std::shared_ptr<rpc::reverse_channel> way;
    if (s->back().max_request() != 0) // else nothing was agreed on
        way = k.c.reverse();
    // A connection is not taken off a channel.
    const bool calls_alone = args.dir == channel_dir_from_client4::back;
    const auto bound = way ? s->back().bound(*way) : std::nullopt;
    if (bound && (!back || (calls_alone && !bound->calls_alone)))
        co_return nfsstat4::inval;
    if (back && way) {
        const result<void> callable = co_await k.server.state.set_callable(s->state());
        if (!callable)
            co_return status_of_state(callable.error());
        s->back().bind(std::move(way), k.server.here, calls_alone);
        res.dir = calls_alone ? channel_dir_from_server4::back : channel_dir_from_server4::both;
    } else if (calls_alone || args.dir == channel_dir_from_client4::back_or_both) {
        co_return nfsstat4::inval;
    } else {
        res.dir = channel_dir_from_server4::fore;
    }
    res.sessid = args.sessid;
    co_return k.add(res);
}

task<nfsstat4> backchannel_ctl(compound& k)
{
    BACKCHANNEL_CTL4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (gss_handles_in(args.sec_parms) != 0) // 8881 18.33.3, a MUST
        co_return nfsstat4::noent;
    auto identity = callback_identity::choose(args.cb_program, args.sec_parms);
    // Without parameters it goes on as whom it did, in another program.
    if (args.sec_parms.empty()) {
        identity = k.session->back().identity();
        if (!identity) // there is no back channel that could have another program
            co_return k.add(BACKCHANNEL_CTL4res());
        identity->program = args.cb_program;
    }
    if (!identity) // the server can't write what it would sign with
        co_return nfsstat4::inval;
    k.session->back().set_identity(*identity);
    co_return k.add(BACKCHANNEL_CTL4res());
}

task<nfsstat4> reclaim_complete(compound& k)
{
    RECLAIM_COMPLETE4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (const nfsstat4 room = k.check_room<RECLAIM_COMPLETE4res>(); room != nfsstat4::ok)
        co_return room;
    nfsstat4 status = nfsstat4::ok;
    if (args.one_fs) { // says nothing of the other ones, and so ends nothing
        status = k.current.none() ? nfsstat4::nofilehandle : nfsstat4::ok;
    } else {
        const result<void> complete = co_await k.server.state.reclaim_complete(k.client);
        status = status_of_state(complete);
    }
    if (status == nfsstat4::ok && !args.one_fs)
        k.server.commons.sessions.reclaimed(k.session->client());
    co_return status == nfsstat4::ok ? k.add(RECLAIM_COMPLETE4res()) : status;
}

} // namespace verbena::nfs::v4::operations
