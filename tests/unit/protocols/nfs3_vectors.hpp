// SPDX-License-Identifier: Apache-2.0
// What the tests of the NFS version 3 codec share: pieces of messages written by hand from RFC 1813,
// and one check for any argument or result.
#pragma once

#include <boost/test/unit_test.hpp>

#include <verbena/protocols/nfs/wire/v3/codec.hpp>

#include "bytes.hpp"

#include <initializer_list>
#include <string>
#include <string_view>

namespace verbena::test {

inline std::string hex(std::initializer_list<std::string_view> parts)
{
    std::string text;
    for (const auto part : parts)
        text.append(part).append("\n");
    return text;
}

// A handle of 6 bytes, one of 4, and the name "name.c".
inline constexpr std::string_view handle_1 = "00000006 01020304 05060000";
inline constexpr std::string_view handle_2 = "00000004 a1a2a3a4";
inline constexpr std::string_view name_1 = "00000006 6e616d65 2e630000";
inline constexpr std::string_view name_2 = "00000003 64697200";

// fattr3: type mode nlink uid gid, size used, rdev, fsid fileid, atime mtime ctime.
inline constexpr std::string_view fattr3_hex = "00000002 000001ed 00000003 000003e8 00000064"
                                               "00000001 00000002 00000000 00001000 00000008 00000009"
                                               "000000f5 000000f6 0000001d 0000001e"
                                               "00000031 00000032 00000033 00000034 00000035 00000036";
inline constexpr std::string_view post_op_attr_hex = "00000001"
                                                     "00000002 000001ed 00000003 000003e8 00000064"
                                                     "00000001 00000002 00000000 00001000 00000008 00000009"
                                                     "000000f5 000000f6 0000001d 0000001e"
                                                     "00000031 00000032 00000033 00000034 00000035 00000036";
inline constexpr std::string_view no_attr = "00000000";
// before: size mtime ctime; no attributes after.
inline constexpr std::string_view wcc_before_hex =
    "00000001 00000001 00000000 00000041 00000042 00000043 00000044 00000000";
inline constexpr std::string_view no_wcc = "00000000 00000000";
// mode 0644, no uid, gid 100, size 2^32 + 5, atime of the server, mtime of the client.
inline constexpr std::string_view sattr3_hex =
    "00000001 000001a4 00000000 00000001 00000064"
    "00000001 00000001 00000005 00000001 00000002 00000071 00000072";
inline constexpr std::string_view no_sattr3 = "00000000 00000000 00000000 00000000 00000000 00000000";

inline nfs::v3::fattr3 sample_fattr3()
{
    nfs::v3::fattr3 value;
    value.type = nfs::v3::ftype3::dir;
    value.mode = 0755;
    value.nlink = 3;
    value.uid = 1000;
    value.gid = 100;
    value.size = 0x100000002;
    value.used = 4096;
    value.rdev = {8, 9};
    value.fsid = 0xf5000000f6;
    value.fileid = 0x1d0000001e;
    value.atime = {0x31, 0x32};
    value.mtime = {0x33, 0x34};
    value.ctime = {0x35, 0x36};
    return value;
}

inline nfs::v3::sattr3 sample_sattr3()
{
    nfs::v3::sattr3 value;
    value.mode = 0644;
    value.gid = 100;
    value.size = 0x100000005;
    value.atime.how = nfs::v3::time_how::set_to_server_time;
    value.mtime = {nfs::v3::time_how::set_to_client_time, {0x71, 0x72}};
    return value;
}

inline nfs::v3::wcc_data sample_wcc_before()
{
    nfs::v3::wcc_data value;
    value.before = nfs::v3::wcc_attr{0x100000000, {0x41, 0x42}, {0x43, 0x44}};
    return value;
}

inline nfs::v3::nfs_fh3 handle_of(std::string_view text)
{
    nfs::v3::nfs_fh3 handle;
    BOOST_TEST(handle.assign(from_hex(text)));
    return handle;
}

/// Decodes `text` as a T, and checks that this takes all of it, that every shorter message fails,
/// that encoding gives the same bytes, and that no smaller block holds them. `bytes` outlives the
/// returned value, whose views point into it.
template<class T>
T both_ways(std::string_view text, std::vector<std::byte>& bytes)
{
    bytes = from_hex(text);
    T value;
    xdr::decoder in(bytes);
    decode(in, value);
    BOOST_TEST(in.ok());
    BOOST_TEST(in.at_end());
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        T shorter;
        xdr::decoder cut{std::span(bytes).first(length)};
        decode(cut, shorter);
        BOOST_TEST(!cut.ok());
    }
    std::vector<std::byte> block(bytes.size());
    for (std::size_t length = 0; length <= block.size(); ++length) {
        xdr::encoder out{std::span(block).first(length)};
        encode(out, value);
        BOOST_TEST(out.ok() == (length == bytes.size()));
    }
    BOOST_TEST(to_hex(block) == to_hex(bytes));
    return value;
}

/// Decoding `text` as a T fails.
template<class T>
void refused(std::string_view text)
{
    const auto bytes = from_hex(text);
    T value;
    xdr::decoder in(bytes);
    decode(in, value);
    BOOST_TEST(!in.ok());
}

} // namespace verbena::test
