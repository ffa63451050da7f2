// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/core/memory/copy.hpp>

#include <cstddef>
#include <vector>

BOOST_AUTO_TEST_SUITE(copy_test)

using namespace verbena;

// Lines of a cache begin where they like in what is copied, and so do its two ends.
BOOST_AUTO_TEST_CASE(a_copy_past_the_caches_writes_its_bytes_and_no_others)
{
    constexpr std::size_t room = 512;
    std::vector<std::byte> from(room);
    for (std::size_t i = 0; i < room; ++i)
        from[i] = std::byte(i % 250 + 1);
    for (std::size_t to_begin = 0; to_begin < 64; ++to_begin) {
        for (std::size_t from_begin = 0; from_begin < 17; ++from_begin) {
            for (const std::size_t count : {0, 1, 15, 63, 64, 65, 127, 128, 129, 200, 320}) {
                std::vector<std::byte> to(room);
                copy_past_caches(to.data() + to_begin, from.data() + from_begin, count);
                std::vector<std::byte> expected(room);
                for (std::size_t i = 0; i < count; ++i)
                    expected[to_begin + i] = from[from_begin + i];
                BOOST_TEST_REQUIRE((to == expected),
                                   count << " bytes from " << from_begin << " to " << to_begin);
            }
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
