// SPDX-License-Identifier: Apache-2.0
// Rules of the RFCs about names, listings, handles and opens, one a row.
#include "nfs4_rules.hpp"

#include <verbena/protocols/storage/forwarding_backend.hpp>

#include <map>
#include <utility>

BOOST_AUTO_TEST_SUITE(nfs4_name_rules_test)

using namespace verbena;
using namespace verbena::test;

namespace {

using world = rules_world;

const encoded& modes(std::uint32_t mode)
{
    static std::map<std::uint32_t, encoded> known;
    attributes values;
    values.present.set(attribute::mode);
    values.mode = mode;
    return known.try_emplace(mode, values).first->second;
}

/// Directories "d", "e" with "e/inner", and a file "f"; `from` becomes `to`.
nfsstat4 rename(world& w, std::string_view from, std::string_view to)
{
    w.client.connect();
    w.make("d", nfs_ftype4::dir);
    w.make("e", nfs_ftype4::dir);
    BOOST_TEST(w.at("e", making("inner")) == nfsstat4::ok);
    BOOST_TEST(w.client.open(w.client.creating("f")).status == nfsstat4::ok);
    return w.here(SAVEFH4args(), RENAME4args{from, to}).status();
}

READDIR4args listing(const bitmap4& wanted)
{
    READDIR4args args;
    args.maxcount = 4096;
    args.attr_request = wanted;
    return args;
}

/// What a listing of the directory "d" with the file "inner" says of that, by somebody who may only list it.
said listed_without_search(world& w, const bitmap4& wanted)
{
    w.client.connect();
    w.make("d", nfs_ftype4::dir);
    BOOST_TEST(w.at("d", making("inner")) == nfsstat4::ok);
    BOOST_TEST(w.at("d", SETATTR4args{{}, modes(0444).raw}) == nfsstat4::ok);
    w.user->uid = 2000;
    answer4 out = w.here(LOOKUP4args{"d"}, listing(wanted));
    if (out.status() != nfsstat4::ok)
        return out.status();
    out.good<PUTROOTFH4res>();
    out.good<LOOKUP4res>();
    out.good<LOOKUP4res>();
    out.good<READDIR4res>();
    readdir_reader reader(out.in());
    entry4 entry;
    attributes values;
    BOOST_REQUIRE((reader.next(entry) && decode_attributes(entry.attrs, values)));
    return values.present.test(attribute::type) ? said("its type") : said(values.rdattr_error);
}

/// A listing of `path`'s entries that goes on from the first one, by another verifier than the server's.
nfsstat4 listed_by_another_verifier(world& w, bool in_export)
{
    w.client.connect();
    w.make("d", nfs_ftype4::dir);
    w.make("e", nfs_ftype4::dir);
    READDIR4args args = listing({attribute::fileid});
    args.cookie = 3;
    args.cookieverf[0] = std::byte(99);
    return in_export ? w.here(args).status() : w.client.call(PUTROOTFH4args(), args).status();
}

/// What the open of "f" under the first client's delegation, with `mode` and a size of 0, comes to: its status, or
/// what the file holds.
said opened_under_delegation(world& w, createmode4 mode)
{
    const auto file = w.delegated();
    BOOST_TEST(w.client.write(file, "text") == nfsstat4::ok);
    const encoded empty = sized(0);
    OPEN4args args = w.client.creating("f", mode);
    args.claim.claim = open_claim_type4::delegate_cur;
    args.claim.delegate_stateid = file.res.delegation.stateid;
    args.openhow.attrs = empty.raw;
    const auto again = w.client.open(args);
    return again.status == nfsstat4::ok ? said(w.client.read(again, again.id)) : said(again.status);
}

said values_said(world& w, bitmap4 wanted, const std::function<said(const attributes&)>& of)
{
    w.client.connect();
    answer4 out = w.here(GETATTR4args{wanted});
    out.good<PUTROOTFH4res>();
    out.good<LOOKUP4res>();
    attributes values;
    BOOST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
    return of(values);
}

/// Handles that the back end forgets.
struct forgetful final : storage::forwarding_backend {
    explicit forgetful(storage::file_backend& b) : forwarding_backend(b), info_(b.info())
    {
        info_.lasting_handles = info_.birth_times = false;
    }
    const storage::filesystem_info& info() const noexcept override { return info_; }
    storage::filesystem_info info_;
};
struct forgetful_world : world {
    forgetful_world() { options[0].backend = &between; }
    forgetful between{*files};
};

encoded born()
{
    attributes values;
    values.present.set(attribute::time_create);
    values.time_create = {7, 0};
    return encoded(values);
}

} // namespace

BOOST_AUTO_TEST_CASE(names)
{
    static const rule<world> rules[] = {
        {"8881 18.26.3", "RENAME of a directory over a file", nfsstat4::exist,
         [](world& w) -> said { return rename(w, "d", "f"); }},
        {"8881 18.26.3", "RENAME of a file over a directory", nfsstat4::exist,
         [](world& w) -> said { return rename(w, "f", "d"); }},
        // EXIST would do, too; Linux hands this one to rename(2) as a local file system would.
        {"8881 18.26.3", "RENAME over a directory with something in it", nfsstat4::notempty,
         [](world& w) -> said { return rename(w, "d", "e"); }},
        {"8881 18.26.3", "RENAME over an empty directory", nfsstat4::ok,
         [](world& w) -> said { return rename(w, "e", "d"); }},
        {"8881 18.26.4", "RENAME in what is no directory", nfsstat4::notdir,
         [](world& w) -> said {
             BOOST_TEST(rename(w, "d", "g") == nfsstat4::ok);
             return w.at("f", SAVEFH4args(), RENAME4args{"x", "y"});
         }},
        {"8881 18.19.3", "PUTFH of an export that the peer may not use", nfsstat4::stale,
         [](world& w) -> said {
             w.options[0].transports = {"rdma"};
             w.client.connect();
             const auto made = nfs::sign_handle(w.key, w.exports.all()[0].id, w.files->root());
             BOOST_REQUIRE(made);
             return w.client.call(PUTFH4args{made->bytes()}).status();
         }},
    };
    hold(rules);
}

BOOST_AUTO_TEST_CASE(listings)
{
    static const rule<world> rules[] = {
        {"8881 18.23.3", "an entry that the caller may not look at", nfsstat4::access,
         [](world& w) { return listed_without_search(w, {attribute::type, attribute::rdattr_error}); }},
        {"8881 18.23.3", "the same where no place to say so was asked for", nfsstat4::access,
         [](world& w) { return listed_without_search(w, {attribute::type}); }},
        {"8881 18.23.3", "another verifier than the one that came with the cookie", nfsstat4::not_same,
         [](world& w) -> said { return listed_by_another_verifier(w, true); }},
        {"8881 18.23.3", "the same in the pseudo file system", nfsstat4::not_same,
         [](world& w) -> said { return listed_by_another_verifier(w, false); }},
    };
    hold(rules);
}

BOOST_AUTO_TEST_CASE(opens)
{
    static const rule<world> rules[] = {
        {"8881 10.4.1", "what a client opened by itself, UNCHECKED, is there, and is not cut again", "text",
         [](world& w) { return opened_under_delegation(w, createmode4::unchecked); }},
        {"8881 18.16.3", "so that another creation finds it, too", nfsstat4::exist,
         [](world& w) { return opened_under_delegation(w, createmode4::guarded); }},
        {"8881 18.16.3", "an exclusive one likewise", nfsstat4::exist,
         [](world& w) { return opened_under_delegation(w, createmode4::exclusive4_1); }},
        {"8881 18.16.3", "who wants a delegation no longer hears so", "cancelled",
         [](world& w) -> said {
             w.client.connect();
             BOOST_TEST(w.client.open(w.client.creating("f")).status == nfsstat4::ok);
             OPEN4args args = w.client.opening("f", share4::access_read | share4::want_cancel);
             const auto again = w.client.open(args);
             const bool none = again.res.delegation.delegation_type == open_delegation_type4::none_ext;
             return none && again.res.delegation.why == why_no_delegation4::cancelled ? "cancelled" : "no";
         }},
    };
    hold(rules);
}

BOOST_AUTO_TEST_CASE(times_of_birth)
{
    static const rule<world> rules[] = {
        {"8881 5.8.2.37", "time_create is when the file was made, whatever becomes of its times", "stays",
         [](world& w) -> said {
             w.client.connect();
             const auto file = w.client.open(w.client.creating("f"));
             const bitmap4 both = {attribute::time_create, attribute::time_modify};
             const auto first = w.look(w.client, file, both);
             attributes old;
             old.present.set(attribute::time_modify_set);
             old.time_modify_set = {time_how4::set_to_client_time, {5, 0}};
             const encoded values(old);
             BOOST_TEST(w.at("f", SETATTR4args{file.id, values.raw}) == nfsstat4::ok);
             const auto then = w.look(w.client, file, both);
             const bool is_now = first.time_create == first.time_modify && then.time_modify.seconds == 5;
             return is_now && then.time_create == first.time_create ? "stays" : "no";
         }},
        {"8881 5.8.1.1", "where it is there supported_attrs says so, and suppattr_exclcreat does not",
         "yes no",
         [](world& w) {
             return values_said(w, {attribute::supported_attrs, attribute::suppattr_exclcreat},
                                [](const attributes& all) {
                                    const auto has = [](const bitmap4& in) {
                                        return std::string(in.test(attribute::time_create) ? "yes" : "no");
                                    };
                                    return has(all.supported_attrs) + ' ' + has(all.suppattr_exclcreat);
                                });
         }},
        {"8881 18.30.4", "it is not set", nfsstat4::inval,
         [](world& w) -> said {
             w.client.connect();
             w.make("d", nfs_ftype4::dir);
             return w.at("d", SETATTR4args{{}, born().raw});
         }},
        {"8881 18.4.4", "nor by who makes something", nfsstat4::inval,
         [](world& w) -> said {
             w.client.connect();
             CREATE4args args = making("d");
             const encoded values = born();
             args.createattrs = values.raw;
             return w.here(args).status();
         }},
        {"8881 5.8.1.3", "handles that last", "0",
         [](world& w) {
             return values_said(w, {attribute::fh_expire_type}, [](const attributes& all) -> said {
                 return std::to_string(all.fh_expire_type);
             });
         }},
    };
    hold(rules);
    static const rule<forgetful_world> less[] = {
        {"8881 18.30.4", "where there is no time_create", nfsstat4::attrnotsupp,
         [](forgetful_world& w) -> said {
             w.client.connect();
             w.make("d", nfs_ftype4::dir);
             return w.at("d", SETATTR4args{{}, born().raw});
         }},
        {"8881 5.8.1.3", "handles that don't last", "2",
         [](forgetful_world& w) {
             return values_said(w, {attribute::fh_expire_type}, [](const attributes& all) -> said {
                 return std::to_string(all.fh_expire_type);
             });
         }},
    };
    hold(less);
}

BOOST_AUTO_TEST_CASE(numbers_of_slots)
{
    const slot_number fresh;
    BOOST_TEST(fresh.is_next(1));
    BOOST_TEST(!fresh.is_last(0)); // nothing ran yet
    BOOST_TEST(!fresh.is_next(0));
    const slot_number last(0xffffffff);
    BOOST_TEST(last.is_last(0xffffffff));
    BOOST_TEST(last.is_next(0));
    BOOST_TEST(!last.is_next(1));
    BOOST_TEST(last.next().is_last(0)); // and a repeat of that call gets its answer
    BOOST_TEST(last.next().is_next(1));
}

BOOST_AUTO_TEST_SUITE_END()
