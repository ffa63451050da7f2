// SPDX-License-Identifier: Apache-2.0
#include "pieces.hpp"

#include <verbena/protocols/nfs/wire/v3/codec.hpp>

namespace verbena::nfs::v3 {

using namespace wire;

void encode(xdr::encoder& out, const GETATTR3res& res) noexcept
{
    encode_enum(out, res.status);
    if (res.status == nfsstat3::ok)
        encode(out, res.obj_attributes);
}

void decode(xdr::decoder& in, GETATTR3res& res) noexcept
{
    if (decode_status(in, res.status))
        decode(in, res.obj_attributes);
}

void encode(xdr::encoder& out, const SETATTR3res& res) noexcept
{
    encode_enum(out, res.status);
    encode(out, res.obj_wcc);
}

void decode(xdr::decoder& in, SETATTR3res& res) noexcept
{
    decode_status(in, res.status);
    decode(in, res.obj_wcc);
}

void encode(xdr::encoder& out, const LOOKUP3res& res) noexcept
{
    encode_enum(out, res.status);
    if (res.status == nfsstat3::ok) {
        encode(out, res.object);
        encode(out, res.obj_attributes);
    }
    encode(out, res.dir_attributes);
}

void decode(xdr::decoder& in, LOOKUP3res& res) noexcept
{
    if (decode_status(in, res.status)) {
        decode(in, res.object);
        decode(in, res.obj_attributes);
    }
    decode(in, res.dir_attributes);
}

void encode(xdr::encoder& out, const ACCESS3res& res) noexcept
{
    encode_enum(out, res.status);
    encode(out, res.obj_attributes);
    if (res.status == nfsstat3::ok)
        out.u32(res.access);
}

void decode(xdr::decoder& in, ACCESS3res& res) noexcept
{
    const bool good = decode_status(in, res.status);
    decode(in, res.obj_attributes);
    if (good)
        res.access = in.u32();
}

void encode(xdr::encoder& out, const READLINK3res& res) noexcept
{
    encode_enum(out, res.status);
    encode(out, res.symlink_attributes);
    if (res.status == nfsstat3::ok)
        encode_payload(out, res.data);
}

void decode(xdr::decoder& in, READLINK3res& res) noexcept
{
    const bool good = decode_status(in, res.status);
    decode(in, res.symlink_attributes);
    if (good)
        res.data = in.payload(max_path);
}

void encode(xdr::encoder& out, const READ3res& res) noexcept
{
    encode_enum(out, res.status);
    encode(out, res.file_attributes);
    if (res.status == nfsstat3::ok) {
        out.u32(res.count);
        out.boolean(res.eof);
        encode_payload(out, res.data);
    }
}

void decode(xdr::decoder& in, READ3res& res) noexcept
{
    const bool good = decode_status(in, res.status);
    decode(in, res.file_attributes);
    if (good) {
        res.count = in.u32();
        res.eof = in.boolean();
        res.data = in.payload(UINT32_MAX); // the message bounds it
        if (in.ok() && res.data.length != res.count)
            in.fail("READ's count and data differ in length");
    }
}

void encode(xdr::encoder& out, const WRITE3res& res) noexcept
{
    encode_enum(out, res.status);
    encode(out, res.file_wcc);
    if (res.status == nfsstat3::ok) {
        out.u32(res.count);
        encode_enum(out, res.committed);
        out.opaque_fixed(res.verf);
    }
}

void decode(xdr::decoder& in, WRITE3res& res) noexcept
{
    const bool good = decode_status(in, res.status);
    decode(in, res.file_wcc);
    if (good) {
        res.count = in.u32();
        res.committed = decode_enum(in, stable_how::unstable, stable_how::file_sync, "unknown stable_how");
        decode_verifier(in, res.verf);
    }
}

void encode(xdr::encoder& out, const CREATE3res& res) noexcept
{
    encode_enum(out, res.status);
    if (res.status == nfsstat3::ok) {
        encode(out, res.obj);
        encode(out, res.obj_attributes);
    }
    encode(out, res.dir_wcc);
}

void decode(xdr::decoder& in, CREATE3res& res) noexcept
{
    if (decode_status(in, res.status)) {
        decode(in, res.obj);
        decode(in, res.obj_attributes);
    }
    decode(in, res.dir_wcc);
}

void encode(xdr::encoder& out, const REMOVE3res& res) noexcept
{
    encode_enum(out, res.status);
    encode(out, res.dir_wcc);
}

void decode(xdr::decoder& in, REMOVE3res& res) noexcept
{
    decode_status(in, res.status);
    decode(in, res.dir_wcc);
}

void encode(xdr::encoder& out, const RENAME3res& res) noexcept
{
    encode_enum(out, res.status);
    encode(out, res.fromdir_wcc);
    encode(out, res.todir_wcc);
}

void decode(xdr::decoder& in, RENAME3res& res) noexcept
{
    decode_status(in, res.status);
    decode(in, res.fromdir_wcc);
    decode(in, res.todir_wcc);
}

void encode(xdr::encoder& out, const LINK3res& res) noexcept
{
    encode_enum(out, res.status);
    encode(out, res.file_attributes);
    encode(out, res.linkdir_wcc);
}

void decode(xdr::decoder& in, LINK3res& res) noexcept
{
    decode_status(in, res.status);
    decode(in, res.file_attributes);
    decode(in, res.linkdir_wcc);
}

void encode(xdr::encoder& out, const FSSTAT3res& res) noexcept
{
    encode_enum(out, res.status);
    encode(out, res.obj_attributes);
    if (res.status == nfsstat3::ok) {
        out.u64(res.tbytes);
        out.u64(res.fbytes);
        out.u64(res.abytes);
        out.u64(res.tfiles);
        out.u64(res.ffiles);
        out.u64(res.afiles);
        out.u32(res.invarsec);
    }
}

void decode(xdr::decoder& in, FSSTAT3res& res) noexcept
{
    const bool good = decode_status(in, res.status);
    decode(in, res.obj_attributes);
    if (good) {
        res.tbytes = in.u64();
        res.fbytes = in.u64();
        res.abytes = in.u64();
        res.tfiles = in.u64();
        res.ffiles = in.u64();
        res.afiles = in.u64();
        res.invarsec = in.u32();
    }
}

void encode(xdr::encoder& out, const FSINFO3res& res) noexcept
{
    encode_enum(out, res.status);
    encode(out, res.obj_attributes);
    if (res.status == nfsstat3::ok) {
        out.u32(res.rtmax);
        out.u32(res.rtpref);
        out.u32(res.rtmult);
        out.u32(res.wtmax);
        out.u32(res.wtpref);
        out.u32(res.wtmult);
        out.u32(res.dtpref);
        out.u64(res.maxfilesize);
        encode_time(out, res.time_delta);
        out.u32(res.properties);
    }
}

void decode(xdr::decoder& in, FSINFO3res& res) noexcept
{
    const bool good = decode_status(in, res.status);
    decode(in, res.obj_attributes);
    if (good) {
        res.rtmax = in.u32();
        res.rtpref = in.u32();
        res.rtmult = in.u32();
        res.wtmax = in.u32();
        res.wtpref = in.u32();
        res.wtmult = in.u32();
        res.dtpref = in.u32();
        res.maxfilesize = in.u64();
        res.time_delta = decode_time(in);
        res.properties = in.u32();
    }
}

void encode(xdr::encoder& out, const PATHCONF3res& res) noexcept
{
    encode_enum(out, res.status);
    encode(out, res.obj_attributes);
    if (res.status == nfsstat3::ok) {
        out.u32(res.linkmax);
        out.u32(res.name_max);
        out.boolean(res.no_trunc);
        out.boolean(res.chown_restricted);
        out.boolean(res.case_insensitive);
        out.boolean(res.case_preserving);
    }
}

void decode(xdr::decoder& in, PATHCONF3res& res) noexcept
{
    const bool good = decode_status(in, res.status);
    decode(in, res.obj_attributes);
    if (good) {
        res.linkmax = in.u32();
        res.name_max = in.u32();
        res.no_trunc = in.boolean();
        res.chown_restricted = in.boolean();
        res.case_insensitive = in.boolean();
        res.case_preserving = in.boolean();
    }
}

void encode(xdr::encoder& out, const COMMIT3res& res) noexcept
{
    encode_enum(out, res.status);
    encode(out, res.file_wcc);
    if (res.status == nfsstat3::ok)
        out.opaque_fixed(res.verf);
}

void decode(xdr::decoder& in, COMMIT3res& res) noexcept
{
    const bool good = decode_status(in, res.status);
    decode(in, res.file_wcc);
    if (good)
        decode_verifier(in, res.verf);
}

} // namespace verbena::nfs::v3
