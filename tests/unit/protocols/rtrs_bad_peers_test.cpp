// SPDX-License-Identifier: Apache-2.0
// Clients of RTRS that break the protocol, made by hand, beside one that keeps to it: theirs ends, with a reason, and nobody else notices.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "rnbd_world.hpp"
#include "rtrs_by_hand.hpp"

#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include <cerrno>
#include <functional>
#include <memory>
#include <vector>

BOOST_AUTO_TEST_SUITE(rtrs_bad_peers_test)

using namespace verbena;
using namespace std::chrono_literals;
using namespace verbena::rnbd_test;
using rtrs::path_end;

namespace {

struct fixture : rnbd_test::world {
    explicit fixture(const loop::options& devices = {}, const loop::fabric_options& conditions = {})
        : rnbd_test::world(conditions, devices)
    {
        good_device = fabric->make_context(profile);
        bad_device = fabric->make_context(profile);
        listener = std::move(*server_device->listen("server"));
        add("disk", *disk);
        options.queue_depth = 8;
        options.chunk_size = 16384;
        options.max_sessions = 3;
        options.max_paths = 2;
    }
    // What `body` does while a good client writes and reads; afterwards that client has seen nothing of it.
    void run(const std::function<task<void>()>& body)
    {
        serving = make_server();
        run_until_complete(*shard, whole(body));
        serving.reset();
        nothing_is_left();
        BOOST_TEST(lost_paths() == 0u);
        BOOST_TEST(client_stats.failed.value() == 0u);
    }
    task<void> whole(const std::function<task<void>()>& body)
    {
        scope s(*shard);
        s.spawn([&] { return serving->serve(*server_device, *listener); });
        rtrs::client_options o;
        o.session = "good";
        rtrs::client session(*shard, *pool, std::move(o), client_stats);
        BOOST_REQUIRE(co_await session.add_path(*good_device, "server"));
        bool over = false;
        s.spawn([&]() -> task<void> {
            rnbd::client client(session);
            auto d = co_await client.open("disk", rnbd::access_mode::read_write);
            BOOST_REQUIRE(d);
            std::vector<std::byte> bytes(4096);
            while (!over) {
                BOOST_TEST((co_await (*d)->write(0, bytes)).has_value());
                BOOST_TEST((co_await (*d)->read(0, bytes)).has_value());
                co_await sleep_for(10ms);
            }
            BOOST_TEST((co_await client.close(std::move(*d))).has_value());
            co_await session.close();
        });
        co_await body();
        over = true;
        co_await sleep_for(50ms);
        listener->close();
        co_await s.join();
    }
    rtrs::connect_request request(unsigned session, std::uint16_t number = 0, std::uint16_t of = 1)
    {
        rtrs::connect_request m;
        m.connection = number;
        m.connections = of;
        m.path = id_of(100 + session);
        m.session = id_of(session);
        m.first = true;
        return m;
    }
    // A path of one connection that has said its name.
    task<void> set_up(by_hand& peer, unsigned session)
    {
        BOOST_REQUIRE(co_await peer.connect("server", request(session)));
        peer.send(rtrs::encode_info_request("bad" + std::to_string(session)));
        while (peer.messages == 0)
            co_await sleep_for(1ms);
        BOOST_REQUIRE(!peer.chunks().empty());
    }
    std::uint64_t refused(rtrs::refusal r) const { return stats.refused[std::size_t(r)].value(); }
    std::uint64_t refused() const
    {
        std::uint64_t all = 0;
        for (const counter& c : stats.refused)
            all += c.value();
        return all;
    }

    std::unique_ptr<loop::context> good_device;
    std::unique_ptr<loop::context> bad_device;
    std::unique_ptr<verbs::listener> listener;
    std::unique_ptr<storage::block_backend> disk = rnbd_test::ram_disk(1 << 20);
    std::unique_ptr<rtrs::server> serving;
};

} // namespace

BOOST_AUTO_TEST_CASE(connections_that_are_none)
{
    fixture f;
    f.run([&]() -> task<void> {
        const auto refused = [&](rtrs::connect_request m) -> task<unsigned> {
            by_hand peer(*f.bad_device);
            const auto connected = co_await peer.connect("server", m);
            BOOST_TEST(!connected);
            co_return peer.told.error;
        };
        BOOST_TEST(co_await refused(f.request(1, 1, 2)) == unsigned(EINVAL)); // the second before the first
        rtrs::connect_request joins = f.request(1);
        joins.first = false;
        BOOST_TEST(co_await refused(joins) == unsigned(ENXIO)); // a session that nobody began
        BOOST_TEST(co_await refused(f.request(1, 0, 4096)) == unsigned(EINVAL)); // more than the server takes

        by_hand first(*f.bad_device);
        BOOST_REQUIRE(co_await first.connect("server", f.request(1, 0, 3)));
        BOOST_TEST(co_await refused(f.request(1, 0, 3)) == unsigned(EINVAL)); // once more
        BOOST_TEST(co_await refused(f.request(1, 2, 3)) == unsigned(EINVAL)); // out of order
        BOOST_TEST(co_await refused(f.request(1, 1, 4)) == unsigned(EINVAL)); // of another number
        by_hand other(*f.bad_device);
        BOOST_REQUIRE(co_await other.connect("server", f.request(2)));
        BOOST_TEST(co_await refused(f.request(3)) == unsigned(ENOSPC)); // sessions
        // Neither says its name.
        co_await sleep_for(f.options.set_up + 1s);
        BOOST_TEST(first.ended);
        BOOST_TEST(other.ended);
        BOOST_TEST(f.ends(path_end::unfinished) == 2u);
    });
    BOOST_TEST(f.refused() == 7u);
    BOOST_TEST(f.refused(rtrs::refusal::not_valid) == 5u);
    BOOST_TEST(f.refused(rtrs::refusal::no_session) == 1u);
    BOOST_TEST(f.refused(rtrs::refusal::full) == 1u);
}

BOOST_AUTO_TEST_CASE(who_finishes_no_path_leaves_place_for_others)
{
    fixture f;
    f.options.max_sessions = 6;
    f.options.max_unfinished = 2;
    loop::options other_address;
    other_address.name = "elsewhere";
    const auto other_device = f.fabric->make_context(other_address);
    f.run([&]() -> task<void> {
        std::vector<std::unique_ptr<by_hand>> peers;
        const auto connect = [&](loop::context& d, unsigned session, std::uint16_t number = 0,
                                 std::uint16_t of = 1) -> task<unsigned> {
            peers.push_back(std::make_unique<by_hand>(d));
            const auto made = co_await peers.back()->connect("server", f.request(session, number, of));
            co_return made ? 0 : peers.back()->told.error;
        };
        BOOST_TEST(co_await connect(*f.bad_device, 1, 0, 2) == 0u);
        BOOST_TEST(co_await connect(*f.bad_device, 2, 0, 2) == 0u);
        BOOST_TEST(co_await connect(*f.bad_device, 3) == unsigned(EAGAIN));
        BOOST_TEST(co_await connect(*f.bad_device, 1, 1, 2) == 0u); // no path that is new
        BOOST_TEST(f.stats.sessions.value() == 3);
        // Others have their places, and what they finish does not count.
        for (unsigned session = 10; session < 13; ++session) {
            peers.push_back(std::make_unique<by_hand>(*other_device));
            co_await f.set_up(*peers.back(), session);
        }
        BOOST_TEST(f.refused(rtrs::refusal::unfinished) == 1u);
        BOOST_TEST(f.refused() == 1u);
        // What one finishes, gives up or has no time for any more gives it its place back.
        peers.resize(4);
        peers[0]->send(rtrs::encode_info_request("bad1"));
        co_await sleep_for(10ms);
        BOOST_TEST(peers[0]->messages == 1u);
        BOOST_TEST(co_await connect(*f.bad_device, 4) == 0u);
        BOOST_TEST(co_await connect(*f.bad_device, 5) == unsigned(EAGAIN));
        peers[4].reset();
        co_await sleep_for(10ms);
        BOOST_TEST(co_await connect(*f.bad_device, 6) == 0u);
        BOOST_TEST(co_await connect(*f.bad_device, 7) == unsigned(EAGAIN));
        co_await sleep_for(f.options.set_up + 1s);
        BOOST_TEST(f.ends(path_end::unfinished) == 2u);
        BOOST_TEST(co_await connect(*f.bad_device, 8) == 0u);
        BOOST_TEST(co_await connect(*f.bad_device, 9) == 0u);
    });
}

// Many clients of one host that begin at once are no bad peers: who finds no place comes again.
BOOST_AUTO_TEST_CASE(a_client_waits_until_others_of_its_host_have_finished)
{
    fixture f;
    f.options.max_unfinished = 1;
    f.run([&]() -> task<void> {
        auto other = std::make_unique<by_hand>(*f.bad_device);
        BOOST_REQUIRE(co_await other->connect("server", f.request(1, 0, 2)));
        rtrs::client_stats stats;
        rtrs::client_options o;
        o.session = "late";
        o.set_up = 2s;
        rtrs::client late(*f.shard, *f.pool, o, stats);
        const auto refused = co_await late.add_path(*f.bad_device, "server");
        BOOST_REQUIRE(!refused);
        BOOST_TEST((refused.error() == std::errc::connection_refused));
        BOOST_TEST(late.paths().empty());
        const auto tries = f.refused(rtrs::refusal::unfinished);
        BOOST_TEST(tries > 1u);

        scope s(*f.shard);
        bool added = false;
        s.spawn([&]() -> task<void> {
            const auto path = co_await late.add_path(*f.bad_device, "server");
            added = path.has_value();
        });
        co_await sleep_for(800ms);
        BOOST_TEST(!added);
        other.reset();
        co_await sleep_for(1s);
        BOOST_TEST(added);
        co_await s.join();
        co_await late.close();
    });
}

BOOST_AUTO_TEST_CASE(requests_that_are_none)
{
    fixture f;
    f.run([&]() -> task<void> {
        const rtrs::request_layout layout(8);
        unsigned session = 10;
        // Ends what sends it, whatever it is.
        const auto ends_it = [&](const char* what, const auto& act) -> task<void> {
            const std::uint64_t before = f.ends(path_end::bad_message);
            by_hand peer(*f.bad_device);
            co_await f.set_up(peer, ++session);
            act(peer);
            co_await sleep_for(20ms);
            BOOST_TEST_CONTEXT(what)
            {
                BOOST_TEST(peer.ended);
                BOOST_TEST(f.ends(path_end::bad_message) == before + 1);
            }
            peer.pair.reset();
            co_await sleep_for(5ms);
        };
        const std::vector<std::byte> user(32);
        rtrs::io_header write;
        write.is_write = true;
        write.user_size = 32;
        rtrs::io_header read;
        read.user_size = 32;
        const auto put = [](by_hand& p, std::size_t at, std::span<const std::byte> bytes,
                            std::uint32_t immediate) {
            const rtrs::descriptor c = p.chunks().front();
            p.write(c.address + at, c.key, bytes, immediate);
        };
        co_await ends_it("no such chunk", [&](by_hand& p) { put(p, 0, written(user, write), 0x0fffffff); });
        co_await ends_it("no header", [&](by_hand& p) { put(p, 0, user, layout.immediate(0, 0)); });
        co_await ends_it("a header beyond the chunk", [&](by_hand& p) {
            put(p, 16382, std::span(user).first(2), layout.immediate(0, 16382));
        });
        co_await ends_it("a service's header longer than what came", [&](by_hand& p) {
            rtrs::io_header h = write;
            h.user_size = 33;
            put(p, 0, written(user, h), layout.immediate(0, 32));
        });
        co_await ends_it("a sink larger than the room", [&](by_hand& p) {
            rtrs::io_header h = read;
            h.sink = rtrs::descriptor{0x1000, 1, 513};
            put(p, 512, written(user, h), layout.immediate(0, 512 + 32));
        });
        co_await ends_it("a sink of nothing", [&](by_hand& p) {
            rtrs::io_header h = read;
            h.sink = rtrs::descriptor{0x1000, 1, 0};
            put(p, 512, written(user, h), layout.immediate(0, 512 + 32));
        });
        co_await ends_it("a second Send", [&](by_hand& p) { p.send({}); });
        co_await ends_it("what servers say",
                         [&](by_hand& p) { p.write(0, 0, {}, rtrs::encode(rtrs::response{1, 0}, false)); });
        co_await ends_it("a type that is none", [&](by_hand& p) { p.write(0, 0, {}, 0x50000000); });
    });
}

BOOST_AUTO_TEST_CASE(before_its_time)
{
    fixture f;
    f.run([&]() -> task<void> {
        by_hand early(*f.bad_device);
        BOOST_REQUIRE(co_await early.connect("server", f.request(1)));
        early.write(0, 0, {}, rtrs::request_layout(8).immediate(0, 0));
        by_hand nameless(*f.bad_device);
        BOOST_REQUIRE(co_await nameless.connect("server", f.request(2)));
        nameless.send(rtrs::encode_info_request("a/b"));
        co_await sleep_for(20ms);
        BOOST_TEST(early.ended);
        BOOST_TEST(nameless.ended);
        by_hand half(*f.bad_device); // one connection of two, and the name already
        BOOST_REQUIRE(co_await half.connect("server", f.request(3, 0, 2)));
        half.send(rtrs::encode_info_request("half"));
        co_await sleep_for(20ms);
        BOOST_TEST(half.ended);
        BOOST_TEST(f.ends(path_end::bad_message) == 3u);
    });
}

BOOST_AUTO_TEST_CASE(what_is_written_beyond_the_chunks_ends_the_connection)
{
    fixture f;
    f.run([&]() -> task<void> {
        by_hand peer(*f.bad_device);
        co_await f.set_up(peer, 1);
        const rtrs::descriptor last = peer.chunks().back();
        peer.write(last.address + last.length - 4, last.key, std::vector<std::byte>(8), 0);
        co_await sleep_for(20ms);
        BOOST_TEST(peer.ended);
        BOOST_TEST(f.ends(path_end::lost) == 1u);
        // Nor is another session's key good for anything.
        by_hand first(*f.bad_device);
        by_hand second(*f.bad_device);
        co_await f.set_up(first, 2);
        const rtrs::descriptor theirs = first.chunks().front();
        first.write(theirs.address, theirs.key, std::vector<std::byte>(8),
                    rtrs::make_immediate(rtrs::immediate_type::heartbeat));
        co_await sleep_for(20ms);
        BOOST_TEST(!first.ended);
        co_await f.set_up(second, 3);
        second.write(theirs.address, theirs.key, std::vector<std::byte>(8),
                     rtrs::make_immediate(rtrs::immediate_type::heartbeat));
        co_await sleep_for(20ms);
        BOOST_TEST(second.ended);
        BOOST_TEST(!first.ended);
    });
}

BOOST_AUTO_TEST_CASE(a_client_that_falls_silent)
{
    fixture f;
    f.run([&]() -> task<void> {
        by_hand peer(*f.bad_device);
        co_await f.set_up(peer, 1);
        co_await sleep_for(f.options.heartbeat * 2 + 1s);
        // It was asked once, and not again while the answer is out.
        BOOST_TEST(peer.immediates == std::vector<std::uint32_t>(1, 0x80000000),
                   boost::test_tools::per_element());
        BOOST_TEST(!peer.ended);
        co_await sleep_for(f.options.heartbeat * 6);
        BOOST_TEST(peer.ended);
        BOOST_TEST(f.ends(path_end::silent) == 1u);
        // The good client was heard of in every interval.
        f.stats.by_path.each([&](std::string_view session, std::string_view, const rtrs::path_counters& c) {
            BOOST_TEST_CONTEXT(session)
            {
                BOOST_TEST(c.missed_heartbeats.value() == (session == "bad1" ? f.options.misses + 1 : 0));
            }
        });
    });
}

// Its answers can't leave: it takes one place in the send queue, and not one for each heartbeat.
BOOST_AUTO_TEST_CASE(a_client_that_sends_heartbeats_and_reads_nothing)
{
    loop::fabric_options patient;
    patient.conditions.receiver_not_ready_retries = 1'000'000;
    fixture f({}, patient);
    f.run([&]() -> task<void> {
        by_hand peer(*f.bad_device);
        peer.receives = 1; // for what it is told of the chunks
        co_await f.set_up(peer, 1);
        const rtrs::descriptor chunk = peer.chunks().front();
        for (int i = 0; i < 2000; ++i) {
            peer.write(chunk.address, chunk.key, {}, rtrs::make_immediate(rtrs::immediate_type::heartbeat));
            if (i % 16 == 15)
                co_await sleep_for(1ms);
        }
        BOOST_TEST(!peer.ended);
        BOOST_TEST(peer.immediates.empty());
        for (int i = 0; i < 64; ++i)
            peer.post_receive();
        co_await sleep_for(10ms);
        // One for the first heartbeat, one for all that came before that one had left.
        const std::uint32_t answer = rtrs::make_immediate(rtrs::immediate_type::heartbeat_reply);
        BOOST_TEST(peer.immediates == std::vector<std::uint32_t>(2, answer),
                   boost::test_tools::per_element());
        for (unsigned n = 3; n <= 5; ++n) {
            peer.write(chunk.address, chunk.key, {}, rtrs::make_immediate(rtrs::immediate_type::heartbeat));
            co_await sleep_for(10ms);
            BOOST_TEST(peer.immediates.size() == n);
        }
        BOOST_TEST(!peer.ended);
    });
}

BOOST_AUTO_TEST_CASE(operations_that_lie_fail_and_tell_nothing)
{
    fixture f;
    f.run([&]() -> task<void> {
        by_hand peer(*f.bad_device);
        co_await f.set_up(peer, 1);
        const rtrs::request_layout layout(8);
        const rtrs::descriptor c = peer.chunks().front();
        // `data` bytes lie in front of what the service gets. Yields the errno.
        const auto ask = [&](rtrs::io_header h, std::span<const std::byte> message,
                             std::span<const std::byte> data) -> task<unsigned> {
            h.user_size = std::uint16_t(message.size());
            std::vector<std::byte> all(data.begin(), data.end());
            const auto rest = written(message, h);
            all.insert(all.end(), rest.begin(), rest.end());
            const std::size_t before = peer.immediates.size();
            peer.write(c.address, c.key, all,
                       layout.immediate(0, std::uint32_t(data.size() + message.size())));
            co_await sleep_for(5ms);
            BOOST_REQUIRE(peer.immediates.size() == before + 1);
            co_return rtrs::decode_response(peer.immediates.back()).error;
        };
        rtrs::io_header read;
        read.sink = co_await peer.sink(1024);
        rtrs::io_header write;
        write.is_write = true;
        const std::vector<std::byte> secret(1024, std::byte(0x5a));
        const auto open = encode(rnbd::open_request{rnbd::access_mode::read_only, "disk"});
        BOOST_TEST(co_await ask(read, open, secret) == 0u);
        const auto told = rnbd::decode_open_response(peer.read_into());
        BOOST_REQUIRE(told);
        // What the answer does not fill is not what stood there.
        BOOST_TEST((std::ranges::all_of(peer.read_into().subspan(56, 968),
                                        [](std::byte b) { return b == std::byte(0); })));

        rnbd::io_request io;
        io.device = told->device;
        io.bytes = 512;
        BOOST_TEST(co_await ask(read, encode(io), secret) == 0u);
        BOOST_TEST((std::ranges::all_of(peer.read_into().first(1024),
                                        [](std::byte b) { return b == std::byte(0); })));
        io.bytes = 1536; // more than there is room for
        BOOST_TEST(co_await ask(read, encode(io), secret) == unsigned(EINVAL));
        io.bytes = 512;
        io.sector = told->sectors;
        BOOST_TEST(co_await ask(read, encode(io), secret) == unsigned(EINVAL));
        io.sector = UINT64_MAX;
        BOOST_TEST(co_await ask(read, encode(io), secret) == unsigned(EINVAL));
        io.sector = 0;
        io.operation = rnbd::operation::write; // of what was opened to read
        BOOST_TEST(co_await ask(write, encode(io), secret) == unsigned(EROFS));
        io.operation = rnbd::operation(9);
        BOOST_TEST(co_await ask(read, encode(io), secret) == unsigned(EROFS));
        io.operation = rnbd::operation::read;
        io.device = 1;
        BOOST_TEST(co_await ask(read, encode(io), secret) == unsigned(ENOTCONN));
        BOOST_TEST(co_await ask(write, rnbd::encode_close(77), {}) == 0u); // as kernels have it
        BOOST_TEST(co_await ask(write, open, secret) == unsigned(EINVAL)); // no room for the answer
        BOOST_TEST(co_await ask(write, secret, {}) == unsigned(EINVAL));   // no message that there is
        BOOST_TEST(!peer.ended);
    });
}

// A client opens one device after the other: as many as a session may have, and then no more. Once more what it has counts for nothing.
BOOST_AUTO_TEST_CASE(opens_without_end)
{
    constexpr unsigned most = rnbd::server::max_open_devices, over = 9;
    fixture f;
    for (unsigned i = 0; i < most + over; ++i)
        f.add(("disk" + std::to_string(i)).c_str(), *f.disk);
    f.run([&]() -> task<void> {
        by_hand peer(*f.bad_device);
        co_await f.set_up(peer, 1);
        const rtrs::descriptor c = peer.chunks().front();
        rtrs::io_header h;
        const std::uint32_t room = rnbd::open_response_size;
        h.sink = co_await peer.sink(room);
        for (unsigned i = 0; i <= most + over; ++i) {
            const std::string name = "disk" + std::to_string(i % (most + over));
            const auto open = encode(rnbd::open_request{rnbd::access_mode::read_only, name});
            h.user_size = std::uint16_t(open.size());
            peer.write(c.address + room, c.key, written(open, h),
                       rtrs::request_layout(8).immediate(0, room + h.user_size));
            while (peer.immediates.size() == i)
                co_await sleep_for(1ms);
            peer.post_receive();
            const unsigned answer = rtrs::decode_response(peer.immediates[i]).error;
            BOOST_TEST(answer == (i < most || i == most + over ? 0u : unsigned(EMFILE)));
        }
        const auto open = [&f] {
            unsigned all = 0;
            for (std::size_t i = 0; i < f.devices.size(); ++i)
                all += f.devices.users_of(i).readers;
            return all;
        };
        BOOST_TEST(open() == most);
        BOOST_TEST(!peer.ended);
        peer.pair->disconnect();
        co_await sleep_for(50ms);
        BOOST_TEST(open() == 0u);
    });
    BOOST_TEST(f.device_stats.refused_too_many.value() == over);
}

// A client asks, and has no receive for the answers. Its path ends; the server keeps nothing for it.
BOOST_AUTO_TEST_CASE(answers_that_find_no_receive)
{
    fixture f;
    f.run([&]() -> task<void> {
        by_hand peer(*f.bad_device);
        peer.receives = 1; // for what INFO is answered with
        co_await f.set_up(peer, 1);
        const rtrs::descriptor c = peer.chunks().front();
        rtrs::io_header h;
        h.is_write = true;
        const auto close = rnbd::encode_close(77);
        h.user_size = std::uint16_t(close.size());
        for (unsigned i = 0; i < 8; ++i)
            peer.write(c.address, c.key, written(close, h),
                       rtrs::request_layout(8).immediate(0, h.user_size));
        co_await sleep_for(f.options.heartbeat * (f.options.misses + 3));
        BOOST_TEST(peer.ended);
        BOOST_TEST(peer.immediates.empty());
        BOOST_TEST(f.stats.sessions.value() == 1); // the good one's
    });
    BOOST_TEST(f.ends(path_end::lost) == 1u);
}

// A client connects, says its name and goes, over and over: each time all of it is given back.
BOOST_AUTO_TEST_CASE(connects_without_end)
{
    fixture f;
    f.run([&]() -> task<void> {
        const std::size_t buffers = f.pool->outstanding(), grants = f.server_device->grants();
        for (unsigned i = 0; i < 300; ++i) {
            by_hand peer(*f.bad_device);
            co_await f.set_up(peer, 1);
            if (i % 3 == 0)
                peer.pair->disconnect();
            peer.pair.reset();
            co_await sleep_for(20ms);
        }
        BOOST_TEST(f.stats.sessions.value() == 1);
        BOOST_TEST(f.pool->outstanding() == buffers);
        BOOST_TEST(f.server_device->grants() == grants);
    });
    BOOST_TEST(f.refused() == 0u);
}

BOOST_AUTO_TEST_CASE(writes_of_more_than_came)
{
    fixture f;
    const auto other = rnbd_test::ram_disk(1 << 20);
    f.add("other", *other);
    f.run([&]() -> task<void> {
        rtrs::client_options o;
        o.session = "bad";
        rtrs::client_stats stats;
        rtrs::client session(*f.shard, *f.pool, std::move(o), stats);
        BOOST_REQUIRE(co_await session.add_path(*f.bad_device, "server"));
        rnbd::client client(session);
        auto d = co_await client.open("other", rnbd::access_mode::read_write);
        BOOST_REQUIRE(d);
        rnbd::io_request io;
        io.operation = rnbd::operation::write;
        io.bytes = 1024;
        const auto message = encode(io);
        const std::vector<std::byte> half(512, std::byte(1));
        const auto written_it = co_await session.write(message, half);
        BOOST_TEST((written_it.error() == std::errc::invalid_argument));
        std::vector<std::byte> in(1024);
        BOOST_REQUIRE(co_await (*d)->read(0, in));
        BOOST_TEST((std::ranges::all_of(in, [](std::byte b) { return b == std::byte(0); })));
        // In a request that waits for data there are none to write.
        const auto no_data = co_await session.read(message, in);
        BOOST_TEST((no_data.error() == std::errc::invalid_argument));
        BOOST_TEST((co_await client.close(std::move(*d))).has_value());
        co_await session.close();
    });
}

namespace {

// Opens the device "stuck" by the chunk `c`, which has its next key then. Yields the device's number.
task<std::uint32_t> open_stuck(by_hand& peer, rtrs::descriptor& c)
{
    const auto open = encode(rnbd::open_request{rnbd::access_mode::read_write, "stuck"});
    rtrs::io_header h;
    h.user_size = std::uint16_t(open.size());
    const std::uint32_t room = rnbd::open_response_size;
    h.sink = co_await peer.sink(room);
    peer.write(c.address + room, c.key, written(open, h),
               rtrs::request_layout(8).immediate(0, room + h.user_size));
    co_await sleep_for(20ms);
    BOOST_REQUIRE(peer.immediates.size() == 1u);
    BOOST_TEST(rtrs::decode_response(peer.immediates[0]).error == 0);
    const auto told = rnbd::decode_open_response(peer.read_into());
    BOOST_REQUIRE(told);
    BOOST_TEST(told->sectors == 2048u);
    if (peer.told.new_keys) {
        BOOST_REQUIRE(peer.keys.size() == 1u);
        BOOST_TEST(peer.keys[0].chunk == 0u);
        BOOST_TEST(peer.keys[0].key != c.key);
        c.key = peer.keys[0].key;
    }
    co_return told->device;
}

std::vector<std::byte> flush_of(std::uint32_t device)
{
    rnbd::io_request io;
    io.device = device;
    io.operation = rnbd::operation::flush;
    rtrs::io_header flush;
    flush.user_size = rnbd::io_size;
    return written(encode(io), flush);
}

} // namespace

BOOST_AUTO_TEST_CASE(a_request_into_a_chunk_whose_answer_has_not_come)
{
    stuck_disk stuck;
    fixture f;
    f.add("stuck", stuck);
    f.run([&]() -> task<void> {
        by_hand peer(*f.bad_device);
        co_await f.set_up(peer, 1);
        const rtrs::request_layout layout(8);
        rtrs::descriptor c = peer.chunks().front();
        const auto once = flush_of(co_await open_stuck(peer, c));
        peer.write(c.address, c.key, once, layout.immediate(0, rnbd::io_size));
        co_await sleep_for(20ms);
        BOOST_TEST(peer.immediates.size() == 1u); // it is under way
        BOOST_TEST(!peer.ended);
        peer.write(c.address, c.key, once, layout.immediate(0, rnbd::io_size));
        co_await sleep_for(20ms);
        BOOST_TEST(peer.ended);
        BOOST_TEST(f.ends(path_end::bad_message) == 0u); // not before what is under way has come to its end
        BOOST_TEST(f.stats.paths.value() == 2);
        stuck.over.set();
        co_await sleep_for(20ms);
        BOOST_TEST(f.ends(path_end::bad_message) == 1u);
        BOOST_TEST(f.stats.unanswered.value() == 1u);
        BOOST_TEST(f.stats.paths.value() == 1);
    });
}

// Whether a device takes keys away when it is told so, or in its turn.
void a_chunk_has_no_key_from_its_request_to_the_answer_by(bool at_once)
{
    loop::options devices;
    devices.profile.renews_at_once = at_once;
    stuck_disk stuck;
    fixture f(devices);
    f.options.always_invalidate = true;
    f.add("stuck", stuck);
    f.run([&]() -> task<void> {
        by_hand peer(*f.bad_device);
        co_await f.set_up(peer, 1);
        BOOST_TEST(peer.told.new_keys);
        const rtrs::request_layout layout(8);
        const std::vector<rtrs::descriptor> chunks = peer.chunks();
        BOOST_REQUIRE(chunks.size() == 8u); // each has a key of its own
        rtrs::descriptor c = chunks.front();
        const std::uint32_t device = co_await open_stuck(peer, c);
        rnbd::io_request io;
        io.device = device;
        io.operation = rnbd::operation::write;
        io.bytes = 512;
        rtrs::io_header write;
        write.is_write = true;
        write.user_size = rnbd::io_size;
        const auto request = written(encode(io), write);
        std::vector<std::byte> all(512, std::byte(0x11));
        all.insert(all.end(), request.begin(), request.end());
        peer.write(c.address, c.key, all, layout.immediate(0, 512 + rnbd::io_size));
        co_await sleep_for(20ms);
        BOOST_TEST(peer.immediates.size() == 1u); // it is under way
        BOOST_TEST(!peer.ended);
        peer.write(c.address, c.key, std::vector<std::byte>(8, std::byte(0xee)),
                   rtrs::make_immediate(rtrs::immediate_type::heartbeat));
        co_await sleep_for(20ms);
        BOOST_TEST(peer.ended);
        stuck.over.set();
        co_await sleep_for(20ms);
        BOOST_TEST((stuck.written == std::vector<std::byte>(512, std::byte(0x11))));
        BOOST_TEST(f.ends(path_end::lost) == 1u);
        BOOST_TEST(f.stats.unanswered.value() == 1u);
    });
}
BOOST_DATA_TEST_CASE(a_chunk_has_no_key_from_its_request_to_the_answer,
                     boost::unit_test::data::make({true, false}), at_once)
{
    a_chunk_has_no_key_from_its_request_to_the_answer_by(at_once);
}

// An immediate alone needs no key.
void a_request_without_a_key_by(bool at_once)
{
    loop::options devices;
    devices.profile.renews_at_once = at_once;
    stuck_disk stuck;
    fixture f(devices);
    f.options.always_invalidate = true;
    f.add("stuck", stuck);
    f.run([&]() -> task<void> {
        by_hand peer(*f.bad_device);
        co_await f.set_up(peer, 1);
        const rtrs::request_layout layout(8);
        rtrs::descriptor c = peer.chunks().front();
        const auto request = flush_of(co_await open_stuck(peer, c));
        const std::uint32_t immediate = layout.immediate(0, rnbd::io_size);
        peer.write(c.address, c.key, request, immediate);
        peer.write(0, 0, {}, immediate); // at once, while the key goes
        co_await sleep_for(20ms);
        BOOST_TEST(peer.ended);
        stuck.over.set();
        co_await sleep_for(20ms);
        BOOST_TEST(f.ends(path_end::bad_message) == 1u);
        BOOST_TEST(peer.immediates.size() == 1u);
    });
}
BOOST_DATA_TEST_CASE(a_request_without_a_key, boost::unit_test::data::make({true, false}), at_once)
{
    a_request_without_a_key_by(at_once);
}

BOOST_AUTO_TEST_SUITE_END()
