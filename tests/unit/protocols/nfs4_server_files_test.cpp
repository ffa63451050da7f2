// SPDX-License-Identifier: Apache-2.0
// Names, attributes, data and opens.
#include "nfs4_server.hpp"

#include <verbena/protocols/nfs/server/v4/storage.hpp>

#include <set>

BOOST_AUTO_TEST_SUITE(nfs4_server_files_test)

using namespace verbena;
using namespace verbena::test;

namespace {

CREATE4args making(std::string_view name, nfs_ftype4 type = nfs_ftype4::dir)
{
    CREATE4args args;
    args.objtype.type = type;
    args.objname = name;
    return args;
}

} // namespace

struct fixture : nfs4_fixture {
    fixture() { client.connect(); }
    template<class... Args>
    answer4 here(const Args&... args)
    {
        return client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, args...);
    }
    /// The attributes that the last of the operations, a GETATTR, yields.
    template<class... Args>
    attributes attributes_behind(bitmap4 wanted, const Args&... args)
    {
        answer4 out = client.call(PUTROOTFH4args(), args..., GETATTR4args{wanted});
        BOOST_TEST_REQUIRE(out.status() == nfsstat4::ok);
        out.good<PUTROOTFH4res>();
        (out.good<LOOKUP_or_parent<Args>>(), ...);
        attributes values;
        BOOST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
        return values;
    }
    template<class Args>
    using LOOKUP_or_parent = std::conditional_t<std::is_same_v<Args, LOOKUP4args>, LOOKUP4res, LOOKUPP4res>;

    /// Pages through the current directory.
    template<class... Args>
    std::vector<std::string> names(std::uint32_t maxcount, bitmap4 wanted, const Args&... way)
    {
        std::vector<std::string> found;
        READDIR4args args;
        args.maxcount = maxcount;
        args.attr_request = wanted;
        for (bool eof = false; !eof;) {
            answer4 out = client.call(PUTROOTFH4args(), way..., args);
            BOOST_TEST_REQUIRE(out.status() == nfsstat4::ok);
            out.good<PUTROOTFH4res>();
            (out.good<LOOKUP_or_parent<Args>>(), ...);
            args.cookieverf = out.good<READDIR4res>().cookieverf;
            readdir_reader reader(out.in());
            entry4 entry;
            while (reader.next(entry)) {
                BOOST_TEST(entry.cookie > 2u);
                BOOST_CHECK(entry.attrs.attrmask == wanted);
                args.cookie = entry.cookie;
                found.emplace_back(entry.name);
            }
            eof = reader.eof();
        }
        return found;
    }
    client4 client{*this, "a"};
};

BOOST_FIXTURE_TEST_CASE(the_pseudo_file_system_leads_to_the_exports, fixture)
{
    const bitmap4 wanted{attribute::fsid, attribute::fileid, attribute::mounted_on_fileid, attribute::mode};
    const attributes root = attributes_behind(wanted);
    const attributes deep = attributes_behind(wanted, LOOKUP4args{"deep"});
    const attributes other = attributes_behind(wanted, LOOKUP4args{"deep"}, LOOKUP4args{"other"});
    const attributes files_root = attributes_behind(wanted, LOOKUP4args{"export"});
    BOOST_CHECK(root.fsid == deep.fsid);
    BOOST_CHECK(root.fsid != other.fsid);
    BOOST_CHECK(other.fsid != files_root.fsid);
    BOOST_TEST(root.mode == 0555u);
    BOOST_TEST(other.mode == 0777u);
    BOOST_TEST(other.fileid != other.mounted_on_fileid);
    BOOST_TEST(deep.fileid == deep.mounted_on_fileid);
    // And back.
    const attributes back =
        attributes_behind(wanted, LOOKUP4args{"deep"}, LOOKUP4args{"other"}, LOOKUPP4args());
    BOOST_TEST(back.fileid == deep.fileid);
    BOOST_CHECK(back.fsid == root.fsid);
    BOOST_TEST(client.call(PUTROOTFH4args(), LOOKUPP4args()).status() == nfsstat4::noent);
    BOOST_TEST(client.call(PUTROOTFH4args(), LOOKUP4args{"none"}).status() == nfsstat4::noent);
    BOOST_TEST(client.call(PUTROOTFH4args(), making("d")).status() == nfsstat4::rofs);
    BOOST_CHECK(names(4096, {attribute::fileid}) == (std::vector<std::string>{"deep", "export"}));
    BOOST_CHECK(names(4096, {attribute::fsid, attribute::filehandle}, LOOKUP4args{"deep"}) ==
                std::vector<std::string>{"other"});
}

BOOST_FIXTURE_TEST_CASE(an_export_that_refuses_a_peer_is_not_there, nfs4_fixture)
{
    options[1].transports = {"iwarp"};
    client4 client(*this, "a");
    client.connect();
    BOOST_TEST(client.call(PUTROOTFH4args(), LOOKUP4args{"deep"}).status() == nfsstat4::noent);
    answer4 handle = client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, GETFH4args());
    BOOST_TEST(handle.status() == nfsstat4::ok);
    from.transport = "iwarp";
    answer4 there = client.call(PUTROOTFH4args(), LOOKUP4args{"deep"}, LOOKUP4args{"other"}, GETFH4args());
    there.good<PUTROOTFH4res>();
    there.good<LOOKUP4res>();
    there.good<LOOKUP4res>();
    const auto fh = there.good<GETFH4res>();
    // A handle is no right.
    from.transport = "tcp";
    BOOST_TEST(client.call(PUTFH4args{fh.object}).status() == nfsstat4::stale);
    BOOST_TEST(program->counters().refused.transport.value() == 2u);
    auto forged = std::vector<std::byte>(fh.object.begin(), fh.object.end());
    forged.back() ^= std::byte(1);
    BOOST_TEST(client.call(PUTFH4args{std::span<const std::byte>(forged)}).status() == nfsstat4::badhandle);
}

BOOST_FIXTURE_TEST_CASE(names_are_checked, fixture)
{
    const std::string longest(255, 'n');
    const std::string too_long(256, 'n');
    BOOST_TEST(here(LOOKUP4args{""}).status() == nfsstat4::inval);
    BOOST_TEST(here(LOOKUP4args{"."}).status() == nfsstat4::badname);
    BOOST_TEST(here(making("..")).status() == nfsstat4::badname);
    BOOST_TEST(here(making("a/b")).status() == nfsstat4::badchar);
    BOOST_TEST(here(making(std::string_view(too_long))).status() == nfsstat4::nametoolong);
    BOOST_TEST(here(making(std::string_view(longest))).status() == nfsstat4::ok);
    BOOST_TEST(here(making("f", nfs_ftype4::reg)).status() == nfsstat4::badtype);
}

// Linux keeps its rights and names of a directory if what was before its change is what it knew, and nothing came in between.
BOOST_FIXTURE_TEST_CASE(a_change_of_a_directory_begins_where_the_last_one_ended, fixture)
{
    const bitmap4 wanted{attribute::change};
    changeid4 known = attributes_behind(wanted, LOOKUP4args{"export"}).change;
    const auto follows = [&](const change_info4& info) {
        BOOST_TEST(info.atomic);
        BOOST_TEST(info.before == known);
        BOOST_TEST(info.after > info.before);
        known = info.after;
        BOOST_TEST(attributes_behind(wanted, LOOKUP4args{"export"}).change == known);
    };
    for (const std::string_view name : {"d", "e", "f"}) {
        answer4 made = here(making(name));
        made.good<PUTROOTFH4res>();
        made.good<LOOKUP4res>();
        follows(made.good<CREATE4res>().cinfo);
    }
    const auto file = client.open(client.creating("file"));
    BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    follows(file.res.cinfo);
    // An open of what is there changes nothing.
    const auto again = client.open(client.opening("file", share4::access_read));
    BOOST_TEST_REQUIRE(again.status == nfsstat4::ok);
    BOOST_TEST(again.res.cinfo.atomic);
    BOOST_TEST(again.res.cinfo.before == known);
    BOOST_TEST(again.res.cinfo.after == known);
    answer4 renamed = here(SAVEFH4args(), RENAME4args{"d", "g"});
    renamed.good<PUTROOTFH4res>();
    renamed.good<LOOKUP4res>();
    renamed.good<SAVEFH4res>();
    const auto moved = renamed.good<RENAME4res>();
    follows(moved.source_cinfo);
    BOOST_TEST((moved.target_cinfo == moved.source_cinfo));
    answer4 gone = here(REMOVE4args{"g"});
    gone.good<PUTROOTFH4res>();
    gone.good<LOOKUP4res>();
    follows(gone.good<REMOVE4res>().cinfo);
}

BOOST_AUTO_TEST_CASE(a_change_is_atomic_if_the_back_end_says_what_was_before)
{
    storage::attributes before, after;
    before.ctime = {1, 2};
    after.ctime = {3, 4};
    storage::change change;
    BOOST_TEST((to_change_info(change) == change_info4()));
    change.after = after; // of a back end without numbers
    BOOST_TEST((to_change_info(change) == change_info4{false, 3'000'000'004, 3'000'000'004}));
    change.before = before;
    BOOST_TEST((to_change_info(change) == change_info4{true, 1'000'000'002, 3'000'000'004}));
    change.before->change = 7;
    change.after->change = 9;
    BOOST_TEST((to_change_info(change) == change_info4{true, 7, 9}));
    change.after.reset();
    BOOST_TEST(!to_change_info(change).atomic);
}

BOOST_FIXTURE_TEST_CASE(directories_change, fixture)
{
    answer4 made = here(making("d"), GETFH4args());
    made.good<PUTROOTFH4res>();
    made.good<LOOKUP4res>();
    const auto info = made.good<CREATE4res>().cinfo;
    BOOST_TEST(info.atomic);
    BOOST_TEST(info.before < info.after);
    made.good<GETFH4res>();
    BOOST_TEST(here(making("d")).status() == nfsstat4::exist);
    CREATE4args symbolic = making("s", nfs_ftype4::lnk);
    symbolic.objtype.linkdata = std::as_bytes(std::span("over there", 10));
    BOOST_TEST(here(symbolic).status() == nfsstat4::ok);
    answer4 text = here(LOOKUP4args{"s"}, READLINK4args());
    text.good<PUTROOTFH4res>();
    text.good<LOOKUP4res>();
    text.good<LOOKUP4res>();
    BOOST_TEST(text.good<READLINK4res>().link.length == 10u);
    BOOST_TEST(here(LOOKUP4args{"s"}, LOOKUP4args{"x"}).status() == nfsstat4::symlink);
    BOOST_TEST(here(LOOKUP4args{"d"}, READLINK4args()).status() == nfsstat4::wrong_type);
    const auto file = client.open(client.creating("f"));
    BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    BOOST_TEST(here(LOOKUP4args{"f"}, LOOKUP4args{"x"}).status() == nfsstat4::notdir);
    BOOST_TEST(here(LOOKUP4args{"f"}, SAVEFH4args(), PUTROOTFH4args(), LOOKUP4args{"export"}, LINK4args{"g"})
                   .status() == nfsstat4::ok);
    BOOST_TEST(here(LOOKUP4args{"d"}, SAVEFH4args(), PUTROOTFH4args(), LOOKUP4args{"export"}, LINK4args{"e"})
                   .status() != nfsstat4::ok);
    BOOST_TEST(here(LINK4args{"h"}).status() == nfsstat4::nofilehandle);
    BOOST_TEST(here(SAVEFH4args(), LOOKUP4args{"d"}, RENAME4args{"g", "moved"}).status() == nfsstat4::ok);
    BOOST_TEST(here(LOOKUP4args{"d"}, LOOKUP4args{"moved"}).status() == nfsstat4::ok);
    BOOST_TEST(here(SAVEFH4args(), PUTROOTFH4args(), LOOKUP4args{"deep"}, LOOKUP4args{"other"},
                    RENAME4args{"f", "f"})
                   .status() == nfsstat4::xdev);
    BOOST_TEST(here(REMOVE4args{"d"}).status() == nfsstat4::notempty);
    BOOST_TEST(here(LOOKUP4args{"d"}, REMOVE4args{"moved"}).status() == nfsstat4::ok);
    BOOST_TEST(here(REMOVE4args{"d"}).status() == nfsstat4::ok);
    BOOST_TEST(here(REMOVE4args{"d"}).status() == nfsstat4::noent);
}

BOOST_FIXTURE_TEST_CASE(listings_go_page_by_page, fixture)
{
    std::set<std::string> made;
    for (int i = 0; i < 40; ++i) {
        const std::string name = "entry" + std::to_string(i);
        BOOST_TEST_REQUIRE(here(making(std::string_view(name))).status() == nfsstat4::ok);
        made.insert(name);
    }
    for (const bitmap4 wanted : {bitmap4{attribute::rdattr_error, attribute::mounted_on_fileid},
                                 bitmap4{attribute::type, attribute::filehandle, attribute::fsid,
                                         attribute::mode, attribute::owner}}) {
        const auto found = names(700, wanted, LOOKUP4args{"export"});
        BOOST_TEST(found.size() == 40u);
        BOOST_CHECK(std::set<std::string>(found.begin(), found.end()) == made);
    }
    READDIR4args args;
    args.maxcount = 15;
    BOOST_TEST(here(args).status() == nfsstat4::toosmall);
    args.maxcount = 4096;
    args.cookie = 1;
    BOOST_TEST(here(args).status() == nfsstat4::bad_cookie);
    args.cookie = 0;
    args.cookieverf[3] = std::byte(1);
    BOOST_TEST(here(args).status() == nfsstat4::bad_cookie);
    args.cookieverf = {};
    args.attr_request = {attribute::time_modify_set};
    BOOST_TEST(here(args).status() == nfsstat4::inval);
}

BOOST_FIXTURE_TEST_CASE(a_file_is_written_and_read, fixture)
{
    const auto file = client.open(client.creating("f"));
    BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    BOOST_CHECK(file.res.delegation.delegation_type == open_delegation_type4::none);
    BOOST_TEST(client.write(file, "some text") == nfsstat4::ok);
    BOOST_TEST(client.read(file, file.id) == "some text");
    BOOST_TEST(client.read(file, stateid4::anonymous()) == "some text");
    // Two READs in one call, of which the transport can take one apart.
    answer4 two = client.call(PUTFH4args{client4::handle_of(file)}, READ4args{file.id, 0, 4},
                              READ4args{file.id, 5, 100}, GETATTR4args{{attribute::size}});
    two.good<PUTFH4res>();
    const auto first = two.good<READ4res>();
    const auto second = two.good<READ4res>();
    BOOST_TEST(first.data.length == 4u);
    BOOST_TEST(!first.eof);
    BOOST_TEST(second.data.length == 4u);
    BOOST_TEST(second.eof);
    two.good<GETATTR4res>();
    BOOST_TEST(client.call(PUTFH4args{client4::handle_of(file)}, COMMIT4args()).status() == nfsstat4::ok);
    BOOST_TEST(here(READ4args{stateid4::anonymous(), 0, 1}).status() == nfsstat4::isdir);
    // Closed, it has no more rights.
    answer4 closed = client.call(PUTFH4args{client4::handle_of(file)}, CLOSE4args{0, file.id});
    closed.good<PUTFH4res>();
    BOOST_CHECK(closed.good<CLOSE4res>().open_stateid == stateid4::invalid());
    BOOST_TEST(client.write(file, "x") == nfsstat4::bad_stateid);
    const stateid4 ids[] = {file.id, stateid4::anonymous()};
    answer4 tested = client.call(TEST_STATEID4args{std::span<const stateid4>(ids)});
    const auto codes = tested.good<TEST_STATEID4res>().status_codes;
    BOOST_TEST_REQUIRE(codes.size() == 2u);
    for (const nfsstat4 code : codes)
        BOOST_TEST(code == nfsstat4::bad_stateid);
}

BOOST_FIXTURE_TEST_CASE(the_current_stateid_stands_for_the_last_one, fixture)
{
    const OPEN4args opening = client.creating("f");
    const WRITE4args writing{stateid4::current(), 0, stable_how4::file_sync,
                             std::as_bytes(std::span("x", 1))};
    BOOST_TEST(here(opening, writing, CLOSE4args{0, stateid4::current()}).status() == nfsstat4::ok);
    // A new current handle has none.
    BOOST_TEST(here(LOOKUP4args{"f"}, writing).status() == nfsstat4::bad_stateid);
    // The saved one is carried along.
    BOOST_TEST(here(opening, SAVEFH4args(), PUTROOTFH4args(), RESTOREFH4args(), writing).status() ==
               nfsstat4::ok);
    BOOST_TEST(
        here(opening, SAVEFH4args(), PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"f"}, writing)
            .status() == nfsstat4::bad_stateid);
}

BOOST_FIXTURE_TEST_CASE(opens_create_in_each_mode, fixture)
{
    BOOST_TEST(client.open(client.opening("f")).status == nfsstat4::noent);
    const auto made = client.open(client.creating("f"));
    BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
    client.write(made, "text");
    BOOST_TEST(client.open(client.creating("f", createmode4::guarded)).status == nfsstat4::exist);
    // What is there stays as it is, but for the size, if it is to be none.
    attributes values;
    values.present = {attribute::mode};
    values.mode = 0400;
    const encoded read_only(values);
    OPEN4args again = client.creating("f");
    again.openhow.attrs = read_only.raw;
    BOOST_TEST(client.open(again).status == nfsstat4::ok);
    BOOST_TEST(client.read(made, stateid4{0, made.id.other}) == "text");
    values.present = {attribute::size};
    values.size = 0;
    const encoded none(values);
    again.openhow.attrs = none.raw;
    const auto cut = client.open(again);
    BOOST_TEST(cut.status == nfsstat4::ok);
    BOOST_TEST(cut.res.attrset.test(attribute::size));
    BOOST_TEST(cut.id.seqid == made.id.seqid + 2);
    BOOST_TEST(client.read(made, stateid4{0, made.id.other}).empty());
    // The mode is that of the creation, and its maker may write all the same.
    OPEN4args closed = client.creating("closed", createmode4::exclusive4_1);
    closed.openhow.verf[0] = std::byte(1);
    closed.openhow.attrs = read_only.raw;
    const auto mine = client.open(closed);
    BOOST_TEST_REQUIRE(mine.status == nfsstat4::ok);
    BOOST_TEST(mine.res.attrset.test(attribute::time_modify));
    const auto again_mine = client.open(closed);
    BOOST_TEST_REQUIRE(again_mine.status == nfsstat4::ok);
    // Somebody else who knows the verifier opens a file as any other.
    user->uid = 1001;
    client4 other(*this, "other");
    other.connect();
    OPEN4args claimed = other.creating("closed", createmode4::exclusive4_1);
    claimed.openhow.verf[0] = std::byte(1);
    claimed.openhow.attrs = read_only.raw;
    BOOST_TEST(other.open(claimed).status == nfsstat4::access);
    user->uid = 1000;
    BOOST_TEST(client.write(mine, "text", again_mine.id) == nfsstat4::ok);
    BOOST_TEST(client.open(closed).status == nfsstat4::exist); // that is no new file
    BOOST_TEST(client.open(client.opening("closed")).status == nfsstat4::access);
    closed.openhow.verf[0] = std::byte(2);
    BOOST_TEST(client.open(closed).status == nfsstat4::exist);
    values.present = {attribute::time_modify_set};
    const encoded times(values);
    closed.openhow.attrs = times.raw;
    BOOST_TEST(client.open(closed).status == nfsstat4::inval);
    here(making("d"));
    BOOST_TEST(client.open(client.opening("d")).status == nfsstat4::isdir);
    BOOST_TEST(client.open(client.opening("f", 0)).status == nfsstat4::inval);
    // By handle.
    OPEN4args by_handle = client.opening("");
    by_handle.claim.claim = open_claim_type4::fh;
    BOOST_TEST(here(LOOKUP4args{"f"}, by_handle).status() == nfsstat4::ok);
    by_handle.share_access |= share4::want_read_delegation;
    answer4 wants = here(LOOKUP4args{"f"}, by_handle);
    wants.good<PUTROOTFH4res>();
    wants.good<LOOKUP4res>();
    wants.good<LOOKUP4res>();
    BOOST_CHECK(wants.good<OPEN4res>().delegation.delegation_type == open_delegation_type4::none_ext);
    // That creates nothing, in no mode, and cuts nothing.
    client.write(made, "text", stateid4{0, made.id.other});
    for (const createmode4 mode : {createmode4::unchecked, createmode4::guarded, createmode4::exclusive4_1}) {
        OPEN4args creates = client.creating("", mode);
        creates.claim.claim = open_claim_type4::fh;
        creates.openhow.attrs = none.raw;
        BOOST_TEST(here(LOOKUP4args{"f"}, creates).status() == nfsstat4::inval);
        BOOST_TEST(here(creates).status() == nfsstat4::inval);
    }
    BOOST_TEST(client.read(made, stateid4{0, made.id.other}) == "text");
    OPEN4args reclaim = client.opening("");
    reclaim.claim.claim = open_claim_type4::previous;
    BOOST_TEST(here(LOOKUP4args{"f"}, reclaim).status() == nfsstat4::no_grace);
}

BOOST_FIXTURE_TEST_CASE(opens_deny_and_limit, fixture)
{
    const auto read_only = client.open([&] {
        OPEN4args args = client.creating("f");
        args.share_access = share4::access_read;
        args.share_deny = share4::deny_write;
        return args;
    }());
    BOOST_TEST_REQUIRE(read_only.status == nfsstat4::ok);
    BOOST_TEST(client.write(read_only, "x") == nfsstat4::openmode);
    BOOST_TEST(client.write(read_only, "x", stateid4::anonymous()) == nfsstat4::locked);
    attributes size;
    size.present = {attribute::size};
    const encoded none(size);
    BOOST_TEST(client.call(PUTFH4args{client4::handle_of(read_only)}, SETATTR4args{read_only.id, none.raw})
                   .status() == nfsstat4::openmode);
    client4 other(*this, "b");
    other.connect();
    BOOST_TEST(other.open(other.opening("f")).status == nfsstat4::share_denied);
    // Another client's stateid is none.
    BOOST_TEST(other.read(read_only, read_only.id) == "NFS4ERR_BAD_STATEID");
    OPEN_DOWNGRADE4args narrower;
    narrower.open_stateid = read_only.id;
    narrower.share_access = share4::access_both;
    BOOST_TEST(client.call(PUTFH4args{client4::handle_of(read_only)}, narrower).status() == nfsstat4::inval);
}

BOOST_FIXTURE_TEST_CASE(attributes_are_set_and_compared, fixture)
{
    const auto file = client.open(client.creating("f"));
    attributes values;
    values.present = {attribute::mode, attribute::owner_group};
    values.mode = 0640;
    values.owner_group = "100";
    const encoded good(values);
    answer4 set = client.call(PUTFH4args{client4::handle_of(file)}, SETATTR4args{{}, good.raw});
    set.good<PUTFH4res>();
    BOOST_CHECK(set.good<SETATTR4res>().attrsset == values.present);
    const PUTFH4args put{std::span(file.handle)};
    BOOST_TEST(client.call(put, VERIFY4args{good.raw}).status() == nfsstat4::ok);
    BOOST_TEST(client.call(put, NVERIFY4args{good.raw}).status() == nfsstat4::same);
    values.mode = 0600;
    const encoded differs(values);
    BOOST_TEST(client.call(put, VERIFY4args{differs.raw}).status() == nfsstat4::not_same);
    BOOST_TEST(client.call(put, NVERIFY4args{differs.raw}).status() == nfsstat4::ok);
    for (const char* bad : {"nobody@nowhere", "007", "+1", "4294967295"}) {
        values.owner_group = bad;
        const encoded raw(values);
        BOOST_TEST(client.call(put, SETATTR4args{{}, raw.raw}).status() == nfsstat4::badowner);
    }
    values.present = {attribute::size};
    values.size = 100;
    const encoded longer(values);
    BOOST_TEST(client.call(put, SETATTR4args{file.id, longer.raw}).status() == nfsstat4::ok);
    BOOST_TEST(client.read(file, file.id).size() == 100u);
    answer4 out = client.call(put, ACCESS4args{access4::all});
    out.good<PUTFH4res>();
    const auto access = out.good<ACCESS4res>();
    BOOST_TEST(access.supported == (access4::all & ~(access4::lookup | access4::remove)));
    BOOST_TEST(access.access == (access4::read | access4::modify | access4::extend));
    BOOST_TEST(client.call(put, ACCESS4args{0x40}).status() == nfsstat4::inval);
    BOOST_TEST(client.call(put, GETATTR4args{{attribute::time_modify_set}}).status() == nfsstat4::inval);
    // Never more than was asked for, nor what the minor version has not.
    answer4 got =
        client.call(put, GETATTR4args{{attribute::size, attribute::hidden, attribute::change_attr_type}});
    got.good<PUTFH4res>();
    BOOST_CHECK(got.good<GETATTR4res>().obj_attributes.attrmask == bitmap4{attribute::size});
}

BOOST_FIXTURE_TEST_CASE(security_is_told_and_consumes_the_handle, fixture)
{
    answer4 out = client.call(PUTROOTFH4args(), SECINFO_NO_NAME4args(), GETFH4args());
    BOOST_TEST(out.status() == nfsstat4::nofilehandle);
    out.good<PUTROOTFH4res>();
    const auto said = out.good<SECINFO_NO_NAME4res>();
    BOOST_TEST_REQUIRE(said.flavours.size() == 1u);
    BOOST_TEST((*said.flavours.begin()).flavor == secinfo4::auth_sys);
    SECINFO_NO_NAME4args parent;
    parent.style = secinfo_style4::parent;
    BOOST_TEST(client.call(PUTROOTFH4args(), parent).status() == nfsstat4::noent);
    BOOST_TEST(client.call(PUTROOTFH4args(), SECINFO4args{"export"}).status() == nfsstat4::ok);
    BOOST_TEST(client.call(PUTROOTFH4args(), SECINFO4args{"none"}).status() == nfsstat4::noent);
}

BOOST_FIXTURE_TEST_CASE(ranges_are_locked, fixture)
{
    const auto file = client.open(client.creating("f"));
    client4 other(*this, "b");
    other.connect();
    const auto theirs = other.open(other.opening("f"));
    const auto locking = [](stateid4 open, std::string_view owner) {
        LOCK4args args;
        args.locktype = nfs_lock_type4::write;
        args.offset = 10;
        args.length = 20;
        args.locker.new_lock_owner = true;
        args.locker.open_stateid = open;
        args.locker.lock_owner.owner = std::as_bytes(std::span(owner));
        return args;
    };
    const PUTFH4args put{std::span(file.handle)};
    answer4 locked = client.call(put, locking(file.id, "mine"));
    locked.good<PUTFH4res>();
    const stateid4 id = locked.good<LOCK4res>().lock_stateid;
    answer4 refused = other.call(put, locking(theirs.id, "theirs"));
    refused.good<PUTFH4res>();
    const auto denied = refused.take<LOCK4res>();
    BOOST_TEST(denied.status == nfsstat4::denied);
    BOOST_TEST(denied.denied.offset == 10u);
    BOOST_TEST(denied.denied.length == 20u);
    BOOST_TEST(denied.denied.owner.owner.size() == 4u);
    LOCKT4args test;
    test.length = to_end_of_file;
    BOOST_TEST(other.call(put, test).status() == nfsstat4::denied);
    test.length = 0;
    BOOST_TEST(other.call(put, test).status() == nfsstat4::inval);
    BOOST_TEST(client.call(FREE_STATEID4args{id}).status() == nfsstat4::locks_held);
    LOCKU4args unlock;
    unlock.lock_stateid = id;
    unlock.length = to_end_of_file;
    BOOST_TEST(client.call(put, unlock).status() == nfsstat4::ok);
    BOOST_TEST(client.call(FREE_STATEID4args{id}).status() == nfsstat4::old_stateid);
    BOOST_TEST(client.call(FREE_STATEID4args{stateid4{0, id.other}}).status() == nfsstat4::ok);
    BOOST_TEST(other.call(put, locking(theirs.id, "theirs")).status() == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(read_only_exports_stay_as_they_are, nfs4_fixture)
{
    options[0].read_only = true;
    client4 client(*this, "a");
    client.connect();
    BOOST_TEST(client.open(client.creating("f")).status == nfsstat4::rofs);
    BOOST_TEST(client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, making("d")).status() == nfsstat4::rofs);
    answer4 out = client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, ACCESS4args{access4::all});
    out.good<PUTROOTFH4res>();
    out.good<LOOKUP4res>();
    BOOST_TEST(out.good<ACCESS4res>().access == (access4::read | access4::lookup));
}

BOOST_FIXTURE_TEST_CASE(no_file_is_made_for_an_open_that_is_refused, nfs4_fixture)
{
    client4 fresh(*this, "c");
    fresh.id = compound(fresh.exchange()).good<EXCHANGE_ID4res>().clientid;
    fresh.open_session();
    for (const createmode4 mode :
         {createmode4::unchecked, createmode4::guarded, createmode4::exclusive, createmode4::exclusive4_1})
        BOOST_TEST(fresh.open(fresh.creating("f", mode)).status == nfsstat4::grace);
    BOOST_TEST(fresh.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"f"}).status() ==
               nfsstat4::noent);
    BOOST_TEST(fresh.call(client4::reclaimed()).status() == nfsstat4::ok);
    BOOST_TEST(fresh.open(fresh.creating("f", createmode4::guarded)).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(who_lost_his_lease_gives_way_where_all_is_used_up, nfs4_fixture)
{
    state_limits.opens = 2;
    state_limits.peer_percent = 100;
    client4 a(*this, "a"), b(*this, "b");
    a.connect();
    b.connect();
    BOOST_TEST(a.open(a.creating("f")).status == nfsstat4::ok);
    BOOST_TEST(b.open(b.creating("g")).status == nfsstat4::ok);
    BOOST_TEST(b.open(b.creating("h")).status == nfsstat4::delay);
    BOOST_TEST(b.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"h"}).status() == nfsstat4::noent);
    clock.advance(60s);
    shard->turn();
    BOOST_TEST(b.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    clock.advance(60s);
    shard->turn();
    BOOST_TEST(b.open(b.creating("h")).status == nfsstat4::ok);
    BOOST_TEST(a.call(PUTROOTFH4args()).status() == nfsstat4::badsession);
}

// What only the client itself can give back, its user hears of; who waits for others comes again.
BOOST_FIXTURE_TEST_CASE(a_client_that_has_all_it_may_have_is_told, nfs4_fixture)
{
    state_limits.opens_per_client = 2;
    state_limits.lock_states_per_client = 1;
    state_limits.opens = 12; // three for each peer
    client4 a(*this, "a"), b(*this, "b");
    a.connect();
    b.connect();
    const auto f = a.open(a.creating("f"));
    const auto g = a.open(a.creating("g"));
    BOOST_TEST(a.open(a.creating("h")).status == nfsstat4::nospc);
    BOOST_TEST(a.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"h"}).status() == nfsstat4::noent);
    const auto lock = [&](const client4::opened& file, std::string_view owner) {
        LOCK4args args;
        args.locktype = nfs_lock_type4::write;
        args.length = 10;
        args.locker.new_lock_owner = true;
        args.locker.open_stateid = file.id;
        args.locker.lock_owner.owner = std::as_bytes(std::span(owner));
        return a.call(PUTFH4args{client4::handle_of(file)}, args).status();
    };
    BOOST_TEST(lock(f, "x") == nfsstat4::ok);
    BOOST_TEST(lock(g, "y") == nfsstat4::serverfault);
    // The other one of its peer has something that it may close.
    BOOST_TEST(b.open(b.creating("h")).status == nfsstat4::ok);
    BOOST_TEST(b.open(b.creating("i")).status == nfsstat4::delay);
    // And who looks at the metrics sees it. A host that locks by NLM is no client of version 4.
    BOOST_REQUIRE(commons->state.clients().add_host("h", 0, false));
    metric_registry registry;
    const auto of_state = commons->expose(registry);
    const auto of_program = program->expose(registry);
    std::map<std::string, double> seen;
    for (const auto& m : registry.collect()) {
        for (const auto& s : m.samples) {
            std::string name = m.family.name;
            for (const auto& label : s.labels)
                name += ' ' + label;
            seen[name] = s.value;
        }
    }
    const std::string refusals = "verbena_nfs4_limit_refusals_total ";
    BOOST_TEST(seen[refusals + "opens client"] == 1);
    BOOST_TEST(seen[refusals + "opens peer"] == 1);
    BOOST_TEST(seen[refusals + "lock_owners client"] == 1);
    BOOST_TEST(seen["verbena_nfs4_clients active"] == 2);
    BOOST_TEST(seen["verbena_nfs4_clients courtesy"] == 0);
    BOOST_TEST(seen["verbena_nfs_lock_hosts"] == 1);
    BOOST_TEST(seen["verbena_nfs4_sessions"] == 2);
    BOOST_TEST(seen["verbena_nfs4_opens"] == 3);
    BOOST_TEST(seen["verbena_nfs4_locks"] == 1);
    BOOST_TEST(seen["verbena_nfs4_lock_owners"] == 1);
    BOOST_TEST(seen["verbena_nfs4_files"] == 3);
    BOOST_TEST(seen["verbena_nfs4_owner_name_bytes"] == 3); // "a", "b", "x"
    BOOST_TEST(seen["verbena_nfs4_slot_bytes"] > 0);
    BOOST_TEST(a.call(PUTFH4args{client4::handle_of(g)}, CLOSE4args{0, g.id}).status() == nfsstat4::ok);
    BOOST_TEST(b.open(b.creating("i")).status == nfsstat4::ok);
    BOOST_TEST(a.open(a.opening("f")).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(exports_of_others_are_not_counted_out, nfs4_fixture)
{
    // "/deep" and "/export" lie in the root, and this peer may use the latter alone.
    options.front().clients = {};
    BOOST_REQUIRE(options.front().clients.add("*"));
    from.address = "192.0.2.9";
    client4 stranger(*this, "a");
    stranger.connect();
    answer4 out = stranger.call(PUTROOTFH4args(), GETATTR4args{bitmap4{attribute::numlinks}});
    out.good<PUTROOTFH4res>();
    attributes values;
    BOOST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
    BOOST_TEST(values.numlinks == 3u);
    READDIR4args list;
    list.dircount = list.maxcount = 4096;
    answer4 listed = stranger.call(PUTROOTFH4args(), list);
    listed.good<PUTROOTFH4res>();
    listed.good<READDIR4res>();
    readdir_reader reader(listed.in());
    entry4 entry;
    BOOST_TEST_REQUIRE(reader.next(entry));
    BOOST_TEST(entry.cookie == 3u);
    BOOST_TEST(!reader.next(entry));
    BOOST_TEST(reader.eof());
}

BOOST_AUTO_TEST_SUITE_END()
