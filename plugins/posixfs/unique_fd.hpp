// SPDX-License-Identifier: Apache-2.0
// A file descriptor with an owner.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace verbena::posixfs {

class unique_fd {
public:
    unique_fd() = default;
    explicit unique_fd(int fd) noexcept : fd_(fd) { count(fd, 1); }
    unique_fd(unique_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    unique_fd& operator=(unique_fd&& other) noexcept
    {
        if (this != &other)
            reset(other.release());
        return *this;
    }
    ~unique_fd() { reset(); }

    int get() const noexcept { return fd_; }
    explicit operator bool() const noexcept { return fd_ >= 0; }
    int release() noexcept
    {
        count(fd_, -1);
        return std::exchange(fd_, -1);
    }
    void reset(int fd = -1) noexcept
    {
        if (fd_ >= 0)
            ::close(fd_);
        count(fd_, -1);
        fd_ = fd;
        count(fd_, 1);
    }
    /// How many the process holds in objects of this class; what the caches of all shards and exports share.
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

/// True if it was opened with O_PATH.
inline bool is_path_only(int fd) noexcept
{
    const int flags = ::fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_PATH) != 0;
}

/// The path that leads to what is open as `fd`, also to a symbolic link itself: for calls that take no O_PATH descriptor.
class fd_path {
public:
    explicit fd_path(int fd) noexcept { std::snprintf(text_, sizeof(text_), "/proc/self/fd/%d", fd); }
    const char* text() const noexcept { return text_; }

private:
    char text_[32];
};

} // namespace verbena::posixfs
