// SPDX-License-Identifier: Apache-2.0
// COMPOUND in a session: its slot, what SEQUENCE says, and what a repeat gets.
#include "compounds.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/protocols/rpc/kept_results.hpp>

#include <algorithm>
#include <memory>

namespace verbena::nfs::v4 {

namespace {

// An item that a chunk carries is left out; what comes in two pieces is not.
call_mark mark_of(rpc::call& c, const compound_arguments& args, const SEQUENCE4args& sequence) noexcept
{
    return {c.who(), args.head().operations, sequence.cachethis, call_digest::bytes_of(c.args(), 64)};
}

// A client whose state was taken begins anew: what it has left is taken too, so that it learns of it by BADSESSION.
task<nfsstat4> renew_lease(server_commons& commons, session& s)
{
    state_home::losses lost;
    const result<void> renewed = co_await commons.state.renew(s.state(), lost);
    const nfsstat4 status = status_of_state(renewed);
    s.set_revoked(lost.revoked);
    s.set_lost_with_lease(lost.with_lease);
    s.set_lost_by_admin(lost.by_admin);
    // With each call it would cost the lock that all sessions share.
    if (!s.back().was_granted() && s.back().max_request() != 0)
        s.set_lost_all_ways(commons.sessions.lost_all_ways_to(s.client()));
    if (status != nfsstat4::expired && status != nfsstat4::admin_revoked)
        co_return status;
    commons.sessions.forget(s.client());
    co_await commons.state.abandon(s.state());
    co_return nfsstat4::badsession;
}

// Puts the first `operations` behind SEQUENCE into `digest`, of the COMPOUND of `c`, which begins at `entire`. seq_false_retry: it has
// fewer that can be read. delay: there is no memory to join what came in two pieces. Where the transport can't join them, `digest` ends before
// them. Reads the arguments anew; the call is not run.
task<nfsstat4> digest_call(rpc::call& c, xdr::decoder entire, std::uint32_t operations, call_digest& digest)
{
    c.args() = entire;
    compound_arguments args(c.args());
    SEQUENCE4args sequence;
    if (!args.next() || !args.read(sequence))
        co_return nfsstat4::seq_false_retry;
    while (digest.operations() < operations) {
        const std::size_t begun = c.args().position();
        const xdr::decoder ahead = c.args();
        if (!args.next())
            co_return nfsstat4::seq_false_retry;
        const bool is_read = args.visit([](const auto&) {});
        if (is_read) {
            digest.add(args.opcode(), call_digest::bytes_of(ahead, c.args().position() - begun));
        } else if (lies_apart(c.args())) {
            const auto joined = co_await c.join_arguments(begun);
            if (!joined)
                co_return joined.error() == std::errc::not_enough_memory ? nfsstat4::delay : nfsstat4::ok;
            args.again();
        } else {
            co_return nfsstat4::seq_false_retry;
        }
    }
    co_return nfsstat4::ok;
}

// Whether the COMPOUND of `c`, which begins at `entire` and like the one that `known` is of, has the same operations,
// as far as that one ran: ok, or what digest_call() says. Arguments that the transport can't join are taken for the same.
task<nfsstat4> compare_calls(rpc::call& c, xdr::decoder entire, call_digest known)
{
    call_digest digest;
    const nfsstat4 status = co_await digest_call(c, entire, known.operations(), digest);
    if (status != nfsstat4::ok || digest.operations() < known.operations())
        co_return status;
    co_return digest == known ? nfsstat4::ok : nfsstat4::seq_false_retry;
}

// What a repeat that waits is compared by, of a call that nobody asked to keep: it was not noted while that ran. False: there is no
// memory for it, or the transport can't join the arguments.
task<bool> note_operations(rpc::call& c, xdr::decoder entire, std::uint32_t operations, slot_use& slot)
{
    call_digest digest;
    const nfsstat4 status = co_await digest_call(c, entire, operations, digest);
    slot.set_digest(digest);
    co_return (status == nfsstat4::ok) && (digest.operations() == operations);
}

// Each stays set for as long as its cause is there: a client repairs it, and would do so for ever if one stayed longer.
std::uint32_t status_flags(const server_commons& commons, rpc::call& c, const session& s)
{
    std::uint32_t flags = 0;
    const back_channel& back = s.back();
    const bool down = back.is_down();
    if (down)
        flags |= seq4_status::cb_path_down_session;
    else if (back.has_fault())
        flags |= seq4_status::backchannel_fault;
    // It is the client's, so each session tells it that could be bound to end it. Others would hear of it for ever.
    const bool lost = down ? commons.sessions.lost_all_ways_to(s.client())
                           : !back.was_granted() && s.lost_all_ways() && c.reverse() != nullptr;
    if (lost)
        flags |= seq4_status::cb_path_down;
    if (s.has_revoked())
        flags |= seq4_status::recallable_state_revoked;
    if (s.has_lost_with_lease()) // it must not use layouts that it had (8881 12.7.2)
        flags |= seq4_status::expired_some_state_revoked;
    if (s.has_lost_by_admin())
        flags |= seq4_status::admin_state_revoked;
    return flags;
}

} // namespace

task<rpc::outcome> serve_in_session(server_parts& server, rpc::call& c, compound_arguments& args,
                                    const xdr::decoder& entire)
{
    const std::size_t whole = c.args().position() + c.args().unread();
    SEQUENCE4args sequence;
    const bool readable = args.read(sequence);
    const std::shared_ptr<session> s = readable ? server.sessions.find(sequence.sessionid) : nullptr;
    const std::size_t start = c.results().position();
    nfsstat4 status = nfsstat4::ok;
    slot_use slot;
    slot_verdict verdict = slot_verdict::refused;
    if (!readable)
        status = nfsstat4::badxdr;
    else if (!s)
        status = nfsstat4::badsession;
    else if (whole > s->fore().maxrequestsize)
        status = nfsstat4::req_too_big;
    else if (args.head().operations > s->fore().maxoperations)
        status = nfsstat4::too_many_ops;
    if (status == nfsstat4::ok) {
        const call_mark mark = mark_of(c, args, sequence);
        for (;;) {
            verdict = slot.begin(*s, sequence, mark);
            if (verdict != slot_verdict::joins)
                break;
            co_await slot.first_ends(server.here.reactor());
        }
        if (verdict == slot_verdict::refused)
            status = slot.status();
        if (verdict == slot_verdict::repeat) {
            task<nfsstat4> comparing = compare_calls(c, entire, slot.digest());
            status = co_await comparing;
            if (status != nfsstat4::ok)
                verdict = slot_verdict::refused;
        }
    }
    if (verdict == slot_verdict::repeat) {
        server.counters.replays.add();
        // The session's limit on what is kept is what serve_compound() made room for.
        static_assert(session_limits().cached_response_size <= usual_results);
        const bool repeated = co_await rpc::answer_as_kept(c, slot.reply(), slot.items());
        if (!repeated) {
            c.detach();
            c.results().truncate(start);
            compound_results refusal(c.results(), args.head().tag);
            refusal.fail(nfs_opnum4::sequence, nfsstat4::delay);
        }
        co_return rpc::outcome::success;
    }
    std::size_t limit = SIZE_MAX;
    if (status == nfsstat4::ok) {
        limit = s->fore().maxresponsesize;
        if (sequence.cachethis)
            limit = std::min<std::size_t>(limit, s->fore().maxresponsesize_cached);
        limit = limit > start ? limit - start : 0;
    }
    compound k(server, c, args, limit);
    SEQUENCE4res res;
    k.kept = sequence.cachethis;
    if (status == nfsstat4::ok && (!k.results.ok() || !k.results.has_room_for<SEQUENCE4res>())) {
        // Not even SEQUENCE fits. It is answered all the same, in what a failure takes, and lease and slot stay as
        // they were (8881 18.46.3).
        status = k.too_big();
        c.results().truncate(start);
        compound_results refusal(c.results(), args.head().tag);
        refusal.fail(nfs_opnum4::sequence, status);
        server.counters.note(nfs_opnum4::sequence, status);
        co_return rpc::outcome::success;
    }
    // What no repeat may change, nor a failure: the lease is renewed by what runs.
    if (status == nfsstat4::ok && verdict == slot_verdict::run && s->is_due(server.here.reactor().now())) {
        task<nfsstat4> renewing = renew_lease(server.commons, *s);
        status = co_await renewing;
    }
    if (status == nfsstat4::ok) {
        res.sessionid = sequence.sessionid;
        res.sequenceid = sequence.sequenceid;
        res.slotid = sequence.slotid;
        res.highest_slotid = res.target_highest_slotid = s->slots() - 1;
        res.status_flags = status_flags(server.commons, c, *s);
        // Until it says RECLAIM_COMPLETE (8881 18.46.3), and no longer than that is of use.
        if (s->must_reclaim() && server.state.is_in_grace())
            res.status_flags |= seq4_status::restart_reclaim_needed;
        status = k.add(res); // there is room
    }
    server.counters.note(nfs_opnum4::sequence, status);
    if (status != nfsstat4::ok) {
        k.results.fail(nfs_opnum4::sequence, status);
        co_return rpc::outcome::success;
    }
    if (verdict == slot_verdict::uncached) {
        if (args.next()) {
            const bool known = is_operation(args.opcode(), k.minor());
            k.results.fail(known ? args.opcode() : nfs_opnum4::illegal,
                           known ? nfsstat4::retry_uncached_rep : nfsstat4::op_illegal);
        }
        co_return rpc::outcome::success;
    }
    k.session = s.get();
    k.is_of(s->state());
    k.slot = &slot;
    task<void> running = run_operations(k);
    co_await running;
    // The last operation may have waited without a time of its own: it ends in a later turn.
    s->heard(std::max(k.ended, server.here.reactor().now()));
    if (k.dropped && !k.changed)
        co_return rpc::outcome::drop;
    if (!k.results.ok())
        co_return rpc::outcome::system_error;
    // A repeat that waits gets it, though nobody asked to keep it.
    const bool may_be_kept =
        sequence.cachethis || (c.results().payloads().empty() &&
                               c.results().position() - start <= s->fore().maxresponsesize_cached);
    if (!may_be_kept) {
        slot.finish();
    } else if (sequence.cachethis || !slot.finish_unless_waited_for()) {
        bool can_be_compared = true;
        if (!sequence.cachethis) {
            task<bool> noting = note_operations(c, entire, k.read, slot);
            can_be_compared = co_await noting;
        }
        if (!can_be_compared) {
            slot.finish();
        } else if (c.results().payloads().empty()) {
            slot.finish(c.results().bytes().subspan(start), {});
        } else {
            const rpc::kept_results kept(c, start);
            slot.finish(kept.bytes(), kept.items());
        }
    }
    if (k.ended >= server.here.reactor().now()) // nothing has waited since
        c.set_ended(k.ended);
    co_return k.dropped ? rpc::outcome::drop : rpc::outcome::success;
}

} // namespace verbena::nfs::v4
