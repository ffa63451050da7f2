// SPDX-License-Identifier: Apache-2.0
// Descriptors of files, and paths that lead to what they have open.
#pragma once

#include <verbena/core/unique_fd.hpp>

#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

namespace verbena::posixfs {

/// held() counts what the caches of all shards and exports share.
using unique_fd = basic_unique_fd<struct cached_kind>;

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
