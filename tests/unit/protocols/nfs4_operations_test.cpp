// SPDX-License-Identifier: Apache-2.0
// Arguments and results of each operation, against bytes written by hand from the XDR.
#include <boost/test/unit_test.hpp>

#include "nfs4_vectors.hpp"

#include <string>

BOOST_AUTO_TEST_SUITE(nfs4_operations_test)

using namespace verbena::test;
using namespace verbena::nfs::v4;
using namespace verbena;

namespace {
std::vector<std::byte> bytes; // what the views in decoded values point into

template<class... Results>
void all_fail_plainly()
{
    (fails_plainly<Results>(), ...);
}

/// Structs of one member.
template<class T, class Member>
auto only(std::string_view text, Member T::* member)
{
    return both_ways<T>(text, bytes).*member;
}
} // namespace

BOOST_AUTO_TEST_CASE(every_number_has_its_structs)
{
    for (std::uint32_t number = 0; number < 80; ++number) {
        const auto opcode = static_cast<nfs_opnum4>(number);
        const bool known = number >= 3 && number <= 75;
        BOOST_TEST(all_arguments::with(opcode, [&](const auto& args) {
                       BOOST_TEST(static_cast<std::uint32_t>(args.opcode) == number);
                   }) == known);
        BOOST_TEST(all_results::with(opcode, [&](const auto& res) {
                       BOOST_TEST(static_cast<std::uint32_t>(res.opcode) == number);
                   }) == known);
    }
}

BOOST_AUTO_TEST_CASE(operations_without_arguments)
{
    both_ways<GETFH4args>("", bytes);
    both_ways<LOOKUPP4args>("", bytes);
    both_ways<PUTPUBFH4args>("", bytes);
    both_ways<PUTROOTFH4args>("", bytes);
    both_ways<READLINK4args>("", bytes);
    both_ways<RESTOREFH4args>("", bytes);
    both_ways<SAVEFH4args>("", bytes);
}

BOOST_AUTO_TEST_CASE(results_of_a_status_alone)
{
    const auto plain = []<class Results>(Results) {
        BOOST_TEST((both_ways<Results>(ok_hex, bytes).status == nfsstat4::ok));
        BOOST_TEST((both_ways<Results>("00002719", bytes).status == nfsstat4::same));
    };
    plain(ALLOCATE4res());
    plain(BACKCHANNEL_CTL4res());
    plain(CLONE4res());
    plain(DEALLOCATE4res());
    plain(DELEGPURGE4res());
    plain(DELEGRETURN4res());
    plain(DESTROY_CLIENTID4res());
    plain(DESTROY_SESSION4res());
    plain(FREE_STATEID4res());
    plain(LAYOUTERROR4res());
    plain(LAYOUTSTATS4res());
    plain(LOOKUP4res());
    plain(LOOKUPP4res());
    plain(NVERIFY4res());
    plain(OFFLOAD_CANCEL4res());
    plain(OPENATTR4res());
    plain(PUTFH4res());
    plain(PUTPUBFH4res());
    plain(PUTROOTFH4res());
    plain(RECLAIM_COMPLETE4res());
    plain(RELEASE_LOCKOWNER4res());
    plain(RENEW4res());
    plain(RESTOREFH4res());
    plain(SAVEFH4res());
    plain(SETCLIENTID_CONFIRM4res());
    plain(VERIFY4res());
}

BOOST_AUTO_TEST_CASE(failures_say_their_status_and_nothing_else)
{
    all_fail_plainly<ACCESS4res, BIND_CONN_TO_SESSION4res, CLOSE4res, COMMIT4res, COPY4res, COPY_NOTIFY4res,
                     CREATE4res, CREATE_SESSION4res, EXCHANGE_ID4res, GETATTR4res, GETDEVICEINFO4res,
                     GETDEVICELIST4res, GETFH4res, GETXATTR4res, GET_DIR_DELEGATION4res, IO_ADVISE4res,
                     LAYOUTCOMMIT4res, LAYOUTGET4res, LAYOUTRETURN4res, LINK4res, LISTXATTRS4res, LOCK4res,
                     LOCKT4res, LOCKU4res, OFFLOAD_STATUS4res, OPEN4res, OPEN_CONFIRM4res, OPEN_DOWNGRADE4res,
                     READ4res, READDIR4res, READLINK4res, READ_PLUS4res, REMOVE4res, REMOVEXATTR4res,
                     RENAME4res, SECINFO4res, SECINFO_NO_NAME4res, SEEK4res, SEQUENCE4res, SETCLIENTID4res,
                     SETXATTR4res, SET_SSV4res, TEST_STATEID4res, WANT_DELEGATION4res, WRITE4res,
                     WRITE_SAME4res>();
}

BOOST_AUTO_TEST_SUITE(files)

BOOST_AUTO_TEST_CASE(names)
{
    BOOST_TEST(only(name_hex, &LOOKUP4args::objname) == "name.c");
    BOOST_TEST(only(name_hex, &REMOVE4args::target) == "name.c");
    BOOST_TEST(only(name_hex, &LINK4args::newname) == "name.c");
    BOOST_TEST(only(name_hex, &SECINFO4args::name) == "name.c");
    BOOST_TEST(only(none_hex, &LOOKUP4args::objname).empty()); // INVAL, not BADXDR
    const auto rename = both_ways<RENAME4args>(hex({name_hex, dir_hex}), bytes);
    BOOST_TEST(rename.oldname == "name.c");
    BOOST_TEST(rename.newname == "dir");
    // What a file system refuses is not the codec's to judge.
    BOOST_TEST(only("00000003 2f002e00", &LOOKUP4args::objname) == std::string_view("/\0.", 3));
    refused<LOOKUP4args>("00100001 " + std::string(2 * 1048580, '6'));

    BOOST_TEST((both_ways<REMOVE4res>(hex({ok_hex, cinfo_hex}), bytes).cinfo == cinfo_value));
    BOOST_TEST((both_ways<LINK4res>(hex({ok_hex, cinfo_hex}), bytes).cinfo == cinfo_value));
    const auto renamed = both_ways<RENAME4res>(
        hex({ok_hex, cinfo_hex, "00000000 00000041 00000042 00000051 00000052"}), bytes);
    BOOST_TEST((renamed.source_cinfo == cinfo_value));
    BOOST_TEST((renamed.target_cinfo == change_info4{false, 0x4100000042, 0x5100000052}));
}

BOOST_AUTO_TEST_CASE(handles)
{
    BOOST_TEST(is_handle(only(handle_hex, &PUTFH4args::object)));
    BOOST_TEST(is_handle(both_ways<GETFH4res>(hex({ok_hex, handle_hex}), bytes).object));
    BOOST_TEST(only("00000080 " + std::string(256, '7'), &PUTFH4args::object).size() == 128u);
    refused<PUTFH4args>("00000081 " + std::string(2 * 132, '7'));
}

BOOST_AUTO_TEST_CASE(attributes_of_files)
{
    BOOST_TEST(is_bits(only(bits_hex, &GETATTR4args::attr_request)));
    BOOST_TEST(is_attrs(both_ways<GETATTR4res>(hex({ok_hex, attrs_hex}), bytes).obj_attributes));
    BOOST_TEST(is_attrs(only(attrs_hex, &VERIFY4args::obj_attributes)));
    BOOST_TEST(is_attrs(only(attrs_hex, &NVERIFY4args::obj_attributes)));
    const auto set = both_ways<SETATTR4args>(hex({sid_7, attrs_hex}), bytes);
    BOOST_TEST((set.stateid == stateid_7() && is_attrs(set.obj_attributes)));
    // attrsset is there whatever the status is.
    BOOST_TEST(is_bits(both_ways<SETATTR4res>(hex({ok_hex, bits_hex}), bytes).attrsset));
    const auto failed = both_ways<SETATTR4res>(hex({"0000001c", bits_hex}), bytes);
    BOOST_TEST((failed.status == nfsstat4::nospc && is_bits(failed.attrsset)));
    BOOST_TEST(only("00000001", &OPENATTR4args::createdir));
}

BOOST_AUTO_TEST_CASE(access_and_commit)
{
    BOOST_TEST(only("000001ff", &ACCESS4args::access) == access4::all_with_xattr);
    const auto access = both_ways<ACCESS4res>("00000000 0000003f 00000021", bytes);
    BOOST_TEST((access.supported == 0x3f && access.access == 0x21));
    const auto commit = both_ways<COMMIT4args>(hex({offset_hex, "00001000"}), bytes);
    BOOST_TEST((commit.offset == offset_value && commit.count == 4096));
    BOOST_TEST((both_ways<COMMIT4res>(hex({ok_hex, verifier_hex}), bytes).writeverf == verifier()));
}

BOOST_AUTO_TEST_CASE(create)
{
    const auto dir = both_ways<CREATE4args>(hex({"00000002", name_hex, attrs_hex}), bytes);
    BOOST_TEST((dir.objtype.type == nfs_ftype4::dir && is_attrs(dir.createattrs)));
    BOOST_TEST(dir.objname == "name.c");
    const auto device =
        both_ways<CREATE4args>(hex({"00000003 00000008 00000009", name_hex, no_attrs}), bytes);
    BOOST_TEST((device.objtype.type == nfs_ftype4::blk && device.objtype.devdata == specdata4{8, 9}));
    both_ways<CREATE4args>(hex({"00000004 00000008 00000009", name_hex, no_attrs}), bytes);
    const auto link = both_ways<CREATE4args, false>(
        hex({"00000005 00000005 2e2e2f61 62000000", name_hex, no_attrs}), bytes);
    BOOST_TEST(text_of(link.objtype.linkdata.inline_bytes) == "../ab");
    BOOST_TEST(link.objname == "name.c");
    // BADTYPE, not BADXDR: regular files, and what nobody knows.
    for (const char* type : {"00000001", "00000006", "00000007", "00000009", "00000063"})
        BOOST_TEST(both_ways<CREATE4args>(hex({type, name_hex, no_attrs}), bytes).objname == "name.c");

    const auto made = both_ways<CREATE4res>(hex({ok_hex, cinfo_hex, bits_hex}), bytes);
    BOOST_TEST((made.cinfo == cinfo_value && is_bits(made.attrset)));
}

BOOST_AUTO_TEST_CASE(link_text_in_a_read_chunk)
{
    const auto message = from_hex(hex({"00000005 00000005", name_hex, no_attrs}));
    xdr::decoder in(message, xdr::external_item{8, 5});
    CREATE4args args;
    xdr::codec<CREATE4args>::decode(in, args);
    BOOST_TEST(in.at_end());
    BOOST_TEST((args.objtype.linkdata.external && args.objtype.linkdata.length == 5));
    BOOST_TEST(args.objname == "name.c");
}

BOOST_AUTO_TEST_CASE(read_and_write)
{
    const auto read = both_ways<READ4args>(hex({sid_7, offset_hex, "00010000"}), bytes);
    BOOST_TEST((read.stateid == stateid_7() && read.offset == offset_value && read.count == 65536));
    const auto data = both_ways<READ4res, false>("00000000 00000001 00000005 68656c6c 6f000000", bytes);
    BOOST_TEST((data.eof && data.data.length == 5 && data.data.position == 12));
    BOOST_TEST(text_of(data.data.inline_bytes) == "hello");

    const auto write = both_ways<WRITE4args, false>(
        hex({sid_7, offset_hex, "00000002", "00000005 68656c6c 6f000000"}), bytes);
    BOOST_TEST((write.stateid == stateid_7() && write.offset == offset_value));
    BOOST_TEST((write.stable == stable_how4::file_sync));
    BOOST_TEST(text_of(write.data.inline_bytes) == "hello");
    refused<WRITE4args>(hex({sid_7, offset_hex, "00000003", none_hex}));
    const auto written = both_ways<WRITE4res>(hex({ok_hex, "00000005 00000001", verifier_hex}), bytes);
    BOOST_TEST((written.count == 5 && written.committed == stable_how4::data_sync));
    BOOST_TEST((written.writeverf == verifier()));

    BOOST_TEST(
        text_of(both_ways<READLINK4res, false>("00000000 00000002 2e2e0000", bytes).link.inline_bytes) ==
        "..");
}

BOOST_AUTO_TEST_CASE(security_flavours)
{
    const auto list = both_ways<SECINFO4res>(
        hex({ok_hex, "00000003 00000006 00000003 2a864800 00000001 00000002 00000001 00000000"}), bytes);
    const std::vector<secinfo4> seen = elements(list.flavours);
    BOOST_REQUIRE(seen.size() == 3u);
    BOOST_TEST(seen[0].flavor == secinfo4::rpcsec_gss);
    BOOST_TEST(to_hex(seen[0].oid) == "2a8648");
    BOOST_TEST((seen[0].qop == 1 && seen[0].service == rpc_gss_svc_t::integrity));
    BOOST_TEST((seen[1].flavor == secinfo4::auth_sys && seen[2].flavor == secinfo4::auth_none));
    both_ways<SECINFO_NO_NAME4res>("00000000 00000001 00000001", bytes);
    BOOST_TEST((only("00000001", &SECINFO_NO_NAME4args::style) == secinfo_style4::parent));
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(state)

BOOST_AUTO_TEST_CASE(close_and_downgrade)
{
    const auto close = both_ways<CLOSE4args>(hex({"00000009", sid_7}), bytes);
    BOOST_TEST((close.seqid == 9 && close.open_stateid == stateid_7()));
    BOOST_TEST((both_ways<CLOSE4res>(hex({ok_hex, sid_8}), bytes).open_stateid == stateid_8()));
    const auto confirm = both_ways<OPEN_CONFIRM4args>(hex({sid_7, "00000009"}), bytes);
    BOOST_TEST((confirm.seqid == 9 && confirm.open_stateid == stateid_7()));
    BOOST_TEST((both_ways<OPEN_CONFIRM4res>(hex({ok_hex, sid_8}), bytes).open_stateid == stateid_8()));
    const auto down = both_ways<OPEN_DOWNGRADE4args>(hex({sid_7, "00000009 00000001 00000002"}), bytes);
    BOOST_TEST((down.open_stateid == stateid_7() && down.seqid == 9));
    BOOST_TEST((down.share_access == share4::access_read && down.share_deny == share4::deny_write));
    BOOST_TEST((both_ways<OPEN_DOWNGRADE4res>(hex({ok_hex, sid_8}), bytes).open_stateid == stateid_8()));
}

BOOST_AUTO_TEST_CASE(locks)
{
    const auto first = both_ways<LOCK4args>(
        hex({"00000002 00000001", offset_hex, length_hex, "00000001 00000009", sid_7, "0000000a", owner_hex}),
        bytes);
    BOOST_TEST((first.locktype == nfs_lock_type4::write && first.reclaim));
    BOOST_TEST((first.offset == offset_value && first.length == length_value));
    BOOST_TEST(
        (first.locker.new_lock_owner && first.locker.open_seqid == 9 && first.locker.lock_seqid == 10));
    BOOST_TEST((first.locker.open_stateid == stateid_7() && is_owner(first.locker.lock_owner)));
    const auto next = both_ways<LOCK4args>(
        hex({"00000003 00000000", offset_hex, "ffffffff ffffffff", "00000000", sid_8, "0000000b"}), bytes);
    BOOST_TEST((!next.locker.new_lock_owner && next.length == to_end_of_file));
    BOOST_TEST((next.locker.lock_stateid == stateid_8() && next.locker.lock_seqid == 11));
    refused<LOCK4args>(hex({"00000003 00000000", offset_hex, length_hex, "00000002", sid_8, "0000000b"}));
    refused<LOCK4args>(hex({"00000005 00000000", offset_hex, length_hex, "00000000", sid_8, "0000000b"}));

    BOOST_TEST((both_ways<LOCK4res>(hex({ok_hex, sid_8}), bytes).lock_stateid == stateid_8()));
    const auto denied =
        both_ways<LOCK4res>(hex({"0000271a", offset_hex, length_hex, "00000001", owner_hex}), bytes);
    BOOST_TEST((denied.status == nfsstat4::denied && denied.denied.locktype == nfs_lock_type4::read));
    BOOST_TEST((denied.denied.offset == offset_value && denied.denied.length == length_value));
    BOOST_TEST(is_owner(denied.denied.owner));

    const auto test = both_ways<LOCKT4args>(hex({"00000001", offset_hex, length_hex, owner_hex}), bytes);
    BOOST_TEST((test.locktype == nfs_lock_type4::read && is_owner(test.owner)));
    BOOST_TEST((test.offset == offset_value && test.length == length_value));
    both_ways<LOCKT4res>(ok_hex, bytes);
    const auto found =
        both_ways<LOCKT4res>(hex({"0000271a", offset_hex, length_hex, "00000002", owner_hex}), bytes);
    BOOST_TEST((found.denied.locktype == nfs_lock_type4::write && is_owner(found.denied.owner)));

    const auto unlock =
        both_ways<LOCKU4args>(hex({"00000004 00000009", sid_7, offset_hex, length_hex}), bytes);
    BOOST_TEST((unlock.locktype == nfs_lock_type4::writew && unlock.seqid == 9));
    BOOST_TEST((unlock.lock_stateid == stateid_7() && unlock.offset == offset_value &&
                unlock.length == length_value));
    BOOST_TEST((both_ways<LOCKU4res>(hex({ok_hex, sid_8}), bytes).lock_stateid == stateid_8()));
    BOOST_TEST(is_owner(only(owner_hex, &RELEASE_LOCKOWNER4args::lock_owner)));
    refused<RELEASE_LOCKOWNER4args>("00000000 00000001 00000401 " + std::string(2 * 1028, '6'));
}

namespace {
OPEN4args opened(std::string_view how, std::string_view claim)
{
    const auto args = both_ways<OPEN4args>(hex({"00000009 00200403 00000001", owner_hex, how, claim}), bytes);
    BOOST_TEST((args.seqid == 9 && args.share_deny == share4::deny_read && is_owner(args.owner)));
    BOOST_TEST(args.share_access ==
               (share4::access_both | share4::want_no_delegation | share4::want_open_xor_delegation));
    return args;
}
constexpr std::string_view no_create = "00000000";
constexpr std::string_view by_name = "00000000 00000006 6e616d65 2e630000";
} // namespace

BOOST_AUTO_TEST_CASE(open_create_modes)
{
    BOOST_TEST((opened(no_create, by_name).openhow.opentype == opentype4::nocreate));
    const auto unchecked = opened(hex({"00000001 00000000", attrs_hex}), by_name);
    BOOST_TEST((unchecked.openhow.opentype == opentype4::create));
    BOOST_TEST((unchecked.openhow.mode == createmode4::unchecked && is_attrs(unchecked.openhow.attrs)));
    const auto guarded = opened(hex({"00000001 00000001", attrs_hex}), by_name);
    BOOST_TEST((guarded.openhow.mode == createmode4::guarded && is_attrs(guarded.openhow.attrs)));
    const auto exclusive = opened(hex({"00000001 00000002", verifier_hex}), by_name);
    BOOST_TEST((exclusive.openhow.mode == createmode4::exclusive && exclusive.openhow.verf == verifier()));
    const auto both = opened(hex({"00000001 00000003", verifier_hex, attrs_hex}), by_name);
    BOOST_TEST((both.openhow.mode == createmode4::exclusive4_1 && both.openhow.verf == verifier()));
    BOOST_TEST(is_attrs(both.openhow.attrs));
    BOOST_TEST(both.claim.file == "name.c");
    refused<openflag4>("00000002");
    refused<openflag4>("00000001 00000004 00000000 00000000");
}

BOOST_AUTO_TEST_CASE(open_claims)
{
    BOOST_TEST(opened(no_create, by_name).claim.file == "name.c");
    const auto previous = opened(no_create, "00000001 00000002");
    BOOST_TEST((previous.claim.claim == open_claim_type4::previous));
    BOOST_TEST((previous.claim.delegate_type == open_delegation_type4::write));
    const auto current = opened(no_create, hex({"00000002", sid_8, name_hex}));
    BOOST_TEST((current.claim.claim == open_claim_type4::delegate_cur));
    BOOST_TEST((current.claim.delegate_stateid == stateid_8()));
    BOOST_TEST(current.claim.file == "name.c");
    BOOST_TEST(opened(no_create, hex({"00000003", name_hex})).claim.file == "name.c");
    BOOST_TEST((opened(no_create, "00000004").claim.claim == open_claim_type4::fh));
    const auto by_handle = opened(no_create, hex({"00000005", sid_8}));
    BOOST_TEST((by_handle.claim.claim == open_claim_type4::deleg_cur_fh));
    BOOST_TEST((by_handle.claim.delegate_stateid == stateid_8()));
    BOOST_TEST((opened(no_create, "00000006").claim.claim == open_claim_type4::deleg_prev_fh));
    refused<open_claim4>("00000007");
    refused<open_claim4>("00000001 00000006"); // no such delegation
}

BOOST_AUTO_TEST_CASE(open_results)
{
    const auto plain =
        both_ways<OPEN4res>(hex({ok_hex, sid_7, cinfo_hex, "00000024", bits_hex, none_hex}), bytes);
    BOOST_TEST((plain.stateid == stateid_7() && plain.cinfo == cinfo_value && is_bits(plain.attrset)));
    BOOST_TEST(plain.rflags == (open4_result::locktype_posix | open4_result::may_notify_lock));
    BOOST_TEST((plain.delegation.delegation_type == open_delegation_type4::none));
}

BOOST_AUTO_TEST_CASE(delegations)
{
    constexpr std::string_view ace = "00000000 00000000 00000001 00000006 4f574e45 52400000";
    for (const char* type : {"00000001", "00000004"}) {
        const auto read = both_ways<open_delegation4>(hex({type, sid_7, "00000001", ace}), bytes);
        BOOST_TEST((read.stateid == stateid_7() && read.recall && read.permissions.access_mask == 1));
        BOOST_TEST(read.permissions.who == "OWNER@");
    }
    for (const char* type : {"00000002", "00000005"}) {
        const auto write =
            both_ways<open_delegation4>(hex({type, sid_8, "00000000", "00000001", offset_hex, ace}), bytes);
        BOOST_TEST((write.stateid == stateid_8() && !write.recall));
        BOOST_TEST(
            (write.space_limit.limitby == limit_by4::size && write.space_limit.filesize == offset_value));
        BOOST_TEST(write.permissions.who == "OWNER@");
    }
    const auto blocks = both_ways<open_delegation4>(
        hex({"00000002", sid_8, "00000000", "00000002 00000064 00000200", ace}), bytes);
    BOOST_TEST((blocks.space_limit.num_blocks == 100 && blocks.space_limit.bytes_per_block == 512));
    for (std::uint32_t why = 0; why < 9; ++why) {
        const bool tells = why == 1 || why == 2;
        const auto none = both_ways<open_delegation4>(
            hex({"00000003", "0000000" + std::to_string(why), tells ? "00000001" : ""}), bytes);
        BOOST_TEST((none.why == why_no_delegation4(why) && none.will_tell == tells));
    }
    refused<open_delegation4>("00000006");

    BOOST_TEST((both_ways<WANT_DELEGATION4res>(hex({ok_hex, none_hex}), bytes).delegation.delegation_type ==
                open_delegation_type4::none));
    BOOST_TEST((only(sid_7, &DELEGRETURN4args::deleg_stateid) == stateid_7()));
    BOOST_TEST(only(offset_hex, &DELEGPURGE4args::clientid) == offset_value);
    const auto want = both_ways<WANT_DELEGATION4args>("00010100 00000001 00000002", bytes);
    BOOST_TEST(want.want == (share4::want_read_delegation | share4::want_signal_when_available));
    BOOST_TEST((want.delegate_type == open_delegation_type4::write));
    both_ways<WANT_DELEGATION4args>("00000100 00000004", bytes);
    both_ways<WANT_DELEGATION4args>("00000100 00000006", bytes);
    for (const char* claim : {"00000000", "00000002", "00000003", "00000005", "00000007"})
        refused<WANT_DELEGATION4args>(hex({"00000100", claim, sid_7, name_hex}));

    const auto dir = both_ways<GET_DIR_DELEGATION4args>(
        hex({"00000001", bits_hex, time_hex, "00000000 00000005 00000006", size_mode_bits, bits_hex}), bytes);
    BOOST_TEST((dir.signal_deleg_avail && is_bits(dir.notification_types) && is_bits(dir.dir_attributes)));
    BOOST_TEST((dir.child_attr_delay == nfstime4{-2, 99} && dir.dir_attr_delay == nfstime4{5, 6}));
    BOOST_TEST((dir.child_attributes == bitmap4{4, 33}));
    const auto given = both_ways<GET_DIR_DELEGATION4res>(
        hex({ok_hex, "00000000", verifier_hex, sid_7, bits_hex, size_mode_bits, none_hex}), bytes);
    BOOST_TEST((!given.unavailable && given.cookieverf == verifier() && given.stateid == stateid_7()));
    BOOST_TEST(
        (is_bits(given.notification) && given.child_attributes.test(33) && given.dir_attributes.none()));
    const auto none = both_ways<GET_DIR_DELEGATION4res>("00000000 00000001 00000001", bytes);
    BOOST_TEST((none.unavailable && none.will_signal_deleg_avail));
}

BOOST_AUTO_TEST_CASE(clients_of_minor_version_0)
{
    BOOST_TEST(only(offset_hex, &RENEW4args::clientid) == offset_value);
    const auto set =
        both_ways<SETCLIENTID4args>(hex({verifier_hex, "00000003 61626300", "40000000", "00000003 74637000",
                                         "00000007 312e322e 332e3400", "0000000c"}),
                                    bytes);
    BOOST_TEST((set.verifier == verifier() && set.cb_program == 0x40000000 && set.callback_ident == 12));
    BOOST_TEST(text_of(set.id) == "abc");
    BOOST_TEST(set.cb_location.netid == "tcp");
    BOOST_TEST(set.cb_location.addr == "1.2.3.4");
    const auto given = both_ways<SETCLIENTID4res>(hex({ok_hex, offset_hex, verifier_hex}), bytes);
    BOOST_TEST((given.clientid == offset_value && given.setclientid_confirm == verifier()));
    const auto used =
        both_ways<SETCLIENTID4res>("00002721 00000003 74637000 00000007 312e322e 332e3400", bytes);
    BOOST_TEST((used.status == nfsstat4::clid_inuse));
    BOOST_TEST(used.client_using.addr == "1.2.3.4");
    const auto confirm = both_ways<SETCLIENTID_CONFIRM4args>(hex({offset_hex, verifier_hex}), bytes);
    BOOST_TEST((confirm.clientid == offset_value && confirm.setclientid_confirm == verifier()));
}

BOOST_AUTO_TEST_CASE(stateids)
{
    BOOST_TEST((only(sid_7, &FREE_STATEID4args::stateid) == stateid_7()));
    BOOST_TEST(only(none_hex, &TEST_STATEID4args::stateids).empty());
    BOOST_TEST(only(hex({"00000002", sid_7, sid_8}), &TEST_STATEID4args::stateids).size() == 2u);
    refused<TEST_STATEID4args>(hex({"00010001", std::string(2 * 16 * 65537, '0')}));
    refused<TEST_STATEID4args>(hex({"80000001", sid_7}));
    const auto tested = both_ways<TEST_STATEID4res>("00000000 00000002 00000000 00002719", bytes);
    const std::vector<nfsstat4> seen = elements(tested.status_codes);
    BOOST_TEST((seen == std::vector<nfsstat4>{nfsstat4::ok, nfsstat4::same}));
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(sessions)

namespace {
constexpr std::string_view impl_id =
    "00000001 00000003 6f726700 00000002 6e660000 00000000 00000007 00000008";
constexpr std::string_view client_owner = "e0e1e2e3 e4e5e6e7 00000005 6f776e65 72000000";
} // namespace

BOOST_AUTO_TEST_CASE(exchange_id)
{
    const auto plain =
        both_ways<EXCHANGE_ID4args>(hex({client_owner, "00000103", "00000000", impl_id}), bytes);
    BOOST_TEST((plain.clientowner.verifier == verifier() && plain.flags == 0x103));
    BOOST_TEST(text_of(plain.clientowner.ownerid) == "owner");
    BOOST_TEST((plain.state_protect.how == state_protect_how4::none));
    BOOST_REQUIRE(plain.client_impl_id.has_value());
    BOOST_TEST(plain.client_impl_id->domain == "org");
    BOOST_TEST(plain.client_impl_id->name == "nf");
    BOOST_TEST((plain.client_impl_id->date == nfstime4{7, 8}));
    BOOST_TEST(!both_ways<EXCHANGE_ID4args>(hex({client_owner, "00000103 00000000 00000000"}), bytes)
                    .client_impl_id.has_value());
    refused<EXCHANGE_ID4args>(hex({client_owner, "00000103 00000000 00000002",
                                   "00000003 6f726700 00000002 6e660000 00000000 00000007 00000008",
                                   "00000003 6f726700 00000002 6e660000 00000000 00000007 00000008"}));
    refused<EXCHANGE_ID4args>(hex({client_owner, "00000103 00000003 00000000"}));

    const auto mach = both_ways<EXCHANGE_ID4args>(
        hex({client_owner, "00000103", "00000001", bits_hex, size_mode_bits, none_hex}), bytes);
    BOOST_TEST((is_bits(mach.state_protect.ops.must_enforce) && mach.state_protect.ops.must_allow.test(33)));
    const auto ssv = both_ways<EXCHANGE_ID4args>(
        hex({client_owner, "00000103", "00000002", bits_hex, none_hex,
             "00000002 00000001 2a000000 00000002 2b2c0000 00000001 00000001 2d000000 00000040 00000003",
             none_hex}),
        bytes);
    BOOST_TEST((ssv.state_protect.hash_algs.size() == 2 && ssv.state_protect.encr_algs.size() == 1));
    BOOST_TEST((ssv.state_protect.window == 64 && ssv.state_protect.num_gss_handles == 3));
    BOOST_TEST(to_hex(elements(ssv.state_protect.hash_algs)[0]) == "2a");
}

BOOST_AUTO_TEST_CASE(exchange_id_results)
{
    constexpr std::string_view names = "00000005 00000006 00000003 6d616a00 00000002 73630000";
    const auto plain = both_ways<EXCHANGE_ID4res>(
        hex({ok_hex, offset_hex, "00000001 80010000", "00000000", names, impl_id}), bytes);
    BOOST_TEST((plain.clientid == offset_value && plain.sequenceid == 1));
    BOOST_TEST(plain.flags == (exchgid4::confirmed_r | exchgid4::use_non_pnfs));
    BOOST_TEST(plain.server_owner.minor_id == 0x500000006u);
    BOOST_TEST(text_of(plain.server_owner.major_id) == "maj");
    BOOST_TEST(text_of(plain.server_scope) == "sc");
    BOOST_TEST(plain.server_impl_id->name == "nf");
    const auto mach = both_ways<EXCHANGE_ID4res>(
        hex({ok_hex, offset_hex, "00000001 00010000", "00000001", bits_hex, none_hex, names, none_hex}),
        bytes);
    BOOST_TEST(is_bits(mach.state_protect.ops.must_enforce));
    const auto ssv = both_ways<EXCHANGE_ID4res>(
        hex({ok_hex, offset_hex, "00000001 00010000", "00000002", bits_hex, none_hex,
             "00000001 00000002 00000020 00000040 00000001 00000002 61620000", names, none_hex}),
        bytes);
    BOOST_TEST((ssv.state_protect.hash_alg == 1 && ssv.state_protect.encr_alg == 2));
    BOOST_TEST((ssv.state_protect.ssv_len == 32 && ssv.state_protect.window == 64));
    BOOST_TEST(text_of(elements(ssv.state_protect.handles).at(0)) == "ab");
}

namespace {
constexpr std::string_view fore = "00000001 00100404 00100384 00001da0 00000008 00000040 00000000";
constexpr std::string_view back = "00000000 00001000 00000fff 00000000 00000002 00000010 00000001 00000005";
constexpr std::string_view parms =
    "00000003"
    "00000000"
    "00000001 00000001 00000003 61626300 00000002 00000003 00000002 00000004 00000005"
    "00000006 00000003 00000001 61000000 00000002 62630000";

void are_parms(const array_view<callback_sec_parms4, max_security_flavours>& list)
{
    const std::vector<callback_sec_parms4> seen = elements(list);
    BOOST_REQUIRE(seen.size() == 3u);
    BOOST_TEST(seen[0].cb_secflavor == secinfo4::auth_none);
    const authsys_parms& sys = seen[1].sys_cred;
    BOOST_TEST((sys.stamp == 1 && sys.uid == 2 && sys.gid == 3));
    BOOST_TEST(sys.machinename == "abc");
    BOOST_TEST((sys.gids == xdr::list<std::uint32_t, 16>{4, 5}));
    BOOST_TEST((seen[2].gss_service == rpc_gss_svc_t::privacy));
    BOOST_TEST(text_of(seen[2].handle_from_server) == "a");
    BOOST_TEST(text_of(seen[2].handle_from_client) == "bc");
}
} // namespace

BOOST_AUTO_TEST_CASE(create_session)
{
    const auto args = both_ways<CREATE_SESSION4args>(
        hex({offset_hex, "00000009 00000003", fore, back, "40000000", parms}), bytes);
    BOOST_TEST((args.clientid == offset_value && args.sequence == 9 && args.cb_program == 0x40000000));
    BOOST_TEST(args.flags == (create_session4::persist | create_session4::conn_back_chan));
    BOOST_TEST((args.fore_chan_attrs == channel_attrs4{1, 1049604, 1049476, 7584, 8, 64, std::nullopt}));
    BOOST_TEST((args.back_chan_attrs == channel_attrs4{0, 4096, 4095, 0, 2, 16, 5}));
    are_parms(args.sec_parms);
    refused<channel_attrs4>(
        "00000000 00000000 00000000 00000000 00000000 00000000 00000002 00000000 00000000");
    refused<callback_sec_parms4>("00000002");
    // 17 groups.
    refused<callback_sec_parms4>("00000001 00000001 00000000 00000002 00000003 00000011 " +
                                 std::string(8 * 17, '0'));

    const auto made =
        both_ways<CREATE_SESSION4res>(hex({ok_hex, session_hex, "00000009 00000002", fore, back}), bytes);
    BOOST_TEST((made.sessionid == session() && made.sequence == 9 && made.flags == 2));
    BOOST_TEST(
        (made.fore_chan_attrs == args.fore_chan_attrs && made.back_chan_attrs == args.back_chan_attrs));

    const auto control = both_ways<BACKCHANNEL_CTL4args>(hex({"40000001", parms}), bytes);
    BOOST_TEST(control.cb_program == 0x40000001u);
    are_parms(control.sec_parms);
}

BOOST_AUTO_TEST_CASE(sequence)
{
    const auto args =
        both_ways<SEQUENCE4args>(hex({session_hex, "00000009 00000003 00000007 00000001"}), bytes);
    BOOST_TEST((args.sessionid == session() && args.sequenceid == 9 && args.slotid == 3));
    BOOST_TEST((args.highest_slotid == 7 && args.cachethis));
    const auto res = both_ways<SEQUENCE4res>(
        hex({ok_hex, session_hex, "00000009 00000003 00000007 0000003f 00000201"}), bytes);
    BOOST_TEST((res.sessionid == session() && res.sequenceid == 9 && res.slotid == 3));
    BOOST_TEST((res.highest_slotid == 7 && res.target_highest_slotid == 63));
    BOOST_TEST(res.status_flags == (seq4_status::cb_path_down | seq4_status::cb_path_down_session));
}

BOOST_AUTO_TEST_CASE(other_operations_of_sessions)
{
    const auto bind = both_ways<BIND_CONN_TO_SESSION4args>(hex({session_hex, "00000003 00000001"}), bytes);
    BOOST_TEST((bind.sessid == session() && bind.dir == channel_dir_from_client4::fore_or_both));
    BOOST_TEST(bind.use_conn_in_rdma_mode);
    const auto bound =
        both_ways<BIND_CONN_TO_SESSION4res>(hex({ok_hex, session_hex, "00000002 00000001"}), bytes);
    BOOST_TEST((bound.sessid == session() && bound.dir == channel_dir_from_server4::back));
    BOOST_TEST(bound.use_conn_in_rdma_mode);
    BOOST_TEST((only(session_hex, &DESTROY_SESSION4args::sessionid) == session()));
    BOOST_TEST(only(offset_hex, &DESTROY_CLIENTID4args::clientid) == offset_value);
    BOOST_TEST(only("00000001", &RECLAIM_COMPLETE4args::one_fs));
    const auto ssv = both_ways<SET_SSV4args>("00000001 61000000 00000002 62630000", bytes);
    BOOST_TEST(text_of(ssv.ssv) == "a");
    BOOST_TEST(text_of(ssv.digest) == "bc");
    BOOST_TEST(text_of(both_ways<SET_SSV4res>("00000000 00000002 62630000", bytes).digest) == "bc");
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(layouts)

BOOST_AUTO_TEST_CASE(devices)
{
    const auto info = both_ways<GETDEVICEINFO4args>(hex({device_hex, "80000006 00001000", bits_hex}), bytes);
    BOOST_TEST((info.device_id == device() && info.layout_type == layouttype4::rdma));
    BOOST_TEST((info.maxcount == 4096 && is_bits(info.notify_types)));
    const auto found =
        both_ways<GETDEVICEINFO4res>(hex({ok_hex, "80000006 00000002 61620000", bits_hex}), bytes);
    BOOST_TEST((found.layout_type == layouttype4::rdma && is_bits(found.notification)));
    BOOST_TEST(text_of(found.addr_body) == "ab");
    BOOST_TEST(both_ways<GETDEVICEINFO4res>("00002715 00002000", bytes).mincount == 8192u);
    const auto list =
        both_ways<GETDEVICELIST4args>(hex({"00000003 00000010", offset_hex, verifier_hex}), bytes);
    BOOST_TEST((list.layout_type == layouttype4::block_volume && list.maxdevices == 16));
    BOOST_TEST((list.cookie == offset_value && list.cookieverf == verifier()));
    const auto listed = both_ways<GETDEVICELIST4res>(
        hex({ok_hex, offset_hex, verifier_hex, "00000001", device_hex, "00000001"}), bytes);
    BOOST_TEST((listed.cookie == offset_value && listed.cookieverf == verifier() && listed.eof));
    BOOST_TEST((elements(listed.deviceid_list)[0] == device()));
}

BOOST_AUTO_TEST_CASE(layoutget)
{
    const auto args = both_ways<LAYOUTGET4args>(
        hex({"00000001 80000006 00000002", offset_hex, length_hex, "00000000 00001000", sid_7, "00002000"}),
        bytes);
    BOOST_TEST((args.signal_layout_avail && args.layout_type == layouttype4::rdma));
    BOOST_TEST(
        (args.iomode == layoutiomode4::rw && args.offset == offset_value && args.length == length_value));
    BOOST_TEST((args.minlength == 4096 && args.stateid == stateid_7() && args.maxcount == 8192));
    const auto got = both_ways<LAYOUTGET4res>(hex({ok_hex, "00000001", sid_8, "00000001", offset_hex,
                                                   length_hex, "00000001 80000006 00000002 61620000"}),
                                              bytes);
    BOOST_TEST((got.return_on_close && got.stateid == stateid_8()));
    const layout4 segment = elements(got.layout).at(0);
    BOOST_TEST((segment.offset == offset_value && segment.length == length_value));
    BOOST_TEST((segment.iomode == layoutiomode4::read && segment.type == layouttype4::rdma));
    BOOST_TEST(text_of(segment.body) == "ab");
    BOOST_TEST(both_ways<LAYOUTGET4res>("0000274a 00000001", bytes).will_signal_layout_avail);
}

BOOST_AUTO_TEST_CASE(layoutcommit)
{
    const auto args = both_ways<LAYOUTCOMMIT4args>(
        hex({offset_hex, length_hex, "00000001", sid_7, "00000001 00000000 00000fff", "00000001", time_hex,
             "80000006 00000002 61620000"}),
        bytes);
    BOOST_TEST((args.offset == offset_value && args.length == length_value && args.reclaim));
    BOOST_TEST((args.stateid == stateid_7() && args.last_write_offset == 4095u));
    BOOST_TEST((args.time_modify == nfstime4{-2, 99} && args.layout_type == layouttype4::rdma));
    BOOST_TEST(text_of(args.update_body) == "ab");
    const auto less = both_ways<LAYOUTCOMMIT4args>(
        hex({offset_hex, length_hex, "00000000", sid_7, none_hex, none_hex, "80000006", none_hex}), bytes);
    BOOST_TEST((!less.last_write_offset && !less.time_modify));
    BOOST_TEST(
        (both_ways<LAYOUTCOMMIT4res>(hex({ok_hex, "00000001", length_hex}), bytes).newsize == length_value));
    BOOST_TEST(!both_ways<LAYOUTCOMMIT4res>(hex({ok_hex, none_hex}), bytes).newsize);
}

BOOST_AUTO_TEST_CASE(layoutreturn)
{
    const auto file = both_ways<LAYOUTRETURN4args>(
        hex({"00000001 80000006 00000003 00000001", offset_hex, length_hex, sid_7, "00000002 61620000"}),
        bytes);
    BOOST_TEST((file.reclaim && file.layout_type == layouttype4::rdma && file.iomode == layoutiomode4::any));
    BOOST_TEST((file.layoutreturn.offset == offset_value && file.layoutreturn.length == length_value));
    BOOST_TEST((file.layoutreturn.stateid == stateid_7()));
    BOOST_TEST(text_of(file.layoutreturn.body) == "ab");
    for (const char* type : {"00000002", "00000003", "00000009"})
        both_ways<LAYOUTRETURN4args>(hex({"00000000 80000006 00000001", type}), bytes);
    BOOST_TEST((both_ways<LAYOUTRETURN4res>(hex({ok_hex, "00000001", sid_8}), bytes).stateid == stateid_8()));
    BOOST_TEST(!both_ways<LAYOUTRETURN4res>(hex({ok_hex, "00000000"}), bytes).stateid);
}

BOOST_AUTO_TEST_CASE(reports)
{
    const auto errors = both_ways<LAYOUTERROR4args>(
        hex({offset_hex, length_hex, sid_7, "00000001", device_hex, "00000005 00000019"}), bytes);
    const device_error4 first = elements(errors.errors).at(0);
    BOOST_TEST((first.deviceid == device() && first.status == nfsstat4::io && first.opnum == 25));
    BOOST_TEST(
        (errors.offset == offset_value && errors.length == length_value && errors.stateid == stateid_7()));
    const auto stats = both_ways<LAYOUTSTATS4args>(
        hex({offset_hex, length_hex, sid_7, "00000000 00000001 00000000 00000002",
             "00000000 00000003 00000000 00000004", device_hex, "00000004 00000002 61620000"}),
        bytes);
    BOOST_TEST(
        (stats.read.count == 1 && stats.read.bytes == 2 && stats.write.count == 3 && stats.write.bytes == 4));
    BOOST_TEST((stats.deviceid == device() && stats.layout_type == layouttype4::flex_files));
    BOOST_TEST(text_of(stats.update_body) == "ab");
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(minor_version_2)

BOOST_AUTO_TEST_CASE(ranges)
{
    const auto range = hex({sid_7, offset_hex, length_hex});
    const auto allocate = both_ways<ALLOCATE4args>(range, bytes);
    BOOST_TEST((allocate.stateid == stateid_7() && allocate.offset == offset_value));
    BOOST_TEST(allocate.length == length_value);
    const auto deallocate = both_ways<DEALLOCATE4args>(range, bytes);
    BOOST_TEST((deallocate.stateid == stateid_7() && deallocate.offset == offset_value));
    BOOST_TEST(deallocate.length == length_value);
    const auto advise = both_ways<IO_ADVISE4args>(hex({range, bits_hex}), bytes);
    BOOST_TEST((advise.offset == offset_value && advise.count == length_value && is_bits(advise.hints)));
    BOOST_TEST(is_bits(both_ways<IO_ADVISE4res>(hex({ok_hex, bits_hex}), bytes).hints));
    const auto seek = both_ways<SEEK4args>(hex({sid_7, offset_hex, "00000001"}), bytes);
    BOOST_TEST(
        (seek.stateid == stateid_7() && seek.offset == offset_value && seek.what == data_content4::hole));
    const auto found = both_ways<SEEK4res>(hex({ok_hex, "00000001", offset_hex}), bytes);
    BOOST_TEST((found.eof && found.offset == offset_value));
    const auto clone =
        both_ways<CLONE4args>(hex({sid_7, sid_8, offset_hex, length_hex, "00000005 00000006"}), bytes);
    BOOST_TEST((clone.src_stateid == stateid_7() && clone.dst_stateid == stateid_8()));
    BOOST_TEST((clone.src_offset == offset_value && clone.dst_offset == length_value));
    BOOST_TEST(clone.count == 0x500000006u);
}

namespace {
constexpr std::string_view copied = "00000001 00000007 a0a1a2a3 a4a5a6a7 a8a9aaab 00000003 00000004 00000002 "
                                    "e0e1e2e3 e4e5e6e7";
constexpr std::string_view locations = "00000003 00000001 00000002 61620000 00000002 00000001 63000000 "
                                       "00000003 00000003 74637000 00000007 312e322e 332e3400";

void is_response(const write_response4& response)
{
    BOOST_TEST((response.callback_id == stateid_7() && response.count == length_value));
    BOOST_TEST((response.committed == stable_how4::file_sync && response.writeverf == verifier()));
}
void are_locations(const array_view<netloc4, max_network_locations>& list)
{
    const std::vector<netloc4> seen = elements(list);
    BOOST_REQUIRE(seen.size() == 3u);
    BOOST_TEST((seen[0].type == netloc_type4::name && seen[1].type == netloc_type4::url));
    BOOST_TEST(seen[0].name == "ab");
    BOOST_TEST(seen[1].name == "c");
    BOOST_TEST(seen[2].addr.netid == "tcp");
    BOOST_TEST(seen[2].addr.addr == "1.2.3.4");
}
} // namespace

BOOST_AUTO_TEST_CASE(copy)
{
    const auto args = both_ways<COPY4args>(
        hex({sid_7, sid_8, offset_hex, length_hex, "00000005 00000006", "00000001 00000000", locations}),
        bytes);
    BOOST_TEST((args.src_stateid == stateid_7() && args.dst_stateid == stateid_8()));
    BOOST_TEST((args.src_offset == offset_value && args.dst_offset == length_value));
    BOOST_TEST((args.count == 0x500000006 && args.consecutive && !args.synchronous));
    are_locations(args.source_server);
    refused<netloc4>("00000004 00000000");

    const auto res = both_ways<COPY4res>(hex({ok_hex, copied, "00000001 00000000"}), bytes);
    is_response(res.response);
    BOOST_TEST((res.requirements.consecutive && !res.requirements.synchronous));
    const auto at_once = both_ways<COPY4res>(
        hex({ok_hex, none_hex, length_hex, "00000000", verifier_hex, "00000001 00000001"}), bytes);
    BOOST_TEST((!at_once.response.callback_id && at_once.requirements.synchronous));
    const auto not_so = both_ways<COPY4res>("0000276e 00000000 00000001", bytes);
    BOOST_TEST((not_so.status == nfsstat4::offload_no_reqs && not_so.requirements.synchronous));

    const auto notify = both_ways<COPY_NOTIFY4args>(hex({sid_7, "00000001 00000002 61620000"}), bytes);
    BOOST_TEST((notify.src_stateid == stateid_7()));
    BOOST_TEST(notify.destination_server.name == "ab");
    const auto told = both_ways<COPY_NOTIFY4res>(hex({ok_hex, time_hex, sid_8, locations}), bytes);
    BOOST_TEST((told.lease_time == nfstime4{-2, 99} && told.stateid == stateid_8()));
    are_locations(told.source_server);

    BOOST_TEST((only(sid_7, &OFFLOAD_CANCEL4args::stateid) == stateid_7()));
    BOOST_TEST((only(sid_7, &OFFLOAD_STATUS4args::stateid) == stateid_7()));
    const auto going = both_ways<OFFLOAD_STATUS4res>(hex({ok_hex, length_hex, none_hex}), bytes);
    BOOST_TEST((going.count == length_value && !going.complete));
    BOOST_TEST(
        (both_ways<OFFLOAD_STATUS4res>(hex({ok_hex, length_hex, "00000001 0000001c"}), bytes).complete ==
         nfsstat4::nospc));
}

BOOST_AUTO_TEST_CASE(read_plus)
{
    const auto args = both_ways<READ_PLUS4args>(hex({sid_7, offset_hex, "00010000"}), bytes);
    BOOST_TEST((args.stateid == stateid_7() && args.offset == offset_value && args.count == 65536));
    const auto res =
        both_ways<READ_PLUS4res>(hex({ok_hex, "00000001 00000003", "00000000", offset_hex,
                                      "00000002 61620000", "00000001", offset_hex, length_hex, "00000005"}),
                                 bytes);
    BOOST_TEST(res.eof);
    const std::vector<read_plus_content> seen = elements(res.contents);
    BOOST_REQUIRE(seen.size() == 3u);
    BOOST_TEST((seen[0].content == data_content4::data && seen[0].offset == offset_value));
    BOOST_TEST(text_of(seen[0].data) == "ab");
    BOOST_TEST((seen[1].content == data_content4::hole && seen[1].offset == offset_value));
    BOOST_TEST(seen[1].length == length_value);
    BOOST_TEST((seen[2].content == data_content4(5)));
}

BOOST_AUTO_TEST_CASE(write_same)
{
    const auto args = both_ways<WRITE_SAME4args>(
        hex({sid_7, "00000001", offset_hex, "00000000 00001000 00000000 00000002 00000000 00000008 00000009",
             "00000000 00000010 00000002 61620000"}),
        bytes);
    BOOST_TEST((args.stateid == stateid_7() && args.stable == stable_how4::data_sync));
    BOOST_TEST((args.adb.offset == offset_value && args.adb.block_size == 4096 && args.adb.block_count == 2));
    BOOST_TEST((args.adb.reloff_blocknum == 8 && args.adb.block_num == 9 && args.adb.reloff_pattern == 16));
    BOOST_TEST(text_of(args.adb.pattern) == "ab");
    is_response(both_ways<WRITE_SAME4res>(hex({ok_hex, copied}), bytes).response);
}

BOOST_AUTO_TEST_CASE(extended_attributes)
{
    BOOST_TEST(only(name_hex, &GETXATTR4args::name) == "name.c");
    BOOST_TEST(only(name_hex, &REMOVEXATTR4args::name) == "name.c");
    BOOST_TEST(text_of(both_ways<GETXATTR4res>("00000000 00000002 61620000", bytes).value) == "ab");
    const auto set = both_ways<SETXATTR4args>(hex({"00000002", name_hex, "00000002 61620000"}), bytes);
    BOOST_TEST((set.option == setxattr_option4::replace));
    BOOST_TEST(set.name == "name.c");
    BOOST_TEST(text_of(set.value) == "ab");
    refused<SETXATTR4args>(hex({"00000003", name_hex, none_hex}));
    // One that is too long is another status than one that can't be read.
    const auto longer = from_hex(hex({"00000000", name_hex, "00010001", std::string(2 * 65540, '0')}));
    xdr::decoder in(longer);
    SETXATTR4args large;
    xdr::codec<SETXATTR4args>::decode(in, large);
    BOOST_TEST(in.at_end());
    BOOST_TEST(large.value.size() == 65537u);
    BOOST_TEST((both_ways<SETXATTR4res>(hex({ok_hex, cinfo_hex}), bytes).cinfo == cinfo_value));
    BOOST_TEST((both_ways<REMOVEXATTR4res>(hex({ok_hex, cinfo_hex}), bytes).cinfo == cinfo_value));
    const auto list = both_ways<LISTXATTRS4args>(hex({offset_hex, "00001000"}), bytes);
    BOOST_TEST((list.cookie == offset_value && list.maxcount == 4096));
    const auto listed = both_ways<LISTXATTRS4res>(
        hex({ok_hex, offset_hex, "00000002", name_hex, dir_hex, "00000001"}), bytes);
    std::string names;
    for (const component4 each : elements(listed.names))
        names.append(each).append(" ");
    BOOST_TEST(names == "name.c dir ");
    BOOST_TEST((listed.cookie == offset_value && listed.eof));
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()
