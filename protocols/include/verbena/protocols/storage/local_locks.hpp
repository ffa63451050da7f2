// SPDX-License-Identifier: Apache-2.0
// local_locks: byte-range locks of one file that the other processes of this host see, and theirs, which we see.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>

#include <cstdint>
#include <optional>
#include <span>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// Bytes `offset` to `last`, both included.
struct lock_range {
    std::uint64_t offset = 0; ///< the first
    std::uint64_t last = 0;   ///< included
    bool exclusive = false;   ///< locked to write; else to read
    friend bool operator==(const lock_range&, const lock_range&) = default;
};

/// What somebody outside the state layer has locked.
struct local_holder {
    lock_range bytes;         ///< that it has locked
    std::int64_t process = 0; ///< 0: not known
};

/// What a state layer has locked of one file, as locks of the file system. file_backend::local_locks() makes one
/// for each file of which bytes are locked. It holds the union of what the state layer's owners hold, and does not
/// know them: the state layer has decided between them before. It never waits for a holder.
///
/// This holds for its tasks. Completes when: the file system has answered, however long that takes. On cancel:
/// ECANCELED, and what was asked for may still happen, until keep() says otherwise. Errors: ESTALE and EIO where the
/// file is gone or can't be reached for good; EAGAIN and the like where it can't be asked just now. A file system
/// that has no locks, or no room for one more, is no error: then the bytes count as locked, and the back end says so
/// once. Lifetime: this outlives the task. Shard: that of the state layer.
///
/// Calls take effect in their order. The object is destroyed before the back end. All that it holds is unlocked
/// then, soon after; nobody waits for that.
class local_locks {
public:
    local_locks() = default;
    local_locks(const local_locks&) = delete;
    virtual ~local_locks() = default;

    /// Locks all of `bytes`, or nothing. It weakens nothing: what is locked to write stays so until keep() says less.
    /// `peer` is a number of who asks, for its share of what the back end has for locks; 0: nobody's. Yields who
    /// stands against it; nothing: it is locked.
    virtual task<result<std::optional<local_holder>>> lock(lock_range bytes, std::uint64_t peer) = 0;
    /// Who would stand against it. Nothing, too, where lock() would count the bytes as locked all the same.
    virtual task<result<std::optional<local_holder>>> test(lock_range bytes) = 0;
    /// Of `offset` to `last`, no more than `held` is locked from now on: ranges in order, within those bytes, that
    /// are all locked already, at least so. Returns at once. With all bytes and nothing `held` no lock() is under
    /// way.
    virtual void keep(std::uint64_t offset, std::uint64_t last, std::span<const lock_range> held) = 0;
    /// Completes when what keep() was told has been done; at once where it has. On cancel: it ends.
    virtual task<void> settle() = 0;
};

} // namespace verbena::storage

#pragma GCC visibility pop
