// SPDX-License-Identifier: Apache-2.0
#include "calls_under_way.hpp"

#include <algorithm>
#include <utility>

namespace verbena::rpc {

error calls_under_way::gone() noexcept
{
    return error(std::errc::not_connected, "the connection of the reverse channel ended");
}

task<bool> calls_under_way::room()
{
    moved_.reset();
    co_return co_await moved_.wait("earlier callbacks on the connection");
}

task<result<reply>> calls_under_way::reply_to(std::uint32_t xid)
{
    if (closed_)
        co_return gone();
    waiting w(to_, xid);
    shard_.requests().begin(w);
    served_by here(w);
    co_await here;
    sent_.push_back({xid, shard_.now() + limit_, &w});
    if (!timer::is_armed())
        shard_.timers().arm(*this, sent_.front().until);
    (void)co_await w.done.wait("the reply of the client");
    // A reply may have come between the stop and this resumption.
    if (!w.outcome) {
        std::ranges::find(sent_, &w, &sent_call::caller)->caller = nullptr;
        co_return error(std::errc::operation_canceled, "stopped while waiting for the reply");
    }
    co_return std::move(*w.outcome);
}

void calls_under_way::waiting::report(request_report& into) const noexcept
{
    into.trace = trace_of(to.connection, xid);
    into.peer.append(to.name);
    into.transport.append(to.transport);
    into.protocol.append("rpc");
    into.operation.append("callback");
}

bool calls_under_way::has(std::uint32_t xid) const noexcept
{
    return std::ranges::find(sent_, xid, &sent_call::xid) != sent_.end();
}

void calls_under_way::end(std::uint32_t xid, result<reply> outcome) noexcept
{
    const auto call = std::ranges::find(sent_, xid, &sent_call::xid);
    if (call != sent_.end())
        end(call, std::move(outcome));
}

void calls_under_way::end(std::vector<sent_call>::iterator call, result<reply> outcome) noexcept
{
    waiting* const caller = call->caller;
    sent_.erase(call);
    if (caller != nullptr) {
        caller->served(outcome ? "ok" : "failed");
        caller->leave(); // its peer may go now
        caller->outcome.emplace(std::move(outcome));
        caller->done.set();
    }
    moved_.set();
}

// RFC 5531 lets a peer be silent, and one that lost a call, or is silent on purpose, must not keep the channel for ever.
void calls_under_way::on_timer() noexcept
{
    while (!sent_.empty() && sent_.front().until <= shard_.clock().now()) {
        timeouts_.add();
        end(sent_.begin(), error(std::errc::timed_out, "the client does not answer a reverse call"));
    }
    if (!sent_.empty())
        shard_.timers().arm(*this, sent_.front().until);
}

void calls_under_way::close() noexcept
{
    closed_ = true;
    timer::cancel();
    while (!sent_.empty())
        end(sent_.begin(), gone());
    moved_.set();
}

} // namespace verbena::rpc
