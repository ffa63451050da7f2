// SPDX-License-Identifier: Apache-2.0
// Delegations: when one is granted, recalled, returned, revoked.
#include "files_fixture.hpp"

#include <algorithm>

BOOST_AUTO_TEST_SUITE(files_delegations_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;

namespace {

using enum share;

struct delegations_fixture : files_fixture {
    delegations_fixture()
    {
        a = client("a");
        b = client("b");
    }
    /// An open that wants a delegation.
    result<opened> ask(client_id c, std::string_view file, share access,
                       delegation_want want = delegation_want::any)
    {
        return open(c, "o", file, access, none, want);
    }
    /// A delegation without an open.
    stateid only_delegation(client_id c, std::string_view file, delegation_type type)
    {
        const auto o = ask(c, file, type == delegation_type::read ? read : both);
        BOOST_REQUIRE((o && o->delegation && o->delegation->type == type));
        BOOST_REQUIRE(table->close(c, o->id, file_named(file)));
        return o->delegation->id;
    }
    client_id a = 0, b = 0;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(an_open_alone_brings_one, delegations_fixture)
{
    struct {
        share access;
        delegation_want want;
        const char* type;
    } const rows[] = {
        {read, delegation_want::any, "r"},   {both, delegation_want::any, "w"},
        {write, delegation_want::any, "-"},  {read, delegation_want::read, "r"},
        {both, delegation_want::read, "-"},  {both, delegation_want::write, "w"},
        {read, delegation_want::write, "-"}, {read, delegation_want::none, "-"},
    };
    for (const auto& row : rows) {
        const auto o = ask(a, "f", row.access, row.want);
        BOOST_REQUIRE(o);
        const char* got = !o->delegation ? "-" : o->delegation->type == delegation_type::read ? "r" : "w";
        BOOST_TEST(std::string_view(got) == row.type);
        if (o->delegation) {
            BOOST_TEST(!o->delegation->recalled);
            BOOST_TEST(o->delegation->id.seqid == 1u);
            BOOST_REQUIRE(table->return_delegation(a, o->delegation->id, file_named("f")));
            BOOST_TEST(is(table->test_stateid(a, o->delegation->id), errc::bad_stateid));
        } else {
            BOOST_TEST((o->why == (row.want == delegation_want::none ? no_delegation::not_wanted
                                                                     : no_delegation::unsuited)));
        }
        BOOST_REQUIRE(table->close(a, o->id, file_named("f")));
        BOOST_TEST(table->stats().files.value() == 0);
    }
}

// What is noted after the grant counts, also for who was asked before that.
BOOST_FIXTURE_TEST_CASE(a_holder_is_judged_by_what_is_noted_last, delegations_fixture)
{
    const stateid id = only_delegation(a, "f", delegation_type::write);
    table->note_change(id, 5);
    const auto asked = table->writer_of(file_named("f"), b);
    BOOST_TEST_REQUIRE(asked.has_value());
    BOOST_TEST(asked->change == 5u);
    table->note_change(id, 7);
    auto answer = table->note_answer(id, 7, false, 7);
    BOOST_TEST_REQUIRE(answer.has_value());
    BOOST_TEST(!answer->modified);
    BOOST_TEST(answer->change == 7u);
    answer = table->note_answer(id, 8, false, 7);
    BOOST_TEST((answer && answer->modified && answer->change == 8u));
    table->note_change(id, std::nullopt);
    BOOST_TEST(!table->note_answer(id, 8, false, 7));
}

// Numbers of a back end may lie side by side, and a holder may say a size that is no longer the file's.
BOOST_FIXTURE_TEST_CASE(what_others_are_told_behind_a_holders_answer_never_goes_back, delegations_fixture)
{
    const stateid id = only_delegation(a, "f", delegation_type::write);
    table->note_change(id, 5);
    struct row {
        bool modified;       // what the holder says
        std::uint64_t known; // what the server had before
        std::uint64_t told;
    };
    constexpr row rows[] = {
        {false, 5, 5},  {true, 5, 6},    {true, 5, 7},   {false, 6, 8},  {false, 6, 8},   {true, 20, 21},
        {true, 21, 22}, {false, 21, 23}, {true, 21, 24}, {true, 30, 31}, {false, 40, 40},
    };
    for (const row& each : rows) {
        const auto answer = table->note_answer(id, each.modified ? 9 : 5, false, each.known);
        BOOST_TEST_REQUIRE(answer.has_value());
        BOOST_TEST(answer->modified == each.modified);
        BOOST_TEST(answer->change == each.told);
    }
}

BOOST_FIXTURE_TEST_CASE(a_client_has_one_of_a_file, delegations_fixture)
{
    BOOST_REQUIRE(ask(a, "f", read)->delegation);
    const auto more = ask(a, "f", both);
    BOOST_TEST((!more->delegation && more->why == no_delegation::unsuited));
    BOOST_TEST(handler.recalls.empty()); // its own is never recalled
    BOOST_TEST(table->stats().read_delegations.value() == 1);
}

BOOST_FIXTURE_TEST_CASE(readers_may_have_one_each, delegations_fixture)
{
    BOOST_REQUIRE(ask(a, "f", read)->delegation);
    BOOST_TEST(ask(b, "f", read)->delegation.has_value());
}

BOOST_FIXTURE_TEST_CASE(room_is_made_by_others, delegations_fixture)
{
    const stateid mine = only_delegation(a, "f", delegation_type::read);
    const stateid other = only_delegation(b, "f", delegation_type::read);
    const demand rename(operation::rename, file_named("f"), a);
    BOOST_TEST(is(make_way(rename, 0s), errc::busy));
    BOOST_REQUIRE(handler.recalls.size() == 1u);
    BOOST_TEST((handler.recalls[0].id == other));
    BOOST_REQUIRE(table->return_delegation(b, other, file_named("f")));
    BOOST_TEST(make_way(rename, 0s).has_value());
    BOOST_TEST(table->check(rename).has_value());
    BOOST_TEST(table->test_stateid(a, mine).has_value());
}

// Whether `other` having the file open stands against a delegation.
BOOST_FIXTURE_TEST_CASE(none_is_granted_against_an_open, delegations_fixture)
{
    for (const bool begun_only : {false, true})
        for (unsigned access = 1; access <= 3; ++access)
            for (unsigned deny = 0; deny <= 3; ++deny)
                for (const client_id other : {a, b}) {
                    const open_request r = request(other, "p", "f", share(access), share(deny));
                    for (const delegation_type type : {delegation_type::read, delegation_type::write}) {
                        std::optional<opened> first;
                        pending_open p;
                        if (begun_only)
                            BOOST_REQUIRE(table->begin_open(r, p));
                        else
                            first = *table->open(r);
                        const auto o = ask(a, "f", type == delegation_type::read ? read : both);
                        if (o) {
                            const bool against = other != a && (type == delegation_type::write ||
                                                                (access & 2) != 0 || (deny & 1) != 0);
                            BOOST_TEST(o->delegation.has_value() == !against, access << " " << deny);
                            if (o->delegation)
                                BOOST_REQUIRE(
                                    table->return_delegation(a, o->delegation->id, file_named("f")));
                            else
                                BOOST_TEST((o->why == no_delegation::contention));
                            BOOST_REQUIRE(table->close(a, o->id, file_named("f")));
                        }
                        if (first)
                            BOOST_REQUIRE(table->close(other, first->id, file_named("f")));
                    }
                }
}

// A READ in flight does not matter: its answer may be from before the holder's first write.
BOOST_FIXTURE_TEST_CASE(none_is_granted_against_what_is_under_way, delegations_fixture)
{
    for (unsigned n = 0; n < operation_count; ++n)
        for (const bool has_state : {false, true}) {
            const operation op = operation(n);
            if (!is_change(op) && op != operation::read)
                continue; // the table knows of these by itself
            const std::string file = "f" + std::to_string(n) + (has_state ? "s" : "");
            if (has_state)
                BOOST_REQUIRE(open(a, "p", file, read));
            for (const share access : {read, both}) {
                under_way doing;
                begin(doing, file, op);
                const auto o = ask(a, file, access);
                BOOST_REQUIRE(o);
                BOOST_TEST(o->delegation.has_value() == !is_change(op), n);
                doing.end();
                if (is_change(op)) {
                    BOOST_TEST((o->why == no_delegation::contention));
                    const auto again = ask(a, file, access);
                    BOOST_REQUIRE((again && again->delegation));
                    BOOST_REQUIRE(table->return_delegation(a, again->delegation->id, file_named(file)));
                } else if (o->delegation) {
                    BOOST_REQUIRE(table->return_delegation(a, o->delegation->id, file_named(file)));
                }
            }
        }
}

BOOST_FIXTURE_TEST_CASE(what_stands_against_one_is_in_the_way, delegations_fixture)
{
    for (const delegation_type type : {delegation_type::read, delegation_type::write})
        for (unsigned op = 0; op <= unsigned(operation::link); ++op) {
            const operation what = operation(op);
            if (what == operation::open_read || what == operation::open_write ||
                what == operation::open_deny_read || what == operation::open_deny_write)
                continue; // below
            const std::string file = std::to_string(op) + (type == delegation_type::read ? "r" : "w");
            (void)only_delegation(a, file, type);
            handler.recalls.clear();
            for (const client_id who : {a, b, nobody}) {
                const auto done = check(what, file, who);
                const bool against = who != a && conflicts(type, what);
                BOOST_TEST(done.has_value() == !against, op);
                if (against)
                    BOOST_TEST(is(done, errc::in_way));
            }
            BOOST_TEST(handler.recalls.empty()); // asking alone recalls nothing
        }
}

BOOST_FIXTURE_TEST_CASE(opens_against_one_need_room, delegations_fixture)
{
    for (const delegation_type type : {delegation_type::read, delegation_type::write})
        for (unsigned access = 1; access <= 3; ++access)
            for (unsigned deny = 0; deny <= 3; ++deny) {
                const std::string file =
                    std::to_string(access * 4 + deny) + (type == delegation_type::read ? "r" : "w");
                (void)only_delegation(a, file, type);
                const auto o = open(b, "p", file, share(access), share(deny));
                const bool against = type == delegation_type::write || (access & 2) != 0 || (deny & 1) != 0;
                BOOST_TEST(o.has_value() == !against, access << " " << deny);
                if (against)
                    BOOST_TEST(is(o, errc::in_way));
                BOOST_TEST(open(a, "p", file, share::read).has_value() != (o && (deny & 1) != 0));
            }
}

BOOST_FIXTURE_TEST_CASE(a_recall_is_sent_once_and_room_made_by_the_return, delegations_fixture)
{
    const stateid d = only_delegation(a, "f", delegation_type::write);
    const open_request r = request(b, "p", "f", write);
    BOOST_TEST(is(make_way(demand(r), 0s), errc::busy));
    BOOST_TEST(is(make_way(demand(r), 0s), errc::busy));
    BOOST_REQUIRE(handler.recalls.size() == 1u);
    BOOST_TEST(handler.recalls[0].client == a);
    BOOST_TEST((handler.recalls[0].id == d));
    BOOST_TEST((handler.recalls[0].type == delegation_type::write));
    BOOST_TEST(table->stats().recalled_delegations.value() == 1);
    // Meanwhile the holder goes on: DELEG14.
    open_request by = request(a, "o", "f", both);
    by.claim = open_claim::under_delegation;
    by.delegation = d;
    const auto mine = table->open(by);
    BOOST_REQUIRE(mine);
    BOOST_TEST(table->close(a, mine->id, file_named("f")).has_value());
    BOOST_TEST(check_io(a, d, "f", write).has_value());

    const time_point begun = clock.now();
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([&]() -> task<void> {
            co_await sleep_for(2s);
            BOOST_TEST(table->return_delegation(a, d, file_named("f")).has_value());
        });
        const auto room = co_await table->make_way(demand(r), 10s);
        BOOST_TEST(room.has_value());
        BOOST_TEST((clock.now() - begun == 2s));
        BOOST_TEST(table->open(r).has_value());
        co_await s.join();
    };
    run(body());
    BOOST_TEST(store->written.back() != "remove a");
    BOOST_TEST(table->stats().recalled_delegations.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(patience_ends, delegations_fixture)
{
    (void)only_delegation(a, "f", delegation_type::read);
    const time_point begun = clock.now();
    BOOST_TEST(is(make_way(demand(operation::rename, file_named("f")), 30ms), errc::busy));
    BOOST_TEST((clock.now() - begun == 30ms));
}

BOOST_FIXTURE_TEST_CASE(who_waits_for_room_can_be_stopped, delegations_fixture)
{
    (void)only_delegation(a, "f", delegation_type::read);
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        result<void> room;
        s.spawn([&]() -> task<void> {
            room = co_await table->make_way(demand(operation::rename, file_named("f")), 30s);
        });
        co_await sleep_for(1s);
        s.request_stop();
        co_await s.join();
        BOOST_TEST((!room && room.error() == std::errc::operation_canceled));
    };
    run(body());
    BOOST_TEST(table->stats().files.value() == 1);
}

BOOST_FIXTURE_TEST_CASE(one_that_does_not_come_back_is_revoked, delegations_fixture)
{
    const stateid d = only_delegation(a, "f", delegation_type::write);
    const auto still_open = open(a, "keeps", "g", read);
    const demand rename(operation::rename, file_named("f"));
    BOOST_TEST(is(make_way(rename, 0s), errc::busy));
    pass(table->options().recall_time - 1ns);
    BOOST_REQUIRE(book->renew(a));
    BOOST_TEST(is(make_way(rename, 0s), errc::busy));
    BOOST_TEST(table->test_stateid(a, d).has_value());
    pass(1ns);
    BOOST_REQUIRE(make_way(rename, 0s));
    BOOST_TEST(table->check(rename).has_value());
    // Its record went first: after a restart it could not say that it still has it.
    BOOST_TEST(store->written.back() == "remove a");
    BOOST_TEST(!lists.new_list.contains("a"));
    BOOST_TEST(is(table->test_stateid(a, d), errc::deleg_revoked));
    BOOST_TEST(is(table->return_delegation(a, d, file_named("f")), errc::deleg_revoked));
    BOOST_TEST(is(check_io(a, d, "f", read), errc::deleg_revoked));
    BOOST_TEST(table->stats().revoked_delegations.value() == 1);
    BOOST_TEST(table->stats().write_delegations.value() == 0);
    BOOST_TEST(*book->is_in_use(a));
    BOOST_TEST(table->test_stateid(a, still_open->id).has_value()); // all else it keeps
    store->fails = [] { return true; };
    BOOST_TEST(!run(table->free_stateid(a, d)).has_value());
    BOOST_TEST(is(table->test_stateid(a, d), errc::deleg_revoked)); // it may ask once more
    store->fails = nullptr;
    BOOST_REQUIRE(run(table->free_stateid(a, d)));
    BOOST_TEST(lists.new_list.contains("a")); // and may reclaim again
    BOOST_TEST(is(table->test_stateid(a, d), errc::bad_stateid));
    BOOST_TEST(table->stats().revoked_delegations.value() == 0);
}

// What it got now it could not take back after a restart (7530 9.6.3.4).
BOOST_FIXTURE_TEST_CASE(a_silent_client_whose_record_went_gets_nothing_more, delegations_fixture)
{
    (void)only_delegation(a, "f", delegation_type::write);
    const auto held = open(a, "keeps", "g", both);
    BOOST_REQUIRE(held);
    BOOST_REQUIRE(book->set_silent(a));
    BOOST_TEST(table->lock(lock_of(a, held->id, "g")).has_value());
    const demand rename(operation::rename, file_named("f"));
    BOOST_TEST(is(make_way(rename, 0s), errc::busy));
    pass(table->options().recall_time);
    BOOST_REQUIRE(book->renew(a));
    BOOST_REQUIRE(make_way(rename, 0s));
    BOOST_TEST(book->lacks_record(a));
    BOOST_TEST(is(table->lock(lock_of(a, held->id, "g")), errc::busy));
    BOOST_TEST(is(open(a, "keeps", "h", read), errc::busy));
    BOOST_TEST(is(run(book->record(a)), errc::busy)); // until that is freed
}

namespace {

/// "a" never says "complete", and its only delegation was revoked.
struct silent_loser : delegations_fixture {
    silent_loser()
    {
        d = only_delegation(a, "f", delegation_type::write);
        BOOST_REQUIRE(book->set_silent(a));
        const demand rename(operation::rename, file_named("f"));
        BOOST_TEST(is(make_way(rename, 0s), errc::busy));
        pass(table->options().recall_time);
        BOOST_REQUIRE(book->renew(a));
        BOOST_REQUIRE(make_way(rename, 0s));
    }
    stateid d;
};

} // namespace

// First edge condition (7530 9.6.3.4): others have what it had.
BOOST_FIXTURE_TEST_CASE(nobody_whose_state_was_taken_is_written_down_again, silent_loser)
{
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        store->fails = [] { return true; };
        table->drop_revoked(a, d);
        s.spawn([this] { return book->tend(); });
        s.spawn([this] { return table->tend(); });
        co_await sleep_for(1500ms);
        BOOST_TEST(!lists.new_list.contains("a"));
        BOOST_TEST(table->stats().store_failures.value() > 0u);
        store->fails = nullptr;
        BOOST_TEST((co_await book->revoke_client(a)).has_value());
        co_await sleep_for(5s);
        BOOST_TEST(!lists.new_list.contains("a"));
        s.request_stop();
        co_await s.join();
    };
    run(body());
}

// Also where an OPEN wanted that first, and could not have it.
BOOST_FIXTURE_TEST_CASE(a_record_that_is_due_is_written_whoever_tried_before, silent_loser)
{
    table->drop_revoked(a, d);
    store->fails = [] { return true; };
    BOOST_TEST(!run(book->record(a)).has_value());
    store->fails = nullptr;
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([this] { return book->tend(); });
        s.spawn([this] { return table->tend(); });
        co_await sleep_for(1s);
        BOOST_TEST(lists.new_list.contains("a"));
        s.request_stop();
        co_await s.join();
    };
    run(body());
}

BOOST_FIXTURE_TEST_CASE(time_alone_revokes, delegations_fixture)
{
    const stateid d = only_delegation(a, "f", delegation_type::write);
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([this] { return book->tend(); });
        s.spawn([this] { return table->tend(); });
        BOOST_TEST(table->recall(d).has_value());
        co_await sleep_for(table->options().recall_time - 1s);
        BOOST_TEST(book->renew(a).has_value());
        BOOST_TEST(table->test_stateid(a, d).has_value());
        co_await sleep_for(2s);
        BOOST_TEST(is(table->test_stateid(a, d), errc::deleg_revoked));
        s.request_stop();
        co_await s.join();
    };
    run(body());
}

BOOST_FIXTURE_TEST_CASE(nothing_is_granted_before_the_record_is_gone, delegations_fixture)
{
    (void)only_delegation(a, "f", delegation_type::write);
    store->fails = [] { return true; };
    const demand rename(operation::rename, file_named("f"));
    BOOST_TEST(is(make_way(rename, 0s), errc::busy));
    pass(table->options().recall_time);
    const auto room = make_way(rename, 10s);
    BOOST_TEST((!room && room.error() == std::errc::io_error));
    BOOST_TEST(is(table->check(rename), errc::in_way));
    BOOST_TEST(table->stats().store_failures.value() > 0u);
}

namespace {

struct late_return : delegations_fixture {
    void comes_back();
};

} // namespace

void late_return::comes_back()
{
    const stateid d = only_delegation(a, "f", delegation_type::write);
    BOOST_TEST(is(make_way(demand(operation::rename, file_named("f")), 0s), errc::busy));
    pass(table->options().recall_time);
    store->takes = [] { return 1s; };
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        scope tending(*shard);
        s.spawn([&]() -> task<void> {
            co_await sleep_for(500ms);
            BOOST_TEST(book->renew(a).has_value());
            BOOST_TEST(table->return_delegation(a, d, file_named("f")).has_value());
        });
        BOOST_TEST((co_await table->make_way(demand(operation::rename, file_named("f")), 0s)).has_value());
        co_await s.join();
        BOOST_TEST(!lists.new_list.contains("a"));
        int refused = 0;
        store->fails = [&] { return refused++ == 0; };
        tending.spawn([this] { return book->tend(); });
        tending.spawn([this] { return table->tend(); });
        co_await sleep_for(5s);
        BOOST_TEST(lists.new_list.contains("a"));
        BOOST_TEST(refused == 2); // and once is enough
        tending.request_stop();
        co_await tending.join();
    };
    // a's lease ran out too; then it would be an expired client that is in the way.
    BOOST_REQUIRE(book->renew(a));
    run(body());
    BOOST_TEST(table->stats().revocations.value() == 0u);
}

BOOST_FIXTURE_TEST_CASE(one_that_came_back_while_the_record_went_has_it_again, late_return) { comes_back(); }

// One that never says "complete", too: nothing else would write it.
BOOST_FIXTURE_TEST_CASE(a_silent_one_that_came_back_while_the_record_went_has_it_again, late_return)
{
    BOOST_REQUIRE(run(book->forget(a)));
    a = *book->add_client("a");
    BOOST_REQUIRE(book->set_silent(a));
    BOOST_REQUIRE(book->set_callable(a, true));
    BOOST_REQUIRE(run(book->record(a, share::both)));
    comes_back();
}

// Public reports: a stream of readers that got a new one after each recall starved a RENAME.
BOOST_FIXTURE_TEST_CASE(a_file_rests_after_a_recall, delegations_fixture)
{
    const stateid d = only_delegation(a, "f", delegation_type::read);
    BOOST_REQUIRE(table->recall(d));
    pass(10s);
    BOOST_REQUIRE(table->return_delegation(a, d, file_named("f")));
    BOOST_TEST(table->stats().files.value() == 0); // nothing is kept for the file
    const auto refused = ask(b, "f", read);
    BOOST_TEST((!refused->delegation && refused->why == no_delegation::contention));
    pass(table->options().rest_after_recall - 1ns);
    BOOST_TEST(!ask(b, "f", read)->delegation);
    BOOST_TEST(ask(b, "another", read)->delegation.has_value());
    pass(table->options().rest_after_recall + 1ns);
    BOOST_TEST(ask(b, "f", read)->delegation.has_value());
}

BOOST_FIXTURE_TEST_CASE(who_asks_gets_none_in_his_way, files_fixture)
{
    start([](state_options& o) { o.rest_after_recall = 1ns; });
    const client_id a = client("a"), b = client("b");
    const auto first = open(a, "o", "f", read, none, delegation_want::any);
    BOOST_REQUIRE(first->delegation);
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        bool made = false;
        s.spawn([&]() -> task<void> {
            const auto room = co_await table->make_way(demand(operation::rename, file_named("f")), 30s);
            made = room.has_value();
        });
        co_await sleep_for(1s);
        BOOST_TEST(!open(b, "o", "f", read, none, delegation_want::any)->delegation);
        BOOST_TEST(table->return_delegation(a, first->delegation->id, file_named("f")).has_value());
        co_await s.join();
        BOOST_TEST(made);
    };
    run(body());
}

BOOST_FIXTURE_TEST_CASE(one_is_given_to_who_can_be_called_and_within_limits, files_fixture)
{
    start([](state_options& o) {
        o.limits.delegations_per_client = 2;
        o.limits.delegations = 3;
    });
    const client_id a = client("a"), b = client("b");
    const auto why = [&](client_id c, const char* file, share access = read) -> std::optional<no_delegation> {
        const auto o = open(c, "o", file, access, none, delegation_want::any);
        return o->delegation ? std::nullopt : std::optional(o->why);
    };
    BOOST_REQUIRE(book->set_callable(a, false));
    BOOST_TEST((why(a, "1") == no_delegation::not_callable));
    BOOST_REQUIRE(book->set_callable(a, true));
    BOOST_TEST(!why(a, "1"));
    BOOST_TEST(!why(a, "2"));
    BOOST_TEST((why(a, "3") == no_delegation::resource));
    BOOST_TEST(!why(b, "1"));
    BOOST_TEST((why(b, "2") == no_delegation::resource)); // of all
    BOOST_TEST(table->stats().read_delegations.value() == 3);
    handler.recalled_any.clear();
    table->recall_any(1);
    BOOST_TEST((handler.recalled_any == std::vector<std::pair<client_id, std::size_t>>{{a, 1}}));
    start([](state_options& o) { o.write_delegations = false; });
    const client_id c = client("c");
    // In grace, too, there is none: all clients of the list are done with first.
    for (const char* key : {"a", "b"})
        (void)client(key);
    BOOST_TEST((why(c, "1", both) == no_delegation::unsuited));
    BOOST_TEST(!why(c, "2"));
}

BOOST_FIXTURE_TEST_CASE(clients_are_asked_for_what_they_don_t_use, files_fixture)
{
    start([](state_options& o) {
        o.limits.delegations = 40;
        o.limits.delegations_per_client = 24;
    });
    const client_id a = client("a"), b = client("b"), c = client("c");
    using asked = std::vector<std::pair<client_id, std::size_t>>;
    int files = 0;
    const auto grab = [&](client_id who, int count) {
        int got = 0;
        for (int i = 0; i < count; ++i) {
            const std::string name = std::to_string(++files);
            got += open(who, "o", name, read, none, delegation_want::any)->delegation.has_value();
        }
        return got;
    };
    BOOST_TEST(grab(c, 3) == 3);
    BOOST_TEST(grab(a, 21) == 21);
    BOOST_TEST(handler.recalled_any.empty());
    BOOST_TEST(grab(a, 2) == 2); // of its own limit
    BOOST_TEST((handler.recalled_any == asked{{a, 18}}));
    BOOST_TEST(grab(b, 9) == 9);
    BOOST_TEST((handler.recalled_any == asked{{a, 18}}));
    // Of the limit of all: b has no more than its share yet, and a was asked less than 10 s ago.
    BOOST_TEST(grab(b, 6) == 5);
    BOOST_TEST((handler.recalled_any == asked{{a, 18}}));
    pass(10s);
    BOOST_TEST(grab(b, 5) == 0);
    std::sort(handler.recalled_any.begin() + 1, handler.recalled_any.end());
    BOOST_TEST((handler.recalled_any == asked{{a, 18}, {a, 10}, {b, 10}}));
}

BOOST_FIXTURE_TEST_CASE(a_read_delegation_reads, delegations_fixture)
{
    const stateid d = only_delegation(a, "f", delegation_type::read);
    BOOST_TEST(is(check_io(a, d, "f", write), errc::open_mode));
    const auto keeps_out = [&] {
        const auto granted = check_io(a, d, "f", read);
        BOOST_REQUIRE(granted);
        return granted->keeps_writers_out;
    };
    BOOST_TEST(!keeps_out()); // as far as READ is concerned: see there
    // A lock beside it does, and an open that denies: clients send the delegation's stateid all the same (RFC 8881 8.2.5).
    const stateid to_lock = open(a, "l", "f", read)->id;
    files::lock_request shared = lock_of(a, to_lock, "f");
    shared.type = lock_type::read;
    const auto locked = table->lock(shared);
    BOOST_REQUIRE(locked);
    BOOST_TEST(keeps_out());
    BOOST_REQUIRE(table->unlock(a, *locked, file_named("f"), {0, 9}));
    BOOST_TEST(!keeps_out());
    const auto denies = open(a, "d", "f", read, write);
    BOOST_REQUIRE(denies);
    BOOST_TEST(keeps_out());
    BOOST_REQUIRE(table->close(a, denies->id, file_named("f")));
    BOOST_TEST(!keeps_out());
    open_request r = request(a, "o", "f", write);
    r.claim = open_claim::under_delegation;
    r.delegation = d;
    BOOST_TEST(is(table->open(r), errc::bad_stateid));
    r.access = read;
    BOOST_TEST(table->open(r).has_value());
    r.delegation = open(a, "p", "f", read)->id;
    BOOST_TEST(is(table->open(r), errc::bad_stateid));
    BOOST_TEST(is(table->return_delegation(a, r.delegation, file_named("f")), errc::bad_stateid));
    BOOST_TEST(is(run(table->free_stateid(a, d)), errc::locks_held));
}

BOOST_AUTO_TEST_SUITE_END()
