// SPDX-License-Identifier: Apache-2.0
// RPC call and reply headers and the AUTH_SYS credential.

#include "fuzz.hpp"

#include <verbena/protocols/rpc/auth_sys.hpp>
#include <verbena/protocols/rpc/message.hpp>

#include <array>

using namespace verbena;
using fuzz::require;

namespace {

void call(std::span<const std::byte> message)
{
    xdr::decoder in(message);
    rpc::call_header header;
    const auto verdict = rpc::decode(in, header);
    const auto prefix = rpc::peek(message);
    if (verdict == rpc::call_verdict::unanswerable)
        return;
    require(prefix && prefix->xid == header.xid && prefix->type == rpc::message_type::call);
    if (verdict != rpc::call_verdict::good)
        return;
    require(in.ok() && in.position() <= rpc::max_call_header_size);
    require(fuzz::within(header.credential.body, message) && fuzz::within(header.verifier.body, message));

    // What was read, written and read again is the same.
    std::array<std::byte, rpc::max_call_header_size> copy;
    xdr::encoder out(copy);
    rpc::encode(out, header);
    require(out.ok() && out.size() == in.position());
    if (const auto sys = rpc::decode_auth_sys(header.credential.body)) {
        require(sys->group_count <= rpc::auth_sys::max_groups);
        require(sys->machine_name.size() <= rpc::auth_sys::max_machine_name);
    }
}

void reply(std::span<const std::byte> message)
{
    xdr::decoder in(message);
    rpc::reply_header header;
    rpc::decode(in, header);
    if (!in.ok())
        return;
    require(fuzz::within(header.verifier.body, message));
    if (!header.success())
        require(bool(rpc::to_error(header).code()));
}

} // namespace

VERBENA_FUZZ_TARGET(rpc_message)
{
    const auto message = fuzz::bytes_of(data, size);
    call(message);
    reply(message);
    // The credential's body alone, so that its fields are reached without a call around it.
    (void)rpc::decode_auth_sys(message);
    return 0;
}
