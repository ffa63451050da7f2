// SPDX-License-Identifier: Apache-2.0
// What an acceptor may answer in MPA start-up (RFC 5044 7.1, RFC 6581), and what it may not: each is an error with its cause
// counted, and no connection. The acceptor's octets are made by hand.
#include <boost/test/unit_test.hpp>

#include "../creeping_clock.hpp"
#include "../protocols/bytes.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/transports/iwarp.hpp>

#include <functional>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <vector>

BOOST_AUTO_TEST_SUITE(iwarp_connect_test)

using namespace verbena;
using namespace std::chrono_literals;
using iwarp::end_cause;
using test::from_hex;
using test::text_of;
using test::to_hex;
using bytes = std::vector<std::byte>;

namespace {

constexpr std::string_view reply_key = "4d504120 49442052 65702046 72616d65";

struct fixture {
    fixture()
    {
        clock.creeps = false;
        clock.step = 100ms;
        reactor_options o;
        o.clock = &clock;
        auto made = reactor::create(o);
        BOOST_REQUIRE(made);
        shard = std::move(*made);
        far.emplace(*shard);
        provider = iwarp::make_context(*shard, {});
        domain = std::move(*provider->make_domain());
        listener = std::move(*net::open_listener(*net::endpoint::parse("127.0.0.1:0")));
        address = net::endpoint::local(listener.get())->to_string();
    }

    // Connects to an acceptor that reads the request, writes ANSWER and, unless it STAYS, closes.
    result<std::unique_ptr<verbs::queue_pair>> connect(const bytes& answer, bool stays = false)
    {
        std::atomic<bool> over{false};
        std::thread acceptor([&] {
            pollfd p{listener.get(), POLLIN, 0};
            ::poll(&p, 1, 10'000);
            const net::unique_fd peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
            request.resize(24 + options.private_data.size());
            request.resize(std::size_t(
                std::max<ssize_t>(0, ::recv(peer.get(), request.data(), request.size(), MSG_WAITALL))));
            (void)::send(peer.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
            if (!stays)
                ::shutdown(peer.get(), SHUT_WR);
            clock.creeps = stays; // nothing more comes
            said.clear();
            std::byte more[256];
            for (ssize_t n = 0;
                 (n = ::recv(peer.get(), more, sizeof more, 0)) > 0;) // until the initiator goes
                said.insert(said.end(), more, more + n);
            over = true;
        });
        reply.clear();
        auto main = [&]() -> task<result<std::unique_ptr<verbs::queue_pair>>> {
            auto pair = co_await provider->connect(address, *domain, options, reply);
            if (pair && at_once)
                at_once(**pair);
            co_return pair;
        };
        auto made = run_until_complete(*shard, main());
        if (made) {
            reads = (*made)->max_reads();
            if (while_connected)
                while_connected();
            *made = nullptr; // the acceptor waits for that
        }
        // A turn lets go of the socket, which the ring may watch.
        while (!over)
            shard->turn();
        acceptor.join();
        clock.creeps = false;
        return made;
    }
    result<std::unique_ptr<verbs::queue_pair>> connect(std::string_view hex)
    {
        return connect(from_hex(std::string(reply_key) + std::string(hex)));
    }

    std::uint64_t ends(end_cause cause) { return provider->counters().ends[std::size_t(cause)].load(); }

    void refused(const bytes& answer, end_cause cause, bool stays = false)
    {
        const std::uint64_t before = ends(cause);
        BOOST_TEST(!connect(answer, stays), to_hex(answer));
        BOOST_TEST(ends(cause) == before + 1, to_hex(answer) << " " << iwarp::to_string(cause));
    }
    void refused(std::string_view hex, end_cause cause)
    {
        refused(from_hex(std::string(reply_key) + std::string(hex)), cause);
    }

    test::creeping_clock clock;
    std::unique_ptr<reactor> shard;
    std::optional<test::far_timer> far;
    std::unique_ptr<iwarp::context> provider;
    std::unique_ptr<verbs::protection_domain> domain;
    net::unique_fd listener;
    std::string address;
    verbs::connect_options options;
    bytes request;
    bytes reply;
    bytes said; // by the initiator, behind its request
    std::function<void(verbs::queue_pair&)> at_once;
    std::uint32_t reads = 0;
    std::function<void()> while_connected;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(answers_that_make_a_connection, fixture)
{
    const bytes said = from_hex("f6ab0e18 01010303");
    options.private_data = said;
    options.responder_resources = 5;
    options.initiator_depth = 3;
    BOOST_TEST(bool(connect("10020004 00010001")));
    // RFC 6581 6: key, S flag, revision 2, length, IRD and ORD, then ours.
    BOOST_TEST(to_hex(request) ==
               to_hex(from_hex("4d504120 49442052 65712046 72616d65 1002000c 00050003 f6ab0e18 01010303")));
    BOOST_TEST(reply.empty());
    BOOST_TEST(reads == 1u);
    BOOST_TEST(bool(connect("10020008 3fff3fff 68656c6f"))); // depths not negotiated
    BOOST_TEST(reads == 3u);
    BOOST_TEST(text_of(reply) == "helo");
}

// RFC 5044 7.1.2: the acceptor may send nothing before it has an FPDU of ours. So the layer above need not be the one
// that speaks first.
BOOST_FIXTURE_TEST_CASE(an_initiator_that_has_nothing_to_say_writes_nothing, fixture)
{
    BOOST_TEST(bool(connect("10020004 00010001")));
    BOOST_TEST(to_hex(said) == to_hex(from_hex("000e c140 00000000 00000000 00000000 00000000")));

    // Whoever says something at once needs no word beside it.
    at_once = [](verbs::queue_pair& q) {
        verbs::send_request w;
        BOOST_REQUIRE(q.post_send({&w, 1}));
    };
    BOOST_TEST(bool(connect("10020004 00010001")));
    BOOST_TEST(to_hex(said) == to_hex(from_hex("0012 4143 00000000 00000000 00000001 00000000 00000000")));

    // Nor does one that goes at once.
    at_once = [](verbs::queue_pair& q) { q.disconnect(); };
    BOOST_TEST(bool(connect("10020004 00010001")));
    BOOST_TEST(said.empty());
}

// A server that is gone without a word is noticed as soon as a client is.
BOOST_FIXTURE_TEST_CASE(an_outgoing_connection_has_the_time_limit_for_its_peer, fixture)
{
    iwarp::options o;
    o.peer_timeout = 12s;
    domain.reset();
    provider = iwarp::make_context(*shard, o);
    domain = std::move(*provider->make_domain());
    unsigned found = 0;
    while_connected = [&] {
        for (int fd = 3; fd < 256; ++fd) {
            const auto to = net::endpoint::remote(fd);
            if (!to || to->to_string() != address)
                continue;
            unsigned limit = 0;
            socklen_t size = sizeof limit;
            BOOST_REQUIRE(::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, &size) == 0);
            BOOST_TEST(limit == 12'000u);
            ++found;
        }
    };
    BOOST_TEST(bool(connect("10020004 00010001")));
    BOOST_TEST(found == 1u);
}

BOOST_FIXTURE_TEST_CASE(answers_that_make_none, fixture)
{
    refused(from_hex("4d504120 49442052 65712046 72616d65 10020004 00010001"),
            end_cause::bad_startup);             // a request's key
    refused("10020201", end_cause::bad_startup); // 513 octets
    refused("10020003", end_cause::bad_startup); // no room for the depths
    refused("00010000", end_cause::revision_refused);
    refused("00020004 00010001", end_cause::revision_refused); // not enhanced
    refused("90020004 00010001", end_cause::markers_refused);
    const bytes good = from_hex(std::string(reply_key) + "10020004 00010001");
    for (std::size_t size = 0; size < good.size(); ++size)
        refused(bytes(good.begin(), good.begin() + std::ptrdiff_t(size)), end_cause::peer_reset);
}

BOOST_FIXTURE_TEST_CASE(a_reject_carries_its_private_data, fixture)
{
    refused("30020008 00010001 62757379", end_cause::rejected);
    BOOST_TEST(text_of(reply) == "busy");
    refused("20010004 62757379", end_cause::rejected); // of revision 1, which has no depths
    BOOST_TEST(text_of(reply) == "busy");
    refused("20010000", end_cause::rejected);
    BOOST_TEST(reply.empty());
}

BOOST_FIXTURE_TEST_CASE(an_acceptor_that_says_nothing_costs_the_time_out, fixture)
{
    options.timeout = 1s;
    for (const bytes& answer : {bytes(), from_hex(std::string(reply_key) + "1002")}) {
        const time_point before = clock.now();
        refused(answer, end_cause::startup_timeout, true);
        BOOST_TEST((clock.now() - before == options.timeout));
    }
}

BOOST_FIXTURE_TEST_CASE(what_is_asked_wrongly_reaches_nobody, fixture)
{
    const auto fails = [&](const std::string& to, std::errc expected) {
        auto main = [&]() -> task<result<std::unique_ptr<verbs::queue_pair>>> {
            co_return co_await provider->connect(to, *domain, options, reply);
        };
        const auto made = run_until_complete(*shard, main());
        BOOST_TEST((!made && made.error() == expected),
                   to << ": " << (made ? "connected" : made.error().message()));
    };
    fails("127.0.0.1", std::errc::invalid_argument); // no port
    listener = {};
    fails(address, std::errc::connection_refused);
    const bytes long_data(provider->query().max_private_data + 1);
    options.private_data = long_data;
    fails(address, std::errc::message_size);
}

BOOST_AUTO_TEST_SUITE_END()
