// SPDX-License-Identifier: Apache-2.0
// How operations tell that a client may have no more of something ([nfs.limits]).
#pragma once

#include "operations.hpp"

#include <verbena/core/net/refusals.hpp>
#include <verbena/protocols/files/limit_met.hpp>
#include <verbena/protocols/files/options.hpp>
#include <verbena/protocols/files/types.hpp>

#include <string_view>

namespace verbena::nfs::v4::operations {

/// A client that found no place, its peer's or any.
inline void tell_no_client(const compound& k, bool of_peer) noexcept
{
    tell_refusal(of_peer ? refused::client_share : refused::client_all,
                 {.peer = k.c.from().address, .object = k.minor() == 0 ? "4.0" : "4.1"});
}

/// Which keys stand for a limit.
struct limit_keys {
    refused why;
    std::string_view of_client, of_peer, of_all;
};
inline constexpr limit_keys keys_of(files::limited what) noexcept
{
    using files::limited;
    constexpr std::string_view percent = "peer_percent of [nfs.limits]";
    switch (what) {
    case limited::locks:
        return {refused::client_locks, "locks_per_client of [nfs.limits]", percent, "locks of [nfs.limits]"};
    case limited::lock_owners:
        return {refused::client_locks, "lock_owners_per_client of [nfs.limits]", percent,
                "lock_owners of [nfs.limits]"};
    case limited::owner_names:
        return {refused::client_names, "owner_names_mib_per_client of [nfs.limits]", percent,
                "owner_names_mib of [nfs.limits]"};
    default:
        return {refused::client_opens, "opens_per_client of [nfs.limits]", percent, "opens of [nfs.limits]"};
    }
}

/// `failure` is the state layer's answer to who asks for more; nothing is told where it is for no limit.
inline void tell_limit(compound& k, const error& failure) noexcept
{
    const auto met = files::limit_met_by(failure);
    if (!met)
        return;
    k.met_limit = true;
    const limit_keys keys = keys_of(met->what);
    const std::string_view key = met->whose == files::limit_of::client ? keys.of_client
                                 : met->whose == files::limit_of::peer ? keys.of_peer
                                                                       : keys.of_all;
    tell_refusal(keys.why, {.peer = k.c.from().address,
                            .object = k.current.none() || k.current.is_pseudo()
                                          ? std::string_view()
                                          : std::string_view(k.current.exported->pseudo),
                            .limit = key,
                            .cure = "raise that, or have the client close what it does not need"});
}

} // namespace verbena::nfs::v4::operations
