// SPDX-License-Identifier: Apache-2.0
// COMPOUND: what a call may contain, and one operation after the other.
#include "compounds.hpp"
#include "../refused_access.hpp"
#include "operations/operations.hpp"
#include "operations/steps.hpp"

#include <verbena/core/siphash.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace verbena::nfs::v4 {

namespace {

// Operations that are known and not served: their arguments must be right all the same (8881 15.1.1.5).
task<nfsstat4> run(compound& k, nfs_opnum4 operation)
{
    if (const operations::function serves = operations::function_of(operation, k.minor()))
        return serves(k);
    const bool readable = k.args.visit([](const auto&) {});
    return operations::answer_with(readable ? nfsstat4::notsupp : nfsstat4::badxdr);
}

task<rpc::outcome> serve_alone(server_parts& server, rpc::call& c, compound_arguments& args)
{
    compound k(server, c, args, SIZE_MAX);
    const time_point begun = server.here.reactor().now();
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
        server.counters.note_time(operation, k.end_time() - begun);
    }
    server.counters.note(as, status);
    if (status != nfsstat4::ok && !k.answered)
        k.results.fail(as, status);
    co_return k.results.ok() ? rpc::outcome::success : rpc::outcome::system_error;
}

// By the rule of the export, be it that of a reload since the call began, or as the pseudo file system is.
bool is_read_only(const export_table& exports, const object& o) noexcept
{
    if (o.none())
        return false;
    if (o.is_pseudo() || o.exported->read_only)
        return true;
    const export_options* const now = exports.by_id(o.exported->id);
    return now == nullptr || now->read_only;
}

void count(export_counters& of, const compound& k, nfs_opnum4 operation, nfsstat4 status) noexcept
{
    switch (operation) {
    case nfs_opnum4::read:
    case nfs_opnum4::read_plus: of.reads.add(); break;
    case nfs_opnum4::write: of.writes.add(); break;
    default: of.others.add(); break;
    }
    const auto note = [&](export_failure why) { note_failure(of, why, k.c, to_string(operation)); };
    switch (status) {
    case nfsstat4::nospc:
        if (!k.met_limit)
            note(export_failure::space);
        return;
    case nfsstat4::dquot: return note(export_failure::quota);
    case nfsstat4::io:
    case nfsstat4::nxio: return note(export_failure::io);
    case nfsstat4::rofs:
        if (!is_read_only(k.server.commons.exports, k.current) &&
            !is_read_only(k.server.commons.exports, k.saved))
            note(export_failure::read_only);
        return;
    default: return;
    }
}

// What has no better place: the rule of an export that all changes ask, and limits of minor version 0, whose answer has no other cause.
void tell_of(const compound& k, nfs_opnum4 operation, nfsstat4 status) noexcept
{
    if (status == nfsstat4::rofs) {
        for (const object* o : {&k.current, &k.saved}) {
            if (!o->none() && !o->is_pseudo() && o->exported->read_only)
                return tell_read_only(*o->exported, k.c.from());
        }
    } else if (k.minor() == 0 && status == nfsstat4::resource) {
        if (operation == nfs_opnum4::open)
            tell_refusal(refused::client_opens, {.peer = k.c.from().address, .object = "4.0"});
        else if (operation == nfs_opnum4::lock || operation == nfs_opnum4::locku)
            tell_refusal(refused::client_locks, {.peer = k.c.from().address, .object = "4.0"});
    }
}

} // namespace

void compound::describe(request_report& into) const noexcept
{
    into.version.clear();
    into.version.append("4.").append(minor());
    if (args.index() == 0)
        return; // it is a COMPOUND, and that is all
    into.operation.clear();
    into.operation.append(to_string(args.opcode())).append(", ").append(args.index()).append(" of ");
    into.operation.append(args.head().operations);
    if (current.none())
        return;
    if (current.is_pseudo())
        into.object.append("the pseudo file system");
    else
        nfs::describe(*current.exported, current.file, into);
}

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
    case nfs_opnum4::layoutcommit:
    case nfs_opnum4::layoutget:
    case nfs_opnum4::layoutreturn:
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

principal_digest caller_of(const server_commons& commons, const rpc::call& c) noexcept
{
    std::array<std::byte, 12> who{};
    if (!c.who().is_anonymous()) {
        xdr::store_u32(who.data(), 1);
        xdr::store_u32(who.data() + 4, c.who().uid());
        xdr::store_u32(who.data() + 8, c.who().gid());
    }
    return siphash(commons.key, who);
}

task<rpc::outcome> serve_compound(server_parts& server, rpc::call& c)
{
    const xdr::decoder whole = c.args();
    compound_arguments args(c.args());
    if (!args.ok())
        co_return rpc::outcome::garbage_args;
    const bool has_memory = co_await c.reserve_results(usual_results);
    const std::uint32_t minor = args.head().minorversion;
    if (minor > max_minor_version || !server.commons.minors[minor]) {
        compound_results results(c.results(), args.head().tag);
        results.refuse(nfsstat4::minor_vers_mismatch);
        co_return rpc::outcome::success;
    }
    if (minor == 0 && has_memory) {
        task<rpc::outcome> served = serve_v40(server, c, args, &whole);
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
        server.counters.note(first, results.status());
        co_return results.ok() ? rpc::outcome::success : rpc::outcome::system_error;
    }
    if (args.opcode() == nfs_opnum4::sequence) {
        task<rpc::outcome> served = serve_in_session(server, c, args, whole);
        co_return co_await served;
    }
    task<rpc::outcome> served = serve_alone(server, c, args);
    co_return co_await served;
}

task<void> run_operations(compound& k)
{
    // The clock is read once for each operation that has a time of its own: where one ends the next one begins. What the others wait
    // for is nobody's: it ends in a later turn, whose time the reactor knows.
    time_point since = k.server.here.reactor().now();
    for (;;) {
        const std::size_t begun = k.c.args().position();
        const std::span<const std::byte> bytes = k.c.args().rest();
        const std::span<const std::byte> behind = k.c.args().rest_of_second();
        bool is_read = false;
        if (!k.args.next())
            co_return;
        const nfs_opnum4 operation = k.args.opcode();
        if (!is_operation(operation, k.minor())) {
            k.server.counters.note(nfs_opnum4::illegal, nfsstat4::op_illegal);
            k.results.fail(nfs_opnum4::illegal, nfsstat4::op_illegal);
            co_return;
        }
        const bool is_counted = is_timed(operation);
        if (is_counted)
            since = std::max(since, k.server.here.reactor().now());
        if (k.c.results().room() < compound::least_room)
            k.lacks_memory = !co_await k.c.reserve_results(usual_results);
        nfsstat4 status = nfsstat4::ok;
        if (operation == nfs_opnum4::sequence) {
            status = nfsstat4::sequence_pos;
        } else {
            task<nfsstat4> running = run(k, operation);
            status = co_await running;
            is_read = k.c.args().ok();
            k.end_doing();
            // They are there, but not in one piece, as the arguments of an operation have to be. It has read them
            // first.
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
        k.read += is_read;
        // A call that is not kept has its operations noted when a repeat waits for it, which is hardly ever.
        if (k.kept && k.slot != nullptr && is_read)
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
        k.server.counters.note(operation, status);
        if (is_counted) {
            const time_point end = k.end_time();
            k.server.counters.note_time(operation, end - since);
            since = end;
            if (export_counters* const of_export = k.counters_of_current())
                count(*of_export, k, operation, status);
        }
        if (status != nfsstat4::ok) {
            tell_of(k, operation, status);
            if (!std::exchange(k.answered, false))
                k.results.fail(operation, status);
            co_return;
        }
    }
}

} // namespace verbena::nfs::v4
