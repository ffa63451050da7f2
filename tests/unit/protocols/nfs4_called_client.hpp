// SPDX-License-Identifier: Apache-2.0
// A client that the server calls: it hears what comes over its connection, keeps to the rules of slots, and answers as it is told.
#pragma once

#include "nfs4_server.hpp"

#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/nfs/wire/v4/callback.hpp>
#include <verbena/protocols/rpc/auth_sys.hpp>

#include <functional>

namespace verbena::test {

class called_client final : public rpc::reverse_channel {
public:
    struct heard {
        std::uint32_t program = 0;
        rpc::auth_flavor flavor{};
        std::uint32_t uid = 0;
        std::uint32_t minor = 0;
        sessionid4 session{};
        std::uint32_t slot = 0;
        std::uint32_t sequence = 0;
        nfs_cb_opnum4 operation{};
        stateid4 id;
        std::vector<std::byte> handle;
        std::uint32_t keep = 0;
        bitmap4 kinds; ///< of CB_RECALL_ANY
        std::string owner;
        clientid4 owner_client = 0;
        CB_LAYOUTRECALL4args layout; ///< without its handle
    };
    explicit called_client(buffer_pool& pool) : pool_(pool) {}

    task<result<rpc::reply>> call(rpc::request& r) override
    {
        if (!is_open)
            co_return error(std::errc::not_connected);
        const auto bytes = r.message().bytes();
        const std::vector<std::byte> text(bytes.begin(), bytes.end());
        heard h;
        const nfsstat4 of_slot = hear(text, h);
        calls.push_back(h);
        if (on_call)
            on_call();
        const std::vector<std::byte> said = answer_to(h, of_slot);
        if (silent || loses_answers > 0) {
            loses_answers -= loses_answers > 0 ? 1 : 0;
            co_await sleep_for(10s);
            co_return error(std::errc::timed_out);
        }
        lease block = pool_.try_acquire(1024);
        std::ranges::copy(said, block.data());
        const std::span<const std::byte> written(block.data(), said.size());
        rpc::reply answer(std::move(block), written, {}, false);
        (void)answer.decode_header();
        co_return std::move(answer);
    }
    task<lease> acquire(std::size_t size) override { co_return co_await pool_.acquire(size); }
    bool open() const noexcept override { return is_open; }

    attributes values; ///< what it says of a file that it holds
    bool is_open = true;
    bool silent = false;
    int loses_answers = 0;
    bool replays = false; ///< gives the answer that it kept, whatever is asked with the same number
    bool says_sequence_only = false; ///< and that all went well
    nfsstat4 says_of_sequence = nfsstat4::ok;
    nfsstat4 says = nfsstat4::ok;
    std::uint32_t slots = 16;
    std::map<std::uint32_t, std::uint32_t> last; // sequence of each slot
    std::vector<heard> calls;
    std::function<void()> on_call;

private:
    std::vector<std::byte> answer_to(const heard& h, nfsstat4 of_slot)
    {
        if (replays && of_slot == nfsstat4::retry_uncached_rep)
            return kept_[h.slot];
        std::vector<std::byte> bytes(1024);
        xdr::encoder out(bytes);
        encode(out, rpc::reply_header::accepted_with(1, rpc::accept_status::success));
        callback_results results(out, {});
        CB_SEQUENCE4res sequence;
        sequence.sessionid = h.session;
        sequence.sequenceid = h.sequence;
        const bool repeated = of_slot == nfsstat4::retry_uncached_rep;
        const nfsstat4 status = says_of_sequence != nfsstat4::ok ? says_of_sequence
                                : repeated                       ? nfsstat4::ok
                                                                 : of_slot;
        if (status != nfsstat4::ok) {
            results.fail(nfs_cb_opnum4::sequence, status);
        } else {
            (void)results.add(sequence);
            const nfsstat4 of_operation = repeated ? nfsstat4::retry_uncached_rep : says;
            if (of_operation != nfsstat4::ok)
                results.fail(h.operation, of_operation);
            else if (!says_sequence_only)
                answer(h.operation, results);
        }
        bytes.resize(out.size());
        return kept_[h.slot] = bytes;
    }
    void answer(nfs_cb_opnum4 operation, callback_results& results) const
    {
        switch (operation) {
        case nfs_cb_opnum4::recall: return (void)results.add(CB_RECALL4res());
        case nfs_cb_opnum4::notify_lock: return (void)results.add(CB_NOTIFY_LOCK4res());
        case nfs_cb_opnum4::layoutrecall: return (void)results.add(CB_LAYOUTRECALL4res());
        case nfs_cb_opnum4::getattr: {
            const encoded said(values);
            CB_GETATTR4res res;
            res.obj_attributes = said.raw;
            return (void)results.add(res);
        }
        default: return (void)results.add(CB_RECALL_ANY4res());
        }
    }
    nfsstat4 hear(const std::vector<std::byte>& text, heard& h)
    {
        xdr::decoder in(text);
        rpc::call_header header;
        BOOST_REQUIRE(decode(in, header) == rpc::call_verdict::good);
        BOOST_TEST(header.version == 1u);
        BOOST_TEST(header.procedure == 1u);
        h.program = header.program;
        h.flavor = header.credential.flavor;
        if (h.flavor == rpc::auth_flavor::sys)
            h.uid = rpc::decode_auth_sys(header.credential.body)->uid;
        callback_arguments args(in);
        BOOST_TEST_REQUIRE(args.ok());
        h.minor = args.head().minorversion;
        BOOST_TEST_REQUIRE(args.next());
        CB_SEQUENCE4args sequence;
        BOOST_TEST_REQUIRE(args.read(sequence));
        BOOST_TEST(!sequence.cachethis);
        h.session = sequence.sessionid;
        h.slot = sequence.slotid;
        h.sequence = sequence.sequenceid;
        BOOST_TEST_REQUIRE(args.next());
        h.operation = args.opcode();
        if (h.operation == nfs_cb_opnum4::recall) {
            CB_RECALL4args recall;
            BOOST_TEST_REQUIRE(args.read(recall));
            h.id = recall.stateid;
            h.handle.assign(recall.fh.begin(), recall.fh.end());
        } else if (h.operation == nfs_cb_opnum4::notify_lock) {
            CB_NOTIFY_LOCK4args lock;
            BOOST_TEST_REQUIRE(args.read(lock));
            h.handle.assign(lock.fh.begin(), lock.fh.end());
            h.owner_client = lock.lock_owner.clientid;
            const std::span<const std::byte> owner = lock.lock_owner.owner;
            h.owner.assign(reinterpret_cast<const char*>(owner.data()), owner.size());
        } else if (h.operation == nfs_cb_opnum4::layoutrecall) {
            BOOST_TEST_REQUIRE(args.read(h.layout));
            h.id = h.layout.recall.stateid;
            h.handle.assign(h.layout.recall.fh.begin(), h.layout.recall.fh.end());
        } else if (h.operation == nfs_cb_opnum4::getattr) {
            CB_GETATTR4args getattr;
            BOOST_TEST_REQUIRE(args.read(getattr));
            h.handle.assign(getattr.fh.begin(), getattr.fh.end());
            BOOST_TEST(getattr.attr_request.test(attribute::change));
            BOOST_TEST(getattr.attr_request.test(attribute::size));
        } else {
            CB_RECALL_ANY4args any;
            BOOST_TEST_REQUIRE(args.read(any));
            h.keep = any.objects_to_keep;
            h.kinds = any.type_mask;
        }
        if (says_of_sequence != nfsstat4::ok)
            return nfsstat4::ok;
        if (h.slot >= slots)
            return nfsstat4::badslot;
        std::uint32_t& before = last[h.slot];
        if (h.sequence == before)
            return nfsstat4::retry_uncached_rep;
        if (h.sequence != before + 1)
            return nfsstat4::seq_misordered;
        before = h.sequence;
        return nfsstat4::ok;
    }
    buffer_pool& pool_;
    std::map<std::uint32_t, std::vector<std::byte>> kept_; // answers, by slot
};

/// Clients whose sessions have a back channel over `way`.
struct called_fixture : nfs4_fixture {
    called_fixture()
    {
        channel = std::make_shared<called_client>(pool);
        way = channel;
    }
    std::uint32_t back_slots = 1; ///< that a session offers
    CREATE_SESSION4args session_of(const client4& c, std::uint32_t uid = 5)
    {
        CREATE_SESSION4args args = client4::session_of(c.id, c.create_sequence);
        args.flags = create_session4::conn_back_chan;
        args.back_chan_attrs.maxrequests = back_slots;
        args.cb_program = 0x40000000;
        parms.resize(2);
        parms[0].cb_secflavor = 0;
        parms[1].cb_secflavor = 1;
        parms[1].sys_cred.uid = uid;
        args.sec_parms = std::span<const callback_sec_parms4>(parms);
        return args;
    }
    /// A client with a session that has a back channel.
    void connect(client4& c)
    {
        answer4 known = compound(c.exchange());
        const auto exchanged = known.good<EXCHANGE_ID4res>();
        c.id = exchanged.clientid;
        c.create_sequence = exchanged.sequenceid;
        open_session(c);
        BOOST_TEST_REQUIRE(c.call(client4::reclaimed()).status() == nfsstat4::ok);
    }
    CREATE_SESSION4res open_session(client4& c)
    {
        answer4 made = compound(session_of(c));
        const auto res = made.good<CREATE_SESSION4res>();
        ++c.create_sequence;
        c.session = res.sessionid;
        c.sequences.clear();
        return res;
    }
    std::uint32_t flags(client4& c)
    {
        answer4 out = compound(c.sequence());
        return out.good<SEQUENCE4res>().status_flags;
    }
    std::vector<callback_sec_parms4> parms;
    std::shared_ptr<called_client> channel;
};

} // namespace verbena::test
