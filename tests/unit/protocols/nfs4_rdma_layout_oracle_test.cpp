// SPDX-License-Identifier: Apache-2.0
// Bodies of the RDMA layout, read and written by another codec: what rpcgen and libtirpc make of the draft's XDR
// (nfs4_rdma_layout.x). Each field is compared by its name.
#include <boost/test/unit_test.hpp>

#include <verbena/protocols/nfs/wire/v4/rdma_layout.hpp>
#include <verbena/protocols/xdr/codec.hpp>

#include "nfs4_rdma_layout.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(nfs4_rdma_layout_oracle_test)

namespace own = verbena::nfs::v4;
using verbena::xdr::codec;
using verbena::xdr::decoder;
using verbena::xdr::encoder;

namespace {

std::vector<std::byte> written(const auto& value)
{
    std::vector<std::byte> block(32768);
    encoder out(block);
    codec<std::remove_cvref_t<decltype(value)>>::encode(out, value);
    BOOST_REQUIRE(out.ok());
    block.resize(out.size());
    return block;
}

// What rpcgen's codec makes of these bytes, to their end.
template<class T>
class read_by_rpcgen {
public:
    read_by_rpcgen(bool_t (*c)(XDR*, T*), std::vector<std::byte> bytes) : codec_(c), bytes_(std::move(bytes))
    {
        std::memset(&value, 0, sizeof value);
        XDR in;
        xdrmem_create(&in, reinterpret_cast<char*>(bytes_.data()), u_int(bytes_.size()), XDR_DECODE);
        BOOST_REQUIRE(codec_(&in, &value));
        BOOST_TEST(xdr_getpos(&in) == bytes_.size());
        xdr_destroy(&in);
    }
    read_by_rpcgen(const read_by_rpcgen&) = delete;
    ~read_by_rpcgen() { xdr_free(reinterpret_cast<xdrproc_t>(codec_), reinterpret_cast<char*>(&value)); }
    T value;

private:
    bool_t (*codec_)(XDR*, T*);
    std::vector<std::byte> bytes_;
};

template<class T>
std::vector<std::byte> written_by_rpcgen(bool_t (*c)(XDR*, T*), T& value)
{
    std::vector<std::byte> block(32768);
    XDR out;
    xdrmem_create(&out, reinterpret_cast<char*>(block.data()), u_int(block.size()), XDR_ENCODE);
    BOOST_REQUIRE(c(&out, &value));
    block.resize(xdr_getpos(&out));
    xdr_destroy(&out);
    return block;
}

template<class T>
T read(const std::vector<std::byte>& bytes)
{
    decoder in(bytes);
    T value{};
    codec<T>::decode(in, value);
    BOOST_REQUIRE(in.ok());
    BOOST_TEST(in.at_end());
    return value;
}

struct draws {
    std::mt19937_64 engine{1};
    std::uint64_t wide() { return engine(); }
    std::uint32_t narrow() { return std::uint32_t(engine()); }
    std::uint32_t below(std::uint32_t most) { return std::uint32_t(engine() % most); }
};

void same(const own::pnfs_rdma_extent4& ours, const pnfs_rdma_extent4& theirs)
{
    BOOST_TEST(std::memcmp(ours.device_id.data(), theirs.re_device_id, 16) == 0);
    BOOST_TEST(ours.file_offset == theirs.re_file_offset);
    BOOST_TEST(ours.handle == theirs.re_handle);
    BOOST_TEST(ours.length == theirs.re_length);
    BOOST_TEST(ours.storage_offset == theirs.re_storage_offset);
    BOOST_TEST(std::uint32_t(ours.state) == std::uint32_t(theirs.re_state));
}

} // namespace

BOOST_AUTO_TEST_CASE(device_addresses)
{
    for (const std::string address : {"", "127.0.0.1.78.81", "2001:db8::1.0.1", "::.255.255"}) {
        own::pnfs_rdma_device_addr4 ours;
        ours.addr.netid = address.find(':') == std::string::npos ? "rdma" : "rdma6";
        ours.addr.addr = std::string_view(address);
        const auto bytes = written(ours);
        read_by_rpcgen<pnfs_rdma_device_addr4> theirs(xdr_pnfs_rdma_device_addr4, bytes);
        BOOST_TEST(theirs.value.addr.na_r_netid == ours.addr.netid);
        BOOST_TEST(theirs.value.addr.na_r_addr == address);
        const auto again = written_by_rpcgen(xdr_pnfs_rdma_device_addr4, theirs.value);
        BOOST_TEST((again == bytes));
        BOOST_TEST(read<own::pnfs_rdma_device_addr4>(again).addr.addr == address);
    }
}

BOOST_AUTO_TEST_CASE(layouts)
{
    draws d;
    for (const std::size_t count : {0u, 1u, 2u, 17u, own::max_rdma_extents}) {
        std::vector<own::pnfs_rdma_extent4> extents(count);
        for (auto& e : extents) {
            for (auto& octet : e.device_id)
                octet = std::byte(d.below(256));
            e.file_offset = d.wide();
            e.handle = d.narrow();
            e.length = d.wide();
            e.storage_offset = d.wide();
            e.state = own::pnfs_rdma_extent_state4(d.below(4));
        }
        own::pnfs_rdma_layout4 ours;
        ours.extents = std::span<const own::pnfs_rdma_extent4>(extents);
        const auto bytes = written(ours);
        read_by_rpcgen<pnfs_rdma_layout4> theirs(xdr_pnfs_rdma_layout4, bytes);
        BOOST_TEST_REQUIRE(theirs.value.rl_extents.rl_extents_len == count);
        for (std::size_t i = 0; i < count; ++i)
            same(extents[i], theirs.value.rl_extents.rl_extents_val[i]);
        // And the other way, of values that rpcgen's side has changed.
        for (std::size_t i = 0; i < count; ++i) {
            pnfs_rdma_extent4& e = theirs.value.rl_extents.rl_extents_val[i];
            e.re_file_offset = d.wide();
            e.re_handle = d.narrow();
            e.re_length = d.wide();
            e.re_storage_offset = d.wide();
            e.re_state = pnfs_rdma_extent_state4(d.below(4));
        }
        const auto changed = written_by_rpcgen(xdr_pnfs_rdma_layout4, theirs.value);
        const auto back = read<own::pnfs_rdma_layout4>(changed);
        BOOST_TEST_REQUIRE(back.extents.size() == count);
        std::size_t i = 0;
        for (const own::pnfs_rdma_extent4 e : back.extents)
            same(e, theirs.value.rl_extents.rl_extents_val[i++]);
    }
}

BOOST_AUTO_TEST_CASE(states_have_the_drafts_numbers)
{
    using state = own::pnfs_rdma_extent_state4;
    BOOST_TEST(int(state::read_write_data) == PNFS_RDMA_READ_WRITE_DATA);
    BOOST_TEST(int(state::read_data) == PNFS_RDMA_READ_DATA);
    BOOST_TEST(int(state::invalid_data) == PNFS_RDMA_INVALID_DATA);
    BOOST_TEST(int(state::none_data) == PNFS_RDMA_NONE_DATA);
}

BOOST_AUTO_TEST_CASE(commit_lists)
{
    draws d;
    for (const std::size_t count : {0u, 1u, 5u, own::max_rdma_ranges}) {
        std::vector<own::pnfs_rdma_range4> ranges(count);
        for (auto& r : ranges)
            r = {d.wide(), d.wide()};
        own::pnfs_rdma_layoutupdate4 ours;
        ours.commit_list = std::span<const own::pnfs_rdma_range4>(ranges);
        const auto bytes = written(ours);
        read_by_rpcgen<pnfs_rdma_layoutupdate4> theirs(xdr_pnfs_rdma_layoutupdate4, bytes);
        const auto& list = theirs.value.rlu_commit_list;
        BOOST_TEST_REQUIRE(list.rlu_commit_list_len == count);
        const auto again = written_by_rpcgen(xdr_pnfs_rdma_layoutupdate4, theirs.value);
        BOOST_TEST((again == bytes));
        const auto back = read<own::pnfs_rdma_layoutupdate4>(again);
        BOOST_TEST_REQUIRE(back.commit_list.size() == count);
        std::size_t i = 0;
        for (const own::pnfs_rdma_range4 r : back.commit_list) {
            BOOST_TEST(r.file_offset == list.rlu_commit_list_val[i].rr_file_offset);
            BOOST_TEST(r.length == list.rlu_commit_list_val[i].rr_length);
            BOOST_TEST(r.file_offset == ranges[i].file_offset);
            BOOST_TEST(r.length == ranges[i].length);
            ++i;
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
