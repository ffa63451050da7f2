// SPDX-License-Identifier: Apache-2.0
// Peers that would keep a connection of the metrics' port for ever.
#include "../../../services/service/http_server.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/metrics.hpp>
#include <verbena/core/net/net.hpp>

#include <chrono>
#include <memory>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(http_server_test)

using namespace verbena;
using namespace std::chrono_literals;
using services::http_answer;
using services::http_server;
using reason = services::http_refusals::reason;

namespace {

constexpr auto plenty = std::chrono::milliseconds(1h);
constexpr std::string_view whole = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";

struct fixture {
    std::string page = "here\n";
    std::unique_ptr<http_server> server;
    void serve(http_server::limits most)
    {
        auto listener = net::open_listener(net::endpoint::parse("127.0.0.1:0").value(), {.backlog = 16});
        server = std::make_unique<http_server>(
            std::move(*listener), [this](std::string_view) { return http_answer{200, "text/plain", page}; },
            most);
    }
    net::unique_fd connected(int receive_buffer = 0) const
    {
        const auto where = net::endpoint::parse("127.0.0.1:" + std::to_string(server->port())).value();
        net::unique_fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (receive_buffer != 0)
            (void)::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
        BOOST_REQUIRE(::connect(fd.get(), where.data(), where.size()) == 0);
        return fd;
    }
    std::uint64_t refused(reason why) const { return server->refusals().counts[std::size_t(why)].value(); }
};

bool say(const net::unique_fd& to, std::string_view text)
{
    return ::send(to.get(), text.data(), text.size(), MSG_NOSIGNAL) == ssize_t(text.size());
}

// All until the end.
std::string rest(const net::unique_fd& from)
{
    std::string all;
    char part[4096];
    for (ssize_t n = 0; (n = ::recv(from.get(), part, sizeof part, 0)) > 0;)
        all.append(part, std::size_t(n));
    return all;
}

// Until the page has come.
std::string answer(const net::unique_fd& from, std::string_view end)
{
    std::string all;
    char part[4096];
    for (ssize_t n = 0; !all.ends_with(end) && (n = ::recv(from.get(), part, sizeof part, 0)) > 0;)
        all.append(part, std::size_t(n));
    return all;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

} // namespace

BOOST_FIXTURE_TEST_CASE(a_request_that_does_not_come_in_its_time_is_answered_408, fixture)
{
    serve({.request = 50ms, .answer = plenty, .connection = plenty});
    const auto silent = connected();
    const auto begins = connected();
    BOOST_TEST(say(begins, "GET / HTTP/1.1\r\nHost: te"));
    const auto half_a_body = connected();
    BOOST_TEST(say(half_a_body, "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nabc"));
    // A byte now and then.
    const auto trickles = connected();
    BOOST_TEST(say(trickles, "GET / HTTP/1.1\r\n"));
    for (pollfd one{trickles.get(), POLLIN, 0}; ::poll(&one, 1, 1) == 0;)
        if (!say(trickles, "x"))
            break;
    for (const auto* fd : {&begins, &half_a_body}) {
        const std::string told = rest(*fd);
        BOOST_TEST(told.starts_with("HTTP/1.1 408 Request Timeout\r\n"), told);
        BOOST_TEST(told.ends_with("Content-Length: 33\r\n\r\nthe request did not come in time\n"), told);
    }
    (void)rest(trickles);
    (void)rest(silent);
    BOOST_TEST(refused(reason::slow_request) == 4u);
}

BOOST_FIXTURE_TEST_CASE(each_request_of_a_connection_has_its_time, fixture)
{
    serve({.request = plenty, .answer = 200ms, .connection = plenty});
    const auto peer = connected();
    for (int i = 0; i < 2; ++i) {
        BOOST_TEST(say(peer, whole));
        const std::string told = answer(peer, "here\n");
        BOOST_TEST(told.starts_with("HTTP/1.1 200 OK\r\n"), told);
        pollfd one{peer.get(), POLLIN, 0};
        BOOST_TEST(::poll(&one, 1, 300) == 0); // longer than an answer may take, of which none is under way
    }
    BOOST_TEST(refused(reason::slow_reader) == 0u);
}

BOOST_FIXTURE_TEST_CASE(who_does_not_read_an_answer_is_closed, fixture)
{
    page.assign(std::size_t(64) << 20, 'x'); // more than sockets hold
    serve({.request = plenty, .answer = 50ms, .connection = plenty});
    const auto peer = connected(4096);
    BOOST_TEST(say(peer, whole));
    for (int i = 0; i < 20'000 && refused(reason::slow_reader) == 0; ++i)
        ::poll(nullptr, 0, 1);
    BOOST_REQUIRE(refused(reason::slow_reader) == 1u);
    BOOST_TEST(rest(peer).size() < page.size());
}

BOOST_FIXTURE_TEST_CASE(a_body_that_nobody_takes_is_refused, fixture)
{
    serve({.request = plenty, .answer = plenty, .connection = plenty});
    const auto small = connected();
    BOOST_TEST(
        say(small, "POST / HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"));
    BOOST_TEST(rest(small).starts_with("HTTP/1.1 405 "));
    for (const char* length : {"4097", "99999999999999999999999999"}) {
        const auto large = connected();
        BOOST_TEST(say(large, std::string("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: ") + length +
                                  "\r\n\r\n"));
        const std::string told = rest(large); // and it is closed
        BOOST_TEST((told.starts_with("HTTP/1.1 413 ") || told.starts_with("HTTP/1.1 400 ")), told);
    }
    BOOST_TEST(refused(reason::large_body) >= 1u);
    const auto endless = connected();
    BOOST_TEST(say(endless, "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"));
    BOOST_TEST(rest(endless).starts_with("HTTP/1.1 411 "));
    BOOST_TEST(refused(reason::no_length) == 1u);
    const auto next = connected();
    BOOST_TEST(say(next, whole));
    BOOST_TEST(has(answer(next, "here\n"), "200 OK"));
}

BOOST_FIXTURE_TEST_CASE(an_old_connection_ends_behind_an_answer, fixture)
{
    serve({.request = plenty, .answer = plenty, .connection = 0ms});
    const auto peer = connected();
    BOOST_TEST(say(peer, whole));
    const std::string told = rest(peer);
    BOOST_TEST(has(told, "Connection: close\r\n"), told);
    BOOST_TEST(told.ends_with("here\n"));
}

// Their places are free again: as many connections as there may be come and go.
BOOST_FIXTURE_TEST_CASE(those_that_were_ended_make_room, fixture)
{
    serve({.request = 500ms, .answer = plenty, .connection = plenty});
    std::vector<net::unique_fd> all;
    for (unsigned i = 0; i < http_server::connections_at_once; ++i)
        all.push_back(connected());
    const auto next = connected(); // waits until one has gone
    BOOST_TEST(say(next, whole));
    BOOST_TEST(has(answer(next, "here\n"), "200 OK"));
}

BOOST_AUTO_TEST_CASE(refusals_are_told_by_why)
{
    metric_registry registry;
    services::http_refusals refusals;
    const auto shown = services::expose(registry, refusals);
    refusals.counts[std::size_t(reason::large_body)].add(2);
    const auto all = registry.collect();
    BOOST_REQUIRE(all.size() == 1u);
    BOOST_TEST(all.front().samples.size() == 4u);
    BOOST_TEST(all.front().samples.at(0).labels.at(0) == "large_body");
    BOOST_TEST(all.front().samples.at(0).value == 2);
}

BOOST_AUTO_TEST_SUITE_END()
