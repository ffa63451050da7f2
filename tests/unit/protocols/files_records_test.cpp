// SPDX-License-Identifier: Apache-2.0
// What a client's record says that it keeps others from, and who waits for it after a restart.
#include "files_fixture.hpp"

BOOST_AUTO_TEST_SUITE(files_records_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;

namespace {

using enum share;

struct records_fixture : files_fixture {
    open_request reclaim(client_id c, std::string_view file, share access, share deny = none,
                         delegation_want want = delegation_want::none)
    {
        open_request r = request(c, "o", file, access, deny, want);
        r.claim = open_claim::reclaim;
        return r;
    }
    client_id a = 0, b = 0;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(what_keeps_others_out_is_written_down_first, records_fixture)
{
    a = client("a", none);
    BOOST_TEST(store->written.size() == 1u);
    // A client that only opens and locks costs nothing more.
    const auto plain = open(a, "o", "f", both);
    BOOST_REQUIRE(plain);
    BOOST_TEST(table->lock(lock_of(a, plain->id, "f")).has_value());
    BOOST_TEST((lists.new_list.at("a") == none));
    BOOST_TEST(!book->lacks_record(a));
    // Without it a deny bit is refused, and an open brings no delegation.
    BOOST_TEST(book->lacks_record(a, write));
    BOOST_TEST(is(open(a, "o", "g", read, write), errc::busy));
    const auto without = open(a, "o", "h", read, none, delegation_want::any);
    BOOST_REQUIRE(without);
    BOOST_TEST(!without->delegation);
    BOOST_TEST((without->why == no_delegation::resource));
    // Under a lease local processes write, too: nothing is kept out on record.
    open_request leased = request(a, "o", "leased", read, none, delegation_want::any);
    leased.leased = true;
    BOOST_TEST((table->may_keep_out(leased) == none));
    // A store that fails grants nothing.
    store->fails = [] { return true; };
    BOOST_TEST(!run(book->record(a, write)).has_value());
    BOOST_TEST(is(open(a, "o", "g", read, write), errc::busy));
    store->fails = nullptr;
    BOOST_TEST(store->written.size() == 1u);
    // On the disk, then granted.
    BOOST_REQUIRE(run(book->record(a, write)));
    BOOST_TEST((lists.new_list.at("a") == write));
    BOOST_TEST(open(a, "o", "g", read, write).has_value());
    BOOST_TEST(is(open(a, "o", "g2", read, read), errc::busy));
    BOOST_TEST(open(a, "o", "h2", read, none, delegation_want::any)->delegation.has_value());
    BOOST_TEST(!open(a, "o", "h3", both, none, delegation_want::any)
                    ->delegation); // its writer keeps readers out as well
    BOOST_REQUIRE(run(book->record(a, both)));
    BOOST_TEST(
        (open(a, "o", "h4", both, none, delegation_want::any)->delegation->type == delegation_type::write));
    BOOST_TEST(store->written.size() == 3u);
    BOOST_REQUIRE(run(book->record(a, both))); // once
    BOOST_TEST(store->written.size() == 3u);
}

BOOST_FIXTURE_TEST_CASE(an_open_says_whom_it_may_keep_out, records_fixture)
{
    a = client("a");
    using want = delegation_want;
    struct {
        share access, deny;
        want wanted;
        bool leased;
        share may;
    } const rows[] = {
        {read, none, want::none, false, none}, {both, write, want::none, false, write},
        {read, none, want::any, false, write}, {read, read, want::any, false, both},
        {both, none, want::any, false, both},  {both, none, want::read, false, none},
        {write, none, want::any, false, none}, {read, none, want::any, true, none},
        {both, none, want::any, true, none},   {read, write, want::any, true, write},
    };
    for (const auto& row : rows) {
        open_request r = request(a, "o", "f", row.access, row.deny, row.wanted);
        r.leased = row.leased;
        BOOST_TEST((table->may_keep_out(r) == row.may), &row - rows);
        BOOST_TEST((state_table::surely_keeps_out(r) == row.deny));
    }
    BOOST_REQUIRE(book->set_callable(a, false)); // it gets none
    BOOST_TEST((table->may_keep_out(request(a, "o", "f", both, none, want::any)) == none));
}

BOOST_FIXTURE_TEST_CASE(io_waits_in_grace_for_those_alone_that_may_have_kept_it_out, records_fixture)
{
    using enum operation;
    const auto passes = [&](operation op) {
        const auto begun = check(op, "f");
        BOOST_TEST((begun || begun.error() == errc::grace));
        return begun.has_value();
    };
    a = client("a", none);
    b = client("b", share::write);
    start();
    BOOST_TEST((book->grace() == grace_period::phase::reclaiming));
    BOOST_TEST(table->stats().to_reclaim.value() == 2);
    BOOST_TEST(table->stats().reads_wait_for.value() == 0);
    BOOST_TEST(table->stats().writes_wait_for.value() == 1);
    BOOST_TEST(passes(operation::read));
    BOOST_TEST(!passes(operation::write));
    BOOST_TEST(!passes(set_size));
    BOOST_TEST(!passes(remove));
    // The client that denied is done: the other one is dead, and in nobody's way but of names.
    b = *book->add_client("b");
    const auto denies = table->open(reclaim(b, "f", share::read, share::write));
    BOOST_REQUIRE(denies);
    BOOST_REQUIRE(run(book->reclaim_complete(b)));
    BOOST_TEST((book->grace() == grace_period::phase::reclaiming));
    BOOST_TEST(table->stats().writes_wait_for.value() == 0);
    BOOST_TEST(passes(operation::read));
    {
        BOOST_TEST(is(check(operation::write, "f"), errc::locked)); // it has it again
        BOOST_TEST(check(operation::write, "g").has_value());
    }
    BOOST_TEST(!passes(remove));
    BOOST_TEST(!passes(rename));
    BOOST_TEST((lists.new_list.at("b") == share::write)); // as of what it took back
    // Another start within grace: what was said before holds.
    start();
    BOOST_TEST(table->stats().reads_wait_for.value() == 0);
    BOOST_TEST(table->stats().writes_wait_for.value() == 1);
}

BOOST_FIXTURE_TEST_CASE(nobody_reclaims_more_than_the_record_says, records_fixture)
{
    a = client("a", none);
    b = client("b", share::write);
    start();
    a = *book->add_client("a");
    b = *book->add_client("b");
    BOOST_TEST(is(table->open(reclaim(a, "f", both, read)), errc::reclaim_bad));
    open_request writer = reclaim(b, "g", both);
    writer.want = delegation_want::write;
    BOOST_TEST(is(table->open(writer), errc::reclaim_bad));
    BOOST_TEST(table->stats().bad_reclaims.value() == 2u);
    BOOST_TEST(table->open(reclaim(b, "g", both, write)).has_value());
    // Under the rule of the start before a read delegation may have been one under a lease. Others may have written since.
    open_request reader = reclaim(a, "h", read);
    reader.want = delegation_want::read;
    const auto had = table->open(reader);
    BOOST_REQUIRE((had && had->delegation));
    BOOST_TEST(had->delegation->recalled);
}

// The record that is being written says less than what was taken back meanwhile.
BOOST_FIXTURE_TEST_CASE(what_is_reclaimed_while_the_record_is_written_stands_in_it, records_fixture)
{
    a = client("a");
    start();
    a = *book->add_client("a");
    store->takes = [] { return 1s; };
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([this]() -> task<void> {
            const auto done = co_await book->reclaim_complete(a);
            BOOST_TEST(done.has_value());
        });
        (void)co_await sleep_for(500ms);
        BOOST_TEST(table->open(reclaim(a, "f", read, write)).has_value());
        co_await s.join();
    };
    run(body());
    BOOST_TEST((lists.new_list.at("a") == write));
}

// --- Hosts, which have no lease

namespace {

struct host_records : records_fixture {
    result<void> lock(client_id c, byte_range bytes = {0, 9}, bool reclaim = false)
    {
        owner_lock r;
        r.client = c;
        r.file = file_named("f");
        r.owner = owner_named("x");
        r.bytes = bytes;
        r.type = lock_type::write;
        r.reclaim = reclaim;
        return table->lock_by_owner(r);
    }
    /// tend() ends it.
    void grace_passes()
    {
        const auto body = [this]() -> task<void> {
            scope s(*shard);
            s.spawn([this] { return book->tend(); });
            s.spawn([this] { return table->tend(); });
            (void)co_await sleep_for(91s);
            s.request_stop();
            co_await s.join();
        };
        run(body());
    }
    const std::string name = "nlm h 192.0.2.1";
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_host_is_written_down_before_its_first_lock, host_records)
{
    a = *book->add_host(name);
    BOOST_TEST(book->lacks_record(a));
    BOOST_TEST(is(lock(a), errc::busy));
    store->fails = [] { return true; };
    BOOST_TEST(!run(book->record(a)).has_value());
    BOOST_TEST(is(lock(a), errc::busy));
    BOOST_TEST(!table->commons().has_state(file_named("f")));
    store->fails = nullptr;
    BOOST_REQUIRE(run(book->record(a)));
    BOOST_TEST(lock(a).has_value());
    BOOST_TEST((lists.new_list.at(name) == none)); // byte locks keep nobody's I/O out
    BOOST_TEST(is(run(book->reclaim_complete(a)), errc::invalid));
    // One that nobody monitors can't be told of a restart, and is in no record.
    b = *book->add_host("unmonitored", 0, false);
    BOOST_TEST(!book->lacks_record(b));
    BOOST_REQUIRE(run(book->record(b)));
    BOOST_TEST(lock(b, {10, 19}).has_value());
    BOOST_TEST(is(run(book->reclaim_complete(b)), errc::invalid));
    BOOST_TEST((store->written == std::vector<std::string>{"add " + name}));
    // Until it is.
    BOOST_REQUIRE(book->set_silent(b));
    BOOST_TEST(is(lock(b, {20, 29}), errc::busy));
    BOOST_REQUIRE(run(book->record(b)));
    BOOST_TEST(lock(b, {20, 29}).has_value());
    BOOST_TEST((lists.new_list.contains("unmonitored")));
}

BOOST_FIXTURE_TEST_CASE(a_host_takes_back_its_locks_until_grace_is_over, host_records)
{
    a = *book->add_host(name);
    BOOST_REQUIRE(run(book->record(a)));
    BOOST_REQUIRE(lock(a));
    b = client("b");
    start();
    BOOST_TEST((book->grace() == grace_period::phase::reclaiming));
    BOOST_TEST(table->stats().writes_wait_for.value() == 1); // for "b"; for hosts nobody's I/O waits
    a = *book->add_host(name);
    const client_id stranger = *book->add_host("stranger");
    BOOST_TEST(is(lock(a, {0, 9}, true), errc::busy)); // the new list does not have it yet
    BOOST_REQUIRE(run(book->record(a)));
    BOOST_REQUIRE(run(book->record(stranger)));
    BOOST_TEST(lock(a, {0, 9}, true).has_value());
    BOOST_TEST(table->stats().reclaims.value() == 1u);
    BOOST_TEST(is(lock(stranger, {20, 29}, true), errc::reclaim_bad));
    BOOST_TEST(is(lock(a, {20, 29}), errc::grace));
    BOOST_TEST(is(lock(stranger, {20, 29}), errc::grace));
    // It never says that it is done, so others wait for the whole time.
    b = *book->add_client("b");
    BOOST_REQUIRE(run(book->reclaim_complete(b)));
    BOOST_TEST((book->grace() == grace_period::phase::reclaiming));
    BOOST_TEST(table->stats().writes_wait_for.value() == 0);
    grace_passes();
    BOOST_TEST((book->grace() == grace_period::phase::over));
    BOOST_TEST(is(lock(a, {30, 39}, true), errc::no_grace));
    BOOST_TEST(lock(a, {30, 39}).has_value());
    BOOST_TEST((lists.new_list.contains(name)));
}

BOOST_FIXTURE_TEST_CASE(a_host_takes_nothing_back_from_a_delegation, host_records)
{
    a = *book->add_host(name);
    BOOST_REQUIRE(run(book->record(a)));
    b = client("b");
    start();
    b = *book->add_client("b");
    BOOST_REQUIRE(book->set_callable(b, true));
    const auto delegated = table->open(reclaim(b, "f", both, none, delegation_want::write));
    BOOST_REQUIRE((delegated && delegated->delegation));
    a = *book->add_host(name);
    BOOST_REQUIRE(run(book->record(a)));
    BOOST_TEST(is(lock(a, {0, 9}, true), errc::reclaim_conflict));
    BOOST_TEST(table->stats().conflicting_reclaims.value() == 1u);
}

BOOST_FIXTURE_TEST_CASE(who_is_not_monitored_takes_nothing_back, host_records)
{
    a = *book->add_host(name);
    BOOST_REQUIRE(run(book->record(a)));
    start();
    a = *book->add_host(name, 0, false); // as a program that does not survive a restart
    BOOST_TEST(is(lock(a, {0, 9}, true), errc::reclaim_bad));
    BOOST_TEST(is(lock(a), errc::grace));
    grace_passes();
    BOOST_TEST(lock(a).has_value());
    BOOST_TEST((!lists.new_list.contains(name)));
}

// SM_NOTIFY: first the record, as after a restart of ours the host would take back what others have by then.
BOOST_FIXTURE_TEST_CASE(a_host_that_has_restarted_loses_its_record_first, host_records)
{
    a = *book->add_host(name);
    BOOST_REQUIRE(run(book->record(a)));
    BOOST_REQUIRE(lock(a));
    b = *book->add_host("b");
    BOOST_REQUIRE(run(book->record(b)));
    store->fails = [] { return true; };
    BOOST_TEST(!run(book->forget(a)).has_value());
    BOOST_TEST(is(lock(b), errc::denied));
    store->fails = [&] {
        BOOST_TEST(is(lock(b), errc::denied));
        return false;
    };
    BOOST_REQUIRE(run(book->forget(a)));
    store->fails = nullptr;
    BOOST_TEST((!lists.new_list.contains(name)));
    BOOST_TEST(lock(b).has_value());
    // After our own start: what it had before both is of no use to it.
    start();
    BOOST_TEST((book->grace() == grace_period::phase::reclaiming));
    b = *book->add_host("b");
    BOOST_REQUIRE(run(book->forget(b)));
    grace_passes();
    BOOST_TEST((book->grace() == grace_period::phase::over));
    b = *book->add_host("b");
    BOOST_REQUIRE(run(book->record(b)));
    BOOST_TEST(is(lock(b, {0, 9}, true), errc::no_grace));
}

BOOST_AUTO_TEST_SUITE_END()
