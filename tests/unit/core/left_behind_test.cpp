// SPDX-License-Identifier: Apache-2.0
// What a shard ends itself, and the threads that it makes for itself.
#include <boost/test/unit_test.hpp>

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/own_threads.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/reactor/simulated_shards.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/left_behind.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/yield.hpp>

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(left_behind_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

// Ends in a later turn than the stop's.
task<void> until_stopped(std::atomic<bool>& ended)
{
    event never;
    (void)co_await never.wait();
    for (int turn = 0; turn < 3; ++turn)
        co_await yield();
    ended = true;
}

task<void> deaf(event& never) { co_await never.wait_shielded(); }

} // namespace

BOOST_AUTO_TEST_CASE(the_reactor_ends_it_before_it_goes)
{
    std::atomic<bool> ended{false};
    {
        auto shard = reactor::create().value();
        left_behind(*shard).spawn(until_stopped, std::ref(ended));
        while (shard->turn()) {
        }
        BOOST_TEST(!ended);
        BOOST_TEST(&left_behind(*shard) == &left_behind(*shard));
    }
    BOOST_TEST(ended);
}

BOOST_AUTO_TEST_CASE(the_runtime_ends_it_while_all_shards_run)
{
    std::atomic<bool> ended{false};
    runtime_options o;
    o.shards = 2;
    o.memory_limit = std::size_t(16) << 20;
    auto shards = runtime::start(o).value();
    // It needs the other shard when it ends.
    const auto begin = [&](shard& here) -> task<void> {
        left_behind(here.reactor()).spawn([&]() -> task<void> {
            event never;
            (void)co_await never.wait();
            std::atomic<bool> there{false};
            class note final : public remote_message {
            public:
                explicit note(std::atomic<bool>& t) noexcept : there_(t) {}
                void deliver() noexcept override { there_ = true; }

            private:
                std::atomic<bool>& there_;
            } message(there);
            shards->at(1).reactor().post_remote(message);
            while (!there)
                std::this_thread::yield();
            ended = true;
        });
        co_return;
    };
    shards->run(0, begin);
    BOOST_TEST(!ended);
    shards->stop();
    BOOST_TEST(ended);
}

BOOST_AUTO_TEST_CASE(simulated_shards_end_it_when_they_stop)
{
    std::atomic<bool> ended{false};
    virtual_clock clock;
    memory_budget budget(std::size_t(16) << 20);
    simulated_shards shards(clock, 7);
    shard& one = shards.add(budget);
    shards.add(budget);
    const auto begin = [&]() -> task<void> {
        left_behind(one.reactor()).spawn(until_stopped, std::ref(ended));
        co_return;
    };
    shards.run(one, begin());
    BOOST_TEST(!ended);
    shards.stop();
    BOOST_TEST(ended);
}

// In a child, which tells nobody of the memory that is lost.
BOOST_AUTO_TEST_CASE(what_can_never_end_is_abandoned_and_the_log_says_so)
{
    std::array<int, 2> ends{};
    BOOST_REQUIRE(::pipe(ends.data()) == 0);
    const pid_t child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child == 0) {
        ::dup2(ends[1], STDERR_FILENO);
        set_log_level(log_level::error);
        virtual_clock clock;
        reactor_options o;
        o.clock = &clock;
        auto never = std::make_unique<event>();
        auto shard = reactor::create(o).value();
        left_behind(*shard).spawn(deaf, std::ref(*never.release()));
        shard.reset();
        ::_exit(0);
    }
    ::close(ends[1]);
    std::string said;
    std::array<char, 512> part{};
    for (ssize_t n = 0; (n = ::read(ends[0], part.data(), part.size())) > 0;)
        said.append(part.data(), static_cast<std::size_t>(n));
    ::close(ends[0]);
    int status = 0;
    BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
    BOOST_TEST((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    BOOST_TEST(said.find("what was left to it to end can't end") != std::string::npos, said);
}

BOOST_AUTO_TEST_CASE(a_shard_has_its_own_threads_once_and_takes_them_along)
{
    auto shard = reactor::create().value();
    const auto made = own_threads_of(*shard);
    BOOST_TEST_REQUIRE(bool(made));
    BOOST_TEST(*own_threads_of(*shard) == *made);
    std::thread::id where;
    const auto ask = [&]() -> task<void> {
        auto look = [&] { where = std::this_thread::get_id(); };
        co_await (*made)->names.run(std::move(look));
    };
    run_until_complete(*shard, ask());
    BOOST_TEST((where != std::thread::id() && where != std::this_thread::get_id()));
    BOOST_TEST((*made)->names.threads() == own_threads::max_look_ups);
}

BOOST_AUTO_TEST_SUITE_END()
