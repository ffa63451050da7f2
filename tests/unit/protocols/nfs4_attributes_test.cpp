// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include "../acl_text.hpp"
#include "nfs4_vectors.hpp"

#include <verbena/protocols/nfs/server/v4/storage.hpp>

#include <array>
#include <string>

BOOST_AUTO_TEST_SUITE(nfs4_attributes_test)

using namespace verbena::test;
using namespace verbena::nfs::v4;
using namespace verbena;

namespace {

std::vector<std::byte> bytes;

/// Number and value of every attribute that has a place, in order, written by hand: what is here is what the RFCs say.
struct vector {
    attribute which;
    std::string_view value;
};
constexpr vector all_values[] = {
    {attribute::supported_attrs, "00000003 00000001 00000002 00000800"},
    {attribute::type, "00000002"},
    {attribute::fh_expire_type, "00000001"},
    {attribute::change, "00000003 00000004"},
    {attribute::size, "00000005 00000006"},
    {attribute::link_support, "00000001"},
    {attribute::symlink_support, "00000000"},
    {attribute::named_attr, "00000001"},
    {attribute::fsid, "00000008 00000009 0000000a 0000000b"},
    {attribute::unique_handles, "00000001"},
    {attribute::lease_time, "0000005a"},
    {attribute::rdattr_error, "0000000d"},
    {attribute::acl, "00000001 00000000 00000040 0000001f 00000006 4f574e45 52400000"},
    {attribute::aclsupport, "00000003"},
    {attribute::cansettime, "00000001"},
    {attribute::case_insensitive, "00000000"},
    {attribute::case_preserving, "00000001"},
    {attribute::chown_restricted, "00000001"},
    {attribute::filehandle, "00000006 01020304 05060000"},
    {attribute::fileid, "00000014 00000015"},
    {attribute::files_avail, "00000016 00000017"},
    {attribute::files_free, "00000018 00000019"},
    {attribute::files_total, "0000001a 0000001b"},
    {attribute::homogeneous, "00000001"},
    {attribute::maxfilesize, "0000001c 0000001d"},
    {attribute::maxlink, "0000001e"},
    {attribute::maxname, "000000ff"},
    {attribute::maxread, "00000000 00100000"},
    {attribute::maxwrite, "00000000 00200000"},
    {attribute::mode, "000009ed"},
    {attribute::no_trunc, "00000001"},
    {attribute::numlinks, "00000022"},
    {attribute::owner, "00000004 31303030"},
    {attribute::owner_group, "00000003 31303000"},
    {attribute::quota_avail_hard, "00000023 00000024"},
    {attribute::quota_avail_soft, "00000025 00000026"},
    {attribute::quota_used, "00000027 00000028"},
    {attribute::rawdev, "00000029 0000002a"},
    {attribute::space_avail, "0000002b 0000002c"},
    {attribute::space_free, "0000002d 0000002e"},
    {attribute::space_total, "0000002f 00000030"},
    {attribute::space_used, "00000031 00000032"},
    {attribute::time_access, "00000033 00000034 00000035"},
    {attribute::time_access_set, "00000001 00000036 00000037 00000038"},
    {attribute::time_create, "00000039 0000003a 0000003b"},
    {attribute::time_delta, "00000000 00000000 00000001"},
    {attribute::time_metadata, "0000003c 0000003d 0000003e"},
    {attribute::time_modify, "0000003f 00000040 00000041"},
    {attribute::time_modify_set, "00000000"},
    {attribute::mounted_on_fileid, "00000042 00000043"},
    {attribute::fs_layout_types, "00000002 00000003 80000006"},
    {attribute::layout_types, "00000001 00000005"},
    {attribute::layout_blksize, "00001000"},
    {attribute::layout_alignment, "00000200"},
    {attribute::mode_set_masked, "000001a4 000001ff"},
    {attribute::suppattr_exclcreat, "00000002 00000010 00000002"},
    {attribute::fs_charset_cap, "00000001"},
    {attribute::clone_blksize, "00002000"},
    {attribute::space_freed, "00000044 00000045"},
    {attribute::change_attr_type, "00000003"},
    {attribute::sec_label, "00000046 00000047 00000003 78797a00"},
    {attribute::mode_umask, "000001b6 00000012"},
    {attribute::xattr_support, "00000001"},
    {attribute::offline, "00000000"},
    {attribute::time_deleg_access, "00000048 00000049 0000004a"},
    {attribute::time_deleg_modify, "0000004b 0000004c 0000004d"},
    {attribute::open_arguments, "00000001 0000000e 00000001 0000000f 00000001 00360038 00000001 0000007f "
                                "00000001 0000000f"},
};

bitmap4 all_of_them()
{
    bitmap4 all;
    for (const vector& each : all_values)
        all.set(each.which);
    return all;
}

std::string values_of(const bitmap4& which)
{
    std::string text;
    for (const vector& each : all_values) {
        if (which.test(each.which))
            text.append(each.value).append("\n");
    }
    return text;
}

/// `bytes` outlives the result.
fattr4 raw(const bitmap4& mask, std::string_view values)
{
    bytes = from_hex(values);
    return {mask, std::span<const std::byte>(bytes)};
}

std::string written(const bitmap4& wanted, const attributes& values, std::size_t room = 4096)
{
    std::vector<std::byte> block(room);
    xdr::encoder out(block);
    encode_attributes(out, wanted, values);
    return out.ok() ? to_hex(out.bytes()) : "no room";
}

constexpr bitmap4 everything = attributes_of_minor(2);

} // namespace

BOOST_AUTO_TEST_CASE(bitmaps)
{
    BOOST_TEST(both_ways<bitmap4>("00000000", bytes).none());
    const auto two = both_ways<bitmap4>("00000002 80000001 00000002", bytes);
    BOOST_TEST((two.test(0) && two.test(31) && two.test(33) && !two.test(32) && !two.test(1)));
    BOOST_TEST(two.word(0) == 0x80000001u);
    const auto three = both_ways<bitmap4>("00000003 00000000 00000000 00400000", bytes);
    BOOST_TEST((three == bitmap4{attribute::open_arguments}));
    BOOST_TEST(!three.test(96));
    BOOST_TEST(!three.test(0xffffffff));

    // Zero words at the end are legal, and are not written.
    const auto padded = from_hex("00000005 00000001 00000000 00000000 00000000 00000000");
    xdr::decoder in(padded);
    bitmap4 value{9};
    xdr::codec<bitmap4>::decode(in, value);
    BOOST_TEST((in.at_end() && value == bitmap4{0} && !value.beyond()));
    BOOST_TEST(to_hex(encoded(value)) == "00000001 00000001");

    // A bit that has no place is dropped, and told.
    const auto far = from_hex("00000004 00000001 00000000 00000000 00000001");
    xdr::decoder in_2(far);
    xdr::codec<bitmap4>::decode(in_2, value);
    BOOST_TEST((in_2.at_end() && value.beyond() && value.test(0)));
    BOOST_TEST(!value.is_subset_of(everything));
    BOOST_TEST(!(value & everything).beyond());
    BOOST_TEST(to_hex(encoded(value)) == "00000001 00000001");

    refused<bitmap4>("ffffffff 00000001");
    refused<bitmap4>("40000000 00000001 00000002");

    bitmap4 some{1, 40};
    some.set(95);
    some.reset(1);
    BOOST_TEST((some == bitmap4{40, 95}));
    BOOST_TEST(((some | bitmap4{2}) == bitmap4{2, 40, 95}));
    BOOST_TEST(((some - bitmap4{40, 41}) == bitmap4{95}));
    BOOST_TEST(((some & bitmap4{40, 41}) == bitmap4{40}));
    BOOST_TEST((bitmap4{40}.is_subset_of(some) && !bitmap4{41}.is_subset_of(some)));
    std::vector<std::uint32_t> seen;
    BOOST_TEST((bitmap4{95, 0, 33}.for_each([&](std::uint32_t bit) { return seen.push_back(bit), true; })));
    BOOST_TEST((seen == std::vector<std::uint32_t>{0, 33, 95}));
    BOOST_TEST((!bitmap4{95, 0, 33}.for_each([](std::uint32_t bit) { return bit != 33; })));
}

BOOST_AUTO_TEST_CASE(numbers_of_minor_versions)
{
    BOOST_TEST((attributes_of_minor(0).test(55) && !attributes_of_minor(0).test(56)));
    BOOST_TEST((attributes_of_minor(1).test(76) && !attributes_of_minor(1).test(77)));
    BOOST_TEST((attributes_of_minor(2).test(86) && !attributes_of_minor(2).test(87)));
    for (const attribute each :
         {attribute::time_access_set, attribute::time_modify_set, attribute::mode_umask})
        BOOST_TEST(write_only_attributes.test(each));
    BOOST_TEST(!attributes_for_setattr.test(attribute::mode_umask));
    BOOST_TEST(attributes_for_create.test(attribute::mode_umask));
}

BOOST_AUTO_TEST_CASE(every_attribute_alone_and_all_together)
{
    BOOST_TEST((known_attributes == all_of_them()));
    for (const vector& each : all_values) {
        BOOST_TEST_CONTEXT("attribute " << static_cast<std::uint32_t>(each.which))
        {
            const bitmap4 one{each.which};
            attributes values;
            BOOST_TEST(decode_attributes(raw(one, each.value), values));
            BOOST_TEST((values.present == one));
            const std::string expected =
                to_hex(encoded(one)) + ' ' + to_hex(encoded(bytes_view<4096>(bytes)));
            BOOST_TEST(written(everything, values) == expected);
            // Neither shorter nor longer.
            const std::vector<std::byte> whole = bytes;
            for (std::size_t length = 0; length < whole.size(); ++length) {
                const std::vector<std::byte> cut(whole.begin(),
                                                 whole.begin() + static_cast<std::ptrdiff_t>(length));
                BOOST_TEST(!decode_attributes({one, std::span<const std::byte>(cut)}, values));
            }
            std::vector<std::byte> longer = whole;
            longer.resize(whole.size() + 4);
            BOOST_TEST(!decode_attributes({one, std::span<const std::byte>(longer)}, values));
        }
    }
    attributes values;
    BOOST_TEST(decode_attributes(raw(all_of_them(), values_of(all_of_them())), values));
    const std::string together =
        to_hex(encoded(all_of_them())) + ' ' + to_hex(encoded(bytes_view<4096>(bytes)));
    BOOST_TEST(written(everything, values) == together);
    for (std::size_t room = 0; room < from_hex(together).size(); room += 4)
        BOOST_TEST(written(everything, values, room) == "no room");
}

BOOST_AUTO_TEST_CASE(values_are_where_they_belong)
{
    attributes values;
    BOOST_REQUIRE(decode_attributes(raw(all_of_them(), values_of(all_of_them())), values));
    BOOST_TEST((values.supported_attrs == bitmap4{0, 33, 75}));
    BOOST_TEST((values.type == nfs_ftype4::dir));
    BOOST_TEST(values.fh_expire_type == 1u);
    BOOST_TEST(values.change == 0x300000004u);
    BOOST_TEST(values.size == 0x500000006u);
    BOOST_TEST(
        (values.link_support && !values.symlink_support && values.named_attr && values.unique_handles));
    BOOST_TEST((values.fsid == fsid4{0x800000009, 0xa0000000b}));
    BOOST_TEST(values.lease_time == 90u);
    BOOST_TEST((values.rdattr_error == nfsstat4::access));
    BOOST_TEST(values.acl.size() == 1u);
    for (const nfsace4& ace : elements(values.acl)) {
        BOOST_TEST((ace.type == ace4::type_allowed && ace.flag == ace4::identifier_group));
        BOOST_TEST(ace.access_mask == 0x1fu);
        BOOST_TEST(ace.who == "OWNER@");
    }
    BOOST_TEST(values.aclsupport == (acl4_support::allow | acl4_support::deny));
    BOOST_TEST(
        (values.cansettime && !values.case_insensitive && values.case_preserving && values.chown_restricted));
    BOOST_TEST(is_handle(values.filehandle));
    BOOST_TEST(values.fileid == 0x1400000015u);
    BOOST_TEST(values.files_avail == 0x1600000017u);
    BOOST_TEST(values.files_free == 0x1800000019u);
    BOOST_TEST(values.files_total == 0x1a0000001bu);
    BOOST_TEST(values.homogeneous);
    BOOST_TEST(values.maxfilesize == 0x1c0000001du);
    BOOST_TEST(values.maxlink == 0x1eu);
    BOOST_TEST(values.maxname == 255u);
    BOOST_TEST(values.maxread == 1048576u);
    BOOST_TEST(values.maxwrite == 2097152u);
    BOOST_TEST(values.mode == 04755u);
    BOOST_TEST(values.no_trunc);
    BOOST_TEST(values.numlinks == 0x22u);
    BOOST_TEST(values.owner == "1000");
    BOOST_TEST(values.owner_group == "100");
    BOOST_TEST(values.quota_avail_hard == 0x2300000024u);
    BOOST_TEST(values.quota_avail_soft == 0x2500000026u);
    BOOST_TEST(values.quota_used == 0x2700000028u);
    BOOST_TEST((values.rawdev == specdata4{0x29, 0x2a}));
    BOOST_TEST(values.space_avail == 0x2b0000002cu);
    BOOST_TEST(values.space_free == 0x2d0000002eu);
    BOOST_TEST(values.space_total == 0x2f00000030u);
    BOOST_TEST(values.space_used == 0x3100000032u);
    BOOST_TEST((values.time_access == nfstime4{0x3300000034, 0x35}));
    BOOST_TEST((values.time_access_set == settime4{time_how4::set_to_client_time, {0x3600000037, 0x38}}));
    BOOST_TEST((values.time_create == nfstime4{0x390000003a, 0x3b}));
    BOOST_TEST((values.time_delta == nfstime4{0, 1}));
    BOOST_TEST((values.time_metadata == nfstime4{0x3c0000003d, 0x3e}));
    BOOST_TEST((values.time_modify == nfstime4{0x3f00000040, 0x41}));
    BOOST_TEST((values.time_modify_set == settime4{}));
    BOOST_TEST(values.mounted_on_fileid == 0x4200000043u);
    BOOST_TEST(values.fs_layout_types.size() == 2u);
    BOOST_TEST(values.layout_types.size() == 1u);
    BOOST_TEST((values.layout_blksize == 4096 && values.layout_alignment == 512));
    BOOST_TEST((values.mode_set_masked == mode_masked4{0644, 0777}));
    BOOST_TEST((values.suppattr_exclcreat == bitmap4{4, 33}));
    BOOST_TEST(values.fs_charset_cap == fs_charset_cap4::contains_non_utf8);
    BOOST_TEST(values.clone_blksize == 8192u);
    BOOST_TEST(values.space_freed == 0x4400000045u);
    BOOST_TEST((values.change_attr_type == change_attr_type4::time_metadata));
    BOOST_TEST((values.sec_label.lfs == 0x46 && values.sec_label.pi == 0x47));
    BOOST_TEST(text_of(values.sec_label.data) == "xyz");
    BOOST_TEST((values.mode_umask == mode_umask4{0666, 022}));
    BOOST_TEST((values.xattr_support && !values.offline));
    BOOST_TEST((values.time_deleg_access == nfstime4{0x4800000049, 0x4a}));
    BOOST_TEST((values.time_deleg_modify == nfstime4{0x4b0000004c, 0x4d}));
    BOOST_TEST((values.open_arguments.share_access == bitmap4{1, 2, 3}));
    BOOST_TEST((values.open_arguments.share_deny == bitmap4{0, 1, 2, 3}));
    using want = open_args_want4;
    BOOST_TEST((values.open_arguments.share_access_want ==
                bitmap4{want::any_delegation, want::no_delegation, want::cancel, want::signal_when_available,
                        want::push_when_uncontended, want::delegated_timestamps, want::open_xor_delegation}));
    BOOST_TEST(values.open_arguments.open_claim.word(0) == 0x7fu);
    BOOST_TEST(values.open_arguments.create_mode.word(0) == 0xfu);
}

BOOST_AUTO_TEST_CASE(only_what_is_wanted_and_present_is_written)
{
    attributes values;
    values.present = {attribute::size, attribute::mode, attribute::fs_locations};
    values.size = 5;
    values.mode = 0644;
    BOOST_TEST(written(everything, values) == to_hex(from_hex(attrs_hex)));
    BOOST_TEST(written(bitmap4{attribute::size, attribute::owner}, values) ==
               "00000001 00000010 00000008 00000000 00000005");
    BOOST_TEST(written(bitmap4{}, values) == to_hex(from_hex(no_attrs)));
}

BOOST_AUTO_TEST_CASE(what_is_unknown_ends_the_reading)
{
    attributes values;
    // archive (14) would stand between; what is behind it can't be found.
    BOOST_TEST(!decode_attributes(raw(bitmap4{4, 14}, "00000000 00000005 00000001"), values));
    const auto far = from_hex("00000004 00000010 00000000 00000000 00000001 00000008 00000000 00000005");
    xdr::decoder in(far);
    fattr4 fattr;
    xdr::codec<fattr4>::decode(in, fattr);
    BOOST_TEST(in.at_end());
    BOOST_TEST(!decode_attributes(fattr, values));
    BOOST_TEST((decode_settable(fattr, everything, attributes_for_setattr, values) == nfsstat4::attrnotsupp));
    BOOST_TEST((compare_attributes(fattr, everything, values, {}) == nfsstat4::attrnotsupp));
}

BOOST_AUTO_TEST_CASE(setting)
{
    attributes values;
    const bitmap4 supported = known_attributes - bitmap4{attribute::acl};
    const auto set = [&](const bitmap4& mask, std::string_view hex,
                         const bitmap4& settable = attributes_for_setattr) {
        values = {};
        return decode_settable(raw(mask, hex), supported, settable, values);
    };
    using enum attribute;
    BOOST_TEST((set({attribute::size, mode}, "00000000 00000005 000001a4") == nfsstat4::ok));
    BOOST_TEST((values.size == 5 && values.mode == 0644));
    BOOST_TEST((values.present == bitmap4{attribute::size, mode}));
    BOOST_TEST((set(bitmap4{}, "") == nfsstat4::ok));

    BOOST_TEST((set({acl}, none_hex) == nfsstat4::attrnotsupp));
    BOOST_TEST((set({hidden}, "00000001") == nfsstat4::attrnotsupp));
    BOOST_TEST((set({time_backup}, time_hex) == nfsstat4::attrnotsupp));
    BOOST_TEST((set({change}, "00000000 00000001") == nfsstat4::inval)); // read-only
    BOOST_TEST((set({change, hidden}, "00000000 00000001 00000001") == nfsstat4::attrnotsupp));
    BOOST_TEST((set({supported_attrs}, none_hex) == nfsstat4::inval));

    // XDR.
    BOOST_TEST((set({attribute::size}, "00000005") == nfsstat4::badxdr));
    BOOST_TEST((set({attribute::size}, "00000000 00000005 00000000") == nfsstat4::badxdr));
    BOOST_TEST((set({attribute::size, mode}, "00000000 00000005") == nfsstat4::badxdr));
    BOOST_TEST((set(bitmap4{}, "00000000") == nfsstat4::badxdr));
    BOOST_TEST((set({time_access_set}, "00000002") == nfsstat4::badxdr));
    BOOST_TEST((set({owner}, "7fffffff 61626364") == nfsstat4::badxdr));

    // Values.
    BOOST_TEST((set({mode}, "00000fff") == nfsstat4::ok));
    BOOST_TEST((set({mode}, "00001000") == nfsstat4::inval));
    BOOST_TEST((set({owner}, none_hex) == nfsstat4::inval));
    BOOST_TEST((set({owner_group}, none_hex) == nfsstat4::inval));
    BOOST_TEST((set({owner_group}, "00000001 30000000") == nfsstat4::ok));
    BOOST_TEST((set({time_access_set}, "00000001 00000000 00000001 3b9ac9ff") == nfsstat4::ok));
    BOOST_TEST((set({time_access_set}, "00000001 00000000 00000001 3b9aca00") == nfsstat4::inval));
    BOOST_TEST((set({time_modify_set}, "00000001 00000000 00000001 3b9aca00") == nfsstat4::inval));
    BOOST_TEST((set({time_modify_set}, "00000000") == nfsstat4::ok));
    BOOST_TEST((set({time_create}, "00000000 00000001 3b9aca00") == nfsstat4::inval));
    BOOST_TEST((set({time_deleg_access}, "00000000 00000001 3b9aca00") == nfsstat4::inval));
    BOOST_TEST((set({time_deleg_modify}, "00000000 00000001 3b9aca00") == nfsstat4::inval));
    BOOST_TEST((set({mode_set_masked}, "000001a4 00001000") == nfsstat4::inval));
    BOOST_TEST((set({mode_set_masked}, "00001000 000001ff") == nfsstat4::inval));
    BOOST_TEST((set({mode_set_masked}, "000001a4 000001ff") == nfsstat4::ok));
    BOOST_TEST((set({mode, mode_set_masked}, "000001a4 000001a4 000001ff") == nfsstat4::inval));

    // mode_umask belongs to creation.
    BOOST_TEST((set({mode_umask}, "000001b6 00000012") == nfsstat4::inval));
    BOOST_TEST((set({mode_umask}, "000001b6 00000012", attributes_for_create) == nfsstat4::ok));
    BOOST_TEST((set({mode_umask}, "000001b6 00000200", attributes_for_create) == nfsstat4::inval));
    BOOST_TEST((set({mode_umask}, "00001000 00000012", attributes_for_create) == nfsstat4::inval));
    BOOST_TEST(
        (set({mode, mode_umask}, "000001a4 000001b6 00000012", attributes_for_create) == nfsstat4::inval));
    // What EXCLUSIVE4_1 keeps for its verifier.
    BOOST_TEST((set({time_modify_set}, "00000000", attributes_for_create - bitmap4{time_modify_set}) ==
                nfsstat4::inval));
}

// 8881 6.2.1. What is announced takes no memory, and what is too long is told as such.
BOOST_AUTO_TEST_CASE(access_control_lists)
{
    attributes values;
    const auto decoded = [&](std::string_view hex) {
        values = {};
        return decode_settable(raw({attribute::acl}, hex), everything, attributes_for_setattr, values);
    };
    const std::string one = "00000001 00000083 00120001 00000004 31303030 ";
    BOOST_TEST((decoded("00000002 00000000 00000000 00000020 00000009 45564552 594f4e45 40000000" + one) ==
                nfsstat4::ok));
    storage::access_list list;
    storage::set_attributes set;
    BOOST_TEST((from_acl(values, list, set) == nfsstat4::ok));
    BOOST_REQUIRE(set.acl);
    BOOST_TEST(text_of(list) == "A::EVERYONE@:x D:fd:1000:rcy"); // INHERITED_ACE is for other attributes
    BOOST_TEST((set.acl->data() == list.data() && set.acl->size() == 2));
    BOOST_TEST((decoded("00000000") == nfsstat4::ok));
    BOOST_TEST((from_acl(values, list, set) == nfsstat4::ok));
    BOOST_TEST((set.acl && set.acl->empty()));
    for (const char* short_of :
         {"", "00000001", "00000001 00000000 00000000 00000020", "ffffffff", "00001001"})
        BOOST_TEST((decoded(short_of) == nfsstat4::badxdr), short_of);
    const auto many = [&](unsigned count) {
        std::string hex =
            "0000" + std::string{"0123456789abcdef"[count >> 12], "0123456789abcdef"[count >> 8 & 15],
                                 "0123456789abcdef"[count >> 4 & 15], "0123456789abcdef"[count & 15]};
        for (unsigned i = 0; i < count; ++i)
            hex += one;
        return hex;
    };
    BOOST_TEST((decoded(many(max_aces)) == nfsstat4::ok));
    BOOST_TEST((decoded(many(max_aces + 1)) == nfsstat4::fbig));

    // Back: as a client reads it.
    object_values told;
    told.set_acl(acl("D:fdi:GROUP@:w A:g:4294967294:rx A::OWNER@:C"));
    BOOST_TEST(written(everything, told.all) ==
               to_hex(encoded(bitmap4{attribute::acl})) +
                   " 00000050 00000003 00000001 0000000b 00000002 00000006 47524f55 50400000 00000000 "
                   "00000040 00000021 0000000a 34323934 39363732 39340000 00000000 00000000 00040000 "
                   "00000006 4f574e45 52400000");
}

BOOST_AUTO_TEST_CASE(entries_of_access_control_lists)
{
    struct {
        std::uint32_t type, flag, mask;
        const char* who;
        nfsstat4 status;
        const char* told;
    } const table[] = {
        {0, 0, 1, "OWNER@", nfsstat4::ok, "A::OWNER@:r"},
        {1, 0x40, 1, "GROUP@", nfsstat4::ok, "D::GROUP@:r"}, // the flag means nothing there
        {0, 0x0f, 0x1f07ff, "EVERYONE@", nfsstat4::ok, "A:fdni:EVERYONE@:rwanNxDtTdcCoy"},
        {0, 0, 1, "0", nfsstat4::ok, "A::0:r"},
        {0, 0x40, 1, "20", nfsstat4::ok, "A:g:20:r"},
        {0, 0x80, 1, "20", nfsstat4::ok, "A::20:r"},
        {0, 0, 1, "", nfsstat4::inval, ""},
        {0, 0, 1, "owner@", nfsstat4::badowner, ""},
        {0, 0, 1, "alice@example.org", nfsstat4::badowner, ""},
        {0, 0x40, 1, "AUTHENTICATED@", nfsstat4::badowner, ""},
        {0, 0, 1, "020", nfsstat4::badowner, ""},
        {0, 0, 1, "4294967295", nfsstat4::badowner, ""},
        {2, 0x10, 1, "OWNER@", nfsstat4::attrnotsupp, ""},
        {3, 0x20, 1, "OWNER@", nfsstat4::attrnotsupp, ""},
        {4, 0, 1, "OWNER@", nfsstat4::inval, ""},
        {0, 0x10, 1, "OWNER@", nfsstat4::attrnotsupp, ""},
        {0, 0x20, 1, "OWNER@", nfsstat4::attrnotsupp, ""},
        {0, 0x100, 1, "OWNER@", nfsstat4::inval, ""},
        {0, 0x08, 1, "OWNER@", nfsstat4::attrnotsupp, ""}, // only inherited, and by nobody
        {0, 0x04, 1, "OWNER@", nfsstat4::attrnotsupp, ""},
        {0, 0, 0x800, "OWNER@", nfsstat4::inval, ""},
        {0, 0, 0x200000, "OWNER@", nfsstat4::inval, ""},
    };
    for (const auto& row : table) {
        storage::ace entry;
        BOOST_TEST_CONTEXT(row.who << " " << row.type << " " << row.flag << " " << row.mask)
        {
            BOOST_TEST((from_ace({row.type, row.flag, row.mask, row.who}, entry) == row.status));
            if (row.status == nfsstat4::ok)
                BOOST_TEST(text_of(entry) == row.told);
        }
    }
}

BOOST_AUTO_TEST_CASE(comparing)
{
    attributes ours;
    ours.present = {attribute::size, attribute::mode, attribute::rdattr_error, attribute::owner};
    ours.size = 5;
    ours.mode = 0644;
    ours.owner = "1000";
    std::array<std::byte, 64> scratch{};
    const auto compared = [&](const bitmap4& mask, std::string_view hex) {
        return compare_attributes(raw(mask, hex), known_attributes - bitmap4{attribute::acl}, ours, scratch);
    };
    using enum attribute;
    BOOST_TEST((compared({attribute::size, mode}, "00000000 00000005 000001a4") == nfsstat4::same));
    BOOST_TEST((compared(bitmap4{}, "") == nfsstat4::same));
    BOOST_TEST((compared({owner}, "00000004 31303030") == nfsstat4::same));
    BOOST_TEST((compared({attribute::size, mode}, "00000000 00000005 000001a5") == nfsstat4::not_same));
    BOOST_TEST((compared({attribute::size}, "00000000 00000005 00000000") == nfsstat4::badxdr));
    BOOST_TEST((compared({attribute::size}, "00000000") == nfsstat4::badxdr));
    BOOST_TEST((compared({change}, "00000000 00000005") == nfsstat4::not_same)); // we have none
    BOOST_TEST((compared({acl}, none_hex) == nfsstat4::attrnotsupp));
    BOOST_TEST((compared({fs_locations}, none_hex) == nfsstat4::attrnotsupp));
    BOOST_TEST((compared({rdattr_error}, "00000000") == nfsstat4::inval));
    BOOST_TEST((compared({time_access_set}, "00000000") == nfsstat4::inval));
    BOOST_TEST((compared({mode_umask}, "00000000 00000000") == nfsstat4::inval));
    BOOST_TEST((compare_attributes(raw({attribute::size}, "00000000 00000005"), everything, ours,
                                   std::span(scratch).first(7)) == nfsstat4::serverfault));
}

BOOST_AUTO_TEST_CASE(lengths)
{
    const auto fattr = both_ways<fattr4>(attrs_hex, bytes);
    BOOST_TEST(is_attrs(fattr));
    refused<fattr4>(hex({bits_hex, "00100001", std::string(2 * 1048580, '0')}));
    refused<nfsace4>("00000000 00000000 00000000 00100001 " + std::string(2 * 1048580, '6'));
    refused<sec_label4>("00000000 00000000 00000801 " + std::string(2 * 2052, '6'));
}

BOOST_AUTO_TEST_SUITE_END()
