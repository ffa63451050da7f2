// SPDX-License-Identifier: Apache-2.0
#include "filter_fixture.hpp"

#include <verbena/plugins/delay.hpp>

#include <cerrno>
#include <set>

BOOST_AUTO_TEST_SUITE(delay_test)

using namespace verbena;
using namespace verbena::test;
using namespace verbena::filters;

namespace {

struct fixture : filter_fixture {
    delay_filter& delay(const delay_options& options) { return use(open_delay(beneath(), options)); }
};

delay_options of_metadata(duration least, duration most)
{
    delay_options options;
    options.metadata = {least, most};
    return options;
}

} // namespace

BOOST_FIXTURE_TEST_CASE(each_group_has_a_delay_of_its_own, fixture)
{
    delay_options options;
    options.read = {3ms, 3ms};
    options.write = {20ms, 20ms};
    options.sync = {100ms, 100ms};
    options.metadata = {1s, 1s};
    delay_filter& filter = delay(options);
    const auto file = make_file("f", 100);
    const storage::handle root = fs->root();
    BOOST_TEST((takes(read(me, file, 10)) == 3ms));
    BOOST_TEST((takes(write(me, file, 10)) == 20ms));
    BOOST_TEST((takes(fs->commit(me, file, 0, 0)) == 100ms));
    BOOST_TEST((takes(fs->getattr(me, file)) == 1s));
    BOOST_TEST((takes(mkdir(me, "d")) == 1s));
    BOOST_TEST((takes(fs->statfs(me, root)) == 1s));
    BOOST_TEST(filter.counters().delayed == 6u);
    BOOST_TEST(filter.counters().waiting == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_group_without_a_delay_does_not_wait, fixture)
{
    delay_options options;
    options.write = {1s, 1s};
    delay_filter& filter = delay(options);
    const auto file = make_file("f", 100);
    BOOST_TEST((takes(read(me, file, 10)) == 0s));
    BOOST_TEST((takes(fs->getattr(me, file)) == 0s));
    BOOST_TEST(filter.counters().delayed == 0u);
}

BOOST_FIXTURE_TEST_CASE(an_operation_is_done_after_its_delay, fixture)
{
    delay(of_metadata(10ms, 10ms));
    const auto made = begin(mkdir(me, "d"));
    pass(10ms - 1ns);
    BOOST_TEST(noted->notes.empty());
    BOOST_TEST(!outcomes[made].done);
    pass(2ns);
    BOOST_TEST(noted->order() == "d");
    BOOST_TEST(outcomes[made].done);
}

BOOST_FIXTURE_TEST_CASE(random_delays_fill_their_range, fixture)
{
    delay(of_metadata(5ns, 8ns));
    std::set<duration::rep> seen;
    for (int i = 0; i < 200; ++i)
        seen.insert(takes(getattr(me)).count());
    BOOST_TEST((seen == std::set<duration::rep>{5, 6, 7, 8}));
}

BOOST_FIXTURE_TEST_CASE(a_seed_gives_the_same_delays_again, fixture)
{
    const auto series = [&](std::uint64_t seed) {
        delay_options options = of_metadata(0ns, 1s);
        options.seed = seed;
        delay(options);
        std::vector<duration> all;
        for (int i = 0; i < 20; ++i)
            all.push_back(takes(getattr(me)));
        return all;
    };
    const auto first = series(7);
    BOOST_TEST((first == series(7)));
    BOOST_TEST((first != series(8)));
}

BOOST_FIXTURE_TEST_CASE(a_stop_ends_the_wait_and_nothing_is_done, fixture)
{
    delay_filter& filter = delay(of_metadata(1h, 1h));
    const auto made = begin(mkdir(me, "d"));
    pass(1s);
    BOOST_TEST(filter.counters().waiting == 1u);
    const time_point now = clock.now();
    stop_all();
    BOOST_TEST((clock.now() == now));
    BOOST_TEST((outcomes[made].code == std::error_code(ECANCELED, std::system_category())));
    BOOST_TEST(noted->notes.empty());
    BOOST_TEST(filter.counters().cancelled == 1u);
    BOOST_TEST(filter.counters().waiting == 0u);
    BOOST_TEST(filter.counters().delayed == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_fixed_delay_keeps_the_order, fixture)
{
    delay(of_metadata(10ms, 10ms));
    std::string expected;
    for (int i = 0; i < 60; ++i) {
        const std::string name = std::to_string(i);
        begin(mkdir(me, name));
        expected += (i == 0 ? "" : " ") + name;
    }
    join();
    BOOST_TEST(noted->order() == expected);
}

BOOST_FIXTURE_TEST_CASE(only_so_many_wait, fixture)
{
    delay_options options = of_metadata(1s, 1s);
    options.waiting = 2;
    delay_filter& filter = delay(options);
    for (const char* name : {"a", "b", "c"})
        begin(mkdir(me, name));
    pass(1ms);
    BOOST_TEST(!outcomes[0].done);
    BOOST_TEST(!outcomes[1].done);
    BOOST_TEST((outcomes[2].code == storage::errc::delayed));
    join();
    BOOST_TEST(noted->order() == "a b");
    BOOST_TEST(filter.counters().refused == 1u);
    BOOST_TEST(filter.counters().delayed == 2u);
    BOOST_TEST(filter.counters().waiting == 0u); // who was refused takes nobody's place
    BOOST_TEST((takes(mkdir(me, "d")) == 1s));
}

BOOST_FIXTURE_TEST_CASE(options_are_checked, fixture)
{
    const auto refused = [&](const delay_options& options) {
        const auto made = open_delay(beneath(), options);
        BOOST_REQUIRE(!made);
        BOOST_TEST((made.error() == std::errc::invalid_argument));
        return made.error().message();
    };
    delay_options options;
    options.read = {2ms, 1ms};
    BOOST_TEST(refused(options).starts_with("delay, read: the least delay is over the most; swap them"));
    options = {};
    options.sync = {-1ns, 1ms};
    BOOST_TEST(refused(options).starts_with("delay, sync: the least delay is below 0"));
    options = {};
    options.metadata = {0ns, longest_delay + 1ns};
    BOOST_TEST(refused(options).starts_with("delay, metadata: the longest delay is over an hour"));
    options.metadata = {0ns, longest_delay};
    BOOST_TEST(open_delay(beneath(), options).has_value());
    for (const std::size_t waiting : {std::size_t(0), most_delayed + 1}) {
        options = {};
        options.waiting = waiting;
        BOOST_TEST(refused(options).starts_with("delay, waiting: not within 1 to 1048576"));
    }
}

BOOST_AUTO_TEST_SUITE_END()
