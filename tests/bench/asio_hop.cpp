// SPDX-License-Identifier: Apache-2.0
// What a hop costs: between two shards, between a task and Asio, on one thread and between two, there and back each.
//
//   asio_hop [ROUNDS [HOPS]]     prints the median of ROUNDS (9) interleaved runs of HOPS (20000) each
//
// All of one way follow each other, one at a time, so that between threads most of it is how soon a thread sees the other's message: a
// shard spins for 50 us, Asio sleeps. Beside them stand the same hops without verbena.
#include <verbena/asio/async_run.hpp>
#include <verbena/asio/nested_reactor.hpp>
#include <verbena/asio/shard_context.hpp>
#include <verbena/asio/use_task.hpp>
#include <verbena/core/reactor/runtime.hpp>

#include <asio.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace verbena;

namespace {

using steady = std::chrono::steady_clock;

class stopwatch {
public:
    double per(int hops) const
    {
        return std::chrono::duration<double, std::nano>(steady::now() - begun_).count() / hops;
    }

private:
    steady::time_point begun_ = steady::now();
};

struct asio_thread {
    asio::io_context io;
    asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
    std::thread thread{[this] { io.run(); }};
    ~asio_thread()
    {
        work.reset();
        thread.join();
    }
};

std::unique_ptr<runtime> two_shards()
{
    runtime_options o;
    o.shards = 2;
    return runtime::start(o).value();
}

double between_shards(runtime& rt, std::size_t to, int hops)
{
    const auto nothing = [] {};
    return rt.run(0, [&](shard&) -> task<double> {
        const stopwatch w;
        for (int i = 0; i < hops; ++i)
            co_await rt.at(to).run(nothing);
        co_return w.per(hops);
    });
}

double post_from_shard(runtime& rt, asio::io_context& io, int hops)
{
    return rt.run(0, [&](shard&) -> task<double> {
        const stopwatch w;
        for (int i = 0; i < hops; ++i)
            (void)co_await asio::post(io, use_task);
        co_return w.per(hops);
    });
}

/// async_run() again from each callback, on the thread of `io`.
template<class Where>
class callbacks {
public:
    callbacks(Where& where, asio::io_context& io, int hops) : where_(where), io_(io), left_(hops) {}
    void next()
    {
        if (left_-- == 0) {
            done_.set_value();
            return;
        }
        async_run(where_, [] {}, asio::bind_executor(io_, [this](const std::exception_ptr&) { next(); }));
    }
    std::future<void> done() { return done_.get_future(); }

private:
    Where& where_;
    asio::io_context& io_;
    int left_;
    std::promise<void> done_;
};

double callbacks_from_asio(runtime& rt, asio::io_context& io, int hops)
{
    const shard& where = rt.at(0);
    callbacks<const shard> c(where, io, hops);
    auto done = c.done();
    const stopwatch w;
    asio::post(io, [&] { c.next(); });
    done.wait();
    return w.per(hops);
}

struct nested_shard {
    asio::io_context io;
    std::unique_ptr<reactor> shard = reactor::create().value();
    nested_reactor nested{io, *shard};
    scope tasks{*shard};
    ~nested_shard()
    {
        nested.close();
        const auto join = [](scope& s) -> task<void> { co_await s.join(); };
        run_until_complete(*shard, join(tasks));
    }
};

double post_nested(nested_shard& n, int hops)
{
    double took = 0;
    n.tasks.spawn([&]() -> task<void> {
        const stopwatch w;
        for (int i = 0; i < hops; ++i)
            (void)co_await asio::post(n.io, use_task);
        took = w.per(hops);
        n.io.stop();
    });
    n.nested.wake();
    n.io.restart();
    n.io.run();
    return took;
}

double callbacks_nested(nested_shard& n, int hops)
{
    callbacks<scope> c(n.tasks, n.io, hops);
    auto done = c.done();
    const stopwatch w;
    asio::post(n.io, [&] { c.next(); });
    n.io.restart();
    while (done.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
        n.io.run_one();
    return w.per(hops);
}

double awaitable_alone(int hops)
{
    asio::io_context io;
    double took = 0;
    const auto body = [&]() -> asio::awaitable<void> {
        const stopwatch w;
        for (int i = 0; i < hops; ++i)
            co_await asio::post(io, asio::use_awaitable);
        took = w.per(hops);
    };
    asio::co_spawn(io, body, asio::detached);
    io.run();
    return took;
}

double between_asios(asio::io_context& one, asio::io_context& other, int hops)
{
    std::promise<void> done;
    int left = hops;
    std::function<void()> there;
    const std::function<void()> back = [&] {
        if (left-- == 0)
            done.set_value();
        else
            asio::post(other, there);
    };
    there = [&] { asio::post(one, back); };
    const stopwatch w;
    asio::post(one, back);
    done.get_future().wait();
    return w.per(hops);
}

} // namespace

int main(int argc, char** argv)
{
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
    const int hops = argc > 2 ? std::atoi(argv[2]) : 20000;
    if (rounds < 1 || hops < 1) {
        std::fprintf(stderr, "usage: asio_hop [ROUNDS [HOPS]]\n");
        return 2;
    }
    asio_thread one;
    asio_thread other;
    const auto rt = two_shards();
    const auto beside_asio = runtime::start().value();
    nested_shard nested;
    struct way {
        const char* name;
        std::function<double(int)> run;
        std::vector<double> nanoseconds = {};
    };
    std::vector<way> ways{
        {"co_await shard.run(f), the same shard", [&](int n) { return between_shards(*rt, 0, n); }},
        {"co_await shard.run(f), another shard", [&](int n) { return between_shards(*rt, 1, n); }},
        {"co_await post(io, use_task), nested, one thread", [&](int n) { return post_nested(nested, n); }},
        {"co_await post(io, use_task), another thread",
         [&](int n) { return post_from_shard(*beside_asio, one.io, n); }},
        {"async_run(f, callback), nested, one thread", [&](int n) { return callbacks_nested(nested, n); }},
        {"async_run(f, callback), another thread",
         [&](int n) { return callbacks_from_asio(*beside_asio, one.io, n); }},
        {"Asio alone: co_await post(io, use_awaitable)", [&](int n) { return awaitable_alone(n); }},
        {"Asio alone: post() to another thread's io_context and back",
         [&](int n) { return between_asios(one.io, other.io, n); }},
    };
    for (way& w : ways)
        (void)w.run(hops / 10 + 1);
    for (int i = 0; i < rounds; ++i) {
        for (way& w : ways)
            w.nanoseconds.push_back(w.run(hops));
    }
    std::printf("%-60s %10s %10s %10s\n", "ns, there and back", "median", "least", "most");
    for (way& w : ways) {
        std::ranges::sort(w.nanoseconds);
        std::printf("%-60s %10.0f %10.0f %10.0f\n", w.name, w.nanoseconds[w.nanoseconds.size() / 2],
                    w.nanoseconds.front(), w.nanoseconds.back());
    }
    return 0;
}
