// SPDX-License-Identifier: Apache-2.0
// A reactor in libuv's loop, as docs/howto/embed.md tells, and libuv's loop in a reactor.
#include <boost/test/unit_test.hpp>

#include <verbena/core/reactor/io_watch.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include <array>
#include <fcntl.h>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <uv.h>

BOOST_AUTO_TEST_SUITE(nested_libuv_test)

using namespace verbena;

namespace {

// What an application with libuv writes to have a reactor in its loop.
class reactor_in_libuv {
public:
    reactor_in_libuv(uv_loop_t& loop, reactor& r) : reactor_(r)
    {
        uv_poll_init(&loop, &readable_, r.native_handle().value());
        uv_prepare_init(&loop, &before_);
        uv_check_init(&loop, &after_);
        uv_idle_init(&loop, &awake_);
        readable_.data = before_.data = after_.data = this;
        uv_poll_start(&readable_, UV_READABLE, [](uv_poll_t* h, int, int) { of(h).woken_ = true; });
        uv_prepare_start(&before_, [](uv_prepare_t* h) { of(h).before_sleep(); });
        uv_check_start(&after_, [](uv_check_t* h) { of(h).after_sleep(); });
    }
    // The loop must run once more afterwards.
    void close()
    {
        const auto close = [](auto& handle) { uv_close(reinterpret_cast<uv_handle_t*>(&handle), nullptr); };
        close(readable_);
        close(before_);
        close(after_);
        close(awake_);
    }
    int slept = 0;

private:
    template<class Handle>
    static reactor_in_libuv& of(Handle* h)
    {
        return *static_cast<reactor_in_libuv*>(h->data);
    }
    void before_sleep()
    {
        if (reactor_.try_arm()) {
            uv_idle_stop(&awake_);
            ++slept;
        } else {
            woken_ = true;
            uv_idle_start(&awake_, [](uv_idle_t*) {}); // libuv does not sleep beside it
        }
    }
    void after_sleep()
    {
        if (woken_)
            reactor_.poll();
        woken_ = false;
    }
    reactor& reactor_;
    uv_poll_t readable_{};
    uv_prepare_t before_{};
    uv_check_t after_{};
    uv_idle_t awake_{};
    bool woken_ = false;
};

// And what one writes to have libuv in a reactor.
class libuv_in_reactor final : public io_watch, public timer {
public:
    libuv_in_reactor(reactor& r, uv_loop_t& loop) : io_watch(r, uv_backend_fd(&loop), 0), loop_(loop)
    {
        want_read(true);
        run();
    }
    ~libuv_in_reactor() { stop(); }
    // After each use of the loop from outside: it may wait for less long now.
    void run() noexcept
    {
        uv_run(&loop_, UV_RUN_NOWAIT);
        cancel();
        if (const int left = uv_backend_timeout(&loop_); left >= 0)
            shard().timers().arm(*this, shard().clock().now() + std::chrono::milliseconds(left));
    }

private:
    bool on_readable() noexcept override
    {
        run();
        return false; // it is told when there is more
    }
    void on_writable() noexcept override {}
    void on_timer() noexcept override { run(); }
    uv_loop_t& loop_;
};

struct message final : remote_message {
    explicit message(event& e) : arrived(e) {}
    void deliver() noexcept override { arrived.set(); }
    event& arrived;
};

class pipe_reader final : public io_watch {
public:
    pipe_reader(reactor& r, int fd, event& e) : io_watch(r, fd), arrived_(e) { want_read(true); }
    ~pipe_reader() { stop(); }

private:
    bool on_readable() noexcept override
    {
        std::array<char, 8> some{};
        const bool any = ::read(fd(), some.data(), some.size()) > 0;
        if (any)
            arrived_.set();
        return any;
    }
    void on_writable() noexcept override {}
    event& arrived_;
};

void close_loop(uv_loop_t& loop)
{
    uv_run(&loop, UV_RUN_DEFAULT);
    BOOST_TEST(uv_loop_close(&loop) == 0);
}

} // namespace

// One after the other, so that each has to wake libuv by itself.
BOOST_AUTO_TEST_CASE(messages_timers_and_descriptors_wake_libuv)
{
    uv_loop_t loop;
    BOOST_REQUIRE(uv_loop_init(&loop) == 0);
    auto r = reactor::create().value();
    reactor_in_libuv guest(loop, *r);
    int ends[2];
    BOOST_REQUIRE(::pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
    event arrived;
    event posted;
    auto in = std::make_unique<pipe_reader>(*r, ends[0], arrived);
    message m(posted);
    scope tasks(*r);
    std::thread peer;
    bool done = false;
    const auto body = [&]() -> task<void> {
        for (int i = 0; i < 20; ++i) {
            co_await sleep_for(std::chrono::milliseconds(1));
            peer = std::thread([&] { [[maybe_unused]] const auto n = ::write(ends[1], "1", 1); });
            const bool came = co_await arrived.wait();
            BOOST_TEST(came);
            peer.join();
            arrived.reset();
            peer = std::thread([&] { r->post_remote(m); });
            const bool told = co_await posted.wait();
            BOOST_TEST(told);
            peer.join();
            posted.reset();
        }
        done = true;
        in.reset();
        guest.close();
    };
    tasks.spawn([&] { return body(); });
    uv_run(&loop, UV_RUN_DEFAULT); // until all its handles are closed
    BOOST_TEST(done);
    BOOST_TEST(guest.slept > 0);
    close_loop(loop);
    const auto joined = [](scope& all) -> task<void> { co_await all.join(); };
    run_until_complete(*r, joined(tasks));
    ::close(ends[0]);
    ::close(ends[1]);
}

BOOST_AUTO_TEST_CASE(libuv_runs_in_a_reactor)
{
    uv_loop_t loop;
    BOOST_REQUIRE(uv_loop_init(&loop) == 0);
    struct uses {
        event timed, told;
        uv_timer_t timer{};
        uv_async_t async{};
    } u;
    u.timer.data = u.async.data = &u;
    uv_timer_init(&loop, &u.timer);
    uv_async_init(&loop, &u.async, [](uv_async_t* h) { static_cast<uses*>(h->data)->told.set(); });
    auto r = reactor::create().value();
    {
        libuv_in_reactor guest(*r, loop);
        const auto body = [&]() -> task<void> {
            for (int i = 0; i < 10; ++i) {
                uv_timer_start(
                    &u.timer, [](uv_timer_t* h) { static_cast<uses*>(h->data)->timed.set(); }, 1, 0);
                guest.run();
                const bool timed = co_await u.timed.wait();
                BOOST_TEST(timed);
                u.timed.reset();
                std::thread peer([&] { uv_async_send(&u.async); });
                const bool told = co_await u.told.wait();
                BOOST_TEST(told);
                u.told.reset();
                peer.join();
            }
        };
        run_until_complete(*r, body());
    }
    uv_close(reinterpret_cast<uv_handle_t*>(&u.timer), nullptr);
    uv_close(reinterpret_cast<uv_handle_t*>(&u.async), nullptr);
    close_loop(loop);
}

// libuv's wake-ups between threads are an eventfd in an epoll descriptor: the hardest there is to hear.
BOOST_AUTO_TEST_CASE(libuv_runs_in_a_reactor_in_libuv)
{
    uv_loop_t outer;
    uv_loop_t inner;
    BOOST_REQUIRE(uv_loop_init(&outer) == 0);
    BOOST_REQUIRE(uv_loop_init(&inner) == 0);
    event told;
    uv_async_t async{};
    async.data = &told;
    uv_async_init(&inner, &async, [](uv_async_t* h) { static_cast<event*>(h->data)->set(); });
    auto r = reactor::create().value();
    reactor_in_libuv between(outer, *r);
    auto guest = std::make_unique<libuv_in_reactor>(*r, inner);
    scope tasks(*r);
    const auto body = [&]() -> task<void> {
        for (int i = 0; i < 10; ++i) {
            std::thread peer([&] { uv_async_send(&async); });
            const bool came = co_await told.wait();
            BOOST_TEST(came);
            told.reset();
            peer.join();
        }
        guest.reset();
        between.close();
    };
    tasks.spawn([&] { return body(); });
    uv_run(&outer, UV_RUN_DEFAULT);
    BOOST_TEST(guest == nullptr);
    close_loop(outer);
    uv_close(reinterpret_cast<uv_handle_t*>(&async), nullptr);
    close_loop(inner);
    const auto joined = [](scope& all) -> task<void> { co_await all.join(); };
    run_until_complete(*r, joined(tasks));
}

BOOST_AUTO_TEST_SUITE_END()
