// SPDX-License-Identifier: Apache-2.0
#include "pieces.hpp"

#include <verbena/protocols/nfs/wire/v3/codec.hpp>

namespace verbena::nfs::v3 {

using namespace wire;

void encode(xdr::encoder& out, const GETATTR3args& args) noexcept { encode(out, args.object); }

void decode(xdr::decoder& in, GETATTR3args& args) noexcept { decode(in, args.object); }

void encode(xdr::encoder& out, const SETATTR3args& args) noexcept
{
    encode(out, args.object);
    encode(out, args.new_attributes);
    out.boolean(args.guard.has_value());
    if (args.guard)
        encode_time(out, *args.guard);
}

void decode(xdr::decoder& in, SETATTR3args& args) noexcept
{
    decode(in, args.object);
    decode(in, args.new_attributes);
    args.guard.reset();
    if (in.boolean())
        args.guard = decode_time(in);
}

void encode(xdr::encoder& out, const LOOKUP3args& args) noexcept { encode(out, args.what); }

void decode(xdr::decoder& in, LOOKUP3args& args) noexcept { decode(in, args.what); }

void encode(xdr::encoder& out, const ACCESS3args& args) noexcept
{
    encode(out, args.object);
    out.u32(args.access);
}

void decode(xdr::decoder& in, ACCESS3args& args) noexcept
{
    decode(in, args.object);
    args.access = in.u32();
}

void encode(xdr::encoder& out, const READLINK3args& args) noexcept { encode(out, args.symlink); }

void decode(xdr::decoder& in, READLINK3args& args) noexcept { decode(in, args.symlink); }

void encode(xdr::encoder& out, const READ3args& args) noexcept
{
    encode(out, args.file);
    out.u64(args.offset);
    out.u32(args.count);
}

void decode(xdr::decoder& in, READ3args& args) noexcept
{
    decode(in, args.file);
    args.offset = in.u64();
    args.count = in.u32();
}

void encode(xdr::encoder& out, const WRITE3args& args) noexcept
{
    encode(out, args.file);
    out.u64(args.offset);
    out.u32(args.count);
    encode_enum(out, args.stable);
    encode_payload(out, args.data);
}

void decode(xdr::decoder& in, WRITE3args& args) noexcept
{
    decode(in, args.file);
    args.offset = in.u64();
    args.count = in.u32();
    args.stable = decode_enum(in, stable_how::unstable, stable_how::file_sync, "unknown stable_how");
    args.data = in.payload(UINT32_MAX); // the message bounds it
    if (in.ok() && args.data.length != args.count)
        in.fail("WRITE's count and data differ in length");
}

void encode(xdr::encoder& out, const CREATE3args& args) noexcept
{
    encode(out, args.where);
    encode_enum(out, args.mode);
    if (args.mode == createmode3::exclusive)
        out.opaque_fixed(args.verf);
    else
        encode(out, args.obj_attributes);
}

void decode(xdr::decoder& in, CREATE3args& args) noexcept
{
    decode(in, args.where);
    args.mode = decode_enum(in, createmode3::unchecked, createmode3::exclusive, "unknown createmode3");
    if (args.mode == createmode3::exclusive)
        decode_verifier(in, args.verf);
    else
        decode(in, args.obj_attributes);
}

void encode(xdr::encoder& out, const MKDIR3args& args) noexcept
{
    encode(out, args.where);
    encode(out, args.attributes);
}

void decode(xdr::decoder& in, MKDIR3args& args) noexcept
{
    decode(in, args.where);
    decode(in, args.attributes);
}

void encode(xdr::encoder& out, const SYMLINK3args& args) noexcept
{
    encode(out, args.where);
    encode(out, args.symlink_attributes);
    encode_payload(out, args.symlink_data);
}

void decode(xdr::decoder& in, SYMLINK3args& args) noexcept
{
    decode(in, args.where);
    decode(in, args.symlink_attributes);
    args.symlink_data = in.payload(max_path);
}

void encode(xdr::encoder& out, const MKNOD3args& args) noexcept
{
    encode(out, args.where);
    encode_enum(out, args.type);
    switch (args.type) {
    case ftype3::chr:
    case ftype3::blk:
        encode(out, args.attributes);
        out.u32(args.spec.specdata1);
        out.u32(args.spec.specdata2);
        break;
    case ftype3::sock:
    case ftype3::fifo: encode(out, args.attributes); break;
    default: break;
    }
}

void decode(xdr::decoder& in, MKNOD3args& args) noexcept
{
    decode(in, args.where);
    args.type = decode_enum(in, ftype3::reg, ftype3::fifo, "unknown ftype3");
    switch (args.type) {
    case ftype3::chr:
    case ftype3::blk:
        decode(in, args.attributes);
        args.spec.specdata1 = in.u32();
        args.spec.specdata2 = in.u32();
        break;
    case ftype3::sock:
    case ftype3::fifo: decode(in, args.attributes); break;
    default: break; // the union's void arm: to be answered with badtype
    }
}

void encode(xdr::encoder& out, const REMOVE3args& args) noexcept { encode(out, args.object); }

void decode(xdr::decoder& in, REMOVE3args& args) noexcept { decode(in, args.object); }

void encode(xdr::encoder& out, const RMDIR3args& args) noexcept { encode(out, args.object); }

void decode(xdr::decoder& in, RMDIR3args& args) noexcept { decode(in, args.object); }

void encode(xdr::encoder& out, const RENAME3args& args) noexcept
{
    encode(out, args.from);
    encode(out, args.to);
}

void decode(xdr::decoder& in, RENAME3args& args) noexcept
{
    decode(in, args.from);
    decode(in, args.to);
}

void encode(xdr::encoder& out, const LINK3args& args) noexcept
{
    encode(out, args.file);
    encode(out, args.link);
}

void decode(xdr::decoder& in, LINK3args& args) noexcept
{
    decode(in, args.file);
    decode(in, args.link);
}

void encode(xdr::encoder& out, const READDIR3args& args) noexcept
{
    encode(out, args.dir);
    out.u64(args.cookie);
    out.opaque_fixed(args.cookieverf);
    out.u32(args.count);
}

void decode(xdr::decoder& in, READDIR3args& args) noexcept
{
    decode(in, args.dir);
    args.cookie = in.u64();
    decode_verifier(in, args.cookieverf);
    args.count = in.u32();
}

void encode(xdr::encoder& out, const READDIRPLUS3args& args) noexcept
{
    encode(out, args.dir);
    out.u64(args.cookie);
    out.opaque_fixed(args.cookieverf);
    out.u32(args.dircount);
    out.u32(args.maxcount);
}

void decode(xdr::decoder& in, READDIRPLUS3args& args) noexcept
{
    decode(in, args.dir);
    args.cookie = in.u64();
    decode_verifier(in, args.cookieverf);
    args.dircount = in.u32();
    args.maxcount = in.u32();
}

void encode(xdr::encoder& out, const FSSTAT3args& args) noexcept { encode(out, args.fsroot); }

void decode(xdr::decoder& in, FSSTAT3args& args) noexcept { decode(in, args.fsroot); }

void encode(xdr::encoder& out, const FSINFO3args& args) noexcept { encode(out, args.fsroot); }

void decode(xdr::decoder& in, FSINFO3args& args) noexcept { decode(in, args.fsroot); }

void encode(xdr::encoder& out, const PATHCONF3args& args) noexcept { encode(out, args.object); }

void decode(xdr::decoder& in, PATHCONF3args& args) noexcept { decode(in, args.object); }

void encode(xdr::encoder& out, const COMMIT3args& args) noexcept
{
    encode(out, args.file);
    out.u64(args.offset);
    out.u32(args.count);
}

void decode(xdr::decoder& in, COMMIT3args& args) noexcept
{
    decode(in, args.file);
    args.offset = in.u64();
    args.count = in.u32();
}

} // namespace verbena::nfs::v3
