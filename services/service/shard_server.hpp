// SPDX-License-Identifier: Apache-2.0
// What one protocol keeps on one shard: its programs, streams and RDMA connections.
#pragma once

#include "../device_choice.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/module/protocol_module.hpp>
#include <verbena/core/net/connection_list.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>
#include <verbena/protocols/rpc/module.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>
#include <verbena/transports/iwarp.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif
#include <verbena/transports/stream.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::services {

/// What is the same on each shard.
struct server_options {
    std::string name; ///< of the protocol
    std::size_t shards = 1;
    /// Of the whole service: what listens shares the memory budget.
    std::size_t listeners = 0;
    std::size_t rdma_listeners = 0;          ///< iwarp too
    peer_shares* peers = nullptr;            ///< of the whole service, which it outlives
    verbena::iwarp::device* iwarp = nullptr; ///< likewise
#ifdef VERBENA_HAS_RDMA
    verbena::rdma::host* rdma = nullptr; ///< likewise
#endif
    /// What `peers` says of connections goes for those by which calls come. A verbs protocol has its own number.
    bool bounds_connections = true;
    std::size_t most_connections = SIZE_MAX; ///< that the process has descriptors for
    /// Of each kind by which calls come, over all shards, each of which takes an equal part; 0: as memory has room for them.
    std::size_t connections = 0;
    bool iwarp_crc = false;
    std::chrono::seconds read_limit{30};
    device_choice device; ///< what all rdma:// listeners use, if they choose
    /// Of a verbs protocol: sees each peer by iWARP before shard `at` does; sends it to another one, or leaves it.
    std::function<void(std::unique_ptr<verbs::arrival>& peer, std::size_t at, std::size_t listener)> route;
};

/// What a module's make_programs() threw, or gave that can't be served.
class program_failure final : public std::runtime_error {
public:
    program_failure(const module& m, const std::string& what) : std::runtime_error(what), from_(&m) {}
    const module& from() const noexcept { return *from_; }

private:
    const module* from_;
};

/// Made, used and destroyed on its shard, except where it says any thread.
class shard_server {
public:
    /// One of the runtime's shards. The programs of `modules` are made here. Throws program_failure, and config_error of theirs.
    shard_server(shard& s, const server_options& o, const std::vector<rpc::program_module*>& modules,
                 rpc::duplicate_request_cache& duplicates);
    /// A verbs protocol, which outlives it.
    shard_server(shard& s, const server_options& o, verbs::protocol_module& module,
                 rpc::duplicate_request_cache& duplicates);

    /// Serves the connections that adopt_iwarp() will bring for `url`; yields the listener's number. `others`, the same for all
    /// listeners of a transport, has those that are not for RPC (rpc::program_module::connections_on()).
    result<std::size_t> listen_iwarp(std::string_view url, verbs::side_connections* others = nullptr);
#ifdef VERBENA_HAS_RDMA
    /// Serves the peers that adopt_rdma() will bring for `url`; yields the listener's number. `lane` outlives this.
    result<std::size_t> listen_rdma(std::string_view url, blocking_pool& lane,
                                    verbs::side_connections* others = nullptr);
    void adopt_rdma(std::unique_ptr<verbs::arrival> peer, std::size_t listener);
    /// Any thread, once nothing listens anew: nullptr if no RDMA device is used.
    const rdma::stats* rdma_device() const noexcept { return rdma_ ? &rdma_->counters() : nullptr; }
#endif
    /// Takes over a connected socket. Inside a poll too.
    void adopt_tcp(net::unique_fd socket, const net::endpoint& peer);
    void adopt_iwarp(net::unique_fd socket, std::size_t listener);
    void adopt_iwarp(std::unique_ptr<verbs::arrival> peer, std::size_t listener);

    /// Starts no more calls, lets those in flight finish until `deadline`, and ends the connections.
    task<void> shut_down(time_point deadline);

    /// Those that calls come by.
    connection_list& connections() noexcept { return connections_; }

    // Any thread:
    reactor& where() const noexcept { return reactor_; }
    const rpc::service_dispatcher& calls() const noexcept { return dispatcher_; }
    const rpc::stream_stats& streams() const noexcept { return streams_.stats(); }
    const std::vector<std::unique_ptr<rpc::program>>& programs() const noexcept { return programs_; }
    const rpcrdma::responder_stats& rdma() const noexcept { return rdma_stats_; }
    const iwarp::stats& iwarp() const noexcept { return iwarp_->counters(); }
    /// Whether it has programs, and thus the connections of which the following tell; once nothing listens anew.
    bool serves_calls() const noexcept { return !programs_.empty(); }
    std::size_t most_streams() const noexcept { return most_streams_; }
    /// By RPC-over-RDMA; what comes for others by the same listeners counts, too.
    std::uint64_t rdma_connections() const noexcept;
    std::size_t most_rdma() const noexcept
    {
        return (iwarp_listeners_.size() + rdma_listeners_.size()) * rdma_options_.max_connections;
    }

private:
    iwarp::options iwarp_options(const server_options& own);
    void add_programs(rpc::program_module& m);
    // What the listeners of one device have together.
    struct of_device {
        std::unique_ptr<verbs::protection_domain> domain;
        rpcrdma::responder_options options;
    };
    result<void> serve(verbs::context& device, verbs::listener& listener, of_device& together,
                       verbs::side_connections* others);

    shard& shard_;
    reactor& reactor_;
    buffer_pool& buffers_;
    verbs::protocol_module* verbs_protocol_ = nullptr; // in place of programs
    connection_list connections_;
    std::size_t most_streams_ = 0;
    std::vector<std::unique_ptr<rpc::program>> programs_;
    rpc::service_dispatcher dispatcher_;
    rpc::stream_server streams_;
    std::unique_ptr<iwarp::context> iwarp_;
    of_device by_iwarp_;
    std::vector<std::unique_ptr<verbs::listener>> iwarp_listeners_;
#ifdef VERBENA_HAS_RDMA
    std::unique_ptr<rdma::context> rdma_;
    of_device by_rdma_;
    const device_choice device_;
    rdma::host* const devices_;
#endif
    std::vector<std::unique_ptr<verbs::listener>> rdma_listeners_;
    rpcrdma::responder_options rdma_options_;
    rpcrdma::responder_stats rdma_stats_;
    exception_logger unhandled_;
    log_limiter rejections_logged_;
    scope rdma_tasks_;
};

/// Registers what the shards count. The servers and the cache outlive the registrations.
metric_registrations expose_server(metric_registry& registry, const std::vector<const shard_server*>& shards,
                                   const rpc::duplicate_request_cache& duplicates);

} // namespace verbena::services
