// SPDX-License-Identifier: Apache-2.0
#include "shard_server.hpp"

#include <functional>
#include <string>

namespace verbena::services {

namespace {

using shard_list = std::vector<const shard_server*>;
using label_list = std::vector<std::string>;

constexpr std::size_t max_procedure_series = 256;
constexpr std::size_t max_cause_series = 64;

double value_of(const counter& c) { return double(c.value()); }
double value_of(const gauge& g) { return double(g.value()); }
double value_of(const std::atomic<std::uint64_t>& n) { return double(n.load(std::memory_order_relaxed)); }

class builder {
public:
    builder(metric_registry& registry, const shard_list& shards) : registry_(registry), shards_(shards) {}

    /// A family whose samples `collect` takes from one shard.
    template<class F>
    void add(const char* name, const char* help, metric_type type, const char* unit, label_list labels,
             std::size_t bound, F collect)
    {
        add({name, help, type, unit, std::move(labels), bound}, collect);
    }
    template<class F>
    void add(metric_family family, F collect)
    {
        all_.push_back(registry_.add(std::move(family), [shards = shards_, collect](metric_sink& out) {
            for (const shard_server* s : shards)
                collect(out, *s);
        }));
    }
    /// One series.
    template<class F>
    void sum(const char* name, const char* help, metric_type type, const char* unit, F read)
    {
        add(name, help, type, unit, {}, 1,
            [read](metric_sink& out, const shard_server& s) { out.value({}, read(s)); });
    }
    /// A counter of every procedure that was called.
    void per_procedure(const char* name, const char* help, const char* unit,
                       counter rpc::procedure_stats::* which)
    {
        add(name, help, metric_type::counter, unit, procedure_labels(), max_procedure_series,
            [which](metric_sink& out, const shard_server& s) {
                s.calls().for_each([&](const rpc::service_dispatcher::procedure_label& of,
                                       const rpc::procedure_stats& stats) {
                    out.value({of.program, std::to_string(of.version), of.procedure, of.transport},
                              value_of(stats.*which));
                });
            });
    }
    static label_list procedure_labels() { return {"program", "version", "procedure", "transport"}; }
    std::vector<metric_registry::registration> take() { return std::move(all_); }

private:
    metric_registry& registry_;
    const shard_list& shards_;
    std::vector<metric_registry::registration> all_;
};

void add_calls(builder& b)
{
    using s = rpc::procedure_stats;
    b.per_procedure("verbena_rpc_calls_total", "Calls served.", "calls", &s::calls);
    b.per_procedure(
        "verbena_rpc_errors_total",
        "Calls answered with an RPC status other than SUCCESS; a program's own errors do not count.", "calls",
        &s::errors);
    b.per_procedure("verbena_rpc_exceptions_total",
                    "Calls whose procedure threw an exception; they were answered with SYSTEM_ERR.", "calls",
                    &s::exceptions);
    b.per_procedure("verbena_rpc_dropped_total", "Calls that got no reply.", "calls", &s::dropped);
    b.per_procedure("verbena_rpc_received_bytes_total", "Bytes of calls, payloads included.", "bytes",
                    &s::bytes_in);
    b.per_procedure("verbena_rpc_sent_bytes_total", "Bytes of replies, payloads included.", "bytes",
                    &s::bytes_out);
    b.add("verbena_rpc_latency_seconds", "Time from the whole call to the whole reply.",
          metric_type::histogram, "seconds", builder::procedure_labels(), max_procedure_series,
          [](metric_sink& out, const shard_server& shard) {
              shard.calls().for_each([&](const rpc::service_dispatcher::procedure_label& of, const s& stats) {
                  histogram_snapshot h;
                  stats.latency.add_to(h);
                  out.histogram({of.program, std::to_string(of.version), of.procedure, of.transport}, h);
              });
          });
    b.add("verbena_rpc_refusals_total", "Calls that reached no procedure, by what they were answered with.",
          metric_type::counter, "calls", {"reason"}, 8, [](metric_sink& out, const shard_server& shard) {
              const rpc::refusal_stats& r = shard.calls().refusals();
              out.value({"unanswerable"}, value_of(r.unanswerable));
              out.value({"rpc_mismatch"}, value_of(r.rpc_mismatch));
              out.value({"auth_error"}, value_of(r.auth_error));
              out.value({"program_unavailable"}, value_of(r.program_unavailable));
              out.value({"program_mismatch"}, value_of(r.program_mismatch));
              out.value({"procedure_unavailable"}, value_of(r.procedure_unavailable));
          });
}

// Calls `f` with the counters of the shard's RDMA devices, if it uses any.
template<class F>
void with_device([[maybe_unused]] const shard_server& s, [[maybe_unused]] F f)
{
#ifdef VERBENA_HAS_RDMA
    if (const rdma::stats* d = s.rdma_device())
        f(*d);
#endif
}
// Of the shards, and of what takes RDMA connections in for them.
metric_family connection_ends()
{
    return {"verbena_connection_ends_total",
            "Connections that ended or were refused, by cause.",
            metric_type::counter,
            "connections",
            {"transport", "cause"},
            max_cause_series};
}

// Templates, since a build without RDMA devices has no such causes and events.
template<class Stats>
void rdma_ends([[maybe_unused]] metric_sink& out, [[maybe_unused]] const Stats& d)
{
#ifdef VERBENA_HAS_RDMA
    for (std::size_t i = 0; i < d.ends.size(); ++i)
        out.value({"rdma", to_string(rdma::end_cause(i))}, value_of(d.ends[i]));
#endif
}
template<class Stats>
void rdma_events([[maybe_unused]] metric_sink& out, [[maybe_unused]] const Stats& d)
{
#ifdef VERBENA_HAS_RDMA
    for (std::size_t i = 0; i < d.device_events.size(); ++i)
        out.value({to_string(rdma::device_event(i))}, value_of(d.device_events[i]));
#endif
}

void add_devices(builder& b)
{
    b.add("verbena_rdma_registered_bytes", "Memory registered with RDMA devices.", metric_type::gauge,
          "bytes", {}, 1, [](metric_sink& out, const shard_server& s) {
              with_device(s, [&](const auto& d) { out.value({}, value_of(d.registered_bytes)); });
          });
    b.add("verbena_rdma_registrations_failed_total", "Registrations of memory that an RDMA device refused.",
          metric_type::counter, "registrations", {}, 1, [](metric_sink& out, const shard_server& s) {
              with_device(s, [&](const auto& d) { out.value({}, value_of(d.registrations_failed)); });
          });
    b.add("verbena_rdma_device_events_total", "What RDMA devices told without being asked.",
          metric_type::counter, "events", {"event"}, 16, [](metric_sink& out, const shard_server& s) {
              with_device(s, [&](const auto& d) { rdma_events(out, d); });
          });
    b.add("verbena_rdma_doorbells_total", "Batches of work requests given to RDMA devices.",
          metric_type::counter, "batches", {}, 1, [](metric_sink& out, const shard_server& s) {
              with_device(s, [&](const auto& d) { out.value({}, value_of(d.doorbells)); });
          });
    b.add("verbena_rdma_stale_completions_total", "Completions of queue pairs that were gone.",
          metric_type::counter, "completions", {}, 1, [](metric_sink& out, const shard_server& s) {
              with_device(s, [&](const auto& d) { out.value({}, value_of(d.stale_completions)); });
          });
}

void add_connections(builder& b)
{
    b.add("verbena_connections", "Connections open now.", metric_type::gauge, "connections", {"transport"}, 4,
          [](metric_sink& out, const shard_server& s) {
              out.value({"tcp"}, value_of(s.streams().connections));
              out.value({"iwarp"}, value_of(s.iwarp().active));
              with_device(s, [&](const auto& d) { out.value({"rdma"}, value_of(d.active)); });
          });
    b.add("verbena_connections_accepted_total", "Connections taken.", metric_type::counter, "connections",
          {"transport"}, 4, [](metric_sink& out, const shard_server& s) {
              out.value({"tcp"}, value_of(s.streams().accepted));
              out.value({"iwarp"}, value_of(s.iwarp().accepted));
              with_device(s, [&](const auto& d) { out.value({"rdma"}, value_of(d.accepted)); });
          });
    b.add(connection_ends(), [](metric_sink& out, const shard_server& s) {
        for (std::size_t i = 0; i < rpc::stream_end_count; ++i)
            out.value({"tcp", to_string(rpc::stream_end(i))}, value_of(s.streams().ended[i]));
        for (std::size_t i = 0; i < s.iwarp().ends.size(); ++i)
            out.value({"iwarp", to_string(iwarp::end_cause(i))}, value_of(s.iwarp().ends[i]));
        with_device(s, [&](const auto& d) { rdma_ends(out, d); });
    });
    b.add("verbena_transport_received_bytes_total", "Bytes received from sockets.", metric_type::counter,
          "bytes", {"transport"}, 4, [](metric_sink& out, const shard_server& s) {
              out.value({"tcp"}, value_of(s.streams().received_bytes));
              out.value({"iwarp"}, value_of(s.iwarp().bytes_received));
          });
    b.add("verbena_transport_sent_bytes_total", "Bytes given to sockets.", metric_type::counter, "bytes",
          {"transport"}, 4, [](metric_sink& out, const shard_server& s) {
              out.value({"tcp"}, value_of(s.streams().sent_bytes));
              out.value({"iwarp"}, value_of(s.iwarp().bytes_sent));
          });
    b.add("verbena_transport_receives_total", "System calls that brought bytes from a socket.",
          metric_type::counter, "calls", {"transport"}, 4, [](metric_sink& out, const shard_server& s) {
              out.value({"tcp"}, value_of(s.streams().receives));
              out.value({"iwarp"}, value_of(s.iwarp().receives));
          });
    b.add("verbena_transport_sends_total", "System calls that gave bytes to a socket.", metric_type::counter,
          "calls", {"transport"}, 4, [](metric_sink& out, const shard_server& s) {
              out.value({"tcp"}, value_of(s.streams().sends));
              out.value({"iwarp"}, value_of(s.iwarp().sends));
          });
    b.add("verbena_payload_copied_bytes_total",
          "Bytes of large arguments and results that were copied in user space; rpcrdma: by RPC-over-RDMA "
          "itself, "
          "over any provider.",
          metric_type::counter, "bytes", {"transport"}, 4, [](metric_sink& out, const shard_server& s) {
              out.value({"tcp"}, value_of(s.streams().payload_copied_bytes));
              out.value({"iwarp"}, value_of(s.iwarp().payload_copied_bytes));
              out.value({"rpcrdma"}, value_of(s.rdma().payload_copied_bytes));
          });
    const auto counter_of = [&](const char* name, const char* help, const char* unit, auto read) {
        b.sum(name, help, metric_type::counter, unit, read);
    };
    b.sum("verbena_stream_calls_in_flight", "Calls from streams that are being served now.",
          metric_type::gauge, "calls",
          [](const shard_server& s) { return value_of(s.streams().calls_in_flight); });
    counter_of("verbena_stream_pauses_total", "Times that reading from a stream stopped at a limit.",
               "pauses", [](const shard_server& s) { return value_of(s.streams().pauses); });
    counter_of("verbena_stream_memory_waits_total", "Times that a stream waited for buffer memory.", "waits",
               [](const shard_server& s) { return value_of(s.streams().memory_waits); });
    counter_of("verbena_stream_share_waits_total",
               "Times that a stream waited since those of its host held as much for large calls on their way "
               "as they may.",
               "waits", [](const shard_server& s) { return value_of(s.streams().share_waits); });
    counter_of("verbena_stream_yields_total",
               "Times that a stream with more calls in hand let other connections go first.", "yields",
               [](const shard_server& s) { return value_of(s.streams().yields); });
    counter_of("verbena_stream_unanswered_total", "Records from streams that got no reply.", "calls",
               [](const shard_server& s) { return value_of(s.streams().unanswered); });
}

void add_rdma(builder& b)
{
    const auto counter_of = [&](const char* name, const char* help, const char* unit,
                                counter rpcrdma::responder_stats::* which) {
        b.sum(name, help, metric_type::counter, unit,
              [which](const shard_server& s) { return value_of(s.rdma().*which); });
    };
    using r = rpcrdma::responder_stats;
    counter_of("verbena_rpcrdma_calls_total", "Calls that came over RDMA.", "calls", &r::calls);
    counter_of("verbena_rpcrdma_credits_wanted_total", "Credits asked for, added up over calls.", "credits",
               &r::credits_wanted);
    counter_of("verbena_rpcrdma_credits_granted_total", "Credits granted, added up over replies.", "credits",
               &r::credits_granted);
    b.add("verbena_rpcrdma_replies_total", "Replies by how the results went out.", metric_type::counter,
          "replies", {"kind"}, 4, [](metric_sink& out, const shard_server& s) {
              out.value({"inline"}, value_of(s.rdma().inline_replies));
              out.value({"write_chunk"}, value_of(s.rdma().write_chunk_replies));
              out.value({"reply_chunk"}, value_of(s.rdma().reply_chunk_replies));
          });
    b.add("verbena_rpcrdma_chunk_bytes_total",
          "Bytes moved by RDMA Read from, and RDMA Write to, requesters.", metric_type::counter, "bytes",
          {"direction"}, 2, [](metric_sink& out, const shard_server& s) {
              out.value({"read"}, value_of(s.rdma().read_chunk_bytes));
              out.value({"write"}, value_of(s.rdma().write_chunk_bytes));
          });
    b.add("verbena_rpcrdma_errors_total",
          "RDMA_ERROR replies, messages dropped in silence, RDMA Reads that failed or stalled, credits "
          "exceeded, and exceptions that ended a connection.",
          metric_type::counter, "errors", {"kind"}, 8, [](metric_sink& out, const shard_server& s) {
              out.value({"version"}, value_of(s.rdma().version_errors));
              out.value({"chunk"}, value_of(s.rdma().chunk_errors));
              out.value({"dropped"}, value_of(s.rdma().dropped));
              out.value({"read"}, value_of(s.rdma().failed_reads));
              out.value({"read_stalled"}, value_of(s.rdma().stalled_reads));
              out.value({"credits"}, value_of(s.rdma().credit_overruns));
              out.value({"draining"}, value_of(s.rdma().refused_draining));
              out.value({"exception"}, value_of(s.rdma().exceptions));
          });
    counter_of("verbena_rpcrdma_remote_invalidations_total", "Replies that invalidated a requester's key.",
               "replies", &r::remote_invalidations);
    counter_of("verbena_rpcrdma_rejected_connections_total", "Connections rejected at set-up.", "connections",
               &r::rejected_connections);
    counter_of("verbena_rpcrdma_stale_completions_total", "Completions for calls that were gone.",
               "completions", &r::stale_completions);
    counter_of("verbena_rpcrdma_probes_total",
               "RDMA Writes of nothing to silent peers, to learn whether they are there.", "writes",
               &r::probes);
    counter_of("verbena_rpcrdma_receive_shortages_total",
               "Receives that could not be posted again at once, for want of memory.", "receives",
               &r::receive_shortages);
    b.sum("verbena_iwarp_crc_checked_total",
          "FPDUs received on iwarp:// connections with CRC32C whose CRC was right.", metric_type::counter,
          "FPDUs", [](const shard_server& s) { return value_of(s.iwarp().crc_checked); });
    b.sum("verbena_rdma_read_depth_waits_total",
          "RDMA Reads that waited since as many as the peer allows were out.", metric_type::counter, "reads",
          [](const shard_server& s) {
              return value_of(s.rdma().read_depth_waits) + value_of(s.iwarp().read_depth_waits);
          });
    counter_of("verbena_rpcrdma_chunk_waits_total",
               "Calls that waited since the calls of their connection, or of their host, moved as much as "
               "they may at once.",
               "calls", &r::chunk_waits);
    counter_of("verbena_rpcrdma_yields_total",
               "Times that a connection with more calls in hand let others go first.", "yields", &r::yields);
}

void add_duplicates(builder& b, const rpc::duplicate_request_cache& cache)
{
    const auto stats_of = [&cache](const shard_server& s) -> const rpc::duplicate_request_stats& {
        return cache.stats(s.where().index());
    };
    const auto in_turn_of = [&cache](const shard_server& s) -> const rpc::duplicate_request_stats& {
        return cache.in_turn_stats(s.where().index());
    };
    b.sum("verbena_duplicate_request_entries", "Replies kept for callers that repeat themselves.",
          metric_type::gauge, "entries",
          [stats_of](const shard_server& s) { return value_of(stats_of(s).entries); });
    b.sum("verbena_duplicate_request_bytes", "Memory of those replies.", metric_type::gauge, "bytes",
          [stats_of](const shard_server& s) { return value_of(stats_of(s).bytes); });
    b.add("verbena_duplicate_requests_total", "What the duplicate-request cache did.", metric_type::counter,
          "calls", {"outcome"}, 8, [stats_of, in_turn_of](metric_sink& out, const shard_server& s) {
              const rpc::duplicate_request_stats& d = stats_of(s);
              const rpc::duplicate_request_stats& in_turn = in_turn_of(s);
              out.value({"remembered"}, value_of(d.remembered));
              out.value({"replayed"}, value_of(d.replayed));
              out.value({"waited"}, value_of(d.waited) + value_of(in_turn.waited));
              out.value({"dropped"}, value_of(d.dropped) + value_of(in_turn.dropped));
              out.value({"evicted"}, value_of(d.evicted));
              out.value({"uncached"}, value_of(d.uncached) + value_of(in_turn.uncached));
          });
}

} // namespace

std::vector<metric_registry::registration> expose_server(metric_registry& registry, const shard_list& shards,
                                                         const rpc::duplicate_request_cache& duplicates)
{
    builder b(registry, shards);
    add_calls(b);
    add_connections(b);
    add_devices(b);
    add_rdma(b);
    add_duplicates(b, duplicates);
    std::vector<metric_registry::registration> all = b.take();
    for (const shard_server* s : shards) {
        for (const auto& program : s->programs()) {
            for (auto& own : program->expose(registry))
                all.push_back(std::move(own));
        }
    }
    return all;
}

metric_registry::registration expose_listeners(metric_registry& registry,
                                               std::vector<const stream::listener*> listeners)
{
    return registry.add({"verbena_listener_failures_total",
                         "Connections lost while they were accepted, and pauses because descriptors or "
                         "memory ran out or connections have their share of descriptors.",
                         metric_type::counter,
                         "failures",
                         {"reason"},
                         2},
                        [listeners = std::move(listeners)](metric_sink& out) {
                            for (const stream::listener* l : listeners) {
                                out.value({"lost"}, value_of(l->stats().failed));
                                out.value({"exhausted"}, value_of(l->stats().exhausted));
                            }
                        });
}

#ifdef VERBENA_HAS_RDMA
metric_registry::registration expose_rdma_acceptors(metric_registry& registry,
                                                    std::vector<const rdma::stats*> acceptors)
{
    return registry.add(connection_ends(), [acceptors = std::move(acceptors)](metric_sink& out) {
        for (const rdma::stats* a : acceptors)
            rdma_ends(out, *a);
    });
}
#endif

} // namespace verbena::services
