// SPDX-License-Identifier: Apache-2.0
// own_threads: one shard's threads for calls that block, where nobody gave it a lane of the runtime's.
//
// The problem: what a task needs once in a while, as the resolver, blocks. A thread made for one such call holds the
// shard while it is made and joined, each time. These are made by the first call and kept.
#pragma once

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/result.hpp>

#pragma GCC visibility push(default)

namespace verbena {

/// The threads that a shard without a runtime has for what blocks: a client's, in somebody else's program.
/// Destroying them waits for the jobs that run.
struct own_threads {
    /// Names that may be looked up at a time; further ones wait.
    static constexpr unsigned max_look_ups = 4;
    /// For lanes of who asks, which end before the shard. Their threads have the shard's rights and CPUs.
    blocking_crew crew;
    /// The lane of name look-ups.
    blocking_pool names{crew, max_look_ups, "the names of servers"};
};

/// The threads of `shard`, made by the first call, which holds the shard for as long as one thread takes to start. They end with
/// the shard. Errors: EAGAIN where no thread can be started, with the cure; the next call tries again. Shard only.
result<own_threads*> own_threads_of(reactor& shard) noexcept;

} // namespace verbena

#pragma GCC visibility pop
