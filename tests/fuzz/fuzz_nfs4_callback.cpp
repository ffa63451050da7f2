// SPDX-License-Identifier: Apache-2.0
// Calls of a server to a client of NFS version 4.1. The input is a sequence of calls, each of them:
//
//   0      operations that it announces; the high bit leaves out CB_SEQUENCE, the next one repeats the call, and the one below makes it a call
//          of minor version 2
//   1      the slot, in the low four bits; the high bit takes another number than the next one, the next bit names a call that is referred to
//   2..3   bytes that follow, big endian
//   4..    operations as they travel, behind CB_SEQUENCE
//
// Whatever comes, each reply is whole, it says what its last operation said, a repeat is answered with the same bytes, and an error of CB_SEQUENCE
// leaves the slot as it was.

#include "fuzz.hpp"

#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/nfs/client/v4/callback_service.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <array>
#include <vector>

using namespace verbena;
using namespace verbena::nfs::v4;
using fuzz::require;

namespace {

constexpr std::size_t most_calls = 32;
constexpr std::uint32_t granted = 2; // slots

class memory_call final : public rpc::call {
public:
    memory_call(buffer_pool& pool, const rpc::peer& from, std::span<const std::byte> message)
        : message_(message), block_(4096)
    {
        buffers_ = &pool;
        peer_ = &from;
        args_ = xdr::decoder(message);
        results_ = xdr::encoder(block_);
    }
    task<result<rpc::payload>> pull(xdr::payload_ref ref) override
    {
        co_return rpc::payload(lease(), message_.subspan(ref.position, ref.length));
    }
    task<bool> reserve_results(std::size_t size) override { co_return size <= results_.room(); }

private:
    std::span<const std::byte> message_;
    std::vector<std::byte> block_;
};

class world final : called_session {
public:
    world()
    {
        slots_.reset(granted);
        service_.add(*this);
    }
    ~world()
    {
        service_.remove(*this);
        require(pool_.outstanding() == 0);
    }
    void call(std::uint8_t head, std::uint8_t how, std::span<const std::byte> operations)
    {
        const bool alone = (head & 0x80) != 0;
        const std::uint32_t slot = how & 0xf;
        const std::uint32_t before = slot < granted ? sequences_[slot] : 0;
        const std::uint32_t number = (how & 0x80) != 0 ? before + 2 : before + 1;
        minor_ = (head & 0x20) != 0 ? 2 : 1;
        awaits_ = (how & 0x40) != 0;
        const auto message = written(head & 0x1f, alone, slot, number, operations);
        const auto first = answer(message);
        check(first);
        awaits_ = false;
        if (alone)
            return;
        const bool ran = status_of_sequence(first) == nfsstat4::ok;
        require(!ran || (slot < granted && number == before + 1 && (how & 0x40) == 0));
        if (ran)
            sequences_[slot] = number;
        if ((head & 0x40) == 0)
            return;
        const int recalls = recalls_;
        const auto again = answer(message);
        if (ran) {
            require(std::ranges::equal(again, first) && recalls == recalls_);
        } else if (status_of_sequence(again) == nfsstat4::ok) {
            require((how & 0x40) != 0); // it waited for a call
            sequences_[slot] = number;
        }
    }

private:
    bool is_session(const sessionid4& id) const noexcept override { return id == sessionid4{}; }
    bool is_being_made() const noexcept override { return false; }
    std::uint32_t minor_of_callbacks() const noexcept override { return minor_; }
    callback_slots& slots_of_callbacks() noexcept override { return slots_; }
    bool awaits_answer(const referring_call4&) const noexcept override { return awaits_; }
    nfsstat4 recalled(const CB_RECALL4args& args) override
    {
        ++recalls_;
        return args.truncate ? nfsstat4::bad_stateid : nfsstat4::ok;
    }
    nfsstat4 recalled(const CB_RECALL_ANY4args&) override
    {
        ++recalls_;
        return nfsstat4::ok;
    }
    nfsstat4 recalled(const CB_RECALL_SLOT4args&) override
    {
        ++recalls_;
        return nfsstat4::ok;
    }
    nfsstat4 tell(const CB_GETATTR4args& args, attributes& out) override
    {
        if (args.fh.size() == 0)
            return nfsstat4::badhandle;
        out.change = 1;
        out.size = 2;
        out.present.set(attribute::change);
        out.present.set(attribute::size);
        return nfsstat4::ok;
    }
    void notified(const CB_NOTIFY_LOCK4args&) noexcept override { ++recalls_; }

    std::vector<std::byte> written(std::uint32_t announced, bool alone, std::uint32_t slot,
                                   std::uint32_t number, std::span<const std::byte> operations)
    {
        std::vector<std::byte> message(512 + operations.size());
        xdr::encoder out(message);
        rpc::call_header header;
        header.xid = 1;
        header.program = callback_service::program;
        header.version = callback_version;
        header.procedure = 1;
        encode(out, header);
        out.u32(0);
        out.u32(minor_);
        out.u32(0); // callback_ident
        out.u32(announced + (alone ? 0 : 1));
        if (!alone) {
            const std::array<referring_call4, 1> calls{{{1, 0}}};
            std::array<referring_call_list4, 1> lists;
            lists[0].referring_calls = std::span<const referring_call4>(calls);
            CB_SEQUENCE4args args;
            args.sequenceid = number;
            args.slotid = slot;
            if (awaits_)
                args.referring_call_lists = std::span<const referring_call_list4>(lists);
            out.u32(static_cast<std::uint32_t>(nfs_cb_opnum4::sequence));
            xdr::codec<CB_SEQUENCE4args>::encode(out, args);
        }
        out.opaque_fixed(operations);
        require(out.ok());
        message.resize(out.size());
        return message;
    }
    std::vector<std::byte> answer(std::span<const std::byte> message)
    {
        memory_call c(pool_, from_, message);
        if (!run_until_complete(*shard_, service_.dispatch(c)))
            return {};
        require(c.results().ok());
        return {c.results().bytes().begin(), c.results().bytes().end()};
    }
    static nfsstat4 status_of_sequence(std::span<const std::byte> reply)
    {
        const std::size_t at = rpc::success_header_size + 16; // status, tag, number, opcode
        return reply.size() < at + 4 ? nfsstat4::badsession : nfsstat4(xdr::load_u32(reply.data() + at));
    }
    static void check(std::span<const std::byte> reply)
    {
        if (reply.size() <= rpc::success_header_size)
            return; // RPC refused it
        require(reply.size() % 4 == 0);
        require(reply.size() <= rpc::success_header_size + callback_slots::max_kept);
        xdr::decoder in(reply.subspan(rpc::success_header_size));
        const auto status = nfsstat4(in.u32());
        require(in.string(0).empty());
        const std::uint32_t operations = in.u32();
        nfsstat4 last = nfsstat4::ok;
        for (std::uint32_t i = 0; i < operations; ++i) {
            require(last == nfsstat4::ok);
            const auto opcode = nfs_cb_opnum4(in.u32());
            if (opcode == nfs_cb_opnum4::illegal) {
                last = nfsstat4(in.u32());
                continue;
            }
            const bool known =
                callback_operations::results::with(opcode, [&]<class Results>(Results results) {
                    xdr::codec<Results>::decode(in, results);
                    last = results.status;
                });
            require(known && in.ok());
        }
        require(last == status && in.at_end());
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
    callback_service service_{*shard_};
    rpc::peer from_{"127.0.0.1", "127.0.0.1:2049", "tcp", 2049};
    callback_slots slots_;
    std::array<std::uint32_t, granted> sequences_{};
    std::uint32_t minor_ = 1;
    bool awaits_ = false;
    int recalls_ = 0;
};

} // namespace

VERBENA_FUZZ_TARGET(nfs4_callback)
{
    auto rest = fuzz::bytes_of(data, size);
    world w;
    for (std::size_t calls = 0; calls < most_calls && rest.size() >= 4; ++calls) {
        const auto head = static_cast<std::uint8_t>(rest[0]);
        const auto how = static_cast<std::uint8_t>(rest[1]);
        const std::size_t length =
            std::min<std::size_t>(std::size_t(rest[2]) << 8 | std::size_t(rest[3]), rest.size() - 4);
        w.call(head, how, rest.subspan(4, length));
        rest = rest.subspan(4 + length);
    }
    return 0;
}
