// SPDX-License-Identifier: Apache-2.0
// blocking: a bounded pool of threads for calls that always block or have no io_uring opcode
// (getdents64, open_by_handle_at, fsync of a busy file system).
//
// A pool is a lane: what can hang by itself (an export's file system, a device's connects) has one of its own, so that it holds up
// nobody else.
#pragma once

#include <verbena/core/reactor.hpp>
#include <verbena/core/task.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

/// Threads shared by all shards. Outlives every task that uses it. A job can't be recalled: the
/// awaiter waits for its end whatever the stop token says, since the job may touch its frame.
class blocking_pool {
public:
    static constexpr unsigned max_threads = 256;

    /// Starts `threads` of them, 1 to max_threads; throws std::system_error if one cannot start. All start here, since a thread
    /// inherits the rights, the CPUs and the filters of system calls of the one that starts it, and those of a shard are not
    /// a pool's. `name` is for logs and metrics.
    explicit blocking_pool(unsigned threads = 8, std::string name = "blocking");
    /// Calls finish().
    ~blocking_pool();
    blocking_pool(const blocking_pool&) = delete;

    /// A piece of work that lives in the waiting coroutine's frame.
    class job : public remote_message {
    public:
        virtual void execute() noexcept = 0;

    protected:
        ~job() = default;

    private:
        friend class blocking_pool;
        job* next_job_ = nullptr;
        reactor* home_ = nullptr;
    };
    /// Runs what is queued, then joins the threads; nothing that is waited for may be submitted afterwards. A reactor that gave
    /// it work must not go before: a thread still touches it after the job has come home. Idempotent.
    void finish();
    /// Queues `j`; its deliver() runs on `home` afterwards. Any thread.
    void submit(job& j, reactor& home);
    /// Queues `j`, for which nobody waits: execute() is its end, and may delete it. Any thread. False, and `j` stays
    /// the caller's, once finish() has begun.
    [[nodiscard]] bool submit(job& j) { return enqueue(j, nullptr); }

    template<class F>
    class [[nodiscard("co_await it: nothing runs otherwise")]] awaiter final : public job {
    public:
        using value_type = std::invoke_result_t<F&>;
        awaiter(blocking_pool& pool, F&& f) noexcept : pool_(pool), function_(std::move(f)) {}
        awaiter(awaiter&& other) noexcept : pool_(other.pool_), function_(std::move(other.function_)) {}

        bool await_ready() const noexcept { return false; }
        template<class Promise>
        void await_suspend(std::coroutine_handle<Promise> h)
        {
            handle_ = h;
            const task_context* context = h.promise().context();
            reactor_ = context != nullptr && context->shard != nullptr ? context->shard : reactor::current();
            pool_.submit(*this, *reactor_);
            mark_.set(h, wait_kind::blocking_call, &pool_); // it comes home on this thread, and so not before
        }
        value_type await_resume()
        {
            if (failure_)
                std::rethrow_exception(failure_);
            if constexpr (!std::is_void_v<value_type>)
                return std::move(*value_);
        }
        void execute() noexcept override
        {
            try {
                if constexpr (std::is_void_v<value_type>)
                    function_();
                else
                    value_.emplace(function_());
            } catch (...) {
                failure_ = std::current_exception();
            }
        }
        void deliver() noexcept override
        {
            mark_.clear();
            reactor_->post(handle_);
        }

    private:
        struct nothing {};
        blocking_pool& pool_;
        F function_;
        reactor* reactor_ = nullptr;
        std::coroutine_handle<> handle_;
        wait_mark mark_;
        std::optional<std::conditional_t<std::is_void_v<value_type>, nothing, value_type>> value_;
        std::exception_ptr failure_;
    };
    /// `co_await pool.run(f)`: calls f() on a pool thread. Completes when: it has returned; yields what it returned. On cancel: it waits on,
    /// as a job can't be recalled. Errors: what leaves `f` is thrown. Lifetime: `f` and its value lie in the caller's frame; `f` must be
    /// a named, moved lambda (g++ 12). The pool outlives the wait. Shard: any; the task goes on where it was.
    template<class F>
    awaiter<std::remove_cvref_t<F>> run(F&& f)
    {
        static_assert(!std::is_lvalue_reference_v<F>, "name the function object and std::move it in");
        return awaiter<std::remove_cvref_t<F>>(*this, std::forward<F>(f));
    }

    const std::string& name() const noexcept { return name_; }
    std::size_t threads() const noexcept { return threads_.size(); }
    struct occupation {
        std::size_t queued = 0;                        ///< jobs waiting for a thread
        std::size_t running = 0;                       ///< jobs that have one
        std::chrono::steady_clock::duration longest{}; ///< how long the oldest of these has run
    };
    /// What it is at; any thread may ask.
    occupation look() const;

private:
    friend struct detail::debug_layout;
    bool enqueue(job& j, reactor* home);
    void work(std::size_t index);

    const std::string name_;
    mutable std::mutex mutex_;
    std::condition_variable wake_;
    job* head_ = nullptr;
    job* tail_ = nullptr;
    std::size_t queued_ = 0;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
    std::vector<std::atomic<std::int64_t>>
        since_; // when each thread's job began, steady_clock; 0: it has none
};

} // namespace verbena

#pragma GCC visibility pop
