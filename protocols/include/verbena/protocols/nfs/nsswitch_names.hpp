// SPDX-License-Identifier: Apache-2.0
// Names as this host has them: passwd, group and whatever else nsswitch.conf(5) names, such as LDAP or sssd.
#pragma once

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/protocols/nfs/user_names.hpp>

#include <cstdint>
#include <optional>
#include <string>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// Asks the C library on threads of `lane`, which outlives this: a lookup may block for minutes, and can't be recalled.
class nsswitch_names final : public name_source {
public:
    /// Lookups run on `lane`.
    explicit nsswitch_names(blocking_pool& lane) noexcept : lane_(lane) {}

    /// What stands behind the first dot of the host's full name, as libnfsidmap finds it; empty where that has none. Fails where the name is not
    /// a full one and the resolver can't be asked now.
    task<result<std::string>> domain() override;
    task<result<std::optional<std::uint32_t>>> find_id(account_kind kind, std::string name) override;
    task<result<std::optional<std::string>>> find_name(account who) override;

private:
    blocking_pool& lane_;
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
