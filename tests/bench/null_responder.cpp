// SPDX-License-Identifier: Apache-2.0
// null_responder PORT [spin]: answers every record with an accepted, empty reply, in a bare epoll loop.
// All calls of a connection have the size of its first one. The floor that a server of NULL is compared with.
#include <verbena/core/net/net.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <cstdio>
#include <cstring>
#include <string>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace verbena;

int main(int argc, char** argv)
{
    if (argc < 2)
        return 2;
    const bool spin = argc > 2;
    const auto where = net::endpoint::parse(std::string("127.0.0.1:") + argv[1]);
    auto listener = where ? net::open_listener(*where) : result<net::unique_fd>(where.error());
    if (!listener) {
        std::fprintf(stderr, "null_responder: %s\n", listener.error().message().c_str());
        return 1;
    }
    const int poll = ::epoll_create1(0);
    epoll_event e{};
    e.events = EPOLLIN;
    e.data.fd = listener->get();
    ::epoll_ctl(poll, EPOLL_CTL_ADD, listener->get(), &e);
    static std::byte in[65536 + 4096];
    static std::byte out[65536];
    for (;;) {
        epoll_event events[64];
        const int count = ::epoll_wait(poll, events, 64, spin ? 0 : -1);
        for (int i = 0; i < count; ++i) {
            const int fd = events[i].data.fd;
            if (fd == listener->get()) {
                if (auto next = net::accept(fd)) {
                    (void)net::set_no_delay(next->fd.get());
                    e.data.fd = next->fd.release();
                    ::epoll_ctl(poll, EPOLL_CTL_ADD, e.data.fd, &e);
                }
                continue;
            }
            // A call may arrive in parts: those of one connection that don't end in a whole call are rare
            // here, and waited for.
            ssize_t n = ::recv(fd, in, 65536, 0);
            const ssize_t size = n >= 4 ? ssize_t(xdr::load_u32(in) & 0x7fffffff) + 4 : 4;
            while (n > 0 && size <= 4096 && n % size != 0) {
                const ssize_t more = ::recv(fd, in + n, std::size_t(size - n % size), 0);
                if (more == 0)
                    n = 0;
                if (more > 0)
                    n += more;
            }
            if (n <= 0 || size < 44 || size > 4096) {
                ::close(fd);
                continue;
            }
            std::byte* to = out;
            for (ssize_t at = 0; at < n; at += size, to += 28) {
                const std::uint32_t words[] = {0x80000018, xdr::load_u32(in + at + 4), 1, 0, 0, 0, 0};
                for (std::size_t w = 0; w < 7; ++w)
                    xdr::store_u32(to + 4 * w, words[w]);
            }
            [[maybe_unused]] const auto sent =
                ::send(fd, out, static_cast<std::size_t>(to - out), MSG_NOSIGNAL);
        }
    }
}
