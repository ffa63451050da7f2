// SPDX-License-Identifier: Apache-2.0
// How a session of `verbena block` ends when its server does not answer. On loop and its virtual clock.
#include <boost/test/unit_test.hpp>

#include "../../../services/client/block_session.hpp"
#include "../protocols/rnbd_world.hpp"
#include "../protocols/rtrs_by_hand.hpp"

#include <verbena/core/scope.hpp>
#include <verbena/core/sleep.hpp>

#include <memory>
#include <string_view>
#include <vector>

BOOST_AUTO_TEST_SUITE(client_block_session_test)

using namespace verbena;
using namespace std::chrono_literals;

// An operation hangs there, so the server keeps the answer to the CLOSE. The session's end ends the wait, on the client's side too.
BOOST_AUTO_TEST_CASE(a_close_that_is_not_answered_ends_with_the_session)
{
    rnbd_test::world w;
    rnbd_test::stuck_disk stuck;
    w.add("stuck", stuck);
    const auto device = w.fabric->make_context(w.profile);
    const auto listener = std::move(*w.server_device->listen("127.0.0.1:1234"));
    auto serving = w.make_server();
    cli::block_session session(*w.shard, *w.pool,
                               [&](std::string_view) -> result<verbs::context*> { return device.get(); });
    const auto write = [&]() -> task<void> {
        rnbd::io_request io; // of device 0
        io.operation = rnbd::operation::write;
        io.bytes = 512;
        const auto message = encode(io);
        const std::vector<std::byte> bytes(512);
        const auto done = co_await session.session()->write(message, bytes);
        BOOST_TEST((!done && done.error() == std::errc::operation_canceled));
    };
    const auto body = [&]() -> task<void> {
        scope s(*w.shard);
        s.spawn([&] { return serving->serve(*w.server_device, *listener); });
        cli::block_place place;
        place.url = "rnbd+iwarp://127.0.0.1/stuck";
        cli::failure failed = co_await session.connect(place);
        BOOST_REQUIRE_MESSAGE(!failed.failed(), failed.text());
        failed = co_await session.open(rnbd::access_mode::read_write);
        BOOST_REQUIRE_MESSAGE(!failed.failed(), failed.text());
        scope writing(*w.shard);
        writing.spawn(write);
        co_await sleep_for(5ms);
        const time_point begun = w.clock.now();
        co_await session.close();
        const duration took = w.clock.now() - begun;
        BOOST_TEST((took >= 2s && took < 2500ms));
        co_await writing.join();
        stuck.over.set();
        listener->close();
        co_await s.join();
    };
    run_until_complete(*w.shard, body());
    serving.reset();
    w.nothing_is_left();
}

BOOST_AUTO_TEST_SUITE_END()
