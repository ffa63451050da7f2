// SPDX-License-Identifier: Apache-2.0
// Rules of the RFCs about arguments, one a row, and what each operation answers for each kind of object.
#include "nfs4_rules.hpp"

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>

BOOST_AUTO_TEST_SUITE(nfs4_argument_rules_test)

using namespace verbena;
using namespace verbena::test;

namespace {

using world = rules_world;

} // namespace

namespace {

const fattr4& mode_of(std::uint32_t mode)
{
    static std::map<std::uint32_t, encoded> known;
    attributes values;
    values.present.set(attribute::mode);
    values.mode = mode;
    return known.try_emplace(mode, values).first->second.raw;
}

/// CREATE of `type` with a size.
said made_with_size(world& w, nfs_ftype4 type)
{
    w.client.connect();
    const encoded five = sized(5);
    CREATE4args args = making("new", type);
    args.createattrs = five.raw;
    const nfsstat4 status = w.here(args).status();
    BOOST_TEST(w.at("new", GETATTR4args()) == nfsstat4::noent);
    return status;
}

} // namespace

BOOST_AUTO_TEST_CASE(attributes_that_an_object_has_not)
{
    static const rule<world> rules[] = {
        {"8881 18.4.3", "CREATE of a directory with a size", nfsstat4::inval,
         [](world& w) { return made_with_size(w, nfs_ftype4::dir); }},
        {"8881 18.4.3", "of a link", nfsstat4::inval,
         [](world& w) { return made_with_size(w, nfs_ftype4::lnk); }},
        {"8881 18.4.3", "of a fifo", nfsstat4::inval,
         [](world& w) { return made_with_size(w, nfs_ftype4::fifo); }},
        {"8881 18.4.3", "attrset of CREATE names what was set alone: a link has no mode of its own",
         "not set",
         [](world& w) -> said {
             w.client.connect();
             CREATE4args args = making("l", nfs_ftype4::lnk);
             args.createattrs = mode_of(0600);
             answer4 out = w.here(args);
             out.good<PUTROOTFH4res>();
             out.good<LOOKUP4res>();
             return out.good<CREATE4res>().attrset.test(attribute::mode) ? "set" : "not set";
         }},
        {"8881 18.30.3", "and so does attrsset of SETATTR", "not set",
         [](world& w) -> said {
             w.client.connect();
             w.make("l", nfs_ftype4::lnk);
             answer4 out = w.here(LOOKUP4args{"l"}, SETATTR4args{{}, mode_of(0600)});
             out.good<PUTROOTFH4res>();
             out.good<LOOKUP4res>();
             out.good<LOOKUP4res>();
             return out.good<SETATTR4res>().attrsset.test(attribute::mode) ? "set" : "not set";
         }},
        {"8881 18.30.3", "which names it of all else", "set",
         [](world& w) -> said {
             w.client.connect();
             w.make("d", nfs_ftype4::dir);
             answer4 out = w.here(LOOKUP4args{"d"}, SETATTR4args{{}, mode_of(0700)});
             out.good<PUTROOTFH4res>();
             out.good<LOOKUP4res>();
             out.good<LOOKUP4res>();
             return out.good<SETATTR4res>().attrsset.test(attribute::mode) ? "set" : "not set";
         }},
    };
    hold(rules);
}

namespace {

/// LOCKU of a directory or the like, by the stateid of a file's lock.
said unlocked_at(world& w, nfs_ftype4 type)
{
    w.client.connect();
    w.make("other", type);
    const auto file = w.client.open(w.client.creating("f"));
    LOCK4args lock;
    lock.locktype = nfs_lock_type4::write;
    lock.length = 1;
    lock.locker.new_lock_owner = true;
    lock.locker.open_stateid = file.id;
    answer4 out = w.client.call(PUTFH4args{client4::handle_of(file)}, lock);
    out.good<PUTFH4res>();
    const stateid4 id = out.good<LOCK4res>().lock_stateid;
    return w.at("other", LOCKU4args{nfs_lock_type4::write, 0, id, 0, 1});
}

} // namespace

BOOST_AUTO_TEST_CASE(unlocking_what_is_no_file)
{
    static const rule<world> rules[] = {
        {"8881 18.12.3", "LOCKU of a directory", nfsstat4::isdir,
         [](world& w) { return unlocked_at(w, nfs_ftype4::dir); }},
        {"8881 18.12.3", "of a link", nfsstat4::symlink,
         [](world& w) { return unlocked_at(w, nfs_ftype4::lnk); }},
        {"8881 18.12.3", "of a fifo", nfsstat4::wrong_type,
         [](world& w) { return unlocked_at(w, nfs_ftype4::fifo); }},
    };
    hold(rules);
}

namespace {

/// EXCHANGE_ID that asks for SSV.
said protected_by(world& w, bool hashes, bool encrypts, std::uint32_t window)
{
    const std::array<std::byte, 3> number = {std::byte(6), std::byte(1), std::byte(42)};
    const bytes_view<max_oid> oid = std::span<const std::byte>(number);
    const std::span<const bytes_view<max_oid>> one(&oid, 1);
    EXCHANGE_ID4args args = w.client.exchange();
    args.state_protect.how = state_protect_how4::ssv;
    if (hashes)
        args.state_protect.hash_algs = one;
    if (encrypts)
        args.state_protect.encr_algs = one;
    args.state_protect.window = window;
    return w.compound(args).status();
}

} // namespace

BOOST_AUTO_TEST_CASE(protection)
{
    static const rule<world> rules[] = {
        {"8881 18.35.3", "SSV without a hash algorithm", nfsstat4::inval,
         [](world& w) { return protected_by(w, false, true, 1); }},
        {"8881 18.35.3", "without an encryption algorithm", nfsstat4::inval,
         [](world& w) { return protected_by(w, true, false, 1); }},
        {"8881 18.35.3", "with a window of 0", nfsstat4::inval,
         [](world& w) { return protected_by(w, true, true, 0); }},
        {"8881 18.35.3", "with algorithms that there are not", nfsstat4::encr_alg_unsupp,
         [](world& w) { return protected_by(w, true, true, 1); }},
    };
    hold(rules);
}

namespace {

/// Of these flavours the server may sign its calls with.
std::vector<callback_sec_parms4> signed_by(std::initializer_list<std::uint32_t> flavours)
{
    static constexpr std::array<std::byte, 4> handle{};
    std::vector<callback_sec_parms4> out;
    for (const std::uint32_t each : flavours) {
        callback_sec_parms4& parms = out.emplace_back();
        parms.cb_secflavor = each;
        parms.handle_from_server = parms.handle_from_client = std::span<const std::byte>(handle);
    }
    return out;
}
constexpr std::uint32_t none = 0, sys = 1, gss = 6;

said called_by(world& w, std::initializer_list<std::uint32_t> flavours)
{
    w.connect(w.client);
    const auto parms = signed_by(flavours);
    BACKCHANNEL_CTL4args args;
    args.cb_program = 42;
    args.sec_parms = std::span<const callback_sec_parms4>(parms);
    return w.client.call(args).status();
}

said session_called_by(world& w, std::initializer_list<std::uint32_t> flavours)
{
    w.connect(w.client);
    const auto parms = signed_by(flavours);
    CREATE_SESSION4args args = w.session_of(w.client);
    args.sec_parms = std::span<const callback_sec_parms4>(parms);
    const nfsstat4 status = w.compound(args).status();
    BOOST_TEST(w.compound(args).status() == status); // and it is kept
    return status;
}

} // namespace

BOOST_AUTO_TEST_CASE(signatures_of_calls)
{
    static const rule<world> rules[] = {
        {"8881 18.33.3", "BACKCHANNEL_CTL with a handle of RPCSEC_GSS that we never gave", nfsstat4::noent,
         [](world& w) { return called_by(w, {gss}); }},
        {"8881 18.33.3", "also beside other flavours", nfsstat4::noent,
         [](world& w) { return called_by(w, {sys, gss}); }},
        {"8881 18.33.3", "in whichever order", nfsstat4::noent,
         [](world& w) { return called_by(w, {gss, none}); }},
        {"8881 18.33.3", "the others alone are taken", nfsstat4::ok,
         [](world& w) { return called_by(w, {none, sys}); }},
        {"8881 18.36.3", "CREATE_SESSION with such a handle", nfsstat4::noent,
         [](world& w) { return session_called_by(w, {gss}); }},
        {"8881 18.36.3", "beside another flavour, of which the server may choose", nfsstat4::ok,
         [](world& w) { return session_called_by(w, {sys, gss}); }},
        {"8881 18.36.3", "in whichever order", nfsstat4::ok,
         [](world& w) { return session_called_by(w, {gss, none}); }},
    };
    hold(rules);
}

namespace {

/// Why the holder of one delegation does not get the other kind.
said wanted_besides(world& w, std::uint32_t access, std::uint32_t want)
{
    w.connect(w.client);
    w.tend();
    OPEN4args args = w.client.creating("f");
    args.share_access = access;
    const auto file = w.client.open(args);
    BOOST_TEST_REQUIRE((file.res.delegation.delegation_type != open_delegation_type4::none));
    const auto again = w.client.open(w.client.opening("f", access | want));
    BOOST_TEST_REQUIRE(again.status == nfsstat4::ok);
    if (again.res.delegation.delegation_type != open_delegation_type4::none_ext)
        return "another delegation";
    return std::to_string(unsigned(again.res.delegation.why));
}

} // namespace

BOOST_AUTO_TEST_CASE(delegations_of_the_other_kind)
{
    static const rule<world> rules[] = {
        {"8881 18.16.3", "who holds a read delegation is not given one to write", "5",
         [](world& w) { return wanted_besides(w, share4::access_read, share4::want_write_delegation); }},
        {"8881 18.16.3", "who holds a write delegation is not given one to read", "6",
         [](world& w) { return wanted_besides(w, share4::access_both, share4::want_read_delegation); }},
        {"8881 18.16.3", "nor is anybody given the same twice", "2",
         [](world& w) { return wanted_besides(w, share4::access_read, share4::want_read_delegation); }},
    };
    hold(rules);
}

namespace {

std::string_view long_name()
{
    static const std::string name(5000, 'n');
    return name;
}

/// An attribute that is one text of so many bytes, a multiple of four.
std::vector<std::byte> text_of(std::uint32_t bytes)
{
    std::vector<std::byte> out(4 + bytes, std::byte('x'));
    xdr::store_u32(out.data(), bytes);
    return out;
}

/// An ACL of one entry, for whom nobody knows.
std::vector<std::byte> list_for(std::uint32_t bytes)
{
    std::vector<std::byte> out(16);
    xdr::store_u32(out.data(), 1);
    xdr::store_u32(out.data() + 12, 1);
    const auto who = text_of(bytes);
    out.insert(out.end(), who.begin(), who.end());
    return out;
}

template<class... Args>
said with_long_name(world& w, const Args&... args)
{
    w.client.connect();
    return w.here(SAVEFH4args(), args...).status();
}

} // namespace

BOOST_AUTO_TEST_CASE(lengths)
{
    static const rule<world> rules[] = {
        {"8881 15.1.7.3", "LOOKUP of a name of 5000 bytes", nfsstat4::nametoolong,
         [](world& w) { return with_long_name(w, LOOKUP4args{long_name()}); }},
        {"8881 15.1.7.3", "OPEN", nfsstat4::nametoolong,
         [](world& w) { return with_long_name(w, w.client.opening(long_name())); }},
        {"8881 15.1.7.3", "OPEN that creates", nfsstat4::nametoolong,
         [](world& w) { return with_long_name(w, w.client.creating(long_name())); }},
        {"8881 15.1.7.3", "CREATE", nfsstat4::nametoolong,
         [](world& w) { return with_long_name(w, making(long_name())); }},
        {"8881 15.1.7.3", "REMOVE", nfsstat4::nametoolong,
         [](world& w) { return with_long_name(w, REMOVE4args{long_name()}); }},
        {"8881 15.1.7.3", "RENAME of it", nfsstat4::nametoolong,
         [](world& w) { return with_long_name(w, RENAME4args{long_name(), "g"}); }},
        {"8881 15.1.7.3", "RENAME to it", nfsstat4::nametoolong,
         [](world& w) { return with_long_name(w, RENAME4args{"f", long_name()}); }},
        {"8881 15.1.7.3", "LINK", nfsstat4::nametoolong,
         [](world& w) { return with_long_name(w, LINK4args{long_name()}); }},
        {"8881 15.1.7.3", "SECINFO", nfsstat4::nametoolong,
         [](world& w) { return with_long_name(w, SECINFO4args{long_name()}); }},
        {"8276 8.4.1", "GETXATTR", nfsstat4::nametoolong,
         [](world& w) {
             w.minor = 2;
             GETXATTR4args args;
             args.name = long_name();
             return with_long_name(w, args);
         }},
        {"8881 5.9, 15.1.16.1", "SETATTR of an owner of 2000 bytes", nfsstat4::badowner,
         [](world& w) -> said {
             w.client.connect();
             w.make("d", nfs_ftype4::dir);
             const auto text = text_of(2000);
             return w.at("d", SETATTR4args{{}, values_of(attribute::owner, text)});
         }},
        {"8881 5.9, 15.1.16.1", "also of one that no ACL could be as long as", nfsstat4::badowner,
         [](world& w) -> said {
             w.client.connect();
             w.make("d", nfs_ftype4::dir);
             const auto text = text_of(80000);
             return w.at("d", SETATTR4args{{}, values_of(attribute::owner_group, text)});
         }},
        {"8881 5.9, 15.1.16.1", "CREATE with such an owner", nfsstat4::badowner,
         [](world& w) -> said {
             w.client.connect();
             const auto text = text_of(2000);
             CREATE4args args = making("d");
             args.createattrs = values_of(attribute::owner, text);
             return w.here(args).status();
         }},
        {"8881 5.9, 15.1.16.1", "SETATTR of an ACL with such a who", nfsstat4::badowner,
         [](world& w) -> said {
             w.client.connect();
             w.make("d", nfs_ftype4::dir);
             const auto list = list_for(2000);
             return w.at("d", SETATTR4args{{}, values_of(attribute::acl, list)});
         }},
        {"8881 18.31.3", "VERIFY of such an owner", nfsstat4::not_same,
         [](world& w) -> said {
             w.client.connect();
             const auto text = text_of(2000);
             return w.here(VERIFY4args{values_of(attribute::owner, text)}).status();
         }},
        {"8881 18.31.3", "also of one that is longer than all that there is", nfsstat4::not_same,
         [](world& w) -> said {
             w.client.connect();
             const auto text = text_of(80000);
             return w.here(VERIFY4args{values_of(attribute::owner, text)}).status();
         }},
        {"8881 18.48.3", "TEST_STATEID of more than we keep in mind at once", "5000 bad ones",
         [](world& w) -> said {
             w.client.connect();
             const std::vector<stateid4> ids(5000, stateid4{1, {std::byte(9)}});
             TEST_STATEID4args args;
             args.stateids = std::span<const stateid4>(ids);
             answer4 out = w.client.call(args);
             std::size_t bad = 0;
             for (const nfsstat4 each : out.good<TEST_STATEID4res>().status_codes)
                 bad += each == nfsstat4::bad_stateid;
             return std::to_string(bad) + " bad ones";
         }},
        {"8881 18.35.3", "whatever a client calls its maker and itself, it is served", nfsstat4::ok,
         [](world& w) -> said {
             const std::string name(2000, 'v');
             EXCHANGE_ID4args args = w.client.exchange();
             args.client_impl_id.emplace();
             args.client_impl_id->domain = std::string_view(name);
             args.client_impl_id->name = std::string_view(name);
             return w.compound(args).status();
         }},
    };
    hold(rules);
}

BOOST_AUTO_TEST_CASE(opens_by_handle)
{
    static const rule<world> rules[] = {
        {"8881 18.16.4", "OPEN CLAIM_FH to write a directory of the pseudo file system", nfsstat4::isdir,
         [](world& w) -> said {
             w.client.connect();
             OPEN4args args = w.client.opening({});
             args.claim.claim = open_claim_type4::fh;
             return w.client.call(PUTROOTFH4args(), args).status();
         }},
        {"8881 18.16.4", "as by its name", nfsstat4::isdir,
         [](world& w) -> said {
             w.client.connect();
             return w.client.call(PUTROOTFH4args(), w.client.opening("deep")).status();
         }},
    };
    hold(rules);
}

BOOST_AUTO_TEST_CASE(connections)
{
    static const rule<world> rules[] = {
        {"8881 18.34.3", "BACK of a connection that brings both", nfsstat4::inval,
         [](world& w) -> said {
             w.connect(w.client);
             return w.compound(w.binding(channel_dir_from_client4::back)).status();
         }},
        {"8881 18.34.3", "the same as it is bound as changes nothing", nfsstat4::ok,
         [](world& w) -> said {
             w.connect(w.client);
             w.way = std::make_shared<called_client>(w.pool);
             BOOST_TEST(w.compound(w.binding(channel_dir_from_client4::back)).status() == nfsstat4::ok);
             return w.compound(w.binding(channel_dir_from_client4::back)).status();
         }},
        {"8881 15.1.1.1", "BIND_CONN_TO_SESSION with a direction that is none", nfsstat4::badxdr,
         [](world& w) -> said {
             w.connect(w.client);
             return w.compound(w.binding(channel_dir_from_client4(4))).status();
         }},
        {"8881 15.1.1.1", "SECINFO_NO_NAME with a style that is none", nfsstat4::badxdr,
         [](world& w) -> said {
             w.client.connect();
             return w.here(SECINFO_NO_NAME4args{secinfo_style4(2)}).status();
         }},
    };
    hold(rules);
}

namespace {

enum kind { nothing, pseudo, directory, symbolic_link, fifo, read_only, kinds };

/// "d", "l" and "p" in "/export", and "f", which "/deep/other" exports too, but only to read.
struct kinds_world : rules_world {
    kinds_world()
    {
        minor = 2;
        options[1].backend = options[0].backend;
        options[1].read_only = true;
        client.connect();
        make("d", nfs_ftype4::dir);
        make("l", nfs_ftype4::lnk);
        make("p", nfs_ftype4::fifo);
        const auto file = client.open(client.creating("f"));
        BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
        id = file.id;
    }
    ~kinds_world() { stop(); }
    void reach(compound_request& out, kind which)
    {
        if (which == nothing)
            return;
        out.add(PUTROOTFH4args());
        if (which == pseudo)
            return;
        if (which == read_only) {
            out.add(LOOKUP4args{"deep"});
            out.add(LOOKUP4args{"other"});
            out.add(LOOKUP4args{"f"});
            return;
        }
        out.add(LOOKUP4args{"export"});
        out.add(LOOKUP4args{which == directory ? "d" : which == symbolic_link ? "l" : "p"});
    }
    stateid4 id; ///< of "f" in "/export"
};

struct row {
    const char* name;
    std::array<nfsstat4, kinds> expected;
    std::function<void(kinds_world&, compound_request&)> write;
};

template<class Args>
std::function<void(kinds_world&, compound_request&)> plain(const Args& args)
{
    return [args](kinds_world&, compound_request& out) { out.add(args); };
}

const std::vector<row>& rows()
{
    using enum nfsstat4;
    static const encoded size = sized(5);
    static const std::vector<row> all = {
        // operation, and of: no object, pseudo directory, directory, link, fifo, file of a read-only export
        {"GETFH", {nofilehandle, ok, ok, ok, ok, ok}, plain(GETFH4args())},
        {"SAVEFH", {nofilehandle, ok, ok, ok, ok, ok}, plain(SAVEFH4args())},
        {"GETATTR", {nofilehandle, ok, ok, ok, ok, ok}, plain(GETATTR4args{{attribute::type}})},
        {"ACCESS", {nofilehandle, ok, ok, ok, ok, ok}, plain(ACCESS4args{access4::read})},
        {"VERIFY",
         {nofilehandle, not_same, not_same, not_same, not_same, not_same},
         plain(VERIFY4args{size.raw})},
        {"SETATTR of a mode", {nofilehandle, rofs, ok, ok, ok, rofs}, plain(SETATTR4args{{}, mode_of(0755)})},
        {"SETATTR of a size",
         {nofilehandle, rofs, inval, inval, inval, rofs},
         plain(SETATTR4args{{}, size.raw})},
        {"READ", {nofilehandle, isdir, isdir, symlink, wrong_type, ok}, plain(READ4args{{}, 0, 1})},
        {"WRITE",
         {nofilehandle, rofs, isdir, symlink, wrong_type, rofs},
         plain(WRITE4args{{}, 0, stable_how4::unstable, std::as_bytes(std::span("text", 4))})},
        {"COMMIT", {nofilehandle, isdir, isdir, symlink, wrong_type, ok}, plain(COMMIT4args{0, 0})},
        {"READLINK",
         {nofilehandle, wrong_type, wrong_type, ok, wrong_type, wrong_type},
         plain(READLINK4args())},
        {"READDIR",
         {nofilehandle, ok, ok, notdir, notdir, notdir},
         [](kinds_world&, compound_request& out) {
             READDIR4args args;
             args.maxcount = 4096;
             out.add(args);
         }},
        {"LOOKUP", {nofilehandle, noent, noent, symlink, notdir, notdir}, plain(LOOKUP4args{"x"})},
        {"LOOKUPP", {nofilehandle, noent, ok, symlink, notdir, notdir}, plain(LOOKUPP4args())},
        {"SECINFO", {nofilehandle, noent, noent, notdir, notdir, notdir}, plain(SECINFO4args{"x"})},
        {"SECINFO_NO_NAME",
         {nofilehandle, ok, ok, ok, ok, ok},
         plain(SECINFO_NO_NAME4args{secinfo_style4::current_fh})},
        {"CREATE", {nofilehandle, rofs, ok, notdir, notdir, rofs}, plain(making("new"))},
        {"REMOVE", {nofilehandle, rofs, ok, notdir, notdir, rofs}, plain(REMOVE4args{"new"})},
        {"RENAME",
         {nofilehandle, rofs, noent, notdir, notdir, rofs},
         [](kinds_world&, compound_request& out) {
             out.add(SAVEFH4args());
             out.add(RENAME4args{"x", "y"});
         }},
        {"LINK",
         {nofilehandle, rofs, isdir, notdir, notdir, rofs},
         [](kinds_world&, compound_request& out) {
             out.add(SAVEFH4args());
             out.add(LINK4args{"y"});
         }},
        {"OPEN",
         {nofilehandle, noent, noent, notdir, notdir, notdir},
         [](kinds_world& w, compound_request& out) { out.add(w.client.opening("x")); }},
        {"OPEN that creates",
         {nofilehandle, rofs, ok, notdir, notdir, rofs},
         [](kinds_world& w, compound_request& out) { out.add(w.client.creating("made")); }},
        {"OPEN CLAIM_FH",
         {nofilehandle, isdir, isdir, symlink, wrong_type, rofs},
         [](kinds_world& w, compound_request& out) {
             OPEN4args args = w.client.opening({});
             args.claim.claim = open_claim_type4::fh;
             out.add(args);
         }},
        {"LOCK",
         {nofilehandle, isdir, isdir, symlink, wrong_type, bad_stateid},
         [](kinds_world& w, compound_request& out) {
             LOCK4args args;
             args.locktype = nfs_lock_type4::write;
             args.length = 1;
             args.locker.new_lock_owner = true;
             args.locker.open_stateid = w.id;
             out.add(args);
         }},
        {"LOCKT",
         {nofilehandle, isdir, isdir, symlink, wrong_type, ok},
         [](kinds_world&, compound_request& out) {
             LOCKT4args args;
             args.length = 1;
             out.add(args);
         }},
        {"LOCKU",
         {nofilehandle, isdir, isdir, symlink, wrong_type, bad_stateid},
         [](kinds_world& w, compound_request& out) {
             out.add(LOCKU4args{nfs_lock_type4::write, 0, w.id, 0, 1});
         }},
        {"CLOSE",
         {nofilehandle, bad_stateid, bad_stateid, bad_stateid, bad_stateid, bad_stateid},
         [](kinds_world& w, compound_request& out) { out.add(CLOSE4args{0, w.id}); }},
        {"OPEN_DOWNGRADE",
         {nofilehandle, bad_stateid, bad_stateid, bad_stateid, bad_stateid, bad_stateid},
         [](kinds_world& w, compound_request& out) {
             out.add(OPEN_DOWNGRADE4args{w.id, 0, share4::access_read, share4::deny_none});
         }},
        {"DELEGRETURN",
         {nofilehandle, bad_stateid, bad_stateid, bad_stateid, bad_stateid, bad_stateid},
         [](kinds_world& w, compound_request& out) { out.add(DELEGRETURN4args{w.id}); }},
    };
    return all;
}

} // namespace

BOOST_DATA_TEST_CASE(operations_on_each_kind_of_object, boost::unit_test::data::xrange(int(kinds)), number)
{
    const kind which = kind(number);
    kinds_world w;
    for (const row& each : rows()) {
        const auto sequence = w.client.sequence();
        const answer4 out = w.send(w.minor, [&](compound_request& to) {
            to.add(sequence);
            w.reach(to, which);
            each.write(w, to);
        });
        BOOST_TEST(out.status() == each.expected[which], each.name << ": " << to_string(out.status())
                                                                   << ", not "
                                                                   << to_string(each.expected[which]));
    }
}

BOOST_AUTO_TEST_SUITE_END()
