// SPDX-License-Identifier: Apache-2.0
#include "shard_server.hpp"

#include <verbena/core/resource_metrics.hpp>

namespace verbena::services {

metric_registrations expose_server(metric_registry& registry, const std::vector<const shard_server*>& shards,
                                   const rpc::duplicate_request_cache& duplicates)
{
    metric_registrations all = rpc::expose(registry, duplicates);
    for (const shard_server* s : shards) {
        append(all, rpc::expose(registry, s->calls()));
        append(all, rpc::expose(registry, s->streams()));
        if (s->serves_calls()) {
            metric_group resources(registry);
            add_resource(
                resources, "tcp_connections", [s] { return s->streams().connections.value(); },
                [s] { return s->most_streams(); });
            if (s->most_rdma() != 0)
                add_resource(
                    resources, "rdma_connections", [s] { return s->rdma_connections(); },
                    [s] { return s->most_rdma(); });
            append(all, resources.take());
        }
        append(all, iwarp::expose(registry, s->iwarp()));
        append(all, rpcrdma::expose(registry, s->rdma()));
#ifdef VERBENA_HAS_RDMA
        if (const rdma::stats* device = s->rdma_device())
            append(all, rdma::expose(registry, *device));
#endif
        for (const auto& program : s->programs())
            append(all, program->expose(registry));
    }
    return all;
}

} // namespace verbena::services
