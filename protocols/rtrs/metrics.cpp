// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/transport_metrics.hpp>
#include <verbena/protocols/rtrs/client.hpp>
#include <verbena/protocols/rtrs/server.hpp>

namespace verbena::rtrs {

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
    group.add_sum({"verbena_rtrs_refused_connections_total", "Connections rejected at set-up.",
                   metric_type::counter, "connections"},
                  s.refused_connections);
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
    count("verbena_rtrs_client_permit_waits_total", "Requests that waited for others of their session.",
          "requests", s.permit_waits);
    return group.take();
}

} // namespace verbena::rtrs
