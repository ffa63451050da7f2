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

namespace verbena::posixfs {

/// Maps (device, inode) to (directory, name). A path is walked from the root again at each open and the
/// file found must be the same; so a file moved behind the server's back is stale, never confused.
/// Thread-safe.
class path_table {
public:
    static constexpr unsigned max_depth = 256;

    /// `root` stays open at its owner. `resolve`: flags of openat2.
    path_table(int root, const struct stat& root_stat, std::size_t capacity, std::uint64_t resolve);

    storage::handle insert(const struct stat& st, const storage::handle& directory, std::string_view name);
    storage::handle root_handle() const { return make(root_key_); }
    /// O_PATH. ESTALE if forgotten, gone or another file now; errc::bad_handle.
    result<unique_fd> open(const storage::handle& h);
    std::size_t size() const;

private:
    struct key {
        std::uint64_t device = 0;
        std::uint64_t inode = 0;
        friend bool operator==(const key&, const key&) = default;
    };
    struct key_hash {
        std::size_t operator()(const key& k) const noexcept
        {
            return std::size_t((k.inode ^ (k.device << 32)) * 0x9e3779b97f4a7c15ull);
        }
    };
    struct node {
        key directory;
        std::string name;
        std::list<key>::iterator use;
    };

    storage::handle make(const key& k) const;
    bool parse(const storage::handle& h, key& k) const;

    const int root_;
    const std::size_t capacity_;
    const std::uint64_t resolve_;
    key root_key_;
    std::uint32_t instance_;
    mutable std::mutex mutex_;
    std::unordered_map<key, node, key_hash> nodes_;
    std::list<key> uses_; // most recent first
};

} // namespace verbena::posixfs
