// SPDX-License-Identifier: Apache-2.0
// Lines that wait for a thread to write them, so that whoever logs never waits for a reader.
#pragma once

#include "log_tail.hpp"

#include <verbena/core/queued_log.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>

namespace verbena::detail {

/// A ring of whole lines between any number of threads and one writer, which writes them to a descriptor in the order in which they
/// were pushed.
///
/// Nothing but memory is touched under its lock. The ring has a fixed size: a line that does not fit is dropped and counted. Once a
/// line was dropped, lines below warning are dropped until half of the ring is free, so that what is written stays in long pieces,
/// and a line that says how many were lost stands in each gap.
///
/// The descriptor may be of any kind and stays as it is, without O_NONBLOCK, since other processes share it. The writer writes
/// what the descriptor takes without waiting. If another process takes that room first, or a file system hangs, write(2) may block
/// all the same, and the writer with it; stop() then leaves the thread behind. This object is shared, and the thread has a share of
/// it, or it is never destroyed.
///
/// A descriptor that fails, as on a full disk, costs the lines that it refused. They are counted, and told before the next line that
/// it takes, which begins a line of its own.
class log_queue : public std::enable_shared_from_this<log_queue> {
public:
    /// Of the ring, what only warnings and errors may take.
    static constexpr std::size_t part_for_warnings = 8;

    /// Writes the line that tells of `lost` lines into `out`, and returns its size, with its line feed. Called with the lock held.
    using lost_line = std::size_t (*)(std::uint64_t lost, std::span<char> out) noexcept;
    static constexpr std::size_t most_lost_line = 256;

    /// Writes to `fd`, which it borrows, from start() on. `size` of the ring in bytes, at least 8 * most_lost_line.
    log_queue(int fd, std::size_t size, lost_line tells) noexcept : fd_(fd), size_(size), tells_(tells) {}

    /// Where a line goes. `direct` is the caller's own write(2), which may wait for a reader. `nowhere` is what follows a stop that
    /// left lines: only a socket still gets them, as far as it takes them at once.
    enum class way : std::uint8_t { direct, queued, nowhere };

    /// Starts the writer, whose name is "log", and prepares the memory of the ring. Throws std::system_error or std::bad_alloc. Not
    /// while lines are queued.
    void start(unsigned pinned_cpus = 0);
    /// The writer keeps off the first `pinned_cpus` of the CPUs that the calling thread may use, if there are others. Of several
    /// numbers the largest counts.
    void keep_off(unsigned pinned_cpus) noexcept;

    enum class outcome { queued, dropped, direct };
    /// Any thread. `lines` end with a line feed. Allocates nothing. `direct`: the caller writes.
    outcome push(std::string_view lines, bool warns) noexcept;
    /// Text of any size, which the writer writes between the lines that were pushed before and after. One at a time: dropped while
    /// another waits.
    outcome hand_over(std::string& text) noexcept;

    /// Waits until what was pushed before this call is written, or no byte was for `patience.idle`, or `patience.total` have passed.
    /// False if some of it is left. What other threads push meanwhile makes it no longer.
    bool flush(const log_patience& patience) noexcept;
    /// As flush(); the writer then ends, and what is left is dropped and counted. False if something was left that was pushed before
    /// this call.
    bool stop(const log_patience& patience) noexcept;

    /// Around fork(), by its handlers. A child has no writer: lines go the direct way there until start().
    void before_fork() noexcept
    {
        mutex_.lock();
        tail_.before_fork();
    }
    void after_fork_in_parent() noexcept
    {
        tail_.after_fork();
        mutex_.unlock();
    }
    void after_fork_in_child() noexcept;

    /// What the writer was given last, whole lines. Any thread. Throws std::bad_alloc.
    std::string last_lines() const { return tail_.lines(); }
    way now() const noexcept { return way_.load(std::memory_order_relaxed); }
    bool is_queued() const noexcept { return now() == way::queued; }
    std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }
    void count_dropped(std::uint64_t lines) noexcept { dropped_.fetch_add(lines, std::memory_order_relaxed); }

private:
    // What the writer has done to the descriptor.
    struct output {
        std::uint64_t failed =
            0;                 // lines that it refused, as a full disk does, to be told before the next one
        bool mid_line = false; // its last byte is no line feed
        bool broken = false;   // what comes next does not go on where it is
        bool skipping = false; // up to the next line feed: the beginning of that line failed
    };

    void run(std::uint64_t mine) noexcept;
    void write_out(std::string_view text, std::uint64_t mine, output& out) noexcept;
    std::string_view write_some(std::string_view text, std::uint64_t mine, output& out) noexcept;
    bool is_present(std::uint64_t run) const noexcept { return run_.load(std::memory_order_relaxed) == run; }
    void keep_off_with_lock(unsigned count) noexcept;
    void append(std::string_view lines) noexcept;
    void lose(std::string_view lines) noexcept;
    void tell_lost() noexcept;
    outcome send_at_once(std::string_view lines) noexcept;
    std::size_t take(std::span<char> out) noexcept;
    bool has_work() const noexcept { return used_ != 0 || !text_.empty() || lost_ != 0; }
    bool wait_until_written(std::unique_lock<std::mutex>& lock, const log_patience& patience) noexcept;

    const int fd_;
    const std::size_t size_;
    const lost_line tells_;

    std::mutex mutex_;
    std::condition_variable wake_;    // the writer
    std::condition_variable written_; // who waits for the writer
    std::unique_ptr<char[]> ring_;
    std::size_t begin_ = 0;
    std::size_t used_ = 0;
    std::string text_;            // of hand_over()
    std::size_t before_text_ = 0; // of used_, what was pushed before it
    std::uint64_t pushed_ = 0;    // bytes, ever
    std::uint64_t done_ = 0;      // of pushed_, those that are written or dropped
    std::uint64_t lost_ = 0;      // lines that nobody was told of yet
    bool dropping_ = false;
    bool sleeping_ = false; // the writer, which has to be woken
    bool has_ended_ = false;
    unsigned pinned_cpus_ = 0;
    log_tail tail_;
    output output_; // while there is no writer; it has its own
    std::thread thread_;

    std::atomic<way> way_{way::direct};
    std::atomic<std::uint64_t> run_{0};   // which run of the writer is the present one: one left behind isn't
    std::atomic<std::uint64_t> moved_{0}; // bytes that were written
    std::atomic<std::uint64_t> dropped_{0}; // lines, ever
};

/// Writes the beginning of `text`, as much as `fd` takes at once. -1 with errno, EAGAIN if it takes nothing now. Blocks only if
/// another process takes the room meanwhile.
ssize_t write_at_once(int fd, std::string_view text) noexcept;

/// Writes `text` as far as `fd` takes it within `patience`. The bytes written.
std::size_t write_within(int fd, std::string_view text, const log_patience& patience) noexcept;

} // namespace verbena::detail
