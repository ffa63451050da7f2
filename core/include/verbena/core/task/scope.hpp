// SPDX-License-Identifier: Apache-2.0
// scope: where tasks without an awaiter live. There are no detached tasks; a scope joins its own.
#pragma once

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/task.hpp>

#include <cassert>
#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena {

namespace detail {
void log_lost_exception(const std::exception_ptr& e) noexcept;
/// A scope of `shard` is destroyed with `live` children. Ends the process with a message. While an exception is on its
/// way through, that is left to whoever sees the exception first: a task's end (exception_leaves_task()) or the shard's
/// next step.
void scope_goes_with_children(reactor& shard, const char* name, std::size_t live) noexcept;

template<class T>
inline constexpr bool is_task = false;
template<class T>
inline constexpr bool is_task<task<T>> = true;
} // namespace detail

/// Runs tasks concurrently on one shard and joins them. Destroying a scope with live children is a
/// failed assertion: request_stop(), then join(). If an exception leaves the scope with live children, the message
/// shows that exception. What a peer or a disk can cause travels as result<>. An exception that leaves a child ends
/// that child alone: the scope's handler hears of it, or else join() rethrows the first one.
class scope {
public:
    /// Children run on `shard`; they see this scope's stop token, and `parent`'s deadline and trace. `handler` outlives the
    /// scope's children. A scope that lives long has one, since it is joined late. `name` is what a dump of tasks shows, and
    /// outlives the scope.
    explicit scope(reactor& shard, const task_context* parent = nullptr, exception_handler* handler = nullptr,
                   const char* name = nullptr) noexcept
        : handler_(handler), group_(name)
    {
        if (parent != nullptr)
            context_ = *parent;
        context_.shard = &shard;
        context_.stop = stop_.token();
    }
    scope(const scope&) = delete;
    scope& operator=(const scope&) = delete;
    ~scope()
    {
#ifndef NDEBUG
        if (live_ != 0)
            detail::scope_goes_with_children(*context_.shard, group_.name(), live_);
#endif
        if (failure_)
            detail::log_lost_exception(failure_);
    }

    /// Calls `f(args...)` as std::invoke does and starts the task<void> that it returns, at once, until its first wait.
    ///
    ///     s.spawn(serve, std::move(connection), std::ref(counters));
    ///     s.spawn(&session::run, this);
    ///     s.spawn([&counters]() -> task<void> { ... });
    ///
    /// Lifetime: the scope keeps the callable and the arguments, decayed as std::thread does, until the child ends. So a
    /// lambda's captures stay valid in its coroutine, and what the child takes as `const T&` refers to the scope's copy. What it
    /// takes as `T&` is passed in std::ref() and outlives the child. Arguments are moved where they can be, so that they may be
    /// move-only. One allocation, from the shard's frame list, beside the child's own frame.
    /// Errors: what copying an argument throws leaves spawn() and no child is started. What the call or the child throws goes to
    /// the scope's handler or to join().
    /// Shard only.
    template<class F, class... Args>
    void spawn(F&& f, Args&&... args)
    {
        if constexpr (detail::is_task<std::remove_cvref_t<F>>) {
            static_assert(!detail::is_task<std::remove_cvref_t<F>>,
                          "spawn takes what makes the task, not the task: write s.spawn(f, args...) or "
                          "s.spawn([&] { return f(args...); }) in place of s.spawn(f(args...))");
        } else if constexpr (!std::is_invocable_v<std::decay_t<F>, std::decay_t<Args>...>) {
            static_assert(
                std::is_invocable_v<std::decay_t<F>, std::decay_t<Args>...>,
                "spawn can't call this with these arguments, which it keeps and hands over as rvalues: "
                "what the callable takes as T& is written std::ref(x)");
        } else if constexpr (!std::is_same_v<std::invoke_result_t<std::decay_t<F>, std::decay_t<Args>...>,
                                             task<void>>) {
            static_assert(
                std::is_same_v<std::invoke_result_t<std::decay_t<F>, std::decay_t<Args>...>, task<void>>,
                "spawn's callable returns task<void>: nobody would get the value of another task");
        } else {
            assert(context_.shard->is_here() &&
                   "scope::spawn() on another thread than its shard's, or in another shard's turn: "
                   "see runtime::call()");
            run<std::decay_t<F>, std::decay_t<Args>...>(*this, std::forward<F>(f),
                                                        std::forward<Args>(args)...);
        }
    }
    /// Asks every child that listens to stop. Shard only.
    void request_stop() noexcept
    {
        assert(context_.shard->is_here() &&
               "scope::request_stop() on another thread than its shard's, or in another shard's turn: "
               "see runtime::call()");
        stop_.request_stop();
    }
    /// Whether request_stop() was called on this scope itself; a stop of the parent's context does not reach
    /// it.
    bool stop_requested() const noexcept { return stop_.stop_requested(); }
    std::size_t live() const noexcept { return live_; }
    const task_context& context() const noexcept { return context_; }

    /// What join() returns.
    class [[nodiscard("co_await it: nothing waits here otherwise")]] join_awaiter {
    public:
        explicit join_awaiter(scope& s) noexcept : scope_(s) {}
        bool await_ready() const noexcept { return scope_.live_ == 0; }
        template<class Promise>
        void await_suspend(std::coroutine_handle<Promise> h) noexcept
        {
            scope_.joiner_ = h;
            scope_.group_.joined_by(detail::record_of(h));
        }
        void await_resume() const
        {
            if (scope_.failure_)
                std::rethrow_exception(std::exchange(scope_.failure_, {}));
        }

    private:
        scope& scope_;
    };
    /// `co_await s.join()`. Completes when: no child is left, those included that children spawn meanwhile. On cancel: it waits on; whoever
    /// wants the children to end calls request_stop(). Errors: rethrows the first exception that left a child, unless the scope
    /// has a handler. Lifetime: the scope outlives the wait. Shard: the scope's. One joiner at a time.
    join_awaiter join() noexcept
    {
        assert(!joiner_);
        return join_awaiter(*this);
    }

private:
    struct runner {
        class promise_type : public detail::root_record {
        public:
            template<class... Kept>
            explicit promise_type(scope& s, Kept&...) noexcept : root_record(s.group_, s.context_)
            {
            }
            static void* operator new(std::size_t size) { return allocate_frame(size); }
            static void operator delete(void* frame, std::size_t size) noexcept
            {
                release_frame(frame, size);
            }
            runner get_return_object() const noexcept { return {}; }
            std::suspend_never initial_suspend() const noexcept { return {}; }
            std::suspend_never final_suspend() const noexcept { return {}; }
            void return_void() const noexcept {}
            [[noreturn]] void unhandled_exception() const noexcept
            {
                std::terminate();
            } // run() lets none out
        };
    };
    // Its parameters are what the child may refer to: they go with this frame, after the child.
    template<class F, class... Args>
    static runner run(scope& s, F f, Args... args)
    {
        ++s.live_;
        try {
            task<void> child = std::invoke(std::move(f), std::move(args)...);
            co_await child;
        } catch (...) {
            s.failed(std::current_exception());
        }
        s.finished();
    }
    void failed(std::exception_ptr e) noexcept
    {
        if (handler_ != nullptr)
            handler_->on_exception(e);
        else if (!failure_)
            failure_ = std::move(e);
    }
    void finished() noexcept
    {
        if (--live_ == 0 && joiner_) {
            group_.joiner_goes_on();
            context_.shard->post(std::exchange(joiner_, {}));
        }
    }

    task_context context_;
    stop_source stop_;
    std::size_t live_ = 0;
    std::coroutine_handle<> joiner_;
    exception_handler* handler_;
    detail::task_group group_;
    std::exception_ptr failure_; // the first, without a handler
};

/// run_until_complete() threw it: the loop ended before the task did. what() says why.
class incomplete_run : public std::runtime_error {
public:
    /// `why` is how the loop's run ended.
    explicit incomplete_run(run_end why);
    run_end why() const noexcept { return why_; }

private:
    run_end why_;
};

namespace detail {
template<class T>
task<void> complete_into(reactor& r, task<T> t, std::optional<T>& out, std::exception_ptr& failure,
                         bool& ended)
{
    try {
        out.emplace(co_await t);
    } catch (...) {
        failure = std::current_exception();
    }
    ended = true;
    r.stop();
}
inline task<void> complete(reactor& r, task<void> t, std::exception_ptr& failure, bool& ended)
{
    try {
        co_await t;
    } catch (...) {
        failure = std::current_exception();
    }
    ended = true;
    r.stop();
}
/// What turns the shard of a task that a caller outside of it waits for.
class driver {
public:
    /// Until somebody calls stop() of the reactor, or nothing can happen any more.
    virtual run_end run() = 0;

protected:
    ~driver() = default;
};
/// Runs `d` until the only child of `s` has `ended`, and throws if it had to be stopped for that.
void run_to_the_end(driver& d, scope& s, const bool& ended);

/// As run_until_complete(), which drives `r` alone.
template<class T>
T complete_by(driver& d, reactor& r, task<T> t)
{
    std::exception_ptr failure;
    bool ended = false;
    scope s(r, nullptr, nullptr, "run_until_complete");
    if constexpr (std::is_void_v<T>) {
        s.spawn(already_made, complete(r, std::move(t), failure, ended));
        run_to_the_end(d, s, ended);
        if (failure)
            std::rethrow_exception(failure);
    } else {
        std::optional<T> out;
        s.spawn(already_made, complete_into<T>(r, std::move(t), out, failure, ended));
        run_to_the_end(d, s, ended);
        if (failure)
            std::rethrow_exception(failure);
        return std::move(*out);
    }
}

class one_reactor final : public driver {
public:
    explicit one_reactor(reactor& r) noexcept : reactor_(r) {}
    run_end run() override { return reactor_.run(); }

private:
    reactor& reactor_;
};
} // namespace detail

/// Runs `t` to its end on `r`, which must not be running, and yields its value. For main() and tests. On the thread
/// of `r`.
/// Errors: rethrows what leaves the task. If the loop ends before the task does, since somebody else called r.stop()
/// or since nothing can happen any more under a virtual clock, the task is asked to stop, the loop runs on until it
/// has ended, its outcome is dropped, and incomplete_run is thrown. A task that is deaf to the stop can't be left
/// behind, since it refers to what goes with the caller: by a real clock the loop goes on for it, and where nothing
/// can ever end it, the process ends with a message.
template<class T>
T run_until_complete(reactor& r, task<T> t)
{
    detail::one_reactor alone(r);
    return detail::complete_by(alone, r, std::move(t));
}

} // namespace verbena

#pragma GCC visibility pop
