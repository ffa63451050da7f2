// SPDX-License-Identifier: Apache-2.0
// What minor version 2 adds for data and extended attributes (7862 15, 8276 8.4). All of it may be answered with NOTSUPP.
#pragma once

#include <verbena/protocols/nfs/wire/v4/bitmap.hpp>
#include <verbena/protocols/nfs/wire/v4/operation.hpp>
#include <verbena/protocols/nfs/wire/v4/state_operations.hpp>

#include <optional>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// ALLOCATE's arguments (RFC 7862 15.1.1).
struct ALLOCATE4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::allocate;
    stateid4 stateid;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
};
/// ALLOCATE's results (RFC 7862 15.1.2).
using ALLOCATE4res = status_alone<nfs_opnum4::allocate>;

/// DEALLOCATE's arguments (RFC 7862 15.4.1).
struct DEALLOCATE4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::deallocate;
    stateid4 stateid;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
};
/// DEALLOCATE's results (RFC 7862 15.4.2).
using DEALLOCATE4res = status_alone<nfs_opnum4::deallocate>;

/// Where another server is (RFC 7862 15.2.1).
struct netloc4 {
    netloc_type4 type = netloc_type4::name;
    text_view<max_opaque> name; ///< or the URL, if name or url
    netaddr4 addr;              // if netaddr
};

/// COPY's arguments (RFC 7862 15.2.1).
struct COPY4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::copy;
    stateid4 src_stateid;
    stateid4 dst_stateid;
    std::uint64_t src_offset = 0;
    std::uint64_t dst_offset = 0;
    std::uint64_t count = 0; ///< 0: to the source's end
    bool consecutive = false;
    bool synchronous = false;
    array_view<netloc4, max_network_locations> source_server; ///< none: this server
};
/// What was written (RFC 7862 15.2.2).
struct write_response4 {
    std::optional<stateid4> callback_id; ///< it goes on, and CB_OFFLOAD tells of its end
    std::uint64_t count = 0;
    stable_how4 committed = stable_how4::unstable;
    verifier4 writeverf{};
};
/// How a server copies, where it can't as it was asked to (RFC 7862 15.2.2).
struct copy_requirements4 {
    bool consecutive = false;
    bool synchronous = false;
};
/// COPY's results (RFC 7862 15.2.2).
struct COPY4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::copy;
    nfsstat4 status = nfsstat4::ok;
    write_response4 response;        // if ok
    copy_requirements4 requirements; ///< if ok or offload_no_reqs
};

/// COPY_NOTIFY's arguments (RFC 7862 15.3.1).
struct COPY_NOTIFY4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::copy_notify;
    stateid4 src_stateid;
    netloc4 destination_server;
};
/// COPY_NOTIFY's results (RFC 7862 15.3.2).
struct COPY_NOTIFY4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::copy_notify;
    nfsstat4 status = nfsstat4::ok;
    nfstime4 lease_time;
    stateid4 stateid;
    array_view<netloc4, max_network_locations> source_server;
};

/// OFFLOAD_CANCEL's arguments (RFC 7862 15.8.1).
struct OFFLOAD_CANCEL4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::offload_cancel;
    stateid4 stateid;
};
/// OFFLOAD_CANCEL's results (RFC 7862 15.8.2).
using OFFLOAD_CANCEL4res = status_alone<nfs_opnum4::offload_cancel>;

/// OFFLOAD_STATUS's arguments (RFC 7862 15.9.1).
struct OFFLOAD_STATUS4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::offload_status;
    stateid4 stateid;
};
/// OFFLOAD_STATUS's results (RFC 7862 15.9.2).
struct OFFLOAD_STATUS4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::offload_status;
    nfsstat4 status = nfsstat4::ok;
    std::uint64_t count = 0;
    std::optional<nfsstat4> complete;
};

/// IO_ADVISE's arguments (RFC 7862 15.5.1).
struct IO_ADVISE4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::io_advise;
    stateid4 stateid;
    std::uint64_t offset = 0;
    std::uint64_t count = 0;
    bitmap4 hints; ///< of io_advise_type4
};
/// IO_ADVISE's results (RFC 7862 15.5.2).
struct IO_ADVISE4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::io_advise;
    nfsstat4 status = nfsstat4::ok;
    bitmap4 hints;
};

/// READ_PLUS's arguments (RFC 7862 15.10.1).
struct READ_PLUS4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::read_plus;
    stateid4 stateid;
    std::uint64_t offset = 0;
    std::uint32_t count = 0;
};
/// RFC 8267 names no item of READ_PLUS for a chunk of its own: its data lies in the message.
struct read_plus_content {
    data_content4 content = data_content4::data;
    std::uint64_t offset = 0;    // if data or hole
    std::uint64_t length = 0;    // if hole
    bytes_view<UINT32_MAX> data; ///< if data
};
/// READ_PLUS's results (RFC 7862 15.10.2).
struct READ_PLUS4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::read_plus;
    nfsstat4 status = nfsstat4::ok;
    bool eof = false;
    array_view<read_plus_content, max_read_plus_segments> contents;
};

/// SEEK's arguments (RFC 7862 15.11.1).
struct SEEK4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::seek;
    stateid4 stateid;
    std::uint64_t offset = 0;
    data_content4 what = data_content4::data;
};
/// SEEK's results (RFC 7862 15.11.2).
struct SEEK4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::seek;
    nfsstat4 status = nfsstat4::ok;
    bool eof = false;
    std::uint64_t offset = 0;
};

/// What WRITE_SAME repeats (RFC 7862 8.1).
struct app_data_block4 {
    std::uint64_t offset = 0;
    std::uint64_t block_size = 0;
    std::uint64_t block_count = 0;
    std::uint64_t reloff_blocknum = 0;
    std::uint32_t block_num = 0;
    std::uint64_t reloff_pattern = 0;
    bytes_view<max_pattern> pattern;
};
/// WRITE_SAME's arguments (RFC 7862 15.12.1).
struct WRITE_SAME4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::write_same;
    stateid4 stateid;
    stable_how4 stable = stable_how4::unstable;
    app_data_block4 adb;
};
/// WRITE_SAME's results (RFC 7862 15.12.2).
struct WRITE_SAME4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::write_same;
    nfsstat4 status = nfsstat4::ok;
    write_response4 response;
};

/// CLONE's arguments (RFC 7862 15.13.1).
struct CLONE4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::clone;
    stateid4 src_stateid;
    stateid4 dst_stateid;
    std::uint64_t src_offset = 0;
    std::uint64_t dst_offset = 0;
    std::uint64_t count = 0; ///< 0: to the source's end
};
/// CLONE's results (RFC 7862 15.13.2).
using CLONE4res = status_alone<nfs_opnum4::clone>;

/// Names have no "user." on the wire.
struct GETXATTR4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::getxattr;
    component4 name;
};
/// GETXATTR's results (RFC 8276 8.4.1.2).
struct GETXATTR4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::getxattr;
    nfsstat4 status = nfsstat4::ok;
    bytes_view<max_xattr_value> value;
};

/// SETXATTR's arguments (RFC 8276 8.4.2.1).
struct SETXATTR4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::setxattr;
    setxattr_option4 option = setxattr_option4::either;
    component4 name;
    /// The message bounds it: one longer than max_xattr_value is XATTR2BIG (8276 8.4.2).
    bytes_view<UINT32_MAX> value;
};
/// SETXATTR's results (RFC 8276 8.4.2.2).
struct SETXATTR4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::setxattr;
    nfsstat4 status = nfsstat4::ok;
    change_info4 cinfo; ///< of the file
};

/// LISTXATTRS's arguments (RFC 8276 8.4.3.1).
struct LISTXATTRS4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::listxattrs;
    std::uint64_t cookie = 0;
    std::uint32_t maxcount = 0; ///< bytes of cookie, names and eof
};
/// LISTXATTRS's results (RFC 8276 8.4.3.2).
struct LISTXATTRS4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::listxattrs;
    nfsstat4 status = nfsstat4::ok;
    std::uint64_t cookie = 0;
    array_view<component4, max_xattr_names> names;
    bool eof = false;
};

/// REMOVEXATTR's arguments (RFC 8276 8.4.4.1).
struct REMOVEXATTR4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::removexattr;
    component4 name;
};
/// REMOVEXATTR's results (RFC 8276 8.4.4.2).
struct REMOVEXATTR4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::removexattr;
    nfsstat4 status = nfsstat4::ok;
    change_info4 cinfo;
};

/// @name Unions
/// What codec<> of these types calls, as it knows structs alone: the arm that the discriminant chooses.
/// @{
void encode_union(xdr::encoder& out, const netloc4& value) noexcept;
void decode_union(xdr::decoder& in, netloc4& value) noexcept;
void encode_union(xdr::encoder& out, const COPY4res& value) noexcept;
void decode_union(xdr::decoder& in, COPY4res& value) noexcept;
void encode_union(xdr::encoder& out, const read_plus_content& value) noexcept;
void decode_union(xdr::decoder& in, read_plus_content& value) noexcept;
/// @}

} // namespace verbena::nfs::v4

namespace verbena::xdr {

template<>
struct codec<nfs::v4::netloc4>
    : nfs::v4::detail::union_codec<
          nfs::v4::netloc4, 8, 4 + codec<nfs::v4::netaddr4>::max_size + opaque_size(nfs::v4::max_opaque)> {};
template<>
struct codec<nfs::v4::COPY4res>
    : nfs::v4::detail::union_codec<nfs::v4::COPY4res, 4, 4 + codec<nfs::v4::write_response4>::max_size + 8> {
};
template<>
struct codec<nfs::v4::read_plus_content>
    : nfs::v4::detail::union_codec<nfs::v4::read_plus_content, 4,
                                   codec<nfs::v4::bytes_view<UINT32_MAX>>::max_size + 16> {};

} // namespace verbena::xdr

#pragma GCC visibility pop
