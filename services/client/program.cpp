// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <verbena/core/unique_fd.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace verbena::cli {

namespace {

using clock = std::chrono::steady_clock;

/// One output of a program, as far as it is read.
struct program_output {
    unique_fd from;
    std::string* to = nullptr;

    /// What is there now. False once more than `most` bytes came.
    bool take(std::size_t most)
    {
        while (from) {
            char some[65536];
            const ssize_t n = ::read(from.get(), some, std::min(sizeof some, most - to->size() + 1));
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0 && errno == EAGAIN)
                return true;
            if (n <= 0) {
                from.reset();
                return true;
            }
            to->append(some, static_cast<std::size_t>(n));
            if (to->size() > most) {
                to->resize(most);
                return false;
            }
        }
        return true;
    }
};

// Its own end of a pipe of which a program gets the other one.
bool open_pipe(program_output& mine, unique_fd& its)
{
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
        return false;
    mine.from.reset(ends[0]);
    its.reset(ends[1]);
    return ::fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
}

// Reads until the program has ended, has said too much, or its time is over. False: it must be killed.
bool hear(program_output (&from)[2], int process, clock::time_point until, std::size_t most, said& out)
{
    for (;;) {
        // Who ended may have left a child that keeps its end of a pipe open.
        pollfd fds[] = {
            {process, POLLIN, 0}, {from[0].from.get(), POLLIN, 0}, {from[1].from.get(), POLLIN, 0}};
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now());
        const int ready = left.count() <= 0 ? 0 : ::poll(fds, 3, static_cast<int>(left.count()));
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0) {
            out.failed = ready < 0 ? errno : ETIMEDOUT;
            return false;
        }
        if (!from[0].take(most) || !from[1].take(most)) {
            out.is_cut = true;
            return false;
        }
        if (fds[0].revents != 0 || (process < 0 && !from[0].from && !from[1].from))
            return true;
    }
}

// One that hangs in the kernel does not end when it is killed: nobody waits for it without end.
pid_t wait_a_while(pid_t child, int& status)
{
    for (int i = 0; i < 100; ++i) {
        const pid_t ended = ::waitpid(child, &status, WNOHANG);
        if (ended != 0 && !(ended < 0 && errno == EINTR))
            return ended;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return 0;
}

} // namespace

said run_program(std::vector<std::string> words, const run_options& how)
{
    said out;
    program_output from[2];
    unique_fd its[2];
    from[0].to = &out.output;
    from[1].to = &out.errors;
    if (!open_pipe(from[0], its[0]) || (!how.errors_with_output && !open_pipe(from[1], its[1]))) {
        out.failed = errno;
        return out;
    }
    std::vector<char*> arguments;
    for (std::string& word : words)
        arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, its[0].get(), 1);
    ::posix_spawn_file_actions_adddup2(&actions, (how.errors_with_output ? its[0] : its[1]).get(), 2);
    if (!how.directory.empty())
        ::posix_spawn_file_actions_addchdir_np(&actions, how.directory.c_str());
    pid_t child = 0;
    out.failed = ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    its[0].reset();
    its[1].reset();
    if (out.failed != 0)
        return out;
    const unique_fd process(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
    if (!hear(from, process.get(), clock::now() + how.patience, how.most, out))
        ::kill(child, SIGKILL);
    int status = 0;
    const pid_t ended = wait_a_while(child, status);
    if (out.failed != 0 || out.is_cut)
        return out;
    if (ended != child) { // and so nobody knows whether it did well
        out.failed = ended < 0 ? errno : ETIMEDOUT;
        return out;
    }
    out.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return out;
}

std::string program_beside(const std::string& name)
{
    std::error_code failed;
    const auto own = std::filesystem::read_symlink("/proc/self/exe", failed);
    if (!failed) {
        const auto beside = own.parent_path() / name;
        if (::access(beside.c_str(), X_OK) == 0)
            return beside.string();
    }
    return name;
}

} // namespace verbena::cli
