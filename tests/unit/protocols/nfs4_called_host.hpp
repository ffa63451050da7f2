// SPDX-License-Identifier: Apache-2.0
// Hosts of clients of minor version 0: what listens at their ports for the server's calls, and what it answers.
#pragma once

#include "nfs4_v40_client.hpp"

#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/nfs/server/v4/callback_paths.hpp>
#include <verbena/protocols/nfs/wire/v4/callback.hpp>
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
        bool rambles = false; ///< answers calls that are not CB_NULL with more than anybody wants to hear
        int throws = 0;       ///< as connections to it are made
        int breaks = 0;       ///< connections under the next calls that are not CB_NULL
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
        listener& there = listeners_[to.at.to_string()];
        if (there.throws > 0) {
            --there.throws;
            throw std::bad_alloc();
        }
        return std::unique_ptr<rpc::client_transport>(std::make_unique<connection>(pool_, there));
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
            if (!is_null && to_.rambles)
                co_return error(std::errc::message_size, "reply longer than max_reply");
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

/// Clients that are called at the hosts of `called`.
struct called_hosts_fixture : v40_fixture {
    called_hosts_fixture()
    {
        options[0].local_writers = false;
        hosts = &called;
        start();
        commons->minors[1] = true;
    }
    ~called_hosts_fixture()
    {
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
    }
    void begin()
    {
        serve();
        tend();
        turns();
    }
    /// A call of minor version 0 that is still running when this returns, unless nothing holds it up.
    template<class... Args>
    std::shared_ptr<memory_call> begin0(const Args&... args)
    {
        std::shared_ptr<memory_call> c = prepare(0, [&](compound_request& out) { (out.add(args), ...); });
        tasks.spawn([this, c]() -> task<void> {
            (void)co_await dispatcher->dispatch(*c);
            c->is_done = true;
        });
        turns();
        return c;
    }
    /// The file is there, and the client's owner confirmed.
    client0::opened make(client0& c, std::string_view name)
    {
        const auto made = c.ready(c.creating(name));
        BOOST_TEST(c.close(made).status == nfsstat4::ok);
        if (made.delegation.delegation_type != open_delegation_type4::none)
            BOOST_TEST(give_back(made) == nfsstat4::ok);
        pass(1ms);
        return made;
    }
    client0::opened delegated(client0& c, std::string_view name, std::uint32_t access = share4::access_read)
    {
        make(c, name);
        auto file = c.open(c.opening(name, access));
        BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
        BOOST_TEST_REQUIRE(file.delegation.delegation_type == ((access & share4::access_write) != 0
                                                                   ? open_delegation_type4::write
                                                                   : open_delegation_type4::read));
        BOOST_TEST(!file.delegation.recall);
        return file;
    }
    /// To write, which is in the way of any delegation; it is still waiting when this returns.
    std::shared_ptr<memory_call> take(client0& c, std::string_view name)
    {
        return begin0(PUTROOTFH4args(), LOOKUP4args{"export"}, c.opening(name));
    }
    nfsstat4 give_back(const client0::opened& file)
    {
        return compound(PUTFH4args{file.fh()}, DELEGRETURN4args{file.delegation.stateid}).status();
    }
    /// The client says another place, and is confirmed.
    void move(client0& c)
    {
        const auto set = c.set();
        BOOST_TEST_REQUIRE(set.status == nfsstat4::ok);
        BOOST_TEST_REQUIRE(c.confirm(set.clientid, set.setclientid_confirm) == nfsstat4::ok);
    }
    void start_with(std::size_t connections, std::size_t each)
    {
        limits.callback_connections = connections;
        limits.callback_connections_per_peer = each;
        commons.reset();
        program.reset();
        dispatcher.reset();
        start();
        begin();
    }
    std::uint64_t count(callback_counters::kind k, callback_counters::outcome o) const
    {
        return commons->callbacks.counters().calls[std::size_t(k)][std::size_t(o)].value();
    }
    callback_paths& paths() { return commons->v40.paths(); }

    called_hosts called{pool};
    called_hosts::listener& host = called.at("127.0.0.1:2049");
};

inline nfsstat4 status_of(memory_call& c)
{
    BOOST_TEST_REQUIRE(c.is_done);
    return nfs4_fixture::answer_of(c).status();
}

} // namespace verbena::test
