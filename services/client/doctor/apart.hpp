// SPDX-License-Identifier: Apache-2.0
// A process that ends although one of its threads waits for a disk.
#pragma once

#include <functional>

namespace verbena::cli {

/// Calls `f` in a process of its own, which has this one's output, and returns its exit code. If `f` sets `is_late`, that process is left
/// behind: the kernel keeps one for as long as a thread of it waits for a disk, and whoever started this one would wait as long. `f`
/// writes all its output before it returns. From a process of one thread.
int run_apart(const std::function<int(bool& is_late)>& f);

} // namespace verbena::cli
