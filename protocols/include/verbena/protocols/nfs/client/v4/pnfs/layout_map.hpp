// SPDX-License-Identifier: Apache-2.0
// The extents of one file that a client has layouts of, and what of them a read or a write may use
// (draft-hellwig-nfsv4-rdma-layout-00, 2.4).
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/protocols/nfs/wire/v4/rdma_layout.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4::pnfs {

/// Decides alone; shard-local.
///
/// A reader finds the extent that was given to write before the one that was given to read: what is a hole in the latter may have
/// got bytes by the former.
class layout_map {
public:
    /// Limit of extents. Who has more gives layouts back.
    static constexpr std::size_t max_extents = 16384;

    /// Where some bytes of the file lie, from the asked offset on.
    struct place {
        /// How a place is read or written.
        enum class how : std::uint8_t {
            memory,       ///< they are read or written at `address`
            zeros,        ///< they read as zeros, without I/O
            uninitialized ///< whole blocks are to be written: block_to_write()
        };
        how is = how::memory;
        std::uint64_t length = 0; ///< bytes that follow each other there, at least one
        deviceid4 device{};       ///< whose memory it is
        std::uint32_t handle = 0;
        std::uint64_t address = 0;
    };

    /// Takes what a LAYOUTGET gave and broken_rule() found to be good; it goes on top of what is there. `block`: layout_blksize, 0 if the
    /// server told none. Errors: protocol_error with the rule that is broken, message_size beyond max_extents; then nothing is added.
    result<void> add(std::span<const pnfs_rdma_extent4> extents, layoutiomode4 mode, std::uint64_t block);
    /// Forgets these bytes, of layouts with that mode; of uninitialized ones whole blocks.
    void cut(std::uint64_t offset, std::uint64_t length, layoutiomode4 mode);
    /// Forgets the holes in layouts to read.
    void forget_holes() noexcept;
    void clear() noexcept;
    bool empty() const noexcept { return read_.empty() && write_.empty(); }
    std::size_t size() const noexcept { return read_.size() + write_.size() + beneath_.size(); }

    /// Where the byte at `offset` is read from; nothing without an extent.
    std::optional<place> to_read(std::uint64_t offset) const noexcept;
    /// Where it may be written to; nothing without an extent that can be written.
    std::optional<place> to_write(std::uint64_t offset) const noexcept;

    /// Of a write of [offset, offset + length) that lies in uninitialized bytes: the whole blocks that it takes, which lie in one
    /// extent.
    struct blocks {
        std::uint64_t offset = 0; ///< of the first
        std::uint64_t length = 0; ///< bytes
    };
    /// See blocks.
    blocks blocks_of(std::uint64_t offset, std::uint64_t length) const noexcept;
    /// These blocks have been written: they are data from now on, and to be told of by LAYOUTCOMMIT.
    void initialized(const blocks& b);
    /// What is to be told of: in order, whole blocks, no two of which touch.
    std::span<const pnfs_rdma_range4> told_later() const noexcept { return initialized_; }
    /// A LAYOUTCOMMIT has told of these.
    void told(std::span<const pnfs_rdma_range4> ranges);

    /// All extents, in order: those to write, then those to read.
    std::vector<pnfs_rdma_extent4> all() const;

private:
    using extents = std::vector<pnfs_rdma_extent4>; // in order, none overlaps another one
    static const pnfs_rdma_extent4* find(const extents& in, std::uint64_t offset) noexcept;
    static void cut(extents& from, std::uint64_t begin, std::uint64_t end);
    static void insert(extents& into, const pnfs_rdma_extent4& e);
    // What of [begin, end) was uninitialized is data.
    void fill(std::uint64_t begin, std::uint64_t end);

    extents write_;   // that can be written
    extents beneath_; // what is read where those are uninitialized
    extents read_;
    std::vector<pnfs_rdma_range4> initialized_;
    std::uint64_t block_ = 0;
};

} // namespace verbena::nfs::v4::pnfs

#pragma GCC visibility pop
