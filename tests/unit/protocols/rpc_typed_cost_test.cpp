// SPDX-License-Identifier: Apache-2.0
// A program from C++ structs makes no more allocations than the same by hand, and has the same bytes on the wire.
#include <boost/test/unit_test.hpp>

#include "../allocation_count.hpp"
#include "bytes.hpp"
#include "memory_call.hpp"

#include <verbena/protocols/rpc/typed_program.hpp>
#include <verbena/protocols/rpcstream/stream_client.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>
#include <verbena/transports/stream.hpp>

BOOST_AUTO_TEST_SUITE(rpc_typed_cost_test)

using namespace verbena;
using namespace verbena::test;

namespace {

enum class status : std::uint32_t { ok, bad };
constexpr bool valid(status s) { return s <= status::bad; }
constexpr std::string_view to_string(status s) { return s == status::ok ? "ok" : "bad"; }

struct greet_args {
    xdr::text<100> name;
};
struct greet_result {
    xdr::text<120> text;
};
struct add_args {
    std::uint64_t n = 0;
};
struct put_args {
    xdr::text<100> name;
    rpc::bulk<100'000> data;
};
struct list_result {
    xdr::list<std::uint64_t, 64> numbers; // 516 bytes
};

constexpr rpc::program_definition typed{"typed", 0x20000001, 1};
constexpr rpc::procedure<add_args, add_args> add{typed, 1, "ADD", rpc::effect::none};
constexpr rpc::procedure<greet_args, greet_result> greet{typed, 2, "GREET", rpc::effect::none};
constexpr rpc::procedure<put_args, void, status> put{typed, 3, "PUT", rpc::effect::none};
constexpr rpc::procedure<void, list_result> numbers{typed, 4, "NUMBERS", rpc::effect::none};

constexpr std::uint32_t numbers_count = 64;

class typed_twin final : public rpc::typed_program {
public:
    typed_twin() : typed_program(typed)
    {
        on(add, [this](const add_args& a) { return add_args{total_ += a.n}; });
        on(greet, [](const greet_args& a) -> task<greet_result> {
            greet_result r;
            (void)r.text.assign(a.name);
            co_return r;
        });
        on(put, [](rpc::call& c, const put_args& a) -> task<status> {
            const auto bytes = co_await a.data.pull(c);
            co_return bytes&& a.name == "good" ? status::ok : status::bad;
        });
        on(numbers, [] {
            list_result r;
            for (std::uint32_t i = 0; i < numbers_count; ++i)
                r.numbers.push_back(i);
            return r;
        });
    }

private:
    std::uint64_t total_ = 0;
};

class by_hand final : public rpc::program {
public:
    std::uint32_t number() const noexcept override { return 0x20000002; }
    std::uint32_t low_version() const noexcept override { return 1; }
    std::uint32_t high_version() const noexcept override { return 1; }
    std::string_view name() const noexcept override { return "hand"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t) const noexcept override { return "ANY"; }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    task<rpc::outcome> serve(rpc::call& c) override
    {
        switch (c.header().procedure) {
        case 1: {
            const std::uint64_t n = c.args().u64();
            if (!c.args().at_end())
                co_return rpc::outcome::garbage_args;
            c.results().u64(total_ += n);
            co_return rpc::outcome::success;
        }
        case 2: {
            const std::string_view who = c.args().string(100);
            if (!c.args().at_end())
                co_return rpc::outcome::garbage_args;
            c.results().string(who);
            co_return rpc::outcome::success;
        }
        case 3: {
            const std::string_view who = c.args().string(100);
            const xdr::payload_ref data = c.args().payload(100'000);
            if (!c.args().at_end())
                co_return rpc::outcome::garbage_args;
            const auto bytes = co_await c.pull(data);
            c.results().u32(bytes && who == "good" ? 0 : 1);
            co_return rpc::outcome::success;
        }
        case 4: {
            if (!c.args().at_end())
                co_return rpc::outcome::garbage_args;
            const bool room = co_await c.reserve_results(4 + 8 * numbers_count);
            if (!room)
                co_return rpc::outcome::system_error;
            c.results().u32(numbers_count);
            for (std::uint32_t i = 0; i < numbers_count; ++i)
                c.results().u64(i);
            co_return rpc::outcome::success;
        }
        default: co_return rpc::outcome::proc_unavail;
        }
    }

private:
    std::uint64_t total_ = 0;
};

struct fixture : memory_server {
    fixture()
    {
        dispatcher.add(twin);
        dispatcher.add(hand);
    }
    task<std::uint64_t> repeat(memory_call& c, int times)
    {
        const std::uint64_t before = allocations.load();
        for (int i = 0; i < times; ++i) {
            c.rewind();
            (void)co_await dispatcher.dispatch(c);
        }
        co_return allocations.load() - before;
    }
    template<class Write>
    void compare(std::uint32_t procedure, std::vector<std::byte> chunk, Write write)
    {
        std::array<std::uint64_t, 2> made{};
        std::array<std::string, 2> replies;
        for (const std::size_t i : {0U, 1U}) {
            memory_call c(pool, from);
            xdr::encoder out = c.begin(i == 0 ? typed.number : hand.number(), 1, procedure, nullptr);
            write(out);
            if (chunk.empty())
                c.end(out);
            else
                c.end(out, chunk);
            (void)run_until_complete(*shard, repeat(c, 3));
            made[i] = run_until_complete(*shard, repeat(c, 200));
            replies[i] = to_hex(c.results().bytes());
        }
        BOOST_TEST(made[0] == made[1]);
        BOOST_TEST(made[0] == 0u);
        BOOST_TEST(replies[0].size() > 6 * 9u); // more than a header
        if (procedure != 1)                     // ADD goes on counting
            BOOST_TEST(replies[0] == replies[1]);
    }
    typed_twin twin;
    by_hand hand;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_program_allocates_nothing_in_steady_state, fixture)
{
    compare(1, {}, [](xdr::encoder& out) { out.u64(7); });
    compare(2, {}, [](xdr::encoder& out) { out.string("somebody"); });
    for (const char* name : {"good", "bad"}) {
        compare(3, std::vector<std::byte>(50'000), [name](xdr::encoder& out) {
            out.string(name);
            out.note_payload(50'000);
        });
    }
    compare(4, {}, [](xdr::encoder&) {});
}

namespace {

template<class Call>
task<std::uint64_t> count(Call call, int times)
{
    const std::uint64_t before = allocations.load();
    for (int i = 0; i < times; ++i)
        co_await call();
    co_return allocations.load() - before;
}

} // namespace

BOOST_FIXTURE_TEST_CASE(a_call_allocates_what_one_by_hand_does, fixture)
{
    rpc::stream_server streams(*shard, pool, dispatcher);
    auto adopt = [&](net::unique_fd socket, const net::endpoint& peer) {
        streams.adopt(std::move(socket), peer);
    };
    auto tcp =
        stream::listener::open(*shard, net::endpoint::parse("127.0.0.1:0").value(), std::move(adopt)).value();
    auto client = rpc::make_stream_client(*shard, pool, tcp->local_url().substr(6)).value();
    auto all = [&]() -> task<void> {
        const auto with_types = [&]() -> task<void> {
            const auto r = co_await greet(*client, {"somebody"});
            BOOST_TEST((r && r->text == "somebody"));
        };
        const auto with_hands = [&]() -> task<void> {
            rpc::call_header header;
            header.program = 0x20000002;
            header.version = 1;
            header.procedure = 2;
            lease block = co_await client->acquire(1024);
            rpc::request request(std::move(block), header);
            request.message().string("somebody");
            auto reply = co_await client->call(request);
            BOOST_TEST((reply && reply->results().string(120) == "somebody"));
        };
        (void)co_await count(with_types, 10);
        (void)co_await count(with_hands, 10);
        const std::uint64_t of_types = co_await count(with_types, 200);
        const std::uint64_t of_hands = co_await count(with_hands, 200);
        BOOST_TEST(of_types == of_hands);
        co_await client->close();
        co_await streams.shut_down(shard->clock().now());
    };
    run_until_complete(*shard, all());
}

BOOST_AUTO_TEST_SUITE_END()
