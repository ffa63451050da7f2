// SPDX-License-Identifier: Apache-2.0
// metrics::serve() and metrics::to_text(): what a scrape gets, who may listen where, and what outlives what.
#include <boost/test/unit_test.hpp>

#include <verbena/services/metrics.hpp>

#include <verbena/core/module/settings.hpp>
#include <verbena/core/net/net.hpp>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <utility>

BOOST_AUTO_TEST_SUITE(metrics_serve_test)

using namespace verbena;

namespace {

// "http://127.0.0.1:PORT/metrics" as an address.
net::endpoint place_of(const metrics::server& s)
{
    const std::string& url = s.url();
    BOOST_REQUIRE(url.starts_with("http://"));
    BOOST_REQUIRE(url.ends_with("/metrics"));
    return net::resolve(url.substr(7, url.size() - 7 - 8)).value().front();
}

net::unique_fd connected(const net::endpoint& where)
{
    net::unique_fd fd(::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd.get(), where.data(), where.size()) != 0)
        fd.reset();
    return fd;
}

// All that is answered; empty if nobody listens. The server may close before it has read all.
std::string say(const net::endpoint& where, std::string_view request)
{
    const net::unique_fd fd = connected(where);
    if (!fd)
        return {};
    while (!request.empty()) {
        const ssize_t n = ::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
        if (n <= 0)
            break;
        request.remove_prefix(std::size_t(n));
    }
    std::string answer;
    char part[4096];
    for (ssize_t n = 0; (n = ::recv(fd.get(), part, sizeof part, 0)) > 0;)
        answer.append(part, std::size_t(n));
    return answer;
}

std::string get(const net::endpoint& where, const std::string& path = "/metrics")
{
    return say(where, "GET " + path + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
}

std::string refusal(const metric_registry& registry, const std::string& endpoint)
{
    try {
        (void)metrics::serve(registry, endpoint);
    } catch (const config_error& e) {
        return e.what();
    }
    return "served";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

} // namespace

BOOST_AUTO_TEST_CASE(text_is_prometheus_exposition)
{
    metric_registry registry;
    BOOST_TEST(metrics::to_text(registry).empty());
    counter calls;
    calls.add(3);
    log_linear_histogram times;
    times.observe(300); // in the first octave, which ends at 512 ns
    const auto one = registry.add({"test_calls_total", "Calls.", metric_type::counter, "calls"}, calls);
    const auto two = registry.add({"test_level", "A \"level\".", metric_type::gauge, "", {"of"}, 2},
                                  [](metric_sink& out) { out.value({"a\"b\\c\nd"}, -1.5); });
    const auto three =
        registry.add({"test_seconds", "Times.", metric_type::histogram, "seconds"}, [&](metric_sink& out) {
            histogram_snapshot h;
            times.add_to(h);
            out.histogram({}, h);
        });
    const auto none = registry.add(
        {"test_none_total", "Nothing yet.", metric_type::counter, "calls", {"x"}, 2}, [](metric_sink&) {});
    const std::string text = metrics::to_text(registry);
    BOOST_TEST(
        has(text, "# HELP test_calls_total Calls.\n# TYPE test_calls_total counter\ntest_calls_total 3\n"));
    BOOST_TEST(has(text, "# TYPE test_level gauge\ntest_level{of=\"a\\\"b\\\\\\\\c\\\\012d\"} -1.5\n"));
    BOOST_TEST(has(text, "# TYPE test_seconds histogram\n"));
    BOOST_TEST(has(text, "test_seconds_bucket{le=\"2.56e-07\"} 0\n"));
    BOOST_TEST(has(text, "test_seconds_bucket{le=\"+Inf\"} 1\n"));
    BOOST_TEST(has(text, "test_seconds_count 1\n"));
    BOOST_TEST(!has(text, "test_none_total"));
}

BOOST_AUTO_TEST_CASE(a_scrape_gets_what_is_counted_now)
{
    metric_registry registry;
    counter calls;
    const auto one = registry.add({"test_calls_total", "Calls.", metric_type::counter, "calls"}, calls);
    const metrics::server s = metrics::serve(registry, "127.0.0.1:0");
    const net::endpoint where = place_of(s);
    BOOST_TEST(where.port() != 0);
    std::string answer = get(where);
    BOOST_TEST(answer.starts_with("HTTP/1.1 200 OK\r\n"));
    BOOST_TEST(has(answer, "Content-Type: text/plain"));
    BOOST_TEST(has(answer, "\ntest_calls_total 0\n"));
    calls.add(7);
    answer = get(where);
    BOOST_TEST(has(answer, "\ntest_calls_total 7\n"));
    BOOST_TEST(has(answer, metrics::to_text(registry)));
    BOOST_TEST(!has(get(where, "/"), "test_calls_total"));
    // What answering took, of the scrapes before.
    BOOST_TEST(has(answer, "\nverbena_scrapes_total 1\n"));
    BOOST_TEST(has(answer, "\nverbena_scrape_seconds_count 1\n"));
}

BOOST_AUTO_TEST_CASE(a_scrape_comes_over_ipv6)
{
    metric_registry registry;
    counter calls;
    const auto one = registry.add({"test_calls_total", "Calls.", metric_type::counter, "calls"}, calls);
    const metrics::server s = metrics::serve(registry, "[::1]:0");
    BOOST_TEST(s.url().starts_with("http://[::1]:"));
    BOOST_TEST(place_of(s).family() == AF_INET6);
    BOOST_TEST(has(get(place_of(s)), "\ntest_calls_total 0\n"));
}

BOOST_AUTO_TEST_CASE(pages_of_health_say_what_the_program_says)
{
    const metric_registry registry;
    const metrics::server plain = metrics::serve(registry, "127.0.0.1:0");
    BOOST_TEST(get(place_of(plain), "/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    BOOST_TEST(get(place_of(plain), "/readyz?verbose").ends_with("\r\n\r\nok\n"));
    std::atomic<bool> well{true};
    const metrics::server s = metrics::serve(
        registry, "127.0.0.1:0",
        {.health = [&] { return well ? metrics::probe{} : metrics::probe{false, "shard 1 hangs"}; },
         .ready = []() -> metrics::probe { throw std::runtime_error("no"); }});
    BOOST_TEST(get(place_of(s), "/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    well = false;
    const std::string answer = get(place_of(s), "/healthz");
    BOOST_TEST(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
    BOOST_TEST(answer.ends_with("\r\n\r\nshard 1 hangs\n"));
    BOOST_TEST(get(place_of(s), "/readyz").starts_with("HTTP/1.1 500 "));
    BOOST_TEST(get(place_of(s), "/metrics").starts_with("HTTP/1.1 200 "));
    BOOST_TEST(get(place_of(s), "/etc/passwd").starts_with("HTTP/1.1 404 "));
    BOOST_TEST(get(place_of(s), "/metrics/").starts_with("HTTP/1.1 404 "));
    const std::string front = get(place_of(s), "/");
    BOOST_TEST(front.starts_with("HTTP/1.1 200 OK\r\n"));
    BOOST_TEST(has(front, "<a href=\"/metrics\">"));
    BOOST_TEST(has(front, "Content-Type: text/html; charset=utf-8\r\n"));
    BOOST_TEST(has(front, "Cache-Control: no-store\r\n"));
    BOOST_TEST(has(front, "Content-Security-Policy: default-src 'self'; script-src 'sha256-"));
    BOOST_TEST(!has(get(place_of(s), "/healthz"), "Content-Security-Policy"));
}

BOOST_AUTO_TEST_CASE(what_is_no_get_costs_its_connection_alone)
{
    metric_registry registry;
    counter calls;
    const auto one = registry.add({"test_calls_total", "Calls.", metric_type::counter, "calls"}, calls);
    const metrics::server s = metrics::serve(registry, "127.0.0.1:0");
    const net::endpoint where = place_of(s);
    BOOST_TEST(has(
        say(where,
            "POST /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: 5\r\n\r\nabcde"),
        "HTTP/1.1 405 "));
    const std::string head = say(where, "HEAD /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    BOOST_TEST(head.starts_with("HTTP/1.1 200 OK\r\n"));
    BOOST_TEST(!has(head, "test_calls_total"));
    // Two requests in one write, on one connection.
    const std::string twice = say(where, "GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n"
                                         "GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    BOOST_TEST(has(twice, "ok\n"));
    BOOST_TEST(has(twice, "test_calls_total 0"));
    // No HTTP, a line without end, headers without end.
    BOOST_TEST(!has(say(where, "\x16\x03\x01 what is this\r\n\r\n"), "test_calls_total"));
    (void)say(where, std::string(1 << 20, 'a'));
    (void)say(where, "GET /metrics HTTP/1.1\r\n" + std::string(1 << 20, 'b'));
    BOOST_TEST(has(get(where), "test_calls_total 0"));
}

BOOST_AUTO_TEST_CASE(a_port_that_is_taken_is_told_with_the_cure)
{
    const metric_registry registry, other;
    std::optional<metrics::server> first(metrics::serve(registry, "localhost:0"));
    BOOST_TEST(first->url().starts_with("http://localhost:"));
    const std::string taken = "127.0.0.1:" + std::to_string(place_of(*first).port());
    BOOST_TEST(refusal(other, taken) == "metrics " + taken +
                                            ": can't listen there: another program listens there; end it, or "
                                            "choose another ADDR:PORT, or port 0 for a free one");
    // One registry may be served at several places, and a place is free again when its server is gone.
    const metrics::server second = metrics::serve(registry, "127.0.0.1:0");
    BOOST_TEST(get(place_of(second)).starts_with("HTTP/1.1 200 OK\r\n"));
    first.reset();
    const metrics::server third = metrics::serve(other, taken);
    BOOST_TEST(get(place_of(third)).starts_with("HTTP/1.1 200 OK\r\n"));
}

BOOST_AUTO_TEST_CASE(what_can_be_no_endpoint_is_refused)
{
    const metric_registry registry;
    // 192.0.2.0/24 is for documentation (RFC 5737): no host has it.
    BOOST_TEST(has(refusal(registry, "192.0.2.1:0"), "the address is not of this host; choose"));
    for (const char* bad : {"", "9464", "127.0.0.1", "example.org:9464", "127.0.0.1:70000",
                            "127.0.0.1:1,127.0.0.1:2", "127.0.0.1:9464s", "[::1]", "::1:9464"})
        BOOST_TEST(has(refusal(registry, bad),
                       "must be a numeric address with a port, as in 127.0.0.1:9464 or [::1]:9464"),
                   bad);
    BOOST_CHECK_THROW(metrics::check_endpoint("localhost"), config_error);
    BOOST_CHECK_NO_THROW(metrics::check_endpoint("[2001:db8::1]:9464"));
    BOOST_CHECK_NO_THROW(metrics::check_endpoint("192.0.2.1:9464"));
}

BOOST_AUTO_TEST_CASE(a_server_moves_and_ends)
{
    metric_registry registry;
    const auto one = registry.add({"test_level", "A level.", metric_type::gauge, ""},
                                  [](metric_sink& out) { out.value({}, 1); });
    metrics::server a = metrics::serve(registry, "127.0.0.1:0");
    const net::endpoint at_a = place_of(a);
    metrics::server b = std::move(a);
    BOOST_TEST(a.url().empty());
    BOOST_TEST(has(get(at_a), "test_level 1"));
    a = metrics::serve(registry, "127.0.0.1:0");
    const net::endpoint was_a = place_of(a);
    a = std::move(b); // ends what it was
    BOOST_TEST(get(was_a).empty());
    BOOST_TEST(has(get(at_a), "test_level 1"));
}

// Who destroys the server may then destroy all that collectors read, even if a scrape was under way and a connection says nothing.
BOOST_AUTO_TEST_CASE(no_collector_runs_after_the_server)
{
    metric_registry registry;
    std::atomic<bool> inside{false}, go{false}, gone{false}, late{false};
    const auto one = registry.add({"test_level", "A level.", metric_type::gauge, ""}, [&](metric_sink& out) {
        inside = true;
        inside.notify_all();
        go.wait(false);
        late = late || gone;
        out.value({}, 1);
    });
    std::optional<metrics::server> s(metrics::serve(registry, "127.0.0.1:0"));
    const net::endpoint where = place_of(*s);
    const net::unique_fd silent = connected(where);
    BOOST_REQUIRE(bool(silent));
    std::string answer;
    std::thread scrape([&] { answer = get(where); });
    inside.wait(false);
    std::thread ends([&] {
        s.reset();
        gone = true;
    });
    go = true;
    go.notify_all();
    ends.join();
    scrape.join();
    BOOST_TEST(!late);
    BOOST_TEST(get(where).empty());
    // The registry goes on, without it.
    BOOST_TEST(has(metrics::to_text(registry), "test_level 1"));
}

// A part of a program comes and goes while it is scraped.
BOOST_AUTO_TEST_CASE(registrations_may_end_before_the_server)
{
    metric_registry registry;
    const metrics::server s = metrics::serve(registry, "127.0.0.1:0");
    {
        counter calls;
        const auto one = registry.add({"test_calls_total", "Calls.", metric_type::counter, "calls"}, calls);
        BOOST_TEST(has(get(place_of(s)), "test_calls_total 0"));
    }
    BOOST_TEST(!has(get(place_of(s)), "test_calls_total"));
    const metric_registrations process = metrics::expose_process(registry);
    BOOST_TEST(has(get(place_of(s)), "\nprocess_open_fds "));
}

BOOST_AUTO_TEST_SUITE_END()
