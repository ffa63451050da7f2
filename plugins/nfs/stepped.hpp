// SPDX-License-Identifier: Apache-2.0
// Work that one thread does in steps, beside other such work.
#pragma once

#include <coroutine>
#include <utility>

namespace verbena::nfs {

/// A coroutine that is called again and again until it has ended; `co_await std::suspend_always()` ends a step. It lets no exception out.
class stepped {
public:
    struct promise_type {
        stepped get_return_object() noexcept
        {
            return stepped(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_always initial_suspend() const noexcept { return {}; }
        std::suspend_always final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        void unhandled_exception() const noexcept {}
    };
    stepped() noexcept = default;
    stepped(stepped&& other) noexcept : at_(std::exchange(other.at_, nullptr)) {}
    stepped& operator=(stepped&& other) noexcept
    {
        std::swap(at_, other.at_);
        return *this;
    }
    ~stepped()
    {
        if (at_)
            at_.destroy();
    }
    explicit operator bool() const noexcept { return bool(at_); }
    /// One step. Not once it has ended.
    void step() const { at_.resume(); }
    bool has_ended() const noexcept { return at_.done(); }

private:
    explicit stepped(std::coroutine_handle<promise_type> at) noexcept : at_(at) {}
    std::coroutine_handle<promise_type> at_;
};

} // namespace verbena::nfs
