// SPDX-License-Identifier: Apache-2.0
// Encoders and decoders for every NFS version 3 procedure (RFC 1813), for servers and callers.
//
// Failures stick to the encoder or decoder: ask it once behind a whole message. A server answers
// arguments that do not decode with GARBAGE_ARGS. Bytes behind the arguments are the caller's to
// judge. NULL has neither arguments nor results.
#pragma once

#include <verbena/protocols/nfs/wire/v3/arguments.hpp>
#include <verbena/protocols/nfs/wire/v3/directory.hpp>
#include <verbena/protocols/nfs/wire/v3/results.hpp>
#include <verbena/protocols/nfs/wire/v3/types.hpp>
#include <verbena/protocols/xdr/decoder.hpp>
#include <verbena/protocols/xdr/encoder.hpp>

#pragma GCC visibility push(default)

namespace verbena::nfs::v3 {

/// @name Writing and reading what RFC 1813 defines
/// encode() writes a value; it overflows `out` where there is no room or a value breaks a limit. decode() reads one, whose views are into
/// the message; what is none lets `in` fail. A result is read and written as its status has it.
/// @{
void encode(xdr::encoder& out, const nfs_fh3& value) noexcept;
void encode(xdr::encoder& out, const fattr3& value) noexcept;
void encode(xdr::encoder& out, const post_op_attr& value) noexcept;
void encode(xdr::encoder& out, const post_op_fh3& value) noexcept;
void encode(xdr::encoder& out, const wcc_data& value) noexcept;
void encode(xdr::encoder& out, const sattr3& value) noexcept;
void encode(xdr::encoder& out, const diropargs3& value) noexcept;

void decode(xdr::decoder& in, nfs_fh3& value) noexcept;
void decode(xdr::decoder& in, fattr3& value) noexcept;
void decode(xdr::decoder& in, post_op_attr& value) noexcept;
void decode(xdr::decoder& in, post_op_fh3& value) noexcept;
void decode(xdr::decoder& in, wcc_data& value) noexcept;
void decode(xdr::decoder& in, sattr3& value) noexcept;
void decode(xdr::decoder& in, diropargs3& value) noexcept;

void encode(xdr::encoder& out, const GETATTR3args& args) noexcept;
void encode(xdr::encoder& out, const SETATTR3args& args) noexcept;
void encode(xdr::encoder& out, const LOOKUP3args& args) noexcept;
void encode(xdr::encoder& out, const ACCESS3args& args) noexcept;
void encode(xdr::encoder& out, const READLINK3args& args) noexcept;
void encode(xdr::encoder& out, const READ3args& args) noexcept;
void encode(xdr::encoder& out, const WRITE3args& args) noexcept;
void encode(xdr::encoder& out, const CREATE3args& args) noexcept;
void encode(xdr::encoder& out, const MKDIR3args& args) noexcept;
void encode(xdr::encoder& out, const SYMLINK3args& args) noexcept;
void encode(xdr::encoder& out, const MKNOD3args& args) noexcept;
void encode(xdr::encoder& out, const REMOVE3args& args) noexcept;
void encode(xdr::encoder& out, const RMDIR3args& args) noexcept;
void encode(xdr::encoder& out, const RENAME3args& args) noexcept;
void encode(xdr::encoder& out, const LINK3args& args) noexcept;
void encode(xdr::encoder& out, const READDIR3args& args) noexcept;
void encode(xdr::encoder& out, const READDIRPLUS3args& args) noexcept;
void encode(xdr::encoder& out, const FSSTAT3args& args) noexcept;
void encode(xdr::encoder& out, const FSINFO3args& args) noexcept;
void encode(xdr::encoder& out, const PATHCONF3args& args) noexcept;
void encode(xdr::encoder& out, const COMMIT3args& args) noexcept;

void decode(xdr::decoder& in, GETATTR3args& args) noexcept;
void decode(xdr::decoder& in, SETATTR3args& args) noexcept;
void decode(xdr::decoder& in, LOOKUP3args& args) noexcept;
void decode(xdr::decoder& in, ACCESS3args& args) noexcept;
void decode(xdr::decoder& in, READLINK3args& args) noexcept;
void decode(xdr::decoder& in, READ3args& args) noexcept;
void decode(xdr::decoder& in, WRITE3args& args) noexcept;
void decode(xdr::decoder& in, CREATE3args& args) noexcept;
void decode(xdr::decoder& in, MKDIR3args& args) noexcept;
void decode(xdr::decoder& in, SYMLINK3args& args) noexcept;
void decode(xdr::decoder& in, MKNOD3args& args) noexcept;
void decode(xdr::decoder& in, REMOVE3args& args) noexcept;
void decode(xdr::decoder& in, RMDIR3args& args) noexcept;
void decode(xdr::decoder& in, RENAME3args& args) noexcept;
void decode(xdr::decoder& in, LINK3args& args) noexcept;
void decode(xdr::decoder& in, READDIR3args& args) noexcept;
void decode(xdr::decoder& in, READDIRPLUS3args& args) noexcept;
void decode(xdr::decoder& in, FSSTAT3args& args) noexcept;
void decode(xdr::decoder& in, FSINFO3args& args) noexcept;
void decode(xdr::decoder& in, PATHCONF3args& args) noexcept;
void decode(xdr::decoder& in, COMMIT3args& args) noexcept;

void encode(xdr::encoder& out, const GETATTR3res& res) noexcept;
void encode(xdr::encoder& out, const SETATTR3res& res) noexcept;
void encode(xdr::encoder& out, const LOOKUP3res& res) noexcept;
void encode(xdr::encoder& out, const ACCESS3res& res) noexcept;
void encode(xdr::encoder& out, const READLINK3res& res) noexcept;
void encode(xdr::encoder& out, const READ3res& res) noexcept;
void encode(xdr::encoder& out, const WRITE3res& res) noexcept;
void encode(xdr::encoder& out, const CREATE3res& res) noexcept; // and MKDIR, SYMLINK, MKNOD
void encode(xdr::encoder& out, const REMOVE3res& res) noexcept; // and RMDIR
void encode(xdr::encoder& out, const RENAME3res& res) noexcept;
void encode(xdr::encoder& out, const LINK3res& res) noexcept;
void encode(xdr::encoder& out, const FSSTAT3res& res) noexcept;
void encode(xdr::encoder& out, const FSINFO3res& res) noexcept;
void encode(xdr::encoder& out, const PATHCONF3res& res) noexcept;
void encode(xdr::encoder& out, const COMMIT3res& res) noexcept;

void decode(xdr::decoder& in, GETATTR3res& res) noexcept;
void decode(xdr::decoder& in, SETATTR3res& res) noexcept;
void decode(xdr::decoder& in, LOOKUP3res& res) noexcept;
void decode(xdr::decoder& in, ACCESS3res& res) noexcept;
void decode(xdr::decoder& in, READLINK3res& res) noexcept;
void decode(xdr::decoder& in, READ3res& res) noexcept;
void decode(xdr::decoder& in, WRITE3res& res) noexcept;
void decode(xdr::decoder& in, CREATE3res& res) noexcept;
void decode(xdr::decoder& in, REMOVE3res& res) noexcept;
void decode(xdr::decoder& in, RENAME3res& res) noexcept;
void decode(xdr::decoder& in, LINK3res& res) noexcept;
void decode(xdr::decoder& in, FSSTAT3res& res) noexcept;
void decode(xdr::decoder& in, FSINFO3res& res) noexcept;
void decode(xdr::decoder& in, PATHCONF3res& res) noexcept;
void decode(xdr::decoder& in, COMMIT3res& res) noexcept;
/// @}

} // namespace verbena::nfs::v3

#pragma GCC visibility pop
