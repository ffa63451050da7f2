// SPDX-License-Identifier: Apache-2.0
// `verbena top`: what it reads of metrics, what it makes of two scrapes, and the lines that it shows.
#include "../../../services/client/http_get.hpp"
#include "../../../services/client/top/lay_out.hpp"
#include "../../../services/client/top/metrics_text.hpp"
#include "../../../services/client/top/model.hpp"
#include "../checks.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cmath>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <verbena/core/unique_fd.hpp>

BOOST_AUTO_TEST_SUITE(top_model_test)

namespace {

using namespace verbena::cli;

// Of a daemon that was started at 1000.
top_scrape scrape(double when, const std::string& text, double started = 1000)
{
    top_scrape s;
    s.when = std::chrono::duration<double>(when);
    s.since_epoch = 1000 + when;
    s.samples = *parse_metrics("process_start_time_seconds " + std::to_string(started) + "\n" + text);
    return s;
}

top_view view_of(const std::string& before, const std::string& after, double seconds = 2,
                 std::size_t sorted_by = 0)
{
    top_model m;
    m.add(scrape(10, before));
    m.add(scrape(10 + seconds, after));
    return m.view(sorted_by);
}

const top_table& table(const top_view& v, std::string_view key)
{
    static const top_table none;
    const auto found = std::ranges::find(v.tables, key, &top_table::key);
    return found == v.tables.end() ? none : *found;
}

// -1: it has no such row or column, or no value there.
double value(const top_view& v, std::string_view key, std::string_view row, std::string_view column)
{
    const top_table& t = table(v, key);
    const auto r = std::ranges::find(t.rows, row, &top_row::name);
    const auto c = std::ranges::find(t.columns, column, &top_column::key);
    if (r == t.rows.end() || c == t.columns.end())
        return -1;
    return r->values.at(static_cast<std::size_t>(c - t.columns.begin())).value_or(-1);
}

std::string calls(const char* procedure, int count)
{
    return std::string("verbena_rpc_calls_total{program=\"nfs\",version=\"3\",procedure=\"") + procedure +
           "\",transport=\"tcp\"} " + std::to_string(count) + "\n";
}

} // namespace

BOOST_AUTO_TEST_CASE(text_of_prometheus_is_read)
{
    const auto all = parse_metrics("# HELP a What it is.\n# TYPE a counter\n"
                                   "a{x=\"1\",y=\"q\\\"b\\\\s\\nn\"} 1.5e3 1700000000000\r\n"
                                   "a{} 2\n\n  b +Inf\nb -2\nc{le=\"+Inf\",} NaN\n");
    BOOST_REQUIRE(all.has_value());
    BOOST_REQUIRE(all->size() == 3U);
    const auto& a = all->at("a");
    BOOST_REQUIRE(a.size() == 2U);
    BOOST_TEST(a[0].value == 1500.0);
    BOOST_TEST(a[0].label("y") == "q\"b\\s\nn");
    BOOST_TEST(a[0].label("z") == "");
    BOOST_TEST(a[1].labels.empty());
    BOOST_TEST(std::isinf(all->at("b")[0].value));
    BOOST_TEST(all->at("b")[1].value == -2.0);
    BOOST_TEST(all->at("c")[0].label("le") == "+Inf");
    BOOST_TEST(std::isnan(all->at("c")[0].value));
    BOOST_TEST(parse_metrics("")->empty());
    const auto signs = parse_metrics("d -Inf\nd +3\nd Inf");
    BOOST_REQUIRE(signs.has_value());
    const auto& d = signs->at("d");
    BOOST_TEST((std::isinf(d[0].value) && d[0].value < 0 && d[1].value == 3.0 && d[2].value > 1e308));
}

BOOST_AUTO_TEST_CASE(what_is_no_text_of_prometheus_has_its_line)
{
    for (const char* text :
         {"<html>", "a\n", "a b", "a{x=\"1\"", "a{x=1} 1", "a{x=\"1} 1", "a{x=\"\\q\"} 1", "a{=\"1\"} 1",
          "a{x} 1", "a{x=\"1\"y=\"2\"} 1", "a 1 2 3", "9a 1", "a 1e999", "a 0x1", "a{x=\"\\"}) {
        const auto read = parse_metrics("good 1\n" + std::string(text));
        BOOST_REQUIRE(!read.has_value());
        BOOST_TEST(read.error().detail() == 2U);
        BOOST_TEST(std::string_view(read.error().context()) != "");
    }
    std::string many = "a{";
    for (std::size_t i = 0; i <= max_sample_labels; ++i)
        many += "l" + std::to_string(i) + "=\"\",";
    BOOST_TEST(!parse_metrics(many + "} 1").has_value());
    BOOST_TEST(!parse_metrics("a{x=\"" + std::string(max_sample_line, 'x') + "\"} 1").has_value());
}

BOOST_AUTO_TEST_CASE(rates_are_of_the_interval)
{
    const top_view v =
        view_of(calls("READ", 100) + calls("GETATTR", 50), calls("READ", 140) + calls("GETATTR", 50));
    BOOST_TEST(value(v, "operations", "nfs 3 READ tcp", "calls_per_second") == 20.0);
    BOOST_TEST(value(v, "operations", "nfs 3 GETATTR tcp", "calls_per_second") == 0.0);
    BOOST_TEST(v.interval.count() == 2.0);
    BOOST_TEST(v.uptime.value_or(0) == 12.0);
    // One that was not there has begun since.
    BOOST_TEST(value(view_of("", calls("READ", 8)), "operations", "nfs 3 READ tcp", "calls_per_second") ==
               4.0);
}

BOOST_AUTO_TEST_CASE(a_first_scrape_has_no_rates)
{
    top_model m;
    BOOST_TEST(m.view().tables.empty());
    m.add(scrape(1, calls("READ", 100) + "verbena_build_info{version=\"1.2\"} 1\n"));
    BOOST_TEST(m.view().tables.empty());
    BOOST_TEST(m.view().version == "1.2");
    BOOST_TEST(!m.view().has_restarted);
    // Nor have two at the same time.
    m.add(scrape(1, calls("READ", 200)));
    BOOST_TEST(m.view().tables.empty());
}

BOOST_AUTO_TEST_CASE(counters_that_begin_anew)
{
    // One alone: the series was another one's.
    BOOST_TEST(value(view_of(calls("READ", 100), calls("READ", 6)), "operations", "nfs 3 READ tcp",
                     "calls_per_second") == 3.0);
    // The process: nothing is known of the time between, also where a counter is larger by now.
    top_model m;
    m.add(scrape(10, calls("READ", 100)));
    m.add(scrape(12, calls("READ", 500), 1011));
    BOOST_TEST(m.view().has_restarted);
    BOOST_TEST(m.view().tables.empty());
    m.add(scrape(14, calls("READ", 510), 1011));
    BOOST_TEST(!m.view().has_restarted);
    BOOST_TEST(value(m.view(), "operations", "nfs 3 READ tcp", "calls_per_second") == 5.0);
}

BOOST_AUTO_TEST_CASE(percentiles_of_buckets)
{
    const top_buckets buckets = {{1, 0}, {2, 50}, {4, 100}, {INFINITY, 100}};
    BOOST_TEST(percentile_of(buckets, 0.5).value() == 2.0);
    BOOST_TEST(percentile_of(buckets, 1).value() == 4.0);
    BOOST_TEST(std::abs(percentile_of(buckets, 0.75).value() - 2 * std::sqrt(2.0)) < 1e-9);
    BOOST_TEST(std::abs(percentile_of({{8, 4}, {INFINITY, 4}}, 0.5).value() - 4 * std::sqrt(2.0)) < 1e-9);
    // Beyond the last bound no more is known.
    BOOST_TEST(percentile_of({{8, 1}, {INFINITY, 4}}, 0.99).value() == 8.0);
    BOOST_TEST(!percentile_of({{8, 0}, {INFINITY, 0}}, 0.5).has_value());
    BOOST_TEST(!percentile_of({}, 0.5).has_value());
    // Of times none is below nothing.
    BOOST_TEST(percentile_of({{-4, 2}, {0, 4}, {INFINITY, 4}}, 0.9).value() == 0.0);
    BOOST_TEST(percentile_of({{-4, 2}, {8, 4}}, 0.25).value() == 0.0);
    BOOST_TEST(std::isfinite(percentile_of({{-4, 2}, {8, 4}}, 0.9).value()));
}

BOOST_AUTO_TEST_CASE(latencies_are_those_of_the_interval)
{
    const auto text = [](int fast, int slow) {
        const std::string of =
            "verbena_rpc_latency_seconds_bucket{program=\"nfs\",version=\"3\",procedure=\"READ\","
            "transport=\"tcp\",le=\"";
        return calls("READ", fast + slow) + of + "0.001\"} " + std::to_string(fast) + "\n" + of + "16\"} " +
               std::to_string(fast) + "\n" + of + "32\"} " + std::to_string(fast + slow) + "\n" + of +
               "+Inf\"} " + std::to_string(fast + slow) + "\n";
    };
    // A thousand fast ones before are not of it.
    const top_view v = view_of(text(1000, 0), text(1000, 10));
    BOOST_TEST(value(v, "operations", "nfs 3 READ tcp", "p50_seconds") > 16);
    BOOST_TEST(value(v, "operations", "nfs 3 READ tcp", "p99_seconds") <= 32);
    // Nothing happened, and so there is none.
    BOOST_TEST(value(view_of(text(5, 5), text(5, 5)), "operations", "nfs 3 READ tcp", "p50_seconds") == -1);
}

BOOST_AUTO_TEST_CASE(operations_of_version_4_stand_beside_calls)
{
    const auto text = [](int ok, int failed) {
        return "verbena_nfs4_operations_total{operation=\"READ\",result=\"ok\"} " + std::to_string(ok) +
               "\nverbena_nfs4_operations_total{operation=\"READ\",result=\"failed\"} " +
               std::to_string(failed) + "\n";
    };
    const top_view v = view_of(text(0, 0), text(6, 2));
    BOOST_TEST(value(v, "operations", "nfs 4 op READ", "calls_per_second") == 4.0);
    BOOST_TEST(value(v, "operations", "nfs 4 op READ", "errors_per_second") == 1.0);
}

BOOST_AUTO_TEST_CASE(exports_and_devices)
{
    const std::string before = "verbena_export_operations_total{export=\"/a\",kind=\"read\"} 0\n"
                               "verbena_export_operations_total{export=\"/a\",kind=\"write\"} 0\n"
                               "verbena_export_bytes_total{export=\"/a\",direction=\"read\"} 0\n"
                               "verbena_rnbd_device_operations_total{device=\"vm\",operation=\"read\"} 0\n";
    const std::string after = "verbena_export_operations_total{export=\"/a\",kind=\"read\"} 2\n"
                              "verbena_export_operations_total{export=\"/a\",kind=\"write\"} 4\n"
                              "verbena_export_bytes_total{export=\"/a\",direction=\"read\"} 4096\n"
                              "verbena_export_up{export=\"/a\"} 0\n"
                              "verbena_rnbd_device_operations_total{device=\"vm\",operation=\"read\"} 10\n"
                              "verbena_rnbd_device_operations_in_flight{device=\"vm\"} 3\n";
    const top_view v = view_of(before, after);
    BOOST_TEST(value(v, "exports", "/a", "operations_per_second") == 3.0);
    BOOST_TEST(value(v, "exports", "/a", "read_bytes_per_second") == 2048.0);
    BOOST_TEST(value(v, "exports", "/a", "written_bytes_per_second") == 0.0);
    BOOST_TEST(value(v, "exports", "/a", "up") == 0.0);
    BOOST_TEST(value(v, "devices", "vm", "operations_per_second") == 5.0);
    BOOST_TEST(value(v, "devices", "vm", "in_flight") == 3.0);
    BOOST_TEST(value(v, "devices", "vm", "p50_seconds") == -1);
}

BOOST_AUTO_TEST_CASE(credits_are_of_a_call)
{
    const auto text = [](int n) {
        return "verbena_rpcrdma_calls_total " + std::to_string(n) +
               "\nverbena_rpcrdma_credits_wanted_total " + std::to_string(n * 64) +
               "\nverbena_rpcrdma_credits_granted_total " + std::to_string(n * 32) +
               "\nverbena_rdma_receiver_not_ready_total{device=\"d\",port=\"1\",counter=\"a\"} " +
               std::to_string(n / 10) +
               "\nverbena_rdma_receiver_not_ready_total{device=\"e\",port=\"1\",counter=\"a\"} " +
               std::to_string(n / 10) + "\nverbena_rdma_registered_bytes 4096\n";
    };
    const top_view v = view_of(text(0), text(100));
    BOOST_TEST(value(v, "rdma", "all", "credits_wanted") == 64.0);
    BOOST_TEST(value(v, "rdma", "all", "credits_granted") == 32.0);
    BOOST_TEST(value(v, "rdma", "all", "receiver_not_ready_per_second") == 10.0);
    BOOST_TEST(value(v, "rdma", "all", "registered_bytes") == 4096.0);
    // Families that a daemon lacks are no zeros.
    BOOST_TEST(value(v, "rdma", "all", "registrations_failed") == -1);
    BOOST_TEST(value(view_of(text(5), text(5)), "rdma", "all", "credits_granted") == -1);
    BOOST_TEST(table(view_of(calls("READ", 1), calls("READ", 2)), "rdma").rows.empty());
}

// NaN is neither smaller nor larger than a number: an order that has it is none.
BOOST_AUTO_TEST_CASE(what_is_no_number_disturbs_no_order)
{
    std::string before;
    std::string after;
    for (int i = 0; i < 40; ++i) {
        const std::string of = "{export=\"/e" + std::to_string(i) + "\"} ";
        before += "verbena_export_operations_total" + of + "0\n";
        after += "verbena_export_operations_total" + of + std::to_string(i) + "\n";
        after += "verbena_export_up" + of + (i % 3 == 0 ? "NaN\n" : "1\n");
    }
    const top_view v = view_of(before, after, 1, 5);
    for (const top_table& t : v.tables) {
        for (const top_row& r : t.rows) {
            for (const top_value& n : r.values)
                BOOST_TEST(!(n && std::isnan(*n)));
        }
    }
    std::string buckets = calls("READ", 9);
    for (const char* bound : {"1", "nan", "+Inf", "-nan", "0", "2"})
        buckets += std::string("verbena_rpc_latency_seconds_bucket{program=\"nfs\",version=\"3\",procedure="
                               "\"READ\",transport=\"tcp\",le=\"") +
                   bound + "\"} 9\n";
    BOOST_TEST(value(view_of(calls("READ", 0), buckets), "operations", "nfs 3 READ tcp", "p99_seconds") ==
               0.0);
    const std::string one =
        "verbena_rpc_latency_seconds_bucket{program=\"nfs\",version=\"3\",procedure=\"READ\","
        "transport=\"tcp\",le=\"nan\"} 9\n";
    BOOST_TEST(value(view_of(calls("READ", 0), calls("READ", 9) + one), "operations", "nfs 3 READ tcp",
                     "p99_seconds") == -1);
    // Sums that have no end make what is no number.
    std::string endless = calls("READ", 9);
    for (const char* x : {"1", "2"})
        endless += "verbena_rpc_calls_total{program=\"nfs\",version=\"3\",procedure=\"READ\",transport="
                   "\"tcp\",x=\"" +
                   std::string(x) + "\"} " + (*x == '1' ? "1e308\n" : "1.7e308\n");
    BOOST_TEST(table(view_of(calls("READ", 0), endless + calls("NULL", 1), 2, 1), "operations").rows.size() ==
               2U);
}

BOOST_AUTO_TEST_CASE(samples_of_a_scrape_have_an_end)
{
    std::string text;
    for (std::size_t i = 0; i < max_samples; ++i)
        text += "a 1\n";
    BOOST_TEST(parse_metrics(text)->at("a").size() == max_samples);
    const auto more = parse_metrics(text + "# no sample\na 1\n");
    BOOST_REQUIRE(!more.has_value());
    BOOST_TEST(more.error().detail() == max_samples + 2);
    BOOST_TEST(std::string_view(more.error().context()) == "there are at most 500,000 samples");
}

BOOST_AUTO_TEST_CASE(labels_of_a_scrape_have_an_end)
{
    std::string line = "a{";
    for (std::size_t i = 0; i < max_sample_labels; ++i)
        line += "b=\"\",";
    line += "} 1\n";
    const std::size_t bytes = max_sample_labels * (sizeof(metric_sample().labels[0]) + 1);
    const std::size_t fit = max_label_bytes / bytes;
    std::string text;
    for (std::size_t i = 0; i < fit; ++i)
        text += line;
    BOOST_TEST(parse_metrics(text).has_value());
    const auto more = parse_metrics(text + line);
    BOOST_REQUIRE(!more.has_value());
    BOOST_TEST(more.error().detail() == fit + 1);
    BOOST_TEST(std::string_view(more.error().context()) == "the labels of all samples take at most 64 MiB");
}

namespace {

// Answers one request with this, and ends; or lets it wait.
class one_answer {
public:
    explicit one_answer(std::optional<std::string> answer)
        : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))
    {
        sockaddr_in where{};
        where.sin_family = AF_INET;
        where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof where;
        auto* const plain = reinterpret_cast<sockaddr*>(&where);
        BOOST_REQUIRE(::bind(listener_.get(), plain, size) == 0);
        BOOST_REQUIRE(::listen(listener_.get(), 4) == 0);
        BOOST_REQUIRE(::getsockname(listener_.get(), plain, &size) == 0);
        url = "http://127.0.0.1:" + std::to_string(ntohs(where.sin_port)) + "/metrics";
        if (!answer)
            return;
        thread_ = std::jthread([this, text = std::move(*answer)] {
            const verbena::unique_fd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            std::string asked;
            char c = 0;
            while (!asked.ends_with("\r\n\r\n") && ::read(peer.get(), &c, 1) == 1)
                asked += c;
            (void)!::write(peer.get(), text.data(), text.size());
        });
    }
    std::string url;

private:
    verbena::unique_fd listener_;
    std::jthread thread_;
};

http_reply answer_of(const std::string& said, std::size_t most = 4096)
{
    const one_answer server(said);
    return http_get(server.url, most, std::chrono::minutes(1));
}

} // namespace

BOOST_AUTO_TEST_CASE(an_answer_that_is_cut_is_none)
{
    const std::string head = "HTTP/1.1 200 OK\r\nX: y\r\n";
    http_reply told = answer_of(head + "content-LENGTH: \t5\r\n\r\na 1\r\n");
    BOOST_TEST(told.failed == "");
    BOOST_TEST(told.body == "a 1\r\n");
    BOOST_TEST(answer_of(head + "\r\na 1\n").failed == ""); // ends with the connection
    BOOST_TEST(answer_of(head + "Content-Length: 5\r\n\r\na 1\n").failed == "it ended in the middle");
    BOOST_TEST(answer_of(head).failed == "it ended in the middle");
    BOOST_TEST(answer_of("").failed == "it ended without an answer");
    BOOST_TEST(answer_of("HTTP/1.1 500 No\r\n\r\n").failed == "it answered HTTP/1.1 500 No");
    told = answer_of(head + "Content-Length: 5\r\n\r\na 1\r\n", 4); // more than is taken
    BOOST_TEST(told.failed == "");
    BOOST_TEST(told.is_cut);
}

BOOST_AUTO_TEST_CASE(a_get_ends_when_it_is_told_to)
{
    const one_answer silent{std::nullopt};
    int asked = 0;
    const http_reply told =
        http_get(silent.url, 4096, std::chrono::seconds(30), [&] { return ++asked == 3; });
    BOOST_TEST(told.failed == "it was stopped");
    BOOST_TEST(asked == 3);
}

BOOST_AUTO_TEST_CASE(rows_are_sorted)
{
    const std::string after = calls("A", 1) + calls("B", 5) + calls("C", 3);
    const auto first = [&](std::size_t by) {
        return table(view_of("", after, 2, by), "operations").rows.front().name;
    };
    BOOST_TEST(first(0) == "nfs 3 A tcp");
    BOOST_TEST(first(1) == "nfs 3 B tcp");
    BOOST_TEST(first(99) == "nfs 3 A tcp"); // no such column
}

BOOST_AUTO_TEST_CASE(numbers_for_people)
{
    BOOST_TEST(text_of({}, top_unit::rate) == "-");
    BOOST_TEST(text_of(0, top_unit::rate) == "0");
    BOOST_TEST(text_of(1.25, top_unit::rate) == "1.2");
    BOOST_TEST(text_of(1234, top_unit::rate) == "1.2k");
    BOOST_TEST(text_of(12'345'678, top_unit::count) == "12M");
    BOOST_TEST(text_of(3, top_unit::count) == "3");
    BOOST_TEST(text_of(1.5, top_unit::count) == "1.5");
    BOOST_TEST(text_of(3 << 20, top_unit::byte_rate) == "3.0 MiB");
    BOOST_TEST(text_of(512, top_unit::bytes) == "512 B");
    BOOST_TEST(text_of(0.000'12, top_unit::seconds) == "120 us");
    BOOST_TEST(text_of(0.002, top_unit::seconds) == "2.0 ms");
    BOOST_TEST(text_of(2, top_unit::seconds) == "2.0 s");
}

BOOST_AUTO_TEST_CASE(the_screen)
{
    std::string after = "verbena_connections{transport=\"tcp\"} 2\nverbena_stream_calls_in_flight 7\n";
    for (const char* name : {"A", "B", "C", "D", "E", "F", "G", "H"})
        after += calls(name, 2);
    const top_view v =
        view_of("verbena_stream_calls_in_flight 0\n" + calls("IDLE", 1), after + calls("IDLE", 1));
    top_screen s;
    auto lines = s.lines(v, 60, 12);
    BOOST_REQUIRE(lines.size() == 12U);
    BOOST_TEST(lines[1].text == "connections: tcp 2; calls in flight: 7");
    BOOST_TEST(lines[4].is_head);
    BOOST_TEST(lines[4].text.starts_with("operation"));
    BOOST_TEST(lines[5].text.starts_with("nfs 3 A tcp"));
    BOOST_TEST(lines[11].text.starts_with("q quit"));
    BOOST_TEST(lines[11].text.size() <= 60U);
    const std::size_t count = table_lines(v, false).size();
    BOOST_TEST(count == 9U); // without what is idle
    BOOST_TEST(table_lines(v, true).size() == 10U);
    using key = top_screen::key;
    s.press(key::down, count, 12);
    BOOST_TEST(s.lines(v, 60, 12)[4].text.starts_with("nfs 3 A tcp"));
    s.press(key::page_down, count, 12);
    s.press(key::down, count, 12);
    BOOST_TEST(s.scrolled == count - 7); // the last line stays at the end of the screen
    BOOST_TEST(s.lines(v, 60, 12)[10].text.starts_with("nfs 3 H tcp"));
    // A screen that became larger, or has less to show, has no hole.
    BOOST_TEST(s.lines(v, 60, 24)[4].text.starts_with("operation"));
    s.press(key::up, count, 12);
    BOOST_TEST(s.scrolled == 0U);
    s.press(key::sort, count, 12);
    BOOST_TEST(s.sorted_by == 2U);
    for (int i = 0; i < 6; ++i)
        s.press(key::sort, count, 12);
    BOOST_TEST(s.sorted_by == 0U);
    BOOST_TEST(s.sort_text(v) == "name");
    s.press(key::quit, count, 12);
    BOOST_TEST(s.has_ended);
    for (std::size_t height = 0; height < 8; ++height)
        BOOST_TEST(s.lines(v, 1, height).size() == height);
}

BOOST_AUTO_TEST_SUITE_END()
