// SPDX-License-Identifier: Apache-2.0
// The arguments of the NFS version 3 procedures (RFC 1813 section 3.3). They own nothing: names and
// payloads are views into the message, or into the caller's memory when they are to be sent.
#pragma once

#include <verbena/protocols/nfs/wire/v3/types.hpp>
#include <verbena/protocols/xdr/decoder.hpp>

#pragma GCC visibility push(default)

namespace verbena::nfs::v3 {

struct GETATTR3args {
    nfs_fh3 object;
};

struct SETATTR3args {
    nfs_fh3 object;
    sattr3 new_attributes;
    std::optional<nfstime3> guard; // the ctime that the object must have
};

struct LOOKUP3args {
    diropargs3 what;
};

struct ACCESS3args {
    nfs_fh3 object;
    std::uint32_t access = 0; // bits of access3
};

struct READLINK3args {
    nfs_fh3 symlink;
};

struct READ3args {
    nfs_fh3 file;
    std::uint64_t offset = 0;
    std::uint32_t count = 0;
};

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

enum class createmode3 : std::uint32_t { unchecked = 0, guarded = 1, exclusive = 2 };

struct CREATE3args {
    diropargs3 where;
    createmode3 mode = createmode3::unchecked;
    sattr3 obj_attributes; // unless exclusive
    createverf3 verf{};    // if exclusive
};

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

struct MKNOD3args {
    diropargs3 where;
    ftype3 type = ftype3::fifo;
    sattr3 attributes; // if chr, blk, sock or fifo
    specdata3 spec;    // if chr or blk
};

struct REMOVE3args {
    diropargs3 object;
};

struct RMDIR3args {
    diropargs3 object;
};

struct RENAME3args {
    diropargs3 from;
    diropargs3 to;
};

struct LINK3args {
    nfs_fh3 file;
    diropargs3 link;
};

struct READDIR3args {
    nfs_fh3 dir;
    std::uint64_t cookie = 0;
    cookieverf3 cookieverf{};
    std::uint32_t count = 0; // of the whole READDIR3resok
};

struct READDIRPLUS3args {
    nfs_fh3 dir;
    std::uint64_t cookie = 0;
    cookieverf3 cookieverf{};
    std::uint32_t dircount = 0; // of fileids, names and cookies
    std::uint32_t maxcount = 0; // of the whole READDIRPLUS3resok
};

struct FSSTAT3args {
    nfs_fh3 fsroot;
};

struct FSINFO3args {
    nfs_fh3 fsroot;
};

struct PATHCONF3args {
    nfs_fh3 object;
};

struct COMMIT3args {
    nfs_fh3 file;
    std::uint64_t offset = 0;
    std::uint32_t count = 0;
};

} // namespace verbena::nfs::v3

#pragma GCC visibility pop
