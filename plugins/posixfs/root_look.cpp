// SPDX-License-Identifier: Apache-2.0
#include "root_look.hpp"

#include "unique_fd.hpp"

#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <linux/openat2.h>
#include <sstream>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

namespace verbena::posixfs {

namespace {

unique_fd open_directory_at(const std::string& path, bool cached) noexcept
{
    open_how how{};
    how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    how.resolve = cached ? RESOLVE_CACHED : 0;
    unique_fd fd(static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof(how))));
    if (!fd && cached &&
        errno == EINVAL) // before Linux 5.12 there is no such flag: a thorough look is to tell
        errno = EAGAIN;
    return fd;
}

// Older kernels don't say what is the root of a mount. There another file system than above is one.
bool differs_from_above(int fd, const struct statx& own) noexcept
{
    const unique_fd above(::openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
    struct stat st{};
    return above && ::fstat(above.get(), &st) == 0 &&
           st.st_dev != makedev(own.stx_dev_major, own.stx_dev_minor);
}

// systemd's ReadWritePaths= binds a folder onto itself: what is seen there is what lay beneath, and nobody has mounted a disk.
// Such a folder is listed above by its own number, and what something else is mounted on by that of what lies beneath.
bool is_bound_onto_itself(const std::string& path, int fd, const root_look& look)
{
    const unique_fd above(::openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
    struct stat st{};
    return above && ::fstat(above.get(), &st) == 0 && st.st_dev == look.dev &&
           number_listed(path) == look.ino;
}

// The root of a file system that somebody has mounted there.
bool is_mounted_at(const std::string& path, int fd, const root_look& look, bool cached) noexcept
{
    try {
        return look.failed == 0 && look.is_mount && (cached || !is_bound_onto_itself(path, fd, look));
    } catch (const std::bad_alloc&) {
        return false; // the next look
    }
}

bool is_of_this_process(int failed) noexcept
{
    return failed == EMFILE || failed == ENFILE || failed == ENOMEM;
}

} // namespace

root_look look_at_open(int fd, bool cached) noexcept
{
    root_look out;
    struct statx st{};
    const int flags = AT_EMPTY_PATH | (cached ? AT_STATX_DONT_SYNC : AT_STATX_SYNC_AS_STAT);
    if (::statx(fd, "", flags, STATX_TYPE | STATX_INO | STATX_BTIME | STATX_MNT_ID, &st) != 0) {
        out.failed = errno;
        return out;
    }
    out.dev = makedev(st.stx_dev_major, st.stx_dev_minor);
    out.ino = st.stx_ino;
    if ((st.stx_mask & STATX_BTIME) != 0)
        out.born = st.stx_btime.tv_sec * 1'000'000'000 + st.stx_btime.tv_nsec;
    out.mount = st.stx_mnt_id;
    out.is_mount = (st.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0
                       ? (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0
                       : differs_from_above(fd, st);
    return out;
}

root_look look_at_root(const std::string& root, const std::string& mountpoint, bool cached) noexcept
{
    root_look out;
    const unique_fd fd = open_directory_at(root, cached);
    if (fd)
        out = look_at_open(fd.get(), cached);
    else
        out.failed = errno;
    out.is_mount = fd && is_mounted_at(root, fd.get(), out, cached);
    if (mountpoint.empty())
        return out;
    if (mountpoint == root) {
        out.is_mounted = out.is_mount;
        return out;
    }
    const unique_fd point = open_directory_at(mountpoint, cached);
    if (!point && (errno == EAGAIN || is_of_this_process(errno)))
        out.failed = errno;
    out.is_mounted =
        point && is_mounted_at(mountpoint, point.get(), look_at_open(point.get(), cached), cached);
    return out;
}

bool says_nothing(const root_look& look) noexcept { return is_of_this_process(look.failed); }

bool is_still_mounted(std::uint64_t id)
{
    std::ifstream in("/proc/self/mountinfo");
    if (!in)
        return false;
    std::string line;
    while (std::getline(in, line)) {
        std::istringstream fields(line);
        std::uint64_t found = 0;
        if (fields >> found && found == id)
            return true;
    }
    return false;
}

} // namespace verbena::posixfs
