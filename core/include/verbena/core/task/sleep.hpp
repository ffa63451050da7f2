// SPDX-License-Identifier: Apache-2.0
// Waiting for a time.
#pragma once

#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/task/wait_queue.hpp>

#pragma GCC visibility push(default)

namespace verbena {

/// Awaits a time on the shard's clock; see sleep_until().
class [[nodiscard("co_await it: nothing waits here otherwise")]] sleep_awaiter {
public:
    explicit sleep_awaiter(time_point when) noexcept : when_(when) {}
    explicit sleep_awaiter(duration d) noexcept : relative_(d) {}
    bool await_ready() const noexcept { return false; }
    template<class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h)
    {
        if (!node_.waiter.suspend(node_.queue, h, wait_kind::sleep, static_cast<timer*>(&node_)))
            return false;
        reactor& r = node_.waiter.shard();
        r.timers().arm(node_, relative_ >= duration::zero() ? r.clock().now() + relative_ : when_);
        return true;
    }
    /// True if the time came, false if the wait was stopped.
    bool await_resume() noexcept
    {
        node_.cancel();
        return !node_.waiter.stopped();
    }

private:
    class node final : public timer {
    public:
        void on_timer() noexcept override
        {
            if (waiter.is_linked()) // else it was stopped, and resumes for that
                waiter.wake();
        }
        detail::waiter waiter;
        intrusive_list<detail::waiter> queue;
    };
    time_point when_{};
    duration relative_ = duration(-1);
    node node_;
};

/// `co_await sleep_until(t)`. Completes when: the clock of the task's shard has come to `t`, never at once. On cancel: it ends
/// and yields false, else true. Errors: none, but std::bad_alloc where the shard's timers need more room. Lifetime: it borrows
/// nothing. Shard: that of the task.
inline sleep_awaiter sleep_until(time_point t) noexcept { return sleep_awaiter(t); }
/// The same for `now + d`, d >= 0.
inline sleep_awaiter sleep_for(duration d) noexcept { return sleep_awaiter(d); }

} // namespace verbena

#pragma GCC visibility pop
