// SPDX-License-Identifier: Apache-2.0
// runtime: N shards, each a thread with its own reactor and buffers, and what they share.
//
// A runtime never owns main(): it is started, given work through call() and run(), and stopped, all
// from a thread that is no shard.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/task/task_dump.hpp>

#include <array>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

/// What a runtime is made with (runtime::start()).
struct runtime_options {
    unsigned shards = 1;          ///< how many threads run shards, 1 to runtime::max_shards
    reactor_options reactor = {}; ///< of each shard; `index` is set by the runtime
    std::size_t memory_limit = std::size_t(512) << 20; ///< bytes of all buffer pools together
    huge_pages pages = huge_pages::automatic;          ///< what buffers may lie on
    unsigned blocking_threads = 8;                     ///< that a lane has at most
    bool pin = false; ///< shard i stays on the i-th CPU that the process may use
};

namespace detail {
/// What the task yields that `F`, called with a shard, returns.
template<class F>
using task_value_of = typename task_value<std::invoke_result_t<F&, shard&>>::type;
} // namespace detail

/// Whose rights the threads of a lane for blocking calls have.
enum class lane_rights : std::uint8_t {
    daemon, ///< the process's own, from their first job to their last: the kernel refuses a thread that ever changed them its RDMA files
    callers ///< each job may take a caller's, as those of an export do; what it leaves behind reaches other such lanes alone
};

/// The shards of a program: a thread with a reactor, buffers and a scope for each, and the threads for calls
/// that block.
///
/// Made and destroyed by a thread that is no shard. It owns the shards; all that runs on them ends, or is asked
/// to stop and waited for, before the destructor returns.
class runtime {
public:
    static constexpr unsigned max_shards = 256;    ///< threads that run shards
    static constexpr std::size_t max_lanes = 4352; ///< at a time

    /// Starts the threads, with all signals blocked in them. EINVAL for a number of shards outside
    /// 1..max_shards; else the error of the first shard whose reactor failed, none then runs.
    static result<std::unique_ptr<runtime>> start(const runtime_options& options = {});
    /// Stops if stop() was not called.
    ~runtime();
    runtime(const runtime&) = delete;

    std::size_t size() const noexcept { return shards_.size(); }
    const runtime_options& options() const noexcept { return options_; }
    /// The shard of that number, below size(). It lives until stop(). Any thread.
    shard& at(std::size_t index) noexcept;
    /// What the buffer pools of all shards count against. Any thread.
    memory_budget& budget() noexcept { return budget_; }
    /// A new lane for calls that block; lives as long as the runtime, or until remove_lane(). Whatever can hang by itself gets one of its own. Lanes of equal `rights` share the
    /// threads of one crew. `threads`: the most that it has at a time; 0 for runtime_options::blocking_threads. Any thread but a
    /// shard's. Errors: EMFILE beyond max_lanes, those of starting a thread.
    result<blocking_pool*> add_lane(std::string name, unsigned threads = 0,
                                    lane_rights rights = lane_rights::daemon);
    /// Takes a lane away that finish() was called of, while shards run: others may have its name. It is there for some time, since a reply
    /// that is being sent may have to close a file by it: until most_removed more were removed. Any thread but a shard's.
    void remove_lane(blocking_pool& lane) noexcept;
    static constexpr std::size_t most_removed = 1024; ///< that remain after their end
    /// A lane in whose calls something is stuck.
    struct stuck_lane {
        std::string name;              ///< of the lane
        blocking_pool::occupation now; ///< when stuck_lanes() looked
    };
    /// The lanes in whose calls something has been stuck for `limit` or longer. Any thread.
    std::vector<stuck_lane> stuck_lanes(std::chrono::steady_clock::duration limit) const;

    /// Calls `f(shard)` on a shard, between polls, and waits for what it returns; an exception is
    /// rethrown here. Never from a shard: there, `co_await at(index).run(f)`.
    template<class F>
    auto call(std::size_t index, F&& f) -> std::invoke_result_t<F&, shard&>
    {
        call_message<std::remove_reference_t<F>> sent(at(index), f);
        return deliver_and_wait(sent);
    }
    /// Runs the task that `f(shard)` returns to its end on a shard and waits for its value. `f` must stay
    /// alive that long, as a capturing coroutine lambda must. Never from a shard: there, `co_await at(index).run(f)`.
    template<class F>
    auto run(std::size_t index, F&& f) -> detail::task_value_of<F>
    {
        run_message<std::remove_reference_t<F>> sent(at(index), f);
        return deliver_and_wait(sent);
    }

    /// Which tasks each shard has, and what they wait for, as text for people: task_dump, at most `lines` for each shard. A shard that
    /// does not look at its messages within `patience` is said to be held: what it runs does not return. For the thread that
    /// started the runtime; never from a shard.
    std::string describe_tasks(std::chrono::milliseconds patience = std::chrono::seconds(1),
                               std::size_t lines = task_dump::usual_lines);

    /// Registers the metrics of shards, memory and pool, until the runtime stops.
    void expose(metric_registry& registry);

    /// Asks the tasks of all shards to stop, joins them, ends the threads. What others made on a shard
    /// must have been taken down there before. Until the tasks of all shards have ended each shard answers the others, though it
    /// takes no more calls of shard::run(). Idempotent. Never from a shard.
    void stop();

private:
    struct worker;
    class dump_request;

    // Runs its body after the polls: a coroutine is never resumed inside one.
    template<class T>
    class message : public remote_message, public deferred {
    public:
        explicit message(shard& s) noexcept : shard_(s) {}
        void deliver() noexcept final { shard_.reactor().post(static_cast<deferred&>(*this)); }
        verbena::reactor& where() const noexcept { return shard_.reactor(); }
        std::future<T> outcome() { return promise_.get_future(); }

    protected:
        ~message() = default;
        shard& shard_;
        std::promise<T> promise_;
    };
    template<class F>
    class call_message final : public message<std::invoke_result_t<F&, shard&>> {
        using value_type = std::invoke_result_t<F&, shard&>;

    public:
        call_message(shard& s, F& f) noexcept : message<value_type>(s), function_(f) {}
        void run() noexcept override
        {
            // Not touched after the promise has been kept: the waiting thread destroys it.
            std::promise<value_type> promise = std::move(this->promise_);
            try {
                if constexpr (std::is_void_v<value_type>) {
                    function_(this->shard_);
                    promise.set_value();
                } else {
                    promise.set_value(function_(this->shard_));
                }
            } catch (...) {
                promise.set_exception(std::current_exception());
            }
        }

    private:
        F& function_;
    };
    template<class F>
    class run_message final : public message<detail::task_value_of<F>> {
        using task_type = std::invoke_result_t<F&, shard&>;
        using value_type = detail::task_value_of<F>;

    public:
        run_message(shard& s, F& f) noexcept : message<value_type>(s), function_(f) {}
        void run() noexcept override
        {
            try {
                this->shard_.tasks().spawn(already_made, keep(function_(this->shard_)));
            } catch (...) { // it has not run
                std::promise<value_type> promise = std::move(this->promise_);
                promise.set_exception(std::current_exception());
            }
        }

    private:
        // The waiting thread destroys this once the promise has been kept.
        task<void> keep(task_type t)
        {
            detail::outcome<value_type> out;
            try {
                if constexpr (std::is_void_v<value_type>) {
                    co_await t;
                    out.value.emplace();
                } else {
                    out.value.emplace(co_await t);
                }
            } catch (...) {
                out.failure = std::current_exception();
            }
            std::promise<value_type> promise = std::move(this->promise_);
            if (out.failure)
                promise.set_exception(out.failure);
            else if constexpr (std::is_void_v<value_type>)
                promise.set_value();
            else
                promise.set_value(std::move(*out.value));
        }
        F& function_;
    };
    template<class T>
    T deliver_and_wait(message<T>& m)
    {
        assert(!on_own_shard() &&
               "runtime::call() or run() on a shard of its own, which waits for itself: see shard::run()");
        std::future<T> outcome = m.outcome();
        m.where().post_remote(m);
        return outcome.get();
    }

    explicit runtime(const runtime_options& options);
    /// The caller is one of this runtime's shards, between polls.
    bool on_own_shard() const noexcept;

    runtime_options options_;
    memory_budget budget_;
    mutable std::mutex lanes_mutex_;                      // of what follows
    std::array<std::unique_ptr<blocking_crew>, 2> crews_; // by lane_rights, from the first lane of each on
    std::vector<std::unique_ptr<blocking_pool>> lanes_;
    std::deque<std::unique_ptr<blocking_pool>> removed_;
    std::vector<std::unique_ptr<worker>> shards_;
    std::vector<std::unique_ptr<dump_request>> dumps_; // of shards that are held
    std::vector<metric_registry::registration> metrics_;
};

} // namespace verbena

#pragma GCC visibility pop
