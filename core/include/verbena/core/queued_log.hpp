// SPDX-License-Identifier: Apache-2.0
// A log that keeps nobody waiting: a thread writes the lines, and drops what nobody reads.
//
// log() writes by the calling thread, and waits if the standard error takes no more: right for a command that ends soon, wrong for
// a shard. While a queued_log lives, log() puts the line into a queue of 1 MiB, which costs a copy under a lock, and a thread
// writes it. A line that does not fit is dropped and counted. verbena::service has one from start() on.
#pragma once

#include <verbena/core/log.hpp>

#include <chrono>
#include <cstdint>
#include <string>

#pragma GCC visibility push(default)

namespace verbena {

/// How long somebody waits for whoever reads the standard error.
struct log_patience {
    std::chrono::milliseconds idle{1000};  ///< without a byte that moves
    std::chrono::milliseconds total{5000}; ///< all together
};

/// While at least one lives, a thread writes the lines of log(), in the order in which each thread logged them.
///
/// The last eighth of the queue is for warnings and errors. After a loss, lines below warning are dropped until half of the queue is
/// free; then one line tells how many were lost. Made and destroyed by any thread that is no shard. A child of fork() has no such
/// thread, so log() writes by itself there.
class [[nodiscard]] queued_log {
public:
    /// Starts the thread, whose name is "log", if this is the first. It blocks all signals, and keeps off the first `pinned_cpus`
    /// CPUs if there are others: those of the shards of a runtime that pins them. Throws std::system_error if there is no thread for it, and std::bad_alloc.
    explicit queued_log(unsigned pinned_cpus = 0);
    /// The last one writes what is queued, with log_patience, and drops the rest. Once it had to drop something, log() writes only what the standard
    /// error takes at once: nothing that logs later, until the process ends, waits for a reader that isn't there.
    ~queued_log();
    queued_log(const queued_log&) = delete;
    queued_log& operator=(const queued_log&) = delete;
};

/// Lines that were dropped since the process began. Any thread.
std::uint64_t dropped_log_lines() noexcept;

/// Waits until what was logged is written, with log_patience. False if something is left. For who is about to end the process
/// without destructors; true at once where no queued_log lives. Any thread but a shard.
bool flush_log() noexcept;

/// Writes `text`, lines that each end with a line feed, in its place among the lines of the log, as it is: without time, level or component.
/// In the journal each line has the priority of `level`. Longer text than 64 KiB may wait once at a time: false if one does already, if
/// there is no room in the queue, or no memory. Any thread; without a queued_log it may block.
bool write_to_log(log_level level, std::string text) noexcept;

} // namespace verbena

#pragma GCC visibility pop
