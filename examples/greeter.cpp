// SPDX-License-Identifier: Apache-2.0
// A service of your own: one RPC program, served and called over TCP and over iWARP. The program never
// learns which transport carried a call.
//
//   greeter NAME...        serves on two free ports of 127.0.0.1, greets each NAME over one and the other, ends
#include <verbena/clients/connect.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/typed_program.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>
#include <verbena/transports/iwarp.hpp>
#include <verbena/transports/stream.hpp>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

using namespace verbena;

namespace {

struct greet_args {
    xdr::text<100> name;
};
struct greet_result {
    xdr::text<200> text;
};
constexpr rpc::program_definition greeter{"greeter", 0x20000042,
                                          1}; // RFC 5531 8.4: 0x20000000 and up are the user's own
constexpr rpc::procedure<greet_args, greet_result> greet{greeter, 1, "GREET", rpc::effect::none};

class greeter_program final : public rpc::typed_program {
public:
    greeter_program() : typed_program(greeter)
    {
        on(greet, [](rpc::call& c, const greet_args& a) {
            std::string text = "hello, ";
            text.append(a.name).append(", by ").append(c.from().transport);
            return greet_result{text};
        });
    }
};

template<class T>
T or_throw(result<T> r)
{
    if (!r)
        throw std::runtime_error(r.error().message());
    return std::move(*r);
}

// The client's side, which knows no transport.
task<result<void>> greet_all(rpc::client& server, const std::vector<std::string>& names)
{
    for (const std::string& name : names) {
        const greet_args args{name}; // named before co_await, for g++ 12
        const auto greeting = co_await greet(server, args);
        if (!greeting)
            co_return greeting.error();
        std::printf("%s\n", std::string(greeting->text).c_str());
    }
    co_return result<void>();
}

// Set-up throws; what peers do after that comes as a result.
task<bool> serve_and_call(reactor& shard, buffer_pool& buffers, const std::vector<std::string>& names)
{
    greeter_program program;
    rpc::service_dispatcher calls(shard);
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
    bool good = true;
    for (const std::string& url : {tcp->local_url(), rdma->local_url()}) {
        auto use = [&names](rpc::client& server) { return greet_all(server, names); };
        const auto done = co_await rpc::with_client(url, std::move(use)); // closes it
        if (!done)
            std::fprintf(stderr, "greeter: %s: %s\n", url.c_str(), done.error().message().c_str());
        good = good && done;
    }
    rdma->close();
    co_await tasks.join();
    const auto deadline = shard.clock().now() + std::chrono::seconds(1);
    co_await streams.shut_down(deadline);
    co_return good;
}

} // namespace

int main(int argc, char** argv)
{
    std::vector<std::string> names(argv + 1, argv + argc);
    if (names.empty())
        names.emplace_back("world");
    try {
        auto shard = or_throw(reactor::create());
        memory_budget budget(std::size_t(16) << 20); // bytes, of all buffers together
        buffer_pool buffers(budget, shard.get());
        return run_until_complete(*shard, serve_and_call(*shard, buffers, names)) ? 0 : 1;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "greeter: %s\n", e.what());
        return 1;
    }
}
