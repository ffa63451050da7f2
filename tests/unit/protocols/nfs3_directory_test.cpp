// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include "nfs3_unprinted.hpp"
#include "nfs3_vectors.hpp"

#include <verbena/protocols/nfs/wire/v3/binding.hpp>

BOOST_AUTO_TEST_SUITE(nfs3_directory_test)

using namespace verbena::test;
using namespace verbena::nfs::v3;
using verbena::xdr::decoder;
using verbena::xdr::encoder;

namespace {

constexpr std::string_view ok = "00000000";
constexpr std::string_view verifier = "e1e2e3e4 e5e6e7e8";
// "a" and "name.c": 4 + 8 + 8 + 8 = 28 and 4 + 8 + 12 + 8 = 32 bytes.
constexpr std::string_view entry_a = "00000001 00000001 00000011 00000001 61000000 00000001 00000012";
constexpr std::string_view entry_b =
    "00000001 00000001 00000021 00000006 6e616d65 2e630000 00000001 00000022";
constexpr std::string_view at_eof = "00000000 00000001";
constexpr std::string_view more = "00000000 00000000";

const entry3 a{0x100000011, "a", 0x100000012};
const entry3 b{0x100000021, "name.c", 0x100000022};

directory_head head_of(const post_op_attr& attributes = {})
{
    directory_head head;
    head.dir_attributes = attributes;
    BOOST_TEST(from_hex(verifier).size() == head.cookieverf.size());
    std::ranges::copy(from_hex(verifier), head.cookieverf.begin());
    return head;
}

READDIR3args with_count(std::uint32_t count)
{
    READDIR3args args;
    args.count = count;
    return args;
}

READDIRPLUS3args with_counts(std::uint32_t dircount, std::uint32_t maxcount)
{
    READDIRPLUS3args args;
    args.dircount = dircount;
    args.maxcount = maxcount;
    return args;
}

// A resok without attributes and entries: post_op_attr 4, verifier 8, end of list 4, eof 4.
constexpr std::uint32_t empty_size = 20;

} // namespace

BOOST_AUTO_TEST_SUITE(readdir_results)

BOOST_AUTO_TEST_CASE(bytes_of_a_list)
{
    std::vector<std::byte> block(500);
    encoder out(block);
    readdir_writer writer(out, with_count(500), head_of(sample_fattr3()));
    BOOST_TEST(writer.fits());
    BOOST_TEST(writer.add(a));
    BOOST_TEST(writer.add(b));
    BOOST_TEST(writer.entries() == 2u);
    writer.finish(true);
    BOOST_TEST(out.ok());
    BOOST_TEST(to_hex(out.bytes()) ==
               to_hex(hex({ok, post_op_attr_hex, verifier, entry_a, entry_b, at_eof})));

    decoder in(out.bytes());
    directory_head head;
    decode(in, head);
    BOOST_TEST(head.status == nfsstat3::ok);
    BOOST_TEST(*head.dir_attributes == sample_fattr3());
    BOOST_TEST(to_hex(head.cookieverf) == verifier);
    readdir_reader reader(in);
    entry3 entry;
    BOOST_TEST(reader.next(entry));
    BOOST_TEST(entry.fileid == 0x100000011u);
    BOOST_TEST(entry.name == "a");
    BOOST_TEST(entry.cookie == 0x100000012u);
    BOOST_TEST(reader.next(entry));
    BOOST_TEST(entry.name == "name.c");
    BOOST_TEST(!reader.next(entry));
    BOOST_TEST(reader.eof());
    BOOST_TEST(in.at_end());
    BOOST_TEST(!reader.next(entry)); // asking again reads nothing
    BOOST_TEST(in.ok());
}

// RFC 1813 3.3.16: count bounds the whole READDIR3resok.
BOOST_AUTO_TEST_CASE(count_is_kept_to_the_byte)
{
    for (const std::uint32_t count : {empty_size + 28 + 32, empty_size + 28 + 31}) {
        std::vector<std::byte> block(500);
        encoder out(block);
        readdir_writer writer(out, with_count(count), head_of());
        BOOST_TEST(writer.add(a));
        BOOST_TEST(writer.add(b) == (count == empty_size + 60));
        writer.finish(false);
        BOOST_TEST(out.ok());
        BOOST_TEST(out.size() - 4 <= count); // the status is not part of the resok
        if (count == empty_size + 60)
            BOOST_TEST(out.size() - 4 == count);
        else
            BOOST_TEST(to_hex(out.bytes()) == to_hex(hex({ok, no_attr, verifier, entry_a, more})));
    }
}

BOOST_AUTO_TEST_CASE(a_smaller_entry_may_still_fit)
{
    std::vector<std::byte> block(500);
    encoder out(block);
    readdir_writer writer(out, with_count(empty_size + 28), head_of());
    BOOST_TEST(!writer.add(b));
    BOOST_TEST(writer.add(a));
    BOOST_TEST(!writer.add(a));
}

BOOST_AUTO_TEST_CASE(counts_too_small_for_anything)
{
    std::vector<std::byte> block(500);
    for (const std::uint32_t count : {0u, empty_size - 1, empty_size, empty_size + 27}) {
        encoder out(block);
        readdir_writer writer(out, with_count(count), head_of());
        BOOST_TEST(writer.fits() == (count >= empty_size));
        BOOST_TEST(!writer.add(a));
        BOOST_TEST(writer.entries() == 0u);
    }
}

BOOST_AUTO_TEST_CASE(the_block_bounds_too)
{
    std::vector<std::byte> block(4 + empty_size + 28);
    encoder out(block);
    readdir_writer writer(out, with_count(UINT32_MAX), head_of());
    BOOST_TEST(writer.add(a));
    BOOST_TEST(!writer.add(a));
    writer.finish(false);
    BOOST_TEST(out.ok());
    BOOST_TEST(out.room() == 0u);

    encoder none{std::span(block).first(4 + empty_size - 1)};
    readdir_writer no_room(none, with_count(UINT32_MAX), head_of());
    BOOST_TEST(!no_room.fits());
    BOOST_TEST(!no_room.add(a));
}

BOOST_AUTO_TEST_CASE(failures)
{
    std::vector<std::byte> bytes;
    const auto failed = both_ways<directory_head>(hex({"00002713", post_op_attr_hex}), bytes);
    BOOST_TEST(failed.status == nfsstat3::bad_cookie);
    BOOST_TEST(*failed.dir_attributes == sample_fattr3());

    const auto whole = from_hex(hex({entry_a, entry_b, more}));
    for (std::size_t length = 0; length < whole.size(); ++length) {
        decoder in{std::span(whole).first(length)};
        readdir_reader reader(in);
        entry3 entry;
        while (reader.next(entry)) {
        }
        BOOST_TEST(!in.ok());
        BOOST_TEST(!reader.eof());
    }
}

BOOST_AUTO_TEST_CASE(reply_bounds)
{
    BOOST_TEST(max_reply_size(with_count(8192)).total() == 4u + 8192u);
    BOOST_TEST(max_reply_size(with_count(10)).total() == 4u + 88u); // a failure with attributes
    BOOST_TEST(max_reply_size(with_counts(512, 8192)).total() == 4u + 8192u);
    BOOST_TEST(max_reply_size(with_counts(512, 10)).total() == 4u + 88u);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(readdirplus_results)

entryplus3 plus(const entry3& entry, bool attributes, bool handle)
{
    entryplus3 all{entry.fileid, entry.name, entry.cookie, {}, {}};
    if (attributes)
        all.name_attributes = sample_fattr3();
    if (handle)
        all.name_handle = handle_of("010203040506");
    return all;
}

BOOST_AUTO_TEST_CASE(bytes_of_a_list)
{
    std::vector<std::byte> block(500);
    encoder out(block);
    readdirplus_writer writer(out, with_counts(500, 500), head_of());
    BOOST_TEST(writer.fits());
    BOOST_TEST(writer.add(plus(a, true, true)));
    BOOST_TEST(writer.add(plus(b, false, false)));
    BOOST_TEST(writer.entries() == 2u);
    writer.finish(true);
    BOOST_TEST(to_hex(out.bytes()) ==
               to_hex(hex({ok, no_attr, verifier, entry_a, post_op_attr_hex, "00000001", handle_1, entry_b,
                           no_attr, "00000000", at_eof})));

    decoder in(out.bytes());
    directory_head head;
    decode(in, head);
    readdirplus_reader reader(in);
    entryplus3 entry;
    BOOST_TEST(reader.next(entry));
    BOOST_TEST(entry.fileid == 0x100000011u);
    BOOST_TEST(entry.name == "a");
    BOOST_TEST(entry.cookie == 0x100000012u);
    BOOST_TEST(*entry.name_attributes == sample_fattr3());
    BOOST_TEST(*entry.name_handle == handle_of("010203040506"));
    BOOST_TEST(reader.next(entry));
    BOOST_TEST(entry.name == "name.c");
    BOOST_TEST(!entry.name_attributes.has_value());
    BOOST_TEST(!entry.name_handle.has_value());
    BOOST_TEST(!reader.next(entry));
    BOOST_TEST(reader.eof());
    BOOST_TEST(in.at_end());
}

// RFC 1813 3.3.17: maxcount bounds the whole READDIRPLUS3resok.
BOOST_AUTO_TEST_CASE(maxcount_is_kept_to_the_byte)
{
    constexpr std::uint32_t full_a = 28 + 4 + 84 + 4 + 12, bare_b = 32 + 4 + 4;
    for (const std::uint32_t maxcount : {empty_size + full_a + bare_b, empty_size + full_a + bare_b - 1}) {
        std::vector<std::byte> block(500);
        encoder out(block);
        readdirplus_writer writer(out, with_counts(500, maxcount), head_of());
        BOOST_TEST(writer.add(plus(a, true, true)));
        BOOST_TEST(writer.add(plus(b, false, false)) == (maxcount == empty_size + full_a + bare_b));
        writer.finish(false);
        BOOST_TEST(out.ok());
        BOOST_TEST(out.size() - 4 <= maxcount);
        if (maxcount == empty_size + full_a + bare_b)
            BOOST_TEST(out.size() - 4 == maxcount);
    }
}

// dircount counts fileid, name and cookie: 24 bytes of "a", 28 of "name.c".
BOOST_AUTO_TEST_CASE(dircount_is_kept_behind_the_first_entry)
{
    for (const std::uint32_t dircount : {24u + 28u, 24u + 27u}) {
        std::vector<std::byte> block(500);
        encoder out(block);
        readdirplus_writer writer(out, with_counts(dircount, 500), head_of());
        BOOST_TEST(writer.add(plus(a, true, true)));
        BOOST_TEST(writer.has_room_for("name.c") == (dircount == 52));
        BOOST_TEST(writer.add(plus(b, false, false)) == (dircount == 52));
    }
    std::vector<std::byte> block(500);
    encoder out(block);
    readdirplus_writer writer(out, with_counts(0, 500), head_of());
    BOOST_TEST(writer.has_room_for("a"));
    BOOST_TEST(writer.add(plus(a, false, false)));
    BOOST_TEST(!writer.has_room_for("a"));
    BOOST_TEST(!writer.add(plus(a, false, false)));
}

BOOST_AUTO_TEST_CASE(room_for_the_largest_entry)
{
    // 28 for the entry, 4 + 84 of attributes, 4 + 4 + 64 of a handle.
    constexpr std::uint32_t largest = empty_size + 28 + 88 + 72;
    std::vector<std::byte> block(500);
    for (const std::uint32_t maxcount : {largest, largest - 1}) {
        encoder out(block);
        readdirplus_writer writer(out, with_counts(500, maxcount), head_of());
        BOOST_TEST(writer.has_room_for("a") == (maxcount == largest));
        entryplus3 entry = plus(a, true, false);
        entry.name_handle = handle_of(std::string(128, '7'));
        BOOST_TEST(writer.add(entry) == (maxcount == largest));
    }
}

BOOST_AUTO_TEST_CASE(counts_too_small_for_anything)
{
    std::vector<std::byte> block(500);
    for (const std::uint32_t maxcount : {0u, empty_size - 1, empty_size, empty_size + 35}) {
        encoder out(block);
        readdirplus_writer writer(out, with_counts(500, maxcount), head_of());
        BOOST_TEST(writer.fits() == (maxcount >= empty_size));
        BOOST_TEST(!writer.add(plus(a, false, false)));
    }
}

BOOST_AUTO_TEST_CASE(cut_short)
{
    const auto whole = from_hex(hex({entry_a, post_op_attr_hex, "00000001", handle_1, more}));
    for (std::size_t length = 0; length < whole.size(); ++length) {
        decoder in{std::span(whole).first(length)};
        readdirplus_reader reader(in);
        entryplus3 entry;
        while (reader.next(entry)) {
        }
        BOOST_TEST(!in.ok());
        BOOST_TEST(!reader.eof());
    }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE_END()
