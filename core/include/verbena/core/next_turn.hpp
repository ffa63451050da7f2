// SPDX-License-Identifier: Apache-2.0
// Waiting for the shard's next turn: what computes or copies for long is done in pieces, so that the shard serves others between them.
#pragma once

#include <verbena/core/reactor.hpp>
#include <verbena/core/task.hpp>

#include <coroutine>

#pragma GCC visibility push(default)

namespace verbena {

/// `co_await next_turn()`. Completes when: the shard has done all that is due in this turn, in the turn behind it. On cancel: it waits
/// on, for it is short; who wants to end early asks the stop token of its context. Errors: none. Lifetime: it borrows nothing.
/// Shard: that of the task.
class [[nodiscard("co_await it: nothing waits here otherwise")]] next_turn final : public deferred {
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

} // namespace verbena

#pragma GCC visibility pop
