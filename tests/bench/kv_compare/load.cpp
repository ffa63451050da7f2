// SPDX-License-Identifier: Apache-2.0
// kv_load URL get|put SIZE CONNECTIONS CALLS SECONDS [MAX_BULK [MEMORY_MIB]]: keeps CALLS calls in flight in all, over CONNECTIONS, to a server of
// examples/kv's program (verbenad's kv or kv_tirpc_server), with verbena's own clients. URL is tcp://ADDR:PORT or
// iwarp://ADDR:PORT. First it puts all keys and reads one back. Prints "begin" when it counts, and one line of JSON. Spins, so that what
// it measures is the server. A GET has room for MAX_BULK bytes at most (SIZE), 0 for as many as the program allows: what that costs
// shows where the client's buffers have few MEMORY_MIB (768).
#include <protocol.hpp>

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcstream/stream_client.hpp>
#include <verbena/transports/iwarp.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

using namespace verbena;

namespace {

constexpr auto warm_up = std::chrono::milliseconds(300);
constexpr std::size_t usual_memory_mib = 768;

[[noreturn]] void fail(const std::string& why)
{
    std::fprintf(stderr, "kv_load: %s\n", why.c_str());
    std::exit(1);
}

struct load {
    bool put = false;
    std::uint32_t size = 0;
    std::uint32_t max_bulk = 0;
    unsigned keys = 0;
    unsigned calls = 0;
    duration seconds{};
    bool counting = false;
    bool stop = false;
    std::uint64_t operations = 0;
    double took = 0;
    std::vector<std::string> names;
    std::vector<std::unique_ptr<rpc::client_transport>> servers;
};

std::byte pattern(std::size_t i) { return std::byte(i * 131 + i / 251); }

task<void> one_call(load& l, rpc::client_transport& server, const std::string& key, bool put,
                    bool with_content)
{
    if (put) {
        lease block = co_await server.acquire(l.size);
        if (!block)
            fail("no memory for a value");
        if (with_content) {
            for (std::size_t i = 0; i < l.size; ++i)
                block.data()[i] = pattern(i);
        }
        const std::span<const std::byte> bytes = block.bytes().first(l.size);
        kv::put_args args{key, rpc::payload(std::move(block), bytes)};
        const auto done = co_await kv::put(server, std::move(args));
        if (!done)
            fail("a call failed: " + done.error().message());
        co_return;
    }
    rpc::call_options options;
    options.max_bulk = l.max_bulk;
    kv::key_args args{key};
    const auto got = co_await kv::get(server, std::move(args), options);
    if (!got)
        fail("a call failed: " + got.error().message());
    const auto& value = got->value.bytes();
    if (value.size() != l.size)
        fail("a value of another length");
    if (!with_content)
        co_return;
    std::size_t i = 0;
    for (const auto piece : value.pieces()) {
        for (const std::byte b : piece) {
            if (b != pattern(i++))
                fail("another value than was put");
        }
    }
}

task<void> worker(load& l, rpc::client_transport& server, unsigned first)
{
    for (unsigned i = first; !l.stop; i += 7) {
        co_await one_call(l, server, l.names[i % l.keys], l.put, false);
        l.operations += l.counting ? 1 : 0;
    }
}

task<void> run(reactor& shard, load& l)
{
    for (const std::string& name : l.names)
        co_await one_call(l, *l.servers.front(), name, true, true);
    co_await one_call(l, *l.servers.front(), l.names.back(), false, true);
    scope workers(shard);
    for (unsigned i = 0; i < l.calls; ++i)
        workers.spawn(worker, std::ref(l), std::ref(*l.servers[i % l.servers.size()]), unsigned(i));
    co_await sleep_for(warm_up);
    const auto begun = std::chrono::steady_clock::now();
    l.counting = true;
    std::printf("begin\n");
    std::fflush(stdout);
    co_await sleep_for(l.seconds);
    l.took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    l.counting = false;
    l.stop = true;
    co_await workers.join();
    for (auto& server : l.servers)
        co_await server->close();
}

} // namespace

int main(int argc, char** argv)
{
    const bool complete = argc >= 7 && argc <= 9;
    const std::string url = complete ? argv[1] : "";
    const std::string_view operation = complete ? argv[2] : "";
    const bool tcp = url.starts_with("tcp://");
    if ((!tcp && !url.starts_with("iwarp://")) || (operation != "get" && operation != "put")) {
        std::fprintf(stderr,
                     "usage: kv_load URL get|put SIZE CONNECTIONS CALLS SECONDS [MAX_BULK [MEMORY_MIB]]\n");
        return 2;
    }
    load l;
    l.put = operation == "put";
    l.size = std::uint32_t(std::atoll(argv[3]));
    l.max_bulk = argc > 7 ? std::uint32_t(std::atoll(argv[7])) : l.size;
    if (l.max_bulk == 0)
        l.max_bulk = kv::data::limit;
    l.calls = unsigned(std::atoi(argv[5]));
    l.seconds = std::chrono::duration_cast<duration>(std::chrono::duration<double>(std::atof(argv[6])));
    l.keys = l.size >= 65536 ? 64 : 1024;
    for (unsigned i = 0; i < l.keys; ++i)
        l.names.push_back("key-" + std::to_string(1'000'000 + i));
    reactor_options spinning;
    spinning.policy = wait_policy::busy;
    auto shard = reactor::create(spinning);
    if (!shard)
        fail(shard.error().message());
    memory_budget budget((argc > 8 ? std::size_t(std::atoll(argv[8])) : usual_memory_mib) << 20);
    buffer_pool buffers(budget, shard->get());
    const auto rdma = iwarp::make_context(**shard);
    rpc::client_options patience;
    patience.hard = false;
    for (int i = 0; i < std::atoi(argv[4]); ++i) {
        if (tcp) {
            rpc::stream_client_options options;
            options.client = patience;
            auto client = rpc::make_stream_client(**shard, buffers, url.substr(6), options);
            if (!client)
                fail(client.error().message());
            l.servers.push_back(std::move(*client));
        } else {
            rpcrdma::requester_options options;
            options.client = patience;
            l.servers.push_back(rpcrdma::make_requester(*rdma, buffers, url.substr(8), options));
        }
    }
    run_until_complete(**shard, run(**shard, l));
    std::printf(
        "{\"operation\": \"%s\", \"size\": %u, \"connections\": %zu, \"calls\": %u, \"seconds\": %.3f, "
        "\"operations\": %llu, \"per_second\": %.0f}\n",
        argv[2], l.size, l.servers.size(), l.calls, l.took, static_cast<unsigned long long>(l.operations),
        double(l.operations) / l.took);
    l.servers.clear();
    return l.operations == 0;
}
