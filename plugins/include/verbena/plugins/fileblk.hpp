// SPDX-License-Identifier: Apache-2.0
// fileblk: a block device out of a regular file or a block device of this host. docs/internals/fileblk.md.
#pragma once

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/result.hpp>
#include <verbena/protocols/storage/block_backend.hpp>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#pragma GCC visibility push(default)

namespace verbena::fileblk {

/// Whether the page cache is gone round.
enum class direct_mode : std::uint8_t {
    automatic, ///< where O_DIRECT works with the device's block size
    on,        ///< or a refusal
    off,
};

/// The file or block device that is served.
struct fileblk_options {
    std::string path;               ///< a regular file or a block device; symbolic links are followed
    std::uint64_t size = 0;         ///< bytes: creates the file, or is the size that it has; 0: as it is
    std::uint32_t block_size = 512; ///< 512, 1024, 2048 or 4096
    bool read_only = false;         ///< what changes it is refused
    direct_mode direct = direct_mode::automatic; ///< whether the page cache is gone round
};

/// What a device has done, at one moment.
struct fileblk_counters {
    std::uint64_t direct = 0;     ///< reads and writes that went round the page cache
    std::uint64_t copied = 0;     ///< of these, from or to memory that is not aligned
    std::uint64_t page_cache = 0; ///< those that went by it
    std::uint64_t syncs = 0;      ///< calls of fdatasync(2)
    std::uint64_t sync_failures =
        0; ///< syncs and writes through that failed; after the first one every flush fails
};

/// The device. After an fdatasync or a write through that failed, each later flush() and write through is EIO until it is opened anew, since nobody knows what was
/// lost. read() of what the file has no more, as somebody cut it off, is EIO.
class fileblk_device : public storage::block_backend, public storage::resizable {
public:
    /// What this device counted since it was opened. Any thread.
    virtual fileblk_counters counters() const noexcept = 0;
    /// What people are told at start: "O_DIRECT; discard; ...".
    virtual std::string notes() const = 0;
};

/// Why a device can't be opened: what() names the rule that it broke, and the cure.
class open_failure : public std::runtime_error {
public:
    /// `errno_value` is the errno that comes nearest, `text` what people read.
    open_failure(int errno_value, const std::string& text) : runtime_error(text), errno_(errno_value) {}
    /// Never 0.
    int errno_value() const noexcept { return errno_; }

private:
    int errno_;
};

/// Opens the device; it alone may write to it until it goes. Throws open_failure. May block. `lane` outlives the device; nobody else should use
/// it, as what hangs holds up its jobs. Destroy the device when no task of it is under way.
std::unique_ptr<fileblk_device> open_fileblk(const fileblk_options& options, blocking_pool& lane);

} // namespace verbena::fileblk

#pragma GCC visibility pop
