// SPDX-License-Identifier: Apache-2.0
#include "pieces.hpp"

#include <verbena/protocols/nfs/wire/v4/layout_operations.hpp>

namespace verbena::nfs::v4 {

using wire::get;
using wire::put;

void encode_union(xdr::encoder& out, const GETDEVICEINFO4res& value) noexcept
{
    put(out, value.status);
    if (value.status == nfsstat4::ok)
        put(out, value.layout_type, value.addr_body, value.notification);
    else if (value.status == nfsstat4::toosmall)
        put(out, value.mincount);
}

void decode_union(xdr::decoder& in, GETDEVICEINFO4res& value) noexcept
{
    get(in, value.status);
    if (value.status == nfsstat4::ok)
        get(in, value.layout_type, value.addr_body, value.notification);
    else if (value.status == nfsstat4::toosmall)
        get(in, value.mincount);
}

void encode_union(xdr::encoder& out, const LAYOUTGET4res& value) noexcept
{
    put(out, value.status);
    if (value.status == nfsstat4::ok)
        put(out, value.return_on_close, value.stateid, value.layout);
    else if (value.status == nfsstat4::layouttrylater)
        put(out, value.will_signal_layout_avail);
}

void decode_union(xdr::decoder& in, LAYOUTGET4res& value) noexcept
{
    get(in, value.status);
    if (value.status == nfsstat4::ok)
        get(in, value.return_on_close, value.stateid, value.layout);
    else if (value.status == nfsstat4::layouttrylater)
        get(in, value.will_signal_layout_avail);
}

void encode_union(xdr::encoder& out, const layoutreturn4& value) noexcept
{
    put(out, value.returntype);
    if (value.returntype == layoutreturn_type4::file)
        put(out, value.offset, value.length, value.stateid, value.body);
}

void decode_union(xdr::decoder& in, layoutreturn4& value) noexcept
{
    get(in, value.returntype);
    if (value.returntype == layoutreturn_type4::file)
        get(in, value.offset, value.length, value.stateid, value.body);
}

} // namespace verbena::nfs::v4
