// SPDX-License-Identifier: Apache-2.0
// Exports whose clients get RDMA layouts: what keeps them from it, and the address that clients are told.
#include "../../../plugins/nfs/data_places.hpp"
#include "../../../plugins/nfs/export_config.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <string_view>
#include <vector>

BOOST_AUTO_TEST_SUITE(nfs_pnfs_test)

using namespace verbena;
using namespace verbena::nfs;

namespace {

export_config plain()
{
    export_config e;
    e.name = "export of memfs";
    e.pnfs = true;
    return e;
}

template<class Check>
std::string complaint(Check check)
{
    try {
        check();
    } catch (const config_error& e) {
        return e.what();
    }
    return {};
}

std::string complaint(const export_config& e, bool has_sessions = true)
{
    const std::vector<export_config> all = {export_config(), e};
    return complaint([&] { check_pnfs(all, has_sessions); });
}

bool holds(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

net::endpoint at(const char* text)
{
    const auto parsed = net::endpoint::parse(text);
    BOOST_REQUIRE(parsed.has_value());
    return *parsed;
}

std::string chosen(std::vector<net::endpoint> listeners, const char* local)
{
    return universal_address_of(listeners, at(local));
}

std::string told(std::vector<net::endpoint> listeners, const char* peer)
{
    data_places places;
    BOOST_TEST(!places.universal_address_for(peer).has_value()); // nothing listens yet
    places.set(std::move(listeners));
    return places.universal_address_for(peer).value();
}

} // namespace

BOOST_AUTO_TEST_CASE(what_keeps_clients_from_layouts_is_told_with_its_cure)
{
    BOOST_TEST(complaint(plain()) == "");
    const std::string versions = complaint(plain(), false);
    BOOST_TEST(versions.starts_with("export of memfs: pnfs: "));
    BOOST_TEST(holds(versions, "add one of them to versions"));
    export_config filtered = plain();
    filtered.filters.emplace_back();
    filtered.filters.back().name = "limit";
    BOOST_TEST(holds(complaint(filtered), "past the filter limit: leave out pnfs, or the filters"));
    export_config by_tcp = plain();
    by_tcp.transports = {"tcp"};
    BOOST_TEST(holds(complaint(by_tcp), "add transport=iwarp"));
    by_tcp.transports = {"tcp", "iwarp"};
    BOOST_TEST(complaint(by_tcp) == "");
    // Of an export without, nothing is asked.
    filtered.pnfs = false;
    BOOST_TEST(complaint(filtered, false) == "");

    const std::vector<std::string> tcp = {"tcp"}, iwarp = {"tcp", "iwarp"}, rdma = {"rdma"};
    const std::vector<export_config> all = {export_config(), plain()};
    BOOST_TEST(complaint([&] { check_pnfs_listeners(all, iwarp); }) == "");
    BOOST_TEST(complaint([&] { check_pnfs_listeners(all, rdma); }) == "");
    BOOST_TEST(holds(complaint([&] { check_pnfs_listeners(all, tcp); }), "add --listen iwarp://HOST:20049"));
    const std::vector<export_config> none(2);
    BOOST_TEST(complaint([&] { check_pnfs_listeners(none, tcp); }) == "");
    // A listener that the export leaves out is none.
    std::vector<export_config> by_iwarp = {plain()};
    by_iwarp[0].transports = {"tcp", "iwarp"};
    BOOST_TEST(complaint([&] { check_pnfs_listeners(by_iwarp, iwarp); }) == "");
    BOOST_TEST(holds(complaint([&] { check_pnfs_listeners(by_iwarp, rdma); }), "there is none for them"));
}

BOOST_AUTO_TEST_CASE(a_client_is_told_the_listener_that_it_reaches)
{
    // RFC 5665: the last two numbers are the port's octets.
    BOOST_TEST(chosen({at("192.0.2.1:20049")}, "192.0.2.1:1") == "192.0.2.1.78.81");
    BOOST_TEST(chosen({at("[2001:db8::1]:258")}, "[2001:db8::1]:1") == "2001:db8::1.1.2");
    // One on every address is told as the one by which the client comes.
    BOOST_TEST(chosen({at("0.0.0.0:20049")}, "192.0.2.1:1") == "192.0.2.1.78.81");
    BOOST_TEST(chosen({at("[::]:20049")}, "[2001:db8::1]:1") == "2001:db8::1.78.81");
    // The nearest of several, wherever it stands.
    const auto several = {at("127.0.0.1:1"), at("192.0.2.2:2"), at("0.0.0.0:3"), at("192.0.2.1:4"),
                          at("[::]:5")};
    BOOST_TEST(chosen(several, "192.0.2.1:9") == "192.0.2.1.0.4");
    BOOST_TEST(chosen(several, "192.0.2.3:9") == "192.0.2.3.0.3");
    BOOST_TEST(chosen(several, "[2001:db8::1]:9") == "2001:db8::1.0.5");
    BOOST_TEST(chosen({at("192.0.2.2:2"), at("192.0.2.4:4")}, "192.0.2.3:9") == "192.0.2.2.0.2");
}

BOOST_AUTO_TEST_CASE(a_client_that_reaches_none_is_told_none)
{
    BOOST_TEST(chosen({}, "192.0.2.1:1") == "");
    BOOST_TEST(chosen({at("[::]:1")}, "192.0.2.1:1") == "");
    BOOST_TEST(chosen({at("0.0.0.0:1")}, "[2001:db8::1]:1") == "");
    BOOST_TEST(chosen({at("127.0.0.1:1")}, "192.0.2.1:1") == "");
    BOOST_TEST(chosen({at("127.0.0.1:1")}, "127.0.0.2:1") == "127.0.0.1.0.1");
    // A link-local address would need its scope.
    BOOST_TEST(chosen({at("[::]:1")}, "[fe80::1%lo]:1") == "");
    BOOST_TEST(chosen({at("[fe80::1%lo]:1")}, "[fe80::1%lo]:1") == "");
}

BOOST_AUTO_TEST_CASE(the_kernel_knows_the_way_to_a_client)
{
    BOOST_TEST(told({at("0.0.0.0:20049")}, "127.0.0.1") == "127.0.0.1.78.81");
    BOOST_TEST(told({at("0.0.0.0:20049")}, "127.3.2.1") == "127.0.0.1.78.81");
    BOOST_TEST(told({at("0.0.0.0:20049")}, "::ffff:127.0.0.1") == "127.0.0.1.78.81");
    BOOST_TEST(told({at("[::]:20049")}, "127.0.0.1") == "");
    BOOST_TEST(told({at("0.0.0.0:20049")}, "server") == ""); // of a transport without IP addresses
    BOOST_TEST(told({at("0.0.0.0:20049")}, "") == "");
    // The kernel knows no way to it, and is not asked where there is one listener.
    BOOST_TEST(told({at("192.0.2.1:20049")}, "255.255.255.255") == "192.0.2.1.78.81");
    BOOST_TEST(told({at("0.0.0.0:20049")}, "255.255.255.255") == "");
    BOOST_TEST(told({at("127.0.0.1:20049")}, "255.255.255.255") == "");
    BOOST_TEST(told({at("127.0.0.1:20049"), at("[::]:1")}, "127.0.0.1") == "127.0.0.1.78.81");
    if (net::open_listener(at("[::1]:0"))) // a host may be without IPv6
        BOOST_TEST(told({at("[::]:20049")}, "::1") == "::1.78.81");
}

BOOST_AUTO_TEST_SUITE_END()
