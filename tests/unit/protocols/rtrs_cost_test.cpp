// SPDX-License-Identifier: Apache-2.0
// A request makes no allocation, neither at the server nor at the client, also where its chunk's key is renewed.
#include <boost/test/unit_test.hpp>

#include "../allocation_count.hpp"
#include "rnbd_world.hpp"

#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

BOOST_AUTO_TEST_SUITE(rtrs_cost_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

constexpr unsigned requests = 200;

struct fixture : rnbd_test::world {
    fixture(const loop::options& devices, bool renews) : rnbd_test::world({}, devices)
    {
        options.queue_depth = 16;
        options.chunk_size = 32768;
        options.always_invalidate = renews;
        add("disk", *disk);
        client_device = fabric->make_context(profile);
        listener = std::move(*server_device->listen("server"));
    }
    // Of `requests` writes and as many reads, when as many have been before.
    std::uint64_t count()
    {
        serving = make_server();
        run_until_complete(*shard, whole());
        serving.reset();
        nothing_is_left();
        return counted;
    }
    task<void> whole()
    {
        scope s(*shard);
        s.spawn([&] { return serving->serve(*server_device, *listener); });
        rtrs::client_options o;
        o.session = "client";
        rtrs::client session(*shard, *pool, std::move(o), client_stats);
        BOOST_REQUIRE(co_await session.add_path(*client_device, "server"));
        rnbd::client blocks(session);
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        std::vector<std::byte> bytes(4096);
        bool good = true;
        for (unsigned i = 0; i < 2 * requests; ++i) {
            if (i == requests)
                counted = test::allocations.load();
            const auto written = co_await (*opened)->write(0, bytes);
            const auto read = co_await (*opened)->read(0, bytes);
            good = good && written && read;
        }
        counted = test::allocations.load() - counted;
        BOOST_TEST(good);
        BOOST_REQUIRE(co_await blocks.close(std::move(*opened)));
        co_await session.close();
        listener->close();
        co_await s.join();
    }

    std::unique_ptr<storage::block_backend> disk = rnbd_test::ram_disk(1 << 20);
    std::unique_ptr<loop::context> client_device;
    std::unique_ptr<verbs::listener> listener;
    std::unique_ptr<rtrs::server> serving;
    std::uint64_t counted = 0;
};

} // namespace

BOOST_AUTO_TEST_CASE(a_request_costs_no_allocation)
{
    BOOST_TEST(fixture({}, false).count() == 0u);
    for (const bool at_once : {true, false}) {
        for (const bool apart : {true, false}) {
            loop::options devices;
            devices.profile.renews_at_once = at_once;
            devices.profile.immediates_apart = apart;
            BOOST_TEST(fixture(devices, true).count() == 0u);
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
