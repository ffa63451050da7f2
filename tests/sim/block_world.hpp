// SPDX-License-Identifier: Apache-2.0
// A server of RTRS with devices of RNBD on one shard or several, as verbenad has them, and as many shards of clients, in one
// process, on one virtual clock and one seed.
#pragma once

#include "draws.hpp"
#include "shards.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/reactor/simulated_shards.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/rnbd/client.hpp>
#include <verbena/protocols/rnbd/server.hpp>
#include <verbena/protocols/rtrs/wire.hpp>
#include <verbena/transports/loop.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace verbena::sim {

/// Made and destroyed on one thread. A session's home is one shard of the server, which the seed picks; its paths come to
/// any, and their connections are spread over all.
class block_world {
public:
    static constexpr std::size_t memory_limit = std::size_t(64) << 20; ///< of each end

    /// What verbenad has on each of its shards.
    struct server_shard {
        server_shard(block_world& w, verbena::shard& at)
            : here(at), device(w.server_device->make_context(here.reactor()))
        {
        }
        verbena::shard& here;
        std::unique_ptr<loop::context> device;
        rtrs::server_stats stats;
        // While it serves.
        std::optional<scope> tasks;
        std::vector<std::unique_ptr<verbs::listener>> listeners;
        std::unique_ptr<verbs::listener> adopting; ///< of those that came to another shard
        std::unique_ptr<rtrs::server> serving;
    };

    /// `devices`: what those of both ends can do.
    block_world(std::uint64_t seed, std::size_t shards, const loop::fabric_options& f,
                const loop::options& devices)
        : shards_(shards), devices_(devices), numbers_(seed), all(clock, seed), group(peers, numbers_)
    {
        set_log_level(std::getenv("VERBENA_SIM_LOG") == nullptr ? log_level::off : log_level::debug);
        for (std::size_t i = 0; i < 2 * shards; ++i)
            all.add(i < shards ? server_memory : client_memory);
        fabric = loop::make_fabric(all.at(0).reactor(), f);
        server_device = make_device("server");
        for (std::size_t i = 0; i < shards; ++i)
            servers.emplace_back(*this, all.at(i));
        std::vector<const shard*> spread;
        for (server_shard& s : servers)
            spread.push_back(&s.here);
        group.spread_over(std::move(spread));
        for (server_shard& s : servers)
            s.device->divert(
                [this, &s](std::unique_ptr<verbs::arrival>& peer, verbs::listener&) { hand_over(s, peer); });
    }
    std::unique_ptr<loop::device> make_device(const char* name)
    {
        loop::options device = devices_;
        device.name = name;
        return fabric->make_device(device);
    }
    void add(const char* name, storage::block_backend& disk)
    {
        rnbd::device_options d;
        d.name = name;
        d.backend = &disk;
        BOOST_REQUIRE(d.clients.add("*"));
        BOOST_REQUIRE(devices.add(std::move(d)));
    }
    std::size_t client_shards() const noexcept { return shards_; }
    /// One of the clients'. The first is where a test's task runs.
    shard& client(std::size_t index) noexcept { return all.at(shards_ + index); }

    /// Has the server listen at these names, one shard after the other, and serve.
    task<void> begin(std::vector<std::string> names)
    {
        for (server_shard& s : servers) {
            std::vector<std::string> own;
            for (std::size_t i = s.here.index(); i < names.size(); i += shards_)
                own.push_back(names[i]);
            const auto begins = [this, &s, &own] { begin_one(s, own); };
            co_await s.here.run(begins);
        }
    }
    /// Ends what begin() began. `drains`: what is under way is answered first.
    task<void> end(bool drains)
    {
        scope ending(client(0).reactor());
        for (server_shard& s : servers) {
            const auto ends = [&s, drains] { return end_one(s, drains); };
            ending.spawn([&s, ends] { return s.here.run(ends); });
        }
        co_await ending.join();
    }

    /// One shard of the server alone. On that shard.
    void begin_one(server_shard& s, const std::vector<std::string>& names)
    {
        s.serving = std::make_unique<rtrs::server>(s.here.reactor(), s.here.buffers(), served, group, options,
                                                   s.stats);
        s.tasks.emplace(s.here.reactor());
        s.adopting = std::move(*s.device->listen_adopted("loop"));
        for (const std::string& name : names)
            s.listeners.push_back(std::move(*s.device->listen(name)));
        const auto serve = [&s](verbs::listener& l) {
            s.tasks->spawn([&s, &l] { return s.serving->serve(*s.device, l); });
        };
        serve(*s.adopting);
        for (const auto& l : s.listeners)
            serve(*l);
    }
    static task<void> end_one(server_shard& s, bool drains)
    {
        for (const auto& l : s.listeners)
            l->close();
        s.adopting->close();
        if (!drains)
            s.tasks->request_stop();
        co_await s.tasks->join();
        s.serving.reset();
        s.listeners.clear();
    }

    std::uint64_t repeated() const
    {
        std::uint64_t sum = 0;
        for (const server_shard& s : servers)
            sum += s.stats.repeated.value();
        return sum;
    }
    /// Shards that have served requests and are the home of no path that there ever was.
    std::uint64_t served_beside() const
    {
        std::uint64_t sum = 0;
        for (const server_shard& s : servers) {
            std::uint64_t homes = 0;
            for (const auto& c : s.stats.ends)
                homes += c.value();
            sum += homes == 0 && s.stats.reads.value() + s.stats.writes.value() != 0 ? 1 : 0;
        }
        return sum;
    }
    std::int64_t sessions() const
    {
        std::int64_t sum = 0;
        for (const server_shard& s : servers)
            sum += s.stats.sessions.value();
        return sum;
    }
    /// Once every client has been closed and the server has ended. So many paths broke the protocol.
    void nothing_is_left(std::uint64_t broken = 0)
    {
        std::uint64_t bad_messages = 0;
        all.settle();
        for (const server_shard& s : servers) {
            BOOST_TEST_CONTEXT("shard " << s.here.index())
            {
                BOOST_TEST(s.stats.sessions.value() == 0);
                BOOST_TEST(s.stats.paths.value() == 0);
                BOOST_TEST(s.stats.connections.value() == 0);
            }
            bad_messages += s.stats.ends[std::size_t(rtrs::path_end::bad_message)].value();
        }
        BOOST_TEST(bad_messages == broken);
        for (std::size_t i = 0; i < all.size(); ++i) {
            BOOST_TEST(all.at(i).buffers().outstanding() == 0u, "buffers of shard " << i);
            BOOST_TEST(all.at(i).reactor().stats().illegal_transitions.load() == 0u);
        }
        BOOST_TEST(server_device->grants() == 0u);
        BOOST_TEST(fabric->counters().active == 0u);
        BOOST_TEST(peers.peers() == 0u);
        for (std::size_t i = 0; i < devices.size(); ++i) {
            BOOST_TEST(devices.users_of(i).writers == 0u);
            BOOST_TEST(devices.users_of(i).readers == 0u);
        }
    }

private:
    const std::size_t shards_;
    const loop::options devices_;
    seeded_random numbers_;

public:
    virtual_clock clock;
    memory_budget server_memory{memory_limit, unsigned(shards_)};
    memory_budget client_memory{memory_limit, unsigned(shards_)};
    simulated_shards all;
    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<loop::device> server_device;
    rnbd::device_table devices;
    rnbd::server_stats device_stats;
    rnbd::server served{devices, device_stats};
    peer_shares peers{peer_options()};
    rtrs::server_group group;
    rtrs::server_options options;
    rtrs::client_stats client_stats;
    std::deque<server_shard> servers;
    std::uint64_t handovers = 0; ///< of connections to the shard where they are served

private:
    void hand_over(server_shard& from, std::unique_ptr<verbs::arrival>& peer)
    {
        const auto chosen = group.shard_of(peer->private_data(), shards_);
        if (!chosen)
            return;
        server_shard& to = servers[*chosen];
        if (&to == &from)
            return;
        ++handovers;
        handover::send(to.here, *to.device, to.adopting, std::move(peer));
    }
};

} // namespace verbena::sim
