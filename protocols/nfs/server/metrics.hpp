// SPDX-License-Identifier: Apache-2.0
// Series of all versions: each adds its own values to them.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/nfs/server/status_counts.hpp>

#include <cstdint>
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

inline metric_family errors()
{
    return {"verbena_nfs_errors_total",
            "Operations of NFS (procedures of version 3) that were answered with another status than OK, by "
            "version, "
            "operation and status; refusals and answers such as NOENT included.",
            metric_type::counter,
            "operations",
            {"version", "operation", "status"},
            4096}; // pairs of versions and shards that know different ones
}

/// `names(operation, status)` has the words of both.
template<class Names>
void show(metric_sink& out, std::string_view version, const status_counts& errors, Names names)
{
    errors.each([&](std::uint32_t operation, std::uint32_t status, std::uint64_t count) {
        const auto [what, why] = names(operation, status);
        out.value({version, what, why}, static_cast<double>(count));
    });
    if (const std::uint64_t others = errors.others(); others != 0)
        out.value({version, "other", "other"}, static_cast<double>(others));
}

inline void show(metric_sink& out, const access_counters& refused)
{
    show(out, "address", refused.address);
    show(out, "transport", refused.transport);
    show(out, "port", refused.port);
}

} // namespace verbena::nfs
