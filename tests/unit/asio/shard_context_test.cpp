// SPDX-License-Identifier: Apache-2.0
// Asio's handlers, objects and coroutines on a shard.
#include "by_hand.hpp"

#include <verbena/asio/shard_context.hpp>
#include <verbena/asio/use_task.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/task/sleep.hpp>

#include <asio/any_io_executor.hpp>
#include <asio/bind_executor.hpp>
#include <asio/co_spawn.hpp>
#include <asio/defer.hpp>
#include <asio/detached.hpp>
#include <asio/dispatch.hpp>
#include <asio/local/connect_pair.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/post.hpp>
#include <asio/read.hpp>
#include <asio/steady_timer.hpp>
#include <asio/strand.hpp>
#include <asio/thread_pool.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(shard_context_test)

using namespace verbena;
using namespace verbena::test;
using namespace std::chrono_literals;

namespace {

static_assert(asio::execution::is_executor<shard_context::executor_type>::value);

struct with_context : by_hand {
    std::optional<shard_context> context{std::in_place, *r};
    shard_context::executor_type executor = context->get_executor();
    bool in_turn() const { return reactor::current() == r.get(); }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(functions_run_in_a_turn_in_their_order, with_context)
{
    std::string order;
    asio::post(*context, [&] {
        BOOST_TEST(in_turn());
        order += '1';
        asio::post(*context, [&] { order += '5'; });
        asio::dispatch(*context, [&] { order += '2'; });
        asio::defer(*context, [&] { order += '6'; });
        order += '3';
    });
    asio::dispatch(*context, [&] { order += '4'; }); // from outside it is as post
    BOOST_TEST(order.empty());
    settle();
    BOOST_TEST(order == "123456");
}

BOOST_FIXTURE_TEST_CASE(from_a_task_a_function_comes_later_and_without_a_message, with_context)
{
    std::string order;
    scope tasks(*r);
    const auto first = [&]() -> task<void> {
        co_await sleep_for(0s);
        asio::dispatch(*context, [&] { order += '2'; });
        order += '1';
    };
    tasks.spawn(first);
    settle();
    BOOST_TEST(order == "12");
    BOOST_TEST(r->stats().remote_messages == 0U);
}

BOOST_FIXTURE_TEST_CASE(one_that_comes_again_and_again_starves_nothing, with_context)
{
    int runs = 0;
    struct again {
        with_context& w;
        int& runs;
        void operator()() const
        {
            ++runs;
            asio::post(*w.context, *this);
        }
    };
    asio::post(*context, again{*this, runs});
    r->turn();
    r->turn();
    BOOST_TEST(runs > 0);
    context.reset();
    const int before = runs;
    settle();
    BOOST_TEST(runs == before);
}

BOOST_FIXTURE_TEST_CASE(it_is_an_executor_like_asios, with_context)
{
    BOOST_TEST((executor == context->get_executor()));
    shard_context other(*r);
    BOOST_TEST((executor != other.get_executor()));
    BOOST_TEST(&asio::query(executor, asio::execution::context) == &*context);
    BOOST_TEST(executor.running_in_this_thread());
    const asio::any_io_executor any = executor;
    int calls = 0;
    asio::post(any, [&] { ++calls; });
    const auto strand = asio::make_strand(executor);
    asio::post(strand, [&] {
        BOOST_TEST(strand.running_in_this_thread());
        ++calls;
    });
    asio::post(*io, asio::bind_executor(executor, [&] {
        BOOST_TEST(in_turn());
        ++calls;
    }));
    auto move_only = std::make_unique<int>(1);
    asio::post(executor, [&calls, p = std::move(move_only)] { calls += *p; });
    settle();
    BOOST_TEST(calls == 4);
}

BOOST_FIXTURE_TEST_CASE(what_waits_goes_uncalled_with_the_context, with_context)
{
    const auto owned = std::make_shared<int>(0);
    // In the inbox, in the run phase, and with an operation.
    asio::post(*context, [owned] { BOOST_TEST(false); });
    context.reset();
    BOOST_TEST(owned.use_count() == 1);
    settle();
    context.emplace(*r);
    scope tasks(*r);
    tasks.spawn([&]() -> task<void> {
        co_await sleep_for(0s);
        asio::post(*context, [owned] { BOOST_TEST(false); });
        BOOST_TEST(owned.use_count() == 2);
        context.reset(); // in a turn
        BOOST_TEST(owned.use_count() == 1);
    });
    settle();
    context.emplace(*r);
    {
        asio::steady_timer timer(*context, 1h);
        timer.async_wait([owned](std::error_code) { BOOST_TEST(false); });
    }
    context.reset();
    BOOST_TEST(owned.use_count() == 1);
    settle();
    // Nobody turns the reactor again.
    context.emplace(*r);
    asio::post(*context, [owned] { BOOST_TEST(false); });
    context.reset();
}

BOOST_FIXTURE_TEST_CASE(a_handler_may_destroy_the_context, with_context)
{
    bool other = false;
    asio::post(*context, [&] { context.reset(); });
    asio::post(*context, [&] { other = true; });
    settle();
    BOOST_TEST(!context);
    BOOST_TEST(!other);
}

BOOST_FIXTURE_TEST_CASE(a_handler_that_throws_is_logged_and_ends_alone, with_context)
{
    std::vector<std::string> lines;
    set_log_capture(
        [](void* self, std::string_view line) {
            static_cast<std::vector<std::string>*>(self)->emplace_back(line);
        },
        &lines);
    bool next = false;
    asio::post(*context, [] { throw std::runtime_error("odd"); });
    asio::post(*context, [&] { next = true; });
    settle();
    set_log_capture(nullptr, nullptr);
    BOOST_TEST(next);
    BOOST_TEST_REQUIRE(lines.size() == 1U);
    BOOST_TEST(lines[0] == "error asio: a handler on a shard ended by an exception exception=odd");
}

BOOST_FIXTURE_TEST_CASE(a_coroutine_of_asios_runs_there_without_a_thread, with_context)
{
    bool done = false;
    const auto body = [&]() -> asio::awaitable<void> {
        BOOST_TEST(in_turn());
        co_await asio::post(*context, asio::use_awaitable);
        BOOST_TEST(in_turn());
        done = true;
    };
    asio::co_spawn(*context, body, asio::detached);
    settle();
    BOOST_TEST(done);
}

// Real loops, which sleep.

namespace {

/// A runtime's shard with a context, which goes before it.
struct on_a_shard {
    std::unique_ptr<runtime> rt = runtime::start().value();
    std::unique_ptr<shard_context> context =
        rt->call(0, [](shard& s) { return std::make_unique<shard_context>(s.reactor()); });
    ~on_a_shard()
    {
        rt->call(0, [this](shard&) { context.reset(); });
    }
    bool here() const { return reactor::current() == &rt->at(0).reactor(); }
};

using socket = asio::local::stream_protocol::socket;

} // namespace

BOOST_FIXTURE_TEST_CASE(other_threads_post_to_it, on_a_shard)
{
    int calls = 0; // the shard's
    {
        asio::thread_pool pool(3);
        for (int i = 0; i < 300; ++i) {
            asio::post(pool, [&] {
                asio::post(*context, [&] {
                    if (here())
                        ++calls;
                });
            });
        }
        pool.join();
    }
    // Those of one thread keep their order.
    const int seen = rt->call(0, [&](shard&) { return calls; });
    BOOST_TEST(seen == 300);
}

BOOST_FIXTURE_TEST_CASE(sockets_and_timers_have_their_handlers_there, on_a_shard)
{
    const auto body = [&]() -> asio::awaitable<int> {
        int good = 0;
        asio::steady_timer timer(*context, 1ms);
        co_await timer.async_wait(asio::use_awaitable);
        good += here();
        socket one(*context);
        socket other(*context);
        asio::local::connect_pair(one, other);
        char c = 'x';
        co_await asio::async_write(one, asio::buffer(&c, 1), asio::use_awaitable);
        good += here();
        co_await asio::async_read(other, asio::buffer(&c, 1), asio::use_awaitable);
        good += here();
        co_return good;
    };
    rt->run(0, [&](shard&) -> task<void> {
        const result<int> good = co_await asio::co_spawn(*context, body, use_task);
        BOOST_TEST(good.value() == 3);
    });
}

BOOST_FIXTURE_TEST_CASE(tasks_await_them_and_cancel_them, on_a_shard)
{
    const auto body = [&](shard& s) -> task<void> {
        asio::steady_timer timer(*context, 1ms);
        const auto rang = co_await timer.async_wait(use_task);
        BOOST_TEST(bool(rang));
        BOOST_TEST(here());
        timer.expires_after(1h);
        scope waiting(s.reactor());
        error e;
        waiting.spawn([&]() -> task<void> {
            const auto r = co_await timer.async_wait(use_task);
            BOOST_TEST(!r);
            if (!r)
                e = r.error();
        });
        waiting.request_stop();
        co_await waiting.join();
        BOOST_TEST((e == std::errc::operation_canceled));
    };
    rt->run(0, body);
}

BOOST_AUTO_TEST_SUITE_END()
