// SPDX-License-Identifier: Apache-2.0
// The NFS version 3 program over two fake exports, for tests.
#pragma once

#include "bytes.hpp"
#include "fake_backend.hpp"
#include "memory_call.hpp"

#include <verbena/protocols/nfs/server/v3/server.hpp>
#include <verbena/protocols/nfs/wire/v3/codec.hpp>

namespace verbena::nfs::v3 {
inline std::ostream& operator<<(std::ostream& out, nfsstat3 status) { return out << to_string(status); }
} // namespace verbena::nfs::v3

namespace verbena::test {

using namespace verbena::nfs::v3;
namespace nfs = verbena::nfs;

struct nfs3_fixture : memory_server {
    explicit nfs3_fixture(nfs::state_home* state = nullptr, const verbena::shard* here = nullptr)
        : program(exports, key, state, here)
    {
        user.emplace();
        user->uid = 1000;
        user->gid = 100;
        dispatcher.add(program);
    }
    ~nfs3_fixture() { BOOST_TEST(pool.outstanding() == 0); }

    static nfs::export_options options(std::string pseudo, fake_backend& backend)
    {
        nfs::export_options made;
        made.pseudo = std::move(pseudo);
        made.backend = &backend;
        return made;
    }
    /// Adds the two exports; a test may change their options first.
    void start()
    {
        for (auto* made : {&first, &second}) {
            const auto added = exports.add(*made);
            BOOST_REQUIRE(added);
        }
    }
    nfs_fh3 handle(std::uint64_t id, const nfs::export_options* of = nullptr)
    {
        if (exports.all().empty())
            start();
        const auto& exported = *exports.by_path(of ? of->pseudo : first.pseudo)->exported;
        const auto made =
            nfs::sign_handle(key, exported.id, static_cast<fake_backend*>(exported.backend)->handle_of(id));
        nfs_fh3 wire;
        BOOST_REQUIRE((made && wire.assign(made->bytes())));
        return wire;
    }
    nfs_fh3 root() { return handle(fake_backend::root_id); }
    diropargs3 in_root(std::string_view name) { return {root(), name}; }

    template<class Arguments>
    std::unique_ptr<memory_call> prepare(procedure what, const Arguments& args)
    {
        if (exports.all().empty())
            start();
        auto c = std::make_unique<memory_call>(pool, from);
        xdr::encoder out = c->begin(100003, 3, static_cast<std::uint32_t>(what), user ? &*user : nullptr);
        encode(out, args);
        c->end(out);
        return c;
    }
    /// The results, decoded, of a call that RPC accepted.
    template<class Results>
    Results take(memory_call& c)
    {
        Results res;
        xdr::decoder in = c.reply();
        BOOST_REQUIRE(c.header_of_reply.success());
        decode(in, res);
        BOOST_TEST(in.at_end());
        return res;
    }
    template<class Results, class Arguments>
    Results call(procedure what, const Arguments& args)
    {
        auto c = prepare(what, args);
        BOOST_REQUIRE(dispatch(*c));
        return take<Results>(*c);
    }
    rpc::accept_status accept_status_of(memory_call& c)
    {
        BOOST_REQUIRE(dispatch(c));
        (void)c.reply();
        BOOST_REQUIRE(c.header_of_reply.accepted);
        return c.header_of_reply.accept;
    }

    nfs::handle_key key{std::byte(3), std::byte(141), std::byte(59)};
    fake_backend files;
    fake_backend others{20};
    nfs::export_options first = options("/export", files);
    nfs::export_options second = options("/other", others);
    nfs::export_table exports;
    server program;
};

inline std::vector<std::byte> pattern(std::size_t size)
{
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i)
        bytes[i] = std::byte(i * 31 + i / 251);
    return bytes;
}

} // namespace verbena::test
