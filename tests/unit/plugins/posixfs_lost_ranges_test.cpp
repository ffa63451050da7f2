// SPDX-License-Identifier: Apache-2.0
// The ranges of a file that could not be written, against a byte for each byte.
#include "../../../plugins/posixfs/lost_ranges.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <random>
#include <vector>

BOOST_AUTO_TEST_SUITE(posixfs_lost_ranges_test)

using verbena::posixfs::lost_ranges;

namespace {

struct model {
    void add(std::size_t from, std::size_t to)
    {
        std::fill(bytes.begin() + std::ptrdiff_t(from), bytes.begin() + std::ptrdiff_t(to), true);
    }
    std::size_t runs() const
    {
        std::size_t n = 0;
        for (std::size_t i = 0; i < bytes.size(); ++i)
            n += bytes[i] && (i == 0 || !bytes[i - 1]);
        return n;
    }
    std::vector<bool> bytes = std::vector<bool>(2000);
};

} // namespace

BOOST_AUTO_TEST_CASE(what_lies_between_two_is_not_lost)
{
    lost_ranges all;
    BOOST_TEST(!all.has(0, ~0ull));
    all.add(0, 10);
    all.add(1ull << 30, (1ull << 30) + 10);
    BOOST_TEST(all.size() == 2u);
    BOOST_TEST(all.has(9, 11));
    BOOST_TEST(!all.has(10, 1ull << 30));
    BOOST_TEST(all.has(10, (1ull << 30) + 1));
    all.add(5, 5); // nothing
    all.add(20, 20);
    BOOST_TEST(all.size() == 2u);
    all.add(10, 20); // side by side
    BOOST_TEST(all.size() == 2u);
    BOOST_TEST(all.has(19, 20));
    BOOST_TEST(!all.has(20, 21));
}

// All that is lost is told, and no more of them are kept than may be; as long as there is room nothing else is told.
BOOST_AUTO_TEST_CASE(random_ranges_agree_with_a_byte_for_each)
{
    for (unsigned seed = 1; seed <= 200; ++seed) {
        std::mt19937 draw(seed);
        const auto upto = [&](std::size_t n) { return std::size_t(draw()) % n; };
        lost_ranges all;
        model lost;
        bool had_room = true;
        const std::size_t longest = 1 + upto(20);
        for (int step = 0; step < 150; ++step) {
            const std::size_t from = upto(1900), to = from + upto(longest + 1);
            all.add(from, to);
            lost.add(from, to);
            had_room = had_room && lost.runs() <= lost_ranges::most;
            BOOST_TEST_REQUIRE(all.size() <= lost_ranges::most);
            if (had_room)
                BOOST_TEST_REQUIRE(all.size() == lost.runs());
        }
        for (std::size_t i = 0; i < lost.bytes.size(); ++i) {
            const bool is = all.has(i, i + 1);
            BOOST_TEST_REQUIRE((is || !lost.bytes[i]));
            if (had_room)
                BOOST_TEST_REQUIRE(is == lost.bytes[i]);
        }
    }
}

// The two with the least between them.
BOOST_AUTO_TEST_CASE(where_there_is_no_room_the_nearest_become_one)
{
    lost_ranges all;
    for (std::uint64_t i = 0; i < lost_ranges::most; ++i)
        all.add(i * 1000, i * 1000 + (i == 7 ? 900 : 10));
    BOOST_TEST(!all.has(7900, 8000));
    all.add(1'000'000, 1'000'001);
    BOOST_TEST(all.size() == lost_ranges::most);
    BOOST_TEST(all.has(7900, 8000));
    BOOST_TEST(!all.has(6010, 7000));
    BOOST_TEST(!all.has(8010, 9000));
    BOOST_TEST(!all.has(63'010, 1'000'000));
    BOOST_TEST(all.has(1'000'000, 1'000'001));
}

BOOST_AUTO_TEST_SUITE_END()
