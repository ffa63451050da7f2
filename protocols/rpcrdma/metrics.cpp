// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/verbs/transport_metrics.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>

namespace verbena::rpcrdma {

metric_registrations expose(metric_registry& registry, const responder_stats& s)
{
    metric_group group(registry);
    const auto count = [&](const char* name, const char* help, const char* unit, const counter& of) {
        group.add_sum({name, help, metric_type::counter, unit}, of);
    };
    count("verbena_rpcrdma_calls_total", "Calls that came over RDMA.", "calls", s.calls);
    count("verbena_rpcrdma_credits_wanted_total", "Credits asked for, added up over calls.", "credits",
          s.credits_wanted);
    count("verbena_rpcrdma_credit_raises_total",
          "Times that a connection got more credits, since it used what it had.", "raises", s.credit_raises);
    count("verbena_rpcrdma_credits_granted_total", "Credits granted, added up over replies.", "credits",
          s.credits_granted);
    group.add({"verbena_rpcrdma_replies_total",
               "Replies by how the results went out.",
               metric_type::counter,
               "replies",
               {"kind"},
               4},
              [&s](metric_sink& out) {
                  out.value({"inline"}, value_of(s.inline_replies));
                  out.value({"write_chunk"}, value_of(s.write_chunk_replies));
                  out.value({"reply_chunk"}, value_of(s.reply_chunk_replies));
              });
    group.add({"verbena_rpcrdma_chunk_bytes_total",
               "Bytes moved by RDMA Read from, and RDMA Write to, requesters.",
               metric_type::counter,
               "bytes",
               {"direction"},
               2},
              [&s](metric_sink& out) {
                  out.value({"read"}, value_of(s.read_chunk_bytes));
                  out.value({"write"}, value_of(s.write_chunk_bytes));
              });
    group.add({"verbena_rpcrdma_errors_total",
               "RDMA_ERROR replies, messages dropped in silence, RDMA Reads that failed, stalled or starved, "
               "credits exceeded, and exceptions that ended a connection.",
               metric_type::counter,
               "errors",
               {"kind"},
               9},
              [&s](metric_sink& out) {
                  out.value({"version"}, value_of(s.version_errors));
                  out.value({"chunk"}, value_of(s.chunk_errors));
                  out.value({"dropped"}, value_of(s.dropped));
                  out.value({"read"}, value_of(s.failed_reads));
                  out.value({"read_stalled"}, value_of(s.stalled_reads));
                  out.value({"read_starved"}, value_of(s.starved_reads));
                  out.value({"credits"}, value_of(s.credit_overruns));
                  out.value({"draining"}, value_of(s.refused_draining));
                  out.value({"exception"}, value_of(s.exceptions));
              });
    count("verbena_rpcrdma_remote_invalidations_total", "Replies that invalidated a requester's key.",
          "replies", s.remote_invalidations);
    count("verbena_rpcrdma_rejected_connections_total", "Connections rejected at set-up.", "connections",
          s.rejected_connections);
    count("verbena_rpcrdma_stale_completions_total", "Completions for calls that were gone.", "completions",
          s.stale_completions);
    count("verbena_rpcrdma_probes_total",
          "RDMA Writes of nothing to silent peers, to learn whether they are there.", "writes", s.probes);
    count("verbena_rpcrdma_receive_shortages_total",
          "Receives that could not be posted again at once, for want of memory.", "receives",
          s.receive_shortages);
    count(
        "verbena_rpcrdma_chunk_waits_total",
        "Calls that waited since the calls of their connection, or of their host, moved as much as they may "
        "at once.",
        "calls", s.chunk_waits);
    count("verbena_rpcrdma_yields_total",
          "Times that a connection with more calls in hand let others go first.", "yields", s.yields);
    group.add_sum(transport_metrics::read_depth_waits(), s.read_depth_waits);
    group.add(transport_metrics::payload_copied_bytes(),
              [&s](metric_sink& out) { out.value({"rpcrdma"}, value_of(s.payload_copied_bytes)); });
    return group.take();
}

metric_registrations expose(metric_registry& registry, const requester_stats& s)
{
    metric_group group(registry);
    group.add({"verbena_rpcrdma_client_calls_total",
               "Calls made over RDMA, by how their arguments went out.",
               metric_type::counter,
               "calls",
               {"kind"},
               3},
              [&s](metric_sink& out) {
                  out.value({"inline"}, value_of(s.inline_calls));
                  out.value({"read_chunk"}, value_of(s.read_chunk_calls));
                  out.value({"long"}, value_of(s.long_calls));
              });
    group.add({"verbena_rpcrdma_client_offered_chunks_total",
               "Chunks offered to servers for their results.",
               metric_type::counter,
               "chunks",
               {"kind"},
               2},
              [&s](metric_sink& out) {
                  out.value({"write"}, value_of(s.write_chunks));
                  out.value({"reply"}, value_of(s.reply_chunks));
              });
    group.add({"verbena_rpcrdma_client_errors_total",
               "RDMA_ERROR received, and messages that were no reply to anything.",
               metric_type::counter,
               "errors",
               {"kind"},
               2},
              [&s](metric_sink& out) {
                  out.value({"refused"}, value_of(s.errors));
                  out.value({"dropped"}, value_of(s.dropped));
              });
    const auto count = [&](const char* name, const char* help, const char* unit, const counter& of) {
        group.add_sum({name, help, metric_type::counter, unit}, of);
    };
    count("verbena_rpcrdma_client_remote_invalidations_total", "Replies that took a key of ours away.",
          "replies", s.remote_invalidations);
    count("verbena_rpcrdma_client_credit_waits_total", "Calls that waited for a credit.", "calls",
          s.credit_waits);
    count("verbena_rpcrdma_client_callbacks_total", "Calls of servers that were served.", "calls",
          s.callbacks);
    count("verbena_rpcrdma_client_wakes_total",
          "RDMA Writes of nothing, while a connection's first answer is awaited.", "writes", s.wakes);
    return group.take();
}

} // namespace verbena::rpcrdma
