// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/core/siphash.hpp>

#include <vector>

BOOST_AUTO_TEST_SUITE(siphash_test)

using verbena::siphash;

// The vectors of the reference implementation: key 00..0f, messages 00, 00 01, 00 01 02...
BOOST_AUTO_TEST_CASE(published_vectors)
{
    verbena::siphash_key key;
    for (unsigned i = 0; i < key.size(); ++i)
        key[i] = std::byte(i);
    const struct {
        unsigned length;
        std::uint64_t hash;
    } vectors[] = {{0, 0x726fdb47dd0e0e31}, {1, 0x74f839c593dc67fd},  {2, 0x0d6c8009d9a94f5a},
                   {3, 0x85676696d7fb7e2d}, {7, 0xab0200f58b01d137},  {8, 0x93f5f5799a932462},
                   {9, 0x9e0082df0ba9e4b0}, {15, 0xa129ca6149be45e5}, {16, 0x3f2acc7f57c29bdb},
                   {63, 0x958a324ceb064572}};
    std::vector<std::byte> message;
    for (const auto& vector : vectors) {
        while (message.size() < vector.length)
            message.push_back(std::byte(message.size()));
        BOOST_TEST(siphash(key, message) == vector.hash, "a message of " << vector.length << " bytes");
    }
}

BOOST_AUTO_TEST_SUITE_END()
