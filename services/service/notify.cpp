// SPDX-License-Identifier: Apache-2.0
#include "notify.hpp"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace verbena::services {

void notify_manager(std::string_view state) noexcept
{
    const char* path = std::getenv("NOTIFY_SOCKET");
    if (path == nullptr || (*path != '/' && *path != '@'))
        return;
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    const std::size_t length = std::strlen(path);
    if (length >= sizeof to.sun_path)
        return;
    std::memcpy(to.sun_path, path, length);
    if (*path == '@') // a socket in the abstract namespace
        to.sun_path[0] = '\0';
    const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
    [[maybe_unused]] const auto sent =
        ::sendto(fd, state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to), size);
    ::close(fd);
}

} // namespace verbena::services
