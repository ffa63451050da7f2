// SPDX-License-Identifier: Apache-2.0
// Calls of NFS versions 4.0 to 4.2 to a server with a file system in memory. The input is a sequence of calls, each of them:
//
//   0      operations that it announces; the high bit leaves out the SEQUENCE, the next one asks for the reply to be kept and repeats
//          the call, the one below makes it a call of version 4.2, and with the high bit one of version 4.0
//   1..2   bytes that follow, big endian; if they are odd in number, the call lies in two pieces, as over a stream
//   3..    operations as they travel, behind SEQUENCE; in version 4.0 "CLIENTID" stands for the number of the client that there is, and
//          "LASTSTATEID." for `other` of the stateid that an operation yielded last, in the other versions too
//
// The client is never called, but could be, so that it gets layouts.
//
// Owners have names of the domain "d": "a" is 1, and each number has one.
//
// Whatever comes, each reply is whole, it says what its last operation said, a repeat is answered with the same bytes, and the
// server ends with no buffer out.

#include "fuzz.hpp"

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/plugins/memfs.hpp>
#include <verbena/protocols/nfs/server/v4/commons.hpp>
#include <verbena/protocols/nfs/server/v4/pnfs/service.hpp>
#include <verbena/protocols/nfs/server/v4/server.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>
#include <verbena/transports/loop.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

using namespace verbena;
using namespace verbena::nfs::v4;
using fuzz::require;

namespace {

constexpr std::size_t most_calls = 32;

class silent_client final : public rpc::reverse_channel {
public:
    explicit silent_client(buffer_pool& pool) : pool_(pool) {}
    task<result<rpc::reply>> call(rpc::request&) override { co_return error(std::errc::timed_out); }
    task<lease> acquire(std::size_t size) override { co_return co_await pool_.acquire(size); }
    bool open() const noexcept override { return true; }

private:
    buffer_pool& pool_;
};

class memory_call final : public rpc::call {
public:
    memory_call(buffer_pool& pool, const rpc::peer& from, std::span<const std::byte> message,
                std::size_t border, std::shared_ptr<rpc::reverse_channel> back)
        : message_(message), block_(inline_results), back_(std::move(back))
    {
        buffers_ = &pool;
        peer_ = &from;
        args_ = xdr::decoder(message.first(border), message.subspan(border), 0);
        results_ = xdr::encoder(block_);
    }
    task<result<rpc::payload>> pull(xdr::payload_ref ref) override
    {
        rpc::payload got;
        got.append(lease(), message_.subspan(ref.position, ref.length));
        co_return got;
    }
    std::shared_ptr<rpc::reverse_channel> reverse() override { return back_; }
    task<result<void>> join_arguments(std::size_t from) override
    {
        args_ = xdr::decoder(message_.subspan(from), {}, from);
        co_return result<void>();
    }
    task<bool> reserve_results(std::size_t size) override
    {
        if (size > results_.room()) {
            std::vector<std::byte> larger(results_.size() + size);
            results_.move_to(larger);
            block_ = std::move(larger);
        }
        co_return true;
    }
    /// The reply as it travels.
    std::vector<std::byte> reply() const
    {
        std::vector<std::byte> whole;
        const auto put = [&whole](std::span<const std::byte> bytes) {
            whole.insert(whole.end(), bytes.begin(), bytes.end());
        };
        require(results_.payloads().size() == attached().size());
        results_.in_order(put, [&](std::size_t i) {
            require(results_.payloads()[i].length == attached()[i].size());
            for (const auto piece : attached()[i].bytes.pieces())
                put(piece);
            whole.resize(xdr::padded(whole.size()));
        });
        return whole;
    }

private:
    std::span<const std::byte> message_;
    std::vector<std::byte> block_;
    std::shared_ptr<rpc::reverse_channel> back_;
};

class short_names final : public name_source {
public:
    task<result<std::string>> domain() override { co_return std::string("d"); }
    task<result<std::optional<std::uint32_t>>> find_id(account_kind, std::string name) override
    {
        require(!name.empty() && name.size() <= 256 && name.find('\0') == name.npos);
        co_return name == "a" ? std::optional<std::uint32_t>(1) : std::nullopt;
    }
    task<result<std::optional<std::string>>> find_name(account who) override
    {
        co_return std::optional<std::string>('u' + std::to_string(who.id));
    }
};

class world {
public:
    world()
    {
        memfs::memfs_options o;
        o.root_mode = 0777;
        o.max_bytes = std::uint64_t(16) << 20;
        files_ = std::move(*memfs::open_memfs(o, lane_));
        nfs::export_options made;
        made.pseudo = "/export";
        made.backend = files_.get();
        made.pnfs = true;
        require(exports_.add(made).has_value());
        commons_.emplace(exports_, key_, std::array{&home_}, store_, files::state_options(), 1'700'000'000);
        commons_->minors[0] = true;
        user_names_options names;
        names.sends_names = true;
        users_.emplace(tasks_, names_, names);
        commons_->users = &*users_;
        const std::array<shard*, 1> all{&home_};
        service_.emplace(*commons_, all, pnfs::service::options());
        service_->add_way("loop", *device_, [](std::string_view) { return std::string("data"); });
        commons_->pnfs = &*service_;
        program_.emplace(*commons_, home_);
        dispatcher_.add(*program_);
        EXCHANGE_ID4args exchange;
        static constexpr std::array<std::byte, 4> name{};
        exchange.clientowner.ownerid = std::span<const std::byte>(name);
        const auto known = take<EXCHANGE_ID4res>(alone(exchange));
        CREATE_SESSION4args create;
        create.clientid = known.clientid;
        create.sequence = known.sequenceid;
        create.fore_chan_attrs = {0, 1 << 20, 1 << 16, 2048, 16, 2, std::nullopt};
        create.flags = create_session4::conn_back_chan;
        create.back_chan_attrs = {0, 4096, 4096, 0, 2, 1, std::nullopt};
        const std::array<callback_sec_parms4, 1> parms{};
        create.sec_parms = std::span<const callback_sec_parms4>(parms);
        session_ = take<CREATE_SESSION4res>(alone(create)).sessionid;
        std::array<std::byte, 8> reclaimed{};
        reclaimed[3] = std::byte(nfs_opnum4::reclaim_complete);
        (void)call(1, false, true, reclaimed);
        // A client of version 4.0, whose number is the same each time.
        minor_ = 0;
        SETCLIENTID4args set;
        set.id = std::span<const std::byte>(name);
        const auto number = take<SETCLIENTID4res>(alone(set));
        (void)alone(SETCLIENTID_CONFIRM4args{number.clientid, number.setclientid_confirm});
        xdr::store_u64(client_.data(), number.clientid);
    }
    ~world()
    {
        program_.reset();
        commons_.reset();
        require(pool_.outstanding() == 0);
    }
    void call(std::uint8_t head, std::span<const std::byte> operations)
    {
        const bool alone = (head & 0x80) != 0;
        const bool kept = (head & 0x40) != 0;
        minor_ = (head & 0x20) == 0 ? 1 : alone ? 0 : 2;
        const std::uint32_t announced = head & 0x1f;
        const auto first = call(announced, kept, !alone, operations);
        if (minor_ == 0 && kept && is_answered_) {
            --xid_;
            const auto again = call(announced, kept, false, operations);
            require(first.size() > 4096 || std::ranges::equal(again, first));
        }
        check(first);
        if (!kept || alone || status_of_sequence(first) != nfsstat4::ok)
            return;
        --sequence_;
        --xid_;
        const auto again = call(announced, kept, true, operations);
        // Unless it ended the session.
        require(std::ranges::equal(again, first) || status_of_sequence(again) == nfsstat4::badsession);
    }

private:
    static nfsstat4 status_of_sequence(std::span<const std::byte> reply)
    {
        const std::size_t at = rpc::success_header_size + 16; // status, tag, number, opcode
        return reply.size() < at + 4 ? nfsstat4::badsession : nfsstat4(xdr::load_u32(reply.data() + at));
    }
    void check(std::span<const std::byte> reply)
    {
        if (reply.size() <= rpc::success_header_size)
            return; // RPC refused it
        require(reply.size() % 4 == 0);
        xdr::decoder in(reply.subspan(rpc::success_header_size));
        const auto status = nfsstat4(in.u32());
        require(in.string(0).empty());
        const std::uint32_t operations = in.u32();
        nfsstat4 last = nfsstat4::ok;
        for (std::uint32_t i = 0; i < operations; ++i) {
            require(last == nfsstat4::ok);
            const auto opcode = nfs_opnum4(in.u32());
            if (opcode == nfs_opnum4::illegal) {
                last = nfsstat4(in.u32());
                continue;
            }
            const bool known =
                compound_operations::results::with(opcode, [&]<class Results>(Results results) {
                    xdr::codec<Results>::decode(in, results);
                    last = results.status;
                    note_stateid(results);
                    if constexpr (std::is_same_v<Results, READDIR4res>) {
                        readdir_reader reader(in);
                        entry4 entry;
                        while (last == nfsstat4::ok && reader.next(entry)) {
                        }
                    }
                });
            require(known && in.ok());
        }
        require(last == status && in.at_end());
    }
    template<class Results>
    void note_stateid(const Results& results)
    {
        if (results.status != nfsstat4::ok)
            return;
        if constexpr (std::is_same_v<Results, OPEN4res>)
            last_ = results.stateid.other;
        else if constexpr (std::is_same_v<Results, OPEN_CONFIRM4res>)
            last_ = results.open_stateid.other;
        else if constexpr (std::is_same_v<Results, LOCK4res>)
            last_ = results.lock_stateid.other;
        else if constexpr (std::is_same_v<Results, LAYOUTGET4res>)
            last_ = results.stateid.other;
    }
    /// What the input can't know.
    static void put_in_place(std::span<std::byte> in, std::string_view of, std::span<const std::byte> value)
    {
        const auto wanted = std::as_bytes(std::span(of));
        for (auto rest = in;;) {
            const auto found = std::ranges::search(rest, wanted);
            if (found.empty())
                return;
            std::ranges::copy(value, found.begin());
            rest = std::span(found.end(), in.end());
        }
    }
    template<class Args>
    std::vector<std::byte> alone(const Args& args)
    {
        std::vector<std::byte> bytes(512);
        xdr::encoder out(bytes);
        out.u32(static_cast<std::uint32_t>(Args::opcode));
        xdr::codec<Args>::encode(out, args);
        bytes.resize(out.size());
        return call(1, false, false, bytes);
    }
    template<class Results>
    static Results take(std::span<const std::byte> reply)
    {
        xdr::decoder in(reply.subspan(rpc::success_header_size));
        compound_reply results(in);
        Results res;
        require(results.read(res));
        return res;
    }
    std::vector<std::byte> call(std::uint32_t announced, bool kept, bool with_sequence,
                                std::span<const std::byte> operations)
    {
        std::vector<std::byte> message(256 + operations.size());
        xdr::encoder out(message);
        rpc::call_header header;
        header.xid = ++xid_;
        header.program = program;
        header.version = version;
        header.procedure = 1;
        encode(out, header);
        out.u32(0);
        out.u32(minor_);
        out.u32(announced + (with_sequence ? 1 : 0));
        if (with_sequence) {
            out.u32(static_cast<std::uint32_t>(nfs_opnum4::sequence));
            const SEQUENCE4args args{session_, ++sequence_, 0, 0, kept};
            xdr::codec<SEQUENCE4args>::encode(out, args);
        }
        const std::size_t at = out.size();
        out.opaque_fixed(operations);
        require(out.ok());
        const auto written = std::span(message).subspan(at, operations.size());
        if (minor_ == 0)
            put_in_place(written, "CLIENTID", client_);
        put_in_place(written, "LASTSTATEID.", last_);
        const std::size_t size = out.size();
        memory_call ahead(pool_, from_, std::span(message).first(size), size, nullptr);
        require(ahead.decode_header() == rpc::call_verdict::good);
        is_answered_ = program_->repeats(ahead) == rpc::repeat_rule::is_answered;
        // The RPC header and SEQUENCE are always in one piece.
        const std::size_t border = operations.size() % 2 == 0 ? size : size - operations.size() / 2;
        memory_call c(pool_, from_, std::span(message).first(size), border, back_);
        if (!run_until_complete(*shard_, dispatcher_.dispatch(c)))
            return {};
        is_answered_ = is_answered_ && c.results().payloads().empty(); // else it is not kept
        auto reply = c.reply();
        if (with_sequence && status_of_sequence(reply) != nfsstat4::ok)
            --sequence_;
        return reply;
    }
    static std::unique_ptr<reactor> make_reactor(virtual_clock& clock)
    {
        reactor_options o;
        o.clock = &clock;
        return std::move(*reactor::create(o));
    }

    virtual_clock clock_;
    std::unique_ptr<reactor> shard_ = make_reactor(clock_);
    memory_budget budget_{std::size_t(16) << 20};
    buffer_pool pool_{budget_, shard_.get()};
    scope tasks_{*shard_};
    shard home_{0, *shard_, pool_, tasks_};
    rpc::duplicate_request_cache repeats_{1};
    rpc::service_dispatcher dispatcher_{*shard_, &repeats_};
    rpc::peer from_{"127.0.0.1", "127.0.0.1:700", "tcp", 700};
    blocking_pool lane_{1};
    std::unique_ptr<storage::file_backend> files_;
    nfs::export_table exports_;
    nfs::handle_key key_{};
    files::no_recovery_store store_;
    short_names names_;
    std::optional<user_names> users_;
    std::unique_ptr<loop::fabric> fabric_ = loop::make_fabric(*shard_, {});
    std::unique_ptr<loop::device> device_ = fabric_->make_device({});
    std::shared_ptr<rpc::reverse_channel> back_ = std::make_shared<silent_client>(pool_);
    std::optional<pnfs::service> service_; // outlives what follows
    std::optional<server_commons> commons_;
    std::optional<server> program_;
    sessionid4 session_{};
    std::uint32_t sequence_ = 0;
    std::uint32_t minor_ = 1;
    std::uint32_t xid_ = 0;
    bool is_answered_ = false;
    std::array<std::byte, 8> client_{};
    std::array<std::byte, 12> last_{};
};

} // namespace

VERBENA_FUZZ_TARGET(nfs4_server)
{
    auto rest = fuzz::bytes_of(data, size);
    world w;
    for (std::size_t calls = 0; calls < most_calls && rest.size() >= 3; ++calls) {
        const auto head = static_cast<std::uint8_t>(rest[0]);
        const std::size_t length =
            std::min<std::size_t>(std::size_t(rest[1]) << 8 | std::size_t(rest[2]), rest.size() - 3);
        w.call(head, rest.subspan(3, length));
        rest = rest.subspan(3 + length);
    }
    return 0;
}
