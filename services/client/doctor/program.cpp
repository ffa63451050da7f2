// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <verbena/core/unique_fd.hpp>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace verbena::cli {

namespace {

constexpr std::size_t most_said = std::size_t(4) << 20;

std::string contents_of(int fd)
{
    std::string text(most_said, '\0');
    std::size_t size = 0;
    while (size < text.size()) {
        const ssize_t n = ::pread(fd, text.data() + size, text.size() - size, static_cast<off_t>(size));
        if (n <= 0)
            break;
        size += static_cast<std::size_t>(n);
    }
    text.resize(size);
    return text;
}

} // namespace

said run_program(std::vector<std::string> words, std::chrono::milliseconds patience,
                 const std::string& directory)
{
    said out;
    // Files, so that nobody waits for a reader.
    const unique_fd to(::memfd_create("output", MFD_CLOEXEC));
    const unique_fd errors(::memfd_create("errors", MFD_CLOEXEC));
    if (!to || !errors) {
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
    ::posix_spawn_file_actions_adddup2(&actions, to.get(), 1);
    ::posix_spawn_file_actions_adddup2(&actions, errors.get(), 2);
    if (!directory.empty())
        ::posix_spawn_file_actions_addchdir_np(&actions, directory.c_str());
    pid_t child = 0;
    out.failed = ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (out.failed != 0)
        return out;
    const unique_fd process(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
    pollfd one{process.get(), POLLIN, 0};
    if (::poll(&one, 1, static_cast<int>(patience.count())) != 1) {
        ::kill(child, SIGKILL);
        out.failed =
            ETIMEDOUT; // one that hangs in the kernel does not end when it is killed: nobody waits for it
        return out;
    }
    int status = 0;
    pid_t ended = 0;
    do
        ended = ::waitpid(child, &status, 0);
    while (ended < 0 && errno == EINTR);
    if (ended != child) { // and so nobody knows whether it did well
        out.failed = errno;
        return out;
    }
    out.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    out.output = contents_of(to.get());
    out.errors = contents_of(errors.get());
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
