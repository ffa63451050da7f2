// SPDX-License-Identifier: Apache-2.0
// A server of RTRS that runs out of memory while it takes a connection: that one goes, and nothing else. And requests, of
// a server and a client, for which memory runs out. A program of its own: here each allocation fails in its turn. On loop
// and its virtual clock.
#include <boost/test/unit_test.hpp>

#include "../../sim/block_world.hpp"
#include "rnbd_world.hpp"
#include "rtrs_by_hand.hpp"
#include "throwing_listener.hpp"
#include "used_up_frames.hpp"

#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/yield.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

unsigned fails_at = 0; // the allocation that fails, from 1; 0: none
bool has_failed = false;
unsigned fails_on = ~0u;   // the shard whose allocations count; else each does
bool frames_alone = false; // which come in units of 64 bytes (frame_pool.cpp)

} // namespace

void* operator new(std::size_t size)
{
    bool counts = fails_at != 0 && (!frames_alone || size % 64 == 0);
    if (counts && fails_on != ~0u)
        counts = verbena::reactor::current() != nullptr && verbena::reactor::current()->index() == fails_on;
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

// It came to another shard than its path's first one. There each frame fails once, until it has been taken. With a place in
// its path it would leave a hole there.
BOOST_AUTO_TEST_CASE(a_connection_for_which_another_shard_has_no_memory_costs_itself_or_its_path)
{
    unsigned failures = 0;
    for (unsigned at = 1;; ++at) {
        bool failed = false;
        const auto run = [&] {
            sim::block_world w(7, 2, {}, {});
            const auto disk = rnbd_test::ram_disk(1 << 20);
            w.options.queue_depth = 4;
            w.options.chunk_size = 8192;
            w.add("disk", *disk);
            const auto device = w.make_device("client");
            auto context = device->make_context(w.client(0).reactor());
            const auto serve = [&] { return w.begin({"server"}); };
            const auto body = [&]() -> task<void> {
                co_await serve();
                rtrs::connect_request m;
                m.connections = 2;
                m.path = rnbd_test::id_of(100);
                m.session = rnbd_test::id_of(1);
                m.first = true;
                const std::size_t home = *w.group.shard_of(encode(m), 2);
                rnbd_test::by_hand first(*context), second(*context);
                BOOST_REQUIRE(co_await first.connect("server", m));
                m.connection = 1;
                fails_on = unsigned(1 - home);
                frames_alone = true;
                has_failed = false;
                fails_at = at;
                (void)co_await second.connect("server", m);
                co_await sleep_for(10ms);
                fails_at = 0;
                frames_alone = false;
                fails_on = ~0u;
                failed = has_failed;
                if (!first.ended && !second.pair) { // it had no place yet, and comes again
                    rnbd_test::by_hand again(*context);
                    BOOST_TEST((co_await again.connect("server", m)).has_value(), "frame " << at);
                }
                co_await w.end(true);
            };
            w.all.run(w.client(0), body());
            context.reset();
            w.nothing_is_left();
        };
        std::jthread(run).join();
        if (!failed)
            break;
        ++failures;
    }
    BOOST_TEST(failures != 0u); // an optimizing compiler puts some frames into one
}

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

namespace {

constexpr std::byte own{0x77}; // what a service has put into a chunk

// There is no memory for a frame behind its READs, which fill their buffer and have nothing to send. A WRITE counts what it finds.
class leaving final : public rtrs::service, public rtrs::session_handler {
public:
    struct state {
        std::unique_ptr<test::used_up_frames> used_up;
        std::size_t found = 0;
    };
    explicit leaving(state& s) noexcept : now_(s) {}
    result<std::unique_ptr<rtrs::session_handler>> open(const rtrs::session_info&) override
    {
        return std::unique_ptr<rtrs::session_handler>(std::make_unique<leaving>(now_));
    }
    task<result<void>> serve(rtrs::request& r) override
    {
        std::array<std::byte, 8192> answer; // so that this frame is too large to be kept for others
        answer.fill(own);
        co_await yield();
        if (r.is_write()) {
            now_.found = std::size_t(std::ranges::count(r.data(), own));
            co_return result<void>();
        }
        std::ranges::copy(std::span(answer).first(r.data().size()), r.data().begin());
        r.produce(0);
        now_.used_up = std::make_unique<test::used_up_frames>();
        frames_alone = true;
        fails_at = 1;
        co_return result<void>();
    }

private:
    state& now_;
};

} // namespace

// The session's other paths use the chunk, and a WRITE without data by one of them would store what is in it.
BOOST_AUTO_TEST_CASE(what_a_service_leaves_in_a_chunk_is_cleared_without_memory_too)
{
    const auto run = [] {
        rnbd_test::served_world f;
        f.options.queue_depth = 4;
        f.options.chunk_size = 16384;
        leaving::state now;
        leaving service(now);
        f.serve_by(service);
        const auto device = f.fabric->make_context(f.profile);
        const auto joins = [&](rnbd_test::by_hand& peer, unsigned path) -> task<void> {
            rtrs::connect_request m;
            m.connections = 1;
            m.path = rnbd_test::id_of(path);
            m.session = rnbd_test::id_of(1);
            m.first = path == 1;
            BOOST_REQUIRE(co_await peer.connect("server", m));
            const auto name = rtrs::encode_info_request("client");
            peer.send(name);
            while (peer.messages == 0)
                co_await sleep_for(1ms);
        };
        const auto asks = [&](rnbd_test::by_hand& peer, rtrs::io_header h) -> task<void> {
            const std::vector<std::byte> user(8);
            h.user_size = std::uint16_t(user.size());
            const rtrs::descriptor c = peer.chunks().front();
            peer.write(c.address + 4096, c.key, rnbd_test::written(user, h),
                       rtrs::request_layout(4).immediate(0, 4096 + h.user_size));
            co_await sleep_for(5ms);
        };
        f.run([&]() -> task<void> {
            rnbd_test::by_hand one(*device);
            rnbd_test::by_hand other(*device);
            co_await joins(one, 1);
            co_await joins(other, 2);
            rtrs::io_header read;
            read.sink = co_await one.sink(4096);
            co_await asks(one, read);
            fails_at = 0;
            frames_alone = false;
            now.used_up.reset();
            rtrs::io_header write;
            write.is_write = true;
            co_await asks(other, write);
            BOOST_TEST(other.immediates.size() == 1u);
            BOOST_TEST(now.found == 0u);
        });
        BOOST_TEST(f.stats.exceptions.value() == 0u);
    };
    std::jthread(run).join();
}

// Each allocation of a client's request fails in its turn. It gives back what it has taken, and the client can be closed.
BOOST_AUTO_TEST_CASE(a_request_for_which_there_is_no_memory_costs_itself)
{
    unsigned at = 1;
    for (bool failed = true; failed; ++at) {
        const auto run = [&] {
            fixture f;
            f.run([&]() -> task<void> {
                rtrs::client_options o;
                o.session = "client";
                rtrs::client session(*f.shard, *f.pool, std::move(o), f.client_stats);
                BOOST_REQUIRE(co_await session.add_path(*f.devices_of_clients, "server"));
                rnbd::client devices(session);
                auto d = co_await devices.open("disk", rnbd::access_mode::read_write);
                BOOST_REQUIRE(d);
                std::vector<std::byte> bytes(512);
                // As often as there are permits, so that none is left if each time one is lost.
                failed = true;
                for (unsigned i = 0; i < 3 && failed; ++i) {
                    auto used_up = std::make_unique<test::used_up_frames>();
                    frames_alone = true;
                    has_failed = false;
                    fails_at = at;
                    try {
                        (void)co_await (*d)->read(0, bytes);
                    } catch (const std::bad_alloc&) { // whoever asked hears of it
                    }
                    fails_at = 0;
                    frames_alone = false;
                    failed = has_failed;
                    used_up.reset();
                }
                // As many as may be under way at once.
                unsigned done = 0;
                scope s(*f.shard);
                for (unsigned i = 0; i < 3; ++i) {
                    s.spawn([&]() -> task<void> {
                        std::vector<std::byte> more(512);
                        const auto got = co_await (*d)->read(0, more);
                        done += got ? 1 : 0;
                    });
                }
                co_await sleep_for(1min);
                BOOST_TEST(done == 3u, "frame " << at);
                for (const auto& p : session.paths())
                    BOOST_TEST(p.in_flight == 0u, "frame " << at);
                d->reset();
                co_await session.close();
                co_await s.join();
                co_await sleep_for(1ms);
            });
        };
        std::jthread(run).join(); // a new one, so that no frame is left from a run before
    }
    BOOST_TEST(at > 8u);
}

namespace {

// While a device is opened the chosen allocation fails.
class opening_without_memory final : public rtrs::service {
public:
    opening_without_memory(rtrs::service& inner, unsigned at) : inner_(inner), at_(at) {}
    result<std::unique_ptr<rtrs::session_handler>> open(const rtrs::session_info& s) override
    {
        auto made = inner_.open(s);
        if (!made)
            return made.error();
        return std::unique_ptr<rtrs::session_handler>(std::make_unique<handler>(std::move(*made), at_));
    }

private:
    class handler final : public rtrs::session_handler {
    public:
        handler(std::unique_ptr<rtrs::session_handler> inner, unsigned at) : inner_(std::move(inner)), at_(at)
        {
        }
        task<result<void>> serve(rtrs::request& r) override
        {
            std::array<std::byte, 4> type{};
            if (r.copy_user(type) == 4 && type[0] == std::byte(rnbd::message::open)) {
                has_failed = false;
                fails_at = at_;
            }
            const struct ends {
                ~ends() { fails_at = 0; }
            } now;
            co_return co_await inner_->serve(r);
        }

    private:
        std::unique_ptr<rtrs::session_handler> inner_;
        const unsigned at_;
    };
    rtrs::service& inner_;
    const unsigned at_;
};

} // namespace

// Each of the server's allocations fails in its turn. Nobody has the device open then.
BOOST_AUTO_TEST_CASE(an_open_for_which_there_is_no_memory_leaves_its_device_free)
{
    unsigned at = 1;
    for (bool failed = true; failed; ++at) {
        const auto run = [&] {
            rnbd_test::served_world f;
            const auto disk = rnbd_test::ram_disk(1 << 20);
            f.add("disk", *disk);
            f.options.queue_depth = 4;
            f.options.chunk_size = 8192;
            opening_without_memory service(f.blocks, at);
            f.serve_by(service);
            const auto device = f.fabric->make_context(f.profile);
            f.run([&]() -> task<void> {
                rtrs::client_options o;
                o.session = "client";
                rtrs::client session(*f.shard, *f.pool, std::move(o), f.client_stats);
                BOOST_REQUIRE(co_await session.add_path(*device, "server"));
                rnbd::client devices(session);
                has_failed = false;
                auto opened = co_await devices.open("disk", rnbd::access_mode::read_write);
                failed = has_failed;
                BOOST_TEST(opened.has_value() != failed, "allocation " << at);
                if (failed)
                    BOOST_TEST(f.devices.users_of(0).writers == 0u, "allocation " << at);
                if (opened)
                    opened->reset();
                co_await session.close();
                co_await sleep_for(1ms);
            });
        };
        std::jthread(run).join(); // a new one, so that no frame is left from a run before
    }
    BOOST_TEST(at > 3u);
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
