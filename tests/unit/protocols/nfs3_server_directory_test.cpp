// SPDX-License-Identifier: Apache-2.0
// LOOKUP, the procedures that make and remove entries, READDIR and READDIRPLUS.
#include <boost/test/unit_test.hpp>

#include "nfs3_server.hpp"

#include <verbena/core/net/refusals.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>

BOOST_AUTO_TEST_SUITE(nfs3_server_directory_test)

using namespace verbena;
using namespace verbena::test;
using storage::file_type;

namespace {

std::vector<std::byte> bytes_of(std::string_view text)
{
    const auto view = std::as_bytes(std::span(text));
    return {view.begin(), view.end()};
}

struct listing {
    nfsstat3 status = nfsstat3::ok;
    post_op_attr directory;
    cookieverf3 verifier{};
    std::vector<std::string> names;
    std::vector<std::uint64_t> fileids;
    std::vector<post_op_fh3> handles;
    std::vector<post_op_attr> attributes;
    std::uint64_t last_cookie = 0;
    bool eof = false;
    std::size_t resok_size = 0;
};

struct fixture : nfs3_fixture {
    listing readdir(std::uint32_t count, std::uint64_t cookie = 0, cookieverf3 verifier = {})
    {
        READDIR3args args;
        args.dir = root();
        args.cookie = cookie;
        args.cookieverf = verifier;
        args.count = count;
        auto c = prepare(procedure::readdir, args);
        BOOST_REQUIRE(dispatch(*c));
        xdr::decoder in = c->reply();
        listing list = head(*c, in);
        if (list.status != nfsstat3::ok)
            return list;
        readdir_reader reader(in);
        entry3 entry;
        while (reader.next(entry)) {
            list.names.emplace_back(entry.name);
            list.fileids.push_back(entry.fileid);
            list.last_cookie = entry.cookie;
        }
        list.eof = reader.eof();
        BOOST_TEST(in.at_end());
        return list;
    }
    listing readdirplus(std::uint32_t maxcount, std::uint32_t dircount, std::uint64_t cookie = 0,
                        cookieverf3 verifier = {})
    {
        READDIRPLUS3args args;
        args.dir = root();
        args.cookie = cookie;
        args.cookieverf = verifier;
        args.dircount = dircount;
        args.maxcount = maxcount;
        auto c = prepare(procedure::readdirplus, args);
        BOOST_REQUIRE(dispatch(*c));
        xdr::decoder in = c->reply();
        listing list = head(*c, in);
        if (list.status != nfsstat3::ok)
            return list;
        readdirplus_reader reader(in);
        entryplus3 entry;
        while (reader.next(entry)) {
            list.names.emplace_back(entry.name);
            list.fileids.push_back(entry.fileid);
            list.handles.push_back(entry.name_handle);
            list.attributes.push_back(entry.name_attributes);
            list.last_cookie = entry.cookie;
        }
        list.eof = reader.eof();
        BOOST_TEST(in.at_end());
        return list;
    }

private:
    listing head(memory_call& c, xdr::decoder& in)
    {
        BOOST_REQUIRE(c.header_of_reply.success());
        listing list;
        list.resok_size = in.remaining() - 4;
        directory_head head;
        decode(in, head);
        list.status = head.status;
        list.directory = head.dir_attributes;
        list.verifier = head.cookieverf;
        return list;
    }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(serves_lookup, fixture)
{
    const auto id = files.add(1, "name", file_type::regular);
    LOOKUP3args args;
    args.what = in_root("name");
    auto res = call<LOOKUP3res>(procedure::lookup, args);
    BOOST_TEST(res.status == nfsstat3::ok);
    BOOST_TEST((res.object == handle(id)));
    BOOST_TEST((res.obj_attributes && res.obj_attributes->fileid == id));
    BOOST_TEST((res.dir_attributes && res.dir_attributes->fileid == 1));
    // ".." at the root is the root
    args.what = in_root("..");
    BOOST_TEST((call<LOOKUP3res>(procedure::lookup, args).object == root()));
    args.what = in_root("absent");
    res = call<LOOKUP3res>(procedure::lookup, args);
    BOOST_TEST(res.status == nfsstat3::noent);
    BOOST_TEST(res.dir_attributes.has_value());
    args.what = {handle(id), "x"};
    BOOST_TEST(call<LOOKUP3res>(procedure::lookup, args).status == nfsstat3::notdir);
}

BOOST_FIXTURE_TEST_CASE(what_a_name_leads_to, fixture)
{
    LOOKUP3args args;
    args.what = in_root("x");
    files.fail = error(make_error_code(storage::errc::crosses_mount));
    BOOST_TEST(program.counters().refused_mount.value() == 0u);
    BOOST_TEST(call<LOOKUP3res>(procedure::lookup, args).status == nfsstat3::acces);
    BOOST_TEST(program.counters().refused_mount.value() == 1u);
    files.fail = error::from_errno(EACCES); // that is no rule of the export
    BOOST_TEST(call<LOOKUP3res>(procedure::lookup, args).status == nfsstat3::acces);
    BOOST_TEST(program.counters().refused_mount.value() == 1u);
    files.fail = error::from_errno(ENAMETOOLONG);
    const std::string long_name(4096, 'n');
    args.what = in_root(long_name);
    BOOST_TEST(call<LOOKUP3res>(procedure::lookup, args).status == nfsstat3::nametoolong);
}

BOOST_FIXTURE_TEST_CASE(serves_create, fixture)
{
    CREATE3args args;
    args.where = in_root("new");
    args.obj_attributes.mode = 0640;
    files.give_before = true;
    auto res = call<CREATE3res>(procedure::create, args);
    BOOST_TEST(res.status == nfsstat3::ok);
    BOOST_TEST((files.mode == storage::create_mode::unchecked));
    BOOST_TEST((files.set.mode == 0640u));
    BOOST_REQUIRE(res.obj.has_value());
    BOOST_TEST((*res.obj == handle(2)));
    BOOST_TEST((res.obj_attributes && res.obj_attributes->mode == 0640u));
    BOOST_TEST((res.dir_wcc.before && res.dir_wcc.before->size == 4242u));
    BOOST_TEST(res.dir_wcc.after.has_value());

    args.mode = createmode3::guarded;
    res = call<CREATE3res>(procedure::create, args);
    BOOST_TEST(res.status == nfsstat3::exist);
    BOOST_TEST((files.mode == storage::create_mode::guarded));
    BOOST_TEST(!res.obj.has_value());
    BOOST_TEST(res.dir_wcc.after.has_value());

    args.where.name = "exclusive";
    args.mode = createmode3::exclusive;
    for (unsigned i = 0; i < 8; ++i)
        args.verf[i] = std::byte(i + 1);
    BOOST_TEST(call<CREATE3res>(procedure::create, args).status == nfsstat3::ok);
    BOOST_TEST((files.mode == storage::create_mode::exclusive));
    BOOST_TEST(files.verifier == 0x0102030405060708u);
    BOOST_TEST(!files.set.mode.has_value());

    args.mode = createmode3::unchecked;
    args.obj_attributes.uid = 0xffffffff;
    BOOST_TEST(call<CREATE3res>(procedure::create, args).status == nfsstat3::inval);
}

BOOST_FIXTURE_TEST_CASE(mkdir_and_rmdir, fixture)
{
    MKDIR3args args;
    args.where = in_root("dir");
    args.attributes.mode = 0750;
    const auto res = call<MKDIR3res>(procedure::mkdir, args);
    BOOST_TEST(res.status == nfsstat3::ok);
    BOOST_TEST((res.obj_attributes && res.obj_attributes->type == ftype3::dir));
    BOOST_TEST(res.obj.has_value());

    RMDIR3args gone;
    gone.object = in_root(".");
    BOOST_TEST(call<RMDIR3res>(procedure::rmdir, gone).status == nfsstat3::inval);
    gone.object = in_root("..");
    BOOST_TEST(call<RMDIR3res>(procedure::rmdir, gone).status == nfsstat3::exist);
    BOOST_TEST(files.called == "mkdir");
    gone.object = in_root("dir");
    const auto removed = call<RMDIR3res>(procedure::rmdir, gone);
    BOOST_TEST(removed.status == nfsstat3::ok);
    BOOST_TEST(removed.dir_wcc.after.has_value());
    BOOST_TEST(!files.has(1, "dir"));
    files.fail = error::from_errno(ENOTEMPTY);
    BOOST_TEST(call<RMDIR3res>(procedure::rmdir, gone).status == nfsstat3::notempty);
    // a mount point of the server's own; asking again would not help
    files.fail = error::from_errno(EBUSY);
    BOOST_TEST(call<RMDIR3res>(procedure::rmdir, gone).status == nfsstat3::acces);
}

BOOST_FIXTURE_TEST_CASE(serves_symlink, fixture)
{
    const auto target = bytes_of("/any/where");
    SYMLINK3args args;
    args.where = in_root("link");
    args.symlink_data.length = static_cast<std::uint32_t>(target.size());
    args.symlink_data.inline_bytes = target;
    const auto res = call<SYMLINK3res>(procedure::symlink, args);
    BOOST_TEST(res.status == nfsstat3::ok);
    BOOST_TEST(files[2].target == "/any/where");
    BOOST_TEST((res.obj_attributes && res.obj_attributes->type == ftype3::lnk));

    // in a Read chunk
    args.where = in_root("link2");
    args.symlink_data.external = true;
    memory_call c(pool, from);
    xdr::encoder out = c.begin(100003, 3, 10, &*user);
    encode(out, args);
    c.end(out, target);
    BOOST_REQUIRE(dispatch(c));
    BOOST_TEST(take<SYMLINK3res>(c).status == nfsstat3::ok);
    BOOST_TEST(files[3].target == "/any/where");

    args.symlink_data.external = false;
    files.called.clear();
    for (const auto& [text, status] :
         {std::pair(std::string(), nfsstat3::inval), std::pair(std::string("a\0b", 3), nfsstat3::inval),
          std::pair(std::string(4097, 'a'), nfsstat3::nametoolong)}) {
        const auto bad = bytes_of(text);
        args.symlink_data.length = static_cast<std::uint32_t>(bad.size());
        args.symlink_data.inline_bytes = bad;
        BOOST_TEST(call<SYMLINK3res>(procedure::symlink, args).status == status);
    }
    BOOST_TEST(files.called == "");
}

BOOST_FIXTURE_TEST_CASE(serves_mknod, fixture)
{
    MKNOD3args args;
    args.spec = {8, 17};
    for (const auto& [type, expected] :
         {std::pair(ftype3::chr, file_type::character_device),
          std::pair(ftype3::blk, file_type::block_device), std::pair(ftype3::sock, file_type::socket),
          std::pair(ftype3::fifo, file_type::fifo)}) {
        const std::string name = "node" + std::to_string(int(type));
        args.where = in_root(name);
        args.type = type;
        const auto res = call<MKNOD3res>(procedure::mknod, args);
        BOOST_TEST(res.status == nfsstat3::ok);
        BOOST_REQUIRE(res.obj_attributes.has_value());
        BOOST_TEST((res.obj_attributes->type == type));
        const bool device = type == ftype3::chr || type == ftype3::blk;
        BOOST_TEST((res.obj_attributes->rdev == (device ? specdata3{8, 17} : specdata3{})));
    }
    files.called.clear();
    for (const ftype3 type : {ftype3::reg, ftype3::dir, ftype3::lnk}) {
        args.where = in_root("bad");
        args.type = type;
        BOOST_TEST(call<MKNOD3res>(procedure::mknod, args).status == nfsstat3::badtype);
    }
    BOOST_TEST(files.called == "");
    args.type = ftype3::chr;
    files.fail = error::from_errno(EPERM);
    BOOST_TEST(call<MKNOD3res>(procedure::mknod, args).status == nfsstat3::perm);
}

BOOST_FIXTURE_TEST_CASE(serves_remove, fixture)
{
    files.add(1, "f", file_type::regular);
    REMOVE3args args;
    args.object = in_root("f");
    BOOST_TEST(call<REMOVE3res>(procedure::remove, args).status == nfsstat3::ok);
    BOOST_TEST(!files.has(1, "f"));
    const auto res = call<REMOVE3res>(procedure::remove, args);
    BOOST_TEST(res.status == nfsstat3::noent);
    BOOST_TEST(res.dir_wcc.after.has_value());
    BOOST_TEST(!res.dir_wcc.before.has_value());
}

BOOST_FIXTURE_TEST_CASE(serves_rename, fixture)
{
    const auto dir = files.add(1, "d", file_type::directory);
    files.add(1, "a", file_type::regular);
    RENAME3args args;
    args.from = in_root("a");
    args.to = {handle(dir), "b"};
    const auto res = call<RENAME3res>(procedure::rename, args);
    BOOST_TEST(res.status == nfsstat3::ok);
    BOOST_TEST((res.fromdir_wcc.after && res.fromdir_wcc.after->fileid == 1));
    BOOST_TEST((res.todir_wcc.after && res.todir_wcc.after->fileid == dir));
    BOOST_TEST(files.has(dir, "b"));
    files.called.clear();
    args.to = {handle(1, &second), "b"};
    BOOST_TEST(call<RENAME3res>(procedure::rename, args).status == nfsstat3::xdev);
    args.to = {nfs_fh3(), "b"};
    BOOST_TEST(call<RENAME3res>(procedure::rename, args).status == nfsstat3::badhandle);
    BOOST_TEST(files.called == "");
    args.to = in_root("b");
    const auto absent = call<RENAME3res>(procedure::rename, args);
    BOOST_TEST(absent.status == nfsstat3::noent);
    BOOST_TEST(absent.fromdir_wcc.after.has_value());
    BOOST_TEST(absent.todir_wcc.after.has_value());
}

BOOST_FIXTURE_TEST_CASE(serves_link, fixture)
{
    const auto id = files.add(1, "a", file_type::regular);
    LINK3args args;
    args.file = handle(id);
    args.link = in_root("b");
    const auto res = call<LINK3res>(procedure::link, args);
    BOOST_TEST(res.status == nfsstat3::ok);
    BOOST_TEST((res.file_attributes && res.file_attributes->nlink == 2u));
    BOOST_TEST(res.linkdir_wcc.after.has_value());
    files.called.clear();
    args.link = {handle(1, &second), "b"};
    BOOST_TEST(call<LINK3res>(procedure::link, args).status == nfsstat3::xdev);
    BOOST_TEST(files.called == "");
    args.link = in_root("c");
    files.fail = error::from_errno(EMLINK);
    BOOST_TEST(call<LINK3res>(procedure::link, args).status == nfsstat3::mlink);
}

BOOST_FIXTURE_TEST_CASE(a_read_only_export_is_not_changed, fixture)
{
    const std::uint64_t read_only_before = refusals(refused::export_read_only);
    first.read_only = true;
    CREATE3args creation;
    creation.where = in_root("x");
    BOOST_TEST(call<CREATE3res>(procedure::create, creation).status == nfsstat3::rofs);
    MKDIR3args directory;
    directory.where = in_root("x");
    BOOST_TEST(call<CREATE3res>(procedure::mkdir, directory).status == nfsstat3::rofs);
    SYMLINK3args symbolic;
    symbolic.where = in_root("x");
    BOOST_TEST(call<CREATE3res>(procedure::symlink, symbolic).status == nfsstat3::rofs);
    MKNOD3args node;
    node.where = in_root("x");
    BOOST_TEST(call<CREATE3res>(procedure::mknod, node).status == nfsstat3::rofs);
    REMOVE3args removal;
    removal.object = in_root("x");
    BOOST_TEST(call<REMOVE3res>(procedure::remove, removal).status == nfsstat3::rofs);
    BOOST_TEST(call<REMOVE3res>(procedure::rmdir, removal).status == nfsstat3::rofs);
    RENAME3args renaming;
    renaming.from = in_root("x");
    renaming.to = in_root("y");
    BOOST_TEST(call<RENAME3res>(procedure::rename, renaming).status == nfsstat3::rofs);
    LINK3args hard;
    hard.file = root();
    hard.link = in_root("x");
    BOOST_TEST(call<LINK3res>(procedure::link, hard).status == nfsstat3::rofs);
    BOOST_TEST(files.called == "");
    BOOST_TEST(program.counters().refused_read_only.value() == 8u);
    BOOST_TEST(refusals(refused::export_read_only) == read_only_before + 8);
}

BOOST_FIXTURE_TEST_CASE(readdir_in_one_go, fixture)
{
    files.add(1, "a", file_type::regular);
    files.add(1, "b", file_type::directory);
    const auto list = readdir(4096);
    BOOST_TEST(list.status == nfsstat3::ok);
    const std::vector<std::string> names = {".", "..", "a", "b"};
    BOOST_TEST(list.names == names, boost::test_tools::per_element());
    const std::vector<std::uint64_t> ids = {1, 1, 2, 3};
    BOOST_TEST(list.fileids == ids, boost::test_tools::per_element());
    BOOST_TEST(list.eof);
    BOOST_TEST(to_hex(list.verifier) == to_hex("aabbccdd00112233"));
    BOOST_TEST((list.directory && list.directory->fileid == 1));
    // behind the last entry
    const auto rest = readdir(4096, list.last_cookie, list.verifier);
    BOOST_TEST(rest.status == nfsstat3::ok);
    BOOST_TEST(rest.names.empty());
    BOOST_TEST(rest.eof);
}

BOOST_FIXTURE_TEST_CASE(listings_in_parts, fixture)
{
    std::vector<std::string> expected = {".", ".."};
    for (int i = 0; i < 3000; ++i) {
        const std::string number = std::to_string(i);
        expected.push_back("entry" + std::string(5 - number.size(), '0') + number);
        files.add(1, expected.back(), file_type::regular);
    }
    for (const bool plus : {false, true}) {
        for (const std::uint32_t count : {512u, 4096u, 1u << 20}) {
            std::vector<std::string> names;
            listing list;
            do {
                list = plus ? readdirplus(count, count, list.last_cookie, list.verifier)
                            : readdir(count, list.last_cookie, list.verifier);
                BOOST_REQUIRE(list.status == nfsstat3::ok);
                BOOST_REQUIRE(!list.names.empty());
                BOOST_TEST(list.resok_size <= std::min(count, server::max_listing));
                names.insert(names.end(), list.names.begin(), list.names.end());
                for (std::size_t i = 0; i < list.handles.size(); ++i) {
                    BOOST_REQUIRE(list.handles[i].has_value());
                    BOOST_TEST((*list.handles[i] == handle(list.fileids[i])));
                    BOOST_TEST((list.attributes[i] && list.attributes[i]->fileid == list.fileids[i]));
                }
            } while (!list.eof);
            BOOST_TEST((names == expected));
        }
    }
}

BOOST_FIXTURE_TEST_CASE(listing_failures, fixture)
{
    files.add(1, "a", file_type::regular);
    for (const std::uint32_t count : {0u, 1u, 100u, 120u}) {
        BOOST_TEST(readdir(count).status == nfsstat3::toosmall);
        BOOST_TEST(readdirplus(count, 4096).status == nfsstat3::toosmall);
    }
    // dircount is a hint: one entry comes in any case
    BOOST_TEST(readdirplus(4096, 0).names.size() == 1u);
    cookieverf3 stale{};
    stale[0] = std::byte(1);
    const auto list = readdir(4096, 2, stale);
    BOOST_TEST(list.status == nfsstat3::bad_cookie);
    BOOST_TEST(list.directory.has_value());
    BOOST_TEST(readdirplus(4096, 4096, 2, stale).status == nfsstat3::bad_cookie);
    files.fail = error::from_errno(EACCES);
    BOOST_TEST(readdir(4096).status == nfsstat3::acces);

    READDIR3args args;
    args.dir = root();
    args.count = 4096;
    auto c = prepare(procedure::readdir, args);
    c->no_memory = true;
    BOOST_REQUIRE(dispatch(*c));
    xdr::decoder in = c->reply();
    BOOST_TEST((nfsstat3(in.u32()) == nfsstat3::jukebox));
}

// A host that may use no export fills no memory that is for the repeats of others.
BOOST_FIXTURE_TEST_CASE(refused_calls_are_not_kept_for_repeats, nfs3_fixture)
{
    rpc::duplicate_request_cache repeats(1);
    rpc::service_dispatcher calls(*shard, &repeats);
    calls.add(program);
    MKDIR3args args;
    args.where = in_root("d");
    const auto ask = [&] {
        auto c = prepare(procedure::mkdir, args);
        BOOST_REQUIRE(run_until_complete(*shard, calls.dispatch(*c)));
        xdr::decoder in = c->reply();
        return nfsstat3(in.u32());
    };
    const rpc::peer good = from;
    from.address = "192.0.2.1";
    BOOST_TEST(ask() == nfsstat3::acces);
    from = good;
    args.where.dir = {};
    BOOST_TEST(ask() == nfsstat3::badhandle);
    BOOST_TEST(repeats.stats(0).entries.value() == 0);
    args.where.dir = root();
    BOOST_TEST(ask() == nfsstat3::ok);
    BOOST_TEST(ask() == nfsstat3::ok);
    BOOST_TEST(repeats.stats(0).replayed.value() == 1u);
    BOOST_TEST(repeats.stats(0).entries.value() == 1);
}

// An export that begins in this one's root: its rules are gone by, whatever this one's are.
BOOST_FIXTURE_TEST_CASE(an_export_in_another_one, fixture)
{
    const auto covered = files.add(1, "inner", file_type::directory);
    const auto plain = files.add(1, "plain", file_type::directory);
    files.add(plain, "inner", file_type::directory);
    fake_backend inside;
    nfs::export_options inner = options("/export/inner", inside);
    start();
    BOOST_REQUIRE(exports.add(inner));
    LOOKUP3args args;
    args.what = in_root("inner");
    const auto res = call<LOOKUP3res>(procedure::lookup, args);
    BOOST_TEST(res.status == nfsstat3::ok);
    BOOST_TEST((res.object == handle(fake_backend::root_id, &inner)));
    BOOST_TEST((res.obj_attributes && res.obj_attributes->fileid == fake_backend::root_id));
    BOOST_TEST((res.dir_attributes && res.dir_attributes->fileid == 1));
    const listing list = readdirplus(10000, 10000);
    BOOST_TEST_REQUIRE(list.status == nfsstat3::ok);
    for (std::size_t i = 0; i < list.names.size(); ++i) {
        const bool is_covered = list.names[i] == "inner";
        BOOST_TEST(list.handles[i].has_value() == !is_covered, list.names[i]);
        BOOST_TEST(list.attributes[i].has_value() == !is_covered, list.names[i]);
        BOOST_TEST((!is_covered || list.fileids[i] == covered));
    }
    RENAME3args rename;
    rename.from = in_root("inner");
    rename.to = in_root("moved");
    BOOST_TEST(call<RENAME3res>(procedure::rename, rename).status == nfsstat3::acces);
    rename.from = in_root("plain");
    rename.to = in_root("inner");
    BOOST_TEST(call<RENAME3res>(procedure::rename, rename).status == nfsstat3::acces);
    REMOVE3args remove;
    remove.object = in_root("inner");
    BOOST_TEST(call<REMOVE3res>(procedure::remove, remove).status == nfsstat3::acces);
    RMDIR3args rmdir;
    rmdir.object = in_root("inner");
    BOOST_TEST(call<RMDIR3res>(procedure::rmdir, rmdir).status == nfsstat3::acces);
    // What has the name elsewhere is nothing special.
    args.what = {handle(plain), "inner"};
    BOOST_TEST((call<LOOKUP3res>(procedure::lookup, args).object == handle(plain + 1)));
    rmdir.object = {handle(plain), "inner"};
    BOOST_TEST(call<RMDIR3res>(procedure::rmdir, rmdir).status == nfsstat3::ok);
}

BOOST_FIXTURE_TEST_CASE(an_export_in_another_one_that_refuses_the_peer, fixture)
{
    files.add(1, "inner", file_type::directory);
    fake_backend inside;
    nfs::export_options inner = options("/export/inner", inside);
    inner.transports = {"iwarp"};
    start();
    BOOST_REQUIRE(exports.add(inner));
    LOOKUP3args args;
    args.what = in_root("inner");
    const auto res = call<LOOKUP3res>(procedure::lookup, args);
    BOOST_TEST(res.status == nfsstat3::acces);
    BOOST_TEST((res.dir_attributes && res.dir_attributes->fileid == 1));
    BOOST_TEST(program.counters().refused.transport.value() == 1u);
    // Where it covers nothing it is not there.
    files[1].children.erase("inner");
    BOOST_TEST(call<LOOKUP3res>(procedure::lookup, args).status == nfsstat3::noent);
}

// The file system takes all spellings for one name, and lists one that is not the export's.
BOOST_FIXTURE_TEST_CASE(an_export_in_another_one_by_another_spelling, fixture)
{
    const auto covered = files.add(1, "inner", file_type::directory);
    const auto beneath = files.add(covered, "secret", file_type::directory);
    files.add(1, "plain", file_type::directory);
    files.folds_case = true;
    fake_backend inside;
    nfs::export_options inner = options("/export/INNER", inside);
    start();
    BOOST_REQUIRE(exports.add(inner));
    LOOKUP3args args;
    for (const char* name : {"INNER", "inner", "InNeR"}) {
        args.what = in_root(name);
        const auto res = call<LOOKUP3res>(procedure::lookup, args);
        BOOST_TEST(res.status == nfsstat3::ok);
        BOOST_TEST((res.object == handle(fake_backend::root_id, &inner)), name);
    }
    args.what = in_root("PLAIN");
    BOOST_TEST(call<LOOKUP3res>(procedure::lookup, args).status == nfsstat3::ok);
    const listing list = readdirplus(10000, 10000);
    BOOST_TEST_REQUIRE(list.status == nfsstat3::ok);
    for (std::size_t i = 0; i < list.names.size(); ++i)
        BOOST_TEST(list.handles[i].has_value() == (list.names[i] != "inner"), list.names[i]);
    RENAME3args rename;
    rename.from = in_root("inner");
    rename.to = in_root("moved");
    BOOST_TEST(call<RENAME3res>(procedure::rename, rename).status == nfsstat3::acces);
    rename.from = in_root("plain");
    rename.to = in_root("inner");
    BOOST_TEST(call<RENAME3res>(procedure::rename, rename).status == nfsstat3::acces);
    RMDIR3args rmdir;
    rmdir.object = in_root("inner");
    BOOST_TEST(call<RMDIR3res>(procedure::rmdir, rmdir).status == nfsstat3::acces);
    REMOVE3args remove;
    remove.object = in_root("inner");
    BOOST_TEST(call<REMOVE3res>(procedure::remove, remove).status == nfsstat3::acces);
    // By a handle from before, and by what lies beneath it.
    GETATTR3args get;
    get.object = handle(covered);
    BOOST_TEST(call<GETATTR3res>(procedure::getattr, get).status == nfsstat3::stale);
    args.what = {handle(beneath), ".."};
    BOOST_TEST(call<LOOKUP3res>(procedure::lookup, args).status == nfsstat3::stale);
}

// Beneath directories that are no exports.
BOOST_FIXTURE_TEST_CASE(an_export_deep_in_another_one, fixture)
{
    const auto above = files.add(1, "a", file_type::directory);
    const auto between = files.add(above, "b", file_type::directory);
    const auto covered = files.add(between, "inner", file_type::directory);
    fake_backend inside;
    nfs::export_options inner = options("/export/a/b/inner", inside);
    start();
    BOOST_REQUIRE(exports.add(inner));
    LOOKUP3args args;
    args.what = in_root("a");
    BOOST_TEST((call<LOOKUP3res>(procedure::lookup, args).object == handle(above)));
    args.what = {handle(above), "b"};
    BOOST_TEST((call<LOOKUP3res>(procedure::lookup, args).object == handle(between)));
    args.what = {handle(between), "inner"};
    BOOST_TEST((call<LOOKUP3res>(procedure::lookup, args).object == handle(fake_backend::root_id, &inner)));
    GETATTR3args get;
    get.object = handle(covered);
    BOOST_TEST(call<GETATTR3res>(procedure::getattr, get).status == nfsstat3::stale);
    // Moved, what leads there would let the other export's directory be had by this one's rules.
    RENAME3args rename;
    rename.from = in_root("a");
    rename.to = in_root("moved");
    BOOST_TEST(call<RENAME3res>(procedure::rename, rename).status == nfsstat3::acces);
    rename.from = {handle(above), "b"};
    BOOST_TEST(call<RENAME3res>(procedure::rename, rename).status == nfsstat3::acces);
    rename.from = {handle(between), "inner"};
    BOOST_TEST(call<RENAME3res>(procedure::rename, rename).status == nfsstat3::acces);
}

BOOST_AUTO_TEST_SUITE_END()
