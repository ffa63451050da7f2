// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include "nfs3_unprinted.hpp"
#include "nfs3_vectors.hpp"

#include <verbena/protocols/nfs/wire/v3/binding.hpp>

BOOST_AUTO_TEST_SUITE(nfs3_arguments_test)

using namespace verbena::test;
using namespace verbena::nfs::v3;
using verbena::xdr::decoder;
using verbena::xdr::encoder;
using verbena::xdr::external_item;

namespace {
std::vector<std::byte> bytes; // what the views in decoded arguments point into

std::string where() { return hex({handle_1, name_1}); }

void is_where(const diropargs3& value)
{
    BOOST_TEST(value.dir == handle_of("010203040506"));
    BOOST_TEST(value.name == "name.c");
}
} // namespace

BOOST_AUTO_TEST_CASE(handle_alone)
{
    const auto handle = handle_of("010203040506");
    BOOST_TEST(both_ways<GETATTR3args>(handle_1, bytes).object == handle);
    BOOST_TEST(both_ways<READLINK3args>(handle_1, bytes).symlink == handle);
    BOOST_TEST(both_ways<FSSTAT3args>(handle_1, bytes).fsroot == handle);
    BOOST_TEST(both_ways<FSINFO3args>(handle_1, bytes).fsroot == handle);
    BOOST_TEST(both_ways<PATHCONF3args>(handle_1, bytes).object == handle);
}

BOOST_AUTO_TEST_CASE(handle_sizes)
{
    BOOST_TEST(both_ways<GETATTR3args>("00000000", bytes).object.size() == 0u);
    const std::string sixty_four = "00000040" + std::string(128, '7');
    BOOST_TEST(both_ways<GETATTR3args>(sixty_four, bytes).object.size() == 64u);
    refused<GETATTR3args>("00000041" + std::string(136, '7'));
    nfs_fh3 handle = handle_of("0102");
    BOOST_TEST(!handle.assign(std::vector<std::byte>(65)));
    BOOST_TEST(handle == handle_of("0102"));
    BOOST_TEST(!(handle == handle_of("010200")));
    BOOST_TEST(!(handle == handle_of("0103")));
}

BOOST_AUTO_TEST_CASE(setattr_arguments)
{
    const auto guarded =
        both_ways<SETATTR3args>(hex({handle_1, sattr3_hex, "00000001 00000055 00000056"}), bytes);
    BOOST_TEST(guarded.object == handle_of("010203040506"));
    BOOST_TEST(guarded.new_attributes == sample_sattr3());
    BOOST_REQUIRE(guarded.guard);
    BOOST_TEST(*guarded.guard == (nfstime3{0x55, 0x56}));

    const auto nothing = both_ways<SETATTR3args>(hex({handle_1, no_sattr3, "00000000"}), bytes);
    BOOST_TEST(nothing.new_attributes == sattr3());
    BOOST_TEST(!nothing.guard);

    const auto uid_only = both_ways<SETATTR3args>(
        hex({handle_1,
             "00000000 00000001 000003e8 00000000 00000000 00000002 00000061 00000062 00000001 00000000"}),
        bytes);
    BOOST_TEST(*uid_only.new_attributes.uid == 1000u);
    BOOST_TEST(!uid_only.new_attributes.gid);
    BOOST_TEST(uid_only.new_attributes.atime.time == (nfstime3{0x61, 0x62}));

    refused<SETATTR3args>(
        hex({handle_1, "00000000 00000000 00000000 00000000 00000003 00000000 00000000"})); // time_how 3
    refused<SETATTR3args>(hex({handle_1, no_sattr3, "00000002"}));                          // boolean 2
}

BOOST_AUTO_TEST_CASE(a_decoded_structure_forgets_what_it_held)
{
    SETATTR3args args;
    args.new_attributes = sample_sattr3();
    args.new_attributes.uid = 7;
    args.guard = nfstime3{1, 2};
    const auto empty = from_hex(hex({handle_1, no_sattr3, "00000000"}));
    decoder in(empty);
    decode(in, args);
    BOOST_TEST(args.new_attributes == sattr3());
    BOOST_TEST(!args.guard);
}

BOOST_AUTO_TEST_CASE(names_arguments)
{
    is_where(both_ways<LOOKUP3args>(where(), bytes).what);
    is_where(both_ways<REMOVE3args>(where(), bytes).object);
    is_where(both_ways<RMDIR3args>(where(), bytes).object);

    const auto rename = both_ways<RENAME3args>(hex({where(), handle_2, name_2}), bytes);
    is_where(rename.from);
    BOOST_TEST(rename.to.dir == handle_of("a1a2a3a4"));
    BOOST_TEST(rename.to.name == "dir");

    const auto link = both_ways<LINK3args>(hex({handle_2, where()}), bytes);
    BOOST_TEST(link.file == handle_of("a1a2a3a4"));
    is_where(link.link);

    // What a file system refuses is not the codec's to judge: the server answers nametoolong.
    BOOST_TEST(
        both_ways<LOOKUP3args>(hex({handle_2, "00000100", std::string(512, '6')}), bytes).what.name.size() ==
        256u);
    BOOST_TEST(both_ways<LOOKUP3args>(hex({handle_2, "00000003 2f002e00"}), bytes).what.name ==
               std::string_view("/\0.", 3));
    refused<LOOKUP3args>(hex({handle_2, "00001001", std::string(2 * 4100, '6')}));
}

BOOST_AUTO_TEST_CASE(access_and_ranges)
{
    BOOST_TEST(both_ways<ACCESS3args>(hex({handle_1, "0000003f"}), bytes).access == access3::all);

    const auto read = both_ways<READ3args>(hex({handle_1, "00000001 00000000 00010000"}), bytes);
    BOOST_TEST(read.file == handle_of("010203040506"));
    BOOST_TEST(read.offset == 0x100000000u);
    BOOST_TEST(read.count == 65536u);

    const auto commit = both_ways<COMMIT3args>(hex({handle_1, "00000000 00002000 00001000"}), bytes);
    BOOST_TEST(commit.offset == 8192u);
    BOOST_TEST(commit.count == 4096u);
}

BOOST_AUTO_TEST_SUITE(write_arguments)

constexpr std::string_view head = "00000006 01020304 05060000 00000000 00001000 00000005 00000001";

BOOST_AUTO_TEST_CASE(whole_message)
{
    const auto args = both_ways<WRITE3args>(hex({head, "00000005 68656c6c 6f000000"}), bytes);
    BOOST_TEST(args.file == handle_of("010203040506"));
    BOOST_TEST(args.offset == 4096u);
    BOOST_TEST(args.count == 5u);
    BOOST_TEST(args.stable == stable_how::data_sync);
    BOOST_TEST(text_of(args.data.inline_bytes) == "hello");
    BOOST_TEST(!args.data.external);
    BOOST_TEST(args.data.position == 32u);
}

BOOST_AUTO_TEST_CASE(data_in_a_read_chunk)
{
    const auto message = from_hex(hex({head, "00000005"}));
    decoder in(message, external_item{32, 5});
    WRITE3args args;
    decode(in, args);
    BOOST_TEST(in.at_end());
    BOOST_TEST(args.data.external);
    BOOST_TEST(args.data.length == 5u);
    BOOST_TEST(args.data.position == 32u);

    // And out: only the length word is in the block, the transport gets the rest.
    std::vector<std::byte> block(100);
    encoder out(block);
    encode(out, args);
    BOOST_TEST(to_hex(out.bytes()) == to_hex(message));
    BOOST_REQUIRE(out.payloads().size() == 1u);
    BOOST_TEST(out.payloads()[0].position == 32u);
    BOOST_TEST(out.payloads()[0].length == 5u);
}

BOOST_AUTO_TEST_CASE(data_that_continues_in_the_record)
{
    const auto message = from_hex(hex({head, "00000005 6865"}));
    decoder in(message, 40);
    WRITE3args args;
    decode(in, args);
    BOOST_TEST(in.at_end());
    BOOST_TEST(args.data.external);
    BOOST_TEST(text_of(args.data.inline_bytes) == "he");
}

BOOST_AUTO_TEST_CASE(refusals)
{
    refused<WRITE3args>(hex({head, "00000004 68656c6c"})); // count is 5
    refused<WRITE3args>(hex(
        {"00000006 01020304 05060000 00000000 00001000 00000005 00000003", "00000005 68656c6c 6f000000"}));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_CASE(create_arguments)
{
    const auto unchecked = both_ways<CREATE3args>(hex({where(), "00000000", sattr3_hex}), bytes);
    is_where(unchecked.where);
    BOOST_TEST(unchecked.mode == createmode3::unchecked);
    BOOST_TEST(unchecked.obj_attributes == sample_sattr3());
    BOOST_TEST(both_ways<CREATE3args>(hex({where(), "00000001", no_sattr3}), bytes).mode ==
               createmode3::guarded);

    const auto exclusive = both_ways<CREATE3args>(hex({where(), "00000002", "c1c2c3c4 c5c6c7c8"}), bytes);
    BOOST_TEST(exclusive.mode == createmode3::exclusive);
    BOOST_TEST(to_hex(exclusive.verf) == "c1c2c3c4 c5c6c7c8");
    refused<CREATE3args>(hex({where(), "00000003", no_sattr3}));
}

BOOST_AUTO_TEST_CASE(mkdir_arguments)
{
    const auto args = both_ways<MKDIR3args>(hex({where(), sattr3_hex}), bytes);
    is_where(args.where);
    BOOST_TEST(args.attributes == sample_sattr3());
}

BOOST_AUTO_TEST_CASE(symlink_arguments)
{
    const auto args =
        both_ways<SYMLINK3args>(hex({where(), sattr3_hex, "00000005 2e2e2f61 62000000"}), bytes);
    is_where(args.where);
    BOOST_TEST(args.symlink_attributes == sample_sattr3());
    BOOST_TEST(text_of(args.symlink_data.inline_bytes) == "../ab");

    const auto reduced = from_hex(hex({where(), no_sattr3, "00000005"}));
    decoder in(reduced, external_item{reduced.size(), 8});
    SYMLINK3args from_chunk;
    decode(in, from_chunk);
    BOOST_TEST(in.at_end());
    BOOST_TEST(from_chunk.symlink_data.external);
    BOOST_TEST(from_chunk.symlink_data.length == 5u);
    refused<SYMLINK3args>(hex({where(), no_sattr3, "00010001", std::string(2 * 65540, '6')}));
}

BOOST_AUTO_TEST_CASE(mknod_arguments)
{
    const auto device =
        both_ways<MKNOD3args>(hex({where(), "00000004", sattr3_hex, "00000008 00000011"}), bytes);
    is_where(device.where);
    BOOST_TEST(device.type == ftype3::chr);
    BOOST_TEST(device.attributes == sample_sattr3());
    BOOST_TEST(device.spec == (specdata3{8, 17}));
    BOOST_TEST(
        both_ways<MKNOD3args>(hex({where(), "00000003", no_sattr3, "00000008 00000011"}), bytes).type ==
        ftype3::blk);

    BOOST_TEST(both_ways<MKNOD3args>(hex({where(), "00000006", sattr3_hex}), bytes).attributes ==
               sample_sattr3());
    BOOST_TEST(both_ways<MKNOD3args>(hex({where(), "00000007", no_sattr3}), bytes).type == ftype3::fifo);

    // A void arm: the server answers badtype.
    BOOST_TEST(both_ways<MKNOD3args>(hex({where(), "00000002"}), bytes).type == ftype3::dir);
    refused<MKNOD3args>(hex({where(), "00000000"}));
    refused<MKNOD3args>(hex({where(), "00000008"}));
}

BOOST_AUTO_TEST_CASE(readdir_arguments)
{
    const auto args =
        both_ways<READDIR3args>(hex({handle_1, "00000001 00000002", "d1d2d3d4 d5d6d7d8", "00002000"}), bytes);
    BOOST_TEST(args.dir == handle_of("010203040506"));
    BOOST_TEST(args.cookie == 0x100000002u);
    BOOST_TEST(to_hex(args.cookieverf) == "d1d2d3d4 d5d6d7d8");
    BOOST_TEST(args.count == 8192u);

    const auto plus = both_ways<READDIRPLUS3args>(
        hex({handle_1, "00000001 00000002", "d1d2d3d4 d5d6d7d8", "00000400 00002000"}), bytes);
    BOOST_TEST(plus.dir == handle_of("010203040506"));
    BOOST_TEST(plus.cookie == 0x100000002u);
    BOOST_TEST(to_hex(plus.cookieverf) == "d1d2d3d4 d5d6d7d8");
    BOOST_TEST(plus.dircount == 1024u);
    BOOST_TEST(plus.maxcount == 8192u);
}

BOOST_AUTO_TEST_CASE(eligible_arguments)
{
    for (std::uint32_t value = 0; value < procedure_count; ++value)
        BOOST_TEST(has_ddp_eligible_argument(static_cast<procedure>(value)) == (value == 7 || value == 10));
}

BOOST_AUTO_TEST_SUITE_END()
