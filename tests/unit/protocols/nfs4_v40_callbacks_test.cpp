// SPDX-License-Identifier: Apache-2.0
// Calls to clients of minor version 0: where they are called, when that is tried, what it takes to get a delegation and how it goes back.
#include "nfs4_called_host.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/protocols/nfs/server/v3/server.hpp>
#include <verbena/protocols/nfs/wire/v3/codec.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>

#include <array>
#include <sys/socket.h>

BOOST_AUTO_TEST_SUITE(nfs4_v40_callbacks_test)

using namespace verbena;
using namespace verbena::test;
namespace v3 = verbena::nfs::v3;
using deleg = open_delegation_type4;
using outcome = callback_counters::outcome;
using kind = callback_counters::kind;

namespace {

using fixture = called_hosts_fixture;

} // namespace

// --- Where

BOOST_AUTO_TEST_CASE(universal_addresses_are_an_address_and_a_port)
{
    const auto said = [](std::string_view netid, std::string_view text) {
        const auto at = parse_universal_address(netid, text);
        return at ? at->at.to_string() : std::string();
    };
    BOOST_TEST(said("tcp", "192.0.2.7.8.1") == "192.0.2.7:2049");
    BOOST_TEST(said("tcp", "10.0.0.1.255.255") == "10.0.0.1:65535");
    BOOST_TEST(said("tcp6", "2001:db8::7.0.1") == "[2001:db8::7]:1");
    BOOST_TEST(said("tcp6", "::ffff:192.0.2.7.8.1") == "192.0.2.7:2049");
    BOOST_TEST(said("rdma", "192.0.2.7.78.81") == "192.0.2.7:20049");
    BOOST_TEST(said("rdma6", "::1.78.81") == "[::1]:20049");
    BOOST_TEST(
        (parse_universal_address("rdma", "192.0.2.7.78.81")->over == universal_address::transport::rdma));
    BOOST_TEST(
        (parse_universal_address("tcp", "192.0.2.7.78.81")->over == universal_address::transport::stream));
    for (const std::string_view text :
         {"", ".", ".....", "192.0.2.7", "192.0.2.7.8", "192.0.2.7.0.0", "192.0.2.7.8.256", "192.0.2.7.08.1",
          "192.0.2.7.8.+1", "192.0.2.7.8. 1", "192.0.2.7.8.1.", ".192.0.2.7.8.1", "192.0.2.256.8.1",
          "192.0.2.7.1.8.1", "host.8.1", "2001:db8::7.8.1", "192.0.2.7.8.1x", "192.0.2.7.8.-1"})
        BOOST_TEST(said("tcp", text) == "", text);
    for (const std::string_view text : {"192.0.2.7.8.1", "fe80::1%lo.8.1", "[::1].8.1", "::1", "::1.8",
                                        "2001:db8:::7.8.1", ":.8.1", "::1:8.1"})
        BOOST_TEST(said("tcp6", text) == "", text);
    for (const std::string_view netid : {"", "udp", "6", "tcp66", "TCP", "tcp4", "local"})
        BOOST_TEST(said(netid, "192.0.2.7.8.1") == "", netid);
    using namespace std::string_view_literals;
    BOOST_TEST(said("tcp", "192.0.2.7\0.8.1"sv) == "");
    BOOST_TEST(said("tcp6", std::string(200, ':') + ".8.1") == "");
}

BOOST_AUTO_TEST_CASE(an_address_is_a_host_s_own_or_none)
{
    const auto at = [](std::string_view netid, std::string_view text, std::string_view from) {
        const auto own = at_home_of(*parse_universal_address(netid, text), from);
        return own ? own->at.to_string() : std::string();
    };
    BOOST_TEST(at("tcp", "192.0.2.7.8.1", "192.0.2.7") == "192.0.2.7:2049");
    BOOST_TEST(at("tcp6", "::ffff:192.0.2.7.8.1", "192.0.2.7") == "192.0.2.7:2049");
    BOOST_TEST(at("tcp6", "2001:db8::7.8.1", "2001:db8::7") == "[2001:db8::7]:2049");
    BOOST_TEST(at("tcp6", "fe80::1.8.1", "fe80::1%lo") == "[fe80::1%lo]:2049");
    BOOST_TEST(at("tcp", "192.0.2.8.8.1", "192.0.2.7") == "");
    BOOST_TEST(at("tcp6", "2001:db8::8.8.1", "2001:db8::7") == "");
    BOOST_TEST(at("tcp", "0.0.0.0.8.1", "192.0.2.7") == "");
    BOOST_TEST(at("tcp", "127.0.0.1.8.1", "192.0.2.7") == "");
    BOOST_TEST(at("tcp", "192.0.2.7.8.1", "no address") == "");
}

BOOST_FIXTURE_TEST_CASE(only_the_host_that_a_client_calls_from_is_connected_to, fixture)
{
    begin();
    client0 c(*this, "c");
    for (const auto& [netid, address] :
         std::initializer_list<std::pair<const char*, const char*>>{{"tcp", "127.0.0.2.8.1"},
                                                                    {"tcp", "192.0.2.1.8.1"},
                                                                    {"tcp6", "2001:db8::1.8.1"},
                                                                    {"udp", "127.0.0.1.8.1"},
                                                                    {"tcp", "127.0.0.1.0.0"},
                                                                    {"tcp", ""}}) {
        c.netid = netid;
        c.address = address;
        c.connect();
        make(c, "f");
        BOOST_TEST(c.open(c.opening("f", share4::access_read)).delegation.delegation_type == deleg::none);
        pass(20s);
        BOOST_TEST(called.connections() == 0, netid << ' ' << address);
    }
    // Nor is a service that others know by its number.
    c.netid = "tcp";
    c.address = "127.0.0.1.8.1";
    for (const std::uint32_t program : {100005u, 0x3fffffffu, 0x60000000u}) {
        c.program = program;
        c.connect();
        pass(20s);
        BOOST_TEST(called.connections() == 0, program);
    }
    // The same client, where it may be called. Who confirms it plays no part.
    c.program = 0x5fffffff;
    c.netid = "tcp6";
    c.address = "::ffff:127.0.0.1.8.1";
    const auto set = c.set();
    from.address = "127.0.0.2";
    BOOST_TEST(c.confirm(set.clientid, set.setclientid_confirm) == nfsstat4::ok);
    from.address = "127.0.0.1";
    pass(1ms);
    BOOST_TEST(host.connections == 1);
    BOOST_TEST(called.connections() == 1);
    make(c, "g");
    BOOST_TEST(c.open(c.opening("g", share4::access_read)).delegation.delegation_type == deleg::read);
}

// --- Tries

BOOST_FIXTURE_TEST_CASE(a_client_has_no_delegation_before_it_was_called, fixture)
{
    begin();
    host.silent = true;
    client0 c(*this, "c");
    c.connect();
    make(c, "f");
    const auto first = c.open(c.opening("f", share4::access_read));
    BOOST_TEST(first.delegation.delegation_type == deleg::none);
    BOOST_TEST(host.nulls == 1);
    // It hears nothing for ten seconds.
    pass(9990ms);
    BOOST_TEST(host.open == 1);
    pass(100ms);
    BOOST_TEST(host.open == 0);
    BOOST_TEST(paths().failures.value() == 1u);
    host.silent = false;
    pass(1s);
    BOOST_TEST(host.connections == 1); // nobody wants anything
    BOOST_TEST(c.open(c.opening("f", share4::access_read)).delegation.delegation_type == deleg::none);
    pass(1ms);
    BOOST_TEST(host.connections == 2);
    BOOST_TEST(host.nulls == 2);
    BOOST_TEST(c.open(c.opening("f", share4::access_read)).delegation.delegation_type == deleg::read);
    BOOST_TEST(host.connections == 2);
    BOOST_TEST(paths().tries.value() == 2u);
}

// Else its delegation is revoked before it can hear CB_PATH_DOWN.
BOOST_FIXTURE_TEST_CASE(no_call_takes_long_for_the_time_that_a_recall_has, fixture)
{
    BOOST_TEST((paths().limit() == callback_paths::patience));
    verbena::files::state_options hasty;
    hasty.epoch = 9;
    hasty.recall_time = 20s;
    nfs::state_home state(std::array{&home}, *store, commons->callbacks, hasty, siphash_key());
    BOOST_TEST((callback_paths(state, limits).limit() == duration(5s)));
}

BOOST_FIXTURE_TEST_CASE(a_client_that_can_t_be_reached_is_tried_less_and_less, fixture)
{
    begin();
    host.refuses = true;
    client0 c(*this, "c");
    c.connect();
    make(c, "f");
    BOOST_TEST(host.connections == 1);
    const auto ask = [&] {
        const auto file = c.open(c.opening("f", share4::access_read));
        BOOST_TEST(file.delegation.delegation_type == deleg::none);
        turns();
        return host.connections;
    };
    int tried = 1;
    for (const duration pause : {duration(1s), duration(2s), duration(4s), duration(8s)}) {
        pass(pause - 30ms);
        BOOST_TEST(ask() == tried);
        pass(40ms);
        BOOST_TEST(ask() == ++tried);
    }
    // Five minutes at last.
    for (int i = 0; i < 6; ++i) {
        clock.advance(300s);
        (void)c.renew();
        ask();
    }
    tried = host.connections;
    pass(299s, 1s);
    (void)c.renew();
    BOOST_TEST(ask() == tried);
    pass(2s);
    BOOST_TEST(ask() == tried + 1);
    // One that never comes about ends, too.
    host.refuses = false;
    host.hangs = true;
    clock.advance(300s);
    (void)c.renew();
    ask();
    pass(11s);
    BOOST_TEST(paths().connections.value() == 0);
    // Another place begins anew.
    host.hangs = false;
    c.ident = 78;
    const auto again = c.set();
    BOOST_TEST(c.confirm(again.clientid, again.setclientid_confirm) == nfsstat4::ok);
    pass(1ms);
    BOOST_TEST(c.open(c.opening("f", share4::access_read)).delegation.delegation_type == deleg::read);
}

BOOST_FIXTURE_TEST_CASE(an_idle_connection_is_closed_and_made_again_for_a_call, fixture)
{
    begin();
    client0 c(*this, "c"), other(*this, "other");
    other.address = "127.0.0.1.8.2";
    c.connect();
    const auto file = delegated(c, "f");
    pass(9s);
    BOOST_TEST(host.open == 1);
    BOOST_TEST(paths().connections.value() == 1);
    pass(2s);
    BOOST_TEST(host.open == 0);
    BOOST_TEST(paths().connections.value() == 0);
    BOOST_TEST(c.renew() == nfsstat4::ok); // it is thought to be good
    other.connect();
    make(other, "g");
    const auto waiting = take(other, "f");
    pass(1ms);
    BOOST_TEST(host.connections == 2);
    BOOST_TEST(host.nulls == 1); // the call itself tells
    BOOST_TEST(host.calls.size() == 1u);
    BOOST_TEST(give_back(file) == nfsstat4::ok);
    pass(1ms);
    BOOST_TEST(status_of(*waiting) == nfsstat4::ok);
}

// A peer's places go to those who want them; what is idle gives way.
BOOST_FIXTURE_TEST_CASE(connections_have_limits, fixture)
{
    start_with(4, 3);
    std::deque<client0> clients;
    std::deque<std::string> addresses;
    const auto add = [&](const std::string& address) -> client0& {
        from.address = addresses.emplace_back(address);
        client0& c = clients.emplace_back(*this, "c" + std::to_string(clients.size()));
        c.address = address + ".8." + std::to_string(clients.size());
        c.connect();
        turns();
        return c;
    };
    called.at("127.0.0.1:2049").silent = true; // its try goes on
    client0& first = add("127.0.0.1");
    add("127.0.0.1");
    add("127.0.0.1");
    BOOST_TEST(paths().connections.value() == 3);
    client0& third = add("127.0.0.1");
    BOOST_TEST(called.at("127.0.0.1:2052").connections == 0);
    turns();
    BOOST_TEST(paths().connections.value() == 2); // an idle one has gone
    BOOST_TEST(called.at("127.0.0.1:2049").open == 1);
    (void)third.open(third.opening("f"));
    turns();
    BOOST_TEST(called.at("127.0.0.1:2052").open == 1);
    add("127.0.0.2");
    BOOST_TEST(paths().connections.value() == 4);
    client0& last = add("127.0.0.3");
    BOOST_TEST(called.at("127.0.0.3:2054").connections == 0);
    (void)last.open(last.opening("f"));
    turns();
    BOOST_TEST(called.at("127.0.0.3:2054").open == 1);
    BOOST_TEST(paths().connections.value() <= 4);
    // Nobody was cut off amid a try.
    BOOST_TEST(called.at("127.0.0.1:2049").open == 1);
    BOOST_TEST(first.renew() == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(what_throws_as_a_connection_is_made_is_a_try_that_failed, fixture)
{
    begin();
    host.throws = 1;
    client0 c(*this, "c");
    c.connect();
    turns();
    BOOST_TEST(paths().connections.value() == 0);
    BOOST_TEST(paths().failures.value() == 1u);
    BOOST_TEST(host.connections == 0);
    make(c, "f");
    pass(1s);
    (void)c.open(c.opening("f", share4::access_read));
    pass(1ms);
    BOOST_TEST(host.connections == 1);
    BOOST_TEST(c.open(c.opening("f", share4::access_read)).delegation.delegation_type == deleg::read);
}

BOOST_FIXTURE_TEST_CASE(who_changes_its_port_all_the_time_is_tried_ten_times_a_second, fixture)
{
    begin();
    client0 c(*this, "c");
    const auto move_to = [&](int to) {
        c.address = "127.0.0.1.40." + std::to_string(to);
        move(c);
        turns();
    };
    for (int i = 0; i < 100; ++i)
        move_to(i);
    BOOST_TEST(called.connections() == int(callback_paths::most_tries));
    pass(1s);
    for (int i = 100; i < 130; ++i)
        move_to(i);
    BOOST_TEST(called.connections() == int(callback_paths::most_tries) + 10);
}

// --- Calls

BOOST_FIXTURE_TEST_CASE(a_recall_names_the_client_s_program_and_number, fixture)
{
    user->uid = 12;
    user->gid = 34;
    begin();
    client0 c(*this, "c"), other(*this, "other");
    other.address = "127.0.0.1.8.2";
    c.connect();
    const auto file = delegated(c, "f");
    other.connect();
    make(other, "g");
    const auto waiting = take(other, "f");
    BOOST_TEST(!waiting->is_done);
    BOOST_TEST_REQUIRE(host.calls.size() == 1u);
    const called_hosts::heard& h = host.calls[0];
    BOOST_TEST(h.program == 0x40000000u);
    BOOST_TEST((h.flavor == rpc::auth_flavor::sys));
    BOOST_TEST(h.uid == 12u);
    BOOST_TEST(h.gid == 34u);
    BOOST_TEST(h.minor == 0u);
    BOOST_TEST(h.ident == 77u);
    BOOST_TEST(h.operations == 1u);
    BOOST_TEST((h.operation == nfs_cb_opnum4::recall));
    BOOST_TEST((h.id == file.delegation.stateid));
    BOOST_TEST(std::ranges::equal(h.handle, file.handle));
    BOOST_TEST(give_back(file) == nfsstat4::ok);
    pass(1ms);
    BOOST_TEST(status_of(*waiting) == nfsstat4::ok);
    BOOST_TEST(count(kind::recall, outcome::ok) == 1u);
    BOOST_TEST(give_back(file) == nfsstat4::bad_stateid);
    BOOST_TEST(host.calls.size() == 1u);
    BOOST_TEST(called.at("127.0.0.1:2050").calls.empty());
}

BOOST_FIXTURE_TEST_CASE(a_client_of_nobody_is_called_without_a_signature, fixture)
{
    user.reset();
    begin();
    client0 c(*this, "c"), other(*this, "other");
    other.address = "127.0.0.1.8.2";
    c.connect();
    const auto file = delegated(c, "f");
    other.connect();
    make(other, "g");
    (void)take(other, "f");
    BOOST_TEST_REQUIRE(host.calls.size() == 1u);
    BOOST_TEST((host.calls[0].flavor == rpc::auth_flavor::none));
    BOOST_TEST(give_back(file) == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(what_other_versions_do_recalls_it_too, fixture)
{
    begin();
    v3::server old(exports, key, &commons->state, &home);
    dispatcher->add(old);
    client0 c(*this, "c");
    c.connect();
    const auto file = delegated(c, "f"), removed = delegated(c, "g");
    // Minor version 1.
    minor = 1;
    client4 newer(*this, "newer");
    newer.connect();
    const auto waiting =
        nfs4_fixture::begin(newer.sequence(), PUTROOTFH4args(), LOOKUP4args{"export"}, newer.opening("f"));
    BOOST_TEST(!waiting->is_done);
    BOOST_TEST_REQUIRE(host.calls.size() == 1u);
    BOOST_TEST((host.calls[0].id == file.delegation.stateid));
    minor = 0;
    BOOST_TEST(give_back(file) == nfsstat4::ok);
    pass(1ms);
    BOOST_TEST(status_of(*waiting) == nfsstat4::ok);
    // Version 3.
    v3::diropargs3 what;
    const auto root = nfs::sign_handle(key, exports.all()[0].id, files->root());
    BOOST_REQUIRE(root);
    BOOST_REQUIRE(what.dir.assign(root->bytes()));
    what.name = "g";
    const auto removing = std::make_shared<memory_call>(pool, from);
    xdr::encoder out = removing->begin(100003, 3, static_cast<std::uint32_t>(v3::procedure::remove), &*user);
    encode(out, v3::REMOVE3args{what});
    removing->end(out);
    tasks.spawn([this, removing]() -> task<void> {
        (void)co_await dispatcher->dispatch(*removing);
        removing->is_done = true;
    });
    turns();
    BOOST_TEST(!removing->is_done);
    BOOST_TEST_REQUIRE(host.calls.size() == 2u);
    BOOST_TEST((host.calls[1].id == removed.delegation.stateid));
    BOOST_TEST(give_back(removed) == nfsstat4::ok);
    pass(1ms);
    BOOST_TEST(removing->is_done);
}

BOOST_FIXTURE_TEST_CASE(a_client_that_does_not_know_it_yet_is_asked_again, fixture)
{
    begin();
    client0 c(*this, "c"), other(*this, "other");
    other.address = "127.0.0.1.8.2";
    c.connect();
    const auto file = delegated(c, "f");
    other.connect();
    make(other, "g");
    host.says = nfsstat4::bad_stateid;
    (void)take(other, "f");
    BOOST_TEST(host.calls.size() == 1u);
    pass(70ms, 1ms); // after 20 and 40
    BOOST_TEST(host.calls.size() == 3u);
    BOOST_TEST(count(kind::recall, outcome::later) == 3u);
    BOOST_TEST(c.renew() == nfsstat4::ok); // it is there
    host.says = nfsstat4::ok;
    pass(100ms);
    BOOST_TEST(host.calls.size() == 4u);
    pass(5s);
    BOOST_TEST(host.calls.size() == 4u);
    BOOST_TEST(host.connections == 1);
    BOOST_TEST(give_back(file) == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_connection_that_breaks_amid_a_recall_is_made_again, fixture)
{
    begin();
    client0 c(*this, "c"), other(*this, "other");
    other.address = "127.0.0.1.8.2";
    c.connect();
    const auto file = delegated(c, "f");
    other.connect();
    make(other, "g");
    host.breaks = 1;
    (void)take(other, "f");
    BOOST_TEST(host.calls.size() == 1u);
    BOOST_TEST(host.open == 0);
    BOOST_TEST(count(kind::recall, outcome::unanswered) == 1u);
    // What can't be called gets no other one, and hears of it.
    BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
    BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
    BOOST_TEST(c.open(c.opening("g", share4::access_read)).delegation.delegation_type == deleg::none);
    BOOST_TEST(host.connections == 1); // not sooner than after a second
    pass(2s);
    BOOST_TEST(host.connections == 2);
    BOOST_TEST(host.nulls == 2);
    BOOST_TEST(host.calls.size() == 2u);
    BOOST_TEST((host.calls[1].id == file.delegation.stateid));
    BOOST_TEST(c.renew() == nfsstat4::ok);
    BOOST_TEST(count(kind::recall, outcome::ok) == 1u);
    BOOST_TEST(give_back(file) == nfsstat4::ok);
}

namespace {

/// "c" answers CB_NULL and nothing else, and was recalled in vain.
struct half_deaf_fixture : fixture {
    half_deaf_fixture()
    {
        begin();
        other.netid = "udp";
        c.connect();
        file = delegated(c, "f");
        make(c, "h");
        other.connect();
        make(other, "g");
        host.silent_recalls = true;
        (void)take(other, "f");
        pass(10100ms);
    }
    client0 c{*this, "c"}, other{*this, "other"};
    client0::opened file;
};

} // namespace

// A stuck callback thread, say.
BOOST_FIXTURE_TEST_CASE(who_answers_cb_null_alone_can_t_be_called, half_deaf_fixture)
{
    for (int second = 0; second < 40; ++second) {
        BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
        BOOST_TEST(c.open(c.opening("h", share4::access_read)).delegation.delegation_type == deleg::none);
        pass(1s);
    }
    BOOST_TEST(host.connections == 4); // with one, two and four seconds between
    BOOST_TEST(host.nulls == 4);
    BOOST_TEST(paths().failures.value() == 0u);
    host.silent_recalls = false;
    for (int second = 0; second < 20; ++second) {
        (void)c.renew();
        pass(1s);
    }
    BOOST_TEST(c.renew() == nfsstat4::ok);
    BOOST_TEST(c.open(c.opening("h", share4::access_read)).delegation.delegation_type == deleg::read);
    BOOST_TEST(give_back(file) == nfsstat4::ok);
}

// As Linux does when RENEW says that it can't be called.
BOOST_FIXTURE_TEST_CASE(to_say_the_same_place_again_is_no_answer, half_deaf_fixture)
{
    for (int second = 0; second < 40; ++second) {
        BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
        move(c);
        turns();
        BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
        BOOST_TEST(c.open(c.opening("h", share4::access_read)).delegation.delegation_type == deleg::none);
        pass(1s);
    }
    // But it is worth a try, when what is under way has ended.
    host.silent_recalls = false;
    pass(11s);
    move(c);
    pass(3s);
    BOOST_TEST(c.renew() == nfsstat4::ok);
    BOOST_TEST(give_back(file) == nfsstat4::ok);
}

// And nothing is left of it, whatever became of the call.
BOOST_FIXTURE_TEST_CASE(a_client_begins_anew_while_it_is_called, fixture)
{
    begin();
    client0 other(*this, "other");
    other.netid = "udp";
    other.connect();
    make(other, "g");
    for (const bool amid_call : {true, false}) {
        host.silent_recalls = host.hangs = false;
        client0 c(*this, "c", amid_call ? 1 : 2), anew(*this, "c", amid_call ? 2 : 3);
        c.connect();
        pass(1ms);
        const std::string name = amid_call ? "f" : "h";
        (void)delegated(c, name);
        if (amid_call) {
            host.silent_recalls = true;
        } else {
            pass(11s);
            host.hangs = true;
        }
        const auto waiting = take(other, name);
        BOOST_TEST(!waiting->is_done);
        BOOST_TEST(paths().connections.value() == 1);
        anew.connect();
        pass(1ms);
        BOOST_TEST(status_of(*waiting) == nfsstat4::ok);
        BOOST_TEST(paths().connections.value() == 1);
        pass(3s);
        BOOST_TEST(commons->callbacks.counters().waiting.value() == 0);
    }
    // The server stops while the last one's connection is being made.
}

BOOST_FIXTURE_TEST_CASE(what_makes_no_sense_is_no_way_to_a_client, fixture)
{
    begin();
    using listener = called_hosts::listener;
    const std::array ways{&listener::babbles, &listener::rejects, &listener::rambles};
    for (std::size_t i = 0; i < ways.size(); ++i) {
        const std::string n = std::to_string(i);
        client0 c(*this, "c" + n), other(*this, "other" + n);
        other.address = "127.0.0.1.8.2";
        c.connect();
        const auto file = delegated(c, "f" + n);
        other.connect();
        make(other, "g" + n);
        host.*ways[i] = true;
        (void)take(other, "f" + n);
        pass(1ms);
        BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
        host.*ways[i] = false;
        pass(3s);
        BOOST_TEST(c.renew() == nfsstat4::ok);
        BOOST_TEST(give_back(file) == nfsstat4::ok);
        BOOST_TEST(count(kind::recall, outcome::failed) == 1u);
        BOOST_TEST(count(kind::recall, outcome::unanswered) == i);
    }
    // CB_NULL likewise.
    host.rejects = true;
    client0 late(*this, "late");
    late.connect();
    make(late, "f2");
    BOOST_TEST(late.open(late.opening("f2", share4::access_read)).delegation.delegation_type == deleg::none);
}

BOOST_FIXTURE_TEST_CASE(a_client_that_moves_is_recalled_where_it_is_now, fixture)
{
    begin();
    client0 c(*this, "c"), other(*this, "other");
    other.address = "127.0.0.1.8.2";
    c.connect();
    const auto file = delegated(c, "f");
    other.connect();
    make(other, "g");
    host.silent_recalls = true;
    const auto waiting = take(other, "f");
    BOOST_TEST(host.calls.size() == 1u);
    called_hosts::listener& there = called.at("127.0.0.1:2060");
    c.address = "127.0.0.1.8.12";
    c.ident = 99;
    const auto set = c.set();
    BOOST_TEST(set.clientid == c.id);
    pass(100ms);
    BOOST_TEST(there.connections == 0); // until it is confirmed
    BOOST_TEST(c.confirm(set.clientid, set.setclientid_confirm) == nfsstat4::ok);
    pass(100ms);
    BOOST_TEST(host.open == 0);
    BOOST_TEST(there.nulls == 1);
    BOOST_TEST_REQUIRE(there.calls.size() == 1u);
    BOOST_TEST(there.calls[0].ident == 99u);
    BOOST_TEST((there.calls[0].id == file.delegation.stateid));
    BOOST_TEST(c.renew() == nfsstat4::ok);
    BOOST_TEST(give_back(file) == nfsstat4::ok);
    pass(1ms);
    BOOST_TEST(status_of(*waiting) == nfsstat4::ok);
    // To say the same again changes nothing.
    const auto again = c.set();
    BOOST_TEST(c.confirm(again.clientid, again.setclientid_confirm) == nfsstat4::ok);
    pass(100ms);
    BOOST_TEST(there.connections == 1);
    // A client that is not called any more.
    c.netid = "udp";
    const auto off = c.set();
    BOOST_TEST(c.confirm(off.clientid, off.setclientid_confirm) == nfsstat4::ok);
    pass(1ms);
    BOOST_TEST(there.open == 0);
    BOOST_TEST(c.open(c.opening("g", share4::access_read)).delegation.delegation_type == deleg::none);
}

// --- Over TCP

namespace {

/// What a client of the kernel's listens with.
class callback_program final : public rpc::program {
public:
    std::uint32_t number() const noexcept override { return 0x40000000; }
    std::uint32_t low_version() const noexcept override { return 1; }
    std::uint32_t high_version() const noexcept override { return 1; }
    std::string_view name() const noexcept override { return "callbacks"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t) const noexcept override { return "CB"; }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    task<rpc::outcome> serve(rpc::call& c) override
    {
        if (c.header().procedure == 0) {
            ++nulls;
            co_return rpc::outcome::success;
        }
        ++calls;
        if (talks) {
            const bool has_room = co_await c.reserve_results(8192);
            BOOST_TEST(has_room);
            const std::vector<std::byte> much(8000);
            c.results().opaque_fixed(much);
            co_return rpc::outcome::success;
        }
        callback_results results(c.results(), {});
        (void)results.add(CB_RECALL4res());
        co_return rpc::outcome::success;
    }
    int nulls = 0, calls = 0;
    bool talks = false; ///< more than any answer has
};

struct over_tcp : fixture {
    over_tcp()
    {
        hosts = &connector;
        begin();
        answers.add(program);
        streams.emplace(*shard, pool, answers, rpc::stream_options());
        listener = std::move(*net::open_listener(*net::endpoint::parse("127.0.0.1:0")));
        const std::uint16_t port = net::endpoint::local(listener.get())->port();
        c.address = "127.0.0.1." + std::to_string(port >> 8) + "." + std::to_string(port & 0xff);
    }
    ~over_tcp()
    {
        tasks.request_stop();
        carry([this] { return tasks.live() == 0; });
        scope s(*shard);
        s.spawn([this] { return streams->shut_down(shard->clock().now()); });
        carry([&] { return s.live() == 0; });
        streams.reset();
    }
    /// Until it is so, while the kernel carries what is sent, and time passes slowly.
    void carry(const std::function<bool()>& is_so)
    {
        for (int i = 0; i < 1'000'000 && !is_so(); ++i) {
            const int fd = ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (fd >= 0)
                streams->adopt(net::unique_fd(fd), *net::endpoint::parse("127.0.0.1:700"));
            turns();
            clock.advance(100us);
        }
        BOOST_TEST_REQUIRE(is_so());
    }
    stream_callback_connector connector{home};
    rpc::service_dispatcher answers{*shard};
    callback_program program;
    std::optional<rpc::stream_server> streams;
    net::unique_fd listener;
    client0 c{*this, "c"};
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_client_is_called_over_a_connection_of_its_own, over_tcp)
{
    c.connect();
    carry([this] { return paths().paths(callback_path::verdict::up).value() == 1; });
    BOOST_TEST(program.nulls == 1);
    const auto file = delegated(c, "f");
    client0 other(*this, "other");
    other.netid = "udp";
    other.connect();
    make(other, "g");
    const auto waiting = take(other, "f");
    carry([this] { return program.calls == 1; });
    BOOST_TEST(!waiting->is_done);
    BOOST_TEST(give_back(file) == nfsstat4::ok);
    carry([&] { return waiting->is_done; });
    BOOST_TEST(status_of(*waiting) == nfsstat4::ok);
    // A client that answers with more than is kept for it.
    const auto second = delegated(c, "h");
    program.talks = true;
    const auto again = take(other, "h");
    carry([this] { return paths().paths(callback_path::verdict::down).value() == 1; });
    BOOST_TEST(give_back(second) == nfsstat4::ok);
    carry([&] { return again->is_done; });
    // One whose connections end under a call has had one.
    const std::uint64_t tried = paths().tries.value();
    ++c.ident;
    move(c);
    int accepted = 0;
    net::unique_fd kept;
    const time_point begun = clock.now();
    while (clock.now() < begun + 9s) {
        if (const int fd = ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
            fd >= 0) {
            ++accepted;
            kept.reset(fd);
        }
        if (accepted > 0 && clock.now() > begun + 2s)
            kept.reset();
        turns();
        clock.advance(10ms);
    }
    BOOST_TEST(accepted == 1);
    BOOST_TEST(paths().tries.value() == tried + 1);
    BOOST_TEST(paths().paths(callback_path::verdict::down).value() == 1);
    // There is no way to one over RDMA.
    c.netid = "rdma";
    const auto set = c.set();
    BOOST_TEST(c.confirm(set.clientid, set.setclientid_confirm) == nfsstat4::ok);
    carry([this] { return paths().paths(callback_path::verdict::down).value() == 1; });
    BOOST_TEST(paths().connections.value() == 0);
}

BOOST_AUTO_TEST_SUITE_END()
