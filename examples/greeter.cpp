// SPDX-License-Identifier: Apache-2.0
// A service of your own: one RPC program, served and called over TCP and over iWARP. The program never
// learns which transport carried a call.
//
//   greeter NAME...        serves on two free ports of 127.0.0.1, greets each NAME over both, ends
#include <verbena/core/scope.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/stream_client.hpp>
#include <verbena/protocols/rpc/stream_server.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/iwarp.hpp>
#include <verbena/transports/stream.hpp>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

using namespace verbena;

namespace {

constexpr std::uint32_t program_number = 0x20000042; // RFC 5531 8.4: 0x20000000 and up are the user's own
constexpr std::uint32_t greet = 1;
constexpr std::uint32_t max_name = 100;

class greeter final : public rpc::program {
public:
    std::uint32_t number() const noexcept override { return program_number; }
    std::uint32_t low_version() const noexcept override { return 1; }
    std::uint32_t high_version() const noexcept override { return 1; }
    std::string_view name() const noexcept override { return "greeter"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t p) const noexcept override
    {
        return p == 0 ? "NULL" : p == greet ? "GREET" : "";
    }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    task<rpc::outcome> serve(rpc::call& c) override
    {
        if (c.header().procedure == 0)
            co_return rpc::outcome::success;
        if (c.header().procedure != greet)
            co_return rpc::outcome::proc_unavail;
        const std::string_view who = c.args().string(max_name);
        if (!c.args().at_end())
            co_return rpc::outcome::garbage_args;
        std::string text = "hello, ";
        text.append(who).append(", by ").append(c.from().transport);
        c.results().string(text);
        co_return rpc::outcome::success;
    }
};

// The call's memory is taken from the transport, so that it travels without a copy.
task<result<std::string>> call(rpc::client_transport& server, const std::string& name)
{
    rpc::call_header header;
    header.program = program_number;
    header.version = 1;
    header.procedure = greet;
    lease block = co_await server.acquire(1024);
    rpc::request request(std::move(block), header);
    request.message().string(name);
    auto reply = co_await server.call(request);
    if (!reply)
        co_return reply.error();
    std::string text(reply->results().string(256));
    if (!reply->results().at_end())
        co_return error(std::errc::bad_message, "a garbled reply");
    co_return text;
}

template<class T>
T or_throw(result<T> r)
{
    if (!r)
        throw std::runtime_error(r.error().message());
    return std::move(*r);
}

bool print(const result<std::string>& greeting)
{
    std::printf("%s\n", greeting ? greeting->c_str() : greeting.error().message().c_str());
    return bool(greeting);
}

// Set-up throws; what peers do after that comes as a result.
task<bool> serve_and_call(reactor& shard, buffer_pool& buffers, const std::vector<std::string>& names)
{
    greeter program;
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

    auto over_tcp = or_throw(rpc::make_stream_client(shard, buffers, tcp->local_url().substr(6)));
    auto over_iwarp = rpcrdma::make_requester(*provider, buffers, rdma->local_url().substr(8));

    scope tasks(shard);
    tasks.spawn([&] { return rpcrdma::serve(*provider, *rdma, buffers, calls, options, stats); });
    bool good = true;
    for (const std::string& name : names) {
        const auto by_tcp = co_await call(*over_tcp, name);
        const auto by_iwarp = co_await call(*over_iwarp, name);
        good = print(by_tcp) && print(by_iwarp) && good;
    }
    co_await over_tcp->close();
    co_await over_iwarp->close();
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
