// SPDX-License-Identifier: Apache-2.0
// What the client of RNBD sends, refuses, and does with a device that is another one after a restart. On loop and its virtual clock.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "rnbd_world.hpp"

#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include <array>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(rnbd_client_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

// What it was asked for.
class recording_disk final : public storage::block_backend {
public:
    recording_disk()
    {
        told.size = 64 << 20;
        told.discard_granularity = 512;
        told.write_zeroes = true;
        told.write_back = true;
    }
    std::string_view kind() const noexcept override { return "recording"; }
    storage::block_properties properties() const noexcept override { return told; }
    task<result<void>> read(std::uint64_t offset, std::span<std::byte> into) override
    {
        return note("read", offset, into.size(), false);
    }
    task<result<void>> write(std::uint64_t offset, std::span<const std::byte> from, bool through) override
    {
        if (waits_for != nullptr)
            co_await waits_for->wait_shielded();
        co_return co_await note("write", offset, from.size(), through);
    }
    task<result<void>> flush() override { return note("flush", 0, 0, false); }
    task<result<void>> discard(std::uint64_t offset, std::uint64_t length) override
    {
        return note("discard", offset, length, false);
    }
    task<result<void>> write_zeroes(std::uint64_t offset, std::uint64_t length, bool keep) override
    {
        return note("zeroes", offset, length, keep);
    }
    /// "write 4096+512 flag" for each call since the last time.
    std::vector<std::string> calls() { return std::exchange(calls_, {}); }
    storage::block_properties told;
    event* waits_for = nullptr; ///< a write, before it is done

private:
    task<result<void>> note(const char* what, std::uint64_t offset, std::uint64_t length, bool flag)
    {
        calls_.push_back(std::string(what) + ' ' + std::to_string(offset) + '+' + std::to_string(length) +
                         (flag ? " flag" : ""));
        co_return result<void>();
    }
    std::vector<std::string> calls_;
};

struct fixture : rnbd_test::world {
    fixture()
    {
        client_device = fabric->make_context(profile);
        add("disk", disk);
        options.queue_depth = 16;
        options.chunk_size = 32768;
    }
    void begin(rtrs::service* by = nullptr)
    {
        listener = std::move(*server_device->listen("server"));
        serving = by == nullptr ? make_server()
                                : std::make_unique<rtrs::server>(*shard, *pool, *by, group, options, stats);
        tasks.emplace(*shard);
        tasks->spawn([this] { return serving->serve(*server_device, *listener); });
    }
    task<void> end()
    {
        listener->close();
        tasks->request_stop();
        co_await tasks->join();
        serving.reset();
    }
    task<void> restart()
    {
        co_await end();
        begin();
        co_await sleep_for(5s);
    }
    rtrs::client_options named(const char* name)
    {
        rtrs::client_options o;
        o.session = name;
        return o;
    }
    void run(const std::function<task<void>(rtrs::client&, rnbd::client&)>& body)
    {
        run_until_complete(*shard, whole(body));
        nothing_is_left();
    }
    task<void> whole(const std::function<task<void>(rtrs::client&, rnbd::client&)>& body)
    {
        begin();
        rtrs::client_options o = named("client");
        o.policy = policy;
        rtrs::client session(*shard, *pool, std::move(o), client_stats);
        const auto added = co_await session.add_path(*client_device, "server");
        BOOST_REQUIRE(added);
        {
            rnbd::client blocks(session);
            co_await body(session, blocks);
            co_await session.close();
        }
        co_await end();
    }

    recording_disk disk;
    rtrs::path_policy policy = rtrs::path_policy::min_inflight;
    std::unique_ptr<loop::context> client_device;
    std::unique_ptr<verbs::listener> listener;
    std::unique_ptr<rtrs::server> serving;
    std::optional<scope> tasks;
};

using strings = std::vector<std::string>;

bool is(const result<void>& done, std::errc why) { return !done && done.error() == why; }

} // namespace

BOOST_AUTO_TEST_CASE(each_operation_comes_to_the_device_as_it_was_asked_for)
{
    fixture f;
    f.run([&](rtrs::client& session, rnbd::client& blocks) -> task<void> {
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        rnbd::device& d = **opened;
        std::vector<std::byte> bytes(512);
        BOOST_TEST((co_await d.write(512, bytes)).has_value());
        BOOST_TEST((co_await d.write(1024, bytes, true)).has_value());
        BOOST_TEST((co_await d.read(1536, bytes)).has_value());
        BOOST_TEST((co_await d.flush()).has_value());
        BOOST_TEST((co_await d.discard(4096, 1 << 20)).has_value());
        BOOST_TEST((co_await d.write_zeroes(512, 4096)).has_value());
        BOOST_TEST((co_await d.write_zeroes(1024, 512, true)).has_value());
        const strings all = {"write 512+512",       "write 1024+512 flag",  "read 1536+512",
                             "flush 0+0",           "discard 4096+1048576", "zeroes 512+4096",
                             "zeroes 1024+512 flag"};
        BOOST_TEST(f.disk.calls() == all, boost::test_tools::per_element());
        // What is written through is so in each piece.
        const std::vector<std::byte> long_one(session.max_io_size() + 512);
        BOOST_TEST((co_await d.write(0, long_one, true)).has_value());
        const strings pieces = {"write 0+28672 flag", "write 28672+512 flag"};
        BOOST_TEST(f.disk.calls() == pieces, boost::test_tools::per_element());
        // The server zeroes 4 MiB at once.
        BOOST_TEST((co_await d.write_zeroes(512, 9 << 20, true)).has_value());
        const strings zeroes = {"zeroes 512+4194304 flag", "zeroes 4194816+4194304 flag",
                                "zeroes 8389120+1048576 flag"};
        BOOST_TEST(f.disk.calls() == zeroes, boost::test_tools::per_element());
    });
}

BOOST_AUTO_TEST_CASE(what_a_device_can_not_do_is_not_asked_for)
{
    fixture f;
    f.disk.told.discard_granularity = 0;
    f.disk.told.write_zeroes = false;
    f.run([&](rtrs::client&, rnbd::client& blocks) -> task<void> {
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        rnbd::device& d = **opened;
        BOOST_TEST(d.properties().discard_granularity == 0u);
        BOOST_TEST(!d.properties().write_zeroes);
        BOOST_TEST(d.properties().write_back);
        BOOST_TEST(is(co_await d.discard(0, 512), std::errc::operation_not_supported));
        BOOST_TEST(is(co_await d.write_zeroes(0, 512), std::errc::operation_not_supported));
        auto reader = co_await blocks.open("disk", rnbd::access_mode::read_only);
        BOOST_REQUIRE(reader);
        BOOST_TEST((*reader)->properties().read_only);
        const std::vector<std::byte> bytes(512);
        BOOST_TEST(is(co_await (*reader)->write(0, bytes), std::errc::read_only_file_system));
        BOOST_TEST(f.disk.calls().empty());
        reader->reset();
    });
}

BOOST_AUTO_TEST_CASE(names_that_are_none_are_not_asked_for)
{
    fixture f;
    f.run([&](rtrs::client&, rnbd::client& blocks) -> task<void> {
        for (const std::string& name : {std::string(), std::string(255, 'x')}) {
            const auto opened = co_await blocks.open(name, rnbd::access_mode::read_only);
            BOOST_TEST((!opened && opened.error() == std::errc::invalid_argument));
        }
        BOOST_TEST(f.device_stats.refused_opens.value() == 0u);
        const std::string name(254, 'x');
        const auto longest = co_await blocks.open(name, rnbd::access_mode::read_only);
        BOOST_TEST((!longest && longest.error() == std::errc::no_such_file_or_directory));
    });
}

BOOST_AUTO_TEST_CASE(a_server_of_another_version)
{
    fixture f;
    rnbd_test::changing_service service(f.blocks,
                                        [](std::span<std::byte> answer) { answer[4] = std::byte(1); });
    f.run([&](rtrs::client&, rnbd::client& blocks) -> task<void> {
        BOOST_TEST((co_await blocks.begin()).has_value());
        co_await f.end();
        f.begin(&service);
        const auto begun = co_await blocks.begin();
        BOOST_TEST(is(begun, std::errc::protocol_not_supported));
        BOOST_TEST(begun.error().detail() == 1u);
    });
}

// Blocks have 512 to 4096 bytes, a power of two. The server says what its disk says.
BOOST_DATA_TEST_CASE(blocks_that_are_none, boost::unit_test::data::make({256u, 1000u, 8192u}), size)
{
    fixture f;
    f.disk.told.block_size = size;
    f.run([&](rtrs::client&, rnbd::client& blocks) -> task<void> {
        const auto opened = co_await blocks.open("disk", rnbd::access_mode::read_only);
        BOOST_TEST((!opened && opened.error() == std::errc::protocol_error));
    });
}

BOOST_AUTO_TEST_CASE(a_device_that_is_closed_is_free_while_its_session_lives)
{
    fixture f;
    f.run([&](rtrs::client&, rnbd::client& blocks) -> task<void> {
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        BOOST_TEST(f.devices.users_of(0).writers == 1u);
        BOOST_TEST((co_await blocks.close(std::move(*opened))).has_value());
        BOOST_TEST(f.devices.users_of(0).writers == 0u);
        // After a restart nobody opens it again.
        co_await f.restart();
        BOOST_TEST(f.devices.users_of(0).writers == 0u);
    });
}

// One path has a request under way. Which takes those that follow?
BOOST_DATA_TEST_CASE(a_request_takes_the_path_that_the_policy_says,
                     boost::unit_test::data::make({true, false}), in_turn)
{
    fixture f;
    event goes_on;
    f.policy = in_turn ? rtrs::path_policy::round_robin : rtrs::path_policy::min_inflight;
    f.disk.waits_for = &goes_on;
    auto second_device = f.fabric->make_context(f.profile);
    f.run([&](rtrs::client& session, rnbd::client& blocks) -> task<void> {
        auto other = std::move(*f.server_device->listen("other"));
        scope s(*f.shard);
        s.spawn([&] { return f.serving->serve(*f.server_device, *other); });
        const auto added = co_await session.add_path(*second_device, "other");
        BOOST_REQUIRE(added);
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        scope writing(*f.shard);
        writing.spawn([&]() -> task<void> {
            const std::vector<std::byte> bytes(512);
            BOOST_TEST(rnbd_test::succeeded(co_await (*opened)->write(0, bytes)));
        });
        co_await sleep_for(1ms);
        const auto reads_by_the_busy_path = [&] {
            std::uint64_t reads = 0;
            f.client_stats.by_path.each([&](const auto&, const auto&, const rtrs::path_counters& c) {
                reads += c.in_flight.value() != 0 ? c.reads.requests.value() : 0;
            });
            return reads;
        };
        const std::uint64_t before = reads_by_the_busy_path();
        std::vector<std::byte> bytes(512);
        for (int i = 0; i < 10; ++i)
            BOOST_TEST(rnbd_test::succeeded(co_await (*opened)->read(0, bytes)));
        BOOST_TEST(reads_by_the_busy_path() - before == (in_turn ? 5u : 0u));
        goes_on.set();
        co_await writing.join();
        opened->reset();
        co_await session.close();
        other->close();
        co_await s.join();
    });
}

// --- after a restart -----------------------------------------------------------------------------------

BOOST_AUTO_TEST_CASE(a_device_that_has_grown_is_as_it_is_now)
{
    fixture f;
    f.run([&](rtrs::client&, rnbd::client& blocks) -> task<void> {
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        co_await f.end();
        f.disk.told.size *= 2;
        f.disk.told.write_zeroes = false;
        f.begin();
        co_await sleep_for(5s);
        rnbd::device& d = **opened;
        BOOST_TEST(d.properties().size == 128u << 20);
        BOOST_TEST(is(co_await d.write_zeroes(0, 512), std::errc::operation_not_supported));
        std::vector<std::byte> bytes(512);
        BOOST_TEST((co_await d.read(100 << 20, bytes)).has_value());
    });
}

// Its user counts on what it was: all fails, until it is that again.
BOOST_DATA_TEST_CASE(a_device_that_is_another_one, boost::unit_test::data::make({0, 1, 2}), how)
{
    fixture f;
    f.run([&](rtrs::client&, rnbd::client& blocks) -> task<void> {
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        rnbd::device& d = **opened;
        const storage::block_properties before = f.disk.told;
        co_await f.end();
        if (how == 0)
            f.disk.told.size /= 2;
        else if (how == 1)
            f.disk.told.block_size = 4096;
        else
            f.disk.told.read_only = true;
        f.begin();
        co_await sleep_for(5s);
        const std::errc why = how == 2 ? std::errc::read_only_file_system : std::errc(ESTALE);
        const std::vector<std::byte> bytes(4096);
        BOOST_TEST(is(co_await d.write(0, bytes), why));
        BOOST_TEST(is(co_await d.flush(), why));
        BOOST_TEST(f.disk.calls().empty());
        co_await f.end();
        f.disk.told = before;
        f.begin();
        co_await sleep_for(5s);
        BOOST_TEST(rnbd_test::succeeded(co_await d.write(0, bytes)));
    });
}

// Our own last session perhaps, which the server has not missed yet.
BOOST_DATA_TEST_CASE(a_device_that_somebody_else_has_is_waited_for,
                     boost::unit_test::data::make({true, false}), leaves)
{
    fixture f;
    f.run([&](rtrs::client& session, rnbd::client& blocks) -> task<void> {
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        co_await f.end();
        f.begin();
        rtrs::client other(*f.shard, *f.pool, f.named("other"), f.client_stats);
        const auto added = co_await other.add_path(*f.client_device, "server");
        BOOST_REQUIRE(added);
        rnbd::client other_blocks(other);
        auto taken = co_await other_blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(taken);
        // A request waits meanwhile.
        const time_point begun = f.clock.now();
        std::optional<time_point> ended;
        result<void> done;
        scope writing(*f.shard);
        writing.spawn([&]() -> task<void> {
            const std::vector<std::byte> bytes(512);
            done = co_await (*opened)->write(0, bytes);
            ended = f.clock.now();
        });
        co_await sleep_for(20s);
        BOOST_TEST((session.paths().front().state == rtrs::path_state::connected));
        BOOST_TEST(!ended);
        if (leaves)
            BOOST_TEST(rnbd_test::succeeded(co_await other_blocks.close(std::move(*taken))));
        co_await writing.join();
        const duration took = *ended - begun;
        if (leaves) {
            BOOST_TEST(done.has_value());
            BOOST_TEST((took >= 20s && took < 21s));
        } else {
            BOOST_TEST(is(done, std::errc::operation_not_permitted));
            BOOST_TEST((took >= rnbd::client::reopen_patience && took < rnbd::client::reopen_patience + 2s));
            taken->reset();
        }
        co_await other.close();
    });
}

// Whoever had it open fails, also when the other one has left: that one may have changed what the first one knows of
// it. A new user may begin.
// Also while the server begins anew once more.
BOOST_DATA_TEST_CASE(a_device_that_somebody_else_had_is_for_a_new_user,
                     boost::unit_test::data::make({false, true}), restarts)
{
    fixture f;
    f.run([&](rtrs::client&, rnbd::client& blocks) -> task<void> {
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        rnbd::device& d = **opened;
        const std::vector<std::byte> bytes(512);
        BOOST_TEST(rnbd_test::succeeded(co_await d.write(0, bytes)));
        co_await f.end();
        f.disk.told.size /= 2;
        ++f.disk.told.run;
        f.begin();
        rtrs::client other(*f.shard, *f.pool, f.named("other"), f.client_stats);
        const auto added = co_await other.add_path(*f.client_device, "server");
        BOOST_REQUIRE(added);
        rnbd::client other_blocks(other);
        auto taken = co_await other_blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(taken);
        BOOST_TEST(is(co_await d.write(0, bytes), std::errc::operation_not_permitted));
        BOOST_TEST(!d.usable());
        BOOST_TEST(is(co_await d.begin_anew(), std::errc::operation_not_permitted));
        BOOST_TEST(!d.usable());
        BOOST_TEST(rnbd_test::succeeded(co_await other_blocks.close(std::move(*taken))));
        BOOST_TEST(is(co_await d.write(0, bytes), std::errc::operation_not_permitted));
        // Nor does it come back to them with a later session.
        co_await f.end();
        f.begin();
        BOOST_TEST(is(co_await d.write(0, bytes), std::errc::operation_not_permitted));
        BOOST_TEST(!d.usable());
        result<void> done = error(std::errc::io_error);
        if (restarts) {
            co_await f.end();
            scope asking(*f.shard);
            asking.spawn([&]() -> task<void> { done = co_await d.begin_anew(); });
            co_await sleep_for(1s);
            f.begin();
            co_await asking.join();
        } else {
            done = co_await d.begin_anew();
        }
        BOOST_TEST(done.has_value());
        BOOST_TEST(d.usable());
        BOOST_TEST(d.properties().size == 32u << 20);
        BOOST_TEST(rnbd_test::succeeded(co_await d.write(0, bytes)));
        const auto flushed = co_await d.flush();
        BOOST_TEST((!flushed && rnbd::is_loss(flushed.error())));
        BOOST_TEST(rnbd_test::succeeded(co_await d.begin_anew())); // it is open
        co_await other.close();
    });
}

// It gives out the numbers from 0 again: one from before names another device now.
BOOST_AUTO_TEST_CASE(a_device_that_is_closed_while_the_session_begins_anew_closes_no_other)
{
    fixture f;
    recording_disk second;
    recording_disk third;
    f.add("second", second);
    f.add("third", third);
    f.run([&](rtrs::client&, rnbd::client& blocks) -> task<void> {
        auto first = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(first);
        auto kept = co_await blocks.open("second", rnbd::access_mode::read_write);
        BOOST_REQUIRE(kept);
        BOOST_TEST((co_await blocks.close(std::move(*first))).has_value());
        auto leaves = co_await blocks.open("third", rnbd::access_mode::read_write); // 0, as the first was
        BOOST_REQUIRE(leaves);
        co_await f.end();
        f.begin();
        rtrs::client other(*f.shard, *f.pool, f.named("other"), f.client_stats);
        const auto added = co_await other.add_path(*f.client_device, "server");
        BOOST_REQUIRE(added);
        rnbd::client other_blocks(other);
        auto taken = co_await other_blocks.open("third", rnbd::access_mode::read_write);
        BOOST_REQUIRE(taken);
        co_await sleep_for(5s);
        BOOST_TEST(f.devices.users_of(1).writers == 1u); // 0 now
        BOOST_TEST((co_await blocks.close(std::move(*leaves))).has_value());
        BOOST_TEST(f.devices.users_of(1).writers == 1u);
        BOOST_TEST((co_await other_blocks.close(std::move(*taken))).has_value());
        co_await sleep_for(5s);
        BOOST_TEST(f.devices.users_of(2).writers == 0u);
        const std::vector<std::byte> bytes(512);
        BOOST_TEST((co_await (*kept)->write(0, bytes)).has_value());
        const strings all = {"write 0+512"};
        BOOST_TEST(second.calls() == all, boost::test_tools::per_element());
        BOOST_TEST(third.calls().empty());
        kept->reset();
        co_await other.close();
    });
}

// The server has opened it again by then, and its number is on the way.
// It had the number that another one has now, whose CLOSE goes out all the same.
BOOST_AUTO_TEST_CASE(a_device_that_could_not_be_opened_again_has_no_number)
{
    fixture f;
    recording_disk second;
    recording_disk third;
    f.add("second", second);
    f.add("third", third);
    f.run([&](rtrs::client&, rnbd::client& blocks) -> task<void> {
        auto first = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(first);
        auto kept = co_await blocks.open("second", rnbd::access_mode::read_write); // 1, and later 0
        BOOST_REQUIRE(kept);
        BOOST_TEST((co_await blocks.close(std::move(*first))).has_value());
        auto taken = co_await blocks.open("third", rnbd::access_mode::read_write); // 0
        BOOST_REQUIRE(taken);
        co_await f.end();
        f.begin();
        rtrs::client other(*f.shard, *f.pool, f.named("other"), f.client_stats);
        const auto added = co_await other.add_path(*f.client_device, "server");
        BOOST_REQUIRE(added);
        rnbd::client other_blocks(other);
        auto others = co_await other_blocks.open("third", rnbd::access_mode::read_write);
        BOOST_REQUIRE(others);
        co_await sleep_for(10min); // longer than anybody waits for it
        BOOST_TEST(f.devices.users_of(1).writers == 1u);
        BOOST_TEST((co_await blocks.close(std::move(*kept))).has_value());
        BOOST_TEST(f.devices.users_of(1).writers == 0u);
        BOOST_TEST((co_await blocks.close(std::move(*taken))).has_value());
        BOOST_TEST(f.devices.users_of(2).writers == 1u);
        BOOST_TEST((co_await other_blocks.close(std::move(*others))).has_value());
        co_await other.close();
    });
}

BOOST_AUTO_TEST_CASE(a_device_that_is_closed_while_its_number_is_on_the_way_is_given_back)
{
    fixture f;
    recording_disk second;
    f.add("second", second);
    f.run([&](rtrs::client&, rnbd::client& blocks) -> task<void> {
        auto kept = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(kept);
        auto leaves = co_await blocks.open("second", rnbd::access_mode::read_write);
        BOOST_REQUIRE(leaves);
        loop::conditions slow;
        slow.latency = 50ms;
        f.fabric->set_conditions(slow);
        co_await f.end();
        f.begin();
        while (f.devices.users_of(1).writers == 0)
            co_await sleep_for(1ms);
        BOOST_TEST((co_await blocks.close(std::move(*leaves))).has_value());
        co_await sleep_for(1s);
        BOOST_TEST(f.devices.users_of(0).writers == 1u);
        BOOST_TEST(f.devices.users_of(1).writers == 0u);
        const std::vector<std::byte> bytes(512);
        BOOST_TEST((co_await (*kept)->write(0, bytes)).has_value());
        kept->reset();
    });
}

BOOST_AUTO_TEST_CASE(a_device_that_is_open_twice_stays_open_when_one_of_them_is_closed)
{
    fixture f;
    f.run([&](rtrs::client&, rnbd::client& blocks) -> task<void> {
        auto one = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(one);
        auto two = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(two);
        BOOST_TEST((co_await blocks.close(std::move(*one))).has_value());
        BOOST_TEST(f.devices.users_of(0).writers == 1u);
        const std::vector<std::byte> bytes(512);
        BOOST_TEST((co_await (*two)->write(0, bytes)).has_value());
        BOOST_TEST((co_await blocks.close(std::move(*two))).has_value());
        BOOST_TEST(f.devices.users_of(0).writers == 0u);
    });
}

// One is another device now; its user closes it all the same.
BOOST_AUTO_TEST_CASE(a_device_that_is_another_one_is_closed_by_its_new_number)
{
    fixture f;
    recording_disk second;
    f.add("second", second);
    f.run([&](rtrs::client&, rnbd::client& blocks) -> task<void> {
        auto first = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(first);
        auto kept = co_await blocks.open("second", rnbd::access_mode::read_write);
        BOOST_REQUIRE(kept);
        BOOST_TEST((co_await blocks.close(std::move(*first))).has_value());
        auto changes = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(changes);
        co_await f.end();
        f.disk.told.size /= 2;
        f.begin();
        co_await sleep_for(5s);
        BOOST_TEST((co_await blocks.close(std::move(*changes))).has_value());
        BOOST_TEST(f.devices.users_of(0).writers == 0u);
        BOOST_TEST(f.devices.users_of(1).writers == 1u);
        kept->reset();
    });
}

BOOST_AUTO_TEST_CASE(a_session_that_breaks_again_opens_its_devices_once)
{
    fixture f;
    f.run([&](rtrs::client&, rnbd::client& blocks) -> task<void> {
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        co_await f.end();
        f.begin();
        auto other_device = f.fabric->make_context(f.profile);
        rtrs::client other(*f.shard, *f.pool, f.named("other"), f.client_stats);
        const auto added = co_await other.add_path(*other_device, "server");
        BOOST_REQUIRE(added);
        rnbd::client other_blocks(other);
        auto taken = co_await other_blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(taken);
        co_await sleep_for(5s);
        f.client_device->remove_device();
        co_await sleep_for(10ms);
        f.client_device->return_device();
        co_await sleep_for(2s);
        const std::uint64_t before = f.device_stats.refused_in_use.value();
        co_await sleep_for(10s);
        const std::uint64_t asked = f.device_stats.refused_in_use.value() - before;
        BOOST_TEST((asked >= 19u && asked <= 21u)); // each half second
        taken->reset();
        co_await other.close();
        opened->reset();
    });
}

BOOST_AUTO_TEST_SUITE_END()
