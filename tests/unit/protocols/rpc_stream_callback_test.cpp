// SPDX-License-Identifier: Apache-2.0
// The client of a stream serves what its server calls. Servers here are made by hand.
#include "rpc_server.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/protocols/rpcstream/stream_client.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>

BOOST_AUTO_TEST_SUITE(rpc_stream_callback_test)

using namespace verbena;
using namespace verbena::test;
using namespace std::chrono_literals;

namespace {

struct fixture {
    explicit fixture(bool serves = true)
    {
        listener = std::move(*net::open_listener(*net::endpoint::parse("127.0.0.1:0")));
        rpc::stream_client_options o;
        o.callbacks = serves ? &world.calls : nullptr;
        client = std::move(*rpc::make_stream_client(*world.shard, world.pool,
                                                    net::endpoint::local(listener.get())->to_string(), o));
        BOOST_TEST(client->serves_calls() == serves);
        ask();
        accept();
        BOOST_TEST_REQUIRE(!record().empty());
    }
    ~fixture()
    {
        world.program.go.set();
        run_until_complete(*world.shard, client->close());
        tasks.request_stop();
        world.turns();
        BOOST_TEST(tasks.live() == 0u);
    }
    /// A call of the client, with so many bytes beside it.
    void ask(std::size_t size = 0)
    {
        tasks.spawn([this, size] { return asking(size); });
        world.turns();
    }
    task<void> asking(std::size_t size)
    {
        rpc::call_header header;
        header.program = 100003;
        header.version = 3;
        header.procedure = 7;
        rpc::request r(world.pool.try_acquire(512), header);
        if (size != 0) {
            r.message().note_payload(static_cast<std::uint32_t>(size));
            lease data = world.pool.try_acquire(size);
            std::memset(data.data(), 'p', size);
            const std::span<const std::byte> view(data.data(), size);
            r.attach(rpc::payload(std::move(data), view));
        }
        auto reply = co_await client->call(r);
        answers += reply ? 1 : 0;
    }
    void accept()
    {
        server.reset();
        for (int i = 0; i < 1000 && !server; ++i) {
            world.turns();
            clock.advance(1ms);
            server =
                net::unique_fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        }
        BOOST_TEST_REQUIRE(bool(server));
        const int yes = 1; // else what is sent waits for what was sent before
        BOOST_TEST_REQUIRE(::setsockopt(server.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) == 0);
        world.turns();
    }
    /// The next record that the client sends, without its mark.
    bytes record()
    {
        const bytes mark = world.receive(server, 4);
        if (mark.size() < 4)
            return {};
        return world.receive(server, xdr::load_u32(mark.data()) & 0x7fffffff);
    }
    void send(const bytes& message)
    {
        world.send(server, framed(message));
        world.turns();
    }
    bool ended()
    {
        (void)world.receive(server);
        return world.closed;
    }

    virtual_clock clock;
    served_streams world{{}, &clock};
    net::unique_fd listener;
    net::unique_fd server;
    std::unique_ptr<rpc::client_transport> client;
    scope tasks{*world.shard};
    int answers = 0;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(what_the_server_calls_is_answered_beside_the_client_s_own_calls, fixture)
{
    send(call_of(77, 1, opaque(5)));
    const bytes said = record();
    BOOST_TEST_REQUIRE(said.size() == 24u + 12);
    BOOST_TEST(xdr::load_u32(said.data()) == 77u);
    BOOST_TEST(xdr::load_u32(said.data() + 4) == 1u); // a reply
    BOOST_TEST(xdr::load_u32(said.data() + 24) == 5u);
    // A refusal too.
    send(call_of(78, 99));
    BOOST_TEST(record().size() == 24u);
    // And one with a payload.
    bytes length;
    append_u32(length, 1001);
    send(call_of(79, 4, length));
    const bytes read = record();
    BOOST_TEST_REQUIRE(read.size() == 24u + 4 + 1004);
    BOOST_CHECK(read[28 + 1000] == std::byte('r'));
    BOOST_CHECK(read[28 + 1001] == std::byte(0));
    BOOST_TEST(world.program.served == 3);
    BOOST_TEST(client->connections() == 1u);
    // In fragments.
    const bytes call = call_of(80, 1, opaque(7));
    bytes parts;
    append_u32(parts, 12);
    append(parts, std::span(call).first(12));
    append_u32(parts, 0x80000000u | static_cast<std::uint32_t>(call.size() - 12));
    append(parts, std::span(call).subspan(12));
    world.send(server, parts);
    BOOST_TEST(xdr::load_u32(record().data()) == 80u);
}

BOOST_FIXTURE_TEST_CASE(a_reply_goes_out_behind_a_record_that_has_begun, fixture)
{
    constexpr std::size_t size = std::size_t(8) << 20; // more than the kernel takes
    for (const bool gives_up : {false, true}) {
        scope caller(*world.shard);
        caller.spawn([&] { return asking(size); });
        world.turns();
        send(call_of(90, 1, opaque(5)));
        if (gives_up)
            caller.request_stop();
        world.turns();
        BOOST_TEST(world.program.served == (gives_up ? 2 : 1));
        const bytes call = record();
        BOOST_TEST_REQUIRE(call.size() == 40u + 4 + size);
        BOOST_CHECK(call[44] == std::byte('p'));
        BOOST_CHECK(call.back() == std::byte('p'));
        BOOST_TEST(xdr::load_u32(record().data()) == 90u);
        // What comes behind is whole.
        send(call_of(91, 1, opaque(6)));
        BOOST_TEST(xdr::load_u32(record().data()) == 91u);
        world.program.served = 1;
        if (!gives_up) {
            bytes answer;
            for (const std::uint32_t word : {xdr::load_u32(call.data()), 1u, 0u, 0u, 0u, 0u})
                append_u32(answer, word);
            send(answer);
            BOOST_TEST(answers == 1);
        }
        run_until_complete(*world.shard, [&]() -> task<void> { co_await caller.join(); }());
    }
    BOOST_TEST(client->connections() == 1u);
}

BOOST_FIXTURE_TEST_CASE(more_calls_at_once_than_may_be_end_the_connection, fixture)
{
    const std::uint32_t most = rpc::stream_client_options().callback_credits;
    for (std::uint32_t i = 0; i < most; ++i)
        send(call_of(i, 2)); // waits
    BOOST_TEST(client->connections() == 1u);
    BOOST_TEST(world.program.served == int(most));
    send(call_of(most, 1, opaque(5)));
    BOOST_TEST(ended());
    BOOST_TEST(world.program.served == int(most));
    // It is made again with what is outstanding, and what was served then is answered to nobody.
    accept();
    BOOST_TEST(!record().empty());
    world.program.go.set();
    world.turns();
    send(call_of(1, 1, opaque(5)));
    BOOST_TEST(record().size() == 24u + 12);
    BOOST_TEST(client->connections() == 2u);
}

BOOST_FIXTURE_TEST_CASE(a_server_that_does_not_read_its_answers_has_no_more_of_them, fixture)
{
    scope caller(*world.shard);
    caller.spawn([&] { return asking(std::size_t(8) << 20); }); // more than the kernel takes
    world.turns();
    const std::uint32_t most = rpc::stream_client_options().callback_credits;
    for (std::uint32_t i = 0; i < most; ++i)
        send(call_of(i, 1, opaque(5)));
    BOOST_TEST(client->connections() == 1u);
    BOOST_TEST(world.program.served == int(most));
    send(call_of(most, 1, opaque(5)));
    BOOST_TEST(world.program.served == int(most));
    BOOST_TEST(ended());
    caller.request_stop();
    run_until_complete(*world.shard, [&]() -> task<void> { co_await caller.join(); }());
}

BOOST_FIXTURE_TEST_CASE(a_call_that_is_done_makes_room, fixture)
{
    for (std::uint32_t i = 0; i < 100; ++i) {
        send(call_of(i, 8)); // which has no reply
        send(call_of(i, 1, opaque(5)));
        BOOST_TEST_REQUIRE(record().size() == 24u + 12);
    }
    BOOST_TEST(client->connections() == 1u);
}

BOOST_AUTO_TEST_CASE(rubbish_ends_the_connection_and_nothing_else)
{
    bytes unreadable;
    for (const std::uint32_t word : {5u, 0u, 2u})
        append_u32(unreadable, word);
    bytes no_message;
    append_u32(no_message, 5);
    append_u32(no_message, 7);
    const std::size_t most = rpc::stream_client_options::max_callback;
    for (const bytes& each : {unreadable, no_message, call_of(1, 1, opaque(most))}) {
        fixture f;
        f.send(each);
        BOOST_TEST(f.ended());
        f.accept();
        BOOST_TEST(!f.record().empty());
        BOOST_TEST(f.world.program.served == 0);
    }
    fixture f;
    f.send(call_of(1, 1, opaque(most - 100)));
    BOOST_TEST(f.record().size() > most - 100);
}

BOOST_AUTO_TEST_CASE(a_reply_that_is_too_long_ends_the_connection)
{
    fixture f;
    bytes length;
    append_u32(length, 5000);
    f.send(call_of(79, 4, length));
    BOOST_TEST(f.ended());
}

BOOST_AUTO_TEST_CASE(without_a_dispatcher_calls_are_dropped)
{
    fixture f(false);
    f.send(call_of(1, 1, opaque(5)));
    BOOST_TEST(f.record().empty());
    BOOST_TEST(!f.world.closed);
    BOOST_TEST(f.client->connections() == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
