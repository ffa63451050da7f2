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
// How long stop() waits for the queue to be empty, once all that was pushed before is written: other threads may log on for ever.
constexpr std::chrono::milliseconds others_log_on{500};

std::uint64_t lines_in(std::string_view text) noexcept
{
    return static_cast<std::uint64_t>(std::ranges::count(text, '\n'));
}

void wait_for_room(int fd, std::chrono::milliseconds limit) noexcept
{
    pollfd writable{fd, POLLOUT, 0};
    ::poll(&writable, 1, static_cast<int>(limit.count()));
}

} // namespace

ssize_t write_at_once(int fd, std::string_view text) noexcept
{
    // The journal is a socket, of which the kernel can be asked not to wait.
    const ssize_t sent = ::send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0 || errno != ENOTSOCK)
        return sent;
    pollfd writable{fd, POLLOUT, 0};
    if (::poll(&writable, 1, 0) <= 0) { // a signal may interrupt it, and then nothing is known
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
    auto ring = std::make_unique<char[]>(size_); // zeros, so that no page has to come under the lock
    tail_.prepare();
    const std::lock_guard lock(mutex_);
    const std::uint64_t mine = run_.fetch_add(1, std::memory_order_relaxed) + 1;
    const signals_blocked blocked;
    // A writer that is left behind has a share of a queue that is shared. That of the process is never destroyed.
    thread_ = std::thread([this, mine, share = weak_from_this().lock()] {
        ::pthread_setname_np(::pthread_self(), "log");
        run(mine);
    });
    ring_ = std::move(ring);
    begin_ = used_ = before_text_ = 0;
    lost_ = 0;
    dropping_ = sleeping_ = has_ended_ = false;
    pinned_cpus_ = 0;
    way_.store(way::queued, std::memory_order_relaxed);
    keep_off_with_lock(pinned_cpus);
}

void log_queue::keep_off(unsigned pinned_cpus) noexcept
{
    const std::lock_guard lock(mutex_);
    if (is_queued())
        keep_off_with_lock(pinned_cpus);
}

void log_queue::keep_off_with_lock(unsigned count) noexcept
{
    cpu_set_t allowed;
    if (count <= pinned_cpus_ || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0 ||
        count >= static_cast<unsigned>(CPU_COUNT(&allowed)))
        return;
    pinned_cpus_ = count;
    for (int cpu = 0; cpu < CPU_SETSIZE && count != 0; ++cpu) {
        if (CPU_ISSET(cpu, &allowed)) {
            CPU_CLR(cpu, &allowed);
            --count;
        }
    }
    ::pthread_setaffinity_np(thread_.native_handle(), sizeof allowed, &allowed);
}

void log_queue::append(std::string_view lines) noexcept
{
    const std::size_t end = (begin_ + used_) % size_;
    const std::size_t first = std::min(lines.size(), size_ - end);
    std::memcpy(ring_.get() + end, lines.data(), first);
    std::memcpy(ring_.get(), lines.data() + first, lines.size() - first);
    used_ += lines.size();
    pushed_ += lines.size();
}

void log_queue::lose(std::string_view lines) noexcept
{
    const std::uint64_t count = lines_in(lines);
    lost_ += count;
    count_dropped(count);
}

void log_queue::tell_lost() noexcept
{
    if (lost_ == 0 || size_ - used_ < most_lost_line)
        return;
    std::array<char, most_lost_line> line;
    append({line.data(), tells_(std::exchange(lost_, 0), line)});
}

// After a stop that left lines: waiting for the descriptor, or for the writer in it, is over for good. Of a socket alone it is
// sure that it keeps nobody.
log_queue::outcome log_queue::send_at_once(std::string_view lines) noexcept
{
    constexpr int at_once = MSG_DONTWAIT | MSG_NOSIGNAL;
    if (has_ended_ && output_.mid_line && ::send(fd_, "\n", 1, at_once) == 1)
        output_.mid_line = false;
    ssize_t sent = -1;
    if (has_ended_ && !output_.mid_line) // else the writer may still be about to write
        sent = ::send(fd_, lines.data(), lines.size(), at_once);
    if (sent > 0) {
        output_.mid_line = lines[static_cast<std::size_t>(sent) - 1] != '\n';
        lines.remove_prefix(static_cast<std::size_t>(sent));
    }
    count_dropped(lines_in(lines));
    return lines.empty() ? outcome::queued : outcome::dropped;
}

log_queue::outcome log_queue::push(std::string_view lines, bool warns) noexcept
{
    if (now() == way::direct)
        return outcome::direct;
    bool sleeping = false;
    outcome done = outcome::queued;
    {
        const std::lock_guard lock(mutex_);
        switch (now()) {
        case way::direct: return outcome::direct;
        case way::nowhere: return send_at_once(lines);
        case way::queued: break;
        }
        if (used_ <= size_ / 2)
            dropping_ = false;
        if (!dropping_)
            tell_lost();
        // The line that tells of a loss always finds room.
        const std::size_t room = (warns ? size_ : size_ - size_ / part_for_warnings) - most_lost_line;
        if ((dropping_ && !warns) || used_ + lines.size() > room) {
            dropping_ = true;
            lose(lines);
            done = outcome::dropped;
        } else {
            append(lines);
        }
        sleeping = std::exchange(sleeping_, false);
    }
    if (sleeping)
        wake_.notify_one();
    return done;
}

log_queue::outcome log_queue::hand_over(std::string& text) noexcept
{
    if (now() == way::direct)
        return outcome::direct;
    const std::lock_guard lock(mutex_);
    switch (now()) {
    case way::direct: return outcome::direct;
    case way::nowhere: return send_at_once(text);
    case way::queued: break;
    }
    sleeping_ = false;
    wake_.notify_one();
    if (!text_.empty()) {
        lose(text);
        return outcome::dropped;
    }
    text_ = std::move(text);
    before_text_ = used_;
    pushed_ += text_.size();
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
        begin_ = 0; // what is in the processor's cache is used again
    return n;
}

// What is left of `text`, if the descriptor failed or the writer is no longer wanted.
std::string_view log_queue::write_some(std::string_view text, std::uint64_t mine, output& out) noexcept
{
    while (!text.empty() && is_present(mine)) {
        const std::size_t done = write_within(fd_, text, {look_around, look_around});
        if (done == 0 && errno != EAGAIN)
            break; // a reader that is gone, a full disk
        if (done != 0)
            out.mid_line = text[done - 1] != '\n';
        moved_.fetch_add(done, std::memory_order_relaxed);
        text.remove_prefix(done);
    }
    return text;
}

void log_queue::write_out(std::string_view text, std::uint64_t mine, output& out) noexcept
{
    if (out.skipping) { // the end of a line whose beginning failed
        const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
        out.skipping = text[end - 1] != '\n';
        out.failed += lines_in(text.substr(0, end));
        count_dropped(lines_in(text.substr(0, end)));
        text.remove_prefix(end);
    }
    if (!text.empty() && (out.broken || out.failed != 0)) {
        std::array<char, 1 + most_lost_line> before;
        before[0] = '\n';
        std::size_t size = 1;
        if (out.failed != 0)
            size += tells_(out.failed, std::span(before).subspan(1));
        const std::string_view all(before.data(), size);
        out.broken = !write_some(all.substr(out.mid_line ? 0 : 1), mine, out).empty();
        if (!out.broken)
            out.failed = 0;
    }
    if (!out.broken)
        text = write_some(text, mine, out);
    if (text.empty())
        return;
    count_dropped(lines_in(text));
    if (is_present(mine)) {
        out.failed += lines_in(text);
        out.broken = true;
        out.skipping = text.back() != '\n';
    }
}

void log_queue::run(std::uint64_t mine) noexcept
{
    std::array<char, PIPE_BUF> lines;
    std::unique_lock lock(mutex_);
    output out = output_;
    out.broken = true; // one that ran before may have been stopped in the middle
    while (is_present(mine)) {
        if (!has_work()) {
            written_.notify_all();
            sleeping_ = true;
            wake_.wait(lock, [&] { return !sleeping_ || !is_present(mine); });
            continue;
        }
        std::size_t size = 0;
        if (!text_.empty() && before_text_ == 0) {
            const std::string text = std::exchange(text_, {});
            size = text.size();
            lock.unlock();
            tail_.append(text);
            write_out(text, mine, out);
        } else {
            if (used_ == 0)
                tell_lost();
            size = take(lines);
            lock.unlock();
            tail_.append({lines.data(), size});
            write_out({lines.data(), size}, mine, out);
        }
        lock.lock();
        if (is_present(mine)) {
            done_ += size;
            written_.notify_all();
        }
    }
    if (is_present(mine + 1)) { // else nobody waits for one left behind
        output_ = out;
        has_ended_ = true;
        written_.notify_all();
    }
}

bool log_queue::wait_until_written(std::unique_lock<std::mutex>& lock, const log_patience& patience) noexcept
{
    tell_lost();
    const auto end = clock::now() + patience.total;
    for (const std::uint64_t target = pushed_;;) {
        const std::uint64_t before = moved_.load(std::memory_order_relaxed);
        if (written_.wait_until(lock, std::min(clock::now() + patience.idle, end),
                                [&] { return done_ >= target; }))
            return true;
        if (moved_.load(std::memory_order_relaxed) == before || clock::now() >= end)
            return false;
    }
}

bool log_queue::flush(const log_patience& patience) noexcept
{
    if (!is_queued())
        return true;
    std::unique_lock lock(mutex_);
    return !is_queued() || wait_until_written(lock, patience);
}

bool log_queue::stop(const log_patience& patience) noexcept
{
    if (!is_queued())
        return true;
    std::unique_lock lock(mutex_);
    const bool all = wait_until_written(lock, patience);
    if (all)
        written_.wait_for(lock, others_log_on, [&] { return !has_work() && done_ == pushed_; });
    // With the lock that was held when the last line was found written: the next one finds no queue. One that comes while this
    // waits for the writer must find at once that nobody reads.
    way_.store(all ? way::direct : way::nowhere, std::memory_order_relaxed);
    run_.fetch_add(1, std::memory_order_relaxed);
    count_dropped(lines_in(std::exchange(text_, {})));
    while (used_ != 0) {
        std::array<char, PIPE_BUF> lines;
        count_dropped(lines_in({lines.data(), take(lines)}));
    }
    done_ = pushed_;
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

void log_queue::after_fork_in_child() noexcept
{
    tail_.after_fork();
    mutex_.unlock();
    // Threads of the parent waited for these, and none of them is here. Its writer can be neither joined nor detached.
    std::construct_at(&mutex_);
    std::construct_at(&wake_);
    std::construct_at(&written_);
    std::construct_at(&thread_);
    if (is_queued())
        way_.store(way::direct, std::memory_order_relaxed);
    run_.fetch_add(1, std::memory_order_relaxed);
    text_.clear(); // what is queued is the parent's to write
    used_ = 0;
    done_ = pushed_;
    output_ = {};
    // ring_ stays until start() or the destructor replaces it. The parent's other threads may have held the allocator's locks, and an
    // allocator that mends none of them in a child (ASan's) would wait for such a lock for ever.
}

} // namespace verbena::detail
