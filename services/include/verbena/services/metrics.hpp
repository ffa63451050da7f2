// SPDX-License-Identifier: Apache-2.0
// What a registry counts, for Prometheus: over HTTP, or as text for whoever has a way of its own.
//
// verbena::service does this by itself ([metrics] listen). A program that has a registry and no service calls serve().
#pragma once

#include <verbena/core/metrics.hpp>

#include <functional>
#include <memory>
#include <string>

#pragma GCC visibility push(default)

namespace verbena::metrics {

/// What a page of health says.
struct probe {
    bool good = true;        ///< 200, else 503
    std::string text = "ok"; ///< a line for people
};

/// What the pages of health say (serve()).
struct serve_options {
    /// GET /healthz: whether the program works; if not, a manager may end it. Empty: it does.
    std::function<probe()> health = {};
    /// GET /readyz: whether it wants calls. Empty: it does.
    std::function<probe()> ready = {};
    // Both on the server's thread: they wait for nothing.
};

/// Answers GET /metrics, /healthz, /readyz and / from serve() until it is destroyed, on a thread of its own, over HTTP/1.1.
///
/// May be moved and destroyed on any thread, one at a time. The destructor waits for scrapes that are under way: no collector runs
/// after it. So it takes milliseconds, or as long as a collector does, and must run neither on a shard nor in a collector.
/// A connection that is still for 5 s is cut off, and so is each when it ends.
class [[nodiscard]] server {
public:
    server(server&& other) noexcept;
    server& operator=(server&& other) noexcept;
    ~server();

    /// "http://127.0.0.1:9464/metrics", with the real port. Empty if it was moved from.
    const std::string& url() const noexcept;

private:
    friend server serve(const metric_registry& registry, const std::string& endpoint, serve_options options);
    struct impl;
    explicit server(std::unique_ptr<impl> made) noexcept;
    std::unique_ptr<impl> impl_;
};

/// Serves `registry` to Prometheus, without password or TLS, so `endpoint` is an address that only Prometheus reaches.
///
/// `endpoint` is "ADDR:PORT" with a numeric address ("[::1]:9464" for IPv6) or localhost; port 0 takes a free one. `registry` outlives what is returned;
/// what registers there need not. Collectors run on the server's thread, one scrape at a time. Throws config_error with the cure when
/// the endpoint can't be had: another program listens there, the address is none of this host's, the port needs rights.
/// Blocks for as long as a socket takes to open: for set-up, not for a shard.
server serve(const metric_registry& registry, const std::string& endpoint, serve_options options = {});

/// Throws the config_error of serve() for an endpoint that could be had on no host. Opens nothing.
void check_endpoint(const std::string& endpoint);

/// The same as text, in Prometheus's exposition format 0.0.4 ("text/plain; version=0.0.4"), without the families that have no
/// samples. Any thread that may wait for a lock and for collectors: not a shard.
std::string to_text(const metric_registry& registry);

/// Registers what the kernel says about this process (process_cpu_seconds_total, process_open_fds...), under the names that all
/// Prometheus clients share, and verbena_build_info. Once for a registry, which outlives what is returned.
metric_registrations expose_process(metric_registry& registry);

} // namespace verbena::metrics

#pragma GCC visibility pop
