// SPDX-License-Identifier: Apache-2.0
#include "../log_at.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/log.hpp>

#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(log_test)

using namespace verbena;

namespace {

struct captured {
    const test::log_at level_of_log{log_level::info};
    captured()
    {
        set_log_capture(
            [](void* self, std::string_view line) { static_cast<captured*>(self)->lines.emplace_back(line); },
            this);
    }
    ~captured() { set_log_capture(nullptr, nullptr); }
    std::vector<std::string> lines;
};

} // namespace

BOOST_AUTO_TEST_CASE(fields_follow_the_message_as_key_and_value)
{
    captured log_lines;
    const std::string path = "/srv/data";
    log(log_level::warning, "nfs", "export is read-only",
        {{"path", path}, {"id", 3U}, {"delta", -1}, {"ratio", 0.5}, {"forced", true}});
    BOOST_REQUIRE(log_lines.lines.size() == 1U);
    BOOST_TEST(log_lines.lines[0] ==
               "warning nfs: export is read-only path=/srv/data id=3 delta=-1 ratio=0.5 forced=true");
}

BOOST_AUTO_TEST_CASE(a_peer_cannot_forge_a_line_or_a_field)
{
    captured log_lines;
    log(log_level::info, "rpc", "machine", {{"name", "x\nerror root=\"1\" \xff"}, {"empty", ""}});
    BOOST_TEST(log_lines.lines.at(0) ==
               "info rpc: machine name=\"x\\x0aerror root=\\\"1\\\" \\xff\" empty=\"\"");
}

BOOST_AUTO_TEST_CASE(lines_below_the_level_are_not_written)
{
    captured log_lines;
    log(log_level::debug, "x", "quiet");
    set_log_level(log_level::debug);
    log(log_level::debug, "x", "loud");
    set_log_level(log_level::off);
    log(log_level::error, "x", "quiet");
    log(log_level::off, "x", "quiet");
    BOOST_TEST(log_lines.lines.size() == 1U);
}

BOOST_AUTO_TEST_CASE(level_names_parse_exactly)
{
    log_level level = log_level::off;
    BOOST_TEST(parse_log_level("debug", level));
    BOOST_TEST((level == log_level::debug));
    BOOST_TEST(!parse_log_level("Debug", level));
    BOOST_TEST(!parse_log_level("", level));
}

BOOST_AUTO_TEST_CASE(the_limiter_counts_what_it_holds_back)
{
    using namespace std::chrono_literals;
    log_limiter limiter(2, 10s);
    const std::chrono::steady_clock::time_point start{1h};
    std::uint64_t suppressed = 99;
    BOOST_TEST(limiter.admit(start, suppressed));
    BOOST_TEST(suppressed == 0U);
    BOOST_TEST(limiter.admit(start + 1s, suppressed));
    BOOST_TEST(!limiter.admit(start + 2s, suppressed));
    BOOST_TEST(!limiter.admit(start + 9s, suppressed));
    BOOST_TEST(limiter.admit(start + 10s, suppressed));
    BOOST_TEST(suppressed == 2U);
    BOOST_TEST(limiter.admit(start + 11s, suppressed));
    BOOST_TEST(suppressed == 0U);
    BOOST_TEST(!limiter.admit(start + 12s, suppressed));
}

BOOST_AUTO_TEST_CASE(a_limited_line_says_how_many_were_held_back)
{
    captured log_lines;
    log_limiter limiter(1, std::chrono::nanoseconds(1));
    log_limited(limiter, log_level::info, "iwarp", "bad frame", {{"peer", "::1"}});
    BOOST_TEST(log_lines.lines.at(0) == "info iwarp: bad frame peer=::1");
}

BOOST_AUTO_TEST_SUITE_END()
