// SPDX-License-Identifier: Apache-2.0
// Two clients of ours that our server may call, and the server, which may start again.
#pragma once

#include "nfs4_called_way.hpp"
#include "nfs4_direct_transport.hpp"
#include "nfs4_kept_store.hpp"

#include <verbena/protocols/nfs/client/v4/client.hpp>
#include <verbena/protocols/nfs/client/v4/file.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace verbena::test {

/// A client and what its server calls it by.
struct one_client {
    one_client(nfs4_fixture& f, std::string name)
        : service(*f.shard),
          way(std::make_shared<called_way>(service, f.pool)),
          wire(f),
          user(wire, nfs::identity(1000, 100, {}, "host"), std::move(name), {}, &service)
    {
        wire.way = way;
        user.use_delegations(8);
    }
    nfs::v4::callback_service service;
    std::shared_ptr<called_way> way;
    direct_transport wire;
    client user;
};

struct two_clients : nfs4_fixture {
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
    two_clients()
    {
        store = &kept;
        options[0].local_writers = false;
        begin();
        top = good([&] { return holder.user.root(); }).handle;
        top = good([&] { return holder.user.walk(top, "/export", true); }).handle;
    }
    ~two_clients()
    {
        holder.wire.decide = other.wire.decide = nullptr;
        holder.wire.on_reply_to = other.wire.on_reply_to = nullptr;
        holder.wire.on_reply = nullptr;
        run([&]() -> task<void> {
            co_await holder.user.close();
            co_await other.user.close();
        });
        BOOST_TEST(stats().read_delegations.value() == 0);
        BOOST_TEST(stats().write_delegations.value() == 0);
        end();
    }
    void begin()
    {
        start();
        serving.emplace(*shard);
        serving->spawn([this] { return commons->state.clients().tend(); });
        serving->spawn([this] { return commons->state.table().tend(); });
        serving->spawn([this] { return commons->callbacks.run(); });
        serving->spawn([this] { return commons->tend(); });
    }
    void end()
    {
        serving->request_stop();
        run([this]() -> task<void> { co_await serving->join(); });
        serving.reset();
        program.reset();
        commons.reset();
    }
    /// As by a kill; who was there may reclaim if `remembers`.
    void restart(bool remembers)
    {
        end();
        ++begun.epoch;
        begun.reclaimers.clear();
        if (remembers)
            begun.reclaimers = kept.reclaimers();
        begun.lease_before = 90s;
        begin();
    }
    nfs::v4::node make(std::string_view name, std::string_view text = "text")
    {
        other.user.use_delegations(0);
        auto made = good([&] { return other.user.create(top, name, {}, nfs::v4::open_how::guarded); });
        BOOST_TEST_REQUIRE(run([&] { return made->write(0, bytes_of(text)); }).has_value());
        close(*made);
        other.user.use_delegations(8);
        return good([&] { return other.user.lookup(top, name); });
    }
    std::unique_ptr<nfs::v4::file> open(one_client& who, const nfs::v4::node& what, std::uint32_t access)
    {
        return good([&] { return who.user.open(what, access); });
    }
    void close(nfs::v4::file& f)
    {
        BOOST_TEST_REQUIRE(run([&] { return f.close(); }).has_value());
    }
    std::string text_of(nfs::v4::file& f)
    {
        const auto read = good([&] { return f.read(0, 1000); });
        std::string text;
        for (const auto piece : read.data.pieces())
            text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        return text;
    }
    void write(nfs::v4::file& f, std::string_view text)
    {
        BOOST_TEST_REQUIRE(run([&] { return f.write(0, bytes_of(text)); }).has_value());
    }
    /// The holder has a delegation, and no file open.
    nfs::v4::node delegated(std::string_view name, std::uint32_t access = share4::access_read)
    {
        const nfs::v4::node what = make(name);
        const std::size_t before = holder.user.delegations();
        auto opened = open(holder, what, access);
        BOOST_TEST_REQUIRE(holder.user.delegations() == before + 1);
        close(*opened);
        holder.wire.sent.clear();
        return what;
    }
    /// A callback to the holder in a slot that our server does not come to use. The status is CB_SEQUENCE's where that failed.
    template<class Args>
    nfsstat4 call_back(const Args& args, std::span<const referring_call_list4> refers = {},
                       attributes* told = nullptr)
    {
        memory_call c(pool, from);
        xdr::encoder out = c.begin(callback_service::program, callback_version, 1, nullptr);
        callback_head head;
        head.minorversion = holder.user.session().minor_version();
        CB_SEQUENCE4args sequence;
        sequence.sessionid = holder.wire.session;
        sequence.sequenceid = by_hand + 1;
        sequence.slotid = sequence.highest_slotid = callback_slots::max_slots - 1;
        sequence.referring_call_lists = refers;
        callback_request request(out, head);
        request.add(sequence).add(args);
        c.end(out);
        BOOST_TEST_REQUIRE(run([&] { return holder.service.dispatch(c); }));
        xdr::decoder in = c.reply();
        callback_reply reply(in);
        CB_SEQUENCE4res res;
        if (reply.read(res))
            ++by_hand;
        CB_GETATTR4res values;
        if (told != nullptr && reply.read(values))
            BOOST_TEST(decode_attributes(values.obj_attributes, *told));
        return reply.status();
    }
    /// The server loses from now on what is not stable: its verifier is another one.
    void lose_unstable_data()
    {
        for (one_client* each : {&holder, &other})
            each->wire.on_reply_to = [](const sent_compound& call, std::vector<std::byte>& reply) {
                if (call.has(nfs_opnum4::commit) || call.has(nfs_opnum4::write))
                    reply.back() ^= std::byte(1);
            };
    }
    static rpc::payload bytes_of(std::string_view text) { return {lease(), std::as_bytes(std::span(text))}; }
    const verbena::files::state_stats& stats() { return commons->state.table().stats(); }
    std::size_t delegations()
    {
        return static_cast<std::size_t>(stats().read_delegations.value() + stats().write_delegations.value());
    }

    kept_store kept;
    std::optional<scope> serving;
    one_client holder{*this, "holder"};
    one_client other{*this, "other"};
    nfs::v4::known_handle top;
    std::uint32_t by_hand = 0;
};

} // namespace verbena::test
