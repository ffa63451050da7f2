// SPDX-License-Identifier: Apache-2.0
// Recallable state of another kind than delegations: what a client has by memory that must be fenced before anybody
// else gets in.
#include "files_memory.hpp"

#include <verbena/core/log.hpp>

#include <atomic>
#include <cerrno>
#include <functional>

BOOST_AUTO_TEST_SUITE(files_recallable_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;

namespace {

using enum share;

using fixture = memory_fixture;

} // namespace

BOOST_FIXTURE_TEST_CASE(a_client_has_one_state_for_all_its_ranges_of_a_file, fixture)
{
    const auto o = open(a, "o", "f", both);
    const auto first = table->hold(asks(a, o->id, {0, 99}, lock_type::read));
    BOOST_REQUIRE(first);
    const auto second = table->hold(asks(a, *first, {200, 299}));
    BOOST_REQUIRE(second);
    BOOST_TEST((first->other == second->other));
    BOOST_TEST(second->seqid == first->seqid + 1);
    BOOST_TEST(table->stats().other_states.value() == 1);
    // Part of them, then the rest.
    const auto some = table->give_back(a, *second, file_named("f"), {0, 249}, std::nullopt);
    BOOST_REQUIRE((some && *some));
    BOOST_TEST((*some)->seqid == second->seqid + 1);
    const auto none_to_read = table->give_back(a, **some, file_named("f"), all_bytes, lock_type::read);
    BOOST_REQUIRE((none_to_read && *none_to_read));
    const auto rest = table->give_back(a, **none_to_read, file_named("f"), all_bytes, lock_type::write);
    BOOST_REQUIRE(rest);
    BOOST_TEST(!rest->has_value());
    BOOST_TEST(table->stats().other_states.value() == 0);
    BOOST_TEST(is(table->test_stateid(a, **none_to_read), errc::bad_stateid));
}

// FREE_STATEID is not how a client gives back a layout (RFC 8881 18.38), so nobody may be told to free one.
BOOST_FIXTURE_TEST_CASE(of_a_file_that_is_gone_it_is_fenced_and_not_kept_in_mind, fixture)
{
    const auto o = open(a, "o", "f", both);
    const auto held = table->hold(asks(a, o->id));
    BOOST_REQUIRE(held);
    BOOST_REQUIRE(table->close(a, o->id, file_named("f")));
    BOOST_REQUIRE(table->test_stateid(a, *held));
    const std::function<task<result<void>>(const storage::handle&)> look =
        [](const storage::handle&) -> task<result<void>> { co_return error::from_errno(ESTALE, "by hand"); };
    storage::restored_state to;
    const std::atomic<bool> goes_on{true};
    run([&]() -> task<void> { co_await table->drop_lost_files(0, look, to, goes_on); }());
    BOOST_TEST(to.lost_files == 1u);
    BOOST_TEST(is(table->test_stateid(a, *held), errc::bad_stateid));
    BOOST_TEST(!book->has_lost_by_admin(a));
}

BOOST_FIXTURE_TEST_CASE(who_may_not_have_it_is_told, fixture)
{
    const auto reads = open(a, "o", "f", read);
    BOOST_TEST(is(table->hold(asks(a, reads->id)), errc::open_mode));
    const auto held = table->hold(asks(a, reads->id, all_bytes, lock_type::read));
    BOOST_REQUIRE(held);
    BOOST_TEST(is(table->hold(asks(b, *held)), errc::bad_stateid));
    // It reads and writes nothing by calls, and is no delegation.
    BOOST_TEST(is(check_io(a, *held, "f", read), errc::bad_stateid));
    BOOST_TEST(is(table->return_delegation(a, *held, file_named("f")), errc::bad_stateid));
    // Ranges, states of a client, and all of them are limited, and each refusal is counted.
    stateid by = *held;
    for (std::uint64_t i = 0; i < 4; ++i) {
        const auto given = table->give_back(a, by, file_named("f"), {100 * i, 100 * i + 9}, std::nullopt);
        BOOST_REQUIRE((given && *given));
        by = **given;
    }
    BOOST_TEST(is(table->give_back(a, by, file_named("f"), {1000, 1009}, std::nullopt), errc::busy));
    memory.of_client = 1;
    const auto other = open(a, "o", "g", read);
    hold_request more = asks(a, other->id, all_bytes, lock_type::read);
    more.file = file_named("g");
    BOOST_TEST(is(table->hold(more), errc::too_many_locks));
    memory.of_client = 100;
    memory.limit = 1;
    BOOST_TEST(is(table->hold(more), errc::all_is_full));
    const limit_counters& refused = table->stats().refused_limits;
    BOOST_TEST(refused.value(limited::other_states, limit_of::file) == 1u);
    BOOST_TEST(refused.value(limited::other_states, limit_of::client) == 1u);
    BOOST_TEST(refused.value(limited::other_states, limit_of::all) == 1u);
}

// However many clients a host makes of itself.
BOOST_FIXTURE_TEST_CASE(clients_of_one_peer_have_a_part_of_what_all_may_have, fixture)
{
    memory.limit = 8; // of which a peer may have a quarter
    const auto of_peer = [&](std::string_view key, std::uint64_t peer) {
        const client_id c = *book->add_client(key, peer);
        BOOST_REQUIRE(book->set_callable(c, true));
        BOOST_REQUIRE(run(book->record(c, both)));
        BOOST_REQUIRE(run(book->reclaim_complete(c)));
        return c;
    };
    const client_id hoarder = of_peer("hoarder", 1), twin = of_peer("twin", 1), other = of_peer("other", 2);
    const auto take = [&](client_id c, std::string_view file) {
        const auto o = open(c, "o", file, both);
        BOOST_REQUIRE(o);
        return table->hold(asks(c, o->id, all_bytes, lock_type::write, file));
    };
    BOOST_TEST(take(hoarder, "1").has_value());
    const auto second = take(twin, "2");
    BOOST_REQUIRE(second);
    BOOST_TEST(memory.asked.empty());
    BOOST_TEST(is(take(twin, "3"), errc::peer_is_full));
    // It may have some to spare.
    BOOST_TEST_REQUIRE(memory.asked.size() == 1u);
    BOOST_TEST((memory.asked[0] == std::pair(twin, std::size_t(0))));
    BOOST_TEST(take(other, "4").has_value());
    BOOST_TEST(take(a, "5").has_value());
    // What is in a client's reach until it is fenced counts on.
    BOOST_TEST(gives_back(twin, *second, "2"));
    BOOST_TEST(is(take(hoarder, "6"), errc::peer_is_full));
    beside_tend([&]() -> task<void> {
        (void)co_await sleep_for(1s);
        BOOST_TEST(memory.ended.size() == 1u);
        BOOST_TEST(take(hoarder, "7").has_value());
        // All of it is its own: that of others of its peer is not waited for.
        BOOST_TEST(is(take(hoarder, "8"), errc::too_many_locks));
    });
    const limit_counters& refused = table->stats().refused_limits;
    BOOST_TEST(refused.value(limited::other_states, limit_of::peer) == 2u);
    BOOST_TEST(refused.value(limited::other_states, limit_of::client) == 1u);
}

BOOST_FIXTURE_TEST_CASE(it_is_recalled_for_who_wants_the_file, fixture)
{
    const stateid held = only_memory(a);
    BOOST_TEST(is(open(b, "o", "f", both), errc::in_way));
    result<void> made;
    beside_tend([&]() -> task<void> {
        scope s(*shard);
        s.spawn([&] { return opens(60s, made); });
        (void)co_await sleep_for(1s);
        BOOST_REQUIRE(memory.recalls.size() == 1u);
        BOOST_TEST((memory.recalls[0].id == held));
        BOOST_TEST(handler.recalls.empty());
        BOOST_TEST(book->is_recalled(a));
        const auto o = open(a, "o", "f", read);
        BOOST_TEST(is(table->hold(asks(a, o->id, all_bytes, lock_type::read)), errc::recalled));
        BOOST_TEST(table->close(a, o->id, file_named("f")).has_value());
        BOOST_TEST(table->give_back(a, held, file_named("f"), all_bytes, std::nullopt).has_value());
        co_await s.join();
    });
    BOOST_TEST(made.has_value());
    BOOST_TEST(memory.ended.size() == 1u);
    BOOST_TEST(table->stats().recalls.value() == 1u);
    BOOST_TEST(table->stats().ended_recalls.value() == 1u);
    BOOST_TEST(table->stats().recalled_delegations.value() == 0);
}

// The promise: nobody is let in while what the other one had may still change.
BOOST_FIXTURE_TEST_CASE(what_was_revoked_is_in_the_way_until_it_is_fenced, fixture)
{
    const stateid held = only_memory(a);
    memory.takes = 5s;
    result<void> made;
    beside_tend([&]() -> task<void> {
        const auto early = co_await table->make_way(opening(), 0s);
        BOOST_TEST(is(early, errc::busy));
        clock.advance(table->options().recall_time);
        BOOST_REQUIRE(book->renew(a));
        BOOST_REQUIRE(book->renew(b));
        const time_point begun = clock.now();
        task<void> opening_it = opens(60s, made);
        co_await opening_it;
        BOOST_TEST((clock.now() - begun == 5s));
    });
    BOOST_TEST(made.has_value());
    BOOST_TEST(over_by_then);
    BOOST_REQUIRE(memory.begun.size() == 1u);
    BOOST_TEST((memory.begun[0].second.other == held.other));
    BOOST_TEST(is(table->test_stateid(a, held), errc::deleg_revoked));
    BOOST_TEST(table->stats().revocations.value() == 1u);
    BOOST_TEST(table->stats().ended_fences.value() == 1u);
    BOOST_TEST(table->stats().fence_microseconds.value() == 5'000'000u);
    BOOST_TEST(!lists.new_list.contains("a"));
    BOOST_TEST(run(table->free_stateid(a, held)).has_value());
    BOOST_TEST(!book->has_revoked(a));
}

// So is what was given back.
BOOST_FIXTURE_TEST_CASE(what_is_back_is_fenced_too, fixture)
{
    const stateid held = only_memory(a);
    memory.takes = 5s;
    result<void> made;
    const auto o = open(a, "o", "f", read);
    BOOST_REQUIRE(o);
    beside_tend([&]() -> task<void> {
        BOOST_TEST(table->give_back(a, held, file_named("f"), all_bytes, std::nullopt).has_value());
        BOOST_TEST(is(open(b, "o", "f", both), errc::in_way));
        BOOST_TEST(table->stats().fences.value() == 1);
        // Nor does its client get another one before.
        BOOST_TEST(is(table->hold(asks(a, o->id, all_bytes, lock_type::read)), errc::busy));
        BOOST_TEST(table->close(a, o->id, file_named("f")).has_value());
        task<void> opening_it = opens(60s, made);
        co_await opening_it;
    });
    BOOST_TEST(made.has_value());
    BOOST_TEST(over_by_then);
}

// The end of a client's state waits for its fences, and is no shorter way past them.
BOOST_FIXTURE_TEST_CASE(the_end_of_a_client_waits_for_its_fences, fixture)
{
    (void)only_memory(a);
    memory.takes = 5s;
    beside_tend([&]() -> task<void> {
        const time_point begun = clock.now();
        const auto gone = co_await book->forget(a);
        BOOST_TEST(gone.has_value());
        BOOST_TEST((clock.now() - begun == 5s));
        BOOST_TEST(memory.ended.size() == 1u);
        BOOST_TEST(open(b, "o", "f", both).has_value());
    });
    BOOST_TEST(table->stats().fences.value() == 0);
    BOOST_TEST(table->stats().clients.value() == 1);
}

// Of a client whose lease is over: who makes room waits for no longer than he likes.
BOOST_FIXTURE_TEST_CASE(a_fence_is_waited_for_with_ones_own_patience, fixture)
{
    (void)only_memory(a);
    memory.takes = 5s;
    result<void> first, second;
    beside_tend([&]() -> task<void> {
        clock.advance(60s);
        BOOST_REQUIRE(book->renew(b));
        clock.advance(60s);
        const time_point begun = clock.now();
        task<void> opening_it = opens(1s, first);
        co_await opening_it;
        BOOST_TEST((clock.now() - begun == 1s));
        task<void> again = opens(60s, second);
        co_await again;
        BOOST_TEST((clock.now() - begun == 5s));
    });
    BOOST_TEST(is(first, errc::busy));
    BOOST_TEST(second.has_value());
    BOOST_TEST(over_by_then);
    BOOST_TEST(table->stats().expired_clients.value() == 1u);
}

// One that does not end is told to, counted and logged; who waits for it waits no longer than he likes, and nobody
// else does.
BOOST_FIXTURE_TEST_CASE(a_dead_fence_keeps_its_file_and_nothing_else, fixture)
{
    std::vector<std::string> said;
    set_log_capture(
        [](void* to, std::string_view line) {
            static_cast<std::vector<std::string>*>(to)->emplace_back(line);
        },
        &said);
    (void)only_memory(a);
    memory.takes = std::chrono::hours(24);
    memory.ignores_stop = true;
    result<void> first, second;
    beside_tend([&]() -> task<void> {
        const time_point begun = clock.now();
        const auto gone = co_await book->forget(a);
        BOOST_TEST(gone.has_value());
        BOOST_TEST((clock.now() - begun == table->options().fence_time));
        task<void> opening_it = opens(1s, first);
        co_await opening_it;
        BOOST_TEST((clock.now() - begun == table->options().fence_time + 1s));
        BOOST_TEST(open(b, "o", "g", both).has_value());
        BOOST_TEST(memory.stopped == 1u);
        memory.released.set();
        task<void> again = opens(1s, second);
        co_await again;
    });
    set_log_capture(nullptr, nullptr);
    BOOST_TEST(is(first, errc::busy));
    BOOST_TEST(second.has_value());
    BOOST_TEST(over_by_then);
    BOOST_TEST(table->stats().late_fences.value() == 1u);
    BOOST_REQUIRE(said.size() == 1u);
    BOOST_TEST(said[0].find("kind=memory") != std::string::npos);
}

BOOST_FIXTURE_TEST_CASE(a_fence_that_fails_is_tried_again, fixture)
{
    const stateid held = only_memory(a);
    memory.fails = 2;
    result<void> made;
    beside_tend([&]() -> task<void> {
        BOOST_TEST(table->give_back(a, held, file_named("f"), all_bytes, std::nullopt).has_value());
        const time_point begun = clock.now();
        task<void> opening_it = opens(60s, made);
        co_await opening_it;
        BOOST_TEST((clock.now() - begun == 2s));
    });
    BOOST_TEST(made.has_value());
    BOOST_TEST(memory.begun.size() == 3u);
    BOOST_TEST(memory.ended.size() == 1u);
}

// A client that renews and returns nothing loses all that it has of any kind together.
BOOST_FIXTURE_TEST_CASE(who_is_trusted_no_more_is_asked_for_this_too, fixture)
{
    const stateid held = only_memory(a);
    std::vector<stateid> delegations;
    for (const char* file : {"1", "2", "3"}) {
        const auto o = open(a, "o", file, both, none, delegation_want::any);
        BOOST_REQUIRE((o && o->delegation));
        BOOST_REQUIRE(table->close(a, o->id, file_named(file)));
        delegations.push_back(o->delegation->id);
    }
    beside_tend([&]() -> task<void> {
        for (const char* file : {"1", "2", "3"}) {
            const demand removal(operation::remove, file_named(file), b);
            const auto early = co_await table->make_way(removal, 0s);
            BOOST_TEST(is(early, errc::busy));
        }
        clock.advance(table->options().recall_time);
        BOOST_REQUIRE(book->renew(a));
        const demand removal(operation::remove, file_named("1"), b);
        const auto made = co_await table->make_way(removal, 1s);
        BOOST_TEST(made.has_value());
    });
    BOOST_TEST(table->stats().distrusted_clients.value() == 1u);
    BOOST_REQUIRE(memory.recalls.size() == 1u);
    BOOST_TEST((memory.recalls[0].id == held));
}

BOOST_FIXTURE_TEST_CASE(what_tells_of_holes_is_in_the_way_of_who_fills_them, fixture)
{
    memory.against = {operation::set_size};
    memory.against_holes = {operation::write};
    const auto o = open(a, "o", "f", both);
    const auto theirs = open(b, "o", "f", both);
    hold_request asked = asks(a, o->id, {0, 99}, lock_type::read);
    asked.looks = true;
    const auto held = table->hold(asked);
    BOOST_REQUIRE(held);
    BOOST_TEST(is(table->check_io(b, theirs->id, file_named("f"), operation::write), errc::in_way));
    BOOST_TEST(table->check_io(b, theirs->id, file_named("f"), operation::read).has_value());
    // As long as it is not known, its holder waits, too. Nobody is asked to return anything.
    BOOST_TEST(is(table->check_io(a, o->id, file_named("f"), operation::write), errc::in_way));
    BOOST_TEST(is(run(table->make_way(demand(operation::write, file_named("f"), b), 0s)), errc::busy));
    BOOST_TEST(memory.recalls.empty());
    BOOST_TEST(is(table->hold(asks(b, theirs->id, {50, 599})), errc::in_way));
    BOOST_TEST(table->note_told(*held, {.holes = true}, true));
    BOOST_TEST(is(table->check_io(b, theirs->id, file_named("f"), operation::write), errc::in_way));
    BOOST_TEST(table->check_io(a, o->id, file_named("f"), operation::write).has_value()); // its holder
    // Who wants to write these bytes without calls is one that writes.
    BOOST_TEST(is(table->hold(asks(b, theirs->id, {50, 599})), errc::in_way));
    BOOST_TEST(table->hold(asks(b, theirs->id, {500, 599})).has_value());
    BOOST_TEST(table->note_told(*held, {}));
    BOOST_TEST(table->check_io(b, theirs->id, file_named("f"), operation::write).has_value());
    const auto writes = table->hold(asks(b, theirs->id, {500, 599}));
    BOOST_TEST(writes.has_value());
    BOOST_TEST(table->is_held(memory, file_named("f"), {550, 700}, lock_type::write));
    BOOST_TEST(!table->is_held(memory, file_named("f"), {600, 700}, lock_type::write));
    BOOST_TEST(!table->is_held(memory, file_named("f"), {550, 700}, lock_type::read));
    // Another range of the same client tells of some again.
    asked.by = *held;
    asked.bytes = {100, 199};
    BOOST_REQUIRE(table->hold(asked));
    BOOST_TEST(is(table->check_io(b, theirs->id, file_named("f"), operation::write), errc::in_way));
}

BOOST_FIXTURE_TEST_CASE(bytes_that_are_not_the_files_yet_are_in_the_way_of_all_who_want_them, fixture)
{
    memory.against = {operation::set_size};
    memory.against_unshared = {operation::write};
    memory.takes = 5s;
    const auto o = open(a, "o", "f", both);
    const auto theirs = open(b, "o", "f", both);
    const auto held = table->hold(asks(a, o->id, {0, 99}));
    BOOST_REQUIRE(held);
    const auto may = [&](client_id who, const stateid& by, operation op) {
        return table->check_io(who, by, file_named("f"), op).has_value();
    };
    BOOST_TEST(may(b, theirs->id, operation::write));
    BOOST_TEST(table->note_told(*held, {.unshared = true}));
    // Of the holder, too.
    BOOST_TEST((!may(b, theirs->id, operation::write) && !may(a, o->id, operation::write)));
    BOOST_TEST(may(b, theirs->id, operation::read));
    BOOST_TEST(is(table->hold(asks(b, theirs->id, {50, 599}, lock_type::read)), errc::in_way));
    BOOST_TEST(is(table->hold(asks(a, *held, {50, 59})), errc::in_way));
    const auto more = table->hold(asks(a, *held, {200, 299})); // other bytes
    BOOST_REQUIRE(more);
    // So is what is back, until it is fenced.
    beside_tend([&]() -> task<void> {
        const auto left = table->give_back(a, *more, file_named("f"), {200, 299}, std::nullopt);
        BOOST_REQUIRE((left && *left));
        BOOST_TEST(table->note_told(**left, {})); // what it has still is the file's
        BOOST_TEST(!may(b, theirs->id, operation::write));
        (void)co_await sleep_for(6s);
        BOOST_TEST(may(b, theirs->id, operation::write));
        BOOST_TEST(table->note_told(**left, {.unshared = true}));
        BOOST_TEST(table->give_back(a, **left, file_named("f"), all_bytes, std::nullopt).has_value());
        BOOST_TEST((!may(b, theirs->id, operation::write) && may(b, theirs->id, operation::read)));
        (void)co_await sleep_for(6s);
        BOOST_TEST(may(b, theirs->id, operation::write));
    });
}

BOOST_FIXTURE_TEST_CASE(a_numbered_stateid_needs_its_number, fixture)
{
    memory.numbered = true;
    const auto o = open(a, "o", "f", both);
    const auto held = table->hold(asks(a, o->id));
    BOOST_REQUIRE(held);
    const stateid none{0, held->other};
    BOOST_TEST(is(table->hold(asks(a, none)), errc::bad_stateid));
    BOOST_TEST(is(table->give_back(a, none, file_named("f"), all_bytes, std::nullopt), errc::bad_stateid));
    BOOST_TEST(is(table->ranges_of(memory, a, none, file_named("f")), errc::bad_stateid));
    BOOST_TEST(is(table->ranges_of(memory, a, o->id, file_named("f")), errc::bad_stateid));
    const auto ranges = table->ranges_of(memory, a, *held, file_named("f"));
    BOOST_REQUIRE(ranges);
    BOOST_TEST(((*ranges)[0].empty() && (*ranges)[1].size() == 1u));
    // A recall draws the next one.
    BOOST_REQUIRE(table->recall(*held));
    BOOST_REQUIRE(memory.recalls.size() == 1u);
    BOOST_TEST(memory.recalls[0].id.seqid == held->seqid + 1);
    BOOST_TEST(is(table->hold(asks(a, memory.recalls[0].id)), errc::recalled));
    BOOST_TEST(table->held(memory, a).empty());
    BOOST_TEST(table->all_of(memory, a).size() == 1u); // asked for, and there
    BOOST_TEST(table->all_of(memory, b).empty());
    BOOST_TEST(gives_back(a, memory.recalls[0].id));
}

BOOST_FIXTURE_TEST_CASE(what_its_client_never_hears_of_goes_without_a_fence, fixture)
{
    const auto o = open(a, "o", "f", both);
    const auto first = table->hold(asks(a, o->id, {0, 99}));
    BOOST_REQUIRE(first);
    const auto second = table->hold(asks(a, *first, {200, 299}));
    BOOST_REQUIRE(second);
    BOOST_TEST(!table->forgo(*second, {200, 299}, lock_type::write));
    table->forgo_number(*second);
    const auto again = table->hold(asks(a, *first, {100, 149}));
    BOOST_REQUIRE(again);
    BOOST_TEST(again->seqid == second->seqid);
    // A number that is not the newest any more is not given again.
    const auto newest = table->hold(asks(a, *again, {150, 199}));
    BOOST_REQUIRE(newest);
    table->forgo_number(*again);
    const auto last = table->hold(asks(a, *newest, {300, 399}));
    BOOST_REQUIRE(last);
    BOOST_TEST(last->seqid == newest->seqid + 1);
    BOOST_TEST(table->forgo(*last, all_bytes, lock_type::write)); // so nothing is left
    BOOST_TEST(table->stats().other_states.value() == 0);
    BOOST_TEST(table->stats().fences.value() == 0);
    BOOST_TEST(is(table->test_stateid(a, *last), errc::bad_stateid));
    BOOST_TEST((memory.gone == std::vector<client_id>{a}));
    BOOST_TEST(!table->forgo(*last, all_bytes, lock_type::write));
}

BOOST_AUTO_TEST_SUITE_END()
