// SPDX-License-Identifier: Apache-2.0
// What one host may take of a server of RTRS: two that take all they can, admitted or not, keep nobody else out.
#include <boost/test/unit_test.hpp>

#include "../lines_of_log.hpp"
#include "../refusals_since.hpp"
#include "rnbd_world.hpp"
#include "rtrs_by_hand.hpp"

#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

BOOST_AUTO_TEST_SUITE(rtrs_shares_test)

using namespace verbena;
using namespace std::chrono_literals;
using rnbd_test::by_hand;
using rnbd_test::id_of;
using rtrs::path_end;

namespace {

constexpr std::size_t chunks = std::size_t(8) * 16384;
const std::size_t queues = [] {
    rtrs::server_options o;
    o.queue_depth = 8;
    return rtrs::memory_of_queues(o);
}();

struct fixture : rnbd_test::world {
    explicit fixture(const peer_options& share = {})
        : rnbd_test::world({}, {}, log_level::off, 64 << 20, share)
    {
        listener = std::move(*server_device->listen("server"));
        other_listener = std::move(*server_device->listen("server2"));
        options.queue_depth = 8;
        options.chunk_size = 16384;
        options.max_peer_connections = 64;
    }
    loop::context& host(const char* address)
    {
        loop::options o = profile;
        o.name = address;
        hosts.push_back(fabric->make_context(o));
        return *hosts.back();
    }
    void run(const std::function<task<void>()>& body)
    {
        serving = make_server();
        run_until_complete(*shard, whole(body));
        serving.reset();
        nothing_is_left();
        for (std::size_t i = 0; i < std::size_t(peer_use::count_); ++i)
            BOOST_TEST(peers.held(peer_use(i)) == 0u);
    }
    task<void> whole(const std::function<task<void>()>& body)
    {
        scope s(*shard);
        s.spawn([&] { return serving->serve(*server_device, *listener); });
        s.spawn([&] { return serving->serve(*server_device, *other_listener); });
        co_await body();
        tried.clear();
        co_await sleep_for(50ms);
        listener->close();
        other_listener->close();
        co_await s.join();
    }
    static rtrs::connect_request request(unsigned session, std::uint16_t number = 0, std::uint16_t of = 1,
                                         unsigned path = 0)
    {
        rtrs::connect_request m;
        m.connection = number;
        m.connections = of;
        m.path = id_of(path != 0 ? path : 100 + session);
        m.session = id_of(session);
        m.first = path == 0;
        return m;
    }
    // An errno, or 0. Whoever connected stays until tried.clear().
    task<unsigned> connect(loop::context& from, rtrs::connect_request m)
    {
        tried.push_back(std::make_unique<by_hand>(from));
        const auto made = co_await tried.back()->connect("server", m);
        const unsigned code = made ? 0 : tried.back()->told.error;
        if (!made)
            tried.pop_back();
        co_return code;
    }
    // Says its name. True: the path is connected.
    task<bool> say(by_hand& peer, std::string_view name)
    {
        peer.send(rtrs::encode_info_request(name));
        for (int i = 0; i < 50 && peer.messages == 0 && !peer.ended; ++i)
            co_await sleep_for(1ms);
        co_return peer.messages != 0;
    }
    rtrs::client_options named(const char* session) const
    {
        rtrs::client_options o;
        o.session = session;
        o.set_up = 1s;
        return o;
    }
    // A client that is admitted gets in, and its device works.
    task<void> works(loop::context& from, const char* session, const char* device)
    {
        rtrs::client client(*shard, *pool, named(session), client_stats);
        const auto path = co_await client.add_path(from, "server");
        BOOST_REQUIRE(path);
        rnbd::client blocks(client);
        auto d = co_await blocks.open(device, rnbd::access_mode::read_write);
        BOOST_REQUIRE(d);
        std::vector<std::byte> bytes(4096, std::byte(7));
        BOOST_REQUIRE(co_await (*d)->write(0, bytes));
        BOOST_REQUIRE(co_await (*d)->read(0, bytes));
        BOOST_REQUIRE(co_await blocks.close(std::move(*d)));
        co_await client.close();
    }
    // What is reserved of the budget and is no slab.
    std::size_t beside_slabs() const
    {
        std::ptrdiff_t slabs = 0;
        for (std::size_t kind = 0; kind < slab_kind_count; ++kind)
            slabs += budget.bytes(slab_kind(kind));
        return budget.used() - std::size_t(slabs);
    }
    std::uint64_t refused(rtrs::refusal r) const { return stats.refused[std::size_t(r)].value(); }
    const test::refusals_since refusals;

    std::vector<std::unique_ptr<loop::context>> hosts;
    std::unique_ptr<verbs::listener> listener, other_listener;
    std::unique_ptr<storage::block_backend> disk = rnbd_test::ram_disk(1 << 20);
    std::unique_ptr<storage::block_backend> other_disk = rnbd_test::ram_disk(1 << 20);
    std::unique_ptr<rtrs::server> serving;
    std::vector<std::unique_ptr<by_hand>> tried;
};

const char* const greedy[] = {"192.0.2.101", "2001:db8::101"};

} // namespace

BOOST_AUTO_TEST_CASE(half_made_sessions_of_two_hosts)
{
    fixture f;
    f.add("disk", *f.disk);
    f.options.max_sessions = 8;
    f.options.max_unfinished = 3;
    f.run([&]() -> task<void> {
        for (const char* address : greedy) {
            loop::context& from = f.host(address);
            const unsigned first = address == greedy[0] ? 1 : 11;
            for (unsigned i = 0; i < 3; ++i)
                BOOST_TEST(co_await f.connect(from, f.request(first + i, 0, 2)) == 0u);
            for (unsigned i = 3; i < 9; ++i)
                BOOST_TEST(co_await f.connect(from, f.request(first + i, 0, 2)) == unsigned(EAGAIN));
        }
        // The same host by another address of its own.
        BOOST_TEST(co_await f.connect(f.host("2001:db8::102"), f.request(21)) == unsigned(EAGAIN));
        BOOST_TEST(f.stats.sessions.value() == 6);
        BOOST_TEST(f.pool->outstanding_bytes() < chunks);
        co_await f.works(f.host("192.0.2.7"), "good", "disk");
    });
    BOOST_TEST(f.refused(rtrs::refusal::unfinished) == 13u);
    BOOST_TEST(f.refusals(refused::session_half_made) == 13u);
}

BOOST_AUTO_TEST_CASE(sessions_of_two_hosts)
{
    fixture f;
    f.add("disk", *f.disk);
    f.options.max_sessions = 6;
    f.options.max_peer_sessions = 2;
    f.run([&]() -> task<void> {
        for (const char* address : greedy) {
            loop::context& from = f.host(address);
            const unsigned first = address == greedy[0] ? 1 : 11;
            for (unsigned i = 0; i < 2; ++i) {
                BOOST_TEST(co_await f.connect(from, f.request(first + i)) == 0u);
                const std::string name = "greedy" + std::to_string(first + i);
                BOOST_TEST(co_await f.say(*f.tried.back(), name));
            }
            for (unsigned i = 2; i < 6; ++i)
                BOOST_TEST(co_await f.connect(from, f.request(first + i)) == unsigned(EDQUOT));
        }
        BOOST_TEST(f.stats.sessions.value() == 4);
        BOOST_TEST(f.peers.greatest(peer_use::rtrs_sessions) == 2u);
        BOOST_TEST(f.peers.held(peer_use::rtrs_half_made) == 0u);
        co_await f.works(f.host("192.0.2.7"), "good", "disk");
    });
    BOOST_TEST(f.refused(rtrs::refusal::share) == 8u);
    BOOST_TEST(f.refusals(refused::session_share) == 8u);
}

BOOST_AUTO_TEST_CASE(connections_of_two_hosts)
{
    fixture f;
    f.add("disk", *f.disk);
    f.options.max_peer_connections = 5;
    f.run([&]() -> task<void> {
        for (const char* address : greedy) {
            loop::context& from = f.host(address);
            const unsigned session = address == greedy[0] ? 1 : 11;
            for (std::uint16_t i = 0; i < 8; ++i)
                BOOST_TEST(co_await f.connect(from, f.request(session, i, 64)) ==
                           (i < 5 ? 0U : unsigned(EDQUOT)));
        }
        BOOST_TEST(f.stats.connections.value() == 10);
        BOOST_TEST(f.refusals(refused::session_connections) == 6u);
        co_await f.works(f.host("192.0.2.7"), "good", "disk");
    });
}

BOOST_AUTO_TEST_CASE(memory_of_two_hosts)
{
    fixture f({.memory = 2 * chunks + 3 * queues});
    f.add("disk", *f.disk);
    const test::log_at level(log_level::info);
    const test::lines_of_log log;
    f.run([&]() -> task<void> {
        for (const char* address : greedy) {
            loop::context& from = f.host(address);
            const unsigned first = address == greedy[0] ? 1 : 11;
            // All that come before the second has its memory may still get it.
            for (unsigned i = 0; i < 3; ++i)
                BOOST_REQUIRE(co_await f.connect(from, f.request(first + i)) == 0u);
            const std::size_t begun = f.tried.size() - 3;
            for (unsigned i = 0; i < 3; ++i) {
                const std::string name = "greedy" + std::to_string(first + i);
                const bool up = co_await f.say(*f.tried[begun + i], name);
                BOOST_TEST(up == (i < 2));
            }
            f.tried.pop_back();
            co_await sleep_for(50ms);
            // The others are told by their connect's answer: the protocol has none for what comes later.
            for (unsigned i = 3; i < 6; ++i)
                BOOST_TEST(co_await f.connect(from, f.request(first + i)) == unsigned(EDQUOT));
        }
        BOOST_TEST(f.peers.greatest(peer_use::memory) == 2 * (chunks + queues));
        BOOST_TEST(f.pool->outstanding_bytes() < 5 * chunks);
        BOOST_TEST(f.ends(path_end::no_memory) == 2u);
        BOOST_TEST(f.refused(rtrs::refusal::share) == 6u);
        co_await f.works(f.host("192.0.2.7"), "good", "disk");
    });
    BOOST_TEST(f.refusals(refused::session_peer_memory) == 8u);
    BOOST_TEST(log.count({"peers: turned away peer=192.0.2.101 session=greedy3 reason=peer_memory",
                          "limit=\"peer_memory_mib of [daemon]\"",
                          "cure=\"raise peer_memory_mib of [daemon]"}) == 1u);
}

// A client that reads nothing has the queues of its connections grow.
BOOST_AUTO_TEST_CASE(connections_take_no_more_memory_than_their_host_may_have)
{
    constexpr std::size_t most = 40;
    fixture f({.memory = most * queues + chunks}); // the next session must have room, too
    f.add("disk", *f.disk);
    f.options.max_peer_connections = 4096;
    f.options.max_sessions = f.options.max_peer_sessions = f.options.max_unfinished = 4096;
    f.run([&]() -> task<void> {
        loop::context& from = f.host("192.0.2.101");
        for (unsigned i = 0; i < 4096; ++i) {
            rtrs::connect_request m = f.request(i % 256);
            m.session.bytes[1] = m.path.bytes[1] = std::byte(1 + i / 256);
            BOOST_TEST(co_await f.connect(from, m) == (i < most ? 0u : unsigned(EDQUOT)));
        }
        BOOST_TEST(f.stats.connections.value() == std::int64_t(most));
        BOOST_TEST(f.peers.greatest(peer_use::memory) == most * queues);
        BOOST_TEST(f.beside_slabs() == most * queues);
        co_await f.works(f.host("192.0.2.7"), "good", "disk");
        f.tried.clear();
        co_await sleep_for(50ms);
        BOOST_TEST(f.peers.held(peer_use::memory) == 0u);
        BOOST_TEST(f.beside_slabs() == 0u);
        co_await f.works(from, "now", "disk");
    });
    BOOST_TEST(f.refused(rtrs::refusal::share) == 4096 - most);
}

// Though no share bounds them.
BOOST_AUTO_TEST_CASE(connections_for_which_the_budget_has_no_room_are_refused)
{
    fixture f;
    f.add("disk", *f.disk);
    f.options.max_peer_connections = 4096;
    f.run([&]() -> task<void> {
        loop::context& from = f.host("192.0.2.101");
        BOOST_TEST(co_await f.connect(from, f.request(1, 0, 3)) == 0u);
        const std::size_t taken = f.budget.limit() - f.budget.used() - queues;
        BOOST_REQUIRE(f.budget.reserve(taken));
        BOOST_TEST(co_await f.connect(from, f.request(1, 1, 3)) == 0u);
        BOOST_TEST(co_await f.connect(from, f.request(1, 2, 3)) == unsigned(ENOBUFS));
        f.tried.clear();
        co_await sleep_for(50ms);
        f.budget.release(taken);
        BOOST_TEST(f.beside_slabs() == 0u);
        co_await f.works(from, "good", "disk");
    });
    BOOST_TEST(f.refused(rtrs::refusal::no_memory) == 1u);
    BOOST_TEST(f.refusals(refused::session_memory) == 1u);
}

BOOST_AUTO_TEST_CASE(the_first_session_of_a_host_fits_whatever_its_share)
{
    fixture f({.memory = chunks / 2});
    f.add("disk", *f.disk);
    f.run([&]() -> task<void> { co_await f.works(f.host("192.0.2.7"), "good", "disk"); });
}

BOOST_AUTO_TEST_CASE(who_is_not_admitted_takes_nothing)
{
    fixture f;
    f.add("disk", *f.disk, false, "192.0.2.7");
    f.options.max_sessions = 2;
    f.run([&]() -> task<void> {
        loop::context& stranger = f.host("192.0.2.66");
        const std::size_t before = f.budget.used();
        for (unsigned i = 0; i < 100; ++i)
            BOOST_TEST(co_await f.connect(stranger, f.request(1 + i)) == unsigned(EACCES));
        BOOST_TEST(f.budget.used() == before);
        BOOST_TEST(f.stats.sessions.value() == 0);
        BOOST_TEST(f.peers.peers() == 0u);
        co_await f.works(f.host("192.0.2.7"), "good", "disk");
        // Nor by a connection, or a path, of somebody who is.
        loop::context& owner = f.host("192.0.2.7");
        BOOST_TEST(co_await f.connect(owner, f.request(1, 0, 2)) == 0u);
        BOOST_TEST(co_await f.connect(stranger, f.request(1, 1, 2)) == unsigned(EACCES));
        BOOST_TEST(co_await f.connect(stranger, f.request(1, 0, 1, 200)) == unsigned(EACCES));
        BOOST_TEST(co_await f.connect(owner, f.request(1, 1, 2)) == 0u);
    });
    BOOST_TEST(f.refused(rtrs::refusal::not_admitted) == 102u);
    BOOST_TEST(f.refusals(refused::session_address) == 102u);
}

// A back end that does what it is asked when it is let.
struct held_disk final : storage::block_backend {
    std::string_view kind() const noexcept override { return "held"; }
    storage::block_properties properties() const noexcept override { return {.size = 1 << 20}; }
    task<result<void>> wait()
    {
        co_await over.wait_shielded();
        co_return result<void>();
    }
    task<result<void>> read(std::uint64_t, std::span<std::byte>) override { return wait(); }
    task<result<void>> write(std::uint64_t, std::span<const std::byte>, bool) override { return wait(); }
    task<result<void>> flush() override { return wait(); }
    task<result<void>> discard(std::uint64_t, std::uint64_t) override { return wait(); }
    task<result<void>> write_zeroes(std::uint64_t, std::uint64_t, bool) override { return wait(); }
    event over;
};

// The owner's last session still has a request under way, so that whoever claims its name waits. Who may not have it waits not.
BOOST_AUTO_TEST_CASE(a_name_is_claimed_by_who_is_admitted)
{
    held_disk held;
    fixture f({.memory = chunks + 3 * queues});
    f.add("mine", held, false, "192.0.2.7", "owner");
    f.add("yours", *f.disk, false, "192.0.2.66", "other");
    f.run([&]() -> task<void> {
        loop::context& home = f.host("192.0.2.7");
        loop::context& stranger = f.host("192.0.2.66");
        auto first = std::make_unique<rtrs::client>(*f.shard, *f.pool, f.named("owner"), f.client_stats);
        BOOST_REQUIRE(co_await first->add_path(home, "server"));
        scope s(*f.shard);
        {
            rnbd::client blocks(*first);
            auto d = co_await blocks.open("mine", rnbd::access_mode::read_write);
            BOOST_REQUIRE(d);
            std::vector<std::byte> bytes(4096);
            s.spawn([&]() -> task<void> {
                const auto written = co_await (*d)->write(0, bytes);
                BOOST_TEST(!written.has_value());
            });
            co_await sleep_for(5ms);
            co_await first->close();
            co_await s.join();
        }
        BOOST_TEST(f.stats.sessions.value() == 1);
        BOOST_TEST(co_await f.connect(stranger, f.request(1)) == 0u);
        BOOST_TEST(!(co_await f.say(*f.tried.back(), "owner")));
        BOOST_TEST(f.tried.back()->ended);
        BOOST_TEST(f.ends(path_end::refused) == 1u);
        // The owner waits, also where the old session has all that its host may have.
        BOOST_TEST(co_await f.connect(home, f.request(2)) == 0u);
        BOOST_TEST(!(co_await f.say(*f.tried.back(), "owner")));
        BOOST_TEST(!f.tried.back()->ended);
        held.over.set();
        co_await sleep_for(10ms);
        BOOST_TEST(f.tried.back()->messages == 1u);
        f.tried.clear();
        co_await sleep_for(10ms);
        co_await f.works(home, "owner", "mine");
    });
}

// clients= goes for each path of a session, whoever began it.
BOOST_AUTO_TEST_CASE(each_path_of_a_session_is_for_what_it_has_open)
{
    fixture f;
    f.add("mine", *f.disk, false, "192.0.2.7");
    f.add("everybodys", *f.other_disk, false, "192.0.2.0/24");
    f.run([&]() -> task<void> {
        loop::context& home = f.host("192.0.2.7");
        loop::context& elsewhere = f.host("192.0.2.66");
        {
            rtrs::client client(*f.shard, *f.pool, f.named("one"), f.client_stats);
            BOOST_REQUIRE(co_await client.add_path(home, "server"));
            rnbd::client blocks(client);
            auto d = co_await blocks.open("mine", rnbd::access_mode::read_write);
            BOOST_REQUIRE(d);
            const auto added = co_await client.add_path(elsewhere, "server2");
            BOOST_TEST(!added.has_value());
            BOOST_TEST(f.ends(path_end::refused) == 1u);
            BOOST_REQUIRE(co_await blocks.close(std::move(*d)));
            co_await client.close();
        }
        {
            rtrs::client client(*f.shard, *f.pool, f.named("two"), f.client_stats);
            BOOST_REQUIRE(co_await client.add_path(home, "server"));
            BOOST_REQUIRE(co_await client.add_path(elsewhere, "server2"));
            rnbd::client blocks(client);
            const auto refused = co_await blocks.open("mine", rnbd::access_mode::read_write);
            BOOST_TEST(!refused.has_value());
            auto open = co_await blocks.open("everybodys", rnbd::access_mode::read_write);
            BOOST_REQUIRE(open);
            BOOST_REQUIRE(co_await blocks.close(std::move(*open)));
            // When that path has gone, what is left is for the other one.
            BOOST_REQUIRE(co_await client.remove_path("server2"));
            co_await sleep_for(10ms);
            auto now = co_await blocks.open("mine", rnbd::access_mode::read_write);
            BOOST_REQUIRE(now);
            BOOST_REQUIRE(co_await blocks.close(std::move(*now)));
            co_await client.close();
        }
    });
    BOOST_TEST(f.device_stats.refused_not_admitted.value() == 1u);
}

// A session at that address may have a device, but not one of this name.
BOOST_AUTO_TEST_CASE(a_path_from_where_its_session_may_have_nothing)
{
    fixture f;
    f.add("mine", *f.disk, false, "192.0.2.7");
    f.add("anothers", *f.other_disk, false, "192.0.2.66", "another");
    f.run([&]() -> task<void> {
        rtrs::client client(*f.shard, *f.pool, f.named("one"), f.client_stats);
        BOOST_REQUIRE(co_await client.add_path(f.host("192.0.2.7"), "server"));
        const auto added = co_await client.add_path(f.host("192.0.2.66"), "server2"); // nothing is open yet
        BOOST_TEST(!added.has_value());
        BOOST_TEST(f.ends(path_end::refused) == 1u);
        co_await client.close();
    });
}

BOOST_AUTO_TEST_SUITE_END()
