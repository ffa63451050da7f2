// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/verbs/transport_metrics.hpp>
#include <verbena/protocols/rtrs/client.hpp>
#include <verbena/protocols/rtrs/server.hpp>

#include <string>
#include <utility>

namespace verbena::rtrs {

namespace {

constexpr std::size_t bound = path_series::max_paths + 1;

// `peer` is what the other side is called.
void expose_paths(metric_group& group, const std::string& prefix, const char* peer, const path_series& all)
{
    group.add({prefix + "requests_total",
               "Requests of a path that have ended.",
               metric_type::counter,
               "requests",
               {"session", peer, "kind"},
               2 * bound},
              [&all](metric_sink& out) {
                  all.each([&](const std::string& session, const std::string& from, const path_counters& c) {
                      out.value({session, from, "read"}, value_of(c.reads.requests));
                      out.value({session, from, "write"}, value_of(c.writes.requests));
                  });
              });
    group.add({prefix + "bytes_total",
               "Data of a path's requests that succeeded.",
               metric_type::counter,
               "bytes",
               {"session", peer, "kind"},
               2 * bound},
              [&all](metric_sink& out) {
                  all.each([&](const std::string& session, const std::string& from, const path_counters& c) {
                      out.value({session, from, "read"}, value_of(c.reads.bytes));
                      out.value({session, from, "write"}, value_of(c.writes.bytes));
                  });
              });
    group.add({prefix + "request_seconds",
               "How long a path's requests took.",
               metric_type::histogram,
               "seconds",
               {"session", peer, "kind"},
               2 * bound},
              [&all](metric_sink& out) {
                  all.each([&](const std::string& session, const std::string& from, const path_counters& c) {
                      for (const auto& [kind, k] :
                           {std::pair("read", &c.reads), std::pair("write", &c.writes)}) {
                          histogram_snapshot h;
                          k->latency.add_to(h);
                          out.histogram({session, from, kind}, h);
                      }
                  });
              });
    const auto one = [&](const char* name, const char* help, metric_type type, const char* unit, auto read) {
        group.add({prefix + name, help, type, unit, {"session", peer}, bound},
                  [&all, read](metric_sink& out) {
                      all.each([&](const std::string& session, const std::string& from,
                                   const path_counters& c) { out.value({session, from}, read(c)); });
                  });
    };
    one("failed_requests_total", "Requests of a path that were answered with an error.", metric_type::counter,
        "requests", [](const path_counters& c) { return value_of(c.failed); });
    one("requests_in_flight", "Requests of a path that are under way now.", metric_type::gauge, "requests",
        [](const path_counters& c) { return value_of(c.in_flight); });
    one("missed_heartbeats_total", "Heartbeat intervals of a path in which nothing came from the other side.",
        metric_type::counter, "heartbeats",
        [](const path_counters& c) { return value_of(c.missed_heartbeats); });
}

} // namespace

metric_registrations expose(metric_registry& registry, const server_stats& s)
{
    metric_group group(registry);
    group.add({"verbena_rtrs_requests_total",
               "Requests of clients, by whether they brought data.",
               metric_type::counter,
               "requests",
               {"kind"},
               2},
              [&s](metric_sink& out) {
                  out.value({"read"}, value_of(s.reads));
                  out.value({"write"}, value_of(s.writes));
              });
    group.add({"verbena_rtrs_bytes_total",
               "Data of requests that succeeded.",
               metric_type::counter,
               "bytes",
               {"kind"},
               2},
              [&s](metric_sink& out) {
                  out.value({"read"}, value_of(s.read_bytes));
                  out.value({"write"}, value_of(s.write_bytes));
              });
    group.add({"verbena_rtrs_failed_requests_total",
               "Requests answered with an error, repeated on another path while a copy was under way, or not "
               "answered since their path was gone.",
               metric_type::counter,
               "requests",
               {"kind"},
               3},
              [&s](metric_sink& out) {
                  out.value({"error"}, value_of(s.failed));
                  out.value({"repeated"}, value_of(s.repeated));
                  out.value({"unanswered"}, value_of(s.unanswered));
              });
    group.add_sum({"verbena_rtrs_sessions", "Sessions of clients.", metric_type::gauge, "sessions"},
                  s.sessions);
    group.add_sum({"verbena_rtrs_paths", "Paths of sessions.", metric_type::gauge, "paths"}, s.paths);
    group.add_sum({"verbena_rtrs_connections", "Connections of paths.", metric_type::gauge, "connections"},
                  s.connections);
    group.add({"verbena_rtrs_refused_connections_total",
               "Connections rejected at set-up, by reason.",
               metric_type::counter,
               "connections",
               {"reason"},
               std::size_t(refusal::count_)},
              [&s](metric_sink& out) {
                  for (std::size_t i = 0; i < std::size_t(refusal::count_); ++i)
                      out.value({to_string(refusal(i))}, value_of(s.refused[i]));
              });
    expose_paths(group, "verbena_rtrs_path_", "peer", s.by_path);
    group.add({"verbena_rtrs_ended_paths_total",
               "Paths that ended, by reason.",
               metric_type::counter,
               "paths",
               {"reason"},
               std::size_t(path_end::count_)},
              [&s](metric_sink& out) {
                  for (std::size_t i = 0; i < std::size_t(path_end::count_); ++i)
                      out.value({to_string(path_end(i))}, value_of(s.ends[i]));
              });
    group.add_sum({"verbena_rtrs_invalidations_total",
                   "Keys of chunks that were taken away for the time of a request (always_invalidate).",
                   metric_type::counter, "keys"},
                  s.invalidations);
    group.add_sum({"verbena_rtrs_exceptions_total", "Exceptions that left a service or a task of a path.",
                   metric_type::counter, "exceptions"},
                  s.exceptions);
    return group.take();
}

metric_registrations expose(metric_registry& registry, const client_stats& s)
{
    metric_group group(registry);
    group.add({"verbena_rtrs_client_requests_total",
               "Requests that were answered or failed, by whether they sent data.",
               metric_type::counter,
               "requests",
               {"kind"},
               2},
              [&s](metric_sink& out) {
                  out.value({"read"}, value_of(s.reads));
                  out.value({"write"}, value_of(s.writes));
              });
    group.add({"verbena_rtrs_client_bytes_total",
               "Data of requests that succeeded.",
               metric_type::counter,
               "bytes",
               {"kind"},
               2},
              [&s](metric_sink& out) {
                  out.value({"read"}, value_of(s.read_bytes));
                  out.value({"write"}, value_of(s.written_bytes));
              });
    const auto count = [&](const char* name, const char* help, const char* unit, const counter& of) {
        group.add_sum({name, help, metric_type::counter, unit}, of);
    };
    count("verbena_rtrs_client_failed_requests_total", "Requests that failed.", "requests", s.failed);
    count("verbena_rtrs_client_failovers_total", "Requests sent again since their path broke.", "requests",
          s.failovers);
    group.add({"verbena_rtrs_client_lost_paths_total",
               "Paths that were connected and ended, but for those that were closed, by reason.",
               metric_type::counter,
               "paths",
               {"reason"},
               std::size_t(path_end::count_)},
              [&s](metric_sink& out) {
                  for (std::size_t i = 0; i < std::size_t(path_end::count_); ++i)
                      out.value({to_string(path_end(i))}, value_of(s.lost_paths[i]));
              });
    count("verbena_rtrs_client_reconnects_total", "Paths that were made again.", "paths", s.reconnects);
    count("verbena_rtrs_client_abandoned_sessions_total",
          "Sessions that were begun anew since paths that carried requests that were given up did not come "
          "back.",
          "sessions", s.abandoned_sessions);
    count("verbena_rtrs_client_permit_waits_total", "Requests that waited for others of their session.",
          "requests", s.permit_waits);
    expose_paths(group, "verbena_rtrs_client_path_", "server", s.by_path);
    return group.take();
}

} // namespace verbena::rtrs
