// SPDX-License-Identifier: Apache-2.0
// A listener's connections: taking them, and letting them end in good order.
#include <verbena/protocols/rpcrdma/responder.hpp>

#include "responder_connection.hpp"

#include <verbena/core/log.hpp>

#include <algorithm>

namespace verbena::rpcrdma {
namespace {

// The connections of one listener.
struct serving {
    std::vector<responder_connection*> connections;
    event empty;
    chunk_shares shares;
};

task<void> serve_one(std::unique_ptr<verbs::connect_request> request, verbs::context& provider,
                     verbs::protection_domain& domain, buffer_pool& buffers, rpc::dispatcher& dispatcher,
                     const responder_options& options, responder_stats& stats, serving& all,
                     chunk_shares::user share)
{
    auto connection = std::make_unique<responder_connection>(provider, buffers, dispatcher, options, stats,
                                                             std::move(share));
    all.connections.push_back(connection.get());
    co_await connection->run(std::move(request), domain);
    std::erase(all.connections, connection.get());
    connection.reset();
    if (all.connections.empty())
        all.empty.set();
}

} // namespace

task<void> serve(verbs::context& provider, verbs::listener& listener, buffer_pool& buffers,
                 rpc::dispatcher& dispatcher, const responder_options& options, responder_stats& stats)
{
    auto domain = provider.make_domain();
    if (!domain) {
        log(log_level::error, "rpcrdma", "no protection domain", {{"cause", domain.error().message()}});
        co_return;
    }
    if (const auto added = co_await (*domain)->add_pool(buffers); !added) {
        log(log_level::error, "rpcrdma", "buffers can't be registered", {{"cause", added.error().message()}});
        co_return;
    }
    serving all;
    scope connections(provider.shard());
    for (;;) {
        auto request = co_await listener.next();
        if (!request)
            break;
        const std::string address((*request)->peer_address());
        if (connections.live() >= options.max_connections ||
            all.shares.connections(address) >= options.max_address_connections) {
            stats.rejected_connections.add();
            (void)co_await (*request)->reject({});
            continue;
        }
        connections.spawn(serve_one(std::move(*request), provider, **domain, buffers, dispatcher, options,
                                    stats, all, chunk_shares::user(all.shares, address)));
    }
    // A copy: a connection without calls may end at once.
    const auto draining = all.connections;
    for (responder_connection* c : draining)
        c->drain();
    while (!all.connections.empty()) {
        all.empty.reset();
        const bool ended = co_await all.empty.wait();
        if (!ended)
            break;
    }
    connections.request_stop();
    co_await connections.join();
}

} // namespace verbena::rpcrdma
