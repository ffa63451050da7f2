// SPDX-License-Identifier: Apache-2.0
// verbena in a loop that is not its own: a program with a poll(2) loop reads names, and a service and its caller over iWARP,
// in a reactor that is nested in that loop, greet them. It sleeps in one place, for both.
//
//   printf 'ada\ngrace\n' | nested
#include <verbena/core/scope.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/iwarp.hpp>

#include <array>
#include <cerrno>
#include <cstdio>
#include <poll.h>
#include <string>
#include <unistd.h>

using namespace verbena;

struct greeter final : rpc::program {
    std::uint32_t number() const noexcept override { return 0x20000042; }
    std::uint32_t low_version() const noexcept override { return 1; }
    std::uint32_t high_version() const noexcept override { return 1; }
    std::string_view name() const noexcept override { return "greeter"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t) const noexcept override { return "GREET"; }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    task<rpc::outcome> serve(rpc::call& c) override
    {
        const std::string_view who = c.args().string(100);
        if (!c.args().at_end())
            co_return rpc::outcome::garbage_args;
        c.results().string("hello, " + std::string(who));
        co_return rpc::outcome::success;
    }
};

task<void> greet(rpc::client_transport& server, std::string name)
{
    rpc::call_header header;
    header.program = 0x20000042;
    header.version = header.procedure = 1;
    lease memory = co_await server.acquire(1024);
    rpc::request request(std::move(memory), header);
    request.message().string(name);
    auto reply = co_await server.call(request);
    std::printf("%s\n",
                reply ? std::string(reply->results().string(200)).c_str() : reply.error().message().c_str());
}

// Ends when `names` is closed and all of them are greeted.
task<void> end(scope& greetings, scope& services, rpc::client_transport& server, verbs::listener& listener,
               bool& over)
{
    co_await greetings.join();
    co_await server.close();
    listener.close();
    co_await services.join();
    over = true;
}

int main()
{
    auto shard = reactor::create().value();
    memory_budget budget(16 << 20);
    buffer_pool buffers(budget, shard.get());
    greeter program;
    rpc::service_dispatcher calls(*shard);
    calls.add(program);
    auto provider = iwarp::make_context(*shard);
    auto listener = provider->listen("127.0.0.1:0").value();
    const rpcrdma::responder_options options;
    rpcrdma::responder_stats stats;
    scope services(*shard);
    services.spawn([&] { return rpcrdma::serve(*provider, *listener, buffers, calls, options, stats); });
    auto server = rpcrdma::make_requester(*provider, buffers, listener->local_url().substr(8));
    scope greetings(*shard);
    scope ending(*shard);

    std::array<pollfd, 2> watched{{{STDIN_FILENO, POLLIN, 0}, {shard->native_handle().value(), POLLIN, 0}}};
    pollfd& names = watched[0];
    const pollfd& of_reactor = watched[1];
    std::string line;
    for (bool over = false; !over;) {
        // The reactor says whether the program may sleep.
        const bool armed = shard->try_arm();
        if (::poll(watched.data(), watched.size(), armed ? -1 : 0) < 0) {
            if (errno != EINTR)
                return 1;
            continue;
        }
        if (!armed || of_reactor.revents != 0)
            shard->poll();
        // What follows is the program's own. It may use the reactor, on this thread.
        if (names.revents == 0)
            continue;
        std::array<char, 256> some;
        const auto n = ::read(STDIN_FILENO, some.data(), some.size());
        for (char c : std::string_view(some.data(), n > 0 ? std::size_t(n) : 0)) {
            if (c != '\n') {
                line += c;
                continue;
            }
            greetings.spawn([&] { return greet(*server, line); });
            line.clear();
        }
        if (n <= 0) {
            names.fd = -1; // poll(2) passes it over
            ending.spawn([&] { return end(greetings, services, *server, *listener, over); });
        }
    }
    return 0;
}
