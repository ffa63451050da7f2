// SPDX-License-Identifier: Apache-2.0
// A task that sees another context than its awaiter does, as another stop or deadline. No frame, and nothing is allocated.
#pragma once

#include <verbena/core/task/task.hpp>

#include <coroutine>

#pragma GCC visibility push(default)

namespace verbena::detail {

/// Awaits `t`, in which `c` is the context. Both outlive the wait; so does the source of the context's stop.
template<class T>
class [[nodiscard("co_await it: the task does nothing otherwise")]] in_context {
public:
    in_context(const task<T>& t, const task_context& c) noexcept : task_(t), context_(c) {}
    bool await_ready() const noexcept { return false; }
    template<class Promise>
    bool await_suspend(std::coroutine_handle<Promise> parent) noexcept
    {
        auto& promise = task_.native_handle().promise();
        promise.set_context(&context_);
        return promise.start(task_.native_handle(), parent, record_of(parent));
    }
    T await_resume() { return task_.native_handle().promise().take(); }

private:
    const task<T>& task_;
    const task_context& context_;
};

} // namespace verbena::detail

#pragma GCC visibility pop
