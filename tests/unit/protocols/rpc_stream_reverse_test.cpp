// SPDX-License-Identifier: Apache-2.0
// The server calls its client over the stream that the client made. Clients here are made by hand.
#include "rpc_server.hpp"

#include <verbena/protocols/rpc/reverse_channel.hpp>

#include <optional>

BOOST_AUTO_TEST_SUITE(rpc_stream_reverse_test)

using namespace verbena;
using namespace verbena::test;
using namespace std::chrono_literals;

namespace {

/// Keeps the way back to whoever called last.
class keeper final : public rpc::program {
public:
    std::uint32_t number() const noexcept override { return 0x20000001; }
    std::uint32_t low_version() const noexcept override { return 9; }
    std::uint32_t high_version() const noexcept override { return 9; }
    std::string_view name() const noexcept override { return "keeper"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t) const noexcept override { return "KEEP"; }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    task<rpc::outcome> serve(rpc::call& c) override
    {
        channel = c.reverse();
        co_return rpc::outcome::success;
    }
    std::shared_ptr<rpc::reverse_channel> channel;
};

struct fixture {
    explicit fixture(const rpc::stream_options& options = {}) : streams(options, &clock)
    {
        streams.calls.add(program);
        client = streams.connect();
        streams.send(client, framed(call_of(1, 1, {}, 9)));
        BOOST_TEST_REQUIRE(streams.receive(client, 28).size() == 28u);
        BOOST_TEST_REQUIRE(program.channel);
    }
    ~fixture()
    {
        tasks.request_stop();
        client.reset();
        streams.turns();
        BOOST_TEST(tasks.live() == 0u);
    }
    task<void> call_back(std::uint32_t number, std::size_t size = 512)
    {
        rpc::call_header header;
        header.program = 0x40000000;
        header.version = 1;
        header.procedure = 1;
        lease block = co_await program.channel->acquire(size);
        rpc::request request(std::move(block), header);
        request.message().u32(number);
        if (size > 512)
            (void)request.message().reserve(size - 512);
        auto answer = co_await program.channel->call(request);
        if (answer) {
            outcome.push_back("reply " + std::to_string(answer->results().u32()));
        } else {
            outcome.push_back(answer.error() == std::errc::timed_out            ? "no answer"
                              : answer.error() == std::errc::not_connected      ? "gone"
                              : answer.error() == std::errc::operation_canceled ? "stopped"
                              : answer.error() == std::errc::message_size       ? "too long"
                                                                                : answer.error().message());
        }
    }
    void spawn(std::uint32_t number, std::size_t size = 512)
    {
        tasks.spawn([this, number, size] { return call_back(number, size); });
    }
    /// A call of the server's: its XID, and the number in it.
    std::pair<std::uint32_t, std::uint32_t> called_back()
    {
        const bytes got = streams.receive(client, 4 + 40 + 4);
        if (got.size() < 48)
            return {};
        BOOST_TEST(xdr::load_u32(got.data()) == 0x80000000u + 44u);
        BOOST_TEST(xdr::load_u32(got.data() + 8) == 0u);
        BOOST_TEST(xdr::load_u32(got.data() + 16) == 0x40000000u);
        return {xdr::load_u32(got.data() + 4), xdr::load_u32(got.data() + 44)};
    }
    void answer(std::uint32_t xid, std::uint32_t number)
    {
        bytes all;
        for (const std::uint32_t word : {xid, 1u, 0u, 0u, 0u, 0u, number})
            append_u32(all, word);
        streams.send(client, framed(all));
        streams.turns();
    }
    using outcomes = std::vector<std::string>;
    virtual_clock clock;
    keeper program;
    served_streams streams;
    scope tasks{*streams.shard};
    net::unique_fd client;
    outcomes outcome;
};

} // namespace

BOOST_AUTO_TEST_CASE(replies_are_told_by_their_xid)
{
    fixture f;
    f.spawn(10);
    f.spawn(20);
    const auto first = f.called_back();
    const auto second = f.called_back();
    BOOST_TEST(first.second == 10u);
    BOOST_TEST(second.second == 20u);
    BOOST_TEST(first.first != second.first);
    f.answer(second.first + 7, 1); // of no call
    f.answer(second.first, 21);
    f.answer(first.first, 11);
    BOOST_TEST(f.outcome == (fixture::outcomes{"reply 21", "reply 11"}), boost::test_tools::per_element());
    // Both directions may use the same XIDs.
    f.spawn(30);
    const auto third = f.called_back();
    f.streams.send(f.client, framed(call_of(third.first, 1, {}, 9)));
    BOOST_TEST(f.streams.receive(f.client, 28).size() == 28u);
    f.answer(third.first, 31);
    BOOST_TEST(f.outcome.back() == "reply 31");
    BOOST_TEST(f.streams.server->stats().unanswered.value() == 0u);
}

BOOST_AUTO_TEST_CASE(a_client_that_never_answers_costs_a_call_its_time)
{
    rpc::stream_options options;
    options.max_reverse_calls = 1;
    fixture f(options);
    f.spawn(1);
    BOOST_TEST(f.called_back().second == 1u);
    f.spawn(2);
    BOOST_TEST(f.called_back().second == 0u); // waits for the first
    f.clock.advance(options.reverse_limit - 1ms);
    f.streams.turns();
    BOOST_TEST(f.outcome.empty());
    f.clock.advance(1ms);
    const auto second = f.called_back();
    BOOST_TEST(second.second == 2u);
    BOOST_TEST(f.outcome == (fixture::outcomes{"no answer"}), boost::test_tools::per_element());
    BOOST_TEST(f.streams.server->stats().reverse_timeouts.value() == 1u);
    f.answer(second.first, 3);
    BOOST_TEST(f.outcome.back() == "reply 3");
}

BOOST_AUTO_TEST_CASE(the_end_of_the_stream_ends_its_calls)
{
    fixture f;
    f.spawn(1);
    f.spawn(2);
    BOOST_TEST(f.called_back().second == 1u);
    BOOST_TEST(f.program.channel->open());
    f.client.reset();
    f.streams.turns();
    BOOST_TEST(f.outcome == (fixture::outcomes{"gone", "gone"}), boost::test_tools::per_element());
    BOOST_TEST(!f.program.channel->open());
    f.spawn(3);
    f.streams.turns();
    BOOST_TEST(f.outcome.back() == "gone");
}

BOOST_AUTO_TEST_CASE(a_caller_may_give_up)
{
    fixture f;
    f.spawn(1);
    const auto called = f.called_back();
    f.tasks.request_stop();
    f.streams.turns();
    BOOST_TEST(f.outcome == (fixture::outcomes{"stopped"}), boost::test_tools::per_element());
    f.answer(called.first, 1);
    BOOST_TEST(f.outcome.size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_call_has_a_largest_size)
{
    fixture f;
    f.spawn(1, rpc::stream_options::max_reverse_message + 4096);
    f.streams.turns();
    BOOST_TEST(f.outcome == (fixture::outcomes{"too long"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_server_may_not_call_back)
{
    rpc::stream_options options;
    options.max_reverse_calls = 0;
    virtual_clock clock;
    keeper program;
    served_streams streams(options, &clock);
    streams.calls.add(program);
    auto client = streams.connect();
    streams.send(client, framed(call_of(1, 1, {}, 9)));
    BOOST_TEST(streams.receive(client, 28).size() == 28u);
    BOOST_TEST(!program.channel);
}

BOOST_AUTO_TEST_SUITE_END()
