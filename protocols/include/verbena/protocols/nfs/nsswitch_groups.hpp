// SPDX-License-Identifier: Apache-2.0
// Groups of users as this host has them: passwd, group, initgroups and whatever else nsswitch.conf(5) names, such as
// LDAP or sssd.
#pragma once

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/protocols/nfs/user_groups.hpp>

#include <cstdint>
#include <optional>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// Asks the C library on threads of `lane`, which outlives this: a lookup may block for minutes, and can't be
/// recalled. A source that fails behind one that knows the user leaves its groups out (getgrouplist(3) does not
/// tell), so that he has fewer until the next lookup.
class nsswitch_groups final : public group_source {
public:
    /// Lookups run on `lane`.
    explicit nsswitch_groups(blocking_pool& lane) noexcept : lane_(lane) {}

    task<result<std::optional<std::vector<std::uint32_t>>>> find_groups(std::uint32_t uid) override;

private:
    blocking_pool& lane_;
};

} // namespace verbena::nfs

#pragma GCC visibility pop
