// SPDX-License-Identifier: Apache-2.0
// A test of a service: a counter, served over verbs, whose clients add to it while messages are lost, connections break and
// devices go. Each run is decided by its seed, and hours of timeouts pass in milliseconds.
//
//   simulate [SEEDS [FIRST]]     so many runs, from seed FIRST; the first one that goes wrong ends it with its seed
#include <verbena/core/log.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>
#include <verbena/protocols/rpc/typed_program.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/testing/world.hpp>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

using namespace verbena;

namespace {

struct add_args {
    std::uint32_t amount;
};
struct add_result {
    std::uint64_t total;
};
constexpr rpc::program_definition counting{"counting", 0x20000043, 1};
// Whoever runs it twice counts twice.
constexpr rpc::procedure<add_args, add_result> add{counting, 1, "ADD", rpc::effect::changes};

class counting_program final : public rpc::typed_program {
public:
    counting_program() : typed_program(counting)
    {
        on(add, [this](rpc::call&, const add_args& a) { return add_result{total += a.amount}; });
    }
    std::uint64_t total = 0;
};

constexpr std::uint64_t clients = 4;
constexpr std::uint64_t calls_each = 50;

task<void> count(rpc::client_transport& server, std::uint64_t& failed)
{
    const add_args one{1}; // named before co_await, for g++ 12
    for (std::uint64_t i = 0; i < calls_each; ++i) {
        const auto done = co_await add(server, one);
        failed += !done;
    }
}

task<void> serve_and_count(testing::world& w, testing::host& here, testing::host& there,
                           counting_program& program)
{
    // Remembers the replies of calls that may not run twice; clients repeat what got no reply.
    rpc::duplicate_request_cache duplicates(1);
    rpc::service_dispatcher calls(w.shard(), &duplicates);
    calls.add(program);
    const rpcrdma::responder_options serving;
    rpcrdma::responder_stats stats;
    auto listener = here.device->listen(here.name).value();
    scope tasks(w.shard());
    tasks.spawn([&] { return rpcrdma::serve(*here.device, *listener, here.buffers, calls, serving, stats); });

    auto server = rpcrdma::make_requester(*there.device, there.buffers, here.name);
    std::uint64_t failed = 0;
    {
        scope counting_tasks(w.shard());
        for (std::uint64_t i = 0; i < clients; ++i)
            counting_tasks.spawn(count, std::ref(*server), std::ref(failed));
        co_await counting_tasks.join();
    }
    co_await server->close();
    listener->close();
    co_await tasks.join();
    if (failed != 0)
        throw std::runtime_error(std::to_string(failed) + " calls failed");
}

// Throws if the service breaks its promise: each call counts once, whatever happens on the way.
void run(std::uint64_t seed)
{
    testing::world_options o;
    o.seed = seed;
    o.conditions.latency = std::chrono::microseconds(20);
    o.conditions[loop::fault::drop] = 20'000; // per million messages
    o.conditions[loop::fault::delay] = 50'000;
    o.conditions[loop::fault::disconnect] = 5'000;
    o.conditions[loop::fault::device_removal] = 1'000;
    testing::world w(o);
    counting_program program;
    w.run(serve_and_count(w, w.add_host("server"), w.add_host("client"), program));
    if (program.total != clients * calls_each)
        throw std::runtime_error("the counter is " + std::to_string(program.total) + " after " +
                                 std::to_string(clients * calls_each) + " calls");
    if (const std::string left = w.left_over(); !left.empty())
        throw std::runtime_error("not given back: " + left);
}

} // namespace

int main(int argc, char** argv)
{
    set_log_level(log_level::warning); // connections end all the time
    const std::uint64_t seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100;
    if (seeds == 0) {
        std::fprintf(stderr, "usage: simulate [SEEDS [FIRST]], at least one seed\n");
        return 2;
    }
    const std::uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
        try {
            run(seed);
        } catch (const std::exception& e) {
            std::fprintf(stderr, "simulate: seed %llu: %s\n", static_cast<unsigned long long>(seed),
                         e.what());
            return 1;
        }
    }
    std::printf("%llu runs, each call counted once\n", static_cast<unsigned long long>(seeds));
    return 0;
}
