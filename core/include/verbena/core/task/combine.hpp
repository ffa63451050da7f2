// SPDX-License-Identifier: Apache-2.0
// when_all, when_any and with_timeout: several tasks, or a task and a clock, as one task.
//
// All of them join what they started: when they return, nothing of it runs any more. Stopping the task
// that awaits them stops what they run. An exception that leaves a child is rethrown after the join.
#pragma once

#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/scope.hpp>

#include <cassert>
#include <concepts>
#include <cstddef>
#include <exception>
#include <functional>
#include <limits>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

namespace detail {

/// void has no values, so std::monostate stands for it.
template<class T>
using value_of = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

template<class T>
class outcome {
public:
    std::optional<value_of<T>> value;
    std::exception_ptr failure;

    value_of<T> take()
    {
        if (failure)
            std::rethrow_exception(failure);
        return std::move(*value);
    }
};

template<class T>
task<void> keep(task<T> t, outcome<T>& out)
{
    try {
        if constexpr (std::is_void_v<T>) {
            co_await t;
            out.value.emplace();
        } else {
            out.value.emplace(co_await t);
        }
    } catch (...) {
        out.failure = std::current_exception();
    }
}

/// A scope whose stop follows that of the context it was made in.
class linked_scope {
public:
    explicit linked_scope(const task_context& parent) noexcept : scope_(*parent.shard, &parent), link_(scope_)
    {
        if (!parent.stop.subscribe(link_))
            scope_.request_stop();
    }
    scope& get() noexcept { return scope_; }

private:
    class link final : public stop_listener {
    public:
        explicit link(scope& s) noexcept : scope_(s) {}
        void on_stop() noexcept override { scope_.request_stop(); }

    private:
        scope& scope_;
    };
    scope scope_;
    link link_;
};

template<class T>
task<void> race(task<T> t, outcome<T>& out, std::size_t index, std::size_t& winner, scope& s)
{
    try {
        task<void> kept = keep(std::move(t), out);
        co_await kept;
    } catch (...) { // no memory for it: it was the first to end
        out.failure = std::current_exception();
    }
    if (winner == std::numeric_limits<std::size_t>::max()) {
        winner = index;
        s.request_stop();
    }
}

/// Of tasks that are begun one after the other: where there is no memory for one of them, the others end first.
class begun_together {
public:
    explicit begun_together(scope& s) noexcept : scope_(s) {}
    template<class Begin>
    void begin(Begin all) noexcept
    {
        try {
            all();
        } catch (...) {
            failure_ = std::current_exception();
            scope_.request_stop();
        }
    }
    /// Behind the join.
    void rethrow() const
    {
        if (failure_)
            std::rethrow_exception(failure_);
    }

private:
    scope& scope_;
    std::exception_ptr failure_;
};

class expiry final : public timer {
public:
    explicit expiry(scope& s) noexcept : scope_(s) {}
    void on_timer() noexcept override
    {
        expired = true;
        scope_.request_stop();
    }
    bool expired = false;

private:
    scope& scope_;
};

} // namespace detail

/// Runs all tasks at once and yields their values in order (std::monostate for void).
///
/// Completes when: all have ended. On cancel: all are asked to stop, and it waits for their ends. Errors: if exceptions left
/// tasks, that of the first of these in order is rethrown once all have ended; none stops the others. Where there is
/// no memory to begin one of them, those that run are stopped, and std::bad_alloc is thrown once they have ended.
/// Lifetime: it owns the tasks; what they refer to outlives it. Shard: that of the task that awaits it.
template<class... Ts>
task<std::tuple<detail::value_of<Ts>...>> when_all(task<Ts>... tasks)
{
    const task_context& context = co_await current_context();
    std::tuple<detail::outcome<Ts>...> outcomes;
    detail::linked_scope running(context);
    detail::begun_together together(running.get());
    together.begin([&] {
        std::apply(
            [&](auto&... out) {
                (running.get().spawn(already_made, detail::keep<Ts>(std::move(tasks), out)), ...);
            },
            outcomes);
    });
    co_await running.get().join();
    together.rethrow();
    co_return std::apply([](auto&... out) { return std::tuple<detail::value_of<Ts>...>{out.take()...}; },
                         outcomes);
}

/// The same for any number of tasks of one type.
template<class T>
task<std::vector<detail::value_of<T>>> when_all(std::vector<task<T>> tasks)
{
    const task_context& context = co_await current_context();
    std::vector<detail::outcome<T>> outcomes(tasks.size());
    detail::linked_scope running(context);
    detail::begun_together together(running.get());
    together.begin([&] {
        for (std::size_t i = 0; i < tasks.size(); ++i)
            running.get().spawn(already_made, detail::keep<T>(std::move(tasks[i]), outcomes[i]));
    });
    co_await running.get().join();
    together.rethrow();
    std::vector<detail::value_of<T>> values;
    values.reserve(outcomes.size());
    for (auto& out : outcomes)
        values.push_back(out.take());
    co_return values;
}

/// Which task was first, and what it yielded.
template<class T>
class first_of {
public:
    /// Task `i` yielded `v`.
    first_of(std::size_t i, detail::value_of<T> v) : index(i), value(std::move(v)) {}
    std::size_t index;         ///< of the task in the order of the arguments, from 0
    detail::value_of<T> value; ///< what the task yielded
};

/// Runs all tasks (at least one) until the first of them ends, and yields that one's value.
///
/// Completes when: the first has ended, the others were asked to stop and have ended too; their values are dropped. On cancel:
/// all are asked to stop, and whichever ends first is the first. Errors: an exception that leaves the first task is rethrown,
/// those that leave the others are dropped; without memory it is as with when_all(). Lifetime: it owns the tasks; what
/// they refer to outlives it. Shard: that of the task that awaits it.
template<class T>
task<first_of<T>> when_any(std::vector<task<T>> tasks)
{
    assert(!tasks.empty());
    const task_context& context = co_await current_context();
    std::vector<detail::outcome<T>> outcomes(tasks.size());
    std::size_t winner = std::numeric_limits<std::size_t>::max();
    detail::linked_scope running(context);
    detail::begun_together together(running.get());
    together.begin([&] {
        for (std::size_t i = 0; i < tasks.size(); ++i)
            running.get().spawn(already_made,
                                detail::race<T>(std::move(tasks[i]), outcomes[i], i, winner, running.get()));
    });
    co_await running.get().join();
    together.rethrow();
    co_return first_of<T>(winner, outcomes[winner].take());
}

/// The same for tasks named one by one.
template<class T, std::same_as<task<T>>... More>
task<first_of<T>> when_any(task<T> first, More... more)
{
    std::vector<task<T>> tasks;
    tasks.reserve(1 + sizeof...(more));
    tasks.push_back(std::move(first));
    (tasks.push_back(std::move(more)), ...);
    return when_any(std::move(tasks));
}

/// Gives `t` at most `limit` on the shard's clock, or until its context's deadline if that is nearer: then asks it to stop. The
/// task sees the nearer deadline in its context.
///
/// Completes when: the task has ended. On cancel: the task is asked to stop, and its end is waited for. Errors: ETIMEDOUT in
/// place of the task's error where the time was over; a task that succeeds all the same keeps its value: nothing done is lost. An
/// exception is rethrown. Lifetime: it owns the task; what that refers to outlives it. Shard: that of the task that awaits it.
template<class T>
task<result<T>> with_timeout(duration limit, task<result<T>> t)
{
    const task_context& context = co_await current_context();
    task_context narrowed = context;
    const time_point now = context.shard->clock().now();
    if (limit < narrowed.deadline - now) // compared so, since now + limit may be beyond all times
        narrowed.deadline = now + limit;
    detail::outcome<result<T>> out;
    detail::linked_scope running(narrowed);
    detail::expiry expiry(running.get());
    if (narrowed.deadline != time_point::max()) // else there is none, and a virtual clock must not go there
        context.shard->timers().arm(expiry, narrowed.deadline);
    running.get().spawn(detail::keep<result<T>>, std::move(t), std::ref(out));
    co_await running.get().join();
    expiry.cancel();
    result<T> value = out.take();
    if (!value && expiry.expired)
        co_return error(std::errc::timed_out, "the time limit passed");
    co_return value;
}

} // namespace verbena

#pragma GCC visibility pop
