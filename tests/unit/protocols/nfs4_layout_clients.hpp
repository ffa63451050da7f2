// SPDX-License-Identifier: Apache-2.0
// A server that gives RDMA layouts of memfs over the loop transport, and clients that ask for them by COMPOUNDs made by hand.
#pragma once

#include "nfs4_called_client.hpp"
#include "nfs4_rdma_peer.hpp"

#include <verbena/protocols/nfs/server/v4/pnfs/service.hpp>
#include <verbena/protocols/nfs/wire/v4/rdma_layout.hpp>
#include <verbena/protocols/nfs/wire/v4/rdma_layout_connect.hpp>
#include <verbena/transports/loop.hpp>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace verbena::nfs::v4 {
inline std::ostream& operator<<(std::ostream& out, pnfs_rdma_extent_state4 state)
{
    return out << unsigned(state);
}
inline std::ostream& operator<<(std::ostream& out, layoutiomode4 mode) { return out << unsigned(mode); }
} // namespace verbena::nfs::v4

namespace verbena::test {

struct layout_fixture : called_fixture {
    static constexpr std::uint64_t block = 64 << 10;
    static constexpr std::uint64_t all = UINT64_MAX;
    using extent_state = pnfs_rdma_extent_state4;

    explicit layout_fixture(loop::options o = {})
    {
        options[0].pnfs = true;
        options[0].local_writers = false;
        fabric = loop::make_fabric(*shard, {});
        o.name = "server";
        device = fabric->make_device(o);
        loop::options plain;
        plain.name = "client";
        client_device = fabric->make_device(plain);
        context = device->make_context(*shard);
        listener = std::move(*context->listen("data"));
        client_context = client_device->make_context(*shard);
        client_domain = std::move(*client_context->make_domain());
        first_way = channel;
        second_way = std::make_shared<called_client>(pool);
    }
    ~layout_fixture()
    {
        peers.clear();
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
        listener.reset();
        program.reset();
        commons.reset();
        service.reset();
    }
    void start_layouts()
    {
        start();
        const std::array<verbena::shard*, 1> where = {&home};
        service.emplace(*commons, where, layout_options);
        data = service->add_way("loop", *device, [this](std::string_view peer) { return data_place(peer); });
        commons->pnfs = &*service;
        tend();
        tasks.spawn([this]() -> task<void> {
            const task_context& mine = co_await current_context();
            scope connections(*mine.shard, &mine);
            for (;;) {
                auto next = co_await listener->next();
                if (!next)
                    break;
                connections.spawn(&nfs::v4::pnfs::data_server::serve, data, std::move(*next));
            }
            connections.request_stop();
            co_await connections.join();
        });
    }
    void begin()
    {
        start_layouts();
        connect(first);
        way = second_way;
        connect(second);
    }
    /// Has these bytes, and is open.
    client4::opened make(client4& c, std::string_view name, std::string_view text)
    {
        OPEN4args args = c.creating(name);
        args.share_access |= share4::want_no_delegation;
        const auto file = c.open(args);
        BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
        if (!text.empty())
            BOOST_TEST_REQUIRE(c.write(file, text) == nfsstat4::ok);
        return file;
    }
    client4::opened open(client4& c, std::string_view name, std::uint32_t access = share4::access_both)
    {
        const auto file = c.open(c.opening(name, access | share4::want_no_delegation));
        BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
        return file;
    }
    static LAYOUTGET4args asking(const stateid4& by, layoutiomode4 mode, std::uint64_t offset = 0,
                                 std::uint64_t length = all, std::uint64_t minimum = 1)
    {
        LAYOUTGET4args args;
        args.layout_type = layouttype4::rdma;
        args.iomode = mode;
        args.offset = offset;
        args.length = length;
        args.minlength = minimum;
        args.stateid = by;
        args.maxcount = 65536;
        return args;
    }
    struct layout {
        nfsstat4 status = nfsstat4::ok;
        stateid4 id;
        bool return_on_close = false;
        std::uint64_t offset = 0, length = 0;
        layoutiomode4 iomode{};
        std::vector<pnfs_rdma_extent4> extents;
        verbs::remote_segment memory(std::size_t of = 0) const
        {
            const pnfs_rdma_extent4& e = extents.at(of);
            return {e.handle, static_cast<std::uint32_t>(e.length), e.storage_offset};
        }
    };
    static layout layout_of(answer4& out)
    {
        out.good<PUTFH4res>();
        const auto res = out.take<LAYOUTGET4res>();
        layout made;
        made.status = res.status;
        if (res.status != nfsstat4::ok)
            return made;
        made.id = res.stateid;
        made.return_on_close = res.return_on_close;
        BOOST_TEST_REQUIRE(res.layout.size() == 1u);
        const layout4 one = *res.layout.begin();
        made.offset = one.offset;
        made.length = one.length;
        made.iomode = one.iomode;
        BOOST_TEST((one.type == layouttype4::rdma));
        pnfs_rdma_layout4 body;
        xdr::decoder in(one.body);
        xdr::codec<pnfs_rdma_layout4>::decode(in, body);
        BOOST_TEST_REQUIRE((in.ok() && in.rest().empty()));
        for (const pnfs_rdma_extent4 e : body.extents)
            made.extents.push_back(e);
        return made;
    }
    static layout get(client4& c, const client4::opened& file, const LAYOUTGET4args& args)
    {
        answer4 out = c.call(PUTFH4args{client4::handle_of(file)}, args);
        return layout_of(out);
    }
    static layout get(client4& c, const client4::opened& file, layoutiomode4 mode)
    {
        const layout made = get(c, file, asking(file.id, mode));
        BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
        return made;
    }
    static LAYOUTRETURN4args returning(const stateid4& id, layoutiomode4 mode = layoutiomode4::any,
                                       std::uint64_t offset = 0, std::uint64_t length = all)
    {
        LAYOUTRETURN4args args;
        args.layout_type = layouttype4::rdma;
        args.iomode = mode;
        args.layoutreturn.returntype = layoutreturn_type4::file;
        args.layoutreturn.offset = offset;
        args.layoutreturn.length = length;
        args.layoutreturn.stateid = id;
        return args;
    }
    static LAYOUTRETURN4args returning(layoutreturn_type4 what, layoutiomode4 mode = layoutiomode4::any)
    {
        LAYOUTRETURN4args args;
        args.layout_type = layouttype4::rdma;
        args.iomode = mode;
        args.layoutreturn.returntype = what;
        return args;
    }
    static LAYOUTRETURN4res give_back(client4& c, const client4::opened& file, const LAYOUTRETURN4args& args)
    {
        answer4 out = c.call(PUTFH4args{client4::handle_of(file)}, args);
        out.good<PUTFH4res>();
        return out.take<LAYOUTRETURN4res>();
    }
    static LAYOUTCOMMIT4args committing(const stateid4& id, std::optional<std::uint64_t> last = std::nullopt)
    {
        static constexpr std::array<std::byte, 4> empty{};
        LAYOUTCOMMIT4args args;
        args.length = all;
        args.stateid = id;
        args.last_write_offset = last;
        args.layout_type = layouttype4::rdma;
        args.update_body = std::span<const std::byte>(empty);
        return args;
    }
    static LAYOUTCOMMIT4res commit(client4& c, const client4::opened& file, const LAYOUTCOMMIT4args& args)
    {
        answer4 out = c.call(PUTFH4args{client4::handle_of(file)}, args);
        out.good<PUTFH4res>();
        return out.take<LAYOUTCOMMIT4res>();
    }
    GETDEVICEINFO4args asking_of(const layout& of) const
    {
        GETDEVICEINFO4args args;
        args.device_id = of.extents.at(0).device_id;
        args.layout_type = layouttype4::rdma;
        args.maxcount = 4096;
        return args;
    }
    /// By the address that GETDEVICEINFO says.
    rdma_peer& connect_to(client4& c, const layout& of)
    {
        answer4 out = c.call(asking_of(of));
        const auto info = out.good<GETDEVICEINFO4res>();
        BOOST_TEST((info.layout_type == layouttype4::rdma));
        pnfs_rdma_device_addr4 where;
        xdr::decoder in(info.addr_body);
        xdr::codec<pnfs_rdma_device_addr4>::decode(in, where);
        BOOST_TEST_REQUIRE((in.ok() && in.rest().empty()));
        BOOST_TEST(std::string_view(where.addr.netid) == "rdma");
        rdma_peer& made = *peers.emplace_back(std::make_unique<rdma_peer>());
        const auto connecting = [&]() -> task<void> {
            rdma_layout_connect says;
            says.client = c.id;
            says.session = c.session;
            says.device = of.extents.at(0).device_id;
            const auto bytes = encode(says);
            verbs::connect_options o;
            o.private_data = bytes;
            std::vector<std::byte> reply;
            auto q = co_await client_context->connect(std::string(where.addr.addr), *client_domain, o, reply);
            BOOST_REQUIRE(q);
            made.use(std::move(*q));
        };
        run_until_complete(*shard, connecting());
        return made;
    }
    bool put(rdma_peer& p, const verbs::remote_segment& to, std::uint64_t at, std::string_view text)
    {
        bool done = false;
        const auto writing = [&]() -> task<void> { done = co_await p.write(to, at, text); };
        run_until_complete(*shard, writing());
        return done;
    }
    std::string take(rdma_peer& p, const verbs::remote_segment& from, std::uint64_t at, std::size_t length)
    {
        std::optional<std::string> got;
        const auto reading = [&]() -> task<void> { got = co_await p.read(from, at, length); };
        run_until_complete(*shard, reading());
        return got.value_or("?");
    }
    static void close(client4& c, const client4::opened& file)
    {
        BOOST_TEST(c.call(PUTFH4args{client4::handle_of(file)}, CLOSE4args{0, file.id}).status() ==
                   nfsstat4::ok);
    }
    std::uint64_t size_of(client4& c, const client4::opened& file)
    {
        GETATTR4args args;
        args.attr_request.set(attribute::size);
        answer4 out = c.call(PUTFH4args{client4::handle_of(file)}, args);
        out.good<PUTFH4res>();
        const auto res = out.good<GETATTR4res>();
        attributes values;
        BOOST_REQUIRE(decode_attributes(res.obj_attributes, values));
        return values.size;
    }
    const verbena::files::state_stats& stats() { return commons->state.table().stats(); }

    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<loop::device> device, other_device, client_device;
    std::unique_ptr<loop::context> context, client_context;
    std::unique_ptr<verbs::listener> listener;
    std::unique_ptr<verbs::protection_domain> client_domain;
    std::vector<std::unique_ptr<rdma_peer>> peers;
    nfs::v4::pnfs::service::options layout_options;
    std::string address = "data";
    nfs::v4::pnfs::service::place_of data_place = [this](std::string_view) { return address; };
    std::optional<nfs::v4::pnfs::service> service;
    nfs::v4::pnfs::data_server* data = nullptr;
    client4 first{*this, "first"};
    client4 second{*this, "second"};
    std::shared_ptr<called_client> first_way, second_way;
};

} // namespace verbena::test
