// SPDX-License-Identifier: Apache-2.0
// A server of RTRS with devices of RNBD, over loop and its virtual clock, and what must be left of it in the end.
#pragma once

#include "../log_at.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/plugins/ramblk.hpp>
#include <verbena/protocols/rnbd/client.hpp>
#include <verbena/protocols/rnbd/server.hpp>
#include <verbena/transports/loop.hpp>

#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace verbena::rnbd_test {

/// In a test of many data, which is a template: g++ 12 does not parse a member of `(co_await ...)` there.
template<class T>
bool succeeded(const result<T>& done)
{
    return done.has_value();
}

inline std::unique_ptr<storage::block_backend> ram_disk(std::uint64_t size)
{
    ramblk::ramblk_options o;
    o.size = size;
    return std::move(*ramblk::open_ramblk(o));
}

struct world {
    const test::log_at level_of_log;
    explicit world(const loop::fabric_options& f = {}, const loop::options& devices = {},
                   log_level level = log_level::off, std::size_t memory = 64 << 20,
                   const peer_options& share = {})
        : level_of_log(level), budget(memory), profile(devices), peers(share)
    {
        reactor_options r;
        r.clock = &clock;
        shard = std::move(*reactor::create(r));
        pool = std::make_unique<buffer_pool>(budget, shard.get());
        fabric = loop::make_fabric(*shard, f);
        server_device = fabric->make_context(profile);
    }
    void add(const char* name, storage::block_backend& disk, bool read_only = false,
             const char* clients = "*", const char* session = "")
    {
        rnbd::device_options d;
        d.name = name;
        d.backend = &disk;
        d.read_only = read_only;
        BOOST_REQUIRE(d.clients.add(clients));
        d.session = session;
        BOOST_REQUIRE(devices.add(std::move(d)));
    }
    std::unique_ptr<rtrs::server> make_server()
    {
        return std::make_unique<rtrs::server>(*shard, *pool, blocks, group, options, stats);
    }
    /// Once every client has been closed and the server is gone.
    void nothing_is_left() const
    {
        BOOST_TEST(stats.sessions.value() == 0);
        BOOST_TEST(stats.paths.value() == 0);
        BOOST_TEST(stats.connections.value() == 0);
        BOOST_TEST(server_device->grants() == 0u);
        BOOST_TEST(pool->outstanding() == 0u);
        BOOST_TEST(peers.peers() == 0u);
        BOOST_TEST(shard->stats().illegal_transitions.load() == 0u);
        for (std::size_t i = 0; i < devices.size(); ++i) {
            BOOST_TEST(devices.users_of(i).writers == 0u);
            BOOST_TEST(devices.users_of(i).readers == 0u);
        }
    }
    std::uint64_t lost_paths() const
    {
        std::uint64_t all = 0;
        for (const auto& c : client_stats.lost_paths)
            all += c.value();
        return all;
    }
    std::uint64_t ends(rtrs::path_end e) const { return stats.ends[std::size_t(e)].value(); }

    virtual_clock clock;
    std::unique_ptr<reactor> shard;
    memory_budget budget;
    std::unique_ptr<buffer_pool> pool;
    loop::options profile; ///< of the server's device
    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<loop::context> server_device;
    rnbd::device_table devices;
    rnbd::server_stats device_stats;
    rnbd::server blocks{devices, device_stats};
    peer_shares peers;
    rtrs::server_group group{peers};
    rtrs::server_options options;
    rtrs::server_stats stats;
    rtrs::client_stats client_stats;
};

/// One whose server listens at "server" while a test's body runs.
struct served_world : world {
    using world::world;
    /// What `body` does while the server serves: `serving`, or one with the devices. Then everything ends, and nothing is left.
    void run(const std::function<task<void>()>& body)
    {
        if (!serving)
            serving = make_server();
        run_until_complete(*shard, whole(body));
        serving.reset();
        nothing_is_left();
    }
    task<void> whole(const std::function<task<void>()>& body)
    {
        scope s(*shard);
        s.spawn([&] { return serving->serve(*server_device, *listener); });
        co_await body();
        listener->close();
        co_await s.join();
    }
    /// Of another service than the devices.
    void serve_by(rtrs::service& s)
    {
        serving = std::make_unique<rtrs::server>(*shard, *pool, s, group, options, stats);
    }

    std::unique_ptr<verbs::listener> listener = std::move(*server_device->listen("server"));
    std::unique_ptr<rtrs::server> serving;
};

/// Has another service's answers to SESS_INFO changed before they go out.
class changing_service final : public rtrs::service {
public:
    using change = std::function<void(std::span<std::byte> answer)>;
    changing_service(rtrs::service& inner, change c) : inner_(inner), change_(std::move(c)) {}
    result<std::unique_ptr<rtrs::session_handler>> open(const rtrs::session_info& s) override
    {
        auto made = inner_.open(s);
        if (!made)
            return made.error();
        return std::unique_ptr<rtrs::session_handler>(std::make_unique<handler>(std::move(*made), change_));
    }

private:
    class handler final : public rtrs::session_handler {
    public:
        handler(std::unique_ptr<rtrs::session_handler> inner, const change& c)
            : inner_(std::move(inner)), change_(c)
        {
        }
        task<result<void>> serve(rtrs::request& r) override
        {
            auto done = co_await inner_->serve(r);
            std::array<std::byte, 4> type{};
            if (r.copy_user(type) == 4 && type[0] == std::byte(rnbd::message::session_info))
                change_(r.data());
            co_return done;
        }

    private:
        std::unique_ptr<rtrs::session_handler> inner_;
        const change& change_;
    };
    rtrs::service& inner_;
    const change change_;
};

} // namespace verbena::rnbd_test
