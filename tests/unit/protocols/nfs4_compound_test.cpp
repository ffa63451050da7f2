// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include "nfs4_vectors.hpp"

#include <array>
#include <string>

BOOST_AUTO_TEST_SUITE(nfs4_compound_test)

using namespace verbena::test;
using namespace verbena::nfs::v4;
using namespace verbena;

namespace {

// Tag "hi", minor version 1: SEQUENCE PUTFH GETATTR, as Linux sends it but for the tag.
constexpr std::string_view head_3 = "00000002 68690000 00000001 00000003";
constexpr std::string_view sequence_hex = "00000035 c0c1c2c3 c4c5c6c7 c8c9cacb cccdcecf "
                                          "00000009 00000003 00000007 00000000";
constexpr std::string_view putfh_hex = "00000016 00000006 01020304 05060000";
constexpr std::string_view getattr_hex = "00000009 00000001 00000018";

struct told {
    std::vector<nfs_opnum4> read;
    nfs_opnum4 failed = nfs_opnum4(0);
};

told read_all(compound_arguments& args)
{
    told what;
    while (args.next()) {
        if (args.visit([&](const auto& each) { what.read.push_back(each.opcode); }))
            continue;
        what.failed = args.opcode();
        break;
    }
    return what;
}

told read_all(std::string_view text)
{
    const auto bytes = from_hex(text);
    xdr::decoder in(bytes);
    compound_arguments args(in);
    return read_all(args);
}

std::array<std::byte, 1024> block;

} // namespace

BOOST_AUTO_TEST_CASE(operations_one_after_the_other)
{
    const auto bytes = from_hex(hex({head_3, sequence_hex, putfh_hex, getattr_hex}));
    xdr::decoder in(bytes);
    compound_arguments args(in);
    BOOST_REQUIRE(args.ok());
    BOOST_TEST(args.head().tag == "hi");
    BOOST_TEST((args.head().minorversion == 1 && args.head().operations == 3));

    BOOST_REQUIRE(args.next());
    BOOST_TEST((args.opcode() == nfs_opnum4::sequence && args.index() == 1));
    SEQUENCE4args sequence;
    BOOST_REQUIRE(args.read(sequence));
    BOOST_TEST((sequence.sessionid == session() && sequence.slotid == 3 && !sequence.cachethis));

    BOOST_REQUIRE(args.next());
    BOOST_TEST((args.opcode() == nfs_opnum4::putfh));
    bool handle = false;
    BOOST_TEST(args.visit([&]<class Args>(const Args& each) {
        if constexpr (std::is_same_v<Args, PUTFH4args>)
            handle = is_handle(each.object);
    }));
    BOOST_TEST(handle);

    BOOST_REQUIRE(args.next());
    GETATTR4args getattr;
    BOOST_TEST(args.read(getattr));
    BOOST_TEST(is_bits(getattr.attr_request));
    BOOST_TEST(!args.next());
    BOOST_TEST(in.at_end());
}

BOOST_AUTO_TEST_CASE(heads)
{
    const auto head = [](std::string_view text) {
        const auto bytes = from_hex(text);
        xdr::decoder in(bytes);
        return compound_arguments(in).ok();
    };
    BOOST_TEST(head("00000000 00000002 00000000"));
    const std::string longest = "00000080 " + std::string(256, '7') + "00000001 00000000";
    BOOST_TEST(head(longest));
    BOOST_TEST(!head("00000081 " + std::string(264, '7') + "00000001 00000000"));
    for (std::size_t length = 0; length < 12; ++length)
        BOOST_TEST(!head(std::string("000000000000000200000000").substr(0, 2 * length)));
    // No operations at all, and none for who never read the head.
    BOOST_TEST(read_all("00000000 00000001 00000000").read.empty());
    BOOST_TEST(read_all("00000000 00000001").read.empty());
}

BOOST_AUTO_TEST_CASE(broken_operations_fail_where_they_stand)
{
    using op = nfs_opnum4;
    const std::string whole = hex({head_3, sequence_hex, putfh_hex, getattr_hex});
    const auto bytes = from_hex(whole);
    // Cut anywhere behind the head: what is whole is read, and the operation that is cut fails.
    for (std::size_t length = 16; length < bytes.size(); ++length) {
        const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
        xdr::decoder in(cut);
        compound_arguments args(in);
        const told what = read_all(args);
        const std::size_t read = length < 52 ? 0 : length < 68 ? 1 : 2;
        BOOST_TEST(what.read.size() == read);
        const std::size_t begin = read == 0 ? 16 : read == 1 ? 52 : 68;
        const op expected = length < begin + 4 ? op::illegal
                            : read == 0        ? op::sequence
                            : read == 1        ? op::putfh
                                               : op::getattr;
        BOOST_TEST((what.failed == expected), "cut at " << length);
        BOOST_TEST(!args.next());
    }
    // A number that no minor version has ends it, whatever stands behind.
    for (const char* number : {"00000000", "00000002", "0000004c", "0000273c", "ffffffff"}) {
        const told what = read_all(hex({head_3, sequence_hex, number, getattr_hex}));
        BOOST_TEST(what.read.size() == 1u);
        BOOST_TEST((what.failed == op(std::stoul(number, nullptr, 16))));
    }
    // As many operations as the number says, and no more than there are.
    const told many = read_all(hex({"00000000 00000001 ffffffff", putfh_hex, putfh_hex}));
    BOOST_TEST((many.read.size() == 2 && many.failed == op::illegal));
    const auto behind = from_hex(hex({"00000000 00000001 00000001", putfh_hex, putfh_hex}));
    xdr::decoder in(behind);
    compound_arguments args(in);
    BOOST_TEST(read_all(args).read.size() == 1u);
    BOOST_TEST(!in.at_end()); // the caller's to judge
}

BOOST_AUTO_TEST_CASE(every_operation_is_passed_over)
{
    // Those that a server does not do are read all the same, or nobody would find the next one.
    std::size_t whole = 0;
    for (std::uint32_t number = 3; number < 76; ++number) {
        all_arguments::with(nfs_opnum4(number), [&]<class Args>(const Args& args) {
            xdr::encoder out(block);
            compound_request request(out, {"", 2, 77});
            request.add(args).add(GETFH4args());
            BOOST_TEST(request.operations() == 2u);
            BOOST_REQUIRE(out.ok());
            xdr::decoder in(out.bytes());
            compound_arguments again(in);
            BOOST_TEST((again.head().operations == 2 && again.head().minorversion == 2));
            const told what = read_all(again);
            whole += what.read.size() == 2 && what.read[0] == Args::opcode && in.at_end();
        });
    }
    BOOST_TEST(whole == 73u);
}

BOOST_AUTO_TEST_CASE(what_follows)
{
    const auto bytes =
        from_hex("00000000 00000001 00000005 00000018 00000020 00000020 0000000f 00000001 61000000 0000000a");
    xdr::decoder in(bytes);
    compound_arguments args(in);
    BOOST_TEST((args.following(nfs_opnum4::savefh) == nfs_opnum4::putrootfh));
    BOOST_REQUIRE(args.next()); // PUTROOTFH
    BOOST_TEST((args.following(nfs_opnum4::savefh) == nfs_opnum4::lookup));
    BOOST_TEST((args.following(nfs_opnum4::illegal) == nfs_opnum4::savefh));
    BOOST_REQUIRE(args.next());
    BOOST_REQUIRE(args.next());
    BOOST_REQUIRE(args.next());
    LOOKUP4args lookup;
    BOOST_REQUIRE(args.read(lookup));
    BOOST_REQUIRE(args.next()); // GETFH
    BOOST_TEST((args.following(nfs_opnum4::savefh) == nfs_opnum4::illegal));
    // Announced, and not there.
    const auto cut = from_hex("00000000 00000001 00000002 00000018");
    xdr::decoder in_2(cut);
    compound_arguments args_2(in_2);
    BOOST_REQUIRE(args_2.next());
    BOOST_TEST((args_2.following(nfs_opnum4::savefh) == nfs_opnum4::illegal));
}

BOOST_AUTO_TEST_CASE(write_data_amid_the_operations)
{
    // PUTFH WRITE GETATTR whose data came in a Read chunk: what stands behind is found.
    const std::string write = hex({"00000026", sid_7, offset_hex, "00000002 00000005"});
    const auto bytes = from_hex(hex({"00000000 00000001 00000003", putfh_hex, write, getattr_hex}));
    xdr::decoder in(bytes, xdr::external_item{64, 5});
    compound_arguments args(in);
    WRITE4args seen;
    BOOST_REQUIRE(args.next());
    PUTFH4args putfh;
    BOOST_REQUIRE(args.read(putfh));
    BOOST_REQUIRE(args.next());
    BOOST_REQUIRE(args.read(seen));
    BOOST_TEST((seen.data.external && seen.data.length == 5 && seen.data.position == 64));
    BOOST_REQUIRE(args.next());
    GETATTR4args getattr;
    BOOST_TEST(args.read(getattr));
    BOOST_TEST(in.at_end());
}

BOOST_AUTO_TEST_SUITE(results)

BOOST_AUTO_TEST_CASE(status_and_count_are_those_of_what_was_written)
{
    xdr::encoder out(block);
    compound_results results(out, "hi");
    BOOST_REQUIRE(results.ok());
    BOOST_TEST(to_hex(out.bytes()) == to_hex("00000000 00000002 68690000 00000000"));
    BOOST_TEST(results.add(PUTFH4res()));
    GETFH4res getfh;
    const auto handle = from_hex("010203040506");
    getfh.object = std::span<const std::byte>(handle);
    BOOST_TEST(results.add(getfh));
    BOOST_TEST((results.operations() == 2 && results.status() == nfsstat4::ok));
    results.fail(nfs_opnum4::lookup, nfsstat4::noent);
    BOOST_TEST((results.operations() == 3 && results.status() == nfsstat4::noent && results.ok()));
    BOOST_TEST(to_hex(out.bytes()) ==
               to_hex("00000002 00000002 68690000 00000003 00000016 00000000 "
                      "0000000a 00000000 00000006 01020304 05060000 0000000f 00000002"));
}

BOOST_AUTO_TEST_CASE(failures_of_every_kind_are_whole)
{
    const auto failed = [](nfs_opnum4 operation, nfsstat4 status) {
        xdr::encoder out(block);
        compound_results results(out, "");
        results.fail(operation, status);
        BOOST_TEST(results.ok());
        return to_hex(out.bytes().subspan(16 - 4));
    };
    BOOST_TEST(failed(nfs_opnum4::illegal, nfsstat4::op_illegal) == to_hex("0000273c 0000273c"));
    BOOST_TEST(failed(nfs_opnum4::setattr, nfsstat4::delay) == to_hex("00000022 00002718 00000000"));
    BOOST_TEST(
        failed(nfs_opnum4::lockt, nfsstat4::denied) ==
        to_hex("0000000d 0000271a 00000000 00000000 00000000 00000000 00000001 00000000 00000000 00000000"));
    BOOST_TEST(failed(nfs_opnum4::getdeviceinfo, nfsstat4::toosmall) == to_hex("0000002f 00002715 00000000"));
    BOOST_TEST(failed(nfs_opnum4::read, nfsstat4::badxdr) == to_hex("00000019 00002734"));
}

BOOST_AUTO_TEST_CASE(refused_as_a_whole)
{
    xdr::encoder out(block);
    compound_results results(out, "hi");
    BOOST_TEST(results.add(PUTFH4res()));
    results.refuse(nfsstat4::minor_vers_mismatch);
    BOOST_TEST((results.operations() == 0 && results.status() == nfsstat4::minor_vers_mismatch));
    BOOST_TEST(to_hex(out.bytes()) == to_hex("00002725 00000002 68690000 00000000"));
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_not_written)
{
    // Room for the head, PUTFH and one failure.
    for (const bool by_limit : {true, false}) {
        xdr::encoder out(by_limit ? std::span(block) : std::span(block).first(12 + 8 + 12));
        compound_results results(out, "", by_limit ? 12 + 8 + 12 : SIZE_MAX);
        BOOST_REQUIRE(results.ok());
        BOOST_TEST(results.room() == 8u);
        BOOST_TEST(results.has_room_for<PUTFH4res>());
        BOOST_TEST(!results.has_room_for<ACCESS4res>());
        BOOST_TEST(!results.add(ACCESS4res()));
        BOOST_TEST(results.add(PUTFH4res()));
        BOOST_TEST(results.room() == 0u);
        BOOST_TEST(!results.add(PUTFH4res()));
        const std::string before = to_hex(out.bytes());
        SETATTR4res failed;
        failed.status = nfsstat4::inval;
        BOOST_TEST(!results.add(failed));
        BOOST_TEST(to_hex(out.bytes()) == before);
        results.fail(nfs_opnum4::setattr, nfsstat4::rep_too_big);
        BOOST_TEST(results.ok());
        BOOST_TEST(to_hex(out.bytes()) ==
                   to_hex("00002752 00000000 00000002 00000016 00000000 00000022 00002752 00000000"));
    }
    for (std::size_t size = 0; size < 24; ++size) {
        xdr::encoder out{std::span(block).first(size)};
        BOOST_TEST(!compound_results(out, "").ok());
        xdr::encoder out_2(block);
        BOOST_TEST(!compound_results(out_2, "", size).ok());
    }
    xdr::encoder out(block);
    BOOST_TEST(compound_results(out, "", 24).ok());
}

BOOST_AUTO_TEST_CASE(payloads_count_for_the_limit)
{
    xdr::encoder out(block);
    compound_results results(out, "", 300);
    READ4res read;
    read.data.external = true;
    read.data.length = 400;
    BOOST_TEST(!results.has_room_for<READ4res>(400));
    BOOST_TEST(!results.add(read));
    BOOST_TEST(out.payloads().empty());
    read.data.length = 99;
    BOOST_TEST(results.has_room_for<READ4res>(99));
    BOOST_TEST(results.add(read));
    BOOST_REQUIRE(out.payloads().size() == 1u);
    BOOST_TEST(out.payloads()[0].offset == 12u + 16u);
    BOOST_TEST(results.room() == 300u - 12u - 16u - 100u - 12u);
    // What an encoder has no place for is as what does not fit.
    out.truncate(0);
    compound_results many(out, "");
    for (std::size_t i = 0; i < xdr::encoder::max_payloads; ++i)
        BOOST_TEST(many.add(read));
    BOOST_TEST(many.room() > 100u);
    BOOST_TEST(!many.add(read));
    BOOST_TEST(many.operations() == xdr::encoder::max_payloads);
}

BOOST_AUTO_TEST_CASE(results_without_a_struct)
{
    attributes values;
    values.present = {attribute::size, attribute::mode};
    values.size = 5;
    values.mode = 0644;
    xdr::encoder out(block);
    compound_results results(out, "");
    encode_attributes(results.begin(nfs_opnum4::getattr), attributes_of_minor(1), values);
    BOOST_TEST(results.end());
    BOOST_TEST(to_hex(out.bytes()) ==
               to_hex(hex({"00000000 00000000 00000001 00000009 00000000", attrs_hex})));
    results.begin(nfs_opnum4::getattr).u32(7);
    results.undo();
    BOOST_TEST(results.operations() == 1u);
    BOOST_TEST(out.size() == 20u + 28u);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(replies)

BOOST_AUTO_TEST_CASE(results_in_the_order_of_the_call)
{
    const auto bytes = from_hex(hex({"00000000 00000000 00000003 00000035 00000000", session_hex,
                                     "00000009 00000003 00000007 00000007 00000000 00000016 00000000",
                                     "00000009 00000000", attrs_hex}));
    xdr::decoder in(bytes);
    compound_reply reply(in);
    SEQUENCE4res sequence;
    PUTFH4res putfh;
    GETATTR4res getattr;
    BOOST_TEST((reply.read(sequence) && reply.read(putfh) && !reply.complete() && reply.read(getattr)));
    BOOST_TEST(reply.complete());
    BOOST_TEST(in.at_end());
    BOOST_TEST((sequence.sessionid == session() && is_attrs(getattr.obj_attributes)));
    BOOST_TEST((reply.status() == nfsstat4::ok && reply.head().operations == 3));
    BOOST_TEST(!reply.read(putfh));
    BOOST_TEST(in.ok());
}

BOOST_AUTO_TEST_CASE(failures)
{
    const auto replied = [](std::string_view text, auto&& check) {
        const auto bytes = from_hex(text);
        xdr::decoder in(bytes);
        compound_reply reply(in);
        PUTFH4res putfh;
        LOOKUP4res lookup;
        const bool both = reply.read(putfh) && reply.read(lookup);
        BOOST_TEST(!both);
        check(in, reply, putfh, lookup);
    };
    replied("00000046 00000000 00000001 00000016 00000046", [](auto& in, auto& reply, auto& putfh, auto&) {
        BOOST_TEST((in.at_end() && reply.status() == nfsstat4::stale && putfh.status == nfsstat4::stale));
        GETFH4res getfh;
        BOOST_TEST((!reply.read(getfh) && in.ok() && reply.complete()));
    });
    replied("00000002 00000000 00000002 00000016 00000000 0000000f 00000002",
            [](auto& in, auto&, auto& putfh, auto& lookup) {
                BOOST_TEST((in.at_end() && putfh.status == nfsstat4::ok && lookup.status == nfsstat4::noent));
            });
    replied("0000273c 00000000 00000002 00000016 00000000 0000273c 0000273c",
            [](auto& in, auto&, auto&, auto& lookup) {
                BOOST_TEST((in.at_end() && lookup.status == nfsstat4::op_illegal));
            });
    replied("00002725 00000000 00000000", [](auto& in, auto& reply, auto&, auto&) {
        BOOST_TEST((in.at_end() && reply.status() == nfsstat4::minor_vers_mismatch && reply.complete()));
    });
    const auto broken = [](auto& in, auto& reply, auto&, auto&) {
        BOOST_TEST(!in.ok());
        BOOST_TEST(!reply.complete());
    };
    replied("00000000 00000000 00000002 00000017 00000000 0000000f 00000000", broken); // another operation's
    replied("00000046 00000000 00000002 00000016 00000046 0000000f 00000000",
            broken);                                                 // goes on behind a failure
    replied("00000000 00000000 00000002 00000016 00000000", broken); // cut
    replied("00000000 00000000 00000002 00000016 00000000 0000000f", broken);
    replied("00000000 00000081", broken);
    replied("", broken);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(requests)

BOOST_AUTO_TEST_CASE(operations_are_counted)
{
    xdr::encoder out(block);
    compound_request request(out, {"hi", 1});
    SEQUENCE4args sequence;
    sequence.sessionid = session();
    sequence.sequenceid = 9;
    sequence.slotid = 3;
    sequence.highest_slotid = 7;
    const auto handle = from_hex("010203040506");
    PUTFH4args putfh;
    putfh.object = std::span<const std::byte>(handle);
    GETATTR4args getattr;
    getattr.attr_request = {attribute::change, attribute::size};
    request.add(sequence).add(putfh).add(getattr);
    BOOST_TEST(out.ok());
    BOOST_TEST(to_hex(out.bytes()) == to_hex(hex({head_3, sequence_hex, putfh_hex, getattr_hex})));
    BOOST_TEST(request.operations() == 3u);

    const std::size_t whole = out.size();
    for (std::size_t size = 0; size < whole; ++size) {
        xdr::encoder smaller{std::span(block).first(size)};
        compound_request(smaller, {"hi", 1}).add(sequence).add(putfh).add(getattr);
        BOOST_TEST(!smaller.ok());
    }
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(directories)

namespace {
constexpr std::string_view readdir_hex =
    "00000000 00000007 e0e1e2e3 e4e5e6e7 00000100 00000200 00000001 00000018";
// Two entries of a cookie, a name and a size, and the end.
constexpr std::string_view entries = "00000001 00000000 00000003 00000006 6e616d65 2e630000 "
                                     "00000001 00000010 00000008 00000000 00000005 "
                                     "00000001 00000000 00000009 00000003 64697200 "
                                     "00000001 00000010 00000008 00000000 00000005 "
                                     "00000000 00000001";

attributes of_size_5()
{
    attributes values;
    values.present = {attribute::size};
    values.size = 5;
    return values;
}

READDIR4args limited(std::uint32_t dircount, std::uint32_t maxcount)
{
    READDIR4args args;
    args.dircount = dircount;
    args.maxcount = maxcount;
    args.attr_request = {attribute::change, attribute::size};
    return args;
}

struct written {
    std::size_t entries = 0;
    bool fits = false;
    std::string bytes;
};
written two_entries(const READDIR4args& args, std::size_t room = SIZE_MAX, std::size_t size = 1024)
{
    xdr::encoder out{std::span(block).first(size)};
    readdir_writer writer(out, args, verifier(), room);
    if (writer.add(3, "name.c", args.attr_request, of_size_5()))
        (void)writer.add(9, "dir", args.attr_request, of_size_5());
    if (writer.fits())
        writer.finish(true);
    BOOST_TEST(out.ok());
    BOOST_TEST((!writer.fits() || out.size() <= args.maxcount));
    return {writer.entries(), writer.fits(), to_hex(out.bytes())};
}
} // namespace

BOOST_AUTO_TEST_CASE(arguments)
{
    std::vector<std::byte> bytes;
    const auto args = both_ways<READDIR4args>(readdir_hex, bytes);
    BOOST_TEST((args.cookie == 7 && args.cookieverf == verifier()));
    BOOST_TEST((args.dircount == 256 && args.maxcount == 512 && is_bits(args.attr_request)));
    BOOST_TEST((both_ways<READDIR4res>(hex({ok_hex, verifier_hex}), bytes).cookieverf == verifier()));
}

BOOST_AUTO_TEST_CASE(entries_are_written)
{
    const std::string whole = to_hex(hex({verifier_hex, entries}));
    const std::size_t size = from_hex(whole).size(); // 108
    BOOST_TEST(two_entries(limited(0, 1000)).bytes == whole);
    const auto exact = limited(0, static_cast<std::uint32_t>(size));
    BOOST_TEST(two_entries(exact).bytes == whole);
    BOOST_TEST(two_entries(limited(0, static_cast<std::uint32_t>(size) - 1)).entries == 1u);
    BOOST_TEST(two_entries(limited(0, 1000), size - 1).entries == 1u);
    BOOST_TEST(two_entries(limited(0, 1000), SIZE_MAX, size - 1).entries == 1u);
    BOOST_TEST(two_entries(limited(0, 1000), SIZE_MAX, size).entries == 2u);
    // Cookies and names take 20 and 16 bytes; the first entry goes in whatever the hint says.
    BOOST_TEST(two_entries(limited(36, 1000)).entries == 2u);
    BOOST_TEST(two_entries(limited(35, 1000)).entries == 1u);
    BOOST_TEST(two_entries(limited(1, 1000)).entries == 1u);
}

BOOST_AUTO_TEST_CASE(an_empty_directory_takes_16_bytes)
{
    const auto least = two_entries(limited(0, 16));
    BOOST_TEST((least.fits && least.entries == 0));
    BOOST_TEST(least.bytes == to_hex(hex({verifier_hex, "00000000 00000001"})));
    for (const std::uint32_t maxcount : {0U, 15U}) {
        const auto none = two_entries(limited(0, maxcount));
        BOOST_TEST((!none.fits && none.entries == 0 && none.bytes.empty()));
    }
    BOOST_TEST(!two_entries(limited(0, 1000), 15).fits);
    BOOST_TEST(!two_entries(limited(0, 1000), SIZE_MAX, 15).fits);
}

BOOST_AUTO_TEST_CASE(entries_are_read)
{
    const auto bytes = from_hex(entries);
    xdr::decoder in(bytes);
    readdir_reader reader(in);
    entry4 entry;
    BOOST_REQUIRE(reader.next(entry));
    BOOST_TEST(entry.cookie == 3u);
    BOOST_TEST(entry.name == "name.c");
    BOOST_TEST((entry.attrs.attrmask == bitmap4{attribute::size}));
    BOOST_TEST(to_hex(entry.attrs.attr_vals) == "00000000 00000005");
    BOOST_REQUIRE(reader.next(entry));
    BOOST_TEST(entry.cookie == 9u);
    BOOST_TEST(entry.name == "dir");
    BOOST_TEST(!reader.eof());
    BOOST_TEST(!reader.next(entry));
    BOOST_TEST((reader.eof() && in.at_end()));
    BOOST_TEST(!reader.next(entry));
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
        xdr::decoder part(cut);
        readdir_reader again(part);
        std::size_t seen = 0;
        while (again.next(entry))
            ++seen;
        BOOST_TEST(!part.ok());
        BOOST_TEST(seen <= 2u);
    }
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()
