// SPDX-License-Identifier: Apache-2.0
#include "pieces.hpp"

#include <verbena/protocols/nfs/wire/v4/state_operations.hpp>

namespace verbena::nfs::v4 {

using wire::get;
using wire::put;

void encode_union(xdr::encoder& out, const locker4& value) noexcept
{
    put(out, value.new_lock_owner);
    if (value.new_lock_owner)
        put(out, value.open_seqid, value.open_stateid, value.lock_seqid, value.lock_owner);
    else
        put(out, value.lock_stateid, value.lock_seqid);
}

void decode_union(xdr::decoder& in, locker4& value) noexcept
{
    get(in, value.new_lock_owner);
    if (value.new_lock_owner)
        get(in, value.open_seqid, value.open_stateid, value.lock_seqid, value.lock_owner);
    else
        get(in, value.lock_stateid, value.lock_seqid);
}

void encode_union(xdr::encoder& out, const LOCK4res& value) noexcept
{
    put(out, value.status);
    if (value.status == nfsstat4::ok)
        put(out, value.lock_stateid);
    else if (value.status == nfsstat4::denied)
        put(out, value.denied);
}

void decode_union(xdr::decoder& in, LOCK4res& value) noexcept
{
    get(in, value.status);
    if (value.status == nfsstat4::ok)
        get(in, value.lock_stateid);
    else if (value.status == nfsstat4::denied)
        get(in, value.denied);
}

void encode_union(xdr::encoder& out, const LOCKT4res& value) noexcept
{
    put(out, value.status);
    if (value.status == nfsstat4::denied)
        put(out, value.denied);
}

void decode_union(xdr::decoder& in, LOCKT4res& value) noexcept
{
    get(in, value.status);
    if (value.status == nfsstat4::denied)
        get(in, value.denied);
}

void encode_union(xdr::encoder& out, const openflag4& value) noexcept
{
    put(out, value.opentype);
    if (value.opentype != opentype4::create)
        return;
    put(out, value.mode);
    if (value.mode == createmode4::exclusive || value.mode == createmode4::exclusive4_1)
        put(out, value.verf);
    if (value.mode != createmode4::exclusive)
        put(out, value.attrs);
}

void decode_union(xdr::decoder& in, openflag4& value) noexcept
{
    get(in, value.opentype);
    if (value.opentype != opentype4::create)
        return;
    get(in, value.mode);
    if (value.mode == createmode4::exclusive || value.mode == createmode4::exclusive4_1)
        get(in, value.verf);
    if (value.mode != createmode4::exclusive)
        get(in, value.attrs);
}

void encode_union(xdr::encoder& out, const open_claim4& value) noexcept
{
    put(out, value.claim);
    switch (value.claim) {
    case open_claim_type4::null:
    case open_claim_type4::delegate_prev: return put(out, value.file);
    case open_claim_type4::previous: return put(out, value.delegate_type);
    case open_claim_type4::delegate_cur: return put(out, value.delegate_stateid, value.file);
    case open_claim_type4::deleg_cur_fh: return put(out, value.delegate_stateid);
    case open_claim_type4::fh:
    case open_claim_type4::deleg_prev_fh: return;
    }
}

void decode_union(xdr::decoder& in, open_claim4& value) noexcept
{
    get(in, value.claim);
    switch (value.claim) {
    case open_claim_type4::null:
    case open_claim_type4::delegate_prev: return get(in, value.file);
    case open_claim_type4::previous: return get(in, value.delegate_type);
    case open_claim_type4::delegate_cur: return get(in, value.delegate_stateid, value.file);
    case open_claim_type4::deleg_cur_fh: return get(in, value.delegate_stateid);
    case open_claim_type4::fh:
    case open_claim_type4::deleg_prev_fh: return;
    }
}

void encode_union(xdr::encoder& out, const nfs_space_limit4& value) noexcept
{
    put(out, value.limitby);
    if (value.limitby == limit_by4::size)
        put(out, value.filesize);
    else
        put(out, value.num_blocks, value.bytes_per_block);
}

void decode_union(xdr::decoder& in, nfs_space_limit4& value) noexcept
{
    get(in, value.limitby);
    if (value.limitby == limit_by4::size)
        get(in, value.filesize);
    else
        get(in, value.num_blocks, value.bytes_per_block);
}

void encode_union(xdr::encoder& out, const open_delegation4& value) noexcept
{
    put(out, value.delegation_type);
    switch (value.delegation_type) {
    case open_delegation_type4::none: return;
    case open_delegation_type4::read:
    case open_delegation_type4::read_attrs_deleg:
        return put(out, value.stateid, value.recall, value.permissions);
    case open_delegation_type4::write:
    case open_delegation_type4::write_attrs_deleg:
        return put(out, value.stateid, value.recall, value.space_limit, value.permissions);
    case open_delegation_type4::none_ext:
        put(out, value.why);
        if (value.why == why_no_delegation4::contention || value.why == why_no_delegation4::resource)
            put(out, value.will_tell);
        return;
    }
}

void decode_union(xdr::decoder& in, open_delegation4& value) noexcept
{
    get(in, value.delegation_type);
    switch (value.delegation_type) {
    case open_delegation_type4::none: return;
    case open_delegation_type4::read:
    case open_delegation_type4::read_attrs_deleg:
        return get(in, value.stateid, value.recall, value.permissions);
    case open_delegation_type4::write:
    case open_delegation_type4::write_attrs_deleg:
        return get(in, value.stateid, value.recall, value.space_limit, value.permissions);
    case open_delegation_type4::none_ext:
        get(in, value.why);
        if (value.why == why_no_delegation4::contention || value.why == why_no_delegation4::resource)
            get(in, value.will_tell);
        return;
    }
}

void encode_union(xdr::encoder& out, const SETCLIENTID4res& value) noexcept
{
    put(out, value.status);
    if (value.status == nfsstat4::ok)
        put(out, value.clientid, value.setclientid_confirm);
    else if (value.status == nfsstat4::clid_inuse)
        put(out, value.client_using);
}

void decode_union(xdr::decoder& in, SETCLIENTID4res& value) noexcept
{
    get(in, value.status);
    if (value.status == nfsstat4::ok)
        get(in, value.clientid, value.setclientid_confirm);
    else if (value.status == nfsstat4::clid_inuse)
        get(in, value.client_using);
}

void encode_union(xdr::encoder& out, const WANT_DELEGATION4args& value) noexcept
{
    put(out, value.want, value.claim);
    if (value.claim == open_claim_type4::previous)
        put(out, value.delegate_type);
}

void decode_union(xdr::decoder& in, WANT_DELEGATION4args& value) noexcept
{
    get(in, value.want, value.claim);
    switch (value.claim) {
    case open_claim_type4::previous: return get(in, value.delegate_type);
    case open_claim_type4::fh:
    case open_claim_type4::deleg_prev_fh: return;
    default: return in.fail("a claim that deleg_claim4 has no arm for");
    }
}

void encode_union(xdr::encoder& out, const GET_DIR_DELEGATION4res& value) noexcept
{
    put(out, value.status);
    if (value.status != nfsstat4::ok)
        return;
    put(out, value.unavailable);
    if (value.unavailable)
        put(out, value.will_signal_deleg_avail);
    else
        put(out, value.cookieverf, value.stateid, value.notification, value.child_attributes,
            value.dir_attributes);
}

void decode_union(xdr::decoder& in, GET_DIR_DELEGATION4res& value) noexcept
{
    get(in, value.status);
    if (value.status != nfsstat4::ok)
        return;
    get(in, value.unavailable);
    if (value.unavailable)
        get(in, value.will_signal_deleg_avail);
    else
        get(in, value.cookieverf, value.stateid, value.notification, value.child_attributes,
            value.dir_attributes);
}

} // namespace verbena::nfs::v4
