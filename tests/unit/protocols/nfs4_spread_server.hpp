// SPDX-License-Identifier: Apache-2.0
// A server of version 4 whose files have their homes on three shards, and clients that come by any of them.
#pragma once

#include "nfs4_called_client.hpp"

#include <verbena/core/random.hpp>
#include <verbena/core/reactor/simulated_shards.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/protocols/nfs/server/v4/pnfs/service.hpp>

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace verbena::test {

inline constexpr unsigned homes = 3;
inline std::span<const std::byte> named(std::string_view text) { return std::as_bytes(std::span(text)); }

struct spread_server {
    explicit spread_server(std::uint64_t seed = 1, bool pnfs = false) : shards(clock, seed), numbers(seed)
    {
        std::array<shard*, homes> all{};
        for (unsigned i = 0; i < homes; ++i)
            all[i] = &shards.add(memory);
        memfs::memfs_options in_memory;
        in_memory.root_mode = 0777;
        in_memory.random = &numbers;
        files = std::move(*memfs::open_memfs(in_memory, lane));
        nfs::export_options made;
        made.pseudo = "/export";
        made.backend = files.get();
        made.local_writers = false;
        made.pnfs = pnfs;
        BOOST_REQUIRE(exports.add(made));
        verbena::files::state_options o;
        o.epoch = 7;
        commons.emplace(exports, key, all, store, o, 1'700'000'000);
        commons->minors[0] = true;
        for (unsigned i = 0; i < homes; ++i) {
            programs.emplace_back(*commons, *all[i]);
            dispatchers.emplace_back(all[i]->reactor()).add(programs.back());
            all[i]->tasks().spawn(already_made, commons->state.table(i).tend());
        }
        all[0]->tasks().spawn(already_made, commons->state.clients().tend());
        all[0]->tasks().spawn(already_made, commons->callbacks.run());
    }
    ~spread_server() { shards.stop(); }

    /// A COMPOUND that is to come by that shard.
    struct call {
        std::size_t at = 0;
        std::unique_ptr<memory_call> text;
        answer4 answer()
        {
            xdr::decoder in = text->reply();
            BOOST_REQUIRE(text->header_of_reply.success());
            return answer4(in);
        }
    };
    template<class... Args>
    call prepare(std::size_t at, const Args&... args)
    {
        return write(at, [&](compound_request& out) { (out.add(args), ...); });
    }
    call write(std::size_t at, const std::function<void(compound_request&)>& operations)
    {
        call made{at, std::make_unique<memory_call>(shards.at(at).buffers(), from)};
        xdr::encoder out = made.text->begin(100003, 4, 1, nullptr);
        compound_head head;
        head.minorversion = minor;
        compound_request request(out, head);
        operations(request);
        made.text->end(out);
        made.text->way = way;
        return made;
    }
    task<void> dispatch(call* c)
    {
        const auto serve = [this, c]() -> task<void> {
            (void)co_await dispatchers[c->at].dispatch(*c->text);
        };
        co_await shards.at(c->at).run(serve);
    }
    task<void> dispatch_all(std::vector<call>* calls)
    {
        scope all(shards.at(0).reactor());
        for (call& c : *calls)
            all.spawn(already_made, dispatch(&c));
        co_await all.join();
    }
    /// At the same time.
    void serve(std::vector<call>& calls) { shards.run(shards.at(0), dispatch_all(&calls)); }
    template<class... Args>
    answer4 compound(std::size_t at, const Args&... args)
    {
        std::vector<call> one;
        one.push_back(prepare(at, args...));
        serve(one);
        return one[0].answer();
    }
    void pass(duration d)
    {
        const auto wait = [](duration how_long) -> task<void> { (void)co_await sleep_for(how_long); };
        shards.run(shards.at(0), wait(d));
    }
    std::int64_t total(gauge verbena::files::state_stats::* what) const { return commons->state.total(what); }
    /// The home of what has the stateid, which is the only one that knows it.
    unsigned home_of(const stateid4& id)
    {
        unsigned found = homes;
        for (unsigned i = 0; i < homes; ++i) {
            const auto ask = [this, i, id]() -> task<bool> {
                co_return commons->state.table(i).holder_of(to_state(id)).has_value();
            };
            if (shards.run(shards.at(i), ask()))
                found = i;
        }
        return found;
    }

    virtual_clock clock;
    memory_budget memory{std::size_t(64) << 20, homes};
    simulated_shards shards;
    seeded_random numbers;
    blocking_pool lane{1};
    std::unique_ptr<storage::file_backend> files;
    nfs::export_table exports;
    nfs::handle_key key{std::byte(1)};
    verbena::files::no_recovery_store store;
    std::optional<nfs::v4::pnfs::service> service; ///< of layouts, if there are any
    std::optional<server_commons> commons;
    std::deque<server> programs;
    std::deque<rpc::service_dispatcher> dispatchers;
    rpc::peer from{"127.0.0.1", "127.0.0.1:700", "tcp", 700};
    std::shared_ptr<rpc::reverse_channel> way; ///< back to who calls
    std::uint32_t minor = 1;
};

/// A client of minor version 1, which is called where its session was made.
struct spread_client {
    spread_client(spread_server& s, std::string_view name, std::size_t at)
        : server(s), channel(std::make_shared<called_client>(s.shards.at(at).buffers())), place(at)
    {
        EXCHANGE_ID4args exchange;
        exchange.clientowner.ownerid = named(name);
        answer4 known = s.compound(at, exchange);
        const auto exchanged = known.good<EXCHANGE_ID4res>();
        id = exchanged.clientid;
        CREATE_SESSION4args creating = client4::session_of(exchanged.clientid, exchanged.sequenceid);
        creating.flags = create_session4::conn_back_chan;
        const std::array<callback_sec_parms4, 1> parms{};
        creating.sec_parms = std::span<const callback_sec_parms4>(parms);
        s.way = channel;
        answer4 made = s.compound(at, creating);
        s.way.reset();
        session = made.good<CREATE_SESSION4res>().sessionid;
        BOOST_TEST_REQUIRE(call(at, RECLAIM_COMPLETE4args()).status() == nfsstat4::ok);
    }
    template<class... Args>
    spread_server::call prepare(std::size_t at, std::uint32_t slot, const Args&... args)
    {
        return server.prepare(at, SEQUENCE4args{session, ++sequences[slot], slot, 3, false}, args...);
    }
    /// The results behind SEQUENCE's.
    template<class... Args>
    answer4 call(std::size_t at, const Args&... args)
    {
        std::vector<spread_server::call> one;
        one.push_back(prepare(at, 0, args...));
        server.serve(one);
        answer4 out = one[0].answer();
        out.good<SEQUENCE4res>();
        return out;
    }
    static OPEN4args opening(std::string_view name, std::uint32_t access)
    {
        OPEN4args args;
        args.share_access = access;
        args.owner.owner = named("opener");
        args.claim.file = name;
        args.openhow.opentype = opentype4::create;
        return args;
    }
    struct opened {
        nfsstat4 status = nfsstat4::ok;
        stateid4 id;
        std::vector<std::byte> handle;
        open_delegation4 delegation;
        std::span<const std::byte> fh() const noexcept { return handle; }
    };
    opened open(std::size_t at, std::string_view name, std::uint32_t access = share4::access_both)
    {
        answer4 out = call(at, PUTROOTFH4args(), LOOKUP4args{"export"}, opening(name, access), GETFH4args());
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        opened made;
        const auto res = out.take<OPEN4res>();
        made.status = res.status;
        if (res.status != nfsstat4::ok)
            return made;
        made.id = res.stateid;
        made.delegation = res.delegation;
        const auto handle = out.good<GETFH4res>();
        made.handle.assign(handle.object.begin(), handle.object.end());
        return made;
    }
    nfsstat4 close(std::size_t at, const opened& file)
    {
        return call(at, PUTFH4args{file.fh()}, CLOSE4args{0, file.id}).status();
    }

    spread_server& server;
    std::shared_ptr<called_client> channel;
    std::size_t place;
    clientid4 id = 0;
    sessionid4 session{};
    std::map<std::uint32_t, std::uint32_t> sequences;
};

} // namespace verbena::test
