// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/module/start_error.hpp>
#include <verbena/services/metrics.hpp>

#include <verbena/core/module/settings.hpp>
#include <verbena/core/net/net.hpp>

#include <atomic>
#include <cerrno>
#include <limits>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <system_error>
#include <thread>

namespace verbena::metrics {

namespace {

constexpr double nanosecond = 1e-9;

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

class registry_snapshot final : public prometheus::Collectable {
public:
    explicit registry_snapshot(const metric_registry& registry) : registry_(registry) {}
    std::vector<prometheus::MetricFamily> Collect() const override { return to_prometheus(registry_); }

private:
    const metric_registry& registry_;
};

// What may be bound; the name is for people, and every host has it.
result<net::endpoint> place_of(const std::string& endpoint)
{
    constexpr std::string_view name = "localhost:";
    return net::endpoint::parse(endpoint.starts_with(name) ? "127.0.0.1:" + endpoint.substr(name.size())
                                                           : endpoint);
}

// The library that answers says only that it can't.
std::string why_not(const std::string& endpoint)
{
    const auto where = place_of(endpoint);
    const auto tried = where ? net::open_listener(*where) : result<net::unique_fd>(where.error());
    switch (tried ? 0 : tried.error().errno_value()) {
    case EADDRINUSE:
        return "another program listens there; end it, or choose another ADDR:PORT, or port 0 for a free one";
    case EADDRNOTAVAIL:
        return "the address is not of this host; choose one that `ip address` shows, or 127.0.0.1";
    case EACCES: return "ports below 1024 need root or CAP_NET_BIND_SERVICE; choose a higher one";
    case 0: return "no socket or no thread could be had; look at the limits of open files and of processes";
    default: return tried.error().message() + "; choose another ADDR:PORT";
    }
}

} // namespace

struct server::impl {
    impl(const metric_registry& registry, const std::string& endpoint)
        : snapshot(std::make_shared<registry_snapshot>(registry)),
          // A connection that says nothing holds a thread until the time-out, so there are some to hold:
          // 100 at once keep a scrape waiting for 6 s, which Prometheus bears (10 s).
          exposer(std::vector<std::string>{"listening_ports", endpoint, "num_threads", "32",
                                           "request_timeout_ms", "2000"})
    {
        exposer.RegisterCollectable(snapshot);
        address =
            endpoint.substr(0, endpoint.rfind(':') + 1) + std::to_string(exposer.GetListeningPorts().at(0));
        url = "http://" + address + "/metrics";
    }
    std::shared_ptr<registry_snapshot> snapshot;
    prometheus::Exposer exposer;
    std::string address;
    std::string url;
};

namespace {

// The HTTP server looks whether it shall stop only when a connection or a time-out of two seconds wakes it.
template<class Impl>
void stop(std::unique_ptr<Impl> running) noexcept
{
    if (!running)
        return;
    std::atomic<bool> stopped{false};
    std::thread knocker;
    try {
        knocker = std::thread([&stopped, where = net::resolve(running->address)] {
            while (where && !stopped.load(std::memory_order_relaxed)) {
                const auto knock = net::start_connect(where->front());
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
        });
    } catch (const std::exception&) { // it takes the two seconds then
    }
    running.reset();
    stopped.store(true, std::memory_order_relaxed);
    if (knocker.joinable())
        knocker.join();
}

} // namespace

server::server(std::unique_ptr<impl> made) noexcept : impl_(std::move(made)) {}
server::server(server&& other) noexcept = default;
server& server::operator=(server&& other) noexcept
{
    if (this != &other)
        stop(std::exchange(impl_, std::move(other.impl_)));
    return *this;
}
server::~server() { stop(std::move(impl_)); }

const std::string& server::url() const noexcept
{
    static const std::string none;
    return impl_ ? impl_->url : none;
}

server serve(const metric_registry& registry, const std::string& endpoint)
{
    check_endpoint(endpoint);
    try {
        return server(std::make_unique<server::impl>(registry, endpoint));
    } catch (const std::exception&) {
        throw start_error("metrics " + endpoint + ": can't listen there: " + why_not(endpoint));
    }
}

void check_endpoint(const std::string& endpoint)
{
    const auto where = place_of(endpoint);
    if (!where)
        throw config_error("metrics " + endpoint +
                           ": must be a numeric IPv4 address with a port, as in 127.0.0.1:9464");
    // The library that answers scrapes may be built without IPv6, and nothing tells.
    if (endpoint.front() == '[')
        throw config_error("metrics " + endpoint + ": metrics are served over IPv4 only; write " +
                           (where->is_wildcard() ? "0.0.0.0:" : "127.0.0.1:") +
                           std::to_string(where->port()) + " or another IPv4 address of this host");
}

std::string to_text(const metric_registry& registry)
{
    return prometheus::TextSerializer().Serialize(to_prometheus(registry));
}

} // namespace verbena::metrics
