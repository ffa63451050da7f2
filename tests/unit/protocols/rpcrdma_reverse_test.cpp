// SPDX-License-Identifier: Apache-2.0
// Both directions on one connection (RFC 8167): a procedure calls its caller back before it answers.
#include <boost/test/unit_test.hpp>

#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/reverse_channel.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/iwarp.hpp>

#include <algorithm>
#include <string>

BOOST_AUTO_TEST_SUITE(rpcrdma_reverse_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t forward_program = 0x20000001;
constexpr std::uint32_t reverse_program = 0x40000000; // transient, as callbacks are

class test_program : public rpc::program {
public:
    explicit test_program(std::uint32_t number) : number_(number) {}
    std::uint32_t number() const noexcept override { return number_; }
    std::uint32_t low_version() const noexcept override { return 1; }
    std::uint32_t high_version() const noexcept override { return 1; }
    std::string_view name() const noexcept override { return "test"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t) const noexcept override { return "CALL"; }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }

private:
    std::uint32_t number_;
};

/// The client's program: twice a number, or so many bytes.
class doubling final : public test_program {
public:
    doubling() : test_program(reverse_program) {}
    task<rpc::outcome> serve(rpc::call& c) override
    {
        BOOST_TEST(c.from().transport == "iwarp");
        most = std::max(most, ++inside);
        const bool woken = co_await sleep_for(pause);
        --inside;
        const std::uint32_t value = c.args().u32();
        const std::uint32_t bytes = c.args().u32();
        (void)c.args().opaque_var(1 << 20);
        if (!c.args().at_end() || !woken)
            co_return rpc::outcome::garbage_args;
        const bool room = co_await c.reserve_results(c.results().room());
        BOOST_TEST(room);
        const bool more = co_await c.reserve_results(c.results().room() + 1);
        BOOST_TEST(!more);
        c.results().u32(2 * value);
        const std::vector<std::byte> filling(bytes);
        if (bytes > 0 && bytes <= c.results().room())
            c.results().opaque_fixed(filling);
        ++served;
        co_return rpc::outcome::success;
    }
    duration pause = 1ms;
    int inside = 0;
    int most = 0;
    int served = 0;
};

/// One call back to the client.
task<result<std::uint32_t>> call_back(rpc::reverse_channel& channel, std::uint32_t value,
                                      std::uint32_t reply_bytes, std::size_t argument_bytes)
{
    rpc::call_header header;
    header.program = reverse_program;
    header.version = 1;
    header.procedure = 1;
    lease block = co_await channel.acquire(1024 + argument_bytes);
    rpc::request request(std::move(block), header);
    request.message().u32(value);
    request.message().u32(reply_bytes);
    const std::vector<std::byte> filling(argument_bytes);
    request.message().opaque_var(filling);
    auto reply = co_await channel.call(request);
    if (!reply)
        co_return reply.error();
    co_return reply->results().u32();
}

/// The server's program: its results are the sum of what the client answers, and how many calls failed.
class asking final : public test_program {
public:
    asking() : test_program(forward_program) {}
    task<rpc::outcome> serve(rpc::call& c) override
    {
        channel = c.reverse();
        if (!channel) {
            c.results().u32(0);
            c.results().u32(calls);
            co_return rpc::outcome::success;
        }
        for (std::uint32_t i = 0; i < impatient_calls; ++i) {
            auto hurried = with_timeout(5ms, call_back(*channel, i, 0, 0));
            const auto outcome = co_await hurried;
            if (!outcome)
                ++given_up;
        }
        std::vector<task<result<std::uint32_t>>> all;
        for (std::uint32_t i = 0; i < calls; ++i)
            all.push_back(with_timeout(limit, call_back(*channel, i, reply_bytes, argument_bytes)));
        auto outcomes = co_await when_all(std::move(all));
        std::uint32_t sum = 0;
        std::uint32_t failed = 0;
        for (auto& o : outcomes) {
            if (o) {
                sum += *o;
            } else {
                ++failed;
                last = o.error();
            }
        }
        c.results().u32(sum);
        c.results().u32(failed);
        co_return rpc::outcome::success;
    }
    std::uint32_t calls = 1;
    std::uint32_t impatient_calls = 0; ///< before the others, with too little time
    std::uint32_t given_up = 0;
    std::uint32_t reply_bytes = 0;
    std::size_t argument_bytes = 0;
    duration limit = 10s;
    error last;
    std::shared_ptr<rpc::reverse_channel> channel;
};

struct answer_sum {
    std::uint32_t sum = 0;
    std::uint32_t failed = 0;
};

struct two_ways {
    explicit two_ways()
    {
        auto made = reactor::create();
        BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
        shard = std::move(*made);
        buffers = std::make_unique<buffer_pool>(budget, shard.get());
        provider = iwarp::make_context(*shard);
        forward = std::make_unique<rpc::service_dispatcher>(*shard);
        forward->add(server_program);
        reverse = std::make_unique<rpc::service_dispatcher>(*shard);
        reverse->add(client_program);
        serving.reverse_credits = 4;
        calling.callbacks = reverse.get();
        calling.callback_credits = 4;
    }

    task<answer_sum> conversation()
    {
        auto listener = provider->listen("127.0.0.1:0");
        BOOST_REQUIRE(listener);
        scope tasks(*shard);
        tasks.spawn(
            [&] { return rpcrdma::serve(*provider, **listener, *buffers, *forward, serving, served); });
        auto client = rpcrdma::make_requester(*provider, *buffers, (*listener)->local_url().substr(8),
                                              calling, &requested);
        rpc::call_header header;
        header.program = forward_program;
        header.version = 1;
        header.procedure = 1;
        lease block = co_await client->acquire(1024);
        rpc::request request(std::move(block), header);
        auto reply = co_await client->call(request);
        BOOST_REQUIRE_MESSAGE(reply, (reply ? std::string() : reply.error().message()));
        answer_sum a;
        a.sum = reply->results().u32();
        a.failed = reply->results().u32();
        BOOST_TEST(reply->results().at_end());
        co_await client->close();
        (*listener)->close();
        co_await tasks.join();
        co_return a;
    }
    answer_sum run() { return run_until_complete(*shard, conversation()); }

    memory_budget budget{std::size_t(64) << 20};
    std::unique_ptr<reactor> shard;
    std::unique_ptr<buffer_pool> buffers;
    std::unique_ptr<iwarp::context> provider;
    asking server_program;
    doubling client_program;
    std::unique_ptr<rpc::service_dispatcher> forward;
    std::unique_ptr<rpc::service_dispatcher> reverse;
    rpcrdma::responder_options serving;
    rpcrdma::responder_stats served;
    rpcrdma::requester_options calling;
    rpcrdma::requester_stats requested;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(calls_go_both_ways_within_the_credits, two_ways)
{
    server_program.calls = 40;
    const auto a = run();
    BOOST_TEST(a.failed == 0u);
    BOOST_TEST(a.sum == 2u * (39 * 40 / 2));
    BOOST_TEST(client_program.served == 40);
    BOOST_TEST(client_program.most > 1);
    BOOST_TEST(client_program.most <= 4);
    BOOST_TEST(requested.callbacks.value() == 40u);
    // The connection is gone, the channel is not.
    BOOST_TEST(!server_program.channel->open());
    auto late = run_until_complete(*shard, call_back(*server_program.channel, 1, 0, 0));
    BOOST_REQUIRE(!late);
    BOOST_TEST((late.error() == std::errc::not_connected));
    server_program.channel.reset();
    BOOST_TEST(buffers->outstanding() == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_server_that_does_not_call_back_has_no_channel, two_ways)
{
    serving.reverse_credits = 0;
    BOOST_TEST(run().failed == 1u);
    BOOST_TEST(!server_program.channel);
}

BOOST_FIXTURE_TEST_CASE(a_client_without_a_service_leaves_calls_unanswered, two_ways)
{
    calling.callbacks = nullptr;
    server_program.limit = 20ms;
    const auto a = run();
    BOOST_TEST(a.failed == 1u);
    BOOST_TEST((server_program.last == std::errc::timed_out), server_program.last.message());
    BOOST_TEST(requested.dropped.value() == 1u);
}

// Each has used a credit that comes back with its reply, which nobody waits for.
BOOST_FIXTURE_TEST_CASE(calls_given_up_return_their_credits, two_ways)
{
    client_program.pause = 20ms;
    server_program.impatient_calls = 12;
    server_program.calls = 8;
    BOOST_TEST(run().failed == 0u);
    BOOST_TEST(server_program.given_up == 12u);
}

BOOST_FIXTURE_TEST_CASE(a_call_beyond_the_threshold_is_not_sent, two_ways)
{
    server_program.argument_bytes = 5000;
    BOOST_TEST(run().failed == 1u);
    BOOST_TEST((server_program.last == std::errc::message_size), server_program.last.message());
    BOOST_TEST(client_program.served == 0);
}

BOOST_FIXTURE_TEST_CASE(a_reply_beyond_the_threshold_is_an_error_of_that_call, two_ways)
{
    server_program.calls = 3;
    server_program.reply_bytes = 4060; // with its headers more than 4096
    BOOST_TEST(run().failed == 3u);
    BOOST_TEST((server_program.last == std::errc::value_too_large), server_program.last.message());
    BOOST_TEST(client_program.served == 3);
}

BOOST_AUTO_TEST_SUITE_END()
