// SPDX-License-Identifier: Apache-2.0
// The number of an inode in a handle, as the kernel's file systems write it there.
#include <boost/test/unit_test.hpp>

#include "../../../plugins/posixfs/handles.hpp"

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

BOOST_AUTO_TEST_SUITE(posixfs_inode_test)

using namespace verbena;

namespace {

std::optional<std::uint64_t> number_in(std::initializer_list<unsigned> octets)
{
    std::vector<std::byte> bytes;
    for (const unsigned o : octets)
        bytes.push_back(std::byte(o));
    return posixfs::inode_in(storage::handle(bytes));
}

} // namespace

BOOST_AUTO_TEST_CASE(forms_that_are_known)
{
    // ext4: 32 bits of the inode, and its generation. The same on a mount beneath the root, with that one's key.
    BOOST_TEST((number_in({1, 0x01, 0xb3, 0x04, 0, 0, 9, 9, 9, 9}) == 0x4b3U));
    BOOST_TEST((number_in({4, 0x01, 7, 7, 7, 7, 0xb3, 0x04, 0, 0, 9, 9, 9, 9}) == 0x4b3U));
    // tmpfs: the generation, and 64 bits in two halves.
    BOOST_TEST((number_in({1, 0x01, 9, 9, 9, 9, 0xb3, 0x04, 0, 0, 1, 0, 0, 0}) == 0x1000004b3U));
    // xfs with 64 bits.
    BOOST_TEST((number_in({1, 0x81, 0xb3, 0x04, 0, 0, 1, 0, 0, 0, 9, 9, 9, 9}) == 0x1000004b3U));
    // btrfs: its object's id in front of its root's.
    BOOST_TEST(
        (number_in({1, 0x4d, 0xb3, 0x04, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9}) == 0x4b3U));
    // By path: device, inode, generation, instance.
    BOOST_TEST(
        (number_in({3, 8, 8, 8, 8, 0xb3, 0x04, 0, 0, 1, 0, 0, 0, 9, 9, 9, 9, 6, 6, 6, 6}) == 0x1000004b3U));
}

BOOST_AUTO_TEST_CASE(others_say_nothing)
{
    BOOST_TEST((number_in({}) == std::nullopt));
    BOOST_TEST((number_in({1}) == std::nullopt));
    BOOST_TEST((number_in({4, 0x01, 7, 7}) == std::nullopt));                         // cut short
    BOOST_TEST((number_in({1, 0xf8, 0xb3, 0x04, 0, 0, 9, 9, 9, 9}) == std::nullopt)); // overlayfs
    BOOST_TEST((number_in({1, 0x01, 0xb3, 0x04, 0, 0, 9, 9, 9, 9, 9}) ==
                std::nullopt)); // of no length that is known
    BOOST_TEST((number_in({3, 8, 8, 8, 8, 0xb3, 0x04, 0, 0, 1, 0, 0}) == std::nullopt)); // cut short
    BOOST_TEST((number_in({5, 0, 0}) == std::nullopt));                                  // nowhere
}

BOOST_AUTO_TEST_SUITE_END()
