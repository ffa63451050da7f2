// SPDX-License-Identifier: Apache-2.0
// A world of simulated clients and a server, which has NFS version 4, too, and homes of files on the shards that a seed draws.
#pragma once

#include "../unit/protocols/nfs4_kept_store.hpp"
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
#include <span>
#include <string>
#include <vector>

namespace verbena::sim {

namespace v4 = nfs::v4;

/// A world whose server has version 4, too. Its clients' home is the first shard, wherever connections come, and files
/// have one home, two or three, on shards that the seed draws.
class world4 : public world {
public:
    explicit world4(const world_options& o) : world(o) { begin(); }

    bool run(const std::function<task<void>()>& body)
    {
        return world::run([&]() -> task<void> {
            scope tasks(here().reactor());
            tend(tasks);
            serve_data(tasks);
            co_await body();
            tasks.request_stop();
            co_await tasks.join();
        });
    }
    /// run(), with a server that is killed and starts again after each of `pauses`, as long as the body goes on. It
    /// knows who may reclaim (world_options::restarts), and has what its file system has; where that loses, as its
    /// host went down with it, what was committed. What the server was doing is not done: see
    /// storing_backend::lose_accesses(). Outside of turns, as the state of all shards goes at once.
    bool run_with_restarts(const std::function<task<void>()>& body, std::span<const duration> pauses)
    {
        bool is_done = false;
        const watchdog limit(*this);
        serve_all();
        std::optional<scope> work;
        const auto start = [&]() -> task<void> {
            work.emplace(here().reactor());
            work->spawn([&]() -> task<void> {
                co_await body();
                is_done = true;
            });
            co_return;
        };
        all.run(here(), start());
        for (const duration pause : pauses) {
            const auto wait = [&]() -> task<void> {
                for (const time_point until = clock.now() + pause; !is_done && clock.now() < until;)
                    co_await sleep_for(7ms);
            };
            all.run(here(), wait());
            if (is_done)
                break;
            serve_no_more();
            end();
            storing->lose_accesses();
            if (options.loses)
                all.run(here(), losing->crash());
            ++restarts;
            begin();
            serve_all();
        }
        const auto finish = [&]() -> task<void> {
            co_await work->join();
            co_await close_clients();
        };
        all.run(here(), finish());
        work.reset();
        serve_no_more();
        all.settle();
        return is_done;
    }
    unsigned restarts = 0;
    const nfs::state_home& state_layer() const noexcept { return commons->state; }
    /// If there are layouts.
    const v4::pnfs::service& layouts() const noexcept { return *service; }
    /// Of files that have another shard than clients for their home.
    std::uint64_t recalls_elsewhere() const noexcept
    {
        return state_layer().total(&files::state_stats::recalls) - state_layer().stats().recalls.value();
    }
    std::uint64_t called(v4::callback_counters::kind what, v4::callback_counters::outcome how) const noexcept
    {
        return commons->callbacks.counters().calls[std::size_t(what)][std::size_t(how)].value();
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
    void begin()
    {
        commons.emplace(exports, key, homes,
                        options.restarts ? static_cast<files::recovery_store&>(kept) : store, state(),
                        1'700'000'000, v4::session_limits());
        commons->minors[0] = true;
        if (options.layouts)
            give_layouts();
        for (server_shard& s : servers)
            s.dispatcher->add(programs.emplace_back(*commons, s.here));
    }
    void end()
    {
        for (server_shard& s : servers)
            s.begin(*this);
        programs.clear();
        commons.reset();
        service.reset();
        data_listeners.clear();
    }
    void serve_all()
    {
        const auto start = [this]() -> task<void> {
            serving.emplace(here().reactor());
            tending.emplace(here().reactor());
            tend(*tending);
            serve_data(*serving);
            for (server_shard& s : servers)
                serving->spawn([this, &s] { return serve(s); });
            co_return;
        };
        all.run(here(), start());
    }
    void serve_no_more()
    {
        const auto stop = [this]() -> task<void> {
            for (auto* const each : {&serving, &tending}) {
                (*each)->request_stop();
                co_await (*each)->join();
            }
        };
        all.run(here(), stop());
        serving.reset();
        tending.reset();
        all.settle();
    }
    void tend(scope& tasks)
    {
        const auto tend_clients = [this] { return commons->state.clients().tend(); };
        const auto call_clients = [this] { return commons->callbacks.run(); };
        tasks.spawn([this, tend_clients] { return home.run(tend_clients); });
        for (unsigned i = 0; i < commons->state.homes(); ++i)
            tasks.spawn([this, i] { return tend_files(i); });
        tasks.spawn([this, call_clients] { return home.run(call_clients); });
    }
    void serve_data(scope& tasks)
    {
        for (unsigned i = 0; i < data_listeners.size(); ++i)
            tasks.spawn([this, i] { return serve_data(i); });
    }
    task<void> tend_files(unsigned i)
    {
        const auto tend_one = [this, i] { return commons->state.table(i).tend(); };
        co_await commons->state.where(i).run(tend_one);
    }
    // Clients find the data server on any shard.
    void give_layouts()
    {
        std::vector<shard*> all;
        for (server_shard& s : servers) {
            all.push_back(&s.here);
            data_listeners.push_back(std::move(*s.device->listen("data" + std::to_string(all.size() - 1))));
        }
        service.emplace(*commons, all, v4::pnfs::service::options());
        data = service->add_way("loop", *server_device, [this](std::string_view) {
            return "data" + std::to_string(places.fetch_add(1) % data_listeners.size());
        });
        commons->pnfs = &*service;
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
        o.epoch = 7 + restarts;
        o.lease = 90s;
        o.recall_time = 30s; // so that some silent clients lose a delegation, and others all that they have
        if (options.layouts)
            o.rest_after_recall = 200ms; // or there would be none most of the time
        if (restarts != 0)
            o.reclaimers = kept.reclaimers();
        return o;
    }
    std::vector<std::unique_ptr<verbs::listener>> data_listeners;
    std::atomic<std::size_t> places{0};
    std::optional<v4::pnfs::service> service; // the tables of `commons` know of its layouts
    v4::pnfs::data_server* data = nullptr;
    files::no_recovery_store store;
    test::kept_store kept;
    std::optional<v4::server_commons> commons;
    std::deque<v4::server> programs;
    std::optional<scope> serving, tending; // of run_with_restarts()
};

} // namespace verbena::sim
