// SPDX-License-Identifier: Apache-2.0
#include "control_socket.hpp"

#include <verbena/core/module/settings.hpp>
#include <verbena/core/module/start_error.hpp>
#include <verbena/core/printable.hpp>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <system_error>
#include <utility>

namespace verbena::services {

namespace {

constexpr int pending_connections = 16;

std::string refusal(const std::string& path, const std::string& why)
{
    return "control socket " + printable(path) + ": " + why +
           "; choose another path in [daemon] control, or off for none";
}

[[noreturn]] void refuse_path(const std::string& path, const std::string& why)
{
    throw config_error(refusal(path, why));
}

[[noreturn]] void refuse_by_errno(const std::string& path, const char* what)
{
    const int number = errno;
    refuse_path(path, std::string(what) + ": " + std::generic_category().message(number));
}

// Not the socket itself: whether somebody listens there could be asked only before the file is replaced, and two that
// start at once would both hear that nobody does.
unique_fd lock_path(const std::string& path)
{
    const std::string name = path + ".lock";
    unique_fd lock(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
    if (!lock)
        refuse_by_errno(path, "its lock can't be made");
    struct stat s{};
    if (::fstat(lock.get(), &s) != 0)
        refuse_by_errno(path, "its lock");
    if (!S_ISREG(s.st_mode) || s.st_uid != ::geteuid())
        refuse_path(path, printable(name) + " is no file of this user");
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) // which may end: then the next start is good
            throw start_error(refusal(path, "it is that of another daemon that is running"));
        refuse_by_errno(path, "its lock");
    }
    return lock;
}

// Whoever has the lock may remove what a dead process left.
void remove_stale(const std::string& path)
{
    struct stat s{};
    if (::lstat(path.c_str(), &s) != 0) {
        if (errno != ENOENT)
            refuse_by_errno(path, "can't be looked at");
        return;
    }
    if (!S_ISSOCK(s.st_mode))
        refuse_path(path, "something else than a socket is there, which is left alone");
    // The lock keeps daemons of verbena apart, and another program knows nothing of it.
    const unique_fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un there{};
    there.sun_family = AF_UNIX;
    std::memcpy(there.sun_path, path.c_str(), path.size() + 1);
    if (probe && (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0 ||
                  errno == EAGAIN))
        throw start_error(refusal(path, "another program listens there"));
    if (::unlink(path.c_str()) != 0)
        refuse_by_errno(path, "the socket of a dead daemon can't be removed");
}

} // namespace

bool fits_a_socket(const std::string& path) noexcept { return path.size() < sizeof(sockaddr_un::sun_path); }

std::optional<std::string> runtime_control_path()
{
    const char* const said = std::getenv("RUNTIME_DIRECTORY");
    if (said == nullptr || *said != '/')
        return std::nullopt;
    const std::string_view all = said; // several are separated by colons
    return std::string(all.substr(0, all.find(':'))) + "/control";
}

control_socket::control_socket(std::string path) : path_(std::move(path))
{
    if (!fits_a_socket(path_))
        refuse_path(path_, "a socket's path has at most " +
                               std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes, and this has " +
                               std::to_string(path_.size()));
    lock_ = lock_path(path_);
    remove_stale(path_);
    listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener_)
        refuse_by_errno(path_, "no socket can be had");
    // Linux gives the file the socket's own mode, so that nobody finds it open for a moment.
    if (::fchmod(listener_.get(), S_IRUSR | S_IWUSR) != 0)
        refuse_by_errno(path_, "its mode");
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    std::memcpy(where.sun_path, path_.c_str(), path_.size() + 1);
    if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0)
        refuse_by_errno(path_, "can't be made");
    if (::listen(listener_.get(), pending_connections) != 0)
        refuse_by_errno(path_, "can't listen");
}

control_socket::~control_socket()
{
    if (listener_)
        ::unlink(path_.c_str());
}

} // namespace verbena::services
