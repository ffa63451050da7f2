// SPDX-License-Identifier: Apache-2.0
// verbena in a program of Asio's, in one thread: a TCP server made of Asio's coroutines reads names, and has each of them greeted by
// a verbena service over iWARP, whose procedure awaits a timer of Asio's in turn.
//
//   asio NAME...        serves on free ports of 127.0.0.1, greets each NAME through both, ends
#include <verbena/asio/async_run.hpp>
#include <verbena/asio/nested_reactor.hpp>
#include <verbena/asio/use_task.hpp>
#include <verbena/clients/connect.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/iwarp.hpp>

#include <asio.hpp>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

using namespace verbena;
using asio::use_awaitable;
using asio::ip::tcp;

struct greeter final : rpc::program {
    explicit greeter(asio::io_context& c) : io(c) {}
    std::uint32_t number() const noexcept override { return 0x20000042; }
    std::uint32_t low_version() const noexcept override { return 1; }
    std::uint32_t high_version() const noexcept override { return 1; }
    std::string_view name() const noexcept override { return "greeter"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t) const noexcept override { return "GREET"; }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    task<rpc::outcome> serve(rpc::call& c) override
    {
        const std::string who(c.args().string(100));
        if (!c.args().at_end())
            co_return rpc::outcome::garbage_args;
        // A task of verbena's awaits Asio. It might be a socket, a resolver, a process.
        asio::steady_timer pause(io, std::chrono::milliseconds(1));
        const result<void> over = co_await pause.async_wait(use_task);
        if (!over)
            co_return rpc::outcome::system_error;
        c.results().string("hello, " + who);
        co_return rpc::outcome::success;
    }
    asio::io_context& io;
};

task<result<std::string>> greet(rpc::client_transport& service, std::string name)
{
    rpc::call_header header;
    header.program = 0x20000042;
    header.version = header.procedure = 1;
    lease memory = co_await service.acquire(1024);
    rpc::request request(std::move(memory), header);
    request.message().string(name);
    auto reply = co_await service.call(request);
    if (!reply)
        co_return reply.error();
    co_return std::string(reply->results().string(200));
}

// From here on it is a program of Asio's, with one line of verbena's.

asio::awaitable<void> answer(tcp::socket client, scope& tasks, rpc::client_transport& service)
{
    std::string text;
    for (;;) {
        const auto n =
            co_await asio::async_read_until(client, asio::dynamic_buffer(text, 1024), '\n', use_awaitable);
        const std::string name = text.substr(0, n - 1);
        text.erase(0, n);
        // A coroutine of Asio's awaits verbena.
        std::string greeting = co_await async_run(tasks, [&] { return greet(service, name); }, use_awaitable);
        greeting += '\n';
        co_await asio::async_write(client, asio::buffer(greeting), use_awaitable);
    }
}

asio::awaitable<void> serve(tcp::acceptor& acceptor, scope& tasks, rpc::client_transport& service)
{
    for (;;) {
        tcp::socket client = co_await acceptor.async_accept(use_awaitable);
        // An exception ends one connection: it is closed at its end, too.
        asio::co_spawn(acceptor.get_executor(), answer(std::move(client), tasks, service), asio::detached);
    }
}

asio::awaitable<void> ask(tcp::endpoint server, const std::vector<std::string>& names)
{
    tcp::socket socket(co_await asio::this_coro::executor);
    co_await socket.async_connect(server, use_awaitable);
    std::string text;
    for (const std::string& name : names) {
        const std::string line = name + '\n';
        co_await asio::async_write(socket, asio::buffer(line), use_awaitable);
        const auto n =
            co_await asio::async_read_until(socket, asio::dynamic_buffer(text), '\n', use_awaitable);
        std::printf("%s", text.substr(0, n).c_str());
        text.erase(0, n);
    }
}

int main(int argc, char** argv)
try {
    const std::vector<std::string> names(argv + 1, argv + argc);
    asio::io_context io;
    auto shard = reactor::create().value();
    memory_budget budget(16 << 20);
    buffer_pool buffers(budget, shard.get());
    greeter program(io);
    rpc::service_dispatcher calls(*shard);
    calls.add(program);
    auto provider = iwarp::make_context(*shard);
    auto listener = provider->listen("127.0.0.1:0").value();
    const rpcrdma::responder_options options;
    rpcrdma::responder_stats stats;
    scope services(*shard);
    services.spawn([&] { return rpcrdma::serve(*provider, *listener, buffers, calls, options, stats); });
    auto service = run_until_complete(*shard, rpc::connect(listener->local_url())).value();
    nested_reactor nested(io, *shard); // from here on the shard runs within io.run()
    scope tasks(*shard);

    tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
    asio::co_spawn(io, serve(acceptor, tasks, service), asio::detached);

    const auto end = [&]() -> task<void> {
        co_await service.close();
        listener->close();
        co_await services.join();
        nested.close(); // with it run() has nothing left to do
    };
    std::exception_ptr failure;
    asio::co_spawn(io, ask(acceptor.local_endpoint(), names), [&](std::exception_ptr e) {
        failure = std::move(e);
        acceptor.close();
        async_run(tasks, end, asio::detached);
    });
    io.run();
    if (failure)
        std::rethrow_exception(failure);
    return 0;
} catch (const std::exception& e) {
    std::fprintf(stderr, "asio: %s\n", e.what());
    return 1;
}
