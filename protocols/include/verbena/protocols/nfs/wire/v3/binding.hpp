// SPDX-License-Identifier: Apache-2.0
// How NFS version 3 uses RPC-over-RDMA: the items that may travel in chunks (RFC 8267 3 and 4), and
// how large a reply can get, so that a requester can offer room for it.
#pragma once

#include <verbena/protocols/nfs/wire/v3/arguments.hpp>
#include <verbena/protocols/nfs/wire/v3/types.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena::nfs::v3 {

/// WRITE's data and SYMLINK's path may come in a Read chunk.
constexpr bool has_ddp_eligible_argument(procedure value) noexcept
{
    return value == procedure::write || value == procedure::symlink;
}

/// READ's data and READLINK's path may go into a Write chunk.
constexpr bool has_ddp_eligible_result(procedure value) noexcept
{
    return value == procedure::read || value == procedure::readlink;
}

/// XDR sizes in bytes.
namespace wire_size {
inline constexpr std::size_t status = 4;
inline constexpr std::size_t fattr3 = 84;
inline constexpr std::size_t wcc_attr = 24;
inline constexpr std::size_t max_post_op_attr = 4 + fattr3;
inline constexpr std::size_t max_wcc_data = 4 + wcc_attr + max_post_op_attr;
inline constexpr std::size_t max_handle = xdr::opaque_size(max_handle_size);
inline constexpr std::size_t max_post_op_fh3 = 4 + max_handle;
} // namespace wire_size

/// An upper bound for the results of a call, without the RPC header.
struct reply_bound {
    /// Everything but the bytes of the DDP-eligible item and its pad.
    std::size_t head = 0;
    /// The bytes of that item, without the pad.
    std::size_t payload = 0;

    /// With the item and its pad.
    constexpr std::size_t total() const noexcept { return head + xdr::padded(payload); }
};

/// The bound of each procedure, by its arguments.
constexpr reply_bound max_reply_size(const GETATTR3args&) noexcept
{
    return {wire_size::status + wire_size::fattr3, 0};
}

constexpr reply_bound max_reply_size(const SETATTR3args&) noexcept
{
    return {wire_size::status + wire_size::max_wcc_data, 0};
}

constexpr reply_bound max_reply_size(const LOOKUP3args&) noexcept
{
    return {wire_size::status + wire_size::max_handle + 2 * wire_size::max_post_op_attr, 0};
}

constexpr reply_bound max_reply_size(const ACCESS3args&) noexcept
{
    return {wire_size::status + wire_size::max_post_op_attr + 4, 0};
}

/// A longer link than max_expected_path, of which Linux has none, does not fit a chunk of that size: over RDMA the call
/// fails, and client::readlink() does not ask again with more.
constexpr reply_bound max_reply_size(const READLINK3args&) noexcept
{
    return {wire_size::status + wire_size::max_post_op_attr + 4, max_expected_path};
}

constexpr reply_bound max_reply_size(const READ3args& args) noexcept
{
    return {wire_size::status + wire_size::max_post_op_attr + 4 + 4 + 4, args.count};
}

constexpr reply_bound max_reply_size(const WRITE3args&) noexcept
{
    return {wire_size::status + wire_size::max_wcc_data + 4 + 4 + verifier_size, 0};
}

/// CREATE, MKDIR, SYMLINK and MKNOD.
inline constexpr reply_bound max_create_reply_size{wire_size::status + wire_size::max_post_op_fh3 +
                                                       wire_size::max_post_op_attr + wire_size::max_wcc_data,
                                                   0};

constexpr reply_bound max_reply_size(const CREATE3args&) noexcept { return max_create_reply_size; }

constexpr reply_bound max_reply_size(const MKDIR3args&) noexcept { return max_create_reply_size; }

constexpr reply_bound max_reply_size(const SYMLINK3args&) noexcept { return max_create_reply_size; }

constexpr reply_bound max_reply_size(const MKNOD3args&) noexcept { return max_create_reply_size; }

constexpr reply_bound max_reply_size(const REMOVE3args&) noexcept
{
    return {wire_size::status + wire_size::max_wcc_data, 0};
}

constexpr reply_bound max_reply_size(const RMDIR3args&) noexcept
{
    return {wire_size::status + wire_size::max_wcc_data, 0};
}

constexpr reply_bound max_reply_size(const RENAME3args&) noexcept
{
    return {wire_size::status + 2 * wire_size::max_wcc_data, 0};
}

constexpr reply_bound max_reply_size(const LINK3args&) noexcept
{
    return {wire_size::status + wire_size::max_post_op_attr + wire_size::max_wcc_data, 0};
}

/// count bounds the good arm; the other one may be larger than a small count.
constexpr reply_bound max_reply_size(const READDIR3args& args) noexcept
{
    return {wire_size::status + std::max<std::size_t>(args.count, wire_size::max_post_op_attr), 0};
}

constexpr reply_bound max_reply_size(const READDIRPLUS3args& args) noexcept
{
    return {wire_size::status + std::max<std::size_t>(args.maxcount, wire_size::max_post_op_attr), 0};
}

constexpr reply_bound max_reply_size(const FSSTAT3args&) noexcept
{
    return {wire_size::status + wire_size::max_post_op_attr + 6 * 8 + 4, 0};
}

constexpr reply_bound max_reply_size(const FSINFO3args&) noexcept
{
    return {wire_size::status + wire_size::max_post_op_attr + 7 * 4 + 8 + 8 + 4, 0};
}

constexpr reply_bound max_reply_size(const PATHCONF3args&) noexcept
{
    return {wire_size::status + wire_size::max_post_op_attr + 6 * 4, 0};
}

constexpr reply_bound max_reply_size(const COMMIT3args&) noexcept
{
    return {wire_size::status + wire_size::max_wcc_data + verifier_size, 0};
}

} // namespace verbena::nfs::v3

#pragma GCC visibility pop
