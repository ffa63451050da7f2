// SPDX-License-Identifier: Apache-2.0
// Tasks that run together, on another shard or for a thread, where there is no memory for a frame: whoever waits hears
// so, and nothing of them runs on. A program of its own: here each frame of a coroutine fails in its turn.
#include <boost/test/unit_test.hpp>

#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>
#include <utility>
#include <vector>

namespace {

std::atomic<int> fails_at{0}; // the frame that fails, from 1; 0: none
std::atomic<bool> has_failed{false};

} // namespace

// Frames come in units of 64 bytes (frame_pool.cpp).
void* operator new(std::size_t size)
{
    const bool fails = size % 64 == 0 && fails_at.load() > 0 && fails_at.fetch_sub(1) == 1;
    if (fails)
        has_failed = true;
    void* const made = fails ? nullptr : std::malloc(size);
    if (made == nullptr)
        throw std::bad_alloc();
    return made;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

BOOST_AUTO_TEST_SUITE(no_memory_tasks_test)

using namespace verbena;

namespace {

task<int> waits(event& e)
{
    const bool is_set = co_await e.wait();
    co_return is_set ? 1 : 0;
}
task<int> sets(event& e)
{
    e.set();
    co_return 3;
}
task<int> ends() { co_return 2; }

/// `body` once for each of the frames that it makes, which fails.
template<class Body>
void each_frame_fails_in_its_turn(Body body)
{
    int at = 1;
    for (bool failed = true; failed; ++at) {
        has_failed = false;
        std::jthread([&] { body(at); }).join(); // a new one, so that no frame is left from a run before
        failed = has_failed;
    }
    BOOST_TEST(at > 3);
}

/// Whether `t` says that there is no memory, or yields its value.
template<class Make>
void ends_by_the_virtual_clock(int at, Make make)
{
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    const auto r = reactor::create(o).value();
    event e;
    bool is_told = false;
    const auto all = [&]() -> task<void> {
        fails_at = at;
        try {
            auto t = make(e);
            (void)co_await t;
            is_told = true;
        } catch (const std::bad_alloc&) {
            is_told = true;
        }
        fails_at = 0;
    };
    run_until_complete(*r, all());
    BOOST_TEST(is_told, "frame " << at);
}

} // namespace

// The first one waits for the second one, which may not have begun.
BOOST_AUTO_TEST_CASE(when_all_stops_those_that_run_where_one_can_not_begin)
{
    each_frame_fails_in_its_turn(
        [](int at) { ends_by_the_virtual_clock(at, [](event& e) { return when_all(waits(e), sets(e)); }); });
    each_frame_fails_in_its_turn([](int at) {
        ends_by_the_virtual_clock(at, [](event& e) {
            std::vector<task<int>> all;
            all.reserve(2);
            all.push_back(waits(e));
            all.push_back(sets(e));
            return when_all(std::move(all));
        });
    });
}

BOOST_AUTO_TEST_CASE(when_any_is_over_where_one_can_not_begin)
{
    each_frame_fails_in_its_turn(
        [](int at) { ends_by_the_virtual_clock(at, [](event& e) { return when_any(waits(e), ends()); }); });
}

// The thread would wait for ever, or hear of a broken promise.
BOOST_AUTO_TEST_CASE(a_thread_hears_that_a_shard_had_no_memory_for_its_task)
{
    int failures = 0;
    for (int at = 1;; ++at) {
        const auto rt = std::move(*runtime::start({}));
        const auto body = [](shard&) { return ends(); };
        has_failed = false;
        fails_at = at;
        int got = 0;
        try {
            got = rt->run(0, body);
        } catch (const std::bad_alloc&) {
            got = -1;
        }
        fails_at = 0;
        BOOST_TEST(got == (has_failed ? -1 : 2), "frame " << at);
        if (!has_failed)
            break;
        ++failures;
    }
    BOOST_TEST(failures >= 3);
}

BOOST_AUTO_TEST_CASE(a_program_hears_that_there_was_no_memory_for_its_task)
{
    each_frame_fails_in_its_turn([](int at) {
        const auto r = reactor::create({}).value();
        int got = 0;
        fails_at = at;
        try {
            got = run_until_complete(*r, ends());
        } catch (const std::bad_alloc&) {
            got = -1;
        }
        fails_at = 0;
        BOOST_TEST(got == (has_failed ? -1 : 2), "frame " << at);
    });
}

BOOST_AUTO_TEST_SUITE_END()
