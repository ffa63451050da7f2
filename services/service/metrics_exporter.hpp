// SPDX-License-Identifier: Apache-2.0
// Serves the metrics of a registry to Prometheus over HTTP.
#pragma once

#include <verbena/core/metrics.hpp>

#include <memory>
#include <string>

namespace verbena::services {

/// Answers GET /metrics on threads of its own, until it is destroyed.
class metrics_exporter {
public:
    /// `address` is "ADDR:PORT" or "[v6]:PORT"; port 0 takes a free one. Throws config_error with the cure
    /// when the address can't be had. `registry` outlives it.
    metrics_exporter(const metric_registry& registry, const std::string& address);
    ~metrics_exporter();

    /// "http://127.0.0.1:9464/metrics", with the real port.
    const std::string& url() const noexcept { return url_; }

private:
    struct impl;
    std::unique_ptr<impl> impl_;
    std::string address_;
    std::string url_;
};

/// Registers what the kernel says about this process, under the names that Prometheus clients share, and
/// verbena_build_info.
std::vector<metric_registry::registration> expose_process(metric_registry& registry);

} // namespace verbena::services
