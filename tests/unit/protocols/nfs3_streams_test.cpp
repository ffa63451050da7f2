// SPDX-License-Identifier: Apache-2.0
// The NFS version 3 program over streams: what its calls hold of the server's memory.
#include <boost/test/unit_test.hpp>

#include "nfs3_server.hpp"
#include "rpc_server.hpp"

#include <functional>
#include <sys/mman.h>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(nfs3_streams_test)

using namespace verbena;
using namespace verbena::test;
using namespace std::chrono_literals;
using storage::file_type;

namespace {

constexpr std::size_t kibibyte = 1024;
constexpr std::size_t mebibyte = 1024 * kibibyte;

struct nfs3_streams {
    explicit nfs3_streams(std::size_t memory, const rpc::stream_options& options = {})
        : streams(options, &clock, memory)
    {
        nfs::export_options exported;
        exported.pseudo = "/export";
        exported.backend = &files;
        BOOST_REQUIRE(exported.clients.add("*"));
        BOOST_REQUIRE(exports.add(exported));
        streams.calls.add(program);
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
    static bytes message(std::uint32_t xid, procedure what, const Arguments& args)
    {
        bytes out(512);
        xdr::encoder to(out);
        rpc::call_header header;
        header.xid = xid;
        header.program = 100003;
        header.version = 3;
        header.procedure = static_cast<std::uint32_t>(what);
        encode(to, header);
        encode(to, args);
        BOOST_REQUIRE(to.ok());
        out.resize(to.size());
        return framed(out);
    }
    /// What has come: "XID status", each followed by a blank.
    std::string replies(const net::unique_fd& client)
    {
        const bytes all = streams.receive(client);
        std::string text;
        std::size_t at = 0;
        while (at + 32 <= all.size()) {
            const std::byte* reply = all.data() + at;
            text += std::to_string(xdr::load_u32(reply + 4)) + ' ';
            text += to_string(nfsstat3(xdr::load_u32(reply + 28)));
            text += ' ';
            at += 4 + (xdr::load_u32(reply) & 0x7fffffff);
        }
        BOOST_TEST(at == all.size());
        return text;
    }

    bytes reads(std::uint32_t n, std::uint64_t id, std::uint32_t count)
    {
        READ3args args;
        args.file = handle(id);
        args.count = count;
        bytes all;
        for (std::uint32_t xid = 1; xid <= n; ++xid)
            append(all, message(xid, procedure::read, args));
        return all;
    }

    /// As much of `data` as the server takes from a client that does not receive.
    void send_some(const net::unique_fd& to, std::span<const std::byte> data)
    {
        for (int turn = 0; turn < 3000; ++turn) {
            const ssize_t n = ::send(to.get(), data.data(), data.size(), MSG_NOSIGNAL);
            if (n > 0)
                data = data.subspan(static_cast<std::size_t>(n));
            streams.shard->turn();
        }
    }

    virtual_clock clock;
    fake_backend files;
    nfs::handle_key key{std::byte(3), std::byte(141), std::byte(59)};
    nfs::export_table exports;
    server program{exports, key};
    served_streams streams;
};

} // namespace

BOOST_AUTO_TEST_CASE(a_listing_that_gets_no_memory_holds_up_nobody_for_long)
{
    nfs3_streams s(512 * kibibyte);
    const auto id = s.files.add(1, "f", file_type::regular);
    s.files[id].data = pattern(4096);
    auto client = s.streams.connect();
    lease most = s.streams.pool.try_acquire(256 * kibibyte);
    BOOST_REQUIRE(most);

    READDIR3args listing;
    listing.dir = s.handle(1);
    listing.count = 128 * kibibyte;
    s.streams.send(client, s.message(1, procedure::readdir, listing));
    BOOST_TEST(s.replies(client) == "");
    s.clock.advance(9s);
    READ3args read;
    read.file = s.handle(id);
    read.count = 4096;
    s.streams.send(client, s.message(2, procedure::read, read));
    BOOST_TEST(s.replies(client) == ""); // though there is memory for it: it is not its turn
    s.clock.advance(1s);
    BOOST_TEST(s.replies(client) == "1 NFS3ERR_JUKEBOX 2 NFS3_OK ");
    most.reset();
    s.streams.send(client, s.message(3, procedure::readdir, listing));
    BOOST_TEST(s.replies(client) == "3 NFS3_OK ");
}

// They wait for a disk, all together, and then for a peer that does not receive.
BOOST_AUTO_TEST_CASE(replies_that_are_not_taken_hold_a_bounded_part_of_the_memory)
{
    nfs3_streams s(512 * mebibyte);
    const auto id = s.files.add(1, "f", file_type::regular);
    s.files[id].data = pattern(mebibyte);
    event disk;
    s.files.slow = &disk;
    const std::size_t most = s.streams.server->options().max_result_bytes + mebibyte;
    auto silent = s.streams.connect();
    s.streams.send(silent, s.reads(256, id, mebibyte));
    s.streams.turns(600);
    BOOST_TEST(s.files.reading >= 16); // a Linux client reads 15 MiB ahead
    BOOST_TEST(s.streams.pool.outstanding_bytes() <= most);
    disk.set();
    s.streams.turns(600);
    BOOST_TEST(s.files.reading == 0);
    BOOST_TEST(s.streams.pool.outstanding_bytes() <= most);
    auto other = s.streams.connect("192.0.2.2:1023");
    s.streams.send(other, s.reads(1, id, mebibyte));
    BOOST_TEST(s.replies(other) == "1 NFS3_OK ");
    // Once the peer receives, it gets all.
    constexpr std::size_t reply = 132 + mebibyte;
    std::size_t got = 0;
    for (int i = 0; i < 300 && got < 256 * reply; ++i)
        got += s.streams.receive(silent, mebibyte).size();
    BOOST_TEST(got == 256 * reply);
}

// The buffers are as large as what was asked for, the replies are not.
BOOST_AUTO_TEST_CASE(short_replies_in_large_buffers_count_as_what_they_hold)
{
    nfs3_streams s(512 * mebibyte);
    const auto id = s.files.add(1, "f", file_type::regular);
    s.files[id].data = pattern(300);
    const std::size_t most = s.streams.server->options().max_result_bytes + mebibyte;
    auto reader = s.streams.connect();
    s.send_some(reader, s.reads(1000, id, mebibyte));
    // A Unix socket takes a few hundred replies by itself.
    BOOST_TEST(s.streams.pool.outstanding_bytes() > 8 * mebibyte);
    BOOST_TEST(s.streams.pool.outstanding_bytes() <= most);
    BOOST_TEST(s.streams.receive(reader).size() == 1000 * 432u);
    BOOST_TEST(s.streams.pool.outstanding_bytes() < mebibyte);
    READDIR3args args;
    args.dir = s.handle(1);
    args.count = 128 * kibibyte;
    bytes calls;
    for (std::uint32_t i = 0; i < 2000; ++i)
        append(calls, s.message(i, procedure::readdir, args));
    // What is copied to what waits for the socket holds nothing else.
    auto few = s.streams.connect();
    const auto pauses = s.streams.server->stats().pauses.value();
    s.send_some(few, calls);
    BOOST_TEST(s.streams.pool.outstanding_bytes() < mebibyte);
    BOOST_TEST(s.streams.server->stats().pauses.value() == pauses);
    for (int i = 0; i < 32; ++i)
        s.files.add(1, "another name " + std::to_string(i), file_type::regular);
    auto lister = s.streams.connect();
    s.send_some(lister, calls);
    BOOST_TEST(s.streams.pool.outstanding_bytes() > 8 * mebibyte);
    BOOST_TEST(s.streams.pool.outstanding_bytes() <= most);
}

BOOST_AUTO_TEST_CASE(the_streams_of_a_host_share_what_they_may_hold)
{
    rpc::stream_options options;
    options.max_address_result_bytes = 40 * mebibyte;
    nfs3_streams s(512 * mebibyte, options);
    const auto id = s.files.add(1, "f", file_type::regular);
    s.files[id].data = pattern(mebibyte);
    event disk;
    s.files.slow = &disk;
    const std::size_t most = options.max_address_result_bytes + 2 * mebibyte;
    std::vector<net::unique_fd> hungry;
    for (int i = 0; i < 8; ++i) {
        hungry.push_back(s.streams.connect());
        s.streams.send(hungry.back(), s.reads(20, id, mebibyte));
    }
    s.streams.turns(200);
    BOOST_TEST(s.files.reading == 40);
    BOOST_TEST(s.streams.pool.outstanding_bytes() <= most);
    // What streams that ended have asked for counts until it is done, and those that wait may go.
    for (const std::size_t i : {0, 7})
        hungry[i].reset();
    s.streams.turns(200);
    hungry[0] = s.streams.connect();
    s.streams.send(hungry[0], s.reads(20, id, mebibyte));
    s.streams.turns(200);
    BOOST_TEST(s.files.reading == 40);
    disk.set();
    s.streams.turns(600);
    BOOST_TEST(s.files.reading == 0);
    BOOST_TEST(s.streams.pool.outstanding_bytes() >= 20 * mebibyte);
    BOOST_TEST(s.streams.pool.outstanding_bytes() <= most);
    auto other = s.streams.connect("192.0.2.2:1023");
    s.streams.send(other, s.reads(1, id, mebibyte));
    BOOST_TEST(s.replies(other) == "1 NFS3_OK ");
    std::size_t got = 0;
    // One after the other takes its replies. None is forgotten.
    for (int round = 0; round < 3; ++round) {
        for (const net::unique_fd& client : hungry) {
            if (client)
                got += s.streams.receive(client).size();
        }
    }
    BOOST_TEST(got == 7 * 20 * (132 + mebibyte));
    hungry.clear();
    s.streams.turns();
    other.reset();
    s.streams.turns();
    BOOST_TEST(s.streams.pool.outstanding() == 0);
}

// RFC 1813 3.3.6: eof is true of the READ that ends at the end of the file, not of the one after it alone.
BOOST_AUTO_TEST_CASE(reads_out_of_a_file_tell_its_end)
{
    constexpr std::uint32_t size = 200'000;
    nfs3_streams s(64 * mebibyte);
    const auto id = s.files.add(1, "f", file_type::regular);
    s.files[id].data = pattern(size);
    const net::unique_fd file(::memfd_create("data", MFD_CLOEXEC));
    BOOST_REQUIRE(::write(file.get(), s.files[id].data.data(), size) == ssize_t(size));
    auto client = s.streams.connect();
    struct read {
        std::uint64_t offset;
        std::uint32_t count;
        std::uint32_t there;
        bool eof;
    };
    for (const bool in_file : {true, false}) {
        s.files.in_file = in_file ? file.get() : -1;
        for (const read& r :
             {read{0, size - 1, size - 1, false}, read{0, size, size, true}, read{0, size + 1, size, true},
              read{size - 65536, 65536, 65536, true}, read{size - 65537, 65536, 65536, false},
              read{size - 1, 65536, 1, true}, read{size, 65536, 0, true}, read{size - 10, 10, 10, true}}) {
            BOOST_TEST_CONTEXT(r.offset << " + " << r.count << ", out of a file: " << in_file)
            {
                READ3args args;
                args.file = s.handle(id);
                args.offset = r.offset;
                args.count = r.count;
                s.files.count = 0;
                s.streams.send(client, s.message(1, procedure::read, args));
                const bytes reply = s.streams.receive(client);
                BOOST_TEST_REQUIRE(reply.size() == 132 + (r.there + 3) / 4 * 4);
                BOOST_TEST(xdr::load_u32(reply.data() + 28) == 0u);
                BOOST_TEST(xdr::load_u32(reply.data() + 120) == r.there);
                BOOST_TEST(xdr::load_u32(reply.data() + 124) == (r.eof ? 1u : 0u));
                BOOST_TEST(xdr::load_u32(reply.data() + 128) == r.there);
                BOOST_TEST(std::equal(reply.begin() + 132, reply.begin() + 132 + r.there,
                                      s.files[id].data.begin() + std::ptrdiff_t(r.offset)));
                // What is small is copied, and so is what lies in no file.
                BOOST_TEST((s.files.count == 0) == (in_file && r.count >= 65536 && r.offset < size));
            }
        }
    }
}

// Whatever another stream does, one that does no wrong is answered while no time passes, within a few turns of the shard.
BOOST_AUTO_TEST_CASE(a_stream_that_does_no_wrong_waits_for_nobody)
{
    constexpr int most_turns = 12;
    using attack = std::function<void(nfs3_streams&, const net::unique_fd&, std::uint64_t)>;
    const auto small = [](nfs3_streams& s, std::uint64_t id) {
        GETATTR3args args;
        args.object = s.handle(id);
        return s.message(7, procedure::getattr, args);
    };
    const std::vector<std::pair<const char*, attack>> attacks = {
        {"half a record mark", [](auto& s, auto& bad, auto) { s.send_some(bad, bytes(3)); }},
        {"a record that never ends",
         [](auto& s, auto& bad, auto) {
             const bytes whole = framed(bytes(mebibyte));
             s.send_some(bad, std::span(whole).first(500'000));
         }},
        {"fragments without end",
         [](auto& s, auto& bad, auto) {
             bytes all;
             for (int n = 0; n < 5'000; ++n)
                 append(all, bytes{std::byte(0), std::byte(0), std::byte(0), std::byte(1), std::byte('x')});
             s.send_some(bad, all);
         }},
        {"replies that nobody takes",
         [](auto& s, auto& bad, auto id) { s.send_some(bad, s.reads(256, id, mebibyte)); }},
        {"calls by the thousand",
         [&](auto& s, auto& bad, auto id) {
             bytes all;
             for (int n = 0; n < 3'000; ++n)
                 append(all, small(s, id));
             s.send_some(bad, all);
         }},
        {"what is no record",
         [](auto& s, auto& bad, auto) { s.send_some(bad, bytes(1000, std::byte(0xff))); }},
    };
    for (const auto& [name, act] : attacks) {
        BOOST_TEST_CONTEXT(name)
        {
            nfs3_streams s(512 * mebibyte);
            const auto id = s.files.add(1, "f", file_type::regular);
            s.files[id].data = pattern(mebibyte);
            auto bad = s.streams.connect();
            auto good = s.streams.connect("192.0.2.2:1023");
            const time_point begun = s.clock.now();
            const auto waits_for_nobody = [&] {
                const bytes call = small(s, id);
                BOOST_REQUIRE(::send(good.get(), call.data(), call.size(), MSG_NOSIGNAL) ==
                              ssize_t(call.size()));
                std::byte reply[256];
                ssize_t n = -1;
                for (int turn = 0; turn < most_turns && n <= 0; ++turn) {
                    s.streams.shard->turn();
                    n = ::recv(good.get(), reply, sizeof reply, 0);
                }
                BOOST_TEST_REQUIRE(n > 32);
                BOOST_TEST(xdr::load_u32(reply + 4) == 7u);
                BOOST_TEST(xdr::load_u32(reply + 28) == 0u);
            };
            act(s, bad, id);
            waits_for_nobody();
            s.streams.turns(50);
            act(s, bad, id);
            waits_for_nobody();
            BOOST_TEST((s.clock.now() == begun));
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
