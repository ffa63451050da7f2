// SPDX-License-Identifier: Apache-2.0
#include "change_order.hpp"

#include <algorithm>
#include <linux/magic.h>
#include <memory>

namespace verbena::posixfs {

namespace {

bool same(const timespec& a, const timespec& b) noexcept
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool earlier(const timespec& a, const timespec& b) noexcept
{
    return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

} // namespace

change_order::stripe* change_order::make_stripes()
{
    auto made = std::make_unique<stripe[]>(stripes);
    stripe* first = nullptr;
    if (stripes_.compare_exchange_strong(first, made.get(), std::memory_order_acq_rel))
        return made.release();
    return first; // of another thread, which came before
}

change_order::turn::turn(change_order& order, const struct stat& inode)
    : order_(order), first_(order.at(inode).mutex)
{
}

change_order::turn::turn(change_order& order, const struct stat& one, const struct stat& other)
    : order_(order)
{
    // By position, so that two turns never wait for each other.
    const auto [low, high] = std::minmax({index_of(one), index_of(other)});
    first_ = std::unique_lock(order.at(low).mutex);
    if (low != high)
        second_ = std::unique_lock(order.at(high).mutex);
}

void change_order::turn::begin(int fd, observed_change& change)
{
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME_COARSE, &now); // seconds matter
    change.seen = change.numbers->look(change.file, fd, change.before) == 0;
    change.alone = change.seen && order_.is_alone(change.before, now);
}

void change_order::turn::end(int fd, observed_change& change)
{
    change.seen = change.look_after(fd) && change.seen;
    if (change.seen)
        order_.remember(change.after);
}

void change_order::adopt(const struct stat& inode)
{
    stripe& s = at(inode);
    std::lock_guard lock(s.mutex);
    // Others may have changed it through us since; and a number may have been another file's before.
    record& known = find_or_add(s, inode);
    if (earlier(known.ctime, inode.st_ctim))
        known.ctime = inode.st_ctim;
}

bool change_order::is_alone(const struct stat& before, const timespec& now)
{
    record& known = find_or_add(at(before), before);
    if (!same(known.ctime, before.st_ctim)) {
        known.ctime = before.st_ctim;
        known.foreign = before.st_ctim;
    }
    // A time still to come says nothing.
    return known.foreign.tv_sec + quiet_seconds < now.tv_sec;
}

void change_order::remember(const struct stat& after) { find_or_add(at(after), after).ctime = after.st_ctim; }

std::size_t change_order::index_of(const struct stat& inode) noexcept
{
    const std::uint64_t mixed =
        (std::uint64_t(inode.st_ino) ^ (std::uint64_t(inode.st_dev) << 32)) * 0x9e3779b97f4a7c15ull;
    return static_cast<std::size_t>(mixed >> 56) % stripes;
}

change_order::record* change_order::find(stripe& s, const struct stat& inode) noexcept
{
    for (record& r : s.records) {
        if (r.inode == inode.st_ino && r.device == inode.st_dev)
            return &r;
    }
    return nullptr;
}

change_order::record& change_order::find_or_add(stripe& s, const struct stat& inode) noexcept
{
    if (record* known = find(s, inode))
        return *known;
    record& r = s.records[s.oldest];
    s.oldest = (s.oldest + 1) % remembered;
    r = record();
    r.device = inode.st_dev;
    r.inode = inode.st_ino;
    return r;
}

bool changed_by_other_hosts(long type) noexcept
{
    // Not in linux/magic.h.
    constexpr unsigned long gfs2 = 0x01161970;
    constexpr unsigned long lustre = 0x0bd00bd0;
    constexpr unsigned long vboxsf = 0x786f4256;
    constexpr unsigned long types[] = {
        NFS_SUPER_MAGIC,  SMB_SUPER_MAGIC, CIFS_SUPER_MAGIC, SMB2_SUPER_MAGIC, FUSE_SUPER_MAGIC,  V9FS_MAGIC,
        CEPH_SUPER_MAGIC, AFS_SUPER_MAGIC, AFS_FS_MAGIC,     CODA_SUPER_MAGIC, OCFS2_SUPER_MAGIC, gfs2,
        lustre,           vboxsf};
    // CIFS's number has its highest bit set, and f_type is signed on some machines.
    return std::ranges::find(types, static_cast<std::uint32_t>(type)) != std::end(types);
}

} // namespace verbena::posixfs
