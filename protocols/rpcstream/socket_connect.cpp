// SPDX-License-Identifier: Apache-2.0
#include "socket_connect.hpp"

#include <verbena/core/reactor/io_watch.hpp>
#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/task/event.hpp>

#include <cerrno>
#include <sys/socket.h>

namespace verbena::rpc {
namespace {

class until_writable final : public io_watch, public timer {
public:
    until_writable(reactor& r, int fd, duration timeout) : io_watch(r, fd)
    {
        r.timers().arm(*this, r.clock().now() + timeout);
        want_write();
    }
    event done;
    bool timed_out = false;

private:
    bool on_readable() noexcept override { return false; }
    void on_writable() noexcept override { done.set(); }
    void on_timer() noexcept override
    {
        timed_out = true;
        done.set();
    }
};

// Servers with `secure` exports accept ports below 1024 only; the lowest ones belong to services.
constexpr std::uint16_t first_reserved = 665;
constexpr std::uint16_t last_reserved = 1023;

result<net::unique_fd> start_reserved_connect(const net::endpoint& to, random_source& random)
{
    constexpr unsigned count = last_reserved - first_reserved + 1;
    const auto start = static_cast<unsigned>(random.draw() % count);
    for (unsigned i = 0; i < count; ++i) {
        net::unique_fd fd(::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        if (!fd)
            return error::from_errno(errno, "socket");
        sockaddr_storage any{};
        any.ss_family = static_cast<sa_family_t>(to.family());
        auto from = net::endpoint::from(reinterpret_cast<const sockaddr*>(&any), to.size());
        if (!from)
            return from.error();
        // A port whose last connection is in TIME_WAIT can be used for another server, and the kernel knows when for the same.
        const int yes = 1;
        if (::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0)
            return error::from_errno(errno, "SO_REUSEADDR");
        from->set_port(static_cast<std::uint16_t>(first_reserved + (start + i) % count));
        if (::bind(fd.get(), from->data(), from->size()) != 0) {
            if (errno == EADDRINUSE)
                continue;
            return error::from_errno(errno, "bind to a reserved port");
        }
        if (::connect(fd.get(), to.data(), to.size()) == 0 || errno == EINPROGRESS)
            return fd;
        if (errno != EADDRNOTAVAIL) // this pair of ports is still in TIME_WAIT
            return error::from_errno(errno, "connect");
    }
    return error(std::errc::address_in_use, "no reserved port is free");
}

// Not every server wants a reserved port: without the right to one, or with none left, it is asked from another.
bool goes_without(const error& why) noexcept
{
    return why.errno_value() == EACCES || why.errno_value() == EPERM || why.errno_value() == EADDRINUSE;
}

} // namespace

task<result<net::unique_fd>> connect_stream(reactor& shard, net::endpoint to, duration timeout,
                                            bool reserved_port)
{
    result<net::unique_fd> fd = error(std::errc::operation_not_permitted);
    if (reserved_port)
        fd = start_reserved_connect(to, shard.random());
    if (!fd && (!reserved_port || goes_without(fd.error())))
        fd = net::start_connect(to);
    if (!fd)
        co_return fd.error();
    {
        until_writable connecting(shard, fd->get(), timeout);
        if (!co_await connecting.done.wait())
            co_return error(std::errc::operation_canceled, "connect");
        if (connecting.timed_out)
            co_return error(std::errc::timed_out, "connect");
    }
    if (auto outcome = net::connect_outcome(fd->get()); !outcome)
        co_return outcome.error();
    if (auto set = net::set_no_delay(fd->get()); !set)
        co_return set.error();
    if (auto set = net::set_keep_alive(fd->get(), {}); !set)
        co_return set.error();
    co_return std::move(fd);
}

} // namespace verbena::rpc
