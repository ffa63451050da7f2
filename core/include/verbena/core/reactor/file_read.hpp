// SPDX-License-Identifier: Apache-2.0
// Reads of files that wait for a disk, without a thread.
#pragma once

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/ring.hpp>
#include <verbena/core/task/task.hpp>

#include <cerrno>
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
class [[nodiscard("co_await it: nothing is read otherwise")]] file_read final : ring_completion {
public:
    [[nodiscard("co_await it: nothing is read otherwise")]] file_read(int fd, std::span<std::byte> to,
                                                                      std::uint64_t offset) noexcept
        : fd_(fd), to_(to), offset_(offset)
    {
    }
    file_read(const file_read&) = delete;

    bool await_ready() const noexcept { return false; }
    template<class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h)
    {
        handle_ = h;
        const task_context* context = h.promise().context();
        reactor_ = context != nullptr && context->shard != nullptr ? context->shard : reactor::current();
        if (reactor_->io().read(fd_, to_, offset_, *this)) {
            mark_.set(h, wait_kind::file_read, nullptr);
            return true;
        }
        result_ = -ENOBUFS;
        return false;
    }
    std::int32_t await_resume() const noexcept { return result_; }

private:
    void on_complete(std::int32_t res) noexcept override
    {
        result_ = res;
        mark_.clear();
        reactor_->post(handle_);
    }

    int fd_;
    std::span<std::byte> to_;
    std::uint64_t offset_;
    std::int32_t result_ = 0;
    reactor* reactor_ = nullptr;
    std::coroutine_handle<> handle_;
    wait_mark mark_;
};

} // namespace verbena

#pragma GCC visibility pop
