// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/semaphore.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/yield.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

BOOST_AUTO_TEST_SUITE(task_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

std::unique_ptr<reactor> make(reactor_options o = {})
{
    auto r = reactor::create(o);
    BOOST_REQUIRE_MESSAGE(r, (r ? std::string() : r.error().message()));
    return std::move(*r);
}

task<int> ready(int n) { co_return n; }
task<long> sum(int n)
{
    long total = 0;
    for (int i = 0; i < n; ++i)
        total += co_await ready(1);
    co_return total;
}
task<int> throws()
{
    throw std::runtime_error("boom");
    co_return 0;
}

} // namespace

// Constant stack in every compiler and build type, -O0 and ASan included.
BOOST_AUTO_TEST_CASE(a_million_ready_tasks)
{
    auto r = make();
    BOOST_TEST(run_until_complete(*r, sum(1'000'000)) == 1'000'000);
}

BOOST_AUTO_TEST_CASE(a_million_waits_use_constant_stack)
{
    auto r = make();
    semaphore ping(0);
    semaphore pong(0);
    int hits = 0;
    auto player = [](semaphore& in, semaphore& out, int& count, int n) -> task<void> {
        for (int i = 0; i < n; ++i) {
            if (!co_await in.acquire())
                co_return;
            ++count;
            out.release();
        }
    };
    auto game = [&]() -> task<void> {
        const task_context& context = co_await current_context();
        scope s(*context.shard);
        s.spawn(player, std::ref(ping), std::ref(pong), std::ref(hits), 200'000);
        s.spawn(player, std::ref(pong), std::ref(ping), std::ref(hits), 200'000);
        ping.release();
        co_await s.join();
    };
    run_until_complete(*r, game());
    BOOST_TEST(hits == 400'000);
}

BOOST_AUTO_TEST_CASE(exceptions_reach_the_awaiter)
{
    auto r = make();
    auto outer = []() -> task<std::string> {
        std::string text;
        try {
            co_await throws();
        } catch (const std::exception& e) {
            text = e.what();
        }
        co_return text;
    };
    BOOST_TEST(run_until_complete(*r, outer()) == "boom");
}

namespace {

task<void> throw_later(int turns)
{
    for (int i = 0; i < turns; ++i)
        co_await sleep_for(1ms);
    throw std::runtime_error("boom");
}
task<void> count_later(int& n)
{
    co_await sleep_for(10ms);
    ++n;
}

} // namespace

// A child that throws takes nobody with it, and whoever joins hears of it.
BOOST_AUTO_TEST_CASE(an_exception_that_leaves_a_child_is_rethrown_by_join)
{
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto r = make(o);
    for (const int turns : {0, 1}) {
        int counted = 0;
        std::string text;
        auto body = [&]() -> task<void> {
            scope s(*r);
            s.spawn(throw_later, turns);
            s.spawn(throw_later, turns + 1);
            s.spawn(count_later, std::ref(counted));
            try {
                co_await s.join();
            } catch (const std::exception& e) {
                text = e.what();
            }
            co_await s.join(); // told once
        };
        run_until_complete(*r, body());
        BOOST_TEST(text == "boom");
        BOOST_TEST(counted == 1);
    }
}

BOOST_AUTO_TEST_CASE(a_handler_hears_of_exceptions_in_place_of_the_joiner)
{
    struct handler final : exception_handler {
        void on_exception(const std::exception_ptr& e) noexcept override
        {
            ++heard;
            said = what_of(e);
            code = error_of(e, "test");
        }
        int heard = 0;
        std::string said;
        error code;
    } h;
    auto r = make();
    auto fail_with = [](std::exception_ptr e) -> task<void> {
        std::rethrow_exception(e);
        co_return;
    };
    auto body = [&]() -> task<void> {
        scope s(*r, nullptr, &h);
        s.spawn(throw_later, 1);
        co_await s.join();
        BOOST_TEST(h.said == "boom");
        BOOST_TEST((h.code == std::errc::state_not_recoverable));
        s.spawn(fail_with, std::make_exception_ptr(std::bad_alloc()));
        BOOST_TEST((h.code == std::errc::not_enough_memory));
        s.spawn(fail_with,
                std::make_exception_ptr(std::system_error(std::make_error_code(std::errc::no_such_device))));
        BOOST_TEST((h.code == std::errc::no_such_device));
        s.spawn(fail_with, std::make_exception_ptr(7));
        BOOST_TEST((h.code == std::errc::state_not_recoverable));
        co_await s.join();
    };
    run_until_complete(*r, body());
    BOOST_TEST(h.heard == 4);
}

// What spawn() was given lives as long as the child, though the caller's temporaries are long gone.
BOOST_AUTO_TEST_CASE(a_scope_keeps_callable_and_arguments_until_the_child_ends)
{
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto r = make(o);
    std::string heard;
    const auto held = std::make_shared<int>(1);
    const std::weak_ptr<int> counted = held;
    auto takes_references = [](std::string& out, const std::string& text,
                               const std::shared_ptr<int>&) -> task<void> {
        (void)co_await sleep_for(1h);
        out += text;
    };
    auto body = [&]() -> task<void> {
        scope s(*r);
        s.spawn(
            [&heard, text = std::string("a text too long to lie in the string itself; ")]() -> task<void> {
                (void)co_await sleep_for(2h);
                heard += text;
            });
        s.spawn(takes_references, std::ref(heard), std::string("another one that lies on the heap; "), held);
        auto gone = [&heard]() mutable -> task<void> {
            (void)co_await sleep_for(3h);
            heard += "the last";
        };
        s.spawn(std::move(gone));
        BOOST_TEST(counted.use_count() == 2);
        co_await s.join();
        BOOST_TEST(counted.use_count() == 1);
    };
    run_until_complete(*r, body());
    BOOST_TEST(heard ==
               "another one that lies on the heap; a text too long to lie in the string itself; the last");
}

namespace {

struct moved_only {
    explicit moved_only(int& n) : moves(&n) {}
    moved_only(moved_only&& other) noexcept : moves(other.moves) { ++*moves; }
    int* moves;
};
struct session {
    task<void> run(moved_only&& by_reference, std::unique_ptr<int> n)
    {
        moves_before = *by_reference.moves;
        (void)co_await sleep_for(1ms);
        value = *n;
    }
    int moves_before = 0;
    int value = 0;
};

} // namespace

BOOST_AUTO_TEST_CASE(spawn_moves_what_it_is_given)
{
    auto r = make();
    int moves = 0;
    session one;
    session other;
    int lambda_value = 0;
    auto body = [&]() -> task<void> {
        scope s(*r);
        s.spawn(&session::run, &one, moved_only(moves), std::make_unique<int>(7));
        BOOST_TEST(one.moves_before == 2); // to the runner, and into its frame
        s.spawn(&session::run, std::ref(other), moved_only(moves), std::make_unique<int>(8));
        s.spawn([&lambda_value, n = std::make_unique<int>(9)]() -> task<void> {
            (void)co_await sleep_for(1ms);
            lambda_value = *n;
        });
        co_await s.join();
    };
    run_until_complete(*r, body());
    BOOST_TEST(one.value == 7);
    BOOST_TEST(other.value == 8);
    BOOST_TEST(lambda_value == 9);
}

BOOST_AUTO_TEST_CASE(spawn_takes_a_frame_of_its_own_and_one_for_the_child)
{
    auto r = make();
    auto nothing = [](std::string) -> task<void> { co_return; };
    scope s(*r);
    for (int i = 0; i < 2; ++i) {
        const auto before = current_frame_pool_stats();
        s.spawn(nothing, std::string(100, 'x'));
        const auto after = current_frame_pool_stats();
        BOOST_TEST(after.reused + after.fresh - before.reused - before.fresh <=
                   2U); // compilers may join them
    }
}

namespace {

struct not_copied {
    not_copied() = default;
    not_copied(const not_copied&) { throw std::runtime_error("a copy"); }
    not_copied(not_copied&&) noexcept = default;
};
task<void> take(const not_copied&) { co_return; }

} // namespace

BOOST_AUTO_TEST_CASE(what_throws_before_there_is_a_child)
{
    auto r = make();
    auto body = [&]() -> task<void> {
        scope s(*r);
        const not_copied mine;
        BOOST_CHECK_THROW(s.spawn(take, mine), std::runtime_error);
        BOOST_TEST(s.live() == 0U);
        s.spawn(take, std::cref(mine));
        // The call that makes the task belongs to the child.
        s.spawn([]() -> task<void> { throw std::logic_error("no task"); });
        std::string text;
        try {
            co_await s.join();
        } catch (const std::logic_error& e) {
            text = e.what();
        }
        BOOST_TEST(text == "no task");
    };
    run_until_complete(*r, body());
}

BOOST_AUTO_TEST_CASE(an_exception_of_a_blocking_call_reaches_the_awaiter)
{
    auto r = make();
    blocking_pool pool(1);
    auto body = [&]() -> task<std::string> {
        std::string text;
        try {
            auto f = []() -> int { throw std::runtime_error("boom"); };
            (void)co_await pool.run(std::move(f));
        } catch (const std::exception& e) {
            text = e.what();
        }
        try {
            auto f = [] { throw std::runtime_error("again"); };
            co_await pool.run(std::move(f));
        } catch (const std::exception& e) {
            text += e.what();
        }
        co_return text;
    };
    BOOST_TEST(run_until_complete(*r, body()) == "boomagain");
}

BOOST_AUTO_TEST_CASE(virtual_time_jumps)
{
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto r = make(o);
    const auto start = clock.now();
    auto nap = []() -> task<bool> { co_return co_await sleep_for(3h); };
    BOOST_TEST(run_until_complete(*r, nap()));
    BOOST_TEST((clock.now() - start >= 3h));
}

// It used to yield a value that was not there.
BOOST_AUTO_TEST_CASE(a_loop_that_ends_before_its_task_is_an_exception)
{
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto r = make(o);
    event never;
    bool ended = false;
    auto waits = [&]() -> task<int> {
        const bool happened = co_await never.wait();
        (void)co_await sleep_for(1h); // deaf to what it was told; still it is waited for
        ended = !happened;
        co_return 1;
    };
    const auto says = [](run_end why, const char* text) {
        return [=](const incomplete_run& e) {
            return e.why() == why && std::string_view(e.what()).find(text) != std::string_view::npos;
        };
    };
    BOOST_CHECK_EXCEPTION(run_until_complete(*r, waits()), incomplete_run,
                          says(run_end::nothing_left, "the task waits for something that can't happen"));
    BOOST_TEST(std::exchange(ended, false));

    r->stop(); // somebody else's
    BOOST_CHECK_EXCEPTION(run_until_complete(*r, waits()), incomplete_run,
                          says(run_end::stopped, "somebody else called stop()"));
    BOOST_TEST(std::exchange(ended, false));

    auto throws_when_stopped = [&]() -> task<void> {
        (void)co_await never.wait();
        ended = true;
        throw std::runtime_error("of the task");
    };
    BOOST_CHECK_THROW(run_until_complete(*r, throws_when_stopped()), incomplete_run);
    BOOST_TEST(ended);
    BOOST_TEST(run_until_complete(*r, ready(3)) == 3);
}

BOOST_AUTO_TEST_CASE(stop_ends_waits)
{
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto r = make(o);
    event never;
    int stopped = 0;
    auto wait_for_ever = [](event& e, int& n) -> task<void> {
        if (!co_await e.wait())
            ++n;
    };
    auto sleep_long = [](int& n) -> task<void> {
        if (!co_await sleep_for(1000h))
            ++n;
    };
    auto body = [&]() -> task<void> {
        const task_context& context = co_await current_context();
        scope s(*context.shard);
        s.spawn([&] { return wait_for_ever(never, stopped); });
        s.spawn([&] { return sleep_long(stopped); });
        co_await sleep_for(1s);
        s.request_stop();
        co_await s.join();
    };
    run_until_complete(*r, body());
    BOOST_TEST(stopped == 2);
}

BOOST_AUTO_TEST_CASE(blocking_calls_come_back_to_the_shard)
{
    auto r = make();
    blocking_pool pool(2);
    const auto home = std::this_thread::get_id();
    auto body = [&]() -> task<bool> {
        bool elsewhere = true;
        bool back = true;
        for (int i = 0; i < 1000; ++i) {
            auto f = [] { return std::this_thread::get_id(); };
            const auto there = co_await pool.run(std::move(f));
            elsewhere = elsewhere && there != home;
            back = back && std::this_thread::get_id() == home;
        }
        co_return elsewhere&& back;
    };
    BOOST_TEST(run_until_complete(*r, body()));
}

namespace {

struct counted final : blocking_pool::job {
    void execute() noexcept override { ++done; }
    void deliver() noexcept override {}
    std::atomic<int> done{0};
};

} // namespace

BOOST_AUTO_TEST_CASE(a_pool_that_has_ended_refuses_what_nobody_waits_for)
{
    blocking_pool pool(1);
    counted job;
    BOOST_TEST(pool.submit(job));
    pool.finish();
    BOOST_TEST(job.done == 1);
    BOOST_TEST(!pool.submit(job));
    BOOST_TEST(pool.look().queued == 0u);
}

BOOST_AUTO_TEST_CASE(works_without_the_newer_ring_features)
{
    reactor_options o;
    o.masked_ring_features = unsigned(ring_feature::single_issuer) | unsigned(ring_feature::defer_taskrun);
    o.policy = wait_policy::event;
    auto r = make(o);
    blocking_pool pool(1);
    auto body = [&]() -> task<int> {
        co_await sleep_for(2ms);
        auto f = [] { return 42; };
        co_return co_await pool.run(std::move(f));
    };
    BOOST_TEST(run_until_complete(*r, body()) == 42);
}

BOOST_AUTO_TEST_CASE(frames_are_reused)
{
    auto r = make();
    BOOST_TEST(run_until_complete(*r, sum(100)) == 100);
    const auto before = current_frame_pool_stats();
    BOOST_TEST(run_until_complete(*r, sum(1000)) == 1000);
    const auto after = current_frame_pool_stats();
    BOOST_TEST(after.fresh == before.fresh);
    BOOST_TEST(after.reused > before.reused);
}

BOOST_AUTO_TEST_CASE(yield_lets_the_rest_of_the_turn_go_first)
{
    auto r = make();
    std::string order;
    event go;
    scope s(*r);
    s.spawn([&]() -> task<void> {
        (void)co_await go.wait();
        order += 'a';
        co_await yield();
        order += 'd';
    });
    for (const char c : {'b', 'c'}) {
        s.spawn([&, c]() -> task<void> {
            (void)co_await go.wait();
            order += c;
        });
    }
    s.spawn([&]() -> task<void> {
        go.set();
        co_return;
    });
    run_until_complete(*r, [](scope& all) -> task<void> { co_await all.join(); }(s));
    BOOST_TEST(order == "abcd");
}

// Whoever yields all the time starves nobody: timers and sockets are looked at.
BOOST_AUTO_TEST_CASE(a_task_that_yields_for_ever_does_not_hold_the_shard)
{
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto r = make(o);
    bool over = false;
    int rounds = 0;
    scope s(*r);
    s.spawn([&]() -> task<void> {
        while (!over) {
            co_await yield();
            ++rounds;
            clock.advance(1us);
        }
    });
    run_until_complete(*r, [](bool& done) -> task<void> {
        (void)co_await sleep_for(1ms);
        done = true;
    }(over));
    run_until_complete(*r, [](scope& all) -> task<void> { co_await all.join(); }(s));
    BOOST_TEST(rounds >= 1000);
    BOOST_TEST(rounds < 1000 + 64); // a few turns
}

// It does not ask the stop token: a loop does.
BOOST_AUTO_TEST_CASE(yield_comes_back_in_a_task_that_was_asked_to_stop)
{
    auto r = make();
    int rounds = 0;
    scope s(*r);
    s.request_stop();
    s.spawn([&]() -> task<void> {
        for (; rounds != 3; ++rounds)
            co_await yield();
    });
    run_until_complete(*r, [](scope& all) -> task<void> { co_await all.join(); }(s));
    BOOST_TEST(rounds == 3);
}

BOOST_AUTO_TEST_SUITE_END()
