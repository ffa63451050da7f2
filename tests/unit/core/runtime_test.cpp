// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/sleep.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <sched.h>
#include <set>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(runtime_test)

using namespace verbena;

namespace {

runtime_options plain_options(unsigned shards)
{
    runtime_options options;
    options.shards = shards;
    options.blocking_threads = 2;
    options.reactor.policy = wait_policy::event;
    return options;
}

std::unique_ptr<runtime> start(const runtime_options& options)
{
    auto made = runtime::start(options);
    BOOST_REQUIRE_MESSAGE(made.has_value(), "a runtime of " << options.shards << " shards does not start");
    return std::move(*made);
}
std::unique_ptr<runtime> start(unsigned shards) { return start(plain_options(shards)); }

/// What a shard of this policy did without work, for 100 ms and then until it is `enough`, or 10 s.
struct idle_time {
    double spun;  // ms
    double slept; // ms
    std::uint64_t sleeps;
};
template<class F>
idle_time idle_under(wait_policy policy, F enough)
{
    runtime_options options = plain_options(1);
    options.reactor.policy = policy;
    options.reactor.spin = std::chrono::milliseconds(20);
    auto rt = start(options);
    const auto stats = [&](shard& s) {
        const reactor_stats& now = s.reactor().stats();
        return idle_time{double(now.spin_nanoseconds) / 1e6, double(now.sleep_nanoseconds) / 1e6, now.sleeps};
    };
    const idle_time before = rt->call(0, stats);
    idle_time took{};
    for (int i = 0; i < 100 && !enough(took); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        const idle_time now = rt->call(0, stats);
        took = {now.spun - before.spun, now.slept - before.slept, now.sleeps - before.sleeps};
    }
    return took;
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
    blocking_pool* lane = rt->add_lane("pool").value();
    auto work = [&](shard& s) -> task<std::string> {
        co_await sleep_for(std::chrono::milliseconds(2));
        auto name = [] { return std::string("from the pool on "); };
        std::string text = co_await lane->run(std::move(name));
        co_return text + std::to_string(s.index());
    };
    BOOST_TEST(rt->run(1, work) == "from the pool on 1");
}

// An idle thread serves whoever comes next, but for this: the kernel refuses RDMA files to one that ever took a caller's rights.
BOOST_AUTO_TEST_CASE(threads_that_may_take_callers_rights_serve_no_lane_that_keeps_the_daemon_s)
{
    auto rt = start(1);
    blocking_pool* const exported = rt->add_lane("export", 1, lane_rights::callers).value();
    blocking_pool* const devices = rt->add_lane("devices", 1).value();
    const auto thread_of = [&](blocking_pool* lane) {
        auto work = [&](shard&) -> task<std::thread::id> {
            auto who = [] { return std::this_thread::get_id(); };
            co_return co_await lane->run(std::move(who));
        };
        return rt->run(0, work);
    };
    std::set<std::thread::id> callers;
    std::set<std::thread::id> daemons;
    for (int i = 0; i < 50; ++i) {
        callers.insert(thread_of(exported));
        daemons.insert(thread_of(devices));
    }
    for (const std::thread::id id : callers)
        BOOST_TEST(!daemons.contains(id));
}

BOOST_AUTO_TEST_CASE(a_lane_that_hangs_holds_up_no_other_and_is_named)
{
    auto rt = start(1);
    blocking_pool* hung = rt->add_lane("hung").value();
    blocking_pool* other = rt->add_lane("other").value();
    std::promise<void> let_go;
    const std::shared_future<void> gate = let_go.get_future().share();
    // More than the lane has threads.
    auto stuck = [&](shard& s) -> task<void> {
        scope calls(s.reactor());
        for (int i = 0; i < 5; ++i)
            calls.spawn([&]() -> task<void> {
                auto wait = [gate] { gate.wait(); };
                co_await hung->run(std::move(wait));
            });
        co_await calls.join();
    };
    auto ends = std::async(std::launch::async, [&] { rt->run(0, stuck); });
    while (hung->look().running != 2 || hung->look().queued != 3)
        std::this_thread::yield();

    auto work = [&](shard&) -> task<int> {
        auto answer = [] { return 42; };
        co_return co_await other->run(std::move(answer));
    };
    BOOST_TEST(rt->run(0, work) == 42);
    const auto named = rt->stuck_lanes(std::chrono::nanoseconds(1));
    BOOST_REQUIRE(named.size() == 1u);
    BOOST_TEST(named[0].name == "hung");
    BOOST_TEST(rt->stuck_lanes(std::chrono::hours(1)).empty());
    BOOST_TEST((hung->look().longest > std::chrono::nanoseconds(0)));

    let_go.set_value();
    ends.get();
    BOOST_TEST(rt->stuck_lanes(std::chrono::nanoseconds(0)).empty());
    BOOST_TEST(hung->look().queued == 0u);
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
    rt->call(1, [&](shard& s) { s.tasks().spawn(wait, std::move(buffer)); });
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

BOOST_AUTO_TEST_CASE(each_policy_waits_in_its_own_way)
{
    const auto spun = [](const idle_time& t) { return t.spun > 50; };
    const idle_time busy = idle_under(wait_policy::busy, spun);
    BOOST_TEST(spun(busy));
    BOOST_TEST(busy.sleeps == 0U);
    const auto slept = [](const idle_time& t) { return t.sleeps > 0 && t.slept > 50; };
    BOOST_TEST(slept(idle_under(wait_policy::event, slept)));
    // It spins for 20 ms behind each work.
    const auto both = [&](const idle_time& t) { return slept(t) && t.spun >= 5; };
    BOOST_TEST(both(idle_under(wait_policy::adaptive, both)));
}

BOOST_AUTO_TEST_CASE(a_turn_that_holds_its_shard_is_counted)
{
    auto rt = start(1);
    const auto stalls = [&] {
        return rt->call(0, [](shard& s) {
            return std::pair(s.reactor().stats().stalls.load(), s.reactor().stats().stall_nanoseconds.load());
        });
    };
    const auto before = stalls();
    rt->call(0, [](shard&) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
    const auto after = stalls(); // in a later turn
    BOOST_TEST(after.first > before.first);
    BOOST_TEST(after.second - before.second >= 5'000'000U);
}

BOOST_AUTO_TEST_CASE(a_pinned_shard_stays_on_one_processor)
{
    const auto processors = [](bool pin) {
        runtime_options options = plain_options(1);
        options.pin = pin;
        return start(options)->call(0, [](shard&) {
            cpu_set_t may{};
            BOOST_TEST(::sched_getaffinity(0, sizeof may, &may) == 0);
            return CPU_COUNT(&may);
        });
    };
    cpu_set_t ours{};
    BOOST_REQUIRE(::sched_getaffinity(0, sizeof ours, &ours) == 0);
    BOOST_TEST(processors(false) == CPU_COUNT(&ours));
    BOOST_TEST(processors(true) == 1);
}

BOOST_AUTO_TEST_CASE(shards_call_each_other)
{
    auto rt = start(2);
    constexpr int calls = 2000;
    std::array<int, 2> served{}; // each its shard's
    const auto serve = [&](unsigned index) -> task<int> {
        if (served[index] % 16 == 0)
            co_await sleep_for(std::chrono::microseconds(10));
        co_return ++served[index];
    };
    const auto call_the_other = [&](shard& s) -> task<int> {
        int last = 0;
        const unsigned other = 1 - s.index();
        for (int i = 0; i < calls; ++i)
            last = co_await rt->at(other).run(serve, other);
        co_return last;
    };
    auto first = std::async(std::launch::async, [&] { return rt->run(0, call_the_other); });
    BOOST_TEST(rt->run(1, call_the_other) == calls);
    BOOST_TEST(first.get() == calls);
}

// Each shard's tasks wait for the other's, also when both have been asked to stop: none may be gone before all have ended.
BOOST_AUTO_TEST_CASE(stop_comes_between_shards_that_call_each_other)
{
    for (int round = 0; round < 20; ++round) {
        auto rt = start(3);
        std::array<std::atomic<int>, 3> answered{};
        std::atomic<unsigned> asked_to_stop = 0;
        std::atomic<int> odd = 0;     // neither run nor refused
        std::atomic<int> refused = 0; // of the last calls
        std::atomic<int> ended = 0;
        const auto nap = []() -> task<result<int>> {
            co_await sleep_for(std::chrono::microseconds(20));
            co_return 1;
        };
        const auto was_refused = [](const result<int>& outcome) {
            return !outcome && outcome.error() == std::errc::operation_canceled;
        };
        const auto call_on = [&](shard& s) -> task<void> {
            const task_context& context = co_await current_context();
            bool late = false;
            for (unsigned i = s.index(); !late; ++i) {
                late = context.stop.stop_requested(); // so that there is a call after the stop
                const result<int> outcome = co_await rt->at(i % 3).run(nap);
                answered[s.index()] += outcome && *outcome == 1;
                odd += !outcome && !was_refused(outcome);
            }
            // Once all have been asked to stop, each takes no more calls of the others, and answers them.
            ++asked_to_stop;
            while (asked_to_stop != 3) {
                scope unasked(s.reactor());
                unasked.spawn([]() -> task<void> { co_await sleep_for(std::chrono::microseconds(20)); });
                co_await unasked.join();
            }
            const result<int> last = co_await rt->at((s.index() + 1) % 3).run(nap);
            refused += was_refused(last);
            ++ended;
        };
        for (unsigned i = 0; i < 3; ++i)
            rt->call(i, [&](shard& s) { s.tasks().spawn(call_on, std::ref(s)); });
        while (answered[0] == 0 || answered[1] == 0 || answered[2] == 0)
            std::this_thread::yield();
        rt->stop();
        BOOST_TEST(ended == 3);
        BOOST_TEST(odd == 0);
        BOOST_TEST(refused == 3);
    }
}

BOOST_AUTO_TEST_CASE(an_impossible_number_of_shards_is_refused)
{
    runtime_options options;
    options.shards = 0;
    BOOST_TEST(!runtime::start(options));
    options.shards = runtime::max_shards + 1;
    BOOST_TEST(!runtime::start(options));
}

// In a child, since the limit is the user's and can't be raised again. Root has none.
BOOST_AUTO_TEST_CASE(threads_that_the_system_refuses_are_an_error)
{
    const pid_t child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child == 0) {
        if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0)
            ::_exit(2);
        const auto started = runtime::start(plain_options(1));
        const rlimit no_more{1, 1};
        if (!started || ::setrlimit(RLIMIT_NPROC, &no_more) != 0)
            ::_exit(3);
        const auto lane = (*started)->add_lane("none left");
        if (lane || lane.error().errno_value() != EAGAIN)
            ::_exit(4);
        const auto another = runtime::start(plain_options(1));
        ::_exit(!another && another.error().errno_value() == EAGAIN ? 0 : 5);
    }
    int status = 0;
    BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
    BOOST_TEST(WIFEXITED(status));
    BOOST_TEST(WEXITSTATUS(status) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
