// SPDX-License-Identifier: Apache-2.0
// What a disk that fails or lets a shard wait makes of the way that READs and WRITEs take.
#include <boost/test/unit_test.hpp>

#include "../../../plugins/posixfs/slow_call.hpp"
#include "../protocols/rpc_server.hpp"
#include "temporary_directory.hpp"

#include <verbena/core/log.hpp>
#include <verbena/plugins/posixfs.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fcntl.h>
#include <initializer_list>
#include <latch>
#include <linux/magic.h>
#include <memory>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace verbena;
using namespace verbena::storage;
using namespace verbena::test;
using namespace std::chrono_literals;

namespace {

// Moved by hand, and reactors sleep for real: the pool works in the world's time.
class hand_clock final : public clock_source {
public:
    time_point now() const noexcept override { return time_point(duration(now_.load())); }
    void advance(duration d) noexcept { now_ += d.count(); }

private:
    std::atomic<duration::rep> now_ = duration(1h).count(); // pool threads write too
};

hand_clock the_clock;
int error_of_sendfile = 0;
duration stall_of_sendfile{};
int error_of_nowait = 0;
duration stall_of_nowait{};
off_t asked_of_nowait = -1;
duration stall_of_write{};
std::int64_t switches_of_thread = 0;
// What stalls waits; else its thread is kept from the processor.
bool stalls_wait = true;
int error_of_write = 0;

void stall(duration& time)
{
    switches_of_thread += time != duration() && stalls_wait;
    the_clock.advance(std::exchange(time, duration()));
}
pid_t written_by = 0;

} // namespace

// In place of libc's: of a disk that fails or keeps its callers waiting.
extern "C" ssize_t sendfile(int to, int from, off_t* offset, std::size_t size) noexcept
{
    if (error_of_sendfile != 0) {
        errno = error_of_sendfile;
        return -1;
    }
    stall(stall_of_sendfile);
    return ::syscall(SYS_sendfile, to, from, offset, size);
}
extern "C" int getrusage(int of, rusage* used) noexcept
{
    *used = rusage();
    used->ru_nvcsw = of == RUSAGE_THREAD ? switches_of_thread : 0;
    return 0;
}
extern "C" ssize_t preadv2(int fd, const iovec* vectors, int count, off_t offset, int flags)
{
    asked_of_nowait = offset;
    stall(stall_of_nowait);
    if (error_of_nowait != 0) {
        errno = error_of_nowait;
        return -1;
    }
    return ::syscall(SYS_preadv2, fd, vectors, long(count), long(offset), 0L, long(flags));
}
extern "C" ssize_t pwritev(int fd, const iovec* vectors, int count, off_t offset)
{
    written_by = ::gettid();
    stall(stall_of_write);
    if (error_of_write != 0) {
        errno = error_of_write;
        return -1;
    }
    return ::syscall(SYS_pwritev, fd, vectors, long(count), long(offset), 0L);
}

namespace {

constexpr std::size_t file_size = 100'000;

// A file in an export, opened by a READ, and a server on the same shard.
struct exported {
    explicit exported(const std::string& where = {}) : directory(where)
    {
        posixfs::posixfs_options o;
        o.root = directory.path();
        auto opened = posixfs::open_posixfs(o, pool);
        BOOST_REQUIRE(opened);
        fs = std::move(*opened);
        r.who = credential(::geteuid(), ::getegid());
        set_attributes set;
        set.mode = 0600;
        auto made = run(fs->create(r, fs->root(), "f", create_mode::guarded, set, 0));
        BOOST_REQUIRE(made);
        file = made->made.handle;
        BOOST_REQUIRE(write() == file_size);
        BOOST_REQUIRE(read() == file_size);
    }
    /// The pool's threads touch the shard after their last job has come home.
    ~exported()
    {
        fs.reset();
        pool.finish();
    }
    template<class T>
    T run(task<T> t)
    {
        return run_until_complete(*streams.shard, std::move(t));
    }
    std::size_t write()
    {
        const std::vector<std::byte> data(file_size, std::byte('d'));
        const std::span<const std::byte> piece(data);
        auto done = run(fs->write(r, file, 0, std::span(&piece, 1), stability::unstable));
        return done ? done->count : 0;
    }
    std::size_t read()
    {
        std::vector<std::byte> memory(file_size);
        auto done = run(fs->read(r, file, 0, memory));
        return done ? done->count : 0;
    }
    located_read locate()
    {
        auto there = run(fs->locate(r, file, 0, file_size, storage::locatable::memory_or_file));
        BOOST_REQUIRE(there);
        return std::move(*there);
    }
    // Has a server send what locate() gave; the bytes of the reply.
    std::size_t send(file_range range)
    {
        auto client = streams.connect();
        streams.program.range = std::move(range);
        bytes argument;
        append_u32(argument, file_size);
        streams.send(client, framed(call_of(1, 10, argument)));
        const std::size_t got = streams.receive(client).size();
        streams.program.range = file_range();
        client.reset();
        streams.turns();
        return got;
    }
    void pass(duration d)
    {
        the_clock.advance(d);
        streams.turns(1); // reactors look once a turn
    }
    bool in_memory() const
    {
        struct statfs on{};
        BOOST_REQUIRE(::statfs(directory.path().c_str(), &on) == 0);
        return on.f_type == TMPFS_MAGIC;
    }
    suite::temporary_directory directory;
    blocking_pool pool{2};
    served_streams streams{rpc::stream_options(), &the_clock};
    std::unique_ptr<file_backend> fs;
    request r;
    handle file;
};

int lines_of_log = 0;

} // namespace

// A page whose reading failed stays in the page cache: the repeat would come here for ever, and read() tells the error.
BOOST_AUTO_TEST_CASE(what_could_not_be_sent_is_read_next_time)
{
    set_log_capture(
        [](void*, std::string_view line) { lines_of_log += line.find("could not be sent") != line.npos; },
        nullptr);
    // In memory the kernel need not be asked what is cached (cachestat, Linux 6.5).
    exported e("/dev/shm");
    BOOST_REQUIRE(e.in_memory());
    auto there = e.locate();
    BOOST_TEST_REQUIRE(there.here);
    BOOST_TEST(e.send(there.bytes) > file_size);
    BOOST_TEST(e.locate().here);

    // The peer's end says nothing of the file.
    error_of_sendfile = EPIPE;
    BOOST_TEST(e.send(there.bytes) < file_size);
    BOOST_TEST(e.locate().here);
    BOOST_TEST(lines_of_log == 0);

    for (const int error : {EIO, EINVAL}) {
        error_of_sendfile = error;
        lines_of_log = 0;
        BOOST_TEST(e.send(there.bytes) < file_size);
        BOOST_TEST(!e.locate().here);
        BOOST_TEST(e.send(there.bytes) < file_size); // was located before
        BOOST_TEST(lines_of_log == 1);
        error_of_sendfile = 0;
        BOOST_TEST(e.read() == file_size);
        e.pass(59s);
        BOOST_TEST(!e.locate().here);
        e.pass(2s);
        BOOST_TEST(e.locate().here);
    }

    // What is sent may outlive the back end.
    e.fs.reset();
    error_of_sendfile = EIO;
    BOOST_TEST(e.send(there.bytes) < file_size);
    BOOST_TEST(lines_of_log == 2);
    error_of_sendfile = 0;
    set_log_capture(nullptr, nullptr);
}

// A page counts as cached before it is read.
BOOST_AUTO_TEST_CASE(sending_that_waited_for_the_disk_rests)
{
    exported e("/dev/shm");
    BOOST_REQUIRE(e.in_memory());
    auto there = e.locate();
    BOOST_TEST_REQUIRE(there.here);
    stall_of_sendfile = 4ms;
    BOOST_TEST(e.send(there.bytes) > file_size);
    BOOST_TEST(e.locate().here);
    // Once it may be the processor that was waited for; from then on that is looked at.
    stall_of_sendfile = 6ms;
    BOOST_TEST(!there.bytes.tells_waits);
    BOOST_TEST(e.send(there.bytes) > file_size);
    e.pass(0ms);
    there = e.locate();
    BOOST_TEST(there.here);
    BOOST_TEST(there.bytes.tells_waits);
    stalls_wait = false;
    stall_of_sendfile = 200ms;
    BOOST_TEST(e.send(there.bytes) > file_size);
    BOOST_TEST(e.locate().here);
    stalls_wait = true;
    stall_of_sendfile = 6ms;
    BOOST_TEST(e.send(there.bytes) > file_size);
    BOOST_TEST(!e.locate().here);
    BOOST_TEST(e.read() == file_size);
    e.pass(590ms);
    BOOST_TEST(!e.locate().here);
    e.pass(20ms);
    BOOST_TEST(e.locate().here);
    // An error within the rest is logged all the same, and lasts longer.
    set_log_capture([](void*, std::string_view) { ++lines_of_log; }, nullptr);
    lines_of_log = 0;
    stall_of_sendfile = 6ms;
    BOOST_TEST(e.send(there.bytes) > file_size);
    BOOST_TEST(!e.locate().here);
    error_of_sendfile = EIO;
    BOOST_TEST(e.send(there.bytes) < file_size);
    error_of_sendfile = 0;
    set_log_capture(nullptr, nullptr);
    BOOST_TEST(lines_of_log == 1);
    e.pass(59s);
    BOOST_TEST(!e.locate().here);
}

BOOST_AUTO_TEST_CASE(what_is_still_being_read_is_not_sent)
{
    exported e("/var/tmp");
    BOOST_REQUIRE_MESSAGE(!e.in_memory(), "/var/tmp is in memory: put it on a disk");
    constexpr long cachestat = 451;
    const bool known = ::syscall(cachestat, -1, nullptr, nullptr, 0) != 0 && errno != ENOSYS;
    // Without cachestat, before Linux 6.5, nothing is sent from the page cache of a disk.
    asked_of_nowait = -1;
    BOOST_TEST(e.locate().here == known);
    BOOST_TEST(asked_of_nowait == (known ? off_t(file_size - 1) : -1));
    error_of_nowait = EAGAIN;
    BOOST_TEST(!e.locate().here);
    error_of_nowait = 0;
    BOOST_TEST(e.locate().here == known);

    // Reads that held the shard up as they began: sending begins some too.
    error_of_nowait = EAGAIN;
    for (const bool is_known : {false, true}) {
        stalls_wait = is_known;
        for (int calls = 0; calls < 2; ++calls) {
            stall_of_nowait = 6ms;
            BOOST_TEST(e.read() == file_size);
            e.pass(0ms);
            error_of_nowait = 0;
            BOOST_TEST(e.locate().here == (known && !is_known));
            error_of_nowait = EAGAIN;
        }
    }
    error_of_nowait = 0;
    e.pass(580ms);
    BOOST_TEST(!e.locate().here);
    e.pass(20ms);
    BOOST_TEST(e.locate().here == known);

    // A file system that can't tell.
    error_of_nowait = EOPNOTSUPP;
    BOOST_TEST(e.locate().here == known);
    error_of_nowait = 0;
    asked_of_nowait = -1;
    BOOST_TEST(e.locate().here == known);
    BOOST_TEST((asked_of_nowait == -1));
}

BOOST_AUTO_TEST_CASE(writes_that_waited_go_to_the_pool_for_a_while)
{
    exported e("/var/tmp");
    // True if the shard wrote.
    const auto on_shard = [&] {
        written_by = 0;
        BOOST_TEST(e.write() == file_size);
        BOOST_TEST(written_by != 0);
        return written_by == ::gettid();
    };
    stall_of_write = 4ms;
    BOOST_TEST(on_shard());
    BOOST_TEST(on_shard());
    // Once it may be the processor that was waited for, and what is no wait then changes nothing.
    for (const duration each : {6ms, 200ms, 6ms}) {
        stall_of_write = each;
        BOOST_TEST(on_shard());
        e.pass(0ms);
        BOOST_TEST(on_shard());
        stalls_wait = false;
    }
    stalls_wait = true;
    stall_of_write = 6ms;
    BOOST_TEST(on_shard());
    e.pass(0ms);
    BOOST_TEST(!on_shard());
    e.pass(590ms);
    BOOST_TEST(!on_shard());
    e.pass(20ms);
    BOOST_TEST(on_shard());
    // In doubt for a hundred times as long, and no longer.
    e.pass(60s);
    for (int calls = 0; calls < 2; ++calls) {
        stall_of_write = 6ms;
        BOOST_TEST(on_shard());
        e.pass(600ms);
        BOOST_TEST(on_shard());
    }
    // One that failed held the shard up as well.
    stall_of_write = 6ms;
    BOOST_TEST(on_shard());
    stall_of_write = 6ms;
    error_of_write = ENOSPC;
    BOOST_TEST(e.write() == 0u);
    BOOST_TEST(written_by == ::gettid());
    error_of_write = 0;
    e.pass(0ms);
    BOOST_TEST(!on_shard());
    // However long, a minute later it is tried again.
    e.pass(1s);
    stall_of_write = 30s;
    BOOST_TEST(on_shard());
    e.pass(59s);
    BOOST_TEST(!on_shard());
    e.pass(2s);
    BOOST_TEST(on_shard());
}

// What peers reach by RDMA takes the same way.
BOOST_AUTO_TEST_CASE(a_disk_that_stalled_is_left_to_the_pool_by_stores_too)
{
    exported e("/var/tmp");
    BOOST_REQUIRE_MESSAGE(!e.in_memory(), "/var/tmp is in memory: put it on a disk");
    const auto mapped = e.run(e.fs->map(e.r, e.file, 0, file_size, map_use::write));
    BOOST_REQUIRE(mapped);
    std::vector<std::byte> memory(file_size, std::byte('s'));
    const auto on_shard = [&] {
        written_by = 0;
        BOOST_TEST(e.run(mapped->store->write(0, memory)).has_value());
        BOOST_TEST(written_by != 0);
        return written_by == ::gettid();
    };
    BOOST_TEST(on_shard());
    stall_of_write = 100ms;
    BOOST_TEST(on_shard());
    e.pass(0ms);
    BOOST_TEST(!on_shard());
    // An error of a thread is told as one of the shard is.
    error_of_write = ENOSPC;
    const auto other = e.run(e.fs->map(e.r, e.file, 0, file_size, map_use::write));
    BOOST_REQUIRE(other);
    BOOST_TEST(!e.run(other->store->write(0, memory)).has_value());
    error_of_write = 0;
    BOOST_TEST(written_by != ::gettid());
    BOOST_TEST(other->store->write_failure().value() == ENOSPC);
    e.pass(11s);
    BOOST_TEST(on_shard());
    // And reads: what is in the page cache is read at once, all the same.
    stall_of_nowait = 100ms;
    BOOST_TEST(e.run(mapped->store->read(0, memory)).has_value());
    error_of_nowait = EAGAIN;
    BOOST_TEST(e.run(mapped->store->read(0, memory)).has_value());
    error_of_nowait = 0;
    BOOST_TEST((memory == std::vector<std::byte>(file_size, std::byte('s'))));
}

// It waits in the lane while its connection ends: it would land on what the peer has written since.
BOOST_AUTO_TEST_CASE(a_write_that_nobody_asks_for_any_more_is_not_made)
{
    exported e("/var/tmp");
    BOOST_REQUIRE_MESSAGE(!e.in_memory(), "/var/tmp is in memory: put it on a disk");
    const auto mapped = e.run(e.fs->map(e.r, e.file, 0, file_size, map_use::write));
    BOOST_REQUIRE(mapped);
    std::vector<std::byte> memory(file_size, std::byte('s'));
    stall_of_write = 100ms;
    BOOST_TEST(e.run(mapped->store->write(0, memory)).has_value());
    e.pass(0ms);
    scope tasks(*e.streams.shard);
    std::latch may_go(1);
    for (int threads = 0; threads < 2; ++threads)
        tasks.spawn([&]() -> task<void> {
            auto job = [&may_go] { may_go.wait(); };
            co_await e.pool.run(std::move(job));
        });
    result<void> done;
    scope connection(*e.streams.shard);
    connection.spawn([&]() -> task<void> { done = co_await mapped->store->write(0, memory); });
    written_by = 0;
    connection.request_stop();
    may_go.count_down();
    while (connection.live() != 0 || tasks.live() != 0)
        e.streams.turns(1);
    BOOST_TEST((!done && done.error() == std::errc::operation_canceled));
    BOOST_TEST(written_by == 0);
    BOOST_TEST(!mapped->store->write_failure()); // nobody was told that it is there
}

// Its connection would end, and with it what the peer does with other files.
BOOST_AUTO_TEST_CASE(a_read_of_a_store_waits_for_a_lane_that_is_full)
{
    exported e("/var/tmp");
    BOOST_REQUIRE_MESSAGE(!e.in_memory(), "/var/tmp is in memory: put it on a disk");
    const auto mapped = e.run(e.fs->map(e.r, e.file, 0, file_size, map_use::read));
    BOOST_REQUIRE(mapped);
    scope tasks(*e.streams.shard);
    std::latch may_go(1);
    for (std::size_t jobs = 0; jobs < 2 + blocking_pool::max_queued; ++jobs)
        tasks.spawn([&]() -> task<void> {
            auto job = [&may_go] { may_go.wait(); };
            co_await e.pool.run(std::move(job));
        });
    std::vector<std::byte> memory(file_size);
    error_of_nowait = EOPNOTSUPP; // so that it takes a thread
    result<void> done = error(std::errc::io_error, "not ended");
    tasks.spawn([&]() -> task<void> { done = co_await mapped->store->read(0, memory); });
    e.pass(10ms);
    may_go.count_down();
    while (tasks.live() != 0)
        e.pass(1ms);
    error_of_nowait = 0;
    BOOST_TEST(done.has_value());
    BOOST_TEST((memory == std::vector<std::byte>(file_size, std::byte('d'))));
}

// Nobody can end it, and whoever stops the server is to know which disk to look at.
BOOST_AUTO_TEST_CASE(a_call_that_a_disk_holds_up_is_named_in_the_log)
{
    std::vector<std::string> lines;
    set_log_capture(
        [](void* to, std::string_view line) {
            static_cast<std::vector<std::string>*>(to)->emplace_back(line);
        },
        &lines);
    const auto is_told = [&](std::initializer_list<std::string_view> parts) {
        return std::ranges::count_if(lines, [&](const std::string& line) {
            return std::ranges::all_of(parts, [&](auto part) { return line.find(part) != line.npos; });
        });
    };
    exported e("/var/tmp");
    BOOST_REQUIRE_MESSAGE(!e.in_memory(), "/var/tmp is in memory: put it on a disk");
    const auto mapped = e.run(e.fs->map(e.r, e.file, 0, file_size, map_use::write));
    BOOST_REQUIRE(mapped);
    std::vector<std::byte> memory(file_size, std::byte('s'));
    const std::string file = "file=" + e.directory.path().string() + "/f";
    const std::string root = "export=" + e.directory.path().string();
    for (const bool writes : {true, false}) {
        lines.clear();
        const std::string operation = std::string("waits_for=") + (writes ? "write" : "read");
        if (writes) {
            stall_of_write = 100ms;
            BOOST_TEST(e.run(mapped->store->write(0, memory)).has_value());
            e.pass(0ms);
        } else {
            error_of_nowait = EAGAIN;
        }
        scope tasks(*e.streams.shard);
        std::latch may_go(1);
        for (int threads = 0; threads < 2; ++threads)
            tasks.spawn([&]() -> task<void> {
                auto job = [&may_go] { may_go.wait(); };
                co_await e.pool.run(std::move(job));
            });
        scope connection(*e.streams.shard);
        connection.spawn([&]() -> task<void> {
            if (writes)
                (void)co_await mapped->store->write(100, memory);
            else
                (void)co_await mapped->store->read(100, memory);
        });
        e.pass(4900ms);
        BOOST_TEST(lines.empty());
        e.pass(200ms);
        BOOST_TEST(is_told({"a call for a peer waits", root, file, operation, "offset=100", "bytes=100000",
                            "seconds=5"}) == 1);
        e.pass(9800ms);
        BOOST_TEST(lines.size() == 1u);
        if (writes) { // once, as lines are limited
            e.pass(200ms);
            BOOST_TEST(is_told({"a call for a peer waits", root, file, operation, "seconds=15"}) == 1);
        }
        const auto told = lines.size();
        connection.request_stop();
        BOOST_TEST(is_told({"the end of a connection waits", root, file, operation}) == 1);
        may_go.count_down();
        while (connection.live() != 0 || tasks.live() != 0)
            e.streams.turns(1);
        // What is over is told of no more.
        e.pass(60s);
        BOOST_TEST(lines.size() == told + 1);
        error_of_nowait = 0;
    }
    set_log_capture(nullptr, nullptr);
}

// Of each connection that ends with the server an access may be under way. That of the disk that hangs is told of.
BOOST_AUTO_TEST_CASE(calls_that_are_not_slow_hide_none_that_is)
{
    std::vector<std::string> lines;
    set_log_capture(
        [](void* to, std::string_view line) {
            if (line.find("beneath an export") != line.npos)
                static_cast<std::vector<std::string>*>(to)->emplace_back(line);
        },
        &lines);
    virtual_clock clock;
    reactor_options r;
    r.clock = &clock;
    const auto shard = std::move(*reactor::create(r));
    log_limiter logged;
    stop_source stop;
    const auto call = [&](std::uint64_t offset) {
        return std::make_unique<posixfs::slow_call>(
            *shard, stop.token(), logged,
            posixfs::slow_call::what{"/export", "/srv", STDERR_FILENO, "write", offset, 1});
    };
    const auto pass = [&](duration time) {
        clock.advance(time);
        shard->turn();
    };
    const auto old = call(7);
    pass(4s);
    std::vector<std::unique_ptr<posixfs::slow_call>> young;
    for (int i = 0; i < 20; ++i)
        young.push_back(call(100));
    stop.request_stop();
    BOOST_TEST(lines.empty());
    BOOST_TEST(young.front()->is_stopped());
    pass(500ms);
    young.clear();
    pass(500ms);
    BOOST_TEST_REQUIRE(lines.size() == 1u);
    BOOST_TEST(lines[0].find("the end of a connection waits") != std::string::npos);
    BOOST_TEST(lines[0].find("offset=7") != std::string::npos);
    set_log_capture(nullptr, nullptr);
}
