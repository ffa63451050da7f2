// SPDX-License-Identifier: Apache-2.0
#include "../metrics.hpp"

#include <verbena/protocols/nfs/server/v3/mount.hpp>
#include <verbena/protocols/nfs/server/v3/server.hpp>

namespace verbena::nfs {

metric_registrations v3::server::expose(metric_registry& registry) const
{
    const server_counters& nfs = counters();
    metric_registrations made;
    made.push_back(registry.add(read_bytes(), nfs.bytes_read));
    made.push_back(registry.add(written_bytes(), nfs.bytes_written));
    made.push_back(registry.add(refusals(), [&nfs](metric_sink& out) {
        show(out, nfs.refused);
        show(out, "handle", nfs.refused_handle);
        show(out, "export", nfs.refused_export);
        show(out, "read_only", nfs.refused_read_only);
        show(out, "mount", nfs.refused_mount);
    }));
    made.push_back(registry.add(errors(), [&nfs](metric_sink& out) {
        show(out, "3", nfs.errors, [](std::uint32_t procedure, std::uint32_t status) {
            return std::pair(v3::to_string(v3::procedure(procedure)), v3::to_string(v3::nfsstat3(status)));
        });
    }));
    return made;
}

metric_registrations mount3::server::expose(metric_registry& registry) const
{
    const server_counters& mounts = counters();
    metric_registrations made;
    made.push_back(registry.add({"verbena_mount_mounts_total", "MNT calls that handed out a file handle.",
                                 metric_type::counter, "calls"},
                                mounts.mounted));
    made.push_back(registry.add(of_refusals("verbena_mount_refusals_total",
                                            "MNT calls refused: peer's address, transport or port, no such "
                                            "path, a mount beneath the export, or "
                                            "a failure of its files."),
                                [&mounts](metric_sink& out) {
                                    show(out, mounts.refused);
                                    show(out, "path", mounts.refused_path);
                                    show(out, "mount", mounts.refused_mount);
                                    show(out, "failure", mounts.failed);
                                }));
    return made;
}

} // namespace verbena::nfs
