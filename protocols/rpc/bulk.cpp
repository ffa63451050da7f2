// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rpc/bulk.hpp>

#include <verbena/protocols/rpc/client.hpp>
#include <verbena/protocols/rpc/procedure.hpp>
#include <verbena/protocols/rpcstream/stream_client.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>

#include <cstring>

namespace verbena::rpc {
namespace {

// What compiles travels.
static_assert(max_argument_bulk + max_arguments_before_bulk + max_call_header_size <=
              stream_options().max_record);
static_assert(max_result_bulk + max_results + max_success_header_size <= max_stream_reply);
static_assert(std::max(max_argument_bulk, max_result_bulk) <= buffer_pool::max_size);

result<payload> copied(lease memory, std::span<const std::byte> bytes)
{
    if (!memory)
        return error(std::errc::not_enough_memory, "no buffer for a payload", bytes.size());
    std::memcpy(memory.data(), bytes.data(), bytes.size());
    const std::span<const std::byte> copy = memory.bytes().first(bytes.size());
    return payload(std::move(memory), copy);
}

} // namespace

task<result<payload>> copy_payload(call& c, std::span<const std::byte> bytes)
{
    if (bytes.empty())
        co_return payload();
    c.expect_results(bytes.size());
    lease memory = co_await c.acquire(bytes.size());
    co_return copied(std::move(memory), bytes);
}

task<result<payload>> copy_payload(client_transport& server, std::span<const std::byte> bytes)
{
    if (bytes.empty())
        co_return payload();
    lease memory = co_await server.acquire(bytes.size());
    co_return copied(std::move(memory), bytes);
}

} // namespace verbena::rpc
