// SPDX-License-Identifier: Apache-2.0
#include "../lines_of_log.hpp"
#include "../log_at.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/net/refusals.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

BOOST_AUTO_TEST_SUITE(refusals_test)

using namespace verbena;
using namespace std::chrono_literals;
using time = std::chrono::steady_clock::time_point;

namespace {

struct captured : test::lines_of_log {
    const test::log_at level{log_level::info};
    std::vector<std::string>& lines = all;
};

// Whether there is a line at this second; how many had none before it.
struct asked {
    explicit asked(refusal_lines& of) : all(of) {}
    bool at(std::chrono::seconds when, refused why, std::string_view peer, std::string_view object)
    {
        untold = 0;
        return all.admit(why, {.peer = peer, .object = object}, time(1h + when), untold);
    }
    refusal_lines& all;
    std::uint64_t untold = 0;
};

} // namespace

BOOST_AUTO_TEST_CASE(a_line_says_who_what_why_and_the_cure)
{
    captured log;
    const std::uint64_t before = refusals(refused::connection_share);
    tell_refusal(refused::connection_share, {.peer = "192.0.2.1", .object = "tcp", .most = 584});
    BOOST_REQUIRE(log.lines.size() == 1u);
    BOOST_TEST(log.lines[0] ==
               "warning peers: turned away peer=192.0.2.1 connection=tcp reason=peer_connections "
               "limit=\"peer_connections of [daemon]: 584\" "
               "cure=\"raise peer_connections of [daemon]; clients behind one address (NAT) share it\"");
    tell_refusal(refused::export_port, {.peer = "192.0.2.1", .object = "/data", .said = "192.0.2.1:40022"});
    BOOST_TEST(
        log.lines.at(1).find("export=/data reason=port limit=\"secure of the export (192.0.2.1:40022)\"") !=
        std::string::npos);
    // Of a limit that has several keys.
    tell_refusal(refused::client_sessions,
                 {.peer = "192.0.2.1", .object = "4.1", .limit = "key", .cure = "raise key"});
    BOOST_TEST(log.lines.at(2).find("reason=sessions limit=key cure=\"raise key\"") != std::string::npos);
    BOOST_TEST(refusals(refused::connection_share) == before + 1);
}

BOOST_AUTO_TEST_CASE(a_client_that_tries_again_and_again_fills_no_log_and_is_counted)
{
    captured log;
    const std::uint64_t before = refusals(refused::export_address);
    for (int i = 0; i < 1000; ++i)
        tell_refusal(refused::export_address, {.peer = "192.0.2.2", .object = "/data"});
    BOOST_TEST(log.lines.size() == 1u);
    BOOST_TEST(refusals(refused::export_address) == before + 1000);
}

BOOST_AUTO_TEST_CASE(the_metric_names_reasons_and_no_peer)
{
    const captured log;
    metric_registry registry;
    const auto registered = expose_refusals(registry);
    const std::uint64_t before = refusals(refused::device_in_use);
    tell_refusal(refused::device_in_use, {.peer = "192.0.2.3", .object = "disk"});
    const auto all = registry.collect();
    BOOST_REQUIRE(all.size() == 1u);
    BOOST_TEST(all[0].family.name == "verbena_refused_total");
    BOOST_TEST((all[0].family.labels == std::vector<std::string>{"of", "reason"}));
    BOOST_TEST(all[0].family.bound == refused_count);
    // Equal labels would be added up.
    BOOST_TEST(all[0].samples.size() == refused_count);
    const auto found = std::ranges::find(all[0].samples, std::vector<std::string>{"device", "in_use"},
                                         &metric_snapshot::series::labels);
    BOOST_REQUIRE((found != all[0].samples.end()));
    BOOST_TEST(found->value == double(before + 1));
}

BOOST_AUTO_TEST_CASE(each_rule_names_its_limit_and_its_cure)
{
    for (std::size_t i = 0; i < refused_count; ++i) {
        const refusal_rule& rule = rule_of(refused(i));
        BOOST_TEST(!rule.of.empty(), "rule " << i);
        BOOST_TEST(!rule.reason.empty(), "rule " << i);
        BOOST_TEST(!rule.limit.empty(), "rule " << i);
        BOOST_TEST(!rule.cure.empty(), "rule " << i);
    }
    BOOST_TEST(rule_of(refused::connection_descriptors).cure.find("LimitNOFILE") != std::string_view::npos);
    BOOST_TEST(rule_of(refused::export_unknown).of == "export");
    BOOST_TEST(rule_of(refused::client_name).reason == "name");
    BOOST_TEST(rule_of(refused::session_peer_memory).cure.find("peer_memory_mib") != std::string_view::npos);
    BOOST_TEST(rule_of(refused::device_count).of == "device");
}

BOOST_AUTO_TEST_CASE(the_same_refusal_has_a_line_a_minute)
{
    const auto all = std::make_unique<refusal_lines>();
    asked a(*all);
    BOOST_TEST(a.at(0s, refused::export_address, "192.0.2.1", "/a"));
    for (int i = 0; i < 5; ++i)
        BOOST_TEST(!a.at(59s, refused::export_address, "192.0.2.1", "/a"));
    BOOST_TEST(a.at(60s, refused::export_address, "192.0.2.1", "/a"));
    BOOST_TEST(a.untold == 5u);
    // Another export, peer or reason is another refusal.
    BOOST_TEST(a.at(60s, refused::export_address, "192.0.2.1", "/b"));
    BOOST_TEST(a.at(60s, refused::export_address, "192.0.2.2", "/a"));
    BOOST_TEST(a.at(60s, refused::export_port, "192.0.2.1", "/a"));
    BOOST_TEST(a.untold == 0u);
}

BOOST_AUTO_TEST_CASE(a_host_makes_no_lines_by_its_addresses_and_names)
{
    const auto all = std::make_unique<refusal_lines>();
    asked a(*all);
    BOOST_TEST(a.at(0s, refused::export_address, "2001:db8::1", "/a"));
    BOOST_TEST(!a.at(0s, refused::export_address, "2001:db8::2", "/a"));
    BOOST_TEST(a.at(0s, refused::export_address, "2001:db8:0:1::1", "/a"));
    // It may ask for any name.
    BOOST_TEST(a.at(0s, refused::device_unknown, "192.0.2.1", "a"));
    BOOST_TEST(!a.at(0s, refused::device_unknown, "192.0.2.1", "b"));
}

BOOST_AUTO_TEST_CASE(many_hosts_together_have_ten_lines_in_ten_seconds)
{
    const auto all = std::make_unique<refusal_lines>();
    asked a(*all);
    unsigned lines = 0;
    for (unsigned i = 0; i < 1000; ++i)
        lines += a.at(0s, refused::export_address,
                      "10.0." + std::to_string(i / 250) + '.' + std::to_string(i % 250), "/a");
    BOOST_TEST(lines == refusal_lines::burst);
    // They keep nobody out of the log who is refused something else.
    BOOST_TEST(a.at(0s, refused::device_in_use, "192.0.2.1", "disk"));
    BOOST_TEST(a.at(10s, refused::export_address, "192.0.2.1", "/a"));
    BOOST_TEST(a.untold == 990u);
}

BOOST_AUTO_TEST_SUITE_END()
