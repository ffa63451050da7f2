// SPDX-License-Identifier: Apache-2.0
// What steady state costs in posixfs: no heap allocation, and one sync for many; and which way READs take.
#include <boost/test/unit_test.hpp>

#include "../allocation_count.hpp"
#include "daemon_in_child.hpp"
#include "needs_root.hpp"
#include "temporary_directory.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/plugins/posixfs.hpp>
#include <verbena/protocols/storage/sync_group.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <fcntl.h>
#include <iterator>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace verbena;
using namespace verbena::storage;
using namespace std::chrono_literals;
using verbena::test::allocations;

namespace {

// Moved by hand, so that nothing is a stall but what a test makes one; reactors sleep for real.
class hand_clock final : public clock_source {
public:
    time_point now() const noexcept override { return time_point(duration(now_.load())); }
    void advance(duration d) noexcept { now_ += d.count(); }

private:
    std::atomic<duration::rep> now_ = duration(1h).count(); // pool threads look too
};

hand_clock the_clock;
constexpr auto longest_rest = 61s; // after it no stall counts any more

const std::string on_disk = "/var/tmp";
const std::string in_memory = "/dev/shm";

std::unique_ptr<reactor> make_reactor()
{
    reactor_options o;
    o.clock = &the_clock;
    auto r = reactor::create(o);
    BOOST_REQUIRE_MESSAGE(r, (r ? std::string() : r.error().message()));
    return std::move(*r);
}

// A new folder as an export, and a request of the test's user.
struct exported {
    explicit exported(const std::string& where = on_disk, bool crossmnt = false)
        : directory(where), fs(open(directory, pool, crossmnt))
    {
        struct statfs st{};
        BOOST_REQUIRE(::statfs(directory.path().c_str(), &st) == 0);
        BOOST_REQUIRE_MESSAGE((st.f_type == TMPFS_MAGIC) == (where == in_memory),
                              "/var/tmp lies on a disk and /dev/shm in memory");
        BOOST_REQUIRE(fs);
        r.who = credential(::geteuid(), ::getegid());
    }
    /// A file of `size` octets of `content`, or of zeros that nobody has read or written; its inode.
    ino_t make(const char* name, std::size_t size, std::string_view content = {})
    {
        const int fd = ::open((directory.path() / name).c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
        BOOST_REQUIRE(fd >= 0);
        BOOST_REQUIRE(::write(fd, content.data(), content.size()) == ssize_t(content.size()));
        BOOST_REQUIRE(::ftruncate(fd, off_t(size)) == 0);
        struct stat st{};
        BOOST_REQUIRE(::fstat(fd, &st) == 0);
        ::close(fd);
        return st.st_ino;
    }
    static result<std::unique_ptr<file_backend>> open(const suite::temporary_directory& directory,
                                                      blocking_pool& pool, bool crossmnt)
    {
        posixfs::posixfs_options o;
        o.root = directory.path();
        o.crossmnt = crossmnt;
        return posixfs::open_posixfs(o, pool);
    }
    suite::temporary_directory directory;
    std::unique_ptr<reactor> shard = make_reactor();
    blocking_pool pool{2};
    result<std::unique_ptr<file_backend>> fs;
    request r;
};

// What the calls of a client that reads and writes one file take, each way: from memory, by the ring, by the pool.
task<bool> one_of_each(file_backend& fs, const request& r, const handle& f, std::span<std::byte> memory);

// Both threads of the lane run: to start one takes memory.
task<void> start_all(blocking_pool& pool)
{
    std::barrier<> both(2);
    auto meet = [&both] { both.arrive_and_wait(); };
    const auto job = [&]() -> task<void> {
        auto work = meet;
        co_await pool.run(std::move(work));
    };
    const task_context& context = co_await current_context();
    scope jobs(*context.shard);
    jobs.spawn(job);
    jobs.spawn(job);
    co_await jobs.join();
}

task<std::uint64_t> allocations_of_steady_state(file_backend& fs, blocking_pool& pool, const request& r)
{
    co_await start_all(pool);
    set_attributes set;
    set.mode = 0600;
    auto made = co_await fs.create(r, fs.root(), "f", create_mode::guarded, set, 0);
    if (!made)
        co_return ~std::uint64_t(0);
    const handle f = made->made.handle;
    std::vector<std::byte> memory(4096);
    std::uint64_t before = 0;
    for (int i = 0; i < 200; ++i) {
        if (i == 100)
            before = allocations.load();
        const bool good = co_await one_of_each(fs, r, f, memory);
        if (!good)
            co_return ~std::uint64_t(0);
    }
    co_return allocations.load() - before;
}

task<void> one_sync(storage::sync_group& group, int fd, std::uint64_t inode, int& failed)
{
    auto done = co_await group.sync(storage::sync_group::what::metadata, fd, 1, inode);
    failed += done ? 0 : 1;
}

std::atomic<pid_t> truncated_by{0};
std::atomic<bool> truncates_slowly{false};
std::atomic<int> truncating{0};
std::atomic<int> most_truncating{0};
std::atomic<bool> syncs_wait{false};
std::atomic<unsigned> syncing{0}; // fsync() was called
ino_t without_nowait = 0;
ino_t with_bad_block = 0;     // behind its first 4,096 octets
bool nothing_is_here = false; // as far as reads that do not wait go
duration stall_of_nowait{};   // of the next of them
duration stall_of_write{};    // of the next
unsigned nowait_reads = 0;
pid_t written_by = 0;
// Reads and writes of so many octets at most, each after one that a signal interrupted; 0: as the kernel does.
std::atomic<std::size_t> most_at_once{0};
std::atomic<unsigned> interrupts{0};
std::atomic<std::size_t> room_left{~std::size_t(0)}; // on the disk

/// True if this call is interrupted.
bool is_interrupted()
{
    errno = EINTR;
    return most_at_once != 0 && ++interrupts % 2 == 1;
}

/// The beginning of `vectors` of at most `most` octets.
std::vector<iovec> first_of(const iovec* vectors, int count, std::size_t most)
{
    std::vector<iovec> first;
    for (int i = 0; i < count && most != 0; ++i) {
        first.push_back(vectors[i]);
        first.back().iov_len = std::min(first.back().iov_len, most);
        most -= first.back().iov_len;
    }
    return first;
}

} // namespace

// In place of libc's: tells which thread it ran on, and how many at once.
extern "C" int ftruncate(int fd, off_t size) noexcept
{
    truncated_by = ::gettid();
    const int now = ++truncating;
    most_truncating = std::max(most_truncating.load(), now);
    if (truncates_slowly)
        ::usleep(100'000);
    const int done = int(::syscall(SYS_ftruncate, fd, size));
    --truncating;
    return done;
}

// In place of libc's: goes on when it may.
extern "C" int fsync(int fd)
{
    ++syncing;
    while (syncs_wait)
        ::usleep(1'000);
    return int(::syscall(SYS_fsync, fd));
}

BOOST_AUTO_TEST_CASE(what_cuts_much_off_is_not_done_on_the_shard)
{
    exported e(in_memory);
    auto& [directory, shard, pool, fs, r] = e;
    handle f;
    file_time changed;
    bool guarded = false;
    const auto resize = [&](std::uint64_t size, bool by_create) -> task<bool> {
        set_attributes to;
        to.size = size;
        if (by_create) {
            auto made = co_await (*fs)->create(r, (*fs)->root(), "f", create_mode::unchecked, to, 0);
            f = made ? made->made.handle : f;
            co_return made && made->made.attrs->size == size;
        }
        std::optional<file_time> guard;
        if (guarded)
            guard = changed;
        auto done = co_await (*fs)->setattr(r, f, to, guard);
        if (done)
            changed = done->after->ctime;
        co_return done && done->after->size == size;
    };
    const auto on_shard = [&](std::uint64_t size, bool by_create = false) {
        truncated_by = 0;
        BOOST_TEST_REQUIRE(run_until_complete(*shard, resize(size, by_create)));
        BOOST_TEST_REQUIRE(truncated_by != 0);
        return truncated_by == ::gettid();
    };
    constexpr std::uint64_t large = std::uint64_t(20) << 20;
    BOOST_TEST(run_until_complete(*shard, resize(0, true)));
    BOOST_TEST(on_shard(large));
    BOOST_TEST(on_shard(large - 1));
    BOOST_TEST(!on_shard(0));
    BOOST_TEST(on_shard(large));
    BOOST_TEST(on_shard(large - 1, true));
    BOOST_TEST(!on_shard(0, true));
    // A guarded one may have to wait for such.
    BOOST_TEST(on_shard(10));
    guarded = true;
    BOOST_TEST(!on_shard(9));
}

namespace {

task<void> resize(file_backend& fs, const request& r, const handle& file, std::optional<file_time> guard)
{
    set_attributes to;
    to.size = 10;
    (void)co_await fs.setattr(r, file, to, guard); // one of them may find that the other came first
}

} // namespace

// One that is unguarded must not come between a guard and what it guards.
BOOST_AUTO_TEST_CASE(changes_of_a_files_attributes_follow_each_other)
{
    // Wherever it lies, the pool makes changes.
    exported e(on_disk, true);
    auto& [directory, shard, pool, fs, r] = e;
    auto all = [&]() -> task<void> {
        auto made = co_await (*fs)->create(r, (*fs)->root(), "f", create_mode::guarded, {}, 0);
        BOOST_REQUIRE(made);
        const task_context& context = co_await current_context();
        most_truncating = 0;
        truncates_slowly = true;
        scope s(*context.shard);
        s.spawn([&] { return resize(**fs, r, made->made.handle, made->made.attrs->ctime); });
        s.spawn([&] { return resize(**fs, r, made->made.handle, std::nullopt); });
        co_await s.join();
    };
    run_until_complete(*shard, all());
    truncates_slowly = false;
    BOOST_TEST(most_truncating == 1);
}

BOOST_AUTO_TEST_CASE(one_sync_serves_all_who_wait)
{
    suite::temporary_directory directory;
    const int fd = ::open(directory.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    BOOST_REQUIRE(fd >= 0);
    auto shard = make_reactor();
    blocking_pool pool(2);
    storage::sync_group group(pool);
    int failed = 0;
    auto all = [&]() -> task<void> {
        const task_context& context = co_await current_context();
        syncs_wait = true;
        syncing = 0;
        scope s(*context.shard);
        s.spawn([&] { return one_sync(group, fd, 7, failed); });
        while (syncing == 0)
            std::this_thread::yield();
        // The one that runs has begun before what they changed.
        for (int i = 0; i < 199; ++i)
            s.spawn([&] { return one_sync(group, fd, 7, failed); });
        syncs_wait = false;
        co_await s.join();
    };
    run_until_complete(*shard, all());
    BOOST_TEST(failed == 0);
    BOOST_TEST(group.rounds() == 2u);
    BOOST_TEST(syncing == 2u);
    ::close(fd);
}

BOOST_AUTO_TEST_CASE(a_failed_sync_fails_all_who_wait)
{
    auto shard = make_reactor();
    blocking_pool pool(2);
    storage::sync_group group(pool);
    int failed = 0;
    auto all = [&]() -> task<void> {
        const task_context& context = co_await current_context();
        scope s(*context.shard);
        for (int i = 0; i < 50; ++i)
            s.spawn([&] { return one_sync(group, -1, 7, failed); });
        co_await s.join();
    };
    run_until_complete(*shard, all());
    BOOST_TEST(failed == 50);
    BOOST_TEST(group.failures() > 0u);
}

namespace {

task<int> errno_of_lookup(file_backend& fs, const request& r, const char* name, handle& found)
{
    auto l = co_await fs.lookup(r, fs.root(), name);
    if (!l)
        co_return l.error().errno_value();
    found = l->found.handle;
    co_return 0;
}

} // namespace

// What a name led to last time is only a guess.
BOOST_AUTO_TEST_CASE(a_name_that_leads_elsewhere_by_now)
{
    exported e;
    auto& [directory, shard, pool, fs, r] = e;
    const std::string a = (directory.path() / "a").string();
    const std::string b = (directory.path() / "b").string();
    const auto lookup = [&](const char* name, handle& found) {
        return run_until_complete(*shard, errno_of_lookup(**fs, r, name, found));
    };
    const auto make = [](const std::string& path) {
        const int fd = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
        BOOST_REQUIRE(fd >= 0);
        ::close(fd);
    };
    make(a);
    make(b);
    handle first;
    handle second;
    handle now;
    BOOST_TEST(lookup("a", first) == 0);
    BOOST_TEST(lookup("b", second) == 0);
    BOOST_TEST(!(first == second));
    BOOST_TEST(lookup("a", now) == 0);
    BOOST_TEST((now == first));

    BOOST_REQUIRE(::rename(b.c_str(), a.c_str()) == 0);
    BOOST_TEST(lookup("a", now) == 0);
    BOOST_TEST((now == second));
    BOOST_TEST(lookup("b", now) == ENOENT);

    BOOST_REQUIRE(::unlink(a.c_str()) == 0);
    BOOST_TEST(lookup("a", now) == ENOENT);
    make(a);
    BOOST_TEST(lookup("a", now) == 0);
    BOOST_TEST(!(now == first));
    BOOST_TEST(!(now == second));

    // Somebody who may not search the directory learns nothing.
    suite::needs_root("to act for others");
    BOOST_REQUIRE(::chmod(directory.path().c_str(), 0700) == 0);
    BOOST_TEST(lookup("a", now) == 0);
    r.who = credential(12345, 12345);
    BOOST_TEST(lookup("a", now) == EACCES);
}

namespace {

task<located_read> located(file_backend& fs, const request& r, const handle& file, std::uint64_t offset,
                           std::uint32_t count)
{
    auto there = co_await fs.locate(r, file, offset, count, storage::locatable::memory_or_file);
    co_return there ? *there : located_read();
}

constexpr unsigned cachestat = 451;

/// cachestat(2), since Linux 6.5: without it, what it would say is ENOSYS whatever it is asked.
bool kernel_says_what_is_in_memory()
{
    return ::syscall(cachestat, -1, nullptr, nullptr, 0) != 0 && errno != ENOSYS;
}

/// A filter of system calls that does `action` with cachestat(2), until the process ends.
void filter_cachestat(unsigned action)
{
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, unsigned(offsetof(seccomp_data, nr))),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, cachestat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
    suite::check(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
    suite::check(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "a seccomp filter");
}

} // namespace

BOOST_AUTO_TEST_CASE(bytes_are_located_for_who_may_read_them)
{
    for (const std::string& where : {in_memory, on_disk}) {
        exported e(where);
        auto& [directory, shard, pool, fs, r] = e;
        const std::string text(100'000, 't');
        e.make("f", 300'000, text); // behind the text nothing was ever in memory
        handle f;
        BOOST_REQUIRE(run_until_complete(*shard, errno_of_lookup(**fs, r, "f", f)) == 0);
        const auto locate = [&](std::uint64_t offset, std::uint32_t count) {
            return run_until_complete(*shard, located(**fs, r, f, offset, count));
        };
        const auto read = [&]() -> task<void> {
            std::vector<std::byte> memory(10);
            auto done = co_await (*fs)->read(r, f, 0, memory);
            BOOST_TEST(bool(done));
        };
        BOOST_TEST(!locate(0, 65536).here); // nobody has opened it yet
        run_until_complete(*shard, read());
        const auto part = locate(50'000, 40'000);
        // Of a disk the kernel must be asked. Where it can't be, nothing is ever sent from its memory.
        const bool known = where == in_memory || kernel_says_what_is_in_memory();
        BOOST_TEST(part.here == known);
        if (known) {
            BOOST_TEST(part.bytes.size == 40'000u);
            BOOST_TEST(part.read.count == 40'000u);
            std::string seen(40'000, 0);
            BOOST_TEST(::pread(part.bytes.fd, seen.data(), seen.size(), off_t(part.bytes.offset)) == 40'000);
            BOOST_TEST((seen == text.substr(50'000, 40'000)));
        }
        // What isn't in memory would hold the shard; of tmpfs all is.
        BOOST_TEST(locate(200'000, 65536).here == (where == in_memory));
        // A change of rights sends it the way that asks the kernel.
        BOOST_REQUIRE(::chmod((directory.path() / "f").c_str(), 0600) == 0);
        BOOST_TEST(!locate(0, 10).here);
        run_until_complete(*shard, read());
        BOOST_TEST(locate(0, 10).here == known);
    }
}

BOOST_AUTO_TEST_CASE(the_end_of_a_file_that_is_sent_from_memory)
{
    exported e(in_memory);
    auto& [directory, shard, pool, fs, r] = e;
    e.make("f", 100'000);
    handle f;
    BOOST_REQUIRE(run_until_complete(*shard, errno_of_lookup(**fs, r, "f", f)) == 0);
    const auto read = [&]() -> task<void> {
        std::vector<std::byte> memory(10);
        auto done = co_await (*fs)->read(r, f, 0, memory);
        BOOST_TEST(bool(done));
    };
    run_until_complete(*shard, read());
    struct part {
        std::uint64_t offset;
        std::uint32_t count;
        std::uint32_t there;
        bool end;
    };
    for (const part& p :
         {part{0, 99'999, 99'999, false}, part{0, 100'000, 100'000, true}, part{0, 100'001, 100'000, true},
          part{34'464, 65'535, 65'535, false}, part{34'464, 65'536, 65'536, true},
          part{34'464, 65'537, 65'536, true}, part{99'999, 1, 1, true}, part{99'998, 1, 1, false}}) {
        BOOST_TEST_CONTEXT(p.offset << " + " << p.count)
        {
            const auto there = run_until_complete(*shard, located(**fs, r, f, p.offset, p.count));
            BOOST_TEST_REQUIRE(there.here);
            BOOST_TEST(there.bytes.offset == p.offset);
            BOOST_TEST(there.bytes.size == p.there);
            BOOST_TEST(there.read.count == p.there);
            BOOST_TEST(there.read.end_of_file == p.end);
        }
    }
    BOOST_TEST(!run_until_complete(*shard, located(**fs, r, f, 100'000, 1)).here);
}

// The filter of a service refuses what it doesn't know by an errno of its owner's choice.
BOOST_AUTO_TEST_CASE(a_refused_cachestat_is_not_asked_again)
{
    for (const unsigned answer : {EPERM, EACCES, ENOSYS}) {
        suite::temporary_directory directory(on_disk);
        suite::in_child([&] {
            filter_cachestat(SECCOMP_RET_ERRNO | answer);
            posixfs::posixfs_options o;
            o.root = directory.path();
            suite::server s(o);
            filter_cachestat(SECCOMP_RET_KILL_PROCESS); // from here on
            const request r = suite::user(::geteuid());
            set_attributes set;
            set.mode = 0600;
            const auto made = s.run(s.fs->create(r, s.fs->root(), "f", create_mode::guarded, set, 0));
            suite::check(made.has_value(), "CREATE");
            suite::check(s.write(r, made->made.handle) == 0 && s.read(r, made->made.handle) == 0,
                         "WRITE and READ");
            const auto where =
                s.run(s.fs->locate(r, made->made.handle, 0, 1, storage::locatable::memory_or_file));
            suite::check(where && !where->here, "nothing is sent from the page cache");
        });
    }
}

// In place of libc's: of one file, as of a file system that knows no flags.
extern "C" ssize_t preadv2(int fd, const iovec* vectors, int count, off_t offset, int flags)
{
    struct stat st{};
    ++nowait_reads;
    the_clock.advance(std::exchange(stall_of_nowait, duration()));
    if (::fstat(fd, &st) == 0 && st.st_ino == without_nowait) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (with_bad_block != 0 && st.st_ino == with_bad_block) {
        iovec first = vectors[0];
        first.iov_len = offset < 4096 ? std::min<std::size_t>(first.iov_len, 4096 - std::size_t(offset)) : 0;
        errno = EAGAIN;
        return first.iov_len == 0 ? -1 : ::syscall(SYS_preadv2, fd, &first, 1L, long(offset), 0L, 0L);
    }
    if (nothing_is_here) {
        errno = EAGAIN;
        return -1;
    }
    if (most_at_once == 0)
        return ::syscall(SYS_preadv2, fd, vectors, long(count), long(offset), 0L, long(flags));
    if (is_interrupted())
        return -1;
    const auto part = first_of(vectors, count, most_at_once);
    return ::syscall(SYS_preadv2, fd, part.data(), long(part.size()), long(offset), 0L, long(flags));
}
extern "C" ssize_t pread(int fd, void* to, std::size_t size, off_t offset)
{
    struct stat st{};
    if (with_bad_block != 0 && ::fstat(fd, &st) == 0 && st.st_ino == with_bad_block) {
        errno = EIO;
        return -1;
    }
    if (is_interrupted())
        return -1;
    return ::syscall(SYS_pread64, fd, to, most_at_once != 0 ? std::min(size, most_at_once.load()) : size,
                     long(offset));
}
extern "C" ssize_t pwritev(int fd, const iovec* vectors, int count, off_t offset)
{
    written_by = ::gettid();
    the_clock.advance(std::exchange(stall_of_write, duration()));
    if (is_interrupted())
        return -1;
    if (room_left == 0) {
        errno = ENOSPC;
        return -1;
    }
    if (most_at_once == 0)
        return ::syscall(SYS_pwritev, fd, vectors, long(count), long(offset), 0L);
    const auto part = first_of(vectors, count, std::min(most_at_once.load(), room_left.load()));
    const ssize_t n = ::syscall(SYS_pwritev, fd, part.data(), long(part.size()), long(offset), 0L);
    if (n > 0 && room_left != ~std::size_t(0))
        room_left -= std::size_t(n);
    return n;
}

namespace {

task<bool> one_of_each(file_backend& fs, const request& r, const handle& f, std::span<std::byte> memory)
{
    const std::span<const std::byte> piece(memory);
    the_clock.advance(longest_rest);
    // A write and a read from memory, and what comes before and beside them.
    auto w = co_await fs.write(r, f, 0, std::span(&piece, 1), stability::unstable);
    auto n = co_await fs.read(r, f, 0, memory);
    auto where = co_await fs.locate(r, f, 0, 4096, storage::locatable::memory_or_file);
    auto a = co_await fs.getattr(r, f);
    auto l = co_await fs.lookup(r, fs.root(), "f");
    auto x = co_await fs.access(r, f, R_OK | W_OK);
    bool good = w && n && n->count == 4096 && a && l && x && where;
    // What is not in memory, by the ring; the second time that stalls.
    nothing_is_here = true;
    for (const duration stall : {duration(0ms), duration(100ms)}) {
        stall_of_nowait = stall;
        n = co_await fs.read(r, f, 0, memory);
        good = good && n && n->count == 4096;
    }
    // So the third goes to the pool, and a write behind one that stalled.
    n = co_await fs.read(r, f, 0, memory);
    good = good && n && n->count == 4096;
    nothing_is_here = false;
    stall_of_nowait = duration();
    for (const duration stall : {duration(100ms), duration(0ms)}) {
        stall_of_write = stall;
        w = co_await fs.write(r, f, 0, std::span(&piece, 1), stability::unstable);
        good = good && w && w->count == 4096;
    }
    co_return good;
}

} // namespace

BOOST_AUTO_TEST_CASE(steady_state_allocates_nothing)
{
    // It moves the clock amid turns of the shard, which would be told of in the log.
    struct quiet {
        quiet() { set_log_level(log_level::off); }
        ~quiet() { set_log_level(log_level::info); }
    } const nothing_is_logged;
    for (const std::string& where : {in_memory, on_disk}) {
        exported e(where);
        BOOST_TEST(run_until_complete(*e.shard, allocations_of_steady_state(**e.fs, e.pool, e.r)) == 0u,
                   where);
        // The last write stalled no more, but the one before it did, on a disk.
        BOOST_TEST((written_by == ::gettid()) == (where == in_memory));
    }
}

BOOST_AUTO_TEST_CASE(what_lies_before_a_bad_block_is_told)
{
    exported e;
    auto& [directory, shard, pool, fs, r] = e;
    const ino_t inode = e.make("bad", 200'000);
    handle file;
    BOOST_REQUIRE(run_until_complete(*shard, errno_of_lookup(**fs, r, "bad", file)) == 0);
    std::vector<std::byte> memory(100'000);
    // What was read, or the negative errno.
    const auto read = [&](std::uint64_t offset) -> task<int> {
        const auto done = co_await (*fs)->read(r, file, offset, memory);
        co_return done ? int(done->count) : -done.error().code().value();
    };
    with_bad_block = inode;
    BOOST_TEST(run_until_complete(*shard, read(96)) == 4000);
    BOOST_TEST(run_until_complete(*shard, read(4096)) == -EIO);
    with_bad_block = 0;
    BOOST_TEST(run_until_complete(*shard, read(4096)) == 100'000);
}

// Mounts beneath one export differ.
BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_read_without_waiting_stops_no_other)
{
    exported e;
    auto& [directory, shard, pool, fs, r] = e;
    std::array<std::byte, 4> memory{};
    const auto read = [&](const handle& f) -> task<bool> {
        const auto done = co_await (*fs)->read(r, f, 0, memory);
        co_return done && done->count == 4;
    };
    without_nowait = e.make("slow", 4, "data");
    e.make("quick", 4, "data");
    handle slow;
    handle quick;
    BOOST_REQUIRE(run_until_complete(*shard, errno_of_lookup(**fs, r, "slow", slow)) == 0);
    BOOST_REQUIRE(run_until_complete(*shard, errno_of_lookup(**fs, r, "quick", quick)) == 0);
    nowait_reads = 0;
    BOOST_TEST(run_until_complete(*shard, read(slow)));
    BOOST_TEST(nowait_reads == 1u);
    the_clock.advance(longest_rest);
    BOOST_TEST(run_until_complete(*shard, read(slow)));
    BOOST_TEST(nowait_reads == 1u);
    BOOST_TEST(run_until_complete(*shard, read(quick)));
    BOOST_TEST(nowait_reads == 2u);
    without_nowait = 0;
}

// A disk that lets whoever begins a read wait holds a shard up now and then, not at every READ.
BOOST_AUTO_TEST_CASE(a_disk_that_held_the_shard_up_is_left_to_the_pool_for_a_while)
{
    exported e;
    auto& [directory, shard, pool, fs, r] = e;
    // How many of its reads a shard tried to begin for a READ of a file that was never in memory.
    unsigned files = 0;
    const auto tried = [&] {
        const std::string name = std::to_string(++files);
        e.make(name.c_str(), 10'000);
        handle file;
        BOOST_REQUIRE(run_until_complete(*shard, errno_of_lookup(**fs, r, name.c_str(), file)) == 0);
        std::vector<std::byte> memory(10'000, std::byte('x'));
        const auto read = [&]() -> task<bool> {
            const auto done = co_await (*fs)->read(r, file, 0, memory);
            co_return done && done->count == memory.size();
        };
        nowait_reads = 0;
        BOOST_TEST(run_until_complete(*shard, read()));
        BOOST_TEST(std::ranges::count(memory, std::byte(0)) == 10'000);
        return nowait_reads;
    };
    // Kernels that do not tell what is in memory are older than those that begin reads then.
    const unsigned resting = kernel_says_what_is_in_memory() ? 0 : 1;
    the_clock.advance(longest_rest);
    nothing_is_here = true;
    for (int i = 0; i < 3; ++i) {
        stall_of_nowait = 4ms; // which is no stall
        BOOST_TEST(tried() == 1u);
        stall_of_nowait = 100ms; // longer than a thread is kept from its processor
        BOOST_TEST(tried() == 1u);
        BOOST_TEST(tried() == resting);
        the_clock.advance(9'900ms);
        BOOST_TEST(tried() == resting);
        the_clock.advance(200ms); // a hundred times the stall is over
    }
    nothing_is_here = false;
}

#ifndef VERBENA_TEST_ALLOCATION_HOOKS
// Without a sanitizer alone: the round before has the pool close a descriptor, and its answer may come within this round where all is slow.
BOOST_AUTO_TEST_CASE(what_is_not_in_the_page_cache_takes_no_thread_of_the_pool)
{
    exported e;
    auto& [directory, shard, pool, fs, r] = e;
    std::string data(60'003, 0);
    for (std::size_t n = 0; n < data.size(); ++n)
        data[n] = char(n * 7 + n / 4096);
    e.make("cold", data.size(), data);
    handle file;
    BOOST_REQUIRE(run_until_complete(*shard, errno_of_lookup(**fs, r, "cold", file)) == 0);
    std::string memory(data.size() + 100, 0);
    const auto read = [&]() -> task<bool> {
        const auto done = co_await (*fs)->read(r, file, 0, std::as_writable_bytes(std::span(memory)));
        co_return done && done->count == data.size() && done->end_of_file&& memory.starts_with(data);
    };
    BOOST_TEST(run_until_complete(*shard, read())); // opens it
    nothing_is_here = true;
    for (int round = 0; round < 3; ++round) {
        the_clock.advance(longest_rest);
        std::ranges::fill(memory, 0);
        const std::uint64_t before = shard->stats().remote_messages.load();
        BOOST_TEST(run_until_complete(*shard, read()));
        BOOST_TEST(shard->stats().remote_messages.load() == before);
    }
    nothing_is_here = false;
}
#endif

// The kernel may do less than it was asked to, and a disk may fill up: what was done is told to the octet.
BOOST_AUTO_TEST_CASE(reads_and_writes_in_parts)
{
    constexpr std::size_t size = 100'000;
    for (const std::string& where : {in_memory, on_disk}) {
        exported e(where);
        auto& [directory, shard, pool, fs, r] = e;
        e.make("f", 0);
        handle f;
        BOOST_REQUIRE(run_until_complete(*shard, errno_of_lookup(**fs, r, "f", f)) == 0);
        std::vector<std::byte> data(size);
        for (std::size_t n = 0; n < size; ++n)
            data[n] = std::byte(n * 7 + n / 251);
        // Pieces whose ends meet those of the parts, and that do not.
        std::vector<std::span<const std::byte>> pieces;
        for (std::size_t at = 0, n = 0; at < size; at += pieces.back().size(), ++n)
            pieces.push_back(
                std::span(data).subspan(at, std::min(size - at, n % 3 == 0 ? 1000 : 7 + n * 301)));
        const auto write = [&](std::uint64_t offset) -> task<std::int64_t> {
            const auto done = co_await (*fs)->write(r, f, offset, pieces, stability::unstable);
            co_return done ? std::int64_t(done->count) : -std::int64_t(done.error().errno_value());
        };
        const auto reads_back = [&](std::uint64_t offset, std::size_t expected) -> task<bool> {
            std::vector<std::byte> memory(size + 10);
            const auto done = co_await (*fs)->read(r, f, offset, memory);
            co_return done && done->count == expected &&
                done->end_of_file&& std::equal(data.begin(), data.begin() + std::ptrdiff_t(expected),
                                               memory.begin());
        };
        for (const bool by_pool : {false, true}) {
            for (const std::size_t most : {std::size_t(1000), std::size_t(1001), std::size_t(65536)}) {
                BOOST_TEST_CONTEXT(where << ", " << most << " at once, by the pool: " << by_pool)
                {
                    the_clock.advance(longest_rest);
                    most_at_once = 0;
                    if (by_pool) { // one that stalls sends the next there
                        stall_of_write = 6ms;
                        BOOST_TEST(run_until_complete(*shard, write(0)) == std::int64_t(size));
                        stall_of_nowait = 6ms;
                        nothing_is_here = true;
                        BOOST_TEST(run_until_complete(*shard, reads_back(0, size)));
                    }
                    most_at_once = most;
                    BOOST_TEST(run_until_complete(*shard, write(3)) == std::int64_t(size));
                    BOOST_TEST(run_until_complete(*shard, reads_back(3, size)));
                    nothing_is_here = false;
                    stall_of_nowait = stall_of_write = duration();
                    room_left = 54'321;
                    BOOST_TEST(run_until_complete(*shard, write(size)) == 54'321);
                    BOOST_TEST(run_until_complete(*shard, write(size)) == -ENOSPC);
                    room_left = ~std::size_t(0);
                    BOOST_REQUIRE(std::filesystem::file_size(directory.path() / "f") == size + 54'321);
                    BOOST_TEST(run_until_complete(*shard, reads_back(size, 54'321)));
                    std::filesystem::resize_file(directory.path() / "f", 0);
                }
            }
        }
        most_at_once = 0;
    }
}
