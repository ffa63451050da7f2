// SPDX-License-Identifier: Apache-2.0
#include "log_sink.hpp"

#include "last_words.hpp"
#include "log_queue.hpp"

#include <verbena/core/last_log_lines.hpp>
#include <verbena/core/queued_log.hpp>

#include <spdlog/details/log_msg.h>
#include <spdlog/pattern_formatter.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <pthread.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace verbena {

namespace detail {

bool is_stream(int fd, const char* stream) noexcept
{
    struct stat status{};
    if (stream == nullptr || ::fstat(fd, &status) != 0)
        return false;
    const char* const end = stream + std::strlen(stream);
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    const auto [colon, bad_device] = std::from_chars(stream, end, device);
    if (bad_device != std::errc() || colon == end || *colon != ':')
        return false;
    const auto [last, bad_inode] = std::from_chars(colon + 1, end, inode);
    return bad_inode == std::errc() && last == end && device == status.st_dev && inode == status.st_ino;
}

} // namespace detail

namespace {

constexpr std::size_t queue_size = std::size_t(1) << 20;
// What is longer does not fill the queue, but waits beside it.
constexpr std::size_t longest_in_queue = std::size_t(64) << 10;

bool is_journal() noexcept
{
    static const bool is = detail::is_stream(STDERR_FILENO, std::getenv("JOURNAL_STREAM"));
    return is;
}

// sd-daemon(3): a line begins with "<4>" if it is a warning. By the levels of verbena, and of spdlog, which has one more.
constexpr std::string_view priorities = "776433";
constexpr std::string_view priorities_of_spdlog = "7764332";

class syslog_prefix final : public spdlog::custom_flag_formatter {
public:
    void format(const spdlog::details::log_msg& msg, const std::tm&, spdlog::memory_buf_t& out) override
    {
        const std::array<char, 3> prefix = {'<', priorities_of_spdlog[static_cast<std::size_t>(msg.level)],
                                            '>'};
        out.append(prefix.data(), prefix.data() + prefix.size());
    }
    std::unique_ptr<custom_flag_formatter> clone() const override
    {
        return std::make_unique<syslog_prefix>();
    }
};

std::unique_ptr<spdlog::formatter> make_formatter()
{
    auto made = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
    made->add_flag<syslog_prefix>('*');
    made->set_pattern(is_journal() ? "%*%l %v" : "%Y-%m-%dT%H:%M:%S.%eZ %l %v");
    return made;
}

constinit std::mutex format_mutex;

// The formatter keeps the text of the second that it formatted last, so that one thread at a time may use it.
void format(const spdlog::details::log_msg& msg, spdlog::memory_buf_t& out)
{
    const std::lock_guard lock(format_mutex);
    static constinit spdlog::formatter* formatter = nullptr; // never destroyed
    if (formatter == nullptr)
        formatter = make_formatter().release();
    formatter->format(msg, out);
}

// As the formatter would, but without memory and without its lock, since the queue's is held.
std::size_t format_lost_line(std::uint64_t lost, std::span<char> out) noexcept
{
    namespace chrono = std::chrono;
    std::array<char, 96> time = {"<4>"};
    if (!is_journal()) {
        const auto now = chrono::floor<chrono::milliseconds>(chrono::system_clock::now());
        const auto day = chrono::floor<chrono::days>(now);
        const chrono::year_month_day date(day);
        const chrono::hh_mm_ss clock(now - day);
        std::snprintf(time.data(), time.size(), "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ ", int(date.year()),
                      unsigned(date.month()), unsigned(date.day()), int(clock.hours().count()),
                      int(clock.minutes().count()), int(clock.seconds().count()),
                      int(clock.subseconds().count()));
    }
    const int size = std::snprintf(out.data(), out.size(),
                                   "%swarning log: lines were dropped, since the standard error did not take "
                                   "them in time lines=%llu\n",
                                   time.data(), static_cast<unsigned long long>(lost));
    return std::min(static_cast<std::size_t>(std::max(size, 0)), out.size());
}

// In static storage, so that the first line needs no memory for it. Never destroyed: threads may log while the process exits, and
// the writer may hang in write(2).
detail::log_queue& process_queue() noexcept
{
    alignas(detail::log_queue) static constinit std::array<std::byte, sizeof(detail::log_queue)> storage{};
    static detail::log_queue& queue =
        *new (storage.data()) detail::log_queue(STDERR_FILENO, queue_size, format_lost_line);
    return queue;
}

void write_directly(std::string_view lines) noexcept
{
    // Unbuffered; each call is one piece among threads.
    lines.remove_prefix(std::fwrite(lines.data(), 1, lines.size(), stderr));
    process_queue().count_dropped(static_cast<std::uint64_t>(std::ranges::count(lines, '\n')));
}

// Hands each line of `text` to `append`, in the journal behind its priority.
template<class Append>
void mark_lines(log_level level, std::string_view text, const Append& append)
{
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
        if (is_journal()) {
            const std::array<char, 3> prefix = {'<', priorities[static_cast<std::size_t>(level)], '>'};
            append(std::string_view(prefix.data(), prefix.size()));
        }
        append(text.substr(0, end));
        text.remove_prefix(end);
    }
}

class standard_error final : public spdlog::sinks::sink {
public:
    void log(const spdlog::details::log_msg& msg) override
    {
        try {
            spdlog::memory_buf_t line;
            format(msg, line);
            const std::string_view text(line.data(), line.size());
            if (process_queue().push(text, msg.level >= spdlog::level::warn) ==
                detail::log_queue::outcome::direct)
                write_directly(text);
        } catch (const std::bad_alloc&) {
            detail::count_lost_line();
        }
    }
    void flush() override {}
    void set_pattern(const std::string&) override {}
    void set_formatter(std::unique_ptr<spdlog::formatter>) override {}
};

constinit std::mutex users_mutex;
unsigned users = 0; // a child of fork() has those of its parent, which it destroys

// A child of fork() may log, whatever the other threads of its parent were about.
[[maybe_unused]] const int fork_handlers = ::pthread_atfork(
    [] {
        format_mutex.lock();
        process_queue().before_fork();
    },
    [] {
        process_queue().after_fork_in_parent();
        format_mutex.unlock();
    },
    [] {
        process_queue().after_fork_in_child();
        format_mutex.unlock();
        std::construct_at(
            &users_mutex); // not locked before, since the end of a queued_log has it for seconds
    });

std::terminate_handler terminate_before = nullptr;

void flush_before_the_end()
{
    static const bool once = [] {
        (void)std::atexit([] { flush_log(); });
        terminate_before = std::set_terminate([] {
            flush_log();
            terminate_before();
        });
        return true;
    }();
    (void)once;
}

} // namespace

std::shared_ptr<spdlog::sinks::sink> detail::make_log_sink() { return std::make_shared<standard_error>(); }

void detail::count_lost_line() noexcept { process_queue().count_dropped(1); }

void detail::write_last_words(std::string_view text) noexcept
{
    std::array<char, 4096> lines;
    std::size_t size = 0;
    mark_lines(log_level::error, text, [&](std::string_view part) {
        size += part.copy(lines.data() + size, lines.size() - 1 - size);
    });
    if (size != 0 && lines[size - 1] != '\n')
        lines[size++] = '\n';
    const std::string_view words(lines.data(), size);
    detail::log_queue& queue = process_queue();
    // By the writer, if there is one: this thread must get to its abort(), and never into a write(2) that hangs.
    const bool is_read = queue.flush(log_patience());
    if (queue.push(words, true) == detail::log_queue::outcome::direct)
        write_within(STDERR_FILENO, words, log_patience());
    else if (is_read)
        queue.flush(log_patience());
}

queued_log::queued_log(unsigned pinned_cpus)
{
    const std::lock_guard lock(users_mutex);
    flush_before_the_end();
    if (process_queue().is_queued())
        process_queue().keep_off(pinned_cpus);
    else
        process_queue().start(pinned_cpus);
    ++users;
}

queued_log::~queued_log()
{
    const std::lock_guard lock(users_mutex);
    if (--users == 0)
        process_queue().stop(log_patience());
}

std::uint64_t dropped_log_lines() noexcept { return process_queue().dropped(); }

std::string last_log_lines()
{
    static_assert(most_kept_log == detail::log_tail::usual_size);
    std::string text = process_queue().last_lines();
    if (!is_journal())
        return text;
    std::string out;
    for (std::string_view left = text; !left.empty();) {
        const std::size_t end = std::min(left.find('\n'), left.size() - 1) + 1;
        const bool is_marked = left.size() > 2 && left[0] == '<' && left[2] == '>';
        out += left.substr(is_marked ? 3 : 0, is_marked ? end - 3 : end);
        left.remove_prefix(end);
    }
    return out;
}

bool flush_log() noexcept { return process_queue().flush(log_patience()); }

bool write_to_log(log_level level, std::string text) noexcept
{
    using outcome = detail::log_queue::outcome;
    try {
        if (is_journal()) {
            std::string marked;
            mark_lines(level, text, [&](std::string_view part) { marked += part; });
            text = std::move(marked);
        }
        detail::log_queue& queue = process_queue();
        const outcome done = text.size() <= longest_in_queue ? queue.push(text, true) : queue.hand_over(text);
        if (done == outcome::direct)
            write_directly(text);
        return done != outcome::dropped;
    } catch (const std::bad_alloc&) {
        process_queue().count_dropped(static_cast<std::uint64_t>(std::ranges::count(text, '\n')));
        return false;
    }
}

} // namespace verbena
