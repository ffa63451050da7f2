// SPDX-License-Identifier: Apache-2.0
// Byte streams: accepts TCP connections for one shard and hands the sockets on.
//
// Whoever takes a socket (rpc::stream_server) works on the descriptor itself through io_watch, so
// there is no stream interface to pass every byte through; docs/internals/rpc.md says why.
#pragma once

#include <verbena/core/log.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/io_watch.hpp>
#include <verbena/core/reactor/reactor.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#pragma GCC visibility push(default)

namespace verbena::stream {

/// How a listener takes connections in.
struct listener_options {
    net::listen_options socket; ///< of the listening socket
    net::keep_alive keep_alive; ///< of each connection
    /// Accepting pauses while net::unique_fd holds as many as this in the process, so that connections leave descriptors to
    /// files. Who waits in the socket's queue meanwhile is served when others have gone.
    std::size_t max_descriptors = SIZE_MAX;
    /// How long accepting may pause for want of descriptors. Then whoever waits in the queue is closed, and told of
    /// (refused::connection_descriptors), until there are some again: a client that hears nothing waits for ever.
    duration patience = std::chrono::seconds(2);
};

/// Any thread may read them.
struct listener_stats {
    counter accepted; ///< connections handed on
    counter failed;   ///< connections lost before they were handed on, by their peers or by an exception
    counter
        exhausted; ///< times that accepting paused: descriptors or memory ran out, or max_descriptors are in use
};

/// Registers what `s` counts, which outlives what it returns; once for each listener. Any thread.
metric_registrations expose(metric_registry& registry, const listener_stats& s);

/// Listens on one address for one shard. Several shards may listen on one address with
/// net::listen_options::reuse_port. Shard-local. Destroying it stops listening; what it accepted lives on.
class listener final : io_watch {
public:
    /// Takes over a connected, non-blocking socket with TCP_NODELAY and keep-alive set. Called in the
    /// poll phase: it must not resume coroutines. What it throws is logged, and costs that connection.
    using handler = std::function<void(net::unique_fd socket, const net::endpoint& peer)>;

    /// Connections taken in one poll, so that a flood of them can't hold the shard.
    static constexpr int max_accepts_per_poll = 64;
    /// How long accepting pauses when descriptors or memory ran out.
    static constexpr auto pause = std::chrono::milliseconds(100);

    /// Errors: those of net::open_listener.
    static result<std::unique_ptr<listener>> open(reactor& shard, const net::endpoint& where, handler h,
                                                  const listener_options& options = {});
    ~listener();

    /// The address as bound, with the real port.
    const net::endpoint& where() const noexcept { return where_; }
    /// "tcp://127.0.0.1:2049".
    std::string local_url() const;
    const listener_stats& stats() const noexcept { return stats_; }

private:
    class resume_timer final : public timer {
    public:
        explicit resume_timer(listener& l) noexcept : listener_(l) {}
        void on_timer() noexcept override { listener_.want_read(true); }

    private:
        listener& listener_;
    };
    listener(reactor& shard, net::unique_fd fd, const net::endpoint& where, handler h,
             const listener_options& options);
    bool on_readable() noexcept override;
    void on_writable() noexcept override {}
    void wait() noexcept;
    bool is_patience_over() noexcept;
    bool turn_away() noexcept;
    bool turn_away_by_spare() noexcept;

    // A descriptor that is given up to accept a peer where there is no other one.
    class spare_descriptor {
    public:
        spare_descriptor() noexcept { take(); }
        ~spare_descriptor() { give_up(); }
        spare_descriptor(const spare_descriptor&) = delete;
        bool is_there() const noexcept { return fd_ >= 0; }
        void take() noexcept;
        void give_up() noexcept;

    private:
        int fd_ = -1; // is none of net::unique_fd::held()
    };

    net::unique_fd fd_;
    net::endpoint where_;
    handler handler_;
    listener_options options_;
    listener_stats stats_;
    log_limiter failed_log_;
    spare_descriptor spare_;
    std::optional<time_point> full_since_, last_full_; // for want of descriptors
    resume_timer resume_{*this};
};

} // namespace verbena::stream

#pragma GCC visibility pop
