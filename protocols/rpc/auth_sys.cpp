// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rpc/auth_sys.hpp>
#include <verbena/protocols/xdr/decoder.hpp>

namespace verbena::rpc {

result<auth_sys> decode_auth_sys(std::span<const std::byte> body) noexcept
{
    xdr::decoder in(body);
    auth_sys credential;
    credential.stamp = in.u32();
    credential.machine_name = in.string(auth_sys::max_machine_name);
    credential.uid = in.u32();
    credential.gid = in.u32();
    credential.group_count = in.array_count(auth_sys::max_groups, 4);
    for (std::uint32_t i = 0; i < credential.group_count; ++i)
        credential.groups[i] = in.u32();
    if (in.ok() && !in.at_end())
        in.fail("bytes behind the AUTH_SYS credential");
    if (!in.ok())
        return in.failure();
    return credential;
}

void encode(xdr::encoder& out, const auth_sys& credential) noexcept
{
    out.u32(credential.stamp);
    if (credential.machine_name.size() > auth_sys::max_machine_name)
        return out.overflow();
    out.string(credential.machine_name);
    out.u32(credential.uid);
    out.u32(credential.gid);
    const auto groups = credential.other_groups();
    out.u32(static_cast<std::uint32_t>(groups.size()));
    for (const std::uint32_t group : groups)
        out.u32(group);
}

} // namespace verbena::rpc
