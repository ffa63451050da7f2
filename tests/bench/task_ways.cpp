// SPDX-License-Identifier: Apache-2.0
// What awaiting costs: a task that has ended, a chain that waits, a scope's child. Nanoseconds of the processor for one, on standard
// output.
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/semaphore.hpp>

#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>

using namespace verbena;

namespace {

[[gnu::noinline]] task<int> ready(int n) { co_return n; }

task<long> finished_tasks(long n)
{
    long total = 0;
    for (long i = 0; i < n; ++i)
        total += co_await ready(1);
    co_return total;
}

task<bool> inner(semaphore& s) { co_return co_await s.acquire(); }
task<bool> middle(semaphore& s) { co_return co_await inner(s); }

task<void> player(semaphore& in, semaphore& out, long n)
{
    for (long i = 0; i < n; ++i) {
        const bool got = co_await middle(in);
        if (!got)
            co_return;
        out.release();
    }
}

// Each turn a chain of two tasks waits and goes on.
task<long> waiting_tasks(long n)
{
    const task_context& context = co_await current_context();
    semaphore ping(0);
    semaphore pong(0);
    scope s(*context.shard);
    s.spawn(player, std::ref(ping), std::ref(pong), n / 2);
    s.spawn(player, std::ref(pong), std::ref(ping), n / 2);
    ping.release();
    co_await s.join();
    co_return n;
}

task<void> nothing() { co_return; }

task<long> children(long n)
{
    const task_context& context = co_await current_context();
    scope s(*context.shard);
    for (long i = 0; i < n; ++i)
        s.spawn(nothing);
    co_await s.join();
    co_return n;
}

task<long> pairs(long n)
{
    for (long i = 0; i < n; ++i)
        co_await when_all(nothing(), nothing());
    co_return n;
}

double processor_nanoseconds()
{
    timespec t;
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return double(t.tv_sec) * 1e9 + double(t.tv_nsec);
}

double measure(reactor& r, task<long> (*what)(long), long n)
{
    run_until_complete(r, what(n / 10));
    const double begin = processor_nanoseconds();
    run_until_complete(r, what(n));
    return (processor_nanoseconds() - begin) / double(n);
}

} // namespace

int main()
{
    auto r = reactor::create();
    if (!r) {
        std::fprintf(stderr, "%s\n", r.error().message().c_str());
        return 1;
    }
    std::printf("{\"finished\": %.3f, \"waiting\": %.3f, \"child\": %.3f, \"when_all\": %.3f}\n",
                measure(**r, finished_tasks, 5'000'000), measure(**r, waiting_tasks, 1'000'000),
                measure(**r, children, 3'000'000), measure(**r, pairs, 500'000));
}
