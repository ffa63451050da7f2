// SPDX-License-Identifier: Apache-2.0
// From the kernel's terms to those of protocols/storage, and the rules for names.
#pragma once

#include "change_numbers.hpp"

#include <verbena/protocols/storage/types.hpp>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <sys/sysmacros.h>

namespace verbena::posixfs {

inline storage::file_type type_of(mode_t mode) noexcept
{
    switch (mode & S_IFMT) {
    case S_IFDIR: return storage::file_type::directory;
    case S_IFBLK: return storage::file_type::block_device;
    case S_IFCHR: return storage::file_type::character_device;
    case S_IFLNK: return storage::file_type::symlink;
    case S_IFSOCK: return storage::file_type::socket;
    case S_IFIFO: return storage::file_type::fifo;
    default: return storage::file_type::regular;
    }
}

inline storage::file_time time_of(const timespec& t) noexcept
{
    return {t.tv_sec, static_cast<std::uint32_t>(t.tv_nsec)};
}

inline storage::attributes attributes_of(const looked& st, std::uint64_t fsid) noexcept
{
    storage::attributes a;
    a.type = type_of(st.st_mode);
    a.mode = st.st_mode & 07777;
    a.links = static_cast<std::uint32_t>(st.st_nlink);
    a.uid = st.st_uid;
    a.gid = st.st_gid;
    a.device_major = major(st.st_rdev);
    a.device_minor = minor(st.st_rdev);
    a.size = static_cast<std::uint64_t>(st.st_size);
    a.used = static_cast<std::uint64_t>(st.st_blocks) * 512;
    a.fsid = fsid;
    a.fileid = st.st_ino;
    a.atime = time_of(st.st_atim);
    a.mtime = time_of(st.st_mtim);
    a.ctime = time_of(st.st_ctim);
    a.change = st.number;
    return a;
}

inline timespec to_timespec(const struct statx_timestamp& t) noexcept
{
    return {static_cast<time_t>(t.tv_sec), static_cast<long>(t.tv_nsec)};
}

/// When the file was made; nothing where its file system does not tell. Any thread, of files that ask no other host.
inline std::optional<storage::file_time> birth_of(const struct statx& x) noexcept
{
    if ((x.stx_mask & STATX_BTIME) == 0)
        return std::nullopt;
    return time_of(to_timespec(x.stx_btime));
}
inline std::optional<storage::file_time> birth_of(int fd) noexcept
{
    struct statx x{};
    if (::statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &x) != 0)
        return std::nullopt;
    return birth_of(x);
}

/// All of STATX_BASIC_STATS.
inline struct stat to_stat(const struct statx& x) noexcept
{
    struct stat st{};
    st.st_dev = makedev(x.stx_dev_major, x.stx_dev_minor);
    st.st_ino = x.stx_ino;
    st.st_mode = x.stx_mode;
    st.st_nlink = x.stx_nlink;
    st.st_uid = x.stx_uid;
    st.st_gid = x.stx_gid;
    st.st_rdev = makedev(x.stx_rdev_major, x.stx_rdev_minor);
    st.st_size = static_cast<off_t>(x.stx_size);
    st.st_blksize = static_cast<blksize_t>(x.stx_blksize);
    st.st_blocks = static_cast<blkcnt_t>(x.stx_blocks);
    st.st_atim = to_timespec(x.stx_atime);
    st.st_mtim = to_timespec(x.stx_mtime);
    st.st_ctim = to_timespec(x.stx_ctime);
    return st;
}

/// A name from a request, checked and ended with NUL.
class checked_name {
public:
    explicit checked_name(std::string_view name) noexcept
    {
        if (name.empty() || name.find('/') != name.npos || name.find('\0') != name.npos) {
            error_ = EINVAL;
        } else if (name.size() > 255) {
            error_ = ENAMETOOLONG;
        } else {
            std::memcpy(text_, name.data(), name.size());
            text_[name.size()] = 0;
        }
    }
    /// 0 or the errno of the broken rule.
    int error() const noexcept { return error_; }
    bool is_dot() const noexcept { return text_[0] == '.' && text_[1] == 0; }
    bool is_dot_dot() const noexcept { return text_[0] == '.' && text_[1] == '.' && text_[2] == 0; }
    const char* text() const noexcept { return text_; }

private:
    char text_[256] = {};
    int error_ = 0;
};

inline error errno_error(const char* call) noexcept { return error::from_errno(errno, call); }
inline bool out_of_descriptors(const error& e) noexcept
{
    return e.errno_value() == EMFILE || e.errno_value() == ENFILE;
}

} // namespace verbena::posixfs
