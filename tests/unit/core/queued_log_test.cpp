// SPDX-License-Identifier: Apache-2.0
// The log of a process with a queue: each in a child, whose standard error is a pipe.
#include <boost/test/unit_test.hpp>

#include "../../../core/last_words.hpp"
#include "../../../core/log_sink.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/queued_log.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sched.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

// ThreadSanitizer ends a child that starts a thread, unless it is told that the child knows of no others.
extern "C" const char* __tsan_default_options(); // NOLINT
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

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
        ::alarm(15); // what hangs is a failure
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

// The first case, since the log asks once in a process to be told of its exit().
BOOST_AUTO_TEST_CASE(what_was_logged_before_an_exit_is_seen)
{
    const ended done = run_child(true, [] {
        std::atexit([] { ::_exit(0); }); // comes behind the log's, and before those of this program
        const queued_log queue;          // which exit() does not destroy
        for (int i = 0; i < 2'000; ++i)
            log(log_level::error, "test", "line", {{"number", i}});
        std::exit(1);
    });
    BOOST_TEST(done.status == 0);
    BOOST_TEST(says(done, " number=1999\n"));
}

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

BOOST_AUTO_TEST_CASE(the_writer_leaves_cpus_to_who_comes_second)
{
    cpu_set_t ours;
    BOOST_REQUIRE(::sched_getaffinity(0, sizeof ours, &ours) == 0);
    const int left = std::max(CPU_COUNT(&ours) - 1, 1);
    const ended done = run_child(true, [&] {
        const queued_log embedder;
        const queued_log service(1);
        log(log_level::info, "test", "line");
        flush_log(); // it runs, and has its name
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
            std::string name;
            std::ifstream(task.path() / "comm") >> name;
            cpu_set_t its;
            if (name == "log" &&
                ::sched_getaffinity(std::stoi(task.path().filename().string()), sizeof its, &its) == 0)
                ::_exit(CPU_COUNT(&its) == left ? 0 : 1);
        }
        ::_exit(2);
    });
    BOOST_TEST(done.status == 0);
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

/// The standard error as the journal's, of which $JOURNAL_STREAM tells.
void become_journal()
{
    struct stat status{};
    ::fstat(STDERR_FILENO, &status);
    ::setenv("JOURNAL_STREAM", (std::to_string(status.st_dev) + ':' + std::to_string(status.st_ino)).c_str(),
             1);
}

/// A standard error that is writable by its own account and blocks for ever, with the writer of the log in it.
void hang_writer()
{
    ::dup2(::eventfd(0, EFD_CLOEXEC), STDERR_FILENO);
    for (int i = 0; i < 25; ++i) { // lines of eight bytes are numbers, of which the counter takes so many
        write_to_log(log_level::error, "1234567\n");
        flush_log();
    }
    write_to_log(log_level::error, "1234567\n");
}

BOOST_AUTO_TEST_CASE(an_abort_comes_also_where_the_standard_error_hangs)
{
    const ended done = run_child(true, [] {
        const queued_log queue;
        hang_writer();
        detail::write_last_words("the end\n"); // another such number
        std::abort();
    });
    BOOST_TEST(WIFSIGNALED(done.status));
    BOOST_TEST(WTERMSIG(done.status) == SIGABRT);
}

BOOST_AUTO_TEST_CASE(lines_behind_an_end_that_hung_keep_nobody)
{
    const ended done = run_child(true, [] {
        {
            const queued_log queue;
            hang_writer();
        }
        write_to_log(log_level::error, "1234567\n");
        detail::write_last_words("the end\n");
        if (dropped_log_lines() != 2)
            ::_exit(1);
    });
    BOOST_TEST(done.status == 0);
}

BOOST_AUTO_TEST_CASE(the_journal_hears_last_words_as_errors)
{
    for (const bool queued : {true, false}) {
        const ended done = run_child(true, [queued] {
            become_journal();
            std::optional<queued_log> queue;
            if (queued)
                queue.emplace();
            log(log_level::info, "test", "line");
            detail::write_last_words("one\ntwo\n" + std::string(5000, 'x'));
            std::abort();
        });
        BOOST_TEST(WTERMSIG(done.status) == SIGABRT);
        BOOST_TEST(done.said.starts_with("<6>info test: line\n<3>one\n<3>two\n<3>xxx"), done.said);
        BOOST_TEST(done.said.ends_with("x\n"), done.said);
    }
}

BOOST_AUTO_TEST_CASE(what_was_logged_before_a_terminate_is_seen)
{
    const ended done = run_child(true, [] {
        const queued_log queue;
        for (int i = 0; i < 2'000; ++i)
            log(log_level::error, "test", "line", {{"number", i}});
        std::terminate();
    });
    BOOST_TEST(WTERMSIG(done.status) == SIGABRT);
    BOOST_TEST(says(done, " number=1999\n"));
}

// As daemon(3) makes one, in which a service then starts.
BOOST_AUTO_TEST_CASE(a_child_may_have_a_queue_of_its_own_beside_its_parents)
{
    const ended done = run_child(false, [] {
        const queued_log outer;
        log(log_level::info, "test", "of the parent");
        flush_log();
        const pid_t child = ::fork();
        if (child == 0) {
            {
                const queued_log inner;
                for (int i = 0; i < 20'000; ++i)
                    log(log_level::info, "test",
                        "nobody reads this line, of which there are more than the queue takes");
            }
            ::_exit(dropped_log_lines() != 0 ? 0 : 1);
        }
        int status = -1;
        ::waitpid(child, &status, 0);
        ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
    });
    BOOST_TEST(done.status == 0);
}

BOOST_AUTO_TEST_CASE(a_child_may_end_its_parents_queue_and_begin_another)
{
    std::optional<queued_log> queue(std::in_place);
    const ended done = run_child(true, [&] {
        queue.reset();
        queue.emplace();
        log(log_level::info, "test", "of the child");
        queue.reset();
    });
    BOOST_TEST(done.status == 0);
    BOOST_TEST(says(done, "Z info test: of the child\n"));
}

BOOST_AUTO_TEST_CASE(a_child_may_log_whatever_other_threads_did_when_it_was_made)
{
    const ended done = run_child(true, [] {
        const queued_log queue;
        std::atomic<bool> ends{false};
        std::thread other([&] {
            while (!ends)
                log(log_level::info, "test", "of the parent");
        });
        int failed = 0;
        for (int i = 0; i < 100; ++i) {
            const pid_t child = ::fork();
            if (child == 0) {
                ::alarm(100); // for one that hangs
                log(log_level::info, "test", "of the child");
                ::_exit(0);
            }
            int status = -1;
            ::waitpid(child, &status, 0);
            failed += status == 0 ? 0 : 1;
            if (failed != 0)
                break;
        }
        ends = true;
        other.join();
        if (failed != 0)
            ::_exit(1);
    });
    BOOST_TEST(done.status == 0);
}

// systemd.exec(5), sd-daemon(3)
BOOST_AUTO_TEST_CASE(the_journal_is_told_the_priority_and_has_times_of_its_own)
{
    const ended done = run_child(true, [] {
        become_journal();
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
