// SPDX-License-Identifier: Apache-2.0
// Connections from ports below 1024, as root makes them for servers that ask for such: in a network of this process alone, where
// no other test needs them. Needs root.
#include <boost/test/unit_test.hpp>

#include "../../../protocols/rpcstream/socket_connect.hpp"

#include <verbena/core/task/scope.hpp>

#include <cstring>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <set>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <vector>

BOOST_AUTO_TEST_SUITE(rpc_reserved_port_test)

using namespace verbena;

namespace {

constexpr std::size_t reserved_ports = 1023 - 665 + 1;

struct fixture {
    fixture()
    {
        BOOST_REQUIRE_MESSAGE(::unshare(CLONE_NEWNET) == 0,
                              "a network of its own needs root: " << std::strerror(errno));
        const net::unique_fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        ifreq lo{};
        std::strcpy(lo.ifr_name, "lo");
        BOOST_REQUIRE(::ioctl(any.get(), SIOCGIFFLAGS, &lo) == 0);
        lo.ifr_flags = static_cast<short>(lo.ifr_flags | IFF_UP);
        BOOST_REQUIRE(::ioctl(any.get(), SIOCSIFFLAGS, &lo) == 0);
        auto made = reactor::create();
        BOOST_REQUIRE(made);
        shard = std::move(*made);
        first = std::move(*net::open_listener(*net::endpoint::parse("127.0.0.1:0")));
        second = std::move(*net::open_listener(*net::endpoint::parse("127.0.0.1:0")));
    }

    // The port from which one connection is made to a server, and closed by the client first: that end stays in TIME_WAIT.
    std::uint16_t port_of_a_connection(const net::unique_fd& server)
    {
        const auto to = *net::endpoint::local(server.get());
        auto main = [&]() -> task<result<net::unique_fd>> {
            co_return co_await rpc::connect_stream(*shard, to, std::chrono::seconds(10), true);
        };
        auto client = run_until_complete(*shard, main());
        BOOST_REQUIRE_MESSAGE(client, (client ? std::string() : client.error().message()));
        const std::uint16_t port = net::endpoint::local(client->get())->port();
        const net::unique_fd accepted(::accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC));
        BOOST_REQUIRE(accepted);
        *client = {};
        char end;
        BOOST_TEST(::recv(accepted.get(), &end, 1, 0) == 0);
        return port;
    }

    std::unique_ptr<reactor> shard;
    net::unique_fd first;
    net::unique_fd second;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_port_in_time_wait_leads_to_another_server, fixture)
{
    std::set<std::uint16_t> used;
    for (int i = 0; i < 5000 && used.size() < reserved_ports; ++i) {
        if (const std::uint16_t port = port_of_a_connection(first); port < 1024)
            used.insert(port);
    }
    BOOST_REQUIRE(used.size() == reserved_ports);
    BOOST_TEST(port_of_a_connection(second) < 1024);
    // The same server is asked from another port at the latest when each of them is in TIME_WAIT towards it.
    BOOST_TEST(port_of_a_connection(first) != 0);
}

BOOST_FIXTURE_TEST_CASE(without_a_free_port_another_one_is_used, fixture)
{
    std::vector<net::unique_fd> held;
    for (std::uint16_t port = 665; port <= 1023; ++port) {
        net::unique_fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_port = htons(port);
        BOOST_REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
        BOOST_REQUIRE(::listen(fd.get(), 1) == 0);
        held.push_back(std::move(fd));
    }
    BOOST_TEST(port_of_a_connection(first) >= 1024);
    held.resize(held.size() - 1);
    BOOST_TEST(port_of_a_connection(first) == 1023);
}

BOOST_AUTO_TEST_SUITE_END()
