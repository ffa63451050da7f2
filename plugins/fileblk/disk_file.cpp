// SPDX-License-Identifier: Apache-2.0
#include "disk_file.hpp"

#include <verbena/core/siphash.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <fcntl.h>
#include <limits>
#include <linux/fs.h>
#include <linux/magic.h>
#include <random>
#include <span>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <system_error>
#include <unistd.h>

#ifndef BLKGETDISKSEQ
#define BLKGETDISKSEQ _IOR(0x12, 128, __u64) // Linux 5.15; headers may be older
#endif

namespace verbena::fileblk {

namespace {

constexpr std::uint32_t largest_block = 4096;
constexpr std::uint32_t largest_physical_block = 32768; // a power of two in the 16 bits of the protocol

// Messages about one path.
class teller {
public:
    explicit teller(const std::string& path) : path_(path) {}
    [[noreturn]] void refuse(int failed, const std::string& rule) const
    {
        throw open_failure(failed, path_ + " " + rule);
    }
    /// With what the kernel says of it.
    [[noreturn]] void fail(int failed, const std::string& what, const std::string& cure = {}) const
    {
        throw open_failure(failed, path_ + " " + what + ": " + std::system_category().message(failed) + cure);
    }

private:
    const std::string& path_;
};

std::string bytes(std::uint64_t n) { return std::to_string(n) + " bytes"; }

net::unique_fd reopen(int fd, int flags)
{
    return net::unique_fd(::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), flags | O_CLOEXEC));
}

std::string folder_of(const std::string& path)
{
    const std::size_t slash = path.rfind('/');
    return slash == path.npos ? "." : path.substr(0, slash + 1);
}

// The folder of a path has the file's name, which a loss of power may take otherwise.
int sync_folder_of(const std::string& path)
{
    const net::unique_fd fd(::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return fd && ::fsync(fd.get()) == 0 ? 0 : errno;
}

bool is_at(int fd, const std::string& path)
{
    struct stat ours{};
    struct stat there{};
    return ::fstat(fd, &ours) == 0 && ::lstat(path.c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
           ours.st_ino == there.st_ino;
}

// Files that somebody makes there lie in memory, and are a mistyped disk's. /dev is a file system of its own, and so is /dev/shm.
bool is_among_devices(const std::string& path)
{
    struct stat root{};
    struct stat devices{};
    struct stat parent{};
    const net::unique_fd folder(::open(folder_of(path).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    return folder && ::fstat(folder.get(), &parent) == 0 && ::stat("/dev", &devices) == 0 &&
           ::stat("/", &root) == 0 && parent.st_dev == devices.st_dev && devices.st_dev != root.st_dev;
}

// It is empty, and not locked.
net::unique_fd create(const fileblk_options& o, const teller& tell)
{
    if (o.read_only)
        tell.refuse(ENOENT, "does not exist, and a device that is ro creates no file: leave out ro once");
    net::unique_fd fd(::open(o.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd && errno == EEXIST)
        tell.refuse(EEXIST, "is a symbolic link that leads to nothing, or has just been made by somebody "
                            "else: look at it, and start again");
    if (!fd)
        tell.fail(errno, "can't be created", "; make its folder, and let this process's user write there");
    return fd;
}

void give_size(int fd, const fileblk_options& o, const teller& tell)
{
    int failed = ::ftruncate(fd, static_cast<off_t>(o.size)) == 0 && ::fsync(fd) == 0 ? 0 : errno;
    if (failed == 0)
        failed = sync_folder_of(o.path);
    if (failed != 0)
        tell.fail(failed, "can't be created with " + bytes(o.size));
}

// A file that was made for a device which then can't be served is nobody's, and would be in the way of one of another size. While `keeper`
// has its lock nobody else has written to it; without that, or in its place, may be what another process serves.
class made_file {
public:
    made_file(const std::string& path, const net::unique_fd& keeper) : path_(path), keeper_(keeper) {}
    made_file(const made_file&) = delete;
    ~made_file()
    {
        if (is_ours_ && is_at(keeper_.get(), path_))
            ::unlink(path_.c_str());
    }
    void made_and_locked() noexcept { is_ours_ = true; }
    void keep() noexcept { is_ours_ = false; }

private:
    const std::string& path_;
    const net::unique_fd& keeper_;
    bool is_ours_ = false;
};

void check_kind(const struct stat& st, const teller& tell)
{
    if (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode))
        return;
    const char* kind = "no file";
    if (S_ISDIR(st.st_mode))
        tell.refuse(EISDIR, "is a folder: name a file in it, and its size if it is to be created, as in "
                            "disk.img,size=10G");
    if (S_ISCHR(st.st_mode))
        kind = "a character device";
    else if (S_ISFIFO(st.st_mode))
        kind = "a FIFO";
    else if (S_ISSOCK(st.st_mode))
        kind = "a socket";
    tell.refuse(EINVAL, std::string("is ") + kind + ": name a regular file or a block device");
}

net::unique_fd open_keeper(int path_fd, bool is_block_device, const fileblk_options& o, const teller& tell)
{
    const int mode = o.read_only ? O_RDONLY : O_RDWR;
    net::unique_fd fd = reopen(path_fd, mode | (is_block_device ? O_EXCL : 0));
    if (fd)
        return fd;
    const int failed = errno;
    if (failed == EBUSY && is_block_device)
        tell.refuse(EBUSY,
                    "is in use: it is mounted, is swap, belongs to a RAID or a volume group, or another "
                    "daemon serves it; end that first");
    if (failed == EPERM && is_block_device)
        tell.fail(failed, "can't be opened",
                  "; let the container or the unit that this process runs in have the device (DeviceAllow=)");
    if (failed == EROFS || failed == EACCES || failed == EPERM)
        tell.fail(failed, "can't be opened",
                  o.read_only ? "; let this process's user read it"
                              : "; let this process's user write to it, or serve it with ro");
    tell.fail(failed, "can't be opened");
}

// Whoever has the other kind of lock, or a write lock, is named if the kernel tells: it does so of locks of a process, not of those of
// open file descriptions, which have no process.
void lock(int fd, bool read_only, const teller& tell)
{
    struct flock wanted{};
    wanted.l_type = read_only ? F_RDLCK : F_WRLCK;
    wanted.l_whence = SEEK_SET;
    if (::fcntl(fd, F_OFD_SETLK, &wanted) == 0)
        return;
    const int failed = errno;
    if (failed != EAGAIN && failed != EACCES)
        tell.fail(failed, "can't be locked", "; serve it from a file system that has locks");
    struct flock held = wanted;
    held.l_pid = 0;
    std::string who = "somebody else";
    if (::fcntl(fd, F_OFD_GETLK, &held) == 0 && held.l_type != F_UNLCK && held.l_pid > 0)
        who = "process " + std::to_string(held.l_pid);
    tell.refuse(EBUSY, "is locked by " + who + (read_only ? ", who may write to it" : "") +
                           ": another device, another verbenad or a virtual machine has it; a file has one "
                           "writer, and while it has one no readers");
}

bool is_in_memory(int fd)
{
    struct statfs on{};
    return ::fstatfs(fd, &on) == 0 && (on.f_type == TMPFS_MAGIC || on.f_type == RAMFS_MAGIC);
}

struct alignment {
    std::uint32_t memory = 0;
    std::uint32_t offset = 0; ///< 0: no O_DIRECT
};

alignment alignment_of(int direct_fd)
{
#ifdef STATX_DIOALIGN
    struct statx told{};
    if (::statx(direct_fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &told) == 0 &&
        (told.stx_mask & STATX_DIOALIGN) != 0)
        return {told.stx_dio_mem_align, told.stx_dio_offset_align};
#endif
    alignas(largest_block) static std::byte memory[largest_block];
    for (std::uint32_t size = 512; size <= largest_block; size *= 2) {
        if (::pread(direct_fd, memory, size, size) >= 0)
            return {size, size};
    }
    return {};
}

void choose_way(disk_file& f, const fileblk_options& o, const teller& tell)
{
    const int mode = o.read_only ? O_RDONLY : O_RDWR;
    if (o.direct != direct_mode::off && !f.in_memory) {
        f.io = reopen(f.keeper.get(), mode | O_DIRECT);
        const alignment needed = f.io ? alignment_of(f.io.get()) : alignment();
        if (needed.offset != 0 && o.block_size % needed.offset == 0) {
            f.direct = true;
            f.memory_align = std::max(needed.memory, 1u);
            f.offset_align = needed.offset;
            return;
        }
        if (needed.offset != 0)
            f.buffered_because =
                "O_DIRECT needs block_size=" + std::to_string(std::bit_ceil(needed.offset)) + " here";
        else
            f.buffered_because = "no O_DIRECT here";
    }
    if (o.direct == direct_mode::on)
        tell.refuse(EINVAL, "can't be served with direct=on: " +
                                (f.in_memory ? "it lies in memory" : f.buffered_because) +
                                "; write that, or direct=auto");
    f.io = reopen(f.keeper.get(), mode);
    if (!f.io)
        tell.fail(errno, "can't be opened again");
}

std::uint64_t queue_limit(dev_t device, const char* name)
{
    const std::string base =
        "/sys/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device));
    for (const char* folder : {"/queue/", "/../queue/"}) { // of a partition: its disk's
        if (FILE* in = std::fopen((base + folder + name).c_str(), "re"); in != nullptr) {
            unsigned long long value = 0;
            const bool read = std::fscanf(in, "%llu", &value) == 1;
            std::fclose(in);
            if (read)
                return value;
        }
    }
    return 0;
}

std::uint32_t discards_of(const disk_file& f, const struct stat& st)
{
    constexpr std::uint64_t most = std::uint32_t(1) << 31;
    if (f.is_block_device) {
        if (queue_limit(st.st_rdev, "discard_max_bytes") == 0)
            return 0;
        const std::uint64_t told = queue_limit(st.st_rdev, "discard_granularity");
        return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(told, f.sector_size, most));
    }
    // Behind the end there is nothing to lose.
    const off_t behind = (st.st_size / largest_block + 1) * largest_block;
    const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    return ::fallocate(f.keeper.get(), mode, behind, largest_block) == 0 ? f.physical_block : 0;
}

std::uint64_t measure(disk_file& f, const struct stat& st, const fileblk_options& o, const teller& tell)
{
    if (!f.is_block_device) {
        f.physical_block = std::clamp(static_cast<std::uint32_t>(st.st_blksize), o.block_size, largest_block);
        return static_cast<std::uint64_t>(st.st_size);
    }
    std::uint64_t size = 0;
    int sector = 0;
    unsigned physical = 0;
    const int fd = f.keeper.get();
    if (::ioctl(fd, BLKGETSIZE64, &size) != 0 || ::ioctl(fd, BLKSSZGET, &sector) != 0 ||
        ::ioctl(fd, BLKPBSZGET, &physical) != 0)
        tell.fail(errno, "does not tell its size");
    f.sector_size = static_cast<std::uint32_t>(sector);
    f.physical_block = std::clamp(physical, o.block_size, largest_physical_block);
    return size;
}

// Empty if the kernel does not tell.
std::string boot_id()
{
    std::string id(64, '\0');
    const net::unique_fd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    const ssize_t n = fd ? ::read(fd.get(), id.data(), id.size()) : -1;
    id.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    return id;
}

std::uint64_t draw_run()
{
    std::random_device random;
    return std::max<std::uint64_t>(std::uint64_t(random()) << 32 | random(), 1);
}

constexpr const char* loss_name = "user.verbena.lost";

} // namespace

int mark_loss(int fd) noexcept
try {
    const std::string drawn = std::to_string(draw_run());
    return ::fsetxattr(fd, loss_name, drawn.data(), drawn.size(), 0) == 0 ? 0 : errno;
} catch (...) { // no memory, or nothing to draw from
    return ENOMEM;
}

result<std::uint64_t> bytes_of(int fd, bool is_block_device) noexcept
{
    struct stat st{};
    std::uint64_t size = 0;
    if ((is_block_device ? ::ioctl(fd, BLKGETSIZE64, &size) : ::fstat(fd, &st)) != 0)
        return error::from_errno(errno, "the size of a device");
    return is_block_device ? size : static_cast<std::uint64_t>(st.st_size);
}

std::uint64_t run_of(int fd, bool is_block_device, std::string_view boot_id)
{
    // Of the bytes that follow, none is secret.
    constexpr siphash_key key{std::byte('r'), std::byte('u'), std::byte('n')};
    struct statx told{};
    if (boot_id.empty() || ::statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &told) != 0)
        return 0;
    std::uint64_t disk = 0;
    if (is_block_device && ::ioctl(fd, BLKGETDISKSEQ, &disk) != 0)
        return 0; // another disk may have come under this number
    std::string all(boot_id);
    const auto add = [&all](std::uint64_t n) { all += ' ' + std::to_string(n); };
    if (is_block_device) {
        add(told.stx_rdev_major);
        add(told.stx_rdev_minor);
        add(disk);
    } else {
        add(told.stx_dev_major);
        add(told.stx_dev_minor);
        add(told.stx_ino);
        // The number of a file that was removed may be used again at once.
        if ((told.stx_mask & STATX_BTIME) != 0) {
            add(static_cast<std::uint64_t>(told.stx_btime.tv_sec));
            add(told.stx_btime.tv_nsec);
        }
        char lost[24];
        if (const ssize_t n = ::fgetxattr(fd, loss_name, lost, sizeof lost); n > 0)
            all.append(1, ' ').append(lost, static_cast<std::size_t>(n));
    }
    return std::max<std::uint64_t>(siphash(key, std::as_bytes(std::span(all))), 1);
}

disk_file open_disk_file(const fileblk_options& o, const std::function<void()>& before_lock)
{
    const teller tell(o.path);
    if (!std::has_single_bit(o.block_size) || o.block_size < 512 || o.block_size > largest_block)
        tell.refuse(EINVAL,
                    "has no blocks of " + bytes(o.block_size) + ": write block_size=512, 1024, 2048 or 4096");
    if (o.size % o.block_size != 0 ||
        o.size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        tell.refuse(EINVAL,
                    "can't have " + bytes(o.size) + ": a size is whole blocks of " + bytes(o.block_size));
    disk_file f;
    made_file made(o.path, f.keeper); // ends before the lock does
    struct stat st{};
    net::unique_fd path(::open(o.path.c_str(), O_PATH | O_CLOEXEC));
    if (!path && errno == ENOENT && is_among_devices(o.path))
        tell.refuse(ENOENT,
                    "does not exist, and no file is made there: correct its name; lsblk -p lists disks");
    if (!path && errno == ENOENT && o.size != 0) {
        f.keeper = create(o, tell);
        f.created = true;
        if (before_lock)
            before_lock();
        lock(f.keeper.get(), false, tell);
        made.made_and_locked();
        give_size(f.keeper.get(), o, tell);
    } else {
        if (!path && errno == ENOENT)
            tell.refuse(ENOENT,
                        "does not exist: correct its name, or say how large it is to be created, as in "
                        "size=10G");
        if (!path && errno == EACCES)
            tell.fail(EACCES, "can't be opened",
                      "; let this process's user go through the folders on its way");
        if (!path || ::fstat(path.get(), &st) != 0)
            tell.fail(errno, "can't be opened");
        check_kind(st, tell);
        f.is_block_device = S_ISBLK(st.st_mode);
        f.keeper = open_keeper(path.get(), f.is_block_device, o, tell);
        if (before_lock)
            before_lock();
        if (!f.is_block_device) {
            lock(f.keeper.get(), o.read_only, tell);
            // Whoever created it may have had its lock, and have removed it.
            struct stat named{};
            if (::stat(o.path.c_str(), &named) != 0 || named.st_dev != st.st_dev || named.st_ino != st.st_ino)
                tell.refuse(ESTALE, "has just been removed or replaced by somebody else: start again");
        }
    }
    if (::fstat(f.keeper.get(), &st) != 0) // its size, now that nobody else changes it
        tell.fail(errno, "does not tell its size");
    const std::uint64_t there = measure(f, st, o, tell);
    if (o.size != 0 && o.size != there)
        tell.refuse(EINVAL, "has " + bytes(there) + ", not the " + bytes(o.size) +
                                " of size=: leave size= out, or make it as large yourself");
    f.unserved = there % o.block_size;
    f.size = there - f.unserved;
    if (f.size == 0)
        tell.refuse(EINVAL,
                    "holds no whole block (" + bytes(there) + "): " +
                        (f.is_block_device
                             ? "is its disk or its file attached (lsblk)?"
                             : "make it larger, as by truncate -s 10G, or remove it and write size=10G"));
    f.in_memory = !f.is_block_device && is_in_memory(f.keeper.get());
    choose_way(f, o, tell);
    f.physical_block = std::max(f.physical_block, f.offset_align);
    f.discard_granularity = o.read_only ? 0 : discards_of(f, st);
    f.run = run_of(f.keeper.get(), f.is_block_device, boot_id());
    // Clients believe a device without a cache that tells no run, and memory goes with the host.
    if (f.in_memory && f.run == 0)
        f.run = draw_run();
    made.keep();
    return f;
}

} // namespace verbena::fileblk
