// SPDX-License-Identifier: Apache-2.0
// What the responder allows one requester, and how it ends.
#include <boost/test/unit_test.hpp>

#include "requests_in.hpp"
#include "rpcrdma_by_hand.hpp"

#include <verbena/core/task/yield.hpp>

BOOST_AUTO_TEST_SUITE(rpcrdma_responder_test)

using namespace verbena;
using namespace verbena::responder_test;

BOOST_FIXTURE_TEST_CASE(reads_that_nobody_answers_end_the_connection, fixture)
{
    start();
    call(1);
    BOOST_TEST(receive().size() == 46u); // the Read Request
    clock.advance(options.read_limit);
    BOOST_TEST(receive().empty());
    BOOST_TEST(stats.stalled_reads.value() == 1u);
    until([&] { return stats.failed_reads.value() == 1; });
    BOOST_TEST(dispatcher.pulled == 0u);
}

BOOST_FIXTURE_TEST_CASE(reads_that_are_answered_slowly_do_not, fixture)
{
    start();
    for (std::uint32_t xid = 1; xid <= 3; ++xid) {
        call(xid);
        const bytes request = receive();
        clock.advance(options.read_limit - 1ms);
        shard->turn();
        answer(request);
        BOOST_TEST(receive().size() > 18u + 28u); // the reply
        clock.advance(options.read_limit * 2);    // idle
        shard->turn();
    }
    BOOST_TEST(dispatcher.pulled == 3u);
    BOOST_TEST(std::uint32_t(dispatcher.trace) == 3u); // the XID, behind the number of the connection
    BOOST_TEST((dispatcher.trace >> 32) != 0u);
    BOOST_TEST(stats.stalled_reads.value() == 0u);
}

// From its message on, so that a peer that answers no Read is seen to be the one that is waited for.
BOOST_FIXTURE_TEST_CASE(a_call_is_listed_until_it_is_answered, fixture)
{
    using texts = std::vector<std::string>;
    start();
    call_at_position_zero(0x3fa0c11d, 4); // nothing of it is here
    const bytes request = receive();
    BOOST_TEST(test::requests_in(*shard) == texts{"iwarp rpc waits for RDMA Reads from the peer"},
               boost::test_tools::per_element());
    BOOST_TEST(test::calls_in(*shard) == texts{"3fa0c11d"}, boost::test_tools::per_element());
    bytes message = call_head(0x3fa0c11d, 4);
    put(message, {0x61626364});
    answer(request, message);
    BOOST_TEST(receive().size() > 18u + 28u); // the reply
    BOOST_TEST(test::requests_in(*shard).empty());
    // The same object serves another call, whose connection ends.
    call(2);
    (void)receive();
    BOOST_TEST(test::calls_in(*shard) == texts{"00000002"}, boost::test_tools::per_element());
    ::shutdown(peer, SHUT_RDWR);
    ending = true;
    until([&] { return provider->counters().active == 0; });
    BOOST_TEST(test::requests_in(*shard).empty());
}

BOOST_FIXTURE_TEST_CASE(a_call_whose_dispatcher_throws_is_listed_no_more, fixture)
{
    dispatcher.throws = true;
    start();
    inline_call(1);
    until([&] { return stats.exceptions.value() == 1; });
    BOOST_TEST(test::requests_in(*shard).empty());
}

// A call back to a client is listed as well: what it waits for is the client.
BOOST_FIXTURE_TEST_CASE(a_call_back_is_listed_until_its_reply_or_the_end, fixture)
{
    options.reverse_credits = 2;
    dispatcher.keeps_channel = true;
    start();
    inline_call(1);
    (void)receive();
    tasks->spawn([&] { return call_back(); });
    const std::uint32_t xid = called_back();
    BOOST_TEST(test::requests_in(*shard) ==
                   std::vector<std::string>{"iwarp rpc callback waits for the reply of the client"},
               boost::test_tools::per_element());
    answer_call_back(xid, 2);
    until([&] { return outcome == "a reply"; });
    BOOST_TEST(test::requests_in(*shard).empty());
    tasks->spawn([&] { return call_back(); });
    (void)called_back();
    BOOST_TEST(test::requests_in(*shard).size() == 1u);
    ::shutdown(peer, SHUT_RDWR);
    ending = true;
    until([&] { return provider->counters().active == 0; });
    BOOST_TEST(test::requests_in(*shard).empty());
}

BOOST_FIXTURE_TEST_CASE(a_requester_that_ignores_its_credits_is_sent_away, fixture)
{
    options.credits = 4; // and 8 receives more than that
    start();
    for (std::uint32_t xid = 1; xid <= 12; ++xid)
        call(xid);
    until([&] { return stats.calls.value() == 12; });
    BOOST_TEST(stats.credit_overruns.value() == 0u);
    call(13);
    until([&] { return provider->counters().active == 0; });
    BOOST_TEST(stats.credit_overruns.value() == 1u);
    BOOST_TEST(stats.calls.value() == 12u);
}

// Sends complete in order of posting, so behind a Read: what a requester can't see is no fault of its.
BOOST_FIXTURE_TEST_CASE(answered_calls_behind_a_slow_read_need_no_credits, fixture)
{
    options.credits = 4;
    start();
    call(1);
    const bytes request = receive();
    for (std::uint32_t xid = 2; xid < 100; ++xid) {
        inline_call(xid);
        const bytes reply = receive();
        BOOST_REQUIRE(reply.size() > 22u);
        BOOST_TEST(xdr::load_u32(reply.data() + 18) == xid);
    }
    answer(request);
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 1u);
    BOOST_TEST(stats.credit_overruns.value() == 0u);
}

BOOST_FIXTURE_TEST_CASE(many_calls_at_once_are_served_in_turns, fixture)
{
    start();
    for (std::uint32_t xid = 1; xid <= 100; ++xid)
        inline_call(xid);
    while (dispatcher.pulled < 100) {
        const unsigned before = dispatcher.pulled;
        shard->turn();
        BOOST_TEST(dispatcher.pulled <= before + 32); // its part of the turn, and one behind the others'
    }
    for (std::uint32_t xid = 1; xid <= 100; ++xid)
        BOOST_TEST(xdr::load_u32(receive().data() + 18) == xid);
    BOOST_TEST(stats.yields.value() >= 3u);
    BOOST_TEST(stats.credit_overruns.value() == 0u);
}

BOOST_FIXTURE_TEST_CASE(calls_wait_for_room_in_the_share_of_their_connection, fixture)
{
    options.max_chunk_bytes = 2 * argument_size;
    start();
    for (std::uint32_t xid = 1; xid <= 3; ++xid)
        call(xid);
    const bytes first = receive();
    const bytes second = receive();
    until([&] { return stats.calls.value() == 3; });
    BOOST_TEST(stats.chunk_waits.value() == 1u);
    answer(first);
    answer(second);
    // Two replies and the Read Request of the third, in any order.
    bytes third;
    for (int i = 0; i < 3; ++i) {
        bytes next = receive();
        if (next.size() == 46)
            third = next;
    }
    answer(third);
    until([&] { return dispatcher.pulled == 3; });
    BOOST_TEST(stats.chunk_waits.value() == 1u);
}

// The segments of one call are read side by side, as many as both ends allow; each answer lets one more go.
BOOST_AUTO_TEST_CASE(a_call_reads_as_much_at_once_as_both_ends_allow)
{
    static constexpr std::uint32_t segments = 8;
    struct depths {
        std::uint32_t own;
        std::uint16_t peer;
    };
    for (const depths d : {depths{32, 8}, depths{32, 4}, depths{2, 8}, depths{32, 1}, depths{1, 8}}) {
        BOOST_TEST_CONTEXT("own depth " << d.own << ", the peer's " << d.peer)
        {
            fixture f;
            f.options.read_depth = d.own;
            f.peer_depth = d.peer;
            f.start();
            f.call_in_segments(1, segments);
            const std::uint32_t depth = std::min<std::uint32_t>(d.own, d.peer);
            std::vector<bytes> out;
            for (std::uint32_t tag = 1; tag <= depth; ++tag) {
                out.push_back(f.receive());
                BOOST_TEST(fixture::source_of(out.back()) == tag);
            }
            for (std::uint32_t tag = depth + 1; tag <= segments; ++tag) {
                BOOST_TEST(f.quiet());
                f.answer(out[tag - 1 - depth]);
                out.push_back(f.receive());
                BOOST_TEST(fixture::source_of(out.back()) == tag);
            }
            BOOST_TEST(f.quiet());
            for (std::uint32_t tag = segments - depth; tag < segments; ++tag) {
                BOOST_TEST(f.dispatcher.pulled == 0u);
                f.answer(out[tag]);
            }
            BOOST_TEST(xdr::load_u32(f.receive().data() + 18) == 1u); // the reply
            BOOST_TEST(f.stats.read_depth_waits.value() == segments - depth);
            BOOST_TEST(f.stats.read_chunk_bytes.value() == argument_size);
            // It was the responder that waited, and not the stack beneath it.
            BOOST_TEST(f.provider->counters().read_depth_waits == 0u);
        }
    }
}

// What a Position-Zero chunk holds has to be decoded; an item beside it comes when the procedure wants it.
BOOST_FIXTURE_TEST_CASE(a_whole_call_comes_before_its_item, fixture)
{
    start();
    call_in_two_chunks(7);
    const bytes body = receive();
    BOOST_TEST(source_of(body) == 1u);
    BOOST_TEST(quiet());
    answer(body, call_head(7, argument_size));
    const bytes item = receive();
    BOOST_TEST(source_of(item) == 2u);
    BOOST_TEST(dispatcher.pulled == 0u);
    answer(item);
    const bytes reply = receive();
    BOOST_REQUIRE(reply.size() > 22u);
    BOOST_TEST(xdr::load_u32(reply.data() + 18) == 7u);
    BOOST_TEST(dispatcher.pulled == 1u);
    BOOST_TEST(stats.read_depth_waits.value() == 0u);
}

// Nothing is read of a call whose chunks can't lie where they say.
BOOST_FIXTURE_TEST_CASE(chunks_out_of_place_are_not_read, fixture)
{
    start();
    bytes u = from_hex("4143 00000000 00000000");
    put(u, {++sequence, 0, 9, 1, 32, 1});
    put(u, {1, 0, 1, 44, 0, 0});
    put(u, {1, 48, 2, 4, 0, 0}); // the call ends before it
    put(u, {0, 0, 0});
    write(fpdu(u));
    expect_chunk_error(9);
    BOOST_TEST(stats.read_chunk_bytes.value() == 0u);
}

// RFC 8166 4.5.2: what can't be decoded is told to the requester, which waits otherwise. The transport header has its XID.
BOOST_AUTO_TEST_CASE(calls_that_cannot_be_decoded_are_answered)
{
    fixture f;
    f.dispatcher.expects_garbage = true;
    f.start();
    std::uint32_t xid = 0x1000;
    std::uint64_t refused = 0;
    const auto expect_refusal = [&] {
        f.expect_chunk_error(xid);
        BOOST_TEST(f.stats.chunk_errors.value() == ++refused);
    };
    // A Read chunk inside the call's header.
    for (const std::uint32_t position : {4u, 8u, 24u, 36u}) {
        BOOST_TEST_CONTEXT("position " << position)
        {
            bytes u = from_hex("4143 00000000 00000000");
            put(u, {++f.sequence, 0, ++xid, 1, 32, 0, 1, position, 0xabcd, argument_size, 0, 0, 0, 0, 0});
            put(u, {xid, 0, 2, 1, 1, 1, 0, 0, 0, 0, argument_size});
            f.write(fpdu(u));
            expect_refusal();
        }
    }
    // A whole call that ends inside its header, or is none.
    for (std::uint32_t size = 1; size < 40; ++size) {
        BOOST_TEST_CONTEXT("a Position-Zero chunk of " << size << " bytes")
        {
            bytes head = fixture::call_head(++xid, 0);
            head.resize(size);
            f.call_at_position_zero(xid, size - 44); // which adds a header
            f.answer(f.receive(), head);
            expect_refusal();
        }
    }
    for (const bool own_xid : {false, true}) {
        bytes noise(512, std::byte(0xa5));
        ++xid;
        if (own_xid) {
            bytes words;
            put(words, {xid});
            std::ranges::copy(words, noise.begin());
        }
        f.call_at_position_zero(xid, 512 - 44);
        f.answer(f.receive(), noise);
        expect_refusal();
    }
    // The same inline.
    for (std::size_t size = 0; size < 40; size += 4) {
        BOOST_TEST_CONTEXT("an inline call of " << size << " bytes")
        {
            bytes u = from_hex("4143 00000000 00000000");
            put(u, {++f.sequence, 0, ++xid, 1, 32, 0, 0, 0, 0});
            const bytes head = fixture::call_head(xid, 0);
            u.insert(u.end(), head.begin(), head.begin() + std::ptrdiff_t(size));
            f.write(fpdu(u));
            expect_refusal();
        }
    }
    // The connection serves on.
    f.inline_call(++xid);
    BOOST_TEST(xdr::load_u32(f.receive().data() + 18) == xid);
    BOOST_TEST(f.stats.connections.value() == 1);
    BOOST_TEST(f.stats.dropped.value() == 0u);
    BOOST_TEST(f.dispatcher.pulled == 1u);
}

// A requester with IRD 0 that offers Read chunks all the same is told so: nothing can be read from it.
BOOST_FIXTURE_TEST_CASE(read_chunks_of_a_requester_that_answers_no_reads_are_refused, fixture)
{
    peer_depth = 0;
    start();
    call(1);
    expect_chunk_error(1);
    call_in_two_chunks(2);
    expect_chunk_error(2);
    BOOST_TEST(stats.chunk_errors.value() == 2u);
    BOOST_TEST(stats.failed_reads.value() == 0u);
    // And is served what has none.
    inline_call(3);
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 3u);
    BOOST_TEST(stats.connections.value() == 1);
}

// Whether the call's procedure asked for the Read or its assembly did.
BOOST_AUTO_TEST_CASE(reads_that_cannot_be_posted_end_the_connection)
{
    for (const bool assembled : {false, true}) {
        fixture f;
        f.own_provider = f.unreadable.does.reads_fail = true;
        f.start();
        if (assembled)
            f.call_in_two_chunks(1);
        else
            f.call(1);
        BOOST_TEST(f.receive().empty());
        f.until([&] { return f.provider->counters().active == 0; });
        BOOST_TEST(f.stats.failed_reads.value() == 1u);
        BOOST_TEST(f.dispatcher.pulled == 0u);
    }
}

// A Read that can't be posted since the connection ends already does not cut the Terminate off.
BOOST_FIXTURE_TEST_CASE(an_end_under_way_still_says_why, fixture)
{
    start();
    call(1);
    write(fpdu(from_hex("4043 00000000 00000000 00000002 00000000"))); // DDP version 0
    const bytes last = receive();
    BOOST_REQUIRE(last.size() > 20u);
    BOOST_TEST(test::to_hex(std::span(last).first(2)) == "4147"); // Terminate
    BOOST_TEST(test::to_hex(std::span(last).subspan(18, 2)) == "1206");
    BOOST_TEST(stats.failed_reads.value() == 1u);
    ::shutdown(peer, SHUT_WR);
    until([&] { return provider->counters().active == 0; });
}

// Nor does a reply that can't be: the call and what ends the connection come at once.
BOOST_FIXTURE_TEST_CASE(an_end_under_way_is_not_cut_off_by_a_reply, fixture)
{
    start();
    bytes both = inline_message(1);
    const bytes bad = fpdu(from_hex("4043 00000000 00000000 00000002 00000000")); // DDP version 0
    both.insert(both.end(), bad.begin(), bad.end());
    write(both);
    const bytes last = receive();
    BOOST_REQUIRE(last.size() > 20u);
    BOOST_TEST(test::to_hex(std::span(last).first(2)) == "4147"); // Terminate
    BOOST_TEST(test::to_hex(std::span(last).subspan(18, 2)) == "1206");
    BOOST_TEST(dispatcher.pulled == 1u);
    ::shutdown(peer, SHUT_WR);
    until([&] { return provider->counters().active == 0; });
}

BOOST_FIXTURE_TEST_CASE(calls_share_the_depth_of_their_connection, fixture)
{
    peer_depth = 2;
    start();
    for (std::uint32_t xid = 1; xid <= 3; ++xid)
        call(xid);
    const bytes first = receive();
    const bytes second = receive();
    BOOST_TEST(quiet());
    BOOST_TEST(stats.calls.value() == 3u);
    BOOST_TEST(stats.read_depth_waits.value() == 1u);
    answer(first);
    bytes third = receive(); // or the first one's reply, which is ready too
    const bytes other = receive();
    if (third.size() != 46)
        third = other;
    answer(second);
    answer(third);
    until([&] { return dispatcher.pulled == 3; });
    BOOST_TEST(stats.read_depth_waits.value() == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_drain_answers_what_was_begun_and_begins_nothing, fixture)
{
    start();
    call(1);
    const bytes request = receive();
    listener->close();
    for (int i = 0; i < 10; ++i)
        shard->turn();
    call(2);
    until([&] { return stats.refused_draining.value() == 1; });
    BOOST_TEST(provider->counters().active == 1u);
    answer(request);
    const bytes reply = receive();
    BOOST_REQUIRE(reply.size() > 22u);
    BOOST_TEST(xdr::load_u32(reply.data() + 18) == 1u);
    BOOST_TEST(receive().empty());
    BOOST_TEST(dispatcher.pulled == 1u);
    ::shutdown(peer, SHUT_WR);
    until([&] { return tasks->live() == 0; });
}

BOOST_FIXTURE_TEST_CASE(a_drain_that_is_stopped_leaves_a_stuck_call_behind, fixture)
{
    start();
    call(1);
    (void)receive();
    listener->close();
    for (int i = 0; i < 100; ++i)
        shard->turn();
    BOOST_TEST(tasks->live() == 1u);
    tasks->request_stop();
    ending = true;
    until([&] { return tasks->live() == 0; }); // though the peer says nothing
}

// A call back that finds the send queue full of Reads and of Sends behind them goes out when those are done.
BOOST_FIXTURE_TEST_CASE(a_call_back_waits_for_the_send_queue_and_no_longer, fixture)
{
    options.credits = 400;
    options.read_depth = peer_depth = 400;
    options.reverse_credits = 1;
    dispatcher.keeps_channel = true;
    start();
    std::uint32_t xid = 1;
    std::vector<bytes> reads;
    call(xid);
    reads.push_back(receive());
    // Replies want room for their largest form, which these nearly take.
    dispatcher.result_size = 60 * 4;
    for (bool full = false; !full;) {
        call_with_write_chunk(++xid, 60, 4);
        for (full = true; !quiet(); full = false)
            (void)receive();
    }
    dispatcher.result_size = 0;
    for (call(++xid); !quiet(); call(++xid))
        reads.push_back(receive());
    BOOST_TEST(reads.size() < 400u);
    BOOST_REQUIRE(dispatcher.channel);
    tasks->spawn([&] { return call_back(); });
    BOOST_TEST(quiet());
    BOOST_TEST(outcome == "");
    for (const bytes& request : reads)
        answer(request);
    for (bool called = false; !called;) {
        const bytes message = receive();
        BOOST_REQUIRE(!message.empty());
        if (message.size() == 46) // a Read that had no room
            answer(message);
        else if (message.front() == std::byte(0x41) && message.size() >= 18 + 28 + 8u) // a Send
            called = xdr::load_u32(message.data() + 18 + 28 + 4) == 0; // its message is a call (RFC 5531 9)
    }
    BOOST_TEST(outcome == "");
    dispatcher.channel.reset();
}

// A dispatcher answers for what its programs throw. What it throws itself costs one connection.
BOOST_FIXTURE_TEST_CASE(a_dispatcher_that_throws_ends_the_connection, fixture)
{
    start();
    call(1); // which is being read
    (void)receive();
    dispatcher.throws = true;
    inline_call(2);
    BOOST_TEST(receive().empty());
    until([&] { return provider->counters().active == 0; });
    BOOST_TEST(stats.exceptions.value() == 1u);
    BOOST_TEST(stats.connections.value() == 0);
    dispatcher.throws = false;
    ask_to_connect();
    BOOST_TEST(read(32).size() == 32u);
    inline_call(3);
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 3u);
}

// And so does a provider that throws while a connection is set up.
BOOST_FIXTURE_TEST_CASE(a_provider_that_throws_loses_the_connection, fixture)
{
    own_provider = true;
    start();
    unreadable.does.throws = throwing::making_a_queue_pair;
    ask_to_connect();
    BOOST_TEST(read(32).empty());
    BOOST_TEST(stats.exceptions.value() == 1u);
    // With a call under way already, which waits.
    unreadable.does.throws = throwing::accepting;
    dispatcher.waits = true;
    dispatcher.result_size = 4;
    ask_to_connect();
    BOOST_TEST(read(32).size() == 32u);
    inline_call(2);
    until([&] { return dispatcher.prepared == 1; });
    unreadable.does.go.set();
    BOOST_TEST(receive().empty());
    BOOST_TEST(stats.exceptions.value() == 2u);
    dispatcher.waits = false;
    dispatcher.result_size = 0;
    ask_to_connect();
    BOOST_TEST(read(32).size() == 32u);
    inline_call(3);
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 3u);
    BOOST_TEST(stats.connections.value() == 1);
}

namespace {

struct shares {
    // These outlive the listener.
    peer_shares peers;
    connection_list list;
};
struct fixture_with_shares : shares, fixture {};

} // namespace

// Before it is in a list, so whoever keeps its peer out does not find it there.
BOOST_FIXTURE_TEST_CASE(who_is_kept_out_while_it_gets_its_queue_pair_is_not_taken, fixture_with_shares)
{
    options.peers = &peers;
    own_provider = true;
    start();
    for (const bool is_kept_out : {false, true}) {
        BOOST_TEST_CONTEXT("is kept out " << is_kept_out)
        {
            unreadable.does.waits_to_make = true;
            unreadable.does.go.reset();
            ask_to_connect();
            until([&] { return !unreadable.does.waits_to_make; });
            if (is_kept_out)
                BOOST_TEST(peers.evicted().add(unreadable.does.peer, clock.now() + 60s, clock.now()));
            unreadable.does.go.set();
            BOOST_TEST(read(32).size() == (is_kept_out ? 0u : 32u));
        }
    }
    until([&] { return stats.connections.value() == 0; });
}

// Its calls may come before accept() is over, which a peer can delay.
BOOST_FIXTURE_TEST_CASE(who_is_being_accepted_is_found_and_ended, fixture_with_shares)
{
    options.connections = &list;
    own_provider = true;
    unreadable.does.waits_to_accept = true;
    start();
    connection_list::reader reader(list);
    listed_connection* const found = reader.next();
    BOOST_TEST_REQUIRE(found != nullptr);
    BOOST_TEST(!found->party().has_ended);
    BOOST_TEST(std::string_view(found->report().state) == "setting up");
    dispatcher.waits = true;
    dispatcher.result_size = 4;
    inline_call(7);
    until([&] { return dispatcher.prepared == 1; });
    bool told = false;
    const auto end = [&]() -> task<void> {
        co_await yield(); // into a turn
        found->end_now();
        told = found->party().has_ended;
    };
    tasks->spawn(end);
    until([&] { return told; });
    BOOST_TEST(receive().empty());
    unreadable.does.go.set();
    until([&] { return provider->counters().active == 0; });
}

// Whatever a peer does, its queue pair is not destroyed before its end is over, which would hold the shard. The fixture looks.
BOOST_FIXTURE_TEST_CASE(the_end_of_a_connection_does_not_hold_the_shard, fixture)
{
    own_provider = true;
    options.credits = 4;
    start();
    for (std::uint32_t xid = 1; xid <= 12; ++xid)
        call(xid);
    until([&] { return stats.calls.value() == 12; });
    call(13);
    until([&] { return provider->counters().active == 0; });
    BOOST_TEST(stats.credit_overruns.value() == 1u);
    ask_to_connect();
    BOOST_TEST(read(32).size() == 32u);
    call(1);
    (void)receive();
    clock.advance(options.read_limit);
    until([&] { return provider->counters().active == 0; });
    BOOST_TEST(stats.stalled_reads.value() == 1u);
    // One that can't be accepted. One for whose messages there is no memory is.
    unreadable.does.accepts_fail = true;
    ask_to_connect();
    BOOST_TEST(read(32).size() == 32u);
    BOOST_TEST(read(1).empty());
    unreadable.does.accepts_fail = false;
    leave(0, 4096);
    ask_to_connect();
    BOOST_TEST(read(32).size() == 32u);
    held.clear();
    ask_to_connect();
    BOOST_TEST(read(32).size() == 32u);
    inline_call(2);
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 2u);
}

// One credit stands until the first reply (RFC 8166 3.3.3). A call that is never answered keeps it for a while, not for ever, whether
// its caller waits or gave up.
BOOST_AUTO_TEST_CASE(a_call_back_without_an_answer_costs_its_credit_for_a_while)
{
    for (const bool patient : {false, true}) {
        BOOST_TEST_CONTEXT((patient ? "the caller waits" : "the caller gives up"))
        {
            fixture f;
            f.options.reverse_credits = 2;
            f.dispatcher.keeps_channel = true;
            f.start();
            f.inline_call(1);
            (void)f.receive();
            BOOST_REQUIRE(f.dispatcher.channel);
            f.tasks->spawn([&] { return f.call_back(patient ? duration::max() : 1ms); });
            const std::uint32_t first = f.called_back();
            BOOST_TEST(first != 0u);
            f.clock.advance(f.options.reverse_limit - 1ms);
            f.until([&] { return patient == f.outcome.empty(); });
            f.tasks->spawn([&] { return f.call_back(); });
            BOOST_TEST(f.quiet());
            f.clock.advance(1ms);
            const std::uint32_t second = f.called_back();
            BOOST_TEST(second != 0u);
            BOOST_TEST(second != first);
            BOOST_TEST(f.stats.reverse_timeouts.value() == 1u);
            // An answer that comes too late gives back no credit, and ends nothing.
            f.answer_call_back(first, 2);
            BOOST_TEST(f.quiet());
            BOOST_TEST(f.stats.dropped.value() == 1u);
            f.answer_call_back(second, 2);
            f.until([&] { return f.outcome == "a reply"; });
            // Now there are two credits.
            f.tasks->spawn([&] { return f.call_back(); });
            f.tasks->spawn([&] { return f.call_back(); });
            f.tasks->spawn([&] { return f.call_back(); });
            BOOST_TEST(f.called_back() != 0u);
            BOOST_TEST(f.called_back() != 0u);
            BOOST_TEST(f.quiet());
            BOOST_TEST(f.dispatcher.channel->open());
            f.dispatcher.channel.reset();
        }
    }
}

// RFC 8797 4.1: remote invalidation is for those who said that they can take it.
BOOST_AUTO_TEST_CASE(keys_are_invalidated_for_those_who_agreed)
{
    for (const char* message : {"", "f6ab0e18 01000303", "f6ab0e18 01010303"}) {
        BOOST_TEST_CONTEXT("private data: " << message)
        {
            fixture f;
            f.private_data = from_hex(message);
            f.dispatcher.result_size = 100;
            f.start();
            const bool agreed = std::string_view(message).ends_with("01010303");
            f.call_with_write_chunk(1, 1, 100);
            BOOST_TEST((f.receive()[1] == std::byte(0x40))); // the Write
            bytes reply = f.receive();
            BOOST_TEST_REQUIRE(reply.size() > 22u);
            BOOST_TEST((reply[1] == (agreed ? std::byte(0x44) : std::byte(0x43))));
            BOOST_TEST(xdr::load_u32(reply.data() + 2) == (agreed ? 1u : 0u));
            // One of several would leave the others to the requester anyway.
            f.call_with_write_chunk(2, 2, 50);
            for (int i = 0; i < 2; ++i)
                BOOST_TEST((f.receive()[1] == std::byte(0x40)));
            reply = f.receive();
            BOOST_TEST_REQUIRE(reply.size() > 22u);
            BOOST_TEST((reply[1] == std::byte(0x43)));
        }
    }
}

BOOST_FIXTURE_TEST_CASE(a_call_back_without_an_answer_fails_when_its_time_is_over, fixture)
{
    options.reverse_credits = 1;
    dispatcher.keeps_channel = true;
    start();
    inline_call(1);
    (void)receive();
    tasks->spawn([&] { return call_back(); });
    BOOST_TEST(called_back() != 0u);
    clock.advance(options.reverse_limit - 1ms);
    BOOST_TEST(quiet());
    BOOST_TEST(outcome == "");
    clock.advance(1ms);
    until([&] { return !outcome.empty(); });
    BOOST_TEST(outcome.find("does not answer") != std::string::npos, outcome);
    dispatcher.channel.reset();
}

// RFC 8166 4.5.2. A part of it would look like all of it.
BOOST_FIXTURE_TEST_CASE(a_result_that_its_chunk_does_not_hold_is_an_error, fixture)
{
    dispatcher.result_size = 101;
    start();
    call_with_write_chunk(1, 1, 100);
    expect_chunk_error(1);
    call_with_write_chunk(2, 2, 50);
    expect_chunk_error(2);
    call_with_write_chunk(3, 2, 51);
    for (int i = 0; i < 2; ++i)
        BOOST_TEST((receive()[1] == std::byte(0x40)));
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 3u);
}

BOOST_AUTO_TEST_SUITE_END()
