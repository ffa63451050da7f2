// SPDX-License-Identifier: Apache-2.0
// Minor version 0: how many owners there are, and who looks after those that have nothing.
#include "../refusals_since.hpp"
#include "nfs4_called_host.hpp"

#include <map>
#include <utility>

BOOST_AUTO_TEST_SUITE(nfs4_v40_limits_test)

using namespace verbena;
using namespace verbena::test;

struct owners_fixture : v40_fixture {
    owners_fixture()
    {
        for (auto& made : options)
            BOOST_REQUIRE(made.clients.add("*"));
        limits.owner_memory_per_peer = 10 * one;
        limits.owner_memory = 15 * one;
    }
    /// From now on it is that owner who opens, with his own numbers.
    void act(client0& of, const std::string& owner)
    {
        numbers[{&of, of.owner}] = of.seqid;
        of.owner = owner;
        of.seqid = numbers[{&of, owner}];
    }
    client0::opened open_as(client0& of, const std::string& owner)
    {
        act(of, owner);
        return of.ready(of.creating("f"));
    }
    void close_as(client0& of, const std::string& owner, const client0::opened& file)
    {
        act(of, owner);
        BOOST_TEST(of.close(file).status == nfsstat4::ok);
    }
    std::uint64_t refused(files::limit_of whose)
    {
        return commons->v40.refused_limits().value(files::limited::owners, whose);
    }
    // What an owner of a short name takes.
    static inline const std::size_t one = v40_owner(1, false, bytes_of("o1")).bytes();
    std::map<std::pair<client0*, std::string>, std::uint32_t> numbers; // the last of each
    const rpc::peer first = from, second{"192.0.2.7", "192.0.2.7:700", "tcp", 700},
                    third{"192.0.2.8", "192.0.2.8:700", "tcp", 700};
};

BOOST_FIXTURE_TEST_CASE(idle_owners_of_a_peer_make_room_for_its_next, owners_fixture)
{
    client0 a(*this, "a"), b(*this, "b");
    a.connect();
    b.connect();
    for (int i = 0; i < 30; ++i) {
        client0& of = i % 2 == 0 ? a : b;
        const std::string owner = {'o', char('A' + i)};
        close_as(of, owner, open_as(of, owner));
        BOOST_TEST(commons->v40.owners().size() <= 10u);
        BOOST_TEST(commons->v40.owners().bytes() <= limits.owner_memory_per_peer);
    }
    BOOST_TEST(commons->v40.owners().size() >= 9u);
    BOOST_TEST(refused(files::limit_of::peer) == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_peer_has_its_part_of_owners_and_no_more, owners_fixture)
{
    client0 a(*this, "a"), b(*this, "b");
    a.connect();
    std::vector<client0::opened> held;
    for (int i = 0; i < 10; ++i)
        held.push_back(open_as(a, "o" + std::to_string(i)));
    act(a, "p0");
    const OPEN4args args = a.opening("f");
    BOOST_TEST(a.open(args).status == nfsstat4::resource);
    BOOST_TEST(refused(files::limit_of::peer) == 1u);
    BOOST_TEST(commons->v40.owners().size() == 10u);
    // Those that there are go on.
    BOOST_TEST(a.write(held[0], held[0].id) == nfsstat4::ok);
    // A lock owner is one, too, and the open owner's number is not used up.
    act(a, "o1");
    a.locker = "l0";
    const LOCK4args lock = a.locking(held[1], 0, 1);
    BOOST_TEST(a.lock(held[1], lock).status == nfsstat4::resource);
    BOOST_TEST(commons->state.stats().locks.value() == 0);
    // Another peer has its own.
    from = second;
    b.connect();
    (void)open_as(b, "o0");
    from = first;
    close_as(a, "o0", held[0]);
    BOOST_TEST(a.lock(held[1], lock).status == nfsstat4::ok);
    BOOST_TEST(commons->v40.owners().size() == 11u);
}

BOOST_FIXTURE_TEST_CASE(a_peer_at_its_limit_takes_nobody_elses_owners, owners_fixture)
{
    client0 a(*this, "a"), b(*this, "b");
    a.connect();
    const client0::opened idle = open_as(a, "o0");
    close_as(a, "o0", idle);
    from = second;
    b.connect();
    for (int i = 0; i < 10; ++i)
        (void)open_as(b, "o" + std::to_string(i));
    act(b, "p0");
    const refusals_since refusals;
    BOOST_TEST(b.open(b.opening("f")).status == nfsstat4::resource);
    BOOST_TEST(refused(files::limit_of::peer) == 1u);
    BOOST_TEST(refusals(verbena::refused::client_opens) == 1u);
    from = first;
    BOOST_TEST(a.close(idle, a.seqid).status == nfsstat4::ok); // a repeat: it is there
}

// Else a few peers with owners that have nothing would keep all others from opening.
BOOST_FIXTURE_TEST_CASE(where_all_have_too_many_idle_ones_of_who_has_most_go, owners_fixture)
{
    client0 a(*this, "a"), b(*this, "b"), c(*this, "c"), d(*this, "d");
    a.connect();
    for (int i = 0; i < 10; ++i) {
        const std::string owner = "o" + std::to_string(i);
        close_as(a, owner, open_as(a, owner));
    }
    from = second;
    b.connect();
    const client0::opened idle = open_as(b, "o0");
    close_as(b, "o0", idle);
    const std::uint32_t idle_seqid = b.seqid;
    for (int i = 1; i < 5; ++i)
        (void)open_as(b, "o" + std::to_string(i));
    from = third;
    c.connect();
    for (int i = 0; i < 5; ++i)
        (void)open_as(c, "o" + std::to_string(i));
    BOOST_TEST(commons->v40.owners().size() == 15u);
    from = second;
    BOOST_TEST(b.close(idle, idle_seqid).status == nfsstat4::ok); // a repeat: it is there
    // The other five of a's, and that one. Owners with state stay, whoever has most.
    from = third;
    for (int i = 5; i < 10; ++i)
        (void)open_as(c, "o" + std::to_string(i));
    from = {"192.0.2.9", "192.0.2.9:700", "tcp", 700};
    d.connect();
    (void)open_as(d, "o0");
    BOOST_TEST(commons->v40.owners().size() == 15u);
    act(d, "o1");
    BOOST_TEST(d.open(d.opening("f")).status == nfsstat4::resource);
    BOOST_TEST(refused(files::limit_of::all) == 1u);
    BOOST_TEST(commons->v40.owners().size() == 15u);
    BOOST_TEST(commons->state.stats().opens.value() == 15);
}

BOOST_FIXTURE_TEST_CASE(long_names_and_what_is_kept_count, owners_fixture)
{
    client0 a(*this, "a"), b(*this, "b");
    a.connect();
    a.locker = std::string(1000, 'n');
    const auto file = open_as(a, "o0");
    const std::size_t before = commons->v40.owners().bytes();
    BOOST_TEST(a.lock(file, a.locking(file, 0, 10)).status == nfsstat4::ok);
    BOOST_TEST(commons->v40.owners().bytes() == before + one + 2 * 998);
    from = second;
    b.connect();
    const auto theirs = open_as(b, "o0");
    const std::size_t without = commons->v40.owners().bytes();
    BOOST_TEST(b.lock(theirs, b.locking(theirs, 0, 1)).denied.owner.owner.size() == 1000u);
    BOOST_TEST(commons->v40.owners().bytes() == without + sizeof(files::lock_holder) + 1000);
    BOOST_TEST(commons->v40.owners().size() == 3u); // one that fails makes no lock owner
    // The next answer takes its place.
    (void)b.open(b.opening("f"));
    BOOST_TEST(commons->v40.owners().bytes() == without);
}

// Then a repeat hears that it is denied, and not by whom.
BOOST_FIXTURE_TEST_CASE(what_there_is_no_room_for_is_not_kept, owners_fixture)
{
    limits.owner_memory_per_peer = 2 * one + 80;
    client0 a(*this, "a"), b(*this, "b");
    a.connect();
    a.locker = std::string(40, 'n');
    const auto file = open_as(a, "o0");
    BOOST_TEST(a.lock(file, a.locking(file, 0, 10)).status == nfsstat4::ok);
    from = second;
    b.connect();
    const auto theirs = open_as(b, "o0");
    const auto held = b.lock(theirs, b.locking(theirs, 50, 10));
    BOOST_TEST_REQUIRE(held.status == nfsstat4::ok);
    const std::size_t before = commons->v40.owners().bytes();
    const LOCK4args denied = b.again(held.lock_stateid, 0, 10);
    BOOST_TEST(b.lock(theirs, denied).denied.owner.owner.size() == 40u);
    BOOST_TEST(commons->v40.owners().bytes() == before);
    BOOST_TEST(b.lock(theirs, denied).status == nfsstat4::denied);
}

BOOST_FIXTURE_TEST_CASE(what_is_looked_at_once_a_lease_goes_on_where_it_ended, v40_fixture)
{
    client0 a(*this, "a"), b(*this, "b"), c(*this, "c");
    for (client0* each : {&a, &b, &c})
        each->connect();
    for (const char* owner : {"o1", "o2"}) {
        a.owner = b.owner = owner;
        (void)a.ready(a.creating("f"));
        (void)b.ready(b.creating("f"));
    }
    const auto file = c.ready(c.creating("f"));
    BOOST_TEST(c.close(file).status == nfsstat4::ok);
    BOOST_TEST(commons->v40.owners().size() == 5u);
    for (int i = 0; i < 3; ++i) {
        clock.advance(91s);
        for (client0* each : {&a, &b, &c})
            BOOST_TEST(each->renew() == nfsstat4::ok);
        (void)run_until_complete(*shard, commons->v40.tend(clock.now(), 2));
    }
    BOOST_TEST(commons->v40.owners().size() == 4u); // the last client's turn came
}

// However many there are, and in slices, so that others' calls come between.
BOOST_FIXTURE_TEST_CASE(all_that_have_nothing_go_when_a_lease_is_over, v40_fixture)
{
    client0 a(*this, "a"), b(*this, "b");
    tasks.spawn([this, &a] {
        a.connect();
        return commons->tend();
    });
    turns();
    b.connect();
    pass(1s, 1s);
    for (client0* each : {&a, &b}) {
        const files::client_id client = commons->v40.clients().state_of(each->id);
        for (int i = 0; i < 1000; ++i) {
            const std::string name = "o" + std::to_string(i);
            (void)commons->v40.owners().make(client, commons->v40.clients().peer_of(client), false,
                                             bytes_of(name), clock.now(),
                                             [](const v40_owner&) { return true; });
        }
    }
    const auto renew = [&] {
        BOOST_TEST(a.renew() == nfsstat4::ok);
        BOOST_TEST(b.renew() == nfsstat4::ok);
    };
    BOOST_TEST(commons->v40.owners().size() == 2000u);
    pass(80s, 1s);
    renew();
    pass(80s, 1s);
    renew();
    BOOST_TEST(commons->v40.owners().size() == 2000u); // none is older than a lease yet
    clock.advance(20s);
    shard->turn();
    BOOST_TEST(commons->v40.owners().size() >= 900u); // a slice
    BOOST_TEST(commons->v40.owners().size() < 1000u);
    pass(20ms, 1ms);
    BOOST_TEST(commons->v40.owners().size() == 0u);
    BOOST_TEST(commons->v40.clients().size() == 2u);
}

// --- Places to call clients

namespace {

/// Whose path is up and idle, and whoever wants its file.
struct holder_fixture : called_hosts_fixture {
    void hold()
    {
        other.netid = "udp";
        holder.connect();
        other.connect();
        file = delegated(holder, "f");
        make(other, "g");
        pass(11s);
        BOOST_TEST(paths().connections.value() == 0);
    }
    void take_places_for_tries()
    {
        for (int i = 10; i < 20; ++i) {
            client0& c = clients.emplace_back(*this, "c" + std::to_string(i));
            c.address = "127.0.0.1.8." + std::to_string(i);
            called.at("127.0.0.1:" + std::to_string(2048 + i)).silent = true;
            c.connect();
        }
        turns();
        BOOST_TEST(paths().connections.value() == 2);
    }
    void is_recalled_at_once()
    {
        const auto waiting = take(other, "f");
        turns();
        BOOST_TEST(host.calls.size() == 1u);
        BOOST_TEST(give_back(file) == nfsstat4::ok);
        pass(1ms);
        BOOST_TEST(status_of(*waiting) == nfsstat4::ok);
    }
    client0 holder{*this, "holder"}, other{*this, "other"};
    std::deque<client0> clients;
    client0::opened file;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(who_never_answers_keeps_nobody_from_being_recalled, holder_fixture)
{
    start_with(4, 16);
    hold();
    take_places_for_tries();
    is_recalled_at_once();
}

BOOST_FIXTURE_TEST_CASE(nor_does_it_keep_others_of_its_peer, holder_fixture)
{
    start_with(256, 4);
    hold();
    take_places_for_tries();
    is_recalled_at_once();
}

BOOST_FIXTURE_TEST_CASE(who_moves_all_the_time_keeps_nobody_from_being_recalled, holder_fixture)
{
    begin();
    hold();
    client0 c(*this, "c");
    for (int i = 0; i < 100; ++i) {
        c.address = "127.0.0.1.40." + std::to_string(i);
        move(c);
        turns();
    }
    BOOST_TEST(called.connections() < 100);
    is_recalled_at_once();
}

// All places of the peer are taken by calls that nobody answers.
BOOST_FIXTURE_TEST_CASE(who_has_no_place_for_its_recall_hears_of_it, holder_fixture)
{
    start_with(256, 2);
    hold();
    client0 a(*this, "a"), b(*this, "b");
    for (client0* c : {&a, &b}) {
        c->address = c == &a ? "127.0.0.1.8.2" : "127.0.0.1.8.3";
        c->connect();
        (void)delegated(*c, c == &a ? "fa" : "fb");
        called.at(c == &a ? "127.0.0.1:2050" : "127.0.0.1:2051").silent_recalls = true;
    }
    const auto for_a = take(other, "fa"), for_b = take(other, "fb");
    const auto waiting = take(other, "f");
    pass(4s);
    BOOST_TEST(host.calls.empty());
    BOOST_TEST(holder.renew() == nfsstat4::ok);
    pass(5500ms);
    BOOST_TEST(host.calls.empty());
    BOOST_TEST(holder.renew() == nfsstat4::cb_path_down);
    make(holder, "h");
    const auto file2 = holder.open(holder.opening("h", share4::access_read));
    BOOST_TEST(file2.delegation.delegation_type == open_delegation_type4::none);
    pass(6s);
    BOOST_TEST(host.calls.size() == 1u);
    BOOST_TEST(holder.renew() == nfsstat4::ok);
    BOOST_TEST(holder.open(holder.opening("h", share4::access_read)).delegation.delegation_type ==
               open_delegation_type4::read);
}

// In time for it: its delegation is revoked after ten seconds.
BOOST_FIXTURE_TEST_CASE(who_has_little_time_for_its_recall_hears_of_it_sooner, holder_fixture)
{
    limits.callback_connections_per_peer = 1;
    verbena::files::state_options hasty;
    hasty.epoch = 9;
    hasty.lease = hasty.recall_time = 10s;
    program.reset();
    dispatcher.reset();
    commons.emplace(exports, key, std::array{&home}, *store, hasty, 1'700'000'000, limits);
    program.emplace(*commons, home);
    dispatcher.emplace(*shard);
    dispatcher->add(*program);
    begin();
    other.netid = "udp";
    holder.connect();
    other.connect();
    (void)delegated(holder, "f");
    client0 a(*this, "a");
    a.address = "127.0.0.1.8.2";
    pass(9s);
    BOOST_TEST(holder.renew() == nfsstat4::ok);
    BOOST_TEST(other.renew() == nfsstat4::ok);
    pass(2s);
    BOOST_TEST(paths().connections.value() == 0);
    a.connect();
    (void)delegated(a, "fa");
    make(other, "g");
    called.at("127.0.0.1:2050").silent_recalls = true;
    const auto for_a = take(other, "fa");
    const auto waiting = begin0(PUTROOTFH4args(), LOOKUP4args{"export"}, REMOVE4args{"f"});
    pass(1s);
    BOOST_TEST(holder.renew() == nfsstat4::ok);
    pass(1s);
    BOOST_TEST(host.calls.empty());
    BOOST_TEST(holder.renew() == nfsstat4::cb_path_down);
    pass(2s);
    BOOST_TEST(host.calls.size() == 1u);
    BOOST_TEST(holder.renew() == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_place_that_is_given_up_keeps_no_connection, called_hosts_fixture)
{
    begin();
    host.hangs = true;
    client0 c(*this, "c");
    for (int i = 0; i < 16; ++i) {
        ++c.ident;
        move(c);
        turns();
    }
    BOOST_TEST(host.connections == 16);
    BOOST_TEST(paths().connections.value() == 1);
}

BOOST_FIXTURE_TEST_CASE(who_may_not_try_ends_no_others_connection, called_hosts_fixture)
{
    start_with(2, 16);
    client0 a(*this, "a"), b(*this, "b"), c(*this, "c");
    c.connect();
    c.address = "127.0.0.1.8.3";
    for (int i = 0; i < 70; ++i) {
        ++c.ident;
        move(c);
        turns();
    }
    from.address = "127.0.0.2";
    a.address = b.address = "127.0.0.2.8.2";
    for (client0* each : {&a, &b}) {
        each->connect();
        turns();
    }
    from.address = "127.0.0.1";
    BOOST_TEST(called.at("127.0.0.2:2050").open == 2);
    const int tried = called.at("127.0.0.1:2051").connections;
    for (int i = 0; i < 10; ++i)
        (void)c.open(c.creating("f" + std::to_string(i)));
    turns();
    BOOST_TEST(called.at("127.0.0.2:2050").open == 2);
    BOOST_TEST(called.at("127.0.0.1:2051").connections == tried);
}

BOOST_AUTO_TEST_SUITE_END()
