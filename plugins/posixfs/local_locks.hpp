// SPDX-License-Identifier: Apache-2.0
// Byte-range locks that other processes see: one lock description for each inode (docs/internals/posixfs.md,
// "Locks").
#pragma once

#include "unique_fd.hpp"

#include <verbena/core/log.hpp>
#include <verbena/plugins/posixfs.hpp>
#include <verbena/protocols/files/byte_ranges.hpp>
#include <verbena/protocols/storage/local_locks.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

namespace verbena::posixfs {

/// What became of locks that the file system does not have, though their clients do. Of one export; outlives the
/// back end where the lane is slow. Any thread.
class unseen_locks {
public:
    explicit unseen_locks(std::string root) : root_(std::move(root)) {}
    /// A lock, or the end of one, for which the kernel gave this errno.
    void add(int error) noexcept;
    /// No descriptor is left for another description.
    void add_limit() noexcept;
    unseen_lock_counters counters() const noexcept;

private:
    void add(unseen_lock_counters::reason why, const char* error) noexcept;
    const std::string root_;
    std::array<std::atomic<std::uint64_t>, unseen_lock_counters::reasons> counts_{};
    std::array<std::atomic<bool>, unseen_lock_counters::reasons> said_{};
};

/// What this process has locked of one inode, by all its exports: the union of what their state layers hold, in one
/// open file description. The kernel would not tell several owners of one description apart, so the exports' locks
/// are compared here.
///
/// Work is queued on any thread, and done in that order on the lane's.
class lock_description {
public:
    /// One state layer's locks of the file.
    struct party {
        files::byte_ranges held;
        std::shared_ptr<unseen_locks> unseen;
    };
    struct step {
        enum class kind : std::uint8_t { lock, test, keep, leave, nothing };
        step(kind w, std::shared_ptr<party> p) noexcept : what(w), who(std::move(p)) {}
        const kind what;
        const std::shared_ptr<party> who;
        files::locked_range bytes;
        std::vector<files::locked_range> kept; // keep
        int path = -1;                         // lock, test: the file, for an open; good until it is done
        std::size_t most = 0;                  // lock: of descriptors
        bool is_last = false;                  // lock: nobody makes room for a descriptor
        bool is_done = false;
        // Of lock and test:
        std::optional<storage::local_holder> holder;
        int failed = 0; // errno; the caller tries again
    };

    /// The file's, which the process has one of. Any thread.
    static std::shared_ptr<lock_description> of(dev_t device, ino_t inode);
    lock_description(dev_t device, ino_t inode) noexcept : device_(device), inode_(inode) {}
    ~lock_description();
    lock_description(const lock_description&) = delete;

    /// Gives it a place in the queue.
    void add(std::shared_ptr<step> s);
    /// Does what is queued, up to `s`. May wait for the file system: on the lane's threads.
    void run(const step& s) noexcept;

    /// Descriptions that are open, of all files of the process.
    static std::size_t held() noexcept { return held_.load(std::memory_order_relaxed); }

private:
    void do_step(step& s);
    void lock(step& s);
    bool take(step& s);
    void test(step& s, int fd);
    void keep(party& who, const files::byte_range& bytes, std::span<const files::locked_range> held);
    void leave(party& who);
    bool conflicts_with_others(step& s) const;
    int open(const step& s, bool to_write) noexcept;
    int set(int fd, const files::byte_range& bytes, short type) noexcept;
    void bring(party& who, const files::byte_range& bytes);
    files::byte_ranges union_of(const files::byte_range& bytes) const;
    void close_if_unused() noexcept;

    const dev_t device_;
    const ino_t inode_;
    std::mutex queue_mutex_; // of the queue, and of step::is_done
    std::deque<std::shared_ptr<step>> queue_;
    // Of who does what is queued.
    std::mutex work_mutex_;
    std::vector<std::shared_ptr<party>> parties_;
    unique_fd fd_;
    bool may_write_ = false;
    bool owes_ = false; // the kernel refused to let go of some

    static inline std::atomic<std::size_t> held_{0};
};

} // namespace verbena::posixfs
