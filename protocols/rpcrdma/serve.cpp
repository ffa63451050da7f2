// SPDX-License-Identifier: Apache-2.0
// A listener's connections: taking them, and letting them end in good order.
#include <verbena/protocols/rpcrdma/responder.hpp>

#include "rejection.hpp"
#include "responder_connection.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/net/refusals.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/yield.hpp>

#include <algorithm>
#include <utility>

namespace verbena::rpcrdma {
namespace {

constexpr auto pause_after_exception = std::chrono::milliseconds(100);

// The connections of one listener.
struct serving {
    class member {
    public:
        member(serving& all, responder_connection& c) : all_(all), connection_(&c)
        {
            all_.connections.push_back(connection_);
        }
        member(const member&) = delete;
        ~member()
        {
            std::erase(all_.connections, connection_);
            if (all_.connections.empty())
                all_.empty.set();
        }

    private:
        serving& all_;
        responder_connection* connection_;
    };
    std::vector<responder_connection*> connections;
    event empty;
    std::unique_ptr<peer_shares> own_peers;
    peer_shares* peers = nullptr;
    chunk_shares shares;
    listener_commons commons;

    serving(verbs::context& provider, buffer_pool& buffers, const responder_options& options,
            responder_stats& stats)
        : commons(provider, buffers, options, stats)
    {
    }
};

// Of what is left of a connection's task when it throws, which is little: the connection has a handler of its own.
class lost_connections final : public exception_handler {
public:
    explicit lost_connections(responder_stats& stats) noexcept : stats_(stats) {}
    void on_exception(const std::exception_ptr& e) noexcept override
    {
        stats_.exceptions.add();
        log_limited(stats_.exceptions_logged, log_level::error, "rpcrdma", "connection ended by an exception",
                    {{"exception", what_of(e)}});
    }

private:
    responder_stats& stats_;
};

task<void> serve_one(std::unique_ptr<verbs::connect_request> request, verbs::context& provider,
                     verbs::protection_domain& domain, buffer_pool& buffers, rpc::dispatcher& dispatcher,
                     const responder_options& options, responder_stats& stats, serving& all,
                     peer_charge charged, chunk_shares::user share)
{
    const peer_charge held = std::move(charged); // until the connection is gone

    auto connection = std::make_unique<responder_connection>(provider, buffers, dispatcher, options, stats,
                                                             std::move(share), all.commons);
    const serving::member here(all, *connection);
    co_await connection->run(std::move(request), domain);
}

// A connection of another protocol. It is no member of `serving`: nobody waits for calls of it.
task<void> serve_other(std::unique_ptr<verbs::connect_request> request, verbs::side_connections& others,
                       peer_charge charged)
{
    const peer_charge held = std::move(charged); // until the connection is gone
    co_await others.serve(std::move(request));
}

// count_: the connection may be taken.
refused refusal_of(const verbs::connect_request& request, verbs::context& provider,
                   rpc::dispatcher& dispatcher, bool charged, bool full)
{
    if (!charged)
        return refused::connection_share;
    rpc::peer from;
    from.address = request.peer_address();
    from.name = request.peer_name();
    from.transport = provider.query().provider;
    if (!dispatcher.admits(from))
        return refused::connection_address;
    return full ? refused::connection_all : refused::count_;
}

void tell(refused why, const verbs::connect_request& request, verbs::context& provider,
          const responder_options& options) noexcept
{
    refusal r{.peer = request.peer_address(), .object = provider.query().provider};
    if (why == refused::connection_share) {
        r.most = options.max_peer_connections;
    } else if (why == refused::connection_all) {
        r.most = options.max_connections;
        r.said = "of this shard";
        r.cure = "raise connections of [daemon], or memory_mib, from which it follows";
    }
    tell_refusal(why, r);
}

task<void> take_connections(verbs::context& provider, verbs::listener& listener,
                            verbs::protection_domain& domain, buffer_pool& buffers,
                            rpc::dispatcher& dispatcher, const responder_options& options,
                            responder_stats& stats, serving& all, scope& connections, exception_handler& lost)
{
    for (bool thrown = false;;) {
        bool asks = false;
        try {
            if (std::exchange(thrown, false)) {
                co_await yield(); // if there is no memory to sleep either
                const bool slept = co_await sleep_for(pause_after_exception);
                if (!slept)
                    co_return;
            }
            asks = true;
            auto request = co_await listener.next();
            asks = false;
            if (!request)
                co_return;
            // Charged, then admitted, before anything is made for it.
            peer_charge place = all.peers->charge((*request)->peer_address(), peer_use::rdma_connections, 1,
                                                  options.max_peer_connections);
            const bool is_evicted =
                all.peers->evicted().has((*request)->peer_address(), provider.shard().clock().now());
            const refused why = is_evicted ? refused::connection_evicted
                                           : refusal_of(**request, provider, dispatcher, bool(place),
                                                        connections.live() >= options.max_connections);
            if (why != refused::count_) {
                stats.rejected_connections.add();
                tell(why, **request, provider, options);
                (void)co_await (*request)->reject(encode_rejection(why));
                continue;
            }
            if (options.others != nullptr && options.others->takes((*request)->private_data())) {
                connections.spawn(
                    [&] { return serve_other(std::move(*request), *options.others, std::move(place)); });
                continue;
            }
            const std::string group = peer_group((*request)->peer_address(), all.peers->options().v6_prefix);
            connections.spawn([&] {
                return serve_one(std::move(*request), provider, domain, buffers, dispatcher, options, stats,
                                 all, std::move(place), chunk_shares::user(all.shares, group));
            });
        } catch (...) {
            lost.on_exception(std::current_exception());
            thrown = asks; // what one connection causes holds up no other
        }
    }
}

} // namespace

task<void> serve(verbs::context& provider, verbs::listener& listener, buffer_pool& buffers,
                 rpc::dispatcher& dispatcher, const responder_options& options, responder_stats& stats)
{
    std::unique_ptr<verbs::protection_domain> own;
    if (options.domain == nullptr) {
        auto made = provider.make_domain();
        if (!made) {
            log(log_level::error, "rpcrdma", "no protection domain", {{"cause", made.error().message()}});
            co_return;
        }
        own = std::move(*made);
    }
    verbs::protection_domain& domain = own ? *own : *options.domain;
    if (const auto added = co_await domain.add_pool(buffers); !added) {
        log(log_level::error, "rpcrdma", "buffers can't be registered", {{"cause", added.error().message()}});
        co_return;
    }
    serving all(provider, buffers, options, stats);
    co_await all.commons.receives.open(domain);
    if (options.peers == nullptr)
        all.own_peers = std::make_unique<peer_shares>();
    all.peers = options.peers != nullptr ? options.peers : all.own_peers.get();
    lost_connections lost(stats);
    scope connections(provider.shard(), nullptr, &lost, "RDMA connections");
    // Whatever ends it, those that are there are joined.
    try {
        co_await take_connections(provider, listener, domain, buffers, dispatcher, options, stats, all,
                                  connections, lost);
    } catch (...) {
        lost.on_exception(std::current_exception());
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
    co_await all.commons.receives.close();
}

} // namespace verbena::rpcrdma
