// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/protocols/nfs/wire/v3/mount.hpp>

#include "bytes.hpp"

BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::nfs::mount3::mountstat3)

BOOST_AUTO_TEST_SUITE(mount3_test)

using namespace verbena::test;
using namespace verbena::nfs::mount3;
using verbena::xdr::decoder;
using verbena::xdr::encoder;

namespace {

template<class Write>
std::string written(Write&& write)
{
    std::vector<std::byte> block(4096);
    encoder out(block);
    write(out);
    BOOST_TEST(out.ok());
    return to_hex(out.bytes());
}

} // namespace

BOOST_AUTO_TEST_CASE(mnt_arguments)
{
    const auto bytes = from_hex("00000007 2f657870 6f727400"); // "/export"
    decoder in(bytes);
    dirpath args;
    decode(in, args);
    BOOST_TEST(args.path == "/export");
    BOOST_TEST(in.at_end());
    BOOST_TEST(written([&](encoder& out) { encode(out, args); }) == to_hex(bytes));
}

BOOST_AUTO_TEST_CASE(paths_end_at_1024_bytes)
{
    for (const std::size_t length : {1024u, 1025u}) {
        std::vector<std::byte> block(2048);
        encoder out(block);
        const std::string path(length, '/');
        encode(out, dirpath{path});
        decoder in(out.bytes());
        dirpath args;
        decode(in, args);
        BOOST_TEST(in.ok() == (length == 1024));
    }
}

BOOST_AUTO_TEST_CASE(mnt_result)
{
    const auto bytes = from_hex("00000000 00000005 aabbccdd ee000000 00000002 00000001 00000000");
    decoder in(bytes);
    mountres3 res;
    decode(in, res);
    BOOST_TEST(in.at_end());
    BOOST_TEST(res.status == mountstat3::ok);
    BOOST_TEST(to_hex(res.fhandle.bytes()) == "aabbccdd ee");
    BOOST_REQUIRE(res.auth_flavor_count == 2u);
    BOOST_TEST(res.auth_flavors[0] == 1u);
    BOOST_TEST(res.auth_flavors[1] == 0u);
    BOOST_TEST(written([&](encoder& out) { encode(out, res); }) == to_hex(bytes));
}

BOOST_AUTO_TEST_CASE(mnt_refused)
{
    const auto bytes = from_hex("0000000d");
    decoder in(bytes);
    mountres3 res;
    decode(in, res);
    BOOST_TEST(in.at_end());
    BOOST_TEST(res.status == mountstat3::acces);
    BOOST_TEST(written([&](encoder& out) { encode(out, res); }) == to_hex(bytes));
}

BOOST_AUTO_TEST_CASE(mnt_result_malformed)
{
    for (const std::string_view text : {
             "00000000 00000041 00000000",          // handle over 64 bytes
             "00000000 00000004 aabbccdd 00000011", // more flavors than the message or we hold
             "00000000 00000004 aabbccdd 00000002 00000001",
             "00000000 00000004 aabbccdd",
             "",
         }) {
        const auto bytes = from_hex(text);
        decoder in(bytes);
        mountres3 res;
        decode(in, res);
        BOOST_TEST(!in.ok());
    }
    const std::string sixteen(16 * 8, '1'), seventeen(17 * 8, '1');
    const auto fits = from_hex("00000000 00000000 00000010" + sixteen);
    const auto over = from_hex("00000000 00000000 00000011" + seventeen);
    mountres3 res;
    decoder in_fits(fits), in_over(over);
    decode(in_fits, res);
    BOOST_TEST(in_fits.ok());
    decode(in_over, res);
    BOOST_TEST(!in_over.ok());
}

BOOST_AUTO_TEST_CASE(largest_mnt_result)
{
    mountres3 res;
    BOOST_TEST(res.fhandle.assign(std::vector<std::byte>(64)));
    res.auth_flavor_count = max_auth_flavors;
    std::vector<std::byte> block(max_mnt_reply_size);
    encoder out(block);
    encode(out, res);
    BOOST_TEST(out.ok());
    BOOST_TEST(out.room() == 0u);
}

BOOST_AUTO_TEST_CASE(dump)
{
    const auto bytes = from_hex("00000001 00000005 616c7068 61000000 00000002 2f610000"
                                "00000001 00000000 00000002 2f620000 00000000");
    decoder in(bytes);
    mount_entry first, second, none;
    BOOST_TEST(next(in, first));
    BOOST_TEST(first.hostname == "alpha");
    BOOST_TEST(first.directory == "/a");
    BOOST_TEST(next(in, second));
    BOOST_TEST(second.hostname == "");
    BOOST_TEST(second.directory == "/b");
    BOOST_TEST(!next(in, none));
    BOOST_TEST(in.at_end());
    BOOST_TEST(written([&](encoder& out) {
                   encode(out, first);
                   encode(out, second);
                   end_of_list(out);
               }) == to_hex(bytes));

    decoder cut{std::span(bytes).first(20)};
    BOOST_TEST(!next(cut, none));
    BOOST_TEST(!cut.ok());
}

namespace {
// "/a" for "x" and "yz", "/b" for everybody.
constexpr std::string_view export_list = "00000001 00000002 2f610000 00000001 00000001 78000000"
                                         "00000001 00000002 797a0000 00000000"
                                         "00000001 00000002 2f620000 00000000 00000000";
} // namespace

BOOST_AUTO_TEST_CASE(exports)
{
    const auto bytes = from_hex(export_list);
    decoder in(bytes);
    export_reader reader(in);
    std::string seen;
    std::string_view directory, group;
    while (reader.next(directory)) {
        seen.append(directory);
        while (reader.next_group(group))
            seen.append(" ").append(group);
        seen += ';';
    }
    BOOST_TEST(seen == "/a x yz;/b;");
    BOOST_TEST(in.at_end());
    BOOST_TEST(!reader.next(directory));
    BOOST_TEST(in.ok()); // asking again reads nothing

    const std::string_view groups[] = {"x", "yz"};
    BOOST_TEST(written([&](encoder& out) {
                   encode_export(out, "/a", groups);
                   encode_export(out, "/b", {});
                   end_of_list(out);
               }) == to_hex(bytes));
}

BOOST_AUTO_TEST_CASE(exports_with_groups_left_unread)
{
    const auto bytes = from_hex(export_list);
    decoder in(bytes);
    export_reader reader(in);
    std::string_view directory;
    BOOST_TEST(reader.next(directory));
    BOOST_TEST(reader.next(directory));
    BOOST_TEST(directory == "/b");
    BOOST_TEST(!reader.next(directory));
    BOOST_TEST(in.at_end());
}

BOOST_AUTO_TEST_CASE(exports_cut_short)
{
    const auto bytes = from_hex(export_list);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        decoder in{std::span(bytes).first(length)};
        export_reader reader(in);
        std::string_view directory, group;
        while (reader.next(directory)) {
            while (reader.next_group(group)) {
            }
        }
        BOOST_TEST(!in.ok());
    }
}

BOOST_AUTO_TEST_CASE(names_of_values)
{
    for (std::uint32_t value = 0; value < procedure_count; ++value)
        BOOST_TEST(to_string(static_cast<procedure>(value)) != "unknown");
    BOOST_TEST(to_string(static_cast<procedure>(6)) == "unknown");
    for (const std::uint32_t value : {0u, 1u, 2u, 5u, 13u, 20u, 22u, 63u, 10004u, 10006u})
        BOOST_TEST(to_string(static_cast<mountstat3>(value)) != "MNT3ERR_unknown");
    BOOST_TEST(to_string(mountstat3::acces) == "MNT3ERR_ACCES");
    BOOST_TEST(to_string(static_cast<mountstat3>(3)) == "MNT3ERR_unknown");
}

BOOST_AUTO_TEST_SUITE_END()
