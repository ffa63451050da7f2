// SPDX-License-Identifier: Apache-2.0
// How `verbena cp` goes on where a server copies less by itself than it was asked for.
#include "client_texts.hpp"

BOOST_AUTO_TEST_SUITE(client_copier_test)

using namespace verbena;
using namespace verbena::test;

namespace {

struct fixture {
    fixture()
    {
        for (int i = 0; i < 100'000; ++i)
            there.files["from"] += static_cast<char>('a' + i % 23);
    }
    void copy()
    {
        const auto all = [this]() -> task<void> { co_await copier.copy(there, "from", there, "to"); };
        run_until_complete(runtime.shard(), all());
        BOOST_TEST(there.asked == 1);
        BOOST_TEST(copier.totals().failures == 0u);
        BOOST_TEST(copier.totals().bytes == there.files["from"].size());
        BOOST_TEST((there.files["to"] == there.files["from"]));
    }

    cli::runtime runtime{std::move(*reactor::create({})), cli::global_options()};
    cli::copier copier{runtime, cli::copy_options()};
    text_store there{runtime.buffers()};
};

} // namespace

BOOST_FIXTURE_TEST_CASE(what_is_copied_there_is_not_read, fixture)
{
    there.copied = there.files["from"];
    there.outcome = there.copied.size();
    copy();
}

BOOST_FIXTURE_TEST_CASE(less_than_was_asked_for_is_read_and_written, fixture)
{
    there.copied = there.files["from"].substr(0, 30'000);
    there.outcome = there.copied.size();
    copy();
}

BOOST_FIXTURE_TEST_CASE(what_a_copy_that_failed_left_behind_is_written_over_and_cut, fixture)
{
    there.copied = std::string(200'000, '#');
    there.outcome = error(std::errc::not_supported, "COPY");
    copy();
}

// It may have been made as long as the source is.
BOOST_FIXTURE_TEST_CASE(a_target_that_can_not_be_written_is_taken_back_to_what_was_written, fixture)
{
    there.outcome = error(std::errc::not_supported, "COPY");
    there.room = 35'000;
    const auto all = [this]() -> task<void> { co_await copier.copy(there, "from", there, "to"); };
    run_until_complete(runtime.shard(), all());
    BOOST_TEST(copier.totals().failures == 1u);
    BOOST_TEST(text_file::taken_back == 30'000u);
}

BOOST_AUTO_TEST_CASE(where_bytes_are_to_go_by_rdma_the_server_is_not_asked_to_copy)
{
    cli::global_options options;
    options.layouts = cli::layout_use::require;
    cli::runtime runtime(std::move(*reactor::create({})), options);
    cli::copier copier(runtime, cli::copy_options());
    text_store there(runtime.buffers());
    there.files["from"] = std::string(100'000, 'x');
    const auto all = [&]() -> task<void> { co_await copier.copy(there, "from", there, "to"); };
    run_until_complete(runtime.shard(), all());
    BOOST_TEST(there.asked == 0);
    BOOST_TEST((there.files["to"] == there.files["from"]));
}

BOOST_AUTO_TEST_SUITE_END()
