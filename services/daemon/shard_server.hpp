// SPDX-License-Identifier: Apache-2.0
// What the NFS service keeps on one shard.
#pragma once

#include "config.hpp"

#include <verbena/core/metrics.hpp>
#include <verbena/core/net.hpp>
#include <verbena/core/runtime.hpp>
#include <verbena/protocols/nfs/exports.hpp>
#include <verbena/protocols/nfs/file_handle.hpp>
#include <verbena/protocols/nfs/mount_server.hpp>
#include <verbena/protocols/nfs/v3/server.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>
#include <verbena/protocols/rpc/stream_server.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/iwarp.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif
#include <verbena/transports/stream.hpp>

#include <memory>
#include <string_view>
#include <vector>

namespace verbena::daemon {

/// What a shard will listen on, which shares the memory budget.
struct listener_count {
    std::size_t all = 0;
    std::size_t rdma = 0; ///< iwarp too
};

/// Programs, streams and RDMA connections of one shard. Made, used and destroyed on it, except where it
/// says any thread.
class shard_server {
public:
    /// One of the runtime's shards, which share the memory budget.
    shard_server(shard& s, const config& c, const nfs::export_table& exports, const nfs::handle_key& key,
                 nfs::mount3::mount_list& mounts, rpc::duplicate_request_cache& duplicates,
                 const listener_count& listeners);

    /// Serves the connections that adopt_iwarp() will bring for `url`; yields the listener's number.
    result<std::size_t> listen_iwarp(std::string_view url);
#ifdef VERBENA_HAS_RDMA
    /// Serves the peers that adopt_rdma() will bring for `url`; yields the listener's number. `pool` outlives this.
    result<std::size_t> listen_rdma(std::string_view url, blocking_pool& lane);
    void adopt_rdma(std::unique_ptr<rdma::arrival> peer, std::size_t listener);
    /// Any thread, once nothing listens anew: nullptr if no RDMA device is used.
    const rdma::stats* rdma_device() const noexcept { return rdma_ ? &rdma_->counters() : nullptr; }
#endif
    /// Takes over a connected socket. Inside a poll too.
    void adopt_tcp(net::unique_fd socket, const net::endpoint& peer);
    void adopt_iwarp(net::unique_fd socket, std::size_t listener);

    /// Starts no more calls, lets those in flight finish until `deadline`, and ends the connections.
    task<void> shut_down(time_point deadline);

    // Any thread:
    reactor& where() const noexcept { return reactor_; }
    const rpc::service_dispatcher& calls() const noexcept { return dispatcher_; }
    const rpc::stream_stats& streams() const noexcept { return streams_.stats(); }
    const nfs::v3::server& nfs() const noexcept { return nfs_; }
    const nfs::mount3::server& mount() const noexcept { return mount_; }
    const rpcrdma::responder_stats& rdma() const noexcept { return rdma_stats_; }
    const iwarp::stats& iwarp() const noexcept { return iwarp_->counters(); }

private:
    reactor& reactor_;
    buffer_pool& buffers_;
    nfs::v3::server nfs_;
    nfs::mount3::server mount_;
    rpc::service_dispatcher dispatcher_;
    rpc::stream_server streams_;
    std::unique_ptr<iwarp::context> iwarp_;
    std::vector<std::unique_ptr<verbs::listener>> iwarp_listeners_;
#ifdef VERBENA_HAS_RDMA
    std::unique_ptr<rdma::context> rdma_;
    const device_choice device_; // what all its listeners use, if they choose
#endif
    std::vector<std::unique_ptr<verbs::listener>> rdma_listeners_;
    rpcrdma::responder_options rdma_options_;
    rpcrdma::responder_stats rdma_stats_;
    exception_logger unhandled_{"rpcrdma"};
    scope rdma_tasks_;
};

/// Registers what the shards count. The servers and the cache outlive the registrations.
std::vector<metric_registry::registration> expose_nfs(metric_registry& registry,
                                                      const std::vector<const shard_server*>& shards,
                                                      const rpc::duplicate_request_cache& duplicates);
/// Registers what the sockets that accept connections count. They outlive the registration.
metric_registry::registration expose_listeners(metric_registry& registry,
                                               std::vector<const stream::listener*> listeners);
#ifdef VERBENA_HAS_RDMA
/// Registers what those count that take RDMA connections in before a shard does. The counters outlive the registration.
metric_registry::registration expose_rdma_acceptors(metric_registry& registry,
                                                    std::vector<const rdma::stats*> acceptors);
#endif

} // namespace verbena::daemon
