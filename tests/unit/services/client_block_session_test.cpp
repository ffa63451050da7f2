// SPDX-License-Identifier: Apache-2.0
// How `verbena block` and nbdkit's plugin end their session beside a disk that hangs. On loop and its virtual clock.
#include "../protocols/rnbd_world.hpp"
#include "../protocols/rtrs_by_hand.hpp"

#include <client/block_session.hpp>

#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include <boost/test/unit_test.hpp>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

BOOST_AUTO_TEST_SUITE(client_block_session_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

struct fixture : rnbd_test::world {
    fixture()
    {
        add("stuck", stuck);
        options.queue_depth = 16;
        options.chunk_size = 32768;
        place.url = "rnbd+iwarp://127.0.0.1:1234/stuck";
    }
    // What `body` does with the device open. The server ends when the disk has gone on.
    void run(const std::function<task<void>(cli::block_session&)>& body)
    {
        serving = make_server();
        run_until_complete(*shard, whole(body));
        serving.reset();
        nothing_is_left();
    }
    task<void> whole(const std::function<task<void>(cli::block_session&)>& body)
    {
        const auto listener =
            std::move(*server_device->listen("127.0.0.1:1234")); // as the session looks it up
        scope s(*shard);
        s.spawn([&] { return serving->serve(*server_device, *listener); });
        cli::block_session session(*shard, *pool, [this](std::string_view) { return client_device.get(); });
        const cli::failure connected = co_await session.connect(place);
        BOOST_REQUIRE_MESSAGE(!connected.failed(), connected.text());
        const cli::failure opened = co_await session.open(rnbd::access_mode::read_write);
        BOOST_REQUIRE_MESSAGE(!opened.failed(), opened.text());
        co_await body(session);
        stuck.over.set();
        co_await sleep_for(1s);
        listener->close();
        co_await s.join();
    }

    rnbd_test::stuck_disk stuck;
    cli::block_place place;
    std::unique_ptr<loop::context> client_device = fabric->make_context(profile);
    std::unique_ptr<rtrs::server> serving;
};

} // namespace

BOOST_AUTO_TEST_CASE(it_closes_in_time_though_the_disk_hangs)
{
    fixture f;
    f.run([&](cli::block_session& session) -> task<void> {
        scope s(*f.shard);
        std::optional<result<void>> done;
        s.spawn([&]() -> task<void> {
            const std::vector<std::byte> bytes(512);
            const auto written = co_await session.device()->write(0, bytes);
            done = written;
        });
        co_await sleep_for(10ms);
        const time_point begun = f.clock.now();
        co_await session.close();
        BOOST_TEST((f.clock.now() - begun < 3s));
        co_await s.join();
        BOOST_TEST((done && !*done));
        BOOST_TEST(f.devices.users_of(0).writers == 1u); // until the disk has done what it was told
    });
}

BOOST_AUTO_TEST_CASE(it_closes_at_once_where_nothing_is_under_way)
{
    fixture f;
    f.run([&](cli::block_session& session) -> task<void> {
        const time_point begun = f.clock.now();
        co_await session.close();
        BOOST_TEST((f.clock.now() - begun < 100ms));
        BOOST_TEST(f.devices.users_of(0).writers == 0u);
    });
}

BOOST_AUTO_TEST_CASE(an_url_that_cannot_work_is_refused_with_its_cure)
{
    const auto wrong = [](const char* url) {
        cli::block_place p;
        p.url = url;
        const std::string of_url = check(p);
        p.url = "rnbd+iwarp://host/disk";
        p.paths = {url};
        const std::string of_path = check(p);
        BOOST_TEST((of_url == of_path || of_path.empty()), url);
        return of_url;
    };
    for (const char* good :
         {"rnbd+iwarp://host/disk", "rnbd+rdma://host:65535/a/b", "rnbd+iwarp://[::1]/disk",
          "rnbd+iwarp://[::1]:1/disk", "rnbd+iwarp://192.0.2.1:1234/%2561"})
        BOOST_TEST(wrong(good) == "");
    for (const char* port :
         {"rnbd+iwarp://host:99999/disk", "rnbd+iwarp://host:x/disk", "rnbd+iwarp://host:/disk",
          "rnbd+iwarp://host:0/disk", "rnbd+iwarp://[::1]:12a/disk"})
        BOOST_TEST(wrong(port).find("a port is a number from 1 to 65535; leave it out for 1234") !=
                       std::string::npos,
                   wrong(port));
    BOOST_TEST(wrong("rnbd+iwarp://::1/disk").find("stands in brackets") != std::string::npos);
    BOOST_TEST(wrong("rnbd+iwarp:///disk").find("host is missing") != std::string::npos);
    for (const char* percent : {"rnbd+iwarp://host/%6", "rnbd+iwarp://host/a%zz", "rnbd+iwarp://host/%"})
        BOOST_TEST(wrong(percent).find("write %25 for a percent sign") != std::string::npos, wrong(percent));
    BOOST_TEST(wrong("rnbd+iwarp://host/a%00").find("no NUL") != std::string::npos);
}

// nbdkit has another word for it than `verbena block`.
BOOST_AUTO_TEST_CASE(whoever_may_not_write_is_told_how_to_read)
{
    fixture f;
    rnbd_test::stuck_disk fixed;
    f.add("fixed", fixed, true);
    f.run([&](cli::block_session& session) -> task<void> {
        cli::block_session other(*f.shard, *f.pool, [&](std::string_view) { return f.client_device.get(); });
        cli::block_place place;
        place.url = "rnbd+iwarp://127.0.0.1:1234/fixed";
        place.session = "other";
        place.to_read = "say so";
        const cli::failure connected = co_await other.connect(place);
        BOOST_REQUIRE_MESSAGE(!connected.failed(), connected.text());
        const cli::failure opened = co_await other.open(rnbd::access_mode::read_write);
        BOOST_TEST(opened.failed());
        BOOST_TEST(opened.text().find("does not let it be changed: say so") != std::string::npos,
                   opened.text());
        co_await other.close();
        co_await session.close();
    });
}

BOOST_AUTO_TEST_CASE(a_device_may_be_percent_encoded)
{
    fixture f;
    f.place.url = "rnbd+iwarp://127.0.0.1/%73tuc%6B";
    f.run([](cli::block_session& session) -> task<void> { co_await session.close(); });
}

BOOST_AUTO_TEST_SUITE_END()
