// SPDX-License-Identifier: Apache-2.0
// Permits that are handed out in the order of asking. Unlike those of a semaphore, a wait has an end, and all who wait can be told to look anew.
#pragma once

#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/task/wait_queue.hpp>

#include <cstddef>
#include <cstdint>

namespace verbena::rtrs {

/// How a wait for a permit ended.
enum class turn : std::uint8_t {
    taken,      ///< with a permit, to be given back
    look_again, ///< wake_all()
    late,       ///< the time was over
    stopped,    ///< the task is to stop
};

/// One shard.
class permit_line {
    class entry : public verbena::detail::waiter {
    public:
        turn how = turn::stopped;
    };

public:
    explicit permit_line(std::size_t permits) noexcept : permits_(permits) {}

    class [[nodiscard("co_await it: nothing waits here otherwise")]] awaiter : timer {
    public:
        awaiter(permit_line& line, time_point until) noexcept : line_(line), until_(until) {}
        bool await_ready() const noexcept { return false; }
        template<class Promise>
        bool await_suspend(std::coroutine_handle<Promise> h)
        {
            entry_.prepare(h);
            if (until_ != time_point::max())
                entry_.shard().timers().arm(*this, until_);
            return entry_.suspend(line_.waiting_, h, wait_kind::other, "a place for a request of RTRS");
        }
        turn await_resume() noexcept
        {
            cancel();
            return entry_.stopped() ? turn::stopped : entry_.how;
        }

    private:
        void on_timer() noexcept override
        {
            if (!entry_.is_linked())
                return; // it has been woken for something else
            entry_.how = turn::late;
            entry_.wake();
        }
        permit_line& line_;
        const time_point until_;
        entry entry_;
    };

    std::size_t available() const noexcept { return permits_; }
    /// Takes a permit if one is free and nobody waits.
    [[nodiscard]] bool try_take() noexcept
    {
        if (permits_ == 0 || !waiting_.empty())
            return false;
        --permits_;
        return true;
    }
    /// Completes when: there is a permit and nobody waits longer; `until` has come; wake_all() was called. On cancel: it ends. Errors:
    /// std::bad_alloc where the shard's timers need more room. Lifetime: the line outlives the wait. Shard: that of the task.
    awaiter wait(time_point until) noexcept { return awaiter(*this, until); }
    /// Each goes to the longest waiter, if there is one.
    void give(std::size_t n = 1) noexcept
    {
        for (; n > 0 && !waiting_.empty(); --n)
            wake_front(turn::taken);
        permits_ += n;
    }
    void wake_all() noexcept
    {
        while (!waiting_.empty())
            wake_front(turn::look_again);
    }

private:
    void wake_front(turn how) noexcept
    {
        entry& first = static_cast<entry&>(*waiting_.front());
        first.how = how;
        first.wake();
    }
    std::size_t permits_;
    intrusive_list<verbena::detail::waiter> waiting_;
};

} // namespace verbena::rtrs
