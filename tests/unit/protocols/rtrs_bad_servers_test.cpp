// SPDX-License-Identifier: Apache-2.0
// Servers of RTRS made by hand, which say what they should not: the client's path to them ends, with a reason, or does not mind.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <verbena/core/combine.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/scope.hpp>
#include <verbena/core/sleep.hpp>
#include <verbena/protocols/rtrs/client.hpp>
#include <verbena/transports/loop.hpp>

#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
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
    explicit fixture(bool new_keys = false, bool apart = false)
    {
        set_log_level(log_level::off);
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
            const verbs::remote_segment at = grants.back()->where();
            told.push_back({at.address, at.key, at.length});
        }
        const std::span<std::byte> message = std::span(memory).subspan(depth * chunk_size);
        rtrs::encode_info_response(message, told);
        const verbs::segment all{message.data(), std::uint32_t(rtrs::info_response_size(depth)), 0};
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
        return {std::uint16_t(chunk), grants[chunk]->where().key};
    }
    // Gives a chunk another key.
    void renew(by_hand& by, std::uint32_t chunk)
    {
        verbs::send_request w;
        w.opcode = verbs::opcode::bind;
        w.grant = grants[chunk].get();
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
    std::vector<std::unique_ptr<verbs::grant>> grants; // of each chunk
    std::vector<std::unique_ptr<by_hand>> connections;
    rtrs::connect_reply reply{.queue_depth = depth, .max_io_size = 4096, .max_header_size = 4096};
    rtrs::client_options options;
    rtrs::client_stats stats;
    std::unique_ptr<rtrs::client> client;
    bool over = false;
    bool answering = true;
    unsigned answers = 0;
    unsigned failing = 0; // the number of one that says EIO
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

// Whether a new key and its answer are one message, as on RoCE, or two, as on iWARP.
void each_answer_brings_the_key_that_its_chunk_is_written_with_next_by(bool apart)
{
    fixture f(true, apart);
    f.failing = 5;
    f.run([&]() -> task<void> {
        const std::vector<std::byte> user(32);
        const auto write = [&](std::size_t bytes) -> task<result<void>> {
            const std::vector<std::byte> data(bytes, std::byte(bytes));
            co_return co_await f.client->write(user, data);
        };
        for (unsigned i = 1; i <= 10; ++i) {
            const auto written = co_await write(512);
            BOOST_TEST(written.has_value() == (i != f.failing));
        }
        std::vector<task<result<void>>> all; // more than there are chunks
        for (unsigned i = 0; i < 12; ++i)
            all.push_back(write(100));
        for (const auto& one : co_await when_all(std::move(all)))
            BOOST_TEST(one.has_value());
        BOOST_TEST(f.answers == 22u);
        BOOST_TEST(f.stats.lost_paths[std::size_t(rtrs::path_end::lost)].value() == 0u);
        BOOST_TEST(f.stats.failovers.value() == 0u);

        // A path that is made again has other keys, of which it was told with its chunks.
        f.connections.front()->pair->kill(error(std::errc::connection_reset, "a server that restarts"));
        co_await sleep_for(1s);
        BOOST_TEST((f.client->paths().front().state == rtrs::path_state::connected));
        for (unsigned i = 0; i < 5; ++i)
            BOOST_TEST((co_await write(512)).has_value());
        BOOST_TEST(f.stats.reconnects.value() == 1u);
        BOOST_TEST(f.stats.lost_paths[std::size_t(rtrs::path_end::lost)].value() == 1u);
    });
}
BOOST_DATA_TEST_CASE(each_answer_brings_the_key_that_its_chunk_is_written_with_next,
                     boost::unit_test::data::make({false, true}), apart)
{
    each_answer_brings_the_key_that_its_chunk_is_written_with_next_by(apart);
}

BOOST_AUTO_TEST_CASE(a_chunk_waits_for_its_next_key)
{
    fixture f(true, true);
    f.run([&]() -> task<void> {
        f.answering = false;
        const std::vector<std::byte> user(32);
        std::vector<task<result<void>>> all;
        for (unsigned i = 0; i < depth; ++i) // one of them waits for a chunk
            all.push_back(f.client->write(user, {}));
        scope s(*f.shard);
        s.spawn([&]() -> task<void> {
            for (const auto& one : co_await when_all(std::move(all)))
                BOOST_TEST(one.has_value());
        });
        co_await sleep_for(5ms);
        by_hand& c = *f.connections.back();
        BOOST_TEST(c.requests.size() == depth - 1u);
        const std::uint32_t chunk = rtrs::request_layout(depth).chunk(c.requests.front());
        f.renew(c, chunk);
        // The first half is no answer.
        c.send(encode(f.key_of(chunk)));
        co_await sleep_for(5ms);
        BOOST_TEST(c.requests.size() == depth - 1u);
        c.say(encode(rtrs::response{chunk, 0}, false));
        co_await sleep_for(5ms);
        BOOST_TEST(c.requests.size() == std::size_t(depth));
        BOOST_TEST(rtrs::request_layout(depth).chunk(c.requests.back()) == chunk);
        c.requests.erase(c.requests.begin());
        f.answering = true;
        co_await s.join();
        BOOST_TEST(f.stats.failovers.value() == 0u);
    });
}

namespace {

// A request is under way in chunk `c`, and `act` is what the server says. The path ends for `why`, and the request goes on by the next.
void ends_it(const char* what, fixture& f, rtrs::path_end why,
             const std::function<void(by_hand&, std::uint32_t)>& act)
{
    BOOST_TEST_CONTEXT(what)
    {
        f.run([&]() -> task<void> {
            f.answering = false;
            scope s(*f.shard);
            s.spawn([&]() -> task<void> {
                const std::vector<std::byte> user(32);
                BOOST_TEST((co_await f.client->write(user, {})).has_value());
            });
            co_await sleep_for(5ms);
            by_hand& c = *f.connections.back();
            BOOST_REQUIRE(c.requests.size() == 1u);
            act(c, rtrs::request_layout(depth).chunk(c.requests.front()));
            co_await sleep_for(10ms);
            BOOST_TEST((f.client->paths().front().state != rtrs::path_state::connected));
            BOOST_TEST(c.ended);
            BOOST_TEST(f.stats.lost_paths[std::size_t(why)].value() == 1u);
            f.answering = true;
            co_await s.join();
            BOOST_TEST(f.stats.failed.value() == 0u);
        });
    }
}

} // namespace

BOOST_AUTO_TEST_CASE(new_keys_that_are_none)
{
    using rtrs::path_end;
    const auto answer_to = [](std::uint32_t chunk) { return encode(rtrs::response{chunk, 0}, false); };
    const auto key_for = [](std::uint32_t chunk) { return encode(rtrs::new_key{std::uint16_t(chunk), 1}); };
    for (const bool apart : {false, true}) {
        const auto one = [&](const char* what, path_end why, const auto& act) {
            fixture f(true, apart);
            ends_it(what, f, why, act);
        };
        const auto other = [](std::uint32_t chunk) { return (chunk + 1) % depth; };
        one("for a chunk that is not in use", path_end::bad_message,
            [&](by_hand& c, std::uint32_t chunk) { c.send(key_for(other(chunk)), answer_to(other(chunk))); });
        one("for no chunk", path_end::bad_message,
            [&](by_hand& c, std::uint32_t) { c.send(key_for(depth), answer_to(depth)); });
        one("of another chunk", path_end::bad_message,
            [&](by_hand& c, std::uint32_t chunk) { c.send(key_for(other(chunk)), answer_to(chunk)); });
        one("none", path_end::bad_message, [&](by_hand& c, std::uint32_t chunk) { c.say(answer_to(chunk)); });
        one("too short", path_end::bad_message, [&](by_hand& c, std::uint32_t chunk) {
            const auto bytes = key_for(chunk);
            c.send(std::span(bytes).first(7), answer_to(chunk));
        });
        one("too long", path_end::lost, [&](by_hand& c, std::uint32_t chunk) {
            c.send(std::vector<std::byte>(rtrs::new_key_size + 1), answer_to(chunk));
        });
        one("nothing", path_end::bad_message,
            [&](by_hand& c, std::uint32_t chunk) { c.send({}, answer_to(chunk)); });
        one("another message", path_end::bad_message, [&](by_hand& c, std::uint32_t chunk) {
            auto bytes = key_for(chunk);
            bytes[0] = std::byte(3);
            c.send(bytes, answer_to(chunk));
        });
        one("with a heartbeat", path_end::bad_message, [&](by_hand& c, std::uint32_t chunk) {
            c.send(key_for(chunk), rtrs::make_immediate(rtrs::immediate_type::heartbeat));
        });
        one("alone", path_end::bad_message, [&](by_hand& c, std::uint32_t chunk) {
            c.send(key_for(chunk));
            c.send(key_for(chunk), answer_to(chunk));
        });
        {
            fixture f(true, apart);
            f.run([&]() -> task<void> {
                const std::vector<std::byte> user(32);
                BOOST_TEST((co_await f.client->write(user, {})).has_value());
                by_hand& c = *f.connections.back();
                c.answer(0, rtrs::new_key{0, 1}); // once more
                co_await sleep_for(10ms);
                BOOST_TEST(c.ended);
                BOOST_TEST(f.stats.lost_paths[std::size_t(path_end::bad_message)].value() == 1u);
            });
        }
    }
}

BOOST_AUTO_TEST_CASE(new_keys_of_a_server_that_gives_none)
{
    for (const bool apart : {false, true}) {
        const auto one = [&](const char* what, rtrs::path_end why, std::size_t bytes) {
            fixture f(false, apart);
            ends_it(what, f, why, [&](by_hand& c, std::uint32_t chunk) {
                c.send(std::vector<std::byte>(bytes), encode(rtrs::response{chunk, 0}, false));
            });
        };
        one("a key", rtrs::path_end::lost, rtrs::new_key_size); // it finds no room
        if (!apart)                                             // else it is a Send of nothing and an answer
            one("a Send with an answer", rtrs::path_end::bad_message, 0);
    }
}

BOOST_AUTO_TEST_CASE(a_provider_that_can_not_follow_new_keys)
{
    fixture f(true);
    loop::options o;
    o.profile.send_with_immediate = false;
    f.options.set_up = 1s;
    const auto less = f.fabric->make_context(o);
    f.run([&]() -> task<void> {
        rtrs::client_options named;
        named.session = "other";
        rtrs::client_stats stats;
        rtrs::client other(*f.shard, *f.pool, named, stats);
        const auto added = co_await other.add_path(*less, "server");
        BOOST_TEST((added.error() == std::errc::operation_not_supported));
        co_await other.close();
    });
}

BOOST_AUTO_TEST_SUITE_END()
