// SPDX-License-Identifier: Apache-2.0
// A call of async_run() for whose task there is no memory ends, and its handler hears so. A program of its own: here
// each frame of a coroutine fails in its turn.
#include "by_hand.hpp"

#include <verbena/asio/async_run.hpp>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>

#include <cstdlib>
#include <exception>
#include <new>
#include <thread>

namespace {

thread_local int fails_at = 0; // the frame that fails, from 1; 0: none
thread_local bool has_failed = false;

} // namespace

// Frames come in units of 64 bytes (frame_pool.cpp).
void* operator new(std::size_t size)
{
    const bool fails = size % 64 == 0 && fails_at > 0 && fails_at-- == 1;
    has_failed = has_failed || fails;
    void* const made = fails ? nullptr : std::malloc(size);
    if (made == nullptr)
        throw std::bad_alloc();
    return made;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

BOOST_AUTO_TEST_SUITE(no_memory_calls_test)

using namespace verbena;
using namespace verbena::test;

namespace {

struct silent final : exception_handler {
    void on_exception(const std::exception_ptr&) noexcept override {}
};

task<int> ends() { co_return 2; }

// Whether frame number `at` was made at all, and so failed.
bool fails(int at, bool can_be_stopped)
{
    bool failed = false;
    const auto run = [&] {
        by_hand world;
        silent lost;
        scope tasks(*world.r, nullptr, &lost);
        asio::cancellation_signal stop;
        int told = 0, got = 0;
        std::exception_ptr why;
        const auto hears = [&](std::exception_ptr e, int value) {
            ++told;
            why = e;
            got = value;
        };
        has_failed = false;
        fails_at = at;
        try {
            if (can_be_stopped)
                async_run(tasks, [] { return ends(); }, asio::bind_cancellation_slot(stop.slot(), hears));
            else
                async_run(tasks, [] { return ends(); }, hears);
        } catch (const std::bad_alloc&) { // no call was begun
            ++told;
            why = std::current_exception();
        }
        world.settle();
        fails_at = 0;
        failed = has_failed;
        stop.emit(asio::cancellation_type::terminal);
        world.settle();
        BOOST_TEST(told == 1, "frame " << at);
        BOOST_TEST((failed ? why != nullptr : got == 2), "frame " << at);
        BOOST_TEST(tasks.live() == 0u);
    };
    std::jthread(run).join(); // a new one, so that no frame is left from a run before
    return failed;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_call_for_whose_task_there_is_no_memory_ends)
{
    for (const bool can_be_stopped : {false, true}) {
        int at = 1;
        while (fails(at, can_be_stopped))
            ++at;
        BOOST_TEST(at > 4);
    }
}

BOOST_AUTO_TEST_SUITE_END()
