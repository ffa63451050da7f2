// SPDX-License-Identifier: Apache-2.0
// verbs::connection: a queue pair for coroutines, on every provider.
#include "../marked_memory.hpp"
#include "conformance.hpp"

#include <verbena/core/verbs/connection.hpp>

#include <optional>
#include <vector>

BOOST_AUTO_TEST_SUITE(connection_test)

using namespace verbena;
using namespace verbena::conformance;
using verbs::connection_options;

namespace {

using end = std::unique_ptr<verbs::connection>;

struct pair_of {
    explicit pair_of(const provider& p) : f(p), pool(budget, &f.shard()) {}

    task<void> answer(connection_options o)
    {
        auto request = co_await f.listener->next();
        BOOST_REQUIRE(request);
        std::unique_ptr<verbs::connect_request> peer = std::move(*request);
        auto made = co_await verbs::connection::accept(f.shard(), std::move(peer), *f.server.domain, pool, o);
        BOOST_REQUIRE_MESSAGE(made, why(made));
        server = std::move(*made);
    }
    task<void> connect(connection_options of_client = {}, connection_options of_server = {})
    {
        for (side* s : {&f.client, &f.server}) {
            const auto added = co_await s->domain->add_pool(pool);
            BOOST_REQUIRE_MESSAGE(added, why(added));
        }
        scope children(f.shard());
        children.spawn([&] { return answer(of_server); });
        auto made = co_await verbs::connection::connect(*f.client.context, f.where, *f.client.domain, pool,
                                                        of_client);
        BOOST_REQUIRE_MESSAGE(made, why(made));
        client = std::move(*made);
        co_await children.join();
    }
    void run(const std::function<task<void>()>& body)
    {
        f.run(body);
        client.reset();
        server.reset();
    }
    lease filled(std::size_t size, std::size_t seed = 1)
    {
        lease l = pool.try_acquire(std::max<std::size_t>(size, 1));
        std::ranges::copy(pattern(size, seed), l.data());
        return l;
    }
    task<void> ended(verbs::connection& c, bool orderly)
    {
        const error cause = co_await c.ended();
        BOOST_TEST((cause == verbs::connection_end::orderly) == orderly, cause.message());
    }

    memory_budget budget{std::size_t(64) << 20};
    fixture f;
    buffer_pool pool;
    end client, server;
};

bool same(std::span<const std::byte> got, const std::vector<std::byte>& wanted)
{
    return std::ranges::equal(got, wanted);
}

} // namespace

CONFORMANCE_CASE(messages_go_both_ways)
{
    pair_of t(p);
    t.run([&]() -> task<void> {
        co_await t.connect();
        for (std::size_t size : {0u, 1u, 100u, 4096u}) {
            const auto sent = co_await t.client->send(t.filled(size, size), size);
            BOOST_TEST_REQUIRE(sent.has_value(), why(sent));
            auto got = co_await t.server->receive();
            BOOST_TEST_REQUIRE(got.has_value(), why(got));
            BOOST_TEST(same(got->bytes(), pattern(size, size)));
            BOOST_TEST(!got->immediate().has_value());
            // What came is the taker's own, and may be sent on.
            const auto back = co_await t.server->send(got->take(), size);
            BOOST_TEST_REQUIRE(back.has_value(), why(back));
            auto echoed = co_await t.client->receive();
            BOOST_TEST_REQUIRE(echoed.has_value(), why(echoed));
            BOOST_TEST(same(echoed->bytes(), pattern(size, size)));
        }
        BOOST_TEST(t.client->connected());
        t.client->disconnect();
        co_await t.ended(*t.client, true);
        co_await t.ended(*t.server, true);
        BOOST_TEST(!t.client->connected());
        const auto late = co_await t.client->send(t.filled(1), 1);
        BOOST_TEST((!late && late.error() == verbs::connection_end::orderly));
    });
    BOOST_TEST(t.pool.outstanding() == 0u);
}

CONFORMANCE_CASE(memory_of_the_peer_is_written_and_read)
{
    pair_of t(p);
    t.run([&]() -> task<void> {
        co_await t.connect();
        constexpr std::size_t size = 100'000;
        lease target = t.pool.try_acquire(size);
        auto g = co_await t.f.server.domain->make_grant(
            target.bytes().first(size), verbs::access::remote_write | verbs::access::remote_read, nullptr);
        BOOST_TEST_REQUIRE(g.has_value(), why(g));
        const verbs::remote_segment where = g->where();
        const auto written = co_await t.client->write(t.filled(size, 3), size, where);
        BOOST_TEST_REQUIRE(written.has_value(), why(written));
        auto read = co_await t.client->read(t.pool.try_acquire(size), size, where);
        BOOST_TEST_REQUIRE(read.has_value(), why(read));
        BOOST_TEST(same(read->bytes().first(size), pattern(size, 3)));
        const auto beyond = co_await t.client->write(t.filled(size), size, {where.key, 10, where.address});
        BOOST_TEST((!beyond && beyond.error() == std::errc::invalid_argument));
        const auto too_much = co_await t.client->send(t.filled(10), 1 << 20);
        BOOST_TEST((!too_much && too_much.error() == std::errc::invalid_argument));
        if (t.f.can().write_with_immediate) {
            const auto told = co_await t.client->write_with_immediate(t.filled(5, 4), 5, where, 0xabcd1234);
            BOOST_TEST_REQUIRE(told.has_value(), why(told));
            auto got = co_await t.server->receive();
            BOOST_TEST_REQUIRE(got.has_value(), why(got));
            BOOST_TEST((got->immediate() == 0xabcd1234u));
            BOOST_TEST(got->written() == 5u);
            BOOST_TEST(got->bytes().empty());
            BOOST_TEST(same(target.bytes().first(5), pattern(5, 4)));
        }
        if (t.f.can().send_with_immediate) {
            const auto told = co_await t.client->send_with_immediate(t.filled(7, 6), 7, 0xfeed5678);
            BOOST_TEST_REQUIRE(told.has_value(), why(told));
            auto got = co_await t.server->receive();
            BOOST_TEST_REQUIRE(got.has_value(), why(got));
            BOOST_TEST(same(got->bytes(), pattern(7, 6)));
            if (t.f.can().immediates_apart) {
                BOOST_TEST(!got->immediate().has_value());
                got = co_await t.server->receive();
                BOOST_TEST_REQUIRE(got.has_value(), why(got));
                BOOST_TEST(got->bytes().empty());
            }
            BOOST_TEST((got->immediate() == 0xfeed5678u));
            BOOST_TEST(got->written() == 0u);
        }
        if (t.f.can().remote_invalidate) {
            const auto closed = co_await t.client->send_with_invalidate(t.filled(1), 1, where.key);
            BOOST_TEST_REQUIRE(closed.has_value(), why(closed));
            auto got = co_await t.server->receive();
            BOOST_TEST_REQUIRE(got.has_value(), why(got));
            BOOST_TEST(got->invalidated_key() == where.key);
            BOOST_TEST(!g->valid());
        }
    });
}

// Buffers have been others' before. No more of them leaves than the length that is given.
CONFORMANCE_CASE(what_lay_in_memory_before_stays)
{
    pair_of t(p);
    t.run([&]() -> task<void> {
        co_await t.connect();
        constexpr std::size_t room = 4096;
        const auto marked = [&] {
            lease l = t.pool.try_acquire(room);
            std::ranges::fill(l.bytes(), test::mark);
            return l;
        };
        for (const std::size_t size : {0u, 1u, 100u}) {
            lease l = marked();
            std::ranges::copy(pattern(size, size), l.data());
            BOOST_REQUIRE(co_await t.client->send(std::move(l), size));
            auto got = co_await t.server->receive();
            BOOST_REQUIRE(got);
            BOOST_TEST(same(got->bytes(), pattern(size, size)));
            // As examples/echo sends it back.
            const std::size_t came = got->bytes().size();
            BOOST_REQUIRE(co_await t.server->send(got->take(), came));
            auto echoed = co_await t.client->receive();
            BOOST_REQUIRE(echoed);
            BOOST_TEST(same(echoed->bytes(), pattern(size, size)));
        }
        lease target = t.pool.try_acquire(room);
        std::ranges::fill(target.bytes(), std::byte(0));
        auto g = co_await t.f.server.domain->make_grant(
            target.bytes().first(room), verbs::access::remote_write | verbs::access::remote_read, nullptr);
        BOOST_TEST_REQUIRE(g.has_value(), why(g));
        const verbs::remote_segment where = g->where();
        BOOST_REQUIRE(co_await t.client->write(marked(), 0, where));
        std::vector<std::byte> expected(room);
        if (t.f.can().write_with_immediate) {
            lease few = marked();
            std::ranges::copy(pattern(5, 4), few.data());
            BOOST_REQUIRE(co_await t.client->write_with_immediate(std::move(few), 5, where, 1));
            auto got = co_await t.server->receive();
            BOOST_REQUIRE(got);
            BOOST_TEST(got->bytes().empty());
            std::ranges::copy(pattern(5, 4), expected.begin());
            BOOST_REQUIRE(co_await t.client->write_with_immediate(marked(), 0, where, 2));
            got = co_await t.server->receive();
            BOOST_REQUIRE(got);
            BOOST_TEST(got->bytes().empty());
        }
        if (t.f.can().send_with_immediate && !t.f.can().immediates_apart) {
            BOOST_REQUIRE(co_await t.client->send_with_immediate(marked(), 0, 3));
            auto got = co_await t.server->receive();
            BOOST_REQUIRE(got);
            BOOST_TEST(got->bytes().empty());
        }
        // What is read says what is there now.
        auto read = co_await t.client->read(marked(), room, where);
        BOOST_TEST_REQUIRE(read.has_value(), why(read));
        BOOST_TEST(same(read->bytes().first(room), expected));
    });
}

CONFORMANCE_CASE(what_the_peer_does_not_allow_ends_the_connection)
{
    pair_of t(p);
    t.run([&]() -> task<void> {
        co_await t.connect();
        const auto refused = co_await t.client->read(t.pool.try_acquire(64), 64, {0x12345678, 64, 0});
        BOOST_TEST(!refused);
        co_await t.ended(*t.client, false);
        co_await t.ended(*t.server, false);
        const auto got = co_await t.server->receive();
        BOOST_TEST((!got && !(got.error() == std::errc::operation_canceled)));
        const auto again = co_await t.server->receive(); // whoever asks later hears it too
        BOOST_TEST(!again);
    });
    BOOST_TEST(t.pool.outstanding() == 0u);
}

// More than may be under way wait; the peer takes no message before all were asked for.
CONFORMANCE_CASE(more_operations_than_there_is_room_for)
{
    pair_of t(p);
    connection_options few;
    few.operations = 2;
    connection_options many;
    many.receives = 100;
    t.run([&]() -> task<void> {
        co_await t.connect(few, many);
        scope sends(t.f.shard());
        unsigned good = 0;
        for (std::size_t i = 0; i < 100; ++i)
            sends.spawn([&, i]() -> task<void> {
                const auto sent = co_await t.client->send(t.filled(8, i), 8);
                good += sent.has_value();
            });
        co_await sends.join();
        BOOST_TEST(good == 100u);
        for (std::size_t i = 0; i < 100; ++i) {
            auto got = co_await t.server->receive();
            BOOST_TEST_REQUIRE(got.has_value(), why(got));
            BOOST_TEST(same(got->bytes(), pattern(8, i)));
        }
    });
}

CONFORMANCE_CASE(what_came_before_the_end_is_received)
{
    pair_of t(p);
    t.run([&]() -> task<void> {
        co_await t.connect();
        for (std::size_t i = 0; i < 3; ++i) {
            const auto sent = co_await t.client->send(t.filled(8, i), 8);
            BOOST_TEST_REQUIRE(sent.has_value(), why(sent));
        }
        t.client->disconnect();
        co_await t.ended(*t.server, true);
        for (std::size_t i = 0; i < 3; ++i) {
            auto got = co_await t.server->receive();
            BOOST_TEST_REQUIRE(got.has_value(), why(got));
            BOOST_TEST(same(got->bytes(), pattern(8, i)));
        }
        const auto none = co_await t.server->receive();
        BOOST_TEST((!none && none.error() == verbs::connection_end::orderly));
    });
}

// A Read that was given up: its memory stays until the device is done with it.
CONFORMANCE_CASE(a_stop_leaves_the_memory_with_the_connection)
{
    pair_of t(p);
    t.run([&]() -> task<void> {
        co_await t.connect();
        constexpr std::size_t size = 1 << 20;
        lease source = t.filled(size);
        auto g = co_await t.f.server.domain->make_grant(source.bytes().first(size),
                                                        verbs::access::remote_read, nullptr);
        BOOST_TEST_REQUIRE(g.has_value(), why(g));
        const std::size_t before = t.pool.outstanding();
        std::optional<error> said;
        {
            scope reading(t.f.shard());
            reading.spawn([&]() -> task<void> {
                auto read = co_await t.client->read(t.pool.try_acquire(size), size, g->where());
                if (!read)
                    said = read.error();
            });
            reading.spawn([&]() -> task<void> {
                const auto none = co_await t.client->receive();
                BOOST_TEST((!none && none.error() == std::errc::operation_canceled));
            });
            reading.request_stop();
            co_await reading.join();
            // The device may write into it yet.
            if (t.f.shard().clock().is_virtual())
                BOOST_TEST(t.pool.outstanding() == before + 1);
        }
        BOOST_TEST_REQUIRE(said.has_value());
        BOOST_TEST((*said == std::errc::operation_canceled));
        co_await t.f.until([&] { return t.pool.outstanding() == before; });
        // No message is lost by a receive that was given up.
        const auto sent = co_await t.server->send(t.filled(8), 8);
        BOOST_TEST_REQUIRE(sent.has_value(), why(sent));
        auto got = co_await t.client->receive();
        BOOST_TEST_REQUIRE(got.has_value(), why(got));
    });
}

// What is posted no more, since the connection ends, keeps nobody waiting.
CONFORMANCE_CASE(a_receive_amid_the_end)
{
    pair_of t(p);
    connection_options one;
    one.receives = 1;
    t.run([&]() -> task<void> {
        co_await t.connect({}, one);
        const auto sent = co_await t.client->send(t.filled(8), 8);
        BOOST_TEST_REQUIRE(sent.has_value(), why(sent));
        auto first = co_await t.server->receive();
        BOOST_TEST_REQUIRE(first.has_value(), why(first));
        t.server->disconnect();
        const auto none = co_await t.server->receive();
        BOOST_TEST(!none.has_value());
        co_await t.ended(*t.server, true);
    });
}

// Others have the memory of the receives for a while; who waits is served in order when it is back.
CONFORMANCE_CASE(receives_come_back_with_the_memory)
{
    pair_of t(p);
    connection_options one;
    one.receives = 1;
    t.run([&]() -> task<void> {
        co_await t.connect({}, one);
        const auto sent = co_await t.client->send(t.filled(8, 1), 8);
        BOOST_TEST_REQUIRE(sent.has_value(), why(sent));
        const std::size_t standing = t.pool.outstanding();
        lease next = t.filled(8, 2);
        std::vector<lease> taken;
        while (lease l = t.pool.try_acquire(1 << 20))
            taken.push_back(std::move(l));
        while (lease l = t.pool.try_acquire(4096))
            taken.push_back(std::move(l));
        auto first = co_await t.server->receive(); // kept, so that no receive stands
        BOOST_TEST_REQUIRE(first.has_value(), why(first));
        unsigned order = 0;
        scope waiting(t.f.shard());
        waiting.spawn([&]() -> task<void> {
            auto got = co_await t.server->receive();
            BOOST_TEST_REQUIRE(got.has_value(), why(got));
            BOOST_TEST(same(got->bytes(), pattern(8, 2)));
            BOOST_TEST(++order == 1u);
        });
        waiting.spawn([&]() -> task<void> {
            const auto none = co_await t.server->receive();
            BOOST_TEST((!none && none.error() == verbs::connection_end::orderly));
            BOOST_TEST(++order == 2u);
        });
        co_await sleep_for(30ms);
        BOOST_TEST(order == 0u);
        taken.clear();
        co_await t.f.until([&] { return t.pool.outstanding() == standing + 2; });
        const auto sent_then = co_await t.client->send(std::move(next), 8);
        BOOST_TEST_REQUIRE(sent_then.has_value(), why(sent_then));
        co_await t.f.until([&] { return order == 1; });
        t.client->disconnect();
        co_await waiting.join();
    });
}

// The end is heard where there is no memory, too.
CONFORMANCE_CASE(the_end_comes_without_memory)
{
    pair_of t(p);
    connection_options one;
    one.receives = 1;
    t.run([&]() -> task<void> {
        co_await t.connect({}, one);
        const auto sent = co_await t.client->send(t.filled(8), 8);
        BOOST_TEST_REQUIRE(sent.has_value(), why(sent));
        std::vector<lease> taken;
        while (lease l = t.pool.try_acquire(1 << 20))
            taken.push_back(std::move(l));
        while (lease l = t.pool.try_acquire(4096))
            taken.push_back(std::move(l));
        auto first = co_await t.server->receive();
        BOOST_TEST_REQUIRE(first.has_value(), why(first));
        scope waiting(t.f.shard());
        waiting.spawn([&]() -> task<void> {
            const auto none = co_await t.server->receive();
            BOOST_TEST((!none && none.error() == verbs::connection_end::orderly));
        });
        t.client->disconnect();
        co_await waiting.join();
    });
}

CONFORMANCE_CASE(who_waits_for_room_hears_of_the_end)
{
    pair_of t(p);
    connection_options one;
    one.operations = 1;
    t.run([&]() -> task<void> {
        co_await t.connect(one);
        scope sends(t.f.shard());
        unsigned ended = 0;
        unsigned good = 0;
        for (std::size_t i = 0; i < 3; ++i)
            sends.spawn([&]() -> task<void> {
                for (;;) {
                    const auto sent = co_await t.client->send(t.filled(8), 8);
                    if (!sent)
                        break;
                    if (++good == 50)
                        t.client->disconnect();
                    (void)co_await t.server->receive();
                }
                ++ended;
            });
        co_await sends.join();
        BOOST_TEST(ended == 3u);
    });
}

CONFORMANCE_CASE(a_read_of_nothing)
{
    pair_of t(p);
    t.run([&]() -> task<void> {
        co_await t.connect();
        auto read = co_await t.client->read(t.pool.try_acquire(1), 0, {1, 64, 0});
        BOOST_TEST_REQUIRE(read.has_value(), why(read));
        BOOST_TEST(t.client->connected());
    });
}

CONFORMANCE_CASE(without_memory_for_receives_there_is_no_connection)
{
    pair_of t(p);
    std::vector<lease> taken;
    t.run([&]() -> task<void> {
        while (lease l = t.pool.try_acquire(1 << 20))
            taken.push_back(std::move(l));
        while (lease l = t.pool.try_acquire(4096))
            taken.push_back(std::move(l));
        scope answers(t.f.shard());
        answers.spawn([&]() -> task<void> {
            auto request = co_await t.f.listener->next();
            BOOST_REQUIRE(request);
            std::unique_ptr<verbs::connect_request> peer = std::move(*request);
            const connection_options o;
            auto made = co_await verbs::connection::accept(t.f.shard(), std::move(peer), *t.f.server.domain,
                                                           t.pool, o);
            BOOST_TEST((!made && made.error() == std::errc::not_enough_memory));
        });
        connection_options immediates;
        immediates.message_size = 0;
        const auto made = co_await verbs::connection::connect(*t.f.client.context, t.f.where,
                                                              *t.f.client.domain, t.pool, immediates);
        BOOST_TEST(!made);
        co_await answers.join();
        taken.clear();
    });
}

BOOST_AUTO_TEST_SUITE_END()
