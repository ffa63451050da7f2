// SPDX-License-Identifier: Apache-2.0
// Bytes of a file that need not be brought into memory: where they lie, for whoever can send from there.
#pragma once

#include <verbena/core/reactor/clock.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena {

/// How one call that sent of a file went.
struct file_send {
    time_point begun; ///< when the call was made
    time_point ended; ///< of the sending reactor's clock
    int error = 0; ///< errno, where the file could not be read; 0 also for what the peer or the network did
    /// Whether the thread gave up the processor meanwhile, if the range asks for it: else others may have kept it from there.
    std::optional<bool> waited;
};

/// A range of an open file. `owner` keeps the descriptor open; shared with whoever opened it, so that taking a
/// range allocates nothing. Between the making and the sending the file may change, as under any read that takes
/// time, and may even become shorter.
struct file_range {
    file_range() = default;
    /// Is told of each call, with the range's owner, by the thread that sends: it must not wait.
    using listener = void (*)(const void* owner, const file_send& how) noexcept;
    /// `o` keeps the descriptor `f` open; the range is `n` bytes from `at` on. `l`, if there is one, is told of
    /// each call.
    file_range(std::shared_ptr<const void> o, int f, std::uint64_t at, std::size_t n,
               listener l = nullptr) noexcept
        : owner(std::move(o)), fd(f), offset(at), size(n), told(l)
    {
    }
    bool empty() const noexcept { return size == 0; }

    std::shared_ptr<const void> owner; ///< what owns `fd`; it goes when the last range that names it does
    int fd = -1;                       ///< open for reading; -1: an empty range
    std::uint64_t offset = 0;          ///< of the first byte in the file
    std::size_t size = 0;              ///< bytes
    listener told = nullptr;           ///< is told of each call that sends of it; nullptr: nobody
    bool tells_waits = false; ///< has `told` hear file_send::waited, which costs two system calls more
};

} // namespace verbena

#pragma GCC visibility pop
