// SPDX-License-Identifier: Apache-2.0
// What stands at an export's path (docs/internals/posixfs.md, "When the root goes").
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

namespace verbena::posixfs {

/// What a look at a directory finds.
struct root_look {
    int failed = 0;        ///< an errno value; the rest is then not known
    dev_t dev = 0;         ///< as stat(2) tells it
    ino_t ino = 0;         ///< likewise
    std::int64_t born = 0; ///< in ns since 1970: a number is given away again, which this tells; 0: not known
    std::uint64_t mount = 0; ///< the kernel's id of its mount
    bool is_mount =
        false; ///< it is the root of a mount; without `cached`, not of a directory that is bound onto itself
    bool is_mounted = true; ///< what has to be a mount point is one

    /// The same directory.
    bool is_same_directory(const root_look& other) const noexcept
    {
        return failed == 0 && other.failed == 0 && dev == other.dev && ino == other.ino &&
               (born == 0 || other.born == 0 || born == other.born);
    }
    /// The same directory of the same mount.
    bool is_same(const root_look& other) const noexcept
    {
        return is_same_directory(other) && mount == other.mount;
    }
};

/// Looks at `root`, and whether `mountpoint` is one, unless that is empty. `cached`: EAGAIN in place of a wait for a disk or for
/// another host. Any thread.
root_look look_at_root(const std::string& root, const std::string& mountpoint, bool cached) noexcept;
/// Looks at the directory that is open as `fd`. `cached`: by what the kernel knows of it, without asking another host. Any thread.
root_look look_at_open(int fd, bool cached = false) noexcept;

/// By which number the directory above lists what is at `path`, beneath all that is mounted there; 0 if it does not. Waits for its disk.
std::uint64_t number_listed(const std::string& path);

/// Whether a look failed for want of descriptors or memory, which says nothing about what stands there.
bool says_nothing(const root_look& look) noexcept;

/// True if a mount of this id is in the mount table of this process; false where the table can't be read. Any thread.
bool is_still_mounted(std::uint64_t id);

} // namespace verbena::posixfs
