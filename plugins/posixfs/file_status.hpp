// SPDX-License-Identifier: Apache-2.0
// What a descriptor leads to, by the shortest way.
#pragma once

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena::posixfs {

/// fstat(2); 0, or -1 with errno. Any thread.
///
/// The C library of Debian 12 asks by newfstatat(2) with an empty name, which older kernels take apart like any other name. Where
/// the kernel's `struct stat` is the C library's, the older call is asked directly.
inline int file_status(int fd, struct stat& st) noexcept
{
#if defined(__x86_64__) && defined(__LP64__)
    return static_cast<int>(::syscall(SYS_fstat, fd, &st));
#else
    return ::fstat(fd, &st);
#endif
}

} // namespace verbena::posixfs
