// SPDX-License-Identifier: Apache-2.0
// Delegations under a lease of the back end: how one is reserved, and when the lease goes.
#include "files_fixture.hpp"

BOOST_AUTO_TEST_SUITE(files_leases_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;
using storage::no_lease;

namespace {

using enum share;

struct leases_fixture : files_fixture {
    struct one final : storage::file_lease {
        explicit one(int& n) noexcept : out(n) { ++out; }
        ~one() override { --out; }
        int& out;
    };
    leases_fixture()
    {
        a = client("a");
        b = client("b");
    }
    ~leases_fixture() { stop(); } // the leases count here
    std::unique_ptr<storage::file_lease> lease() { return std::make_unique<one>(out); }
    open_request reading(client_id c, std::string_view file = "f")
    {
        open_request r = request(c, "o", file, read, none, delegation_want::any);
        r.leased = true;
        return r;
    }
    /// All three steps.
    opened leased(open_request r)
    {
        pending_open p;
        BOOST_REQUIRE(table->begin_open(r, p));
        if (table->reserve_delegation(p))
            p.set_lease(lease());
        auto made = table->commit(p);
        BOOST_REQUIRE(made);
        return *made;
    }
    std::uint64_t refused(no_lease why) { return table->stats().lease_refusals[std::size_t(why)].value(); }
    client_id a = 0, b = 0;
    int out = 0;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(one_is_granted_with_its_lease, leases_fixture)
{
    const opened o = leased(reading(a));
    BOOST_TEST_REQUIRE(o.delegation.has_value());
    BOOST_CHECK(o.delegation->type == delegation_type::read);
    BOOST_TEST(!o.delegation->recalled);
    BOOST_TEST(out == 1);
    // It outlives its open.
    BOOST_REQUIRE(table->close(a, o.id, file_named("f")));
    BOOST_TEST(out == 1);
    BOOST_REQUIRE(table->return_delegation(a, o.delegation->id, file_named("f")));
    BOOST_TEST(out == 0);
    BOOST_TEST(table->stats().files.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(without_the_steps_between_there_is_none, leases_fixture)
{
    // Nobody has asked for a lease.
    const auto o = table->open(reading(a));
    BOOST_REQUIRE(o);
    BOOST_TEST(!o->delegation);
    BOOST_CHECK(o->why == no_delegation::unsuited);
    // Nobody has got one.
    {
        pending_open p;
        BOOST_REQUIRE(table->begin_open(reading(b), p));
        BOOST_TEST(table->reserve_delegation(p).has_value());
        BOOST_TEST(table->stats().read_delegations.value() == 1);
        p.set_lease(no_lease::not_permitted);
        const auto none = table->commit(p);
        BOOST_REQUIRE(none);
        BOOST_TEST(!none->delegation);
        BOOST_CHECK(none->why == no_delegation::resource);
        BOOST_TEST(refused(no_lease::not_permitted) == 1u);
    }
    // It was not committed.
    {
        pending_open p;
        BOOST_REQUIRE(table->begin_open(reading(b), p));
        BOOST_TEST(table->reserve_delegation(p).has_value());
        p.set_lease(lease());
    }
    BOOST_TEST(out == 0);
    BOOST_TEST(table->stats().read_delegations.value() == 0);
    BOOST_TEST(table->stats().recalls.value() == 0u);
}

// As a reload does that keeps the client out.
BOOST_FIXTURE_TEST_CASE(one_that_is_taken_while_it_is_reserved_was_nobodys, leases_fixture)
{
    pending_open p;
    const open_request r = reading(a);
    BOOST_REQUIRE(table->begin_open(r, p));
    BOOST_REQUIRE(table->reserve_delegation(p));
    state_table::export_losses lost;
    std::size_t place = 0;
    while (table->drop_export(r.file.via, state_table::export_state::delegations, place, lost)) {
    }
    BOOST_TEST(lost.delegations == 0u);
    p.set_lease(lease());
    const auto made = table->commit(p);
    BOOST_REQUIRE(made);
    BOOST_TEST(!made->delegation);
    BOOST_TEST(out == 0);
    BOOST_TEST(table->stats().read_delegations.value() == 0);
    BOOST_TEST(table->stats().recalls.value() == 0u);
}

BOOST_FIXTURE_TEST_CASE(what_would_bring_none_reserves_none, leases_fixture)
{
    const auto reserves = [&](const open_request& r) {
        pending_open p;
        BOOST_REQUIRE(table->begin_open(r, p));
        return table->reserve_delegation(p).has_value();
    };
    BOOST_TEST(reserves(reading(a)));
    open_request r = reading(a);
    r.leased = false;
    BOOST_TEST(!reserves(r));
    r = reading(a);
    r.want = delegation_want::none;
    BOOST_TEST(!reserves(r));
    r = reading(a);
    r.access = both;
    BOOST_TEST(!reserves(r));
    r.want = delegation_want::write;
    BOOST_TEST(!reserves(r));
    // Somebody, it itself too, has the file open for writing, or changes it.
    for (const client_id c : {a, b}) {
        const auto writes = open(c, "w", "f", write);
        BOOST_REQUIRE(writes);
        BOOST_TEST(!reserves(reading(a)));
        BOOST_REQUIRE(table->close(c, writes->id, file_named("f")));
        under_way writing;
        begin(writing, "f", operation::write);
        BOOST_TEST(!reserves(reading(a)));
    }
    // Or cuts it, by an open that is not answered yet.
    {
        open_request cuts = request(a, "w", "f", read);
        cuts.truncates = true;
        pending_open cutting;
        BOOST_REQUIRE(table->begin_open(cuts, cutting));
        BOOST_TEST(!reserves(reading(a)));
    }
    BOOST_TEST(reserves(reading(a)));
}

BOOST_FIXTURE_TEST_CASE(who_comes_before_the_lease_waits_for_it, leases_fixture)
{
    pending_open p;
    BOOST_REQUIRE(table->begin_open(reading(a), p));
    BOOST_REQUIRE(table->reserve_delegation(p));
    const demand writing(operation::write, file_named("f"), b);
    BOOST_TEST(is(check(operation::write, "f", b), errc::in_way));
    bool made = false;
    scope tasks(*shard);
    const auto waits = [&]() -> task<void> {
        const auto room = co_await table->make_way(writing, 10s);
        made = room.has_value();
    };
    tasks.spawn([&] { return waits(); });
    for (int i = 0; i < 5; ++i)
        shard->turn();
    BOOST_TEST(!made);
    p.set_lease(lease());
    const auto o = table->commit(p);
    BOOST_REQUIRE(o);
    BOOST_TEST(!o->delegation);
    BOOST_CHECK(o->why == no_delegation::contention);
    BOOST_TEST(out == 0);
    for (int i = 0; i < 5; ++i)
        shard->turn();
    BOOST_TEST(made);
    BOOST_TEST(tasks.live() == 0u);
    BOOST_TEST(handler.recalls.empty());
    BOOST_REQUIRE(check(operation::write, "f", b));
    // A rest follows, or those who open would starve those who write.
    pending_open again;
    BOOST_REQUIRE(table->begin_open(reading(b), again));
    BOOST_TEST(!table->reserve_delegation(again).has_value());
}

BOOST_FIXTURE_TEST_CASE(a_local_process_recalls_it, leases_fixture)
{
    pending_open p;
    BOOST_REQUIRE(table->begin_open(reading(a), p));
    const auto early = table->reserve_delegation(p);
    BOOST_REQUIRE(early);
    BOOST_REQUIRE(table->recall(*early));
    p.set_lease(lease());
    const auto none = table->commit(p);
    BOOST_REQUIRE(none);
    BOOST_TEST(!none->delegation);
    BOOST_TEST(out == 0);
    BOOST_TEST(handler.recalls.empty()); // its client never had it
    BOOST_TEST(is(table->recall(*early), errc::bad_stateid));

    const opened o = leased(reading(a, "g"));
    BOOST_REQUIRE(o.delegation);
    BOOST_REQUIRE(table->recall(o.delegation->id));
    BOOST_TEST(handler.recalls.size() == 1u);
    BOOST_TEST(table->stats().local_recalls.value() == 2u);
    BOOST_TEST(out == 1); // until it is back, or revoked
    BOOST_REQUIRE(table->recall(o.delegation->id));
    BOOST_TEST(handler.recalls.size() == 1u);
    BOOST_TEST(table->stats().local_recalls.value() == 2u);
}

BOOST_FIXTURE_TEST_CASE(the_lease_goes_with_what_was_revoked_or_taken, leases_fixture)
{
    (void)leased(reading(a, "f"));
    const demand writing(operation::write, file_named("f"), b);
    BOOST_TEST(!make_way(writing, 1s));
    pass(90s);
    BOOST_TEST(out == 1);
    BOOST_REQUIRE(book->renew(a));
    BOOST_REQUIRE(make_way(writing, 1s));
    BOOST_TEST(table->stats().revocations.value() == 1u);
    BOOST_TEST(out == 0);
    (void)leased(reading(b, "g"));
    BOOST_TEST(out == 1);
    BOOST_REQUIRE(run(book->forget(b)));
    BOOST_TEST(out == 0);
}

namespace {

/// A client whose lease is over, and that a local process has to wait for.
struct gone_fixture : leases_fixture {
    void check(const std::function<task<void>(stateid)>& go_and_ask)
    {
        const opened f = leased(reading(a, "f"));
        (void)leased(reading(a, "g"));
        (void)leased(reading(b, "h"));
        BOOST_TEST(out == 3);
        const auto body = [&]() -> task<void> {
            scope s(*shard);
            s.spawn([this] { return book->tend(); });
            s.spawn([this] { return table->tend(); });
            co_await go_and_ask(f.delegation->id);
            BOOST_TEST(out == 1);
            BOOST_TEST(is(book->renew(a), errc::expired));
            BOOST_TEST(!lists.new_list.contains("a"));
            BOOST_TEST(book->renew(b).has_value());
            s.request_stop();
            co_await s.join();
        };
        run(body());
        BOOST_TEST(table->stats().revocations.value() == 0u);
    }
    duration lease_time() const { return table->options().lease; }
};

} // namespace

// It can't take what the client has, as those do who ask the table, and would wait for each file.
BOOST_FIXTURE_TEST_CASE(a_client_that_is_gone_keeps_no_local_process_waiting, gone_fixture)
{
    check([this](stateid f) -> task<void> {
        co_await sleep_for(lease_time() / 2);
        BOOST_TEST(book->renew(b).has_value());
        co_await sleep_for(lease_time() / 2 + 1s);
        BOOST_TEST(out == 3);
        store->fails = [n = 0]() mutable { return n++ == 0; };
        BOOST_TEST(table->recall(f).has_value());
        BOOST_TEST(table->recall(f).has_value()); // again
        co_await sleep_for(3s);
    });
}

BOOST_FIXTURE_TEST_CASE(a_client_that_goes_keeps_no_local_process_waiting, gone_fixture)
{
    check([this](stateid f) -> task<void> {
        co_await sleep_for(lease_time() - 1s);
        BOOST_TEST(table->recall(f).has_value());
        BOOST_TEST(book->renew(b).has_value());
        BOOST_TEST(out == 3);
        co_await sleep_for(2s);
    });
}

// Who comes back in time keeps what it has.
BOOST_FIXTURE_TEST_CASE(a_client_that_comes_back_keeps_the_rest, leases_fixture)
{
    const opened f = leased(reading(a, "f"));
    (void)leased(reading(a, "g"));
    pass(table->options().lease + 1s);
    BOOST_TEST(table->recall(f.delegation->id).has_value());
    BOOST_REQUIRE(book->renew(a));
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([this] { return book->tend(); });
        s.spawn([this] { return table->tend(); });
        co_await sleep_for(1s);
        BOOST_TEST(table->return_delegation(a, f.delegation->id, file_named("f")).has_value());
        BOOST_TEST(out == 1);
        s.request_stop();
        co_await s.join();
    };
    run(body());
}

// A client that is there and gives nothing back would have a local process wait at each file, and again.
BOOST_FIXTURE_TEST_CASE(who_does_not_give_one_back_loses_all_and_gets_none, leases_fixture)
{
    const opened f = leased(reading(a, "f"));
    const opened g = leased(reading(a, "g"));
    open_request unleased = request(a, "o", "h", read, none, delegation_want::any);
    BOOST_REQUIRE(table->open(unleased)->delegation);
    BOOST_TEST(table->recall(f.delegation->id).has_value());
    BOOST_TEST(handler.recalls.size() == 1u);
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([this] { return book->tend(); });
        s.spawn([this] { return table->tend(); });
        for (int i = 0; i < 2; ++i) {
            for (duration waited{}; waited <= table->options().recall_time; waited += 30s) {
                co_await sleep_for(30s);
                BOOST_TEST(book->renew(a).has_value());
                BOOST_TEST(book->renew(b).has_value());
            }
            BOOST_TEST(table->stats().revocations.value() == unsigned(i) + 1);
            BOOST_TEST(handler.recalls.size() == 2u); // nobody has to wait for the third one
        }
        BOOST_TEST(out == 0);
        BOOST_TEST((co_await table->free_stateid(a, f.delegation->id)).has_value());
        BOOST_TEST((co_await table->free_stateid(a, g.delegation->id)).has_value());
        BOOST_TEST(!leased(reading(a, "i")).delegation);
        BOOST_TEST(leased(reading(b, "i")).delegation.has_value());
        for (int minutes = 0; minutes < 15; ++minutes) {
            co_await sleep_for(60s);
            BOOST_TEST(book->renew(a).has_value());
            BOOST_TEST(book->renew(b).has_value());
        }
        BOOST_TEST(leased(reading(a, "i")).delegation.has_value());
        s.request_stop();
        co_await s.join();
    };
    run(body());
}

// Whoever has one to free has not understood that it was revoked. What had no lease says nothing of how a client gives leases back.
BOOST_FIXTURE_TEST_CASE(a_lease_is_for_who_has_freed_what_was_revoked, leases_fixture)
{
    const auto o = open(a, "o", "f", read, none, delegation_want::any);
    BOOST_REQUIRE(o->delegation);
    BOOST_REQUIRE(leased(reading(a, "held")).delegation);
    const demand rename(operation::rename, file_named("f"));
    BOOST_TEST(is(make_way(rename, 0s), errc::busy));
    pass(table->options().recall_time);
    BOOST_REQUIRE(book->renew(a));
    BOOST_REQUIRE(make_way(rename, 0s));
    BOOST_TEST(handler.recalls.size() == 1u);
    const opened refused = leased(reading(a, "g"));
    BOOST_TEST((!refused.delegation && refused.why == no_delegation::contention));
    BOOST_REQUIRE(run(table->free_stateid(a, o->delegation->id)));
    BOOST_TEST(leased(reading(a, "h")).delegation.has_value());
}

// A client of which the state is taken while the lease is on its way.
BOOST_FIXTURE_TEST_CASE(a_reservation_ends_with_its_client, leases_fixture)
{
    {
        pending_open p;
        BOOST_REQUIRE(table->begin_open(reading(a), p));
        BOOST_REQUIRE(table->reserve_delegation(p));
        BOOST_REQUIRE(run(book->revoke_client(a)));
        p.set_lease(lease());
        BOOST_TEST(is(table->commit(p), errc::admin_revoked));
    }
    BOOST_TEST(out == 0);
    BOOST_TEST(table->stats().read_delegations.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(its_holder_is_asked_for_it_before_it_writes, leases_fixture)
{
    const opened o = leased(reading(a));
    BOOST_REQUIRE(o.delegation);
    for (const operation op : {operation::write, operation::set_size}) {
        BOOST_TEST(is(check(op, "f", a), errc::in_way));
    }
    BOOST_TEST(is(open(a, "w", "f", write), errc::in_way));
    // What changes no data does not break the lease.
    for (const operation op : {operation::read, operation::set_attributes, operation::remove}) {
        BOOST_REQUIRE(check(op, "f", a));
    }
    BOOST_TEST(handler.recalls.empty());
    BOOST_TEST(!make_way(demand(request(a, "w", "f", write)), 1s));
    BOOST_TEST(handler.recalls.size() == 1u);
    BOOST_TEST(handler.recalls[0].client == a);
    BOOST_REQUIRE(table->return_delegation(a, o.delegation->id, file_named("f")));
    BOOST_REQUIRE(open(a, "w", "f", write));
}

BOOST_FIXTURE_TEST_CASE(with_their_shard_all_are_released, leases_fixture)
{
    (void)leased(reading(a, "f"));
    (void)leased(reading(b, "f"));
    (void)leased(reading(b, "g"));
    BOOST_TEST(out == 3);
    pending_open p;
    BOOST_REQUIRE(table->begin_open(reading(a, "g"), p));
    BOOST_REQUIRE(table->reserve_delegation(p));
    p.set_lease(lease());
    table->release_leases();
    const auto late = table->commit(p);
    BOOST_REQUIRE(late);
    BOOST_TEST(!late->delegation);
    BOOST_TEST(out == 0);
    pending_open another;
    BOOST_REQUIRE(table->begin_open(reading(a, "h"), another));
    BOOST_TEST(!table->reserve_delegation(another).has_value());
}

namespace {

/// After a restart, before "a" has said that it is done.
struct restarted : leases_fixture {
    restarted()
    {
        start();
        a = *book->add_client("a");
        BOOST_REQUIRE(book->set_callable(a, true));
    }
    open_request reclaiming(share access, delegation_want had, std::string_view owner = "o")
    {
        open_request r = request(a, owner, "f", access, none, had);
        r.claim = open_claim::reclaim;
        r.leased = true;
        return r;
    }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(what_is_reclaimed_has_a_lease_again, restarted)
{
    const opened o = leased(reclaiming(read, delegation_want::read));
    BOOST_REQUIRE(o.delegation);
    BOOST_TEST(!o.delegation->recalled);
    BOOST_TEST(out == 1);
    BOOST_TEST(handler.recalls.empty());
    // What else it had it has, and then not the delegation: the first write would break the lease.
    const opened w = leased(reclaiming(write, delegation_want::none, "w"));
    BOOST_TEST(!w.delegation);
    BOOST_TEST_REQUIRE(handler.recalls.size() == 1u);
    BOOST_CHECK(handler.recalls[0].id == o.delegation->id);
}

BOOST_FIXTURE_TEST_CASE(what_is_reclaimed_without_a_lease_is_recalled, restarted)
{
    pending_open p;
    BOOST_REQUIRE(table->begin_open(reclaiming(read, delegation_want::read), p));
    BOOST_REQUIRE(table->reserve_delegation(p));
    p.set_lease(no_lease::in_use);
    const auto o = table->commit(p);
    BOOST_REQUIRE(o);
    BOOST_TEST_REQUIRE(o->delegation.has_value());
    BOOST_TEST(o->delegation->recalled);
    BOOST_TEST(handler.recalls.size() == 1u);
    BOOST_TEST(refused(no_lease::in_use) == 1u);
    // It is as good as any until it is back: without a lease its holder may write.
    for (const client_id c : {a, *book->add_client("b")})
        BOOST_REQUIRE(run(book->reclaim_complete(c)));
    BOOST_TEST(open(a, "w", "f", write).has_value());
    BOOST_REQUIRE(table->return_delegation(a, o->delegation->id, file_named("f")));
}

BOOST_FIXTURE_TEST_CASE(what_is_reclaimed_while_it_is_written_is_recalled, restarted)
{
    BOOST_TEST(!leased(reclaiming(write, delegation_want::none, "w")).delegation);
    const opened o = leased(reclaiming(read, delegation_want::read));
    BOOST_REQUIRE(o.delegation);
    BOOST_TEST(o.delegation->recalled);
    BOOST_TEST(out == 0);
}

// What is recalled at once needs no lease, and one to write has none.
BOOST_FIXTURE_TEST_CASE(what_is_reclaimed_reserves_what_it_may_keep, restarted)
{
    const auto reserves = [&](const open_request& r) {
        pending_open p;
        BOOST_REQUIRE(table->begin_open(r, p));
        return table->reserve_delegation(p).has_value();
    };
    BOOST_TEST(reserves(reclaiming(read, delegation_want::read)));
    BOOST_TEST(!reserves(reclaiming(read, delegation_want::write)));
    BOOST_REQUIRE(book->set_callable(a, false));
    BOOST_TEST(!reserves(reclaiming(read, delegation_want::read)));
}

BOOST_FIXTURE_TEST_CASE(what_is_reclaimed_to_be_given_back_keeps_no_lease_for_long, restarted)
{
    open_request r = reclaiming(read, delegation_want::read);
    r.gives_back = true;
    const opened o = leased(r);
    BOOST_REQUIRE(o.delegation);
    BOOST_TEST(o.delegation->recalled);
    BOOST_TEST(handler.recalls.size() == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_reclaimed_delegation_to_write_is_recalled, restarted)
{
    const opened o = leased(reclaiming(both, delegation_want::write));
    BOOST_REQUIRE(o.delegation);
    BOOST_CHECK(o.delegation->type == delegation_type::write);
    BOOST_TEST(o.delegation->recalled);
    BOOST_TEST(out == 0);
}

BOOST_AUTO_TEST_SUITE_END()
