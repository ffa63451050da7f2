// SPDX-License-Identifier: Apache-2.0
// READ, WRITE and COMMIT.
#include "backend.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/reactor/file_read.hpp>

#include <fcntl.h>
#include <limits>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <system_error>
#include <unistd.h>

namespace verbena::posixfs {

namespace {

constexpr std::size_t max_vectors = 64;
// What a shard reads by its ring: where that is as fast as the pool, and quickly taken over by the kernel.
constexpr std::size_t ring_read_bytes = std::size_t(64) << 10;
constexpr unsigned ring_reads_at_once = 32;
// Within it a client whose connection ended has asked again.
constexpr duration rest_of_failed_sending = std::chrono::minutes(1);

// No answer: as many calls wait for a thread of the lane as may, so rights were not looked at.
bool is_put_off(const error& e) noexcept { return e == std::errc::resource_unavailable_try_again; }

// Sending waits for pages that are still being read: it rests then, as reads do. And a page whose reading failed stays in the page
// cache as if it were good. Its bytes were promised, so the connection ends, and the client asks again: only read() can tell it.
void note_sent(const void* owner, const file_send& how) noexcept
{
    const auto& file = *static_cast<const shared_fd*>(owner);
    if (how.error == 0) {
        file.sending().stalled.note_long(how.ended, how.ended - how.begun, how.waited);
        return;
    }
    if (!file.sending().failed.rest(how.ended, rest_of_failed_sending))
        return;
    struct stat st{};
    file_status(file.get(), st);
    try {
        log(log_level::warning, "posixfs",
            "a file could not be sent from the page cache: for a minute READs of its file system are copied",
            {{"cause", std::system_category().message(how.error)},
             {"device", std::to_string(major(st.st_dev)) + ":" + std::to_string(minor(st.st_dev))},
             {"inode", std::uint64_t(st.st_ino)}});
    } catch (const std::bad_alloc&) { // nobody hears of it
    }
}

// Sending begins reads too, of what is to be read next.
bool sending_rests(const mount_point& m, time_point now) noexcept
{
    return m.sending->failed.is_on(now) || m.sending->stalled.is_on(now) || m.reads.is_on(now);
}

// cachestat(2), of Linux 6.5; not in the headers of Debian 12.
constexpr long cachestat_number = 451;

std::uint64_t page_size() noexcept
{
    static const long size = ::sysconf(_SC_PAGESIZE);
    return static_cast<std::uint64_t>(size);
}

// Reads until `out` is full or the file ends; the bytes read, or -1 with errno if none.
ssize_t read_all(int fd, std::span<std::byte> out, std::uint64_t offset) noexcept
{
    std::size_t done = 0;
    while (done < out.size()) {
        const ssize_t n =
            ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && done == 0)
            return -1;
        if (n <= 0)
            break;
        done += static_cast<std::size_t>(n);
    }
    return static_cast<ssize_t>(done);
}

// Writes the pieces; the bytes written, or -1 with errno if none. A disk that fills up gives a short count.
ssize_t write_all(int fd, std::span<const std::span<const std::byte>> pieces, std::uint64_t offset) noexcept
{
    std::size_t done = 0;
    std::size_t piece = 0;
    std::size_t within = 0;
    while (piece < pieces.size()) {
        iovec vectors[max_vectors];
        int count = 0;
        for (std::size_t i = piece; i < pieces.size() && count < int(max_vectors); ++i) {
            const std::size_t from = i == piece ? within : 0;
            vectors[count].iov_base = const_cast<std::byte*>(pieces[i].data() + from);
            vectors[count++].iov_len = pieces[i].size() - from;
        }
        ssize_t n = ::pwritev(fd, vectors, count, static_cast<off_t>(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return done != 0 ? static_cast<ssize_t>(done) : -1;
        done += static_cast<std::size_t>(n);
        auto left = static_cast<std::size_t>(n);
        while (piece < pieces.size() && left >= pieces[piece].size() - within) {
            left -= pieces[piece].size() - within;
            ++piece;
            within = 0;
        }
        within += left;
        if (n == 0 && piece < pieces.size())
            break;
    }
    return static_cast<ssize_t>(done);
}

} // namespace

bool backend::begins_reads(const shard& s, const mount_point& m) noexcept
{
    return !m.reads.is_on(s.home->now());
}

result<std::size_t> backend::read_here(shard& s, const mount_point& m, bool& nowait_works, bool begins,
                                       int fd, std::span<std::byte> out, std::uint64_t offset)
{
    if (m.in_memory) {
        const ssize_t n = read_all(fd, out, offset);
        if (n < 0)
            return errno_error("pread");
        return static_cast<std::size_t>(n);
    }
    // Kernels without cachestat are older than those that begin reads here.
    if (!m.local || !nowait_works || (!begins && cachestat_works_ && !is_cached(fd, offset, out.size())))
        return 0;
    iovec v{out.data(), out.size()};
    const time_point before = s.home->clock().now();
    const auto switches = m.reads.begin(before);
    const ssize_t n = ::preadv2(fd, &v, 1, static_cast<off_t>(offset), RWF_NOWAIT);
    if (n < ssize_t(out.size())) {
        const int failed = errno;
        const time_point after = s.home->clock().now();
        m.reads.note(after, after - before, switches);
        errno = failed;
    }
    if (n < 0 && errno == EOPNOTSUPP)
        nowait_works = false;
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        return errno_error("preadv2");
    return static_cast<std::size_t>(std::max<ssize_t>(n, 0));
}

// What is not in the page cache: for a little the ring waits for the disk without a thread. More, or many at once, could hold the
// shard up while the kernel takes it over (docs/internals/reactor.md), and go to the pool.
task<result<std::size_t>> backend::read_rest(shard& s, const mount_point& m, bool by_ring, int fd,
                                             std::span<std::byte> rest, std::uint64_t offset, bool is_first,
                                             struct stat& st)
{
    std::size_t n = 0;
    if (by_ring && m.local && rest.size() <= ring_read_bytes && s.ring_reads < ring_reads_at_once) {
        ++s.ring_reads;
        const auto& begun = s.home->io().stats().reads_begun_nanoseconds;
        const std::uint64_t before = begun.load(std::memory_order_relaxed);
        file_read more(fd, rest, offset);
        const int got = co_await more;
        --s.ring_reads;
        // Of all that this shard began meanwhile, by whatever disk.
        m.reads.note_long(s.home->now(),
                          std::chrono::nanoseconds(begun.load(std::memory_order_relaxed) - before), true);
        if (got == -EIO && is_first)
            co_return error::from_errno(EIO, "pread");
        n = static_cast<std::size_t>(
            std::max(got, 0)); // another error or a shorter read is the pool's to tell
        file_status(fd, st);
    }
    if (n < rest.size() && offset + n < std::uint64_t(st.st_size)) {
        auto job = [fd, &st, left = rest.subspan(n), at = offset + n]() -> result<ssize_t> {
            const ssize_t more = read_all(fd, left, at);
            if (more < 0)
                return errno_error("pread");
            file_status(fd, st);
            return more;
        };
        auto more = co_await pool_.try_run(std::move(job));
        // What was read is told; the next READ, which begins where that ends, gets the error.
        if (!more && n == 0 && is_first)
            co_return more.error();
        n += more ? static_cast<std::size_t>(*more) : 0;
    }
    co_return n;
}

task<result<storage::read_result>> backend::read(const storage::request& r, const storage::handle& file,
                                                 std::uint64_t offset, std::span<std::byte> out)
{
    shard& s = at(co_await this_reactor());
    auto opened_file = co_await open_file(s, file);
    if (!opened_file)
        co_return opened_file.error();
    file_ref f = std::move(*opened_file);
    const bool by_open = r.may_by_open(R_OK);
    auto user = f->find(r.who);
    if (!user || !user->read) {
        auto opened = co_await open_for(s, r, f, use::read, by_open);
        if (!opened)
            co_return opened.error();
        user = std::move(*opened);
    }
    const auto open = user->read; // others may find it refused meanwhile
    const int fd = open->get();
    // Past the largest offset there is nothing, as past the end of any file.
    const bool beyond = offset > max_offset;
    if (!beyond && out.size() > max_offset - offset)
        out = out.first(static_cast<std::size_t>(max_offset - offset));

    std::size_t n = 0;
    const bool begins = begins_reads(s, *f->mount);
    if (!beyond && !out.empty()) {
        const auto got = read_here(s, *f->mount, f->nowait_works, begins, fd, out, offset);
        if (!got)
            co_return got.error();
        n = *got;
    }
    looked st{};
    if (auto live = co_await stat_live(s, *f, fd, st); !live)
        co_return live.error();
    const permission_stamp stamp(st, f->acl_changes);
    if (!by_open && !(user->read_stamp == stamp)) {
        if (auto allowed = co_await still_allowed(s, r.who, *f, st, fd, use::read); !allowed) {
            if (!is_put_off(allowed.error()))
                user->read.reset();
            co_return allowed.error();
        }
        user->read_stamp = stamp;
    }
    if (!beyond && n < out.size() && offset + n < std::uint64_t(st.st_size)) {
        task<result<std::size_t>> reading =
            read_rest(s, *f->mount, begins && f->nowait_works, fd, out.subspan(n), offset + n, n == 0, st);
        const auto more = co_await reading;
        if (!more)
            co_return more.error();
        n += *more;
    }
    storage::read_result done;
    done.count = static_cast<std::uint32_t>(n);
    done.end_of_file = beyond || offset + done.count >= std::uint64_t(st.st_size);
    done.attrs = attributes(st, *f);
    co_return done;
}

// What refuses a call for its name, as a filter of system calls may by any errno, doesn't look at its arguments.
bool backend::kernel_tells_what_is_cached() noexcept
{
    return ::syscall(cachestat_number, -1, nullptr, nullptr, 0U) != 0 && errno == EBADF;
}

bool backend::is_cached(int fd, std::uint64_t offset, std::uint64_t size) noexcept
{
    struct {
        std::uint64_t offset, length;
    } range{offset, size};
    struct {
        std::uint64_t cached, dirty, written_back, evicted, lately_evicted;
    } seen{};
    // Newer kernels tell it only of files that the caller owns or may write, so one refusal says nothing of others.
    if (!cachestat_works_ || ::syscall(cachestat_number, fd, &range, &seen, 0U) != 0)
        return false;
    const std::uint64_t page = page_size();
    return seen.cached == (offset + size - 1) / page - offset / page + 1;
}

bool backend::is_being_read(cached_file& f, int fd, std::uint64_t last) noexcept
{
    if (!f.nowait_works)
        return false;
    std::byte byte;
    iovec v{&byte, 1};
    const ssize_t n = ::preadv2(fd, &v, 1, static_cast<off_t>(last), RWF_NOWAIT);
    if (n < 0 && errno == EOPNOTSUPP)
        f.nowait_works = false;
    return n != 1 && f.nowait_works;
}

task<result<storage::located_read>> backend::locate(const storage::request& r, const storage::handle& file,
                                                    std::uint64_t offset, std::uint32_t count,
                                                    storage::locatable where)
{
    storage::located_read out;
    if (where == storage::locatable::memory)
        co_return out;
    shard& s = at(co_await this_reactor());
    const file_ref f = s.files.find(file);
    // What must be opened first goes the long way, once; what another host may have to send, always.
    if (!f || !f->mount->local || offset > max_offset || count > max_offset - offset ||
        sending_rests(*f->mount, s.home->now()))
        co_return out;
    const auto user = f->find(r.who);
    if (!user || !user->read)
        co_return out;
    const int fd = user->read->get();
    looked st{};
    if (auto live = co_await stat_live(s, *f, fd, st); !live)
        co_return live.error();
    const auto end = std::uint64_t(st.st_size);
    const bool allowed = r.may_by_open(R_OK) || user->read_stamp == permission_stamp(st, f->acl_changes);
    if (!allowed || offset >= end)
        co_return out;
    const std::uint64_t size = std::min<std::uint64_t>(count, end - offset);
    if (!f->mount->in_memory && (!is_cached(fd, offset, size) || is_being_read(*f, fd, offset + size - 1)))
        co_return out;
    out.here = true;
    out.bytes = file_range(user->read, fd, offset, size, note_sent);
    out.bytes.tells_waits = f->mount->sending->stalled.is_in_doubt(s.home->now());
    out.read.count = static_cast<std::uint32_t>(size);
    out.read.end_of_file = offset + size >= end;
    out.read.attrs = attributes(st, *f);
    co_return out;
}

// As the caller: setuid bits fall, and quotas and reserved blocks bind, by the rights of who writes.
result<std::size_t> backend::write_as(const storage::credential& who, int fd,
                                      std::span<const std::span<const std::byte>> pieces,
                                      std::uint64_t offset)
{
    const acting_as as(who);
    if (!as)
        return as.error();
    const ssize_t done = write_all(fd, pieces, offset);
    if (done < 0)
        return errno_error("pwritev");
    return static_cast<std::size_t>(done);
}

std::optional<result<std::size_t>>
backend::write_here(shard& s, const mount_point& m, const numbered_file& file, const storage::credential& who,
                    int fd, std::span<const std::span<const std::byte>> pieces, std::uint64_t offset)
{
    if (!acts_on_shard(who, m) || m.writes.is_on(s.home->now()))
        return std::nullopt;
    if (auto acting = act_as(who, s.home); !acting)
        return result<std::size_t>(acting.error());
    // It waits where part of a page must be read first, for the journal, for who holds the inode or for dirty pages.
    const time_point before = s.home->clock().now();
    const auto switches = m.writes.begin(before);
    const ssize_t n = write_all(fd, pieces, offset);
    const int failed = errno;
    const time_point after = s.home->clock().now();
    numbers_->changed(file);
    if (!m.in_memory)
        m.writes.note(after, after - before, switches);
    if (n < 0)
        return result<std::size_t>(error::from_errno(failed, "pwritev"));
    return result<std::size_t>(static_cast<std::size_t>(n));
}

task<result<storage::write_result>> backend::write(const storage::request& r, const storage::handle& file,
                                                   std::uint64_t offset,
                                                   std::span<const std::span<const std::byte>> pieces,
                                                   storage::stability wanted)
{
    if (refuses_changes())
        co_return error::from_errno(EROFS, "the export is read-only");
    std::uint64_t length = 0;
    for (auto piece : pieces)
        length += piece.size();
    if (offset > max_offset || length > max_offset - offset)
        co_return error::from_errno(EFBIG, "a write past the largest offset");
    shard& s = at(co_await this_reactor());
    auto opened_file = co_await open_file(s, file);
    if (!opened_file)
        co_return opened_file.error();
    file_ref f = std::move(*opened_file);
    const bool by_open = r.may_by_open(W_OK);
    auto user = f->find(r.who);
    if (!user || !user->write) {
        auto opened = co_await open_for(s, r, f, use::write, by_open);
        if (!opened)
            co_return opened.error();
        user = std::move(*opened);
    }
    const auto open = user->write; // others may replace it while this one is synced
    s.files.writes(*f);
    const int fd = open->get();
    // Whoever has the file open may write whatever became of its modes, and by its pin the file is there without a name.
    if (!by_open) {
        struct stat st{};
        if (auto live = co_await stat_live(s, *f, fd, st); !live)
            co_return live.error();
        const permission_stamp stamp(st, f->acl_changes);
        if (!(user->write_stamp == stamp)) {
            if (auto allowed = co_await still_allowed(s, r.who, *f, st, fd, use::write); !allowed) {
                if (!is_put_off(allowed.error())) {
                    f->let_go_of_writer(*open);
                    user->write.reset();
                }
                co_return allowed.error();
            }
            user->write_stamp = stamp;
        }
    }
    std::size_t n = 0;
    if (const auto here = write_here(s, *f->mount, numbered(*f), r.who, fd, pieces, offset)) {
        if (!*here)
            co_return here->error();
        n = **here;
    } else if (length != 0) {
        auto job = [fd, pieces, offset, &who = r.who] { return write_as(who, fd, pieces, offset); };
        const auto written = co_await pool_.try_run(std::move(job));
        changed(*f);
        if (!written)
            co_return written.error();
        n = *written;
    }

    storage::write_result done;
    done.count = static_cast<std::uint32_t>(n);
    if (wanted == storage::stability::unstable) {
        f->uncommitted = true;
        syncs_.wrote(n);
    } else {
        done.committed = wanted;
        if (!options_.async && n != 0 && !f->mount->in_memory) {
            const auto kind =
                wanted == storage::stability::data_sync ? sync_group::what::data : sync_group::what::file;
            if (auto synced = co_await syncs_.sync(kind, fd, f->dev, f->ino); !synced)
                co_return synced.error();
        }
    }
    looked now{};
    const int failed = co_await stat_of(*f, fd, now);
    if (failed == 0)
        done.file.after = attributes(now, *f);
    co_return done;
}

task<result<storage::change>> backend::commit(const storage::request& r, const storage::handle& file,
                                              std::uint64_t, std::uint32_t)
{
    shard& s = at(co_await this_reactor());
    auto opened_file = co_await open_file(s, file);
    if (!opened_file)
        co_return opened_file.error();
    file_ref f = std::move(*opened_file);
    if (f->is_directory())
        co_return error::from_errno(EISDIR, "commit of a directory");
    if (!f->is_regular())
        co_return error::from_errno(EINVAL, "commit of something that is no regular file");
    struct stat st{};
    if (auto live = co_await stat_live(s, *f, f->path.get(), st); !live)
        co_return live.error();
    // Through the descriptor that wrote, if it is here: an error of write-back is told to it once. Others may have been opened
    // before it, and have an error to tell that it has not; then the verifier tells.
    auto user = f->find(r.who);
    const auto open = user && !f->mount->in_memory ? user->write : nullptr; // others may replace it meanwhile
    if (!f->mount->in_memory)
        f->ask_all_but(open ? open->get() : f->sync.get());
    f->uncommitted = false;
    if (open) {
        if (auto synced = co_await syncs_.sync(sync_group::what::data, open->get(), st.st_dev, st.st_ino);
            !synced)
            co_return synced.error();
    } else if (auto synced = co_await settle(f, sync_group::what::data); !synced) {
        co_return synced.error();
    }
    storage::change out;
    looked now{};
    const int failed = co_await stat_of(*f, f->path.get(), now);
    if (failed == 0)
        out.after = attributes(now, *f);
    co_return out;
}

} // namespace verbena::posixfs
