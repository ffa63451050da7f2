// SPDX-License-Identifier: Apache-2.0
#include "path_size.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/core/unique_fd.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <span>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace verbena::cli {

namespace {

// linux/in.h and in6.h, which do not go with netinet/in.h.
constexpr int ip_recvfragsize = 25;
constexpr int ipv6_recvfragsize = 77;

constexpr std::uint32_t echo_head = 8;
constexpr std::uint32_t smallest_packet = 576; // RFC 791 3.1
constexpr std::chrono::milliseconds echo_patience{300};
constexpr int echo_tries = 2;

std::string route_errno_text(int number) { return std::generic_category().message(number); }

std::uint16_t internet_checksum(std::span<const std::byte> bytes)
{
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i)
        sum += std::to_integer<std::uint32_t>(bytes[i]) << (i % 2 == 0 ? 8 : 0);
    while (sum > 0xffff)
        sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(~sum);
}

// Echo requests to one host, and their answers.
class echoes {
public:
    explicit echoes(const net::endpoint& to) : to_(to), v6_(to.family() == AF_INET6)
    {
        const int protocol = v6_ ? int(IPPROTO_ICMPV6) : int(IPPROTO_ICMP);
        socket_ = unique_fd(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, protocol));
        if (!socket_) {
            socket_ = unique_fd(::socket(to.family(), SOCK_RAW | SOCK_CLOEXEC, protocol));
            raw_ = true;
        }
        if (!socket_)
            return;
        const int on = 1;
        // Not to be cut on the way, whatever the kernel has heard of it before.
        const int probe = v6_ ? IPV6_PMTUDISC_PROBE : IP_PMTUDISC_PROBE;
        const int level = v6_ ? int(IPPROTO_IPV6) : int(IPPROTO_IP);
        ::setsockopt(socket_.get(), level, v6_ ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER, &probe, sizeof probe);
        if (v6_)
            ::setsockopt(socket_.get(), level, IPV6_DONTFRAG, &on, sizeof on);
        ::setsockopt(socket_.get(), level, v6_ ? ipv6_recvfragsize : ip_recvfragsize, &on, sizeof on);
        const int room = 1 << 20;
        ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
        (void)::connect(socket_.get(), to_.data(), to_.size());
    }
    bool is_open() const { return bool(socket_); }
    std::uint32_t heads() const { return (v6_ ? 40 : 20) + echo_head; }

    /// Whether a packet of this size, with its heads, is answered whole. `piece`: the largest piece of the answer; 0: it came whole.
    bool answered(std::uint32_t size, std::uint32_t& piece)
    {
        for (int i = 0; i < echo_tries; ++i) {
            if (const int failed = ask(size); failed == EMSGSIZE)
                return false;
            if (hears(size, piece))
                return true;
        }
        return false;
    }

private:
    int ask(std::uint32_t size)
    {
        std::vector<std::byte> packet(size - (v6_ ? 40 : 20));
        packet[0] = std::byte(v6_ ? ICMP6_ECHO_REQUEST : ICMP_ECHO);
        put(packet, 4, static_cast<std::uint16_t>(::getpid()));
        put(packet, 6, ++number_);
        if (!v6_) // of version 6 the kernel makes it
            put(packet, 2, internet_checksum(packet));
        // An error of a packet before is told at the next call, and once.
        for (int i = 0; i < 2; ++i) {
            if (::send(socket_.get(), packet.data(), packet.size(), MSG_NOSIGNAL) >= 0)
                return 0;
        }
        return errno;
    }
    static void put(std::vector<std::byte>& packet, std::size_t at, std::uint16_t value)
    {
        packet[at] = std::byte(value >> 8);
        packet[at + 1] = std::byte(value & 0xff);
    }
    bool hears(std::uint32_t size, std::uint32_t& piece)
    {
        const auto until = std::chrono::steady_clock::now() + echo_patience;
        for (;;) {
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                until - std::chrono::steady_clock::now());
            pollfd one{socket_.get(), POLLIN, 0};
            if (left.count() <= 0 || ::poll(&one, 1, static_cast<int>(left.count())) != 1)
                return false;
            if (is_ours(size, piece))
                return true;
        }
    }
    bool is_ours(std::uint32_t size, std::uint32_t& piece)
    {
        std::vector<std::byte> got(std::size_t(size) + 64);
        alignas(cmsghdr) std::array<std::byte, 256> control{};
        iovec part{got.data(), got.size()};
        msghdr m{};
        m.msg_iov = &part;
        m.msg_iovlen = 1;
        m.msg_control = control.data();
        m.msg_controllen = control.size();
        const ssize_t n = ::recvmsg(socket_.get(), &m, MSG_DONTWAIT);
        if (n < 0)
            return false;
        std::span<const std::byte> packet(got.data(), static_cast<std::size_t>(n));
        if (raw_ && !v6_ && !packet.empty()) // a raw socket has the head of IP, too
            packet = packet.subspan(std::min<std::size_t>(
                packet.size(), std::to_integer<std::size_t>(packet[0] & std::byte{15}) * 4));
        if (packet.size() != size - (v6_ ? 40 : 20) ||
            packet[0] != std::byte(v6_ ? ICMP6_ECHO_REPLY : ICMP_ECHOREPLY) ||
            packet[6] != std::byte(number_ >> 8) || packet[7] != std::byte(number_ & 0xff))
            return false;
        piece = 0;
        for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
            const bool tells = v6_ ? c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == ipv6_recvfragsize
                                   : c->cmsg_level == IPPROTO_IP && c->cmsg_type == ip_recvfragsize;
            int of = 0;
            if (tells && c->cmsg_len >= CMSG_LEN(sizeof of)) {
                std::memcpy(&of, CMSG_DATA(c), sizeof of);
                piece = static_cast<std::uint32_t>(std::max(of, 0));
            }
        }
        return true;
    }

    const net::endpoint to_;
    const bool v6_;
    bool raw_ = false;
    unique_fd socket_;
    std::uint16_t number_ = 0;
};

// The interface that has this address, and its MTU.
void add_interface(route_facts& to)
{
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) != 0)
        return;
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, &::freeifaddrs);
    for (const ifaddrs* i = all.get(); i != nullptr; i = i->ifa_next) {
        if (i->ifa_addr == nullptr ||
            (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
            continue;
        const auto own = net::endpoint::from(
            i->ifa_addr, i->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
        if (!own || own->address() != to.source)
            continue;
        to.interface = i->ifa_name;
        ifreq ask{};
        std::strncpy(ask.ifr_name, i->ifa_name, sizeof ask.ifr_name - 1);
        const unique_fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        if (any && ::ioctl(any.get(), SIOCGIFMTU, &ask) == 0)
            to.mtu = static_cast<std::uint32_t>(std::clamp(ask.ifr_mtu, 0, 65535)); // a packet has no more
        return;
    }
}

} // namespace

std::uint32_t largest_that(std::uint32_t low, std::uint32_t high,
                           const std::function<bool(std::uint32_t)>& passes)
{
    if (passes(high))
        return high;
    if (!passes(low))
        return 0;
    while (high - low > 1) {
        const std::uint32_t middle = low + (high - low) / 2;
        (passes(middle) ? low : high) = middle;
    }
    return low;
}

route_facts look_at_route(const std::string& host)
{
    route_facts out;
    out.peer = host;
    constexpr std::uint16_t any_port = 9; // no packet goes there
    const auto found = net::resolve(host.find(':') == std::string::npos ? host : "[" + host + "]", any_port);
    if (!found || found->empty()) {
        out.failed = found ? "has no address" : found.error().message();
        return out;
    }
    const net::endpoint& to = found->front();
    out.peer = to.address();
    const unique_fd way(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!way || ::connect(way.get(), to.data(), to.size()) != 0) {
        out.failed = route_errno_text(errno);
        return out;
    }
    const auto own = net::endpoint::local(way.get());
    if (!own) {
        out.failed = own.error().message();
        return out;
    }
    out.source = own->address();
    add_interface(out);
    echoes e(to);
    if (!e.is_open() || out.mtu < smallest_packet)
        return out;
    std::uint32_t piece = 0;
    if (std::uint32_t ignored = 0; !e.answered(e.heads() + 56, ignored))
        return out;
    out.passes = largest_that(smallest_packet, out.mtu, [&](std::uint32_t size) {
        std::uint32_t of = 0;
        const bool good = e.answered(size, of);
        piece = good ? of : piece;
        return good;
    });
    out.comes_back = piece;
    return out;
}

} // namespace verbena::cli
