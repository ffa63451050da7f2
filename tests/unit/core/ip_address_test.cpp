// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/core/net/ip_address.hpp>

BOOST_AUTO_TEST_SUITE(ip_address_test)

using namespace verbena;

namespace {

ip_address address(std::string_view text)
{
    const auto parsed = ip_address::parse(text);
    BOOST_REQUIRE_MESSAGE(parsed, text << " is an address");
    return *parsed;
}

ip_prefix prefix(std::string_view text)
{
    auto parsed = ip_prefix::parse(text);
    BOOST_REQUIRE_MESSAGE(parsed, text << ": " << (parsed ? "" : parsed.error().message()));
    return *parsed;
}

} // namespace

BOOST_AUTO_TEST_CASE(text_and_back)
{
    for (const char* text :
         {"0.0.0.0", "192.0.2.1", "255.255.255.255", "::", "::1", "2001:db8::1", "fe80::1"})
        BOOST_TEST(address(text).text() == text);
    BOOST_TEST(address("fe80::1%eth0").text() == "fe80::1");
    BOOST_TEST((address("::ffff:192.0.2.1") == address("192.0.2.1")));
    BOOST_TEST(address("::ffff:192.0.2.1").is_v4());
    BOOST_TEST(!address("::1").is_v4());
}

BOOST_AUTO_TEST_CASE(what_is_no_address)
{
    for (const char* text : {"", "1.2.3", "1.2.3.4.5", "1.2.3.256", "01.2.3.4", "1.2.3.4 ", "-1.2.3.4",
                             "1.2.3.", "host", "1::2::3", ":", "12345::", "1:2:3:4:5:6:7:8:9", "%eth0"})
        BOOST_TEST(!ip_address::parse(text).has_value(), text);
    BOOST_TEST(!ip_address::parse(std::string(100, '1')).has_value());
    BOOST_TEST(!ip_address::parse(std::string_view("::1\0x", 5)).has_value());
}

BOOST_AUTO_TEST_CASE(kinds_of_addresses)
{
    BOOST_TEST(address("127.0.0.1").is_loopback());
    BOOST_TEST(address("127.255.0.9").is_loopback());
    BOOST_TEST(address("::1").is_loopback());
    BOOST_TEST(!address("128.0.0.1").is_loopback());
    BOOST_TEST(!address("::2").is_loopback());
    BOOST_TEST(address("0.0.0.0").is_unspecified());
    BOOST_TEST(address("::").is_unspecified());
    BOOST_TEST(!address("0.0.0.1").is_unspecified());
    for (const char* text :
         {"10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.1.1", "172.31.255.255", "192.168.1.1", "192.0.2.7",
          "0.0.0.0", "::", "::1", "fe80::1", "fec0::1", "fd12::1", "2001:db8::1"})
        BOOST_TEST(!address(text).is_global(), text);
    for (const char* text : {"8.8.8.8", "172.32.0.1", "100.128.0.1", "2001:4860::1", "::ffff:8.8.8.8"})
        BOOST_TEST(address(text).is_global(), text);
}

BOOST_AUTO_TEST_CASE(prefixes)
{
    BOOST_TEST(prefix("10.0.0.0/8").contains(address("10.255.0.1")));
    BOOST_TEST(!prefix("10.0.0.0/8").contains(address("11.0.0.0")));
    BOOST_TEST(prefix("192.168.4.0/22").contains(address("192.168.7.255")));
    BOOST_TEST(!prefix("192.168.4.0/22").contains(address("192.168.8.0")));
    BOOST_TEST(prefix("192.0.2.1").contains(address("192.0.2.1")));
    BOOST_TEST(!prefix("192.0.2.1").contains(address("192.0.2.2")));
    BOOST_TEST(prefix("2001:db8::/33").contains(address("2001:db8:7fff::1")));
    BOOST_TEST(!prefix("2001:db8::/33").contains(address("2001:db8:8000::1")));
    BOOST_TEST(prefix("10.0.0.0/8").contains(address("::ffff:10.0.0.1")));
    BOOST_TEST(prefix("0.0.0.0/0").contains(address("1.2.3.4")));
    BOOST_TEST(!prefix("0.0.0.0/0").contains(address("2001:db8::1")));
    BOOST_TEST(prefix("::/0").contains(address("2001:db8::1")));
    BOOST_TEST(!prefix("::/0").contains(address("1.2.3.4")));
    BOOST_TEST(prefix("10.0.0.0/8").text() == "10.0.0.0/8");
    BOOST_TEST(prefix("2001:db8::/32").text() == "2001:db8::/32");
    BOOST_TEST(prefix("::1").text() == "::1/128");
}

BOOST_AUTO_TEST_CASE(what_is_no_prefix)
{
    for (const char* text : {"10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8x", "10.0.0.1/8", "::/129", "::1/64",
                             "/8", "10.0.0.0/-1", "*"})
        BOOST_TEST(!ip_prefix::parse(text).has_value(), text);
}

BOOST_AUTO_TEST_CASE(prefixes_that_reach_the_world)
{
    for (const char* text : {"0.0.0.0/0", "10.0.0.0/7", "8.8.8.0/24", "::/0", "2001::/16", "192.168.0.0/15"})
        BOOST_TEST(prefix(text).includes_global(), text);
    for (const char* text :
         {"10.0.0.0/8", "10.1.0.0/16", "127.0.0.1", "192.168.1.0/24", "fd00::/8", "fe80::/9", "::1"})
        BOOST_TEST(!prefix(text).includes_global(), text);
}

BOOST_AUTO_TEST_CASE(this_host)
{
    host_addresses host;
    BOOST_TEST(host.is_local(address("127.0.0.1")));
    BOOST_TEST(host.is_local(address("::1")));
    for (const ip_address& own : host.list())
        BOOST_TEST(host.is_local(own));
    // TEST-NET-3 is no host's address.
    BOOST_TEST(!host.is_local(address("203.0.113.77")));
    host_addresses fixed({address("192.0.2.5")});
    BOOST_TEST(fixed.is_local(address("192.0.2.5")));
    BOOST_TEST(!fixed.is_local(address("192.0.2.6")));
}

BOOST_AUTO_TEST_SUITE_END()
