// SPDX-License-Identifier: Apache-2.0
// Other programs that `verbena` runs.
#include "../../../services/client/program.hpp"

#include <boost/test/unit_test.hpp>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

BOOST_AUTO_TEST_SUITE(client_program_test)

using namespace verbena::cli;

namespace {

const run_options an_hour{.patience = std::chrono::hours(1)};

said shell(const std::string& script, const run_options& how = an_hour)
{
    return run_program({"sh", "-c", script}, how);
}

} // namespace

BOOST_AUTO_TEST_CASE(what_a_program_says_is_heard)
{
    const said told = shell("echo out; echo err >&2; exit 3");
    BOOST_TEST((told.failed == 0 && told.status == 3 && !told.is_good()));
    BOOST_TEST(told.output == "out\n");
    BOOST_TEST(told.errors == "err\n");
    BOOST_TEST(shell("kill -9 $$").status == 128 + SIGKILL);
    BOOST_TEST(shell("pwd", {.patience = std::chrono::hours(1), .directory = "/"}).output == "/\n");
    const said both =
        shell("echo out; echo err >&2", {.patience = std::chrono::hours(1), .errors_with_output = true});
    BOOST_TEST((both.is_good() && both.output == "out\nerr\n" && both.errors.empty()));
    BOOST_TEST(run_program({"/nonexistent/program"}, an_hour).failed == ENOENT);
}

namespace {

std::string came; // a file that the signal makes

}

// A signal is no end of the program's time.
BOOST_AUTO_TEST_CASE(a_signal_ends_no_waiting)
{
    came = "/tmp/verbena-signal-" + std::to_string(::getpid());
    struct sigaction before{}, makes{};
    makes.sa_handler = [](int) {
        ::close(::open(came.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    };
    BOOST_REQUIRE(::sigaction(SIGUSR1, &makes, &before) == 0);
    // Once this process sleeps, it waits for the program, which ends when the signal has come.
    const said told =
        shell("until grep -q '^State:.S' /proc/$PPID/status; do :; done; kill -USR1 $PPID; until [ -e " +
              came + " ]; do :; done; echo whole");
    ::sigaction(SIGUSR1, &before, nullptr);
    BOOST_TEST(told.is_good());
    BOOST_TEST(told.output == "whole\n");
    BOOST_TEST(::unlink(came.c_str()) == 0);
}

BOOST_AUTO_TEST_CASE(a_program_without_end_is_ended)
{
    const said silent = shell("exec sleep 1000", {.patience = std::chrono::milliseconds(1)});
    BOOST_TEST((silent.failed == ETIMEDOUT && !silent.is_good()));
    const run_options little{.patience = std::chrono::hours(1), .most = 1000};
    for (const char* script : {"exec cat /dev/zero", "exec cat /dev/zero >&2"}) {
        const said loud = shell(script, little);
        BOOST_TEST((loud.failed == 0 && loud.is_cut && !loud.is_good()));
        BOOST_TEST(loud.output.size() + loud.errors.size() == 1000u);
    }
    const said fits = shell("head -c 1000 /dev/zero", little);
    BOOST_TEST((fits.is_good() && fits.output.size() == 1000u));
}

// Its output may be open in one that it has left behind.
BOOST_AUTO_TEST_CASE(a_program_has_ended_though_its_child_goes_on)
{
    const said told = shell("sleep 1000 & echo $!");
    BOOST_TEST(told.is_good());
    const int child = std::stoi(told.output);
    BOOST_TEST(::kill(child, SIGKILL) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
