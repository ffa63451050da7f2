// SPDX-License-Identifier: Apache-2.0
// Clients that an operator ends: nothing that they sent does anything any more, what they had is free, and who is kept out stays out
// for his time.
#include "nfs4_v40_client.hpp"

#include <verbena/core/net/refusals.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/protocols/storage/gated_backend.hpp>

#include "../log_at.hpp"

BOOST_AUTO_TEST_SUITE(nfs4_evictions_test)

using namespace verbena;
using namespace verbena::test;

namespace {

/// A WRITE waits while it is `held`.
class slow_writes final : public storage::gated_backend {
public:
    using gated_backend::gated_backend;
    bool gates(storage::operation op) const noexcept override { return op == storage::operation::write; }
    task<result<void>> enter(storage::operation, const storage::request&, std::uint64_t) override
    {
        while (held)
            (void)co_await go.wait();
        co_return result<void>();
    }
    void release()
    {
        held = false;
        go.set();
    }
    bool held = false;
    event go;
};

struct fixture : v40_fixture {
    fixture()
    {
        options[0].backend = &slow;
        store = &kept;
        minor = 1;
        serve();
        a.connect();
        b.connect();
        tend();
        of_a = a.open(a.creating("f"));
        BOOST_TEST_REQUIRE(of_a.status == nfsstat4::ok);
        BOOST_TEST(a.write(of_a, "text") == nfsstat4::ok);
        of_b = b.open(b.opening("f"));
        BOOST_TEST_REQUIRE(of_b.status == nfsstat4::ok);
    }
    ~fixture() { slow.release(); }
    evicted_client evict(clientid4 id, duration patience = 5s)
    {
        return run_until_complete(*shard, commons->evicted.end(text_of_client(id), patience));
    }
    bool keep_out(std::string_view name, duration time)
    {
        return commons->evicted.keep_out(name, clock.now() + time, clock.now());
    }
    std::vector<std::string> found(std::string who)
    {
        std::vector<std::string> names;
        for (const known_client& c : run_until_complete(*shard, commons->evicted.find(std::move(who), 10)))
            names.push_back(c.who.name);
        return names;
    }
    recovery_lists lists;
    memory_store kept{lists};
    slow_writes slow{*files};
    client4 a{*this, "a"}, b{*this, "b"};
    client4::opened of_a, of_b;
    using names = std::vector<std::string>;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(an_evicted_client_changes_nothing_and_others_are_not_disturbed, fixture)
{
    BOOST_TEST(a.call().status() == nfsstat4::ok); // its lease was renewed just now
    const evicted_client had = evict(a.id);
    BOOST_TEST(had.had.opens == 1u);
    BOOST_TEST(had.sessions == 1u);
    BOOST_TEST(had.running == 0u);
    BOOST_TEST(had.failure == "");
    // By its open, and by none.
    BOOST_TEST(a.write(of_a, "late") != nfsstat4::ok);
    BOOST_TEST(a.write(of_a, "late", stateid4()) == nfsstat4::badsession);
    BOOST_TEST(b.read(of_b, of_b.id) == "text");
    BOOST_TEST(b.write(of_b, "mine") == nfsstat4::ok);
    BOOST_TEST(b.read(of_b, of_b.id) == "mine");
    // It begins anew, and has nothing.
    BOOST_TEST(a.call().status() == nfsstat4::badsession);
    a.connect();
    BOOST_TEST(a.write(of_a, "late") == nfsstat4::bad_stateid);
    of_a = a.open(a.opening("f"));
    BOOST_TEST(of_a.status == nfsstat4::ok);
    BOOST_TEST(a.write(of_a, "anew") == nfsstat4::ok);
}

// A name is what its client says it is, and a client knows the ids that it was given.
BOOST_FIXTURE_TEST_CASE(no_decoy_is_ended_whose_name_is_the_id_of_another, fixture)
{
    client4 decoy(*this, text_of_client(a.id));
    decoy.connect();
    BOOST_TEST(evict(a.id).had.opens == 1u);
    BOOST_TEST(a.call().status() == nfsstat4::badsession);
    BOOST_TEST(decoy.call().status() == nfsstat4::ok);
    minor = 0;
    client0 old(*this, "old");
    old.connect();
    minor = 1;
    client4 other(*this, text_of_client(old.id));
    other.connect();
    (void)evict(old.id);
    BOOST_TEST(other.call().status() == nfsstat4::ok);
    minor = 0;
    BOOST_TEST(old.renew() == nfsstat4::admin_revoked);
}

// A session that was renewed within the last second asks nobody whether it still is somebody's.
BOOST_FIXTURE_TEST_CASE(no_call_passes_by_a_lease_that_was_renewed_just_before, fixture)
{
    BOOST_TEST(a.call().status() == nfsstat4::ok);
    (void)evict(a.id);
    BOOST_TEST(a.write(of_a, "late", stateid4()) == nfsstat4::badsession);
    BOOST_TEST(b.read(of_b, of_b.id) == "text");
}

BOOST_FIXTURE_TEST_CASE(what_it_had_is_free_for_others_at_once, fixture)
{
    OPEN4args all = a.creating("g");
    all.share_deny = share4::deny_both;
    BOOST_TEST_REQUIRE(a.open(all).status == nfsstat4::ok);
    BOOST_TEST(b.open(b.opening("g")).status == nfsstat4::share_denied);
    BOOST_TEST(evict(a.id).had.opens == 2u);
    BOOST_TEST(b.open(b.opening("g")).status == nfsstat4::ok);
    BOOST_TEST(commons->state.total(&verbena::files::state_stats::opens) == 2);
}

BOOST_FIXTURE_TEST_CASE(a_write_that_is_under_way_is_waited_for_or_named, fixture)
{
    for (const bool ends : {true, false}) {
        BOOST_TEST_CONTEXT("ends " << ends)
        {
            slow.held = true;
            slow.go.reset();
            const auto c =
                begin(a.sequence(), PUTFH4args{client4::handle_of(of_a)},
                      WRITE4args{of_a.id, 0, stable_how4::unstable, std::as_bytes(std::span("slow", 4))});
            BOOST_TEST_REQUIRE(!c->is_done);
            std::optional<evicted_client> out;
            scope ending(*shard);
            ending.spawn(
                [&]() -> task<void> { out = co_await commons->evicted.end(text_of_client(a.id), 2s); });
            pass(1s);
            BOOST_TEST(!out);
            // Its open is gone by now, for others.
            BOOST_TEST(commons->state.total(&verbena::files::state_stats::opens) == 1);
            if (ends)
                slow.release();
            pass(ends ? duration(100ms) : duration(1100ms));
            BOOST_TEST_REQUIRE(out.has_value());
            BOOST_TEST(out->running == (ends ? 0u : 1u));
            slow.release();
            turns();
            run_until_complete(*shard, [&]() -> task<void> { co_await ending.join(); }());
            BOOST_TEST(c->is_done);
            (void)a.call();
            a.connect();
            of_a = a.open(a.opening("f"));
            BOOST_TEST_REQUIRE(of_a.status == nfsstat4::ok);
        }
    }
}

// Another call of the client that finds its state gone has its sessions forgotten while that is being taken.
BOOST_FIXTURE_TEST_CASE(a_write_that_is_under_way_is_named_though_its_session_is_forgotten_meanwhile, fixture)
{
    slow.held = true;
    const auto hangs =
        begin(a.sequence(), PUTFH4args{client4::handle_of(of_a)},
              WRITE4args{of_a.id, 0, stable_how4::unstable, std::as_bytes(std::span("slow", 4))});
    BOOST_TEST_REQUIRE(!hangs->is_done);
    pass(2s);
    kept.takes = [] { return duration(100ms); };
    std::optional<evicted_client> out;
    scope ending(*shard);
    ending.spawn([&]() -> task<void> { out = co_await commons->evicted.end(text_of_client(a.id), 2s); });
    turns();
    BOOST_TEST(!out);
    commons->sessions.forget(a.id);
    pass(1s);
    BOOST_TEST(!out);
    pass(1100ms);
    BOOST_TEST_REQUIRE(out.has_value());
    BOOST_TEST(out->running == 1u);
    BOOST_TEST(out->sessions == 1u);
    slow.release();
    turns();
    run_until_complete(*shard, [&]() -> task<void> { co_await ending.join(); }());
    BOOST_TEST(hangs->is_done);
}

// For who does not wait for the end any longer.
BOOST_FIXTURE_TEST_CASE(it_is_told_how_far_the_end_of_a_client_is, fixture)
{
    const auto how_far = [this](clientid4 id) {
        return run_until_complete(*shard, commons->evicted.how_far(text_of_client(id)));
    };
    BOOST_TEST(how_far(a.id).is_there);
    BOOST_TEST(!how_far(a.id).waits_for_store);
    kept.takes = [] { return duration(60s); };
    bool is_over = false;
    scope ending(*shard);
    ending.spawn([&]() -> task<void> {
        (void)co_await commons->evicted.end(text_of_client(a.id), 2s);
        is_over = true;
    });
    pass(30s, 1s);
    unended_client far = how_far(a.id);
    BOOST_TEST(far.is_there);
    BOOST_TEST(far.waits_for_store);
    BOOST_TEST(far.has.opens == 1u);
    BOOST_TEST(!how_far(b.id).waits_for_store);
    kept.takes = {};
    pass(40s, 1s);
    BOOST_TEST(is_over);
    BOOST_TEST(!how_far(a.id).is_there);
    run_until_complete(*shard, [&]() -> task<void> { co_await ending.join(); }());
}

// Its record has to be written before it can go.
BOOST_FIXTURE_TEST_CASE(the_state_folder_is_named_also_where_it_hangs_with_the_client_s_first_open, fixture)
{
    const auto waits_for_store = [this](clientid4 id) {
        return run_until_complete(*shard, commons->evicted.how_far(text_of_client(id))).waits_for_store;
    };
    minor = 0;
    client0 old(*this, "old");
    old.connect();
    kept.takes = [] { return duration(60s); };
    const std::shared_ptr<memory_call> opens = prepare(0, [&](compound_request& out) {
        out.add(PUTROOTFH4args());
        out.add(LOOKUP4args{"export"});
        out.add(old.creating("g"));
    });
    scope under_way(*shard);
    under_way.spawn([&]() -> task<void> { (void)co_await dispatcher->dispatch(*opens); });
    pass(1s);
    BOOST_TEST_REQUIRE(kept.writing == 1u);
    BOOST_TEST(!waits_for_store(old.id)); // nobody ends it
    under_way.spawn([&]() -> task<void> { (void)co_await commons->evicted.end(text_of_client(old.id), 2s); });
    pass(10s, 1s);
    BOOST_TEST(waits_for_store(old.id));
    BOOST_TEST(!waits_for_store(a.id));
    kept.takes = {};
    pass(60s, 1s);
    BOOST_TEST(!waits_for_store(old.id));
    run_until_complete(*shard, [&]() -> task<void> { co_await under_way.join(); }());
}

// The rest is up to the shards that have its files.
BOOST_FIXTURE_TEST_CASE(the_state_folder_is_not_named_when_the_record_is_gone, fixture)
{
    for (int i = 0; i < 600; ++i)
        BOOST_TEST_REQUIRE(a.open(a.creating("f" + std::to_string(i))).status == nfsstat4::ok);
    const auto client = run_until_complete(*shard, commons->evicted.find("a", 1)).at(0).state;
    bool is_removed = false;
    kept.wrote = [&](std::string_view what, std::string_view, files::share) {
        is_removed |= what == "remove";
    };
    scope ending(*shard);
    ending.spawn([&]() -> task<void> { (void)co_await commons->evicted.end(text_of_client(a.id), 2s); });
    int parts = 0;
    while (commons->state.table().stats().opens.value() > 1) {
        shard->turn();
        if (!is_removed)
            continue;
        ++parts;
        BOOST_TEST(!commons->state.clients().waits_for_store(client));
    }
    BOOST_TEST(parts > 1);
    run_until_complete(*shard, [&]() -> task<void> { co_await ending.join(); }());
    kept.wrote = {};
}

BOOST_FIXTURE_TEST_CASE(a_client_is_kept_out_for_its_time_and_no_longer, fixture)
{
    const log_at quiet(log_level::off);
    BOOST_TEST(keep_out("a", 60s));
    (void)evict(a.id);
    BOOST_TEST(a.call().status() == nfsstat4::badsession);
    const std::uint64_t before = refusals(refused::client_evicted);
    const auto asks = [&] { return compound(a.exchange()).status(); };
    BOOST_TEST(asks() == nfsstat4::delay);
    BOOST_TEST(compound(b.exchange()).status() == nfsstat4::ok);
    BOOST_TEST(b.write(of_b, "mine") == nfsstat4::ok);
    clock.advance(60s - 1ms);
    BOOST_TEST(asks() == nfsstat4::delay);
    BOOST_TEST(refusals(refused::client_evicted) == before + 2);
    clock.advance(1ms);
    a.connect();
    BOOST_TEST(a.open(a.opening("f")).status == nfsstat4::ok);
    BOOST_TEST(refusals(refused::client_evicted) == before + 2);
}

BOOST_FIXTURE_TEST_CASE(a_client_is_let_in_before_its_time, fixture)
{
    const log_at quiet(log_level::off);
    BOOST_TEST(keep_out("a", 60s));
    (void)evict(a.id);
    BOOST_TEST(compound(a.exchange()).status() == nfsstat4::delay);
    BOOST_TEST(keep_out("a", 0s));
    BOOST_TEST(compound(a.exchange()).status() == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(who_has_said_its_name_before_does_not_get_in_either, fixture)
{
    const log_at quiet(log_level::off);
    client4 c(*this, "c");
    answer4 known = compound(c.exchange());
    const auto exchanged = known.good<EXCHANGE_ID4res>();
    BOOST_TEST(keep_out("c", 60s));
    BOOST_TEST(compound(client4::session_of(exchanged.clientid, exchanged.sequenceid)).status() ==
               nfsstat4::delay);
    // Nor is it there any more when it was ended.
    (void)evict(exchanged.clientid);
    BOOST_TEST(found("c") == names{}, boost::test_tools::per_element());
}

BOOST_FIXTURE_TEST_CASE(who_has_set_its_id_before_does_not_get_in_either, fixture)
{
    const log_at quiet(log_level::off);
    minor = 0;
    client0 c(*this, "c");
    const SETCLIENTID4res set = c.set();
    BOOST_TEST_REQUIRE(set.status == nfsstat4::ok);
    BOOST_TEST(keep_out("c", 10s));
    BOOST_TEST(c.confirm(set.clientid, set.setclientid_confirm) == nfsstat4::delay);
    BOOST_TEST(found("c") == names{}, boost::test_tools::per_element());
    // What it said stands until its time is over.
    clock.advance(10s);
    BOOST_TEST(c.confirm(set.clientid, set.setclientid_confirm) == nfsstat4::ok);
    BOOST_TEST(found("c") == names{"c"}, boost::test_tools::per_element());
}

BOOST_FIXTURE_TEST_CASE(as_many_are_kept_out_as_may_be, fixture)
{
    for (std::size_t i = 0; i < kept_out::most; ++i)
        BOOST_TEST_REQUIRE(keep_out("n" + std::to_string(i), 60s));
    BOOST_TEST(!keep_out("one more", 60s));
    BOOST_TEST(keep_out("n7", 90s));
    clock.advance(61s);
    BOOST_TEST(keep_out("one more", 60s));
}

BOOST_FIXTURE_TEST_CASE(clients_are_found_by_id_name_and_address_of_any_minor_version, fixture)
{
    minor = 0;
    client0 old(*this, "old");
    old.connect();
    BOOST_TEST(found(text_of_client(a.id)) == names{"a"}, boost::test_tools::per_element());
    BOOST_TEST(found("b") == names{"b"}, boost::test_tools::per_element());
    BOOST_TEST(found(text_of_client(old.id)) == names{"old"}, boost::test_tools::per_element());
    BOOST_TEST(found("old") == names{"old"}, boost::test_tools::per_element());
    BOOST_TEST(found("127.0.0.1") == (names{"a", "b", "old"}), boost::test_tools::per_element());
    BOOST_TEST(found("") == (names{"a", "b", "old"}), boost::test_tools::per_element());
    BOOST_TEST(found("ol") == names{}, boost::test_tools::per_element());
}

BOOST_FIXTURE_TEST_CASE(a_client_of_minor_version_0_is_ended_and_kept_out, fixture)
{
    const log_at quiet(log_level::off);
    minor = 0;
    client0 old(*this, "old"), other(*this, "other");
    old.connect();
    other.connect();
    const auto file = old.ready(old.creating("h"));
    const auto theirs = other.ready(other.opening("h"));
    BOOST_TEST(old.write(file, file.id) == nfsstat4::ok);
    BOOST_TEST(old.lock(file, old.locking(file, 0, 10)).status == nfsstat4::ok);
    BOOST_TEST(other.lock(theirs, other.locking(theirs, 5, 1)).status == nfsstat4::denied);
    BOOST_TEST(keep_out("old", 60s));
    const evicted_client had = evict(old.id);
    BOOST_TEST(had.had.opens == 1u);
    BOOST_TEST(had.had.locks == 1u);
    BOOST_TEST(other.lock(theirs, other.locking(theirs, 5, 1)).status == nfsstat4::ok); // at once
    BOOST_TEST(old.write(file, file.id) == nfsstat4::expired);
    BOOST_TEST(old.renew() == nfsstat4::admin_revoked);
    BOOST_TEST(old.renew() == nfsstat4::stale_clientid);
    BOOST_TEST(old.write(file, file.id) == nfsstat4::expired);
    BOOST_TEST(old.set().status == nfsstat4::delay);
    BOOST_TEST(other.write(theirs, theirs.id) == nfsstat4::ok);
    clock.advance(60s);
    BOOST_TEST(other.renew() == nfsstat4::ok);
    old.connect();
    BOOST_TEST(old.renew() == nfsstat4::ok);
}

BOOST_AUTO_TEST_SUITE_END()
