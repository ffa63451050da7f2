// SPDX-License-Identifier: Apache-2.0
// The few pages that a service has for programs and people, by HTTP/1.1: libmicrohttpd on a thread of its own.
//
// The problem: a peer that sends or reads a byte now and then is never idle, so libmicrohttpd lets it keep its
// connection, and a few such peers keep everybody else out. So each exchange has a time in which it must end.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/unique_fd.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

struct MHD_Connection;
struct MHD_Daemon;

namespace verbena::services {

struct http_answer {
    unsigned status = 200;
    std::string type; ///< Content-Type
    std::string body;
    std::string policy = {}; ///< Content-Security-Policy; empty: there is none
};

/// Requests that were not answered as they asked, by why.
struct http_refusals {
    enum class reason : std::uint8_t { slow_request, slow_reader, large_body, no_length };
    static constexpr std::array<const char*, 4> names = {"slow_request", "slow_reader", "large_body",
                                                         "no_length"};
    std::array<counter, names.size()> counts;
};

/// Answers GET and HEAD from its constructor until its destructor, which ends all connections and waits for a page that is being made.
class http_server {
public:
    static constexpr unsigned connections_at_once = 128; ///< more wait until one has gone
    static constexpr unsigned idle_seconds = 5;          ///< a connection that is still for so long is closed
    static constexpr std::size_t max_body = 4096;        ///< of a request, whose body nobody reads

    struct limits {
        /// From the begin of a connection, or the end of the answer before, until a request is whole: else 408.
        std::chrono::milliseconds request{15'000};
        /// For a peer to read an answer.
        std::chrono::milliseconds answer{30'000};
        /// An older connection is closed behind its next answer, so that others have a turn.
        std::chrono::milliseconds connection{300'000};
    };

    /// Makes the page of a path, without its query. On the server's thread, one page at a time; what it throws is answered with 500 and
    /// logged.
    using pages = std::function<http_answer(std::string_view path)>;

    /// `listener` listens already, and does not block. Throws std::system_error if there is no thread or no descriptor to be had.
    http_server(net::unique_fd listener, pages p, limits most);
    http_server(net::unique_fd listener, pages p) : http_server(std::move(listener), std::move(p), limits())
    {
    }
    ~http_server();
    http_server(const http_server&) = delete;

    std::uint16_t port() const noexcept { return port_; }
    /// Any thread may read them.
    const http_refusals& refusals() const noexcept { return refusals_; }

private:
    using clock = std::chrono::steady_clock;
    // What a connection is at.
    enum class stage : std::uint8_t { none, asks, is_answered };
    struct peer {
        stage now = stage::none;
        int socket = -1;
        clock::time_point since;   // of the connection
        clock::time_point ends_at; // of what it is at
    };
    struct calls; // from C

    void run() noexcept;
    clock::time_point end_slow(clock::time_point now) noexcept;
    void enter(peer& p, stage next) noexcept;
    void count(http_refusals::reason why) noexcept;
    void send(MHD_Connection* to, http_answer answer);
    http_answer page_of(std::string_view method, std::string_view path) const;

    const pages pages_;
    const limits most_;
    std::uint16_t port_ = 0;
    http_refusals refusals_;
    std::vector<peer> peers_;
    basic_unique_fd<struct http_wake> wakes_;
    std::atomic<bool> stops_{false};
    MHD_Daemon* daemon_ = nullptr;
    std::thread thread_;
};

/// verbena_http_refusals_total.
metric_registrations expose(metric_registry& registry, const http_refusals& refusals);

} // namespace verbena::services
