// SPDX-License-Identifier: Apache-2.0
// Handles, names and attributes (RFC 1813 section 2.3.5 and following).
#include "pieces.hpp"

#include <verbena/protocols/nfs/wire/v3/binding.hpp>
#include <verbena/protocols/nfs/wire/v3/codec.hpp>

namespace verbena::nfs::v3 {
namespace {

using namespace wire;

/// Writes words one behind the other into bytes whose size was checked.
class word_writer {
public:
    explicit word_writer(std::byte* to) noexcept : to_(to) {}
    void u32(std::uint32_t value) noexcept
    {
        xdr::store_u32(to_, value);
        to_ += 4;
    }
    void u64(std::uint64_t value) noexcept
    {
        xdr::store_u64(to_, value);
        to_ += 8;
    }
    void time(const nfstime3& value) noexcept
    {
        u32(value.seconds);
        u32(value.nseconds);
    }

private:
    std::byte* to_;
};

void encode_optional_u32(xdr::encoder& out, const std::optional<std::uint32_t>& value) noexcept
{
    out.boolean(value.has_value());
    if (value)
        out.u32(*value);
}

std::optional<std::uint32_t> decode_optional_u32(xdr::decoder& in) noexcept
{
    if (!in.boolean())
        return std::nullopt;
    return in.u32();
}

void encode_set_time(xdr::encoder& out, const set_time3& value) noexcept
{
    encode_enum(out, value.how);
    if (value.how == time_how::set_to_client_time)
        encode_time(out, value.time);
}

set_time3 decode_set_time(xdr::decoder& in) noexcept
{
    set_time3 value;
    value.how = decode_enum(in, time_how::dont_change, time_how::set_to_client_time, "unknown time_how");
    if (value.how == time_how::set_to_client_time)
        value.time = decode_time(in);
    return value;
}

} // namespace

void encode(xdr::encoder& out, const nfs_fh3& value) noexcept { out.opaque_var(value.bytes()); }

void decode(xdr::decoder& in, nfs_fh3& value) noexcept
{
    if (!value.assign(in.opaque_var(max_handle_size)))
        in.fail("file handle longer than 64 bytes");
}

// The commonest thing on the wire: one test of the room instead of one per field.
void encode(xdr::encoder& out, const fattr3& value) noexcept
{
    const auto space = out.reserve(wire_size::fattr3);
    if (space.empty())
        return;
    word_writer to(space.data());
    to.u32(static_cast<std::uint32_t>(value.type));
    to.u32(value.mode);
    to.u32(value.nlink);
    to.u32(value.uid);
    to.u32(value.gid);
    to.u64(value.size);
    to.u64(value.used);
    to.u32(value.rdev.specdata1);
    to.u32(value.rdev.specdata2);
    to.u64(value.fsid);
    to.u64(value.fileid);
    to.time(value.atime);
    to.time(value.mtime);
    to.time(value.ctime);
}

void decode(xdr::decoder& in, fattr3& value) noexcept
{
    value.type = decode_enum(in, ftype3::reg, ftype3::fifo, "unknown ftype3");
    value.mode = in.u32();
    value.nlink = in.u32();
    value.uid = in.u32();
    value.gid = in.u32();
    value.size = in.u64();
    value.used = in.u64();
    value.rdev.specdata1 = in.u32();
    value.rdev.specdata2 = in.u32();
    value.fsid = in.u64();
    value.fileid = in.u64();
    value.atime = decode_time(in);
    value.mtime = decode_time(in);
    value.ctime = decode_time(in);
}

void encode(xdr::encoder& out, const post_op_attr& value) noexcept
{
    out.boolean(value.has_value());
    if (value)
        encode(out, *value);
}

void decode(xdr::decoder& in, post_op_attr& value) noexcept
{
    if (in.boolean())
        decode(in, value.emplace());
    else
        value.reset();
}

void encode(xdr::encoder& out, const post_op_fh3& value) noexcept
{
    out.boolean(value.has_value());
    if (value)
        encode(out, *value);
}

void decode(xdr::decoder& in, post_op_fh3& value) noexcept
{
    if (in.boolean())
        decode(in, value.emplace());
    else
        value.reset();
}

void encode(xdr::encoder& out, const wcc_data& value) noexcept
{
    out.boolean(value.before.has_value());
    if (value.before) {
        out.u64(value.before->size);
        encode_time(out, value.before->mtime);
        encode_time(out, value.before->ctime);
    }
    encode(out, value.after);
}

void decode(xdr::decoder& in, wcc_data& value) noexcept
{
    if (in.boolean()) {
        wcc_attr& before = value.before.emplace();
        before.size = in.u64();
        before.mtime = decode_time(in);
        before.ctime = decode_time(in);
    } else {
        value.before.reset();
    }
    decode(in, value.after);
}

void encode(xdr::encoder& out, const sattr3& value) noexcept
{
    encode_optional_u32(out, value.mode);
    encode_optional_u32(out, value.uid);
    encode_optional_u32(out, value.gid);
    out.boolean(value.size.has_value());
    if (value.size)
        out.u64(*value.size);
    encode_set_time(out, value.atime);
    encode_set_time(out, value.mtime);
}

void decode(xdr::decoder& in, sattr3& value) noexcept
{
    value.mode = decode_optional_u32(in);
    value.uid = decode_optional_u32(in);
    value.gid = decode_optional_u32(in);
    value.size.reset();
    if (in.boolean())
        value.size = in.u64();
    value.atime = decode_set_time(in);
    value.mtime = decode_set_time(in);
}

void encode(xdr::encoder& out, const diropargs3& value) noexcept
{
    encode(out, value.dir);
    out.string(value.name);
}

void decode(xdr::decoder& in, diropargs3& value) noexcept
{
    decode(in, value.dir);
    value.name = in.string(max_filename);
}

} // namespace verbena::nfs::v3
