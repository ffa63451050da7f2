// SPDX-License-Identifier: Apache-2.0
// Bodies of the RDMA layout type and private data of its connections. The first byte says which; the next one whether a layout is
// to be read or written. A list that breaks no rule serves each offset of the request by one writable or readable extent.

#include "fuzz.hpp"

#include <verbena/protocols/nfs/wire/v4/rdma_layout.hpp>
#include <verbena/protocols/nfs/wire/v4/rdma_layout_connect.hpp>

#include <algorithm>
#include <vector>

using namespace verbena;
using namespace verbena::nfs::v4;
using fuzz::require;

namespace {

constexpr std::uint64_t block = 4096;

template<class T>
bool decoded(std::span<const std::byte> wire, T& value)
{
    xdr::decoder in(wire);
    xdr::codec<T>::decode(in, value);
    if (!in.ok())
        return false;
    // It is written as it came.
    std::vector<std::byte> again(in.position());
    xdr::encoder out{std::span(again)};
    xdr::codec<T>::encode(out, value);
    require(out.ok() && std::ranges::equal(again, wire.first(in.position())));
    return true;
}

void look_at(const pnfs_rdma_layout4& layout, layoutiomode4 mode)
{
    std::vector<pnfs_rdma_extent4> extents;
    for (const pnfs_rdma_extent4 e : layout.extents)
        extents.push_back(e);
    rdma_layout_request asked;
    asked.iomode = mode;
    asked.offset = extents.empty() ? 0 : extents[0].file_offset;
    asked.length = asked.minimum = extents.empty() ? 0 : extents[0].length;
    if (!broken_rule(extents, asked).empty())
        return;
    const auto serves = [&](std::uint64_t at) {
        return std::ranges::count_if(extents, [&](const pnfs_rdma_extent4& e) {
            return (mode == layoutiomode4::read || e.is_writable()) && e.file_offset <= at &&
                   at < e.file_offset + e.length;
        });
    };
    require(serves(asked.offset) == 1);
    require(serves(asked.offset + asked.length - 1) == 1);
    for (const pnfs_rdma_extent4& e : extents)
        require(serves(e.file_offset) == 1 && serves(e.file_offset + e.length - 1) == 1);
}

} // namespace

VERBENA_FUZZ_TARGET(rdma_layout)
{
    if (size < 2)
        return 0;
    const auto wire = fuzz::bytes_of(data, size).subspan(2);
    switch (data[0] % 4) {
    case 0: {
        pnfs_rdma_layout4 layout;
        if (decoded(wire, layout))
            look_at(layout, data[1] % 2 == 0 ? layoutiomode4::read : layoutiomode4::rw);
        return 0;
    }
    case 1: {
        pnfs_rdma_layoutupdate4 update;
        if (!decoded(wire, update) || !broken_rule(update, block).empty())
            return 0;
        std::uint64_t end = 0;
        for (const pnfs_rdma_range4 r : update.commit_list) {
            require(r.file_offset >= end && r.length != 0 && (r.file_offset | r.length) % block == 0);
            end = r.file_offset + r.length;
            require(end > r.file_offset);
        }
        return 0;
    }
    case 2: {
        pnfs_rdma_device_addr4 address;
        (void)decoded(wire, address);
        return 0;
    }
    default:
        if (const auto asked = decode_rdma_layout_connect(wire))
            require(std::ranges::equal(encode(*asked), wire.first(rdma_layout_connect::size)));
        if (const auto answer = decode_rdma_layout_answer(wire))
            require(encode(*answer)[4] == wire[4] && encode(*answer)[5] == wire[5]);
        return 0;
    }
}
