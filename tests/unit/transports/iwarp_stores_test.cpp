// SPDX-License-Identifier: Apache-2.0
// Grants of stores: what a peer writes and reads that is no memory, with a disk that is slow, fails, or hangs.
#include <boost/test/unit_test.hpp>

#include "iwarp_by_hand.hpp"

#include <verbena/core/task/event.hpp>

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

BOOST_AUTO_TEST_SUITE(iwarp_stores_test)

using namespace verbena;
using namespace verbena::iwarp_by_hand;

namespace {

struct test_store final : verbs::byte_store {
    explicit test_store(std::size_t size) : content(size) {}
    ~test_store() override { *gone = true; }

    task<result<void>> read(std::uint64_t offset, std::span<std::byte> out) override
    {
        log.push_back("read " + std::to_string(offset) + "+" + std::to_string(out.size()));
        if (hangs)
            co_await free.wait_shielded();
        if (fails)
            co_return error::from_errno(EIO, "the disk");
        for (std::size_t i = 0; i < out.size(); ++i)
            out[i] = offset + i < content.size() ? content[offset + i] : std::byte();
        co_return result<void>();
    }
    task<result<void>> write(std::uint64_t offset, std::span<const std::byte> data) override
    {
        log.push_back("write " + std::to_string(offset) + "+" + std::to_string(data.size()));
        if (throws)
            throw std::bad_alloc();
        if (hangs)
            co_await free.wait_shielded();
        if (fails) {
            failure = std::make_error_code(std::errc::no_space_on_device);
            co_return error(failure, "the disk");
        }
        content.resize(std::max(content.size(), std::size_t(offset) + data.size()));
        std::ranges::copy(data, content.begin() + std::ptrdiff_t(offset));
        co_return result<void>();
    }
    std::error_code write_failure() const noexcept override { return failure; }
    bytes part(std::size_t offset, std::size_t size) const
    {
        return bytes(content.begin() + std::ptrdiff_t(offset),
                     content.begin() + std::ptrdiff_t(offset + size));
    }
    /// What hangs goes on, and nothing hangs any more.
    void goes_on()
    {
        hangs = false;
        free.set();
    }

    bytes content;
    std::vector<std::string> log;
    bool hangs = false, fails = false, throws = false;
    std::error_code failure;
    event free;
    std::shared_ptr<bool> gone = std::make_shared<bool>(false);
};

bytes pattern(std::size_t size, unsigned seed)
{
    bytes made(size);
    for (std::size_t i = 0; i < size; ++i)
        made[i] = std::byte(i * 31 + seed + i / 251);
    return made;
}

constexpr auto both = verbs::access::remote_read | verbs::access::remote_write;

struct with_stores : with_grants {
    ~with_stores()
    {
        if (store)
            store->goes_on();
        take_back();
    }
    verbs::grant granted_store(std::uint64_t offset, std::uint32_t length, verbs::access rights = both)
    {
        verbs::grant_request asked;
        asked.store = store;
        asked.store_offset = offset;
        asked.store_length = length;
        asked.rights = rights;
        bool done = false;
        tasks->spawn([&]() -> task<void> {
            const auto made = co_await domain->make_grants({&asked, 1});
            BOOST_TEST(made.has_value());
            done = true;
        });
        until([&] { return done; });
        return std::move(asked.made);
    }
    /// Begins to revoke `grant`; `revoked` says when that is done.
    void begin_to_revoke()
    {
        tasks->spawn([this]() -> task<void> {
            co_await domain->revoke({&grant, 1});
            revoked = true;
        });
    }
    void take_back()
    {
        if (!grant)
            return;
        begin_to_revoke();
        until([&] { return revoked; });
    }
    /// A Write message of `content` to `offset` from the grant's first byte, in FPDUs of `step` octets.
    static bytes message(const verbs::grant& g, std::uint64_t offset, const bytes& content,
                         std::size_t step = 8192)
    {
        bytes all;
        for (std::size_t done = 0; done < content.size();) {
            const std::size_t part = std::min(step, content.size() - done);
            const bool last = done + part == content.size();
            bytes one = fpdu((last ? "c140" : "8140") + hex(g.where().key, 8) +
                                 hex(g.where().address + offset + done, 16),
                             part);
            std::copy_n(content.begin() + std::ptrdiff_t(done), part, one.begin() + 16);
            all = std::move(all) + one;
            done += part;
        }
        return all;
    }
    static bytes read_request(const verbs::grant& g, std::uint64_t offset, std::uint32_t size,
                              unsigned number = 1)
    {
        return fpdu("4141 00000000 00000001" + hex(number, 8) + "00000000 00000007" + hex(0, 16) +
                    hex(size, 8) + hex(g.where().key, 8) + hex(g.where().address + offset, 16));
    }
    /// The payload of a Read Response.
    bytes response(int peer, std::size_t size)
    {
        bytes got;
        bool last = false;
        while (!last) {
            const bytes head = read(peer, 16);
            BOOST_REQUIRE(head.size() == 16u);
            last = (head[2] & std::byte(0x40)) != std::byte();
            BOOST_REQUIRE(to_hex(std::span(head).subspan(3, 1)) == "42");
            const std::size_t ulpdu =
                std::to_integer<std::size_t>(head[0]) << 8 | std::to_integer<std::size_t>(head[1]);
            const std::size_t payload = ulpdu - 14;
            const bytes body = read(peer, payload + (4 - (ulpdu + 2) % 4) % 4 + 4);
            BOOST_REQUIRE(body.size() > payload);
            got = std::move(got) + bytes(body.begin(), body.begin() + std::ptrdiff_t(payload));
        }
        BOOST_TEST(got.size() == size);
        return got;
    }
    bool is_silent(int peer)
    {
        for (int i = 0; i < 20; ++i) {
            clock.advance(10us);
            shard->turn();
        }
        std::byte b;
        return ::recv(peer, &b, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
    }
    void expect_terminate(int peer, std::string_view code)
    {
        const bytes head = read(peer, 24);
        BOOST_REQUIRE(head.size() == 24u);
        BOOST_TEST(to_hex(std::span(head).subspan(2, 2)) == "4147");
        BOOST_TEST(to_hex(std::span(head).subspan(20, 2)) == code);
    }
    /// Sends all of it, as the other end takes it.
    void send_all(int peer, const bytes& b)
    {
        for (std::size_t done = 0; done < b.size();) {
            const ssize_t n = ::send(peer, b.data() + done, b.size() - done, MSG_DONTWAIT);
            if (n > 0)
                done += static_cast<std::size_t>(n);
            clock.advance(10us);
            shard->turn();
        }
    }
    std::string log() const
    {
        std::string all;
        for (const auto& line : store->log)
            all += (all.empty() ? "" : ", ") + line;
        return all;
    }

    std::shared_ptr<test_store> store = std::make_shared<test_store>(4096);
    verbs::grant grant;
    bool revoked = false;
};

} // namespace

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

// Neither the task's runner, nor its own frame, nor the store's.
BOOST_FIXTURE_TEST_CASE(an_access_without_memory_for_its_task_ends_the_connection, with_stores)
{
    start();
    grant = granted_store(0, 100'000);
    for (int at = 1; at <= 3; ++at) {
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
        fails_at = at;
        until([&] { return handler.ended || !store->log.empty(); });
        BOOST_TEST(fails_at == 0);
        fails_at = 0;
        BOOST_TEST(handler.ended);
        BOOST_TEST(log() == "");
        queue_pair.reset();
        for (void* const each : frames)
            ::operator delete(each);
    }
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
