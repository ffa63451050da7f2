// SPDX-License-Identifier: Apache-2.0
// What posixfs has told a client is on the disk, and a disk that fails is told: to the caller, and by the write verifier.
#include <boost/test/unit_test.hpp>

#include "../log_at.hpp"
#include "temporary_directory.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/plugins/posixfs.hpp>
#include <verbena/protocols/nfs/client/v3/client.hpp>
#include <verbena/protocols/nfs/client/v3/file.hpp>
#include <verbena/protocols/nfs/client/v3/mount.hpp>
#include <verbena/protocols/nfs/server/v3/mount.hpp>
#include <verbena/protocols/nfs/server/v3/server.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/protocols/storage/sync_group.hpp>
#include <verbena/transports/loop.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <linux/fs.h>
#include <linux/magic.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace verbena;
using namespace verbena::storage;
using namespace std::chrono_literals;

namespace {

/// What a sync brings to the disk of one file, or of one directory with its names.
struct state {
    mode_t mode = 0;
    uid_t uid = 0;
    off_t size = 0; ///< of a file
    std::pair<std::int64_t, std::int64_t> mtime;
    std::map<std::string, ino_t> names;
    std::string xattrs; ///< their names
    bool operator==(const state&) const = default;
};

// Of threads of the pool too, where Boost.Test's macros may not be used.
void must(bool holds)
{
    if (!holds)
        std::abort();
}

state state_of(int fd)
{
    struct stat st{};
    must(::fstat(fd, &st) == 0);
    state now;
    now.mode = st.st_mode;
    now.uid = st.st_uid;
    now.mtime = {st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
    char names[1000];
    const ssize_t length = ::flistxattr(fd, names, sizeof(names));
    must(length >= 0);
    now.xattrs.assign(names, static_cast<std::size_t>(length));
    if (!S_ISDIR(st.st_mode)) {
        now.size = st.st_size;
        return now;
    }
    for (const auto& e : std::filesystem::directory_iterator("/proc/self/fd/" + std::to_string(fd))) {
        struct stat entry{};
        must(::lstat(e.path().c_str(), &entry) == 0);
        now.names[e.path().filename()] = entry.st_ino;
    }
    return now;
}

/// A disk whose caches tell what they wrote out, and that fails when it is told to.
struct disk {
    std::mutex mutex;
    std::map<ino_t, state> synced; ///< as it was at its last good sync
    bool everything = false;       ///< syncfs() or sync()
    unsigned syncs = 0;
    unsigned fails = 0; ///< which of them, counted from 1; 0 is none
    std::atomic<int> error_of_read{0};
    std::atomic<int> error_of_write{0};
    std::atomic<unsigned> writes{0};
    std::atomic<bool> syncs_wait{false};
    std::atomic<unsigned> syncs_begun{0};

    void reset(unsigned which_fails = 0)
    {
        std::lock_guard lock(mutex);
        synced.clear();
        everything = false;
        syncs = 0;
        fails = which_fails;
    }
    int sync(int fd, bool all, bool data_only)
    {
        ++syncs_begun;
        while (syncs_wait)
            ::usleep(100);
        std::lock_guard lock(mutex);
        if (++syncs == fails) {
            errno = EIO;
            return -1;
        }
        everything = everything || all;
        struct stat st{};
        if (!all && ::fstat(fd, &st) == 0) {
            state now = state_of(fd);
            if (data_only) { // attributes that reading back does not need stay behind
                const auto before = synced.find(st.st_ino);
                const off_t size = now.size;
                now = before != synced.end() ? before->second : state();
                now.size = size;
            }
            synced[st.st_ino] = now;
        }
        return 0;
    }
};

disk the_disk;

} // namespace

// In place of libc's. What they sync need not be on this machine's disk.
extern "C" int fsync(int fd) { return the_disk.sync(fd, false, false); }
extern "C" int fdatasync(int fd) { return the_disk.sync(fd, false, true); }
extern "C" int syncfs(int fd) noexcept { return the_disk.sync(fd, true, false); }
extern "C" void sync() noexcept { the_disk.sync(-1, true, false); }
extern "C" ssize_t pwritev(int fd, const iovec* vectors, int count, off_t offset)
{
    ++the_disk.writes;
    if (the_disk.error_of_write != 0) {
        errno = the_disk.error_of_write;
        return -1;
    }
    return ::syscall(SYS_pwritev, fd, vectors, long(count), long(offset), 0L);
}
extern "C" ssize_t preadv2(int fd, const iovec* vectors, int count, off_t offset, int flags)
{
    if (the_disk.error_of_read != 0) {
        errno = the_disk.error_of_read;
        return -1;
    }
    return ::syscall(SYS_preadv2, fd, vectors, long(count), long(offset), 0L, long(flags));
}
extern "C" ssize_t pread(int fd, void* to, std::size_t size, off_t offset)
{
    if (the_disk.error_of_read != 0) {
        errno = the_disk.error_of_read;
        return -1;
    }
    return ::syscall(SYS_pread64, fd, to, size, long(offset));
}

extern "C" int ioctl(int fd, unsigned long what, ...) noexcept
{
    va_list rest;
    va_start(rest, what);
    auto* const argument = va_arg(rest, void*);
    va_end(rest);
    if (what != FICLONERANGE)
        return int(::syscall(SYS_ioctl, fd, what, argument));
    // Few file systems can: here a clone is a copy.
    const auto& range = *static_cast<const file_clone_range*>(argument);
    auto from = static_cast<off64_t>(range.src_offset);
    auto to = static_cast<off64_t>(range.dest_offset);
    const std::uint64_t length = range.src_length != 0 ? range.src_length : 1 << 20;
    return ::copy_file_range(int(range.src_fd), &from, fd, &to, length, 0) < 0 ? -1 : 0;
}

namespace {

void require_a_disk(const suite::temporary_directory& directory)
{
    struct statfs on{};
    BOOST_REQUIRE(::statfs(directory.path().c_str(), &on) == 0);
    BOOST_REQUIRE_MESSAGE(on.f_type != TMPFS_MAGIC, "/var/tmp is in memory: put it on a disk");
}

struct exported {
    explicit exported(bool async = false)
    {
        require_a_disk(directory);
        ::umask(0);
        auto made = reactor::create();
        BOOST_REQUIRE(made);
        shard = std::move(*made);
        posixfs::posixfs_options o;
        o.root = directory.path();
        o.async = async;
        auto opened = posixfs::open_posixfs(o, pool);
        BOOST_REQUIRE_MESSAGE(opened, (opened ? std::string() : opened.error().message()));
        fs = std::move(*opened);
        r.who = credential(::geteuid(), ::getegid());
    }
    /// The pool's threads touch the shard after their last job has come home.
    ~exported()
    {
        fs.reset();
        pool.finish();
    }
    template<class T>
    result<T> run(task<result<T>> t)
    {
        return run_until_complete(*shard, std::move(t));
    }
    template<class T>
    int errno_of(task<result<T>> t)
    {
        const auto done = run(std::move(t));
        return done ? 0 : done.error().errno_value();
    }
    handle make_file(const handle& in, const std::string& name)
    {
        set_attributes set;
        set.mode = 0644;
        const auto made = run(fs->create(r, in, name, create_mode::guarded, set, 0));
        BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
        return made->made.handle;
    }
    handle make_directory(const std::string& name)
    {
        const auto made = run(fs->mkdir(r, fs->root(), name, {}));
        BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
        return made->made.handle;
    }
    task<result<write_result>> write(const handle& file, stability how)
    {
        const std::byte data[3] = {std::byte('n'), std::byte('e'), std::byte('w')};
        const std::span<const std::byte> piece(data);
        co_return co_await fs->write(r, file, 0, std::span(&piece, 1), how);
    }
    ino_t inode(const handle& h)
    {
        const auto attrs = run(fs->getattr(r, h));
        BOOST_REQUIRE(attrs);
        return attrs->fileid;
    }

    suite::temporary_directory directory{"/var/tmp"};
    std::unique_ptr<reactor> shard;
    blocking_pool pool{2};
    std::unique_ptr<file_backend> fs;
    request r;
};

/// Two directories, "from" with the file "f" and the directory "d" in it, and "to" with the file "h"; anew for each call that is tried.
struct tree {
    explicit tree(exported& e)
        : from(e.make_directory("from")),
          to(e.make_directory("to")),
          f(e.make_file(from, "f")),
          d([&] {
              const auto made = e.run(e.fs->mkdir(e.r, from, "d", {}));
              BOOST_REQUIRE(made);
              return made->made.handle;
          }()),
          h(e.make_file(to, "h"))
    {
    }
    handle from;
    handle to;
    handle f;
    handle d;
    handle h;
};

/// A call, and what must be on the disk when it is answered.
struct operation {
    const char* name;
    std::function<int(exported&, const tree&)> call; ///< its errno
    std::vector<std::string> whole;                  ///< paths of what is to be there as it stands
    std::vector<std::string> data;                   ///< and of files, of which the data will do
};

const std::vector<operation>& operations()
{
    static const auto mode = [] {
        set_attributes set;
        set.mode = 0600;
        return set;
    };
    static const std::vector<operation> all = {
        {"CREATE",
         [](exported& e, const tree& t) {
             return e.errno_of(e.fs->create(e.r, t.to, "new", create_mode::guarded, mode(), 0));
         },
         {"to"},
         {}},
        {"CREATE with a time",
         [](exported& e, const tree& t) {
             set_attributes set = mode();
             set.mtime = {set_time::kind::value, {1'000'000, 0}};
             return e.errno_of(e.fs->create(e.r, t.to, "new", create_mode::unchecked, set, 0));
         },
         {"to", "to/new"},
         {}},
        {"exclusive CREATE",
         [](exported& e, const tree& t) {
             return e.errno_of(e.fs->create(e.r, t.to, "new", create_mode::exclusive, {}, 7));
         },
         {"to", "to/new"},
         {}},
        {"CREATE of what is there, cut",
         [](exported& e, const tree& t) {
             set_attributes set;
             set.size = 1000;
             return e.errno_of(e.fs->create(e.r, t.from, "f", create_mode::unchecked, set, 0));
         },
         {"from/f"},
         {}},
        {"MKDIR",
         [](exported& e, const tree& t) { return e.errno_of(e.fs->mkdir(e.r, t.to, "new", {})); },
         {"to"},
         {}},
        {"SYMLINK",
         [](exported& e, const tree& t) { return e.errno_of(e.fs->symlink(e.r, t.to, "new", "x", {})); },
         {"to"},
         {}},
        {"MKNOD",
         [](exported& e, const tree& t) {
             return e.errno_of(e.fs->mknod(e.r, t.to, "new", file_type::fifo, 0, 0, {}));
         },
         {"to"},
         {}},
        {"REMOVE",
         [](exported& e, const tree& t) { return e.errno_of(e.fs->remove(e.r, t.from, "f")); },
         {"from"},
         {}},
        {"RMDIR",
         [](exported& e, const tree& t) { return e.errno_of(e.fs->rmdir(e.r, t.from, "d")); },
         {"from"},
         {}},
        {"RENAME in a directory",
         [](exported& e, const tree& t) { return e.errno_of(e.fs->rename(e.r, t.from, "f", t.from, "g")); },
         {"from"},
         {}},
        {"RENAME to another directory",
         [](exported& e, const tree& t) { return e.errno_of(e.fs->rename(e.r, t.from, "f", t.to, "g")); },
         {"from", "to"},
         {}},
        {"RENAME of a directory",
         [](exported& e, const tree& t) { return e.errno_of(e.fs->rename(e.r, t.from, "d", t.to, "d")); },
         {"from", "to"},
         {}},
        {"LINK",
         [](exported& e, const tree& t) { return e.errno_of(e.fs->link(e.r, t.f, t.to, "g")); },
         {"to"},
         {}},
        {"SETATTR of a file",
         [](exported& e, const tree& t) { return e.errno_of(e.fs->setattr(e.r, t.f, mode(), std::nullopt)); },
         {"from/f"},
         {}},
        {"SETATTR of a size",
         [](exported& e, const tree& t) {
             set_attributes set;
             set.size = 1000;
             return e.errno_of(e.fs->setattr(e.r, t.f, set, std::nullopt));
         },
         {"from/f"},
         {}},
        {"SETATTR of a directory",
         [](exported& e, const tree& t) {
             return e.errno_of(e.fs->setattr(e.r, t.from, mode(), std::nullopt));
         },
         {"from"},
         {}},
        {"WRITE, FILE_SYNC",
         [](exported& e, const tree& t) { return e.errno_of(e.write(t.f, stability::file_sync)); },
         {"from/f"},
         {}},
        {"WRITE, DATA_SYNC",
         [](exported& e, const tree& t) { return e.errno_of(e.write(t.f, stability::data_sync)); },
         {},
         {"from/f"}},
        {"WRITE and COMMIT",
         [](exported& e, const tree& t) {
             if (const int failed = e.errno_of(e.write(t.f, stability::unstable)))
                 return failed;
             return e.errno_of(e.fs->commit(e.r, t.f, 0, 0));
         },
         {},
         {"from/f"}},
        {"ALLOCATE",
         [](exported& e, const tree& t) { return e.errno_of(e.fs->allocate(e.r, t.f, 0, 10000)); },
         {"from/f"},
         {}},
        {"DEALLOCATE",
         [](exported& e, const tree& t) { return e.errno_of(e.fs->deallocate(e.r, t.f, 0, 10000)); },
         {"from/f"},
         {}},
        {"COPY and COMMIT",
         [](exported& e, const tree& t) {
             const auto written = e.run(e.write(t.f, stability::unstable));
             const auto copied = e.run(e.fs->copy(e.r, t.f, 0, t.h, 0, 100));
             must(written && copied && copied->count == 3 && copied->committed == stability::unstable);
             return e.errno_of(e.fs->commit(e.r, t.h, 0, 0));
         },
         {},
         {"to/h"}},
        {"CLONE",
         [](exported& e, const tree& t) {
             const auto written = e.run(e.write(t.f, stability::unstable));
             must(bool(written));
             return e.errno_of(e.fs->clone(e.r, t.f, 0, t.h, 0, 0));
         },
         {"to/h"},
         {}},
        {"SETXATTR",
         [](exported& e, const tree& t) {
             return e.errno_of(e.fs->setxattr(e.r, t.f, "a", {}, xattr_mode::either));
         },
         {"from/f"},
         {}},
        {"SETXATTR of a directory",
         [](exported& e, const tree& t) {
             return e.errno_of(e.fs->setxattr(e.r, t.from, "a", {}, xattr_mode::either));
         },
         {"from"},
         {}},
        {"REMOVEXATTR",
         [](exported& e, const tree& t) {
             const std::filesystem::path path = e.directory.path() / "from" / "f";
             must(::setxattr(path.c_str(), "user.a", "", 0, 0) == 0);
             return e.errno_of(e.fs->removexattr(e.r, t.f, "a"));
         },
         {"from/f"},
         {}},
    };
    return all;
}

/// True if `path` was synced since, as it stands now.
bool is_on_disk(const std::filesystem::path& path, bool data_only)
{
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    BOOST_REQUIRE(fd >= 0);
    struct stat st{};
    BOOST_REQUIRE(::fstat(fd, &st) == 0);
    const state now = state_of(fd);
    ::close(fd);
    std::lock_guard lock(the_disk.mutex);
    const auto found = the_disk.synced.find(st.st_ino);
    return the_disk.everything || (found != the_disk.synced.end() &&
                                   (data_only ? found->second.size == now.size : found->second == now));
}

} // namespace

// RFC 1813 1.4 and 4.8: a server that has answered a change has it on stable storage.
BOOST_AUTO_TEST_CASE(what_is_answered_is_on_the_disk)
{
    for (const operation& o : operations()) {
        BOOST_TEST_CONTEXT(o.name)
        {
            exported e;
            const tree t(e);
            the_disk.reset();
            BOOST_TEST(o.call(e, t) == 0);
            for (const std::string& path : o.whole)
                BOOST_TEST(is_on_disk(e.directory.path() / path, false), path);
            for (const std::string& path : o.data)
                BOOST_TEST(is_on_disk(e.directory.path() / path, true), path);
        }
    }
}

// An exclusive CREATE that is asked again: the first answer may have been lost together with the server.
BOOST_AUTO_TEST_CASE(an_exclusive_create_that_is_repeated_is_on_the_disk_too)
{
    exported e;
    const tree t(e);
    const auto create = [&] {
        return e.errno_of(e.fs->create(e.r, t.to, "new", create_mode::exclusive, {}, 7));
    };
    BOOST_TEST(create() == 0);
    the_disk.reset();
    BOOST_TEST(create() == 0);
    BOOST_TEST(is_on_disk(e.directory.path() / "to", false));
    BOOST_TEST(is_on_disk(e.directory.path() / "to" / "new", false));
}

// Whichever of its syncs it is. And what was written unstably may be lost with it, which the verifier tells (RFC 1813 3.3.7).
BOOST_AUTO_TEST_CASE(a_call_whose_sync_fails_fails)
{
    for (const operation& o : operations()) {
        BOOST_TEST_CONTEXT(o.name)
        {
            unsigned syncs = 1;
            for (unsigned which = 0; which <= syncs; ++which) {
                BOOST_TEST_CONTEXT("sync " << which << " of " << syncs)
                {
                    exported e;
                    const tree t(e);
                    const std::uint64_t verifier = e.fs->write_verifier();
                    the_disk.reset(which);
                    BOOST_TEST(o.call(e, t) == (which == 0 ? 0 : EIO));
                    BOOST_TEST((e.fs->write_verifier() == verifier) == (which == 0));
                    if (which == 0)
                        syncs = the_disk.syncs;
                    BOOST_TEST(syncs >= 1u);
                }
            }
        }
    }
    the_disk.reset();
}

BOOST_AUTO_TEST_CASE(an_unstable_write_syncs_nothing_and_says_so)
{
    exported e;
    const tree t(e);
    the_disk.reset();
    const auto written = e.run(e.write(t.f, stability::unstable));
    BOOST_REQUIRE(written);
    BOOST_TEST((written->committed == stability::unstable));
    BOOST_TEST(the_disk.syncs == 0u);
}

// Whoever asked for `async` has said that he can lose what was answered; a COMMIT he is given all the same.
BOOST_AUTO_TEST_CASE(an_asynchronous_export_syncs_for_commit_alone)
{
    for (const operation& o : operations()) {
        BOOST_TEST_CONTEXT(o.name)
        {
            exported e(true);
            const tree t(e);
            the_disk.reset();
            BOOST_TEST(o.call(e, t) == 0);
            BOOST_TEST(the_disk.syncs == (std::string_view(o.name).ends_with(" and COMMIT") ? 1u : 0u));
        }
    }
}

namespace {

using what = storage::sync_group::what;

task<void> sync_one(storage::sync_group& group, what kind, int fd, std::uint64_t inode, bool& done)
{
    auto synced = co_await group.sync(kind, fd, 1, inode);
    done = bool(synced);
}

/// Three files, and a group whose first sync goes on when it may.
struct rounds {
    rounds()
    {
        require_a_disk(directory);
        auto made = reactor::create();
        BOOST_REQUIRE(made);
        shard = std::move(*made);
        for (std::size_t i = 0; i < 3; ++i) {
            const std::string path = directory.path() / std::to_string(i);
            fds[i] = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
            struct stat st{};
            BOOST_REQUIRE((fds[i] >= 0 && ::fstat(fds[i], &st) == 0));
            inodes[i] = st.st_ino;
        }
        the_disk.reset();
    }
    ~rounds()
    {
        pool.finish();
        for (const int fd : fds)
            ::close(fd);
    }
    /// Syncs file 0 by `first`, and while that runs each of `others` (a file and what of it), after `change`.
    void run(
        what first, const std::vector<std::pair<std::size_t, what>>& others,
        const std::function<void()>& change = [] {})
    {
        const auto all = [&]() -> task<void> {
            const task_context& context = co_await current_context();
            std::array<bool, 8> done{};
            the_disk.syncs_begun = 0;
            the_disk.syncs_wait = true;
            scope s(*context.shard);
            s.spawn([&] { return sync_one(group, first, fds[0], inodes[0], done[0]); });
            while (the_disk.syncs_begun == 0)
                std::this_thread::yield();
            change();
            for (std::size_t i = 0; i < others.size(); ++i) {
                const auto [file, kind] = others[i];
                s.spawn([&] { return sync_one(group, kind, fds[file], inodes[file], done[i + 1]); });
            }
            the_disk.syncs_wait = false;
            co_await s.join();
            BOOST_TEST(std::ranges::count(done, true) == std::ptrdiff_t(others.size() + 1));
        };
        run_until_complete(*shard, all());
    }
    bool on_disk(std::size_t file) const
    {
        return is_on_disk(directory.path() / std::to_string(file), false);
    }

    suite::temporary_directory directory{"/var/tmp"};
    std::unique_ptr<reactor> shard;
    blocking_pool pool{2};
    storage::sync_group group{pool};
    std::array<int, 3> fds{};
    std::array<std::uint64_t, 3> inodes{};
};

} // namespace

BOOST_AUTO_TEST_CASE(who_comes_while_a_sync_runs_waits_for_the_next)
{
    for (const what kind : {what::file, what::metadata}) {
        rounds r;
        const auto change = [&] { BOOST_REQUIRE(::fchmod(r.fds[0], 0600) == 0); };
        r.run(kind, {{0, kind}}, change);
        BOOST_TEST(r.group.rounds() == 2u);
        BOOST_TEST(the_disk.syncs_begun == 2u);
        BOOST_TEST(r.on_disk(0));
    }
}

BOOST_AUTO_TEST_CASE(a_round_syncs_what_each_of_its_requests_changed)
{
    {
        rounds r;
        r.run(what::metadata, {{1, what::metadata}, {2, what::metadata}, {1, what::metadata}});
        BOOST_TEST(r.group.rounds() == 2u);
        for (const std::size_t file : {0, 1, 2})
            BOOST_TEST(r.on_disk(file));
    }
    // Those that wait are a round: one of them wants the attributes too.
    for (const bool first : {false, true}) {
        rounds r;
        const auto change = [&] { BOOST_REQUIRE(::fchmod(r.fds[0], 0600) == 0); };
        r.run(what::data, {{0, first ? what::file : what::data}, {0, first ? what::data : what::file}},
              change);
        BOOST_TEST(r.group.rounds() == 2u);
        BOOST_TEST(r.on_disk(0));
    }
}

namespace {

/// A server of a folder on the disk and a client of it, over RPC-over-RDMA in one process.
struct served : exported {
    const test::log_at level_of_log{log_level::off};
    served()
    {
        loop::options device;
        device.name = "server";
        server_device = fabric->make_context(device);
        device.name = "client";
        client_device = fabric->make_context(device);
        nfs::export_options o;
        o.backend = fs.get();
        BOOST_REQUIRE(exports.add(o));
        dispatcher.add(program);
        dispatcher.add(mount_program);
        transport = rpcrdma::make_requester(*client_device, client_buffers, "server", {}, &client_stats);
        auto l = server_device->listen("server");
        BOOST_REQUIRE(l);
        listener = std::move(*l);
    }
    void run_client(const std::function<task<void>(nfs::client&, const nfs::v3::nfs_fh3&)>& body)
    {
        const auto main = [&]() -> task<void> {
            scope serving(*shard);
            serving.spawn([&] {
                return rpcrdma::serve(*server_device, *listener, server_buffers, dispatcher, server_options,
                                      server_stats);
            });
            const nfs::identity who = nfs::identity::of_process();
            nfs::mount_client mount(*transport, who);
            auto root = co_await mount.mnt("/export");
            BOOST_REQUIRE_MESSAGE(root, (root ? std::string() : root.error().message()));
            nfs::client client(*transport, who);
            co_await body(client, *root);
            BOOST_TEST(transport->connections() == 1u); // what a disk does ends none
            co_await transport->close();
            listener->close();
            co_await serving.join();
        };
        run_until_complete(*shard, main());
    }
    task<rpc::payload> payload(std::string text)
    {
        lease memory = co_await transport->acquire(text.size());
        BOOST_REQUIRE(memory);
        std::ranges::copy(std::as_bytes(std::span(text)), memory.data());
        const std::span<const std::byte> bytes(memory.data(), text.size());
        co_return rpc::payload(std::move(memory), bytes);
    }
    template<class T>
    static std::string status(const result<T>& r)
    {
        return r ? "OK" : r.error().message();
    }
    template<class T>
    static bool failed_with(const result<T>& r, nfs::v3::nfsstat3 wanted)
    {
        return !r && r.error() == wanted;
    }

    std::unique_ptr<loop::fabric> fabric = loop::make_fabric(*shard, {});
    std::unique_ptr<loop::context> server_device, client_device;
    memory_budget memory{std::size_t(64) << 20};
    buffer_pool server_buffers{memory, shard.get()}, client_buffers{memory, shard.get()};
    nfs::handle_key key{std::byte(3), std::byte(141), std::byte(59)};
    nfs::export_table exports;
    nfs::v3::server program{exports, key};
    nfs::mount3::mount_list mounts;
    nfs::mount3::server mount_program{exports, key, mounts};
    rpc::duplicate_request_cache duplicates{1};
    rpc::service_dispatcher dispatcher{*shard, &duplicates};
    rpcrdma::responder_options server_options;
    rpcrdma::responder_stats server_stats;
    rpcrdma::requester_stats client_stats;
    std::unique_ptr<verbs::listener> listener;
    std::unique_ptr<rpc::client_transport> transport;
};

} // namespace

// The error of a sync is told once, to the COMMIT that it befell. The client writes again what it may have cost.
BOOST_AUTO_TEST_CASE(what_a_failed_commit_may_have_lost_is_written_again)
{
    served s;
    s.run_client([&](nfs::client& client, const nfs::v3::nfs_fh3& root) -> task<void> {
        auto made = co_await client.create(root, "f", {}, true);
        BOOST_REQUIRE(made);
        nfs::file f(client, *made);
        rpc::payload first = co_await s.payload("first");
        auto written = co_await f.write(0, std::move(first));
        BOOST_TEST(bool(written));
        rpc::payload second = co_await s.payload("second");
        written = co_await f.write(5, std::move(second));
        BOOST_TEST(bool(written));
        the_disk.reset(1);
        auto committed = co_await f.commit();
        BOOST_TEST(served::failed_with(committed, nfs::v3::nfsstat3::io), served::status(committed));
        const unsigned writes = the_disk.writes;
        committed = co_await f.commit();
        BOOST_TEST(bool(committed), served::status(committed));
        BOOST_TEST(f.resent() == 11u);
        BOOST_TEST(the_disk.writes - writes == 2u);
        BOOST_TEST(f.uncommitted() == 0u);
    });
    std::ifstream file(s.directory.path() / "f");
    BOOST_TEST(std::string(std::istreambuf_iterator<char>(file), {}) == "firstsecond");
}

// A disk that answers EIO, as a client sees it: NFS3ERR_IO for what it befell, and everything else goes on.
BOOST_AUTO_TEST_CASE(a_disk_that_fails_is_told_to_the_client)
{
    served s;
    s.run_client([&](nfs::client& client, const nfs::v3::nfs_fh3& root) -> task<void> {
        using nfs::v3::nfsstat3;
        auto made = co_await client.create(root, "f", {}, true);
        BOOST_REQUIRE(made);
        const nfs::v3::nfs_fh3 f = made->handle;
        rpc::payload data = co_await s.payload("on the disk");
        auto written = co_await client.write(f, 0, std::move(data), nfs::v3::stable_how::file_sync);
        BOOST_REQUIRE(written);
        BOOST_TEST((written->committed == nfs::v3::stable_how::file_sync));
        const auto verifier = written->verifier;

        the_disk.error_of_read = EIO;
        auto read = co_await client.read(f, 0, 100);
        BOOST_TEST(served::failed_with(read, nfsstat3::io), served::status(read));
        the_disk.error_of_read = 0;
        read = co_await client.read(f, 0, 100);
        BOOST_REQUIRE(read);
        BOOST_TEST(read->data.size() == 11u);
        BOOST_TEST(read->eof);

        for (const auto how : {nfs::v3::stable_how::unstable, nfs::v3::stable_how::file_sync}) {
            the_disk.error_of_write = EIO;
            data = co_await s.payload("xx");
            written = co_await client.write(f, 0, std::move(data), how);
            BOOST_TEST(served::failed_with(written, nfsstat3::io), served::status(written));
            the_disk.error_of_write = 0;
        }
        for (const auto how : {nfs::v3::stable_how::data_sync, nfs::v3::stable_how::file_sync}) {
            the_disk.reset(1);
            data = co_await s.payload("xx");
            written = co_await client.write(f, 0, std::move(data), how);
            BOOST_TEST(served::failed_with(written, nfsstat3::io), served::status(written));
        }
        the_disk.reset(1);
        auto folder = co_await client.mkdir(root, "d", {});
        BOOST_TEST(served::failed_with(folder, nfsstat3::io), served::status(folder));
        the_disk.reset(1);
        auto done = co_await client.remove(root, "f");
        BOOST_TEST(served::failed_with(done, nfsstat3::io), served::status(done));

        // Four syncs failed since; what was written unstably before is no longer certain.
        auto other = co_await client.create(root, "g", {}, true);
        BOOST_REQUIRE(other);
        data = co_await s.payload("fine");
        written = co_await client.write(other->handle, 0, std::move(data), nfs::v3::stable_how::unstable);
        BOOST_REQUIRE(written);
        BOOST_TEST((written->verifier != verifier));
        auto committed = co_await client.commit(other->handle, 0, 0);
        BOOST_REQUIRE(committed);
        BOOST_TEST((*committed == written->verifier));
    });
}
