// SPDX-License-Identifier: Apache-2.0
// A whole NFS server and whole clients of it over RPC-over-RDMA, in one process, on one virtual clock and one seed. The
// server has one shard or two, as verbenad has them, and so have its clients.
#pragma once

#include "../unit/protocols/leasing_files.hpp"
#include "../unit/protocols/storing_backend.hpp"
#include "draws.hpp"
#include "losing_backend.hpp"
#include "shards.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/simulated_shards.hpp>
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

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace verbena::sim {

using namespace std::chrono_literals;

struct world_options {
    std::uint64_t seed = 1;
    loop::conditions conditions;
    loop::options device;   ///< of both ends
    std::size_t shards = 1; ///< of the server, and as many of its clients
    std::uint32_t credits = 32;
    std::size_t server_memory = std::size_t(64) << 20;
    bool loses = false;        ///< the export is world::losing
    bool leases = false;       ///< the export is world::leasing
    bool local_writers = true; ///< of the export: then there are no delegations
    bool twice = false;        ///< the tree is exported as "/again", too
    bool layouts = false;      ///< the server gives RDMA layouts of the export: world4
    bool snapshots = false;    ///< of the export, which is world::backend then
    bool stores = false;       ///< the export is world::storing: layouts are of files that are in no memory
    bool restarts = false;     ///< the server remembers who may reclaim: world4::run_with_restarts()
};

/// Made and destroyed on one thread; run() once.
class world {
public:
    static constexpr std::size_t memory_limit = std::size_t(64) << 20; ///< of the clients
    static constexpr std::uint32_t user = 1000;

    /// What verbenad has on each of its shards.
    struct server_shard {
        server_shard(world& w, verbena::shard& at)
            : here(at), nfs_program(w.exports, w.key), mount_program(w.exports, w.key, w.mounts)
        {
            device = w.server_device->make_context(here.reactor());
            listener =
                std::move(here.index() == 0 ? *device->listen("server") : *device->listen_adopted("server"));
            begin(w);
        }
        /// Of a server that starts, or starts again.
        void begin(world& w)
        {
            dispatcher.emplace(here.reactor(), &w.duplicates);
            dispatcher->add(nfs_program);
            dispatcher->add(mount_program);
        }
        verbena::shard& here;
        std::unique_ptr<loop::context> device;
        std::unique_ptr<verbs::listener> listener;
        nfs::v3::server nfs_program;
        nfs::mount3::server mount_program;
        std::optional<rpc::service_dispatcher> dispatcher;
        rpcrdma::responder_stats stats;
    };
    /// A client's transport on one of its shards.
    struct client_shard {
        client_shard(world& w, verbena::shard& at)
            : here(at), device(w.client_device->make_context(here.reactor()))
        {
            transport = rpcrdma::make_requester(*device, here.buffers(), "server",
                                                requester_options(w.options), &stats);
        }
        verbena::shard& here;
        std::unique_ptr<loop::context> device;
        rpcrdma::requester_stats stats;
        std::unique_ptr<rpc::client_transport> transport;
    };

    explicit world(const world_options& o) : options(o), all(clock, o.seed), numbers(o.seed)
    {
        for (std::size_t i = 0; i < o.shards; ++i)
            all.add(server_memory);
        for (std::size_t i = 0; i < o.shards; ++i)
            all.add(client_memory);
        loop::fabric_options f;
        f.seed = o.seed;
        f.conditions = o.conditions;
        fabric = loop::make_fabric(all.at(0).reactor(), f);
        server_device = fabric->make_device(named("server"));
        client_device = fabric->make_device(named("client"));

        memfs::memfs_options files;
        files.root_uid = user;
        files.root_gid = user;
        files.random = &numbers;
        files.snapshots = o.snapshots;
        backend = std::move(*memfs::open_memfs(files, pool));
        nfs::export_options exported;
        exported.pnfs = o.layouts;
        losing = std::make_unique<losing_backend>(*backend);
        exported.local_writers = o.local_writers;
        leasing = std::make_unique<test::leasing_files>(*backend);
        storing = std::make_unique<test::storing_backend>(o.loses ? *losing : *backend);
        exported.backend = o.loses ? losing.get() : o.leases ? leasing.get() : backend.get();
        if (o.stores)
            exported.backend = storing.get();
        if (!exports.add(exported))
            std::abort();
        exported.pseudo = "/again";
        if (o.twice && !exports.add(exported))
            std::abort();
        server_options.shares_standing_receives = true; // where a profile has shared receives
        server_options.credits = o.credits;
        for (std::size_t i = 0; i < o.shards; ++i)
            servers.emplace_back(*this, all.at(i));
        for (std::size_t i = 0; i < o.shards; ++i)
            clients.emplace_back(*this, all.at(o.shards + i));
        if (o.shards > 1)
            servers.front().device->divert(
                [this](std::unique_ptr<verbs::arrival>& peer, verbs::listener& where) {
                    if (&where == servers.front().listener.get())
                        hand_over(peer);
                });
    }

    loop::options named(const std::string& name) const
    {
        loop::options device = options.device;
        device.name = name;
        return device;
    }
    static rpcrdma::requester_options requester_options(const world_options& o)
    {
        rpcrdma::requester_options r;
        r.client.timeout = 2s;
        r.client.connect_timeout = 1s;
        r.client.reconnect_delay = 1ms;
        r.client.reconnect_delay_max = 20ms;
        r.client.max_calls = o.credits;
        return r;
    }

    /// Where the body of run() runs: the first shard of the clients.
    verbena::shard& here() noexcept { return clients.front().here; }

    /// Serves until `body` is done and the clients have closed; true if it came to that.
    bool run(const std::function<task<void>()>& body)
    {
        bool done = false;
        const auto main = [&]() -> task<void> {
            scope serving(here().reactor());
            for (server_shard& s : servers)
                serving.spawn([this, &s] { return serve(s); });
            co_await body();
            co_await close_clients();
            for (server_shard& s : servers) {
                const auto close = [&s] { s.listener->close(); };
                co_await s.here.run(close);
            }
            co_await serving.join();
            done = true;
        };
        // Virtual hours with nothing achieved are a livelock.
        const watchdog limit(*this);
        all.run(here(), main());
        all.settle();
        return done;
    }
    std::uint64_t connections() const
    {
        std::uint64_t sum = 0;
        for (const client_shard& c : clients)
            sum += c.transport->connections();
        return sum;
    }
    /// Over the server's shards.
    std::uint64_t calls() const
    {
        std::uint64_t sum = 0;
        for (const server_shard& s : servers)
            sum += s.stats.calls.value();
        return sum;
    }
    /// What some shard keeps after run(), for people, or nothing.
    std::string left_over()
    {
        std::string text;
        const auto tell = [&text](const char* what, std::size_t index, std::uint64_t count) {
            if (count != 0)
                text += std::to_string(count) + what + std::to_string(index) + "; ";
        };
        for (const server_shard& s : servers) {
            tell(" buffers of shard ", s.here.index(), s.here.buffers().outstanding());
            tell(" connections of shard ", s.here.index(), std::uint64_t(s.stats.connections.value()));
            // A client that keeps the rules is never taken for one that does not.
            tell(" overruns of credits on shard ", s.here.index(), s.stats.credit_overruns.value());
            tell(" illegal transitions on shard ", s.here.index(),
                 s.here.reactor().stats().illegal_transitions.load());
            tell(" wrong versions on shard ", s.here.index(), s.stats.version_errors.value());
        }
        for (const client_shard& c : clients)
            tell(" buffers of shard ", c.here.index(), c.here.buffers().outstanding());
        for (std::size_t i = 0; i < all.size(); ++i)
            tell(" illegal transitions on shard ", i, all.at(i).reactor().stats().illegal_transitions.load());
        tell(" grants of the server on ", 0, server_device->grants());
        tell(" grants of clients on ", 0, client_device->grants());
        tell(" queue pairs on ", 0, fabric->counters().active);
        // Whoever keeps to its credits finds a receive, unless it may have to wait for one.
        const verbs::capabilities& can = options.device.profile;
        const bool injected =
            can.receive_not_ready_retry &&
            options.conditions.per_million[std::size_t(loop::fault::receiver_not_ready)] != 0;
        if ((!can.receives_on_demand || !can.shared_receives) && !injected)
            tell(" messages without a receive on ", 0, fabric->counters().receiver_not_ready);
        return text;
    }

    const world_options options;
    virtual_clock clock;
    memory_budget server_memory{options.server_memory, unsigned(options.shards)};
    memory_budget client_memory{memory_limit, unsigned(options.shards)};
    simulated_shards all;
    seeded_random numbers;
    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<loop::device> server_device, client_device;
    blocking_pool pool{1};
    std::unique_ptr<storage::file_backend> backend;
    std::unique_ptr<losing_backend> losing;
    std::unique_ptr<test::storing_backend> storing; // of `losing`, if that is what loses
    std::unique_ptr<test::leasing_files> leasing;
    nfs::handle_key key{std::byte(3), std::byte(141), std::byte(59)};
    nfs::export_table exports;
    nfs::mount3::mount_list mounts;
    rpc::duplicate_request_cache duplicates{options.shards, {}, numbers};
    rpcrdma::responder_options server_options;
    std::deque<server_shard> servers;
    std::deque<client_shard> clients;
    /// On which shard of the server the newest connection of each client is, by its device's name.
    std::map<std::string, std::size_t, std::less<>> place_of;
    std::uint64_t handovers = 0; ///< of connections to another shard

protected:
    class watchdog final : private timer {
    public:
        explicit watchdog(world& w) { w.here().reactor().timers().arm(*this, w.clock.now() + 24h); }

    private:
        void on_timer() noexcept override
        {
            std::fputs("a day has passed and the work is not done\n", stderr);
            std::abort();
        }
    };
    task<void> serve(server_shard& s)
    {
        const auto here = [this, &s]() -> task<void> {
            noting_listener listener(*this, s);
            co_await rpcrdma::serve(*s.device, listener, s.here.buffers(), *s.dispatcher, server_options,
                                    s.stats);
        };
        co_await s.here.run(here);
    }
    task<void> close_clients()
    {
        for (client_shard& c : clients) {
            const auto close = [&c] { return c.transport->close(); };
            co_await c.here.run(close);
        }
    }

private:
    // Notes whose connections come there.
    class noting_listener final : public verbs::listener {
    public:
        noting_listener(world& w, server_shard& s) noexcept : world_(w), shard_(s) {}
        task<result<std::unique_ptr<verbs::connect_request>>> next() override
        {
            auto request = co_await shard_.listener->next();
            if (request)
                world_.place_of[std::string((*request)->peer_address())] = shard_.here.index();
            co_return request;
        }
        void close() noexcept override { shard_.listener->close(); }
        std::string local_url() const override { return shard_.listener->local_url(); }

    private:
        world& world_;
        server_shard& shard_;
    };
    // The acceptor's choice.
    void hand_over(std::unique_ptr<verbs::arrival>& peer)
    {
        server_shard& to = servers[luck_.below(servers.size())];
        if (to.here.index() == 0)
            return;
        ++handovers;
        handover::send(to.here, *to.device, to.listener, std::move(peer));
    }

    draws luck_{options.seed};
};

} // namespace verbena::sim
