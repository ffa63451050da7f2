// SPDX-License-Identifier: Apache-2.0
// The NFS version 4 program over memfs exports, on a virtual clock, and clients made by hand.
#pragma once

#include "memory_call.hpp"

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/plugins/memfs.hpp>
#include <verbena/protocols/nfs/server/v4/commons.hpp>
#include <verbena/protocols/nfs/server/v4/server.hpp>
#include <verbena/protocols/nfs/wire/v4/callback.hpp>
#include <verbena/protocols/rpc/auth_sys.hpp>

#include <chrono>
#include <map>

namespace verbena::nfs::v4 {
inline std::ostream& operator<<(std::ostream& out, nfsstat4 status) { return out << to_string(status); }
inline std::ostream& operator<<(std::ostream& out, nfs_opnum4 op) { return out << to_string(op); }
inline std::ostream& operator<<(std::ostream& out, nfs_cb_opnum4 op) { return out << to_string(op); }
inline std::ostream& operator<<(std::ostream& out, open_delegation_type4 type)
{
    return out << unsigned(type);
}
inline std::ostream& operator<<(std::ostream& out, why_no_delegation4 why) { return out << unsigned(why); }
} // namespace verbena::nfs::v4

namespace verbena::test {

using namespace verbena::nfs::v4;
using namespace std::chrono_literals;
namespace nfs = verbena::nfs;

/// What a COMPOUND was answered. Results are taken in their order; views point into it.
class answer4 {
public:
    explicit answer4(const xdr::decoder& in) : message_(std::make_unique<message>(in)) {}

    nfsstat4 status() const noexcept { return message_->reply.status(); }
    std::uint32_t operations() const noexcept { return message_->reply.head().operations; }
    const std::vector<std::byte>& bytes() const noexcept { return message_->bytes; }
    xdr::decoder& in() noexcept { return message_->in; }
    /// The next operation's results, whatever their status.
    template<class Results>
    Results take()
    {
        Results res;
        (void)message_->reply.read(res);
        BOOST_REQUIRE_MESSAGE(message_->in.ok(), "results of another operation");
        return res;
    }
    template<class Results>
    Results good()
    {
        const Results res = take<Results>();
        BOOST_TEST_REQUIRE(res.status == nfsstat4::ok);
        return res;
    }

private:
    struct message {
        explicit message(const xdr::decoder& from)
            : bytes(from.rest().begin(), from.rest().end()), in(bytes), reply(in)
        {
        }
        std::vector<std::byte> bytes;
        xdr::decoder in;
        compound_reply reply;
    };
    std::unique_ptr<message> message_;
};

struct nfs4_fixture {
    nfs4_fixture()
    {
        user.emplace();
        user->uid = 1000;
        user->gid = 100;
        add("/export", *files);
        add("/deep/other", *others);
    }
    ~nfs4_fixture()
    {
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
        program.reset();
        commons.reset();
        BOOST_TEST(pool.outstanding() == 0);
    }
    static std::unique_ptr<storage::file_backend> make_files(blocking_pool& lane)
    {
        memfs::memfs_options o;
        o.root_mode = 0777;
        return std::move(*memfs::open_memfs(o, lane));
    }
    nfs::export_options& add(std::string pseudo, storage::file_backend& backend)
    {
        nfs::export_options made;
        made.pseudo = std::move(pseudo);
        made.backend = &backend;
        return options.emplace_back(made);
    }
    void start()
    {
        for (const nfs::export_options& made : options) {
            if (exports.all().size() < options.size())
                BOOST_REQUIRE(exports.add(made));
        }
        verbena::files::state_options state;
        state.epoch = begun.epoch;
        state.reclaimers = begun.reclaimers;
        state.reclaimed_unchanged = reclaimed_unchanged;
        state.lease = 90s;
        state.limits = state_limits;
        const std::vector<verbena::shard*> all(homes, &home);
        commons.emplace(exports, key, all, *store, state, 1'700'000'000, limits);
        program.emplace(*commons, home);
        dispatcher.emplace(*shard);
        dispatcher->add(*program);
    }
    /// What verbenad runs beside the program on the state layer's shard.
    void tend()
    {
        tasks.spawn([this] { return commons->state.clients().tend(); });
        for (unsigned i = 0; i < homes; ++i)
            tasks.spawn([this, i] { return commons->state.table(i).tend(); });
        tasks.spawn([this] { return commons->callbacks.run(); });
    }
    /// Lets time pass, in steps.
    void pass(duration d, duration step = 10ms)
    {
        for (const time_point end = clock.now() + d; clock.now() < end;) {
            turns();
            clock.advance(std::min(step, end - clock.now()));
        }
        turns();
    }
    void turns(int n = 10)
    {
        for (int i = 0; i < n; ++i)
            shard->turn();
    }
    /// A COMPOUND of `minor`.
    template<class... Args>
    answer4 compound(const Args&... args)
    {
        return send(minor, [&](compound_request& out) { (out.add(args), ...); });
    }
    answer4 send(std::uint32_t minor, const std::function<void(compound_request&)>& write)
    {
        const auto c = prepare(minor, write);
        BOOST_REQUIRE(run_until_complete(*shard, dispatcher->dispatch(*c)));
        return answer_of(*c);
    }
    /// A COMPOUND of minor version 1 that is still running when this returns, unless nothing holds it up. turns() lets it go on.
    template<class... Args>
    std::shared_ptr<memory_call> begin(const Args&... args)
    {
        std::shared_ptr<memory_call> c = prepare(1, [&](compound_request& out) { (out.add(args), ...); });
        tasks.spawn([this, c]() -> task<void> {
            (void)co_await dispatcher->dispatch(*c);
            c->is_done = true;
        });
        turns();
        return c;
    }
    static answer4 answer_of(memory_call& c)
    {
        xdr::decoder in = c.reply();
        BOOST_REQUIRE(c.header_of_reply.success());
        return answer4(in);
    }
    /// What all calls took, from the whole call to the whole reply.
    std::chrono::nanoseconds time_of_calls() const
    {
        histogram_snapshot all;
        dispatcher->for_each([&](const auto&, const rpc::procedure_stats& of) { of.latency.add_to(all); });
        return std::chrono::nanoseconds(all.sum_nanoseconds);
    }
    std::unique_ptr<memory_call> prepare(std::uint32_t minor,
                                         const std::function<void(compound_request&)>& write)
    {
        if (!program)
            start();
        auto made = std::make_unique<memory_call>(pool, from);
        memory_call& c = *made;
        c.no_memory = no_memory;
        c.reserves = reserves;
        c.way = way;
        xdr::encoder out = c.begin(100003, 4, 1, user ? &*user : nullptr);
        compound_head head;
        head.minorversion = minor;
        compound_request request(out, head);
        write(request);
        c.end(out);
        if (in_one_piece != 0)
            c.split_at(in_one_piece);
        if (border != 0)
            c.in_two_pieces(border);
        c.no_memory_to_join = no_memory_to_join;
        return made;
    }

    static std::unique_ptr<reactor> make_reactor(virtual_clock& c)
    {
        reactor_options o;
        o.clock = &c;
        return std::move(*reactor::create(o));
    }
    virtual_clock clock;
    std::unique_ptr<reactor> shard = make_reactor(clock);
    memory_budget budget{std::size_t(64) << 20};
    buffer_pool pool{budget, shard.get()};
    scope tasks{*shard};
    verbena::shard home{0, *shard, pool, tasks};
    std::optional<rpc::service_dispatcher> dispatcher;
    unsigned homes = 1; ///< of files, all on that shard
    std::uint32_t minor = 1;
    rpc::peer from{"127.0.0.1", "127.0.0.1:700", "tcp", 700};
    std::optional<rpc::auth_sys> user;
    bool no_memory = false;                    ///< for results
    std::size_t in_one_piece = 0;              ///< bytes of a call, unless all are
    std::size_t border = 0;                    ///< of a call's two pieces, unless it is one
    bool no_memory_to_join = false;            ///< those
    int reserves = INT_MAX;                    ///< as memory_call's
    std::shared_ptr<rpc::reverse_channel> way; ///< back to who calls
    blocking_pool lane{1};
    std::unique_ptr<storage::file_backend> files = make_files(lane);
    std::unique_ptr<storage::file_backend> others = make_files(lane);
    std::deque<nfs::export_options> options;
    nfs::export_table exports;
    nfs::handle_key key{std::byte(3), std::byte(141), std::byte(59)};
    session_limits limits;
    verbena::files::limits state_limits;
    verbena::files::no_recovery_store forgets;
    verbena::files::recovery_store* store = &forgets;
    verbena::files::recovery_start begun{7, {}, {}, 0};
    std::int64_t reclaimed_unchanged = 0;
    std::optional<server_commons> commons;
    std::optional<server> program;
};

/// Attributes with the memory that they lie in.
struct encoded {
    explicit encoded(const attributes& values)
    {
        xdr::encoder out(bytes);
        encode_attributes(out, values.present, values);
        xdr::decoder in(std::span<const std::byte>(bytes).first(out.size()));
        xdr::codec<fattr4>::decode(in, raw);
    }
    std::array<std::byte, 512> bytes{};
    fattr4 raw;
};

/// A client with one session.
class client4 {
public:
    client4(nfs4_fixture& f, std::string name, std::uint8_t boot = 1) : f_(f), name_(std::move(name))
    {
        verifier_[0] = std::byte(boot);
    }
    EXCHANGE_ID4args exchange() const
    {
        EXCHANGE_ID4args args;
        args.clientowner.verifier = verifier_;
        args.clientowner.ownerid = std::as_bytes(std::span(name_));
        return args;
    }
    static CREATE_SESSION4args session_of(clientid4 client, std::uint32_t sequence)
    {
        CREATE_SESSION4args args;
        args.clientid = client;
        args.sequence = sequence;
        args.fore_chan_attrs = {0, 1049620, 1049480, 7584, 16, 4, std::nullopt};
        args.back_chan_attrs = {0, 4096, 4096, 0, 2, 1, std::nullopt};
        return args;
    }
    void connect()
    {
        answer4 known = f_.compound(exchange());
        const auto exchanged = known.good<EXCHANGE_ID4res>();
        id = exchanged.clientid;
        create_sequence = exchanged.sequenceid;
        open_session();
        answer4 ready = call(reclaimed());
        BOOST_TEST_REQUIRE(ready.status() == nfsstat4::ok);
    }
    void open_session()
    {
        CREATE_SESSION4args args = session_of(id, create_sequence++);
        args.fore_chan_attrs.maxresponsesize = std::min(args.fore_chan_attrs.maxresponsesize, largest_reply);
        answer4 made = f_.compound(args);
        session = made.good<CREATE_SESSION4res>().sessionid;
        sequences.clear();
    }
    static RECLAIM_COMPLETE4args reclaimed() { return {}; }
    SEQUENCE4args sequence(std::uint32_t slot = 0, bool keep = false)
    {
        return {session, ++sequences[slot], slot, 3, keep};
    }
    /// The results behind SEQUENCE's; that one's failure is the whole answer.
    template<class... Args>
    answer4 call(const Args&... args)
    {
        answer4 out = f_.compound(sequence(), args...);
        if (const auto res = out.take<SEQUENCE4res>(); res.status != nfsstat4::ok)
            --sequences[0];
        return out;
    }
    /// Opens a name of the export "/export", and has its handle.
    OPEN4args opening(std::string_view name, std::uint32_t access = share4::access_both,
                      std::uint32_t deny = share4::deny_none)
    {
        OPEN4args args;
        args.share_access = access;
        args.share_deny = deny;
        args.owner.owner = std::as_bytes(std::span(name_));
        args.claim.file = name;
        return args;
    }
    OPEN4args creating(std::string_view name, createmode4 mode = createmode4::unchecked)
    {
        OPEN4args args = opening(name);
        args.openhow.opentype = opentype4::create;
        args.openhow.mode = mode;
        return args;
    }
    struct opened {
        nfsstat4 status = nfsstat4::ok;
        stateid4 id;
        std::vector<std::byte> handle;
        OPEN4res res;
    };
    static std::span<const std::byte> handle_of(const opened& file) noexcept { return file.handle; }
    opened open(const OPEN4args& args)
    {
        answer4 out = call(PUTROOTFH4args(), LOOKUP4args{"export"}, args, GETFH4args());
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        opened made;
        made.res = out.take<OPEN4res>();
        made.status = made.res.status;
        if (made.status == nfsstat4::ok) {
            made.id = made.res.stateid;
            const auto handle = out.good<GETFH4res>();
            made.handle.assign(handle.object.begin(), handle.object.end());
        }
        return made;
    }
    nfsstat4 write(const opened& file, std::string_view text, stateid4 id, std::uint64_t offset = 0)
    {
        return call(PUTFH4args{handle_of(file)},
                    WRITE4args{id, offset, stable_how4::unstable, std::as_bytes(std::span(text))})
            .status();
    }
    nfsstat4 write(const opened& file, std::string_view text) { return write(file, text, file.id); }
    std::string read(const opened& file, stateid4 id, std::uint32_t count = 100)
    {
        answer4 out = call(PUTFH4args{handle_of(file)}, READ4args{id, 0, count});
        if (out.status() != nfsstat4::ok)
            return to_string(out.status());
        out.good<PUTFH4res>();
        const auto res = out.good<READ4res>();
        return {reinterpret_cast<const char*>(res.data.inline_bytes.data()), res.data.inline_bytes.size()};
    }

    clientid4 id = 0;
    std::uint32_t create_sequence = 1;
    std::uint32_t largest_reply = UINT32_MAX; ///< of sessions that are opened then
    sessionid4 session{};
    std::map<std::uint32_t, std::uint32_t> sequences; // the last of each slot

private:
    nfs4_fixture& f_;
    std::string name_;
    verifier4 verifier_{};
};

} // namespace verbena::test
