// SPDX-License-Identifier: Apache-2.0
// MPA start-up (RFC 5044 7.1, RFC 6581): from a TCP connection to one in full operation.
#pragma once

#include "context.hpp"
#include "queue_pair.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/task/event.hpp>

#include <deque>
#include <exception>
#include <string>

namespace verbena::iwarp {

class mpa_listener;

/// What every connection's socket has: no delay, and the limit of time for a peer that is gone.
void prepare_socket(int fd, const iwarp::options& o) noexcept;

/// An accepted socket whose request frame is being read. Under 1 KiB, gone after startup_timeout.
class starting_peer final : public list_hook {
public:
    /// `charged`: to the peer, until its request was answered.
    starting_peer(mpa_listener& owner, net::unique_fd fd, peer_charge charged);

private:
    friend class mpa_listener;
    class watch final : public io_watch {
    public:
        watch(reactor& r, int fd, starting_peer& p) noexcept : io_watch(r, fd), peer_(p) {}

    private:
        bool on_readable() noexcept override;
        void on_writable() noexcept override {}
        starting_peer& peer_;
    };
    class limit final : public timer {
    public:
        explicit limit(starting_peer& p) noexcept : peer_(p) {}

    private:
        void on_timer() noexcept override;
        starting_peer& peer_;
    };

    mpa_listener& owner_;
    peer_charge charged_;
    net::unique_fd fd_;
    watch watch_;
    limit limit_;
    std::size_t have_ = 0;
    std::size_t need_ = wire::mpa_header_size;
    wire::mpa_frame frame_;
    std::array<std::byte, wire::mpa_header_size + wire::max_mpa_private_data> bytes_;
};

/// A socket whose request frame is valid.
class arrived_peer final : public verbs::arrival {
public:
    /// `body`: what follows the header.
    arrived_peer(net::unique_fd s, const wire::mpa_frame& f, std::span<const std::byte> body,
                 peer_charge charged);
    std::span<const std::byte> private_data() const noexcept override { return data; }
    peer_charge handshake;
    net::unique_fd socket;
    wire::mpa_frame frame;
    wire::mpa_depths depths;
    std::vector<std::byte> data;
};

/// A valid request frame that waits for the service's answer.
class mpa_request final : public verbs::connect_request {
public:
    mpa_request(context_impl& c, std::unique_ptr<arrived_peer> peer);
    ~mpa_request() override;

    std::span<const std::byte> private_data() const noexcept override { return peer_->data; }
    std::string_view peer_address() const noexcept override { return peer_address_; }
    std::string_view peer_name() const noexcept override { return peer_name_; }
    std::uint32_t peer_responder_resources() const noexcept override { return peer_->depths.ird; }
    task<result<std::unique_ptr<verbs::queue_pair>>>
    make_queue_pair(verbs::protection_domain& domain, const verbs::queue_pair_options& o) override;
    task<result<void>> accept(const verbs::connect_options& o) override;
    task<result<void>> reject(std::span<const std::byte> private_data) override;

private:
    result<void> send_reply(int fd, bool reject, const wire::mpa_depths& depths,
                            std::span<const std::byte> data);
    context_impl& context_;
    std::unique_ptr<arrived_peer> peer_; // without its socket, once there is a connection
    std::string peer_name_;
    std::string peer_address_;
    connection* connection_ = nullptr; // made, not yet accepted, and not ended; the caller owns it
};

class mpa_listener final : public verbs::listener {
public:
    mpa_listener(context_impl& c, net::unique_fd fd, std::string url);
    ~mpa_listener() override;

    task<result<std::unique_ptr<verbs::connect_request>>> next() override;
    void close() noexcept override;
    std::string local_url() const override { return url_; }

    void take(net::unique_fd fd) noexcept;
    /// Throws for lack of memory.
    void begin(net::unique_fd fd);
    void tell_crowded(const arrived_peer& peer) const noexcept;
    /// One that is through start-up, of this listener or another shard's.
    void take(std::unique_ptr<arrived_peer> peer) noexcept;
    context_impl& context() noexcept { return context_; }
    /// Ends a peer in start-up.
    void drop(starting_peer& p, end_cause why) noexcept;
    /// An exception kept a peer from being taken.
    void lose(const std::exception_ptr& e) noexcept;
    /// Its request frame is complete.
    void ready(starting_peer& p) noexcept;

private:
    class watch final : public io_watch {
    public:
        watch(reactor& r, int fd, mpa_listener& l) noexcept : io_watch(r, fd, 0), listener_(l) {}

    private:
        class resume_timer final : public timer {
        public:
            explicit resume_timer(watch& w) noexcept : watch_(w) {}

        private:
            void on_timer() noexcept override { watch_.want_read(true); }
            watch& watch_;
        };
        bool on_readable() noexcept override;
        void on_writable() noexcept override {}
        mpa_listener& listener_;
        resume_timer resume_{*this};
    };
    context_impl& context_;
    net::unique_fd fd_;
    std::unique_ptr<watch> watch_;
    std::string url_;
    intrusive_list<starting_peer> starting_;
    log_limiter lost_log_;
    std::size_t starting_count_ = 0;
    std::deque<std::unique_ptr<mpa_request>> waiting_;
    event changed_;
    bool closed_ = false;
};

} // namespace verbena::iwarp
