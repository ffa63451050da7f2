// SPDX-License-Identifier: Apache-2.0
#include "../log_at.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/io_watch.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include <array>
#include <atomic>
#include <condition_variable>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(reactor_test)

using namespace verbena;

namespace {

std::unique_ptr<reactor> make()
{
    auto r = reactor::create({});
    BOOST_REQUIRE_MESSAGE(r, (r ? std::string() : r.error().message()));
    return std::move(*r);
}

class counted final : public deferred {
public:
    void run() noexcept override { ++runs; }
    int runs = 0;
};

// A source that never runs dry: each look at it finds `batch` pieces of work.
class endless final : public event_source {
public:
    endless(reactor& r, std::size_t batch) : reactor_(r), batch_(batch) { r.add(*this); }
    ~endless() { unlink(); }
    bool poll() noexcept override
    {
        ++polls;
        for (std::size_t i = 0; i < batch_; ++i)
            reactor_.post(work[i]);
        return true;
    }
    std::array<counted, 8> work;
    int polls = 0;

private:
    reactor& reactor_;
    std::size_t batch_;
};

class flag final : public timer, public remote_message {
public:
    void on_timer() noexcept override { ++timeouts; }
    void deliver() noexcept override { ++delivered; }
    int timeouts = 0;
    int delivered = 0;
};

// The read end of a pipe.
class pipe_end final : public io_watch {
public:
    pipe_end(reactor& r, net::unique_fd read_end, std::uint32_t tries)
        : io_watch(r, read_end.get(), tries), owned_(std::move(read_end))
    {
        want_read(true);
    }
    ~pipe_end() { stop(); }
    int tried = 0;
    int received = 0;

private:
    bool on_readable() noexcept override
    {
        ++tried;
        char octet = 0;
        const bool any = ::read(fd(), &octet, 1) == 1;
        received += any;
        return any;
    }
    void on_writable() noexcept override {}
    net::unique_fd owned_;
};

} // namespace

BOOST_AUTO_TEST_CASE(one_completion_after_the_other_shares_a_turn)
{
    const auto r = make();
    endless source(*r, 1);
    BOOST_TEST(r->turn());
    BOOST_TEST(source.polls > 1);
    BOOST_TEST(source.polls <= 64); // and the turn ends
    BOOST_TEST(source.work[0].runs == source.polls);
}

BOOST_AUTO_TEST_CASE(after_a_batch_the_turn_ends)
{
    const auto r = make();
    endless source(*r, 8);
    BOOST_TEST(r->turn());
    BOOST_TEST(source.polls == 1);
    BOOST_TEST(source.work[7].runs == 1);
}

BOOST_AUTO_TEST_CASE(a_source_that_never_runs_dry_keeps_neither_timers_nor_other_shards_out)
{
    const auto r = make();
    endless source(*r, 1);
    flag f;
    r->timers().arm(f, r->clock().now());
    r->post_remote(f);
    BOOST_TEST(r->turn());
    BOOST_TEST(f.timeouts == 1);
    BOOST_TEST(f.delivered == 1);
    r->post_remote(f);
    BOOST_TEST(r->turn());
    BOOST_TEST(f.delivered == 2);
}

BOOST_AUTO_TEST_CASE(what_seldom_has_more_is_tried_once_after_each_event)
{
    const auto r = make();
    for (const std::uint32_t tries : {0u, io_watch::usual_tries}) {
        int ends[2];
        BOOST_REQUIRE(::pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
        pipe_end in(*r, net::unique_fd(ends[0]), tries);
        const net::unique_fd out(ends[1]);
        for (int octets = 1; octets <= 3; ++octets) {
            BOOST_REQUIRE(::write(out.get(), "x", 1) == 1);
            for (int turn = 0; turn < 100'000 && in.received < octets; ++turn)
                r->turn();
            BOOST_TEST(in.received == octets);
            in.tried = 0;
            for (int turn = 0; turn < 100; ++turn)
                r->turn();
            BOOST_TEST(in.tried == (tries == 0 ? 1 : 100));
        }
    }
}

// Completions of one turn that each start an operation which completes at once: the ring is left after what was there.
BOOST_AUTO_TEST_CASE(thousands_that_become_readable_at_once_keep_neither_timers_nor_each_other_out)
{
    const auto r = make();
    const net::unique_fd ready(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    BOOST_REQUIRE(ready);
    class reader final : public io_watch {
    public:
        reader(reactor& shard, int fd) : io_watch(shard, fd) {}
        bool on_readable() noexcept override
        {
            ++tried;
            return true; // there always is more
        }
        void on_writable() noexcept override {}
        int tried = 0;
    };
    std::vector<std::unique_ptr<reader>> all;
    for (int i = 0; i < 3000; ++i) {
        all.push_back(std::make_unique<reader>(*r, ready.get()));
        all.back()->want_read(true);
        r->turn();
    }
    for (const auto& one : all)
        one->tried = 0;
    const std::uint64_t some = 1;
    BOOST_REQUIRE(::write(ready.get(), &some, sizeof some) == ssize_t(sizeof some));
    flag f;
    r->timers().arm(f, r->clock().now());
    for (int turn = 0; turn < 100; ++turn)
        r->turn();
    BOOST_TEST(f.timeouts == 1);
    for (const auto& one : all)
        BOOST_TEST_REQUIRE(one->tried > 0);
}

// Whoever waits to write has nothing else that would have him try again.
BOOST_AUTO_TEST_CASE(a_ring_that_refuses_is_asked_again_until_what_can_be_written_is_told)
{
    struct waiting final : ring_completion {
        void on_complete(std::int32_t) noexcept override {}
    };
    std::vector<std::unique_ptr<waiting>> all; // outlive the ring
    const auto r = make();
    const net::unique_fd silent(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); // writable, and never readable
    BOOST_REQUIRE(silent);
    class writer final : public io_watch {
    public:
        using io_watch::io_watch;
        bool on_readable() noexcept override { return false; }
        void on_writable() noexcept override { ++told; }
        int told = 0;
    };
    do
        all.push_back(std::make_unique<waiting>());
    while (r->io().poll_once(silent.get(), POLLIN, *all.back()));
    writer first(*r, silent.get());
    writer second(*r, silent.get());
    first.want_write();
    second.want_write();
    for (int turn = 0; turn < 5; ++turn)
        r->turn();
    BOOST_TEST(first.told + second.told == 0);
    BOOST_TEST(!r->try_arm()); // no sleep
    r->stop();
    r->run(); // returns, though what the turn's end has to do defers itself again
    BOOST_TEST(first.told + second.told == 0);
    second.stop();
    for (std::size_t i = 0; i < 2; ++i)
        r->io().detach(*all[i]);
    for (int turn = 0; turn < 5; ++turn)
        r->turn();
    BOOST_TEST(first.told == 1);
    BOOST_TEST(second.told == 0);
}

// ThreadSanitizer sees it even where the threads do not meet.
BOOST_AUTO_TEST_CASE(a_message_may_end_the_reactor_that_it_was_posted_to)
{
    struct last final : remote_message {
        void deliver() noexcept override { reactor::current()->stop(); }
    } message;
    for (const auto policy : {wait_policy::event, wait_policy::busy}) {
        for (int i = 0; i < 100; ++i) {
            std::atomic<reactor*> there{nullptr};
            bool stopped = false;
            std::thread shard([&] {
                reactor_options o;
                o.policy = policy;
                o.ring_entries = 8;
                const auto r = std::move(*reactor::create(o));
                there = r.get();
                there.notify_one();
                stopped = r->run() == run_end::stopped;
            });
            there.wait(nullptr);
            if (policy == wait_policy::event && i % 2 == 0) {
                for (int turn = 0; turn < 100; ++turn) // as a rule it sleeps then
                    std::this_thread::yield();
            }
            there.load()->post_remote(message);
            shard.join();
            BOOST_TEST(stopped);
        }
    }
}

BOOST_AUTO_TEST_CASE(whoever_stops_a_reactor_may_see_it_end)
{
    for (int i = 0; i < 100; ++i) {
        std::atomic<reactor*> there{nullptr};
        bool stopped = false;
        std::thread shard([&] {
            reactor_options o;
            o.ring_entries = 8;
            const auto r = std::move(*reactor::create(o));
            there = r.get();
            there.notify_one();
            stopped = r->run() == run_end::stopped;
        });
        there.wait(nullptr);
        there.load()->stop();
        shard.join();
        BOOST_TEST(stopped);
    }
}

namespace {

// Work that holds the shard, by a clock that the test moves.
struct holding final : deferred {
    holding(virtual_clock& c, duration d) : clock(c), takes(d) {}
    void run() noexcept override { clock.advance(takes); }
    virtual_clock& clock;
    duration takes;
};
/// What is logged while it lives, and by which thread.
class lines_of_the_log {
public:
    struct line {
        std::string text;
        std::thread::id by;
    };
    lines_of_the_log()
    {
        set_log_capture(
            [](void* to, std::string_view text) {
                auto& log = *static_cast<lines_of_the_log*>(to);
                const std::lock_guard lock(log.mutex_);
                log.lines_.push_back({std::string(text), std::this_thread::get_id()});
                log.more_.notify_one();
            },
            this);
    }
    lines_of_the_log(const lines_of_the_log&) = delete;
    ~lines_of_the_log() { set_log_capture(nullptr, nullptr); }
    /// The only line that there is, or that comes.
    line wait_for_one()
    {
        std::unique_lock lock(mutex_);
        more_.wait(lock, [this] { return !lines_.empty(); });
        BOOST_TEST(lines_.size() == 1u);
        return std::exchange(lines_, {}).front();
    }
    std::vector<line> take()
    {
        const std::lock_guard lock(mutex_);
        return std::exchange(lines_, {});
    }

private:
    const test::log_at level_{log_level::info};
    std::mutex mutex_;
    std::condition_variable more_;
    std::vector<line> lines_;
};

task<void> hold_the_shard(virtual_clock& clock, duration takes)
{
    (void)co_await sleep_for(std::chrono::milliseconds(1));
    clock.advance(takes);
}

} // namespace

BOOST_AUTO_TEST_CASE(a_turn_that_held_the_shard_is_logged_with_what_did)
{
    using namespace std::chrono_literals;
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto made = reactor::create(o);
    BOOST_REQUIRE(made);
    reactor& r = **made;
    lines_of_the_log log;
    const auto said = [&](std::string_view text) {
        const auto line = log.wait_for_one();
        return line.text.find("a shard was held") != std::string::npos &&
               line.text.find(text) != std::string::npos;
    };
    const auto hold = [&](duration takes) { run_until_complete(r, hold_the_shard(clock, takes)); };
    hold(99ms); // a stall, which is counted, and no more
    BOOST_TEST(log.take().empty());
    BOOST_TEST(r.stats().stalls.load() == 1u);
    // The first is not known, since nothing is timed without need.
    hold(100ms);
    BOOST_TEST(said("milliseconds=100 by=\"not timed"));
    hold(250ms);
    BOOST_TEST(said("milliseconds=250 by=\"reactor_test::(anonymous namespace)::hold_the_shard"));
    holding work(clock, 300ms);
    r.post(work);
    while (r.turn()) {
    }
    BOOST_TEST(said("by=\"reactor_test::(anonymous namespace)::holding"));
    // A minute later it is as at first.
    clock.advance(61s);
    hold(1ms);
    BOOST_TEST(log.take().empty());
    hold(100ms);
    BOOST_TEST(said("not timed"));
    // One that blocks again and again does not fill the log.
    clock.advance(61s);
    for (int i = 0; i < 20; ++i)
        hold(100ms);
    BOOST_TEST(r.stats().stalls.load() == 25u);
    made->reset(); // and what it has to say is said
    BOOST_TEST(log.take().size() == 5u);
}

// The names of coroutines stand in files, and whoever waits for a disk is not the shard that was held for long enough.
BOOST_AUTO_TEST_CASE(who_held_the_shard_is_looked_up_on_another_thread)
{
    using namespace std::chrono_literals;
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto made = reactor::create(o);
    BOOST_REQUIRE(made);
    lines_of_the_log log;
    run_until_complete(**made, hold_the_shard(clock, 100ms));
    BOOST_TEST((log.wait_for_one().by == std::this_thread::get_id()));
    run_until_complete(**made, hold_the_shard(clock, 200ms));
    const auto line = log.wait_for_one();
    BOOST_TEST(line.text.find("hold_the_shard") != std::string::npos);
    BOOST_TEST((line.by != std::this_thread::get_id()));
}

BOOST_AUTO_TEST_CASE(a_shard_spins_while_that_pays_and_tries_again_by_pauses)
{
    verbena::detail::spin_choice choice;
    const auto pause = [&choice] {
        unsigned slept = 0;
        for (; !choice.spins(); ++slept)
            BOOST_TEST_REQUIRE(slept < 1000u);
        return slept;
    };
    for (int i = 0; i < 100; ++i) {
        BOOST_TEST(pause() == 0u);
        choice.paid();
    }
    std::vector<unsigned> pauses;
    for (int i = 0; i < 11; ++i) {
        choice.was_in_vain();
        pauses.push_back(pause());
    }
    BOOST_TEST(pauses == (std::vector<unsigned>{1, 2, 4, 8, 16, 32, 64, 128, 256, 256, 256}),
               boost::test_tools::per_element());
    // One that pays is followed by another one at once, and a pause behind it is shorter.
    choice.paid();
    BOOST_TEST(pause() == 0u);
    choice.was_in_vain();
    BOOST_TEST(pause() == 128u);
    for (int i = 0; i < 4; ++i)
        choice.paid();
    choice.was_in_vain();
    BOOST_TEST(pause() == 1u);
}

// A shard whose work comes by a timer, which is later than a spin lasts, or earlier.
BOOST_AUTO_TEST_CASE(spins_are_counted_by_whether_they_paid)
{
    using namespace std::chrono_literals;
    const auto run = [](duration spin, duration timer, int times) {
        reactor_options options;
        options.spin = spin;
        auto made = reactor::create(options);
        BOOST_REQUIRE(made);
        reactor& r = **made;
        const auto sleeps = [](duration each, int count) -> task<void> {
            for (int i = 0; i < count; ++i)
                co_await sleep_for(each);
        };
        run_until_complete(r, sleeps(timer, times));
        return std::pair(r.stats().spins_paid.load(), r.stats().spins_in_vain.load());
    };
    const auto paid = run(10s, 100us, 20);
    BOOST_TEST(paid.first >= 20u);
    BOOST_TEST(paid.second == 0u);
    const auto in_vain = run(1ns, 1ms, 40);
    BOOST_TEST(in_vain.first == 0u);
    // 40 idle periods: spins in the 1st, 3rd, 6th, 11th, 20th and 37th.
    BOOST_TEST(in_vain.second >= 1u);
    BOOST_TEST(in_vain.second <= 7u);
}

BOOST_AUTO_TEST_SUITE_END()
