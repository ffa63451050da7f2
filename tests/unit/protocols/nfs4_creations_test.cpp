// SPDX-License-Identifier: Apache-2.0
// What creations set, what is left of those that are refused, and what others do meanwhile; and removals of what is open.
#include "nfs4_version3.hpp"

#include <verbena/core/task/event.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>

#include <functional>
#include <optional>

BOOST_AUTO_TEST_SUITE(nfs4_creations_test)

using namespace verbena;
using namespace verbena::test;

namespace {

/// Somebody else, who does something to the files when they are changed or opened.
class meddling final : public storage::forwarding_backend {
public:
    using forwarding_backend::forwarding_backend;
    task<result<storage::change>> setattr(const storage::request& r, const storage::handle& file,
                                          const storage::set_attributes& set,
                                          std::optional<storage::file_time> guard) override
    {
        if (hold != nullptr)
            (void)co_await hold->wait();
        co_await meddle(before_setattr);
        if (is_broken)
            co_return error::from_errno(ESTALE, "a test");
        co_return co_await forwarding_backend::setattr(r, file, set, guard);
    }
    task<result<storage::opened_file>> open(const storage::request& r, const storage::handle& file,
                                            unsigned wanted, storage::open_right right) override
    {
        co_await meddle(before_open);
        if (is_broken)
            co_return error::from_errno(ESTALE, "a test");
        co_return co_await forwarding_backend::open(r, file, wanted, right);
    }
    task<result<storage::change>> remove(const storage::request& r, const storage::handle& directory,
                                         std::string_view name) override
    {
        storage::request root;
        root.who = storage::credential(0, 0);
        if (replaces)
            (void)co_await below().rename(root, below().root(), "other", below().root(), "f");
        co_return co_await forwarding_backend::remove(r, directory, name);
    }
    /// How often each removes "f".
    int before_setattr = 0;
    int before_open = 0;
    bool replaces = false;  ///< removals of "f" come when "other" has that name
    bool is_broken = false; ///< all handles are stale
    event* hold = nullptr;  ///< what setattr() waits for

private:
    task<void> meddle(int& times)
    {
        storage::request root;
        root.who = storage::credential(0, 0);
        if (times > 0) {
            --times;
            (void)co_await below().remove(root, below().root(), "f");
        }
    }
};

struct fixture : version3_fixture {
    fixture()
    {
        options[0].backend = &between;
        client.connect();
    }
    template<class... Args>
    answer4 here(const Args&... args)
    {
        return client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, args...);
    }
    bool is_there(std::string_view name) { return here(LOOKUP4args{name}).status() == nfsstat4::ok; }
    void close(const client4::opened& file)
    {
        BOOST_TEST(client.call(PUTFH4args{client4::handle_of(file)}, CLOSE4args{0, file.id}).status() ==
                   nfsstat4::ok);
    }
    nfsstat4 remove(client4& by, std::string_view name)
    {
        return by.call(PUTROOTFH4args(), LOOKUP4args{"export"}, REMOVE4args{name}).status();
    }
    meddling between{*files};
    client4 client{*this, "a"};
};

/// The owners that a creation names, by number; nothing: none.
attributes owners(std::string_view user, std::string_view group)
{
    attributes values;
    values.present = {attribute::mode};
    values.mode = 0640;
    if (!user.empty())
        values.present.set(attribute::owner);
    if (!group.empty())
        values.present.set(attribute::owner_group);
    values.owner = user;
    values.owner_group = group;
    return values;
}

constexpr createmode4 modes[] = {createmode4::unchecked, createmode4::guarded, createmode4::exclusive4_1};

} // namespace

// The user is 1000, of group 100.
BOOST_FIXTURE_TEST_CASE(a_creation_names_what_it_has_set, fixture)
{
    const encoded mine(owners("1000", "100"));
    const encoded of_another(owners("1001", "100"));
    for (const createmode4 mode : modes) {
        OPEN4args args = client.creating("f", mode);
        args.openhow.attrs = mine.raw;
        auto made = client.open(args);
        BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
        BOOST_CHECK(made.res.attrset.test(attribute::owner));
        BOOST_CHECK(made.res.attrset.test(attribute::owner_group));
        BOOST_TEST(remove(client, "f") == nfsstat4::ok);
        args.openhow.attrs = of_another.raw;
        made = client.open(args);
        BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
        BOOST_CHECK(!made.res.attrset.test(attribute::owner));
        BOOST_CHECK(made.res.attrset.test(attribute::owner_group));
        BOOST_CHECK(made.res.attrset.test(attribute::mode));
        BOOST_TEST(remove(client, "f") == nfsstat4::ok);
    }
    for (const nfs_ftype4 type : {nfs_ftype4::dir, nfs_ftype4::lnk, nfs_ftype4::fifo}) {
        CREATE4args args;
        args.objtype.type = type;
        args.objtype.linkdata = std::as_bytes(std::span("there", 5));
        args.objname = "d";
        args.createattrs = of_another.raw;
        answer4 out = here(args);
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        const bitmap4 set = out.good<CREATE4res>().attrset;
        BOOST_CHECK(!set.test(attribute::owner));
        BOOST_CHECK(set.test(attribute::owner_group));
        BOOST_TEST(remove(client, "d") == nfsstat4::ok);
    }
}

BOOST_FIXTURE_TEST_CASE(nothing_is_left_of_a_refused_creation, fixture)
{
    const encoded foreign(owners("1000", "4242"));
    for (const createmode4 mode : modes) {
        OPEN4args args = client.creating("f", mode);
        args.openhow.attrs = foreign.raw;
        BOOST_TEST(client.open(args).status == nfsstat4::perm);
        BOOST_TEST(!is_there("f"));
    }
    for (const nfs_ftype4 type : {nfs_ftype4::dir, nfs_ftype4::lnk, nfs_ftype4::fifo}) {
        CREATE4args args;
        args.objtype.type = type;
        args.objtype.linkdata = std::as_bytes(std::span("there", 5));
        args.objname = "d";
        args.createattrs = foreign.raw;
        BOOST_TEST(here(args).status() == nfsstat4::perm);
        BOOST_TEST(!is_there("d"));
    }
    // What was there before stays, whoever asks again for what can't be.
    OPEN4args args = client.creating("f", createmode4::exclusive4_1);
    BOOST_TEST(client.open(args).status == nfsstat4::ok);
    args.openhow.attrs = foreign.raw;
    BOOST_TEST(client.open(args).status == nfsstat4::perm);
    BOOST_TEST(is_there("f"));
}

// Somebody renames another file to its name, or opens it.
BOOST_FIXTURE_TEST_CASE(of_a_refused_creation_no_other_file_goes, fixture)
{
    close(client.open(client.creating("other")));
    const auto handle_of = [&](std::string_view name) {
        const auto there = run_until_complete(*shard, files->lookup(storage::request(), files->root(), name));
        return there ? std::optional(there->found.handle) : std::nullopt;
    };
    const auto other = handle_of("other");
    const encoded foreign(owners("1000", "4242"));
    OPEN4args args = client.creating("f", createmode4::exclusive4_1);
    args.openhow.attrs = foreign.raw;
    between.replaces = true;
    BOOST_TEST(client.open(args).status == nfsstat4::perm);
    BOOST_CHECK(handle_of("f") == other);
    BOOST_TEST(remove(client, "f") == nfsstat4::ok);
    between.replaces = false;

    client4 another(*this, "b");
    another.connect();
    event held;
    between.hold = &held;
    const auto creating = begin(client.sequence(), PUTROOTFH4args(), LOOKUP4args{"export"}, args);
    BOOST_TEST(!creating->is_done);
    const auto opened = another.open(another.opening("f"));
    BOOST_TEST(opened.status == nfsstat4::ok);
    held.set();
    turns();
    BOOST_TEST_REQUIRE(creating->is_done);
    BOOST_TEST(answer_of(*creating).status() == nfsstat4::perm);
    BOOST_TEST(is_there("f"));
}

// A client that came again would do so for ever.
BOOST_FIXTURE_TEST_CASE(a_name_that_leads_to_what_is_stale_for_good_is_stale, fixture)
{
    close(client.open(client.creating("f")));
    between.is_broken = true;
    BOOST_TEST(client.open(client.opening("f")).status == nfsstat4::stale);
    BOOST_TEST(client.open(client.creating("f", createmode4::unchecked)).status == nfsstat4::stale);
    const encoded mine(owners("", ""));
    OPEN4args args = client.creating("g", createmode4::exclusive4_1);
    args.openhow.attrs = mine.raw;
    BOOST_TEST(client.open(args).status == nfsstat4::stale);
}

BOOST_FIXTURE_TEST_CASE(a_name_that_is_removed_while_it_is_opened_is_not_stale, fixture)
{
    const encoded mine(owners("", ""));
    OPEN4args args = client.creating("f", createmode4::exclusive4_1);
    args.openhow.attrs = mine.raw;
    between.before_setattr = 2;
    BOOST_TEST(client.open(args).status == nfsstat4::ok);
    BOOST_TEST(is_there("f"));
    BOOST_TEST(remove(client, "f") == nfsstat4::ok);
    between.before_setattr = 1000;
    BOOST_TEST(client.open(args).status == nfsstat4::delay);
    between.before_setattr = 0;
    // Behind the creation, and of what is there.
    for (const createmode4 mode : modes) {
        args = client.creating("f", mode);
        between.before_open = 1;
        BOOST_TEST(client.open(args).status == nfsstat4::delay);
        const auto again = client.open(args);
        BOOST_TEST_REQUIRE(again.status == nfsstat4::ok);
        close(again);
        between.before_open = 1;
        BOOST_TEST(client.open(client.opening("f")).status == nfsstat4::delay);
        BOOST_TEST(client.open(client.opening("f")).status == nfsstat4::noent);
    }
    // A handle that is stale is the client's own.
    const auto made = client.open(client.creating("f"));
    close(made);
    OPEN4args by_handle = client.opening("");
    by_handle.claim.claim = open_claim_type4::fh;
    between.before_open = 1;
    BOOST_TEST(client.call(PUTFH4args{client4::handle_of(made)}, by_handle).status() == nfsstat4::stale);
}

BOOST_FIXTURE_TEST_CASE(what_others_may_not_write_they_do_not_remove, fixture)
{
    client4 other(*this, "b");
    other.connect();
    add_version3();
    const auto denying = [&](std::string_view name, std::uint32_t deny) {
        OPEN4args args = client.creating(name);
        args.share_access = share4::access_read;
        args.share_deny = deny;
        return client.open(args);
    };
    const auto rename = [&](client4& by, std::string_view from, std::string_view to) {
        return by.call(PUTROOTFH4args(), LOOKUP4args{"export"}, SAVEFH4args(), RENAME4args{from, to})
            .status();
    };
    const auto remove3 = [&](std::string_view name) {
        v3::REMOVE3args args;
        args.object = {root3(), name};
        return call3<v3::REMOVE3res>(v3::procedure::remove, args).status;
    };
    for (const std::uint32_t deny : {share4::deny_write, share4::deny_both}) {
        const auto file = denying("f", deny);
        BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
        BOOST_TEST(client.open(client.creating("g")).status == nfsstat4::ok);
        BOOST_TEST(remove(other, "f") == nfsstat4::file_open);
        BOOST_TEST(rename(other, "g", "f") == nfsstat4::file_open);
        BOOST_TEST(remove3("f") == v3::nfsstat3::acces);
        // It stays itself under another name.
        BOOST_TEST(rename(other, "f", "h") == nfsstat4::ok);
        BOOST_TEST(rename(other, "h", "f") == nfsstat4::ok);
        // Who closes it gives it free.
        close(file);
        BOOST_TEST(remove(other, "f") == nfsstat4::ok);
    }
    // The client that denies may, and so may all where reading alone is denied.
    BOOST_TEST_REQUIRE(denying("f", share4::deny_write).status == nfsstat4::ok);
    BOOST_TEST(remove(client, "f") == nfsstat4::ok);
    BOOST_TEST_REQUIRE(denying("f", share4::deny_read).status == nfsstat4::ok);
    BOOST_TEST(remove(other, "f") == nfsstat4::ok);
    // Whose lease is over keeps nobody off.
    BOOST_TEST_REQUIRE(denying("f", share4::deny_write).status == nfsstat4::ok);
    clock.advance(60s);
    shard->turn();
    BOOST_TEST(other.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    clock.advance(60s);
    shard->turn();
    BOOST_TEST(remove(other, "f") == nfsstat4::ok);
}

BOOST_AUTO_TEST_SUITE_END()
