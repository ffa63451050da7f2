// SPDX-License-Identifier: Apache-2.0
// How much of the blocking pool, which all clients share, one client's ALLOCATE, DEALLOCATE and CLONE may have.
#include "backend_fixture.hpp"
#include "temporary_directory.hpp"

#include <verbena/core/task/combine.hpp>
#include <verbena/plugins/posixfs.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdarg>
#include <fcntl.h>
#include <linux/fs.h>
#include <mutex>
#include <sys/ioctl.h>
#include <sys/syscall.h>

namespace {

struct asked_for {
    int mode = 0;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
};
std::mutex mutex;
std::vector<asked_for> asked; // of the file system
std::size_t fails_at = SIZE_MAX;
std::condition_variable another;
unsigned cloning = 0;
unsigned most_cloning = 0;

} // namespace

// In place of libc's: nothing changes.
extern "C" int fallocate(int, int mode, off_t offset, off_t length)
{
    const std::lock_guard lock(mutex);
    asked.push_back({mode, static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(length)});
    if (asked.size() <= fails_at)
        return 0;
    errno = ENOSPC;
    return -1;
}
extern "C" int ioctl(int fd, unsigned long what, ...) noexcept
{
    va_list rest;
    va_start(rest, what);
    auto* const argument = va_arg(rest, void*);
    va_end(rest);
    if (what != FICLONERANGE)
        return int(::syscall(SYS_ioctl, fd, what, argument));
    std::unique_lock lock(mutex);
    most_cloning = std::max(most_cloning, ++cloning);
    another.notify_all();
    // One that may begin beside it has the time to do so.
    another.wait_for(lock, std::chrono::milliseconds(100), [] { return most_cloning > 1; });
    --cloning;
    return 0;
}

namespace suite {

std::unique_ptr<file_backend> make_backend(blocking_pool& pool, const backend_options&)
{
    static temporary_directory where;
    posixfs::posixfs_options o;
    o.root = where.path();
    return std::move(*posixfs::open_posixfs(o, pool));
}

} // namespace suite

using namespace suite;

namespace {

constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t most = 256 * mib; // of one job

struct extents : fixture {
    extents()
    {
        asked.clear();
        fails_at = SIZE_MAX;
    }
    // Without gaps, from `offset` to `end`.
    void covers(std::uint64_t offset, std::uint64_t end)
    {
        for (const asked_for& each : asked) {
            BOOST_TEST(each.offset == offset);
            offset += each.length;
        }
        BOOST_TEST(offset == end);
    }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(room_is_taken_in_jobs_of_a_bounded_length, extents)
{
    const handle f = make_file("f");
    must(fs->allocate(me, f, 5, 3 * most));
    BOOST_TEST_REQUIRE(asked.size() == 3u);
    covers(5, 5 + 3 * most);
    for (const asked_for& each : asked)
        BOOST_TEST(each.length <= most);
    // The file grows when all of it is there.
    BOOST_TEST(asked[0].mode == FALLOC_FL_KEEP_SIZE);
    BOOST_TEST(asked[1].mode == FALLOC_FL_KEEP_SIZE);
    BOOST_TEST(asked[2].mode == 0);
    asked.clear();
    fails_at = 1;
    BOOST_TEST(fails(fs->allocate(me, f, 0, 4 * most)) == ENOSPC);
    BOOST_TEST(asked.size() == 2u);
    // More than there is: nothing is taken of it.
    asked.clear();
    fails_at = SIZE_MAX;
    BOOST_TEST(fails(fs->allocate(me, f, 0, std::uint64_t(1) << 60)) == ENOSPC);
    BOOST_TEST(asked.empty());
}

BOOST_FIXTURE_TEST_CASE(room_is_given_back_in_such_jobs_as_far_as_there_is_a_file, extents)
{
    const handle f = make_file("g");
    set_attributes set;
    set.size = 2 * most + 1;
    must(fs->setattr(me, f, set, {}));
    must(fs->deallocate(me, f, 0, std::uint64_t(1) << 62));
    BOOST_TEST_REQUIRE(asked.size() == 4u);
    covers(0, std::uint64_t(1) << 62);
    for (std::size_t i = 0; i < 3; ++i)
        BOOST_TEST(asked[i].length == most);
    for (const asked_for& each : asked)
        BOOST_TEST(each.mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE));
}

BOOST_FIXTURE_TEST_CASE(a_shard_has_one_clone_in_the_pool, extents)
{
    const handle from = make_file("from", "data");
    const handle to = make_file("to");
    const auto both = [&]() -> task<bool> {
        std::vector<task<result<change>>> all;
        for (int i = 0; i < 3; ++i)
            all.push_back(fs->clone(me, from, 0, to, 0, 0));
        const auto done = co_await when_all(std::move(all));
        bool good = true;
        for (const auto& each : done)
            good = good && each;
        co_return good;
    };
    BOOST_TEST(run(both()));
    BOOST_TEST(most_cloning == 1u);
}
