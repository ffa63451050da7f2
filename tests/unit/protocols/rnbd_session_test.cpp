// SPDX-License-Identifier: Apache-2.0
// Sessions of RTRS with devices of RNBD, client and server, on loop and its virtual clock.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "rnbd_world.hpp"

#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/plugins/delay.hpp>
#include <verbena/plugins/limit.hpp>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(rnbd_session_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

std::vector<std::byte> pattern(std::size_t size, unsigned seed)
{
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i)
        bytes[i] = std::byte((i * 31 + seed * 7 + i / 253) & 0xff);
    return bytes;
}

// How chunks are written: by keys that stay, or that each answer renews, told of as RoCE and iWARP do it.
enum class keys : std::uint8_t { stay, renewed_in_turn, renewed_at_once_and_told_apart };
std::ostream& operator<<(std::ostream& to, keys k) { return to << int(k); }
const auto all_keys =
    boost::unit_test::data::make({keys::stay, keys::renewed_in_turn, keys::renewed_at_once_and_told_apart});

loop::options device_for(keys k)
{
    loop::options o;
    o.profile.renews_at_once = o.profile.immediates_apart = k == keys::renewed_at_once_and_told_apart;
    return o;
}

struct fixture : rnbd_test::world {
    explicit fixture(keys k = keys::stay) : fixture(k, device_for(k)) {}
    fixture(keys k, const loop::options& devices) : rnbd_test::world({}, devices)
    {
        options.always_invalidate = k != keys::stay;
        client_device = fabric->make_context(profile);
        listener = std::move(*server_device->listen("server"));
        add("disk", *disk);
        add("archive", *disk, true);
        options.queue_depth = 16;
        options.chunk_size = 32768;
    }
    rtrs::client_options named(const char* name)
    {
        rtrs::client_options o;
        o.session = name;
        o.connections = 3;
        return o;
    }
    // What `body` does while the server serves. Then everything ends, and nothing is left.
    void run(const std::function<task<void>()>& body)
    {
        serving = make_server();
        run_until_complete(*shard, whole(body));
        serving.reset();
        nothing_is_left();
        BOOST_TEST(client_device->grants() == 0u);
    }
    task<void> whole(const std::function<task<void>()>& body)
    {
        scope s(*shard);
        s.spawn([&] { return serving->serve(*server_device, *listener); });
        co_await body();
        listener->close();
        co_await s.join();
    }

    std::unique_ptr<loop::context> client_device;
    std::unique_ptr<verbs::listener> listener;
    std::unique_ptr<storage::block_backend> disk = rnbd_test::ram_disk(4 << 20);
    std::unique_ptr<rtrs::server> serving;
};

} // namespace

// The kernel's says sector -1 in a flush: a request of its block layer that has no place (blk_rq_init).
BOOST_AUTO_TEST_CASE(a_flush_has_no_place)
{
    fixture f;
    f.run([&]() -> task<void> {
        rtrs::client session(*f.shard, *f.pool, f.named("kernel"), f.client_stats);
        const auto added = co_await session.add_path(*f.client_device, "server");
        BOOST_REQUIRE(added);
        rnbd::client blocks(session);
        const auto begun = co_await blocks.begin();
        BOOST_REQUIRE(begun);
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        rnbd::io_request m;
        m.sector = UINT64_MAX;
        m.operation = rnbd::operation::flush;
        m.flags = rnbd::flag_sync | rnbd::flag_fua;
        const auto message = rnbd::encode(m);
        const auto flushed = co_await session.read(message, {});
        BOOST_TEST(bool(flushed));
        m.operation = rnbd::operation::discard;
        const auto other = rnbd::encode(m);
        const auto discarded = co_await session.write(other, {});
        BOOST_TEST((!discarded && discarded.error() == std::errc::invalid_argument));
        (void)co_await blocks.close(std::move(*opened));
        co_await session.close();
    });
}

void what_is_written_is_read_by(keys k)
{
    fixture f(k);
    f.run([&]() -> task<void> {
        rtrs::client session(*f.shard, *f.pool, f.named("one"), f.client_stats);
        const auto added = co_await session.add_path(*f.client_device, "server");
        BOOST_REQUIRE_MESSAGE(added, (added ? "" : added.error().message()));
        BOOST_TEST(session.queue_depth() == 16u);
        BOOST_TEST(session.max_io_size() == 28672u);
        rnbd::client blocks(session);
        BOOST_REQUIRE(co_await blocks.begin());
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        rnbd::device& d = **opened;
        BOOST_TEST(d.properties().size == 4u << 20);
        BOOST_TEST(d.properties().block_size == 512u);
        for (const std::size_t size : {512u, 4096u, 28672u, 262144u}) {
            const auto out = pattern(size, unsigned(size));
            const auto written = co_await d.write(8192, out, size == 4096);
            BOOST_REQUIRE_MESSAGE(written, (written ? "" : written.error().message()));
            std::vector<std::byte> in(size);
            BOOST_REQUIRE(co_await d.read(8192, in));
            BOOST_TEST((in == out));
        }
        BOOST_REQUIRE(co_await d.flush());
        BOOST_REQUIRE(co_await d.write_zeroes(8192, 4096));
        std::vector<std::byte> in(8192, std::byte(1));
        BOOST_REQUIRE(co_await d.read(8192, in));
        BOOST_TEST(
            (std::ranges::all_of(std::span(in).first(4096), [](std::byte b) { return b == std::byte(0); })));
        BOOST_REQUIRE(co_await d.discard(0, 1 << 20));
        // Ranges that are none.
        BOOST_TEST(((co_await d.read(1, in)).error() == std::errc::invalid_argument));
        BOOST_TEST(((co_await d.read(4 << 20, in)).error() == std::errc::invalid_argument));
        BOOST_REQUIRE(co_await blocks.close(std::move(*opened)));
        co_await session.close();
        co_await sleep_for(1ms); // until the server has heard of it
    });
    BOOST_TEST(f.device_stats.flushes.value() == 1u);
    const std::uint64_t requests = f.stats.reads.value() + f.stats.writes.value();
    BOOST_TEST(f.stats.invalidations.value() == (k == keys::stay ? 0 : requests));
    BOOST_TEST(f.stats.ends[std::size_t(rtrs::path_end::closed)].value() == 1u);
}
BOOST_DATA_TEST_CASE(what_is_written_is_read, all_keys, k) { what_is_written_is_read_by(k); }

BOOST_AUTO_TEST_CASE(one_writer_and_any_number_of_readers)
{
    fixture f;
    f.run([&]() -> task<void> {
        rtrs::client first(*f.shard, *f.pool, f.named("first"), f.client_stats);
        rtrs::client second(*f.shard, *f.pool, f.named("second"), f.client_stats);
        BOOST_REQUIRE(co_await first.add_path(*f.client_device, "server"));
        BOOST_REQUIRE(co_await second.add_path(*f.client_device, "server"));
        rnbd::client a(first);
        rnbd::client b(second);
        using enum rnbd::access_mode;
        auto writer = co_await a.open("disk", read_write);
        BOOST_REQUIRE(writer);
        const auto refused = co_await b.open("disk", read_write);
        BOOST_TEST((refused.error() == std::errc::operation_not_permitted));
        BOOST_TEST(((co_await b.open("archive", read_write)).error() == std::errc::read_only_file_system));
        BOOST_TEST(((co_await b.open("none", read_only)).error() == std::errc::no_such_file_or_directory));
        auto reader = co_await b.open("disk", read_only);
        BOOST_REQUIRE(reader);
        const auto bytes = pattern(512, 1);
        BOOST_REQUIRE(co_await (*writer)->write(0, bytes));
        BOOST_TEST(((co_await (*reader)->write(0, bytes)).error() == std::errc::read_only_file_system));
        std::vector<std::byte> in(512);
        BOOST_REQUIRE(co_await (*reader)->read(0, in));
        BOOST_TEST((in == bytes));
        // While a machine moves, two may write.
        auto moving = co_await b.open("disk", migration);
        BOOST_TEST((!moving || (*moving)->name() == "disk"));
        co_await first.close();
        co_await second.close();
    });
}

BOOST_AUTO_TEST_CASE(a_session_has_its_name_alone)
{
    fixture f;
    f.run([&]() -> task<void> {
        rtrs::client first(*f.shard, *f.pool, f.named("same"), f.client_stats);
        rtrs::client second(*f.shard, *f.pool, f.named("same"), f.client_stats);
        BOOST_REQUIRE(co_await first.add_path(*f.client_device, "server"));
        const auto refused = co_await second.add_path(*f.client_device, "server");
        BOOST_TEST(!refused);
        co_await second.close();
        co_await first.close();
        // When it is gone, the name is free.
        rtrs::client third(*f.shard, *f.pool, f.named("same"), f.client_stats);
        BOOST_TEST((co_await third.add_path(*f.client_device, "server")).has_value());
        co_await third.close();
    });
    BOOST_TEST(f.stats.ends[std::size_t(rtrs::path_end::refused)].value() == 1u);
}

void a_broken_path_is_made_again_and_nothing_is_lost_by(keys k)
{
    fixture f(k);
    f.run([&]() -> task<void> {
        rtrs::client session(*f.shard, *f.pool, f.named("one"), f.client_stats);
        BOOST_REQUIRE(co_await session.add_path(*f.client_device, "server"));
        rnbd::client blocks(session);
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        rnbd::device& d = **opened;
        const auto out = pattern(65536, 3);
        f.client_device->remove_device();
        const auto mend = [&]() -> task<result<void>> {
            co_await sleep_for(700ms);
            f.client_device->return_device();
            co_return result<void>();
        };
        std::vector<task<result<void>>> both;
        both.push_back(d.write(0, out));
        both.push_back(mend());
        const auto done = co_await when_all(std::move(both));
        // The session began anew at the server, and the device was opened there again.
        BOOST_TEST(done[0].has_value());
        std::vector<std::byte> in(65536);
        BOOST_REQUIRE(co_await d.read(0, in));
        BOOST_TEST((in == out));
        BOOST_TEST((session.paths().front().state == rtrs::path_state::connected));
        co_await session.close();
    });
    BOOST_TEST(f.client_stats.reconnects.value() == 1u);
}
BOOST_DATA_TEST_CASE(a_broken_path_is_made_again_and_nothing_is_lost, all_keys, k)
{
    a_broken_path_is_made_again_and_nothing_is_lost_by(k);
}

void with_two_paths_one_may_break_under_load_by(keys k)
{
    fixture f(k);
    auto second_device = f.fabric->make_context(f.profile);
    f.run([&]() -> task<void> {
        rtrs::client session(*f.shard, *f.pool, f.named("one"), f.client_stats);
        BOOST_REQUIRE(co_await session.add_path(*f.client_device, "server"));
        const auto again = co_await session.add_path(*second_device, "server");
        BOOST_TEST((again.error() == std::errc::file_exists)); // an address is a path
        auto other = std::move(*f.server_device->listen("server2"));
        scope s(*f.shard);
        s.spawn([&] { return f.serving->serve(*f.server_device, *other); });
        const auto added = co_await session.add_path(*second_device, "server2");
        BOOST_REQUIRE_MESSAGE(added, (added ? "" : added.error().message()));
        rnbd::client blocks(session);
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        rnbd::device& d = **opened;
        // 64 writers of 16 KiB each, several times over, while a path goes and comes back.
        const auto writer = [&](unsigned i) -> task<result<void>> {
            for (unsigned round = 0; round < 20; ++round) {
                const auto out = pattern(16384, i * 100 + round);
                auto done = co_await d.write(i * 16384, out);
                if (!done)
                    co_return done;
                std::vector<std::byte> in(16384);
                done = co_await d.read(i * 16384, in);
                if (!done)
                    co_return done;
                if (in != out)
                    co_return error(std::errc::io_error, "other data than those written", i);
                co_await sleep_for(10ms);
            }
            co_return result<void>();
        };
        std::vector<task<result<void>>> all;
        for (unsigned i = 0; i < 64; ++i)
            all.push_back(writer(i));
        const auto cut = [&]() -> task<result<void>> {
            co_await sleep_for(35ms);
            second_device->remove_device();
            co_await sleep_for(60ms);
            second_device->return_device();
            co_return result<void>();
        };
        all.push_back(cut());
        const auto done = co_await when_all(std::move(all));
        for (const auto& one : done)
            BOOST_TEST(one.has_value());
        co_await sleep_for(2s);
        BOOST_TEST(session.paths().size() == 2u);
        for (const auto& p : session.paths())
            BOOST_TEST((p.state == rtrs::path_state::connected));
        co_await session.close();
        other->close();
        co_await s.join();
    });
    BOOST_TEST(f.client_stats.reconnects.value() == 1u);
}
BOOST_DATA_TEST_CASE(with_two_paths_one_may_break_under_load, all_keys, k)
{
    with_two_paths_one_may_break_under_load_by(k);
}

BOOST_AUTO_TEST_CASE(a_path_that_cannot_be_connected_at_first_comes_up_later_if_that_is_asked_for)
{
    fixture f;
    auto second_device = f.fabric->make_context(f.profile);
    f.run([&]() -> task<void> {
        rtrs::client session(*f.shard, *f.pool, f.named("one"), f.client_stats);
        BOOST_REQUIRE(co_await session.add_path(*f.client_device, "server"));
        BOOST_TEST(!(co_await session.add_path(*second_device, "server3")).has_value());
        BOOST_TEST(session.paths().size() == 1u); // the first failure was the end
        const auto added =
            co_await session.add_path(*second_device, "server2", rtrs::first_failure::is_like_any_other);
        BOOST_TEST(!added.has_value());
        BOOST_REQUIRE(session.paths().size() == 2u);
        BOOST_TEST((session.paths().back().state == rtrs::path_state::reconnecting));
        // Meanwhile the other path serves.
        rnbd::client blocks(session);
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        const auto out = pattern(4096, 5);
        BOOST_TEST((co_await (*opened)->write(0, out)).has_value());
        auto other = std::move(*f.server_device->listen("server2"));
        scope s(*f.shard);
        s.spawn([&] { return f.serving->serve(*f.server_device, *other); });
        co_await sleep_for(10s);
        for (const auto& p : session.paths())
            BOOST_TEST((p.state == rtrs::path_state::connected));
        co_await session.close();
        other->close();
        co_await s.join();
    });
    BOOST_TEST(f.client_stats.reconnects.value() == 1u);
}

// What is under way on the path that is taken out goes on by the other one.
BOOST_AUTO_TEST_CASE(a_path_is_added_and_taken_out_under_load)
{
    fixture f;
    filters::delay_options slow;
    slow.read = slow.write = {1ms, 1ms};
    f.disk = std::move(*filters::open_delay(std::move(f.disk), slow));
    f.add("slow", *f.disk);
    auto second_device = f.fabric->make_context(f.profile);
    f.run([&]() -> task<void> {
        rtrs::client session(*f.shard, *f.pool, f.named("one"), f.client_stats);
        BOOST_REQUIRE(co_await session.add_path(*f.client_device, "server"));
        auto other = std::move(*f.server_device->listen("server2"));
        scope s(*f.shard);
        s.spawn([&] { return f.serving->serve(*f.server_device, *other); });
        rnbd::client blocks(session);
        auto opened = co_await blocks.open("slow", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        rnbd::device& d = **opened;
        bool over = false;
        const auto writer = [&](unsigned i) -> task<result<void>> {
            unsigned round = 0;
            while (!over) {
                ++round;
                const auto out = pattern(16384, i * 100 + round);
                auto done = co_await d.write(i * 16384, out);
                if (!done)
                    co_return done;
                std::vector<std::byte> in(16384);
                done = co_await d.read(i * 16384, in);
                if (!done)
                    co_return done;
                if (in != out)
                    co_return error(std::errc::io_error, "other data than those written", i);
            }
            co_return result<void>();
        };
        const auto change = [&]() -> task<result<void>> {
            for (unsigned i = 0; i < 10; ++i) {
                auto done = co_await session.add_path(*second_device, "server2");
                if (!done)
                    co_return done;
                co_await sleep_for(3500us);
                const char* gone = i % 2 == 0 ? "server2" : "server";
                const auto under_way = [&] {
                    for (const auto& p : session.paths()) {
                        if (p.address == gone)
                            return p.in_flight;
                    }
                    return 0u;
                };
                BOOST_TEST(under_way() > 0u);
                done = co_await session.remove_path(gone);
                if (!done)
                    co_return done;
                BOOST_TEST(session.paths().size() == 1u);
                if (i % 2 != 0) { // and the other way round
                    done = co_await session.add_path(*f.client_device, "server");
                    if (!done)
                        co_return done;
                    done = co_await session.remove_path("server2");
                    if (!done)
                        co_return done;
                }
            }
            over = true;
            co_return result<void>();
        };
        std::vector<task<result<void>>> all;
        for (unsigned i = 0; i < 32; ++i)
            all.push_back(writer(i));
        all.push_back(change());
        const auto done = co_await when_all(std::move(all));
        for (const auto& one : done)
            BOOST_TEST(one.has_value(), (one ? "" : one.error().message()));
        co_await session.close();
        other->close();
        co_await s.join();
    });
    BOOST_TEST(f.client_stats.reconnects.value() == 0u);
}

BOOST_AUTO_TEST_CASE(a_limit_is_each_sessions_own_and_goes_with_it)
{
    fixture f;
    filters::limit_options o;
    o.client_operations = 10;
    o.burst = 100ms;
    f.disk = std::move(*filters::open_limit(std::move(f.disk), o));
    const filters::block_limit_filter& limit = dynamic_cast<filters::block_limit_filter&>(*f.disk);
    rnbd::device_options shared;
    shared.name = "limited";
    shared.backend = f.disk.get();
    BOOST_REQUIRE(shared.clients.add("*"));
    BOOST_REQUIRE(f.devices.add(std::move(shared)));
    f.run([&]() -> task<void> {
        // Reads `times` times; yields how long it took.
        const auto reads = [&](const char* name, int times) -> task<duration> {
            rtrs::client session(*f.shard, *f.pool, f.named(name), f.client_stats);
            BOOST_REQUIRE(co_await session.add_path(*f.client_device, "server"));
            rnbd::client blocks(session);
            const time_point start = f.clock.now();
            auto opened = co_await blocks.open("limited", rnbd::access_mode::read_only);
            BOOST_REQUIRE(opened);
            std::vector<std::byte> in(512);
            for (int i = 0; i < times; ++i) {
                BOOST_TEST((co_await (*opened)->read(0, in)).has_value());
                if (i % 2 == 0) { // opened once more, it is limited as before
                    BOOST_TEST((co_await blocks.close(std::move(*opened))).has_value());
                    opened = co_await blocks.open("limited", rnbd::access_mode::read_only);
                    BOOST_REQUIRE(opened);
                }
            }
            co_await session.close();
            co_return f.clock.now() - start;
        };
        std::vector<task<duration>> both;
        both.push_back(reads("one", 11));
        both.push_back(reads("two", 6));
        const auto took = co_await when_all(std::move(both));
        BOOST_TEST((took[0] >= 1s && took[0] < 1100ms));
        BOOST_TEST((took[1] >= 500ms && took[1] < 600ms));
        BOOST_TEST(limit.counters().clients == 2u);
        // Who comes back has not been forgotten.
        const duration again = co_await reads("one", 6);
        BOOST_TEST((again > 580ms && again < 680ms));
        BOOST_TEST(limit.counters().clients == 2u);
    });
}

BOOST_AUTO_TEST_CASE(what_waits_for_a_limit_does_not_keep_a_lost_path)
{
    fixture f;
    filters::limit_options o;
    o.total_operations = 1;
    f.disk = std::move(*filters::open_limit(std::move(f.disk), o));
    const filters::block_limit_filter& limit = dynamic_cast<filters::block_limit_filter&>(*f.disk);
    rnbd::device_options limited;
    limited.name = "limited";
    limited.backend = f.disk.get();
    BOOST_REQUIRE(limited.clients.add("*"));
    BOOST_REQUIRE(f.devices.add(std::move(limited)));
    f.run([&]() -> task<void> {
        rtrs::client session(*f.shard, *f.pool, f.named("one"), f.client_stats);
        BOOST_REQUIRE(co_await session.add_path(*f.client_device, "server"));
        rnbd::client blocks(session);
        auto opened = co_await blocks.open("limited", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        const auto out = pattern(512, 3);
        BOOST_REQUIRE(co_await (*opened)->write(0, out)); // the burst
        std::vector<task<result<void>>> all;
        for (unsigned i = 1; i <= 10; ++i)
            all.push_back((*opened)->write(i * 512, out));
        const auto cut = [&]() -> task<result<void>> {
            co_await sleep_for(100ms);
            BOOST_TEST(limit.counters().waiting == 10u);
            f.client_device->remove_device();
            co_await sleep_for(100ms);
            BOOST_TEST(f.stats.paths.value() == 0);
            BOOST_TEST(limit.counters().waiting == 0u);
            f.client_device->return_device();
            co_return result<void>();
        };
        all.push_back(cut());
        const auto done = co_await when_all(std::move(all));
        // Each was sent again, and done.
        for (const auto& one : done)
            BOOST_TEST(one.has_value());
        BOOST_TEST(limit.counters().cancelled == 10u);
        std::vector<std::byte> in(512);
        BOOST_REQUIRE(co_await (*opened)->read(10 * 512, in));
        BOOST_TEST((in == out));
        co_await session.close();
    });
}

BOOST_AUTO_TEST_CASE(what_devices_and_paths_do_is_counted)
{
    fixture f;
    filters::delay_options o;
    o.read = {2ms, 2ms};
    o.write = {30ms, 30ms};
    f.disk = std::move(*filters::open_delay(std::move(f.disk), o));
    rnbd::device_options slow;
    slow.name = "slow";
    slow.backend = f.disk.get();
    BOOST_REQUIRE(slow.clients.add("*"));
    BOOST_REQUIRE(f.devices.add(std::move(slow)));
    const auto counters_of = [&](std::string_view name) {
        const rnbd::device_counters* found = nullptr;
        f.device_stats.by_device.each([&](const rnbd::device_counters& c) {
            if (c.name == name)
                found = &c;
        });
        return found;
    };
    // The only observation.
    const auto took = [](const log_linear_histogram& h) {
        histogram_snapshot s;
        h.add_to(s);
        BOOST_TEST(s.count() == 1u);
        return duration(s.sum_nanoseconds);
    };
    f.run([&]() -> task<void> {
        rtrs::client session(*f.shard, *f.pool, f.named("one"), f.client_stats);
        BOOST_REQUIRE(co_await session.add_path(*f.client_device, "server"));
        rnbd::client blocks(session);
        auto opened = co_await blocks.open("slow", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        BOOST_TEST(!(co_await blocks.open("none", rnbd::access_mode::read_only)));
        BOOST_TEST(!(co_await blocks.open("archive", rnbd::access_mode::read_write)));
        std::vector<std::byte> bytes(4096);
        BOOST_TEST((co_await (*opened)->read(0, bytes)).has_value());
        scope s(*f.shard);
        s.spawn([&]() -> task<void> { BOOST_TEST((co_await (*opened)->write(0, bytes)).has_value()); });
        co_await sleep_for(10ms);
        const rnbd::device_counters* const c = counters_of("slow");
        BOOST_REQUIRE(c != nullptr);
        BOOST_TEST(c->in_flight.value() == 1);
        co_await s.join();
        BOOST_TEST(c->in_flight.value() == 0);
        BOOST_TEST((co_await (*opened)->flush()).has_value());
        BOOST_TEST((co_await (*opened)->discard(0, 4096)).has_value());
        BOOST_TEST((co_await (*opened)->write_zeroes(0, 4096)).has_value());
        for (const counter& n : c->operations)
            BOOST_TEST(n.value() == 1u);
        BOOST_TEST((took(c->latency[0]) == 2ms));
        BOOST_TEST((took(c->latency[1]) == 30ms));
        BOOST_TEST(c->read_bytes.value() == 4096u);
        BOOST_TEST(c->written_bytes.value() == 4096u);
        auto archive = co_await blocks.open("archive", rnbd::access_mode::read_only);
        BOOST_REQUIRE(archive);
        rnbd::io_request io; // which our client would not send
        io.operation = rnbd::operation::write;
        io.device = 1;
        io.bytes = 512;
        const auto message = encode(io);
        BOOST_TEST(!(co_await session.write(message, std::span(bytes).first(512))));
        const rnbd::device_counters* const a = counters_of("archive");
        BOOST_REQUIRE(a != nullptr);
        BOOST_TEST(a->failed[std::size_t(rnbd::failure::read_only)].value() == 1u);
        BOOST_TEST(counters_of("disk") == nullptr);
        BOOST_TEST(f.device_stats.refused_unknown.value() == 1u);
        BOOST_TEST(f.device_stats.refused_read_only.value() == 1u);

        const auto of_path = [&](const rtrs::path_series& all, std::string_view peer) {
            unsigned seen = 0;
            all.each([&](std::string_view session, std::string_view from, const rtrs::path_counters& c) {
                ++seen;
                BOOST_TEST(session == "one");
                BOOST_TEST(from == peer);
                BOOST_TEST(c.in_flight.value() == 0);
                BOOST_TEST(c.reads.requests.value() + c.writes.requests.value() ==
                           f.stats.reads.value() + f.stats.writes.value());
                BOOST_TEST(c.failed.value() == 3u); // two opens and a write
                BOOST_TEST(c.writes.bytes.value() == 4096u);
                histogram_snapshot h;
                c.writes.latency.add_to(h);
                BOOST_TEST((duration(h.sum_nanoseconds) >= 30ms && duration(h.sum_nanoseconds) < 40ms));
            });
            BOOST_TEST(seen == 1u);
        };
        of_path(f.stats.by_path, "loop");
        of_path(f.client_stats.by_path, "server");
        co_await session.close();
    });
}

BOOST_AUTO_TEST_CASE(series_of_paths_are_bounded)
{
    rtrs::path_series all;
    const auto count = [&] {
        std::size_t n = 0;
        all.each([&](const auto&, const auto&, const auto&) { ++n; });
        return n;
    };
    std::vector<rtrs::path_counters*> joined;
    for (std::size_t i = 0; i < rtrs::path_series::max_paths; ++i)
        joined.push_back(&all.join("s" + std::to_string(i), "peer"));
    BOOST_TEST(&all.join("s1", "peer") == joined[1]); // twice now
    BOOST_TEST(count() == rtrs::path_series::max_paths);
    rtrs::path_counters& more = all.join("more", "peer");
    BOOST_TEST(&all.join("yet more", "peer") == &more);
    BOOST_TEST(count() == rtrs::path_series::max_paths + 1);
    all.leave(more);
    all.leave(*joined[1]); // there is the other one still
    all.leave(*joined[7]);
    all.leave(*joined[3]);
    joined[7]->failed.add();
    joined[3]->failed.add(3);
    rtrs::path_counters& next = all.join("next", "peer"); // in the place of the one that ended first
    BOOST_TEST(&next != &more);
    BOOST_TEST(next.failed.value() == 0u);
    BOOST_TEST(all.join("s3", "peer").failed.value() == 3u);
    BOOST_TEST(&all.join("last", "peer") == &more);
    BOOST_TEST(count() == rtrs::path_series::max_paths + 1);
}

// A name is chosen by a client, and does not stay for good when the client is gone.
BOOST_AUTO_TEST_CASE(series_of_paths_that_ended_go)
{
    rtrs::path_series all;
    const auto names = [&] {
        std::vector<std::string> seen;
        all.each([&](const auto& session, const auto&, const auto&) { seen.push_back(session); });
        return seen;
    };
    rtrs::path_counters& lives = all.join("lives", "peer");
    const std::size_t more = rtrs::path_series::max_ended + 3;
    for (std::size_t i = 0; i < more; ++i) {
        rtrs::path_counters& c = all.join("s" + std::to_string(i), "peer");
        c.failed.add(i);
        all.leave(c);
    }
    BOOST_TEST(names().size() == 1 + rtrs::path_series::max_ended);
    BOOST_TEST(names().at(0) == "lives");
    BOOST_TEST(names().at(1) == "s3");
    // One that comes again goes on where it was.
    rtrs::path_counters& again = all.join("s5", "peer");
    BOOST_TEST(again.failed.value() == 5u);
    all.leave(lives);
    BOOST_TEST(names().size() == 1 + rtrs::path_series::max_ended);
    all.leave(again);
    BOOST_TEST(names().size() == rtrs::path_series::max_ended);
    BOOST_TEST(all.join("s3", "peer").failed.value() == 0u);
}

// Rather than that keys stay where they should not.
BOOST_AUTO_TEST_CASE(a_device_that_can_renew_no_keys_serves_nobody)
{
    loop::options device;
    device.profile.renewable_grants = false;
    fixture f(keys::renewed_in_turn, device);
    f.run([&]() -> task<void> {
        rtrs::client_options o = f.named("one");
        o.set_up = 1s;
        rtrs::client session(*f.shard, *f.pool, std::move(o), f.client_stats);
        const auto added = co_await session.add_path(*f.client_device, "server");
        BOOST_TEST(!added);
        co_await session.close();
    });
    for (const auto& ended : f.stats.ends)
        BOOST_TEST(ended.value() == 0u); // no path was begun
}

BOOST_AUTO_TEST_SUITE_END()
