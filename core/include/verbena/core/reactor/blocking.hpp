// SPDX-License-Identifier: Apache-2.0
// blocking: threads for calls that always block or have no io_uring opcode
// (getdents64, open_by_handle_at, fsync of a busy file system).
//
// A pool is a lane: what can hang by itself (an export's file system, a device's connects) has one of its own, so that it holds up
// nobody else. Lanes share the threads of a crew. Each has a bound of threads and a queue of its own, and the first of its threads
// is never somebody else's: however many lanes hang, a job of another one runs.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

class blocking_pool;

/// Threads that lanes share. They start when a job first needs one, and end when they had nothing to do for a while. They have the rights,
/// the CPUs and the filters of system calls of the thread that makes the crew: a thread of the crew's own starts them all, and blocks
/// all signals. Outlives its lanes.
class blocking_crew {
public:
    /// Threads of all lanes together, beyond the first of each lane that has something to do.
    static constexpr unsigned max_shared = 1024;
    /// A thread that had nothing to do for so long ends.
    static constexpr std::chrono::steady_clock::duration idle_time = std::chrono::seconds(10);
    /// Where no thread can be started, it is tried again so often.
    static constexpr std::chrono::milliseconds retry_interval{100};

    /// How many threads a crew has, and how long one that has nothing to do stays.
    struct options {
        unsigned shared = max_shared; ///< of all lanes together, beyond the first of each
        std::chrono::steady_clock::duration idle = idle_time; ///< until a thread without a job ends
    };
    /// Starts the thread that starts the others; throws std::system_error if it can't.
    explicit blocking_crew(options o);
    blocking_crew() : blocking_crew(options()) {}
    /// Calls finish().
    ~blocking_crew();
    blocking_crew(const blocking_crew&) = delete;
    /// Ends and joins the threads. Its lanes have finished before. Idempotent.
    void finish();

    /// Threads that there are, the one that starts the others aside. Any thread.
    std::size_t threads() const;
    /// How often no thread could be started. Any thread.
    std::uint64_t failures() const noexcept { return failures_.load(std::memory_order_relaxed); }

private:
    friend class blocking_pool;
    struct worker;
    struct place : list_hook { // of a lane in a list
        explicit place(blocking_pool& l) noexcept : lane(l) {}
        blocking_pool& lane;
    };
    // All of them under the lock.
    void start_threads(std::unique_lock<std::mutex>& lock) noexcept;
    bool start_one(std::unique_lock<std::mutex>& lock) noexcept;
    void work(worker& self) noexcept;
    void want(blocking_pool& lane) noexcept;
    void serve_first(worker& w) noexcept;
    void detach(worker& w) noexcept;

    const options options_;
    mutable std::mutex
        mutex_; // also of what its lanes have; held for no system call but the wake of a thread
    std::condition_variable start_;
    std::condition_variable lane_ended_;
    std::vector<std::unique_ptr<worker>> workers_; // each stays, as its place is hired again
    intrusive_list<worker> idle_;                  // the last to end its work first
    intrusive_list<worker> gone_;                  // whose threads are to be joined
    intrusive_list<worker> free_;                  // that have no thread
    intrusive_list<place> unserved_;               // lanes that wait for threads to be started
    intrusive_list<place> wanting_; // lanes that would have more threads if there were some to share
    std::size_t running_ = 0;       // threads
    unsigned shared_ = 0;           // of max_shared, those that lanes have
    bool stopping_ = false;
    std::atomic<std::uint64_t> failures_{0};
    log_limiter failed_log_;
    std::thread starter_;
};

/// A lane: shared by all shards. Outlives every task that uses it. A job can't be recalled: the
/// awaiter waits for its end whatever the stop token says, since the job may touch its frame.
class blocking_pool {
public:
    static constexpr unsigned max_threads = 256; ///< of one lane
    /// Jobs that may wait for a thread of the lane; try_run() beyond them is refused.
    static constexpr std::size_t max_queued = 4096;

    /// A lane with a crew of its own. `threads`: the most that it has at a time, 1 to max_threads; none of them starts before it is needed. Throws
    /// std::system_error if the crew can't start. `name` is for logs and metrics. Not on a shard, whose rights and CPUs the threads
    /// would have.
    explicit blocking_pool(unsigned threads = 8, std::string name = "blocking");
    /// A lane whose threads are `crew`'s.
    blocking_pool(blocking_crew& crew, unsigned threads, std::string name);
    /// Calls finish().
    ~blocking_pool();
    blocking_pool(const blocking_pool&) = delete;

    /// A piece of work that lives in the waiting coroutine's frame.
    class job : public remote_message {
    public:
        /// What the job does, on a thread of the lane, once. It may block; nothing of a shard may be touched.
        /// It throws nothing: a result is kept in the job, for the coroutine that waits.
        virtual void execute() noexcept = 0;

    protected:
        ~job() = default;

    private:
        friend class blocking_pool;
        friend class blocking_crew;
        job* next_job_ = nullptr;
        reactor* home_ = nullptr;
    };
    /// Runs what is queued to its end; then no thread touches the lane, and nothing that is waited for may be submitted. A reactor that gave
    /// it work must not go before: a thread still touches it after the job has come home. Idempotent.
    void finish();
    /// True if nothing waits for a thread of the lane, and nothing runs on one: then finish() has begun, and waits for no job. False: nothing
    /// has changed. Any thread.
    [[nodiscard]] bool finish_if_idle() noexcept;
    /// Queues `j`, however many wait; its deliver() runs on `home` afterwards. Any thread. Whoever calls this has a bound of his own
    /// of what he waits for.
    void submit(job& j, reactor& home) { (void)enqueue(j, &home, false); }
    /// The same, but false, and `j` stays the caller's, where max_queued jobs wait.
    [[nodiscard]] bool try_submit(job& j, reactor& home) { return enqueue(j, &home, true); }
    /// Queues `j`, for which nobody waits: execute() is its end, and may delete it. Any thread. False, and `j` stays
    /// the caller's, once finish() has begun.
    [[nodiscard]] bool submit(job& j) { return enqueue(j, nullptr, false); }

    /// What run() and try_run() return: the job, and the function that it runs.
    template<class F>
    class [[nodiscard("co_await it: nothing runs otherwise")]] awaiter final : public job {
    public:
        using value_type = std::invoke_result_t<F&>;
        awaiter(blocking_pool& pool, F&& f, bool may_be_refused = false) noexcept
            : pool_(pool), function_(std::move(f)), may_be_refused_(may_be_refused)
        {
        }
        awaiter(awaiter&& other) noexcept
            : pool_(other.pool_),
              function_(std::move(other.function_)),
              may_be_refused_(other.may_be_refused_)
        {
        }

        bool await_ready() const noexcept { return false; }
        template<class Promise>
        bool await_suspend(std::coroutine_handle<Promise> h)
        {
            handle_ = h;
            const task_context* context = h.promise().context();
            reactor_ = context != nullptr && context->shard != nullptr ? context->shard : reactor::current();
            if constexpr (can_be_refused) {
                if (may_be_refused_ && !pool_.try_submit(*this, *reactor_)) {
                    value_.emplace(pool_.refusal());
                    return false;
                }
            }
            if (!can_be_refused || !may_be_refused_)
                pool_.submit(*this, *reactor_);
            mark_.set(h, wait_kind::blocking_call, &pool_); // it comes home on this thread, and so not before
            return true;
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
        friend class blocking_pool;
        static constexpr bool can_be_refused = std::is_constructible_v<value_type, error>;
        struct nothing {};
        blocking_pool& pool_;
        F function_;
        const bool may_be_refused_;
        reactor* reactor_ = nullptr;
        std::coroutine_handle<> handle_;
        wait_mark mark_;
        std::optional<std::conditional_t<std::is_void_v<value_type>, nothing, value_type>> value_;
        std::exception_ptr failure_;
    };
    /// `co_await pool.run(f)`: calls f() on a thread of the lane, however many wait before it: for what is bounded elsewhere, and for what must follow a
    /// change that was made. Completes when: it has returned; yields what it returned. On cancel: it waits on,
    /// as a job can't be recalled. Errors: what leaves `f` is thrown. Lifetime: `f` and its value lie in the caller's frame; `f` must be
    /// a named, moved lambda (g++ 12). The pool outlives the wait. Shard: any; the task goes on where it was.
    template<class F>
    awaiter<std::remove_cvref_t<F>> run(F&& f)
    {
        static_assert(!std::is_lvalue_reference_v<F>, "name the function object and std::move it in");
        return awaiter<std::remove_cvref_t<F>>(*this, std::forward<F>(f));
    }
    /// `co_await pool.try_run(f)`: run() of what callers ask for, where `f` yields a result. Completes when: as run(), and at once where max_queued jobs wait. On
    /// cancel: as run(). Errors: EAGAIN where so many wait, and `f` was not called; it is counted, and the log names the lane. Else as
    /// run(). Lifetime: as run(). Shard: as run().
    template<class F>
    awaiter<std::remove_cvref_t<F>> try_run(F&& f)
    {
        static_assert(!std::is_lvalue_reference_v<F>, "name the function object and std::move it in");
        static_assert(awaiter<std::remove_cvref_t<F>>::can_be_refused,
                      "a function that yields a result<>, which can say that it was refused");
        return awaiter<std::remove_cvref_t<F>>(*this, std::forward<F>(f), true);
    }

    const std::string& name() const noexcept { return name_; }
    /// The most that it has at a time.
    std::size_t threads() const noexcept { return most_; }
    /// How busy a lane is.
    struct occupation {
        std::size_t queued = 0;                        ///< jobs waiting for a thread
        std::size_t running = 0;                       ///< jobs that have one
        std::chrono::steady_clock::duration longest{}; ///< how long the oldest of these has run
    };
    /// What it is at; any thread may ask.
    occupation look() const;
    /// Jobs that were refused since the queue was full. Any thread.
    std::uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }

private:
    friend struct detail::debug_layout;
    friend class blocking_crew;
    blocking_pool(std::unique_ptr<blocking_crew> own, unsigned threads, std::string name);
    bool enqueue(job& j, reactor* home, bool may_be_refused);
    error refusal() noexcept;

    const std::string name_;
    const std::unique_ptr<blocking_crew> own_;
    blocking_crew& crew_;
    const unsigned most_;
    // Under the crew's lock.
    job* head_ = nullptr;
    job* tail_ = nullptr;
    std::size_t queued_ = 0;
    unsigned members_ = 0;  // threads that it has, and those that it waits for
    unsigned unserved_ = 0; // of these, those it waits for
    bool stopping_ = false;
    mutable intrusive_list<blocking_crew::worker> at_work_;
    blocking_crew::place unserved_place_{*this};
    blocking_crew::place wanting_place_{*this};
    std::atomic<std::uint64_t> refused_{0};
    log_limiter refused_log_;
};

} // namespace verbena

#pragma GCC visibility pop
