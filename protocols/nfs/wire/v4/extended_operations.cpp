// SPDX-License-Identifier: Apache-2.0
#include "pieces.hpp"

#include <verbena/protocols/nfs/wire/v4/extended_operations.hpp>

namespace verbena::nfs::v4 {

using wire::get;
using wire::put;

void encode_union(xdr::encoder& out, const netloc4& value) noexcept
{
    put(out, value.type);
    if (value.type == netloc_type4::netaddr)
        put(out, value.addr);
    else
        put(out, value.name);
}

void decode_union(xdr::decoder& in, netloc4& value) noexcept
{
    get(in, value.type);
    if (value.type == netloc_type4::netaddr)
        get(in, value.addr);
    else
        get(in, value.name);
}

void encode_union(xdr::encoder& out, const COPY4res& value) noexcept
{
    put(out, value.status);
    if (value.status == nfsstat4::ok)
        put(out, value.response, value.requirements);
    else if (value.status == nfsstat4::offload_no_reqs)
        put(out, value.requirements);
}

void decode_union(xdr::decoder& in, COPY4res& value) noexcept
{
    get(in, value.status);
    if (value.status == nfsstat4::ok)
        get(in, value.response, value.requirements);
    else if (value.status == nfsstat4::offload_no_reqs)
        get(in, value.requirements);
}

void encode_union(xdr::encoder& out, const read_plus_content& value) noexcept
{
    put(out, value.content);
    if (value.content == data_content4::data)
        put(out, value.offset, value.data);
    else if (value.content == data_content4::hole)
        put(out, value.offset, value.length);
}

void decode_union(xdr::decoder& in, read_plus_content& value) noexcept
{
    get(in, value.content);
    if (value.content == data_content4::data)
        get(in, value.offset, value.data);
    else if (value.content == data_content4::hole)
        get(in, value.offset, value.length);
}

} // namespace verbena::nfs::v4
