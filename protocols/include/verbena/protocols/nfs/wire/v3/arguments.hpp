// SPDX-License-Identifier: Apache-2.0
// The arguments of the NFS version 3 procedures (RFC 1813 section 3.3). They own nothing: names and
// payloads are views into the message, or into the caller's memory when they are to be sent.
#pragma once

#include <verbena/protocols/nfs/wire/v3/types.hpp>
#include <verbena/protocols/xdr/decoder.hpp>

#pragma GCC visibility push(default)

namespace verbena::nfs::v3 {

/// GETATTR's arguments (RFC 1813 3.3.1).
struct GETATTR3args {
    nfs_fh3 object;
};

/// SETATTR's arguments (RFC 1813 3.3.2).
struct SETATTR3args {
    nfs_fh3 object;
    sattr3 new_attributes;
    std::optional<nfstime3> guard; ///< the ctime that the object must have
};

/// LOOKUP's arguments (RFC 1813 3.3.3).
struct LOOKUP3args {
    diropargs3 what;
};

/// ACCESS's arguments (RFC 1813 3.3.4).
struct ACCESS3args {
    nfs_fh3 object;
    std::uint32_t access = 0; ///< bits of access3
};

/// READLINK's arguments (RFC 1813 3.3.5).
struct READLINK3args {
    nfs_fh3 symlink;
};

/// READ's arguments (RFC 1813 3.3.6).
struct READ3args {
    nfs_fh3 file;
    std::uint64_t offset = 0;
    std::uint32_t count = 0;
};

/// What is on stable storage when a WRITE is answered (RFC 1813 3.3.7).
enum class stable_how : std::uint32_t { unstable = 0, data_sync = 1, file_sync = 2 };

/// `count` equals data.length: decoding refuses anything else. To send bytes that the transport
/// supplies, set data.external and data.length; else data.inline_bytes are copied.
struct WRITE3args {
    nfs_fh3 file;
    std::uint64_t offset = 0;
    std::uint32_t count = 0;
    stable_how stable = stable_how::unstable;
    xdr::payload_ref data;
};

/// What CREATE does where the name is there (RFC 1813 3.3.8).
enum class createmode3 : std::uint32_t { unchecked = 0, guarded = 1, exclusive = 2 };

/// CREATE's arguments (RFC 1813 3.3.8).
struct CREATE3args {
    diropargs3 where;
    createmode3 mode = createmode3::unchecked;
    sattr3 obj_attributes; ///< unless exclusive
    createverf3 verf{};    // if exclusive
};

/// MKDIR's arguments (RFC 1813 3.3.9).
struct MKDIR3args {
    diropargs3 where;
    sattr3 attributes;
};

/// symlink_data is sent like WRITE3args::data.
struct SYMLINK3args {
    diropargs3 where;
    sattr3 symlink_attributes;
    xdr::payload_ref symlink_data;
};

/// MKNOD's arguments (RFC 1813 3.3.11).
struct MKNOD3args {
    diropargs3 where;
    ftype3 type = ftype3::fifo;
    sattr3 attributes; ///< if chr, blk, sock or fifo
    specdata3 spec;    // if chr or blk
};

/// REMOVE's arguments (RFC 1813 3.3.12).
struct REMOVE3args {
    diropargs3 object;
};

/// RMDIR's arguments (RFC 1813 3.3.13).
struct RMDIR3args {
    diropargs3 object;
};

/// RENAME's arguments (RFC 1813 3.3.14).
struct RENAME3args {
    diropargs3 from;
    diropargs3 to;
};

/// LINK's arguments (RFC 1813 3.3.15).
struct LINK3args {
    nfs_fh3 file;
    diropargs3 link;
};

/// READDIR's arguments (RFC 1813 3.3.16).
struct READDIR3args {
    nfs_fh3 dir;
    std::uint64_t cookie = 0;
    cookieverf3 cookieverf{};
    std::uint32_t count = 0; ///< of the whole READDIR3resok
};

/// READDIRPLUS's arguments (RFC 1813 3.3.17).
struct READDIRPLUS3args {
    nfs_fh3 dir;
    std::uint64_t cookie = 0;
    cookieverf3 cookieverf{};
    std::uint32_t dircount = 0; ///< of fileids, names and cookies
    std::uint32_t maxcount = 0; ///< of the whole READDIRPLUS3resok
};

/// FSSTAT's arguments (RFC 1813 3.3.18).
struct FSSTAT3args {
    nfs_fh3 fsroot;
};

/// FSINFO's arguments (RFC 1813 3.3.19).
struct FSINFO3args {
    nfs_fh3 fsroot;
};

/// PATHCONF's arguments (RFC 1813 3.3.20).
struct PATHCONF3args {
    nfs_fh3 object;
};

/// COMMIT's arguments (RFC 1813 3.3.21).
struct COMMIT3args {
    nfs_fh3 file;
    std::uint64_t offset = 0;
    std::uint32_t count = 0;
};

} // namespace verbena::nfs::v3

#pragma GCC visibility pop
