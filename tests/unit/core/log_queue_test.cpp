// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include "../../../core/log_queue.hpp"

#include <verbena/core/net/net.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <poll.h>
#include <sched.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

BOOST_AUTO_TEST_SUITE(log_queue_test)

using namespace verbena;
using namespace std::chrono_literals;
using detail::log_queue;

namespace {

constexpr log_patience none{0ms, 0ms};
constexpr log_patience long_one{60s, 60s};
constexpr std::size_t pipe_size = 4096;

/// What is written here is read by read_all(), or by nobody.
struct sink {
    explicit sink(bool pipe = true)
    {
        std::array<int, 2> ends{};
        BOOST_REQUIRE((pipe ? ::pipe2(ends.data(), O_CLOEXEC)
                            : ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data())) == 0);
        reads.reset(ends[0]);
        writes.reset(ends[1]);
        if (pipe) {
            BOOST_REQUIRE(::fcntl(writes.get(), F_SETPIPE_SZ, int(pipe_size)) == int(pipe_size));
        } else { // whatever this machine gives by default
            const int size = 65536;
            BOOST_REQUIRE(::setsockopt(writes.get(), SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
        }
    }
    /// A thread that reads until the other end is closed.
    void begin_to_read()
    {
        reader = std::thread([this] {
            std::array<char, 8192> part;
            for (ssize_t n = 0; (n = ::read(reads.get(), part.data(), part.size())) > 0;)
                text.append(part.data(), static_cast<std::size_t>(n));
        });
    }
    std::vector<std::string> end_of_reading()
    {
        writes.reset();
        reader.join();
        std::vector<std::string> lines;
        for (std::string_view rest = text; !rest.empty();) {
            const std::size_t end = rest.find('\n');
            BOOST_REQUIRE(end != std::string_view::npos);
            lines.emplace_back(rest.substr(0, end));
            rest.remove_prefix(end + 1);
        }
        return lines;
    }

    net::unique_fd reads, writes;
    std::thread reader;
    std::string text;
};

// "lost N"
std::size_t lost_line(std::uint64_t lost, std::span<char> out) noexcept
{
    constexpr std::string_view begin = "lost ";
    begin.copy(out.data(), begin.size());
    char* const end = std::to_chars(out.data() + begin.size(), out.data() + out.size(), lost).ptr;
    *end = '\n';
    return static_cast<std::size_t>(end + 1 - out.data());
}

std::shared_ptr<log_queue> make_queue(const sink& to, std::size_t size = std::size_t(1) << 20)
{
    auto made = std::make_shared<log_queue>(to.writes.get(), size, lost_line);
    made->start();
    return made;
}

// 64 bytes with its line feed.
std::string line(unsigned number)
{
    std::string text = std::to_string(number);
    return text + std::string(63 - text.size(), '.') + '\n';
}

std::string without_feed(std::string text)
{
    text.pop_back();
    return text;
}

// Where it does not hang. A busy machine may have kept it from its end.
bool writer_ends(const std::shared_ptr<log_queue>& queue)
{
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (queue.use_count() != 1) {
        if (std::chrono::steady_clock::now() > end)
            return false;
        std::this_thread::yield();
    }
    return true;
}

bool queues(log_queue& queue, std::string_view text, bool warns = false)
{
    return queue.push(text, warns) == log_queue::outcome::queued;
}

} // namespace

BOOST_AUTO_TEST_CASE(each_threads_lines_come_whole_and_in_order)
{
    constexpr unsigned threads = 4, each = 2000;
    sink to;
    to.begin_to_read();
    const auto queue = make_queue(to);
    std::vector<std::thread> all;
    for (unsigned t = 0; t < threads; ++t)
        all.emplace_back([&, t] {
            for (unsigned i = 0; i < each; ++i) // of several sizes, so that they go round the ring
                queue->push(std::to_string(t) + ' ' + std::to_string(i) + std::string(i % 50, '.') + '\n',
                            false);
        });
    for (std::thread& t : all)
        t.join();
    BOOST_TEST(queue->stop(long_one));
    BOOST_TEST(queue->dropped() == 0U);
    std::array<unsigned, threads> next{};
    for (const std::string& got : to.end_of_reading()) {
        const unsigned t = static_cast<unsigned>(got.at(0) - '0');
        BOOST_REQUIRE(t < threads);
        const unsigned i = next.at(t)++;
        BOOST_REQUIRE(got == std::to_string(t) + ' ' + std::to_string(i) + std::string(i % 50, '.'));
    }
    for (const unsigned n : next)
        BOOST_TEST(n == each);
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_dropped_counted_and_told_where_it_is_missing)
{
    for (const bool pipe : {true, false}) {
        sink to(pipe);
        const auto queue = make_queue(to, 8192);
        std::vector<std::string> expected;
        std::uint64_t lost = 0;
        for (unsigned i = 0; i < 20'000; ++i) { // beyond what a socket takes
            if (queues(*queue, line(i)))
                expected.push_back(without_feed(line(i)));
            else
                ++lost;
        }
        BOOST_TEST(lost > 0U);
        BOOST_TEST(queue->dropped() == lost);
        to.begin_to_read();
        BOOST_TEST(queue->flush(long_one));
        if (pipe) { // else nothing follows, and it is told at the end
            BOOST_TEST(queues(*queue, line(99'999)));
            expected.push_back(without_feed(line(99'999)));
        }
        BOOST_TEST(queue->stop(long_one));
        std::uint64_t told = 0;
        std::size_t at = 0;
        for (const std::string& got : to.end_of_reading()) {
            if (got.starts_with("lost ")) {
                told += std::stoull(got.substr(5));
                continue;
            }
            BOOST_REQUIRE(at < expected.size());
            BOOST_REQUIRE(got == expected[at++]);
        }
        BOOST_TEST(at == expected.size());
        BOOST_TEST(told == lost);
    }
}

BOOST_AUTO_TEST_CASE(the_end_of_the_queue_is_for_warnings)
{
    constexpr std::size_t size = 65536;
    const sink to;
    const auto queue = make_queue(to, size);
    while (queues(*queue, line(1)))
        ;
    // The writer has taken what the pipe takes, and a piece that it holds, or will: what is left is above a half.
    const std::size_t room = size / log_queue::part_for_warnings / 64;
    for (std::size_t i = 0; i < room; ++i)
        BOOST_REQUIRE(queues(*queue, line(2), true));
    BOOST_TEST(!queues(*queue, line(3)));
    unsigned more = 0;
    while (queues(*queue, line(2), true))
        ++more;
    BOOST_TEST(more <= 2 * pipe_size / 64);
    BOOST_TEST(!queue->stop(none));
}

BOOST_AUTO_TEST_CASE(a_stop_waits_for_no_reader_that_is_not_there)
{
    for (const bool pipe : {true, false}) {
        sink to(pipe);
        const auto queue = make_queue(to);
        constexpr unsigned count = 10'000;
        for (unsigned i = 0; i < count; ++i)
            BOOST_REQUIRE(queues(*queue, line(i)));
        BOOST_TEST(!queue->stop(none));
        BOOST_TEST((queue->push(line(0), true) != log_queue::outcome::direct));
        BOOST_TEST(writer_ends(queue));
        // Each line is in the pipe, or counted.
        to.begin_to_read();
        to.writes.reset();
        to.reader.join();
        const auto written = static_cast<std::uint64_t>(std::ranges::count(to.text, '\n'));
        BOOST_TEST(written + queue->dropped() == count + 1);
    }
}

BOOST_AUTO_TEST_CASE(a_writer_that_hangs_in_its_write_is_left_behind)
{
    constexpr std::string_view number =
        "1234567\n"; // as bytes of a number, of which an eventfd's counter takes 25
    std::weak_ptr<log_queue> still;
    net::unique_fd hangs;
    do { // until the writer hung, and was not merely on its way
        // It is writable by its own account, and blocks for a number that is too large for its counter.
        hangs.reset(::eventfd(0, EFD_CLOEXEC));
        BOOST_REQUIRE(hangs.get() >= 0);
        auto queue = std::make_shared<log_queue>(hangs.get(), 4096, lost_line);
        queue->start();
        for (int i = 0; i < 25; ++i) {
            BOOST_REQUIRE(queues(*queue, number));
            BOOST_REQUIRE(queue->flush(long_one));
        }
        BOOST_REQUIRE(queues(*queue, number));
        // Who logs while the stop still waits for the writer waits for nobody either.
        log_queue::outcome meanwhile = log_queue::outcome::queued;
        std::thread other([&] {
            while (queue->is_queued())
                std::this_thread::yield();
            meanwhile = queue->push(number, true);
        });
        BOOST_TEST(!queue->stop({20ms, 20ms}));
        other.join();
        BOOST_TEST((meanwhile == log_queue::outcome::dropped));
        still = queue;
    } while (still.expired()); // else the thread has it
    std::uint64_t value = 0;
    BOOST_TEST(::read(hangs.get(), &value, sizeof value) == ssize_t(sizeof value));
    while (!still.expired())
        std::this_thread::yield();
}

BOOST_AUTO_TEST_CASE(the_writer_takes_no_signal_and_no_cpu_of_a_pinned_shard)
{
    cpu_set_t ours, its;
    BOOST_REQUIRE(::sched_getaffinity(0, sizeof ours, &ours) == 0);
    sink to;
    to.begin_to_read();
    for (const unsigned pinned : {0U, 1U, unsigned(CPU_COUNT(&ours))}) {
        const auto queue = std::make_shared<log_queue>(to.writes.get(), 4096, lost_line);
        queue->start();
        queue->keep_off(pinned); // as whoever comes second says
        queue->keep_off(0);
        BOOST_REQUIRE(queues(*queue, "line\n"));
        BOOST_REQUIRE(queue->flush(long_one)); // it runs
        int found = 0;
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
            std::string name;
            std::ifstream(task.path() / "comm") >> name;
            if (name != "log")
                continue;
            ++found;
            BOOST_REQUIRE(::sched_getaffinity(std::stoi(task.path().filename().string()), sizeof its, &its) ==
                          0);
            std::ifstream status(task.path() / "status");
            std::string word, blocked;
            while (status >> word && word != "SigBlk:")
                ;
            status >> blocked;
            BOOST_TEST((std::stoull(blocked, nullptr, 16) >> (SIGTERM - 1) & 1) == 1U);
        }
        BOOST_REQUIRE(found == 1);
        // Where shards have all CPUs, it has them as well.
        const unsigned kept_off = pinned < unsigned(CPU_COUNT(&ours)) ? pinned : 0;
        BOOST_TEST(unsigned(CPU_COUNT(&its)) == unsigned(CPU_COUNT(&ours)) - kept_off);
        BOOST_TEST(queue->stop(long_one));
    }
    to.end_of_reading();
}

BOOST_AUTO_TEST_CASE(a_queue_may_run_again)
{
    sink to;
    const auto queue = make_queue(to, 65536); // of which a pipe takes a part
    while (queues(*queue, line(1)))
        ;
    BOOST_TEST(!queue->stop(none));
    to.begin_to_read();
    queue->start();
    BOOST_TEST(queues(*queue, "again\n"));
    BOOST_TEST(queue->stop(long_one));
    BOOST_TEST(to.end_of_reading().back() == "again");
}

BOOST_AUTO_TEST_CASE(a_loss_is_told_also_if_nothing_follows_and_nobody_waits)
{
    const sink to;
    const auto queue = make_queue(to, 65536);
    while (queues(*queue, line(1)))
        ;
    std::string text;
    std::array<char, pipe_size> part;
    pollfd readable{to.reads.get(), POLLIN, 0};
    while (text.find("lost 1\n") == std::string::npos && ::poll(&readable, 1, 10'000) == 1)
        text.append(part.data(), static_cast<std::size_t>(::read(to.reads.get(), part.data(), part.size())));
    BOOST_TEST(text.ends_with("\nlost 1\n"));
    queue->stop(none);
}

// The ring is never empty here: lines of another thread come whenever some were read.
BOOST_AUTO_TEST_CASE(who_waits_waits_for_lines_that_were_there_before)
{
    const sink to;
    const auto queue = make_queue(to, 65536);
    while (queues(*queue, line(0), true))
        ;
    BOOST_REQUIRE(::fcntl(to.reads.get(), F_SETFL, O_NONBLOCK) == 0);
    std::thread others([&] {
        std::array<char, pipe_size> part;
        while (queue->is_queued()) {
            while (queues(*queue, line(1), true))
                ;
            [[maybe_unused]] const ssize_t n = ::read(to.reads.get(), part.data(), part.size());
        }
    });
    const bool flushed = queue->flush({10s, 10s});
    const bool stopped = queue->stop(flushed ? log_patience{10s, 10s} : none);
    others.join();
    BOOST_TEST(flushed);
    BOOST_TEST(stopped);
}

BOOST_AUTO_TEST_CASE(a_socket_gets_whole_lines_also_behind_a_stop_that_left_some)
{
    sink to(false);
    const auto queue = make_queue(to);
    std::string text = std::string(3 << 20, 'x') + '\n';
    BOOST_TEST((queue->hand_over(text) == log_queue::outcome::queued));
    BOOST_TEST(!queue->stop({20ms, 20ms}));
    BOOST_TEST(writer_ends(queue));
    BOOST_TEST((queue->push("nobody reads\n", true) == log_queue::outcome::dropped));
    BOOST_TEST(queue->dropped() == 2U);
    to.begin_to_read();
    while (queue->push("again\n", true) != log_queue::outcome::queued)
        std::this_thread::yield();
    BOOST_TEST(to.end_of_reading().back() == "again");
}

BOOST_AUTO_TEST_CASE(a_text_that_is_refused_is_told)
{
    sink to;
    const auto queue = make_queue(to);
    log_queue::outcome done;
    do {
        std::string text(1 << 16, '\n');
        done = queue->hand_over(text);
    } while (done == log_queue::outcome::queued);
    to.begin_to_read();
    BOOST_TEST(queue->stop(long_one));
    BOOST_TEST(to.end_of_reading().back() == "lost 65536");
}

BOOST_AUTO_TEST_CASE(a_reader_that_is_gone_costs_the_lines_and_no_signal)
{
    sink to;
    to.reads.reset();
    const auto queue = make_queue(to);
    for (unsigned i = 0; i < 100; ++i)
        BOOST_TEST(queues(*queue, line(i)));
    BOOST_TEST(queue->stop(long_one));
    BOOST_TEST(queue->dropped() == 100U);
}

BOOST_AUTO_TEST_CASE(a_long_text_stands_among_the_lines_and_waits_alone)
{
    const std::string much = std::string(3 << 20, 'x') + '\n';
    sink to;
    const auto queue = make_queue(to);
    BOOST_TEST(queues(*queue, "before\n"));
    BOOST_TEST(queue->flush(long_one)); // in the pipe
    std::string text = much;
    BOOST_TEST((queue->hand_over(text) == log_queue::outcome::queued));
    // The writer has the first at some time, one waits, and there are no more.
    unsigned taken = 1;
    do {
        text = much;
        taken += queue->hand_over(text) == log_queue::outcome::queued ? 1 : 0;
    } while (taken < 2);
    text = much;
    BOOST_TEST((queue->hand_over(text) == log_queue::outcome::dropped));
    BOOST_TEST(queue->dropped() > 0U);
    BOOST_TEST(queues(*queue, "behind\n"));
    to.begin_to_read();
    BOOST_TEST(queue->stop(long_one));
    const auto lines = to.end_of_reading();
    BOOST_REQUIRE(lines.size() == 5U);
    BOOST_TEST(lines[0] == "before");
    BOOST_TEST(lines[1].size() == much.size() - 1);
    BOOST_TEST(lines[2].size() == much.size() - 1);
    BOOST_TEST(lines[3].starts_with("lost "));
    BOOST_TEST(lines[4] == "behind");
}

// A write() of more than there is room for in a pipe would wait until all of it is read.
BOOST_AUTO_TEST_CASE(a_stop_ends_a_long_text_that_nobody_reads)
{
    const sink to;
    const auto queue = make_queue(to);
    std::string text(1 << 20, '\n');
    BOOST_TEST((queue->hand_over(text) == log_queue::outcome::queued));
    BOOST_TEST(!queue->stop({20ms, 20ms}));
    BOOST_TEST(writer_ends(queue));
    int unread = 0;
    BOOST_TEST(::ioctl(to.reads.get(), FIONREAD, &unread) == 0);
    BOOST_TEST(static_cast<std::uint64_t>(unread) + queue->dropped() == std::uint64_t(1 << 20));
}

BOOST_AUTO_TEST_CASE(a_line_longer_than_a_write_comes_whole)
{
    sink to;
    const auto queue = make_queue(to);
    const std::string line = std::string(20'000, 'x') + '\n';
    BOOST_TEST(queues(*queue, "before\n"));
    BOOST_TEST(queues(*queue, line));
    BOOST_TEST(queues(*queue, "behind\n"));
    to.begin_to_read();
    BOOST_TEST(queue->stop(long_one));
    BOOST_TEST(to.end_of_reading() == (std::vector<std::string>{"before", without_feed(line), "behind"}));
}

BOOST_AUTO_TEST_CASE(the_last_lines_are_kept_whether_they_could_be_written_or_not)
{
    sink to;
    to.begin_to_read();
    const auto queue = make_queue(to);
    BOOST_TEST(queue->last_lines() == "");
    std::string all;
    for (unsigned i = 0; i < 3; ++i) {
        (void)queue->push(line(i), false);
        all += line(i);
    }
    std::string text = "handed over\n";
    all += text;
    (void)queue->hand_over(text);
    BOOST_TEST(queue->flush(long_one));
    BOOST_TEST(queue->last_lines() == all);
    BOOST_TEST(queue->stop(long_one));
    BOOST_TEST(queue->last_lines() == all);
    to.end_of_reading();
}

BOOST_AUTO_TEST_CASE(of_more_lines_than_are_kept_the_last_whole_ones_are_there)
{
    detail::log_tail tail(100);
    tail.append("before it has memory\n");
    BOOST_TEST(tail.lines() == "");
    tail.prepare();
    for (int i = 0; i < 30; ++i)
        tail.append("line " + std::to_string(i) + '\n');
    BOOST_TEST(tail.lines() ==
               "line 18\nline 19\nline 20\nline 21\nline 22\nline 23\nline 24\nline 25\nline 26\n"
               "line 27\nline 28\nline 29\n");
    tail.append(std::string(250, 'x') + "\nlast\n");
    BOOST_TEST(tail.lines() == "last\n");
}

BOOST_AUTO_TEST_SUITE_END()
