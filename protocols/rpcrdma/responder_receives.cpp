// SPDX-License-Identifier: Apache-2.0
// The receives of a connection, the credits that they back, and what arrives in them.
#include "responder_connection.hpp"

#include <algorithm>

namespace verbena::rpcrdma {

void responder_connection::add_receive_slots(std::uint32_t more)
{
    const auto before = static_cast<std::uint32_t>(receive_slots_.size());
    const std::uint32_t all = before + more;
    empty_slots_.reserve(all);
    arrived_.reserve(all);
    handling_.reserve(all);
    receive_slots_.resize(all);
    for (std::uint32_t i = all; i > before; --i)
        empty_slots_.push_back(i - 1);
}

// A call came, whose requester wants so many. How many it has under way can't be seen here: it waits for credits where its calls are
// answered at once, too.
void responder_connection::raise_credits(std::uint32_t wanted)
{
    const std::uint32_t most = std::min({options_.credits, wanted, 2 * credits_});
    if (most <= credits_)
        return;
    const time_point now = provider_.shard().now();
    if (now - window_begun_ > options_.credit_window) {
        window_begun_ = now;
        window_calls_ = 0;
    }
    if (++window_calls_ < credits_)
        return;
    window_begun_ = now;
    window_calls_ = 0;
    const std::uint32_t more = most - credits_;
    const std::uint64_t bytes = more * receive_size();
    const bool is_only_one = share_->raised == raised_;
    if (receives_.raised + bytes > options_.max_raised_bytes ||
        (!is_only_one && share_->raised + bytes > options_.max_address_raised_bytes))
        return;
    receives_.raised += bytes;
    share_->raised += bytes;
    raised_ += bytes;
    stats_.credit_raises.add();
    credits_ = most;
    add_receive_slots(more);
    receive_again();
}

bool responder_connection::post_receive(lease memory) noexcept
{
    const std::uint32_t slot = empty_slots_.back();
    const verbs::receive_request r{
        make_id(operation::receive, 0, slot),
        {memory.data(), static_cast<std::uint32_t>(std::max<std::size_t>(options_.inline_size, 4096)), 0}};
    if (!queue_pair_->post_receive({&r, 1}))
        return false;
    receive_slots_[slot] = std::move(memory);
    empty_slots_.pop_back();
    return true;
}

bool responder_connection::post_receives() noexcept
{
    while (!empty_slots_.empty()) {
        lease memory = buffers_.try_acquire(receive_size());
        if (!memory) {
            stats_.receive_shortages.add();
            return false;
        }
        if (!post_receive(std::move(memory)))
            return false;
    }
    return true;
}

// What arrives and what completes makes up for receives that could not be posted. Where none stands, nothing arrives.
void responder_connection::receive_again() noexcept
{
    if (post_receives() || receive_awaited_ || empty_slots_.size() < receive_slots_.size())
        return;
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
    if (memory && !down_ && !empty_slots_.empty() && post_receive(std::move(memory)))
        post_receives();
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
        lease message = std::move(receive_slots_[a.slot]);
        empty_slots_.push_back(a.slot);
        // First a receive for the next message, then this one.
        if (!down_)
            receive_again();
        if (!down_ && reverse_ && reverse_->answered(message, a.length))
            continue;
        try {
            begin_call(std::move(message), a.length);
        } catch (...) { // its requester would wait for the answer
            on_exception(std::current_exception());
        }
    }
}

} // namespace verbena::rpcrdma
