// SPDX-License-Identifier: Apache-2.0
// Tasks that await operations of Asio's.
#include "by_hand.hpp"

#include <verbena/asio/use_task.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/sleep.hpp>

#include <asio/bind_executor.hpp>
#include <asio/co_spawn.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/local/connect_pair.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/read.hpp>
#include <asio/steady_timer.hpp>
#include <asio/strand.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <vector>

BOOST_AUTO_TEST_SUITE(use_task_test)

using namespace verbena;
using namespace verbena::test;
using namespace std::chrono_literals;

namespace {

using socket = asio::local::stream_protocol::socket;

struct socket_pair {
    explicit socket_pair(asio::io_context& io) : one(io), other(io) { asio::local::connect_pair(one, other); }
    socket one, other;
};

template<class... Args>
using handler_of = detail::use_task_handler<Args...>;

/// An operation that calls its handler with `given`, from within the initiation.
template<class Signature, class Token, class... Given>
auto tell(Token&& token, Given... given)
{
    return asio::async_initiate<Token, Signature>(
        [](auto handler, Given... kept) { std::move(handler)(std::move(kept)...); }, token,
        std::move(given)...);
}

/// An operation of a user's, whose end is the test's to make.
template<class... Args>
struct by_test {
    std::optional<handler_of<Args...>> handler;
    std::vector<asio::cancellation_type_t> cancelled;
    std::function<void()> on_cancel = [] {};
    int begun = 0;

    auto begin()
    {
        return asio::async_initiate<const use_task_t&, void(Args...)>(
            [this](auto h) {
                ++begun;
                h.get_cancellation_slot().assign([this](asio::cancellation_type_t t) {
                    cancelled.push_back(t);
                    on_cancel();
                });
                handler.emplace(std::move(h));
            },
            use_task);
    }
    template<class... Given>
    void end(Given... given)
    {
        auto h = std::move(*handler);
        handler.reset();
        h(std::move(given)...);
    }
};

error of(const result<void>& r) { return r.error(); }
template<class T>
error of(const result<T>& r)
{
    return r.error();
}

} // namespace

BOOST_FIXTURE_TEST_CASE(sockets_and_timers_are_awaited, by_hand)
{
    socket_pair p(*io);
    run([&]() -> task<void> {
        asio::steady_timer timer(*io, -1s);
        const result<void> rang = co_await timer.async_wait(use_task);
        BOOST_TEST(bool(rang));
        const result<std::size_t> sent =
            co_await asio::async_write(p.one, asio::buffer("hello", 5), use_task);
        BOOST_TEST(sent.value() == 5U);
        std::array<char, 8> some{};
        const result<std::size_t> got = co_await p.other.async_read_some(asio::buffer(some), use_task);
        BOOST_TEST(std::string(some.data(), got.value()) == "hello");
        const result<void> posted = co_await asio::post(*io, use_task);
        BOOST_TEST(bool(posted));
        BOOST_TEST(reactor::current() == r.get());
    });
}

BOOST_FIXTURE_TEST_CASE(an_error_keeps_its_code_and_message, by_hand)
{
    socket_pair p(*io);
    p.one.close();
    run([&]() -> task<void> {
        std::array<char, 8> some{};
        const auto got = co_await p.other.async_read_some(asio::buffer(some), use_task);
        BOOST_TEST_REQUIRE(!got);
        BOOST_TEST((got.error().code() == asio::error::eof));
        BOOST_TEST(got.error().message() == "an Asio operation: End of file");
    });
}

BOOST_FIXTURE_TEST_CASE(the_signature_says_what_is_yielded, by_hand)
{
    const std::error_code good;
    const std::error_code bad = std::make_error_code(std::errc::no_space_on_device);
    const std::exception_ptr none;
    const std::exception_ptr thrown = std::make_exception_ptr(std::runtime_error("x"));
    run([&]() -> task<void> {
        const result<void> a = co_await tell<void()>(use_task);
        BOOST_TEST(bool(a));
        const result<void> b = co_await tell<void(std::error_code)>(use_task, good);
        BOOST_TEST(bool(b));
        const result<int> c = co_await tell<void(std::error_code, int)>(use_task, good, 3);
        BOOST_TEST(c.value() == 3);
        const result<std::tuple<int, std::string>> d =
            co_await tell<void(std::error_code, int, std::string)>(use_task, good, 3, "three");
        BOOST_TEST((d.value() == std::tuple(3, std::string("three"))));
        const result<int> e = co_await tell<void(int)>(use_task, 4);
        BOOST_TEST(e.value() == 4);
        const result<std::tuple<int, char>> f = co_await tell<void(int, char)>(use_task, 4, 'x');
        BOOST_TEST((f.value() == std::tuple(4, 'x')));
        const result<void> g = co_await tell<void(std::exception_ptr)>(use_task, none);
        BOOST_TEST(bool(g));
        const result<int> h = co_await tell<void(std::exception_ptr, int)>(use_task, none, 5);
        BOOST_TEST(h.value() == 5);
        auto owned = std::make_unique<int>(6);
        result<std::unique_ptr<int>> i =
            co_await tell<void(std::error_code, std::unique_ptr<int>)>(use_task, good, std::move(owned));
        BOOST_TEST(*i.value() == 6);
        const result<int> j = co_await tell<void(const std::error_code&, const int&)>(use_task, good, 7);
        BOOST_TEST(j.value() == 7);
        // And those that fail.
        const result<void> k = co_await tell<void(std::error_code)>(use_task, bad);
        BOOST_TEST((k.error().code() == bad));
        const result<int> l = co_await tell<void(std::error_code, int)>(use_task, bad, 0);
        BOOST_TEST((l.error().code() == bad));
        bool caught = false;
        try {
            (void)co_await tell<void(std::exception_ptr, int)>(use_task, thrown, 0);
        } catch (const std::runtime_error& x) {
            caught = std::string(x.what()) == "x";
        }
        BOOST_TEST(caught);
    });
}

BOOST_FIXTURE_TEST_CASE(a_coroutine_of_asios_is_awaited_with_its_exceptions, by_hand)
{
    const auto seven = []() -> asio::awaitable<int> { co_return 7; };
    const auto throws = []() -> asio::awaitable<int> {
        throw std::logic_error("y");
        co_return 7;
    };
    run([&]() -> task<void> {
        const result<int> n = co_await asio::co_spawn(*io, seven, use_task);
        BOOST_TEST(n.value() == 7);
        bool caught = false;
        try {
            (void)co_await asio::co_spawn(*io, throws, use_task);
        } catch (const std::logic_error&) {
            caught = true;
        }
        BOOST_TEST(caught);
    });
}

BOOST_FIXTURE_TEST_CASE(use_task_is_a_default_token, by_hand)
{
    using timer = use_task_t::as_default_on_t<asio::steady_timer>;
    run([&]() -> task<void> {
        timer t(*io, -1s);
        const result<void> rang = co_await t.async_wait();
        BOOST_TEST(bool(rang));
        auto adapted = use_task_t::as_default_on(asio::steady_timer(*io, -1s));
        const result<void> again = co_await adapted.async_wait();
        BOOST_TEST(bool(again));
    });
}

BOOST_FIXTURE_TEST_CASE(nothing_begins_before_the_task_is_awaited, by_hand)
{
    by_test<std::error_code> op;
    {
        const auto unawaited = op.begin();
        settle();
    }
    BOOST_TEST(op.begun == 0);
    auto t = op.begin();
    scope tasks(*r);
    tasks.spawn([&]() -> task<void> { (void)co_await t; });
    BOOST_TEST(op.begun == 1);
    op.end(std::error_code());
    settle();
}

BOOST_FIXTURE_TEST_CASE(a_stop_cancels_the_operation, by_hand)
{
    scope tasks(*r);
    std::vector<error> ends;
    asio::steady_timer timer(*io, 1h);
    socket_pair p(*io);
    std::array<char, 8> some{};
    tasks.spawn([&]() -> task<void> { ends.push_back(of(co_await timer.async_wait(use_task))); });
    tasks.spawn([&]() -> task<void> {
        ends.push_back(of(co_await asio::async_read(p.one, asio::buffer(some), use_task)));
    });
    const auto forever = [&]() -> asio::awaitable<void> {
        asio::steady_timer t(*io, 1h);
        co_await t.async_wait(asio::use_awaitable);
    };
    tasks.spawn([&]() -> task<void> { ends.push_back(of(co_await asio::co_spawn(*io, forever, use_task))); });
    settle();
    BOOST_TEST(tasks.live() == 3U);
    tasks.request_stop();
    settle();
    BOOST_TEST(tasks.live() == 0U);
    BOOST_TEST(ends.size() == 3U);
    for (const error& e : ends)
        BOOST_TEST((e == std::errc::operation_canceled));
}

BOOST_FIXTURE_TEST_CASE(one_that_was_stopped_before_begins_nothing, by_hand)
{
    by_test<std::error_code> op;
    scope tasks(*r);
    tasks.request_stop();
    error e;
    tasks.spawn([&]() -> task<void> { e = of(co_await op.begin()); });
    BOOST_TEST((e == std::errc::operation_canceled));
    BOOST_TEST(op.begun == 0);
}

BOOST_FIXTURE_TEST_CASE(the_deadline_cancels_it_too, by_hand)
{
    task_context request;
    request.deadline = clock.now() + 5s;
    scope tasks(*r, &request);
    error e;
    error late;
    by_test<std::error_code> op;
    asio::steady_timer timer(*io, 1h);
    tasks.spawn([&]() -> task<void> {
        e = of(co_await timer.async_wait(use_task));
        late = of(co_await op.begin());
    });
    clock.advance(4s);
    settle();
    BOOST_TEST(tasks.live() == 1U);
    clock.advance(1s);
    settle();
    BOOST_TEST(tasks.live() == 0U);
    BOOST_TEST((e == std::errc::timed_out));
    BOOST_TEST((late == std::errc::timed_out));
    BOOST_TEST(op.begun == 0);
}

BOOST_FIXTURE_TEST_CASE(with_timeout_takes_an_operation, by_hand)
{
    scope tasks(*r);
    error e;
    asio::steady_timer timer(*io, 1h);
    tasks.spawn([&]() -> task<void> { e = of(co_await with_timeout(2s, timer.async_wait(use_task))); });
    settle();
    clock.advance(2s);
    settle();
    BOOST_TEST(tasks.live() == 0U);
    BOOST_TEST((e == std::errc::timed_out));
}

BOOST_FIXTURE_TEST_CASE(one_that_ends_without_a_deadline_left_leaves_no_timer, by_hand)
{
    task_context request;
    request.deadline = clock.now() + 5s;
    scope tasks(*r, &request);
    tasks.spawn([&]() -> task<void> {
        const auto done = co_await asio::post(*io, use_task);
        BOOST_TEST(bool(done));
        co_await sleep_for(1s);
    });
    settle();
    BOOST_TEST((r->timers().next() == clock.now() + 1s));
    clock.advance(1s);
    settle();
}

// What Asio makes of a cancellation is awaited: the operation may have ended, or end otherwise.
BOOST_FIXTURE_TEST_CASE(what_succeeds_after_a_stop_keeps_its_value, by_hand)
{
    by_test<std::error_code, int> op;
    scope tasks(*r);
    std::optional<result<int>> got;
    tasks.spawn([&]() -> task<void> { got.emplace(co_await op.begin()); });
    tasks.request_stop();
    settle();
    BOOST_TEST(op.cancelled.size() == 1U);
    BOOST_TEST((op.cancelled.at(0) == asio::cancellation_type::terminal));
    BOOST_TEST(tasks.live() == 1U);
    op.end(std::error_code(), 3);
    settle();
    BOOST_TEST(tasks.live() == 0U);
    BOOST_TEST(got->value() == 3);
}

BOOST_FIXTURE_TEST_CASE(what_fails_after_a_stop_was_stopped, by_hand)
{
    by_test<std::error_code, int> op;
    scope tasks(*r);
    error e;
    tasks.spawn([&]() -> task<void> { e = of(co_await op.begin()); });
    tasks.request_stop();
    op.end(std::make_error_code(std::errc::broken_pipe), 0);
    settle();
    BOOST_TEST((e == std::errc::operation_canceled));
}

BOOST_FIXTURE_TEST_CASE(an_operation_that_has_ended_is_cancelled_no_more, by_hand)
{
    by_test<std::error_code, int> op;
    scope tasks(*r);
    std::optional<result<int>> got;
    tasks.spawn([&]() -> task<void> { got.emplace(co_await op.begin()); });
    op.end(std::error_code(), 3);
    tasks.request_stop(); // the task has not heard of the end
    settle();
    BOOST_TEST(op.cancelled.empty());
    BOOST_TEST(got->value() == 3);
}

// The other handler may end it between the stop and the cancellation, which travels.
BOOST_FIXTURE_TEST_CASE(a_cancellation_on_its_way_does_not_meet_the_next_operation, by_hand)
{
    scope tasks(*r);
    int turns = 0;
    std::optional<asio::steady_timer> timer;
    timer.emplace(*io, 1h);
    tasks.spawn([&]() -> task<void> {
        (void)co_await timer->async_wait(use_task);
        ++turns;
        timer.reset(); // with it goes what the cancellation would refer to
    });
    settle();
    timer->cancel();
    tasks.request_stop();
    settle();
    BOOST_TEST(turns == 1);
    BOOST_TEST(tasks.live() == 0U);
}

BOOST_FIXTURE_TEST_CASE(its_io_context_goes_under_it, by_hand)
{
    scope tasks(*r);
    error e;
    const auto forever = [&]() -> asio::awaitable<void> {
        asio::steady_timer t(*io, 1h); // goes with the context, as it must
        co_await t.async_wait(asio::use_awaitable);
    };
    tasks.spawn([&]() -> task<void> { e = of(co_await asio::co_spawn(*io, forever, use_task)); });
    settle();
    BOOST_TEST(tasks.live() == 1U);
    io.reset();
    tasks.request_stop(); // nothing is left to cancel
    settle();
    BOOST_TEST(tasks.live() == 0U);
    BOOST_TEST((e == std::errc::operation_canceled));
}

// A strand refers to its context, and what the task keeps of the operation outlives it.
BOOST_FIXTURE_TEST_CASE(the_context_of_a_strand_goes_under_it, by_hand)
{
    scope tasks(*r);
    error e;
    tasks.spawn([&]() -> task<void> {
        task<result<void>> posted = asio::post(asio::make_strand(*io), use_task); // has the only one
        e = of(co_await posted);
    });
    io.reset();
    settle();
    BOOST_TEST(tasks.live() == 0U);
    BOOST_TEST((e == std::errc::operation_canceled));
}

BOOST_FIXTURE_TEST_CASE(a_handler_that_is_dropped_ends_the_wait, by_hand)
{
    by_test<std::error_code> op;
    scope tasks(*r);
    error e;
    tasks.spawn([&]() -> task<void> { e = of(co_await op.begin()); });
    op.handler.reset();
    settle();
    BOOST_TEST(tasks.live() == 0U);
    BOOST_TEST((e == std::errc::operation_canceled));
    BOOST_TEST(e.message() == "an Asio operation was dropped with its context: Operation canceled");
}

BOOST_FIXTURE_TEST_CASE(what_the_initiation_throws_is_thrown_in_the_task, by_hand)
{
    run([&]() -> task<void> {
        bool caught = false;
        try {
            (void)co_await asio::async_initiate<const use_task_t&, void(int)>(
                [](auto) { throw std::length_error("z"); }, use_task);
        } catch (const std::length_error&) {
            caught = true;
        }
        BOOST_TEST(caught);
    });
}

BOOST_FIXTURE_TEST_CASE(a_value_that_throws_when_it_is_moved_reaches_the_task_as_its_exception, by_hand)
{
    struct stubborn {
        stubborn() = default;
        stubborn(const stubborn&) { throw std::domain_error("copied"); }
    };
    run([&]() -> task<void> {
        bool caught = false;
        try {
            (void)co_await asio::async_initiate<const use_task_t&, void(stubborn)>(
                [](auto handler) {
                    const stubborn s;
                    std::move(handler)(s);
                },
                use_task);
        } catch (const std::domain_error&) {
            caught = true;
        }
        BOOST_TEST(caught);
    });
}

// Another thread runs the io_context.

namespace {

struct other_thread {
    asio::io_context io;
    asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
    std::thread thread{[this] { io.run(); }};
    ~other_thread()
    {
        work.reset();
        if (thread.joinable())
            thread.join();
    }
};

} // namespace

BOOST_AUTO_TEST_CASE(the_task_goes_on_on_its_shard)
{
    const auto r = make_reactor();
    other_thread there;
    socket_pair p(there.io);
    const auto body = [&]() -> task<void> {
        for (int i = 0; i < 50; ++i) {
            asio::steady_timer timer(there.io, -1s);
            const auto rang = co_await timer.async_wait(use_task);
            BOOST_TEST(bool(rang));
            BOOST_TEST_REQUIRE((reactor::current() == r.get() && r->on_its_thread()));
            char c = 'x';
            const auto sent = co_await asio::async_write(p.one, asio::buffer(&c, 1), use_task);
            BOOST_TEST(bool(sent));
            const auto got = co_await asio::async_read(p.other, asio::buffer(&c, 1), use_task);
            BOOST_TEST(bool(got));
            BOOST_TEST_REQUIRE((reactor::current() == r.get() && r->on_its_thread()));
        }
    };
    run_until_complete(*r, body());
}

BOOST_AUTO_TEST_CASE(it_is_cancelled_where_its_handlers_run)
{
    const auto r = make_reactor();
    other_thread there;
    const auto strand = asio::make_strand(there.io);
    std::thread::id cancelled_on;
    bool in_strand = false;
    const auto body = [&]() -> task<void> {
        scope tasks(*r);
        error e;
        tasks.spawn([&]() -> task<void> {
            asio::basic_waitable_timer<std::chrono::steady_clock,
                                       asio::wait_traits<std::chrono::steady_clock>,
                                       asio::strand<asio::io_context::executor_type>>
                timer(strand, 1h);
            e = of(co_await timer.async_wait(use_task));
        });
        // One that tells where.
        struct initiation {
            using executor_type = asio::strand<asio::io_context::executor_type>;
            executor_type get_executor() const noexcept { return on; }
            void operator()(handler_of<std::error_code> h) const
            {
                auto kept = std::make_shared<handler_of<std::error_code>>(std::move(h));
                kept->get_cancellation_slot().assign([kept, &where = where, &inside = inside,
                                                      on = on](asio::cancellation_type_t) {
                    where = std::this_thread::get_id();
                    inside = on.running_in_this_thread();
                    asio::post(on, [kept] { (*kept)(std::make_error_code(std::errc::operation_canceled)); });
                });
            }
            executor_type on;
            std::thread::id& where;
            bool& inside;
        };
        const initiation i{strand, cancelled_on, in_strand};
        tasks.spawn([&]() -> task<void> {
            (void)co_await asio::async_initiate<const use_task_t&, void(std::error_code)>(i, use_task);
        });
        tasks.request_stop();
        co_await tasks.join();
        BOOST_TEST((e == std::errc::operation_canceled));
    };
    run_until_complete(*r, body());
    BOOST_TEST((cancelled_on == there.thread.get_id()));
    BOOST_TEST(in_strand);
}

namespace {

/// An executor of no context. The first copy of it that is made while it is watched has another thread end the operation, and
/// sees whether the executor goes meanwhile.
class contextless {
public:
    struct watch {
        std::atomic<bool> watched{false};
        std::atomic<bool> ends{false};
        std::atomic<const contextless*> copied{nullptr};
        std::atomic<bool> gone_under_copy{false};
        std::vector<std::function<void()>> posted;
    };
    explicit contextless(watch& w) noexcept : watch_(&w) {}
    contextless(const contextless& other) noexcept : watch_(other.watch_)
    {
        if (!watch_->watched.exchange(false))
            return;
        watch_->copied = &other;
        watch_->ends = true;
        watch_->ends.notify_one();
        for (int i = 0; i < 2000 && !watch_->gone_under_copy; ++i)
            std::this_thread::yield();
        watch_->copied = nullptr;
    }
    ~contextless()
    {
        if (watch_->copied == this)
            watch_->gone_under_copy = true;
    }
    template<class F>
    void execute(F f) const
    {
        auto kept = std::make_shared<F>(std::move(f));
        watch_->posted.emplace_back([kept] { std::move (*kept)(); });
    }
    contextless require(asio::execution::blocking_t::never_t) const noexcept { return *this; }
    [[maybe_unused]] friend bool operator==(const contextless& a, const contextless& b) noexcept
    {
        return a.watch_ == b.watch_;
    }

private:
    watch* watch_;
};

} // namespace

BOOST_AUTO_TEST_CASE(an_executor_of_no_context_is_there_while_it_is_cancelled_on)
{
    const auto r = make_reactor();
    contextless::watch watch;
    struct initiation {
        using executor_type = contextless;
        executor_type get_executor() const noexcept { return on; }
        void operator()(handler_of<std::error_code, int> h) const { handler.emplace(std::move(h)); }
        contextless on;
        std::optional<handler_of<std::error_code, int>>& handler;
    };
    std::optional<handler_of<std::error_code, int>> handler;
    const initiation i{contextless(watch), handler};
    std::thread other;
    const auto body = [&]() -> task<void> {
        scope tasks(*r);
        error e;
        tasks.spawn([&]() -> task<void> {
            e = of(co_await asio::async_initiate<const use_task_t&, void(std::error_code, int)>(i, use_task));
        });
        other = std::thread([&] {
            watch.ends.wait(false);
            auto h = std::move(*handler);
            h(std::make_error_code(std::errc::broken_pipe), 0);
        });
        watch.watched = true;
        tasks.request_stop();
        co_await tasks.join();
        BOOST_TEST((e == std::errc::operation_canceled));
    };
    run_until_complete(*r, body());
    other.join();
    BOOST_TEST(!watch.gone_under_copy);
    BOOST_TEST(watch.posted.size() == 1U);
    for (const auto& f : watch.posted)
        f();
}

BOOST_AUTO_TEST_CASE(another_thread_destroys_the_io_context_under_it)
{
    const auto r = make_reactor();
    for (int i = 0; i < 50; ++i) {
        auto io = std::make_unique<asio::io_context>();
        // Kept by the operation, so that it goes with the context.
        auto timer = std::make_shared<asio::steady_timer>(*io, 1h);
        std::thread destroyer;
        const auto body = [&]() -> task<void> {
            scope tasks(*r);
            error e;
            tasks.spawn([&]() -> task<void> {
                auto& t = *timer;
                e = of(co_await t.async_wait(use_task));
            });
            destroyer = std::thread([&] {
                timer.reset();
                io.reset();
            });
            if (i % 2 != 0) // a stop and the end at once
                tasks.request_stop();
            co_await tasks.join();
            BOOST_TEST((e == std::errc::operation_canceled));
        };
        run_until_complete(*r, body());
        destroyer.join();
    }
}

BOOST_AUTO_TEST_SUITE_END()
