// SPDX-License-Identifier: Apache-2.0
// Operations on handles, names, attributes and data: 8881 18.1 to 18.32, what has no state of its own.
#pragma once

#include <verbena/protocols/nfs/wire/v4/attributes.hpp>
#include <verbena/protocols/nfs/wire/v4/operation.hpp>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

struct ACCESS4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::access;
    std::uint32_t access = 0; // bits of access4
};
struct ACCESS4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::access;
    nfsstat4 status = nfsstat4::ok;
    std::uint32_t supported = 0;
    std::uint32_t access = 0;
};

struct COMMIT4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::commit;
    std::uint64_t offset = 0;
    std::uint32_t count = 0;
};
struct COMMIT4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::commit;
    nfsstat4 status = nfsstat4::ok;
    verifier4 writeverf{};
};

/// What CREATE makes. A type that nobody knows comes without a body, to be answered with BADTYPE, as reg is.
struct createtype4 {
    nfs_ftype4 type = nfs_ftype4::dir;
    large_opaque<max_linktext> linkdata; // if lnk; over RDMA it may come in a Read chunk (8267 6.1)
    specdata4 devdata;                   // if blk or chr
};

struct CREATE4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::create;
    createtype4 objtype;
    component4 objname;
    fattr4 createattrs;
};
struct CREATE4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::create;
    nfsstat4 status = nfsstat4::ok;
    change_info4 cinfo;
    bitmap4 attrset;
};

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

using GETFH4args = no_arguments<nfs_opnum4::getfh>;
struct GETFH4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::getfh;
    nfsstat4 status = nfsstat4::ok;
    nfs_fh4 object;
};

struct LINK4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::link;
    component4 newname;
};
struct LINK4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::link;
    nfsstat4 status = nfsstat4::ok;
    change_info4 cinfo;
};

struct LOOKUP4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::lookup;
    component4 objname;
};
using LOOKUP4res = status_alone<nfs_opnum4::lookup>;

using LOOKUPP4args = no_arguments<nfs_opnum4::lookupp>;
using LOOKUPP4res = status_alone<nfs_opnum4::lookupp>;

struct NVERIFY4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::nverify;
    fattr4 obj_attributes;
};
using NVERIFY4res = status_alone<nfs_opnum4::nverify>;

struct OPENATTR4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::openattr;
    bool createdir = false;
};
using OPENATTR4res = status_alone<nfs_opnum4::openattr>;

struct PUTFH4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::putfh;
    nfs_fh4 object;
};
using PUTFH4res = status_alone<nfs_opnum4::putfh>;

using PUTPUBFH4args = no_arguments<nfs_opnum4::putpubfh>;
using PUTPUBFH4res = status_alone<nfs_opnum4::putpubfh>;

using PUTROOTFH4args = no_arguments<nfs_opnum4::putrootfh>;
using PUTROOTFH4res = status_alone<nfs_opnum4::putrootfh>;

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
    large_opaque<UINT32_MAX> data; // the message bounds it
};

/// The results stand in directory.hpp.
struct READDIR4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::readdir;
    std::uint64_t cookie = 0;
    verifier4 cookieverf{};
    std::uint32_t dircount = 0; // bytes of cookies and names, a hint; 0 is none
    std::uint32_t maxcount = 0; // bytes of the whole READDIR4resok
    bitmap4 attr_request;
};

using READLINK4args = no_arguments<nfs_opnum4::readlink>;
/// Over RDMA the text may go into a Write chunk (8267 6.1).
struct READLINK4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::readlink;
    nfsstat4 status = nfsstat4::ok;
    large_opaque<max_linktext> link;
};

struct REMOVE4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::remove;
    component4 target;
};
struct REMOVE4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::remove;
    nfsstat4 status = nfsstat4::ok;
    change_info4 cinfo;
};

struct RENAME4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::rename;
    component4 oldname; // in the saved handle's directory
    component4 newname; // in the current one's
};
struct RENAME4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::rename;
    nfsstat4 status = nfsstat4::ok;
    change_info4 source_cinfo;
    change_info4 target_cinfo;
};

using RESTOREFH4args = no_arguments<nfs_opnum4::restorefh>;
using RESTOREFH4res = status_alone<nfs_opnum4::restorefh>;

using SAVEFH4args = no_arguments<nfs_opnum4::savefh>;
using SAVEFH4res = status_alone<nfs_opnum4::savefh>;

/// flavor numbers of RFC 5531; only RPCSEC_GSS says more.
struct secinfo4 {
    static constexpr std::uint32_t auth_none = 0;
    static constexpr std::uint32_t auth_sys = 1;
    static constexpr std::uint32_t rpcsec_gss = 6;

    std::uint32_t flavor = auth_sys;
    bytes_view<max_oid> oid; // from here on if rpcsec_gss
    std::uint32_t qop = 0;
    rpc_gss_svc_t service = rpc_gss_svc_t::none;
};

struct SECINFO4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::secinfo;
    component4 name;
};
struct SECINFO4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::secinfo;
    nfsstat4 status = nfsstat4::ok;
    array_view<secinfo4, max_security_flavours> flavours; // the preferred one first
};

struct SECINFO_NO_NAME4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::secinfo_no_name;
    secinfo_style4 style = secinfo_style4::current_fh;
};
struct SECINFO_NO_NAME4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::secinfo_no_name;
    nfsstat4 status = nfsstat4::ok;
    array_view<secinfo4, max_security_flavours> flavours;
};

struct SETATTR4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::setattr;
    stateid4 stateid; // for the size
    fattr4 obj_attributes;
};
/// attrsset travels with each status: what was set before it failed.
struct SETATTR4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::setattr;
    nfsstat4 status = nfsstat4::ok;
    bitmap4 attrsset;
};

struct VERIFY4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::verify;
    fattr4 obj_attributes;
};
using VERIFY4res = status_alone<nfs_opnum4::verify>;

/// Over RDMA the data may come in a Read chunk (8267 6.1).
struct WRITE4args {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::write;
    stateid4 stateid;
    std::uint64_t offset = 0;
    stable_how4 stable = stable_how4::unstable;
    large_opaque<UINT32_MAX> data; // the message bounds it
};
struct WRITE4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::write;
    nfsstat4 status = nfsstat4::ok;
    std::uint32_t count = 0;
    stable_how4 committed = stable_how4::unstable;
    verifier4 writeverf{};
};

void encode_union(xdr::encoder& out, const createtype4& value) noexcept;
void decode_union(xdr::decoder& in, createtype4& value) noexcept;
void encode_union(xdr::encoder& out, const secinfo4& value) noexcept;
void decode_union(xdr::decoder& in, secinfo4& value) noexcept;
void encode_union(xdr::encoder& out, const SETATTR4res& value) noexcept;
void decode_union(xdr::decoder& in, SETATTR4res& value) noexcept;

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
