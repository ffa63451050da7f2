// SPDX-License-Identifier: Apache-2.0
// Talks to the module echo by verbs: prints what comes back of each message.
//
//   echo_client ADDRESS:PORT MESSAGE...
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/verbs/connection.hpp>
#include <verbena/transports/iwarp.hpp>

#include <algorithm>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

using namespace verbena;

namespace {

template<class T>
T or_throw(result<T> r)
{
    if (!r)
        throw std::runtime_error(r.error().message());
    return std::move(*r);
}

task<result<void>> talk(reactor& shard, buffer_pool& buffers, std::string address,
                        std::vector<std::string> messages)
{
    // As with an RDMA device: rdma::make_context() yields another verbs::context.
    const auto device = iwarp::make_context(shard);
    const auto domain = device->make_domain();
    if (!domain)
        co_return domain.error();
    const auto added = co_await (*domain)->add_pool(buffers);
    if (!added)
        co_return added;
    const verbs::connection_options options; // messages of 4096 bytes at most
    const auto c = co_await verbs::connection::connect(*device, address, **domain, buffers, options);
    if (!c)
        co_return c.error();
    for (const std::string& message : messages) {
        lease memory = co_await buffers.acquire(options.message_size);
        if (!memory || message.size() > options.message_size)
            co_return error(std::errc::message_size);
        std::ranges::copy(std::as_bytes(std::span(message)), memory.bytes().begin());
        const auto sent = co_await (*c)->send(std::move(memory), message.size());
        if (!sent)
            co_return sent;
        const auto came = co_await (*c)->receive();
        if (!came)
            co_return came.error();
        std::printf("%.*s\n", static_cast<int>(came->bytes().size()),
                    reinterpret_cast<const char*>(came->bytes().data()));
    }
    (*c)->disconnect(); // what was posted goes first
    (void)co_await (*c)->ended();
    co_return result<void>();
}

} // namespace

int main(int argc, char** argv)
try {
    if (argc < 2) {
        std::fputs("echo_client ADDRESS:PORT MESSAGE...\n", stderr);
        return 2;
    }
    auto shard = or_throw(reactor::create());
    memory_budget budget(std::size_t(4) << 20); // bytes, of all buffers together
    buffer_pool buffers(budget, shard.get());
    std::vector<std::string> messages(argv + 2, argv + argc);
    const auto done = run_until_complete(*shard, talk(*shard, buffers, argv[1], std::move(messages)));
    if (!done)
        std::fprintf(stderr, "echo_client: %s\n", done.error().message().c_str());
    return done ? 0 : 1;
} catch (const std::exception& e) {
    std::fprintf(stderr, "echo_client: %s\n", e.what());
    return 1;
}
