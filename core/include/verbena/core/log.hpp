// SPDX-License-Identifier: Apache-2.0
// Structured logs: a level, a component, a sentence that never varies, and fields that do.
//
//   log(log_level::info, "nfs", "client mounted", {{"client", address}, {"export", path}});
//   2026-01-02T03:04:05.678Z info nfs: client mounted client=192.0.2.7 export=/data
//
// One log per process, written to the standard error: by the calling thread, or, while a queued_log lives, by a thread
// of the log (queued_log.hpp). What a peer can cause goes through a log_limiter, so that nobody fills the disk.
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

#pragma GCC visibility push(default)

namespace verbena {

/// How much a line matters, from the least. `off` is a threshold only: no line has it.
enum class log_level : std::uint8_t { trace, debug, info, warning, error, off };
/// False for a name that isn't one of trace, debug, info, warning, error, off.
bool parse_log_level(std::string_view name, log_level& out) noexcept;
/// The name that parse_log_level() takes. A literal.
std::string_view to_string(log_level level) noexcept;

/// One key=value. Borrows its strings until the call returns. Values are quoted and escaped where
/// needed, so a peer's bytes can't forge a line.
struct log_field {
    std::string_view key; ///< a name without spaces, as "peer"
    /// text, a number, or true and false
    std::variant<std::string_view, std::int64_t, std::uint64_t, double, bool> value;

    /// The value of a field: text is borrowed, a number or truth value is copied.
    log_field(std::string_view k, std::string_view v) noexcept : key(k), value(v) {}
    log_field(std::string_view k, const std::string& v) noexcept : key(k), value(std::string_view(v)) {}
    log_field(std::string_view k, const char* v) noexcept : key(k), value(std::string_view(v)) {}
    log_field(std::string_view k, bool v) noexcept : key(k), value(v) {}
    log_field(std::string_view k, std::floating_point auto v) noexcept : key(k), value(double(v)) {}
    log_field(std::string_view k, std::signed_integral auto v) noexcept : key(k), value(std::int64_t(v)) {}
    template<std::unsigned_integral T>
        requires(!std::same_as<T, bool>)
    log_field(std::string_view k, T v) noexcept : key(k), value(std::uint64_t(v))
    {
    }
};

/// The lowest level that is written. Any thread; info at the start.
void set_log_level(log_level level) noexcept;
/// The lowest level that is written now. Any thread.
log_level current_log_level() noexcept;
/// Whether a line of `level` would be written: to be asked before work that only the line needs. Any thread.
inline bool log_enabled(log_level level) noexcept { return level >= current_log_level(); }

/// Writes one line. Any thread. While a queued_log lives it waits for no reader, and drops and counts a line for which
/// there is no room. Otherwise it may block on a slow standard error. A line for which there is no memory is counted.
void log(log_level level, std::string_view component, std::string_view message,
         std::initializer_list<log_field> fields = {});

/// Lets `burst` lines through in each `interval` and counts the rest. Any thread. One per kind of line,
/// owned by the component that logs it.
class log_limiter {
public:
    /// Lets `burst` lines through at once, and so many again in each `interval`.
    explicit log_limiter(std::uint32_t burst = 5,
                         std::chrono::steady_clock::duration interval = std::chrono::seconds(10)) noexcept
        : burst_(burst), interval_(interval)
    {
    }
    /// True if a line may be written at `now`; `suppressed` is then how many were not since the last one.
    bool admit(std::chrono::steady_clock::time_point now, std::uint64_t& suppressed) noexcept;

private:
    const std::uint32_t burst_;
    const std::chrono::steady_clock::duration interval_;
    std::atomic<std::chrono::steady_clock::rep> window_start_{
        std::chrono::steady_clock::duration::min().count()};
    std::atomic<std::uint32_t> used_{0};
    std::atomic<std::uint64_t> suppressed_{0};
};

/// As log(), at most as often as `limiter` allows; the next line let through says suppressed=N.
void log_limited(log_limiter& limiter, log_level level, std::string_view component, std::string_view message,
                 std::initializer_list<log_field> fields = {});

/// Where lines go instead of standard error; for tests. `line` has no line feed. nullptr restores.
using log_capture = void (*)(void* context, std::string_view line);
/// Sends lines to `capture` from now on, which is called with `context` by the thread that logs, one line at a
/// time, under a lock: it must not log. Any thread; when this returns, no line is on its way to the one before.
void set_log_capture(log_capture capture, void* context) noexcept;

} // namespace verbena

#pragma GCC visibility pop
