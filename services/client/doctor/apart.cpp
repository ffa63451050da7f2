// SPDX-License-Identifier: Apache-2.0
#include "apart.hpp"

#include "../commands.hpp"

#include <verbena/core/unique_fd.hpp>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace verbena::cli {

namespace {

// In the process that was made.
[[noreturn]] void tell_and_end(const std::function<int(bool& is_late)>& f, int to)
{
    bool is_late = false;
    const int code = f(is_late);
    const std::array<unsigned char, 2> said = {static_cast<unsigned char>(code), is_late};
    (void)!::write(to, said.data(), said.size());
    if (!is_late)
        std::exit(code);
    // Who reads the output waits for its end, too.
    const unique_fd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        (void)::dup2(nothing.get(), fd);
    std::_Exit(code);
}

} // namespace

int run_apart(const std::function<int(bool& is_late)>& f)
{
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
        return complain("cannot start: " + std::generic_category().message(errno), exit_failed);
    const unique_fd from(ends[0]);
    unique_fd to(ends[1]);
    const pid_t child = ::fork();
    if (child < 0)
        return complain("cannot start: " + std::generic_category().message(errno), exit_failed);
    if (child == 0)
        tell_and_end(f, to.get());
    to.reset();
    std::array<unsigned char, 2> said{};
    ssize_t n = 0;
    do
        n = ::read(from.get(), said.data(), said.size());
    while (n < 0 && errno == EINTR);
    const bool has_said = n == ssize_t(said.size());
    if (has_said && said[1] != 0)
        return said[0];
    int status = 0;
    pid_t ended = 0;
    do
        ended = ::waitpid(child, &status, 0);
    while (ended < 0 && errno == EINTR);
    // Where nobody keeps the status of a child, what it said counts; else one that said nothing has failed.
    if (ended != child)
        return has_said ? int(said[0]) : int(exit_failed);
    return WIFEXITED(status) ? WEXITSTATUS(status) : exit_failed;
}

} // namespace verbena::cli
