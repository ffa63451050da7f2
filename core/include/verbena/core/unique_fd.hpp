// SPDX-License-Identifier: Apache-2.0
// A file descriptor with an owner.
#pragma once

#include <atomic>
#include <cstddef>
#include <unistd.h>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena {

/// Owns a file descriptor and closes it. Those of one `Kind`, which is any type, are counted together, so that a part of a program
/// can bound how many it has open. One owner at a time, on any thread.
template<class Kind>
class basic_unique_fd {
public:
    basic_unique_fd() = default;
    /// Owns `fd` from now on; -1 is none.
    explicit basic_unique_fd(int fd) noexcept : fd_(fd) { count(fd, 1); }
    basic_unique_fd(basic_unique_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    basic_unique_fd& operator=(basic_unique_fd&& other) noexcept
    {
        if (this != &other)
            reset(other.release());
        return *this;
    }
    ~basic_unique_fd() { reset(); }

    /// Whether it owns a descriptor.
    explicit operator bool() const noexcept { return fd_ >= 0; }
    /// The descriptor, which stays owned here; -1 if there is none.
    int get() const noexcept { return fd_; }
    /// Gives the descriptor to the caller, who closes it; it is no longer counted. -1 if there is none.
    int release() noexcept
    {
        count(fd_, -1);
        return std::exchange(fd_, -1);
    }
    /// Closes what it owned and owns `fd` from now on.
    void reset(int fd = -1) noexcept
    {
        if (fd_ >= 0)
            ::close(fd_);
        count(fd_, -1);
        fd_ = fd;
        count(fd_, 1);
    }
    /// How many the process holds in objects of this class. Any thread.
    static std::size_t held() noexcept { return held_.load(std::memory_order_relaxed); }

private:
    static void count(int fd, int change) noexcept
    {
        if (fd >= 0)
            held_.fetch_add(static_cast<std::size_t>(change), std::memory_order_relaxed);
    }

    static inline std::atomic<std::size_t> held_{0};
    int fd_ = -1;
};

/// Of no kind that anybody bounds.
using unique_fd = basic_unique_fd<struct any_file>;

} // namespace verbena

#pragma GCC visibility pop
