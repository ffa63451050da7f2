// SPDX-License-Identifier: Apache-2.0
// Room for a file handle of the kernel's.
#pragma once

#include <fcntl.h>

namespace verbena::posixfs {

/// For name_to_handle_at(2), once handle_bytes says how much there is, and open_by_handle_at(2).
struct kernel_buffer {
    alignas(file_handle) char bytes[sizeof(file_handle) + MAX_HANDLE_SZ];
    file_handle* get() noexcept { return reinterpret_cast<file_handle*>(bytes); }
};

} // namespace verbena::posixfs
