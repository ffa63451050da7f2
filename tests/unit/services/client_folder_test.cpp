// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <client/folder.hpp>

#include <array>

BOOST_AUTO_TEST_SUITE(client_folder_test)

using verbena::cli::folder;

namespace {

verbena::cli::handle handle(char octet)
{
    const std::array<std::byte, 1> bytes = {std::byte(octet)};
    return verbena::cli::handle(bytes);
}

} // namespace

BOOST_AUTO_TEST_CASE(what_its_children_keep_alive_is_held)
{
    std::size_t held = 0;
    auto top = std::make_shared<const folder>("/a", handle('a'), nullptr, held);
    const std::size_t top_size = held;
    BOOST_TEST(top_size == folder::size_of("/a"));
    auto below = std::make_shared<const folder>("/a/b", handle('b'), top, held);
    const std::size_t both = held;
    BOOST_TEST(both == top_size + folder::size_of("/a/b"));
    top.reset(); // it was listed, and its child was not
    BOOST_TEST(held == both);
    below.reset();
    BOOST_TEST(held == 0u);
}

BOOST_AUTO_TEST_CASE(one_that_lies_in_itself)
{
    std::size_t held = 0;
    auto top = std::make_shared<const folder>("/a", handle('a'), nullptr, held);
    auto below = std::make_shared<const folder>("/a/b", handle('b'), top, held);
    BOOST_TEST(!top->holds_itself());
    BOOST_TEST(!below->holds_itself());
    BOOST_TEST(folder("/a/b/a", handle('a'), below, held).holds_itself());
    BOOST_TEST(!folder("/a/b/c", handle('c'), below, held).holds_itself());
}

BOOST_AUTO_TEST_SUITE_END()
