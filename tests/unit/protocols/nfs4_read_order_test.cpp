// SPDX-License-Identifier: Apache-2.0
// A READ gives what the file held when it ran: not what a later operation of its COMPOUND made of it, nor what others wrote who came after
// its client let go of the file, however late the client receives the bytes. With the bytes in memory and in files, which posixfs has sent
// from the file itself where the transport can (call::sends_in_place()).
#include "../plugins/temporary_directory.hpp"
#include "busy_threads.hpp"
#include "nfs4_called_host.hpp"
#include "raw_requester.hpp"

#include <verbena/plugins/posixfs.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>

#include <algorithm>
#include <sys/socket.h>

BOOST_AUTO_TEST_SUITE(nfs4_read_order_test)

using namespace verbena;
using namespace verbena::test;
namespace data = boost::unit_test::data;

namespace {

constexpr std::uint32_t whole = 1 << 20; // bytes of a file
constexpr std::uint32_t changed = 300;   // at the end of what is read

/// What the files hold, and what is written over it.
const bytes old_content = [] {
    bytes made(whole);
    for (std::size_t i = 0; i < made.size(); ++i)
        made[i] = std::byte('a' + i * 7 % 23);
    return made;
}();
const bytes new_content(changed, std::byte('N'));

/// Counts the READs whose bytes stay in the file, those whose bytes are memory on loan, and those that take them.
class watched_files final : public storage::forwarding_backend {
public:
    explicit watched_files(storage::file_backend& below)
        : forwarding_backend(below, storage::filter_bytes::are_those_below)
    {
    }
    task<result<storage::read_result>> read(const storage::request& r, const storage::handle& file,
                                            std::uint64_t offset, std::span<std::byte> out) override
    {
        ++taken;
        return below().read(r, file, offset, out);
    }
    task<result<storage::located_read>> locate(const storage::request& r, const storage::handle& file,
                                               std::uint64_t offset, std::uint32_t count,
                                               storage::locatable where) override
    {
        auto there = co_await below().locate(r, file, offset, count, where);
        stay += there && there->here && there->memory.empty();
        lent += there && !there->memory.empty();
        co_return there;
    }
    int taken = 0, stay = 0, lent = 0;
};

struct opened_file {
    stateid4 id;
    bytes handle;
    PUTFH4args at() const { return {std::span<const std::byte>(handle)}; }
};

struct fixture : v40_fixture {
    fixture(const std::string& back_end, std::uint32_t minor_version, const std::string& by = "tcp",
            bool delegates = false)
    {
        if (delegates) {
            options[0].local_writers = false;
            hosts = &called;
        }
        if (back_end == "posixfs") {
            shard->add(threads);
            posixfs::posixfs_options o;
            o.root = directory.path();
            o.leases = false;
            on_disk = must(posixfs::open_posixfs(o, work));
        }
        watched.emplace(on_disk ? *on_disk : *files);
        options[0].backend = &*watched;
        for (nfs::export_options& o : options)
            BOOST_REQUIRE(o.clients.add("*"));
        start();
        minor = minor_version;
        if (minor == 0) {
            for (auto* c : {&mine0, &theirs0}) {
                c->emplace(*this, c == &mine0 ? "mine" : "theirs");
                (*c)->connect();
            }
        } else {
            mine4.connect();
            theirs4.connect();
        }
        a = open(true, "a");
        b = open(true, "b");
        fill(a);
        fill(b);
        if (by == "tcp")
            server = std::make_unique<rpc::stream_server>(*shard, pool, *dispatcher, rpc::stream_options());
        else
            peer.emplace(*shard, pool, *dispatcher, by);
    }
    ~fixture()
    {
        socket.reset();
        if (server)
            run_until_complete(*shard, server->shut_down(shard->clock().now()));
        server.reset();
        peer.reset();
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
        program.reset();
        commons.reset();
        watched.reset();
        on_disk.reset();
        work.finish();
        threads.unlink();
    }
    static std::unique_ptr<storage::file_backend> must(result<std::unique_ptr<storage::file_backend>> made)
    {
        BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
        return std::move(*made);
    }

    // --- Calls of two clients beside the transport: `first` is the one that reads

    template<class... Args>
    answer4 by(bool first, const Args&... args)
    {
        if (minor == 0)
            return compound(args...);
        client4& c = first ? mine4 : theirs4;
        answer4 out = compound(c.sequence(1), args...);
        out.good<SEQUENCE4res>();
        return out;
    }
    opened_file open(bool first, std::string_view name, std::uint32_t deny = share4::deny_none)
    {
        opened_file made;
        if (minor == 0) {
            client0& c = first ? *mine0 : *theirs0;
            OPEN4args args = c.creating(name);
            args.share_deny = deny;
            const client0::opened file = c.ready(args);
            made = {file.id, file.handle};
        } else {
            client4& c = first ? mine4 : theirs4;
            OPEN4args args = c.creating(name);
            args.share_deny = deny;
            const client4::opened file = c.open(args);
            BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
            made = {file.id, file.handle};
        }
        return made;
    }
    stateid4 lock(bool first, const opened_file& f, nfs_lock_type4 type = nfs_lock_type4::write)
    {
        LOCK4args args;
        if (minor == 0) {
            client0& c = first ? *mine0 : *theirs0;
            args = c.locking({nfsstat4::ok, f.id, f.handle, 0, {}}, 0, whole);
            ++c.lock_seqid;
        } else {
            args.length = whole;
            args.locker.new_lock_owner = true;
            args.locker.open_stateid = f.id;
            args.locker.lock_owner.owner = bytes_of("owner");
        }
        args.locktype = type;
        answer4 out = by(first, f.at(), args);
        out.good<PUTFH4res>();
        return out.good<LOCK4res>().lock_stateid;
    }
    stateid4 unlock(const opened_file& f, const stateid4& lock)
    {
        const std::uint32_t seqid = minor == 0 ? mine0->lock_seqid++ : 0;
        answer4 out = by(true, f.at(), LOCKU4args{nfs_lock_type4::write, seqid, lock, 0, to_end_of_file});
        out.good<PUTFH4res>();
        return out.good<LOCKU4res>().lock_stateid;
    }
    void close(const opened_file& f)
    {
        const std::uint32_t seqid = minor == 0 ? ++mine0->seqid : 0;
        BOOST_TEST_REQUIRE(by(true, f.at(), CLOSE4args{seqid, f.id}).status() == nfsstat4::ok);
    }
    WRITE4args writing(const stateid4& id, std::uint64_t offset, std::span<const std::byte> text) const
    {
        return {id, offset, stable_how4::unstable, text};
    }
    /// The next READ finds the file open, and its caller's rights known: its bytes need not be taken.
    void fill(const opened_file& f)
    {
        const auto all = std::span<const std::byte>(old_content);
        for (std::size_t at = 0; at < whole; at += whole / 4) {
            const auto part = writing(f.id, at, all.subspan(at, whole / 4));
            BOOST_TEST_REQUIRE(by(true, f.at(), part).status() == nfsstat4::ok);
        }
        BOOST_TEST_REQUIRE((content(f) == old_content));
    }
    bytes content(const opened_file& f)
    {
        answer4 out = by(true, f.at(), READ4args{f.id, 0, whole});
        out.good<PUTFH4res>();
        const auto res = out.good<READ4res>();
        return {res.data.inline_bytes.begin(), res.data.inline_bytes.end()};
    }

    // --- A COMPOUND of the first client that comes by the transport: PUTFH, READ and what `behind` adds

    using operations = std::function<void(compound_request&)>;
    bytes message(const opened_file& f, const READ4args& read, const operations& behind)
    {
        bytes made(8192);
        xdr::encoder out(made);
        std::array<std::byte, rpc::max_auth_body> body;
        rpc::call_header header;
        header.xid = ++xid;
        header.program = 100003;
        header.version = 4;
        header.procedure = 1;
        xdr::encoder credential(body);
        encode(credential, *user);
        header.credential.flavor = rpc::auth_flavor::sys;
        header.credential.body = std::span(body).first(credential.size());
        encode(out, header);
        compound_head head;
        head.minorversion = minor;
        compound_request request(out, head);
        if (minor != 0)
            request.add(mine4.sequence());
        request.add(f.at()).add(read);
        if (behind)
            behind(request);
        BOOST_REQUIRE(out.ok());
        made.resize(out.size());
        return made;
    }
    struct outcome {
        nfsstat4 status = nfsstat4::ok; ///< of the COMPOUND
        bytes data;
    };
    outcome outcome_of(std::span<const std::byte> reply, std::span<const std::byte> chunk = {})
    {
        xdr::decoder in = chunk.empty()
                              ? xdr::decoder(reply)
                              : xdr::decoder(reply, xdr::external_item{xdr::external_item::any_position,
                                                                       std::uint32_t(chunk.size())});
        rpc::reply_header header;
        decode(in, header);
        BOOST_TEST_REQUIRE(header.success());
        compound_reply results(in);
        SEQUENCE4res sequence;
        PUTFH4res put;
        READ4res read;
        BOOST_TEST_REQUIRE((minor == 0 || results.read(sequence)));
        BOOST_TEST_REQUIRE(results.read(put));
        BOOST_TEST_REQUIRE((results.read(read)), "READ: " << read.status);
        outcome out;
        out.status = results.status();
        const auto data = read.data.external ? chunk : read.data.inline_bytes;
        out.data.assign(data.begin(), data.end());
        return out;
    }
    void send(const bytes& call)
    {
        if (!socket) {
            int ends[2];
            BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
            const int room = 65536; // so that most of a file waits, however much this host has by default
            BOOST_REQUIRE(::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
            server->adopt(net::unique_fd(ends[0]), *net::endpoint::parse("192.0.2.1:1023"));
            socket = net::unique_fd(ends[1]);
        }
        bytes record(4);
        xdr::store_u32(record.data(), 0x80000000u | std::uint32_t(call.size()));
        record.insert(record.end(), call.begin(), call.end());
        BOOST_REQUIRE(::send(socket.get(), record.data(), record.size(), MSG_NOSIGNAL) ==
                      ssize_t(record.size()));
        const std::uint64_t before = server->stats().calls.value();
        int left = 5'000'000; // turns: most are short, while a thread works
        do {
            shard->turn();
            if (--left == 0)
                BOOST_FAIL("the call is not over");
        } while (server->stats().calls.value() == before || server->stats().calls_in_flight.value() != 0);
        turns();
    }
    outcome receive()
    {
        bytes got;
        for (int quiet = 0; quiet < 1000; ++quiet) {
            shard->turn();
            std::byte part[65536];
            const ssize_t n = ::recv(socket.get(), part, sizeof part, 0);
            if (n > 0) {
                got.insert(got.end(), part, part + n);
                quiet = 0;
            }
            if (got.size() >= 4 && got.size() == 4 + (xdr::load_u32(got.data()) & 0x7fffffffu))
                return outcome_of(std::span(got).subspan(4));
        }
        BOOST_FAIL("no reply");
        return {};
    }
    outcome call_rdma(const bytes& call, std::uint32_t size)
    {
        rpcrdma::header h;
        h.xid = xid;
        h.credits = 4;
        BOOST_REQUIRE(h.writes.add_chunk());
        auto& room = peer->writable(size);
        BOOST_REQUIRE(h.writes.add_segment(room.where()));
        const auto answer = peer->call(h, call);
        BOOST_TEST_REQUIRE((answer.header.proc == rpcrdma::procedure::msg));
        const auto written = rpcrdma::total_length(answer.header.writes.chunk(0));
        const outcome out = outcome_of(answer.body, room.memory().first(std::size_t(written)));
        peer->forget_chunks();
        return out;
    }
    outcome read(const opened_file& f, const READ4args& args, const operations& behind = {})
    {
        watched->taken = watched->stay = watched->lent = 0;
        const bytes call = message(f, args, behind);
        if (peer)
            return call_rdma(call, args.count);
        send(call);
        return receive();
    }
    /// Sends the READ without receiving anything: most of the reply waits.
    void send_read(const opened_file& f, const stateid4& id)
    {
        watched->taken = watched->stay = watched->lent = 0;
        send(message(f, {id, 0, whole}, {}));
        BOOST_TEST(server->stats().sent_bytes.value() < sent + whole);
    }
    /// Without a lock and a deny bit the bytes stay in the file, where the back end has them there.
    void require_that_reads_stay()
    {
        BOOST_TEST_REQUIRE((read(a, {a.id, 0, whole}).data == old_content));
        BOOST_TEST_REQUIRE((on_disk ? stayed() : has_its_time()));
        sent = server->stats().sent_bytes.value();
    }
    bool stayed() const noexcept { return watched->stay == 1 && watched->taken == 0 && watched->lent == 0; }
    bool was_taken() const noexcept
    {
        return watched->stay == 0 && watched->taken == 1 && watched->lent == 0;
    }
    bool was_lent() const noexcept { return watched->stay == 0 && watched->taken == 0 && watched->lent == 1; }
    /// The bytes are those of when the READ ran: memfs lends them, and posixfs has them taken.
    bool has_its_time() const noexcept { return on_disk ? was_taken() : was_lent(); }

    suite::temporary_directory directory{"/dev/shm"};
    busy_threads threads;
    blocking_pool work{1};
    std::unique_ptr<storage::file_backend> on_disk;
    std::optional<watched_files> watched;
    client4 mine4{*this, "mine"}, theirs4{*this, "theirs"};
    std::optional<client0> mine0, theirs0;
    opened_file a, b;
    std::unique_ptr<rpc::stream_server> server;
    net::unique_fd socket;
    std::optional<raw_requester> peer;
    std::uint32_t xid = 0x4711;
    std::uint64_t sent = 0; ///< before the READ that matters
    called_hosts called{pool};
};

const char* const back_ends[] = {"memfs", "posixfs"};
const char* const transports[] = {"tcp", "loop"};
const std::uint32_t minors[] = {0, 2};

bool begins_as(const bytes& all, const bytes& data) noexcept
{
    return data.size() <= all.size() && std::equal(data.begin(), data.end(), all.begin());
}

// Behind a READ of the file comes each of the operations that can change it.
void changes_come_behind(fixture& f)
{
    const encoded cut = [] {
        attributes values;
        values.size = 0;
        values.present.set(attribute::size);
        return encoded(values);
    }();
    const bytes root = [&] {
        answer4 out = f.by(true, PUTROOTFH4args(), LOOKUP4args{"export"}, GETFH4args());
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        const auto handle = out.good<GETFH4res>();
        return bytes(handle.object.begin(), handle.object.end());
    }();
    // The larger one leaves room for what follows in the session's largest reply.
    for (const std::uint32_t size : {std::uint32_t(65536), whole - 2048}) {
        struct change {
            const char* name;
            std::uint32_t since; // minor version
            fixture::operations add;
        };
        const std::uint64_t at = size - changed;
        const auto of_b = [&](compound_request& out) { out.add(f.b.at()).add(SAVEFH4args()).add(f.a.at()); };
        const change changes[] = {
            {"WRITE", 0, [&](compound_request& out) { out.add(f.writing(f.a.id, at, new_content)); }},
            {"SETATTR", 0, [&](compound_request& out) { out.add(SETATTR4args{f.a.id, cut.raw}); }},
            {"OPEN", 0,
             [&](compound_request& out) {
                 OPEN4args args = f.minor == 0 ? f.mine0->creating("a") : f.mine4.creating("a");
                 args.openhow.attrs = cut.raw;
                 out.add(PUTFH4args{std::span(root)}).add(args);
             }},
            {"DEALLOCATE", 2, [&](compound_request& out) { out.add(DEALLOCATE4args{f.a.id, 0, size}); }},
            {"COPY", 2,
             [&](compound_request& out) {
                 of_b(out);
                 COPY4args args;
                 args.src_stateid = f.b.id;
                 args.dst_stateid = f.a.id;
                 args.src_offset = 1; // other bytes than those of the same place
                 args.count = size;
                 args.consecutive = args.synchronous = true;
                 out.add(args);
             }},
            {"CLONE", 2,
             [&](compound_request& out) {
                 of_b(out);
                 out.add(CLONE4args{f.b.id, f.a.id, 65536, 0, 65536});
             }},
        };
        for (const change& one : changes) {
            BOOST_TEST_CONTEXT(one.name << " behind " << size << " bytes")
            {
                if (f.minor < one.since)
                    continue;
                const bool clones = std::string_view(one.name) == "CLONE";
                if (clones && f.on_disk) // which a tmpfs can't
                    continue;
                f.fill(f.a);
                const fixture::outcome out = f.read(f.a, {f.a.id, 0, size}, one.add);
                BOOST_TEST(out.status == nfsstat4::ok);
                BOOST_TEST(out.data.size() == size);
                BOOST_TEST(begins_as(old_content, out.data));
                BOOST_TEST(f.has_its_time());
                if (std::string_view(one.name) == "OPEN")
                    f.a = f.open(true, "a"); // by the number of now
                BOOST_TEST((f.content(f.a) != old_content));
            }
        }
    }
}

} // namespace

// RFC 8881 16.2.3: the operations of a COMPOUND run in their order.
BOOST_DATA_TEST_CASE(a_read_comes_before_what_follows_it,
                     data::make(back_ends) * data::make(transports) * data::make(minors), back_end, transport,
                     minor)
{
    fixture f(back_end, minor, transport);
    changes_come_behind(f);
}

// Nobody else writes what is locked, or open and denied, until its client has given it up; what that asked for before, it gets.
BOOST_DATA_TEST_CASE(what_was_read_under_a_lock_is_of_that_time, data::make(back_ends) * data::make(minors),
                     back_end, minor)
{
    fixture f(back_end, minor);
    const opened_file theirs = f.open(false, "a");
    f.require_that_reads_stay();
    const stateid4 held = f.lock(true, f.a);
    f.send_read(f.a, held);
    BOOST_TEST(f.has_its_time());
    f.unlock(f.a, held);
    const stateid4 by = f.lock(false, theirs);
    BOOST_TEST(f.by(false, theirs.at(), f.writing(by, whole - changed, new_content)).status() ==
               nfsstat4::ok);
    BOOST_TEST((f.receive().data == old_content));
    BOOST_TEST((f.content(f.a) != old_content));
}

BOOST_DATA_TEST_CASE(what_was_read_by_an_open_that_denies_writing_is_of_that_time,
                     data::make(back_ends) * data::make(minors), back_end, minor)
{
    fixture f(back_end, minor);
    f.require_that_reads_stay();
    f.close(f.a);
    f.a = f.open(true, "a", share4::deny_write);
    f.send_read(f.a, f.a.id);
    BOOST_TEST(f.has_its_time());
    f.close(f.a);
    const opened_file theirs = f.open(false, "a");
    BOOST_TEST(f.by(false, theirs.at(), f.writing(theirs.id, whole - changed, new_content)).status() ==
               nfsstat4::ok);
    BOOST_TEST((f.receive().data == old_content));
}

// The bytes stay in the file where nothing of this is in the way: what Linux sends, a READ that is the last operation.
BOOST_DATA_TEST_CASE(other_reads_are_sent_from_the_file, data::make(minors), minor)
{
    fixture f("posixfs", minor);
    BOOST_TEST(begins_as(old_content, f.read(f.a, {f.a.id, 0, 65536}).data));
    BOOST_TEST(f.stayed());
    (void)f.read(f.a, {stateid4(), 0, whole});
    BOOST_TEST(f.stayed());
    // Others' opens and locks change nothing, nor do one's own of other files.
    const opened_file theirs = f.open(false, "a");
    (void)f.lock(false, theirs, nfs_lock_type4::read);
    (void)f.lock(true, f.b);
    (void)f.read(f.a, {f.a.id, 0, 65536});
    BOOST_TEST(f.stayed());
    // A lock's stateid stays when its last byte is unlocked.
    stateid4 held = f.lock(true, f.a, nfs_lock_type4::read);
    (void)f.read(f.a, {held, 0, 65536});
    BOOST_TEST(f.was_taken());
    (void)f.read(f.a, {f.a.id, 0, 65536}); // whatever stateid its client comes with
    BOOST_TEST(f.was_taken());
    held = f.unlock(f.a, held);
    (void)f.read(f.a, {held, 0, 65536});
    BOOST_TEST(f.stayed());
    (void)f.read(f.a, {f.a.id, 0, 65535});
    BOOST_TEST(f.was_taken()); // small ones always are
}

// Clients send a delegation's stateid before those of locks and opens (RFC 8881 8.2.5).
BOOST_AUTO_TEST_CASE(a_read_by_a_delegation_minds_what_else_its_client_holds)
{
    fixture f("posixfs", 0, "tcp", true);
    client0& c = *f.mine0;
    f.tend();
    f.turns();
    const auto made = c.ready(c.creating("c"));
    f.fill({made.id, made.handle});
    BOOST_TEST(c.close(made).status == nfsstat4::ok);
    if (made.delegation.delegation_type != open_delegation_type4::none)
        BOOST_TEST(f.compound(PUTFH4args{made.fh()}, DELEGRETURN4args{made.delegation.stateid}).status() ==
                   nfsstat4::ok);
    f.pass(1ms);
    const auto file = c.open(c.opening("c", share4::access_read));
    BOOST_TEST_REQUIRE(file.delegation.delegation_type == open_delegation_type4::read);
    const opened_file here{file.id, file.handle};
    const READ4args by_delegation{file.delegation.stateid, 0, 65536};
    BOOST_TEST(begins_as(old_content, f.read(here, by_delegation).data));
    BOOST_TEST(f.stayed());
    const stateid4 held = f.lock(true, here, nfs_lock_type4::read);
    BOOST_TEST(begins_as(old_content, f.read(here, by_delegation).data));
    BOOST_TEST(f.was_taken());
    f.unlock(here, held);
    (void)f.read(here, by_delegation);
    BOOST_TEST(f.stayed());
    // An open that denies writing goes beside the delegation, too.
    OPEN4args denying = c.opening("c", share4::access_read, share4::deny_write);
    BOOST_TEST_REQUIRE(c.open(denying).status == nfsstat4::ok);
    (void)f.read(here, by_delegation);
    BOOST_TEST(f.was_taken());
}

BOOST_AUTO_TEST_SUITE_END()
