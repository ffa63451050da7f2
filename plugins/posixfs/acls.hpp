// SPDX-License-Identifier: Apache-2.0
// Access control lists of open files, with the calling thread's identity. Descriptors may be O_PATH ones.
#pragma once

#include "acl_mapping.hpp"

#include <span>
#include <sys/stat.h>

namespace verbena::posixfs {

/// Whether the file system has them, by a descriptor of it that is no O_PATH one.
bool has_acls(int fd) noexcept;
/// What the file's ACLs are, or its mode where it has none.
result<storage::access_list> acl_of(int fd);
/// The same as the kernel has them, and the file's status with them.
result<posix_acls> posix_acls_of(int fd, struct stat& st);
/// What `list` is for a file of that type; to be asked before anything of it changes. EOPNOTSUPP where it can't be had.
result<posix_acls> acls_to_set(const struct stat& st, std::span<const storage::ace> list);
/// The kernel says who may: the owner, or who has CAP_FOWNER.
result<void> set_acls(int fd, const struct stat& st, const posix_acls& acls);

} // namespace verbena::posixfs
