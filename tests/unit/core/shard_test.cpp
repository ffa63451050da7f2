// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/sleep.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

BOOST_AUTO_TEST_SUITE(shard_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

std::unique_ptr<reactor> make(clock_source& clock)
{
    reactor_options o;
    o.clock = &clock;
    auto r = reactor::create(o);
    BOOST_REQUIRE(r);
    return std::move(*r);
}

std::uint64_t messages(const reactor& r) { return r.stats().remote_messages.load(); }

/// Two shards in one thread on one virtual clock.
struct two_shards {
    virtual_clock clock;
    std::unique_ptr<reactor> home = make(clock);
    std::unique_ptr<reactor> there = make(clock);
    memory_budget budget{std::size_t(4) << 20};
    buffer_pool buffers{budget, there.get()};
    std::optional<scope> tasks{*there};
    shard other{1, *there, buffers, *tasks};
    std::optional<scope> callers{*home};

    void turn_both()
    {
        for (bool any = true; any;) {
            any = home->turn();
            any = there->turn() || any;
        }
    }
    /// Until the callers have ended or nothing can happen.
    void drive()
    {
        while (callers->live() != 0) {
            turn_both();
            const auto one = home->timers().next();
            const auto another = there->timers().next();
            if (!one && !another)
                return;
            clock.advance_to(std::min(one.value_or(time_point::max()), another.value_or(time_point::max())));
        }
        turn_both();
    }
    template<class F>
    void run(F f)
    {
        callers->spawn(std::move(f));
        drive();
        BOOST_TEST(callers->live() == 0U);
        BOOST_TEST(tasks->live() == 0U);
    }
};

/// Where and as what the caller of it runs.
struct seen {
    reactor* runs_on = nullptr;
    task_context context;
};
task<seen> look()
{
    const task_context& context = co_await current_context();
    co_await sleep_for(1s);
    seen s;
    s.runs_on = reactor::current();
    s.context = context;
    co_return s;
}

} // namespace

BOOST_FIXTURE_TEST_CASE(a_call_runs_there_and_its_outcome_comes_back, two_shards)
{
    run([&]() -> task<void> {
        const seen s = co_await other.run(look);
        BOOST_TEST(s.runs_on == there.get());
        BOOST_TEST(s.context.shard == there.get());
        BOOST_TEST(reactor::current() == home.get());
        // What is no task, and what yields nothing.
        const auto plain = [&](int n) { return reactor::current() == there.get() ? n : 0; };
        const int number = co_await other.run(plain, 7);
        BOOST_TEST(number == 7);
        bool ran = false;
        const auto nothing = [&] { ran = true; };
        co_await other.run(nothing);
        BOOST_TEST(std::exchange(ran, false));
        const auto task_of_nothing = [&]() -> task<void> {
            co_await sleep_for(1s);
            ran = true;
        };
        co_await other.run(task_of_nothing);
        BOOST_TEST(ran);
        BOOST_TEST(reactor::current() == home.get());
    });
}

BOOST_FIXTURE_TEST_CASE(a_call_is_one_message_each_way, two_shards)
{
    run([&]() -> task<void> {
        const auto before = std::pair(messages(*home), messages(*there));
        (void)co_await other.run(look);
        BOOST_TEST(messages(*there) - before.second == 1U);
        co_await sleep_for(1ms); // what came in one turn is counted at its end
        BOOST_TEST(messages(*home) - before.first == 1U);
    });
}

BOOST_FIXTURE_TEST_CASE(on_the_same_shard_nothing_is_sent, two_shards)
{
    const shard here(0, *home, buffers, *callers);
    run([&]() -> task<void> {
        const seen s = co_await here.run(look);
        BOOST_TEST(s.runs_on == home.get());
        const auto plain = [] { return 3; };
        const int three = co_await here.run(plain);
        BOOST_TEST(three == 3);
        BOOST_TEST(messages(*home) == 0U);
    });
}

BOOST_FIXTURE_TEST_CASE(the_deadline_and_the_trace_go_with_it, two_shards)
{
    task_context request;
    request.deadline = clock.now() + 5h;
    request.trace_id = 4711;
    scope with_context(*home, &request);
    with_context.spawn([&]() -> task<void> {
        const seen s = co_await other.run(look);
        BOOST_TEST((s.context.deadline == request.deadline));
        BOOST_TEST(s.context.trace_id == 4711U);
    });
    for (int i = 0; i < 3; ++i) {
        turn_both();
        clock.advance(1s);
    }
    turn_both();
    BOOST_TEST(with_context.live() == 0U);
}

BOOST_FIXTURE_TEST_CASE(arguments_and_values_move, two_shards)
{
    auto add = [](std::unique_ptr<int> a, const std::string& kept) -> task<std::unique_ptr<std::string>> {
        co_await sleep_for(1h);
        co_return std::make_unique<std::string>(kept + std::to_string(*a));
    };
    run([&]() -> task<void> {
        std::string text = "a text too long to lie in the string itself ";
        auto seven = std::make_unique<int>(7);
        const auto made = co_await other.run(add, std::move(seven), std::move(text));
        BOOST_TEST(*made == "a text too long to lie in the string itself 7");
        auto captures = [n = std::make_unique<int>(8)]() -> task<int> {
            co_await sleep_for(1h);
            co_return *n;
        };
        const int eight = co_await other.run(std::move(captures));
        BOOST_TEST(eight == 8);
    });
}

BOOST_FIXTURE_TEST_CASE(an_exception_comes_back, two_shards)
{
    const auto throws = [](bool at_once) -> task<int> {
        if (!at_once)
            co_await sleep_for(1s);
        throw std::runtime_error("there");
    };
    const auto throws_plainly = []() -> int { throw std::runtime_error("there"); };
    run([&]() -> task<void> {
        for (const int way : {0, 1, 2}) {
            std::string heard;
            try {
                if (way == 2)
                    (void)co_await other.run(throws_plainly);
                else
                    (void)co_await other.run(throws, way == 1);
            } catch (const std::runtime_error& e) {
                heard = e.what();
            }
            BOOST_TEST(heard == "there");
            BOOST_TEST(reactor::current() == home.get());
        }
    });
}

// Nothing of a call is left there when its caller goes on.
BOOST_FIXTURE_TEST_CASE(a_stop_follows_the_call_and_its_end_is_waited_for, two_shards)
{
    event never;
    int step = 0;
    const auto slow_to_end = [&]() -> task<bool> {
        step = 1;
        const bool happened = co_await never.wait();
        step = 2;
        const task_context& context = co_await current_context();
        BOOST_TEST(context.stop.stop_requested());
        event deaf_for_an_hour;
        scope s(*there);
        s.spawn([&]() -> task<void> {
            co_await sleep_for(1h);
            deaf_for_an_hour.set();
        });
        co_await deaf_for_an_hour.wait_shielded();
        co_await s.join();
        step = 3;
        co_return happened;
    };
    bool back = false;
    callers->spawn([&]() -> task<void> {
        const bool happened = co_await other.run(slow_to_end);
        BOOST_TEST(!happened);
        BOOST_TEST(step == 3);
        back = true;
    });
    turn_both();
    BOOST_TEST(step == 1);
    callers->request_stop();
    turn_both();
    BOOST_TEST(step == 2);
    BOOST_TEST(!back);
    drive();
    BOOST_TEST(back);
}

BOOST_FIXTURE_TEST_CASE(a_call_of_a_task_that_was_stopped_before_hears_of_it, two_shards)
{
    event never;
    const auto waits = [&]() -> task<bool> { co_return co_await never.wait(); };
    callers->request_stop();
    run([&]() -> task<void> {
        const bool happened = co_await other.run(waits);
        BOOST_TEST(!happened);
    });
}

// The stop is still under way when the call is back: the frame in which its message lies must not go.
BOOST_FIXTURE_TEST_CASE(a_stop_that_comes_too_late_is_waited_for, two_shards)
{
    const auto at_once = [] { return 5; };
    int got = 0;
    callers->spawn([&]() -> task<void> { got = co_await other.run(at_once); });
    there->turn(); // runs it, and sends it home
    callers->request_stop();
    home->turn();
    BOOST_TEST(got == 0);
    there->turn();
    home->turn();
    BOOST_TEST(got == 5);
}

BOOST_FIXTURE_TEST_CASE(a_shard_that_stops_takes_no_more_calls, two_shards)
{
    tasks->request_stop();
    bool called = false;
    const auto plain = [&] {
        called = true;
        return 1;
    };
    const auto with_result = [&]() -> task<result<int>> {
        called = true;
        co_return 1;
    };
    run([&]() -> task<void> {
        bool thrown = false;
        try {
            (void)co_await other.run(plain);
        } catch (const shard_stopped&) {
            thrown = true;
        }
        BOOST_TEST(thrown);
        const result<int> outcome = co_await other.run(with_result);
        BOOST_TEST((!outcome && outcome.error() == std::errc::operation_canceled));
        BOOST_TEST(!called);
    });
}

BOOST_FIXTURE_TEST_CASE(what_runs_on_a_shard_that_stops_is_stopped_and_comes_back, two_shards)
{
    event never;
    const auto waits = [&]() -> task<bool> { co_return co_await never.wait(); };
    callers->spawn([&]() -> task<void> {
        const bool happened = co_await other.run(waits);
        BOOST_TEST(!happened);
    });
    turn_both();
    BOOST_TEST(callers->live() == 1U);
    tasks->request_stop();
    turn_both();
    BOOST_TEST(callers->live() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
