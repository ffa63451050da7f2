// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE runtime
#include <boost/test/unit_test.hpp>

#include <verbena/core/event.hpp>
#include <verbena/core/runtime.hpp>
#include <verbena/core/sleep.hpp>

#include <chrono>
#include <csignal>
#include <set>
#include <stdexcept>
#include <thread>

using namespace verbena;

namespace {

std::unique_ptr<runtime> start(unsigned shards)
{
    runtime_options options;
    options.shards = shards;
    options.blocking_threads = 2;
    options.reactor.policy = wait_policy::event;
    auto made = runtime::start(options);
    BOOST_REQUIRE_MESSAGE(made.has_value(), "a runtime of " << shards << " shards does not start");
    return std::move(*made);
}

} // namespace

BOOST_AUTO_TEST_CASE(each_shard_is_a_thread_with_its_own_reactor)
{
    auto rt = start(3);
    std::set<std::thread::id> threads{std::this_thread::get_id()};
    for (std::size_t i = 0; i < rt->size(); ++i) {
        auto seen = rt->call(i, [&](shard& s) {
            BOOST_TEST(s.index() == i);
            BOOST_TEST(reactor::current() == &s.reactor());
            return std::this_thread::get_id();
        });
        threads.insert(seen);
    }
    BOOST_TEST(threads.size() == 4U);
}

BOOST_AUTO_TEST_CASE(a_task_runs_to_its_end_and_its_value_comes_back)
{
    auto rt = start(2);
    auto work = [&](shard& s) -> task<std::string> {
        co_await sleep_for(std::chrono::milliseconds(2));
        auto name = [] { return std::string("from the pool on "); };
        std::string text = co_await rt->blocking().run(std::move(name));
        co_return text + std::to_string(s.index());
    };
    BOOST_TEST(rt->run(1, work) == "from the pool on 1");
}

BOOST_AUTO_TEST_CASE(exceptions_reach_the_caller)
{
    auto rt = start(1);
    BOOST_CHECK_THROW(rt->call(0, [](shard&) { throw std::runtime_error("x"); }), std::runtime_error);
    auto work = [](shard&) -> task<int> {
        co_await sleep_for(std::chrono::milliseconds(1));
        throw std::runtime_error("y");
    };
    BOOST_CHECK_THROW(rt->run(0, work), std::runtime_error);
}

BOOST_AUTO_TEST_CASE(stop_ends_waiting_tasks_and_brings_buffers_home)
{
    auto rt = start(2);
    // A buffer of shard 0 is held by a task of shard 1 until that is asked to stop.
    lease buffer = rt->call(0, [](shard& s) { return s.buffers().try_acquire(4096); });
    BOOST_TEST(rt->budget().used() == rt->budget().slab_size());
    bool stopped = false;
    event never;
    auto wait = [&](lease held) -> task<void> {
        stopped = !co_await never.wait();
        held.reset();
    };
    rt->call(1, [&](shard& s) { s.tasks().spawn(wait(std::move(buffer))); });
    rt->stop();
    BOOST_TEST(stopped);
    BOOST_TEST(rt->budget().used() == 0U);
}

BOOST_AUTO_TEST_CASE(shards_never_take_a_signal)
{
    auto rt = start(1);
    const bool blocked = rt->call(0, [](shard&) {
        sigset_t mask;
        ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
        return ::sigismember(&mask, SIGTERM) == 1;
    });
    BOOST_TEST(blocked);
    sigset_t ours;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &ours);
    BOOST_TEST(::sigismember(&ours, SIGTERM) == 0);
}

BOOST_AUTO_TEST_CASE(metrics_tell_what_shards_do_until_stop)
{
    metric_registry registry;
    auto rt = start(2);
    rt->expose(registry);
    for (int i = 0; i < 10; ++i)
        rt->call(1, [](shard&) {});
    double messages = 0;
    std::size_t states = 0;
    for (const auto& m : registry.collect()) {
        if (m.family.name == "verbena_shard_messages_total")
            messages = m.samples.at(1).value;
        if (m.family.name == "verbena_shard_policy_seconds_total")
            states = m.samples.size();
    }
    BOOST_TEST(messages >= 9); // the tenth's count may not be written yet
    BOOST_TEST(states == 6U);
    rt->stop();
    BOOST_TEST(registry.families().empty());
}

BOOST_AUTO_TEST_CASE(an_impossible_number_of_shards_is_refused)
{
    runtime_options options;
    options.shards = 0;
    BOOST_TEST(!runtime::start(options));
    options.shards = runtime::max_shards + 1;
    BOOST_TEST(!runtime::start(options));
}
