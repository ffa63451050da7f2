// SPDX-License-Identifier: Apache-2.0
// Questions to shards from a thread that is none.
#include <verbena/core/reactor/ask.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/task/sleep.hpp>

#include <boost/test/unit_test.hpp>

#include <future>
#include <memory>
#include <stdexcept>
#include <thread>

BOOST_AUTO_TEST_SUITE(ask_test)

using namespace verbena;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_CASE(a_shard_answers_with_a_value_or_with_what_a_task_yields)
{
    const auto rt = std::move(*runtime::start({.shards = 2}));
    const auto index = ask(rt->at(1), [](shard& s) { return s.index(); }, 60s);
    BOOST_TEST((index == 1u));
    const auto slept = ask(
        rt->at(0),
        [](shard&) -> task<int> {
            (void)co_await sleep_for(1ms);
            co_return 7;
        },
        60s);
    BOOST_TEST((slept == 7));
}

BOOST_AUTO_TEST_CASE(what_it_throws_is_thrown_at_the_asker)
{
    const auto rt = std::move(*runtime::start());
    BOOST_CHECK_THROW(
        ask(rt->at(0), [](shard&) -> int { throw std::runtime_error("no"); }, 60s), std::runtime_error);
    BOOST_CHECK_THROW(ask(
                          rt->at(0),
                          [](shard&) -> task<int> {
                              (void)co_await sleep_for(1ms);
                              throw std::runtime_error("no");
                          },
                          60s),
                      std::runtime_error);
}

// The answer goes nowhere, and the question keeps what it needs until then.
BOOST_AUTO_TEST_CASE(who_asks_a_shard_that_hangs_waits_no_longer_than_he_wants)
{
    const auto rt = std::move(*runtime::start());
    std::promise<void> held, go;
    std::promise<int> late;
    std::thread holder([&] {
        rt->call(0, [&](shard&) {
            held.set_value();
            go.get_future().wait();
        });
    });
    held.get_future().wait();
    const auto kept = std::make_shared<int>(3);
    const auto none = ask(
        rt->at(0),
        [kept, &late](shard&) {
            late.set_value(*kept);
            return 0;
        },
        1ms);
    BOOST_TEST(!none.has_value());
    go.set_value();
    holder.join();
    BOOST_TEST(late.get_future().get() == 3);
}

BOOST_AUTO_TEST_SUITE_END()
