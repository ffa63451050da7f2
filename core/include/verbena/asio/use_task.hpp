// SPDX-License-Identifier: Apache-2.0
// use_task: a completion token of Asio's by which a task awaits any asynchronous operation of Asio's.
//
//     result<std::size_t> n = co_await socket.async_read_some(buffer, verbena::use_task);
//
// The names of the adapter stand in verbena itself: a namespace verbena::asio would hide Asio's own from whoever writes
// `using namespace verbena`. docs/howto/asio.md.
#pragma once

#include <verbena/asio/context.hpp>
#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/stop.hpp>
#include <verbena/core/task/task.hpp>

#include <asio/async_result.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/error_code.hpp>
#include <asio/post.hpp>

#include <atomic>
#include <cassert>
#include <chrono>
#include <concepts>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena {

namespace detail {

template<class... Values>
struct use_task_value {
    using type = std::tuple<Values...>;
};
template<class T>
struct use_task_value<T> {
    using type = T;
};
template<>
struct use_task_value<> {
    using type = void;
};
/// What of a handler's arguments is a value, and how the operation says that it failed.
template<class... Args>
struct use_task_arguments : use_task_value<Args...> {
    static constexpr bool may_fail = false;
};
template<class... Args>
struct use_task_arguments<std::error_code, Args...> : use_task_value<Args...> {
    static constexpr bool may_fail = true;
};
template<class... Args>
struct use_task_arguments<std::exception_ptr, Args...> : use_task_value<Args...> {
    static constexpr bool may_fail = true;
};

/// One operation under way. The task that awaits it, the handler and a cancellation on its way hold it together, since a task
/// goes on before Asio has forgotten a cancellation.
class use_task_operation : private handed_over {
public:
    ::asio::cancellation_signal signal; // used where the operation is

    void begins(reactor& shard, std::coroutine_handle<> task) noexcept
    {
        shard_ = &shard;
        task_ = task;
    }
    bool is_over() const noexcept { return over_.load(std::memory_order_acquire); }
    /// The handler was called or destroyed; the thread is Asio's.
    void ends() noexcept
    {
        over_.store(true, std::memory_order_release);
        drop_executor();
        hand_over(*shard_, context_.get());
    }

protected:
    explicit use_task_operation(std::shared_ptr<asio_context> c) noexcept : context_(std::move(c)) {}
    ~use_task_operation() = default;
    const std::shared_ptr<asio_context>& context() const noexcept { return context_; }
    /// The context may go once the operation has ended, and executors (a strand) go before it.
    virtual void drop_executor() noexcept = 0;

private:
    void arrived() noexcept override { shard_->post(task_); }

    std::shared_ptr<asio_context> context_;
    reactor* shard_ = nullptr;
    std::coroutine_handle<> task_;
    std::atomic<bool> over_{false};
};

template<class... Args>
class use_task_outcome : public use_task_operation {
public:
    std::optional<std::tuple<Args...>> arguments; // none: nobody called the handler
    std::exception_ptr failure;                   // of keeping them, or of the initiation

protected:
    using use_task_operation::use_task_operation;
};

struct no_executor {};

template<class Executor, class... Args>
class use_task_state final : public use_task_outcome<Args...> {
public:
    explicit use_task_state(const Executor& e) : use_task_outcome<Args...>(context_of(e)), executor_(e) {}

    /// Has Asio cancel the operation. Asio wants that done where the operation's handlers run. On the task's shard.
    static void cancel(const std::shared_ptr<use_task_state>& self) noexcept
    {
        if constexpr (std::is_same_v<Executor, no_executor>) {
            self->emit();
        } else {
            try {
                if constexpr (names_asio_context<Executor>) {
                    self->context()->locked([&](bool there) {
                        if (there && self->executor_)
                            ::asio::post(*self->executor_, [self] { self->emit(); });
                    });
                } else if (const auto e = self->executor_now()) {
                    // Not under the lock: such an executor may call it at once, and the operation end by that.
                    ::asio::post(*e, [self] { self->emit(); });
                }
            } catch (...) { // no memory: the operation takes its time
            }
        }
    }

private:
    static std::shared_ptr<asio_context> context_of(const Executor& e)
    {
        if constexpr (std::is_same_v<Executor, no_executor>)
            return nullptr;
        else
            return asio_context_of_executor(e);
    }
    void emit()
    {
        if (!this->is_over())
            this->signal.emit(::asio::cancellation_type::terminal);
    }
    void drop_executor() noexcept override
    {
        if constexpr (names_asio_context<Executor>) {
            this->context()->locked([&](bool) { executor_.reset(); });
        } else {
            const std::lock_guard lock(mutex_);
            executor_.reset();
        }
    }
    std::optional<Executor> executor_now()
    {
        const std::lock_guard lock(mutex_);
        return executor_;
    }
    struct no_mutex {};

    std::optional<Executor> executor_;
    // Where no context has one.
    [[no_unique_address]] std::conditional_t<names_asio_context<Executor>, no_mutex, std::mutex> mutex_;
};

/// What Asio gets for a handler.
template<class... Args>
class use_task_handler {
public:
    using cancellation_slot_type = ::asio::cancellation_slot;

    explicit use_task_handler(std::shared_ptr<use_task_outcome<Args...>> o) noexcept : outcome_(std::move(o))
    {
    }
    use_task_handler(use_task_handler&&) noexcept = default;
    ~use_task_handler()
    {
        if (outcome_)
            outcome_->ends();
    }
    cancellation_slot_type get_cancellation_slot() const noexcept
    {
        return outcome_ ? outcome_->signal.slot() : cancellation_slot_type();
    }
    template<class... Given>
    void operator()(Given&&... given)
    {
        const auto outcome = std::move(outcome_);
        try {
            outcome->arguments.emplace(std::forward<Given>(given)...);
        } catch (...) {
            outcome->failure = std::current_exception();
        }
        outcome->ends();
    }

private:
    std::shared_ptr<use_task_outcome<Args...>> outcome_;
};

/// The wait for one operation, in the frame of the task that awaits it. `Begin` is called with the handler.
template<class State, class Begin, class... Args>
class [[nodiscard("co_await it: nothing waits here otherwise")]] use_task_wait {
public:
    use_task_wait(const task_context& context, std::shared_ptr<State> state, Begin& begin) noexcept
        : context_(context), state_(std::move(state)), begin_(begin)
    {
    }
    use_task_wait(const use_task_wait&) = delete;

    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> h)
    {
        assert(context_.shard->is_here() && "a task awaits on another thread than its shard's");
        state_->begins(*context_.shard, h);
        // Before the operation, which may end on another thread, and since what stands in the way of it must throw before.
        if (context_.deadline != time_point::max())
            context_.shard->timers().arm(expiry_, context_.deadline);
        (void)context_.stop.subscribe(listener_); // the caller has asked whether it was stopped
        try {
            begin_(use_task_handler<Args...>(state_));
        } catch (...) {
            // The handler went with the exception, or it goes later; either way the task waits for that.
            state_->failure = std::current_exception();
        }
    }
    void await_resume() noexcept
    {
        listener_.unlink();
        expiry_.cancel();
    }
    /// None, ECANCELED or ETIMEDOUT: why the task had the operation cancelled.
    std::optional<std::errc> why() const noexcept { return why_; }

private:
    class listener final : public stop_listener {
    public:
        explicit listener(use_task_wait& w) noexcept : wait_(w) {}
        void on_stop() noexcept override { wait_.cancel(std::errc::operation_canceled); }

    private:
        use_task_wait& wait_;
    };
    class expiry final : public timer {
    public:
        explicit expiry(use_task_wait& w) noexcept : wait_(w) {}
        void on_timer() noexcept override { wait_.cancel(std::errc::timed_out); }

    private:
        use_task_wait& wait_;
    };
    void cancel(std::errc why) noexcept
    {
        if (why_)
            return;
        why_ = why;
        State::cancel(state_);
    }

    const task_context& context_;
    const std::shared_ptr<State> state_;
    Begin& begin_;
    std::optional<std::errc> why_;
    listener listener_{*this};
    expiry expiry_{*this};
};

inline error use_task_error(std::optional<std::errc> why, const std::error_code& code) noexcept
{
    if (why == std::errc::timed_out)
        return error(std::errc::timed_out, "the deadline of an Asio operation passed");
    if (why)
        return error(*why, "an Asio operation was stopped");
    return error(code, "an Asio operation");
}

/// What the task gets. An exception that the operation tells is thrown, but for a std::system_error that tells of the cancellation.
template<class T, class... Args>
result<T> use_task_result(use_task_outcome<Args...>& o, std::optional<std::errc> why)
{
    if (o.failure)
        std::rethrow_exception(o.failure);
    if (!o.arguments) {
        if (why)
            return use_task_error(why, {});
        return error(std::errc::operation_canceled, "an Asio operation was dropped with its context");
    }
    if constexpr (use_task_arguments<Args...>::may_fail) {
        auto& failed = std::get<0>(*o.arguments);
        if constexpr (std::is_same_v<std::remove_reference_t<decltype(failed)>, std::exception_ptr>) {
            if (failed) {
                try {
                    std::rethrow_exception(failed);
                } catch (const std::system_error& e) {
                    if (why)
                        return use_task_error(why, e.code());
                    throw;
                }
            }
        } else if (failed) {
            return use_task_error(why, failed);
        }
        if constexpr (!std::is_void_v<T>)
            return std::apply([](auto&, auto&... values) { return result<T>(T(std::move(values)...)); },
                              *o.arguments);
    } else if constexpr (!std::is_void_v<T>) {
        return std::apply([](auto&... values) { return result<T>(T(std::move(values)...)); }, *o.arguments);
    }
    if constexpr (std::is_void_v<T>)
        return {};
}

} // namespace detail

/// The type of use_task. As Asio's use_awaitable_t it can be an I/O object's default token:
///
///     using tcp_socket = verbena::use_task_t::as_default_on_t<asio::ip::tcp::socket>;
struct use_task_t {
    /// An executor whose I/O objects take use_task where no token is given.
    template<class Executor>
    struct executor_with_default : Executor {
        /// Where Asio looks for the token.
        using default_completion_token_type = use_task_t;

        /// Of the executor that it stands for.
        template<class Other>
            requires(!std::same_as<Other, executor_with_default> &&
                     std::convertible_to<const Other&, Executor>)
        executor_with_default(const Other& e) noexcept : Executor(e)
        {
        }
    };
    /// The type of an I/O object `T` with such an executor.
    template<class T>
    using as_default_on_t =
        typename T::template rebind_executor<executor_with_default<typename T::executor_type>>::other;
    /// Moves an I/O object into that type.
    template<class T>
    static as_default_on_t<std::decay_t<T>> as_default_on(T&& object)
    {
        return as_default_on_t<std::decay_t<T>>(std::forward<T>(object));
    }
};

/// Makes a task of an asynchronous operation of Asio's; awaited, the task begins the operation and waits for it. It yields
/// result<void> for an operation of the signature void() or void(error_code), result<T> for void(error_code, T) and void(T), result<std::tuple<...>>
/// for more values. The error has Asio's code. An exception that a signature void(std::exception_ptr, ...) tells is thrown.
///
/// Completes when: Asio has called the handler or, with its io_context, destroyed it. The task goes on on its own shard, whatever
/// thread that was: by a message between threads where it was another one.
/// On cancel: the task's stop, or its deadline, has Asio cancel the operation (cancellation_type::terminal), on the operation's
/// executor; then the task waits for the end that Asio makes of it. An operation that fails after that yields ECANCELED or ETIMEDOUT; one
/// that succeeds all the same keeps its value. A task that was stopped before begins nothing. An operation which knows no cancellation takes its time.
/// One whose initiation names no executor (get_executor()) is cancelled on the task's shard: let it end there too, or be made so that another
/// thread may end it meanwhile.
/// Errors: the operation's; ECANCELED if the io_context was destroyed under it; what the initiation throws is thrown.
/// Lifetime: the I/O object and what buffers refer to outlive the wait; token and arguments are kept. The shard's reactor outlives
/// the operation. Somebody runs the io_context until the task has ended, or destroys it.
/// Shard: that of the task, which begins the operation there. So the I/O object is no other thread's meanwhile, and an
/// io_context that several threads run needs an I/O object with a strand for its executor, as Asio asks of all who cancel.
inline constexpr use_task_t use_task{};

} // namespace verbena

/// @cond
template<class R, class... Args>
class asio::async_result<verbena::use_task_t, R(Args...)> {
    using values = verbena::detail::use_task_arguments<std::decay_t<Args>...>;
    using value_type = typename values::type;

public:
    using return_type = verbena::task<verbena::result<value_type>>;

    template<class Initiation, class... InitArgs>
    static return_type initiate(Initiation initiation, verbena::use_task_t, InitArgs... args)
    {
        const verbena::task_context& context = co_await verbena::current_context();
        if (context.stop.stop_requested())
            co_return verbena::detail::use_task_error(std::errc::operation_canceled, {});
        if (context.deadline <= context.shard->clock().now())
            co_return verbena::detail::use_task_error(std::errc::timed_out, {});
        using state_type =
            verbena::detail::use_task_state<decltype(executor_of(initiation)), std::decay_t<Args>...>;
        auto state = std::allocate_shared<state_type>(verbena::detail::frame_allocator<state_type>(),
                                                      executor_of(initiation));
        // It may hold an executor (a strand), which goes before the context.
        auto begin = [&](auto handler) {
            Initiation once = std::move(initiation);
            std::move(once)(std::move(handler), std::move(args)...);
        };
        verbena::detail::use_task_wait<state_type, decltype(begin), std::decay_t<Args>...> wait(context,
                                                                                                state, begin);
        co_await wait;
        co_return verbena::detail::use_task_result<value_type>(*state, wait.why());
    }

private:
    template<class Initiation>
    static auto executor_of(const Initiation& i)
    {
        if constexpr (requires { i.get_executor(); })
            return i.get_executor();
        else
            return verbena::detail::no_executor();
    }
};
/// @endcond

#pragma GCC visibility pop
