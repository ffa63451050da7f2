// SPDX-License-Identifier: Apache-2.0
// Minor version 0: clients, who may take whose place, and how many there are.
#include "nfs4_log_lines.hpp"
#include "nfs4_v40_client.hpp"

#include <utility>

BOOST_AUTO_TEST_SUITE(nfs4_v40_clients_test)

using namespace verbena;
using namespace verbena::test;

// --- Clients: the tables of docs/internals/nfs4_v40.md

BOOST_FIXTURE_TEST_CASE(a_client_is_set_and_confirmed, v40_fixture)
{
    client0 a(*this, "a");
    BOOST_TEST(a.renew() == nfsstat4::stale_clientid);
    const SETCLIENTID4res first = a.set();
    BOOST_TEST_REQUIRE(first.status == nfsstat4::ok);
    BOOST_TEST(compound(RENEW4args{first.clientid}).status() == nfsstat4::stale_clientid);
    // Another one in its place: the first can't be confirmed any more.
    const SETCLIENTID4res second = a.set();
    BOOST_TEST(second.clientid != first.clientid);
    BOOST_TEST(a.confirm(first.clientid, first.setclientid_confirm) == nfsstat4::stale_clientid);
    verifier4 wrong = second.setclientid_confirm;
    wrong[7] ^= std::byte(1);
    BOOST_TEST(a.confirm(second.clientid, wrong) == nfsstat4::stale_clientid);
    BOOST_TEST(a.confirm(second.clientid, second.setclientid_confirm) == nfsstat4::ok);
    BOOST_TEST(a.confirm(second.clientid, second.setclientid_confirm) == nfsstat4::ok); // a repeat
    a.id = second.clientid;
    BOOST_TEST(a.renew() == nfsstat4::ok);
    // The same verifier: its callbacks move, and nothing else.
    const SETCLIENTID4res moved = a.set();
    BOOST_TEST(moved.clientid == a.id);
    BOOST_CHECK(moved.setclientid_confirm != second.setclientid_confirm);
    BOOST_TEST(a.renew() == nfsstat4::ok);
    BOOST_TEST(a.confirm(moved.clientid, moved.setclientid_confirm) == nfsstat4::ok);
    BOOST_TEST(a.confirm(moved.clientid, second.setclientid_confirm) == nfsstat4::stale_clientid);
    BOOST_TEST(a.renew() == nfsstat4::ok);
    BOOST_TEST(commons->v40.clients().size() == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_client_that_begins_anew_loses_what_it_had_when_it_is_confirmed, v40_fixture)
{
    client0 before(*this, "a", 1);
    before.connect();
    const auto file = before.ready(before.creating("f"));
    client0 after(*this, "a", 2);
    const SETCLIENTID4res res = after.set();
    BOOST_TEST(res.clientid != before.id);
    BOOST_TEST(before.write(file, file.id) == nfsstat4::ok);
    BOOST_TEST(after.confirm(res.clientid, res.setclientid_confirm) == nfsstat4::ok);
    BOOST_TEST(before.renew() == nfsstat4::stale_clientid);
    BOOST_TEST(before.write(file, file.id) == nfsstat4::expired);
    BOOST_TEST(before.close(file).status == nfsstat4::expired);
    BOOST_TEST(commons->state.stats().opens.value() == 0);
    BOOST_TEST(commons->state.stats().clients.value() == 1);
}

BOOST_FIXTURE_TEST_CASE(a_name_is_its_users_while_that_has_state, v40_fixture)
{
    client0 a(*this, "a");
    a.connect();
    client0 other(*this, "a", 2);
    user->uid = 1001;
    BOOST_TEST(other.confirm(a.id, {}) == nfsstat4::stale_clientid);
    // It has nothing.
    const SETCLIENTID4res taken = other.set();
    BOOST_TEST(taken.status == nfsstat4::ok);
    user->uid = 1000;
    BOOST_TEST(other.confirm(taken.clientid, taken.setclientid_confirm) == nfsstat4::clid_inuse);
    const auto file = a.ready(a.creating("f"));
    user->uid = 1001;
    answer4 refused = compound(other.setting());
    const auto in_use = refused.take<SETCLIENTID4res>();
    BOOST_TEST(in_use.status == nfsstat4::clid_inuse);
    BOOST_TEST(std::string(in_use.client_using.addr) == "127.0.0.1.8.1");
    clock.advance(91s);
    BOOST_TEST(other.set().status == nfsstat4::ok);
    user->uid = 1000;
    BOOST_TEST(a.close(file).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(no_other_host_ends_a_client_by_its_name, v40_fixture)
{
    for (auto& made : options)
        BOOST_REQUIRE(made.clients.add("*"));
    client0 a(*this, "a");
    a.connect();
    from = {"192.0.2.7", "192.0.2.7:700", "tcp", 700};
    client0 other(*this, "a", 2);
    const log_lines log;
    BOOST_TEST(other.set().status == nfsstat4::delay);
    BOOST_TEST(log.of_names({"waits=192.0.2.7", "has_it=127.0.0.1"}) == 1u);
    clock.advance(91s);
    BOOST_TEST(other.set().status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(clients_that_are_not_confirmed_have_a_limit_and_go, v40_fixture)
{
    limits.clients_per_peer = 3;
    client0 a(*this, "a");
    a.connect();
    std::vector<SETCLIENTID4res> made;
    for (int i = 0; i < 6; ++i) {
        client0 one(*this, "c" + std::to_string(i));
        made.push_back(one.set());
        BOOST_TEST(made.back().status == nfsstat4::ok);
        BOOST_TEST(commons->v40.clients().size() <= 3u);
    }
    BOOST_TEST(a.confirm(made[0].clientid, made[0].setclientid_confirm) == nfsstat4::stale_clientid);
    BOOST_TEST(a.confirm(made[5].clientid, made[5].setclientid_confirm) == nfsstat4::ok);
    clock.advance(91s);
    BOOST_TEST(a.confirm(made[4].clientid, made[4].setclientid_confirm) == nfsstat4::stale_clientid);
    (void)run_until_complete(*shard, commons->v40.tend(clock.now()));
    BOOST_TEST(commons->v40.clients().size() == 2u);
}

BOOST_FIXTURE_TEST_CASE(a_full_house_ends_those_whose_lease_is_over, v40_fixture)
{
    limits.clients_per_peer = 2;
    client0 a(*this, "a"), b(*this, "b"), c(*this, "c");
    a.connect();
    b.connect();
    BOOST_TEST(c.set().status == nfsstat4::delay);
    BOOST_TEST(program->counters().refused_limits.value(files::limited::clients, files::limit_of::peer) ==
               1u);
    clock.advance(91s);
    c.connect();
    BOOST_TEST(a.renew() == nfsstat4::stale_clientid);
    BOOST_TEST(commons->v40.clients().size() == 1u);
}

BOOST_FIXTURE_TEST_CASE(what_a_client_does_renews_its_lease, v40_fixture)
{
    client0 a(*this, "a");
    a.connect();
    const auto file = a.ready(a.creating("f"));
    clock.advance(60s);
    BOOST_TEST(a.write(file, file.id) == nfsstat4::ok);
    clock.advance(60s);
    auto& book = commons->state.clients();
    BOOST_TEST((*book.state_of(commons->v40.clients().state_of(a.id)) == files::client_state::active));
    clock.advance(60s);
    BOOST_TEST((*book.state_of(commons->v40.clients().state_of(a.id)) == files::client_state::courtesy));
    BOOST_TEST(a.renew() == nfsstat4::ok);
    BOOST_TEST((*book.state_of(commons->v40.clients().state_of(a.id)) == files::client_state::active));
}

BOOST_FIXTURE_TEST_CASE(who_lost_its_state_hears_expired_and_begins_anew, v40_fixture)
{
    client0 a(*this, "a"), b(*this, "b");
    a.connect();
    b.connect();
    OPEN4args denying = a.creating("f");
    denying.share_deny = share4::deny_write;
    const auto file = a.ready(denying);
    clock.advance(91s);
    BOOST_TEST(b.renew() == nfsstat4::ok);
    const auto theirs = b.ready(b.opening("f"));
    BOOST_TEST(b.write(theirs, theirs.id) == nfsstat4::ok);
    BOOST_TEST(a.renew() == nfsstat4::expired);
    BOOST_TEST(a.renew() == nfsstat4::stale_clientid);
    BOOST_TEST(a.write(file, file.id) == nfsstat4::expired);
    a.connect();
    BOOST_TEST(a.renew() == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(who_lost_its_state_begins_anew_under_the_verifier_that_it_has, v40_fixture)
{
    client0 a(*this, "a"), b(*this, "b");
    a.connect();
    b.connect();
    OPEN4args denying = a.creating("f");
    denying.share_deny = share4::deny_write;
    (void)a.ready(denying);
    clock.advance(91s);
    BOOST_TEST(b.renew() == nfsstat4::ok);
    (void)b.ready(b.opening("f"));
    const clientid4 before = a.id;
    a.connect(); // without a call that would have told it
    BOOST_TEST(a.id != before);
    BOOST_TEST(a.open(a.opening("f")).status == nfsstat4::ok);
}

// --- Between SETCLIENTID and its confirmation the one that has the name may come back

BOOST_FIXTURE_TEST_CASE(who_has_state_by_now_keeps_its_name_from_another_user, v40_fixture)
{
    client0 a(*this, "a"), other(*this, "a", 2);
    a.connect();
    user->uid = 1001;
    const SETCLIENTID4res res = other.set();
    BOOST_TEST_REQUIRE(res.status == nfsstat4::ok); // it had nothing
    user->uid = 1000;
    const auto file = a.ready(a.creating("f"));
    user->uid = 1001;
    BOOST_TEST(other.confirm(res.clientid, res.setclientid_confirm) == nfsstat4::clid_inuse);
    user->uid = 1000;
    BOOST_TEST(a.renew() == nfsstat4::ok);
    BOOST_TEST(a.write(file, file.id) == nfsstat4::ok);
    BOOST_TEST(a.close(file).status == nfsstat4::ok);
    // It has nothing again.
    user->uid = 1001;
    BOOST_TEST(other.confirm(res.clientid, res.setclientid_confirm) == nfsstat4::ok);
    BOOST_TEST(a.renew() == nfsstat4::stale_clientid);
}

BOOST_FIXTURE_TEST_CASE(who_renewed_its_lease_by_now_keeps_its_name_from_another_host, v40_fixture)
{
    for (auto& made : options)
        BOOST_REQUIRE(made.clients.add("*"));
    client0 a(*this, "a"), other(*this, "a", 2);
    a.connect();
    const auto file = a.ready(a.creating("f"));
    clock.advance(91s);
    const rpc::peer home = from;
    from = {"192.0.2.7", "192.0.2.7:700", "tcp", 700};
    const SETCLIENTID4res res = other.set();
    BOOST_TEST_REQUIRE(res.status == nfsstat4::ok);
    from = home;
    BOOST_TEST(a.renew() == nfsstat4::ok);
    from = {"192.0.2.7", "192.0.2.7:700", "tcp", 700};
    const log_lines log;
    BOOST_TEST(other.confirm(res.clientid, res.setclientid_confirm) == nfsstat4::delay);
    BOOST_TEST(log.of_names({"waits=192.0.2.7", "has_it=127.0.0.1"}) == 1u);
    from = home;
    BOOST_TEST(a.write(file, file.id) == nfsstat4::ok);
    BOOST_TEST(commons->state.stats().opens.value() == 1);
}

// Whether it keeps what it has is known when that is over.
BOOST_FIXTURE_TEST_CASE(who_is_being_written_of_is_not_taken, restarting_fixture)
{
    client0 a(*this, "a"), b(*this, "b"), other(*this, "a", 2);
    a.connect();
    b.connect();
    OPEN4args denying = a.creating("f");
    denying.share_deny = share4::deny_write;
    (void)a.ready(denying);
    (void)b.ready(b.creating("g"));
    clock.advance(91s);
    BOOST_TEST(b.renew() == nfsstat4::ok);
    from = {"192.0.2.7", "192.0.2.7:700", "tcp", 700};
    const SETCLIENTID4res res = other.set();
    BOOST_TEST_REQUIRE(res.status == nfsstat4::ok);
    // b's open takes a's state, which is not there in the end.
    memory->takes = [] { return 1s; };
    memory->fails = [first = true]() mutable { return std::exchange(first, false); };
    const OPEN4args args = b.opening("f");
    std::shared_ptr<memory_call> opens = prepare(
        0, [&](compound_request& out) { out.add(PUTROOTFH4args()).add(LOOKUP4args{"export"}).add(args); });
    tasks.spawn([this, opens]() -> task<void> {
        (void)co_await dispatcher->dispatch(*opens);
        opens->is_done = true;
    });
    turns();
    BOOST_TEST_REQUIRE(memory->writing == 1u);
    std::shared_ptr<memory_call> confirms = prepare(0, [&](compound_request& out) {
        out.add(SETCLIENTID_CONFIRM4args{res.clientid, res.setclientid_confirm});
    });
    tasks.spawn([this, confirms]() -> task<void> {
        (void)co_await dispatcher->dispatch(*confirms);
        confirms->is_done = true;
    });
    pass(10s, 100ms);
    BOOST_TEST_REQUIRE(confirms->is_done);
    BOOST_TEST(answer_of(*confirms).status() == nfsstat4::delay);
    BOOST_TEST_REQUIRE(opens->is_done);
    BOOST_TEST(answer_of(*opens).status() == nfsstat4::delay);
    BOOST_TEST(commons->state.stats().opens.value() == 2);
}

// --- Room for clients

BOOST_FIXTURE_TEST_CASE(a_peer_that_asks_in_vain_takes_nobodys_turn, v40_fixture)
{
    for (auto& made : options)
        BOOST_REQUIRE(made.clients.add("*"));
    limits.clients_per_peer = 1;
    const rpc::peer first = from, second = {"192.0.2.7", "192.0.2.7:700", "tcp", 700};
    client0 a(*this, "a"), b(*this, "b"), c(*this, "c"), d(*this, "d");
    a.connect();
    clock.advance(91s);
    from = second;
    b.connect();
    BOOST_TEST(d.set().status == nfsstat4::delay); // its own lease runs
    from = first;
    c.connect(); // in the place of a
    from = second;
    BOOST_TEST(b.renew() == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_peer_at_its_limit_ends_nobody_elses_client, v40_fixture)
{
    for (auto& made : options)
        BOOST_REQUIRE(made.clients.add("*"));
    limits.clients_per_peer = 1;
    const rpc::peer first = from, second = {"192.0.2.7", "192.0.2.7:700", "tcp", 700};
    client0 a(*this, "a"), b(*this, "b"), c(*this, "c");
    a.connect();
    const auto file = a.ready(a.creating("f"));
    clock.advance(91s);
    from = second;
    b.connect();
    BOOST_TEST(c.set().status == nfsstat4::delay);
    from = first;
    BOOST_TEST(a.write(file, file.id) == nfsstat4::ok);
}

// To end those of another minor version would make no room.
BOOST_FIXTURE_TEST_CASE(a_full_house_ends_its_own_clients_alone, v40_fixture)
{
    limits.clients = 1;
    client0 a(*this, "a"), b(*this, "b");
    client4 later(*this, "later");
    minor = 1;
    later.connect();
    const auto file = later.open(later.creating("g"));
    clock.advance(10s);
    minor = 0;
    a.connect();
    const auto held = a.ready(a.creating("f"));
    clock.advance(85s); // the later one's lease is over, and this one's is not
    BOOST_TEST(b.set().status == nfsstat4::delay);
    minor = 1;
    BOOST_TEST(later.write(file, "text") == nfsstat4::ok);
    // And the other way round.
    clock.advance(80s);
    client4 another(*this, "another");
    answer4 out = compound(another.exchange());
    BOOST_TEST(out.status() == nfsstat4::delay);
    minor = 0;
    BOOST_TEST(a.write(held, held.id) == nfsstat4::ok);
}

// The state layer's places are those of all minor versions together.
BOOST_FIXTURE_TEST_CASE(where_all_versions_fill_the_house_any_lease_that_is_over_ends, v40_fixture)
{
    state_limits.clients = 2;
    client0 a(*this, "a"), b(*this, "b");
    client4 later(*this, "later");
    minor = 1;
    later.connect();
    clock.advance(10s);
    minor = 0;
    a.connect();
    BOOST_TEST(commons->state.stats().clients.value() == 2);
    const SETCLIENTID4res res = b.set();
    BOOST_TEST(b.confirm(res.clientid, res.setclientid_confirm) == nfsstat4::delay);
    clock.advance(85s);
    BOOST_TEST(b.confirm(res.clientid, res.setclientid_confirm) == nfsstat4::ok);
    BOOST_TEST(a.renew() == nfsstat4::ok);
    minor = 1;
    BOOST_TEST(later.call(PUTROOTFH4args()).status() == nfsstat4::badsession);
    // Likewise for a session's client.
    clock.advance(91s);
    client4 another(*this, "another");
    another.connect();
    BOOST_TEST(commons->state.stats().clients.value() == 1);
}

BOOST_AUTO_TEST_SUITE_END()
