// SPDX-License-Identifier: Apache-2.0
// when_all, when_any, with_timeout, gate and channel, on a virtual clock.
#include <boost/test/unit_test.hpp>

#include <verbena/core/task/channel.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/gate.hpp>
#include <verbena/core/task/sleep.hpp>

#include <memory>
#include <stdexcept>
#include <string>

BOOST_AUTO_TEST_SUITE(combine_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

struct virtual_shard {
    virtual_shard()
    {
        reactor_options o;
        o.clock = &clock;
        auto made = reactor::create(o);
        BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
        shard = std::move(*made);
    }
    template<class T>
    T run(task<T> t)
    {
        return run_until_complete(*shard, std::move(t));
    }
    virtual_clock clock;
    std::unique_ptr<reactor> shard;
};

task<std::string> after(duration d, std::string text)
{
    const bool slept = co_await sleep_for(d);
    co_return slept ? text : text + " stopped";
}
task<void> nap(duration d, int& done)
{
    const bool slept = co_await sleep_for(d);
    done += slept ? 1 : 0;
}
task<int> throws_after(duration d)
{
    (void)co_await sleep_for(d);
    throw std::runtime_error("boom");
}
task<result<int>> answer(duration d)
{
    const bool slept = co_await sleep_for(d);
    if (!slept)
        co_return error(std::errc::operation_canceled, "stopped");
    co_return 42;
}
/// Finishes what it began, whatever is asked of it.
task<result<int>> stubborn(event& release)
{
    co_await release.wait_shielded();
    co_return 7;
}
task<void> set_after(duration d, event& e)
{
    (void)co_await sleep_for(d);
    e.set();
}

} // namespace

BOOST_FIXTURE_TEST_CASE(all_run_at_once_and_keep_their_order, virtual_shard)
{
    const auto start = clock.now();
    int naps = 0;
    auto [slow, quick, nothing] = run(when_all(after(5s, "slow"), after(1s, "quick"), nap(2s, naps)));
    BOOST_TEST(slow == "slow");
    BOOST_TEST(quick == "quick");
    BOOST_TEST(naps == 1);
    BOOST_TEST((nothing == std::monostate()));
    BOOST_TEST((clock.now() - start == 5s));
}

BOOST_FIXTURE_TEST_CASE(all_of_a_vector, virtual_shard)
{
    std::vector<task<std::string>> tasks;
    for (int i = 0; i < 100; ++i)
        tasks.push_back(after(std::chrono::seconds(100 - i), std::to_string(i)));
    const auto values = run(when_all(std::move(tasks)));
    BOOST_REQUIRE(values.size() == 100u);
    for (int i = 0; i < 100; ++i)
        BOOST_TEST(values[static_cast<std::size_t>(i)] == std::to_string(i));
    BOOST_TEST(run(when_all(std::vector<task<std::string>>())).empty());
}

BOOST_FIXTURE_TEST_CASE(an_exception_comes_out_after_all_have_ended, virtual_shard)
{
    int naps = 0;
    BOOST_CHECK_THROW(run(when_all(throws_after(1s), nap(3s, naps))), std::runtime_error);
    BOOST_TEST(naps == 1);
}

BOOST_FIXTURE_TEST_CASE(the_first_wins_and_the_others_are_stopped, virtual_shard)
{
    const auto start = clock.now();
    auto first = run(when_any(after(9h, "slow"), after(1s, "quick"), after(8h, "slower")));
    BOOST_TEST(first.index == 1u);
    BOOST_TEST(first.value == "quick");
    BOOST_TEST((clock.now() - start == 1s));
}

BOOST_FIXTURE_TEST_CASE(a_stop_goes_through_to_the_children, virtual_shard)
{
    int naps = 0;
    std::string heard;
    auto outer = [](int& n, std::string& text) -> task<void> {
        auto both = co_await when_all(after(9h, "child"), nap(9h, n));
        text = std::get<0>(both);
    };
    auto body = [&]() -> task<void> {
        const task_context& context = co_await current_context();
        scope s(*context.shard);
        s.spawn([&] { return outer(naps, heard); });
        (void)co_await sleep_for(1s);
        s.request_stop();
        co_await s.join();
        // Begun after the stop.
        s.spawn([&] { return outer(naps, heard); });
        co_await s.join();
    };
    run(body());
    BOOST_TEST(heard == "child stopped");
    BOOST_TEST(naps == 0);
}

BOOST_FIXTURE_TEST_CASE(in_time_and_too_late, virtual_shard)
{
    const auto start = clock.now();
    auto good = run(with_timeout(2s, answer(1s)));
    BOOST_REQUIRE(good);
    BOOST_TEST(*good == 42);
    BOOST_TEST((clock.now() - start == 1s));
    auto late = run(with_timeout(2s, answer(3h)));
    BOOST_REQUIRE(!late);
    BOOST_TEST((late.error() == std::errc::timed_out));
    BOOST_TEST((clock.now() - start == 3s));
}

BOOST_FIXTURE_TEST_CASE(a_limit_beyond_all_times_is_none, virtual_shard)
{
    const auto start = clock.now();
    const auto value = run(with_timeout(duration::max(), answer(1s)));
    BOOST_TEST(bool(value));
    BOOST_TEST((clock.now() - start == 1s));
    event never;
    auto wait = [&]() -> task<result<int>> {
        (void)co_await never.wait();
        co_return 1;
    };
    auto both = [&]() -> task<int> {
        scope s(*shard);
        auto waits = [&]() -> task<void> { (void)co_await with_timeout(duration::max(), wait()); };
        s.spawn(waits);
        co_await sleep_for(1h);
        BOOST_TEST(!shard->timers().next());
        never.set();
        co_await s.join();
        co_return 0;
    };
    (void)run(both());
    BOOST_TEST((clock.now() - start == 1h + 1s));
}

// The limit comes first, and the sleep that it stopped is due in the same turn: it must not be resumed for both.
BOOST_FIXTURE_TEST_CASE(a_sleep_that_ends_with_the_limit_is_resumed_once, virtual_shard)
{
    int resumed = 0;
    auto nap = [&]() -> task<result<int>> {
        const bool slept = co_await sleep_for(1s);
        ++resumed;
        co_await sleep_for(1s);
        co_return slept ? 1 : 0;
    };
    (void)run(with_timeout(1s, nap()));
    BOOST_TEST(resumed == 1);
    (void)run(answer(5s)); // whatever is still armed
    BOOST_TEST(resumed == 1);
}

BOOST_FIXTURE_TEST_CASE(what_was_done_in_spite_of_the_limit_is_kept, virtual_shard)
{
    event release;
    auto both = run(when_all(with_timeout(1s, stubborn(release)), set_after(5s, release)));
    auto& value = std::get<0>(both);
    BOOST_REQUIRE(value);
    BOOST_TEST(*value == 7);
}

BOOST_FIXTURE_TEST_CASE(the_nearer_deadline_counts, virtual_shard)
{
    auto left = []() -> task<result<duration>> {
        const task_context& context = co_await current_context();
        co_return duration(context.deadline - context.shard->clock().now());
    };
    auto nested = [&left]() -> task<result<duration>> {
        auto inner = with_timeout(10s, left());
        co_return co_await inner;
    };
    auto value = run(with_timeout(3s, nested()));
    BOOST_REQUIRE(value);
    BOOST_TEST((*value == 3s));
}

BOOST_FIXTURE_TEST_CASE(a_gate_tells_when_the_last_has_left, virtual_shard)
{
    gate g;
    auto visit = [](gate& where, duration d) -> task<void> {
        const gate::pass in = where.enter();
        BOOST_TEST(bool(in));
        (void)co_await sleep_for(d);
    };
    auto body = [&]() -> task<void> {
        const task_context& context = co_await current_context();
        scope s(*context.shard);
        s.spawn([&] { return visit(g, 2s); });
        s.spawn([&] { return visit(g, 5s); });
        BOOST_TEST(g.inside() == 2u);
        const auto start = context.shard->clock().now();
        co_await g.close();
        BOOST_TEST((context.shard->clock().now() - start == 5s));
        BOOST_TEST(!g.enter());
        co_await g.close();
        co_await s.join();
    };
    run(body());
    gate never_used;
    auto close = [](gate& which) -> task<void> { co_await which.close(); };
    run(close(never_used));
}

BOOST_FIXTURE_TEST_CASE(a_channel_is_bounded_and_keeps_order, virtual_shard)
{
    channel<std::unique_ptr<int>> c(4);
    auto producer = [](channel<std::unique_ptr<int>>& to) -> task<void> {
        for (int i = 0; i < 1000; ++i) {
            auto value = std::make_unique<int>(i);
            const bool sent = co_await to.send(std::move(value));
            BOOST_REQUIRE(sent);
            BOOST_REQUIRE(to.size() <= 4u);
        }
        to.close();
    };
    auto consumer = [](channel<std::unique_ptr<int>>& from, int& next) -> task<void> {
        for (;;) {
            auto value = co_await from.receive();
            if (!value)
                co_return;
            BOOST_REQUIRE(**value == next);
            ++next;
        }
    };
    int next = 0;
    run(when_all(producer(c), consumer(c, next)));
    BOOST_TEST(next == 1000);
}

BOOST_FIXTURE_TEST_CASE(closing_a_channel_frees_all_who_wait, virtual_shard)
{
    channel<int> full(1);
    int value = 1;
    BOOST_TEST(full.try_send(value));
    BOOST_TEST(!full.try_send(value));
    auto send = [](channel<int>& to, int& refused) -> task<void> {
        const bool sent = co_await to.send(2);
        refused += sent ? 0 : 1;
    };
    auto receive = [](channel<int>& from, int& ended) -> task<void> {
        auto got = co_await from.receive();
        ended += got ? 0 : 1;
    };
    channel<int> empty(1);
    int refused = 0;
    int ended = 0;
    auto body = [&]() -> task<void> {
        const task_context& context = co_await current_context();
        scope s(*context.shard);
        s.spawn([&] { return send(full, refused); });
        s.spawn([&] { return send(full, refused); });
        s.spawn([&] { return receive(empty, ended); });
        s.spawn([&] { return receive(empty, ended); });
        full.close();
        empty.close();
        co_await s.join();
        // What was sent before is not lost.
        auto last = co_await full.receive();
        BOOST_REQUIRE(last);
        BOOST_TEST(*last == 1);
        auto none = co_await full.receive();
        BOOST_TEST(!none);
        const bool sent = co_await full.send(3);
        BOOST_TEST(!sent);
    };
    run(body());
    BOOST_TEST(refused == 2);
    BOOST_TEST(ended == 2);
}

BOOST_AUTO_TEST_SUITE_END()
