// SPDX-License-Identifier: Apache-2.0
// Layouts of a server on three shards: a client writes by RDMA while others want the file, in orders of many seeds.
#include "nfs4_layout_clients.hpp"
#include "nfs4_spread_server.hpp"

#include <set>

BOOST_AUTO_TEST_SUITE(nfs4_layout_shards_test)

using namespace verbena;
using namespace verbena::test;
using mode = layoutiomode4;

namespace {

constexpr std::uint64_t layout_orders = 12;

struct spread_layouts : spread_server {
    explicit spread_layouts(std::uint64_t seed = 1) : spread_server(seed, true)
    {
        loop::fabric_options f;
        f.seed = seed;
        fabric = loop::make_fabric(shards.at(0).reactor(), f);
        loop::options o;
        o.name = "server";
        device = fabric->make_device(o);
        o.name = "client";
        client_device = fabric->make_device(o);
        std::array<verbena::shard*, homes> all{};
        for (unsigned i = 0; i < homes; ++i)
            all[i] = &shards.at(i);
        service.emplace(*commons, all, nfs::v4::pnfs::service::options());
        data = service->add_way("loop", *device, [](std::string_view) { return std::string("data"); });
        commons->pnfs = &*service;
        for (unsigned i = 0; i < homes; ++i) {
            contexts[i] = device->make_context(shards.at(i).reactor());
            listeners[i] = std::move(*contexts[i]->listen("data" + std::to_string(i)));
            all[i]->tasks().spawn([this, i]() -> task<void> { return listen(i); });
        }
        client_context = client_device->make_context(shards.at(0).reactor());
        client_domain = std::move(*client_context->make_domain());
    }
    ~spread_layouts()
    {
        writers.clear();
        shards.stop();
    }
    nfs::v4::pnfs::data_server* data = nullptr;

    task<void> listen(unsigned i)
    {
        const task_context& mine = co_await current_context();
        scope connections(*mine.shard, &mine);
        for (;;) {
            auto next = co_await listeners[i]->next();
            if (!next)
                break;
            connections.spawn(&nfs::v4::pnfs::data_server::serve, data, std::move(*next));
        }
        connections.request_stop();
        co_await connections.join();
        listeners[i].reset();
    }
    /// A client's connection to a shard, by which it writes for as long as it can.
    struct writer {
        rdma_peer peer;
        std::size_t written = 0;
        bool stops = false, has_stopped = false;
    };
    writer& write_by(unsigned at, const spread_client& c, const layout_fixture::layout& of)
    {
        writer& w = *writers.emplace_back(std::make_unique<writer>());
        const auto connecting = [&]() -> task<void> {
            rdma_layout_connect says;
            says.client = c.id;
            says.session = c.session;
            says.device = of.extents.at(0).device_id;
            const auto bytes = encode(says);
            verbs::connect_options o;
            o.private_data = bytes;
            std::vector<std::byte> reply;
            const std::string where = "data" + std::to_string(at);
            auto q = co_await client_context->connect(where, *client_domain, o, reply);
            BOOST_REQUIRE(q);
            w.peer.use(std::move(*q));
        };
        shards.run(shards.at(0), connecting());
        const verbs::remote_segment memory = of.memory();
        shards.at(0).tasks().spawn([&w, memory]() -> task<void> {
            while (!w.stops) {
                const bool done = co_await w.peer.write(memory, 0, "by the holder");
                if (!done)
                    break;
                ++w.written;
                (void)co_await sleep_for(100us);
            }
            w.has_stopped = true;
        });
        return w;
    }
    static layout_fixture::layout get(spread_client& c, std::size_t at, const spread_client::opened& file,
                                      const LAYOUTGET4args& args)
    {
        answer4 out = c.call(at, PUTFH4args{file.fh()}, args);
        return layout_fixture::layout_of(out);
    }

    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<loop::device> device, client_device;
    std::array<std::unique_ptr<loop::context>, homes> contexts;
    std::array<std::unique_ptr<verbs::listener>, homes> listeners;
    std::unique_ptr<loop::context> client_context;
    std::unique_ptr<verbs::protection_domain> client_domain;
    std::vector<std::unique_ptr<writer>> writers;
};

std::string text_of(spread_client& c, const spread_client::opened& file, std::uint32_t length)
{
    answer4 out = c.call(1, PUTFH4args{file.fh()}, READ4args{file.id, 0, length});
    out.good<PUTFH4res>();
    const auto data = out.good<READ4res>().data.inline_bytes;
    return {reinterpret_cast<const char*>(data.data()), data.size()};
}

} // namespace

BOOST_AUTO_TEST_CASE(rule_9_nothing_is_written_once_the_layout_is_back)
{
    for (std::uint64_t seed = 1; seed <= layout_orders; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed)
        {
            spread_layouts s(seed);
            const auto at = static_cast<unsigned>(seed % homes);
            spread_client holder(s, "holder", at);
            spread_client other(s, "other", (at + 1) % homes);
            const std::uint32_t access = share4::access_both | share4::want_no_delegation;
            const auto file = holder.open(at, "f" + std::to_string(seed), access);
            const auto made =
                s.get(holder, (at + 2) % homes, file, layout_fixture::asking(file.id, mode::rw));
            BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
            auto& w = s.write_by(at, holder, made);
            s.pass(5ms);
            BOOST_TEST(w.written > 10u);
            const auto theirs = other.open((at + 1) % homes, "f" + std::to_string(seed), access);
            // The holder gives it back while its bytes are on their way.
            attributes values;
            values.size = 0;
            values.present.set(attribute::size);
            const encoded set(values);
            std::vector<spread_server::call> calls;
            calls.push_back(other.prepare(at, 1, PUTFH4args{theirs.fh()}, SETATTR4args{theirs.id, set.raw}));
            holder.channel->on_call = [&] {
                s.shards.at(at).tasks().spawn([&]() -> task<void> {
                    auto back = holder.prepare(at, 1, PUTFH4args{file.fh()},
                                               layout_fixture::returning(holder.channel->calls.back().id));
                    co_await s.dispatch(&back);
                    BOOST_TEST(back.answer().status() == nfsstat4::ok);
                });
            };
            s.serve(calls);
            holder.channel->on_call = nullptr;
            BOOST_TEST(calls[0].answer().status() == nfsstat4::ok);
            // Who takes the file's memory now finds nobody in it.
            const auto fresh = other.open(at, "new", access);
            static constexpr std::string_view text = "of the new file";
            BOOST_TEST(
                other
                    .call(at, PUTFH4args{fresh.fh()},
                          WRITE4args{fresh.id, 0, stable_how4::unstable, std::as_bytes(std::span(text))})
                    .status() == nfsstat4::ok);
            s.pass(5ms);
            BOOST_TEST(text_of(other, fresh, 15) == text);
            BOOST_TEST(w.has_stopped);
            BOOST_TEST(s.service->layouts().counts().segments == 0);
        }
    }
}

BOOST_AUTO_TEST_CASE(rule_9_nothing_is_written_once_the_layout_is_revoked)
{
    for (std::uint64_t seed = 1; seed <= layout_orders; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed)
        {
            spread_layouts s(seed);
            const auto at = static_cast<unsigned>(seed % homes);
            spread_client holder(s, "holder", at);
            const std::uint32_t access = share4::access_both | share4::want_no_delegation;
            const auto file = holder.open(at, "f", access);
            const auto made = s.get(holder, at, file, layout_fixture::asking(file.id, mode::rw));
            BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
            auto& w = s.write_by((at + 1) % homes, holder, made);
            auto& quiet = s.write_by((at + 2) % homes, holder, made);
            quiet.stops = true;
            s.pass(5ms);
            const unsigned home = s.home_of(made.id);
            const auto revoking = [&]() -> task<void> {
                auto revoked = s.commons->state.table(home).revoke(to_state(made.id));
                const auto done = co_await revoked;
                BOOST_TEST(done.has_value());
            };
            s.shards.run(s.shards.at(home), revoking());
            s.pass(5ms);
            BOOST_TEST(w.has_stopped);
            const std::size_t written = w.written;
            static constexpr std::string_view text = "by a call    ";
            BOOST_TEST(
                holder
                    .call(at, PUTFH4args{file.fh()},
                          WRITE4args{file.id, 0, stable_how4::unstable, std::as_bytes(std::span(text))})
                    .status() == nfsstat4::ok);
            s.pass(5ms);
            BOOST_TEST(text_of(holder, file, 13) == text);
            BOOST_TEST(w.written == written);
            // By whichever connection.
            bool late = true;
            const auto writing = [&]() -> task<void> {
                late = co_await quiet.peer.write(made.memory(), 0, "by the holder");
            };
            s.shards.run(s.shards.at(0), writing());
            BOOST_TEST(!late);
            answer4 out = holder.call(at, PUTFH4args{file.fh()}, layout_fixture::returning(made.id));
            BOOST_TEST(out.status() == nfsstat4::deleg_revoked);
        }
    }
}

BOOST_AUTO_TEST_CASE(all_layouts_are_returned_on_all_homes)
{
    spread_layouts s;
    spread_client holder(s, "holder", 0);
    const std::uint32_t access = share4::access_both | share4::want_no_delegation;
    std::set<unsigned> places;
    for (int i = 0; i < 20; ++i) {
        const auto file = holder.open(0, "f" + std::to_string(i), access);
        const auto made = s.get(holder, i % homes, file, layout_fixture::asking(file.id, mode::rw));
        BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
        places.insert(s.home_of(made.id));
    }
    BOOST_TEST(places.size() == homes);
    BOOST_TEST(s.service->layouts().counts().segments == 20);
    answer4 out = holder.call(1, layout_fixture::returning(layoutreturn_type4::all));
    BOOST_TEST(out.status() == nfsstat4::ok);
    s.pass(1ms);
    BOOST_TEST(s.service->layouts().counts().segments == 0);
}

BOOST_AUTO_TEST_SUITE_END()
