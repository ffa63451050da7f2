// SPDX-License-Identifier: Apache-2.0
// The metrics of the NFS and MOUNT programs of one shard.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/protocols/nfs/mount_server.hpp>
#include <verbena/protocols/nfs/v3/server.hpp>

#include <vector>

namespace verbena::nfs {

/// Registers verbena_nfs_* and verbena_mount_*. Called once for each shard; both programs and the
/// registry outlive what it returns.
std::vector<metric_registry::registration> expose(metric_registry& registry, const v3::server& program,
                                                  const mount3::server& mount);

} // namespace verbena::nfs
