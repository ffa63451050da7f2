// SPDX-License-Identifier: Apache-2.0
// Rules of the RFCs, one a row: what is sent, and what has to be answered. Each row has a server of its own.
#pragma once

#include "nfs4_called_client.hpp"

#include <functional>
#include <string>
#include <string_view>

namespace verbena::test {

/// An answer as a text, so that rows of one table may ask for a status and for something else.
struct said {
    said(nfsstat4 status) : text(to_string(status)) {}
    said(std::string other) : text(std::move(other)) {}
    said(const char* other) : text(other) {}
    std::string text;
};

template<class World>
struct rule {
    const char* section;
    const char* text;
    said expected;
    std::function<said(World&)> ask;
};

template<class World, std::size_t count>
void hold(const rule<World> (&rules)[count])
{
    for (const rule<World>& each : rules) {
        World world;
        const said got = each.ask(world);
        BOOST_TEST(got.text == each.expected.text,
                   each.section << ": " << each.text << ": " << got.text << ", not " << each.expected.text);
    }
}

inline encoded sized(std::uint64_t size)
{
    attributes values;
    values.present.set(attribute::size);
    values.size = size;
    return encoded(values);
}

/// Values of `which` that say what `text` holds, right or wrong.
inline fattr4 values_of(attribute which, std::span<const std::byte> text)
{
    fattr4 out;
    out.attrmask.set(which);
    out.attr_vals = text;
    return out;
}

inline CREATE4args making(std::string_view name, nfs_ftype4 type = nfs_ftype4::dir)
{
    CREATE4args args;
    args.objtype.type = type;
    args.objname = name;
    if (type == nfs_ftype4::lnk)
        args.objtype.linkdata = std::as_bytes(std::span("target", 6));
    return args;
}

/// A server of minor versions 1 and 2, and clients.
struct rules_world : called_fixture {
    rules_world() { options[0].local_writers = false; }
    ~rules_world() { stop(); }
    /// Ends what still runs: also for who has what it uses.
    void stop()
    {
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
    }
    /// Of the first client, in the export.
    template<class... Args>
    answer4 here(const Args&... args)
    {
        return client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, args...);
    }
    /// The status of one operation of the first client's, behind a LOOKUP of `name` in the export.
    template<class... Args>
    nfsstat4 at(std::string_view name, const Args&... args)
    {
        return here(LOOKUP4args{name}, args...).status();
    }
    void make(std::string_view name, nfs_ftype4 type)
    {
        BOOST_TEST_REQUIRE(here(making(name, type)).status() == nfsstat4::ok);
    }
    /// Attributes of a file, as `by` sees them.
    attributes look(client4& by, const client4::opened& file, bitmap4 wanted)
    {
        answer4 out = by.call(PUTFH4args{client4::handle_of(file)}, GETATTR4args{wanted});
        attributes values;
        if (out.status() != nfsstat4::ok)
            return values;
        out.good<PUTFH4res>();
        BOOST_TEST(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
        return values;
    }
    /// The first client holds a write delegation of a file, and another one has come.
    client4::opened delegated()
    {
        connect(client);
        way = std::make_shared<called_client>(pool);
        connect(other);
        tend();
        const auto file = client.open(client.creating("f"));
        BOOST_TEST_REQUIRE((file.res.delegation.delegation_type == open_delegation_type4::write));
        const attributes own = look(client, file, {attribute::change, attribute::size});
        channel->values = own;
        return file;
    }
    /// The first client's session keeps short replies alone, and its first call is kept.
    SEQUENCE4args short_of_room()
    {
        limits.cached_response_size = 120;
        client.connect();
        return client.sequence(0, true);
    }
    /// A COMPOUND whose tag has so many bytes, which come back in the reply.
    answer4 tagged(std::size_t bytes, const SEQUENCE4args& args)
    {
        const std::string tag(bytes, 't');
        memory_call c(pool, from);
        xdr::encoder out = c.begin(100003, 4, 1, &*user);
        compound_head head;
        head.minorversion = minor;
        head.tag = std::string_view(tag);
        compound_request request(out, head);
        request.add(args);
        c.end(out);
        BOOST_REQUIRE(run_until_complete(*shard, dispatcher->dispatch(c)));
        return answer_of(c);
    }
    BIND_CONN_TO_SESSION4args binding(channel_dir_from_client4 dir) const
    {
        BIND_CONN_TO_SESSION4args args;
        args.sessid = client.session;
        args.dir = dir;
        return args;
    }
    /// All of the file "f", which is empty, by nobody's open.
    nfsstat4 copy_to(std::string_view name)
    {
        return here(LOOKUP4args{"f"}, SAVEFH4args(), PUTROOTFH4args(), LOOKUP4args{"export"},
                    LOOKUP4args{name}, COPY4args())
            .status();
    }
    client4 client{*this, "a"};
    client4 other{*this, "b"};
};

} // namespace verbena::test
