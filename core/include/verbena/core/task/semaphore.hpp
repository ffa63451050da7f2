// SPDX-License-Identifier: Apache-2.0
// semaphore: counted permits, handed out in order of asking.
#pragma once

#include <verbena/core/task/wait_queue.hpp>

#include <cstddef>

#pragma GCC visibility push(default)

namespace verbena {

/// Permits that are counted, and handed out in order of asking. Shard-local. Must outlive its waits.
class semaphore {
public:
    /// Begins with `permits` to give out.
    explicit semaphore(std::size_t permits) noexcept : permits_(permits) {}

    /// What acquire() returns.
    class [[nodiscard("co_await it: nothing waits here otherwise")]] awaiter {
    public:
        explicit awaiter(semaphore& s) noexcept : semaphore_(s) {}
        bool await_ready() noexcept { return semaphore_.try_acquire(); }
        template<class Promise>
        bool await_suspend(std::coroutine_handle<Promise> h) noexcept
        {
            return waiter_.suspend(semaphore_.waiters_, h, wait_kind::semaphore, &semaphore_);
        }
        /// True with a permit, false if the wait was stopped.
        bool await_resume() const noexcept { return !waiter_.stopped(); }

    private:
        semaphore& semaphore_;
        detail::waiter waiter_;
    };

    /// Takes a permit if one is free and nobody waits.
    [[nodiscard("true: a permit was taken, to be released")]] bool try_acquire() noexcept
    {
        if (permits_ == 0 || !waiters_.empty())
            return false;
        --permits_;
        return true;
    }
    /// `co_await s.acquire()`. Completes when: there is a permit and nobody waits longer. On cancel: it ends and yields false, without
    /// a permit; else true, and the permit is to be released. Errors: none. Lifetime: the semaphore outlives the wait. Shard: that
    /// of the task, one for all that wait here.
    awaiter acquire() noexcept { return awaiter(*this); }
    /// Gives permits back; each goes to the longest waiter, if there is one. On the shard of those only.
    void release(std::size_t n = 1) noexcept
    {
        for (detail::waiter* w; n > 0 && (w = waiters_.front()) != nullptr; --n)
            w->wake();
        permits_ += n;
    }
    /// Permits that try_acquire() would find now.
    std::size_t available() const noexcept { return permits_; }

private:
    std::size_t permits_;
    intrusive_list<detail::waiter> waiters_;
};

/// A permit that was acquired; it is given back when this goes. Shard-local; the semaphore outlives it.
class held_permit {
public:
    /// Takes over one permit that the caller has acquired from `of`.
    explicit held_permit(semaphore& of) noexcept : semaphore_(of) {}
    held_permit(const held_permit&) = delete;
    held_permit& operator=(const held_permit&) = delete;
    ~held_permit() { semaphore_.release(); }

private:
    semaphore& semaphore_;
};

} // namespace verbena

#pragma GCC visibility pop
