// SPDX-License-Identifier: Apache-2.0
// A reactor in somebody else's loop: what comes makes its one descriptor readable, and nothing else does.
#include <boost/test/unit_test.hpp>

#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/file_read.hpp>
#include <verbena/core/reactor/io_watch.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <vector>

BOOST_AUTO_TEST_SUITE(nested_reactor_test)

using namespace verbena;

namespace {

// So long nobody waits but where the wake-up is lost.
constexpr int lost = 60'000;

bool is_readable(int fd, int milliseconds = 0)
{
    pollfd p{fd, POLLIN, 0};
    int n = 0;
    do
        n = ::poll(&p, 1, milliseconds);
    while (n < 0 && errno == EINTR);
    return n == 1 && (p.revents & POLLIN) != 0;
}

// A host loop that has nothing else to do.
struct host {
    explicit host(unsigned masked = 0, clock_source* clock = nullptr)
    {
        reactor_options o;
        o.masked_ring_features = masked;
        o.clock = clock;
        auto made = reactor::create(o);
        BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
        r = std::move(*made);
        fd = r->native_handle().value();
    }
    // What was there before is done, and the reactor armed.
    void settle()
    {
        while (!r->try_arm())
            r->poll();
    }
    void sleep()
    {
        if (r->try_arm())
            BOOST_TEST_REQUIRE(is_readable(fd, lost));
        r->poll();
    }
    template<class Done>
    void sleep_until(Done done)
    {
        while (!done())
            sleep();
    }
    std::unique_ptr<reactor> r;
    int fd = -1;
};

struct message final : remote_message {
    void deliver() noexcept override { ++delivered; }
    int delivered = 0;
};

struct alarm_clock final : timer {
    explicit alarm_clock(reactor& shard) : r(shard) {}
    void on_timer() noexcept override { rang_at = r.clock().now(); }
    bool rang() const { return rang_at != time_point(); }
    reactor& r;
    time_point rang_at{};
};

struct counted final : deferred {
    void run() noexcept override { ++runs; }
    int runs = 0;
};

// Takes octets out of a descriptor, as many as there are at once.
class reader final : public io_watch {
public:
    reader(reactor& r, int fd) : io_watch(r, fd) { want_read(true); }
    ~reader() { stop(); }
    int events = 0;

private:
    bool on_readable() noexcept override
    {
        std::array<char, 8> some{};
        const bool any = ::read(fd(), some.data(), some.size()) > 0;
        events += any;
        return any;
    }
    void on_writable() noexcept override {}
};

// Any thread, so without Boost.Test: whoever waits for it fails.
void put(int fd) { [[maybe_unused]] const auto n = ::write(fd, "12345678", 8); }

struct pipe_pair {
    pipe_pair()
    {
        int ends[2];
        BOOST_REQUIRE(::pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
        in.reset(ends[0]);
        out.reset(ends[1]);
    }
    void write() const { put(out.get()); }
    net::unique_fd in, out;
};

task<void> joined(scope& tasks) { co_await tasks.join(); }

constexpr unsigned single_issuer = unsigned(ring_feature::single_issuer);
constexpr unsigned defer_taskrun = unsigned(ring_feature::defer_taskrun);

} // namespace

BOOST_AUTO_TEST_CASE(it_is_armed_only_once_somebody_has_its_descriptor)
{
    const auto r = reactor::create().value();
    BOOST_TEST(!r->try_arm());
    const int fd = r->native_handle().value();
    BOOST_TEST(r->native_handle().value() == fd);
    BOOST_TEST(r->try_arm());
}

BOOST_AUTO_TEST_CASE(a_message_of_another_thread_wakes_the_host)
{
    for (const unsigned masked : {0U, defer_taskrun, single_issuer}) {
        host h(masked);
        for (int i = 1; i <= 50; ++i) {
            h.settle();
            message m;
            std::thread sender([&] { h.r->post_remote(m); });
            BOOST_TEST_REQUIRE(is_readable(h.fd, lost));
            sender.join();
            h.r->poll();
            BOOST_TEST(m.delivered == 1);
        }
    }
}

BOOST_AUTO_TEST_CASE(no_message_of_many_is_slept_over)
{
    host h;
    std::vector<message> all(20'000);
    std::thread sender([&] {
        for (auto& m : all)
            h.r->post_remote(m);
    });
    h.sleep_until([&] { return h.r->stats().remote_messages == all.size(); });
    sender.join();
    for (const auto& m : all)
        BOOST_TEST_REQUIRE(m.delivered == 1);
}

BOOST_AUTO_TEST_CASE(of_many_messages_the_first_costs_a_system_call)
{
    host h;
    std::array<message, 8> m;
    h.settle();
    for (auto& one : m)
        h.r->post_remote(one);
    BOOST_TEST(h.r->stats().wakes == 1U);
    BOOST_TEST(is_readable(h.fd));
    BOOST_TEST(!h.r->try_arm());
    h.r->poll();
    // Awake: they are found without.
    for (auto& one : m)
        h.r->post_remote(one);
    BOOST_TEST(h.r->stats().wakes == 1U);
    BOOST_TEST(!h.r->try_arm());
    h.r->poll();
    for (auto& one : m)
        BOOST_TEST(one.delivered == 2);
    // And asleep the first one does again.
    BOOST_TEST(h.r->try_arm());
    BOOST_TEST(!is_readable(h.fd));
    h.r->post_remote(m[0]);
    BOOST_TEST(h.r->stats().wakes == 2U);
    BOOST_TEST(is_readable(h.fd));
    // Whatever woke it.
    h.settle();
    h.r->poll();
    h.r->post_remote(m[0]);
    BOOST_TEST(h.r->stats().wakes == 2U);
    BOOST_TEST(!h.r->try_arm());
    h.r->poll();
    BOOST_TEST(m[0].delivered == 4);
}

BOOST_AUTO_TEST_CASE(a_timer_wakes_the_host_when_it_is_due)
{
    host h;
    alarm_clock late(*h.r);
    alarm_clock early(*h.r);
    const auto begun = h.r->clock().now();
    h.r->timers().arm(late, begun + std::chrono::hours(1)); // however long the machine stops
    h.settle();
    // One that the host arms when it has armed the reactor comes first all the same.
    h.r->timers().arm(early, begun + std::chrono::milliseconds(5));
    h.sleep_until([&] { return early.rang(); });
    BOOST_TEST((early.rang_at >= begun + std::chrono::milliseconds(5)));
    BOOST_TEST(!late.rang());
    // And one that was later is woken for too.
    h.r->timers().cancel(late);
    h.r->timers().arm(late, begun + std::chrono::milliseconds(15));
    h.sleep_until([&] { return late.rang(); });
    BOOST_TEST((late.rang_at >= begun + std::chrono::milliseconds(15)));
    h.settle();
    BOOST_TEST(!is_readable(h.fd));
}

BOOST_AUTO_TEST_CASE(a_timer_that_was_cancelled_wakes_nobody)
{
    host h;
    alarm_clock cancelled(*h.r);
    alarm_clock later(*h.r);
    const auto begun = h.r->clock().now();
    h.r->timers().arm(cancelled, begun + std::chrono::milliseconds(5));
    h.r->timers().arm(later, begun + std::chrono::milliseconds(30));
    h.settle();
    cancelled.cancel();
    h.settle();
    BOOST_TEST_REQUIRE(is_readable(h.fd, lost));
    // It is the later one that woke it.
    BOOST_TEST((h.r->clock().now() >= begun + std::chrono::milliseconds(30)));
    h.sleep_until([&] { return later.rang(); });
    BOOST_TEST(!cancelled.rang());
}

BOOST_AUTO_TEST_CASE(under_a_virtual_clock_the_host_tells_the_time)
{
    virtual_clock clock;
    host h(0, &clock);
    alarm_clock a(*h.r);
    h.r->timers().arm(a, clock.now() + std::chrono::hours(1));
    h.settle();
    BOOST_TEST(!is_readable(h.fd));
    clock.advance(std::chrono::hours(1));
    BOOST_TEST(!h.r->try_arm());
    h.r->poll();
    BOOST_TEST(a.rang());
}

BOOST_AUTO_TEST_CASE(what_becomes_readable_wakes_the_host)
{
    for (const unsigned masked : {0U, defer_taskrun, single_issuer}) {
        host h(masked);
        const pipe_pair p;
        reader in(*h.r, p.in.get());
        for (int i = 1; i <= 50; ++i) {
            h.settle();
            BOOST_TEST(!is_readable(h.fd));
            if (i % 2 == 0) {
                p.write();
                BOOST_TEST_REQUIRE(is_readable(h.fd, lost));
            } else {
                std::thread peer([&] { p.write(); });
                BOOST_TEST_REQUIRE(is_readable(h.fd, lost));
                peer.join();
            }
            h.sleep_until([&] { return in.events == i; });
        }
    }
}

BOOST_AUTO_TEST_CASE(what_was_armed_before_it_was_nested_wakes_the_host)
{
    auto r = reactor::create().value();
    std::vector<net::unique_fd> fds;
    std::vector<std::unique_ptr<reader>> readers;
    for (int i = 0; i < 3; ++i) {
        fds.emplace_back(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
        readers.push_back(std::make_unique<reader>(*r, fds.back().get()));
    }
    for (unsigned i = 0; i < 2 * io_watch::usual_tries; ++i)
        r->turn();
    const int mine = r->native_handle().value();
    for (std::size_t i = 0; i < fds.size(); ++i) {
        while (!r->try_arm())
            r->poll();
        const std::uint64_t one = 1;
        BOOST_REQUIRE(::write(fds[i].get(), &one, sizeof one) == ssize_t(sizeof one));
        BOOST_TEST_REQUIRE(is_readable(mine, lost));
        while (readers[i]->events == 0)
            r->poll();
    }
}

BOOST_AUTO_TEST_CASE(two_may_watch_one_descriptor)
{
    host h;
    const pipe_pair p;
    reader one(*h.r, p.in.get());
    reader other(*h.r, p.in.get());
    for (int i = 1; i <= 5; ++i) {
        h.settle();
        p.write();
        BOOST_TEST_REQUIRE(is_readable(h.fd, lost));
        h.sleep_until([&] { return one.events + other.events == i; });
    }
}

BOOST_AUTO_TEST_CASE(who_wants_to_read_no_more_is_not_woken)
{
    host h;
    const pipe_pair p;
    reader in(*h.r, p.in.get());
    h.settle();
    in.want_read(false);
    p.write();
    h.settle();
    BOOST_TEST(!is_readable(h.fd));
    BOOST_TEST(in.events == 0);
    in.want_read(true);
    h.sleep_until([&] { return in.events == 1; });
    {
        reader gone(*h.r, p.in.get());
        in.stop();
        h.settle();
    }
    p.write();
    h.settle();
    BOOST_TEST(!is_readable(h.fd));
}

BOOST_AUTO_TEST_CASE(what_can_be_written_wakes_the_host)
{
    host h;
    const pipe_pair p;
    class writer final : public io_watch {
    public:
        using io_watch::io_watch;
        bool on_readable() noexcept override { return false; }
        void on_writable() noexcept override { ++told; }
        int told = 0;
    };
    writer out(*h.r, p.out.get());
    while (::write(p.out.get(), "12345678", 8) > 0) {
    }
    out.want_write();
    h.settle();
    BOOST_TEST(out.told == 0);
    std::thread peer([&] {
        std::array<char, 65536> some;
        while (::read(p.in.get(), some.data(), some.size()) > 0) {
        }
    });
    BOOST_TEST_REQUIRE(is_readable(h.fd, lost));
    peer.join();
    h.sleep_until([&] { return out.told == 1; });
    out.stop();
}

BOOST_AUTO_TEST_CASE(a_read_by_the_ring_wakes_the_host)
{
    for (const unsigned masked : {0U, defer_taskrun, single_issuer}) {
        host h(masked);
        int ends[2];
        BOOST_REQUIRE(::pipe2(ends, O_CLOEXEC) == 0); // the ring waits for one that blocks
        const net::unique_fd in(ends[0]);
        const net::unique_fd out(ends[1]);
        const auto read = [](int fd, std::int32_t& outcome) -> task<void> {
            std::array<std::byte, 8> to{};
            outcome = co_await file_read(fd, to, 0);
        };
        for (int i = 0; i < 10; ++i) {
            std::int32_t outcome = 0;
            scope tasks(*h.r);
            tasks.spawn([&] { return read(in.get(), outcome); });
            h.settle();
            if (i % 2 == 0) {
                std::thread peer([&] { put(out.get()); });
                BOOST_TEST_REQUIRE(is_readable(h.fd, lost));
                peer.join();
            } else {
                // It ends while the reactor is not armed.
                h.r->poll();
                put(out.get());
                BOOST_TEST(!h.r->try_arm());
            }
            h.sleep_until([&] { return outcome != 0; });
            BOOST_TEST(outcome == 8);
            run_until_complete(*h.r, joined(tasks));
        }
    }
}

// The kernel does not write to one eventfd while it wakes those who wait for another: it does so later.
BOOST_AUTO_TEST_CASE(an_eventfd_wakes_the_host_too)
{
    host h;
    const net::unique_fd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    reader in(*h.r, fd.get());
    for (int i = 1; i <= 5; ++i) {
        h.settle();
        const std::uint64_t one = 1;
        BOOST_REQUIRE(::write(fd.get(), &one, sizeof one) == ssize_t(sizeof one));
        BOOST_TEST_REQUIRE(is_readable(h.fd, lost));
        h.sleep_until([&] { return in.events == i; });
    }
}

BOOST_AUTO_TEST_CASE(what_is_readable_while_it_is_armed_is_not_slept_over)
{
    host h;
    const pipe_pair p;
    h.settle();
    p.write();
    reader in(*h.r, p.in.get()); // hot: it has not been tried
    h.sleep_until([&] { return in.events == 1; });
}

BOOST_AUTO_TEST_CASE(what_the_host_gives_it_to_do_is_not_slept_over)
{
    host h;
    h.settle();
    counted at_once;
    counted at_end;
    counted last;
    for (counted* c : {&at_once, &at_end, &last}) {
        if (c == &at_once)
            h.r->post(*c);
        else if (c == &at_end)
            h.r->at_turn_end(*c);
        else
            h.r->post_last(*c);
        BOOST_TEST(!h.r->try_arm());
        h.r->poll();
        BOOST_TEST(c->runs == 1);
        BOOST_TEST(h.r->try_arm());
    }
    class source final : public event_source {
    public:
        bool poll() noexcept override { return std::exchange(something, false); }
        bool pending() const noexcept override { return something; }
        bool something = false;
    };
    source s;
    h.r->add(s);
    BOOST_TEST(h.r->try_arm());
    s.something = true;
    BOOST_TEST(!h.r->try_arm());
    h.r->poll();
    BOOST_TEST(h.r->try_arm());
    scope tasks(*h.r);
    int done = 0;
    const auto work = [](int& n) -> task<void> {
        ++n;
        co_return;
    };
    tasks.spawn([&] { return work(done); });
    h.sleep_until([&] { return done == 1; });
    run_until_complete(*h.r, joined(tasks));
}

BOOST_AUTO_TEST_CASE(idle_it_wakes_nobody_and_costs_no_system_call)
{
    host h;
    const pipe_pair p;
    reader in(*h.r, p.in.get());
    alarm_clock a(*h.r);
    h.r->timers().arm(a, h.r->clock().now() + std::chrono::hours(1));
    h.settle();
    const auto enters = h.r->io().stats().enters.load();
    const auto turns = h.r->stats().turns.load();
    for (int i = 0; i < 1000; ++i) {
        BOOST_TEST_REQUIRE(h.r->try_arm());
        BOOST_TEST_REQUIRE(!is_readable(h.fd));
    }
    BOOST_TEST(h.r->io().stats().enters == enters);
    BOOST_TEST(h.r->stats().turns == turns);
    BOOST_TEST(h.r->stats().wakes == 0U);
}

// The host may look in for reasons of its own, whether the reactor is armed or not.
BOOST_AUTO_TEST_CASE(a_poll_that_finds_nothing_loses_nothing)
{
    host h;
    const pipe_pair p;
    reader in(*h.r, p.in.get());
    for (int i = 1; i <= 20; ++i) {
        h.settle();
        h.r->poll();
        h.r->poll();
        h.settle();
        p.write();
        h.sleep_until([&] { return in.events == i; });
    }
}

BOOST_AUTO_TEST_CASE(its_own_loop_goes_on_before_and_after)
{
    auto made = reactor::create();
    reactor& r = **made;
    const pipe_pair p;
    reader in(r, p.in.get());
    const auto nap = [](reactor&) -> task<void> { co_await sleep_for(std::chrono::milliseconds(1)); };
    const auto woken_by = [&](message& m) {
        std::thread sender([&] { r.post_remote(m); });
        while (m.delivered == 0)
            run_until_complete(r, nap(r));
        sender.join();
    };
    message first;
    woken_by(first);
    const int fd = r.native_handle().value();
    for (int i = 1; i <= 3; ++i) {
        while (!r.try_arm())
            r.poll();
        p.write();
        BOOST_TEST_REQUIRE(is_readable(fd, lost));
        while (in.events < i)
            r.poll();
        message m;
        woken_by(m); // armed or not
    }
}

// verbena in verbena, and any other loop that has a descriptor.
BOOST_AUTO_TEST_CASE(one_reactor_runs_inside_another)
{
    auto outer = reactor::create().value();
    host inner;
    class guest final : public io_watch {
    public:
        guest(reactor& r, host& h) : io_watch(r, h.fd, 0), h_(h) { want_read(true); }
        ~guest() { stop(); }
        bool all_done = false;

    private:
        bool on_readable() noexcept override
        {
            bool any = false;
            while (!h_.r->try_arm())
                any = h_.r->poll() || any;
            if (!is_readable(fd()))
                return any;
            h_.r->poll();
            h_.settle();
            return true;
        }
        void on_writable() noexcept override {}
        host& h_;
    };
    guest g(*outer, inner);
    const pipe_pair p;
    reader in(*inner.r, p.in.get());
    alarm_clock a(*inner.r);
    inner.r->timers().arm(a, inner.r->clock().now() + std::chrono::milliseconds(5));
    message m;
    std::thread sender([&] {
        inner.r->post_remote(m);
        p.write();
    });
    const auto until = [](const int& events, const alarm_clock& rang, const message& got) -> task<void> {
        for (;;) {
            const bool done = events == 1 && rang.rang() && got.delivered == 1;
            if (done)
                break;
            co_await sleep_for(std::chrono::milliseconds(1));
        }
    };
    run_until_complete(*outer, until(in.events, a, m));
    sender.join();
}

BOOST_AUTO_TEST_CASE(a_loop_with_a_descriptor_runs_inside_it)
{
    host h;
    const net::unique_fd epoll(::epoll_create1(EPOLL_CLOEXEC));
    const pipe_pair p;
    epoll_event e{};
    e.events = EPOLLIN;
    BOOST_REQUIRE(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, p.in.get(), &e) == 0);
    class guest final : public io_watch {
    public:
        guest(reactor& r, int fd, int in) : io_watch(r, fd, 0), in_(in) { want_read(true); }
        ~guest() { stop(); }
        int events = 0;

    private:
        bool on_readable() noexcept override
        {
            epoll_event found{};
            if (::epoll_wait(fd(), &found, 1, 0) != 1)
                return false;
            std::array<char, 8> some{};
            events += ::read(in_, some.data(), some.size()) > 0;
            return true;
        }
        void on_writable() noexcept override {}
        int in_;
    };
    guest g(*h.r, epoll.get(), p.in.get());
    for (int i = 1; i <= 10; ++i) {
        h.settle();
        p.write();
        h.sleep_until([&] { return g.events == i; });
    }
    // And in its own loop.
    const auto until = [](const int& events, int wanted) -> task<void> {
        for (;;) {
            const bool done = events == wanted;
            if (done)
                break;
            co_await sleep_for(std::chrono::milliseconds(1));
        }
    };
    p.write();
    run_until_complete(*h.r, until(g.events, 11));
}

BOOST_AUTO_TEST_SUITE_END()
