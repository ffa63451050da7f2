// SPDX-License-Identifier: Apache-2.0
// What the procedures of the NFS version 3 program share.
#pragma once

#include <verbena/protocols/nfs/server/v3/server.hpp>
#include <verbena/protocols/nfs/server/v3/storage.hpp>
#include <verbena/protocols/nfs/wire/v3/codec.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <cstdint>

namespace verbena::nfs::v3 {

template<class Arguments>
bool read_arguments(rpc::call& c, Arguments& args) noexcept
{
    decode(c.args(), args);
    return c.args().ok();
}

template<class Results>
rpc::outcome server::reply(rpc::call& c, const Results& res) noexcept
{
    if (res.status != nfsstat3::ok)
        count_error(c, res.status);
    c.served([&res] { return std::string_view(to_string(res.status)); });
    encode(c.results(), res);
    return c.results().ok() ? rpc::outcome::success : rpc::outcome::system_error;
}

template<class Results>
task<rpc::outcome> server::refuse(rpc::call& c, Results& res, nfsstat3 why, wcc_data& wcc, const target& of)
{
    res.status = why;
    wcc.after = co_await attributes_of(of);
    co_return reply(c, res);
}

inline verifier3 to_verifier(std::uint64_t value) noexcept
{
    verifier3 verifier;
    xdr::store_u64(verifier.data(), value);
    return verifier;
}

inline std::uint64_t from_verifier(const verifier3& verifier) noexcept
{
    return xdr::load_u64(verifier.data());
}

} // namespace verbena::nfs::v3
