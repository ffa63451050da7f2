// SPDX-License-Identifier: Apache-2.0
// COMPOUND: what a call may contain, its slot, and one operation after the other.
#include "compound.hpp"

#include <verbena/protocols/rpc/kept_results.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <array>

namespace verbena::nfs::v4 {

namespace {

// Room for what most calls are answered.
constexpr std::size_t usual_results = 4096;

// Whether an operation may be the first that enters an export, and so acts as the caller there.
bool begins_at_an_export(nfs_opnum4 operation) noexcept
{
    return operation == nfs_opnum4::putfh || operation == nfs_opnum4::putrootfh ||
           operation == nfs_opnum4::putpubfh;
}

} // namespace

// What a repeat may not do again. WRITE may, but what came after it must not be undone by that.
bool changes_something(nfs_opnum4 operation) noexcept
{
    switch (operation) {
    case nfs_opnum4::allocate:
    case nfs_opnum4::clone:
    case nfs_opnum4::close:
    case nfs_opnum4::copy:
    case nfs_opnum4::create:
    case nfs_opnum4::create_session:
    case nfs_opnum4::deallocate:
    case nfs_opnum4::delegreturn:
    case nfs_opnum4::destroy_clientid:
    case nfs_opnum4::destroy_session:
    case nfs_opnum4::exchange_id:
    case nfs_opnum4::free_stateid:
    case nfs_opnum4::link:
    case nfs_opnum4::lock:
    case nfs_opnum4::locku:
    case nfs_opnum4::open:
    case nfs_opnum4::open_confirm:
    case nfs_opnum4::open_downgrade:
    case nfs_opnum4::reclaim_complete:
    case nfs_opnum4::release_lockowner:
    case nfs_opnum4::remove:
    case nfs_opnum4::removexattr:
    case nfs_opnum4::rename:
    case nfs_opnum4::setattr:
    case nfs_opnum4::setclientid:
    case nfs_opnum4::setclientid_confirm:
    case nfs_opnum4::setxattr:
    case nfs_opnum4::write: return true;
    default: return false;
    }
}

void server_counters::note(nfs_opnum4 operation, nfsstat4 status) noexcept
{
    const auto kind = operation <= last_operation ? static_cast<std::size_t>(operation) : 0;
    const bool later = status == nfsstat4::delay || status == nfsstat4::grace;
    const result_class how = status == nfsstat4::ok ? result_class::ok
                             : later                ? result_class::later
                                                    : result_class::failed;
    operations[kind][static_cast<std::size_t>(how)].add();
}

std::string_view server::procedure_name(std::uint32_t of_version, std::uint32_t number) const noexcept
{
    if (of_version != version)
        return {};
    return number == 0 ? "NULL" : number == 1 ? "COMPOUND" : std::string_view();
}

task<rpc::outcome> server::end_with(rpc::outcome outcome) { co_return outcome; }
task<nfsstat4> server::answer_with(nfsstat4 status) { co_return status; }

task<rpc::outcome> server::serve(rpc::call& c)
{
    switch (procedure(c.header().procedure)) {
    case procedure::null: return end_with(rpc::outcome::success);
    case procedure::compound: return serve_compound(c);
    }
    return end_with(rpc::outcome::proc_unavail);
}

principal server::caller(const rpc::call& c) const noexcept
{
    std::array<std::byte, 12> who{};
    if (!c.who().is_anonymous()) {
        xdr::store_u32(who.data(), 1);
        xdr::store_u32(who.data() + 4, c.who().uid());
        xdr::store_u32(who.data() + 8, c.who().gid());
    }
    return siphash(commons_.key, who);
}

// What two calls with one sequence id are told apart by (8881 2.10.6.1.3.1): who sent it, and how it begins.
std::uint64_t server::mark_of(rpc::call& c, const compound_arguments& args,
                              const SEQUENCE4args& sequence) const noexcept
{
    std::array<std::byte, 16 + 64> text{};
    xdr::store_u64(text.data(), caller(c));
    xdr::store_u32(text.data() + 8, args.head().operations);
    xdr::store_u32(text.data() + 12, sequence.cachethis ? 1 : 0);
    // The rest of a call lies elsewhere over some transports; its beginning never does.
    const auto rest = c.args().rest();
    std::copy_n(rest.begin(), std::min<std::size_t>(rest.size(), 64), text.begin() + 16);
    return siphash(commons_.key, text);
}

task<rpc::outcome> server::serve_compound(rpc::call& c)
{
    const xdr::decoder whole = c.args();
    compound_arguments args(c.args());
    if (!args.ok())
        co_return rpc::outcome::garbage_args;
    const bool has_memory = co_await c.reserve_results(usual_results);
    const std::uint32_t minor = args.head().minorversion;
    if (minor > max_minor_version || !commons_.minors[minor]) {
        compound_results results(c.results(), args.head().tag);
        results.refuse(nfsstat4::minor_vers_mismatch);
        co_return rpc::outcome::success;
    }
    if (minor == 0 && has_memory) {
        task<rpc::outcome> served = serve_v40(c, args, &whole);
        co_return co_await served;
    }
    if (!args.next()) {
        compound_results results(c.results(), args.head().tag);
        co_return rpc::outcome::success;
    }
    if (!has_memory) {
        // A client of version 4 sends nothing again on a connection that is there, so that it is told to.
        compound_results results(c.results(), args.head().tag);
        const nfs_opnum4 first = is_operation(args.opcode(), minor) ? args.opcode() : nfs_opnum4::illegal;
        results.fail(first, first == nfs_opnum4::illegal ? nfsstat4::op_illegal : nfsstat4::delay);
        counters_.note(first, results.status());
        co_return results.ok() ? rpc::outcome::success : rpc::outcome::system_error;
    }
    if (args.opcode() == nfs_opnum4::sequence) {
        task<rpc::outcome> served = serve_session(c, args, whole);
        co_return co_await served;
    }
    task<rpc::outcome> served = serve_alone(c, args);
    co_return co_await served;
}

task<rpc::outcome> server::serve_alone(rpc::call& c, compound_arguments& args)
{
    compound k(c, args, SIZE_MAX);
    const nfs_opnum4 operation = args.opcode();
    nfsstat4 status = nfsstat4::ok;
    nfs_opnum4 as = operation;
    if (!is_operation(operation, k.minor())) {
        as = nfs_opnum4::illegal;
        status = nfsstat4::op_illegal;
    } else if (!runs_without_session(operation)) {
        status = nfsstat4::op_not_in_session;
    } else if (args.head().operations != 1) {
        status = nfsstat4::not_only_op;
    } else {
        task<nfsstat4> running = run(k, operation);
        status = co_await running;
    }
    counters_.note(as, status);
    if (status != nfsstat4::ok && !k.answered)
        k.results.fail(as, status);
    co_return k.results.ok() ? rpc::outcome::success : rpc::outcome::system_error;
}

// A client whose state was taken begins anew: what it has left is taken too, so that it learns of it by BADSESSION.
task<nfsstat4> server::renew(session& s)
{
    const task_context& context = co_await current_context();
    if (!s.is_due(context.shard->now()))
        co_return nfsstat4::ok;
    bool revoked = false;
    const result<void> renewed = co_await commons_.state.renew(s.state(), revoked);
    const nfsstat4 status = status_of_state(renewed);
    s.set_revoked(revoked);
    // With each call it would cost the lock that all sessions share.
    if (!s.back().was_granted() && s.back().max_request() != 0)
        s.set_lost_all_ways(commons_.sessions.lost_all_ways_to(s.client()));
    if (status != nfsstat4::expired && status != nfsstat4::admin_revoked)
        co_return status;
    commons_.sessions.forget(s.client());
    co_await commons_.state.abandon(s.state());
    co_return nfsstat4::badsession;
}

namespace {

// Whether a COMPOUND, which begins like the one that `known` is of, has the same operations, as far as that one ran.
// What can't be read in one piece is taken for the same.
bool is_same_call(xdr::decoder ahead, const call_digest& known)
{
    compound_arguments args(ahead);
    SEQUENCE4args sequence;
    if (!args.next() || !args.read(sequence))
        return true;
    call_digest digest;
    while (digest.operations() < known.operations()) {
        const std::size_t begun = ahead.position();
        const auto bytes = ahead.rest();
        if (!args.next())
            return false;
        if (!args.visit([](const auto&) {}))
            return true;
        digest.add(args.opcode(), bytes.first(std::min(bytes.size(), ahead.position() - begun)));
    }
    return digest == known;
}

} // namespace

task<rpc::outcome> server::serve_session(rpc::call& c, compound_arguments& args, const xdr::decoder& entire)
{
    const std::size_t whole = c.args().position() + c.args().unread();
    SEQUENCE4args sequence;
    const bool readable = args.read(sequence);
    const std::shared_ptr<session> s = readable ? commons_.sessions.find(sequence.sessionid) : nullptr;
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
        const std::uint64_t mark = mark_of(c, args, sequence);
        for (;;) {
            verdict = slot.begin(s, sequence, mark);
            if (verdict != slot_verdict::joins)
                break;
            co_await slot.first_ends(here_.reactor());
        }
        if (verdict == slot_verdict::refused)
            status = slot.status();
        if (verdict == slot_verdict::repeat && !is_same_call(entire, slot.digest())) {
            verdict = slot_verdict::refused;
            status = nfsstat4::seq_false_retry;
        }
    }
    if (verdict == slot_verdict::repeat) {
        counters_.replays.add();
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
    compound k(c, args, limit);
    SEQUENCE4res res;
    k.kept = sequence.cachethis;
    if (status == nfsstat4::ok && (!k.results.ok() || !k.results.has_room_for<SEQUENCE4res>())) {
        // Not even SEQUENCE fits. It is answered all the same, in what a failure takes, and lease and slot stay as
        // they were (8881 18.46.3).
        status = k.too_big();
        c.results().truncate(start);
        compound_results refusal(c.results(), args.head().tag);
        refusal.fail(nfs_opnum4::sequence, status);
        counters_.note(nfs_opnum4::sequence, status);
        co_return rpc::outcome::success;
    }
    // What no repeat may change, nor a failure: the lease is renewed by what runs.
    if (status == nfsstat4::ok && verdict == slot_verdict::run) {
        task<nfsstat4> renewing = renew(*s);
        status = co_await renewing;
    }
    if (status == nfsstat4::ok) {
        res.sessionid = sequence.sessionid;
        res.sequenceid = sequence.sequenceid;
        res.slotid = sequence.slotid;
        res.highest_slotid = res.target_highest_slotid = s->slots() - 1;
        res.status_flags = status_flags(c, *s);
        // Until it says RECLAIM_COMPLETE (8881 18.46.3), and no longer than that is of use.
        if (s->must_reclaim() && commons_.state.is_in_grace())
            res.status_flags |= seq4_status::restart_reclaim_needed;
        status = k.add(res); // there is room
    }
    counters_.note(nfs_opnum4::sequence, status);
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
    k.session = s;
    k.client = s->state();
    k.slot = &slot;
    task<void> running = run_operations(k);
    co_await running;
    s->heard(here_.reactor().clock().now());
    if (k.dropped && !k.changed)
        co_return rpc::outcome::drop;
    if (!k.results.ok())
        co_return rpc::outcome::system_error;
    // A repeat that waits gets it, though nobody asked to keep it.
    const bool is_wanted =
        sequence.cachethis ||
        (c.results().payloads().empty() &&
         c.results().position() - start <= s->fore().maxresponsesize_cached && slot.is_waited_for());
    if (!is_wanted) {
        slot.finish();
    } else if (c.results().payloads().empty()) {
        slot.finish(c.results().bytes().subspan(start), {});
    } else {
        const rpc::kept_results kept(c, start);
        slot.finish(kept.bytes(), kept.items());
    }
    co_return k.dropped ? rpc::outcome::drop : rpc::outcome::success;
}

namespace {

bool lies_apart(const xdr::decoder& in) noexcept
{
    return !in.ok() && in.failure() == std::errc::no_buffer_space;
}

} // namespace

task<void> server::run_operations(compound& k)
{
    for (;;) {
        const std::size_t begun = k.c.args().position();
        const std::span<const std::byte> bytes = k.c.args().rest();
        bool is_read = false;
        if (!k.args.next())
            co_return;
        const nfs_opnum4 operation = k.args.opcode();
        if (!is_operation(operation, k.minor())) {
            counters_.note(nfs_opnum4::illegal, nfsstat4::op_illegal);
            k.results.fail(nfs_opnum4::illegal, nfsstat4::op_illegal);
            co_return;
        }
        if (k.c.results().room() < compound::least_room)
            k.lacks_memory = !co_await k.c.reserve_results(usual_results);
        nfsstat4 status = nfsstat4::ok;
        bool knows_groups = true;
        if (begins_at_an_export(operation) && commons_.exports.groups() != nullptr)
            knows_groups = co_await groups_.learn(k.c, commons_.exports.groups());
        if (operation == nfs_opnum4::sequence) {
            status = nfsstat4::sequence_pos;
        } else if (!knows_groups) {
            status = nfsstat4::delay;
        } else {
            task<nfsstat4> running = k.minor() == 0 ? run_v40(k, operation) : run(k, operation);
            status = co_await running;
            is_read = k.c.args().ok();
            k.end_io();
            // They are there, but not in one piece, as the arguments of an operation have to be. It has read them first.
            if (status == nfsstat4::badxdr && lies_apart(k.c.args())) {
                const auto joined = co_await k.c.join_arguments(begun);
                if (joined) {
                    k.args.again();
                    continue;
                }
                status =
                    joined.error() == std::errc::not_enough_memory ? nfsstat4::delay : nfsstat4::req_too_big;
            }
            if (k.minor() == 0)
                status = v40_status(operation, status);
        }
        if (k.slot != nullptr && is_read)
            k.slot->note(operation, bytes.first(std::min(bytes.size(), k.c.args().position() - begun)));
        if (k.dropped) {
            // Nobody hears it now. Where the call is not run again, whoever repeats it does.
            if (k.changed)
                k.results.fail(operation, status);
            co_return;
        }
        if (status == nfsstat4::ok && changes_something(operation)) {
            k.changed = true;
            if (k.slot != nullptr)
                k.slot->counts();
        }
        counters_.note(operation, status);
        if (status != nfsstat4::ok) {
            if (!std::exchange(k.answered, false))
                k.results.fail(operation, status);
            co_return;
        }
    }
}

// Operations that are known and not served: their arguments must be right all the same (8881 15.1.1.5).
task<nfsstat4> server::run(compound& k, nfs_opnum4 operation)
{
    switch (operation) {
    case nfs_opnum4::access: return access(k);
    case nfs_opnum4::close: return close(k);
    case nfs_opnum4::commit: return commit(k);
    case nfs_opnum4::create: return create(k);
    case nfs_opnum4::delegreturn: return delegreturn(k);
    case nfs_opnum4::getattr: return getattr(k);
    case nfs_opnum4::getfh: return getfh(k);
    case nfs_opnum4::link: return link(k);
    case nfs_opnum4::lock: return lock(k);
    case nfs_opnum4::lockt: return lockt(k);
    case nfs_opnum4::locku: return locku(k);
    case nfs_opnum4::lookup: return lookup(k);
    case nfs_opnum4::lookupp: return lookupp(k);
    case nfs_opnum4::nverify: return nverify(k);
    case nfs_opnum4::open: return open(k);
    case nfs_opnum4::open_downgrade: return open_downgrade(k);
    case nfs_opnum4::putfh: return putfh(k);
    case nfs_opnum4::putpubfh: return put_root(k, nfs_opnum4::putpubfh);
    case nfs_opnum4::putrootfh: return put_root(k, nfs_opnum4::putrootfh);
    case nfs_opnum4::read: return read(k);
    case nfs_opnum4::readdir: return readdir(k);
    case nfs_opnum4::readlink: return readlink(k);
    case nfs_opnum4::remove: return remove(k);
    case nfs_opnum4::rename: return rename(k);
    case nfs_opnum4::restorefh: return restorefh(k);
    case nfs_opnum4::savefh: return savefh(k);
    case nfs_opnum4::secinfo: return secinfo(k);
    case nfs_opnum4::setattr: return setattr(k);
    case nfs_opnum4::verify: return verify(k);
    case nfs_opnum4::write: return write(k);
    case nfs_opnum4::backchannel_ctl: return backchannel_ctl(k);
    case nfs_opnum4::bind_conn_to_session: return bind_conn_to_session(k);
    case nfs_opnum4::exchange_id: return exchange_id(k);
    case nfs_opnum4::create_session: return create_session(k);
    case nfs_opnum4::destroy_session: return destroy_session(k);
    case nfs_opnum4::free_stateid: return free_stateid(k);
    case nfs_opnum4::secinfo_no_name: return secinfo_no_name(k);
    case nfs_opnum4::test_stateid: return test_stateid(k);
    case nfs_opnum4::destroy_clientid: return destroy_clientid(k);
    case nfs_opnum4::reclaim_complete: return reclaim_complete(k);
    case nfs_opnum4::allocate: return allocate(k);
    case nfs_opnum4::copy: return copy(k);
    case nfs_opnum4::deallocate: return deallocate(k);
    case nfs_opnum4::io_advise: return io_advise(k);
    case nfs_opnum4::seek: return seek(k);
    case nfs_opnum4::clone: return clone(k);
    case nfs_opnum4::getxattr: return getxattr(k);
    case nfs_opnum4::setxattr: return setxattr(k);
    case nfs_opnum4::listxattrs: return listxattrs(k);
    case nfs_opnum4::removexattr: return removexattr(k);
    default: break;
    }
    const bool readable = k.args.visit([](const auto&) {});
    return answer_with(readable ? nfsstat4::notsupp : nfsstat4::badxdr);
}

} // namespace verbena::nfs::v4
