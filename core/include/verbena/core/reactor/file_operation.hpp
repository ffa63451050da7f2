// SPDX-License-Identifier: Apache-2.0
// What file_read and file_write are made of.
#pragma once

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/ring.hpp>
#include <verbena/core/task/task.hpp>

#include <cerrno>
#include <coroutine>
#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena::detail {

/// One operation of a file by the ring of the awaiting task's shard. Completes when: the kernel has carried it out. On cancel: it waits on,
/// as it can't be recalled. Errors: a negative errno; -ENOBUFS at once if the ring takes no more operations. Lifetime: what the
/// operation names outlives the wait. Shard: that of the task.
class file_operation : private ring_completion {
public:
    file_operation(const file_operation&) = delete;
    bool await_ready() const noexcept { return false; }
    std::int32_t await_resume() const noexcept { return result_; }

protected:
    file_operation() noexcept = default;
    ~file_operation() = default;
    /// `ask(ring, completion)` has the ring begin it, and is false if it can't. `mark`: what a dump of tasks shows.
    template<class Promise, class Ask, class... Mark>
    bool begin(std::coroutine_handle<Promise> h, Ask ask, Mark... mark)
    {
        handle_ = h;
        const task_context* context = h.promise().context();
        reactor_ = context != nullptr && context->shard != nullptr ? context->shard : reactor::current();
        if (ask(reactor_->io(), static_cast<ring_completion&>(*this))) {
            mark_.set(h, mark...);
            return true;
        }
        result_ = -ENOBUFS;
        return false;
    }

private:
    void on_complete(std::int32_t res) noexcept override
    {
        result_ = res;
        mark_.clear();
        reactor_->post(handle_);
    }

    std::int32_t result_ = 0;
    reactor* reactor_ = nullptr;
    std::coroutine_handle<> handle_;
    wait_mark mark_;
};

} // namespace verbena::detail

#pragma GCC visibility pop
