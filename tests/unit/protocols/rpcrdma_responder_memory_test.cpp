// SPDX-License-Identifier: Apache-2.0
// What calls hold of the memory: nobody waits for it without end, and no requester takes that of all.
#include <boost/test/unit_test.hpp>

#include "requests_in.hpp"
#include "rpcrdma_by_hand.hpp"

BOOST_AUTO_TEST_SUITE(rpcrdma_responder_memory_test)

using namespace verbena;
using namespace verbena::responder_test;

// What a reply needs is there, but another call waits for more than that, which the reply's own memory would be.
BOOST_FIXTURE_TEST_CASE(a_reply_does_not_wait_behind_a_call_that_waits_for_its_memory, fixture)
{
    dispatcher.result_size = 100;
    dispatcher.result_memory = 1 << 20;
    dispatcher.waits = true;
    start();
    leave(1, 1 << 20, 2);
    inline_call(1);
    inline_call(2);
    until([&] { return dispatcher.pulled == 2; });
    BOOST_TEST(dispatcher.prepared == 1u);
    dispatcher.go.set();
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 1u); // though no time passes
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 2u);
}

// Two buffers for each, one after the other, would let the calls that hold one wait for each other for ever.
BOOST_FIXTURE_TEST_CASE(long_calls_do_not_wait_for_each_other, fixture)
{
    constexpr std::uint32_t size = 1 << 20;
    start();
    leave(4, 2 << 20);
    for (std::uint32_t xid = 1; xid <= 6; ++xid)
        call_at_position_zero(xid, size);
    until([&] { return stats.calls.value() == 6; });
    for (unsigned replies = 0; replies < 6;) {
        const bytes message = receive();
        BOOST_REQUIRE(message.size() > 22u);
        if (const std::uint32_t xid = source_of(message); xid != 0)
            answer(message, call_head(xid, size));
        else
            ++replies;
    }
    BOOST_TEST(dispatcher.pulled == 6u);
    BOOST_TEST(stats.payload_copied_bytes.value() == 0u); // it was read to where it is looked at
}

// No answer can be made of it, and without one its requester would wait for ever.
BOOST_FIXTURE_TEST_CASE(a_long_call_for_which_there_is_no_memory_ends_the_connection, fixture)
{
    start();
    leave(0, 2 << 20, 1);
    call_at_position_zero(1, 1 << 20);
    until([&] { return pool->waits() == 1; });
    clock.advance(buffer_pool::call_patience - 1ms);
    BOOST_TEST(quiet());
    clock.advance(1ms);
    BOOST_TEST(receive().empty());
}

// A procedure hears that it has no room, and tells its client to come again.
BOOST_FIXTURE_TEST_CASE(results_wait_for_memory_as_long_as_a_call_may, fixture)
{
    dispatcher.reserved = 1 << 20;
    start();
    leave(0, 1 << 20, 1);
    inline_call(1);
    until([&] { return pool->waits() == 1; });
    clock.advance(buffer_pool::call_patience - 1ms);
    BOOST_TEST(quiet());
    clock.advance(1ms);
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 1u);
    BOOST_TEST(dispatcher.starved == 1u);
}

// Others have all of it. The peer is held back, and nothing of it is lost.
BOOST_FIXTURE_TEST_CASE(a_message_without_memory_waits_for_it, fixture)
{
    options.credits = 1;
    start();
    leave(0, 4096);
    for (std::uint32_t xid = 1; xid <= 5; ++xid)
        inline_call(xid);
    BOOST_TEST(quiet());
    BOOST_TEST(stats.receive_shortages.value() == 1u);
    BOOST_TEST(stats.calls.value() == 0u);
    // One buffer serves them all, one after the other.
    held.pop_back();
    clock.advance(1ms);
    for (std::uint32_t xid = 1; xid <= 5; ++xid) {
        until([&] { return !quiet(); });
        BOOST_TEST(xdr::load_u32(receive().data() + 18) == xid);
        clock.advance(1ms);
    }
    BOOST_TEST(pool->outstanding() == held.size() + 1); // stands for the next one
}

// Longer than a peer may take for an FPDU: it is not the peer's fault.
BOOST_FIXTURE_TEST_CASE(a_message_may_wait_longer_than_a_peer_may_take, fixture)
{
    start();
    leave(0, 4096);
    inline_call(1);
    BOOST_TEST(quiet());
    clock.advance(10min);
    BOOST_TEST(quiet());
    held.pop_back();
    clock.advance(1ms);
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 1u);
}

// What came with it is kept, and the connection reads no more than one message at a time.
BOOST_FIXTURE_TEST_CASE(messages_in_pieces_wait_for_memory, fixture)
{
    start();
    leave(0, 4096);
    bytes all;
    for (std::uint32_t xid = 1; xid <= 20; ++xid) {
        const bytes one = inline_message(xid);
        all.insert(all.end(), one.begin(), one.end());
    }
    const std::size_t first = all.size() / 3 + 1;
    write({all.begin(), all.begin() + std::ptrdiff_t(first)});
    BOOST_TEST(quiet());
    write({all.begin() + std::ptrdiff_t(first), all.end()});
    BOOST_TEST(quiet());
    for (std::uint32_t xid = 1; xid <= 20; ++xid) {
        if (xid == 1)
            held.pop_back();
        clock.advance(1ms);
        until([&] { return !quiet(); });
        BOOST_TEST(xdr::load_u32(receive().data() + 18) == xid);
    }
}

// A peer that goes while its message waits leaves nothing behind, and the memory goes to the next one.
BOOST_FIXTURE_TEST_CASE(the_end_of_a_connection_that_waits_for_memory, fixture)
{
    start();
    leave(0, 4096);
    inline_call(1);
    BOOST_TEST(quiet());
    const int first = std::exchange(peer, -1);
    ask_to_connect();
    BOOST_TEST(read(32).size() == 32u);
    inline_call(2);
    BOOST_TEST(quiet());
    ::close(first);
    BOOST_TEST(quiet());
    held.pop_back();
    clock.advance(1ms);
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 2u);
    until([&] { return stats.connections.value() == 1; });
}

// It began a message, which takes a receive that others could use.
BOOST_AUTO_TEST_CASE(a_peer_that_does_not_end_its_message_keeps_no_receive)
{
    for (const bool whole_fpdus : {false, true}) {
        fixture f;
        f.start();
        if (whole_fpdus) {
            f.write(fixture::part_of_send(1, 0, bytes(100), false));
        } else {
            const bytes call = f.inline_message(1);
            f.write({call.begin(), call.begin() + 30});
        }
        f.until([&] { return f.pool->outstanding() == 1u; });
        for (int i = 0; i < 59; ++i) {
            f.clock.advance(1s);
            BOOST_TEST(f.quiet());
            if (whole_fpdus) // each in time, but not the message
                f.write(fixture::part_of_send(1, 100 + std::uint32_t(i), bytes(1), false));
        }
        BOOST_TEST(f.quiet());
        BOOST_TEST(f.stats.connections.value() == 1);
        f.clock.advance(2s);
        f.until([&] { return f.stats.connections.value() == 0; });
        BOOST_TEST(f.pool->outstanding() == 0u);
    }
}

// The Read Responses would stand behind a Send that waits.
BOOST_FIXTURE_TEST_CASE(a_read_has_a_receive_in_reserve, fixture)
{
    start();
    call(1);
    const bytes request = receive();
    BOOST_REQUIRE(request.size() == 46u);
    leave(0, 4096);
    inline_call(2);
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 2u);
    answer(request);
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 1u);
    held.clear();
    BOOST_TEST(quiet());
    BOOST_TEST(pool->outstanding() <= 1u); // the next reserve, which nobody needed any more
}

// A Read is under way, and a message stands in front of its answer that has no memory.
struct short_of_memory : fixture {
    void begin()
    {
        dispatcher.result_size = 4;
        start();
        call(1);
        BOOST_REQUIRE(receive().size() == 46u);
        leave(1, 4096);
        clock.advance(options.read_limit - 10s);
        for (std::uint32_t xid = 2; xid <= 4; ++xid) // two have memory, and wait for that of their results
            inline_call(xid);
        BOOST_TEST(quiet());
        BOOST_TEST(stats.receive_shortages.value() != 0u);
    }
    bool is_there() { return stats.connections.value() == 1; }
};

// That is not its time.
BOOST_FIXTURE_TEST_CASE(a_requester_is_not_blamed_for_our_want_of_memory, short_of_memory)
{
    begin();
    clock.advance(9s);
    BOOST_TEST(quiet());
    BOOST_TEST(is_there());
    held.clear();
    clock.advance(1ms);
    for (std::uint32_t xid = 2; xid <= 4; ++xid)
        BOOST_TEST(xdr::load_u32(receive().data() + 18) == xid);
    clock.advance(10s - 10ms);
    BOOST_TEST(quiet());
    BOOST_REQUIRE(is_there());
    // It has had its time now, and answers nothing.
    clock.advance(20ms);
    BOOST_TEST(receive().empty());
    BOOST_TEST(stats.stalled_reads.value() == 1u);
    BOOST_TEST(stats.starved_reads.value() == 0u);
}

// It may be the memory of these Reads that is missing.
BOOST_FIXTURE_TEST_CASE(answers_do_not_wait_for_our_memory_without_end, short_of_memory)
{
    begin();
    clock.advance(options.read_limit - 1ms);
    BOOST_TEST(quiet());
    BOOST_TEST(is_there());
    clock.advance(1ms);
    (void)quiet();
    BOOST_REQUIRE(!is_there());
    BOOST_TEST(stats.stalled_reads.value() == 0u);
    BOOST_TEST(stats.starved_reads.value() == 1u);
}

// One read of the socket brings thousands of such messages, which use no credit and which nobody answers.
BOOST_FIXTURE_TEST_CASE(a_flood_of_small_messages_ends_its_connection, fixture)
{
    options.credits = 16;
    start();
    bytes flood;
    for (int i = 0; i < 4000; ++i) {
        const bytes one = part_of_send(++sequence, 0, {}, true);
        flood.insert(flood.end(), one.begin(), one.end());
    }
    write(flood);
    until([&] { return provider->counters().active == 0; });
    BOOST_TEST(stats.credit_overruns.value() == 1u);
    BOOST_TEST(pool->outstanding() == 0u);
    BOOST_TEST(pool->budget().used() <= std::size_t(4) << 20); // what so many at once would take is 16 MiB
}

// And gives it back.
BOOST_FIXTURE_TEST_CASE(a_read_keeps_no_receive_when_it_is_over, fixture)
{
    start();
    call(1);
    const bytes request = receive();
    BOOST_REQUIRE(request.size() == 46u);
    BOOST_TEST(pool->outstanding() == 3u); // the message, the argument, the reserve
    answer(request);
    (void)receive();
    BOOST_TEST(quiet());
    BOOST_TEST(pool->outstanding() == 0u);
}

// What stands behind it may be replies, whose memory is what is missing.
BOOST_FIXTURE_TEST_CASE(a_read_without_memory_for_a_reserve_goes_all_the_same, fixture)
{
    start();
    leave(0, 4096, 2); // the message and the argument
    call(1, 2000);
    const bytes request = receive();
    BOOST_REQUIRE(request.size() == 46u);
    answer(request);
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 1u);
}

struct growing : fixture {
    explicit growing(std::uint32_t most = 16)
    {
        options.credits = most;
        options.idle_credits = 2;
    }
    // So many calls come at once; what the last reply grants.
    std::uint32_t granted_to(std::uint32_t calls, std::uint32_t asked = 1000)
    {
        bytes all;
        for (std::uint32_t i = 0; i < calls; ++i) {
            bytes call = inline_message(++xid);
            xdr::store_u32(call.data() + 28, asked);
            all.insert(all.end(), call.begin(), call.end());
        }
        write(all);
        std::uint32_t granted = 0;
        for (std::uint32_t i = 0; i < calls; ++i) {
            const bytes reply = receive();
            BOOST_REQUIRE(reply.size() > 30u);
            granted = xdr::load_u32(reply.data() + 26);
        }
        return granted;
    }
    std::uint32_t xid = 0;
};

// One that makes a call now and then holds little.
BOOST_FIXTURE_TEST_CASE(credits_grow_with_what_a_requester_uses, growing)
{
    start();
    for (int i = 0; i < 20; ++i) {
        BOOST_TEST(granted_to(1) == 2u);
        clock.advance(options.credit_window + 1ms);
    }
    BOOST_TEST(stats.credit_raises.value() == 0u);
    // Together, or one after the other.
    BOOST_TEST(granted_to(2) == 4u);
    BOOST_TEST(granted_to(1) == 4u);
    BOOST_TEST(granted_to(2) == 4u);
    BOOST_TEST(granted_to(1) == 8u);
    BOOST_TEST(granted_to(8) == 16u);
    BOOST_TEST(granted_to(16) == 16u);
    BOOST_TEST(stats.credit_raises.value() == 3u);
    clock.advance(options.credit_window + 1ms);
    BOOST_TEST(granted_to(1) == 16u);
    // As many as were granted come at once.
    BOOST_TEST(granted_to(16) == 16u);
}

BOOST_FIXTURE_TEST_CASE(nobody_gets_more_credits_than_it_asks_for, growing)
{
    start();
    BOOST_TEST(granted_to(2, 3) == 3u);
    BOOST_TEST(granted_to(3, 3) == 3u);
    BOOST_TEST(granted_to(3, 4) == 4u);
}

BOOST_FIXTURE_TEST_CASE(receives_of_all_connections_have_a_bound, growing)
{
    options.max_raised_bytes = 2 * 4096;
    start();
    BOOST_TEST(granted_to(2) == 4u);
    BOOST_TEST(granted_to(4) == 4u);
    // What the connection had is there for the next one when it has ended.
    ask_to_connect();
    BOOST_TEST(read(32).size() == 32u);
    until([&] { return stats.connections.value() == 1; });
    BOOST_TEST(granted_to(2) == 4u);
    BOOST_TEST(stats.credit_raises.value() == 2u);
}

// One connection may always have all its credits, so that a small share is of use.
BOOST_FIXTURE_TEST_CASE(receives_of_an_address_have_a_bound, growing)
{
    options.max_address_raised_bytes = 6 * 4096;
    start();
    BOOST_TEST(granted_to(2) == 4u);
    BOOST_TEST(granted_to(4) == 8u);
    BOOST_TEST(granted_to(8) == 16u);
    const int first = std::exchange(peer, -1);
    ask_to_connect();
    BOOST_TEST(read(32).size() == 32u);
    until([&] { return stats.connections.value() == 2; });
    BOOST_TEST(granted_to(2) == 2u);
    ::close(first);
    until([&] { return stats.connections.value() == 1; });
    clock.advance(options.credit_window + 1ms);
    BOOST_TEST(granted_to(2) == 4u);
}

// Nor does it keep from others, meanwhile, what is too small for it.
BOOST_FIXTURE_TEST_CASE(a_message_that_waits_holds_nobody_up, fixture)
{
    constexpr std::size_t size = 256 << 10;
    options.credits = 1;
    options.inline_size = size;
    start();
    lease small = pool->try_acquire(4096); // and there are more where it comes from
    leave(0, size);
    inline_call(1);
    BOOST_TEST(quiet());
    scope more(*shard);
    const std::size_t before = held.size();
    more.spawn([&] { return hog(4096); });
    until([&] { return held.size() > before; });
    more.request_stop();
    until([&] { return more.live() == 0; });
    held.clear();
    clock.advance(1ms);
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 1u);
}

// What a requester may have under way at once by its credits, at the size that Linux asks for.
BOOST_FIXTURE_TEST_CASE(a_full_share_of_reads_and_small_calls_beside_them_wait_for_nothing, fixture)
{
    dispatcher.result_size = 1 << 20;
    dispatcher.result_memory = 1 << 20;
    dispatcher.waits = true;
    start();
    std::uint32_t xid = 1;
    for (; xid <= 32; ++xid)
        call_with_write_chunk(xid, 1, 1 << 20);
    until([&] { return dispatcher.prepared == 32; });
    dispatcher.result_size = 0;
    for (; xid <= 128; ++xid)
        inline_call(xid);
    until([&] { return dispatcher.pulled == 128; });
    BOOST_TEST(stats.chunk_waits.value() == 0u);
    call_with_write_chunk(xid, 1, 1 << 20); // over the share
    until([&] { return stats.chunk_waits.value() == 1; });
}

BOOST_FIXTURE_TEST_CASE(a_procedure_is_told_what_its_caller_has_room_for, fixture)
{
    start();
    inline_call(1);
    (void)receive();
    BOOST_TEST(dispatcher.most_result == 1024u); // RFC 8166 3.3.2
    call_with_write_chunk(2, 3, 100);
    (void)receive();
    BOOST_TEST(dispatcher.most_result == 300u);
    bytes u = from_hex("4143 00000000 00000000");
    put(u, {++sequence, 0, 3, 1, 32, 0, 0, 0, 1, 2, 7, 3000, 0, 0, 8, 2000, 0, 0}); // Reply chunk
    put(u, {3, 0, 2, 1, 1, 1, 0, 0, 0, 0, 4, 0x61626364});
    write(fpdu(u));
    (void)receive();
    BOOST_TEST(dispatcher.most_result == 5000u);
}

namespace {

// Answered calls whose Sends complete only when the first one's Read is answered.
struct behind_a_read : fixture {
    behind_a_read()
    {
        options.credits = 4;
        receives = (4 + 8) * 4096;
    }
    void begin()
    {
        start();
        call(xid);
        request = receive();
        BOOST_REQUIRE(request.size() == 46u);
        dispatcher.result_size = 100;
        dispatcher.result_memory = 1 << 20;
    }
    /// How many calls are answered, of at most `most`.
    std::uint32_t answered(std::uint32_t most, const std::function<void(std::uint32_t)>& make)
    {
        for (std::uint32_t n = 0; n < most; ++n) {
            make(++xid);
            if (quiet())
                return n;
            while (!quiet())
                (void)receive();
        }
        return most;
    }
    bytes request; ///< of the Read
    std::size_t receives;
    std::uint32_t xid = 1;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_small_result_keeps_no_large_buffer, behind_a_read)
{
    begin();
    BOOST_TEST(answered(100, [&](std::uint32_t x) { inline_call(x); }) == 100u);
    BOOST_TEST(pool->outstanding_bytes() <= receives + 102 * 4096);
    BOOST_TEST(stats.chunk_waits.value() == 0u);
}

// Whatever the call was to move: here 100 bytes.
BOOST_FIXTURE_TEST_CASE(what_answered_calls_keep_counts, behind_a_read)
{
    options.max_chunk_bytes = 8 << 20;
    begin();
    const auto make = [&](std::uint32_t x) { call_with_write_chunk(x, 1, 100); };
    BOOST_TEST(answered(100, make) == 8u);
    BOOST_TEST(pool->outstanding_bytes() <= receives + (9 << 20));
    BOOST_TEST(stats.chunk_waits.value() == 1u);
    answer(request);
    BOOST_TEST(answered(1, make) == 1u);
    until([&] { return dispatcher.pulled == 11; });
    BOOST_TEST(pool->outstanding_bytes() <= receives);
}

// 2 MiB each, since buffers come in powers of two.
BOOST_AUTO_TEST_CASE(calls_under_way_count_as_the_buffers_that_they_take)
{
    for (const bool whole : {false, true}) {
        fixture f;
        f.options.max_chunk_bytes = 4 << 20;
        f.start();
        for (std::uint32_t xid = 1; xid <= 4; ++xid) {
            if (whole)
                f.call_at_position_zero(xid, 1 << 20);
            else
                f.call(xid, (1 << 20) + 4);
        }
        f.until([&] { return f.stats.calls.value() == 4; });
        BOOST_TEST(f.quiet() == false); // two Read Requests
        BOOST_TEST(f.stats.chunk_waits.value() == 2u);
    }
}

// As many as there are credits, and the slack, cost nothing; further ones have their buffer counted.
BOOST_FIXTURE_TEST_CASE(calls_that_keep_no_more_than_their_message_count_too, behind_a_read)
{
    options.max_chunk_bytes = 20 * 4096; // one of them for the Read
    begin();
    BOOST_TEST(answered(100, [&](std::uint32_t x) { inline_call(x); }) == 11u + 19u);
    BOOST_TEST(stats.chunk_waits.value() == 1u);
    answer(request);
    until([&] { return dispatcher.pulled == 32; });
}

// And so have those that are refused.
BOOST_FIXTURE_TEST_CASE(calls_that_are_refused_count_too, behind_a_read)
{
    options.max_chunk_bytes = 20 * 4096;
    begin();
    const auto make = [&](std::uint32_t x) {
        bytes u = from_hex("4143 00000000 00000000");
        put(u, {++sequence, 0, x, 2, 32, 0, 0, 0, 0, x, 0, 2, 1, 1, 1, 0, 0, 0, 0, 0}); // version 2
        write(fpdu(u));
    };
    BOOST_TEST(answered(100, make) == 11u + 19u);
    // The one that waits for its refusal is shown with what it waits for.
    const auto shown = verbena::test::requests_in(*shard);
    const auto waits = [](const std::string& r) { return r.find("that move data by RDMA") != r.npos; };
    BOOST_TEST(std::ranges::count_if(shown, waits) == 1);
    answer(request);
    until([&] { return stats.version_errors.value() == 31; });
    BOOST_TEST(std::ranges::none_of(verbena::test::requests_in(*shard), waits));
}

// What comes behind the fault in one batch counts all the same: a call waits for its Read, without end if need be.
BOOST_AUTO_TEST_CASE(a_peer_that_breaks_a_rule_beside_the_end_of_a_read_leaves_nothing_behind)
{
    struct {
        bool immediate_first;
        bool at_position_zero;
    } const all[] = {{true, true}, {true, false}, {false, true}, {false, false}};
    for (const auto& a : all) {
        BOOST_TEST_CONTEXT((a.immediate_first ? "immediate, Read" : "Read, immediate")
                           << (a.at_position_zero ? ", the whole call" : ", an argument"))
        {
            fixture f;
            f.start();
            if (a.at_position_zero)
                f.call_at_position_zero(1, argument_size);
            else
                f.call(1);
            const bytes request = f.receive();
            BOOST_REQUIRE(request.size() == 46u);
            bytes one_segment = a.immediate_first ? f.immediate_data() : fixture::read_response(request);
            const bytes rest = a.immediate_first ? fixture::read_response(request) : f.immediate_data();
            one_segment.insert(one_segment.end(), rest.begin(), rest.end());
            f.write(one_segment);
            f.until([&] { return f.provider->counters().active == 0u; });
            for (int i = 0; i < 20; ++i)
                f.shard->turn();
            BOOST_TEST(f.stats.connections.value() == 0);
            BOOST_TEST(f.pool->outstanding() == 0u);
            BOOST_TEST(f.tasks->live() == 1u); // who takes connections
            BOOST_TEST(f.dispatcher.pulled <= 1u);
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
