// SPDX-License-Identifier: Apache-2.0
// Which bytes of a file with RDMA layouts a client may read and write where: the rules of the draft, 2.4.
#include <verbena/protocols/nfs/client/v4/pnfs/layout_map.hpp>

#include <boost/test/unit_test.hpp>

#include <optional>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(nfs4_layout_map_test)

using namespace verbena;
using namespace verbena::nfs::v4;
using pnfs::layout_map;

namespace {

using state = pnfs_rdma_extent_state4;
using how = layout_map::place::how;
constexpr std::uint64_t block = 4096;
constexpr auto reads = layoutiomode4::read;
constexpr auto writes = layoutiomode4::rw;

pnfs_rdma_extent4 extent(state s, std::uint64_t offset, std::uint64_t length, std::uint32_t handle = 1)
{
    pnfs_rdma_extent4 e;
    e.state = s;
    e.file_offset = offset;
    e.length = length;
    e.handle = s == state::none_data ? 0 : handle;
    e.storage_offset = s == state::none_data ? 0 : handle * 0x1000'0000ull + offset;
    return e;
}

std::string told(const std::optional<layout_map::place>& p)
{
    if (!p)
        return "none";
    const std::string length = std::to_string(p->length);
    if (p->is == how::zeros)
        return length + " zeros";
    return length + (p->is == how::uninitialized ? " uninitialized of " : " of ") +
           std::to_string(p->handle) + " at " + std::to_string(p->address - p->handle * 0x1000'0000ull);
}

bool add(layout_map& m, std::vector<pnfs_rdma_extent4> extents, layoutiomode4 mode)
{
    return m.add(extents, mode, block).has_value();
}

} // namespace

BOOST_AUTO_TEST_CASE(rule_4_without_an_extent_there_is_no_io)
{
    layout_map m;
    BOOST_TEST(told(m.to_read(0)) == "none");
    BOOST_TEST(told(m.to_write(0)) == "none");
    BOOST_TEST(add(m, {extent(state::read_data, 8192, 4096)}, reads));
    BOOST_TEST(told(m.to_read(8191)) == "none");
    BOOST_TEST(told(m.to_read(8192)) == "4096 of 1 at 8192");
    BOOST_TEST(told(m.to_read(12287)) == "1 of 1 at 12287");
    BOOST_TEST(told(m.to_read(12288)) == "none");
}

BOOST_AUTO_TEST_CASE(rule_4_what_is_given_to_read_is_not_written)
{
    layout_map m;
    BOOST_TEST(add(m, {extent(state::read_data, 0, 4096), extent(state::none_data, 4096, 4096)}, reads));
    BOOST_TEST(told(m.to_write(0)) == "none");
    BOOST_TEST(told(m.to_write(4096)) == "none");
}

BOOST_AUTO_TEST_CASE(rule_3_a_hole_reads_as_zeros_without_io)
{
    layout_map m;
    BOOST_TEST(add(m, {extent(state::none_data, 0, 8192), extent(state::read_data, 8192, 4096)}, reads));
    BOOST_TEST(told(m.to_read(100)) == "8092 zeros");
    BOOST_TEST(told(m.to_read(8192)) == "4096 of 1 at 8192");
}

BOOST_AUTO_TEST_CASE(what_was_given_to_write_since_hides_what_was_a_hole)
{
    layout_map m;
    BOOST_TEST(add(m, {extent(state::none_data, 0, 3 * block)}, reads));
    BOOST_TEST(add(m, {extent(state::read_write_data, block, block, 2)}, writes));
    BOOST_TEST(told(m.to_read(0)) == "4096 zeros");
    BOOST_TEST(told(m.to_read(block)) == "4096 of 2 at 4096");
    BOOST_TEST(told(m.to_read(2 * block)) == "4096 zeros");
    // And a layout to read that comes later does not hide what may be written.
    BOOST_TEST(add(m, {extent(state::none_data, 0, 3 * block)}, reads));
    BOOST_TEST(told(m.to_read(0)) == "4096 zeros");
    BOOST_TEST(told(m.to_read(block)) == "4096 of 2 at 4096");
    // When that goes back, what was a hole is not told any more, as it may have bytes.
    m.cut(0, UINT64_MAX, writes);
    BOOST_TEST(told(m.to_write(block)) == "none");
    BOOST_TEST(told(m.to_read(block)) == "none");
    BOOST_TEST(told(m.to_read(2 * block)) == "4096 zeros");
    // A hole that may be filled is forgotten; data stay where they are.
    BOOST_TEST(add(m, {extent(state::read_data, 4 * block, block)}, reads));
    m.forget_holes();
    BOOST_TEST(told(m.to_read(0)) == "none");
    BOOST_TEST(told(m.to_read(2 * block)) == "none");
    BOOST_TEST(told(m.to_read(4 * block)) == "4096 of 1 at 16384");
}

BOOST_AUTO_TEST_CASE(rule_3_uninitialized_memory_reads_as_what_lies_beneath_or_zeros)
{
    layout_map m;
    BOOST_TEST(add(m,
                   {extent(state::read_data, block, block, 1), extent(state::invalid_data, 0, 4 * block, 2)},
                   writes) == true);
    BOOST_TEST(told(m.to_read(0)) == "4096 zeros");
    BOOST_TEST(told(m.to_read(10)) == "4086 zeros");
    BOOST_TEST(told(m.to_read(block + 1)) == "4095 of 1 at 4097");
    BOOST_TEST(told(m.to_read(2 * block)) == "8192 zeros");
    BOOST_TEST(told(m.to_write(block + 1)) == "12287 uninitialized of 2 at 4097");
}

BOOST_AUTO_TEST_CASE(rule_1_after_a_write_the_old_extent_is_never_read)
{
    layout_map m;
    BOOST_TEST(add(m,
                   {extent(state::read_data, 0, 4 * block, 1), extent(state::invalid_data, 0, 4 * block, 2)},
                   writes));
    const auto whole = m.blocks_of(block + 1, block);
    BOOST_TEST(whole.offset == block);
    BOOST_TEST(whole.length == 2 * block);
    m.initialized(whole);
    BOOST_TEST(told(m.to_read(0)) == "4096 of 1 at 0");
    BOOST_TEST(told(m.to_read(block)) == "8192 of 2 at 4096");
    BOOST_TEST(told(m.to_read(3 * block)) == "4096 of 1 at 12288");
    BOOST_TEST(told(m.to_write(block)) == "8192 of 2 at 4096");
    BOOST_TEST(told(m.to_write(3 * block)) == "4096 uninitialized of 2 at 12288");
}

BOOST_AUTO_TEST_CASE(rule_6_the_commit_list_is_whole_blocks_in_order_that_do_not_touch)
{
    layout_map m;
    BOOST_TEST(add(m, {extent(state::invalid_data, 0, 16 * block)}, writes));
    m.initialized({8 * block, block});
    m.initialized({0, block});
    m.initialized({2 * block, block});
    m.initialized({block, block});
    const auto list = m.told_later();
    BOOST_TEST_REQUIRE(list.size() == 2u);
    BOOST_TEST((list[0].file_offset == 0 && list[0].length == 3 * block));
    BOOST_TEST((list[1].file_offset == 8 * block && list[1].length == block));
    pnfs_rdma_layoutupdate4 update;
    update.commit_list = list;
    BOOST_TEST(broken_rule(update, block) == "");
    // What is written while a LAYOUTCOMMIT is under way is told by the next one.
    const std::vector<pnfs_rdma_range4> sent(list.begin(), list.end());
    m.initialized({3 * block, block});
    m.told(sent);
    BOOST_TEST_REQUIRE(m.told_later().size() == 1u);
    BOOST_TEST(m.told_later()[0].file_offset == 3 * block);
    BOOST_TEST(m.told_later()[0].length == block);
}

BOOST_AUTO_TEST_CASE(uninitialized_extents_are_of_whole_blocks)
{
    layout_map m;
    BOOST_TEST(!add(m, {extent(state::invalid_data, 0, block + 1)}, writes));
    BOOST_TEST(!add(m, {extent(state::invalid_data, 1, block)}, writes));
    BOOST_TEST(!m.add(std::vector{extent(state::invalid_data, 0, block)}, writes, 0).has_value());
    BOOST_TEST(m.empty());
}

// The server still takes them for uninitialized, until a LAYOUTCOMMIT tells.
BOOST_AUTO_TEST_CASE(rule_5_what_is_filled_up_stays_so_whatever_the_server_gives_again)
{
    layout_map m;
    const std::vector<pnfs_rdma_extent4> given = {extent(state::read_data, 0, 4 * block, 1),
                                                  extent(state::invalid_data, 0, 4 * block, 2)};
    BOOST_TEST(add(m, given, writes));
    m.initialized({block, block});
    BOOST_TEST(add(m, given, writes));
    BOOST_TEST(told(m.to_write(block)) == "4096 of 2 at 4096");
    BOOST_TEST(told(m.to_read(block)) == "4096 of 2 at 4096");
    BOOST_TEST(told(m.to_write(0)) == "4096 uninitialized of 2 at 0");
    BOOST_TEST(told(m.to_read(2 * block)) == "8192 of 1 at 8192");
    BOOST_TEST(m.told_later().size() == 1u);
    // Blocks of two sizes can't be told apart.
    BOOST_TEST(!m.add({}, writes, 2 * block).has_value());
    BOOST_TEST(m.add({}, writes, block).has_value());
}

BOOST_AUTO_TEST_CASE(what_stays_uninitialized_is_whole_blocks)
{
    layout_map m;
    BOOST_TEST(add(
        m, {extent(state::invalid_data, 0, 4 * block), extent(state::read_write_data, 4 * block, block, 3)},
        writes));
    m.cut(0, 1000, writes);
    BOOST_TEST(told(m.to_write(0)) == "none");
    BOOST_TEST(told(m.to_write(block - 1)) == "none");
    BOOST_TEST(told(m.to_write(block)) == "12288 uninitialized of 1 at 4096");
    m.cut(3 * block - 1, 0, writes); // nothing
    BOOST_TEST(told(m.to_write(block)) == "12288 uninitialized of 1 at 4096");
    m.cut(4 * block - 1, 2, writes);
    BOOST_TEST(told(m.to_write(block)) == "8192 uninitialized of 1 at 4096");
    BOOST_TEST(told(m.to_write(4 * block)) == "none");
    BOOST_TEST(told(m.to_write(4 * block + 1)) == "4095 of 3 at 16385");
}

// Or a file that is written in order would have as many extents as it has blocks.
BOOST_AUTO_TEST_CASE(extents_that_follow_each_other_are_one)
{
    layout_map m;
    BOOST_TEST(add(m, {extent(state::invalid_data, 0, 16 * block)}, writes));
    for (const std::uint64_t at : {0, 1, 3, 2})
        m.initialized({at * block, block});
    BOOST_TEST(m.size() == 2u);
    BOOST_TEST(told(m.to_write(0)) == "16384 of 1 at 0");
    // Not of another handle.
    BOOST_TEST(add(m, {extent(state::read_write_data, 16 * block, block, 2)}, writes));
    BOOST_TEST(m.size() == 3u);
}

BOOST_AUTO_TEST_CASE(a_range_that_goes_back_leaves_what_stands_around_it)
{
    layout_map m;
    BOOST_TEST(add(m, {extent(state::read_write_data, 0, 10 * block)}, writes));
    BOOST_TEST(add(m, {extent(state::read_data, 10 * block, 10 * block, 3)}, reads));
    m.cut(2 * block, block, layoutiomode4::any);
    m.cut(12 * block, block, writes); // of another mode
    m.cut(15 * block, UINT64_MAX, reads);
    BOOST_TEST(told(m.to_write(0)) == "8192 of 1 at 0");
    BOOST_TEST(told(m.to_write(2 * block)) == "none");
    BOOST_TEST(told(m.to_write(3 * block)) == "28672 of 1 at 12288");
    BOOST_TEST(told(m.to_read(12 * block)) == "12288 of 3 at 49152");
    BOOST_TEST(told(m.to_read(15 * block)) == "none");
    BOOST_TEST(m.all().size() == 3u);
}

BOOST_AUTO_TEST_CASE(a_newer_layout_lies_on_top_of_an_older_one)
{
    layout_map m;
    BOOST_TEST(add(m, {extent(state::read_data, 0, 4 * block, 1)}, reads));
    BOOST_TEST(add(m, {extent(state::read_data, block, block, 2)}, reads));
    BOOST_TEST(told(m.to_read(0)) == "4096 of 1 at 0");
    BOOST_TEST(told(m.to_read(block)) == "4096 of 2 at 4096");
    BOOST_TEST(told(m.to_read(2 * block)) == "8192 of 1 at 8192");
}

BOOST_AUTO_TEST_CASE(there_is_a_limit)
{
    layout_map m;
    std::vector<pnfs_rdma_extent4> many;
    for (std::size_t i = 0; i < layout_map::max_extents; ++i)
        many.push_back(extent(i % 2 == 0 ? state::read_data : state::none_data, i * block, block));
    BOOST_TEST(add(m, many, reads));
    BOOST_TEST(!add(m, {extent(state::read_data, 0, block)}, writes));
}

BOOST_AUTO_TEST_SUITE_END()
