// SPDX-License-Identifier: Apache-2.0
// Peers that say nothing: those of a responder that are there stay, those that are gone go; a requester wakes its server.
#include "../log_at.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/loop.hpp>

#include <functional>
#include <memory>
#include <vector>

BOOST_AUTO_TEST_SUITE(rpcrdma_silence_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

class peer_events final : public verbs::completion_handler {
public:
    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        completions += batch.size();
    }
    void on_disconnected(const error&) noexcept override { ++ends; }
    std::size_t completions = 0;
    int ends = 0;
};

class no_calls final : public rpc::dispatcher {
public:
    task<bool> dispatch(rpc::call&) override
    {
        BOOST_ERROR("nobody called");
        co_return false;
    }
};

class late final : public rpc::dispatcher {
public:
    task<bool> dispatch(rpc::call& c) override
    {
        BOOST_REQUIRE((c.decode_header() == rpc::call_verdict::good));
        if (lost != 0) {
            --lost;
            co_return false;
        }
        co_await sleep_for(takes);
        rpc::encode(c.results(),
                    rpc::reply_header::accepted_with(c.header().xid, rpc::accept_status::success));
        co_return true;
    }
    duration takes = 3500ms;
    unsigned lost = 0; ///< calls that get no answer
};

struct fixture {
    const test::log_at level_of_log{log_level::off};
    explicit fixture(bool notices = false)
    {
        reactor_options r;
        r.clock = &clock;
        shard = std::move(*reactor::create(r));
        pool = std::make_unique<buffer_pool>(budget, shard.get());
        fabric = loop::make_fabric(*shard, {});
        loop::options o;
        o.profile.notices_dead_peers = notices;
        server = fabric->make_context(o);
        client = fabric->make_context();
        domain = std::move(*client->make_domain());
        listener = std::move(*server->listen("server"));
        options.probe_after = 60s;
        options.max_connections = 4;
    }
    // What `body` does as a connected requester that posts nothing.
    void run(const std::function<task<void>()>& body) { run_until_complete(*shard, connected(body)); }
    task<void> connected(const std::function<task<void>()>& body)
    {
        scope s(*shard);
        s.spawn([&] { return rpcrdma::serve(*server, *listener, *pool, calls, options, stats); });
        std::vector<std::byte> reply;
        const verbs::connect_options defaults;
        auto q = co_await client->connect("server", *domain, defaults, reply);
        BOOST_REQUIRE(q);
        (*q)->set_handler(&events);
        co_await body();
        (*q)->kill(error(std::errc::connection_aborted, "over"));
        q->reset();
        listener->close();
        co_await s.join();
    }

    // Has `body` call by a requester that has a provider of its own, and by no other.
    using caller = std::function<task<void>()>;
    void call(bool completion_means_delivered, const std::function<task<void>(const caller&)>& body)
    {
        loop::options o;
        o.profile.completion_means_delivered = completion_means_delivered;
        const auto context = fabric->make_context(o);
        rpcrdma::requester_options how;
        how.client.timeout = 20s;
        const auto requester = rpcrdma::make_requester(*context, *pool, "server", how, &sent);
        const caller one = [&]() -> task<void> {
            rpc::call_header header;
            header.program = 100003;
            header.version = 3;
            rpc::request r(pool->try_acquire(1024), header);
            const auto reply = co_await requester->call(r);
            BOOST_TEST(reply.has_value());
        };
        const auto all = [&]() -> task<void> {
            scope s(*shard);
            s.spawn([&] { return rpcrdma::serve(*server, *listener, *pool, answers, options, stats); });
            co_await body(one);
            connections = requester->connections();
            co_await requester->close();
            listener->close();
            co_await s.join();
        };
        run_until_complete(*shard, all());
    }

    rpcrdma::requester_stats sent;
    late answers;
    std::uint64_t connections = 0;
    virtual_clock clock;
    memory_budget budget{16u << 20};
    std::unique_ptr<reactor> shard;
    std::unique_ptr<buffer_pool> pool;
    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<loop::context> server, client;
    std::unique_ptr<verbs::protection_domain> domain;
    std::unique_ptr<verbs::listener> listener;
    no_calls calls;
    rpcrdma::responder_options options;
    rpcrdma::responder_stats stats;
    peer_events events;
};

} // namespace

BOOST_AUTO_TEST_CASE(a_silent_peer_that_is_there_stays_and_sees_nothing)
{
    fixture f;
    f.run([&]() -> task<void> {
        co_await sleep_for(59s);
        BOOST_TEST(f.stats.probes.value() == 0u);
        co_await sleep_for(10min);
        BOOST_TEST(f.stats.probes.value() >= 9u);
        BOOST_TEST(f.stats.probes.value() <= 11u);
        BOOST_TEST(f.stats.connections.value() == 1);
        BOOST_TEST(f.events.completions == 0u);
        BOOST_TEST(f.events.ends == 0);
    });
}

BOOST_AUTO_TEST_CASE(a_peer_that_is_gone_loses_its_place)
{
    fixture f;
    f.run([&]() -> task<void> {
        co_await sleep_for(1s);
        loop::conditions nothing_arrives;
        nothing_arrives[loop::fault::drop] = 1'000'000;
        f.fabric->set_conditions(nothing_arrives);
        co_await sleep_for(50s);
        BOOST_TEST(f.stats.connections.value() == 1);
        co_await sleep_for(20s);
        BOOST_TEST(f.stats.probes.value() == 1u);
        BOOST_TEST(f.stats.connections.value() == 0);
    });
}

BOOST_AUTO_TEST_CASE(a_provider_that_notices_by_itself_is_left_alone)
{
    fixture f(true);
    f.run([&]() -> task<void> {
        co_await sleep_for(10min);
        BOOST_TEST(f.stats.probes.value() == 0u);
        BOOST_TEST(f.stats.connections.value() == 1);
    });
}

BOOST_AUTO_TEST_CASE(a_server_is_woken_each_second_until_a_connections_first_answer)
{
    fixture f;
    f.call(false, [&](const fixture::caller& call) -> task<void> {
        co_await call();
        BOOST_TEST(f.sent.wakes.value() == 3u);
        co_await call();
        co_await sleep_for(60s);
        BOOST_TEST(f.sent.wakes.value() == 3u);
    });
    BOOST_TEST(f.connections == 1u);
    BOOST_TEST(f.stats.calls.value() == 2u);
}

BOOST_AUTO_TEST_CASE(a_server_that_never_answers_is_woken_eight_times_on_each_connection)
{
    fixture f;
    f.answers.lost = 1;
    f.answers.takes = 2500ms;
    f.call(false, [&](const fixture::caller& call) -> task<void> {
        co_await call();
        BOOST_TEST(f.sent.wakes.value() == 8u + 2u);
    });
    BOOST_TEST(f.connections == 2u);
}

BOOST_AUTO_TEST_CASE(a_server_whose_device_has_the_call_is_not_woken)
{
    fixture f;
    f.call(true, [](const fixture::caller& call) -> task<void> { co_await call(); });
    BOOST_TEST(f.sent.wakes.value() == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
