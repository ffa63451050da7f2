// SPDX-License-Identifier: Apache-2.0
// An export whose path lies in another one's.
#include "nfs4_server.hpp"

#include <verbena/core/task/event.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>

#include <algorithm>
#include <cctype>

BOOST_AUTO_TEST_SUITE(nfs4_nested_exports_test)

using namespace verbena;
using namespace verbena::test;

namespace {

constexpr bitmap4 all_of_entry{attribute::type,       attribute::fsid,   attribute::rdattr_error,
                               attribute::filehandle, attribute::fileid, attribute::mounted_on_fileid};

/// A file system that takes all spellings of a name for one. Its listings have another one than the exports' paths.
class folding final : public storage::forwarding_backend {
public:
    using forwarding_backend::forwarding_backend;
    task<result<storage::lookup_result>> lookup(const storage::request& r, const storage::handle& directory,
                                                std::string_view name) override
    {
        ++lookups;
        std::string folded(name);
        std::ranges::transform(folded, folded.begin(), [](unsigned char c) { return char(std::tolower(c)); });
        if (hangs != nullptr && folded == hanging)
            (void)co_await hangs->wait();
        co_return co_await forwarding_backend::lookup(r, directory, folded);
    }
    task<result<storage::readdir_result>> readdir(const storage::request& r, const storage::handle& directory,
                                                  std::uint64_t cookie, std::uint64_t verifier,
                                                  bool with_attributes,
                                                  storage::directory_sink& sink) override
    {
        struct shouting final : storage::directory_sink {
            explicit shouting(storage::directory_sink& s) : to(s) {}
            bool take(const storage::directory_entry& e) override
            {
                std::string name(e.name);
                std::ranges::transform(name, name.begin(),
                                       [](unsigned char c) { return char(std::toupper(c)); });
                storage::directory_entry loud = e;
                loud.name = name;
                return to.take(loud);
            }
            storage::directory_sink& to;
        } loud(sink);
        co_return co_await forwarding_backend::readdir(r, directory, cookie, verifier, with_attributes, loud);
    }
    unsigned lookups = 0;
    event* hangs = nullptr; ///< for who looks for `hanging`
    std::string hanging;
};

/// One that hangs while it is told to.
class hanging final : public storage::forwarding_backend {
public:
    using forwarding_backend::forwarding_backend;
    task<result<storage::attributes>> getattr(const storage::request& r, const storage::handle& file) override
    {
        ++asked;
        if (hangs != nullptr)
            (void)co_await hangs->wait();
        co_return co_await forwarding_backend::getattr(r, file);
    }
    unsigned asked = 0;
    event* hangs = nullptr;
};

struct fixture : nfs4_fixture {
    fixture()
    {
        user->uid = 0;
        make("plain");
        covered = make("inner");
        inner = &add("/export/inner", *inside);
        options[0].root_squash = inner->root_squash = false;
    }
    std::uint64_t make(std::string_view name) { return make_in(files->root(), name)->attrs->fileid; }
    std::optional<storage::entry> make_in(const storage::handle& directory, std::string_view name)
    {
        storage::request root;
        root.who = storage::credential(0, 0);
        storage::set_attributes set;
        set.mode = 0755;
        const auto made = run_until_complete(*shard, files->mkdir(root, directory, name, set));
        BOOST_REQUIRE(made);
        return made->made;
    }
    storage::handle handle_of(std::string_view name)
    {
        const storage::request root;
        const auto found = run_until_complete(*shard, files->lookup(root, files->root(), name));
        BOOST_REQUIRE(found);
        return found->found.handle;
    }
    void rename(std::string_view from, std::string_view to)
    {
        storage::request root;
        root.who = storage::credential(0, 0);
        BOOST_REQUIRE(
            run_until_complete(*shard, files->rename(root, files->root(), from, files->root(), to)));
    }
    /// What a client had before there was the other export.
    nfsstat4 by_handle(const storage::handle& file)
    {
        const auto made = nfs::sign_handle(key, nfs::export_id_of("/export"), file);
        BOOST_REQUIRE(made);
        return client.call(PUTFH4args{made->bytes()}).status();
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
        READDIR4args args;
        args.maxcount = 16384;
        args.attr_request = wanted;
        return entries_of(client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, args));
    }
    static std::map<std::string, entry> entries_of(answer4 out)
    {
        std::map<std::string, entry> found;
        BOOST_TEST_REQUIRE(out.status() == nfsstat4::ok);
        while (out.in().rest().size() > 8) { // up to READDIR's
            if (xdr::decoder(out.in()).u32() == std::uint32_t(nfs_opnum4::readdir))
                break;
            if (xdr::decoder(out.in()).u32() == std::uint32_t(nfs_opnum4::lookup))
                out.good<LOOKUP4res>();
            else
                out.good<PUTROOTFH4res>();
        }
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

// Somebody links a file to the name of an export that covers nothing.
BOOST_FIXTURE_TEST_CASE(what_is_no_directory_covers_nothing, fixture)
{
    storage::request root;
    root.who = storage::credential(0, 0);
    BOOST_REQUIRE(run_until_complete(
        *shard, files->create(root, files->root(), "file", storage::create_mode::guarded, {}, 0)));
    BOOST_REQUIRE(run_until_complete(*shard, files->link(root, handle_of("file"), files->root(), "free")));
    add("/export/free", *inside);
    client.connect();
    BOOST_TEST(here(LOOKUP4args{"plain"}) == nfsstat4::ok);
    BOOST_TEST(by_handle(handle_of("file")) == nfsstat4::ok);
    BOOST_TEST(by_handle(handle_of("inner")) == nfsstat4::stale);
    BOOST_TEST(here(REMOVE4args{"file"}) == nfsstat4::ok);
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

namespace {

struct folding_fixture : fixture {
    folding_fixture() { options[0].backend = &folds; }
    folding folds{*files};
};

} // namespace

BOOST_FIXTURE_TEST_CASE(its_rules_are_gone_by_however_it_is_spelt, folding_fixture)
{
    client.connect();
    const entry known = looked_up("inner");
    for (const char* name : {"INNER", "InNeR"}) {
        const entry found = looked_up(name);
        BOOST_CHECK(found.handle == known.handle);
        BOOST_CHECK(found.values.fsid == known.values.fsid);
    }
    BOOST_TEST(here(LOOKUP4args{"PLAIN"}) == nfsstat4::ok);
    auto listed = list(all_of_entry);
    BOOST_CHECK(listed["INNER"].said == all_of_entry);
    BOOST_CHECK(listed["INNER"].handle == known.handle);
    BOOST_TEST(listed["INNER"].values.mounted_on_fileid == covered);
    BOOST_TEST(here(REMOVE4args{"INNER"}) == nfsstat4::access);
    BOOST_TEST(here(SAVEFH4args(), RENAME4args{"INNER", "moved"}) == nfsstat4::access);
    BOOST_TEST(here(SAVEFH4args(), RENAME4args{"plain", "INNER"}) == nfsstat4::access);
}

BOOST_FIXTURE_TEST_CASE(who_may_not_use_it_is_refused_however_it_is_spelt, folding_fixture)
{
    inner->transports = {"iwarp"};
    client.connect();
    for (const char* name : {"inner", "INNER"}) {
        BOOST_TEST(here(LOOKUP4args{name}) == nfsstat4::access);
        BOOST_TEST(here(SECINFO4args{name}) == nfsstat4::access);
        BOOST_TEST(client.open(client.opening(name)).status == nfsstat4::access);
    }
    auto listed = list(all_of_entry);
    BOOST_CHECK(listed["INNER"].said == (bitmap4{attribute::rdattr_error, attribute::mounted_on_fileid}));
    BOOST_CHECK(listed["PLAIN"].said == all_of_entry);
    BOOST_TEST(listed["INNER"].values.rdattr_error == nfsstat4::access);
}

// Somebody local may move what is covered: within two seconds it is another directory.
BOOST_FIXTURE_TEST_CASE(what_is_covered_is_looked_up_again, folding_fixture)
{
    client.connect();
    BOOST_TEST(here(LOOKUP4args{"INNER"}) == nfsstat4::ok);
    const storage::handle before = handle_of("inner");
    const storage::handle after = handle_of("plain");
    BOOST_TEST(by_handle(before) == nfsstat4::stale);
    BOOST_TEST(by_handle(after) == nfsstat4::ok);
    rename("inner", "old");
    rename("plain", "inner");
    pass(2s, 100ms);
    BOOST_CHECK(looked_up("INNER").handle == looked_up("inner").handle);
    BOOST_TEST(by_handle(before) == nfsstat4::ok);
    BOOST_TEST(by_handle(after) == nfsstat4::stale);
    // No call looks for itself while that is known.
    folds.lookups = 0;
    for (int i = 0; i < 10; ++i)
        BOOST_TEST(here(LOOKUP4args{"OLD"}) == nfsstat4::ok);
    BOOST_TEST(folds.lookups == 10u);
}

BOOST_FIXTURE_TEST_CASE(a_directory_that_hangs_holds_up_no_other_lookups, folding_fixture)
{
    event never;
    folds.hangs = &never;
    folds.hanging = "inner";
    client.connect();
    const auto waiting =
        begin(client.sequence(), PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"PLAIN"});
    pass(2s, 100ms);
    BOOST_TEST(waiting->is_done);
    // Nor is it waited for again.
    BOOST_TEST(here(LOOKUP4args{"PLAIN"}) == nfsstat4::ok);
    never.set();
    turns();
    BOOST_TEST(by_handle(handle_of("inner")) == nfsstat4::stale);
}

// What was known of it counts, and what becomes of the others is seen.
BOOST_FIXTURE_TEST_CASE(a_path_that_hangs_hides_no_other_one, folding_fixture)
{
    const std::unique_ptr<storage::file_backend> third = make_files(lane);
    make("other");
    add("/export/other", *third).root_squash = false;
    event never;
    client.connect();
    const storage::handle inner_place = handle_of("inner");
    const storage::handle before = handle_of("other");
    const storage::handle after = handle_of("plain");
    BOOST_TEST(here(LOOKUP4args{"INNER"}) == nfsstat4::ok);
    BOOST_TEST(by_handle(inner_place) == nfsstat4::stale);
    BOOST_TEST(by_handle(before) == nfsstat4::stale);
    BOOST_TEST(by_handle(after) == nfsstat4::ok);
    folds.hangs = &never;
    folds.hanging = "inner";
    rename("other", "old");
    rename("plain", "other");
    pass(2s, 100ms);
    const auto waiting =
        begin(client.sequence(), PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"OLD"});
    pass(2s, 100ms);
    BOOST_TEST(waiting->is_done);
    BOOST_TEST(by_handle(inner_place) == nfsstat4::stale);
    BOOST_TEST(by_handle(before) == nfsstat4::ok);
    BOOST_TEST(by_handle(after) == nfsstat4::stale);
    never.set();
    turns();
}

// A call that finds it older than a second has it looked up again, and does not wait for that.
BOOST_FIXTURE_TEST_CASE(a_call_does_not_wait_for_what_is_known, folding_fixture)
{
    event never;
    client.connect();
    BOOST_TEST(here(LOOKUP4args{"INNER"}) == nfsstat4::ok);
    pass(1500ms, 100ms);
    folds.hangs = &never;
    folds.hanging = "inner";
    const auto asked =
        begin(client.sequence(), PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"PLAIN"});
    turns();
    BOOST_TEST(asked->is_done);
    never.set();
    turns();
}

// Whoever has a handle from before a restart is not faster than the first lookup, nor does one that hangs keep all out.
BOOST_FIXTURE_TEST_CASE(handles_wait_for_the_first_lookups, folding_fixture)
{
    event never;
    folds.hangs = &never;
    folds.hanging = "inner";
    client.connect();
    BOOST_TEST(by_handle(handle_of("inner")) == nfsstat4::delay);
    BOOST_TEST(by_handle(handle_of("plain")) == nfsstat4::delay);
    pass(1s, 100ms);
    BOOST_TEST(by_handle(handle_of("plain")) == nfsstat4::ok);
    never.set();
    turns();
    BOOST_TEST(by_handle(handle_of("inner")) == nfsstat4::stale);
}

// Nor does the inner export wait for the outer one's disk.
BOOST_FIXTURE_TEST_CASE(attributes_of_its_root_do_not_wait_for_the_export_around_it, folding_fixture)
{
    event never;
    folds.hangs = &never;
    folds.hanging = "inner";
    client.connect();
    const auto asked = begin(client.sequence(), PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"inner"},
                             GETATTR4args{all_of_entry});
    pass(1s, 100ms);
    BOOST_TEST(asked->is_done);
    // Nor for the first one again.
    const auto again = begin(client.sequence(), PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"inner"},
                             GETATTR4args{all_of_entry});
    turns();
    BOOST_TEST(again->is_done);
    never.set();
    turns();
    BOOST_TEST(looked_up("inner").values.mounted_on_fileid == covered);
}

// Beneath a directory that is no export.
BOOST_FIXTURE_TEST_CASE(an_export_deep_in_another_one, fixture)
{
    const auto between = make_in(handle_of("plain"), "between");
    const auto beneath = make_in(between->handle, "deep");
    const std::unique_ptr<storage::file_backend> third = make_files(lane);
    add("/export/plain/between/deep", *third).root_squash = false;
    client.connect();
    const auto at = [&](const auto&... args) {
        return client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"plain"},
                           LOOKUP4args{"between"}, args...);
    };
    const auto handle_at = [&](const auto&... args) {
        answer4 out = at(args..., GETFH4args());
        BOOST_TEST_REQUIRE(out.status() == nfsstat4::ok);
        const auto bytes = out.bytes();
        return std::vector<std::byte>(bytes.end() - 32, bytes.end());
    };
    const nfs::export_options& deep = options.back();
    answer4 found = at(LOOKUP4args{"deep"}, GETATTR4args{all_of_entry});
    BOOST_TEST_REQUIRE(found.status() == nfsstat4::ok);
    READDIR4args args;
    args.maxcount = 16384;
    args.attr_request = all_of_entry;
    auto listed = entries_of(at(args));
    BOOST_CHECK(listed["deep"].said == all_of_entry);
    const auto opened = nfs::open_handle(key, listed["deep"].handle);
    BOOST_TEST_REQUIRE(opened.has_value());
    BOOST_TEST(opened->export_id == nfs::export_id_of(deep.pseudo));
    BOOST_TEST(listed["deep"].values.mounted_on_fileid == beneath->attrs->fileid);
    // And back.
    BOOST_CHECK(handle_at() == handle_at(LOOKUP4args{"deep"}, LOOKUPP4args()));
    BOOST_TEST(by_handle(beneath->handle) == nfsstat4::stale);
    BOOST_TEST(here(SAVEFH4args(), RENAME4args{"plain", "moved"}) == nfsstat4::access);
    BOOST_TEST(at(SAVEFH4args(), RENAME4args{"deep", "moved"}).status() == nfsstat4::access);
    BOOST_TEST(at(REMOVE4args{"deep"}).status() == nfsstat4::access);
}

// A listing waits a second in all for file systems that begin in it, and does not ask again while one hangs.
BOOST_FIXTURE_TEST_CASE(an_export_that_hangs_does_not_hold_up_the_listing_around_it, fixture)
{
    event never;
    hanging within(*inside);
    inner->backend = &within;
    client.connect();
    BOOST_CHECK(list(all_of_entry)["inner"].said == all_of_entry);
    within.hangs = &never;
    within.asked = 0;
    for (int i = 0; i < 2; ++i) {
        READDIR4args args;
        args.maxcount = 16384;
        args.attr_request = all_of_entry;
        const auto c = begin(client.sequence(), PUTROOTFH4args(), LOOKUP4args{"export"}, args);
        pass(i == 0 ? 1s : 0s, 100ms);
        BOOST_TEST_REQUIRE(c->is_done);
        answer4 out = answer_of(*c);
        out.good<SEQUENCE4res>();
        auto listed = entries_of(std::move(out));
        BOOST_CHECK(listed["plain"].said == all_of_entry);
        BOOST_TEST(listed["inner"].values.rdattr_error == nfsstat4::delay);
        BOOST_TEST(listed["inner"].values.mounted_on_fileid == covered);
    }
    BOOST_TEST(within.asked == 1u);
    within.hangs = nullptr;
    never.set();
    turns();
    BOOST_TEST(exports.by_id(nfs::export_id_of(inner->pseudo))->users->none()); // a reload may take it away
    BOOST_CHECK(list(all_of_entry)["inner"].said == all_of_entry);
}

// The same in the pseudo file system.
BOOST_FIXTURE_TEST_CASE(an_export_that_hangs_does_not_hold_up_the_listing_above_it, fixture)
{
    event never;
    hanging within(*files);
    options[0].backend = &within;
    client.connect();
    within.hangs = &never;
    READDIR4args args;
    args.maxcount = 16384;
    args.attr_request = all_of_entry;
    const auto c = begin(client.sequence(), PUTROOTFH4args(), args);
    pass(1s, 100ms);
    BOOST_TEST_REQUIRE(c->is_done);
    answer4 out = answer_of(*c);
    out.good<SEQUENCE4res>();
    auto listed = entries_of(std::move(out));
    BOOST_TEST(listed["export"].values.rdattr_error == nfsstat4::delay);
    BOOST_CHECK(listed["deep"].said == all_of_entry);
    within.hangs = nullptr;
    never.set();
    turns();
}

BOOST_AUTO_TEST_SUITE_END()
