// SPDX-License-Identifier: Apache-2.0
// verbena in a loop that is not its own: a program with a poll(2) loop reads names, and a service and its caller over iWARP,
// in a reactor that is nested in that loop, greet them. It sleeps in one place, for both.
//
//   printf 'ada\ngrace\n' | nested
#include <verbena/clients/connect.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/typed_program.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/iwarp.hpp>

#include <array>
#include <cerrno>
#include <cstdio>
#include <poll.h>
#include <string>
#include <unistd.h>

using namespace verbena;

struct greet_args {
    xdr::text<100> name;
};
struct greet_result {
    xdr::text<200> text;
};
constexpr rpc::program_definition greeter{"greeter", 0x20000042, 1};
constexpr rpc::procedure<greet_args, greet_result> greet{greeter, 1, "GREET", rpc::effect::none};

struct greeter_program final : rpc::typed_program {
    greeter_program() : typed_program(greeter)
    {
        on(greet, [](const greet_args& a) { return greet_result{"hello, " + std::string(a.name.view())}; });
    }
};

task<void> print_greeting(rpc::client_transport& server, std::string name)
{
    const greet_args args{name}; // named before co_await, for g++ 12
    const auto answer = co_await greet(server, args);
    const std::string text = answer ? std::string(answer->text.view()) : answer.error().message();
    std::printf("%s\n", text.c_str());
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
    greeter_program program;
    rpc::service_dispatcher calls(*shard);
    calls.add(program);
    auto provider = iwarp::make_context(*shard);
    auto listener = provider->listen("127.0.0.1:0").value();
    const rpcrdma::responder_options options;
    rpcrdma::responder_stats stats;
    scope services(*shard);
    services.spawn([&] { return rpcrdma::serve(*provider, *listener, buffers, calls, options, stats); });
    auto server = run_until_complete(*shard, rpc::connect(listener->local_url())).value();
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
            greetings.spawn([&] { return print_greeting(server, line); });
            line.clear();
        }
        if (n <= 0) {
            names.fd = -1; // poll(2) passes it over
            ending.spawn([&] { return end(greetings, services, server, *listener, over); });
        }
    }
    return 0;
}
