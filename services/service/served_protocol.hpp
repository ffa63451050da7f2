// SPDX-License-Identifier: Apache-2.0
// One protocol and its listeners over the shards of a runtime.
#pragma once

#include "listen_url.hpp"

#include <verbena/core/metrics.hpp>
#include <verbena/core/module/protocol_module.hpp>
#include <verbena/core/module/settings.hpp>
#include <verbena/core/net/connection_list.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/protocols/rpc/module.hpp>
#include <verbena/transports/iwarp.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace verbena {
class peer_shares;
}

namespace verbena::services {

/// What every protocol with listeners of its own can be told about them.
std::vector<setting> listener_settings(const protocol_module& protocol);

/// What a protocol's table says of its listeners, which check() has seen. Completes `listen`. Throws config_error.
struct listen_plan {
    struct wanted {
        setting_place place;
        listen_url url;
    };
    std::vector<wanted> urls;
    bool iwarp_crc = false;
    std::chrono::seconds read_limit{30};
};
/// `addresses`: those of other protocols, and afterwards of this one too.
listen_plan plan_listeners(const protocol_module& protocol, setting_values& values,
                           std::set<std::string>& addresses);
inline constexpr std::size_t max_listeners = 64; ///< of a service

/// A listener of a plan, with an address that its URL means.
struct planned_listener {
    setting_place place;
    listen_url url;
    net::endpoint where;
};
/// Asks the resolver. Throws config_error.
std::vector<planned_listener> resolve_listeners(const listen_plan& plan);

/// Serves from start() until stop(). Made, used and destroyed by a thread that is no shard. One listener on shard 0 takes the
/// connections to an address and hands them to the shards in turn, so that a client with several (nconnect) spreads.
class server {
public:
    struct options {
        std::string name; ///< of the protocol
        bool iwarp_crc = false;
        std::chrono::seconds read_limit{30};
        /// Of the whole service.
        std::size_t servers = 1;
        std::size_t listeners = 0;
        std::size_t rdma_listeners = 0;
        std::size_t connections = 0;  ///< of each kind by which calls come; 0: what there is room for
        peer_shares* peers = nullptr; ///< outlives the server
        verbena::iwarp::device* iwarp = nullptr; ///< likewise
#ifdef VERBENA_HAS_RDMA
        verbena::rdma::host* rdma = nullptr; ///< likewise
#endif
    };

    /// `rt` outlives it.
    server(runtime& rt, options o, std::vector<planned_listener> listeners);
    ~server();
    server(const server&) = delete;

    /// Makes the programs, opens the listeners and registers metrics. Throws config_error, saying which listener can't be and
    /// how to cure it; and what a module throws. Then stop() was done.
    void start(const std::vector<rpc::program_module*>& programs, metric_registry& registry);
    void start(verbs::protocol_module& protocol, metric_registry& registry);

    const std::vector<listen_place>& places() const noexcept;
    /// The connections that calls come by, of one shard. On that shard, from start() to stop().
    connection_list& connections(std::size_t shard) noexcept;
    /// The devices that its rdma:// listeners name; a choice without a name for one that names none.
    std::vector<device_choice> devices() const;

    /// Takes no more connections, lets calls in flight finish until `limit` has passed, ends the
    /// connections and takes everything down. Idempotent.
    void stop(std::chrono::milliseconds limit);

private:
    struct impl;
    std::unique_ptr<impl> impl_;
};

} // namespace verbena::services
