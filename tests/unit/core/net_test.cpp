// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/core/net/net.hpp>

#include <arpa/inet.h>
#include <cerrno>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(net_test)

using namespace verbena;

namespace {

std::string round_trip(std::string_view text)
{
    const auto e = net::endpoint::parse(text);
    return e ? e->to_string() : std::string("refused: ") + e.error().context();
}

} // namespace

BOOST_AUTO_TEST_CASE(numeric_addresses_have_one_text)
{
    BOOST_TEST(round_trip("127.0.0.1:2049") == "127.0.0.1:2049");
    BOOST_TEST(round_trip("[::1]:20049") == "[::1]:20049");
    BOOST_TEST(round_trip("[2001:DB8:0:0::0001]:0") == "[2001:db8::1]:0");
    BOOST_TEST(round_trip("[::ffff:192.0.2.7]:111") == "192.0.2.7:111");
    BOOST_TEST(round_trip("[fe80::1%lo]:1") == "[fe80::1%lo]:1");
    BOOST_TEST(net::endpoint::parse("[2001:db8::1]:5")->address() == "2001:db8::1");
}

BOOST_AUTO_TEST_CASE(what_is_no_numeric_address_is_refused)
{
    for (const char* text :
         {"", ":1", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:1x", "::1:5",
          "[::1", "[::1]5", "[::1]", "[]:1", "localhost:1", "127.0.0:1", "[fe80::1%none.such]:1"})
        BOOST_TEST(!net::endpoint::parse(text), text);
}

BOOST_AUTO_TEST_CASE(kinds_of_addresses)
{
    BOOST_TEST(net::endpoint::parse("127.9.9.9:1")->is_loopback());
    BOOST_TEST(!net::endpoint::parse("128.0.0.1:1")->is_loopback());
    BOOST_TEST(net::endpoint::parse("[::1]:1")->is_loopback());
    BOOST_TEST(!net::endpoint::parse("[::]:1")->is_loopback());
    BOOST_TEST(net::endpoint::parse("[::]:1")->is_wildcard());
    BOOST_TEST(net::endpoint::parse("0.0.0.0:1")->is_wildcard());
    BOOST_TEST(!net::endpoint::parse("0.0.0.1:1")->is_wildcard());
}

BOOST_AUTO_TEST_CASE(a_default_port_fills_in)
{
    const auto name = net::split_host_port("server", 2049);
    BOOST_REQUIRE(name);
    BOOST_TEST(name->host == "server");
    BOOST_TEST(name->port == 2049);
    const auto v6 = net::split_host_port("[::1]", 7);
    BOOST_REQUIRE(v6);
    BOOST_TEST(v6->host == "::1");
    BOOST_TEST(v6->port == 7);
    BOOST_TEST(net::split_host_port("server:9", 2049)->port == 9);
}

BOOST_AUTO_TEST_CASE(localhost_resolves)
{
    const auto found = net::resolve("localhost:99");
    BOOST_REQUIRE(found);
    BOOST_TEST(found->front().is_loopback());
    BOOST_TEST(found->front().port() == 99);
}

BOOST_AUTO_TEST_CASE(a_connection_over_each_family)
{
    for (const char* where : {"127.0.0.1:0", "[::1]:0"}) {
        auto listener = net::open_listener(*net::endpoint::parse(where));
        BOOST_REQUIRE_MESSAGE(listener, where);
        BOOST_TEST(net::accept(listener->get()).error().errno_value() == EAGAIN);
        const auto bound = net::endpoint::local(listener->get());
        BOOST_REQUIRE(bound);
        BOOST_TEST(bound->port() != 0);

        auto client = net::start_connect(*bound);
        BOOST_REQUIRE(client);
        pollfd wait{client->get(), POLLOUT, 0};
        BOOST_REQUIRE(::poll(&wait, 1, 5000) == 1);
        BOOST_TEST(bool(net::connect_outcome(client->get())));
        wait = {listener->get(), POLLIN, 0}; // its end comes a little later
        BOOST_REQUIRE(::poll(&wait, 1, 5000) == 1);
        auto server = net::accept(listener->get());
        BOOST_REQUIRE(server);
        BOOST_TEST(server->peer.to_string() == net::endpoint::local(client->get())->to_string());
        BOOST_TEST(net::endpoint::remote(client->get())->to_string() == bound->to_string());

        BOOST_TEST(bool(net::set_no_delay(server->fd.get())));
        BOOST_TEST(bool(net::set_keep_alive(server->fd.get(), {})));
        int value = 0;
        socklen_t length = sizeof value;
        ::getsockopt(server->fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &length);
        BOOST_TEST(value == 120'000);
    }
}

BOOST_AUTO_TEST_CASE(both_families_share_a_port)
{
    auto v4 = net::open_listener(*net::endpoint::parse("0.0.0.0:0"));
    BOOST_REQUIRE(v4);
    auto everywhere = *net::endpoint::parse("[::]:0");
    everywhere.set_port(net::endpoint::local(v4->get())->port());
    BOOST_TEST(bool(net::open_listener(everywhere)));
}

BOOST_AUTO_TEST_CASE(nobody_listens)
{
    auto listener = net::open_listener(*net::endpoint::parse("127.0.0.1:0"));
    BOOST_REQUIRE(listener);
    const auto where = *net::endpoint::local(listener->get());
    listener->reset();
    auto client = net::start_connect(where);
    if (client) {
        pollfd wait{client->get(), POLLOUT, 0};
        BOOST_REQUIRE(::poll(&wait, 1, 5000) == 1);
        BOOST_TEST(net::connect_outcome(client->get()).error().errno_value() == ECONNREFUSED);
    } else {
        BOOST_TEST(client.error().errno_value() == ECONNREFUSED);
    }
}

BOOST_AUTO_TEST_SUITE_END()
