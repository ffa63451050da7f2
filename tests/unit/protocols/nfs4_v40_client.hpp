// SPDX-License-Identifier: Apache-2.0
// Clients of minor version 0, made by hand, and servers for them that may be started again.
#pragma once

#include "files_store.hpp"
#include "nfs4_server.hpp"

namespace verbena::test {

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

struct v40_fixture : nfs4_fixture {
    v40_fixture() { minor = 0; }
    void serve()
    {
        if (!program)
            start();
        commons->minors[0] = true;
        if (hosts != nullptr)
            commons->v40.paths().connect_by(*hosts);
    }
    callback_connector* hosts = nullptr; ///< else no client is called, and none has a delegation
};

/// A client of minor version 0 with one open owner and one lock owner.
class client0 {
public:
    client0(v40_fixture& f, std::string name, std::uint8_t boot = 1) : f_(f), name_(std::move(name))
    {
        verifier_[0] = std::byte(boot);
        f.serve();
    }
    SETCLIENTID4args setting() const
    {
        SETCLIENTID4args args;
        args.verifier = verifier_;
        args.id = bytes_of(name_);
        args.cb_program = program;
        args.cb_location.netid = std::string_view(netid);
        args.cb_location.addr = std::string_view(address);
        args.callback_ident = ident;
        return args;
    }
    SETCLIENTID4res set()
    {
        answer4 out = f_.compound(setting());
        return out.take<SETCLIENTID4res>();
    }
    nfsstat4 confirm(clientid4 number, const verifier4& verifier)
    {
        return f_.compound(SETCLIENTID_CONFIRM4args{number, verifier}).status();
    }
    void connect()
    {
        const SETCLIENTID4res res = set();
        BOOST_TEST_REQUIRE(res.status == nfsstat4::ok);
        BOOST_TEST_REQUIRE(confirm(res.clientid, res.setclientid_confirm) == nfsstat4::ok);
        id = res.clientid;
    }
    nfsstat4 renew() { return f_.compound(RENEW4args{id}).status(); }

    OPEN4args opening(std::string_view name, std::uint32_t access = share4::access_both,
                      std::uint32_t deny = share4::deny_none)
    {
        OPEN4args args;
        args.seqid = ++seqid;
        args.share_access = access;
        args.share_deny = deny;
        args.owner.clientid = id;
        args.owner.owner = bytes_of(owner);
        args.claim.file = name;
        return args;
    }
    OPEN4args creating(std::string_view name)
    {
        OPEN4args args = opening(name);
        args.openhow.opentype = opentype4::create;
        return args;
    }
    struct opened {
        nfsstat4 status = nfsstat4::ok;
        stateid4 id;
        std::vector<std::byte> handle;
        std::uint32_t rflags = 0;
        open_delegation4 delegation;
        std::span<const std::byte> fh() const noexcept { return handle; }
    };
    opened open(const OPEN4args& args)
    {
        answer4 out = f_.compound(PUTROOTFH4args(), LOOKUP4args{"export"}, args, GETFH4args());
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        opened made;
        const auto res = out.take<OPEN4res>();
        made.status = res.status;
        if (res.status == nfsstat4::ok) {
            BOOST_TEST(
                (f_.hosts != nullptr || res.delegation.delegation_type == open_delegation_type4::none));
            made.delegation = res.delegation;
            made.id = res.stateid;
            made.rflags = res.rflags;
            const auto handle = out.good<GETFH4res>();
            made.handle.assign(handle.object.begin(), handle.object.end());
        }
        return made;
    }
    OPEN_CONFIRM4res confirm(const opened& file) { return confirm(file, ++seqid); }
    OPEN_CONFIRM4res confirm(const opened& file, std::uint32_t number)
    {
        answer4 out = f_.compound(PUTFH4args{file.fh()}, OPEN_CONFIRM4args{file.id, number});
        out.good<PUTFH4res>();
        return out.take<OPEN_CONFIRM4res>();
    }
    /// Opened, and the owner confirmed where it must be.
    opened ready(const OPEN4args& args)
    {
        opened file = open(args);
        BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
        if ((file.rflags & open4_result::confirm) != 0) {
            const auto res = confirm(file);
            BOOST_TEST_REQUIRE(res.status == nfsstat4::ok);
            file.id = res.open_stateid;
        }
        return file;
    }
    CLOSE4res close(const opened& file, std::uint32_t number)
    {
        answer4 out = f_.compound(PUTFH4args{file.fh()}, CLOSE4args{number, file.id});
        out.good<PUTFH4res>();
        return out.take<CLOSE4res>();
    }
    CLOSE4res close(const opened& file) { return close(file, ++seqid); }
    LOCK4args locking(const opened& file, std::uint64_t offset, std::uint64_t length)
    {
        LOCK4args args;
        args.locktype = nfs_lock_type4::write;
        args.offset = offset;
        args.length = length;
        args.locker.new_lock_owner = true;
        args.locker.open_seqid = ++seqid;
        args.locker.open_stateid = file.id;
        args.locker.lock_seqid = lock_seqid;
        args.locker.lock_owner.clientid = id;
        args.locker.lock_owner.owner = bytes_of(locker);
        return args;
    }
    LOCK4args again(const stateid4& lock, std::uint64_t offset, std::uint64_t length)
    {
        LOCK4args args;
        args.locktype = nfs_lock_type4::write;
        args.offset = offset;
        args.length = length;
        args.locker.lock_stateid = lock;
        args.locker.lock_seqid = ++lock_seqid;
        return args;
    }
    LOCK4res lock(const opened& file, const LOCK4args& args)
    {
        answer4 out = f_.compound(PUTFH4args{file.fh()}, args);
        out.good<PUTFH4res>();
        return out.take<LOCK4res>();
    }
    nfsstat4 write(const opened& file, const stateid4& by)
    {
        return f_.compound(PUTFH4args{file.fh()}, WRITE4args{by, 0, stable_how4::unstable, bytes_of("text")})
            .status();
    }

    clientid4 id = 0;
    std::uint32_t seqid = 0, lock_seqid = 0;
    std::string owner = "opener", locker = "locker";
    std::string netid = "tcp", address = "127.0.0.1.8.1"; ///< where it is called
    std::uint32_t program = 0x40000000, ident = 77;

private:
    v40_fixture& f_;
    std::string name_;
    verifier4 verifier_{};
};

struct restarting_fixture : v40_fixture {
    explicit restarting_fixture(bool local_writers = true)
    {
        for (auto& made : options) {
            BOOST_REQUIRE(made.clients.add("*"));
            made.local_writers = local_writers;
        }
        start_again();
    }
    ~restarting_fixture() { stop(); }
    void start_again()
    {
        stop();
        auto keys = lists.begin();
        begun = {lists.epoch, std::move(keys), {}};
        memory.emplace(lists);
        store = &*memory;
        start();
        serve();
        serving.emplace(*shard);
        serving->spawn([this] { return commons->state.clients().tend(); });
        serving->spawn([this] { return commons->state.table().tend(); });
        serving->spawn([this] { return commons->tend(); });
    }
    void stop()
    {
        if (serving) {
            serving->request_stop();
            const auto end = [this]() -> task<void> { co_await serving->join(); };
            run_until_complete(*shard, end());
            serving.reset();
        }
        program.reset();
        dispatcher.reset();
        commons.reset();
    }
    recovery_lists lists;
    std::optional<memory_store> memory;
    std::optional<scope> serving;
};

} // namespace verbena::test
