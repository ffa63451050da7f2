// SPDX-License-Identifier: Apache-2.0
// Disks that stall, fail and do half of what they were asked for, under two sessions of RNBD, which may live on two
// shards: one device's stall holds up no other device of its session while that has requests left, and no other session
// at all; and of a disk that fails nobody is told that it succeeded.
#define BOOST_TEST_MODULE sim_disks
#include <boost/test/unit_test.hpp>

#include "block_world.hpp"
#include "seeds.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/plugins/delay.hpp>
#include <verbena/plugins/error.hpp>
#include <verbena/plugins/ramblk.hpp>

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

struct world : block_world {
    explicit world(std::uint64_t seed) : world(seed, std::mt19937_64(seed)) {}
    world(std::uint64_t seed, std::mt19937_64 draws)
        : block_world(seed, 1 + seed % 2, conditions(seed, draws), {}), random(draws)
    {
        client_device = make_device("client");
        for (std::size_t i = 0; i < client_shards(); ++i)
            on_shards.push_back(client_device->make_context(client(i).reactor()));
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
    }
    ~world() { lane.finish(); }
    static loop::fabric_options conditions(std::uint64_t seed, std::mt19937_64& random)
    {
        loop::fabric_options f;
        f.seed = seed;
        f.conditions.latency = std::chrono::microseconds(random() % 50);
        return f;
    }
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
        block_world::add(name, *kept);
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

    std::mt19937_64 random;
    blocking_pool lane{1};
    std::unique_ptr<loop::device> client_device;
    std::vector<std::unique_ptr<loop::context>> on_shards;
    std::vector<std::unique_ptr<storage::block_backend>> disks;
    filters::block_error_filter* bad_filter = nullptr;
};

// A session with the devices that it has open. Made and destroyed between turns; its tasks run on `here`.
class user {
public:
    /// On the first shard of the clients, or the second one, if there are two.
    user(world& w, const char* name, std::size_t index)
        : user(w, name, w.client(index % w.client_shards()), *w.on_shards[index % w.client_shards()])
    {
    }
    task<void> begin()
    {
        const auto begins = [this]() -> task<void> {
            const auto added = co_await session_.add_path(device_, "server");
            BOOST_REQUIRE(added);
            client_ = std::make_unique<rnbd::client>(session_);
        };
        co_await here.run(begins);
    }
    task<rnbd::device*> open(const char* name, rnbd::access_mode mode)
    {
        const auto opens = [this, name, mode]() -> task<rnbd::device*> {
            auto opened = co_await client_->open(name, mode);
            BOOST_REQUIRE(opened);
            devices_.push_back(std::move(*opened));
            co_return devices_.back().get();
        };
        co_return co_await here.run(opens);
    }
    /// Has `f`, which makes a task, run on its shard as a child of `s`.
    template<class F>
    void spawn(scope& s, F f)
    {
        s.spawn([this, f] { return here.run(f); });
    }
    /// What is under way fails.
    task<void> end()
    {
        const auto ends = [this]() -> task<void> {
            co_await session_.close();
            devices_.clear();
            client_.reset();
        };
        co_await here.run(ends);
    }
    shard& here;

private:
    user(world& w, const char* name, shard& at, loop::context& device)
        : here(at), device_(device), session_(at.reactor(), at.buffers(), named(name), w.client_stats)
    {
    }
    static rtrs::client_options named(const char* name)
    {
        rtrs::client_options o;
        o.session = name;
        o.connections = 3;
        return o;
    }
    loop::context& device_;
    rtrs::client session_;
    std::unique_ptr<rnbd::client> client_;
    std::vector<std::unique_ptr<rnbd::device>> devices_;
};

struct users {
    explicit users(world& w) : one(w, "one", 0), two(w, "two", 1) {}
    user one, two;
};

// `n` operations of a device that stalls; each ends with the stall, and as it should.
void begin_stalled(world& w, scope& s, user& of, rnbd::device& d, unsigned n, bool writes)
{
    for (unsigned i = 0; i < n; ++i) {
        of.spawn(s, [&w, &d, i, writes]() -> task<void> {
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

task<void> begin(world& w) { return w.begin({"server"}); }

task<void> both_under_a_stall(world& w, user& one, user& two)
{
    co_await begin(w);
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
        scope s(w.client(0).reactor());
        begin_stalled(w, s, one, stalled, of_one, true);
        begin_stalled(w, s, two, also_stalled, of_two, false);
        one.spawn(s, [&] { return use(w, first, stall - 5s); });
        two.spawn(s, [&] { return use(w, second, stall - 5s); });
        two.spawn(s, [&]() -> task<void> { failed = co_await use_bad(w, bad, 300); });
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
    co_await w.end(true);
}

task<void> more_than_a_session_has(world& w, user& one, user& two)
{
    co_await begin(w);
    co_await one.begin();
    co_await two.begin();
    rnbd::device& stalled = *co_await one.open("stalled", rnbd::access_mode::read_write);
    rnbd::device& first = *co_await one.open("first", rnbd::access_mode::read_write);
    rnbd::device& second = *co_await two.open("second", rnbd::access_mode::read_write);
    scope s(w.client(0).reactor());
    begin_stalled(w, s, one, stalled, w.options.queue_depth - 1, true);
    co_await sleep_for(10ms);
    bool over = false;
    one.spawn(s, [&]() -> task<void> {
        std::vector<std::byte> bytes(block);
        const auto done = co_await first.read(0, bytes);
        BOOST_TEST(done.has_value());
        over = true;
    });
    const auto use_second = [&] { return use(w, second, stall - 5s); };
    co_await two.here.run(use_second);
    BOOST_TEST(!over); // it has no request left
    co_await s.join();
    BOOST_TEST(over);
    co_await one.end();
    co_await two.end();
    co_await w.end(true);
}

task<void> a_session_that_ends_in_a_stall(world& w, user& one, user& two)
{
    co_await begin(w);
    co_await one.begin();
    rnbd::device& first = *co_await one.open("first", rnbd::access_mode::read_write);
    co_await two.begin();
    rnbd::device& stalled = *co_await two.open("stalled", rnbd::access_mode::read_write);
    scope s(w.client(0).reactor());
    const unsigned under_way = 1 + unsigned(w.random() % (w.options.queue_depth - 2));
    for (unsigned i = 0; i < under_way; ++i) {
        two.spawn(s, [&stalled, i]() -> task<void> {
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
    BOOST_TEST(w.sessions() == 1);
    BOOST_TEST(w.counted("stalled").in_flight.value() == 0);
    BOOST_TEST(w.counted("stalled").failed[std::size_t(rnbd::failure::stopped)].value() == under_way);
    (void)co_await one.open("stalled", rnbd::access_mode::read_write);
    co_await use(w, first, 5s);
    co_await one.end();
    co_await w.end(true);
}

// Over all runs that have two shards on each side.
exchanged messages(4);

using body = task<void>(world&, user& one, user& two);

void run(std::uint64_t seed, body* what)
{
    world w(seed);
    {
        users u(w);
        w.all.run(w.client(0), what(w, u.one, u.two));
    }
    messages.add(w.all);
    w.nothing_is_left();
    BOOST_TEST(w.client_device->grants() == 0u);
}

void fixed(body* what, std::uint64_t seeds)
{
    const std::uint64_t only = only_seed();
    for (std::uint64_t seed = only != 0 ? only : 1; seed <= (only != 0 ? only : seeds); ++seed) {
        BOOST_TEST_CONTEXT("VERBENA_SIM_SEED=" << seed) { run(seed, what); }
    }
}

} // namespace

BOOST_AUTO_TEST_CASE(a_stall_holds_up_nobody_else)
{
    messages = exchanged(4);
    fixed(both_under_a_stall, 20);
    if (only_seed() == 0)
        BOOST_TEST(messages.silent_pairs() == "");
}
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
