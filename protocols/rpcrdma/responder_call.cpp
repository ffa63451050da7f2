// SPDX-License-Identifier: Apache-2.0
#include "responder_connection.hpp"

#include "../rpc/argument_lost.hpp"

#include <algorithm>

namespace verbena::rpcrdma {

void responder_call::begin(lease received, const rpc::peer& from, buffer_pool& buffers) noexcept
{
    received_ = std::move(received);
    peer_ = &from;
    buffers_ = &buffers;
    server_stop_ = connection_.server_stop_;
    header_ = {};
    results_ = xdr::encoder(small_results_);
    items_.clear();
    brought_ = 0;
    reads_pending_ = 0;
    read_failed_ = false;
    posted_ = 0;
    chunk_bytes_ = 0;
    answered_ = false;
}

void responder_call::clear() noexcept
{
    received_.reset();
    assembled_.reset();
    results_memory_.reset();
    send_memory_.reset();
    attached_.clear();
}

task<result<rpc::payload>> responder_call::pull(xdr::payload_ref ref)
{
    if (!ref.external) {
        const lease& owner = assembled_ ? assembled_ : received_;
        co_return rpc::payload(owner.share(), ref.inline_bytes);
    }
    auto rest = transport_.data_reads();
    auto chunk = take_read_chunk(rest);
    while (!chunk.empty() && chunk.front().position != ref.position)
        chunk = take_read_chunk(rest);
    if (chunk.empty())
        co_return error(std::errc::bad_message, "the argument lies in no chunk", ref.position);
    // The chunk may hold the pad too (RFC 8166 3.4.5.2); it is read along and not looked at.
    const std::uint64_t size = total_length(chunk);
    lease memory = co_await acquire(size);
    if (!memory)
        co_return error(std::errc::not_enough_memory, "no buffer for a Read chunk", size);
    brought_ += memory.size();
    connection_.charge(*this, brought_);
    const bool read = co_await connection_.read_chunk(*this, chunk, memory.data());
    if (!read)
        co_return error(rpc::argument_lost(), "an RDMA Read of the argument failed");
    const std::span<const std::byte> bytes(memory.data(), ref.length);
    co_return rpc::payload(std::move(memory), bytes);
}

task<bool> responder_call::reserve_results(std::size_t size)
{
    if (results_.room() >= size)
        co_return true;
    if (size > buffer_pool::max_size)
        co_return false;
    lease larger = co_await acquire(results_.size() + size);
    if (!larger)
        co_return false;
    results_.move_to(larger.bytes());
    results_memory_ = std::move(larger);
    co_return true;
}

std::uint64_t responder_call::most_result() const noexcept
{
    // As build_reply() will place it.
    const std::size_t item = results_.payloads().size();
    if (responder_connection::goes_by_chunk(*this, item))
        return total_length(transport_.writes.chunk(item));
    const std::uint64_t inline_most = connection_.terms_.send_threshold;
    return std::max(inline_most, transport_.has_reply_chunk ? total_length(transport_.reply.all()) : 0);
}

// Where segments must be registered, register_results() makes a copy of what is not.
rpc::sent_in_place responder_call::sends_in_place() const noexcept
{
    return connection_.provider_.query().needs_local_keys ? rpc::sent_in_place::nothing
                                                          : rpc::sent_in_place::memory;
}

} // namespace verbena::rpcrdma
