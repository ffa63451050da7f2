// SPDX-License-Identifier: Apache-2.0
// The requester over a queue pair that only records: what it posts is compared with messages made by
// hand from RFC 8166, and the server's part is played by writing bytes where the requester said.
#include <boost/test/unit_test.hpp>

#include "recording_provider.hpp"

#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <deque>
#include <map>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(rpcrdma_requester_test)

using namespace verbena;
using namespace std::chrono_literals;
using namespace verbena::test;

namespace {

// RFC 8797: version 1, no flags, 4096 both ways.
const bytes four_kib = from_hex("f6ab0e18 01 00 03 03");
constexpr std::uint32_t own_credits = 32;

struct fixture {
    fixture() : budget(256 << 20)
    {
        reactor_options o;
        o.clock = &clock;
        shard = std::move(*reactor::create(o));
        buffers.emplace(budget, shard.get());
        provider.emplace(*shard, peer);
        peer.private_answer = four_kib;
        options.client.max_calls = own_credits;
        client = rpcrdma::make_requester(*provider, *buffers, "fake:1", options, &stats);
    }
    rpc::request ask(std::uint32_t procedure)
    {
        rpc::call_header header;
        header.program = 100003;
        header.version = 3;
        header.procedure = procedure;
        return rpc::request(buffers->try_acquire(8192), header);
    }
    // With 8 KiB of data, for which memory is granted.
    rpc::request ask_with_payload(std::uint32_t procedure)
    {
        rpc::request r = ask(procedure);
        r.message().note_payload(8192);
        lease data = buffers->try_acquire(8192);
        const std::span<const std::byte> view(data.data(), 8192);
        r.attach(rpc::payload(std::move(data), view));
        return r;
    }
    static bytes call_head(std::uint32_t xid, std::uint32_t procedure)
    {
        return words({xid, 0, 2, 100003, 3, procedure, 0, 0, 0, 0});
    }
    static bytes reply_head(std::uint32_t xid) { return words({xid, 1, 0, 0, 0, 0}); }
    // An RDMA_MSG without chunks.
    static bytes inline_reply(std::uint32_t xid, std::uint32_t credits, std::uint32_t value)
    {
        return words({xid, 1, credits, 0, 0, 0, 0}) + reply_head(xid) + words({value});
    }
    // The next message that the requester sent; waits for it.
    task<bytes> next()
    {
        for (int i = 0; i < 2000 && peer.sent.empty(); ++i)
            co_await sleep_for(1ms);
        if (peer.sent.empty())
            co_return bytes(1024);
        bytes message = std::move(peer.sent.front());
        peer.sent.pop_front();
        co_return std::move(message);
    }
    granted* find(std::uint32_t key)
    {
        const auto found = peer.memory.grants.find(key);
        return found == peer.memory.grants.end() ? nullptr : &found->second;
    }
    // Runs `call` and `script` side by side, then closes.
    void run(std::function<task<void>()> call, std::function<task<void>()> script)
    {
        auto main = [&]() -> task<void> {
            scope s(*shard);
            s.spawn(std::ref(call));
            s.spawn(std::ref(script));
            co_await s.join();
            co_await client->close();
        };
        run_until_complete(*shard, main());
        BOOST_TEST(peer.memory.grants.empty());
        BOOST_TEST(peer.memory.regions == 0u);
    }
    virtual_clock clock;
    memory_budget budget;
    std::unique_ptr<reactor> shard;
    std::optional<buffer_pool> buffers;
    server peer;
    std::optional<fake_context> provider;
    rpcrdma::requester_options options;
    rpcrdma::requester_stats stats;
    std::unique_ptr<rpc::client_transport> client;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_short_call, fixture)
{
    run(
        [this]() -> task<void> {
            rpc::request r = ask(1);
            r.message().u32(0x55667788);
            auto reply = co_await client->call(r);
            BOOST_TEST(bool(reply));
            if (reply)
                BOOST_TEST(reply->results().u32() == 77u);
        },
        [this]() -> task<void> {
            const bytes m = co_await next();
            const std::uint32_t xid = word(m, 0);
            const bytes expected =
                words({xid, 1, own_credits, 0, 0, 0, 0}) + call_head(xid, 1) + words({0x55667788});
            BOOST_TEST(to_hex(m) == to_hex(expected));
            // RFC 8797: remote invalidation offered, 4 KiB both ways. knfsd refuses an IRD of 0.
            BOOST_TEST(to_hex(peer.private_data) == to_hex("f6ab0e18 01 01 03 03"));
            BOOST_TEST(peer.asked.responder_resources != 0u);
            BOOST_TEST(peer.receives.size() >= own_credits);
            peer.queue_pair->deliver(inline_reply(xid, 4, 77));
        });
    BOOST_TEST(stats.inline_calls.value() == 1u);
}

BOOST_FIXTURE_TEST_CASE(one_credit_until_the_first_reply_then_what_is_granted, fixture)
{
    int answered = 0;
    run(
        [&]() -> task<void> {
            scope s(*shard);
            auto one = [&]() -> task<void> {
                rpc::request r = ask(0);
                if (co_await client->call(r))
                    ++answered;
            };
            for (int i = 0; i < 8; ++i)
                s.spawn(one);
            co_await s.join();
        },
        [&]() -> task<void> {
            const bytes first = co_await next();
            co_await sleep_for(20ms);
            BOOST_TEST(peer.sent.empty()); // RFC 8166 3.3.3
            peer.queue_pair->deliver(inline_reply(word(first, 0), 3, 0));
            co_await sleep_for(20ms);
            BOOST_TEST(peer.sent.size() == 3u);
            const bytes second = co_await next();
            peer.queue_pair->deliver(inline_reply(word(second, 0), 0, 0)); // a grant of 0 counts as 1
            co_await sleep_for(20ms);
            BOOST_TEST(peer.sent.size() == 2u);
            while (answered < 8) {
                const bytes m = co_await next();
                peer.queue_pair->deliver(inline_reply(word(m, 0), 1'000'000, 0));
            }
        });
    BOOST_TEST(answered == 8);
}

BOOST_FIXTURE_TEST_CASE(read_data_comes_by_a_write_chunk, fixture)
{
    static constexpr std::uint32_t size = 100'001;
    run(
        [this]() -> task<void> {
            rpc::request r = ask(6);
            r.max_reply = 200;
            r.max_result = size;
            auto reply = co_await client->call(r);
            BOOST_REQUIRE(reply);
            BOOST_TEST(peer.memory.grants.empty()); // RFC 8166 4.4.1
            BOOST_TEST(reply->results().u32() == 9u);
            auto data = reply->take(reply->results().payload(size));
            BOOST_REQUIRE(data);
            BOOST_TEST(data->size() == 50'003u);
            BOOST_TEST(
                (data->pieces()[0][0] == std::byte(0x5a) && data->pieces()[0][50'002] == std::byte(0x5a)));
            BOOST_TEST(reply->results().at_end());
        },
        [this]() -> task<void> {
            const bytes m = co_await next();
            const std::uint32_t xid = word(m, 0);
            const std::uint32_t key = word(m, 7);
            granted* g = find(key);
            BOOST_REQUIRE(g != nullptr);
            BOOST_TEST((verbs::allows(g->rights, verbs::access::remote_write)));
            BOOST_TEST(!verbs::allows(g->rights, verbs::access::remote_read));
            BOOST_TEST(g->memory.size() == size); // no room for the pad (RFC 8166 3.4.6.2)
            const bytes expected =
                words({xid, 1, own_credits, 0, 0, 1, 1, key, size, 0x11223344, key, 0, 0}) +
                call_head(xid, 6);
            BOOST_TEST(to_hex(m) == to_hex(expected));
            std::fill_n(g->memory.begin(), 50'003, std::byte(0x5a));
            peer.queue_pair->deliver(words({xid, 1, 8, 0, 0, 1, 1, key, 50'003, 0x11223344, key, 0, 0}) +
                                     reply_head(xid) + words({9, 50'003}));
        });
    BOOST_TEST(stats.write_chunks.value() == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_small_read_needs_no_chunk, fixture)
{
    run(
        [this]() -> task<void> {
            rpc::request r = ask(6);
            r.max_reply = 200;
            r.max_result = 8;
            auto reply = co_await client->call(r);
            BOOST_REQUIRE(reply);
            auto data = reply->take(reply->results().payload(8));
            BOOST_REQUIRE(data);
            BOOST_TEST(test::text_of(data->pieces()[0]) == "abcde");
        },
        [this]() -> task<void> {
            const bytes m = co_await next();
            const std::uint32_t xid = word(m, 0);
            BOOST_TEST(peer.memory.grants.empty());
            peer.queue_pair->deliver(words({xid, 1, 8, 0, 0, 0, 0}) + reply_head(xid) +
                                     words({5, 0x61626364, 0x65000000}));
        });
}

BOOST_FIXTURE_TEST_CASE(write_data_goes_by_a_read_chunk_without_pad, fixture)
{
    static constexpr std::uint32_t size = 8191;
    run(
        [this]() -> task<void> {
            rpc::request r = ask(7);
            r.message().u32(3);
            r.message().note_payload(size);
            r.message().u32(4);
            lease data = buffers->try_acquire(8192);
            std::memset(data.data(), 0x77, 8192);
            const std::span<const std::byte> view(data.data(), size);
            r.attach(rpc::payload(std::move(data), view));
            auto reply = co_await client->call(r);
            BOOST_TEST(bool(reply));
        },
        [this]() -> task<void> {
            const bytes m = co_await next();
            const std::uint32_t xid = word(m, 0);
            const std::uint32_t key = word(m, 6);
            granted* g = find(key);
            BOOST_REQUIRE(g != nullptr);
            BOOST_TEST((g->rights == verbs::access::remote_read));
            BOOST_TEST(g->memory.size() == size);
            BOOST_TEST((g->memory[size - 1] == std::byte(0x77)));
            // The position is that of the first byte behind the length word (RFC 8166 3.4.5): 40 + 4 + 4.
            const bytes expected =
                words({xid, 1, own_credits, 0, 1, 48, key, size, 0x11223344, key, 0, 0, 0}) +
                call_head(xid, 7) + words({3, size, 4});
            BOOST_TEST(to_hex(m) == to_hex(expected));
            peer.queue_pair->deliver(inline_reply(xid, 8, 1));
        });
    BOOST_TEST(stats.read_chunk_calls.value() == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_long_reply_comes_by_a_reply_chunk, fixture)
{
    run(
        [this]() -> task<void> {
            rpc::request r = ask(17);
            r.max_reply = 10'000;
            auto reply = co_await client->call(r);
            BOOST_REQUIRE(reply);
            BOOST_TEST(reply->results().u32() == 0xfeedu);
            BOOST_TEST(reply->results().remaining() == 5000u);
        },
        [this]() -> task<void> {
            const bytes m = co_await next();
            const std::uint32_t xid = word(m, 0);
            const std::uint32_t key = word(m, 8);
            granted* g = find(key);
            BOOST_REQUIRE(g != nullptr);
            const bytes expected = words({xid, 1, own_credits, 0, 0, 0, 1, 1, key, 10'000, 0x11223344, key}) +
                                   call_head(xid, 17);
            BOOST_TEST(to_hex(m) == to_hex(expected));
            const bytes content = reply_head(xid) + words({0xfeed}) + bytes(5000);
            std::copy(content.begin(), content.end(), g->memory.begin());
            peer.queue_pair->deliver(
                words({xid, 1, 8, 1, 0, 0, 1, 1, key, std::uint32_t(content.size()), 0x11223344, key}));
        });
    BOOST_TEST(stats.reply_chunks.value() == 1u);
}

BOOST_FIXTURE_TEST_CASE(without_private_data_1024_bytes_hold_and_a_long_call_goes_whole, fixture)
{
    peer.private_answer.clear();
    run(
        [this]() -> task<void> {
            rpc::request r = ask(14);
            r.message().reserve(1200);
            r.max_reply = 100;
            BOOST_TEST(bool(co_await client->call(r)));
        },
        [this]() -> task<void> {
            const bytes m = co_await next();
            const std::uint32_t xid = word(m, 0);
            const std::uint32_t key = word(m, 6);
            // RDMA_NOMSG with a Position-Zero Read chunk and nothing behind the header (RFC 8166 3.5.3).
            BOOST_TEST(to_hex(m) ==
                       to_hex(words({xid, 1, own_credits, 1, 1, 0, key, 1240, 0x11223344, key, 0, 0, 0})));
            granted* g = find(key);
            BOOST_REQUIRE(g != nullptr);
            BOOST_TEST(to_hex(g->memory.first(40)) == to_hex(call_head(xid, 14)));
            peer.queue_pair->deliver(inline_reply(xid, 8, 1));
        });
    BOOST_TEST(stats.long_calls.value() == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_result_inline_beside_an_offered_chunk_is_a_violation, fixture)
{
    run(
        [this]() -> task<void> {
            rpc::request r = ask(6);
            r.max_reply = 200;
            r.max_result = 65536;
            auto reply = co_await client->call(r);
            BOOST_REQUIRE(reply);
            auto data = reply->take(reply->results().payload(65536));
            BOOST_TEST((!data && data.error() == std::errc::protocol_error)); // RFC 8166 4.3.2
        },
        [this]() -> task<void> {
            const bytes m = co_await next();
            const std::uint32_t xid = word(m, 0);
            peer.queue_pair->deliver(
                words({xid, 1, 8, 0, 0, 1, 1, word(m, 7), 0, 0x11223344, word(m, 7), 0, 0}) +
                reply_head(xid) + words({4, 0x61626364}));
        });
}

BOOST_FIXTURE_TEST_CASE(chunks_longer_or_more_than_offered_fail_the_call, fixture)
{
    std::vector<error> errors;
    run(
        [&]() -> task<void> {
            for (int i = 0; i < 4; ++i) {
                rpc::request r = ask(6);
                r.max_reply = 200;
                r.max_result = 65536;
                auto reply = co_await client->call(r);
                BOOST_TEST(!reply);
                if (!reply)
                    errors.push_back(reply.error());
            }
        },
        [&]() -> task<void> {
            for (int i = 0; i < 4; ++i) {
                const bytes m = co_await next();
                const std::uint32_t xid = word(m, 0);
                const std::uint32_t key = word(m, 7);
                const std::uint32_t off = 0x11223344;
                bytes bad;
                if (i == 0) // one byte more than the chunk holds
                    bad = words({xid, 1, 8, 0, 0, 1, 1, key, 65537, off, key, 0, 0});
                if (i == 1) // two Write chunks
                    bad = words({xid, 1, 8, 0, 0, 1, 1, key, 0, off, key, 1, 1, key, 0, off, key, 0, 0});
                if (i == 2) // a Read list
                    bad = words({xid, 1, 8, 0, 1, 4, key, 4, off, key, 0, 0, 0});
                if (i == 3) // a Reply chunk that nobody offered
                    bad = words({xid, 1, 8, 1, 0, 0, 1, 1, key, 64, off, key});
                peer.queue_pair->deliver(bad + reply_head(xid) + words({0}));
            }
        });
    BOOST_TEST(errors.size() == 4u);
    for (const error& e : errors)
        BOOST_TEST((e == std::errc::protocol_error));
}

BOOST_FIXTURE_TEST_CASE(rdma_error_ends_the_call_and_not_the_connection, fixture)
{
    run(
        [this]() -> task<void> {
            for (int i = 0; i < 2; ++i) {
                rpc::request r = ask(1);
                auto reply = co_await client->call(r);
                BOOST_TEST(!reply);
                if (!reply)
                    BOOST_TEST((reply.error() ==
                                (i == 0 ? std::errc::value_too_large : std::errc::protocol_not_supported)));
            }
            // The same with a call that may be repeated: more room, another XID.
            rpc::request r = ask(5);
            r.max_reply = 5000;
            r.may_repeat = true;
            BOOST_TEST(bool(co_await client->call(r)));
            // What sufficed is offered from then on, to calls of that procedure that may be repeated.
            for (const bool may_repeat : {true, false}) {
                rpc::request later = ask(5);
                later.max_reply = 5000;
                later.may_repeat = may_repeat;
                BOOST_TEST(bool(co_await client->call(later)));
            }
        },
        [this]() -> task<void> {
            bytes m = co_await next();
            peer.queue_pair->deliver(words({word(m, 0), 1, 8, 4, 2})); // ERR_CHUNK
            m = co_await next();
            peer.queue_pair->deliver(words({word(m, 0), 1, 8, 4, 1, 2, 3})); // ERR_VERS
            const bytes first = co_await next();
            BOOST_TEST(word(first, 9) == 5000u);
            peer.queue_pair->deliver(words({word(first, 0), 1, 8, 4, 2}));
            const bytes second = co_await next();
            BOOST_TEST(word(second, 9) == 20'000u);
            BOOST_TEST(word(second, 0) != word(first, 0));
            const std::uint32_t xid = word(second, 0);
            const std::uint32_t key = word(second, 8);
            // It fits inline after all: the chunk comes back empty.
            peer.queue_pair->deliver(words({xid, 1, 8, 0, 0, 0, 1, 1, key, 0, 0x11223344, key}) +
                                     reply_head(xid));
            for (const std::uint32_t room : {20'000u, 5000u}) {
                const bytes later = co_await next();
                BOOST_TEST(word(later, 9) == room);
                const std::uint32_t its_key = word(later, 8);
                peer.queue_pair->deliver(
                    words({word(later, 0), 1, 8, 0, 0, 0, 1, 1, its_key, 0, 0x11223344, its_key}) +
                    reply_head(word(later, 0)));
            }
        });
    BOOST_TEST(stats.errors.value() == 3u);
    BOOST_TEST(peer.connects == 1u);
}

BOOST_FIXTURE_TEST_CASE(room_for_a_reply_grows_three_times_at_most, fixture)
{
    std::vector<std::uint32_t> rooms;
    run(
        [this]() -> task<void> {
            rpc::request r = ask(5);
            r.max_reply = 5000;
            r.may_repeat = true;
            const auto reply = co_await client->call(r);
            BOOST_TEST((!reply && reply.error() == std::errc::value_too_large));
        },
        [&]() -> task<void> {
            for (int i = 0; i < 4; ++i) {
                const bytes m = co_await next();
                rooms.push_back(word(m, 9));
                peer.queue_pair->deliver(words({word(m, 0), 1, 8, 4, 2})); // ERR_CHUNK
            }
        });
    BOOST_TEST((rooms == std::vector<std::uint32_t>{5000, 20'000, 80'000, 320'000}));
}

BOOST_FIXTURE_TEST_CASE(a_call_given_up_is_out_of_the_servers_reach_and_keeps_its_credit, fixture)
{
    event given_up;
    run(
        [this, &given_up]() -> task<void> {
            {
                scope s(*shard);
                auto abandoned = [&]() -> task<void> {
                    rpc::request r = ask(6);
                    r.max_result = 65536;
                    auto reply = co_await client->call(r);
                    BOOST_TEST((!reply && reply.error() == std::errc::operation_canceled));
                    BOOST_TEST(peer.memory.grants.empty());
                };
                s.spawn(abandoned);
                co_await sleep_for(20ms);
                BOOST_TEST(peer.memory.grants.size() == 1u);
                s.request_stop();
                co_await s.join();
                given_up.set();
            }
            rpc::request r = ask(1);
            BOOST_TEST(bool(co_await client->call(r)));
        },
        [this, &given_up]() -> task<void> {
            const bytes first = co_await next();
            co_await given_up.wait_shielded();
            co_await sleep_for(40ms);
            BOOST_TEST(peer.sent.empty()); // one credit, and the server still works on the first call
            peer.queue_pair->deliver(inline_reply(word(first, 0), 8, 0));
            const bytes second = co_await next();
            peer.queue_pair->deliver(inline_reply(word(second, 0), 8, 0));
        });
}

BOOST_FIXTURE_TEST_CASE(what_answers_nothing_is_dropped, fixture)
{
    run(
        [this]() -> task<void> {
            rpc::request r = ask(1);
            auto reply = co_await client->call(r);
            BOOST_REQUIRE(reply);
            BOOST_TEST(reply->results().u32() == 5u);
        },
        [this]() -> task<void> {
            const bytes m = co_await next();
            const std::uint32_t xid = word(m, 0);
            peer.queue_pair->deliver(inline_reply(xid + 1, 8, 1));                        // nobody's
            peer.queue_pair->deliver(words({xid, 1, 8, 0, 0, 0}));                        // too short
            peer.queue_pair->deliver(words({xid, 1, 8, 0, 0, 0, 0}) + call_head(xid, 1)); // a call-back
            peer.queue_pair->deliver(words({xid, 1, 8, 3, 0, 0, 0}));                     // RDMA_DONE
            BOOST_TEST(stats.dropped.value() == 4u);
            peer.queue_pair->deliver(inline_reply(xid, 8, 5));
        });
}

// RFC 8166 4.5.2, the other way round: a call of the server whose header is cut short.
BOOST_FIXTURE_TEST_CASE(a_call_of_the_server_that_cannot_be_decoded_is_answered, fixture)
{
    rpc::service_dispatcher calls(*shard);
    options.callbacks = &calls;
    client = rpcrdma::make_requester(*provider, *buffers, "fake:1", options, &stats);
    run(
        [this]() -> task<void> {
            rpc::request r = ask(1);
            BOOST_TEST(bool(co_await client->call(r)));
        },
        [this]() -> task<void> {
            const bytes m = co_await next();
            const std::uint32_t xid = word(m, 0);
            peer.queue_pair->deliver(words({9, 1, 8, 0, 0, 0, 0}) + words({9, 0, 2, 0x40000000, 1}));
            const bytes refusal = co_await next();
            BOOST_TEST(to_hex(refusal) == to_hex(words({9, 1, options.callback_credits, 4, 2})));
            peer.queue_pair->deliver(inline_reply(xid, 8, 5));
        });
    BOOST_TEST(calls.refusals().unanswerable.value() == 1u);
}

// A service for the server's calls that throws costs the connection, which is made again.
BOOST_FIXTURE_TEST_CASE(a_service_that_throws_ends_the_connection, fixture)
{
    struct throwing final : rpc::dispatcher {
        task<bool> dispatch(rpc::call&) override
        {
            throw std::runtime_error("boom");
            co_return false;
        }
    } calls;
    options.callbacks = &calls;
    client = rpcrdma::make_requester(*provider, *buffers, "fake:1", options, &stats);
    run(
        [this]() -> task<void> {
            rpc::request r = ask(1);
            BOOST_TEST(bool(co_await client->call(r)));
        },
        [this]() -> task<void> {
            const bytes first = co_await next();
            peer.queue_pair->deliver(words({9, 1, 8, 0, 0, 0, 0}) + call_head(9, 1));
            const bytes again = co_await next();
            BOOST_TEST(word(again, 0) == word(first, 0));
            peer.queue_pair->deliver(inline_reply(word(again, 0), 8, 5));
        });
    BOOST_TEST(peer.connects == 2u);
}

BOOST_FIXTURE_TEST_CASE(a_new_connection_carries_the_call_again, fixture)
{
    run(
        [this]() -> task<void> {
            rpc::request r = ask_with_payload(7);
            BOOST_TEST(bool(co_await client->call(r)));
        },
        [this]() -> task<void> {
            const bytes first = co_await next();
            const std::uint32_t old_key = word(first, 6);
            peer.queue_pair->end(error(std::errc::connection_reset, "gone"));
            const bytes again = co_await next();
            BOOST_TEST(word(again, 0) == word(first, 0));
            BOOST_TEST(find(old_key) == nullptr);
            BOOST_TEST(find(word(again, 6)) != nullptr);
            peer.queue_pair->deliver(inline_reply(word(again, 0), 8, 0));
        });
    BOOST_TEST(peer.connects == 2u);
}

BOOST_FIXTURE_TEST_CASE(a_queue_pair_that_ends_while_memory_is_granted_fails_no_call, fixture)
{
    // First the Send finds it ended, then the grant does.
    unsigned ended = 0;
    peer.memory.before_grants = [&]() -> result<void> {
        if (++ended > 2)
            return {};
        peer.queue_pair->end_untold();
        return ended == 1 ? result<void>()
                          : error(std::errc::not_connected, "a grant for a queue pair that is not connected");
    };
    run(
        [this]() -> task<void> {
            rpc::request r = ask_with_payload(7);
            auto reply = co_await client->call(r);
            BOOST_TEST(bool(reply), (reply ? "" : reply.error().message()));
        },
        [&]() -> task<void> {
            for (unsigned round = 1; round <= 2; ++round) {
                while (ended < round)
                    co_await sleep_for(1ms);
                co_await sleep_for(1ms);
                peer.queue_pair->end(error(std::errc::no_such_device, "the device was removed"));
                while (peer.connects == round)
                    co_await sleep_for(1ms);
            }
            const bytes m = co_await next();
            BOOST_TEST(find(word(m, 6)) != nullptr);
            peer.queue_pair->deliver(inline_reply(word(m, 0), 8, 0));
        });
    BOOST_TEST(peer.connects == 3u);
}

// A server that goes answers, then ends the connection: the requester hears of both at once.
BOOST_FIXTURE_TEST_CASE(a_reply_just_before_the_end_counts, fixture)
{
    run(
        [this]() -> task<void> {
            rpc::request r = ask(7);
            auto reply = co_await client->call(r);
            BOOST_TEST(bool(reply), (reply ? "" : reply.error().message()));
        },
        [this]() -> task<void> {
            const bytes m = co_await next();
            peer.queue_pair->end_untold();
            peer.queue_pair->deliver(inline_reply(word(m, 0), 8, 0));
            peer.queue_pair->end(error(std::errc::connection_reset, "the peer closed the connection"));
        });
    BOOST_TEST(peer.connects == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
