// SPDX-License-Identifier: Apache-2.0
// As whom a client calls, in any version.
#pragma once

#include <verbena/protocols/rpc/message.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// Who calls: an AUTH_SYS credential, encoded once.
class identity {
public:
    /// AUTH_NONE.
    identity() = default;
    /// More than 16 groups are cut off: AUTH_SYS has no room (RFC 5531 appendix A).
    identity(std::uint32_t uid, std::uint32_t gid, std::span<const std::uint32_t> groups,
             std::string_view machine_name);
    /// The process's effective ids, groups and host name.
    static identity of_process();
    /// What calls carry. Valid as long as the identity.
    rpc::opaque_auth credential() const noexcept { return {flavor_, {body_.data(), size_}}; }

private:
    rpc::auth_flavor flavor_ = rpc::auth_flavor::none;
    std::size_t size_ = 0;
    std::array<std::byte, rpc::max_auth_body> body_{};
};

} // namespace verbena::nfs

#pragma GCC visibility pop
