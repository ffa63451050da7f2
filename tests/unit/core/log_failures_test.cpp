// SPDX-License-Identifier: Apache-2.0
// The log on a descriptor that fails: a program of its own, whose poll() and write() do as they are told.
#include <boost/test/unit_test.hpp>

#include "../../../core/log_queue.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <fcntl.h>
#include <memory>
#include <poll.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

/// What a write() to the descriptor does: it takes so many bytes at most, or fails. Behind the last it takes all.
struct step {
    std::size_t takes = 0;
    int fails = 0;
};

// The writer alone uses these while there is one.
std::atomic<int> scripted{-1};
std::deque<step> steps;
std::string written;
std::atomic<unsigned> interrupts{0};
std::atomic<bool> polled{false};
std::atomic<unsigned> blind{0}; // calls of write() that no successful poll() came before

} // namespace

extern "C" ssize_t write(int fd, const void* data, std::size_t size)
{
    if (fd != scripted)
        return ::syscall(SYS_write, fd, data, size);
    if (!polled.exchange(false))
        ++blind;
    const step now = steps.empty() ? step{size, 0} : steps.front();
    if (!steps.empty())
        steps.pop_front();
    if (now.fails != 0) {
        errno = now.fails;
        return -1;
    }
    const std::size_t taken = std::min(size, now.takes);
    written.append(static_cast<const char*>(data), taken);
    return static_cast<ssize_t>(taken);
}

// Not by the name that glibc declares, as a function which only writes to the list: g++ 12 believes that.
extern "C" int poll_by_script(pollfd* all, nfds_t count, int timeout) asm("poll");
int poll_by_script(pollfd* all, nfds_t count, int timeout)
{
    if (count != 1 || all->fd != scripted) {
        const timespec limit{timeout / 1000, timeout % 1000 * 1'000'000L};
        return static_cast<int>(::syscall(SYS_ppoll, all, count, timeout < 0 ? nullptr : &limit, nullptr, 0));
    }
    if (interrupts != 0) {
        --interrupts;
        errno = EINTR;
        return -1;
    }
    polled = true;
    all->revents = POLLOUT;
    return 1;
}

BOOST_AUTO_TEST_SUITE(log_failures_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

constexpr log_patience long_one{60s, 60s};

// "lost N"
std::size_t tell(std::uint64_t lost, std::span<char> out) noexcept
{
    constexpr std::string_view begin = "lost ";
    begin.copy(out.data(), begin.size());
    char* const end = std::to_chars(out.data() + begin.size(), out.data() + out.size(), lost).ptr;
    *end = '\n';
    return static_cast<std::size_t>(end + 1 - out.data());
}

/// A queue whose descriptor does what `of` says. Each of `lines` is written, or not, before the next comes.
std::string said(std::deque<step> of, std::initializer_list<std::string> lines, std::uint64_t dropped)
{
    const int fd = ::open("/dev/null", O_WRONLY | O_CLOEXEC); // no socket
    steps = std::move(of);
    written.clear();
    blind = 0;
    scripted = fd;
    const auto queue = std::make_shared<detail::log_queue>(fd, 65536, tell);
    queue->start();
    for (const std::string& line : lines) {
        BOOST_TEST((queue->push(line, false) == detail::log_queue::outcome::queued));
        BOOST_TEST(queue->flush(long_one));
    }
    BOOST_TEST(queue->stop(long_one));
    scripted = -1;
    ::close(fd);
    BOOST_TEST(queue->dropped() == dropped);
    BOOST_TEST(blind == 0U);
    return written;
}

} // namespace

BOOST_AUTO_TEST_CASE(lines_that_a_full_disk_refuses_are_told_once_there_is_room)
{
    const step full{0, ENOSPC};
    BOOST_TEST(said({full, full}, {"one\n", "two\n", "three\n"}, 2) == "lost 2\nthree\n");
}

BOOST_AUTO_TEST_CASE(no_line_is_glued_to_a_torn_one)
{
    const step full{0, ENOSPC};
    BOOST_TEST(said({{2, 0}, full, full}, {"one\n", "two\n"}, 1) == "on\nlost 1\ntwo\n");
}

BOOST_AUTO_TEST_CASE(a_line_that_tells_of_failures_may_fail_itself)
{
    const step full{0, ENOSPC};
    BOOST_TEST(said({full, {3, 0}, full, full}, {"one\n", "two\n", "three\n"}, 2) == "los\nlost 2\nthree\n");
}

BOOST_AUTO_TEST_CASE(of_a_long_line_whose_beginning_failed_no_end_is_written)
{
    BOOST_TEST(said({{0, ENOSPC}}, {std::string(10'000, 'x') + '\n', "two\n"}, 1) == "lost 1\ntwo\n");
}

BOOST_AUTO_TEST_CASE(a_poll_that_a_signal_interrupts_allows_no_write)
{
    interrupts = 3;
    BOOST_TEST(said({}, {"one\n"}, 0) == "one\n");
    BOOST_TEST(interrupts == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
