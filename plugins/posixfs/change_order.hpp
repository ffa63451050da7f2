// SPDX-License-Identifier: Apache-2.0
// change_order: changes of one directory follow each other, and those that others made are noticed.
#pragma once

#include "change_numbers.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <sys/stat.h>

namespace verbena::posixfs {

/// What a file was just before and just after a change; of what is no directory after it alone.
struct observed_change {
    observed_change() = default;
    /// `n` outlives it.
    observed_change(change_numbers& n, const numbered_file& f) noexcept : numbers(&n), file(f) {}
    /// Right after the change of the file, which is open at `fd`. False if it can't be read.
    bool look_after(int fd) noexcept
    {
        numbers->changed(file);
        return numbers->look(file, fd, after) == 0;
    }

    change_numbers* numbers = nullptr;
    numbered_file file;
    looked before{};
    looked after{};
    bool seen = false;  ///< both could be read
    bool alone = false; ///< as far as can be known, nothing else happened in between
};

/// Shared by all shards of a back end, which makes every change of a directory in a `turn`.
///
/// Clients keep what they know of a directory if they see that only their own change came between what they knew
/// and what they are told (wcc_data of RFC 1813). So attributes from before may be given only if nobody else can
/// have changed it in between. For changes through this back end the turn sees to that. Local processes take no
/// turns; who made the last change shows in ctime, and after one of theirs no change counts as `alone` for a while.
class change_order {
public:
    change_order() = default;
    change_order(const change_order&) = delete;
    ~change_order() { delete[] stripes_.load(std::memory_order_acquire); }

    /// For how long after somebody else's change.
    static constexpr std::time_t quiet_seconds = 2;
    static constexpr std::size_t stripes = 256;
    /// Directories remembered by each stripe; the others count as changed by somebody else.
    static constexpr std::size_t remembered = 4;

    /// The right to change one or two inodes, until the object goes. Blocks as the kernel's lock of the inode does: on
    /// pool threads, and on shards in an order of what is in memory, where no holder waits for a disk.
    class turn {
    public:
        turn(change_order& order, const struct stat& inode);
        turn(change_order& order, const struct stat& one, const struct stat& other);

        /// Right before the change of the inode open at `fd`, for which this turn is.
        void begin(int fd, observed_change& change);
        /// Right after it.
        void end(int fd, observed_change& change);
        /// Instead of `end`, when nothing was changed after all.
        static void end_unchanged(observed_change& change) noexcept { change.after = change.before; }

    private:
        change_order& order_;
        std::unique_lock<std::mutex> first_;
        std::unique_lock<std::mutex> second_;
    };

    /// An inode that a change of another one made or changed, such as a new directory. Outside of turns.
    void adopt(const struct stat& inode);

    /// What `begin` and `end` think of attributes. In a turn of that inode.
    bool is_alone(const struct stat& before, const timespec& now);
    void remember(const struct stat& after);

private:
    struct record {
        dev_t device = 0;
        ino_t inode = 0;
        timespec ctime{};
        timespec foreign{}; ///< when somebody else last changed it
    };
    struct stripe {
        std::mutex mutex;
        std::array<record, remembered> records;
        std::size_t oldest = 0;
    };

    static std::size_t index_of(const struct stat& inode) noexcept;
    stripe& at(std::size_t index)
    {
        stripe* const all = stripes_.load(std::memory_order_acquire);
        return (all != nullptr ? all : make_stripes())[index];
    }
    stripe& at(const struct stat& inode) { return at(index_of(inode)); }
    stripe* make_stripes();
    static record* find(stripe& s, const struct stat& inode) noexcept;
    static record& find_or_add(stripe& s, const struct stat& inode) noexcept;

    // From the first turn on: 60 KiB, which hundreds of exports that nobody changes would have too.
    std::atomic<stripe*> stripes_{nullptr};
};

/// True for file systems that other hosts may change too: there a turn orders nothing. By `f_type` of statfs(2).
bool changed_by_other_hosts(long type) noexcept;

} // namespace verbena::posixfs
