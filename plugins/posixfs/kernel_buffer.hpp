// SPDX-License-Identifier: Apache-2.0
// File handles of the kernel's.
#pragma once

#include <cerrno>
#include <fcntl.h>
#include <sched.h>

namespace verbena::posixfs {

/// For name_to_handle_at(2), once handle_bytes says how much there is, and open_by_handle_at(2).
struct kernel_buffer {
    alignas(file_handle) char bytes[sizeof(file_handle) + MAX_HANDLE_SZ];
    file_handle* get() noexcept { return reinterpret_cast<file_handle*>(bytes); }
};

/// Calls `open`, which gives a descriptor or -1 with errno, again while that is ENOMEM: a file system that is just giving the
/// inode number of a removed file to a new one says so of the old handle (iget_locked in fs/inode.c), and ESTALE once that
/// is done, as a rule within a millisecond. Ends after some 2 ms, with ENOMEM, which is then perhaps what the kernel means.
template<class Open>
int open_settled(Open open)
{
    int fd = open();
    for (int again = 0; fd < 0 && errno == ENOMEM && again < 1000; ++again) {
        ::sched_yield();
        fd = open();
    }
    return fd;
}

} // namespace verbena::posixfs
