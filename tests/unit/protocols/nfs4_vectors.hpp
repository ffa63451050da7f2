// SPDX-License-Identifier: Apache-2.0
// What the tests of the NFS version 4 codec share: pieces of messages written by hand from the XDR of RFC 7863, and one check for
// any type with a codec.
#pragma once

#include <boost/test/unit_test.hpp>

#include <verbena/protocols/nfs/wire/v4/callback.hpp>
#include <verbena/protocols/nfs/wire/v4/compound.hpp>

#include "bytes.hpp"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::test {

inline std::string hex(std::initializer_list<std::string_view> parts)
{
    std::string text;
    for (const auto part : parts)
        text.append(part).append("\n");
    return text;
}

inline constexpr std::string_view ok_hex = "00000000";
inline constexpr std::string_view none_hex = "00000000"; // of an array, an optional, an opaque
inline constexpr std::string_view sid_7 = "00000007 a0a1a2a3 a4a5a6a7 a8a9aaab";
inline constexpr std::string_view sid_8 = "00000008 b0b1b2b3 b4b5b6b7 b8b9babb";
inline constexpr std::string_view session_hex = "c0c1c2c3 c4c5c6c7 c8c9cacb cccdcecf";
inline constexpr std::string_view device_hex = "d0d1d2d3 d4d5d6d7 d8d9dadb dcdddedf";
inline constexpr std::string_view verifier_hex = "e0e1e2e3 e4e5e6e7";
inline constexpr std::string_view handle_hex = "00000006 01020304 05060000";
inline constexpr std::string_view name_hex = "00000006 6e616d65 2e630000"; // "name.c"
inline constexpr std::string_view dir_hex = "00000003 64697200";           // "dir"
inline constexpr std::string_view offset_hex = "00000001 00000002";        // 2^32 + 2
inline constexpr std::string_view length_hex = "00000003 00000004";        // 3 * 2^32 + 4
inline constexpr std::string_view cinfo_hex = "00000001 00000021 00000022 00000031 00000032";
inline constexpr std::string_view owner_hex = "00000011 00000012 00000005 6f776e65 72000000"; // "owner"
inline constexpr std::string_view time_hex = "ffffffff fffffffe 00000063"; // 2 s before 1970
// Bits 3 and 4; bits 4 and 33.
inline constexpr std::string_view bits_hex = "00000001 00000018";
inline constexpr std::string_view size_mode_bits = "00000002 00000010 00000002";
// size 5, mode 0644.
inline constexpr std::string_view attrs_hex =
    "00000002 00000010 00000002 0000000c 00000000 00000005 000001a4";
inline constexpr std::string_view no_attrs = "00000000 00000000";

inline nfs::v4::stateid4 stateid(std::uint32_t seqid, unsigned char first)
{
    nfs::v4::stateid4 value;
    value.seqid = seqid;
    for (std::byte& each : value.other)
        each = std::byte(first++);
    return value;
}
inline nfs::v4::stateid4 stateid_7() { return stateid(7, 0xa0); }
inline nfs::v4::stateid4 stateid_8() { return stateid(8, 0xb0); }

template<class Array>
Array counted(unsigned char first)
{
    Array value{};
    for (std::byte& each : value)
        each = std::byte(first++);
    return value;
}
inline nfs::v4::sessionid4 session() { return counted<nfs::v4::sessionid4>(0xc0); }
inline nfs::v4::deviceid4 device() { return counted<nfs::v4::deviceid4>(0xd0); }
inline nfs::v4::verifier4 verifier() { return counted<nfs::v4::verifier4>(0xe0); }

inline constexpr std::uint64_t offset_value = 0x100000002;
inline constexpr std::uint64_t length_value = 0x300000004;
inline constexpr nfs::v4::change_info4 cinfo_value{true, 0x2100000022, 0x3100000032};

inline bool is_handle(std::span<const std::byte> bytes) { return to_hex(bytes) == "01020304 0506"; }
inline bool is_owner(const nfs::v4::state_owner4& owner)
{
    return owner.clientid == 0x1100000012 && text_of(owner.owner) == "owner";
}
inline bool is_attrs(const nfs::v4::fattr4& attrs)
{
    using nfs::v4::attribute;
    return attrs.attrmask == nfs::v4::bitmap4{attribute::size, attribute::mode} &&
           to_hex(attrs.attr_vals) == "00000000 00000005 000001a4";
}
inline bool is_bits(const nfs::v4::bitmap4& bits) { return bits == nfs::v4::bitmap4{3, 4}; }

template<class T>
std::vector<std::byte> encoded(const T& value)
{
    std::vector<std::byte> block(1 << 17);
    xdr::encoder out(block);
    xdr::codec<T>::encode(out, value);
    BOOST_TEST(out.ok());
    block.resize(out.size());
    return block;
}

/// Decodes `text` as a T, and checks that this takes all of it, that every shorter message fails, that encoding gives the same bytes,
/// that no smaller block holds them, and that the sizes of the type hold unless there is a large_opaque in it. `bytes` outlives the
/// returned value, whose views point into it.
template<class T, bool Sized = true>
T both_ways(std::string_view text, std::vector<std::byte>& bytes)
{
    bytes = from_hex(text);
    T value{};
    xdr::decoder in(bytes);
    xdr::codec<T>::decode(in, value);
    BOOST_TEST(in.ok());
    BOOST_TEST(in.at_end());
    BOOST_TEST(bytes.size() >= xdr::codec<T>::min_size);
    BOOST_TEST((!Sized || bytes.size() <= xdr::codec<T>::max_size));
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        // In a block of its own size, so that AddressSanitizer sees a read behind it.
        const std::vector<std::byte> shorter(bytes.begin(),
                                             bytes.begin() + static_cast<std::ptrdiff_t>(length));
        T cut{};
        xdr::decoder part(shorter);
        xdr::codec<T>::decode(part, cut);
        BOOST_TEST(!part.ok(), "decoded of " << length << " bytes");
    }
    std::vector<std::byte> block(bytes.size());
    for (std::size_t length = 0; length <= block.size(); ++length) {
        xdr::encoder out{std::span(block).first(length)};
        xdr::codec<T>::encode(out, value);
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
    T value{};
    xdr::decoder in(bytes);
    xdr::codec<T>::decode(in, value);
    BOOST_TEST(!in.ok());
}

/// The elements of a list that came, one by one. Sent from our own memory they are the same bytes.
template<class T, std::uint32_t Max>
std::vector<T> elements(const nfs::v4::array_view<T, Max>& list)
{
    std::vector<T> own;
    for (const T each : list)
        own.push_back(each);
    BOOST_TEST(own.size() == list.size());
    BOOST_TEST(to_hex(encoded(nfs::v4::array_view<T, Max>(own))) == to_hex(encoded(list)));
    return own;
}

/// A failed operation is its status and nothing behind it.
template<class Results>
void fails_plainly()
{
    std::vector<std::byte> bytes;
    BOOST_TEST((both_ways<Results>("00002718", bytes).status == nfs::v4::nfsstat4::delay));
}

} // namespace verbena::test
