// SPDX-License-Identifier: Apache-2.0
// Layouts without operations: a server on two shards that gives them of files of memfs over the loop transport, and clients of it.
#pragma once

#include "files_store.hpp"
#include "nfs4_rdma_peer.hpp"

#include <verbena/core/reactor/simulated_shards.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/plugins/memfs.hpp>
#include <verbena/protocols/nfs/server/state_home.hpp>
#include <verbena/protocols/nfs/server/v4/pnfs/layouts.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>
#include <verbena/transports/loop.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbena::test::layouts_alone {

using namespace std::chrono_literals;
using files::lock_type;
using nfs::v4::pnfs::layout_client;
using peer = rdma_peer;
using nfs::v4::pnfs::layouts;

inline constexpr std::uint64_t block = 64 << 10;
inline constexpr files::byte_range all_bytes{0, files::byte_range::to_the_end};

class silent_handler final : public files::state_handler {
public:
    void recall(const files::recall_notice&) noexcept override {}
    void recall_any(files::client_id, std::size_t) noexcept override {}
    void lock_available(const files::lock_notice&) noexcept override {}
    time_point last_heard(files::client_id) noexcept override { return time_point::min(); }
};

class noted_recalls final : public nfs::v4::pnfs::layout_recaller {
public:
    void recall_layout(const files::recall_notice& n) noexcept override { clients.push_back(n.client); }
    void recall_any_layout(files::client_id client, std::size_t keep) noexcept override
    {
        asked.emplace_back(client, keep);
    }
    std::vector<files::client_id> clients;
    std::vector<std::pair<files::client_id, std::size_t>> asked;
};

/// Mapping takes its time.
class slow_maps final : public storage::forwarding_backend {
public:
    explicit slow_maps(std::unique_ptr<storage::file_backend> below)
        : forwarding_backend(std::move(below), storage::filter_bytes::are_those_below)
    {
    }
    task<result<storage::mapping>> map(const storage::request& r, const storage::handle& file,
                                       std::uint64_t offset, std::uint64_t length,
                                       storage::map_use use) override
    {
        (void)co_await sleep_for(before);
        if (throws)
            throw std::runtime_error("a back end");
        auto mapping = below().map(r, file, offset, length, use);
        auto got = co_await mapping;
        (void)co_await sleep_for(after);
        co_return got;
    }
    duration before = 0s, after = 0s;
    bool throws = false;
};

/// Revoking takes its time.
class slow_domain final : public verbs::protection_domain {
public:
    explicit slow_domain(std::unique_ptr<verbs::protection_domain> below, duration takes = 1s)
        : below_(std::move(below)), takes_(takes)
    {
    }
    task<result<std::unique_ptr<verbs::region>>> register_memory(std::span<std::byte> memory) override
    {
        return below_->register_memory(memory);
    }
    task<result<void>> add_pool(buffer_pool& pool) override { return below_->add_pool(pool); }
    bool is_registered(std::span<const std::byte> memory) const noexcept override
    {
        return below_->is_registered(memory);
    }
    task<result<void>> make_grants(std::span<verbs::grant_request> batch) override
    {
        return below_->make_grants(batch);
    }
    task<void> revoke(std::span<verbs::grant> batch) override
    {
        (void)co_await sleep_for(takes_);
        auto revoking = below_->revoke(batch);
        co_await revoking;
    }
    bool renews_at_once() const noexcept override { return below_->renews_at_once(); }
    task<result<std::unique_ptr<verbs::shared_receive_queue>>>
    make_shared_receive_queue(const verbs::shared_receive_queue_options& options) override
    {
        return below_->make_shared_receive_queue(options);
    }

private:
    const std::unique_ptr<verbs::protection_domain> below_;
    const duration takes_;
};

/// A server on two shards, and its clients on a third.
struct data_server {
    explicit data_server(std::uint64_t seed = 1, const loop::conditions& conditions = {},
                         const nfs::v4::pnfs::layout_limits& limits = {})
        : shards(clock, seed), kind(2, recalls, limits)
    {
        for (int i = 0; i < 3; ++i)
            shards.add(memory);
        const std::array<shard*, 2> homes = {&shards.at(0), &shards.at(1)};
        files::state_options o;
        o.epoch = 3;
        state.emplace(homes, store, handler, std::move(o), siphash_key());
        memfs::memfs_options m;
        m.max_bytes = 64 << 20;
        m.root_mode = 0777;
        backend.emplace(std::move(*memfs::open_memfs(m, pool)));
        loop::fabric_options f;
        f.seed = seed;
        f.conditions = conditions;
        fabric = loop::make_fabric(shards.at(0).reactor(), f);
        loop::options device;
        device.name = "server";
        server = fabric->make_device(device);
        device.name = "client";
        client_device = fabric->make_device(device);
        for (unsigned i = 0; i < 2; ++i) {
            contexts[i] = server->make_context(shards.at(i).reactor());
            listeners[i] = std::move(*contexts[i]->listen("data" + std::to_string(i)));
        }
        client_context = client_device->make_context(here().reactor());
        client_domain = std::move(*client_context->make_domain());
    }
    ~data_server()
    {
        shards.run(here(), let_go());
        shards.stop();
    }
    task<void> let_go()
    {
        peers.clear();
        for (unsigned i = 0; i < 2; ++i) {
            const auto drop = [this, i] {
                accepted[i].clear();
                listeners[i].reset();
            };
            co_await shards.at(i).run(drop);
        }
    }
    shard& here() { return shards.at(2); }

    /// Beside tend() of all homes.
    void run(std::function<task<void>()> body)
    {
        const auto all = [&]() -> task<void> {
            scope tending(here().reactor());
            for (unsigned i = 0; i < 2; ++i)
                tending.spawn([this, i]() -> task<void> {
                    const auto tend = [this, i]() -> task<void> { return state->table(i).tend(); };
                    co_await shards.at(i).run(tend);
                });
            tending.spawn([this]() -> task<void> {
                const auto tend = [this]() -> task<void> { return state->clients().tend(); };
                co_await shards.at(0).run(tend);
            });
            task<void> running = body();
            co_await running;
            tending.request_stop();
            co_await tending.join();
        };
        shards.run(here(), all());
    }

    struct file {
        std::string name;
        storage::handle handle;
        files::exported_file known;
    };
    task<file> make(std::string name, std::string_view text)
    {
        storage::set_attributes set;
        set.mode = 0666;
        const storage::handle root = backend->root();
        auto creating = backend->create(me, root, name, storage::create_mode::guarded, set, 0);
        auto made = co_await creating;
        BOOST_TEST_REQUIRE(made.has_value());
        file f{name, made->made.handle, {files::file_key(1, made->made.handle), 1}};
        const bool done = co_await put(f, 0, text);
        BOOST_TEST_REQUIRE(done);
        co_return f;
    }
    task<unsigned> home_of(const file& f)
    {
        const auto home = [&](files::state_table& t) {
            return result<unsigned>(t.commons().home_of(f.known.key));
        };
        auto asking = state->at_home_of(f.known.key, home);
        const auto of = co_await asking;
        co_return of.value();
    }
    /// A file of each home.
    task<std::array<file, 2>> make_at_each(std::string_view text)
    {
        std::array<std::optional<file>, 2> at;
        for (int i = 0; !at[0] || !at[1]; ++i) {
            auto f = co_await make("f" + std::to_string(i), text);
            const unsigned home = co_await home_of(f);
            at[home] = std::move(f);
        }
        co_return std::array<file, 2>{std::move(*at[0]), std::move(*at[1])};
    }
    task<bool> put(const file& f, std::uint64_t at, std::string_view text)
    {
        const std::span<const std::byte> piece = std::as_bytes(std::span(text));
        auto writing = backend->write(me, f.handle, at, std::span(&piece, 1), storage::stability::unstable);
        const auto done = co_await writing;
        co_return done.has_value();
    }
    task<std::string> text(const file& f, std::uint64_t at, std::size_t length)
    {
        std::string out(length, '?');
        auto reading = backend->read(me, f.handle, at, std::as_writable_bytes(std::span(out.data(), length)));
        const auto done = co_await reading;
        BOOST_TEST_REQUIRE(done.has_value());
        out.resize(done->count);
        co_return out;
    }
    task<int> cut(const file& f, std::uint64_t size)
    {
        storage::set_attributes set;
        set.size = size;
        auto cutting = backend->setattr(me, f.handle, set, std::nullopt);
        const auto done = co_await cutting;
        co_return done ? 0 : done.error().errno_value();
    }

    struct client {
        std::shared_ptr<layout_client> of;
        std::array<peer*, 2> at{}; // its connections to both shards
    };
    task<client> connect(std::string_view name)
    {
        const auto added = co_await state->add_client(name);
        BOOST_TEST_REQUIRE(added.has_value());
        const auto complete = co_await state->reclaim_complete(added->client);
        BOOST_TEST_REQUIRE(complete.has_value());
        const auto callable = co_await state->set_callable(added->client);
        BOOST_TEST_REQUIRE(callable.has_value());
        client c;
        c.of = std::make_shared<layout_client>(added->client, std::move(*server->make_domain()));
        for (unsigned i = 0; i < 2; ++i) {
            peers.push_back(std::make_unique<peer>());
            c.at[i] = peers.back().get();
            co_await connect(c, i);
        }
        co_return c;
    }
    task<void> connect(client& c, unsigned i)
    {
        scope s(here().reactor());
        const auto answer = [this, i, &c]() -> task<void> {
            auto request = co_await listeners[i]->next();
            if (!request)
                co_return;
            auto q = co_await (*request)->make_queue_pair(*c.of->domain, {});
            BOOST_REQUIRE(q);
            accepted[i].push_back(std::make_unique<peer>());
            accepted[i].back()->use(std::move(*q));
            (void)co_await (*request)->accept({});
        };
        s.spawn([this, i, &answer]() -> task<void> { co_await shards.at(i).run(answer); });
        std::vector<std::byte> reply;
        auto q = co_await client_context->connect("data" + std::to_string(i), *client_domain, {}, reply);
        s.request_stop();
        co_await s.join();
        if (q)
            c.at[i]->use(std::move(*q));
    }
    task<files::stateid> open(const client& c, const file& f)
    {
        files::open_request r;
        r.client = c.of->id;
        r.owner = std::as_bytes(std::span(f.name));
        r.file = f.known;
        r.access = files::share::both;
        r.want = files::delegation_want::none;
        nfs::state_home::opening opening;
        opening.backend = &*backend;
        opening.file = f.handle;
        opening.space = 1;
        opening.here = &state->operations().on(shards.at(0));
        const auto ask = [this, &r, &opening] { return state->open(r, opening); };
        auto asking = shards.at(0).run(ask);
        const auto made = co_await asking;
        BOOST_TEST_REQUIRE(made.has_value());
        co_return made->id;
    }
    /// From the shard `from`.
    task<result<layouts::granted>> get(const client& c, const file& f, const files::stateid& by,
                                       lock_type type, std::uint64_t offset, std::uint64_t length,
                                       unsigned from = 0)
    {
        layouts::request r;
        r.client = c.of;
        r.file = f.known;
        r.by = by;
        r.type = type;
        r.offset = offset;
        r.length = length;
        r.backend = &*backend;
        r.who = &me;
        r.handle = &f.handle;
        const auto ask = [this, &r] { return kind.get(*state, r); };
        auto asking = shards.at(from).run(ask);
        co_return co_await asking;
    }
    task<result<std::optional<files::stateid>>> give_back(const client& c, const file& f,
                                                          const files::stateid& id,
                                                          const files::byte_range& bytes = all_bytes)
    {
        const auto ask = [&](files::state_table& table) {
            return kind.give_back(table, c.of->id, id, f.known, bytes, std::nullopt);
        };
        auto asking = state->at_home_of(f.known.key, ask);
        co_return co_await asking;
    }
    task<void> revoke(const file& f, const files::stateid& id)
    {
        const auto ask = [id](files::state_table& table) { return table.revoke(id); };
        auto asking = state->at_home_of(f.known.key, ask);
        const auto done = co_await asking;
        BOOST_TEST(done.has_value());
    }
    task<std::size_t> held(const file& f)
    {
        const auto ask = [&](files::state_table& table) {
            return result<std::size_t>(table.held(kind, f.known.key).size());
        };
        auto asking = state->at_home_of(f.known.key, ask);
        const auto n = co_await asking;
        co_return n.value();
    }

    virtual_clock clock;
    memory_budget memory{std::size_t(8) << 20, 3};
    simulated_shards shards;
    blocking_pool pool{1};
    silent_handler handler;
    files::no_recovery_store store;
    noted_recalls recalls;
    layouts kind;
    std::optional<nfs::state_home> state;
    std::optional<slow_maps> backend;
    storage::request me;
    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<loop::device> server, client_device;
    std::array<std::unique_ptr<loop::context>, 2> contexts;
    std::array<std::unique_ptr<verbs::listener>, 2> listeners;
    std::unique_ptr<loop::context> client_context;
    std::unique_ptr<verbs::protection_domain> client_domain;
    std::array<std::vector<std::unique_ptr<peer>>, 2> accepted;
    std::vector<std::unique_ptr<peer>> peers;
};

} // namespace verbena::test::layouts_alone
