// SPDX-License-Identifier: Apache-2.0
// Whether what stands at an export's path is still what was opened there (docs/internals/posixfs.md, "When the root goes").
#pragma once

#include "standing_root.hpp"

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/result.hpp>
#include <verbena/plugins/posixfs.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

namespace verbena::posixfs {

/// The root of one back end, and what becomes of it. What may wait for a disk is a job of the export's lane, one at a time. It
/// outlives the back end if its file system hangs.
class watched_root : public std::enable_shared_from_this<watched_root> {
public:
    using clock = std::chrono::steady_clock;
    /// After this time without an answer the root counts as one that does not answer.
    static constexpr clock::duration patience = std::chrono::seconds(5);

    /// The back end. Called on a thread of its lane, one call after the other; neither may wait for a disk.
    class owner {
    public:
        /// Operations are answered with ENOMEDIUM from now on, and what is open of the root's file system is closed.
        virtual void stand_down() noexcept = 0;
        /// Serves `root` from now on. Throws std::bad_alloc, and nothing has changed.
        virtual void stand_up(std::unique_ptr<standing_root> root) = 0;

    protected:
        ~owner() = default;
    };

    /// `at`: what the back end serves; it may be no_root(). `lane` outlives all but the last job.
    watched_root(const posixfs_options& options, blocking_pool& lane, owner& of, const standing_root& at);

    /// Looks whether all is as it was. If it is not, or if that can't be told without waiting, a job of the lane settles that.
    /// Waits for nothing. Any thread.
    void look(clock::time_point now) noexcept;
    /// Looks thoroughly, and has the owner do what follows. May wait for the file system. On a thread of the lane.
    void settle() noexcept;
    /// The owner is not called from here on.
    void leave() noexcept;

    /// Nobody looks any more, until release() or come_back(). Nothing while somebody looks just now; then an empty text, or why there
    /// is nothing to hold. Any thread.
    std::optional<std::string> hold();
    void release() noexcept;
    /// The number of what is to come back; of an earlier one come_back() changes nothing any more. Any thread.
    std::uint64_t begin_coming_back() noexcept;
    /// Opens what is at the path now, and has the owner serve it if that is what was held. An empty text, or why not: then it is
    /// held as before. On a thread of the lane.
    std::string come_back(std::uint64_t attempt) noexcept;
    /// False if it has come back already. Any thread.
    bool give_up() noexcept;

    root_state state() const noexcept;
    /// Why it is not up, for people; empty while it is.
    std::string trouble() const;

private:
    class job;
    bool is_good(const root_look& now) const noexcept { return now.failed == 0 && now.is_mounted; }
    void settle_or_throw();
    void go_down(const root_look& now);
    bool may_be_served(const root_look& now, const standing_root& opened);
    std::string why(const root_look& now) const;
    std::string come_back_or_throw(std::uint64_t attempt);
    std::string why_not_it(const standing_root& opened) const;
    void measure(measured_info& measured, unique_fd root) const;
    /// Once for each reason.
    void tell_down(const std::string& reason);

    const posixfs_options options_;
    const std::string root_;
    const std::string mountpoint_; // or empty
    blocking_pool& lane_;
    std::atomic<bool> is_up_;
    std::atomic<bool> answers_{true};
    std::mutex settling_;      // who settles has it from his look on, so that none goes by an old one
    mutable std::mutex mutex_; // of all that follows; nothing waits for a disk under it
    owner* owner_;
    root_look at_;                        // what is served, or was last
    std::optional<std::uint64_t> first_;  // the first file system that was served
    std::optional<std::uint64_t> served_; // the last one
    bool asks_others_ = false; // its file system: only a thorough look finds out that nobody answers
    bool is_looking_ = false;
    bool is_held_ = false;
    std::uint64_t attempt_ = 0;
    clock::time_point since_{};
    std::string told_;
};

/// One thread of the process. It looks at all roots whenever something is mounted or unmounted, and each `interval`. Owned by the
/// back ends. Any thread.
class root_watch {
public:
    static constexpr std::chrono::milliseconds interval{1000};

    /// Starts the thread, which has all signals blocked. Errors: EAGAIN where there is no thread; those of opening the mount table.
    static result<std::shared_ptr<root_watch>> of_process();
    ~root_watch();
    root_watch(const root_watch&) = delete;

    void add(std::shared_ptr<watched_root> root);
    void remove(const watched_root& root) noexcept;

private:
    root_watch(unique_fd mounts, unique_fd end);
    void watch() noexcept;

    const unique_fd mounts_;
    const unique_fd end_;
    const pid_t process_; // a child has none of its parent's threads
    std::mutex mutex_;
    std::vector<std::shared_ptr<watched_root>> roots_;
    std::thread thread_;
};

} // namespace verbena::posixfs
