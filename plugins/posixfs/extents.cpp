// SPDX-License-Identifier: Apache-2.0
// Holes, room, and bytes that go from one file to another: all on the pool, as each may wait for a disk.
#include "backend.hpp"

#include <algorithm>
#include <fcntl.h>
#include <limits>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace verbena::posixfs {

namespace {

// What one job copies: a pool thread is held for some 40 ms where a disk writes 100 MB/s.
constexpr std::uint64_t most_copied_at_once = std::uint64_t(4) << 20;
// What one job takes room for or gives back. A file system may have a page to zero, or an extent to free, for each 4 KiB of it.
constexpr std::uint64_t most_changed_at_once = std::uint64_t(256) << 20;

// Several calls of the kernel would use up what there is before one of them fails, and a single one fails at once.
result<void> may_have_room(int fd, std::uint64_t length)
{
    struct statvfs fs{};
    struct stat st{};
    if (::fstatvfs(fd, &fs) != 0 || ::fstat(fd, &st) != 0)
        return errno_error("look for room");
    // Some of the range may have its room already.
    const std::uint64_t most = std::uint64_t(fs.f_bfree) * fs.f_frsize + std::uint64_t(st.st_blocks) * 512;
    return length <= most ? result<void>() : error::from_errno(ENOSPC, "fallocate");
}

} // namespace

task<result<backend::in_use>> backend::open_data(shard& s, const storage::request& r,
                                                 const storage::handle& h, use what, bool by_open)
{
    auto opened_file = co_await open_file(s, h);
    if (!opened_file)
        co_return opened_file.error();
    file_ref f = std::move(*opened_file);
    const bool writes = what == use::write;
    auto user = f->find(r.who);
    if (!user || !(writes ? user->write : user->read)) {
        auto opened = co_await open_for(s, r, f, what, by_open);
        if (!opened)
            co_return opened.error();
        user = std::move(*opened);
    }
    const auto open = writes ? user->write : user->read;
    if (writes)
        s.files.writes(*f);
    struct stat st{};
    if (auto live = co_await stat_live(s, *f, open->get(), st); !live)
        co_return live.error();
    permission_stamp& stamp = writes ? user->write_stamp : user->read_stamp;
    const permission_stamp now(st, f->acl_changes);
    if (!by_open && !(stamp == now)) {
        if (auto allowed = co_await still_allowed(s, r.who, *f, st, open->get(), what); !allowed) {
            if (writes) {
                f->let_go_of_writer(*open);
                user->write.reset();
            } else {
                user->read.reset();
            }
            co_return allowed.error();
        }
        stamp = now;
    }
    co_return in_use(std::move(f), open, st);
}

task<result<storage::change>> backend::settle_data(const in_use& open)
{
    cached_file& f = *open.file;
    changed(f);
    if (options_.async) {
        f.uncommitted = true;
    } else if (!f.mount->in_memory) {
        if (auto synced = co_await syncs_.sync(sync_group::what::file, open.open->get(), open.st.st_dev,
                                               open.st.st_ino);
            !synced)
            co_return synced.error();
    }
    storage::change out;
    looked st{};
    const int failed = co_await stat_of(f, open.open->get(), st);
    if (failed == 0)
        out.after = attributes(st, f);
    co_return out;
}

task<result<storage::seek_result>> backend::seek(const storage::request& r, const storage::handle& file,
                                                 std::uint64_t offset, storage::extent what)
{
    if (offset > max_offset)
        co_return error::from_errno(ENXIO, "an offset behind the end of the file");
    shard& s = at(co_await this_reactor());
    auto opened = co_await open_data(s, r, file, use::read, r.may_by_open(R_OK));
    if (!opened)
        co_return opened.error();
    const in_use source = std::move(*opened);
    auto job = [fd = source.open->get(), offset, what]() -> result<storage::seek_result> {
        const int whence = what == storage::extent::data ? SEEK_DATA : SEEK_HOLE;
        const off_t found = ::lseek(fd, static_cast<off_t>(offset), whence);
        const int failed = found < 0 ? errno : 0;
        struct stat st{};
        if (file_status(fd, st) != 0)
            return errno_error("fstat");
        const auto size = static_cast<std::uint64_t>(st.st_size);
        // It says ENXIO as well where nothing but a hole is left.
        if (failed != 0 && (failed != ENXIO || offset >= size))
            return error::from_errno(failed, "lseek");
        storage::seek_result out;
        out.offset = failed != 0 ? size : static_cast<std::uint64_t>(found);
        out.end_of_file = out.offset >= size;
        return out;
    };
    co_return co_await pool_.try_run(std::move(job));
}

task<result<storage::change>> backend::change_extents(const storage::request& r, const storage::handle& file,
                                                      std::uint64_t offset, std::uint64_t length, int mode)
{
    if (refuses_changes())
        co_return error::from_errno(EROFS, "the export is read-only");
    if (length == 0)
        co_return error::from_errno(EINVAL, "an empty range");
    if (offset > max_offset || length > max_offset - offset)
        co_return error::from_errno(EFBIG, "a range past the largest offset");
    shard& s = at(co_await this_reactor());
    auto opened = co_await open_data(s, r, file, use::write, r.may_by_open(W_OK));
    if (!opened)
        co_return opened.error();
    const in_use target = std::move(*opened);
    const bool gives_back = (mode & FALLOC_FL_PUNCH_HOLE) != 0;
    const auto size = static_cast<std::uint64_t>(target.st.st_size);
    const std::uint64_t end = offset + length;
    if (!gives_back && length > most_changed_at_once) {
        auto look = [fd = target.open->get(), length] { return may_have_room(fd, length); };
        if (const auto room = co_await pool_.try_run(std::move(look)); !room)
            co_return room.error();
    }
    for (std::uint64_t at = offset; at < end;) {
        // Behind the end of the file there is next to nothing to give back.
        const std::uint64_t part =
            gives_back && at >= size ? end - at : std::min(end - at, most_changed_at_once);
        // A file that grows does so at last: one that room was lacking for is as long as before.
        const int how = part == end - at ? mode : mode | FALLOC_FL_KEEP_SIZE;
        auto job = [fd = target.open->get(), at, part, how, &who = r.who]() -> result<void> {
            // As the caller: setuid bits fall, and quotas and reserved blocks bind, by the rights of who changes it.
            const acting_as as(who);
            if (!as)
                return as.error();
            int done = 0;
            do
                done = ::fallocate(fd, how, static_cast<off_t>(at), static_cast<off_t>(part));
            while (done != 0 && errno == EINTR);
            return done == 0 ? result<void>() : errno_error("fallocate");
        };
        if (const auto done = co_await pool_.try_run(std::move(job)); !done) {
            changed(*target.file); // by the parts before
            co_return done.error();
        }
        at += part;
    }
    co_return co_await settle_data(target);
}

task<result<storage::change>> backend::allocate(const storage::request& r, const storage::handle& file,
                                                std::uint64_t offset, std::uint64_t length)
{
    return change_extents(r, file, offset, length, 0);
}

task<result<storage::change>> backend::deallocate(const storage::request& r, const storage::handle& file,
                                                  std::uint64_t offset, std::uint64_t length)
{
    return change_extents(r, file, offset, length, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
}

task<result<storage::copy_result>> backend::copy(const storage::request& r, const storage::handle& from,
                                                 std::uint64_t from_offset, const storage::handle& to,
                                                 std::uint64_t to_offset, std::uint64_t length)
{
    if (refuses_changes())
        co_return error::from_errno(EROFS, "the export is read-only");
    if (to_offset > max_offset || length > max_offset - to_offset)
        co_return error::from_errno(EFBIG, "a range past the largest offset");
    shard& s = at(co_await this_reactor());
    auto opened_source = co_await open_data(s, r, from, use::read, r.may_read_source_by_open());
    if (!opened_source)
        co_return opened_source.error();
    const in_use source = std::move(*opened_source);
    auto opened_target = co_await open_data(s, r, to, use::write, r.may_by_open(W_OK));
    if (!opened_target)
        co_return opened_target.error();
    const in_use target = std::move(*opened_target);
    storage::copy_result out;
    if (from_offset > max_offset || length == 0)
        co_return out;
    auto job = [in = source.open->get(), to_fd = target.open->get(), from_offset, to_offset, length,
                &who = r.who]() -> result<std::uint64_t> {
        const acting_as as(who);
        if (!as)
            return as.error();
        const auto most = static_cast<std::size_t>(std::min(length, most_copied_at_once));
        auto read_at = static_cast<off64_t>(from_offset);
        auto write_at = static_cast<off64_t>(to_offset);
        ssize_t n = 0;
        do
            n = ::copy_file_range(in, &read_at, to_fd, &write_at, most, 0);
        while (n < 0 && errno == EINTR);
        if (n < 0)
            return errno_error("copy_file_range");
        return static_cast<std::uint64_t>(n);
    };
    const auto copied = co_await pool_.try_run(std::move(job));
    if (!copied)
        co_return copied.error();
    out.count = *copied;
    changed(*target.file);
    target.file->uncommitted = true;
    syncs_.wrote(out.count);
    looked st{};
    const int failed = co_await stat_of(*target.file, target.open->get(), st);
    if (failed == 0)
        out.file.after = attributes(st, *target.file);
    co_return out;
}

task<result<storage::change>> backend::clone(const storage::request& r, const storage::handle& from,
                                             std::uint64_t from_offset, const storage::handle& to,
                                             std::uint64_t to_offset, std::uint64_t length)
{
    if (refuses_changes())
        co_return error::from_errno(EROFS, "the export is read-only");
    shard& s = at(co_await this_reactor());
    auto opened_source = co_await open_data(s, r, from, use::read, r.may_read_source_by_open());
    if (!opened_source)
        co_return opened_source.error();
    const in_use source = std::move(*opened_source);
    auto opened_target = co_await open_data(s, r, to, use::write, r.may_by_open(W_OK));
    if (!opened_target)
        co_return opened_target.error();
    const in_use target = std::move(*opened_target);
    auto job = [in = source.open->get(), to_fd = target.open->get(), from_offset, to_offset, length,
                &who = r.who]() -> result<void> {
        const acting_as as(who);
        if (!as)
            return as.error();
        file_clone_range range{};
        range.src_fd = in;
        range.src_offset = from_offset;
        range.src_length = length;
        range.dest_offset = to_offset;
        if (::ioctl(to_fd, FICLONERANGE, &range) == 0)
            return {};
        // A file system that does not know the call at all.
        return error::from_errno(errno == ENOTTY ? EOPNOTSUPP : errno, "FICLONERANGE");
    };
    // All or nothing, it may take as long as the file has extents: of the pool's threads each shard gives it one.
    const bool mine = co_await s.clone_turn.acquire();
    if (!mine)
        co_return error(std::errc::operation_canceled, "clone");
    const held_permit held(s.clone_turn);
    if (const auto done = co_await pool_.try_run(std::move(job)); !done)
        co_return done.error();
    co_return co_await settle_data(target);
}

} // namespace verbena::posixfs
