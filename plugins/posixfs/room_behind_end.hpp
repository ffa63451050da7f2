// SPDX-License-Identifier: Apache-2.0
// Room that was allocated behind the end of files for layouts, and that goes back when nobody has the file open any
// more.
#pragma once

#include "change_numbers.hpp"

#include <verbena/core/reactor/blocking.hpp>

#include <cstddef>
#include <cstdint>

namespace verbena::posixfs {

/// Which files of the process have some. What gives it back sets the file's length, and who writes meanwhile would
/// lose what he has just written. So it is done under a lease to write (F_SETLEASE): the kernel gives that if nobody
/// else has the file open, on this host, and lets nobody open it until it is done. Whoever closes such a file tries.
/// Any thread.
class room_behind_end {
public:
    /// Files that are remembered. What another one has stays allocated.
    static constexpr std::size_t most = 4096;

    /// Some was allocated, up to `end`.
    static void note(const numbered_file& file, std::uint64_t end);
    static bool has(const numbered_file& file) noexcept;

    /// Tries when it goes: a member that stands before all that has the file open. Outlived by the pool.
    class closer {
    public:
        explicit closer(blocking_pool& pool) noexcept : pool_(pool) {}
        closer(const closer&) = delete;
        ~closer();
        /// It has the file of `fd` open.
        void arm(const numbered_file& file, int fd) noexcept;

    private:
        blocking_pool& pool_;
        numbered_file file_;
        int path_ = -1; // an O_PATH one, which counts for no lease
    };

private:
    class trying;
    static void give_back(const numbered_file& file, int path) noexcept;
};

} // namespace verbena::posixfs
