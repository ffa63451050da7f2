// SPDX-License-Identifier: Apache-2.0
// event: something that happens once (or until reset) and that many may wait for.
#pragma once

#include <verbena/core/task/wait_queue.hpp>

#pragma GCC visibility push(default)

namespace verbena {

/// Something that happens, once or until it is reset, and that any number of tasks await. Shard-local: set,
/// reset and awaited there. Must outlive its waits.
class event {
public:
    /// What wait() returns.
    class [[nodiscard("co_await it: nothing waits here otherwise")]] awaiter {
    public:
        explicit awaiter(event& e, const char* what) noexcept : event_(e), what_(what) {}
        bool await_ready() const noexcept { return event_.set_; }
        template<class Promise>
        bool await_suspend(std::coroutine_handle<Promise> h) noexcept
        {
            return waiter_.suspend(event_.waiters_, h, kind_of(what_), object_of(event_, what_));
        }
        /// True if the event happened, false if the wait was stopped.
        bool await_resume() const noexcept { return !waiter_.stopped(); }

    private:
        event& event_;
        const char* const what_;
        detail::waiter waiter_;
    };

    /// What wait_shielded() returns.
    class [[nodiscard("co_await it: nothing waits here otherwise")]] shielded_awaiter {
    public:
        explicit shielded_awaiter(event& e, const char* what) noexcept : event_(e), what_(what) {}
        bool await_ready() const noexcept { return event_.set_; }
        template<class Promise>
        void await_suspend(std::coroutine_handle<Promise> h) noexcept
        {
            waiter_.suspend_shielded(event_.waiters_, h, kind_of(what_), object_of(event_, what_));
        }
        void await_resume() const noexcept {}

    private:
        event& event_;
        const char* const what_;
        detail::waiter waiter_;
    };

    /// Whether set() was called since it was made or reset. On the shard only, as reset().
    bool is_set() const noexcept { return set_; }
    /// Wakes all who wait. On the shard of those only.
    void set() noexcept
    {
        set_ = true;
        while (detail::waiter* w = waiters_.front())
            w->wake();
    }
    /// Makes later waits wait again. Those that set() woke go on.
    void reset() noexcept { set_ = false; }
    /// `co_await e.wait()`. Completes when: the event is set, or at once if it is; the task then goes on in the shard's run queue, so
    /// that a reset() may come before. On cancel: it ends and yields false, else true. Errors: none. Lifetime: the event outlives
    /// the wait. Shard: that of the task, one for all that wait here. `what`, a literal, says in dumps what happens then, behind
    /// "waits for".
    awaiter wait(const char* what = nullptr) noexcept { return awaiter(*this, what); }
    /// The same, deaf to the stop: for an end that is certain to come.
    shielded_awaiter wait_shielded(const char* what = nullptr) noexcept
    {
        return shielded_awaiter(*this, what);
    }

private:
    static wait_kind kind_of(const char* what) noexcept
    {
        return what != nullptr ? wait_kind::other : wait_kind::event;
    }
    static const void* object_of(const event& e, const char* what) noexcept
    {
        return what != nullptr ? static_cast<const void*>(what) : &e;
    }
    bool set_ = false;
    intrusive_list<detail::waiter> waiters_;
};

} // namespace verbena

#pragma GCC visibility pop
