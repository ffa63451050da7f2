// SPDX-License-Identifier: Apache-2.0
// Locks of posixfs that other processes see: what each step asks of the kernel, and steps that cross or hang.
#include "local_locks_fixture.hpp"

#include <array>
#include <filesystem>
#include <random>
#include <sys/stat.h>

namespace suite {

namespace {

using reason = posixfs::unseen_lock_counters::reason;

/// Tasks that run beside each other.
struct crossing : exported {
    using exported::exported;
    ~crossing()
    {
        gate.shut(false);
        tasks.request_stop();
        turn_until([this] { return tasks.live() == 0; });
    }
    void begin_lock(const opener& by, std::string owner, byte_range wanted, lock_type type, int& outcome)
    {
        tasks.spawn([this, by, owner, wanted, type, to = &outcome]() -> task<void> {
            const result<void> done = co_await lock_task(by, owner, wanted, type);
            *to = done ? 1 : -1;
        });
    }
    void begin_unlock(const opener& by, std::string owner, byte_range wanted, int& outcome)
    {
        tasks.spawn([this, by, owner, wanted, to = &outcome]() -> task<void> {
            co_await unlock_task(by, owner, wanted);
            *to = 1;
        });
    }
    /// Of the lane.
    template<class F>
    task<void> pool_task(F f)
    {
        co_await pool.run(std::move(f));
    }
    template<class F>
    void turn_until(F ends)
    {
        while (!ends())
            if (!shard->turn())
                std::this_thread::yield();
    }
    scope tasks{*shard};
};

storage::lock_range range(std::uint64_t first, std::uint64_t last, bool exclusive = false)
{
    return {first, last, exclusive};
}

} // namespace

BOOST_AUTO_TEST_SUITE(posixfs_lock_steps_test)

// One owner may have two calls under way: only what the state layer says afterwards makes a lock weaker.
BOOST_AUTO_TEST_CASE(a_lock_weakens_nothing)
{
    exported e;
    const auto locks = e.fs->local_locks_of(e.file);
    BOOST_TEST(!e.must(locks->lock(range(0, 9, true), 0)));
    BOOST_TEST(!e.must(locks->lock(range(5, 14), 0)));
    BOOST_TEST(e.local->sees(5) == F_WRLCK);
    BOOST_TEST(e.local->sees(10) == F_RDLCK);
    BOOST_TEST(!e.must(locks->lock(range(0, 14), 0)));
    BOOST_TEST(e.local->sees(5) == F_WRLCK);
    // Denied in the middle: what was taken before it goes again.
    BOOST_REQUIRE(e.local->lock({30, 30}, write));
    BOOST_TEST(e.must(locks->lock(range(0, 40), 0)).has_value());
    BOOST_TEST(e.local->sees(9) == F_WRLCK);
    BOOST_TEST(e.local->sees(14) == F_RDLCK);
    BOOST_TEST(e.local->sees(15) == F_UNLCK);
    const storage::lock_range kept = range(5, 14);
    locks->keep(0, 14, std::span(&kept, 1));
    e.run(locks->settle());
    BOOST_TEST(e.local->sees(4) == F_UNLCK);
    BOOST_TEST(e.local->sees(5) == F_RDLCK);
}

// What stands before the bytes that are denied is given back, and what the owner had stays.
BOOST_AUTO_TEST_CASE(a_denied_lock_around_write_locks_is_undone)
{
    exported e;
    const auto locks = e.fs->local_locks_of(e.file);
    BOOST_TEST(!e.must(locks->lock(range(10, 19, true), 0)));
    BOOST_REQUIRE(e.local->lock({25, 25}, write));
    const auto holder = e.must(locks->lock(range(0, 29), 0));
    BOOST_REQUIRE(holder);
    BOOST_TEST(holder->bytes.offset == 25u);
    BOOST_TEST(e.local->sees(0) == F_UNLCK);
    BOOST_TEST(e.local->sees(10) == F_WRLCK);
    BOOST_TEST(e.local->sees(20) == F_UNLCK);
}

// A call costs what changes, however much others have locked.
BOOST_AUTO_TEST_CASE(a_call_costs_what_it_changes)
{
    exported e;
    const auto a = e.open("a");
    const auto b = e.open("b");
    constexpr std::uint64_t ranges = 500;
    for (std::uint64_t i = 0; i < ranges; ++i)
        BOOST_REQUIRE(e.lock(a, "x", {i * 2, i * 2}, read));
    BOOST_REQUIRE(e.lock(b, "y", {5000, 5000}, read));
    kernel_locks = 0;
    e.unlock(b, "y", {0, 4999}); // of which it has none
    BOOST_TEST(kernel_locks == 0);
    e.unlock(b, "y", {0, byte_range::to_the_end});
    BOOST_TEST(kernel_locks == 1);
    BOOST_TEST(e.local->sees(0) == F_RDLCK);
    BOOST_TEST(e.local->sees(1) == F_UNLCK);
    // A denial, too.
    BOOST_REQUIRE(e.local->lock({6000, 6000}, read));
    kernel_locks = 0;
    BOOST_TEST(is_denied(e.lock(b, "y", {1000, byte_range::to_the_end}, write)));
    BOOST_TEST(kernel_locks == 0);
    BOOST_REQUIRE(e.lock(b, "y", {0, byte_range::to_the_end}, read));
    BOOST_TEST(kernel_locks == 1);
    BOOST_REQUIRE(e.lock(a, "x", {0, 0}, read)); // which it has
    BOOST_TEST(kernel_locks == 1);
    // All gaps come free, in turns of a bounded number.
    kernel_locks = 0;
    e.unlock(b, "y", {0, byte_range::to_the_end});
    BOOST_TEST(kernel_locks == int(ranges));
    BOOST_TEST(e.local->sees(ranges) == F_RDLCK);
    BOOST_TEST(e.local->sees(ranges + 1) == F_UNLCK);
    kernel_locks = 0;
    e.unlock(a, "x", {0, byte_range::to_the_end});
    BOOST_TEST(kernel_locks == 0); // the description is closed
    BOOST_TEST(e.local->sees(0) == F_UNLCK);
}

// A turn is bounded, so that others of the lane have theirs between.
BOOST_AUTO_TEST_CASE(a_long_step_lets_others_go_between)
{
    crossing e;
    posixfs::posixfs_options o = locking();
    o.root = e.where.path();
    blocking_pool lane(1);
    auto other = posixfs::open_posixfs(o, lane);
    BOOST_REQUIRE(other);
    auto locks = (*other)->local_locks_of(e.file);
    constexpr int turn = posixfs::lock_description::calls_of_a_turn;
    constexpr std::uint64_t ranges = 3 * turn;
    std::vector<storage::lock_range> kept;
    for (std::uint64_t i = 0; i < ranges; ++i)
        kept.push_back(range(i * 2, i * 2));
    BOOST_TEST(!e.must(locks->lock(range(0, 2 * ranges), 0)));
    kernel_locks = 0;
    gate.shut(true);
    locks->keep(0, 2 * ranges, kept);
    gate.await(1);
    std::atomic<int> seen{-1};
    e.tasks.spawn([&]() -> task<void> {
        auto look = [&seen] { seen = kernel_locks.load(); };
        co_await lane.run(std::move(look));
    });
    gate.shut(false);
    e.turn_until([&] { return e.tasks.live() == 0; });
    BOOST_TEST(seen == turn);
    e.run(locks->settle());
    BOOST_TEST(kernel_locks == int(ranges));
    locks.reset();
    other->reset();
    lane.finish();
}

// Whoever keeps the lane full holds up all locks together by one wait for a thread, not each of them by one; and
// locks hold up others for a bounded number of calls.
BOOST_AUTO_TEST_CASE(a_full_lane_does_not_starve_locks)
{
    using posixfs::lock_lane;
    constexpr std::size_t most = lock_lane::calls_of_a_pass / lock_lane::least_of_a_turn;
    for (const std::size_t files : {most / 2, most + 8}) {
        crossing e;
        posixfs::posixfs_options o = locking();
        o.root = e.where.path();
        o.most_lock_files = 2 * files;
        blocking_pool lane(1);
        auto other = posixfs::open_posixfs(o, lane);
        BOOST_REQUIRE(other);
        std::vector<std::unique_ptr<storage::local_locks>> all;
        for (std::size_t i = 0; i < files; ++i) {
            all.push_back((*other)->local_locks_of(e.make_locally(("g" + std::to_string(i)).c_str())));
            BOOST_TEST_REQUIRE(!e.must(all.back()->lock(range(0, 9), 0)));
        }
        e.tasks.spawn([&]() -> task<void> { // the thread has ended what it did for them
            auto nothing = [] {};
            co_await lane.run(std::move(nothing));
        });
        e.turn_until([&] { return e.tasks.live() == 0; });
        std::atomic<bool> goes_on{false};
        std::atomic<int> seen{-1};
        e.tasks.spawn([&]() -> task<void> {
            auto hang = [&goes_on] {
                while (!goes_on)
                    std::this_thread::yield();
            };
            co_await lane.run(std::move(hang));
        });
        kernel_locks = 0;
        e.shard->turn();
        for (const auto& one : all) {
            const storage::lock_range kept = range(0, 4);
            one->keep(0, 9, std::span(&kept, 1));
        }
        e.tasks.spawn([&]() -> task<void> {
            auto look = [&seen] { seen = kernel_locks.load(); };
            co_await lane.run(std::move(look));
        });
        e.shard->turn();
        goes_on = true;
        e.turn_until([&] { return e.tasks.live() == 0; });
        BOOST_TEST(seen == int(std::min(files, most)));
        for (const auto& one : all)
            e.run(one->settle());
        BOOST_TEST(kernel_locks == int(files));
        all.clear();
        other->reset();
        lane.finish();
    }
}

// However many calls for one file hang, they hold one thread; and those of many files half of the lane's.
BOOST_AUTO_TEST_CASE(calls_that_hang_leave_threads_to_others)
{
    std::array<int, 20> outcomes{};
    crossing e;
    const auto a = e.open("a");
    gate.shut(true);
    for (std::size_t i = 0; i < 10; ++i)
        e.begin_lock(a, "o" + std::to_string(i), {i * 10, i * 10}, read, outcomes[i]);
    gate.await(1);
    // This waits for a thread of the same lane.
    auto nothing = [] {};
    e.run(e.pool_task(std::move(nothing)));
    BOOST_TEST(gate.waiting() == 1);
    for (std::size_t i = 10; i < 20; ++i) {
        e.file = e.make_locally(("g" + std::to_string(i)).c_str());
        e.begin_lock(e.again(a.client), "o" + std::to_string(i), {0, 0}, read, outcomes[i]);
    }
    gate.await(2);
    e.turn_until([&] { return e.pool.look().queued == 0; });
    BOOST_TEST_REQUIRE(e.pool.look().running < e.pool.threads());
    auto once_more = [] {};
    e.run(e.pool_task(std::move(once_more)));
    BOOST_TEST(gate.waiting() == 2); // of four threads
    BOOST_TEST((outcomes == std::array<int, 20>{}));
    gate.shut(false);
    e.turn_until([&] { return std::ranges::all_of(outcomes, [](int o) { return o == 1; }); });
}

// A server that stops does not wait for a file system that hangs.
BOOST_AUTO_TEST_CASE(a_stop_ends_the_wait_for_a_step)
{
    std::array<int, 3> ended{};
    crossing e;
    const auto a = e.open("a");
    const auto locks = e.fs->local_locks_of(e.file);
    gate.shut(true);
    e.tasks.spawn([&]() -> task<void> {
        const auto asked = co_await locks->lock(range(0, 9, true), 0);
        ended[0] = !asked && asked.error() == std::errc::operation_canceled ? 1 : -1;
    });
    e.tasks.spawn([&]() -> task<void> {
        const auto asked = co_await locks->test(range(0, 9, true));
        ended[1] = !asked && asked.error() == std::errc::operation_canceled ? 1 : -1;
    });
    gate.await(1);
    locks->keep(0, byte_range::to_the_end, {});
    e.tasks.spawn([&]() -> task<void> {
        co_await locks->settle();
        ended[2] = 1;
    });
    e.tasks.request_stop();
    for (int i = 0; i < 100; ++i)
        e.shard->turn();
    BOOST_TEST_REQUIRE((ended == std::array<int, 3>{1, 1, 1}));
    BOOST_TEST(gate.waiting() == 1);
    // What was asked for is done all the same, and then what was said behind it.
    gate.shut(false);
    e.settle(a);
    BOOST_TEST(e.local->sees(0) == F_UNLCK);
}

// What the file system did not have before it is asked for again where a description is opened, and is no reason to
// wait.
BOOST_AUTO_TEST_CASE(what_was_unseen_hinders_no_other_lock)
{
    exported e;
    const auto a = e.open("a");
    lock_fails_with = ENOLCK;
    locks_to_fail = 1;
    BOOST_REQUIRE(e.lock(a, "x", {0, 9}, read));
    BOOST_REQUIRE(e.local->lock({0, 9}, write)); // it sees none
    BOOST_REQUIRE(e.lock(a, "x", {20, 29}, read));
    BOOST_TEST(e.lock(a, "x", {40, 49}, write).has_value());
    BOOST_TEST(e.local->sees(20) == F_RDLCK);
    BOOST_TEST(e.local->sees(40) == F_WRLCK);
    e.unlock(a, "x", {40, 49});
    e.local->unlock({0, 9});
    BOOST_REQUIRE(e.lock(a, "x", {40, 49}, write));
    BOOST_TEST(e.local->sees(0) == F_RDLCK);
    BOOST_TEST(posixfs::unseen_locks_of(*e.fs)[reason::no_room] == 1u);
}

// Also where the lock for which it was opened is not to be had.
BOOST_AUTO_TEST_CASE(what_was_unseen_is_tried_again_however_the_next_lock_ends)
{
    for (const bool is_denied_next : {true, false}) {
        exported e;
        const auto a = e.open("a");
        lock_fails_with = ENOLCK;
        locks_to_fail = 1;
        BOOST_REQUIRE(e.lock(a, "x", {0, 9}, read));
        BOOST_TEST(e.local->sees(0) == F_UNLCK);
        open_fails_with = EACCES;
        only_writers_fail = true;
        if (is_denied_next)
            BOOST_REQUIRE(e.local->lock({20, 29}, read));
        BOOST_TEST(is_denied(e.lock(a, "x", {20, 29}, write)) == is_denied_next);
        BOOST_TEST(e.local->sees(0) == F_RDLCK);
    }
}

namespace {

/// What the kernel holds by our description of the file goes, as where a file server has lost it.
void lose_locks(const std::filesystem::path& file)
{
    struct stat wanted{};
    BOOST_REQUIRE(::stat(file.c_str(), &wanted) == 0);
    for (int fd = 3; fd < 1024; ++fd) {
        struct stat found{};
        const int flags = ::fcntl(fd, F_GETFL);
        if (flags < 0 || (flags & O_PATH) != 0 || (flags & O_ACCMODE) != O_RDONLY ||
            ::fstat(fd, &found) != 0 || found.st_ino != wanted.st_ino || found.st_dev != wanted.st_dev)
            continue;
        struct flock all{};
        all.l_type = F_UNLCK;
        all.l_whence = SEEK_SET;
        (void)::syscall(SYS_fcntl, fd, F_OFD_SETLK, &all);
    }
}

} // namespace

BOOST_AUTO_TEST_CASE(what_somebody_took_meanwhile_is_no_reason_to_grant_more)
{
    exported e;
    const auto a = e.open("a");
    BOOST_REQUIRE(e.lock(a, "x", {0, 9}, read));
    lose_locks(e.path("f"));
    BOOST_REQUIRE(e.local->lock({0, 9}, write));
    BOOST_CHECK(e.lock(a, "x", {20, 29}, write).error() == files::errc::busy);
    BOOST_TEST(e.table->stats().locks.value() == 1);
    e.local->unlock({0, 9});
    BOOST_TEST(e.lock(a, "x", {20, 29}, write).has_value());
    BOOST_TEST(e.local->sees(0) == F_RDLCK);
    BOOST_TEST(e.local->sees(20) == F_WRLCK);
}

// A file that this process may read alone.
BOOST_AUTO_TEST_CASE(a_lock_to_write_that_is_not_permitted_leaves_others_seen)
{
    for (const int failed : {EACCES, ETXTBSY}) {
        exported e;
        const auto a = e.open("a");
        BOOST_REQUIRE(e.lock(a, "x", {0, 9}, read));
        open_fails_with = failed;
        only_writers_fail = true;
        BOOST_TEST(e.lock(a, "x", {5, 14}, write).has_value());
        const auto first = posixfs::unseen_locks_of(*e.fs);
        BOOST_TEST(first[failed == EACCES ? reason::not_permitted : reason::failed] == 1u);
        BOOST_TEST(e.local->sees(5) == F_RDLCK);
        kernel_locks = 0;
        e.unlock(a, "x", {10, 14});
        BOOST_TEST(kernel_locks == 0);
        e.unlock(a, "x", {5, 9});
        BOOST_TEST(kernel_locks == 1);
        BOOST_TEST(e.local->sees(5) == F_UNLCK);
        BOOST_TEST(e.local->sees(4) == F_RDLCK);
        const auto now = posixfs::unseen_locks_of(*e.fs);
        BOOST_TEST((now.counts == first.counts));
        only_writers_fail = false;
    }
}

// Else another file may have its number, whose locks these would be.
BOOST_AUTO_TEST_CASE(a_file_with_unseen_locks_alone_keeps_its_number)
{
    exported e;
    const auto a = e.open("a");
    const auto paths = [&] {
        std::size_t n = 0;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code gone;
            n += std::filesystem::read_symlink(entry.path(), gone).string().starts_with(e.path("f"));
        }
        return n;
    };
    const std::size_t before = paths();
    open_fails_with = EACCES;
    BOOST_REQUIRE(e.lock(a, "x", {0, 9}, read));
    BOOST_TEST(posixfs::lock_description::held() == 0u);
    BOOST_TEST(paths() == before + 1);
    e.unlock(a, "x", {0, 9});
    BOOST_TEST(paths() == before);
}

// To open for writing breaks leases, and who watches the file takes it for a change.
BOOST_AUTO_TEST_CASE(what_is_denied_opens_nothing_for_writing)
{
    exported e;
    const auto a = e.open("a");
    const auto b = e.open("b");
    BOOST_REQUIRE(e.lock(b, "y", {50, 59}, read));
    BOOST_REQUIRE(e.local->lock({0, 9}, read));
    opens_to_write = 0;
    for (int i = 0; i < 3; ++i) {
        BOOST_TEST(is_denied(e.lock(a, "x", {0, 9}, write)));
        BOOST_TEST(!e.is_free(a, {0, 9}, write));
    }
    BOOST_TEST(opens_to_write == 0);
    e.local.reset();
    BOOST_REQUIRE(e.lock(a, "x", {0, 9}, write));
    BOOST_TEST(opens_to_write == 1);
    // With the last lock to write it reads again, and leases are to be had.
    e.unlock(a, "x", {0, 9});
    BOOST_TEST(e.run(e.fs->lease(e.file, [] {})).has_value());
    BOOST_TEST(posixfs::lock_description::held() == 1u);
}

BOOST_AUTO_TEST_CASE(what_can_not_be_asked_is_not_free)
{
    exported e;
    const auto a = e.open("a");
    for (const int failed : {EAGAIN, EMFILE}) {
        open_fails_with = failed;
        BOOST_CHECK(e.test(a, {0, 9}, write).error() == files::errc::busy);
        open_fails_with = 0;
        BOOST_TEST(e.is_free(a, {0, 9}, write));
    }
    open_fails_with = EACCES; // then it would count as locked
    BOOST_TEST(e.is_free(a, {0, 9}, write));
}

// A lease is being broken: the client comes again. Without a descriptor it has the lock alone.
BOOST_AUTO_TEST_CASE(an_open_under_a_lease_is_tried_again_by_the_client)
{
    exported e;
    const auto a = e.open("a");
    open_fails_with = EAGAIN;
    BOOST_CHECK(e.lock(a, "x", {0, 9}, write).error() == files::errc::busy);
    BOOST_TEST(e.table->stats().locks.value() == 0);
    open_fails_with = EMFILE;
    BOOST_TEST(e.lock(a, "x", {0, 9}, write).has_value());
    BOOST_TEST(posixfs::unseen_locks_of(*e.fs)[reason::limit] == 1u);
    BOOST_TEST(e.local->sees(0) == F_UNLCK);
}

BOOST_AUTO_TEST_CASE(one_peer_has_half_of_the_descriptors)
{
    posixfs::posixfs_options o = locking();
    o.most_lock_files = 4;
    exported e("/var/tmp", o);
    const auto a = e.open("a", 0, 1);
    const auto b = e.open("b", 0, 2);
    for (int i = 0; i < 4; ++i) {
        e.file = e.make_locally(("g" + std::to_string(i)).c_str());
        BOOST_TEST(e.lock(e.again(a.client), "x", {0, 9}, write).has_value());
    }
    BOOST_TEST(posixfs::lock_description::held() == 2u);
    BOOST_TEST(posixfs::unseen_locks_of(*e.fs)[reason::limit] == 2u);
    e.file = e.make_locally("h");
    BOOST_TEST(e.lock(e.again(b.client), "x", {0, 9}, write).has_value());
    BOOST_TEST(posixfs::lock_description::held() == 3u);
}

// Calls of several owners and exports at once, which come home in either order: at the end of each round the kernel
// has the union of what was granted, and nobody has what contradicts another one's.
namespace {

void cross(std::uint64_t seed)
{
    BOOST_TEST_CONTEXT("seed " << seed)
    {
        crossing e("/dev/shm");
        std::mt19937_64 random(seed);
        constexpr std::size_t bytes = 10;
        constexpr std::size_t owners = 4;
        const char* const names[owners] = {"p", "q", "r", "s"};
        std::array<exported::opener, owners> by;
        by[0] = by[1] = e.open("a");
        by[2] = e.open("b");
        by[3] = e.open("c", 1);
        std::array<std::array<int, bytes>, owners + 1> has{}; // the last is local
        for (int round = 0; round < 60; ++round) {
            struct call {
                bool runs = false;
                std::uint64_t first = 0, last = 0;
                int wanted = 0, outcome = 0;
            };
            std::array<call, owners> calls{};
            const bool is_held = random() % 2 == 0;
            if (is_held) // all are under way before the first one is done
                gate.shut(true);
            for (std::size_t who = 0; who < owners; ++who) {
                call& c = calls[who];
                c.first = random() % bytes;
                c.last = c.first + random() % (bytes - c.first);
                c.wanted = int(random() % 3);
                c.runs = random() % 4 != 0 && (c.wanted != 0 || e.ids.contains(names[who]));
                if (!c.runs)
                    continue;
                if (c.wanted == 0)
                    e.begin_unlock(by[who], names[who], {c.first, c.last}, c.outcome);
                else
                    e.begin_lock(by[who], names[who], {c.first, c.last}, c.wanted == 2 ? write : read,
                                 c.outcome);
            }
            if (random() % 3 == 0) { // a local process beside them
                const std::uint64_t at = random() % bytes;
                if (has[owners][at] != 0) {
                    e.local->unlock({at, at});
                    has[owners][at] = 0;
                } else {
                    const int wanted = random() % 2 == 0 ? 2 : 1;
                    if (e.local->lock({at, at}, wanted == 2 ? write : read))
                        has[owners][at] = wanted;
                }
            }
            gate.shut(false);
            e.turn_until([&] { return e.tasks.live() == 0; });
            e.settle(by[0]);
            e.settle(by[3]);
            for (std::size_t who = 0; who < owners; ++who)
                for (std::uint64_t at = calls[who].first; calls[who].outcome == 1 && at <= calls[who].last;
                     ++at)
                    has[who][at] = calls[who].wanted;
            for (std::uint64_t at = 0; at < bytes; ++at) {
                int all = 0, holders = 0;
                for (std::size_t o = 0; o < owners; ++o) {
                    all = std::max(all, has[o][at]);
                    holders += has[o][at] != 0;
                }
                BOOST_TEST_REQUIRE((all != 2 || holders == 1));
                BOOST_TEST_REQUIRE((has[owners][at] == 0 || all + has[owners][at] <= 2));
                BOOST_TEST_REQUIRE(e.local->sees(at) == (all == 2 ? F_WRLCK : all == 1 ? F_RDLCK : F_UNLCK));
            }
        }
    }
}

} // namespace

BOOST_AUTO_TEST_CASE(the_kernel_has_what_the_table_has_where_calls_cross)
{
    for (std::uint64_t seed = 1; seed <= 12; ++seed)
        cross(seed);
    cross(std::random_device()());
}

BOOST_AUTO_TEST_SUITE_END()

} // namespace suite
