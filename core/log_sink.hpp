// SPDX-License-Identifier: Apache-2.0
// Where the lines of the log go: the standard error, or the queue in front of it.
#pragma once

#include <spdlog/sinks/sink.h>

#include <memory>

namespace verbena::detail {

/// Gives each line its time and level, or in the journal, which has times of its own, its priority.
std::shared_ptr<spdlog::sinks::sink> make_log_sink();

/// Whether `fd` is the stream whose "DEVICE:INODE" `stream` tells: that of the journal, as systemd sets $JOURNAL_STREAM
/// (systemd.exec(5)). nullptr: there is none.
bool is_stream(int fd, const char* stream) noexcept;

/// For a line that could not be made, for want of memory.
void count_lost_line() noexcept;

} // namespace verbena::detail
