// SPDX-License-Identifier: Apache-2.0
// A server of RTRS whose listener is closed: it answers what is under way, takes nothing more, and ends its paths in good order. On loop and
// its virtual clock.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "../lines_of_log.hpp"
#include "../log_at.hpp"
#include "../state_trace.hpp"
#include "rnbd_world.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(rtrs_drain_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

// One whose writes end when they are let.
class waiting_disk final : public storage::block_backend {
public:
    std::string_view kind() const noexcept override { return "waiting"; }
    storage::block_properties properties() const noexcept override { return {.size = 1 << 20}; }
    task<result<void>> read(std::uint64_t, std::span<std::byte>) override { co_return result<void>(); }
    task<result<void>> write(std::uint64_t, std::span<const std::byte>, bool) override
    {
        ++writes;
        co_await goes_on.wait_shielded();
        co_return result<void>();
    }
    task<result<void>> flush() override { co_return result<void>(); }
    task<result<void>> discard(std::uint64_t, std::uint64_t) override { co_return result<void>(); }
    task<result<void>> write_zeroes(std::uint64_t, std::uint64_t, bool) override { co_return result<void>(); }
    unsigned writes = 0;
    event goes_on;
};

struct fixture : rnbd_test::world {
    explicit fixture(bool renews_keys = false)
    {
        client_device = fabric->make_context(profile);
        add("disk", disk);
        options.queue_depth = 16;
        options.chunk_size = 32768;
        options.always_invalidate = renews_keys;
    }
    void begin(const char* address = "server")
    {
        listener = std::move(*server_device->listen(address));
        if (!serving)
            serving = make_server();
        tasks.emplace(*shard);
        tasks->spawn([this, l = listener.get()] { return serving->serve(*server_device, *l); });
    }
    void run(const std::function<task<void>(rtrs::client&, rnbd::device&)>& body)
    {
        run_until_complete(*shard, whole(body));
        serving.reset();
        nothing_is_left();
        BOOST_TEST(client_device->grants() == 0u);
    }
    task<void> whole(const std::function<task<void>(rtrs::client&, rnbd::device&)>& body)
    {
        begin();
        rtrs::client_options o;
        o.session = "client";
        rtrs::client session(*shard, *pool, std::move(o), client_stats);
        const auto added = co_await session.add_path(*client_device, "server");
        BOOST_REQUIRE(added);
        rnbd::client blocks(session);
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        co_await body(session, **opened);
        opened->reset();
        co_await session.close();
        listener->close();
        tasks->request_stop();
        co_await tasks->join();
    }
    // Writes a block; yields whether it succeeded.
    task<void> write(rnbd::device& d, std::optional<result<void>>& done)
    {
        const std::vector<std::byte> bytes(512);
        const auto written = co_await d.write(0, bytes);
        done.emplace(written);
    }

    waiting_disk disk;
    std::unique_ptr<loop::context> client_device;
    std::unique_ptr<verbs::listener> listener;
    std::unique_ptr<rtrs::server> serving;
    std::optional<scope> tasks;
};

} // namespace

BOOST_DATA_TEST_CASE(what_is_under_way_is_answered_and_nothing_else_is_begun,
                     boost::unit_test::data::make({false, true}), renews_keys)
{
    fixture f(renews_keys);
    f.run([&](rtrs::client& session, rnbd::device& d) -> task<void> {
        std::optional<result<void>> first;
        std::optional<result<void>> second;
        scope writing(*f.shard);
        writing.spawn(&fixture::write, &f, std::ref(d), std::ref(first));
        co_await sleep_for(10ms);
        BOOST_TEST(f.disk.writes == 1u);
        f.listener->close();
        co_await sleep_for(10ms);
        writing.spawn(&fixture::write, &f, std::ref(d), std::ref(second));
        // Longer than a path may take to be complete, and than the client waits for a heartbeat.
        co_await sleep_for(45s);
        BOOST_TEST((session.paths().front().state == rtrs::path_state::connected));
        BOOST_TEST(f.disk.writes == 1u);
        BOOST_TEST(!first);
        BOOST_TEST(f.tasks->live() == 1u);
        f.disk.goes_on.set();
        co_await sleep_for(10ms);
        BOOST_TEST((first && first->has_value()));
        BOOST_TEST(f.client_stats.failovers.value() == 0u);
        BOOST_TEST(f.stats.unanswered.value() == 0u);
        BOOST_TEST(f.tasks->live() == 0u);
        BOOST_TEST(f.ends(rtrs::path_end::stopped) == 1u);
        BOOST_TEST(!second);
        co_await f.tasks->join();
        // Whoever serves next has it.
        f.begin();
        co_await writing.join();
        BOOST_TEST((second && second->has_value()));
        BOOST_TEST(f.disk.writes == 2u);
        BOOST_TEST(f.client_stats.failovers.value() == 1u);
    });
}

BOOST_AUTO_TEST_CASE(a_path_with_nothing_under_way_ends_at_once)
{
    fixture f;
    f.run([&](rtrs::client& session, rnbd::device&) -> task<void> {
        f.listener->close();
        co_await sleep_for(1ms);
        BOOST_TEST(f.tasks->live() == 0u);
        BOOST_TEST(f.ends(rtrs::path_end::stopped) == 1u);
        BOOST_TEST((session.paths().front().state == rtrs::path_state::reconnecting));
    });
}

// As when the time to drain is over.
BOOST_AUTO_TEST_CASE(a_drain_that_is_stopped_answers_no_more)
{
    fixture f;
    f.run([&](rtrs::client& session, rnbd::device& d) -> task<void> {
        std::optional<result<void>> done;
        scope writing(*f.shard);
        writing.spawn(&fixture::write, &f, std::ref(d), std::ref(done));
        co_await sleep_for(10ms);
        f.listener->close();
        co_await sleep_for(1s);
        BOOST_TEST((session.paths().front().state == rtrs::path_state::connected));
        // As a dump of the shard's tasks shows it.
        const auto trace = [&f] { return test::state_trace(*f.shard, "path of an RTRS server"); };
        const std::string draining =
            "connecting, informing (the client has said who it is), connected (all that is made for it "
            "is there), draining (its server takes no more requests)";
        BOOST_TEST(trace() == draining);
        f.tasks->request_stop();
        co_await sleep_for(10ms);
        BOOST_TEST(trace() == draining + ", closing (stopped)");
        BOOST_TEST((session.paths().front().state == rtrs::path_state::reconnecting));
        BOOST_TEST(f.tasks->live() == 1u); // a disk can't be called back
        f.disk.goes_on.set();
        co_await f.tasks->join();
        BOOST_TEST(f.stats.unanswered.value() == 1u);
        BOOST_TEST(!done);
        co_await session.close();
        co_await writing.join();
        BOOST_TEST((done && done->error() == std::errc::operation_canceled));
    });
}

BOOST_AUTO_TEST_CASE(paths_of_another_listener_go_on)
{
    fixture f;
    const test::log_at warnings(log_level::warning); // the fixture turns it off
    const test::lines_of_log log;
    f.disk.goes_on.set();
    auto second_device = f.fabric->make_context(f.profile);
    f.run([&](rtrs::client& session, rnbd::device& d) -> task<void> {
        auto other = std::move(*f.server_device->listen("other"));
        scope s(*f.shard);
        s.spawn([&] { return f.serving->serve(*f.server_device, *other); });
        const auto added = co_await session.add_path(*second_device, "other");
        BOOST_REQUIRE(added);
        other->close();
        co_await sleep_for(10ms);
        BOOST_TEST(s.live() == 0u);
        co_await s.join();
        for (const auto& p : session.paths())
            BOOST_TEST((p.state == rtrs::path_state::connected) == (p.address == "server"));
        BOOST_TEST(log.count({"path lost server=other", "requests=\"they go on by the other paths: 1\""}) ==
                   1u);
        const std::vector<std::byte> bytes(512);
        BOOST_TEST((co_await d.write(0, bytes)).has_value());
    });
}

// The connections of one whose process is killed end in the same way.
BOOST_AUTO_TEST_CASE(clients_do_not_tell_of_an_end_in_good_order)
{
    fixture f;
    const test::log_at warnings(log_level::warning); // the fixture turns it off
    std::string lines;
    set_log_capture(
        [](void* to, std::string_view line) { static_cast<std::string*>(to)->append(line).append("\n"); },
        &lines);
    f.run([&](rtrs::client&, rnbd::device&) -> task<void> {
        f.listener->close();
        co_await sleep_for(1s);
    });
    set_log_capture(nullptr, nullptr);
    BOOST_TEST(lines.find("path lost") != std::string::npos, lines);
    BOOST_TEST(lines.find("requests=\"they wait for a path, and fail after 60 s without one\"") !=
                   std::string::npos,
               lines);
    BOOST_TEST(lines.find("the RTRS server ended, was killed or gave the path up") != std::string::npos,
               lines);
}

// Nothing happened to the clients whose devices are given back then.
BOOST_AUTO_TEST_CASE(a_server_that_ends_does_not_tell_of_clients_that_have_gone)
{
    fixture f;
    const test::log_at all(log_level::info); // the fixture turns it off
    std::string lines;
    set_log_capture(
        [](void* to, std::string_view line) { static_cast<std::string*>(to)->append(line).append("\n"); },
        &lines);
    f.run([&](rtrs::client&, rnbd::device&) -> task<void> {
        BOOST_TEST(f.devices.users_of(0).writers == 1u);
        f.listener->close();
        co_await sleep_for(1s);
        BOOST_TEST(f.devices.users_of(0).writers == 0u);
    });
    set_log_capture(nullptr, nullptr);
    BOOST_TEST(lines.find("device opened") != std::string::npos, lines);
    BOOST_TEST(lines.find("device taken back") == std::string::npos, lines);
}

// Whoever connects again and again fills no disk.
BOOST_AUTO_TEST_CASE(lines_of_clients_that_come_and_go_are_limited)
{
    fixture f;
    const test::log_at all(log_level::info); // the fixture turns it off
    std::string lines;
    set_log_capture(
        [](void* to, std::string_view line) { static_cast<std::string*>(to)->append(line).append("\n"); },
        &lines);
    const auto begin = std::chrono::steady_clock::now(); // by which a limiter counts
    f.run([&](rtrs::client&, rnbd::device&) -> task<void> {
        for (int i = 0; i < 20; ++i) {
            rtrs::client_options o;
            o.session = "client " + std::to_string(i);
            rtrs::client other(*f.shard, *f.pool, std::move(o), f.client_stats);
            const auto added = co_await other.add_path(*f.client_device, "server");
            BOOST_REQUIRE(added);
            co_await other.close();
        }
    });
    set_log_capture(nullptr, nullptr);
    // 5 in each interval of 10 s, however long a busy machine takes.
    const auto most = 5 * (1 + (std::chrono::steady_clock::now() - begin) / std::chrono::seconds(10));
    for (const std::string_view kind : {"path connected", "path ended"}) {
        std::int64_t count = 0;
        for (std::size_t at = 0; (at = lines.find(kind, at)) != std::string::npos; ++at)
            ++count;
        BOOST_TEST(count >= 5, lines);
        BOOST_TEST(count <= most, lines);
    }
}

BOOST_AUTO_TEST_SUITE_END()
