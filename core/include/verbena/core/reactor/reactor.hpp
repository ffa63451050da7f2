// SPDX-License-Identifier: Apache-2.0
// The reactor: one loop per thread that polls sources of events, then runs what they made ready.
//
// Turn: messages from other threads, timers, sources, run queue, end-of-turn work (doorbells,
// gathered sends), parts of long work, ring submission. A coroutine is never resumed inside a poll. When a turn did
// nothing, the policy decides between another turn and sleep; sleep happens only when every source
// armed itself. docs/internals/reactor.md.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/random.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/ring.hpp>
#include <verbena/core/reactor/spin_choice.hpp>
#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/state_record.hpp>
#include <verbena/core/task/wait_record.hpp>

#include <atomic>
#include <cassert>
#include <coroutine>
#include <cstdint>
#include <memory>
#include <pthread.h>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

class io_watch;
class log_limiter;
class request_list;
class simulated_shards;
class stall_watch;
class wake_descriptor;
namespace detail {
struct left_scope;
}

/// How a shard waits for work.
enum class wait_policy : std::uint8_t {
    busy,     ///< never sleeps
    adaptive, ///< spins for reactor_options::spin after the last work, then sleeps; sleeps at once while spins end without work
    event,    ///< sleeps as soon as nothing is ready
};
/// "busy", "adaptive" or "event".
result<wait_policy> parse_wait_policy(std::string_view name);
/// The name that parse_wait_policy() takes. A literal.
std::string_view to_string(wait_policy policy) noexcept;

/// What a reactor is made with (reactor::create(), runtime_options).
struct reactor_options {
    wait_policy policy = wait_policy::adaptive; ///< what it does when there is nothing to do
    duration spin =
        std::chrono::microseconds(50); ///< `adaptive`: how long it looks for work before it sleeps
    clock_source* clock = nullptr;     ///< nullptr: system_clock()
    unsigned ring_entries = 1024;      ///< submission queue length
    unsigned masked_ring_features = 0; ///< ring_feature bits to do without
    std::uint64_t seed =
        0; ///< not 0: the run queue is served in a seeded random order, and random() is of the seed
    unsigned index = 0; ///< the shard's number, for metrics
};

/// Where a reactor finds work in each of its turns, beside its ring and its sockets: a completion queue, for
/// example. All four functions run on the reactor's thread. It is added by reactor::add(), and leaves when it
/// is destroyed.
class event_source : public list_hook {
public:
    /// Does what there is to do, bounded; true if there was anything.
    virtual bool poll() noexcept = 0;
    /// True if poll() would find something.
    virtual bool pending() const noexcept { return false; }
    /// Prepares to be woken from sleep; false refuses the sleep (something arrived meanwhile).
    virtual bool try_arm() noexcept { return true; }
    /// Undoes try_arm().
    virtual void disarm() noexcept {}

protected:
    ~event_source() = default;
};

/// Work that runs once after the polls of a turn, or at its end. Posting it twice runs it once.
class deferred : public list_hook {
public:
    /// The work. On the shard, between polls and not inside one, so that it may resume coroutines and post
    /// itself again.
    virtual void run() noexcept = 0;

protected:
    ~deferred() = default;
};

/// A message for a shard, from any thread. Owned by the receiver from post_remote() until deliver() is
/// called there; it may delete itself in deliver().
class remote_message {
public:
    /// Called once on the receiving shard, in a poll: it must not resume coroutines, but may post them.
    virtual void deliver() noexcept = 0;

protected:
    ~remote_message() = default;

private:
    friend class reactor;
    friend class simulated_shards;
    remote_message* next_ = nullptr;
};

/// Counters of one shard, written by its thread alone but for `wakes`; any thread may read them.
struct reactor_stats {
    std::atomic<std::uint64_t> turns{0};             ///< rounds of polls
    std::atomic<std::uint64_t> busy_nanoseconds{0};  ///< in turns that did something
    std::atomic<std::uint64_t> spin_nanoseconds{0};  ///< in turns that found nothing, while it does not sleep
    std::atomic<std::uint64_t> sleep_nanoseconds{0}; ///< asleep
    std::atomic<std::uint64_t> sleeps{0};            ///< times that it went to sleep
    std::atomic<std::uint64_t> spins_paid{0};        ///< spins of `adaptive` that ended with work
    std::atomic<std::uint64_t> spins_in_vain{0};     ///< spins of `adaptive` that ended in sleep
    std::atomic<std::uint64_t> remote_messages{0};   ///< delivered here
    std::atomic<std::uint64_t> wakes{
        0}; ///< system calls by which others ended the shard's sleep; written by them
    std::atomic<std::uint64_t> stalls{
        0}; ///< turns that held the shard over 1 ms; over 100 ms they are logged
    std::atomic<std::uint64_t> stall_nanoseconds{0};   ///< of the turns that `stalls` counts
    std::atomic<std::uint64_t> illegal_transitions{0}; ///< of named_state: each is a fault of ours
};

/// Why reactor::run() returned.
enum class run_end : std::uint8_t {
    stopped,      ///< somebody called stop()
    nothing_left, ///< under a virtual clock: nothing is ready, no timer is armed, so nothing can ever happen
};

/// The loop of one thread: polls its sources of events, runs timers, resumes coroutines, and sleeps when there
/// is nothing to do.
///
/// Made, run and destroyed by one thread. What is marked "Shard only" is an assertion elsewhere; post_remote()
/// and stop() are for any thread. All that is registered with it (sources, timers, watches, tasks) goes before
/// it does.
class reactor {
public:
    /// Sockets tried speculatively in each turn while the shard spins; others wait for the ring.
    static constexpr unsigned max_hot_watches = 16;

    /// Must be called on the thread that will run it. Fails when io_uring is refused, with the cure.
    static result<std::unique_ptr<reactor>> create(const reactor_options& options = {});
    ~reactor();
    reactor(const reactor&) = delete;

    /// The reactor running on the calling thread, or nullptr.
    static reactor* current() noexcept;

    /// True on the thread that made the reactor, which alone may run it and touch what is the shard's.
    bool on_its_thread() const noexcept { return ::pthread_equal(thread_, ::pthread_self()) != 0; }
    /// True where what is the shard's may be touched: on its thread and, where that thread drives several shards
    /// (simulated_shards), not in the turn of another one. Whoever has to choose between a call and a message asks
    /// this.
    bool is_here() const noexcept { return on_its_thread() && !elsewhere_; }

    /// Runs turns until stop(). Under a virtual clock it also returns when nothing can ever happen.
    run_end run();
    /// One turn, without sleeping; true if it did anything.
    bool turn();
    /// Asks run() to return after its turn. Any thread. The reactor may be destroyed as soon as run() has returned.
    void stop() noexcept;

    // Nested in another loop (poll, libuv, GLib, Asio) the reactor has no run(): its host calls try_arm() each time before it
    // may sleep, and poll() when the descriptor is readable or try_arm() refused. docs/howto/embed.md.

    /// One descriptor to watch for POLLIN, for as long as the reactor lives, which owns it. While the reactor is armed it is
    /// readable once there is anything to do: a message, a readable socket, a completion, a timer that is due. It is made
    /// by the first call, and fails as epoll_create1(2) and io_uring_register(2) do: out of descriptors, or of memory. Under a
    /// virtual clock no timer makes it readable: whoever moves that clock calls poll(). Shard only.
    result<int> native_handle();
    /// True: the host may sleep until native_handle() is readable. False, which it always is before native_handle(): there is
    /// something to do, so the host calls poll() and does not sleep. Called again while armed it only looks whether the host
    /// has given the reactor something to do since, with no system call if not. Shard only.
    bool try_arm() noexcept;
    /// Disarms and runs one turn; true if it did anything. It never sleeps, and may be called at any time. Shard only.
    bool poll();

    /// Queues a coroutine for this turn's run phase. Shard only: from another thread the shard would sleep on.
    void post(std::coroutine_handle<> handle)
    {
        assert(
            is_here() &&
            "used on another thread than its shard's, or in another shard's turn (event, semaphore, scope): "
            "see shard::run()");
        run_queue_.push_back(handle);
    }
    /// Queues work for after the polls. Shard only.
    void post(deferred& work) noexcept
    {
        assert(is_here() &&
               "reactor::post() on another thread or in another shard's turn: see post_remote()");
        deferred_.push_back(work);
    }
    /// Queues work for the end of the turn, after the run queue. Shard only.
    void at_turn_end(deferred& work) noexcept
    {
        assert(is_here() &&
               "reactor::at_turn_end() on another thread or in another shard's turn: see post_remote()");
        turn_end_.push_back(work);
    }
    /// Queues work behind all that the turn does, its end included: a part of something long, so that what is
    /// short and new goes first. Posted there again, it runs in the next turn. Shard only.
    void post_last(deferred& work) noexcept
    {
        assert(is_here() &&
               "reactor::post_last() on another thread or in another shard's turn: see post_remote()");
        last_.push_back(work);
    }
    /// Hands `message` over to this shard. Any thread; lock-free; wakes the shard if it sleeps. The message may end the
    /// reactor: the destructor waits until post_remote() is done with it.
    void post_remote(remote_message& message) noexcept;

    /// Shard only, as timers().
    void add(event_source& source) noexcept
    {
        assert(is_here() && "reactor::add() on another thread or in another shard's turn");
        sources_.push_back(source);
    }
    /// Arms and cancels timers of this shard. Shard only.
    timer_queue& timers() noexcept
    {
        assert(is_here() && "reactor::timers() on another thread or in another shard's turn");
        return timers_;
    }
    /// Shard only, but for what it counts (ring::stats()).
    ring& io() noexcept { return *ring_; }
    /// What tells it the time: reactor_options::clock. now() is cheaper. Any thread.
    clock_source& clock() noexcept { return *clock_; }
    /// system_random(), or under a seed one of its own. Shard only.
    random_source& random() noexcept
    {
        return options_.seed != 0 ? static_cast<random_source&>(seeded_) : system_random();
    }
    /// The time at the start of this turn: one clock read serves everything in it.
    time_point now() const noexcept { return now_; }
    /// The number that it was made with, which names its shard in logs and metrics. Any thread.
    unsigned index() const noexcept { return options_.index; }
    /// As it was made. Any thread.
    wait_policy policy() const noexcept { return options_.policy; }
    const reactor_stats& stats() const noexcept { return stats_; }
    /// Those that have tasks now: scopes, and what else starts tasks. Shard only.
    intrusive_list<detail::task_group>& task_groups() noexcept { return task_groups_; }
    /// Of the objects that have a named_state. Shard only.
    intrusive_list<detail::state_record>& named_states() noexcept { return named_states_; }
    /// What is served now. Shard only.
    request_list& requests() noexcept
    {
        assert(is_here() && "reactor::requests() on another thread or in another shard's turn");
        return *requests_;
    }
    const request_list& requests() const noexcept { return *requests_; } ///< for what any thread may ask
    /// For named_state. Shard only.
    void count_illegal_transition() noexcept;

private:
    friend class io_watch;
    friend class simulated_shards;
    friend struct detail::debug_layout;
    friend struct detail::left_scope;
    class waker;
    explicit reactor(const reactor_options& options);

    bool drain_remote() noexcept;
    bool fall_asleep() noexcept;
    void wake_up() noexcept;
    bool poll_watches() noexcept;
    bool poll_sources();
    void run_deferred(intrusive_list<deferred>& list, std::size_t& ran);
    std::size_t run_ready(); // how many tasks and deferred actions ran
    bool arm_sources() noexcept;
    bool arm_watches() noexcept;
    bool arm_all() noexcept;
    void disarm_all() noexcept;
    void disarm_nested() noexcept;
    void sleep();
    bool has_pending_source() noexcept;
    /// Something is ready, as far as one can know without a turn. For simulated_shards: it looks at no socket and no
    /// ring.
    bool has_work() noexcept;
    bool idle_virtual();
    template<class What, class F>
    auto step(What what, F f);
    void resume(std::coroutine_handle<> handle);
    void turn_was_long(duration took) noexcept;

    reactor_options options_;
    const pthread_t thread_ = ::pthread_self();
    // Another shard of simulated_shards has its turn. Read and written on thread_ only.
    bool elsewhere_ = false;
    const int kernel_thread_; // for debuggers, as is next_
    reactor* next_ = nullptr;
    intrusive_list<detail::task_group> task_groups_;
    intrusive_list<detail::state_record> named_states_;
    clock_source* clock_;
    std::unique_ptr<ring> ring_;
    std::unique_ptr<waker> waker_;
    std::unique_ptr<wake_descriptor> nested_; // nullptr until the first native_handle()
    std::unique_ptr<stall_watch> watch_;      // nullptr but for a while after a long turn
    const char* left_scope_ = nullptr;        // left by an exception with so many children
    std::size_t left_children_ = 0;
    bool armed_ = false; // by try_arm()
    time_point armed_at_{};
    timer_queue timers_;
    intrusive_list<event_source> sources_;
    intrusive_list<io_watch> hot_;
    unsigned hot_count_ = 0;
    intrusive_list<io_watch> in_ring_; // armed there, to read
    io_watch* polled_ = nullptr;
    std::vector<std::coroutine_handle<>> run_queue_;
    intrusive_list<deferred> deferred_;
    intrusive_list<deferred> turn_end_;
    intrusive_list<deferred> last_;
    time_point now_{};
    time_point last_work_{};
    detail::spin_choice spin_choice_; // of policy `adaptive`
    std::uint64_t order_ = 0;         // of the run queue, under a seed
    seeded_random seeded_;            // likewise: for random()
    std::atomic<remote_message*> inbox_{nullptr};
    std::atomic<std::uint32_t> senders_{0}; // in stop(), or about to wake it: the destructor waits for them
    std::atomic<bool> stop_{false};
    reactor_stats stats_;
    std::unique_ptr<log_limiter> long_turns_; // in the log; made for the first
    std::unique_ptr<request_list> requests_;
};

} // namespace verbena

#pragma GCC visibility pop
