// SPDX-License-Identifier: Apache-2.0
// A soft client where nothing listens: it goes on for its time, as a server may be back in a moment, and tells what it tried.
#include <boost/test/unit_test.hpp>

#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/loop.hpp>

BOOST_AUTO_TEST_SUITE(rpc_soft_client_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

struct echo final : rpc::program {
    std::uint32_t number() const noexcept override { return 0x20000042; }
    std::uint32_t low_version() const noexcept override { return 1; }
    std::uint32_t high_version() const noexcept override { return 1; }
    std::string_view name() const noexcept override { return "echo"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t) const noexcept override { return "NULL"; }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    task<rpc::outcome> serve(rpc::call&) override { co_return rpc::outcome::success; }
};

struct fixture {
    fixture()
    {
        reactor_options o;
        o.clock = &clock;
        shard = reactor::create(o).value();
        buffers.emplace(budget, shard.get());
        fabric = loop::make_fabric(*shard);
        client_context = fabric->make_context();
        server_context = fabric->make_context();
        options.client.hard = false;
        options.client.timeout = 1s;
        options.client.retries = 2;
        options.client.reconnect_delay = 100ms;
        options.client.reconnect_delay_max = 400ms;
    }
    task<result<rpc::reply>> call()
    {
        rpc::call_header header;
        header.program = program.number();
        header.version = 1;
        lease memory = co_await client->acquire(1024);
        rpc::request r(std::move(memory), header);
        co_return co_await client->call(r);
    }
    void run(const std::function<task<void>()>& body)
    {
        client = rpcrdma::make_requester(*client_context, *buffers, "server", options);
        const auto all = [&]() -> task<void> {
            co_await body();
            co_await client->close();
        };
        run_until_complete(*shard, all());
    }
    virtual_clock clock;
    std::unique_ptr<reactor> shard;
    memory_budget budget{16 << 20};
    std::optional<buffer_pool> buffers;
    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<verbs::context> client_context, server_context;
    rpcrdma::requester_options options;
    std::unique_ptr<rpc::client_transport> client;
    echo program;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(where_nothing_listens_it_tries_for_its_time_and_tells_how_often, fixture)
{
    run([this]() -> task<void> {
        for (int i = 0; i < 2; ++i) {
            const time_point begun = clock.now();
            const auto reply = co_await call();
            BOOST_TEST_REQUIRE(!reply);
            BOOST_TEST((clock.now() - begun == 3s)); // (retries + 1) * timeout
            BOOST_TEST((reply.error() == std::errc::connection_refused), reply.error().message());
            // At 0, 0.1, 0.3 and 0.7 s and every 0.4 s from there on.
            if (i == 0)
                BOOST_TEST(reply.error().detail() == 9U);
            BOOST_TEST(reply.error().detail() >= 7U);
        }
    });
}

BOOST_FIXTURE_TEST_CASE(a_server_that_comes_within_that_time_answers, fixture)
{
    rpc::service_dispatcher dispatcher(*shard);
    dispatcher.add(program);
    const rpcrdma::responder_options serving;
    rpcrdma::responder_stats served;
    run([&]() -> task<void> {
        scope tasks(*shard);
        std::unique_ptr<verbs::listener> listener;
        const auto late = [&]() -> task<void> {
            co_await sleep_for(2500ms);
            listener = std::move(*server_context->listen("server"));
            co_await rpcrdma::serve(*server_context, *listener, *buffers, dispatcher, serving, served);
        };
        tasks.spawn([&] { return late(); });
        const auto reply = co_await call();
        BOOST_TEST(bool(reply), (reply ? std::string() : reply.error().message()));
        co_await client->close();
        listener->close();
        co_await tasks.join();
    });
}

// Its time begins when it is made, not when others have given up theirs.
BOOST_FIXTURE_TEST_CASE(a_call_that_waits_for_its_turn_has_no_more_time, fixture)
{
    options.client.max_calls = 1;
    run([this]() -> task<void> {
        const time_point begun = clock.now();
        const auto one = [this]() -> task<result<void>> {
            const auto reply = co_await call();
            if (!reply)
                co_return reply.error();
            co_return result<void>();
        };
        std::vector<task<result<void>>> all;
        for (int i = 0; i < 3; ++i)
            all.push_back(one());
        const auto done = co_await when_all(std::move(all));
        BOOST_TEST((clock.now() - begun == 3s));
        BOOST_TEST((done[0].error() == std::errc::connection_refused));
        for (const auto i : {1, 2})
            BOOST_TEST((!done[i] && done[i].error() == std::errc::timed_out));
        BOOST_TEST(done[1].error().detail() == 1U);
    });
}

// connect() is there to find a wrong address at once.
BOOST_FIXTURE_TEST_CASE(connect_tries_once, fixture)
{
    run([this]() -> task<void> {
        const time_point begun = clock.now();
        const auto connected = co_await client->connect();
        BOOST_TEST((!connected && connected.error() == std::errc::connection_refused));
        BOOST_TEST((clock.now() - begun < 1s));
    });
}

BOOST_AUTO_TEST_SUITE_END()
