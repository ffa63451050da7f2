// SPDX-License-Identifier: Apache-2.0
// Locks for which the back end is asked, too: what holds while it is, and who hears when a local process unlocks.
#include "files_fixture.hpp"

#include <verbena/core/event.hpp>
#include <verbena/core/scope.hpp>

BOOST_AUTO_TEST_SUITE(files_local_locks_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;

namespace {

/// A back end's locks of one file, by hand.
struct hand_made {
    std::optional<storage::local_holder> holder; ///< a local process's
    int fails_with = 0;
    bool holds = false; ///< calls wait for `go`
    event go;
    int locks = 0, tests = 0, objects = 0;
    byte_range told;                       ///< of the last keep()
    std::vector<storage::lock_range> kept; ///< likewise
    int keeps = 0;
};

class hand_made_locks final : public storage::local_locks {
public:
    explicit hand_made_locks(hand_made& o) noexcept : of_(o) { ++of_.objects; }
    ~hand_made_locks() override { --of_.objects; }
    task<result<std::optional<storage::local_holder>>> lock(storage::lock_range bytes) override
    {
        ++of_.locks;
        if (of_.holds)
            (void)co_await of_.go.wait();
        if (of_.fails_with != 0)
            co_return error::from_errno(of_.fails_with, "by hand");
        co_return against(bytes);
    }
    task<std::optional<storage::local_holder>> test(storage::lock_range bytes) override
    {
        ++of_.tests;
        co_return against(bytes);
    }
    void keep(std::uint64_t offset, std::uint64_t last, std::span<const storage::lock_range> held) override
    {
        ++of_.keeps;
        of_.told = {offset, last};
        of_.kept.assign(held.begin(), held.end());
    }
    task<void> settle() override { co_return; }

private:
    std::optional<storage::local_holder> against(const storage::lock_range& bytes) const
    {
        if (of_.holder && of_.holder->bytes.offset <= bytes.last && bytes.offset <= of_.holder->bytes.last)
            return of_.holder;
        return std::nullopt;
    }
    hand_made& of_;
};

struct local_fixture : files_fixture {
    explicit local_fixture(std::function<void(state_options&)> change = {})
    {
        handler.make_local_locks = [this] { return std::make_unique<hand_made_locks>(back_end); };
        start(std::move(change));
        tasks.spawn([this] { return table->tend(); });
        a = client("a");
        b = client("b");
        of_a = open(a, "open", "f", share::both)->id;
        of_b = open(b, "open", "f", share::both)->id;
    }
    ~local_fixture()
    {
        tasks.request_stop();
        back_end.go.set();
        while (tasks.live() != 0)
            shard->turn();
        stop();
        BOOST_TEST(back_end.objects == 0);
    }
    lock_request wanted(client_id c, byte_range bytes, lock_type type, bool wait = false)
    {
        lock_request r = lock_of(c, c == a ? of_a : of_b, "f");
        r.id.seqid = 0;
        r.bytes = bytes;
        r.type = type;
        r.wait = wait;
        return r;
    }
    struct outcome {
        bool is_done = false;
        result<stateid> id = error(errc::busy);
        lock_holder holder;
    };
    task<void> lock_into(lock_request r, outcome& out)
    {
        pending_lock pending;
        out.id = table->lock(r, &out.holder, zero_seqid::newest, &pending);
        if (pending.asks_back_end()) {
            const result<void> asked = co_await table->lock_locally(pending, r, &out.holder);
            if (asked)
                out.id = table->lock(r, &out.holder, zero_seqid::newest, &pending);
            else
                out.id = asked.error();
        }
        out.is_done = true;
    }
    /// What runs on, unless nothing holds it up.
    void begin(const lock_request& r, outcome& out)
    {
        tasks.spawn(&local_fixture::lock_into, this, r, std::ref(out));
        turns();
    }
    result<stateid> lock(client_id c, byte_range bytes, lock_type type, bool wait = false)
    {
        outcome out;
        begin(wanted(c, bytes, type, wait), out);
        BOOST_REQUIRE(out.is_done);
        holder = out.holder;
        return out.id;
    }
    void unlock(client_id c, const stateid& id, byte_range bytes)
    {
        stateid newest = id;
        newest.seqid = 0;
        BOOST_REQUIRE(table->unlock(c, newest, file_named("f"), bytes));
    }
    void turns(int n = 10)
    {
        for (int i = 0; i < n; ++i)
            shard->turn();
    }
    void pass_turning(duration d)
    {
        for (const time_point end = clock.now() + d; clock.now() < end;) {
            clock.advance(10ms);
            turns(3);
        }
    }
    std::size_t told() const { return handler.available.size(); }

    hand_made back_end;
    scope tasks{*shard};
    client_id a = nobody, b = nobody;
    stateid of_a, of_b;
    lock_holder holder;
};

constexpr auto read = lock_type::read;
constexpr auto write = lock_type::write;

} // namespace

BOOST_FIXTURE_TEST_CASE(a_local_lock_denies_a_clients, local_fixture)
{
    back_end.holder = storage::local_holder{{5, 20, true}, 77};
    BOOST_TEST(is(lock(a, {0, 9}, read), errc::denied));
    BOOST_TEST((holder.bytes == byte_range{5, 20}));
    BOOST_TEST(bool(holder.type == write));
    BOOST_TEST(holder.owner == "local process 77");
    BOOST_TEST(holder.client == nobody);
    BOOST_TEST(table->stats().local_lock_denials.value() == 1u);
    BOOST_TEST(table->stats().lock_denials.value() == 0u);
    BOOST_TEST(table->stats().lock_states.value() == 0);
    BOOST_TEST(lock(a, {0, 4}, read).has_value());
    BOOST_TEST(back_end.locks == 2);
}

BOOST_FIXTURE_TEST_CASE(others_are_denied_while_the_back_end_is_asked, local_fixture)
{
    back_end.holds = true;
    outcome first;
    begin(wanted(a, {0, 9}, write), first);
    BOOST_TEST(!first.is_done);
    BOOST_TEST(is(lock(b, {9, 9}, read), errc::denied));
    BOOST_TEST(holder.client == a);
    BOOST_TEST(is(table->test_lock(b, file_named("f"), owner_named("l"), {9, 9}, read), errc::denied));
    BOOST_TEST(table->test_lock(b, file_named("f"), owner_named("l"), {10, 10}, write).has_value());
    outcome beside;
    begin(wanted(b, {10, 19}, write), beside);
    BOOST_TEST(!beside.is_done);
    back_end.go.set();
    turns();
    BOOST_TEST_REQUIRE(first.is_done);
    BOOST_TEST(first.id.has_value());
    BOOST_TEST(beside.id.has_value());
    BOOST_TEST(table->stats().locks.value() == 2);
}

// Who waits for it, and was denied for what was pending alone, hears when that came to nothing.
BOOST_FIXTURE_TEST_CASE(a_lock_that_was_not_granted_leaves_nothing, local_fixture)
{
    for (const bool fails : {false, true}) {
        back_end.holds = true;
        back_end.go.reset();
        outcome first;
        begin(wanted(a, {0, 9}, write), first);
        BOOST_TEST(is(lock(b, {0, 3}, write, true), errc::denied));
        BOOST_TEST(told() == 0u);
        if (fails)
            back_end.fails_with = EIO;
        else
            back_end.holder = storage::local_holder{{9, 9, false}, 0};
        back_end.go.set();
        turns();
        BOOST_TEST(is(first.id, fails ? errc::busy : errc::denied));
        BOOST_TEST(table->stats().locks.value() == 0);
        BOOST_TEST(told() == 1u);
        BOOST_TEST(back_end.kept.empty());
        BOOST_TEST(back_end.keeps > 0);
        handler.available.clear();
        back_end.fails_with = 0;
        back_end.holder.reset();
        BOOST_TEST(table->stop_waiting(b, file_named("f"), owner_named("l")));
    }
}

BOOST_FIXTURE_TEST_CASE(a_client_that_goes_meanwhile_leaves_nothing, local_fixture)
{
    for (const char* const how : {"forget", "close", "revoke"}) {
        back_end.holds = true;
        back_end.go.reset();
        const auto gone = client(how);
        const auto opened = open(gone, "open", "f", share::both);
        BOOST_REQUIRE(opened);
        lock_request r = wanted(b, {0, 9}, write);
        r.client = gone;
        r.id = opened->id;
        outcome first;
        begin(r, first);
        if (how == std::string_view("forget"))
            BOOST_REQUIRE(run(table->forget(gone)));
        else if (how == std::string_view("revoke"))
            BOOST_REQUIRE(run(table->revoke_client(gone)));
        else
            BOOST_REQUIRE(table->close(gone, opened->id, file_named("f")));
        const int before = back_end.keeps;
        back_end.go.set();
        turns();
        BOOST_TEST_REQUIRE(first.is_done);
        BOOST_TEST(!first.id.has_value());
        BOOST_TEST(back_end.keeps == before + 1); // the back end had granted it
        BOOST_TEST(back_end.kept.empty());
        BOOST_TEST(table->stats().locks.value() == 0);
        const auto again = lock(b, {0, 9}, write);
        BOOST_REQUIRE(again);
        unlock(b, *again, {0, 9});
    }
}

// What a client that is gone had asked for holds up nobody, however long the back end takes.
BOOST_FIXTURE_TEST_CASE(a_pending_lock_of_nobody_stands_against_none, local_fixture)
{
    back_end.holds = true;
    outcome first, second;
    begin(wanted(a, {0, 9}, write), first);
    BOOST_REQUIRE(run(table->forget(a)));
    begin(wanted(b, {0, 9}, write), second);
    BOOST_TEST(!second.is_done); // it asks the back end, too
    back_end.go.set();
    turns();
    BOOST_TEST(second.id.has_value());
    BOOST_TEST(!first.id.has_value());
    BOOST_TEST((back_end.kept == std::vector<storage::lock_range>{{0, 9, true}}));
}

BOOST_FIXTURE_TEST_CASE(the_back_end_keeps_the_union, local_fixture)
{
    const auto mine = lock(a, {0, 9}, read);
    const auto theirs = lock(b, {5, 14}, read);
    BOOST_REQUIRE(mine);
    BOOST_REQUIRE(theirs);
    BOOST_TEST(back_end.keeps == 0);
    unlock(a, *mine, {0, 7});
    BOOST_TEST((back_end.kept == std::vector<storage::lock_range>{{5, 7, false}}));
    const auto again = lock(b, {10, 14}, write);
    BOOST_REQUIRE(again);
    BOOST_REQUIRE(table->close(a, of_a, file_named("f")));
    BOOST_TEST((back_end.kept == std::vector<storage::lock_range>{{8, 9, false}}));
    BOOST_TEST(back_end.keeps == 2);
}

// An unlock of bytes that are just being asked for leaves them to their own end.
BOOST_FIXTURE_TEST_CASE(an_unlock_leaves_alone_what_is_pending, local_fixture)
{
    const auto mine = lock(a, {0, 19}, write);
    BOOST_REQUIRE(mine);
    back_end.holds = true;
    outcome first;
    begin(wanted(a, {0, 9}, read), first);
    unlock(a, *mine, {0, 19});
    BOOST_TEST(back_end.keeps == 1);
    BOOST_TEST((back_end.told == byte_range{10, 19}));
    BOOST_TEST(back_end.kept.empty());
    back_end.go.set();
    turns();
    BOOST_TEST(first.id.has_value());
    BOOST_TEST(back_end.keeps == 2); // something was said of the file meanwhile
    BOOST_TEST((back_end.kept == std::vector<storage::lock_range>{{0, 9, false}}));
}

// The kernel does not say when a local process unlocks.
BOOST_FIXTURE_TEST_CASE(who_waits_for_a_local_process_is_tried_again, local_fixture)
{
    back_end.holder = storage::local_holder{{0, 9, true}, 0};
    BOOST_TEST(is(lock(a, {0, 9}, write, true), errc::denied));
    BOOST_TEST(table->stats().lock_waiters.value() == 1);
    pass_turning(40ms);
    BOOST_TEST(back_end.tests == 0);
    pass_turning(20ms);
    BOOST_TEST(back_end.tests == 1); // after 50 ms
    pass_turning(110ms);
    BOOST_TEST(back_end.tests == 2); // 150
    pass_turning(1500ms);
    BOOST_TEST(back_end.tests == 5); // 350, 750, 1550
    pass_turning(5s);
    BOOST_TEST(back_end.tests == 10);
    BOOST_TEST(told() == 0u);
    back_end.holder.reset();
    pass_turning(1s);
    BOOST_TEST(told() == 1u);
    // The range is kept for it, and nobody looks any more.
    const int looks = back_end.tests;
    BOOST_TEST(is(lock(b, {0, 0}, read), errc::denied));
    pass_turning(1s);
    BOOST_TEST(back_end.tests == looks);
    BOOST_TEST(lock(a, {0, 9}, write).has_value());
}

BOOST_FIXTURE_TEST_CASE(who_asks_again_is_watched_once, local_fixture)
{
    back_end.holder = storage::local_holder{{0, 9, true}, 0};
    for (int i = 0; i < 5; ++i)
        BOOST_TEST(is(lock(a, {0, 9}, write, true), errc::denied));
    pass_turning(60ms);
    BOOST_TEST(back_end.tests == 1);
    BOOST_TEST(table->stop_waiting(a, file_named("f"), owner_named("l")));
    pass_turning(10s);
    BOOST_TEST(back_end.tests == 1);
    // One that a client holds up is told by the table, not by looks.
    back_end.holder.reset();
    const auto theirs = lock(b, {0, 9}, write);
    BOOST_TEST(is(lock(a, {0, 9}, write, true), errc::denied));
    pass_turning(2s);
    BOOST_TEST(back_end.tests == 1);
    unlock(b, *theirs, {0, 9});
    BOOST_TEST(told() == 1u);
}

// Nothing is told of bytes that come free here while a local process has them.
BOOST_FIXTURE_TEST_CASE(a_local_waiter_is_not_told_by_a_client, local_fixture)
{
    const auto theirs = lock(b, {50, 59}, write);
    back_end.holder = storage::local_holder{{0, 9, true}, 0};
    BOOST_TEST(is(lock(a, {0, 9}, write, true), errc::denied));
    unlock(b, *theirs, {50, 59});
    BOOST_TEST(told() == 0u);
    // A client took what the local process let go.
    back_end.holder.reset();
    const auto again = lock(b, {0, 9}, write);
    pass_turning(1s);
    BOOST_TEST(told() == 0u);
    unlock(b, *again, {0, 9});
    BOOST_TEST(told() == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_test_asks_the_back_end, local_fixture)
{
    lock_holder found;
    BOOST_TEST(run(table->test_locally(file_named("f"), {0, 9}, write, &found)).has_value());
    back_end.holder = storage::local_holder{{5, 20, false}, 0};
    BOOST_TEST(is(run(table->test_locally(file_named("f"), {0, 9}, write, &found)), errc::denied));
    BOOST_TEST(found.owner == "local process");
    BOOST_TEST(run(table->test_locally(file_named("f"), {0, 4}, write, &found)).has_value());
    BOOST_TEST(back_end.objects == 0); // of a file without locks none is left
    BOOST_TEST(table->stats().lock_states.value() == 0);
}

BOOST_AUTO_TEST_CASE(a_reclaim_against_a_local_lock_conflicts)
{
    local_fixture f;
    f.tasks.request_stop();
    f.turns();
    f.start();
    const auto a = *f.table->add_client("a");
    open_request r = f.request(a, "open", "f", share::both);
    r.claim = open_claim::reclaim;
    const auto opened = f.table->open(r);
    BOOST_REQUIRE(opened);
    f.back_end.holder = storage::local_holder{{0, 9, false}, 0};
    lock_request l = files_fixture::lock_of(a, opened->id, "f");
    l.reclaim = true;
    local_fixture::outcome out;
    f.tasks.spawn(&local_fixture::lock_into, &f, l, std::ref(out));
    f.turns();
    BOOST_TEST(files_fixture::is(out.id, errc::reclaim_conflict));
    BOOST_TEST(f.table->stats().conflicting_reclaims.value() == 1u);
    f.back_end.holder.reset();
    f.tasks.spawn(&local_fixture::lock_into, &f, l, std::ref(out));
    f.turns();
    BOOST_TEST(out.id.has_value());
}

// Where the back end has no such locks nothing is awaited, and it is asked once.
BOOST_AUTO_TEST_CASE(without_local_locks_nothing_is_awaited)
{
    local_fixture f;
    int asked = 0;
    f.handler.make_local_locks = [&] {
        ++asked;
        return std::unique_ptr<storage::local_locks>();
    };
    pending_lock pending;
    lock_holder holder;
    for (int i = 0; i < 3; ++i) {
        BOOST_TEST(
            f.table->lock(f.wanted(f.a, {0, 9}, write), &holder, zero_seqid::newest, &pending).has_value());
        BOOST_TEST(!pending.asks_back_end());
    }
    BOOST_TEST(asked == 1);
    passage hold;
    BOOST_TEST(!f.table->has_local_locks(file_named("f"), hold));
    BOOST_TEST(f.table->stats().passages.value() == 0);
}

BOOST_AUTO_TEST_SUITE_END()
