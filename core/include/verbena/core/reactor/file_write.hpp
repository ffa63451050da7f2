// SPDX-License-Identifier: Apache-2.0
// Writes of files, without a thread where the file system can do so.
#pragma once

#include <verbena/core/reactor/file_operation.hpp>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <span>

#pragma GCC visibility push(default)

namespace verbena {

/// `co_await file_write(fd, from, offset, through)`: one pwrite(2) by the ring of the awaiting task's shard; `through`: its data are on
/// stable storage when it is done (RWF_DSYNC). Yields the bytes written, which may be fewer than asked for, or a negative errno.
///
/// Completes when: the kernel has written. On cancel: it waits on, as a write can't be recalled and the kernel may read `from`
/// until then. Errors: those of pwritev2(2), and -ENOBUFS at once if the ring takes no more operations. Lifetime: `fd` and the
/// memory of `from` outlive the wait. Shard: that of the task. Where the file system can't wait by itself, as most can't for writes to the
/// page cache, the kernel gives it a thread of its own.
class [[nodiscard("co_await it: nothing is written otherwise")]] file_write final
    : public detail::file_operation {
public:
    /// Writes at most `from.size()` bytes to `fd` from `offset` on. `through`: they are on stable storage when
    /// it completes (RWF_DSYNC).
    [[nodiscard("co_await it: nothing is written otherwise")]] file_write(int fd,
                                                                          std::span<const std::byte> from,
                                                                          std::uint64_t offset,
                                                                          bool through) noexcept
        : fd_(fd), through_(through), from_(from), offset_(offset)
    {
    }
    template<class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h)
    {
        const auto ask = [this](ring& by, verbena::ring_completion& told) {
            return bool(by.write(fd_, from_, offset_, through_, told));
        };
        return begin(h, ask, "a write by the ring");
    }

private:
    int fd_;
    bool through_;
    std::span<const std::byte> from_;
    std::uint64_t offset_;
};

} // namespace verbena

#pragma GCC visibility pop
