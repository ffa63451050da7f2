// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include "../../../transports/iwarp/wire.hpp"

#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(iwarp_wire_test)

using namespace verbena;
using namespace verbena::iwarp;

namespace {

std::vector<std::byte> hex(const std::string& text)
{
    std::vector<std::byte> out;
    std::string digits;
    for (char c : text) {
        if (c != ' ')
            digits.push_back(c);
    }
    for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
        out.push_back(std::byte(std::stoul(digits.substr(i, 2), nullptr, 16)));
    return out;
}

std::uint32_t crc_of(const std::vector<std::byte>& b) { return wire::crc32c(0, b.data(), b.size()); }

} // namespace

BOOST_AUTO_TEST_CASE(crc_vectors)
{
    const std::string digits = "123456789";
    BOOST_TEST(wire::crc32c(0, reinterpret_cast<const std::byte*>(digits.data()), 9) == 0xe3069283u);
    BOOST_TEST(crc_of(std::vector<std::byte>(32)) == 0x8a9136aau); // RFC 3720 B.4
    // RFC 5044 figure 5 with its marker word, and figure 6; the wire has the least significant byte first.
    auto figure5 = hex("00000000 002a 4143 00000000 00000000 00000001 00000000");
    figure5.resize(figure5.size() + 24);
    BOOST_TEST(crc_of(figure5) == 0x83992352u);
    auto figure6 = hex("002a 4143 00000000 00000000 00000002 00000000 00000014");
    figure6.resize(figure6.size() + 24);
    BOOST_TEST(crc_of(figure6) == 0x98589284u);
    // In parts, it is the same.
    const auto first = wire::crc32c(0, figure6.data(), 7);
    BOOST_TEST(wire::crc32c(first, figure6.data() + 7, figure6.size() - 7) == 0x98589284u);
}

// The bytes that a kernel siw client sends and the reply that it accepts.
BOOST_AUTO_TEST_CASE(startup_frames_of_the_kernel)
{
    const auto request = hex("4d504120494420526571204672616d65 10 02 000c 0080 0000 f6ab0e18 01 01 03 03");
    const auto frame = wire::parse_mpa(std::span(request).first<20>(), false);
    BOOST_REQUIRE(frame);
    BOOST_TEST(frame->enhanced);
    BOOST_TEST(!frame->crc);
    BOOST_TEST(!frame->markers);
    BOOST_TEST(unsigned(frame->revision) == 2u);
    BOOST_TEST(frame->private_data_length == 12u);
    const auto depths = wire::parse_depths(std::span(request).subspan<20, 4>());
    BOOST_TEST(depths.ird == 128u);
    BOOST_TEST(depths.ord == 0u);
    BOOST_TEST(!depths.peer_to_peer);

    std::vector<std::byte> reply(24);
    wire::mpa_frame f;
    f.reply = true;
    f.enhanced = true;
    f.private_data_length = 12;
    wire::mpa_depths d;
    d.ord = 128;
    wire::encode_mpa(f, reply.data());
    wire::encode_depths(d, reply.data() + 20);
    BOOST_TEST((reply == hex("4d504120494420526570204672616d65 10 02 000c 0000 0080")));
}

BOOST_AUTO_TEST_CASE(startup_frames_that_are_wrong)
{
    auto bytes = hex("4d504120494420526571204672616d65 10 02 000c");
    BOOST_TEST(!wire::parse_mpa(std::span(bytes).first<20>(), true)); // a request where a reply belongs
    bytes[18] = std::byte(0x02);                                      // 524 octets
    BOOST_TEST(!wire::parse_mpa(std::span(bytes).first<20>(), false));
    bytes[18] = std::byte(0);
    bytes[19] = std::byte(3); // enhanced without room for IRD and ORD
    BOOST_TEST(!wire::parse_mpa(std::span(bytes).first<20>(), false));
    bytes[0] = std::byte('m');
    bytes[19] = std::byte(12);
    BOOST_TEST(!wire::parse_mpa(std::span(bytes).first<20>(), false));
}

BOOST_AUTO_TEST_CASE(headers)
{
    std::vector<std::byte> b(48);
    const wire::tagged_header w{wire::opcode::write, true, 0x11223344, 0x0102030405060708};
    BOOST_TEST(wire::encode(w, 100, b.data()) == 16u);
    BOOST_TEST((std::vector(b.begin(), b.begin() + 16) == hex("0072 c140 11223344 0102030405060708")));
    const wire::untagged_header s{wire::opcode::send_invalidate, false, 0xaabbccdd, 0, 7, 4096};
    BOOST_TEST(wire::encode(s, 8, b.data()) == 20u);
    BOOST_TEST(
        (std::vector(b.begin(), b.begin() + 20) == hex("001a 0144 aabbccdd 00000000 00000007 00001000")));
    const auto back = wire::parse_untagged(b.data());
    BOOST_TEST(back.sequence == 7u);
    BOOST_TEST(back.invalidate == 0xaabbccddu);
    BOOST_TEST(wire::pad_of(0x2a) == 0u);
    BOOST_TEST(wire::pad_of(15) == 3u);
}

BOOST_AUTO_TEST_CASE(terminate_is_read_both_ways)
{
    const auto r = wire::parse_terminate(hex("12 02 00 00"));
    BOOST_TEST(unsigned(r.as_specified.layer) == 1u);
    BOOST_TEST(unsigned(r.as_specified.type) == 2u);
    BOOST_TEST(unsigned(r.as_siw.layer) == 2u);
    BOOST_TEST(unsigned(wire::parse_terminate({}).as_specified.code) == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
