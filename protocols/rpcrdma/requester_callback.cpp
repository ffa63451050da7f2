// SPDX-License-Identifier: Apache-2.0
// Calls of the server on the connection that the requester opened (RFC 8167).
#include "requester.hpp"

#include "../rpc/reverse_call.hpp"

#include <verbena/core/task/exception.hpp>
#include <verbena/protocols/rpc/message.hpp>

#include <algorithm>
#include <new>

namespace verbena::rpcrdma {

void requester::take_callback(lease message, std::uint32_t length) noexcept
{
    if (options_.callbacks == nullptr) {
        stats_.dropped.add();
        return;
    }
    // Receives stand again at once, so the credits must be counted (RFC 8166 3.3.1).
    if (callbacks_in_service_ >= options_.callback_credits) {
        fail_connection(error(std::errc::protocol_error, "more calls of the server than credits"));
        return;
    }
    try {
        callbacks_.push_back({std::move(message), length});
    } catch (const std::bad_alloc&) { // the server sends it again by the next connection
        fail_connection(error(std::errc::not_enough_memory, "a call of the server"));
        return;
    }
    ++callbacks_in_service_;
    shard().post(static_cast<deferred&>(*this));
}

void requester::run() noexcept
{
    try {
        for (callback& c : std::exchange(callbacks_, {}))
            spawn(&requester::serve_callback, this, std::move(c.message), c.length);
    } catch (...) {
        if (connected())
            fail_connection(error_of(std::current_exception(), "a call of the server could not be served"));
    }
}

task<void> requester::serve_callback(lease message, std::uint32_t length)
{
    const std::uint64_t epoch = epoch_;
    const std::string peer_address = peer_address_; // a new connection may bring others meanwhile
    const std::string peer_name = address_;
    const rpc::peer from{peer_address, peer_name, name(), 0};
    const std::span<const std::byte> bytes(message.data(), length);
    header h;
    const decoded_header decoded = decode(bytes, h);
    lease results =
        co_await buffers_.acquire(std::max<std::size_t>(terms_.send_threshold, buffer_pool::min_size));
    if (!results || epoch != epoch_ || !connected())
        co_return;
    header answer;
    answer.xid = h.xid;
    answer.credits = options_.callback_credits;
    const bool chunks = !h.reads.empty() || !h.writes.empty() || h.has_reply_chunk;
    if (chunks) {
        // RFC 8167 5.3: chunks are for those who support them.
        --callbacks_in_service_;
        answer = error_reply(h, error_kind::chunk, options_.callback_credits);
        if (auto posted = post_message(answer, nullptr, nullptr); !posted)
            fail_connection(posted.error());
        co_return;
    }
    rpc::reverse_call call(std::move(message), bytes.subspan(decoded.offset), from, buffers_,
                           std::move(results));
    const bool replies = co_await options_.callbacks->dispatch(call);
    if (epoch != epoch_ || !connected())
        co_return;
    --callbacks_in_service_;
    stats_.callbacks.add();
    if (!replies && call.is_call())
        co_return;
    result<void> posted = error(std::errc::message_size);
    if (replies)
        posted = post_message(answer, &call.results(), &call.attached());
    // What can't be sent, and what can't be decoded as a call (RFC 8166 4.5.2).
    if (!posted && posted.error() == std::errc::message_size) {
        answer = error_reply(h, error_kind::chunk, options_.callback_credits);
        posted = post_message(answer, nullptr, nullptr);
    }
    if (!posted)
        fail_connection(posted.error()); // a call without an answer (RFC 8166 4.5.3)
}

} // namespace verbena::rpcrdma
