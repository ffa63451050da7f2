// SPDX-License-Identifier: Apache-2.0
// Servers of RTRS made by hand, which say what they should not: the client's path to them ends, with a reason, or does not mind.
#include <boost/test/unit_test.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/scope.hpp>
#include <verbena/core/sleep.hpp>
#include <verbena/protocols/rtrs/client.hpp>
#include <verbena/transports/loop.hpp>

#include <functional>
#include <memory>
#include <vector>

BOOST_AUTO_TEST_SUITE(rtrs_bad_servers_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

constexpr std::uint16_t depth = 4;
constexpr std::uint32_t chunk_size = 8192;

// A connection of the server's, which does what the test says.
class by_hand final : public verbs::completion_handler {
public:
    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        for (const auto& c : batch) {
            if (c.status != verbs::status::success)
                continue;
            if (c.opcode == verbs::opcode::receive_immediate)
                immediates.push_back(c.immediate);
            else if (c.opcode == verbs::opcode::receive)
                ++messages;
        }
    }
    void on_disconnected(const error&) noexcept override { ended = true; }
    void say(std::uint32_t immediate)
    {
        verbs::send_request w;
        w.opcode = verbs::opcode::write_with_immediate;
        w.immediate = immediate;
        BOOST_REQUIRE(pair->post_send({&w, 1}));
    }

    std::unique_ptr<verbs::queue_pair> pair;
    std::vector<std::uint32_t> immediates;
    unsigned messages = 0;
    bool ended = false;
};

// A server with one path, and a client of it.
struct fixture {
    fixture()
    {
        set_log_level(log_level::off);
        reactor_options r;
        r.clock = &clock;
        shard = std::move(*reactor::create(r));
        pool = std::make_unique<buffer_pool>(budget, shard.get());
        fabric = loop::make_fabric(*shard);
        server_device = fabric->make_context();
        client_device = fabric->make_context();
        listener = std::move(*server_device->listen("server"));
        options.session = "client";
        options.patience = 100ms;
    }
    // What `body` does once the client's path stands.
    void run(const std::function<task<void>()>& body) { run_until_complete(*shard, whole(body)); }
    task<void> whole(const std::function<task<void>()>& body)
    {
        scope s(*shard);
        domain = std::move(*server_device->make_domain());
        region = std::move(*co_await domain->register_memory(memory));
        s.spawn([&] { return serve(); });
        client = std::make_unique<rtrs::client>(*shard, *pool, options, stats);
        const auto added = co_await client->add_path(*client_device, "server");
        BOOST_REQUIRE_MESSAGE(added, (added ? "" : added.error().message()));
        co_await body();
        listener->close();
        co_await client->close();
        co_await s.join();
        connections.clear();
        grants.clear();
        region.reset();
        client.reset();
        BOOST_TEST(pool->outstanding() == 0u);
        BOOST_TEST(client_device->grants() == 0u);
    }
    // Each path anew, one connection after the other.
    task<void> serve()
    {
        for (;;) {
            auto request = co_await listener->next();
            if (!request)
                co_return;
            const auto m = rtrs::decode_connect_request((*request)->private_data());
            BOOST_REQUIRE(m);
            if (m->connection == 0)
                connections.clear();
            connections.push_back(std::make_unique<by_hand>());
            by_hand& c = *connections.back();
            c.pair = std::move(*co_await (*request)->make_queue_pair(*domain, {}));
            c.pair->set_handler(&c);
            const verbs::receive_request named{
                0, {memory.data() + depth * chunk_size, rtrs::info_request_size, 0}};
            BOOST_REQUIRE(c.pair->post_receive({&named, 1}));
            const verbs::receive_request empty{};
            for (int i = 0; i < 64; ++i)
                BOOST_REQUIRE(c.pair->post_receive({&empty, 1}));
            const auto private_data = encode(reply);
            verbs::connect_options o;
            o.private_data = private_data;
            BOOST_REQUIRE(co_await (*request)->accept(o));
            if (connections.size() == m->connections)
                co_await inform();
        }
    }
    task<void> inform()
    {
        by_hand& c = *connections.front();
        while (c.messages == 0)
            co_await sleep_for(1ms);
        std::vector<rtrs::descriptor> told;
        grants.clear();
        for (std::uint32_t i = 0; i < depth; ++i) {
            co_await renew(i);
            const verbs::remote_segment at = grants[i]->where();
            told.push_back({at.address, at.key, at.length});
        }
        const std::span<std::byte> message = std::span(memory).subspan(depth * chunk_size);
        rtrs::encode_info_response(message, told);
        const verbs::segment all{message.data(), std::uint32_t(rtrs::info_response_size(depth)), 0};
        verbs::send_request send;
        send.segments = {&all, 1};
        BOOST_REQUIRE(c.pair->post_send({&send, 1}));
    }
    // Gives a chunk another key.
    task<void> renew(std::uint32_t chunk)
    {
        grants.resize(depth);
        grants[chunk].reset();
        auto made = co_await domain->make_grant(std::span(memory).subspan(chunk * chunk_size, chunk_size),
                                                verbs::access::remote_write, nullptr);
        BOOST_REQUIRE(made);
        grants[chunk] = std::move(*made);
    }

    virtual_clock clock;
    std::unique_ptr<reactor> shard;
    memory_budget budget{16 << 20};
    std::unique_ptr<buffer_pool> pool;
    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<loop::context> server_device;
    std::unique_ptr<loop::context> client_device;
    std::unique_ptr<verbs::listener> listener;
    std::vector<std::byte> memory = std::vector<std::byte>(depth * chunk_size + 4096);
    std::unique_ptr<verbs::protection_domain> domain;
    std::unique_ptr<verbs::region> region;
    std::vector<std::unique_ptr<verbs::grant>> grants; // of each chunk
    std::vector<std::unique_ptr<by_hand>> connections;
    rtrs::connect_reply reply{.queue_depth = depth, .max_io_size = 4096, .max_header_size = 4096};
    rtrs::client_options options;
    rtrs::client_stats stats;
    std::unique_ptr<rtrs::client> client;
};

} // namespace

BOOST_AUTO_TEST_CASE(an_answer_to_no_heartbeat_tells_no_latency)
{
    fixture f;
    f.run([&]() -> task<void> {
        co_await sleep_for(1s);
        const auto answer = rtrs::make_immediate(rtrs::immediate_type::heartbeat_reply);
        f.connections.front()->say(answer);
        co_await sleep_for(10ms);
        BOOST_TEST((f.client->paths().front().latency == 0s));
        BOOST_TEST((f.client->paths().front().state == rtrs::path_state::connected));
        // To one that was sent it does, once.
        co_await sleep_for(f.options.heartbeat);
        BOOST_TEST(f.connections.front()->immediates == std::vector<std::uint32_t>(1, 0x80000000),
                   boost::test_tools::per_element());
        f.connections.front()->say(answer);
        co_await sleep_for(10ms);
        const duration first = f.client->paths().front().latency;
        BOOST_TEST((first > 0s && first < f.options.heartbeat));
        f.connections.front()->say(answer);
        co_await sleep_for(10ms);
        BOOST_TEST((f.client->paths().front().latency == first));
    });
}

BOOST_AUTO_TEST_SUITE_END()
