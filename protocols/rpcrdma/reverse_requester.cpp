// SPDX-License-Identifier: Apache-2.0
#include "reverse_requester.hpp"

#include <verbena/protocols/rpc/message.hpp>

#include <algorithm>
#include <cstring>

namespace verbena::rpcrdma {
namespace {

const error gone(std::errc::not_connected, "the connection of the reverse channel ended");
const error no_answer(std::errc::timed_out, "the client does not answer a reverse call");

} // namespace

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
    const auto head = r.message().bytes();
    const auto items = r.message().payloads();
    const std::size_t cut = items.empty() ? head.size() : items[0].offset;
    const std::size_t body = out.size();
    put(head.first(cut));
    if (!items.empty()) {
        for (auto piece : r.argument().pieces())
            put(piece);
        out.pad(items[0].length);
    }
    put(head.subspan(cut));
    if (!out.ok())
        return 0;
    xdr::store_u32(to.data() + body, xid); // where the call header has its own
    return static_cast<std::uint32_t>(out.size());
}

task<result<rpc::reply>> reverse_requester::call(rpc::request& r)
{
    const task_context& context = co_await current_context();
    while (link_ != nullptr && (sent_.size() >= granted_ || !link_->reverse_room())) {
        moved_.reset();
        const bool moved = co_await moved_.wait();
        if (!moved)
            co_return error(std::errc::operation_canceled, "stopped while waiting for a credit");
    }
    if (link_ == nullptr)
        co_return gone;
    if (context.stop.stop_requested())
        co_return error(std::errc::operation_canceled, "stopped");
    lease message = buffers_.try_acquire(threshold_);
    if (!message)
        co_return error(std::errc::not_enough_memory, "send buffer");
    const std::uint32_t xid = next_xid_++;
    const std::uint32_t length = build(r, xid, message.bytes().first(threshold_));
    if (length == 0)
        co_return error(std::errc::message_size,
                        "a reverse call exceeds the inline threshold (RFC 8167 5.3)");
    auto sent = link_->send_reverse(std::move(message), length);
    if (!sent)
        co_return sent.error();
    waiting w;
    sent_.push_back({xid, shard_.now() + limit_, &w});
    if (!timer::is_armed())
        shard_.timers().arm(*this, sent_.front().until);
    (void)co_await w.done.wait();
    // A reply may have come between the stop and this resumption.
    if (!w.outcome) {
        std::ranges::find(sent_, &w, &sent_call::caller)->caller = nullptr;
        co_return error(std::errc::operation_canceled, "stopped while waiting for the reply");
    }
    co_return std::move(*w.outcome);
}

void reverse_requester::end(std::vector<sent_call>::iterator call, result<rpc::reply> outcome) noexcept
{
    waiting* const caller = call->caller;
    sent_.erase(call);
    if (caller != nullptr) {
        caller->outcome.emplace(std::move(outcome));
        caller->done.set();
    }
    moved_.set();
}

// RFC 5531 lets a server be silent, and what is lost on the client's side says nothing: the peer holds a receive for each
// credit no longer than it has the call.
void reverse_requester::on_timer() noexcept
{
    while (!sent_.empty() && sent_.front().until <= shard_.clock().now()) {
        stats_.reverse_timeouts.add();
        end(sent_.begin(), no_answer);
    }
    if (!sent_.empty())
        shard_.timers().arm(*this, sent_.front().until);
}

bool reverse_requester::answered(lease& message, std::uint32_t length) noexcept
{
    if (sent_.empty())
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
    const auto call = std::ranges::find(sent_, h.xid, &sent_call::xid);
    if (call == sent_.end())
        return false;
    if (h.proc != procedure::error) // an error's credits belong to no direction (RFC 8167 6)
        granted_ = std::clamp<std::uint32_t>(h.credits, 1, wanted_);
    end(call, take(h, std::move(message), payload));
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
    timer::cancel();
    while (!sent_.empty())
        end(sent_.begin(), gone);
    moved_.set();
}

} // namespace verbena::rpcrdma
