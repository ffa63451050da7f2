// SPDX-License-Identifier: Apache-2.0
// Calls to clients of minor version 0: where they are called, when that is tried, what it takes to get a delegation and how it goes back.
#include "nfs4_called_host.hpp"

#include <verbena/protocols/nfs/v3/codec.hpp>
#include <verbena/protocols/nfs/v3/server.hpp>

namespace verbena::nfs::v4 {
inline std::ostream& operator<<(std::ostream& out, open_delegation_type4 type)
{
    return out << unsigned(type);
}
} // namespace verbena::nfs::v4

BOOST_AUTO_TEST_SUITE(nfs4_v40_callbacks_test)

using namespace verbena;
using namespace verbena::test;
namespace v3 = verbena::nfs::v3;
using deleg = open_delegation_type4;
using outcome = callback_counters::outcome;
using kind = callback_counters::kind;

namespace {

struct fixture : v40_fixture {
    fixture()
    {
        options[0].local_writers = false;
        hosts = &called;
        start();
        commons->minors[1] = true;
    }
    ~fixture()
    {
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
        old.reset();
    }
    void begin()
    {
        serve();
        tend();
        turns();
    }
    /// A call of minor version 0 that is still running when this returns, unless nothing holds it up.
    template<class... Args>
    std::shared_ptr<memory_call> begin0(const Args&... args)
    {
        std::shared_ptr<memory_call> c = prepare(0, [&](compound_request& out) { (out.add(args), ...); });
        tasks.spawn([this, c]() -> task<void> {
            (void)co_await dispatcher->dispatch(*c);
            c->is_done = true;
        });
        turns();
        return c;
    }
    /// The file is there, and the client's owner confirmed.
    client0::opened make(client0& c, std::string_view name)
    {
        const auto made = c.ready(c.creating(name));
        BOOST_TEST(c.close(made).status == nfsstat4::ok);
        if (made.delegation.delegation_type != deleg::none)
            BOOST_TEST(give_back(made) == nfsstat4::ok);
        pass(1ms);
        return made;
    }
    client0::opened delegated(client0& c, std::string_view name, std::uint32_t access = share4::access_read)
    {
        make(c, name);
        auto file = c.open(c.opening(name, access));
        BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
        BOOST_TEST_REQUIRE(file.delegation.delegation_type ==
                           ((access & share4::access_write) != 0 ? deleg::write : deleg::read));
        BOOST_TEST(!file.delegation.recall);
        return file;
    }
    /// To write, which is in the way of any delegation; it is still waiting when this returns.
    std::shared_ptr<memory_call> take(client0& c, std::string_view name)
    {
        return begin0(PUTROOTFH4args(), LOOKUP4args{"export"}, c.opening(name));
    }
    nfsstat4 give_back(const client0::opened& file)
    {
        return compound(PUTFH4args{file.fh()}, DELEGRETURN4args{file.delegation.stateid}).status();
    }
    std::uint64_t count(kind k, outcome o) const
    {
        return commons->callbacks.counters().calls[std::size_t(k)][std::size_t(o)].value();
    }
    callback_paths& paths() { return commons->v40.paths(); }

    called_hosts called{pool};
    called_hosts::listener& host = called.at("127.0.0.1:2049");
    std::optional<v3::server> old;
};

nfsstat4 status_of(memory_call& c)
{
    BOOST_TEST_REQUIRE(c.is_done);
    return fixture::answer_of(c).status();
}

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
    // The same client, where it may be called.
    c.netid = "tcp6";
    c.address = "::ffff:127.0.0.1.8.1";
    c.connect();
    pass(1ms);
    BOOST_TEST(host.connections == 1);
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
    limits.callback_connections_per_peer = 2;
    limits.callback_connections = 3;
    commons.reset();
    program.reset();
    dispatcher.reset();
    start();
    begin();
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
    BOOST_TEST(paths().connections.value() == 2);
    client0& third = add("127.0.0.1");
    BOOST_TEST(called.at("127.0.0.1:2051").connections == 0);
    turns();
    BOOST_TEST(paths().connections.value() == 1); // the idle one has gone
    BOOST_TEST(called.at("127.0.0.1:2049").open == 1);
    (void)third.open(third.opening("f"));
    turns();
    BOOST_TEST(called.at("127.0.0.1:2051").open == 1);
    add("127.0.0.2");
    BOOST_TEST(paths().connections.value() == 3);
    client0& last = add("127.0.0.3");
    BOOST_TEST(called.at("127.0.0.3:2053").connections == 0);
    (void)last.open(last.opening("f"));
    turns();
    BOOST_TEST(called.at("127.0.0.3:2053").open == 1);
    BOOST_TEST(paths().connections.value() <= 3);
    // Nobody was cut off amid a try.
    BOOST_TEST(called.at("127.0.0.1:2049").open == 1);
    BOOST_TEST(first.renew() == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(who_changes_its_port_all_the_time_is_tried_ten_times_a_second, fixture)
{
    begin();
    client0 c(*this, "c");
    const auto move = [&](int to) {
        c.address = "127.0.0.1.40." + std::to_string(to);
        const auto set = c.set();
        BOOST_TEST_REQUIRE(set.status == nfsstat4::ok);
        BOOST_TEST_REQUIRE(c.confirm(set.clientid, set.setclientid_confirm) == nfsstat4::ok);
        turns();
    };
    for (int i = 0; i < 100; ++i)
        move(i);
    BOOST_TEST(called.connections() == int(callback_paths::most_tries));
    pass(1s);
    for (int i = 100; i < 130; ++i)
        move(i);
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
    old.emplace(exports, key, &commons->state, &home);
    dispatcher->add(*old);
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

BOOST_FIXTURE_TEST_CASE(what_makes_no_sense_is_no_way_to_a_client, fixture)
{
    begin();
    for (const bool babbles : {true, false}) {
        client0 c(*this, babbles ? "a" : "b"), other(*this, babbles ? "other" : "another");
        other.address = "127.0.0.1.8.2";
        c.connect();
        const auto file = delegated(c, babbles ? "f" : "g");
        other.connect();
        make(other, "h");
        (babbles ? host.babbles : host.rejects) = true;
        (void)take(other, babbles ? "f" : "g");
        pass(1ms);
        BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
        host.babbles = host.rejects = false;
        pass(3s);
        BOOST_TEST(c.renew() == nfsstat4::ok);
        BOOST_TEST(give_back(file) == nfsstat4::ok);
        BOOST_TEST(count(kind::recall, outcome::failed) == 1u);
        BOOST_TEST(count(kind::recall, outcome::unanswered) == (babbles ? 0u : 1u));
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

// --- What comes of a delegation

BOOST_FIXTURE_TEST_CASE(who_does_not_answer_loses_the_delegation_and_nothing_else, fixture)
{
    recovery_lists lists;
    memory_store kept(lists);
    store = &kept;
    commons.reset();
    program.reset();
    dispatcher.reset();
    start();
    begin();
    client0 c(*this, "c"), other(*this, "other");
    other.address = "127.0.0.1.8.2";
    c.connect();
    const auto file = delegated(c, "f");
    other.connect();
    make(other, "g");
    BOOST_TEST(lists.new_list.size() == 2u);
    host.silent = true;
    const auto told_to_wait = take(other, "f");
    pass(2s);
    BOOST_TEST(status_of(*told_to_wait) == nfsstat4::delay);
    for (int i = 0; i < 3; ++i) { // also meanwhile its lease is renewed
        pass(28s, 100ms);
        BOOST_TEST((c.renew() == nfsstat4::cb_path_down || i == 0));
        (void)other.renew();
    }
    pass(10s, 100ms);
    BOOST_TEST(commons->state.table().stats().revocations.value() == 1u);
    BOOST_TEST(lists.new_list.size() == 1u);
    BOOST_TEST(c.renew() == nfsstat4::ok); // it has none
    BOOST_TEST(other.open(other.opening("f")).status == nfsstat4::ok);
    // The open is as good as before, and another one is to be had, though it could not be taken back.
    BOOST_TEST(compound(PUTFH4args{file.fh()}, READ4args{file.id, 0, 10}).status() == nfsstat4::ok);
    BOOST_TEST(c.open(c.opening("g", share4::access_read)).status == nfsstat4::ok);
    BOOST_TEST(lists.new_list.size() == 1u);
    // It hears of it by its stateid, and then is as others are.
    BOOST_TEST(compound(PUTFH4args{file.fh()}, READ4args{file.delegation.stateid, 0, 10}).status() ==
               nfsstat4::bad_stateid);
    BOOST_TEST(commons->state.table().stats().revoked_delegations.value() == 0);
    BOOST_TEST(give_back(file) == nfsstat4::bad_stateid);
    BOOST_TEST(c.open(c.opening("g", share4::access_read)).status == nfsstat4::ok);
    BOOST_TEST(lists.new_list.size() == 2u);
    commons.reset();
}

BOOST_FIXTURE_TEST_CASE(an_owner_that_is_not_confirmed_gets_no_delegation, fixture)
{
    begin();
    client0 c(*this, "c");
    c.connect();
    make(c, "f");
    c.owner = "another";
    const auto file = c.open(c.opening("f", share4::access_read));
    BOOST_TEST((file.rflags & open4_result::confirm) != 0u);
    BOOST_TEST(file.delegation.delegation_type == deleg::none);
    BOOST_TEST(c.confirm(file).status == nfsstat4::ok);
    const auto again = c.open(c.opening("f", share4::access_read));
    BOOST_TEST((again.rflags & open4_result::confirm) == 0u);
    BOOST_TEST(again.delegation.delegation_type == deleg::read);
}

BOOST_FIXTURE_TEST_CASE(a_repeat_of_open_has_the_same_delegation, fixture)
{
    begin();
    client0 c(*this, "c");
    c.connect();
    make(c, "f");
    const OPEN4args args = c.opening("f");
    const auto first = c.open(args), again = c.open(args);
    BOOST_TEST(first.delegation.delegation_type == deleg::write);
    BOOST_TEST(again.delegation.delegation_type == deleg::write);
    BOOST_TEST((again.delegation.stateid == first.delegation.stateid));
    BOOST_TEST(again.delegation.space_limit.filesize == UINT64_MAX);
    BOOST_TEST(commons->state.table().stats().write_delegations.value() == 1);
}

BOOST_FIXTURE_TEST_CASE(opens_are_claimed_under_a_delegation, fixture)
{
    begin();
    client0 c(*this, "c"), other(*this, "other");
    other.address = "127.0.0.1.8.2";
    c.connect();
    const auto file = delegated(c, "f", share4::access_both);
    BOOST_TEST(c.close(file).status == nfsstat4::ok);
    other.connect();
    make(other, "g");
    (void)take(other, "f");
    BOOST_TEST(host.calls.size() == 1u);
    OPEN4args claim = c.opening("f");
    claim.claim.claim = open_claim_type4::delegate_cur;
    claim.claim.delegate_stateid = file.delegation.stateid;
    const auto claimed = c.open(claim);
    BOOST_TEST(claimed.status == nfsstat4::ok);
    BOOST_TEST(claimed.delegation.delegation_type == deleg::none);
    BOOST_TEST(c.write(claimed, claimed.id) == nfsstat4::ok);
    claim.seqid = ++c.seqid;
    claim.claim.claim = open_claim_type4::delegate_prev;
    BOOST_TEST(c.open(claim).status == nfsstat4::notsupp);
    // Linux asks for attributes in front: it does not wait for itself.
    answer4 back = compound(PUTFH4args{file.fh()}, GETATTR4args{{attribute::change, attribute::size}},
                            DELEGRETURN4args{file.delegation.stateid});
    BOOST_TEST(back.status() == nfsstat4::ok);
    BOOST_TEST(compound(PUTROOTFH4args(), DELEGPURGE4args{c.id}).status() == nfsstat4::notsupp);
}

BOOST_FIXTURE_TEST_CASE(others_ask_a_writer_for_attributes, fixture)
{
    begin();
    client0 c(*this, "c");
    c.connect();
    const auto file = delegated(c, "f", share4::access_both);
    host.values.present = {attribute::change, attribute::size};
    host.values.change = 1;
    host.values.size = 4711;
    // The holder's own calls say who it is, by what stands anywhere in them.
    const bitmap4 wanted = {attribute::size};
    const auto own = [&](answer4 out) {
        BOOST_TEST(out.status() == nfsstat4::ok);
        BOOST_TEST(host.calls.empty());
    };
    own(compound(PUTFH4args{file.fh()}, READ4args{file.id, 0, 1}, GETATTR4args{wanted}));
    own(compound(PUTFH4args{file.fh()}, GETATTR4args{wanted}, READ4args{file.delegation.stateid, 0, 1}));
    own(compound(PUTROOTFH4args(), LOOKUP4args{"export"}, c.opening("f"), GETATTR4args{wanted}));
    // Others'.
    answer4 seen = compound(PUTFH4args{file.fh()}, GETATTR4args{wanted});
    seen.good<PUTFH4res>();
    const auto res = seen.good<GETATTR4res>();
    attributes values;
    BOOST_TEST(decode_attributes(res.obj_attributes, values));
    BOOST_TEST(values.size == 4711u);
    BOOST_TEST_REQUIRE(host.calls.size() == 1u);
    BOOST_TEST((host.calls[0].operation == nfs_cb_opnum4::getattr));
    BOOST_TEST(host.calls[0].ident == 77u);
    BOOST_TEST(std::ranges::equal(host.calls[0].handle, file.handle));
    BOOST_TEST(count(kind::getattr, outcome::ok) == 1u);
    // One that has no answer in time is recalled, and its path is no worse for that.
    host.silent_recalls = true;
    const auto asking = begin0(PUTFH4args{file.fh()}, GETATTR4args{wanted});
    pass(1100ms);
    host.silent_recalls = false;
    pass(1s);
    BOOST_TEST(status_of(*asking) == nfsstat4::delay);
    BOOST_TEST(host.open == 1);
    BOOST_TEST(c.renew() == nfsstat4::ok);
    BOOST_TEST(give_back(file) == nfsstat4::ok);
}

namespace {

struct restarted : restarting_fixture {
    restarted() : restarting_fixture(false) { hosts = &called; }
    ~restarted() { stop(); }
    void go_on()
    {
        serving->spawn([this] { return commons->callbacks.run(); });
        turns();
    }
    called_hosts called{pool};
    called_hosts::listener& host = called.at("127.0.0.1:2049");
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_delegation_is_taken_back_after_a_restart, restarted)
{
    start_again();
    go_on();
    client0 c(*this, "c");
    c.connect();
    pass(1ms);
    auto file = c.ready(c.creating("f"));
    file = c.open(c.opening("f"));
    BOOST_TEST_REQUIRE(file.delegation.delegation_type == deleg::write);
    for (const bool is_there : {true, false}) {
        start_again();
        go_on();
        host.hangs = !is_there;
        c.connect();
        c.seqid = 0;
        OPEN4args claim = c.opening("");
        claim.claim.claim = open_claim_type4::previous;
        claim.claim.delegate_type = deleg::write;
        auto reclaiming = prepare(0, [&](compound_request& out) {
            out.add(PUTFH4args{file.fh()});
            out.add(claim);
        });
        memory_call& c0 = *reclaiming;
        serving->spawn([&]() -> task<void> {
            (void)co_await dispatcher->dispatch(c0);
            c0.is_done = true;
        });
        pass(is_there ? 1ms : 1100ms);
        BOOST_TEST_REQUIRE(c0.is_done);
        answer4 out = answer_of(c0);
        out.good<PUTFH4res>();
        const auto res = out.good<OPEN4res>();
        BOOST_TEST(res.delegation.delegation_type == deleg::write);
        BOOST_TEST(res.delegation.recall == !is_there);
        BOOST_TEST((res.rflags & open4_result::confirm) == 0u);
        BOOST_TEST(compound(PUTFH4args{file.fh()}, DELEGRETURN4args{res.delegation.stateid}).status() ==
                   nfsstat4::ok);
    }
}

BOOST_AUTO_TEST_SUITE_END()
