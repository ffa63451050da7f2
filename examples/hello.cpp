// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/iwarp.hpp>

#include <cstdio>

using namespace verbena;

struct greeter final : rpc::program {
    std::uint32_t number() const noexcept override { return 0x20000042; }
    std::uint32_t low_version() const noexcept override { return 1; }
    std::uint32_t high_version() const noexcept override { return 1; }
    std::string_view name() const noexcept override { return "greeter"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t) const noexcept override { return "GREET"; }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    task<rpc::outcome> serve(rpc::call& c) override // a coroutine for each call
    {
        const std::string_view who = c.args().string(100);
        if (!c.args().at_end())
            co_return rpc::outcome::garbage_args;
        c.results().string("hello, " + std::string(who));
        co_return rpc::outcome::success;
    }
};

task<int> serve_and_call(reactor& shard, buffer_pool& buffers)
{
    greeter program;
    rpc::service_dispatcher calls(shard);
    calls.add(program);
    auto provider = iwarp::make_context(shard); // RDMA over an ordinary TCP socket
    auto listener = provider->listen("127.0.0.1:0").value();
    const rpcrdma::responder_options options;
    rpcrdma::responder_stats stats;
    scope tasks(shard);
    tasks.spawn([&] { return rpcrdma::serve(*provider, *listener, buffers, calls, options, stats); });

    auto server = rpcrdma::make_requester(*provider, buffers, listener->local_url().substr(8));
    rpc::call_header header;
    header.program = program.number();
    header.version = header.procedure = 1;
    lease memory = co_await server->acquire(1024);
    rpc::request request(std::move(memory), header);
    request.message().string("world");
    auto reply = co_await server->call(request);
    std::printf("%s\n",
                reply ? std::string(reply->results().string(200)).c_str() : reply.error().message().c_str());

    co_await server->close();
    listener->close();
    co_await tasks.join();
    co_return reply ? 0 : 1;
}

int main()
{
    auto shard = reactor::create().value();
    memory_budget budget(16 << 20); // bytes, of all buffers
    buffer_pool buffers(budget, shard.get());
    return run_until_complete(*shard, serve_and_call(*shard, buffers));
}
