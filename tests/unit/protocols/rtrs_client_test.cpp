// SPDX-License-Identifier: Apache-2.0
// How long requests of the client of RTRS wait, which path they take, and when a path is given up.
#include <boost/test/unit_test.hpp>

#include "../state_trace.hpp"
#include "rtrs_server_by_hand.hpp"

#include <optional>
#include <vector>

BOOST_AUTO_TEST_SUITE(rtrs_client_test)

using namespace verbena;
using namespace verbena::rtrs_by_hand;
using namespace std::chrono_literals;

// --- waits --------------------------------------------------------------------------------------------

namespace {

// A request, and when it ended.
struct asked {
    result<void> done;
    std::optional<time_point> ended;
};
task<void> ask(fixture& f, asked& a, rtrs::client::lane by)
{
    const std::vector<std::byte> user(32);
    const auto done = co_await f.client->write(user, {}, by);
    a.done = done;
    a.ended = f.clock.now();
}

// As many as can be under way, and `more`, which wait; all of them unanswered.
void ask_all(fixture& f, scope& s, std::vector<asked>& all, unsigned more)
{
    f.answering = false;
    all.resize(depth - 1u + more);
    for (asked& a : all)
        s.spawn(ask, std::ref(f), std::ref(a), rtrs::client::lane::io);
}

bool failed_with(const asked& a, std::errc why) { return a.ended && !a.done && a.done.error() == why; }

} // namespace

// Whether a request is under way or waits for its turn.
BOOST_AUTO_TEST_CASE(nothing_waits_longer_than_patience_for_a_path)
{
    fixture f;
    f.options.patience = 20s;
    f.run([&]() -> task<void> {
        std::vector<asked> all;
        scope s(*f.shard);
        ask_all(f, s, all, 4);
        co_await sleep_for(5s);
        f.listener->close();
        f.connections.front()->pair->kill(error(std::errc::connection_reset, "a server that goes"));
        const time_point lost = f.clock.now();
        co_await sleep_for(10s);
        // Its turn comes never either.
        asked late;
        s.spawn(ask, std::ref(f), std::ref(late), rtrs::client::lane::io);
        co_await sleep_for(11s);
        for (const asked& a : all) {
            BOOST_TEST(failed_with(a, std::errc::not_connected));
            BOOST_TEST((a.ended && *a.ended - lost >= 20s && *a.ended - lost < 20100ms));
        }
        BOOST_TEST(!late.ended);
        co_await sleep_for(10s);
        BOOST_TEST(failed_with(late, std::errc::not_connected));
        BOOST_TEST(f.stats.failed.value() == all.size() + 1);
        co_await f.client->close(); // it ends who should have ended
        co_await s.join();
    });
}

// A server that is slow is there.
BOOST_AUTO_TEST_CASE(a_turn_is_waited_for_as_long_as_there_is_a_path)
{
    fixture f;
    f.options.patience = 2s;
    f.run([&]() -> task<void> {
        std::vector<asked> all;
        scope s(*f.shard);
        ask_all(f, s, all, 2);
        co_await sleep_for(10s);
        // The path breaks and comes again in time: those who wait begin to count anew.
        f.connections.front()->pair->kill(error(std::errc::connection_reset, "a server that restarts"));
        co_await sleep_for(10s);
        BOOST_TEST((f.client->paths().front().state == rtrs::path_state::connected));
        for (const asked& a : all)
            BOOST_TEST(!a.ended);
        f.answering = true;
        co_await s.join();
        for (const asked& a : all)
            BOOST_TEST(a.done.has_value());
    });
}

BOOST_AUTO_TEST_CASE(a_service_message_that_finds_all_chunks_held_waits_no_longer)
{
    fixture f;
    f.options.patience = 3s;
    f.run([&]() -> task<void> {
        std::vector<asked> all;
        asked service;
        asked next;
        scope s(*f.shard);
        ask_all(f, s, all, 0);
        s.spawn(ask, std::ref(f), std::ref(service), rtrs::client::lane::service);
        co_await sleep_for(1s);
        f.listener->close();
        f.connections.front()->pair->kill(error(std::errc::connection_reset, "a server that goes"));
        co_await sleep_for(4s);
        BOOST_TEST(failed_with(service, std::errc::not_connected));
        // The server may be at each of them yet.
        s.spawn(ask, std::ref(f), std::ref(next), rtrs::client::lane::service);
        co_await sleep_for(4s);
        BOOST_TEST(failed_with(next, std::errc::not_connected));
        co_await s.join();
    });
}

BOOST_AUTO_TEST_CASE(close_leaves_nobody_waiting)
{
    fixture f;
    f.options.patience = 20s;
    f.run([&]() -> task<void> {
        std::vector<asked> all;
        asked service;
        scope s(*f.shard);
        ask_all(f, s, all, 0);
        s.spawn(ask, std::ref(f), std::ref(service), rtrs::client::lane::service);
        co_await sleep_for(1s);
        f.listener->close();
        f.connections.front()->pair->kill(error(std::errc::connection_reset, "a server that goes"));
        co_await sleep_for(25s); // by now all have been given up, and their chunks are held
        BOOST_TEST(failed_with(service, std::errc::not_connected));
        std::vector<asked> more(4);
        for (std::size_t i = 0; i < more.size(); ++i)
            s.spawn(ask, std::ref(f), std::ref(more[i]),
                    i < 2 ? rtrs::client::lane::io : rtrs::client::lane::service);
        co_await sleep_for(1s);
        const time_point begun = f.clock.now();
        co_await f.client->close();
        co_await s.join();
        for (const asked& a : more)
            BOOST_TEST(failed_with(a, std::errc::operation_canceled));
        asked later;
        co_await ask(f, later, rtrs::client::lane::io);
        BOOST_TEST(failed_with(later, std::errc::operation_canceled));
        BOOST_TEST((f.clock.now() - begun < 1s));
    });
}

// With a path, and requests under way by it.
BOOST_AUTO_TEST_CASE(close_ends_what_is_under_way_and_what_waits)
{
    fixture f;
    f.run([&]() -> task<void> {
        std::vector<asked> all;
        scope s(*f.shard);
        ask_all(f, s, all, 5);
        co_await sleep_for(1s);
        const time_point begun = f.clock.now();
        co_await f.client->close();
        co_await s.join();
        for (const asked& a : all)
            BOOST_TEST(failed_with(a, std::errc::operation_canceled));
        BOOST_TEST((f.clock.now() - begun < 1s));
    });
}

// --- the end of a path ----------------------------------------------------------------------------------

// It answers no heartbeat: the first goes out after 2 s, and the fourth that is missed is one too many.
BOOST_AUTO_TEST_CASE(a_server_that_falls_silent_is_given_up)
{
    fixture f;
    f.options.heartbeat = 2s;
    f.options.misses = 3;
    f.run([&]() -> task<void> {
        co_await sleep_for(9s);
        BOOST_TEST((f.client->paths().front().state == rtrs::path_state::connected));
        co_await sleep_for(1500ms);
        BOOST_TEST(f.stats.lost_paths[std::size_t(rtrs::path_end::silent)].value() == 1u);
        // Whatever it says, it is there.
        co_await sleep_for(1s);
        BOOST_TEST((f.client->paths().front().state == rtrs::path_state::connected));
        for (int i = 0; i < 10; ++i) {
            const std::vector<std::byte> user(32);
            BOOST_TEST((co_await f.client->write(user, {})).has_value());
            co_await sleep_for(2s);
        }
        BOOST_TEST(f.stats.lost_paths[std::size_t(rtrs::path_end::silent)].value() == 1u);
    });
}

// It has answered, by another connection than the one whose end is seen first.
BOOST_AUTO_TEST_CASE(last_answers_are_taken_from_a_server_that_ends)
{
    fixture f;
    f.options.connections = 4;
    f.options.reconnect_delay = 10s;
    f.answering = false;
    f.run([&]() -> task<void> {
        asked first, second;
        scope s(*f.shard);
        s.spawn(ask, std::ref(f), std::ref(first), rtrs::client::lane::io);
        s.spawn(ask, std::ref(f), std::ref(second), rtrs::client::lane::io);
        co_await sleep_for(10ms);
        BOOST_TEST_REQUIRE(f.connections.size() == 4u);
        std::vector<by_hand*> asked_by;
        for (const auto& c : f.connections) {
            if (!c->requests.empty())
                asked_by.push_back(c.get());
        }
        BOOST_TEST_REQUIRE(asked_by.size() == 2u);
        f.connections[0]->pair->disconnect();
        co_await sleep_for(100ms);
        BOOST_TEST((f.client->paths().front().state == rtrs::path_state::reconnecting));
        for (by_hand* const c : asked_by) {
            BOOST_TEST(!c->ended);
            c->say(encode(rtrs::response{rtrs::request_layout(depth).chunk(c->requests.front()), 0}, false));
            c->requests.clear();
            co_await sleep_for(100ms);
        }
        BOOST_TEST((first.ended && first.done));
        BOOST_TEST((second.ended && second.done));
        BOOST_TEST(asked_by[1]->ended); // nothing more is owed
        f.answering = true;
        co_await s.join();
        BOOST_TEST(f.stats.failovers.value() == 0u);
        BOOST_TEST(f.stats.lost_paths[std::size_t(rtrs::path_end::lost)].value() == 1u);
    });
}

// One that ends a connection and no other: what it owes is asked for by the next path.
BOOST_AUTO_TEST_CASE(last_answers_are_waited_for_a_bounded_time)
{
    for (const bool dies : {false, true}) {
        fixture f;
        f.options.connections = 3;
        f.options.reconnect_delay = 500ms;
        f.answering = false;
        f.run([&]() -> task<void> {
            asked one;
            scope s(*f.shard);
            s.spawn(ask, std::ref(f), std::ref(one), rtrs::client::lane::io);
            co_await sleep_for(10ms);
            BOOST_TEST_REQUIRE(f.connections.size() == 3u);
            const time_point begun = f.clock.now();
            f.connections[0]->pair->disconnect();
            co_await sleep_for(100ms);
            by_hand& rest = *f.connections[f.connections[1]->requests.empty() ? 2 : 1];
            BOOST_TEST(!rest.ended);
            if (dies)
                rest.pair->kill(error(std::errc::connection_reset, "a server that restarts"));
            while (!rest.ended && f.clock.now() - begun < 5s)
                co_await sleep_for(10ms);
            BOOST_TEST_REQUIRE(rest.ended);
            f.answering = true;
            co_await s.join();
            BOOST_TEST((one.ended && one.done));
            BOOST_TEST(f.stats.failovers.value() == 1u);
            const duration took = f.clock.now() - begun;
            BOOST_TEST((took < (dies ? 1s : 3s)));
            BOOST_TEST((dies || took > 1s));
        });
    }
}

// As a dump of the shard's tasks shows it.
BOOST_AUTO_TEST_CASE(a_path_goes_from_life_to_life)
{
    fixture f;
    f.options.reconnect_delay = 1s;
    f.options.set_up = 10s;
    f.run([&]() -> task<void> {
        const auto trace = [&f] { return test::state_trace(*f.shard, "path of an RTRS client"); };
        const auto state = [&f] { return f.client->paths().front().state; };
        const std::string up =
            "waiting, setting up (a life begins), connected (the server has said where the chunks are)";
        const std::string down = ", lost (lost), waiting (its connections are gone)";
        BOOST_TEST(trace() == up);
        BOOST_TEST((state() == rtrs::path_state::connected));
        f.connections.front()->pair->kill(error(std::errc::connection_reset, "a server that restarts"));
        co_await sleep_for(100ms);
        BOOST_TEST(trace() == up + down);
        BOOST_TEST((state() == rtrs::path_state::reconnecting));
        f.informing = false;
        co_await sleep_for(2s);
        BOOST_TEST(trace() == up + down + ", setting up (a life begins)");
        BOOST_TEST((state() == rtrs::path_state::reconnecting));
        f.informing = true;
        co_await sleep_for(9s);
        BOOST_TEST(
            trace() ==
            up + down +
                ", setting up (a life begins), failed (unfinished), waiting (its connections are gone)");
        co_await sleep_for(2s);
        BOOST_TEST(
            trace().ends_with(", failed (unfinished), waiting (its connections are gone), setting up (a life "
                              "begins), connected (the server has said where the chunks are)"));
        BOOST_TEST((state() == rtrs::path_state::connected));
        // A request that the device still has keeps a path that is closed.
        f.answering = false;
        asked last;
        scope s(*f.shard);
        s.spawn(ask, std::ref(f), std::ref(last), rtrs::client::lane::io);
        co_await sleep_for(10ms);
        co_await f.client->close();
        BOOST_TEST(trace() == "");
        co_await s.join();
    });
}

BOOST_AUTO_TEST_CASE(a_server_that_never_tells_its_chunks_is_given_up)
{
    fixture f;
    f.options.set_up = 10s;
    f.run([&]() -> task<void> {
        f.informing = false;
        const time_point begun = f.clock.now();
        f.connections.front()->pair->kill(error(std::errc::connection_reset, "a server that restarts"));
        asked waiting;
        scope s(*f.shard);
        s.spawn(ask, std::ref(f), std::ref(waiting), rtrs::client::lane::io);
        co_await sleep_for(5s);
        BOOST_TEST((f.client->paths().front().state == rtrs::path_state::reconnecting));
        const by_hand* const stuck = f.connections.front().get();
        BOOST_TEST(!stuck->ended);
        co_await sleep_for(4s);
        BOOST_TEST(!stuck->ended);
        f.informing = true; // for the next try
        co_await s.join();
        BOOST_TEST(waiting.done.has_value());
        BOOST_TEST((waiting.ended && *waiting.ended - begun > 10s && *waiting.ended - begun < 12s));
    });
}

namespace {

// A server that says `wrong` when it begins anew. The path does not come up again, and no request is sent.
void is_not_taken(const char* what, const std::function<void(fixture&)>& wrong)
{
    BOOST_TEST_CONTEXT(what)
    {
        fixture f;
        f.options.patience = 5s;
        f.run([&]() -> task<void> {
            wrong(f);
            f.connections.front()->pair->kill(error(std::errc::connection_reset, "a server that restarts"));
            asked lost;
            co_await ask(f, lost, rtrs::client::lane::io);
            BOOST_TEST(failed_with(lost, std::errc::not_connected));
            BOOST_TEST(f.answers == 0u);
            BOOST_TEST((f.client->paths().front().state == rtrs::path_state::reconnecting));
        });
    }
}

} // namespace

BOOST_AUTO_TEST_CASE(a_server_that_becomes_another_one_is_not_taken)
{
    is_not_taken("a smaller request", [](fixture& f) { f.reply.max_io_size = 2048; });
    is_not_taken("a smaller header", [](fixture& f) { f.reply.max_header_size = 512; });
    is_not_taken("another depth", [](fixture& f) { f.reply.queue_depth = depth - 1; });
    is_not_taken("chunks of another size",
                 [](fixture& f) { f.changes_chunks = [](auto& told) { told[1].length += 1; }; });
    is_not_taken("a chunk of no size",
                 [](fixture& f) { f.changes_chunks = [](auto& told) { told[1].length = 0; }; });
    is_not_taken("more chunks",
                 [](fixture& f) { f.changes_chunks = [](auto& told) { told[1].length *= 2; }; });
    is_not_taken("fewer chunks", [](fixture& f) { f.changes_chunks = [](auto& told) { told.pop_back(); }; });
}

BOOST_AUTO_TEST_SUITE_END()
