// SPDX-License-Identifier: Apache-2.0
// Handles for file systems or users without kernel handles: a bounded table of where each file was seen.
#pragma once

#include "unique_fd.hpp"

#include <verbena/core/result.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unordered_map>
#include <vector>

namespace verbena::posixfs {

/// Maps a file to the directories and names where it was seen. A path is walked from the root again at each open
/// and the file found must be the same; so a file moved behind the server's back is stale, never confused.
///
/// A file is known by device, inode and generation: file systems give an inode's number away again. The generation is
/// a hash of the kernel's handle, which may be asked for without the right to open it; where there is none, of the
/// time of birth; on overlayfs without handles (nfs_export), and where there are no times of birth either, of nothing.
/// Thread-safe.
class path_table {
public:
    static constexpr unsigned max_depth = 256;
    /// Names remembered of a file with several, those seen last.
    static constexpr std::size_t max_names = 4;

    /// `root` stays open at its owner. `resolve`: flags of openat2.
    path_table(int root, const struct stat& root_stat, std::size_t capacity, std::uint64_t resolve);

    /// The handle of the file open at `fd` (O_PATH will do), which `directory` holds as `name`. Of "." and ".."
    /// nothing is remembered.
    storage::handle insert(int fd, const struct stat& st, const storage::handle& directory,
                           std::string_view name);
    storage::handle root_handle() const { return make(root_key_); }
    bool has_root_of(const path_table& other) const noexcept { return root_key_ == other.root_key_; }
    /// O_PATH. ESTALE if forgotten, gone or another file now; errc::bad_handle.
    result<unique_fd> open(const storage::handle& h);
    std::size_t size() const;

private:
    struct key {
        std::uint64_t inode = 0;
        std::uint32_t device = 0; ///< as the kernel packs it: 12 bits of major, 20 of minor
        std::uint32_t generation = 0;
        friend bool operator==(const key&, const key&) = default;
    };
    struct key_hash {
        std::size_t operator()(const key& k) const noexcept
        {
            const std::uint64_t rest = std::uint64_t(k.device) << 32 | k.generation;
            return std::size_t((k.inode ^ rest) * 0x9e3779b97f4a7c15ull);
        }
    };
    struct place {
        key directory;
        std::string name;
        friend bool operator==(const place&, const place&) = default;
    };
    struct node {
        place last;                ///< where it was seen last
        std::vector<place> others; ///< further names of a file with several links, the latest last
        std::list<key>::iterator use;
    };

    /// What a file of a file system keeps for life.
    struct constants {
        bool handle = true;
        bool birth = true;
    };

    key key_of(int fd, const struct stat& st) const noexcept;
    static std::uint32_t generation_of(int fd, constants kept) noexcept;
    static constants kept_by_filesystem(int fd) noexcept;
    storage::handle make(const key& k) const;
    bool parse(const storage::handle& h, key& k) const;
    static void see(node& n, const struct stat& st, place&& at);
    /// Empty if a directory above is forgotten. With the lock.
    std::string path_of(const place& at);

    const int root_;
    const std::size_t capacity_;
    const std::uint64_t resolve_;
    std::uint64_t root_device_;
    constants kept_by_root_;
    key root_key_;
    std::uint32_t instance_;
    mutable std::mutex mutex_;
    std::unordered_map<key, node, key_hash> nodes_;
    std::list<key> uses_; // most recent first
};

} // namespace verbena::posixfs
