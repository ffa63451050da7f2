// SPDX-License-Identifier: Apache-2.0
// Calls and replies with several data items, each in a chunk of its own (RFC 8166 3.4, RFC 8267 6.4), over loop and iwarp.
#include "../log_at.hpp"
#include "raw_requester.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/event.hpp>

#include <boost/test/data/test_case.hpp>

#include <tuple>

BOOST_AUTO_TEST_SUITE(rpcrdma_chunks_test)

using namespace verbena;
using namespace verbena::test;

namespace {

const char* const transports[] = {"loop", "iwarp"};

bytes pattern(std::size_t size, unsigned seed)
{
    bytes made(size);
    for (std::size_t i = 0; i < size; ++i)
        made[i] = std::byte((i * 31 + seed * 97) >> 2);
    return made;
}

/// Takes a number and as many opaques, each with a word behind it. Returns items of its own, likewise.
class many final : public rpc::dispatcher {
public:
    task<bool> dispatch(rpc::call& c) override
    {
        if (c.decode_header() != rpc::call_verdict::good)
            co_return false;
        rpc::encode(c.results(),
                    rpc::reply_header::accepted_with(c.header().xid, rpc::accept_status::success));
        taken.clear();
        rooms.clear();
        const std::uint32_t count = c.args().u32();
        std::vector<rpc::payload> held;
        for (std::uint32_t i = 0; i < count && c.args().ok(); ++i) {
            const auto ref = c.args().payload(2 << 20);
            if (i >= wanted)
                continue;
            auto got = co_await c.pull(ref);
            if (!got)
                co_return false;
            bytes& all = taken.emplace_back();
            for (const auto piece : got->pieces())
                all.insert(all.end(), piece.begin(), piece.end());
            held.push_back(std::move(*got));
            words.push_back(c.args().u32());
        }
        readable = c.args().at_end();
        ++served;
        if (waits && !co_await go.wait())
            co_return false;
        for (std::size_t i = 0; i < results.size(); ++i) {
            rooms.push_back(c.most_result());
            if (stored) {
                c.results().note_payload(static_cast<std::uint32_t>(stored->size()));
                c.results().u32(0x1000);
                c.attach(rpc::payload(stored, *stored));
                continue;
            }
            (void)co_await c.reserve_results(8);
            c.results().note_payload(static_cast<std::uint32_t>(results[i].size()));
            c.results().u32(0x1000 + static_cast<std::uint32_t>(i));
            lease memory = co_await c.buffers().acquire(std::max<std::size_t>(results[i].size(), 1));
            std::ranges::copy(results[i], memory.data());
            const std::span<const std::byte> view(memory.data(), results[i].size());
            c.attach(rpc::payload(std::move(memory), view));
        }
        co_return true;
    }
    std::uint32_t wanted = UINT32_MAX; ///< items that are pulled
    std::vector<bytes> results;
    std::shared_ptr<const bytes> stored; ///< what they are instead
    std::vector<bytes> taken;
    std::vector<std::uint32_t> words;
    std::vector<std::uint64_t> rooms;
    bool readable = false;
    bool waits = false;
    event go;
    unsigned served = 0;
};

struct chunks_fixture {
    const test::log_at level_of_log{log_level::off};
    explicit chunks_fixture(const char* transport, const rpcrdma::responder_options& options = {})
        : shard(std::move(*reactor::create())), pool(budget, shard.get())
    {
        peer.emplace(*shard, pool, dispatcher, transport, options);
    }
    ~chunks_fixture()
    {
        dispatcher.go.set();
        peer.reset();
        BOOST_TEST(pool.outstanding() == 0u);
    }
    // g++ 12 takes a lambda in a data test case for one that other files see, with a type in it that they don't.
    void until_served(unsigned calls)
    {
        peer->until([&] { return dispatcher.served == calls; });
    }
    void until_ended()
    {
        peer->until([&] { return !peer->is_connected() && peer->stats.connections.value() == 0; });
        for (int i = 0; i < 50; ++i)
            peer->turn();
    }
    void until_waiting(std::uint64_t calls)
    {
        peer->until([&] { return peer->stats.chunk_waits.value() == calls; });
    }
    /// The header and the message of a call with `items`, each in a Read chunk.
    std::pair<rpcrdma::header, bytes> call_of(const std::vector<bytes>& items)
    {
        bytes block(4096);
        xdr::encoder out(block);
        rpcrdma::header h;
        h.xid = ++xid;
        h.credits = 4;
        for (const std::uint32_t word : {xid, 0u, 2u, 1u, 1u, 1u, 0u, 0u, 0u, 0u})
            out.u32(word);
        out.u32(static_cast<std::uint32_t>(items.size()));
        for (const bytes& item : items) {
            out.note_payload(static_cast<std::uint32_t>(item.size()));
            out.u32(static_cast<std::uint32_t>(7 * item.size()));
        }
        for (std::size_t i = 0; i < std::min(items.size(), out.payloads().size()); ++i)
            BOOST_REQUIRE(h.reads.push_back(
                {std::uint32_t(out.payloads()[i].position), peer->readable(items[i]).where()}));
        block.resize(out.size());
        return {h, block};
    }

    memory_budget budget{std::size_t(64) << 20};
    std::unique_ptr<reactor> shard;
    buffer_pool pool;
    many dispatcher;
    std::optional<raw_requester> peer;
    std::uint32_t xid = 0x2000;
};

std::vector<std::uint32_t> lengths(std::span<const rpcrdma::segment> chunk)
{
    std::vector<std::uint32_t> all;
    for (const auto& s : chunk)
        all.push_back(s.length);
    return all;
}

} // namespace

BOOST_DATA_TEST_CASE(arguments_come_when_they_are_wanted, transports, transport)
{
    chunks_fixture f(transport);
    const std::vector<bytes> items = {pattern(70'001, 1), pattern(3, 2), pattern(4'096, 3)};
    auto [h, body] = f.call_of(items);
    (void)f.peer->call(h, body);
    BOOST_TEST((f.dispatcher.taken == items));
    BOOST_TEST((f.dispatcher.words == std::vector<std::uint32_t>{490'007, 21, 28'672}));
    BOOST_TEST(f.dispatcher.readable);
    BOOST_TEST(f.peer->stats.read_chunk_bytes.value() == 74'100u);
    BOOST_TEST(f.peer->stats.payload_copied_bytes.value() == 0u);
    // What nobody wants stays where it is.
    f.dispatcher.wanted = 1;
    std::tie(h, body) = f.call_of(items);
    (void)f.peer->call(h, body);
    BOOST_TEST(f.peer->stats.read_chunk_bytes.value() == 74'100u + 70'001u);
}

BOOST_DATA_TEST_CASE(sixteen_items_are_taken_and_no_more, transports, transport)
{
    chunks_fixture f(transport);
    std::vector<bytes> items;
    for (unsigned i = 0; i < rpcrdma::max_read_chunks; ++i)
        items.push_back(pattern(4 * i + 4, i));
    auto [h, body] = f.call_of(items);
    BOOST_TEST(h.reads.size() == 16u);
    (void)f.peer->call(h, body);
    BOOST_TEST((f.dispatcher.taken == items));
    // One more than that: nothing of it is read.
    const auto before = f.peer->stats.read_chunk_bytes.value();
    std::tie(h, body) = f.call_of(items);
    BOOST_REQUIRE(h.reads.push_back(
        {std::uint32_t(body.size()) + 8 * 16 * 17 / 2, f.peer->readable(bytes(4)).where()}));
    BOOST_TEST(is_error(f.peer->call(h, body), rpcrdma::error_kind::chunk));
    BOOST_TEST(f.peer->stats.read_chunk_bytes.value() == before);
    BOOST_TEST(f.dispatcher.served == 1u);
}

BOOST_DATA_TEST_CASE(items_in_front_of_each_other_or_too_large_are_refused, transports, transport)
{
    rpcrdma::responder_options options;
    options.max_call_size = 100'000;
    chunks_fixture f(transport, options);
    auto [h, body] = f.call_of({pattern(40'000, 1), pattern(40'000, 2)});
    h.reads.all()[1].position = h.reads.all()[0].position + 4; // in the first one
    BOOST_TEST(is_error(f.peer->call(h, body), rpcrdma::error_kind::chunk));
    std::tie(h, body) = f.call_of({pattern(40'000, 1), pattern(40'000, 2)});
    h.reads.all()[1].position += 8; // behind the message
    BOOST_TEST(is_error(f.peer->call(h, body), rpcrdma::error_kind::chunk));
    // Each of them is small enough.
    std::tie(h, body) = f.call_of({pattern(60'000, 1), pattern(40'000, 2)});
    BOOST_TEST(is_error(f.peer->call(h, body), rpcrdma::error_kind::chunk));
    BOOST_TEST(f.peer->stats.read_chunk_bytes.value() == 0u);
    BOOST_TEST(f.dispatcher.served == 0u);
}

// What a call took for its first item counts while it takes the next one.
BOOST_DATA_TEST_CASE(items_count_together_in_the_share, transports, transport)
{
    rpcrdma::responder_options options;
    options.max_chunk_bytes = 300'000;
    options.idle_credits = 4;
    chunks_fixture f(transport, options);
    f.dispatcher.waits = true;
    // 128 KiB each of which little more than half is used: three times that exceeds the share, the lengths do not.
    auto [h, body] = f.call_of({pattern(66'000, 1), pattern(66'000, 2), pattern(66'000, 3)});
    f.peer->post(h, body);
    f.until_served(1);
    std::tie(h, body) = f.call_of({pattern(8'000, 1)});
    f.peer->post(h, body);
    f.until_waiting(1);
    BOOST_TEST(f.dispatcher.served == 1u);
    f.dispatcher.go.set();
    (void)f.peer->next();
    (void)f.peer->next();
    BOOST_TEST(f.dispatcher.served == 2u);
}

BOOST_DATA_TEST_CASE(results_go_by_their_chunks_in_order, transports, transport)
{
    chunks_fixture f(transport);
    f.dispatcher.results = {pattern(70'001, 1), pattern(20, 2), {}, pattern(30, 4)};
    auto [h, body] = f.call_of({});
    std::vector<raw_requester::chunk*> memory;
    for (const std::size_t size : {80'000u, 0u, 100u, 30u, 50u}) {
        BOOST_REQUIRE(h.writes.add_chunk());
        memory.push_back(&f.peer->writable(size));
        if (size != 0)
            BOOST_REQUIRE(h.writes.add_segment(memory.back()->where()));
    }
    const auto a = f.peer->call(h, body);
    BOOST_TEST_REQUIRE((a.header.proc == rpcrdma::procedure::msg));
    BOOST_TEST_REQUIRE(a.header.writes.size() == 5u);
    BOOST_TEST((lengths(a.header.writes.chunk(0)) == std::vector<std::uint32_t>{70'001}));
    BOOST_TEST(a.header.writes.chunk(1).empty()); // it wants its item inline
    BOOST_TEST((lengths(a.header.writes.chunk(2)) == std::vector<std::uint32_t>{0}));
    BOOST_TEST((lengths(a.header.writes.chunk(3)) == std::vector<std::uint32_t>{30}));
    BOOST_TEST((lengths(a.header.writes.chunk(4)) == std::vector<std::uint32_t>{0})); // for no item
    const auto holds = [&](std::size_t i, const bytes& what) {
        return std::ranges::equal(memory[i]->memory().first(what.size()), what);
    };
    BOOST_TEST(holds(0, f.dispatcher.results[0]));
    BOOST_TEST(holds(3, f.dispatcher.results[3]));
    BOOST_TEST(holds(4, bytes(50, std::byte('?'))));
    BOOST_TEST((f.dispatcher.rooms == std::vector<std::uint64_t>{80'000, 4096, 100, 30}));
    // header; length, word; length, 20 bytes, word; length, word; length, word
    BOOST_TEST_REQUIRE(a.body.size() == 24u + 8 + 28 + 8 + 8);
    BOOST_TEST(xdr::load_u32(a.body.data() + 24) == 70'001u);
    BOOST_TEST(xdr::load_u32(a.body.data() + 28) == 0x1000u);
    BOOST_TEST(xdr::load_u32(a.body.data() + 32) == 20u);
    BOOST_TEST((bytes(a.body.begin() + 36, a.body.begin() + 56) == f.dispatcher.results[1]));
    BOOST_TEST(xdr::load_u32(a.body.data() + 56) == 0x1001u);
    BOOST_TEST(xdr::load_u32(a.body.data() + 72) == 0x1003u);
    BOOST_TEST(f.peer->stats.write_chunk_bytes.value() == 70'031u);
}

BOOST_DATA_TEST_CASE(a_result_that_its_own_chunk_does_not_hold_is_an_error, transports, transport)
{
    chunks_fixture f(transport);
    f.dispatcher.results = {pattern(100, 1), pattern(101, 2)};
    auto [h, body] = f.call_of({});
    for (const std::size_t size : {200u, 100u}) {
        BOOST_REQUIRE(h.writes.add_chunk());
        BOOST_REQUIRE(h.writes.add_segment(f.peer->writable(size).where()));
    }
    BOOST_TEST(is_error(f.peer->call(h, body), rpcrdma::error_kind::chunk));
}

// The owner of a payload may be anybody. It is written from where it is, and kept until that is over.
BOOST_DATA_TEST_CASE(a_stored_value_is_sent_from_where_it_is, transports, transport)
{
    chunks_fixture f(transport);
    const auto value = std::make_shared<const bytes>(pattern(70'001, 5));
    f.dispatcher.stored = value;
    f.dispatcher.results.resize(1);
    auto [h, body] = f.call_of({});
    const auto& memory = f.peer->writable(70'001);
    BOOST_REQUIRE(h.writes.add_chunk());
    BOOST_REQUIRE(h.writes.add_segment(memory.where()));
    (void)f.peer->call(h, body);
    f.dispatcher.stored.reset();
    BOOST_TEST(std::ranges::equal(memory.memory(), *value));
    f.peer->until([&] { return value.use_count() == 1; }); // when its Send has completed
    BOOST_TEST(f.peer->stats.payload_copied_bytes.value() == 0u);
}

// Inline and in a Reply chunk, copied and gathered: what travels is the same.
BOOST_DATA_TEST_CASE(results_without_chunks_lie_in_their_places, transports, transport)
{
    for (const std::uint32_t inline_size : {4096u, 262'144u}) {
        for (const std::size_t count : {1u, 2u, 16u}) {
            rpcrdma::responder_options options;
            options.inline_size = inline_size;
            chunks_fixture f(transport, options);
            bytes expected;
            const auto word = [&](std::uint32_t w) {
                expected.resize(expected.size() + 4);
                xdr::store_u32(expected.data() + expected.size() - 4, w);
            };
            for (std::size_t i = 0; i < count; ++i) {
                const bytes item = pattern(5'001 + i, unsigned(i));
                f.dispatcher.results.push_back(item);
                word(std::uint32_t(item.size()));
                expected.insert(expected.end(), item.begin(), item.end());
                expected.resize(xdr::padded(expected.size()));
                word(0x1000 + std::uint32_t(i));
            }
            auto [h, body] = f.call_of({});
            auto& reply = f.peer->writable(200'000);
            h.has_reply_chunk = true;
            BOOST_REQUIRE(h.reply.push_back(reply.where()));
            const auto a = f.peer->call(h, body);
            const bool is_long = inline_size == 4096;
            BOOST_TEST((a.header.proc == (is_long ? rpcrdma::procedure::nomsg : rpcrdma::procedure::msg)));
            const std::span<const std::byte> got =
                is_long ? reply.memory().first(rpcrdma::total_length(a.header.reply.all()))
                        : std::span(a.body);
            BOOST_TEST_REQUIRE(got.size() == 24 + expected.size());
            BOOST_TEST(std::ranges::equal(got.subspan(24), expected));
        }
    }
}

// Wherever the immediate comes among the completions of the call's Reads.
BOOST_DATA_TEST_CASE(a_peer_that_sends_an_immediate_while_its_chunks_are_read_leaves_nothing_behind,
                     transports, transport)
{
    for (unsigned turns = 0; turns < 12; ++turns) {
        BOOST_TEST_CONTEXT("immediate after " << turns << " turns")
        {
            chunks_fixture f(transport);
            auto [h, body] = f.call_of({pattern(70'001, 1), pattern(3, 2)});
            const std::size_t of_the_peer = f.pool.outstanding() + 1; // and what it sends
            f.peer->post(h, body);
            for (unsigned i = 0; i < turns; ++i)
                f.peer->turn();
            f.peer->post_immediate();
            f.until_ended();
            BOOST_TEST(f.pool.outstanding() <= of_the_peer);
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
