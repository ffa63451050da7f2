// SPDX-License-Identifier: Apache-2.0
// Series of all versions: each adds its own values to them.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>

#include <string_view>

namespace verbena::nfs {

inline metric_family of_bytes(const char* name, const char* help)
{
    return {name, help, metric_type::counter, "bytes"};
}

inline metric_family read_bytes()
{
    return of_bytes("verbena_nfs_read_bytes_total", "Bytes of files that READ returned.");
}
inline metric_family written_bytes()
{
    return of_bytes("verbena_nfs_written_bytes_total", "Bytes of files that WRITE took.");
}

inline metric_family of_refusals(const char* name, const char* help)
{
    return {name, help, metric_type::counter, "calls", {"reason"}, 8};
}

inline metric_family refusals()
{
    return of_refusals("verbena_nfs_refusals_total",
                       "NFS calls refused by a rule of the export: peer's address, transport or port, no "
                       "handle of ours, export gone, read-only, or a mount beneath it.");
}

inline void show(metric_sink& out, std::string_view reason, const counter& count)
{
    out.value({reason}, static_cast<double>(count.value()));
}

inline void show(metric_sink& out, const access_counters& refused)
{
    show(out, "address", refused.address);
    show(out, "transport", refused.transport);
    show(out, "port", refused.port);
}

} // namespace verbena::nfs
