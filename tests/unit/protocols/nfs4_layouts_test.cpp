// SPDX-License-Identifier: Apache-2.0
// Layouts of files of memfs: what clients read and write by RDMA on two shards of a server, and what they can't any
// more once it is taken back.
#include "files_store.hpp"
#include "nfs4_rdma_peer.hpp"

#include <verbena/core/random.hpp>
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
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(nfs4_layouts_test)

using namespace verbena;
using namespace verbena::test;
using namespace std::chrono_literals;
using files::lock_type;
using nfs::v4::pnfs::layout_client;
using peer = rdma_peer;
using nfs::v4::pnfs::layouts;

namespace {

constexpr std::uint64_t block = 64 << 10;
constexpr files::byte_range all_bytes{0, files::byte_range::to_the_end};

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
    std::vector<files::client_id> clients;
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
    explicit slow_domain(std::unique_ptr<verbs::protection_domain> below) : below_(std::move(below)) {}
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
        (void)co_await sleep_for(1s);
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
};

/// A server on two shards, and its clients on a third.
struct data_server {
    explicit data_server(std::uint64_t seed = 1, const loop::conditions& conditions = {})
        : shards(clock, seed)
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
    layouts kind{2, recalls};
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

} // namespace

BOOST_AUTO_TEST_CASE(a_client_reads_and_writes_by_rdma_on_each_shard)
{
    data_server s;
    s.run([&]() -> task<void> {
        const auto f = co_await s.make("f", std::string(3 * block, 'a'));
        auto c = co_await s.connect("c");
        const auto opened = co_await s.open(c, f);
        const auto got = co_await s.get(c, f, opened, lock_type::write, 100, 2 * block, 1);
        BOOST_TEST_REQUIRE(got.has_value());
        BOOST_TEST_REQUIRE(got->extents.size() == 1u); // whole blocks
        BOOST_TEST(got->extents[0].offset == 0u);
        BOOST_TEST(got->extents[0].length == 3 * block);
        BOOST_TEST(got->attrs.size == 3 * block);
        const verbs::remote_segment there = got->extents[0].memory;
        for (unsigned i = 0; i < 2; ++i) {
            const bool done = co_await c.at[i]->write(there, 10 + 20 * i, "by rdma");
            BOOST_TEST(done);
            const auto seen = co_await s.text(f, 9 + 20 * i, 9);
            BOOST_TEST(seen == "aby rdmaa");
        }
        (void)co_await s.put(f, block, "by nfs");
        const auto read = co_await c.at[1]->read(there, block, 6);
        BOOST_TEST((read == std::optional<std::string>("by nfs")));

        // Another client's connection is no way to it.
        auto d = co_await s.connect("d");
        const bool foreign = co_await d.at[0]->write(there, 0, "foreign");
        BOOST_TEST(!foreign);

        const int before = co_await s.cut(f, block);
        BOOST_TEST(before == EAGAIN);
        const auto back = co_await s.give_back(c, f, got->id);
        BOOST_TEST_REQUIRE(back.has_value());
        BOOST_TEST(!back->has_value());
        (void)co_await sleep_for(1ms);
        BOOST_TEST(s.server->grants() == 0u);
        BOOST_TEST(s.kind.counts().segments == 0);
        const bool late = co_await c.at[0]->write(there, 0, "late");
        BOOST_TEST(!late);
        const int then = co_await s.cut(f, block);
        BOOST_TEST(then == 0);
    });
}

BOOST_AUTO_TEST_CASE(a_layout_to_read_has_holes_and_ends_with_the_file)
{
    data_server s;
    s.run([&]() -> task<void> {
        const auto f = co_await s.make("f", "begin");
        (void)co_await s.put(f, 2 * block, "x");
        (void)co_await s.cut(f, 4 * block + 1);
        auto c = co_await s.connect("c");
        const auto opened = co_await s.open(c, f);
        const auto got = co_await s.get(c, f, opened, lock_type::read, 0, files::byte_range::to_the_end);
        BOOST_TEST_REQUIRE(got.has_value());
        BOOST_TEST_REQUIRE(got->extents.size() == 4u);
        std::uint64_t at = 0;
        for (const layouts::extent& e : got->extents) {
            BOOST_TEST(e.offset == at);
            at += e.length;
        }
        BOOST_TEST(at == 5 * block);
        BOOST_TEST((got->extents[1].is_hole && got->extents[3].is_hole));
        const bool done = co_await c.at[0]->write(got->extents[0].memory, 0, "no");
        BOOST_TEST(!done); // to read alone
    });
}

BOOST_AUTO_TEST_CASE(what_cannot_be_mapped_is_not_held)
{
    data_server s;
    s.run([&]() -> task<void> {
        const auto f = co_await s.make("f", "text");
        auto c = co_await s.connect("c");
        const auto opened = co_await s.open(c, f);
        const auto full = co_await s.make("full", "");
        const std::string chunk(1 << 20, 'x');
        for (std::uint64_t i = 0; i < 63; ++i)
            (void)co_await s.put(full, i << 20, chunk);
        const auto none = co_await s.get(c, f, opened, lock_type::write, 0, 2 << 20);
        BOOST_TEST((!none && none.error().errno_value() == ENOSPC));
        const auto empty = co_await s.get(c, f, opened, lock_type::read, block, 1);
        BOOST_TEST((!empty && empty.error().errno_value() == ENODATA));
        (void)co_await sleep_for(1ms);
        const auto held = co_await s.held(f);
        BOOST_TEST(held == 0u);
        BOOST_TEST(s.kind.counts().segments == 0);
        // What the client had before stays.
        const auto some = co_await s.get(c, f, opened, lock_type::write, 0, block);
        BOOST_TEST_REQUIRE(some.has_value());
        const auto more = co_await s.get(c, f, some->id, lock_type::write, 0, 2 << 20);
        BOOST_TEST(!more.has_value());
        const bool done = co_await c.at[0]->write(some->extents[0].memory, 0, "TEXT");
        BOOST_TEST(done);
        const auto held_still = co_await s.held(f);
        BOOST_TEST(held_still == 1u);
    });
}

BOOST_AUTO_TEST_CASE(a_part_is_given_back_by_what_was_got_at_once)
{
    data_server s;
    s.run([&]() -> task<void> {
        const auto f = co_await s.make("f", std::string(12 * block, 'a'));
        auto c = co_await s.connect("c");
        const auto opened = co_await s.open(c, f);
        const auto one = co_await s.get(c, f, opened, lock_type::write, 0, 4 * block);
        BOOST_TEST_REQUIRE(one.has_value());
        const auto two = co_await s.get(c, f, one->id, lock_type::write, 4 * block, 4 * block, 1);
        BOOST_TEST_REQUIRE(two.has_value());
        BOOST_TEST(two->id.seqid == one->id.seqid + 1);
        // Within the first, which has one key.
        const auto within = co_await s.give_back(c, f, two->id, {block, 2 * block - 1});
        BOOST_TEST_REQUIRE((within && *within));
        (void)co_await sleep_for(1ms);
        BOOST_TEST(s.server->grants() == 2u);
        // The second goes as a whole, and what goes beyond it of the first stays.
        const auto beyond = co_await s.give_back(c, f, **within, {3 * block, 8 * block - 1});
        BOOST_TEST_REQUIRE((beyond && *beyond));
        BOOST_TEST((*beyond)->seqid == (*within)->seqid + 1);
        (void)co_await sleep_for(1ms);
        BOOST_TEST(s.server->grants() == 1u);
        const bool first = co_await c.at[0]->write(one->extents[0].memory, 3 * block, "first");
        BOOST_TEST(first);
        const bool second = co_await c.at[1]->write(two->extents[0].memory, 0, "second");
        BOOST_TEST(!second);
        const auto seen = co_await s.text(f, 3 * block, block + 6);
        BOOST_TEST((seen.starts_with("first") && seen.ends_with("aaaaaa")));
        // With the rest of it the first goes.
        const auto three = co_await s.get(c, f, **beyond, lock_type::write, 8 * block, 4 * block);
        BOOST_TEST_REQUIRE(three.has_value());
        const auto rest = co_await s.give_back(c, f, three->id, {0, 4 * block - 1});
        BOOST_TEST_REQUIRE((rest && *rest));
        (void)co_await sleep_for(1ms);
        BOOST_TEST(s.server->grants() == 1u);
    });
}

BOOST_AUTO_TEST_CASE(a_fence_waits_for_memory_that_is_being_granted)
{
    for (const bool maps_late : {true, false}) {
        data_server s;
        s.run([&]() -> task<void> {
            const auto f = co_await s.make("f", std::string(2 * block, 'a'));
            auto c = co_await s.connect("c");
            const auto opened = co_await s.open(c, f);
            const auto had = co_await s.get(c, f, opened, lock_type::write, 0, block);
            BOOST_TEST_REQUIRE(had.has_value());
            (maps_late ? s.backend->before : s.backend->after) = 1s;
            scope getting(s.here().reactor());
            result<layouts::granted> got = error(std::errc::operation_in_progress);
            getting.spawn([&]() -> task<void> {
                got = co_await s.get(c, f, had->id, lock_type::write, block, block, 1);
            });
            (void)co_await sleep_for(100ms);
            const auto back = co_await s.give_back(c, f, had->id);
            BOOST_TEST((back && !*back));
            (void)co_await sleep_for(500ms);
            // Whoever waits for the file waits for this, too.
            BOOST_TEST(s.kind.counts().segments == 2);
            co_await getting.join();
            (void)co_await sleep_for(5ms);
            BOOST_TEST(s.kind.counts().segments == 0);
            BOOST_TEST(s.server->grants() == 0u);
            const int cut = co_await s.cut(f, 0);
            BOOST_TEST(cut == 0);
        });
    }
}

BOOST_AUTO_TEST_CASE(a_fence_is_over_when_the_device_has_revoked)
{
    data_server s;
    s.run([&]() -> task<void> {
        const auto f = co_await s.make("f", std::string(block, 'a'));
        auto c = co_await s.connect("c");
        c.of = std::make_shared<layout_client>(
            c.of->id, std::make_unique<slow_domain>(std::move(*s.server->make_domain())));
        const auto opened = co_await s.open(c, f);
        const auto got = co_await s.get(c, f, opened, lock_type::write, 0, block);
        BOOST_TEST_REQUIRE(got.has_value());
        (void)co_await s.give_back(c, f, got->id);
        (void)co_await sleep_for(900ms);
        BOOST_TEST(s.kind.counts().segments == 1);
        const auto again = co_await s.get(c, f, opened, lock_type::write, 0, block);
        BOOST_TEST((!again && again.error() == files::errc::busy));
        (void)co_await sleep_for(200ms);
        BOOST_TEST(s.kind.counts().segments == 0);
        BOOST_TEST(s.kind.counts().revoked == 1u);
    });
}

// Whatever is given back in whichever order, a key is gone with the last of its bytes, and works before.
BOOST_AUTO_TEST_CASE(keys_go_with_the_last_of_their_bytes)
{
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed)
        {
            std::mt19937_64 random(seed);
            data_server s;
            s.run([&]() -> task<void> {
                const auto f = co_await s.make("f", std::string(16 * block, 'a'));
                auto c = co_await s.connect("c");
                const auto opened = co_await s.open(c, f);
                struct one {
                    std::uint64_t begin, end;
                    verbs::remote_segment memory;
                };
                std::vector<one> all;
                files::stateid id = opened;
                const auto keep = co_await s.get(c, f, id, lock_type::read, 15 * block, block);
                BOOST_TEST_REQUIRE(keep.has_value());
                id = keep->id;
                for (int i = 0; i < 5; ++i) {
                    const std::uint64_t begin = random() % 12;
                    const std::uint64_t count = 1 + random() % 4;
                    const auto got = co_await s.get(c, f, id, lock_type::write, begin * block, count * block);
                    BOOST_TEST_REQUIRE(got.has_value());
                    BOOST_TEST(got->id.seqid > id.seqid - (id == opened));
                    id = got->id;
                    all.push_back({begin, begin + count, got->extents[0].memory});
                }
                for (int i = 0; i < 6; ++i) {
                    const std::uint64_t begin = i == 5 ? 0 : random() % 12;
                    const std::uint64_t end =
                        i == 5 ? 15 : std::min<std::uint64_t>(begin + 1 + random() % 6, 15);
                    const auto back = co_await s.give_back(c, f, id, {begin * block, end * block - 1});
                    BOOST_TEST_REQUIRE(back.has_value(), (back ? std::string() : back.error().message()));
                    BOOST_TEST_REQUIRE(back->has_value());
                    id = **back;
                    (void)co_await sleep_for(5ms);
                    // What lies within it as a whole may be gone; what goes beyond it is there.
                    for (const one& each : all) {
                        if (each.begin >= begin && each.end <= end)
                            continue;
                        const bool was_gone = each.memory.key == 0;
                        if (was_gone)
                            continue;
                        const auto read = co_await c.at[0]->read(each.memory, 0, 1);
                        BOOST_TEST(read.has_value());
                    }
                    std::erase_if(all,
                                  [&](const one& each) { return each.begin >= begin && each.end <= end; });
                }
                // All that was to write is back.
                BOOST_TEST(s.server->grants() == 1u);
                BOOST_TEST(s.kind.counts().segments == 1);
                BOOST_TEST(c.of->grants.load() == 1u);
            });
        }
    }
}

BOOST_AUTO_TEST_CASE(a_client_has_no_more_than_its_share)
{
    data_server s;
    s.run([&]() -> task<void> {
        const auto f = co_await s.make("f", std::string(block, 'a'));
        auto c = co_await s.connect("c");
        const auto opened = co_await s.open(c, f);
        const auto hole = co_await s.make("hole", "");
        (void)co_await s.cut(hole, block);
        const auto empty = co_await s.open(c, hole);
        // The same bytes again and again, whatever by.
        const auto take = [&](const data_server::file& of, const files::stateid& by, lock_type type,
                              bool by_open) -> task<void> {
            files::stateid id = by;
            int got = 0;
            for (int i = 0; i < 100; ++i) {
                const auto more = co_await s.get(c, of, by_open ? by : id, type, 0, block);
                if (!more) {
                    BOOST_TEST((more.error() == files::errc::busy));
                    break;
                }
                id = more->id;
                ++got;
            }
            BOOST_TEST(got == 64);
            const auto back = co_await s.give_back(c, of, id);
            BOOST_TEST((back && !*back));
            (void)co_await sleep_for(1ms);
        };
        co_await take(f, opened, lock_type::write, false);
        co_await take(f, opened, lock_type::write, true);
        co_await take(hole, empty, lock_type::read, true);
        BOOST_TEST(s.server->grants() == 0u);
        BOOST_TEST(c.of->grants.load() == 0u);
    });
}

// What a client says as its stateid leads to another home than its file.
BOOST_AUTO_TEST_CASE(a_stateid_of_another_home_is_not_looked_for_there)
{
    data_server s;
    s.run([&]() -> task<void> {
        auto c = co_await s.connect("c");
        std::array<std::optional<data_server::file>, 2> at;
        for (int i = 0; !at[0] || !at[1]; ++i) {
            auto f = co_await s.make("f" + std::to_string(i), std::string(block, 'a'));
            const auto home = [&](files::state_table& t) {
                return result<unsigned>(t.commons().home_of(f.known.key));
            };
            auto asking = s.state->at_home_of(f.known.key, home);
            const auto of = co_await asking;
            at[*of] = std::move(f);
        }
        const auto opened = co_await s.open(c, *at[1]);
        (void)co_await s.open(c, *at[0]);
        files::stateid id;
        for (int i = 0; i < 64; ++i) {
            const auto more = co_await s.get(c, *at[1], opened, lock_type::write, 0, block);
            BOOST_TEST_REQUIRE(more.has_value());
            id = more->id;
        }
        const auto got = co_await s.get(c, *at[0], id, lock_type::write, 0, block);
        BOOST_TEST((!got && got.error() == files::errc::bad_stateid));
        const auto back = co_await s.give_back(c, *at[0], id);
        BOOST_TEST((!back && back.error() == files::errc::bad_stateid));
        BOOST_TEST(s.kind.counts().segments == 64);
        (void)co_await s.give_back(c, *at[1], id);
        (void)co_await sleep_for(1ms);
    });
}

// Its fence has no place yet, as others of the client take their time.
BOOST_AUTO_TEST_CASE(nothing_is_given_by_what_waits_for_its_fence)
{
    data_server s;
    s.run([&]() -> task<void> {
        auto c = co_await s.connect("c");
        c.of = std::make_shared<layout_client>(
            c.of->id, std::make_unique<slow_domain>(std::move(*s.server->make_domain())));
        std::vector<data_server::file> all;
        std::vector<files::stateid> opens, ids;
        for (int i = 0; i < 60; ++i) {
            all.push_back(co_await s.make("f" + std::to_string(i), std::string(block, 'a')));
            opens.push_back(co_await s.open(c, all.back()));
            const auto got = co_await s.get(c, all.back(), opens.back(), lock_type::write, 0, block);
            BOOST_TEST_REQUIRE(got.has_value());
            ids.push_back(got->id);
        }
        scope asking(s.here().reactor());
        s.backend->after = 100ms;
        result<layouts::granted> late = error(files::errc::busy);
        asking.spawn([&]() -> task<void> {
            late = co_await s.get(c, all.back(), ids.back(), lock_type::write, block, block);
        });
        (void)co_await sleep_for(1ms);
        for (std::size_t i = 0; i < all.size(); ++i)
            (void)co_await s.give_back(c, all[i], ids[i]);
        co_await asking.join();
        BOOST_TEST((!late && late.error() == files::errc::recalled));
        (void)co_await sleep_for(10s);
        BOOST_TEST(s.kind.counts().segments == 0);
        BOOST_TEST(s.server->grants() == 0u);
    });
}

// The fence must not wait for what never comes.
BOOST_AUTO_TEST_CASE(a_back_end_that_throws_leaves_nothing_behind)
{
    data_server s;
    s.run([&]() -> task<void> {
        const auto f = co_await s.make("f", std::string(block, 'a'));
        auto c = co_await s.connect("c");
        const auto opened = co_await s.open(c, f);
        s.backend->throws = true;
        const auto got = co_await s.get(c, f, opened, lock_type::write, 0, block, 1);
        BOOST_TEST(!got.has_value());
        s.backend->throws = false;
        (void)co_await sleep_for(1ms);
        const auto held = co_await s.held(f);
        BOOST_TEST(held == 0u);
        BOOST_TEST(s.kind.counts().segments == 0);
        const auto again = co_await s.get(c, f, opened, lock_type::write, 0, block, 1);
        BOOST_TEST(again.has_value());
    });
}

// Peers write all the time, on both shards. From the moment at which the file could be cut on no byte of it changes.
BOOST_AUTO_TEST_CASE(no_byte_is_placed_after_a_layout_is_gone)
{
    const auto fresh = system_random().draw() >> 32;
    std::vector<std::uint64_t> seeds;
    for (std::uint64_t seed = 1; seed <= 20; ++seed)
        seeds.push_back(seed);
    for (int i = 0; i < 10; ++i)
        seeds.push_back(fresh + std::uint64_t(i));
    std::size_t written = 0, refused = 0;
    for (const std::uint64_t seed : seeds) {
        BOOST_TEST_CONTEXT("seed " << seed)
        {
            std::mt19937_64 random(seed);
            loop::conditions conditions;
            if (seed % 2 == 0)
                conditions.latency = 5us;
            if (seed % 3 == 0)
                conditions[loop::fault::late_revocation] = 500'000;
            data_server s(seed, conditions);
            s.run([&]() -> task<void> {
                const auto f = co_await s.make("f", std::string(4 * block, 'a'));
                auto c = co_await s.connect("c");
                const auto opened = co_await s.open(c, f);
                for (int round = 0; round < 3; ++round) {
                    for (unsigned i = 0; i < 2; ++i)
                        if (!c.at[i]->is_up())
                            co_await s.connect(c, i);
                    const auto got = co_await s.get(c, f, opened, lock_type::write, 0, 4 * block, round % 2);
                    BOOST_TEST_REQUIRE(got.has_value());
                    bool goes_on = true;
                    scope writers(s.here().reactor());
                    for (unsigned i = 0; i < 2; ++i)
                        writers.spawn([&, i]() -> task<void> {
                            for (int n = 0; goes_on && c.at[i]->is_up(); ++n) {
                                const std::string text(1 + random() % 5000, char('b' + n % 20));
                                const bool done = co_await c.at[i]->write(got->extents[0].memory,
                                                                          random() % (3 * block), text);
                                (done ? written : refused) += 1;
                                (void)co_await sleep_for(1us);
                            }
                        });
                    (void)co_await sleep_for(std::chrono::microseconds(50 + random() % 100));
                    if (round % 2 == 0)
                        co_await s.revoke(f, got->id);
                    else
                        (void)co_await s.give_back(c, f, got->id);
                    // As who opens the file and denies others would.
                    for (int tries = 0; s.kind.counts().segments != 0 && tries < 1000; ++tries)
                        (void)co_await sleep_for(1us);
                    BOOST_TEST(s.kind.counts().segments == 0);
                    const auto then = co_await s.text(f, 0, 4 * block);
                    (void)co_await sleep_for(10ms);
                    const auto later = co_await s.text(f, 0, 4 * block);
                    BOOST_TEST((then == later));
                    goes_on = false;
                    co_await writers.join();
                    BOOST_TEST(s.server->grants() == 0u);
                    if (round % 2 == 0) {
                        const auto free = [&](files::state_table& table) {
                            return table.free_stateid(c.of->id, got->id);
                        };
                        auto freeing = s.state->at_home_of(f.known.key, free);
                        (void)co_await freeing;
                        (void)co_await sleep_for(s.state->options().rest_after_recall + 1s);
                    }
                }
            });
        }
    }
    BOOST_TEST(written > 1000u);
    BOOST_TEST(refused > 20u);
}

BOOST_AUTO_TEST_SUITE_END()
