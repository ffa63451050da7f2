// SPDX-License-Identifier: Apache-2.0
// A whole NFS server and a whole client of it over RPC-over-RDMA, in one process, on one virtual clock and one
// seed.
#pragma once

#include "../unit/protocols/leasing_files.hpp"
#include "losing_backend.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/plugins/memfs.hpp>
#include <verbena/protocols/nfs/client/v3/client.hpp>
#include <verbena/protocols/nfs/client/v3/file.hpp>
#include <verbena/protocols/nfs/client/v3/mount.hpp>
#include <verbena/protocols/nfs/server/v3/mount.hpp>
#include <verbena/protocols/nfs/server/v3/server.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/transports/loop.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace verbena::sim {

using namespace std::chrono_literals;

struct world_options {
    std::uint64_t seed = 1;
    loop::conditions conditions;
    loop::options device; ///< of both ends
    std::uint32_t credits = 32;
    bool loses = false;        ///< the export is world::losing
    bool leases = false;       ///< the export is world::leasing
    bool local_writers = true; ///< of the export: then there are no delegations
    bool twice = false;        ///< the tree is exported as "/again", too
};

/// Made and destroyed on one thread; run() once.
class world {
public:
    static constexpr std::size_t memory_limit = std::size_t(64) << 20; ///< of each end
    static constexpr std::uint32_t user = 1000;

    explicit world(const world_options& o) : shard(make_reactor(clock, o.seed))
    {
        loop::fabric_options f;
        f.seed = o.seed;
        f.conditions = o.conditions;
        fabric = loop::make_fabric(*shard, f);
        loop::options device = o.device;
        device.name = "server";
        server_device = fabric->make_context(device);
        device.name = "client";
        client_device = fabric->make_context(device);

        memfs::memfs_options files;
        files.root_uid = user;
        files.root_gid = user;
        backend = std::move(*memfs::open_memfs(files, pool));
        nfs::export_options exported;
        losing = std::make_unique<losing_backend>(*backend);
        exported.local_writers = o.local_writers;
        leasing = std::make_unique<test::leasing_files>(*backend);
        exported.backend = o.loses ? losing.get() : o.leases ? leasing.get() : backend.get();
        if (!exports.add(exported))
            std::abort();
        exported.pseudo = "/again";
        if (o.twice && !exports.add(exported))
            std::abort();
        dispatcher.add(nfs_program);
        dispatcher.add(mount_program);
        server_options.credits = o.credits;

        rpcrdma::requester_options r;
        r.client.timeout = 2s;
        r.client.connect_timeout = 1s;
        r.client.reconnect_delay = 1ms;
        r.client.reconnect_delay_max = 20ms;
        r.client.max_calls = o.credits;
        client_transport =
            rpcrdma::make_requester(*client_device, client_buffers, "server", r, &client_stats);
        listener = std::move(*server_device->listen("server"));
    }

    /// Serves until `body` is done and the client has closed; true if it came to that.
    bool run(const std::function<task<void>()>& body)
    {
        bool done = false;
        const auto main = [&]() -> task<void> {
            scope serving(*shard);
            serving.spawn([&] {
                return rpcrdma::serve(*server_device, *listener, server_buffers, dispatcher, server_options,
                                      server_stats);
            });
            co_await body();
            co_await client_transport->close();
            listener->close();
            co_await serving.join();
            done = true;
        };
        // Virtual hours with nothing achieved are a livelock.
        const watchdog limit(*this);
        run_until_complete(*shard, main());
        return done;
    }

    virtual_clock clock;
    std::unique_ptr<reactor> shard;
    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<loop::context> server_device, client_device;
    memory_budget server_memory{memory_limit}, client_memory{memory_limit};
    buffer_pool server_buffers{server_memory, shard.get()}, client_buffers{client_memory, shard.get()};
    blocking_pool pool{1};
    std::unique_ptr<storage::file_backend> backend;
    std::unique_ptr<losing_backend> losing;
    std::unique_ptr<test::leasing_files> leasing;
    nfs::handle_key key{std::byte(3), std::byte(141), std::byte(59)};
    nfs::export_table exports;
    nfs::v3::server nfs_program{exports, key};
    nfs::mount3::mount_list mounts;
    nfs::mount3::server mount_program{exports, key, mounts};
    rpc::duplicate_request_cache duplicates{1};
    rpc::service_dispatcher dispatcher{*shard, &duplicates};
    rpcrdma::responder_options server_options;
    rpcrdma::responder_stats server_stats;
    rpcrdma::requester_stats client_stats;
    std::unique_ptr<verbs::listener> listener;
    std::unique_ptr<rpc::client_transport> client_transport;

private:
    class watchdog final : private timer {
    public:
        explicit watchdog(world& w) { w.shard->timers().arm(*this, w.clock.now() + 24h); }

    private:
        void on_timer() noexcept override
        {
            std::fputs("a day has passed and the work is not done\n", stderr);
            std::abort();
        }
    };
    static std::unique_ptr<reactor> make_reactor(virtual_clock& clock, std::uint64_t seed)
    {
        reactor_options o;
        o.clock = &clock;
        o.seed = seed;
        auto made = reactor::create(o);
        if (!made) {
            std::fprintf(stderr, "%s\n", made.error().message().c_str());
            std::abort();
        }
        return std::move(*made);
    }
};

} // namespace verbena::sim
