// SPDX-License-Identifier: Apache-2.0
// How long posixfs keeps files open that nobody uses, on a clock of the test's own.
#include "backend_fixture.hpp"
#include "clock_by_hand.hpp"
#include "needs_root.hpp"
#include "temporary_directory.hpp"

#include <verbena/plugins/posixfs.hpp>

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

namespace {

// Caches have places by how many descriptors there may be.
const int raised = [] {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::max(limit.rlim_cur, std::min<rlim_t>(limit.rlim_max, 65536));
    return ::setrlimit(RLIMIT_NOFILE, &limit);
}();

int refused_with = 0;
std::mutex to_be_told_mutex;
std::set<int> to_be_told; // descriptors that were open when write-back failed, and have not heard of it

bool is_told(int fd)
{
    std::lock_guard lock(to_be_told_mutex);
    errno = EIO;
    return to_be_told.erase(fd) != 0;
}

} // namespace

// In place of libc's.
extern "C" int sync_file_range(int fd, off64_t offset, off64_t count, unsigned flags)
{
    if (refused_with != 0) {
        errno = refused_with;
        return -1;
    }
    return is_told(fd) ? -1 : int(::syscall(SYS_sync_file_range, fd, offset, count, flags));
}
extern "C" int fdatasync(int fd) { return is_told(fd) ? -1 : 0; }
extern "C" int close(int fd)
{
    {
        std::lock_guard lock(to_be_told_mutex);
        to_be_told.erase(fd);
    }
    return int(::syscall(SYS_close, fd));
}

namespace suite {

namespace {

/// In memory, where shards make changes themselves, and on a disk.
const char* const places[] = {"/dev/shm", "/var/tmp"};

struct on_own_clock {
    explicit on_own_clock(const char* place, std::size_t cached_files = 0) : where(place)
    {
        reactor_options o;
        o.clock = &clock;
        auto made = reactor::create(o);
        BOOST_REQUIRE(made);
        tested.shard = std::move(*made);
        posixfs::posixfs_options files;
        files.root = where.path();
        files.cached_files = cached_files;
        auto opened = posixfs::open_posixfs(files, tested.pool);
        BOOST_REQUIRE_MESSAGE(opened, (opened ? std::string() : opened.error().message()));
        tested.fs = std::move(*opened);
    }
    void pass(int seconds)
    {
        for (; seconds > 0; --seconds) {
            clock.advance(std::chrono::seconds(1));
            tested.shard->turn();
        }
    }
    std::string path(const char* name) const { return (where.path() / name).string(); }
    /// Descriptors of `file`, of those open for writing if so asked.
    std::size_t open_here(const std::string& file, bool for_writing) const
    {
        std::size_t n = 0;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code gone;
            if (std::filesystem::read_symlink(entry.path(), gone) != file)
                continue;
            const int flags = ::fcntl(std::stoi(entry.path().filename()), F_GETFL);
            n += !for_writing || ((flags & O_PATH) == 0 && (flags & O_ACCMODE) != O_RDONLY) ? 1 : 0;
        }
        return n;
    }
    /// The kernel's write-back of `file` fails, and whoever opens it from now on hears nothing of that, as somebody local has.
    void fail_write_back(const char* file) const
    {
        std::lock_guard lock(to_be_told_mutex);
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code gone;
            const int fd = std::stoi(entry.path().filename());
            const int flags = ::fcntl(fd, F_GETFL);
            if (std::filesystem::read_symlink(entry.path(), gone) == path(file) && (flags & O_PATH) == 0)
                to_be_told.insert(fd);
        }
    }
    /// Those open for writing once the pool has closed what it was given.
    std::size_t open_after_all(const std::string& file) const
    {
        std::size_t n = 0;
        for (int i = 0; i < 10'000 && (n = open_here(file, true)) != 0; ++i)
            ::usleep(1000);
        return n;
    }
    handle write_program(const char* name)
    {
        std::ifstream from("/bin/true", std::ios::binary);
        const std::string program(std::istreambuf_iterator<char>(from), {});
        return tested.make_file(name, program, 0755);
    }
    /// 0, or why it can't be run.
    int run(const char* name) const
    {
        const std::string file = path(name);
        char* arguments[] = {const_cast<char*>(file.c_str()), nullptr};
        char* environment[] = {nullptr};
        pid_t child = 0;
        const int failed = ::posix_spawn(&child, file.c_str(), nullptr, nullptr, arguments, environment);
        int status = 0;
        if (failed == 0)
            BOOST_TEST(::waitpid(child, &status, 0) == child);
        return failed != 0 ? failed : status;
    }

    clock_by_hand clock;
    temporary_directory where;
    fixture tested{};
};

} // namespace

std::unique_ptr<file_backend> make_backend(blocking_pool& pool, const backend_options&)
{
    static temporary_directory unused;
    posixfs::posixfs_options o;
    o.root = unused.path();
    return std::move(*posixfs::open_posixfs(o, pool));
}

} // namespace suite

using namespace suite;

BOOST_DATA_TEST_CASE(a_program_can_be_run_soon_after_it_was_written, boost::unit_test::data::make(places),
                     place)
{
    on_own_clock w(place);
    const handle f = w.write_program("program");
    BOOST_TEST(w.run("program") == ETXTBSY);
    w.pass(1);
    BOOST_TEST(w.open_here(w.path("program"), true) >= 1u);
    w.pass(1);
    BOOST_TEST(w.open_after_all(w.path("program")) == 0u);
    BOOST_TEST(w.run("program") == 0);
    // What is open for nothing else stays, and all goes on working.
    BOOST_TEST(w.open_here(w.path("program"), false) >= 1u);
    BOOST_TEST(w.tested.stat(f).mode == 0755u);
    w.tested.put(w.tested.me, f, 0, "#!");
    BOOST_TEST(w.tested.get(w.tested.me, f, 0, 2) == "#!");
    w.tested.must(w.tested.fs->commit(w.tested.me, f, 0, 0));
    BOOST_TEST(w.open_here(w.path("program"), true) >= 1u);
    w.pass(2);
    BOOST_TEST(w.open_after_all(w.path("program")) == 0u);
    w.tested.must(w.tested.fs->commit(w.tested.me, f, 0, 0));
}

BOOST_DATA_TEST_CASE(a_file_in_use_stays_open, boost::unit_test::data::make(places), place)
{
    on_own_clock w(place);
    const handle f = w.tested.make_file("f", "x");
    for (int i = 0; i < 5; ++i) {
        w.pass(1);
        BOOST_TEST(w.open_here(w.path("f"), true) >= 1u);
        w.tested.put(w.tested.me, f, 0, "y");
    }
}

BOOST_DATA_TEST_CASE(a_file_that_somebody_local_removes_is_let_go, boost::unit_test::data::make(places),
                     place)
{
    on_own_clock w(place);
    const handle written = w.tested.make_file("written", "x");
    std::ofstream(w.path("read")) << "x";
    const handle read = w.tested.find(w.tested.fs->root(), "read");
    BOOST_TEST(w.tested.get(w.tested.me, read) == "x");
    for (const char* name : {"written", "read"}) {
        BOOST_TEST(w.open_here(w.path(name), false) >= 1u);
        BOOST_REQUIRE(::unlink(w.path(name).c_str()) == 0);
    }
    w.pass(2);
    for (const char* name : {"written", "read"}) {
        for (int i = 0; i < 10'000 && w.open_here(w.path(name) + " (deleted)", false) != 0; ++i)
            ::usleep(1000);
        BOOST_TEST(w.open_here(w.path(name) + " (deleted)", false) == 0u);
    }
    for (const handle& f : {written, read})
        BOOST_TEST(w.tested.fails(w.tested.fs->getattr(w.tested.me, f)) == ESTALE);
}

// To look at one takes most of a microsecond, and a shard has others to serve.
BOOST_AUTO_TEST_CASE(a_shard_looks_at_so_many_files_in_a_second)
{
    BOOST_TEST_REQUIRE(raised == 0);
    on_own_clock w("/dev/shm", 4096);
    for (int i = 0; i < 2400; ++i) {
        const std::string name = std::to_string(i);
        std::ofstream(w.path(name.c_str())) << "x";
        w.tested.find(w.tested.fs->root(), name);
        BOOST_REQUIRE(::unlink(w.path(name.c_str()).c_str()) == 0);
    }
    const auto held = [] {
        std::size_t n = 0;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code gone;
            n += std::filesystem::read_symlink(entry.path(), gone).native().ends_with(" (deleted)") ? 1 : 0;
        }
        return n;
    };
    BOOST_TEST(held() == 2400u);
    for (const std::size_t left : {1370u, 340u, 0u}) {
        w.pass(1);
        BOOST_TEST(held() >= left); // those of a place are looked at together
    }
    w.pass(1);
    BOOST_TEST(held() == 0u);
}

// The descriptor that goes would have told a COMMIT that what it wrote is lost.
BOOST_DATA_TEST_CASE(an_error_that_goes_with_a_descriptor_changes_the_verifier,
                     boost::unit_test::data::make(places), place)
{
    on_own_clock w(place);
    w.tested.make_file("f", "x");
    const auto before = w.tested.fs->write_verifier();
    w.pass(2);
    BOOST_TEST(w.tested.fs->write_verifier() == before);
    w.tested.make_file("g", "x");
    refused_with = EIO;
    w.pass(2);
    refused_with = 0;
    BOOST_TEST(w.open_after_all(w.path("g")) == 0u);
    BOOST_TEST(w.tested.fs->write_verifier() != before);
}

namespace {

/// A file that was written unstably, whose descriptor for writing has gone.
struct written_and_closed : on_own_clock {
    written_and_closed() : on_own_clock("/var/tmp"), file(tested.make_file("f", "x", 0666))
    {
        pass(2);
        BOOST_TEST_REQUIRE(open_after_all(path("f")) == 0u);
    }
    std::uint64_t verifier() { return tested.fs->write_verifier(); }
    handle file;
    const std::uint64_t before = verifier();
};

} // namespace

// The kernel writes back 5 to 35 s after a WRITE, and tells an error to the descriptors that were open then.
BOOST_AUTO_TEST_CASE(an_error_after_a_descriptor_went_is_told_to_commit)
{
    written_and_closed w;
    w.fail_write_back("f");
    BOOST_TEST(w.tested.fails(w.tested.fs->commit(w.tested.me, w.file, 0, 0)) == EIO);
    BOOST_TEST(w.verifier() != w.before);
}

BOOST_AUTO_TEST_CASE(an_error_before_the_next_write_is_told)
{
    written_and_closed w;
    w.fail_write_back("f");
    w.tested.put(w.tested.me, w.file, 0, "y");
    w.tested.must(w.tested.fs->commit(w.tested.me, w.file, 0, 0));
    BOOST_TEST(w.verifier() != w.before);
}

BOOST_AUTO_TEST_CASE(an_error_is_told_when_the_file_leaves_the_cache)
{
    written_and_closed w;
    w.fail_write_back("f");
    w.pass(61);
    BOOST_TEST(w.open_here(w.path("f"), false) == 0u);
    BOOST_TEST(w.verifier() != w.before);
}

BOOST_AUTO_TEST_CASE(an_error_is_told_when_others_take_the_place_of_who_wrote)
{
    needs_root("to write as others");
    on_own_clock w("/var/tmp");
    const handle f = w.tested.make_file("f", "x", 0666);
    const auto before = w.tested.fs->write_verifier();
    w.fail_write_back("f");
    for (unsigned uid = 1000; uid < 1008; ++uid)
        BOOST_TEST(w.tested.get(suite::user(uid, uid), f) == "x");
    BOOST_TEST(w.tested.fs->write_verifier() != before);
}

BOOST_AUTO_TEST_CASE(an_error_of_what_one_wrote_is_told_when_another_commits)
{
    needs_root("to write as others");
    on_own_clock w("/var/tmp");
    const handle f = w.tested.make_file("f", "x", 0666);
    const auto before = w.tested.fs->write_verifier();
    w.fail_write_back("f");
    const request other = suite::user(1000, 1000);
    w.tested.put(other, f, 0, "y");
    w.tested.must(w.tested.fs->commit(other, f, 0, 0));
    BOOST_TEST(w.tested.fs->write_verifier() != before);
}

// What a COMMIT has on the disk needs nobody who would hear of it.
BOOST_AUTO_TEST_CASE(what_is_committed_is_kept_open_for_nothing)
{
    on_own_clock w("/var/tmp");
    const handle f = w.tested.make_file("f", "x");
    w.tested.must(w.tested.fs->commit(w.tested.me, f, 0, 0));
    w.pass(2);
    BOOST_TEST(w.open_after_all(w.path("f")) == 0u);
    BOOST_TEST(w.open_here(w.path("f"), false) == 1u);
}
