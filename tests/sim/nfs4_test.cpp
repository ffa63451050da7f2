// SPDX-License-Identifier: Apache-2.0
// A client of version 4.1 over a connection that breaks in every way verbs has. Each call is answered as if it ran exactly once, which
// the session's slots see to, each byte is right, and when all is over neither end keeps anything.
#define BOOST_TEST_MODULE sim_nfs4
#include <boost/test/unit_test.hpp>

#include "luck.hpp"
#include "seeds.hpp"
#include "world.hpp"

#include <verbena/core/shard.hpp>
#include <verbena/protocols/nfs/v4/file.hpp>
#include <verbena/protocols/nfs/v4/server.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

using namespace verbena;
using namespace verbena::sim;
namespace v4 = nfs::v4;

namespace {

// A world whose server has version 4.1 too.
class world4 : public world {
public:
    explicit world4(const world_options& o) : world(o) { dispatcher.add(program); }

    bool run(const std::function<task<void>()>& body)
    {
        return world::run([&]() -> task<void> {
            tasks.spawn([this] { return commons.state.table().tend(); });
            tasks.spawn([this] { return commons.callbacks.run(); });
            co_await body();
            tasks.request_stop();
            co_await tasks.join();
        });
    }

private:
    static files::state_options state()
    {
        files::state_options o;
        o.epoch = 7;
        o.lease = 90s;
        return o;
    }
    scope tasks{*shard};
    verbena::shard home{0, *shard, server_buffers, tasks};
    files::no_recovery_store store;
    v4::server_commons commons{exports, key, home, store, state(), 1'700'000'000, v4::session_limits()};
    v4::server program{commons, home};
};

// One folder and what must be in it.
class worker {
public:
    worker(v4::client& c, std::string name, std::uint64_t seed)
        : client_(c), name_(std::move(name)), luck_(seed)
    {
    }

    task<void> work(v4::known_handle root, int operations, loop::fabric& fabric)
    {
        auto made = co_await client_.mkdir(root, name_, {});
        if (!good(made, "mkdir"))
            co_return;
        folder_ = made->handle;
        for (int i = 0; i < operations; ++i)
            co_await operation();
        fabric.set_conditions({});
        co_await list();
        while (!files_.empty()) {
            const std::string name = files_.begin()->first;
            co_await read(name);
            co_await remove(name);
        }
        auto gone = co_await client_.remove(root, name_);
        good(gone, "remove of the folder");
    }

private:
    template<class T>
    bool good(const result<T>& r, const char* what)
    {
        BOOST_TEST(bool(r), name_ << ": " << what << ": " << (r ? std::string() : r.error().message()));
        return bool(r);
    }
    std::string pick()
    {
        return std::next(files_.begin(), std::ptrdiff_t(luck_.below(files_.size())))->first;
    }
    std::string fresh_name() { return "f" + std::to_string(next_++) + std::string(luck_.below(60), 'x'); }

    task<void> operation()
    {
        const std::size_t dice = luck_.below(100);
        if (files_.empty() || (dice < 35 && files_.size() < 12))
            co_await create();
        else if (dice < 68)
            co_await read(pick());
        else if (dice < 75 && files_.size() < 12)
            co_await copy(pick());
        else if (dice < 85)
            co_await rename(pick());
        else if (dice < 95)
            co_await remove(pick());
        else
            co_await list();
    }
    task<void> create()
    {
        const std::string name = fresh_name();
        // GUARDED: a repeat that ran twice would fail.
        auto made = co_await client_.create(folder_, name, {}, v4::open_how::guarded);
        if (!good(made, "create"))
            co_return;
        v4::file& f = **made;
        auto& content = files_[name];
        const std::size_t parts = 1 + luck_.below(3);
        for (std::size_t i = 0; i < parts; ++i) {
            const std::size_t size = 1 + (luck_.chance(50) ? luck_.below(1000) : luck_.below(200'000));
            const std::size_t offset = luck_.below(content.size() + 100);
            lease memory = co_await client_.transport().acquire(size);
            BOOST_REQUIRE(memory);
            rpc::payload data = write_into(content, offset, size, std::move(memory), luck_);
            auto written = co_await f.write(offset, std::move(data));
            if (!good(written, "write"))
                co_return;
        }
        auto closed = co_await f.close();
        good(closed, "close");
    }
    // Within the server.
    task<void> copy(const std::string name)
    {
        const std::string to = fresh_name();
        auto found = co_await client_.lookup(folder_, name);
        if (!good(found, "lookup"))
            co_return;
        auto from = co_await client_.open(*found, v4::share4::access_read);
        if (!good(from, "open"))
            co_return;
        auto made = co_await client_.create(folder_, to, {}, v4::open_how::guarded);
        if (good(made, "create")) {
            auto copied = co_await (*made)->copy_from(**from, files_[name].size(), nullptr);
            if (good(copied, "copy"))
                BOOST_TEST(*copied == files_[name].size());
            files_[to] = files_[name];
            auto closed = co_await (*made)->close();
            good(closed, "close");
        }
        auto closed = co_await (*from)->close();
        good(closed, "close");
    }
    task<void> read(const std::string name)
    {
        const auto& content = files_[name];
        auto found = co_await client_.lookup(folder_, name);
        if (!good(found, "lookup"))
            co_return;
        BOOST_TEST(found->attributes.size == content.size());
        auto opened = co_await client_.open(*found, v4::share4::access_read);
        if (!good(opened, "open"))
            co_return;
        for (std::size_t at = 0; at < content.size();) {
            const auto count = static_cast<std::uint32_t>(1 + luck_.below(150'000));
            auto got = co_await (*opened)->read(at, count);
            if (!good(got, "read") || got->data.empty())
                break;
            for (const auto piece : got->data.pieces()) {
                BOOST_REQUIRE(at + piece.size() <= content.size());
                BOOST_TEST(std::equal(piece.begin(), piece.end(), content.begin() + std::ptrdiff_t(at)));
                at += piece.size();
            }
            BOOST_TEST(got->eof == (at == content.size()));
        }
        auto closed = co_await (*opened)->close();
        good(closed, "close");
    }
    task<void> rename(const std::string name)
    {
        const std::string to = fresh_name();
        auto done = co_await client_.rename(folder_, name, folder_, to);
        if (!good(done, "rename"))
            co_return;
        files_[to] = std::move(files_[name]);
        files_.erase(name);
    }
    task<void> remove(const std::string name)
    {
        // A repeat that ran twice would find nothing.
        auto done = co_await client_.remove(folder_, name);
        good(done, "remove");
        files_.erase(name);
    }
    task<void> list()
    {
        auto entries = co_await client_.list(folder_, luck_.chance(50));
        if (!good(entries, "list"))
            co_return;
        BOOST_TEST(entries->size() == files_.size());
        for (const auto& e : *entries)
            BOOST_TEST(files_.contains(e.name));
    }

    v4::client& client_;
    std::string name_;
    draws luck_;
    v4::known_handle folder_;
    std::map<std::string, std::vector<std::byte>> files_;
    unsigned next_ = 0;
};

struct outcome {
    std::uint64_t connections = 0;
    std::uint64_t sessions = 0;
};

outcome run(const world_options& o, int operations)
{
    outcome out;
    world4 w(o);
    const bool done = w.run([&]() -> task<void> {
        const nfs::identity who(world::user, world::user, {}, "sim");
        v4::client client(*w.client_transport, who, "sim");
        auto top = co_await client.root();
        BOOST_REQUIRE_MESSAGE(top, (top ? std::string() : top.error().message()));
        auto root = co_await client.walk(top->handle, "export", true);
        BOOST_REQUIRE_MESSAGE(root, (root ? std::string() : root.error().message()));
        std::vector<std::unique_ptr<worker>> workers;
        scope s(*w.shard);
        for (std::uint64_t i = 0; i < 4; ++i) {
            workers.push_back(
                std::make_unique<worker>(client, "worker" + std::to_string(i), o.seed * 16 + i));
            s.spawn([&] { return workers.back()->work(root->handle, operations, *w.fabric); });
        }
        co_await s.join();
        out.sessions = client.session().sessions();
        co_await client.close();
    });
    BOOST_TEST(done);
    out.connections = w.client_transport->connections();
    BOOST_TEST(w.server_buffers.outstanding() == 0u);
    BOOST_TEST(w.client_buffers.outstanding() == 0u);
    BOOST_TEST(w.server_device->grants() == 0u);
    BOOST_TEST(w.client_device->grants() == 0u);
    return out;
}

struct quiet {
    quiet() { set_log_level(log_level::error); }
};

} // namespace

BOOST_TEST_GLOBAL_FIXTURE(quiet);

BOOST_AUTO_TEST_CASE(without_faults_one_connection_does)
{
    for (std::uint64_t profile = 0; profile < profiles; ++profile) {
        world_options o = options_of(profile);
        o.conditions = {};
        const outcome out = run(o, 40);
        BOOST_TEST(out.connections == 1u);
        BOOST_TEST(out.sessions == 1u);
    }
}

BOOST_AUTO_TEST_CASE(fixed_seeds)
{
    const std::uint64_t only = only_seed();
    const std::uint64_t first = only != 0 ? only : 1;
    const std::uint64_t last = only != 0 ? only : 24;
    std::uint64_t connections = 0;
    for (std::uint64_t seed = first; seed <= last; ++seed) {
        BOOST_TEST_CONTEXT("VERBENA_SIM_SEED=" << seed)
        {
            const outcome out = run(options_of(seed), 40);
            connections += out.connections;
            BOOST_TEST(out.sessions == 1u);
        }
    }
    if (only == 0)
        BOOST_TEST(connections > 2 * last);
}

BOOST_AUTO_TEST_CASE(fresh_seeds_too)
{
    fresh_seeds([](std::uint64_t seed) {
        BOOST_TEST_CONTEXT("VERBENA_SIM_SEED=" << seed)
        {
            BOOST_TEST(run(options_of(seed), 40).sessions == 1u);
        }
    });
}
