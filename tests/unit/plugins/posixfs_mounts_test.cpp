// SPDX-License-Identifier: Apache-2.0
// How file handles name mounts beneath an export.
#define BOOST_TEST_MODULE posixfs_mounts
#include <boost/test/unit_test.hpp>

#include "../../../plugins/posixfs/mount_table.hpp"

using namespace verbena::posixfs;

namespace {

std::unique_ptr<mount_point> mounted(int id, std::uint64_t identity)
{
    auto m = std::make_unique<mount_point>();
    m->id = id;
    m->identity = identity;
    return m;
}

int id_of(const mount_point* m) { return m == nullptr ? -1 : m->id; }

// Both have the key 0x33333333.
constexpr std::uint64_t one = 0x1111111122222222;
constexpr std::uint64_t other = 0x0000000033333333;

} // namespace

BOOST_AUTO_TEST_CASE(mounts_are_found_by_id_and_by_key)
{
    mount_table t;
    BOOST_TEST(t.add(mounted(7, one)));
    BOOST_TEST(t.add(mounted(8, 0x44444444)));
    BOOST_TEST(id_of(t.by_id(8)) == 8);
    BOOST_TEST(id_of(t.by_id(9)) == -1);
    BOOST_TEST(id_of(t.by_key(0x33333333)) == 7);
    BOOST_TEST(id_of(t.by_key(0x44444444)) == 8);
    BOOST_TEST(id_of(t.by_key(0)) == -1);
}

BOOST_AUTO_TEST_CASE(mounts_whose_keys_agree_are_not_found_whichever_came_first)
{
    for (const auto& [first, second] : {std::pair(one, other), std::pair(other, one)}) {
        mount_table t;
        BOOST_TEST(t.add(mounted(7, first)));
        BOOST_TEST(t.add(mounted(8, 0x44444444)));
        BOOST_TEST(!t.add(mounted(9, second)));
        BOOST_TEST(id_of(t.by_key(0x33333333)) == -1);
        BOOST_TEST(id_of(t.by_id(7)) == -1);
        BOOST_TEST(id_of(t.by_id(9)) == -1);
        BOOST_TEST(t.has(7));
        BOOST_TEST(t.has(9));
        BOOST_TEST(id_of(t.by_id(8)) == 8);
    }
}

BOOST_AUTO_TEST_CASE(the_same_mounted_again_has_the_same_key)
{
    mount_table t;
    BOOST_TEST(t.add(mounted(7, one)));
    BOOST_TEST(t.add(mounted(8, one)));
    BOOST_TEST(id_of(t.by_key(0x33333333)) == 7);
    BOOST_TEST(id_of(t.by_id(8)) == 8);
}

BOOST_AUTO_TEST_CASE(the_table_is_bounded)
{
    mount_table t;
    for (std::size_t i = 0; i < mount_table::max_mounts; ++i) {
        BOOST_TEST(!t.full());
        BOOST_TEST(t.add(mounted(int(i), i)));
    }
    BOOST_TEST(t.full());
}
