// SPDX-License-Identifier: Apache-2.0
#include "../lines_of_log.hpp"
#include "../log_at.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/net/refusals.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/transports/stream.hpp>

#include <cerrno>
#include <new>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/socket.h>
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

namespace {

// Whether the other end has closed it; the kernel brings that in its own time.
task<bool> is_closed(const net::unique_fd& client)
{
    for (int i = 0; i < 100'000; ++i) {
        char byte = 0;
        const ssize_t got = ::recv(client.get(), &byte, 1, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK))
            co_return true;
        co_await sleep_for(0s);
    }
    co_return false;
}

bool is_open(const net::unique_fd& client)
{
    char byte = 0;
    return ::recv(client.get(), &byte, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

} // namespace

// They would wait for ever, and nobody would know why.
BOOST_AUTO_TEST_CASE(who_finds_no_descriptor_is_closed_when_patience_is_over_and_told_of)
{
    const test::log_at level(log_level::info);
    const test::lines_of_log log;
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto shard = std::move(*reactor::create(o));
    std::vector<net::unique_fd> clients, served;
    auto run = [&]() -> task<void> {
        const std::uint64_t refused_before = refusals(refused::connection_descriptors);
        stream::listener_options options;
        // The listener, three clients' ends and one here.
        options.max_descriptors = net::unique_fd::held() + 5;
        auto listener = stream::listener::open(
            *shard, *net::endpoint::parse("127.0.0.1:0"),
            [&](net::unique_fd fd, const net::endpoint&) { served.push_back(std::move(fd)); }, options);
        BOOST_REQUIRE(listener);
        for (int i = 0; i < 3; ++i)
            clients.push_back(std::move(*net::start_connect((*listener)->where())));
        const stream::listener_stats& stats = (*listener)->stats();
        for (int i = 0; i < 1'000'000 && stats.exhausted.value() == 0; ++i)
            co_await sleep_for(0s);
        BOOST_TEST(served.size() == 1u);
        // A descriptor may come back meanwhile.
        co_await sleep_for(options.patience - stream::listener::pause);
        BOOST_TEST(is_open(clients[1]));
        BOOST_TEST(is_open(clients[2]));
        BOOST_TEST(log.all.empty());
        co_await sleep_for(2 * stream::listener::pause);
        for (const std::size_t waiting : {1u, 2u}) {
            const bool closed = co_await is_closed(clients[waiting]);
            BOOST_TEST(closed);
        }
        BOOST_TEST(is_open(clients[0]));
        BOOST_TEST(refusals(refused::connection_descriptors) == refused_before + 2);
        BOOST_REQUIRE(log.all.size() == 1u); // of one host
        BOOST_TEST(log.all[0].find("warning peers: turned away peer=127.0.0.1 connection=127.0.0.1:") == 0u,
                   log.all[0]);
        BOOST_TEST(log.all[0].find("reason=descriptors limit=\"LimitNOFILE of the unit (ulimit -n): ") !=
                       std::string::npos,
                   log.all[0]);
        BOOST_TEST(log.all[0].find("of which connections may have " +
                                   std::to_string(options.max_descriptors)) != std::string::npos,
                   log.all[0]);
        // Who comes when there are some again is served.
        clients.erase(clients.begin() + 1, clients.end());
        clients.push_back(std::move(*net::start_connect((*listener)->where())));
        co_await sleep_for(stream::listener::pause);
        for (int i = 0; i < 1'000'000 && served.size() == 1; ++i)
            co_await sleep_for(0s);
        BOOST_TEST(served.size() == 2u);
        served.clear();
        clients.clear();
    };
    run_until_complete(*shard, run());
}

// Where the process has none left at all, the listener has one in hand to hear who waits.
BOOST_AUTO_TEST_CASE(a_process_without_descriptors_turns_peers_away_by_a_spare_one)
{
    const test::log_at quiet(log_level::off);
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto shard = std::move(*reactor::create(o));
    auto run = [&]() -> task<void> {
        const std::uint64_t refused_before = refusals(refused::connection_descriptors);
        const stream::listener_options options;
        std::vector<net::unique_fd> served;
        auto listener = stream::listener::open(
            *shard, *net::endpoint::parse("127.0.0.1:0"),
            [&](net::unique_fd fd, const net::endpoint&) { served.push_back(std::move(fd)); }, options);
        BOOST_REQUIRE(listener);
        std::vector<net::unique_fd> clients;
        for (int i = 0; i < 2; ++i)
            clients.push_back(std::move(*net::start_connect((*listener)->where())));
        // All descriptors up to the highest one are in use, and there may be no higher one.
        rlimit before{};
        BOOST_REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
        std::vector<net::unique_fd> all;
        all.emplace_back(::dup(0));
        const rlimit none{rlim_t(clients.back().get()) + 1, before.rlim_max};
        BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
        for (int more = ::dup(0); more >= 0; more = ::dup(0))
            all.emplace_back(more);
        for (int i = 0; i < 1'000'000 && (*listener)->stats().exhausted.value() == 0; ++i)
            co_await sleep_for(0s);
        const bool open = is_open(clients[0]) && is_open(clients[1]);
        co_await sleep_for(options.patience + stream::listener::pause);
        const bool first_closed = co_await is_closed(clients[0]);
        const bool second_closed = co_await is_closed(clients[1]);
        const bool restored = ::setrlimit(RLIMIT_NOFILE, &before) == 0;
        BOOST_REQUIRE(restored);
        all.clear();
        BOOST_TEST(open);
        BOOST_TEST(first_closed);
        BOOST_TEST(second_closed);
        BOOST_TEST(served.empty());
        BOOST_TEST(refusals(refused::connection_descriptors) == refused_before + 2);
        clients.push_back(std::move(*net::start_connect((*listener)->where())));
        co_await sleep_for(stream::listener::pause);
        for (int i = 0; i < 1'000'000 && served.empty(); ++i)
            co_await sleep_for(0s);
        BOOST_TEST(served.size() == 1u);
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
