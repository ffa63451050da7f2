// SPDX-License-Identifier: Apache-2.0
// Version 3 beside version 4 over the same exports.
#pragma once

#include "nfs4_called_client.hpp"

#include <verbena/protocols/nfs/server/v3/server.hpp>
#include <verbena/protocols/nfs/wire/v3/codec.hpp>

namespace verbena::nfs::v3 {
inline std::ostream& operator<<(std::ostream& out, nfsstat3 status) { return out << to_string(status); }
} // namespace verbena::nfs::v3

namespace verbena::test {

namespace v3 = verbena::nfs::v3;

struct version3_fixture : called_fixture {
    ~version3_fixture()
    {
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
        old.reset();
    }
    /// When version 4 is there.
    void add_version3()
    {
        old.emplace(exports, key, &commons->state, &home);
        dispatcher->add(*old);
    }
    template<class Results, class Arguments>
    std::unique_ptr<memory_call> call_of(v3::procedure what, const Arguments& args)
    {
        auto c = std::make_unique<memory_call>(pool, from);
        xdr::encoder out = c->begin(100003, 3, static_cast<std::uint32_t>(what), &*user);
        encode(out, args);
        c->end(out);
        return c;
    }
    template<class Results, class Arguments>
    Results call3(v3::procedure what, const Arguments& args)
    {
        auto c = call_of<Results>(what, args);
        BOOST_REQUIRE(run_until_complete(*shard, dispatcher->dispatch(*c)));
        return answer3<Results>(*c);
    }
    static v3::nfs_fh3 to_fh3(std::span<const std::byte> bytes)
    {
        v3::nfs_fh3 out;
        BOOST_REQUIRE(out.assign(bytes));
        return out;
    }
    v3::nfs_fh3 root3()
    {
        const auto made = nfs::sign_handle(key, exports.all()[0].id, files->root());
        BOOST_REQUIRE(made);
        return to_fh3(made->bytes());
    }
    v3::WRITE3args writing(const client4::opened& file)
    {
        v3::WRITE3args args;
        args.file = to_fh3(file.handle);
        args.count = 4;
        args.data.length = 4;
        args.data.inline_bytes = std::as_bytes(std::span("text", 4));
        return args;
    }
    /// A call that is still running when this returns, unless nothing holds it up.
    template<class Results, class Arguments>
    std::shared_ptr<memory_call> begin3(v3::procedure what, const Arguments& args)
    {
        std::shared_ptr<memory_call> c = call_of<Results>(what, args);
        tasks.spawn([this, c]() -> task<void> {
            (void)co_await dispatcher->dispatch(*c);
            c->is_done = true;
        });
        turns();
        return c;
    }
    template<class Results>
    static Results answer3(memory_call& c)
    {
        Results res;
        xdr::decoder in = c.reply();
        BOOST_REQUIRE(c.header_of_reply.success());
        decode(in, res);
        return res;
    }

private:
    std::optional<v3::server> old;
};

} // namespace verbena::test
