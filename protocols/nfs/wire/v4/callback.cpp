// SPDX-License-Identifier: Apache-2.0
#include "pieces.hpp"

#include <verbena/protocols/nfs/wire/v4/callback.hpp>

namespace verbena::nfs::v4 {

using wire::get;
using wire::put;

const char* to_string(nfs_cb_opnum4 value) noexcept
{
    switch (value) {
    case nfs_cb_opnum4::getattr: return "CB_GETATTR";
    case nfs_cb_opnum4::recall: return "CB_RECALL";
    case nfs_cb_opnum4::layoutrecall: return "CB_LAYOUTRECALL";
    case nfs_cb_opnum4::notify: return "CB_NOTIFY";
    case nfs_cb_opnum4::push_deleg: return "CB_PUSH_DELEG";
    case nfs_cb_opnum4::recall_any: return "CB_RECALL_ANY";
    case nfs_cb_opnum4::recallable_obj_avail: return "CB_RECALLABLE_OBJ_AVAIL";
    case nfs_cb_opnum4::recall_slot: return "CB_RECALL_SLOT";
    case nfs_cb_opnum4::sequence: return "CB_SEQUENCE";
    case nfs_cb_opnum4::wants_cancelled: return "CB_WANTS_CANCELLED";
    case nfs_cb_opnum4::notify_lock: return "CB_NOTIFY_LOCK";
    case nfs_cb_opnum4::notify_deviceid: return "CB_NOTIFY_DEVICEID";
    case nfs_cb_opnum4::offload: return "CB_OFFLOAD";
    case nfs_cb_opnum4::illegal: return "CB_ILLEGAL";
    }
    return "CB_ILLEGAL";
}

void encode_union(xdr::encoder& out, const layoutrecall4& value) noexcept
{
    put(out, value.recalltype);
    switch (value.recalltype) {
    case layoutrecall_type4::file: return put(out, value.fh, value.offset, value.length, value.stateid);
    case layoutrecall_type4::fsid: return put(out, value.fsid);
    case layoutrecall_type4::all: return;
    }
}

void decode_union(xdr::decoder& in, layoutrecall4& value) noexcept
{
    get(in, value.recalltype);
    switch (value.recalltype) {
    case layoutrecall_type4::file: return get(in, value.fh, value.offset, value.length, value.stateid);
    case layoutrecall_type4::fsid: return get(in, value.fsid);
    case layoutrecall_type4::all: return;
    }
}

void encode_union(xdr::encoder& out, const offload_info4& value) noexcept
{
    put(out, value.status);
    if (value.status == nfsstat4::ok)
        put(out, value.response);
    else
        put(out, value.bytes_copied);
}

void decode_union(xdr::decoder& in, offload_info4& value) noexcept
{
    get(in, value.status);
    if (value.status == nfsstat4::ok)
        get(in, value.response);
    else
        get(in, value.bytes_copied);
}

} // namespace verbena::nfs::v4
