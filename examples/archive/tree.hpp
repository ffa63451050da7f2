// SPDX-License-Identifier: Apache-2.0
// All that an archive holds, in memory, as a tree of files.
#pragma once

#include <verbena/protocols/storage/types.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace archive_example {

// What an archive may make us keep. Whoever made it may be hostile: a few kilobytes can unpack to terabytes.
struct limits {
    std::uint64_t bytes = 0; // of files and symbolic links, and of entries that are left out
    std::uint64_t entries =
        0; // files, links and folders, also those that are only named on the way to others
};
inline constexpr std::size_t max_depth = 64;
inline constexpr std::size_t max_name = 255;
inline constexpr std::size_t max_target = 4096; // of a symbolic link

struct node {
    verbena::storage::attributes attrs; // links is 0 for a file that a later entry of its name replaced
    std::uint32_t parent = 0;           // of a folder
    std::string data;                   // of a file; of a symbolic link its target
};

struct name {
    std::uint32_t folder = 0;
    std::string text;
    std::uint32_t node = 0;
};

// Never changes once it is read, so that all shards use it without a lock.
struct tree {
    std::vector<node> nodes; // in the archive's order; 0 is the root
    std::vector<name> names; // sorted by folder and text
    // Of the archive itself: another size or time, another generation of handles.
    std::uint64_t archive_size = 0;
    verbena::storage::file_time archive_mtime;

    std::uint64_t bytes = 0;
    // Entries that were left out, and why.
    struct {
        std::uint64_t bad_name = 0;  // absolute, with "..", too long or too deep
        std::uint64_t conflict = 0;  // a folder in a file's place, or a file in a folder's, or below a file
        std::uint64_t lost_link = 0; // a hard link to nothing that stands before it
        std::uint64_t special = 0;   // devices, sockets and pipes
        std::uint64_t replaced = 0;  // a later entry has the name, as when tar unpacks
    } left_out;
};

// Reads tar, cpio and zip, plain or compressed. Throws std::runtime_error, which says what is wrong and the cure.
tree read_tree(const std::string& file, const limits& most);

} // namespace archive_example
