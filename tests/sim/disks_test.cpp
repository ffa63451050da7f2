// SPDX-License-Identifier: Apache-2.0
// Disks that stall, fail and do half of what they were asked for, under two sessions of RNBD: one device's stall holds up no other device of
// its session while that has requests left, and no other session at all; and of a disk that fails nobody is told that it succeeded.
#define BOOST_TEST_MODULE sim_disks
#include <boost/test/unit_test.hpp>

#include "seeds.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/plugins/delay.hpp>
#include <verbena/plugins/error.hpp>
#include <verbena/plugins/ramblk.hpp>
#include <verbena/protocols/rnbd/client.hpp>
#include <verbena/protocols/rnbd/server.hpp>
#include <verbena/transports/loop.hpp>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace verbena;
using namespace verbena::sim;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t block = 512;
constexpr std::size_t blocks = 64;
constexpr duration stall = 30s;
// What an operation of a disk that works takes at most: its own delay, and the way there and back.
constexpr duration at_most = 5ms;

struct world {
    explicit world(std::uint64_t seed) : random(seed)
    {
        set_log_level(std::getenv("VERBENA_SIM_LOG") == nullptr ? log_level::off : log_level::debug);
        reactor_options r;
        r.clock = &clock;
        shard = std::move(*reactor::create(r));
        pool = std::make_unique<buffer_pool>(budget, shard.get());
        loop::fabric_options f;
        f.seed = seed;
        f.conditions.latency = std::chrono::microseconds(random() % 50);
        fabric = loop::make_fabric(*shard, f);
        server_device = fabric->make_context();
        client_device = fabric->make_context();
        listener = std::move(*server_device->listen("server"));
        options.queue_depth = std::uint16_t(8 + random() % 24);
        options.chunk_size = 16384;

        filters::block_error_options stalls;
        stalls.every = 1;
        stalls.code = {};
        stalls.stall = stall;
        add("stalled", std::move(*filters::open_error(plain(), stalls, lane)));
        filters::delay_options slowly;
        slowly.read = slowly.write = slowly.sync = slowly.metadata = {0ms, 2ms};
        slowly.seed = seed;
        add("first", std::move(*filters::open_delay(plain(), slowly)));
        add("second", std::move(*filters::open_delay(plain(), slowly)));
        filters::block_error_options fails;
        fails.probability = 0.2;
        fails.half = true;
        fails.seed = seed;
        bad_filter = add("bad", std::move(*filters::open_error(
                                    std::move(*filters::open_delay(plain(), slowly)), fails, lane)));
        serving = std::make_unique<rtrs::server>(*shard, *pool, served, group, options, stats);
    }
    ~world() { lane.finish(); }
    static std::unique_ptr<storage::block_backend> plain()
    {
        ramblk::ramblk_options o;
        o.size = blocks * block;
        return std::move(*ramblk::open_ramblk(o));
    }
    template<class Backend>
    Backend* add(const char* name, std::unique_ptr<Backend> disk)
    {
        Backend* const kept = disk.get();
        disks.push_back(std::move(disk));
        rnbd::device_options d;
        d.name = name;
        d.backend = kept;
        BOOST_REQUIRE(d.clients.add("*"));
        BOOST_REQUIRE(devices.add(std::move(d)));
        return kept;
    }
    const rnbd::device_counters& counted(std::string_view name)
    {
        const rnbd::device_counters* found = nullptr;
        device_stats.by_device.each([&](const rnbd::device_counters& c) {
            if (c.name == name)
                found = &c;
        });
        BOOST_REQUIRE(found != nullptr);
        return *found;
    }
    duration since(time_point t) const { return clock.now() - t; }

    virtual_clock clock;
    std::mt19937_64 random;
    blocking_pool lane{1};
    std::unique_ptr<reactor> shard;
    memory_budget budget{64 << 20};
    std::unique_ptr<buffer_pool> pool;
    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<loop::context> server_device;
    std::unique_ptr<loop::context> client_device;
    std::unique_ptr<verbs::listener> listener;
    std::vector<std::unique_ptr<storage::block_backend>> disks;
    filters::block_error_filter* bad_filter = nullptr;
    rnbd::device_table devices;
    rnbd::server_stats device_stats;
    rnbd::server served{devices, device_stats};
    rtrs::server_options options;
    rtrs::server_stats stats;
    rtrs::client_stats client_stats;
    rtrs::server_group group;
    std::unique_ptr<rtrs::server> serving;
};

// A session with the devices that it has open.
class user {
public:
    user(world& w, const char* name) : world_(w), session_(*w.shard, *w.pool, named(name), w.client_stats) {}

    task<void> begin()
    {
        BOOST_REQUIRE(co_await session_.add_path(*world_.client_device, "server"));
        client_ = std::make_unique<rnbd::client>(session_);
    }
    task<rnbd::device*> open(const char* name, rnbd::access_mode mode)
    {
        auto opened = co_await client_->open(name, mode);
        BOOST_REQUIRE(opened);
        devices_.push_back(std::move(*opened));
        co_return devices_.back().get();
    }
    /// What is under way fails.
    task<void> end()
    {
        co_await session_.close();
        devices_.clear();
        client_.reset();
    }

private:
    static rtrs::client_options named(const char* name)
    {
        rtrs::client_options o;
        o.session = name;
        o.connections = 3;
        return o;
    }
    world& world_;
    rtrs::client session_;
    std::unique_ptr<rnbd::client> client_;
    std::vector<std::unique_ptr<rnbd::device>> devices_;
};

// `n` operations of a device that stalls; each ends with the stall, and as it should.
void begin_stalled(world& w, scope& s, rnbd::device& d, unsigned n, bool writes)
{
    for (unsigned i = 0; i < n; ++i) {
        s.spawn([&w, &d, i, writes]() -> task<void> {
            std::vector<std::byte> bytes(block);
            const time_point begun = w.clock.now();
            result<void> done;
            if (writes)
                done = co_await d.write(i % blocks * block, bytes);
            else
                done = co_await d.read(0, bytes);
            BOOST_TEST(done.has_value());
            BOOST_TEST((w.since(begun) >= stall));
        });
    }
}

// Uses a device that works for `time`: nothing takes long, and what was written is there.
task<void> use(world& w, rnbd::device& d, duration time)
{
    std::mt19937_64 random(w.random());
    std::vector<std::byte> model(blocks * block);
    for (const time_point begun = w.clock.now(); w.since(begun) < time;) {
        const std::size_t at = random() % blocks * block;
        std::vector<std::byte> bytes(block, std::byte(random()));
        const time_point asked = w.clock.now();
        result<void> done;
        if (random() % 2 == 0) {
            done = co_await d.write(at, bytes);
            std::ranges::copy(bytes, model.begin() + std::ptrdiff_t(at));
        } else {
            done = co_await d.read(at, bytes);
            BOOST_TEST(are_same(bytes, std::span(model).subspan(at, block)));
        }
        BOOST_TEST(done.has_value());
        BOOST_TEST((w.since(asked) <= at_most));
        co_await sleep_for(std::chrono::milliseconds(random() % 200));
    }
}

// Uses one that fails: what was answered well was done, of what failed each block is as it was or as it was to be. Yields how much failed.
task<std::uint64_t> use_bad(world& w, rnbd::device& d, unsigned rounds)
{
    std::mt19937_64 random(w.random());
    // What may stand in each block, of which all bytes are equal.
    std::vector<std::vector<std::byte>> may(blocks, {std::byte(0)});
    std::uint64_t failed = 0;
    for (unsigned round = 0; round < rounds; ++round) {
        const std::size_t count = 1 + random() % 8;
        const std::size_t first = random() % (blocks - count + 1);
        const time_point asked = w.clock.now();
        std::vector<std::byte> bytes(count * block);
        result<void> done;
        const unsigned what = random() % 8;
        if (what == 0) {
            done = co_await d.flush();
        } else if (what < 4) {
            done = co_await d.read(first * block, bytes);
            for (std::size_t i = 0; done && i < count; ++i) {
                const auto one = std::span(bytes).subspan(i * block, block);
                const bool whole = std::ranges::all_of(one, [&](std::byte b) { return b == one[0]; });
                BOOST_TEST((whole && std::ranges::find(may[first + i], one[0]) != may[first + i].end()));
                may[first + i] = {one[0]};
            }
        } else {
            const std::byte value = what == 7 ? std::byte(0) : std::byte(random());
            std::ranges::fill(bytes, value);
            if (what == 7)
                done = co_await d.write_zeroes(first * block, count * block);
            else
                done = co_await d.write(first * block, bytes);
            for (std::size_t i = 0; i < count; ++i) {
                if (done)
                    may[first + i].clear();
                may[first + i].push_back(value);
            }
        }
        if (!done) {
            BOOST_TEST((done.error() == std::errc::io_error));
            ++failed;
        }
        BOOST_TEST((w.since(asked) <= 2 * at_most)); // half of it may be done first
    }
    co_return failed;
}

task<void> both_under_a_stall(world& w)
{
    scope server(*w.shard);
    server.spawn([&] { return w.serving->serve(*w.server_device, *w.listener); });
    user one(w, "one");
    user two(w, "two");
    co_await one.begin();
    co_await two.begin();
    rnbd::device& stalled = *co_await one.open("stalled", rnbd::access_mode::read_write);
    rnbd::device& also_stalled = *co_await two.open("stalled", rnbd::access_mode::read_only);
    rnbd::device& first = *co_await one.open("first", rnbd::access_mode::read_write);
    rnbd::device& second = *co_await two.open("second", rnbd::access_mode::read_write);
    rnbd::device& bad = *co_await two.open("bad", rnbd::access_mode::read_write);
    // A session has a request less than chunks; two of each are left over.
    const unsigned most = w.options.queue_depth - 3;
    const unsigned of_one = 1 + unsigned(w.random() % most);
    const unsigned of_two = 1 + unsigned(w.random() % most);
    std::uint64_t failed = 0;
    {
        scope s(*w.shard);
        begin_stalled(w, s, stalled, of_one, true);
        begin_stalled(w, s, also_stalled, of_two, false);
        s.spawn([&] { return use(w, first, stall - 5s); });
        s.spawn([&] { return use(w, second, stall - 5s); });
        s.spawn([&]() -> task<void> { failed = co_await use_bad(w, bad, 300); });
        co_await sleep_for(stall - 1s);
        BOOST_TEST(w.counted("stalled").in_flight.value() == std::int64_t(of_one + of_two));
        co_await s.join();
    }
    BOOST_TEST(failed > 20u);
    BOOST_TEST(w.bad_filter->counters().injected == failed);
    BOOST_TEST(w.counted("bad").failed[std::size_t(rnbd::failure::io)].value() == failed);
    BOOST_TEST(w.client_stats.failed.value() == failed);
    co_await one.end();
    co_await two.end();
    w.listener->close();
    co_await server.join();
}

task<void> more_than_a_session_has(world& w)
{
    scope server(*w.shard);
    server.spawn([&] { return w.serving->serve(*w.server_device, *w.listener); });
    user one(w, "one");
    user two(w, "two");
    co_await one.begin();
    co_await two.begin();
    rnbd::device& stalled = *co_await one.open("stalled", rnbd::access_mode::read_write);
    rnbd::device& first = *co_await one.open("first", rnbd::access_mode::read_write);
    rnbd::device& second = *co_await two.open("second", rnbd::access_mode::read_write);
    scope s(*w.shard);
    begin_stalled(w, s, stalled, w.options.queue_depth - 1, true);
    co_await sleep_for(10ms);
    bool over = false;
    s.spawn([&]() -> task<void> {
        std::vector<std::byte> bytes(block);
        BOOST_TEST((co_await first.read(0, bytes)).has_value());
        over = true;
    });
    co_await use(w, second, stall - 5s);
    BOOST_TEST(!over); // it has no request left
    co_await s.join();
    BOOST_TEST(over);
    co_await one.end();
    co_await two.end();
    w.listener->close();
    co_await server.join();
}

task<void> a_session_that_ends_in_a_stall(world& w)
{
    scope server(*w.shard);
    server.spawn([&] { return w.serving->serve(*w.server_device, *w.listener); });
    user one(w, "one");
    co_await one.begin();
    rnbd::device& first = *co_await one.open("first", rnbd::access_mode::read_write);
    user two(w, "two");
    co_await two.begin();
    rnbd::device& stalled = *co_await two.open("stalled", rnbd::access_mode::read_write);
    scope s(*w.shard);
    const unsigned under_way = 1 + unsigned(w.random() % (w.options.queue_depth - 2));
    for (unsigned i = 0; i < under_way; ++i) {
        s.spawn([&stalled, i]() -> task<void> {
            std::vector<std::byte> bytes(block, std::byte(1));
            const auto done = co_await stalled.write(i * block, bytes);
            BOOST_TEST((!done && done.error() == std::errc::operation_canceled));
        });
    }
    co_await sleep_for(1s);
    BOOST_TEST(w.counted("stalled").in_flight.value() == under_way);
    // It has its memory back at once, and another may have the device.
    co_await two.end();
    co_await s.join();
    co_await sleep_for(10ms);
    BOOST_TEST(w.stats.sessions.value() == 1);
    BOOST_TEST(w.counted("stalled").in_flight.value() == 0);
    BOOST_TEST(w.counted("stalled").failed[std::size_t(rnbd::failure::stopped)].value() == under_way);
    (void)co_await one.open("stalled", rnbd::access_mode::read_write);
    co_await use(w, first, 5s);
    co_await one.end();
    w.listener->close();
    co_await server.join();
}

void run(std::uint64_t seed, task<void> (*what)(world&))
{
    world w(seed);
    run_until_complete(*w.shard, what(w));
    BOOST_TEST(w.stats.sessions.value() == 0);
    BOOST_TEST(w.stats.connections.value() == 0);
    BOOST_TEST(w.pool->outstanding() == 0u);
    BOOST_TEST(w.server_device->grants() + w.client_device->grants() == 0u);
    for (std::size_t i = 0; i < w.devices.size(); ++i)
        BOOST_TEST(w.devices.users_of(i).writers + w.devices.users_of(i).readers == 0u);
    BOOST_TEST(w.stats.ends[std::size_t(rtrs::path_end::bad_message)].value() == 0u);
}

void fixed(task<void> (*what)(world&), std::uint64_t seeds)
{
    const std::uint64_t only = only_seed();
    for (std::uint64_t seed = only != 0 ? only : 1; seed <= (only != 0 ? only : seeds); ++seed) {
        BOOST_TEST_CONTEXT("VERBENA_SIM_SEED=" << seed) { run(seed, what); }
    }
}

} // namespace

BOOST_AUTO_TEST_CASE(a_stall_holds_up_nobody_else) { fixed(both_under_a_stall, 20); }
BOOST_AUTO_TEST_CASE(a_session_without_requests_left_holds_up_itself) { fixed(more_than_a_session_has, 5); }

BOOST_AUTO_TEST_CASE(a_session_ends_in_a_stall) { fixed(a_session_that_ends_in_a_stall, 5); }

BOOST_AUTO_TEST_CASE(fresh_ones)
{
    const std::uint64_t done = fresh_seeds([](std::uint64_t seed) {
        BOOST_TEST_CONTEXT("VERBENA_SIM_SEED=" << seed)
        {
            run(seed, both_under_a_stall);
            run(seed, more_than_a_session_has);
            run(seed, a_session_that_ends_in_a_stall);
        }
    });
    BOOST_TEST(done > 0u);
}
