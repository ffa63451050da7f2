// SPDX-License-Identifier: Apache-2.0
// An export whose path lies in another one's.
#include "nfs4_server.hpp"

BOOST_AUTO_TEST_SUITE(nfs4_nested_exports_test)

using namespace verbena;
using namespace verbena::test;

namespace {

constexpr bitmap4 all_of_entry{attribute::type,       attribute::fsid,   attribute::rdattr_error,
                               attribute::filehandle, attribute::fileid, attribute::mounted_on_fileid};

struct fixture : nfs4_fixture {
    fixture()
    {
        user->uid = 0;
        make("plain");
        covered = make("inner");
        inner = &add("/export/inner", *inside);
        options[0].root_squash = inner->root_squash = false;
    }
    std::uint64_t make(std::string_view name)
    {
        storage::request root;
        root.who = storage::credential(0, 0);
        storage::set_attributes set;
        set.mode = 0755;
        const auto made = run_until_complete(*shard, files->mkdir(root, files->root(), name, set));
        BOOST_REQUIRE(made);
        return made->made.attrs->fileid;
    }
    template<class... Args>
    nfsstat4 here(const Args&... args)
    {
        return client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, args...).status();
    }
    struct entry {
        bitmap4 said;
        attributes values;
        std::vector<std::byte> handle;
    };
    std::map<std::string, entry> list(bitmap4 wanted)
    {
        std::map<std::string, entry> found;
        READDIR4args args;
        args.maxcount = 16384;
        args.attr_request = wanted;
        answer4 out = client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, args);
        BOOST_TEST_REQUIRE(out.status() == nfsstat4::ok);
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        out.good<READDIR4res>();
        readdir_reader reader(out.in());
        entry4 each;
        while (reader.next(each)) {
            entry& made = found[std::string(each.name)];
            made.said = each.attrs.attrmask;
            BOOST_REQUIRE(decode_attributes(each.attrs, made.values));
            made.handle.assign(made.values.filehandle.begin(), made.values.filehandle.end());
        }
        BOOST_TEST(reader.eof());
        return found;
    }
    /// What LOOKUP and GETATTR tell of the export.
    entry looked_up(std::string_view name)
    {
        answer4 out = client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{name},
                                  GETATTR4args{all_of_entry});
        BOOST_TEST_REQUIRE(out.status() == nfsstat4::ok);
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        out.good<LOOKUP4res>();
        entry made;
        BOOST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, made.values));
        made.handle.assign(made.values.filehandle.begin(), made.values.filehandle.end());
        return made;
    }
    std::unique_ptr<storage::file_backend> inside = make_files(lane);
    nfs::export_options* inner = nullptr;
    std::uint64_t covered = 0;
    client4 client{*this, "a"};
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_listing_leads_where_lookup_does, fixture)
{
    client.connect();
    auto listed = list(all_of_entry);
    for (const char* name : {"inner", "plain"}) {
        const entry known = looked_up(name);
        BOOST_CHECK(listed[name].said == all_of_entry);
        BOOST_CHECK(listed[name].values.fsid == known.values.fsid);
        BOOST_TEST(listed[name].values.fileid == known.values.fileid);
        BOOST_TEST(listed[name].values.mounted_on_fileid == known.values.mounted_on_fileid);
        BOOST_CHECK(listed[name].handle == known.handle);
    }
    BOOST_CHECK(listed["inner"].values.fsid != listed["plain"].values.fsid);
    // 8881 5.8.2.23: that of the directory which it covers.
    BOOST_TEST(listed["inner"].values.mounted_on_fileid == covered);
    BOOST_TEST(listed["inner"].values.fileid != covered);
    BOOST_TEST(list({attribute::mounted_on_fileid})["inner"].values.mounted_on_fileid == covered);
    BOOST_TEST(list({attribute::fileid})["inner"].values.fileid == listed["inner"].values.fileid);
    const auto with_acls = list({attribute::acl, attribute::fsid});
    BOOST_CHECK(with_acls.at("inner").values.fsid == listed["inner"].values.fsid);
    BOOST_CHECK(with_acls.at("inner").said.test(attribute::acl));
}

BOOST_FIXTURE_TEST_CASE(who_may_not_use_it_gets_nothing_of_what_it_covers, fixture)
{
    inner->transports = {"iwarp"};
    client.connect();
    auto listed = list(all_of_entry);
    BOOST_CHECK(listed["plain"].said == all_of_entry);
    BOOST_CHECK(listed["inner"].said == (bitmap4{attribute::rdattr_error, attribute::mounted_on_fileid}));
    BOOST_TEST(listed["inner"].values.rdattr_error == nfsstat4::access);
    BOOST_TEST(listed["inner"].values.mounted_on_fileid == covered);
    // A client that asks for no errors has the rest of the listing all the same.
    BOOST_CHECK(list({attribute::fileid, attribute::filehandle})["inner"].said == bitmap4());
    BOOST_CHECK(list({attribute::fileid, attribute::filehandle})["plain"].said ==
                (bitmap4{attribute::fileid, attribute::filehandle}));
    BOOST_TEST(here(LOOKUP4args{"inner"}) == nfsstat4::access);
    BOOST_TEST(here(SECINFO4args{"inner"}) == nfsstat4::access);
    BOOST_TEST(client.open(client.opening("inner")).status == nfsstat4::access);
    BOOST_TEST(here(LOOKUP4args{"plain"}) == nfsstat4::ok);
    BOOST_TEST(program->counters().refused.transport.value() == 3u);
}

// Then nothing is covered, and the name is free.
BOOST_FIXTURE_TEST_CASE(who_may_not_use_it_does_not_hear_of_it_where_it_covers_nothing, fixture)
{
    add("/export/free", *inside).transports = {"iwarp"};
    client.connect();
    BOOST_TEST(here(LOOKUP4args{"free"}) == nfsstat4::noent);
    BOOST_TEST(client.open(client.creating("free")).status == nfsstat4::ok);
    BOOST_TEST(here(LOOKUP4args{"free"}) == nfsstat4::access);
}

// Elsewhere in the outer export it would be had by the rules of that one.
BOOST_FIXTURE_TEST_CASE(what_an_export_covers_stays_where_it_is, fixture)
{
    client.connect();
    BOOST_TEST(here(REMOVE4args{"inner"}) == nfsstat4::access);
    BOOST_TEST(here(SAVEFH4args(), RENAME4args{"inner", "moved"}) == nfsstat4::access);
    BOOST_TEST(here(SAVEFH4args(), RENAME4args{"plain", "inner"}) == nfsstat4::access);
    // By this name alone, and there alone.
    CREATE4args making;
    making.objtype.type = nfs_ftype4::dir;
    making.objname = "inner";
    BOOST_TEST(here(LOOKUP4args{"plain"}, making) == nfsstat4::ok);
    BOOST_TEST(here(LOOKUP4args{"plain"}, SAVEFH4args(), RENAME4args{"inner", "other"}) == nfsstat4::ok);
    BOOST_TEST(here(LOOKUP4args{"plain"}, REMOVE4args{"other"}) == nfsstat4::ok);
    BOOST_TEST(here(SAVEFH4args(), RENAME4args{"plain", "moved"}) == nfsstat4::ok);
}

BOOST_AUTO_TEST_SUITE_END()
