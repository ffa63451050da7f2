// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/verbs/transport_metrics.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>

#include <string>

namespace verbena::rpc {

namespace {

metric_family of_streams(const char* name, const char* help, const char* unit)
{
    return {name, help, metric_type::counter, unit};
}

metric_family of_procedures(const char* name, const char* help, metric_type type, const char* unit)
{
    return {name, help, type, unit, {"program", "version", "procedure", "transport"}, 256};
}

} // namespace

metric_registrations expose(metric_registry& registry, const stream_stats& s, std::string_view transport)
{
    namespace common = transport_metrics;
    metric_group group(registry);
    const auto labelled = [&](metric_family family, const auto& n) {
        group.add(std::move(family),
                  [&n, by = std::string(transport)](metric_sink& out) { out.value({by}, value_of(n)); });
    };
    labelled(common::connections(), s.connections);
    labelled(common::connections_accepted(), s.accepted);
    group.add(common::connection_ends(), [&s, by = std::string(transport)](metric_sink& out) {
        for (std::size_t i = 0; i < stream_end_count; ++i)
            out.value({by, to_string(stream_end(i))}, value_of(s.ended[i]));
    });
    labelled(common::received_bytes(), s.received_bytes);
    labelled(common::sent_bytes(), s.sent_bytes);
    labelled(common::receives(), s.receives);
    labelled(common::sends(), s.sends);
    labelled(common::payload_copied_bytes(), s.payload_copied_bytes);
    group.add_sum({"verbena_stream_calls_in_flight", "Calls from streams that are being served now.",
                   metric_type::gauge, "calls"},
                  s.calls_in_flight);
    group.add_sum(of_streams("verbena_stream_pauses_total",
                             "Times that reading from a stream stopped at a limit.", "pauses"),
                  s.pauses);
    group.add_sum(of_streams("verbena_stream_memory_waits_total",
                             "Times that a stream waited for buffer memory.", "waits"),
                  s.memory_waits);
    group.add_sum(
        of_streams("verbena_stream_share_waits_total",
                   "Times that a stream waited since those of its host held as much for large calls "
                   "on their way as they may.",
                   "waits"),
        s.share_waits);
    group.add_sum(of_streams("verbena_stream_yields_total",
                             "Times that a stream with more calls in hand let other connections go first.",
                             "yields"),
                  s.yields);
    group.add_sum(
        of_streams("verbena_stream_unanswered_total", "Records from streams that got no reply.", "calls"),
        s.unanswered);
    return group.take();
}

metric_registrations expose(metric_registry& registry, const service_dispatcher& calls)
{
    using label = service_dispatcher::procedure_label;
    metric_group group(registry);
    const auto count = [&](const char* name, const char* help, const char* unit,
                           counter procedure_stats::* which) {
        group.add(of_procedures(name, help, metric_type::counter, unit), [&calls, which](metric_sink& out) {
            calls.for_each([&](const label& of, const procedure_stats& stats) {
                out.value({of.program, std::to_string(of.version), of.procedure, of.transport},
                          value_of(stats.*which));
            });
        });
    };
    using s = procedure_stats;
    count("verbena_rpc_calls_total", "Calls served.", "calls", &s::calls);
    count("verbena_rpc_errors_total",
          "Calls answered with an RPC status other than SUCCESS; a program's own errors do not count.",
          "calls", &s::errors);
    count("verbena_rpc_exceptions_total",
          "Calls whose procedure threw an exception; they were answered with SYSTEM_ERR.", "calls",
          &s::exceptions);
    count("verbena_rpc_dropped_total", "Calls that got no reply.", "calls", &s::dropped);
    count("verbena_rpc_received_bytes_total", "Bytes of calls, payloads included.", "bytes", &s::bytes_in);
    count("verbena_rpc_sent_bytes_total", "Bytes of replies, payloads included.", "bytes", &s::bytes_out);
    group.add(of_procedures("verbena_rpc_latency_seconds", "Time from the whole call to the whole reply.",
                            metric_type::histogram, "seconds"),
              [&calls](metric_sink& out) {
                  calls.for_each([&](const label& of, const procedure_stats& stats) {
                      histogram_snapshot h;
                      stats.latency.add_to(h);
                      out.histogram({of.program, std::to_string(of.version), of.procedure, of.transport}, h);
                  });
              });
    group.add({"verbena_rpc_refusals_total",
               "Calls that reached no procedure, by what they were answered with.",
               metric_type::counter,
               "calls",
               {"reason"},
               8},
              [&calls](metric_sink& out) {
                  const refusal_stats& r = calls.refusals();
                  out.value({"unanswerable"}, value_of(r.unanswerable));
                  out.value({"rpc_mismatch"}, value_of(r.rpc_mismatch));
                  out.value({"auth_error"}, value_of(r.auth_error));
                  out.value({"program_unavailable"}, value_of(r.program_unavailable));
                  out.value({"program_mismatch"}, value_of(r.program_mismatch));
                  out.value({"procedure_unavailable"}, value_of(r.procedure_unavailable));
              });
    return group.take();
}

metric_registrations expose(metric_registry& registry, const duplicate_request_cache& cache)
{
    metric_group group(registry);
    const auto level = [&](const char* name, const char* help, const char* unit,
                           gauge duplicate_request_stats::* which) {
        group.add({name, help, metric_type::gauge, unit}, [&cache, which](metric_sink& out) {
            for (std::size_t part = 0; part < cache.parts(); ++part)
                out.value({}, value_of(cache.stats(part).*which));
        });
    };
    level("verbena_duplicate_request_entries", "Replies kept for callers that repeat themselves.", "entries",
          &duplicate_request_stats::entries);
    level("verbena_duplicate_request_bytes", "Memory of those replies.", "bytes",
          &duplicate_request_stats::bytes);
    group.add({"verbena_duplicate_requests_total",
               "What the duplicate-request cache did.",
               metric_type::counter,
               "calls",
               {"outcome"},
               8},
              [&cache](metric_sink& out) {
                  for (std::size_t part = 0; part < cache.parts(); ++part) {
                      const duplicate_request_stats& d = cache.stats(part);
                      const duplicate_request_stats& in_turn = cache.in_turn_stats(part);
                      out.value({"remembered"}, value_of(d.remembered));
                      out.value({"replayed"}, value_of(d.replayed));
                      out.value({"waited"}, value_of(d.waited) + value_of(in_turn.waited));
                      out.value({"dropped"}, value_of(d.dropped) + value_of(in_turn.dropped));
                      out.value({"evicted"}, value_of(d.evicted));
                      out.value({"uncached"}, value_of(d.uncached) + value_of(in_turn.uncached));
                  }
              });
    return group.take();
}

} // namespace verbena::rpc
