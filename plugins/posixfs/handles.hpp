// SPDX-License-Identifier: Apache-2.0
// Where file handles come from, and the mounts they lead to.
#pragma once

#include "mount_table.hpp"
#include "path_table.hpp"
#include "unique_fd.hpp"

#include <verbena/plugins/posixfs.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

namespace verbena::posixfs {

/// Makes handles of open files and opens files by handle. Thread-safe.
///
/// A kernel handle is [1][type][kernel's bytes] on the root's mount and [4][type][key, 4][kernel's bytes] on a
/// mount beneath it, one of the path table [3][device, 4][inode, 8][generation, 4][instance, 4]; [2] was a mount's
/// with a longer key and is refused. So an ext4 or xfs handle takes 10 to 18 bytes and leaves a protocol room in 32. Where the
/// root's file system is not the first one that was served at its place, handles on its mount have its key, too: those of
/// the first one would lead to other files. [5] is the root where nothing is there, and leads nowhere.
class handle_source {
public:
    /// `unmarked`: the file system (mount_point::identity) whose handles on the root's mount have no key; nothing: this one.
    static result<std::unique_ptr<handle_source>> open(const posixfs_options& options,
                                                       std::optional<std::uint64_t> unmarked = {});
    /// One that leads nowhere. The root's mount has no descriptor.
    static std::unique_ptr<handle_source> nowhere(const posixfs_options& options);

    /// The handle of the file open at `fd` (O_PATH will do), which `directory` holds as `name` (used by the
    /// path table only), and its mount. errc::crosses_mount if the file is on a mount not reached. Blocks with
    /// crossmnt.
    result<storage::handle> handle_of(int fd, const struct stat& st, const storage::handle& directory,
                                      std::string_view name, const mount_point** mount = nullptr);
    struct opened {
        opened(unique_fd f, const mount_point* m) noexcept : fd(std::move(f)), mount(m) {}
        unique_fd fd; ///< O_PATH
        const mount_point* mount;
    };
    /// Opens with the calling thread's rights, which must be the daemon's. ESTALE or errc::bad_handle.
    result<opened> open_handle(const storage::handle& h);

    /// Of which file system the file open at `fd` (O_PATH will do) is, by attributes: of its mount's, but for what has
    /// numbers of its own within it. May ask another host for what `handle_of` may.
    std::uint64_t fsid_of(int fd, const struct stat& st, const mount_point& mount) const noexcept;

    /// Tells the path table where the file open at `fd` stands now.
    void moved(int fd, const struct stat& st, const storage::handle& directory, std::string_view name);

    /// Closes what it has open of its file systems. The numbers of these descriptors stay taken, so that a call which is
    /// under way meets nobody else's. Until reach() all fails.
    void let_go() noexcept;
    /// Of the roots of all file systems that it has open now: the exported one, and those beneath it.
    std::vector<unique_fd> duplicates();
    /// Both have the same root of the same file system, by handles of one kind.
    bool has_root_of(const handle_source& other) const noexcept;
    /// Reaches its file system again by what `newer` has opened, which is the same directory of it.
    void reach(handle_source& newer) noexcept;

    const storage::handle& root() const noexcept { return root_; }
    const struct stat& root_stat() const noexcept { return root_stat_; }
    const mount_point& root_mount() const noexcept { return *root_mount_; }
    bool uses_paths() const noexcept { return paths_ != nullptr; }
    /// Handles on the root's mount have its key.
    bool is_marked() const noexcept { return is_marked_; }
    /// Why it does though kernel handles were not ruled out; else empty.
    const std::string& why_paths() const noexcept { return why_paths_; }
    /// RESOLVE_* of openat2 for one name beneath the export.
    std::uint64_t resolve_flags() const noexcept { return resolve_; }
    const std::string& root_path() const noexcept { return root_path_; }

private:
    handle_source() = default;
    /// At most one scan begins in this time.
    static constexpr std::chrono::seconds scan_interval{1};

    // With crossmnt these may wait for a disk or, for as long as scan_interval, for another thread's scan.
    const mount_point* by_id(int id);
    const mount_point* by_key(std::uint32_t key);
    template<class Find>
    const mount_point* find_mount(Find find);
    void look_for_mounts();
    /// What to answer of a mount that isn't known: later, while somebody still looks.
    error unknown_mount(const error& otherwise);
    void scan_mounts();
    result<void> try_kernel_handles();
    result<storage::handle> kernel_handle(int fd, const mount_point** mount);

    std::string root_path_;
    std::string why_paths_;
    storage::handle root_;
    struct stat root_stat_{};
    std::uint64_t resolve_ = 0;
    bool crossmnt_ = false;
    bool is_marked_ = false;
    std::unique_ptr<path_table> paths_;
    std::unique_ptr<mount_point> root_mount_;
    std::shared_mutex mutex_;                         // guards what follows
    mount_table mounts_;                              // beneath the root
    bool scanning_ = false;                           // one thread at a time does
    std::chrono::steady_clock::time_point scanned_{}; // when the last scan began
    std::condition_variable_any scan_ended_;
};

/// The inode's number, where the handle has it in a form that is known: ext4, xfs, tmpfs and btrfs do.
std::optional<std::uint64_t> inode_in(const storage::handle& h) noexcept;

} // namespace verbena::posixfs
