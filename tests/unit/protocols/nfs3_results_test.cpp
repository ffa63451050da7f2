// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include "nfs3_unprinted.hpp"
#include "nfs3_vectors.hpp"

#include <verbena/protocols/nfs/wire/v3/binding.hpp>

BOOST_AUTO_TEST_SUITE(nfs3_results_test)

using namespace verbena::test;
using namespace verbena::nfs::v3;
using verbena::xdr::decoder;
using verbena::xdr::encoder;
using verbena::xdr::external_item;

namespace {

std::vector<std::byte> bytes; // what the views in decoded results point into

constexpr std::string_view ok = "00000000";
constexpr std::string_view stale = "00000046";
constexpr std::string_view verifier = "e1e2e3e4 e5e6e7e8";

template<class Res>
std::size_t largest(const Res& res)
{
    std::vector<std::byte> block(10000);
    encoder out(block);
    encode(out, res);
    BOOST_TEST(out.ok());
    return out.size();
}

wcc_data full_wcc()
{
    wcc_data value = sample_wcc_before();
    value.after = sample_fattr3();
    return value;
}

nfs_fh3 full_handle() { return handle_of(std::string(128, '7')); }

} // namespace

BOOST_AUTO_TEST_CASE(getattr_results)
{
    const auto res = both_ways<GETATTR3res>(hex({ok, fattr3_hex}), bytes);
    BOOST_TEST(res.obj_attributes == sample_fattr3());
    BOOST_TEST(both_ways<GETATTR3res>(stale, bytes).status == nfsstat3::stale);
    refused<GETATTR3res>(hex({ok, "00000000", fattr3_hex}));
    refused<GETATTR3res>(hex({ok, "00000008", fattr3_hex}));
    BOOST_TEST(largest(res) == max_reply_size(GETATTR3args()).total());
}

BOOST_AUTO_TEST_CASE(setattr_and_remove)
{
    const auto res = both_ways<SETATTR3res>(hex({ok, wcc_before_hex}), bytes);
    BOOST_TEST(res.obj_wcc == sample_wcc_before());
    const auto failed = both_ways<SETATTR3res>(hex({stale, no_attr, post_op_attr_hex}), bytes);
    BOOST_TEST(failed.status == nfsstat3::stale);
    BOOST_TEST(!failed.obj_wcc.before);
    BOOST_TEST(*failed.obj_wcc.after == sample_fattr3());

    BOOST_TEST(both_ways<REMOVE3res>(hex({ok, wcc_before_hex}), bytes).dir_wcc == sample_wcc_before());
    BOOST_TEST(both_ways<RMDIR3res>(hex({"00000042", no_wcc}), bytes).status == nfsstat3::notempty);

    BOOST_TEST(largest(SETATTR3res{nfsstat3::ok, full_wcc()}) == max_reply_size(SETATTR3args()).total());
    BOOST_TEST(largest(REMOVE3res{nfsstat3::ok, full_wcc()}) == max_reply_size(REMOVE3args()).total());
    BOOST_TEST(max_reply_size(RMDIR3args()).total() == max_reply_size(REMOVE3args()).total());
}

BOOST_AUTO_TEST_CASE(lookup_results)
{
    const auto res = both_ways<LOOKUP3res>(hex({ok, handle_1, post_op_attr_hex, no_attr}), bytes);
    BOOST_TEST(res.object == handle_of("010203040506"));
    BOOST_TEST(*res.obj_attributes == sample_fattr3());
    BOOST_TEST(!res.dir_attributes.has_value());
    const auto failed = both_ways<LOOKUP3res>(hex({"00000002", post_op_attr_hex}), bytes);
    BOOST_TEST(failed.status == nfsstat3::noent);
    BOOST_TEST(*failed.dir_attributes == sample_fattr3());
    BOOST_TEST(largest(LOOKUP3res{nfsstat3::ok, full_handle(), sample_fattr3(), sample_fattr3()}) ==
               max_reply_size(LOOKUP3args()).total());
}

BOOST_AUTO_TEST_CASE(access_results)
{
    const auto res = both_ways<ACCESS3res>(hex({ok, post_op_attr_hex, "0000002d"}), bytes);
    BOOST_TEST(*res.obj_attributes == sample_fattr3());
    BOOST_TEST(res.access == (access3::read | access3::modify | access3::extend | access3::execute));
    BOOST_TEST(both_ways<ACCESS3res>(hex({stale, no_attr}), bytes).status == nfsstat3::stale);
    BOOST_TEST(largest(res) == max_reply_size(ACCESS3args()).total());
}

BOOST_AUTO_TEST_CASE(readlink_results)
{
    const auto res = both_ways<READLINK3res>(hex({ok, no_attr, "00000005 2e2e2f61 62000000"}), bytes);
    BOOST_TEST(text_of(res.data.inline_bytes) == "../ab");
    BOOST_TEST(both_ways<READLINK3res>(hex({"00000016", post_op_attr_hex}), bytes).status == nfsstat3::inval);

    std::vector<std::byte> path(max_expected_path);
    READLINK3res longest{nfsstat3::ok, sample_fattr3(), {}};
    longest.data.inline_bytes = path;
    BOOST_TEST(largest(longest) == max_reply_size(READLINK3args()).total());
    longest.data = {4096, 0, {}, true};
    BOOST_TEST(largest(longest) == max_reply_size(READLINK3args()).head);
}

BOOST_AUTO_TEST_SUITE(read_results)

BOOST_AUTO_TEST_CASE(whole_message)
{
    const auto res =
        both_ways<READ3res>(hex({ok, no_attr, "00000005 00000001", "00000005 68656c6c 6f000000"}), bytes);
    BOOST_TEST(res.count == 5u);
    BOOST_TEST(res.eof);
    BOOST_TEST(text_of(res.data.inline_bytes) == "hello");
    BOOST_TEST(both_ways<READ3res>(hex({ok, no_attr, "00000000 00000001 00000000"}), bytes).data.length ==
               0u);
    const auto failed = both_ways<READ3res>(hex({stale, post_op_attr_hex}), bytes);
    BOOST_TEST(*failed.file_attributes == sample_fattr3());
    refused<READ3res>(hex({ok, no_attr, "00000004 00000001", "00000005 68656c6c 6f000000"}));
}

BOOST_AUTO_TEST_CASE(data_left_to_the_transport)
{
    READ3res res;
    res.file_attributes = sample_fattr3();
    res.count = 5;
    res.eof = true;
    res.data = {5, 0, {}, true};
    std::vector<std::byte> block(200);
    encoder out(block);
    encode(out, res);
    BOOST_TEST(to_hex(out.bytes()) == to_hex(hex({ok, post_op_attr_hex, "00000005 00000001 00000005"})));
    BOOST_REQUIRE(out.payloads().size() == 1u);
    BOOST_TEST(out.payloads()[0].length == 5u);
    BOOST_TEST(out.payloads()[0].offset == out.size());
    BOOST_TEST(out.position() == out.size() + 8);

    READ3args args;
    args.count = 5;
    BOOST_TEST(max_reply_size(args).head == out.size());
    BOOST_TEST(max_reply_size(args).total() == out.position());
}

BOOST_AUTO_TEST_CASE(data_in_a_write_chunk)
{
    const auto message = from_hex(hex({ok, no_attr, "00000005 00000001 00000005"}));
    decoder in(message, external_item{external_item::any_position, 5});
    READ3res res;
    decode(in, res);
    BOOST_TEST(in.at_end());
    BOOST_TEST(res.data.external);
    BOOST_TEST(res.data.length == 5u);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_CASE(write_results)
{
    const auto res = both_ways<WRITE3res>(hex({ok, wcc_before_hex, "00001000 00000002", verifier}), bytes);
    BOOST_TEST(res.file_wcc == sample_wcc_before());
    BOOST_TEST(res.count == 4096u);
    BOOST_TEST(res.committed == stable_how::file_sync);
    BOOST_TEST(to_hex(res.verf) == verifier);
    BOOST_TEST(both_ways<WRITE3res>(hex({"0000001c", no_wcc}), bytes).status == nfsstat3::nospc);
    refused<WRITE3res>(hex({ok, no_wcc, "00001000 00000003", verifier}));
    BOOST_TEST(largest(WRITE3res{nfsstat3::ok, full_wcc(), 1, stable_how::unstable, {}}) ==
               max_reply_size(WRITE3args()).total());
}

BOOST_AUTO_TEST_CASE(create_and_its_like)
{
    const auto res =
        both_ways<CREATE3res>(hex({ok, "00000001", handle_1, post_op_attr_hex, wcc_before_hex}), bytes);
    BOOST_REQUIRE(res.obj.has_value());
    BOOST_TEST(*res.obj == handle_of("010203040506"));
    BOOST_TEST(*res.obj_attributes == sample_fattr3());
    BOOST_TEST(res.dir_wcc == sample_wcc_before());
    BOOST_TEST(!both_ways<MKDIR3res>(hex({ok, "00000000", no_attr, no_wcc}), bytes).obj.has_value());
    BOOST_TEST(both_ways<SYMLINK3res>(hex({"00000011", wcc_before_hex}), bytes).status == nfsstat3::exist);
    BOOST_TEST(both_ways<MKNOD3res>(hex({"00002717", no_wcc}), bytes).status == nfsstat3::badtype);

    const CREATE3res full{nfsstat3::ok, full_handle(), sample_fattr3(), full_wcc()};
    BOOST_TEST(largest(full) == max_reply_size(CREATE3args()).total());
    BOOST_TEST(largest(full) == max_reply_size(MKDIR3args()).total());
    BOOST_TEST(largest(full) == max_reply_size(SYMLINK3args()).total());
    BOOST_TEST(largest(full) == max_reply_size(MKNOD3args()).total());
}

BOOST_AUTO_TEST_CASE(rename_and_link)
{
    const auto rename = both_ways<RENAME3res>(hex({ok, wcc_before_hex, no_attr, post_op_attr_hex}), bytes);
    BOOST_TEST(rename.fromdir_wcc == sample_wcc_before());
    BOOST_TEST(!rename.todir_wcc.before);
    BOOST_TEST(*rename.todir_wcc.after == sample_fattr3());
    BOOST_TEST(both_ways<RENAME3res>(hex({"00000012", no_wcc, no_wcc}), bytes).status == nfsstat3::xdev);
    BOOST_TEST(largest(RENAME3res{nfsstat3::ok, full_wcc(), full_wcc()}) ==
               max_reply_size(RENAME3args()).total());

    const auto link = both_ways<LINK3res>(hex({ok, post_op_attr_hex, wcc_before_hex}), bytes);
    BOOST_TEST(*link.file_attributes == sample_fattr3());
    BOOST_TEST(link.linkdir_wcc == sample_wcc_before());
    BOOST_TEST(both_ways<LINK3res>(hex({"0000001f", no_attr, no_wcc}), bytes).status == nfsstat3::mlink);
    BOOST_TEST(largest(LINK3res{nfsstat3::ok, sample_fattr3(), full_wcc()}) ==
               max_reply_size(LINK3args()).total());
}

BOOST_AUTO_TEST_CASE(fsstat_results)
{
    const auto res = both_ways<FSSTAT3res>(
        hex({ok, post_op_attr_hex, "00000001 00000001 00000001 00000002 00000001 00000003",
             "00000001 00000004 00000001 00000005 00000001 00000006 0000001e"}),
        bytes);
    BOOST_TEST(*res.obj_attributes == sample_fattr3());
    BOOST_TEST(res.tbytes == 0x100000001u);
    BOOST_TEST(res.fbytes == 0x100000002u);
    BOOST_TEST(res.abytes == 0x100000003u);
    BOOST_TEST(res.tfiles == 0x100000004u);
    BOOST_TEST(res.ffiles == 0x100000005u);
    BOOST_TEST(res.afiles == 0x100000006u);
    BOOST_TEST(res.invarsec == 30u);
    BOOST_TEST(both_ways<FSSTAT3res>(hex({"00002711", no_attr}), bytes).status == nfsstat3::badhandle);
    BOOST_TEST(largest(res) == max_reply_size(FSSTAT3args()).total());
}

BOOST_AUTO_TEST_CASE(fsinfo_results)
{
    const auto res = both_ways<FSINFO3res>(
        hex({ok, post_op_attr_hex, "00100000 00080000 00001000 00200000 00040000 00002000 00010000",
             "7fffffff ffffffff 00000000 00000001 0000001b"}),
        bytes);
    BOOST_TEST(*res.obj_attributes == sample_fattr3());
    BOOST_TEST(res.rtmax == 0x100000u);
    BOOST_TEST(res.rtpref == 0x80000u);
    BOOST_TEST(res.rtmult == 0x1000u);
    BOOST_TEST(res.wtmax == 0x200000u);
    BOOST_TEST(res.wtpref == 0x40000u);
    BOOST_TEST(res.wtmult == 0x2000u);
    BOOST_TEST(res.dtpref == 0x10000u);
    BOOST_TEST(res.maxfilesize == 0x7fffffffffffffffu);
    BOOST_TEST(res.time_delta == (nfstime3{0, 1}));
    BOOST_TEST(res.properties == (fsf3::link | fsf3::symlink | fsf3::homogeneous | fsf3::can_set_time));
    BOOST_TEST(both_ways<FSINFO3res>(hex({stale, post_op_attr_hex}), bytes).status == nfsstat3::stale);
    BOOST_TEST(largest(res) == max_reply_size(FSINFO3args()).total());
}

BOOST_AUTO_TEST_CASE(pathconf_results)
{
    const auto first = both_ways<PATHCONF3res>(
        hex({ok, post_op_attr_hex, "00007d00 000000ff 00000001 00000000 00000001 00000000"}), bytes);
    BOOST_TEST(first.linkmax == 32000u);
    BOOST_TEST(first.name_max == 255u);
    BOOST_TEST(first.no_trunc);
    BOOST_TEST(!first.chown_restricted);
    BOOST_TEST(first.case_insensitive);
    BOOST_TEST(!first.case_preserving);
    const auto second = both_ways<PATHCONF3res>(
        hex({ok, no_attr, "00007d00 000000ff 00000000 00000001 00000000 00000001"}), bytes);
    BOOST_TEST(second.chown_restricted);
    BOOST_TEST(second.case_preserving);
    BOOST_TEST(both_ways<PATHCONF3res>(hex({stale, no_attr}), bytes).status == nfsstat3::stale);
    BOOST_TEST(largest(first) == max_reply_size(PATHCONF3args()).total());
}

BOOST_AUTO_TEST_CASE(commit_results)
{
    const auto res = both_ways<COMMIT3res>(hex({ok, wcc_before_hex, verifier}), bytes);
    BOOST_TEST(res.file_wcc == sample_wcc_before());
    BOOST_TEST(to_hex(res.verf) == verifier);
    BOOST_TEST(both_ways<COMMIT3res>(hex({"00000005", no_wcc}), bytes).status == nfsstat3::io);
    BOOST_TEST(largest(COMMIT3res{nfsstat3::ok, full_wcc(), {}}) == max_reply_size(COMMIT3args()).total());
}

BOOST_AUTO_TEST_CASE(eligible_results)
{
    for (std::uint32_t value = 0; value < procedure_count; ++value)
        BOOST_TEST(has_ddp_eligible_result(static_cast<procedure>(value)) == (value == 5 || value == 6));
}

BOOST_AUTO_TEST_CASE(statuses)
{
    constexpr std::uint32_t all[] = {0,  1,     2,     5,     6,     13,    17,    18,    19,   20,
                                     21, 22,    27,    28,    30,    31,    63,    66,    69,   70,
                                     71, 10001, 10002, 10003, 10004, 10005, 10006, 10007, 10008};
    for (const std::uint32_t value : all)
        BOOST_TEST(to_string(static_cast<nfsstat3>(value)) != "NFS3ERR_unknown");
    BOOST_TEST(to_string(nfsstat3::jukebox) == "NFS3ERR_JUKEBOX");
    BOOST_TEST(to_string(static_cast<nfsstat3>(3)) == "NFS3ERR_unknown");
    BOOST_TEST(std::string(status_category().name()) == "nfs3");
    BOOST_TEST(status_category().message(0) == "NFS3_OK");
    BOOST_TEST(status_category().message(2) == "NFS3ERR_NOENT: No such file or directory");
    BOOST_TEST(status_category().message(70) == "NFS3ERR_STALE: Stale file handle");
    BOOST_TEST(status_category().message(3) == "NFS3ERR_unknown: 3");
    for (const std::uint32_t value : all) {
        const std::string code = to_string(static_cast<nfsstat3>(value));
        const std::string text = status_category().message(static_cast<int>(value));
        // A status that has words does not end in its number.
        BOOST_TEST((value == 0 || (text.starts_with(code + ": ") && !text.ends_with(std::to_string(value)))),
                   text);
    }

    BOOST_TEST((make_error_code(nfsstat3::noent) == std::errc::no_such_file_or_directory));
    BOOST_TEST((make_error_code(nfsstat3::stale) != std::errc::io_error));
    BOOST_TEST((make_error_code(nfsstat3::stale) == nfsstat3::stale));
    // Those that POSIX has under the same name have its number on Linux, but for the last two.
    for (const std::uint32_t value : all) {
        const std::error_code code = make_error_code(static_cast<nfsstat3>(value));
        const std::error_condition condition = code.default_error_condition();
        if (condition.category() != std::generic_category() || value == 63 || value == 66 || value >= 10000)
            continue;
        BOOST_TEST(condition.value() == static_cast<int>(value));
    }
    BOOST_TEST((make_error_code(nfsstat3::nametoolong) == std::errc::filename_too_long));
    BOOST_TEST((make_error_code(nfsstat3::notempty) == std::errc::directory_not_empty));
}

BOOST_AUTO_TEST_CASE(procedure_names)
{
    BOOST_TEST(to_string(procedure::null) == "NULL");
    BOOST_TEST(to_string(procedure::commit) == "COMMIT");
    for (std::uint32_t value = 0; value < procedure_count; ++value)
        BOOST_TEST(to_string(static_cast<procedure>(value)) != "unknown");
    BOOST_TEST(to_string(static_cast<procedure>(22)) == "unknown");
}

BOOST_AUTO_TEST_SUITE_END()
