// SPDX-License-Identifier: Apache-2.0
// Several shards in one thread: who is next, what time it is, and where what crosses them arrives.
#include <boost/test/unit_test.hpp>

#include <verbena/core/reactor/simulated_shards.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/yield.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(simulated_shards_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

struct three_shards {
    explicit three_shards(std::uint64_t seed = 1) : all(clock, seed) {}
    virtual_clock clock;
    memory_budget budget{std::size_t(4) << 20, 3};
    simulated_shards all;
    shard& a = all.add(budget);
    shard& b = all.add(budget);
    shard& c = all.add(budget);
};

std::uint64_t messages_to(const shard& s) { return s.reactor().stats().remote_messages.load(); }

class noted final : public deferred {
public:
    noted(std::vector<int>& order, int what) noexcept : order_(order), what_(what) {}
    void run() noexcept override { order_.push_back(what_); }

private:
    std::vector<int>& order_;
    int what_;
};

// What three shards do that call each other and sleep, in the order in which they do it.
struct story {
    std::vector<std::pair<unsigned, int>> steps;
    std::uint64_t trace = 0;
    bool operator==(const story&) const = default;
};
story story_of(std::uint64_t seed)
{
    three_shards s(seed);
    story told;
    const auto step = [&](unsigned where, int what) { told.steps.emplace_back(where, what); };
    const auto work = [&](shard& here, int what) -> task<void> {
        step(here.index(), what);
        co_await sleep_for(std::chrono::microseconds(what % 3));
        step(here.index(), what + 100);
    };
    const auto caller = [&](shard& here, int first) -> task<void> {
        for (int i = first; i < first + 4; ++i) {
            shard& other = s.all.at((here.index() + 1 + unsigned(i) % 2) % 3);
            co_await other.run(work, std::ref(other), i);
            step(here.index(), i + 200);
        }
    };
    s.all.run(s.a, [](const auto& call, three_shards& world) -> task<void> {
        scope calls(world.a.reactor());
        for (int i = 0; i < 3; ++i)
            calls.spawn(call, std::ref(world.a), i * 10);
        const auto elsewhere = [&call](shard& here) -> task<void> { return call(here, 50); };
        co_await world.b.run(elsewhere, std::ref(world.b));
        co_await calls.join();
    }(caller, s));
    told.trace = s.all.trace();
    return told;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_seed_gives_the_same_run_again_and_another_seed_another)
{
    const story first = story_of(42);
    BOOST_TEST(first.steps.size() == 16U * 3);
    BOOST_TEST((story_of(42) == first));
    const story other = story_of(43);
    BOOST_TEST(other.trace != first.trace);
    BOOST_TEST((other.steps != first.steps));
    BOOST_TEST(other.steps.size() == first.steps.size());
}

BOOST_AUTO_TEST_CASE(each_shard_is_next_at_times)
{
    std::map<std::vector<int>, int> orders;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        three_shards s(seed);
        std::vector<int> order;
        noted of_a(order, 0), of_b(order, 1), of_c(order, 2);
        s.a.reactor().post(of_a);
        s.b.reactor().post(of_b);
        s.c.reactor().post(of_c);
        s.all.settle();
        BOOST_TEST(order.size() == 3U);
        ++orders[order];
    }
    BOOST_TEST(orders.size() == 6U);
}

BOOST_AUTO_TEST_CASE(in_the_turn_of_one_the_others_are_elsewhere)
{
    three_shards s;
    const auto is_at = [&](const shard& here) {
        for (std::size_t i = 0; i < 3; ++i)
            BOOST_TEST(s.all.at(i).reactor().is_here() == (i == here.index()));
        BOOST_TEST(reactor::current() == &here.reactor());
    };
    const auto between_turns = [&] {
        for (std::size_t i = 0; i < 3; ++i)
            BOOST_TEST(s.all.at(i).reactor().is_here());
    };
    between_turns();
    s.all.run(s.b, [](const auto& look, three_shards& world) -> task<void> {
        look(world.b);
        const auto there = [&] { look(world.c); };
        co_await world.c.run(there);
        look(world.b);
    }(is_at, s));
    between_turns();
}

BOOST_AUTO_TEST_CASE(a_lease_goes_home_by_a_message)
{
    three_shards s;
    s.all.run(s.a, [](three_shards& world) -> task<void> {
        lease taken = world.a.buffers().try_acquire(4096);
        BOOST_TEST(bool(taken));
        const auto drop = [&world](lease l) {
            const std::uint64_t before = messages_to(world.a);
            l.reset();
            // It is under way.
            BOOST_TEST(world.a.buffers().outstanding() == 1U);
            return before;
        };
        const std::uint64_t before = co_await world.b.run(drop, std::move(taken));
        co_await sleep_for(1ms);
        BOOST_TEST(world.a.buffers().outstanding() == 0U);
        BOOST_TEST(messages_to(world.a) - before == 2U); // the lease, and the call's outcome
        // At home it needs none.
        lease again = world.a.buffers().try_acquire(4096);
        again.reset();
        BOOST_TEST(world.a.buffers().outstanding() == 0U);
    }(s));
}

BOOST_AUTO_TEST_CASE(leases_under_way_are_home_when_the_shards_have_stopped)
{
    three_shards s;
    lease taken = s.a.buffers().try_acquire(4096);
    s.b.tasks().spawn([moved = std::move(taken)]() mutable -> task<void> {
        event never;
        const bool happened = co_await never.wait();
        BOOST_TEST(!happened);
        moved.reset();
    });
    s.all.settle();
    BOOST_TEST(s.a.buffers().outstanding() == 1U);
    s.all.stop();
    BOOST_TEST(s.b.tasks().live() == 0U);
    BOOST_TEST(s.a.buffers().outstanding() == 0U);
}

BOOST_AUTO_TEST_CASE(messages_stay_in_order_and_some_are_late)
{
    class numbered final : public remote_message {
    public:
        numbered(std::vector<int>& order, int number) noexcept : order_(order), number_(number) {}
        void deliver() noexcept override { order_.push_back(number_); }

    private:
        std::vector<int>& order_;
        int number_;
    };
    int late = 0;
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        std::vector<int> of_a, of_b;
        std::deque<numbered> sent_by_a, sent_by_b;
        three_shards s(seed);
        const auto sends = [&s](std::deque<numbered>& sent, std::vector<int>& order) -> task<void> {
            for (int i = 0; i < 30; ++i) {
                s.b.reactor().post_remote(sent.emplace_back(order, i));
                if (i % 3 == 0)
                    co_await yield();
            }
        };
        const auto looks = [&]() -> task<void> {
            for (int i = 0; i < 100; ++i) {
                late += of_a.size() < sent_by_a.size(); // which sends nothing in this turn
                co_await yield();
            }
        };
        s.b.tasks().spawn(looks);
        s.b.tasks().spawn(sends, std::ref(sent_by_b),
                          std::ref(of_b)); // to itself, in the turns that miss others
        s.all.run(s.a, sends(sent_by_a, of_a));
        s.all.settle();
        for (const auto* order : {&of_a, &of_b}) {
            BOOST_TEST(order->size() == 30U);
            BOOST_TEST(std::ranges::is_sorted(*order));
        }
        BOOST_TEST(s.all.messages(0, 1) == 30U);
        BOOST_TEST(s.all.messages(1, 0) == 0U);
        BOOST_TEST(s.all.messages(2, 1) == 0U);
    }
    BOOST_TEST(late > 50);
}

// The messages of one call: `there_`, `back_`, `stop_` and `late_stop_` of detail::remote_run.
BOOST_AUTO_TEST_CASE(a_stop_meets_a_call_in_all_orders)
{
    enum meeting { before_the_call, while_it_runs, on_the_way_back, after_its_return, count };
    std::array<int, count> met{};
    for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
        virtual_clock clock;
        memory_budget budget(std::size_t(4) << 20, 2);
        simulated_shards all(clock, seed);
        shard& home = all.add(budget);
        shard& there = all.add(budget);
        bool stopped_at_first = false, stopped_at_last = false, stopped_at_return = false, is_back = false;
        const auto call = [&]() -> task<int> {
            const task_context& context = co_await current_context();
            stopped_at_first = context.stop.stop_requested();
            co_await yield();
            co_await yield();
            stopped_at_last = context.stop.stop_requested();
            co_return 7;
        };
        const auto caller = [&]() -> task<void> {
            const task_context& context = co_await current_context();
            const int seven = co_await there.run(call);
            BOOST_TEST(seven == 7);
            stopped_at_return = context.stop.stop_requested();
            is_back = true;
        };
        const auto main = [&]() -> task<void> {
            scope calls(home.reactor());
            calls.spawn(caller);
            for (std::uint64_t turns = seed % 8; turns > 0; --turns)
                co_await yield();
            calls.request_stop();
            co_await calls.join();
        };
        all.run(home, main());
        BOOST_TEST(is_back);
        all.settle();
        // A stop follows the call by a message. Home hears of the call's end, and of a stop that came too late for it.
        const std::uint64_t there_heard = messages_to(there), home_heard = messages_to(home);
        BOOST_TEST((there_heard == 1 || there_heard == 2));
        BOOST_TEST((home_heard == 1 || home_heard == 2));
        if (stopped_at_first)
            ++met[before_the_call];
        else if (stopped_at_last)
            ++met[while_it_runs];
        else if (home_heard == 2)
            ++met[on_the_way_back];
        else if (there_heard == 1)
            ++met[after_its_return];
        if (stopped_at_last)
            BOOST_TEST((there_heard == 2 && home_heard == 1));
        if (there_heard == 2)
            BOOST_TEST(stopped_at_return);
        else
            BOOST_TEST(home_heard == 1U);
    }
    for (const int n : met)
        BOOST_TEST(n > 10);
}

BOOST_AUTO_TEST_CASE(a_shard_that_stops_meets_a_call_in_all_orders)
{
    int refused = 0, stopped = 0, served = 0;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        three_shards s(seed);
        bool saw_stop = false;
        const auto call = [&]() -> task<bool> {
            const task_context& context = co_await current_context();
            co_await yield();
            saw_stop = context.stop.stop_requested();
            co_return saw_stop;
        };
        const auto end = [&]() -> task<void> {
            co_await yield();
            s.b.tasks().request_stop();
        };
        const auto main = [&]() -> task<void> {
            for (std::uint64_t turns = seed % 3; turns > 0; --turns)
                co_await yield();
            try {
                const bool seen = co_await s.b.run(call);
                ++(seen ? stopped : served);
            } catch (const shard_stopped&) {
                ++refused;
            }
        };
        s.b.tasks().spawn(end);
        s.all.run(s.a, main());
    }
    BOOST_TEST(refused > 5);
    BOOST_TEST(stopped > 5);
    BOOST_TEST(served > 5);
}

BOOST_AUTO_TEST_CASE(the_clock_passes_no_timer)
{
    three_shards s;
    int woken = 0;
    const auto sleeper = [&](duration first, duration step) -> task<void> {
        for (int i = 0; i < 50; ++i) {
            const time_point when = s.clock.now() + (i == 0 ? first : step);
            co_await sleep_until(when);
            BOOST_TEST((s.clock.now() == when));
            const task_context& context = co_await current_context();
            BOOST_TEST((context.shard->now() == when));
            ++woken;
        }
    };
    const std::array<duration, 3> steps{7ms, 11ms, 1h};
    for (std::size_t i = 0; i < 3; ++i)
        s.all.at(i).tasks().spawn(sleeper, duration(1ms * int(i)), steps[i]);
    s.all.run(s.a, []() -> task<void> { co_await sleep_for(60h); }());
    BOOST_TEST(woken == 150);
}

BOOST_AUTO_TEST_CASE(the_clock_stands_while_there_is_something_to_do)
{
    bool late = false;
    three_shards s; // whose end stops the alarm
    const time_point begun = s.clock.now();
    const auto alarm = [&]() -> task<void> {
        co_await sleep_for(1ns);
        late = true;
    };
    s.c.tasks().spawn(alarm);
    const auto nothing = [] {};
    const auto main = [&]() -> task<void> {
        for (int i = 0; i < 100; ++i) {
            co_await s.b.run(nothing);
            co_await yield();
        }
        BOOST_TEST(!late);
        BOOST_TEST((s.clock.now() == begun));
    };
    s.all.run(s.a, main());
    s.all.settle();
    BOOST_TEST(!late);
}

BOOST_AUTO_TEST_CASE(a_task_that_waits_for_nothing_ends)
{
    three_shards s;
    event never;
    bool heard = false;
    const auto waits = [&]() -> task<void> {
        const bool happened = co_await never.wait();
        heard = !happened;
    };
    // Time that passes elsewhere is no reason to wait for more.
    s.c.tasks().spawn([]() -> task<void> { co_await sleep_for(1h); });
    try {
        s.all.run(s.a,
                  [](shard& other, const auto& body) -> task<void> { co_await other.run(body); }(s.b, waits));
        BOOST_TEST(false);
    } catch (const incomplete_run& e) {
        BOOST_TEST((e.why() == run_end::nothing_left));
    }
    BOOST_TEST(heard);
}

BOOST_AUTO_TEST_CASE(whoever_stops_a_reactor_stops_the_run)
{
    three_shards s;
    bool ended = false;
    s.c.tasks().spawn([&]() -> task<void> {
        co_await sleep_for(1s);
        s.c.reactor().stop();
    });
    const auto sleeps = [&]() -> task<void> {
        const bool slept = co_await sleep_for(1h);
        ended = !slept;
    };
    try {
        s.all.run(s.a, sleeps());
        BOOST_TEST(false);
    } catch (const incomplete_run& e) {
        BOOST_TEST((e.why() == run_end::stopped));
    }
    BOOST_TEST(ended);
    // It was taken, and the next run isn't stopped by it.
    const int five = s.all.run(s.b, []() -> task<int> { co_return 5; }());
    BOOST_TEST(five == 5);
}

BOOST_AUTO_TEST_CASE(what_leaves_the_task_leaves_run)
{
    three_shards s;
    const auto throws = [] { throw std::runtime_error("there"); };
    const auto main = [&]() -> task<void> { co_await s.c.run(throws); };
    BOOST_CHECK_EXCEPTION(s.all.run(s.b, main()), std::runtime_error,
                          [](const std::runtime_error& e) { return std::string(e.what()) == "there"; });
}

BOOST_AUTO_TEST_SUITE_END()
