// SPDX-License-Identifier: Apache-2.0
// already_made: spawns a task that its caller has made, so that a lack of memory is the caller's to hear.
//
// The problem: a scope makes its child itself. Where there is no memory for the child's frame, the scope's handler
// hears of that and nobody else does. Whoever has written down that the child runs, and waits for what it does, waits
// for ever.
#pragma once

#include <verbena/core/task/task.hpp>

#pragma GCC visibility push(default)

namespace verbena {

/// `s.spawn(already_made, f(args...))` in place of `s.spawn(f, args...)`: the child's frame is made first. Where there
/// is no memory for it, std::bad_alloc leaves the statement. The child does not run then, and whoever waits for it can
/// be told.
///
/// Lifetime: the task keeps its own arguments only. So it is that of a function or of a lambda without captures, and
/// what it takes by reference outlives it. Shard: the scope's.
inline constexpr auto already_made = [](task<void> made) noexcept { return made; };

} // namespace verbena

#pragma GCC visibility pop
