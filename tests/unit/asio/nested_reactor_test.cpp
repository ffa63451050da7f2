// SPDX-License-Identifier: Apache-2.0
// A reactor in an io_context.
#include "by_hand.hpp"

#include <verbena/asio/async_run.hpp>
#include <verbena/asio/nested_reactor.hpp>
#include <verbena/asio/use_task.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/iwarp.hpp>

#include <asio/bind_executor.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

BOOST_AUTO_TEST_SUITE(nested_reactor_test)

using namespace verbena;
using namespace verbena::test;
using namespace std::chrono_literals;

namespace {

struct nested {
    asio::io_context io;
    std::unique_ptr<reactor> r = make_reactor();
    std::optional<nested_reactor> in{std::in_place, io, *r};
    scope tasks{*r};

    ~nested()
    {
        in.reset();
        const auto joined = [](scope& s) -> task<void> { co_await s.join(); };
        run_until_complete(*r, joined(tasks));
    }
    /// Runs the io_context until a task ends.
    template<class F>
    void run(F f)
    {
        bool done = false;
        tasks.spawn([&]() -> task<void> {
            co_await f();
            done = true;
            in->close();
        });
        in->wake();
        io.run();
        BOOST_TEST(done);
    }
    /// The reactor is armed and nothing is due.
    void settle()
    {
        io.restart();
        while (io.poll() != 0) {
        }
    }
};

struct message final : remote_message {
    explicit message(event& e) : arrived(e) {}
    void deliver() noexcept override { arrived.set(); }
    event& arrived;
};

struct doubler final : rpc::program {
    std::uint32_t number() const noexcept override { return 0x20000042; }
    std::uint32_t low_version() const noexcept override { return 1; }
    std::uint32_t high_version() const noexcept override { return 1; }
    std::string_view name() const noexcept override { return "doubler"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t) const noexcept override { return "DOUBLE"; }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    task<rpc::outcome> serve(rpc::call& c) override
    {
        const std::string text(c.args().string(100));
        asio::steady_timer timer(io, -1s);
        const auto rang = co_await timer.async_wait(use_task); // Asio within a procedure
        if (!rang)
            co_return rpc::outcome::system_error;
        c.results().string(text + text);
        co_return rpc::outcome::success;
    }
    explicit doubler(asio::io_context& c) : io(c) {}
    asio::io_context& io;
};

task<result<std::string>> twice(rpc::client_transport& server, std::string text)
{
    rpc::call_header header;
    header.program = 0x20000042;
    header.version = header.procedure = 1;
    lease memory = co_await server.acquire(1024);
    rpc::request request(std::move(memory), header);
    request.message().string(text);
    auto reply = co_await server.call(request);
    if (!reply)
        co_return reply.error();
    co_return std::string(reply->results().string(200));
}

} // namespace

BOOST_FIXTURE_TEST_CASE(timers_and_messages_wake_the_io_context, nested)
{
    event arrived;
    message m(arrived);
    run([&]() -> task<void> {
        for (int i = 0; i < 20; ++i) {
            co_await sleep_for(1ms);
            std::thread peer([&] { r->post_remote(m); });
            const bool came = co_await arrived.wait();
            BOOST_TEST(came);
            arrived.reset();
            peer.join();
        }
    });
}

BOOST_FIXTURE_TEST_CASE(asios_handlers_run_beside_it, nested)
{
    int handlers = 0;
    asio::steady_timer timer(io, 1ms);
    timer.async_wait([&](std::error_code e) { handlers += !e; });
    run([&]() -> task<void> {
        asio::steady_timer later(io, 3ms);
        const auto rang = co_await later.async_wait(use_task);
        BOOST_TEST(bool(rang));
    });
    BOOST_TEST(handlers == 1);
}

BOOST_FIXTURE_TEST_CASE(a_hop_to_it_is_no_message, nested)
{
    settle();
    run([&]() -> task<void> {
        for (int i = 0; i < 10; ++i) {
            const auto posted = co_await asio::post(io, use_task);
            BOOST_TEST(bool(posted));
            BOOST_TEST(reactor::current() == r.get());
        }
    });
    BOOST_TEST(r->stats().remote_messages == 0U);
    BOOST_TEST(r->stats().wakes == 0U);
}

BOOST_FIXTURE_TEST_CASE(nor_is_one_from_asio, nested)
{
    settle();
    int calls = 0;
    const auto body = [&]() -> asio::awaitable<void> {
        for (int i = 0; i < 10; ++i) {
            calls += co_await async_run(tasks, []() -> task<int> { co_return 1; }, asio::use_awaitable);
        }
        in->close();
    };
    asio::co_spawn(io, body, asio::detached);
    io.restart();
    io.run();
    BOOST_TEST(calls == 10);
    BOOST_TEST(r->stats().remote_messages == 0U);
    BOOST_TEST(r->stats().wakes == 0U);
}

BOOST_FIXTURE_TEST_CASE(a_handler_that_used_the_reactor_wakes_it, nested)
{
    settle();
    bool done = false;
    asio::post(io, [&] {
        tasks.spawn([&]() -> task<void> {
            co_await sleep_for(1ms); // a timer alone
            done = true;
            in->close();
        });
        in->wake();
    });
    io.restart();
    io.run();
    BOOST_TEST(done);
}

BOOST_FIXTURE_TEST_CASE(a_reactor_that_has_more_to_do_gets_the_next_turn, nested)
{
    struct again final : deferred {
        explicit again(nested& n) : all(n) {}
        void run() noexcept override
        {
            if (++runs == 5)
                all.in->close();
            else
                all.r->post_last(*this);
        }
        nested& all;
        int runs = 0;
    };
    again work(*this);
    settle();
    r->post_last(work);
    in->wake();
    io.restart();
    io.run();
    BOOST_TEST(work.runs == 5);
}

// As with all handlers of Asio's. Were it called within a turn of the reactor, it would go to the scope.
BOOST_FIXTURE_TEST_CASE(a_handlers_exception_leaves_run, nested)
{
    async_run(
        tasks, [] {},
        asio::bind_executor(io, [](const std::exception_ptr&) { throw std::domain_error("x"); }));
    io.restart();
    BOOST_CHECK_THROW(io.run(), std::domain_error);
}

BOOST_FIXTURE_TEST_CASE(idle_it_takes_no_turns, nested)
{
    settle();
    const auto turns = r->stats().turns.load();
    for (int i = 0; i < 100; ++i)
        BOOST_TEST(io.poll() == 0U);
    BOOST_TEST(r->stats().turns == turns);
}

BOOST_FIXTURE_TEST_CASE(run_returns_once_it_is_closed_and_its_own_loop_goes_on, nested)
{
    settle();
    in->close();
    in->close();
    in->wake();
    io.run();
    const auto nap = []() -> task<int> {
        co_await sleep_for(1ms);
        co_return 3;
    };
    BOOST_TEST(run_until_complete(*r, nap()) == 3);
    // And once more.
    in.emplace(io, *r);
    io.restart();
    run([]() -> task<void> { co_await sleep_for(1ms); });
}

BOOST_FIXTURE_TEST_CASE(it_may_go_while_its_turn_is_posted, nested)
{
    in->wake();
    in.reset();
    const auto turns = r->stats().turns.load();
    io.run();
    BOOST_TEST(r->stats().turns == turns);
    in.emplace(io, *r);
}

BOOST_FIXTURE_TEST_CASE(two_reactors_share_an_io_context, nested)
{
    const auto second = make_reactor();
    nested_reactor too(io, *second);
    scope others(*second);
    event arrived;
    int done = 0;
    others.spawn([&]() -> task<void> {
        co_await sleep_for(1ms);
        const auto posted = co_await asio::post(io, use_task);
        BOOST_TEST(bool(posted));
        BOOST_TEST(reactor::current() == second.get());
        ++done;
        too.close();
    });
    too.wake();
    run([&]() -> task<void> {
        co_await sleep_for(2ms);
        const auto posted = co_await asio::post(io, use_task);
        BOOST_TEST(bool(posted));
        BOOST_TEST(reactor::current() == r.get());
        ++done;
    });
    BOOST_TEST(done == 2);
}

// What it is for: a service and its caller over iWARP, in a program of Asio's.
BOOST_FIXTURE_TEST_CASE(calls_over_iwarp_in_an_io_context, nested)
{
    memory_budget budget(16 << 20);
    buffer_pool buffers(budget, r.get());
    doubler program(io);
    rpc::service_dispatcher calls(*r);
    calls.add(program);
    auto provider = iwarp::make_context(*r);
    auto listener = provider->listen("127.0.0.1:0").value();
    const rpcrdma::responder_options options;
    rpcrdma::responder_stats stats;
    tasks.spawn([&] { return rpcrdma::serve(*provider, *listener, buffers, calls, options, stats); });
    auto server = rpcrdma::make_requester(*provider, buffers, listener->local_url().substr(8));
    int good = 0;
    const auto client = [&]() -> asio::awaitable<void> {
        for (int i = 0; i < 20; ++i) {
            const std::string got =
                co_await async_run(tasks, [&] { return twice(*server, "ab"); }, asio::use_awaitable);
            good += got == "abab";
        }
        co_await async_run(
            tasks,
            [&]() -> task<void> {
                co_await server->close();
                listener->close();
            },
            asio::use_awaitable);
        // The service has ended when nothing of it runs.
        while (tasks.live() != 0) {
            asio::steady_timer timer(io, 1ms);
            co_await timer.async_wait(asio::use_awaitable);
        }
        in->close();
    };
    asio::co_spawn(io, client, [](const std::exception_ptr& e) { BOOST_TEST(!e); });
    io.run();
    BOOST_TEST(good == 20);
    BOOST_TEST(tasks.live() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
