// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/metrics.hpp>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

BOOST_AUTO_TEST_SUITE(metrics_test)

using namespace verbena;

namespace {

metric_family family(const char* name, metric_type type, std::vector<std::string> labels, std::size_t bound)
{
    return {name, "help", type, "things", std::move(labels), bound};
}

} // namespace

BOOST_AUTO_TEST_CASE(buckets_meet_without_gap_and_hold_their_own_ends)
{
    using h = log_linear_histogram;
    BOOST_TEST(h::bucket_of(0) == 0U);
    BOOST_TEST(h::bucket_of(255) == 0U);
    BOOST_TEST(h::bucket_of(256) == 1U);
    BOOST_TEST(h::end_of(0) == 256U);
    BOOST_TEST(h::end_of(1) == 320U); // a quarter of the octave 256..512
    BOOST_TEST(h::end_of(4) == 512U);
    for (std::size_t i = 0; i + 1 < h::bucket_count; ++i) {
        BOOST_TEST(h::bucket_of(h::end_of(i) - 1) == i);
        BOOST_TEST(h::bucket_of(h::end_of(i)) == i + 1);
    }
    BOOST_TEST(h::end_of(h::bucket_count - 2) == std::uint64_t(1) << 35);
    BOOST_TEST(h::bucket_of(~std::uint64_t(0)) == h::bucket_count - 1);
}

BOOST_AUTO_TEST_CASE(a_snapshot_counts_sums_and_finds_quantiles)
{
    log_linear_histogram h;
    for (int i = 0; i < 99; ++i)
        h.observe(1000); // bucket 896..1024
    h.observe(1'000'000);
    histogram_snapshot s;
    h.add_to(s);
    BOOST_TEST(s.count() == 100U);
    BOOST_TEST(s.sum_nanoseconds == 99U * 1000 + 1'000'000);
    BOOST_TEST(s.quantile(0.5) == 1024U);
    BOOST_TEST(s.quantile(0.99) == 1024U);
    BOOST_TEST(s.quantile(1.0) == 1U << 20); // 917504..1048576 holds a million
    BOOST_TEST(histogram_snapshot{}.quantile(0.5) == 0U);
}

BOOST_AUTO_TEST_CASE(shards_that_share_a_family_are_added_up)
{
    metric_registry registry;
    counter shard0, shard1;
    shard0.add(3);
    shard1.add();
    const auto count = [](counter& c) {
        return [&c](metric_sink& out) { out.value({"tcp"}, double(c.value())); };
    };
    auto r0 = registry.add(family("b_total", metric_type::counter, {"transport"}, 4), count(shard0));
    auto r1 = registry.add(family("b_total", metric_type::counter, {"transport"}, 4), count(shard1));
    gauge level;
    level.set(-7);
    auto r2 = registry.add(family("a", metric_type::gauge, {}, 1), level);

    auto all = registry.collect();
    BOOST_REQUIRE(all.size() == 2U);
    BOOST_TEST(all[0].family.name == "a");
    BOOST_TEST(all[0].samples.at(0).value == -7);
    BOOST_TEST(all[1].samples.size() == 1U);
    BOOST_TEST(all[1].samples.at(0).value == 4);
    BOOST_TEST(all[1].samples.at(0).labels.at(0) == "tcp");

    r1 = {};
    BOOST_TEST(registry.collect()[1].samples.at(0).value == 3);
}

BOOST_AUTO_TEST_CASE(histograms_of_shards_are_added_up)
{
    metric_registry registry;
    log_linear_histogram h;
    h.observe(5000);
    auto collect = [&h](metric_sink& out) {
        histogram_snapshot s;
        h.add_to(s);
        out.histogram({"read"}, s);
        out.histogram({"read"}, s);
    };
    auto r = registry.add(family("h_seconds", metric_type::histogram, {"procedure"}, 30), collect);
    const auto all = registry.collect();
    BOOST_REQUIRE(all.at(0).samples.size() == 1U);
    BOOST_TEST(all[0].samples[0].histogram->count() == 2U);
    BOOST_TEST(all[0].samples[0].histogram->sum_nanoseconds == 10000U);
}

BOOST_AUTO_TEST_CASE(series_beyond_the_bound_fold_into_one)
{
    metric_registry registry;
    auto r = registry.add(family("clients", metric_type::gauge, {"client"}, 2), [](metric_sink& out) {
        for (const char* client : {"a", "b", "c", "d"})
            out.value({client}, 1);
        out.value({"a"}, 1);
    });
    const auto all = registry.collect();
    BOOST_REQUIRE(all.at(0).samples.size() == 3U);
    BOOST_TEST(all[0].samples[0].labels.at(0) == "a");
    BOOST_TEST(all[0].samples[0].value == 2);
    BOOST_TEST(all[0].samples[1].labels.at(0) == "b");
    BOOST_TEST(all[0].samples[2].labels.at(0) == "other");
    BOOST_TEST(all[0].samples[2].value == 2);
}

// Peers, paths, configurations and devices name things.
BOOST_AUTO_TEST_CASE(whatever_names_a_series_is_bounded_text)
{
    using namespace std::string_literals;
    metric_registry registry;
    const auto shown = [&](const std::vector<std::string>& names) {
        const auto r =
            registry.add(family("clients", metric_type::gauge, {"client"}, 99), [&](metric_sink& out) {
                for (const std::string& name : names)
                    out.value({name}, 1);
            });
        std::vector<std::string> labels;
        const auto families = registry.collect();
        for (const auto& series : families.at(0).samples)
            labels.push_back(series.labels.at(0));
        return labels;
    };
    const auto one = [&](const std::string& name) { return shown({name}).at(0); };
    BOOST_TEST(one("vm1") == "vm1");
    BOOST_TEST(one("Grüße €") == "Grüße €");
    BOOST_TEST(one("\xff\xfe") == "\\377\\376");
    BOOST_TEST(one("a\0b\n\x7f"s) == "a\\000b\\012\\177");
    BOOST_TEST(one("\xed\xa0\x80") == "\\355\\240\\200"); // a surrogate
    BOOST_TEST(one("\xc2\x85") == "\\302\\205");          // a control character of two octets
    BOOST_TEST(one("back\\377") == "back\\\\377");        // what an octet could be taken for
    BOOST_TEST(one("") == "");

    BOOST_TEST(one(std::string(256, 'x')) == std::string(256, 'x'));
    const std::string begin(300, 'x');
    const auto both = shown({begin + "1", begin + "2"});
    BOOST_REQUIRE(both.size() == 2U);
    for (const std::string& label : both) {
        BOOST_TEST(label.size() == 256U);
        BOOST_TEST(label.starts_with(std::string(239, 'x') + '~'));
    }
    // No character is cut in two.
    std::string euros;
    for (int i = 0; i < 100; ++i)
        euros += "€";
    const std::string cut = one(euros);
    BOOST_TEST(cut.size() == 79 * 3 + 17U);
    BOOST_TEST(cut.substr(78 * 3, 4) == "€~");
}

BOOST_AUTO_TEST_CASE(a_family_that_no_scrape_could_hold_is_refused)
{
    metric_registry registry;
    const auto refused = [&](const metric_family& f) {
        try {
            (void)registry.add(f, [](metric_sink&) {});
        } catch (const std::logic_error&) {
            return true;
        }
        return false;
    };
    const metric_family good = family("good_total", metric_type::counter, {"a", "b_2"}, 3);
    BOOST_TEST(!refused(good));
    for (const char* name : {"", "1st", "a-b", "a b", "a\xff", "a\n"}) {
        metric_family odd = good;
        odd.name = name;
        BOOST_TEST(refused(odd));
        odd = good;
        odd.labels = {name};
        BOOST_TEST(refused(odd));
    }
    for (const char* help : {"two\nlines", "\xff", "\x1b[31m"}) {
        metric_family odd = good;
        odd.help = help;
        BOOST_TEST(refused(odd));
    }
    metric_family odd = good;
    odd.labels = {"a", "a"};
    BOOST_TEST(refused(odd));
    odd.labels = {"le"};
    BOOST_TEST(refused(odd));
    BOOST_TEST(registry.families().empty());
}

BOOST_AUTO_TEST_CASE(a_collector_that_throws_spoils_no_other_one)
{
    std::vector<std::string> lines;
    set_log_capture(
        [](void* to, std::string_view line) {
            static_cast<std::vector<std::string>*>(to)->emplace_back(line);
        },
        &lines);
    metric_registry registry;
    counter c;
    c.add(3);
    const metric_family levels = family("levels", metric_type::gauge, {"of"}, 3);
    const auto first = registry.add(family("a", metric_type::counter, {}, 1), c);
    const auto half = registry.add(levels, [](metric_sink& out) {
        out.value({"one"}, 1);
        throw std::runtime_error("no more");
    });
    const auto whole = registry.add(levels, [](metric_sink& out) { out.value({"two"}, 2); });
    const auto odd = registry.add(family("odd", metric_type::gauge, {}, 1), [](metric_sink&) { throw 1; });
    for (int i = 0; i < 2; ++i) {
        const auto all = registry.collect();
        BOOST_REQUIRE(all.size() == 3U);
        BOOST_TEST(all[0].samples.at(0).value == 3);
        BOOST_REQUIRE(all[1].samples.size() == 2U);
        BOOST_TEST(all[1].samples[0].value == 1);
        BOOST_TEST(all[1].samples[1].value == 2);
        BOOST_TEST(all[2].samples.empty());
    }
    set_log_capture(nullptr, nullptr);
    BOOST_REQUIRE(lines.size() == 2U); // not again for each scrape
    BOOST_TEST(lines[0] ==
               "error metrics: a collector throws; its samples are missing or incomplete family=levels "
               "exception=\"no more\"");
    BOOST_TEST(lines[1].find("family=odd") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(one_name_has_one_meaning)
{
    metric_registry registry;
    counter c;
    gauge g;
    auto r = registry.add(family("x", metric_type::counter, {}, 1), c);
    BOOST_CHECK_THROW((void)registry.add(family("x", metric_type::gauge, {}, 1), g), std::logic_error);
    BOOST_TEST(registry.families().size() == 1U);
}

BOOST_AUTO_TEST_CASE(sources_of_a_family_go_in_any_order)
{
    metric_registry registry;
    const auto of = [](double value) { return [value](metric_sink& out) { out.value({}, value); }; };
    const auto sum = [&registry](std::string_view name) {
        for (const metric_snapshot& f : registry.collect())
            if (f.family.name == name)
                return f.samples.at(0).value;
        return -1.0;
    };
    // Their turns alternate, as those of exports do.
    std::vector<metric_registry::registration> made;
    for (const double value : {1.0, 10.0, 100.0, 1000.0}) {
        made.push_back(registry.add(family("a", metric_type::gauge, {}, 1), of(value)));
        made.push_back(registry.add(family("b", metric_type::gauge, {}, 1), of(2 * value)));
    }
    made[3] = {};
    BOOST_TEST(sum("a") == 1111);
    BOOST_TEST(sum("b") == 2202);
    made[2] = {};
    made[7] = {};
    BOOST_TEST(sum("a") == 1101);
    BOOST_TEST(sum("b") == 202);
    made[0] = {};
    made[6] = {};
    made[4] = {};
    BOOST_TEST(sum("a") == -1);
    BOOST_TEST(sum("b") == 202);
    made.clear();
    BOOST_TEST(registry.families().empty());
}

BOOST_AUTO_TEST_SUITE_END()
