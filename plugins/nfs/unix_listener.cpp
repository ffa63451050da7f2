// SPDX-License-Identifier: Apache-2.0
#include "unix_listener.hpp"

#include <verbena/core/net/net.hpp>

#include <array>
#include <cstring>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

namespace verbena::nfs {

namespace {

// As the kernel writes them: the low half of the inode, and its own form of the device.
bool is_file(const unix_diag_vfs& seen, const struct stat& file) noexcept
{
    constexpr unsigned minor_bits = 20;
    return seen.udiag_vfs_ino == static_cast<std::uint32_t>(file.st_ino) &&
           seen.udiag_vfs_dev == (major(file.st_dev) << minor_bits | minor(file.st_dev));
}

bool has_file(const nlmsghdr& message, const struct stat& file) noexcept
{
    const auto* body = static_cast<const unix_diag_msg*>(NLMSG_DATA(&message));
    auto left = static_cast<int>(message.nlmsg_len - NLMSG_LENGTH(sizeof *body));
    for (const auto* a = reinterpret_cast<const rtattr*>(body + 1); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        unix_diag_vfs seen{};
        if (a->rta_type != UNIX_DIAG_VFS || RTA_PAYLOAD(a) < sizeof seen)
            continue;
        std::memcpy(&seen, RTA_DATA(a), sizeof seen);
        if (is_file(seen, file))
            return true;
    }
    return false;
}

} // namespace

// The kernel lists the sockets of the asker's network namespace alone.
bool listens_in_our_network(const char* path) noexcept
{
    struct stat file{};
    const net::unique_fd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    if (!fd || ::stat(path, &file) != 0)
        return false;
    struct {
        nlmsghdr header;
        unix_diag_req body;
    } request{};
    request.header.nlmsg_len = sizeof request;
    request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    request.body.sdiag_family = AF_UNIX;
    request.body.udiag_states = 1u << TCP_LISTEN;
    request.body.udiag_show = UDIAG_SHOW_VFS;
    if (::send(fd.get(), &request, sizeof request, 0) != ssize_t(sizeof request))
        return false;
    alignas(nlmsghdr) std::array<char, 32 * 1024> part;
    for (;;) {
        const ssize_t n = ::recv(fd.get(), part.data(), part.size(), 0);
        if (n <= 0)
            return false;
        auto left = static_cast<std::uint32_t>(n);
        for (const auto* m = reinterpret_cast<const nlmsghdr*>(part.data()); NLMSG_OK(m, left);
             m = NLMSG_NEXT(m, left)) {
            if (m->nlmsg_type != SOCK_DIAG_BY_FAMILY) // the end, or an error
                return false;
            if (has_file(*m, file))
                return true;
        }
    }
}

} // namespace verbena::nfs
