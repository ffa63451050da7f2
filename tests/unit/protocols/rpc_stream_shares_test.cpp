// SPDX-License-Identifier: Apache-2.0
// What one stream, or one host, may take from the others: turns of the shard, and memory.
#include <boost/test/unit_test.hpp>

#include "../refusals_since.hpp"
#include "rpc_server.hpp"

#include <verbena/protocols/rpcstream/record_reader.hpp>

BOOST_AUTO_TEST_SUITE(rpc_stream_shares_test)

using namespace verbena;
using namespace verbena::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t null_reply = 28;
constexpr std::size_t mebibyte = std::size_t(1) << 20;

bytes calls_of(std::uint32_t n, std::uint32_t procedure, std::span<const std::byte> arguments = {})
{
    bytes all;
    for (std::uint32_t xid = 0; xid < n; ++xid)
        append(all, framed(call_of(xid, procedure, arguments)));
    return all;
}

void put(const net::unique_fd& to, const bytes& data)
{
    BOOST_REQUIRE(::send(to.get(), data.data(), data.size(), 0) == static_cast<ssize_t>(data.size()));
}

bool has_bytes(const net::unique_fd& from)
{
    std::byte b;
    return ::recv(from.get(), &b, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_stream_with_many_calls_lets_others_go_first)
{
    served_streams s;
    const int share = static_cast<int>(rpc::stream_options().turn_share);
    auto loud = s.connect();
    auto quiet = s.connect();
    s.turns(3);
    put(loud, calls_of(400, 0));
    s.shard->turn();
    int before = s.program.served;
    BOOST_TEST(before > 0);
    BOOST_TEST(before <= 2 * share);
    put(quiet, calls_of(1, 0));
    s.shard->turn();
    BOOST_TEST(s.program.served <= before + 1 + share);
    BOOST_TEST(has_bytes(quiet)); // in the very turn in which it came
    for (before = s.program.served; s.program.served < 401; before = s.program.served) {
        s.shard->turn();
        BOOST_REQUIRE(s.program.served > before);
        BOOST_TEST(s.program.served <= before + share);
    }
    BOOST_TEST(s.receive(loud).size() == 400 * null_reply);
    BOOST_TEST(s.server->stats().yields.value() >= static_cast<unsigned>(400 / share - 1));
    // Small replies were still gathered for one call.
    BOOST_TEST(s.server->stats().sends.value() == 2);
}

BOOST_AUTO_TEST_CASE(large_calls_and_replies_count_more)
{
    served_streams s;
    auto loud = s.connect();
    s.turns(3);
    bytes argument;
    append_u32(argument, 65536);
    put(loud, calls_of(6, 4, argument));
    int before = 0;
    for (int turn = 0; turn < 3; ++turn) {
        s.shard->turn();
        BOOST_TEST(s.program.served <= before + 2); // its own part of the turn, and one behind the others
        before = s.program.served;
    }
    BOOST_TEST(s.receive(loud).size() == 6 * (null_reply + 4 + 65536));
    s.program.served = 0;
    s.send(loud, calls_of(4, 3, opaque(16384)));
    BOOST_TEST(s.receive(loud).size() == 4 * (null_reply + 8));
    BOOST_TEST(s.program.served == 4);
}

BOOST_AUTO_TEST_CASE(a_stream_that_ends_in_the_middle_of_its_calls_is_answered)
{
    served_streams s;
    auto client = s.connect();
    put(client, calls_of(100, 0));
    ::shutdown(client.get(), SHUT_WR);
    BOOST_TEST(s.receive(client).size() == 100 * null_reply);
    BOOST_TEST(s.closed);
    BOOST_TEST(s.ended(rpc::stream_end::closed_by_peer) == 1);
}

// Two hosts that open all the streams they may, on whichever shard, leave room for others; a stream that goes gives its place back.
BOOST_AUTO_TEST_CASE(streams_of_a_host_are_counted_over_all_shards)
{
    const refusals_since refusals;
    peer_shares peers;
    {
        rpc::stream_options options;
        options.max_connections = 5;
        options.max_peer_connections = 3;
        options.peers = &peers;
        served_streams one(options);
        served_streams other(options);
        std::vector<net::unique_fd> held;
        const char* const hosts[] = {"192.0.2.101:1", "[2001:db8::101]:1"};
        const char* const again[] = {"192.0.2.101:2", "[2001:db8::102]:2"}; // of the same peers
        for (int i = 0; i < 2; ++i) {
            held.push_back(one.connect(hosts[i]));
            held.push_back(other.connect(again[i]));
            held.push_back(one.connect(again[i]));
            for (served_streams* s : {&one, &other}) {
                const auto more = s->connect(hosts[i]);
                s->receive(more);
                BOOST_TEST(s->closed);
            }
        }
        BOOST_TEST(peers.greatest(peer_use::streams) == 3u);
        BOOST_TEST(peers.refused(peer_use::streams) == 4u);
        BOOST_TEST(refusals(refused::connection_share) == 4u);
        BOOST_TEST(one.ended(rpc::stream_end::refused) == 2);
        const auto good = one.connect("192.0.2.7:1");
        one.send(good, calls_of(1, 0));
        BOOST_TEST(one.receive(good).size() == null_reply);
        held[0].reset();
        one.turns();
        const auto next = other.connect(hosts[0]);
        other.send(next, calls_of(1, 0));
        BOOST_TEST(other.receive(next).size() == null_reply);
    }
    BOOST_TEST(peers.peers() == 0u);
}

namespace {

constexpr std::uint32_t go_on_alone = 5; // until test_program::go

// Streams of one host with a call each that hangs, and changes something.
struct hanging {
    explicit hanging(rpc::stream_options o = {}) : streams(with_peers(o), &clock)
    {
        streams.program.wait_in_count = true;
    }
    rpc::stream_options with_peers(rpc::stream_options o)
    {
        o.peers = &peers;
        return o;
    }
    net::unique_fd connect_and_call(std::uint32_t calls = 1, std::string_view from = "192.0.2.1:1023")
    {
        auto client = streams.connect(from);
        streams.send(client, calls_of(calls, go_on_alone));
        streams.turns();
        return client;
    }
    bool is_served(std::string_view from)
    {
        const auto client = streams.connect(from);
        if (::send(client.get(), null_call.data(), null_call.size(), MSG_NOSIGNAL) < 0)
            return false;
        return streams.receive(client).size() == null_reply;
    }
    void wait(duration for_that)
    {
        clock.advance(for_that);
        streams.turns();
    }
    const bytes null_call = calls_of(1, 0);
    peer_shares peers;
    virtual_clock clock;
    served_streams streams;
};

} // namespace

// A disk that hangs keeps calls, and not the places of the connections that they came over.
BOOST_AUTO_TEST_CASE(calls_that_hang_keep_no_stream_of_their_host)
{
    rpc::stream_options options;
    options.max_peer_connections = 2;
    hanging s(options);
    for (int i = 0; i < 5; ++i) {
        auto client = s.connect_and_call();
        s.streams.send(client, s.null_call);
        s.streams.turns();
        BOOST_TEST(s.peers.held(peer_use::streams) == 1u);
        client.reset(); // with an answer unread, which is a reset
        s.streams.turns();
        BOOST_TEST(s.streams.server->connections() == 0u);
        BOOST_TEST(s.peers.held(peer_use::streams) == 0u);
        // But they keep memory, which is charged.
        BOOST_TEST(s.peers.held(peer_use::calls_left) >= (1u + unsigned(i)) * 65536u);
    }
    BOOST_TEST(s.is_served("192.0.2.1:1"));
    BOOST_TEST(s.peers.refused(peer_use::streams) == 0u);
    s.streams.program.go.set();
    s.streams.turns();
    BOOST_TEST(s.peers.peers() == 0u);
    BOOST_TEST(s.streams.program.count == 5);
}

BOOST_AUTO_TEST_CASE(calls_that_are_left_behind_take_a_bounded_share)
{
    rpc::stream_options options;
    options.max_peer_left_bytes = 215'000; // of three calls and their streams
    hanging s(options);
    for (int i = 0; i < 4; ++i) {
        auto client = s.connect_and_call();
        s.streams.send(client, s.null_call);
        client.reset();
        s.streams.turns();
    }
    BOOST_TEST(s.peers.held(peer_use::calls_left) > 215'000u);
    BOOST_TEST(!s.is_served("192.0.2.1:1"));
    BOOST_TEST(s.streams.ended(rpc::stream_end::refused) == 1);
    BOOST_TEST(s.peers.refused(peer_use::calls_left) == 1u);
    BOOST_TEST(s.is_served("192.0.2.2:1"));
    s.streams.program.go.set();
    s.streams.turns();
    BOOST_TEST(s.is_served("192.0.2.1:1"));
}

// A peer that sends no more, and takes nothing, is gone at the latest then. While it takes replies it is there.
BOOST_AUTO_TEST_CASE(a_peer_that_sends_no_more_is_not_waited_for_without_end)
{
    hanging s;
    const auto client = s.connect_and_call();
    ::shutdown(client.get(), SHUT_WR);
    s.streams.turns();
    s.wait(59s);
    BOOST_TEST(s.streams.server->connections() == 1u);
    s.wait(2s);
    BOOST_TEST(s.streams.server->connections() == 0u);
    BOOST_TEST(s.streams.ended(rpc::stream_end::closed_by_peer) == 1);
    BOOST_TEST(s.peers.held(peer_use::streams) == 0u);
    BOOST_TEST(s.peers.held(peer_use::calls_left) > 0u);

    const auto patient = s.connect_and_call(1);
    ::shutdown(patient.get(), SHUT_WR);
    s.streams.turns();
    s.wait(59s);
    s.streams.program.go.set();
    BOOST_TEST(s.streams.receive(patient).size() == null_reply + 4);
}

// The limit of calls is reached, so that nothing is read, when the peer resets the connection: it is over at once.
BOOST_AUTO_TEST_CASE(a_reset_ends_a_stream_at_its_limit)
{
    hanging s;
    auto client = s.connect_and_call();
    s.streams.send(client, s.null_call);
    s.streams.turns();
    s.streams.send(client, calls_of(255, go_on_alone));
    s.streams.turns(100);
    BOOST_TEST(s.streams.server->stats().pauses.value() == 1u);
    client.reset(); // with an answer unread
    s.streams.turns();
    BOOST_TEST(s.streams.server->connections() == 0u);
    BOOST_TEST(s.streams.ended(rpc::stream_end::lost) == 1);
}

// Whether a stream at its limit goes on is not asked of the ring each time: that is with each call.
BOOST_AUTO_TEST_CASE(a_stream_that_stops_and_goes_on_asks_the_ring_once)
{
    rpc::stream_options options;
    options.max_calls = 1;
    served_streams s(options);
    auto client = s.connect();
    s.program.wait_in_count = true;
    s.send(client, calls_of(1, go_on_alone));
    s.turns();
    const auto submitted = [&] { return s.shard->io().stats().submitted.load(); };
    const std::uint64_t before = submitted();
    for (std::uint64_t i = 0; i < 20; ++i) {
        s.send(client, calls_of(1, go_on_alone));
        s.program.go.set();
        s.turns(3);
        s.program.go.reset();
        s.turns(3);
    }
    BOOST_TEST(s.server->stats().pauses.value() >= 20u);
    BOOST_TEST(submitted() - before <= 2u);
}

// Some, so that programs can tell them why; and they leave room for those who are served.
BOOST_AUTO_TEST_CASE(hosts_that_nothing_is_served_to_have_a_few_streams)
{
    const refusals_since refusals;
    rpc::stream_options options;
    options.max_strangers = 2;
    hanging s(options);
    s.streams.program.not_admitted = "192.0.2.66";
    const auto hears = [&](const net::unique_fd& client) {
        s.streams.send(client, s.null_call);
        return s.streams.receive(client).size() == null_reply;
    };
    auto first = s.streams.connect("192.0.2.66:1");
    const auto second = s.streams.connect("192.0.2.66:2");
    BOOST_TEST(hears(first));
    BOOST_TEST(hears(second));
    BOOST_TEST(!s.is_served("192.0.2.66:3"));
    BOOST_TEST(s.streams.ended(rpc::stream_end::not_admitted) == 1);
    BOOST_TEST(refusals(refused::connection_address) == 1u);
    BOOST_TEST(s.peers.held(peer_use::streams) == 2u);
    const auto guest = s.streams.connect("192.0.2.67:1");
    BOOST_TEST(hears(guest));
    // One that goes makes room, and so does one that is idle for longer than a first call may take.
    first.reset();
    s.streams.turns();
    auto third = s.streams.connect("192.0.2.66:4");
    BOOST_TEST(hears(third));
    s.wait(31s); // twice the time, to which times are kept
    BOOST_TEST(s.streams.server->connections() == 1u);
    BOOST_TEST(s.is_served("192.0.2.66:5"));
    BOOST_TEST(hears(guest));
}

// Whoever accepts it is noexcept.
BOOST_AUTO_TEST_CASE(a_program_that_throws_as_it_admits_costs_one_stream)
{
    hanging s;
    s.streams.program.throws_for = "192.0.2.66";
    BOOST_TEST(!s.is_served("192.0.2.66:1"));
    BOOST_TEST(s.streams.ended(rpc::stream_end::exception) == 1);
    BOOST_TEST(s.peers.held(peer_use::streams) == 0u);
    BOOST_TEST(s.is_served("192.0.2.67:1"));
}

// What is announced and does not come: a connection sends 20 KB of a message of a megabyte.
BOOST_AUTO_TEST_CASE(large_messages_on_their_way_take_a_bounded_share)
{
    rpc::stream_options options;
    options.max_address_record_bytes = 3 * mebibyte;
    served_streams s(options);
    const bytes whole = framed(call_of(1, 3, opaque(mebibyte)));
    const std::size_t sent = 20'000;
    const std::span<const std::byte> begin = std::span(whole).first(sent);
    std::vector<net::unique_fd> slow;
    for (int i = 0; i < 8; ++i) {
        slow.push_back(s.connect());
        s.send(slow.back(), begin);
        s.turns(3);
    }
    BOOST_TEST(s.server->stats().share_waits.value() == 5);
    BOOST_TEST(s.pool.outstanding_bytes() <= 3 * mebibyte + 8 * 65536);
    BOOST_TEST(s.pool.outstanding_bytes() >= 3 * mebibyte);

    // Small calls of the same host, and large ones of another, go on.
    auto small = s.connect();
    s.send(small, calls_of(3, 0));
    BOOST_TEST(s.receive(small).size() == 3 * null_reply);
    auto other = s.connect("192.0.2.2:1023");
    s.send(other, whole);
    BOOST_TEST(s.receive(other).size() == null_reply + 8);

    // One that goes, and one that ends its message, make room for the next two; at the end all are served.
    slow[0].reset();
    s.turns();
    BOOST_TEST(s.pool.outstanding_bytes() >= 3 * mebibyte);
    BOOST_TEST(s.server->stats().share_waits.value() == 5); // none tried in vain
    for (std::size_t i = 1; i < slow.size(); ++i) {
        s.send(slow[i], std::span(whole).subspan(sent));
        BOOST_TEST(s.receive(slow[i]).size() == null_reply + 8);
    }
    slow.clear();
    s.turns();
    BOOST_TEST(s.pool.outstanding() == 0);
}

namespace {

/// Streams of one host whose calls are sent in two parts, of which the first makes the server ask for the share.
struct sharing {
    explicit sharing(std::size_t share) : streams(limited(share)) {}
    static rpc::stream_options limited(std::size_t share)
    {
        rpc::stream_options options;
        options.max_address_record_bytes = share;
        options.max_record = 4 * mebibyte;
        return options;
    }
    struct caller {
        net::unique_fd socket;
        bytes call;
        std::size_t sent = 0;
    };
    caller connect(std::size_t size) { return {streams.connect(), framed(call_of(1, 3, opaque(size)))}; }
    void begin(caller& c)
    {
        c.sent = 20'000;
        streams.send(c.socket, std::span(c.call).first(c.sent));
        streams.turns(3);
    }
    /// True if the call is served when as much of the rest is sent as the server takes.
    bool end(caller& c)
    {
        for (int turn = 0; turn < 200 && !has_bytes(c.socket); ++turn) {
            const auto rest = std::span(c.call).subspan(c.sent);
            if (const ssize_t n = ::send(c.socket.get(), rest.data(), rest.size(), MSG_DONTWAIT); n > 0)
                c.sent += static_cast<std::size_t>(n);
            streams.turns(3);
        }
        return c.sent == c.call.size() && has_bytes(c.socket);
    }
    served_streams streams;
};

} // namespace

BOOST_AUTO_TEST_CASE(who_waits_for_the_share_gets_it_in_the_order_of_asking)
{
    sharing s(mebibyte);
    std::vector<sharing::caller> callers;
    for (int i = 0; i < 4; ++i)
        callers.push_back(s.connect(mebibyte - 4096));
    for (const int i : {0, 3, 2, 1}) // not that of their connects
        s.begin(callers[static_cast<std::size_t>(i)]);
    BOOST_TEST(s.streams.server->stats().share_waits.value() == 3u);
    BOOST_TEST(!s.end(callers[1])); // though all of it is on its way
    BOOST_TEST(s.end(callers[0]));
    BOOST_TEST(!s.end(callers[1])); // it is the turn of 3, which has sent no more
    callers[3].socket.reset();
    s.streams.turns();
    BOOST_TEST(!s.end(callers[1])); // now that of 2
    BOOST_TEST(s.end(callers[2]));
    BOOST_TEST(s.end(callers[1]));
    BOOST_TEST(s.streams.server->stats().share_waits.value() == 3u);
}

BOOST_AUTO_TEST_CASE(a_large_message_is_not_overtaken_by_small_ones)
{
    sharing s(3 * mebibyte);
    auto first = s.connect(mebibyte - 4096);
    auto second = s.connect(mebibyte - 4096);
    auto large = s.connect(2 * mebibyte - 4096);
    auto small = s.connect(200'000);
    for (auto* c : {&first, &second, &large, &small})
        s.begin(*c);
    BOOST_TEST(s.streams.server->stats().share_waits.value() == 2u);
    BOOST_TEST(!s.end(small)); // it would fit
    BOOST_TEST(s.end(first));
    BOOST_TEST(!s.end(small)); // what came free is the large one's
    BOOST_TEST(s.end(large));
    BOOST_TEST(s.end(small));
    // One that went while it waited is found out at its turn, and keeps nothing.
    auto third = s.connect(mebibyte - 4096);
    auto gone = s.connect(2 * mebibyte - 4096);
    auto last = s.connect(200'000);
    for (auto* c : {&third, &gone, &last})
        s.begin(*c);
    BOOST_TEST(!s.end(last));
    gone.socket.reset();
    s.streams.turns();
    BOOST_TEST(s.end(second));
    BOOST_TEST(s.end(last)); // beside the third
    BOOST_TEST(s.end(third));
}

// A record in several fragments is put together in memory that the share counts too.
BOOST_AUTO_TEST_CASE(fragments_that_never_end_count_as_well)
{
    rpc::stream_options options;
    options.max_address_record_bytes = 3 * mebibyte;
    served_streams s(options);
    bytes fragment(4 + 900'000);
    xdr::store_u32(fragment.data(), 900'000); // and not the last one
    std::vector<net::unique_fd> slow;
    for (int i = 0; i < 8; ++i) {
        slow.push_back(s.connect());
        for (std::size_t at = 0; at < fragment.size();) { // until the server takes no more
            const ssize_t n =
                ::send(slow.back().get(), fragment.data() + at, fragment.size() - at, MSG_DONTWAIT);
            if (n < 0)
                break;
            at += static_cast<std::size_t>(n);
            s.turns(3);
        }
    }
    BOOST_TEST(s.server->stats().share_waits.value() > 0);
    BOOST_TEST(s.pool.outstanding_bytes() <= 3 * mebibyte + 8 * 2 * 65536);
    auto other = s.connect("192.0.2.2:1023");
    s.send(other, framed(call_of(1, 3, opaque(mebibyte))));
    BOOST_TEST(s.receive(other).size() == null_reply + 8);
    slow.clear();
    s.turns();
    other.reset();
    s.turns();
    BOOST_TEST(s.pool.outstanding() == 0);
}

// Each holds a part of its record when it needs more memory than the others leave.
BOOST_AUTO_TEST_CASE(records_in_fragments_do_not_wait_for_each_other)
{
    rpc::stream_options options;
    options.max_address_record_bytes = 4 * mebibyte;
    served_streams s(options);
    const bytes call = call_of(1, 3, opaque(mebibyte));
    const auto fragment = [&](std::size_t from, std::size_t to, std::uint32_t last) {
        bytes all(4);
        xdr::store_u32(all.data(), static_cast<std::uint32_t>(to - from) | last);
        append(all, std::span(call).subspan(from, to - from));
        return all;
    };
    std::vector<net::unique_fd> clients;
    for (int i = 0; i < 16; ++i) {
        clients.push_back(s.connect());
        s.send(clients.back(), fragment(0, 100'000, 0)); // together less than the share
    }
    std::vector<bytes> rest(clients.size());
    for (bytes& all : rest) {
        all = fragment(100'000, 600'000, 0);
        append(all, fragment(600'000, call.size(), 0x80000000));
    }
    std::vector<std::size_t> sent(clients.size());
    std::vector<std::size_t> received(clients.size());
    std::size_t served = 0;
    for (int turn = 0; turn < 20'000 && served < clients.size(); ++turn) {
        for (std::size_t i = 0; i < clients.size(); ++i) {
            const std::span<const std::byte> left = std::span(rest[i]).subspan(sent[i]);
            if (const ssize_t n = ::send(clients[i].get(), left.data(), left.size(), MSG_DONTWAIT); n > 0)
                sent[i] += static_cast<std::size_t>(n);
            std::array<std::byte, 64> reply{};
            const ssize_t n = ::recv(clients[i].get(), reply.data(), reply.size(), MSG_DONTWAIT);
            if (n > 0 && (received[i] += static_cast<std::size_t>(n)) == null_reply + 8)
                ++served;
        }
        s.turns(3);
    }
    BOOST_TEST(served == clients.size());
    BOOST_TEST(s.server->stats().share_waits.value() > 0);
}

BOOST_AUTO_TEST_CASE(who_holds_nothing_may_always_begin)
{
    rpc::stream_options options;
    options.max_address_record_bytes = 1;
    served_streams s(options);
    const bytes whole = framed(call_of(1, 3, opaque(mebibyte)));
    auto first = s.connect();
    auto second = s.connect();
    s.send(first, std::span(whole).first(20'000));
    s.send(second, std::span(whole).first(20'000));
    s.send(first, std::span(whole).subspan(20'000));
    BOOST_TEST(s.receive(first).size() == null_reply + 8);
    s.send(second, std::span(whole).subspan(20'000));
    BOOST_TEST(s.receive(second).size() == null_reply + 8);
    BOOST_TEST(s.server->stats().share_waits.value() == 1);
}

BOOST_AUTO_TEST_SUITE_END()
