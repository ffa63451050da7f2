// SPDX-License-Identifier: Apache-2.0
// Records out of streams: every way to cut a stream gives the same messages.
#include <boost/test/unit_test.hpp>

#include "bytes.hpp"

#include <verbena/protocols/rpcstream/record_reader.hpp>

#include <algorithm>
#include <cstring>
#include <random>

BOOST_AUTO_TEST_SUITE(rpc_record_test)

using namespace verbena;
using namespace verbena::rpc;
using namespace verbena::test;

namespace {

using bytes = std::vector<std::byte>;
constexpr std::size_t max_record = std::size_t(1) << 20;

struct fixture {
    memory_budget budget{std::size_t(64) << 20};
    buffer_pool pool{budget, nullptr};
    record_reader reader{pool, {.max_record = max_record}};
    std::vector<bytes> messages;
    std::vector<std::size_t> copied;
    std::size_t most_pieces = 0;
    bool short_head = false;

    /// Feeds `stream` in receives of at most `step` bytes until it ends or the reader refuses.
    record_reader::status feed(std::span<const std::byte> stream, std::size_t step)
    {
        for (;;) {
            record r;
            const auto status = reader.next(r);
            if (status == record_reader::status::record) {
                bytes all(r.first.begin(), r.first.end());
                all.insert(all.end(), r.second.begin(), r.second.end());
                if (!r.second.empty() && r.first.size() < record_reader::head_size)
                    short_head = true;
                most_pieces = std::max<std::size_t>(most_pieces, r.second.empty() ? 1 : 2);
                messages.push_back(std::move(all));
                copied.push_back(r.copied);
                continue;
            }
            if (status != record_reader::status::incomplete || stream.empty())
                return status;
            const auto space = reader.space();
            BOOST_REQUIRE(!space.empty());
            const std::size_t n = std::min({step, space.size(), stream.size()});
            std::memcpy(space.data(), stream.data(), n);
            reader.received(n);
            stream = stream.subspan(n);
        }
    }
};

/// What the streams of one host may hold together, as a number.
struct counted_share final : large_record_share {
    bool take(std::size_t n) noexcept override
    {
        if (n > left)
            return false;
        left -= n;
        return true;
    }
    void give_back(std::size_t n) noexcept override { left += n; }
    std::size_t left = 0;
};

/// Receives as much of `stream` as the reader takes in one step; false if it has no room.
bool receive(record_reader& reader, std::span<const std::byte>& stream)
{
    const auto space = reader.space();
    const std::size_t n = std::min(space.size(), stream.size());
    std::copy_n(stream.begin(), n, space.begin());
    reader.received(n);
    stream = stream.subspan(n);
    return n != 0;
}

bytes message_of(std::size_t size, std::uint32_t seed)
{
    std::mt19937 random(seed);
    bytes all(size);
    for (auto& b : all)
        b = static_cast<std::byte>(random());
    return all;
}

void append_fragment(bytes& to, std::span<const std::byte> part, bool last)
{
    const std::uint32_t mark = static_cast<std::uint32_t>(part.size()) | (last ? 0x80000000u : 0);
    for (int shift = 24; shift >= 0; shift -= 8)
        to.push_back(static_cast<std::byte>(mark >> shift));
    to.insert(to.end(), part.begin(), part.end());
}

} // namespace

BOOST_FIXTURE_TEST_CASE(by_hand, fixture)
{
    const auto stream = from_hex("80000004 01020304"                  // one fragment
                                 "00000002 0506 00000000 80000001 07" // three, one of them empty
                                 "80000000"                           // an empty record
                                 "00000001 08 80000000");             // the last one empty
    for (std::size_t step = 1; step <= stream.size(); ++step) {
        messages.clear();
        BOOST_TEST((feed(stream, step) == record_reader::status::incomplete));
        BOOST_REQUIRE(messages.size() == 4);
        BOOST_TEST(to_hex(messages[0]) == "01020304");
        BOOST_TEST(to_hex(messages[1]) == "050607");
        BOOST_TEST(messages[2].empty());
        BOOST_TEST(to_hex(messages[3]) == "08");
    }
    BOOST_TEST(!reader.holds_bytes());
}

BOOST_FIXTURE_TEST_CASE(any_sizes_in_any_steps, fixture)
{
    const std::size_t sizes[] = {40,    100,   4095,  4096,  16384,  16385, 17000, 63 * 1024 - 4, 63 * 1024,
                                 65536, 65537, 66000, 70000, 262272, 40,    8,     1 << 20};
    for (const std::size_t step : {7u, 1000u, 1448u, 65483u, 1u << 20}) {
        std::mt19937 random(static_cast<std::uint32_t>(step));
        std::vector<bytes> sent;
        bytes stream;
        for (std::uint32_t i = 0; i < 60; ++i) {
            const std::size_t size = sizes[random() % std::size(sizes)] - (i % 3 == 0 ? random() % 8 : 0);
            if (step == 7 && size > 70000)
                continue; // a minute otherwise
            sent.push_back(message_of(size, i));
            append_fragment(stream, sent.back(), true);
        }
        messages.clear();
        copied.clear();
        BOOST_TEST((feed(stream, step) == record_reader::status::incomplete));
        BOOST_REQUIRE(messages.size() == sent.size());
        for (std::size_t i = 0; i < sent.size(); ++i) {
            BOOST_TEST((messages[i] == sent[i]),
                       "message " << i << " of " << sent[i].size() << " in steps of " << step);
            BOOST_TEST(copied[i] <= record_reader::max_copied_record);
            if (sent[i].size() > record_reader::max_copied_record)
                BOOST_TEST(copied[i] == 0u);
        }
        BOOST_TEST(!short_head);
        BOOST_TEST(most_pieces == 2);
    }
    reader.release_idle();
    BOOST_TEST(pool.outstanding() == 0);
}

BOOST_FIXTURE_TEST_CASE(fragments_of_any_size_join, fixture)
{
    for (const std::size_t part : {1u, 3u, 1000u, 8800u, 65536u}) {
        const auto message = message_of(part < 1000 ? 3000 : 300'000, 1);
        bytes stream;
        for (std::size_t at = 0; at < message.size(); at += part) {
            const std::size_t n = std::min(part, message.size() - at);
            append_fragment(stream, std::span(message).subspan(at, n), at + n == message.size());
        }
        messages.clear();
        feed(stream, 1500);
        BOOST_REQUIRE(messages.size() == 1);
        BOOST_TEST((messages[0] == message));
    }
    reader.release_idle();
    BOOST_TEST(pool.outstanding() == 0);
}

BOOST_FIXTURE_TEST_CASE(a_record_of_the_limit_passes, fixture)
{
    bytes stream;
    append_fragment(stream, message_of(max_record, 3), true);
    BOOST_TEST((feed(stream, 100'000) == record_reader::status::incomplete));
    BOOST_TEST(messages.size() == 1);
}

BOOST_FIXTURE_TEST_CASE(a_record_over_the_limit_is_refused_at_its_mark, fixture)
{
    BOOST_TEST((feed(from_hex("80100001"), 4) == record_reader::status::too_long));
    BOOST_TEST(pool.outstanding() == 1); // nothing was taken for it
}

BOOST_FIXTURE_TEST_CASE(fragments_over_the_limit_are_refused, fixture)
{
    bytes stream;
    append_fragment(stream, message_of(max_record, 3), false);
    BOOST_TEST((feed(stream, 100'000) == record_reader::status::incomplete));
    BOOST_TEST((feed(from_hex("00000001"), 4) == record_reader::status::too_long));
}

BOOST_FIXTURE_TEST_CASE(other_protocols_are_refused_at_once, fixture)
{
    const std::string_view text = "GET / HTTP/1.1\r\n";
    BOOST_TEST((feed(std::as_bytes(std::span(text)), 100) == record_reader::status::too_long));
}

BOOST_FIXTURE_TEST_CASE(empty_fragments_end_somewhere, fixture)
{
    bytes stream(4 * (record_reader::max_fragments + 1));
    BOOST_TEST((feed(stream, 1000) == record_reader::status::too_many_fragments));
}

BOOST_FIXTURE_TEST_CASE(what_is_announced_takes_no_memory, fixture)
{
    bytes stream;
    append_fragment(stream, message_of(100, 1), false);
    stream.resize(100); // of 1 MiB announced, a few bytes came
    const auto mark = from_hex("000ffffc");
    std::copy(mark.begin(), mark.end(), stream.begin());
    feed(stream, 1000);
    BOOST_TEST(pool.outstanding_bytes() <= 128u * 1024);
}

BOOST_AUTO_TEST_CASE(memory_that_runs_out_comes_back)
{
    memory_budget budget(128u * 1024);
    buffer_pool pool(budget, nullptr);
    record_reader reader(pool, {.max_record = max_record});
    lease hog = pool.try_acquire(128u * 1024);
    BOOST_TEST(reader.space().empty());
    hog.reset();
    const auto space = reader.space();
    BOOST_REQUIRE(!space.empty());
    const auto stream = from_hex("80000004 01020304");
    std::copy(stream.begin(), stream.end(), space.begin());
    reader.received(stream.size());
    record r;
    BOOST_TEST((reader.next(r) == record_reader::status::record));
    BOOST_TEST(to_hex(r.first) == "01020304");
}

BOOST_AUTO_TEST_CASE(a_large_record_waits_for_its_share_and_returns_it)
{
    memory_budget budget(std::size_t(8) << 20);
    buffer_pool pool(budget, nullptr);
    counted_share share;
    record_reader reader(pool, {.max_record = max_record, .share = &share});
    bytes stream;
    const auto message = message_of(300'000, 4);
    append_fragment(stream, message, true);
    std::span<const std::byte> rest(stream);
    record r;
    BOOST_TEST(receive(reader, rest)); // the usual buffer needs no share
    BOOST_TEST((reader.next(r) == record_reader::status::incomplete));
    BOOST_TEST(!receive(reader, rest));
    share.left = max_record;
    while (!rest.empty()) {
        BOOST_REQUIRE(receive(reader, rest));
        BOOST_TEST(share.left < max_record);
        if (!rest.empty())
            BOOST_TEST((reader.next(r) == record_reader::status::incomplete));
    }
    BOOST_TEST((reader.next(r) == record_reader::status::record));
    BOOST_TEST(r.size() == message.size());
    BOOST_TEST(share.left == max_record);
}

BOOST_AUTO_TEST_CASE(a_share_without_memory_is_returned_at_once)
{
    memory_budget budget(std::size_t(128) << 10);
    buffer_pool pool(budget, nullptr);
    counted_share share;
    share.left = std::size_t(4) << 20;
    record_reader reader(pool, {.max_record = max_record, .share = &share});
    bytes stream;
    append_fragment(stream, message_of(300'000, 5), true);
    std::span<const std::byte> rest(stream);
    record r;
    BOOST_TEST(receive(reader, rest));
    BOOST_TEST((reader.next(r) == record_reader::status::incomplete));
    BOOST_TEST(!receive(reader, rest)); // the share says yes, the pool says no
    BOOST_TEST(share.left == std::size_t(4) << 20);
}

BOOST_AUTO_TEST_CASE(a_small_record_waits_for_a_buffer_too)
{
    memory_budget budget(std::size_t(64) << 10);
    buffer_pool pool(budget, nullptr);
    record_reader reader(pool, {.max_record = max_record});
    bytes stream;
    for (std::uint32_t i = 0; i < 20; ++i)
        append_fragment(stream, message_of(8000, i), true);
    std::span<const std::byte> rest(stream);
    std::vector<record> held; // their buffer is the only one
    while (receive(reader, rest)) {
        record r;
        while (reader.next(r) == record_reader::status::record)
            held.push_back(std::move(r));
    }
    BOOST_TEST(held.size() == 8u);
    held.clear();
    BOOST_TEST(rest.size() > 0u);
}

BOOST_AUTO_TEST_CASE(joined_fragments_wait_for_share_and_memory)
{
    memory_budget budget(std::size_t(256) << 10);
    buffer_pool pool(budget, nullptr);
    counted_share share;
    record_reader reader(pool, {.max_record = max_record, .receive_size = 8192, .share = &share});
    bytes stream;
    append_fragment(stream, message_of(4000, 6), false);
    append_fragment(stream, message_of(4, 7), true);
    std::span<const std::byte> rest(stream);
    record r;
    BOOST_TEST(receive(reader, rest));
    BOOST_TEST((reader.next(r) == record_reader::status::no_memory)); // the share refuses
    share.left = max_record;
    {
        std::vector<lease> hogs;
        while (lease hog = pool.try_acquire(8192))
            hogs.push_back(std::move(hog));
        BOOST_TEST((reader.next(r) == record_reader::status::no_memory)); // now the pool
        BOOST_TEST(share.left == max_record);
    }
    BOOST_TEST((reader.next(r) == record_reader::status::record));
    BOOST_TEST(r.size() == 4004u);
    BOOST_TEST(share.left == max_record);
}

BOOST_AUTO_TEST_SUITE_END()
