// SPDX-License-Identifier: Apache-2.0
// What a program says before abort().
#pragma once

#include <string_view>

namespace verbena::detail {

/// Writes `text` to the standard error, behind the lines of the log that are queued. Waits for a reader no longer than log_patience says,
/// for each of the two.
void write_last_words(std::string_view text) noexcept;

} // namespace verbena::detail
