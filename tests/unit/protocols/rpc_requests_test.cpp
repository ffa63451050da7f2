// SPDX-License-Identifier: Apache-2.0
// Calls over streams in the list of requests: they are there while they are served, and go however they end.
#include <boost/test/unit_test.hpp>

#include "../log_at.hpp"
#include "memory_call.hpp"
#include "requests_in.hpp"
#include "rpc_server.hpp"

#include "../../../protocols/rpc/calls_under_way.hpp"

#include <verbena/core/net/connection_list.hpp>

#include <map>

BOOST_AUTO_TEST_SUITE(rpc_requests_test)

using namespace verbena;
using namespace verbena::test;
using namespace std::chrono_literals;

namespace {

using texts = std::vector<std::string>;

// Throws at once for a call of XID 1, and later for one of XID 2.
class throwing final : public rpc::dispatcher {
public:
    task<bool> dispatch(rpc::call& c) override
    {
        (void)c.decode_header();
        if (c.header().xid == 2)
            (void)co_await go.wait("the word of a test");
        throw std::runtime_error("boom");
    }
    event go;
};

// Answers with bytes that are in no buffer.
class unowned final : public rpc::dispatcher {
public:
    task<bool> dispatch(rpc::call& c) override
    {
        (void)c.decode_header();
        rpc::encode(c.results(),
                    rpc::reply_header::accepted_with(c.header().xid, rpc::accept_status::success));
        c.results().note_payload(static_cast<std::uint32_t>(memory.size()));
        c.attach(rpc::payload(lease(), memory));
        co_return true;
    }
    const bytes memory = bytes(std::size_t(1) << 20);
};

struct of_file final : request_detail {
    void describe(request_report& into) const noexcept override { into.object.append("/data"); }
};

// Says what it does from its frame, which goes before the call: procedure 1 throws.
class describing final : public rpc::program {
public:
    std::uint32_t number() const noexcept override { return 0x20000002; }
    std::uint32_t low_version() const noexcept override { return 1; }
    std::uint32_t high_version() const noexcept override { return 1; }
    std::string_view name() const noexcept override { return "describing"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t) const noexcept override { return "TELL"; }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    task<rpc::outcome> serve(rpc::call& c) override
    {
        const of_file file;
        c.set_detail(&file);
        request_report now;
        c.report(now);
        told = now.object.view();
        if (c.header().procedure == 1)
            throw std::runtime_error("boom");
        co_return rpc::outcome::success;
    }
    std::string told;
};

} // namespace

// A reply may wait for its connection, and the call is listed meanwhile.
BOOST_AUTO_TEST_CASE(what_a_program_says_of_a_call_goes_with_its_frame)
{
    const test::log_at quiet(log_level::off);
    describing program;
    memory_server s;
    s.dispatcher.add(program);
    for (const std::uint32_t procedure : {0U, 1U}) {
        memory_call c(s.pool, s.from);
        c.end(c.begin(program.number(), 1, procedure, nullptr));
        BOOST_TEST(s.dispatch(c));
        BOOST_TEST(std::exchange(program.told, {}) == "/data");
        BOOST_TEST((c.detail() == nullptr));
    }
}

BOOST_AUTO_TEST_CASE(a_call_is_there_until_it_is_answered)
{
    connection_list connections;
    rpc::stream_options o;
    o.connections = &connections;
    served_streams s(o);
    const auto one = s.connect("192.0.2.1:1023");
    const auto other = s.connect("192.0.2.2:700");
    s.send(one, framed(call_of(0x3fa0c11d, 2)));
    s.send(other, framed(call_of(7, 2, {}, 2)));
    s.send(other, framed(call_of(8, 0))); // answered at once
    s.turns();
    BOOST_TEST(requests_in(*s.shard) == (texts{"192.0.2.1:1023 tcp test 3 WAIT waits for event",
                                               "192.0.2.2:700 tcp test 2 WAIT waits for event"}),
               boost::test_tools::per_element());
    BOOST_TEST(calls_in(*s.shard) == (texts{"3fa0c11d", "00000007"}), boost::test_tools::per_element());
    // By the number of the connection, as `connections` has it.
    connection_list::reader reader(connections);
    const std::uint32_t number = reader.next()->report().number;
    BOOST_TEST(number != 0U);
    BOOST_TEST(reader.next()->report().number != number);
    request_list::reader requests(s.shard->requests());
    request_report first;
    requests.next()->report(first);
    BOOST_TEST(first.trace == trace_of(number, 0x3fa0c11d));
    s.program.go.set();
    BOOST_TEST(s.receive(one, 28).size() == 28U);
    BOOST_TEST(requests_in(*s.shard).empty());
}

BOOST_AUTO_TEST_CASE(a_call_goes_with_its_caller_if_it_is_asked_to_stop)
{
    served_streams s;
    auto waits = s.connect();
    auto goes_on = s.connect("192.0.2.2:700");
    s.program.wait_in_count = true;
    s.send(waits, framed(call_of(1, 2)));
    s.send(goes_on, framed(call_of(2, 5))); // changes something
    s.turns();
    BOOST_TEST(requests_in(*s.shard).size() == 2U);
    waits.reset();
    s.turns();
    BOOST_TEST(calls_in(*s.shard) == texts{"00000002"}, boost::test_tools::per_element());
    BOOST_TEST(s.program.stopped == 1);
    // The other one is there as long as it runs, with a peer that has gone.
    goes_on.reset();
    s.turns();
    BOOST_TEST(requests_in(*s.shard) == texts{"192.0.2.2:700 tcp test 3 COUNT waits for event"},
               boost::test_tools::per_element());
    s.program.go.set();
    s.turns();
    BOOST_TEST(requests_in(*s.shard).empty());
}

BOOST_AUTO_TEST_CASE(calls_that_throw_or_get_no_answer_go)
{
    const test::log_at quiet(log_level::off);
    served_streams s;
    const auto client = s.connect();
    s.send(client, framed(call_of(1, 12))); // throws later
    s.turns();
    BOOST_TEST(requests_in(*s.shard).size() == 1U);
    s.program.go.set();
    s.turns();
    BOOST_TEST(requests_in(*s.shard).empty());
    for (const std::uint32_t procedure : {11U, 8U, 6U, 99U}) // throws at once, drops, fails, is none
        s.send(client, framed(call_of(2, procedure)));
    s.turns();
    BOOST_TEST(requests_in(*s.shard).empty());
    for (const std::uint32_t xid : {1U, 2U}) {
        throwing calls;
        rpc::stream_server server(*s.shard, s.pool, calls);
        int ends[2];
        BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
        server.adopt(net::unique_fd(ends[0]), *net::endpoint::parse("192.0.2.1:1023"));
        const net::unique_fd own(ends[1]);
        s.send(own, framed(call_of(xid, 0)));
        s.turns();
        // A dispatcher of one's own knows no names.
        BOOST_TEST(requests_in(*s.shard) ==
                       (xid == 1 ? texts() : texts{"192.0.2.1:1023 tcp rpc waits for the word of a test"}),
                   boost::test_tools::per_element());
        calls.go.set();
        s.turns();
        BOOST_TEST(requests_in(*s.shard).empty());
        run_until_complete(*s.shard, server.shut_down(s.shard->clock().now()));
    }
}

// The server has done its part, though the reply lies in the call's object until it is sent.
BOOST_AUTO_TEST_CASE(a_call_whose_reply_nobody_takes_is_there_no_more)
{
    served_streams s;
    unowned calls;
    rpc::stream_server server(*s.shard, s.pool, calls);
    int ends[2];
    BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    server.adopt(net::unique_fd(ends[0]), *net::endpoint::parse("192.0.2.1:1023"));
    const net::unique_fd client(ends[1]);
    s.send(client, framed(call_of(1, 0)));
    s.turns();
    BOOST_TEST(server.stats().calls.value() == 1u);
    BOOST_TEST(server.stats().calls_in_flight.value() == 0);
    BOOST_TEST(requests_in(*s.shard).empty());
    BOOST_TEST(s.receive(client).size() == 32 + calls.memory.size()); // which was there
    run_until_complete(*s.shard, server.shut_down(s.shard->clock().now()));
}

// Who is told of them may come before their tasks go on, and the peer is gone by then.
BOOST_AUTO_TEST_CASE(calls_back_go_with_their_connection)
{
    served_streams s;
    std::string name = "192.0.2.1:1023";
    const rpc::peer to{"192.0.2.1", name, "tcp", 1023, 5};
    counter timeouts;
    rpc::calls_under_way sent(*s.shard, 1h, 4, timeouts, to);
    scope tasks(*s.shard);
    std::string outcome;
    tasks.spawn([&]() -> task<void> {
        const auto got = co_await sent.reply_to(7);
        outcome = got ? "a reply" : got.error().message();
    });
    BOOST_TEST(requests_in(*s.shard) ==
                   texts{"192.0.2.1:1023 tcp rpc callback waits for the reply of the client"},
               boost::test_tools::per_element());
    BOOST_TEST(calls_in(*s.shard) == texts{"00000007"}, boost::test_tools::per_element());
    sent.close();
    BOOST_TEST(requests_in(*s.shard).empty());
    s.turns();
    BOOST_TEST(!outcome.empty());
    BOOST_TEST(tasks.live() == 0u);
}

BOOST_AUTO_TEST_CASE(a_program_has_its_count_and_slow_calls_their_status)
{
    const test::log_at quiet(log_level::off);
    virtual_clock clock;
    served_streams s({}, &clock);
    s.shard->requests().set_slow(10s);
    const auto slow = [&] {
        std::map<std::string, std::uint64_t> counts;
        s.shard->requests().for_each_slow(
            [&](std::string_view protocol, const counter& n) { counts[std::string(protocol)] = n.value(); });
        return counts;
    };
    BOOST_TEST((slow() == std::map<std::string, std::uint64_t>{{"rpc", 0}, {"test", 0}}));
    const auto client = s.connect();
    s.send(client, framed(call_of(0xa, 2)));
    s.send(client, framed(call_of(0xb, 12)));
    s.send(client, framed(call_of(0xc, 17))); // a long poll: it waits as long as its caller does
    s.turns();
    BOOST_TEST(requests_in(*s.shard).size() == 3U);
    clock.advance(10s);
    s.turns();
    BOOST_TEST((slow() == std::map<std::string, std::uint64_t>{{"rpc", 0}, {"test", 2}}));
    s.program.go.set();
    s.turns();
    std::map<std::string, std::string> ended;
    for (const auto& one : s.shard->requests().slowest())
        ended[std::string(one.what.operation.view())] = one.what.status.view();
    BOOST_TEST((ended == std::map<std::string, std::string>{{"WAIT", "ok"}, {"unknown", "SYSTEM_ERR"}}));
}

BOOST_AUTO_TEST_SUITE_END()
