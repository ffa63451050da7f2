// SPDX-License-Identifier: Apache-2.0
// Hosts, which have no lease, and locks by owners alone.
#include "files_fixture.hpp"
#include "files_hand_made_locks.hpp"

#include <verbena/core/task/scope.hpp>

#include <array>

BOOST_AUTO_TEST_SUITE(files_owner_locks_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;

namespace {

constexpr auto read = lock_type::read;
constexpr auto write = lock_type::write;
constexpr std::uint64_t top = byte_range::to_the_end;
using host_word = client_book::host_word;

struct hosts_fixture : files_fixture {
    explicit hosts_fixture(std::function<void(state_options&)> change = {})
    {
        start(std::move(change));
        h = host("h");
        a = client("a");
        of_a = open(a, "open", "f", share::both)->id;
    }
    ~hosts_fixture()
    {
        tasks.request_stop();
        back_end.go.set();
        while (tasks.live() != 0)
            shard->turn();
        stop();
        BOOST_TEST(back_end.objects == 0);
    }
    /// One that is written down.
    client_id host(std::string_view key, std::uint64_t peer = 0)
    {
        const auto made = book->add_host(key, peer);
        BOOST_REQUIRE(made);
        BOOST_REQUIRE(run(book->record(*made)));
        return *made;
    }
    static owner_lock wanted(client_id c, std::string_view owner, byte_range bytes, lock_type type,
                             std::string_view file = "f")
    {
        owner_lock r;
        r.client = c;
        r.file = file_named(file);
        r.owner = owner_named(owner);
        r.bytes = bytes;
        r.type = type;
        return r;
    }
    result<void> lock(client_id c, std::string_view owner, byte_range bytes, lock_type type,
                      bool wait = false, std::string_view file = "f")
    {
        owner_lock r = wanted(c, owner, bytes, type, file);
        r.wait = wait;
        return table->lock_by_owner(r, &holder);
    }
    result<void> unlock(client_id c, std::string_view owner, byte_range bytes, std::string_view file = "f")
    {
        return table->unlock_by_owner(c, file_named(file), owner_named(owner), bytes);
    }
    /// By the client with a lease.
    lock_request of_client(std::string_view owner, byte_range bytes, lock_type type)
    {
        lock_request r = lock_of(a, of_a, "f");
        r.id.seqid = 0;
        r.owner = owner_named(owner);
        r.bytes = bytes;
        r.type = type;
        return r;
    }
    bool would_lock(client_id c, std::string_view owner, byte_range bytes, lock_type type)
    {
        return table->test_lock(c, file_named("f"), owner_named(owner), bytes, type).has_value();
    }
    /// Makes what is in the way of it go.
    result<void> give_way(const demand& d) { return make_way(d, 0s); }
    std::vector<std::string> told()
    {
        std::vector<std::string> names;
        for (const auto& [c, name] : handler.available)
            names.push_back(name);
        handler.available.clear();
        return names;
    }
    using names = std::vector<std::string>;

    // With a back end whose locks processes of this host see.
    void with_local_locks()
    {
        BOOST_REQUIRE(table->close(a, of_a, file_named("f")));
        handler.make_local_locks = [this] { return std::make_unique<hand_made_locks>(back_end); };
        tasks.spawn([this] { return book->tend(); });
        tasks.spawn([this] { return table->tend(); });
        of_a = open(a, "open", "f", share::both)->id;
    }
    struct outcome {
        bool is_done = false;
        result<void> answer = error(errc::busy);
        lock_holder holder;
    };
    task<void> lock_into(owner_lock r, outcome& out)
    {
        pending_lock pending;
        out.answer = table->lock_by_owner(r, &out.holder, &pending);
        if (pending.asks_back_end()) {
            out.answer = co_await table->lock_locally(pending, r, &out.holder);
            if (out.answer)
                out.answer = table->lock_by_owner(r, &out.holder, &pending);
        }
        out.is_done = true;
    }
    void begin_lock(const owner_lock& r, outcome& out)
    {
        tasks.spawn(&hosts_fixture::lock_into, this, r, std::ref(out));
        turns();
    }
    void turns()
    {
        for (int i = 0; i < 10; ++i)
            shard->turn();
    }
    void pass_turning(duration d)
    {
        for (const time_point end = clock.now() + d; clock.now() < end;) {
            clock.advance(10ms);
            turns();
        }
    }

    hand_made back_end;
    scope tasks{*shard};
    client_id h = nobody, a = nobody;
    stateid of_a;
    lock_holder holder;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(owners_conflict_unless_both_read, hosts_fixture)
{
    const client_id other = host("other");
    for (const lock_type held : {read, write})
        for (const lock_type asked : {read, write})
            for (const client_id who : {h, other}) {
                BOOST_REQUIRE(lock(h, "x", {10, 19}, held));
                struct {
                    byte_range bytes;
                    bool overlaps;
                } const rows[] = {{{0, 9}, false},    {{0, 10}, true},  {{19, top}, true},
                                  {{20, top}, false}, {{0, top}, true}, {{12, 12}, true}};
                for (const auto& row : rows) {
                    const bool good = !row.overlaps || (held == read && asked == read);
                    BOOST_TEST(would_lock(who, "y", row.bytes, asked) == good);
                    const auto made = lock(who, "y", row.bytes, asked);
                    BOOST_TEST(made.has_value() == good);
                    if (!made) {
                        BOOST_TEST(is(made, errc::denied));
                        BOOST_TEST((holder.bytes == byte_range{10, 19}));
                        BOOST_TEST((holder.type == held));
                        BOOST_TEST(holder.client == h);
                        BOOST_TEST(holder.owner == "x");
                    }
                    BOOST_REQUIRE(unlock(who, "y", {0, top}));
                }
                BOOST_REQUIRE(unlock(h, "x", {0, top}));
            }
}

// One host's owner "x" is not another one's.
BOOST_FIXTURE_TEST_CASE(an_owner_is_one_of_its_host, hosts_fixture)
{
    const client_id other = host("other");
    BOOST_REQUIRE(lock(h, "x", {0, 9}, write));
    BOOST_TEST(is(lock(other, "x", {0, 9}, write), errc::denied));
    BOOST_REQUIRE(unlock(other, "x", {0, 9}));
    BOOST_TEST(!would_lock(other, "x", {0, 9}, write));
    BOOST_REQUIRE(lock(h, "x", {0, 9}, read)); // its own is not in its way
}

BOOST_FIXTURE_TEST_CASE(hosts_and_clients_with_leases_conflict, hosts_fixture)
{
    const auto held = table->lock(of_client("x", {0, 9}, write));
    BOOST_REQUIRE(held);
    BOOST_TEST(is(lock(h, "x", {5, 14}, read), errc::denied));
    BOOST_TEST(holder.client == a);
    BOOST_TEST(!would_lock(h, "x", {5, 14}, read));
    BOOST_REQUIRE(table->unlock(a, *held, file_named("f"), {0, 9}));
    BOOST_REQUIRE(lock(h, "x", {5, 14}, write));
    BOOST_TEST(is(table->lock(of_client("x", {0, 9}, write), &holder), errc::denied));
    BOOST_TEST(holder.client == h);
    BOOST_TEST(holder.owner == "x");
    BOOST_TEST(!would_lock(a, "x", {0, 9}, write));
    // Deny bits say what may be opened, and a host opens nothing.
    BOOST_REQUIRE(table->close(a, of_a, file_named("f")));
    BOOST_REQUIRE(open(a, "denies", "f", share::both, share::both));
    BOOST_TEST(lock(h, "x", {20, 29}, write).has_value());
}

BOOST_FIXTURE_TEST_CASE(locks_go_with_their_last_range, hosts_fixture)
{
    BOOST_REQUIRE(lock(h, "x", {0, 99}, write, false, "g"));
    BOOST_REQUIRE(lock(h, "x", {200, 299}, read, false, "g"));
    BOOST_TEST(table->stats().lock_states.value() == 1);
    BOOST_TEST(table->stats().locks.value() == 2);
    BOOST_REQUIRE(unlock(h, "x", {40, 49}, "g"));
    BOOST_TEST(table->stats().locks.value() == 3);
    BOOST_TEST(*book->is_in_use(h));
    BOOST_REQUIRE(unlock(h, "x", {0, top}, "g"));
    BOOST_TEST(table->stats().locks.value() == 0);
    BOOST_TEST(table->stats().lock_states.value() == 0);
    BOOST_TEST(table->stats().lock_owners.value() == 0);
    BOOST_TEST(table->stats().owner_names.value() == std::int64_t(std::string_view("open").size()));
    BOOST_TEST(!*book->is_in_use(h));
    BOOST_TEST(!table->commons().has_state(file_named("g")));
    // What is not locked is unlocked all the same, and leaves nothing; nor does a refusal.
    BOOST_TEST(unlock(h, "x", {0, 9}, "g").has_value());
    BOOST_TEST(unlock(h, "nobody", {0, 9}).has_value());
    BOOST_TEST(is(lock(h, "x", {9, 0}, read, false, "g"), errc::invalid));
    BOOST_TEST(is(unlock(h, "x", {9, 0}, "g"), errc::invalid));
    BOOST_TEST(is(lock(h, std::string(1025, 'x'), {0, 9}, read, false, "g"), errc::invalid));
    BOOST_TEST(!table->commons().has_state(file_named("g")));
    // Others lock by their opens.
    BOOST_TEST(is(lock(a, "x", {0, 9}, read), errc::invalid));
    BOOST_TEST(is(unlock(a, "x", {0, 9}), errc::invalid));
    BOOST_TEST(is(lock(h + 1000, "x", {0, 9}, read), errc::stale_client));
}

BOOST_FIXTURE_TEST_CASE(delegations_give_way, hosts_fixture)
{
    BOOST_REQUIRE(table->close(a, of_a, file_named("f")));
    const auto writes = open(a, "o", "f", share::both, share::none, delegation_want::any);
    BOOST_REQUIRE((writes && writes->delegation));
    BOOST_REQUIRE((writes->delegation->type == delegation_type::write));
    for (const lock_type type : {read, write}) {
        const owner_lock r = wanted(h, "x", {0, 9}, type);
        BOOST_TEST(is(table->lock_by_owner(r), errc::in_way));
        BOOST_TEST(is(give_way(demand(r)), errc::busy));
    }
    BOOST_TEST(handler.recalls.size() == 1u);
    BOOST_REQUIRE(table->return_delegation(a, writes->delegation->id, file_named("f")));
    BOOST_TEST(lock(h, "x", {0, 9}, read).has_value());

    const auto reads = open(a, "o", "g", share::read, share::none, delegation_want::any);
    BOOST_REQUIRE((reads && reads->delegation));
    BOOST_TEST(lock(h, "x", {0, 9}, read, false, "g").has_value()); // it may stay
    const owner_lock r = wanted(h, "x", {0, 9}, write, "g");
    BOOST_TEST(is(table->lock_by_owner(r), errc::in_way));
    BOOST_TEST(is(give_way(demand(r)), errc::busy));
    BOOST_TEST(handler.recalls.size() == 2u);
}

// Its holder would lock by itself.
BOOST_FIXTURE_TEST_CASE(no_delegation_is_granted_beside_a_lock_that_contradicts_it, hosts_fixture)
{
    const auto delegated = [&](std::string_view file, share access) {
        const auto made = open(a, "o", file, access, share::none, delegation_want::any);
        BOOST_REQUIRE(made);
        const bool has = made->delegation.has_value();
        if (!has)
            BOOST_TEST((made->why == no_delegation::contention));
        BOOST_REQUIRE(run(book->forget(a)));
        a = client("a");
        return has;
    };
    BOOST_REQUIRE(lock(h, "x", {0, 9}, read, false, "r"));
    BOOST_TEST(delegated("r", share::read));
    BOOST_TEST(!delegated("r", share::both));
    BOOST_REQUIRE(lock(h, "x", {20, 29}, write, false, "r"));
    BOOST_TEST(!delegated("r", share::read));
    BOOST_REQUIRE(unlock(h, "x", {0, top}, "r"));
    BOOST_TEST(delegated("r", share::both));
    // More than anybody wants to look through.
    for (std::uint64_t i = 0; i < 65; ++i)
        BOOST_REQUIRE(lock(h, "x", {2 * i, 2 * i}, read, false, "many"));
    BOOST_TEST(!delegated("many", share::read));
    BOOST_REQUIRE(unlock(h, "x", {0, 9}, "many"));
    BOOST_TEST(delegated("many", share::read));
}

BOOST_FIXTURE_TEST_CASE(waiters_are_offered_what_comes_free, hosts_fixture)
{
    const auto held = table->lock(of_client("holds", {0, 9}, write));
    BOOST_REQUIRE(held);
    BOOST_TEST(is(lock(h, "first", {0, 9}, write, true), errc::denied));
    BOOST_TEST(is(lock(h, "second", {5, 14}, write, true), errc::denied));
    BOOST_TEST(is(lock(h, "third", {0, 0}, write, true), errc::denied));
    BOOST_TEST(table->stop_waiting(h, file_named("f"), owner_named("third"))); // NLM_CANCEL
    BOOST_REQUIRE(table->unlock(a, *held, file_named("f"), {0, 9}));
    BOOST_TEST((told() == names{"first"}));
    BOOST_TEST(table->is_told(h, file_named("f"), owner_named("first")));
    BOOST_TEST(is(table->lock(of_client("late", {0, 9}, write)), errc::denied)); // it is kept
    BOOST_REQUIRE(lock(h, "first", {0, 9}, write));
    BOOST_TEST(table->stats().lock_waiters.value() == 1);
    lock_request waits = of_client("late", {0, 4}, write);
    waits.wait = true;
    BOOST_TEST(is(table->lock(waits), errc::denied));
    BOOST_REQUIRE(unlock(h, "first", {0, 9})); // refused or unheard
    BOOST_TEST((told() == names{"second", "late"}));
    // A host waits whatever it has open.
    const auto opened = open(h, "o", "f", share::read);
    BOOST_REQUIRE(opened);
    BOOST_REQUIRE(table->close(h, opened->id, file_named("f")));
    BOOST_TEST(table->is_told(h, file_named("f"), owner_named("second")));
}

// All of its locks go, and who waited hears once.
BOOST_FIXTURE_TEST_CASE(all_of_a_host_goes_with_it, hosts_fixture)
{
    for (std::uint64_t i = 0; i < 10; ++i) {
        BOOST_REQUIRE(lock(h, "owner " + std::to_string(i), {10 * i, 10 * i + 9}, write));
        BOOST_REQUIRE(lock(h, "x", {0, 9}, write, false, "file " + std::to_string(i)));
    }
    lock_request waits = of_client("waits", {0, 99}, write);
    waits.wait = true;
    BOOST_TEST(is(table->lock(waits), errc::denied));
    const client_id other = host("other");
    BOOST_TEST(is(lock(other, "waits, too", {0, 0}, read, true), errc::denied));
    BOOST_TEST(is(lock(h, "of the host", {0, 0}, read, true), errc::denied));
    const std::uint64_t before = table->stats().waiter_checks.value();
    BOOST_REQUIRE(run(book->forget(h)));
    BOOST_TEST((told() == names{"waits"}));
    BOOST_TEST(table->stats().waiter_checks.value() - before == 2u);
    BOOST_TEST((store->written.back() == "remove h"));
    BOOST_TEST(table->stats().locks.value() == 0);
    BOOST_TEST(is(lock(h, "x", {0, 9}, read), errc::stale_client));
    BOOST_TEST(table->lock(of_client("waits", {0, 99}, write)).has_value());
    BOOST_TEST(table->stats().hosts.value() == 1);
}

// What a host had was not taken from it for a lease that was over.
BOOST_FIXTURE_TEST_CASE(its_end_leaves_alone_what_is_known_of_lost_stateids, hosts_fixture)
{
    const client_id silent = *book->add_client("silent");
    BOOST_REQUIRE(book->set_silent(silent));
    BOOST_REQUIRE(run(book->record(silent)));
    const auto opened = open(silent, "o", "g", share::read);
    BOOST_REQUIRE(opened);
    pass(91s);
    BOOST_REQUIRE(run(book->drop_courtesy(10)));
    BOOST_TEST(is(table->holder_of(opened->id), errc::expired));
    for (unsigned i = 0; i < 4; ++i) // in its place
        BOOST_REQUIRE(lock(h, "x", {0, 9}, write, false, std::string(1, char('k' + i))));
    BOOST_REQUIRE(run(book->forget(h)));
    BOOST_TEST(is(table->holder_of(opened->id), errc::expired));
}

BOOST_FIXTURE_TEST_CASE(a_host_is_silent_as_long_as_it_likes, hosts_fixture)
{
    tasks.spawn([this] { return book->tend(); });
    tasks.spawn([this] { return table->tend(); });
    BOOST_REQUIRE(lock(h, "x", {0, 9}, write));
    for (unsigned hours = 0; hours < 49; ++hours) {
        clock.advance(1h);
        turns();
    }
    BOOST_TEST((*book->state_of(h) == client_state::active));
    BOOST_TEST(is(book->renew(a), errc::expired)); // which had a lease
    BOOST_TEST((book->lapsed() == std::vector<client_id>{a}));
    BOOST_TEST(table->stats().hosts.value() == 1);
    BOOST_TEST(table->stats().courtesy_clients.value() == 0);
    // It stands against others for good: nothing is gained by making way.
    const client_id other = host("other");
    const owner_lock r = wanted(other, "y", {0, 9}, write);
    BOOST_TEST(is(table->lock_by_owner(r), errc::denied));
    BOOST_TEST(give_way(demand(r)).has_value());
    BOOST_TEST(is(table->lock_by_owner(r), errc::denied));
    BOOST_TEST((lists.new_list.contains("h")));
    BOOST_TEST(book->renew(h).has_value()); // which changes nothing
    BOOST_TEST(*run(book->drop_courtesy(100)) == 0u);
    BOOST_TEST(unlock(h, "x", {0, 9}).has_value());
}

BOOST_FIXTURE_TEST_CASE(an_administrator_takes_what_a_host_has, hosts_fixture)
{
    BOOST_REQUIRE(lock(h, "x", {0, 9}, write));
    BOOST_REQUIRE(run(book->revoke_client(h)));
    BOOST_TEST(is(lock(h, "x", {0, 9}, write), errc::admin_revoked));
    BOOST_TEST(table->lock(of_client("x", {0, 9}, write)).has_value());
    BOOST_TEST((book->lapsed() == std::vector<client_id>{h})); // there is nothing to keep
    BOOST_TEST(table->stats().hosts.value() == 1);
    BOOST_TEST(table->stats().lost_clients.value() == 0);
    BOOST_REQUIRE(run(book->forget(h)));
    BOOST_TEST(table->stats().hosts.value() == 0);
    BOOST_TEST(table->stats().lost_clients.value() == 0);
    BOOST_TEST(table->stats().clients.value() == 1);
}

BOOST_FIXTURE_TEST_CASE(a_host_says_that_it_has_started_again, hosts_fixture)
{
    const auto restarted = [&](std::uint32_t number, host_word says) {
        const auto made = book->has_restarted(h, number, says);
        BOOST_REQUIRE(made);
        return *made;
    };
    // Nothing is known of its starts yet.
    BOOST_TEST(!restarted(0, host_word::calls));
    BOOST_TEST(restarted(5, host_word::restarted));
    BOOST_TEST(!restarted(3, host_word::calls));
    BOOST_TEST(!restarted(3, host_word::calls));
    BOOST_TEST(!restarted(0, host_word::calls));
    // A notice that comes late tells nothing new, and takes nothing.
    BOOST_TEST(!restarted(3, host_word::restarted));
    BOOST_TEST(restarted(5, host_word::restarted));
    BOOST_TEST(restarted(0, host_word::restarted));
    // One that never came.
    BOOST_TEST(restarted(5, host_word::calls));
    BOOST_TEST(restarted(1, host_word::calls)); // it was installed anew
    BOOST_TEST(!restarted(3, host_word::calls));
    BOOST_REQUIRE(run(book->forget(h)));
    BOOST_TEST(is(book->has_restarted(h, 5, host_word::calls), errc::stale_client));
    h = host("h");
    BOOST_TEST(!restarted(5, host_word::calls));
    BOOST_TEST(!restarted(5, host_word::restarted));
    BOOST_TEST(is(book->has_restarted(a, 5, host_word::calls), errc::invalid));
}

// --- Limits

struct limited_fixture : hosts_fixture {
    limited_fixture()
        : hosts_fixture([](state_options& o) {
              o.limits.clients = 8;
              o.limits.locks = 16;
              o.limits.locks_per_client = 6;
              o.limits.lock_states_per_client = 2;
              o.limits.owner_names_per_client = 100;
              o.limits.waiters_per_client = 1;
              o.limits.lockers_per_file = 3;
          })
    {
    }
};

BOOST_FIXTURE_TEST_CASE(limits_of_a_client_hold_for_hosts, limited_fixture)
{
    for (std::uint64_t i = 0; i < 5; ++i)
        BOOST_REQUIRE(lock(h, "x", {10 * i, 10 * i + 4}, write));
    BOOST_REQUIRE(lock(h, "y", {100, 109}, write));
    BOOST_TEST(is(lock(h, "x", {200, 209}, write), errc::too_many_locks));
    BOOST_TEST(is(unlock(h, "x", {2, 2}), errc::too_many_locks)); // which would make two of one
    BOOST_REQUIRE(unlock(h, "x", {40, 49}));
    BOOST_TEST(is(lock(h, "z", {200, 209}, write), errc::too_many_locks)); // owners of files
    BOOST_REQUIRE(unlock(h, "y", {100, 109}));
    BOOST_TEST(is(lock(h, std::string(100, 'n'), {200, 209}, write), errc::too_many_locks));
    BOOST_TEST(lock(h, std::string(99, 'n'), {200, 209}, write).has_value());
    // A wait more is not kept.
    BOOST_REQUIRE(table->lock(of_client("holds", {300, 399}, write)));
    BOOST_TEST(is(lock(h, "x", {300, 309}, write, true), errc::denied));
    BOOST_TEST(is(lock(h, "y", {300, 309}, write, true), errc::denied));
    BOOST_TEST(table->stats().lock_waiters.value() == 1);
    // Of the file.
    BOOST_TEST(is(lock(host("other"), "x", {400, 409}, write), errc::busy));
}

BOOST_FIXTURE_TEST_CASE(hosts_of_one_peer_have_its_share, limited_fixture)
{
    const client_id first = host("first", 7);
    const client_id second = host("second", 7);
    const auto third = book->add_host("third", 7);
    BOOST_TEST(is(third, errc::peer_is_full)); // a quarter of 8
    BOOST_TEST(table->stats().refused_limits.value(limited::clients, limit_of::peer) == 1u);
    const client_id leased = *book->add_client("leased", 7); // it goes by time
    for (std::uint64_t i = 0; i < 3; ++i)
        BOOST_REQUIRE(lock(first, "x", {10 * i, 10 * i + 4}, write));
    BOOST_REQUIRE(lock(second, "x", {100, 109}, write));
    BOOST_TEST(is(lock(second, "x", {200, 209}, write), errc::peer_is_full)); // a quarter of 16
    BOOST_TEST(lock(h, "x", {200, 209}, write).has_value());
    // What one of them gives back is there for the others, and so is its place.
    BOOST_REQUIRE(run(book->forget(first)));
    BOOST_TEST(lock(second, "x", {300, 309}, write).has_value());
    const auto fourth = book->add_host("fourth", 7);
    BOOST_REQUIRE(fourth);
    BOOST_REQUIRE(run(book->forget(*fourth)));
    BOOST_REQUIRE(run(book->forget(second)));
    BOOST_REQUIRE(run(book->forget(leased)));
    // All places: nobody's host goes for another client.
    BOOST_REQUIRE(lock(h, "y", {400, 409}, write));
    for (unsigned i = 0; i < 6; ++i)
        (void)host("host " + std::to_string(i));
    BOOST_TEST(is(book->add_host("one more", 9), errc::too_many_clients));
    BOOST_TEST(is(book->add_client("one more", 9), errc::too_many_clients));
    BOOST_TEST(*run(book->drop_courtesy(1)) == 0u);
    BOOST_TEST(is(book->add_host(std::string(1025, 'x')), errc::invalid));
    BOOST_TEST(unlock(h, "y", {400, 409}).has_value());
}

// --- What is told of them

BOOST_FIXTURE_TEST_CASE(who_denies_others_for_an_hour_is_named, hosts_fixture)
{
    std::vector<std::string> lines;
    set_log_capture(
        [](void* to, std::string_view line) {
            static_cast<std::vector<std::string>*>(to)->emplace_back(line);
        },
        &lines);
    const client_id other = host("other");
    // That long, by minutes, in which the client with a lease is there.
    const auto pass_minutes = [&](unsigned minutes) {
        for (unsigned i = 0; i < minutes; ++i) {
            pass(1min);
            BOOST_REQUIRE(book->renew(a));
        }
    };
    const auto lines_of_denial = [&] {
        const std::size_t before = lines.size();
        BOOST_TEST(is(lock(other, "y", {0, 9}, read), errc::denied));
        return lines.size() - before;
    };
    BOOST_REQUIRE(lock(h, "x", {0, 9}, write));
    pass_minutes(61); // in which nobody wants it
    BOOST_TEST(lines_of_denial() == 0u);
    pass_minutes(59);
    BOOST_TEST(lines_of_denial() == 0u);
    pass_minutes(1);
    BOOST_TEST_REQUIRE(lines_of_denial() == 1u);
    BOOST_TEST(lines.back().find("denied others") != std::string::npos);
    BOOST_TEST(lines.back().find("host=h ") != std::string::npos);
    BOOST_TEST(lines.back().find("sm-notify") != std::string::npos);
    BOOST_TEST(lines_of_denial() == 0u);
    pass_minutes(60);
    BOOST_TEST(is(table->lock(of_client("y", {0, 9}, read)), errc::denied)); // whoever hears it
    BOOST_TEST(lines.size() == 2u);
    // It is there: it has unlocked, or locked anew.
    pass_minutes(30);
    BOOST_TEST(lines_of_denial() == 0u);
    BOOST_REQUIRE(unlock(h, "x", {9, 9}));
    pass_minutes(31);
    BOOST_TEST(lines_of_denial() == 0u);
    pass_minutes(30);
    BOOST_REQUIRE(lock(h, "x", {0, 9}, write));
    pass_minutes(31);
    BOOST_TEST(lines_of_denial() == 0u);
    // A client's lock goes with its lease.
    BOOST_REQUIRE(unlock(h, "x", {0, 9}));
    BOOST_REQUIRE(table->lock(of_client("x", {0, 9}, write)));
    BOOST_TEST(lines_of_denial() == 0u);
    pass_minutes(61);
    BOOST_TEST(lines_of_denial() == 0u);
    set_log_capture(nullptr, nullptr);
}

// --- With locks of the file system

BOOST_FIXTURE_TEST_CASE(local_locks_deny_a_host_and_hosts_lock_locally, hosts_fixture)
{
    with_local_locks();
    back_end.holder = storage::local_holder{{5, 20, true}, 77};
    outcome first;
    begin_lock(wanted(h, "x", {0, 9}, read), first);
    BOOST_TEST(is(first.answer, errc::denied));
    BOOST_TEST(first.holder.owner == "local process 77");
    BOOST_TEST(table->stats().local_lock_denials.value() == 1u);
    BOOST_TEST(!table->has_owner(h, true, owner_named("x")));
    // It waits for a local process as for others.
    owner_lock waits = wanted(h, "x", {0, 9}, write);
    waits.wait = true;
    outcome second;
    begin_lock(waits, second);
    BOOST_TEST(is(second.answer, errc::denied));
    back_end.holder.reset();
    pass_turning(200ms);
    BOOST_TEST((told() == names{"x"}));
    outcome third;
    begin_lock(waits, third);
    BOOST_TEST(third.answer.has_value());
    BOOST_TEST(back_end.holding[0]);
    // What is left is kept, and who unlocks knows whom to wait for.
    back_end_locks unsettled;
    BOOST_REQUIRE(table->unlock_by_owner(h, file_named("f"), owner_named("x"), {0, 4}, &unsettled));
    BOOST_TEST(unsettled != nullptr);
    BOOST_TEST((back_end.kept.empty() && back_end.told == byte_range{0, 4}));
    BOOST_REQUIRE(run(book->forget(h)));
    BOOST_TEST(!back_end.holding[5]);
    BOOST_TEST(back_end.objects == 1); // `unsettled`
}

BOOST_FIXTURE_TEST_CASE(what_is_asked_of_the_back_end_stands_against_others, hosts_fixture)
{
    with_local_locks();
    const client_id other = host("other");
    back_end.holds = true;
    outcome first, beside;
    begin_lock(wanted(h, "x", {0, 9}, write), first);
    BOOST_TEST(!first.is_done);
    BOOST_TEST(is(lock(other, "y", {9, 9}, read), errc::denied));
    BOOST_TEST(is(table->lock(of_client("y", {9, 9}, read)), errc::denied));
    // Its host alone knows which of the two comes first.
    BOOST_TEST(is(unlock(h, "x", {9, 19}), errc::busy));
    BOOST_TEST(unlock(h, "x", {10, 19}).has_value());
    begin_lock(wanted(h, "x", {9, 19}, write), beside);
    BOOST_TEST(is(beside.answer, errc::busy));
    // No delegation comes in between.
    BOOST_REQUIRE(table->close(a, of_a, file_named("f")));
    const auto opened = open(a, "o", "f", share::read, share::none, delegation_want::any);
    BOOST_REQUIRE(opened);
    BOOST_TEST(!opened->delegation.has_value());
    back_end.go.set();
    turns();
    BOOST_TEST(first.answer.has_value());
    BOOST_TEST(table->stats().locks.value() == 1);
}

BOOST_FIXTURE_TEST_CASE(a_host_that_goes_meanwhile_leaves_nothing, hosts_fixture)
{
    with_local_locks();
    const client_id other = host("other");
    back_end.holds = true;
    outcome first, second;
    begin_lock(wanted(h, "x", {0, 9}, write), first);
    BOOST_REQUIRE(run(book->forget(h)));
    begin_lock(wanted(other, "y", {0, 9}, write), second);
    BOOST_TEST(!second.is_done); // it asks the back end, too
    back_end.go.set();
    turns();
    BOOST_TEST(is(first.answer, errc::stale_client));
    BOOST_TEST(second.answer.has_value());
    BOOST_TEST((back_end.kept == std::vector<storage::lock_range>{{0, 9, true}}));
}

BOOST_AUTO_TEST_SUITE_END()
