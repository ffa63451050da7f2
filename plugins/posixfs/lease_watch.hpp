// SPDX-License-Identifier: Apache-2.0
// Kernel leases, and the thread that hears which of them somebody wants to be rid of (docs/internals/posixfs.md, "Leases").
#pragma once

#include "unique_fd.hpp"

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/result.hpp>
#include <verbena/protocols/storage/file_lease.hpp>

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <sys/types.h>
#include <thread>

namespace verbena::posixfs {

/// One for each signal number, of all back ends of the process that use it. Owned by them and by the leases. Any thread.
class lease_watch : public std::enable_shared_from_this<lease_watch> {
public:
    /// For `signal`, a real-time one; 0: default_signal(). Starts the thread, which has all signals blocked. EINVAL for another signal; EAGAIN where there is no thread.
    static result<std::shared_ptr<lease_watch>> of(int signal);
    static int default_signal() noexcept;
    ~lease_watch();
    lease_watch(const lease_watch&) = delete;

    /// Each second it looks at so many leases, one after the other, for what breaks none: a file that somebody has removed, renamed, or
    /// whose attributes he has changed.
    static constexpr std::size_t looked_at = 16384;

    /// A lease on what `file` has open to read, which it keeps open. `home` outlives it; there `wanted` is called and the lease is destroyed.
    /// Errors: those of F_SETLEASE. Any thread.
    result<std::unique_ptr<storage::file_lease>>
    take(unique_fd file, reactor& home, const storage::lease_wanted& wanted, blocking_pool& pool);
    /// Tells the holders of all leases that were taken with `pool` that they are wanted.
    void want_all_of(const blocking_pool& pool) noexcept;
    /// Closes the descriptors of these leases: whoever holds one holds nothing any more, and is told that it is wanted.
    void let_go_all_of(const blocking_pool& pool) noexcept;
    /// How many of these have a descriptor.
    std::size_t held_of(const blocking_pool& pool) noexcept;
    /// How many leases there are in the process.
    static std::size_t held() noexcept { return held_.load(std::memory_order_relaxed); }

private:
    struct lease_record;
    class held_lease;

    explicit lease_watch(int signal);
    void listen() noexcept;
    bool has_leases() noexcept;
    void look_at(int fd) noexcept;
    void look_at_all() noexcept;
    void look_for_changes() noexcept;
    static void look(const std::shared_ptr<lease_record>& at) noexcept;
    static void tell(const std::shared_ptr<lease_record>& whom) noexcept;
    unique_fd forget(lease_record& gone) noexcept;
    template<class F>
    void each(F f) noexcept;

    static inline std::atomic<std::size_t> held_{0};

    const int signal_;
    const pid_t process_; // a child has none of its parent's threads
    std::atomic<bool> ends_{false};
    std::atomic<pid_t> listener_{0}; // 0 until it runs
    std::mutex mutex_;
    std::map<int, std::shared_ptr<lease_record>> records_; // by descriptor
    int last_look_ = -1;
    std::thread thread_;
};

} // namespace verbena::posixfs
