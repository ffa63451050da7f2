// SPDX-License-Identifier: Apache-2.0
// What session_table and its slots promise, without a server around them.
#include "nfs4_server.hpp"

#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

BOOST_AUTO_TEST_SUITE(nfs4_session_table_test)

using namespace verbena;
using namespace verbena::test;

namespace {

using shortage = session_table::shortage;
constexpr clientid4 none = 0;

struct session_fixture {
    static channel_attrs4 four_slots() { return {0, 4096, 4096, 1024, 8, 4, std::nullopt}; }
    /// `operations` are what two calls differ in here.
    slot_verdict begin(slot_use& call, std::uint32_t sequence, std::uint32_t operations = 7,
                       std::uint32_t slot = 0)
    {
        const call_mark mark(rpc::principal(), operations, true, {{}, {}, 0});
        return call.begin(*s, {s->id(), sequence, slot, 3, true}, mark);
    }
    /// A call that runs and is answered; what is kept is `text`.
    void run(std::uint32_t sequence, std::string_view text = "kept")
    {
        slot_use call;
        BOOST_TEST_REQUIRE((begin(call, sequence) == slot_verdict::run));
        call.finish(std::as_bytes(std::span(text)), {});
    }
    std::shared_ptr<session> s = std::make_shared<session>(sessionid4(), 1, 1, four_slots());
};

struct table_fixture {
    table_fixture() { limits.slots = 4; }
    session_table& table()
    {
        if (!made)
            made.emplace(siphash_key(), epoch, 90s, limits);
        return *made;
    }
    static client_owner4 named(std::string_view name, std::uint8_t boot = 1)
    {
        client_owner4 owner;
        owner.verifier[0] = std::byte(boot);
        owner.ownerid = std::as_bytes(std::span(name));
        return owner;
    }
    session_table::exchanged ask(std::string_view name, files::client_id yields = files::nobody,
                                 std::uint8_t boot = 1)
    {
        return table().exchange_id(named(name, boot), false, user, from, now, yields);
    }
    /// Its number, or `none`.
    clientid4 exchange(std::string_view name, std::uint8_t boot = 1)
    {
        const auto out = ask(name, files::nobody, boot);
        return out.status == nfsstat4::ok ? out.client : none;
    }
    static CREATE_SESSION4args session_of(clientid4 id, std::uint32_t sequence)
    {
        return client4::session_of(id, sequence);
    }
    session_table::creation begin(clientid4 id, std::uint32_t sequence = 1)
    {
        return table().begin_creation(session_of(id, sequence), user, now);
    }
    /// Both parts of CREATE_SESSION; the client in the state layer is its own number.
    CREATE_SESSION4res create(clientid4 id, std::uint32_t sequence = 1, bool must_reclaim = false)
    {
        const CREATE_SESSION4args args = session_of(id, sequence);
        const auto begun = table().begin_creation(args, user, now);
        CREATE_SESSION4res res;
        res.status = begun.status;
        if (begun.repeat)
            return *begun.repeat;
        if (begun.status != nfsstat4::ok)
            return res;
        const session_table::creating creating(table(), id);
        return table().end_creation(args, state_of(id), must_reclaim, false);
    }
    sessionid4 session_named(clientid4 id, std::uint32_t sequence = 1)
    {
        const auto res = create(id, sequence);
        BOOST_TEST_REQUIRE(res.status == nfsstat4::ok);
        return res.sessionid;
    }
    static files::client_id state_of(clientid4 id) { return files::client_id(id); }

    std::uint32_t epoch = 3;
    session_limits limits;
    principal_digest user = 1000;
    std::string_view from = "192.0.2.1";
    time_point now{1h};
    std::optional<session_table> made;
};

} // namespace

// --- Slots

// A client whose connection broke sends a call again that the server still runs.
BOOST_FIXTURE_TEST_CASE(a_repeat_of_a_call_that_runs_joins_it, session_fixture)
{
    const std::unique_ptr<reactor> shard = std::move(*reactor::create({}));
    const auto text_of = [](const slot_use& u) {
        return std::string_view(reinterpret_cast<const char*>(u.reply().data()), u.reply().size());
    };
    unsigned answered = 0;
    const auto repeat = [&](slot_verdict expected) -> task<void> {
        slot_use again;
        BOOST_TEST((begin(again, 1) == slot_verdict::joins));
        co_await again.first_ends(*shard);
        BOOST_TEST((begin(again, 1) == expected));
        BOOST_TEST((expected != slot_verdict::repeat || text_of(again) == "answer"));
        ++answered;
        if (expected == slot_verdict::run)
            again.finish();
    };
    const auto body = [&](bool finishes, slot_verdict expected) -> task<void> {
        scope tasks(*shard);
        answered = 0;
        {
            slot_use call, another;
            BOOST_TEST((begin(call, 1) == slot_verdict::run));
            tasks.spawn(repeat, expected);
            (void)co_await sleep_for(1ms);
            BOOST_TEST(answered == 0u);
            BOOST_TEST(!call.finish_unless_waited_for());
            // One may wait.
            BOOST_TEST((begin(another, 1) == slot_verdict::refused));
            BOOST_TEST(another.status() == nfsstat4::delay);
            if (finishes)
                call.finish(std::as_bytes(std::span("answer", 6)), {});
        }
        co_await tasks.join();
        BOOST_TEST(answered == 1u);
    };
    // A call that was not finished never was: its repeat runs.
    run_until_complete(*shard, body(false, slot_verdict::run));
    s = std::make_shared<session>(sessionid4(), 1, 1, four_slots());
    run_until_complete(*shard, body(true, slot_verdict::repeat));
    BOOST_TEST(s->running() == 0u);
}

BOOST_FIXTURE_TEST_CASE(whoever_asks_of_a_call_that_runs_is_to_come_again, session_fixture)
{
    slot_use call, again, next, elsewhere;
    BOOST_TEST_REQUIRE((begin(call, 1) == slot_verdict::run));
    BOOST_TEST((begin(again, 1, 2) == slot_verdict::refused));
    BOOST_TEST(again.status() == nfsstat4::delay);
    // Nor does the next call run beside it.
    BOOST_TEST((begin(next, 2) == slot_verdict::refused));
    BOOST_TEST(next.status() == nfsstat4::seq_misordered);
    BOOST_TEST((begin(elsewhere, 1, 7, 1) == slot_verdict::run));
    BOOST_TEST(s->running() == 2u);
    call.finish();
    BOOST_TEST(s->running() == 1u);
    BOOST_TEST((begin(again, 1) == slot_verdict::uncached));
}

// Whoever ends a session sees what runs on it from then on.
BOOST_FIXTURE_TEST_CASE(no_call_begins_on_a_session_that_is_over, session_fixture)
{
    slot_use runs, late, again;
    BOOST_TEST_REQUIRE((begin(runs, 1) == slot_verdict::run));
    s->end();
    BOOST_TEST((begin(late, 1, 7, 1) == slot_verdict::refused));
    BOOST_TEST(late.status() == nfsstat4::badsession);
    BOOST_TEST(s->running() == 1u);
    runs.finish();
    BOOST_TEST(s->running() == 0u);
    BOOST_TEST((begin(again, 1) == slot_verdict::uncached)); // which changes nothing
    BOOST_TEST((begin(again, 2) == slot_verdict::refused));
}

BOOST_FIXTURE_TEST_CASE(a_call_that_found_its_session_before_it_went_does_not_begin, table_fixture)
{
    const clientid4 id = exchange("c");
    const CREATE_SESSION4res made = create(id);
    BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
    const std::shared_ptr<session> found = table().find(made.sessionid);
    BOOST_TEST_REQUIRE(found);
    table().forget(id);
    slot_use call;
    BOOST_TEST((call.begin(*found, {made.sessionid, 1, 0, 0, false}, call_mark()) == slot_verdict::refused));
    BOOST_TEST(call.status() == nfsstat4::badsession);
}

BOOST_FIXTURE_TEST_CASE(recent_sessions_are_found_until_they_end, table_fixture)
{
    const clientid4 id = exchange("c");
    const CREATE_SESSION4res made = create(id);
    BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
    recent_sessions recent(table());
    std::shared_ptr<session> first = recent.find(made.sessionid);
    BOOST_TEST_REQUIRE(first);
    BOOST_TEST((recent.find(made.sessionid) == first));
    sessionid4 other = made.sessionid; // in the same place
    other.front() ^= std::byte(1);
    BOOST_TEST(!recent.find(other));
    BOOST_TEST((recent.find(made.sessionid) == first));
    const std::weak_ptr<session> kept = first;
    table().forget(id);
    BOOST_TEST(!recent.find(made.sessionid)); // though a call has it
    first.reset();
    BOOST_TEST(kept.expired());
}

// Those that are no limits to be changed are read without a lock.
BOOST_FIXTURE_TEST_CASE(limits_that_may_be_set_are_set_and_no_others, table_fixture)
{
    session_limits most;
    most.sessions = 7;
    most.slots = 1;
    table().set_limits(most);
    BOOST_TEST(table().limits().sessions == 7u);
    BOOST_TEST(table().limits().slots == 4u);
}

BOOST_FIXTURE_TEST_CASE(a_call_that_was_not_finished_never_was, session_fixture)
{
    run(1);
    for (int i = 0; i < 3; ++i) {
        slot_use dropped;
        BOOST_TEST((begin(dropped, 2) == slot_verdict::run));
        BOOST_TEST(s->running() == 1u);
    }
    BOOST_TEST(s->running() == 0u);
    // What was kept of the call before it is there still (8881 18.46.3).
    slot_use before;
    BOOST_TEST((begin(before, 1) == slot_verdict::repeat));
    run(2);
}

BOOST_FIXTURE_TEST_CASE(a_call_that_counts_never_runs_again, session_fixture)
{
    {
        slot_use dropped;
        BOOST_TEST_REQUIRE((begin(dropped, 1) == slot_verdict::run));
        dropped.counts();
    }
    slot_use again;
    BOOST_TEST((begin(again, 1) == slot_verdict::uncached));
    BOOST_TEST(s->running() == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_repeat_has_the_places_of_its_data, session_fixture)
{
    const xdr::payload_item items[] = {{8, 16, 4096}, {12, 4116, 7}};
    slot_use call, again;
    BOOST_TEST_REQUIRE((begin(call, 1) == slot_verdict::run));
    call.finish(std::as_bytes(std::span("reply", 5)), items);
    BOOST_TEST((begin(again, 1) == slot_verdict::repeat));
    BOOST_TEST(again.reply().size() == 5u);
    BOOST_TEST_REQUIRE(again.items().size() == 2u);
    BOOST_TEST(again.items()[1].position == 4116u);
    BOOST_TEST(again.items()[1].length == 7u);
}

BOOST_FIXTURE_TEST_CASE(a_slot_that_there_is_not_is_none, session_fixture)
{
    slot_use call;
    BOOST_TEST((begin(call, 1, 7, 4) == slot_verdict::refused));
    BOOST_TEST(call.status() == nfsstat4::badslot);
    BOOST_TEST(s->running() == 0u);
}

// A slot keeps bytes of the reply and the places of its data items, and is something itself.
BOOST_AUTO_TEST_CASE(what_a_slot_takes_is_more_than_what_it_keeps)
{
    constexpr std::size_t items = xdr::encoder::max_payloads * sizeof(xdr::payload_item);
    const auto bytes = [](std::uint32_t kept, std::uint32_t slots) {
        return session::bytes_of({0, 0, 0, kept, 0, slots, std::nullopt});
    };
    BOOST_TEST(bytes(0, 1) >=
               items + sizeof(std::vector<std::byte>) + sizeof(std::vector<xdr::payload_item>));
    BOOST_TEST(bytes(1000, 1) == bytes(0, 1) + 1000);
    BOOST_TEST(bytes(1000, 7) == bytes(1000, 1) * 7);
}

BOOST_FIXTURE_TEST_CASE(a_lease_is_renewed_once_a_second, session_fixture)
{
    const time_point now{1h};
    BOOST_TEST(s->is_due(now));
    BOOST_TEST(!s->is_due(now + 999ms));
    BOOST_TEST(s->is_due(now + 1s));
    BOOST_TEST(!s->is_due(now + 1999ms));
}

// --- Who gets a client

// One name has one client that is not confirmed, however often somebody asks.
BOOST_FIXTURE_TEST_CASE(who_asks_again_takes_no_second_place, table_fixture)
{
    const clientid4 first = exchange("a");
    const clientid4 second = exchange("a");
    BOOST_TEST(table().clients() == 1u);
    BOOST_TEST(create(first).status == nfsstat4::stale_clientid);
    BOOST_TEST(create(second).status == nfsstat4::ok);
    // The number that it is told is the one to go on with.
    const auto again = ask("a");
    BOOST_TEST(again.client == second);
    BOOST_TEST(again.sequence == 2u);
    BOOST_TEST(create(second, again.sequence).status == nfsstat4::ok);
    BOOST_TEST(table().clients() == 1u);
}

BOOST_FIXTURE_TEST_CASE(who_is_refused_leaves_nothing, table_fixture)
{
    const auto update = [this](const char* name, std::uint8_t boot = 1) {
        return table().exchange_id(named(name, boot), true, user, from, now).status;
    };
    BOOST_TEST(update("a") == nfsstat4::noent);
    BOOST_TEST(table().clients() == 0u);
    (void)session_named(exchange("a"));
    BOOST_TEST(update("a", 2) == nfsstat4::not_same);
    user = 1001;
    BOOST_TEST(update("a") == nfsstat4::perm);
    BOOST_TEST(ask("a").status == nfsstat4::clid_inuse);
    BOOST_TEST(table().clients() == 1u);
    BOOST_TEST(table().names() == 1u);
}

// Names and peers come from outside: what stays of them would have no limit.
BOOST_FIXTURE_TEST_CASE(nothing_stays_of_who_is_gone, table_fixture)
{
    limits.clients_per_peer = 2;
    for (const char* name : {"a", "b", "c", "d"})
        BOOST_TEST(exchange(name) != none);
    BOOST_TEST(table().clients() == 2u);
    BOOST_TEST(table().names() == 2u);
    const clientid4 there = exchange("there");
    const sessionid4 session = session_named(there);
    BOOST_TEST(table().name_of(state_of(there)).client == there);
    BOOST_TEST(table().of(state_of(there)).size() == 1u);
    now += 91s;
    table().drop_unconfirmed(now);
    BOOST_TEST(table().clients() == 1u);
    BOOST_TEST(table().names() == 1u);
    BOOST_TEST(table().may_expire_lapsed(shortage::of_peer, from, now));
    table().forget(there);
    BOOST_TEST(!table().find(session));
    BOOST_TEST(table().name_of(state_of(there)).client == none);
    BOOST_TEST(table().states_of(from).empty());
    BOOST_TEST(table().names() == 0u);
    BOOST_TEST(table().slot_bytes() == 0u);
    BOOST_TEST(!table().may_expire_lapsed(shortage::of_peer, from, now + 1s)); // there is no such peer
}

// Nor of a peer that got no client.
BOOST_FIXTURE_TEST_CASE(nothing_stays_of_who_came_in_vain, table_fixture)
{
    limits.clients = 1;
    (void)session_named(exchange("a"));
    from = "192.0.2.2";
    const auto refused = ask("b");
    BOOST_TEST(refused.status == nfsstat4::delay);
    BOOST_TEST((refused.short_of == shortage::of_all));
    BOOST_TEST(!table().may_expire_lapsed(shortage::of_peer, from, now));
    BOOST_TEST(table().names() == 1u);
}

BOOST_FIXTURE_TEST_CASE(who_is_about_to_be_confirmed_is_not_dropped, table_fixture)
{
    limits.clients_per_peer = 1;
    const clientid4 a = exchange("a");
    BOOST_TEST_REQUIRE(begin(a).status == nfsstat4::ok);
    BOOST_TEST((ask("b").short_of == shortage::of_peer));
    BOOST_TEST(ask("a").status == nfsstat4::delay); // nor for another one of its name
    now += 91s;
    table().drop_unconfirmed(now);
    BOOST_TEST(table().end_creation(session_of(a, 1), state_of(a), false, false).status == nfsstat4::ok);
}

// A peer's own go first, so that it can't push others out.
BOOST_FIXTURE_TEST_CASE(who_has_too_many_loses_its_own, table_fixture)
{
    limits.clients = 2;
    const clientid4 elsewhere = exchange("elsewhere");
    from = "192.0.2.2";
    const clientid4 own = exchange("own");
    BOOST_TEST(exchange("next") != none);
    BOOST_TEST(create(own).status == nfsstat4::stale_clientid);
    from = "192.0.2.1";
    BOOST_TEST(create(elsewhere).status == nfsstat4::ok);
}

// But for those that nobody waits for any more.
BOOST_FIXTURE_TEST_CASE(who_was_waited_for_long_enough_goes_first, table_fixture)
{
    limits.clients = 2;
    (void)exchange("old");
    now += 91s;
    from = "192.0.2.2";
    const clientid4 own = exchange("own");
    BOOST_TEST(exchange("next") != none);
    BOOST_TEST(create(own).status == nfsstat4::ok);
}

// Somebody else may have a name whose client has nothing; here it is about to have a session.
BOOST_FIXTURE_TEST_CASE(a_name_is_not_taken_while_a_session_is_being_made, table_fixture)
{
    const clientid4 a = exchange("a");
    const sessionid4 session = session_named(a);
    BOOST_TEST(table().destroy_session(session, user, 0) == nfsstat4::ok);
    BOOST_TEST_REQUIRE(begin(a, 2).status == nfsstat4::ok);
    user = 1001;
    BOOST_TEST(ask("a").status == nfsstat4::clid_inuse);
    BOOST_TEST(ask("a").rival == state_of(a));
    BOOST_TEST(table().name_of(state_of(a)).creating);
    {
        const session_table::creating over(table(), a);
    }
    BOOST_TEST(!table().name_of(state_of(a)).creating);
}

// What it had in the state layer is gone by then, so nothing that it still does may keep its name.
BOOST_FIXTURE_TEST_CASE(a_name_is_free_when_what_its_client_had_is_gone, table_fixture)
{
    const clientid4 a = exchange("a");
    const sessionid4 session = session_named(a);
    BOOST_TEST(!table().name_of(state_of(a)).running);
    BOOST_TEST(table().name_of(state_of(a)).has_sessions);
    const std::shared_ptr<verbena::nfs::v4::session> of = table().find(session);
    BOOST_TEST_REQUIRE(of);
    slot_use call;
    BOOST_TEST((call.begin(*of, {session, 1, 0, 0, false}, call_mark()) == slot_verdict::run));
    BOOST_TEST(table().name_of(state_of(a)).running);
    BOOST_TEST_REQUIRE(begin(a, 2).status == nfsstat4::ok);
    user = 1001;
    BOOST_TEST(ask("a", state_of(a)).status == nfsstat4::ok);
    BOOST_TEST(!table().find(session));
    BOOST_TEST(table().end_creation(session_of(a, 2), state_of(a), false, false).status ==
               nfsstat4::stale_clientid);
    BOOST_TEST(table().sessions() == 0u);
}

BOOST_FIXTURE_TEST_CASE(numbers_tell_one_start_from_another, table_fixture)
{
    const clientid4 a = exchange("a");
    BOOST_TEST((a >> 32) == 3u);
    const sessionid4 one = session_named(a), other = session_named(a, 2);
    // Half of a session's name is a number that nobody guesses.
    const auto half = [](const sessionid4& id) { return xdr::load_u64(id.data() + 8); };
    BOOST_TEST(half(one) != 0u);
    BOOST_TEST(half(other) != 0u);
    BOOST_TEST(half(one) != half(other));
}

// --- CREATE_SESSION

BOOST_FIXTURE_TEST_CASE(one_session_is_made_at_a_time, table_fixture)
{
    const clientid4 a = exchange("a");
    BOOST_TEST(create(a, 0).status == nfsstat4::seq_misordered); // 8881 18.36.4
    BOOST_TEST_REQUIRE(begin(a).status == nfsstat4::ok);
    BOOST_TEST(begin(a).status == nfsstat4::delay);
    files::client_id state = files::nobody;
    BOOST_TEST(table().may_destroy_client(a, user, state) == nfsstat4::clientid_busy);
    BOOST_TEST(table().end_creation(session_of(a, 1), state_of(a), false, false).status == nfsstat4::ok);
    BOOST_TEST(table().name_of(state_of(a)).creating);
    {
        const session_table::creating over(table(), a);
    }
    BOOST_TEST(!table().name_of(state_of(a)).creating);
    BOOST_TEST(begin(a, 2).status == nfsstat4::ok);
}

// No second call with its number comes between a refusal and its note, over whatever connection.
BOOST_FIXTURE_TEST_CASE(a_refusal_uses_up_its_number_at_once, table_fixture)
{
    const clientid4 a = exchange("a");
    CREATE_SESSION4args wrong = session_of(a, 1);
    wrong.flags = 0x100;
    BOOST_TEST(table().begin_creation(wrong, user, now).status == nfsstat4::inval);
    BOOST_TEST(create(a, 1).status == nfsstat4::inval);
    // Only in the life of its `creating`, in which no other one has its number.
    table().refuse_creation(session_of(a, 2), nfsstat4::serverfault);
    BOOST_TEST_REQUIRE(begin(a, 2).status == nfsstat4::ok);
    {
        const session_table::creating creating(table(), a);
        table().refuse_creation(session_of(a, 3), nfsstat4::serverfault);
        table().refuse_creation(session_of(a, 2), nfsstat4::delay);
        table().refuse_creation(session_of(a, 2), nfsstat4::expired);
        table().refuse_creation(session_of(a, 2), nfsstat4::serverfault);
    }
    BOOST_TEST(create(a, 2).status == nfsstat4::expired);
    BOOST_TEST(create(a, 3).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_channel_has_what_was_asked_for_and_no_more_than_there_is, table_fixture)
{
    limits.request_size = 5000;
    limits.response_size = 6000;
    limits.cached_response_size = 700;
    limits.operations = 9;
    channel_attrs4 granted;
    granted.headerpadsize = 8;
    BOOST_TEST(table().grant({512, 1u << 30, 1u << 30, 1u << 30, 1u << 30, 1u << 30, std::nullopt},
                             granted) == nfsstat4::ok);
    BOOST_CHECK((granted == channel_attrs4{0, 5000, 6000, 700, 9, 4, std::nullopt}));
    BOOST_TEST(table().grant({0, 256, 256, 0, 2, 1, std::nullopt}, granted) == nfsstat4::ok);
    BOOST_CHECK((granted == channel_attrs4{0, 256, 256, 0, 2, 1, std::nullopt}));
    BOOST_TEST(table().grant({0, 255, 256, 0, 2, 1, std::nullopt}, granted) == nfsstat4::toosmall);
    BOOST_TEST(table().grant({0, 256, 255, 0, 2, 1, std::nullopt}, granted) == nfsstat4::toosmall);
    BOOST_TEST(table().grant({0, 256, 256, 0, 1, 1, std::nullopt}, granted) == nfsstat4::toosmall);
    BOOST_TEST(table().grant({0, 256, 256, 0, 2, 0, std::nullopt}, granted) == nfsstat4::toosmall);
}

BOOST_FIXTURE_TEST_CASE(a_back_channel_is_answered_as_it_was_asked_for, table_fixture)
{
    const clientid4 a = exchange("a");
    CREATE_SESSION4args args = session_of(a, 1);
    args.flags = create_session4::conn_back_chan;
    args.back_chan_attrs = {};
    BOOST_TEST(table().begin_creation(args, user, now).status == nfsstat4::toosmall);
    args.back_chan_attrs = {64, 4096, 4096, 0, 2, 1, 3};
    BOOST_TEST(table().begin_creation(args, user, now).status == nfsstat4::ok);
    const auto res = table().end_creation(args, state_of(a), false, false);
    BOOST_CHECK((res.back_chan_attrs == channel_attrs4{0, 4096, 4096, 0, 2, 1, std::nullopt}));
}

BOOST_FIXTURE_TEST_CASE(sessions_have_limits_of_client_and_of_all, table_fixture)
{
    limits.sessions_per_client = 2;
    limits.sessions = 3;
    const clientid4 a = exchange("a"), b = exchange("b");
    (void)session_named(a);
    (void)session_named(a, 2);
    BOOST_TEST(create(a, 3).status == nfsstat4::nospc);
    BOOST_TEST((begin(a, 3).short_of == shortage::none)); // to end others makes no room
    const sessionid4 last = session_named(b);
    BOOST_TEST(create(b, 2).status == nfsstat4::delay); // others may end theirs
    BOOST_TEST((begin(b, 2).short_of == shortage::of_all));
    BOOST_TEST(table().destroy_session(last, user, 0) == nfsstat4::ok);
    BOOST_TEST(create(b, 2).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(what_slots_of_a_peer_take_comes_back, table_fixture)
{
    channel_attrs4 one = session_of(1, 1).fore_chan_attrs;
    one.maxrequests = 1;
    one.maxresponsesize_cached = limits.cached_response_size;
    limits.slot_bytes_per_peer = session::bytes_of(one);
    const clientid4 a = exchange("a");
    for (std::uint32_t sequence = 1; sequence < 4; ++sequence) {
        const sessionid4 made_one = session_named(a, sequence);
        BOOST_TEST(table().find(made_one)->slots() == 1u);
        // There is no session without any slot.
        const auto refused = begin(a, sequence + 1);
        BOOST_TEST(refused.status == nfsstat4::delay);
        BOOST_TEST((refused.short_of == shortage::of_peer));
        BOOST_TEST(table().destroy_session(made_one, user, 0) == nfsstat4::ok);
        BOOST_TEST(table().slot_bytes() == 0u);
    }
}

// Two clients begin while there is room for one of them.
BOOST_FIXTURE_TEST_CASE(who_is_late_has_no_session, table_fixture)
{
    limits.sessions = 1;
    const clientid4 a = exchange("a"), b = exchange("b");
    BOOST_TEST_REQUIRE(begin(a).status == nfsstat4::ok);
    BOOST_TEST_REQUIRE(begin(b).status == nfsstat4::ok);
    BOOST_TEST(table().end_creation(session_of(a, 1), state_of(a), false, false).status == nfsstat4::ok);
    BOOST_TEST(table().end_creation(session_of(b, 1), state_of(b), false, false).status == nfsstat4::delay);
    BOOST_TEST(table().sessions() == 1u);
}

// Of each of its sessions, until it says that it has reclaimed all.
BOOST_FIXTURE_TEST_CASE(a_client_that_must_reclaim_hears_it_in_each_session, table_fixture)
{
    const clientid4 a = exchange("a");
    const auto first = table().find(create(a, 1, true).sessionid);
    const auto second = table().find(create(a, 2).sessionid);
    BOOST_TEST_REQUIRE((first && second));
    BOOST_TEST(first->must_reclaim());
    BOOST_TEST(second->must_reclaim());
    table().reclaimed(a);
    BOOST_TEST(!first->must_reclaim());
    BOOST_TEST(!second->must_reclaim());
    BOOST_TEST(!table().find(create(a, 3).sessionid)->must_reclaim());
}

// --- What ends

BOOST_FIXTURE_TEST_CASE(a_session_stays_while_a_call_runs_on_it, table_fixture)
{
    const sessionid4 id = session_named(exchange("a"));
    const std::shared_ptr<session> of = table().find(id);
    BOOST_TEST_REQUIRE(of);
    {
        slot_use call;
        BOOST_TEST((call.begin(*of, {id, 1, 0, 0, false}, call_mark()) == slot_verdict::run));
        BOOST_TEST(table().destroy_session(id, user, 0) == nfsstat4::delay);
        BOOST_TEST_REQUIRE(bool(table().find(id)));
        slot_use other;
        BOOST_TEST((other.begin(*of, {id, 1, 1, 1, false}, call_mark()) == slot_verdict::run));
        BOOST_TEST(table().destroy_session(id, user, 1) == nfsstat4::delay); // the other one's
    }
    slot_use own;
    BOOST_TEST((own.begin(*of, {id, 1, 0, 0, false}, call_mark()) == slot_verdict::run));
    BOOST_TEST(table().destroy_session(id, user, 1) == nfsstat4::ok);
    BOOST_TEST(!table().find(id));
}

BOOST_FIXTURE_TEST_CASE(room_is_looked_for_once_a_second, table_fixture)
{
    (void)session_named(exchange("a"));
    BOOST_TEST(!table().may_expire_lapsed(shortage::none, from, now));
    BOOST_TEST(table().may_expire_lapsed(shortage::of_all, from, now));
    BOOST_TEST(table().may_expire_lapsed(shortage::of_peer, from, now)); // each peer has its own
    for (const shortage of : {shortage::of_all, shortage::of_peer}) {
        BOOST_TEST(!table().may_expire_lapsed(of, from, now + 999ms));
        BOOST_TEST(table().may_expire_lapsed(of, from, now + 1s));
    }
}

// 8881 2.10.6.1.3.1
BOOST_AUTO_TEST_CASE(calls_are_told_apart_by_who_sends_them_and_how_they_begin)
{
    const std::array<std::byte, 20> text{};
    std::array<std::byte, 20> other = text;
    other.back() = std::byte(1);
    const auto of = [](std::span<const std::byte> bytes, std::size_t first = 20) {
        return call_digest::bytes_of(bytes.first(first), bytes.subspan(first), bytes.size());
    };
    const rpc::principal user(0, 0, {});
    const call_mark mark(user, 3, true, of(text));
    BOOST_TEST((mark == call_mark(rpc::principal(0, 0, std::vector<std::uint32_t>{7}), 3, true, of(text))));
    BOOST_TEST((mark == call_mark(user, 3, true, of(text, 9)))); // in two pieces
    BOOST_TEST(!(mark == call_mark(rpc::principal(), 3, true, of(text))));
    BOOST_TEST(!(mark == call_mark(rpc::principal(1, 0, {}), 3, true, of(text))));
    BOOST_TEST(!(mark == call_mark(rpc::principal(0, 1, {}), 3, true, of(text))));
    BOOST_TEST(!(mark == call_mark(user, 4, true, of(text))));
    BOOST_TEST(!(mark == call_mark(user, 3, false, of(text))));
    BOOST_TEST(!(mark == call_mark(user, 3, true, of(other))));
}

BOOST_AUTO_TEST_SUITE_END()
