// SPDX-License-Identifier: Apache-2.0
#include "reverse_requester.hpp"

#include <verbena/protocols/rpc/message.hpp>

#include <algorithm>
#include <cstring>

namespace verbena::rpcrdma {

task<lease> reverse_requester::acquire(std::size_t size) { co_return co_await buffers_.acquire(size); }

// The whole message, inline; 0 if it does not fit.
std::uint32_t reverse_requester::build(const rpc::request& r, std::uint32_t xid,
                                       std::span<std::byte> to) const noexcept
{
    header h;
    h.xid = xid;
    h.credits = wanted_;
    xdr::encoder out(to);
    encode(out, h);
    const auto put = [&out](std::span<const std::byte> bytes) {
        const std::span<std::byte> room = out.reserve(bytes.size());
        if (!room.empty())
            std::memcpy(room.data(), bytes.data(), bytes.size());
    };
    const std::size_t body = out.size();
    r.message().in_order(put, [&](std::size_t item) {
        const rpc::payload& bytes = r.arguments()[item].bytes;
        for (auto piece : bytes.pieces())
            put(piece);
        out.pad(bytes.size());
    });
    if (!out.ok())
        return 0;
    xdr::store_u32(to.data() + body, xid); // where the call header has its own
    return static_cast<std::uint32_t>(out.size());
}

task<result<rpc::reply>> reverse_requester::call(rpc::request& r)
{
    const task_context& context = co_await current_context();
    while (link_ != nullptr && (sent_.size() >= granted_ || !link_->reverse_room())) {
        task<bool> making_room = sent_.room();
        const bool moved = co_await making_room;
        if (!moved)
            co_return error(std::errc::operation_canceled, "stopped while waiting for a credit");
    }
    if (link_ == nullptr)
        co_return rpc::calls_under_way::gone();
    if (context.stop.stop_requested())
        co_return error(std::errc::operation_canceled, "stopped");
    lease message = buffers_.try_acquire(threshold_);
    if (!message)
        co_return error(std::errc::not_enough_memory, "send buffer");
    const std::uint32_t xid = sent_.next_xid();
    const std::uint32_t length = build(r, xid, message.bytes().first(threshold_));
    if (length == 0)
        co_return error(std::errc::message_size,
                        "a reverse call exceeds the inline threshold (RFC 8167 5.3)");
    auto sent = link_->send_reverse(std::move(message), length);
    if (!sent)
        co_return sent.error();
    task<result<rpc::reply>> waiting = sent_.reply_to(xid);
    co_return co_await waiting;
}

bool reverse_requester::answered(lease& message, std::uint32_t length) noexcept
{
    if (sent_.size() == 0)
        return false;
    const std::span<const std::byte> bytes(message.data(), length);
    header h;
    const decoded_header d = decode(bytes, h);
    if (d.action != verdict::good)
        return false;
    const auto payload = bytes.subspan(d.offset);
    if (h.proc != procedure::error) {
        const auto prefix = rpc::peek(payload);
        if (!prefix || prefix->type != rpc::message_type::reply)
            return false;
    }
    if (!sent_.has(h.xid))
        return false;
    if (h.proc != procedure::error) // an error's credits belong to no direction (RFC 8167 6)
        granted_ = std::clamp<std::uint32_t>(h.credits, 1, wanted_);
    sent_.end(h.xid, take(h, std::move(message), payload));
    return true;
}

result<rpc::reply> reverse_requester::take(const header& h, lease message, std::span<const std::byte> payload)
{
    if (h.proc == procedure::error)
        return error(std::errc::value_too_large, "the client refused the message of a reverse call");
    if (h.proc != procedure::msg || !h.reads.empty() || !h.writes.empty() || h.has_reply_chunk)
        return error(std::errc::protocol_error, "a reply to a reverse call with chunks (RFC 8167 5.3)");
    rpc::reply reply(std::move(message), payload, rpc::payload(), false);
    if (auto good = reply.decode_header(); !good)
        return good.error();
    return reply;
}

void reverse_requester::closed() noexcept
{
    link_ = nullptr;
    open_.store(false, std::memory_order_release);
    sent_.close();
}

} // namespace verbena::rpcrdma
