// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/module/start_error.hpp>
#include <verbena/services/metrics.hpp>

#include "front_page.hpp"
#include "http_server.hpp"
#include "scrape_stats.hpp"

#include <verbena/core/module/settings.hpp>
#include <verbena/core/net/net.hpp>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <string_view>
#include <system_error>
#include <utility>

namespace verbena::metrics {

namespace {

using services::http_answer;
using services::http_server;

constexpr double nanosecond = 1e-9;

constexpr const char* plain_text = "text/plain; charset=utf-8";
// One bucket per octave: the four steps inside it are for quantiles that we compute ourselves.
prometheus::ClientMetric::Histogram to_prometheus(const histogram_snapshot& from)
{
    prometheus::ClientMetric::Histogram to;
    std::uint64_t below = 0;
    for (std::size_t i = 0; i + 1 < from.buckets.size(); ++i) {
        below += from.buckets[i];
        if (i % log_linear_histogram::steps_per_octave == 0)
            to.bucket.push_back({below, double(log_linear_histogram::end_of(i)) * nanosecond});
    }
    below += from.buckets.back();
    to.bucket.push_back({below, std::numeric_limits<double>::infinity()});
    to.sample_count = below;
    to.sample_sum = double(from.sum_nanoseconds) * nanosecond;
    return to;
}

prometheus::ClientMetric to_prometheus(const metric_family& family, const metric_snapshot::series& from)
{
    prometheus::ClientMetric to;
    for (std::size_t i = 0; i < family.labels.size(); ++i)
        to.label.push_back({family.labels[i], from.labels[i]});
    switch (family.type) {
    case metric_type::counter: to.counter.value = from.value; break;
    case metric_type::gauge: to.gauge.value = from.value; break;
    case metric_type::histogram:
        to.histogram = to_prometheus(from.histogram ? *from.histogram : histogram_snapshot{});
        break;
    }
    return to;
}

prometheus::MetricType to_prometheus(metric_type type)
{
    switch (type) {
    case metric_type::counter: return prometheus::MetricType::Counter;
    case metric_type::gauge: return prometheus::MetricType::Gauge;
    case metric_type::histogram: return prometheus::MetricType::Histogram;
    }
    return prometheus::MetricType::Untyped;
}

std::vector<prometheus::MetricFamily> to_prometheus(const metric_registry& registry)
{
    std::vector<prometheus::MetricFamily> all;
    for (const metric_snapshot& from : registry.collect()) {
        if (from.samples.empty())
            continue;
        prometheus::MetricFamily to;
        to.name = from.family.name;
        to.help = from.family.help;
        to.type = to_prometheus(from.family.type);
        for (const auto& series : from.samples)
            to.metric.push_back(to_prometheus(from.family, series));
        all.push_back(std::move(to));
    }
    return all;
}

// What may be bound; the name is for people, and every host has it.
result<net::endpoint> place_of(const std::string& endpoint)
{
    constexpr std::string_view name = "localhost:";
    return net::endpoint::parse(endpoint.starts_with(name) ? "127.0.0.1:" + endpoint.substr(name.size())
                                                           : endpoint);
}

std::string why_not(const error& e)
{
    switch (e.errno_value()) {
    case EADDRINUSE:
        return "another program listens there; end it, or choose another ADDR:PORT, or port 0 for a free one";
    case EADDRNOTAVAIL:
        return "the address is not of this host; choose one that `ip address` shows, or 127.0.0.1";
    case EACCES: return "ports below 1024 need root or CAP_NET_BIND_SERVICE; choose a higher one";
    default: return e.message() + "; choose another ADDR:PORT";
    }
}

} // namespace

struct server::impl {
    impl(const metric_registry& r, const std::string& e, serve_options o) : registry(r), options(std::move(o))
    {
        const auto refuse = [&](const std::string& why) {
            throw start_error("metrics " + e + ": can't listen there: " + why);
        };
        own_figures = services::expose(own, stats);
        auto listener =
            net::open_listener(place_of(e).value(), {.backlog = http_server::connections_at_once});
        if (!listener)
            refuse(why_not(listener.error()));
        try {
            http.emplace(std::move(*listener), [this](std::string_view path) { return answer(path); });
        } catch (const std::system_error& failed) {
            refuse(std::string(failed.what()) + "; look at the limits of open files and of processes");
        }
        append(own_figures, services::expose(own, http->refusals()));
        url = "http://" + e.substr(0, e.rfind(':') + 1) + std::to_string(http->port()) + "/metrics";
    }

    http_answer answer(std::string_view path)
    {
        if (path == "/metrics")
            return metrics();
        if (path == "/healthz")
            return tell(options.health);
        if (path == "/readyz")
            return tell(options.ready);
        if (path == "/")
            return {200, "text/html; charset=utf-8", std::string(services::front_page),
                    std::string(services::front_page_policy)};
        return {404, plain_text, "there are /, /metrics, /healthz and /readyz\n"};
    }
    http_answer metrics()
    {
        const auto begun = std::chrono::steady_clock::now();
        http_answer all{200, "text/plain; version=0.0.4; charset=utf-8", to_text(registry)};
        all.body += to_text(own);
        stats.scrapes.add();
        stats.bytes.add(all.body.size());
        stats.seconds.observe(static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begun).count()));
        return all;
    }
    static http_answer tell(const std::function<probe()>& ask)
    {
        const probe said = ask ? ask() : probe{};
        return {said.good ? 200U : 503U, plain_text, said.text + '\n'};
    }

    const metric_registry& registry;
    const serve_options options;
    // Of the thread that answers.
    services::scrape_stats stats;
    metric_registry own;
    metric_registrations own_figures;
    std::string url;
    std::optional<http_server> http; // goes first
};

server::server(std::unique_ptr<impl> made) noexcept : impl_(std::move(made)) {}
server::server(server&& other) noexcept = default;
server& server::operator=(server&& other) noexcept = default;
server::~server() = default;

const std::string& server::url() const noexcept
{
    static const std::string none;
    return impl_ ? impl_->url : none;
}

server serve(const metric_registry& registry, const std::string& endpoint, serve_options options)
{
    check_endpoint(endpoint);
    return server(std::make_unique<server::impl>(registry, endpoint, std::move(options)));
}

void check_endpoint(const std::string& endpoint)
{
    if (!place_of(endpoint))
        throw config_error("metrics " + endpoint +
                           ": must be a numeric address with a port, as in 127.0.0.1:9464 or [::1]:9464");
}

std::string to_text(const metric_registry& registry)
{
    return prometheus::TextSerializer().Serialize(to_prometheus(registry));
}

} // namespace verbena::metrics

verbena::metric_registrations verbena::services::expose(metric_registry& registry, const scrape_stats& stats)
{
    metric_registrations all;
    all.push_back(registry.add(
        {"verbena_scrapes_total", "Scrapes answered.", metric_type::counter, "scrapes"}, stats.scrapes));
    all.push_back(registry.add(
        {"verbena_scrape_bytes_total", "Bytes of the answers to scrapes.", metric_type::counter, "bytes"},
        stats.bytes));
    all.push_back(registry.add({"verbena_scrape_seconds", "Time to put the answer to a scrape together.",
                                metric_type::histogram, "seconds"},
                               [&stats](metric_sink& out) {
                                   histogram_snapshot h;
                                   stats.seconds.add_to(h);
                                   out.histogram({}, h);
                               }));
    return all;
}
