// SPDX-License-Identifier: Apache-2.0
// One requester's connection.
#pragma once

#include <verbena/core/named_state.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/semaphore.hpp>
#include <verbena/protocols/rpcrdma/header.hpp>
#include <verbena/protocols/rpcrdma/private_data.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>

#include "chunk_share.hpp"
#include "listener_commons.hpp"
#include "responder_call.hpp"
#include "reverse_requester.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

namespace verbena::rpcrdma {

/// The life of a connection.
enum class connection_state : std::uint8_t {
    setting_up,
    setting_up_late, ///< the listener closed meanwhile
    serving,
    draining, ///< starts no more calls, and ends when those in flight are over
    closing,  ///< the queue pair ends in good order
    given_up, ///< the queue pair ends for a fault. On a device that takes a while
    ended,
};
inline constexpr std::array connection_rules = {
    state_rule{"setting up", followed_by(connection_state::setting_up_late, connection_state::serving,
                                         connection_state::given_up, connection_state::ended)},
    state_rule{"setting up, to drain",
               followed_by(connection_state::draining, connection_state::given_up, connection_state::ended)},
    state_rule{"serving", followed_by(connection_state::draining, connection_state::closing,
                                      connection_state::given_up, connection_state::ended)},
    state_rule{"draining",
               followed_by(connection_state::closing, connection_state::given_up, connection_state::ended)},
    state_rule{"closing", followed_by(connection_state::given_up, connection_state::ended)},
    state_rule{"given up", followed_by(connection_state::ended)},
    state_rule{"ended", 0},
};

class responder_connection final : private verbs::completion_handler,
                                   private deferred,
                                   private timer,
                                   private exception_handler,
                                   private reverse_link,
                                   private listed_connection,
                                   private grown_object {
public:
    responder_connection(verbs::context& provider, buffer_pool& buffers, rpc::dispatcher& dispatcher,
                         const responder_options& options, responder_stats& stats, chunk_shares::user share,
                         listener_commons& commons);
    ~responder_connection();

    /// Accepts the peer and serves it until the connection ends.
    task<void> run(std::unique_ptr<verbs::connect_request> request, verbs::protection_domain& domain);
    std::shared_ptr<rpc::reverse_channel> reverse();
    /// Starts no more calls; disconnects when those in flight are over.
    void drain() noexcept;

private:
    friend class responder_call;
    enum class operation : std::uint8_t {
        write, ///< of a reply, before its Send: told of only when the connection ends first
        receive = posted_receives::id_kind,
        send,
        read,
        reverse,
        probe,
    };

    // A peer that died without a word shows only by what is sent to it.
    class silence final : public timer {
    public:
        explicit silence(responder_connection& c) noexcept : connection_(c) {}
        void on_timer() noexcept override { connection_.after_silence(); }

    private:
        responder_connection& connection_;
    };

    static constexpr std::uint32_t receive_slack = responder_options::receive_slack;
    static constexpr std::uint32_t send_depth = 1024;
    static_assert(max_write_chunks <= xdr::encoder::max_payloads);

    static std::uint64_t make_id(operation op, std::uint32_t generation, std::uint32_t index) noexcept
    {
        return std::uint64_t(op) << 56 | std::uint64_t(generation & 0xffffff) << 32 | index;
    }

    // completion_handler
    void on_completions(std::span<const verbs::completion> batch) noexcept override;
    void on_disconnected(const error& cause) noexcept override;
    // deferred: after the polls
    void run() noexcept override;
    // timer: reads that may have stalled
    void on_timer() noexcept override;
    void note_read_progress() noexcept;
    void after_silence() noexcept;
    // exception_handler: of a call, or of what else the connection has under way
    void on_exception(const std::exception_ptr& e) noexcept override;

    // listed_connection
    connection_report report() const override;
    connection_party party() const noexcept override
    {
        return {peer_address_, peer_.client, calls_in_use(),
                state_.is_in(connection_state::closing, connection_state::given_up, connection_state::ended)};
    }
    void end_now() noexcept override;

    // grown_object: calls that it had at once
    bool shrink() noexcept override;

    task<bool> take(std::unique_ptr<verbs::connect_request> request, verbs::protection_domain& domain);
    bool down() const noexcept { return state_ == connection_state::ended; }
    std::size_t calls_in_use() const noexcept { return calls_.size() - free_calls_.size(); }
    void end_if_drained() noexcept;
    void close(const char* why) noexcept;
    std::uint64_t chunk_bytes_of(const header& h) const noexcept;
    /// Waits until the calls of the connection, and of all from its address, leave room for the bytes that `c` moves
    /// through chunks.
    task<bool> chunk_room(responder_call& c, std::uint64_t wanted);
    /// `c` counts for so many bytes at least.
    void charge(responder_call& c, std::uint64_t bytes) noexcept;
    /// What counts for a call that moves nothing through chunks.
    std::uint64_t least_charge() const noexcept;
    // reverse_link
    bool reverse_room() const noexcept override;
    result<void> send_reverse(lease message, std::uint32_t length) override;

    std::size_t receive_size() const noexcept
    {
        return std::max<std::size_t>(options_.inline_size, buffer_pool::min_size);
    }
    /// Has all receives stand that are promised. False: not now.
    bool fill_receives() noexcept;
    bool fill_own_receives() noexcept;
    bool is_short_of_receives() const noexcept;
    void begin_waiting_for_receive() noexcept;
    task<void> await_receive();
    /// The memory of a receive that is over.
    lease take_received(std::uint32_t slot) noexcept;
    bool post_receive(const verbs::receive_request& r) noexcept
    {
        return queue_pair_->post_receive({&r, 1}).has_value();
    }
    void count_call(std::uint32_t wanted) noexcept;
    void begin_call(lease message, std::uint32_t length);
    /// Messages that a requester may have sent and not been answered yet: nobody knows when it hears of a smaller grant, so what counts
    /// is the most that anybody may be told; but not where it would take receives of others.
    std::size_t most_messages() noexcept
    {
        const bool has_its_own = receives_.queue() == nullptr || receives_.on_demand();
        return (has_its_own ? std::max(1u, options_.credits) : credits_.bound(heard_)) + receive_slack;
    }
    void arrive(std::uint32_t slot, std::uint32_t length) noexcept;
    void overrun(std::size_t messages) noexcept;
    void log_refusal(const responder_call& c, const char* rule) noexcept;
    void give_up(const error& cause) noexcept;
    task<void> serve(responder_call& c, std::size_t header_size, std::uint32_t length);
    enum class assembly : std::uint8_t {
        whole,
        refused,   ///< to be answered with ERR_CHUNK
        abandoned, ///< the connection ends
    };
    task<assembly> assemble(responder_call& c, std::size_t header_size, std::uint32_t length);
    void end_unanswered(const error& cause) noexcept;
    void end_after_failed_read(const responder_call& c) noexcept;
    /// Reads all segments of `chunk` to `place`, in parallel up to the negotiated depth, which is at least 1 if there is
    /// anything to read.
    task<bool> read_chunk(responder_call& c, std::span<const read_segment> chunk, std::byte* place);
    task<void> reply(responder_call& c);
    bool take_send_memory(responder_call& c, std::size_t size);
    /// Brings what lies elsewhere into a registered buffer, where the provider needs that.
    task<bool> register_payload(rpc::payload& payload);
    task<bool> register_results(responder_call& c);
    struct reply_form {
        std::size_t header_size = 0;
        bool reduced = false;         ///< a data item goes by a Write chunk
        bool is_long = false;         ///< all else goes by the Reply chunk
        bool gathers = false;         ///< inline items stay where they are
        bool copies_head = false;     ///< of a long reply
        std::size_t inline_items = 0; ///< bytes of those that aren't reduced, with their pads
        std::size_t memory = 0;       ///< of what is put together for the Send
    };
    /// RFC 8267 6.4.1: the first Write chunk takes the first data item, and so on. An empty one wants it inline (RFC 8166 4.3.2.3).
    static bool goes_by_chunk(const responder_call& c, std::size_t item) noexcept
    {
        const write_list& writes = c.transport_.writes;
        return item < writes.size() && !writes.chunk(item).empty();
    }
    /// Work requests that the Writes and the Send of a reply may take.
    static std::uint32_t requests_of(const responder_call& c) noexcept;
    void build_send(responder_call& c, const reply_form& form);
    reply_form form_of(const responder_call& c) const noexcept;
    bool build_reply(responder_call& c, const reply_form& form, std::uint32_t invalidate);
    task<void> refuse_call(responder_call& c, error_kind kind);
    task<void> reply_error(responder_call& c, error_kind kind);
    void keep_for_send(responder_call& c, const reply_form& form) noexcept;
    void send_queue_freed() noexcept;
    task<bool> send_queue_room(std::uint32_t entries);
    result<void> post_reply(responder_call& c, std::span<verbs::send_request> batch);
    std::uint32_t grant(const responder_call& c) noexcept;
    std::uint32_t key_to_invalidate(const responder_call& c) const noexcept;
    responder_call* take_call();
    void release(responder_call& c) noexcept;
    responder_call* find(std::uint64_t id) noexcept;

    verbs::context& provider_;
    buffer_pool& buffers_;
    rpc::dispatcher& dispatcher_;
    const responder_options& options_;
    responder_stats& stats_;
    stop_token server_stop_; // what calls that go on without their caller see
    scope calls_scope_;
    std::unique_ptr<verbs::queue_pair> queue_pair_;
    connection_terms terms_;
    std::string peer_address_;
    std::string peer_name_;
    rpc::peer peer_;
    struct arrival {
        std::uint32_t slot;
        std::uint32_t length;
    };
    std::unique_ptr<posted_receives> own_receives_; // where the provider has no shared queue
    bool receive_awaited_ = false;
    std::vector<arrival> arrived_;
    std::vector<arrival> handling_;
    std::size_t handled_ = 0;     // of handling_
    std::uint64_t turn_used_ = 0; // of responder_options::turn_share
    std::vector<std::unique_ptr<responder_call>> calls_;
    std::vector<std::uint32_t> free_calls_;
    std::uint32_t first_generation_ = 0; // of a new call: none before it had it
    semaphore reads_{0};
    std::uint32_t reads_out_ = 0;
    time_point read_progress_;
    duration paused_{0}; // until then: verbs::receive_pauses::over
    time_point since_;   // when it was accepted
    time_point heard_;   // when a completion came last
    silence silence_{*this};
    bool probing_ = false;
    std::uint32_t unanswered_ = 0;
    std::uint64_t chunk_bytes_ = 0; // of the calls in use
    chunk_shares::user share_;      // of the peer's address
    listener_commons& commons_;
    receive_pool& receives_; // of the listener
    credit_account credits_;
    named_state<connection_state, connection_rules> state_;
    std::shared_ptr<reverse_requester> reverse_; // made when a program first asks
    std::vector<lease> reverse_sends_;
    std::vector<std::uint32_t> free_reverse_sends_;
    std::uint32_t send_queue_used_ = 0;
    event send_queue_moved_;
    event ended_;
    std::vector<verbs::send_request>& batch_; // listener_commons::batch
    std::vector<verbs::segment>& local_;
};

} // namespace verbena::rpcrdma
