// SPDX-License-Identifier: Apache-2.0
// Listings: an open directory that remembers where the last READDIR ended, so that reading a large
// directory in many calls costs no more than reading it in one.
#pragma once

#include "unique_fd.hpp"

#include <verbena/core/result.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <vector>

namespace verbena::posixfs {

struct listed_entry;

/// Cookies are the file system's own d_off: stable on ext4, xfs and btrfs for as long as the entry lives.
class directory_stream {
public:
    static constexpr std::size_t buffer_size = std::size_t(64) << 10;

    /// `fd` is readable; with a cookie other than 0 it is positioned after that entry. Blocks.
    directory_stream(const storage::handle& h, const storage::credential& who, unique_fd fd,
                     const struct stat& st, std::uint64_t cookie);

    struct raw_entry {
        std::uint64_t inode = 0;
        std::uint64_t cookie = 0;
        std::string_view name; ///< followed by NUL; good until the buffer is filled again
    };
    /// The entry at the position, which stays there until skip(); nullopt when the buffer is used up.
    std::optional<raw_entry> peek() const noexcept;
    void skip(const raw_entry& e) noexcept;
    /// Reads on when the buffer is used up; false at the end of the directory. Blocks.
    result<bool> fill();
    /// True if this stream goes on where (h, who, cookie) wants to, and the directory hasn't changed since.
    bool continues(const storage::handle& h, const storage::credential& who,
                   std::uint64_t cookie) const noexcept
    {
        return cookie == cookie_ && handle_ == h && who_ == who;
    }
    bool unchanged(const struct stat& st) const noexcept;
    /// The next entries of the buffer, at most `count`, without moving on.
    void look_ahead(std::size_t count, std::vector<listed_entry>& out) const;

private:
    raw_entry entry_at(std::size_t position) const noexcept;

    storage::handle handle_;
    storage::credential who_;
    unique_fd fd_;
    struct stat stat_;
    std::uint64_t cookie_; ///< of the last entry skipped
    std::unique_ptr<std::byte[]> buffer_;
    std::size_t position_ = 0;
    std::size_t length_ = 0;
};

/// An entry with what READDIRPLUS wants to know.
struct listed_entry {
    directory_stream::raw_entry raw;
    std::optional<storage::attributes> attrs;
    std::optional<storage::handle> handle;
    bool gone = false; ///< since the kernel listed it
};

/// Whether a name that the kernel has listed is there. `look` looks at what it leads to, and gives 0 or an errno
/// value. That is ESTALE where the file was removed meanwhile. But network file systems have broken entries, of which
/// it lasts: so this looks again.
template<class Look>
bool is_there(Look&& look)
{
    int failed = look();
    if (failed == ESTALE)
        failed = look();
    return failed != ENOENT;
}

/// One shard's listings that may go on.
class stream_cache {
public:
    static constexpr std::size_t max_streams = 16;

    /// Takes the stream out; nullptr if there is none.
    std::unique_ptr<directory_stream> take(const storage::handle& h, const storage::credential& who,
                                           std::uint64_t cookie);
    void keep(std::unique_ptr<directory_stream> s);

private:
    std::vector<std::unique_ptr<directory_stream>> streams_; // longest unused first
};

} // namespace verbena::posixfs
