// SPDX-License-Identifier: Apache-2.0
// Delegations where several rules meet: after a restart, beside one that was revoked, and where a client is gone.
#include "files_fixture.hpp"

BOOST_AUTO_TEST_SUITE(files_delegation_rules_test)

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
    /// A delegation without an open.
    stateid only_delegation(client_id c, std::string_view file, delegation_type type)
    {
        const share access = type == delegation_type::read ? read : both;
        const auto o = open(c, "o", file, access, none, delegation_want::any);
        BOOST_REQUIRE((o && o->delegation && o->delegation->type == type));
        BOOST_REQUIRE(table->close(c, o->id, file_named(file)));
        return o->delegation->id;
    }
    static demand rename_of(std::string_view file) { return demand(operation::rename, file_named(file)); }
    /// Recalls what "a" has of a file, and revokes it.
    void revoke(std::string_view file)
    {
        BOOST_TEST(is(make_way(rename_of(file), 0s), errc::busy));
        pass(table->options().recall_time);
        BOOST_REQUIRE(book->renew(a));
        BOOST_REQUIRE(make_way(rename_of(file), 0s));
    }
    client_id a = 0, b = 0;
};

/// After a restart, before "a" and "b" have said that they are done.
struct restarted : fixture {
    restarted()
    {
        start();
        for (const auto& [id, key] : {std::pair(&a, "a"), std::pair(&b, "b")}) {
            *id = *book->add_client(key);
            BOOST_REQUIRE(book->set_callable(*id, true));
        }
    }
    result<opened> reclaim(client_id c, share access, delegation_want had, share deny = none)
    {
        open_request r = request(c, "o", "f", access, deny, had);
        r.claim = open_claim::reclaim;
        return table->open(r);
    }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(who_reclaims_names_the_type_that_it_had, restarted)
{
    const auto o = reclaim(a, read, delegation_want::any);
    BOOST_TEST((o && !o->delegation && o->why == no_delegation::unsuited));
}

// Two clients that claim what they can't have had together: the second one gets nothing.
BOOST_FIXTURE_TEST_CASE(nothing_is_reclaimed_beside_a_writer_s, restarted)
{
    const auto writer = reclaim(a, both, delegation_want::write);
    BOOST_REQUIRE((writer && writer->delegation));
    BOOST_REQUIRE(table->close(a, writer->id, file_named("f")));
    BOOST_TEST(is(reclaim(b, read, delegation_want::read), errc::reclaim_conflict));
}

BOOST_FIXTURE_TEST_CASE(what_is_reclaimed_reads_nothing_that_others_deny, restarted)
{
    BOOST_REQUIRE(reclaim(b, read, delegation_want::none, read));
    const auto o = reclaim(a, write, delegation_want::read);
    BOOST_TEST((o && !o->delegation && o->why == no_delegation::contention));
}

// A client that reclaims has it already, whoever waits for the file.
BOOST_FIXTURE_TEST_CASE(what_is_reclaimed_is_not_recalled_for_an_earlier_recall, restarted)
{
    const auto first = reclaim(a, read, delegation_want::read);
    BOOST_REQUIRE((first && first->delegation));
    BOOST_REQUIRE(table->recall(first->delegation->id));
    const auto second = reclaim(b, read, delegation_want::read);
    BOOST_REQUIRE((second && second->delegation));
    BOOST_TEST(!second->delegation->recalled);
    BOOST_TEST(table->stats().recalls.value() == 1u);
}

// Who never said that it has reclaimed all is not written down for having freed what was revoked.
BOOST_FIXTURE_TEST_CASE(who_has_not_reclaimed_all_has_no_record, restarted)
{
    const auto o = reclaim(a, read, delegation_want::read);
    BOOST_REQUIRE((o && o->delegation));
    BOOST_REQUIRE(table->recall(o->delegation->id));
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([this] { return book->tend(); });
        s.spawn([this] { return table->tend(); });
        for (duration waited{}; waited <= table->options().recall_time; waited += 30s) {
            co_await sleep_for(30s);
            BOOST_TEST(book->renew(a).has_value());
        }
        s.request_stop();
        co_await s.join();
    };
    run(body());
    BOOST_TEST(is(table->test_stateid(a, o->delegation->id), errc::deleg_revoked));
    BOOST_REQUIRE(run(table->free_stateid(a, o->delegation->id)));
    BOOST_TEST(!lists.new_list.contains("a"));
    BOOST_REQUIRE(run(book->reclaim_complete(a)));
    BOOST_TEST(lists.new_list.contains("a"));
}

BOOST_FIXTURE_TEST_CASE(what_was_revoked_is_not_recalled, fixture)
{
    const stateid d = only_delegation(a, "f", delegation_type::write);
    revoke("f");
    BOOST_TEST(is(table->recall(d), errc::bad_stateid));
    table->note_change(d, 5);
    BOOST_TEST(!table->note_answer(d, 6, false, 6));
    BOOST_TEST(table->stats().recalls.value() == 1u);
    BOOST_TEST(table->stats().local_recalls.value() == 0u);
}

// A silent client frees all that was revoked before it was told, and nothing else.
BOOST_FIXTURE_TEST_CASE(who_was_told_before_one_was_revoked_has_it_to_free, fixture)
{
    const stateid d = only_delegation(a, "f", delegation_type::write);
    BOOST_REQUIRE(book->set_silent(a));
    BOOST_TEST(is(make_way(rename_of("f"), 0s), errc::busy));
    pass(table->options().recall_time + 20s);
    BOOST_REQUIRE(book->renew(a));
    const time_point told = clock.now();
    pass(1s);
    BOOST_REQUIRE(make_way(rename_of("f"), 0s));
    table->drop_revoked_until(a, told);
    BOOST_TEST(is(table->test_stateid(a, d), errc::deleg_revoked));
    table->drop_revoked_until(a, clock.now());
    BOOST_TEST(is(table->test_stateid(a, d), errc::bad_stateid));
}

// Clients are asked for those that they still have.
BOOST_FIXTURE_TEST_CASE(what_was_revoked_is_not_asked_for, files_fixture)
{
    start([](state_options& o) { o.limits.delegations_per_client = 8; });
    const client_id a = client("a"), b = client("b");
    using asked = std::vector<std::pair<client_id, std::size_t>>;
    for (const char* file : {"1", "2", "3"})
        BOOST_REQUIRE(open(a, "o", file, read, none, delegation_want::any)->delegation);
    BOOST_TEST(is(make_way(demand(operation::rename, file_named("1")), 0s), errc::busy));
    pass(table->options().recall_time);
    for (const client_id c : {a, b})
        BOOST_REQUIRE(book->renew(c));
    BOOST_REQUIRE(make_way(demand(operation::rename, file_named("1")), 0s));
    table->recall_any(2);
    BOOST_TEST(handler.recalled_any.empty());
    table->recall_any(1);
    BOOST_TEST((handler.recalled_any == asked{{a, 1}}));
    handler.recalled_any.clear();
    // Three quarters of six are for two: "a" has its two.
    for (const char* file : {"4", "5", "6", "7"})
        BOOST_REQUIRE(open(b, "o", file, read, none, delegation_want::any)->delegation);
    table->lacks_leases();
    BOOST_TEST((handler.recalled_any == asked{{b, 2}}));
}

// A holder of which all is revoked has no share in what is left to holders.
BOOST_FIXTURE_TEST_CASE(who_has_revoked_ones_alone_is_no_holder, fixture)
{
    (void)only_delegation(a, "f", delegation_type::read);
    revoke("f");
    BOOST_REQUIRE(book->renew(b));
    for (int i = 0; i < 8; ++i)
        (void)only_delegation(b, std::to_string(i), delegation_type::read);
    table->lacks_leases();
    BOOST_TEST_REQUIRE(handler.recalled_any.size() == 1u);
    BOOST_TEST(handler.recalled_any[0].second == 6u); // three quarters, for one
}

BOOST_FIXTURE_TEST_CASE(nobody_is_asked_who_reads_or_gives_back, fixture)
{
    const stateid reader = only_delegation(a, "r", delegation_type::read);
    table->note_change(reader, 5);
    BOOST_TEST(!table->writer_of(file_named("r"), b));
    const stateid writer = only_delegation(a, "w", delegation_type::write);
    table->note_change(writer, 5);
    BOOST_TEST(table->writer_of(file_named("w"), b).has_value());
    BOOST_REQUIRE(table->recall(writer));
    BOOST_TEST(!table->writer_of(file_named("w"), b));
}

BOOST_FIXTURE_TEST_CASE(a_change_is_noted_of_delegations_alone, fixture)
{
    const auto o = open(a, "o", "f", both, write);
    BOOST_REQUIRE(o);
    table->note_change(o->id, ~std::uint64_t(0));
    BOOST_TEST(!table->note_answer(o->id, 1, false, 6));
    BOOST_REQUIRE(table->lock(lock_of(a, o->id, "f")));
    BOOST_TEST(is(open(b, "o", "f", write), errc::share_denied));
    BOOST_REQUIRE(table->close(a, o->id, file_named("f")));
    BOOST_TEST(table->stats().files.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(recalls_and_their_time_are_counted, fixture)
{
    const stateid d = only_delegation(a, "f", delegation_type::read);
    BOOST_REQUIRE(table->recall(d));
    pass(2s);
    BOOST_REQUIRE(table->return_delegation(a, d, file_named("f")));
    BOOST_TEST(table->stats().recalls.value() == 1u);
    BOOST_TEST(table->stats().ended_recalls.value() == 1u);
    BOOST_TEST(table->stats().recall_microseconds.value() == 2'000'000u);
}

// However long nobody asked in between.
BOOST_FIXTURE_TEST_CASE(the_rest_after_a_recall_ends, fixture)
{
    const stateid d = only_delegation(a, "f", delegation_type::read);
    BOOST_REQUIRE(table->recall(d));
    BOOST_REQUIRE(table->return_delegation(a, d, file_named("f")));
    pass(2 * table->options().rest_after_recall);
    BOOST_TEST(open(b, "o", "f", read, none, delegation_want::any)->delegation.has_value());
}

// Nothing else is due before.
BOOST_FIXTURE_TEST_CASE(a_recall_has_its_end_in_time, files_fixture)
{
    start([](state_options& o) { o.recall_time = 10s; });
    const client_id a = client("a");
    const auto o = open(a, "o", "f", read, none, delegation_want::any);
    BOOST_REQUIRE((o && o->delegation));
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([this] { return book->tend(); });
        s.spawn([this] { return table->tend(); });
        co_await sleep_for(1s);
        BOOST_TEST(table->recall(o->delegation->id).has_value());
        co_await sleep_for(11s);
        BOOST_TEST(is(table->test_stateid(a, o->delegation->id), errc::deleg_revoked));
        s.request_stop();
        co_await s.join();
    };
    run(body());
}

// A client that is gone keeps what nobody wants: no local process waits for these.
BOOST_FIXTURE_TEST_CASE(who_is_gone_keeps_what_no_local_process_wants, files_fixture)
{
    start([](state_options& o) { o.recall_time = 1000s; });
    const client_id a = client("a"), b = client("b");
    const auto leased = [&](client_id c, std::string_view file) {
        open_request r = request(c, "o", file, read, none, delegation_want::any);
        r.leased = true;
        pending_open p;
        BOOST_REQUIRE(table->begin_open(r, p));
        BOOST_REQUIRE(table->reserve_delegation(p));
        p.set_lease(std::make_unique<storage::file_lease>());
        const auto o = table->commit(p);
        BOOST_REQUIRE((o && o->delegation));
        return o->delegation->id;
    };
    (void)leased(a, "wanted by nobody");
    const auto unleased = open(a, "o", "wanted by a client", read, none, delegation_want::any);
    BOOST_REQUIRE((unleased && unleased->delegation));
    BOOST_TEST(is(make_way(demand(operation::rename, file_named("wanted by a client")), 0s), errc::busy));
    BOOST_REQUIRE(table->recall(leased(b, "wanted here")));
    const auto body = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([this] { return book->tend(); });
        s.spawn([this] { return table->tend(); });
        co_await sleep_for(table->options().lease + 5s);
        BOOST_TEST(book->renew(a).has_value());
        BOOST_TEST(is(book->renew(b), errc::expired));
        s.request_stop();
        co_await s.join();
    };
    run(body());
}

BOOST_AUTO_TEST_SUITE_END()
