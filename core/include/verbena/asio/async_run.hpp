// SPDX-License-Identifier: Apache-2.0
// async_run: an initiating function of Asio's that runs a task on a shard. What a task awaits, Asio's programs await so with their
// completion tokens: asio::use_awaitable, asio::use_future, callbacks.
//
//     std::string reply = co_await verbena::async_run(tasks, [&] { return greet(server, "ada"); }, asio::use_awaitable);
#pragma once

#include <verbena/asio/context.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/task.hpp>

#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/dispatch.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/post.hpp>

#include <atomic>
#include <concepts>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <pthread.h>
#include <system_error>
#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena {

namespace detail {

/// A handler is called with a value even where there is none.
template<class T>
using async_run_argument = std::conditional_t<std::default_initializable<T>, T, std::optional<T>>;

/// What a handler gets of a task that yields `T`.
template<class T>
struct async_run_signature {
    using type = void(std::exception_ptr, async_run_argument<T>);
};
template<>
struct async_run_signature<void> {
    using type = void(std::exception_ptr);
};
template<class T>
struct async_run_signature<result<T>> {
    using type = void(std::error_code, async_run_argument<T>);
};
template<>
struct async_run_signature<result<void>> {
    using type = void(std::error_code);
};

/// The default for a handler that names no executor: it is called where the task has ended.
class where_the_task_ends {
public:
    template<class F>
    void execute(F&& f) const
    {
        std::forward<F>(f)();
    }
    where_the_task_ends get_executor() const noexcept { return {}; }
    friend bool operator==(const where_the_task_ends&, const where_the_task_ends&) noexcept { return true; }
    friend bool operator!=(const where_the_task_ends&, const where_the_task_ends&) noexcept { return false; }
};

/// Keeps a context at work while the call is away.
template<class Executor>
using async_run_work = std::conditional_t<std::is_same_v<Executor, where_the_task_ends>, where_the_task_ends,
                                          ::asio::executor_work_guard<Executor>>;

/// One call, without its types. It keeps itself from its begin until the handler is posted.
class async_run_call : private handed_over,
                       private deferred,
                       public std::enable_shared_from_this<async_run_call> {
public:
    virtual ~async_run_call() = default;
    async_run_call(const async_run_call&) = delete;

    // Any thread. The lock keeps the call from its end meanwhile, and so the shard from its own.
    void stop() noexcept
    {
        const std::lock_guard lock(mutex_);
        if (over_ || stop_sent_)
            return;
        stop_sent_ = true;
        stop_keeps_ = shared_from_this();
        shard_.post_remote(stop_);
    }

protected:
    async_run_call(reactor& shard, scope& tasks) noexcept : shard_(shard), tasks_(tasks) {}
    reactor& shard() const noexcept { return shard_; }
    /// Any thread. `c`: the context in which the shard may be nested.
    void begin(asio_context* c, bool can_be_stopped) noexcept
    {
        can_be_stopped_ = can_be_stopped;
        const auto self = shared_from_this();
        self_ = self;
        hand_over(shard_, c);
    }
    /// On the shard: calls the function, keeps what it yields, and awaits it.
    virtual task<void> body() = 0;
    /// On the shard: has the handler called.
    virtual void end() = 0;

    std::exception_ptr failure;
    bool tells_failure = true; // the handler gets it as it is
    // Whoever calls the handler waits for it: the shard has let go of the handler's context, which may go with the call.
    std::atomic<int> let_go{0};
    ::pthread_t ended_on{};

private:
    class stop_note final : public remote_message {
    public:
        explicit stop_note(async_run_call& c) noexcept : call_(c) {}
        void deliver() noexcept override { call_.stop_arrived(); }

    private:
        async_run_call& call_;
    };

    // The rest runs on the shard.
    void stop_arrived() noexcept
    {
        std::shared_ptr<async_run_call> self; // the last perhaps
        {
            const std::lock_guard lock(mutex_);
            self = std::move(stop_keeps_);
        }
        stopped_ = true;
        if (running_ != nullptr)
            running_->request_stop();
    }
    void arrived() noexcept override { shard_.post(static_cast<deferred&>(*this)); }
    void run() noexcept override
    {
        const auto self = self_; // until it has let go
        try {
            if (!stopped_ && !tasks_.stop_requested()) {
                tasks_.spawn(already_made, serve());
                return;
            }
        } catch (...) {
            failure = std::current_exception();
        }
        try {
            leave();
        } catch (...) {
            log_lost_exception(std::current_exception());
        }
    }
    task<void> serve()
    {
        const auto self = self_;
        try {
            task<void> calling = body(); // it lets nothing out, but there may be no memory for it
            if (can_be_stopped_) {
                const task_context& context = co_await current_context();
                linked_scope running(context);
                running_ = &running.get();
                running.get().spawn(already_made, std::move(calling));
                co_await running.get().join();
            } else {
                co_await calling;
            }
        } catch (...) {
            failure = std::current_exception();
        }
        running_ = nullptr;
        const std::exception_ptr untold = tells_failure ? nullptr : failure;
        leave();
        if (untold)
            std::rethrow_exception(untold);
    }
    void leave()
    {
        {
            const std::lock_guard lock(mutex_);
            over_ = true;
        }
        self_.reset();
        end();
    }

    reactor& shard_;
    scope& tasks_;
    std::shared_ptr<async_run_call> self_;
    bool can_be_stopped_ = false;
    bool stopped_ = false;
    scope* running_ = nullptr; // what runs body(), while it can be stopped

    std::mutex mutex_;
    bool over_ = false;
    bool stop_sent_ = false;
    std::shared_ptr<async_run_call> stop_keeps_; // while stop_ is on its way
    stop_note stop_{*this};
};

template<class F, class Handler>
class async_run_operation final : public async_run_call {
    using made = std::invoke_result_t<F&>;
    using value = typename task_value<made>::type;
    using executor_type = typename ::asio::associated_executor<Handler, where_the_task_ends>::type;
    static constexpr bool has_context =
        ::asio::can_query<const executor_type&, ::asio::execution::context_t>::value;

public:
    template<class H>
    async_run_operation(reactor& shard, scope& tasks, F f, H&& handler)
        : async_run_call(shard, tasks),
          function_(std::move(f)),
          handler_(std::forward<H>(handler)),
          work_(std::in_place, ::asio::associated_executor<Handler, where_the_task_ends>::get(
                                   *handler_, where_the_task_ends()))
    {
        tells_failure = !is_result<value>;
    }
    void begin()
    {
        auto slot = ::asio::get_associated_cancellation_slot(*handler_);
        const bool can_be_stopped = slot.is_connected();
        if (can_be_stopped) {
            slot.assign([call = this->weak_from_this()](::asio::cancellation_type_t type) {
                // A task that is stopped may have done a part: what asks for more than that isn't heard.
                if (const auto c = call.lock(); c && !!(type & ::asio::cancellation_type::terminal))
                    c->stop();
            });
        }
        std::shared_ptr<asio_context> here;
        if constexpr (!std::is_same_v<executor_type, where_the_task_ends>) {
            if (shard().on_its_thread())
                here = asio_context_of_executor(work_->get_executor());
        }
        async_run_call::begin(here.get(), can_be_stopped);
    }

private:
    task<void> body() override
    {
        try {
            if constexpr (task_value<made>::is_task) {
                made child = std::invoke(*function_);
                if constexpr (std::is_void_v<value>) {
                    co_await child;
                    value_.emplace();
                } else {
                    value_.emplace(co_await child);
                }
            } else if constexpr (std::is_void_v<value>) {
                std::invoke(*function_);
                value_.emplace();
            } else {
                value_.emplace(std::invoke(*function_));
            }
        } catch (...) {
            failure = std::current_exception();
        }
        co_return;
    }
    /// What is posted to the handler's executor.
    class completion {
    public:
        explicit completion(std::shared_ptr<async_run_operation> o) noexcept
            : operation_(std::move(o)), work_(std::move(*operation_->work_))
        {
            operation_->work_.reset();
        }
        auto executor() const { return work_.get_executor(); }
        void operator()()
        {
            // An executor may call it within post(). The reactor may be gone already.
            if (!::pthread_equal(operation_->ended_on, ::pthread_self()))
                operation_->let_go.wait(0, std::memory_order_acquire);
            complete(std::move(operation_));
        }

    private:
        std::shared_ptr<async_run_operation> operation_;
        async_run_work<executor_type> work_;
    };
    void end() override
    {
        function_.reset();
        ended_on = ::pthread_self();
        const auto self = std::static_pointer_cast<async_run_operation>(this->shared_from_this());
        if constexpr (std::is_same_v<executor_type, where_the_task_ends>) {
            complete(self);
        } else if constexpr (has_context) {
            // Not dispatched: within the shard's turn a handler's exception would not leave io_context::run().
            {
                completion c(self);
                const auto e = c.executor();
                ::asio::post(e, std::move(c));
            }
            let_go.store(1, std::memory_order_release);
            let_go.notify_one();
        } else {
            // The executor of a future, which is of no context: asio::post() would start a thread for it.
            let_go.store(1, std::memory_order_release);
            completion c(self);
            const auto e = c.executor();
            ::asio::dispatch(e, std::move(c));
        }
    }
    // Where the handler runs.
    static void complete(std::shared_ptr<async_run_operation> self)
    {
        // What ends on the shard leaves the slot alone: it is another thread's, which may emit now. It refers to this call weakly.
        if constexpr (has_context) {
            if (auto slot = ::asio::get_associated_cancellation_slot(*self->handler_); slot.is_connected())
                slot.clear();
        }
        Handler handler = std::move(*self->handler_);
        self->handler_.reset();
        auto outcome = std::move(self->value_);
        self->value_.reset();
        const std::exception_ptr failure = self->failure;
        self.reset(); // before the handler begins another call
        if constexpr (is_result<value>) {
            using T = typename value::value_type;
            std::error_code code;
            if (failure)
                code = error_of(failure, "").code();
            else if (!outcome)
                code = std::make_error_code(std::errc::operation_canceled);
            else if (!*outcome)
                code = outcome->error().code();
            if constexpr (std::is_void_v<T>)
                std::move(handler)(code);
            else if (code)
                std::move(handler)(code, async_run_argument<T>());
            else
                std::move(handler)(code, async_run_argument<T>(std::move(**outcome)));
        } else {
            std::exception_ptr thrown = failure;
            if (!thrown && !outcome)
                thrown = std::make_exception_ptr(shard_stopped());
            if constexpr (std::is_void_v<value>)
                std::move(handler)(thrown);
            else if (thrown)
                std::move(handler)(thrown, async_run_argument<value>());
            else
                std::move(handler)(thrown, async_run_argument<value>(std::move(*outcome)));
        }
    }

    std::optional<F> function_; // until the task has ended, on the shard
    std::optional<Handler> handler_;
    std::optional<async_run_work<executor_type>> work_;
    std::optional<value_of<value>> value_;
};

struct async_run_initiation {
    template<class Handler, class F>
    void operator()(Handler&& handler, reactor* shard, scope* tasks, F f) const
    {
        using operation = async_run_operation<F, std::decay_t<Handler>>;
        std::allocate_shared<operation>(frame_allocator<operation>(), *shard, *tasks, std::move(f),
                                        std::forward<Handler>(handler))
            ->begin();
    }
};

template<class F, class Token>
auto async_run(reactor& shard, scope& tasks, F&& f, Token&& token)
{
    using function = std::decay_t<F>;
    static_assert(std::invocable<function&>, "async_run() calls f() without arguments: capture them");
    using signature =
        typename async_run_signature<typename task_value<std::invoke_result_t<function&>>::type>::type;
    return ::asio::async_initiate<Token, signature>(async_run_initiation(), token, &shard, &tasks,
                                                    function(std::forward<F>(f)));
}

} // namespace detail

/// `async_run(tasks, f, token)`: calls `f()` on the shard of `tasks` and completes with what it returns or, if that is a task, with what
/// the task yields. As Asio's other initiating functions it returns what the token makes of it.
///
/// | f() yields | signature |
/// |---|---|
/// | task<result<T>>, result<T> | void(std::error_code, T); void(std::error_code) where T is void |
/// | task<T>, T | void(std::exception_ptr, T); void(std::exception_ptr) where T is void |
///
/// A T that has no default constructor comes as std::optional<T>, empty with an error.
///
/// Completes when: the task has ended. The handler is called on its associated executor, by asio::post; a handler that has none,
/// on the shard, as a part of the task. io_context::run() goes on for it meanwhile.
/// On cancel: the handler's cancellation slot, emitted as cancellation_type::terminal, is the task's stop; the call waits for the task's
/// end. A slot whose handler runs on the shard may be emitted by any one thread, until its signal goes or another operation has
/// it; it keeps the call's memory, not the call, so long. The task sees the stop, deadline and trace id of `tasks` too. If either stop comes before `f` is called, it is not called.
/// Errors: the code of the result's error, with its category; what else an error has is lost, and a task that needs it yields it as
/// a value. A call whose `f` was not called ends in ECANCELED or, by exception_ptr, shard_stopped. An exception that leaves a task<T> is the
/// handler's; one that leaves a task<result<T>> ends the call by error_of() its code and goes to `tasks` as that of a child does.
/// What a handler without an executor throws goes there too.
/// Lifetime: `f` is kept, with what it captures, until the task has ended, and goes on the shard. `tasks` is joined after the last call was begun and
/// ended. The handler's execution context outlives the call: make the io_context before the runtime.
/// Shard: any thread may call it, and `f` and the task are on that of `tasks`. The value goes to the handler's thread.
template<class F, class Token>
auto async_run(scope& tasks, F&& f, Token&& token)
{
    return detail::async_run(*tasks.context().shard, tasks, std::forward<F>(f), std::forward<Token>(token));
}

/// The same on a shard of a runtime, among its tasks: runtime::stop() stops it.
template<class F, class Token>
auto async_run(const shard& where, F&& f, Token&& token)
{
    return detail::async_run(where.reactor(), where.tasks(), std::forward<F>(f), std::forward<Token>(token));
}

} // namespace verbena

#pragma GCC visibility pop
