// SPDX-License-Identifier: Apache-2.0
// COMPOUND: what a call may contain, its slot, and one operation after the other.
#include "compound.hpp"

#include <verbena/core/printable.hpp>
#include <verbena/core/sleep.hpp>
#include <verbena/protocols/rpc/kept_results.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <array>
#include <cstdio>

namespace verbena::nfs::v4 {

namespace {

// Room for what most calls are answered.
constexpr std::size_t usual_results = 4096;

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

namespace {

siphash_key key_for(const handle_key& secret, std::uint64_t what) noexcept
{
    siphash_key made;
    std::array<std::byte, 16> text{};
    xdr::store_u64(text.data(), what);
    for (const std::size_t half : {0, 8}) {
        text[15] = std::byte(half);
        xdr::store_u64(made.data() + half, siphash(secret, text));
    }
    return made;
}
// Whoever finds out about one knows nothing of the others.
constexpr std::uint64_t for_sessions = 0x73657373'696f6e73; // "sessions"
constexpr std::uint64_t for_state = 0x73746174'65000000;    // "state"
constexpr std::uint64_t for_v40 = 0x76657273'696f6e30;      // "version0"

files::state_options with_key(files::state_options options, const siphash_key& key)
{
    options.key = key;
    return options;
}

std::string owner_of(const handle_key& key)
{
    static constexpr std::array<std::byte, 4> what = {std::byte('n'), std::byte('f'), std::byte('s'),
                                                      std::byte('4')};
    std::array<char, 17> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx",
                  static_cast<unsigned long long>(siphash(key, what)));
    return "verbena-" + std::string(digits.data());
}

} // namespace

server_commons::server_commons(const export_table& table, const handle_key& secret, shard& home,
                               files::recovery_store& store, files::state_options options, std::int64_t now,
                               session_limits limits)
    : exports(table),
      key(secret),
      tree(table),
      started(now),
      owner(owner_of(secret)),
      callbacks(*this),
      state(home, store, callbacks, with_key(options, key_for(secret, for_state))),
      sessions(key_for(secret, for_sessions), options.epoch, options.lease, limits),
      v40(state, key_for(secret, for_v40), limits)
{
    state.ask_holders(callbacks);
}

// On the table's shard. A client that no session names has nothing to come back for, however much it has.
task<std::size_t> server_commons::end_lapsed(std::vector<files::client_id> clients, ending what,
                                             std::size_t most)
{
    files::state_table& table = state.table();
    std::size_t ended = 0;
    for (const files::client_id known : clients) {
        if (ended == most)
            break;
        const auto is = table.state_of(known);
        const session_table::name named = sessions.name_of(known);
        if (!is || *is == files::client_state::active || named.creating)
            continue;
        const auto used = table.is_in_use(known);
        const bool is_named = named.client != 0 || v40.clients().knows(known);
        const bool may_come_back = what == ending::of_what_is_lost && is_named &&
                                   *is == files::client_state::courtesy && used && *used;
        if (may_come_back)
            continue;
        if (named.client != 0)
            sessions.forget(named.client);
        v40.forget(known);
        co_await state.abandon(known);
        ++ended;
    }
    co_return ended;
}

task<void> server_commons::tend()
{
    files::state_table& table = state.table();
    while (co_await sleep_for(table.options().lease)) {
        std::vector<files::client_id> lapsed = table.lapsed();
        task<std::size_t> ending_them = end_lapsed(std::move(lapsed), ending::of_what_is_lost, SIZE_MAX);
        (void)co_await ending_them;
        co_await state.forget_abandoned();
        const task_context& context = co_await current_context();
        sessions.drop_unconfirmed(context.shard->now());
        v40.paths().tidy();
        // All of them each time, and others' calls between a thousand and the next.
        bool more = v40.tend(context.shard->clock().now());
        while (more) {
            more = co_await sleep_for(std::chrono::milliseconds(1));
            more = more && v40.tend(context.shard->clock().now());
        }
    }
}

// `choose(table)`, on the table's shard, names those that may be ended.
template<class Choose>
task<bool> server_commons::end_some(Choose choose)
{
    // Enough for those that come meanwhile.
    constexpr std::size_t at_once = 16;
    task<std::size_t> making = state.at_home([this, &choose](files::state_table& table) {
        return end_lapsed(choose(table), ending::of_each, at_once);
    });
    co_return co_await making != 0;
}

// To end a client of another minor version makes no room.
task<bool> server_commons::make_room(session_table::shortage of, std::string_view from)
{
    const task_context& context = co_await current_context();
    if (!sessions.may_make_room(of, from, context.shard->clock().now()))
        co_return false;
    const auto choose = [this, of, from](files::state_table& table) {
        if (of == session_table::shortage::of_peer)
            return sessions.states_of(from);
        std::vector<files::client_id> those = table.lapsed();
        std::erase_if(those, [this](files::client_id c) { return sessions.name_of(c).client == 0; });
        return those;
    };
    co_return co_await end_some(choose);
}

task<bool> server_commons::make_room_v40(session_table::shortage of, std::string_view from)
{
    const auto choose = [this, of, from](files::state_table& table) {
        std::vector<files::client_id> those;
        if (!v40.clients().may_make_room(of, from, state.now()))
            return those;
        if (of == session_table::shortage::of_peer)
            return v40.clients().states_of(from);
        those = table.lapsed();
        std::erase_if(those, [this](files::client_id c) { return !v40.clients().knows(c); });
        return those;
    };
    co_return co_await end_some(choose);
}

namespace {

task<result<void>> keep_rival() { co_return error(files::errc::client_busy); }

} // namespace

// Nothing comes between the question and the end of what it has: see state_table::take_state().
task<nfsstat4> server_commons::end_rival(files::client_id client)
{
    const auto ending = [this, client](files::state_table&) -> task<result<void>> {
        const session_table::name named = sessions.name_of(client);
        // Who has sessions and nothing else gives way as who has something: when the lease is over.
        const name_rule rule = named.has_sessions ? name_rule::lapsed : name_rule::unused;
        if (named.creating || named.running || !state.yields(client, rule))
            return keep_rival();
        return state.forget(client);
    };
    const result<void> ended = co_await state.at_home(ending);
    const bool keeps = !ended && ended.error() == files::errc::client_busy;
    co_return keeps ? nfsstat4::clid_inuse : status_of_state(ended);
}

void server_commons::note_shared_name(std::span<const std::byte> name, std::string_view holder,
                                      std::string_view from)
{
    const std::string_view text(reinterpret_cast<const char*>(name.data()), name.size());
    log_limited(shared_names_, log_level::warning, "nfs",
                "a client has the name of another one whose lease runs, and does not get in before that is "
                "over; it may have "
                "moved or restarted, but hosts that were cloned, and containers, often have one name",
                {{"name", printable(text)},
                 {"waits", from},
                 {"has_it", holder},
                 {"cure", "give each its own, by nfs.nfs4_unique_id or its host name (docs/howto/nfs4.md)"}});
}

task<bool> server_commons::make_room_of_state()
{
    const auto choose = [this](files::state_table& table) {
        return made_room_of_state_.may(state.now()) ? table.lapsed() : std::vector<files::client_id>();
    };
    co_return co_await end_some(choose);
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
    // An item that a chunk carries is left out; what comes in two pieces is not.
    const call_digest::bytes_of begins(c.args(), 64);
    const auto end = std::ranges::copy(begins.first, text.begin() + 16).out;
    std::ranges::copy(begins.second, end);
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

bool lies_apart(const xdr::decoder& in) noexcept
{
    return !in.ok() && in.failure() == std::errc::no_buffer_space;
}

// Whether the COMPOUND of `c`, which begins at `entire` and like the one that `known` is of, has the same operations,
// as far as that one ran: ok or seq_false_retry. delay: there is no memory to join what came in two pieces. Arguments
// that the transport can't join are taken for the same. Reads all arguments anew; the call is not run.
task<nfsstat4> compare_calls(rpc::call& c, xdr::decoder entire, call_digest known)
{
    c.args() = entire;
    compound_arguments args(c.args());
    SEQUENCE4args sequence;
    if (!args.next() || !args.read(sequence))
        co_return nfsstat4::seq_false_retry;
    call_digest digest;
    while (digest.operations() < known.operations()) {
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
            co_return nfsstat4::seq_false_retry; // those of the other call could be read
        }
    }
    co_return digest == known ? nfsstat4::ok : nfsstat4::seq_false_retry;
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
        if (verdict == slot_verdict::repeat) {
            task<nfsstat4> comparing = compare_calls(c, entire, slot.digest());
            status = co_await comparing;
            if (status != nfsstat4::ok)
                verdict = slot_verdict::refused;
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

task<void> server::run_operations(compound& k)
{
    for (;;) {
        const std::size_t begun = k.c.args().position();
        const std::span<const std::byte> bytes = k.c.args().rest();
        const std::span<const std::byte> behind = k.c.args().rest_of_second();
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
        if (operation == nfs_opnum4::sequence) {
            status = nfsstat4::sequence_pos;
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
            k.slot->note(operation, call_digest::bytes_of(bytes, behind, k.c.args().position() - begun));
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
