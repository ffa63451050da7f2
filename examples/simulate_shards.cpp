// SPDX-License-Identifier: Apache-2.0
// A test of a service whose shards share what one of them keeps: a total lives on one shard, another shard serves calls
// that add to it. A seed decides in which order the shards' messages meet, which messages of the wire are lost, and
// which connections break.
//
//   simulate_shards [SEEDS [FIRST]]
//
// So many runs, from seed FIRST. The first one that goes wrong ends it with its seed.
#include <verbena/clients/connect.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/reactor/simulated_shards.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>
#include <verbena/protocols/rpc/typed_program.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/loop.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

using namespace verbena;

namespace {

struct add_args {
    std::uint32_t amount = 0;
};
struct add_result {
    std::uint64_t total = 0;
};
constexpr rpc::program_definition counting{"counting", 0x20000043, 1};
constexpr rpc::procedure<add_args, add_result> add{counting, 1, "ADD", rpc::effect::changes};

// Each shard has a program; what they share belongs to the shard `home`.
class counting_program final : public rpc::typed_program {
public:
    counting_program(shard& home, std::uint64_t& total) : typed_program(counting), home_(home), total_(total)
    {
        on(add, &counting_program::add_there);
    }

private:
    task<add_result> add_there(const add_args& a)
    {
        auto there = [this, amount = a.amount] { return total_ += amount; }; // named, for g++ 12
        const std::uint64_t total = co_await home_.run(std::move(there));
        co_return add_result{total};
    }
    shard& home_;
    std::uint64_t& total_; // touched at home only
};

// What serves on one shard. Made, used and destroyed in turns of that shard.
class server {
public:
    server(shard& here, loop::context& device, shard& home, std::uint64_t& total)
        : program_(home, total), calls_(here.reactor(), &duplicates_), tasks_(here.reactor())
    {
        calls_.add(program_);
        listener_ = device.listen("server").value();
        tasks_.spawn([this, &here, &device] {
            return rpcrdma::serve(device, *listener_, here.buffers(), calls_, options_, stats_);
        });
    }
    task<void> close()
    {
        listener_->close();
        co_await tasks_.join();
    }

private:
    counting_program program_;
    rpc::duplicate_request_cache duplicates_{1};
    rpc::service_dispatcher calls_;
    const rpcrdma::responder_options options_;
    rpcrdma::responder_stats stats_;
    std::unique_ptr<verbs::listener> listener_;
    scope tasks_;
};

constexpr std::uint64_t calls = 50;

task<result<void>> count(rpc::client& server)
{
    const add_args one{1};
    for (std::uint64_t i = 0; i < calls; ++i) {
        const auto done = co_await add(server, one);
        if (!done)
            co_return done.error();
    }
    co_return result<void>();
}

// On the client's shard. It fails by a result and not by an exception, so that all is closed before anybody hears why.
task<result<void>> serve_and_count(shard& home, std::uint64_t& total, shard& serving,
                                   loop::context& at_serving, shard& calling, loop::context& at_calling)
{
    std::unique_ptr<server> s;
    auto open = [&] { s = std::make_unique<server>(serving, at_serving, home, total); };
    co_await serving.run(std::move(open));

    rpc::connect_options o;
    o.provider = &at_calling; // with_client() sees to it that the client is gone before these are
    o.buffers = &calling.buffers();
    const std::string url = "loop://server";
    const auto done = co_await rpc::with_client(url, count, std::move(o));

    auto close = [&s]() -> task<void> {
        co_await s->close();
        s.reset();
    };
    co_await serving.run(std::move(close));
    co_return done;
}

void run(std::uint64_t seed)
{
    // They go in the reverse order: shards and devices before the clock, the budget and the total that they use.
    virtual_clock clock;
    memory_budget budget(std::size_t(64) << 20);
    std::uint64_t total = 0;
    simulated_shards all(clock, seed);
    shard& home = all.add(budget);
    shard& serving = all.add(budget);
    shard& calling = all.add(budget);

    loop::fabric_options faults;
    faults.seed = seed;
    faults.conditions.latency = std::chrono::microseconds(20);
    faults.conditions[loop::fault::drop] = 20'000; // per million messages
    faults.conditions[loop::fault::disconnect] = 5'000;
    const auto fabric = loop::make_fabric(home.reactor(), faults);
    loop::options named;
    named.name = "server";
    const auto server_device = fabric->make_device(named);
    named.name = "client";
    const auto client_device = fabric->make_device(named);
    const auto at_serving = server_device->make_context(serving.reactor()); // a verbs::context
    const auto at_calling = client_device->make_context(calling.reactor());

    const auto done =
        all.run(calling, serve_and_count(home, total, serving, *at_serving, calling, *at_calling));
    if (!done)
        throw std::runtime_error("a call failed: " + done.error().message());
    if (total != calls)
        throw std::runtime_error("the total is " + std::to_string(total) + " after " + std::to_string(calls) +
                                 " calls");
    if (all.messages(serving.index(), home.index()) == 0)
        throw std::runtime_error("no call went to the shard that has the total");
}

} // namespace

int main(int argc, char** argv)
{
    set_log_level(log_level::warning); // connections end all the time
    const std::uint64_t seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100;
    if (seeds == 0) {
        std::fprintf(stderr, "usage: simulate_shards [SEEDS [FIRST]], at least one seed\n");
        return 2;
    }
    const std::uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
        try {
            run(seed);
        } catch (const std::exception& e) {
            std::fprintf(stderr, "simulate_shards: seed %llu: %s\n", static_cast<unsigned long long>(seed),
                         e.what());
            return 1;
        }
    }
    std::printf("%llu runs, each call counted once\n", static_cast<unsigned long long>(seeds));
    return 0;
}
