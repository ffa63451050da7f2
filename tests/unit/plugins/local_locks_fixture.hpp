// SPDX-License-Identifier: Apache-2.0
// Two exports of a folder, whose clients' locks are also locks of the file system, under a state layer. Another open
// file description is as good as another process. A program that includes it puts its own fcntl and open in the place
// of libc's.
#pragma once

#include "../../../plugins/posixfs/local_locks.hpp"
#include "../protocols/files_store.hpp"
#include "backend_fixture.hpp"
#include "temporary_directory.hpp"

#include <verbena/core/metrics.hpp>
#include <verbena/core/module/module.hpp>
#include <verbena/plugins/modules.hpp>
#include <verbena/plugins/posixfs.hpp>
#include <verbena/protocols/files/state_table.hpp>
#include <verbena/protocols/storage/module.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdarg>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <sys/syscall.h>
#include <vector>

namespace {

/// Calls of the kernel for locks wait while it is shut.
class kernel_gate {
public:
    void pass()
    {
        std::unique_lock lock(mutex_);
        ++waiting_;
        changed_.notify_all();
        changed_.wait(lock, [this] { return !is_shut_; });
        --waiting_;
    }
    void shut(bool is)
    {
        const std::lock_guard lock(mutex_);
        is_shut_ = is;
        changed_.notify_all();
    }
    /// Until so many calls wait there.
    void await(int calls)
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this, calls] { return waiting_ >= calls; });
    }
    int waiting()
    {
        const std::lock_guard lock(mutex_);
        return waiting_;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_shut_ = false;
    int waiting_ = 0;
};
kernel_gate gate;

// What the kernel answers to a lock that is asked for, unless it is 0; and for how many more.
std::atomic<int> lock_fails_with{0};
std::atomic<int> locks_to_fail{0};
std::atomic<bool> failing_locks_are_taken{false}; // as by a server whose answer is lost; unlocks are not
std::atomic<int> looks_fail_with{0};              // likewise, to F_OFD_GETLK
std::atomic<int> kernel_locks{0};
std::atomic<int> locks_on_shard{0}; // which a file system could hold up
// The same for opens by descriptor, those to write alone or all of them.
std::atomic<int> open_fails_with{0};
std::atomic<bool> only_writers_fail{false};
std::atomic<int> opens_to_write{0};

int call_fcntl(int fd, int command, long argument)
{
    if (command == F_OFD_SETLK || command == F_OFD_GETLK) {
        locks_on_shard += ::gettid() == ::getpid();
        gate.pass();
    }
    if (command == F_OFD_SETLK) {
        ++kernel_locks;
        if (lock_fails_with != 0 && locks_to_fail > 0) {
            --locks_to_fail;
            if (failing_locks_are_taken && reinterpret_cast<const struct flock*>(argument)->l_type != F_UNLCK)
                (void)::syscall(SYS_fcntl, fd, command, argument);
            errno = lock_fails_with;
            return -1;
        }
    }
    if (command == F_OFD_GETLK && looks_fail_with != 0) {
        errno = looks_fail_with;
        return -1;
    }
    return int(::syscall(SYS_fcntl, fd, command, argument));
}

} // namespace

extern "C" int fcntl64(int fd, int command, ...)
{
    va_list all;
    va_start(all, command);
    const long argument = va_arg(all, long);
    va_end(all);
    return call_fcntl(fd, command, argument);
}

extern "C" int open64(const char* path, int flags, ...)
{
    va_list all;
    va_start(all, flags);
    const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(all, int) : 0;
    va_end(all);
    if (std::string_view(path).starts_with("/proc/self/fd/") && (flags & O_NONBLOCK) != 0) {
        const bool to_write = (flags & O_ACCMODE) != O_RDONLY;
        opens_to_write += to_write;
        if (open_fails_with != 0 && (to_write || !only_writers_fail)) {
            errno = open_fails_with;
            return -1;
        }
    }
    return int(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

namespace suite {

using files::byte_range;
using files::client_id;
using files::lock_type;
using files::share;

std::unique_ptr<file_backend> make_backend(blocking_pool& pool, const backend_options&)
{
    static temporary_directory unused; // cases open their own
    posixfs::posixfs_options o;
    o.root = unused.path();
    o.local_locks = true;
    return std::move(*posixfs::open_posixfs(o, pool));
}

namespace {

constexpr auto read = lock_type::read;
constexpr auto write = lock_type::write;
const char* const places[] = {"/dev/shm", "/var/tmp"}; // in memory, and on a disk

/// A process of this host, as far as locks go.
class local_process {
public:
    explicit local_process(const std::string& path) : fd_(::open(path.c_str(), O_RDWR | O_CLOEXEC))
    {
        BOOST_REQUIRE(fd_ >= 0);
    }
    local_process(const local_process&) = delete;
    ~local_process() { ::close(fd_); }
    /// For another thread than the test's, which Boost's checks are not for.
    bool takes(byte_range bytes, lock_type type) const noexcept
    {
        struct flock wanted = of(bytes, type == write ? F_WRLCK : F_RDLCK);
        return ::syscall(SYS_fcntl, fd_, F_OFD_SETLK, &wanted) == 0;
    }
    bool lock(byte_range bytes, lock_type type) { return set(bytes, type == write ? F_WRLCK : F_RDLCK); }
    void unlock(byte_range bytes) { BOOST_REQUIRE(set(bytes, F_UNLCK)); }
    /// What others have of one byte: F_UNLCK, F_RDLCK or F_WRLCK.
    int sees(std::uint64_t at) const
    {
        for (const short wanted : {F_RDLCK, F_WRLCK}) {
            struct flock asked = of({at, at}, wanted);
            BOOST_REQUIRE(::syscall(SYS_fcntl, fd_, F_OFD_GETLK, &asked) == 0);
            if (asked.l_type != F_UNLCK)
                return asked.l_type;
        }
        return F_UNLCK;
    }

private:
    static struct flock of(byte_range bytes, short type)
    {
        struct flock out{};
        out.l_type = type;
        out.l_whence = SEEK_SET;
        out.l_start = off_t(bytes.offset);
        out.l_len = bytes.last == byte_range::to_the_end ? 0 : off_t(bytes.last - bytes.offset + 1);
        return out;
    }
    bool set(byte_range bytes, short type)
    {
        struct flock wanted = of(bytes, type);
        const bool done = int(::syscall(SYS_fcntl, fd_, F_OFD_SETLK, &wanted)) == 0;
        BOOST_REQUIRE((done || errno == EAGAIN || errno == EACCES));
        return done;
    }
    const int fd_;
};

posixfs::posixfs_options locking()
{
    posixfs::posixfs_options o;
    o.local_locks = true;
    return o;
}

/// Two exports of one folder, and the state layer over both.
struct exported : fixture {
    explicit exported(const char* place = "/var/tmp", posixfs::posixfs_options o = locking()) : where(place)
    {
        o.root = where.path();
        for (auto* const to : {&fs, &second}) {
            auto made = posixfs::open_posixfs(o, pool);
            BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
            *to = std::move(*made);
        }
        file = make_locally("f");
        BOOST_TEST((find(second->root(), "f") == file)); // one handle, and two names in the state layer
        files::state_options options;
        options.epoch = 1;
        book.emplace(commons, on.here, store, handler, std::move(options));
        table.emplace(commons, *book, 0, on.here, handler);
        local.emplace(path("f"));
    }
    ~exported()
    {
        lock_fails_with = locks_to_fail = open_fails_with = looks_fail_with = 0;
        failing_locks_are_taken = only_writers_fail = false;
        gate.shut(false);
        table.reset();
        pool.finish();
        fs.reset();
        second.reset();
        BOOST_TEST(posixfs::lock_description::held() == 0u);
        BOOST_TEST(locks_on_shard == 0);
    }
    /// By another process, so that the cache has no descriptor to write by.
    storage::handle make_locally(const char* name)
    {
        const int made = ::open(path(name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        BOOST_REQUIRE(made >= 0);
        ::close(made);
        return find(fs->root(), name);
    }
    std::string path(const char* name) const { return (where.path() / name).string(); }
    /// Of the process, that lead to a file of this name, be it that it is removed, by which data can be had. The cache
    /// closes what it has open after a second or two, so it is asked to close all first.
    std::size_t descriptors(const char* name) const
    {
        std::size_t n = 0;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code gone;
            const std::string to = std::filesystem::read_symlink(entry.path(), gone).string();
            const int flags = int(::syscall(SYS_fcntl, std::stoi(entry.path().filename()), F_GETFL));
            n += to.starts_with(path(name)) && flags >= 0 && (flags & O_NONBLOCK) != 0;
        }
        return n;
    }
    storage::handle key(int which, const storage::handle& of) const
    {
        std::vector<std::byte> bytes{std::byte(which)};
        bytes.insert(bytes.end(), of.bytes().begin(), of.bytes().end());
        return storage::handle(bytes);
    }
    /// Has the file open through an export.
    struct opener {
        client_id client = files::nobody;
        storage::handle file;
        files::stateid id;
    };
    opener open(std::string_view name, int which = 0, std::uint64_t peer = 0)
    {
        opener out;
        out.client = *book->add_client(name, peer);
        BOOST_REQUIRE(run(book->reclaim_complete(out.client)));
        return again(out.client, which);
    }
    opener again(client_id client, int which = 0)
    {
        files::open_request r;
        r.client = client;
        r.owner = bytes("open");
        r.file = key(which, file);
        r.access = share::both;
        r.want = files::delegation_want::none;
        r.hears_of_locks = true;
        file_backend& below = which == 0 ? *fs : *second;
        r.opened = must(below.open(me, file, R_OK | W_OK, open_right::asked)).file;
        auto opened = table->open(r);
        BOOST_REQUIRE(opened);
        return {client, r.file.key, opened->id};
    }
    /// As the server locks. 0, or the reason.
    result<void> lock(const opener& by, std::string_view owner, byte_range bytes_wanted, lock_type type)
    {
        return run(lock_task(by, owner, bytes_wanted, type));
    }
    task<result<void>> lock_task(opener by, std::string_view owner, byte_range bytes_wanted, lock_type type)
    {
        files::lock_request r;
        r.client = by.client;
        r.file = by.file;
        r.new_owner = true;
        r.id = newest(by.id);
        r.owner = bytes(owner);
        r.bytes = bytes_wanted;
        r.type = type;
        files::pending_lock pending;
        auto granted = table->lock(r, &holder, files::zero_seqid::newest, &pending);
        if (pending.asks_back_end()) {
            const result<void> asked = co_await table->lock_locally(pending, r, &holder);
            if (!asked)
                co_return asked;
            granted = table->lock(r, &holder, files::zero_seqid::newest, &pending);
        }
        if (const files::back_end_locks unsettled = pending.take_unsettled())
            co_await unsettled->settle();
        if (!granted)
            co_return granted.error();
        ids[std::string(owner)] = *granted;
        co_return result<void>();
    }
    void unlock(const opener& by, std::string_view owner, byte_range bytes_wanted)
    {
        run(unlock_task(by, owner, bytes_wanted));
    }
    task<void> unlock_task(opener by, std::string_view owner, byte_range bytes_wanted)
    {
        files::back_end_locks unsettled;
        const auto done = table->unlock(by.client, newest(ids.at(std::string(owner))), by.file, bytes_wanted,
                                        files::zero_seqid::newest, &unsettled);
        BOOST_TEST(done.has_value());
        if (unsettled)
            co_await unsettled->settle();
    }
    void close(const opener& by)
    {
        files::back_end_locks unsettled;
        BOOST_REQUIRE(table->close(by.client, newest(by.id), by.file, files::zero_seqid::newest, &unsettled));
        if (unsettled)
            run(unsettled->settle());
    }
    static files::stateid newest(files::stateid id)
    {
        id.seqid = 0;
        return id;
    }
    result<void> test(const opener& by, byte_range wanted, lock_type type)
    {
        files::back_end_locks asks;
        const result<void> here =
            table->test_lock(by.client, by.file, bytes("another"), wanted, type, &holder, &asks);
        if (!here || !asks)
            return here;
        return run(table->test_locally(std::move(asks), wanted, type, &holder));
    }
    bool is_free(const opener& by, byte_range wanted, lock_type type)
    {
        return test(by, wanted, type).has_value();
    }
    /// What was asked of the file before is done.
    void settle(const opener& by)
    {
        const auto asks = handler.local_locks_of(by.file);
        BOOST_TEST(run(asks->test({0, 0, false})).has_value());
    }

    struct to_back_ends final : files::state_handler {
        explicit to_back_ends(exported& e) noexcept : of(e) {}
        void recall(const files::recall_notice&) noexcept override {}
        void recall_any(client_id, std::size_t) noexcept override {}
        void lock_available(const files::lock_notice&) noexcept override {}
        time_point last_heard(client_id) noexcept override { return time_point::max(); }
        std::unique_ptr<storage::local_locks> local_locks_of(const storage::handle& f) noexcept override
        {
            file_backend& below = f.bytes()[0] == std::byte(0) ? *of.fs : *of.second;
            return below.local_locks_of(storage::handle(f.bytes().subspan(1)));
        }
        exported& of;
    };
    temporary_directory where;
    std::unique_ptr<file_backend> second;
    storage::handle file;
    to_back_ends handler{*this};
    files::no_recovery_store store;
    files::table_commons commons{siphash_key()};
    verbena::test::shard_of on{*shard};
    std::optional<files::client_book> book;
    std::optional<files::state_table> table;
    std::optional<local_process> local;
    files::lock_holder holder;
    std::map<std::string, files::stateid> ids;
};

bool is_denied(const result<void>& done) { return !done && done.error() == files::errc::denied; }

} // namespace

} // namespace suite
