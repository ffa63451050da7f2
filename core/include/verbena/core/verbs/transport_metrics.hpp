// SPDX-License-Identifier: Apache-2.0
// Families that several transports and what stands on them have in common: each registers its part, which its label
// `transport` tells apart ("tcp", "iwarp", "rdma", "rpcrdma").
#pragma once

#include <verbena/core/metrics.hpp>

#pragma GCC visibility push(default)

namespace verbena::transport_metrics {

/// @name Families that the providers and streams share
/// Each has a label `transport`, but where something else is said; docs/reference/metrics.md tells what they
/// count. Any thread.
/// @{
metric_family connections();
metric_family connections_accepted();
/// Labels `transport` and `cause`.
metric_family connection_ends();
metric_family received_bytes();
metric_family sent_bytes();
metric_family receives();
metric_family sends();
metric_family payload_copied_bytes();
/// Without a label: of iWARP connections, and of RPC-over-RDMA on others.
metric_family read_depth_waits();
/// @}

} // namespace verbena::transport_metrics

#pragma GCC visibility pop
