// SPDX-License-Identifier: Apache-2.0
#include "metrics_exporter.hpp"
#include <verbena/core/net.hpp>
#include <verbena/core/settings.hpp>

#include <atomic>
#include <limits>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <thread>

namespace verbena::services {

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

class registry_snapshot final : public prometheus::Collectable {
public:
    explicit registry_snapshot(const metric_registry& registry) : registry_(registry) {}
    std::vector<prometheus::MetricFamily> Collect() const override
    {
        std::vector<prometheus::MetricFamily> all;
        for (const metric_snapshot& from : registry_.collect()) {
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

private:
    const metric_registry& registry_;
};

} // namespace

struct metrics_exporter::impl {
    impl(const metric_registry& registry, const std::string& address)
        : snapshot(std::make_shared<registry_snapshot>(registry)),
          // A connection that says nothing holds a thread until the time-out, so there are some to hold:
          // 100 at once keep a scrape waiting for 6 s, which Prometheus bears (10 s).
          exposer(std::vector<std::string>{"listening_ports", address, "num_threads", "32",
                                           "request_timeout_ms", "2000"})
    {
        exposer.RegisterCollectable(snapshot);
    }
    std::shared_ptr<registry_snapshot> snapshot;
    prometheus::Exposer exposer;
};

metrics_exporter::metrics_exporter(const metric_registry& registry, const std::string& address)
{
    try {
        impl_ = std::make_unique<impl>(registry, address);
    } catch (const std::exception&) {
        throw config_error("metrics " + address +
                           ": can't listen there, since another program does or the "
                           "address is not of this host; choose another ADDR:PORT, or off");
    }
    const std::string host = address.substr(0, address.rfind(':'));
    address_ = host + ':' + std::to_string(impl_->exposer.GetListeningPorts().at(0));
    url_ = "http://" + address_ + "/metrics";
}

metrics_exporter::~metrics_exporter()
{
    // The server looks whether it shall stop only when a connection or a time-out of two seconds wakes it.
    std::atomic<bool> stopped{false};
    std::thread knocker([&] {
        const auto where = net::resolve(address_);
        while (where && !stopped.load(std::memory_order_relaxed)) {
            const auto knock = net::start_connect(where->front());
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
    });
    impl_.reset();
    stopped.store(true, std::memory_order_relaxed);
    knocker.join();
}

} // namespace verbena::services
