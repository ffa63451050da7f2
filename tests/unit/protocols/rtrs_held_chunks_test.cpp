// SPDX-License-Identifier: Apache-2.0
// Chunks of requests that the client of RTRS has given up, when the path that carried them never comes back. On loop and its virtual clock.
#include <boost/test/unit_test.hpp>

#include "rnbd_world.hpp"

#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

BOOST_AUTO_TEST_SUITE(rtrs_held_chunks_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t block = 512;

// One that hangs, and takes the bytes of a write when it goes on.
class hanging_disk final : public storage::block_backend {
public:
    std::string_view kind() const noexcept override { return "hanging"; }
    storage::block_properties properties() const noexcept override { return {.size = bytes.size()}; }
    task<result<void>> read(std::uint64_t, std::span<std::byte>) override { co_return result<void>(); }
    task<result<void>> write(std::uint64_t at, std::span<const std::byte> from, bool) override
    {
        ++writes;
        co_await goes_on.wait_shielded();
        std::ranges::copy(from, bytes.begin() + std::ptrdiff_t(at));
        co_return result<void>();
    }
    task<result<void>> flush() override { co_return result<void>(); }
    task<result<void>> discard(std::uint64_t, std::uint64_t) override { co_return result<void>(); }
    task<result<void>> write_zeroes(std::uint64_t, std::uint64_t, bool) override { co_return result<void>(); }
    std::vector<std::byte> bytes = std::vector<std::byte>(1 << 20);
    unsigned writes = 0;
    event goes_on;
};

struct asked {
    result<void> done;
    std::optional<time_point> ended;
};

bool is_connected(const rtrs::client& session, std::string_view address)
{
    return std::ranges::any_of(session.paths(), [&](const auto& p) {
        return p.address == address && p.state == rtrs::path_state::connected;
    });
}

// A client with two paths, by a device of its own each, to a server whose disk hangs.
struct fixture : rnbd_test::world {
    fixture()
    {
        add("disk", disk);
        add("other", other);
        options.queue_depth = 4; // so that three requests may be under way
        options.chunk_size = 8192;
    }
    void run(const std::function<task<void>(rtrs::client&, rnbd::client&, rnbd::device&)>& body)
    {
        run_until_complete(*shard, whole(body));
        serving.reset();
        nothing_is_left();
    }
    task<void> whole(const std::function<task<void>(rtrs::client&, rnbd::client&, rnbd::device&)>& body)
    {
        const auto first = std::move(*server_device->listen("first"));
        const auto second = std::move(*server_device->listen("second"));
        serving = make_server();
        scope tasks(*shard);
        tasks.spawn([&] { return serving->serve(*server_device, *first); });
        tasks.spawn([&] { return serving->serve(*server_device, *second); });
        rtrs::client_options o;
        o.session = "client";
        o.patience = 20s;
        o.reconnect_delay_max = 2s;
        rtrs::client session(*shard, *pool, std::move(o), client_stats);
        BOOST_REQUIRE(co_await session.add_path(*first_device, "first"));
        rnbd::client devices_of_ours(session);
        auto opened = co_await devices_of_ours.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        co_await body(session, devices_of_ours, **opened);
        disk.goes_on.set();
        opened->reset();
        co_await session.close();
        first->close();
        second->close();
        co_await tasks.join();
    }
    // As many as may be under way by the first path. All paths go, and they are given up.
    task<void> lose(rtrs::client& session, rnbd::device& d, unsigned writes)
    {
        scope s(*shard);
        std::vector<asked> all(writes);
        for (std::size_t i = 0; i < all.size(); ++i)
            s.spawn(&fixture::write, this, std::ref(d), std::ref(all[i]), i, std::byte(0x11));
        co_await sleep_for(10ms);
        BOOST_TEST(disk.writes == writes);
        BOOST_REQUIRE(co_await session.add_path(*second_device, "second"));
        second_device->remove_device();
        first_device->remove_device();
        co_await s.join();
        for (const asked& a : all)
            BOOST_TEST((!a.done && a.done.error() == std::errc::not_connected));
        BOOST_TEST(client_stats.failovers.value() == 0u);
    }
    // Likewise, and the second path alone comes back.
    task<void> give_up(rtrs::client& session, rnbd::device& d, unsigned writes)
    {
        co_await lose(session, d, writes);
        second_device->return_device();
        co_await sleep_for(3s);
        BOOST_REQUIRE(is_connected(session, "second"));
    }
    task<void> write(rnbd::device& d, asked& a, std::size_t number, std::byte what)
    {
        const std::vector<std::byte> bytes(block, what);
        const auto done = co_await d.write(number * block, bytes);
        a.done = done;
        a.ended = clock.now();
    }

    hanging_disk disk;
    hanging_disk other;
    std::unique_ptr<loop::context> first_device = fabric->make_context(profile);
    std::unique_ptr<loop::context> second_device = fabric->make_context(profile);
    std::unique_ptr<rtrs::server> serving;
};

bool failed_in(const asked& a, time_point begun, duration after)
{
    return a.ended && !a.done && a.done.error() == std::errc::not_connected && *a.ended - begun >= after &&
           *a.ended - begun < after + 100ms;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_session_whose_chunks_are_all_held_begins_anew)
{
    fixture f;
    f.run([&](rtrs::client& session, rnbd::client&, rnbd::device& d) -> task<void> {
        co_await f.give_up(session, d, 3);
        // It waits as long as without a path, and is told so.
        scope s(*f.shard);
        const time_point begun = f.clock.now();
        asked first;
        s.spawn(&fixture::write, &f, std::ref(d), std::ref(first), 3, std::byte(0x22));
        co_await sleep_for(19s);
        BOOST_TEST(!first.ended);
        BOOST_TEST(f.client_stats.abandoned_sessions.value() == 0u);
        co_await sleep_for(2s);
        BOOST_TEST(failed_in(first, begun, 20s));
        BOOST_TEST(f.client_stats.abandoned_sessions.value() == 1u);
        // The disk holds the server's memory yet: the next session waits for that.
        std::vector<asked> more(3);
        for (std::size_t i = 0; i < more.size(); ++i)
            s.spawn(&fixture::write, &f, std::ref(d), std::ref(more[i]), 4 + i, std::byte(0x33));
        co_await sleep_for(10s);
        BOOST_TEST(f.disk.writes == 3u);
        f.disk.goes_on.set();
        co_await sleep_for(60s);
        for (const asked& a : more)
            BOOST_TEST((a.ended && a.done));
        for (std::size_t i = 0; i < 8; ++i) {
            const std::byte expected{std::uint8_t(i < 3 ? 0x11 : i == 3 || i == 7 ? 0 : 0x33)};
            BOOST_TEST(std::ranges::count(std::span(f.disk.bytes).subspan(i * block, block), expected) ==
                       std::ptrdiff_t(block));
        }
        BOOST_TEST(f.client_stats.abandoned_sessions.value() == 1u);
        co_await session.close(); // it ends what should have ended
        co_await s.join();
    });
}

// The session's opening takes too long, though a path is connected: requests are given up while another one waits for its turn.
BOOST_AUTO_TEST_CASE(who_waits_while_the_last_chunk_is_held_is_told_too)
{
    fixture f;
    f.run([&](rtrs::client& session, rnbd::client&, rnbd::device& d) -> task<void> {
        event opened;
        session.on_restart([&]() -> task<void> { co_await opened.wait_shielded(); });
        scope s(*f.shard);
        std::vector<asked> all(4);
        for (std::size_t i = 0; i < all.size(); ++i)
            s.spawn(&fixture::write, &f, std::ref(d), std::ref(all[i]), i, std::byte(0x11));
        co_await sleep_for(10ms);
        BOOST_REQUIRE(co_await session.add_path(*f.second_device, "second"));
        const time_point begun = f.clock.now();
        f.second_device->remove_device();
        f.first_device->remove_device();
        co_await sleep_for(10ms);
        f.second_device->return_device();
        co_await sleep_for(30s);
        for (std::size_t i = 0; i < 3; ++i)
            BOOST_TEST(failed_in(all[i], begun, 20s));
        BOOST_TEST(!all[3].ended);
        co_await sleep_for(11s);
        BOOST_TEST(failed_in(all[3], begun, 40s));
        BOOST_TEST(f.client_stats.abandoned_sessions.value() == 1u);
        opened.set();
        co_await session.close(); // it ends what should have ended
        co_await s.join();
    });
}

// A service message too, for which there is one chunk more.
BOOST_AUTO_TEST_CASE(a_service_message_waits_no_longer_for_a_chunk)
{
    fixture f;
    f.run([&](rtrs::client& session, rnbd::client& devices, rnbd::device& d) -> task<void> {
        auto open = co_await devices.open("other", rnbd::access_mode::read_write);
        BOOST_REQUIRE(open);
        scope s(*f.shard);
        asked lost;
        s.spawn(&fixture::write, &f, std::ref(**open), std::ref(lost), 0, std::byte(0x11));
        co_await sleep_for(10ms);
        // A CLOSE, which waits for that write, is given up with all else.
        std::optional<result<void>> closed;
        s.spawn([&]() -> task<void> {
            const auto done = co_await devices.close(std::move(*open));
            closed = done;
        });
        co_await sleep_for(10ms);
        co_await f.give_up(session, d, 2);
        BOOST_TEST((closed && !*closed));
        const time_point begun = f.clock.now();
        asked opening;
        s.spawn([&]() -> task<void> {
            const auto again = co_await devices.open("other", rnbd::access_mode::read_write);
            if (!again)
                opening.done = again.error();
            opening.ended = f.clock.now();
        });
        co_await sleep_for(21s);
        BOOST_TEST(failed_in(opening, begun, 20s));
        BOOST_TEST(f.client_stats.abandoned_sessions.value() == 1u);
        f.disk.goes_on.set();
        f.other.goes_on.set();
        co_await sleep_for(60s);
        std::optional<bool> opened;
        s.spawn([&]() -> task<void> {
            const auto again = co_await devices.open("other", rnbd::access_mode::read_write);
            opened = again.has_value();
        });
        co_await sleep_for(25s);
        BOOST_TEST((opened && *opened));
        co_await session.close(); // it ends what should have ended
        co_await s.join();
    });
}

// As long as one request may be answered, others wait for it: the server is slow, and is there.
BOOST_AUTO_TEST_CASE(a_turn_that_comes_is_waited_for)
{
    fixture f;
    f.run([&](rtrs::client& session, rnbd::client&, rnbd::device& d) -> task<void> {
        co_await f.give_up(session, d, 2);
        scope s(*f.shard);
        std::vector<asked> more(2);
        for (std::size_t i = 0; i < more.size(); ++i)
            s.spawn(&fixture::write, &f, std::ref(d), std::ref(more[i]), 4 + i, std::byte(0x33));
        co_await sleep_for(60s);
        for (const asked& a : more)
            BOOST_TEST(!a.ended);
        BOOST_TEST(f.client_stats.abandoned_sessions.value() == 0u);
        f.disk.goes_on.set();
        co_await sleep_for(60s);
        for (const asked& a : more)
            BOOST_TEST((a.ended && a.done));
        co_await session.close(); // it ends what should have ended
        co_await s.join();
    });
}

// The path whose requests were given up comes back after all: who waits counts no longer.
BOOST_AUTO_TEST_CASE(a_path_that_comes_back_brings_its_chunks)
{
    fixture f;
    f.run([&](rtrs::client& session, rnbd::client&, rnbd::device& d) -> task<void> {
        co_await f.give_up(session, d, 3);
        scope s(*f.shard);
        std::vector<asked> more(4);
        for (std::size_t i = 0; i < more.size(); ++i)
            s.spawn(&fixture::write, &f, std::ref(d), std::ref(more[i]), 4 + i, std::byte(0x33));
        co_await sleep_for(15s);
        f.disk.goes_on.set();
        co_await sleep_for(10ms); // the server's end of that path is over
        f.disk.goes_on.reset();
        f.first_device->return_device();
        co_await sleep_for(60s);
        for (const asked& a : more)
            BOOST_TEST(!a.ended);
        BOOST_TEST(f.client_stats.abandoned_sessions.value() == 0u);
        f.disk.goes_on.set();
        co_await sleep_for(60s);
        for (const asked& a : more)
            BOOST_TEST((a.ended && a.done));
        co_await session.close(); // it ends what should have ended
        co_await s.join();
    });
}

// The paths come back one after the other, the first of them when a request has waited for one nearly as long as it may.
BOOST_AUTO_TEST_CASE(paths_that_come_back_one_by_one_save_the_session)
{
    fixture f;
    f.run([&](rtrs::client& session, rnbd::client&, rnbd::device& d) -> task<void> {
        co_await f.lose(session, d, 3);
        scope s(*f.shard);
        asked late;
        s.spawn(&fixture::write, &f, std::ref(d), std::ref(late), 4, std::byte(0x33));
        f.disk.goes_on.set();
        co_await sleep_for(18500ms);
        f.second_device->return_device();
        co_await sleep_for(1300ms);
        BOOST_REQUIRE((is_connected(session, "second") && !is_connected(session, "first") && !late.ended));
        f.first_device->return_device();
        co_await sleep_for(300ms); // 20 s since that request began to wait
        BOOST_REQUIRE(!is_connected(session, "first"));
        BOOST_TEST(!late.ended);
        co_await sleep_for(3s);
        BOOST_TEST(is_connected(session, "first"));
        BOOST_TEST((late.ended && late.done));
        BOOST_TEST(f.client_stats.abandoned_sessions.value() == 0u);
        co_await session.close(); // it ends what should have ended
        co_await s.join();
    });
}

// Nobody waits so long that it could be told.
BOOST_AUTO_TEST_CASE(a_session_begins_anew_though_all_requests_are_cancelled_soon)
{
    fixture f;
    f.run([&](rtrs::client& session, rnbd::client&, rnbd::device& d) -> task<void> {
        co_await f.give_up(session, d, 3);
        const std::vector<std::byte> bytes(block, std::byte(0x33));
        for (int i = 0; i < 4; ++i) {
            const auto done = co_await with_timeout(4500ms, d.write(4 * block, bytes));
            BOOST_TEST((!done && done.error() == std::errc::timed_out));
        }
        co_await sleep_for(4s); // 20 s are over
        BOOST_TEST(f.client_stats.abandoned_sessions.value() == 0u);
        // The next one finds that, and goes by the new session.
        f.disk.goes_on.set();
        const auto done = co_await with_timeout(4500ms, d.write(4 * block, bytes));
        BOOST_TEST(done.has_value());
        BOOST_TEST(f.client_stats.abandoned_sessions.value() == 1u);
    });
}

// The only path that is left comes and goes, never for so long as a request waits.
BOOST_AUTO_TEST_CASE(a_session_begins_anew_though_its_path_comes_and_goes)
{
    fixture f;
    f.run([&](rtrs::client& session, rnbd::client&, rnbd::device& d) -> task<void> {
        co_await f.give_up(session, d, 3);
        scope s(*f.shard);
        asked first;
        s.spawn(&fixture::write, &f, std::ref(d), std::ref(first), 4, std::byte(0x33));
        for (int i = 0; i < 6 && f.client_stats.abandoned_sessions.value() == 0; ++i) {
            co_await sleep_for(8s);
            f.second_device->remove_device();
            co_await sleep_for(10ms);
            f.second_device->return_device();
        }
        BOOST_TEST(f.client_stats.abandoned_sessions.value() == 1u);
        f.disk.goes_on.set();
        co_await session.close(); // it ends what should have ended
        co_await s.join();
    });
}

BOOST_AUTO_TEST_SUITE_END()
