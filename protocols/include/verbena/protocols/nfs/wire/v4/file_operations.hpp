// SPDX-License-Identifier: Apache-2.0
// Operations on handles, names, attributes and data: 8881 18.1 to 18.32, what has no state of its own.
#pragma once

#include <verbena/protocols/nfs/wire/v4/attributes.hpp>
#include <verbena/protocols/nfs/wire/v4/operation.hpp>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// ACCESS's arguments (RFC 8881 18.1.1).
struct ACCESS4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::access;
    std::uint32_t access = 0; ///< bits of access4
};
/// ACCESS's results (RFC 8881 18.1.2).
struct ACCESS4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::access;
    nfsstat4 status = nfsstat4::ok;
    std::uint32_t supported = 0;
    std::uint32_t access = 0;
};

/// COMMIT's arguments (RFC 8881 18.3.1).
struct COMMIT4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::commit;
    std::uint64_t offset = 0;
    std::uint32_t count = 0;
};
/// COMMIT's results (RFC 8881 18.3.2).
struct COMMIT4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::commit;
    nfsstat4 status = nfsstat4::ok;
    verifier4 writeverf{};
};

/// What CREATE makes. A type that nobody knows comes without a body, to be answered with BADTYPE, as reg is.
struct createtype4 {
    nfs_ftype4 type = nfs_ftype4::dir;
    large_opaque<max_linktext> linkdata; ///< if lnk; over RDMA it may come in a Read chunk (8267 6.1)
    specdata4 devdata;                   // if blk or chr
};

/// CREATE's arguments (RFC 8881 18.4.1).
struct CREATE4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::create;
    createtype4 objtype;
    component4 objname;
    fattr4 createattrs;
};
/// CREATE's results (RFC 8881 18.4.2).
struct CREATE4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::create;
    nfsstat4 status = nfsstat4::ok;
    change_info4 cinfo;
    bitmap4 attrset;
};

/// GETATTR's arguments (RFC 8881 18.7.1).
struct GETATTR4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::getattr;
    bitmap4 attr_request;
};
/// A server that has values, not their bytes, writes encode_attributes() behind compound_results::begin().
struct GETATTR4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::getattr;
    nfsstat4 status = nfsstat4::ok;
    fattr4 obj_attributes;
};

/// GETFH's arguments (RFC 8881 18.8.1).
using GETFH4args = no_arguments<nfs_opnum4::getfh>;
/// GETFH's results (RFC 8881 18.8.2).
struct GETFH4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::getfh;
    nfsstat4 status = nfsstat4::ok;
    nfs_fh4 object;
};

/// LINK's arguments (RFC 8881 18.9.1).
struct LINK4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::link;
    component4 newname;
};
/// LINK's results (RFC 8881 18.9.2).
struct LINK4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::link;
    nfsstat4 status = nfsstat4::ok;
    change_info4 cinfo;
};

/// LOOKUP's arguments (RFC 8881 18.13.1).
struct LOOKUP4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::lookup;
    component4 objname;
};
/// LOOKUP's results (RFC 8881 18.13.2).
using LOOKUP4res = status_alone<nfs_opnum4::lookup>;

/// LOOKUPP's arguments (RFC 8881 18.14.1).
using LOOKUPP4args = no_arguments<nfs_opnum4::lookupp>;
/// LOOKUPP's results (RFC 8881 18.14.2).
using LOOKUPP4res = status_alone<nfs_opnum4::lookupp>;

/// NVERIFY's arguments (RFC 8881 18.15.1).
struct NVERIFY4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::nverify;
    fattr4 obj_attributes;
};
/// NVERIFY's results (RFC 8881 18.15.2).
using NVERIFY4res = status_alone<nfs_opnum4::nverify>;

/// OPENATTR's arguments (RFC 8881 18.17.1).
struct OPENATTR4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::openattr;
    bool createdir = false;
};
/// OPENATTR's results (RFC 8881 18.17.2).
using OPENATTR4res = status_alone<nfs_opnum4::openattr>;

/// PUTFH's arguments (RFC 8881 18.19.1).
struct PUTFH4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::putfh;
    nfs_fh4 object;
};
/// PUTFH's results (RFC 8881 18.19.2).
using PUTFH4res = status_alone<nfs_opnum4::putfh>;

/// PUTPUBFH's arguments (RFC 8881 18.20.1).
using PUTPUBFH4args = no_arguments<nfs_opnum4::putpubfh>;
/// PUTPUBFH's results (RFC 8881 18.20.2).
using PUTPUBFH4res = status_alone<nfs_opnum4::putpubfh>;

/// PUTROOTFH's arguments (RFC 8881 18.21.1).
using PUTROOTFH4args = no_arguments<nfs_opnum4::putrootfh>;
/// PUTROOTFH's results (RFC 8881 18.21.2).
using PUTROOTFH4res = status_alone<nfs_opnum4::putrootfh>;

/// READ's arguments (RFC 8881 18.22.1).
struct READ4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::read;
    stateid4 stateid;
    std::uint64_t offset = 0;
    std::uint32_t count = 0;
};
/// Over RDMA the data may go into a Write chunk (8267 6.1).
struct READ4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::read;
    nfsstat4 status = nfsstat4::ok;
    bool eof = false;
    large_opaque<UINT32_MAX> data; ///< the message bounds it
};

/// The results stand in directory.hpp.
struct READDIR4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::readdir;
    std::uint64_t cookie = 0;
    verifier4 cookieverf{};
    std::uint32_t dircount = 0; ///< bytes of cookies and names, a hint; 0 is none
    std::uint32_t maxcount = 0; ///< bytes of the whole READDIR4resok
    bitmap4 attr_request;
};

/// READLINK's arguments (RFC 8881 18.24.1).
using READLINK4args = no_arguments<nfs_opnum4::readlink>;
/// Over RDMA the text may go into a Write chunk (8267 6.1).
struct READLINK4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::readlink;
    nfsstat4 status = nfsstat4::ok;
    large_opaque<max_linktext> link;
};

/// REMOVE's arguments (RFC 8881 18.25.1).
struct REMOVE4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::remove;
    component4 target;
};
/// REMOVE's results (RFC 8881 18.25.2).
struct REMOVE4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::remove;
    nfsstat4 status = nfsstat4::ok;
    change_info4 cinfo;
};

/// RENAME's arguments (RFC 8881 18.26.1).
struct RENAME4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::rename;
    component4 oldname; ///< in the saved handle's directory
    component4 newname; ///< in the current one's
};
/// RENAME's results (RFC 8881 18.26.2).
struct RENAME4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::rename;
    nfsstat4 status = nfsstat4::ok;
    change_info4 source_cinfo;
    change_info4 target_cinfo;
};

/// RESTOREFH's arguments (RFC 8881 18.27.1).
using RESTOREFH4args = no_arguments<nfs_opnum4::restorefh>;
/// RESTOREFH's results (RFC 8881 18.27.2).
using RESTOREFH4res = status_alone<nfs_opnum4::restorefh>;

/// SAVEFH's arguments (RFC 8881 18.28.1).
using SAVEFH4args = no_arguments<nfs_opnum4::savefh>;
/// SAVEFH's results (RFC 8881 18.28.2).
using SAVEFH4res = status_alone<nfs_opnum4::savefh>;

/// flavor numbers of RFC 5531; only RPCSEC_GSS says more.
struct secinfo4 {
    static constexpr std::uint32_t auth_none = 0;
    static constexpr std::uint32_t auth_sys = 1;
    static constexpr std::uint32_t rpcsec_gss = 6;

    std::uint32_t flavor = auth_sys;
    bytes_view<max_oid> oid; ///< from here on if rpcsec_gss
    std::uint32_t qop = 0;
    rpc_gss_svc_t service = rpc_gss_svc_t::none;
};

/// SECINFO's arguments (RFC 8881 18.29.1).
struct SECINFO4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::secinfo;
    component4 name;
};
/// SECINFO's results (RFC 8881 18.29.2).
struct SECINFO4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::secinfo;
    nfsstat4 status = nfsstat4::ok;
    array_view<secinfo4, max_security_flavours> flavours; ///< the preferred one first
};

/// SECINFO_NO_NAME's arguments (RFC 8881 18.45.1).
struct SECINFO_NO_NAME4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::secinfo_no_name;
    secinfo_style4 style = secinfo_style4::current_fh;
};
/// SECINFO_NO_NAME's results (RFC 8881 18.45.2).
struct SECINFO_NO_NAME4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::secinfo_no_name;
    nfsstat4 status = nfsstat4::ok;
    array_view<secinfo4, max_security_flavours> flavours;
};

/// SETATTR's arguments (RFC 8881 18.30.1).
struct SETATTR4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::setattr;
    stateid4 stateid; ///< for the size
    fattr4 obj_attributes;
};
/// attrsset travels with each status: what was set before it failed.
struct SETATTR4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::setattr;
    nfsstat4 status = nfsstat4::ok;
    bitmap4 attrsset;
};

/// VERIFY's arguments (RFC 8881 18.31.1).
struct VERIFY4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::verify;
    fattr4 obj_attributes;
};
/// VERIFY's results (RFC 8881 18.31.2).
using VERIFY4res = status_alone<nfs_opnum4::verify>;

/// Over RDMA the data may come in a Read chunk (8267 6.1).
struct WRITE4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::write;
    stateid4 stateid;
    std::uint64_t offset = 0;
    stable_how4 stable = stable_how4::unstable;
    large_opaque<UINT32_MAX> data; ///< the message bounds it
};
/// WRITE's results (RFC 8881 18.32.2).
struct WRITE4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::write;
    nfsstat4 status = nfsstat4::ok;
    std::uint32_t count = 0;
    stable_how4 committed = stable_how4::unstable;
    verifier4 writeverf{};
};

/// @name Unions
/// What codec<> of these types calls, as it knows structs alone: the arm that the discriminant chooses.
/// @{
void encode_union(xdr::encoder& out, const createtype4& value) noexcept;
void decode_union(xdr::decoder& in, createtype4& value) noexcept;
void encode_union(xdr::encoder& out, const secinfo4& value) noexcept;
void decode_union(xdr::decoder& in, secinfo4& value) noexcept;
void encode_union(xdr::encoder& out, const SETATTR4res& value) noexcept;
void decode_union(xdr::decoder& in, SETATTR4res& value) noexcept;
/// @}

} // namespace verbena::nfs::v4

namespace verbena::xdr {

template<>
struct codec<nfs::v4::createtype4> : nfs::v4::detail::union_codec<nfs::v4::createtype4, 4, 12> {};
template<>
struct codec<nfs::v4::secinfo4>
    : nfs::v4::detail::union_codec<nfs::v4::secinfo4, 4, 4 + opaque_size(nfs::v4::max_oid) + 8> {};
template<>
struct codec<nfs::v4::SETATTR4res>
    : nfs::v4::detail::union_codec<nfs::v4::SETATTR4res, 8, 4 + codec<nfs::v4::bitmap4>::max_size> {};

} // namespace verbena::xdr

#pragma GCC visibility pop
