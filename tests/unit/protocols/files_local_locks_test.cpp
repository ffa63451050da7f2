// SPDX-License-Identifier: Apache-2.0
// Locks for which the back end is asked, too: what holds while it is, and who hears when a local process unlocks.
#include "files_fixture.hpp"
#include "files_hand_made_locks.hpp"

#include <verbena/core/task/scope.hpp>

#include <array>
#include <cerrno>

BOOST_AUTO_TEST_SUITE(files_local_locks_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;

namespace {

struct local_fixture : files_fixture {
    explicit local_fixture(std::function<void(state_options&)> change = {})
    {
        handler.make_local_locks = [this] { return std::make_unique<hand_made_locks>(back_end); };
        start(std::move(change));
        tasks.spawn([this] { return book->tend(); });
        tasks.spawn([this] { return table->tend(); });
        a = client("a");
        b = client("b");
        of_a = open(a, "open", "f", share::both)->id;
        of_b = open(b, "open", "f", share::both)->id;
    }
    ~local_fixture()
    {
        tasks.request_stop();
        back_end.go.set();
        while (tasks.live() != 0)
            shard->turn();
        stop();
        BOOST_TEST(back_end.objects == 0);
    }
    lock_request wanted(client_id c, byte_range bytes, lock_type type, bool wait = false)
    {
        lock_request r = lock_of(c, c == a ? of_a : of_b, "f");
        r.id.seqid = 0;
        r.bytes = bytes;
        r.type = type;
        r.wait = wait;
        return r;
    }
    struct outcome {
        bool is_done = false;
        result<stateid> id = error(errc::busy);
        lock_holder holder;
    };
    task<void> lock_into(lock_request r, outcome& out)
    {
        pending_lock pending;
        out.id = table->lock(r, &out.holder, zero_seqid::newest, &pending);
        if (pending.asks_back_end()) {
            const result<void> asked = co_await table->lock_locally(pending, r, &out.holder);
            if (asked)
                out.id = table->lock(r, &out.holder, zero_seqid::newest, &pending);
            else
                out.id = asked.error();
        }
        if (const back_end_locks unsettled = pending.take_unsettled())
            co_await unsettled->settle();
        out.is_done = true;
    }
    /// What runs on, unless nothing holds it up.
    void begin(const lock_request& r, outcome& out)
    {
        tasks.spawn(&local_fixture::lock_into, this, r, std::ref(out));
        turns();
    }
    result<stateid> lock(client_id c, byte_range bytes, lock_type type, bool wait = false)
    {
        outcome out;
        begin(wanted(c, bytes, type, wait), out);
        BOOST_REQUIRE(out.is_done);
        holder = out.holder;
        return out.id;
    }
    void unlock(client_id c, const stateid& id, byte_range bytes)
    {
        stateid newest = id;
        newest.seqid = 0;
        BOOST_REQUIRE(table->unlock(c, newest, file_named("f"), bytes));
    }
    void turns(int n = 10)
    {
        for (int i = 0; i < n; ++i)
            shard->turn();
    }
    void pass_turning(duration d)
    {
        for (const time_point end = clock.now() + d; clock.now() < end;) {
            clock.advance(10ms);
            turns(3);
        }
    }
    std::size_t told() const { return handler.available.size(); }

    hand_made back_end;
    scope tasks{*shard};
    client_id a = nobody, b = nobody;
    stateid of_a, of_b;
    lock_holder holder;
};

constexpr auto read = lock_type::read;
constexpr auto write = lock_type::write;

} // namespace

BOOST_FIXTURE_TEST_CASE(a_local_lock_denies_a_clients, local_fixture)
{
    back_end.holder = storage::local_holder{{5, 20, true}, 77};
    BOOST_TEST(is(lock(a, {0, 9}, read), errc::denied));
    BOOST_TEST((holder.bytes == byte_range{5, 20}));
    BOOST_TEST(bool(holder.type == write));
    BOOST_TEST(holder.owner == "local process 77");
    BOOST_TEST(holder.client == nobody);
    BOOST_TEST(table->stats().local_lock_denials.value() == 1u);
    BOOST_TEST(table->stats().lock_denials.value() == 0u);
    BOOST_TEST(table->stats().lock_states.value() == 0);
    BOOST_TEST(lock(a, {0, 4}, read).has_value());
    BOOST_TEST(back_end.locks == 2);
}

BOOST_FIXTURE_TEST_CASE(others_are_denied_while_the_back_end_is_asked, local_fixture)
{
    back_end.holds = true;
    outcome first;
    begin(wanted(a, {0, 9}, write), first);
    BOOST_TEST(!first.is_done);
    BOOST_TEST(is(lock(b, {9, 9}, read), errc::denied));
    BOOST_TEST(holder.client == a);
    BOOST_TEST(is(table->test_lock(b, file_named("f"), owner_named("l"), {9, 9}, read), errc::denied));
    BOOST_TEST(table->test_lock(b, file_named("f"), owner_named("l"), {10, 10}, write).has_value());
    outcome beside;
    begin(wanted(b, {10, 19}, write), beside);
    BOOST_TEST(!beside.is_done);
    back_end.go.set();
    turns();
    BOOST_TEST_REQUIRE(first.is_done);
    BOOST_TEST(first.id.has_value());
    BOOST_TEST(beside.id.has_value());
    BOOST_TEST(table->stats().locks.value() == 2);
}

// Who waits for it, and was denied for what was pending alone, hears when that came to nothing.
BOOST_FIXTURE_TEST_CASE(a_lock_that_was_not_granted_leaves_nothing, local_fixture)
{
    for (const bool fails : {false, true}) {
        back_end.holds = true;
        back_end.go.reset();
        outcome first;
        begin(wanted(a, {0, 9}, write), first);
        BOOST_TEST(is(lock(b, {0, 3}, write, true), errc::denied));
        BOOST_TEST(told() == 0u);
        if (fails)
            back_end.fails_with = EIO;
        else
            back_end.holder = storage::local_holder{{9, 9, false}, 0};
        back_end.go.set();
        turns();
        BOOST_TEST(is(first.id, fails ? errc::io : errc::denied));
        BOOST_TEST(table->stats().locks.value() == 0);
        BOOST_TEST(told() == 1u);
        BOOST_TEST(back_end.keeps == 0); // the back end has taken nothing
        BOOST_TEST(back_end.objects == 0);
        handler.available.clear();
        back_end.fails_with = 0;
        back_end.holder.reset();
        BOOST_TEST(table->stop_waiting(b, file_named("f"), owner_named("l")));
    }
}

BOOST_FIXTURE_TEST_CASE(a_client_that_goes_meanwhile_leaves_nothing, local_fixture)
{
    for (const char* const how : {"forget", "close", "revoke"}) {
        back_end.holds = true;
        back_end.go.reset();
        const auto gone = client(how);
        const auto opened = open(gone, "open", "f", share::both);
        BOOST_REQUIRE(opened);
        lock_request r = wanted(b, {0, 9}, write);
        r.client = gone;
        r.id = opened->id;
        outcome first;
        begin(r, first);
        if (how == std::string_view("forget"))
            BOOST_REQUIRE(run(book->forget(gone)));
        else if (how == std::string_view("revoke"))
            BOOST_REQUIRE(run(book->revoke_client(gone)));
        else
            BOOST_REQUIRE(table->close(gone, opened->id, file_named("f")));
        const int before = back_end.keeps;
        back_end.go.set();
        turns();
        BOOST_TEST_REQUIRE(first.is_done);
        BOOST_TEST(!first.id.has_value());
        BOOST_TEST(back_end.keeps == before + 1); // the back end had granted it
        BOOST_TEST(back_end.kept.empty());
        BOOST_TEST(table->stats().locks.value() == 0);
        const auto again = lock(b, {0, 9}, write);
        BOOST_REQUIRE(again);
        unlock(b, *again, {0, 9});
    }
}

// What a client that is gone had asked for holds up nobody, however long the back end takes.
BOOST_FIXTURE_TEST_CASE(a_pending_lock_of_nobody_stands_against_none, local_fixture)
{
    back_end.holds = true;
    outcome first, second;
    begin(wanted(a, {0, 9}, write), first);
    BOOST_REQUIRE(run(book->forget(a)));
    begin(wanted(b, {0, 9}, write), second);
    BOOST_TEST(!second.is_done); // it asks the back end, too
    back_end.go.set();
    turns();
    BOOST_TEST(second.id.has_value());
    BOOST_TEST(!first.id.has_value());
    BOOST_TEST((back_end.kept == std::vector<storage::lock_range>{{0, 9, true}}));
}

BOOST_FIXTURE_TEST_CASE(the_back_end_keeps_the_union, local_fixture)
{
    const auto mine = lock(a, {0, 9}, read);
    const auto theirs = lock(b, {5, 14}, read);
    BOOST_REQUIRE(mine);
    BOOST_REQUIRE(theirs);
    BOOST_TEST(back_end.keeps == 0);
    unlock(a, *mine, {0, 7});
    BOOST_TEST((back_end.kept == std::vector<storage::lock_range>{{5, 7, false}}));
    const auto again = lock(b, {10, 14}, write);
    BOOST_REQUIRE(again);
    BOOST_REQUIRE(table->close(a, of_a, file_named("f")));
    BOOST_TEST((back_end.kept == std::vector<storage::lock_range>{{8, 9, false}}));
    BOOST_TEST(back_end.keeps == 2);
}

// Two locks overlap, and one of them comes to nothing: of their bytes the other one's stay, whichever began first.
BOOST_FIXTURE_TEST_CASE(of_two_pending_locks_one_stays, local_fixture)
{
    for (const bool stays_first : {true, false}) {
        back_end.holds = true;
        back_end.go.reset();
        const client_id gone = client("gone");
        lock_request r = wanted(b, {5, 14}, read);
        r.client = gone;
        r.id = open(gone, "open", "f", share::both)->id;
        outcome stays, goes;
        if (stays_first)
            begin(wanted(a, {0, 9}, read), stays);
        begin(r, goes);
        if (!stays_first)
            begin(wanted(a, {0, 9}, read), stays);
        BOOST_REQUIRE(run(book->forget(gone)));
        back_end.holding.clear();
        back_end.go.set();
        turns();
        BOOST_TEST_REQUIRE(stays.id.has_value());
        BOOST_TEST(!goes.id.has_value());
        for (std::uint64_t at = 0; at < 15; ++at)
            BOOST_TEST(back_end.holding[at] == (at < 10));
        unlock(a, *stays.id, {0, 9});
    }
}

// An unlock of bytes that are just being asked for leaves them to their own end.
BOOST_FIXTURE_TEST_CASE(an_unlock_leaves_alone_what_is_pending, local_fixture)
{
    const auto mine = lock(a, {0, 19}, write);
    BOOST_REQUIRE(mine);
    back_end.holds = true;
    outcome first;
    begin(wanted(a, {0, 9}, read), first);
    unlock(a, *mine, {0, 19});
    BOOST_TEST(back_end.keeps == 1);
    BOOST_TEST((back_end.told == byte_range{10, 19}));
    BOOST_TEST(back_end.kept.empty());
    back_end.go.set();
    turns();
    BOOST_TEST(first.id.has_value());
    BOOST_TEST(back_end.keeps == 2); // something was said of the file meanwhile
    BOOST_TEST((back_end.kept == std::vector<storage::lock_range>{{0, 9, false}}));
}

// The kernel does not say when a local process unlocks.
BOOST_FIXTURE_TEST_CASE(who_waits_for_a_local_process_is_tried_again, local_fixture)
{
    back_end.holder = storage::local_holder{{0, 9, true}, 0};
    BOOST_TEST(is(lock(a, {0, 9}, write, true), errc::denied));
    BOOST_TEST(table->stats().lock_waiters.value() == 1);
    pass_turning(40ms);
    BOOST_TEST(back_end.tests == 0);
    pass_turning(20ms);
    BOOST_TEST(back_end.tests == 1); // after 50 ms
    pass_turning(110ms);
    BOOST_TEST(back_end.tests == 2); // 150
    pass_turning(1500ms);
    BOOST_TEST(back_end.tests == 5); // 350, 750, 1550
    pass_turning(5s);
    BOOST_TEST(back_end.tests == 10);
    BOOST_TEST(told() == 0u);
    back_end.holder.reset();
    pass_turning(1s);
    BOOST_TEST(told() == 1u);
    // The range is kept for it, and nobody looks any more.
    const int looks = back_end.tests;
    BOOST_TEST(is(lock(b, {0, 0}, read), errc::denied));
    pass_turning(1s);
    BOOST_TEST(back_end.tests == looks);
    BOOST_TEST(lock(a, {0, 9}, write).has_value());
}

BOOST_FIXTURE_TEST_CASE(who_asks_again_is_watched_once, local_fixture)
{
    back_end.holder = storage::local_holder{{0, 9, true}, 0};
    for (int i = 0; i < 5; ++i)
        BOOST_TEST(is(lock(a, {0, 9}, write, true), errc::denied));
    pass_turning(60ms);
    BOOST_TEST(back_end.tests == 1);
    BOOST_TEST(table->stop_waiting(a, file_named("f"), owner_named("l")));
    pass_turning(10s);
    BOOST_TEST(back_end.tests == 1);
    // One that a client holds up is told by the table, not by looks.
    back_end.holder.reset();
    const auto theirs = lock(b, {0, 9}, write);
    BOOST_TEST(is(lock(a, {0, 9}, write, true), errc::denied));
    pass_turning(2s);
    BOOST_TEST(back_end.tests == 1);
    unlock(b, *theirs, {0, 9});
    BOOST_TEST(told() == 1u);
}

// Nothing is told of bytes that come free here while a local process has them.
BOOST_FIXTURE_TEST_CASE(a_local_waiter_is_not_told_by_a_client, local_fixture)
{
    const auto theirs = lock(b, {50, 59}, write);
    back_end.holder = storage::local_holder{{0, 9, true}, 0};
    BOOST_TEST(is(lock(a, {0, 9}, write, true), errc::denied));
    unlock(b, *theirs, {50, 59});
    BOOST_TEST(told() == 0u);
    // A client took what the local process let go.
    back_end.holder.reset();
    const auto again = lock(b, {0, 9}, write);
    pass_turning(1s);
    BOOST_TEST(told() == 0u);
    unlock(b, *again, {0, 9});
    BOOST_TEST(told() == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_test_asks_the_back_end, local_fixture)
{
    lock_holder found;
    const auto test = [&](byte_range bytes) -> result<void> {
        back_end_locks asks;
        const auto here = table->test_lock(a, file_named("f"), owner_named("m"), bytes, write, &found, &asks);
        BOOST_REQUIRE(here);
        BOOST_REQUIRE(asks != nullptr);
        return run(table->test_locally(std::move(asks), bytes, write, &found));
    };
    BOOST_TEST(test({0, 9}).has_value());
    back_end.holder = storage::local_holder{{5, 20, false}, 0};
    BOOST_TEST(is(test({0, 9}), errc::denied));
    BOOST_TEST(found.owner == "local process");
    BOOST_TEST(test({0, 4}).has_value());
    back_end.fails_with = EMFILE; // that is not free
    BOOST_TEST(is(test({0, 4}), errc::busy));
    BOOST_TEST(back_end.objects == 0); // of a file without locks none is left
    BOOST_TEST(table->stats().lock_states.value() == 0);
}

BOOST_AUTO_TEST_CASE(a_reclaim_against_a_local_lock_conflicts)
{
    local_fixture f;
    f.tasks.request_stop();
    f.turns();
    f.start();
    const auto a = *f.book->add_client("a");
    open_request r = f.request(a, "open", "f", share::both);
    r.claim = open_claim::reclaim;
    const auto opened = f.table->open(r);
    BOOST_REQUIRE(opened);
    f.back_end.holder = storage::local_holder{{0, 9, false}, 0};
    lock_request l = files_fixture::lock_of(a, opened->id, "f");
    l.reclaim = true;
    local_fixture::outcome out;
    f.tasks.spawn(&local_fixture::lock_into, &f, l, std::ref(out));
    f.turns();
    BOOST_TEST(files_fixture::is(out.id, errc::reclaim_conflict));
    BOOST_TEST(f.table->stats().conflicting_reclaims.value() == 1u);
    f.back_end.holder.reset();
    f.tasks.spawn(&local_fixture::lock_into, &f, l, std::ref(out));
    f.turns();
    BOOST_TEST(out.id.has_value());
}

// Where the back end has no such locks nothing is awaited, and it is asked once.
BOOST_AUTO_TEST_CASE(without_local_locks_nothing_is_awaited)
{
    local_fixture f;
    int asked = 0;
    f.handler.make_local_locks = [&] {
        ++asked;
        return std::unique_ptr<storage::local_locks>();
    };
    pending_lock pending;
    lock_holder holder;
    for (int i = 0; i < 3; ++i) {
        BOOST_TEST(
            f.table->lock(f.wanted(f.a, {0, 9}, write), &holder, zero_seqid::newest, &pending).has_value());
        BOOST_TEST(!pending.asks_back_end());
    }
    BOOST_TEST(asked == 1);
    back_end_locks asks;
    BOOST_TEST(f.table->test_lock(f.b, file_named("f"), owner_named("m"), {10, 19}, write, nullptr, &asks)
                   .has_value());
    BOOST_TEST(asks == nullptr);
    BOOST_TEST(f.table->close(f.a, f.of_a, file_named("f"), zero_seqid::newest, &asks).has_value());
    BOOST_TEST(asks == nullptr);
    BOOST_TEST(asked == 1);
}

// The kernel tells nobody that a local process wants what such a client has locked.
BOOST_FIXTURE_TEST_CASE(a_client_whose_lease_is_over_keeps_local_processes_out_no_more, local_fixture)
{
    const client_id c = client("c"); // which has no lock
    BOOST_REQUIRE(open(c, "open", "f", share::both));
    BOOST_REQUIRE(lock(a, {0, 9}, write));
    BOOST_REQUIRE(lock(b, {20, 29}, read));
    pass(80s);
    BOOST_REQUIRE(book->renew(b));
    pass(11s);
    turns();
    BOOST_TEST(bool(*book->state_of(a) == client_state::courtesy)); // it may just not have been heard
    pass(2s);
    turns();
    BOOST_TEST(bool(*book->state_of(a) == client_state::expired));
    BOOST_TEST(bool(*book->state_of(c) == client_state::courtesy));
    BOOST_TEST(bool(*book->state_of(b) == client_state::active));
    BOOST_TEST((back_end.told == byte_range{0, 9}));
    BOOST_TEST(back_end.kept.empty());
    BOOST_TEST(table->stats().expired_clients.value() == 1u);
}

// A machine that stood still hears nobody for that time.
BOOST_FIXTURE_TEST_CASE(a_client_that_is_heard_soon_behind_its_lease_keeps_its_locks, local_fixture)
{
    BOOST_REQUIRE(lock(a, {0, 9}, write));
    pass(200s);
    turns();
    BOOST_REQUIRE(book->renew(a));
    pass(5s);
    turns();
    BOOST_TEST(bool(*book->state_of(a) == client_state::active));
    BOOST_TEST(table->stats().locks.value() == 1);
    BOOST_TEST(back_end.keeps == 0);
}

BOOST_FIXTURE_TEST_CASE(a_lock_that_is_granted_behind_its_lease_goes_at_once, local_fixture)
{
    back_end.holds = true;
    outcome first;
    begin(wanted(a, {0, 9}, write), first);
    pass(91s);
    turns();
    BOOST_TEST(bool(*book->state_of(a) == client_state::courtesy));
    back_end.go.set();
    turns();
    BOOST_TEST(first.id.has_value());
    pass(2s);
    turns();
    BOOST_TEST(bool(*book->state_of(a) == client_state::expired));
    BOOST_TEST(back_end.keeps == 1);
    BOOST_TEST(back_end.kept.empty());
    BOOST_TEST(back_end.objects == 0);
}

// Which of them comes last the client alone would know.
BOOST_FIXTURE_TEST_CASE(two_locks_of_an_owner_cross_on_no_byte, local_fixture)
{
    back_end.holds = true;
    outcome first, again, beside, other;
    begin(wanted(a, {0, 9}, write), first);
    begin(wanted(a, {5, 14}, read), again);
    BOOST_TEST(again.is_done);
    BOOST_TEST(is(again.id, errc::busy));
    begin(wanted(a, {10, 14}, read), beside);
    lock_request by_other = wanted(a, {20, 29}, read);
    by_other.owner = owner_named("m");
    begin(by_other, other);
    BOOST_TEST(back_end.locks == 3);
    back_end.go.set();
    turns();
    BOOST_TEST(first.id.has_value());
    BOOST_TEST(beside.id.has_value());
    BOOST_TEST(other.id.has_value());
    BOOST_TEST(lock(a, {5, 14}, read).has_value());
}

// lock() of a back end makes nothing weaker.
BOOST_FIXTURE_TEST_CASE(a_write_lock_that_becomes_one_to_read_is_told, local_fixture)
{
    BOOST_REQUIRE(lock(a, {0, 9}, write));
    BOOST_TEST(back_end.settles == 0);
    BOOST_REQUIRE(lock(a, {5, 14}, read));
    BOOST_TEST((back_end.told == byte_range{5, 14}));
    BOOST_TEST((back_end.kept == std::vector<storage::lock_range>{{5, 14, false}}));
    BOOST_TEST(back_end.settles == 1);
}

BOOST_FIXTURE_TEST_CASE(a_pending_lock_of_a_closed_open_stands_against_none, local_fixture)
{
    back_end.holds = true;
    outcome first, second;
    begin(wanted(a, {0, 9}, write), first);
    BOOST_REQUIRE(table->close(a, of_a, file_named("f")));
    begin(wanted(b, {0, 9}, write), second);
    BOOST_TEST(!second.is_done); // it asks the back end, too
    back_end.go.set();
    turns();
    BOOST_TEST(!first.id.has_value());
    BOOST_TEST(second.id.has_value());
    BOOST_TEST((back_end.kept == std::vector<storage::lock_range>{{0, 9, true}}));
}

BOOST_FIXTURE_TEST_CASE(errors_that_last_are_told_as_such, local_fixture)
{
    const std::pair<int, errc> all[] = {{ESTALE, errc::no_file}, {EIO, errc::io}, {EAGAIN, errc::busy}};
    for (const auto& [failed, told_as] : all) {
        back_end.fails_with = failed;
        BOOST_TEST(is(lock(a, {0, 9}, write), told_as));
    }
    // Of one that nobody awaits any more it is not known what becomes of it.
    BOOST_TEST(back_end.keeps == 0);
    back_end.fails_with = ECANCELED;
    BOOST_TEST(is(lock(a, {0, 9}, write), errc::busy));
    BOOST_TEST(back_end.keeps == 1);
    BOOST_TEST(back_end.kept.empty());
}

BOOST_FIXTURE_TEST_CASE(a_file_without_locks_has_no_locks_of_the_back_end, local_fixture)
{
    const auto mine = lock(a, {0, 9}, write);
    BOOST_TEST(back_end.objects == 1);
    back_end_locks unsettled;
    stateid newest = *mine;
    newest.seqid = 0;
    BOOST_REQUIRE(table->unlock(a, newest, file_named("f"), {0, 9}, zero_seqid::newest, &unsettled));
    BOOST_TEST(unsettled != nullptr);
    BOOST_TEST((back_end.told == byte_range{0, byte_range::to_the_end}));
    BOOST_TEST(back_end.kept.empty());
    BOOST_TEST(back_end.objects == 1); // whose end is awaited yet
    unsettled.reset();
    BOOST_TEST(back_end.objects == 0);
    BOOST_REQUIRE(lock(a, {0, 9}, write));
    BOOST_TEST(back_end.objects == 1);
    // What it does not have costs nothing.
    const int before = back_end.keeps;
    newest = *lock(b, {50, 59}, write);
    newest.seqid = 0;
    BOOST_REQUIRE(table->unlock(b, newest, file_named("f"), {0, 49}, zero_seqid::newest, &unsettled));
    BOOST_TEST(unsettled == nullptr);
    BOOST_TEST(back_end.keeps == before);
}

// One range each, from `first` on.
namespace {

void lock_many(local_fixture& f, client_id c, std::uint64_t first, int n)
{
    for (int i = 0; i < n; ++i)
        BOOST_TEST_REQUIRE(f.lock(c, {first + i * 20u, first + i * 20u + 9}, read).has_value());
}

} // namespace

BOOST_AUTO_TEST_CASE(ranges_of_a_file_that_the_back_end_knows_have_a_limit)
{
    local_fixture f([](state_options& o) { o.limits.local_ranges_per_file = 64; });
    const auto refusals = [&](limit_of whose) {
        return f.table->stats().refused_limits.value(limited::locks, whose);
    };
    const client_id c = f.client("c");
    lock_request by_c = f.wanted(f.b, {100'000, 100'009}, read);
    by_c.client = c;
    by_c.id = f.open(c, "open", "f", share::both)->id;
    local_fixture::outcome third;
    lock_many(f, f.a, 0, 32);
    // One client has half of them, and hears that it is at its own limit.
    BOOST_TEST(files_fixture::is(f.lock(f.a, {10'000, 10'009}, read), errc::too_many_locks));
    BOOST_TEST(refusals(limit_of::client) == 1u);
    BOOST_TEST(f.lock(f.a, {30, 39}, read).has_value()); // it is one range with its neighbours
    lock_many(f, f.a, 10'000, 1);
    lock_many(f, f.b, 20'000, 31);
    f.begin(by_c, third);
    BOOST_TEST(third.id.has_value());
    by_c.bytes = {200'000, 200'009};
    f.begin(by_c, third);
    BOOST_TEST(files_fixture::is(third.id, errc::busy));
    BOOST_TEST(refusals(limit_of::file) == 1u);
}

BOOST_AUTO_TEST_CASE(clients_of_one_peer_have_half_of_a_files_ranges)
{
    local_fixture f([](state_options& o) { o.limits.local_ranges_per_file = 64; });
    std::array<client_id, 3> clients{};
    std::array<stateid, 3> opened;
    for (std::size_t i = 0; i < 3; ++i) {
        clients[i] = *f.book->add_client("p" + std::to_string(i), i < 2 ? 77 : 78);
        BOOST_REQUIRE(f.run(f.book->reclaim_complete(clients[i])));
        opened[i] = f.open(clients[i], "open", "f", share::both)->id;
    }
    const auto lock = [&](std::size_t which, std::uint64_t first) {
        lock_request r = f.wanted(f.b, {first, first}, read);
        r.client = clients[which];
        r.id = opened[which];
        local_fixture::outcome out;
        f.begin(r, out);
        return out.id;
    };
    for (std::uint64_t i = 0; i < 32; ++i)
        BOOST_TEST_REQUIRE(lock(i % 2, i * 2).has_value());
    BOOST_TEST(files_fixture::is(lock(0, 1000), errc::busy));
    BOOST_TEST(files_fixture::is(lock(1, 1000), errc::busy));
    BOOST_TEST(lock(2, 1000).has_value());
}

// Whoever has the file full, others unlock; and nobody fills it by unlocks.
BOOST_AUTO_TEST_CASE(an_unlock_is_not_held_up_by_others_ranges)
{
    local_fixture f([](state_options& o) { o.limits.local_ranges_per_file = 64; });
    const auto split = [&](client_id c, const stateid& id, std::uint64_t at) {
        stateid newest = id;
        newest.seqid = 0;
        return f.table->unlock(c, newest, file_named("f"), {at, at});
    };
    const client_id c = f.client("c");
    lock_request by_c = f.wanted(f.b, {100'000, 100'009}, read);
    by_c.client = c;
    by_c.id = f.open(c, "open", "f", share::both)->id;
    local_fixture::outcome few, another;
    f.begin(by_c, few);
    BOOST_REQUIRE(few.id);
    const auto mine = f.lock(f.a, {90'000, 90'999}, read);
    BOOST_REQUIRE(mine);
    lock_many(f, f.a, 0, 30);
    const auto wide = f.lock(f.b, {50'000, 50'999}, read);
    BOOST_REQUIRE(wide);
    lock_many(f, f.b, 20'000, 31);
    by_c.bytes = {200'000, 200'009};
    f.begin(by_c, another);
    BOOST_TEST(files_fixture::is(another.id, errc::busy)); // it is full
    for (std::uint64_t i = 0; i < 16; ++i) {
        BOOST_TEST_REQUIRE(split(f.a, *mine, 90'001 + 2 * i).has_value());
        BOOST_TEST_REQUIRE(split(f.b, *wide, 50'001 + 2 * i).has_value());
    }
    BOOST_TEST(files_fixture::is(split(f.b, *wide, 50'501), errc::too_many_locks));
    BOOST_TEST(files_fixture::is(split(f.a, *mine, 90'501), errc::busy));
    // Who has few can always.
    for (const std::uint64_t at : {100'003, 100'005, 100'007})
        BOOST_TEST(split(c, *few.id, at).has_value());
}

BOOST_AUTO_TEST_CASE(the_back_end_hears_whose_peer_asks)
{
    local_fixture f;
    const client_id c = *f.book->add_client("c", 77);
    BOOST_REQUIRE(f.run(f.book->reclaim_complete(c)));
    lock_request r = files_fixture::lock_of(c, f.open(c, "open", "f", share::both)->id, "f");
    local_fixture::outcome out;
    f.begin(r, out);
    BOOST_TEST(out.id.has_value());
    BOOST_TEST(f.back_end.peer == 77u);
}

// Grace may be over by the time that the back end has answered. Nobody else got the bytes meanwhile.
BOOST_AUTO_TEST_CASE(a_reclaim_is_judged_once)
{
    local_fixture f;
    f.tasks.request_stop();
    f.turns();
    f.start();
    const auto a = *f.book->add_client("a");
    open_request r = f.request(a, "open", "f", share::both);
    r.claim = open_claim::reclaim;
    const auto opened = f.table->open(r);
    BOOST_REQUIRE(opened);
    lock_request l = files_fixture::lock_of(a, opened->id, "f");
    l.reclaim = true;
    f.back_end.holds = true;
    local_fixture::outcome out;
    scope tasks(*f.shard);
    tasks.spawn(&local_fixture::lock_into, &f, l, std::ref(out));
    f.turns();
    BOOST_TEST(!out.is_done);
    BOOST_REQUIRE(f.run(f.book->reclaim_complete(a)));
    f.back_end.go.set();
    f.turns();
    BOOST_TEST(out.id.has_value());
    BOOST_TEST(f.table->stats().late_reclaims.value() == 0u);
}

// Who has waited longest is asked for first, also where others came later; and one answer does for all who want what
// it is of.
BOOST_FIXTURE_TEST_CASE(waiters_for_a_local_process_are_told_in_their_order, local_fixture)
{
    back_end.holder = storage::local_holder{{0, 9, true}, 0};
    BOOST_TEST(is(lock(a, {0, 9}, write, true), errc::denied));
    pass_turning(3s);
    const int before = back_end.tests;
    pass_turning(1s);
    BOOST_TEST(back_end.tests == before + 1);
    BOOST_TEST(is(lock(b, {5, 14}, write, true), errc::denied));
    pass_turning(60ms);
    BOOST_TEST(back_end.tests == before + 2); // for both of them, soon since one is new
    back_end.holder.reset();
    pass_turning(120ms);
    BOOST_TEST_REQUIRE(told() == 1u);
    BOOST_TEST(handler.available[0].first == a);
    BOOST_TEST(lock(a, {0, 9}, write).has_value());
    pass_turning(5s);
    BOOST_TEST(told() == 1u); // the other one waits for a client by now
}

BOOST_FIXTURE_TEST_CASE(a_waiter_for_other_bytes_is_told_before, local_fixture)
{
    back_end.holder = storage::local_holder{{0, 29, true}, 0};
    BOOST_TEST(is(lock(a, {0, 9}, write, true), errc::denied));
    BOOST_TEST(is(lock(b, {20, 29}, write, true), errc::denied));
    pass_turning(60ms);
    BOOST_TEST(back_end.tests == 1);
    back_end.holder = storage::local_holder{{0, 9, true}, 0};
    pass_turning(120ms);
    BOOST_TEST_REQUIRE(told() == 1u);
    BOOST_TEST(handler.available[0].first == b);
    // What can't be asked is not free.
    back_end.holder.reset();
    back_end.fails_with = EMFILE;
    pass_turning(5s);
    BOOST_TEST(told() == 1u);
    back_end.fails_with = 0;
    pass_turning(2s);
    BOOST_TEST(told() == 2u);
}

// A wait that begins while the back end is asked for a later one.
BOOST_FIXTURE_TEST_CASE(a_waiter_that_becomes_local_during_a_look_is_looked_at, local_fixture)
{
    const auto theirs = lock(b, {0, 9}, write);
    BOOST_REQUIRE(theirs);
    BOOST_TEST(is(lock(a, {0, 9}, write, true), errc::denied)); // for the client
    back_end.holder = storage::local_holder{{20, 29, true}, 0};
    lock_request later = wanted(a, {20, 29}, write, true);
    later.owner = owner_named("m");
    outcome out, first;
    begin(later, out);
    BOOST_TEST(is(out.id, errc::denied));
    unlock(b, *theirs, {0, 9});
    BOOST_TEST(told() == 1u);
    back_end.holds = true;
    begin(wanted(a, {0, 9}, write, true), first);
    pass_turning(60ms);
    BOOST_TEST(back_end.tests == 1); // of the later one
    back_end.holder = storage::local_holder{{0, 9, true}, 0};
    back_end.holds = false;
    back_end.go.set();
    turns();
    BOOST_TEST(is(first.id, errc::denied));
    BOOST_TEST(told() == 2u); // the later one
    back_end.holder.reset();
    pass_turning(1s);
    BOOST_TEST(told() == 3u);
    BOOST_TEST(lock(a, {0, 9}, write).has_value());
}

// RFC 8881 9.6, as for locks that clients stand against.
BOOST_FIXTURE_TEST_CASE(a_lock_that_does_not_wait_ends_the_wait_for_a_local_process, local_fixture)
{
    back_end.holder = storage::local_holder{{0, 29, true}, 0};
    BOOST_TEST(is(lock(a, {0, 9}, write, true), errc::denied));
    BOOST_TEST(is(lock(a, {20, 29}, write), errc::denied)); // other bytes
    BOOST_TEST(table->stats().lock_waiters.value() == 1);
    BOOST_TEST(is(lock(a, {0, 9}, write), errc::denied));
    BOOST_TEST(table->stats().lock_waiters.value() == 0);
    pass_turning(100ms);
    const int before = back_end.tests;
    back_end.holder.reset();
    pass_turning(2s);
    BOOST_TEST(back_end.tests == before);
    BOOST_TEST(told() == 0u);
    // What was kept for it others hear of.
    back_end.holder = storage::local_holder{{0, 9, true}, 0};
    BOOST_TEST(is(lock(a, {0, 9}, write, true), errc::denied));
    back_end.holder.reset();
    pass_turning(1s);
    BOOST_TEST(told() == 1u);
    BOOST_TEST(is(lock(b, {5, 14}, write, true), errc::denied));
    BOOST_TEST(holder.client == a);
    back_end.holder = storage::local_holder{{0, 0, true}, 0};
    BOOST_TEST(is(lock(a, {0, 9}, write), errc::denied));
    BOOST_TEST_REQUIRE(told() == 2u);
    BOOST_TEST(handler.available[1].first == b);
}

// Whoever unlocks, closes or goes is not held up, and the process lives. Local processes wait until there is memory.
BOOST_FIXTURE_TEST_CASE(what_there_is_no_memory_to_let_go_of_is_let_go_of_later, local_fixture)
{
    const auto mine = lock(a, {0, 9}, write);
    BOOST_REQUIRE(mine);
    back_end.keeps_without_memory = 2; // it is tried twice at once
    unlock(a, *mine, {0, 4});
    BOOST_TEST(back_end.holding[0]);
    BOOST_TEST(lock(b, {0, 4}, read).has_value()); // among clients it is free
    const auto theirs = lock(b, {20, 29}, write);
    BOOST_REQUIRE(theirs);
    back_end.keeps_without_memory = 2;
    BOOST_REQUIRE(table->close(b, of_b, file_named("f")));
    pass_turning(500ms);
    BOOST_TEST(back_end.holding[20]);
    pass_turning(1s);
    BOOST_TEST(!back_end.holding[20]);
    BOOST_TEST(!back_end.holding[0]);
    BOOST_TEST(back_end.holding[9]);
    // An open with all that it has locked, and nothing else is locked of the file.
    back_end.keeps_without_memory = 1;
    BOOST_REQUIRE(table->close(a, of_a, file_named("f")));
    turns();
    BOOST_TEST(back_end.objects == 0);
    BOOST_TEST(table->stats().files.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(a_stop_does_not_wait_for_a_back_end_that_hangs, local_fixture)
{
    back_end.holder = storage::local_holder{{0, 9, true}, 0};
    BOOST_TEST(is(lock(a, {0, 9}, write, true), errc::denied));
    back_end.holds = true;
    pass_turning(60ms);
    BOOST_TEST(back_end.tests == 1);
    tasks.request_stop();
    turns();
    BOOST_TEST(tasks.live() == 0u);
}

// --- While the file system is let go

namespace {

struct suspended_fixture : local_fixture {
    void let_go()
    {
        const std::atomic<bool> goes_on{true};
        bool is_done = false;
        const auto all = [&]() -> task<void> {
            co_await table->let_go_of_local_locks(0, goes_on);
            is_done = true;
        };
        tasks.spawn(all);
        turns();
        BOOST_REQUIRE(is_done);
    }
    storage::restored_state lock_again(std::uint32_t space = 0)
    {
        storage::restored_state to;
        const auto all = [&]() -> task<void> { co_await table->lock_locally_again(space, to); };
        tasks.spawn(all);
        turns();
        return to;
    }
    storage::restored_state look_for_files(int failure, bool is_given_up = false)
    {
        std::atomic<bool> looks_on = true; // given up while the back end is asked
        storage::restored_state to;
        const auto one = [&](const storage::handle&) -> task<result<void>> {
            looks_on = !is_given_up;
            if (failure != 0)
                co_return error::from_errno(failure, "by hand");
            co_return result<void>();
        };
        const std::function<task<result<void>>(const storage::handle&)> look = one;
        const auto all = [&]() -> task<void> { co_await table->drop_lost_files(0, look, to, looks_on); };
        tasks.spawn(all);
        turns();
        return to;
    }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(locks_are_let_go_and_taken_again, suspended_fixture)
{
    const auto mine = lock(a, {0, 9}, write);
    const auto theirs = lock(b, {20, 29}, write);
    BOOST_REQUIRE((mine && theirs));
    let_go();
    BOOST_TEST((back_end.told == byte_range{0, byte_range::to_the_end}));
    BOOST_TEST(back_end.kept.empty());
    BOOST_TEST(back_end.settles >= 1);
    BOOST_TEST(!back_end.holding[0]);
    // Among clients they are held as before, and what is unlocked meanwhile nobody is told.
    BOOST_TEST(is(lock(b, {0, 0}, read), errc::denied));
    const int keeps = back_end.keeps;
    unlock(b, *theirs, {20, 24});
    BOOST_TEST(back_end.keeps == keeps);
    BOOST_TEST(lock_again(1).locks == 0u); // another tree's
    const storage::restored_state got = lock_again();
    BOOST_TEST(got.locks == 2u);
    BOOST_TEST(got.lost_locks == 0u);
    BOOST_TEST((back_end.holding[0] && back_end.holding[9] && back_end.holding[25] && !back_end.holding[24]));
    unlock(a, *mine, {0, 4});
    BOOST_TEST((!back_end.holding[4] && back_end.holding[5]));
    BOOST_TEST(lock_again().locks == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_lock_that_a_local_process_has_by_now_is_lost, suspended_fixture)
{
    const auto mine = lock(a, {0, 9}, write);
    const auto theirs = lock(b, {20, 29}, write);
    BOOST_REQUIRE((mine && theirs));
    BOOST_TEST(is(lock(b, {0, 9}, write, true), errc::denied)); // who waits for it
    let_go();
    back_end.holder = storage::local_holder{{5, 5, true}, 77};
    const storage::restored_state got = lock_again();
    BOOST_TEST(got.locks == 1u);
    BOOST_TEST(got.lost_locks == 1u);
    BOOST_TEST_REQUIRE(got.lost.size() == 1u);
    BOOST_TEST(got.lost.front().find("bytes 0 to 9: a process of this host has locked them (77)") !=
               std::string::npos);
    stateid gone = *mine;
    gone.seqid = 0;
    BOOST_TEST(is(table->unlock(a, gone, file_named("f"), {0, 9}), errc::admin_revoked));
    BOOST_TEST(is(table->test_stateid(a, *mine), errc::admin_revoked));
    BOOST_TEST(table->test_stateid(b, *theirs).has_value());
    BOOST_TEST(book->has_lost_by_admin(a)); // it is told to look
    BOOST_TEST(!book->has_lost_by_admin(b));
    BOOST_TEST((back_end.holding[20] && !back_end.holding[0]));
    back_end.holder.reset();
    BOOST_TEST(lock(b, {0, 9}, write).has_value());
}

BOOST_FIXTURE_TEST_CASE(what_can_not_be_asked_yet_is_asked_later, suspended_fixture)
{
    BOOST_REQUIRE(lock(a, {0, 9}, write));
    let_go();
    back_end.fails_with = ENOMEDIUM;
    BOOST_TEST(is(lock(b, {50, 59}, write), errc::busy));
    BOOST_TEST(lock_again().later == 1u);
    back_end.fails_with = 0;
    const storage::restored_state got = lock_again();
    BOOST_TEST(got.locks == 1u);
    BOOST_TEST(got.later == 0u);
    BOOST_TEST(back_end.holding[0]);
}

BOOST_FIXTURE_TEST_CASE(the_end_of_all_locks_meanwhile_leaves_nothing, suspended_fixture)
{
    BOOST_REQUIRE(lock(a, {0, 9}, write));
    let_go();
    const int locks = back_end.locks;
    BOOST_REQUIRE(table->close(a, of_a, file_named("f")));
    turns();
    BOOST_TEST(lock_again().locks == 0u);
    BOOST_TEST(back_end.locks == locks);
    BOOST_TEST(back_end.objects == 0);
    BOOST_TEST(lock(b, {0, 9}, write).has_value()); // and the next one begins anew
    BOOST_TEST(back_end.holding[0]);
}

BOOST_FIXTURE_TEST_CASE(files_that_are_gone_are_taken_from_their_clients, suspended_fixture)
{
    const auto mine = lock(a, {0, 9}, write);
    BOOST_REQUIRE(mine);
    BOOST_TEST(look_for_files(0).files == 1u);
    BOOST_TEST(look_for_files(EIO).lost_files == 0u); // which says nothing
    BOOST_TEST(look_for_files(ESTALE, true).lost_files == 0u);
    BOOST_TEST(table->test_stateid(a, of_a).has_value());
    const storage::restored_state got = look_for_files(ESTALE);
    BOOST_TEST(got.lost_files == 1u);
    BOOST_TEST(got.files == 0u);
    BOOST_TEST_REQUIRE(got.lost.size() == 1u);
    BOOST_TEST(is(table->test_stateid(a, of_a), errc::admin_revoked));
    BOOST_TEST(is(table->test_stateid(b, of_b), errc::admin_revoked));
    BOOST_TEST(is(table->test_stateid(a, *mine), errc::admin_revoked)); // the lock's own
    for (const stateid& gone : {*mine, of_a}) {
        BOOST_TEST(book->has_lost_by_admin(a));
        BOOST_TEST(run(table->free_stateid(a, gone)).has_value());
    }
    BOOST_TEST(!book->has_lost_by_admin(a));
    BOOST_TEST(table->stats().opens.value() == 0);
    BOOST_TEST(table->stats().locks.value() == 0);
    BOOST_TEST(table->stats().files.value() == 0);
}

// A host asks again, and hears how it is. A client with a lease waits by its open, which is gone.
BOOST_FIXTURE_TEST_CASE(who_waits_for_a_lock_of_a_file_that_is_gone_is_told, suspended_fixture)
{
    BOOST_REQUIRE(lock(a, {0, 9}, write));
    const auto host = book->add_host("h", 0);
    BOOST_REQUIRE((host && run(book->record(*host))));
    owner_lock waits;
    waits.client = *host;
    waits.file = file_named("f");
    waits.owner = owner_named("x");
    waits.bytes = {0, 9};
    waits.type = write;
    waits.wait = true;
    lock_holder holder;
    BOOST_TEST(is(table->lock_by_owner(waits, &holder), errc::denied));
    BOOST_TEST(told() == 0u);
    BOOST_TEST(look_for_files(ESTALE).lost_files == 1u);
    BOOST_TEST(told() == 1u);
}

// Others of the shard have their turn between the parts.
BOOST_FIXTURE_TEST_CASE(a_file_that_is_gone_is_taken_from_many_in_parts, suspended_fixture)
{
    constexpr int opens = 500;
    for (int i = 0; i < opens; ++i)
        BOOST_REQUIRE(open(i % 2 == 0 ? a : b, "o" + std::to_string(i), "f", share::read));
    const std::function<task<result<void>>(const storage::handle&)> look =
        [](const storage::handle&) -> task<result<void>> { co_return error::from_errno(ESTALE, "by hand"); };
    storage::restored_state to;
    const std::atomic<bool> goes_on{true};
    tasks.spawn([&]() -> task<void> { co_await table->drop_lost_files(0, look, to, goes_on); });
    std::int64_t left = table->stats().opens.value(), parts = 0;
    BOOST_TEST(left == opens + 2);
    for (int i = 0; i < 50; ++i) {
        shard->turn();
        const std::int64_t now = table->stats().opens.value();
        BOOST_TEST(left - now <= 128);
        parts += now != left ? 1 : 0;
        left = now;
    }
    BOOST_TEST(left == 0);
    BOOST_TEST(parts >= 4);
    BOOST_TEST(to.lost_files == 1u);
    BOOST_TEST_REQUIRE(to.lost.size() == 1u);
    BOOST_TEST(to.lost[0].find("open 502 times, first by client") != std::string::npos, to.lost[0]);
}

BOOST_FIXTURE_TEST_CASE(limits_of_files_that_may_be_set_are_set_and_no_others, local_fixture)
{
    files::limits most;
    most.opens = 7;
    most.waiters_per_file = 3;
    const std::size_t before = book->options().limits.waiters_per_file;
    book->set_limits(most);
    BOOST_TEST(book->options().limits.opens == 7u);
    BOOST_TEST(book->options().limits.waiters_per_file == before);
}

BOOST_AUTO_TEST_SUITE_END()
