// SPDX-License-Identifier: Apache-2.0
// Byte-range locks and those who wait for them.
#include "files_fixture.hpp"

#include <verbena/core/task/yield.hpp>

BOOST_AUTO_TEST_SUITE(files_locks_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;

namespace {

struct locks_fixture : files_fixture {
    locks_fixture()
    {
        a = client("a");
        b = client("b");
        of_a = open(a, "open", "f", share::both)->id;
        of_b = open(b, "open", "f", share::both)->id;
    }
    lock_request lock_of(client_id c, std::string_view owner, byte_range bytes, lock_type type)
    {
        lock_request r;
        r.client = c;
        r.file = file_named("f");
        r.new_owner = true;
        r.id = c == a ? of_a : of_b;
        r.id.seqid = 0;
        r.owner = owner_named(owner);
        r.bytes = bytes;
        r.type = type;
        return r;
    }
    result<stateid> lock(client_id c, std::string_view owner, byte_range bytes, lock_type type,
                         bool wait = false)
    {
        lock_request r = lock_of(c, owner, bytes, type);
        r.wait = wait;
        return table->lock(r, &holder);
    }
    bool would_lock(client_id c, std::string_view owner, byte_range bytes, lock_type type)
    {
        return table->test_lock(c, file_named("f"), owner_named(owner), bytes, type, &holder).has_value();
    }
    result<stateid> unlock(client_id c, const stateid& id, byte_range bytes)
    {
        stateid newest = id;
        newest.seqid = 0;
        return table->unlock(c, newest, file_named("f"), bytes);
    }
    std::vector<std::string> told()
    {
        std::vector<std::string> names;
        for (const auto& [c, name] : handler.available)
            names.push_back(name);
        handler.available.clear();
        return names;
    }
    using names = std::vector<std::string>;
    client_id a = 0, b = 0;
    stateid of_a, of_b;
    lock_holder holder;
};

using enum lock_type;
constexpr std::uint64_t top = byte_range::to_the_end;

} // namespace

BOOST_FIXTURE_TEST_CASE(locks_of_two_owners_conflict_unless_both_read, locks_fixture)
{
    for (const lock_type held : {read, write})
        for (const lock_type asked : {read, write})
            for (const bool same_client : {false, true}) {
                const auto first = lock(a, "x", {10, 19}, held);
                BOOST_REQUIRE(first);
                const client_id other = same_client ? a : b;
                struct {
                    byte_range bytes;
                    bool overlaps;
                } const rows[] = {{{0, 9}, false},    {{0, 10}, true},  {{19, top}, true},
                                  {{20, top}, false}, {{0, top}, true}, {{12, 12}, true}};
                for (const auto& row : rows) {
                    const bool good = !row.overlaps || (held == read && asked == read);
                    BOOST_TEST(would_lock(other, "y", row.bytes, asked) == good);
                    BOOST_TEST(would_lock(a, "x", row.bytes, asked)); // the owner's own is in nobody's way
                    const auto made = lock(other, "y", row.bytes, asked);
                    BOOST_TEST(made.has_value() == good);
                    if (made)
                        BOOST_REQUIRE(unlock(other, *made, row.bytes));
                    else {
                        BOOST_TEST(is(made, errc::denied));
                        BOOST_TEST((holder.bytes == byte_range{10, 19}));
                        BOOST_TEST((holder.type == held));
                        BOOST_TEST(holder.client == a);
                        BOOST_TEST(holder.owner == "x");
                    }
                }
                BOOST_REQUIRE(table->release_lock_owner(other, owner_named("y")));
                BOOST_REQUIRE(unlock(a, *first, {0, top}));
            }
}

BOOST_FIXTURE_TEST_CASE(a_lock_has_one_stateid_for_owner_and_file, locks_fixture)
{
    const auto first = lock(a, "x", {0, 9}, write);
    BOOST_REQUIRE(first);
    BOOST_TEST(first->seqid == 1u);
    lock_request more = lock_of(a, "ignored", {20, 29}, read);
    more.new_owner = false;
    more.id = *first;
    const auto second = table->lock(more);
    BOOST_REQUIRE(second);
    BOOST_TEST((second->other == first->other));
    BOOST_TEST(second->seqid == 2u);
    BOOST_TEST(is(table->lock(more), errc::old_stateid)); // it said 1
    const auto again = lock(a, "x", {40, 49}, read);      // by its open once more
    BOOST_REQUIRE(again);
    BOOST_TEST((again->other == first->other));
    BOOST_TEST(again->seqid == 3u);
    BOOST_TEST(table->stats().lock_states.value() == 1);
    BOOST_TEST(table->stats().locks.value() == 3);
    const auto un = unlock(a, *again, {25, 44});
    BOOST_REQUIRE(un);
    BOOST_TEST(un->seqid == 4u);
    BOOST_TEST(table->stats().locks.value() == 3);     // 0-9, 20-24, 45-49
    const auto nothing = unlock(a, *un, {1000, 1999}); // is fine
    BOOST_REQUIRE(nothing);
    BOOST_TEST(nothing->seqid == 5u);
    // An open is none, and a lock no open.
    more.id = of_a;
    BOOST_TEST(is(table->lock(more), errc::bad_stateid));
    lock_request by_lock = lock_of(a, "z", {0, 1}, read);
    by_lock.id = *nothing;
    BOOST_TEST(is(table->lock(by_lock), errc::bad_stateid));
    BOOST_TEST(is(table->unlock(a, of_a, file_named("f"), {0, 1}), errc::bad_stateid));
    BOOST_TEST(is(table->close(a, *nothing, file_named("f")), errc::bad_stateid));
    BOOST_TEST(is(table->unlock(b, *nothing, file_named("f"), {0, 1}), errc::bad_stateid));
}

// RFC 8881 8.2.1: a set of locks of one owner, under one open.
BOOST_FIXTURE_TEST_CASE(a_lock_owner_has_a_stateid_for_each_open_of_a_file, locks_fixture)
{
    const auto reader = open(a, "reads", "f", share::read)->id,
               writer = open(a, "writes", "f", share::write)->id;
    lock_request r = lock_of(a, "x", {0, 9}, read);
    r.id = reader;
    const auto by_reader = table->lock(r);
    BOOST_REQUIRE(by_reader);
    r = lock_of(a, "x", {20, 29}, write);
    r.id = writer;
    const auto by_writer = table->lock(r); // the other open has not this access
    BOOST_REQUIRE(by_writer);
    BOOST_TEST((by_writer->other != by_reader->other));
    BOOST_TEST(by_writer->seqid == 1u);
    BOOST_TEST(table->stats().lock_states.value() == 2);
    BOOST_TEST(table->stats().lock_owners.value() == 1);
    BOOST_TEST(table->stats().locks.value() == 2);
    // Each does what its open may.
    {
        BOOST_TEST(check_io(a, *by_writer, "f", share::write).has_value());
    }
    {
        BOOST_TEST(is(check_io(a, *by_reader, "f", share::write), errc::open_mode));
    }
    lock_request more = r;
    more.new_owner = false;
    more.id = *by_reader;
    BOOST_TEST(is(table->lock(more), errc::open_mode));
    // An end of one open is the end of its locks alone.
    BOOST_REQUIRE(table->close(a, reader, file_named("f")));
    BOOST_TEST(is(table->test_stateid(a, *by_reader), errc::bad_stateid));
    BOOST_TEST(table->test_stateid(a, *by_writer).has_value());
    BOOST_TEST(would_lock(b, "y", {0, 9}, write));
    BOOST_TEST(!would_lock(b, "y", {20, 29}, read));
    BOOST_REQUIRE(table->close(a, writer, file_named("f")));
    BOOST_TEST(would_lock(b, "y", {0, top}, write));
    BOOST_TEST(table->stats().lock_owners.value() == 0);
    BOOST_TEST(table->stats().locks.value() == 0);
}

// POSIX: a byte has one lock of an owner, however it came by it, and the last call decides.
BOOST_FIXTURE_TEST_CASE(bytes_are_of_their_owner_whichever_open_locked_them, locks_fixture)
{
    const auto second = open(a, "second", "f", share::both)->id;
    const auto first_lock = lock(a, "x", {0, 99}, write);
    BOOST_REQUIRE(first_lock);
    BOOST_TEST(is(lock(b, "reads", {0, 9}, read, true), errc::denied));
    // What is locked by the second open is the second's: here to read, so that who reads may have it.
    lock_request r = lock_of(a, "x", {0, 49}, read);
    r.id = second;
    const auto second_lock = table->lock(r);
    BOOST_REQUIRE(second_lock);
    BOOST_TEST((second_lock->other != first_lock->other));
    BOOST_TEST(table->stats().locks.value() == 2); // 50-99 to write, 0-49 to read
    BOOST_TEST((told() == names{"reads"}));
    BOOST_TEST(lock(b, "reads", {0, 9}, read).has_value());
    BOOST_TEST(table->release_lock_owner(b, owner_named("none")).has_value());
    // An unlock is of the owner's bytes, too: the client that sends it holds them no longer.
    BOOST_TEST(is(lock(b, "writes", {60, 69}, write, true), errc::denied));
    const auto un = unlock(a, *second_lock, {40, 79});
    BOOST_REQUIRE(un);
    BOOST_TEST((un->other == second_lock->other));
    BOOST_TEST((told() == names{"writes"}));
    BOOST_TEST(table->stats().locks.value() == 3); // 80-99; 0-39; b's
    BOOST_TEST(!would_lock(b, "z", {80, 80}, write));
    BOOST_TEST(!would_lock(b, "z", {39, 39}, write));
    // The first has nothing left, and costs nobody anything.
    BOOST_REQUIRE(unlock(a, *un, {80, 99}));
    BOOST_TEST(table->test_stateid(a, *first_lock).has_value());
    BOOST_TEST(is(table->release_lock_owner(a, owner_named("x")), errc::locks_held));
    BOOST_REQUIRE(table->close(a, second, file_named("f")));
    BOOST_TEST(table->release_lock_owner(a, owner_named("x")).has_value());
    BOOST_TEST(table->stats().lock_states.value() == 1);
}

BOOST_FIXTURE_TEST_CASE(limits_count_what_an_owner_holds_by_all_its_opens, files_fixture)
{
    start([](state_options& o) { o.limits.locks_per_client = 2; });
    const client_id a = client("a");
    const auto first = open(a, "open", "f", share::both)->id;
    const auto second = open(a, "second", "f", share::both)->id;
    lock_request r = lock_of(a, first, "f");
    r.bytes = {0, 99};
    BOOST_REQUIRE(table->lock(r));
    r.id = second;
    r.bytes = {40, 49};
    BOOST_TEST(is(table->lock(r), errc::too_many_locks)); // it would be three
    r.bytes = {0, 49};
    const auto by_second = table->lock(r);
    BOOST_REQUIRE(by_second);
    // It splits what the first has.
    BOOST_TEST(is(table->unlock(a, *by_second, r.file, {60, 69}), errc::too_many_locks));
    BOOST_TEST(table->unlock(a, *by_second, r.file, {40, 69}).has_value());
    BOOST_TEST(table->stats().locks.value() == 2);
}

BOOST_FIXTURE_TEST_CASE(a_lock_needs_an_open_of_its_mode, locks_fixture)
{
    for (const share access : {share::read, share::write, share::both}) {
        const auto o = open(a, "other", "f", access);
        for (const lock_type type : {read, write}) {
            lock_request r = lock_of(a, "x", {0, 9}, type);
            r.id = o->id;
            const auto made = table->lock(r);
            BOOST_TEST(made.has_value() == includes(access, type == read ? share::read : share::write));
            if (!made)
                BOOST_TEST(is(made, errc::open_mode)); // LOCK4
            else
                BOOST_REQUIRE(unlock(a, *made, {0, top}));
        }
        BOOST_REQUIRE(table->close(a, o->id, file_named("f"))); // and its locks
        BOOST_TEST(table->stats().lock_states.value() == 0);
    }
}

BOOST_FIXTURE_TEST_CASE(a_close_takes_its_locks_along, locks_fixture)
{
    const auto l = lock(a, "x", {0, 9}, write);
    BOOST_REQUIRE(l);
    BOOST_REQUIRE(lock(a, "y", {20, 29}, write));
    BOOST_TEST(table->stats().lock_owners.value() == 2);
    BOOST_TEST(is(lock(b, "z", {0, 9}, read, true), errc::denied));
    BOOST_REQUIRE(table->close(a, of_a, file_named("f")));
    BOOST_TEST(table->stats().locks.value() == 0);
    BOOST_TEST(table->stats().lock_states.value() == 0);
    BOOST_TEST(table->stats().lock_owners.value() == 0);
    BOOST_TEST((told() == names{"z"}));
    BOOST_TEST(is(unlock(a, *l, {0, 9}), errc::bad_stateid));
    BOOST_TEST(lock(b, "z", {0, 9}, read).has_value());
}

BOOST_FIXTURE_TEST_CASE(a_denied_lock_leaves_nothing, locks_fixture)
{
    BOOST_REQUIRE(lock(a, "x", {0, 9}, write));
    BOOST_TEST(is(lock(b, "y", {0, 9}, write), errc::denied));
    BOOST_TEST(table->stats().lock_states.value() == 1);
    BOOST_TEST(table->stats().lock_owners.value() == 1);
    BOOST_TEST(table->stats().lock_waiters.value() == 0);
    BOOST_TEST(table->stats().lock_denials.value() == 1u);
}

BOOST_FIXTURE_TEST_CASE(owners_and_stateids_are_freed_without_locks_only, locks_fixture)
{
    const auto l = lock(a, "x", {0, 9}, write);
    BOOST_TEST(is(table->release_lock_owner(a, owner_named("x")), errc::locks_held));
    BOOST_TEST(is(run(table->free_stateid(a, *l)), errc::locks_held));
    BOOST_TEST(is(run(table->free_stateid(a, of_a)), errc::locks_held));
    const auto un = unlock(a, *l, {0, 9});
    BOOST_REQUIRE(un);
    BOOST_TEST(run(table->free_stateid(a, *un)).has_value());
    BOOST_TEST(is(table->test_stateid(a, *un), errc::bad_stateid));
    BOOST_TEST(table->stats().lock_owners.value() == 0);
    const auto m = lock(a, "x", {0, 9}, write);
    BOOST_REQUIRE(unlock(a, *m, {0, 9}));
    BOOST_TEST(table->release_lock_owner(a, owner_named("x")).has_value());
    BOOST_TEST(table->stats().lock_states.value() == 0);
    BOOST_TEST(table->release_lock_owner(a, owner_named("never seen")).has_value());
}

BOOST_FIXTURE_TEST_CASE(waiters_hear_in_the_order_of_asking, locks_fixture)
{
    const auto held = lock(a, "x", {0, 99}, write);
    BOOST_TEST(is(lock(b, "first", {0, 9}, write, true), errc::denied));
    BOOST_TEST(is(lock(b, "second", {0, 9}, write, true), errc::denied));
    BOOST_TEST(is(lock(b, "third", {5, 19}, read, true), errc::denied));
    BOOST_TEST(is(lock(b, "beside", {50, 59}, write, true), errc::denied));
    BOOST_TEST(is(lock(b, "first", {0, 9}, write, true), errc::denied)); // asks again, and keeps its place
    BOOST_TEST(table->stats().lock_waiters.value() == 4);
    const auto un = unlock(a, *held, {0, 9});
    BOOST_TEST((told() == names{"first"})); // third still meets 10-19
    BOOST_REQUIRE(unlock(a, *un, {0, top}));
    BOOST_TEST((told() == names{"beside"}));
    // What first was told holds: nobody comes between.
    BOOST_TEST(is(lock(a, "x", {0, 0}, write), errc::denied));
    BOOST_TEST(holder.owner == "first");
    BOOST_TEST(!would_lock(a, "x", {0, 0}, read));
    BOOST_TEST(is(lock(b, "second", {0, 9}, write, true), errc::denied));
    const auto first = lock(b, "first", {0, 9}, write);
    BOOST_REQUIRE(first);
    BOOST_TEST(table->stats().lock_waiters.value() == 3);
    BOOST_TEST(told().empty());
    BOOST_REQUIRE(unlock(b, *first, {0, 9}));
    BOOST_TEST((told() == names{"second"})); // and not third, which would meet it
    BOOST_TEST(table->stop_waiting(b, file_named("f"), owner_named("second")));
    BOOST_TEST(!table->stop_waiting(b, file_named("f"), owner_named("second")));
    BOOST_TEST((told() == names{"third"}));
}

// 8881 9.6.
BOOST_FIXTURE_TEST_CASE(whoever_asks_for_the_same_without_waiting_waits_no_more, locks_fixture)
{
    const auto held = lock(a, "x", {0, 99}, write);
    BOOST_TEST(is(lock(b, "first", {0, 9}, write, true), errc::denied));
    BOOST_TEST(is(lock(b, "second", {0, 9}, write, true), errc::denied));
    // Something else it only tries.
    BOOST_TEST(is(lock(b, "first", {5, 9}, write), errc::denied));
    BOOST_TEST(is(lock(b, "first", {0, 9}, read), errc::denied));
    BOOST_TEST(table->stats().lock_waiters.value() == 2);
    BOOST_TEST(is(lock(b, "first", {0, 9}, write), errc::denied));
    BOOST_TEST(table->stats().lock_waiters.value() == 1);
    BOOST_REQUIRE(unlock(a, *held, {0, 99}));
    BOOST_TEST((told() == names{"second"}));
}

BOOST_FIXTURE_TEST_CASE(whoever_was_told_and_does_not_come_loses_the_place, locks_fixture)
{
    const auto held = lock(a, "x", {0, 9}, write);
    BOOST_TEST(is(lock(b, "first", {0, 9}, write, true), errc::denied));
    BOOST_TEST(is(lock(b, "second", {0, 9}, write, true), errc::denied));
    BOOST_REQUIRE(unlock(a, *held, {0, 9}));
    BOOST_TEST((told() == names{"first"}));
    pass(table->options().lock_reserve - 1ns);
    BOOST_TEST(is(lock(a, "x", {0, 9}, write), errc::denied));
    pass(1ns);
    BOOST_TEST(is(lock(a, "x", {0, 9}, write), errc::denied)); // now it is the second's
    BOOST_TEST((told() == names{"second"}));
    BOOST_TEST(table->stats().lock_waiters.value() == 1);
    pass(table->options().lock_reserve);
    BOOST_TEST(lock(a, "x", {0, 9}, write).has_value());
}

BOOST_FIXTURE_TEST_CASE(time_alone_tells_the_next_waiter, locks_fixture)
{
    const auto held = lock(a, "x", {0, 9}, write);
    BOOST_TEST(is(lock(b, "first", {0, 9}, write, true), errc::denied));
    BOOST_TEST(is(lock(b, "second", {0, 9}, write, true), errc::denied));
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([this] { return book->tend(); });
        s.spawn([this] { return table->tend(); });
        BOOST_TEST(unlock(a, *held, {0, 9}).has_value());
        co_await sleep_for(table->options().lock_reserve + 1s);
        BOOST_TEST((told() == names{"first", "second"}));
        s.request_stop();
        co_await s.join();
    };
    run(body());
}

BOOST_FIXTURE_TEST_CASE(waiting_keeps_nothing_from_others, locks_fixture)
{
    // x reads 0-9; "first" waits for all of it to write. x may go on to lock what first waits for: else both would wait for ever.
    const auto held = lock(a, "x", {0, 9}, read);
    BOOST_TEST(is(lock(b, "first", {0, 19}, write, true), errc::denied));
    BOOST_TEST(lock(a, "x", {10, 19}, write).has_value());
    BOOST_TEST(lock(a, "another", {0, 9}, read).has_value());
}

BOOST_FIXTURE_TEST_CASE(a_downgrade_of_a_lock_tells_readers, locks_fixture)
{
    BOOST_REQUIRE(lock(a, "x", {0, 9}, write));
    BOOST_TEST(is(lock(b, "reads", {0, 9}, read, true), errc::denied));
    BOOST_TEST(is(lock(b, "writes", {0, 9}, write, true), errc::denied));
    BOOST_REQUIRE(lock(a, "x", {0, 9}, read));
    BOOST_TEST((told() == names{"reads"}));
}

BOOST_FIXTURE_TEST_CASE(a_waiter_of_a_client_that_goes_is_gone, locks_fixture)
{
    const auto held = lock(a, "x", {0, 9}, write);
    BOOST_TEST(is(lock(b, "first", {0, 9}, write, true), errc::denied));
    BOOST_REQUIRE(run(book->forget(b)));
    BOOST_TEST(table->stats().lock_waiters.value() == 0);
    BOOST_REQUIRE(unlock(a, *held, {0, 9}));
    BOOST_TEST(told().empty());
}

BOOST_FIXTURE_TEST_CASE(courtesy_clients_give_way, locks_fixture)
{
    BOOST_REQUIRE(lock(a, "x", {0, 9}, write));
    BOOST_TEST(is(lock(b, "y", {0, 9}, write, true), errc::denied));
    pass(91s);
    BOOST_REQUIRE(book->renew(b));
    BOOST_TEST((told() == names{"y"})); // its time has come
    BOOST_TEST(would_lock(b, "y", {0, 9}, write));
    lock_request r = lock_of(b, "y", {0, 9}, write);
    BOOST_TEST(is(table->lock(r), errc::in_way));
    BOOST_REQUIRE(make_way(demand(r), 0s));
    BOOST_TEST((store->written.back() == "remove a"));
    BOOST_TEST(table->lock(r).has_value());
    BOOST_TEST((*book->state_of(a) == client_state::expired));
    BOOST_TEST(is(table->close(a, of_a, file_named("f")), errc::expired)); // CLOSE8
}

BOOST_FIXTURE_TEST_CASE(what_was_kept_for_a_waiter_goes_on_to_the_next, locks_fixture)
{
    auto held = lock(a, "x", {0, 9}, write);
    BOOST_REQUIRE(lock(a, "z", {50, 59}, write));
    BOOST_TEST(is(lock(b, "first", {0, 9}, write, true), errc::denied));
    BOOST_TEST(is(lock(a, "second", {0, 9}, write, true), errc::denied));
    held = unlock(a, *held, {0, 9});
    BOOST_TEST((told() == names{"first"}));
    // It waits for something else now.
    BOOST_TEST(is(lock(b, "first", {50, 59}, write, true), errc::denied));
    BOOST_TEST((told() == names{"second"}));
    BOOST_TEST(table->stop_waiting(a, file_named("f"), owner_named("second")));
    BOOST_TEST(table->stop_waiting(b, file_named("f"), owner_named("first")));
    // Its client falls silent.
    held = lock(a, "x", {0, 9}, write);
    pass(88s);
    BOOST_REQUIRE(book->renew(a));
    BOOST_TEST(is(lock(b, "first", {0, 9}, write, true), errc::denied));
    BOOST_TEST(is(lock(a, "second", {0, 9}, write, true), errc::denied));
    BOOST_REQUIRE(unlock(a, *held, {0, 9}));
    BOOST_TEST((told() == names{"first"}));
    pass(2s);
    BOOST_TEST((*book->state_of(b) == client_state::courtesy));
    BOOST_TEST((told() == names{"second"}));
}

// Else one client holds all others up by what it closes.
BOOST_FIXTURE_TEST_CASE(waiters_are_looked_at_once_for_all_that_goes_together, locks_fixture)
{
    auto checks = [&, before = std::uint64_t(0)]() mutable {
        const std::uint64_t all = table->stats().waiter_checks.value();
        return all - std::exchange(before, all);
    };
    const auto many = [&](client_id c, const stateid& by, bool unlocked) {
        for (std::uint64_t i = 0; i < 100; ++i) {
            const std::string owner = (unlocked ? "left " : "holds ") + std::to_string(i);
            const std::uint64_t at = (unlocked ? 5000 : 1000) + 10 * i;
            lock_request r = lock_of(c, owner, {at, at + 9}, write);
            r.id = by;
            const auto made = table->lock(r);
            BOOST_REQUIRE(made);
            if (unlocked)
                BOOST_REQUIRE(unlock(c, *made, {0, top}));
        }
    };
    const auto of_others = open(a, "others", "f", share::both)->id;
    const auto held = lock(a, "x", {0, 9}, write);
    BOOST_REQUIRE(held);
    for (const char* waiter : {"1", "2", "3", "4"})
        BOOST_TEST(is(lock(b, waiter, {0, 9}, write, true), errc::denied));
    BOOST_TEST(checks() == 0u); // a refusal frees nothing
    // Nor does who unlocks what he does not have, or locks to read what nobody had.
    auto mine = lock(a, "y", {100, 109}, read);
    BOOST_REQUIRE(mine);
    mine = unlock(a, *mine, {200, 209});
    BOOST_REQUIRE(mine);
    BOOST_TEST(checks() == 0u);
    BOOST_REQUIRE(unlock(a, *mine, {100, 109}));
    BOOST_TEST(checks() == 4u);
    // What was unlocked before frees nothing, however many owners it had.
    many(a, of_others, true);
    BOOST_TEST(checks() == 4u * 100); // for each that was unlocked
    BOOST_REQUIRE(table->close(a, of_others, file_named("f")));
    BOOST_TEST(checks() == 0u);
    // Locks that go together.
    const auto of_more = open(a, "others", "f", share::both)->id;
    many(a, of_more, false);
    BOOST_TEST(checks() == 0u);
    BOOST_REQUIRE(table->close(a, of_more, file_named("f")));
    BOOST_TEST(checks() == 4u);
    // Reading and writing frees no lock.
    {
        BOOST_REQUIRE(check_io(a, of_a, "f", share::read));
    }
    BOOST_TEST(checks() == 0u);
    // A client that falls silent, and then goes.
    const client_id c = client("c");
    many(c, open(c, "open", "f", share::both)->id, false);
    many(c, open(c, "another", "f", share::both)->id, true);
    (void)checks();
    pass(60s);
    BOOST_REQUIRE(book->renew(a));
    BOOST_REQUIRE(book->renew(b));
    pass(14s); // nobody has waited for too long
    for (const char* waiter : {"1", "2", "3", "4"})
        BOOST_TEST(is(lock(b, waiter, {0, 9}, write, true), errc::denied));
    BOOST_TEST(checks() == 0u);
    pass(17s);
    BOOST_TEST((*book->state_of(c) == client_state::courtesy));
    BOOST_TEST(checks() == 4u);
    BOOST_REQUIRE(run(book->forget(c)));
    BOOST_TEST(checks() <= 4u * 4);
    BOOST_TEST(told().empty());
    BOOST_REQUIRE(table->close(a, of_a, file_named("f")));
    BOOST_TEST((told() == names{"1"}));
    // One that was told, and asks for something else, is told again: that is its own doing.
    (void)checks();
    const auto beside = open(a, "open", "f", share::both)->id;
    of_a = beside;
    BOOST_REQUIRE(lock(a, "x", {50, 59}, write));
    BOOST_TEST(checks() == 0u);
    BOOST_TEST(is(lock(b, "1", {50, 59}, write), errc::denied));
    BOOST_TEST(checks() == 4u);
    BOOST_TEST((told() == names{"1"}));
}

// One unlock before as many holders and waiters as there may be costs 130,000 looks. Others have their turn in between.
BOOST_FIXTURE_TEST_CASE(waiters_are_looked_at_in_pieces, locks_fixture)
{
    constexpr std::uint64_t holders = 2036, waiters = 64;
    const auto held = lock(a, "x", {0, 9}, write);
    BOOST_REQUIRE(held);
    for (std::uint64_t i = 1; i < holders; ++i)
        BOOST_REQUIRE(lock(a, "holds " + std::to_string(i), {100 * i, 100 * i + 9}, write));
    names all;
    for (std::uint64_t i = 0; i < waiters; ++i) {
        all.push_back("waits " + std::to_string(i));
        BOOST_REQUIRE(is(lock(b, all.back(), {0, 9}, read, true), errc::denied));
    }
    const std::uint64_t before = table->stats().waiter_steps.value();
    BOOST_REQUIRE(unlock(a, *held, {0, 9}));
    const std::uint64_t at_once = table->stats().waiter_steps.value() - before;
    BOOST_TEST(at_once <= table->options().limits.waiter_steps + holders);
    names first = told();
    BOOST_TEST((!first.empty() && first.size() < 5u));
    std::uint64_t turns = 0;
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([this] { return book->tend(); });
        s.spawn([this] { return table->tend(); });
        const time_point begun = clock.now();
        while (first.size() < waiters && turns < 1000) {
            const std::uint64_t steps = table->stats().waiter_steps.value();
            co_await yield();
            BOOST_TEST(table->stats().waiter_steps.value() - steps <=
                       2 * (table->options().limits.waiter_steps + holders));
            for (std::string& name : told())
                first.push_back(std::move(name));
            ++turns;
        }
        BOOST_TEST((clock.now() == begun));
        s.request_stop();
        co_await s.join();
    };
    run(body());
    BOOST_TEST(first == all); // in the order of asking
    BOOST_TEST(turns > 10u);
    BOOST_TEST(table->stats().waiter_steps.value() - before == waiters * (holders - 1));
}

// Where one gets what it waits for the others need not be compared with all holders.
BOOST_FIXTURE_TEST_CASE(who_was_told_is_in_the_way_of_the_others_at_once, locks_fixture)
{
    const auto held = lock(a, "x", {0, 9}, write);
    for (std::uint64_t i = 1; i < 1000; ++i)
        BOOST_REQUIRE(lock(a, "holds " + std::to_string(i), {100 * i, 100 * i + 9}, write));
    for (int i = 0; i < 64; ++i)
        BOOST_REQUIRE(is(lock(b, "waits " + std::to_string(i), {0, 9}, write, true), errc::denied));
    const std::uint64_t before = table->stats().waiter_steps.value();
    BOOST_REQUIRE(unlock(a, *held, {0, 9}));
    BOOST_TEST((told() == names{"waits 0"}));
    BOOST_TEST(table->stats().waiter_steps.value() - before == 999u);
}

BOOST_FIXTURE_TEST_CASE(nobody_is_driven_out_for_nothing, locks_fixture)
{
    const client_id c = client("c");
    const auto of_c = open(c, "open", "f", share::both)->id;
    BOOST_REQUIRE(lock(a, "x", {0, 9}, write));
    pass(60s);
    lock_request r = lock_of(c, "z", {20, 29}, write);
    r.id = of_c;
    BOOST_REQUIRE(book->renew(c));
    BOOST_REQUIRE(book->renew(b));
    BOOST_REQUIRE(table->lock(r));
    pass(31s); // a is a courtesy client, c isn't
    r = lock_of(b, "y", {0, 29}, write);
    BOOST_TEST(is(table->lock(r, &holder), errc::denied));
    BOOST_TEST(holder.owner == "z");
    BOOST_REQUIRE(make_way(demand(r), 0s)); // there is nothing to gain
    BOOST_TEST((*book->state_of(a) == client_state::courtesy));
}

BOOST_FIXTURE_TEST_CASE(locks_and_waits_have_limits, files_fixture)
{
    start([](state_options& o) {
        o.limits.locks_per_client = 3;
        o.limits.locks = 5;
        o.limits.waiters_per_client = 1;
    });
    const client_id a = client("a"), b = client("b");
    const auto of_a = open(a, "o", "f", share::both), of_b = open(b, "o", "f", share::both);
    const auto lock = [&](client_id c, std::string_view owner, byte_range bytes, bool wait = false) {
        lock_request r;
        r.client = c;
        r.file = file_named("f");
        r.new_owner = true;
        r.id = c == a ? of_a->id : of_b->id;
        r.owner = owner_named(owner);
        r.bytes = bytes;
        r.type = write;
        r.wait = wait;
        return table->lock(r);
    };
    const auto x = lock(a, "x", {0, 9});
    BOOST_REQUIRE(x);
    BOOST_REQUIRE(lock(a, "x", {20, 29}));
    BOOST_REQUIRE(lock(a, "y", {40, 49}));
    BOOST_TEST(is(lock(a, "x", {60, 69}), errc::too_many_locks));
    BOOST_TEST(is(lock(a, "z", {60, 69}), errc::too_many_locks));
    BOOST_TEST(lock(a, "x", {10, 19}).has_value()); // makes one of two
    BOOST_TEST(lock(a, "x", {60, 69}).has_value());
    stateid id = *x;
    id.seqid = 0;
    BOOST_TEST(is(table->unlock(a, id, file_named("f"), {5, 5}), errc::too_many_locks)); // makes two of one
    BOOST_TEST(table->unlock(a, id, file_named("f"), {0, 5}).has_value());
    BOOST_REQUIRE(lock(b, "p", {100, 109}));
    BOOST_REQUIRE(lock(b, "p", {120, 129}));
    BOOST_TEST(is(lock(b, "p", {140, 149}), errc::all_is_full));
    BOOST_TEST(is(lock(b, "q", {20, 20}, true), errc::denied));
    BOOST_TEST(is(lock(b, "r", {20, 20}, true), errc::denied));
    BOOST_TEST(table->stats().lock_waiters.value() == 1);
    BOOST_TEST(table->stats().locks.value() == 5);
}

struct many_owners : files_fixture {
    result<stateid> lock(client_id c, const stateid& by, std::string_view owner)
    {
        lock_request r;
        r.client = c;
        r.file = file_named("f");
        r.new_owner = true;
        r.id = by;
        r.owner = owner_named(owner);
        r.bytes = {0, 9};
        r.type = read;
        return table->lock(r);
    }
};

BOOST_FIXTURE_TEST_CASE(lock_owners_without_ranges_have_a_limit, many_owners)
{
    start([](state_options& o) {
        o.limits.lock_states_per_client = 2;
        o.limits.lock_states = 3;
        o.limits.peer_percent = 100;
    });
    const client_id a = client("a"), b = client("b");
    const auto of_a = open(a, "o", "f", share::both), of_b = open(b, "o", "f", share::both);
    for (const char* owner : {"x", "y"}) {
        const auto held = lock(a, of_a->id, owner);
        BOOST_REQUIRE(held);
        BOOST_REQUIRE(table->unlock(a, *held, file_named("f"), {0, 9}));
    }
    BOOST_TEST(is(lock(a, of_a->id, "z"), errc::too_many_locks));
    BOOST_TEST(lock(a, of_a->id, "x").has_value());
    BOOST_REQUIRE(lock(b, of_b->id, "x"));
    BOOST_TEST(is(lock(b, of_b->id, "y"), errc::all_is_full));
    BOOST_TEST(table->stats().refused_limits.value(limited::lock_owners, limit_of::client) == 1u);
    BOOST_TEST(table->stats().refused_limits.value(limited::lock_owners, limit_of::all) == 1u);
}

BOOST_FIXTURE_TEST_CASE(who_holds_no_range_is_not_among_a_file_s_lockers, many_owners)
{
    start([](state_options& o) { o.limits.lockers_per_file = 2; });
    const client_id a = client("a");
    const auto by = open(a, "o", "f", share::both);
    stateid first;
    for (const char* owner : {"1", "2", "3", "4"}) {
        const auto held = lock(a, by->id, owner);
        BOOST_REQUIRE(held);
        const auto left = table->unlock(a, *held, file_named("f"), {0, 9});
        BOOST_REQUIRE(left);
        first = first.seqid == 0 ? *left : first;
    }
    BOOST_REQUIRE(lock(a, by->id, "5"));
    lock_request again;
    again.client = a;
    again.file = file_named("f");
    again.id = first;
    again.bytes = {0, 9};
    again.type = read;
    const auto relocked = table->lock(again);
    BOOST_REQUIRE(relocked);
    BOOST_TEST(is(lock(a, by->id, "6"), errc::busy)); // others may unlock
    // It counts for others again.
    const client_id b = client("b");
    again.type = write;
    BOOST_TEST(is(table->test_lock(b, file_named("f"), owner_named("x"), {5, 5}, write), errc::denied));
    BOOST_REQUIRE(table->close(a, by->id, file_named("f")));
    BOOST_TEST(table->test_lock(b, file_named("f"), owner_named("x"), {5, 5}, write).has_value());
}

BOOST_AUTO_TEST_SUITE_END()
