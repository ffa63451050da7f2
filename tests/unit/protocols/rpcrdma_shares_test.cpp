// SPDX-License-Identifier: Apache-2.0
// What one host may take of a responder: two that take all the connections they can, admitted or not, keep nobody else out.
#include <boost/test/unit_test.hpp>

#include "../log_at.hpp"
#include "../refusals_since.hpp"
#include "throwing_listener.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/verbs/side_connections.hpp>
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

// Another protocol on the same listeners.
class other_protocol final : public verbs::side_connections {
public:
    static constexpr std::byte own{'p'};
    explicit other_protocol(verbs::protection_domain& domain) noexcept : domain_(domain) {}
    bool takes(std::span<const std::byte> private_data) noexcept override
    {
        return !private_data.empty() && private_data.front() == own;
    }
    task<void> end() override { co_return; }
    task<void> serve(std::unique_ptr<verbs::connect_request> request) override
    {
        ++served;
        if (throws)
            throw std::bad_alloc();
        const verbs::queue_pair_options depths;
        auto making = request->make_queue_pair(domain_, depths);
        auto made = co_await making;
        BOOST_REQUIRE(made.has_value());
        connection c(std::move(*made));
        const verbs::connect_options defaults;
        auto accepting = request->accept(defaults);
        const auto accepted = co_await accepting;
        BOOST_TEST(accepted.has_value());
        ++live;
        (void)co_await c.ended.wait();
        --live;
    }
    bool throws = false;
    unsigned served = 0;
    unsigned live = 0;

private:
    struct connection final : verbs::completion_handler {
        explicit connection(std::unique_ptr<verbs::queue_pair> q) : queue_pair(std::move(q))
        {
            queue_pair->set_handler(this);
        }
        ~connection() { queue_pair.reset(); }
        void on_completions(std::span<const verbs::completion>) noexcept override {}
        void on_disconnected(const error&) noexcept override { ended.set(); }
        std::unique_ptr<verbs::queue_pair> queue_pair;
        event ended;
    };
    verbs::protection_domain& domain_;
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
        other_domain = std::move(*server->make_domain());
        other = std::make_unique<other_protocol>(*other_domain);
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
    task<bool> connects(std::size_t from, const char* to, std::vector<std::byte> private_data = {})
    {
        std::vector<std::byte>& reply = last_reply;
        reply.clear();
        verbs::connect_options how;
        how.private_data = private_data;
        auto q = co_await hosts[from]->connect(to, *domains[from], how, reply);
        if (!q)
            co_return false;
        (*q)->set_handler(&events);
        held.push_back(std::move(*q));
        co_return true;
    }
    task<bool> connects_otherwise(std::size_t from, const char* to)
    {
        return connects(from, to, std::vector<std::byte>(52, other_protocol::own));
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
    std::unique_ptr<verbs::protection_domain> other_domain;
    std::unique_ptr<other_protocol> other;
    std::vector<std::unique_ptr<loop::context>> hosts;
    std::vector<std::unique_ptr<verbs::protection_domain>> domains;
    ignored events;
    std::string_view last_words() const noexcept
    {
        return {reinterpret_cast<const char*>(last_reply.data()), last_reply.size()};
    }
    std::vector<std::byte> last_reply;
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
    const test::refusals_since refusals;
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
        BOOST_TEST(f.last_words() == "verbena: peer_connections");
        BOOST_TEST(f.stats.connections.value() == 6);
        BOOST_TEST(f.stats.rejected_connections.value() == 8u);
        BOOST_TEST(f.peers.refused(peer_use::rdma_connections) == 8u);
        BOOST_TEST(refusals(refused::connection_share) == 8u);
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
    const test::refusals_since refusals;
    f.run([&]() -> task<void> {
        f.host("192.0.2.66");
        const std::size_t before = f.pool->outstanding();
        for (int i = 0; i < 50; ++i)
            BOOST_TEST(!co_await f.connects(0, "first"));
        BOOST_TEST(f.last_words() == "verbena: address");
        BOOST_TEST(f.pool->outstanding() == before);
        BOOST_TEST(f.peers.peers() == 0u);
        BOOST_TEST(f.stats.rejected_connections.value() == 50u);
        BOOST_TEST(refusals(refused::connection_address) == 50u);
        co_await f.works(f.host("192.0.2.7"));
    });
}

BOOST_AUTO_TEST_CASE(what_is_meant_for_another_protocol_goes_there_and_all_else_is_rpc)
{
    fixture f;
    f.options.others = f.other.get();
    f.run([&]() -> task<void> {
        f.host("192.0.2.7");
        BOOST_TEST(co_await f.connects_otherwise(0, "first"));
        BOOST_TEST(co_await f.connects_otherwise(0, "second"));
        BOOST_TEST(f.other->live == 2u);
        BOOST_TEST(f.stats.connections.value() == 0);
        // With no private data, and with RPC's (RFC 8797).
        BOOST_TEST(co_await f.connects(0, "first"));
        BOOST_TEST(f.other->served == 2u);
        BOOST_TEST(f.stats.connections.value() == 1);
        if (f.other->served != 2u)
            co_return; // nobody answers calls, and they would try for ever
        co_await f.works(f.host("192.0.2.8"));
        BOOST_TEST(f.other->served == 2u);
        // One ends with its peer.
        f.held.front()->kill(error(std::errc::connection_aborted, "over"));
        f.held.erase(f.held.begin());
        co_await sleep_for(10ms);
        BOOST_TEST(f.other->live == 1u);
    });
    BOOST_TEST(f.other->live == 0u);
}

BOOST_AUTO_TEST_CASE(without_another_protocol_all_is_rpc)
{
    fixture f;
    f.run([&]() -> task<void> {
        f.host("192.0.2.7");
        BOOST_TEST(co_await f.connects_otherwise(0, "first"));
        BOOST_TEST(f.stats.connections.value() == 1);
    });
}

BOOST_AUTO_TEST_CASE(connections_of_another_protocol_count_for_their_peer_and_their_listener)
{
    fixture f;
    f.options.others = f.other.get();
    f.options.max_connections = 4;
    f.options.max_peer_connections = 3;
    f.run([&]() -> task<void> {
        f.host("192.0.2.101");
        f.host("192.0.2.102");
        BOOST_TEST(co_await f.connects_otherwise(0, "first"));
        BOOST_TEST(co_await f.connects_otherwise(0, "second"));
        BOOST_TEST(co_await f.connects(0, "first"));
        BOOST_TEST(f.peers.held(peer_use::rdma_connections) == 3u);
        BOOST_TEST(!co_await f.connects_otherwise(0, "first"));
        BOOST_TEST(!co_await f.connects(0, "second"));
        BOOST_TEST(co_await f.connects_otherwise(1, "first"));
        BOOST_TEST(co_await f.connects_otherwise(1, "first"));
        // The listener is full.
        BOOST_TEST(!co_await f.connects_otherwise(1, "first"));
        BOOST_TEST(!co_await f.connects(1, "first"));
        BOOST_TEST(co_await f.connects(1, "second"));
        BOOST_TEST(f.other->live == 4u);
        BOOST_TEST(f.stats.rejected_connections.value() == 4u);
    });
}

BOOST_AUTO_TEST_CASE(another_protocol_sees_nobody_to_whom_nothing_is_served)
{
    fixture f;
    f.options.others = f.other.get();
    f.calls.stranger = "192.0.2.66";
    f.run([&]() -> task<void> {
        f.host("192.0.2.66");
        BOOST_TEST(!co_await f.connects_otherwise(0, "first"));
        BOOST_TEST(f.other->served == 0u);
        BOOST_TEST(f.stats.rejected_connections.value() == 1u);
    });
}

BOOST_AUTO_TEST_CASE(connections_of_another_protocol_end_with_their_listener)
{
    fixture f;
    f.options.others = f.other.get();
    f.run([&]() -> task<void> {
        f.host("192.0.2.7");
        BOOST_TEST(co_await f.connects_otherwise(0, "first"));
        BOOST_TEST(co_await f.connects_otherwise(0, "second"));
        f.first->close();
        co_await sleep_for(10ms);
        BOOST_TEST(f.other->live == 1u);
        BOOST_TEST(!f.held.front()->connected());
        BOOST_TEST(f.held.back()->connected());
    });
}

BOOST_AUTO_TEST_CASE(what_another_protocol_throws_ends_that_connection_alone)
{
    fixture f;
    f.options.others = f.other.get();
    f.run([&]() -> task<void> {
        f.host("192.0.2.7");
        BOOST_TEST(co_await f.connects_otherwise(0, "first"));
        f.other->throws = true;
        BOOST_TEST(!co_await f.connects_otherwise(0, "first"));
        BOOST_TEST(f.stats.exceptions.value() == 1u);
        BOOST_TEST(f.other->live == 1u);
        BOOST_TEST(f.peers.held(peer_use::rdma_connections) == 1u);
        co_await f.works(f.host("192.0.2.8"));
    });
}

BOOST_AUTO_TEST_SUITE_END()
