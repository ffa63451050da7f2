// SPDX-License-Identifier: Apache-2.0
// yield: a task lets the others of its shard go first.
//
// A shard runs one task at a time until that waits. A task with much to compute holds all others of its shard up, and
// the clients behind them. It calls yield() now and then, some ten times a millisecond at most.
#pragma once

#include <verbena/core/reactor.hpp>
#include <verbena/core/task.hpp>

#include <coroutine>

#pragma GCC visibility push(default)

namespace verbena {

/// Awaits the rest of the run queue; see yield().
class [[nodiscard("co_await it: nobody goes first otherwise")]] yield_awaiter {
public:
    bool await_ready() const noexcept { return false; }
    template<class Promise>
    void await_suspend(std::coroutine_handle<Promise> h) const
    {
        h.promise().context()->shard->post(h);
    }
    void await_resume() const noexcept {}
};

/// `co_await yield()`. Completes when: every task that was ready before has run until its next wait. Sockets, timers
/// and devices are looked at after 16 such rounds at the latest. On cancel: it completes all the same; a long loop asks
/// its context's stop token. Errors: none, but std::bad_alloc where the run queue needs more room. Lifetime: it borrows
/// nothing. Shard: that of the task.
inline yield_awaiter yield() noexcept { return {}; }

} // namespace verbena

#pragma GCC visibility pop
