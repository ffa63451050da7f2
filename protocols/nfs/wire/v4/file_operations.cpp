// SPDX-License-Identifier: Apache-2.0
#include "pieces.hpp"

#include <verbena/protocols/nfs/wire/v4/file_operations.hpp>

namespace verbena::nfs::v4 {

using wire::get;
using wire::put;

void encode_union(xdr::encoder& out, const createtype4& value) noexcept
{
    put(out, value.type);
    switch (value.type) {
    case nfs_ftype4::lnk: return put(out, value.linkdata);
    case nfs_ftype4::blk:
    case nfs_ftype4::chr: return put(out, value.devdata);
    default: return;
    }
}

void decode_union(xdr::decoder& in, createtype4& value) noexcept
{
    get(in, value.type);
    switch (value.type) {
    case nfs_ftype4::lnk: return get(in, value.linkdata);
    case nfs_ftype4::blk:
    case nfs_ftype4::chr: return get(in, value.devdata);
    default: return;
    }
}

void encode_union(xdr::encoder& out, const secinfo4& value) noexcept
{
    put(out, value.flavor);
    if (value.flavor == secinfo4::rpcsec_gss)
        put(out, value.oid, value.qop, value.service);
}

void decode_union(xdr::decoder& in, secinfo4& value) noexcept
{
    get(in, value.flavor);
    if (value.flavor == secinfo4::rpcsec_gss)
        get(in, value.oid, value.qop, value.service);
}

void encode_union(xdr::encoder& out, const SETATTR4res& value) noexcept
{
    put(out, value.status, value.attrsset);
}

void decode_union(xdr::decoder& in, SETATTR4res& value) noexcept { get(in, value.status, value.attrsset); }

} // namespace verbena::nfs::v4
