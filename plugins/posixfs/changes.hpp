// SPDX-License-Identifier: Apache-2.0
// What changes of directories have in common.
#pragma once

#include "backend.hpp"

namespace verbena::posixfs {

// The kernel's own EXDEV or the like is for the caller; what was removed meanwhile is stale.
inline result<void> live_directory(int fd, struct stat& st) noexcept
{
    if (::fstat(fd, &st) != 0)
        return errno_error("fstat");
    if (st.st_nlink == 0)
        return error::from_errno(ESTALE, "the directory was removed");
    return {};
}

/// What a pool job made.
struct backend::made {
    made() = default;
    made(made&&) = default;
    made& operator=(made&&) = default;
    unique_fd path;  ///< O_PATH
    unique_fd write; ///< open for the caller, or none
    struct stat st{};
    struct stat directory{};
    bool new_name = true;        ///< the directory changed
    bool own_attributes = false; ///< the file was changed apart from being made
};

/// A file that lost a name.
struct backend::victim {
    victim() = default;
    victim(victim&&) = default;
    victim& operator=(victim&&) = default;
    unique_fd fd;
    storage::handle handle;
    off_t size = 0;
    bool gone = false;
};

struct backend::change_job {
    change_job() = default;
    change_job(change_job&&) = default;
    change_job& operator=(change_job&&) = default;
    struct stat from{};
    struct stat to{};
    backend::victim victim;
};

} // namespace verbena::posixfs
