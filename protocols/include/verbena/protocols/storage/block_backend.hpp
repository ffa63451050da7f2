// SPDX-License-Identifier: Apache-2.0
// block_backend: what a block device must offer to be served.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// What a device is like. Sizes are in bytes.
struct block_properties {
    std::uint64_t size = 0;                  ///< a multiple of block_size
    std::uint32_t block_size = 512;          ///< of offsets and lengths: a power of two, 512 to 4096
    std::uint32_t physical_block_size = 512; ///< what can be written without reading first
    std::uint32_t discard_granularity = 0;   ///< 0: it can't discard
    bool write_zeroes = false;               ///< write_zeroes() is there
    bool read_only = false;                  ///< writes are EROFS
    /// Writes may be lost with the power until a flush, unless they are written through. False: what is written stays.
    bool write_back = false;
    /// Names the run in which the device has kept everything that it answered, flushed or not. As long as this value stays the same, and is
    /// not 0, nothing has been lost. Another value says that answered writes which were not flushed may be gone; of a device
    /// without write_back, which keeps everything as long as its run lasts (ramblk), it says that all that was written is gone. 0: the
    /// device can't tell runs apart. Clients compare the value when they open the device again. Draw 64
    /// random bits, or hash what changes with each run, so that two runs never have one value by chance.
    std::uint64_t run = 0;
};

/// One block device. Calls whose ranges overlap while both are under way are done in any order, block by block.
/// Completes when: it is done. On cancel: a call runs to its end, since a disk operation can't be recalled; only where a filter
/// makes it wait a stop ends the wait: the call fails with ECANCELED, and was not done.
/// Errors: errno values. EINVAL: a range that is not of whole blocks or not in the device; EROFS: a change to a read-only device;
/// EOPNOTSUPP: properties() say that there is no such operation; ENOSPC, EIO: the disk's.
/// Lifetime: memory that is lent lives, and bytes that are written stay unchanged, until the task ends; the back end outlives its calls.
/// Shard: any; a call runs on its caller's shard and comes back there.
class block_backend {
public:
    virtual ~block_backend() = default;

    /// The name of what made it. A literal.
    virtual std::string_view kind() const noexcept = 0; ///< "fileblk", "ramblk"
    /// May change while it is served (resize): any thread.
    virtual block_properties properties() const noexcept = 0;

    /// Fills `into`.
    virtual task<result<void>> read(std::uint64_t offset, std::span<std::byte> into) = 0;
    /// `through`: on stable storage when it returns, as if it were flushed (FUA).
    virtual task<result<void>> write(std::uint64_t offset, std::span<const std::byte> from, bool through) = 0;
    /// All writes that ended before it began are on stable storage when it returns.
    virtual task<result<void>> flush() = 0;
    /// The range's contents are not needed any more; what it reads as then is not defined.
    virtual task<result<void>> discard(std::uint64_t offset, std::uint64_t length) = 0;
    /// The range reads as zeros. `keep`: its space stays allocated.
    virtual task<result<void>> write_zeroes(std::uint64_t offset, std::uint64_t length, bool keep) = 0;

    /// The device as one client uses it, where a filter tells clients apart; nothing where none does, and every client uses this. `client`
    /// names the client for as long as it is remembered: two of one name are one. What this yields goes, after its calls, before this
    /// does. Any thread.
    virtual std::unique_ptr<block_backend> for_client(std::string_view client);
};

/// A device that may become larger or smaller while it is served.
class resizable {
public:
    /// How many bytes there are now behind the device, in whole blocks. May wait for a disk: on a thread that is no shard. Errors: errno
    /// values; EINVAL: there is no whole block.
    virtual result<std::uint64_t> size_there() = 0;
    /// Serves so many bytes from now on. What is asked for behind them, and was there before, fails with EIO, or ENOSPC for changes. Any thread.
    virtual void serve_size(std::uint64_t bytes) noexcept = 0;

protected:
    ~resizable() = default;
};

/// Whether a back end with such properties may do it: EINVAL, or EROFS if `change`.
result<void> check_range(const block_properties& p, std::uint64_t offset, std::uint64_t length,
                         bool change) noexcept;

} // namespace verbena::storage

#pragma GCC visibility pop
