// SPDX-License-Identifier: Apache-2.0
// Grants of stores: what a peer writes and reads that is no memory, and in which order.
#include <boost/test/unit_test.hpp>

#include "iwarp_stores.hpp"

#include <algorithm>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(iwarp_stores_test)

using namespace verbena;
using namespace verbena::iwarp_by_hand;

BOOST_FIXTURE_TEST_CASE(a_write_comes_to_the_store_in_one_go_when_its_message_ends, with_stores)
{
    start();
    const int peer = connected();
    grant = granted_store(1000, 100'000);
    BOOST_TEST(grant.where().length == 100'000u);
    const bytes content = pattern(20'000, 1);
    const bytes all = message(grant, 5, content);
    arrives(peer, bytes(all.begin(), all.end() - 1));
    BOOST_TEST(log() == "");
    arrives(peer, bytes(all.end() - 1, all.end()));
    BOOST_TEST(log() == "write 1005+20000");
    BOOST_TEST((store->part(1005, 20'000) == content));
    BOOST_TEST(queue_pair->connected());
    BOOST_TEST(provider->counters().store_accesses == 1u);
    BOOST_TEST(provider->counters().store_waits == 0u);
}

// Its last segment may have no octet.
BOOST_FIXTURE_TEST_CASE(an_empty_segment_ends_a_message, with_stores)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 100'000);
    bytes first = message(grant, 0, pattern(100, 1));
    first[2] = std::byte(0x81);
    arrives(peer, first);
    BOOST_TEST(log() == "");
    arrives(peer, fpdu("c140" + hex(grant.where().key, 8) + hex(grant.where().address + 100, 16)));
    BOOST_TEST(log() == "write 0+100");
}

BOOST_FIXTURE_TEST_CASE(a_message_longer_than_the_buffer_comes_in_parts, with_stores)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 2'000'000);
    for (const std::size_t step : {std::size_t(1400), std::size_t(32'768), std::size_t(65'000)}) {
        const bytes content = pattern(1'000'000, unsigned(step));
        store->log.clear();
        send_all(peer, message(grant, 0, content, step));
        until([&] {
            return store->content.size() >= content.size() && store->part(0, content.size()) == content;
        });
        BOOST_TEST(store->log.size() >= 4u);
        BOOST_TEST(store->log.size() <= 6u);
    }
}

BOOST_FIXTURE_TEST_CASE(a_read_is_answered_from_the_store_and_with_zeros_behind_its_end, with_stores)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 10'000);
    std::ranges::copy(pattern(4096, 2), store->content.begin());
    write(peer, ready + read_request(grant, 100, 8000));
    bytes expected = pattern(4096, 2);
    expected.resize(8100);
    BOOST_TEST((response(peer, 8000) == bytes(expected.begin() + 100, expected.end())));
    BOOST_TEST(queue_pair->connected());
}

// More than the reader's buffer, and than the socket takes at once.
BOOST_FIXTURE_TEST_CASE(a_long_response_comes_in_pieces, with_stores)
{
    send_buffer = 8192;
    start();
    const int peer = connected();
    store->content = pattern(1'500'000, 3);
    grant = granted_store(0, 1'500'000);
    write(peer, ready + read_request(grant, 7, 1'400'000));
    BOOST_TEST((response(peer, 1'400'000) == store->part(7, 1'400'000)));
    BOOST_TEST(log() == "read 7+262144, read 262151+262144, read 524295+262144, read 786439+262144, "
                        "read 1048583+262144, read 1310727+89280");
    // And so with a disk that has each wait.
    store->log.clear();
    store->hangs = true;
    write(peer, read_request(grant, 0, 600'000, 2));
    until([&] { return store->log.size() == 1; });
    BOOST_TEST(is_silent(peer));
    store->goes_on();
    BOOST_TEST((response(peer, 600'000) == store->part(0, 600'000)));
}

// The response proves that the Writes before it are placed (RFC 5040 5.5).
BOOST_FIXTURE_TEST_CASE(a_read_waits_for_the_writes_before_it, with_stores)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 10'000);
    store->hangs = true;
    const bytes content = pattern(3000, 4);
    write(peer, message(grant, 0, content) + read_request(grant, 0, 3000));
    until([&] { return !store->log.empty(); });
    BOOST_TEST(is_silent(peer));
    BOOST_TEST(log() == "write 0+3000");
    store->goes_on();
    BOOST_TEST((response(peer, 3000) == content));
    BOOST_TEST(log() == "write 0+3000, read 0+3000");
    BOOST_TEST(provider->counters().store_waits == 1u);
    // Also those of a message that has not ended.
    bytes half = message(grant, 0, pattern(2000, 5));
    half[2] = std::byte(0x81);
    arrives(peer, half);
    write(peer, read_request(grant, 0, 2000, 2));
    BOOST_TEST((response(peer, 2000) == pattern(2000, 5)));
}

// A Send is told when what was written before it is there.
BOOST_FIXTURE_TEST_CASE(a_send_waits_for_the_writes_before_it, with_stores)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 10'000);
    store->hangs = true;
    write(peer, message(grant, 0, pattern(100, 1)) + fpdu("4143 00000000 00000000 00000001 00000000", 5));
    until([&] { return !store->log.empty(); });
    BOOST_TEST(is_silent(peer));
    BOOST_TEST(handler.seen.size() == 0u);
    store->goes_on();
    until([&] { return handler.seen.size() == 1; });
    BOOST_TEST(handler.seen[0].length == 5u);
}

BOOST_FIXTURE_TEST_CASE(writes_of_memory_and_of_stores_keep_their_order, with_stores)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 10'000);
    bytes memory(1000);
    auto other = granted(memory, verbs::access::remote_write);
    store->hangs = true;
    bytes all = message(grant, 0, pattern(100, 1)) + message(other, 0, pattern(1000, 2)) +
                message(grant, 100, pattern(100, 3)) + message(grant, 50, pattern(10, 4));
    write(peer, all);
    until([&] { return !store->log.empty(); });
    BOOST_TEST(is_silent(peer));
    BOOST_TEST((memory == bytes(1000)));
    store->goes_on();
    until([&] { return store->log.size() == 3; });
    BOOST_TEST((memory == pattern(1000, 2)));
    BOOST_TEST(log() == "write 0+100, write 100+100, write 50+10");
    BOOST_TEST((store->part(50, 10) == pattern(10, 4)));
    // A message that has not ended is written when another one comes.
    bytes half = message(grant, 0, pattern(64, 5));
    half[2] = std::byte(0x81);
    arrives(peer, half);
    BOOST_TEST(store->log.size() == 3u);
    arrives(peer, fpdu("4143 00000000 00000000 00000001 00000000", 5));
    BOOST_TEST(store->log.size() == 4u);
}

BOOST_FIXTURE_TEST_CASE(an_fpdu_with_a_wrong_crc_comes_to_no_store, with_stores)
{
    options.crc = iwarp::crc_mode::on;
    start();
    const int peer = connected();
    grant = granted_store(0, 100'000);
    arrives(peer, with_crc(message(grant, 0, pattern(5000, 1))));
    BOOST_TEST(log() == "write 0+5000");
    bytes bad = with_crc(message(grant, 0, pattern(8000, 2)));
    bad.back() ^= std::byte(1);
    arrives(peer, bad);
    expect_terminate(peer, "2002");
    BOOST_TEST(log() == "write 0+5000");
    BOOST_TEST((store->part(0, 5000) == pattern(5000, 1)));
}

// Nor does what the same message brought before.
BOOST_FIXTURE_TEST_CASE(a_message_with_a_wrong_crc_comes_to_no_store, with_stores)
{
    options.crc = iwarp::crc_mode::on;
    start();
    const int peer = connected();
    grant = granted_store(0, 100'000);
    bytes first = message(grant, 0, pattern(100, 1));
    first[2] = std::byte(0x81);
    arrives(peer, with_crc(first));
    bytes second = with_crc(message(grant, 100, pattern(100, 2)));
    second.back() ^= std::byte(1);
    arrives(peer, second);
    expect_terminate(peer, "2002");
    BOOST_TEST(log() == "");
}

// Others use the connection, and nobody else would hear why it ended.
BOOST_FIXTURE_TEST_CASE(what_a_store_can_not_write_is_dropped, with_stores)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 100'000);
    store->fails = true;
    arrives(peer, message(grant, 0, pattern(5000, 1)));
    BOOST_TEST(log() == "write 0+5000");
    BOOST_TEST(provider->counters().store_failures == 1u);
    BOOST_TEST(queue_pair->connected());
    // One that suspended, too.
    store->hangs = true;
    arrives(peer, message(grant, 0, pattern(50, 1)));
    store->goes_on();
    until([&] { return provider->counters().store_failures == 2u; });
    BOOST_TEST(queue_pair->connected());
    store->fails = false;
    write(peer, read_request(grant, 0, 10));
    BOOST_TEST((response(peer, 10) == bytes(10)));
}

BOOST_FIXTURE_TEST_CASE(what_a_store_can_not_read_ends_the_connection, with_stores)
{
    start();
    for (const bool waits : {false, true}) {
        const auto before = ends(end_cause::store_failed);
        const int peer = connected();
        if (!grant)
            grant = granted_store(0, 100'000);
        store->fails = true;
        store->hangs = waits;
        store->log.clear();
        write(peer, ready + read_request(grant, 0, 5000));
        until([&] { return store->log.size() == 1; });
        store->goes_on();
        expect_terminate(peer, "0207"); // catastrophic, of this stream
        ::shutdown(peer, SHUT_WR);
        until([&] { return ends(end_cause::store_failed) == before + 1 && handler.ended; });
        queue_pair.reset();
    }
}

// A call for a few octets costs as much as one for many.
BOOST_FIXTURE_TEST_CASE(a_peer_has_one_access_in_a_turn, with_stores)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 10'000);
    bytes many;
    for (unsigned i = 0; i < 20; ++i)
        many = std::move(many) + message(grant, i, pattern(1, i));
    write(peer, many);
    for (std::size_t before = 0; before < 20; before = store->log.size()) {
        clock.advance(10us);
        shard->turn();
        BOOST_TEST_REQUIRE(store->log.size() <= before + 1);
    }
}

// What it had read ahead waits with it. Others read ahead as before, and the place for those that wait for memory is free.
BOOST_FIXTURE_TEST_CASE(a_store_that_hangs_holds_up_its_own_connection_alone, with_stores)
{
    start();
    const int slow = connected();
    auto first = std::move(queue_pair);
    const int fast = connected();
    grant = granted_store(0, 10'000); // small enough that more is read at once than an FPDU
    bytes memory(2000);
    auto other = granted(memory, verbs::access::remote_write);
    store->hangs = true;
    bytes many;
    for (unsigned i = 0; i < 50; ++i)
        many = std::move(many) + message(grant, i * 100, pattern(100, i));
    arrives(slow, many);
    BOOST_TEST(log() == "write 0+100");
    // Nothing more of it is read.
    const auto received = provider->counters().bytes_received.load();
    write(slow, message(grant, 0, pattern(10, 99)));
    for (int i = 0; i < 10; ++i)
        shard->turn();
    BOOST_TEST(provider->counters().bytes_received == received);
    // In one call each time, as ever.
    for (unsigned i = 0; i < 3; ++i) {
        const auto calls = provider->counters().receives.load();
        bytes some;
        for (unsigned j = 0; j < 20; ++j)
            some = std::move(some) + message(other, j * 100, pattern(100, i + j));
        write(fast, some);
        until([&] { return provider->counters().bytes_received == received + (i + 1) * some.size(); });
        BOOST_TEST((memory.back() == pattern(100, i + 19).back()));
        BOOST_TEST(provider->counters().receives - calls <= 2u);
    }
    store->goes_on();
    until([&] { return store->log.size() == 51; });
    for (unsigned i = 1; i < 50; ++i)
        BOOST_TEST((store->part(i * 100, 100) == pattern(100, i)));
    BOOST_TEST((store->part(0, 10) == pattern(10, 99)));
    BOOST_TEST(first->connected());
}

BOOST_FIXTURE_TEST_CASE(each_connection_keeps_what_it_had_read_ahead, with_stores)
{
    start();
    grant = granted_store(0, 10'000);
    store->hangs = true;
    std::vector<std::unique_ptr<verbs::queue_pair>> all;
    for (unsigned c = 0; c < 3; ++c) {
        const int peer = connected();
        all.push_back(std::move(queue_pair));
        bytes some;
        for (unsigned i = 0; i < 10; ++i)
            some = std::move(some) + message(grant, c * 1000 + i * 100, pattern(100, c * 10 + i));
        arrives(peer, some);
        BOOST_TEST(store->log.size() == c + 1);
    }
    store->goes_on();
    until([&] { return store->log.size() == 30; });
    for (unsigned i = 0; i < 30; ++i)
        BOOST_TEST((store->part(i * 100, 100) == pattern(100, i)));
}

// It hangs again and again amid what was read ahead.
BOOST_FIXTURE_TEST_CASE(what_was_read_ahead_waits_for_each_write, with_stores)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 10'000); // small enough that more is read at once than an FPDU
    bytes many;
    for (unsigned i = 0; i < 20; ++i)
        many = std::move(many) + message(grant, i * 100, pattern(100, i));
    store->hangs = true;
    arrives(peer, many + read_request(grant, 0, 2000));
    for (std::size_t i = 1; i <= 20; ++i) {
        BOOST_TEST(store->log.size() == i);
        store->free.set();
        store->free.reset();
        if (i == 20)
            store->hangs = false;
        until([&] { return store->log.size() == i + 1; });
    }
    BOOST_TEST((response(peer, 2000) == store->part(0, 2000)));
}

// Our own requests go while the first octets of a response are being read.
BOOST_FIXTURE_TEST_CASE(a_store_that_hangs_does_not_hold_up_what_is_sent, with_stores)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 100'000);
    store->hangs = true;
    write(peer, ready + read_request(grant, 0, 50));
    until([&] { return store->log.size() == 1; });
    bytes text(8);
    const verbs::segment from{text.data(), 8, 0};
    verbs::send_request send;
    send.segments = {&from, 1};
    BOOST_REQUIRE(queue_pair->post_send({&send, 1}));
    const bytes sent = read(peer, 20 + 8 + 4);
    BOOST_TEST(to_hex(std::span(sent).subspan(2, 2)) == "4143");
    store->goes_on();
    BOOST_TEST(response(peer, 50).size() == 50u);
}

// Rights and bounds hold as for memory.
BOOST_FIXTURE_TEST_CASE(a_peer_reaches_what_its_grant_covers_alone, with_stores)
{
    start();
    grant = granted_store(1000, 500, verbs::access::remote_read);
    const auto refused_with = [&](const bytes& attack, std::string_view code) {
        const int peer = connected();
        write(peer, ready + attack);
        expect_terminate(peer, code);
        ::shutdown(peer, SHUT_WR);
        until([&] { return handler.ended; });
        queue_pair.reset();
    };
    refused_with(message(grant, 0, pattern(10, 1)), "0102");
    refused_with(read_request(grant, 499, 2), "0101");
    refused_with(read_request(grant, ~std::uint64_t(0), 2), "0101");
    BOOST_TEST(log() == "");
}

BOOST_FIXTURE_TEST_CASE(a_store_that_ends_behind_the_last_offset_is_not_granted, with_stores)
{
    start();
    verbs::grant_request asked;
    asked.store = store;
    asked.store_offset = ~std::uint64_t(0) - 5;
    asked.store_length = 7;
    bool done = false;
    tasks->spawn([&]() -> task<void> {
        const auto made = co_await domain->make_grants({&asked, 1});
        BOOST_TEST(!made.has_value());
        done = true;
    });
    until([&] { return done; });
    BOOST_TEST(provider->query().grants_stores);
}

BOOST_AUTO_TEST_SUITE_END()
