// SPDX-License-Identifier: Apache-2.0
// An export whose file system hangs: calls are put off at once where as many wait for it as may.
#include <boost/test/unit_test.hpp>

#include "temporary_directory.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/plugins/posixfs.hpp>

#include <atomic>
#include <cerrno>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>

BOOST_AUTO_TEST_SUITE(posixfs_queue_test)

using namespace verbena;
using namespace verbena::storage;

namespace {

struct hung_job final : blocking_pool::job {
    explicit hung_job(std::shared_future<void> g) : gate(std::move(g)) {}
    void execute() noexcept override
    {
        runs = true;
        gate.wait();
    }
    void deliver() noexcept override {}
    std::shared_future<void> gate;
    std::atomic<bool> runs{false};
};

} // namespace

BOOST_AUTO_TEST_CASE(where_too_many_calls_wait_others_are_put_off)
{
    const suite::temporary_directory directory;
    auto shard = std::move(*reactor::create());
    std::promise<void> let_go;
    const std::shared_future<void> gate = let_go.get_future().share();
    std::deque<hung_job> hung;
    blocking_pool lane(1, "export /hung");
    posixfs::posixfs_options o;
    o.root = directory.path();
    o.callers_are_daemon = ::geteuid() != 0;
    auto opened = posixfs::open_posixfs(o, lane);
    BOOST_REQUIRE(opened);
    const auto fs = std::move(*opened);
    request r;
    r.who = credential(::geteuid(), ::getegid());
    auto go = [&, gone = false]() mutable {
        if (!std::exchange(gone, true))
            let_go.set_value();
    };
    // The errno of what opens the file system's files first, 0 for none. What is not put off waits for what hangs, which goes then.
    const auto outcome = [&](auto call) {
        std::optional<int> errno_value;
        const auto note = [](auto& called, std::optional<int>& out) -> task<void> {
            const auto done = co_await called;
            out = done ? 0 : done.error().errno_value();
        };
        scope tasks(*shard);
        tasks.spawn([&] { return note(call, errno_value); });
        for (int i = 0; i < 1000 && !errno_value; ++i)
            shard->turn();
        if (!errno_value)
            go();
        while (tasks.live() != 0)
            shard->turn();
        return *errno_value;
    };
    const auto fill = [&] {
        while (lane.look().queued < blocking_pool::max_queued)
            BOOST_REQUIRE(lane.submit(hung.emplace_back(gate)));
    };
    BOOST_REQUIRE(lane.submit(hung.emplace_back(gate)));
    while (!hung.front().runs) // behind what open_posixfs() has left to the lane
        std::this_thread::yield();
    fill();
    set_attributes set;
    set.mode = 0600;
    BOOST_TEST(outcome(fs->getattr(r, fs->root())) == EAGAIN);
    BOOST_TEST(outcome(fs->lookup(r, fs->root(), "f")) == EAGAIN);
    BOOST_TEST(outcome(fs->statfs(r, fs->root())) == EAGAIN);
    BOOST_TEST(outcome(fs->access(r, fs->root(), 4)) == EAGAIN);
    BOOST_TEST(outcome(fs->create(r, fs->root(), "f", create_mode::guarded, set, 0)) == EAGAIN);
    BOOST_TEST(lane.refused() == 5u);
    go();
    while (lane.look().queued != 0 || lane.look().running != 0)
        std::this_thread::yield();
    BOOST_TEST(outcome(fs->getattr(r, fs->root())) == 0);
    BOOST_TEST(outcome(fs->create(r, fs->root(), "f", create_mode::guarded, set, 0)) == 0);
    BOOST_TEST(lane.refused() == 5u);
    lane.finish();
}

BOOST_AUTO_TEST_SUITE_END()
