// SPDX-License-Identifier: Apache-2.0
// Connections of clients with RDMA layouts: who is let in, and who is gone with his client.
#include <verbena/core/net/refusals.hpp>
#include <verbena/core/reactor/simulated_shards.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/yield.hpp>
#include <verbena/protocols/nfs/server/v4/pnfs/data_server.hpp>
#include <verbena/protocols/rpcrdma/private_data.hpp>
#include <verbena/transports/loop.hpp>

#include "../log_at.hpp"
#include "nfs4_log_lines.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(nfs4_data_server_test)

using namespace verbena;
using namespace std::chrono_literals;
using nfs::v4::rdma_layout_reject;
using nfs::v4::pnfs::data_server;

namespace {

/// A data server on two shards, and its clients on a third.
struct world {
    explicit world(const nfs::v4::pnfs::data_server_limits& limits = {}, const char* client = "client")
    {
        for (int i = 0; i < 3; ++i)
            shards.add(memory);
        fabric = loop::make_fabric(shards.at(0).reactor(), {});
        loop::options o;
        o.name = "server";
        device = fabric->make_device(o);
        o.name = client;
        client_device = fabric->make_device(o);
        const std::array<shard*, 2> all = {&shards.at(0), &shards.at(1)};
        server.emplace(*device, all, siphash_key(), 7, limits);
        for (unsigned i = 0; i < 2; ++i) {
            contexts[i] = device->make_context(shards.at(i).reactor());
            listeners[i] = std::move(*contexts[i]->listen("data" + std::to_string(i)));
        }
        client_context = client_device->make_context(here().reactor());
        client_domain = std::move(*client_context->make_domain());
    }
    ~world() { shards.stop(); }
    shard& here() { return shards.at(2); }
    void run(std::function<task<void>()> body)
    {
        const auto all = [&]() -> task<void> {
            scope serving(here().reactor());
            for (unsigned i = 0; i < 2; ++i)
                serving.spawn([this, i]() -> task<void> {
                    const auto listen = [this, i] { return serve(i); };
                    co_await shards.at(i).run(listen);
                });
            task<void> running = body();
            co_await running;
            serving.request_stop();
            co_await serving.join();
        };
        shards.run(here(), all());
        BOOST_TEST(server->count().connections == 0);
    }
    task<void> serve(unsigned i)
    {
        const task_context& context = co_await current_context();
        scope connections(*context.shard, &context);
        for (;;) {
            auto next = co_await listeners[i]->next();
            if (!next)
                break;
            connections.spawn(&data_server::serve, &*server, std::move(*next));
        }
        connections.request_stop();
        co_await connections.join();
        const auto close = [this, i] { listeners[i].reset(); };
        close();
    }
    struct outcome {
        std::unique_ptr<verbs::queue_pair> queue_pair;
        std::optional<unsigned> reason; ///< that the server gave
    };
    task<outcome> connect(std::vector<std::byte> private_data, unsigned at = 0)
    {
        verbs::connect_options options;
        options.private_data = private_data;
        std::vector<std::byte> reply;
        auto q =
            co_await client_context->connect("data" + std::to_string(at), *client_domain, options, reply);
        outcome out;
        if (q)
            out.queue_pair = std::move(*q);
        if (const auto answer = nfs::v4::decode_rdma_layout_answer(reply))
            out.reason = answer->reason;
        co_return out;
    }
    static std::vector<std::byte> says(files::client_id client, const nfs::v4::deviceid4& device)
    {
        nfs::v4::rdma_layout_connect c;
        c.client = client;
        c.device = device;
        const auto bytes = nfs::v4::encode(c);
        return {bytes.begin(), bytes.end()};
    }
    nfs::v4::deviceid4 device_of(files::client_id id)
    {
        return server->device_of(*server->client(id).value());
    }

    virtual_clock clock;
    memory_budget memory{std::size_t(8) << 20, 3};
    simulated_shards shards{clock, 1};
    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<loop::device> device, client_device;
    std::optional<data_server> server;
    std::array<std::unique_ptr<loop::context>, 2> contexts;
    std::array<std::unique_ptr<verbs::listener>, 2> listeners;
    std::unique_ptr<loop::context> client_context;
    std::unique_ptr<verbs::protection_domain> client_domain;
};

bool is(const world::outcome& o, rdma_layout_reject why)
{
    return o.queue_pair == nullptr && o.reason == static_cast<unsigned>(why);
}

} // namespace

BOOST_AUTO_TEST_CASE(who_shows_his_device_id_is_let_in_on_each_shard)
{
    world w;
    w.run([&]() -> task<void> {
        const auto id = w.device_of(5);
        const auto one = co_await w.connect(world::says(5, id), 0);
        const auto two = co_await w.connect(world::says(5, id), 1);
        BOOST_TEST((one.queue_pair && two.queue_pair));
        BOOST_TEST((one.reason == 0u && two.reason == 0u));
        BOOST_TEST(w.server->count().connections == 2);
        BOOST_TEST(w.server->count().accepted == 2u);
        // The client's end of both is known, and makes room.
        one.queue_pair->disconnect();
        (void)co_await sleep_for(1ms);
        BOOST_TEST(w.server->count().connections == 1);
    });
}

BOOST_AUTO_TEST_CASE(who_does_not_is_told_so)
{
    world w;
    w.run([&]() -> task<void> {
        const auto of_5 = w.device_of(5);
        const auto of_6 = w.device_of(6);
        BOOST_TEST((of_5 != of_6));
        for (std::size_t i = 0; i < of_5.size(); ++i) {
            auto forged = of_5;
            forged[i] ^= std::byte(1);
            const auto refused = co_await w.connect(world::says(5, forged));
            BOOST_TEST(is(refused, rdma_layout_reject::unknown), "octet " << i);
        }
        const auto of_another = co_await w.connect(world::says(6, of_5));
        BOOST_TEST(is(of_another, rdma_layout_reject::unknown));
        const auto of_nobody = co_await w.connect(world::says(9, of_5));
        BOOST_TEST(is(of_nobody, rdma_layout_reject::unknown));
        auto newer = world::says(5, of_5);
        newer[4] = std::byte(2);
        const auto other_version = co_await w.connect(newer);
        BOOST_TEST(is(other_version, rdma_layout_reject::other_version));
        BOOST_TEST(w.server->count().rejected == 19u);
        BOOST_TEST(w.server->count().accepted == 0u);
    });
    // Another start, another id.
    const std::array<shard*, 2> all = {&w.shards.at(0), &w.shards.at(1)};
    data_server later(*w.device, all, siphash_key(), 8);
    BOOST_TEST((later.device_of(*later.client(5).value()) != w.device_of(5)));
}

BOOST_AUTO_TEST_CASE(connections_are_bounded_by_client_and_in_all)
{
    world w({.connections_of_client = 2, .connections = 3});
    w.run([&]() -> task<void> {
        const auto of_5 = world::says(5, w.device_of(5));
        const auto of_6 = world::says(6, w.device_of(6));
        const auto one = co_await w.connect(of_5, 0);
        const auto two = co_await w.connect(of_5, 1);
        BOOST_TEST((one.queue_pair && two.queue_pair));
        const auto third = co_await w.connect(of_5, 0);
        BOOST_TEST(is(third, rdma_layout_reject::too_many));
        const auto of_other = co_await w.connect(of_6, 0);
        BOOST_TEST((of_other.queue_pair != nullptr));
        const auto full = co_await w.connect(of_6, 0);
        BOOST_TEST(is(full, rdma_layout_reject::no_room));
        two.queue_pair->disconnect();
        (void)co_await sleep_for(1ms);
        const auto again = co_await w.connect(of_6, 0);
        BOOST_TEST((again.queue_pair != nullptr));
    });
}

BOOST_AUTO_TEST_CASE(a_client_that_is_gone_has_no_connections)
{
    world w;
    w.run([&]() -> task<void> {
        const auto id = w.device_of(5);
        const auto one = co_await w.connect(world::says(5, id), 0);
        const auto two = co_await w.connect(world::says(5, id), 1);
        const auto other = co_await w.connect(world::says(6, w.device_of(6)), 1);
        co_await w.server->forget(5);
        (void)co_await sleep_for(1ms);
        BOOST_TEST((!one.queue_pair->connected() && !two.queue_pair->connected()));
        BOOST_TEST(other.queue_pair->connected());
        BOOST_TEST(w.server->count().connections == 1);
        const auto late = co_await w.connect(world::says(5, id), 0);
        BOOST_TEST(is(late, rdma_layout_reject::unknown));
        BOOST_TEST((w.server->find(5, id) == nullptr));
        // It comes back as another one.
        BOOST_TEST((w.device_of(5) != id));
    });
}

namespace {

// A connection whose last access to a store takes its time, as one of iwarp: its end is told behind it.
struct slow_end {
    class queue_pair final : public verbs::queue_pair {
    public:
        queue_pair(slow_end& of, verbs::protection_domain& d) noexcept : of_(of), domain_(d) {}
        ~queue_pair() override { of_.is_destroyed = true; }
        void set_handler(verbs::completion_handler* handler) noexcept override { of_.handler = handler; }
        result<void> post_send(std::span<const verbs::send_request>) override { return {}; }
        result<void> post_receive(std::span<const verbs::receive_request>) override { return {}; }
        void disconnect() noexcept override {}
        void kill(const error& cause) noexcept override { abort(cause); }
        void abort(const error&) noexcept override { of_.is_connected = false; }
        bool connected() const noexcept override { return of_.is_connected; }
        verbs::protection_domain& domain() noexcept override { return domain_; }
        std::uint32_t max_reads() const noexcept override { return 1; }
        std::string_view peer_name() const noexcept override { return "slow"; }
        std::string_view peer_address() const noexcept override { return "slow"; }

    private:
        slow_end& of_;
        verbs::protection_domain& domain_;
    };
    class request final : public verbs::connect_request {
    public:
        request(slow_end& of, std::vector<std::byte> says) noexcept : of_(of), says_(std::move(says)) {}
        std::span<const std::byte> private_data() const noexcept override { return says_; }
        std::string_view peer_address() const noexcept override { return "slow"; }
        std::string_view peer_name() const noexcept override { return "slow"; }
        std::uint32_t peer_responder_resources() const noexcept override { return 1; }
        task<result<std::unique_ptr<verbs::queue_pair>>>
        make_queue_pair(verbs::protection_domain& d, const verbs::queue_pair_options&) override
        {
            co_return std::unique_ptr<verbs::queue_pair>(std::make_unique<queue_pair>(of_, d));
        }
        task<result<void>> accept(const verbs::connect_options&) override
        {
            co_await of_.may_be_accepted.wait_shielded();
            of_.is_connected = true;
            co_return result<void>();
        }
        task<result<void>> reject(std::span<const std::byte>) override { co_return result<void>(); }

    private:
        slow_end& of_;
        std::vector<std::byte> says_;
    };
    /// The access is over.
    void tell() { handler->on_disconnected(error(std::errc::connection_aborted)); }

    verbs::completion_handler* handler = nullptr;
    event may_be_accepted;
    bool is_connected = false;
    bool is_destroyed = false;
};

enum class when { has_ended, is_up, is_being_made, server_ends };

} // namespace

// However it ends: a peer that connects again and again leaves no more to a slow disk than it may have connections.
BOOST_AUTO_TEST_CASE(a_connection_counts_until_its_last_access_is_over)
{
    for (const when at : {when::has_ended, when::is_up, when::is_being_made, when::server_ends}) {
        world w;
        const auto body = [&]() -> task<void> {
            slow_end slow;
            auto serving = [&]() -> task<void> {
                const auto id = w.device_of(5);
                scope connections(w.shards.at(0).reactor());
                if (at != when::is_being_made)
                    slow.may_be_accepted.set();
                connections.spawn(&data_server::serve, &*w.server,
                                  std::unique_ptr<verbs::connect_request>(
                                      std::make_unique<slow_end::request>(slow, world::says(5, id))));
                (void)co_await sleep_for(1ms);
                if (at == when::has_ended)
                    slow.is_connected = false; // the peer has gone
                if (at == when::server_ends)
                    connections.request_stop();
                else
                    co_await w.server->forget(5);
                slow.may_be_accepted.set();
                (void)co_await sleep_for(1ms);
                BOOST_TEST(!slow.is_connected);
                BOOST_TEST(!slow.is_destroyed);
                BOOST_TEST(w.server->count().connections == 1);
                BOOST_TEST(connections.live() == 1u);
                slow.tell();
                co_await connections.join();
                BOOST_TEST(slow.is_destroyed);
                BOOST_TEST(w.server->count().connections == 0);
            };
            co_await w.shards.at(0).run(serving);
        };
        w.run(body);
    }
}

BOOST_AUTO_TEST_CASE(so_many_clients_have_a_domain)
{
    nfs::v4::pnfs::data_server_limits limits;
    limits.clients = 2;
    world w(limits);
    w.run([&]() -> task<void> {
        BOOST_TEST(w.server->client(5).has_value());
        BOOST_TEST(w.server->client(6).has_value());
        const auto more = w.server->client(7);
        BOOST_TEST((!more && more.error().errno_value() == ENOBUFS));
        BOOST_TEST(w.server->client(5).has_value());
        BOOST_TEST((w.server->known(7) == nullptr));
        BOOST_TEST(w.server->count().clients == 2u);
        co_await w.server->forget(6);
        BOOST_TEST(w.server->client(7).has_value());
    });
}

// Those of all clients that are forgotten end one after the other, while some come back.
BOOST_AUTO_TEST_CASE(a_client_that_comes_back_keeps_its_connections)
{
    world w;
    w.run([&]() -> task<void> {
        std::vector<world::outcome> old, fresh;
        for (files::client_id c = 1; c <= 200; ++c)
            old.push_back(co_await w.connect(world::says(c, w.device_of(c)), 0));
        co_await w.server->forget_idle();
        scope forgetting(w.here().reactor());
        forgetting.spawn([&] { return w.server->forget_idle(); });
        co_await yield();
        for (files::client_id c = 1; c <= 200; ++c)
            fresh.push_back(co_await w.connect(world::says(c, w.device_of(c)), 1));
        co_await forgetting.join();
        (void)co_await sleep_for(1ms);
        for (std::size_t i = 0; i < old.size(); ++i) {
            BOOST_TEST(!old[i].queue_pair->connected());
            BOOST_TEST((fresh[i].queue_pair && fresh[i].queue_pair->connected()));
        }
    });
}

BOOST_AUTO_TEST_CASE(a_client_is_known_by_what_it_calls_itself)
{
    world w;
    w.run([&]() -> task<void> {
        const auto known = w.server->client(5, 100).value();
        const auto id = w.server->device_of(*known);
        BOOST_TEST((w.server->find(100, id) == known));
        BOOST_TEST((w.server->find(5, id) == nullptr));
        const auto refused = co_await w.connect(world::says(5, id));
        BOOST_TEST(is(refused, rdma_layout_reject::unknown));
        const auto mine = co_await w.connect(world::says(100, id));
        BOOST_TEST((mine.queue_pair != nullptr));
        // One that has its name later keeps it when the first one goes.
        const auto later = w.server->client(6, 100).value();
        const auto other = w.server->device_of(*later);
        BOOST_TEST((w.server->find(100, id) == nullptr));
        co_await w.server->forget(5);
        (void)co_await sleep_for(1ms);
        BOOST_TEST(!mine.queue_pair->connected());
        BOOST_TEST((w.server->find(100, other) == later));
    });
}

BOOST_AUTO_TEST_CASE(requests_of_other_protocols_are_not_meant)
{
    const auto rpc = rpcrdma::encode(rpcrdma::private_message());
    BOOST_TEST(!data_server::is_meant(rpc));
    BOOST_TEST(!data_server::is_meant({}));
    auto own = world::says(1, {});
    BOOST_TEST(data_server::is_meant(own));
    own[4] = std::byte(7);
    BOOST_TEST(data_server::is_meant(own));
    world w;
    verbs::side_connections& beside = *w.server;
    BOOST_TEST(beside.takes(own));
    BOOST_TEST(!beside.takes(rpc));
}

BOOST_AUTO_TEST_CASE(the_log_says_why_a_connection_is_refused)
{
    const test::log_at level(log_level::info);
    const test::log_lines lines;
    const auto said = [&](std::string_view what) {
        return std::ranges::count_if(lines.all,
                                     [&](const std::string& l) { return l.find(what) != std::string::npos; });
    };
    {
        // A host of its own: the same refusal has one line a minute.
        world w({.connections_of_client = 1}, "told");
        w.run([&]() -> task<void> {
            const std::uint64_t strangers = refusals(refused::layout_client);
            const auto of_5 = world::says(5, w.device_of(5));
            const auto one = co_await w.connect(of_5);
            BOOST_TEST((one.queue_pair != nullptr));
            BOOST_TEST(lines.all.size() == 0u);
            const auto two = co_await w.connect(of_5);
            BOOST_TEST(is(two, rdma_layout_reject::too_many));
            BOOST_TEST(said("turned away peer=told layout=\"data connection\" reason=connections") == 1);
            BOOST_TEST(said("the client has as many connections as one may") == 1);
            for (int i = 0; i < 100; ++i) {
                const auto unknown = co_await w.connect(world::says(7, {}));
                BOOST_TEST(is(unknown, rdma_layout_reject::unknown));
            }
            BOOST_TEST(said("shows a device id that is not its own") == 1); // a peer fills no disk
            BOOST_TEST(refusals(refused::layout_client) == strangers + 100);
        });
    }
    {
        // Its clients' domains are of another device than the listeners.
        world w;
        const std::array<shard*, 2> all = {&w.shards.at(0), &w.shards.at(1)};
        w.server.emplace(*w.client_device, all, siphash_key(), 7);
        w.run([&]() -> task<void> {
            const auto refused = co_await w.connect(world::says(5, w.device_of(5)));
            BOOST_TEST((refused.queue_pair == nullptr));
            BOOST_TEST(said("pnfs: no queue pair for a connection peer=client") == 1);
            BOOST_TEST(w.server->count().accepted == 0u);
        });
    }
}

BOOST_AUTO_TEST_SUITE_END()
