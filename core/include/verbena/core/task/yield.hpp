// SPDX-License-Identifier: Apache-2.0
// yield: a task lets the others of its shard go first.
//
// A shard runs one task at a time until that waits. A task with much to compute or to copy holds all others of its shard up, and
// the clients behind them. It calls yield() now and then, some ten times a millisecond at most.
#pragma once

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/task.hpp>

#include <coroutine>

#pragma GCC visibility push(default)

namespace verbena {

/// Awaits the shard's next turn; see yield().
class [[nodiscard("co_await it: nobody goes first otherwise")]] yield_awaiter final : public deferred {
public:
    bool await_ready() const noexcept { return false; }
    template<class Promise>
    void await_suspend(std::coroutine_handle<Promise> h)
    {
        handle_ = h;
        const task_context* const context = h.promise().context();
        shard_ = context != nullptr && context->shard != nullptr ? context->shard : reactor::current();
        mark_.set(h, "the next turn of its shard, amid something long");
        shard_->post_last(*this);
    }
    void await_resume() const noexcept {}
    void run() noexcept override
    {
        mark_.clear();
        shard_->post(handle_);
    }

private:
    std::coroutine_handle<> handle_;
    reactor* shard_ = nullptr;
    wait_mark mark_;
};

/// `co_await yield()`. Completes when: all that is due in this turn of the shard's loop has run, in the turn behind it, for which sockets,
/// timers and devices are looked at. On cancel: it completes all the same; a long loop asks its context's stop token. Errors: none.
/// Lifetime: it borrows nothing. Shard: that of the task.
inline yield_awaiter yield() noexcept { return yield_awaiter(); }

} // namespace verbena

#pragma GCC visibility pop
