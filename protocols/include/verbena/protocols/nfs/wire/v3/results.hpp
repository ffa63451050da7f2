// SPDX-License-Identifier: Apache-2.0
// The results of the NFS version 3 procedures (RFC 1813 section 3.3). Each is the RFC's union laid
// flat: attributes and wcc data belong to both arms, the other fields count only if status is ok.
// READDIR and READDIRPLUS stand in directory.hpp.
#pragma once

#include <verbena/protocols/nfs/wire/v3/arguments.hpp>
#include <verbena/protocols/nfs/wire/v3/types.hpp>
#include <verbena/protocols/xdr/decoder.hpp>

#pragma GCC visibility push(default)

namespace verbena::nfs::v3 {

/// GETATTR's results (RFC 1813 3.3.1).
struct GETATTR3res {
    nfsstat3 status = nfsstat3::ok;
    fattr3 obj_attributes;
};

/// SETATTR's results (RFC 1813 3.3.2).
struct SETATTR3res {
    nfsstat3 status = nfsstat3::ok;
    wcc_data obj_wcc;
};

/// LOOKUP's results (RFC 1813 3.3.3).
struct LOOKUP3res {
    nfsstat3 status = nfsstat3::ok;
    nfs_fh3 object;
    post_op_attr obj_attributes;
    post_op_attr dir_attributes;
};

/// ACCESS's results (RFC 1813 3.3.4).
struct ACCESS3res {
    nfsstat3 status = nfsstat3::ok;
    post_op_attr obj_attributes;
    std::uint32_t access = 0;
};

/// data is sent like READ3res::data.
struct READLINK3res {
    nfsstat3 status = nfsstat3::ok;
    post_op_attr symlink_attributes;
    xdr::payload_ref data;
};

/// To send bytes that the transport supplies, set data.external and data.length; else
/// data.inline_bytes are copied. data.length equals count.
struct READ3res {
    nfsstat3 status = nfsstat3::ok;
    post_op_attr file_attributes;
    std::uint32_t count = 0;
    bool eof = false;
    xdr::payload_ref data;
};

/// WRITE's results (RFC 1813 3.3.7).
struct WRITE3res {
    nfsstat3 status = nfsstat3::ok;
    wcc_data file_wcc;
    std::uint32_t count = 0;
    stable_how committed = stable_how::unstable;
    writeverf3 verf{};
};

/// CREATE's results (RFC 1813 3.3.8).
struct CREATE3res {
    nfsstat3 status = nfsstat3::ok;
    post_op_fh3 obj;
    post_op_attr obj_attributes;
    wcc_data dir_wcc;
};

/// MKDIR's results (RFC 1813 3.3.9).
using MKDIR3res = CREATE3res;
/// SYMLINK's results (RFC 1813 3.3.10).
using SYMLINK3res = CREATE3res;
/// MKNOD's results (RFC 1813 3.3.11).
using MKNOD3res = CREATE3res;

/// REMOVE's results (RFC 1813 3.3.12).
struct REMOVE3res {
    nfsstat3 status = nfsstat3::ok;
    wcc_data dir_wcc;
};

/// RMDIR's results (RFC 1813 3.3.13).
using RMDIR3res = REMOVE3res;

/// RENAME's results (RFC 1813 3.3.14).
struct RENAME3res {
    nfsstat3 status = nfsstat3::ok;
    wcc_data fromdir_wcc;
    wcc_data todir_wcc;
};

/// LINK's results (RFC 1813 3.3.15).
struct LINK3res {
    nfsstat3 status = nfsstat3::ok;
    post_op_attr file_attributes;
    wcc_data linkdir_wcc;
};

/// FSSTAT's results (RFC 1813 3.3.18).
struct FSSTAT3res {
    nfsstat3 status = nfsstat3::ok;
    post_op_attr obj_attributes;
    std::uint64_t tbytes = 0;
    std::uint64_t fbytes = 0;
    std::uint64_t abytes = 0;
    std::uint64_t tfiles = 0;
    std::uint64_t ffiles = 0;
    std::uint64_t afiles = 0;
    std::uint32_t invarsec = 0; ///< seconds
};

/// FSINFO's results (RFC 1813 3.3.19).
struct FSINFO3res {
    nfsstat3 status = nfsstat3::ok;
    post_op_attr obj_attributes;
    std::uint32_t rtmax = 0;
    std::uint32_t rtpref = 0;
    std::uint32_t rtmult = 0;
    std::uint32_t wtmax = 0;
    std::uint32_t wtpref = 0;
    std::uint32_t wtmult = 0;
    std::uint32_t dtpref = 0;
    std::uint64_t maxfilesize = 0;
    nfstime3 time_delta;
    std::uint32_t properties = 0; ///< bits of fsf3
};

/// PATHCONF's results (RFC 1813 3.3.20).
struct PATHCONF3res {
    nfsstat3 status = nfsstat3::ok;
    post_op_attr obj_attributes;
    std::uint32_t linkmax = 0;
    std::uint32_t name_max = 0;
    bool no_trunc = false;
    bool chown_restricted = false;
    bool case_insensitive = false;
    bool case_preserving = false;
};

/// COMMIT's results (RFC 1813 3.3.21).
struct COMMIT3res {
    nfsstat3 status = nfsstat3::ok;
    wcc_data file_wcc;
    writeverf3 verf{};
};

} // namespace verbena::nfs::v3

#pragma GCC visibility pop
