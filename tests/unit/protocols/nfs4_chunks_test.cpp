// SPDX-License-Identifier: Apache-2.0
// COMPOUNDs with several large items: each in a chunk of its own over RDMA (RFC 8267 6.4), amid the record over a stream.
#include "../log_at.hpp"
#include "../marked_memory.hpp"
#include "nfs4_server.hpp"
#include "raw_requester.hpp"

#include <verbena/core/log.hpp>
#include <verbena/protocols/rpcstream/record_marking.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>

#include <boost/test/data/test_case.hpp>

#include <sys/socket.h>

BOOST_AUTO_TEST_SUITE(nfs4_chunks_test)

using namespace verbena;
using namespace verbena::test;

namespace {

const char* const transports[] = {"loop", "iwarp"};

bytes pattern(std::size_t size, unsigned seed)
{
    bytes made(size);
    for (std::size_t i = 0; i < size; ++i)
        made[i] = std::byte((i * 31 + seed * 97) >> 2);
    return made;
}

/// A call as it was encoded, and what its payload items hold.
struct message {
    bytes reduced;
    std::vector<xdr::payload_item> items;
    std::vector<bytes> data;
    /// With its items in their places.
    bytes whole() const
    {
        bytes all;
        std::size_t from = 0;
        for (std::size_t i = 0; i < items.size(); ++i) {
            all.insert(all.end(), reduced.begin() + std::ptrdiff_t(from),
                       reduced.begin() + std::ptrdiff_t(items[i].offset));
            all.insert(all.end(), data[i].begin(), data[i].end());
            all.resize(xdr::padded(all.size()));
            from = items[i].offset;
        }
        all.insert(all.end(), reduced.begin() + std::ptrdiff_t(from), reduced.end());
        return all;
    }
};

/// What one operation of a reply says. Data of a READ or a READLINK that lies in the message stands in `data`.
struct op_result {
    nfs_opnum4 op = nfs_opnum4::illegal;
    nfsstat4 status = nfsstat4::ok;
    std::uint32_t length = 0;
    bytes data;
};

struct chunks_fixture : nfs4_fixture {
    const test::log_at level_of_log{log_level::off};
    chunks_fixture()
    {
        for (nfs::export_options& o : options)
            BOOST_REQUIRE(o.clients.add("*"));
        client.connect();
        a = client.open(client.creating("a"));
        b = client.open(client.creating("b"));
        BOOST_TEST_REQUIRE(a.status == nfsstat4::ok);
        BOOST_TEST_REQUIRE(b.status == nfsstat4::ok);
        export_root = root_of_export();
    }
    bytes root_of_export()
    {
        answer4 out = client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, GETFH4args());
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        const auto handle = out.good<GETFH4res>();
        return {handle.object.begin(), handle.object.end()};
    }
    /// A call whose WRITEs and link texts are `data`, in order.
    template<class... Args>
    message call_of(std::vector<bytes> data, const Args&... args)
    {
        return call_of_all(std::move(data), [&](compound_request& out) { (out.add(args), ...); });
    }
    message call_of_all(std::vector<bytes> data, const std::function<void(compound_request&)>& write)
    {
        message m;
        bytes block(1 << 20);
        xdr::encoder out(block);
        std::array<std::byte, rpc::max_auth_body> body;
        rpc::call_header header;
        header.xid = xid;
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
        request.add(client.sequence(0, keep));
        write(request);
        BOOST_REQUIRE(out.ok());
        m.reduced.assign(out.bytes().begin(), out.bytes().end());
        m.items.assign(out.payloads().begin(), out.payloads().end());
        m.data = std::move(data);
        BOOST_TEST_REQUIRE(m.items.size() == m.data.size());
        return m;
    }
    template<class Args>
    static Args with_length(Args args, std::size_t length)
    {
        args.data.length = static_cast<std::uint32_t>(length);
        args.data.external = true;
        return args;
    }
    static WRITE4args writing(const client4::opened& file, std::uint64_t offset, std::size_t length)
    {
        return with_length(WRITE4args{file.id, offset, stable_how4::unstable, {}}, length);
    }
    static READ4args reading(const client4::opened& file, std::uint64_t offset, std::uint32_t count)
    {
        return {file.id, offset, count};
    }
    static PUTFH4args at(const client4::opened& file) { return {client4::handle_of(file)}; }
    PUTFH4args at_root() const { return {std::span<const std::byte>(export_root)}; }
    static CREATE4args linking(std::string_view name, std::size_t length)
    {
        CREATE4args args;
        args.objtype.type = nfs_ftype4::lnk;
        args.objtype.linkdata.length = static_cast<std::uint32_t>(length);
        args.objtype.linkdata.external = true;
        args.objname = name;
        return args;
    }
    bytes content(const client4::opened& file, std::uint64_t offset, std::uint32_t count)
    {
        answer4 out = client.call(at(file), READ4args{file.id, offset, count});
        out.good<PUTFH4res>();
        const auto res = out.good<READ4res>();
        return {res.data.inline_bytes.begin(), res.data.inline_bytes.end()};
    }
    void fill(const client4::opened& file, const bytes& text)
    {
        answer4 out = client.call(at(file), WRITE4args{file.id, 0, stable_how4::unstable, std::span(text)});
        BOOST_TEST_REQUIRE(out.status() == nfsstat4::ok);
    }
    /// By another slot than that of the calls here.
    void fill_beside(const client4::opened& file, const bytes& text)
    {
        answer4 out = compound(client.sequence(1), at(file),
                               WRITE4args{file.id, 0, stable_how4::unstable, std::span(text)});
        BOOST_TEST_REQUIRE(out.status() == nfsstat4::ok);
    }
    void link(std::string_view name, std::string_view text)
    {
        CREATE4args args;
        args.objtype.type = nfs_ftype4::lnk;
        args.objtype.linkdata = std::as_bytes(std::span(text));
        args.objname = name;
        BOOST_TEST_REQUIRE(client.call(at_root(), args).status() == nfsstat4::ok);
    }
    /// The results in `body`. Of the data items, in order, `absent` says which travelled in a chunk.
    std::vector<op_result> results_of(std::span<const std::byte> body, std::vector<bool> absent = {})
    {
        std::vector<op_result> all;
        std::size_t item = 0;
        xdr::decoder in(body);
        rpc::reply_header header;
        decode(in, header);
        BOOST_TEST_REQUIRE(header.success());
        in.u32();
        (void)in.opaque_var(128);
        const std::uint32_t count = in.u32();
        for (std::uint32_t i = 0; i < count; ++i) {
            op_result r;
            r.op = nfs_opnum4(in.u32());
            r.status = nfsstat4(in.u32());
            if (r.status == nfsstat4::ok) {
                switch (r.op) {
                case nfs_opnum4::sequence: in.skip(36); break;
                case nfs_opnum4::write: in.skip(16); break;
                case nfs_opnum4::setxattr: in.skip(20); break;
                case nfs_opnum4::getfh: (void)in.opaque_var(128); break;
                case nfs_opnum4::create:
                    in.skip(20);
                    in.skip(std::size_t(in.u32()) * 4);
                    break;
                case nfs_opnum4::readdir: in.skip(in.rest().size()); break; // it is the last one
                case nfs_opnum4::read: in.u32(); [[fallthrough]];
                case nfs_opnum4::readlink:
                    r.length = in.u32();
                    if (item >= absent.size() || !absent[item]) {
                        const auto here = in.opaque_fixed(r.length);
                        r.data.assign(here.begin(), here.end());
                    }
                    ++item;
                    break;
                default: break;
                }
            }
            all.push_back(std::move(r));
        }
        BOOST_TEST(in.at_end());
        return all;
    }

    client4 client{*this, "client"};
    client4::opened a, b;
    bytes export_root;
    std::uint32_t xid = 0x4711;
    bool keep = false;
};

struct rdma_fixture : chunks_fixture {
    void connect(const char* transport) { peer.emplace(*shard, pool, *dispatcher, transport, responder); }
    ~rdma_fixture()
    {
        tasks.request_stop();
        peer.reset();
    }
    /// What goes beside a message: sizes of the segments of each Write chunk, and of the Reply chunk.
    struct offer {
        std::vector<std::vector<std::size_t>> writes;
        std::optional<std::size_t> reply;
        bool long_call = false;     ///< in a Position-Zero chunk
        std::size_t segments = 1;   ///< of each Read chunk
        std::vector<bool> in_chunk; ///< of the items; the others lie in the message. Empty: all
    };
    struct outcome {
        raw_requester::answer answer;
        std::vector<std::vector<bytes>> written; ///< memory of the Write chunks, as it is now
        bytes reply;                             ///< of the Reply chunk
    };
    outcome call(message m, const offer& o)
    {
        rpcrdma::header h;
        h.xid = xid++;
        h.credits = 4;
        for (std::size_t i = 0; i < m.items.size(); ++i) {
            const std::size_t part = (m.data[i].size() + o.segments - 1) / o.segments;
            std::size_t done = 0;
            for (std::size_t s = 0; s < o.segments; ++s) {
                const std::size_t size = std::min(part, m.data[i].size() - done);
                const auto& c = peer->readable(std::span(m.data[i]).subspan(done, size));
                BOOST_REQUIRE(h.reads.push_back({std::uint32_t(m.items[i].position), c.where()}));
                done += size;
            }
        }
        std::vector<std::vector<raw_requester::chunk*>> writes;
        for (const auto& sizes : o.writes) {
            BOOST_REQUIRE(h.writes.add_chunk());
            auto& made = writes.emplace_back();
            for (const std::size_t size : sizes) {
                made.push_back(&peer->writable(size));
                BOOST_REQUIRE(h.writes.add_segment(made.back()->where()));
            }
        }
        raw_requester::chunk* reply = nullptr;
        if (o.reply) {
            reply = &peer->writable(*o.reply);
            h.has_reply_chunk = true;
            BOOST_REQUIRE(h.reply.push_back(reply->where()));
        }
        bytes body = m.reduced;
        if (o.long_call) {
            h.proc = rpcrdma::procedure::nomsg;
            BOOST_REQUIRE(h.reads.push_back({0, peer->readable(body).where()}));
            body.clear();
        }
        outcome out;
        out.answer = peer->call(h, body);
        for (const auto& made : writes) {
            auto& memory = out.written.emplace_back();
            for (const auto* c : made)
                memory.emplace_back(c->memory().begin(), c->memory().end());
        }
        if (reply != nullptr)
            out.reply.assign(reply->memory().begin(), reply->memory().end());
        peer->forget_chunks();
        return out;
    }
    static std::vector<std::uint32_t> lengths(std::span<const rpcrdma::segment> chunk)
    {
        std::vector<std::uint32_t> all;
        for (const auto& s : chunk)
            all.push_back(s.length);
        return all;
    }
    rpcrdma::responder_options responder;
    std::optional<raw_requester> peer;
};

} // namespace

// RFC 8267 6.4.1: each in a chunk at its position.
BOOST_DATA_TEST_CASE(two_writes_in_two_read_chunks, transports, transport)
{
    rdma_fixture f;
    f.connect(transport);
    for (const std::size_t segments : {1u, 3u, 16u}) {
        const bytes first = pattern(70'001, 1), second = pattern(5'002, 2);
        const auto m = f.call_of({first, second}, f.at(f.a), f.writing(f.a, 0, first.size()), f.at(f.b),
                                 f.writing(f.b, 3, second.size()), GETFH4args());
        rdma_fixture::offer o;
        o.segments = segments;
        const auto out = f.call(m, o);
        BOOST_TEST_REQUIRE((out.answer.header.proc == rpcrdma::procedure::msg));
        BOOST_TEST(out.answer.body.size() > 24u);
        BOOST_TEST((f.content(f.a, 0, 80'000) == first));
        BOOST_TEST((f.content(f.b, 3, 80'000) == second));
        BOOST_TEST(f.peer->stats.payload_copied_bytes.value() == 0u);
    }
}

BOOST_DATA_TEST_CASE(a_write_in_a_read_chunk_beside_a_position_zero_chunk, transports, transport)
{
    rdma_fixture f;
    f.connect(transport);
    const bytes first = pattern(70'001, 1), second = pattern(5'002, 2);
    rdma_fixture::offer o;
    o.long_call = true;
    auto out = f.call(f.call_of({first}, f.at(f.a), f.writing(f.a, 0, first.size())), o);
    auto results = f.results_of(out.answer.body);
    BOOST_TEST_REQUIRE(results.size() == 3u);
    BOOST_TEST(results.back().status == nfsstat4::ok);
    BOOST_TEST((f.content(f.a, 0, 80'000) == first));
    out = f.call(f.call_of({second, first}, f.at(f.a), f.writing(f.a, 0, second.size()), f.at(f.b),
                           f.writing(f.b, 0, first.size()), f.at(f.a)),
                 o);
    results = f.results_of(out.answer.body);
    BOOST_TEST_REQUIRE(results.size() == 6u);
    BOOST_TEST((f.content(f.b, 0, 80'000) == first));
    BOOST_TEST(f.peer->stats.payload_copied_bytes.value() == 0u);
}

BOOST_DATA_TEST_CASE(the_text_of_a_link_and_a_write_in_chunks, transports, transport)
{
    rdma_fixture f;
    f.connect(transport);
    const std::string_view target = "a/target/of/a/link";
    const auto as = std::as_bytes(std::span(target));
    const bytes text(as.begin(), as.end()), data = pattern(9'001, 3);
    auto out = f.call(f.call_of({text, data}, f.at_root(), f.linking("link", text.size()), f.at(f.a),
                                f.writing(f.a, 0, data.size())),
                      {});
    const auto results = f.results_of(out.answer.body);
    BOOST_TEST_REQUIRE(results.size() == 5u);
    BOOST_TEST(results.back().status == nfsstat4::ok);
    BOOST_TEST((f.content(f.a, 0, 80'000) == data));
    answer4 read = f.client.call(f.at_root(), LOOKUP4args{"link"}, READLINK4args());
    BOOST_TEST(read.status() == nfsstat4::ok);
}

// RFC 8267 6.4.1: the first Write chunk is the first READ's, and so on.
BOOST_DATA_TEST_CASE(each_read_has_its_write_chunk, transports, transport)
{
    rdma_fixture f;
    f.connect(transport);
    const bytes first = pattern(40'001, 1), second = pattern(7'002, 2);
    f.fill(f.a, first);
    f.fill(f.b, second);
    rdma_fixture::offer o;
    o.writes = {{30'000, 30'000}, {7'002}, {100, 100}};
    const auto out = f.call(f.call_of({}, f.at(f.a), f.reading(f.a, 0, 50'000), f.at(f.b),
                                      f.reading(f.b, 0, 7'002), GETFH4args()),
                            o);
    const auto& h = out.answer.header;
    BOOST_TEST_REQUIRE((h.proc == rpcrdma::procedure::msg));
    BOOST_TEST_REQUIRE(h.writes.size() == 3u);
    BOOST_TEST((f.lengths(h.writes.chunk(0)) == std::vector<std::uint32_t>{30'000, 10'001}));
    BOOST_TEST((f.lengths(h.writes.chunk(1)) == std::vector<std::uint32_t>{7'002}));
    BOOST_TEST((f.lengths(h.writes.chunk(2)) == std::vector<std::uint32_t>{0, 0})); // unused
    bytes got = out.written[0][0];
    got.insert(got.end(), out.written[0][1].begin(), out.written[0][1].begin() + 10'001);
    BOOST_TEST((got == first));
    BOOST_TEST((out.written[0][1][10'001] == std::byte('?'))); // RFC 8166 3.4.6.2: no pad
    BOOST_TEST((out.written[1][0] == second));
    BOOST_TEST((out.written[2][0] == bytes(100, std::byte('?'))));
}

BOOST_DATA_TEST_CASE(an_empty_chunk_wants_its_read_inline_and_a_read_of_nothing_has_its_own, transports,
                     transport)
{
    rdma_fixture f;
    f.connect(transport);
    const bytes first = pattern(4'001, 1), second = pattern(102, 2);
    f.fill(f.a, first);
    f.fill(f.b, second);
    rdma_fixture::offer o;
    o.writes = {{}, {64}, {5'000}};
    const auto out =
        f.call(f.call_of({}, f.at(f.b), f.reading(f.b, 0, 102), f.at(f.a), f.reading(f.a, 100'000, 64),
                         f.reading(f.a, 0, 5'000), f.at(f.b), f.reading(f.b, 2, 100)),
               o);
    const auto& h = out.answer.header;
    BOOST_TEST_REQUIRE((h.proc == rpcrdma::procedure::msg));
    BOOST_TEST_REQUIRE(h.writes.size() == 3u);
    BOOST_TEST(h.writes.chunk(0).empty());
    BOOST_TEST((f.lengths(h.writes.chunk(1)) == std::vector<std::uint32_t>{0}));
    BOOST_TEST((f.lengths(h.writes.chunk(2)) == std::vector<std::uint32_t>{4'001}));
    BOOST_TEST((bytes(out.written[2][0].begin(), out.written[2][0].begin() + 4'001) == first));
    const auto results = f.results_of(out.answer.body, {false, true, true, false});
    BOOST_TEST_REQUIRE(results.size() == 8u);
    BOOST_TEST((results[2].data == second));
    BOOST_TEST(results[4].length == 0u);
    BOOST_TEST(results[5].length == 4'001u);
    BOOST_TEST((results[7].data == bytes(second.begin() + 2, second.end()))); // no chunk is left for it
}

// RFC 8166 4.3.2: where a chunk was offered, it is used.
BOOST_DATA_TEST_CASE(readlink_uses_its_write_chunk, transports, transport)
{
    rdma_fixture f;
    f.connect(transport);
    const std::string_view text = "a/target/of/a/link";
    f.link("link", text);
    f.fill(f.a, pattern(100, 1));
    rdma_fixture::offer o;
    o.writes = {{4096}, {100}};
    auto out = f.call(
        f.call_of({}, f.at_root(), LOOKUP4args{"link"}, READLINK4args(), f.at(f.a), f.reading(f.a, 0, 100)),
        o);
    const auto& h = out.answer.header;
    BOOST_TEST_REQUIRE((h.proc == rpcrdma::procedure::msg));
    BOOST_TEST((f.lengths(h.writes.chunk(0)) == std::vector<std::uint32_t>{18}));
    BOOST_TEST((f.lengths(h.writes.chunk(1)) == std::vector<std::uint32_t>{100}));
    BOOST_TEST(std::memcmp(out.written[0][0].data(), text.data(), text.size()) == 0);
    BOOST_TEST((out.written[1][0] == pattern(100, 1)));
    // Without one it lies in the message.
    out = f.call(f.call_of({}, f.at_root(), LOOKUP4args{"link"}, READLINK4args()), {});
    const auto results = f.results_of(out.answer.body);
    BOOST_TEST_REQUIRE(results.size() == 4u);
    BOOST_TEST(std::memcmp(results[3].data.data(), text.data(), text.size()) == 0);
    // Too small a chunk is an error of the requester's.
    o.writes = {{17}};
    out = f.call(f.call_of({}, f.at_root(), LOOKUP4args{"link"}, READLINK4args()), o);
    BOOST_TEST(is_error(out.answer, rpcrdma::error_kind::chunk));
}

// A repeat of what was kept offers chunks of its own (RFC 8166 4.3.2).
BOOST_DATA_TEST_CASE(a_repeat_uses_its_own_chunks, transports, transport)
{
    rdma_fixture f;
    f.connect(transport);
    const bytes first = pattern(1'001, 1), second = pattern(502, 2);
    f.fill(f.a, first);
    f.fill(f.b, second);
    f.keep = true;
    rdma_fixture::offer o;
    o.writes = {{2'000}};
    for (int i = 0; i < 3; ++i) {
        if (i != 0)
            --f.client.sequences[0];
        const auto out = f.call(
            f.call_of({}, f.at(f.a), f.reading(f.a, 0, 2'000), f.at(f.b), f.reading(f.b, 2, 500), f.at(f.a)),
            o);
        BOOST_TEST_REQUIRE((out.answer.header.proc == rpcrdma::procedure::msg));
        BOOST_TEST((f.lengths(out.answer.header.writes.chunk(0)) == std::vector<std::uint32_t>{1'001}));
        BOOST_TEST((bytes(out.written[0][0].begin(), out.written[0][0].begin() + 1'001) == first));
        const auto results = f.results_of(out.answer.body, {true, false});
        BOOST_TEST_REQUIRE(results.size() == 6u);
        BOOST_TEST((results[4].data == bytes(second.begin() + 2, second.end())));
        BOOST_TEST(f.program->counters().replays.value() == std::uint64_t(i));
        f.fill_beside(f.a, pattern(1'001, 7)); // what was kept stays as it was
    }
}

// What goes by no Write chunk lies in the Reply chunk, in its place.
BOOST_DATA_TEST_CASE(reads_share_a_reply_chunk, transports, transport)
{
    rdma_fixture f;
    f.connect(transport);
    const bytes first = pattern(4'001, 1), second = pattern(6'002, 2);
    f.fill(f.a, first);
    f.fill(f.b, second);
    rdma_fixture::offer o;
    o.reply = 30'000;
    auto out = f.call(
        f.call_of({}, f.at(f.a), f.reading(f.a, 0, 5'000), f.at(f.b), f.reading(f.b, 0, 7'002), GETFH4args()),
        o);
    BOOST_TEST_REQUIRE((out.answer.header.proc == rpcrdma::procedure::nomsg));
    const auto size = rpcrdma::total_length(out.answer.header.reply.all());
    BOOST_TEST_REQUIRE(size < 30'000u);
    auto all = std::span(out.reply).first(size);
    BOOST_TEST((std::search(all.begin(), all.end(), first.begin(), first.end()) != all.end()));
    BOOST_TEST((std::search(all.begin(), all.end(), second.begin(), second.end()) != all.end()));
    o.writes = {{5'000}};
    out = f.call(f.call_of({}, f.at(f.a), f.reading(f.a, 0, 5'000), f.at(f.b), f.reading(f.b, 0, 7'002)), o);
    BOOST_TEST_REQUIRE((out.answer.header.proc == rpcrdma::procedure::nomsg));
    BOOST_TEST((f.lengths(out.answer.header.writes.chunk(0)) == std::vector<std::uint32_t>{4'001}));
    const auto results = f.results_of(
        std::span(out.reply).first(rpcrdma::total_length(out.answer.header.reply.all())), {true, false});
    BOOST_TEST_REQUIRE(results.size() == 5u);
    BOOST_TEST((results[4].data == second));
}

namespace {

struct stream_fixture : chunks_fixture {
    stream_fixture()
        : server(std::make_unique<rpc::stream_server>(*shard, pool, *dispatcher, rpc::stream_options()))
    {
    }
    ~stream_fixture()
    {
        run_until_complete(*shard, server->shut_down(shard->clock().now()));
        server.reset();
    }
    // Without the last `cut` bytes of the message.
    std::vector<op_result> call(const message& m, std::size_t cut = 0)
    {
        ++xid;
        bytes record = m.whole();
        record.resize(record.size() - cut);
        bytes out(4);
        xdr::store_u32(out.data(), 0x80000000u | std::uint32_t(record.size()));
        out.insert(out.end(), record.begin(), record.end());
        if (!socket) {
            int ends[2];
            BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
            server->adopt(net::unique_fd(ends[0]), *net::endpoint::parse("192.0.2.1:1023"));
            socket = net::unique_fd(ends[1]);
        }
        std::span<const std::byte> left = out;
        bytes got;
        for (int turn = 0; turn < 100'000; ++turn) {
            if (!left.empty()) {
                const ssize_t n = ::send(socket.get(), left.data(), left.size(), MSG_NOSIGNAL);
                left = left.subspan(std::size_t(std::max<ssize_t>(n, 0)));
            }
            shard->turn();
            std::byte part[65536];
            const ssize_t n = ::recv(socket.get(), part, sizeof part, 0);
            if (n > 0)
                got.insert(got.end(), part, part + n);
            if (got.size() >= 4 && got.size() == 4 + (xdr::load_u32(got.data()) & 0x7fffffffu)) {
                reply = std::move(got);
                return results_of(std::span(reply).subspan(4));
            }
        }
        BOOST_FAIL("no reply");
        return {};
    }
    std::uint64_t copied() const { return server->stats().payload_copied_bytes.value(); }

    std::unique_ptr<rpc::stream_server> server;
    net::unique_fd socket;
    bytes reply; ///< the last one, with its mark
};

} // namespace

BOOST_FIXTURE_TEST_CASE(two_large_writes_in_one_record, stream_fixture)
{
    const bytes first = pattern(100'001, 1), second = pattern(300'002, 2);
    const auto results = call(call_of({first, second}, at(a), writing(a, 0, first.size()), at(b),
                                      writing(b, 1, second.size()), GETFH4args()));
    BOOST_TEST_REQUIRE(results.size() == 6u);
    BOOST_TEST(results.back().status == nfsstat4::ok);
    BOOST_TEST((content(a, 0, 400'000) == first));
    BOOST_TEST((content(b, 1, 400'000) == second));
    BOOST_TEST(copied() == 0u);
}

// A record in two buffers, whose border lies at each place of the operations between two WRITEs in turn.
BOOST_FIXTURE_TEST_CASE(operations_across_two_buffers, stream_fixture)
{
    const bytes second = pattern(80'003, 2);
    const message between =
        call_of({bytes(4), second}, at(a), writing(a, 0, 4), at(b), writing(b, 0, second.size()));
    client.sequences[0] -= 1;
    const std::size_t apart = between.items[1].offset - between.items[0].offset;
    std::uint64_t joined = 0;
    for (std::size_t less = 0; less < apart + 16; less += 4) {
        BOOST_TEST_CONTEXT("less " << less)
        {
            socket.reset(); // each call begins a buffer of its own
            const std::size_t border = (std::size_t(64) << 10) - 1024 - 4;
            const bytes first = pattern(border - between.items[0].offset - less, 1);
            const std::uint64_t before = copied();
            const auto results = call(call_of({first, second}, at(a), writing(a, 0, first.size()), at(b),
                                              writing(b, 0, second.size())));
            BOOST_TEST_REQUIRE(results.size() == 5u);
            BOOST_TEST(results.back().status == nfsstat4::ok);
            BOOST_TEST(
                (content(a, 0, 100'000).size() == std::max(content(a, 0, 100'000).size(), first.size())));
            BOOST_TEST((content(b, 0, 100'000) == second));
            joined += copied() != before;
            BOOST_TEST(copied() - before <= 8192u);
        }
    }
    BOOST_TEST(joined > apart / 16); // those where it cuts a handle or a stateid, and not a number
}

// An argument that is no payload, and has no end in what is copied at first.
BOOST_FIXTURE_TEST_CASE(a_large_argument_across_two_buffers, stream_fixture)
{
    minor = 2;
    const bytes first = pattern(30'001, 1), value = pattern(60'000, 2);
    const auto results =
        call(call_of({first}, at(a), writing(a, 0, first.size()),
                     SETXATTR4args{setxattr_option4::either, "large", std::span<const std::byte>(value)}));
    BOOST_TEST_REQUIRE(results.size() == 4u);
    BOOST_TEST(results.back().status == nfsstat4::ok);
    BOOST_TEST(copied() > 60'000u);
    answer4 out = client.call(at(a), GETXATTR4args{"large"});
    out.good<PUTFH4res>();
    BOOST_TEST((bytes(value) == [&] {
        const auto res = out.good<GETXATTR4res>();
        return bytes(res.value.begin(), res.value.end());
    }()));
}

// What is put in one piece for an operation that lies across the border ends somewhere in the next one, which lies in one piece anyhow.
BOOST_FIXTURE_TEST_CASE(a_large_argument_behind_one_across_two_buffers, stream_fixture)
{
    minor = 2;
    const bytes value = pattern(60'000, 2);
    const SETXATTR4args large{setxattr_option4::either, "large", std::span<const std::byte>(value)};
    const message between = call_of({bytes(4)}, at(a), writing(a, 0, 4), at(b), large);
    client.sequences[0] -= 1;
    unsigned joined = 0;
    for (std::size_t less = 4; less < 64; less += 12) {
        BOOST_TEST_CONTEXT("less " << less)
        {
            socket.reset(); // each call begins a buffer of its own
            const std::size_t border = (std::size_t(64) << 10) - 1024 - 4;
            const bytes first = pattern(border - between.items[0].offset - less, 1);
            const std::uint64_t before = copied();
            const auto results = call(call_of({first}, at(a), writing(a, 0, first.size()), at(b), large));
            BOOST_TEST_REQUIRE(results.size() == 5u);
            BOOST_TEST(results.back().status == nfsstat4::ok);
            joined += copied() != before;
        }
    }
    BOOST_TEST(joined > 0u);
}

// Its bytes are all there, and the pad behind them is not: broken, wherever it lies.
BOOST_FIXTURE_TEST_CASE(a_pad_that_is_missing, stream_fixture)
{
    for (const std::size_t size : {std::size_t(1'000), std::size_t(128) << 10}) {
        for (const std::size_t cut : {1u, 3u}) {
            BOOST_TEST_CONTEXT(size << " and without " << cut)
            {
                socket.reset();
                const bytes data = pattern(size, 1);
                const auto results =
                    call(call_of({data}, at(a), writing(a, 0, size), LOOKUP4args{"12345"}), cut);
                BOOST_TEST_REQUIRE(results.size() == 4u);
                BOOST_TEST(results[2].status == nfsstat4::ok);
                BOOST_TEST(results.back().status == nfsstat4::badxdr);
            }
        }
    }
}

BOOST_FIXTURE_TEST_CASE(several_reads_in_one_record, stream_fixture)
{
    const bytes first = pattern(100'001, 1), second = pattern(70'002, 2);
    fill(a, first);
    fill(b, second);
    const auto results = call(call_of({}, at(a), reading(a, 0, 200'000), at(b), reading(b, 2, 100'000), at(a),
                                      reading(a, 1, 10), reading(a, 500'000, 10), GETFH4args()));
    BOOST_TEST_REQUIRE(results.size() == 9u);
    BOOST_TEST((results[2].data == first));
    BOOST_TEST((results[4].data == bytes(second.begin() + 2, second.end())));
    BOOST_TEST((results[6].data == bytes(first.begin() + 1, first.begin() + 11)));
    BOOST_TEST(results[7].data.empty());
}

// More than a reply has payloads: the rest lies in the message.
BOOST_FIXTURE_TEST_CASE(any_number_of_reads, stream_fixture)
{
    CREATE_SESSION4args args = client4::session_of(client.id, client.create_sequence++);
    args.fore_chan_attrs.maxoperations = 40;
    answer4 made = compound(args);
    client.session = made.good<CREATE_SESSION4res>().sessionid;
    client.sequences.clear();
    const bytes text = pattern(1'000, 1);
    fill(a, text);
    std::vector<READ4args> reads;
    for (std::uint64_t i = 0; i < 30; ++i)
        reads.push_back(reading(a, i, 101));
    const auto m = call_of_all({}, [&](compound_request& out) {
        out.add(at(a));
        for (const READ4args& one : reads)
            out.add(one);
    });
    const auto results = call(m);
    BOOST_TEST_REQUIRE(results.size() == 32u);
    for (std::ptrdiff_t i = 0; i < 30; ++i)
        BOOST_TEST((results[std::size_t(i) + 2].data == bytes(text.begin() + i, text.begin() + i + 101)));
}

// Nor what others have left in the server's memory: in the message, a Write chunk, a Reply chunk.
BOOST_DATA_TEST_CASE(replies_hold_nothing_of_others, transports, transport)
{
    rdma_fixture f;
    f.connect(transport);
    f.fill(f.a, bytes(5'003, std::byte('x')));
    f.link("link", "odd/5");
    leave_marks(f.pool, 256 << 10);
    rdma_fixture::offer inline_only, chunks, long_reply;
    chunks.writes = {{3'000, 9'000}, {512}, {4'096}};
    long_reply.reply = 100'000;
    READDIR4args listing;
    listing.dircount = listing.maxcount = 3'000;
    for (const auto* o : {&inline_only, &chunks, &long_reply}) {
        const std::uint32_t size = o == &inline_only ? 1'001 : 5'001;
        const auto m =
            f.call_of({}, f.at(f.a), f.reading(f.a, 0, size), f.reading(f.a, 5'000, 4'096), f.at_root(),
                      LOOKUP4args{"link"}, READLINK4args(), GETFH4args(), f.at_root(), listing);
        const auto out = f.call(m, *o);
        BOOST_TEST((out.answer.header.proc != rpcrdma::procedure::error));
        BOOST_TEST(marks_in(out.answer.body) < 4u);
        BOOST_TEST(marks_in(out.reply) < 4u);
        for (const auto& chunk : out.written) {
            for (const bytes& memory : chunk)
                BOOST_TEST(marks_in(memory) < 4u);
        }
        if (o == &chunks) // of 3000 + 9000 bytes 5001 are written
            BOOST_TEST(std::ranges::count(out.written[0][1], std::byte('?')) == 9'000 - 2'001);
    }
}

BOOST_FIXTURE_TEST_CASE(replies_over_streams_hold_nothing_of_others, stream_fixture)
{
    fill(a, bytes(70'003, std::byte('x')));
    link("link", "odd/5");
    leave_marks(pool);
    READDIR4args listing;
    listing.dircount = listing.maxcount = 3'000;
    // In the message, in one buffer of its own, and more than there is.
    for (const std::uint32_t size : {1u, 1'001u, 5'001u, 70'001u, 1u << 20}) {
        const auto results =
            call(call_of({}, at(a), reading(a, 0, size), reading(a, 70'000, 4'096), at_root(),
                         LOOKUP4args{"link"}, READLINK4args(), GETFH4args(), at_root(), listing));
        BOOST_TEST_REQUIRE(results.size() == 10u);
        BOOST_TEST(results.back().status == nfsstat4::ok);
        BOOST_TEST((results[2].data == bytes(std::min(size, 70'003u), std::byte('x'))));
        BOOST_TEST((results[3].data == bytes(3, std::byte('x'))));
        BOOST_TEST(marks_in(reply) < 4u);
    }
}

// What a call holds follows from what it returns, and not from what was asked for.
BOOST_FIXTURE_TEST_CASE(reads_at_the_end_of_a_file_hold_little, chunks_fixture)
{
    const bytes text = pattern(9'000, 1);
    fill(a, text);
    const auto c = prepare(1, [&](compound_request& out) {
        out.add(client.sequence());
        out.add(at(a));
        for (int i = 0; i < 8; ++i)
            out.add(reading(a, i % 2 == 0 ? 8'990 : 0, 1 << 20));
    });
    BOOST_REQUIRE(run_until_complete(*shard, dispatcher->dispatch(*c)));
    BOOST_TEST_REQUIRE(c->attached().size() == 8u);
    std::size_t held = 0;
    for (std::size_t i = 0; i < 8; ++i) {
        const auto& data = c->attached()[i].bytes;
        BOOST_TEST(data.size() == (i % 2 == 0 ? 10u : 9'000u));
        BOOST_TEST(std::ranges::equal(data.pieces()[0], std::span(text).subspan(i % 2 == 0 ? 8'990 : 0)));
        held += data.owner(0).size();
    }
    BOOST_TEST(held <= (1u << 20) + 4 * 16'384 + 3 * 4'096);
}

// Two such calls could wait for each other's memory.
BOOST_FIXTURE_TEST_CASE(a_call_that_holds_data_waits_for_no_more_memory, chunks_fixture)
{
    const std::size_t size = 600'000;
    fill(a, pattern(size, 1));
    const auto dispatch = [&] {
        auto c = prepare(1, [&](compound_request& out) {
            out.add(client.sequence());
            out.add(at(a));
            out.add(reading(a, 0, size));
            out.add(reading(a, 0, size));
        });
        BOOST_REQUIRE(run_until_complete(*shard, dispatcher->dispatch(*c)));
        return c;
    };
    BOOST_TEST(dispatch()->attached().size() == 2u);
    std::vector<lease> taken;
    do
        taken.push_back(pool.try_acquire(size));
    while (taken.back());
    taken.resize(taken.size() - 2);
    const time_point before = shard->clock().now();
    const auto c = dispatch();
    BOOST_TEST((shard->clock().now() == before));
    BOOST_TEST(c->attached().size() == 1u);
    BOOST_TEST(
        (nfsstat4(xdr::load_u32(c->results().bytes().data() + rpc::success_header_size)) == nfsstat4::delay));
}

BOOST_AUTO_TEST_SUITE_END()
