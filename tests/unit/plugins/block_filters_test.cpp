// SPDX-License-Identifier: Apache-2.0
// The filters delay, error and limit on block devices.
#include "filter_fixture.hpp"

#include <verbena/plugins/delay.hpp>
#include <verbena/plugins/error.hpp>
#include <verbena/plugins/limit.hpp>
#include <verbena/plugins/ramblk.hpp>

#include <cerrno>
#include <limits>

BOOST_AUTO_TEST_SUITE(block_filters_test)

using namespace verbena;
using namespace verbena::test;
using namespace verbena::filters;

namespace {

constexpr std::size_t block = 512;

struct fixture : filter_fixture {
    static std::unique_ptr<storage::block_backend> beneath()
    {
        ramblk::ramblk_options o;
        o.size = 1 << 20;
        return std::move(*ramblk::open_ramblk(o));
    }
    template<class Filter>
    Filter& use(result<std::unique_ptr<Filter>> made)
    {
        BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
        Filter& filter = **made;
        disk = std::move(*made);
        return filter;
    }
    block_limit_filter& limit(const limit_options& o) { return use(open_limit(beneath(), o)); }
    block_error_filter& inject(const block_error_options& o) { return use(open_error(beneath(), o, pool)); }

    static task<result<void>> read(storage::block_backend& d, std::size_t size)
    {
        std::vector<std::byte> space(size);
        co_return co_await d.read(0, space);
    }
    static task<result<void>> write(storage::block_backend& d, std::size_t size, std::uint64_t offset = 0)
    {
        const std::vector<std::byte> bytes(size, std::byte('y'));
        co_return co_await d.write(offset, bytes, false);
    }
    duration takes(task<result<void>> t)
    {
        const time_point start = clock.now();
        BOOST_TEST(!fails_with(std::move(t)));
        return clock.now() - start;
    }
    /// One character for each block: what is there, or . for zero.
    std::string content(std::size_t blocks)
    {
        std::vector<std::byte> all(blocks * block);
        BOOST_REQUIRE(run(disk->read(0, all)));
        std::string text;
        for (std::size_t i = 0; i < blocks; ++i)
            text += all[i * block] == std::byte(0) ? '.' : char(all[i * block]);
        return text;
    }
    duration since_start(std::size_t n) const { return outcomes[n].when - start; }

    std::unique_ptr<storage::block_backend> disk;
    const time_point start = clock.now();
};

std::error_code number(int e) { return {e, std::system_category()}; }

block_error_options each(std::uint64_t n)
{
    block_error_options o;
    o.every = n;
    return o;
}

} // namespace

BOOST_FIXTURE_TEST_CASE(each_group_has_a_delay_of_its_own, fixture)
{
    delay_options o;
    o.read = {3ms, 3ms};
    o.write = {20ms, 20ms};
    o.sync = {100ms, 100ms};
    o.metadata = {1s, 1s};
    block_delay_filter& filter = use(open_delay(beneath(), o));
    BOOST_TEST((takes(read(*disk, block)) == 3ms));
    BOOST_TEST((takes(write(*disk, block)) == 20ms));
    BOOST_TEST((takes(disk->flush()) == 100ms));
    BOOST_TEST((takes(disk->discard(0, block)) == 1s));
    BOOST_TEST((takes(disk->write_zeroes(0, block, true)) == 1s));
    BOOST_TEST(filter.counters().delayed == 5u);
    BOOST_TEST(filter.counters().waiting == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_stop_ends_a_delay_and_nothing_is_done, fixture)
{
    delay_options o;
    o.write = {1h, 1h};
    o.waiting = 1;
    block_delay_filter& filter = use(open_delay(beneath(), o));
    const auto held = begin(write(*disk, block));
    pass(1s);
    BOOST_TEST((fails_with(write(*disk, block)) == number(EBUSY))); // one more than may wait
    stop_all();
    BOOST_TEST((outcomes[held].code == number(ECANCELED)));
    BOOST_TEST(content(1) == ".");
    BOOST_TEST(filter.counters().cancelled == 1u);
    BOOST_TEST(filter.counters().refused == 1u);
}

BOOST_FIXTURE_TEST_CASE(what_fails_is_not_done, fixture)
{
    block_error_options o = each(2);
    o.operations = storage::block_operation::write;
    o.code = number(ENOSPC);
    block_error_filter& filter = inject(o);
    BOOST_TEST(!fails_with(write(*disk, block, 0)));
    BOOST_TEST((fails_with(write(*disk, block, block)) == number(ENOSPC)));
    BOOST_TEST(!fails_with(write(*disk, block, 2 * block)));
    BOOST_TEST(content(3) == "y.y"); // reads were not chosen
    BOOST_TEST(filter.counters().candidates == 3u);
    BOOST_TEST(filter.counters().injected == 1u);
}

BOOST_FIXTURE_TEST_CASE(each_operation_may_be_chosen, fixture)
{
    using op_kind = storage::block_operation;
    for (const auto op :
         {op_kind::read, op_kind::write, op_kind::flush, op_kind::discard, op_kind::write_zeroes}) {
        block_error_options o = each(1);
        o.operations = op;
        inject(o);
        const auto fate = [&](op_kind which, task<result<void>> t) {
            BOOST_TEST(bool(fails_with(std::move(t))) == (which == op));
        };
        fate(op_kind::read, read(*disk, block));
        fate(op_kind::write, write(*disk, block));
        fate(op_kind::flush, disk->flush());
        fate(op_kind::discard, disk->discard(0, block));
        fate(op_kind::write_zeroes, disk->write_zeroes(0, block, false));
    }
    const auto changes = storage::parse_block_operations("changes").value();
    BOOST_TEST(changes.contains(op_kind::write_zeroes));
    BOOST_TEST(!changes.contains(op_kind::flush));
    BOOST_TEST(
        (storage::parse_block_operations("sync").value() == storage::block_operation_set(op_kind::flush)));
    BOOST_TEST((storage::parse_block_operations("all").value() == storage::block_operation_set::all()));
    BOOST_TEST((storage::parse_block_operations("getattr").error() == std::errc::invalid_argument));
    BOOST_TEST(to_string(op_kind::write_zeroes) == "write_zeroes");
}

BOOST_FIXTURE_TEST_CASE(half_of_what_fails_may_be_done, fixture)
{
    block_error_options o = each(1);
    o.operations = storage::block_operation_set::changes();
    o.half = true;
    inject(o);
    BOOST_TEST((fails_with(write(*disk, 5 * block)) == number(EIO)));
    BOOST_TEST(content(6) == "yy....");
    BOOST_TEST((fails_with(disk->write_zeroes(0, 2 * block, false)) == number(EIO)));
    BOOST_TEST(content(3) == ".y.");
    BOOST_TEST((fails_with(write(*disk, block)) == number(EIO))); // half of one is none
    BOOST_TEST(content(1) == ".");
}

BOOST_FIXTURE_TEST_CASE(what_fails_may_stall_first, fixture)
{
    block_error_options o = each(2);
    o.operations = storage::block_operation::write;
    o.stall = 30s;
    inject(o);
    BOOST_TEST((takes(write(*disk, block)) == 0s));
    BOOST_TEST((fails_with(write(*disk, block)) == number(EIO)));
    BOOST_TEST((clock.now() - start == 30s));
    o.code = {};
    inject(o);
    BOOST_TEST((takes(write(*disk, block)) == 0s));
    BOOST_TEST((takes(write(*disk, block, block)) == 30s));
    BOOST_TEST(content(2) == "yy");
    BOOST_TEST(!fails_with(write(*disk, block)));
    const auto held = begin(write(*disk, block, 2 * block));
    pass(1s);
    stop_all();
    BOOST_TEST((outcomes[held].code == number(ECANCELED)));
    BOOST_TEST(content(3) == "yy.");
}

BOOST_FIXTURE_TEST_CASE(options_out_of_their_range_are_refused, fixture)
{
    block_error_options o;
    o.code = {};
    BOOST_TEST((open_error(beneath(), o, pool).error() == std::errc::invalid_argument));
    o.stall = -1ms;
    BOOST_TEST((open_error(beneath(), o, pool).error() == std::errc::invalid_argument));
    o.stall = longest_stall + 1ms;
    BOOST_TEST((open_error(beneath(), o, pool).error() == std::errc::invalid_argument));
    o.stall = longest_stall;
    o.probability = std::numeric_limits<double>::quiet_NaN();
    BOOST_TEST((open_error(beneath(), o, pool).error() == std::errc::invalid_argument));
    delay_options d;
    d.read = {2ms, 1ms};
    BOOST_TEST((open_delay(beneath(), d).error() == std::errc::invalid_argument));
    limit_options l;
    l.total_bytes = 1;
    BOOST_TEST((open_limit(beneath(), l).error() == std::errc::invalid_argument));
}

BOOST_FIXTURE_TEST_CASE(a_device_has_a_burst_and_then_its_rate, fixture)
{
    limit_options o;
    o.total_operations = 10;
    block_limit_filter& filter = limit(o);
    for (int i = 0; i < 10; ++i)
        BOOST_TEST((takes(disk->flush()) == 0s));
    BOOST_TEST((takes(read(*disk, block)) == 100ms));
    BOOST_TEST((takes(write(*disk, block)) == 100ms));
    BOOST_TEST((takes(disk->discard(0, block)) == 100ms));
    BOOST_TEST((takes(disk->write_zeroes(0, block, false)) == 100ms));
    BOOST_TEST(filter.counters().passed == 10u);
    BOOST_TEST(filter.counters().waited == 4u);
}

BOOST_FIXTURE_TEST_CASE(bytes_are_those_that_are_read_written_and_zeroed, fixture)
{
    limit_options o;
    o.total_bytes = 100 * block;
    limit(o);
    BOOST_TEST((takes(write(*disk, 60 * block)) == 0s));
    BOOST_TEST((takes(read(*disk, 40 * block)) == 0s));
    BOOST_TEST((takes(disk->flush()) == 0s));
    BOOST_TEST((takes(disk->discard(0, 100 * block)) == 0s));
    BOOST_TEST((takes(disk->write_zeroes(0, 50 * block, true)) == 500ms));
    BOOST_TEST((takes(read(*disk, 50 * block)) == 500ms));
    // What fails moves nothing.
    const auto beyond = begin(disk->write_zeroes(1 << 20, 50 * block, false));
    pass(500ms + 1ns);
    BOOST_TEST((outcomes[beyond].code == std::errc::invalid_argument));
    BOOST_TEST((takes(read(*disk, 50 * block)) < 1us));
}

BOOST_FIXTURE_TEST_CASE(a_client_over_its_limit_holds_up_nobody_else, fixture)
{
    limit_options o;
    o.client_operations = 1;
    block_limit_filter& filter = limit(o);
    const auto one = disk->for_client("one");
    const auto two = disk->for_client("two");
    const auto again = disk->for_client("one");
    BOOST_REQUIRE(one);
    BOOST_TEST((takes(write(*one, block)) == 0s));
    const auto first = begin(write(*one, block, block));
    const auto second = begin(again->flush()); // the same client
    BOOST_TEST((takes(read(*two, block)) == 0s));
    pass(3s);
    BOOST_TEST((since_start(first) == 1s));
    BOOST_TEST((since_start(second) == 2s));
    BOOST_TEST(filter.counters().clients == 2u);
    BOOST_TEST(one->kind() == "ramblk");
    BOOST_TEST(one->properties().size == 1u << 20);
}

// What lives in memory lives with its run, which a filter is not to hide.
BOOST_FIXTURE_TEST_CASE(a_ramblk_has_a_run_of_its_own, fixture)
{
    auto below = beneath();
    const std::uint64_t run = below->properties().run;
    BOOST_TEST(run != 0u);
    BOOST_TEST(beneath()->properties().run != run);
    limit_options o;
    o.client_operations = 1;
    use(open_limit(std::move(below), o));
    BOOST_TEST(disk->properties().run == run);
    BOOST_TEST(disk->for_client("one")->properties().run == run);
}

BOOST_FIXTURE_TEST_CASE(at_the_devices_limit_clients_take_turns, fixture)
{
    limit_options o;
    o.total_operations = 1;
    limit(o);
    const auto many = disk->for_client("many");
    const auto few = disk->for_client("few");
    BOOST_TEST((takes(disk->flush()) == 0s)); // the burst
    for (int i = 0; i < 3; ++i)
        begin(many->flush());
    const auto last = begin(few->flush());
    pass(5s);
    BOOST_TEST((since_start(last) == 2s));
    BOOST_TEST((since_start(2) == 4s));
}

BOOST_FIXTURE_TEST_CASE(a_stop_ends_a_wait_for_a_limit, fixture)
{
    limit_options o;
    o.total_operations = 1;
    block_limit_filter& filter = limit(o);
    BOOST_TEST((takes(disk->flush()) == 0s));
    const auto held = begin(write(*disk, block));
    pass(1ms);
    stop_all();
    BOOST_TEST((outcomes[held].code == number(ECANCELED)));
    BOOST_TEST(content(1) == "."); // after a second
    BOOST_TEST(filter.counters().cancelled == 1u);
}

BOOST_FIXTURE_TEST_CASE(filters_stack, fixture)
{
    limit_options o;
    o.client_operations = 1;
    delay_options d;
    d.write = {10ms, 10ms};
    auto limited = open_limit(beneath(), o);
    use(open_delay(std::move(*limited), d));
    const auto one = disk->for_client("one");
    const auto two = disk->for_client("two");
    BOOST_REQUIRE(one);
    BOOST_TEST((takes(write(*one, block)) == 10ms));
    BOOST_TEST((takes(write(*two, block)) == 10ms));
    BOOST_TEST((takes(read(*one, block)) == 990ms));
    // Where nobody asks who it is, nobody needs a device of its own.
    use(open_delay(beneath(), d));
    BOOST_TEST(!disk->for_client("one"));
}

BOOST_FIXTURE_TEST_CASE(what_passes_is_as_it_was, fixture)
{
    limit_options wide;
    wide.client_operations = wide.total_operations = most_limited_operations;
    wide.client_bytes = wide.total_bytes = most_limited_bytes;
    auto limited = open_limit(beneath(), wide);
    auto late = open_error(std::move(*limited), each(std::numeric_limits<std::uint64_t>::max()), pool);
    delay_options shortly;
    shortly.read = shortly.write = shortly.sync = shortly.metadata = {duration(0), duration(2)};
    use(open_delay(std::move(*late), shortly));
    const auto seen = disk->for_client("one");
    for (storage::block_backend* d : {disk.get(), seen.get()}) {
        BOOST_TEST(!fails_with(write(*d, 4 * block)));
        BOOST_TEST(!fails_with(d->write_zeroes(block, block, true)));
        BOOST_TEST(!fails_with(d->discard(2 * block, block)));
        BOOST_TEST(!fails_with(d->flush()));
        BOOST_TEST(content(5) == "y..y.");
        BOOST_TEST((fails_with(read(*d, 1)) == std::errc::invalid_argument));
        BOOST_TEST((fails_with(write(*d, block, 1 << 20)) == std::errc::invalid_argument));
        BOOST_TEST(!fails_with(d->write_zeroes(0, 4 * block, false)));
    }
}

BOOST_AUTO_TEST_SUITE_END()
