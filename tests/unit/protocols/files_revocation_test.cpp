// SPDX-License-Identifier: Apache-2.0
// What is kept in order when a delegation goes: the client's record, others' turns at the store, and what is counted.
#include "files_fixture.hpp"

BOOST_AUTO_TEST_SUITE(files_revocation_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;

namespace {

using enum share;

struct fixture : files_fixture {
    fixture()
    {
        a = client("a");
        b = client("b");
    }
    result<opened> ask(client_id c, std::string_view file, share access = read)
    {
        return open(c, "o", file, access, none, delegation_want::any);
    }
    /// A delegation without an open.
    stateid only_delegation(client_id c, std::string_view file, delegation_type type = delegation_type::write)
    {
        const auto o = ask(c, file, type == delegation_type::read ? read : both);
        BOOST_REQUIRE((o && o->delegation && o->delegation->type == type));
        BOOST_REQUIRE(table->close(c, o->id, file_named(file)));
        return o->delegation->id;
    }
    static demand rename_of(std::string_view file) { return demand(operation::rename, file_named(file)); }
    /// Recalls what is out for these files, and lets the time for that pass. Its client lives.
    void overdue(std::initializer_list<std::string_view> files)
    {
        for (const std::string_view file : files) {
            passage hold;
            BOOST_TEST(is(make_room(rename_of(file), 0s, hold), errc::busy));
        }
        pass(table->options().recall_time);
        BOOST_REQUIRE(table->renew(a));
    }
    task<void> makes_room(std::string_view file, bool& made)
    {
        passage hold;
        const auto room = co_await table->make_room(rename_of(file), 0s, hold);
        made = room.has_value();
    }
    client_id a = 0, b = 0;
};

} // namespace

// After a restart the client would take back what others have changed meanwhile.
BOOST_FIXTURE_TEST_CASE(what_has_a_record_is_not_revoked, fixture)
{
    const stateid d = only_delegation(a, "f");
    overdue({"f"});
    store->fails = [] { return true; };
    passage hold;
    const auto room = make_room(rename_of("f"), 0s, hold);
    BOOST_TEST((!room && room.error() == std::errc::io_error));
    BOOST_TEST(table->test_stateid(a, d).has_value());
    BOOST_TEST(is(table->begin(rename_of("f"), hold), errc::needs_room));
    BOOST_TEST(table->stats().store_failures.value() == 1u);
    BOOST_TEST(table->stats().revocations.value() == 0u);
    BOOST_TEST(table->stats().revoked_delegations.value() == 0);
    BOOST_TEST(lists.new_list.contains("a"));
    store->fails = nullptr;
    BOOST_TEST(make_room(rename_of("f"), 0s, hold).has_value());
    BOOST_TEST(is(table->test_stateid(a, d), errc::deleg_revoked));
    BOOST_TEST(table->stats().revocations.value() == 1u);
    BOOST_TEST(!lists.new_list.contains("a"));
}

BOOST_FIXTURE_TEST_CASE(two_of_one_client_take_turns_at_its_record, fixture)
{
    (void)only_delegation(a, "f");
    (void)only_delegation(a, "g");
    overdue({"f", "g"});
    store->takes = [] { return 1s; };
    unsigned most = 0;
    store->fails = [&] {
        most = std::max(most, store->writing + 1);
        return false;
    };
    bool first = false, second = false;
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        const time_point begun = clock.now();
        s.spawn([&] { return makes_room("f", first); });
        s.spawn([&] { return makes_room("g", second); });
        co_await s.join();
        BOOST_TEST((clock.now() - begun == 2s));
    };
    run(body());
    BOOST_TEST(first);
    BOOST_TEST(second);
    BOOST_TEST(most == 1u);
    BOOST_TEST(table->stats().revocations.value() == 2u);
}

BOOST_FIXTURE_TEST_CASE(a_client_stays_while_its_record_goes, fixture)
{
    (void)only_delegation(a, "f");
    overdue({"f"});
    store->takes = [] { return 1s; };
    bool made = false;
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([&] { return makes_room("f", made); });
        co_await sleep_for(500ms);
        const time_point begun = clock.now();
        const auto forgotten = co_await table->forget(a);
        BOOST_TEST(forgotten.has_value());
        BOOST_TEST((clock.now() - begun == 1500ms)); // it began when the other was done
        co_await s.join();
    };
    run(body());
    BOOST_TEST(made);
    BOOST_TEST(table->stats().clients.value() == 1);
}

// Its record would let it take back, after a restart, what was revoked.
BOOST_FIXTURE_TEST_CASE(one_that_came_back_beside_a_revoked_one_is_not_written_down, fixture)
{
    (void)only_delegation(a, "f");
    const stateid g = only_delegation(a, "g");
    overdue({"f", "g"});
    passage hold;
    BOOST_REQUIRE(make_room(rename_of("f"), 0s, hold));
    hold.end();
    store->takes = [] { return 1s; };
    bool made = false;
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        scope tending(*shard);
        s.spawn([&] { return makes_room("g", made); });
        co_await sleep_for(500ms);
        BOOST_TEST(table->return_delegation(a, g, file_named("g")).has_value());
        co_await s.join();
        tending.spawn([this] { return table->tend(); });
        co_await sleep_for(10s);
        tending.request_stop();
        co_await tending.join();
    };
    run(body());
    BOOST_TEST(made);
    BOOST_TEST(table->stats().revocations.value() == 1u);
    BOOST_TEST(!lists.new_list.contains("a"));
}

BOOST_FIXTURE_TEST_CASE(the_record_comes_back_with_the_last_that_is_freed, fixture)
{
    const stateid f = only_delegation(a, "f");
    const stateid g = only_delegation(a, "g");
    overdue({"f", "g"});
    for (const char* file : {"f", "g"}) {
        passage hold;
        BOOST_REQUIRE(make_room(rename_of(file), 0s, hold));
    }
    // Nobody else's.
    BOOST_TEST(is(run(table->free_stateid(b, f)), errc::bad_stateid));
    BOOST_TEST(is(table->test_stateid(a, f), errc::deleg_revoked));
    BOOST_REQUIRE(run(table->free_stateid(a, f)));
    BOOST_TEST(!lists.new_list.contains("a"));
    BOOST_REQUIRE(run(table->free_stateid(a, g)));
    BOOST_TEST(lists.new_list.contains("a"));
}

BOOST_FIXTURE_TEST_CASE(what_came_back_is_counted_no_more, files_fixture)
{
    start([](state_options& o) {
        o.limits.delegations_per_client = 2;
        o.rest_after_recall = 1ns;
    });
    const client_id a = client("a");
    for (int i = 0; i < 5; ++i) {
        const std::string name = std::to_string(i);
        const auto o = open(a, "o", name, read, none, delegation_want::any);
        BOOST_REQUIRE((o && o->delegation));
        BOOST_REQUIRE(table->recall(o->delegation->id));
        BOOST_REQUIRE(table->return_delegation(a, o->delegation->id, file_named(name)));
    }
    BOOST_TEST(table->stats().ended_recalls.value() == 5u);
    BOOST_TEST(table->stats().refused_limits.value() == 0u);
    for (int i = 5; i < 8; ++i)
        BOOST_REQUIRE(open(a, "o", std::to_string(i), read, none, delegation_want::any));
    BOOST_TEST(table->stats().read_delegations.value() == 2);
    BOOST_TEST(table->stats().refused_limits.value(limited::delegations, limit_of::client) == 1u);
}

// The rest begins with the recall, and anew with its end.
BOOST_FIXTURE_TEST_CASE(a_file_rests_while_it_is_recalled_and_behind_that, fixture)
{
    const stateid d = only_delegation(a, "f", delegation_type::read);
    BOOST_REQUIRE(table->recall(d));
    const auto beside = ask(b, "f");
    BOOST_TEST((!beside->delegation && beside->why == no_delegation::contention));
    BOOST_REQUIRE(table->close(b, beside->id, file_named("f")));
    pass(table->options().rest_after_recall * 2);
    BOOST_REQUIRE(table->return_delegation(a, d, file_named("f")));
    const auto behind = ask(b, "f");
    BOOST_TEST((!behind->delegation && behind->why == no_delegation::contention));
}

// Whoever holds a file to write is asked for its size by others alone, and only as long as it has the file.
BOOST_FIXTURE_TEST_CASE(a_writer_is_asked_by_others_while_it_has_the_file, fixture)
{
    const stateid d = only_delegation(a, "f");
    table->note_change(d, 5);
    BOOST_TEST(!table->writer_of(file_named("f"), a));
    BOOST_TEST(table->writer_of(file_named("f"), b).has_value());
    pass(table->options().lease + 1s);
    BOOST_TEST(!table->writer_of(file_named("f"), b)); // nobody hears from it
    BOOST_REQUIRE(table->renew(a));
    BOOST_TEST(table->writer_of(file_named("f"), b).has_value());
    BOOST_TEST(table->note_answer(d, 6).has_value());
    BOOST_REQUIRE(table->recall(d));
    BOOST_TEST(!table->note_answer(d, 7)); // a late one
}

BOOST_FIXTURE_TEST_CASE(a_file_that_is_open_too_often_is_not_delegated, fixture)
{
    for (int i = 0; i < 64; ++i)
        BOOST_REQUIRE(open(a, "owner " + std::to_string(i), "f", write));
    const auto o = ask(a, "f", both);
    BOOST_TEST((!o->delegation && o->why == no_delegation::contention));
}

BOOST_FIXTURE_TEST_CASE(who_gives_back_what_it_reclaims_is_told_so, fixture)
{
    start();
    a = *table->add_client("a");
    BOOST_REQUIRE(table->set_callable(a, true));
    for (const bool gives_back : {false, true}) {
        const std::string_view file = gives_back ? "f" : "g";
        open_request r = request(a, "o", file, read, none, delegation_want::read);
        r.claim = open_claim::reclaim;
        r.gives_back = gives_back;
        const auto o = table->open(r);
        BOOST_REQUIRE((o && o->delegation));
        BOOST_TEST(o->delegation->recalled == gives_back);
    }
    BOOST_TEST(handler.recalls.size() == 1u);
}

// Nobody who can't be called is asked: the answer would never come, and the next request is due in 10 s only.
BOOST_FIXTURE_TEST_CASE(only_those_are_asked_back_who_can_hear_it, files_fixture)
{
    start([](state_options& o) { o.limits.delegations_per_client = 8; });
    const client_id a = client("a");
    for (int i = 0; i < 7; ++i)
        BOOST_REQUIRE(open(a, "o", std::to_string(i), read, none, delegation_want::any));
    BOOST_REQUIRE(table->set_callable(a, false));
    handler.recalled_any.clear();
    pass(10s);
    table->lacks_leases();
    BOOST_TEST(handler.recalled_any.empty());
    BOOST_REQUIRE(table->set_callable(a, true));
    pass(10s);
    table->lacks_leases();
    BOOST_TEST(handler.recalled_any.size() == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
