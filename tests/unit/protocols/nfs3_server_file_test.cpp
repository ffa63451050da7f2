// SPDX-License-Identifier: Apache-2.0
// GETATTR, SETATTR, ACCESS, READLINK, READ, WRITE, COMMIT, FSSTAT, FSINFO, PATHCONF, and what all
// procedures share: handles, access, squashing.
#include <boost/test/unit_test.hpp>

#include "../refusals_since.hpp"
#include "nfs3_server.hpp"

#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/nfs/server/state_home.hpp>
#include <verbena/protocols/nfs/server/v3/storage.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>

#include <limits>

#include <algorithm>

BOOST_AUTO_TEST_SUITE(nfs3_server_file_test)

using namespace verbena;
using namespace verbena::test;
using storage::file_type;

namespace {

GETATTR3args getattr_of(const nfs_fh3& object)
{
    GETATTR3args args;
    args.object = object;
    return args;
}

WRITE3args write_of(const nfs_fh3& file, std::span<const std::byte> bytes, std::uint64_t offset = 0,
                    stable_how stable = stable_how::unstable)
{
    WRITE3args args;
    args.file = file;
    args.offset = offset;
    args.count = static_cast<std::uint32_t>(bytes.size());
    args.stable = stable;
    args.data.length = args.count;
    args.data.inline_bytes = bytes;
    return args;
}

} // namespace

BOOST_FIXTURE_TEST_CASE(null_needs_nobody, nfs3_fixture)
{
    user.reset();
    memory_call c(pool, from);
    c.end(c.begin(100003, 3, 0, nullptr));
    BOOST_TEST((accept_status_of(c) == rpc::accept_status::success));
    BOOST_TEST(c.reply().at_end());
}

BOOST_FIXTURE_TEST_CASE(names_of_procedures, nfs3_fixture)
{
    BOOST_TEST(program.procedure_name(3, 0) == "NULL");
    BOOST_TEST(program.procedure_name(3, 17) == "READDIRPLUS");
    BOOST_TEST(program.procedure_name(3, 21) == "COMMIT");
    BOOST_TEST(program.procedure_name(3, 22).empty());
    BOOST_TEST(program.procedure_name(4, 1).empty());
    // RFC 1813 4.5
    const std::vector<std::uint32_t> expected = {2, 8, 9, 10, 11, 12, 13, 14, 15};
    std::vector<std::uint32_t> found;
    for (std::uint32_t i = 0; i < 30; ++i) {
        if (program.non_idempotent(3, i))
            found.push_back(i);
        BOOST_TEST(program.repeats_in_turn(3, i) == (i == 7)); // WRITE
    }
    BOOST_TEST(found == expected, boost::test_tools::per_element());
}

BOOST_FIXTURE_TEST_CASE(no_such_procedure_and_bad_arguments, nfs3_fixture)
{
    start();
    memory_call none(pool, from);
    none.end(none.begin(100003, 3, 22, &*user));
    BOOST_TEST((accept_status_of(none) == rpc::accept_status::procedure_unavailable));
    for (std::uint32_t i = 1; i < procedure_count; ++i) {
        memory_call c(pool, from);
        c.end(c.begin(100003, 3, i, &*user));
        BOOST_TEST((accept_status_of(c) == rpc::accept_status::garbage_arguments), to_string(procedure(i)));
    }
    BOOST_TEST(files.called == "");
}

BOOST_FIXTURE_TEST_CASE(what_lies_behind_the_arguments_is_ignored, nfs3_fixture)
{
    start();
    memory_call c(pool, from);
    xdr::encoder out = c.begin(100003, 3, static_cast<std::uint32_t>(procedure::getattr), &*user);
    encode(out, getattr_of(root()));
    out.u32(7);
    c.end(out);
    BOOST_REQUIRE(dispatch(c));
    BOOST_TEST(take<GETATTR3res>(c).status == nfsstat3::ok);
}

BOOST_FIXTURE_TEST_CASE(serves_getattr, nfs3_fixture)
{
    const auto id = files.add(1, "f", file_type::character_device, 0100640);
    auto& attrs = files[id].attrs;
    attrs.links = 3;
    attrs.size = 0x123456789a;
    attrs.used = 8192;
    attrs.device_major = 8;
    attrs.device_minor = 1;
    attrs.atime = {0xfffffff0, 999999999};
    auto c = prepare(procedure::getattr, getattr_of(handle(id)));
    BOOST_REQUIRE(dispatch(*c));
    // RFC 1813 2.6: type, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime
    BOOST_TEST(to_hex(c->results().bytes()) ==
               to_hex("00001234 00000001 00000000 00000000 00000000 00000000 00000000"
                      "00000004 000001a0 00000003 000003e8 00000064 000000123456789a 0000000000002000"
                      "00000008 00000001 000000000000004d 0000000000000002 fffffff0 3b9ac9ff"
                      "3b9aca00 00000005 3b9aca01 00000006"));
}

// RFC 1813 2.6 has 32 bits of seconds without a sign, 1970 to 2106.
BOOST_FIXTURE_TEST_CASE(times_that_nfs_has_no_bits_for_become_the_nearest, nfs3_fixture)
{
    const auto id = files.add(1, "f", file_type::regular);
    auto& attrs = files[id].attrs;
    attrs.atime = {-315619200, 5}; // 1960
    attrs.mtime = {-1, 999999999};
    attrs.ctime = {std::int64_t(1) << 32, 5};
    auto got = call<GETATTR3res>(procedure::getattr, getattr_of(handle(id))).obj_attributes;
    BOOST_TEST((got.atime == nfstime3{0, 0}));
    BOOST_TEST((got.mtime == nfstime3{0, 0}));
    BOOST_TEST((got.ctime == nfstime3{0xffffffff, 999999999}));
    attrs.atime = {0, 1};
    attrs.mtime = {(std::int64_t(1) << 32) - 1, 1};
    attrs.ctime = {std::numeric_limits<std::int64_t>::max(), 1};
    got = call<GETATTR3res>(procedure::getattr, getattr_of(handle(id))).obj_attributes;
    BOOST_TEST((got.atime == nfstime3{0, 1}));
    BOOST_TEST((got.mtime == nfstime3{0xffffffff, 1}));
    BOOST_TEST((got.ctime == nfstime3{0xffffffff, 999999999}));
    // ... also from before a change, where it is told.
    storage::change changed;
    changed.before.emplace();
    changed.before->mtime = {-5, 0};
    changed.before->ctime = {std::int64_t(1) << 40, 0};
    const wcc_data told = to_wcc(changed);
    BOOST_REQUIRE(told.before.has_value());
    BOOST_TEST((told.before->mtime == nfstime3{0, 0}));
    BOOST_TEST((told.before->ctime == nfstime3{0xffffffff, 999999999}));
}

BOOST_FIXTURE_TEST_CASE(a_forged_handle_is_badhandle, nfs3_fixture)
{
    const nfs_fh3 good = root();
    for (std::size_t i = 0; i < good.size(); ++i) {
        std::vector<std::byte> bytes(good.bytes().begin(), good.bytes().end());
        bytes[i] ^= std::byte(0x10);
        nfs_fh3 forged;
        BOOST_REQUIRE(forged.assign(bytes));
        BOOST_TEST(call<GETATTR3res>(procedure::getattr, getattr_of(forged)).status == nfsstat3::badhandle);
    }
    BOOST_TEST(call<GETATTR3res>(procedure::getattr, getattr_of({})).status == nfsstat3::badhandle);
    BOOST_TEST(program.counters().refused_handle.value() == good.size() + 1);
    BOOST_TEST(call<GETATTR3res>(procedure::getattr, getattr_of(good)).status == nfsstat3::ok);
}

BOOST_FIXTURE_TEST_CASE(a_handle_of_an_export_that_is_gone_is_stale, nfs3_fixture)
{
    const auto made = nfs::sign_handle(key, 0x5555, files.root());
    nfs_fh3 gone;
    BOOST_REQUIRE((made && gone.assign(made->bytes())));
    BOOST_TEST(call<GETATTR3res>(procedure::getattr, getattr_of(gone)).status == nfsstat3::stale);
    BOOST_TEST(program.counters().refused_export.value() == 1u);
    // a file that is gone
    BOOST_TEST(call<GETATTR3res>(procedure::getattr, getattr_of(handle(999))).status == nfsstat3::stale);
}

BOOST_FIXTURE_TEST_CASE(peers_that_may_not, nfs3_fixture)
{
    first.transports = {"iwarp"};
    second.secure = true;
    start();
    const refusals_since refusals;
    const nfs_fh3 by_transport = root();
    const nfs_fh3 by_port = handle(1, &second);
    BOOST_TEST(call<GETATTR3res>(procedure::getattr, getattr_of(by_transport)).status == nfsstat3::acces);
    BOOST_TEST(call<GETATTR3res>(procedure::getattr, getattr_of(by_port)).status == nfsstat3::ok);
    from.port = 1024;
    BOOST_TEST(call<GETATTR3res>(procedure::getattr, getattr_of(by_port)).status == nfsstat3::acces);
    from.address = "203.0.113.9";
    from.transport = "iwarp";
    BOOST_TEST(call<GETATTR3res>(procedure::getattr, getattr_of(by_transport)).status == nfsstat3::acces);
    from.address = "127.0.0.1";
    BOOST_TEST(call<GETATTR3res>(procedure::getattr, getattr_of(by_transport)).status == nfsstat3::ok);
    BOOST_TEST(program.counters().refused.transport.value() == 1u);
    BOOST_TEST(program.counters().refused.port.value() == 1u);
    BOOST_TEST(program.counters().refused.address.value() == 1u);
    for (const refused why : {refused::export_transport, refused::export_port, refused::export_address})
        BOOST_TEST(refusals(why) == 1u);
}

BOOST_FIXTURE_TEST_CASE(callers_reach_the_back_end_squashed, nfs3_fixture)
{
    first.anonuid = 4001;
    first.anongid = 4002;
    const auto who = [&] {
        (void)call<GETATTR3res>(procedure::getattr, getattr_of(root()));
        return std::pair(files.who.uid, files.who.gid);
    };
    BOOST_TEST((who() == std::pair(1000u, 100u)));
    user->uid = 0;
    BOOST_TEST((who() == std::pair(4001u, 4002u)));
    user.reset();
    BOOST_TEST((who() == std::pair(4001u, 4002u)));
}

BOOST_FIXTURE_TEST_CASE(setattr_passes_what_is_set, nfs3_fixture)
{
    SETATTR3args args;
    args.object = root();
    args.new_attributes.mode = 0107640; // bits beyond the permissions are dropped
    args.new_attributes.uid = 7;
    args.new_attributes.gid = 8;
    args.new_attributes.size = 99;
    args.new_attributes.atime = {time_how::set_to_server_time, {}};
    args.new_attributes.mtime = {time_how::set_to_client_time, {5, 999999999}};
    args.guard = nfstime3{11, 12};
    files.give_before = true;
    const auto res = call<SETATTR3res>(procedure::setattr, args);
    BOOST_TEST(res.status == nfsstat3::ok);
    BOOST_TEST((files.set.mode == 07640u));
    BOOST_TEST((files.set.uid == 7u));
    BOOST_TEST((files.set.gid == 8u));
    BOOST_TEST((files.set.size == 99u));
    BOOST_TEST((files.set.atime.how == storage::set_time::kind::server_time));
    BOOST_TEST((files.set.mtime.how == storage::set_time::kind::value));
    BOOST_TEST((files.set.mtime.value == storage::file_time{5, 999999999}));
    BOOST_REQUIRE(files.guard.has_value());
    BOOST_TEST((*files.guard == storage::file_time{11, 12}));
    BOOST_REQUIRE(res.obj_wcc.before.has_value());
    BOOST_TEST(res.obj_wcc.before->size == 4242u);
    BOOST_TEST((res.obj_wcc.before->ctime == nfstime3{1'000'000'001, 6}));
    BOOST_TEST(res.obj_wcc.after.has_value());

    SETATTR3args nothing;
    nothing.object = root();
    files.give_before = false;
    const auto res2 = call<SETATTR3res>(procedure::setattr, nothing);
    BOOST_TEST(!res2.obj_wcc.before.has_value());
    BOOST_TEST(!files.set.mode.has_value());
    BOOST_TEST((files.set.mtime.how == storage::set_time::kind::keep));
    BOOST_TEST(!files.guard.has_value());
}

BOOST_FIXTURE_TEST_CASE(setattr_refusals, nfs3_fixture)
{
    second.read_only = true;
    SETATTR3args args;
    args.object = root();
    // chown(2) and utimensat(2) would take these for "leave it" and "now".
    args.new_attributes.uid = 0xffffffff;
    BOOST_TEST(call<SETATTR3res>(procedure::setattr, args).status == nfsstat3::inval);
    args.new_attributes.uid.reset();
    args.new_attributes.gid = 0xffffffff;
    BOOST_TEST(call<SETATTR3res>(procedure::setattr, args).status == nfsstat3::inval);
    args.new_attributes.gid.reset();
    args.new_attributes.mtime = {time_how::set_to_client_time, {5, 0x3fffffff}};
    BOOST_TEST(call<SETATTR3res>(procedure::setattr, args).status == nfsstat3::inval);
    args.new_attributes.mtime = {};
    args.new_attributes.size = 0x8000000000000000;
    BOOST_TEST(call<SETATTR3res>(procedure::setattr, args).status == nfsstat3::fbig);
    BOOST_TEST(files.called == "");
    args.object = handle(1, &second);
    args.new_attributes.size = 1;
    BOOST_TEST(call<SETATTR3res>(procedure::setattr, args).status == nfsstat3::rofs);
    BOOST_TEST(program.counters().refused_read_only.value() == 1u);
    BOOST_TEST(others.called == "");

    args.object = root();
    files.fail = error(make_error_code(storage::errc::not_sync));
    const auto res = call<SETATTR3res>(procedure::setattr, args);
    BOOST_TEST(res.status == nfsstat3::not_sync);
    BOOST_TEST(res.obj_wcc.after.has_value()); // so that the client sees what it missed
}

// RFC 1813 3.3.4: what each permission gives, by type of file.
BOOST_FIXTURE_TEST_CASE(access_by_type, nfs3_fixture)
{
    const auto file = files.add(1, "f", file_type::regular);
    const struct {
        std::uint64_t id;
        unsigned permissions;
        std::uint32_t granted;
    } rules[] = {
        {1, 0, 0},
        {1, R_OK, access3::read},
        {1, X_OK, access3::lookup},
        {1, W_OK, 0}, // an entry that can't be reached can't be changed
        {1, W_OK | X_OK, access3::lookup | access3::modify | access3::extend | access3::remove},
        {1, R_OK | W_OK | X_OK,
         access3::read | access3::lookup | access3::modify | access3::extend | access3::remove},
        {file, 0, 0},
        {file, R_OK, access3::read},
        {file, X_OK, access3::execute},
        {file, W_OK, access3::modify | access3::extend},
        {file, R_OK | W_OK | X_OK, access3::read | access3::modify | access3::extend | access3::execute},
    };
    for (const auto& rule : rules) {
        files.permissions = rule.permissions;
        ACCESS3args args;
        args.object = handle(rule.id);
        args.access = 0xffffffff;
        const auto res = call<ACCESS3res>(procedure::access, args);
        BOOST_TEST(res.status == nfsstat3::ok);
        BOOST_TEST(res.access == rule.granted, "file " << rule.id << " permissions " << rule.permissions);
        BOOST_TEST(res.obj_attributes.has_value());
        for (std::uint32_t bit = 1; bit <= access3::execute; bit <<= 1) {
            args.access = bit;
            BOOST_TEST(call<ACCESS3res>(procedure::access, args).access == (rule.granted & bit));
        }
    }
}

BOOST_FIXTURE_TEST_CASE(access_to_a_read_only_export, nfs3_fixture)
{
    first.read_only = true;
    ACCESS3args args;
    args.object = root();
    args.access = access3::all;
    BOOST_TEST(call<ACCESS3res>(procedure::access, args).access == (access3::read | access3::lookup));
    files.fail_getattr = error::from_errno(EIO);
    BOOST_TEST(call<ACCESS3res>(procedure::access, args).status == nfsstat3::io);
}

BOOST_FIXTURE_TEST_CASE(serves_readlink, nfs3_fixture)
{
    const auto link = files.add(1, "l", file_type::symlink);
    files[link].target = "../some/where";
    READLINK3args args;
    args.symlink = handle(link);
    const auto c = prepare(procedure::readlink, args);
    BOOST_REQUIRE(dispatch(*c));
    const auto res = take<READLINK3res>(*c);
    BOOST_TEST(res.status == nfsstat3::ok);
    BOOST_TEST(text_of(res.data.inline_bytes) == "../some/where");
    BOOST_TEST((res.symlink_attributes && res.symlink_attributes->type == ftype3::lnk));
    // eligible for a Write chunk (RFC 8267), so never inline in the message itself
    BOOST_TEST(c->results().payloads().size() == 1u);
    files.fail = error::from_errno(EINVAL);
    BOOST_TEST(call<READLINK3res>(procedure::readlink, args).status == nfsstat3::inval);
}

BOOST_FIXTURE_TEST_CASE(serves_read, nfs3_fixture)
{
    const auto id = files.add(1, "f", file_type::regular);
    files[id].data = pattern(10'001);
    READ3args args;
    args.file = handle(id);
    const auto read = [&](std::uint64_t offset, std::uint32_t count) {
        args.offset = offset;
        args.count = count;
        auto c = prepare(procedure::read, args);
        BOOST_REQUIRE(dispatch(*c));
        const auto res = take<READ3res>(*c);
        BOOST_TEST(res.status == nfsstat3::ok);
        BOOST_TEST(res.count == res.data.inline_bytes.size());
        const auto expected =
            std::span<const std::byte>(files[id].data).subspan(std::min<std::uint64_t>(offset, 10'001));
        BOOST_TEST(std::ranges::equal(res.data.inline_bytes,
                                      expected.first(std::min<std::size_t>(expected.size(), count))));
        BOOST_TEST(res.file_attributes.has_value());
        return std::pair(res.count, res.eof);
    };
    BOOST_TEST((read(0, 4096) == std::pair(4096u, false)));
    BOOST_TEST((read(5904, 4097) == std::pair(4097u, true)));
    BOOST_TEST((read(10'000, 4096) == std::pair(1u, true)));
    BOOST_TEST((read(20'000, 4096) == std::pair(0u, true)));
    BOOST_TEST((read(7, 0) == std::pair(0u, false)));
    BOOST_TEST((read(0xffffffffffffffff, 4096) == std::pair(0u, true)));
    BOOST_TEST(files.offset == 0x7fffffffffffffffu);
    BOOST_TEST(files.count == 0u);
    BOOST_TEST((read(0, 0xffffffff) == std::pair(10'001u, true)));
    BOOST_TEST(files.count == server::max_transfer);
    BOOST_TEST(program.counters().bytes_read.value() == 4096u + 4097 + 1 + 10'001);
}

// No large buffer for what could not be sent. One byte more tells that the file has more.
BOOST_FIXTURE_TEST_CASE(read_takes_no_more_than_the_reply_has_room_for, nfs3_fixture)
{
    const auto id = files.add(1, "f", file_type::regular);
    files[id].data = pattern(10'001);
    READ3args args;
    args.file = handle(id);
    args.count = 1 << 20;
    auto c = prepare(procedure::read, args);
    c->most = 4096;
    BOOST_REQUIRE(dispatch(*c));
    BOOST_TEST(files.count == 4097u);
    BOOST_TEST(c->attached()[0].size() == 4097u);
    BOOST_TEST(c->attached()[0].bytes.owner(0).size() == 8192u);
}

BOOST_FIXTURE_TEST_CASE(read_failures, nfs3_fixture)
{
    const auto id = files.add(1, "f", file_type::regular);
    READ3args args;
    args.file = handle(id);
    args.count = 100;
    files.fail = error::from_errno(EACCES);
    const auto res = call<READ3res>(procedure::read, args);
    BOOST_TEST(res.status == nfsstat3::acces);
    BOOST_TEST(res.file_attributes.has_value());
    files.fail = error::from_errno(EISDIR);
    BOOST_TEST(call<READ3res>(procedure::read, args).status == nfsstat3::isdir);
}

BOOST_FIXTURE_TEST_CASE(serves_write, nfs3_fixture)
{
    const auto id = files.add(1, "f", file_type::regular);
    const auto bytes = pattern(5000);
    auto res = call<WRITE3res>(procedure::write, write_of(handle(id), bytes, 11, stable_how::data_sync));
    BOOST_TEST(res.status == nfsstat3::ok);
    BOOST_TEST(res.count == 5000u);
    BOOST_TEST((res.committed == stable_how::data_sync));
    BOOST_TEST(to_hex(res.verf) == to_hex("1122334455667788"));
    BOOST_TEST(res.file_wcc.after.has_value());
    BOOST_TEST(!res.file_wcc.before.has_value());
    BOOST_TEST((files.stable == storage::stability::data_sync));
    BOOST_TEST(files[id].data.size() == 5011u);
    BOOST_TEST(std::ranges::equal(std::span(files[id].data).subspan(11), bytes));
    BOOST_TEST(program.counters().bytes_written.value() == 5000u);

    res = call<WRITE3res>(procedure::write, write_of(handle(id), {}, 0, stable_how::file_sync));
    BOOST_TEST(res.status == nfsstat3::ok);
    BOOST_TEST(res.count == 0u);
}

// Programs that count their XIDs from a constant send such ones when they run twice.
BOOST_FIXTURE_TEST_CASE(writes_that_differ_only_in_their_end_are_both_done, nfs3_fixture)
{
    rpc::duplicate_request_cache repeats(1);
    rpc::service_dispatcher calls(*shard, &repeats);
    calls.add(program);
    const auto id = files.add(1, "f", file_type::regular);
    auto bytes = pattern(20000);
    for (const std::byte last : {std::byte(1), std::byte(2)}) {
        bytes.back() = last;
        auto c = prepare(procedure::write, write_of(handle(id), bytes));
        BOOST_REQUIRE(run_until_complete(*shard, calls.dispatch(*c)));
        BOOST_TEST(take<WRITE3res>(*c).count == 20000u);
        BOOST_TEST((files[id].data == bytes));
    }
    // ... also over RDMA, where the data is still with the peer when a repeat is looked for.
    for (const std::byte last : {std::byte(3), std::byte(4)}) {
        bytes.back() = last;
        memory_call c(pool, from);
        xdr::encoder out = c.begin(100003, 3, static_cast<std::uint32_t>(procedure::write), &*user);
        WRITE3args args = write_of(handle(id), bytes);
        args.data = {};
        args.data.external = true;
        args.data.length = args.count;
        encode(out, args);
        c.end(out, bytes);
        BOOST_REQUIRE(run_until_complete(*shard, calls.dispatch(c)));
        BOOST_TEST(take<WRITE3res>(c).count == 20000u);
        BOOST_TEST((files[id].data == bytes));
    }
    BOOST_TEST(repeats.stats(0).entries.value() == 0);
    BOOST_TEST(repeats.in_turn_stats(0).entries.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(many_writes_push_out_no_reply_of_a_rename, nfs3_fixture)
{
    rpc::duplicate_request_options options;
    options.max_entries = 1000;
    rpc::duplicate_request_cache repeats(1, options);
    rpc::service_dispatcher calls(*shard, &repeats);
    calls.add(program);
    const auto id = files.add(1, "f", file_type::regular);
    RENAME3args renamed;
    renamed.from = in_root("f");
    renamed.to = in_root("g");
    const auto rename = [&] {
        auto c = prepare(procedure::rename, renamed);
        BOOST_REQUIRE(run_until_complete(*shard, calls.dispatch(*c)));
        return take<RENAME3res>(*c).status;
    };
    BOOST_TEST(rename() == nfsstat3::ok);
    const auto bytes = pattern(4);
    memory_call c(pool, from);
    for (std::uint32_t i = 0; i < 5000; ++i) {
        c.xid = 0x10000 + i;
        xdr::encoder out = c.begin(100003, 3, static_cast<std::uint32_t>(procedure::write), &*user);
        encode(out, write_of(handle(id), bytes));
        c.end(out);
        if (!run_until_complete(*shard, calls.dispatch(c)))
            BOOST_FAIL("a WRITE has no reply");
    }
    BOOST_TEST(rename() == nfsstat3::ok); // and not NFS3ERR_NOENT
    BOOST_TEST(repeats.stats(0).replayed.value() == 1u);
    BOOST_TEST(repeats.stats(0).evicted.value() == 0u);
}

// What lay in memory then is lost: the verifier of a COMMIT must differ from that of the WRITE.
BOOST_FIXTURE_TEST_CASE(a_sync_that_fails_during_a_write_shows_in_the_verifier, nfs3_fixture)
{
    const auto id = files.add(1, "f", file_type::regular);
    files.boot = 7;
    files.sync_fails_meanwhile = true;
    const auto written =
        call<WRITE3res>(procedure::write, write_of(handle(id), pattern(8), 0, stable_how::unstable));
    BOOST_TEST(written.status == nfsstat3::ok);
    BOOST_TEST(to_hex(written.verf) == to_hex("0000000000000007"));
    COMMIT3args args;
    args.file = handle(id);
    BOOST_TEST(to_hex(call<COMMIT3res>(procedure::commit, args).verf) == to_hex("0000000000000008"));
}

BOOST_FIXTURE_TEST_CASE(write_of_a_read_chunk, nfs3_fixture)
{
    const auto id = files.add(1, "f", file_type::regular);
    const auto bytes = pattern(40'001);
    WRITE3args args = write_of(handle(id), bytes);
    args.data.external = true;
    const auto prepared = [&] {
        auto c = std::make_unique<memory_call>(pool, from);
        xdr::encoder out = c->begin(100003, 3, 7, &*user);
        encode(out, args);
        c->end(out, bytes);
        return c;
    };
    auto c = prepared();
    BOOST_REQUIRE(dispatch(*c));
    BOOST_TEST(take<WRITE3res>(*c).count == 40'001u);
    BOOST_TEST(c->pulls == 1);
    BOOST_TEST(files.pieces == 2u);
    BOOST_TEST((files[id].data == bytes));

    // Who may not write has not to send it.
    files.permissions = R_OK;
    files.called.clear();
    files[id].attrs.uid = 1;
    c = prepared();
    BOOST_REQUIRE(dispatch(*c));
    const auto refused = take<WRITE3res>(*c);
    BOOST_TEST(refused.status == nfsstat3::acces);
    BOOST_TEST(refused.file_wcc.after.has_value());
    BOOST_TEST(c->pulls == 0);
    BOOST_TEST(files.called == "");
    // The owner may, whatever the mode says.
    files[id].attrs.uid = 1000;
    c = prepared();
    BOOST_REQUIRE(dispatch(*c));
    BOOST_TEST(take<WRITE3res>(*c).status == nfsstat3::ok);
    // The connection broke in the middle.
    c = prepared();
    c->pull_fails = std::errc::connection_reset;
    files.called.clear();
    BOOST_TEST(!dispatch(*c));
    BOOST_TEST(files.called == "");
}

BOOST_FIXTURE_TEST_CASE(write_refusals, nfs3_fixture)
{
    second.read_only = true;
    const auto id = files.add(1, "f", file_type::regular);
    const auto bytes = pattern(8);
    BOOST_TEST(call<WRITE3res>(procedure::write, write_of(handle(1, &second), bytes)).status ==
               nfsstat3::rofs);
    for (const std::uint64_t offset : {0x7ffffffffffffff8u, 0x8000000000000000u, 0xffffffffffffffffu})
        BOOST_TEST(call<WRITE3res>(procedure::write, write_of(handle(id), bytes, offset)).status ==
                   nfsstat3::fbig);
    BOOST_TEST(files.called == "");
    BOOST_TEST(call<WRITE3res>(procedure::write, write_of(handle(id), {}, 0x7fffffffffffffff)).status ==
               nfsstat3::ok);
    for (const auto& [number, status] :
         {std::pair(ENOSPC, nfsstat3::nospc), std::pair(EDQUOT, nfsstat3::dquot),
          std::pair(EFBIG, nfsstat3::fbig), std::pair(EIO, nfsstat3::io), std::pair(EROFS, nfsstat3::rofs)}) {
        files.fail = error::from_errno(number);
        const auto res = call<WRITE3res>(procedure::write, write_of(handle(id), bytes));
        BOOST_TEST(res.status == status);
        BOOST_TEST(res.file_wcc.after.has_value());
    }
    // count and data differ
    auto c = prepare(procedure::write, write_of(handle(id), bytes));
    c->cut_short(4);
    BOOST_TEST((accept_status_of(*c) == rpc::accept_status::garbage_arguments));
}

namespace {

/// What version 4 has after a restart: one client has still to take back what it had.
class restarted_state {
public:
    explicit restarted_state(files::share keeps_out)
        : shard_(std::move(*reactor::create({}))),
          state_(std::array{&home_}, store_, nobody_, options(keeps_out), siphash_key())
    {
    }
    void end_grace()
    {
        const auto came = state_.clients().add_client("client");
        BOOST_REQUIRE(came);
        const auto done = [&]() -> task<void> {
            const auto complete = co_await state_.clients().reclaim_complete(*came);
            BOOST_TEST(complete.has_value());
        };
        run_until_complete(*shard_, done());
    }
    nfs::state_home& state() { return state_; }
    const shard& home() const { return home_; }

private:
    struct deaf final : files::state_handler {
        void recall(const files::recall_notice&) noexcept override {}
        void recall_any(files::client_id, std::size_t) noexcept override {}
        void lock_available(const files::lock_notice&) noexcept override {}
        time_point last_heard(files::client_id) noexcept override { return time_point::min(); }
    };
    static files::state_options options(files::share keeps_out)
    {
        files::state_options made;
        made.reclaimers = {{"client", keeps_out}};
        return made;
    }
    std::unique_ptr<reactor> shard_;
    memory_budget budget_{std::size_t(1) << 20};
    buffer_pool pool_{budget_, shard_.get()};
    scope tasks_{*shard_};
    shard home_{0, *shard_, pool_, tasks_};
    files::no_recovery_store store_;
    deaf nobody_;
    nfs::state_home state_;
};

/// What a client of version 4 may have kept others from, by its record.
template<files::share KeepsOut>
struct after_restart : restarted_state, nfs3_fixture {
    after_restart() : restarted_state(KeepsOut), nfs3_fixture(&state(), &home()) {}
};

} // namespace

// RFC 8881 8.4.2: what might contradict opens and locks that clients of version 4 have still to take back.
BOOST_FIXTURE_TEST_CASE(in_the_grace_period_of_version_4_some_come_again, after_restart<files::share::both>)
{
    const auto file = handle(files.add(1, "f", file_type::regular));
    const std::array bytes = {std::byte(1)};
    READ3args reading;
    reading.file = file;
    reading.count = 1;
    SETATTR3args cutting, naming;
    cutting.object = naming.object = file;
    cutting.new_attributes.size = 0;
    naming.new_attributes.uid = 7;
    REMOVE3args removing;
    removing.object = in_root("g");
    RENAME3args renaming;
    renaming.from = in_root("g");
    renaming.to = in_root("h");
    CREATE3args creating;
    creating.where = in_root("f");
    creating.mode = createmode3::unchecked;
    creating.obj_attributes.size = 0;
    const auto all = [&](nfsstat3 expected, nfsstat3 of_names) {
        BOOST_TEST(call<READ3res>(procedure::read, reading).status == expected);
        BOOST_TEST(call<WRITE3res>(procedure::write, write_of(file, bytes)).status == expected);
        BOOST_TEST(call<SETATTR3res>(procedure::setattr, cutting).status == expected);
        BOOST_TEST(call<REMOVE3res>(procedure::remove, removing).status == of_names);
        BOOST_TEST(call<RENAME3res>(procedure::rename, renaming).status == of_names);
        BOOST_TEST(call<CREATE3res>(procedure::create, creating).status == expected);
        // These contradict nothing.
        BOOST_TEST(call<GETATTR3res>(procedure::getattr, getattr_of(file)).status == nfsstat3::ok);
        BOOST_TEST(call<SETATTR3res>(procedure::setattr, naming).status == nfsstat3::ok);
    };
    all(nfsstat3::jukebox, nfsstat3::jukebox);
    end_grace();
    all(nfsstat3::ok, nfsstat3::noent);
}

// One that is dead and had denied nothing, nor had a delegation, is in the way of names alone.
BOOST_FIXTURE_TEST_CASE(io_waits_in_grace_only_for_those_that_may_have_kept_it_out,
                        after_restart<files::share::none>)
{
    const auto file = handle(files.add(1, "f", file_type::regular));
    const std::array bytes = {std::byte(1)};
    READ3args reading;
    reading.file = file;
    reading.count = 1;
    SETATTR3args cutting;
    cutting.object = file;
    cutting.new_attributes.size = 0;
    REMOVE3args removing;
    removing.object = in_root("g");
    CREATE3args creating;
    creating.where = in_root("f");
    creating.mode = createmode3::unchecked;
    creating.obj_attributes.size = 0;
    BOOST_TEST(state().is_in_grace());
    BOOST_TEST(call<READ3res>(procedure::read, reading).status == nfsstat3::ok);
    BOOST_TEST(call<WRITE3res>(procedure::write, write_of(file, bytes)).status == nfsstat3::ok);
    BOOST_TEST(call<SETATTR3res>(procedure::setattr, cutting).status == nfsstat3::ok);
    BOOST_TEST(call<CREATE3res>(procedure::create, creating).status == nfsstat3::ok);
    BOOST_TEST(call<REMOVE3res>(procedure::remove, removing).status == nfsstat3::jukebox);
}

BOOST_FIXTURE_TEST_CASE(who_kept_writers_out_is_in_no_reader_s_way, after_restart<files::share::write>)
{
    const auto file = handle(files.add(1, "f", file_type::regular));
    const std::array bytes = {std::byte(1)};
    READ3args reading;
    reading.file = file;
    reading.count = 1;
    BOOST_TEST(call<READ3res>(procedure::read, reading).status == nfsstat3::ok);
    BOOST_TEST(call<WRITE3res>(procedure::write, write_of(file, bytes)).status == nfsstat3::jukebox);
}

BOOST_FIXTURE_TEST_CASE(serves_commit, nfs3_fixture)
{
    const auto id = files.add(1, "f", file_type::regular);
    COMMIT3args args;
    args.file = handle(id);
    args.offset = 5;
    args.count = 6;
    files.boot = 3;
    auto res = call<COMMIT3res>(procedure::commit, args);
    BOOST_TEST(res.status == nfsstat3::ok);
    BOOST_TEST(to_hex(res.verf) == to_hex("0000000000000003"));
    BOOST_TEST(res.file_wcc.after.has_value());
    BOOST_TEST(files.offset == 5u);
    BOOST_TEST(files.count == 6u);
    args.offset = 0xfffffffffffffff0;
    res = call<COMMIT3res>(procedure::commit, args);
    BOOST_TEST(res.status == nfsstat3::ok);
    BOOST_TEST(files.offset == 0u);
    BOOST_TEST(files.count == 0u);
    files.fail = error::from_errno(EIO);
    BOOST_TEST(call<COMMIT3res>(procedure::commit, args).status == nfsstat3::io);
}

BOOST_FIXTURE_TEST_CASE(serves_fsstat, nfs3_fixture)
{
    FSSTAT3args args;
    args.fsroot = root();
    const auto res = call<FSSTAT3res>(procedure::fsstat, args);
    BOOST_TEST(res.status == nfsstat3::ok);
    BOOST_TEST(res.tbytes == 1000u);
    BOOST_TEST(res.fbytes == 600u);
    BOOST_TEST(res.abytes == 500u);
    BOOST_TEST(res.tfiles == 100u);
    BOOST_TEST(res.ffiles == 60u);
    BOOST_TEST(res.afiles == 50u);
    BOOST_TEST(res.obj_attributes.has_value());
    files.fail = error::from_errno(EIO);
    BOOST_TEST(call<FSSTAT3res>(procedure::fsstat, args).status == nfsstat3::io);
}

BOOST_FIXTURE_TEST_CASE(serves_fsinfo, nfs3_fixture)
{
    files.properties.time_granularity_ns = 2'000'000'001;
    files.properties.max_file_size = 0x1000;
    FSINFO3args args;
    args.fsroot = root();
    auto res = call<FSINFO3res>(procedure::fsinfo, args);
    BOOST_TEST(res.status == nfsstat3::ok);
    BOOST_TEST(res.rtmax == 0x100000u);
    BOOST_TEST(res.rtpref == 0x100000u);
    BOOST_TEST(res.wtmax == 0x100000u);
    BOOST_TEST(res.wtpref == 0x100000u);
    BOOST_TEST(res.dtpref == 0x10000u);
    BOOST_TEST(res.maxfilesize == 0x1000u);
    BOOST_TEST((res.time_delta == nfstime3{2, 1}));
    BOOST_TEST(res.properties == 0x1bu); // LINK, SYMLINK, HOMOGENEOUS, CANSETTIME
    files.properties.links = files.properties.symlinks = false;
    BOOST_TEST(call<FSINFO3res>(procedure::fsinfo, args).properties == 0x18u);
    files.fail_getattr = error::from_errno(ESTALE);
    BOOST_TEST(call<FSINFO3res>(procedure::fsinfo, args).status == nfsstat3::stale);
}

BOOST_FIXTURE_TEST_CASE(serves_pathconf, nfs3_fixture)
{
    files.properties.max_links = 77;
    files.properties.max_name = 143;
    PATHCONF3args args;
    args.object = root();
    auto res = call<PATHCONF3res>(procedure::pathconf, args);
    BOOST_TEST(res.status == nfsstat3::ok);
    BOOST_TEST(res.linkmax == 77u);
    BOOST_TEST(res.name_max == 143u);
    BOOST_TEST(res.no_trunc);
    BOOST_TEST(res.chown_restricted);
    BOOST_TEST(!res.case_insensitive);
    BOOST_TEST(res.case_preserving);
    files.fail_getattr = error::from_errno(ESTALE);
    BOOST_TEST(call<PATHCONF3res>(procedure::pathconf, args).status == nfsstat3::stale);
}

BOOST_FIXTURE_TEST_CASE(whom_the_program_admits, nfs3_fixture)
{
    for (nfs::export_options* each : {&first, &second}) {
        BOOST_REQUIRE(each->clients.add("10.0.0.0/8"));
        each->secure = true;
        each->transports = {"tcp"};
    }
    start();
    BOOST_TEST(program.admits({"10.1.2.3", "10.1.2.3:5000", "tcp", 5000}));
    BOOST_TEST(program.admits({"10.1.2.3", "10.1.2.3", "rdma", 0}));
    BOOST_TEST(program.admits({"a client", "a client", "loop", 0}));
    BOOST_TEST(!program.admits({"192.0.2.66", "192.0.2.66:700", "tcp", 700}));
}

BOOST_AUTO_TEST_SUITE_END()
