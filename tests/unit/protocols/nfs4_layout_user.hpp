// SPDX-License-Identifier: Apache-2.0
// A server that gives RDMA layouts of memfs over the loop transport, and clients of ours that use them.
#pragma once

#include "nfs4_called_way.hpp"
#include "nfs4_direct_transport.hpp"
#include "nfs4_kept_store.hpp"
#include "storing_backend.hpp"

#include <verbena/protocols/nfs/client/v4/client.hpp>
#include <verbena/protocols/nfs/client/v4/pnfs/layout_user.hpp>
#include <verbena/protocols/nfs/server/v4/pnfs/service.hpp>
#include <verbena/protocols/nfs/wire/v4/rdma_layout.hpp>
#include <verbena/transports/loop.hpp>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbena::nfs::v4::pnfs {
inline std::ostream& operator<<(std::ostream& out, by_nfs why) { return out << to_string(why); }
} // namespace verbena::nfs::v4::pnfs

namespace verbena::test {

using nfs::v4::pnfs::by_nfs;
using nfs::v4::pnfs::layout_file;
using nfs::v4::pnfs::layout_user;

/// Looks into what a client sends: the arguments of one operation.
template<class Args, class F>
void each_sent(const std::vector<std::byte>& message, const F& f)
{
    xdr::decoder in(message);
    rpc::call_header header;
    decode(in, header);
    compound_arguments args(in);
    BOOST_REQUIRE(args.ok());
    while (args.next())
        BOOST_REQUIRE(args.visit([&](const auto& of_one) {
            if constexpr (std::is_same_v<std::decay_t<decltype(of_one)>, Args>)
                f(of_one);
        }));
}

/// LAYOUTGET behind SEQUENCE and PUTFH fails so.
inline void refuse_layout(std::vector<std::byte>& reply, nfsstat4 status)
{
    refuse_at(reply, 2, status);
    if (status == nfsstat4::layouttrylater)
        reply.resize(reply.size() + 4);
}

/// Each extent in the answer to LAYOUTGET, by where its first byte stands.
inline std::vector<std::size_t> extents_in(const std::vector<std::byte>& reply, const deviceid4& device)
{
    std::vector<std::size_t> places;
    for (std::size_t at = 0; at + 48 <= reply.size(); at += 4) {
        if (std::equal(device.begin(), device.end(), reply.begin() + static_cast<std::ptrdiff_t>(at)))
            places.push_back(at);
    }
    return places;
}

/// As if the server had given memory without data.
inline void give_uninitialized(std::vector<std::byte>& reply, const deviceid4& device)
{
    for (const std::size_t at : extents_in(reply, device)) {
        if (reply[at + 47] == std::byte(0)) // READ_WRITE_DATA
            xdr::store_u32(reply.data() + at + 44, 2);
    }
}

/// The stateid in an answer to LAYOUTGET.
inline stateid4 layout_id_in(const std::vector<std::byte>& reply)
{
    xdr::decoder in(std::span<const std::byte>(reply).subspan(24)); // behind the head of RPC
    compound_reply results(in);
    SEQUENCE4res sequence;
    PUTFH4res put;
    LAYOUTGET4res got;
    BOOST_REQUIRE((results.read(sequence) && results.read(put) && results.read(got)));
    return got.stateid;
}

/// Wherever it stands.
template<class Octets>
void replace(std::vector<std::byte>& message, const Octets& what, const Octets& by)
{
    for (auto at = std::ranges::search(message, what); !at.empty(); at = std::ranges::search(message, what))
        std::ranges::copy(by, at.begin());
}

/// The whole file, by a stateid that is still to be named.
inline CB_LAYOUTRECALL4args recall_of(const nfs::v4::node& what)
{
    CB_LAYOUTRECALL4args args;
    args.type = layouttype4::rdma;
    args.iomode = layoutiomode4::any;
    args.recall.recalltype = layoutrecall_type4::file;
    args.recall.fh = what.handle.bytes();
    args.recall.length = UINT64_MAX;
    return args;
}

/// A client, what its server calls it by, and its layouts.
struct layout_client_of_ours {
    layout_client_of_ours(nfs4_fixture& f, std::string name, bool with_way_back = true)
        : service(*f.shard),
          way(std::make_shared<called_way>(service, f.pool)),
          wire(f),
          user(wire, nfs::identity(1000, 100, {}, "host"), std::move(name), {}, &service)
    {
        if (with_way_back)
            wire.way = way;
    }
    nfs::v4::callback_service service;
    std::shared_ptr<called_way> way;
    direct_transport wire;
    nfs::v4::client user;
    std::optional<layout_user> layouts;
};

/// Of an export with layouts.
enum class files_are { in_memory, in_stores, in_snapshots };

struct layout_world : nfs4_fixture {
    static constexpr std::uint64_t block = 64 << 10;
    using one = layout_client_of_ours;

    template<class F>
    auto run(const F& f)
    {
        return run_until_complete(*shard, f());
    }
    template<class F>
    auto good(const F& f)
    {
        auto got = run_until_complete(*shard, f());
        BOOST_REQUIRE_MESSAGE(got, (got ? std::string() : got.error().message()));
        return std::move(*got);
    }
    explicit layout_world(const verbs::capabilities& profile = loop::options().profile,
                          files_are where = files_are::in_memory)
    {
        if (where == files_are::in_stores)
            options[0].backend = &stored;
        if (where == files_are::in_snapshots) {
            memfs::memfs_options memory;
            memory.root_mode = 0777;
            memory.snapshots = true;
            snapshots = std::move(*memfs::open_memfs(memory, lane));
            options[0].backend = snapshots.get();
        }
        store = &kept;
        options[0].pnfs = true;
        options[0].local_writers = false;
        fabric = loop::make_fabric(*shard, {});
        loop::options o;
        o.profile = profile;
        o.name = "server";
        device = fabric->make_device(o);
        o.name = "client";
        client_device = fabric->make_device(o);
        context = device->make_context(*shard);
        listener = std::move(*context->listen("data"));
        client_context = client_device->make_context(*shard);
        begin();
    }
    ~layout_world()
    {
        for (one* each : {&holder, &other}) {
            each->wire.decide = nullptr;
            each->wire.on_call = nullptr;
            each->wire.on_reply_to = nullptr;
            each->wire.gate = nullptr;
        }
        run([&]() -> task<void> {
            for (one* each : {&holder, &other}) {
                if (each->layouts)
                    co_await each->layouts->close();
                co_await each->user.close();
            }
        });
        pass(100ms); // fences run behind the answers
        BOOST_TEST((service ? service->layouts().counts().segments : 0) == 0);
        end();
        holder.layouts.reset();
        other.layouts.reset();
        client_context.reset();
        listener.reset();
        context.reset();
        BOOST_TEST(device->grants() == 0u);
    }
    static nfs::v4::pnfs::layout_options quick(bool requires_layouts = false)
    {
        nfs::v4::pnfs::layout_options o;
        o.connections.address_of = [](std::string_view, std::string_view address) {
            return result<std::string>(std::string(address));
        };
        o.least = 0;
        o.requires_layouts = requires_layouts;
        o.connection_patience = 1min; // so that all goes by RDMA that can
        return o;
    }
    /// The client is to have layouts, and finds the export.
    void join(one& who, const nfs::v4::pnfs::layout_options& o = quick())
    {
        who.layouts.emplace(who.user, *client_context, pool, o);
        look(who);
    }
    /// Likewise, with little memory of its own, all of which a test may take.
    void join_with_little_memory(one& who)
    {
        who.wire.memory = &little_pool;
        who.layouts.emplace(who.user, *client_context, little_pool, quick());
        look(who);
    }
    std::vector<lease> all_memory()
    {
        std::vector<lease> all;
        while (lease more = little_pool.try_acquire(buffer_pool::min_size))
            all.push_back(std::move(more));
        return all;
    }
    void look(one& who)
    {
        top = good([&] { return who.user.root(); }).handle;
        top = good([&] { return who.user.walk(top, "/export", true); }).handle;
    }
    void begin()
    {
        start();
        const std::array<verbena::shard*, 1> where = {&home};
        service.emplace(*commons, where, service_options);
        data = service->add_way("loop", *device, [this](std::string_view) { return address; });
        commons->pnfs = &*service;
        serving.emplace(*shard);
        serving->spawn([this] { return commons->state.clients().tend(); });
        serving->spawn([this] { return commons->state.table().tend(); });
        serving->spawn([this] { return commons->callbacks.run(); });
        serving->spawn([this] { return commons->tend(); });
        serving->spawn([this] { return service->tend(); });
        serving->spawn([this]() -> task<void> {
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
    void end()
    {
        serving->request_stop();
        run([this]() -> task<void> { co_await serving->join(); });
        serving.reset();
        program.reset();
        commons.reset();
        service.reset();
    }
    /// As by a kill; who was there may reclaim if `remembers`.
    void restart(bool remembers = true)
    {
        end();
        if (on_restart)
            on_restart();
        ++begun.epoch;
        begun.reclaimers.clear();
        if (remembers)
            begun.reclaimers = kept.reclaimers();
        begun.lease_before = 90s;
        begin();
    }
    /// A file with these bytes, which no layout is of.
    nfs::v4::node make(std::string_view name, std::string_view text)
    {
        auto made = good([&] { return holder.user.create(top, name, {}, nfs::v4::open_how::guarded); });
        if (!text.empty())
            BOOST_TEST_REQUIRE(run([&] { return made->write(0, bytes_of(text)); }).has_value());
        BOOST_TEST_REQUIRE(run([&] { return made->close(); }).has_value());
        return good([&] { return holder.user.lookup(top, name); });
    }
    std::unique_ptr<layout_file> open(one& who, const nfs::v4::node& what,
                                      std::uint32_t access = share4::access_both)
    {
        auto opened = good([&] { return who.user.open(what, access); });
        return who.layouts->use(std::move(opened));
    }
    std::unique_ptr<layout_file> open(const nfs::v4::node& what, std::uint32_t access = share4::access_both)
    {
        return open(holder, what, access);
    }
    /// Where the server has the file's bytes.
    deviceid4 device_of(const nfs::v4::node& what)
    {
        auto f = open(what);
        const auto extents = good([&] { return f->extents(layoutiomode4::rw); });
        BOOST_REQUIRE(!extents.empty());
        close(*f);
        return extents.front().device_id;
    }
    void close(layout_file& f)
    {
        BOOST_TEST_REQUIRE(run([&] { return f.close(); }).has_value());
    }
    void commit(layout_file& f)
    {
        const auto done = run([&] { return f.commit(); });
        BOOST_REQUIRE_MESSAGE(done, (done ? std::string() : done.error().message()));
    }
    static std::string text_of(const rpc::payload& data)
    {
        std::string text;
        for (const auto piece : data.pieces())
            text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        return text;
    }
    /// One read.
    std::string read(layout_file& f, std::uint64_t offset, std::uint32_t count)
    {
        const auto got = good([&] { return f.read(offset, count); });
        return text_of(got.data);
    }
    /// All of it, in reads of so many bytes.
    std::string whole(layout_file& f, std::uint32_t at_once = 1 << 20)
    {
        std::string text;
        for (;;) {
            const std::string some = read(f, text.size(), at_once);
            if (some.empty())
                return text;
            text += some;
        }
    }
    /// As the server has it.
    std::string there(const nfs::v4::node& what)
    {
        auto opened = good([&] { return holder.user.open(what, share4::access_read); });
        std::string text;
        for (;;) {
            const auto got = good([&] { return opened->read(text.size(), 1 << 20); });
            if (got.data.empty())
                break;
            text += text_of(got.data);
        }
        BOOST_TEST_REQUIRE(run([&] { return opened->close(); }).has_value());
        return text;
    }
    void write(layout_file& f, std::uint64_t offset, std::string_view text)
    {
        const auto done = run([&] { return f.write(offset, bytes_of(text)); });
        BOOST_REQUIRE_MESSAGE(done, (done ? std::string() : done.error().message()));
    }
    static rpc::payload bytes_of(std::string_view text) { return {lease(), std::as_bytes(std::span(text))}; }
    /// Letters that tell where they stand.
    static std::string letters(std::size_t size, unsigned kind = 0)
    {
        std::string text(size, ' ');
        for (std::size_t i = 0; i < size; ++i)
            text[i] = static_cast<char>('!' + (i + i / 89 + i / 8000 + kind * 7) % 90);
        return text;
    }
    /// A callback to the holder in a slot that our server does not come to use.
    template<class Args>
    nfsstat4 call_back(const Args& args)
    {
        memory_call c(pool, from);
        xdr::encoder out = c.begin(callback_service::program, callback_version, 1, nullptr);
        callback_head head;
        head.minorversion = holder.user.session().minor_version();
        CB_SEQUENCE4args sequence;
        sequence.sessionid = holder.wire.session;
        sequence.sequenceid = ++by_hand;
        sequence.slotid = sequence.highest_slotid = callback_slots::max_slots - 1;
        callback_request request(out, head);
        request.add(sequence).add(args);
        c.end(out);
        BOOST_TEST_REQUIRE(run([&] { return holder.service.dispatch(c); }));
        xdr::decoder in = c.reply();
        callback_reply reply(in);
        return reply.status();
    }
    const nfs::v4::pnfs::layout_user_counts& counts() { return holder.layouts->counts(); }
    /// All RDMA connections end.
    void cut_connections()
    {
        client_context->remove_device();
        client_context->return_device();
    }

    memory_budget little{std::size_t(1) << 20};
    buffer_pool little_pool{little, shard.get()};
    kept_store kept;
    storing_backend stored{*files};
    std::unique_ptr<storage::file_backend> snapshots;
    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<loop::device> device, client_device;
    std::unique_ptr<loop::context> context, client_context;
    std::unique_ptr<verbs::listener> listener;
    nfs::v4::pnfs::service::options service_options;
    std::string address = "data";
    std::optional<nfs::v4::pnfs::service> service;
    nfs::v4::pnfs::data_server* data = nullptr;
    std::optional<scope> serving;
    one holder{*this, "holder"};
    one other{*this, "other"};
    nfs::v4::known_handle top;
    std::uint32_t by_hand = 0;        ///< callbacks
    std::function<void()> on_restart; ///< while no server runs
};

} // namespace verbena::test
