// SPDX-License-Identifier: Apache-2.0
// What arrives on a connection, and the receives that stand for it.
#include "responder_connection.hpp"

#include <algorithm>

namespace verbena::rpcrdma {

lease responder_connection::take_received(std::uint32_t slot) noexcept
{
    return own_receives_ ? own_receives_->take(slot) : receives_.take(slot);
}

bool responder_connection::is_short_of_receives() const noexcept
{
    return own_receives_ ? own_receives_->held() < credits_.counted() : receives_.is_short();
}

// Before a call is served, and whenever something completes: then memory may be free that was not.
bool responder_connection::fill_receives() noexcept
{
    return own_receives_ ? fill_own_receives() : receives_.fill();
}

// With one for a message that uses no credit, as each connection has where they share.
bool responder_connection::fill_own_receives() noexcept
{
    const auto filled =
        own_receives_->fill(std::uint64_t(credits_.counted()) + 1,
                            [this](const verbs::receive_request& r) { return post_receive(r); });
    if (filled == posted_receives::outcome::no_memory) {
        stats_.receive_shortages.add();
        // Where none stands, nothing arrives or completes that would lead here again.
        if (!receive_awaited_ && own_receives_->held() == 0)
            begin_waiting_for_receive();
    }
    return filled == posted_receives::outcome::done;
}

void responder_connection::begin_waiting_for_receive() noexcept
{
    receive_awaited_ = true;
    try {
        calls_scope_.spawn(&responder_connection::await_receive, this);
    } catch (...) {
        on_exception(std::current_exception());
    }
}

task<void> responder_connection::await_receive()
{
    lease memory;
    // In turns: who waits for a large buffer holds up those behind it who would do with less.
    while (!memory && !calls_scope_.stop_requested())
        memory = co_await buffers_.acquire(receive_size(), buffer_pool::call_patience);
    receive_awaited_ = false;
    if (memory && !down() && own_receives_->add(std::move(memory), [this](const verbs::receive_request& r) {
            return post_receive(r);
        }))
        fill_own_receives();
}

// A call came, whose requester wants so many credits.
void responder_connection::count_call(std::uint32_t wanted) noexcept
{
    const std::uint32_t raised = credits_.called(wanted, heard_);
    if (raised == 0)
        return;
    if (fill_receives())
        stats_.credit_raises.add();
    else
        credits_.take_back(raised);
}

void responder_connection::run() noexcept
{
    turn_used_ = 0;
    for (;;) {
        if (handled_ == handling_.size()) {
            handled_ = 0;
            handling_.clear();
            handling_.swap(arrived_);
            if (handling_.empty())
                return;
        }
        // What came at once, up to all credits, must not keep other connections waiting.
        if (turn_used_ >= options_.turn_share) {
            stats_.yields.add();
            provider_.shard().post_last(static_cast<deferred&>(*this));
            return;
        }
        const arrival a = handling_[handled_++];
        ++turn_used_;
        lease message = take_received(a.slot);
        // First a receive for the next message, then this one.
        if (!down())
            fill_receives();
        if (!down() && reverse_ && reverse_->answered(message, a.length)) {
            credits_.answered_back();
            continue;
        }
        try {
            begin_call(std::move(message), a.length);
        } catch (...) { // its requester would wait for the answer
            on_exception(std::current_exception());
        }
    }
}

} // namespace verbena::rpcrdma
