// SPDX-License-Identifier: Apache-2.0
// Clients of version 4 that are turned away: what they are answered, what is counted, and the line of the log.
#include "nfs4_server.hpp"

#include "../lines_of_log.hpp"
#include "../log_at.hpp"

#include <verbena/core/net/refusals.hpp>

BOOST_AUTO_TEST_SUITE(nfs4_refusals_test)

using namespace verbena;
using namespace verbena::test;

namespace {

// Each case has hosts of its own, which no other suite turns away for the same reason: the same refusal has one line a
// minute of real time in a process.
struct fixture : nfs4_fixture {
    fixture()
    {
        options[0].traffic = std::make_shared<nfs::export_traffic>(1, options[0].pseudo);
        BOOST_REQUIRE(options[0].clients.add("192.0.2.0/24"));
        BOOST_REQUIRE(options[1].clients.add("198.51.100.0/24"));
    }
    void come_from(const char* address, const char* name, std::uint16_t port = 700)
    {
        from.address = address;
        from.name = name;
        from.port = port;
    }
    nfsstat4 look_up(client4& c, std::string_view name)
    {
        return c.call(PUTROOTFH4args(), LOOKUP4args{name}).status();
    }
    const test::log_at level{log_level::info};
    const test::lines_of_log log;
};

// How many more there are since.
struct counted {
    explicit counted(refused r) : why(r), before(refusals(r)) {}
    std::uint64_t now() const { return refusals(why) - before; }
    const refused why;
    const std::uint64_t before;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(who_may_use_no_export_gets_no_client_id, fixture)
{
    const counted by_address(refused::export_address);
    come_from("203.0.113.1", "203.0.113.1:700");
    client4 c(*this, "stranger");
    BOOST_TEST(compound(c.exchange()).status() == nfsstat4::perm);
    BOOST_TEST(by_address.now() == 1u);
    BOOST_TEST(program->counters().refused.address.value() == 1u);
    BOOST_TEST(log.count({"warning peers: turned away peer=203.0.113.1 export=/export reason=address",
                          "limit=\"clients of the export\"",
                          "cure=\"add the address to clients of the export"}) == 1u);
}

BOOST_FIXTURE_TEST_CASE(an_export_that_a_client_may_not_see_is_told_of_when_it_asks, fixture)
{
    const counted by_address(refused::export_address);
    come_from("192.0.2.1", "192.0.2.1:700");
    client4 c(*this, "guest");
    c.connect();
    BOOST_TEST(look_up(c, "export") == nfsstat4::ok);
    BOOST_TEST(by_address.now() == 0u);
    BOOST_TEST(log.count({"turned away"}) == 0u);
    // What nobody has.
    BOOST_TEST(c.call(PUTROOTFH4args(), LOOKUP4args{"none"}).status() == nfsstat4::noent);
    BOOST_TEST(log.count({"info peers: turned away peer=192.0.2.1 export=/none reason=unknown"}) == 1u);
    // By the first folder on the way there.
    BOOST_TEST(look_up(c, "deep") == nfsstat4::noent);
    BOOST_TEST(by_address.now() == 1u);
    BOOST_TEST(program->counters().refused.address.value() == 1u);
    BOOST_TEST(log.count({"turned away peer=192.0.2.1 export=/deep/other reason=address"}) == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_handle_of_an_export_of_others_is_refused_and_told_of, fixture)
{
    come_from("192.0.2.2", "192.0.2.2:700");
    client4 theirs(*this, "theirs");
    theirs.connect();
    const auto handle = [&] {
        answer4 out = theirs.call(PUTROOTFH4args(), LOOKUP4args{"export"}, GETFH4args());
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        const auto res = out.good<GETFH4res>();
        return std::vector<std::byte>(res.object.begin(), res.object.end());
    }();
    come_from("198.51.100.2", "198.51.100.2:700");
    client4 ours(*this, "ours");
    ours.connect();
    const counted by_address(refused::export_address);
    BOOST_TEST(ours.call(PUTFH4args{std::span<const std::byte>(handle)}).status() == nfsstat4::stale);
    BOOST_TEST(by_address.now() == 1u);
    BOOST_TEST(log.count({"turned away peer=198.51.100.2 export=/export reason=address"}) == 1u);
}

BOOST_FIXTURE_TEST_CASE(an_export_on_the_way_to_another_one_is_told_of_when_something_in_it_is_sought,
                        fixture)
{
    add("/export/inner", *others);
    BOOST_REQUIRE(options.back().clients.add("203.0.113.0/24"));
    come_from("203.0.113.3", "203.0.113.3:700");
    client4 c(*this, "passer-by");
    c.connect();
    const counted by_address(refused::export_address);
    BOOST_TEST(c.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"inner"}).status() ==
               nfsstat4::ok);
    BOOST_TEST(by_address.now() == 0u);
    BOOST_TEST(c.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"file"}).status() ==
               nfsstat4::noent);
    BOOST_TEST(by_address.now() == 1u);
    BOOST_TEST(log.count({"turned away peer=203.0.113.3 export=/export reason=address"}) == 1u);
}

BOOST_FIXTURE_TEST_CASE(the_rule_that_is_told_is_the_last_one_in_the_way, fixture)
{
    options[0].secure = true;
    const counted by_port(refused::export_port);
    come_from("192.0.2.4", "192.0.2.4:40022", 40022);
    client4 c(*this, "any port");
    BOOST_TEST(compound(c.exchange()).status() == nfsstat4::perm);
    BOOST_TEST(by_port.now() == 1u);
    BOOST_TEST(log.count({"turned away peer=192.0.2.4 export=/export reason=port",
                          "limit=\"secure of the export (192.0.2.4:40022)\"", "resvport"}) == 1u);
    options[0].secure = false;
}

BOOST_FIXTURE_TEST_CASE(the_transport_is_told, fixture)
{
    options[0].transports = {"rdma"};
    const counted by_transport(refused::export_transport);
    come_from("192.0.2.5", "192.0.2.5:700");
    client4 c(*this, "by tcp");
    BOOST_TEST(compound(c.exchange()).status() == nfsstat4::perm);
    BOOST_TEST(by_transport.now() == 1u);
    BOOST_TEST(log.count({"turned away peer=192.0.2.5 export=/export reason=transport",
                          "limit=\"transports of the export (tcp)\""}) == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_change_of_an_export_that_is_read_only_is_told_of, fixture)
{
    options[0].read_only = true;
    const counted by_rule(refused::export_read_only);
    come_from("192.0.2.6", "192.0.2.6:700");
    client4 c(*this, "writer");
    c.connect();
    BOOST_TEST(c.open(c.creating("file")).status == nfsstat4::rofs);
    BOOST_TEST(by_rule.now() == 1u);
    BOOST_TEST(log.count({"info peers: turned away peer=192.0.2.6 export=/export reason=read_only"}) == 1u);
    // Of the pseudo file system there is nothing to set.
    CREATE4args folder;
    folder.objtype.type = nfs_ftype4::dir;
    folder.objname = "folder";
    BOOST_TEST(c.call(PUTROOTFH4args(), folder).status() == nfsstat4::rofs);
    BOOST_TEST(by_rule.now() == 1u);
    // Nor is it a fault of the file system.
    BOOST_TEST(log.count({"failed an operation"}) == 0u);
    BOOST_TEST(options[0].traffic->total(nfs::export_failure::read_only) == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_limit_of_clients_is_told_with_its_key, fixture)
{
    limits.clients_per_peer = 1;
    come_from("192.0.2.177", "192.0.2.177:700");
    client4 first(*this, "first"), second(*this, "second");
    first.connect();
    const counted by_share(refused::client_share);
    BOOST_TEST(compound(second.exchange()).status() == nfsstat4::delay);
    BOOST_TEST(by_share.now() == 1u);
    BOOST_TEST(log.count({"turned away peer=192.0.2.177", "reason=peer_clients",
                          "cure=\"raise clients_per_peer of [nfs.limits]\""}) == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_limit_of_sessions_is_told_with_its_key, fixture)
{
    limits.sessions_per_client = 1;
    come_from("192.0.2.8", "192.0.2.8:700");
    client4 c(*this, "two sessions");
    c.connect();
    const counted by_limit(refused::client_sessions);
    BOOST_TEST(compound(client4::session_of(c.id, c.create_sequence++)).status() == nfsstat4::nospc);
    BOOST_TEST(by_limit.now() == 1u);
    BOOST_TEST(log.count({"turned away peer=192.0.2.8", "reason=sessions",
                          "limit=\"sessions_per_client of [nfs.limits]\"",
                          "cure=\"raise sessions_per_client of [nfs.limits]\""}) == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_limit_of_opens_is_told_with_its_key_and_the_export, fixture)
{
    state_limits.opens_per_client = 1;
    come_from("192.0.2.9", "192.0.2.9:700");
    client4 c(*this, "opens");
    c.connect();
    BOOST_TEST(c.open(c.creating("one")).status == nfsstat4::ok);
    const counted by_limit(refused::client_opens);
    BOOST_TEST(c.open(c.creating("two")).status == nfsstat4::nospc);
    BOOST_TEST(by_limit.now() == 1u);
    BOOST_TEST(log.count({"turned away peer=192.0.2.9 client=/export reason=opens",
                          "limit=\"opens_per_client of [nfs.limits]\""}) == 1u);
    // Its answer is NOSPC, and the disk has room.
    BOOST_TEST(log.count({"failed an operation"}) == 0u);
    BOOST_TEST(options[0].traffic->total(nfs::export_failure::space) == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
