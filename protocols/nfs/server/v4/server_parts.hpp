// SPDX-License-Identifier: Apache-2.0
// What one shard's program is made of. docs/internals/nfs4_server.md.
#pragma once

#include "attribute_source.hpp"
#include "handle_space.hpp"
#include "owner_names.hpp"
#include "root_looks.hpp"

#include <verbena/core/reactor/shard.hpp>
#include <verbena/protocols/nfs/server/v4/commons.hpp>
#include <verbena/protocols/nfs/server/v4/counters.hpp>

namespace verbena::nfs::v4 {

/// In this order each knows those before it alone. Operations, which are functions, see all of them.
struct server_parts {
    /// Both outlive this.
    server_parts(server_commons& of_all, const shard& where)
        : commons(of_all),
          here(where),
          state(of_all.state),
          under_way(of_all.state.operations().on(where)),
          sessions(of_all.sessions),
          handles(of_all.exports, of_all.key, where, counters),
          names(of_all.users, of_all.state.home(), where, counters.known_names),
          values(handles, names, of_all.state.options(), of_all.started),
          roots(handles, names, values, where)
    {
    }

    server_commons& commons;
    const shard& here;
    state_home& state;                 ///< the one of `commons`
    files::operations_here& under_way; ///< on this shard
    recent_sessions sessions;
    server_counters counters;
    handle_space handles;
    owner_names names;
    attribute_source values;
    root_looks roots;
};

} // namespace verbena::nfs::v4
