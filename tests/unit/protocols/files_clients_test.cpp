// SPDX-License-Identifier: Apache-2.0
// Clients, leases, and what survives a restart.
#include "../lines_of_log.hpp"
#include "../log_at.hpp"
#include "files_fixture.hpp"

BOOST_AUTO_TEST_SUITE(files_clients_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;

namespace {

using enum share;

struct clients_fixture : files_fixture {
    open_request reclaim(client_id c, std::string_view file, share access, share deny = none,
                         delegation_want want = delegation_want::none)
    {
        open_request r = request(c, "o", file, access, deny, want);
        r.claim = open_claim::reclaim;
        return r;
    }
    /// A server that was started again, when "a" and "b" had state.
    void restarted()
    {
        (void)client("a");
        (void)client("b");
        start();
        BOOST_REQUIRE((book->grace() == grace_period::phase::reclaiming));
        a = *book->add_client("a");
        b = *book->add_client("b");
        BOOST_REQUIRE(book->set_callable(a, true));
    }
    client_id a = 0, b = 0;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(it_is_told_who_did_not_come_back_after_a_restart, clients_fixture)
{
    using names = std::vector<std::string>;
    for (const char* key : {"a", "b", "c", "ended", "4.0 0123456789abcdef d"})
        (void)client(key);
    start();
    a = *book->add_client("a");
    b = *book->add_client("b");
    (void)*book->add_client("new");
    BOOST_REQUIRE(run(book->revoke_client(*book->add_client("ended"))));
    BOOST_REQUIRE(run(book->reclaim_complete(a)));
    const auto as_it_is = [&] {
        const grace_period::report told = book->how_grace_goes(10);
        const auto& stats = book->stats();
        return told.clients.recorded == 5 && told.clients.done == 1 && told.keys_back == names{"b"} &&
               told.keys_absent == names{"4.0 0123456789abcdef d", "c"} &&
               stats.grace_recorded.value() == 5 && stats.grace_done.value() == 1 &&
               stats.grace_absent.value() == 2;
    };
    BOOST_TEST(as_it_is());
    BOOST_TEST((book->how_grace_goes(10).left == table->options().grace_time));
    const log_at all(log_level::info);
    const lines_of_log lines;
    run([&]() -> task<void> {
        scope s(*shard);
        s.spawn([this] { return book->tend(); });
        (void)co_await sleep_for(table->options().grace_time + 1s);
        s.request_stop();
        co_await s.join();
    }());
    BOOST_TEST((book->grace() == grace_period::phase::over));
    BOOST_TEST(as_it_is());
    BOOST_TEST(lines.count({"grace is over: files are opened", " clients=5 ", " done=1 ", " gone=1 ",
                            " back=1 ", " absent=2 ", "not_back=\"d, c\""}) == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_lease_ends_and_is_renewed, clients_fixture)
{
    a = client("a");
    const auto o = open(a, "o", "f", read);
    pass(90s - 1ns);
    BOOST_TEST((*book->state_of(a) == client_state::active));
    pass(1ns);
    BOOST_TEST((*book->state_of(a) == client_state::courtesy));
    BOOST_TEST(table->stats().courtesy_clients.value() == 1);
    BOOST_TEST(table->test_stateid(a, o->id).has_value()); // it has all still
    BOOST_REQUIRE(book->renew(a));
    BOOST_TEST((*book->state_of(a) == client_state::active));
    BOOST_TEST(table->stats().courtesy_clients.value() == 0);
    BOOST_TEST(table->stats().returned_clients.value() == 1u);
    pass(60s);
    BOOST_REQUIRE(book->renew(a));
    pass(60s);
    BOOST_TEST((*book->state_of(a) == client_state::active));
    BOOST_TEST(is(book->renew(a + 1), errc::stale_client));
}

BOOST_FIXTURE_TEST_CASE(a_compound_under_way_keeps_the_lease, clients_fixture)
{
    a = client("a");
    handler.heard[a] = time_point::max();
    pass(1000s);
    BOOST_TEST((*book->state_of(a) == client_state::active));
    // It has a whole lease after it, whenever it was looked at meanwhile.
    pass(50s);
    handler.heard[a] = clock.now();
    pass(89s);
    BOOST_TEST((*book->state_of(a) == client_state::active));
    pass(1s);
    BOOST_TEST((*book->state_of(a) == client_state::courtesy));
}

// Leases end in the order of their ends, also of clients that were heard from between.
BOOST_FIXTURE_TEST_CASE(a_lease_that_a_compound_kept_ends_in_its_turn, clients_fixture)
{
    a = client("a");
    pass(10s);
    b = client("b");
    pass(10s);
    const client_id c = client("c");
    handler.heard[a] = clock.now() - 5s;
    pass(75s);
    BOOST_TEST((*book->state_of(a) == client_state::active));
    pass(5s);
    BOOST_TEST((*book->state_of(b) == client_state::courtesy));
    BOOST_TEST((*book->state_of(a) == client_state::active));
    pass(5s);
    BOOST_TEST((*book->state_of(a) == client_state::courtesy));
    BOOST_TEST((*book->state_of(c) == client_state::active));
    pass(5s);
    BOOST_TEST((*book->state_of(c) == client_state::courtesy));
}

BOOST_FIXTURE_TEST_CASE(a_courtesy_client_goes_when_it_is_in_the_way, clients_fixture)
{
    a = client("a");
    b = client("b");
    const auto o = open(a, "o", "f", read, write);
    pass(91s);
    BOOST_REQUIRE(book->renew(b));
    BOOST_TEST(open(b, "o", "f", read).has_value()); // no conflict, no harm
    BOOST_TEST((*book->state_of(a) == client_state::courtesy));
    const open_request r = request(b, "o", "f", write);
    BOOST_TEST(is(table->open(r), errc::in_way));
    BOOST_REQUIRE(make_way(demand(r), 0s));
    BOOST_TEST(store->written.back() == "remove a");
    BOOST_TEST(table->open(r).has_value());
    BOOST_TEST((*book->state_of(a) == client_state::expired));
    BOOST_TEST(is(book->renew(a), errc::expired));
    BOOST_TEST(is(table->close(a, o->id, file_named("f")), errc::expired));
    BOOST_TEST(is(open(a, "o", "g", read), errc::expired));
    BOOST_TEST(table->stats().expired_clients.value() == 1u);
    BOOST_TEST(table->stats().lost_clients.value() == 1);
    BOOST_REQUIRE(handler.losses.size() == 1u);
    BOOST_TEST(handler.losses[0].client == a);
    BOOST_TEST(handler.losses[0].opens == 1u);
    BOOST_TEST(handler.losses[0].locks == 0u);
    BOOST_TEST((handler.losses[0].silent == 91s));
    BOOST_TEST(!*book->is_in_use(a));
    BOOST_REQUIRE(run(book->forget(a)));
    BOOST_REQUIRE(run(book->forget(b))); // its own goodbye
    BOOST_TEST(handler.losses.size() == 1u);
    BOOST_TEST(table->stats().lost_clients.value() == 0);
    BOOST_TEST(is(book->renew(a), errc::stale_client));
}

BOOST_FIXTURE_TEST_CASE(io_and_delegations_drive_courtesy_clients_out_too, clients_fixture)
{
    a = client("a");
    BOOST_REQUIRE(open(a, "o", "f", read, write));
    pass(91s);
    BOOST_TEST(is(check(operation::write, "f"), errc::in_way));
    BOOST_REQUIRE(make_way(demand(operation::write, file_named("f")), 0s));
    BOOST_TEST(check(operation::write, "f").has_value());
    b = client("b");
    BOOST_REQUIRE(open(b, "o", "g", both, none, delegation_want::any)->delegation);
    pass(91s);
    BOOST_REQUIRE(make_way(demand(operation::rename, file_named("g")), 0s));
    BOOST_TEST((*book->state_of(b) == client_state::expired));
    BOOST_TEST(handler.recalls.empty()); // nobody is there to answer
}

BOOST_FIXTURE_TEST_CASE(nobody_takes_a_courtesy_client_for_what_another_denies, clients_fixture)
{
    a = client("a");
    b = client("b");
    BOOST_REQUIRE(open(a, "o", "f", read, write));
    pass(60s);
    BOOST_REQUIRE(book->renew(b));
    BOOST_REQUIRE(open(b, "o", "f", read, write));
    pass(31s);
    const client_id c = client("c");
    const open_request r = request(c, "o", "f", write);
    BOOST_TEST(is(table->open(r), errc::share_denied));
    BOOST_TEST(make_way(demand(r), 0s).has_value());
    BOOST_TEST((*book->state_of(a) == client_state::courtesy));
}

BOOST_FIXTURE_TEST_CASE(a_client_is_not_in_its_own_way, clients_fixture)
{
    a = client("a");
    BOOST_REQUIRE(open(a, "o", "f", read, write));
    pass(91s); // it did not renew, and asks
    const open_request r = request(a, "p", "f", write);
    BOOST_TEST(is(table->open(r), errc::share_denied));
    BOOST_TEST(make_way(demand(r), 0s).has_value());
    BOOST_TEST((*book->state_of(a) == client_state::courtesy));
}

BOOST_FIXTURE_TEST_CASE(nothing_is_taken_before_the_record_is_gone, clients_fixture)
{
    a = client("a");
    b = client("b");
    const auto o = open(a, "o", "f", both);
    pass(91s);
    BOOST_REQUIRE(book->renew(b));
    const open_request r = request(b, "o", "f", read, both);
    store->fails = [] { return true; };
    const auto room = make_way(demand(r), 10s);
    BOOST_TEST((!room && room.error() == std::errc::io_error));
    BOOST_TEST((*book->state_of(a) == client_state::courtesy));
    BOOST_REQUIRE(book->renew(a)); // it may come back
    BOOST_TEST(table->test_stateid(a, o->id).has_value());
    BOOST_TEST(is(table->open(r), errc::share_denied));
}

BOOST_FIXTURE_TEST_CASE(a_client_does_not_come_back_while_its_record_goes, clients_fixture)
{
    a = client("a");
    const auto o = open(a, "o", "f", read, write);
    pass(91s);
    store->takes = [] { return 2s; };
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        // Two that want the same: it is written once.
        const demand w(operation::write, file_named("f"));
        result<void> first_done, second_done;
        s.spawn([&]() -> task<void> { first_done = co_await table->make_way(w, 10s); });
        s.spawn([&]() -> task<void> { second_done = co_await table->make_way(w, 10s); });
        co_await sleep_for(1s);
        BOOST_TEST(is(book->renew(a), errc::busy));
        BOOST_TEST(is(open(a, "o", "g", read), errc::busy));
        BOOST_TEST(table->test_stateid(a, o->id).has_value()); // as yet
        co_await s.join();
        BOOST_TEST((first_done && second_done));
        BOOST_TEST(table->check(w).has_value());
        BOOST_TEST(table->check(w).has_value());
    };
    run(body());
    BOOST_TEST(is(book->renew(a), errc::expired));
    BOOST_TEST(std::count(store->written.begin(), store->written.end(), "remove a") == 1);
}

BOOST_FIXTURE_TEST_CASE(courtesy_ends_by_time_and_where_memory_is_short, files_fixture)
{
    start([](state_options& o) { o.courtesy_time = 1000s; });
    const client_id a = client("a");
    BOOST_REQUIRE(open(a, "o", "f", read));
    pass(1s);
    const client_id b = client("b"), c = client("c");
    BOOST_REQUIRE(open(b, "o", "f", read));
    pass(90s);
    BOOST_REQUIRE(book->renew(c));
    BOOST_TEST(*run(book->drop_courtesy(1)) == 1u);
    BOOST_TEST((*book->state_of(a) == client_state::expired)); // the one that has been away longest
    BOOST_TEST((*book->state_of(b) == client_state::courtesy));
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([this] { return book->tend(); });
        s.spawn([this] { return table->tend(); });
        co_await sleep_for(999s);
        BOOST_TEST((*book->state_of(b) == client_state::courtesy));
        BOOST_TEST(table->stats().courtesy_clients.value() == 2); // c is one, too, by now
        co_await sleep_for(2s);
        BOOST_TEST((*book->state_of(b) == client_state::expired));
        s.request_stop();
        co_await s.join();
    };
    run(body());
    BOOST_TEST(table->stats().opens.value() == 0);
    BOOST_TEST(*run(book->drop_courtesy(10)) == 1u);
}

BOOST_FIXTURE_TEST_CASE(an_administrator_takes_all, clients_fixture)
{
    a = client("a");
    const auto o = open(a, "o", "f", both, none, delegation_want::any);
    BOOST_REQUIRE(run(book->revoke_client(a)));
    BOOST_TEST(is(table->test_stateid(a, o->id), errc::admin_revoked));
    BOOST_TEST(is(book->renew(a), errc::admin_revoked));
    BOOST_TEST(table->stats().opens.value() == 0);
    BOOST_TEST(table->stats().write_delegations.value() == 0);
    BOOST_TEST(!lists.new_list.contains("a"));
    BOOST_TEST(is(run(book->revoke_client(a + 1)), errc::stale_client));
}

BOOST_FIXTURE_TEST_CASE(clients_have_a_limit_and_ids_of_their_own, files_fixture)
{
    start([](state_options& o) { o.limits.clients = 2; });
    const client_id a = client("a"), b = client("b");
    BOOST_TEST(a != b);
    BOOST_TEST((a >> 32) == lists.epoch);
    BOOST_TEST(is(book->add_client("c"), errc::too_many_clients));
    BOOST_TEST(is(book->add_client(std::string(1025, 'k')), errc::invalid));
    BOOST_REQUIRE(run(book->forget(a)));
    BOOST_TEST(table->stats().clients.value() == 1);
    const client_id c = client("c");
    BOOST_TEST((c != a && c != b));
}

// --- Recovery

BOOST_FIXTURE_TEST_CASE(nothing_new_before_reclaim_complete, clients_fixture)
{
    a = *book->add_client("a");
    BOOST_TEST(is(open(a, "o", "f", read), errc::grace));               // RECC3
    BOOST_TEST(is(table->open(reclaim(a, "f", read)), errc::no_grace)); // OPEN16
    store->fails = [] { return true; };
    BOOST_TEST(!run(book->reclaim_complete(a)).has_value());
    BOOST_TEST(is(open(a, "o", "f", read), errc::grace)); // not written, not promised
    store->fails = nullptr;
    BOOST_TEST(run(book->reclaim_complete(a)).has_value());
    BOOST_TEST(lists.new_list.contains("a"));
    BOOST_TEST(is(run(book->reclaim_complete(a)), errc::already_complete)); // RECC4
    BOOST_TEST(open(a, "o", "f", read).has_value());
}

BOOST_FIXTURE_TEST_CASE(grace_is_for_those_of_the_list, clients_fixture)
{
    restarted();
    const client_id stranger = *book->add_client("c");
    BOOST_TEST(is(table->open(reclaim(stranger, "f", read)), errc::reclaim_bad));
    const auto o = table->open(reclaim(a, "f", both));
    BOOST_REQUIRE(o);
    lock_request l = lock_of(a, o->id, "f");
    BOOST_TEST(is(table->lock(l), errc::grace));
    l.reclaim = true;
    BOOST_TEST(table->lock(l).has_value());
    BOOST_TEST(table->stats().reclaims.value() == 2u);
    // What another one reclaimed.
    BOOST_TEST(is(table->open(reclaim(b, "f", read, write)), errc::reclaim_conflict));
    const auto of_b = table->open(reclaim(b, "f", both));
    BOOST_REQUIRE(of_b);
    lock_request m = lock_of(b, of_b->id, "f");
    m.reclaim = true;
    BOOST_TEST(is(table->lock(m), errc::reclaim_conflict));
    // Its own is no reclaim after "complete".
    BOOST_REQUIRE(run(book->reclaim_complete(a)));
    BOOST_TEST(is(table->open(reclaim(a, "g", read)), errc::no_grace)); // RECC2
    BOOST_TEST(is(open(a, "o", "g", read), errc::grace));               // b is not done
    BOOST_REQUIRE(run(book->reclaim_complete(b)));
    BOOST_TEST((book->grace() == grace_period::phase::over));
    BOOST_TEST(store->written.back() == "end ");
    BOOST_TEST(open(a, "o", "g", read).has_value());
}

BOOST_FIXTURE_TEST_CASE(in_grace_operations_wait, clients_fixture)
{
    restarted();
    using enum operation;
    for (unsigned op = 0; op < operation_count; ++op) {
        if (operation(op) <= open_deny_write || operation(op) >= lock_read)
            continue;
        const bool waits = operation(op) == operation::read || operation(op) == operation::write ||
                           operation(op) == set_size || operation(op) == change_extents ||
                           operation(op) == rename || operation(op) == remove;
        const auto done = check(operation(op), "f");
        BOOST_TEST(done.has_value() == !waits, op);
        if (waits)
            BOOST_TEST(is(done, errc::grace));
    }
    BOOST_TEST(
        is(table->test_lock(a, file_named("f"), owner_named("l"), {0, 1}, lock_type::read), errc::grace));
    const auto o = table->open(reclaim(a, "f", both));
    BOOST_TEST(check_io(a, o->id, "f", share::write).has_value()); // by what was reclaimed
}

// --- Clients that don't say that they have reclaimed all (version 4.0)

BOOST_FIXTURE_TEST_CASE(a_silent_client_is_written_down_when_it_has_something, clients_fixture)
{
    a = *book->add_client("a");
    BOOST_REQUIRE(book->set_silent(a));
    BOOST_TEST(is(book->set_silent(a + 1), errc::stale_client));
    // Before that it gets nothing (7530 9.6.3.4).
    BOOST_TEST(book->lacks_record(a));
    BOOST_TEST(is(open(a, "o", "f", read), errc::busy));
    BOOST_TEST(table->stats().opens.value() == 0);
    BOOST_TEST(lists.new_list.empty());
    store->fails = [] { return true; };
    BOOST_TEST(!run(book->record(a)).has_value());
    BOOST_TEST(is(open(a, "o", "f", read), errc::busy));
    store->fails = nullptr;
    BOOST_TEST(run(book->record(a)).has_value());
    BOOST_TEST(!book->lacks_record(a));
    const auto file = open(a, "o", "f", both); // it need not say anything
    BOOST_REQUIRE(file);
    BOOST_TEST(table->lock(lock_of(a, file->id, "f")).has_value());
    BOOST_TEST(lists.new_list.contains("a"));
    store->fails = [] { return true; }; // nothing is written again
    BOOST_TEST(run(book->record(a)).has_value());
    store->fails = nullptr;
    // After a restart it may reclaim until grace is over, and gets nothing new before.
    start();
    a = *book->add_client("a");
    BOOST_REQUIRE(book->set_silent(a));
    BOOST_TEST(is(open(a, "o", "g", read), errc::grace));
    BOOST_TEST(is(table->open(reclaim(a, "f", read)), errc::busy));
    BOOST_TEST(run(book->record(a)).has_value());
    BOOST_TEST(table->open(reclaim(a, "f", read)).has_value());
    BOOST_TEST(table->open(reclaim(a, "h", read)).has_value());
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([this] { return book->tend(); });
        s.spawn([this] { return table->tend(); });
        co_await sleep_for(table->options().grace_time + 1s);
        s.request_stop();
        co_await s.join();
    };
    run(body());
    BOOST_TEST((book->grace() == grace_period::phase::over));
    BOOST_TEST(open(a, "o", "g", read).has_value());
    BOOST_TEST(is(table->open(reclaim(a, "f", read)), errc::no_grace));
    BOOST_TEST(lists.new_list.contains("a"));
    BOOST_REQUIRE(run(book->forget(a)));
    BOOST_TEST(lists.new_list.empty());
    BOOST_TEST(is(run(book->record(a)), errc::stale_client));
}

BOOST_FIXTURE_TEST_CASE(a_stateid_tells_whose_it_is, clients_fixture)
{
    a = client("a");
    const auto o = open(a, "o", "f", both);
    const auto l = table->lock(lock_of(a, o->id, "f"));
    BOOST_REQUIRE(l);
    const auto of_open = table->holder_of(o->id);
    BOOST_REQUIRE(of_open);
    BOOST_TEST(of_open->client == a);
    BOOST_TEST((of_open->has_owner && !of_open->locks));
    BOOST_TEST(of_open->owner == "o");
    const auto of_lock = table->holder_of(*l);
    BOOST_REQUIRE(of_lock);
    BOOST_TEST((of_lock->has_owner && of_lock->locks));
    BOOST_TEST(of_lock->owner == "l");
    BOOST_TEST(table->has_owner(a, true, owner_named("l")));
    BOOST_TEST(!table->has_owner(a, true, owner_named("o")));
    // Its number alone goes on.
    const auto next = table->renumber(a, o->id, file_named("f"));
    BOOST_REQUIRE(next);
    BOOST_TEST(next->seqid == o->id.seqid + 1);
    BOOST_TEST(is(table->renumber(a, o->id, file_named("f")), errc::old_stateid));
    BOOST_TEST(is(table->renumber(a, *l, file_named("f")), errc::bad_stateid));
    BOOST_REQUIRE(table->close(a, *next, file_named("f")));
    BOOST_TEST(is(table->holder_of(o->id), errc::bad_stateid));
    BOOST_TEST(is(table->holder_of(stateid()), errc::bad_stateid));
    b = client("b");
    BOOST_REQUIRE(book->set_silent(b));
    BOOST_REQUIRE(run(book->record(b)));
    const auto taken = open(b, "o", "f", both);
    BOOST_REQUIRE(run(book->forget(b)));
    BOOST_TEST(is(table->holder_of(taken->id), errc::expired));
    BOOST_TEST(!table->has_owner(a, false, owner_named("o")));
    start();
    BOOST_TEST(is(table->holder_of(o->id), errc::stale_stateid));
}

BOOST_FIXTURE_TEST_CASE(what_an_owner_has_open_is_closed_at_once, clients_fixture)
{
    a = client("a");
    b = client("b");
    const auto o = open(a, "o", "f", both);
    BOOST_REQUIRE(table->lock(lock_of(a, o->id, "f")));
    BOOST_REQUIRE(open(a, "o", "g", both));
    BOOST_REQUIRE(open(a, "p", "f", both));
    BOOST_REQUIRE(open(b, "o", "f", both));
    BOOST_REQUIRE(table->close_all(a, owner_named("o")));
    BOOST_TEST(table->stats().opens.value() == 2);
    BOOST_TEST(table->stats().locks.value() == 0);
    BOOST_TEST(!table->has_owner(a, false, owner_named("o")));
    BOOST_TEST(table->has_owner(a, false, owner_named("p")));
    BOOST_TEST(table->has_owner(b, false, owner_named("o")));
    BOOST_REQUIRE(table->close_all(a, owner_named("o")));
    BOOST_REQUIRE(run(book->forget(a)));
    BOOST_TEST(is(table->close_all(a, owner_named("p")), errc::stale_client));
}

BOOST_FIXTURE_TEST_CASE(grace_ends_by_time, clients_fixture)
{
    restarted();
    BOOST_REQUIRE(run(book->reclaim_complete(a)));
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([this] { return book->tend(); });
        s.spawn([this] { return table->tend(); });
        co_await sleep_for(table->options().grace_time - 1s);
        BOOST_TEST((book->grace() == grace_period::phase::reclaiming));
        // The store refuses: then it is not over.
        int refused = 0;
        store->fails = [&] { return refused++ < 3; };
        co_await sleep_for(2s);
        BOOST_TEST((book->grace() != grace_period::phase::over));
        co_await sleep_for(5s);
        BOOST_TEST(refused == 4);
        BOOST_TEST((book->grace() == grace_period::phase::over));
        s.request_stop();
        co_await s.join();
    };
    run(body());
    // The second edge condition of RFC 8881 8.4.3: b did not come in this grace period, so it may not in the next one.
    BOOST_TEST(is(table->open(reclaim(b, "f", read)), errc::no_grace));
    start();
    a = *book->add_client("a");
    b = *book->add_client("b");
    BOOST_TEST(table->open(reclaim(a, "f", read)).has_value());
    BOOST_TEST(is(table->open(reclaim(b, "f", read)), errc::reclaim_bad));
}

// The first edge condition: a lease ended, another client had the file, the server began anew.
BOOST_FIXTURE_TEST_CASE(who_was_expired_does_not_reclaim, clients_fixture)
{
    a = client("a");
    b = client("b");
    BOOST_REQUIRE(open(a, "o", "f", both, write));
    pass(91s);
    BOOST_REQUIRE(book->renew(b));
    const open_request r = request(b, "o", "f", both);
    BOOST_REQUIRE(make_way(demand(r), 0s));
    const auto o = table->open(r);
    BOOST_REQUIRE(table->close(b, o->id, file_named("f")));
    start();
    a = *book->add_client("a");
    BOOST_TEST(is(table->open(reclaim(a, "f", both, write)), errc::reclaim_bad));
}

BOOST_FIXTURE_TEST_CASE(a_restart_within_grace_keeps_the_list, clients_fixture)
{
    restarted();
    BOOST_REQUIRE(run(book->reclaim_complete(a)));
    start();
    a = *book->add_client("a");
    b = *book->add_client("b");
    BOOST_TEST(table->open(reclaim(a, "f", read)).has_value());
    BOOST_TEST(table->open(reclaim(b, "f", read)).has_value());
}

BOOST_FIXTURE_TEST_CASE(who_is_expired_in_grace_is_not_waited_for, clients_fixture)
{
    restarted();
    BOOST_REQUIRE(run(book->forget(b)));
    BOOST_REQUIRE(run(book->reclaim_complete(a)));
    BOOST_TEST((book->grace() == grace_period::phase::over));
}

BOOST_FIXTURE_TEST_CASE(delegations_are_reclaimed, clients_fixture)
{
    restarted();
    under_way began_in_grace; // and stands against nothing that was there before
    begin(began_in_grace, "f", operation::set_attributes);
    auto o = table->open(reclaim(a, "f", both, write, delegation_want::write));
    BOOST_REQUIRE((o && o->delegation));
    BOOST_TEST((o->delegation->type == delegation_type::write));
    BOOST_TEST(!o->delegation->recalled);
    BOOST_TEST(is(table->open(reclaim(b, "f", read)), errc::reclaim_conflict));
    // One that we would not give: it has it, and is asked for it at once (RFC 8881 10.2.1).
    BOOST_REQUIRE(book->set_callable(a, false));
    o = table->open(reclaim(a, "g", read, none, delegation_want::read));
    BOOST_REQUIRE((o && o->delegation));
    BOOST_TEST(o->delegation->recalled);
    BOOST_TEST(handler.recalls.size() == 1u);
    // One that contradicts what another client has taken back is none, whatever it says that it had.
    BOOST_REQUIRE(table->close(a, o->id, file_named("g"))); // the delegation stands without an open, too
    const auto p = table->open(reclaim(b, "g", read, none, delegation_want::write));
    BOOST_REQUIRE(p);
    BOOST_TEST((!p->delegation && p->why == no_delegation::contention));
    // And opens under it, in grace.
    open_request by = request(a, "p", "g", read);
    by.claim = open_claim::under_delegation;
    by.delegation = o->delegation->id;
    BOOST_TEST(table->open(by).has_value());
}

BOOST_FIXTURE_TEST_CASE(stateids_of_an_earlier_start_are_known, clients_fixture)
{
    a = client("a");
    const auto o = open(a, "o", "f", read);
    start();
    a = *book->add_client("a");
    BOOST_TEST(is(table->test_stateid(a, o->id), errc::stale_stateid));
}

BOOST_FIXTURE_TEST_CASE(others_are_served_while_much_goes, files_fixture)
{
    const client_id a = client("a"), b = client("b");
    for (int i = 0; i < 2000; ++i)
        BOOST_REQUIRE(open(a, "o" + std::to_string(i), "f", share::read));
    BOOST_REQUIRE(open(b, "o", "g", share::read));
    scope tasks(*shard);
    bool done = false;
    tasks.spawn([&]() -> task<void> {
        (void)co_await book->forget(a);
        done = true;
    });
    unsigned turns = 0;
    std::int64_t before = table->stats().opens.value();
    while (!done) {
        shard->turn();
        BOOST_REQUIRE(++turns < 100);
        BOOST_TEST(before - table->stats().opens.value() <= 512);
        before = table->stats().opens.value();
        // It has left already, whatever is there still.
        BOOST_TEST(!open(a, "new", "f", share::read).has_value());
        BOOST_TEST(book->renew(b).has_value());
    }
    BOOST_TEST(turns > 3);
    BOOST_TEST(table->stats().opens.value() == 1);
    BOOST_TEST(table->stats().clients.value() == 1);
}

BOOST_AUTO_TEST_SUITE_END()
