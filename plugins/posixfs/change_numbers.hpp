// SPDX-License-Identifier: Apache-2.0
// Numbers of the states of files: what the change attribute says (docs/internals/posixfs.md, "Numbers of states").
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <sys/stat.h>

namespace verbena::posixfs {

/// What a look at a file showed. Without a number its state is told apart by ctime alone.
struct looked : ::stat {
    std::optional<std::uint64_t> number;
};

/// A file, and whether this kernel stamps its ctime.
struct numbered_file {
    dev_t device = 0;
    ino_t inode = 0;
    bool local = true; ///< false: other hosts change the file too, and stamp it by their own clocks
};

/// One table of the process, which all back ends and shards share. Bounded: it remembers `remembered` files that changed lately, in 1.5 MiB that it
/// takes at the first of these. Any thread. Numbers of files at rest are read without a lock.
class change_numbers {
public:
    /// Times are nanoseconds since the epoch.
    struct time_source {
        std::uint64_t (
            *now)() noexcept; ///< what a local file that changes now is stamped with, or a little less; never goes back by itself
        std::uint64_t tick;                ///< how long `now` stands still at most
        std::uint64_t (*start)() noexcept; ///< the real time
    };
    static time_source kernel_times() noexcept;

    /// What is known right before a look at a file. The look (stat) shows the file as it was after that, so the number that number_of() finds
    /// is never that of a later state.
    struct mark {
        std::uint64_t key = 0;
        std::uint64_t now = 0;    ///< the time
        std::uint64_t seen = 0;   ///< changes of the stripe that were told before
        std::uint64_t ctime = 0;  ///< of the record
        std::uint64_t number = 0; ///< of the record
        bool local = true;
        bool known = false;   ///< there is a record
        bool settled = false; ///< its number is that of all changes that were told
    };

    static constexpr std::size_t usual_stripes = 4096;
    static constexpr std::size_t files_of_stripe = 8;
    static constexpr std::size_t remembered = usual_stripes * files_of_stripe;

    /// That of the process. It lasts as long as somebody has it.
    static std::shared_ptr<change_numbers> of_process();
    explicit change_numbers(const time_source& times = kernel_times(), std::size_t stripes = usual_stripes);
    change_numbers(const change_numbers&) = delete;
    ~change_numbers();

    /// To be called right before a look at the file. Takes no lock, unless a number of the stripe is changing just then.
    mark before_look(const numbered_file& file) const noexcept;
    /// To be called right after a change that this process made, also where it failed half way, and before the look at what it made.
    void changed(const numbered_file& file) noexcept;
    /// The number of the state that the look behind `m` showed, with `ctime`. The file keeps that number until it changes or the record goes.
    std::uint64_t number_of(const mark& m, const timespec& ctime) noexcept;

    /// file_status() with the number of what it showed.
    int look(const numbered_file& file, int fd, looked& st) noexcept;
    /// Gives a number to what the first look at a file showed, which told who it is: `st` was seen after the time was `before`. Looks again if the
    /// file has changed lately; if that fails there is no number.
    void look_again(const numbered_file& file, int fd, looked& st, std::uint64_t before) noexcept;
    std::uint64_t now() const noexcept { return times_.now(); }

private:
    struct record;
    struct stripe;
    class writing;

    stripe* all() noexcept;
    std::uint64_t end_of(std::uint64_t ctime, bool local) const noexcept;
    /// How long a file needs to come to rest whose ctime has parts of a second.
    std::uint64_t rest_of_parts() const noexcept;
    std::size_t index_of(std::uint64_t key) const noexcept { return key % count_; }
    std::uint64_t settle(const mark& m, std::uint64_t ctime, std::uint64_t end, bool at_rest) noexcept;

    const time_source times_;
    const std::size_t count_; ///< of stripes
    const std::uint64_t started_;
    std::atomic<stripe*> stripes_{nullptr}; ///< from the first change on
};

} // namespace verbena::posixfs
