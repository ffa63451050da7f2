// SPDX-License-Identifier: Apache-2.0
// A server of RTRS made by hand, with one path, and a client of it, on loop and its virtual clock.
#pragma once

#include "../log_at.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/rtrs/client.hpp>
#include <verbena/transports/loop.hpp>

#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace verbena::rtrs_by_hand {

using namespace std::chrono_literals;

inline constexpr std::uint16_t depth = 4;
inline constexpr std::uint32_t chunk_size = 8192;

// A connection of the server's, which does what the test says.
class by_hand final : public verbs::completion_handler {
public:
    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        for (const auto& c : batch) {
            if (c.status != verbs::status::success)
                continue;
            if (c.opcode == verbs::opcode::receive_immediate &&
                rtrs::type_of(c.immediate) == rtrs::immediate_type::request)
                requests.push_back(c.immediate);
            else if (c.opcode == verbs::opcode::receive_immediate)
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
    void send(std::span<const std::byte> bytes, std::optional<std::uint32_t> immediate = {})
    {
        const verbs::segment all{const_cast<std::byte*>(bytes.data()), std::uint32_t(bytes.size()), 0};
        verbs::send_request w;
        w.inline_data = true;
        w.segments = {&all, 1};
        if (immediate) {
            w.opcode = verbs::opcode::send_with_immediate;
            w.immediate = *immediate;
        }
        BOOST_REQUIRE(pair->post_send({&w, 1}));
    }
    void answer(std::uint32_t chunk, const rtrs::new_key& key, std::uint16_t code = 0)
    {
        send(encode(key), encode(rtrs::response{chunk, code}, false));
    }

    std::unique_ptr<verbs::queue_pair> pair;
    std::vector<std::uint32_t> requests;
    std::vector<std::uint32_t> immediates;
    unsigned messages = 0;
    bool ended = false;
};

// A server with one path, and a client of it.
struct fixture {
    const test::log_at level_of_log{log_level::off};
    explicit fixture(bool new_keys = false, bool apart = false)
    {
        reactor_options r;
        r.clock = &clock;
        shard = std::move(*reactor::create(r));
        pool = std::make_unique<buffer_pool>(budget, shard.get());
        fabric = loop::make_fabric(*shard);
        loop::options o;
        o.profile.immediates_apart = apart;
        server_device = fabric->make_context(o);
        client_device = fabric->make_context(o);
        reply.new_keys = new_keys;
        listener = std::move(*server_device->listen("server"));
        options.session = "client";
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
        s.spawn([&] { return answer_all(); });
        co_await body();
        over = true;
        listener->close();
        co_await client->close();
        co_await s.join();
        connections.clear();
        grants.clear();
        region.reset();
        client.reset();
        BOOST_TEST(pool->outstanding() == 0u);
        BOOST_TEST(client_device->grants() == 0u);
        BOOST_TEST(shard->stats().illegal_transitions.load() == 0u);
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
            if (connections.size() == m->connections && informing)
                co_await inform();
        }
    }
    task<void> inform()
    {
        by_hand& c = *connections.front();
        while (c.messages == 0)
            co_await sleep_for(1ms);
        std::vector<rtrs::descriptor> told;
        std::vector<verbs::grant_request> wanted(depth);
        for (std::uint32_t i = 0; i < depth; ++i) {
            wanted[i].memory = std::span(memory).subspan(i * chunk_size, chunk_size);
            wanted[i].rights = verbs::access::remote_write;
            wanted[i].renewable = true;
        }
        BOOST_REQUIRE(co_await domain->make_grants(wanted));
        grants.clear();
        for (auto& g : wanted) {
            grants.push_back(std::move(g.made));
            const verbs::remote_segment at = grants.back().where();
            told.push_back({at.address, at.key, at.length});
        }
        const std::span<std::byte> message = std::span(memory).subspan(depth * chunk_size);
        if (changes_chunks)
            changes_chunks(told);
        rtrs::encode_info_response(message, told);
        const verbs::segment all{message.data(), std::uint32_t(rtrs::info_response_size(told.size())), 0};
        verbs::send_request send;
        send.segments = {&all, 1};
        BOOST_REQUIRE(c.pair->post_send({&send, 1}));
    }
    // As good servers do: each request, with the chunk's next key. What it said before works no more.
    task<void> answer_all()
    {
        const rtrs::request_layout layout(depth);
        while (!over) {
            for (const auto& one : connections) {
                by_hand& c = *one;
                while (answering && !c.requests.empty() && !c.ended) {
                    const std::uint32_t chunk = layout.chunk(c.requests.front());
                    c.requests.erase(c.requests.begin());
                    ++answers;
                    if (!reply.new_keys) {
                        c.say(encode(rtrs::response{chunk, 0}, false));
                        continue;
                    }
                    renew(c, chunk);
                    c.answer(chunk, key_of(chunk), answers == failing ? EIO : 0);
                }
            }
            co_await sleep_for(1ms);
        }
    }
    rtrs::new_key key_of(std::uint32_t chunk) const
    {
        return {std::uint16_t(chunk), grants[chunk].where().key};
    }
    // Gives a chunk another key.
    void renew(by_hand& by, std::uint32_t chunk)
    {
        verbs::send_request w;
        w.opcode = verbs::opcode::bind;
        w.grant = &grants[chunk];
        BOOST_REQUIRE(by.pair->post_send({&w, 1}));
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
    std::vector<verbs::grant> grants; // of each chunk
    std::vector<std::unique_ptr<by_hand>> connections;
    rtrs::connect_reply reply{.queue_depth = depth, .max_io_size = 4096, .max_header_size = 4096};
    rtrs::client_options options;
    rtrs::client_stats stats;
    std::unique_ptr<rtrs::client> client;
    bool over = false;
    bool answering = true;
    bool informing = true;
    std::function<void(std::vector<rtrs::descriptor>&)> changes_chunks; // as it tells them
    unsigned answers = 0;
    unsigned failing = 0; // the number of one that says EIO
};

} // namespace verbena::rtrs_by_hand
