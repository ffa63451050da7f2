// SPDX-License-Identifier: Apache-2.0
#include "log_sink.hpp"

#include "last_words.hpp"
#include "log_queue.hpp"

#include <verbena/core/queued_log.hpp>

#include <spdlog/details/log_msg.h>
#include <spdlog/pattern_formatter.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
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

constexpr log_patience no_patience{std::chrono::milliseconds(0), std::chrono::milliseconds(0)};
// Lines that are not queued wait for whoever reads, but not once a queue has ended with lines that nobody read.
std::atomic<bool> waits_for_readers{true};

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

// It keeps the text of the second that it formatted last, so that one thread at a time may use it.
void format(const spdlog::details::log_msg& msg, spdlog::memory_buf_t& out)
{
    static auto& mutex = *new std::mutex;
    static auto& formatter = *make_formatter().release();
    const std::lock_guard lock(mutex);
    formatter.format(msg, out);
}

std::size_t format_lost_line(std::uint64_t lost, std::span<char> out) noexcept
{
    try {
        const std::string text =
            "log: lines were dropped, since the standard error was not read in time lines=" +
            std::to_string(lost);
        spdlog::memory_buf_t line;
        format({spdlog::source_loc(), "verbena", spdlog::level::warn, text}, line);
        const std::size_t size = std::min(line.size(), out.size());
        std::copy_n(line.data(), size, out.data());
        return size;
    } catch (const std::exception&) { // the metric tells it
        return 0;
    }
}

// Never destroyed: threads may log while the process exits, and the writer may hang in write(2).
detail::log_queue& process_queue()
{
    static const auto& queue = []() -> const std::shared_ptr<detail::log_queue>& {
        const auto* made = new std::shared_ptr<detail::log_queue>(
            std::make_shared<detail::log_queue>(STDERR_FILENO, queue_size, format_lost_line));
        ::pthread_atfork(nullptr, nullptr, [] { process_queue().forget(); });
        return *made;
    }();
    return *queue;
}

void write_now(std::string_view lines) noexcept
{
    if (waits_for_readers.load(std::memory_order_relaxed))
        (void)std::fwrite(lines.data(), 1, lines.size(),
                          stderr); // unbuffered; each call is one piece among threads
    else if (detail::write_within(STDERR_FILENO, lines, no_patience) < lines.size())
        process_queue().count_dropped(static_cast<std::uint64_t>(std::ranges::count(lines, '\n')));
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
                detail::log_queue::outcome::not_running)
                write_now(text);
        } catch (const std::bad_alloc&) {
            detail::count_lost_line();
        }
    }
    void flush() override {}
    void set_pattern(const std::string&) override {}
    void set_formatter(std::unique_ptr<spdlog::formatter>) override {}
};

std::mutex users_mutex;
unsigned users = 0;

} // namespace

std::shared_ptr<spdlog::sinks::sink> detail::make_log_sink() { return std::make_shared<standard_error>(); }

void detail::count_lost_line() noexcept { process_queue().count_dropped(1); }

void detail::write_last_words(std::string_view text) noexcept
{
    process_queue().flush(log_patience());
    write_within(STDERR_FILENO, text, log_patience());
}

queued_log::queued_log(unsigned pinned_cpus)
{
    const std::lock_guard lock(users_mutex);
    if (users == 0)
        process_queue().start(pinned_cpus);
    ++users;
}

queued_log::~queued_log()
{
    const std::lock_guard lock(users_mutex);
    if (--users == 0)
        waits_for_readers.store(process_queue().stop(log_patience()), std::memory_order_relaxed);
}

std::uint64_t dropped_log_lines() noexcept { return process_queue().dropped(); }

bool flush_log() noexcept { return process_queue().flush(log_patience()); }

bool write_to_log(log_level level, std::string text) noexcept
{
    using outcome = detail::log_queue::outcome;
    try {
        if (is_journal()) {
            std::string marked;
            for (std::string_view rest = text; !rest.empty();) {
                const std::size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
                marked += {'<', priorities[static_cast<std::size_t>(level)], '>'};
                marked += rest.substr(0, end);
                rest.remove_prefix(end);
            }
            text = std::move(marked);
        }
        detail::log_queue& queue = process_queue();
        const outcome done = text.size() <= longest_in_queue ? queue.push(text, true) : queue.hand_over(text);
        if (done == outcome::not_running)
            write_now(text);
        return done != outcome::dropped;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

} // namespace verbena
