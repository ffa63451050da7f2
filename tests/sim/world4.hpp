// SPDX-License-Identifier: Apache-2.0
// A world of simulated clients and a server, which has NFS version 4, too, and homes of files on the shards that a seed draws.
#pragma once

#include "world.hpp"

#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/nfs/server/v4/commons.hpp>
#include <verbena/protocols/nfs/server/v4/pnfs/service.hpp>
#include <verbena/protocols/nfs/server/v4/server.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace verbena::sim {

namespace v4 = nfs::v4;

/// A world whose server has version 4, too. Its clients' home is the first shard, wherever connections come, and files
/// have one home, two or three, on shards that the seed draws.
class world4 : public world {
public:
    explicit world4(const world_options& o) : world(o)
    {
        commons.minors[0] = true;
        if (o.layouts)
            give_layouts();
        for (server_shard& s : servers)
            s.dispatcher.add(programs.emplace_back(commons, s.here));
    }

    bool run(const std::function<task<void>()>& body)
    {
        return world::run([&]() -> task<void> {
            scope tasks(here().reactor());
            const auto tend_clients = [this] { return commons.state.clients().tend(); };
            const auto call_clients = [this] { return commons.callbacks.run(); };
            tasks.spawn([this, tend_clients] { return home.run(tend_clients); });
            for (unsigned i = 0; i < commons.state.homes(); ++i)
                tasks.spawn([this, i] { return tend_files(i); });
            tasks.spawn([this, call_clients] { return home.run(call_clients); });
            for (unsigned i = 0; i < data_listeners.size(); ++i)
                tasks.spawn([this, i] { return serve_data(i); });
            co_await body();
            tasks.request_stop();
            co_await tasks.join();
        });
    }
    const nfs::state_home& state_layer() const noexcept { return commons.state; }
    /// If there are layouts.
    const v4::pnfs::service& layouts() const noexcept { return *service; }
    /// Of files that have another shard than clients for their home.
    std::uint64_t recalls_elsewhere() const noexcept
    {
        return state_layer().total(&files::state_stats::recalls) - state_layer().stats().recalls.value();
    }
    std::uint64_t called(v4::callback_counters::kind what, v4::callback_counters::outcome how) const noexcept
    {
        return commons.callbacks.counters().calls[std::size_t(what)][std::size_t(how)].value();
    }

    shard& home = servers.front().here;
    const std::vector<shard*> homes = draw_homes();

private:
    std::vector<shard*> draw_homes()
    {
        draws luck(options.seed + 1000);
        std::vector<shard*> all(1, &home);
        for (std::size_t more = luck.below(3); more > 0; --more)
            all.push_back(&servers[luck.below(servers.size())].here);
        return all;
    }
    task<void> tend_files(unsigned i)
    {
        const auto tend = [this, i] { return commons.state.table(i).tend(); };
        co_await commons.state.where(i).run(tend);
    }
    // Clients find the data server on any shard.
    void give_layouts()
    {
        std::vector<shard*> all;
        for (server_shard& s : servers) {
            all.push_back(&s.here);
            data_listeners.push_back(std::move(*s.device->listen("data" + std::to_string(all.size() - 1))));
        }
        service.emplace(commons, all, v4::pnfs::service::options());
        data = service->add_way("loop", *server_device, [this](std::string_view) {
            return "data" + std::to_string(places.fetch_add(1) % data_listeners.size());
        });
        commons.pnfs = &*service;
    }
    task<void> serve_data(unsigned i)
    {
        const auto here = [this, i]() -> task<void> {
            const task_context& mine = co_await current_context();
            scope connections(*mine.shard, &mine);
            for (;;) {
                auto next = co_await data_listeners[i]->next();
                if (!next)
                    break;
                connections.spawn(&v4::pnfs::data_server::serve, data, std::move(*next));
            }
            connections.request_stop();
            co_await connections.join();
            data_listeners[i]->close();
        };
        co_await servers[i].here.run(here);
    }
    files::state_options state() const
    {
        files::state_options o;
        o.epoch = 7;
        o.lease = 90s;
        o.recall_time = 30s; // so that some silent clients lose a delegation, and others all that they have
        if (options.layouts)
            o.rest_after_recall = 200ms; // or there would be none most of the time
        return o;
    }
    std::vector<std::unique_ptr<verbs::listener>> data_listeners;
    std::atomic<std::size_t> places{0};
    std::optional<v4::pnfs::service> service; // the tables of `commons` know of its layouts
    v4::pnfs::data_server* data = nullptr;
    files::no_recovery_store store;
    v4::server_commons commons{exports, key, homes, store, state(), 1'700'000'000, v4::session_limits()};
    std::deque<v4::server> programs;
};

} // namespace verbena::sim
