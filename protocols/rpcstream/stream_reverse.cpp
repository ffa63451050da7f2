// SPDX-License-Identifier: Apache-2.0
#include "stream_reverse.hpp"

#include "../rpc/copy_message.hpp"

#include <verbena/protocols/rpc/message.hpp>
#include <verbena/protocols/rpcstream/record_marking.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <utility>

namespace verbena::rpc {
namespace {

// The whole message behind its record mark, with `xid` where the header has its own.
void build(const request& r, std::uint32_t xid, std::span<std::byte> to) noexcept
{
    const std::span<std::byte, fragment_header_size> mark(to.data(), fragment_header_size);
    encode_fragment_header(mark, {static_cast<std::uint32_t>(to.size() - fragment_header_size), true});
    copy_message(r.message(), r.arguments(), to.subspan(fragment_header_size));
    xdr::store_u32(to.data() + fragment_header_size, xid);
}

} // namespace

task<lease> stream_reverse::acquire(std::size_t size) { co_return co_await buffers_.acquire(size); }

task<result<reply>> stream_reverse::call(request& r)
{
    const task_context& context = co_await current_context();
    while (link_ != nullptr && sent_.size() >= most_) {
        task<bool> making_room = sent_.room();
        const bool moved = co_await making_room;
        if (!moved)
            co_return error(std::errc::operation_canceled, "stopped while waiting for earlier calls");
    }
    if (link_ == nullptr)
        co_return calls_under_way::gone();
    if (context.stop.stop_requested())
        co_return error(std::errc::operation_canceled, "stopped");
    const std::size_t length = fragment_header_size + r.message().position();
    if (length > stream_options::max_reverse_message)
        co_return error(std::errc::message_size, "a reverse call is too long", length);
    lease message = buffers_.try_acquire(length);
    if (!message)
        co_return error(std::errc::not_enough_memory, "send buffer");
    const std::uint32_t xid = sent_.next_xid();
    build(r, xid, message.bytes().first(length));
    stats_.reverse_calls.add();
    link_->send_reverse(std::move(message), length);
    task<result<reply>> waiting = sent_.reply_to(xid);
    co_return co_await waiting;
}

bool stream_reverse::answered(record& message) noexcept
{
    const auto prefix = peek(message.first);
    if (!prefix || prefix->type != message_type::reply)
        return false;
    if (!sent_.has(prefix->xid))
        return true;
    // What lies in two pieces is longer than any reply to what is called here.
    if (!message.second.empty()) {
        sent_.end(prefix->xid,
                  error(std::errc::message_size, "the reply to a reverse call is too long", message.size()));
        return true;
    }
    reply got(std::move(message.first_owner), message.first, payload(), false);
    if (auto good = got.decode_header(); !good)
        sent_.end(prefix->xid, good.error());
    else
        sent_.end(prefix->xid, std::move(got));
    return true;
}

void stream_reverse::closed() noexcept
{
    link_ = nullptr;
    open_.store(false, std::memory_order_release);
    sent_.close();
}

} // namespace verbena::rpc
