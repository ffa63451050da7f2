// SPDX-License-Identifier: Apache-2.0
// Fences of recallable state: whose turn it is, what they cost others, and that nothing stays within a client's reach.
#include "files_memory.hpp"

#include <verbena/core/log.hpp>

BOOST_AUTO_TEST_SUITE(files_fences_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;

namespace {

using enum share;

struct fixture : memory_fixture {
    ~fixture() { stop(); }
    void limits_of_all(std::size_t n) { memory.limit = memory.of_client = memory.of_file = n; }
    /// `n` files of which the client has memory.
    std::vector<stateid> many(client_id c, int n)
    {
        std::vector<stateid> all;
        for (int i = 0; i < n; ++i)
            all.push_back(only_memory(c, name_of(i)));
        return all;
    }
    static std::string name_of(int i) { return "many" + std::to_string(i); }
};

} // namespace

// Those of one client take no more than its share of places, and late ones give theirs up.
BOOST_FIXTURE_TEST_CASE(dead_fences_of_a_client_keep_no_others_waiting, fixture)
{
    limits_of_all(200);
    (void)many(a, 70);
    const stateid of_b = only_memory(b, "g");
    memory.dead.insert(a);
    memory.ignores_stop = true;
    beside_tend([&]() -> task<void> {
        const auto gone = co_await book->forget(a, client_book::fences::left);
        BOOST_TEST(gone.has_value());
        (void)co_await sleep_for(1ms);
        BOOST_TEST(memory.under_way == 16u);
        BOOST_TEST(gives_back(b, of_b, "g"));
        (void)co_await sleep_for(1ms);
        BOOST_TEST(memory.ended.size() == 1u);
        (void)co_await sleep_for(table->options().fence_time);
        BOOST_TEST(memory.under_way == 32u);
        // Also those that wait are late.
        BOOST_TEST(table->stats().late_fences.value() == 70u);
        (void)co_await sleep_for(table->options().fence_time * 3);
        BOOST_TEST(memory.under_way == 70u);
        memory.released.set();
        (void)co_await sleep_for(1ms);
        BOOST_TEST(memory.ended.size() == 71u);
        BOOST_TEST(table->stats().fences.value() == 0);
    });
}

BOOST_FIXTURE_TEST_CASE(no_more_than_so_many_run_at_once, fixture)
{
    limits_of_all(200);
    std::vector<client_id> all;
    for (int i = 0; i < 6; ++i) {
        all.push_back(client("c" + std::to_string(i)));
        for (int n = 0; n < 14; ++n)
            (void)only_memory(all.back(), name_of(i * 100 + n));
    }
    memory.takes = 1s;
    beside_tend([&]() -> task<void> {
        for (const client_id c : all) {
            const auto gone = co_await book->forget(c, client_book::fences::left);
            BOOST_TEST(gone.has_value());
        }
        (void)co_await sleep_for(1ms);
        BOOST_TEST(memory.under_way == 64u);
        // Clients took turns.
        for (const client_id c : all)
            BOOST_TEST(std::ranges::count_if(memory.begun, [c](const auto& f) { return f.first == c; }) >=
                       10);
        (void)co_await sleep_for(1s);
        BOOST_TEST(memory.under_way == 20u);
        (void)co_await sleep_for(1s);
        BOOST_TEST(table->stats().fences.value() == 0);
    });
}

// Else a client has as much under way as it likes.
BOOST_FIXTURE_TEST_CASE(what_is_being_fenced_counts_in_the_limits, fixture)
{
    memory.takes = 5s;
    memory.of_client = 2;
    const std::vector<stateid> held = many(a, 2);
    const auto o = open(a, "o", "more", both);
    beside_tend([&]() -> task<void> {
        for (int i = 0; i < 2; ++i)
            BOOST_TEST(gives_back(a, held[std::size_t(i)], name_of(i)));
        const hold_request more = asks(a, o->id, all_bytes, lock_type::write, "more");
        BOOST_TEST(is(table->hold(more), errc::too_many_locks));
        memory.of_client = 100;
        memory.limit = 2;
        BOOST_TEST(is(table->hold(more), errc::busy)); // no client's state is to be taken for that
        (void)co_await sleep_for(6s);
        BOOST_TEST(table->hold(more).has_value());
        memory.limit = 1;
        const auto g = open(b, "o", "g", both);
        BOOST_TEST(is(table->hold(asks(b, g->id, all_bytes, lock_type::write, "g")), errc::all_is_full));
    });
}

BOOST_FIXTURE_TEST_CASE(a_fence_that_throws_is_tried_again, fixture)
{
    const stateid held = only_memory(a);
    memory.throws = 2;
    result<void> made;
    beside_tend([&]() -> task<void> {
        BOOST_TEST(gives_back(a, held));
        const time_point begun = clock.now();
        task<void> opening_it = opens(60s, made);
        co_await opening_it;
        BOOST_TEST((clock.now() - begun == 2s));
    });
    BOOST_TEST(made.has_value());
    BOOST_TEST(memory.begun.size() == 3u);
    BOOST_TEST(table->stats().failed_fences.value() == 2u);
}

BOOST_FIXTURE_TEST_CASE(a_fence_that_always_throws_ends_nothing_else, fixture)
{
    const stateid held = only_memory(a);
    memory.throws = 1000;
    beside_tend([&]() -> task<void> {
        BOOST_TEST(gives_back(a, held));
        (void)co_await sleep_for(3s);
        BOOST_TEST(is(open(b, "o", "f", both), errc::in_way));
    });
    BOOST_TEST(table->stats().fences.value() == 1);
    BOOST_TEST(memory.ended.empty());
}

// Who begins anew waits for his old state's record, not for its fences.
BOOST_FIXTURE_TEST_CASE(a_client_that_is_gone_is_gone_before_its_fences_are_over, fixture)
{
    (void)only_memory(a);
    memory.takes = 5s;
    beside_tend([&]() -> task<void> {
        const time_point begun = clock.now();
        scope s(*shard);
        s.spawn([&]() -> task<void> {
            const auto gone = co_await book->forget(a);
            BOOST_TEST(gone.has_value());
            BOOST_TEST((clock.now() - begun == 5s));
        });
        (void)co_await sleep_for(1ms);
        BOOST_TEST(!book->is_being_written(a));
        BOOST_TEST(is(book->state_of(a), errc::stale_client));
        BOOST_TEST(book->add_client("a").has_value());
        co_await s.join();
        const time_point later = clock.now();
        (void)only_memory(b);
        const auto gone = co_await book->forget(b, client_book::fences::left);
        BOOST_TEST(gone.has_value());
        BOOST_TEST((clock.now() == later));
    });
    BOOST_TEST(memory.ended.size() == 2u);
    BOOST_TEST((memory.gone == std::vector<client_id>{a, b}));
}

BOOST_FIXTURE_TEST_CASE(an_evicted_client_is_evicted_before_its_fences_are_over, fixture)
{
    (void)only_memory(a);
    memory.takes = 5s;
    beside_tend([&]() -> task<void> {
        scope s(*shard);
        s.spawn([&]() -> task<void> {
            const auto gone = co_await book->revoke_client(a);
            BOOST_TEST(gone.has_value());
            BOOST_TEST(memory.ended.size() == 1u);
        });
        (void)co_await sleep_for(1ms);
        BOOST_TEST(!book->is_being_written(a));
        BOOST_TEST(is(book->renew(a), errc::admin_revoked));
        co_await s.join();
    });
    BOOST_TEST((memory.lost.front().why == loss::client_ended));
}

// A store that hangs holds up who waits for the file, and leaves nothing within the client's reach.
BOOST_FIXTURE_TEST_CASE(what_is_overdue_is_fenced_before_that_is_written_down, fixture)
{
    const stateid held = only_memory(a), more = only_memory(a, "g");
    beside_tend([&]() -> task<void> {
        store->takes = [] { return 1h; };
        BOOST_TEST(table->recall(held).has_value());
        (void)co_await sleep_for(1s);
        BOOST_TEST(table->recall(more).has_value());
        BOOST_REQUIRE(book->renew(a));
        (void)co_await sleep_for(table->options().recall_time - 999ms);
        BOOST_TEST(memory.ended.size() == 1u);
        (void)co_await sleep_for(1s); // while tend() waits for the store
        BOOST_TEST(memory.ended.size() == 2u);
        BOOST_TEST((memory.lost.front().why == loss::revoked));
        BOOST_TEST(memory.lost.front().is_all);
        BOOST_TEST(table->stats().revocations.value() == 0u);
        BOOST_TEST(is(open(b, "o", "f", both), errc::in_way));
        (void)co_await sleep_for(1h);
        BOOST_TEST(table->stats().revocations.value() == 2u);
        BOOST_TEST(memory.begun.size() == 2u);
        BOOST_TEST((memory.gone == std::vector<client_id>{a})); // only now, after its fences
        BOOST_TEST(open(b, "o", "f", both).has_value());
    });
}

// Also where that is another write of the same client.
BOOST_FIXTURE_TEST_CASE(what_a_client_has_is_fenced_before_an_earlier_write_is_over, fixture)
{
    (void)only_memory(a);
    const auto o = open(a, "o", "g", both, none, delegation_want::any);
    BOOST_REQUIRE((o && o->delegation));
    beside_tend([&]() -> task<void> {
        store->takes = [] { return 1h; };
        scope s(*shard);
        s.spawn([&]() -> task<void> {
            const auto revoked = co_await table->revoke(o->delegation->id);
            BOOST_TEST(revoked.has_value());
        });
        s.spawn([&]() -> task<void> {
            const auto gone = co_await book->forget(a);
            BOOST_TEST(gone.has_value());
        });
        (void)co_await sleep_for(1s);
        BOOST_TEST(memory.ended.size() == 1u);
        // It gets nothing more that would have to be fenced.
        BOOST_TEST(is(table->hold(asks(a, o->id, all_bytes, lock_type::write, "g")), errc::busy));
        BOOST_TEST(book->is_being_written(a));
        co_await s.join();
        BOOST_TEST(is(book->state_of(a), errc::stale_client));
    });
}

// A stop does not wait for the store before it fences.
BOOST_FIXTURE_TEST_CASE(a_stop_fences_all_while_the_store_hangs, fixture)
{
    (void)only_memory(a);
    const auto o = open(a, "o", "g", both, none, delegation_want::any);
    BOOST_REQUIRE((o && o->delegation));
    const auto all = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([this] { return book->tend(); });
        s.spawn([this] { return table->tend(); });
        store->takes = [] { return 1h; };
        store->ignores_stop = true;
        BOOST_TEST(table->recall(o->delegation->id).has_value());
        (void)co_await sleep_for(table->options().recall_time + 1s);
        BOOST_TEST(store->writing == 1u);
        s.request_stop();
        (void)co_await sleep_for(1ms);
        BOOST_TEST(memory.ended.size() == 1u);
        BOOST_TEST(store->writing == 1u);
        co_await s.join();
    };
    run(all());
    BOOST_TEST((memory.lost.front().why == loss::server_ends));
}

// As one that refuses: without memory for it, for example.
BOOST_FIXTURE_TEST_CASE(a_store_that_throws_is_asked_again, fixture)
{
    const stateid held = only_memory(a);
    const client_id late = *book->add_client("late");
    beside_tend([&]() -> task<void> {
        store->fails = []() -> bool { throw std::bad_alloc(); };
        BOOST_TEST(table->recall(held).has_value());
        (void)co_await sleep_for(table->options().recall_time + 2s);
        BOOST_TEST(memory.ended.size() == 1u);
        BOOST_TEST(table->stats().revocations.value() == 0u);
        BOOST_TEST(table->stats().store_failures.value() >= 2u);
        BOOST_REQUIRE(book->renew(a));
        const auto complete = co_await book->reclaim_complete(late);
        BOOST_TEST(!complete.has_value());
        const auto gone = co_await book->revoke_client(b);
        BOOST_TEST(!gone.has_value());
        for (const client_id c : {a, b, late})
            BOOST_TEST(!book->is_being_written(c));
        BOOST_TEST(open(b, "o", "h", both).has_value()); // it stays
        store->fails = {};
        (void)co_await sleep_for(2s);
        BOOST_TEST(table->stats().revocations.value() == 1u);
        const auto at_last = co_await book->forget(b);
        BOOST_TEST(at_last.has_value());
    });
}

BOOST_FIXTURE_TEST_CASE(what_a_client_has_is_fenced_before_its_record_is_gone, fixture)
{
    (void)only_memory(a);
    beside_tend([&]() -> task<void> {
        store->takes = [] { return 1h; };
        scope s(*shard);
        s.spawn([&]() -> task<void> {
            const auto gone = co_await book->revoke_client(a);
            BOOST_TEST(gone.has_value());
        });
        (void)co_await sleep_for(1s);
        BOOST_TEST(memory.ended.size() == 1u);
        BOOST_TEST(is(open(b, "o", "f", both), errc::in_way));
        co_await s.join();
        BOOST_TEST(open(b, "o", "f", both).has_value());
    });
}

// Where the store refuses, the client stays. What is fenced already it is to return.
BOOST_FIXTURE_TEST_CASE(what_is_fenced_in_vain_is_recalled, fixture)
{
    const stateid held = only_memory(a);
    beside_tend([&]() -> task<void> {
        store->fails = [] { return true; };
        const auto gone = co_await book->revoke_client(a);
        BOOST_TEST(!gone.has_value());
        BOOST_TEST(memory.recalls.size() == 1u);
        (void)co_await sleep_for(1ms);
        const auto o = open(a, "o", "f", read);
        BOOST_REQUIRE(o);
        BOOST_TEST(is(table->hold(asks(a, held, all_bytes, lock_type::read)), errc::recalled));
        store->fails = {};
        BOOST_TEST(table->close(a, o->id, file_named("f")).has_value());
        BOOST_TEST(gives_back(a, held));
        (void)co_await sleep_for(1ms);
        BOOST_TEST(memory.begun.size() == 1u);
        BOOST_TEST(open(b, "o", "f", both).has_value());
    });
}

// What runs, what waits, and what is held.
BOOST_FIXTURE_TEST_CASE(a_stop_fences_all, fixture)
{
    const std::vector<stateid> held = many(a, 20);
    memory.takes = 1s;
    time_point asked;
    beside_tend([&]() -> task<void> {
        for (int i = 0; i < 18; ++i)
            BOOST_TEST(gives_back(a, held[std::size_t(i)], name_of(i)));
        (void)co_await sleep_for(500ms);
        BOOST_TEST(memory.under_way == 16u);
        asked = clock.now();
    });
    BOOST_TEST((clock.now() - asked == 1500ms));
    BOOST_TEST(memory.ended.size() == 20u);
    BOOST_TEST((memory.lost.back().why == loss::server_ends));
    BOOST_TEST(table->stats().fences.value() == 0);
    const auto o = open(a, "o", "f", both);
    BOOST_TEST(is(table->hold(asks(a, o->id)), errc::busy));
}

BOOST_FIXTURE_TEST_CASE(at_a_stop_a_slow_fence_ends_by_force, fixture)
{
    (void)only_memory(a);
    memory.takes = std::chrono::hours(24);
    time_point asked;
    beside_tend([&]() -> task<void> {
        asked = clock.now();
        co_return;
    });
    BOOST_TEST((clock.now() - asked == table->options().fence_time));
    BOOST_TEST(memory.stopped == 1u);
    BOOST_TEST(memory.ended.size() == 1u);
}

// It can only be waited for, and that is said.
BOOST_FIXTURE_TEST_CASE(a_fence_that_holds_up_a_stop_is_named, fixture)
{
    std::vector<std::string> said;
    set_log_capture(
        [](void* to, std::string_view line) {
            static_cast<std::vector<std::string>*>(to)->emplace_back(line);
        },
        &said);
    (void)only_memory(a);
    memory.dead.insert(a);
    memory.ignores_stop = true;
    time_point ended;
    const auto all = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([this, &ended]() -> task<void> {
            task<void> tending = table->tend();
            co_await tending;
            ended = clock.now();
        });
        s.request_stop();
        (void)co_await sleep_for(table->options().fence_time * 2);
        BOOST_TEST((ended == time_point()));
        memory.released.set();
        co_await s.join();
    };
    run(all());
    set_log_capture(nullptr, nullptr);
    BOOST_TEST((ended == clock.now()));
    BOOST_REQUIRE(!said.empty());
    BOOST_TEST(said.back().find("left=1 kind=memory client=a") != std::string::npos, said.back());
}

// Its holder would not see what the other one's memory changes, nor what still comes of what was taken.
BOOST_FIXTURE_TEST_CASE(no_delegation_stands_beside_anothers_memory, fixture)
{
    memory.against = {operation::write};
    const auto of_a = open(a, "o", "f", both);
    const auto held = table->hold(asks(a, of_a->id));
    BOOST_REQUIRE(held);
    BOOST_REQUIRE(table->close(a, of_a->id, file_named("f")));
    memory.takes = 5s;
    const auto wants = [&] {
        const auto o = open(b, "o", "f", read, none, delegation_want::any);
        BOOST_REQUIRE(o);
        BOOST_REQUIRE(table->close(b, o->id, file_named("f")));
        return o->delegation.has_value();
    };
    BOOST_TEST(!wants());
    beside_tend([&]() -> task<void> {
        BOOST_TEST(gives_back(a, *held));
        BOOST_TEST(!wants());
        (void)co_await sleep_for(6s);
        BOOST_TEST(wants());
    });
}

BOOST_AUTO_TEST_SUITE_END()
