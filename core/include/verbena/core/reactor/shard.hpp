// SPDX-License-Identifier: Apache-2.0
// shard: one shard of a runtime, as those who put work there see it, and the way from one shard to another.
//
// Nothing is shared between shards. Work goes to what it works on: one message takes it there, one brings its outcome back, and
// no lock is taken. docs/internals/tasks.md.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/task.hpp>

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena {

/// shard::run() threw it: that shard had been asked to stop before the call came there, and `f` was not called.
class shard_stopped : public std::runtime_error {
public:
    shard_stopped();
};

namespace detail {

template<class Task>
struct task_value {
    using type = Task;
    static constexpr bool is_task = false;
};
template<class T>
struct task_value<task<T>> {
    using type = T;
    static constexpr bool is_task = true;
};
template<class T>
inline constexpr bool is_result = false;
template<class T>
inline constexpr bool is_result<result<T>> = true;

/// A call that is away on another shard. It lives in the frame of the task that awaits it, at home, until that task goes on.
///
/// Three messages may be under way: `there_`, which brings the call, `back_`, which brings it home, and `stop_`, which follows the
/// call when its caller is asked to stop. A stop that comes too late is sent back, since a message must not be under way when the
/// frame goes: `back_` says by `stop_taken_` whether there is one to wait for.
class [[nodiscard("co_await it: nothing runs otherwise")]] remote_run {
public:
    remote_run(reactor& shard, scope& tasks) noexcept : shard_(shard), tasks_(tasks) {}
    remote_run(const remote_run&) = delete;

    bool await_ready() const noexcept { return false; }
    template<class Promise>
    void await_suspend(std::coroutine_handle<Promise> h) noexcept
    {
        mark_.set(h, wait_kind::other_shard, &shard_);
        leave(h, *h.promise().context());
    }
    /// False if the shard was asked to stop before; then nothing ran.
    bool await_resume() const
    {
        if (failure_)
            std::rethrow_exception(failure_);
        return !refused_;
    }

protected:
    ~remote_run() = default;
    /// On the other shard: runs what is to be run and keeps its outcome.
    virtual task<void> body() = 0;

private:
    class note final : public remote_message {
    public:
        note(remote_run& call, void (remote_run::*arrived)() noexcept) noexcept
            : call_(call), arrived_(arrived)
        {
        }
        void deliver() noexcept override { (call_.*arrived_)(); }

    private:
        remote_run& call_;
        void (remote_run::*arrived_)() noexcept;
    };
    class start final : public deferred {
    public:
        explicit start(remote_run& call) noexcept : call_(call) {}
        void run() noexcept override { call_.begin(); }

    private:
        remote_run& call_;
    };
    class listener final : public stop_listener {
    public:
        explicit listener(remote_run& call) noexcept : call_(call) {}
        void on_stop() noexcept override { call_.pass_the_stop_on(); }

    private:
        remote_run& call_;
    };

    // At home.
    void leave(std::coroutine_handle<> h, const task_context& context) noexcept;
    void pass_the_stop_on() noexcept;
    void came_back() noexcept;
    void stop_came_back() noexcept;
    void go_on() noexcept;
    // On the other shard.
    void arrived() noexcept;
    void begin() noexcept;
    task<void> serve();
    void stop_arrived() noexcept;
    void go_home() noexcept;

    reactor& shard_;
    scope& tasks_;
    reactor* home_ = nullptr;
    std::coroutine_handle<> handle_;
    wait_mark mark_;
    std::chrono::steady_clock::time_point deadline_;
    std::uint64_t trace_id_ = 0;

    note there_{*this, &remote_run::arrived};
    note back_{*this, &remote_run::came_back};
    note stop_{*this, &remote_run::stop_arrived};
    note late_stop_{*this, &remote_run::stop_came_back};
    start start_{*this};
    listener listener_{*this};

    bool stop_sent_ = false;  // at home
    bool stop_taken_ = false; // the rest there, until it is back: the stop came in time
    bool ended_ = false;      // it is on its way home, or there
    bool refused_ = false;
    scope* running_ = nullptr; // what runs `body()`, while it does
    std::exception_ptr failure_;
};

template<class T, class F, class... Args>
class remote_call final : public remote_run {
public:
    remote_call(reactor& shard, scope& tasks, F& f, Args&... args) noexcept
        : remote_run(shard, tasks), function_(f), arguments_(args...)
    {
    }
    T take()
    {
        if constexpr (std::is_void_v<T>)
            out_.take();
        else
            return out_.take();
    }

private:
    task<void> body() override
    {
        try {
            const auto call = [this](Args&... args) -> decltype(auto) {
                return std::invoke(std::move(function_), std::move(args)...);
            };
            using made = std::invoke_result_t<F, Args...>;
            if constexpr (task_value<made>::is_task) {
                made child = std::apply(call, arguments_);
                if constexpr (std::is_void_v<T>) {
                    co_await child;
                    out_.value.emplace();
                } else {
                    out_.value.emplace(co_await child);
                }
            } else if constexpr (std::is_void_v<T>) {
                std::apply(call, arguments_);
                out_.value.emplace();
            } else {
                out_.value.emplace(std::apply(call, arguments_));
            }
        } catch (...) {
            out_.failure = std::current_exception();
        }
        co_return;
    }

    F& function_;
    std::tuple<Args&...> arguments_;
    outcome<T> out_;
};

} // namespace detail

/// One shard, as those who put work there see it. Lives as long as its runtime runs.
class shard {
public:
    /// A view of what its owner made (runtime, simulated_shards): all of it outlives the view.
    shard(unsigned index, reactor& r, buffer_pool& buffers, scope& tasks) noexcept
        : index_(index), reactor_(r), buffers_(buffers), tasks_(tasks)
    {
    }
    unsigned index() const noexcept { return index_; }
    verbena::reactor& reactor() const noexcept { return reactor_; }
    /// On the shard only.
    buffer_pool& buffers() const noexcept { return buffers_; }
    /// Tasks that live until the runtime stops; it asks them to stop and joins them. On the shard only.
    scope& tasks() const noexcept { return tasks_; }

    /// `co_await other.run(f, args...)`: calls `f(args...)` on this shard, as std::invoke does, and yields on the caller's shard what
    /// it returns or, if that is a task, what the task yields.
    ///
    /// Completes when: the call and its task have ended there and their outcome has come back. Two messages, one each way.
    /// On cancel: the caller's stop is sent after the call, and the task there sees it in its context; the caller still waits for its end.
    /// The task sees the caller's deadline and trace id too.
    /// Errors: what leaves `f` or its task is rethrown on the caller's shard. A shard that was asked to stop takes no more calls: `f`
    /// is not called then, and run() yields ECANCELED if it yields a result<>, else throws shard_stopped. A task that runs
    /// there when the runtime stops is asked to stop, as all tasks of the shard are, and its outcome comes back.
    /// Lifetime: `f` and the arguments are kept, decayed, in the caller's frame, made and destroyed on the caller's shard; what
    /// they refer to must be safe to touch on this one. The value is made here and destroyed there. The shard's runtime outlives the call.
    /// Shard: awaited by a task of any, which goes on where it was; on the same shard it is a plain await.
    template<class F, class... Args>
    auto run(F f, Args... args) const
        -> task<typename detail::task_value<std::invoke_result_t<F, Args...>>::type>
    {
        using value = typename detail::task_value<std::invoke_result_t<F, Args...>>::type;
        static_assert(!std::is_reference_v<value>,
                      "what shard::run() yields goes to another thread: return a value");
        const task_context& context = co_await current_context();
        if (context.shard == &reactor_) {
            if constexpr (detail::task_value<std::invoke_result_t<F, Args...>>::is_task) {
                task<value> here = std::invoke(std::move(f), std::move(args)...);
                co_return co_await here;
            } else {
                co_return std::invoke(std::move(f), std::move(args)...);
            }
        }
        detail::remote_call<value, F, Args...> call(reactor_, tasks_, f, args...);
        const bool ran = co_await call;
        if (!ran) {
            if constexpr (detail::is_result<value>)
                co_return error(std::errc::operation_canceled, "a call of another shard, which stops");
            else
                throw shard_stopped();
        }
        co_return call.take();
    }

private:
    unsigned index_;
    verbena::reactor& reactor_;
    buffer_pool& buffers_;
    scope& tasks_;
};

} // namespace verbena

#pragma GCC visibility pop
