// SPDX-License-Identifier: Apache-2.0
// The NFS service of verbenad: exports, programs and listeners over the shards of a runtime.
#pragma once

#include "config.hpp"

#include <verbena/core/metrics.hpp>
#include <verbena/core/net.hpp>
#include <verbena/core/runtime.hpp>
#include <verbena/protocols/nfs/exports.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace verbena::daemon {

/// Serves from construction until stop(). Made, used and destroyed by a thread that is no shard. One
/// listener on shard 0 takes the connections to an address and hands them to the shards in turn, so that
/// a client with several (nconnect) spreads.
class nfs_service {
public:
    struct listening {
        std::string transport; ///< "tcp", "iwarp"
        net::endpoint where;
        std::string url() const;
    };
    struct exported {
        std::string pseudo;
        std::string source;                  ///< the directory, or the back end's name
        std::string options;                 ///< "rw,root_squash,sync"
        std::string clients;                 ///< who may connect
        std::vector<std::string> transports; ///< allowed ones; none: all
        std::string notes;                   ///< what the back end can and can't do here
        nfs::client_list admitted;           ///< likewise, to ask
        bool secure = false;                 ///< ports below 1024 only
    };

    /// `c` is complete; `rt` and `registry` outlive the service. Throws config_error, saying which export
    /// or listener can't be and how to cure it.
    nfs_service(const config& c, runtime& rt, metric_registry& registry);
    ~nfs_service();
    nfs_service(const nfs_service&) = delete;

    const std::vector<listening>& listeners() const noexcept;
    const std::vector<exported>& exports() const noexcept;

    /// Takes no more connections, lets calls in flight finish until `limit` has passed, ends the
    /// connections and takes everything down. Idempotent.
    void stop(std::chrono::milliseconds limit);

private:
    struct impl;
    std::unique_ptr<impl> impl_;
};

} // namespace verbena::daemon
