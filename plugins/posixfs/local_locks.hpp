// SPDX-License-Identifier: Apache-2.0
// Byte-range locks that other processes see: one lock description for each inode (docs/internals/posixfs.md,
// "Locks").
#pragma once

#include "unique_fd.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/plugins/posixfs.hpp>
#include <verbena/protocols/files/byte_ranges.hpp>
#include <verbena/protocols/storage/local_locks.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

namespace verbena::posixfs {

class lock_description;
class step_awaiter;

/// What became of locks that the file system does not have, though their clients do. Of one export; outlives the
/// back end where the lane is slow. Any thread.
class unseen_locks {
public:
    unseen_locks(std::string name, std::string root) : name_(std::move(name)), root_(std::move(root)) {}
    /// A lock, or the end of one, for which the kernel gave this errno.
    void add(int error) noexcept;
    /// No descriptor is left for another description.
    void add_limit() noexcept;
    unseen_lock_counters counters() const noexcept;

private:
    void add(unseen_lock_counters::reason why, const char* error) noexcept;
    const std::string name_; // of the export
    const std::string root_;
    std::array<std::atomic<std::uint64_t>, unseen_lock_counters::reasons> counts_{};
    std::array<std::atomic<bool>, unseen_lock_counters::reasons> said_{};
};

/// The part of one export's lane that works for its locks: half of its threads at most, so that calls which hang leave
/// the others to all else. Descriptions that have something to do take turns there. Outlives the back end where the
/// lane is slow. Any thread.
class lock_lane : public std::enable_shared_from_this<lock_lane> {
public:
    /// Calls for locks, of several descriptions, between two waits for a thread of the lane. A turn counts for
    /// `least_of_a_turn` at least: it may open files and look who has bytes.
    static constexpr unsigned calls_of_a_pass = 256;
    static constexpr unsigned least_of_a_turn = 4;

    explicit lock_lane(blocking_pool& pool) noexcept;
    /// Descriptions in the order of their turns. One goes from list to list and takes no memory for that.
    using turns = std::list<std::shared_ptr<lock_description>>;
    /// The description in `one` gets a turn, and `one` is empty. False: it is not, as the lane has ended or there is
    /// neither a worker nor memory for one.
    bool want(turns& one) noexcept;
    /// The back end goes: from now on nothing new begins here. What waits gets its turns.
    void close() noexcept;
    blocking_pool& pool() const noexcept { return pool_; }

private:
    class worker;
    bool give_turns() noexcept;
    bool give_turn(unsigned& calls) noexcept;
    blocking_pool& pool_;
    const std::size_t most_;
    std::mutex mutex_;
    turns waiting_;
    std::size_t running_ = 0; // workers
    bool closed_ = false;
};

/// What this process has locked of one inode, by all its exports: the union of what their state layers hold, in one
/// open file description. The kernel would not tell several owners of one description apart, so the exports' locks
/// are compared here.
///
/// Work is queued on any thread, and done in that order by turns on the lane of whoever asked. A thread is in at most
/// one of them, nobody waits for it, and a turn is a bounded number of calls.
class lock_description : public std::enable_shared_from_this<lock_description> {
public:
    /// Calls for locks in one turn, and looks at ranges.
    static constexpr unsigned calls_of_a_turn = 64;
    static constexpr unsigned looks_of_a_turn = 4096;

    /// One state layer's locks of the file: what it should hold, whether or not the kernel has it.
    struct party {
        files::byte_ranges held;
        std::shared_ptr<unseen_locks> unseen;
    };
    class step final : public remote_message {
    public:
        enum class kind : std::uint8_t { lock, test, keep, nothing };
        step(kind w, std::shared_ptr<party> p, std::shared_ptr<lock_lane> l) noexcept
            : what(w), who(std::move(p)), lane(std::move(l))
        {
        }
        ~step() = default;
        const kind what;
        const std::shared_ptr<party> who;
        const std::shared_ptr<lock_lane> lane;
        files::locked_range bytes;
        std::vector<files::locked_range> kept; // keep
        unique_fd path;                        // lock, test: the file, for an open
        std::uint64_t peer = 0;                // lock: who asks
        std::size_t most = 0;                  // lock: of descriptors
        bool is_last = false;                  // lock, test: nobody makes room for a descriptor
        // Of lock and test:
        std::optional<storage::local_holder> holder;
        int failed = 0; // errno; the caller tries again

        bool is_done() const noexcept { return state_.load(std::memory_order_acquire) == state::done; }
        bool is_awaited() const noexcept { return waiter_ != nullptr; }

    private:
        friend class lock_description;
        friend class step_awaiter;
        enum class state : std::uint8_t { queued, awaited, done };
        void deliver() noexcept override;
        void end() noexcept;

        // What a turn leaves to the next one.
        enum class stage : std::uint8_t { begins, replaces, takes, undoes, catches_up, syncs, ended };
        stage now_ = stage::begins;
        std::uint64_t at_ = 0;   // up to here it is done
        std::uint64_t last_ = 0; // undoes, syncs: up to here it is to be done
        unique_fd fresh_;        // replaces
        bool is_unseen_ = false; // the kernel has refused it for good
        unsigned tries_ = 0;

        std::atomic<state> state_{state::queued};
        step_awaiter* waiter_ = nullptr; // of the shard that asked
    };

    /// The file's, which the process has one of. Any thread.
    static std::shared_ptr<lock_description> of(dev_t device, ino_t inode);
    lock_description(dev_t device, ino_t inode) noexcept : device_(device), inode_(inode) {}
    ~lock_description();
    lock_description(const lock_description&) = delete;

    /// Gives it a place in the queue, and has it done. Returns at once, unless the lane has ended: then it is done
    /// here.
    void add(std::shared_ptr<step> s);
    /// A part of what is queued. On a thread of a lane. Yields the lane that is to give the next turn; nothing: none is
    /// needed. `took`, if given, becomes the number of calls for locks that it made.
    std::shared_ptr<lock_lane> turn(unsigned* took = nullptr) noexcept;

    /// Descriptions that are open, of all files of the process.
    static std::size_t held() noexcept { return held_.load(std::memory_order_relaxed); }

private:
    using stage = step::stage;
    /// What the parties should hold from some byte on, and up to where that is the same.
    struct segment {
        std::optional<files::lock_type> type;
        std::uint64_t last = 0;
    };

    bool do_step(step& s);
    bool begins_again(step& s) noexcept;
    stage begin_lock(step& s);
    stage replace(step& s);
    stage take(step& s);
    stage catch_up(step& s);
    stage open_failed(step& s, int failed);
    stage grant_unseen(step& s, int failed);
    void grant(step& s);
    void test(step& s);
    bool keep(step& s);
    bool sync(step& s);
    bool end_doubt(step& s);
    void end_step(step& s);
    void read_again();
    bool conflicts_with_others(step& s) const;
    static bool is_locked_by_others(int fd, const files::byte_range& bytes) noexcept;
    static int find_holder(step& s, int fd) noexcept;
    bool may_have_another(const step& s) const noexcept;
    segment wanted_from(std::uint64_t at) noexcept;
    bool has(const files::byte_range& bytes, files::lock_type type) const noexcept;
    int set(int fd, const files::byte_range& bytes, short type) noexcept;
    int set(const files::byte_range& bytes, std::optional<files::lock_type> type);
    bool is_spent() const noexcept { return calls_ == 0 || looks_ == 0; }
    void note_open(std::uint64_t peer);
    void note_closed() noexcept;

    const dev_t device_;
    const ino_t inode_;
    std::mutex queue_mutex_; // of the queue
    std::deque<std::shared_ptr<step>> queue_;
    bool is_busy_ = false; // it has a turn, or waits for one
    // Of the turn.
    std::vector<std::shared_ptr<party>> parties_; // that hold something
    unique_fd fd_;
    unique_fd path_; // without fd_ it keeps the inode's number while a party holds something
    bool may_write_ = false;
    bool owes_ = false;              // the kernel refused to let go of some
    bool is_behind_ = false;         // it was opened, and not asked yet for what the kernel lacked before
    files::byte_ranges in_kernel_;   // what the kernel holds by fd_
    files::byte_ranges doubtful_;    // what it may hold, or not, beside that
    bool all_in_doubt_ = false;      // memory ran out: so it is with all of the file
    std::uint64_t peer_ = 0;         // whose share fd_ is of
    unsigned calls_ = 0, looks_ = 0; // left in this turn

    static inline std::atomic<std::size_t> held_{0};
};

/// `co_await step_awaiter(s)`. Completes when: the step is done. On cancel: at once; the step goes on. Yields false
/// then. Errors: none. Lifetime: it shares the step. Shard: any, one awaiter for each step.
class [[nodiscard("co_await it: nothing waits here otherwise")]] step_awaiter {
public:
    explicit step_awaiter(std::shared_ptr<lock_description::step> s) noexcept : step_(std::move(s)) {}
    bool await_ready() const noexcept { return step_->is_done(); }
    template<class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h)
    {
        using state = lock_description::step::state;
        handle_ = h;
        const task_context* const context = h.promise().context();
        home_ = context != nullptr && context->shard != nullptr ? context->shard : reactor::current();
        step_->waiter_ = this;
        if (context != nullptr && !context->stop.subscribe(listener_)) {
            stopped_ = true;
            return false;
        }
        mark_.set(h, wait_kind::blocking_call, &step_->lane->pool());
        state expected = state::queued;
        if (step_->state_.compare_exchange_strong(expected, state::awaited, std::memory_order_acq_rel))
            return true;
        listener_.unlink(); // it was done meanwhile
        mark_.clear();
        return false;
    }
    /// False if the wait was stopped.
    bool await_resume() const noexcept { return !stopped_; }

private:
    friend class lock_description::step;
    class listener final : public stop_listener {
    public:
        explicit listener(step_awaiter& a) noexcept : of_(a) {}
        void on_stop() noexcept override { of_.stop(); }

    private:
        step_awaiter& of_;
    };
    void stop() noexcept
    {
        using state = lock_description::step::state;
        state expected = state::awaited;
        if (!step_->state_.compare_exchange_strong(expected, state::queued, std::memory_order_acq_rel))
            return; // it is on its way home
        stopped_ = true;
        go_on();
    }
    void go_on() noexcept
    {
        listener_.unlink();
        mark_.clear();
        home_->post(handle_);
    }
    const std::shared_ptr<lock_description::step> step_;
    std::coroutine_handle<> handle_;
    reactor* home_ = nullptr;
    wait_mark mark_;
    bool stopped_ = false;
    listener listener_{*this};
};

} // namespace verbena::posixfs
