// SPDX-License-Identifier: Apache-2.0
// The log of a process with a queue: each in a child, whose standard error is a pipe.
#include <boost/test/unit_test.hpp>

#include "../../../core/last_words.hpp"
#include "../../../core/log_sink.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/queued_log.hpp>

#include <array>
#include <csignal>
#include <fcntl.h>
#include <functional>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(queued_log_test)

using namespace verbena;

namespace {

struct ended {
    int status = 0;
    std::string said;
};

/// A child that runs `f`. If nobody `reads`, then what is in the pipe when it has ended is what it said.
ended run_child(bool reads, const std::function<void()>& f)
{
    std::array<int, 2> ends{};
    BOOST_REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    const net::unique_fd from(ends[0]);
    net::unique_fd to(ends[1]);
    const pid_t child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child == 0) {
        const rlimit none{0, 0};
        ::setrlimit(RLIMIT_CORE, &none);
        std::signal(SIGABRT, SIG_DFL); // Boost.Test has a handler
        std::signal(SIGALRM, SIG_DFL);
        ::alarm(60); // what hangs is a failure
        ::dup2(to.get(), STDERR_FILENO);
        set_log_level(log_level::info);
        f();
        ::_exit(0);
    }
    to.reset();
    ended result;
    const auto take_all = [&] {
        std::array<char, 4096> part;
        for (ssize_t n = 0; (n = ::read(from.get(), part.data(), part.size())) > 0;)
            result.said.append(part.data(), static_cast<std::size_t>(n));
    };
    if (reads)
        take_all();
    BOOST_REQUIRE(::waitpid(child, &result.status, 0) == child);
    if (!reads)
        take_all();
    return result;
}

bool says(const ended& e, std::string_view text)
{
    BOOST_TEST_MESSAGE(e.said);
    return e.said.find(text) != std::string::npos;
}

} // namespace

BOOST_AUTO_TEST_CASE(what_is_logged_until_the_end_is_written)
{
    const ended done = run_child(true, [] {
        log(log_level::info, "test", "before");
        {
            const queued_log outer;
            {
                const queued_log inner;
                log(log_level::info, "test", "first", {{"number", 1}});
            }
            log(log_level::info, "test", "second");
        }
        log(log_level::info, "test", "behind");
        if (dropped_log_lines() != 0)
            ::_exit(1);
    });
    BOOST_TEST(done.status == 0);
    const std::size_t before = done.said.find("Z info test: before\n");
    const std::size_t first = done.said.find("Z info test: first number=1\n");
    const std::size_t second = done.said.find("Z info test: second\n");
    const std::size_t behind = done.said.find("Z info test: behind\n");
    BOOST_TEST_MESSAGE(done.said);
    BOOST_TEST((before < first && first < second && second < behind && behind != std::string::npos));
}

BOOST_AUTO_TEST_CASE(a_standard_error_that_nobody_reads_keeps_no_process)
{
    const ended done = run_child(false, [] {
        {
            const queued_log queue;
            for (int i = 0; i < 20'000; ++i)
                log(log_level::info, "test",
                    "nobody reads this line, of which there are more than the queue takes", {{"number", i}});
            if (dropped_log_lines() == 0)
                ::_exit(1);
        }
        // Nor does it wait for what it says later.
        const std::uint64_t dropped = dropped_log_lines();
        for (int i = 0; i < 2'000; ++i)
            log(log_level::error, "test", "nobody reads this line either, which is for nobody");
        if (dropped_log_lines() <= dropped)
            ::_exit(2);
    });
    BOOST_TEST(WIFEXITED(done.status));
    BOOST_TEST(WEXITSTATUS(done.status) == 0);
    BOOST_TEST(says(done, " number=0\n"));
}

BOOST_AUTO_TEST_CASE(what_was_logged_before_an_abort_is_seen)
{
    const ended done = run_child(true, [] {
        const queued_log queue;
        for (int i = 0; i < 2'000; ++i)
            log(log_level::error, "test", "line", {{"number", i}});
        detail::write_last_words("the end\n");
        std::abort();
    });
    BOOST_TEST(WIFSIGNALED(done.status));
    BOOST_TEST(WTERMSIG(done.status) == SIGABRT);
    BOOST_TEST(says(done, " number=1999\nthe end\n"));
}

BOOST_AUTO_TEST_CASE(an_abort_waits_for_no_reader_that_is_not_there)
{
    const ended done = run_child(false, [] {
        const queued_log queue;
        for (int i = 0; i < 20'000; ++i)
            log(log_level::error, "test",
                "nobody reads this line, of which there are more than the queue takes");
        detail::write_last_words("the end\n");
        std::abort();
    });
    BOOST_TEST(WIFSIGNALED(done.status));
    BOOST_TEST(WTERMSIG(done.status) == SIGABRT);
}

BOOST_AUTO_TEST_CASE(a_child_of_a_process_with_a_queue_writes_by_itself)
{
    std::optional<queued_log> queue(std::in_place);
    const ended done = run_child(true, [&] {
        log(log_level::info, "test", "of the child");
        queue.reset();
        log(log_level::info, "test", "without it");
    });
    BOOST_TEST(done.status == 0);
    BOOST_TEST(says(done, "Z info test: of the child\n"));
    BOOST_TEST(says(done, "Z info test: without it\n"));
}

BOOST_AUTO_TEST_CASE(lines_for_people_stand_in_their_place)
{
    const ended done = run_child(true, [] {
        const queued_log queue;
        log(log_level::info, "test", "before");
        if (!write_to_log(log_level::info, "one\ntwo\n") ||
            !write_to_log(log_level::info, std::string(100'000, 'x') + '\n'))
            ::_exit(1);
    });
    BOOST_TEST(done.status == 0);
    BOOST_TEST(says(done, "Z info test: before\n"));
    BOOST_TEST(says(done, "\none\ntwo\n"));
    BOOST_TEST(says(done, "\n" + std::string(100'000, 'x') + "\n"));
}

// systemd.exec(5), sd-daemon(3)
BOOST_AUTO_TEST_CASE(the_journal_is_told_the_priority_and_has_times_of_its_own)
{
    const ended done = run_child(true, [] {
        struct stat status{};
        ::fstat(STDERR_FILENO, &status);
        ::setenv("JOURNAL_STREAM",
                 (std::to_string(status.st_dev) + ':' + std::to_string(status.st_ino)).c_str(), 1);
        set_log_level(log_level::trace);
        for (const log_level level :
             {log_level::trace, log_level::debug, log_level::info, log_level::warning, log_level::error})
            log(level, "test", "line");
        write_to_log(log_level::error, "one\ntwo\n");
    });
    BOOST_TEST(done.said ==
               "<7>trace test: line\n<7>debug test: line\n<6>info test: line\n<4>warning test: line\n"
               "<3>error test: line\n<3>one\n<3>two\n");
}

BOOST_AUTO_TEST_CASE(a_stream_is_the_journals_if_it_is_the_one_that_it_told)
{
    std::array<int, 2> ends{};
    BOOST_REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    const net::unique_fd reads(ends[0]), writes(ends[1]);
    struct stat status{};
    BOOST_REQUIRE(::fstat(writes.get(), &status) == 0);
    const std::string device = std::to_string(status.st_dev), inode = std::to_string(status.st_ino);
    const auto is = [&](const std::string& told) { return detail::is_stream(writes.get(), told.c_str()); };
    BOOST_TEST(is(device + ':' + inode));
    BOOST_TEST(!is(device + ':' + std::to_string(status.st_ino + 1)));
    BOOST_TEST(!is(std::to_string(status.st_dev + 1) + ':' + inode));
    BOOST_TEST(!is(device + ':' + inode + ' '));
    for (const std::string text : {"", ":", "x", "1", "1:", "1 2", "99999999999999999999999999:1"})
        BOOST_TEST(!is(text));
    BOOST_TEST(!detail::is_stream(writes.get(), nullptr));
    BOOST_TEST(!detail::is_stream(-1, "1:2"));
}

BOOST_AUTO_TEST_SUITE_END()
