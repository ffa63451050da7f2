// SPDX-License-Identifier: Apache-2.0
// How the servers of all versions tell that a peer may not use an export.
#pragma once

#include <verbena/core/net/refusals.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace verbena::nfs {

/// `why` is a refusal. `said`: more that helps.
inline void tell_access(access_refusal why, const export_options& exported, const rpc::peer& from,
                        std::string_view said = {}) noexcept
{
    refusal r{.peer = from.address, .object = exported.pseudo, .said = said};
    switch (why) {
    case access_refusal::none: return;
    case access_refusal::address: return tell_refusal(refused::export_address, r);
    case access_refusal::transport:
        r.said = from.transport;
        return tell_refusal(refused::export_transport, r);
    case access_refusal::port: r.said = from.name; return tell_refusal(refused::export_port, r);
    }
}

/// A change to an export that is read-only.
inline void tell_read_only(const export_options& exported, const rpc::peer& from) noexcept
{
    tell_refusal(refused::export_read_only, {.peer = from.address, .object = exported.pseudo});
}

/// Of exports that all refuse the peer: the one whose rule is the last in its way, and that rule. Nothing: one admits it, or there are
/// none.
struct refusing_export {
    const export_options* exported;
    access_refusal why;
};
inline std::optional<refusing_export> nearest_refusal(const export_table& exports, const rpc::peer& from,
                                                      host_addresses& host)
{
    // By address a client is a stranger; by transport or port it is one of the export's, and lacks one thing.
    const auto rank = [](access_refusal r) {
        return r == access_refusal::address ? 1 : r == access_refusal::transport ? 2 : 3;
    };
    std::optional<refusing_export> nearest;
    for (const export_options& e : exports.all()) {
        const access_refusal why = check_access(e, from, host);
        if (why == access_refusal::none)
            return std::nullopt;
        if (!nearest || rank(why) > rank(nearest->why))
            nearest = refusing_export{&e, why};
    }
    return nearest;
}

} // namespace verbena::nfs
