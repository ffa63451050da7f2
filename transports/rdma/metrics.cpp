// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/verbs/transport_metrics.hpp>
#include <verbena/transports/rdma.hpp>

namespace verbena::rdma {

namespace common = transport_metrics;

metric_registrations expose_ends(metric_registry& registry, const stats& s)
{
    metric_group group(registry);
    group.add(common::connection_ends(), [&s](metric_sink& out) {
        for (std::size_t i = 0; i < s.ends.size(); ++i)
            out.value({"rdma", to_string(end_cause(i))}, value_of(s.ends[i]));
    });
    return group.take();
}

metric_registrations expose(metric_registry& registry, const stats& s)
{
    metric_group group(registry);
    const auto labelled = [&](metric_family family, const std::atomic<std::uint64_t>& n) {
        group.add(std::move(family), [&n](metric_sink& out) { out.value({"rdma"}, value_of(n)); });
    };
    labelled(common::connections(), s.active);
    labelled(common::connections_accepted(), s.accepted);
    group.add_sum({"verbena_rdma_registered_bytes", "Memory registered with RDMA devices.",
                   metric_type::gauge, "bytes"},
                  s.registered_bytes);
    group.add_sum({"verbena_rdma_registrations_failed_total",
                   "Registrations of memory that an RDMA device refused.", metric_type::counter,
                   "registrations"},
                  s.registrations_failed);
    group.add({"verbena_rdma_device_events_total",
               "What RDMA devices told without being asked.",
               metric_type::counter,
               "events",
               {"event"},
               16},
              [&s](metric_sink& out) {
                  for (std::size_t i = 0; i < s.device_events.size(); ++i)
                      out.value({to_string(device_event(i))}, value_of(s.device_events[i]));
              });
    group.add_sum({"verbena_rdma_doorbells_total", "Batches of work requests given to RDMA devices.",
                   metric_type::counter, "batches"},
                  s.doorbells);
    group.add_sum({"verbena_rdma_stale_completions_total", "Completions of queue pairs that were gone.",
                   metric_type::counter, "completions"},
                  s.stale_completions);
    metric_registrations all = group.take();
    append(all, expose_ends(registry, s));
    return all;
}

} // namespace verbena::rdma
