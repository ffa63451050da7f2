// SPDX-License-Identifier: Apache-2.0
// What is kept in order when a delegation goes: the client's record, others' turns at the store, and what is counted.
#include "files_fixture.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>

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
            BOOST_TEST(is(make_way(rename_of(file), 0s), errc::busy));
        }
        pass(table->options().recall_time);
        BOOST_REQUIRE(book->renew(a));
    }
    task<void> makes_room(std::string_view file, bool& made)
    {
        const auto room = co_await table->make_way(rename_of(file), 0s);
        made = room.has_value();
    }
    client_id a = 0, b = 0;
};

} // namespace

// A client that renews and returns nothing would cost others the time of a recall for each file: a day for a thousand.
BOOST_FIXTURE_TEST_CASE(who_returns_nothing_is_trusted_no_more, fixture)
{
    std::vector<std::string> said;
    set_log_capture(
        [](void* to, std::string_view line) {
            static_cast<std::vector<std::string>*>(to)->emplace_back(line);
        },
        &said);
    constexpr unsigned files = 1000;
    std::vector<stateid> held;
    for (unsigned i = 0; i < files; ++i)
        held.push_back(only_delegation(a, std::to_string(i), delegation_type::read));
    // Somebody removes them one after the other.
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([this] { return book->tend(); });
        s.spawn([this] { return table->tend(); });
        s.spawn([this]() -> task<void> {
            for (;;) {
                const bool goes_on = co_await sleep_for(30s);
                if (!goes_on)
                    co_return;
                BOOST_TEST(book->renew(a).has_value());
                BOOST_TEST(book->renew(b).has_value());
            }
        });
        const time_point begun = clock.now();
        for (unsigned i = 0; i < files; ++i) {
            const demand removal(operation::remove, file_named(std::to_string(i)), b);
            const auto room = co_await table->make_way(removal, time_point::max() - clock.now());
            BOOST_REQUIRE(room.has_value());
        }
        const unsigned one_by_one = table->options().trusted_revocations;
        BOOST_TEST((clock.now() - begun == (one_by_one + 1) * table->options().recall_time));
        s.request_stop();
        co_await s.join();
    };
    run(body());
    set_log_capture(nullptr, nullptr);
    BOOST_TEST(table->stats().revocations.value() == files);
    BOOST_TEST(table->stats().distrusted_clients.value() == 1u);
    BOOST_TEST(std::ranges::count(store->written, "remove a") < 20); // and not for each
    for (const stateid& id : held)
        BOOST_REQUIRE(is(table->test_stateid(a, id), errc::deleg_revoked));
    BOOST_REQUIRE(said.size() == 1u);
    BOOST_TEST(said[0].find("client=a ") != std::string::npos);
    // It gets no other one, whatever it frees; others do.
    for (const stateid& id : held)
        BOOST_REQUIRE(run(table->free_stateid(a, id)));
    pass(61s); // the file's rest
    BOOST_REQUIRE(book->renew(a));
    BOOST_REQUIRE(book->renew(b));
    const auto refused = ask(a, "new");
    BOOST_REQUIRE(refused);
    BOOST_TEST(!refused->delegation);
    BOOST_TEST((refused->why == no_delegation::contention));
    BOOST_TEST(ask(b, "another")->delegation.has_value());
    // After its time it is trusted again.
    for (int i = 0; i < 20; ++i) {
        pass(60s);
        BOOST_REQUIRE(book->renew(a));
    }
    BOOST_TEST(ask(a, "newer")->delegation.has_value());
}

BOOST_FIXTURE_TEST_CASE(a_few_that_come_late_now_and_then_are_no_reason, fixture)
{
    for (const char* file : {"1", "2", "3", "4", "5"}) {
        (void)only_delegation(a, file);
        const stateid kept = only_delegation(a, std::string("kept ") + file);
        overdue({file});
        BOOST_REQUIRE(make_way(rename_of(file), 0s));
        BOOST_REQUIRE(table->return_delegation(a, kept, file_named(std::string("kept ") + file)));
        for (int i = 0; i < 16; ++i) {
            pass(60s);
            BOOST_REQUIRE(book->renew(a));
        }
    }
    BOOST_TEST(table->stats().revocations.value() == 5u);
    BOOST_TEST(table->stats().distrusted_clients.value() == 0u);
    BOOST_TEST(handler.recalls.size() == 5u);
}

// After a restart the client would take back what others have changed meanwhile.
BOOST_FIXTURE_TEST_CASE(what_has_a_record_is_not_revoked, fixture)
{
    const stateid d = only_delegation(a, "f");
    overdue({"f"});
    store->fails = [] { return true; };
    const auto room = make_way(rename_of("f"), 0s);
    BOOST_TEST((!room && room.error() == std::errc::io_error));
    BOOST_TEST(table->test_stateid(a, d).has_value());
    BOOST_TEST(is(table->check(rename_of("f")), errc::in_way));
    BOOST_TEST(table->stats().store_failures.value() == 1u);
    BOOST_TEST(table->stats().revocations.value() == 0u);
    BOOST_TEST(table->stats().revoked_delegations.value() == 0);
    BOOST_TEST(lists.new_list.contains("a"));
    store->fails = nullptr;
    BOOST_TEST(make_way(rename_of("f"), 0s).has_value());
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
        BOOST_TEST((clock.now() - begun == 1s)); // the one that came first took both
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
        const auto forgotten = co_await book->forget(a);
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
    overdue({"f"});
    BOOST_REQUIRE(make_way(rename_of("f"), 0s));
    overdue({"g"});
    store->takes = [] { return 1s; };
    bool made = false;
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        scope tending(*shard);
        s.spawn([&] { return makes_room("g", made); });
        co_await sleep_for(500ms);
        BOOST_TEST(table->return_delegation(a, g, file_named("g")).has_value());
        co_await s.join();
        tending.spawn([this] { return book->tend(); });
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
        BOOST_REQUIRE(make_way(rename_of(file), 0s));
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
    BOOST_REQUIRE(book->renew(a));
    BOOST_TEST(table->writer_of(file_named("f"), b).has_value());
    BOOST_TEST(table->note_answer(d, 6, false, 6).has_value());
    BOOST_REQUIRE(table->recall(d));
    BOOST_TEST(!table->note_answer(d, 7, false, 6)); // a late one
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
    a = *book->add_client("a");
    BOOST_REQUIRE(book->set_callable(a, true));
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
    BOOST_REQUIRE(book->set_callable(a, false));
    handler.recalled_any.clear();
    pass(10s);
    table->lacks_leases();
    BOOST_TEST(handler.recalled_any.empty());
    BOOST_REQUIRE(book->set_callable(a, true));
    pass(10s);
    table->lacks_leases();
    BOOST_TEST(handler.recalled_any.size() == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
