// SPDX-License-Identifier: Apache-2.0
// Finds what held a shard. After a turn that was long the steps of further turns are timed for a while, so that the
// next one can be named; else a turn times nothing but itself.
#pragma once

#include <verbena/core/reactor/clock.hpp>

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <string_view>
#include <thread>

namespace verbena {

class stall_watch {
public:
    /// A turn that took this long is logged.
    static constexpr duration limit = std::chrono::milliseconds(100);
    /// Steps are timed until no turn has been long for that time.
    static constexpr duration watches_for = std::chrono::minutes(1);

    explicit stall_watch(clock_source& clock) noexcept : clock_(clock) {}
    /// Waits for the line of the log that is on its way.
    ~stall_watch();
    stall_watch(const stall_watch&) = delete;

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
    /// A turn that was long.
    struct turn {
        unsigned shard;
        duration took;
        std::uint64_t suppressed; ///< lines of the log
    };
    /// Logs it, with what held the shard.
    static void log(const turn& t, std::string_view by);
    /// Logs it with the name of the longest step. That of a coroutine stands in the process's files alone. A thread reads them and writes
    /// the line later, since the shard was held for long enough; one at a time.
    void log_with_name(const turn& t);
    /// That thread has read them.
    bool has_name() const noexcept { return !looks_.load(std::memory_order_acquire); }

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
    std::atomic<bool> looks_{false};
    std::atomic<bool> has_ended_ = true; ///< the thread, or nearly
    std::thread namer_;
};

} // namespace verbena
