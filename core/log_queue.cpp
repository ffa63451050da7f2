// SPDX-License-Identifier: Apache-2.0
#include "log_queue.hpp"

#include "reactor/signals_blocked.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace verbena::detail {

namespace {

using clock = std::chrono::steady_clock;

// How long a writer that nobody reads from takes to see that it is no longer wanted.
constexpr std::chrono::milliseconds look_around{50};
// How long stop() waits for a writer that is no longer wanted, before it takes it for one that hangs in write(2).
constexpr std::chrono::milliseconds hangs_after{500};

std::uint64_t lines_in(std::string_view text) noexcept
{
    return static_cast<std::uint64_t>(std::ranges::count(text, '\n'));
}

void wait_for_room(int fd, std::chrono::milliseconds limit) noexcept
{
    pollfd writable{fd, POLLOUT, 0};
    ::poll(&writable, 1, static_cast<int>(limit.count()));
}

void keep_off_first_cpus(unsigned count) noexcept
{
    cpu_set_t allowed;
    if (count == 0 || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0 ||
        count >= static_cast<unsigned>(CPU_COUNT(&allowed)))
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE && count != 0; ++cpu) {
        if (CPU_ISSET(cpu, &allowed)) {
            CPU_CLR(cpu, &allowed);
            --count;
        }
    }
    ::pthread_setaffinity_np(::pthread_self(), sizeof allowed, &allowed);
}

} // namespace

ssize_t write_at_once(int fd, std::string_view text) noexcept
{
    // The journal is a socket, of which the kernel can be asked not to wait.
    const ssize_t sent = ::send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0 || errno != ENOTSOCK)
        return sent;
    pollfd writable{fd, POLLOUT, 0};
    if (::poll(&writable, 1, 0) == 0) {
        errno = EAGAIN;
        return -1;
    }
    // A pipe that is writable has room for PIPE_BUF bytes, and takes so many as one piece (pipe(7)).
    return ::write(fd, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
}

std::size_t write_within(int fd, std::string_view text, const log_patience& patience) noexcept
{
    const auto begin = clock::now();
    auto moved = begin;
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t n = write_at_once(fd, text.substr(done));
        if (n > 0) {
            done += static_cast<std::size_t>(n);
            moved = clock::now();
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            break;
        const auto left = std::min(moved + patience.idle, begin + patience.total) - clock::now();
        if (left <= clock::duration::zero())
            break;
        wait_for_room(fd, std::chrono::ceil<std::chrono::milliseconds>(left));
    }
    return done;
}

void log_queue::start(unsigned pinned_cpus)
{
    const std::lock_guard lock(mutex_);
    ring_ = std::make_unique_for_overwrite<char[]>(size_); // its pages come as they are used
    begin_ = used_ = 0;
    lost_ = 0;
    dropping_ = sleeping_ = writing_ = has_ended_ = false;
    const std::uint64_t mine = run_.fetch_add(1, std::memory_order_relaxed) + 1;
    const signals_blocked blocked;
    thread_ = std::thread([self = shared_from_this(), mine, pinned_cpus] {
        ::pthread_setname_np(::pthread_self(), "log");
        keep_off_first_cpus(pinned_cpus);
        self->run(mine);
    });
    running_.store(true, std::memory_order_relaxed);
}

void log_queue::append(std::string_view lines) noexcept
{
    const std::size_t end = (begin_ + used_) % size_;
    const std::size_t first = std::min(lines.size(), size_ - end);
    std::memcpy(ring_.get() + end, lines.data(), first);
    std::memcpy(ring_.get(), lines.data() + first, lines.size() - first);
    used_ += lines.size();
}

// Where there is room for it.
void log_queue::tell_lost() noexcept
{
    std::array<char, most_lost_line> line;
    append({line.data(), tells_(std::exchange(lost_, 0), line)});
    dropping_ = false;
}

log_queue::outcome log_queue::push(std::string_view lines, bool warns) noexcept
{
    if (!running())
        return outcome::not_running;
    bool sleeping = false;
    {
        const std::lock_guard lock(mutex_);
        if (!running())
            return outcome::not_running;
        if (dropping_ && used_ <= size_ / 2)
            tell_lost();
        const std::size_t room = warns ? size_ : size_ - size_ / part_for_warnings;
        if ((dropping_ && !warns) || used_ + lines.size() > room) {
            const std::uint64_t count = lines_in(lines);
            dropping_ = true;
            lost_ += count;
            count_dropped(count);
            return outcome::dropped;
        }
        append(lines);
        sleeping = std::exchange(sleeping_, false);
    }
    if (sleeping)
        wake_.notify_one();
    return outcome::queued;
}

log_queue::outcome log_queue::hand_over(std::string& text) noexcept
{
    if (!running())
        return outcome::not_running;
    const std::lock_guard lock(mutex_);
    if (!running())
        return outcome::not_running;
    if (!text_.empty()) {
        count_dropped(lines_in(text));
        return outcome::dropped;
    }
    text_ = std::move(text);
    before_text_ = used_;
    sleeping_ = false;
    wake_.notify_one();
    return outcome::queued;
}

// Whole lines, as many as one write may take; of a longer line a piece.
std::size_t log_queue::take(std::span<char> out) noexcept
{
    std::size_t n = std::min(out.size(), text_.empty() ? used_ : before_text_);
    const std::size_t first = std::min(n, size_ - begin_);
    std::memcpy(out.data(), ring_.get() + begin_, first);
    std::memcpy(out.data() + first, ring_.get(), n - first);
    if (const std::size_t end = std::string_view(out.data(), n).rfind('\n'); end != std::string_view::npos)
        n = end + 1;
    begin_ = (begin_ + n) % size_;
    used_ -= n;
    before_text_ -= std::min(before_text_, n);
    if (used_ == 0)
        begin_ = 0; // the rest of the ring is touched only if it is needed
    return n;
}

void log_queue::write_out(std::string_view text, std::uint64_t mine) noexcept
{
    while (!text.empty() && is_present(mine)) {
        const std::size_t done = write_within(fd_, text, {look_around, look_around});
        if (done == 0 && errno != EAGAIN)
            break; // a reader that is gone, a full disk
        moved_.fetch_add(done, std::memory_order_relaxed);
        text.remove_prefix(done);
    }
    count_dropped(lines_in(text));
}

void log_queue::run(std::uint64_t mine) noexcept
{
    std::array<char, PIPE_BUF> lines;
    std::unique_lock lock(mutex_);
    while (is_present(mine)) {
        if (!has_work()) {
            written_.notify_all();
            sleeping_ = true;
            wake_.wait(lock, [&] { return !sleeping_ || !is_present(mine); });
            continue;
        }
        writing_ = true;
        if (!text_.empty() && before_text_ == 0) {
            std::string text = std::exchange(text_, {});
            lock.unlock();
            write_out(text, mine);
        } else {
            if (used_ == 0)
                tell_lost();
            const std::size_t size = take(lines);
            lock.unlock();
            write_out({lines.data(), size}, mine);
        }
        lock.lock();
        if (is_present(mine))
            writing_ = false;
    }
    if (is_present(mine + 1)) { // else nobody waits for one left behind
        has_ended_ = true;
        written_.notify_all();
    }
}

bool log_queue::wait_until_written(std::unique_lock<std::mutex>& lock, const log_patience& patience) noexcept
{
    const auto end = clock::now() + patience.total;
    const auto is_written = [&] { return !has_work() && !writing_; };
    for (;;) {
        const std::uint64_t before = moved_.load(std::memory_order_relaxed);
        if (written_.wait_until(lock, std::min(clock::now() + patience.idle, end), is_written))
            return true;
        if (moved_.load(std::memory_order_relaxed) == before || clock::now() >= end)
            return false;
    }
}

bool log_queue::flush(const log_patience& patience) noexcept
{
    if (!running())
        return true;
    std::unique_lock lock(mutex_);
    return !running() || wait_until_written(lock, patience);
}

bool log_queue::stop(const log_patience& patience) noexcept
{
    if (!running())
        return true;
    std::unique_lock lock(mutex_);
    const bool all = wait_until_written(lock, patience);
    // With the lock that was held when the last line was found written: the next one finds no queue.
    running_.store(false, std::memory_order_relaxed);
    run_.fetch_add(1, std::memory_order_relaxed);
    count_dropped(lines_in(std::exchange(text_, {})));
    while (used_ != 0) {
        std::array<char, PIPE_BUF> lines;
        count_dropped(lines_in({lines.data(), take(lines)}));
    }
    wake_.notify_one();
    const bool has_ended = written_.wait_for(lock, hangs_after, [&] { return has_ended_; });
    std::thread thread = std::move(thread_);
    ring_.reset();
    lock.unlock();
    if (has_ended)
        thread.join();
    else
        thread.detach();
    return all;
}

} // namespace verbena::detail
