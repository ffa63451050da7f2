// SPDX-License-Identifier: Apache-2.0
// shard_context: an execution context of Asio's whose handlers run on a shard. So Asio's sockets, timers and coroutines live in a
// reactor, and their handlers may touch what is the shard's.
//
//     verbena::shard_context context(shard.reactor());
//     asio::ip::tcp::socket socket(context);                  // its handlers run on the shard
//     asio::co_spawn(context, session(), asio::detached);     // and so does this
//     asio::bind_executor(context.get_executor(), handler);   // and a handler of whatever else
#pragma once

#include <verbena/core/log.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/exception.hpp>

#include <asio/execution.hpp>
#include <asio/execution_context.hpp>

#include <cassert>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena {

namespace detail {

/// Functions for a shard, in the order in which they come. Any thread pushes them; one message, of all that wait, tells the shard.
class shard_queue final : public std::enable_shared_from_this<shard_queue>,
                          private remote_message,
                          private deferred {
public:
    class function {
    public:
        virtual void call_and_delete() = 0;
        virtual void delete_uncalled() noexcept = 0;

    protected:
        ~function() = default;

    private:
        friend class shard_queue;
        function* next_ = nullptr;
    };

    explicit shard_queue(reactor& r) noexcept : reactor_(r) {}
    reactor& shard() const noexcept { return reactor_; }

    void push(function& f) noexcept
    {
        {
            const std::lock_guard lock(mutex_);
            *last_ = &f;
            last_ = &f.next_;
            ++waiting_;
            if (told_)
                return;
            told_ = shared_from_this();
        }
        if (reactor::current() == &reactor_)
            deliver();
        else
            reactor_.post_remote(*this);
    }
    /// The calling thread is in one of the functions.
    bool is_here() const noexcept { return reactor_.on_its_thread() && running_; }
    /// On the shard. What waits goes uncalled, and nothing comes any more.
    void close() noexcept
    {
        while (function* f = pop())
            f->delete_uncalled();
        std::shared_ptr<shard_queue> self;
        const std::lock_guard lock(mutex_);
        closed_ = true;
        if (posted_) {
            deferred::unlink();
            self = std::move(told_);
        }
    }

private:
    function* pop() noexcept
    {
        const std::lock_guard lock(mutex_);
        function* f = first_;
        if (f == nullptr)
            return nullptr;
        --waiting_;
        first_ = f->next_;
        if (first_ == nullptr)
            last_ = &first_;
        return f;
    }
    void deliver() noexcept override
    {
        std::shared_ptr<shard_queue> self;
        const std::lock_guard lock(mutex_);
        if (closed_) {
            self = std::move(told_);
            return;
        }
        posted_ = true;
        reactor_.post(static_cast<deferred&>(*this));
    }
    void run() noexcept override
    {
        std::shared_ptr<shard_queue> self;
        std::size_t left = 0; // those that come meanwhile wait for the next time
        {
            const std::lock_guard lock(mutex_);
            self = std::move(told_);
            posted_ = false;
            left = waiting_;
        }
        running_ = true;
        for (; left != 0; --left) {
            function* f = pop();
            if (f == nullptr) // one of them closed it
                break;
            try {
                f->call_and_delete();
            } catch (...) {
                log_limited(limiter_, log_level::error, "asio", "a handler on a shard ended by an exception",
                            {{"exception", what_of(std::current_exception())}});
            }
        }
        running_ = false;
    }

    reactor& reactor_;
    std::mutex mutex_;
    function* first_ = nullptr;
    function** last_ = &first_;
    std::size_t waiting_ = 0;
    std::shared_ptr<shard_queue> told_; // itself, from when the shard is told until it looks
    bool posted_ = false;
    bool closed_ = false;
    bool running_ = false; // the shard's
    log_limiter limiter_;
};

} // namespace detail

/// Made and destroyed on the thread of its reactor, which outlives it, between turns or in one. Handlers run in the reactor's turns, in the
/// order in which they came, never inside a poll. Its destructor destroys, uncalled, handlers that wait and operations of its I/O objects;
/// those objects go before it, as with an io_context. A handler that throws ends alone: it is logged.
///
/// With its first socket or timer Asio starts a thread for the context, which waits for them (Asio's epoll descriptor is nobody else's
/// to wait for) and calls no handler. So each completion is a message to the shard; coroutines and posted handlers have no such thread.
class shard_context : public ::asio::execution_context {
    template<class Blocking>
    class executor;

public:
    /// What Asio's objects take by default: it may call a function at once where one of this context runs
    /// already.
    using executor_type = executor<::asio::execution::blocking_t::possibly_t>;

    /// For `r`, on its thread.
    explicit shard_context(reactor& r) : queue_(std::make_shared<detail::shard_queue>(r)) {}
    ~shard_context()
    {
        assert(shard().on_its_thread() && "a shard_context is destroyed on the thread of its reactor");
        shutdown();
        queue_->close();
        destroy();
    }
    /// An executor for this context. Any thread.
    executor_type get_executor() noexcept;
    /// The reactor whose turns call the handlers.
    reactor& shard() const noexcept { return queue_->shard(); }

private:
    template<class F>
    class function final : public detail::shard_queue::function {
    public:
        explicit function(F f) : f_(std::move(f)) {}
        void call_and_delete() override
        {
            F f = std::move(f_); // gone before the handler asks for memory in turn
            delete this;
            f();
        }
        void delete_uncalled() noexcept override { delete this; }

    private:
        F f_;
    };
    const std::shared_ptr<detail::shard_queue> queue_;
};

/// As Asio has executors. Any thread; not after its context.
template<class Blocking>
class shard_context::executor {
public:
    /// @name What Asio asks of every executor
    /// As for asio::io_context::executor_type; Asio's manual has them under "Executor". Any thread.
    /// @{
    shard_context& query(::asio::execution::context_t) const noexcept { return *context_; }
    static constexpr Blocking query(::asio::execution::blocking_t) noexcept { return {}; }
    auto require(::asio::execution::blocking_t::possibly_t) const noexcept
    {
        return executor<::asio::execution::blocking_t::possibly_t>(*context_);
    }
    auto require(::asio::execution::blocking_t::never_t) const noexcept
    {
        return executor<::asio::execution::blocking_t::never_t>(*context_);
    }
    /// @}
    /// Calls `f` on the shard: at once from another function of this context, if it may block; else in the run phase of a turn.
    template<class F>
    void execute(F&& f) const
    {
        if (std::is_same_v<Blocking, ::asio::execution::blocking_t::possibly_t> &&
            context_->queue_->is_here()) {
            std::decay_t<F> here(std::forward<F>(f));
            here();
        } else {
            context_->queue_->push(*new function<std::decay_t<F>>(std::forward<F>(f)));
        }
    }
    /// Whether the caller is the reactor's thread.
    bool running_in_this_thread() const noexcept { return context_->shard().on_its_thread(); }
    friend bool operator==(const executor& a, const executor& b) noexcept { return a.context_ == b.context_; }
    friend bool operator!=(const executor& a, const executor& b) noexcept { return !(a == b); }

    /// @name Executors as the Networking TS had them
    /// For programs that define ASIO_USE_TS_EXECUTOR_AS_DEFAULT. Any thread.
    /// @{
    shard_context& context() const noexcept { return *context_; }
    void on_work_started() const noexcept {}
    void on_work_finished() const noexcept {}
    template<class F, class Allocator>
    void dispatch(F&& f, const Allocator&) const
    {
        require(::asio::execution::blocking.possibly).execute(std::forward<F>(f));
    }
    template<class F, class Allocator>
    void post(F&& f, const Allocator&) const
    {
        require(::asio::execution::blocking.never).execute(std::forward<F>(f));
    }
    template<class F, class Allocator>
    void defer(F&& f, const Allocator& a) const
    {
        post(std::forward<F>(f), a);
    }
    /// @}

private:
    friend class shard_context;
    template<class>
    friend class executor;
    explicit executor(shard_context& c) noexcept : context_(&c) {}
    shard_context* context_;
};

inline shard_context::executor_type shard_context::get_executor() noexcept { return executor_type(*this); }

} // namespace verbena

#pragma GCC visibility pop
