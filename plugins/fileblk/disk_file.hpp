// SPDX-License-Identifier: Apache-2.0
// The file behind a device: opened, locked and looked at.
#pragma once

#include <verbena/core/net/net.hpp>
#include <verbena/core/result.hpp>
#include <verbena/plugins/fileblk.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace verbena::fileblk {

/// Two open file descriptions of one inode. docs/internals/fileblk.md says why.
struct disk_file {
    net::unique_fd keeper; ///< has the lock; is synced, punched and zeroed
    net::unique_fd io;     ///< is read and written
    bool is_block_device = false;
    bool in_memory = false;                ///< tmpfs, ramfs: nothing waits for a disk
    bool direct = false;                   ///< `io` has O_DIRECT
    std::uint32_t memory_align = 1;        ///< of a direct transfer
    std::uint32_t offset_align = 1;        ///< of its offset and length; divides the block size
    std::uint32_t sector_size = 512;       ///< of a block device: the least that can be discarded
    std::uint64_t size = 0;                ///< bytes that are served: whole blocks
    std::uint64_t unserved = 0;            ///< bytes behind them
    std::uint32_t physical_block = 0;      ///< bytes
    std::uint32_t discard_granularity = 0; ///< bytes; 0: it can't discard
    std::uint64_t run = 0;                 ///< storage::block_properties::run
    bool created = false;
    std::string buffered_because; ///< why it is not direct, if people should know
};

/// storage::block_properties::run of a file or block device: the same for every process as long as the kernel runs that `boot_id` names, since
/// the page cache and the disk keep what was written when a process ends. 0 where that can't be told: without a boot id, or for a block
/// device on a kernel that does not number disks (before Linux 5.15). A file that mark_loss() was called for has
/// another one from then on.
std::uint64_t run_of(int fd, bool is_block_device, std::string_view boot_id);
/// How large it is now, in bytes. May block.
result<std::uint64_t> bytes_of(int fd, bool is_block_device) noexcept;
/// Notes at the file that what was answered may be gone, so that the next process has another run. It does so by an
/// extended attribute, which block devices and some file systems don't have: an errno then, and 0 if it succeeded. May
/// block.
int mark_loss(int fd) noexcept;
/// Throws open_failure. Tests do in `before_lock` what others may do to a file that is opened or created, and not yet locked.
disk_file open_disk_file(const fileblk_options& o, const std::function<void()>& before_lock = {});

} // namespace verbena::fileblk
