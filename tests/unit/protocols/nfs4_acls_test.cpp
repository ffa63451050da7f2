// SPDX-License-Identifier: Apache-2.0
// The attributes acl and aclsupport.
#include "../acl_text.hpp"
#include "nfs4_version3.hpp"

#include <verbena/protocols/nfs/server/v4/storage.hpp>
#include <verbena/protocols/nfs/server/v4/storage_acl.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>
#include <verbena/protocols/storage/gated_backend.hpp>

#include <map>

BOOST_AUTO_TEST_SUITE(nfs4_acls_test)

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

struct fixture : nfs4_fixture {
    fixture() { client.connect(); }
    template<class... Args>
    answer4 here(const Args&... args)
    {
        return client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, args...);
    }
    client4 client{*this, "a"};
};

/// An ACL for a SETATTR or an OPEN, with the memory that it lies in.
struct acl_to_send {
    explicit acl_to_send(std::string_view text)
    {
        values.set_acl(acl(text));
        sent.emplace(values.all);
    }
    const fattr4& raw() const { return sent->raw; }
    object_values values;
    std::optional<encoded> sent;
};

/// What an attribute `acl` says; "none" where there is none.
std::string told(const attributes& values)
{
    if (!values.present.test(attribute::acl))
        return "none";
    storage::access_list list;
    storage::set_attributes ignored;
    BOOST_TEST_REQUIRE(from_acl(values, list, ignored) == nfsstat4::ok);
    return text_of(list);
}

} // namespace

BOOST_FIXTURE_TEST_CASE(an_acl_is_an_attribute, fixture)
{
    const bitmap4 wanted{attribute::supported_attrs, attribute::acl, attribute::aclsupport};
    const auto at = [&](const auto&... way) {
        answer4 out = client.call(PUTROOTFH4args(), way..., GETATTR4args{wanted});
        out.good<PUTROOTFH4res>();
        (((void)way, (void)out.good<LOOKUP4res>()), ...);
        attributes values;
        BOOST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
        return values;
    };
    const attributes root = at(LOOKUP4args{"export"});
    BOOST_CHECK(root.present == wanted);
    BOOST_CHECK(root.supported_attrs.test(attribute::acl) &&
                root.supported_attrs.test(attribute::aclsupport));
    BOOST_TEST(root.aclsupport == (acl4_support::allow | acl4_support::deny));
    const attributes pseudo = at();
    BOOST_CHECK(pseudo.present == bitmap4{attribute::supported_attrs});
    BOOST_TEST(!pseudo.supported_attrs.test(attribute::acl));

    // With OPEN, CREATE and SETATTR.
    const auto of = [&](std::string_view name) {
        answer4 out = here(LOOKUP4args{name}, GETATTR4args{{attribute::acl, attribute::mode}});
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        out.good<LOOKUP4res>();
        attributes values;
        BOOST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
        return told(values) + " with mode " + std::to_string(values.mode);
    };
    CREATE4args plain = making("plain");
    BOOST_TEST(here(plain).status() == nfsstat4::ok);
    BOOST_TEST(of("plain") == "A::OWNER@:rwaxtTcCy A::GROUP@:tcy A::EVERYONE@:tcy with mode 448");
    const acl_to_send first("D::1001:r A::OWNER@:rwa A:g:200:r");
    for (const createmode4 mode : {createmode4::guarded, createmode4::exclusive4_1}) {
        const std::string name = mode == createmode4::guarded ? "guarded" : "exclusive";
        OPEN4args creating = client.creating(name, mode);
        creating.openhow.attrs = first.raw();
        const auto file = client.open(creating);
        BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
        BOOST_CHECK(file.res.attrset.test(attribute::acl));
        BOOST_TEST(of(name) == "D::1001:r A::OWNER@:rwa A:g:200:r with mode 384");
    }
    CREATE4args directory = making("d");
    const acl_to_send handed_on("A:fd:OWNER@:rwax");
    directory.createattrs = handed_on.raw();
    BOOST_TEST(here(directory).status() == nfsstat4::ok);
    BOOST_TEST(of("d") == "A:fd:OWNER@:rwax with mode 448");
    const acl_to_send other("A::OWNER@:rwaC A::EVERYONE@:r");
    SETATTR4args setting;
    setting.obj_attributes = other.raw();
    answer4 set = here(LOOKUP4args{"guarded"}, setting);
    for (int i = 0; i < 3; ++i)
        i == 0 ? (void)set.good<PUTROOTFH4res>() : (void)set.good<LOOKUP4res>();
    BOOST_CHECK(set.good<SETATTR4res>().attrsset == bitmap4{attribute::acl});
    BOOST_TEST(of("guarded") == "A::OWNER@:rwaC A::EVERYONE@:r with mode 420");

    // VERIFY and NVERIFY compare it.
    const auto compare = [&](const acl_to_send& with) {
        return std::pair(here(LOOKUP4args{"guarded"}, VERIFY4args{with.raw()}).status(),
                         here(LOOKUP4args{"guarded"}, NVERIFY4args{with.raw()}).status());
    };
    BOOST_CHECK(compare(other) == std::pair(nfsstat4::ok, nfsstat4::same));
    BOOST_CHECK(compare(first) == std::pair(nfsstat4::not_same, nfsstat4::ok));

    // What a file can't have makes none, and what nobody can have.
    for (const createmode4 mode : {createmode4::guarded, createmode4::exclusive4_1}) {
        OPEN4args creating = client.creating("none", mode);
        creating.openhow.attrs = handed_on.raw();
        BOOST_TEST(client.open(creating).status == nfsstat4::attrnotsupp);
        BOOST_TEST(here(LOOKUP4args{"none"}).status() == nfsstat4::noent);
    }
    setting.obj_attributes = handed_on.raw();
    BOOST_TEST(here(LOOKUP4args{"guarded"}, setting).status() == nfsstat4::attrnotsupp);
    CREATE4args link = making("s", nfs_ftype4::lnk);
    link.objtype.linkdata = std::as_bytes(std::span("there", 5));
    link.createattrs = other.raw();
    BOOST_TEST(here(link).status() == nfsstat4::attrnotsupp);
    const nfsace4 named{ace4::type_allowed, 0, ace4::read_data, "alice@example.org"};
    attributes values;
    values.acl = std::span(&named, 1);
    values.present = {attribute::acl};
    const encoded by_name(values);
    setting.obj_attributes = by_name.raw;
    BOOST_TEST(here(LOOKUP4args{"guarded"}, setting).status() == nfsstat4::badowner);
    // Who may not read one hears so.
    user->uid = 1001;
    BOOST_TEST(here(LOOKUP4args{"guarded"}, GETATTR4args{{attribute::acl}}).status() == nfsstat4::access);
    BOOST_TEST(here(LOOKUP4args{"guarded"}, GETATTR4args{{attribute::mode}}).status() == nfsstat4::ok);
    setting.obj_attributes = other.raw();
    BOOST_TEST(here(LOOKUP4args{"guarded"}, setting).status() == nfsstat4::perm);
}

BOOST_FIXTURE_TEST_CASE(a_long_acl_goes_both_ways_and_a_longer_one_is_refused, fixture)
{
    const auto file = client.open(client.creating("f"));
    std::string text;
    for (unsigned i = 0; i < max_aces; ++i)
        text += " A::" + std::to_string(1'000'000'000 + i) + ":r";
    std::vector<std::byte> memory(max_attribute_values);
    const auto raw_of = [&memory](const storage::access_list& list) {
        object_values values;
        values.set_acl(list);
        xdr::encoder out(memory);
        encode_attributes(out, {attribute::acl}, values.all);
        BOOST_REQUIRE(out.ok());
        xdr::decoder in(out.bytes());
        fattr4 raw;
        xdr::codec<fattr4>::decode(in, raw);
        return raw;
    };
    storage::access_list list = acl(text);
    const PUTFH4args put{client4::handle_of(file)};
    SETATTR4args setting;
    setting.obj_attributes = raw_of(list);
    BOOST_TEST(client.call(put, setting).status() == nfsstat4::ok);
    BOOST_TEST(client.call(put, VERIFY4args{setting.obj_attributes}).status() == nfsstat4::ok);
    answer4 out = client.call(put, GETATTR4args{{attribute::acl}}, GETATTR4args{{attribute::acl}});
    out.good<PUTFH4res>();
    for (int twice = 0; twice < 2; ++twice) {
        attributes values;
        BOOST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
        BOOST_CHECK(told(values) == text_of(list));
    }
    list.push_back(list.front());
    setting.obj_attributes = raw_of(list);
    BOOST_TEST(client.call(put, setting).status() == nfsstat4::fbig);
    // However long it is. Nothing else is so long.
    const std::vector<std::byte> too_much(max_attribute_values + 4);
    setting.obj_attributes.attr_vals = std::span(too_much);
    BOOST_TEST(client.call(put, setting).status() == nfsstat4::fbig);
    BOOST_TEST(client.call(put, VERIFY4args{setting.obj_attributes}).status() == nfsstat4::not_same);
    OPEN4args creating = client.creating("g");
    creating.openhow.attrs = setting.obj_attributes;
    BOOST_TEST(client.open(creating).status == nfsstat4::fbig);
    setting.obj_attributes.attrmask = {attribute::owner};
    BOOST_TEST(client.call(put, setting).status() == nfsstat4::badxdr);
    no_memory = true;
    const nfsstat4 status = client.call(put, GETATTR4args{{attribute::acl}}).status();
    BOOST_TEST(status == nfsstat4::delay);
}

BOOST_FIXTURE_TEST_CASE(a_back_end_without_acls_has_no_such_attribute, nfs4_fixture)
{
    struct plain final : storage::forwarding_backend {
        explicit plain(storage::file_backend& below) : forwarding_backend(below), told(below.info())
        {
            told.acls = false;
        }
        const storage::filesystem_info& info() const noexcept override { return told; }
        storage::filesystem_info told;
    } without(*files);
    options[0].backend = &without;
    client4 client(*this, "a");
    client.connect();
    const PUTROOTFH4args root;
    const LOOKUP4args in{"export"};
    const bitmap4 both{attribute::acl, attribute::aclsupport};
    answer4 out = client.call(root, in, GETATTR4args{both | bitmap4{attribute::supported_attrs}});
    out.good<PUTROOTFH4res>();
    out.good<LOOKUP4res>();
    attributes values;
    BOOST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
    BOOST_CHECK(values.present == bitmap4{attribute::supported_attrs});
    BOOST_CHECK((values.supported_attrs & both).none());
    const acl_to_send given("A::OWNER@:r");
    SETATTR4args setting;
    setting.obj_attributes = given.raw();
    BOOST_TEST(client.call(root, in, setting).status() == nfsstat4::attrnotsupp);
    BOOST_TEST(client.call(root, in, VERIFY4args{given.raw()}).status() == nfsstat4::attrnotsupp);
    OPEN4args creating = client.creating("f");
    creating.openhow.attrs = given.raw();
    BOOST_TEST(client.open(creating).status == nfsstat4::attrnotsupp);
    READDIR4args list;
    list.maxcount = 4096;
    list.attr_request = both;
    BOOST_TEST(client.call(root, in, list).status() == nfsstat4::ok);
}

// Nobody else pays for it.
BOOST_FIXTURE_TEST_CASE(a_back_end_is_asked_for_acls_only_where_a_client_asks, nfs4_fixture)
{
    struct counting final : storage::gated_backend {
        using gated_backend::gated_backend;
        bool gates(storage::operation op) const noexcept override { return op == storage::operation::getacl; }
        task<result<void>> enter(storage::operation, const storage::request&, std::uint64_t) override
        {
            ++asked;
            co_return result<void>();
        }
        int asked = 0;
    } counted(*files);
    options[0].backend = &counted;
    client4 client(*this, "a");
    client.connect();
    const auto asked_by = [&](const bitmap4& wanted) {
        READDIR4args list;
        list.maxcount = 4096;
        list.attr_request = wanted;
        counted.asked = 0;
        BOOST_TEST(
            client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, GETATTR4args{wanted}, list).status() ==
            nfsstat4::ok);
        return counted.asked;
    };
    BOOST_TEST(client.open(client.creating("f")).status == nfsstat4::ok);
    BOOST_TEST(client.open(client.creating("g")).status == nfsstat4::ok);
    bitmap4 all = attributes_of_minor(1) - write_only_attributes;
    BOOST_TEST(asked_by(all) == 3);
    all.reset(attribute::acl);
    BOOST_TEST(asked_by(all) == 0);
}

// Version 3 goes by it, and who sets one has others' delegations recalled.
BOOST_FIXTURE_TEST_CASE(an_acl_binds_version_3_and_recalls_delegations, version3_fixture)
{
    options[0].local_writers = false;
    client4 first(*this, "a");
    connect(first);
    add_version3();
    tend();
    OPEN4args creating = first.creating("f");
    creating.share_access |= share4::want_write_delegation;
    const auto file = first.open(creating);
    BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    BOOST_REQUIRE(file.res.delegation.delegation_type == open_delegation_type4::write);
    const acl_to_send given("D:g:300:r A::1001:r A::EVERYONE@:r");
    client4 second(*this, "b");
    way.reset();
    second.connect();
    SETATTR4args setting;
    setting.obj_attributes = given.raw();
    const PUTFH4args put{client4::handle_of(file)};
    const std::size_t before = channel->calls.size();
    BOOST_TEST(second.call(put, setting).status() == nfsstat4::delay);
    BOOST_TEST(channel->calls.size() == before + 1);
    DELEGRETURN4args back;
    back.deleg_stateid = file.res.delegation.stateid;
    BOOST_TEST(first.call(put, back).status() == nfsstat4::ok);
    BOOST_TEST(second.call(put, setting).status() == nfsstat4::ok);
    const auto access = [&](std::uint32_t uid, std::uint32_t gid) {
        user->uid = uid;
        user->gid = gid;
        v3::ACCESS3args args;
        args.object = to_fh3(file.handle);
        args.access = v3::access3::read | v3::access3::modify;
        const auto res = call3<v3::ACCESS3res>(v3::procedure::access, args);
        BOOST_TEST((res.status == v3::nfsstat3::ok));
        v3::READ3args read;
        read.file = args.object;
        read.count = 10;
        const auto data = call3<v3::READ3res>(v3::procedure::read, read);
        BOOST_TEST((data.status == v3::nfsstat3::ok) == ((res.access & v3::access3::read) != 0));
        return res.access;
    };
    BOOST_TEST(access(1001, 200) == v3::access3::read);
    BOOST_TEST(access(1001, 300) == 0u);
    BOOST_TEST(access(1002, 200) == v3::access3::read);
}

// Of each entry, and page by page; where one may not be read, in the entry's place for that.
BOOST_FIXTURE_TEST_CASE(listings_tell_acls, fixture)
{
    const acl_to_send given("A::OWNER@:r A::EVERYONE@:c"), hidden("A::OWNER@:r");
    std::map<std::string, std::string> made;
    for (int i = 0; i < 140; ++i) {
        OPEN4args creating = client.creating("");
        const std::string name = "f" + std::to_string(i);
        creating.claim.file = std::string_view(name);
        creating.openhow.attrs = i == 7 ? hidden.raw() : given.raw();
        const auto file = client.open(creating);
        BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
        BOOST_TEST_REQUIRE(
            client.call(PUTFH4args{client4::handle_of(file)}, CLOSE4args{0, file.id}).status() ==
            nfsstat4::ok);
        made[name] = i == 7 ? "access" : "A::OWNER@:r A::EVERYONE@:c";
    }
    const auto listed = [&](std::uint32_t maxcount) {
        std::map<std::string, std::string> out;
        READDIR4args args;
        args.maxcount = maxcount;
        args.attr_request = {attribute::rdattr_error, attribute::acl, attribute::fileid};
        for (bool eof = false; !eof;) {
            answer4 page = here(args);
            BOOST_TEST_REQUIRE(page.status() == nfsstat4::ok);
            page.good<PUTROOTFH4res>();
            page.good<LOOKUP4res>();
            args.cookieverf = page.good<READDIR4res>().cookieverf;
            readdir_reader reader(page.in());
            entry4 entry;
            while (reader.next(entry)) {
                attributes values;
                BOOST_REQUIRE(decode_attributes(entry.attrs, values));
                BOOST_CHECK(values.present.test(attribute::fileid));
                args.cookie = entry.cookie;
                const bool good = values.rdattr_error == nfsstat4::ok;
                BOOST_TEST(out.emplace(entry.name, good ? told(values) : "access").second);
                BOOST_CHECK((good || values.rdattr_error == nfsstat4::access));
            }
            eof = reader.eof();
        }
        return out;
    };
    user->uid = 1001;
    BOOST_CHECK(listed(2000) == made);
    BOOST_CHECK(listed(1 << 20) == made);
    // Without a place to tell it the listing fails.
    READDIR4args args;
    args.maxcount = 4096;
    args.attr_request = {attribute::acl};
    BOOST_TEST(here(args).status() == nfsstat4::access);
    args.attr_request = {attribute::acl, attribute::rdattr_error};
    args.maxcount = 40;
    BOOST_TEST(here(args).status() == nfsstat4::toosmall);
}

// An entry that goes while it is asked for its ACL is no longer one, and its error not the directory's.
BOOST_FIXTURE_TEST_CASE(what_goes_meanwhile_is_not_listed, nfs4_fixture)
{
    struct vanishing final : storage::gated_backend {
        using gated_backend::gated_backend;
        bool gates(storage::operation op) const noexcept override { return op == storage::operation::getacl; }
        task<result<void>> enter(storage::operation, const storage::request&, std::uint64_t) override
        {
            const int error = ++asked == fails_at || fails_at == 0 ? with : 0;
            co_return error == 0 ? result<void>() : error::from_errno(error, "a test");
        }
        int asked = 0, fails_at = 0, with = 0;
    } files_below(*files);
    options[0].backend = &files_below;
    client4 client(*this, "a");
    client.connect();
    for (const char* name : {"f", "g", "h"})
        BOOST_TEST_REQUIRE(client.open(client.creating(name)).status == nfsstat4::ok);
    const auto listed = [&](int fails_at, int with, const bitmap4& wanted) {
        files_below.asked = 0;
        files_below.fails_at = fails_at;
        files_below.with = with;
        READDIR4args args;
        args.maxcount = 4096;
        args.attr_request = wanted;
        answer4 page = client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, args);
        if (page.status() != nfsstat4::ok)
            return std::string(to_string(page.status()));
        page.good<PUTROOTFH4res>();
        page.good<LOOKUP4res>();
        page.good<READDIR4res>();
        readdir_reader reader(page.in());
        std::string out;
        entry4 entry;
        while (reader.next(entry)) {
            attributes values;
            BOOST_REQUIRE(decode_attributes(entry.attrs, values));
            out += entry.name;
            if (values.rdattr_error != nfsstat4::ok)
                out += std::string("(") + to_string(values.rdattr_error) + ")";
        }
        return out + (reader.eof() ? "." : "");
    };
    const bitmap4 alone{attribute::acl}, with_error{attribute::acl, attribute::rdattr_error};
    BOOST_TEST(listed(2, 0, alone) == "fgh.");
    BOOST_TEST(listed(2, ESTALE, alone) == "fh.");
    BOOST_TEST(listed(1, ENOENT, alone) == "gh.");
    BOOST_TEST(listed(0, ESTALE, alone) == ".");
    // Where there is a place to tell it.
    BOOST_TEST(listed(2, 0, with_error) == "fgh.");
    BOOST_TEST(listed(2, ESTALE, with_error) == "fg(NFS4ERR_STALE)h.");
    BOOST_TEST(listed(1, ENOENT, with_error) == "f(NFS4ERR_NOENT)gh.");
    BOOST_TEST(listed(2, EACCES, alone) == "NFS4ERR_ACCESS");
    files_below.fails_at = 0;
    files_below.with = EIO;
    BOOST_TEST(client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, GETATTR4args{alone}).status() ==
               nfsstat4::io);
    BOOST_TEST(listed(2, EACCES, with_error) == "fg(NFS4ERR_ACCESS)h.");
}

// Handles may be stale for good where names are not. Neither is a directory empty then, nor is the same page asked for without end.
BOOST_FIXTURE_TEST_CASE(pages_of_what_is_gone_end, nfs4_fixture)
{
    struct stale_handles final : storage::forwarding_backend {
        using forwarding_backend::forwarding_backend;
        // A directory without end, of those who have no ACL to tell but the one at `good`.
        task<result<storage::readdir_result>> readdir(const storage::request& r,
                                                      const storage::handle& directory, std::uint64_t cookie,
                                                      std::uint64_t verifier, bool,
                                                      storage::directory_sink& sink) override
        {
            BOOST_TEST(verifier == (cookie == 0 ? 0u : cookie / 128 + 4));
            ++pages;
            const auto attrs = co_await forwarding_backend::getattr(r, directory);
            storage::handle handle = directory;
            for (;; ++cookie) {
                is_good.push_back(cookie == good);
                storage::directory_entry e;
                const std::string name = std::to_string(cookie);
                e.fileid = cookie + 3;
                e.cookie = cookie + 1;
                e.name = name;
                e.attrs = *attrs;
                e.handle = handle;
                if (cookie == end || !sink.take(e))
                    break;
            }
            is_good.pop_back();
            co_return storage::readdir_result{cookie / 128 + 4, cookie == end, std::nullopt};
        }
        task<result<storage::access_list>> getacl(const storage::request&, const storage::handle&) override
        {
            const bool can = is_good.at(asked++);
            if (!can)
                co_return error::from_errno(ESTALE, "a test");
            co_return acl("A::OWNER@:r");
        }
        std::uint64_t good = 0, end = UINT64_MAX;
        std::size_t asked = 0, pages = 0;
        std::vector<bool> is_good;
    } stale(*files);
    options[0].backend = &stale;
    client4 client(*this, "a");
    client.connect();
    const auto listed = [&](std::uint64_t good, std::uint64_t end, std::uint32_t maxcount = 4096) {
        stale.good = good;
        stale.end = end;
        stale.asked = stale.pages = 0;
        stale.is_good.clear();
        READDIR4args args;
        args.maxcount = maxcount;
        args.attr_request = {attribute::acl};
        answer4 page = client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, args);
        if (page.status() != nfsstat4::ok)
            return std::string(to_string(page.status()));
        page.good<PUTROOTFH4res>();
        page.good<LOOKUP4res>();
        const auto res = page.good<READDIR4res>();
        std::string out = std::to_string(xdr::load_u64(res.cookieverf.data())) + ':';
        readdir_reader reader(page.in());
        entry4 entry;
        while (reader.next(entry))
            out += std::string(entry.name) + ' ';
        return out + (reader.eof() ? "." : "");
    };
    const std::uint64_t none = UINT64_MAX;
    BOOST_TEST(listed(5, 200) == "5:5 ");
    BOOST_TEST(listed(130, 200) == "5:130 .");
    BOOST_TEST(stale.pages == 2u);
    BOOST_TEST(listed(1023, none) == "12:1023 ");
    BOOST_TEST(listed(none, 1000) == "11:.");
    // A limit of what one call does, and no invitation to come again for the same.
    BOOST_TEST(listed(1024, none) == "NFS4ERR_IO");
    BOOST_TEST(stale.pages == 8u);
    BOOST_TEST(listed(none, none) == "NFS4ERR_IO");
    // Nor is it one where the page is too small.
    BOOST_TEST(listed(1, 200, 40) == "NFS4ERR_TOOSMALL");
    BOOST_TEST(listed(none, none, 8) == "NFS4ERR_TOOSMALL");
}

BOOST_FIXTURE_TEST_CASE(an_export_that_is_read_only_takes_no_acl, nfs4_fixture)
{
    options[0].read_only = true;
    client4 client(*this, "a");
    client.connect();
    const acl_to_send given("A::OWNER@:r");
    SETATTR4args setting;
    setting.obj_attributes = given.raw();
    BOOST_TEST(client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, setting).status() == nfsstat4::rofs);
}

// A local file's may have more entries than can be sent, or set.
BOOST_FIXTURE_TEST_CASE(an_acl_of_more_entries_than_anybody_sends, nfs4_fixture)
{
    struct long_lists final : storage::forwarding_backend {
        using forwarding_backend::forwarding_backend;
        task<result<storage::access_list>> getacl(const storage::request&, const storage::handle&) override
        {
            const auto who = storage::ace_who::named_user;
            co_return storage::access_list(
                entries, {storage::ace_type::allow, who, 0, storage::ace_right::read_data, 1'000'000'000});
        }
        std::size_t entries = 0;
    } lists(*files);
    options[0].backend = &lists;
    client4 client(*this, "a");
    client.connect();
    const acl_to_send given("A::OWNER@:r");
    const PUTROOTFH4args root;
    const LOOKUP4args in{"export"};
    for (const std::size_t entries : {std::size_t(3000), std::size_t(max_sent_aces + 1)}) {
        lists.entries = entries;
        BOOST_TEST(client.call(root, in, VERIFY4args{given.raw()}).status() == nfsstat4::not_same);
        BOOST_TEST(client.call(root, in, NVERIFY4args{given.raw()}).status() == nfsstat4::ok);
    }
    const GETATTR4args wanted{{attribute::acl}};
    BOOST_TEST(client.call(root, in, wanted).status() == nfsstat4::rep_too_big);
    // A directory can be listed all the same.
    BOOST_TEST_REQUIRE(client.open(client.creating("f")).status == nfsstat4::ok);
    const auto listed = [&](std::size_t entries, const bitmap4& attrs, std::uint32_t maxcount) {
        lists.entries = entries;
        READDIR4args args;
        args.maxcount = maxcount;
        args.attr_request = attrs | bitmap4{attribute::acl};
        answer4 page = client.call(root, in, args);
        if (page.status() != nfsstat4::ok)
            return std::string(to_string(page.status()));
        page.good<PUTROOTFH4res>();
        page.good<LOOKUP4res>();
        page.good<READDIR4res>();
        readdir_reader reader(page.in());
        entry4 entry;
        BOOST_TEST_REQUIRE((reader.next(entry) && entry.name == "f"));
        attributes values;
        BOOST_REQUIRE(decode_attributes(entry.attrs, values));
        BOOST_TEST((!reader.next(entry) && reader.eof()));
        std::string out = values.present.test(attribute::acl) ? std::to_string(values.acl.size()) : "none";
        out += values.present.test(attribute::mode) ? " and mode" : "";
        return out + (values.rdattr_error == nfsstat4::ok ? "" : to_string(values.rdattr_error));
    };
    const bitmap4 mode{attribute::mode}, with_error = mode | bitmap4{attribute::rdattr_error};
    const std::uint32_t most = 1 << 20;
    BOOST_TEST(listed(2000, mode, most) == "2000 and mode");
    BOOST_TEST(listed(max_sent_aces + 1, mode, most) == "none and mode");
    BOOST_TEST(listed(max_sent_aces + 1, with_error, most) == "noneNFS4ERR_REP_TOO_BIG");
    BOOST_TEST(listed(max_sent_aces + 1, mode, 400) == "none and mode");
    // More would be sent if more were asked for.
    BOOST_TEST(listed(2000, with_error, 4096) == "NFS4ERR_TOOSMALL");
    lists.entries = 3000;
    BOOST_TEST(client.call(root, in, wanted).status() == nfsstat4::ok);
    // Nor is more sent than the session has room for.
    client.largest_reply = 32768;
    client.open_session();
    for (const std::uint32_t maxcount : {most, 32768U}) {
        BOOST_TEST(listed(1000, mode, maxcount) == "1000 and mode");
        BOOST_TEST(listed(2500, mode, maxcount) == "none and mode");
        BOOST_TEST(listed(2000, with_error, maxcount) == "noneNFS4ERR_REP_TOO_BIG");
    }
    BOOST_TEST(listed(1000, mode, 16384) == "NFS4ERR_TOOSMALL");
}

// ACCESS, OPEN, READ and WRITE go by it.
BOOST_FIXTURE_TEST_CASE(an_acl_decides_who_opens, fixture)
{
    OPEN4args creating = client.creating("f");
    const acl_to_send given("D::1002:r A::1001:r A:g:100:rw A::OWNER@:rwa");
    creating.openhow.attrs = given.raw();
    const auto mine = client.open(creating);
    BOOST_TEST_REQUIRE(mine.status == nfsstat4::ok);
    BOOST_TEST(client.write(mine, "data") == nfsstat4::ok);
    const auto access_of = [&](std::uint32_t uid, std::uint32_t gid) {
        user->uid = uid;
        user->gid = gid;
        answer4 out = client.call(PUTFH4args{client4::handle_of(mine)}, ACCESS4args{access4::all});
        out.good<PUTFH4res>();
        return out.good<ACCESS4res>().access;
    };
    BOOST_TEST(access_of(1001, 200) == access4::read);
    BOOST_TEST(client.open(client.opening("f", share4::access_read)).status == nfsstat4::ok);
    BOOST_TEST(client.open(client.opening("f", share4::access_both)).status == nfsstat4::access);
    BOOST_TEST(client.read(mine, stateid4()) == "data");
    BOOST_TEST(client.write(mine, "x", stateid4()) == nfsstat4::access);
    BOOST_TEST(access_of(1002, 200) == 0u);
    BOOST_TEST(client.open(client.opening("f", share4::access_read)).status == nfsstat4::access);
    BOOST_TEST(client.read(mine, stateid4()) == "NFS4ERR_ACCESS");
    BOOST_TEST(access_of(1002, 100) == (access4::modify | access4::extend));
    BOOST_TEST(client.write(mine, "x", stateid4()) == nfsstat4::ok);
    BOOST_TEST(client.read(mine, stateid4()) == "NFS4ERR_ACCESS");
}

BOOST_AUTO_TEST_SUITE_END()
