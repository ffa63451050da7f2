// SPDX-License-Identifier: Apache-2.0
// Bodies of the RDMA layout type against bytes written by hand from the draft's XDR, and the rules of 2.4.1 and 2.4.2.
#include <boost/test/unit_test.hpp>

#include "nfs4_vectors.hpp"

#include <verbena/protocols/nfs/wire/v4/rdma_layout.hpp>
#include <verbena/protocols/nfs/wire/v4/rdma_layout_connect.hpp>

#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(nfs4_rdma_layout_test)

using namespace verbena::test;
using namespace verbena::nfs::v4;
using namespace verbena;

namespace {

using state = pnfs_rdma_extent_state4;
constexpr auto all = ~std::uint64_t(0);

std::vector<std::byte> bytes; // what the views in decoded values point into

pnfs_rdma_extent4 extent(state s, std::uint64_t offset, std::uint64_t length)
{
    pnfs_rdma_extent4 e;
    e.state = s;
    e.file_offset = offset;
    e.length = length;
    return e;
}
pnfs_rdma_extent4 rw(std::uint64_t offset, std::uint64_t length)
{
    return extent(state::read_write_data, offset, length);
}
pnfs_rdma_extent4 rd(std::uint64_t offset, std::uint64_t length)
{
    return extent(state::read_data, offset, length);
}
pnfs_rdma_extent4 invalid(std::uint64_t offset, std::uint64_t length)
{
    return extent(state::invalid_data, offset, length);
}
pnfs_rdma_extent4 hole(std::uint64_t offset, std::uint64_t length)
{
    return extent(state::none_data, offset, length);
}

struct asked {
    layoutiomode4 mode;
    std::uint64_t offset = 0;
    std::uint64_t length = all;
    std::uint64_t minimum = 0;
    bool ends_early = false;
};
std::string broken(const asked& a, std::vector<pnfs_rdma_extent4> extents)
{
    rdma_layout_request request;
    request.iomode = a.mode;
    request.offset = a.offset;
    request.length = a.length;
    request.minimum = a.minimum;
    request.ends_early = a.ends_early;
    return std::string(broken_rule(extents, request));
}
std::string broken(std::uint64_t block, std::vector<pnfs_rdma_range4> ranges)
{
    pnfs_rdma_layoutupdate4 update;
    update.commit_list = std::span<const pnfs_rdma_range4>(ranges);
    return std::string(broken_rule(update, block));
}

constexpr auto reads = layoutiomode4::read;
constexpr auto writes = layoutiomode4::rw;

} // namespace

BOOST_AUTO_TEST_CASE(bodies)
{
    const auto device = both_ways<pnfs_rdma_device_addr4>(
        hex({"00000004 72646d61", "0000000d 3132372e 302e302e 312e382e 31000000"}), bytes);
    BOOST_TEST(device.addr.netid == "rdma");
    BOOST_TEST(device.addr.addr == "127.0.0.1.8.1");

    const auto layout = both_ways<pnfs_rdma_layout4>(
        hex({"00000002",                                                                      //
             device_hex, offset_hex, "00000055", length_hex, "7fff0000 00000008", "00000000", //
             device_hex, length_hex, "00000000", offset_hex, "00000000 00000000", "00000003"}),
        bytes);
    BOOST_TEST_REQUIRE(layout.extents.size() == 2u);
    auto at = layout.extents.begin();
    const pnfs_rdma_extent4 first = *at;
    BOOST_TEST(std::uint8_t(first.device_id[0]) == 0xd0);
    BOOST_TEST(first.file_offset == 0x1'0000'0002u);
    BOOST_TEST(first.handle == 0x55u);
    BOOST_TEST(first.length == 0x3'0000'0004u);
    BOOST_TEST(first.storage_offset == 0x7fff'0000'0000'0008u);
    BOOST_TEST((first.state == state::read_write_data));
    ++at;
    BOOST_TEST(((*at).state == state::none_data));
    BOOST_TEST(xdr::codec<pnfs_rdma_extent4>::max_size == 48u);

    const auto update = both_ways<pnfs_rdma_layoutupdate4>(hex({"00000001", offset_hex, length_hex}), bytes);
    BOOST_TEST_REQUIRE(update.commit_list.size() == 1u);
    BOOST_TEST((*update.commit_list.begin()).file_offset == 0x1'0000'0002u);
    BOOST_TEST((*update.commit_list.begin()).length == 0x3'0000'0004u);
}

BOOST_AUTO_TEST_CASE(a_state_that_there_is_not_and_too_many_are_refused)
{
    const std::string one = hex({device_hex, offset_hex, "00000055", length_hex, offset_hex});
    refused<pnfs_rdma_layout4>(hex({"00000001", one, "00000004"}));
    std::string many = "00000101\n";
    for (int i = 0; i < 257; ++i)
        many += one + "00000000\n";
    refused<pnfs_rdma_layout4>(many);
    std::string ranges = "00000101\n";
    for (int i = 0; i < 257; ++i)
        ranges += hex({offset_hex, length_hex});
    refused<pnfs_rdma_layoutupdate4>(ranges);
}

// 5.2 of the check list has the numbers in these names.
BOOST_AUTO_TEST_CASE(rule_1_read_layouts_have_data_to_read_and_holes)
{
    BOOST_TEST(broken({reads}, {rd(0, 8), hole(8, 8)}) == "");
    const std::string why = "a readable layout has an extent that can be written";
    BOOST_TEST(broken({reads}, {rd(0, 8), rw(8, 8)}) == why);
    BOOST_TEST(broken({reads}, {invalid(0, 8)}) == why);
    BOOST_TEST(broken({reads}, {}) == "a layout has no extents");
    BOOST_TEST(broken({reads}, {rd(0, 0)}) == "an extent has no bytes");
    BOOST_TEST(broken({reads}, {rd(all - 3, 4)}) != "");
}

BOOST_AUTO_TEST_CASE(rule_2_writable_layouts_have_no_holes)
{
    BOOST_TEST(broken({writes}, {rw(0, 8), invalid(8, 8)}) == "");
    BOOST_TEST(broken({writes}, {rd(0, 8), invalid(0, 8), rw(8, 8)}) == "");
    BOOST_TEST(broken({writes}, {rw(0, 8), hole(8, 8)}) == "a writable layout has an extent of NONE_DATA");
}

BOOST_AUTO_TEST_CASE(rule_3_the_first_extent_has_the_offset)
{
    const std::string why = "the first extent does not have the requested offset";
    BOOST_TEST(broken({reads, 7}, {rd(0, 8)}) == "");
    BOOST_TEST(broken({reads, 8}, {rd(0, 8)}) == why);
    BOOST_TEST(broken({reads, 8}, {rd(0, 8), rd(8, 8)}) == why);
    BOOST_TEST(broken({reads, 8}, {rd(9, 8)}) == why);
    BOOST_TEST(broken({writes, 0}, {rd(0, 8)}) != "");
}

BOOST_AUTO_TEST_CASE(rule_4_the_minimum_is_covered)
{
    const std::string why = "the extents cover less than the minimum";
    BOOST_TEST(broken({reads, 4, 100, 12}, {rd(0, 8), hole(8, 8)}) == "");
    BOOST_TEST(broken({reads, 4, 100, 13}, {rd(0, 8), hole(8, 8)}) == why);
    // Outside of what was asked for does not count; where a file that is read ends, less is all there is.
    BOOST_TEST(broken({reads, 4, 10, 11}, {rd(0, 100)}) == why);
    BOOST_TEST(broken({reads, 4, 100, 13, true}, {rd(0, 8), hole(8, 8)}) == "");
    BOOST_TEST(broken({writes, 4, 100, 13, true}, {rw(0, 16)}) == why);
}

BOOST_AUTO_TEST_CASE(rule_5_extents_are_contiguous_and_reads_are_covered)
{
    BOOST_TEST(broken({reads}, {rd(0, 8), rd(9, 8)}) == "there is a gap between two extents");
    BOOST_TEST(broken({reads}, {rd(0, 8), rd(7, 8)}) == "two extents overlap");
    BOOST_TEST(broken({reads}, {rd(0, 8), hole(0, 8)}) == "two extents overlap");
    BOOST_TEST(broken({writes}, {rw(0, 8), invalid(12, 8)}) == "there is a gap between two extents");
    BOOST_TEST(broken({writes}, {rw(0, 8), invalid(4, 8)}) == "two extents overlap");
    const std::string bare = "an extent of READ_DATA in a writable layout is not covered by INVALID_DATA";
    BOOST_TEST(broken({writes}, {rd(0, 16), invalid(0, 8), invalid(8, 8)}) == "");
    BOOST_TEST(broken({writes}, {rd(0, 17), invalid(0, 8), invalid(8, 8)}) == bare);
    BOOST_TEST(broken({writes}, {rw(0, 8), rd(4, 4), invalid(8, 8)}) == bare);
    BOOST_TEST(broken({writes}, {rd(0, 8), invalid(0, 16), rd(7, 4)}) == "two extents of READ_DATA overlap");
}

BOOST_AUTO_TEST_CASE(rule_6_extents_are_sorted)
{
    const std::string why = "the extents are not in the order of their offsets and states";
    BOOST_TEST(broken({reads}, {rd(8, 8), rd(0, 8)}) == why);
    BOOST_TEST(broken({writes}, {invalid(0, 8), rd(0, 8)}) == why);
}

BOOST_AUTO_TEST_CASE(rule_6_of_clients_commits_are_blocks_in_order)
{
    BOOST_TEST(broken(4, {}) == "");
    BOOST_TEST(broken(4, {{0, 4}, {4, 8}, {16, 4}}) == "");
    BOOST_TEST(broken(4, {{0, 0}}) == "a range has no bytes");
    BOOST_TEST(broken(4, {{2, 4}}) == "a range is not of whole blocks");
    BOOST_TEST(broken(4, {{0, 6}}) == "a range is not of whole blocks");
    BOOST_TEST(broken(4, {{all - 3, 4}, {0, 4}}) == "a range goes past the largest offset");
    const std::string why = "the ranges overlap, or are not in the order of their offsets";
    BOOST_TEST(broken(4, {{0, 8}, {4, 4}}) == why);
    BOOST_TEST(broken(4, {{8, 4}, {0, 4}}) == why);
}

BOOST_AUTO_TEST_CASE(private_data_of_a_connection)
{
    const std::string text =
        hex({"704e4652 01000000", "01020304 05060708", session_hex, device_hex, "00000000"});
    rdma_layout_connect asked;
    asked.client = 0x0102030405060708;
    std::ranges::copy(from_hex(session_hex), asked.session.begin());
    std::ranges::copy(from_hex(device_hex), asked.device.begin());
    const auto written = encode(asked);
    BOOST_TEST(to_hex(written) == to_hex(from_hex(text)));

    auto data = from_hex(text);
    data.resize(196); // as some transports deliver it
    const auto read = decode_rdma_layout_connect(data);
    BOOST_TEST_REQUIRE(read.has_value());
    BOOST_TEST(read->client == asked.client);
    BOOST_TEST((read->session == asked.session && read->device == asked.device));

    for (std::size_t length = 0; length < written.size(); ++length) {
        const std::vector<std::byte> shorter(written.begin(), written.begin() + std::ptrdiff_t(length));
        const auto cut = decode_rdma_layout_connect(shorter);
        BOOST_TEST((!cut && cut.error() == std::errc::bad_message));
    }
    const auto with = [&](std::size_t at) {
        auto other = written;
        other[at] = std::byte(9);
        const auto decoded = decode_rdma_layout_connect(other);
        return decoded ? std::errc() : std::errc(decoded.error().code().value());
    };
    for (const std::size_t at : {0u, 5u, 7u, 48u, 51u})
        BOOST_TEST((with(at) == std::errc::bad_message), "octet " << at);
    BOOST_TEST((with(4) == std::errc::protocol_not_supported));
    BOOST_TEST((with(8) == std::errc()));
}

BOOST_AUTO_TEST_CASE(private_data_of_an_answer)
{
    const auto written = encode(rdma_layout_answer{1, std::uint8_t(rdma_layout_reject::too_many)});
    BOOST_TEST(to_hex(written) == to_hex(from_hex("704e4652 01030000")));
    const auto read = decode_rdma_layout_answer(written);
    BOOST_TEST_REQUIRE(read.has_value());
    BOOST_TEST((read->version == 1 && read->reason == 3));
    for (std::size_t length = 0; length < written.size(); ++length)
        BOOST_TEST(!decode_rdma_layout_answer(std::span(written).first(length)));
    BOOST_TEST(!decode_rdma_layout_answer(from_hex("704e4653 01000000")));
}

BOOST_AUTO_TEST_SUITE_END()
