// SPDX-License-Identifier: Apache-2.0
// TCP sockets for the transports: addresses as people write them, listeners and connects that never
// block. Everything here is thread-safe except that a descriptor has one owner.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/core/unique_fd.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::net {

/// Owns a descriptor of a socket: held() counts connections, above all.
using unique_fd = basic_unique_fd<struct socket_kind>;

/// An IPv4 or IPv6 address with a port. An IPv4-mapped IPv6 address is kept as the IPv4 address that it is.
class endpoint {
public:
    /// 0.0.0.0:0.
    endpoint() noexcept;
    /// Of a socket address that the kernel returned; EAFNOSUPPORT unless it is IPv4 or IPv6.
    static result<endpoint> from(const sockaddr* address, socklen_t length) noexcept;
    /// "192.0.2.1:2049", "[2001:db8::1]:2049", "[fe80::1%eth0]:2049". Numbers only, so it never asks a
    /// name server; EINVAL with the rule that was broken, ENODEV where the interface behind % is not there (yet).
    static result<endpoint> parse(std::string_view text);
    /// The addresses at both ends of a socket.
    static result<endpoint> local(int fd) noexcept;
    /// Likewise, the peer's; ENOTCONN without one.
    static result<endpoint> remote(int fd) noexcept;

    const sockaddr* data() const noexcept { return &address_.any; }
    socklen_t size() const noexcept;
    /// AF_INET or AF_INET6; AF_UNSPEC where it was not set.
    int family() const noexcept { return address_.any.sa_family; }
    /// The port in the order of this host; 0 where it was not set.
    std::uint16_t port() const noexcept;
    /// Replaces the port, which is in the order of this host.
    void set_port(std::uint16_t port) noexcept;
    /// Whether it is an address of this host alone: 127.0.0.0/8 or ::1.
    bool is_loopback() const noexcept;
    /// 0.0.0.0 or ::, which a listener uses for every address of the host.
    bool is_wildcard() const noexcept;
    /// RFC 5952 text without port and brackets: "192.0.2.1", "2001:db8::1", "fe80::1%eth0".
    std::string address() const;
    /// With port, as parse() takes it.
    std::string to_string() const;

private:
    union {
        sockaddr any;
        sockaddr_in v4;
        sockaddr_in6 v6;
    } address_;
};

/// A host and a port as people write them; a port is mandatory unless `default_port` is given.
struct host_and_port {
    std::string host;       ///< without brackets
    std::uint16_t port = 0; ///< 0: none was given
};
/// Splits "host", "host:port", "[v6]" or "[v6]:port"; default_port 0 means there is none.
result<host_and_port> split_host_port(std::string_view text, std::uint16_t default_port = 0);

/// Where something listens, "SCHEME://ADDRESS": the transport, and the address as it takes it.
struct transport_url {
    std::string scheme;  ///< "tcp", "iwarp", "rdma", "loop"
    std::string address; ///< "host:port", "[v6]:port", a name for loop
};
/// Splits such a URL; a `/` at its end is dropped. EINVAL, with the rule, for what has no scheme, no address, or more behind it.
result<transport_url> split_url(std::string_view text);

/// All addresses of "host:port", names included, in the order to try them. Blocks in the resolver:
/// for set-up, never on a shard.
result<std::vector<endpoint>> resolve(std::string_view text, std::uint16_t default_port = 0);

/// How a listening socket is made (open_listener()).
struct listen_options {
    int backlog = 1024; ///< connections that the kernel keeps until they are accepted
    /// Several sockets on one address, between which the kernel spreads the connections: one per shard.
    bool reuse_port = false;
};
/// A non-blocking listener with SO_REUSEADDR; IPv6 sockets take IPv6 only. Errors: those of socket,
/// bind and listen.
result<unique_fd> open_listener(const endpoint& where, const listen_options& options = {});

/// The next connection of a listener, non-blocking, and who it is; EAGAIN when there is none. Errors of
/// one connection that died in the queue (ECONNABORTED and the like) are skipped.
struct accepted {
    /// Owns `f`, the connected socket; `p` is its peer.
    accepted(unique_fd f, const endpoint& p) noexcept : fd(std::move(f)), peer(p) {}
    unique_fd fd;  ///< connected, non-blocking, closed on exec
    endpoint peer; ///< who it is
};
/// Takes the next connection of `listener`; never blocks.
result<accepted> accept(int listener);

/// A non-blocking socket that is connecting to `to`: wait until it is writable, then ask
/// connect_outcome(). Errors: those of socket and connect that come at once.
result<unique_fd> start_connect(const endpoint& to);
/// How a connect ended (SO_ERROR).
result<void> connect_outcome(int fd) noexcept;

/// When the kernel probes a silent peer, and when it gives up.
struct keep_alive {
    std::chrono::seconds idle{60};     ///< a connection on which nothing came for so long is probed
    std::chrono::seconds interval{15}; ///< between two probes
    int probes = 4;                    ///< so many without an answer, and the connection is gone
};
/// TCP_NODELAY.
result<void> set_no_delay(int fd) noexcept;
/// SO_KEEPALIVE; also TCP_USER_TIMEOUT for as long as the probes take, so that unacknowledged data
/// doesn't keep a dead peer for the quarter of an hour that retransmission would.
result<void> set_keep_alive(int fd, const keep_alive& options) noexcept;

} // namespace verbena::net

#pragma GCC visibility pop
