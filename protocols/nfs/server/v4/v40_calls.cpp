// SPDX-License-Identifier: Apache-2.0
// COMPOUND in minor version 0, which has no session: what a repeat gets, and whose call it is.
#include "compounds.hpp"

#include <verbena/protocols/nfs/server/v4/server.hpp>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

namespace verbena::nfs::v4 {

namespace {

// What a reply may take: the largest READ or listing, and what stands around it.
constexpr std::size_t largest_reply40 = server::max_transfer + server::max_listing;

} // namespace

rpc::repeat_rule repeat_rule_of(const server_commons& commons, xdr::decoder ahead) noexcept
{
    compound_arguments args(ahead);
    if (!args.ok() || args.head().minorversion != 0 || !commons.minors[0])
        return rpc::repeat_rule::runs_again; // slots answer repeats
    while (args.index() < commons.v40.most_operations() && args.next()) {
        const nfs_opnum4 operation = args.opcode();
        if (!is_operation(operation, 0))
            break;
        if (changes_something(operation))
            return operation == nfs_opnum4::write ? rpc::repeat_rule::runs_in_turn
                                                  : rpc::repeat_rule::is_answered;
        // What stands behind arguments that are in two pieces may change something.
        if (!args.visit([](const auto&) {}))
            return lies_apart(ahead) ? rpc::repeat_rule::is_answered : rpc::repeat_rule::runs_again;
    }
    return rpc::repeat_rule::runs_again;
}

task<rpc::outcome> serve_v40(server_parts& server, rpc::call& c, compound_arguments& args,
                             const xdr::decoder* whole)
{
    const rpc::repeat_rule rule = repeat_rule_of(server.commons, *whole);
    if (args.head().operations > server.commons.v40.most_operations()) {
        compound_results results(c.results(), args.head().tag);
        results.refuse(nfsstat4::resource);
        co_return rpc::outcome::success;
    }
    const bool is_kept = rule == rpc::repeat_rule::is_answered;
    const std::size_t start = c.results().position();
    // What is not kept would be lost to a repeat.
    const std::size_t most = is_kept ? c.most_kept() - std::min(start, c.most_kept()) : largest_reply40;
    compound k(server, c, args, std::min(most, largest_reply40));
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

// A client is not to wait for its own delegation: Linux asks for attributes in front of DELEGRETURN, in the same
// COMPOUND. What says whose delegations are its own may stand behind, so it is looked for in all of it, and only for
// files that somebody has state of.
task<void> learn_client(compound& k)
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
        k.client = co_await k.server.commons.v40.client_of(*named.number, k.c.from().address);
    else if (named.id)
        k.client = co_await k.server.commons.v40.holder_of(*named.id);
    if (k.client != files::nobody)
        k.is_of(k.client);
}

} // namespace verbena::nfs::v4
