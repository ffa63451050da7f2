// SPDX-License-Identifier: Apache-2.0
#include "responder_connection.hpp"

#include <algorithm>
#include <cstring>

namespace verbena::rpcrdma {

void responder_call::begin(lease received, const rpc::peer& from, buffer_pool& buffers) noexcept
{
    received_ = std::move(received);
    peer_ = &from;
    buffers_ = &buffers;
    header_ = {};
    results_ = xdr::encoder(small_results_);
    data_chunk_ = {};
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
    result_payload_.clear();
}

task<result<rpc::payload>> responder_call::pull(xdr::payload_ref ref)
{
    if (!ref.external) {
        const lease& owner = assembled_ ? assembled_ : received_;
        co_return rpc::payload(owner.share(), ref.inline_bytes);
    }
    if (data_chunk_.empty())
        co_return error(std::errc::bad_message, "the argument lies in no chunk", ref.position);
    // The chunk may hold the pad too (RFC 8166 3.4.5.2); it is read along and not looked at.
    const std::uint64_t size = total_length(data_chunk_);
    lease memory = co_await buffers_->acquire(size, buffer_pool::call_patience);
    if (!memory)
        co_return error(std::errc::not_enough_memory, "no buffer for a Read chunk", size);
    connection_.charge(*this, memory.size());
    const responder_connection::read_targets to{memory.data(), data_chunk_.front().position, nullptr};
    const bool read = co_await connection_.read_chunks(*this, data_chunk_, to);
    if (!read)
        co_return error(std::errc::connection_aborted, "an RDMA Read of the argument failed");
    const std::span<const std::byte> bytes(memory.data(), ref.length);
    co_return rpc::payload(std::move(memory), bytes);
}

task<bool> responder_call::reserve_results(std::size_t size)
{
    if (results_.room() >= size)
        co_return true;
    if (size > buffer_pool::max_size)
        co_return false;
    lease larger = co_await buffers_->acquire(results_.size() + size, buffer_pool::call_patience);
    if (!larger)
        co_return false;
    const auto written = results_.bytes();
    xdr::encoder moved(larger.bytes());
    auto to = moved.reserve(written.size());
    std::memcpy(to.data(), written.data(), written.size());
    results_ = moved;
    results_memory_ = std::move(larger);
    co_return true;
}

std::uint64_t responder_call::most_result() const noexcept
{
    // As build_reply() will place it.
    if (!transport_.writes.empty() && !transport_.writes.chunk(0).empty())
        return total_length(transport_.writes.chunk(0));
    const std::uint64_t inline_most = connection_.terms_.send_threshold;
    return std::max(inline_most, transport_.has_reply_chunk ? total_length(transport_.reply.all()) : 0);
}

} // namespace verbena::rpcrdma
