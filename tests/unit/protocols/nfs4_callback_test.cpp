// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include "nfs4_vectors.hpp"

#include <array>
#include <set>
#include <string>

BOOST_AUTO_TEST_SUITE(nfs4_callback_test)

using namespace verbena::test;
using namespace verbena::nfs::v4;
using namespace verbena;

namespace {
std::vector<std::byte> bytes;
std::array<std::byte, 1024> block;

// The tag is empty, minor version 2, ident 0, two operations: what knfsd sends to recall a delegation.
constexpr std::string_view recall_call =
    "00000000 00000002 00000000 00000002 "
    "0000000b c0c1c2c3 c4c5c6c7 c8c9cacb cccdcecf 00000005 00000000 00000000 00000000 00000000 "
    "00000004 00000007 a0a1a2a3 a4a5a6a7 a8a9aaab 00000000 00000006 01020304 05060000";
} // namespace

BOOST_AUTO_TEST_CASE(version_1_of_the_clients_program) { BOOST_TEST(callback_version == 1u); }

BOOST_AUTO_TEST_CASE(operations)
{
    const auto known = [](std::uint32_t number, std::uint32_t minor) {
        return is_operation(static_cast<nfs_cb_opnum4>(number), minor);
    };
    BOOST_TEST((known(3, 0) && known(4, 0) && !known(5, 0) && !known(2, 0)));
    BOOST_TEST((known(14, 1) && !known(15, 1) && known(15, 2) && !known(16, 2) && !known(10044, 2)));
    std::set<std::string> names;
    for (std::uint32_t number = 0; number < 20; ++number) {
        const auto opcode = static_cast<nfs_cb_opnum4>(number);
        const bool is_one = number >= 3 && number <= 15;
        BOOST_TEST(all_callback_arguments::with(
                       opcode, [&](const auto& args) { BOOST_TEST((args.opcode == opcode)); }) == is_one);
        BOOST_TEST(all_callback_results::with(
                       opcode, [&](const auto& res) { BOOST_TEST((res.opcode == opcode)); }) == is_one);
        names.insert(to_string(opcode));
    }
    BOOST_TEST(names.size() == 14u);
    BOOST_TEST(to_string(nfs_cb_opnum4::recall_any) == std::string("CB_RECALL_ANY"));
    BOOST_TEST(to_string(nfs_cb_opnum4::illegal) == std::string("CB_ILLEGAL"));
}

BOOST_AUTO_TEST_CASE(sequence)
{
    const auto plain = both_ways<CB_SEQUENCE4args>(
        hex({session_hex, "00000009 00000003 00000007 00000001 00000000"}), bytes);
    BOOST_TEST((plain.sessionid == session() && plain.sequenceid == 9 && plain.slotid == 3));
    BOOST_TEST((plain.highest_slotid == 7 && plain.cachethis && plain.referring_call_lists.empty()));
    const auto referring =
        both_ways<CB_SEQUENCE4args>(hex({session_hex, "00000009 00000003 00000007 00000000 00000001",
                                         session_hex, "00000002 00000001 00000002 00000003 00000004"}),
                                    bytes);
    const referring_call_list4 list = elements(referring.referring_call_lists).at(0);
    BOOST_TEST((list.sessionid == session()));
    std::vector<std::uint32_t> seen;
    for (const referring_call4& call : elements(list.referring_calls)) {
        seen.push_back(call.sequenceid);
        seen.push_back(call.slotid);
    }
    BOOST_TEST((seen == std::vector<std::uint32_t>{1, 2, 3, 4}));
    refused<CB_SEQUENCE4args>(
        hex({session_hex, "00000009 00000003 00000007 00000000 00000011", session_hex}));
    refused<referring_call_list4>(hex({session_hex, "20000000 00000000"}));

    const auto res =
        both_ways<CB_SEQUENCE4res>(hex({ok_hex, session_hex, "00000009 00000003 00000007 0000000f"}), bytes);
    BOOST_TEST((res.sessionid == session() && res.sequenceid == 9 && res.slotid == 3));
    BOOST_TEST((res.highest_slotid == 7 && res.target_highest_slotid == 15));
    fails_plainly<CB_SEQUENCE4res>();
}

BOOST_AUTO_TEST_CASE(delegations)
{
    const auto getattr = both_ways<CB_GETATTR4args>(hex({handle_hex, bits_hex}), bytes);
    BOOST_TEST((is_handle(getattr.fh) && is_bits(getattr.attr_request)));
    BOOST_TEST(is_attrs(both_ways<CB_GETATTR4res>(hex({ok_hex, attrs_hex}), bytes).obj_attributes));
    fails_plainly<CB_GETATTR4res>();
    const auto recall = both_ways<CB_RECALL4args>(hex({sid_7, "00000001", handle_hex}), bytes);
    BOOST_TEST((recall.stateid == stateid_7() && recall.truncate && is_handle(recall.fh)));
    const auto any = both_ways<CB_RECALL_ANY4args>("00000010 00000001 00031003", bytes);
    BOOST_TEST(any.objects_to_keep == 16u);
    BOOST_TEST(
        (any.type_mask == bitmap4{rca4_type::rdata_dlg, rca4_type::wdata_dlg, rca4_type::other_layout_min,
                                  rca4_type::ff_layout_read, rca4_type::ff_layout_rw}));
    const auto available = both_ways<CB_RECALLABLE_OBJ_AVAIL4args>(hex({"00000010", bits_hex}), bytes);
    BOOST_TEST((available.objects_to_keep == 16 && is_bits(available.type_mask)));
    const auto push = both_ways<CB_PUSH_DELEG4args>(hex({handle_hex, none_hex}), bytes);
    BOOST_TEST((is_handle(push.fh) && push.delegation.delegation_type == open_delegation_type4::none));
    const auto cancelled = both_ways<CB_WANTS_CANCELLED4args>("00000001 00000000", bytes);
    BOOST_TEST((cancelled.contended_wants_cancelled && !cancelled.resourced_wants_cancelled));
    const auto notify =
        both_ways<CB_NOTIFY4args>(hex({sid_7, handle_hex, "00000001", bits_hex, "00000002 61620000"}), bytes);
    BOOST_TEST((notify.stateid == stateid_7() && is_handle(notify.fh)));
    const notify4 change = elements(notify.changes).at(0);
    BOOST_TEST(is_bits(change.mask));
    BOOST_TEST(text_of(change.vals) == "ab");
}

BOOST_AUTO_TEST_CASE(slots_locks_devices)
{
    BOOST_TEST(both_ways<CB_RECALL_SLOT4args>("00000007", bytes).target_highest_slotid == 7u);
    const auto lock = both_ways<CB_NOTIFY_LOCK4args>(hex({handle_hex, owner_hex}), bytes);
    BOOST_TEST((is_handle(lock.fh) && is_owner(lock.lock_owner)));
    const auto devices =
        both_ways<CB_NOTIFY_DEVICEID4args>(hex({"00000001", bits_hex, "00000002 61620000"}), bytes);
    BOOST_TEST(devices.changes.size() == 1u);
}

BOOST_AUTO_TEST_CASE(layoutrecall)
{
    const auto file = both_ways<CB_LAYOUTRECALL4args>(
        hex({"80000006 00000002 00000001 00000001", handle_hex, offset_hex, length_hex, sid_7}), bytes);
    BOOST_TEST((file.type == layouttype4::rdma && file.iomode == layoutiomode4::rw && file.changed));
    BOOST_TEST((file.recall.recalltype == layoutrecall_type4::file && is_handle(file.recall.fh)));
    BOOST_TEST((file.recall.offset == offset_value && file.recall.length == length_value));
    BOOST_TEST((file.recall.stateid == stateid_7()));
    const auto fsid = both_ways<CB_LAYOUTRECALL4args>(
        hex({"80000006 00000003 00000000 00000002", offset_hex, length_hex}), bytes);
    BOOST_TEST((fsid.recall.fsid == fsid4{offset_value, length_value}));
    const auto all = both_ways<CB_LAYOUTRECALL4args>("80000006 00000003 00000000 00000003", bytes);
    BOOST_TEST((all.recall.recalltype == layoutrecall_type4::all));
    refused<CB_LAYOUTRECALL4args>("80000006 00000003 00000000 00000004");
}

BOOST_AUTO_TEST_CASE(offload)
{
    const auto done = both_ways<CB_OFFLOAD4args>(
        hex({handle_hex, sid_8, ok_hex, "00000001", sid_7, length_hex, "00000002", verifier_hex}), bytes);
    BOOST_TEST((is_handle(done.fh) && done.stateid == stateid_8() && done.info.status == nfsstat4::ok));
    BOOST_TEST((done.info.response.callback_id == stateid_7() && done.info.response.count == length_value));
    const auto failed = both_ways<CB_OFFLOAD4args>(hex({handle_hex, sid_8, "0000001c", length_hex}), bytes);
    BOOST_TEST((failed.info.status == nfsstat4::nospc && failed.info.bytes_copied == length_value));
}

BOOST_AUTO_TEST_CASE(a_recall_from_end_to_end)
{
    // The server's side.
    xdr::encoder out(block);
    callback_request request(out, {"", 2, 0});
    CB_SEQUENCE4args sequence;
    sequence.sessionid = session();
    sequence.sequenceid = 5;
    CB_RECALL4args recall;
    recall.stateid = stateid_7();
    const auto handle = from_hex("010203040506");
    recall.fh = std::span<const std::byte>(handle);
    request.add(sequence).add(recall);
    BOOST_TEST(to_hex(out.bytes()) == to_hex(recall_call));

    // The client's.
    xdr::decoder in(out.bytes());
    callback_arguments args(in);
    BOOST_REQUIRE(args.ok());
    BOOST_TEST(
        (args.head().minorversion == 2 && args.head().callback_ident == 0 && args.head().operations == 2));
    std::array<std::byte, 256> reply_block{};
    xdr::encoder reply_out(reply_block);
    callback_results results(reply_out, args.head().tag);
    while (args.next()) {
        BOOST_TEST(args.visit([&]<class Args>(const Args& each) {
            if constexpr (std::is_same_v<Args, CB_SEQUENCE4args>) {
                BOOST_TEST(
                    results.add(CB_SEQUENCE4res{nfsstat4::ok, each.sessionid, each.sequenceid, 0, 0, 0}));
            } else if constexpr (std::is_same_v<Args, CB_RECALL4args>) {
                BOOST_TEST((each.stateid == stateid_7() && is_handle(each.fh)));
                results.fail(Args::opcode, nfsstat4::badhandle);
            }
        }));
    }
    BOOST_TEST(in.at_end());
    BOOST_TEST(to_hex(reply_out.bytes()) ==
               to_hex(hex({"00002711 00000000 00000002 0000000b 00000000", session_hex,
                           "00000005 00000000 00000000 00000000 00000004 00002711"})));

    // And the server's again.
    xdr::decoder reply_in(reply_out.bytes());
    callback_reply reply(reply_in);
    CB_SEQUENCE4res sequenced;
    CB_RECALL4res recalled;
    BOOST_TEST(reply.read(sequenced));
    BOOST_TEST(!reply.read(recalled));
    BOOST_TEST((reply_in.at_end() && recalled.status == nfsstat4::badhandle));
}

BOOST_AUTO_TEST_CASE(cut_anywhere)
{
    const auto whole = from_hex(recall_call);
    for (std::size_t length = 0; length < whole.size(); ++length) {
        const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
        xdr::decoder in(cut);
        callback_arguments args(in);
        BOOST_TEST(args.ok() == (length >= 16));
        std::size_t read = 0;
        while (args.next() && args.visit([](const auto&) {}))
            ++read;
        BOOST_TEST(read == (length >= 16 + 40 ? 1u : 0u));
        BOOST_TEST(!in.ok());
        BOOST_TEST((args.following(nfs_cb_opnum4::illegal) == nfs_cb_opnum4::illegal));
    }
    // A number that there is not.
    const auto other = from_hex("00000000 00000002 00000000 00000001 00000010");
    xdr::decoder in(other);
    callback_arguments args(in);
    BOOST_REQUIRE(args.next());
    BOOST_TEST(!args.visit([](const auto&) {}));
    BOOST_TEST((args.opcode() == nfs_cb_opnum4(16)));
}

BOOST_AUTO_TEST_CASE(refusals)
{
    xdr::encoder out(block);
    callback_results results(out, "");
    results.refuse(nfsstat4::minor_vers_mismatch);
    BOOST_TEST(to_hex(out.bytes()) == to_hex("00002725 00000000 00000000"));
    BOOST_TEST(results.room() > 900u);
    results.begin(nfs_cb_opnum4::recall);
    BOOST_TEST(results.end());
    results.begin(nfs_cb_opnum4::recall);
    results.undo();
    results.fail(nfs_cb_opnum4::illegal, nfsstat4::op_illegal);
    BOOST_TEST(to_hex(out.bytes()) ==
               to_hex("0000273c 00000000 00000002 00000004 00000000 0000273c 0000273c"));
}

BOOST_AUTO_TEST_SUITE_END()
