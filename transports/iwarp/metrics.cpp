// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/verbs/transport_metrics.hpp>
#include <verbena/transports/iwarp.hpp>

namespace verbena::iwarp {

metric_registrations expose(metric_registry& registry, const stats& s)
{
    namespace common = transport_metrics;
    metric_group group(registry);
    const auto labelled = [&](metric_family family, const std::atomic<std::uint64_t>& n) {
        group.add(std::move(family), [&n](metric_sink& out) { out.value({"iwarp"}, value_of(n)); });
    };
    labelled(common::connections(), s.active);
    labelled(common::connections_accepted(), s.accepted);
    group.add(common::connection_ends(), [&s](metric_sink& out) {
        for (std::size_t i = 0; i < s.ends.size(); ++i)
            out.value({"iwarp", to_string(end_cause(i))}, value_of(s.ends[i]));
    });
    labelled(common::received_bytes(), s.bytes_received);
    labelled(common::sent_bytes(), s.bytes_sent);
    labelled(common::receives(), s.receives);
    labelled(common::sends(), s.sends);
    labelled(common::payload_copied_bytes(), s.payload_copied_bytes);
    group.add_sum(common::read_depth_waits(), s.read_depth_waits);
    group.add_sum({"verbena_iwarp_crc_checked_total",
                   "FPDUs received on iwarp:// connections with CRC32C whose CRC was right.",
                   metric_type::counter, "FPDUs"},
                  s.crc_checked);
    group.add_sum({"verbena_iwarp_store_accesses_total",
                   "Reads and writes of files for iwarp:// peers that have layouts of them.",
                   metric_type::counter, "accesses"},
                  s.store_accesses);
    group.add_sum({"verbena_iwarp_store_waits_total",
                   "Of verbena_iwarp_store_accesses_total, those that waited for a disk.",
                   metric_type::counter, "accesses"},
                  s.store_waits);
    group.add_sum({"verbena_iwarp_store_failures_total",
                   "Of verbena_iwarp_store_accesses_total, those that failed.", metric_type::counter,
                   "accesses"},
                  s.store_failures);
    group.add_sum({"verbena_iwarp_store_buffer_bytes",
                   "Memory by which files are read and written for iwarp:// peers that have layouts of them, "
                   "at present. It counts for memory_mib.",
                   metric_type::gauge, "bytes"},
                  s.store_buffer_bytes);
    group.add_sum({"verbena_iwarp_store_buffer_waits_total",
                   "Reads and writes of files for iwarp:// peers that waited for such memory.",
                   metric_type::counter, "waits"},
                  s.store_buffer_waits);
    return group.take();
}

} // namespace verbena::iwarp
