// SPDX-License-Identifier: Apache-2.0
// The whole adapter in a program whose macros make Asio another one. Compiled with several sets of them.
#include <boost/test/unit_test.hpp>

#include <verbena/asio/async_run.hpp>
#include <verbena/asio/nested_reactor.hpp>
#include <verbena/asio/shard_context.hpp>
#include <verbena/asio/use_task.hpp>
#include <verbena/core/task/sleep.hpp>

#include <asio.hpp>

#include <memory>

BOOST_AUTO_TEST_SUITE(macros_test)

using namespace verbena;

BOOST_AUTO_TEST_CASE(each_part_works)
{
    asio::io_context io;
    const auto r = reactor::create().value();
    nested_reactor nested(io, *r);
    scope tasks(*r);
    int good = 0;
    const auto nap = []() -> task<result<int>> {
        co_await sleep_for(std::chrono::microseconds(10));
        co_return 1;
    };
    const auto asios = [&]() -> asio::awaitable<int> {
        const int n = co_await async_run(tasks, nap, asio::use_awaitable);
        asio::steady_timer timer(io, std::chrono::microseconds(10));
        co_await timer.async_wait(asio::use_awaitable);
        co_return n;
    };
    tasks.spawn([&]() -> task<void> {
        const result<int> one = co_await asio::co_spawn(io, asios, use_task);
        good += one.value();
        {
            shard_context context(*r);
            asio::steady_timer timer(context, std::chrono::microseconds(10));
            const result<void> rang = co_await timer.async_wait(use_task);
            good += bool(rang);
            timer.expires_after(std::chrono::hours(1));
            scope waiting(*r);
            waiting.spawn([&]() -> task<void> {
                const result<void> stopped = co_await timer.async_wait(use_task);
                good += !stopped;
            });
            waiting.request_stop();
            co_await waiting.join();
        }
        nested.close();
    });
    nested.wake();
    async_run(tasks, nap, asio::bind_executor(io.get_executor(), [&](std::error_code, int n) { good += n; }));
    io.run();
    BOOST_TEST(good == 4);
}

BOOST_AUTO_TEST_SUITE_END()
