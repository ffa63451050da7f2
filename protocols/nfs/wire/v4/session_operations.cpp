// SPDX-License-Identifier: Apache-2.0
#include "pieces.hpp"

#include <verbena/protocols/nfs/wire/v4/file_operations.hpp>
#include <verbena/protocols/nfs/wire/v4/session_operations.hpp>

namespace verbena::nfs::v4 {

using wire::get;
using wire::put;

void encode_union(xdr::encoder& out, const callback_sec_parms4& value) noexcept
{
    put(out, value.cb_secflavor);
    if (value.cb_secflavor == secinfo4::auth_sys)
        put(out, value.sys_cred);
    else if (value.cb_secflavor == secinfo4::rpcsec_gss)
        put(out, value.gss_service, value.handle_from_server, value.handle_from_client);
}

void decode_union(xdr::decoder& in, callback_sec_parms4& value) noexcept
{
    get(in, value.cb_secflavor);
    switch (value.cb_secflavor) {
    case secinfo4::auth_none: return;
    case secinfo4::auth_sys: return get(in, value.sys_cred);
    case secinfo4::rpcsec_gss:
        return get(in, value.gss_service, value.handle_from_server, value.handle_from_client);
    default: return in.fail("a flavour that callback_sec_parms4 has no arm for");
    }
}

void encode_union(xdr::encoder& out, const state_protect4_a& value) noexcept
{
    put(out, value.how);
    if (value.how != state_protect_how4::none)
        put(out, value.ops);
    if (value.how == state_protect_how4::ssv)
        put(out, value.hash_algs, value.encr_algs, value.window, value.num_gss_handles);
}

void decode_union(xdr::decoder& in, state_protect4_a& value) noexcept
{
    get(in, value.how);
    if (value.how != state_protect_how4::none)
        get(in, value.ops);
    if (value.how == state_protect_how4::ssv)
        get(in, value.hash_algs, value.encr_algs, value.window, value.num_gss_handles);
}

void encode_union(xdr::encoder& out, const state_protect4_r& value) noexcept
{
    put(out, value.how);
    if (value.how != state_protect_how4::none)
        put(out, value.ops);
    if (value.how == state_protect_how4::ssv)
        put(out, value.hash_alg, value.encr_alg, value.ssv_len, value.window, value.handles);
}

void decode_union(xdr::decoder& in, state_protect4_r& value) noexcept
{
    get(in, value.how);
    if (value.how != state_protect_how4::none)
        get(in, value.ops);
    if (value.how == state_protect_how4::ssv)
        get(in, value.hash_alg, value.encr_alg, value.ssv_len, value.window, value.handles);
}

} // namespace verbena::nfs::v4
