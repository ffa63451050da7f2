// SPDX-License-Identifier: Apache-2.0
// Reads of files that wait for a disk, without a thread.
#pragma once

#include <verbena/core/reactor/file_operation.hpp>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <span>

#pragma GCC visibility push(default)

namespace verbena {

/// `co_await file_read(fd, to, offset)`: one pread(2) by the ring of the awaiting task's shard. Yields the bytes read, which may
/// be fewer than asked for, or a negative errno.
///
/// Completes when: the kernel has read. On cancel: it waits on, as a read can't be recalled and the kernel may write to `to`
/// until then. Errors: those of pread(2), and -ENOBUFS at once if the ring takes no more operations. Lifetime: `fd` and the
/// memory of `to` outlive the wait. Shard: that of the task. Where the file system can't wait by itself the kernel gives it a
/// thread of its own.
class [[nodiscard("co_await it: nothing is read otherwise")]] file_read final
    : public detail::file_operation {
public:
    /// Reads at most `to.size()` bytes of `fd` from `offset` on.
    [[nodiscard("co_await it: nothing is read otherwise")]] file_read(int fd, std::span<std::byte> to,
                                                                      std::uint64_t offset) noexcept
        : fd_(fd), to_(to), offset_(offset)
    {
    }
    template<class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h)
    {
        const auto ask = [this](ring& by, verbena::ring_completion& told) {
            return bool(by.read(fd_, to_, offset_, told));
        };
        return begin(h, ask, wait_kind::file_read, nullptr);
    }

private:
    int fd_;
    std::span<std::byte> to_;
    std::uint64_t offset_;
};

} // namespace verbena

#pragma GCC visibility pop
