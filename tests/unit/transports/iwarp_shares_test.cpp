// SPDX-License-Identifier: Apache-2.0
// One host that opens connections and says nothing, or is not answered yet, leaves room for others.
#include <boost/test/unit_test.hpp>

#include "../protocols/bytes.hpp"
#include "../refusals_since.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/transports/iwarp.hpp>

#include <arpa/inet.h>
#include <functional>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <vector>

BOOST_AUTO_TEST_SUITE(iwarp_shares_test)

using namespace verbena;
using namespace std::chrono_literals;
using iwarp::end_cause;

namespace {

struct fixture {
    fixture()
    {
        reactor_options r;
        r.clock = &clock;
        shard = std::move(*reactor::create(r));
        iwarp::options o;
        o.peers = &peers;
        o.max_peer_starting = 3;
        provider = iwarp::make_context(*shard, o);
        listener = std::move(*provider->listen("127.0.0.1:0"));
        const std::string url = listener->local_url();
        to = *net::endpoint::parse(url.substr(url.find("://") + 3));
    }
    // From this address of ours.
    net::unique_fd connect(const char* from) const
    {
        net::unique_fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in own{};
        own.sin_family = AF_INET;
        BOOST_REQUIRE(::inet_pton(AF_INET, from, &own.sin_addr) == 1);
        BOOST_REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0);
        own.sin_port = htons(to.port());
        BOOST_REQUIRE(::inet_pton(AF_INET, "127.0.0.1", &own.sin_addr) == 1);
        BOOST_REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0);
        return fd;
    }
    void turns()
    {
        for (int i = 0; i < 50; ++i)
            shard->turn();
    }
    static void ask(const net::unique_fd& by)
    {
        const auto request = test::from_hex("4d504120 49442052 65712046 72616d65 10020004 00010001");
        BOOST_REQUIRE(::send(by.get(), request.data(), request.size(), 0) == ssize_t(request.size()));
    }
    static bool is_closed(const net::unique_fd& fd)
    {
        char c;
        return ::recv(fd.get(), &c, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
    }
    std::uint64_t crowded() const
    {
        return provider->counters().ends[std::size_t(end_cause::startup_crowded)].load();
    }

    virtual_clock clock;
    peer_shares peers;
    std::unique_ptr<reactor> shard;
    std::unique_ptr<iwarp::context> provider;
    std::unique_ptr<verbs::listener> listener;
    net::endpoint to;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(silent_connections_of_two_hosts, fixture)
{
    const test::refusals_since refusals;
    std::vector<net::unique_fd> silent;
    for (const char* from : {"127.0.0.2", "127.0.0.3"}) {
        for (int i = 0; i < 5; ++i)
            silent.push_back(connect(from));
    }
    turns();
    for (std::size_t i = 0; i < silent.size(); ++i)
        BOOST_TEST(is_closed(silent[i]) == (i % 5 >= 3));
    BOOST_TEST(crowded() == 4u);
    BOOST_TEST(refusals(refused::connection_handshakes) == 4u);
    BOOST_TEST(peers.held(peer_use::handshakes) == 6u);

    const auto good = connect("127.0.0.4");
    ask(good);
    std::unique_ptr<verbs::connect_request> request;
    const auto next = [&]() -> task<void> {
        auto came = co_await listener->next();
        BOOST_REQUIRE(came);
        request = std::move(*came);
    };
    run_until_complete(*shard, next());
    BOOST_TEST(request->peer_address() == "127.0.0.4");
    // Until it was answered.
    BOOST_TEST(peers.held(peer_use::handshakes) == 7u);
    request.reset();
    BOOST_TEST(peers.held(peer_use::handshakes) == 6u);
    // Time gives the places back.
    clock.advance(6s);
    turns();
    BOOST_TEST(peers.peers() == 0u);
    const auto again = connect("127.0.0.2");
    turns();
    BOOST_TEST(!is_closed(again));
}

BOOST_FIXTURE_TEST_CASE(requests_that_nobody_has_answered, fixture)
{
    std::vector<net::unique_fd> asked;
    for (int i = 0; i < 5; ++i) {
        asked.push_back(connect("127.0.0.2"));
        turns();
        if (i < 3)
            ask(asked.back());
        turns();
        BOOST_TEST(is_closed(asked.back()) == (i >= 3));
    }
    BOOST_TEST(peers.greatest(peer_use::handshakes) == 3u);
    listener->close();
    BOOST_TEST(peers.peers() == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
