// SPDX-License-Identifier: Apache-2.0
// memfs: a file system in memory, for tests, simulations and scratch space. Gone with its object.
#pragma once

#include <verbena/core/random.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/protocols/storage/file_backend.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

#pragma GCC visibility push(default)

namespace verbena::memfs {

/// How much a memfs may hold, and what its root looks like.
struct memfs_options {
    /// Of file data, in blocks of 64 KiB, of names, of targets of symbolic links and of extended attributes; then ENOSPC. A name counts twice
    /// its length and 256 bytes. Of blocks that files share each pays for its own.
    std::uint64_t max_bytes = std::uint64_t(1) << 30;
    std::uint64_t max_files = std::uint64_t(1) << 20; ///< of all types; then ENOSPC
    std::uint32_t root_mode = 0755;                   ///< mode bits of the root directory
    std::uint32_t root_uid = 0;                       ///< its owner
    std::uint32_t root_gid = 0;                       ///< its group
    bool read_only = false;                           ///< every change is EROFS
    /// mkdir() in the root's ".snapshot" takes a snapshot, and rmdir() there ends it. What they cost counts for max_bytes and max_files: their
    /// names and files at once, and of their data what the files don't have any more.
    bool snapshots = false;
    std::uint32_t max_snapshots = 64; ///< at once; then ENOSPC
    /// Of one snapshot, of all types, and such as are open and have no name any more; then ENOSPC. All shards that have something to do in
    /// the file system wait while they are copied.
    std::uint32_t max_snapshot_files = 100'000;
    random_source* random =
        nullptr; ///< draws what tells this one from others; nullptr: system_random(). Not kept.
};

/// Bytes of blocks that READs have on loan now. Of a back end that open_memfs() made. Any thread; takes the back end's mutex.
std::uint64_t lent_bytes_of(const storage::file_backend& memfs) noexcept;

/// Makes an empty one. Permissions are checked here, by mode bits; operations are serialised by one mutex
/// that all shards share, so changes carry attributes from before. Nothing ever waits longer than for that
/// mutex; `pool` is not used. READs may
/// have memory of files on loan (locate()): that memory may outlive the back end, and any thread may let it go. A write to a block on loan
/// goes to a copy. So the back end may take an eighth more than max_bytes for a time: 4 MiB at least and 256 MiB at most. Memory is as stable as it gets: every write answers file_sync if asked to.
result<std::unique_ptr<storage::file_backend>> open_memfs(const memfs_options& options, blocking_pool& pool);

/// What the snapshots of a memfs take.
struct snapshot_counts {
    std::uint64_t snapshots = 0;  ///< that are there now
    std::uint64_t held_bytes = 0; ///< of data that snapshots alone have
    /// Blocks that peers got in the place of what snapshots have (storage::map_use::write_apart), since the start, and how many of them
    /// have become the files'.
    std::uint64_t fresh_blocks = 0, taken_in = 0; ///< what peers wrote apart, and of it what was taken in
};
/// Of a back end that open_memfs() made. Any thread.
snapshot_counts snapshot_counts_of(const storage::file_backend& memfs) noexcept;

} // namespace verbena::memfs

#pragma GCC visibility pop
