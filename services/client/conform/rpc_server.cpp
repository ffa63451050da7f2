// SPDX-License-Identifier: Apache-2.0
#include "rpc_server.hpp"

#include "rpc_checks.hpp"

#include <verbena/core/task/combine.hpp>
#include <verbena/protocols/rpc/reverse_channel.hpp>
#include <verbena/protocols/rpcrdma/private_data.hpp>

#include <algorithm>

namespace verbena::conform {
namespace {

constexpr std::uint32_t credits = 16; // few, so that a caller has to wait for some
constexpr std::uint32_t reverse_credits = 4;
constexpr std::size_t small_call = 512;

task<rpc::outcome> digest(rpc::call& c)
{
    const auto ref = c.args().payload(max_item);
    if (!c.args().at_end())
        co_return rpc::outcome::garbage_args;
    const auto data = co_await c.pull(ref);
    if (!data)
        co_return rpc::outcome::drop;
    std::vector<std::byte> all;
    all.reserve(data->size());
    for (const auto piece : data->pieces())
        all.insert(all.end(), piece.begin(), piece.end());
    c.results().u32(static_cast<std::uint32_t>(all.size()));
    c.results().u64(sum(all));
    co_return rpc::outcome::success;
}

task<rpc::outcome> produce(rpc::call& c, bool as_payload)
{
    const std::uint32_t length = c.args().u32();
    const std::uint64_t seed = c.args().u64();
    if (!c.args().at_end() || length > max_item)
        co_return rpc::outcome::garbage_args;
    lease memory = co_await c.buffers().acquire(std::max<std::size_t>(length, buffer_pool::min_size));
    if (!memory)
        co_return rpc::outcome::system_error;
    const auto bytes = memory.bytes().first(length);
    fill(bytes, seed);
    if (as_payload) {
        c.results().note_payload(length);
        c.attach(rpc::payload(std::move(memory), bytes));
        co_return rpc::outcome::success;
    }
    const bool room = co_await c.reserve_results(length + 8);
    if (!room)
        co_return rpc::outcome::system_error;
    c.results().opaque_var(bytes);
    co_return rpc::outcome::success;
}

task<rpc::outcome> call_back(rpc::call& c)
{
    const std::uint32_t number = c.args().u32();
    const std::shared_ptr<rpc::reverse_channel> channel = c.reverse();
    if (!c.args().at_end() || !channel)
        co_return rpc::outcome::garbage_args;
    rpc::call_header header;
    header.program = rpc_callback_program;
    header.version = rpc_version;
    header.procedure = doubled;
    lease block = co_await channel->acquire(small_call);
    if (!block)
        co_return rpc::outcome::system_error;
    rpc::request request(std::move(block), header);
    request.message().u32(number);
    auto answer = with_timeout(end::patience / 2, channel->call(request));
    auto reply = co_await answer;
    if (!reply)
        co_return rpc::outcome::system_error;
    c.results().u32(reply->results().u32());
    co_return rpc::outcome::success;
}

} // namespace

bool wants_rpc(std::span<const std::byte> private_data) noexcept
{
    return (private_data.size() >= rpc_mark.size() &&
            std::ranges::equal(private_data.first(rpc_mark.size()), rpc_mark)) ||
           rpcrdma::find_private_message(private_data).has_value();
}

task<rpc::outcome> rpc_server::program::serve(rpc::call& c)
{
    switch (rpc_procedure(c.header().procedure)) {
    case rpc_procedure::null: co_return rpc::outcome::success;
    case rpc_procedure::digest: co_return co_await digest(c);
    case rpc_procedure::produce: co_return co_await produce(c, true);
    case rpc_procedure::produce_text: co_return co_await produce(c, false);
    case rpc_procedure::call_back: co_return co_await call_back(c);
    }
    co_return rpc::outcome::proc_unavail;
}

rpc_server::rpc_server(verbs::context& c, buffer_pool& buffers)
    : context_(c), buffers_(buffers), dispatcher_(c.shard())
{
    dispatcher_.add(program_);
    options_.credits = credits;
    options_.reverse_credits = reverse_credits;
}

task<void> rpc_server::run()
{
    co_await rpcrdma::serve(context_, listener_, buffers_, dispatcher_, options_, stats_);
    listener_.close(); // it may have ended for want of a domain
}

task<result<std::unique_ptr<verbs::connect_request>>> rpc_server::handed::next()
{
    auto first = co_await waiting_.receive();
    if (!first)
        co_return error(std::errc::operation_canceled, "no more connections");
    co_return std::move(*first);
}

} // namespace verbena::conform
