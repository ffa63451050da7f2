// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/protocols/rpc/reconnecting_client.hpp>
#include <verbena/protocols/rpcrdma/header.hpp>
#include <verbena/protocols/rpcrdma/private_data.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace verbena::rpcrdma {

class requester final : public rpc::reconnecting_client,
                        private verbs::completion_handler,
                        private deferred,
                        private timer {
public:
    requester(verbs::context& provider, buffer_pool& buffers, std::string_view address,
              const requester_options& options, requester_stats* stats);
    ~requester() override;

    task<lease> acquire(std::size_t size) override { co_return co_await buffers_.acquire(size); }
    std::string_view name() const noexcept override { return provider_.query().provider; }
    bool serves_calls() const noexcept override { return options_.callbacks != nullptr; }

private:
    /// Receives and Sends beyond the credits: RDMA_ERROR uses no credit, a Send may complete late.
    static constexpr std::uint32_t slack = 8;
    /// Servers post 4096 bytes of reply whatever was announced (knfsd 6.1).
    static constexpr std::uint32_t min_receive_size = 4096;
    /// How long a connection's first answer may take before the server is woken, and again; how often it is.
    static constexpr duration wake_after = std::chrono::seconds(1);
    static constexpr unsigned most_wakes = 8;
    /// The Read chunk's pieces, or the two chunks of a long call with a long reply.
    static constexpr std::size_t max_grants = rpc::payload::max_pieces + 1;

    /// Memory that the server may touch from the grant until it is revoked.
    struct exposure {
        bool planned() const noexcept { return !bytes.empty(); }
        void clear() noexcept
        {
            grant = verbs::grant();
            region.reset();
            bytes = {};
            memory.reset();
        }
        lease memory;
        std::span<std::byte> bytes;
        verbs::access rights = verbs::access::remote_read;
        std::unique_ptr<verbs::region> region; // of memory that isn't the pool's
        verbs::grant grant;
    };
    /// What one call has on the connection.
    struct transfer {
        bool sent = false;
        bool exposing = false; // a task makes its grants
        event exposed;
        std::array<exposure, max_grants> reads;
        std::size_t read_count = 0;
        std::uint32_t read_position = 0;
        bool whole = false; // the call's own message lies in the Read chunk
        exposure result;    // the Write chunk
        exposure reply;     // the Reply chunk

        bool exposes() const noexcept { return read_count != 0 || result.planned() || reply.planned(); }
        template<class F>
        void for_each(F f)
        {
            for (std::size_t i = 0; i < read_count; ++i)
                f(reads[i]);
            for (exposure* e : {&result, &reply}) {
                if (e->planned())
                    f(*e);
            }
        }
        void clear() noexcept
        {
            for_each([](exposure& e) { e.clear(); });
            sent = whole = false;
            read_count = 0;
        }
    };
    enum class operation : std::uint8_t { receive, send, wake };
    static std::uint64_t make_id(operation op, std::uint32_t index) noexcept
    {
        return std::uint64_t(op) << 32 | index;
    }

    // reconnecting_client
    void go_to(std::string address) override { address_ = std::move(address); }
    task<result<void>> open() override;
    task<void> hang_up() override;
    void transmit(outstanding& o) noexcept override;
    void retract(outstanding& o) noexcept override;
    task<void> settle(outstanding& o) override;
    task<void> quiesce() override;
    void drop() noexcept override;
    // completion_handler
    void on_completions(std::span<const verbs::completion> batch) noexcept override;
    void on_disconnected(const error& cause) noexcept override;
    // deferred: the server's calls, after the polls
    void run() noexcept override;
    // timer: a connection has no answer yet
    void on_timer() noexcept override;
    void wake_later() noexcept;

    transfer& transfer_of(const outstanding& o) noexcept
    {
        return transfers_[o.xid() & (rpc::max_outstanding_calls - 1)];
    }
    /// Sends what credits allow.
    void pump() noexcept;
    /// Begins a call, which has its credit. The error is the call's own; the connection is as it was.
    result<void> start(outstanding& o);
    result<void> send(outstanding& o);
    task<void> expose_and_send(outstanding& o);
    task<result<void>> expose(transfer& t);
    result<void> plan_replies(const rpc::request& call, transfer& t);
    result<void> plan_call(const rpc::request& call, transfer& t);
    result<void> plan_new(exposure& e, std::size_t size, verbs::access rights);
    header header_of(const outstanding& o, const transfer& t) const noexcept;
    static segment segment_of(const exposure& e) noexcept;
    /// Sends `h` and, inline, `message` (nullptr: nothing) with the payload that belongs into it, if wanted.
    result<void> post_message(const header& h, const xdr::encoder* message, const rpc::attachments* payloads);
    void take_callback(lease message, std::uint32_t length) noexcept;
    task<void> serve_callback(lease message, std::uint32_t length);
    bool post_receive(std::uint32_t slot) noexcept;
    void on_message(lease message, std::uint32_t length) noexcept;
    result<rpc::reply> take_reply(transfer& t, const header& h, lease message,
                                  std::span<const std::byte> payload);
    void fail_connection(const error& cause) noexcept;

    verbs::context& provider_;
    buffer_pool& buffers_;
    std::string address_;
    requester_options options_;
    requester_stats own_stats_;
    requester_stats& stats_;
    std::unique_ptr<verbs::protection_domain> domain_;
    std::unique_ptr<verbs::queue_pair> queue_pair_;
    connection_terms terms_;
    std::uint32_t max_credits_;
    std::uint32_t credits_ = 1;
    std::uint32_t in_flight_ = 0;
    intrusive_list<outstanding> waiting_; // for credits
    std::vector<transfer> transfers_;
    std::vector<lease> receives_;
    std::vector<lease> sends_;
    std::vector<std::uint32_t> free_sends_;
    std::vector<std::uint32_t> abandoned_; // XIDs given up, whose replies still return a credit
    // Of this connection: RDMA Writes of nothing that may still be sent to wake the server, none once something came, and
    // whether one is under way.
    unsigned wakes_left_ = 0;
    bool waking_ = false;
    event ended_;
    std::size_t settling_ = 0; // calls whose grants are being revoked
    event settled_;
    struct callback {
        lease message;
        std::uint32_t length;
    };
    std::vector<callback> callbacks_;
    std::uint32_t callbacks_in_service_ = 0;
    std::string peer_address_;
    std::uint64_t epoch_ = 0; // of the connection: an answer for an earlier one is dropped
};

} // namespace verbena::rpcrdma
