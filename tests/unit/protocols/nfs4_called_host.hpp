// SPDX-License-Identifier: Apache-2.0
// Hosts of clients of minor version 0: what listens at their ports for the server's calls, and what it answers.
#pragma once

#include "nfs4_v40_client.hpp"

#include <verbena/core/sleep.hpp>
#include <verbena/protocols/nfs/v4/callback.hpp>
#include <verbena/protocols/nfs/v4/callback_paths.hpp>
#include <verbena/protocols/rpc/auth_sys.hpp>

#include <functional>
#include <map>

namespace verbena::test {

class called_hosts final : public callback_connector {
public:
    struct heard {
        std::uint32_t program = 0;
        rpc::auth_flavor flavor{};
        std::uint32_t uid = 0, gid = 0;
        std::uint32_t minor = 0, ident = 0, operations = 0;
        nfs_cb_opnum4 operation{};
        stateid4 id;
        std::vector<std::byte> handle;
        bool truncate = false;
    };
    /// What listens at one address and port.
    struct listener {
        bool refuses = false;        ///< connections
        bool hangs = false;          ///< likewise: they are never made
        bool silent = false;         ///< answers nothing
        bool silent_recalls = false; ///< answers CB_NULL alone
        bool rejects = false;        ///< there is no such program
        bool babbles = false;        ///< an answer to something else
        int breaks = 0;              ///< connections under the next calls that are not CB_NULL
        nfsstat4 says = nfsstat4::ok;
        attributes values; ///< of CB_GETATTR
        std::function<void()> on_recall;

        int connections = 0; ///< that were tried
        int open = 0;
        int nulls = 0;
        std::vector<heard> calls; ///< but CB_NULL
    };

    explicit called_hosts(buffer_pool& pool) : pool_(pool) {}
    listener& at(const std::string& address) { return listeners_[address]; }
    int connections() const
    {
        int all = 0;
        for (const auto& [address, l] : listeners_)
            all += l.connections;
        return all;
    }

    result<std::unique_ptr<rpc::client_transport>> make(const universal_address& to) override
    {
        if (to.over == universal_address::transport::rdma)
            return error(std::errc::protocol_not_supported);
        return std::unique_ptr<rpc::client_transport>(
            std::make_unique<connection>(pool_, listeners_[to.at.to_string()]));
    }

private:
    class connection final : public rpc::client_transport {
    public:
        connection(buffer_pool& pool, listener& to) : pool_(pool), to_(to) {}
        ~connection() override
        {
            BOOST_TEST(closed_);
            BOOST_TEST(inside_ == 0);
        }
        task<result<void>> connect() override
        {
            ++to_.connections;
            (void)co_await sleep_for(duration::zero());
            if (to_.hangs) {
                co_await sleep_for(1h);
                co_return error(std::errc::operation_canceled);
            }
            if (to_.refuses)
                co_return error(std::errc::connection_refused);
            ++to_.open;
            is_open_ = true;
            co_return result<void>();
        }
        task<result<rpc::reply>> call(rpc::request& r) override
        {
            ++inside_;
            task<result<rpc::reply>> answering = answer(r);
            result<rpc::reply> got = co_await answering;
            --inside_;
            left_.set();
            co_return std::move(got);
        }
        task<void> close() override
        {
            if (is_open_)
                --to_.open;
            is_open_ = false;
            closed_ = true;
            ended_.set();
            while (inside_ != 0) {
                left_.reset();
                co_await left_.wait_shielded();
            }
        }
        task<lease> acquire(std::size_t size) override { co_return co_await pool_.acquire(size); }
        std::string_view name() const noexcept override { return "hosts"; }
        std::uint64_t connections() const noexcept override { return 1; }
        bool answered() const noexcept override { return true; }

    private:
        task<result<rpc::reply>> answer(rpc::request& r)
        {
            const auto bytes = r.message().bytes();
            const std::vector<std::byte> text(bytes.begin(), bytes.end());
            xdr::decoder in(text);
            rpc::call_header header;
            BOOST_REQUIRE(decode(in, header) == rpc::call_verdict::good);
            BOOST_TEST(header.version == 1u);
            if (closed_)
                co_return error(std::errc::operation_canceled);
            const bool is_null = header.procedure == 0;
            if (is_null)
                ++to_.nulls;
            else
                hear(header, in);
            if (!is_null && to_.breaks > 0) {
                --to_.breaks;
                co_return error(std::errc::connection_reset);
            }
            if (to_.silent || (to_.silent_recalls && !is_null)) {
                (void)co_await ended_.wait();
                co_return error(std::errc::operation_canceled);
            }
            std::vector<std::byte> said(1024);
            xdr::encoder out(said);
            encode(out,
                   rpc::reply_header::accepted_with(1, to_.rejects ? rpc::accept_status::program_unavailable
                                                                   : rpc::accept_status::success));
            if (!is_null && !to_.rejects)
                write(out);
            lease block = pool_.try_acquire(1024);
            std::ranges::copy(said, block.data());
            const std::span<const std::byte> written(block.data(), out.size());
            rpc::reply answer(std::move(block), written, {}, false);
            const auto good = answer.decode_header();
            if (!good)
                co_return good.error();
            co_return std::move(answer);
        }
        void hear(const rpc::call_header& header, xdr::decoder& in)
        {
            heard& h = to_.calls.emplace_back();
            h.program = header.program;
            h.flavor = header.credential.flavor;
            if (h.flavor == rpc::auth_flavor::sys) {
                const auto user = rpc::decode_auth_sys(header.credential.body);
                BOOST_REQUIRE(user);
                h.uid = user->uid;
                h.gid = user->gid;
            }
            callback_arguments args(in);
            BOOST_TEST_REQUIRE(args.ok());
            h.minor = args.head().minorversion;
            h.ident = args.head().callback_ident;
            h.operations = args.head().operations;
            BOOST_TEST_REQUIRE(args.next());
            h.operation = args.opcode();
            if (h.operation == nfs_cb_opnum4::recall) {
                CB_RECALL4args recall;
                BOOST_TEST_REQUIRE(args.read(recall));
                h.id = recall.stateid;
                h.truncate = recall.truncate;
                h.handle.assign(recall.fh.begin(), recall.fh.end());
                if (to_.on_recall)
                    to_.on_recall();
            } else {
                CB_GETATTR4args getattr;
                BOOST_TEST_REQUIRE((h.operation == nfs_cb_opnum4::getattr));
                BOOST_TEST_REQUIRE(args.read(getattr));
                h.handle.assign(getattr.fh.begin(), getattr.fh.end());
            }
        }
        void write(xdr::encoder& out) const
        {
            callback_results results(out, {});
            const nfs_cb_opnum4 operation = to_.calls.back().operation;
            if (to_.babbles)
                return (void)results.add(CB_SEQUENCE4res());
            if (to_.says != nfsstat4::ok)
                return results.fail(operation, to_.says);
            if (operation == nfs_cb_opnum4::recall)
                return (void)results.add(CB_RECALL4res());
            const encoded said(to_.values);
            CB_GETATTR4res res;
            res.obj_attributes = said.raw;
            (void)results.add(res);
        }
        buffer_pool& pool_;
        listener& to_;
        event ended_, left_;
        int inside_ = 0;
        bool is_open_ = false, closed_ = false;
    };
    buffer_pool& pool_;
    std::map<std::string, listener> listeners_;
};

} // namespace verbena::test
