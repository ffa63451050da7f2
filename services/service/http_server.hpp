// SPDX-License-Identifier: Apache-2.0
// The few pages that a service has for programs and people, by HTTP/1.1: libmicrohttpd on a thread of its own.
#pragma once

#include <verbena/core/net/net.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

struct MHD_Daemon;

namespace verbena::services {

struct http_answer {
    unsigned status = 200;
    std::string type; ///< Content-Type
    std::string body;
};

/// Answers GET and HEAD from its constructor until its destructor, which ends all connections and waits for a page that is being made.
class http_server {
public:
    static constexpr unsigned connections_at_once = 128; ///< more wait until one has gone
    static constexpr unsigned idle_seconds = 5;          ///< a connection that is still for so long is closed

    /// Makes the page of a path, without its query. On the server's thread, one page at a time; what it throws is answered with 500 and
    /// logged.
    using pages = std::function<http_answer(std::string_view path)>;

    /// `listener` listens already, and does not block. Throws std::system_error if there is no thread or no descriptor to be had.
    http_server(net::unique_fd listener, pages p);
    ~http_server();
    http_server(const http_server&) = delete;

    std::uint16_t port() const noexcept { return port_; }

private:
    const pages pages_;
    std::uint16_t port_ = 0;
    MHD_Daemon* daemon_ = nullptr;
};

} // namespace verbena::services
