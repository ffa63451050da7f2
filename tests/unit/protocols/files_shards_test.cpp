// SPDX-License-Identifier: Apache-2.0
// The book on one shard and each table on one of its own: what is asked and told by messages, in the orders of many seeds.
#include "files_memory.hpp"

#include <verbena/core/reactor/simulated_shards.hpp>
#include <verbena/core/task/sleep.hpp>

#include <array>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(files_shards_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;

using enum share;

namespace {

constexpr unsigned homes = 3;

/// Shard 0 is the clients' home, and has the first table.
struct spread {
    explicit spread(std::uint64_t seed, std::uint32_t opens = 1000) : shards(clock, seed)
    {
        for (unsigned i = 0; i < homes; ++i)
            shards.add(memory);
        state_options o;
        o.lease = 90s;
        o.recall_time = 30s;
        o.limits.opens_per_client = opens;
        o.limits.opens = 4 * opens;
        book.emplace(commons, shards.at(0), store, handler, std::move(o));
        for (unsigned i = 0; i < homes; ++i)
            tables[i].emplace(commons, *book, i, shards.at(i), handler);
    }
    ~spread()
    {
        shards.stop();
        for (auto& t : tables)
            t.reset();
    }
    /// On the clients' home.
    template<class Body>
    void run(Body body)
    {
        const auto all = [&]() -> task<void> {
            scope tending(shards.at(0).reactor());
            tending.spawn([this] { return book->tend(); });
            for (unsigned i = 0; i < homes; ++i)
                tending.spawn([this, i]() -> task<void> {
                    const auto tend = [this, i] { return tables[i]->tend(); };
                    co_await shards.at(i).run(tend);
                });
            co_await body();
            tending.request_stop();
            co_await tending.join();
        };
        shards.run(shards.at(0), all());
    }
    /// What `f(table)` yields, a value or a task, on the table's shard.
    template<class F>
    auto at(unsigned home, F f)
    {
        return shards.at(home).run([this, home, f] { return f(*tables[home]); });
    }
    /// A file whose home that is.
    std::string file(unsigned home, unsigned number = 0) const
    {
        for (unsigned i = 0;; ++i) {
            std::string name = "f" + std::to_string(i);
            if (commons.home_of(file_named(name)) == home && number-- == 0)
                return name;
        }
    }
    /// One that has reclaimed all.
    task<client_id> client(std::string_view key)
    {
        const client_id c = *book->add_client(key);
        BOOST_REQUIRE(book->set_callable(c, true));
        BOOST_REQUIRE(co_await book->record(c, both));
        BOOST_REQUIRE(co_await book->reclaim_complete(c));
        co_return c;
    }
    static open_request request(client_id c, std::string_view file, share access, share deny = share::none,
                                delegation_want want = delegation_want::none)
    {
        open_request r;
        r.client = c;
        r.owner = owner_named("o");
        r.file = file_named(file);
        r.access = access;
        r.deny = deny;
        r.want = want;
        r.hears_of_locks = true;
        return r;
    }
    auto open(client_id c, unsigned home, share access = both, share deny = share::none,
              delegation_want want = delegation_want::none, unsigned number = 0)
    {
        return at(home, [c, name = file(home, number), access, deny, want](state_table& t) {
            return t.open(request(c, name, access, deny, want));
        });
    }

    virtual_clock clock;
    memory_budget memory{std::size_t(4) << 20, homes};
    simulated_shards shards;
    recovery_lists lists;
    memory_store store{lists};
    recording_handler handler;
    memory_kind kind;
    table_commons commons{siphash_key(), homes};
    std::optional<client_book> book;
    std::array<std::optional<state_table>, homes> tables;
};

template<class Body>
void with_seeds(Body body)
{
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        BOOST_TEST_INFO_SCOPE("seed " << seed);
        body(seed);
    }
}

template<class T>
bool is(const result<T>& made, errc why)
{
    return !made && made.error() == why;
}

} // namespace

BOOST_AUTO_TEST_CASE(the_end_of_a_client_is_done_when_all_tables_have_let_go)
{
    with_seeds([](std::uint64_t seed) {
        spread s(seed);
        s.run([&]() -> task<void> {
            const client_id a = co_await s.client("a"), b = co_await s.client("b");
            for (unsigned home = 0; home < homes; ++home) {
                const auto mine = co_await s.open(a, home, both, both);
                BOOST_TEST(mine.has_value());
                const auto theirs = co_await s.open(b, home);
                BOOST_TEST(is(theirs, errc::share_denied));
            }
            BOOST_TEST(*s.book->is_in_use(a));
            const auto gone = co_await s.book->forget(a);
            BOOST_TEST(gone.has_value());
            for (unsigned home = 0; home < homes; ++home) {
                const auto theirs = co_await s.open(b, home, both, both);
                BOOST_TEST(theirs.has_value());
                const auto mine = co_await s.open(a, home);
                BOOST_TEST(is(mine, errc::stale_client));
            }
            const auto end = co_await s.book->forget(b);
            BOOST_TEST(end.has_value());
            BOOST_TEST(!s.commons.has_any_state());
            BOOST_TEST(s.lists.new_list.empty());
        });
    });
}

// Its calls come by all shards meanwhile, and the store takes its time.
BOOST_AUTO_TEST_CASE(a_client_gets_nothing_once_its_end_has_begun)
{
    with_seeds([](std::uint64_t seed) {
        spread s(seed);
        s.store.takes = [] { return 1ms; };
        s.run([&]() -> task<void> {
            const client_id a = co_await s.client("a");
            bool is_over = false;
            unsigned opened = 0, late = 0, refused = 0;
            const auto come = [&](unsigned home) -> task<void> {
                for (unsigned n = 0; n < 40; ++n) {
                    const auto mine = co_await s.open(a, home, both, share::none, delegation_want::none, n);
                    ++(mine ? opened : refused);
                    late += is_over && mine;
                    (void)co_await sleep_for(std::chrono::microseconds(50 + seed % 7 * 20));
                }
            };
            scope calls(s.shards.at(0).reactor());
            for (unsigned home = 0; home < homes; ++home)
                calls.spawn(come, home);
            (void)co_await sleep_for(std::chrono::microseconds(seed * 20));
            const auto gone = co_await s.book->forget(a);
            BOOST_TEST(gone.has_value());
            is_over = true;
            BOOST_TEST(!s.commons.has_any_state());
            co_await calls.join();
            BOOST_TEST(late == 0u);
            BOOST_TEST(refused > 0u);
            BOOST_TEST(!s.commons.has_any_state());
            BOOST_TEST(s.lists.new_list.empty());
        });
    });
}

BOOST_AUTO_TEST_CASE(what_a_silent_client_has_goes_for_whoever_needs_it_on_whichever_shard)
{
    with_seeds([](std::uint64_t seed) {
        spread s(seed);
        s.run([&]() -> task<void> {
            const client_id a = co_await s.client("a"), b = co_await s.client("b");
            for (unsigned home = 0; home < homes; ++home)
                BOOST_TEST((co_await s.open(a, home, both, both)).has_value());
            (void)co_await sleep_for(80s);
            BOOST_TEST(s.book->renew(b).has_value());
            const auto asks = co_await s.open(b, 2);
            BOOST_TEST(is(asks, errc::share_denied)); // the lease still runs
            (void)co_await sleep_for(11s);
            BOOST_TEST((*s.book->state_of(a) == client_state::courtesy));
            const auto theirs = [&](state_table& t) -> task<bool> {
                const open_request r = spread::request(b, s.file(2), both);
                const auto first = t.open(r);
                BOOST_TEST(is(first, errc::in_way));
                const auto room = co_await t.make_way(demand(r), 1s);
                BOOST_TEST(room.has_value());
                BOOST_TEST(!s.lists.new_list.contains("a")); // before anybody gets it
                co_return t.open(r).has_value();
            };
            const bool got = co_await s.at(2, theirs);
            BOOST_TEST(got);
            // All that it had is gone, also what nobody needed.
            for (unsigned home = 0; home < 2; ++home)
                BOOST_TEST((co_await s.open(b, home)).has_value());
            BOOST_TEST(is(s.book->renew(a), errc::expired));
        });
    });
}

BOOST_AUTO_TEST_CASE(a_client_that_comes_back_in_time_keeps_what_it_has)
{
    with_seeds([](std::uint64_t seed) {
        spread s(seed);
        s.run([&]() -> task<void> {
            const client_id a = co_await s.client("a"), b = co_await s.client("b");
            const auto mine = co_await s.open(a, 1, both, both);
            BOOST_TEST(mine.has_value());
            (void)co_await sleep_for(91s);
            BOOST_TEST(s.book->renew(a).has_value());
            const auto theirs = co_await s.open(b, 1);
            BOOST_TEST(is(theirs, errc::share_denied));
            const auto test = [a, id = mine->id](state_table& t) { return t.test_stateid(a, id); };
            const auto known = co_await s.at(1, test);
            BOOST_TEST(known.has_value());
        });
    });
}

// Somebody wants the file between the end of the lease and the message that tells its home of that.
BOOST_AUTO_TEST_CASE(what_ends_with_the_lease_goes_alone_before_its_home_hears_of_that)
{
    unsigned before = 0;
    with_seeds([&](std::uint64_t seed) {
        spread s(seed);
        s.kind.without_courtesy = true;
        s.kind.against = {operation::set_size};
        s.run([&]() -> task<void> {
            const client_id a = co_await s.client("a"), b = co_await s.client("b");
            const std::string name = s.file(1);
            const auto hold = [&](state_table& t) -> result<stateid> {
                const auto o = t.open(spread::request(a, name, both));
                if (!o)
                    return o.error();
                hold_request r;
                r.client = a;
                r.file = file_named(name);
                r.kind = &s.kind;
                r.by = o->id;
                r.type = lock_type::write;
                return t.hold(r);
            };
            const auto held = co_await s.at(1, hold);
            BOOST_REQUIRE(held);
            (void)co_await sleep_for(80s);
            BOOST_TEST(s.book->renew(b).has_value());
            s.clock.advance(11s);
            result<void> made;
            const auto cut = [&](state_table& t) -> task<void> {
                // As the book's shard does it just then; its message to this one is still under way.
                BOOST_TEST((*s.book->state_of(a) == client_state::courtesy));
                before += s.kind.recalls.empty();
                made = co_await t.make_way(demand(operation::set_size, file_named(name), b), 1s);
            };
            co_await s.at(1, cut);
            BOOST_TEST(made.has_value());
            BOOST_TEST(s.kind.ended.size() == 1u);
            const auto test = [a, id = *held](state_table& t) { return t.test_stateid(a, id); };
            const auto known = co_await s.at(1, test);
            BOOST_TEST(is(known, errc::bad_stateid));
            BOOST_TEST((*s.book->state_of(a) == client_state::courtesy)); // its opens it has
            BOOST_TEST(s.lists.new_list.contains("a"));
        });
    });
    BOOST_TEST(before > 0u);
}

// It has its lock of a table that hears of the end of its lease by a message.
BOOST_AUTO_TEST_CASE(who_waits_for_a_silent_clients_lock_hears_of_it)
{
    with_seeds([](std::uint64_t seed) {
        spread s(seed);
        s.run([&]() -> task<void> {
            const client_id a = co_await s.client("a"), b = co_await s.client("b");
            const std::string name = s.file(1);
            const auto lock = [&s, &name](client_id c) {
                return s.at(1, [c, &name](state_table& t) -> result<stateid> {
                    const auto o = t.open(spread::request(c, name, both));
                    if (!o)
                        return o.error();
                    lock_request r = files_fixture::lock_of(c, o->id, name);
                    r.wait = true;
                    return t.lock(r);
                });
            };
            BOOST_TEST((co_await lock(a)).has_value());
            (void)co_await sleep_for(60s);
            BOOST_TEST(s.book->renew(b).has_value());
            const auto denied = co_await lock(b);
            BOOST_TEST(is(denied, errc::denied));
            BOOST_TEST(s.handler.available.empty());
            (void)co_await sleep_for(31s);
            BOOST_TEST((s.handler.available == std::vector<std::pair<client_id, std::string>>{{b, "l"}}));
        });
    });
}

BOOST_AUTO_TEST_CASE(a_clients_limit_is_one_over_all_tables)
{
    with_seeds([](std::uint64_t seed) {
        spread s(seed, 10);
        s.run([&]() -> task<void> {
            const client_id a = co_await s.client("a");
            unsigned opened = 0;
            const auto come = [&](unsigned home) -> task<void> {
                for (unsigned n = 0; n < 10; ++n)
                    opened +=
                        (co_await s.open(a, home, read, share::none, delegation_want::none, n)).has_value();
            };
            scope calls(s.shards.at(0).reactor());
            for (unsigned home = 0; home < homes; ++home)
                calls.spawn(come, home);
            co_await calls.join();
            // Tables don't look at once here. On threads of their own each may be one beyond it.
            BOOST_TEST(opened == 10u);
            const auto more = co_await s.open(a, 0, read, share::none, delegation_want::none, 20);
            BOOST_TEST(is(more, errc::too_many_opens));
        });
    });
}

BOOST_AUTO_TEST_CASE(all_have_one_limit_over_all_tables)
{
    spread s(1, 10); // 40 of all
    s.run([&]() -> task<void> {
        unsigned opened = 0;
        for (unsigned i = 0; i < 5; ++i) {
            const client_id c = co_await s.client(std::string(1, char('a' + i)));
            for (unsigned n = 0; n < 10; ++n) {
                const auto o = co_await s.open(c, n % homes, read, share::none, delegation_want::none, n);
                opened += o.has_value();
                if (!o)
                    BOOST_TEST(is(o, errc::all_is_full));
            }
        }
        BOOST_TEST(opened == 40u);
    });
}

// The record is removed on the clients' home before the delegation is taken, and written again when the client has heard.
BOOST_AUTO_TEST_CASE(a_revocation_elsewhere_removes_the_record_first)
{
    with_seeds([](std::uint64_t seed) {
        spread s(seed);
        s.store.takes = [] { return 1ms; };
        s.run([&]() -> task<void> {
            const client_id a = co_await s.client("a"), b = co_await s.client("b");
            BOOST_TEST(s.book->set_silent(a).has_value());
            const auto mine = co_await s.open(a, 1, read, share::none, delegation_want::read);
            BOOST_TEST_REQUIRE((mine && mine->delegation));
            const auto takes = [&](state_table& t) -> task<void> {
                const open_request r = spread::request(b, s.file(1), write);
                const auto first = t.open(r);
                BOOST_TEST(is(first, errc::in_way));
                const auto room = co_await t.make_way(demand(r), 40s);
                BOOST_TEST(room.has_value());
                BOOST_TEST(!s.lists.new_list.contains("a"));
                BOOST_TEST(t.open(r).has_value());
            };
            co_await s.at(1, takes);
            BOOST_TEST(s.book->has_revoked(a));
            BOOST_TEST(s.book->renew(a).has_value());
            const auto written = co_await s.book->record(a);
            BOOST_TEST(is(written, errc::busy)); // not while it has not heard of that
            const auto hears = [a, id = mine->delegation->id](state_table& t) { t.drop_revoked(a, id); };
            co_await s.at(1, hears);
            (void)co_await sleep_for(10ms);
            BOOST_TEST(s.lists.new_list.contains("a"));
            BOOST_TEST(!s.book->has_revoked(a));
        });
    });
}

// Its opens on other shards want one written at any moment.
BOOST_AUTO_TEST_CASE(no_record_is_written_between_its_removal_and_the_revocation)
{
    with_seeds([](std::uint64_t seed) {
        spread s(seed);
        s.store.takes = [] { return 1us; };
        s.run([&]() -> task<void> {
            const client_id a = co_await s.client("a");
            BOOST_TEST(s.book->set_silent(a).has_value());
            const auto mine = co_await s.open(a, 1, read, share::none, delegation_want::read);
            BOOST_TEST_REQUIRE((mine && mine->delegation));
            const auto writes = [&]() -> task<void> {
                for (int i = 0; i < 20; ++i) {
                    (void)co_await s.book->record(a);
                    (void)co_await sleep_for(500ns);
                }
            };
            scope others(s.shards.at(0).reactor());
            others.spawn(writes);
            const auto revoke = [id = mine->delegation->id](state_table& t) { return t.revoke(id); };
            const auto done = co_await s.at(1, revoke);
            BOOST_TEST(done.has_value());
            co_await others.join();
            BOOST_TEST(!s.lists.new_list.contains("a"));
        });
    });
}

BOOST_AUTO_TEST_CASE(a_client_that_is_not_trusted_any_more_is_recalled_at_all_tables)
{
    with_seeds([](std::uint64_t seed) {
        spread s(seed);
        s.run([&]() -> task<void> {
            const client_id a = co_await s.client("a");
            std::vector<stateid> at_one;
            for (unsigned n = 0; n < 3; ++n) {
                const auto o = co_await s.open(a, 1, read, share::none, delegation_want::read, n);
                BOOST_TEST_REQUIRE((o && o->delegation));
                at_one.push_back(o->delegation->id);
            }
            const auto other = co_await s.open(a, 2, read, share::none, delegation_want::read);
            BOOST_TEST_REQUIRE((other && other->delegation));
            for (const stateid& id : at_one) {
                BOOST_TEST(s.handler.recalls.size() == 0u);
                const auto revoke = [id](state_table& t) { return t.revoke(id); };
                const auto done = co_await s.at(1, revoke);
                BOOST_TEST(done.has_value());
            }
            BOOST_TEST_REQUIRE(s.handler.recalls.size() == 1u);
            BOOST_TEST((s.handler.recalls[0].id == other->delegation->id));
            const auto more = co_await s.open(a, 0, read, share::none, delegation_want::read);
            BOOST_TEST((more && !more->delegation));
        });
    });
}

// What keeps others out stands in the record before it is granted, wherever.
BOOST_AUTO_TEST_CASE(no_table_grants_what_the_record_does_not_cover)
{
    with_seeds([](std::uint64_t seed) {
        spread s(seed);
        s.store.takes = [] { return 1ms; };
        s.run([&]() -> task<void> {
            const client_id a = *s.book->add_client("a");
            BOOST_TEST(s.book->set_silent(a).has_value());
            const auto early = co_await s.open(a, 1);
            BOOST_TEST(is(early, errc::busy));
            // Each table has the record written that it needs, at once.
            const auto come = [&](unsigned home) -> task<void> {
                const share deny = home == 1 ? write : home == 2 ? read : share::none;
                const auto opens = [&s, a, home, deny](state_table& t) -> task<void> {
                    const auto written = co_await t.book().record(a, deny);
                    BOOST_TEST(written.has_value());
                    const auto o = t.open(spread::request(a, s.file(home), both, deny));
                    BOOST_TEST(o.has_value());
                    BOOST_TEST((s.lists.new_list.contains("a") && includes(s.lists.new_list["a"], deny)));
                };
                co_await s.at(home, opens);
            };
            scope calls(s.shards.at(0).reactor());
            for (unsigned home = 0; home < homes; ++home)
                calls.spawn(come, home);
            co_await calls.join();
        });
    });
}

BOOST_AUTO_TEST_CASE(an_owner_of_locks_is_released_at_all_tables_or_at_none)
{
    with_seeds([](std::uint64_t seed) {
        spread s(seed);
        s.run([&]() -> task<void> {
            const client_id a = co_await s.client("a");
            std::array<stateid, homes> locks;
            for (unsigned home = 0; home < homes; ++home) {
                const std::string name = s.file(home);
                const auto lock = [&](state_table& t) {
                    const auto o = t.open(spread::request(a, name, both));
                    return t.lock(files_fixture::lock_of(a, o->id, name));
                };
                const auto locked = co_await s.at(home, lock);
                BOOST_TEST_REQUIRE(locked.has_value());
                locks[home] = *locked;
            }
            const auto unlock = [&](unsigned home) {
                return s.at(home, [&s, a, home, id = locks[home]](state_table& t) {
                    return t.unlock(a, id, file_named(s.file(home)), {0, 9});
                });
            };
            for (const unsigned home : {0u, 2u})
                BOOST_TEST((co_await unlock(home)).has_value());
            const auto is_there = [a](state_table& t) { return t.has_owner(a, true, owner_named("l")); };
            const auto held = co_await s.book->release_lock_owner(a, owner_named("l"));
            BOOST_TEST(is(held, errc::locks_held));
            for (unsigned home = 0; home < homes; ++home) {
                const bool there = co_await s.at(home, is_there);
                BOOST_TEST(there);
            }
            BOOST_TEST((co_await unlock(1)).has_value());
            const auto done = co_await s.book->release_lock_owner(a, owner_named("l"));
            BOOST_TEST(done.has_value());
            for (unsigned home = 0; home < homes; ++home) {
                const bool there = co_await s.at(home, is_there);
                BOOST_TEST(!there);
            }
            // And the owner's opens.
            const auto all = co_await s.book->files_of(a, 3);
            BOOST_TEST((all && all->size() == 3u));
            BOOST_TEST(!(co_await s.book->files_of(a, 2)));
            const auto closed = co_await s.book->close_all(a, owner_named("o"));
            BOOST_TEST(closed.has_value());
            BOOST_TEST(!s.commons.has_any_state());
        });
    });
}

// Grace is over for all tables at once, and what is reclaimed is what the record says, wherever that is.
BOOST_AUTO_TEST_CASE(tables_know_of_grace_by_the_book)
{
    with_seeds([](std::uint64_t seed) {
        spread s(seed);
        state_options o;
        o.grace_time = 90s;
        o.reclaimers = {{"a", write}};
        for (auto& t : s.tables)
            t.reset();
        s.book.reset();
        s.book.emplace(s.commons, s.shards.at(0), s.store, s.handler, std::move(o));
        for (unsigned i = 0; i < homes; ++i)
            s.tables[i].emplace(s.commons, *s.book, i, s.shards.at(i), s.handler);
        s.run([&]() -> task<void> {
            const client_id a = *s.book->add_client("a"), b = *s.book->add_client("b");
            BOOST_TEST((co_await s.book->reclaim_complete(b)).has_value());
            BOOST_TEST(*s.book->must_reclaim(a));
            for (unsigned home = 0; home < homes; ++home) {
                const auto fresh = co_await s.open(b, home);
                BOOST_TEST(is(fresh, errc::grace));
                const auto reclaims = [&](share deny) {
                    return s.at(home, [&s, a, home, deny](state_table& t) {
                        open_request r = spread::request(a, s.file(home), both, deny);
                        r.claim = open_claim::reclaim;
                        return t.open(r);
                    });
                };
                BOOST_TEST(is(co_await reclaims(read), errc::reclaim_bad)); // it kept no reader out
                BOOST_TEST((co_await reclaims(write)).has_value());
                const auto io = [&s, home](operation op) {
                    return s.at(home, [&s, home, op](state_table& t) {
                        return t.check(demand(op, file_named(s.file(home, 1))));
                    });
                };
                BOOST_TEST(is(co_await io(operation::write), errc::grace));
                BOOST_TEST((co_await io(operation::read)).has_value());
            }
            BOOST_TEST((co_await s.book->reclaim_complete(a)).has_value());
            for (unsigned home = 0; home < homes; ++home) {
                const auto fresh = co_await s.open(b, home, both, share::none, delegation_want::none, 1);
                BOOST_TEST(fresh.has_value());
            }
        });
    });
}

BOOST_AUTO_TEST_CASE(a_client_has_so_much_of_a_kind_at_all_tables)
{
    spread s(1);
    s.kind.of_client = 2;
    s.kind.takes = 1s;
    s.run([&]() -> task<void> {
        const client_id a = co_await s.client("a");
        std::vector<stateid> got;
        const auto hold = [&](unsigned home) -> task<result<stateid>> {
            const auto opened = co_await s.open(a, home);
            BOOST_REQUIRE(opened);
            hold_request r;
            r.client = a;
            r.file = file_named(s.file(home));
            r.kind = &s.kind;
            r.by = opened->id;
            r.bytes = {0, 99};
            const auto ask = [r](state_table& t) { return t.hold(r); };
            auto asking = s.at(home, ask);
            co_return co_await asking;
        };
        const auto one = co_await hold(0);
        const auto two = co_await hold(1);
        const auto three = co_await hold(2);
        BOOST_TEST((one.has_value() && two.has_value()));
        BOOST_TEST(is(three, errc::too_many_locks));
        // What is fenced counts, wherever.
        const auto give = [a, id = *one, name = s.file(0)](state_table& t) -> result<void> {
            BOOST_TEST(t.give_back(a, id, file_named(name), all_bytes, std::nullopt).has_value());
            return {};
        };
        auto giving = s.at(0, give);
        (void)co_await giving;
        const auto fenced = co_await hold(2);
        BOOST_TEST(is(fenced, errc::too_many_locks));
        (void)co_await sleep_for(2s);
        const auto more = co_await hold(2);
        BOOST_TEST(more.has_value());
    });
}

BOOST_AUTO_TEST_SUITE_END()
