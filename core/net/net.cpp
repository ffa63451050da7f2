// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/net/net.hpp>

#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <unistd.h>

namespace verbena::net {
namespace {

error last_error(const char* what) noexcept { return error::from_errno(errno, what); }

result<std::uint16_t> parse_port(std::string_view text) noexcept
{
    unsigned value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || status != std::errc() || end != text.data() + text.size() || value > 0xffff)
        return error(std::errc::invalid_argument, "a port is a number from 0 to 65535");
    return static_cast<std::uint16_t>(value);
}

// What getaddrinfo() answers. For callers all of it means: no address.
class resolver_category final : public std::error_category {
public:
    const char* name() const noexcept override { return "resolver"; }
    std::string message(int value) const override { return ::gai_strerror(value); }
    std::error_condition default_error_condition(int) const noexcept override
    {
        return std::make_error_condition(std::errc::address_not_available);
    }
};
const resolver_category resolver;

result<void> set_option(int fd, int level, int name, int value, const char* what) noexcept
{
    if (::setsockopt(fd, level, name, &value, sizeof value) != 0)
        return last_error(what);
    return {};
}

} // namespace

endpoint::endpoint() noexcept
{
    std::memset(&address_, 0, sizeof address_);
    address_.v4.sin_family = AF_INET;
}

result<endpoint> endpoint::from(const sockaddr* address, socklen_t length) noexcept
{
    endpoint e;
    if (length >= sizeof(sockaddr_in) && address->sa_family == AF_INET) {
        std::memcpy(&e.address_.v4, address, sizeof(sockaddr_in));
        std::memset(e.address_.v4.sin_zero, 0, sizeof e.address_.v4.sin_zero);
        return e;
    }
    if (length >= sizeof(sockaddr_in6) && address->sa_family == AF_INET6) {
        sockaddr_in6 v6;
        std::memcpy(&v6, address, sizeof v6);
        if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
            e.address_.v4.sin_port = v6.sin6_port;
            std::memcpy(&e.address_.v4.sin_addr, v6.sin6_addr.s6_addr + 12, 4);
        } else {
            e.address_.v6 = v6;
        }
        return e;
    }
    return error(std::errc::address_family_not_supported, "neither an IPv4 nor an IPv6 address");
}

result<endpoint> endpoint::parse(std::string_view text)
{
    auto parts = split_host_port(text);
    if (!parts)
        return parts.error();
    endpoint e;
    if (::inet_pton(AF_INET, parts->host.c_str(), &e.address_.v4.sin_addr) == 1) {
        e.set_port(parts->port);
        return e;
    }
    std::string host = parts->host;
    unsigned scope = 0;
    if (const auto percent = host.find('%'); percent != std::string::npos) {
        scope = ::if_nametoindex(host.c_str() + percent + 1);
        if (scope == 0)
            return error(std::errc::no_such_device, "no network interface of the name behind %");
        host.resize(percent);
    }
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(parts->port);
    v6.sin6_scope_id = scope;
    if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) != 1)
        return error(std::errc::invalid_argument,
                     "not a numeric address: write 192.0.2.1:PORT or [2001:db8::1]:PORT");
    return from(reinterpret_cast<const sockaddr*>(&v6), sizeof v6);
}

result<endpoint> endpoint::local(int fd) noexcept
{
    sockaddr_storage address;
    socklen_t length = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
        return last_error("getsockname");
    return from(reinterpret_cast<const sockaddr*>(&address), length);
}

result<endpoint> endpoint::remote(int fd) noexcept
{
    sockaddr_storage address;
    socklen_t length = sizeof address;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
        return last_error("getpeername");
    return from(reinterpret_cast<const sockaddr*>(&address), length);
}

socklen_t endpoint::size() const noexcept
{
    return family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

std::uint16_t endpoint::port() const noexcept
{
    return ntohs(family() == AF_INET ? address_.v4.sin_port : address_.v6.sin6_port);
}

void endpoint::set_port(std::uint16_t port) noexcept
{
    (family() == AF_INET ? address_.v4.sin_port : address_.v6.sin6_port) = htons(port);
}

bool endpoint::is_loopback() const noexcept
{
    if (family() == AF_INET)
        return ntohl(address_.v4.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&address_.v6.sin6_addr);
}

bool endpoint::is_wildcard() const noexcept
{
    if (family() == AF_INET)
        return address_.v4.sin_addr.s_addr == INADDR_ANY;
    return IN6_IS_ADDR_UNSPECIFIED(&address_.v6.sin6_addr);
}

std::string endpoint::address() const
{
    char text[INET6_ADDRSTRLEN] = "";
    if (family() == AF_INET) {
        ::inet_ntop(AF_INET, &address_.v4.sin_addr, text, sizeof text);
        return text;
    }
    ::inet_ntop(AF_INET6, &address_.v6.sin6_addr, text, sizeof text);
    std::string full = text;
    if (const unsigned scope = address_.v6.sin6_scope_id; scope != 0) {
        char name[IF_NAMESIZE];
        full += '%';
        full += ::if_indextoname(scope, name) != nullptr ? std::string(name) : std::to_string(scope);
    }
    return full;
}

std::string endpoint::to_string() const
{
    const std::string host = address();
    return (family() == AF_INET ? host : '[' + host + ']') + ':' + std::to_string(port());
}

result<host_and_port> split_host_port(std::string_view text, std::uint16_t default_port)
{
    host_and_port parts;
    std::string_view rest;
    if (text.starts_with('[')) {
        const auto end = text.find(']');
        if (end == std::string_view::npos)
            return error(std::errc::invalid_argument, "an address that begins with [ has no ]");
        parts.host = text.substr(1, end - 1);
        rest = text.substr(end + 1);
    } else {
        const auto colon = text.find(':');
        if (colon != std::string_view::npos && text.find(':', colon + 1) != std::string_view::npos)
            return error(std::errc::invalid_argument,
                         "an IPv6 address stands in brackets: [2001:db8::1]:PORT");
        parts.host = text.substr(0, colon);
        rest = colon == std::string_view::npos ? std::string_view() : text.substr(colon);
    }
    if (parts.host.empty() || parts.host.find('\0') != std::string::npos)
        return error(std::errc::invalid_argument, "the host is missing: write HOST:PORT");
    if (rest.empty()) {
        if (default_port == 0)
            return error(std::errc::invalid_argument, "the port is missing: write HOST:PORT");
        parts.port = default_port;
        return parts;
    }
    if (rest.front() != ':')
        return error(std::errc::invalid_argument, "only :PORT may follow an address in brackets");
    const auto port = parse_port(rest.substr(1));
    if (!port)
        return port.error();
    parts.port = *port;
    return parts;
}

result<transport_url> split_url(std::string_view text)
{
    constexpr std::string_view mark = "://";
    const auto colon = text.find(mark);
    if (colon == std::string_view::npos || colon == 0)
        return error(std::errc::invalid_argument,
                     "the scheme is missing: write SCHEME://HOST:PORT, as in iwarp://192.0.2.1:7000");
    std::string_view address = text.substr(colon + mark.size());
    if (address.ends_with('/'))
        address.remove_suffix(1);
    if (address.empty())
        return error(std::errc::invalid_argument, "the address is missing: write SCHEME://HOST:PORT");
    if (address.find_first_of("/?#@") != std::string_view::npos)
        return error(std::errc::invalid_argument, "nothing may stand beside the address and port of a URL");
    return transport_url{std::string(text.substr(0, colon)), std::string(address)};
}

result<std::vector<endpoint>> resolve(std::string_view text, std::uint16_t default_port)
{
    auto parts = split_host_port(text, default_port);
    if (!parts)
        return parts.error();
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    if (const int rc = ::getaddrinfo(parts->host.c_str(), nullptr, &hints, &list); rc != 0) {
        if (rc == EAI_SYSTEM)
            return last_error("the host's name can't be resolved");
        return error(std::error_code(rc, resolver), "look up the host's name");
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
    std::vector<endpoint> found;
    for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
        if (auto e = endpoint::from(a->ai_addr, a->ai_addrlen)) {
            e->set_port(parts->port);
            found.push_back(*e);
        }
    }
    if (found.empty())
        return error(std::errc::address_not_available, "the host has neither an IPv4 nor an IPv6 address");
    return found;
}

result<unique_fd> open_listener(const endpoint& where, const listen_options& options)
{
    unique_fd fd(::socket(where.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
    if (!fd)
        return last_error("socket");
    if (auto r = set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR"); !r)
        return r.error();
    if (options.reuse_port) {
        if (auto r = set_option(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1, "SO_REUSEPORT"); !r)
            return r.error();
    }
    // So that 0.0.0.0 and [::] may both be listened on, whatever net.ipv6.bindv6only says.
    if (where.family() == AF_INET6) {
        if (auto r = set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1, "IPV6_V6ONLY"); !r)
            return r.error();
    }
    if (::bind(fd.get(), where.data(), where.size()) != 0)
        return last_error("bind");
    if (::listen(fd.get(), options.backlog) != 0)
        return last_error("listen");
    return fd;
}

result<accepted> accept(int listener)
{
    for (;;) {
        sockaddr_storage address;
        socklen_t length = sizeof address;
        unique_fd fd(::accept4(listener, reinterpret_cast<sockaddr*>(&address), &length,
                               SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (fd) {
            auto peer = endpoint::from(reinterpret_cast<const sockaddr*>(&address), length);
            if (!peer)
                return peer.error();
            return accepted(std::move(fd), *peer);
        }
        // accept(2): errors already pending on the new socket; to be treated like "try the next one".
        switch (errno) {
        case EINTR:
        case ECONNABORTED:
        case EPROTO:
        case ENETDOWN:
        case ENOPROTOOPT:
        case EHOSTDOWN:
        case ENONET:
        case EHOSTUNREACH:
        case ENETUNREACH: continue;
        default: return last_error("accept");
        }
    }
}

result<unique_fd> start_connect(const endpoint& to)
{
    unique_fd fd(::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
    if (!fd)
        return last_error("socket");
    if (::connect(fd.get(), to.data(), to.size()) != 0 && errno != EINPROGRESS)
        return last_error("connect");
    return fd;
}

result<void> connect_outcome(int fd) noexcept
{
    int value = 0;
    socklen_t length = sizeof value;
    if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &length) != 0)
        return last_error("SO_ERROR");
    if (value != 0)
        return error::from_errno(value, "connect");
    return {};
}

result<void> set_no_delay(int fd) noexcept
{
    return set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
}

result<void> set_keep_alive(int fd, const keep_alive& options) noexcept
{
    const auto idle = static_cast<int>(options.idle.count());
    const auto interval = static_cast<int>(options.interval.count());
    const struct {
        int level, name, value;
        const char* what;
    } settings[] = {
        {IPPROTO_TCP, TCP_KEEPIDLE, idle, "TCP_KEEPIDLE"},
        {IPPROTO_TCP, TCP_KEEPINTVL, interval, "TCP_KEEPINTVL"},
        {IPPROTO_TCP, TCP_KEEPCNT, options.probes, "TCP_KEEPCNT"},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, (idle + interval * options.probes) * 1000, "TCP_USER_TIMEOUT"},
        {SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"},
    };
    for (const auto& s : settings) {
        if (auto r = set_option(fd, s.level, s.name, s.value, s.what); !r)
            return r;
    }
    return {};
}

} // namespace verbena::net
