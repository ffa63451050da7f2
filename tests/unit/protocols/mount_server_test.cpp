// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/protocols/nfs/server/v3/mount.hpp>

#include "../refusals_since.hpp"
#include "bytes.hpp"
#include "fake_backend.hpp"
#include "memory_call.hpp"

namespace verbena::nfs::mount3 {
inline std::ostream& operator<<(std::ostream& out, mountstat3 status) { return out << to_string(status); }
} // namespace verbena::nfs::mount3

BOOST_AUTO_TEST_SUITE(mount_server_test)

using namespace verbena;
using namespace verbena::test;
using namespace verbena::nfs;
using namespace verbena::nfs::mount3;
using storage::file_type;

namespace {

struct fixture : memory_server {
    fixture()
    {
        user.emplace();
        user->uid = 1000;
        dispatcher.add(program);
        export_options all;
        all.pseudo = "/export";
        all.backend = &files;
        const auto everybody = all.clients.add("*");
        BOOST_REQUIRE(everybody);
        export_options local;
        local.pseudo = "/local";
        local.backend = &files;
        export_options listed;
        listed.pseudo = "/listed";
        listed.backend = &files;
        const auto four = listed.clients.add("10.0.0.0/8");
        const auto six = listed.clients.add("fd00::/8");
        BOOST_REQUIRE((four && six));
        const bool added = exports.add(all) && exports.add(local) && exports.add(listed);
        BOOST_REQUIRE(added);
    }
    std::unique_ptr<memory_call> call(procedure what, std::optional<std::string_view> path = {})
    {
        auto c = std::make_unique<memory_call>(pool, from);
        xdr::encoder out = c->begin(100005, 3, static_cast<std::uint32_t>(what), user ? &*user : nullptr);
        if (path)
            encode(out, dirpath{*path});
        c->end(out);
        BOOST_REQUIRE(dispatch(*c));
        return c;
    }
    mountres3 mount(std::string_view path)
    {
        const auto c = call(procedure::mnt, path);
        xdr::decoder in = c->reply();
        BOOST_REQUIRE(c->header_of_reply.success());
        mountres3 res;
        decode(in, res);
        BOOST_TEST(in.at_end());
        return res;
    }
    std::uint64_t mounted(std::string_view path)
    {
        const auto res = mount(path);
        BOOST_REQUIRE(res.status == mountstat3::ok);
        const auto opened = open_handle(key, res.fhandle.bytes());
        BOOST_REQUIRE(opened);
        BOOST_TEST(opened->export_id == export_id_of("/export"));
        std::uint64_t id = 0;
        std::memcpy(&id, opened->inner.bytes().data(), sizeof id);
        return id;
    }
    std::string dump()
    {
        const auto c = call(procedure::dump);
        xdr::decoder in = c->reply();
        std::string text;
        mount_entry entry;
        while (next(in, entry))
            text += std::string(entry.hostname) + ":" + std::string(entry.directory) + " ";
        BOOST_TEST(in.at_end());
        return text;
    }

    fake_backend files;
    export_table exports;
    handle_key key{std::byte(9)};
    mount_list mounts;
    server program{exports, key, mounts};
};

} // namespace

BOOST_FIXTURE_TEST_CASE(mounts_the_root, fixture)
{
    const auto res = mount("/export");
    BOOST_TEST(res.status == mountstat3::ok);
    BOOST_REQUIRE(res.auth_flavor_count == 2u);
    BOOST_TEST(res.auth_flavors[0] == 1u); // AUTH_SYS
    BOOST_TEST(res.auth_flavors[1] == 0u); // AUTH_NONE
    const auto expected = sign_handle(key, export_id_of("/export"), files.root());
    BOOST_REQUIRE(expected);
    BOOST_TEST(to_hex(res.fhandle.bytes()) == to_hex(expected->bytes()));
    BOOST_TEST(mounted("/export/") == fake_backend::root_id);
    BOOST_TEST(mounted("/export/.") == fake_backend::root_id);
    BOOST_TEST(program.counters().mounted.value() == 3u);
}

BOOST_FIXTURE_TEST_CASE(mounts_a_folder_beneath, fixture)
{
    const auto dir = files.add(1, "d", file_type::directory);
    const auto deep = files.add(dir, "deep", file_type::directory);
    BOOST_TEST(mounted("/export/d") == dir);
    BOOST_TEST(mounted("/export//d/./deep/") == deep);
    BOOST_TEST(files.who.uid == 1000u);
    user->uid = 0;
    BOOST_TEST(mounted("/export/d") == dir);
    BOOST_TEST(files.who.uid == export_options::nobody);
    files.fail = error::from_errno(EACCES);
    BOOST_TEST(mount("/export/d/deep").status == mountstat3::acces);
}

BOOST_FIXTURE_TEST_CASE(what_can_not_be_mounted, fixture)
{
    files.add(1, "file", file_type::regular);
    files.add(1, "link", file_type::symlink);
    BOOST_TEST(mount("/nothing").status == mountstat3::noent);
    BOOST_TEST(mount("").status == mountstat3::noent);
    BOOST_TEST(mount("export").status == mountstat3::noent);
    BOOST_TEST(mount("/export/absent").status == mountstat3::noent);
    BOOST_TEST(mount("/export/file").status == mountstat3::notdir);
    BOOST_TEST(mount("/export/file/x").status == mountstat3::notdir);
    BOOST_TEST(mount("/export/link").status == mountstat3::notdir);
    BOOST_TEST(mount("/export/..").status == mountstat3::inval);
    BOOST_TEST(program.counters().refused_path.value() == 8u);
    files.fail_getattr = error::from_errno(EIO);
    BOOST_TEST(mount("/export").status == mountstat3::io);
    files.fail_getattr = error::from_errno(ESTALE); // the directory was removed
    BOOST_TEST(mount("/export").status == mountstat3::noent);
    BOOST_TEST(program.counters().failed.value() == 2u);
    files.fail_getattr.reset();
    // A handle that leaves no room for the signature.
    fake_backend long_handles;
    export_options large;
    large.pseudo = "/large";
    large.backend = &long_handles;
    BOOST_REQUIRE(bool(exports.add(large)));
    long_handles.handle_size = storage::handle::max_size;
    BOOST_TEST(mount("/large").status == mountstat3::serverfault);
    BOOST_TEST(program.counters().failed.value() == 3u);
    files.add(1, "d", file_type::directory);
    files.fail = error(make_error_code(storage::errc::crosses_mount));
    BOOST_TEST(mount("/export/d").status == mountstat3::acces);
    BOOST_TEST(program.counters().refused_mount.value() == 1u);
    BOOST_TEST(program.counters().refused_path.value() == 8u);
    BOOST_TEST(dump() == "");
    // longer than MNTPATHLEN
    const auto c = call(procedure::mnt, std::string(1025, '/'));
    (void)c->reply();
    BOOST_TEST((c->header_of_reply.accept == rpc::accept_status::garbage_arguments));
}

BOOST_FIXTURE_TEST_CASE(who_may_mount, fixture)
{
    const refusals_since refusals;
    BOOST_TEST(mount("/local").status == mountstat3::ok);
    BOOST_TEST(mount("/listed").status == mountstat3::acces);
    from.address = "10.1.2.3";
    BOOST_TEST(mount("/listed").status == mountstat3::ok);
    BOOST_TEST(mount("/export").status == mountstat3::ok);
    BOOST_TEST(mount("/local").status == mountstat3::acces);
    BOOST_TEST(mount("/local/absent").status == mountstat3::acces); // nothing is told about it
    BOOST_TEST(program.counters().refused.address.value() == 3u);
    BOOST_TEST(refusals(refused::export_address) == 3u);
    BOOST_TEST(mount("/nowhere").status == mountstat3::noent);
    BOOST_TEST(refusals(refused::export_unknown) == 1u);
    user.reset();
    BOOST_TEST(mount("/export").status == mountstat3::ok);
}

// A kernel that mounts by RDMA asks for the handle over TCP.
BOOST_FIXTURE_TEST_CASE(any_transport_may_ask_for_a_handle, fixture)
{
    export_options remote;
    remote.pseudo = "/rdma";
    remote.backend = &files;
    remote.transports = {"iwarp"};
    const auto added = exports.add(remote);
    BOOST_REQUIRE(added);
    BOOST_TEST(from.transport == "tcp");
    BOOST_TEST(mount("/rdma").status == mountstat3::ok);
}

BOOST_FIXTURE_TEST_CASE(the_list_of_mounts, fixture)
{
    files.add(1, "d", file_type::directory);
    (void)mount("/export");
    (void)mount("/export");
    (void)mount("/export/d");
    from.address = "10.1.2.3";
    (void)mount("/export");
    BOOST_TEST(dump() == "127.0.0.1:/export 127.0.0.1:/export/d 10.1.2.3:/export ");
    // one client can't speak for another
    (void)call(procedure::umnt, "/export/d");
    (void)call(procedure::umnt, "/export");
    BOOST_TEST(dump() == "127.0.0.1:/export 127.0.0.1:/export/d ");
    from.address = "127.0.0.1";
    (void)call(procedure::umnt, "/export");
    BOOST_TEST(dump() == "127.0.0.1:/export/d ");
    (void)mount("/export");
    const auto c = call(procedure::umntall);
    BOOST_TEST(c->reply().at_end());
    BOOST_TEST(dump() == "");
}

BOOST_FIXTURE_TEST_CASE(the_list_of_mounts_is_bounded, fixture)
{
    for (std::size_t i = 0; i < mount_list::max_entries + 10; ++i)
        mounts.add("host" + std::to_string(i), "/export");
    const auto entries = mounts.entries();
    BOOST_TEST(entries.size() == mount_list::max_entries);
    BOOST_TEST(entries.front().hostname == "host10");
    BOOST_TEST(!dump().empty());
}

BOOST_FIXTURE_TEST_CASE(the_list_of_exports, fixture)
{
    user.reset();
    const auto c = call(procedure::exports);
    xdr::decoder in = c->reply();
    std::string text;
    export_reader reader(in);
    std::string_view directory;
    while (reader.next(directory)) {
        text += std::string(directory) + " [";
        std::string_view group;
        while (reader.next_group(group))
            text += std::string(group) + " ";
        text += "] ";
    }
    BOOST_TEST(in.at_end());
    BOOST_TEST(text == "/export [] /local [localhost ] /listed [10.0.0.0/8 fd00::/8 ] ");
}

BOOST_FIXTURE_TEST_CASE(many_exports_fit, fixture)
{
    for (int i = 0; i < 500; ++i) {
        export_options more;
        more.pseudo = "/more/" + std::string(200, 'x') + std::to_string(i);
        more.backend = &files;
        BOOST_REQUIRE(bool(exports.add(more)));
    }
    const auto c = call(procedure::exports);
    xdr::decoder in = c->reply();
    BOOST_REQUIRE(c->header_of_reply.success());
    export_reader reader(in);
    std::string_view directory;
    int count = 0;
    while (reader.next(directory))
        ++count;
    BOOST_TEST(count == 503);
    BOOST_TEST(in.at_end());
}

BOOST_FIXTURE_TEST_CASE(names_and_unknown_procedures, fixture)
{
    BOOST_TEST(program.number() == 100005u);
    BOOST_TEST(program.procedure_name(3, 1) == "MNT");
    BOOST_TEST(program.procedure_name(3, 5) == "EXPORT");
    BOOST_TEST(program.procedure_name(3, 6).empty());
    BOOST_TEST(program.procedure_name(1, 1).empty());
    auto c = call(procedure::null);
    BOOST_TEST(c->reply().at_end());
    BOOST_TEST(c->header_of_reply.success());
    c = call(procedure(6));
    (void)c->reply();
    BOOST_TEST((c->header_of_reply.accept == rpc::accept_status::procedure_unavailable));
}

BOOST_FIXTURE_TEST_CASE(whom_the_program_admits, memory_server)
{
    fake_backend files;
    export_options listed;
    listed.pseudo = "/listed";
    listed.backend = &files;
    listed.secure = true;
    BOOST_REQUIRE(listed.clients.add("10.0.0.0/8"));
    export_table exports;
    BOOST_REQUIRE(exports.add(std::move(listed)));
    const handle_key key{std::byte(9)};
    mount_list mounts;
    server program{exports, key, mounts};
    BOOST_TEST(program.admits({"10.1.2.3", "10.1.2.3:5000", "tcp", 5000}));
    BOOST_TEST(program.admits({"10.1.2.3", "10.1.2.3", "rdma", 0}));
    BOOST_TEST(program.admits({"a client", "a client", "loop", 0}));
    BOOST_TEST(!program.admits({"192.0.2.66", "192.0.2.66:700", "tcp", 700}));
}

BOOST_FIXTURE_TEST_CASE(no_way_leads_beneath_an_export_in_another_one, fixture)
{
    files.add(fake_backend::root_id, "inner", storage::file_type::directory);
    fake_backend inside;
    export_options inner;
    inner.pseudo = "/export/inner";
    inner.backend = &inside;
    BOOST_REQUIRE(exports.add(inner));
    const auto opened = open_handle(key, mount("/export/inner").fhandle.bytes());
    BOOST_REQUIRE(opened);
    BOOST_TEST(opened->export_id == export_id_of("/export/inner"));
    BOOST_TEST(mount("/export/./inner").status == mountstat3::acces);
    BOOST_TEST(mount("/export/./inner/d").status == mountstat3::acces);
    files.folds_case = true;
    BOOST_TEST(mount("/export/INNER").status == mountstat3::acces);
    BOOST_TEST(mount("/export/INNER/d").status == mountstat3::acces);
}

BOOST_AUTO_TEST_SUITE_END()
