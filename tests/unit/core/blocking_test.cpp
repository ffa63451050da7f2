// SPDX-License-Identifier: Apache-2.0
// Lanes for calls that block: what they share, and what of each is its own.
#include <boost/test/unit_test.hpp>

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/run_within.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

BOOST_AUTO_TEST_SUITE(blocking_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

/// Ends when its gate is open.
struct waiting_job final : blocking_pool::job {
    waiting_job(std::shared_future<void> g, std::atomic<int>& count) : gate(std::move(g)), done(count) {}
    void execute() noexcept override
    {
        gate.wait();
        ++done;
    }
    void deliver() noexcept override {}
    std::shared_future<void> gate;
    std::atomic<int>& done;
};

/// Jobs that hang until it says so. Waits for their end.
class hung_jobs {
public:
    hung_jobs() = default;
    hung_jobs(const hung_jobs&) = delete;
    ~hung_jobs()
    {
        let_go();
        while (done() != int(jobs_.size()))
            std::this_thread::yield();
    }
    int done() const noexcept { return done_; }
    void begin(blocking_pool& lane, int count)
    {
        for (int i = 0; i < count; ++i)
            BOOST_REQUIRE(lane.submit(jobs_.emplace_back(gate_, done_)));
    }
    void let_go()
    {
        if (!std::exchange(open_, true))
            open_now_.set_value();
    }

private:
    bool open_ = false;
    std::promise<void> open_now_;
    std::shared_future<void> gate_ = open_now_.get_future().share();
    std::atomic<int> done_{0};
    std::deque<waiting_job> jobs_;
};

/// Runs `f` on the lane and waits for it.
template<class F>
void run_on(blocking_pool& lane, F f)
{
    struct one final : blocking_pool::job {
        explicit one(F& g) : call(g) {}
        void execute() noexcept override
        {
            call();
            ended.set_value();
        }
        void deliver() noexcept override {}
        F& call;
        std::promise<void> ended;
    };
    // Its future outlives what the thread does with the promise.
    auto j = std::make_unique<one>(f);
    std::future<void> end = j->ended.get_future();
    BOOST_REQUIRE(lane.submit(*j));
    end.get();
    while (lane.look().running != 0)
        std::this_thread::yield();
}

/// Threads that never come fail the test, and don't hang it.
void until(const auto& is_so)
{
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (!is_so()) {
        if (std::chrono::steady_clock::now() > end)
            BOOST_FAIL("what this waits for does not come");
        std::this_thread::yield();
    }
}

} // namespace

BOOST_AUTO_TEST_CASE(lanes_without_work_have_no_threads)
{
    blocking_crew crew;
    std::deque<std::unique_ptr<blocking_pool>> lanes;
    for (int i = 0; i < 1000; ++i)
        lanes.push_back(std::make_unique<blocking_pool>(crew, 8, "lane"));
    BOOST_TEST(crew.threads() == 0u);
    // One after the other all use the thread of the first.
    for (auto& lane : lanes)
        run_on(*lane, [] {});
    BOOST_TEST(crew.threads() <= 8u); // the thread of one may not be idle yet when the next wants one
    lanes.clear();
}

BOOST_AUTO_TEST_CASE(idle_threads_end_and_others_start_when_they_are_needed)
{
    blocking_crew::options o;
    o.idle = 1ms;
    blocking_crew crew(o);
    blocking_pool lane(crew, 4, "lane");
    for (int round = 0; round < 3; ++round) {
        hung_jobs hung;
        hung.begin(lane, 6);
        until([&] { return lane.look().running == 4; });
        BOOST_TEST(lane.look().queued == 2u);
        BOOST_TEST(crew.threads() == 4u);
        hung.let_go();
        until([&] { return crew.threads() == 0; });
        BOOST_TEST(hung.done() == 6);
    }
}

// What hangs keeps the threads that lanes share, and never the first of another lane.
BOOST_AUTO_TEST_CASE(however_many_lanes_hang_another_one_runs)
{
    blocking_crew::options o;
    o.shared = 3;
    blocking_crew crew(o);
    blocking_pool first(crew, 3, "first");
    blocking_pool second(crew, 8, "second");
    blocking_pool third(crew, 8, "third");
    hung_jobs hung;
    hung.begin(first, 10);
    until([&] { return first.look().running == 3; }); // its own bound: one and two that are shared
    hung.begin(second, 10);
    until([&] { return second.look().running == 2; }); // one and the last that is shared
    hung_jobs other;
    other.begin(third, 4);
    until([&] { return third.look().running == 1; });
    BOOST_TEST(third.look().queued == 3u);
    BOOST_TEST(crew.threads() == 6u);
    blocking_pool fourth(crew, 8, "fourth");
    bool ran = false;
    run_on(fourth, [&] { ran = true; });
    BOOST_TEST(ran);
    BOOST_TEST(first.look().running == 3u);
    BOOST_TEST(second.look().running == 2u);
    // Those who wait for a share have it when it is given back, though nothing is submitted any more.
    hung.let_go();
    until([&] { return third.look().running == 4; });
    other.let_go();
}

BOOST_AUTO_TEST_CASE(what_was_submitted_is_done_before_a_lane_has_finished)
{
    blocking_crew crew;
    for (int round = 0; round < 20; ++round) {
        hung_jobs hung;
        blocking_pool lane(crew, 3, "lane");
        hung.begin(lane, 50);
        hung.let_go();
        lane.finish();
        BOOST_TEST(hung.done() == 50);
        BOOST_TEST(lane.look().running == 0u);
    }
}

BOOST_AUTO_TEST_CASE(beyond_its_queue_a_lane_refuses_what_can_be_refused)
{
    auto shard = std::move(*reactor::create());
    blocking_pool lane(1, "slow");
    hung_jobs hung;
    hung.begin(lane, 1);
    until([&] { return lane.look().running == 1; });
    hung.begin(lane, int(blocking_pool::max_queued) - 1);
    int calls = 0;
    std::vector<int> outcomes; // errno, 0
    bool waited = false;
    auto asks = [&]() -> task<void> {
        auto f = [&calls]() -> result<int> { return ++calls; };
        const auto done = co_await lane.try_run(std::move(f));
        outcomes.push_back(done ? 0 : done.error().errno_value());
    };
    // What follows a change that was made is done however many wait.
    auto must = [&]() -> task<void> {
        auto f = [&calls]() -> result<int> { return ++calls; };
        const auto done = co_await lane.run(std::move(f));
        waited = done.has_value();
    };
    auto all = [&]() -> task<void> {
        scope tasks(*shard);
        for (int i = 0; i < 3; ++i)
            tasks.spawn(asks);
        tasks.spawn(must);
        const bool slept = co_await sleep_for(1ms); // what is refused is answered meanwhile
        (void)slept;
        hung.let_go();
        co_await tasks.join();
    };
    run_until_complete(*shard, all());
    // The first took the last place; the others were answered at once.
    BOOST_TEST((outcomes == std::vector<int>{EAGAIN, EAGAIN, 0}));
    BOOST_TEST(waited);
    BOOST_TEST(calls == 2);
    BOOST_TEST(lane.refused() == 2u);
    lane.finish();
}

// A shard acts as its callers, may be kept on one CPU, and its rights are not to be a pool's.
BOOST_AUTO_TEST_CASE(threads_are_as_the_one_that_made_the_crew_whoever_submits)
{
    cpu_set_t allowed;
    BOOST_REQUIRE(::sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    blocking_crew crew;
    blocking_pool lane(crew, 1, "lane");
    cpu_set_t seen;
    sigset_t blocked;
    std::thread another([&] {
        cpu_set_t one;
        CPU_ZERO(&one);
        for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
            if (CPU_ISSET(cpu, &allowed))
                CPU_SET(cpu, &one);
        }
        ::sched_setaffinity(0, sizeof one, &one);
        run_on(lane, [&] {
            ::sched_getaffinity(0, sizeof seen, &seen);
            ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
        });
    });
    another.join();
    BOOST_TEST(CPU_EQUAL(&seen, &allowed));
    BOOST_TEST(::sigismember(&blocked, SIGTERM) == 1);
    ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    BOOST_TEST(::sigismember(&blocked, SIGTERM) == 0);
}

// In a child, since the limit is the user's. Root has none.
BOOST_AUTO_TEST_CASE(where_no_thread_can_be_started_jobs_wait_until_one_can)
{
    const pid_t child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child == 0) {
        if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0)
            ::_exit(2);
        set_log_level(log_level::off);
        blocking_crew crew;
        blocking_pool lane(crew, 1, "lane");
        rlimit before{};
        if (::getrlimit(RLIMIT_NPROC, &before) != 0)
            ::_exit(3);
        const rlimit no_more{1, before.rlim_max};
        if (::setrlimit(RLIMIT_NPROC, &no_more) != 0)
            ::_exit(3);
        std::promise<void> open;
        open.set_value();
        std::atomic<int> done{0};
        waiting_job job(open.get_future().share(), done);
        if (!lane.submit(job))
            ::_exit(4);
        until([&] { return crew.failures() >= 2; });
        if (lane.look().queued != 1 || crew.threads() != 0)
            ::_exit(5);
        if (::setrlimit(RLIMIT_NPROC, &before) != 0)
            ::_exit(6);
        lane.finish();
        ::_exit(done == 1 ? 0 : 7);
    }
    int status = 0;
    BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
    BOOST_TEST(WIFEXITED(status));
    BOOST_TEST(WEXITSTATUS(status) == 0);
}

BOOST_AUTO_TEST_CASE(who_waits_for_a_time_at_most_leaves_a_call_that_hangs_behind)
{
    blocking_pool lane(1);
    BOOST_TEST(run_within(lane, 1h, [] { return std::string("there"); }).value_or("") == "there");
    BOOST_CHECK_THROW((void)run_within(lane, 1h, []() -> int { throw std::runtime_error("failed"); }),
                      std::runtime_error);
    std::promise<void> open;
    const auto value = std::make_shared<int>(7);
    auto hangs = [gate = open.get_future().share(), v = value] {
        gate.wait();
        return v;
    };
    BOOST_TEST(!run_within(lane, 1ms, std::move(hangs)).has_value());
    BOOST_TEST(value.use_count() > 1);
    open.set_value();
    until([&] { return value.use_count() == 1; }); // it ended there, with what it yielded
}

BOOST_AUTO_TEST_CASE(a_lane_at_work_is_waited_for_a_time_at_most)
{
    blocking_pool lane(1);
    BOOST_TEST(idles_within(lane, 1h));
    {
        hung_jobs hung;
        hung.begin(lane, 2);
        BOOST_TEST(!idles_within(lane, 1ms));
    }
    BOOST_TEST(idles_within(lane, 1h));
}

// Who hands a job over wakes its thread without the lock, when the job may have ended and the lane may go.
BOOST_AUTO_TEST_CASE(a_lane_may_go_as_soon_as_its_job_has_ended)
{
    for (int i = 0; i < 300; ++i) {
        auto lane = std::make_unique<blocking_pool>(1);
        run_on(*lane, [] {}); // its thread is there, and idle
        std::promise<void> open;
        open.set_value();
        std::atomic<int> done{0};
        waiting_job job(open.get_future().share(), done);
        std::thread other([&job, &where = *lane] { (void)where.submit(job); });
        until([&] { return done == 1; });
        lane.reset();
        other.join();
    }
}

// Whoever ends a lane that seems idle would wait for a job that hangs.
BOOST_AUTO_TEST_CASE(from_its_submission_to_its_end_a_job_waits_or_runs)
{
    blocking_pool lane(2);
    for (int i = 0; i < 100; ++i) {
        hung_jobs hung;
        hung.begin(lane, 1);
        std::size_t found = 1;
        until([&] {
            const auto now = lane.look();
            found = std::min(found, now.queued + now.running);
            return now.running == 1 || found == 0;
        });
        BOOST_TEST_REQUIRE(found == 1u);
    }
}

BOOST_AUTO_TEST_CASE(a_lane_at_work_is_not_finished_and_an_idle_one_takes_nothing_more)
{
    blocking_pool lane(1);
    {
        hung_jobs hung;
        hung.begin(lane, 1);
        BOOST_TEST(!lane.finish_if_idle());
        until([&] { return lane.look().running == 1; });
        BOOST_TEST(!lane.finish_if_idle());
        hung.begin(lane, 1); // it is as it was
    }
    until([&] { return lane.finish_if_idle(); });
    std::atomic<int> done{0};
    waiting_job late(std::shared_future<void>(), done);
    BOOST_TEST(!lane.submit(late));
}

BOOST_AUTO_TEST_SUITE_END()
