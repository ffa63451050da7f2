// SPDX-License-Identifier: Apache-2.0
// What a client of RTRS gets of the server's memory: what its operations made, and nothing that others, or it, have left there.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "../marked_memory.hpp"
#include "rnbd_world.hpp"
#include "rtrs_by_hand.hpp"

#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/yield.hpp>

#include <bit>
#include <functional>
#include <memory>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(rtrs_isolation_test)

using namespace verbena;
using namespace verbena::rnbd_test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t room = 8192; // of a sink
constexpr std::byte own{0x77};       // what the client has put there itself

struct fixture : rnbd_test::served_world {
    explicit fixture(std::size_t memory = std::size_t(512) << 20)
        : rnbd_test::served_world({}, {}, log_level::off, memory)
    {
        device = fabric->make_context(profile);
        add("disk", *disk);
        options.queue_depth = 16;
        options.chunk_size = 65536;
    }
    // A path of one connection, by which requests go one after the other.
    task<void> set_up(by_hand& peer, unsigned session = 1)
    {
        rtrs::connect_request m;
        m.connections = 1;
        m.path = id_of(100 + session);
        m.session = id_of(session);
        m.first = true;
        BOOST_REQUIRE(co_await peer.connect("server", m));
        const auto name = rtrs::encode_info_request("client" + std::to_string(session));
        peer.send(name);
        while (peer.messages == 0)
            co_await sleep_for(1ms);
        BOOST_REQUIRE(!peer.chunks().empty());
    }
    // Asks for `message` with a sink, in front of which `data` are written into the chunk. Yields the errno.
    task<unsigned> ask(by_hand& peer, std::span<const std::byte> message,
                       std::span<const std::byte> data = {})
    {
        rtrs::io_header h;
        h.sink = co_await peer.sink(room);
        co_return co_await send(peer, h, message, data, room);
    }
    // The message stands behind `at` bytes, the last of which are `data`.
    task<unsigned> send(by_hand& peer, rtrs::io_header h, std::span<const std::byte> message,
                        std::span<const std::byte> data, std::uint32_t at)
    {
        h.user_size = std::uint16_t(message.size());
        std::vector<std::byte> all(data.begin(), data.end());
        const auto rest = written(message, h);
        all.insert(all.end(), rest.begin(), rest.end());
        const rtrs::descriptor c = peer.chunks().front();
        const std::size_t before = peer.immediates.size();
        peer.write(c.address + at - data.size(), c.key, all,
                   rtrs::request_layout(16).immediate(0, at + h.user_size));
        co_await sleep_for(5ms);
        BOOST_REQUIRE(peer.immediates.size() == before + 1);
        peer.post_receive();
        co_return rtrs::decode_response(peer.immediates.back()).error;
    }
    task<std::uint32_t> open(by_hand& peer)
    {
        const auto message = encode(rnbd::open_request{rnbd::access_mode::read_write, "disk"});
        const unsigned answer = co_await ask(peer, message);
        BOOST_TEST(answer == 0u);
        const auto told = rnbd::decode_open_response(std::as_const(peer).read_into());
        BOOST_REQUIRE(told);
        co_return told->device;
    }

    std::unique_ptr<loop::context> device;
    std::unique_ptr<storage::block_backend> disk = rnbd_test::ram_disk(1 << 20);
};

// All that there is to ask, each with a sink: of what makes no bytes too.
struct question {
    const char* what;
    std::vector<std::byte> message;
    std::size_t makes; // bytes
};

template<std::size_t Size>
std::vector<std::byte> bytes_of(const std::array<std::byte, Size>& message)
{
    return {message.begin(), message.end()};
}

std::vector<question> questions(std::uint32_t device)
{
    std::vector<question> all;
    const auto io = [&](const char* what, rnbd::operation o, std::uint32_t bytes, std::size_t makes) {
        rnbd::io_request m;
        m.device = device;
        m.operation = o;
        m.bytes = bytes;
        all.push_back({what, bytes_of(encode(m)), makes});
    };
    io("flush", rnbd::operation::flush, 0, 0);
    io("discard", rnbd::operation::discard, 4096, 0);
    io("write zeroes", rnbd::operation::write_zeroes, 4096, 0);
    io("write", rnbd::operation::write, 512, 0);
    io("read of nothing", rnbd::operation::read, 0, 0);
    io("short read", rnbd::operation::read, 512, 512);
    io("read of too much", rnbd::operation::read, room + 512, 0);
    io("no operation", rnbd::operation(9), 512, 0);
    all.push_back({"open", bytes_of(encode(rnbd::open_request{rnbd::access_mode::read_write, "disk"})),
                   rnbd::open_response_size});
    all.push_back(
        {"open of none", bytes_of(encode(rnbd::open_request{rnbd::access_mode::read_only, "none"})), 0});
    all.push_back({"session info",
                   bytes_of(rnbd::encode_session_info(rnbd::message::session_info, rnbd::protocol_major)),
                   rnbd::session_info_size});
    all.push_back({"no message", std::vector<std::byte>(40, std::byte(9)), 0});
    all.push_back({"close", bytes_of(rnbd::encode_close(device)), 0});
    return all;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_session_finds_nothing_of_others_in_its_chunks)
{
    fixture f;
    test::leave_marks(*f.pool);
    f.run([&]() -> task<void> {
        by_hand peer(*f.device);
        co_await f.set_up(peer);
        const std::uint32_t device = co_await f.open(peer);
        // The data of this write never came.
        rnbd::io_request io;
        io.device = device;
        io.operation = rnbd::operation::write;
        io.bytes = 4096;
        rtrs::io_header write;
        write.is_write = true;
        const auto message = encode(io);
        const unsigned stored = co_await f.send(peer, write, message, {}, 4096);
        BOOST_TEST(stored == 0u);
        std::vector<std::byte> on_disk(1 << 20, test::mark);
        BOOST_REQUIRE(co_await f.disk->read(0, on_disk));
        // The client's own: its chunk still has what it was told of the device, with the disk's drawn run.
        const auto run = std::bit_cast<std::array<std::byte, 8>>(f.disk->properties().run);
        BOOST_TEST(test::marks_in(on_disk) == test::marks_in(run));
        for (const question& q : questions(device)) {
            (void)co_await f.ask(peer, q.message);
            BOOST_TEST_CONTEXT(q.what) { BOOST_TEST(test::marks_in(peer.read_into()) < 4u); }
        }
    });
}

// Nor is it sent what it has left there itself: no byte of a sink is written but by an operation that makes it.
BOOST_AUTO_TEST_CASE(an_answer_holds_what_the_operation_made_and_no_more)
{
    fixture f;
    f.run([&]() -> task<void> {
        by_hand peer(*f.device);
        co_await f.set_up(peer);
        const std::uint32_t device = co_await f.open(peer);
        const std::vector<std::byte> data(room, own);
        for (const question& q : questions(device)) {
            constexpr std::byte untouched{0x5a};
            std::ranges::fill(peer.read_into(), untouched);
            const unsigned answer = co_await f.ask(peer, q.message, data);
            BOOST_TEST_CONTEXT(q.what << ", answered " << answer)
            {
                const auto got = std::as_const(peer).read_into();
                // Of what an open tells, the disk's run is drawn, and may have that byte.
                const auto run = std::bit_cast<std::array<std::byte, 8>>(f.disk->properties().run);
                const bool tells_run = q.makes == rnbd::open_response_size;
                BOOST_TEST(std::ranges::count(got, own) == (tells_run ? std::ranges::count(run, own) : 0));
                BOOST_TEST(
                    std::ranges::all_of(got.subspan(q.makes), [](std::byte b) { return b == untouched; }));
                if (q.makes != 0)
                    BOOST_TEST(answer == 0u);
            }
        }
    });
    BOOST_TEST(f.stats.read_bytes.value() == 2 * rnbd::open_response_size + rnbd::session_info_size + 512);
}

// By a service of somebody else, which has filled all of its answer before it finds that it can't be had.
BOOST_AUTO_TEST_CASE(what_a_service_makes_for_a_request_that_fails_stays_here)
{
    struct failing final : rtrs::service, rtrs::session_handler {
        explicit failing(bool& f) : fails(f) {}
        result<std::unique_ptr<rtrs::session_handler>> open(const rtrs::session_info&) override
        {
            return std::unique_ptr<rtrs::session_handler>(std::make_unique<failing>(fails));
        }
        task<result<void>> serve(rtrs::request& r) override
        {
            std::ranges::fill(r.data(), own);
            r.produce(r.data().size() + 1); // more than there is counts as all
            if (fails)
                co_return error::from_errno(EIO, "after all");
            co_return result<void>();
        }
        bool& fails;
    };
    fixture f;
    bool fails = true;
    failing service(fails);
    f.serve_by(service);
    f.run([&]() -> task<void> {
        by_hand peer(*f.device);
        co_await f.set_up(peer);
        const std::vector<std::byte> message(8);
        constexpr std::byte untouched{0x5a};
        std::ranges::fill(peer.read_into(), untouched);
        const unsigned refused = co_await f.ask(peer, message);
        BOOST_TEST(refused == unsigned(EIO));
        BOOST_TEST(std::ranges::count(peer.read_into(), untouched) == std::ssize(peer.read_into()));
        fails = false;
        const unsigned served = co_await f.ask(peer, message);
        BOOST_TEST(served == 0u);
        BOOST_TEST(std::ranges::count(peer.read_into(), own) == room);
    });
}

namespace {

// A service whose answers fail, or are short, when its buffer is full already. What a WRITE finds in its chunk it looks at.
struct leaving final : rtrs::service, rtrs::session_handler {
    struct state {
        bool fails = false;
        std::size_t makes = 0;
        std::size_t found = 0; // bytes of its own
    };
    explicit leaving(state& s) : now(s) {}
    result<std::unique_ptr<rtrs::session_handler>> open(const rtrs::session_info&) override
    {
        return std::unique_ptr<rtrs::session_handler>(std::make_unique<leaving>(now));
    }
    task<result<void>> serve(rtrs::request& r) override
    {
        if (r.is_write()) {
            now.found = std::size_t(std::ranges::count(r.data(), own));
            co_return result<void>();
        }
        std::ranges::fill(r.data(), own);
        r.produce(now.makes);
        if (now.fails)
            co_return error::from_errno(EIO, "after all");
        co_return result<void>();
    }
    state& now;
};

} // namespace

// By a write without data, which the chunk's old contents would be taken for: on a device it could be read.
BOOST_DATA_TEST_CASE(nothing_that_was_not_sent_stays_in_a_chunk, boost::unit_test::data::make({false, true}),
                     new_keys)
{
    fixture f;
    leaving::state now;
    leaving service(now);
    f.options.always_invalidate = new_keys;
    f.options.chunk_size = 1 << 20;
    f.serve_by(service);
    f.run([&]() -> task<void> {
        by_hand peer(*f.device);
        co_await f.set_up(peer);
        rtrs::descriptor c = peer.chunks().front();
        // As send(), into a chunk whose key changes; the sink is only the answer's first part.
        const auto request = [&](rtrs::io_header h, std::uint32_t size) -> task<unsigned> {
            const std::vector<std::byte> user(8);
            h.user_size = std::uint16_t(user.size());
            peer.write(c.address + size, c.key, written(user, h),
                       rtrs::request_layout(16).immediate(0, size + h.user_size));
            const std::size_t before = peer.immediates.size();
            co_await sleep_for(5ms);
            BOOST_REQUIRE(peer.immediates.size() == before + 1);
            if (new_keys)
                c.key = peer.keys.back().key;
            peer.post_receive();
            co_return rtrs::decode_response(peer.immediates.back()).error;
        };
        const auto found_after = [&](bool fails, std::size_t makes) -> task<std::size_t> {
            now = {fails, makes, 0};
            rtrs::io_header read;
            read.sink = co_await peer.sink(16384);
            const unsigned answer = co_await request(read, 16384);
            BOOST_TEST(answer == (fails ? unsigned(EIO) : 0u));
            rtrs::io_header write;
            write.is_write = true;
            const unsigned stored = co_await request(write, 16384);
            BOOST_TEST(stored == 0u);
            co_return now.found;
        };
        std::size_t found = co_await found_after(true, 16384);
        BOOST_TEST(found == 0u);
        found = co_await found_after(true, 100);
        BOOST_TEST(found == 0u);
        found = co_await found_after(false, 100);
        BOOST_TEST(found == 100u); // which the client has
        found = co_await found_after(false, 0);
        BOOST_TEST(found == 0u);
    });
}

// It takes turns of the shard, in which others are served, and ends early if the path ends.
BOOST_AUTO_TEST_CASE(the_shard_serves_others_while_it_clears_a_sessions_memory)
{
    constexpr std::size_t chunks = std::size_t(512) << 17;
    fixture f;
    f.options.queue_depth = 512;
    f.options.chunk_size = 1 << 17;
    test::leave_marks(*f.pool, buffer_pool::max_size);
    f.run([&]() -> task<void> {
        by_hand peer(*f.device);
        const std::uint64_t turns = f.shard->stats().turns;
        co_await f.set_up(peer);
        BOOST_TEST(f.shard->stats().turns - turns > chunks >> 19); // no more than 512 KiB in a turn
        // All that was cleared for those that leave comes back.
        const std::size_t held = f.pool->outstanding_bytes();
        for (unsigned session = 2; session < 10; ++session) {
            by_hand leaves(*f.device);
            rtrs::connect_request m;
            m.connections = 1;
            m.path = id_of(100 + session);
            m.session = id_of(session);
            m.first = true;
            BOOST_REQUIRE(co_await leaves.connect("server", m));
            const auto name = rtrs::encode_info_request("leaves" + std::to_string(session));
            leaves.send(name);
            for (unsigned i = 0; i < 8 * session; ++i)
                co_await yield();
            leaves.pair->disconnect();
            const std::uint64_t left = f.shard->stats().turns;
            co_await sleep_for(20ms);
            BOOST_TEST(f.shard->stats().turns - left < chunks >> 20); // some, and not those of all the memory
            BOOST_TEST(leaves.messages == 0u);
        }
        BOOST_TEST(f.pool->outstanding_bytes() == held);
    });
}

// What verbenad tells its user at its start: so many clients get in, and one more does not.
BOOST_AUTO_TEST_CASE(so_many_sessions_get_in_as_there_is_said_to_be_memory_for)
{
    struct sizes {
        std::uint16_t depth;
        std::uint32_t chunk;
        std::size_t mib;
        std::size_t promised;
        std::size_t get_in;
    };
    for (const sizes& z :
         {sizes{512, 1 << 17, 512, 7, 7}, sizes{512, 1 << 17, 64, 0, 0}, sizes{512, 1 << 17, 65, 0, 0},
          sizes{512, 1 << 17, 67, 1, 1}, sizes{64, 1 << 17, 64, 7, 7}, sizes{500, 8192, 64, 13, 14},
          sizes{16, 8192, 8, 27, 38}}) {
        fixture f(z.mib << 20);
        f.options.queue_depth = z.depth;
        f.options.chunk_size = z.chunk;
        f.options.max_sessions = f.options.max_unfinished = 1000;
        f.options.heartbeat = 24h; // which nobody answers
        const auto memory = rtrs::memory_of_sessions(f.options, f.budget, 1);
        const std::size_t promised = memory.count(f.budget.limit());
        f.run([&]() -> task<void> {
            std::vector<std::unique_ptr<loop::context>> hosts;
            std::vector<std::unique_ptr<by_hand>> peers;
            std::size_t in = 0;
            for (unsigned session = 1; peers.size() == in && in < 200; ++session) {
                loop::options own_address;
                own_address.name = "host" + std::to_string(session);
                hosts.push_back(f.fabric->make_context(own_address));
                peers.push_back(std::make_unique<by_hand>(*hosts.back()));
                rtrs::connect_request m;
                m.connections = 1;
                m.path = id_of(session);
                m.session = id_of(session);
                m.first = true;
                const auto connected = co_await peers.back()->connect("server", m);
                if (!connected)
                    break;
                const auto name = rtrs::encode_info_request("client" + std::to_string(session));
                peers.back()->send(name);
                co_await sleep_for(buffer_pool::call_patience + 1s);
                in += peers.back()->messages;
            }
            BOOST_TEST_CONTEXT(z.mib << " MiB, " << z.depth << " times " << z.chunk)
            {
                BOOST_TEST(promised == z.promised);
                BOOST_TEST(in == z.get_in);
            }
            for (const auto& p : peers) {
                if (p->pair && !p->ended)
                    p->pair->disconnect();
            }
            co_await sleep_for(100ms);
        });
    }
}

// Wherever they live: other shards keep memory that nobody uses.
BOOST_AUTO_TEST_CASE(memory_that_other_shards_keep_is_not_promised)
{
    rtrs::server_options o;
    const memory_budget one(std::size_t(512) << 20, 1);
    const memory_budget three(std::size_t(512) << 20, 3);
    BOOST_TEST(rtrs::memory_of_sessions(o, one, 1).count(one.limit()) == 7u);
    const auto memory = rtrs::memory_of_sessions(o, three, 3);
    BOOST_TEST(memory.kept >= 2 * three.max_kept());
    BOOST_TEST(memory.count(three.limit()) == 6u);
    BOOST_TEST(memory.count(0) == 0u);
}

// What lies around a session's memory is counted for shards that have one.
BOOST_AUTO_TEST_CASE(what_no_session_takes_is_not_counted)
{
    rtrs::session_memory m;
    m.each = 100;
    m.beside = 10;
    m.kept = 30;
    m.shards = 4;
    BOOST_TEST(m.first() == 110u);
    const std::pair<std::size_t, std::size_t> counts[] = {{139, 0}, {140, 1}, {249, 1}, {250, 2}, {469, 3},
                                                          {470, 4}, {569, 4}, {570, 5}, {670, 6}};
    for (const auto& [free, sessions] : counts)
        BOOST_TEST_CONTEXT(free << " bytes") { BOOST_TEST(m.count(free) == sessions); }
    // Eight shards on 72 MiB: the first session gets in, and needs room on one of them.
    const rtrs::server_options o;
    const memory_budget eight(std::size_t(72) << 20, 8);
    const auto first = rtrs::memory_of_sessions(o, eight, 8);
    BOOST_TEST(first.first() == rtrs::memory_of_sessions(o, eight, 1).first());
    BOOST_TEST(first.first() <= eight.limit());
}

BOOST_AUTO_TEST_SUITE_END()
