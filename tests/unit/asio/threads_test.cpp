// SPDX-License-Identifier: Apache-2.0
// Hops between shards and threads of Asio's, as many as there are, for ThreadSanitizer to watch.
#include <boost/test/unit_test.hpp>

#include <verbena/asio/async_run.hpp>
#include <verbena/asio/shard_context.hpp>
#include <verbena/asio/use_task.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/task/sleep.hpp>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/bind_executor.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/strand.hpp>
#include <asio/thread_pool.hpp>
#include <asio/use_future.hpp>

#include <atomic>
#include <future>
#include <latch>
#include <memory>
#include <random>
#include <thread>
#include <vector>

BOOST_AUTO_TEST_SUITE(threads_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

std::unique_ptr<runtime> two_shards()
{
    runtime_options o;
    o.shards = 2;
    return runtime::start(o).value();
}

} // namespace

BOOST_AUTO_TEST_CASE(tasks_of_two_shards_hop_to_a_pool_and_back)
{
    asio::thread_pool pool(2);
    const auto rt = two_shards();
    std::atomic<int> hops{0};
    const auto body = [&](shard& s) -> task<void> {
        scope tasks(s.reactor());
        for (int i = 0; i < 8; ++i) {
            tasks.spawn([&]() -> task<void> {
                for (int n = 0; n < 200; ++n) {
                    const auto posted = co_await asio::post(pool, use_task);
                    hops += posted && reactor::current() == &s.reactor();
                }
            });
        }
        co_await tasks.join();
    };
    std::thread other([&] { rt->run(1, body); });
    rt->run(0, body);
    other.join();
    BOOST_TEST(hops == 2 * 8 * 200);
}

// The end of an operation and its cancellation meet at all distances.
BOOST_AUTO_TEST_CASE(stops_race_with_ends)
{
    asio::thread_pool pool(2);
    const auto rt = two_shards();
    const auto body = [&](shard& s) -> task<int> {
        std::minstd_rand random(s.index() + 1);
        int ends = 0;
        for (int i = 0; i < 150; ++i) {
            scope tasks(s.reactor());
            for (int n = 0; n < 4; ++n) {
                tasks.spawn([&]() -> task<void> {
                    // As Asio asks of those who cancel where several threads are.
                    asio::steady_timer timer(asio::make_strand(pool),
                                             std::chrono::microseconds(random() % 60));
                    const auto r = co_await timer.async_wait(use_task);
                    ends += r || r.error() == std::errc::operation_canceled;
                });
            }
            if (i % 2 == 0)
                co_await sleep_for(std::chrono::microseconds(random() % 60));
            tasks.request_stop();
            co_await tasks.join();
        }
        co_return ends;
    };
    auto other = std::async(std::launch::async, [&] { return rt->run(1, body); });
    BOOST_TEST(rt->run(0, body) == 600);
    BOOST_TEST(other.get() == 600);
}

BOOST_AUTO_TEST_CASE(calls_from_a_pool_end_on_it_stopped_or_not)
{
    asio::thread_pool pool(2);
    const auto rt = two_shards();
    std::atomic<int> ended{0};
    std::atomic<int> stopped{0};
    std::atomic<int> succeeded{0};
    constexpr int calls = 400; // a third is stopped for certain, a third perhaps, a third never
    const auto nap = []() -> task<result<int>> {
        const bool slept = co_await sleep_for(20us);
        if (!slept)
            co_return error(std::errc::operation_canceled);
        co_return 1;
    };
    const auto endless = []() -> task<result<int>> {
        const bool slept = co_await sleep_for(1h);
        if (!slept)
            co_return error(std::errc::operation_canceled);
        co_return 1;
    };
    for (int i = 0; i < calls; ++i) {
        auto strand = asio::make_strand(pool);
        asio::post(strand, [&, i, strand] {
            auto signal = std::make_shared<asio::cancellation_signal>();
            auto token = asio::bind_cancellation_slot(
                signal->slot(), asio::bind_executor(strand, [&, signal](std::error_code e, int) {
                    stopped += e == std::errc::operation_canceled;
                    succeeded += !e;
                    ++ended;
                }));
            const shard& where = rt->at(std::size_t(i) % 2);
            if (i % 3 == 1)
                async_run(where, endless, std::move(token));
            else
                async_run(where, nap, std::move(token));
            if (i % 3 != 0)
                asio::post(strand, [signal] { signal->emit(asio::cancellation_type::terminal); });
        });
    }
    pool.join();
    BOOST_TEST(ended == calls);
    BOOST_TEST(stopped + succeeded == calls);
    BOOST_TEST(stopped >= calls / 3);
    BOOST_TEST(succeeded >= calls / 3);
}

// The call ends on the shard while the pool emits what would stop it.
BOOST_AUTO_TEST_CASE(slots_of_handlers_on_the_shard_are_emitted_meanwhile)
{
    asio::thread_pool pool(2);
    const auto rt = two_shards();
    int calls = 0; // of one after the other
    for (int i = 0; i < 200; ++i) {
        std::promise<void> ended;
        asio::cancellation_signal signal;
        async_run(
            rt->at(std::size_t(i) % 2), [] {},
            asio::bind_cancellation_slot(signal.slot(), [&](const std::exception_ptr&) {
                ++calls;
                ended.set_value();
            }));
        auto emitted =
            asio::post(pool, asio::use_future([&] { signal.emit(asio::cancellation_type::terminal); }));
        emitted.get();
        ended.get_future().wait();
    }
    BOOST_TEST(calls == 200);
}

// What ends a wait may be the last that the reactor is kept for.
BOOST_AUTO_TEST_CASE(a_shard_goes_as_soon_as_its_last_hop_is_back)
{
    asio::thread_pool pool(1);
    for (int i = 0; i < 60; ++i) {
        auto made = reactor::create();
        const auto once = [&]() -> task<bool> {
            const auto posted = co_await asio::post(pool, use_task);
            co_return posted.has_value();
        };
        BOOST_TEST(run_until_complete(**made, once()));
    }
    for (int i = 0; i < 30; ++i) {
        auto rt = runtime::start().value();
        std::promise<void> ended;
        asio::post(pool, [&] {
            async_run(rt->at(0), [] {}, [&](const std::exception_ptr&) { ended.set_value(); });
        });
        ended.get_future().wait();
        rt.reset();
    }
}

BOOST_AUTO_TEST_CASE(an_io_context_goes_while_shards_stop)
{
    const auto rt = two_shards();
    for (int i = 0; i < 40; ++i) {
        auto io = std::make_unique<asio::io_context>();
        std::latch begun(2);
        std::atomic<int> cancelled{0};
        // Posted and never run: it goes with the context.
        const auto body = [&](shard& s) -> task<void> {
            scope tasks(s.reactor());
            for (int n = 0; n < 4; ++n)
                tasks.spawn([&]() -> task<void> {
                    const auto posted = co_await asio::post(*io, use_task);
                    cancelled += !posted && posted.error() == std::errc::operation_canceled;
                });
            begun.count_down();
            if (i % 2 != 0)
                tasks.request_stop();
            co_await tasks.join();
        };
        auto one = std::async(std::launch::async, [&] { rt->run(0, body); });
        auto two = std::async(std::launch::async, [&] { rt->run(1, body); });
        begun.wait();
        io.reset();
        one.get();
        two.get();
        BOOST_TEST(cancelled == 8);
    }
}

BOOST_AUTO_TEST_CASE(a_shards_context_serves_a_pool_and_goes)
{
    asio::thread_pool pool(2);
    const auto rt = two_shards();
    for (int i = 0; i < 10; ++i) {
        auto context = rt->call(0, [](shard& s) { return std::make_unique<shard_context>(s.reactor()); });
        int calls = 0; // the shard's
        std::vector<std::future<void>> posts;
        for (int n = 0; n < 4; ++n) {
            posts.push_back(asio::post(pool, asio::use_future([&] {
                                           for (int k = 0; k < 50; ++k)
                                               asio::post(*context, [&] { ++calls; });
                                       })));
        }
        for (auto& p : posts)
            p.get();
        // Behind the others, unless the context is to go with what is left.
        if (i % 2 == 0)
            asio::post(*context, asio::use_future([] {})).get();
        rt->call(0, [&](shard&) { context.reset(); });
        const int seen = rt->call(0, [&](shard&) { return calls; });
        BOOST_TEST((i % 2 == 0 ? seen == 200 : seen <= 200), seen);
    }
}

BOOST_AUTO_TEST_SUITE_END()
