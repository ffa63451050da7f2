// SPDX-License-Identifier: Apache-2.0
// Layouts and their devices (8881 18.40 to 18.44, 7862 15.6 and 15.7). What a layout type defines itself stays bytes.
#pragma once

#include <verbena/protocols/nfs/wire/v4/bitmap.hpp>
#include <verbena/protocols/nfs/wire/v4/operation.hpp>

#include <optional>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// GETDEVICEINFO's arguments (RFC 8881 18.40.1).
struct GETDEVICEINFO4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::getdeviceinfo;
    deviceid4 device_id{};
    layouttype4 layout_type{};
    std::uint32_t maxcount = 0; ///< bytes
    bitmap4 notify_types;
};
/// GETDEVICEINFO's results (RFC 8881 18.40.2).
struct GETDEVICEINFO4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::getdeviceinfo;
    nfsstat4 status = nfsstat4::ok;
    layouttype4 layout_type{}; ///< this and the next two if ok
    bytes_view<max_layout_body> addr_body;
    bitmap4 notification;
    std::uint32_t mincount = 0; ///< if toosmall
};

/// GETDEVICELIST's arguments (RFC 8881 18.41.1).
struct GETDEVICELIST4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::getdevicelist;
    layouttype4 layout_type{};
    std::uint32_t maxdevices = 0;
    std::uint64_t cookie = 0;
    verifier4 cookieverf{};
};
/// GETDEVICELIST's results (RFC 8881 18.41.2).
struct GETDEVICELIST4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::getdevicelist;
    nfsstat4 status = nfsstat4::ok;
    std::uint64_t cookie = 0;
    verifier4 cookieverf{};
    array_view<deviceid4, max_device_ids> deviceid_list;
    bool eof = false;
};

/// LAYOUTCOMMIT's arguments (RFC 8881 18.42.1).
struct LAYOUTCOMMIT4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::layoutcommit;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    bool reclaim = false;
    stateid4 stateid;
    std::optional<std::uint64_t> last_write_offset;
    std::optional<nfstime4> time_modify;
    layouttype4 layout_type{};
    bytes_view<max_layout_body> update_body;
};
/// LAYOUTCOMMIT's results (RFC 8881 18.42.2).
struct LAYOUTCOMMIT4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::layoutcommit;
    nfsstat4 status = nfsstat4::ok;
    std::optional<std::uint64_t> newsize;
};

/// LAYOUTGET's arguments (RFC 8881 18.43.1).
struct LAYOUTGET4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::layoutget;
    bool signal_layout_avail = false;
    layouttype4 layout_type{};
    layoutiomode4 iomode = layoutiomode4::read;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::uint64_t minlength = 0;
    stateid4 stateid;
    std::uint32_t maxcount = 0; ///< bytes
};
/// A part of a layout (RFC 8881 3.3).
struct layout4 {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    layoutiomode4 iomode = layoutiomode4::read;
    layouttype4 type{};
    bytes_view<max_layout_body> body;
};
/// LAYOUTGET's results (RFC 8881 18.43.2).
struct LAYOUTGET4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::layoutget;
    nfsstat4 status = nfsstat4::ok;
    bool return_on_close = false; ///< this and the next two if ok
    stateid4 stateid;
    array_view<layout4, max_layout_segments> layout;
    bool will_signal_layout_avail = false; ///< if layouttrylater
};

/// Which layouts are given back (RFC 8881 18.44.1).
struct layoutreturn4 {
    layoutreturn_type4 returntype = layoutreturn_type4::all;
    std::uint64_t offset = 0; ///< from here on if file
    std::uint64_t length = 0;
    stateid4 stateid;
    bytes_view<max_layout_body> body;
};
/// LAYOUTRETURN's arguments (RFC 8881 18.44.1).
struct LAYOUTRETURN4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::layoutreturn;
    bool reclaim = false;
    layouttype4 layout_type{};
    layoutiomode4 iomode = layoutiomode4::any;
    layoutreturn4 layoutreturn;
};
/// LAYOUTRETURN's results (RFC 8881 18.44.2).
struct LAYOUTRETURN4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::layoutreturn;
    nfsstat4 status = nfsstat4::ok;
    std::optional<stateid4> stateid; ///< while some of the layout is left
};

/// What a client met at a device (RFC 7862 15.6.1).
struct device_error4 {
    deviceid4 deviceid{};
    nfsstat4 status = nfsstat4::ok;
    std::uint32_t opnum = 0; ///< a nfs_opnum4
};
/// LAYOUTERROR's arguments (RFC 7862 15.6.1).
struct LAYOUTERROR4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::layouterror;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    stateid4 stateid;
    array_view<device_error4, max_device_errors> errors;
};
/// LAYOUTERROR's results (RFC 7862 15.6.2).
using LAYOUTERROR4res = status_alone<nfs_opnum4::layouterror>;

/// How much I/O there was.
struct io_info4 {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
};
/// LAYOUTSTATS's arguments (RFC 7862 15.7.1).
struct LAYOUTSTATS4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::layoutstats;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    stateid4 stateid;
    io_info4 read;
    io_info4 write;
    deviceid4 deviceid{};
    layouttype4 layout_type{};
    bytes_view<max_layout_body> update_body;
};
/// LAYOUTSTATS's results (RFC 7862 15.7.2).
using LAYOUTSTATS4res = status_alone<nfs_opnum4::layoutstats>;

/// @name Unions
/// What codec<> of these types calls, as it knows structs alone: the arm that the discriminant chooses.
/// @{
void encode_union(xdr::encoder& out, const GETDEVICEINFO4res& value) noexcept;
void decode_union(xdr::decoder& in, GETDEVICEINFO4res& value) noexcept;
void encode_union(xdr::encoder& out, const LAYOUTGET4res& value) noexcept;
void decode_union(xdr::decoder& in, LAYOUTGET4res& value) noexcept;
void encode_union(xdr::encoder& out, const layoutreturn4& value) noexcept;
void decode_union(xdr::decoder& in, layoutreturn4& value) noexcept;
/// @}

} // namespace verbena::nfs::v4

namespace verbena::xdr {

template<>
struct codec<nfs::v4::GETDEVICEINFO4res>
    : nfs::v4::detail::union_codec<nfs::v4::GETDEVICEINFO4res, 4,
                                   8 + opaque_size(nfs::v4::max_layout_body) +
                                       codec<nfs::v4::bitmap4>::max_size> {};
template<>
struct codec<nfs::v4::LAYOUTGET4res>
    : nfs::v4::detail::union_codec<nfs::v4::LAYOUTGET4res, 4,
                                   8 + 16 + codec<decltype(nfs::v4::LAYOUTGET4res::layout)>::max_size> {};
template<>
struct codec<nfs::v4::layoutreturn4>
    : nfs::v4::detail::union_codec<nfs::v4::layoutreturn4, 4,
                                   4 + 16 + 16 + opaque_size(nfs::v4::max_layout_body)> {};

} // namespace verbena::xdr

#pragma GCC visibility pop
