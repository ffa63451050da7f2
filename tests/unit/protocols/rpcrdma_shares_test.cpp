// SPDX-License-Identifier: Apache-2.0
// What one host may take of a responder: two that take all the connections they can, admitted or not, keep nobody else out.
#include <boost/test/unit_test.hpp>

#include "../log_at.hpp"
#include "throwing_listener.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/loop.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(rpcrdma_shares_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

class answers final : public rpc::dispatcher {
public:
    task<bool> dispatch(rpc::call& c) override
    {
        BOOST_REQUIRE((c.decode_header() == rpc::call_verdict::good));
        rpc::encode(c.results(),
                    rpc::reply_header::accepted_with(c.header().xid, rpc::accept_status::success));
        co_return true;
    }
    bool admits(const rpc::peer& from) override
    {
        BOOST_TEST(from.transport == "loop");
        return from.address != stranger;
    }
    std::string stranger;
};

class ignored final : public verbs::completion_handler {
public:
    void on_completions(std::span<const verbs::completion>) noexcept override {}
    void on_disconnected(const error&) noexcept override {}
};

struct fixture {
    const test::log_at level_of_log{log_level::off};
    fixture()
    {
        reactor_options r;
        r.clock = &clock;
        shard = std::move(*reactor::create(r));
        pool = std::make_unique<buffer_pool>(budget, shard.get());
        fabric = loop::make_fabric(*shard, {});
        server = fabric->make_context();
        first = std::move(*server->listen("first"));
        second = std::move(*server->listen("second"));
        throwing_first = std::make_unique<test::throwing_listener>(*first);
        options.peers = &peers;
    }
    loop::context& host(const char* address)
    {
        loop::options o;
        o.name = address;
        hosts.push_back(fabric->make_context(o));
        domains.push_back(std::move(*hosts.back()->make_domain()));
        return *hosts.back();
    }
    // Whoever is let in stays.
    task<bool> connects(std::size_t from, const char* to)
    {
        std::vector<std::byte> reply;
        const verbs::connect_options defaults;
        auto q = co_await hosts[from]->connect(to, *domains[from], defaults, reply);
        if (!q)
            co_return false;
        (*q)->set_handler(&events);
        held.push_back(std::move(*q));
        co_return true;
    }
    // A call by a connection of its own.
    task<void> works(loop::context& from)
    {
        rpcrdma::requester_options how;
        how.client.timeout = 20s;
        const auto requester = rpcrdma::make_requester(from, *pool, "first", how, &sent);
        rpc::call_header header;
        header.program = 100003;
        header.version = 3;
        rpc::request r(pool->try_acquire(1024), header);
        const auto reply = co_await requester->call(r);
        BOOST_TEST(reply.has_value());
        co_await requester->close();
    }
    void run(const std::function<task<void>()>& body)
    {
        run_until_complete(*shard, whole(body));
        BOOST_TEST(peers.peers() == 0u);
        BOOST_TEST(stats.connections.value() == 0);
    }
    task<void> whole(const std::function<task<void>()>& body)
    {
        scope s(*shard);
        s.spawn([&] { return rpcrdma::serve(*server, *throwing_first, *pool, calls, options, stats); });
        s.spawn([&] { return rpcrdma::serve(*server, *second, *pool, calls, options, stats); });
        co_await body();
        for (auto& q : held)
            q->kill(error(std::errc::connection_aborted, "over"));
        held.clear();
        first->close();
        second->close();
        co_await s.join();
    }

    virtual_clock clock;
    memory_budget budget{16u << 20};
    std::unique_ptr<reactor> shard;
    std::unique_ptr<buffer_pool> pool;
    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<loop::context> server;
    std::unique_ptr<verbs::listener> first, second;
    std::unique_ptr<test::throwing_listener> throwing_first;
    std::vector<std::unique_ptr<loop::context>> hosts;
    std::vector<std::unique_ptr<verbs::protection_domain>> domains;
    ignored events;
    std::vector<std::unique_ptr<verbs::queue_pair>> held;
    peer_shares peers;
    answers calls;
    rpcrdma::responder_options options;
    rpcrdma::responder_stats stats;
    rpcrdma::requester_stats sent;
};

} // namespace

BOOST_AUTO_TEST_CASE(connections_of_two_hosts_over_all_listeners)
{
    fixture f;
    f.options.max_connections = 5; // of one listener
    f.options.max_peer_connections = 3;
    f.run([&]() -> task<void> {
        f.host("192.0.2.101");
        f.host("2001:db8::101");
        f.host("2001:db8::102"); // of the same peer
        const std::size_t hosts[] = {0, 1};
        const char* const listeners[] = {"first", "second"};
        for (const std::size_t from : hosts) {
            BOOST_TEST(co_await f.connects(from, "first"));
            BOOST_TEST(co_await f.connects(from, "second"));
            BOOST_TEST(co_await f.connects(from == 0 ? 0 : 2, "first"));
            for (const char* to : listeners) {
                BOOST_TEST(!co_await f.connects(from, to));
                BOOST_TEST(!co_await f.connects(from == 0 ? 0 : 2, to));
            }
        }
        BOOST_TEST(f.stats.connections.value() == 6);
        BOOST_TEST(f.stats.rejected_connections.value() == 8u);
        BOOST_TEST(f.peers.refused(peer_use::rdma_connections) == 8u);
        if (f.peers.refused(peer_use::rdma_connections) != 8u)
            co_return; // nobody else gets in, and would try for ever
        co_await f.works(f.host("192.0.2.7"));
        // One that goes gives its place back.
        f.held.front()->kill(error(std::errc::connection_aborted, "over"));
        f.held.erase(f.held.begin());
        co_await sleep_for(10ms);
        BOOST_TEST(co_await f.connects(0, "first"));
        BOOST_TEST(!co_await f.connects(0, "first"));
    });
}

BOOST_AUTO_TEST_CASE(a_listener_that_throws_is_asked_again)
{
    fixture f;
    f.throwing_first->throws = 2;
    f.run([&]() -> task<void> {
        co_await sleep_for(1s);
        BOOST_TEST(f.throwing_first->throws == 0u);
        BOOST_TEST(f.stats.exceptions.value() == 2u);
        if (f.throwing_first->throws == 0u) // else nobody answers
            co_await f.works(f.host("192.0.2.7"));
    });
}

BOOST_AUTO_TEST_CASE(who_is_not_admitted_takes_nothing)
{
    fixture f;
    f.calls.stranger = "192.0.2.66";
    f.run([&]() -> task<void> {
        f.host("192.0.2.66");
        const std::size_t before = f.pool->outstanding();
        for (int i = 0; i < 50; ++i)
            BOOST_TEST(!co_await f.connects(0, "first"));
        BOOST_TEST(f.pool->outstanding() == before);
        BOOST_TEST(f.peers.peers() == 0u);
        BOOST_TEST(f.stats.rejected_connections.value() == 50u);
        co_await f.works(f.host("192.0.2.7"));
    });
}

BOOST_AUTO_TEST_SUITE_END()
