// SPDX-License-Identifier: Apache-2.0
// Inline thresholds from 1 to 256 KiB (RFC 8797), alike and unlike at the two ends: what just fits travels
// inline, four bytes more by chunks.
#include <boost/test/unit_test.hpp>

#include "../log_at.hpp"
#include "rpc_server.hpp"

#include <verbena/core/log.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/iwarp.hpp>
#include <verbena/transports/loop.hpp>

#include <boost/test/data/test_case.hpp>

#include <algorithm>

BOOST_AUTO_TEST_SUITE(rpcrdma_thresholds_test)

using namespace verbena;
using verbena::test::bytes;

namespace {

constexpr std::uint32_t kib = 1024;
// RPC-over-RDMA headers of three empty lists and with a Reply chunk of one segment (RFC 8166 4.1), an RPC
// call's and a reply's with AUTH_NONE (RFC 5531 9), the length of an opaque<>.
constexpr std::uint32_t plain = 28;
constexpr std::uint32_t with_reply_chunk = plain + 4 + 16;
constexpr std::uint32_t call_head = 40;
constexpr std::uint32_t reply_head = 24;
constexpr std::uint32_t length_word = 4;

struct ends {
    const char* transport;
    std::uint32_t client; ///< bytes
    std::uint32_t server;
    std::uint32_t threshold() const { return std::min(client, server); }
};
std::ostream& operator<<(std::ostream& out, const ends& e)
{
    return out << e.transport << ' ' << e.client / kib << " and " << e.server / kib << " KiB";
}
const ends all_ends[] = {
    {"loop", kib, kib},           {"loop", kib, 256 * kib},        {"loop", 256 * kib, kib},
    {"loop", 16 * kib, kib * 64}, {"loop", 256 * kib, 256 * kib},

    {"iwarp", kib, kib},          {"iwarp", 256 * kib, 256 * kib},
};

struct connected {
    const test::log_at level_of_log{log_level::off};
    explicit connected(const ends& e) : shard(std::move(*reactor::create())), dispatcher(*shard)
    {
        buffers.emplace(budget, shard.get());
        dispatcher.add(program);
        calling.client.max_calls = serving.credits = 4;
        calling.client.hard = false;
        calling.client.timeout = std::chrono::seconds(5);
        calling.client.retries = 0;
        calling.inline_size = e.client;
        serving.inline_size = e.server;
        if (e.transport == std::string_view("loop")) {
            fabric = loop::make_fabric(*shard);
            server = fabric->make_context();
            client = fabric->make_context();
        } else {
            server = iwarp::make_context(*shard);
            client = iwarp::make_context(*shard);
        }
    }
    void run(const std::function<task<void>()>& body)
    {
        auto all = [&]() -> task<void> {
            auto listener = server->listen(fabric ? "server" : "127.0.0.1:0");
            BOOST_REQUIRE(listener);
            scope tasks(*shard);
            tasks.spawn(
                [&] { return rpcrdma::serve(*server, **listener, *buffers, dispatcher, serving, served); });
            const std::string url((*listener)->local_url());
            requester = rpcrdma::make_requester(*client, *buffers, url.substr(url.find("://") + 3), calling,
                                                &requested);
            co_await body();
            co_await requester->close();
            (*listener)->close();
            co_await tasks.join();
        };
        run_until_complete(*shard, all());
        requester.reset();
    }
    rpc::request ask(std::uint32_t procedure, std::size_t arguments)
    {
        rpc::call_header header;
        header.program = program.number();
        header.version = 3;
        header.procedure = procedure;
        return rpc::request(buffers->try_acquire(call_head + arguments), header);
    }
    // WRITE of `size` bytes: they must arrive as they went.
    task<void> write(std::uint32_t size)
    {
        rpc::request r = ask(3, length_word);
        r.message().note_payload(size);
        lease data = buffers->try_acquire(size);
        bytes expected(size);
        for (std::uint32_t i = 0; i < size; ++i)
            expected[i] = std::byte(i * 31 >> 3);
        std::ranges::copy(expected, data.data());
        const std::span<const std::byte> view(data.data(), size);
        r.attach(rpc::payload(std::move(data), view));
        r.max_reply = 100;
        auto reply = co_await requester->call(r);
        BOOST_REQUIRE_MESSAGE(reply, (reply ? std::string() : reply.error().message()));
        BOOST_TEST(reply->results().u32() == size);
        BOOST_TEST((program.written == expected));
    }
    // READ of `size` bytes; 0 as `max_result` offers no Write chunk but, where the reply may exceed the
    // threshold, a Reply chunk.
    task<void> read(std::uint32_t size, std::size_t max_reply, std::uint32_t max_result)
    {
        rpc::request r = ask(4, 4);
        r.message().u32(size);
        r.max_reply = max_reply;
        r.max_result = max_result;
        auto reply = co_await requester->call(r);
        BOOST_REQUIRE_MESSAGE(reply, (reply ? std::string() : reply.error().message()));
        const auto data = reply->take(reply->results().payload(size));
        BOOST_REQUIRE_MESSAGE(data, (data ? std::string() : data.error().message()));
        BOOST_TEST(data->size() == size);
        for (const auto piece : data->pieces())
            BOOST_TEST((std::ranges::all_of(piece, [](std::byte b) { return b == std::byte('r'); })));
        BOOST_TEST(reply->results().at_end());
    }
    // ECHO: no data item, so a long one goes whole.
    task<void> echo(std::uint32_t size)
    {
        rpc::request r = ask(1, length_word + size);
        const bytes text(size, std::byte('e'));
        r.message().opaque_var(text);
        r.max_reply = reply_head + length_word + size;
        auto reply = co_await requester->call(r);
        BOOST_REQUIRE_MESSAGE(reply, (reply ? std::string() : reply.error().message()));
        BOOST_TEST((std::ranges::equal(reply->results().opaque_var(size), text)));
    }

    memory_budget budget{std::size_t(128) << 20};
    std::unique_ptr<reactor> shard;
    std::optional<buffer_pool> buffers;
    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<verbs::context> server, client;
    test::test_program program;
    rpc::service_dispatcher dispatcher;
    rpcrdma::responder_options serving;
    rpcrdma::responder_stats served;
    rpcrdma::requester_options calling;
    rpcrdma::requester_stats requested;
    std::unique_ptr<rpc::client_transport> requester;
};

} // namespace

BOOST_DATA_TEST_CASE(calls_up_to_the_threshold_go_inline, all_ends, e)
{
    connected c(e);
    const std::uint32_t fits = e.threshold() - plain - call_head - length_word;
    c.run([&]() -> task<void> {
        co_await c.write(fits);
        BOOST_TEST(c.requested.inline_calls.value() == 1u);
        BOOST_TEST(c.served.read_chunk_bytes.value() == 0u);
        co_await c.write(fits + 4);
        BOOST_TEST(c.requested.inline_calls.value() == 1u);
        BOOST_TEST(c.requested.read_chunk_calls.value() == 1u);
        BOOST_TEST(c.served.read_chunk_bytes.value() == fits + 4);
    });
    BOOST_TEST(c.served.calls.value() == 2u);
    BOOST_TEST(c.served.inline_replies.value() == 2u);
}

BOOST_DATA_TEST_CASE(replies_up_to_the_threshold_come_inline, all_ends, e)
{
    connected c(e);
    const std::uint32_t fits = e.threshold() - plain - reply_head - length_word;
    c.run([&]() -> task<void> {
        co_await c.read(fits, reply_head + length_word, fits);
        BOOST_TEST(c.requested.write_chunks.value() == 0u);
        BOOST_TEST(c.served.inline_replies.value() == 1u);
        BOOST_TEST(c.served.write_chunk_bytes.value() == 0u);
        co_await c.read(fits + 4, reply_head + length_word, fits + 4);
        BOOST_TEST(c.requested.write_chunks.value() == 1u);
        BOOST_TEST(c.served.inline_replies.value() == 1u);
        BOOST_TEST(c.served.write_chunk_replies.value() == 1u);
        BOOST_TEST(c.served.write_chunk_bytes.value() == fits + 4);
    });
    BOOST_TEST(c.requested.reply_chunks.value() == 0u);
}

// Here the responder alone decides.
BOOST_DATA_TEST_CASE(a_reply_chunk_is_used_beyond_the_threshold_only, all_ends, e)
{
    connected c(e);
    const std::uint32_t fits = e.threshold() - with_reply_chunk - reply_head - length_word;
    const std::size_t offered = 2 * e.threshold();
    c.run([&]() -> task<void> {
        co_await c.read(fits, offered, 0);
        BOOST_TEST(c.requested.reply_chunks.value() == 1u);
        BOOST_TEST(c.served.inline_replies.value() == 1u);
        co_await c.read(fits + 4, offered, 0);
        BOOST_TEST(c.requested.reply_chunks.value() == 2u);
        BOOST_TEST(c.served.inline_replies.value() == 1u);
        BOOST_TEST(c.served.reply_chunk_replies.value() == 1u);
    });
    BOOST_TEST(c.requested.write_chunks.value() == 0u);
    BOOST_TEST(c.served.write_chunk_bytes.value() == e.threshold() - with_reply_chunk + 4);
}

BOOST_DATA_TEST_CASE(calls_without_a_data_item_go_whole_beyond_the_threshold, all_ends, e)
{
    connected c(e);
    c.run([&]() -> task<void> { co_await c.echo(3000); });
    const bool is_long = e.threshold() < 3000;
    BOOST_TEST(c.requested.long_calls.value() == (is_long ? 1u : 0u));
    BOOST_TEST(c.requested.inline_calls.value() == (is_long ? 0u : 1u));
    BOOST_TEST(c.served.reply_chunk_replies.value() == (is_long ? 1u : 0u));
    BOOST_TEST(c.served.inline_replies.value() == (is_long ? 0u : 1u));
}

// Room for so much more than the reply's header, also where both together just exceed a buffer.
BOOST_DATA_TEST_CASE(a_procedure_has_the_room_that_it_asked_for, all_ends, e)
{
    connected c(e);
    c.run([&]() -> task<void> {
        for (const std::uint32_t size : {480u, 488u, 492u, 4068u, 4072u, 4088u, 4092u, 4096u})
            co_await c.echo(size);
    });
}

// Beyond what the private message can say: such an end counts as one of the nearest size it can.
BOOST_AUTO_TEST_CASE(sizes_out_of_range_are_brought_into_it)
{
    connected c({"loop", 1, 1});
    c.run([&]() -> task<void> {
        co_await c.write(kib - plain - call_head - length_word);
        BOOST_TEST(c.requested.inline_calls.value() == 1u);
    });
    connected d({"loop", 1024 * kib, 1024 * kib});
    d.run([&]() -> task<void> {
        co_await d.write(256 * kib - plain - call_head - length_word + 4);
        BOOST_TEST(d.requested.read_chunk_calls.value() == 1u);
    });
}

BOOST_AUTO_TEST_SUITE_END()
