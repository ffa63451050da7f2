// SPDX-License-Identifier: Apache-2.0
// Rules of the RFCs about data, handles and stateids, one a row: of operations that work as a matter of course.
#include "nfs4_rules.hpp"

BOOST_AUTO_TEST_SUITE(nfs4_data_rules_test)

using namespace verbena;
using namespace verbena::test;

namespace {

using world = rules_world;

constexpr stateid4 all_ones{UINT32_MAX,
                            {std::byte(0xff), std::byte(0xff), std::byte(0xff), std::byte(0xff),
                             std::byte(0xff), std::byte(0xff), std::byte(0xff), std::byte(0xff),
                             std::byte(0xff), std::byte(0xff), std::byte(0xff), std::byte(0xff)}};

/// "f" with `text` in it, open by the first client.
client4::opened made(world& w, std::string_view text = "text")
{
    w.client.connect();
    auto args = w.client.creating("f");
    args.share_access |= share4::want_no_delegation;
    const auto file = w.client.open(args);
    BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    if (!text.empty())
        BOOST_TEST_REQUIRE(w.client.write(file, text) == nfsstat4::ok);
    return file;
}

/// "f" again, by the same owner, or by the other client.
client4::opened open_again(client4& by, std::uint32_t access, std::uint32_t deny = share4::deny_none)
{
    return by.open(by.opening("f", access | share4::want_no_delegation, deny));
}

/// What READ of "text" comes to.
said read(world& w, std::uint64_t offset, std::uint32_t count, std::string_view text = "text")
{
    const auto file = made(w, text);
    answer4 out = w.client.call(PUTFH4args{client4::handle_of(file)}, READ4args{file.id, offset, count});
    if (out.status() != nfsstat4::ok)
        return out.status();
    out.good<PUTFH4res>();
    const auto res = out.good<READ4res>();
    const auto bytes = res.data.inline_bytes;
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) +
           (res.eof ? ", the end" : "");
}

/// Of somebody else, by nobody's open.
template<class Args>
said by_another_user(world& w, const Args& args)
{
    const auto file = made(w);
    SETATTR4args set;
    attributes mode;
    mode.present = {attribute::mode};
    mode.mode = 0600;
    const encoded values(mode);
    set.obj_attributes = values.raw;
    BOOST_TEST_REQUIRE(w.client.call(PUTFH4args{client4::handle_of(file)}, set).status() == nfsstat4::ok);
    w.user->uid = 2000;
    return w.client.call(PUTFH4args{client4::handle_of(file)}, args).status();
}

WRITE4args writing(stateid4 id, std::uint64_t offset, std::string_view text,
                   stable_how4 stable = stable_how4::unstable)
{
    return {id, offset, stable, std::as_bytes(std::span(text))};
}

said write(world& w, stable_how4 stable, std::string_view text = "more")
{
    const auto file = made(w);
    answer4 out = w.client.call(PUTFH4args{client4::handle_of(file)}, writing(file.id, 0, text, stable));
    if (out.status() != nfsstat4::ok)
        return out.status();
    out.good<PUTFH4res>();
    const auto res = out.good<WRITE4res>();
    return std::to_string(res.count) + (res.committed >= stable ? " bytes" : " bytes, not as stable as that");
}

said downgrade(world& w, std::uint32_t access, std::uint32_t deny)
{
    const auto file = made(w);
    BOOST_TEST_REQUIRE(open_again(w.client, share4::access_read).status == nfsstat4::ok);
    stateid4 id = file.id;
    id.seqid = 0;
    return w.client.call(PUTFH4args{client4::handle_of(file)}, OPEN_DOWNGRADE4args{id, 4711, access, deny})
        .status();
}

said tested(world& w, const stateid4& id)
{
    TEST_STATEID4args args;
    args.stateids = std::span<const stateid4>(&id, 1);
    answer4 out = w.client.call(args);
    said status = "no answer";
    for (const nfsstat4 each : out.good<TEST_STATEID4res>().status_codes)
        status = each;
    return status;
}

} // namespace

BOOST_AUTO_TEST_CASE(reads)
{
    static const rule<world> rules[] = {
        {"8881 18.22.3", "READ up to the end", "text, the end", [](world& w) { return read(w, 0, 4); }},
        {"8881 18.22.3", "beyond the end", "xt, the end", [](world& w) { return read(w, 2, 100); }},
        {"8881 18.22.3", "short of the end", "tex", [](world& w) { return read(w, 0, 3); }},
        {"8881 18.22.3", "from the end on", ", the end", [](world& w) { return read(w, 4, 1); }},
        {"8881 18.22.3", "from beyond all files on", ", the end",
         [](world& w) { return read(w, UINT64_MAX, UINT32_MAX); }},
        {"8881 18.22.3", "of no bytes", "", [](world& w) { return read(w, 0, 0); }},
        {"8881 18.22.3", "of no bytes at the end", ", the end", [](world& w) { return read(w, 4, 0); }},
        {"8881 18.22.3", "of no bytes of an empty file", ", the end",
         [](world& w) { return read(w, 0, 0, ""); }},
        {"8881 18.22.3", "of no bytes without the right to read", nfsstat4::access,
         [](world& w) { return by_another_user(w, READ4args{{}, 0, 0}); }},
        {"8881 8.2.2", "by the stateid of another file", nfsstat4::bad_stateid,
         [](world& w) -> said {
             const auto file = made(w);
             const auto other = w.client.open(w.client.creating("g"));
             return w.client.call(PUTFH4args{client4::handle_of(other)}, READ4args{file.id, 0, 1}).status();
         }},
    };
    hold(rules);
}

BOOST_AUTO_TEST_CASE(writes)
{
    static const rule<world> rules[] = {
        {"8881 18.32.3", "WRITE of no bytes", "0 bytes",
         [](world& w) { return write(w, stable_how4::unstable, ""); }},
        {"8881 18.32.3", "without the right to write", nfsstat4::access,
         [](world& w) { return by_another_user(w, writing({}, 0, "")); }},
        {"8881 18.32.3", "DATA_SYNC", "4 bytes", [](world& w) { return write(w, stable_how4::data_sync); }},
        {"8881 18.32.3", "FILE_SYNC", "4 bytes", [](world& w) { return write(w, stable_how4::file_sync); }},
        {"8881 18.32.4", "beyond what a file may have", nfsstat4::fbig,
         [](world& w) -> said {
             const auto file = made(w);
             return w.client.write(file, "text", file.id, UINT64_MAX - 1);
         }},
        {"8881 9.1.2", "by an open to read", nfsstat4::openmode,
         [](world& w) -> said {
             const auto file = made(w);
             w.other.connect();
             const auto reads = open_again(w.other, share4::access_read);
             return w.other.write(file, "more", reads.id);
         }},
        {"8881 18.32.3", "the stateid of ones goes past no open that denies writing", nfsstat4::locked,
         [](world& w) -> said {
             const auto file = made(w);
             const PUTFH4args there{client4::handle_of(file)};
             BOOST_TEST(w.client.call(there, CLOSE4args{0, file.id}).status() == nfsstat4::ok);
             BOOST_TEST(open_again(w.client, share4::access_read, share4::deny_write).status == nfsstat4::ok);
             w.other.connect();
             return w.other.write(file, "more", all_ones);
         }},
        {"8881 18.3.3",
         "COMMIT of no bytes from beyond the end on is all behind that, and tells WRITE's verifier",
         "the same",
         [](world& w) -> said {
             const auto file = made(w);
             answer4 out = w.client.call(PUTFH4args{client4::handle_of(file)}, writing(file.id, 0, "more"),
                                         COMMIT4args{100, 0});
             out.good<PUTFH4res>();
             const verifier4 wrote = out.good<WRITE4res>().writeverf;
             return out.good<COMMIT4res>().writeverf == wrote ? "the same" : "another";
         }},
        {"8881 18.3.3", "COMMIT of more than a file may have", nfsstat4::ok,
         [](world& w) -> said {
             const auto file = made(w);
             return w.client.call(PUTFH4args{client4::handle_of(file)}, COMMIT4args{UINT64_MAX, UINT32_MAX})
                 .status();
         }},
    };
    hold(rules);
}

BOOST_AUTO_TEST_CASE(handles)
{
    static const rule<world> rules[] = {
        {"8881 18.27.3", "RESTOREFH where none is saved", nfsstat4::nofilehandle,
         [](world& w) -> said {
             w.client.connect();
             return w.here(RESTOREFH4args()).status();
         }},
        {"8881 18.28.3", "SAVEFH leaves the current one, and RESTOREFH the saved one", nfsstat4::ok,
         [](world& w) -> said {
             w.client.connect();
             return w
                 .here(SAVEFH4args(), GETFH4args(), PUTROOTFH4args(), RESTOREFH4args(), RESTOREFH4args(),
                       GETFH4args())
                 .status();
         }},
        {"8881 18.29.3", "SECINFO consumes the current one", nfsstat4::nofilehandle,
         [](world& w) -> said {
             made(w);
             return w.here(SECINFO4args{"f"}, GETFH4args()).status();
         }},
        {"8881 18.45.3", "so does SECINFO_NO_NAME", nfsstat4::nofilehandle,
         [](world& w) -> said {
             w.client.connect();
             return w.here(SECINFO_NO_NAME4args{secinfo_style4::current_fh}, GETFH4args()).status();
         }},
        {"8881 18.29.3", "SECINFO of an empty name", nfsstat4::inval,
         [](world& w) -> said {
             w.client.connect();
             return w.here(SECINFO4args{""}).status();
         }},
        {"8881 18.19.3", "PUTFH of what is no handle", nfsstat4::badhandle,
         [](world& w) -> said {
             w.client.connect();
             return w.client.call(PUTFH4args{std::as_bytes(std::span("none", 4))}).status();
         }},
    };
    hold(rules);
}

BOOST_AUTO_TEST_CASE(opens_that_are_made_less)
{
    static const rule<world> rules[] = {
        {"8881 18.18.3", "OPEN_DOWNGRADE to one of the opens, whatever the number", nfsstat4::ok,
         [](world& w) { return downgrade(w, share4::access_read, share4::deny_none); }},
        {"8881 18.18.3", "bits of wanted delegations are no access", nfsstat4::ok,
         [](world& w) {
             return downgrade(w, share4::access_read | share4::want_read_delegation, share4::deny_none);
         }},
        {"8881 18.18.3", "to no access", nfsstat4::inval,
         [](world& w) { return downgrade(w, 0, share4::deny_none); }},
        {"8881 18.18.3", "to an access that is none", nfsstat4::inval,
         [](world& w) { return downgrade(w, 4, share4::deny_none); }},
        {"8881 18.18.3", "to a deny that is none", nfsstat4::inval,
         [](world& w) { return downgrade(w, share4::access_read, 4); }},
        {"8881 18.18.3", "to more than is denied", nfsstat4::inval,
         [](world& w) { return downgrade(w, share4::access_read, share4::deny_write); }},
    };
    hold(rules);
}

BOOST_AUTO_TEST_CASE(stateids_that_are_freed)
{
    static const rule<world> rules[] = {
        {"8881 18.38.3", "FREE_STATEID of an open", nfsstat4::locks_held,
         [](world& w) -> said {
             const auto file = made(w);
             return w.client.call(FREE_STATEID4args{file.id}).status();
         }},
        {"8881 18.38.3", "of one that is closed", nfsstat4::bad_stateid,
         [](world& w) -> said {
             const auto file = made(w);
             const PUTFH4args there{client4::handle_of(file)};
             BOOST_TEST(w.client.call(there, CLOSE4args{0, file.id}).status() == nfsstat4::ok);
             return w.client.call(FREE_STATEID4args{file.id}).status();
         }},
        {"8881 18.38.3", "of a delegation", nfsstat4::locks_held,
         [](world& w) -> said {
             const auto file = w.delegated();
             return w.client.call(FREE_STATEID4args{file.res.delegation.stateid}).status();
         }},
        {"8881 18.38.3", "of locks, and once they are unlocked", "NFS4ERR_LOCKS_HELD, then NFS4_OK",
         [](world& w) -> said {
             const auto file = made(w);
             const PUTFH4args there{client4::handle_of(file)};
             LOCK4args lock;
             lock.locktype = nfs_lock_type4::write;
             lock.length = 1;
             lock.locker.new_lock_owner = true;
             lock.locker.open_stateid = file.id;
             answer4 out = w.client.call(there, lock);
             out.good<PUTFH4res>();
             stateid4 id = out.good<LOCK4res>().lock_stateid;
             const nfsstat4 held = w.client.call(FREE_STATEID4args{id}).status();
             BOOST_TEST(w.client.call(there, LOCKU4args{nfs_lock_type4::write, 0, id, 0, 1}).status() ==
                        nfsstat4::ok);
             id.seqid = 0;
             return std::string(to_string(held)) + ", then " +
                    std::string(to_string(w.client.call(FREE_STATEID4args{id}).status()));
         }},
        {"8881 18.48.3", "TEST_STATEID of the stateid of zeros", nfsstat4::bad_stateid,
         [](world& w) -> said {
             w.client.connect();
             return tested(w, {});
         }},
        {"8881 18.48.3", "of that of ones", nfsstat4::bad_stateid,
         [](world& w) -> said {
             w.client.connect();
             return tested(w, all_ones);
         }},
        {"8881 18.48.3", "of another client's", nfsstat4::bad_stateid,
         [](world& w) -> said {
             made(w);
             w.other.connect();
             return tested(w, open_again(w.other, share4::access_read).id);
         }},
        {"8881 18.50.3", "DESTROY_CLIENTID behind a SEQUENCE of the same client", nfsstat4::clientid_busy,
         [](world& w) -> said {
             w.client.connect();
             return w.client.call(DESTROY_CLIENTID4args{w.client.id}).status();
         }},
        {"8881 18.50.3", "of a client that has a session", nfsstat4::clientid_busy,
         [](world& w) -> said {
             w.client.connect();
             return w.compound(DESTROY_CLIENTID4args{w.client.id}).status();
         }},
        {"8881 18.50.3", "with another operation behind it", nfsstat4::not_only_op,
         [](world& w) -> said {
             w.client.connect();
             return w.compound(DESTROY_CLIENTID4args{w.client.id}, PUTROOTFH4args()).status();
         }},
        {"8881 18.51.3", "RECLAIM_COMPLETE a second time", nfsstat4::complete_already,
         [](world& w) -> said {
             w.client.connect();
             return w.client.call(RECLAIM_COMPLETE4args()).status();
         }},
        {"8881 18.51.3", "of one file system, where no handle names it", nfsstat4::nofilehandle,
         [](world& w) -> said {
             w.client.connect();
             return w.client.call(RECLAIM_COMPLETE4args{true}).status();
         }},
    };
    hold(rules);
}

BOOST_AUTO_TEST_SUITE_END()
