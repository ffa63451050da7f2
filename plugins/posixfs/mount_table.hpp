// SPDX-License-Identifier: Apache-2.0
// The mounts that an export reaches, and the keys by which file handles name them.
#pragma once

#include "disk_rest.hpp"
#include "unique_fd.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/types.h>
#include <vector>

namespace verbena::posixfs {

/// Whether files of a mount are sent from where they lie. Any thread. Replies, which tell how that went, may outlive the mount.
struct sending_rest {
    disk_rest failed;
    disk_rest stalled; ///< it waited for the disk
};

/// The kernel's id of a mount. It is another one when the same file system is mounted again. Any thread.
class mount_id {
public:
    operator int() const noexcept { return id_.load(std::memory_order_relaxed); }
    mount_id& operator=(int id) noexcept
    {
        id_.store(id, std::memory_order_relaxed);
        return *this;
    }

private:
    std::atomic<int> id_{0};
};

/// One mounted file system that the export reaches. Lives as long as the back end.
struct mount_point {
    std::uint64_t fsid = 0;     ///< for attributes; stable over restarts
    std::uint64_t identity = 0; ///< of the file system and of where it is mounted; stable over restarts
    dev_t dev = 0;              ///< as stat(2) tells it of its root
    ino_t root = 0;             ///< likewise
    std::uint64_t covered = 0;  ///< the number of the directory that it covers; 0: not known
    mount_id id;                ///< changes with each boot
    bool in_memory = false;     ///< tmpfs and ramfs: only what was swapped out waits for a disk
    bool local = true;          ///< no other host changes it
    bool has_own_id = true;     ///< `identity` is the file system's; else it goes by the path alone
    unique_fd fd;               ///< the mount's root, readable
    mutable disk_rest reads;    ///< whether a shard itself begins reads of its disk
    mutable disk_rest writes;   ///< whether one writes
    const std::shared_ptr<sending_rest> sending = std::make_shared<sending_rest>();

    /// What stands in handles: four bytes, so that a handle with 12 of the kernel's stays within NFSv2's 32.
    std::uint32_t key() const noexcept { return static_cast<std::uint32_t>(identity ^ identity >> 32); }
};

/// Mounts whose keys agree by chance are none of them found: which one a handle meant would depend on the order
/// in which they were seen. Not thread-safe.
class mount_table {
public:
    static constexpr std::size_t max_mounts = 1024;

    bool full() const noexcept { return mounts_.size() >= max_mounts; }
    bool has(int id) const noexcept
    {
        return std::ranges::any_of(mounts_, [id](const auto& e) { return e.mount->id == id; });
    }

    /// True if another file system has told the same id, as one and its copy do. What was mounted at the place of `identity` before,
    /// and stays in the table, is the same one, whatever its device's number was.
    bool has_another(std::uint64_t fsid, dev_t dev, std::uint64_t identity) const noexcept
    {
        return std::ranges::any_of(mounts_, [&](const auto& e) {
            return e.mount->fsid == fsid && e.mount->dev != dev && e.mount->identity != identity;
        });
    }

    /// False if its key is that of another file system or place; then neither is found any more.
    bool add(std::unique_ptr<mount_point> m)
    {
        bool taken = false;
        for (entry& e : mounts_) {
            if (e.mount->key() == m->key() && e.mount->identity != m->identity)
                e.ambiguous = taken = true;
        }
        mounts_.push_back({std::move(m), taken});
        return !taken;
    }

    const mount_point* by_id(int id) const noexcept
    {
        return first([id](const mount_point& m) { return m.id == id; });
    }
    const mount_point* by_key(std::uint32_t key) const noexcept
    {
        return first([key](const mount_point& m) { return m.key() == key; });
    }

    /// `f(mount)` of each that was not retired.
    template<class F>
    void each(F f) const
    {
        for (const entry& e : mounts_)
            if (e.mount->id >= 0)
                f(*e.mount);
    }

    /// None of them is found any more, though they stay. Calls `leave` for each one that was.
    template<class F>
    void retire(F leave)
    {
        for (entry& e : mounts_) {
            if (e.mount->id < 0)
                continue;
            leave(*e.mount);
            e.mount->id = -1;
            e.ambiguous = true;
        }
    }

private:
    struct entry {
        std::unique_ptr<mount_point> mount;
        bool ambiguous;
    };
    template<class F>
    const mount_point* first(F is_it) const noexcept
    {
        for (const entry& e : mounts_) {
            if (!e.ambiguous && is_it(*e.mount))
                return e.mount.get();
        }
        return nullptr;
    }
    std::vector<entry> mounts_;
};

} // namespace verbena::posixfs
