// SPDX-License-Identifier: Apache-2.0
// What a stream is doing, as a dump of its shard's tasks shows it.
#include <boost/test/unit_test.hpp>

#include "../state_trace.hpp"
#include "rpc_server.hpp"

BOOST_AUTO_TEST_SUITE(rpc_stream_states_test)

using namespace verbena;
using namespace verbena::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t mebibyte = std::size_t(1) << 20;
constexpr std::uint32_t read_so_many = 4;
constexpr std::uint32_t count_one = 5; // until test_program::go, if wait_in_count

bytes calls_of(std::uint32_t n, std::uint32_t procedure, std::span<const std::byte> arguments = {})
{
    bytes all;
    for (std::uint32_t xid = 0; xid < n; ++xid)
        append(all, framed(call_of(xid, procedure, arguments)));
    return all;
}

// The first stream's.
std::string trace_of(served_streams& s) { return state_trace(*s.shard, "stream of RPC"); }

} // namespace

BOOST_AUTO_TEST_CASE(a_stream_at_its_limit_of_calls)
{
    rpc::stream_options options;
    options.max_calls = 1;
    served_streams s(options);
    auto client = s.connect();
    s.turns();
    BOOST_TEST(trace_of(s) == "reading");
    s.program.wait_in_count = true;
    s.send(client, calls_of(2, count_one));
    s.turns();
    BOOST_TEST(trace_of(s) == "reading, at a limit (calls under way, or their replies)");
    s.program.go.set(); // the other one does not wait any more
    s.turns();
    BOOST_TEST(trace_of(s) ==
               "reading, at a limit (calls under way, or their replies), reading (below its limits)");
    BOOST_TEST(s.receive(client).size() == 2 * 32u);
}

BOOST_AUTO_TEST_CASE(a_stream_that_ends_while_its_calls_go_on)
{
    served_streams s;
    auto client = s.connect();
    s.program.wait_in_count = true;
    s.send(client, calls_of(1, count_one));
    ::shutdown(client.get(), SHUT_WR);
    s.turns();
    BOOST_TEST(trace_of(s) == "reading, finishing (closed_by_peer)");
    s.program.go.set();
    s.turns();
    BOOST_TEST(trace_of(s) == ""); // it is gone

    s.program.go.reset();
    client = s.connect();
    s.send(client, calls_of(1, count_one));
    s.send(client, calls_of(1, 0));
    s.turns();
    client.reset(); // with an answer unread, which is a reset
    s.turns();
    BOOST_TEST(trace_of(s) == "reading, ended (lost)");
    s.program.go.set();
    s.turns();
    BOOST_TEST(trace_of(s) == "");
}

BOOST_AUTO_TEST_CASE(a_stream_with_many_calls_yields)
{
    served_streams s;
    auto client = s.connect();
    s.send(client, calls_of(unsigned(rpc::stream_options().turn_share) + 1, 0));
    s.turns();
    BOOST_TEST(trace_of(s) == "reading, yielding (others are to have their turn), reading (its turn)");
}

BOOST_AUTO_TEST_CASE(streams_that_wait_for_memory_and_for_their_hosts_share)
{
    rpc::stream_options options;
    options.max_address_record_bytes = mebibyte;
    virtual_clock clock;
    served_streams s(options, &clock);
    const bytes whole = framed(call_of(1, 3, opaque(mebibyte)));
    auto waiting = s.connect(); // the first, whose trace it is
    auto first = s.connect();
    s.send(first, std::span(whole).first(20'000));
    s.send(waiting, std::span(whole).first(20'000));
    s.turns();
    BOOST_TEST(trace_of(s) == "reading, waiting for its host's share of memory (a large message)");
    first.reset();
    s.turns();
    // Its peer sends no more, and the share is its own now.
    BOOST_TEST(trace_of(s) == "reading, waiting for its host's share of memory (a large message), "
                              "reading (its part of the share)");
    std::vector<lease> all;
    for (std::size_t size = mebibyte; size >= buffer_pool::min_size; size /= 2)
        while (lease one = s.pool.try_acquire(size))
            all.push_back(std::move(one));
    auto other = s.connect("192.0.2.2:1023");
    s.turns();
    waiting.reset();
    s.turns();
    s.send(other, std::span(whole).first(40)); // the next one that is the first
    s.turns();
    constexpr auto without = ", waiting for memory (the pool has no buffer)";
    BOOST_TEST(trace_of(s).ends_with(without), trace_of(s));
    all.clear();
    s.turns();
    BOOST_TEST(trace_of(s).ends_with(without), trace_of(s)); // it asks again each millisecond
    clock.advance(1ms);
    s.turns();
    BOOST_TEST(trace_of(s).ends_with(std::string(without) + ", reading (the pool may have a buffer)"),
               trace_of(s));
}

// One that waits for the results of its host's streams, which are its own, and goes: what it leaves is not given to
// itself.
BOOST_AUTO_TEST_CASE(a_stream_that_ends_while_it_waits_for_results)
{
    rpc::stream_options options;
    options.max_address_result_bytes = 64 << 10;
    served_streams s(options);
    bytes length;
    append_u32(length, mebibyte);
    auto client = s.connect();
    s.program.wait_in_count = true;
    s.send(client, calls_of(1, count_one)); // keeps it for the dump
    s.send(client, calls_of(2, read_so_many, length));
    s.turns();
    BOOST_TEST(trace_of(s) ==
               "reading, waiting for its host's share of results (results of its host's other calls)");
    auto other = s.connect();
    s.send(other, calls_of(1, read_so_many, length));
    s.turns();
    client.reset();
    s.turns();
    BOOST_TEST(trace_of(s) ==
               "reading, waiting for its host's share of results (results of its host's other calls), "
               "ended (lost)");
    // But to the next one.
    BOOST_TEST(s.receive(other, 28 + 4 + mebibyte).size() == 28 + 4 + mebibyte);
}

// A record that its peer leaves unfinished, while calls go on, is not waited for; nor does it end them.
BOOST_AUTO_TEST_CASE(a_stream_that_ends_in_the_middle_of_a_record_is_not_slow)
{
    virtual_clock clock;
    rpc::stream_options options;
    options.record_limit = 10s;
    served_streams s(options, &clock);
    auto client = s.connect();
    s.program.wait_in_count = true;
    s.send(client, calls_of(1, count_one));
    s.send(client, bytes(2));
    ::shutdown(client.get(), SHUT_WR);
    s.turns();
    clock.advance(11s);
    s.turns();
    BOOST_TEST(trace_of(s) == "reading, finishing (closed_by_peer)");
    s.program.go.set();
    BOOST_TEST(s.receive(client).size() == 32u);
}

BOOST_AUTO_TEST_SUITE_END()
