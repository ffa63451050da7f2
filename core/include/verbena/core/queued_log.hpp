// SPDX-License-Identifier: Apache-2.0
// A log that keeps nobody waiting: a thread writes the lines, and drops what nobody reads.
//
// log() writes by the calling thread, and waits if the standard error takes no more. That is right for a command that ends
// soon, and wrong for a shard. While a queued_log lives, log() copies the line into a queue of 1 MiB under a lock, and a
// thread writes it. A line that does not fit is dropped and counted. verbena::service has one from start() on.
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
/// The last eighth of the queue is for warnings and errors. After a loss, lines below warning are dropped until half of
/// the queue is free. Then one line tells how many were lost. Lines that the standard error refuses, as a full disk does,
/// are dropped, counted and told before the next line that it takes.
///
/// Made and destroyed by any thread that is no shard. A child of fork() has no such thread: log() writes by itself there
/// until the child makes a queued_log of its own. The child may log whatever the parent's other threads did.
///
/// From the first one on, std::exit() and std::terminate() write what is queued, with log_patience: by a handler of
/// std::atexit() and one of std::set_terminate(), which then calls the one before it. std::abort(), std::_Exit() and
/// signals do not; call flush_log() before them.
class [[nodiscard]] queued_log {
public:
    /// Starts the thread, whose name is "log", if there is none in this process. The thread blocks all signals, and keeps
    /// off the first `pinned_cpus` CPUs if there are others: those of the shards of a runtime that pins them. Of several
    /// queued_logs the largest number counts. Throws std::system_error if there is no thread for it, and std::bad_alloc.
    explicit queued_log(unsigned pinned_cpus = 0);
    /// The last one writes what was logged before, with log_patience, and drops the rest. If it had to drop some of that,
    /// nothing that logs later waits for a reader: a socket gets what it takes at once, all else nothing.
    ~queued_log();
    queued_log(const queued_log&) = delete;
    queued_log& operator=(const queued_log&) = delete;
};

/// Lines that were dropped since the process began. Any thread.
std::uint64_t dropped_log_lines() noexcept;

/// Waits until what was logged before this call is written, with log_patience. False if some of it is left. For who is
/// about to end the process without destructors. True at once where nothing is queued. Any thread but a shard.
bool flush_log() noexcept;

/// Writes `text`, lines that each end with a line feed, in its place among the lines of the log, as it is: without time,
/// level or component. In the journal each line has the priority of `level`. Longer text than 64 KiB may wait once at a
/// time. False if some of it is dropped: such a text waits already, the queue has no room, or there is no memory. Any
/// thread; without a queued_log it may block.
bool write_to_log(log_level level, std::string text) noexcept;

} // namespace verbena

#pragma GCC visibility pop
