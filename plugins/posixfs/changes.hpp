// SPDX-License-Identifier: Apache-2.0
// What changes of directories have in common.
#pragma once

#include "backend.hpp"

namespace verbena::posixfs {

// The kernel's own EXDEV or the like is for the caller; what was removed meanwhile is stale.
inline result<void> live_directory(int fd, struct stat& st) noexcept
{
    if (file_status(fd, st) != 0)
        return errno_error("fstat");
    if (st.st_nlink == 0)
        return error::from_errno(ESTALE, "the directory was removed");
    return {};
}

/// Cutting more than this off a file takes so long, even in memory, that it isn't done on a shard.
constexpr std::uint64_t large_cut = std::uint64_t(16) << 20;

inline bool cuts_much(const struct stat& st, const storage::set_attributes& set) noexcept
{
    return set.size && S_ISREG(st.st_mode) && std::uint64_t(st.st_size) > *set.size &&
           std::uint64_t(st.st_size) - *set.size > large_cut;
}

/// A name about to be made, in its directory's turn.
struct backend::naming {
    naming(change_order& order, const struct stat& st, int fd, const char* text, observed_change& c)
        : directory(fd), name(text), turn(order, st), change(c)
    {
        turn.begin(directory, change);
    }
    /// To be called right after the name was made.
    void made() { turn.end(directory, change); }
    /// Takes away what was made: `file`, or whatever has the name where that is -1. What somebody local has put there
    /// meanwhile stays.
    void undo(int file, int flags = 0) const noexcept
    {
        struct stat made{};
        struct stat there{};
        const bool other = file >= 0 && file_status(file, made) == 0 &&
                           ::fstatat(directory, name, &there, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0 &&
                           (made.st_ino != there.st_ino || made.st_dev != there.st_dev);
        if (!other)
            ::unlinkat(directory, name, flags);
        change.numbers->changed(change.file);
    }

    int directory;
    const char* name;
    change_order::turn turn;
    observed_change& change;
};

/// What a job made.
struct backend::made {
    made() = default;
    made(made&&) = default;
    made& operator=(made&&) = default;
    unique_fd path;  ///< O_PATH, or another of `write`
    unique_fd write; ///< open for the caller, or none
    looked st{};
    bool new_name = true;        ///< the directory changed
    bool own_attributes = false; ///< the file was changed apart from being made
    bool existed = false;        ///< it stood there
    bool resize = false;         ///< likewise, and is to get the size asked for
};

/// A file that lost a name.
struct backend::victim {
    victim() = default;
    victim(victim&&) = default;
    victim& operator=(victim&&) = default;
    unique_fd fd;
    file_ref known; ///< instead of `fd`, if it was identified on a shard by what is cached there
    int descriptor() const noexcept { return known ? known->path.get() : fd.get(); }

    storage::handle handle;
    const mount_point* mount = nullptr;
    numbered_file file;
    off_t size = 0;    ///< see size_to_free()
    bool gone = false; ///< no longer there for anybody
};

struct backend::change_job {
    change_job() = default;
    change_job(change_job&&) = default;
    change_job& operator=(change_job&&) = default;
    observed_change from;
    observed_change to;
    looked file{}; ///< that got another name
    backend::victim victim;
};

} // namespace verbena::posixfs
