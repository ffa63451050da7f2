// SPDX-License-Identifier: Apache-2.0
// The last lines of the log, for whoever asks for them where no journal keeps them.
#pragma once

#include <cstddef>
#include <string>

#pragma GCC visibility push(default)

namespace verbena {

/// Bytes of the log that are kept in memory.
inline constexpr std::size_t most_kept_log = std::size_t(256) << 10;

/// What a queued_log has taken to the standard error last, also where that refused it: whole lines, most_kept_log bytes at
/// most, without the priorities that a journal gets. Empty while there was no queued_log. Any thread; it waits for a copy
/// of the memory at most. Throws std::bad_alloc.
std::string last_log_lines();

} // namespace verbena

#pragma GCC visibility pop
