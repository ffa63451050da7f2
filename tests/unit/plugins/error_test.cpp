// SPDX-License-Identifier: Apache-2.0
#include "filter_fixture.hpp"
#include "temporary_directory.hpp"

#include <verbena/plugins/error.hpp>

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

BOOST_AUTO_TEST_SUITE(error_test)

using namespace verbena;
using namespace verbena::test;
using namespace verbena::filters;

namespace {

struct fixture : filter_fixture {
    error_filter& inject(const error_options& options) { return use(open_error(beneath(), options, pool)); }
    /// One character for each of `n` operations: x for one that fails.
    std::string fates(int n)
    {
        std::string all;
        for (int i = 0; i < n; ++i)
            all += fails_with(getattr(me)) ? 'x' : '.';
        return all;
    }
    /// Runs one operation where a pool thread may be asked on the way, for which a virtual clock would not wait.
    bool fails()
    {
        const auto n = begin(getattr(me));
        while (!outcomes[n].done)
            shard->turn();
        return bool(outcomes[n].code);
    }
};

std::error_code number(int e) { return {e, std::system_category()}; }

} // namespace

BOOST_FIXTURE_TEST_CASE(every_nth_fails, fixture)
{
    error_options options;
    options.every = 3;
    error_filter& filter = inject(options);
    BOOST_TEST(fates(10) == "..x..x..x.");
    BOOST_TEST(filter.counters().candidates == 10u);
    BOOST_TEST(filter.counters().injected == 3u);
}

BOOST_FIXTURE_TEST_CASE(what_fails_is_not_done, fixture)
{
    error_options options;
    options.every = 2;
    options.code = number(ENOSPC);
    inject(options);
    must(mkdir(me, "a"));
    BOOST_TEST((fails_with(mkdir(me, "b")) == number(ENOSPC)));
    must(mkdir(me, "c"));
    BOOST_TEST(noted->order() == "a c");
}

BOOST_FIXTURE_TEST_CASE(only_chosen_operations_fail, fixture)
{
    error_options options;
    options.probability = 1;
    options.operations =
        storage::operation_set(storage::operation::write) | storage::operation_set::changes();
    error_filter& filter = inject(options);
    const auto file = make_file("f", 10);
    BOOST_TEST((fails_with(write(me, file, 5)) == number(EIO)));
    BOOST_TEST((fails_with(mkdir(me, "a")) == number(EIO)));
    must(read(me, file, 5));
    must(getattr(me));
    must(fs->commit(me, file, 0, 0));
    BOOST_TEST(filter.counters().candidates == 2u);
    BOOST_TEST(filter.counters().injected == 2u);
    BOOST_TEST(noted->order() == "read commit");
}

BOOST_FIXTURE_TEST_CASE(a_share_fails_by_chance, fixture)
{
    error_options options;
    options.probability = 0.25;
    options.seed = 4;
    inject(options);
    const std::string first = fates(1000);
    const auto failed = std::ranges::count(first, 'x');
    BOOST_TEST(failed > 200);
    BOOST_TEST(failed < 300);
    inject(options);
    BOOST_TEST((fates(1000) == first));
    options.seed = 5;
    inject(options);
    BOOST_TEST((fates(1000) != first));
    options.probability = 1;
    inject(options);
    BOOST_TEST(fates(100) == std::string(100, 'x'));
}

BOOST_FIXTURE_TEST_CASE(without_a_probability_nothing_is_asked, fixture)
{
    error_filter& filter = inject({});
    BOOST_TEST(fates(3) == "...");
    BOOST_TEST(filter.counters().candidates == 0u);
}

BOOST_FIXTURE_TEST_CASE(errors_come_only_while_a_file_exists, fixture)
{
    const suite::temporary_directory folder;
    const std::filesystem::path file = folder.path() / "fail";
    error_options options;
    options.every = 2;
    options.while_exists = file;
    options.look_interval = 1s;
    error_filter& filter = inject(options);
    BOOST_TEST(!fails());
    BOOST_TEST(filter.counters().looks == 1u);
    std::ofstream{file};
    // What was seen holds for a second.
    BOOST_TEST(!fails());
    BOOST_TEST(!fails());
    BOOST_TEST(filter.counters().looks == 1u);
    BOOST_TEST(filter.counters().candidates == 0u);
    clock.advance(1s);
    BOOST_TEST(!fails());
    BOOST_TEST(fails());
    BOOST_TEST(filter.counters().looks == 2u);
    std::filesystem::remove(file);
    BOOST_TEST(!fails());
    BOOST_TEST(fails());
    clock.advance(1s);
    BOOST_TEST(!fails());
    BOOST_TEST(!fails());
    BOOST_TEST(filter.counters().looks == 3u);
    BOOST_TEST(filter.counters().candidates == 4u);
}

BOOST_FIXTURE_TEST_CASE(nobody_waits_for_a_look_that_hangs_but_who_began_it, fixture)
{
    // The pool's only thread is busy: whoever has to look waits.
    struct hanging final : blocking_pool::job {
        void execute() noexcept override { may_end.wait(false); }
        void deliver() noexcept override {}
        std::atomic<bool> may_end{false};
    } job;
    BOOST_REQUIRE(pool.submit(job));
    error_options options;
    options.every = 1;
    options.while_exists = "/";
    options.look_interval = 0s;
    error_filter& filter = inject(options);
    const auto looks = begin(getattr(me));
    shard->turn();
    for (int i = 0; i < 2; ++i) {
        const auto other = begin(getattr(me));
        BOOST_TEST_REQUIRE(outcomes[other].done);
        BOOST_TEST(!outcomes[other].code);
    }
    BOOST_TEST(!outcomes[looks].done);
    job.may_end = true;
    job.may_end.notify_one();
    while (!outcomes[looks].done)
        shard->turn();
    BOOST_TEST((outcomes[looks].code == number(EIO)));
    BOOST_TEST(filter.counters().looks == 1u);
    BOOST_TEST(fails());
}

BOOST_AUTO_TEST_CASE(errors_have_names)
{
    BOOST_TEST((*parse_error("EIO") == number(EIO)));
    BOOST_TEST((*parse_error("EDQUOT") == number(EDQUOT)));
    BOOST_TEST((*parse_error("ESTALE") == number(ESTALE)));
    BOOST_TEST((*parse_error("delayed") == storage::errc::delayed));
    for (const char* wrong : {"", "eio", "EWOULD", "0"})
        BOOST_TEST((parse_error(wrong).error() == std::errc::invalid_argument), wrong);
}

BOOST_FIXTURE_TEST_CASE(options_are_checked, fixture)
{
    const auto refused = [&](const error_options& options) {
        const auto made = open_error(beneath(), options, pool);
        BOOST_REQUIRE(!made);
        BOOST_TEST((made.error() == std::errc::invalid_argument));
        return made.error().message();
    };
    error_options options;
    for (const double wrong : {-0.1, 1.1, std::nan(""), std::numeric_limits<double>::infinity()}) {
        options.probability = wrong;
        BOOST_TEST(refused(options).starts_with("error, probability: not within 0 to 1"), wrong);
    }
    options.probability = 0.5;
    options.every = 7;
    BOOST_TEST(refused(options).starts_with("error, every: stands beside probability"));
    options = {};
    options.code = {};
    BOOST_TEST(refused(options).starts_with("error, code: 0 means success"));
    options = {};
    for (const duration wrong : {-1ns, longest_look_interval + 1ns}) {
        options.look_interval = wrong;
        BOOST_TEST(refused(options).starts_with("error, look_interval: not within 0 to an hour"));
    }
}

BOOST_AUTO_TEST_SUITE_END()
