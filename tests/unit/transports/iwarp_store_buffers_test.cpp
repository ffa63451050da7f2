// SPDX-License-Identifier: Apache-2.0
// The memory by which stores are read and written for peers: of the shard's budget, for one access, in turn.
#include <boost/test/unit_test.hpp>

#include "iwarp_store_memory.hpp"

#include <algorithm>
#include <string>
#include <sys/ioctl.h>
#include <vector>

BOOST_AUTO_TEST_SUITE(iwarp_store_buffers_test)

using namespace verbena;
using namespace verbena::iwarp_by_hand;

BOOST_FIXTURE_TEST_CASE(a_buffer_is_of_the_budget_and_held_for_one_access, with_budget)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 400'000);
    BOOST_TEST(pool.outstanding() == 0u);
    // Of one FPDU, and of more to come.
    store->hangs = true;
    write(peer, message(grant, 0, pattern(5000, 1)));
    until([&] { return store->log.size() == 1; });
    BOOST_TEST(pool.outstanding_bytes() == 8 * kib);
    BOOST_TEST(in_use() == 8 * kib);
    store->goes_on();
    until([&] { return in_use() == 0; });
    BOOST_TEST(pool.outstanding() == 0u);
    arrives(peer, half(grant, 0, 100));
    BOOST_TEST(pool.outstanding_bytes() == 256 * kib);
    arrives(peer, message(grant, 100, pattern(100, 1)));
    BOOST_TEST(pool.outstanding() == 0u);
    // That of a Read until the octets are out.
    store->hangs = true;
    write(peer, read_request(grant, 0, 5000));
    until([&] { return store->log.size() == 3; });
    BOOST_TEST(pool.outstanding_bytes() == 8 * kib);
    store->goes_on();
    BOOST_TEST(response(peer, 5000).size() == 5000u);
    BOOST_TEST(pool.outstanding() == 0u);
    BOOST_TEST(in_use() == 0u);
    BOOST_TEST(waits() == 0u);
}

// A peer that begins a message and does nothing more has none after a while.
BOOST_FIXTURE_TEST_CASE(a_connection_that_is_idle_has_no_buffer, with_budget)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 100'000);
    arrives(peer, half(grant, 0, 100));
    BOOST_TEST(pool.outstanding() == 1u);
    milliseconds(2500);
    BOOST_TEST(log() == "write 0+100");
    BOOST_TEST(pool.outstanding() == 0u);
}

// A part of an FPDU has come; octets of a response are still to be sent; what had been read ahead stands behind a
// write.
BOOST_FIXTURE_TEST_CASE(a_buffer_that_is_in_use_is_not_taken_for_idle, with_budget)
{
    send_buffer = 8192;
    start();
    const int peer = connected();
    grant = granted_store(0, 1'000'000);
    store->content = pattern(300'000, 3);
    const auto seconds = [&](int n) {
        for (int i = 0; i < 10 * n; ++i) {
            clock.advance(100ms);
            shard->turn();
        }
    };
    const bytes content = pattern(30'000, 4);
    const bytes all = message(grant, 0, content, 30'000);
    arrives(peer, bytes(all.begin(), all.begin() + 10'000));
    seconds(5);
    arrives(peer, bytes(all.begin() + 10'000, all.end()));
    BOOST_TEST((store->part(0, 30'000) == content));
    write(peer, read_request(grant, 0, 300'000));
    until([&] { return store->log.size() == 2; });
    seconds(5);
    BOOST_TEST(pool.outstanding() == 1u);
    BOOST_TEST((response(peer, 300'000) == store->part(0, 300'000)));
    store->hangs = true;
    bytes many;
    for (unsigned i = 0; i < 20; ++i)
        many = std::move(many) + message(grant, i * 100, pattern(100, i));
    write(peer, many);
    seconds(5);
    BOOST_TEST(store->log.size() == 4u);
    store->goes_on();
    until([&] { return store->log.size() == 23; });
    for (unsigned i = 0; i < 20; ++i)
        BOOST_TEST((store->part(i * 100, 100) == pattern(100, i)));
    until([&] { return pool.outstanding() == 0; });
}

// The reserve goes round. No connection ends, and each has one access in its turn.
BOOST_FIXTURE_TEST_CASE(with_no_memory_connections_take_turns, with_budget)
{
    start();
    grant = granted_store(0, 100'000);
    spend();
    store->hangs = true;
    for (unsigned c = 0; c < 3; ++c) {
        const int peer = one_more();
        bytes some;
        for (unsigned i = 0; i < 3; ++i)
            some = std::move(some) + message(grant, c * 1000 + i * 100, pattern(100, c * 10 + i));
        write(peer, some);
        milliseconds(3);
    }
    BOOST_TEST(log() == "write 0+100");
    BOOST_TEST(in_use() == 0u);
    for (unsigned i = 1; i < 9; ++i) {
        one_goes_on();
        until([&] { return store->log.size() == i + 1; });
        milliseconds(2);
        BOOST_TEST_REQUIRE(store->log.size() == i + 1);
    }
    BOOST_TEST(log() == "write 0+100, write 1000+100, write 2000+100, write 100+100, write 1100+100, "
                        "write 2100+100, write 200+100, write 1200+100, write 2200+100");
    store->goes_on();
    milliseconds(2);
    for (const auto& each : all)
        BOOST_TEST(each->connected());
    for (unsigned c = 0; c < 3; ++c) {
        for (unsigned i = 0; i < 3; ++i)
            BOOST_TEST((store->part(c * 1000 + i * 100, 100) == pattern(100, c * 10 + i)));
    }
    BOOST_TEST(waits() >= 6u);
}

// More than the reserve holds goes in parts of it, others in between.
BOOST_FIXTURE_TEST_CASE(with_no_memory_long_transfers_take_turns, with_budget)
{
    start();
    grant = granted_store(0, 1'000'000);
    store->content = pattern(400'000, 3);
    spend();
    const int first = one_more(), second = one_more();
    write(first, ready + read_request(grant, 0, 150'000));
    write(second, ready + read_request(grant, 200'000, 150'000));
    BOOST_TEST((response(first, 150'000) == store->part(0, 150'000)));
    BOOST_TEST((response(second, 150'000) == store->part(200'000, 150'000)));
    BOOST_TEST(log() == "read 0+65536, read 200000+65536, read 65536+65536, read 265536+65536, "
                        "read 131072+18928, read 331072+18928");
    const bytes content = pattern(200'000, 4);
    send_all(first, message(grant, 0, content, 32'768));
    until([&] { return store->part(0, content.size()) == content; });
    BOOST_TEST(all[0]->connected());
}

BOOST_FIXTURE_TEST_CASE(who_waits_for_a_buffer_goes_on_when_there_is_memory, with_budget)
{
    start();
    grant = granted_store(0, 100'000);
    const int first = one_more(), second = one_more(), third = one_more();
    spend();
    store->hangs = true;
    write(first, message(grant, 0, pattern(100, 1)));
    until([&] { return store->log.size() == 1; });
    write(second, message(grant, 100, pattern(100, 2)));
    write(third, ready + read_request(grant, 200, 100));
    milliseconds(50);
    // However long: what it needs for that is not taken for idle.
    for (int i = 0; i < 50; ++i) {
        clock.advance(100ms);
        shard->turn();
    }
    BOOST_TEST(store->log.size() == 1u);
    BOOST_TEST(waits() == 2u);
    // The layer above doesn't take it for the peer's time.
    BOOST_TEST(all[1]->pauses().lasts);
    spent.clear();
    milliseconds(2);
    BOOST_TEST(std::ranges::count(store->log, "write 100+100") == 1);
    BOOST_TEST(std::ranges::count(store->log, "read 200+100") == 1);
    BOOST_TEST(!all[1]->pauses().lasts);
    BOOST_TEST((all[1]->pauses().over >= 50ms));
    store->goes_on();
    BOOST_TEST(response(third, 100).size() == 100u);
    until([&] { return pool.outstanding() == 0; });
}

// It leaves the line, and who stands behind it does not wait for it.
BOOST_FIXTURE_TEST_CASE(a_connection_that_waits_for_a_buffer_ends, with_budget)
{
    start();
    grant = granted_store(0, 100'000);
    spend();
    store->hangs = true;
    const int holder = one_more();
    write(holder, message(grant, 0, pattern(100, 1)));
    until([&] { return store->log.size() == 1; });
    const int leaves = one_more(), reads = one_more(), last = one_more();
    write(leaves, message(grant, 100, pattern(100, 2)));
    milliseconds(1);
    write(reads, ready + read_request(grant, 0, 100));
    milliseconds(1);
    write(last, message(grant, 300, pattern(100, 3)));
    milliseconds(1);
    BOOST_TEST(waits() == 3u);
    // It is noticed, though nothing of it is read.
    ::shutdown(leaves, SHUT_WR);
    until([&] { return ends(end_cause::peer_reset) == 1; });
    all[2]->kill(error(std::errc::connection_aborted));
    one_goes_on();
    until([&] { return store->log.size() == 2; });
    BOOST_TEST(log() == "write 0+100, write 300+100");
    store->goes_on();
}

BOOST_FIXTURE_TEST_CASE(a_grant_goes_while_a_write_of_it_waits_for_a_buffer, with_budget)
{
    start();
    grant = granted_store(0, 100'000);
    auto other = granted_store(0, 100'000);
    spend();
    store->hangs = true;
    write(one_more(), message(other, 0, pattern(100, 1)));
    until([&] { return store->log.size() == 1; });
    const int peer = one_more();
    write(peer, message(grant, 100, pattern(100, 2)));
    milliseconds(1);
    BOOST_TEST(waits() == 1u);
    take_back(); // it waits for no access
    store->goes_on();
    expect_terminate(peer, "1100");
    BOOST_TEST(log() == "write 0+100");
    grant = std::move(other);
    revoked = false;
}

// What had been read with its header is in the context's place, and others take no more than they need from their
// sockets.
BOOST_FIXTURE_TEST_CASE(what_was_read_ahead_waits_with_a_write_without_memory, with_budget)
{
    start();
    grant = granted_store(0, 10'000); // small enough that more is read at once than an FPDU
    spend();
    store->hangs = true;
    std::vector<int> sockets;
    for (unsigned c = 0; c < 3; ++c) {
        sockets.push_back(one_more());
        bytes some;
        for (unsigned i = 0; i < 10; ++i)
            some = std::move(some) + message(grant, c * 1000 + i * 100, pattern(100, c * 10 + i));
        write(sockets.back(), some);
        milliseconds(1);
    }
    BOOST_TEST(store->log.size() == 1u);
    BOOST_TEST(pool.outstanding() == spent.size());
    store->goes_on();
    until([&] { return store->log.size() == 30; });
    for (unsigned c = 0; c < 3; ++c) {
        for (unsigned i = 0; i < 10; ++i)
            BOOST_TEST((store->part(c * 1000 + i * 100, 100) == pattern(100, c * 10 + i)));
    }
}

// A rule that is broken meanwhile is answered at once, and what waits is not sent.
BOOST_FIXTURE_TEST_CASE(a_response_that_waits_for_a_buffer_makes_way_for_a_terminate, with_budget)
{
    start();
    grant = granted_store(0, 1'000'000);
    const int peer = one_more(), holder = one_more();
    spend();
    write(peer, ready + read_request(grant, 0, 600'000));
    until([&] { return store->log.size() == 1; });
    store->hangs = true;
    write(holder, message(grant, 0, pattern(100, 1)));
    const auto drain = [&] {
        std::byte b[4096];
        return ::recv(peer, b, sizeof b, MSG_DONTWAIT);
    };
    until([&] {
        (void)drain();
        return store->log.size() == 2;
    });
    until([&] { return drain() < 0 && errno == EAGAIN; });
    write(peer, fpdu("414f 00000000 00000000 00000001 00000000", 5)); // no such opcode
    expect_terminate(peer, "0206");
    store->goes_on();
}

// So that few large transfers don't leave the others waiting.
BOOST_FIXTURE_TEST_CASE(beyond_half_of_what_may_be_in_use_buffers_are_small, with_budget)
{
    options.max_store_bytes = 512 * kib;
    start();
    grant = granted_store(0, 1'000'000);
    const int first = one_more(), second = one_more();
    arrives(first, half(grant, 0, 100));
    BOOST_TEST(in_use() == 256 * kib);
    arrives(second, half(grant, 1000, 100));
    BOOST_TEST(in_use() == 256 * kib);
    BOOST_TEST(log() == "write 1000+100");
    // And no more than that are in use, whatever the pool has.
    std::vector<int> sockets;
    for (unsigned i = 0; i < 6; ++i) {
        sockets.push_back(one_more());
        store->hangs = true;
        write(sockets.back(), message(grant, 2000, pattern(60'000, i), 60'000));
        milliseconds(1);
    }
    BOOST_TEST(in_use() == 512 * kib);
    BOOST_TEST(waits() == 1u);
    store->goes_on();
    milliseconds(5);
}

// One octet each 50 s, so that TCP takes the peer for alive.
BOOST_FIXTURE_TEST_CASE(a_peer_that_takes_its_octets_slowly_keeps_no_buffer_that_others_wait_for, with_budget)
{
    send_buffer = 8192;
    start();
    grant = granted_store(0, 1'000'000);
    store->content = pattern(200'000, 3);
    const int slow = one_more(), other = one_more();
    spend();
    const auto passes = [&](int seconds) {
        for (int i = 0; i < seconds; ++i) {
            if (i % 50 == 0) {
                std::byte b;
                (void)::recv(slow, &b, 1, MSG_DONTWAIT);
            }
            for (int turn = 0; turn < 10; ++turn) {
                clock.advance(100ms);
                shard->turn();
            }
        }
    };
    write(slow, ready + read_request(grant, 0, 200'000));
    until([&] { return store->log.size() == 1; });
    // As long as nobody else needs it.
    passes(600);
    BOOST_TEST(all[0]->connected());
    write(other, ready + read_request(grant, 0, 200'000));
    passes(4);
    BOOST_TEST(!all[0]->connected());
    BOOST_TEST(ends(end_cause::slow_reader) == 1u);
    BOOST_TEST((response(other, 200'000) == store->part(0, 200'000)));
    BOOST_TEST(all_ends() == 1u);
}

// Who waits first does not see the other one go before its time.
BOOST_FIXTURE_TEST_CASE(a_peer_has_its_time_to_take_its_octets, with_budget)
{
    send_buffer = 8192;
    start();
    grant = granted_store(0, 1'000'000);
    store->content = pattern(200'000, 3);
    const int slow = one_more(), other = one_more(), stops = one_more();
    spend();
    const auto passes = [&](duration time) {
        for (duration done{}; done < time; done += 100ms) {
            clock.advance(100ms);
            shard->turn();
        }
    };
    write(slow, ready + read_request(grant, 0, 200'000));
    until([&] { return store->log.size() == 1; });
    write(other, ready + read_request(grant, 0, 100));
    passes(options.fpdu_limit - 500ms);
    int socket_holds = 0;
    BOOST_TEST_REQUIRE(::ioctl(slow, FIONREAD, &socket_holds) == 0);
    BOOST_TEST(all[0]->connected());
    BOOST_TEST(store->log.size() == 1u);
    passes(1s);
    BOOST_TEST(ends(end_cause::slow_reader) == 1u);
    BOOST_TEST(response(other, 100).size() == 100u);
    // It took its octets in time, and this process stood still meanwhile.
    write(stops, ready + read_request(grant, 0, static_cast<std::uint32_t>(socket_holds * 3 / 2)));
    until([&] { return store->log.size() == 3; });
    write(other, read_request(grant, 0, 100, 2));
    until([&] { return waits() == 2; });
    milliseconds(2);
    std::vector<std::byte> taken(static_cast<std::size_t>(socket_holds));
    BOOST_TEST(::recv(stops, taken.data(), taken.size(), MSG_DONTWAIT) > socket_holds / 2);
    clock.advance(2 * options.fpdu_limit);
    until([&] { return store->log.size() == 4 || ends(end_cause::slow_reader) == 2; });
    BOOST_TEST(ends(end_cause::slow_reader) == 1u);
    BOOST_TEST(all[2]->connected());
}

// Nor by FPDUs of some octets, of a message without an end.
BOOST_FIXTURE_TEST_CASE(a_peer_that_writes_slowly_keeps_no_buffer, with_budget)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 100'000);
    for (unsigned i = 0; i < 8; ++i) {
        BOOST_TEST(log() == "");
        arrives(peer, half(grant, 8 * i, 8));
        BOOST_TEST(pool.outstanding() == (i < 7 ? 1u : 0u));
        milliseconds(150);
    }
    BOOST_TEST(log() == "write 0+64");
}

// Half of them, by its address: its other connections wait for those, and another host waits for none.
BOOST_FIXTURE_TEST_CASE(a_host_leaves_buffers_for_others, with_budget)
{
    options.peers = &shares;
    options.max_store_bytes = 256 * kib;
    start();
    grant = granted_store(0, 1'000'000);
    store->hangs = true;
    for (unsigned i = 0; i < 4; ++i)
        write(one_more_of("127.0.0.2"), message(grant, i * 60'000, pattern(60'000, i), 60'000));
    until([&] { return waits() == 2; });
    BOOST_TEST(in_use() == 128 * kib);
    write(one_more_of("127.0.0.3"), message(grant, 500'000, pattern(60'000, 5), 60'000));
    until([&] { return store->log.size() == 3; });
    BOOST_TEST(log().ends_with("write 500000+60000"));
    BOOST_TEST(in_use() == 192 * kib);
    BOOST_TEST(waits() == 3u); // behind those, who have their share
    store->goes_on();
    until([&] { return store->log.size() == 5; });
    milliseconds(1);
}

// A disk holds the access up, and all that it is by goes: it ends with the buffer that it has, of whatever kind.
BOOST_FIXTURE_TEST_CASE(an_access_outlasts_its_context, with_budget)
{
    enum class of { budget, reserve, own };
    apart = true;
    store->hangs = true;
    for (const auto memory : {of::budget, of::reserve, of::own}) {
        for (const bool writes : {true, false}) {
            options.buffers = memory == of::own ? nullptr : &pool;
            start();
            const int peer = connected();
            grant = granted_store(0, 100'000);
            if (memory == of::reserve)
                spend();
            store->log.clear();
            write(peer, writes ? message(grant, 0, pattern(100, 1)) : ready + read_request(grant, 0, 100));
            until([&] { return store->log.size() == 1; });
            queue_pair->kill(error(std::errc::connection_aborted));
            queue_pair.reset();
            stop_listening();
            provider.reset();
            revoked = false;
            tasks.emplace(*shard);
            begin_to_revoke();
            milliseconds(1);
            BOOST_TEST(!revoked);
            BOOST_TEST(pool.outstanding() == spent.size() + (memory == of::budget ? 1 : 0));
            one_goes_on();
            until([&] { return revoked; });
            BOOST_TEST(pool.outstanding() == spent.size());
            if (writes)
                BOOST_TEST((store->part(0, 100) == pattern(100, 1)));
            store->content.assign(4096, std::byte());
            spent.clear();
            tasks.reset();
            domain.reset();
            device.reset();
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
