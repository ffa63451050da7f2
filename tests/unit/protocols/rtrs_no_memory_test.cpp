// SPDX-License-Identifier: Apache-2.0
// A server of RTRS that runs out of memory while it takes a connection: that one goes, and nothing else. A program of its own: here each
// allocation fails in its turn. On loop and its virtual clock.
#include <boost/test/unit_test.hpp>

#include "rnbd_world.hpp"
#include "throwing_listener.hpp"

#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>

namespace {

unsigned fails_at = 0; // the allocation that fails, from 1; 0: none
bool has_failed = false;
bool frames_alone = false; // which come in units of 64 bytes (frame_pool.cpp)

} // namespace

void* operator new(std::size_t size)
{
    const bool counts = fails_at != 0 && (!frames_alone || size % 64 == 0);
    const bool fails = counts && --fails_at == 0;
    has_failed = has_failed || fails;
    void* const made = fails ? nullptr : std::malloc(size);
    if (made == nullptr)
        throw std::bad_alloc();
    return made;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

BOOST_AUTO_TEST_SUITE(rtrs_no_memory_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

// From its question whether a peer is admitted to the end of what the server does at once, the chosen allocation fails.
class short_of_memory final : public rtrs::service, private deferred {
public:
    short_of_memory(rtrs::service& inner, reactor& shard) : inner_(inner), shard_(shard) {}
    bool admits(std::string_view) override
    {
        if (at != 0 && skips-- == 0) {
            shard_.post(static_cast<deferred&>(*this));
            fails_at = std::exchange(at, 0);
        }
        return true;
    }
    result<std::unique_ptr<rtrs::session_handler>> open(const rtrs::session_info& s) override
    {
        return inner_.open(s);
    }
    unsigned at = 0;
    unsigned skips = 0; ///< connections that are left alone before

private:
    void run() noexcept override { fails_at = 0; }
    rtrs::service& inner_;
    reactor& shard_;
};

struct fixture : rnbd_test::world {
    fixture()
    {
        add("disk", *disk);
        options.queue_depth = 4;
        options.chunk_size = 8192;
        options.max_sessions = 2;
        devices_of_clients = fabric->make_context(profile);
    }
    void run(const std::function<task<void>()>& body)
    {
        listener = std::move(*server_device->listen("server"));
        throwing = std::make_unique<test::throwing_listener>(*listener);
        serving = std::make_unique<rtrs::server>(*shard, *pool, service, group, options, stats);
        run_until_complete(*shard, whole(body));
        serving.reset();
        nothing_is_left();
    }
    task<void> whole(const std::function<task<void>()>& body)
    {
        scope s(*shard);
        s.spawn([&] { return serving->serve(*server_device, *throwing); });
        co_await body();
        throwing->close();
        co_await s.join();
    }
    // A client connects, whether that goes well or not, and leaves.
    task<bool> comes(std::string name)
    {
        rtrs::client_options o;
        o.session = name;
        rtrs::client session(*shard, *pool, std::move(o), client_stats);
        const auto added = co_await session.add_path(*devices_of_clients, "server");
        co_await session.close();
        co_await sleep_for(1ms);
        co_return added.has_value();
    }

    std::unique_ptr<storage::block_backend> disk = rnbd_test::ram_disk(1 << 20);
    short_of_memory service{blocks, *shard};
    std::unique_ptr<loop::context> devices_of_clients;
    std::unique_ptr<verbs::listener> listener;
    std::unique_ptr<test::throwing_listener> throwing;
    std::unique_ptr<rtrs::server> serving;
};

// Of a client's connection behind `skips` others, each allocation fails once.
void survives(unsigned skips)
{
    fixture f;
    unsigned failures = 0;
    f.run([&]() -> task<void> {
        for (unsigned at = 1;; ++at) {
            f.service.at = at;
            f.service.skips = skips;
            has_failed = false;
            (void)co_await f.comes("unlucky");
            if (!has_failed)
                break;
            ++failures;
            BOOST_TEST_CONTEXT("allocation " << at)
            {
                BOOST_TEST(co_await f.comes("lucky"));
                BOOST_TEST(f.stats.sessions.value() == 0);
                BOOST_TEST(f.stats.paths.value() == 0);
            }
        }
    });
    BOOST_TEST(failures > 3u);
    BOOST_TEST(f.stats.exceptions.value() >= failures / 2);
}

} // namespace

BOOST_AUTO_TEST_CASE(a_first_connection_for_which_there_is_no_memory_costs_itself) { survives(0); }

BOOST_AUTO_TEST_CASE(a_later_connection_for_which_there_is_no_memory_costs_its_path) { survives(1); }

// Each frame of a coroutine fails in its turn until the client has heard what became of its path.
BOOST_AUTO_TEST_CASE(a_client_without_memory_for_its_path_hears_of_that)
{
    unsigned at = 1;
    for (bool failed = true; failed; ++at) {
        const auto run = [&] {
            fixture f;
            f.run([&]() -> task<void> {
                rtrs::client_options o;
                o.session = "unlucky";
                rtrs::client session(*f.shard, *f.pool, std::move(o), f.client_stats);
                frames_alone = true;
                has_failed = false;
                fails_at = at;
                bool is_told = false;
                try {
                    (void)co_await session.add_path(*f.devices_of_clients, "server");
                    is_told = true;
                } catch (const std::bad_alloc&) {
                    is_told = true;
                }
                fails_at = 0;
                frames_alone = false;
                failed = has_failed;
                BOOST_TEST(is_told, "frame " << at);
                co_await session.close();
                co_await sleep_for(1min);
                BOOST_TEST(co_await f.comes("lucky"), "frame " << at);
            });
        };
        std::jthread(run).join(); // a new one, so that no frame is left from a run before
    }
    BOOST_TEST(at > 10u);
}

BOOST_AUTO_TEST_CASE(a_listener_that_throws_is_asked_again)
{
    fixture f;
    f.run([&]() -> task<void> {
        f.throwing->throws = 3;
        // The first is taken by the call that was under way.
        for (const char* name : {"one", "two", "three"})
            BOOST_TEST(co_await f.comes(name));
        BOOST_TEST(f.throwing->throws == 0u);
        BOOST_TEST(f.stats.exceptions.value() == 3u);
    });
}

// Its task is asked to stop, though the listener always throws.
BOOST_AUTO_TEST_CASE(a_server_whose_listener_always_throws_ends_when_it_is_told_to)
{
    fixture f;
    f.listener = std::move(*f.server_device->listen("server"));
    f.serving = f.make_server();
    test::throwing_listener always(*f.listener);
    always.throws = ~0u;
    auto body = [&]() -> task<void> {
        scope s(*f.shard);
        s.spawn([&] { return f.serving->serve(*f.server_device, always); });
        co_await sleep_for(1ms);
        BOOST_TEST(s.live() == 1u);
        s.request_stop();
        co_await s.join();
    };
    run_until_complete(*f.shard, body());
    f.serving.reset();
    f.nothing_is_left();
}

BOOST_AUTO_TEST_SUITE_END()
