// SPDX-License-Identifier: Apache-2.0
// What the RDMA layout type puts into the bodies of layouts and devices (draft-hellwig-nfsv4-rdma-layout-00), and the
// rules that a list of extents and a list of commits keep.
#pragma once

#include <verbena/protocols/nfs/wire/v4/state_operations.hpp>
#include <verbena/protocols/nfs/wire/v4/types.hpp>
#include <verbena/protocols/nfs/wire/v4/views.hpp>

#include <cstdint>
#include <span>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// Our limit, as the draft has none: extents in a LAYOUTGET's answer.
inline constexpr std::uint32_t max_rdma_extents = 256;
/// Ranges in a LAYOUTCOMMIT.
inline constexpr std::uint32_t max_rdma_ranges = 256;

/// da_addr_body (2.3.1): where the data server listens.
struct pnfs_rdma_device_addr4 {
    netaddr4 addr;
};

/// 2.4. In an ordered list what is equal in its offset is ordered by this.
enum class pnfs_rdma_extent_state4 : std::uint32_t {
    read_write_data = 0,
    read_data = 1,
    invalid_data =
        2, ///< memory without data: it reads as zeros, or as the read_data beneath it, until it is written
    none_data = 3, ///< a hole
};
constexpr bool valid(pnfs_rdma_extent_state4 s) noexcept { return s <= pnfs_rdma_extent_state4::none_data; }

/// A part of a file, and where a client reaches it by RDMA.
struct pnfs_rdma_extent4 {
    deviceid4 device_id{};
    std::uint64_t file_offset = 0; ///< bytes, as all that follows
    std::uint32_t handle = 0;      ///< R_key or STag
    std::uint64_t length = 0;
    std::uint64_t storage_offset = 0; ///< remote address of the extent's first byte
    pnfs_rdma_extent_state4 state{};

    /// Whether the client may write there.
    bool is_writable() const noexcept
    {
        return state == pnfs_rdma_extent_state4::read_write_data ||
               state == pnfs_rdma_extent_state4::invalid_data;
    }
};

/// loc_body.
struct pnfs_rdma_layout4 {
    array_view<pnfs_rdma_extent4, max_rdma_extents> extents;
};

/// 2.4.2.
struct pnfs_rdma_range4 {
    std::uint64_t file_offset = 0;
    std::uint64_t length = 0;
};

/// lou_body: what was invalid_data, and has data now.
struct pnfs_rdma_layoutupdate4 {
    array_view<pnfs_rdma_range4, max_rdma_ranges> commit_list;
};

/// What a LAYOUTGET asked for.
struct rdma_layout_request {
    layoutiomode4 iomode = layoutiomode4::read;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;  ///< all ones: to the end of the file
    std::uint64_t minimum = 0; ///< bytes that the extents cover at least, if not `ends_early`
    bool ends_early = false;   ///< iomode read, and the file ends before that
};

/// Which rule of 2.4.1 these extents break as an answer to `request`, in words; empty: none. Both ends ask: a server is
/// not trusted to keep them.
std::string_view broken_rule(std::span<const pnfs_rdma_extent4> extents,
                             const rdma_layout_request& request) noexcept;

/// Which rule of 2.4.2 a commit list breaks, where the server's block has `block` bytes (not 0); empty: none.
std::string_view broken_rule(const pnfs_rdma_layoutupdate4& update, std::uint64_t block) noexcept;

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
