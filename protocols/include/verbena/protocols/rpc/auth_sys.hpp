// SPDX-License-Identifier: Apache-2.0
// The AUTH_SYS credential (RFC 5531 appendix A).
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/protocols/xdr/encoder.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// The body of a credential of flavor sys (RFC 5531 appendix A): who the caller says that it is.
struct auth_sys {
    static constexpr std::uint32_t max_machine_name = 255; ///< bytes
    static constexpr std::uint32_t max_groups = 16;        ///< beside `gid`

    std::uint32_t stamp = 0;       ///< the caller's choice; nobody looks at it
    std::string_view machine_name; ///< a view into the credential
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    std::uint32_t group_count = 0;
    std::array<std::uint32_t, max_groups> groups{};

    /// The supplementary groups, as the caller sent them.
    std::span<const std::uint32_t> other_groups() const noexcept { return {groups.data(), group_count}; }
};

/// Parses the body of a credential of flavor sys. A failure is answered with
/// auth_status::bad_credential.
result<auth_sys> decode_auth_sys(std::span<const std::byte> body) noexcept;

/// Writes the body, without flavor and length. machine_name beyond max_machine_name overflows `out`.
void encode(xdr::encoder& out, const auth_sys& credential) noexcept;

} // namespace verbena::rpc

#pragma GCC visibility pop
