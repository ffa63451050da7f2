// SPDX-License-Identifier: Apache-2.0
// A program whose tasks wait, for gdb_test.py: two shards, and known tasks on both. It stops itself by SIGUSR2 once they wait.
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/semaphore.hpp>
#include <verbena/core/task/sleep.hpp>

#include <csignal>
#include <cstdio>
#include <functional>
#include <latch>

namespace hung {

using namespace verbena;

task<bool> take_permit(semaphore& s) { co_return co_await s.acquire(); }

task<int> read_block(semaphore& s)
{
    const bool got = co_await take_permit(s);
    co_return got ? 1 : 0;
}

task<void> wait_for(event& e) { (void)co_await e.wait(); }

template<class T>
task<void> serve(T& s)
{
    (void)co_await read_block(s);
}

task<void> both(semaphore& s, event& e) { co_await when_all(wait_for(e), read_block(s)); }

task<void> block(blocking_pool& lane, std::latch& begun, std::latch& end)
{
    auto wait = [&] {
        begun.count_down();
        end.wait();
    };
    co_await lane.run(std::move(wait));
}

task<void> ask(shard& other, event& e)
{
    auto there = [](event& on) -> task<void> { co_await wait_for(on); };
    co_await other.run(there, std::ref(e));
}

task<void> ends(event& e) { (void)co_await e.wait(); }

} // namespace hung

int main()
{
    using namespace verbena;
    runtime_options options;
    options.shards = 2;
    auto made = runtime::start(options);
    if (!made) {
        std::fprintf(stderr, "%s\n", made.error().message().c_str());
        return 1;
    }
    runtime& rt = **made;
    blocking_pool* lane = *rt.add_lane("slow disk", 1);
    semaphore permits(0);
    event never;
    event soon;
    std::latch begun(1);
    std::latch end(1);
    rt.call(0, [&](shard& s) {
        s.tasks().spawn(hung::ends, std::ref(soon));
        s.tasks().spawn(hung::serve<semaphore>, std::ref(permits));
        s.tasks().spawn(hung::both, std::ref(permits), std::ref(never));
        s.tasks().spawn(hung::block, std::ref(*lane), std::ref(begun), std::ref(end));
        s.tasks().spawn([&](std::latch&) -> task<void> { (void)co_await sleep_for(std::chrono::hours(1)); },
                        std::ref(end));
        soon.set();
    });
    event over_there;
    rt.call(0, [&](shard& s) { s.tasks().spawn(hung::ask, std::ref(rt.at(1)), std::ref(over_there)); });
    begun.wait();
    while (rt.call(1, [](shard& s) { return s.tasks().live(); }) == 0) { // the call comes there by a message
    }
    std::raise(SIGUSR2);
    end.count_down();
    rt.stop();
    return 0;
}
