// SPDX-License-Identifier: Apache-2.0
// Long polls: a worker asks for the next job, and its call is answered when there is one. Over TCP and over iWARP.
//
//   jobs
#include <verbena/clients/connect.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/semaphore.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>
#include <verbena/protocols/rpc/typed_program.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>
#include <verbena/transports/iwarp.hpp>
#include <verbena/transports/stream.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <stdexcept>
#include <string>

using namespace verbena;
using namespace std::chrono_literals;

namespace {

enum class status : std::uint32_t { ok, nothing_yet, full };
constexpr bool valid(status s) { return s <= status::full; }
constexpr std::string_view to_string(status s)
{
    return s == status::ok ? "done" : s == status::nothing_yet ? "nothing yet" : "too many jobs";
}
struct job {
    xdr::text<100> what;
};
struct next_args {
    std::uint32_t wait_ms = 0; // how long the worker would wait
};
constexpr rpc::program_definition jobs{"jobs", 0x20000044, 1};
constexpr rpc::procedure<job, void, status> put{jobs, 1, "PUT", rpc::effect::changes};
constexpr rpc::procedure<next_args, job, status> next{jobs, 2, "NEXT", rpc::effect::changes};

// Of one shard, as all that waits here does.
class jobs_program final : public rpc::typed_program {
public:
    static constexpr std::size_t most = 1000; // jobs that nobody has taken
    // Less than the time after which clients take a silent server for dead (rpc::client_options::timeout, 60 s).
    static constexpr auto longest_wait = 30'000ms;

    jobs_program() : typed_program(jobs)
    {
        on(put, [this](const job& j) {
            if (jobs_.size() == most)
                return status::full;
            jobs_.push_back(j);
            to_take_.release(); // wakes the worker that has waited longest
            return status::ok;
        });
        on(next, &jobs_program::give);
    }
    std::size_t waiting() const noexcept { return waiting_; } // workers

private:
    task<rpc::answer<job, status>> give(rpc::call& c, const next_args& a)
    {
        const std::chrono::milliseconds limit =
            std::min<std::chrono::milliseconds>(std::chrono::milliseconds(a.wait_ms), longest_wait);
        // Ends early when the worker's connection ends. So far nothing is changed.
        auto wait = with_timeout(limit, wait_for_one());
        ++waiting_;
        const auto came = co_await c.while_awaited(std::move(wait));
        --waiting_;
        if (came && c.caller_gone().stop_requested())
            to_take_.release(); // came and went: the job is another worker's
        if (!came || c.caller_gone().stop_requested()) {
            c.refuse(); // nothing was changed, so nothing is kept for a repeat
            co_return status::nothing_yet;
        }
        // From here on a change. The job is in the reply, which is kept: a repeat after a lost reply gets the same one.
        job taken = std::move(jobs_.front());
        jobs_.pop_front();
        co_return taken;
    }
    task<result<void>> wait_for_one()
    {
        const bool got = co_await to_take_.acquire();
        if (!got)
            co_return error(std::errc::operation_canceled);
        co_return result<void>();
    }

    std::deque<job> jobs_;
    semaphore to_take_{0}; // a permit for each job
    std::size_t waiting_ = 0;
};

void print(const char* who, const result<job>& got)
{
    const std::string text = got ? std::string(got->what.view()) : got.error().message();
    std::printf("%s: %s\n", who, text.c_str());
}

template<class T>
T or_throw(result<T> r)
{
    if (!r)
        throw std::runtime_error(r.error().message());
    return std::move(*r);
}

// A worker's loop has this body.
task<void> ask(const char* who, rpc::client_transport& server, std::chrono::milliseconds patience)
{
    const next_args args{static_cast<std::uint32_t>(patience.count())}; // named before co_await, for g++ 12
    const auto got = co_await next(server, args);
    print(who, got);
}

task<void> wait_for_workers(const jobs_program& program, std::size_t number)
{
    while (program.waiting() != number)
        co_await sleep_for(1ms);
}

task<void> hand_in(rpc::client_transport& server, const char* what)
{
    const job j{what};
    const auto done = co_await put(server, j);
    if (!done)
        std::printf("put: %s\n", done.error().message().c_str());
}

task<void> serve_and_work(reactor& shard, buffer_pool& buffers)
{
    jobs_program program;
    rpc::duplicate_request_cache replies(1);
    rpc::service_dispatcher calls(shard, &replies);
    calls.add(program);

    rpc::stream_server streams(shard, buffers, calls);
    auto adopt = [&streams](net::unique_fd socket, const net::endpoint& peer) {
        streams.adopt(std::move(socket), peer);
    };
    const auto any_port = or_throw(net::endpoint::parse("127.0.0.1:0"));
    auto tcp = or_throw(stream::listener::open(shard, any_port, std::move(adopt)));
    auto provider = iwarp::make_context(shard);
    auto rdma = or_throw(provider->listen("127.0.0.1:0"));
    const rpcrdma::responder_options options;
    rpcrdma::responder_stats stats;
    scope tasks(shard);
    tasks.spawn([&] { return rpcrdma::serve(*provider, *rdma, buffers, calls, options, stats); });

    rpc::connect_options patient;
    patient.client.timeout = 60s; // longer than any call waits here
    auto ann = or_throw(co_await rpc::connect(rdma->local_url(), patient));
    auto bob = or_throw(co_await rpc::connect(tcp->local_url(), patient));
    auto boss = or_throw(co_await rpc::connect(tcp->local_url(), patient));

    // Nobody has anything to do within 20 ms.
    co_await ask("ann", ann, 20ms);
    // Both wait. The one who waits longest gets the first job.
    {
        scope workers(shard);
        workers.spawn(ask, "ann", std::ref(ann), 30'000ms);
        co_await wait_for_workers(program, 1);
        workers.spawn(ask, "bob", std::ref(bob), 30'000ms);
        co_await wait_for_workers(program, 2);
        co_await hand_in(boss, "sweep");
        co_await hand_in(boss, "paint");
        co_await workers.join();
    }
    // Bob goes while he waits. The next job is not lost.
    {
        scope workers(shard);
        workers.spawn(ask, "bob", std::ref(bob), 30'000ms);
        co_await wait_for_workers(program, 1);
        co_await bob.close();
        co_await workers.join();
        co_await wait_for_workers(program, 0);
        co_await hand_in(boss, "mend");
        co_await ask("ann", ann, 30'000ms);
    }

    co_await ann.close();
    co_await boss.close();
    rdma->close();
    co_await tasks.join();
    const auto deadline = shard.clock().now() + 1s;
    co_await streams.shut_down(deadline);
}

} // namespace

int main()
try {
    auto shard = or_throw(reactor::create());
    memory_budget budget(std::size_t(16) << 20); // bytes, of all buffers together
    buffer_pool buffers(budget, shard.get());
    run_until_complete(*shard, serve_and_work(*shard, buffers));
} catch (const std::exception& e) {
    std::fprintf(stderr, "jobs: %s\n", e.what());
    return 1;
}
