// SPDX-License-Identifier: Apache-2.0
// sync_group: one sync of a file or a file system serves every request that finished before it began.
#pragma once

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <mutex>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// Shared by all shards. Rounds of one file, and of the metadata of one file system, follow each other;
/// different ones run side by side on the pool. Allocates nothing: requests live in their coroutines.
class sync_group {
public:
    /// In a round of metadata, more changed inodes than this are synced by one syncfs() ...
    static constexpr std::size_t max_single_syncs = 4;
    /// ... unless so many bytes were written unstably of late: syncfs() would wait for all of them.
    static constexpr std::uint64_t max_dirty_for_syncfs = std::uint64_t(16) << 20;
    /// inodes of one round that are told apart; with more, the round syncs all
    static constexpr std::size_t max_distinct = 64;

    /// Syncs on threads of `pool`, which outlives it. For one file system.
    explicit sync_group(blocking_pool& pool) noexcept : pool_(pool) {}
    sync_group(const sync_group&) = delete;

    /// How much of a change is to be on stable storage.
    enum class what : std::uint8_t {
        data,       ///< one file's data and what is needed to read it back
        file,       ///< one file with all its metadata
        metadata,   ///< a change of an inode: rounds are shared by the whole file system
        filesystem, ///< everything; for inodes that can't be opened
    };

    /// What sync() and sync_everything() return.
    class [[nodiscard("co_await it: nothing is synced otherwise")]] awaiter final
        : public blocking_pool::job {
    public:
        awaiter(sync_group& group, what kind, int fd, std::uint64_t device, std::uint64_t inode) noexcept
            : group_(group), kind_(kind), fd_(fd), device_(device), inode_(inode)
        {
        }
        bool await_ready() const noexcept { return false; }
        template<class Promise>
        void await_suspend(std::coroutine_handle<Promise> h) noexcept
        {
            handle_ = h;
            const task_context* context = h.promise().context();
            home_ = context != nullptr && context->shard != nullptr ? context->shard : reactor::current();
            mark_.set(h, "a sync of its file system");
            group_.join(*this);
        }
        result<void> await_resume() const noexcept
        {
            if (error_ != 0)
                return error::from_errno(error_, "sync");
            return {};
        }
        void execute() noexcept override { group_.run(*this); }
        void deliver() noexcept override
        {
            mark_.clear();
            home_->post(handle_);
        }

    private:
        friend class sync_group;
        bool whole_filesystem() const noexcept
        {
            return kind_ == what::metadata || kind_ == what::filesystem;
        }
        bool same_round(const awaiter& other) const noexcept
        {
            return device_ == other.device_ && whole_filesystem() == other.whole_filesystem() &&
                   (whole_filesystem() || inode_ == other.inode_);
        }

        sync_group& group_;
        what kind_;
        int fd_;
        std::uint64_t device_;
        std::uint64_t inode_;
        int error_ = 0;
        reactor* home_ = nullptr;
        std::coroutine_handle<> handle_;
        wait_mark mark_;
        awaiter* next_ = nullptr;          // in a batch, or in the list of running rounds
        awaiter* waiting_first_ = nullptr; // of a leader: who joined since its round began
        awaiter* waiting_last_ = nullptr;
    };

    /// `co_await g.sync(...)`. `device` and `inode` tell which file `fd` (not O_PATH) is.
    ///
    /// Completes when: a sync that began after this call has ended. On cancel: it waits on, as a system call can't be recalled. Errors: those of
    /// fsync(2), once to everybody who waited for that sync; who comes later learns of them by failures() only, since the kernel tells
    /// them once. Lifetime: `fd` and the group outlive the wait. Shard: any; the task goes on where it was.
    awaiter sync(what kind, int fd, std::uint64_t device, std::uint64_t inode) noexcept
    {
        return awaiter(*this, kind, fd, device, inode);
    }
    /// sync(2), in rounds of its own. Completes when: as sync(). On cancel: as sync(). Errors: none are told. Lifetime: the group outlives
    /// the wait. Shard: as sync().
    awaiter sync_everything() noexcept { return awaiter(*this, what::filesystem, -1, no_device, 0); }
    /// Notes an unstable write, for the choice above. Any thread.
    void wrote(std::uint64_t bytes) noexcept { dirty_.fetch_add(bytes, std::memory_order_relaxed); }
    /// Notes that unstable data could not be written, though no sync told so.
    void lost() noexcept { failures_.fetch_add(1, std::memory_order_relaxed); }
    /// Changes when a sync failed: what was written unstably may be lost (RFC 1813 3.3.7). It has changed before a sync that begins
    /// after the failed one, and so before who waits for that one goes on.
    std::uint64_t failures() const noexcept { return failures_.load(std::memory_order_relaxed); }
    /// Syncs that were done. Any thread.
    std::uint64_t rounds() const noexcept { return rounds_.load(std::memory_order_relaxed); }

private:
    static constexpr std::chrono::seconds writeback_time{30};
    static constexpr std::uint64_t no_device = 0; // which no file system has

    void join(awaiter& a) noexcept;
    void run(awaiter& leader) noexcept;
    int sync_one(const awaiter& leader, bool data_only) noexcept;
    int sync_metadata(const awaiter& leader, const awaiter* batch) noexcept;
    bool little_is_dirty() noexcept;

    blocking_pool& pool_;
    std::mutex mutex_;
    awaiter* running_ = nullptr;
    std::atomic<std::uint64_t> dirty_{0};
    std::atomic<std::uint64_t> failures_{0};
    std::atomic<std::uint64_t> rounds_{0};
    std::chrono::steady_clock::time_point dirty_since_{};
};

} // namespace verbena::storage

#pragma GCC visibility pop
