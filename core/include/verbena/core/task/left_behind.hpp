// SPDX-License-Identifier: Apache-2.0
// left_behind: the scope of what a shard ends itself, since whoever began it is gone.
//
// The problem: to end a connection takes a moment, and a destructor can't wait. There are no detached tasks either. So
// what an owner dropped before it was closed goes into a scope that is the shard's own.
#pragma once

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/scope.hpp>

#pragma GCC visibility push(default)

namespace verbena {

/// That scope, made by the first call. What its children refer to is their own, or outlives the reactor. They end
/// within bounded time once they are asked to stop, but for a job on a thread that they wait for: a look-up of a name takes as long
/// as the resolver, and the shard's end with it (rpc::server_name logs that). An exception that leaves one is logged.
///
/// It is asked to stop, and joined, where the shard ends: by the runtime while all shards still run, else by the
/// destructor of the reactor, which has turns for it. Errors: std::bad_alloc from the first call. Shard only.
scope& left_behind(reactor& shard);

/// Asks the scope's tasks to stop and has turns until they have ended. Where they can't end, since nothing can happen any
/// more by a virtual clock, they are abandoned with a line in the log: their memory is not given back. Between turns, on the
/// reactor's thread.
void end_left_behind(reactor& shard) noexcept;

} // namespace verbena

#pragma GCC visibility pop
