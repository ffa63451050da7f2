// SPDX-License-Identifier: Apache-2.0
#include "../log_at.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/transports/stream.hpp>

#include <new>
#include <vector>

BOOST_AUTO_TEST_SUITE(stream_listener_test)

using namespace verbena;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_CASE(it_pauses_while_connections_have_their_share_of_descriptors)
{
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto shard = std::move(*reactor::create(o));
    std::vector<net::unique_fd> clients;
    std::vector<net::unique_fd> served;
    auto run = [&]() -> task<void> {
        stream::listener_options options;
        // The listener, two clients' ends and theirs here.
        const std::size_t before = net::unique_fd::held();
        options.max_descriptors = before + 5 + 3;
        auto listener = stream::listener::open(
            *shard, *net::endpoint::parse("127.0.0.1:0"),
            [&](net::unique_fd fd, const net::endpoint&) { served.push_back(std::move(fd)); }, options);
        BOOST_REQUIRE(listener);
        for (int i = 0; i < 5; ++i) {
            auto client = net::start_connect((*listener)->where());
            BOOST_REQUIRE(client);
            clients.push_back(std::move(*client));
        }
        BOOST_TEST(net::unique_fd::held() == before + 6);
        const stream::listener_stats& stats = (*listener)->stats();
        // Standing still: the kernel has to bring them, in its own time.
        const auto turns_until = [](const auto& done) -> task<void> {
            for (int i = 0; i < 1'000'000 && !done(); ++i)
                co_await sleep_for(0s);
            BOOST_TEST_REQUIRE(done());
        };
        const auto paused = [&] { return stats.exhausted.value() == 1u; };
        co_await turns_until(paused);
        BOOST_TEST(served.size() == 2u);
        BOOST_TEST(net::unique_fd::held() == before + 8);
        co_await sleep_for(stream::listener::pause * 7 / 2);
        BOOST_TEST(stats.exhausted.value() == 4u); // it has looked once behind each pause
        BOOST_TEST(served.size() == 2u);
        BOOST_TEST(net::unique_fd::held() == before + 8);
        BOOST_TEST(stats.failed.value() == 0u);

        // One that waits is served for each that goes, at the end of a pause.
        served.pop_back();
        co_await sleep_for(stream::listener::pause / 2 - 1ns);
        BOOST_TEST(served.size() == 1u);
        co_await sleep_for(1ns);
        const auto another = [&] { return served.size() == 2u; };
        co_await turns_until(another);
        BOOST_TEST(stats.accepted.value() == 3u);
        served.clear();
        clients.pop_back();
        co_await sleep_for(stream::listener::pause);
        co_await turns_until(another);
        BOOST_TEST(stats.accepted.value() == 5u);
        clients.clear();
        served.clear();
    };
    run_until_complete(*shard, run());
}

// As it may for lack of memory.
BOOST_AUTO_TEST_CASE(an_exception_of_the_handler_costs_one_connection)
{
    const test::log_at quiet(log_level::off);
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto shard = std::move(*reactor::create(o));
    auto run = [&]() -> task<void> {
        std::vector<net::unique_fd> served;
        unsigned asked = 0;
        auto listener = stream::listener::open(*shard, *net::endpoint::parse("127.0.0.1:0"),
                                               [&](net::unique_fd fd, const net::endpoint&) {
                                                   if (++asked == 1)
                                                       throw std::bad_alloc();
                                                   served.push_back(std::move(fd));
                                               });
        BOOST_REQUIRE(listener);
        std::vector<net::unique_fd> clients;
        for (int i = 0; i < 2; ++i) {
            auto client = net::start_connect((*listener)->where());
            BOOST_REQUIRE(client);
            clients.push_back(std::move(*client));
        }
        for (int i = 0; i < 1'000'000 && served.empty(); ++i)
            co_await sleep_for(0s);
        BOOST_TEST(served.size() == 1u);
        BOOST_TEST((*listener)->stats().failed.value() == 1u);
    };
    run_until_complete(*shard, run());
}

BOOST_AUTO_TEST_SUITE_END()
