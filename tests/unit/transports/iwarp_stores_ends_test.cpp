// SPDX-License-Identifier: Apache-2.0
// The end of an access to a store: of its grant, of its connection, of memory for it.
#include <boost/test/unit_test.hpp>

#include "iwarp_stores.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>
#include <sys/random.h>
#include <sys/syscall.h>
#include <vector>

namespace {

int fails_at = 0; // the frame of a task that fails, from 1; 0: none
bool tags_repeat = false;

} // namespace

// Frames come in units of 64 bytes (frame_pool.cpp).
void* operator new(std::size_t size)
{
    const bool fails = size % 64 == 0 && fails_at > 0 && fails_at-- == 1;
    void* const made = fails ? nullptr : std::malloc(size);
    if (made == nullptr)
        throw std::bad_alloc();
    return made;
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

// In place of libc's: of which steering tags are made.
extern "C" ssize_t getrandom(void* to, size_t size, unsigned flags)
{
    if (!tags_repeat)
        return ::syscall(SYS_getrandom, to, size, flags);
    std::memset(to, 0x42, size);
    return ssize_t(size);
}

BOOST_AUTO_TEST_SUITE(iwarp_stores_ends_test)

using namespace verbena;
using namespace verbena::iwarp_by_hand;

// Nobody would know what becomes of the octets.
BOOST_FIXTURE_TEST_CASE(a_write_without_memory_ends_the_connection, with_stores)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 100'000);
    store->throws = true;
    write(peer, message(grant, 0, pattern(50, 1)));
    until([&] { return handler.ended; });
    BOOST_TEST(ends(end_cause::local) == 1u);
}

// Neither the task's runner, nor its own frame, nor the store's. An optimizing compiler puts some of them into one.
BOOST_FIXTURE_TEST_CASE(an_access_without_memory_for_its_task_ends_the_connection, with_stores)
{
    start();
    grant = granted_store(0, 100'000);
    int failures = 0;
    int at = 0;
    for (bool was_asked_for = true; was_asked_for;) {
        const int peer = connected();
        arrives(peer, ready);
        store->log.clear();
        // What was freed before serves no frame.
        std::vector<void*> frames;
        for (std::size_t size = 64; size < 4096; size += 64) {
            for (auto fresh = current_frame_pool_stats().fresh; current_frame_pool_stats().fresh == fresh;)
                frames.push_back(allocate_frame(size));
        }
        write(peer, message(grant, 0, pattern(50, 1)));
        fails_at = ++at;
        until([&] { return handler.ended || !store->log.empty(); });
        was_asked_for = fails_at == 0;
        fails_at = 0;
        BOOST_TEST(handler.ended == store->log.empty()); // without the access there is no connection
        failures += handler.ended ? 1 : 0;
        queue_pair.reset();
        for (void* const each : frames)
            ::operator delete(each);
    }
    BOOST_TEST(failures > 0);
    take_back(); // no access is under way
}

BOOST_FIXTURE_TEST_CASE(a_revocation_waits_for_the_access_that_is_under_way, with_stores)
{
    start();
    const int peer = connected();
    for (const bool writes : {true, false}) {
        grant = granted_store(0, 100'000);
        const std::weak_ptr<test_store> weak = store;
        revoked = false;
        store->log.clear();
        store->hangs = true;
        store->free.reset();
        write(peer, writes ? ready + message(grant, 0, pattern(50, 1)) : read_request(grant, 0, 50));
        until([&] { return store->log.size() == 1; });
        begin_to_revoke();
        BOOST_TEST(is_silent(peer));
        BOOST_TEST(!revoked);
        store->goes_on();
        until([&] { return revoked; });
        BOOST_TEST(!grant);
        BOOST_TEST(store.use_count() == 1);
        BOOST_TEST(queue_pair->connected() == writes); // the response has not been sent
    }
    expect_terminate(peer, "0100");
}

BOOST_FIXTURE_TEST_CASE(a_revocation_of_several_grants_waits_for_each, with_stores)
{
    start();
    const int peer = connected();
    std::vector<verbs::grant> several;
    for (unsigned i = 0; i < 3; ++i)
        several.push_back(granted_store(i * 1000, 1000));
    store->hangs = true;
    write(peer, message(several[1], 0, pattern(50, 1)));
    until([&] { return store->log.size() == 1; });
    tasks->spawn([&]() -> task<void> {
        co_await domain->revoke(several);
        revoked = true;
    });
    BOOST_TEST(is_silent(peer));
    BOOST_TEST(!revoked);
    store->goes_on();
    until([&] { return revoked; });
    BOOST_TEST(store.use_count() == 1);
}

// Dropped, and not waited for: the store stays as long as it is used.
BOOST_FIXTURE_TEST_CASE(a_grant_is_dropped_amid_an_access, with_stores)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 100'000);
    store->hangs = true;
    write(peer, message(grant, 0, pattern(50, 1)));
    until([&] { return store->log.size() == 1; });
    test_store& kept = *store;
    const auto gone = store->gone;
    store.reset();
    grant = verbs::grant();
    shard->turn();
    BOOST_TEST(!*gone);
    kept.goes_on();
    until([&] { return *gone; });
    store = std::make_shared<test_store>(1);
}

// Else it would have its buffer for ever, which is no memory of the budget.
BOOST_FIXTURE_TEST_CASE(what_is_staged_of_a_message_that_does_not_go_on_is_written, with_stores)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 100'000);
    bytes half = message(grant, 0, pattern(2000, 5));
    half[2] = std::byte(0x81);
    arrives(peer, half);
    const auto seconds = [&](int n) {
        for (int i = 0; i < 10 * n; ++i) {
            clock.advance(100ms);
            shard->turn();
        }
    };
    seconds(5);
    BOOST_TEST(log() == "write 0+2000");
    seconds(5);
    write(peer, message(grant, 2000, pattern(100, 6)));
    until([&] { return store->log.size() == 2; });
    BOOST_TEST(log() == "write 0+2000, write 2000+100");
    BOOST_TEST((store->part(2000, 100) == pattern(100, 6)));
    // A buffer that is in use stays: what is being written, and what is to be sent.
    store->hangs = true;
    write(peer, message(grant, 0, pattern(100, 7)));
    until([&] { return store->log.size() == 3; });
    write(peer, message(grant, 100, pattern(100, 8)) + read_request(grant, 0, 200));
    seconds(5);
    store->goes_on();
    BOOST_TEST((response(peer, 200) == pattern(100, 7) + pattern(100, 8)));
}

// The payload came in time, but its message had not ended when the grant went.
BOOST_FIXTURE_TEST_CASE(what_is_staged_comes_to_no_store_once_its_grant_has_gone, with_stores)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 100'000);
    bytes half = message(grant, 0, pattern(2000, 5));
    half[2] = std::byte(0x81);
    arrives(peer, half);
    take_back();
    write(peer, fpdu("4143 00000000 00000000 00000001 00000000", 5));
    expect_terminate(peer, "1100");
    BOOST_TEST(log() == "");
}

// A tag that is free again may be drawn for memory.
BOOST_FIXTURE_TEST_CASE(what_was_for_a_store_does_not_come_to_memory_of_the_same_tag, with_stores)
{
    tags_repeat = true;
    start();
    bytes memory(4096);
    const auto at = reinterpret_cast<std::uint64_t>(memory.data());
    const int peer = connected();
    grant = granted_store(at, 4096);
    const std::uint32_t tag = grant.where().key;
    bytes half = message(grant, 0, pattern(2000, 5));
    half[2] = std::byte(0x81);
    arrives(peer, half);
    take_back();
    revoked = false;
    grant = granted(memory, both);
    tags_repeat = false;
    BOOST_TEST_REQUIRE(grant.where().key == tag);
    write(peer, fpdu("4143 00000000 00000000 00000001 00000000", 5));
    expect_terminate(peer, "1100");
    BOOST_TEST((memory == bytes(4096)));
}

// The task goes on with its buffer, and nobody hears of it.
BOOST_FIXTURE_TEST_CASE(a_connection_ends_amid_an_access, with_stores)
{
    start();
    for (const bool writes : {true, false}) {
        for (const bool destroyed : {true, false}) {
            const int peer = connected();
            revoked = false;
            grant = granted_store(0, 100'000);
            store->log.clear();
            store->hangs = true;
            store->free.reset();
            write(peer, ready + (writes ? message(grant, 0, pattern(50, 7)) : read_request(grant, 0, 50)));
            until([&] { return store->log.size() == 1; });
            if (destroyed)
                queue_pair.reset();
            else
                queue_pair->kill(error(std::errc::connection_aborted));
            begin_to_revoke();
            for (int i = 0; i < 20; ++i)
                shard->turn();
            BOOST_TEST(!revoked);
            store->goes_on();
            until([&] { return revoked; });
            if (writes)
                BOOST_TEST((store->part(0, 50) == pattern(50, 7)));
            queue_pair.reset();
        }
    }
}

// It would land on what the same peer has written since.
BOOST_FIXTURE_TEST_CASE(a_write_waits_for_what_a_connection_that_ended_has_left, with_stores)
{
    start();
    const int first = connected();
    grant = granted_store(0, 100'000);
    store->hangs = true;
    write(first, message(grant, 0, pattern(50, 1)));
    until([&] { return store->log.size() == 1; });
    ::shutdown(first, SHUT_WR);
    until([&] { return ends(end_cause::orderly) == 1; });
    // Who counts connections counts this one.
    for (int i = 0; i < 20; ++i)
        shard->turn();
    BOOST_TEST(!handler.ended);
    const auto old = std::move(queue_pair);
    store->hangs = false;
    const int second = connected();
    write(second, message(grant, 0, pattern(50, 2)));
    for (int i = 0; i < 20; ++i) {
        clock.advance(1ms);
        shard->turn();
    }
    BOOST_TEST(store->log.size() == 1u);
    store->goes_on();
    for (int i = 0; i < 100 && store->log.size() != 2; ++i) {
        clock.advance(1ms);
        shard->turn();
    }
    BOOST_TEST(log() == "write 0+50, write 0+50");
    BOOST_TEST((store->part(0, 50) == pattern(50, 2)));
    until([&] { return handler.ended; });
}

// kill() tells the end at once, as ever.
BOOST_FIXTURE_TEST_CASE(who_kills_a_connection_does_not_wait_for_its_stores, with_stores)
{
    start();
    for (const bool is_closed : {false, true}) {
        const int peer = connected();
        if (!grant)
            grant = granted_store(0, 100'000);
        store->log.clear();
        store->hangs = true;
        store->free.reset();
        write(peer, message(grant, 0, pattern(50, 1)));
        until([&] { return store->log.size() == 1; });
        if (is_closed)
            queue_pair->abort(error(std::errc::connection_aborted));
        BOOST_TEST(!handler.ended);
        BOOST_TEST(queue_pair->connected() != is_closed);
        queue_pair->kill(error(std::errc::connection_aborted));
        BOOST_TEST(handler.ended);
        store->goes_on();
        queue_pair.reset();
    }
}

// A full socket owes octets of that memory, so the connection ends; who counts connections counts it as long as its
// access lasts.
BOOST_FIXTURE_TEST_CASE(memory_that_is_owed_is_taken_amid_an_access, with_stores)
{
    send_buffer = 8192;
    start();
    const int peer = connected();
    bytes memory(1'000'000);
    auto owed = granted(memory, verbs::access::remote_read);
    grant = granted_store(0, 100'000);
    write(peer, ready + read_request(owed, 0, 1'000'000));
    for (int i = 0; i < 20; ++i)
        shard->turn();
    store->hangs = true;
    write(peer, message(grant, 0, pattern(50, 1)));
    until([&] { return store->log.size() == 1; });
    bool taken = false;
    tasks->spawn([&]() -> task<void> {
        co_await domain->revoke({&owed, 1});
        taken = true;
    });
    until([&] { return taken && !queue_pair->connected(); });
    BOOST_TEST(!handler.ended);
    store->goes_on();
    until([&] { return handler.ended; });
}

// Nothing of it is read while it is parked.
BOOST_FIXTURE_TEST_CASE(a_peer_that_leaves_amid_a_write_is_noticed, with_stores)
{
    start();
    for (const bool waits_before : {true, false}) {
        const auto before = ends(end_cause::peer_reset);
        const int peer = connected();
        if (!grant)
            grant = granted_store(0, 100'000);
        store->log.clear();
        store->hangs = true;
        store->free.reset();
        const bytes first = message(grant, 0, pattern(50, 1)), second = message(grant, 50, pattern(50, 2));
        write(peer, waits_before ? first : first + second);
        until([&] { return store->log.size() == 1; });
        if (waits_before)
            write(peer, second);
        BOOST_TEST(is_silent(peer)); // it is parked now
        ::shutdown(peer, SHUT_WR);
        until([&] { return ends(end_cause::peer_reset) == before + 1; });
        store->goes_on();
        until([&] { return handler.ended; });
        BOOST_TEST(log() == "write 0+50");
        queue_pair.reset();
    }
}

// disconnect() answers what was asked for before.
BOOST_FIXTURE_TEST_CASE(an_orderly_end_waits_for_a_response, with_stores)
{
    options.close_timeout = 10s;
    start();
    const int peer = connected();
    grant = granted_store(0, 100'000);
    store->hangs = true;
    write(peer, ready + read_request(grant, 0, 50));
    until([&] { return store->log.size() == 1; });
    queue_pair->disconnect();
    BOOST_TEST(is_silent(peer));
    store->goes_on();
    BOOST_TEST(response(peer, 50).size() == 50u);
    ::shutdown(peer, SHUT_WR);
    until([&] { return ends(end_cause::orderly) == 1 && handler.ended; });
}

// Also where it has begun, and the next piece is being read.
BOOST_FIXTURE_TEST_CASE(an_orderly_end_waits_for_the_rest_of_a_response, with_stores)
{
    options.close_timeout = 10s;
    start();
    const int peer = connected();
    store->content = pattern(300'000, 9);
    grant = granted_store(0, 300'000);
    write(peer, ready + read_request(grant, 0, 300'000));
    until([&] { return store->log.size() == 1; });
    store->hangs = true;
    bytes got;
    const auto take = [&] {
        std::byte b[4096];
        const ssize_t n = ::recv(peer, b, sizeof b, MSG_DONTWAIT);
        if (n > 0)
            got.insert(got.end(), b, b + n);
        return n;
    };
    until([&] {
        (void)take();
        return store->log.size() == 2;
    });
    until([&] { return take() < 0 && errno == EAGAIN; });
    queue_pair->disconnect();
    BOOST_TEST(is_silent(peer));
    store->goes_on();
    until([&] { return take() == 0; });
    BOOST_TEST(got.size() > 300'000u);
    ::shutdown(peer, SHUT_WR);
    until([&] { return ends(end_cause::orderly) == 1 && handler.ended; });
}

// The Terminate does not wait for the disk.
BOOST_FIXTURE_TEST_CASE(a_rule_is_broken_while_a_response_is_read, with_stores)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 1'000'000);
    // Amid a response.
    write(peer, ready + read_request(grant, 0, 600'000));
    bytes piece;
    until([&] { return store->log.size() == 1; });
    store->hangs = true;
    bytes got;
    until([&] {
        std::byte b[4096];
        const ssize_t n = ::recv(peer, b, sizeof b, MSG_DONTWAIT);
        if (n > 0)
            got.insert(got.end(), b, b + n);
        return store->log.size() == 2;
    });
    until([&] {
        std::byte b[4096];
        return ::recv(peer, b, sizeof b, MSG_DONTWAIT) < 0 && errno == EAGAIN;
    });
    write(peer, fpdu("414f 00000000 00000000 00000001 00000000", 5)); // no such opcode
    expect_terminate(peer, "0206");
    ::shutdown(peer, SHUT_WR);
    store->goes_on();
    until([&] { return handler.ended; });
}

BOOST_AUTO_TEST_SUITE_END()
