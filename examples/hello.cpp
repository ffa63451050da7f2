// SPDX-License-Identifier: Apache-2.0
#include <verbena/clients/connect.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/typed_program.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/iwarp.hpp>

#include <cstdio>
#include <string>

using namespace verbena;

// What both ends share: a program, and its procedure from one struct to another.
struct greet_args {
    xdr::text<100> name;
};
struct greet_result {
    xdr::text<200> text;
};
constexpr rpc::program_definition greeter{"greeter", 0x20000042, 1};
constexpr rpc::procedure<greet_args, greet_result> greet{greeter, 1, "GREET", rpc::effect::none};

// The server's side.
struct greeter_program final : rpc::typed_program {
    greeter_program() : typed_program(greeter)
    {
        on(greet, [](const greet_args& a) { return greet_result{"hello, " + std::string(a.name)}; });
    }
};

// The client's side: with_client("iwarp://...", greet_world) connects, calls this and closes.
task<result<greet_result>> greet_world(rpc::client& server)
{
    const greet_args world{"world"};
    co_return co_await greet(server, world);
}

task<int> serve_and_call(reactor& shard, buffer_pool& buffers, std::string address)
{
    greeter_program program;
    rpc::service_dispatcher calls(shard);
    calls.add(program);
    auto provider = iwarp::make_context(shard); // RDMA over an ordinary TCP socket
    auto listener = provider->listen(address);
    if (!listener) {
        std::printf("%s\n", listener.error().message().c_str());
        co_return 1;
    }
    const rpcrdma::responder_options options;
    rpcrdma::responder_stats stats;
    scope tasks(shard);
    tasks.spawn([&] { return rpcrdma::serve(*provider, **listener, buffers, calls, options, stats); });

    const auto greeting = co_await rpc::with_client((*listener)->local_url(), greet_world);
    std::printf("%s\n", greeting ? std::string(greeting->text).c_str() : greeting.error().message().c_str());

    (*listener)->close();
    co_await tasks.join();
    co_return greeting ? 0 : 1;
}

int main(int argc, char** argv)
{
    auto shard = reactor::create().value();
    memory_budget budget(16 << 20); // bytes, of all buffers
    buffer_pool buffers(budget, shard.get());
    return run_until_complete(*shard, serve_and_call(*shard, buffers, argc > 1 ? argv[1] : "127.0.0.1:7042"));
}
