// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/verbs/transport_metrics.hpp>

namespace verbena::transport_metrics {

namespace {

constexpr std::size_t max_transports = 4;
constexpr std::size_t max_causes = 64; // of all transports

metric_family of_transports(const char* name, const char* help, metric_type type, const char* unit)
{
    return {name, help, type, unit, {"transport"}, max_transports};
}

} // namespace

metric_family connections()
{
    return of_transports("verbena_connections", "Connections open now.", metric_type::gauge, "connections");
}

metric_family connections_accepted()
{
    return of_transports("verbena_connections_accepted_total", "Connections taken.", metric_type::counter,
                         "connections");
}

metric_family connection_ends()
{
    return {"verbena_connection_ends_total",
            "Connections that ended or were refused, by cause.",
            metric_type::counter,
            "connections",
            {"transport", "cause"},
            max_causes};
}

metric_family received_bytes()
{
    return of_transports("verbena_transport_received_bytes_total", "Bytes received from sockets.",
                         metric_type::counter, "bytes");
}

metric_family sent_bytes()
{
    return of_transports("verbena_transport_sent_bytes_total", "Bytes given to sockets.",
                         metric_type::counter, "bytes");
}

metric_family receives()
{
    return of_transports("verbena_transport_receives_total", "System calls that brought bytes from a socket.",
                         metric_type::counter, "calls");
}

metric_family sends()
{
    return of_transports("verbena_transport_sends_total", "System calls that gave bytes to a socket.",
                         metric_type::counter, "calls");
}

metric_family payload_copied_bytes()
{
    return of_transports("verbena_payload_copied_bytes_total",
                         "Bytes of large arguments and results that were copied in user space; rpcrdma: by "
                         "RPC-over-RDMA itself, over any provider.",
                         metric_type::counter, "bytes");
}

metric_family read_depth_waits()
{
    return {"verbena_rdma_read_depth_waits_total",
            "RDMA Reads that waited since as many as the peer allows were out.", metric_type::counter,
            "reads"};
}

} // namespace verbena::transport_metrics
