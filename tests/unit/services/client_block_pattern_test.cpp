// SPDX-License-Identifier: Apache-2.0
// What `verbena block verify` writes and looks for.
#include <boost/test/unit_test.hpp>

#include <client/block_pattern.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

BOOST_AUTO_TEST_SUITE(client_block_pattern_test)

using verbena::cli::block_pattern;

namespace {

std::vector<std::byte> filled(std::uint64_t seed, std::uint64_t offset, std::size_t size)
{
    std::vector<std::byte> bytes(size);
    block_pattern(seed).fill(offset, bytes);
    return bytes;
}

} // namespace

BOOST_AUTO_TEST_CASE(bytes_follow_from_seed_and_place_alone)
{
    const auto all = filled(7, 0, 8192);
    const auto second = filled(7, 4096, 4096);
    BOOST_TEST((std::vector(all.begin() + 4096, all.end()) == second));
    BOOST_TEST((filled(8, 4096, 4096) != second));
    // As they were written by the version before, so that the next one can compare them: SplitMix64 of mix(1) + n * gamma.
    const auto one = filled(1, 8, 8);
    const std::array<unsigned, 8> expected = {0x72, 0xd7, 0xc2, 0xdd, 0x30, 0x80, 0xef, 0xbf};
    for (std::size_t i = 0; i < one.size(); ++i)
        BOOST_TEST(std::to_integer<unsigned>(one[i]) == expected[i]);
}

BOOST_AUTO_TEST_CASE(each_bit_counts)
{
    auto bytes = filled(1, 512, 512);
    const block_pattern one(1);
    BOOST_TEST(one.is_at(512, bytes));
    BOOST_TEST(!one.is_at(0, bytes));
    for (const std::size_t i : {0u, 255u, 511u}) {
        bytes[i] ^= std::byte(0x80);
        BOOST_TEST(!one.is_at(512, bytes));
        bytes[i] ^= std::byte(0x80);
    }
    BOOST_TEST(one.is_at(512, bytes));
}

BOOST_AUTO_TEST_CASE(a_torn_block_has_some_of_its_words)
{
    const block_pattern one(1);
    auto bytes = filled(1, 512, 512);
    BOOST_TEST(one.words_at(512, bytes) == 64u);
    BOOST_TEST(one.words_at(0, bytes) == 0u);
    const auto before = filled(2, 512, 512);
    std::ranges::copy(std::span(before).first(128), bytes.begin());
    BOOST_TEST(one.words_at(512, bytes) == 48u);
}

BOOST_AUTO_TEST_CASE(a_block_tells_where_it_belongs)
{
    const block_pattern one(1);
    constexpr std::uint64_t size = std::uint64_t(1) << 50;
    for (const std::uint64_t place :
         {std::uint64_t(0), std::uint64_t(512), std::uint64_t(123) << 30, size - 512}) {
        const auto found = one.place_of(filled(1, place, 512), size);
        BOOST_REQUIRE(found.has_value());
        BOOST_TEST(*found == place);
    }
    BOOST_TEST(!one.place_of(filled(2, 512, 512), size).has_value());
    BOOST_TEST(!one.place_of(filled(1, size, 512), size).has_value());
    BOOST_TEST(!one.place_of(filled(1, 1024, 512), 1024 + 256).has_value());
    auto torn = filled(1, 512, 512);
    torn[511] ^= std::byte(1);
    BOOST_TEST(!one.place_of(torn, size).has_value());
}

BOOST_AUTO_TEST_SUITE_END()
