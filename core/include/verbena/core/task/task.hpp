// SPDX-License-Identifier: Apache-2.0
// task<T>: a lazy coroutine that one other coroutine awaits.
//
// The problem: a loop that awaits tasks which are already finished must use constant stack in every
// compiler and build type, and g++ 12 gives no tail calls at -O0, -O1 or under ASan. So a task
// starts inside its awaiter's await_suspend; if it finishes there, the awaiter is told not to
// suspend at all, and no resumption happens. Only a task that really waited resumes its awaiter, and
// then the stack is as deep as the chain of awaits, never as long as a loop.
//
// The promise carries a pointer to the request's context; nothing rides in thread-locals.
// docs/internals/tasks.md tells the whole story.
#pragma once

#include <verbena/core/task/frame_pool.hpp>
#include <verbena/core/task/stop.hpp>
#include <verbena/core/task/wait_record.hpp>

#include <chrono>
#include <concepts>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena {

class reactor;

/// What a chain of tasks inherits from the task that awaits it. Owned by the root (a scope) or by
/// whoever narrows it (with_timeout); outlives every task that points at it.
struct task_context {
    reactor* shard = nullptr; ///< the reactor whose thread runs the tasks
    stop_token stop;          ///< asked before and during waits that document it
    std::chrono::steady_clock::time_point deadline =
        std::chrono::steady_clock::time_point::max(); ///< of the request, by the shard's clock; max(): none
    std::uint64_t trace_id = 0;                       ///< appears in log lines; 0 when the request has none
};

namespace detail {

// Misuse, where assertions are compiled in: each writes a message that names the rule and the tasks, and ends the
// process.

/// `frame` of a task that has been awaited before, and of the coroutine that awaits it now.
[[noreturn]] void awaited_again(const void* frame, const void* awaiter) noexcept;
/// A task without a coroutine is awaited by that of `awaiter`.
[[noreturn]] void awaited_nothing(const void* awaiter) noexcept;
/// The exception being handled leaves a task of `context`. Returns, unless it left a scope with live children on its
/// way.
void exception_leaves_task(const task_context* context) noexcept;

class promise_base : public wait_record {
public:
    static void* operator new(std::size_t size) { return allocate_frame(size); }
    static void operator delete(void* frame, std::size_t size) noexcept { release_frame(frame, size); }

    std::suspend_always initial_suspend() const noexcept { return {}; }

    struct final_awaiter {
        bool await_ready() const noexcept { return false; }
        template<class Promise>
        void await_suspend(std::coroutine_handle<Promise> self) const noexcept
        {
            promise_base& p = self.promise();
            const bool inside_start = p.phase_ == phase::starting;
            p.phase_ = phase::finished;
            if (inside_start)
                return;
            if (p.parent_ != nullptr)
                p.parent_->goes_on();
            // The awaiter may destroy this frame before resume() returns: nothing of it is touched after.
            p.continuation_.resume();
        }
        void await_resume() const noexcept {}
    };
    final_awaiter final_suspend() const noexcept { return {}; }

    /// Runs the task for its awaiter, `parent` (nullptr if that keeps no record); true if the awaiter must stay suspended.
    bool start(std::coroutine_handle<> self, std::coroutine_handle<> continuation,
               wait_record* parent) noexcept
    {
#ifndef NDEBUG
        if (phase_ != phase::created)
            awaited_again(self.address(), continuation.address());
#endif
        continuation_ = continuation;
        phase_ = phase::starting;
        self.resume();
        if (phase_ == phase::finished)
            return false;
        phase_ = phase::waiting;
        // Only now, so that a task which ends without a wait costs nothing.
        set_frame(self.address());
        parent_ = parent;
        if (parent != nullptr)
            parent->waits(wait_kind::task, static_cast<wait_record*>(this));
        return true;
    }

private:
    enum class phase : std::uint8_t { created, starting, waiting, finished };

    phase phase_ = phase::created;
    std::coroutine_handle<> continuation_;
    wait_record* parent_; // not initialised: written when it is suspended first
};

template<class T>
class promise_result {
public:
    promise_result() noexcept {}
    promise_result(const promise_result&) = delete;
    ~promise_result()
    {
        if (state_ == state::value)
            std::destroy_at(&value_);
        else if (state_ == state::exception)
            std::destroy_at(&exception_);
    }
    template<class U>
        requires std::constructible_from<T, U>
    void return_value(U&& value)
    {
        std::construct_at(&value_, std::forward<U>(value));
        state_ = state::value;
    }
    void unhandled_exception() noexcept
    {
        std::construct_at(&exception_, std::current_exception());
        state_ = state::exception;
    }
    T take()
    {
        if (state_ == state::exception)
            std::rethrow_exception(exception_);
        return std::move(value_);
    }

private:
    enum class state : std::uint8_t { empty, value, exception };
    union {
        T value_;
        std::exception_ptr exception_;
    };
    state state_ = state::empty;
};

template<>
class promise_result<void> {
public:
    void return_void() noexcept {}
    void unhandled_exception() noexcept { exception_ = std::current_exception(); }
    void take()
    {
        if (exception_)
            std::rethrow_exception(exception_);
    }

private:
    std::exception_ptr exception_;
};

} // namespace detail

/// A coroutine that has not started. Awaiting it, once, runs it and yields its value. To await it a second time, or to
/// await a task that holds no coroutine, is a failed assertion that names both coroutines. Destroying a task that was
/// never awaited destroys its frame unrun. A task must not be destroyed while it is suspended half way: scopes join
/// instead.
///
/// Completes when: the coroutine has ended, which may be at once. On cancel: the task by itself hears of no stop; what the
/// coroutine awaits asks the context's stop token, and says what it does then. Errors: an exception that leaves the coroutine is
/// rethrown. Lifetime: the task, and what its arguments refer to, outlive the await. Shard: that of the awaiter.
template<class T = void>
class [[nodiscard("co_await it: a task does nothing until it is awaited")]] task {
public:
    class promise_type : public detail::promise_base, public detail::promise_result<T> {
    public:
        task get_return_object() noexcept
        {
            return task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        void unhandled_exception() noexcept
        {
#ifndef NDEBUG
            detail::exception_leaves_task(this->context());
#endif
            detail::promise_result<T>::unhandled_exception();
        }
    };
    /// The coroutine's own handle; the task owns what it names.
    using handle_type = std::coroutine_handle<promise_type>;

    task() = default;
    task(task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
    task& operator=(task&& other) noexcept
    {
        if (this != &other) {
            reset();
            handle_ = std::exchange(other.handle_, {});
        }
        return *this;
    }
    ~task() { reset(); }

    /// Whether it holds a coroutine: not after a default construction or a move out of it.
    explicit operator bool() const noexcept { return bool(handle_); }

    /// What awaiting a task makes of it.
    class awaiter {
    public:
        explicit awaiter(handle_type handle) noexcept : handle_(handle) {}
        bool await_ready() const noexcept { return false; }
        template<class Promise>
        bool await_suspend(std::coroutine_handle<Promise> parent) noexcept
        {
#ifndef NDEBUG
            if (!handle_)
                detail::awaited_nothing(parent.address());
#endif
            auto& promise = handle_.promise();
            promise.set_context(parent.promise().context());
            if (!promise.start(handle_, parent, detail::record_of(parent)))
                return false;
            if constexpr (std::derived_from<Promise, detail::root_record>)
                parent.promise().first_wait(parent.address());
            return true;
        }
        T await_resume() { return handle_.promise().take(); }

    private:
        handle_type handle_;
    };
    awaiter operator co_await() const noexcept { return awaiter(handle_); }

    /// Replaces the context that the task would inherit; used by scopes and combinators, which
    /// start it through start() and so never through an awaiter.
    handle_type native_handle() const noexcept { return handle_; }

private:
    explicit task(handle_type handle) noexcept : handle_(handle) {}
    void reset() noexcept
    {
        if (handle_)
            std::exchange(handle_, {}).destroy();
    }
    handle_type handle_;
};

/// `co_await current_context()` yields the running chain's context. Completes when: at once, without suspending. On cancel: no
/// matter. Errors: none. Lifetime: the context outlives the task that asks. Shard: any.
class [[nodiscard("co_await it: it yields the context")]] current_context {
public:
    [[nodiscard("co_await it: it yields the context")]] current_context() = default;
    bool await_ready() const noexcept { return false; }
    template<class Promise>
    bool await_suspend(std::coroutine_handle<Promise> self) noexcept
    {
        context_ = self.promise().context();
        return false;
    }
    const task_context& await_resume() const noexcept { return *context_; }

private:
    const task_context* context_ = nullptr;
};

} // namespace verbena

#pragma GCC visibility pop
