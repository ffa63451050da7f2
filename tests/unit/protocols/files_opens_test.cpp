// SPDX-License-Identifier: Apache-2.0
// Opens and their share reservations, stateids, and operations without an open.
#include "files_fixture.hpp"

#include <set>

BOOST_AUTO_TEST_SUITE(files_opens_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;

using enum share;

BOOST_FIXTURE_TEST_CASE(an_open_has_a_stateid_until_it_is_closed, files_fixture)
{
    const client_id a = client("a");
    BOOST_TEST(!table->commons().has_state(file_named("f")));
    const auto o = open(a, "o", "f", both);
    BOOST_REQUIRE(o);
    BOOST_TEST(o->id.seqid == 1u);
    BOOST_TEST(!is_special(o->id));
    BOOST_TEST(table->commons().has_state(file_named("f")));
    BOOST_TEST(table->stats().opens.value() == 1);
    BOOST_TEST(table->stats().files.value() == 1);
    BOOST_TEST(table->stats().open_owners.value() == 1);
    BOOST_TEST(table->close(a, o->id, file_named("f")).has_value());
    BOOST_TEST(!table->commons().has_state(file_named("f")));
    BOOST_TEST(table->stats().opens.value() == 0);
    BOOST_TEST(table->stats().files.value() == 0);
    BOOST_TEST(table->stats().open_owners.value() == 0);
    BOOST_TEST(is(table->close(a, o->id, file_named("f")), errc::bad_stateid));
}

// Who cuts a file writes to it, whatever he opens it for.
BOOST_FIXTURE_TEST_CASE(an_open_that_cuts_is_denied_as_a_write, files_fixture)
{
    const client_id a = client("a"), b = client("b");
    BOOST_REQUIRE(open(a, "o", "f", read, write));
    open_request r = request(b, "o", "f", read);
    r.truncates = true;
    BOOST_TEST(is(table->open(r), errc::share_denied));
    r.truncates = false;
    BOOST_TEST(table->open(r).has_value());
}

// RFC 8881 9.7: access of each against what the other denies, also of one owner.
BOOST_FIXTURE_TEST_CASE(shares_are_decided_by_the_table, files_fixture)
{
    const client_id a = client("a"), b = client("b");
    for (unsigned access = 1; access <= 3; ++access)
        for (unsigned deny = 0; deny <= 3; ++deny)
            for (unsigned access2 = 1; access2 <= 3; ++access2)
                for (unsigned deny2 = 0; deny2 <= 3; ++deny2)
                    for (const bool same_owner : {false, true}) {
                        const auto first = open(a, "o", "f", share(access), share(deny));
                        BOOST_REQUIRE(first);
                        const auto second = open(same_owner ? a : b, same_owner ? "o" : "p", "f",
                                                 share(access2), share(deny2));
                        const bool granted = (access & deny2) == 0 && (deny & access2) == 0;
                        BOOST_REQUIRE(second.has_value() == granted);
                        if (granted && same_owner) {
                            BOOST_TEST((second->id.other == first->id.other));
                            BOOST_TEST(second->id.seqid == 2u);
                        } else if (granted) {
                            BOOST_TEST((second->id.other != first->id.other));
                            BOOST_REQUIRE(table->close(b, second->id, file_named("f")));
                        } else {
                            BOOST_TEST(is(second, errc::share_denied));
                        }
                        stateid newest = first->id;
                        newest.seqid = 0;
                        BOOST_REQUIRE(table->close(a, newest, file_named("f")));
                        BOOST_REQUIRE(table->stats().files.value() == 0);
                    }
    BOOST_TEST(table->stats().share_denials.value() > 0u);
}

BOOST_FIXTURE_TEST_CASE(access_and_deny_are_what_they_can_be, files_fixture)
{
    const client_id a = client("a");
    BOOST_TEST(is(open(a, "o", "f", none), errc::invalid));
    BOOST_TEST(is(open(a, "o", "f", share(4)), errc::invalid));
    BOOST_TEST(is(open(a, "o", "f", read, share(5)), errc::invalid));
    BOOST_TEST(is(open(a, std::string(1025, 'o'), "f", read), errc::invalid));
    BOOST_TEST(open(a, std::string(1024, 'o'), "f", read).has_value());
}

// RFC 8881 18.18.3.
BOOST_FIXTURE_TEST_CASE(a_downgrade_goes_to_a_union_of_opens, files_fixture)
{
    struct row {
        std::vector<std::pair<share, share>> opened;
        share access, deny;
        bool good;
    } const rows[] = {
        {{{read, none}, {both, none}}, read, none, true},
        {{{both, none}}, read, none, false}, // was never opened so: OPDG2
        {{{read, none}, {write, none}}, write, none, true},
        {{{read, none}, {write, none}}, both, none, true},
        {{{both, none}}, both, none, true}, // what it is
        {{{read, none}}, both, none, false},
        {{{read, none}}, read, write, false},
        {{{read, none}, {read, write}}, read, write, true},
        {{{read, none}, {read, write}}, read, none, true},
        {{{read, write}}, read, none, false},                 // the deny bit alone can't go
        {{{read, write}, {write, none}}, write, none, false}, // one owner's opens conflict, too: see below
        {{{read, none}}, none, none, false},
        {{{read, none}}, share(4), none, false},
    };
    const client_id a = client("a");
    for (const row& r : rows) {
        std::optional<opened> last;
        bool all = true;
        for (const auto& [access, deny] : r.opened)
            if (auto made = open(a, "o", "f", access, deny))
                last = *made;
            else
                all = false;
        const auto down = table->downgrade(a, last->id, file_named("f"), r.access, r.deny);
        BOOST_TEST(down.has_value() == (r.good && all), int(r.access) << " " << int(r.deny));
        if (down) {
            BOOST_TEST(down->seqid == last->id.seqid + 1);
            last->id = *down;
        } else {
            BOOST_TEST(is(down, errc::invalid));
        }
        BOOST_REQUIRE(table->close(a, last->id, file_named("f")));
    }
}

BOOST_FIXTURE_TEST_CASE(what_a_downgrade_gave_up_is_gone, files_fixture)
{
    const client_id a = client("a"), b = client("b");
    BOOST_REQUIRE(open(a, "o", "f", read));
    const auto o = open(a, "o", "f", read, write);
    BOOST_REQUIRE(o);
    BOOST_TEST(is(open(b, "p", "f", write), errc::share_denied));
    const auto down = table->downgrade(a, o->id, file_named("f"), read, none);
    BOOST_REQUIRE(down);
    // Back to what it was: that open is no more.
    BOOST_TEST(is(table->downgrade(a, *down, file_named("f"), read, write), errc::invalid));
    BOOST_TEST(open(b, "p", "f", write).has_value());
}

// RFC 8881 8.2.4, in its order.
BOOST_FIXTURE_TEST_CASE(a_stateid_is_checked_in_order, files_fixture)
{
    const client_id a = client("a"), b = client("b");
    auto o = open(a, "o", "f", read);
    BOOST_REQUIRE(open(a, "o", "f", read));
    o = open(a, "o", "f", read);
    BOOST_REQUIRE(o);
    BOOST_TEST(o->id.seqid == 3u);
    const auto close = [&](client_id c, stateid id, const char* file, zero_seqid zero = zero_seqid::newest) {
        const auto done = table->close(c, id, file_named(file), zero);
        return done ? errc(0) : errc(done.error().code().value());
    };
    stateid id = o->id;
    BOOST_TEST((close(a + 17, id, "f") == errc::stale_client));
    id.other.fill(std::byte(0));
    BOOST_TEST((close(a, id, "f") == errc::bad_stateid));
    id.other.fill(std::byte(0xff));
    BOOST_TEST((close(a, id, "f") == errc::bad_stateid));
    for (const std::size_t at : {4, 7, 8, 11}) { // place and tag
        id = o->id;
        id.other[at] ^= std::byte(1);
        BOOST_TEST((close(a, id, "f") == errc::bad_stateid), at);
    }
    id = o->id;
    id.other[0] ^= std::byte(1);
    BOOST_TEST((close(a, id, "f") == errc::stale_stateid));
    BOOST_TEST((close(a, o->id, "g") == errc::bad_stateid));
    BOOST_TEST((close(b, o->id, "f") == errc::bad_stateid));
    id = o->id;
    id.seqid = 4;
    BOOST_TEST((close(a, id, "f") == errc::bad_stateid));
    id.seqid = 2;
    BOOST_TEST((close(a, id, "f") == errc::old_stateid));
    // Another client's is that before its number is looked at.
    BOOST_TEST((close(b, id, "f") == errc::bad_stateid));
    id.seqid = 0;
    BOOST_TEST((close(a, id, "f", zero_seqid::a_number) == errc::old_stateid));
    BOOST_TEST((close(a, id, "f") == errc(0)));
}

// An OPEN that races with a CLOSE must not get the same `other`: a client waits for numbers that never come.
BOOST_FIXTURE_TEST_CASE(no_other_is_used_twice, files_fixture)
{
    const client_id a = client("a");
    std::set<std::array<std::byte, 12>> seen;
    for (int i = 0; i < 5000; ++i) {
        const auto o = open(a, "o", "f", read);
        BOOST_REQUIRE(o);
        BOOST_REQUIRE(o->id.seqid == 1u);
        BOOST_REQUIRE(seen.insert(o->id.other).second);
        BOOST_REQUIRE(table->close(a, o->id, file_named("f")));
    }
}

BOOST_FIXTURE_TEST_CASE(others_are_not_guessed, files_fixture)
{
    // The same opens under another key have other tags.
    const client_id a = client("a");
    const auto o = open(a, "o", "f", read);
    recovery_lists other_lists;
    other_lists.begin();
    memory_store other_store(other_lists);
    siphash_key other_key{};
    other_key[0] = std::byte(1);
    table_commons other(other_key);
    client_book others(other, place.here, other_store, handler, options());
    state_table twin(other, others, 0, place.here, handler);
    const client_id b = *others.add_client("a");
    BOOST_REQUIRE(run(others.reclaim_complete(b)));
    open_request r = request(b, "o", "f", read);
    const auto p = twin.open(r);
    BOOST_REQUIRE((o && p));
    BOOST_TEST(std::equal(o->id.other.begin(), o->id.other.begin() + 8, p->id.other.begin()));
    BOOST_TEST((o->id.other != p->id.other));
}

BOOST_FIXTURE_TEST_CASE(a_begun_open_holds_its_shares_and_no_number, files_fixture)
{
    const client_id a = client("a"), b = client("b");
    const auto first = open(a, "o", "f", read);
    {
        pending_open p;
        BOOST_REQUIRE(table->begin_open(request(a, "o", "f", read, write), p));
        BOOST_TEST(is(open(b, "p", "f", write), errc::share_denied));
        BOOST_TEST(*book->is_in_use(a));
    }
    // Given up: it never was, and no number is missing.
    const auto second = open(b, "p", "f", write);
    BOOST_REQUIRE(second);
    BOOST_REQUIRE(table->close(b, second->id, file_named("f")));
    pending_open p, q;
    BOOST_REQUIRE(table->begin_open(request(a, "o", "f", read), p));
    BOOST_REQUIRE(table->begin_open(request(a, "o", "f", both), q));
    const auto q_done = table->commit(q);
    const auto p_done = table->commit(p);
    BOOST_TEST(q_done->id.seqid == first->id.seqid + 1);
    BOOST_TEST(p_done->id.seqid == first->id.seqid + 2);
}

BOOST_FIXTURE_TEST_CASE(a_begun_open_alone_keeps_the_entry, files_fixture)
{
    const client_id a = client("a");
    {
        pending_open p;
        BOOST_REQUIRE(table->begin_open(request(a, "o", "f", read), p));
        BOOST_TEST(table->commons().has_state(file_named("f")));
    }
    BOOST_TEST(!table->commons().has_state(file_named("f")));
    BOOST_TEST(table->stats().files.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(an_open_of_a_client_that_went_meanwhile_is_none, files_fixture)
{
    const client_id a = client("a");
    pending_open p;
    BOOST_REQUIRE(table->begin_open(request(a, "o", "f", read), p));
    BOOST_REQUIRE(run(book->forget(a)));
    BOOST_TEST(is(table->commit(p), errc::stale_client));
}

// READ, WRITE and SETATTR without an open (version 3, anonymous stateids) against deny bits.
BOOST_FIXTURE_TEST_CASE(io_without_an_open_minds_deny_bits, files_fixture)
{
    const client_id a = client("a");
    using enum operation;
    for (unsigned deny = 0; deny <= 3; ++deny) {
        const auto o = open(a, "o", "f", share::both, share(deny));
        BOOST_REQUIRE(o);
        struct {
            operation op;
            share wants;
        } const rows[] = {{operation::read, share::read}, {operation::write, share::write},
                          {set_size, share::write},       {set_attributes, share::none},
                          {get_attributes, share::none},  {rename, share::none},
                          {remove, share::none},          {link, share::none}};
        for (const auto& row : rows) {
            const auto done = check(row.op, "f");
            const bool denied = (unsigned(row.wants) & deny) != 0;
            BOOST_TEST(done.has_value() == !denied, int(row.op) << " " << deny);
            if (denied)
                BOOST_TEST(is(done, errc::locked));
        }
        // The stateid that may read past them.
        demand d(operation::read, file_named("f"));
        BOOST_TEST(table->check(d.past_denies()).has_value());
        BOOST_REQUIRE(table->close(a, o->id, file_named("f")));
    }
}

BOOST_FIXTURE_TEST_CASE(io_by_an_open_needs_its_access, files_fixture)
{
    const client_id a = client("a"), b = client("b");
    const auto reads = open(a, "r", "f", read), writes = open(a, "w", "f", write);
    const auto io = [&](const stateid& id, share access, const char* file = "f") {
        const auto done = check_io(a, id, file, access);
        return done ? errc(0) : errc(done.error().code().value());
    };
    BOOST_TEST((io(reads->id, read) == errc(0)));
    BOOST_TEST((io(reads->id, write) == errc::open_mode)); // WRT8
    BOOST_TEST((io(writes->id, write) == errc(0)));
    BOOST_TEST((io(writes->id, read) == errc(0))); // let pass, RFC 8881 18.22.3
    BOOST_TEST((io(writes->id, write, "g") == errc::bad_stateid));
    BOOST_REQUIRE(table->close(a, reads->id, file_named("f")));
    const auto denies = open(b, "d", "f", write, read);
    BOOST_REQUIRE(denies);
    BOOST_TEST((io(writes->id, read) == errc::locked));
    BOOST_TEST((io(writes->id, write) == errc(0)));
}

BOOST_FIXTURE_TEST_CASE(io_knows_whether_it_keeps_writers_out, files_fixture)
{
    const client_id a = client("a"), b = client("b");
    const auto keeps_out = [&](const stateid& id, const char* file, client_id who = 0) {
        const auto granted = check_io(who == 0 ? a : who, id, file, read);
        BOOST_REQUIRE(granted);
        return granted->keeps_writers_out;
    };
    BOOST_TEST(!keeps_out(open(a, "1", "f", both)->id, "f"));
    BOOST_TEST(!keeps_out(open(a, "2", "g", both, read)->id, "g"));
    const auto denies = open(a, "3", "h", both, write);
    BOOST_TEST(keeps_out(denies->id, "h"));
    BOOST_TEST(keeps_out(open(a, "5", "h", read)->id, "h")); // another owner's of the client
    BOOST_TEST(!keeps_out(open(b, "1", "h", read)->id, "h", b));
    const auto less = table->downgrade(a, denies->id, file_named("h"), read, share::none);
    BOOST_TEST(!less.has_value()); // it was never opened so
    BOOST_REQUIRE(open(a, "3", "h", read));
    stateid newest = denies->id;
    newest.seqid = 0;
    BOOST_REQUIRE(table->downgrade(a, newest, file_named("h"), read, share::none));
    BOOST_TEST(!keeps_out(newest, "h"));
    const auto open_to_lock = open(a, "4", "l", both);
    const auto locked = table->lock(lock_of(a, open_to_lock->id, "l"));
    BOOST_REQUIRE(locked);
    BOOST_TEST(keeps_out(*locked, "l"));
    BOOST_TEST(keeps_out(open_to_lock->id, "l")); // whatever stateid the client comes with
    BOOST_TEST(!keeps_out(open(b, "4", "l", both)->id, "l", b));
    BOOST_TEST(!keeps_out(open(a, "4", "m", both)->id, "m"));
    const auto unlocked = table->unlock(a, *locked, file_named("l"), {0, 9});
    BOOST_REQUIRE(unlocked);
    BOOST_TEST(!keeps_out(*unlocked, "l"));
    BOOST_TEST(!keeps_out(open_to_lock->id, "l"));
}

BOOST_FIXTURE_TEST_CASE(a_deny_bit_of_ones_own_stops_nobody, files_fixture)
{
    const client_id a = client("a");
    const auto o = open(a, "o", "f", write, both);
    BOOST_TEST(check_io(a, o->id, "f", read).has_value());
    BOOST_TEST(check_io(a, o->id, "f", write).has_value());
}

// What began before is waited for, and what begins later is refused: nothing falls between the two.
BOOST_FIXTURE_TEST_CASE(a_deny_bit_is_in_force_before_what_is_under_way_is_waited_for, files_fixture)
{
    const client_id a = client("a");
    for (const bool has_state : {false, true}) {
        if (has_state)
            BOOST_REQUIRE(open(a, "p", "f", read));
        under_way early;
        begin(early, "f", operation::write);
        BOOST_REQUIRE(check(operation::write, "f"));
        BOOST_TEST(table->stats().files.value() == (has_state ? 1 : 0)); // it cost nothing
        {
            pending_open denying;
            BOOST_REQUIRE(table->begin_open(request(a, "o", "f", read, write), denying));
            BOOST_TEST(table->commons().has_state(file_named("f")));
            BOOST_TEST(is(check(operation::write, "f"), errc::locked));
            const auto wait = [&] {
                return run(table->commons().operations().ended(file_named("f"), write, 1s));
            };
            BOOST_TEST(is(wait(), errc::busy));
            early.end();
            BOOST_TEST(wait().has_value());
            BOOST_TEST(table->commit(denying).has_value());
        }
        BOOST_REQUIRE(table->close_all(a, owner_named("o")));
    }
}

BOOST_FIXTURE_TEST_CASE(opens_have_limits, files_fixture)
{
    start([](state_options& o) {
        o.limits.opens_per_client = 3;
        o.limits.opens = 5;
    });
    const client_id a = client("a"), b = client("b");
    BOOST_REQUIRE(open(a, "o", "1", read));
    BOOST_REQUIRE(open(a, "o", "2", read));
    pending_open p;
    BOOST_REQUIRE(table->begin_open(request(a, "o", "3", read), p)); // counts
    BOOST_TEST(is(open(a, "o", "4", read), errc::too_many_opens));
    BOOST_TEST(open(a, "o", "2", write).has_value()); // no new one
    BOOST_REQUIRE(table->commit(p));
    BOOST_REQUIRE(open(b, "o", "1", read));
    BOOST_REQUIRE(open(b, "o", "2", read));
    BOOST_TEST(is(open(b, "o", "3", read), errc::all_is_full));
    BOOST_TEST(table->stats().refused_limits.value() == 2u);
    BOOST_TEST(table->stats().refused_limits.value(limited::opens, limit_of::client) == 1u);
    BOOST_TEST(table->stats().refused_limits.value(limited::opens, limit_of::all) == 1u);
    BOOST_TEST(table->stats().files.value() == 3); // what was refused left nothing
}

BOOST_FIXTURE_TEST_CASE(names_of_owners_have_a_limit, files_fixture)
{
    start([](state_options& o) {
        o.limits.owner_names_per_client = 10;
        o.limits.owner_names = 4096;
    });
    const client_id a = client("a"), b = client("b");
    const auto opened = open(a, "12345", "f", share::read);
    BOOST_REQUIRE(opened);
    BOOST_TEST(is(open(a, "123456", "f", share::read), errc::too_many_opens));
    BOOST_TEST(is(table->may_open(a, owner_named("123456")), errc::too_many_opens));
    BOOST_TEST(open(a, "12345", "g", share::read).has_value()); // the same one
    BOOST_TEST(open(b, "123456", "f", share::read).has_value());
    BOOST_TEST(table->stats().owner_names.value() == 11);
    // Of lock owners, too.
    lock_request r;
    r.client = a;
    r.file = file_named("f");
    r.new_owner = true;
    r.id = opened->id;
    r.owner = owner_named("abcdef");
    r.bytes = {0, 9};
    BOOST_TEST(is(table->lock(r), errc::too_many_locks));
    r.owner = owner_named("abcde");
    BOOST_TEST(table->lock(r).has_value());
    BOOST_REQUIRE(run(book->forget(a)));
    BOOST_TEST(table->stats().owner_names.value() == 6);
    // What was promised is kept.
    open_request promised = request(b, "a name beyond", "f", share::read);
    promised.promised = true;
    BOOST_TEST(table->open(promised).has_value());
}

BOOST_FIXTURE_TEST_CASE(clients_of_one_peer_have_its_share, files_fixture)
{
    start([](state_options& o) {
        o.limits.opens = 8;
        o.limits.peer_percent = 25;
    });
    const auto of_peer = [&](std::string_view key, std::uint64_t peer) {
        const client_id c = *book->add_client(key, peer);
        BOOST_REQUIRE(run(book->reclaim_complete(c)));
        return c;
    };
    const client_id a = of_peer("a", 1), b = of_peer("b", 1), c = of_peer("c", 2), alone = client("alone");
    const auto first = open(a, "o", "f", share::read);
    BOOST_REQUIRE(first);
    BOOST_TEST(open(b, "o", "f", share::read).has_value());
    BOOST_TEST(is(open(a, "p", "f", share::read), errc::peer_is_full));
    BOOST_TEST(is(open(b, "p", "f", share::read), errc::peer_is_full));
    BOOST_TEST(open(c, "o", "f", share::read).has_value());
    for (const char* owner : {"1", "2", "3"})
        BOOST_TEST(open(alone, owner, "f", share::read).has_value());
    BOOST_REQUIRE(table->close(a, first->id, file_named("f")));
    BOOST_TEST(open(b, "p", "f", share::read).has_value());
    // A client that goes takes its part along.
    BOOST_REQUIRE(run(book->forget(b)));
    BOOST_TEST(open(a, "p", "f", share::read).has_value());
    BOOST_TEST(open(a, "q", "f", share::read).has_value());
    // The others are gone: nothing but its own closing helps.
    BOOST_TEST(is(open(a, "r", "f", share::read), errc::too_many_opens));
    BOOST_TEST(table->stats().refused_limits.value(limited::opens, limit_of::peer) == 2u);
    BOOST_TEST(table->stats().refused_limits.value(limited::opens, limit_of::client) == 1u);
}

// Others of its peer are there, and have none: to wait for them would be to wait for ever.
BOOST_FIXTURE_TEST_CASE(what_others_don_t_have_is_not_waited_for, files_fixture)
{
    start([](state_options& o) {
        o.limits.opens = 12;
        o.limits.opens_per_client = 100;
    });
    const auto of_peer = [&](std::string_view key, std::uint64_t peer) {
        const client_id c = *book->add_client(key, peer);
        BOOST_REQUIRE(run(book->reclaim_complete(c)));
        return c;
    };
    const client_id a = of_peer("a", 1), b = of_peer("b", 1);
    for (const char* owner : {"1", "2", "3"})
        BOOST_REQUIRE(open(a, owner, "f", share::read));
    BOOST_TEST(is(open(a, "4", "f", share::read), errc::too_many_opens));
    BOOST_TEST(is(open(b, "1", "f", share::read), errc::peer_is_full));
    // It may be alone in all, too.
    start([](state_options& o) { o.limits.opens = 2; });
    const client_id c = client("a");
    (void)client("b");
    for (const char* owner : {"1", "2"})
        BOOST_REQUIRE(open(c, owner, "f", share::read));
    BOOST_TEST(is(open(c, "3", "f", share::read), errc::too_many_opens));
    BOOST_TEST(table->stats().refused_limits.value(limited::opens, limit_of::client) == 1u);
}

// Who has none of what is lacking goes for nothing.
BOOST_FIXTURE_TEST_CASE(who_lost_his_lease_goes_where_that_helps_alone, files_fixture)
{
    start([](state_options& o) { o.limits.opens = 2; });
    const client_id idle = client("idle"), locks = client("locks");
    const auto o = open(locks, "o", "f", share::both);
    BOOST_REQUIRE(o);
    files::lock_request r;
    r.client = locks;
    r.file = file_named("f");
    r.new_owner = true;
    r.id = o->id;
    r.owner = owner_named("l");
    r.bytes = {0, 9};
    r.type = lock_type::write;
    BOOST_REQUIRE(table->lock(r));
    pass(90s);
    const client_id c = client("c");
    BOOST_REQUIRE(open(c, "1", "g", share::read));
    BOOST_TEST(is(open(c, "2", "g", share::read), errc::all_is_full));
    BOOST_CHECK(table->last_lacking() == limited::opens);
    BOOST_TEST(*run(book->drop_courtesy(9, limited::waiters)) == 0u);
    BOOST_TEST(*run(book->drop_courtesy(9, table->last_lacking())) == 1u);
    BOOST_TEST((*book->state_of(idle) == client_state::courtesy));
    BOOST_TEST((*book->state_of(locks) == client_state::expired));
    BOOST_TEST(open(c, "2", "g", share::read).has_value());
}

// It may wait between both: nobody who denies writing comes in meanwhile.
BOOST_FIXTURE_TEST_CASE(an_open_that_is_to_cut_the_file_writes_from_its_beginning_on, files_fixture)
{
    const client_id a = client("a"), b = client("b");
    files::open_request cuts = request(a, "o", "f", share::read);
    cuts.truncates = true;
    {
        pending_open p;
        BOOST_REQUIRE(table->begin_open(cuts, p));
        BOOST_TEST(is(open(b, "o", "f", share::read, share::write), errc::in_way));
        // It is no obstacle to who reads, but a delegation would not hold.
        const auto reads = open(b, "o", "f", share::read, share::none, delegation_want::any);
        BOOST_REQUIRE(reads);
        BOOST_TEST(!reads->delegation);
        const auto body = [&]() -> task<void> {
            scope s(*shard);
            bool denies = false;
            s.spawn([&]() -> task<void> {
                const demand what(request(b, "p", "f", share::read, share::write));
                const auto room = co_await table->make_way(what, 1s);
                denies = room && open(b, "p", "f", share::read, share::write).has_value();
            });
            co_await sleep_for(500ms);
            BOOST_TEST(!denies);
            BOOST_TEST(table->commit(p).has_value());
            co_await sleep_for(1ms);
            BOOST_TEST(denies);
            co_await s.join();
        };
        run(body());
    }
    // From then on it is open to read.
    BOOST_TEST(table->stats().opens.value() == 3);
}

BOOST_FIXTURE_TEST_CASE(who_lost_his_lease_gives_way_to_his_peer, files_fixture)
{
    start([](state_options& o) { o.limits.opens = 8; });
    const auto of_peer = [&](std::string_view key, std::uint64_t peer) {
        const client_id c = *book->add_client(key, peer);
        BOOST_REQUIRE(run(book->reclaim_complete(c)));
        BOOST_REQUIRE(open(c, "o", "f", share::read));
        return c;
    };
    const client_id of_other = of_peer("a", 2), old = of_peer("b", 1), c = of_peer("c", 1);
    pass(89s);
    BOOST_REQUIRE(book->renew(c));
    pass(1s);
    BOOST_TEST(is(open(c, "p", "f", share::read), errc::peer_is_full));
    BOOST_TEST(*run(book->drop_courtesy(9, limited::opens, c)) == 1u);
    BOOST_TEST((*book->state_of(old) == client_state::expired));
    BOOST_TEST((*book->state_of(of_other) == client_state::courtesy));
    BOOST_TEST(open(c, "p", "f", share::read).has_value());
    const client_id alone = client("alone");
    BOOST_TEST(*run(book->drop_courtesy(9, limited::opens, alone)) == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
