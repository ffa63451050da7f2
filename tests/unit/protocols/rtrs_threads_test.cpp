// SPDX-License-Identifier: Apache-2.0
// A session on shards that have threads of their own, over iWARP: two paths, whose connections stand on three shards. ThreadSanitizer
// looks on.
#include <boost/test/unit_test.hpp>

#include "../log_at.hpp"

#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/plugins/ramblk.hpp>
#include <verbena/protocols/rnbd/client.hpp>
#include <verbena/protocols/rnbd/server.hpp>
#include <verbena/transports/iwarp.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

// ThreadSanitizer takes it for a read of an answer's bytes when sendmsg() has returned, which may be when the peer has
// them, and sends the next request by another shard (core/memory/peer_order.hpp).
extern "C" const char* __tsan_default_options(); // NOLINT
extern "C" const char* __tsan_default_options() { return "intercept_send=0"; }

BOOST_AUTO_TEST_SUITE(rtrs_threads_test)

using namespace verbena;

namespace {

constexpr std::size_t servers = 3;
constexpr std::size_t client_shard = servers;
constexpr std::size_t block = 4096;

// Serves on its shard what came there, and what others sent.
struct server_shard {
    shard* here = nullptr;
    std::unique_ptr<iwarp::context> device;
    std::unique_ptr<verbs::listener> listener;
    std::unique_ptr<verbs::listener> adopting;
    rtrs::server_stats stats;
    std::optional<rnbd::server> served;
    std::optional<rtrs::server> serving;
    std::optional<scope> tasks;
};

class handover final : public remote_message {
public:
    handover(server_shard& to, std::unique_ptr<verbs::arrival> peer) noexcept
        : to_(to), peer_(std::move(peer))
    {
    }
    void deliver() noexcept override
    {
        const std::unique_ptr<handover> self(this);
        to_.device->adopt(std::move(peer_), *to_.adopting);
    }

private:
    server_shard& to_;
    std::unique_ptr<verbs::arrival> peer_;
};

struct world {
    explicit world(bool always_invalidate) : quiet(log_level::off)
    {
        runtime_options o;
        o.shards = servers + 1;
        o.blocking_threads = 1;
        rt = runtime::start(o).value();
        options.always_invalidate = always_invalidate;
        options.queue_depth = 16;
        options.chunk_size = 16384;
        ramblk::ramblk_options ram;
        ram.size = 1 << 20;
        disk = std::move(*ramblk::open_ramblk(ram));
        rnbd::device_options d;
        d.name = "disk";
        d.backend = disk.get();
        BOOST_REQUIRE(d.clients.add("*"));
        BOOST_REQUIRE(devices.add(std::move(d)));
        std::vector<const shard*> spread;
        for (std::size_t i = 0; i < servers; ++i)
            spread.push_back(&rt->at(i));
        group.spread_over(std::move(spread));
        for (std::size_t i = 0; i < servers; ++i)
            rt->call(i, [&](shard& s) { begin(s); });
    }
    ~world()
    {
        std::vector<std::future<void>> ends;
        for (std::size_t i = 0; i < servers; ++i) {
            ends.push_back(std::async(std::launch::async, [this, i] {
                const auto end = [this, i](shard&) -> task<void> {
                    if (all[i].listener)
                        all[i].listener->close();
                    all[i].adopting->close();
                    co_await all[i].tasks->join();
                };
                rt->run(i, end);
            }));
        }
        for (auto& e : ends)
            e.get();
        for (std::size_t i = 0; i < servers; ++i)
            rt->call(i, [&](shard&) {
                server_shard& s = all[i];
                s.tasks.reset();
                s.serving.reset();
                s.listener.reset();
                s.adopting.reset();
                s.device.reset();
            });
        rt->stop();
        BOOST_TEST(peers.peers() == 0u);
        BOOST_TEST(devices.users_of(0).writers == 0u);
    }
    void begin(shard& s)
    {
        server_shard& own = all[s.index()];
        own.here = &s;
        iwarp::options o;
        o.divert = [this, &own](std::unique_ptr<verbs::arrival>& peer, verbs::listener&) {
            const auto to = group.shard_of(peer->private_data(), servers);
            if (to && &all[*to] != &own)
                all[*to].here->reactor().post_remote(*new handover(all[*to], std::move(peer)));
        };
        own.device = device->make_context(s.reactor(), o);
        own.adopting = std::move(*own.device->listen_adopted("iwarp://there"));
        own.served.emplace(devices, device_stats);
        own.serving.emplace(s.reactor(), s.buffers(), *own.served, group, options, own.stats);
        own.tasks.emplace(s.reactor());
        own.tasks->spawn([&own] { return own.serving->serve(*own.device, *own.adopting); });
        if (s.index() < urls.size()) {
            own.listener = std::move(*own.device->listen("127.0.0.1:0"));
            urls[s.index()] = own.listener->local_url().substr(8);
            own.tasks->spawn([&own] { return own.serving->serve(*own.device, *own.listener); });
        }
    }

    const test::log_at quiet;
    std::unique_ptr<runtime> rt;
    std::unique_ptr<iwarp::device> device = iwarp::make_device();
    std::unique_ptr<storage::block_backend> disk;
    rnbd::device_table devices;
    std::vector<rnbd::server_stats> device_stats = std::vector<rnbd::server_stats>(servers);
    peer_shares peers;
    rtrs::server_group group{peers};
    rtrs::server_options options;
    std::array<server_shard, servers> all;
    std::array<std::string, 2> urls; // of the first shards
};

// Each has its own blocks.
task<void> work(rnbd::device& d, std::size_t lane, std::atomic<unsigned>& wrong)
{
    std::mt19937_64 random(lane);
    std::vector<std::byte> held(block), got(block);
    const std::uint64_t at = lane * block;
    for (unsigned round = 0; round < 40; ++round) {
        std::ranges::fill(held, std::byte(random()));
        auto done = co_await d.write(at, held);
        if (done && random() % 4 == 0)
            done = co_await d.flush();
        if (done)
            done = co_await d.read(at, got);
        if (!done || got != held)
            wrong.fetch_add(1);
    }
}

task<void> use(world& w, shard& s, std::atomic<unsigned>& wrong)
{
    const auto device = iwarp::make_context(s.reactor());
    for (unsigned session = 0; session < 4; ++session) { // homes on several shards
        rtrs::client_stats stats;
        rtrs::client_options o;
        o.session = "vm";
        o.connections = 5;
        rtrs::client client(s.reactor(), s.buffers(), std::move(o), stats);
        for (const std::string& url : w.urls) {
            const auto added = co_await client.add_path(*device, url);
            BOOST_TEST(added.has_value(), (added ? "" : added.error().message()));
        }
        {
            rnbd::client blocks(client);
            BOOST_TEST((co_await blocks.begin()).has_value());
            for (unsigned round = 0; round < 2; ++round) {
                auto d = co_await blocks.open("disk", rnbd::access_mode::read_write);
                BOOST_REQUIRE(d);
                scope tasks(s.reactor());
                for (std::size_t lane = 0; lane < 12; ++lane)
                    tasks.spawn(work, std::ref(**d), lane, std::ref(wrong));
                co_await tasks.join();
                BOOST_TEST((co_await blocks.close(std::move(*d))).has_value());
            }
            co_await client.close();
        }
    }
}

} // namespace

BOOST_AUTO_TEST_CASE(requests_of_one_session_are_served_by_all_shards)
{
    for (const bool always_invalidate : {false, true}) {
        std::atomic<unsigned> wrong{0};
        world w(always_invalidate);
        const auto go = [&](shard& s) { return use(w, s, wrong); };
        w.rt->run(client_shard, go);
        BOOST_TEST(wrong.load() == 0u);
        for (const server_shard& s : w.all) {
            BOOST_TEST(s.stats.reads.value() > 0u);
            BOOST_TEST(s.stats.writes.value() > 0u);
            BOOST_TEST(s.stats.ends[std::size_t(rtrs::path_end::bad_message)].value() == 0u);
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
