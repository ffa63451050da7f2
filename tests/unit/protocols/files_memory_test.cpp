// SPDX-License-Identifier: Apache-2.0
// What a kind of recallable state is in the way of, what is in its way, and what its clients may do with it.
#include "files_memory.hpp"

BOOST_AUTO_TEST_SUITE(files_memory_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;

namespace {

using enum share;

struct fixture : memory_fixture {
    ~fixture() { stop(); }
    open_request cutting(client_id c, share deny = none)
    {
        open_request r = request(c, "cuts", "f", both, deny);
        r.truncates = true;
        return r;
    }
};

} // namespace

// --- What is in its way

BOOST_FIXTURE_TEST_CASE(none_is_given_under_an_open_that_is_begun, fixture)
{
    memory.against = {operation::set_size};
    const auto o = open(a, "o", "f", both);
    {
        pending_open cut;
        BOOST_REQUIRE(table->begin_open(cutting(b), cut));
        BOOST_TEST(is(table->hold(asks(a, o->id)), errc::busy));
    }
    BOOST_TEST(table->hold(asks(a, o->id)).has_value());
    // A client's own cut is in its way if the kind says so.
    const auto other = open(a, "o", "g", both);
    open_request own = cutting(a);
    own.file = file_named("g");
    pending_open cut;
    BOOST_REQUIRE(table->begin_open(own, cut));
    const hold_request more = asks(a, other->id, all_bytes, lock_type::write, "g");
    memory.against_holder = {operation::set_size};
    BOOST_TEST(is(table->hold(more), errc::busy));
    memory.against_holder.clear();
    BOOST_TEST(table->hold(more).has_value());
}

BOOST_FIXTURE_TEST_CASE(none_is_given_against_what_others_have_open, fixture)
{
    const auto o = open(a, "o", "f", both);
    const auto writes = open(b, "o", "f", write);
    BOOST_TEST(is(table->hold(asks(a, o->id)), errc::busy));
    BOOST_REQUIRE(table->close(b, writes->id, file_named("f")));
    const auto reads = open(b, "o", "f", read);
    BOOST_TEST(is(table->hold(asks(a, o->id)), errc::busy)); // memory to write
    BOOST_TEST(table->hold(asks(a, o->id, all_bytes, lock_type::read)).has_value());
    BOOST_REQUIRE(table->close(b, reads->id, file_named("f")));
    BOOST_TEST(table->hold(asks(a, o->id)).has_value());
}

BOOST_FIXTURE_TEST_CASE(none_is_given_against_what_others_deny_or_lock, fixture)
{
    memory.against = {operation::open_deny_write, operation::lock_write};
    const auto o = open(a, "o", "f", read);
    const auto reads = [&] { return table->hold(asks(a, o->id, all_bytes, lock_type::read)); };
    const auto denies = open(b, "o", "f", both, write);
    BOOST_REQUIRE(denies);
    BOOST_TEST(is(reads(), errc::busy));
    BOOST_REQUIRE(table->close(b, denies->id, file_named("f")));
    const auto locks = open(b, "o", "f", both);
    BOOST_REQUIRE(table->lock(lock_of(b, locks->id, "f")));
    BOOST_TEST(is(reads(), errc::busy));
    BOOST_REQUIRE(table->close(b, locks->id, file_named("f")));
    BOOST_TEST(reads().has_value());
}

BOOST_FIXTURE_TEST_CASE(a_file_has_so_many_holders, fixture)
{
    memory.against = {operation::set_attributes};
    memory.of_file = 1;
    const auto of_a = open(a, "o", "f", both), of_b = open(b, "o", "f", both);
    const auto held = table->hold(asks(a, of_a->id));
    BOOST_REQUIRE(held);
    BOOST_TEST(is(table->hold(asks(b, of_b->id)), errc::busy));
    BOOST_TEST(table->stats().refused_limits.value(limited::other_states, limit_of::file) == 1u);
    memory.of_file = 2;
    BOOST_TEST(table->hold(asks(b, of_b->id)).has_value());
}

// Kinds say which of them stand beside each other.
BOOST_FIXTURE_TEST_CASE(one_kind_may_exclude_another, fixture)
{
    memory.against = {operation::set_attributes}; // nothing of this test's
    memory.is_exclusive = true;
    const auto of_a = open(a, "o", "f", both), of_b = open(b, "o", "f", both);
    const auto held = table->hold(asks(a, of_a->id, {0, 99}));
    BOOST_REQUIRE(held);
    const hold_request wanted = asks(b, of_b->id, {50, 149});
    BOOST_TEST(is(table->hold(wanted), errc::in_way));
    BOOST_TEST(table->hold(asks(b, of_b->id, {100, 149})).has_value()); // other bytes
    result<void> made;
    beside_tend([&]() -> task<void> {
        scope s(*shard);
        s.spawn([&]() -> task<void> {
            made = co_await table->make_way(demand(wanted), 10s);
            BOOST_TEST(table->hold(wanted).has_value()); // and not after a rest alone
        });
        (void)co_await sleep_for(1ms);
        BOOST_REQUIRE(memory.recalls.size() == 1u);
        BOOST_TEST((memory.recalls[0].id == *held));
        BOOST_TEST(gives_back(a, *held));
        co_await s.join();
        BOOST_TEST(made.has_value());
        // If others waited, too, the file rests.
        scope both_wait(*shard);
        const hold_request back = asks(a, of_a->id, {50, 149});
        both_wait.spawn([&]() -> task<void> {
            const auto ready = co_await table->make_way(demand(back), 10s);
            BOOST_TEST(ready.has_value());
        });
        both_wait.spawn([&]() -> task<void> {
            const demand sets(operation::set_attributes, file_named("f"), a);
            const auto ready = co_await table->make_way(sets, 10s);
            BOOST_TEST(ready.has_value());
        });
        (void)co_await sleep_for(1ms);
        BOOST_REQUIRE(memory.recalls.size() == 2u);
        BOOST_TEST(gives_back(b, memory.recalls[1].id));
        co_await both_wait.join();
        BOOST_TEST(is(table->hold(back), errc::busy));
    });
    BOOST_TEST(memory.lost.size() == 2u);
}

// --- What it is in the way of

// Also of who had the file open before.
BOOST_FIXTURE_TEST_CASE(it_is_in_the_way_of_io_by_anothers_open, fixture)
{
    memory.against = {operation::read, operation::write};
    const auto of_a = open(a, "o", "f", both), of_b = open(b, "o", "f", both);
    const auto held = table->hold(asks(a, of_a->id));
    BOOST_REQUIRE(held);
    const auto does = [&](client_id c, const stateid& id, share access) {
        return check_io(c, id, "f", access);
    };
    BOOST_TEST(is(does(b, of_b->id, write), errc::in_way));
    BOOST_TEST(is(does(b, of_b->id, read), errc::in_way));
    BOOST_TEST(does(a, of_a->id, both).has_value());
    memory.against_holder = {operation::write};
    BOOST_TEST(is(does(a, of_a->id, write), errc::in_way));
    BOOST_TEST(does(a, of_a->id, read).has_value());
    memory.takes = 5s;
    beside_tend([&]() -> task<void> {
        BOOST_TEST(gives_back(a, *held));
        for (const auto& [c, id] : {std::pair(a, of_a->id), std::pair(b, of_b->id)})
            BOOST_TEST(is(does(c, id, write), errc::in_way)); // while it is fenced
        demand writes(operation::write, file_named("f"), b);
        const auto made = co_await table->make_way(writes, 10s);
        BOOST_TEST(made.has_value());
        BOOST_TEST(does(b, of_b->id, write).has_value());
    });
}

BOOST_FIXTURE_TEST_CASE(each_operation_by_a_stateid_is_asked_as_what_it_is, fixture)
{
    const auto of_a = open(a, "o", "f", both), of_b = open(b, "o", "f", both);
    memory.against = {operation::set_size, operation::change_extents};
    BOOST_REQUIRE(table->hold(asks(a, of_a->id)));
    const auto does = [&](operation op) { return table->check_io(b, of_b->id, file_named("f"), op); };
    BOOST_TEST(does(operation::write).has_value());
    BOOST_TEST(does(operation::set_attributes).has_value());
    BOOST_TEST(is(does(operation::set_size), errc::in_way));
    BOOST_TEST(is(does(operation::change_extents), errc::in_way));
    // They write, all of them.
    const auto reads = open(b, "p", "f", read);
    for (const operation op : {operation::write, operation::set_size, operation::change_extents}) {
        BOOST_TEST(is(table->check_io(b, reads->id, file_named("f"), op), errc::open_mode));
    }
}

// --- Opens that are begun

BOOST_FIXTURE_TEST_CASE(an_open_that_is_begun_denies_removal_too, fixture)
{
    pending_open cut;
    BOOST_REQUIRE(table->begin_open(cutting(a, write), cut));
    BOOST_TEST(table->is_denied_removal(file_named("f"), b));
    BOOST_TEST(!table->is_denied_removal(file_named("f"), a));
}

// Its cut may hang for as long as it likes: what the client had is gone.
BOOST_FIXTURE_TEST_CASE(an_open_that_is_begun_goes_with_its_client, fixture)
{
    for (const bool revoked : {true, false}) {
        const client_id c = client(revoked ? "c" : "d");
        pending_open cut;
        BOOST_REQUIRE(table->begin_open(cutting(c, both), cut));
        BOOST_TEST(is(open(b, "o", "f", both), errc::share_denied));
        const auto gone = run(revoked ? book->revoke_client(c) : book->forget(c));
        BOOST_TEST(gone.has_value());
        const auto o = open(b, "o", "f", read);
        BOOST_REQUIRE(o);
        BOOST_TEST(!table->is_denied_removal(file_named("f"), b));
        BOOST_TEST(is(table->commit(cut), revoked ? errc::admin_revoked : errc::stale_client));
        // It is a write as long as it runs.
        const auto wants = open(b, "q", "f", read, none, delegation_want::any);
        BOOST_REQUIRE(wants);
        BOOST_TEST(!wants->delegation);
        BOOST_TEST(is(open(b, "p", "f", read, write), errc::in_way));
        BOOST_TEST(table->close(b, o->id, file_named("f")).has_value());
        BOOST_TEST(table->close(b, wants->id, file_named("f")).has_value());
    }
    BOOST_TEST(table->stats().files.value() == 0);
}

// It stands against nobody, and will not be granted.
BOOST_FIXTURE_TEST_CASE(a_dropped_open_that_cuts_nothing_costs_nobody_a_delegation, fixture)
{
    const client_id c = client("c");
    pending_open begun;
    BOOST_REQUIRE(table->begin_open(request(c, "o", "f", both), begun));
    BOOST_TEST(!begun.is_dropped());
    BOOST_TEST(table->may_commit(begun).has_value());
    const auto gone = run(book->revoke_client(c));
    BOOST_TEST(gone.has_value());
    BOOST_TEST(begun.is_dropped());
    BOOST_TEST(is(table->may_commit(begun), errc::admin_revoked));
    const auto o = open(b, "o", "f", both, none, delegation_want::any);
    BOOST_REQUIRE(o);
    BOOST_TEST(o->delegation.has_value());
}

BOOST_FIXTURE_TEST_CASE(an_open_that_is_begun_by_who_lost_his_lease_gives_way, fixture)
{
    pending_open cut;
    BOOST_REQUIRE(table->begin_open(cutting(a, both), cut));
    pass(60s);
    BOOST_REQUIRE(book->renew(b));
    pass(60s);
    BOOST_TEST(is(open(b, "o", "f", both), errc::in_way));
    BOOST_TEST(make_way(opening(), 1s).has_value());
    BOOST_TEST(open(b, "o", "f", both).has_value());
    BOOST_TEST(is(table->commit(cut), errc::expired));
}

// --- What its client does with it

// RFC 8881 12.5.3: LAYOUTGETs side by side bear one number.
BOOST_FIXTURE_TEST_CASE(calls_may_be_side_by_side, fixture)
{
    memory.ranges = 10;
    const auto o = open(a, "o", "f", both);
    const auto first = table->hold(asks(a, o->id, {0, 9}));
    BOOST_REQUIRE(first);
    const auto second = table->hold(asks(a, *first, {20, 29}));
    BOOST_REQUIRE(second);
    BOOST_TEST(is(table->hold(asks(a, *first, {40, 49})), errc::old_stateid));
    memory.behind = 1;
    const auto third = table->hold(asks(a, *first, {40, 49}));
    BOOST_REQUIRE(third);
    BOOST_TEST(third->seqid == second->seqid + 1);
    BOOST_TEST(is(table->hold(asks(a, *first, {60, 69})), errc::old_stateid));
    stateid newest = *first;
    newest.seqid = 0;
    BOOST_TEST(table->hold(asks(a, newest, {80, 89})).has_value());
    // It says nothing of numbers that were never given, or of other stateids.
    newest.seqid = 100;
    BOOST_TEST(is(table->hold(asks(a, newest, {80, 89})), errc::bad_stateid));
    BOOST_TEST(is(table->test_stateid(a, *first), errc::old_stateid));
    memory.behind = 2;
    BOOST_TEST(is(table->give_back(a, *first, file_named("f"), {0, 9}, std::nullopt), errc::old_stateid));
    const auto back = table->give_back(a, *second, file_named("f"), {0, 9}, std::nullopt);
    BOOST_TEST((back && *back));
}

BOOST_FIXTURE_TEST_CASE(part_of_it_is_fenced_when_it_is_back, fixture)
{
    memory.takes = 5s;
    memory.against = {operation::write};
    const auto o = open(a, "o", "f", both);
    const auto of_b = open(b, "o", "f", both);
    const auto held = table->hold(asks(a, o->id, {0, 99}));
    BOOST_REQUIRE(held);
    BOOST_REQUIRE(table->hold(asks(a, *held, {0, 49}, lock_type::read)));
    beside_tend([&]() -> task<void> {
        const auto left =
            table->give_back(a, stateid{0, held->other}, file_named("f"), {40, 59}, std::nullopt);
        BOOST_REQUIRE((left && *left));
        (void)co_await sleep_for(1s);
        BOOST_REQUIRE(memory.lost.size() == 1u);
        const lost_state& part = memory.lost[0];
        BOOST_TEST(!part.is_all);
        BOOST_TEST((part.why == loss::returned));
        BOOST_TEST((part.id == **left));
        BOOST_REQUIRE(part.bytes[0].size() == 1u);
        BOOST_TEST((part.bytes[0].all()[0].bytes == byte_range{40, 49}));
        BOOST_REQUIRE(part.bytes[1].size() == 1u);
        BOOST_TEST((part.bytes[1].all()[0].bytes == byte_range{40, 59}));
        BOOST_TEST(memory.gone.empty());
        // No client has more fences than it may have states, but that all is given back.
        memory.of_client = 1;
        BOOST_TEST(is(table->give_back(a, **left, file_named("f"), {0, 9}, std::nullopt), errc::busy));
        BOOST_TEST(table->give_back(a, **left, file_named("f"), {200, 209}, std::nullopt).has_value());
        BOOST_TEST(gives_back(a, stateid{0, held->other}));
        (void)co_await sleep_for(4500ms);
        BOOST_TEST(memory.gone.empty());
        (void)co_await sleep_for(1s);
        BOOST_TEST((memory.gone == std::vector<client_id>{a}));
    });
    BOOST_REQUIRE(memory.lost.size() == 2u);
    BOOST_TEST(memory.lost[1].is_all);
    BOOST_TEST(memory.lost[1].bytes[1].size() == 2u);
}

BOOST_FIXTURE_TEST_CASE(one_may_be_revoked_at_once, fixture)
{
    const stateid held = only_memory(a), other = only_memory(a, "g");
    beside_tend([&]() -> task<void> {
        const auto done = co_await table->revoke(held);
        BOOST_TEST(done.has_value());
        const auto again = co_await table->revoke(held);
        BOOST_TEST(again.has_value());
        (void)co_await sleep_for(1ms);
        BOOST_TEST(memory.begun.size() == 1u);
        BOOST_TEST(is(table->test_stateid(a, held), errc::deleg_revoked));
        BOOST_TEST(table->test_stateid(a, other).has_value());
        BOOST_TEST(memory.recalls.empty());
        BOOST_TEST(!lists.new_list.contains("a"));
        const auto freed = co_await table->free_stateid(a, held);
        BOOST_TEST(freed.has_value());
        BOOST_TEST(lists.new_list.contains("a"));
        // One that is only reserved is not granted.
        open_request r = request(a, "o", "leased", read, none, delegation_want::any);
        r.leased = true;
        pending_open begun;
        BOOST_REQUIRE(table->begin_open(r, begun));
        const auto reserved = table->reserve_delegation(begun);
        BOOST_REQUIRE(reserved);
        const auto dropped = co_await table->revoke(*reserved);
        BOOST_TEST(dropped.has_value());
        BOOST_TEST(!book->has_revoked(a));
        const auto committed = table->commit(begun);
        BOOST_TEST((committed && !committed->delegation));
        // What is no recallable state is left alone.
        const auto o = open(a, "o", "h", both);
        const auto nothing = co_await table->revoke(o->id);
        BOOST_TEST(nothing.has_value());
        BOOST_TEST(table->test_stateid(a, o->id).has_value());
    });
}

// Beside recalls of delegations, whose time is another one.
BOOST_FIXTURE_TEST_CASE(a_kind_may_have_its_own_time_for_a_recall, fixture)
{
    memory.own_recall_time = 20s;
    const stateid held = only_memory(a);
    const auto d = open(a, "o", "d", read, none, delegation_want::any);
    BOOST_REQUIRE((d && d->delegation));
    beside_tend([&]() -> task<void> {
        BOOST_TEST(table->recall(d->delegation->id).has_value());
        BOOST_TEST(table->recall(held).has_value());
        (void)co_await sleep_for(19s);
        BOOST_TEST(memory.begun.empty());
        (void)co_await sleep_for(2s);
        BOOST_TEST(memory.begun.size() == 1u);
        BOOST_TEST(is(table->test_stateid(a, held), errc::deleg_revoked));
        BOOST_TEST(table->test_stateid(a, d->delegation->id).has_value());
    });
    BOOST_TEST(table->stats().recall_microseconds.value() == 20'000'000u);
}

// RFC 8881 18.43.3, logr_return_on_close.
BOOST_FIXTURE_TEST_CASE(the_last_close_may_return_it, fixture)
{
    const auto o = open(a, "o", "f", both), p = open(a, "p", "f", read);
    const auto of_b = open(b, "o", "g", both);
    const auto held = table->hold(asks(a, o->id));
    BOOST_REQUIRE(held);
    BOOST_TEST(table->end_with_last_close(*held));
    BOOST_REQUIRE(table->close(a, o->id, file_named("f")));
    BOOST_TEST(table->stats().other_states.value() == 1);
    BOOST_REQUIRE(table->close(b, of_b->id, file_named("g")));
    BOOST_TEST(table->stats().other_states.value() == 1);
    BOOST_REQUIRE(table->close(a, p->id, file_named("f")));
    BOOST_TEST(table->stats().other_states.value() == 0);
    BOOST_TEST(table->stats().fences.value() == 1);
    // A delegation stands for an open.
    const auto d = open(a, "o", "h", both, none, delegation_want::any);
    BOOST_REQUIRE((d && d->delegation));
    const auto by_delegation = table->hold(asks(a, d->id, all_bytes, lock_type::write, "h"));
    BOOST_REQUIRE(by_delegation);
    BOOST_TEST(table->end_with_last_close(*by_delegation));
    BOOST_REQUIRE(table->close(a, d->id, file_named("h")));
    BOOST_TEST(table->stats().other_states.value() == 1);
    BOOST_REQUIRE(table->return_delegation(a, d->delegation->id, file_named("h")));
    BOOST_TEST(table->stats().other_states.value() == 0);
    // Another one's stays, and goes at once where the last close was before.
    const auto stays = only_memory(a, "i");
    BOOST_TEST(table->stats().other_states.value() == 1);
    BOOST_TEST(!table->end_with_last_close(stays));
    BOOST_TEST(table->stats().other_states.value() == 0);
    BOOST_TEST(!table->end_with_last_close(stays));
    beside_tend([&]() -> task<void> { (void)co_await sleep_for(1ms); });
    BOOST_TEST_REQUIRE(memory.lost.size() == 3u);
    for (const lost_state& each : memory.lost)
        BOOST_TEST((each.why == loss::returned));
    BOOST_TEST(table->stats().files.value() == 0);
}

// For recalls of all that a client has of a file system, or at all.
BOOST_FIXTURE_TEST_CASE(a_kind_may_have_no_room_for_more, fixture)
{
    const auto o = open(a, "o", "f", both);
    memory.is_full = true; // which is asked of what is there
    BOOST_REQUIRE(table->hold(asks(a, o->id, {0, 99})));
    BOOST_TEST(is(table->hold(asks(a, o->id, {0, 99})), errc::busy));
    memory.is_full = false;
    BOOST_TEST(table->hold(asks(a, o->id, {0, 99})).has_value());
}

// Nobody wants the file.
BOOST_FIXTURE_TEST_CASE(a_kind_may_end_with_the_lease, fixture)
{
    const auto kept = only_memory(a);
    beside_tend([&]() -> task<void> {
        (void)co_await sleep_for(table->options().lease + 1s);
        BOOST_TEST(memory.recalls.empty());
        BOOST_TEST(book->renew(a).has_value());
        memory.without_courtesy = true;
        (void)co_await sleep_for(table->options().lease - 1s);
        BOOST_TEST(memory.recalls.empty());
        (void)co_await sleep_for(2s);
        BOOST_TEST(memory.recalls.size() == 1u);
        (void)co_await sleep_for(table->options().recall_time + 1s);
        BOOST_TEST(memory.ended.size() == 1u);
    });
    BOOST_TEST((memory.lost.at(0).why == loss::lapsed));
    // It costs the client nothing else: nobody took its opens, and it may take them back after a restart.
    BOOST_TEST(is(table->ranges_of(memory, a, kept, file_named("f")), errc::bad_stateid));
    BOOST_TEST(is(table->test_stateid(a, kept), errc::bad_stateid));
    BOOST_TEST(!book->has_revoked(a));
    BOOST_TEST(lists.new_list.contains("a"));
    BOOST_TEST(table->stats().revocations.value() == 0u);
    BOOST_TEST(table->stats().recalled_delegations.value() == 0);
    BOOST_TEST(table->stats().other_states.value() == 0);
    BOOST_TEST(table->stats().files.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(each_loss_with_the_lease_is_told_of, fixture)
{
    memory.without_courtesy = true;
    const duration lease = table->options().lease;
    const auto lose = [&](std::string_view file) -> task<void> {
        BOOST_TEST(book->renew(a).has_value());
        (void)only_memory(a, file);
        (void)co_await sleep_for(lease + table->options().recall_time + 1s);
        BOOST_TEST(table->stats().other_states.value() == 0);
        BOOST_TEST(book->renew(a).has_value());
    };
    beside_tend([&]() -> task<void> {
        task<void> losing = lose("f");
        co_await losing;
        book->note_asked(a); // it has not heard of it yet
        BOOST_TEST(book->has_lost_with_lease(a));
        losing = lose("g");
        co_await losing;
        BOOST_TEST(book->has_lost_with_lease(a)); // also of the second one, a lease after the first
        (void)co_await sleep_for(lease - 1s);
        BOOST_TEST(book->has_lost_with_lease(a));
        (void)co_await sleep_for(2s);
        BOOST_TEST(!book->has_lost_with_lease(a));
        losing = lose("h");
        co_await losing;
        BOOST_TEST(book->has_lost_with_lease(a));
        book->note_asked(a);
        BOOST_TEST(!book->has_lost_with_lease(a));
    });
}

// Whoever wants the file may be there before the table looks what is due.
BOOST_FIXTURE_TEST_CASE(who_is_back_is_not_to_blame_to_who_waits, fixture)
{
    memory.without_courtesy = true;
    const auto held = only_memory(a);
    pass(table->options().lease + 1s);
    BOOST_TEST(book->renew(a).has_value());
    BOOST_TEST(memory.recalls.size() == 1u);
    pass(table->options().recall_time - 1s);
    BOOST_TEST(book->renew(a).has_value());
    pass(2s);
    BOOST_TEST(is(make_way(opening(), 0s), errc::busy)); // nobody fences it
    BOOST_TEST(is(table->test_stateid(a, held), errc::bad_stateid));
    BOOST_TEST(!book->has_revoked(a));
    BOOST_TEST(table->stats().revocations.value() == 0u);
}

BOOST_FIXTURE_TEST_CASE(what_ends_with_the_lease_is_fenced_while_the_store_hangs, fixture)
{
    memory.without_courtesy = true;
    (void)only_memory(a);
    const auto of_b = only_memory(b, "g");
    BOOST_REQUIRE(table->recall(of_b));
    beside_tend([&]() -> task<void> {
        (void)co_await sleep_for(table->options().lease - 1s);
        BOOST_TEST(book->renew(b).has_value());
        store->takes = [] { return 1h; };
        (void)co_await sleep_for(table->options().recall_time + 2s);
        BOOST_TEST(store->writing == 1u); // that the other one is revoked
        BOOST_TEST_REQUIRE(memory.lost.size() == 2u);
        BOOST_TEST((memory.lost[0].client == b && memory.lost[0].why == loss::revoked));
        BOOST_TEST((memory.lost[1].client == a && memory.lost[1].why == loss::lapsed));
        store->takes = nullptr;
    });
}

// And nothing else of a client that is away, whose opens are in nobody's way.
BOOST_FIXTURE_TEST_CASE(who_wants_a_file_takes_what_ends_with_the_lease_alone, fixture)
{
    memory.without_courtesy = true;
    memory.against = {operation::set_size};
    const auto o = open(a, "o", "f", both);
    const auto held = table->hold(asks(a, o->id));
    BOOST_REQUIRE(held);
    beside_tend([&]() -> task<void> {
        (void)co_await sleep_for(table->options().lease + 1s);
        auto making = table->make_way(demand(operation::set_size, file_named("f"), b), 1s);
        const auto made = co_await making;
        BOOST_TEST(made.has_value());
        BOOST_TEST(memory.ended.size() == 1u);
    });
    BOOST_TEST((book->state_of(a).value() == client_state::courtesy));
    BOOST_TEST(table->test_stateid(a, o->id).has_value());
    BOOST_TEST(is(table->test_stateid(a, *held), errc::bad_stateid));
    BOOST_TEST(lists.new_list.contains("a"));
}

// It has no time to give all back, and is not to blame.
BOOST_FIXTURE_TEST_CASE(who_comes_back_just_before_the_end_is_trusted_on, fixture)
{
    memory.without_courtesy = true;
    for (const char* name : {"f", "g", "h", "i"})
        (void)only_memory(a, name);
    beside_tend([&]() -> task<void> {
        (void)co_await sleep_for(table->options().lease + table->options().recall_time - 1s);
        BOOST_TEST(book->renew(a).has_value());
        BOOST_TEST(memory.recalls.size() == 4u);
        // Nor where somebody wants one of the files then.
        result<void> made;
        task<void> waiting = opens(5s, made);
        co_await waiting;
        BOOST_TEST(made.has_value());
        BOOST_TEST(memory.ended.size() == 4u);
        const auto again = open(a, "o", "k", both);
        BOOST_TEST(table->hold(asks(a, again->id, all_bytes, lock_type::write, "k")).has_value());
    });
    BOOST_TEST(!book->has_revoked(a));
    BOOST_TEST(table->stats().revocations.value() == 0u);
    BOOST_TEST(table->stats().distrusted_clients.value() == 0u);
    BOOST_TEST(lists.new_list.contains("a"));
}

// Before they are refused, and once a lease.
BOOST_FIXTURE_TEST_CASE(who_is_near_a_limit_is_asked_for_some, fixture)
{
    using asked = std::vector<std::pair<client_id, std::size_t>>;
    memory.against = {operation::set_attributes};
    memory.of_client = 8;
    const auto take = [&](client_id c, int i) {
        const std::string name = "f" + std::to_string(i);
        const auto o = open(c, "o", name, both);
        return table->hold(asks(c, o->id, all_bytes, lock_type::read, name)).has_value();
    };
    for (int i = 0; i < 7; ++i)
        BOOST_TEST(take(a, i));
    BOOST_TEST(memory.asked.empty());
    BOOST_TEST(take(a, 7));
    BOOST_TEST((memory.asked == asked{{a, 6}}));
    BOOST_TEST(!take(a, 8));
    BOOST_TEST((memory.asked == asked{{a, 6}}));
    pass(table->options().lease + 1s);
    BOOST_TEST(book->renew(a).has_value());
    BOOST_TEST(book->renew(b).has_value());
    BOOST_TEST(!take(a, 9));
    BOOST_TEST((memory.asked == asked{{a, 6}, {a, 6}}));
    // Where all have as many as there may be, who has less than the others keeps it.
    pass(table->options().lease + 1s);
    BOOST_TEST(book->renew(a).has_value());
    BOOST_TEST(book->renew(b).has_value());
    memory.asked.clear();
    memory.of_client = 100;
    memory.limit = 10;
    BOOST_TEST(take(b, 1)); // eight are there
    BOOST_TEST(memory.asked.empty());
    BOOST_TEST(take(b, 2));
    BOOST_TEST((memory.asked == asked{{a, 3}}));
    BOOST_TEST(!take(b, 3));
    BOOST_TEST(memory.asked.size() == 1u);
    // Who can't be called is not asked.
    pass(table->options().lease + 1s);
    BOOST_TEST(book->renew(a).has_value());
    BOOST_TEST(book->renew(b).has_value());
    BOOST_REQUIRE(book->set_callable(a, false));
    BOOST_TEST(!take(b, 3));
    BOOST_TEST(memory.asked.size() == 1u);
    // For a limit that the kind alone knows.
    BOOST_REQUIRE(book->set_callable(a, true));
    table->ask_for_some(memory, a);
    table->ask_for_some(memory, a);
    BOOST_TEST((memory.asked == asked{{a, 3}, {a, 6}}));
}

BOOST_FIXTURE_TEST_CASE(what_clients_have_of_a_kind_can_be_listed, fixture)
{
    memory.against = {operation::set_attributes};
    const stateid f = only_memory(a), g = only_memory(a, "g");
    const stateid of_b = only_memory(b, "g");
    memory_kind none_of_it;
    BOOST_TEST(table->held(memory).size() == 3u);
    BOOST_TEST(table->held(none_of_it).empty());
    const auto of_a = table->held(memory, a);
    BOOST_REQUIRE(of_a.size() == 2u);
    BOOST_TEST((of_a[0].client == a && of_a[0].id == f && of_a[0].file == file_named("f")));
    const auto of_g = table->held(memory, file_named("g"));
    BOOST_REQUIRE(of_g.size() == 2u);
    BOOST_TEST((of_g[1].client == b && of_g[1].id == of_b));
    BOOST_REQUIRE(table->recall(g));
    BOOST_TEST(table->held(memory, a).size() == 1u);
    BOOST_TEST(table->held(memory, file_named("g")).size() == 1u);
    BOOST_TEST(table->held(memory, file_named("x")).empty());
}

BOOST_AUTO_TEST_SUITE_END()
