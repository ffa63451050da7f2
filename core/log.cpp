// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/log.hpp>

#include "log_sink.hpp"

#include <spdlog/logger.h>

#include <array>
#include <charconv>
#include <cmath>
#include <memory>
#include <mutex>

namespace verbena {

namespace {

std::atomic<log_level> threshold{log_level::info};
std::mutex capture_mutex;
std::atomic<log_capture> capture{nullptr};
void* capture_context = nullptr;

spdlog::level::level_enum to_spdlog(log_level level) noexcept
{
    switch (level) {
    case log_level::trace: return spdlog::level::trace;
    case log_level::debug: return spdlog::level::debug;
    case log_level::info: return spdlog::level::info;
    case log_level::warning: return spdlog::level::warn;
    case log_level::error: return spdlog::level::err;
    case log_level::off: break;
    }
    return spdlog::level::off;
}

// Never destroyed: threads may log while the process exits.
spdlog::logger& logger()
{
    static spdlog::logger& instance = []() -> spdlog::logger& {
        auto* made = new spdlog::logger("verbena", detail::make_log_sink());
        made->set_level(spdlog::level::trace);
        made->set_error_handler(
            [](const std::string&) {}); // its own writes to the standard error, and waits for it
        return *made;
    }();
    return instance;
}

bool is_plain(std::string_view text) noexcept
{
    if (text.empty())
        return false;
    for (const unsigned char c : text) {
        if (c <= ' ' || c >= 0x7f || c == '"' || c == '=' || c == '\\')
            return false;
    }
    return true;
}

void append_quoted(std::string& line, std::string_view text)
{
    static constexpr char hex[] = "0123456789abcdef";
    line += '"';
    for (const unsigned char c : text) {
        if (c == '"' || c == '\\') {
            line += '\\';
            line += char(c);
        } else if (c < ' ' || c >= 0x7f) {
            line += {'\\', 'x', hex[c >> 4], hex[c & 15]};
        } else {
            line += char(c);
        }
    }
    line += '"';
}

template<class Number>
void append_number(std::string& line, Number n)
{
    std::array<char, 32> text;
    const auto [end, status] = std::to_chars(text.data(), text.data() + text.size(), n);
    line.append(text.data(), end);
}

struct append_value {
    std::string& line;
    void operator()(std::string_view v) const
    {
        if (is_plain(v))
            line += v;
        else
            append_quoted(line, v);
    }
    void operator()(bool v) const { line += v ? "true" : "false"; }
    void operator()(std::int64_t v) const { append_number(line, v); }
    void operator()(std::uint64_t v) const { append_number(line, v); }
    void operator()(double v) const { append_number(line, v); }
};

void write(log_level level, std::string_view component, std::string_view message,
           std::initializer_list<log_field> fields, std::uint64_t suppressed)
{
    std::string line;
    line.reserve(128);
    line += component;
    line += ": ";
    line += message;
    for (const log_field& field : fields) {
        line += ' ';
        line += field.key;
        line += '=';
        std::visit(append_value{line}, field.value);
    }
    if (suppressed != 0) {
        line += " suppressed=";
        append_number(line, suppressed);
    }
    if (capture.load(std::memory_order_acquire) != nullptr) {
        const std::lock_guard lock(capture_mutex);
        if (const log_capture to = capture.load(std::memory_order_relaxed)) {
            to(capture_context, std::string(to_string(level)) + ' ' + line);
            return;
        }
    }
    logger().log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

// What tells of an exception must not throw one: a line for which there is no memory is lost.
void write_if_possible(log_level level, std::string_view component, std::string_view message,
                       std::initializer_list<log_field> fields, std::uint64_t suppressed) noexcept
{
    try {
        write(level, component, message, fields, suppressed);
    } catch (...) {
        detail::count_lost_line();
    }
}

constexpr std::array<std::string_view, 6> level_names = {"trace", "debug", "info", "warning", "error", "off"};

} // namespace

bool parse_log_level(std::string_view name, log_level& out) noexcept
{
    for (std::size_t i = 0; i < level_names.size(); ++i) {
        if (name == level_names[i]) {
            out = log_level(i);
            return true;
        }
    }
    return false;
}

std::string_view to_string(log_level level) noexcept { return level_names[std::size_t(level)]; }

void set_log_level(log_level level) noexcept { threshold.store(level, std::memory_order_relaxed); }
log_level current_log_level() noexcept { return threshold.load(std::memory_order_relaxed); }

void log(log_level level, std::string_view component, std::string_view message,
         std::initializer_list<log_field> fields)
{
    if (log_enabled(level) && level != log_level::off)
        write_if_possible(level, component, message, fields, 0);
}

bool log_limiter::admit(std::chrono::steady_clock::time_point now, std::uint64_t& suppressed) noexcept
{
    const auto tick = now.time_since_epoch().count();
    auto start = window_start_.load(std::memory_order_relaxed);
    if (start == std::chrono::steady_clock::duration::min().count() || tick - start >= interval_.count()) {
        if (window_start_.compare_exchange_strong(start, tick, std::memory_order_relaxed))
            used_.store(0, std::memory_order_relaxed);
    }
    if (used_.fetch_add(1, std::memory_order_relaxed) < burst_) {
        suppressed = suppressed_.exchange(0, std::memory_order_relaxed);
        return true;
    }
    used_.store(burst_, std::memory_order_relaxed); // must not wrap
    suppressed_.fetch_add(1, std::memory_order_relaxed);
    return false;
}

void log_limited(log_limiter& limiter, log_level level, std::string_view component, std::string_view message,
                 std::initializer_list<log_field> fields)
{
    if (!log_enabled(level) || level == log_level::off)
        return;
    std::uint64_t suppressed = 0;
    if (limiter.admit(std::chrono::steady_clock::now(), suppressed))
        write_if_possible(level, component, message, fields, suppressed);
}

void set_log_capture(log_capture to, void* context) noexcept
{
    const std::lock_guard lock(capture_mutex);
    capture_context = context;
    capture.store(to, std::memory_order_release);
}

} // namespace verbena
