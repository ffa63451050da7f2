// SPDX-License-Identifier: Apache-2.0
// What a service of one's own gets with one expose() each: every count under its name, the shards' added up.
#include <boost/test/unit_test.hpp>

#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>
#include <verbena/transports/iwarp.hpp>
#include <verbena/transports/stream.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

#include <map>
#include <string>

BOOST_AUTO_TEST_SUITE(expose_test)

using namespace verbena;

namespace {

// "name label label" and its value; those of value 0 are left out.
using samples = std::map<std::string, double>;

samples scrape(const metric_registry& registry)
{
    samples all;
    for (const auto& m : registry.collect()) {
        for (const auto& s : m.samples) {
            std::string name = m.family.name;
            for (const auto& label : s.labels)
                name += " " + label;
            if (s.value != 0)
                all[name] = s.value;
        }
    }
    return all;
}

void check(const samples& got, const samples& wanted)
{
    for (const auto& [name, value] : wanted) {
        const auto at = got.find(name);
        BOOST_TEST((at != got.end() && at->second == value), name << " is not " << value);
    }
    for (const auto& [name, value] : got)
        BOOST_TEST(wanted.contains(name), name << " " << value << " was not expected");
}

} // namespace

BOOST_AUTO_TEST_CASE(streams)
{
    metric_registry registry;
    rpc::stream_stats s;
    s.connections.set(1);
    s.calls_in_flight.set(2);
    s.accepted.add(3);
    s.ended[1].add(4);
    s.received_bytes.add(5);
    s.sent_bytes.add(6);
    s.receives.add(7);
    s.sends.add(8);
    s.pauses.add(9);
    s.yields.add(10);
    s.memory_waits.add(11);
    s.share_waits.add(12);
    s.unanswered.add(13);
    s.payload_copied_bytes.add(14);
    const auto made = rpc::expose(registry, s);
    check(scrape(registry),
          {{"verbena_connections tcp", 1},
           {"verbena_stream_calls_in_flight", 2},
           {"verbena_connections_accepted_total tcp", 3},
           {"verbena_connection_ends_total tcp " + std::string(to_string(rpc::stream_end(1))), 4},
           {"verbena_transport_received_bytes_total tcp", 5},
           {"verbena_transport_sent_bytes_total tcp", 6},
           {"verbena_transport_receives_total tcp", 7},
           {"verbena_transport_sends_total tcp", 8},
           {"verbena_stream_pauses_total", 9},
           {"verbena_stream_yields_total", 10},
           {"verbena_stream_memory_waits_total", 11},
           {"verbena_stream_share_waits_total", 12},
           {"verbena_stream_unanswered_total", 13},
           {"verbena_payload_copied_bytes_total tcp", 14}});
}

BOOST_AUTO_TEST_CASE(streams_of_another_transport)
{
    metric_registry registry;
    rpc::stream_stats s;
    s.accepted.add(3);
    const auto made = rpc::expose(registry, s, "tls");
    check(scrape(registry), {{"verbena_connections_accepted_total tls", 3}});
}

BOOST_AUTO_TEST_CASE(rpc_over_rdma)
{
    metric_registry registry;
    rpcrdma::responder_stats s;
    s.calls.add(1);
    s.inline_replies.add(2);
    s.write_chunk_replies.add(3);
    s.reply_chunk_replies.add(4);
    s.version_errors.add(5);
    s.chunk_errors.add(6);
    s.dropped.add(7);
    s.remote_invalidations.add(8);
    s.read_chunk_bytes.add(9);
    s.write_chunk_bytes.add(10);
    s.failed_reads.add(11);
    s.rejected_connections.add(12);
    s.credits_wanted.add(13);
    s.credits_granted.add(14);
    s.receive_shortages.add(15);
    s.credit_overruns.add(16);
    s.exceptions.add(17);
    s.stalled_reads.add(18);
    s.read_depth_waits.add(19);
    s.payload_copied_bytes.add(20);
    s.stale_completions.add(21);
    s.probes.add(22);
    s.chunk_waits.add(23);
    s.yields.add(24);
    s.refused_draining.add(25);
    s.starved_reads.add(26);
    const auto made = rpcrdma::expose(registry, s);
    check(scrape(registry), {{"verbena_rpcrdma_calls_total", 1},
                             {"verbena_rpcrdma_replies_total inline", 2},
                             {"verbena_rpcrdma_replies_total write_chunk", 3},
                             {"verbena_rpcrdma_replies_total reply_chunk", 4},
                             {"verbena_rpcrdma_errors_total version", 5},
                             {"verbena_rpcrdma_errors_total chunk", 6},
                             {"verbena_rpcrdma_errors_total dropped", 7},
                             {"verbena_rpcrdma_remote_invalidations_total", 8},
                             {"verbena_rpcrdma_chunk_bytes_total read", 9},
                             {"verbena_rpcrdma_chunk_bytes_total write", 10},
                             {"verbena_rpcrdma_errors_total read", 11},
                             {"verbena_rpcrdma_rejected_connections_total", 12},
                             {"verbena_rpcrdma_credits_wanted_total", 13},
                             {"verbena_rpcrdma_credits_granted_total", 14},
                             {"verbena_rpcrdma_receive_shortages_total", 15},
                             {"verbena_rpcrdma_errors_total credits", 16},
                             {"verbena_rpcrdma_errors_total exception", 17},
                             {"verbena_rpcrdma_errors_total read_stalled", 18},
                             {"verbena_rpcrdma_errors_total read_starved", 26},
                             {"verbena_rdma_read_depth_waits_total", 19},
                             {"verbena_payload_copied_bytes_total rpcrdma", 20},
                             {"verbena_rpcrdma_stale_completions_total", 21},
                             {"verbena_rpcrdma_probes_total", 22},
                             {"verbena_rpcrdma_chunk_waits_total", 23},
                             {"verbena_rpcrdma_yields_total", 24},
                             {"verbena_rpcrdma_errors_total draining", 25}});
}

BOOST_AUTO_TEST_CASE(rpc_over_rdma_of_a_client)
{
    metric_registry registry;
    rpcrdma::requester_stats s;
    s.inline_calls.add(1);
    s.read_chunk_calls.add(2);
    s.long_calls.add(3);
    s.write_chunks.add(4);
    s.reply_chunks.add(5);
    s.remote_invalidations.add(6);
    s.errors.add(7);
    s.dropped.add(8);
    s.credit_waits.add(9);
    s.callbacks.add(10);
    s.wakes.add(11);
    const auto made = rpcrdma::expose(registry, s);
    check(scrape(registry), {{"verbena_rpcrdma_client_calls_total inline", 1},
                             {"verbena_rpcrdma_client_calls_total read_chunk", 2},
                             {"verbena_rpcrdma_client_calls_total long", 3},
                             {"verbena_rpcrdma_client_offered_chunks_total write", 4},
                             {"verbena_rpcrdma_client_offered_chunks_total reply", 5},
                             {"verbena_rpcrdma_client_remote_invalidations_total", 6},
                             {"verbena_rpcrdma_client_errors_total refused", 7},
                             {"verbena_rpcrdma_client_errors_total dropped", 8},
                             {"verbena_rpcrdma_client_credit_waits_total", 9},
                             {"verbena_rpcrdma_client_callbacks_total", 10},
                             {"verbena_rpcrdma_client_wakes_total", 11}});
}

BOOST_AUTO_TEST_CASE(iwarp_of_two_shards_beside_other_transports)
{
    metric_registry registry;
    iwarp::stats s;
    s.ends[2] = 1;
    s.accepted = 2;
    s.active = 3;
    s.bytes_received = 4;
    s.bytes_sent = 5;
    s.payload_copied_bytes = 6;
    s.read_depth_waits = 7;
    s.crc_checked = 8;
    s.receives = 9;
    s.sends = 10;
    iwarp::stats other;
    other.accepted = 20;
    other.read_depth_waits = 70;
    rpc::stream_stats streams;
    streams.accepted.add(200);
    rpcrdma::responder_stats responder;
    responder.read_depth_waits.add(700);
    auto made = iwarp::expose(registry, s);
    append(made, iwarp::expose(registry, other));
    append(made, rpc::expose(registry, streams));
    append(made, rpcrdma::expose(registry, responder));
    check(scrape(registry),
          {{"verbena_connection_ends_total iwarp " + std::string(to_string(iwarp::end_cause(2))), 1},
           {"verbena_connections_accepted_total iwarp", 22},
           {"verbena_connections_accepted_total tcp", 200},
           {"verbena_connections iwarp", 3},
           {"verbena_transport_received_bytes_total iwarp", 4},
           {"verbena_transport_sent_bytes_total iwarp", 5},
           {"verbena_payload_copied_bytes_total iwarp", 6},
           {"verbena_rdma_read_depth_waits_total", 777},
           {"verbena_iwarp_crc_checked_total", 8},
           {"verbena_transport_receives_total iwarp", 9},
           {"verbena_transport_sends_total iwarp", 10}});
    made.clear();
    BOOST_TEST(registry.families().empty());
}

BOOST_AUTO_TEST_CASE(listeners)
{
    metric_registry registry;
    stream::listener_stats s;
    s.failed.add(1);
    s.exhausted.add(2);
    const auto made = stream::expose(registry, s);
    check(scrape(registry),
          {{"verbena_listener_failures_total lost", 1}, {"verbena_listener_failures_total exhausted", 2}});
}

#ifdef VERBENA_HAS_RDMA
BOOST_AUTO_TEST_CASE(devices)
{
    metric_registry registry;
    rdma::stats s;
    s.ends[3] = 1;
    s.accepted = 2;
    s.active = 3;
    s.stale_completions = 4;
    s.registered_bytes = 5;
    s.registrations_failed = 6;
    s.doorbells = 7;
    s.device_events[1] = 8;
    const auto made = rdma::expose(registry, s);
    check(scrape(registry),
          {{"verbena_connection_ends_total rdma " + std::string(to_string(rdma::end_cause(3))), 1},
           {"verbena_connections_accepted_total rdma", 2},
           {"verbena_connections rdma", 3},
           {"verbena_rdma_stale_completions_total", 4},
           {"verbena_rdma_registered_bytes", 5},
           {"verbena_rdma_registrations_failed_total", 6},
           {"verbena_rdma_doorbells_total", 7},
           {"verbena_rdma_device_events_total " + std::string(to_string(rdma::device_event(1))), 8}});
}
#endif

BOOST_AUTO_TEST_SUITE_END()
