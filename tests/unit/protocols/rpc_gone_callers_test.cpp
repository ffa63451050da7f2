// SPDX-License-Identifier: Apache-2.0
// What becomes of calls whose caller is gone, on every transport alike: what changes nothing is asked to stop, what changes something goes on to
// its end, and a repeat gets what that came to.
#include <boost/test/unit_test.hpp>

#include "../log_at.hpp"
#include "raw_requester.hpp"
#include "rpc_server.hpp"

#include <verbena/core/log.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>

#include <boost/test/data/test_case.hpp>

BOOST_AUTO_TEST_SUITE(rpc_gone_callers_test)

using namespace verbena;
using namespace verbena::test;

namespace {

const char* const transports[] = {"tcp", "loop", "iwarp"};

constexpr std::uint32_t wait = 2;           // changes nothing
constexpr std::uint32_t count = 5;          // effect::changes
constexpr std::uint32_t count_in_turn = 13; // effect::sets
constexpr std::uint32_t changes_with_data = 18;
constexpr std::uint32_t next_job = 17; // effect::changes, once it is there

bytes message_of(std::uint32_t xid, std::uint32_t procedure)
{
    bytes message;
    for (const std::uint32_t word : {xid, 0U, 2U, 0x20000001U, 2U, procedure, 0U, 0U, 0U, 0U})
        append_u32(message, word);
    return message;
}

// A server with one client, which calls, dies, and may come back.
struct served {
    const test::log_at level_of_log{log_level::off};
    explicit served(std::string_view over) : transport(over)
    {
        calls.add(program);
        program.wait_in_count = true;
        if (is_stream())
            streams.emplace(*shard, pool, calls);
        come_back();
    }
    ~served()
    {
        program.go.set();
        peer.reset();
        gone.clear();
        if (streams)
            run_until_complete(*shard, streams->shut_down(shard->clock().now()));
        BOOST_TEST(pool.outstanding() == 0U);
    }
    bool is_stream() const { return transport == "tcp"; }
    void come_back()
    {
        if (!is_stream()) {
            if (peer)
                gone.push_back(std::move(peer));
            peer = std::make_unique<raw_requester>(*shard, pool, calls, transport);
            return;
        }
        int ends[2];
        BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
        streams->adopt(net::unique_fd(ends[0]), *net::endpoint::parse("192.0.2.1:1023"));
        client = net::unique_fd(ends[1]);
    }
    void call(std::uint32_t xid, std::uint32_t procedure)
    {
        const int before = program.served;
        begin(xid, procedure);
        until([&] { return program.served == before + 1; });
    }
    void begin(std::uint32_t xid, std::uint32_t procedure)
    {
        const bytes message = message_of(xid, procedure);
        if (is_stream()) {
            const bytes record = framed(message);
            BOOST_REQUIRE(::send(client.get(), record.data(), record.size(), MSG_NOSIGNAL) ==
                          ssize_t(record.size()));
            return;
        }
        rpcrdma::header h;
        h.xid = xid;
        h.credits = 4;
        peer->post(h, message);
    }
    /// The word that the next reply ends with.
    std::uint32_t answer()
    {
        bytes got;
        if (is_stream()) {
            until([&] {
                std::byte b[256];
                const ssize_t n = ::recv(client.get(), b, sizeof b, MSG_DONTWAIT);
                if (n > 0)
                    got.insert(got.end(), b, b + n);
                return got.size() == 4 + 24 + 4;
            });
        } else {
            got = peer->next().body;
        }
        BOOST_REQUIRE(got.size() >= 4U);
        return xdr::load_u32(got.data() + got.size() - 4);
    }
    void vanish()
    {
        if (is_stream())
            client = {};
        else
            peer->vanish();
        turns();
    }
    /// Its call is to hear of that. One that does not would hold up the stop for ever, and is let go.
    void stop_server()
    {
        scope stopping(*shard);
        if (is_stream())
            stopping.spawn([this] { return streams->shut_down(shard->clock().now()); });
        else
            peer->begin_stop();
        for (int i = 0; i < 1000 && program.stopped == 0; ++i)
            shard->turn();
        program.go.set();
        if (!is_stream())
            peer->stop_server();
        while (stopping.live() != 0)
            shard->turn();
    }
    void turns()
    {
        for (int i = 0; i < 50; ++i)
            shard->turn();
    }
    void until(const std::function<bool()>& done)
    {
        for (int i = 0; i < 100'000 && !done(); ++i)
            shard->turn();
        BOOST_REQUIRE(done());
    }

    const std::string transport;
    memory_budget budget{std::size_t(64) << 20};
    std::unique_ptr<reactor> shard = std::move(*reactor::create());
    buffer_pool pool{budget, shard.get()};
    rpc::duplicate_request_cache repeats{1};
    test_program program;
    rpc::service_dispatcher calls{*shard, &repeats};
    std::optional<rpc::stream_server> streams;
    net::unique_fd client;
    std::unique_ptr<raw_requester> peer;
    std::vector<std::unique_ptr<raw_requester>> gone;
};

} // namespace

BOOST_DATA_TEST_CASE(what_changes_nothing_is_asked_to_stop, transports, transport)
{
    served s(transport);
    s.call(1, wait);
    s.call(2, wait);
    s.turns();
    BOOST_TEST(s.program.stopped == 0);
    s.vanish();
    BOOST_TEST(s.program.stopped == 2);
}

// Nothing more is read from a stream that has as many calls under way as it may, and its end is noticed all the same.
BOOST_DATA_TEST_CASE(what_changes_nothing_is_asked_to_stop_at_the_limit_of_calls, transports, transport)
{
    served s(transport);
    const int calls = s.is_stream() ? int(rpc::stream_options().max_calls) : 4;
    for (int i = 0; i < calls; ++i)
        s.call(std::uint32_t(1 + i), wait);
    if (s.is_stream())
        BOOST_TEST(s.streams->stats().pauses.value() == 1u);
    s.turns();
    BOOST_TEST(s.program.stopped == 0);
    s.vanish();
    BOOST_TEST(s.program.stopped == calls);
}

// And what came of it is told to a client that is back.
BOOST_DATA_TEST_CASE(what_changes_something_goes_on_and_answers_a_repeat, transports, transport)
{
    served s(transport);
    s.call(1, count);
    s.call(2, count_in_turn);
    s.vanish();
    BOOST_TEST(s.program.stopped == 0);
    BOOST_TEST(s.program.running == 1);
    s.come_back();
    s.begin(1, count); // waits for the first run
    s.turns();
    BOOST_TEST(s.program.served == 2);
    s.program.go.set();
    BOOST_TEST(s.answer() == 1U);
    BOOST_TEST(s.program.stopped == 0);
    BOOST_TEST(s.program.served == 2);
    BOOST_TEST(s.program.running == 0);
}

// A long poll: what it waits for is nobody's if its caller is gone, and the next one gets it.
BOOST_DATA_TEST_CASE(what_waits_before_it_changes_anything_ends_with_its_caller, transports, transport)
{
    served s(transport);
    s.call(1, next_job);
    s.turns();
    BOOST_TEST(s.program.stopped == 0);
    s.vanish();
    BOOST_TEST(s.program.stopped == 1);
    s.come_back();
    s.call(1, next_job); // a repeat runs, as nothing was done
    s.program.go.set();
    BOOST_TEST(s.answer() == 1U);
    BOOST_TEST(s.program.stopped == 1);
}

// Its task hears of no stop, and the Reads of its arguments end with the connection all the same, those too that wait
// for their turn.
BOOST_AUTO_TEST_CASE(what_goes_on_does_not_wait_for_arguments_that_will_not_come)
{
    constexpr std::uint32_t segments = 64; // more than may be read at once
    constexpr std::uint32_t size = 1024;
    for (const char* const transport : {"loop", "iwarp"}) {
        for (int turns = 0; turns < 10; ++turns) {
            served s(transport);
            bytes message = message_of(1, changes_with_data);
            append_u32(message, segments * size);
            const rpcrdma::segment all = s.peer->readable(bytes(segments * size)).where();
            rpcrdma::header h;
            h.xid = 1;
            h.credits = 4;
            for (std::uint32_t i = 0; i < segments; ++i) {
                const rpcrdma::segment part{all.handle, size, all.offset + i * size};
                BOOST_REQUIRE(h.reads.push_back({static_cast<std::uint32_t>(message.size()), part}));
            }
            s.peer->post(h, message);
            for (int i = 0; i < turns; ++i)
                s.shard->turn();
            s.vanish();
            s.until([&] { return s.peer->stats.connections.value() == 0; });
            s.turns();
            // Of the call nothing is left: the requester alone has buffers.
            BOOST_TEST(s.pool.outstanding() <= 6U);
        }
    }
}

// The time for a drain bounds that.
BOOST_DATA_TEST_CASE(the_stop_of_a_server_ends_what_goes_on, transports, transport)
{
    for (const std::uint32_t procedure : {count, count_in_turn, wait, next_job}) {
        for (const bool is_gone : {false, true}) {
            served s(transport);
            s.call(1, procedure);
            if (is_gone)
                s.vanish();
            BOOST_TEST(s.program.stopped ==
                       (is_gone && (procedure == wait || procedure == next_job) ? 1 : 0));
            s.stop_server();
            BOOST_TEST(s.program.stopped == 1);
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
