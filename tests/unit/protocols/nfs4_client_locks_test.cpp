// SPDX-License-Identifier: Apache-2.0
// Locks that our clients have of our own server: among each other, while they wait, and over a restart.
#include "nfs4_locking_clients.hpp"

BOOST_AUTO_TEST_SUITE(nfs4_client_locks_test)

using namespace verbena;
using namespace verbena::test;
using fixture = locking_clients;

BOOST_FIXTURE_TEST_CASE(locks_stand_against_others, fixture)
{
    BOOST_TEST(lock(*mine, 10, 19).has_value());
    BOOST_TEST(lock(*mine, 30, 39, files_lock::read).has_value());
    BOOST_TEST(is_denied(*theirs, 0, 10));
    BOOST_TEST(is_denied(*theirs, 19, 19, files_lock::read));
    BOOST_TEST(is_denied(*theirs, 35, 50));
    BOOST_TEST(lock(*theirs, 35, 50, files_lock::read).has_value());
    BOOST_TEST(lock(*theirs, 0, 9).has_value());
    const auto found = good([&] { return theirs->test_lock(bytes_of_it(5, 15), files_lock::write); });
    BOOST_TEST_REQUIRE(found.has_value());
    BOOST_TEST(found->bytes.offset == 10u);
    BOOST_TEST(found->bytes.last == 19u);
    BOOST_CHECK(found->type == files_lock::write);
    BOOST_TEST(!good([&] { return theirs->test_lock(bytes_of_it(20, 29), files_lock::write); }));
    // Another file of the same client is somebody else.
    auto second = open(holder, what, share4::access_both);
    BOOST_TEST(is_denied(*second, 10, 10));
    // A part is unlocked, and the rest stays.
    BOOST_TEST(unlock(*mine, 12, 15).has_value());
    BOOST_TEST(lock(*second, 12, 15).has_value());
    BOOST_TEST(is_denied(*second, 16, 16));
    close(*second);
    BOOST_TEST(lock(*theirs, 12, 15).has_value());
    // Closing unlocks.
    close(*mine);
    mine.reset();
    BOOST_TEST(lock(*theirs, 0, 100).has_value());
    BOOST_TEST(unlock(*theirs, 200, 300).has_value()); // of which nothing is locked
    const auto refused = open(other, what, share4::access_read);
    const auto done = lock(*refused, 200, 200);
    BOOST_TEST_REQUIRE(!done);
    BOOST_CHECK(done.error().code() == make_error_code(nfsstat4::openmode));
    close(*refused);
}

BOOST_FIXTURE_TEST_CASE(who_waits_has_it_when_it_is_free, fixture)
{
    BOOST_TEST(lock(*mine, 0, 9).has_value());
    scope waiting(*shard);
    bool locked = false;
    waiting.spawn([&]() -> task<void> {
        auto done = co_await theirs->lock(bytes_of_it(0, 9), files_lock::write, true);
        locked = done.has_value();
    });
    pass(60s, 100ms);
    BOOST_TEST(!locked);
    const time_point freed = clock.now();
    BOOST_TEST(unlock(*mine, 0, 9).has_value());
    run([&]() -> task<void> { co_await waiting.join(); });
    BOOST_TEST(locked);
    BOOST_TEST((clock.now() - freed < 1s)); // the server has said so: the next look would be in up to 30 s
    BOOST_TEST(is_denied(*mine, 0, 9));
}

BOOST_FIXTURE_TEST_CASE(who_gives_up_waiting_has_nothing, fixture)
{
    for (const bool answered : {false, true}) {
        event go;
        if (answered)
            other.wire.holds_answer = [&](const sent_compound& call) {
                return call.has(nfs_opnum4::lock) ? &go : nullptr;
            };
        else
            BOOST_TEST(lock(*mine, 0, 9).has_value());
        scope waiting(*shard);
        bool failed = false;
        waiting.spawn([&]() -> task<void> {
            auto done = co_await theirs->lock(bytes_of_it(0, 9), files_lock::write, true);
            failed = !done;
        });
        pass(1s);
        waiting.request_stop();
        turns();
        BOOST_TEST(failed);
        go.set();
        pass(1s);
        run([&]() -> task<void> { co_await waiting.join(); });
        other.wire.holds_answer = nullptr;
        BOOST_TEST(unlock(*mine, 0, 9).has_value());
        pass(3s); // what the server keeps for who was told
        BOOST_TEST(lock(*mine, 0, 9).has_value());
        BOOST_TEST(unlock(*mine, 0, 9).has_value());
    }
}

BOOST_FIXTURE_TEST_CASE(a_restart_leaves_locks_where_they_are_reclaimed, fixture)
{
    BOOST_TEST(lock(*mine, 0, 9).has_value());
    BOOST_TEST(lock(*mine, 20, 29, files_lock::read).has_value());
    restart(true);
    (void)good([&] { return holder.user.getattr(what.handle); });
    (void)good([&] { return other.user.getattr(what.handle); });
    BOOST_TEST(is_denied(*theirs, 0, 0, files_lock::read));
    BOOST_TEST(is_denied(*theirs, 29, 29));
    BOOST_TEST(lock(*theirs, 29, 29, files_lock::read).has_value());
    BOOST_TEST(text_of(*mine) == "text");
    BOOST_TEST(unlock(*mine, 0, 9).has_value());
    BOOST_TEST(lock(*theirs, 0, 0).has_value());
}

BOOST_FIXTURE_TEST_CASE(who_gives_up_what_makes_the_session_takes_no_locks, fixture)
{
    BOOST_TEST(lock(*mine, 0, 9).has_value());
    restart(true);
    holder.wire.on_reply_to = [](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::lock))
            refuse_at(reply, 2, nfsstat4::delay);
    };
    scope looking(*shard);
    bool failed = false;
    looking.spawn([&]() -> task<void> {
        auto looked = co_await holder.user.getattr(what.handle);
        failed = !looked;
    });
    pass(1s, 100ms);
    looking.request_stop();
    run([&]() -> task<void> { co_await looking.join(); });
    BOOST_TEST(failed);
    holder.wire.on_reply_to = nullptr;
    (void)good([&] { return holder.user.getattr(what.handle); });
    (void)good([&] { return other.user.getattr(what.handle); });
    BOOST_TEST(text_of(*mine) == "text");
    BOOST_TEST(is_denied(*theirs, 0, 9));
}

BOOST_FIXTURE_TEST_CASE(locks_that_are_lost_are_told, fixture)
{
    BOOST_TEST(lock(*mine, 0, 9).has_value());
    restart(false);
    (void)good([&] { return holder.user.getattr(what.handle); });
    const auto failed = run([&] { return mine->read(0, 10); });
    BOOST_TEST_REQUIRE(!failed);
    BOOST_TEST((failed.error() == std::errc::io_error));
    BOOST_TEST(!run([&] { return mine->write(0, bytes_of("x")); }).has_value());
    BOOST_TEST((lock(*mine, 50, 59).error() == std::errc::io_error));
    const auto second = open(holder, what, share4::access_both);
    BOOST_TEST((run([&] { return mine->copy_from(*second, 4, {}); }).error() == std::errc::io_error));
    BOOST_TEST((run([&] { return second->copy_from(*mine, 4, {}); }).error() == std::errc::io_error));
    BOOST_TEST(holder.wire.count(nfs_opnum4::copy) == 0u);
    close(*second);
    BOOST_TEST(unlock(*mine, 0, 100).has_value());
    BOOST_TEST(text_of(*mine) == "text");
    BOOST_TEST(lock(*mine, 0, 9).has_value());
    BOOST_TEST(is_denied(*theirs, 0, 9));
}

BOOST_FIXTURE_TEST_CASE(locks_and_a_delegation_go_together, fixture)
{
    close(*mine);
    close(*theirs);
    theirs.reset();
    holder.user.use_delegations(4);
    mine = open(holder, what, share4::access_both);
    auto second = open(holder, what, share4::access_both);
    BOOST_TEST(holder.user.delegations() == 1u);
    BOOST_TEST(lock(*mine, 0, 9).has_value());
    BOOST_TEST(is_denied(*second, 0, 9));
    // The open stays at the server, the lock does not.
    close(*mine);
    mine.reset();
    BOOST_TEST(holder.user.delegations() == 1u);
    BOOST_TEST(stats().locks.value() == 0);
    BOOST_TEST(lock(*second, 0, 9).has_value());
    auto conflicting = open(other, what, share4::access_both);
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(is_denied(*conflicting, 0, 9));
    close(*second);
    BOOST_TEST(lock(*conflicting, 0, 9).has_value());
    close(*conflicting);
}

BOOST_FIXTURE_TEST_CASE(what_was_written_under_a_lock_is_stable_before_it_is_unlocked, fixture)
{
    BOOST_TEST(lock(*mine, 0, 9).has_value());
    write(*mine, "mine");
    BOOST_TEST(mine->uncommitted() == 4u);
    // Where it can't be made stable it stays locked.
    holder.wire.on_reply_to = [](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::commit))
            refuse_at(reply, 2, nfsstat4::nospc);
    };
    BOOST_TEST((unlock(*mine, 0, 9).error() == std::errc::no_space_on_device));
    BOOST_TEST(is_denied(*theirs, 0, 9));
    holder.wire.on_reply_to = nullptr;
    BOOST_TEST(unlock(*mine, 0, 9).has_value());
    BOOST_TEST(mine->uncommitted() == 0u);
    BOOST_TEST(lock(*theirs, 0, 9).has_value());
    write(*theirs, "them");
    BOOST_TEST(run([&] { return theirs->commit(); }).has_value());
    lose_unstable_data();
    close(*mine);
    mine.reset();
    BOOST_TEST(text_of(*theirs) == "them");
}

BOOST_FIXTURE_TEST_CASE(what_was_written_under_a_lock_that_is_lost_is_not_sent_again, fixture)
{
    for (const bool unlocks : {true, false}) {
        BOOST_TEST(lock(*mine, 0, 9).has_value());
        write(*mine, "mine");
        restart(false);
        (void)good([&] { return holder.user.getattr(what.handle); });
        BOOST_TEST(lock(*theirs, 0, 9).has_value());
        write(*theirs, "them");
        BOOST_TEST(unlock(*theirs, 0, 9).has_value());
        lose_unstable_data();
        if (unlocks) {
            BOOST_TEST((unlock(*mine, 0, 100).error() == std::errc::io_error));
            BOOST_TEST(mine->uncommitted() == 0u);
            BOOST_TEST(unlock(*mine, 0, 100).has_value()); // it is told once
            BOOST_TEST(run([&] { return mine->commit(); }).has_value());
        } else {
            BOOST_TEST((run([&] { return mine->close(); }).error() == std::errc::io_error));
            BOOST_TEST(mine->uncommitted() == 0u);
            mine.reset();
        }
        holder.wire.on_reply_to = other.wire.on_reply_to = nullptr;
        BOOST_TEST(text_of(*theirs) == "them");
    }
}

BOOST_FIXTURE_TEST_CASE(a_lock_that_was_given_up_is_undone_before_the_next_one, fixture)
{
    event go, undone;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::lock) ? &go : nullptr;
    };
    scope gives_up(*shard), stays(*shard);
    bool failed = false, locked = false;
    gives_up.spawn([&]() -> task<void> {
        auto done = co_await mine->lock(bytes_of_it(0, 9), files_lock::write);
        failed = !done;
    });
    turns();
    stays.spawn([&]() -> task<void> {
        auto done = co_await mine->lock(bytes_of_it(5, 14), files_lock::write);
        locked = done.has_value();
    });
    turns();
    gives_up.request_stop();
    turns();
    BOOST_TEST(failed);
    // What undoes it takes its time.
    holder.wire.on_call = [&](const sent_compound& call, std::vector<std::byte>&) {
        holder.wire.gate = call.has(nfs_opnum4::locku) ? &undone : nullptr;
    };
    go.set();
    turns();
    BOOST_TEST(holder.wire.count(nfs_opnum4::locku) == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::lock) == 1u);
    undone.set();
    run([&]() -> task<void> {
        co_await stays.join();
        co_await gives_up.join();
    });
    holder.wire.holds_answer = nullptr;
    holder.wire.on_call = nullptr;
    holder.wire.gate = nullptr;
    BOOST_TEST(locked);
    BOOST_TEST(is_denied(*theirs, 5, 9));
    BOOST_TEST(is_denied(*theirs, 10, 14));
    BOOST_TEST(lock(*theirs, 0, 4).has_value());
}

BOOST_FIXTURE_TEST_CASE(a_lock_that_was_given_up_leaves_what_was_locked_before, fixture)
{
    BOOST_TEST(lock(*mine, 2, 3, files_lock::read).has_value());
    BOOST_TEST(lock(*mine, 5, 9).has_value());
    event go;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::lock) ? &go : nullptr;
    };
    scope gives_up(*shard);
    gives_up.spawn([&]() -> task<void> { (void)co_await mine->lock(bytes_of_it(0, 14), files_lock::write); });
    turns();
    gives_up.request_stop();
    turns();
    go.set();
    run([&]() -> task<void> { co_await gives_up.join(); });
    turns();
    holder.wire.holds_answer = nullptr;
    BOOST_TEST(is_denied(*theirs, 2, 3));
    BOOST_TEST(lock(*theirs, 2, 3, files_lock::read).has_value());
    BOOST_TEST(is_denied(*theirs, 5, 9, files_lock::read));
    BOOST_TEST(lock(*theirs, 0, 1).has_value());
    BOOST_TEST(lock(*theirs, 4, 4).has_value());
    BOOST_TEST(lock(*theirs, 10, 14).has_value());
    BOOST_TEST(text_of(*mine) == "text");
}

BOOST_FIXTURE_TEST_CASE(no_lock_overtakes_an_unlock_that_was_given_up, fixture)
{
    BOOST_TEST(lock(*mine, 0, 9).has_value());
    holder.wire.sent.clear();
    event go;
    holder.wire.gate = &go;
    scope gives_up(*shard), stays(*shard);
    gives_up.spawn([&]() -> task<void> { (void)co_await mine->unlock(bytes_of_it(0, 9)); });
    turns();
    BOOST_TEST(holder.wire.count(nfs_opnum4::locku) == 1u);
    holder.wire.gate = nullptr;
    gives_up.request_stop();
    bool locked = false;
    stays.spawn([&]() -> task<void> {
        auto done = co_await mine->lock(bytes_of_it(0, 9), files_lock::write);
        locked = done.has_value();
    });
    turns();
    BOOST_TEST(holder.wire.count(nfs_opnum4::lock) == 0u);
    go.set();
    run([&]() -> task<void> {
        co_await stays.join();
        co_await gives_up.join();
    });
    BOOST_TEST(locked);
    BOOST_TEST(is_denied(*theirs, 0, 9));
}

BOOST_FIXTURE_TEST_CASE(a_restart_while_something_is_locked_or_unlocked_loses_nothing, fixture)
{
    for (const bool locks : {true, false}) {
        BOOST_TEST(lock(*mine, 20, 29).has_value());
        if (!locks)
            BOOST_TEST(lock(*mine, 0, 9).has_value());
        event go;
        holder.wire.gate = &go;
        scope asking(*shard);
        bool done = false;
        asking.spawn([&]() -> task<void> {
            task<result<void>> what_it_does =
                locks ? mine->lock(bytes_of_it(0, 9), files_lock::write) : mine->unlock(bytes_of_it(0, 9));
            auto did = co_await what_it_does;
            done = did.has_value();
        });
        turns();
        restart(true);
        holder.wire.gate = nullptr;
        go.set();
        turns();
        (void)good([&] { return other.user.getattr(what.handle); });
        pass(3s, 100ms);
        run([&]() -> task<void> { co_await asking.join(); });
        BOOST_TEST(done);
        BOOST_TEST(text_of(*mine) == "text"); // nothing of it is lost
        BOOST_TEST(is_denied(*theirs, 20, 29));
        BOOST_TEST(is_denied(*theirs, 0, 9) == locks);
        BOOST_TEST(unlock(*theirs, 0, 9).has_value());
        BOOST_TEST(unlock(*mine, 0, 29).has_value());
    }
}

BOOST_FIXTURE_TEST_CASE(a_lock_that_was_revoked_alone_stops_the_write, fixture)
{
    BOOST_TEST(lock(*mine, 0, 9).has_value());
    holder.wire.sent.clear();
    bool refuses = true;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::write) && std::exchange(refuses, false))
            refuse_at(reply, 2, nfsstat4::admin_revoked);
    };
    BOOST_TEST((run([&] { return mine->write(0, bytes_of("mine")); }).error() == std::errc::io_error));
    BOOST_TEST(holder.wire.count(nfs_opnum4::write) == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 0u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::free_stateid) == 1u);
    BOOST_TEST((run([&] { return mine->write(0, bytes_of("mine")); }).error() == std::errc::io_error));
}

BOOST_FIXTURE_TEST_CASE(a_lock_stateid_that_was_revoked_is_freed_and_not_the_open_s, fixture)
{
    const auto unlocked_by = [&] {
        BOOST_TEST_REQUIRE(unlock(*mine, 0, 9).has_value());
        return holder.wire.sent.back().lock.value();
    };
    BOOST_TEST(lock(*mine, 0, 9).has_value());
    stateid4 by = unlocked_by();
    // LOCK finds it so, and then LOCKU, which has no more to do.
    for (const nfs_opnum4 refused : {nfs_opnum4::lock, nfs_opnum4::locku}) {
        if (refused == nfs_opnum4::locku)
            BOOST_TEST(lock(*mine, 0, 9).has_value());
        bool refuses = true;
        holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
            if (call.has(refused) && std::exchange(refuses, false))
                refuse_at(reply, 2, nfsstat4::admin_revoked);
        };
        holder.wire.sent.clear();
        if (refused == nfs_opnum4::lock)
            BOOST_TEST(lock(*mine, 0, 9).has_value());
        else
            BOOST_TEST(unlock(*mine, 0, 9).has_value());
        BOOST_TEST(!refuses);
        BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 0u);
        BOOST_TEST(holder.wire.count(nfs_opnum4::free_stateid) == 1u);
        for (const sent_compound& each : holder.wire.sent) {
            if (each.has(nfs_opnum4::free_stateid))
                BOOST_TEST((each.lock->other == by.other));
        }
        holder.wire.on_reply_to = nullptr;
        if (refused == nfs_opnum4::lock)
            by = unlocked_by();
    }
    BOOST_TEST(text_of(*mine) == "text");
    // Both are gone.
    BOOST_TEST(lock(*mine, 0, 9).has_value());
    (void)unlocked_by();
    int refused = 0;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::lock) && refused++ < 2)
            refuse_at(reply, 2, nfsstat4::bad_stateid);
    };
    holder.wire.sent.clear();
    BOOST_TEST(lock(*mine, 0, 9).has_value());
    BOOST_TEST(refused == 3);
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 1u);
    BOOST_TEST(is_denied(*theirs, 0, 9));
}

BOOST_FIXTURE_TEST_CASE(what_could_not_be_unlocked_goes_with_the_open, fixture)
{
    close(*mine);
    close(*theirs);
    theirs.reset();
    holder.user.use_delegations(4);
    mine = open(holder, what, share4::access_both);
    BOOST_TEST(holder.user.delegations() == 1u);
    BOOST_TEST(lock(*mine, 0, 9).has_value());
    holder.wire.decide = [](const sent_compound& call) {
        return call.has(nfs_opnum4::locku) ? direct_transport::fate::is_lost
                                           : direct_transport::fate::arrives;
    };
    BOOST_TEST(!run([&] { return mine->close(); }).has_value());
    mine.reset();
    holder.wire.decide = nullptr;
    turns();
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::close) == 2u);
    BOOST_TEST(stats().locks.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(who_waits_for_a_server_that_tells_nobody_asks_often, fixture)
{
    close(*theirs);
    other.wire.on_reply_to = [](const sent_compound& call, std::vector<std::byte>& reply) {
        std::byte* const flags = reply.data() + 24 + 12 + 44 + 8 + 8 + 16 + 20;
        if (!call.has(nfs_opnum4::open))
            return;
        BOOST_TEST((xdr::load_u32(flags) & open4_result::may_notify_lock) != 0u);
        xdr::store_u32(flags, xdr::load_u32(flags) & ~open4_result::may_notify_lock);
    };
    theirs = open(other, what, share4::access_both);
    other.way->loses_calls = 1000;
    BOOST_TEST(lock(*mine, 0, 9).has_value());
    scope waiting(*shard);
    bool locked = false;
    waiting.spawn([&]() -> task<void> {
        auto done = co_await theirs->lock(bytes_of_it(0, 9), files_lock::write, true);
        locked = done.has_value();
    });
    pass(60s, 100ms);
    other.wire.sent.clear();
    pass(30s, 100ms);
    BOOST_TEST(other.wire.count(nfs_opnum4::lock) >= 5u);
    BOOST_TEST(unlock(*mine, 0, 9).has_value());
    run([&]() -> task<void> { co_await waiting.join(); });
    BOOST_TEST(locked);
    other.way->loses_calls = 0;
}

BOOST_FIXTURE_TEST_CASE(who_waits_hears_what_is_said_while_he_asks, fixture)
{
    BOOST_TEST(lock(*theirs, 0, 9).has_value());
    scope waiting(*shard);
    bool locked = false;
    waiting.spawn([&]() -> task<void> {
        auto done = co_await mine->lock(bytes_of_it(0, 9), files_lock::write, true);
        locked = done.has_value();
    });
    pass(120s, 100ms); // so that he asks every 30 s
    event go;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::lock) ? &go : nullptr;
    };
    holder.wire.sent.clear();
    pass(31s, 100ms);
    BOOST_TEST(holder.wire.count(nfs_opnum4::lock) == 1u);
    const int before = holder.way->calls;
    BOOST_TEST(unlock(*theirs, 0, 9).has_value());
    pass(1s, 100ms);
    BOOST_TEST(holder.way->calls == before + 1);
    BOOST_TEST(!locked);
    holder.wire.holds_answer = nullptr;
    go.set();
    pass(1s, 100ms);
    BOOST_TEST(locked);
    run([&]() -> task<void> { co_await waiting.join(); });
}

BOOST_FIXTURE_TEST_CASE(closing_waits_for_a_lock_that_was_given_up, fixture)
{
    event go;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::lock) ? &go : nullptr;
    };
    holder.wire.sent.clear();
    scope gives_up(*shard), closing(*shard);
    gives_up.spawn([&]() -> task<void> { (void)co_await mine->lock(bytes_of_it(0, 9), files_lock::write); });
    turns();
    gives_up.request_stop();
    turns();
    bool closed = false;
    closing.spawn([&]() -> task<void> {
        auto done = co_await mine->close();
        closed = done.has_value();
    });
    turns();
    BOOST_TEST(holder.wire.count(nfs_opnum4::close) == 0u);
    go.set();
    run([&]() -> task<void> {
        co_await closing.join();
        co_await gives_up.join();
    });
    holder.wire.holds_answer = nullptr;
    mine.reset();
    BOOST_TEST(closed);
    BOOST_TEST(holder.wire.count(nfs_opnum4::locku) == 1u);
    BOOST_TEST(lock(*theirs, 0, 9).has_value());
}

// `verbena admin evict`. A write under a lock that somebody else may have had since fails; a file that is open without one goes on.
BOOST_FIXTURE_TEST_CASE(a_client_that_an_operator_ends_comes_back_without_its_locks, fixture)
{
    BOOST_TEST(lock(*mine, 0, 9).has_value());
    auto second = open(holder, what, share4::access_both);
    std::string id;
    for (const known_client& c : run([&] { return commons->evicted.find("", 10); }))
        if (commons->state.clients().holdings_of(c.state).locks == 1)
            id = text_of_client(c.who.number);
    const evicted_client had = run([&] { return commons->evicted.end(id, 5s); });
    BOOST_TEST(had.had.locks == 1u);
    BOOST_TEST(had.running == 0u);
    BOOST_TEST(lock(*theirs, 0, 9).has_value()); // at once
    BOOST_TEST((run([&] { return mine->write(0, bytes_of("mine")); }).error() == std::errc::io_error));
    BOOST_TEST(text_of(*theirs) == "text");
    BOOST_TEST(unlock(*theirs, 0, 9).has_value());
    write(*second, "anew");
    BOOST_TEST(text_of(*theirs) == "anew");
    close(*second);
    auto third = open(holder, what, share4::access_both);
    write(*third, "then");
    close(*third);
    BOOST_TEST(text_of(*theirs) == "then");
}

BOOST_AUTO_TEST_SUITE_END()
