// SPDX-License-Identifier: Apache-2.0
// Servers of RTRS made by hand, which say what they should not: the client's path to them ends, with a reason, or does not mind.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "rtrs_server_by_hand.hpp"

#include <verbena/core/task/combine.hpp>

#include <cerrno>
#include <functional>
#include <memory>
#include <vector>

BOOST_AUTO_TEST_SUITE(rtrs_bad_servers_test)

using namespace verbena;
using namespace verbena::rtrs_by_hand;
using namespace std::chrono_literals;

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
