// SPDX-License-Identifier: Apache-2.0
// Sessions whose connections stand on several shards, by clients that do what the test says.
#include <boost/test/unit_test.hpp>

#include "../../sim/block_world.hpp"
#include "rtrs_by_hand.hpp"

#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/yield.hpp>

#include <array>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <vector>

BOOST_AUTO_TEST_SUITE(rtrs_shards_test)

using namespace verbena;
using namespace std::chrono_literals;
using rnbd_test::by_hand;

namespace {

constexpr std::size_t shards = 3;

// A flush takes a second.
class slow_disk final : public storage::block_backend {
public:
    std::string_view kind() const noexcept override { return "slow"; }
    storage::block_properties properties() const noexcept override { return {.size = 1 << 20}; }
    task<result<void>> done() { co_return result<void>(); }
    task<result<void>> read(std::uint64_t, std::span<std::byte>) override { return done(); }
    task<result<void>> write(std::uint64_t, std::span<const std::byte>, bool) override { return done(); }
    task<result<void>> flush() override
    {
        ++begun;
        begun_at = reactor::current()->clock().now();
        flushed_on.push_back(reactor::current()->index());
        // Deaf to a stop, as disks are.
        const task_context& context = co_await current_context();
        class alarm final : public timer {
        public:
            void on_timer() noexcept override { over.set(); }
            event over;
        } rings;
        context.shard->timers().arm(rings, context.shard->clock().now() + 1s);
        co_await rings.over.wait_shielded();
        ++ended;
        co_return result<void>();
    }
    task<result<void>> discard(std::uint64_t, std::uint64_t) override { return done(); }
    task<result<void>> write_zeroes(std::uint64_t, std::uint64_t, bool) override { return done(); }
    std::vector<std::size_t> flushed_on;
    unsigned begun = 0, ended = 0;
    time_point begun_at{}; ///< the last one
};

loop::options renewing(bool at_once)
{
    loop::options o;
    o.profile.renews_at_once = at_once;
    return o;
}

struct world : sim::block_world {
    explicit world(std::uint64_t seed = 7, const loop::options& o = {}) : block_world(seed, shards, {}, o)
    {
        options.queue_depth = 8;
        options.chunk_size = 16384;
        add("disk", disk);
        client_device = make_device("client");
        context = client_device->make_context(client(0).reactor());
    }
    void run(task<void> body)
    {
        all.run(client(0), whole(std::move(body)));
        context.reset();
    }
    task<void> serve() { return begin({"server"}); }
    task<void> whole(task<void> body)
    {
        co_await serve();
        co_await body;
        co_await end(true);
    }

    slow_disk disk;
    std::unique_ptr<loop::device> client_device;
    std::unique_ptr<loop::context> context;
};

// A path of four connections, none of which but the first stands at home for certain.
struct path {
    explicit path(world& w, unsigned number = 0) : w(w), number(number) {}
    task<void> connect()
    {
        rtrs::connect_request m;
        m.connections = 4;
        m.path = rnbd_test::id_of(100 + number);
        m.session = rnbd_test::id_of(1);
        m.first = number == 0;
        home = *w.group.shard_of(encode(m), shards);
        for (m.connection = 0; m.connection < m.connections; ++m.connection) {
            connections.push_back(std::make_unique<by_hand>(*w.context));
            BOOST_REQUIRE(co_await connections.back()->connect("server", m));
        }
        connections[0]->send(rtrs::encode_info_request("one"));
        co_await sleep_for(10ms);
        chunks = connections[0]->chunks();
        BOOST_REQUIRE(!chunks.empty());
        if (w.options.always_invalidate) {
            for (const rtrs::descriptor& c : chunks)
                keys.push_back(c.key);
        }
    }
    // Of the service, by connection `by` in `chunk`; the answer comes there.
    void send(std::size_t by, std::uint32_t chunk, std::span<const std::byte> user, rtrs::io_header h)
    {
        h.user_size = std::uint16_t(user.size());
        const std::uint32_t room = h.sink ? 512 : 0;
        const auto bytes = rnbd_test::written(user, h);
        const std::uint64_t base = keys.empty()
                                       ? chunks.front().address + std::uint64_t(chunk) * w.options.chunk_size
                                       : chunks[chunk].address;
        connections[by]->write(
            base + room, keys.empty() ? chunks.front().key : keys[chunk], bytes,
            rtrs::request_layout(w.options.queue_depth).immediate(chunk, room + h.user_size));
    }
    task<void> open(std::size_t by, std::uint32_t chunk)
    {
        rtrs::io_header h;
        h.sink = co_await connections[by]->sink(rnbd::open_response_size);
        send(by, chunk, rnbd::encode(rnbd::open_request{rnbd::access_mode::read_write, "disk"}), h);
    }
    void close(std::size_t by, std::uint32_t chunk)
    {
        rtrs::io_header h;
        h.is_write = true;
        send(by, chunk, rnbd::encode_close(0), h);
    }
    void flush(std::size_t by, std::uint32_t chunk)
    {
        rnbd::io_request m;
        m.operation = rnbd::operation::flush;
        send(by, chunk, rnbd::encode(m), {});
    }
    // The errno of the last answer for `chunk` that came by this connection.
    std::optional<unsigned> answer(std::size_t by, std::uint32_t chunk) const
    {
        std::optional<unsigned> last;
        for (const std::uint32_t i : connections[by]->immediates) {
            const auto type = rtrs::type_of(i);
            const bool is_one =
                type == rtrs::immediate_type::response || type == rtrs::immediate_type::response_invalidated;
            if (is_one && rtrs::decode_response(i).chunk == chunk)
                last = rtrs::decode_response(i).error;
        }
        return last;
    }
    bool ended() const
    {
        for (const auto& c : connections) {
            if (!c->ended)
                return false;
        }
        return true;
    }

    world& w;
    const unsigned number; // in the session
    std::size_t home = 0;
    std::vector<std::unique_ptr<by_hand>> connections;
    std::vector<rtrs::descriptor> chunks;
    std::vector<std::uint32_t> keys; // by chunk, where each has its own
};

} // namespace

BOOST_AUTO_TEST_CASE(a_request_is_served_on_the_shard_of_its_connection)
{
    world w;
    w.run([](world& w) -> task<void> {
        path p(w);
        co_await p.connect();
        co_await p.open(0, 0);
        co_await sleep_for(10ms);
        for (unsigned by = 1; by < 4; ++by)
            p.flush(by, by);
        co_await sleep_for(1100ms);
        for (unsigned by = 1; by < 4; ++by)
            BOOST_TEST((p.answer(by, by) == 0u));
        std::map<std::size_t, unsigned> on;
        for (const std::size_t s : w.disk.flushed_on)
            ++on[s];
        BOOST_TEST(on[(p.home + 1) % shards] == 1u);
        BOOST_TEST(on[(p.home + 2) % shards] == 1u);
        BOOST_TEST(on[p.home] == 1u); // the fourth connection
        for (const auto& s : w.servers) {
            BOOST_TEST(s.stats.connections.value() == (s.here.index() == p.home ? 2 : 1));
            BOOST_TEST(s.stats.sessions.value() == (s.here.index() == p.home ? 1 : 0));
        }
    }(w));
    w.nothing_is_left();
}

// The devices of a session are opened and closed at its home, whichever connection asks.
BOOST_AUTO_TEST_CASE(what_changes_a_session_goes_home)
{
    world w;
    w.run([](world& w) -> task<void> {
        path p(w);
        co_await p.connect();
        co_await p.open(1, 0);
        co_await sleep_for(10ms);
        BOOST_TEST((p.answer(1, 0) == 0u));
        const auto told = rnbd::decode_open_response(p.connections[1]->read_into());
        BOOST_REQUIRE(told);
        BOOST_TEST(told->sectors == (1u << 20) / 512);
        BOOST_TEST(w.devices.users_of(0).writers == 1u);
        p.close(2, 1);
        co_await sleep_for(10ms);
        BOOST_TEST((p.answer(2, 1) == 0u));
        BOOST_TEST(w.devices.users_of(0).writers == 0u);
    }(w));
    w.nothing_is_left();
}

BOOST_AUTO_TEST_CASE(a_close_waits_for_operations_of_other_shards)
{
    world w;
    w.run([](world& w) -> task<void> {
        path p(w);
        co_await p.connect();
        co_await p.open(0, 0);
        co_await sleep_for(10ms);
        p.flush(1, 1);
        p.flush(2, 2);
        co_await sleep_for(10ms);
        p.close(0, 3);
        co_await sleep_for(500ms);
        BOOST_TEST(w.disk.begun == 2u);
        BOOST_TEST(!p.answer(0, 3).has_value());
        BOOST_TEST(w.devices.users_of(0).writers == 1u);
        p.flush(2, 4);
        co_await sleep_for(10ms);
        BOOST_TEST((p.answer(2, 4) == unsigned(ENOTCONN)));
        co_await sleep_for(600ms);
        BOOST_TEST((p.answer(1, 1) == 0u));
        BOOST_TEST((p.answer(2, 2) == 0u));
        BOOST_TEST((p.answer(0, 3) == 0u));
        BOOST_TEST(w.devices.users_of(0).writers == 0u);
        // The number serves for the next one.
        co_await p.open(3, 5);
        co_await sleep_for(10ms);
        p.flush(1, 6);
        co_await sleep_for(1100ms);
        BOOST_TEST((p.answer(1, 6) == 0u));
    }(w));
    w.nothing_is_left();
}

// Two requests into one chunk, by connections of two shards.
BOOST_AUTO_TEST_CASE(a_chunk_is_one_requests_on_all_shards)
{
    world w;
    w.run([](world& w) -> task<void> {
        path p(w);
        co_await p.connect();
        co_await p.open(0, 0);
        co_await sleep_for(10ms);
        p.flush(1, 1);
        co_await sleep_for(10ms);
        p.flush(2, 1);
        co_await sleep_for(100ms);
        BOOST_TEST(p.ended());
        BOOST_TEST(w.disk.begun == 1u);
        co_await sleep_for(1100ms);
        BOOST_TEST(w.disk.ended == 1u);
    }(w));
    w.nothing_is_left(1);
}

// A request that came again by another path waits for the one before it, and is served where it came.
BOOST_AUTO_TEST_CASE(a_copys_turn_comes_on_its_own_shard)
{
    world w;
    w.run([](world& w) -> task<void> {
        path p(w), again(w, 1);
        co_await p.connect();
        co_await again.connect();
        co_await p.open(0, 0);
        co_await sleep_for(10ms);
        p.flush(1, 1);
        co_await sleep_for(10ms);
        again.flush(2, 1);
        co_await sleep_for(500ms);
        BOOST_TEST(w.disk.begun == 1u);
        co_await sleep_for(600ms);
        BOOST_TEST((p.answer(1, 1) == 0u));
        BOOST_TEST(w.disk.begun == 2u);
        BOOST_TEST(w.disk.flushed_on.back() == (p.home + 2) % shards);
        BOOST_TEST(!again.answer(2, 1).has_value());
        co_await sleep_for(1s);
        BOOST_TEST((again.answer(2, 1) == 0u));
        p.flush(3, 1); // the chunk is nobody's
        co_await sleep_for(1100ms);
        BOOST_TEST((p.answer(3, 1) == 0u));
    }(w));
    BOOST_TEST(w.repeated() == 1u);
    w.nothing_is_left();
}

// Its path ends just then.
BOOST_AUTO_TEST_CASE(a_path_may_end_when_the_turn_of_its_copy_comes)
{
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        world w(seed);
        w.run([](world& w, std::uint64_t seed) -> task<void> {
            path p(w), again(w, 1);
            co_await p.connect();
            co_await again.connect();
            co_await p.open(0, 0);
            co_await sleep_for(10ms);
            p.flush(1, 1);
            co_await sleep_for(10ms);
            again.flush(2, 1);
            co_await sleep_for(w.disk.begun_at + 1s - w.clock.now());
            for (std::uint64_t i = 0; i < seed % 8; ++i)
                co_await yield();
            again.connections[seed % 4]->pair.reset();
            co_await sleep_for(2s);
            p.flush(3, 1); // whatever became of the copy, the chunk is nobody's
            co_await sleep_for(1100ms);
            BOOST_TEST((p.answer(3, 1) == 0u));
        }(w, seed));
        w.nothing_is_left();
    }
}

// The end of one shard's server ends the paths that have connections there: in good order, or at once.
BOOST_AUTO_TEST_CASE(a_shard_that_stops_takes_its_paths_with_it)
{
    for (const bool drains : {true, false}) {
        for (unsigned beside = 0; beside < shards; ++beside) {
            BOOST_TEST_CONTEXT((drains ? "drains, " : "stops, ") << beside << " behind home")
            {
                world w;
                w.run([](world& w, bool drains, unsigned beside) -> task<void> {
                    path p(w);
                    co_await p.connect();
                    co_await p.open(0, 0);
                    co_await sleep_for(10ms);
                    p.flush(1, 1);
                    p.flush(2, 2);
                    co_await sleep_for(10ms);
                    auto& there = w.servers[(p.home + beside) % shards];
                    const auto ends = [&w, &there, drains] { return w.end_one(there, drains); };
                    const time_point before = w.clock.now();
                    co_await there.here.run(ends);
                    BOOST_TEST((w.clock.now() - before <
                                2s)); // as long as the disk takes, and no silence was waited for
                    BOOST_TEST(w.disk.ended == 2u);
                    co_await sleep_for(10ms);
                    BOOST_TEST(p.ended());
                    for (unsigned by = 1; by < 3; ++by)
                        BOOST_TEST((p.answer(by, by) == 0u) == drains);
                    const auto begins = [&w, &there] { w.begin_one(there, {}); };
                    co_await there.here.run(begins);
                    path again(w);
                    if (there.here.index() != 0) { // whose listener is gone
                        co_await again.connect();
                        co_await again.open(2, 0);
                        co_await sleep_for(10ms);
                        BOOST_TEST((again.answer(2, 0) == 0u));
                    }
                }(w, drains, beside));
                w.nothing_is_left();
            }
        }
    }
}

// At whatever moment of its end.
BOOST_AUTO_TEST_CASE(a_shard_may_stop_while_a_path_ends)
{
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        world w(seed);
        w.run([](world& w, std::uint64_t seed) -> task<void> {
            path p(w);
            co_await p.connect();
            p.connections[seed % 4]->pair.reset();
            for (std::uint64_t i = 0; i < seed % 15; ++i)
                co_await yield();
            auto& there = w.servers[(p.home + 1) % shards];
            const auto ends = [&w, &there] { return w.end_one(there, true); };
            co_await there.here.run(ends);
            const auto begins = [&w, &there] { w.begin_one(there, {}); };
            co_await there.here.run(begins);
        }(w, seed));
        w.nothing_is_left();
    }
}

// Keys that are renewed by whichever connection answers.
BOOST_AUTO_TEST_CASE(a_chunks_next_key_comes_by_any_connection)
{
    for (const bool at_once : {true, false}) {
        world w(7, renewing(at_once));
        w.options.always_invalidate = true;
        w.run([](world& w) -> task<void> {
            path p(w);
            co_await p.connect();
            co_await p.open(0, 0);
            co_await sleep_for(10ms);
            for (unsigned round = 0; round < 8; ++round) {
                const unsigned by = 1 + round % 3;
                p.flush(by, 1);
                co_await sleep_for(1100ms);
                BOOST_TEST((p.answer(by, 1) == 0u));
                BOOST_REQUIRE(!p.connections[by]->keys.empty());
                const rtrs::new_key next = p.connections[by]->keys.back();
                BOOST_TEST(next.chunk == 1u);
                BOOST_TEST(next.key != p.keys[1]);
                p.keys[1] = next.key;
            }
            BOOST_TEST(w.disk.ended == 8u);
            BOOST_TEST(!p.ended());
        }(w));
        w.nothing_is_left();
    }
}

// Its first connection goes while another shard asks for the next one's place, makes its part, or accepts.
BOOST_AUTO_TEST_CASE(a_path_may_end_while_a_connection_is_on_its_way)
{
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        world w(seed);
        w.run([](world& w, std::uint64_t seed) -> task<void> {
            rtrs::connect_request m;
            m.connections = 4;
            m.path = rnbd_test::id_of(100);
            m.session = rnbd_test::id_of(1);
            m.first = true;
            by_hand first(*w.context);
            BOOST_REQUIRE(co_await first.connect("server", m));
            m.connection = 1;
            by_hand second(*w.context);
            scope tasks(w.client(0).reactor());
            tasks.spawn([&]() -> task<void> { (void)co_await second.connect("server", m); });
            for (std::uint64_t i = 0; i < seed % 12; ++i)
                co_await yield();
            first.pair.reset();
            co_await tasks.join();
            co_await sleep_for(10ms);
            BOOST_TEST((!second.pair || second.ended));
        }(w, seed));
        w.nothing_is_left();
    }
}

// Connections in no order.
BOOST_AUTO_TEST_CASE(connections_that_have_no_place)
{
    world w;
    w.run([](world& w) -> task<void> {
        rtrs::connect_request m;
        m.connections = 4;
        m.path = rnbd_test::id_of(100);
        m.session = rnbd_test::id_of(1);
        m.first = true;
        const auto refused = [&](rtrs::connect_request asked) -> task<unsigned> {
            by_hand peer(*w.context);
            const auto connected = co_await peer.connect("server", asked);
            BOOST_TEST(!connected);
            co_return peer.told.error;
        };
        m.connection = 1;
        BOOST_TEST(co_await refused(m) == unsigned(ENXIO)); // a path that nobody began
        m.connection = 0;
        by_hand first(*w.context);
        BOOST_REQUIRE(co_await first.connect("server", m));
        m.connection = 2;
        BOOST_TEST(co_await refused(m) == unsigned(EINVAL)); // out of order
        m.connection = 1;
        by_hand second(*w.context);
        BOOST_REQUIRE(co_await second.connect("server", m));
        BOOST_TEST(co_await refused(m) == unsigned(EINVAL)); // once more
        // One that goes before the path is connected takes it along.
        second.pair.reset();
        co_await sleep_for(10ms);
        BOOST_TEST(first.ended);
        m.connection = 2;
        BOOST_TEST(co_await refused(m) == unsigned(ENXIO));
    }(w));
    w.nothing_is_left();
}

BOOST_AUTO_TEST_SUITE_END()
