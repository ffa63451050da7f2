// SPDX-License-Identifier: Apache-2.0
// Peers of a responder that say nothing: those that are there stay, those that are gone go.
#define BOOST_TEST_MODULE rpcrdma_silence
#include <boost/test/unit_test.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/scope.hpp>
#include <verbena/core/sleep.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/loop.hpp>

#include <functional>
#include <memory>
#include <vector>

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

struct fixture {
    explicit fixture(bool notices = false)
    {
        set_log_level(log_level::off);
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
        s.spawn(rpcrdma::serve(*server, *listener, *pool, calls, options, stats));
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
