// SPDX-License-Identifier: Apache-2.0
// What fileblk makes of disks that fail, hang, end early or forget, and what it costs in steady state.
#include <boost/test/unit_test.hpp>

#include "../allocation_count.hpp"
#include "../lines_of_log.hpp"
#include "../log_at.hpp"
#include "fileblk_fixture.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/sleep.hpp>

#include <atomic>
#include <barrier>
#include <cerrno>
#include <fcntl.h>
#include <linux/falloc.h>
#include <mutex>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace {

std::atomic<int> error_of_sync{0}; // of the next one
std::atomic<unsigned> syncs{0};
std::atomic<bool> syncs_wait{false};
std::atomic<int> error_of_allocate{0}; // as long as it is there
std::atomic<int> interrupts{0};        // of the next calls
std::atomic<int> allocated{0};         // the modes of all that succeeded
std::atomic<bool> nothing_cached{false};
std::atomic<int> error_of_write{0};
std::atomic<int> flags_of_write{0};
std::atomic<unsigned> lane_reads{0};
std::atomic<unsigned> marks{0}; // of a loss, that were begun
std::atomic<bool> marks_wait{false};
std::atomic<int> error_of_mark{0}; // as long as it is there

bool is_interrupted()
{
    errno = EINTR;
    return interrupts > 0 && interrupts-- > 0;
}

} // namespace

// In place of libc's.
extern "C" int fdatasync(int fd)
{
    ++syncs;
    while (syncs_wait)
        ::usleep(100);
    if (is_interrupted())
        return -1;
    if (const int failed = error_of_sync.exchange(0); failed != 0) {
        errno = failed;
        return -1;
    }
    return int(::syscall(SYS_fdatasync, fd));
}
extern "C" int fallocate(int fd, int mode, off_t offset, off_t length)
{
    if (is_interrupted())
        return -1;
    if (error_of_allocate != 0) {
        errno = error_of_allocate;
        return -1;
    }
    const int done = int(::syscall(SYS_fallocate, fd, mode, offset, length));
    if (done == 0)
        allocated |= mode;
    return done;
}
extern "C" int fsetxattr(int fd, const char* name, const void* value, std::size_t size, int flags) noexcept
{
    ++marks;
    while (marks_wait)
        ::usleep(100);
    if (error_of_mark != 0) {
        errno = error_of_mark;
        return -1;
    }
    return int(::syscall(SYS_fsetxattr, fd, name, value, size, flags));
}
extern "C" ssize_t preadv2(int fd, const iovec* vectors, int count, off_t offset, int flags)
{
    if (nothing_cached) {
        errno = EAGAIN;
        return -1;
    }
    return ::syscall(SYS_preadv2, fd, vectors, long(count), long(offset), 0L, long(flags));
}
extern "C" ssize_t pread(int fd, void* to, std::size_t size, off_t offset)
{
    ++lane_reads;
    return ::syscall(SYS_pread64, fd, to, size, offset);
}
extern "C" ssize_t pwritev2(int fd, const iovec* vectors, int count, off_t offset, int flags)
{
    flags_of_write = flags;
    if (is_interrupted())
        return -1;
    if (error_of_write != 0) {
        errno = error_of_write;
        return -1;
    }
    return ::syscall(SYS_pwritev2, fd, vectors, long(count), long(offset), 0L, long(flags));
}

using namespace suite;
using fileblk::direct_mode;
using namespace std::chrono_literals;

namespace {

struct quiet {
    const test::log_at level_of_log{log_level::error};
    quiet()
    {
        set_log_capture([](void* lines, std::string_view) { ++*static_cast<std::atomic<int>*>(lines); },
                        &lines);
    }
    ~quiet() { set_log_capture(nullptr, nullptr); }
    std::atomic<int> lines{0};
};

constexpr direct_mode both_ways[] = {direct_mode::automatic, direct_mode::off};

} // namespace

// As both ways are tested below, both must be there: /var/tmp has to be on a disk whose file system has O_DIRECT.
BOOST_AUTO_TEST_CASE(the_way_is_chosen_once)
{
    device direct;
    BOOST_TEST_REQUIRE(direct.is_direct(), direct.disk->notes());
    device cached("/var/tmp", direct_mode::off);
    BOOST_TEST(!cached.is_direct());
    device in_memory("/dev/shm");
    BOOST_TEST(in_memory.disk->notes().starts_with("in memory"), in_memory.disk->notes());
    const memory data(8192, 1);
    for (device* d : {&direct, &cached, &in_memory}) {
        BOOST_TEST(d->write(4096, data.get()) == 0);
        const memory back(8192);
        BOOST_TEST(d->read(4096, back.get()) == 0);
        BOOST_TEST(back.all(1));
        const auto c = d->disk->counters();
        BOOST_TEST(c.direct == (d == &direct ? 2u : 0u));
        BOOST_TEST(c.page_cache == (d == &direct ? 0u : 2u));
        BOOST_TEST(c.copied == 0u);
    }
}

BOOST_AUTO_TEST_CASE(what_ends_early_is_continued)
{
    for (const auto way : both_ways) {
        device d("/var/tmp", way);
        const memory data(65536, 7);
        // Signals, and ends that are no place to begin at for O_DIRECT.
        d.ring->fates = {{.most = 4096}, {.instead = -EINTR}, {.most = 20480}, {.most = 512}};
        if (!d.is_direct())
            d.ring->fates.push_back({.most = 700});
        BOOST_TEST(d.write(0, data.get()) == 0);
        BOOST_TEST(d.ring->fates.empty());
        BOOST_TEST(d.ring->writes >= 5u);
        nothing_cached = true;
        const memory back(65536);
        d.ring->fates = {{.most = 8192}, {.instead = -EINTR}, {.most = 4096}};
        BOOST_TEST(d.read(0, back.get()) == 0);
        BOOST_TEST(d.ring->fates.empty());
        BOOST_TEST(back.all(7));
        nothing_cached = false;
    }
}

// A direct transfer that ends amid a unit of alignment goes on at the unit's begin.
BOOST_AUTO_TEST_CASE(a_direct_transfer_goes_on_where_it_can)
{
    class part final : public odd_transfers {
    public:
        task<std::int32_t> read(int fd, std::span<std::byte> to, std::uint64_t offset) override
        {
            BOOST_TEST(offset % 512 == 0u);
            const std::int32_t n = co_await odd_transfers::read(fd, to, offset);
            co_return reads == 1 ? 5000 : n;
        }
    };
    device d;
    const memory data(16384, 9);
    BOOST_TEST(d.write(0, data.get()) == 0);
    auto made = std::make_unique<part>();
    part* const ring = made.get();
    d.disk.reset();
    d.disk = std::make_unique<fileblk::backend>(d.options, fileblk::open_disk_file(d.options), d.lane,
                                                std::move(made));
    const memory back(16384);
    BOOST_TEST(d.read(0, back.get()) == 0);
    BOOST_TEST(back.all(9));
    BOOST_TEST(ring->reads == 2u);
}

BOOST_AUTO_TEST_CASE(errors_come_by_their_number)
{
    for (const auto way : both_ways) {
        device d("/var/tmp", way);
        const memory data(4096, 1);
        for (const int error : {EIO, ENOSPC, EDQUOT, EFBIG}) {
            d.ring->fates = {{.instead = -error}};
            BOOST_TEST(d.write(0, data.get()) == error);
            d.ring->fates = {{.most = 512}, {.instead = -error}};
            const memory more(8192, 2);
            BOOST_TEST(d.write(0, more.get()) == error);
        }
        nothing_cached = true;
        d.ring->fates = {{.instead = -EIO}};
        BOOST_TEST(d.read(0, data.get()) == EIO);
        nothing_cached = false;
        // The next one is as good as ever.
        BOOST_TEST(d.write(0, data.get(), true) == 0);
        BOOST_TEST(d.read(0, data.get()) == 0);
    }
    device d("/dev/shm");
    const memory data(4096, 1);
    error_of_write = ENOSPC;
    BOOST_TEST(d.write(0, data.get()) == ENOSPC);
    error_of_write = 0;
    interrupts = 2;
    BOOST_TEST(d.write(0, data.get()) == 0);
    BOOST_TEST(interrupts == 0);
}

// A ring that is full, or a disk that would have to wait: threads that may wait go on with it.
BOOST_AUTO_TEST_CASE(what_the_ring_refuses_goes_to_the_lane)
{
    for (const auto way : both_ways) {
        for (const int refusal : {EAGAIN, ENOBUFS, EOPNOTSUPP}) {
            device d("/var/tmp", way);
            const memory data(65536, 3);
            d.ring->fates = {{.most = 4096}, {.instead = -refusal}};
            flags_of_write = 0;
            BOOST_TEST(d.write(0, data.get(), true) == 0);
            BOOST_TEST(flags_of_write == RWF_DSYNC);
            nothing_cached = true;
            d.ring->fates = {{.most = 4096}, {.instead = -refusal}};
            const memory back(65536);
            BOOST_TEST(d.read(0, back.get()) == 0);
            BOOST_TEST(back.all(3));
            nothing_cached = false;
            error_of_write = EIO;
            d.ring->fates = {{.instead = -refusal}};
            BOOST_TEST(d.write(0, data.get()) == EIO);
            error_of_write = 0;
        }
    }
}

BOOST_AUTO_TEST_CASE(a_file_that_was_cut_off_is_no_zeros)
{
    for (const char* where : {"/var/tmp", "/dev/shm"}) {
        for (const auto way : both_ways) {
            device d(where, way);
            BOOST_REQUIRE(::truncate(d.options.path.c_str(), 8192 + 700) == 0);
            for (const bool cached : {true, false}) {
                nothing_cached = !cached;
                const memory small(8192);
                const memory large(256 << 10);
                BOOST_TEST(d.read(0, small.get()) == 0);
                BOOST_TEST(d.read(8192, small.get()) == EIO);
                BOOST_TEST(d.read(65536, small.get()) == EIO);
                BOOST_TEST(d.read(0, large.get()) == EIO);
                const auto cut = run_until_complete(*d.shard, d.disk->read(8192, small.get()));
                BOOST_REQUIRE(!cut);
                const std::string text = cut.error().message();
                BOOST_TEST(text.find("shorter than its device") != text.npos, text);
                BOOST_TEST(text.find("verbena admin resize DEVICE shrink") != text.npos, text);
            }
            nothing_cached = false;
        }
    }
}

// Who has it open and has not heard sees errors of a disk; who never could ask for it made a mistake.
BOOST_AUTO_TEST_CASE(a_file_that_has_another_size_is_served_in_it)
{
    device d;
    const std::uint64_t size = 1 << 20;
    const memory m(4096, 7);
    BOOST_TEST(d.disk->size_there().value() == size);
    BOOST_TEST(d.write(size, m.get()) == EINVAL);
    // Larger.
    BOOST_REQUIRE(::truncate(d.options.path.c_str(), off_t(size + 8192 + 100)) == 0);
    BOOST_TEST(d.disk->size_there().value() == size + 8192);
    BOOST_TEST(d.disk->properties().size == size);
    BOOST_TEST(d.write(size, m.get()) == EINVAL);
    d.disk->serve_size(size + 8192);
    BOOST_TEST(d.disk->properties().size == size + 8192);
    BOOST_TEST(d.write(size + 4096, m.get()) == 0);
    BOOST_TEST((d.read(size + 4096, m.get()) == 0 && m.all(7)));
    BOOST_TEST(d.read(size + 8192, m.get()) == EINVAL);
    // Smaller.
    BOOST_REQUIRE(::truncate(d.options.path.c_str(), 8192) == 0);
    BOOST_TEST(d.disk->size_there().value() == 8192u);
    d.disk->serve_size(8192);
    BOOST_TEST(d.read(4096, m.get()) == 0);
    BOOST_TEST(d.read(8192, m.get()) == EIO);
    BOOST_TEST(d.read(size + 4096, m.get()) == EIO);
    BOOST_TEST(d.write(8192, m.get()) == ENOSPC);
    BOOST_TEST(d.run(d.disk->write_zeroes(4096, 8192, false)) == ENOSPC);
    BOOST_TEST(d.run(d.disk->discard(8192, 4096)) == ENOSPC);
    BOOST_TEST(d.read(size + 8192, m.get()) == EINVAL);
    struct stat st{};
    BOOST_REQUIRE(::stat(d.options.path.c_str(), &st) == 0);
    BOOST_TEST(st.st_size == 8192); // nothing was written there
    BOOST_REQUIRE(::truncate(d.options.path.c_str(), 100) == 0);
    BOOST_TEST(d.disk->size_there().error().errno_value() == EINVAL);
}

BOOST_AUTO_TEST_CASE(memory_that_is_not_aligned_is_copied)
{
    device d("/var/tmp", direct_mode::on, 512);
    const memory data((1 << 20) - 512, 5, 3);
    BOOST_TEST(d.write(512, data.get(), true) == 0);
    BOOST_TEST(d.ring->throughs == 1u);
    const memory back((1 << 20) - 512, 0, 1);
    BOOST_TEST(d.read(512, back.get()) == 0);
    BOOST_TEST(back.all(5));
    BOOST_TEST(d.disk->counters().copied == 2u);
    d.ring->fates = {{.instead = -EIO}};
    BOOST_TEST(d.read(512, back.get()) == EIO);
    d.ring->fates = {{.instead = -ENOSPC}};
    BOOST_TEST(d.write(512, data.get()) == ENOSPC);
}

namespace {

task<void> flush_one(fileblk::backend& disk, int& failed)
{
    const auto done = co_await disk.flush();
    failed = done ? 0 : done.error().errno_value();
}

// One flush, and `more` that come while its fdatasync runs.
std::vector<int> flush_at_once(device& d, std::size_t more)
{
    std::vector<int> failed(more + 1, -1);
    const auto all = [&]() -> task<void> {
        syncs_wait = true;
        const unsigned before = syncs;
        scope s(*d.shard);
        s.spawn([&] { return flush_one(*d.disk, failed[0]); });
        while (syncs == before)
            std::this_thread::yield();
        for (std::size_t i = 1; i <= more; ++i)
            s.spawn([&, i] { return flush_one(*d.disk, failed[i]); });
        syncs_wait = false;
        co_await s.join();
    };
    run_until_complete(*d.shard, all());
    return failed;
}

} // namespace

BOOST_AUTO_TEST_CASE(one_sync_serves_all_who_wait)
{
    for (const auto way : both_ways) {
        device d("/var/tmp", way);
        syncs = 0;
        BOOST_TEST(std::ranges::count(flush_at_once(d, 20), 0) == 21);
        BOOST_TEST(syncs == 2u);
        BOOST_TEST(d.disk->counters().syncs == 2u);
    }
    device d("/dev/shm");
    syncs = 0;
    BOOST_TEST(d.flush() == 0);
    BOOST_TEST(syncs == 0u);
}

// Clients take a write-back cache for a promise: what was flushed is still there, whatever became of its host.
BOOST_AUTO_TEST_CASE(a_file_in_memory_has_no_cache_that_a_flush_empties)
{
    const device in_memory("/dev/shm");
    BOOST_TEST(!in_memory.disk->properties().write_back);
    BOOST_TEST(in_memory.disk->properties().run != 0u);
    const device on_disk;
    BOOST_TEST(on_disk.disk->properties().write_back);
}

// What is written to it is gone with the process, and its clients can't know.
BOOST_AUTO_TEST_CASE(a_file_that_was_removed_is_told_once)
{
    const test::log_at level{log_level::error};
    const test::lines_of_log lines;
    constexpr std::string_view what = "error fileblk: the file of a device was removed or replaced";
    device d;
    BOOST_TEST(d.flush() == 0);
    BOOST_TEST(lines.count({what}) == 0u);
    BOOST_REQUIRE(::unlink(d.options.path.c_str()) == 0);
    BOOST_TEST(d.flush() == 0);
    BOOST_TEST(d.flush() == 0);
    BOOST_TEST(lines.count({what}) == 1u);
    BOOST_TEST(lines.count({what, d.options.path, "cp /proc/" + std::to_string(::getpid()) + "/fd/"}) == 1u);
}

// The kernel tells an error of write-back once, and the next fdatasync is good, though the data are gone.
BOOST_AUTO_TEST_CASE(after_a_sync_that_failed_no_flush_succeeds)
{
    for (const auto way : both_ways) {
        for (const int error : {EIO, ENOSPC}) {
            const quiet log;
            device d("/var/tmp", way);
            const std::uint64_t run = d.disk->properties().run;
            const memory data(4096, 1);
            BOOST_TEST(d.write(0, data.get(), true) == 0);
            error_of_sync = error;
            BOOST_TEST(d.flush() == error);
            const unsigned before = syncs;
            BOOST_TEST(d.flush() == EIO);
            BOOST_TEST(syncs == before);
            BOOST_TEST(d.write(0, data.get(), true) == EIO);
            BOOST_TEST(d.flush() == EIO);
            BOOST_TEST(log.lines == 1);
            BOOST_TEST(d.disk->counters().sync_failures == 1u);
            // What promises nothing goes on.
            BOOST_TEST(d.write(0, data.get()) == 0);
            BOOST_TEST(d.read(0, data.get()) == 0);
            // As does the device, once it is opened anew. Its clients are told that it is of another run.
            d.open();
            const std::uint64_t next = d.disk->properties().run;
            BOOST_TEST(next != run);
            BOOST_TEST(d.write(0, data.get(), true) == 0);
            BOOST_TEST(d.flush() == 0);
            d.open();
            BOOST_TEST(d.disk->properties().run == next);
            error_of_sync = error;
            BOOST_TEST(d.flush() == error);
            d.open();
            BOOST_TEST(d.disk->properties().run != next);
        }
    }
}

// The sync behind it may have failed for what others wrote, and no later one would tell. A file without room has lost nothing.
BOOST_AUTO_TEST_CASE(after_a_write_through_that_failed_no_flush_succeeds)
{
    for (const auto way : both_ways) {
        for (const bool copied : {false, true}) {
            for (const int error : {EIO, EFBIG, ENOSPC, EDQUOT}) {
                const quiet log;
                const bool loses = error == EIO || error == EFBIG;
                device d("/var/tmp", way);
                const memory data(4096, 1, copied ? 8 : 0);
                d.ring->fates = {{.instead = -error}};
                BOOST_TEST(d.write(0, data.get()) == error);
                BOOST_TEST(d.flush() == 0);
                d.ring->fates = {{.instead = -error}};
                BOOST_TEST(d.write(0, data.get(), true) == error);
                BOOST_TEST(d.disk->counters().sync_failures == (loses ? 1u : 0u));
                BOOST_TEST(d.flush() == (loses ? EIO : 0));
                BOOST_TEST(d.write(0, data.get(), true) == (loses ? EIO : 0));
                BOOST_TEST(d.disk->counters().sync_failures == (loses ? 1u : 0u));
                BOOST_TEST(log.lines == (loses ? 1 : 0));
                const std::uint64_t run = d.disk->properties().run;
                d.open();
                BOOST_TEST((d.disk->properties().run != run) == loses);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(who_waits_for_the_sync_behind_the_one_that_failed_hears_of_it)
{
    const quiet log;
    device d;
    error_of_sync = EIO;
    BOOST_TEST(std::ranges::count(flush_at_once(d, 5), EIO) == 6);
    BOOST_TEST(log.lines == 1);
}

// A process that ends in between would let clients take the next run for the same one, and their next flush succeed.
BOOST_AUTO_TEST_CASE(nobody_hears_of_a_loss_before_the_file_is_marked)
{
    const quiet log;
    device d;
    const memory data(4096, 1);
    const auto all = [&]() -> task<void> {
        unsigned answered = 0;
        const auto flushes = [&]() -> task<void> {
            const auto done = co_await d.disk->flush();
            answered += done ? 0 : 1;
        };
        const auto writes = [&]() -> task<void> {
            const auto done = co_await d.disk->write(0, data.get(), true);
            answered += done ? 0 : 1;
        };
        scope s(*d.shard);
        marks = 0;
        marks_wait = true;
        error_of_sync = EIO;
        s.spawn(flushes);
        while (marks == 0)
            co_await sleep_for(1ms);
        s.spawn(flushes);
        s.spawn(writes);
        for (unsigned i = 0; i < 200 && marks < 2; ++i)
            co_await sleep_for(1ms);
        BOOST_TEST(answered == 0u);
        marks_wait = false;
        co_await s.join();
        BOOST_TEST(answered == 3u);
    };
    run_until_complete(*d.shard, all());
    // Once it is there, it is not made again.
    const unsigned before = marks;
    BOOST_TEST(d.flush() == EIO);
    BOOST_TEST(marks == before);
}

BOOST_AUTO_TEST_CASE(a_mark_that_could_not_be_made_is_tried_again)
{
    const quiet log;
    device d;
    const std::uint64_t run = d.disk->properties().run;
    error_of_mark = ENOSPC;
    error_of_sync = EIO;
    BOOST_TEST(d.flush() == EIO);
    error_of_mark = 0;
    BOOST_TEST(d.flush() == EIO);
    d.open();
    BOOST_TEST(d.disk->properties().run != run);
}

BOOST_AUTO_TEST_CASE(a_sync_that_a_signal_interrupted_is_done_again)
{
    device d;
    interrupts = 1;
    syncs = 0;
    BOOST_TEST(d.flush() == 0);
    BOOST_TEST(syncs == 2u);
    BOOST_TEST(d.disk->counters().sync_failures == 0u);
}

BOOST_AUTO_TEST_CASE(a_write_through_is_one)
{
    for (const auto way : both_ways) {
        device d("/var/tmp", way);
        const memory data(65536, 1);
        BOOST_TEST(d.write(0, data.get()) == 0);
        BOOST_TEST(d.ring->throughs == 0u);
        d.ring->fates = {{.most = 4096}};
        BOOST_TEST(d.write(0, data.get(), true) == 0);
        BOOST_TEST(d.ring->throughs == 2u); // its rest too
    }
}

BOOST_AUTO_TEST_CASE(what_is_cleared_reads_as_zeros)
{
    for (const char* where : {"/var/tmp", "/dev/shm"}) {
        for (const auto way : both_ways) {
            // ENOENT: as the file system does.
            for (const int error : {0, EOPNOTSUPP}) {
                device d(where, way, 512);
                const memory data(1 << 20, 0xff);
                BOOST_TEST(d.write(0, data.get()) == 0);
                error_of_allocate = error;
                allocated = 0;
                interrupts = error == 0 ? 1 : 0;
                BOOST_TEST(d.run(d.disk->write_zeroes(512, 300 * 512, false)) == 0);
                const bool punched = (allocated & FALLOC_FL_PUNCH_HOLE) != 0;
                BOOST_TEST(punched == (error == 0));
                BOOST_TEST(interrupts == 0);
                allocated = 0;
                BOOST_TEST(d.run(d.disk->write_zeroes(512 * 1024, 512, true)) == 0);
                BOOST_TEST((allocated & FALLOC_FL_PUNCH_HOLE) == 0);
                error_of_allocate = 0;
                const memory back(1 << 20);
                BOOST_TEST(d.read(0, back.get()) == 0);
                for (std::size_t i = 0; i < back.get().size(); ++i) {
                    const bool cleared = (i >= 512 && i < 512 * 301) || (i >= 512 * 1024 && i < 512 * 1025);
                    BOOST_REQUIRE_EQUAL(int(back.get()[i]), cleared ? 0 : 0xff);
                }
                struct stat st{};
                BOOST_REQUIRE(::stat(d.options.path.c_str(), &st) == 0);
                BOOST_TEST(st.st_size == 1 << 20);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(zeros_that_keep_their_space)
{
    device d;
    const memory data(1 << 20, 1);
    const auto blocks = [&] {
        struct stat st{};
        BOOST_REQUIRE((d.flush() == 0 && ::stat(d.options.path.c_str(), &st) == 0));
        return st.st_blocks;
    };
    BOOST_TEST(d.write(0, data.get()) == 0);
    const auto before = blocks();
    BOOST_TEST(d.run(d.disk->write_zeroes(0, 1 << 20, true)) == 0);
    BOOST_TEST(blocks() >= before);
    BOOST_TEST(d.run(d.disk->write_zeroes(0, 1 << 20, false)) == 0);
    BOOST_TEST(blocks() < before / 2);
    BOOST_TEST(d.write(0, data.get()) == 0);
    BOOST_TEST(d.run(d.disk->discard(0, 1 << 20)) == 0);
    BOOST_TEST(blocks() < before / 2);
}

BOOST_AUTO_TEST_CASE(errors_of_clearing)
{
    device d;
    for (const int error : {EIO, ENOSPC}) {
        error_of_allocate = error;
        BOOST_TEST(d.run(d.disk->discard(0, 4096)) == error);
        BOOST_TEST(d.run(d.disk->write_zeroes(0, 4096, false)) == error);
        BOOST_TEST(d.run(d.disk->write_zeroes(0, 4096, true)) == error);
    }
    error_of_allocate = EOPNOTSUPP;
    error_of_write = ENOSPC;
    BOOST_TEST(d.run(d.disk->write_zeroes(0, 4096, true)) == ENOSPC);
    // It says so from the start where there is no discard.
    d.open();
    BOOST_TEST(d.disk->properties().discard_granularity == 0u);
    BOOST_TEST(d.run(d.disk->discard(0, 4096)) == EOPNOTSUPP);
    error_of_allocate = error_of_write = 0;
}

BOOST_AUTO_TEST_CASE(ranges_are_checked_and_what_is_read_only_stays)
{
    device d;
    const memory data(4096, 1);
    BOOST_TEST(d.read(1, data.get()) == EINVAL);
    BOOST_TEST(d.write(1 << 20, data.get()) == EINVAL);
    BOOST_TEST(d.write(0, data.get().first(512)) == EINVAL);
    BOOST_TEST(d.run(d.disk->discard((1 << 20) - 4096, 8192)) == EINVAL);
    BOOST_TEST(d.run(d.disk->write_zeroes(1 << 20, 4096, true)) == EINVAL);
    d.options.read_only = true;
    d.open();
    BOOST_TEST(d.disk->properties().read_only);
    BOOST_TEST(!d.disk->properties().write_back);
    BOOST_TEST(d.write(0, data.get()) == EROFS);
    BOOST_TEST(d.run(d.disk->discard(0, 4096)) == EROFS);
    BOOST_TEST(d.run(d.disk->write_zeroes(0, 4096, true)) == EROFS);
    BOOST_TEST(d.flush() == 0);
    BOOST_TEST(d.read(0, data.get()) == 0);
}

namespace {

task<void> read_one(fileblk::backend& disk, std::uint64_t offset, std::span<std::byte> into, unsigned& good)
{
    const auto done = co_await disk.read(offset, into);
    good += done ? 1 : 0;
}

} // namespace

// A shard begins no more reads than the disk's queue surely takes; what comes then waits in threads of the device's own.
BOOST_AUTO_TEST_CASE(a_disk_that_hangs_holds_up_its_own_device)
{
    device d("/var/tmp", direct_mode::off);
    fileblk::fileblk_options o = d.options;
    o.path += "2";
    blocking_pool other_lane{1, "other"};
    {
        const auto other = fileblk::open_fileblk(o, other_lane);
        const auto all = [&]() -> task<void> {
            event answers;
            std::vector<std::unique_ptr<memory>> places;
            unsigned good = 0;
            const std::size_t most = fileblk::backend::max_misses;
            d.ring->fates.assign(most, {.waits_for = &answers});
            scope s(*d.shard);
            nothing_cached = true;
            lane_reads = 0;
            for (std::size_t i = 0; i < most + 1; ++i) {
                places.push_back(std::make_unique<memory>(4096));
                s.spawn([&, i] { return read_one(*d.disk, i * 4096, places[i]->get(), good); });
            }
            // The one beyond went to the lane, which doesn't hang here.
            while (good == 0)
                co_await sleep_for(1ms);
            BOOST_TEST(d.ring->reads == most);
            BOOST_TEST(lane_reads == 1u);
            const memory elsewhere(4096);
            const auto got = co_await other->read(0, elsewhere.get());
            BOOST_TEST(bool(got));
            BOOST_TEST(good == 1u);
            answers.set();
            co_await s.join();
            BOOST_TEST(good == most + 1);
            nothing_cached = false;
        };
        run_until_complete(*d.shard, all());
    }
    other_lane.finish();
}

// Each of the lane's threads runs, so that none starts later, which allocates.
void start_threads(device& d)
{
    std::barrier<> all_there(2);
    const auto one = [&]() -> task<void> {
        auto waits = [&] { all_there.arrive_and_wait(); };
        co_await d.lane.run(std::move(waits));
    };
    const auto all = [&]() -> task<void> {
        scope s(*d.shard);
        s.spawn(one);
        s.spawn(one);
        co_await s.join();
    };
    run_until_complete(*d.shard, all());
}

BOOST_AUTO_TEST_CASE(steady_state_allocates_nothing)
{
    for (const char* where : {"/var/tmp", "/dev/shm"}) {
        for (const auto way : both_ways) {
            device d(where, way);
            start_threads(d);
            const memory data(4096, 1);
            const memory large(128 << 10, 2);
            std::uint64_t allocated_there = 0;
            const auto all = [&]() -> task<void> {
                for (int i = 0; i < 200; ++i) {
                    if (i == 100)
                        allocated_there = test::allocations.load();
                    nothing_cached = i % 2 == 1;
                    bool good = true;
                    for (const bool through : {false, true}) {
                        const auto wrote = co_await d.disk->write(8192, data.get(), through);
                        good = good && wrote;
                    }
                    const auto got = co_await d.disk->read(8192, data.get());
                    const auto more = co_await d.disk->read(0, large.get());
                    const auto flushed = co_await d.disk->flush();
                    const auto zeroed = co_await d.disk->write_zeroes(0, 4096, false);
                    BOOST_REQUIRE((good && got && more && flushed && zeroed));
                }
                allocated_there = test::allocations.load() - allocated_there;
            };
            run_until_complete(*d.shard, all());
            nothing_cached = false;
            BOOST_TEST(allocated_there == 0u);
        }
    }
}
