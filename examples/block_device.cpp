// SPDX-License-Identifier: Apache-2.0
// A block device in memory, served by RNBD over RTRS, and a client that uses it: over iWARP, so by TCP and without an RDMA device.
#include <verbena/core/net/net.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/plugins/ramblk.hpp>
#include <verbena/protocols/rnbd/client.hpp>
#include <verbena/protocols/rnbd/server.hpp>
#include <verbena/transports/iwarp.hpp>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>

using namespace verbena;

// Writes `text` to the device's start, so that it outlives a loss of power, and reads it back.
task<result<std::string>> write_and_read(rnbd::device& device, buffer_pool& buffers, std::string_view text)
{
    const std::size_t block = device.properties().block_size;
    lease memory = co_await buffers.acquire(block); // it is registered: nothing is copied
    if (!memory)
        co_return error(std::errc::not_enough_memory);
    const std::span<std::byte> bytes = memory.bytes().first(block);
    const std::size_t size = std::min(text.size(), block);
    std::ranges::fill(bytes, std::byte{});
    std::ranges::copy(std::as_bytes(std::span(text)).first(size), bytes.begin());
    if (const auto written = co_await device.write(0, bytes); !written)
        co_return written.error();
    if (const auto flushed = co_await device.flush(); !flushed)
        co_return flushed.error();
    std::ranges::fill(bytes, std::byte{});
    if (const auto read = co_await device.read(0, bytes); !read)
        co_return read.error();
    co_return std::string(reinterpret_cast<const char*>(bytes.data()), size);
}

task<result<std::string>> use(rtrs::client& session, rnbd::client& devices, verbs::context& provider,
                              std::string address, std::string_view text)
{
    // Once more for each further way to the server.
    if (const auto added = co_await session.add_path(provider, address); !added)
        co_return added.error();
    if (const auto begun = co_await devices.begin(); !begun)
        co_return begun.error();
    auto device = co_await devices.open("scratch", rnbd::access_mode::read_write);
    if (!device)
        co_return device.error();
    auto heard = co_await write_and_read(**device, session.buffers(), text);
    (void)co_await devices.close(std::move(*device));
    co_return heard;
}

task<result<std::string>> serve_and_use(reactor& shard, buffer_pool& buffers, std::string_view text)
{
    auto disk = ramblk::open_ramblk({}).value(); // or fileblk, or a storage::block_backend of your own
    rnbd::device_table table;
    rnbd::device_options options;
    options.name = "scratch";
    options.backend = disk.get();
    if (const auto added = table.add(std::move(options)); !added)
        co_return added.error();
    rnbd::server_stats device_stats;
    rnbd::server blocks(table, device_stats);
    rtrs::server_group group;
    rtrs::server_options limits;
    limits.queue_depth = 16; // each session has 16 chunks of 128 KiB
    rtrs::server_stats stats;
    rtrs::server server(shard, buffers, blocks, group, limits, stats);
    auto provider = iwarp::make_context(shard);
    auto listener = provider->listen("127.0.0.1:0").value();
    scope tasks(shard);
    tasks.spawn([&] { return server.serve(*provider, *listener); });

    rtrs::client_options who;
    who.session = "example"; // of one client at a time
    rtrs::client_stats client_stats;
    rtrs::client session(shard, buffers, who, client_stats);
    std::string address = net::split_url(listener->local_url())->address;
    rnbd::client devices(session);
    auto heard = co_await use(session, devices, *provider, std::move(address), text);

    co_await session.close(); // before `devices` goes
    listener->close();
    co_await tasks.join();
    co_return heard;
}

int main(int argc, char** argv)
{
    auto shard = reactor::create().value();
    memory_budget budget(64 << 20); // bytes, of all buffers
    buffer_pool buffers(budget, shard.get());
    const std::string_view text = argc > 1 ? argv[1] : "hello, disk";
    const auto heard = run_until_complete(*shard, serve_and_use(*shard, buffers, text));
    std::printf("%s\n", heard ? heard->c_str() : heard.error().message().c_str());
    return heard ? 0 : 1;
}
