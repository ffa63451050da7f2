// SPDX-License-Identifier: Apache-2.0
// Whoever waits for a task for which there is no memory hears of that, and who comes later is served. A program of its
// own: here each frame of a coroutine fails in its turn.
#include <boost/test/unit_test.hpp>

#include "nfs4_user_names.hpp"

#include <verbena/clients/connect.hpp>
#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/nfs/user_groups.hpp>
#include <verbena/protocols/nfs/user_names.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/reconnecting_client.hpp>
#include <verbena/protocols/rpc/typed_program.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/loop.hpp>

#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

namespace {

thread_local int fails_at = 0; // the frame that fails, from 1; 0: none
thread_local bool has_failed = false;

} // namespace

// Frames come in units of 64 bytes (frame_pool.cpp).
void* operator new(std::size_t size)
{
    const bool fails = size % 64 == 0 && fails_at > 0 && fails_at-- == 1;
    has_failed = has_failed || fails;
    void* const made = fails ? nullptr : std::malloc(size);
    if (made == nullptr)
        throw std::bad_alloc();
    return made;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

BOOST_AUTO_TEST_SUITE(no_memory_waiters_test)

using namespace verbena;
using namespace verbena::test;
using namespace std::chrono_literals;

namespace {

/// A shard by the virtual clock.
struct world {
    world()
    {
        reactor_options o;
        o.clock = &clock;
        r = reactor::create(o).value();
        pool.emplace(budget, r.get());
        tasks.emplace(*r, nullptr, &lost);
        home.emplace(0, *r, *pool, *tasks);
    }
    ~world()
    {
        tasks->request_stop();
        while (tasks->live() != 0)
            r->turn();
    }
    virtual_clock clock;
    memory_budget budget{16 << 20};
    exception_logger lost{"test"};
    std::unique_ptr<reactor> r;
    std::optional<buffer_pool> pool;
    std::optional<scope> tasks;
    std::optional<shard> home;
};

/// `asks` once while the `at`th frame fails, then a minute later `asks_again` with memory enough.
template<class World, class Asks, class AsksAgain>
bool fails(int at, Asks asks, AsksAgain asks_again)
{
    bool failed = false;
    const auto run = [&] {
        World w;
        const auto both = [&]() -> task<void> {
            has_failed = false;
            fails_at = at;
            try {
                task<void> first = asks(w);
                co_await first;
            } catch (const std::bad_alloc&) {
            }
            fails_at = 0;
            failed = has_failed;
            (void)co_await sleep_for(1min);
            task<void> second = asks_again(w);
            co_await second;
        };
        run_until_complete(*w.r, both());
    };
    std::jthread(run).join(); // a new one, so that no frame is left from a run before
    return failed;
}

template<class World, class Asks, class AsksAgain>
void each_frame_fails_in_its_turn(Asks asks, AsksAgain asks_again)
{
    int at = 1;
    for (bool failed = true; failed; ++at) {
        BOOST_TEST_CONTEXT("frame " << at) { failed = fails<World>(at, asks, asks_again); }
    }
    BOOST_TEST(at > 4);
}

class one_group final : public nfs::group_source {
public:
    task<result<std::optional<std::vector<std::uint32_t>>>> find_groups(std::uint32_t) override
    {
        co_return std::optional(std::vector<std::uint32_t>{7});
    }
};

struct world_of_groups : world {
    one_group source;
    nfs::user_groups groups{*home, source};
};

struct world_of_names : world {
    named_accounts source;
    scope lookups{*r, nullptr, &lost};
    nfs::v4::user_names names{lookups, source};
};

} // namespace

BOOST_AUTO_TEST_CASE(a_lookup_of_groups_for_which_there_was_no_memory_is_done_again)
{
    const auto asks = [](world_of_groups& w) -> task<void> { (void)co_await w.groups.of(1, "192.0.2.1"); };
    const auto asks_again = [](world_of_groups& w) -> task<void> {
        const auto got = co_await w.groups.of(1, "192.0.2.1");
        BOOST_TEST((got.is == nfs::groups_standing::known));
        BOOST_TEST(w.groups.counters().under_way.value() == 0);
    };
    each_frame_fails_in_its_turn<world_of_groups>(asks, asks_again);
}

BOOST_AUTO_TEST_CASE(a_lookup_of_a_name_for_which_there_was_no_memory_is_done_again)
{
    const auto asks = [](world_of_names& w) -> task<void> {
        (void)co_await w.names.id_of(nfs::v4::account_kind::user, "alice@example.org");
    };
    const auto asks_again = [](world_of_names& w) -> task<void> {
        const auto got = co_await w.names.id_of(nfs::v4::account_kind::user, "alice@example.org");
        BOOST_TEST(got.id == 1000u);
    };
    each_frame_fails_in_its_turn<world_of_names>(asks, asks_again);
}

namespace {

/// Its connection is made at once. Each call that is sent ends in EIO.
class instant_client final : public rpc::reconnecting_client {
public:
    explicit instant_client(world& w) : reconnecting_client(*w.r, {}), pool_(*w.pool) {}
    task<lease> acquire(std::size_t size) override
    {
        lease memory = co_await pool_.acquire(size, buffer_pool::call_patience);
        co_return memory;
    }
    std::string_view name() const noexcept override { return "instant"; }

private:
    void go_to(std::string) override {}
    task<result<void>> open() override { co_return result<void>(); }
    void transmit(outstanding& o) noexcept override { complete(o, error(std::errc::io_error)); }
    void retract(outstanding&) noexcept override {}
    void drop() noexcept override {}
    buffer_pool& pool_;
};

struct world_of_calls : world {
    instant_client client{*this};
    task<result<rpc::reply>> call()
    {
        rpc::call_header header;
        header.version = 1;
        lease memory = co_await client.acquire(1024);
        rpc::request r(std::move(memory), header);
        task<result<rpc::reply>> calling = client.call(r);
        co_return co_await with_timeout(30min, std::move(calling));
    }
};

} // namespace

// It is a hard one: nothing else would end it.
BOOST_AUTO_TEST_CASE(a_call_goes_out_though_there_was_no_memory_to_connect)
{
    const auto asks = [](world_of_calls& w) -> task<void> {
        const auto got = co_await w.call();
        BOOST_TEST((got.error() == std::errc::io_error));
    };
    const auto asks_again = [](world_of_calls& w) -> task<void> {
        const auto got = co_await w.call();
        BOOST_TEST((got.error() == std::errc::io_error));
        co_await w.client.close();
    };
    each_frame_fails_in_its_turn<world_of_calls>(asks, asks_again);
}

namespace {

constexpr rpc::program_definition nulls{"nulls", 0x20000099, 1};
struct null_program final : rpc::typed_program {
    null_program() : typed_program(nulls) {}
};

/// A client by URL whose buffers are all in use. A second later they are given back.
struct world_of_buffers : world {
    static constexpr std::size_t size = std::size_t(4) << 20;

    world_of_buffers()
    {
        const auto connect = [this]() -> task<void> {
            rpc::connect_options o;
            o.keeper = &keeper;
            o.provider = client_device.get();
            o.buffers = &*pool;
            auto made = co_await rpc::connect("loop://server", std::move(o));
            BOOST_TEST_REQUIRE(bool(made));
            client.emplace(std::move(*made));
            for (lease one = pool->try_acquire(size); one; one = pool->try_acquire(size))
                held.push_back(std::move(one));
        };
        calls.add(program);
        serving.spawn(
            [this] { return rpcrdma::serve(*server_device, *listener, server_pool, calls, options, stats); });
        run_until_complete(*r, connect());
        BOOST_TEST_REQUIRE(!held.empty());
        tasks->spawn([this]() -> task<void> {
            (void)co_await sleep_for(1s);
            held.clear();
        });
    }
    task<void> end()
    {
        co_await client->close();
        client.reset();
        (void)co_await sleep_for(1min);
        BOOST_TEST_REQUIRE(keeper.live() == 0U); // nobody counts as waiting for memory any more
        co_await keeper.join();
        BOOST_TEST(pool->outstanding() == 0U);
        listener->close();
        co_await serving.join();
    }
    memory_budget server_budget{16 << 20};
    buffer_pool server_pool{server_budget, r.get()};
    std::unique_ptr<loop::fabric> fabric = loop::make_fabric(*r);
    std::unique_ptr<loop::context> server_device = fabric->make_context();
    std::unique_ptr<loop::context> client_device = fabric->make_context();
    std::unique_ptr<verbs::listener> listener = server_device->listen("server").value();
    null_program program;
    rpc::service_dispatcher calls{*r};
    const rpcrdma::responder_options options;
    rpcrdma::responder_stats stats;
    scope serving{*r};
    scope keeper{*r};
    std::vector<lease> held;
    std::optional<rpc::client> client;
};

} // namespace

BOOST_AUTO_TEST_CASE(who_had_no_memory_to_wait_for_buffers_is_not_waited_for)
{
    const auto asks = [](world_of_buffers& w) -> task<void> {
        const lease got = co_await w.client->acquire(w.size);
        BOOST_TEST(bool(got));
    };
    const auto asks_again = [](world_of_buffers& w) -> task<void> {
        {
            const lease got = co_await w.client->acquire(w.size);
            BOOST_TEST(bool(got));
        }
        co_await w.end();
    };
    each_frame_fails_in_its_turn<world_of_buffers>(asks, asks_again);
}

BOOST_AUTO_TEST_SUITE_END()
