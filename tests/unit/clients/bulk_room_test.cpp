// SPDX-License-Identifier: Apache-2.0
// How much memory a call over RDMA takes for a large result that it may have, and has not.
#include <boost/test/unit_test.hpp>

#include <verbena/clients/connect.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/typed_program.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/testing/world.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(bulk_room_test)

using namespace verbena;

namespace {

struct wanted {
    std::uint32_t size = 0;
};
struct given {
    rpc::bulk<(1u << 20)> bytes;
};
constexpr rpc::program_definition giving{"giving", 0x20000043, 1};
constexpr rpc::procedure<wanted, given> give{giving, 1, "GIVE", rpc::effect::none};
constexpr rpc::procedure<wanted, given> give_and_change{giving, 2, "GIVE_AND_CHANGE", rpc::effect::changes};

/// Looks at the caller's pool while each call is under way.
class giving_program final : public rpc::typed_program {
public:
    explicit giving_program(const buffer_pool& of_the_caller) : typed_program(giving), pool_(of_the_caller)
    {
        const auto handler = [this](const wanted& w) {
            ++runs;
            bytes = pool_.outstanding_bytes();
            auto stored = std::make_shared<std::vector<std::byte>>(w.size, std::byte(0x5a));
            const std::span<const std::byte> all(*stored);
            return given{rpc::payload(std::move(stored), all)};
        };
        on(give, handler);
        on(give_and_change, handler);
    }
    unsigned runs = 0;
    std::size_t bytes = 0;

private:
    const buffer_pool& pool_;
};

struct giving_world {
    testing::world w;
    testing::host& here = w.add_host("server");
    testing::host& client = w.add_host("client");
    giving_program program{client.buffers};

    void run(const std::function<task<void>(rpc::client&)>& body)
    {
        const auto all = [&]() -> task<void> {
            rpc::service_dispatcher calls(w.shard());
            calls.add(program);
            const rpcrdma::responder_options serving;
            rpcrdma::responder_stats stats;
            auto listener = here.device->listen(here.name).value();
            scope tasks(w.shard());
            tasks.spawn(
                [&] { return rpcrdma::serve(*here.device, *listener, here.buffers, calls, serving, stats); });
            rpc::connect_options o;
            o.keeper = &tasks;
            o.provider = client.device.get();
            o.buffers = &client.buffers;
            {
                auto made = co_await rpc::connect("loop://server", o);
                BOOST_TEST_REQUIRE(bool(made));
                co_await body(*made);
                co_await made->close();
            }
            listener->close();
            tasks.request_stop();
            co_await tasks.join();
        };
        w.run(all());
        BOOST_TEST(w.left_over() == "");
    }
    /// What a call for `size` bytes has of the pool while the server runs it the last time, beside what the connection has.
    task<std::size_t> taken(rpc::client& c, std::uint32_t size, unsigned expected_runs)
    {
        const std::size_t before = client.buffers.outstanding_bytes();
        program.runs = 0;
        const wanted args{size};
        const auto got = co_await give(c, args);
        BOOST_TEST_REQUIRE(bool(got));
        BOOST_TEST(got->bytes.size() == size);
        BOOST_TEST(program.runs == expected_runs);
        co_return program.bytes - before;
    }
};

constexpr std::size_t kibibyte = 1024;
/// Its message as it was encoded. What it was sent in has come back when the server runs it.
constexpr std::size_t messages = 4 * kibibyte;

} // namespace

BOOST_AUTO_TEST_CASE(a_small_result_of_a_procedure_that_may_give_1_MiB_takes_64_KiB)
{
    giving_world g;
    g.run([&](rpc::client& c) -> task<void> {
        const std::size_t first = co_await g.taken(c, 64, 1);
        BOOST_TEST(first == 64 * kibibyte + messages);
        const std::size_t second = co_await g.taken(c, 64 * kibibyte, 1);
        BOOST_TEST(second == first);
    });
}

BOOST_AUTO_TEST_CASE(a_large_result_gets_room_and_the_next_call_begins_with_that)
{
    giving_world g;
    g.run([&](rpc::client& c) -> task<void> {
        // 64 KiB and 256 KiB do not do.
        const std::size_t first = co_await g.taken(c, 300'000, 3);
        BOOST_TEST(first == 1024 * kibibyte + messages);
        const std::size_t second = co_await g.taken(c, 300'000, 1);
        BOOST_TEST(second == first);
        const std::size_t most = co_await g.taken(c, 1u << 20, 1);
        BOOST_TEST(most == first);
    });
}

BOOST_AUTO_TEST_CASE(many_small_results_bring_the_room_back)
{
    giving_world g;
    g.run([&](rpc::client& c) -> task<void> {
        (void)co_await g.taken(c, 200'000, 2);
        // 63 in a row don't, as the 64th needs more than a quarter.
        for (int i = 0; i < 63; ++i)
            (void)co_await g.taken(c, 64, 1);
        (void)co_await g.taken(c, 100'000, 1);
        for (int i = 0; i < 64; ++i) {
            const std::size_t before = co_await g.taken(c, 64, 1);
            BOOST_TEST(before == 256 * kibibyte + messages);
        }
        const std::size_t after = co_await g.taken(c, 64, 1);
        BOOST_TEST(after == 64 * kibibyte + messages);
    });
}

BOOST_AUTO_TEST_CASE(what_may_not_run_twice_has_room_for_the_most_at_once)
{
    giving_world g;
    g.run([&](rpc::client& c) -> task<void> {
        const std::size_t before = g.client.buffers.outstanding_bytes();
        const wanted args{300'000};
        const auto got = co_await give_and_change(c, args);
        BOOST_TEST_REQUIRE(bool(got));
        BOOST_TEST(got->bytes.size() == 300'000u);
        BOOST_TEST(g.program.runs == 1u);
        BOOST_TEST(g.program.bytes - before == 1024 * kibibyte + messages);
    });
}

BOOST_AUTO_TEST_CASE(the_room_does_not_grow_beyond_what_the_caller_said)
{
    giving_world g;
    g.run([&](rpc::client& c) -> task<void> {
        rpc::call_options o;
        o.max_bulk = 100'000;
        const wanted fits{100'000};
        const auto got = co_await give(c, fits, o);
        BOOST_TEST((got && got->bytes.size() == 100'000u));
        BOOST_TEST(g.program.runs == 2u);
        const wanted larger{100'001};
        const auto none = co_await give(c, larger, o);
        BOOST_TEST((!none && none.error() == std::errc::value_too_large));
        BOOST_TEST(g.program.runs == 3u); // the room was learned
    });
}

BOOST_AUTO_TEST_SUITE_END()
