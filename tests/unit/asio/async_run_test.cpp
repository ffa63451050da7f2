// SPDX-License-Identifier: Apache-2.0
// Asio's completion tokens await tasks.
#include "by_hand.hpp"

#include <verbena/asio/async_run.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/task/sleep.hpp>

#include <asio/bind_cancellation_slot.hpp>
#include <asio/bind_executor.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/experimental/deferred.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/use_future.hpp>

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

BOOST_AUTO_TEST_SUITE(async_run_test)

using namespace verbena;
using namespace verbena::test;
using namespace std::chrono_literals;

namespace {

struct odd_category final : std::error_category {
    const char* name() const noexcept override { return "odd"; }
    std::string message(int n) const override { return "odd error " + std::to_string(n); }
};
const odd_category odd;

struct no_default {
    explicit no_default(int n) : value(n) {}
    int value;
};

/// What a scope's handler hears.
struct heard final : exception_handler {
    void on_exception(const std::exception_ptr& e) noexcept override { what = what_of(e); }
    std::string what;
};

struct with_scope : by_hand {
    heard exceptions;
    scope tasks{*r, nullptr, &exceptions};
    /// True within a handler of the io_context, false in a turn of the reactor.
    bool in_io() { return reactor::current() == nullptr && io->get_executor().running_in_this_thread(); }
    auto on_io(auto handler) { return asio::bind_executor(io->get_executor(), std::move(handler)); }
};

task<result<int>> seven()
{
    co_await sleep_for(std::chrono::seconds(0));
    co_return 7;
}
task<result<int>> until_stopped()
{
    const bool over = co_await sleep_for(std::chrono::hours(1));
    if (!over)
        co_return error(std::errc::operation_canceled);
    co_return 1;
}

template<class F>
using signature_of =
    typename detail::async_run_signature<typename detail::task_value<std::invoke_result_t<F&>>::type>::type;
static_assert(std::is_same_v<signature_of<task<result<int>>()>, void(std::error_code, int)>);
static_assert(std::is_same_v<signature_of<task<result<void>>()>, void(std::error_code)>);
static_assert(std::is_same_v<signature_of<task<int>()>, void(std::exception_ptr, int)>);
static_assert(std::is_same_v<signature_of<task<void>()>, void(std::exception_ptr)>);
static_assert(std::is_same_v<signature_of<result<int>()>, void(std::error_code, int)>);
static_assert(std::is_same_v<signature_of<int()>, void(std::exception_ptr, int)>);
static_assert(
    std::is_same_v<signature_of<task<no_default>()>, void(std::exception_ptr, std::optional<no_default>)>);

} // namespace

BOOST_FIXTURE_TEST_CASE(a_handler_runs_on_its_executor, with_scope)
{
    int calls = 0;
    async_run(tasks, seven, on_io([&](std::error_code e, int n) {
                  BOOST_TEST(!e);
                  BOOST_TEST(n == 7);
                  BOOST_TEST(in_io());
                  ++calls;
              }));
    BOOST_TEST(calls == 0);
    settle();
    BOOST_TEST(calls == 1);
    BOOST_TEST(tasks.live() == 0U);
}

BOOST_FIXTURE_TEST_CASE(without_one_it_runs_on_the_shard, with_scope)
{
    int calls = 0;
    async_run(tasks, seven, [&](std::error_code e, int n) {
        BOOST_TEST(!e);
        BOOST_TEST(n == 7);
        BOOST_TEST(reactor::current() == r.get());
        ++calls;
    });
    settle();
    BOOST_TEST(calls == 1);
}

BOOST_FIXTURE_TEST_CASE(whatever_f_yields_comes, with_scope)
{
    int calls = 0;
    const auto good = [&](const std::exception_ptr& e) {
        BOOST_TEST(!e);
        ++calls;
    };
    async_run(tasks, []() -> task<void> { co_return; }, good);
    async_run(tasks, [] {}, good);
    async_run(
        tasks, []() -> task<result<void>> { co_return result<void>(); },
        [&](std::error_code e) {
            BOOST_TEST(!e);
            ++calls;
        });
    async_run(
        tasks, []() -> result<std::string> { return std::string("x"); },
        [&](std::error_code e, const std::string& s) {
            BOOST_TEST(!e);
            BOOST_TEST(s == "x");
            ++calls;
        });
    async_run(
        tasks, []() -> task<std::unique_ptr<int>> { co_return std::make_unique<int>(5); },
        [&](const std::exception_ptr& e, std::unique_ptr<int> p) {
            BOOST_TEST(!e);
            BOOST_TEST(*p == 5);
            ++calls;
        });
    async_run(
        tasks, []() -> task<no_default> { co_return no_default(6); },
        [&](const std::exception_ptr& e, std::optional<no_default> p) {
            BOOST_TEST(!e);
            BOOST_TEST(p->value == 6);
            ++calls;
        });
    settle();
    BOOST_TEST(calls == 6);
}

BOOST_FIXTURE_TEST_CASE(an_error_keeps_its_code_and_category, with_scope)
{
    std::error_code code;
    async_run(
        tasks, []() -> task<result<int>> { co_return error(std::error_code(3, odd), "context"); },
        on_io([&](std::error_code e, int n) {
            code = e;
            BOOST_TEST(n == 0);
        }));
    settle();
    BOOST_TEST((code == std::error_code(3, odd)));
    BOOST_TEST(code.message() == "odd error 3");
}

BOOST_FIXTURE_TEST_CASE(an_exception_is_delivered, with_scope)
{
    std::string thrown;
    async_run(
        tasks,
        []() -> task<int> {
            co_await sleep_for(0s);
            throw std::runtime_error("a task's");
        },
        on_io([&](std::exception_ptr e, int) { thrown = what_of(e); }));
    settle();
    BOOST_TEST(thrown == "a task's");
    BOOST_TEST(exceptions.what.empty());
    // A function that throws before there is a task.
    async_run(
        tasks, []() -> task<int> { throw std::runtime_error("a function's"); },
        on_io([&](std::exception_ptr e, int) { thrown = what_of(e); }));
    settle();
    BOOST_TEST(thrown == "a function's");
    // No error code tells it: the scope hears of it.
    std::error_code code;
    async_run(
        tasks,
        []() -> task<result<int>> {
            co_await sleep_for(0s);
            throw std::system_error(std::make_error_code(std::errc::no_link), "here");
        },
        on_io([&](std::error_code e, int) { code = e; }));
    settle();
    BOOST_TEST((code == std::errc::no_link));
    BOOST_TEST(exceptions.what.substr(0, 4) == "here");
    BOOST_TEST(tasks.live() == 0U);
}

BOOST_FIXTURE_TEST_CASE(a_handlers_exception_goes_where_the_handler_ran, with_scope)
{
    async_run(tasks, seven, [](std::error_code, int) { throw std::runtime_error("on the shard"); });
    settle();
    BOOST_TEST(exceptions.what == "on the shard");
    exceptions.what.clear();
    async_run(tasks, seven, on_io([](std::error_code, int) { throw std::runtime_error("in io_context"); }));
    BOOST_CHECK_THROW(settle(), std::runtime_error);
    BOOST_TEST(exceptions.what.empty());
    settle();
}

BOOST_FIXTURE_TEST_CASE(f_and_what_it_captures_are_kept_until_the_end, with_scope)
{
    auto kept = std::make_shared<int>(3);
    const std::weak_ptr<int> watch = kept;
    int got = 0;
    // A coroutine that reads its lambda's capture after it has waited.
    async_run(
        tasks,
        [kept = std::move(kept)]() -> task<int> {
            co_await sleep_for(1s);
            co_return *kept;
        },
        on_io([&](const std::exception_ptr&, int n) {
            got = n;
            BOOST_TEST(watch.expired());
        }));
    settle();
    BOOST_TEST(!watch.expired());
    clock.advance(1s);
    settle();
    BOOST_TEST(got == 3);
}

BOOST_FIXTURE_TEST_CASE(the_slot_stops_the_task, with_scope)
{
    asio::cancellation_signal signal;
    std::error_code code;
    async_run(tasks, until_stopped,
              asio::bind_cancellation_slot(signal.slot(), on_io([&](std::error_code e, int) { code = e; })));
    settle();
    BOOST_TEST(tasks.live() == 1U);
    // What promises that nothing was done can't be had.
    signal.emit(asio::cancellation_type::total | asio::cancellation_type::partial);
    settle();
    BOOST_TEST(tasks.live() == 1U);
    signal.emit(asio::cancellation_type::terminal);
    signal.emit(asio::cancellation_type::terminal);
    settle();
    BOOST_TEST(tasks.live() == 0U);
    BOOST_TEST((code == std::errc::operation_canceled));
    BOOST_TEST(!signal.slot().has_handler());
    signal.emit(asio::cancellation_type::terminal);
    BOOST_TEST(!tasks.stop_requested());
}

BOOST_FIXTURE_TEST_CASE(a_stop_before_the_begin_calls_nothing, with_scope)
{
    asio::cancellation_signal signal;
    bool called = false;
    std::string thrown;
    async_run(
        tasks, [&] { called = true; },
        asio::bind_cancellation_slot(signal.slot(),
                                     on_io([&](std::exception_ptr e) { thrown = what_of(e); })));
    signal.emit(asio::cancellation_type::all);
    settle();
    BOOST_TEST(!called);
    BOOST_TEST(!thrown.empty());
}

BOOST_FIXTURE_TEST_CASE(a_stop_that_comes_too_late_is_nobodys, with_scope)
{
    auto signal = std::make_unique<asio::cancellation_signal>();
    int calls = 0;
    async_run(tasks, seven, asio::bind_cancellation_slot(signal->slot(), on_io([&](std::error_code e, int) {
                                                             BOOST_TEST(!e);
                                                             ++calls;
                                                         })));
    r->turn();
    r->turn();
    BOOST_TEST(tasks.live() == 0U); // its handler waits
    signal->emit(asio::cancellation_type::terminal);
    settle();
    BOOST_TEST(calls == 1);
    signal.reset();
}

// Whoever emits it may be another thread, now.
BOOST_FIXTURE_TEST_CASE(the_slot_of_a_handler_on_the_shard_is_left_alone, with_scope)
{
    asio::cancellation_signal signal;
    int calls = 0;
    std::error_code last;
    const auto handler = [&](std::error_code e, int) {
        last = e;
        ++calls;
    };
    async_run(tasks, seven, asio::bind_cancellation_slot(signal.slot(), handler));
    settle();
    BOOST_TEST(calls == 1);
    BOOST_TEST(!last);
    BOOST_TEST(signal.slot().has_handler());
    signal.emit(asio::cancellation_type::terminal); // of no use to anybody
    settle();
    BOOST_TEST(calls == 1);
    BOOST_TEST(!tasks.stop_requested());
    async_run(tasks, until_stopped, asio::bind_cancellation_slot(signal.slot(), handler));
    settle();
    signal.emit(asio::cancellation_type::terminal);
    settle();
    BOOST_TEST(calls == 2);
    BOOST_TEST((last == std::errc::operation_canceled));
}

BOOST_FIXTURE_TEST_CASE(what_f_captures_is_aligned, with_scope)
{
    struct alignas(64) wide {
        char bytes[64] = {};
    };
    int aligned = 0;
    for (int i = 0; i < 16; ++i) {
        const wide w;
        async_run(
            tasks, [w, &aligned] { aligned += reinterpret_cast<std::uintptr_t>(&w) % 64 == 0; },
            on_io([](const std::exception_ptr&) {}));
    }
    settle();
    BOOST_TEST(aligned == 16);
}

BOOST_FIXTURE_TEST_CASE(a_scope_that_was_stopped_takes_no_call, with_scope)
{
    tasks.request_stop();
    std::error_code code;
    std::string thrown;
    bool called = false;
    async_run(
        tasks,
        [&]() -> task<result<int>> {
            called = true;
            co_return 1;
        },
        on_io([&](std::error_code e, int) { code = e; }));
    async_run(
        tasks, [&] { called = true; },
        [&](const std::exception_ptr& e) {
            try {
                std::rethrow_exception(e);
            } catch (const shard_stopped&) {
                thrown = "shard_stopped";
            }
        });
    settle();
    BOOST_TEST(!called);
    BOOST_TEST((code == std::errc::operation_canceled));
    BOOST_TEST(thrown == "shard_stopped");
}

BOOST_FIXTURE_TEST_CASE(the_scopes_stop_reaches_the_task, with_scope)
{
    asio::cancellation_signal signal;
    int ended = 0;
    const auto handler = [&](std::error_code e, int) {
        BOOST_TEST((e == std::errc::operation_canceled));
        ++ended;
    };
    async_run(tasks, until_stopped, on_io(handler));
    async_run(tasks, until_stopped, asio::bind_cancellation_slot(signal.slot(), on_io(handler)));
    settle();
    tasks.request_stop();
    settle();
    BOOST_TEST(ended == 2);
}

BOOST_FIXTURE_TEST_CASE(a_coroutine_of_asios_awaits_tasks, with_scope)
{
    bool done = false;
    const auto body = [&]() -> asio::awaitable<void> {
        const int n = co_await async_run(tasks, seven, asio::use_awaitable);
        BOOST_TEST(n == 7);
        BOOST_TEST(in_io());
        const std::optional<no_default> o = co_await async_run(
            tasks, []() -> task<no_default> { co_return no_default(8); }, asio::use_awaitable);
        BOOST_TEST(o->value == 8);
        co_await async_run(tasks, []() -> task<void> { co_return; }, asio::use_awaitable);
        auto later = async_run(tasks, seven, asio::experimental::deferred);
        const int again = co_await std::move(later)(asio::use_awaitable);
        BOOST_TEST(again == 7);
        std::error_code code;
        try {
            (void)co_await async_run(
                tasks, []() -> task<result<int>> { co_return error(std::errc::no_link); },
                asio::use_awaitable);
        } catch (const std::system_error& e) {
            code = e.code();
        }
        BOOST_TEST((code == std::errc::no_link));
        done = true;
    };
    asio::co_spawn(*io, body, [](const std::exception_ptr& e) { BOOST_TEST(!e); });
    settle();
    BOOST_TEST(done);
}

BOOST_FIXTURE_TEST_CASE(and_its_cancellation_stops_them, with_scope)
{
    asio::cancellation_signal signal;
    std::error_code code;
    const auto body = [&]() -> asio::awaitable<void> {
        try {
            (void)co_await async_run(tasks, until_stopped, asio::use_awaitable);
        } catch (const std::system_error& e) {
            code = e.code();
        }
    };
    asio::co_spawn(*io, body, asio::bind_cancellation_slot(signal.slot(), asio::detached));
    settle();
    BOOST_TEST(tasks.live() == 1U);
    signal.emit(asio::cancellation_type::terminal);
    settle();
    BOOST_TEST(tasks.live() == 0U);
    BOOST_TEST((code == std::errc::operation_canceled));
}

// What the handlers own goes with them (a leak checker sees to that).
BOOST_FIXTURE_TEST_CASE(a_handler_that_waits_goes_with_its_io_context, with_scope)
{
    auto owned = std::make_shared<asio::cancellation_signal>();
    const std::weak_ptr<asio::cancellation_signal> watch = owned;
    const auto slot = owned->slot();
    async_run(tasks, seven,
              asio::bind_cancellation_slot(
                  slot, on_io([owned = std::move(owned)](std::error_code, int) { BOOST_TEST(false); })));
    while (r->turn()) {
    }
    BOOST_TEST(!watch.expired());
    io.reset();
    BOOST_TEST(watch.expired());
}

// A runtime's shards, from a thread that is none.

BOOST_AUTO_TEST_CASE(a_future_gets_what_a_shard_yields)
{
    const auto rt = runtime::start().value();
    std::future<int> f = async_run(rt->at(0), seven, asio::use_future);
    BOOST_TEST(f.get() == 7);
    auto on_shard = [&] { return reactor::current() == &rt->at(0).reactor(); };
    BOOST_TEST(async_run(rt->at(0), on_shard, asio::use_future).get());
    auto fails = async_run(
        rt->at(0), []() -> task<result<int>> { co_return error(std::error_code(3, odd)); }, asio::use_future);
    // The shard has let go of the exception before it is looked at here: TSan does not see how libstdc++ counts its owners.
    const auto wait = [&](std::future<int>& outcome) {
        outcome.wait();
        rt->call(0, [](shard&) {});
    };
    wait(fails);
    BOOST_CHECK_EXCEPTION(fails.get(), std::system_error,
                          [](const auto& e) { return e.code() == std::error_code(3, odd); });
    auto throws = async_run(rt->at(0), []() -> task<int> { throw std::domain_error("x"); }, asio::use_future);
    wait(throws);
    BOOST_CHECK_THROW(throws.get(), std::domain_error);
}

BOOST_AUTO_TEST_CASE(io_context_runs_on_until_the_handler_was_called)
{
    const auto rt = runtime::start().value();
    for (int i = 0; i < 50; ++i) {
        asio::io_context io;
        bool called = false;
        async_run(rt->at(0), seven,
                  asio::bind_executor(io, [&](std::error_code, int n) { called = n == 7; }));
        io.run();
        BOOST_TEST_REQUIRE(called);
    }
}

BOOST_AUTO_TEST_CASE(a_runtime_that_stops_ends_the_calls_on_it)
{
    asio::io_context io;
    auto rt = runtime::start().value();
    std::error_code code;
    async_run(rt->at(0), until_stopped, asio::bind_executor(io, [&](std::error_code e, int) { code = e; }));
    rt->stop();
    io.run();
    BOOST_TEST((code == std::errc::operation_canceled));
}

BOOST_AUTO_TEST_SUITE_END()
