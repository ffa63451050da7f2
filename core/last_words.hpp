// SPDX-License-Identifier: Apache-2.0
// What a program says before abort().
#pragma once

#include <string_view>

namespace verbena::detail {

/// Writes `text`, lines, to the standard error behind the lines of the log that are queued: in the journal as errors. What
/// is longer than 4 KiB is cut. Needs no memory. Waits for a reader no longer than log_patience says, before and behind
/// `text`. Where a queued_log lives, its thread writes, so that the caller never hangs in a write(2).
void write_last_words(std::string_view text) noexcept;

} // namespace verbena::detail
