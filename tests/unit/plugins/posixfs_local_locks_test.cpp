// SPDX-License-Identifier: Apache-2.0
// Locks of posixfs that other processes see, and theirs that we see.
#include "local_locks_fixture.hpp"

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>

#include <array>
#include <random>
#include <sys/wait.h>

namespace suite {

BOOST_AUTO_TEST_SUITE(posixfs_local_locks_test)

BOOST_DATA_TEST_CASE(locks_meet_local_ones_both_ways, boost::unit_test::data::make(places), place)
{
    exported e(place);
    const auto a = e.open("a");
    BOOST_REQUIRE(e.lock(a, "x", {0, 9}, write));
    BOOST_TEST(e.local->sees(0) == F_WRLCK);
    BOOST_TEST(e.local->sees(10) == F_UNLCK);
    BOOST_TEST(!e.local->lock({9, 9}, read));
    BOOST_TEST(e.local->lock({10, 19}, write));
    BOOST_TEST(is_denied(e.lock(a, "x", {15, 30}, read)));
    BOOST_TEST((e.holder.bytes == byte_range{10, 19}));
    BOOST_TEST((e.holder.type == write));
    BOOST_TEST(e.holder.client == files::nobody);
    BOOST_TEST(e.holder.owner.starts_with("local process"));
    BOOST_TEST(!e.is_free(a, {19, 19}, read));
    BOOST_TEST(e.is_free(a, {20, 20}, write));
    e.local->unlock({10, 19});
    BOOST_REQUIRE(e.lock(a, "x", {15, 30}, read));
    BOOST_TEST(e.local->lock({20, 25}, read));
    BOOST_TEST(is_denied(e.lock(a, "x", {15, 30}, write))); // all or nothing
    BOOST_TEST(e.local->sees(15) == F_RDLCK);
    e.unlock(a, "x", {0, byte_range::to_the_end});
    BOOST_TEST(e.local->lock({0, 30}, write));
    BOOST_TEST(is_denied(e.lock(a, "x", {0, byte_range::to_the_end}, write)));
    BOOST_TEST(posixfs::unseen_locks_of(*e.fs)[posixfs::unseen_lock_counters::reason::failed] == 0u);
}

BOOST_AUTO_TEST_CASE(a_posix_lock_of_a_process_tells_which_one)
{
    exported e;
    const auto a = e.open("a");
    int there[2];
    int back[2];
    BOOST_REQUIRE((::pipe(there) == 0 && ::pipe(back) == 0));
    const std::string path = e.path("f");
    const pid_t child = ::fork();
    if (child == 0) {
        const int fd = ::open(path.c_str(), O_RDWR);
        struct flock wanted{};
        wanted.l_type = F_WRLCK;
        wanted.l_start = 5;
        wanted.l_len = 5;
        char done = ::syscall(SYS_fcntl, fd, F_SETLK, &wanted) == 0 ? 'y' : 'n';
        (void)!::write(back[1], &done, 1);
        (void)!::read(there[0], &done, 1);
        ::_exit(0);
    }
    char locked = 0;
    BOOST_REQUIRE(::read(back[0], &locked, 1) == 1);
    BOOST_TEST(locked == 'y');
    BOOST_TEST(is_denied(e.lock(a, "x", {0, 5}, read)));
    BOOST_TEST(e.holder.owner == "local process " + std::to_string(child));
    BOOST_TEST((e.holder.bytes == byte_range{5, 9}));
    (void)!::write(there[1], "x", 1);
    int status = 0;
    BOOST_TEST(::waitpid(child, &status, 0) == child);
    BOOST_TEST(e.lock(a, "x", {0, 5}, read).has_value());
    for (const int fd : {there[0], there[1], back[0], back[1]})
        ::close(fd);
}

// Two owners read the same bytes: the end of one's lock is not that of the other's.
BOOST_AUTO_TEST_CASE(the_kernel_holds_the_union_of_all_owners)
{
    exported e;
    const auto a = e.open("a");
    const auto b = e.open("b");
    BOOST_REQUIRE(e.lock(a, "x", {0, 9}, read));
    BOOST_REQUIRE(e.lock(b, "y", {5, 14}, read));
    e.unlock(a, "x", {0, 9});
    BOOST_TEST(e.local->sees(4) == F_UNLCK);
    BOOST_TEST(e.local->sees(5) == F_RDLCK);
    BOOST_REQUIRE(e.lock(b, "y", {5, 14}, write)); // the first to write
    BOOST_TEST(e.local->sees(5) == F_WRLCK);
    BOOST_REQUIRE(e.lock(b, "y", {7, 8}, read)); // a downgrade
    BOOST_TEST(e.local->sees(7) == F_RDLCK);
    BOOST_TEST(e.local->sees(6) == F_WRLCK);
    e.close(b);
    BOOST_TEST(e.local->sees(6) == F_UNLCK);
}

// What is to read is locked by the description that can write before the other one goes: a local process that tries
// all the time to lock it to write has no chance.
BOOST_AUTO_TEST_CASE(the_description_is_replaced_without_a_gap)
{
    exported e;
    const auto a = e.open("a");
    BOOST_REQUIRE(e.lock(a, "x", {0, 9}, read));
    BOOST_REQUIRE(e.lock(a, "x", {50, 59}, read));
    std::atomic<bool> ends{false};
    std::atomic<int> got{0};
    const local_process other(e.path("f"));
    std::thread tries([&] {
        while (!ends)
            got += other.takes({5, 5}, write);
    });
    opens_to_write = 0;
    for (int i = 0; i < 50; ++i) {
        BOOST_REQUIRE(e.lock(a, "y", {20, 29}, write));
        e.unlock(a, "y", {20, 29});
    }
    ends = true;
    tries.join();
    BOOST_TEST(got == 0);
    BOOST_TEST(opens_to_write == 50); // there and back each time
    BOOST_TEST(e.local->sees(55) == F_RDLCK);
}

BOOST_AUTO_TEST_CASE(what_a_client_had_goes_with_it)
{
    for (const char* const how : {"forget", "revoke", "close"}) {
        exported e;
        const auto a = e.open("a");
        const auto b = e.open("b");
        BOOST_REQUIRE(e.lock(a, "x", {0, 9}, write));
        BOOST_REQUIRE(e.lock(b, "y", {20, 29}, write));
        if (how == std::string_view("forget"))
            BOOST_REQUIRE(e.run(e.book->forget(a.client)));
        else if (how == std::string_view("revoke"))
            BOOST_REQUIRE(e.run(e.book->revoke_client(a.client)));
        else
            BOOST_REQUIRE(e.table->close(a.client, exported::newest(a.id), a.file));
        e.settle(b);
        BOOST_TEST(e.local->sees(0) == F_UNLCK);
        BOOST_TEST(e.local->sees(20) == F_WRLCK);
    }
}

BOOST_AUTO_TEST_CASE(no_descriptor_is_left)
{
    exported e;
    const auto a = e.open("a");
    BOOST_REQUIRE(e.lock(a, "x", {0, 9}, write));
    BOOST_TEST(posixfs::lock_description::held() == 1u);
    const std::size_t before = e.descriptors("f");
    for (int i = 0; i < 20; ++i) {
        BOOST_REQUIRE(e.lock(a, "x", {20, 29}, i % 2 == 0 ? write : read));
        e.unlock(a, "x", {20, 29});
    }
    BOOST_TEST(e.descriptors("f") == before);
    for (int i = 0; i < 20; ++i) {
        e.unlock(a, "x", {0, 9});
        BOOST_TEST(posixfs::lock_description::held() == 0u);
        BOOST_REQUIRE(e.lock(a, "x", {0, 9}, write));
    }
    BOOST_TEST(e.descriptors("f") == before);
    e.unlock(a, "x", {0, 9});
    BOOST_TEST(e.descriptors("f") == before - 1);
    // A lock that is denied leaves none, either.
    BOOST_REQUIRE(e.local->lock({0, 9}, write));
    for (int i = 0; i < 20; ++i)
        BOOST_TEST(is_denied(e.lock(a, "x", {0, 9}, write)));
    BOOST_TEST(e.descriptors("f") == before - 1);
}

// A descriptor of ours that is open for writing would refuse the lease.
BOOST_AUTO_TEST_CASE(a_lock_to_read_refuses_no_lease)
{
    exported e;
    const auto a = e.open("a");
    BOOST_REQUIRE(e.lock(a, "x", {0, 9}, read));
    e.local.reset();
    BOOST_TEST(e.run(e.fs->lease(e.file, [] {})).has_value());
    BOOST_REQUIRE(e.lock(a, "x", {0, 9}, write));
    const auto refused = e.run(e.fs->lease(e.file, [] {}));
    BOOST_REQUIRE(!refused);
    BOOST_TEST(bool(why_no_lease(refused.error()) == no_lease::in_use));
}

BOOST_AUTO_TEST_CASE(two_exports_of_one_tree_conflict_as_two_clients_of_one)
{
    exported e;
    const auto a = e.open("a", 0);
    const auto b = e.open("b", 1);
    BOOST_TEST(!(a.file == b.file));
    BOOST_REQUIRE(e.lock(a, "x", {0, 9}, write));
    BOOST_TEST(is_denied(e.lock(b, "y", {5, 14}, read)));
    BOOST_TEST((e.holder.bytes == byte_range{0, 9}));
    BOOST_TEST(!e.is_free(b, {9, 9}, read));
    BOOST_TEST(e.is_free(b, {10, 10}, write));
    BOOST_REQUIRE(e.lock(b, "y", {10, 14}, write));
    BOOST_TEST(posixfs::lock_description::held() == 1u);
    BOOST_REQUIRE(e.lock(a, "x", {0, 9}, read));
    BOOST_REQUIRE(e.lock(b, "y", {5, 14}, read));
    // The end of one export's lock is not that of the other's.
    e.unlock(a, "x", {0, 9});
    BOOST_TEST(e.local->sees(4) == F_UNLCK);
    BOOST_TEST(e.local->sees(5) == F_RDLCK);
    e.close(b);
    e.pool.finish(); // the file's locks went with its state
    BOOST_TEST(e.local->sees(5) == F_UNLCK);
}

BOOST_AUTO_TEST_CASE(without_room_for_locks_clients_have_them_alone)
{
    using reason = posixfs::unseen_lock_counters::reason;
    const std::pair<int, reason> all[] = {
        {ENOLCK, reason::no_room}, {EINVAL, reason::unsupported}, {EOPNOTSUPP, reason::unsupported}};
    for (const auto& [failed, why] : all) {
        exported e;
        const auto a = e.open("a");
        const auto b = e.open("b", 1);
        lock_fails_with = failed;
        locks_to_fail = 1;
        BOOST_TEST(e.lock(a, "x", {0, 9}, write).has_value());
        BOOST_TEST(posixfs::unseen_locks_of(*e.fs)[why] == 1u);
        BOOST_TEST(e.local->sees(0) == F_UNLCK);
        BOOST_TEST(is_denied(e.lock(b, "y", {0, 9}, write))); // clients see it
        e.unlock(a, "x", {0, 9});
        BOOST_TEST(e.lock(b, "y", {0, 9}, write).has_value());
        BOOST_TEST(e.local->sees(0) == F_WRLCK);
        BOOST_TEST(posixfs::unseen_locks_of(*e.fs)[why] == 1u);
    }
}

// As by a security module that lets this process lock nothing. A file system may mean a conflict by it, but names who
// has the bytes.
BOOST_AUTO_TEST_CASE(a_denial_is_a_conflict_where_somebody_has_the_bytes)
{
    using reason = posixfs::unseen_lock_counters::reason;
    for (const int look : {0, EACCES}) {
        exported e;
        const auto a = e.open("a");
        lock_fails_with = EACCES;
        looks_fail_with = look;
        locks_to_fail = 100;
        BOOST_TEST(e.lock(a, "x", {0, 9}, write).has_value());
        BOOST_TEST(e.lock(a, "x", {20, 29}, read).has_value());
        BOOST_TEST(e.is_free(a, {40, 49}, read));
        BOOST_TEST(posixfs::unseen_locks_of(*e.fs)[reason::not_permitted] == 2u);
        looks_fail_with = 0;
        BOOST_REQUIRE(e.local->lock({60, 69}, write));
        BOOST_TEST(is_denied(e.lock(a, "x", {60, 69}, read)));
        BOOST_TEST((e.holder.bytes == byte_range{60, 69}));
        // Of this one nobody doubts that it is one.
        lock_fails_with = EAGAIN;
        BOOST_TEST(is_denied(e.lock(a, "x", {80, 89}, read)));
        BOOST_TEST(posixfs::unseen_locks_of(*e.fs)[reason::not_permitted] == 2u);
    }
}

// Somebody may have the bytes.
BOOST_AUTO_TEST_CASE(an_error_that_says_nothing_of_holders_grants_nothing)
{
    const std::pair<int, files::errc> all[] = {{EIO, files::errc::io},
                                               {ESTALE, files::errc::no_file},
                                               {ETIMEDOUT, files::errc::busy},
                                               {EINTR, files::errc::busy}};
    for (const auto& [failed, told_as] : all) {
        exported e;
        const auto a = e.open("a");
        lock_fails_with = failed;
        locks_to_fail = 1;
        BOOST_CHECK(e.lock(a, "x", {0, 9}, write).error() == told_as);
        BOOST_TEST(posixfs::lock_description::held() == 0u);
        open_fails_with = failed;
        BOOST_CHECK(e.lock(a, "x", {0, 9}, read).error() == told_as);
        BOOST_CHECK(e.test(a, {0, 9}, write).error() == told_as);
        open_fails_with = 0;
        looks_fail_with = failed;
        BOOST_CHECK(e.test(a, {0, 9}, write).error() == told_as);
        looks_fail_with = 0;
        BOOST_REQUIRE(e.lock(a, "x", {0, 9}, read));
        locks_to_fail = 1; // where the description is replaced
        BOOST_CHECK(e.lock(a, "x", {20, 29}, write).error() == told_as);
        BOOST_TEST(e.local->sees(0) == F_RDLCK);
        BOOST_TEST(e.local->sees(20) == F_UNLCK);
        BOOST_TEST(e.lock(a, "x", {20, 29}, write).has_value());
        BOOST_TEST((posixfs::unseen_locks_of(*e.fs).counts == posixfs::unseen_lock_counters().counts));
    }
}

// A server granted it, and its answer was lost.
BOOST_AUTO_TEST_CASE(a_lock_whose_answer_is_lost_does_not_stay)
{
    exported e;
    const auto a = e.open("a");
    BOOST_REQUIRE(e.lock(a, "x", {50, 59}, write));
    BOOST_REQUIRE(e.lock(a, "x", {5, 6}, read));
    failing_locks_are_taken = true;
    lock_fails_with = EIO;
    locks_to_fail = 1;
    BOOST_CHECK(e.lock(a, "x", {0, 9}, write).error() == files::errc::io);
    BOOST_TEST(e.local->sees(0) == F_UNLCK);
    BOOST_TEST(e.local->sees(5) == F_RDLCK);
    BOOST_TEST(e.local->sees(9) == F_UNLCK);
    // Nor does it where the unlock fails, too: the next one ends it.
    locks_to_fail = 2;
    BOOST_CHECK(e.lock(a, "x", {0, 9}, write).error() == files::errc::io);
    BOOST_TEST(e.local->sees(0) == F_WRLCK);
    e.unlock(a, "x", {55, 59});
    BOOST_TEST(e.local->sees(0) == F_UNLCK);
    BOOST_TEST(e.local->sees(5) == F_RDLCK);
    BOOST_TEST(e.local->sees(9) == F_UNLCK);
    BOOST_TEST(e.local->sees(54) == F_WRLCK);
    BOOST_TEST(e.local->sees(55) == F_UNLCK);
}

// What the kernel would not unlock is unlocked with what comes next.
BOOST_AUTO_TEST_CASE(an_unlock_that_failed_is_done_again)
{
    exported e;
    const auto a = e.open("a");
    BOOST_REQUIRE(e.lock(a, "x", {0, 99}, write));
    lock_fails_with = ENOLCK;
    locks_to_fail = 1;
    e.unlock(a, "x", {10, 19});
    BOOST_TEST(e.local->sees(10) == F_WRLCK);
    BOOST_TEST(posixfs::unseen_locks_of(*e.fs)[posixfs::unseen_lock_counters::reason::no_room] == 1u);
    e.unlock(a, "x", {50, 59});
    BOOST_TEST(e.local->sees(10) == F_UNLCK);
    BOOST_TEST(e.local->sees(50) == F_UNLCK);
    BOOST_TEST(e.local->sees(0) == F_WRLCK);
}

BOOST_AUTO_TEST_CASE(descriptors_of_locks_have_a_bound)
{
    posixfs::posixfs_options o = locking();
    o.most_lock_files = 1;
    exported e("/var/tmp", o);
    const auto a = e.open("a");
    BOOST_REQUIRE(e.lock(a, "x", {0, 9}, write));
    e.file = e.make_file("g", "text", 0666);
    const auto g = e.again(a.client);
    local_process local(e.path("g"));
    BOOST_TEST(e.lock(g, "x", {0, 9}, write).has_value());
    BOOST_TEST(local.sees(0) == F_UNLCK);
    BOOST_TEST(posixfs::unseen_locks_of(*e.fs)[posixfs::unseen_lock_counters::reason::limit] == 1u);
    BOOST_TEST(posixfs::lock_description::held() == 1u);
}

BOOST_AUTO_TEST_CASE(local_locks_may_be_switched_off)
{
    posixfs::posixfs_options none;
    none.local_locks = false;
    exported e("/var/tmp", none);
    const auto a = e.open("a");
    kernel_locks = 0;
    BOOST_REQUIRE(e.local->lock({0, 9}, write));
    BOOST_TEST(e.lock(a, "x", {0, 9}, write).has_value());
    BOOST_TEST(kernel_locks == 0);
    e.unlock(a, "x", {0, 9});
}

BOOST_AUTO_TEST_CASE(local_locks_are_a_setting)
{
    metric_registry registry;
    blocking_pool lane(1);
    const storage::open_context context{"export /a", "/a", registry, lane};
    module_table table;
    table.add(modules::posixfs);
    auto& folders = *table.find<storage::backend_module>("posixfs");
    const temporary_directory where;
    for (const bool on : {true, false}) {
        setting_values folder;
        folder.set("directory", {where.path().string()});
        folder.set("leases", {false});
        if (!on)
            folder.set("local_locks", {false});
        check(folders.settings(), folder);
        const storage::opened_backend opened = folders.open(folder, context);
        BOOST_TEST((opened.files->local_locks_of(opened.files->root()) != nullptr) == on);
        BOOST_TEST((std::ranges::find(opened.options, "local_locks=no") == opened.options.end()) == on);
    }
}

// Bytes behind what off_t can say no process can lock.
BOOST_AUTO_TEST_CASE(what_no_process_can_lock_clients_can)
{
    exported e;
    const auto a = e.open("a");
    constexpr std::uint64_t far = std::uint64_t(1) << 63;
    BOOST_TEST(e.lock(a, "x", {far, far + 9}, write).has_value());
    BOOST_TEST(e.lock(a, "x", {far - 10, far + 9}, write).has_value());
    BOOST_TEST(e.local->sees(far - 1) == F_WRLCK);
    e.unlock(a, "x", {far - 5, byte_range::to_the_end});
    BOOST_TEST(e.local->sees(far - 1) == F_UNLCK);
    BOOST_TEST(e.local->sees(far - 6) == F_WRLCK);
    e.unlock(a, "x", {0, byte_range::to_the_end});
    BOOST_TEST(e.local->sees(far - 6) == F_UNLCK);
    BOOST_TEST(posixfs::unseen_locks_of(*e.fs)[posixfs::unseen_lock_counters::reason::unsupported] == 0u);
}

// Owners of two clients and two exports, and a local process, against a lock for each byte.
namespace {

void walk(std::uint64_t seed)
{
    BOOST_TEST_CONTEXT("seed " << seed)
    {
        exported e("/dev/shm");
        std::mt19937_64 random(seed);
        constexpr std::size_t bytes = 12;
        constexpr std::size_t owners = 4; // two of the first client, one of each other
        const char* const names[owners] = {"p", "q", "r", "s"};
        std::array<exported::opener, owners> by;
        by[0] = by[1] = e.open("a");
        by[2] = e.open("b");
        by[3] = e.open("c", 1);
        std::array<std::array<int, bytes>, owners + 1> has{}; // 0, 1 to read, 2 to write; the last is local
        const auto stands_against = [&](std::size_t who, std::uint64_t first, std::uint64_t last,
                                        int wanted) {
            for (std::size_t o = 0; o <= owners; ++o)
                for (std::uint64_t at = first; o != who && at <= last; ++at)
                    if (has[o][at] + wanted > 2 && has[o][at] != 0)
                        return true;
            return false;
        };
        for (int i = 0; i < 150; ++i) {
            const std::size_t who = random() % (owners + 1);
            std::uint64_t first = random() % bytes;
            std::uint64_t last = random() % bytes;
            if (first > last)
                std::swap(first, last);
            const int wanted = int(random() % 3);
            bool done = true;
            if (wanted == 0) {
                if (who == owners)
                    e.local->unlock({first, last});
                else if (e.ids.contains(names[who]))
                    e.unlock(by[who], names[who], {first, last});
            } else {
                const lock_type type = wanted == 2 ? write : read;
                done = who == owners ? e.local->lock({first, last}, type)
                                     : e.lock(by[who], names[who], {first, last}, type).has_value();
                BOOST_TEST_REQUIRE(done == !stands_against(who, first, last, wanted));
            }
            for (std::uint64_t at = first; done && at <= last; ++at)
                has[who][at] = wanted;
            for (std::uint64_t at = 0; at < bytes; ++at) {
                int all = 0;
                for (std::size_t o = 0; o < owners; ++o)
                    all = std::max(all, has[o][at]);
                BOOST_TEST_REQUIRE(e.local->sees(at) == (all == 2 ? F_WRLCK : all == 1 ? F_RDLCK : F_UNLCK));
            }
        }
    }
}

} // namespace

BOOST_AUTO_TEST_CASE(the_kernel_has_what_the_table_has)
{
    for (std::uint64_t seed = 1; seed <= 12; ++seed)
        walk(seed);
    walk(std::random_device()());
}

BOOST_AUTO_TEST_SUITE_END()

} // namespace suite
