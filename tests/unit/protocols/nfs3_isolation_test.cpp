// SPDX-License-Identifier: Apache-2.0
// What NFS version 3 answers does not depend on what lay in the server's memory before: each reply is made twice, once in memory that
// somebody else has used, and every byte that leaves is the same.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "../log_at.hpp"
#include "../marked_memory.hpp"
#include "nfs3_server.hpp"
#include "raw_requester.hpp"
#include "rpc_server.hpp"

#include <verbena/core/log.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(nfs3_isolation_test)

using namespace verbena;
using namespace verbena::test;
using storage::file_type;

namespace {

constexpr std::size_t file_size = 70'001; // of "f"

struct question {
    std::string what;
    bytes call;           // without a record mark
    std::size_t room = 0; // that the answer's data item is offered, in a Write chunk
};

struct fixture {
    explicit fixture(bool marked) : streams({}, &clock)
    {
        nfs::export_options exported;
        exported.pseudo = "/export";
        exported.backend = &files;
        BOOST_REQUIRE(exported.clients.add("*"));
        BOOST_REQUIRE(exports.add(exported));
        streams.calls.add(program);
        file = files.add(1, "f", file_type::regular);
        files[file].data.assign(file_size, std::byte('x'));
        link = files.add(1, "link", file_type::symlink);
        files[link].target = "odd/5";
        for (unsigned i = 0; i < 100; ++i)
            files.add(1, std::string(1 + i % 7, 'n') + std::to_string(i), file_type::regular);
        if (marked)
            leave_marks(streams.pool);
    }
    nfs_fh3 handle(std::uint64_t id)
    {
        const auto made =
            nfs::sign_handle(key, exports.by_path("/export")->exported->id, files.handle_of(id));
        nfs_fh3 wire;
        BOOST_REQUIRE((made && wire.assign(made->bytes())));
        return wire;
    }
    template<class Arguments>
    void ask(std::string what, std::uint32_t procedure, const Arguments& args, std::size_t room = 0)
    {
        bytes out(1024);
        xdr::encoder to(out);
        rpc::call_header header;
        header.xid = static_cast<std::uint32_t>(questions.size() + 1);
        header.program = 100003;
        header.version = 3;
        header.procedure = procedure;
        encode(to, header);
        encode(to, args);
        BOOST_REQUIRE(to.ok());
        out.resize(to.size());
        questions.push_back({std::move(what), std::move(out), room});
    }
    template<class Arguments>
    void ask(std::string what, procedure p, const Arguments& args, std::size_t room = 0)
    {
        ask(std::move(what), static_cast<std::uint32_t>(p), args, room);
    }
    void ask_all()
    {
        const std::pair<std::uint64_t, std::uint32_t> ranges[] = {
            {0, 1},     {0, 2},          {0, 3},       {1, 4095},         {0, 4097},
            {0, 65536}, {60'000, 65536}, {70'000, 8},  {file_size, 4096}, {1 << 20, 4096},
            {0, 0},     {69'999, 3},     {0, 1 << 20},
        };
        for (const auto& [offset, count] : ranges) {
            READ3args read;
            read.file = handle(file);
            read.offset = offset;
            read.count = count;
            ask("READ of " + std::to_string(count) + " at " + std::to_string(offset), procedure::read, read,
                std::min<std::size_t>(count, file_size) + 1000);
        }
        READLINK3args text;
        text.symlink = handle(link);
        ask("READLINK", procedure::readlink, text, 1024);
        for (const std::uint32_t size : {512u, 1000u, 4096u, 32768u}) {
            READDIR3args listing;
            listing.dir = handle(1);
            listing.count = size;
            ask("READDIR of " + std::to_string(size), procedure::readdir, listing);
            READDIRPLUS3args more;
            more.dir = handle(1);
            more.dircount = more.maxcount = size;
            ask("READDIRPLUS of " + std::to_string(size), procedure::readdirplus, more);
        }
        LOOKUP3args name;
        name.what = {handle(1), "nn1"};
        ask("LOOKUP", procedure::lookup, name);
        name.what = {handle(1), "none"};
        ask("LOOKUP of none", procedure::lookup, name);
        for (const auto id : {file, link, std::uint64_t(1), std::uint64_t(999)}) {
            GETATTR3args attributes;
            attributes.object = handle(id);
            ask("GETATTR", procedure::getattr, attributes);
        }
        FSSTAT3args space;
        space.fsroot = handle(1);
        ask("FSSTAT", procedure::fsstat, space);
        FSINFO3args info;
        info.fsroot = handle(1);
        ask("FSINFO", procedure::fsinfo, info);
        PATHCONF3args limits;
        limits.object = handle(1);
        ask("PATHCONF", procedure::pathconf, limits);
        ask("READ of no arguments", procedure::read, GETATTR3args());
        ask("no procedure", 99u, GETATTR3args());
    }

    virtual_clock clock;
    fake_backend files;
    std::uint64_t file = 0;
    std::uint64_t link = 0;
    nfs::handle_key key{std::byte(3), std::byte(141), std::byte(59)};
    nfs::export_table exports;
    server program{exports, key};
    served_streams streams;
    std::vector<question> questions;
};

// All that leaves for each question.
std::vector<std::pair<std::string, bytes>> by_stream(bool marked)
{
    fixture f(marked);
    f.ask_all();
    auto client = f.streams.connect();
    std::vector<std::pair<std::string, bytes>> all;
    for (const question& q : f.questions) {
        f.streams.send(client, framed(q.call));
        all.emplace_back(q.what, f.streams.receive(client));
    }
    return all;
}

// In the message, in Write chunks with room for more, or in a Reply chunk with room for more.
enum class form : std::uint8_t { inline_or_reply_chunk, write_chunk };

std::vector<std::pair<std::string, bytes>> by_rdma(bool marked, form how, const char* transport)
{
    fixture f(marked);
    f.ask_all();
    const test::log_at quiet(log_level::off);
    raw_requester peer(*f.streams.shard, f.streams.pool, f.streams.calls, transport);
    std::vector<std::pair<std::string, bytes>> all;
    for (const question& q : f.questions) {
        rpcrdma::header h;
        h.xid = xdr::load_u32(q.call.data());
        h.credits = 4;
        std::vector<raw_requester::chunk*> exposed;
        if (how == form::write_chunk && q.room != 0) {
            BOOST_REQUIRE(h.writes.add_chunk());
            for (const std::size_t part : {q.room / 3 + 1, q.room}) {
                exposed.push_back(&peer.writable(part));
                BOOST_REQUIRE(h.writes.add_segment(exposed.back()->where()));
            }
        }
        exposed.push_back(&peer.writable(100'000));
        h.has_reply_chunk = true;
        BOOST_REQUIRE(h.reply.push_back(exposed.back()->where()));
        const raw_requester::answer a = peer.call(h, q.call);
        bytes left = a.body;
        for (const raw_requester::chunk* c : exposed)
            append(left, c->memory());
        all.emplace_back(q.what, std::move(left));
        peer.forget_chunks();
    }
    return all;
}

void are_the_same(const std::vector<std::pair<std::string, bytes>>& clean,
                  const std::vector<std::pair<std::string, bytes>>& marked)
{
    BOOST_REQUIRE(clean.size() == marked.size());
    for (std::size_t i = 0; i < clean.size(); ++i) {
        BOOST_TEST_CONTEXT(clean[i].first)
        {
            BOOST_TEST(clean[i].second.size() >= 24u);
            BOOST_TEST((clean[i].second == marked[i].second));
            BOOST_TEST(marks_in(marked[i].second) < 4u);
        }
    }
}

} // namespace

BOOST_AUTO_TEST_CASE(replies_over_streams) { are_the_same(by_stream(false), by_stream(true)); }

BOOST_DATA_TEST_CASE(replies_over_rdma, boost::unit_test::data::make({"loop", "iwarp"}), transport)
{
    for (const form how : {form::inline_or_reply_chunk, form::write_chunk})
        are_the_same(by_rdma(false, how, transport), by_rdma(true, how, transport));
}

BOOST_AUTO_TEST_SUITE_END()
