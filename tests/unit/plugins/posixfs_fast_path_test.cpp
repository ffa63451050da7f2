// SPDX-License-Identifier: Apache-2.0
// What steady state costs in posixfs: no heap allocation, and one sync for many.
#include <boost/test/unit_test.hpp>

#include "../../../plugins/posixfs/sync_group.hpp"
#include "../allocation_count.hpp"
#include "daemon_in_child.hpp"
#include "needs_root.hpp"
#include "temporary_directory.hpp"

#include <verbena/core/frame_pool.hpp>
#include <verbena/core/scope.hpp>
#include <verbena/plugins/posixfs.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <fcntl.h>
#include <iterator>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
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
using verbena::test::allocations;

namespace {

std::unique_ptr<reactor> make_reactor()
{
    auto r = reactor::create();
    BOOST_REQUIRE_MESSAGE(r, (r ? std::string() : r.error().message()));
    return std::move(*r);
}

// A new folder as an export, and a request of the test's user.
struct exported {
    explicit exported(const std::string& where = {}, bool crossmnt = false)
        : directory(where), fs(open(directory, pool, crossmnt))
    {
        BOOST_REQUIRE(fs);
        r.who = credential(::geteuid(), ::getegid());
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

// As after some work, also of the rarer ways: what a busy machine or disk sends to the pool has frames of other sizes.
void keep_frames_of_each_size()
{
    constexpr std::size_t largest = 4096;
    std::vector<std::pair<void*, std::size_t>> frames;
    for (std::size_t size = 64; size <= largest; size += 64) {
        for (int i = 0; i < 4; ++i)
            frames.emplace_back(allocate_frame(size), size);
    }
    for (auto [frame, size] : frames)
        release_frame(frame, size);
}

task<std::uint64_t> allocations_of_steady_state(file_backend& fs)
{
    request r;
    r.who = credential(::geteuid(), ::getegid());
    set_attributes set;
    set.mode = 0600;
    auto made = co_await fs.create(r, fs.root(), "f", create_mode::guarded, set, 0);
    if (!made)
        co_return ~std::uint64_t(0);
    const handle f = made->made.handle;
    std::vector<std::byte> memory(4096);
    const std::span<const std::byte> piece(memory);
    std::uint64_t before = 0;
    for (int i = 0; i < 200; ++i) {
        if (i == 100) {
            keep_frames_of_each_size();
            before = allocations.load();
        }
        auto w = co_await fs.write(r, f, 0, std::span(&piece, 1), stability::unstable);
        auto n = co_await fs.read(r, f, 0, memory);
        auto where = co_await fs.locate(r, f, 0, 4096);
        auto a = co_await fs.getattr(r, f);
        auto l = co_await fs.lookup(r, fs.root(), "f");
        auto x = co_await fs.access(r, f, R_OK | W_OK);
        if (!w || !n || n->count != 4096 || !a || !l || !x || !where)
            co_return ~std::uint64_t(0);
    }
    co_return allocations.load() - before;
}

task<void> one_sync(posixfs::sync_group& group, int fd, std::uint64_t inode, int& failed)
{
    auto done = co_await group.sync(posixfs::sync_group::what::metadata, fd, 1, inode);
    failed += done ? 0 : 1;
}

std::atomic<pid_t> truncated_by{0};
std::atomic<bool> truncates_slowly{false};
std::atomic<int> truncating{0};
std::atomic<int> most_truncating{0};
std::atomic<bool> syncs_wait{false};
ino_t without_nowait = 0;
ino_t with_bad_block = 0; // behind its first 4,096 octets
ino_t slow_to_begin = 0;
unsigned nowait_reads = 0;

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
    while (syncs_wait)
        ::usleep(1'000);
    return int(::syscall(SYS_fsync, fd));
}

BOOST_AUTO_TEST_CASE(what_cuts_much_off_is_not_done_on_the_shard)
{
    exported e("/dev/shm");
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
    exported e({}, true);
    auto& [directory, shard, pool, fs, r] = e;
    auto all = [&]() -> task<void> {
        auto made = co_await (*fs)->create(r, (*fs)->root(), "f", create_mode::guarded, {}, 0);
        BOOST_REQUIRE(made);
        const task_context& context = co_await current_context();
        most_truncating = 0;
        truncates_slowly = true;
        scope s(*context.shard);
        s.spawn(resize(**fs, r, made->made.handle, made->made.attrs->ctime));
        s.spawn(resize(**fs, r, made->made.handle, std::nullopt));
        co_await s.join();
    };
    run_until_complete(*shard, all());
    truncates_slowly = false;
    BOOST_TEST(most_truncating == 1);
}

BOOST_AUTO_TEST_CASE(steady_state_allocates_nothing)
{
    exported e;
    auto& [directory, shard, pool, fs, r] = e;
    BOOST_TEST(run_until_complete(*shard, allocations_of_steady_state(**fs)) == 0u);
}

BOOST_AUTO_TEST_CASE(one_sync_serves_all_who_wait)
{
    suite::temporary_directory directory;
    const int fd = ::open(directory.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    BOOST_REQUIRE(fd >= 0);
    auto shard = make_reactor();
    blocking_pool pool(2);
    posixfs::sync_group group(pool);
    int failed = 0;
    auto all = [&]() -> task<void> {
        const task_context& context = co_await current_context();
        syncs_wait = true;
        scope s(*context.shard);
        for (int i = 0; i < 200; ++i)
            s.spawn(one_sync(group, fd, 7, failed));
        syncs_wait = false;
        co_await s.join();
    };
    run_until_complete(*shard, all());
    BOOST_TEST(failed == 0);
    // One that may have begun when the last came, and one for all who came while it ran.
    BOOST_TEST(group.rounds() >= 1u);
    BOOST_TEST(group.rounds() <= 2u);
    ::close(fd);
}

BOOST_AUTO_TEST_CASE(a_failed_sync_fails_all_who_wait)
{
    auto shard = make_reactor();
    blocking_pool pool(2);
    posixfs::sync_group group(pool);
    int failed = 0;
    auto all = [&]() -> task<void> {
        const task_context& context = co_await current_context();
        scope s(*context.shard);
        for (int i = 0; i < 50; ++i)
            s.spawn(one_sync(group, -1, 7, failed));
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
    auto there = co_await fs.locate(r, file, offset, count);
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
    exported e;
    auto& [directory, shard, pool, fs, r] = e;
    const std::string path = (directory.path() / "f").string();
    const std::string text(100'000, 't');
    const int fd = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
    BOOST_REQUIRE(fd >= 0);
    BOOST_REQUIRE(::write(fd, text.data(), text.size()) == ssize_t(text.size()));
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
    const auto part = locate(50'000, 65536);
    if (!kernel_says_what_is_in_memory()) { // then nothing is ever sent from the page cache
        BOOST_TEST(!part.here);
        BOOST_TEST(!locate(0, 10).here);
        ::close(fd);
        return;
    }
    BOOST_TEST_REQUIRE(part.here);
    BOOST_TEST(part.bytes.size == 50'000u);
    BOOST_TEST(part.read.count == 50'000u);
    BOOST_TEST(part.read.end_of_file);
    std::string seen(50'000, 0);
    BOOST_TEST(::pread(part.bytes.fd, seen.data(), seen.size(), off_t(part.bytes.offset)) == 50'000);
    BOOST_TEST((seen == text.substr(50'000)));
    BOOST_TEST(!locate(0, 99'999).read.end_of_file);
    BOOST_TEST(!locate(100'000, 65536).here);

    // What isn't in memory would hold the shard.
    BOOST_REQUIRE(::fsync(fd) == 0);
    struct statfs where{};
    BOOST_REQUIRE(::fstatfs(fd, &where) == 0);
    // tmpfs has no other place for it.
    if (where.f_type != TMPFS_MAGIC && ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0)
        BOOST_TEST(!locate(0, 65536).here);
    // A change of rights sends it the way that asks the kernel.
    run_until_complete(*shard, read());
    BOOST_REQUIRE(::fchmod(fd, 0600) == 0);
    BOOST_TEST(!locate(0, 10).here);
    ::close(fd);
}

// The filter of a service refuses what it doesn't know by an errno of its owner's choice.
BOOST_AUTO_TEST_CASE(a_refused_cachestat_is_not_asked_again)
{
    for (const unsigned answer : {EPERM, EACCES, ENOSYS}) {
        suite::temporary_directory directory;
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
            const auto where = s.run(s.fs->locate(r, made->made.handle, 0, 1));
            struct statfs st{};
            suite::check(::statfs(directory.path().c_str(), &st) == 0, "statfs");
            suite::check(where && where->here == (st.f_type == TMPFS_MAGIC),
                         "nothing is sent from the page cache");
        });
    }
}

bool in_memory(const std::filesystem::path& directory)
{
    struct statfs where{};
    BOOST_REQUIRE(::statfs(directory.c_str(), &where) == 0);
    return where.f_type == TMPFS_MAGIC;
}

// In place of libc's: of one file, as of a file system that knows no flags.
extern "C" ssize_t preadv2(int fd, const iovec* vectors, int count, off_t offset, int flags)
{
    struct stat st{};
    ++nowait_reads;
    if (::fstat(fd, &st) == 0 && st.st_ino == without_nowait) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (slow_to_begin != 0 && st.st_ino == slow_to_begin) {
        std::this_thread::sleep_for(std::chrono::milliseconds(6));
        errno = EAGAIN;
        return -1;
    }
    if (with_bad_block != 0 && st.st_ino == with_bad_block) {
        iovec first = vectors[0];
        first.iov_len = offset < 4096 ? std::min<std::size_t>(first.iov_len, 4096 - std::size_t(offset)) : 0;
        errno = EAGAIN;
        return first.iov_len == 0 ? -1 : ::syscall(SYS_preadv2, fd, &first, 1L, long(offset), 0L, 0L);
    }
    return ::syscall(SYS_preadv2, fd, vectors, long(count), long(offset), 0L, long(flags));
}
extern "C" ssize_t pread(int fd, void* to, std::size_t size, off_t offset)
{
    struct stat st{};
    if (with_bad_block != 0 && ::fstat(fd, &st) == 0 && st.st_ino == with_bad_block) {
        errno = EIO;
        return -1;
    }
    return ::syscall(SYS_pread64, fd, to, size, long(offset));
}

BOOST_AUTO_TEST_CASE(what_lies_before_a_bad_block_is_told)
{
    exported e;
    auto& [directory, shard, pool, fs, r] = e;
    if (in_memory(directory.path())) // reads of tmpfs wait for no disk, and are not made this way
        return;
    const int fd = ::open((directory.path() / "bad").c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
    BOOST_REQUIRE(fd >= 0);
    BOOST_REQUIRE(::ftruncate(fd, 200'000) == 0);
    struct stat st{};
    BOOST_REQUIRE(::fstat(fd, &st) == 0);
    ::close(fd);
    handle file;
    BOOST_REQUIRE(run_until_complete(*shard, errno_of_lookup(**fs, r, "bad", file)) == 0);
    std::vector<std::byte> memory(100'000);
    // What was read, or the negative errno.
    const auto read = [&](std::uint64_t offset) -> task<int> {
        const auto done = co_await (*fs)->read(r, file, offset, memory);
        co_return done ? int(done->count) : -done.error().code().value();
    };
    with_bad_block = st.st_ino;
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
    handle slow;
    handle quick;
    for (const auto& [name, file] : {std::pair("slow", &slow), std::pair("quick", &quick)}) {
        const std::string path = directory.path() / name;
        const int fd = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
        BOOST_REQUIRE(::write(fd, "data", 4) == 4);
        struct stat st{};
        BOOST_REQUIRE(::fstat(fd, &st) == 0);
        without_nowait = without_nowait == 0 ? st.st_ino : without_nowait;
        ::close(fd);
        BOOST_REQUIRE(run_until_complete(*shard, errno_of_lookup(**fs, r, name, *file)) == 0);
    }
    BOOST_TEST(run_until_complete(*shard, read(slow)));
    nowait_reads = 0;
    BOOST_TEST(run_until_complete(*shard, read(slow)));
    BOOST_TEST(nowait_reads == 0u);
    const bool memory_only = in_memory(directory.path()); // of tmpfs everything is at hand
    // A shard that was held up leaves the disk alone for a while.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    do
        BOOST_TEST(run_until_complete(*shard, read(quick)));
    while (!memory_only && nowait_reads == 0 && std::chrono::steady_clock::now() < end);
    BOOST_TEST(nowait_reads == (memory_only ? 0u : 1u));
    without_nowait = 0;
}

// A disk that lets whoever begins a read wait holds a shard up now and then, not at every READ.
BOOST_AUTO_TEST_CASE(a_disk_that_held_the_shard_up_is_left_to_the_pool_for_a_while)
{
    exported e;
    auto& [directory, shard, pool, fs, r] = e;
    if (in_memory(directory.path())) // there is no disk
        return;
    const std::string text(10'000, 't');
    const int fd = ::open((directory.path() / "slow").c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
    BOOST_REQUIRE(fd >= 0);
    BOOST_REQUIRE(::write(fd, text.data(), text.size()) == ssize_t(text.size()));
    BOOST_REQUIRE(::fsync(fd) == 0);
    struct stat st{};
    BOOST_REQUIRE(::fstat(fd, &st) == 0);
    handle file;
    BOOST_REQUIRE(run_until_complete(*shard, errno_of_lookup(**fs, r, "slow", file)) == 0);
    std::string memory;
    // How many of its reads a shard tried to begin for a READ of what is not in memory; true if it is, after all.
    const auto tried = [&](unsigned& times) {
        ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        const bool here = run_until_complete(*shard, located(**fs, r, file, 0, 10'000)).here;
        nowait_reads = 0;
        memory.assign(text.size(), 0);
        const auto read = [&]() -> task<bool> {
            const auto done = co_await (*fs)->read(r, file, 0, std::as_writable_bytes(std::span(memory)));
            co_return done && done->count == text.size();
        };
        BOOST_TEST(run_until_complete(*shard, read()));
        BOOST_TEST((memory == text));
        times = nowait_reads;
        return here;
    };
    slow_to_begin = st.st_ino;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const auto late = [&] { return std::chrono::steady_clock::now() >= end; };
    // Begins one, which holds the shard up; then another, while the disk should rest. False if that came too late.
    const auto rested = [&] {
        unsigned times = 0;
        auto begun = end;
        bool here = true; // then it is tried at any time
        while ((here || times == 0) && !late()) {
            begun = std::chrono::steady_clock::now();
            here = tried(times);
        }
        BOOST_TEST((times == 1u || late()));
        here = tried(times);
        if (std::chrono::steady_clock::now() - begun > std::chrono::milliseconds(500))
            return false;
        BOOST_TEST((here || times == 0u));
        return true;
    };
    int seen = 0; // twice: after a rest reads are begun again
    while (seen < 2 && !late())
        seen += rested();
    BOOST_TEST_WARN(seen == 2, "the disk is too slow to tell");
    slow_to_begin = 0;
    ::close(fd);
}

BOOST_AUTO_TEST_CASE(what_is_not_in_the_page_cache_takes_no_thread_of_the_pool)
{
    exported e;
    auto& [directory, shard, pool, fs, r] = e;
    const std::string path = (directory.path() / "cold").string();
    const int fd = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
    BOOST_REQUIRE(fd >= 0);
    std::vector<std::byte> data(60'003);
    for (std::size_t n = 0; n < data.size(); ++n)
        data[n] = std::byte(n * 7 + n / 4096);
    BOOST_REQUIRE(::write(fd, data.data(), data.size()) == ssize_t(data.size()));
    BOOST_REQUIRE(::fsync(fd) == 0);
    // Other file systems' reads go to the pool.
    iovec one{data.data(), 1};
    const bool by_ring = ::preadv2(fd, &one, 1, 0, RWF_NOWAIT) == 1;
    handle file;
    BOOST_REQUIRE(run_until_complete(*shard, errno_of_lookup(**fs, r, "cold", file)) == 0);
    std::vector<std::byte> memory(data.size() + 100);
    const auto read = [&]() -> task<bool> {
        const auto done = co_await (*fs)->read(r, file, 0, memory);
        co_return done && done->count == data.size() &&
            done->end_of_file&& std::equal(data.begin(), data.end(), memory.begin());
    };
    BOOST_TEST(run_until_complete(*shard, read())); // opens it
    auto longest = std::chrono::steady_clock::duration::zero();
    for (int round = 0; round < 3; ++round) {
        BOOST_REQUIRE(::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
        std::ranges::fill(memory, std::byte{});
        const std::uint64_t before = shard->stats().remote_messages.load();
        const auto begun = std::chrono::steady_clock::now();
        BOOST_TEST(run_until_complete(*shard, read()));
        longest = std::max(longest, std::chrono::steady_clock::now() - begun);
        // What held the shard up for 5 ms, if only by the scheduler, may leave the disk to the pool.
        BOOST_TEST((shard->stats().remote_messages.load() == before || !by_ring ||
                    longest >= std::chrono::milliseconds(5)));
    }
    ::close(fd);
}
