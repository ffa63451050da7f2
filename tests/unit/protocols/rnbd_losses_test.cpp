// SPDX-License-Identifier: Apache-2.0
// A server that was started again and has lost what it had answered: no flush of a client succeeds over that. On loop and its virtual clock.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "late_completions.hpp"
#include "losing_disk.hpp"
#include "rnbd_world.hpp"

#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(rnbd_losses_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t block = rnbd_test::losing_disk::block;

// A disk of which the next call can be held, and then fails with the machine that it is in.
class held_disk final : public rnbd_test::losing_disk {
public:
    explicit held_disk(bool write_back) : losing_disk(64 * block, write_back) {}
    task<result<void>> write(std::uint64_t offset, std::span<const std::byte> from, bool through) override
    {
        if (through && fails_next != 0)
            co_return error::from_errno(std::exchange(fails_next, 0));
        if (offset == held_write) {
            const auto gone = co_await hold();
            if (!gone)
                co_return gone;
        }
        co_return co_await losing_disk::write(offset, from, through);
    }
    task<result<void>> flush() override
    {
        ++flushes;
        if (fails_next != 0)
            co_return error::from_errno(std::exchange(fails_next, 0));
        if (holds_flushes) {
            const auto gone = co_await hold();
            if (!gone)
                co_return gone;
        }
        auto done = co_await losing_disk::flush();
        if (flush_takes != duration::zero()) // what ends meanwhile is not of it
            co_await sleep_for(flush_takes);
        co_return done;
    }
    duration flush_takes{};
    std::optional<std::uint64_t> held_write; ///< the one at this place
    bool holds_flushes = false;
    int fails_next = 0; ///< errno of the next flush or write through
    unsigned held = 0;
    unsigned flushes = 0;
    event power_fails;

private:
    task<result<void>> hold()
    {
        ++held;
        co_await power_fails.wait_shielded();
        co_return error(std::errc::io_error, "the power failed");
    }
};

struct fixture : rnbd_test::world {
    explicit fixture(bool write_back = true) : disk(write_back)
    {
        client_device = fabric->make_context(profile);
        add("disk", disk);
        options.queue_depth = 16;
        options.chunk_size = 4 * block; // pieces of three blocks
    }
    void begin()
    {
        listener = std::move(*server_device->listen("server"));
        other = std::move(*server_device->listen("other"));
        serving = forgets ? std::make_unique<rtrs::server>(*shard, *pool, forgetful, group, options, stats)
                          : make_server();
        tasks.emplace(*shard);
        tasks->spawn([this] { return serving->serve(*server_device, *listener); });
        tasks->spawn([this] { return serving->serve(*server_device, *other); });
    }
    // Nothing that is under way is answered.
    task<void> fail()
    {
        listener->close();
        other->close();
        tasks->request_stop();
        co_await sleep_for(1ms); // until the paths have ended
        disk.power_fails.set();
        co_await tasks->join();
        serving.reset();
        disk.held_write.reset();
        disk.holds_flushes = false;
    }
    // The server ends, `meanwhile` is done to its disk, and it serves again.
    task<void> restart(std::function<void()> meanwhile)
    {
        co_await fail();
        co_await sleep_for(100ms);
        meanwhile();
        begin();
        co_await sleep_for(5s);
    }
    void run(const std::function<task<void>(rnbd::device&)>& body)
    {
        run_until_complete(*shard, whole(body));
        nothing_is_left();
    }
    task<void> whole(const std::function<task<void>(rnbd::device&)>& body)
    {
        begin();
        rtrs::client_options o;
        o.session = "client";
        rtrs::client session(*shard, *pool, std::move(o), client_stats);
        const auto added = co_await session.add_path(*client_device, "server");
        BOOST_REQUIRE(added);
        rnbd::client blocks(session);
        paths = &session;
        devices_of_ours = &blocks;
        const auto begun = co_await blocks.begin();
        BOOST_REQUIRE(begun);
        auto opened = co_await blocks.open("disk", rnbd::access_mode::read_write);
        BOOST_REQUIRE(opened);
        co_await body(**opened);
        opened->reset();
        co_await session.close();
        listener->close();
        other->close();
        co_await tasks->join();
        serving.reset();
    }

    held_disk disk;
    bool forgets = false;
    // As the kernel's server, which leaves old memory in the bytes that the protocol reserves: the same that another request left there before.
    rnbd_test::changing_service forgetful{blocks, [](std::span<std::byte> answer) {
                                              std::ranges::fill(answer.subspan(5, 31), std::byte(0x5a));
                                          }};
    std::unique_ptr<loop::context> client_device;
    std::unique_ptr<verbs::listener> listener;
    std::unique_ptr<verbs::listener> other; // for another path
    rtrs::client* paths = nullptr;
    rnbd::client* devices_of_ours = nullptr;
    std::unique_ptr<rtrs::server> serving;
    std::optional<scope> tasks;
};

const std::vector<std::byte> ones(block, std::byte(1));

bool is_loss(const result<void>& done) { return !done && rnbd::is_loss(done.error()); }

} // namespace

BOOST_AUTO_TEST_CASE(a_flush_fails_once_after_writes_were_lost)
{
    fixture f;
    f.run([&](rnbd::device& d) -> task<void> {
        BOOST_TEST((co_await d.write(0, ones)).has_value());
        BOOST_TEST((co_await d.flush()).has_value());
        BOOST_TEST((co_await d.write(block, ones)).has_value());
        co_await f.restart([&] { f.disk.lose_all(); });
        BOOST_TEST(d.losses() == 1u);
        const unsigned before = f.disk.flushes;
        const auto flushed = co_await d.flush();
        BOOST_TEST(is_loss(flushed));
        BOOST_TEST((flushed.error() == std::errc::io_error));
        BOOST_TEST(f.disk.flushes == before); // what was written since is for the next one
        BOOST_TEST((co_await d.write(block, ones)).has_value());
        BOOST_TEST((co_await d.flush()).has_value());
        BOOST_TEST(f.disk.flushes == before + 1);
        BOOST_TEST((f.disk.kept(1).front() == std::byte(1)));
        // What is flushed is safe, and so is nothing at all.
        co_await f.restart([&] { f.disk.lose_all(); });
        BOOST_TEST((co_await d.flush()).has_value());
        BOOST_TEST(d.losses() == 1u);
    });
}

BOOST_AUTO_TEST_CASE(a_run_that_goes_on_has_lost_nothing)
{
    fixture f;
    f.run([&](rnbd::device& d) -> task<void> {
        BOOST_TEST((co_await d.write(0, ones)).has_value());
        co_await f.restart([] {});
        BOOST_TEST((co_await d.flush()).has_value());
        // A client that lost its paths, and the server never noticed.
        BOOST_TEST((co_await d.write(block, ones)).has_value());
        f.client_device->remove_device();
        co_await sleep_for(1s);
        f.client_device->return_device();
        BOOST_TEST((co_await d.flush()).has_value());
        BOOST_TEST(d.losses() == 0u);
    });
    BOOST_TEST(f.client_stats.reconnects.value() == 2u);
}

// As kernels' servers, which tell no run, or what lies in their memory: it may be the same each time.
BOOST_DATA_TEST_CASE(a_server_that_shows_nothing_is_not_trusted, boost::unit_test::data::make({false, true}),
                     forgets)
{
    fixture f;
    f.forgets = forgets;
    f.disk.tells_run = forgets;
    f.run([&](rnbd::device& d) -> task<void> {
        BOOST_TEST(rnbd_test::succeeded(co_await d.write(0, ones)));
        co_await f.restart([] {});
        BOOST_TEST(is_loss(co_await d.flush()));
        BOOST_TEST(rnbd_test::succeeded(co_await d.flush()));
        co_await f.restart([] {});
        BOOST_TEST(rnbd_test::succeeded(co_await d.flush()));
    });
}

BOOST_AUTO_TEST_CASE(a_server_that_comes_to_tell_runs_is_not_trusted_at_first)
{
    fixture f;
    f.disk.tells_run = false;
    f.run([&](rnbd::device& d) -> task<void> {
        BOOST_TEST((co_await d.write(0, ones)).has_value());
        co_await f.restart([&] { f.disk.tells_run = true; });
        BOOST_TEST(is_loss(co_await d.flush()));
        BOOST_TEST((co_await d.write(0, ones)).has_value());
        co_await f.restart([] {});
        BOOST_TEST((co_await d.flush()).has_value());
    });
}

BOOST_AUTO_TEST_CASE(what_was_written_through_is_safe)
{
    fixture f;
    f.run([&](rnbd::device& d) -> task<void> {
        BOOST_TEST((co_await d.write(0, ones, true)).has_value());
        co_await f.restart([&] { f.disk.lose_all(); });
        BOOST_TEST((co_await d.flush()).has_value());
        std::vector<std::byte> in(block);
        BOOST_TEST((co_await d.read(0, in)).has_value());
        BOOST_TEST((in == ones));
    });
}

BOOST_DATA_TEST_CASE(discards_and_zeroes_are_changes_too, boost::unit_test::data::make({false, true}), zeroes)
{
    fixture f;
    f.run([&](rnbd::device& d) -> task<void> {
        result<void> done;
        if (zeroes)
            done = co_await d.write_zeroes(0, block);
        else
            done = co_await d.discard(0, block);
        BOOST_TEST(done.has_value());
        co_await f.restart([&] { f.disk.lose_all(); });
        BOOST_TEST(is_loss(co_await d.flush()));
    });
}

// Memory, as ramblk: it keeps all that it answers, and loses all of it with its process, what was flushed and written through too.
BOOST_AUTO_TEST_CASE(a_device_without_a_cache_that_lives_with_its_run)
{
    fixture f(false);
    f.run([&](rnbd::device& d) -> task<void> {
        BOOST_TEST((co_await d.write(0, ones, true)).has_value());
        BOOST_TEST((co_await d.flush()).has_value());
        co_await f.restart([&] { f.disk.lose_all(); });
        BOOST_TEST(is_loss(co_await d.flush()));
        BOOST_TEST((co_await d.flush()).has_value());
        co_await f.restart([&] { f.disk.lose_all(); }); // nothing has been written to this one
        BOOST_TEST((co_await d.flush()).has_value());
        BOOST_TEST((co_await d.write(0, ones)).has_value());
        co_await f.restart([&] { f.disk.tells_run = false; });
        BOOST_TEST(is_loss(co_await d.flush()));
    });
}

// A disk without a cache, at a server that tells no runs.
BOOST_AUTO_TEST_CASE(a_device_without_a_cache_that_tells_no_runs)
{
    fixture f(false);
    f.disk.tells_run = false;
    f.run([&](rnbd::device& d) -> task<void> {
        BOOST_TEST((co_await d.write(0, ones)).has_value());
        co_await f.restart([] {});
        BOOST_TEST((co_await d.flush()).has_value());
    });
}

// What was written before is of no run that anybody knows, and the disk without a cache kept it: it is not lost with a later run.
BOOST_AUTO_TEST_CASE(a_server_that_comes_to_tell_runs_of_a_device_without_a_cache)
{
    fixture f(false);
    f.disk.tells_run = false;
    f.run([&](rnbd::device& d) -> task<void> {
        BOOST_TEST((co_await d.write(0, ones)).has_value());
        co_await f.restart([&] { f.disk.tells_run = true; });
        BOOST_TEST((co_await d.flush()).has_value());
        co_await f.restart([&] { f.disk.lose_all(); }); // nothing was written to this one
        BOOST_TEST((co_await d.flush()).has_value());
        BOOST_TEST(d.losses() == 0u);
    });
}

// Both were sent again, and the server that has done them never knew what was lost.
BOOST_AUTO_TEST_CASE(all_flushes_that_were_under_way_fail)
{
    fixture f;
    f.run([&](rnbd::device& d) -> task<void> {
        BOOST_TEST((co_await d.write(0, ones)).has_value());
        f.disk.holds_flushes = true;
        std::vector<task<result<void>>> all;
        all.push_back(d.flush());
        all.push_back(d.flush());
        const auto fail = [&]() -> task<result<void>> {
            co_await sleep_for(10ms);
            BOOST_TEST(f.disk.held == 2u);
            co_await f.restart([&] { f.disk.lose_all(); });
            co_return result<void>();
        };
        all.push_back(fail());
        const auto done = co_await when_all(std::move(all));
        BOOST_TEST(f.disk.flushes == 4u);
        BOOST_TEST(is_loss(done[0]));
        BOOST_TEST(is_loss(done[1]));
        BOOST_TEST((co_await d.flush()).has_value());
    });
}

BOOST_AUTO_TEST_CASE(a_flush_covers_what_was_answered_before_it_began)
{
    fixture f;
    f.run([&](rnbd::device& d) -> task<void> {
        f.disk.flush_takes = 1s;
        scope flushing(*f.shard);
        result<void> flushed = error(std::errc::io_error);
        flushing.spawn([&]() -> task<void> { flushed = co_await d.flush(); });
        co_await sleep_for(500ms);
        BOOST_TEST((co_await d.write(0, ones)).has_value());
        co_await flushing.join();
        BOOST_TEST(flushed.has_value());
        co_await f.restart([&] { f.disk.lose_all(); });
        BOOST_TEST(is_loss(co_await d.flush()));
    });
}

// One piece was answered before, the other was sent again: the write succeeds, and half of it is not there.
BOOST_AUTO_TEST_CASE(a_write_of_which_a_piece_was_answered_before)
{
    fixture f;
    f.run([&](rnbd::device& d) -> task<void> {
        f.disk.held_write = 3 * block;
        const std::vector<std::byte> out(6 * block, std::byte(7));
        std::vector<task<result<void>>> both;
        both.push_back(d.write(0, out));
        const auto fail = [&]() -> task<result<void>> {
            co_await sleep_for(10ms);
            BOOST_TEST(f.disk.held == 1u);
            co_await f.restart([&] { f.disk.lose_all(); });
            co_return result<void>();
        };
        both.push_back(fail());
        const auto done = co_await when_all(std::move(both));
        BOOST_TEST(done[0].has_value());
        std::vector<std::byte> in(6 * block);
        BOOST_TEST((co_await d.read(0, in)).has_value());
        BOOST_TEST((in.front() == std::byte(0)));
        BOOST_TEST((in.back() == std::byte(7)));
        BOOST_TEST(is_loss(co_await d.flush()));
    });
}

// As fileblk: the kernel forgets what it could not write, and the device that is opened anew is of the same run and
// says that all is well.
BOOST_AUTO_TEST_CASE(a_sync_that_failed_is_remembered_when_the_server_begins_anew)
{
    fixture f;
    f.run([&](rnbd::device& d) -> task<void> {
        for (const bool through : {false, true}) {
            for (const int failed : {EIO, ENOSPC}) {
                const std::uint64_t before = d.losses();
                BOOST_TEST((co_await d.write(0, ones)).has_value());
                f.disk.fails_next = failed;
                result<void> done;
                if (through)
                    done = co_await d.write(block, ones, true);
                else
                    done = co_await d.flush();
                BOOST_TEST(done.error().errno_value() == failed);
                BOOST_TEST(!is_loss(done));
                co_await f.restart([] {});
                // A write through that finds no room leaves other writes as they are.
                const bool loses = !through || failed == EIO;
                BOOST_TEST(d.losses() == before + (loses ? 1 : 0));
                BOOST_TEST(is_loss(co_await d.flush(before)) == loses); // of another user
                BOOST_TEST(is_loss(co_await d.flush()) == loses);
                BOOST_TEST((co_await d.flush()).has_value());
                // It is told once.
                BOOST_TEST((co_await d.write(0, ones)).has_value());
                co_await f.restart([] {});
                BOOST_TEST((co_await d.flush()).has_value());
            }
        }
    });
}

BOOST_AUTO_TEST_CASE(a_sync_that_failed_loses_nothing_where_the_same_server_has_all)
{
    fixture f;
    f.run([&](rnbd::device& d) -> task<void> {
        BOOST_TEST((co_await d.write(0, ones)).has_value());
        f.disk.fails_next = EIO;
        BOOST_TEST(!(co_await d.flush()).has_value());
        BOOST_TEST((co_await d.flush()).has_value()); // it says so of what was written before
        BOOST_TEST((co_await d.write(0, ones)).has_value());
        co_await f.restart([] {});
        BOOST_TEST((co_await d.flush()).has_value());
        // Nothing was waiting for a flush.
        f.disk.fails_next = EIO;
        BOOST_TEST(!(co_await d.flush()).has_value());
        co_await f.restart([] {});
        BOOST_TEST((co_await d.flush()).has_value());
        BOOST_TEST(d.losses() == 0u);
    });
    fixture without_cache(false);
    without_cache.run([&](rnbd::device& d) -> task<void> {
        BOOST_TEST((co_await d.write(0, ones)).has_value());
        without_cache.disk.fails_next = EIO;
        BOOST_TEST(!(co_await d.flush()).has_value());
        co_await without_cache.restart([] {});
        BOOST_TEST((co_await d.flush()).has_value());
    });
}

// A flush that ended well began before the one that failed: it says nothing of what was answered since.
BOOST_AUTO_TEST_CASE(a_flush_that_began_before_the_failure_does_not_settle_it)
{
    fixture f;
    f.run([&](rnbd::device& d) -> task<void> {
        f.disk.flush_takes = 1s;
        scope flushing(*f.shard);
        result<void> flushed = error(std::errc::io_error);
        flushing.spawn([&]() -> task<void> { flushed = co_await d.flush(); });
        co_await sleep_for(500ms);
        BOOST_TEST((co_await d.write(0, ones)).has_value());
        f.disk.fails_next = EIO;
        BOOST_TEST(!(co_await d.flush()).has_value());
        co_await flushing.join();
        BOOST_TEST(flushed.has_value());
        f.disk.flush_takes = {};
        co_await f.restart([] {});
        BOOST_TEST(is_loss(co_await d.flush()));
    });
}

// What is sent again after the restart is a change like others, which the next restart may lose.
BOOST_AUTO_TEST_CASE(each_loss_is_told)
{
    fixture f;
    f.run([&](rnbd::device& d) -> task<void> {
        for (unsigned i = 1; i <= 3; ++i) {
            BOOST_TEST((co_await d.write(0, ones)).has_value());
            co_await f.restart([&] { f.disk.lose_all(); });
            BOOST_TEST(d.losses() == i);
        }
        BOOST_TEST(is_loss(co_await d.flush()));
        BOOST_TEST((co_await d.write(0, ones)).has_value());
        co_await f.restart([&] { f.disk.lose_all(); });
        BOOST_TEST(is_loss(co_await d.flush()));
        BOOST_TEST((co_await d.flush()).has_value());
    });
}

namespace {

// All by a path whose sends are not over before the test says so: the answers come, and nobody hears of them yet. Then the server begins anew, and the
// session by another path.
task<void> answer_late(fixture& f, rnbd_test::late_context& late, const std::function<task<void>()>& asks,
                       bool loses_all = true)
{
    const auto added = co_await f.paths->add_path(late, "other");
    BOOST_REQUIRE(added);
    BOOST_REQUIRE(co_await f.paths->remove_path("server"));
    late.hold();
    scope asking(*f.shard);
    asking.spawn(asks);
    co_await sleep_for(10ms);
    BOOST_TEST(asking.live() == 1u);
    co_await f.fail();
    co_await sleep_for(2min); // it is not heard of
    BOOST_TEST((f.paths->paths().front().state == rtrs::path_state::reconnecting));
    if (loses_all)
        f.disk.lose_all();
    f.begin();
    const auto again = co_await f.paths->add_path(*f.client_device, "server");
    BOOST_REQUIRE(again);
    co_await sleep_for(1s);
    BOOST_TEST(asking.live() == 1u);
    late.release();
    co_await asking.join();
}

} // namespace

// It was answered before the loss, and is heard of when the device is open in the next run.
BOOST_DATA_TEST_CASE(a_change_that_is_heard_of_late_is_of_the_run_that_answered_it,
                     boost::unit_test::data::make({0, 1, 2, 3}), how)
{
    const bool write_back = how < 2;
    const bool through = how == 1;
    fixture f(write_back);
    f.disk.tells_run = how != 3;
    const auto late_device = f.fabric->make_context(f.profile);
    rnbd_test::late_context late(*late_device);
    f.run([&](rnbd::device& d) -> task<void> {
        co_await answer_late(f, late, [&]() -> task<void> {
            BOOST_TEST(rnbd_test::succeeded(co_await d.write(0, ones, through)));
        });
        // Written through, or by a disk without a cache, it is there.
        const bool stays = through || how == 3;
        BOOST_TEST(d.losses() == (stays ? 0u : 1u));
        BOOST_TEST(is_loss(co_await d.flush()) == !stays);
        BOOST_TEST(rnbd_test::succeeded(co_await d.flush()));
    });
}

// The next server has said by then that it is the same run, and perhaps that all is flushed.
BOOST_DATA_TEST_CASE(a_flush_whose_failure_is_heard_of_late, boost::unit_test::data::make({false, true}),
                     loses_all)
{
    fixture f;
    const auto late_device = f.fabric->make_context(f.profile);
    rnbd_test::late_context late(*late_device);
    f.run([&](rnbd::device& d) -> task<void> {
        BOOST_TEST(rnbd_test::succeeded(co_await d.write(0, ones)));
        f.disk.fails_next = EIO;
        const auto flush = [&]() -> task<void> { BOOST_TEST(!rnbd_test::succeeded(co_await d.flush(99))); };
        co_await answer_late(f, late, flush, loses_all);
        BOOST_TEST(d.losses() == 1u);
        BOOST_TEST(is_loss(co_await d.flush()));
        BOOST_TEST(rnbd_test::succeeded(co_await d.flush()));
    });
}

// As does the number of a device, which means another one in the next session.
BOOST_AUTO_TEST_CASE(a_device_whose_opening_is_heard_of_late_is_opened_again)
{
    fixture f;
    const auto late_device = f.fabric->make_context(f.profile);
    rnbd_test::late_context late(*late_device);
    rnbd_test::losing_disk second(64 * block);
    rnbd_test::losing_disk third(64 * block);
    f.add("second", second);
    f.add("third", third);
    f.run([&](rnbd::device&) -> task<void> {
        auto leaves = co_await f.devices_of_ours->open("second", rnbd::access_mode::read_write);
        BOOST_REQUIRE(leaves);
        std::unique_ptr<rnbd::device> opened; // as number 2
        co_await answer_late(f, late, [&]() -> task<void> {
            auto made = co_await f.devices_of_ours->open("third", rnbd::access_mode::read_write);
            BOOST_REQUIRE(made);
            opened = std::move(*made);
        });
        BOOST_TEST((co_await f.devices_of_ours->close(std::move(*leaves))).has_value());
        BOOST_TEST((co_await opened->write(0, ones)).has_value());
        BOOST_TEST((co_await opened->flush()).has_value());
        BOOST_TEST((third.kept(0).front() == std::byte(1)));
        BOOST_TEST(f.devices.users_of(1).writers == 0u);
        BOOST_TEST(f.devices.users_of(2).writers == 1u);
        opened.reset();
    });
}

// As nbdkit's plugin has them.
BOOST_AUTO_TEST_CASE(each_user_of_a_device_is_told)
{
    fixture f;
    f.run([&](rnbd::device& d) -> task<void> {
        BOOST_TEST((co_await d.write(0, ones)).has_value());
        co_await f.restart([&] { f.disk.lose_all(); });
        BOOST_TEST(is_loss(co_await d.flush(0)));
        BOOST_TEST(is_loss(co_await d.flush(0)));
        BOOST_TEST((co_await d.flush(d.losses())).has_value());
        BOOST_TEST(is_loss(co_await d.flush())); // the device's own count is another one
        BOOST_TEST((co_await d.flush()).has_value());
        BOOST_TEST(is_loss(co_await d.flush(0)));
    });
}

BOOST_AUTO_TEST_SUITE_END()
