// SPDX-License-Identifier: Apache-2.0
#include "removal_watch.hpp"

#include <verbena/core/log.hpp>

#include <array>
#include <cerrno>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

namespace verbena::rdma {

namespace {

constexpr unsigned kernel_uevents = 1; // multicast group; 2 is udev's

} // namespace

std::unique_ptr<removal_watch> removal_watch::open(reactor& r, observer& o)
{
    const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
    sockaddr_nl self{};
    self.nl_family = AF_NETLINK;
    self.nl_groups = kernel_uevents;
    if (fd >= 0 && ::bind(fd, reinterpret_cast<const sockaddr*>(&self), sizeof self) == 0)
        return std::make_unique<removal_watch>(r, fd, o);
    const error why = error::from_errno(errno, "the kernel's announcements");
    if (fd >= 0)
        ::close(fd);
    log(log_level::warning, "rdma",
        "can't hear of devices that are taken away, and may keep `rdma link delete` waiting; allow "
        "AF_NETLINK "
        "(RestrictAddressFamilies= of a unit)",
        {{"cause", why.message()}});
    return nullptr;
}

removal_watch::removal_watch(reactor& r, int fd, observer& o) noexcept : io_watch(r, fd, 0), observer_(o)
{
    want_read(true);
}

removal_watch::~removal_watch()
{
    io_watch::stop();
    ::close(fd());
}

bool removal_watch::on_readable() noexcept
{
    bool any = false;
    bool removal = false;
    for (int i = 0; i < 64; ++i) {
        std::array<char, 4096> text;
        sockaddr_nl from{};
        socklen_t size = sizeof from;
        const ssize_t n =
            ::recvfrom(fd(), text.data(), text.size(), 0, reinterpret_cast<sockaddr*>(&from), &size);
        if (n < 0) {
            // Lost some: one of them may have been it.
            removal = removal || errno == ENOBUFS;
            if (errno == ENOBUFS)
                continue;
            break;
        }
        any = true;
        if (from.nl_pid == 0) // the kernel's
            removal = removal || is_removal({text.data(), static_cast<std::size_t>(n)});
    }
    if (removal)
        observer_.on_device_removal();
    return any;
}

} // namespace verbena::rdma
