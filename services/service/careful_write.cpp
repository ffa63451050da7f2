// SPDX-License-Identifier: Apache-2.0
#include "careful_write.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace verbena::services {

namespace {

// What a write() that does not block may take: of a pipe or a socket that is writable one of PIPE_BUF bytes doesn't (pipe(7)).
std::size_t room_of(int fd) noexcept
{
    pollfd writable{fd, POLLOUT, 0};
    if (::poll(&writable, 1, 0) <= 0) // a signal may interrupt it, and then nothing is known
        return 0;
    const int size = ::fcntl(fd, F_GETPIPE_SZ);
    int unread = 0;
    if (size <= 0 || ::ioctl(fd, FIONREAD, &unread) != 0)
        return PIPE_BUF; // no pipe
    return static_cast<std::size_t>(std::clamp(size / 2 - unread, 0, PIPE_BUF));
}

} // namespace

std::size_t write_carefully(int fd, std::string_view text, std::chrono::milliseconds patience) noexcept
{
    const auto until = std::chrono::steady_clock::now() + patience;
    std::size_t done = 0;
    while (done < text.size()) {
        const std::size_t room = room_of(fd);
        if (room == 0) {
            if (std::chrono::steady_clock::now() >= until)
                break;
            ::poll(nullptr, 0, 10); // a pipe does not tell when it is half empty
            continue;
        }
        const ssize_t n = ::write(fd, text.data() + done, std::min(room, text.size() - done));
        if (n > 0)
            done += static_cast<std::size_t>(n);
        else if (errno != EINTR && errno != EAGAIN)
            break;
    }
    return done;
}

} // namespace verbena::services
