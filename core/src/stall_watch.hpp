// SPDX-License-Identifier: Apache-2.0
// Finds what held a shard. After a turn that was long the steps of further turns are timed for a while, so that the
// next one can be named; else a turn times nothing but itself.
#pragma once

#include <verbena/core/clock.hpp>

#include <coroutine>
#include <string>

namespace verbena {

class stall_watch {
public:
    /// A turn that took this long is logged.
    static constexpr duration limit = std::chrono::milliseconds(100);
    /// Steps are timed until no turn has been long for that time.
    static constexpr duration watches_for = std::chrono::minutes(1);

    explicit stall_watch(clock_source& clock) noexcept : clock_(clock) {}

    /// A turn begins.
    void begin() noexcept { longest_ = duration::zero(); }
    void resume(std::coroutine_handle<> h)
    {
        // The ABI of both GCC and clang: a frame begins with the function that resumes it. The frame may be gone
        // afterwards.
        const void* const code = *static_cast<void* const*>(h.address());
        const time_point began = clock_.now();
        h.resume();
        ended(began, nullptr, code);
    }
    /// `what` is a literal, or what typeid() calls the object.
    template<class F>
    auto step(const char* what, F f)
    {
        const time_point began = clock_.now();
        const auto out = f();
        ended(began, what, nullptr);
        return out;
    }
    duration longest() const noexcept { return longest_; }
    /// The name of the longest step. Reads the symbol tables of the process's files.
    std::string name() const;

    time_point until{}; ///< steps are timed

private:
    void ended(time_point began, const char* what, const void* code) noexcept
    {
        const duration took = clock_.now() - began;
        if (took <= longest_)
            return;
        longest_ = took;
        what_ = what;
        code_ = code;
    }

    clock_source& clock_;
    duration longest_{};
    const char* what_ = nullptr;
    const void* code_ = nullptr; // of a coroutine
};

} // namespace verbena
