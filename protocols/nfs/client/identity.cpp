// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/client/identity.hpp>

#include <verbena/protocols/rpc/auth_sys.hpp>
#include <verbena/protocols/xdr/encoder.hpp>

#include <algorithm>
#include <limits.h>
#include <unistd.h>
#include <vector>

namespace verbena::nfs {

identity::identity(std::uint32_t uid, std::uint32_t gid, std::span<const std::uint32_t> groups,
                   std::string_view machine_name)
    : flavor_(rpc::auth_flavor::sys)
{
    rpc::auth_sys credential;
    credential.machine_name = machine_name.substr(0, rpc::auth_sys::max_machine_name);
    credential.uid = uid;
    credential.gid = gid;
    for (std::uint32_t group : groups) {
        if (group != gid && credential.group_count < rpc::auth_sys::max_groups)
            credential.groups[credential.group_count++] = group;
    }
    xdr::encoder out(body_);
    rpc::encode(out, credential);
    size_ = out.size();
}

identity identity::of_process()
{
    std::array<char, HOST_NAME_MAX + 1> host{};
    if (::gethostname(host.data(), host.size() - 1) != 0)
        host[0] = '\0';
    std::vector<gid_t> groups(64);
    int n = ::getgroups(static_cast<int>(groups.size()), groups.data());
    if (n < 0) {
        groups.resize(NGROUPS_MAX);
        n = ::getgroups(static_cast<int>(groups.size()), groups.data());
    }
    groups.resize(static_cast<std::size_t>(std::max(n, 0)));
    return identity(::geteuid(), ::getegid(), groups, host.data());
}

} // namespace verbena::nfs
