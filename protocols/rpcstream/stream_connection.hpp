// SPDX-License-Identifier: Apache-2.0
// One stream that calls come over.
//
// What it is doing, and what may follow, is a stream_state.
//
// Calls are asked to stop when their caller is gone: at the end of its stream, since a client that is gone looks like
// one that only sends no more, and when the connection ends. While nothing is read, the ring tells of both.
//
// An ended connection has no socket and is no stream of its peer's any more. It stays as long as calls refer to it, since their effects
// must happen and be remembered (duplicate requests) even if nobody waits for the reply. Its peer is charged for their memory until then.
#pragma once

#include "output_memory.hpp"
#include "stream_call.hpp"
#include "stream_output.hpp"
#include "stream_reverse.hpp"
#include "stream_server_impl.hpp"
#include "stream_state.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/net/connection_list.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/io_watch.hpp>
#include <verbena/core/reactor/ring.hpp>
#include <verbena/core/reactor/timer.hpp>
#include <verbena/protocols/rpc/address_shares.hpp>
#include <verbena/protocols/rpcstream/record_reader.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>

#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace verbena::rpc {

/// to_string(), as a literal.
const char* text_of(stream_end cause) noexcept;

class stream_connection final : io_watch, large_record_share, stream_reverse_link, listed_connection {
public:
    using server = stream_server::impl;

    /// `charged`: to its peer. `stranger`: no program admits that.
    stream_connection(server& s, net::unique_fd socket, const net::endpoint& peer, std::string_view transport,
                      peer_charge charged, bool stranger);
    ~stream_connection();

    const rpc::peer& peer() const noexcept { return peer_; }
    buffer_pool& buffers() noexcept { return server_.pool; }
    dispatcher& calls() noexcept { return server_.calls; }
    verbena::detail::task_group& call_group() noexcept { return server_.call_group; }
    counter& payload_copied() noexcept { return server_.stats.payload_copied_bytes; }

    /// Joins the server's live connections and reads.
    void start() noexcept;
    /// A call being served takes so many more bytes for its results.
    void expect_results(std::size_t size) noexcept
    {
        expected_results_ += size;
        share_->result_bytes += size;
        shared_results_ += size;
    }
    /// Takes over a call that was dispatched; sends its reply if there is one.
    void complete(std::unique_ptr<stream_call> c, bool reply) noexcept;
    /// The way back to the client; nullptr if there is none, or no more.
    std::shared_ptr<reverse_channel> reverse();
    /// Reads no more; ends when what is in flight is done.
    void finish(stream_end cause) noexcept;
    /// Ends now.
    void end(stream_end cause) noexcept;
    void end_by(const std::exception_ptr& e) noexcept;
    /// Memory may have come free.
    void memory_again() noexcept;
    bool waits_for_memory() const noexcept { return state_ == stream_state::waits_for_memory; }
    bool unreferenced() const noexcept { return calls_ == 0; }
    /// What calls that go on without their caller see.
    stop_token server_stop() noexcept { return server_.stopping.token(); }

private:
    friend struct stream_server::impl;
    class parser final : public deferred {
    public:
        explicit parser(stream_connection& c) noexcept : connection_(c) {}
        void run() noexcept override { connection_.parse(); }

    private:
        stream_connection& connection_;
    };
    class flusher final : public deferred {
    public:
        explicit flusher(stream_connection& c) noexcept : connection_(c) {}
        void run() noexcept override { connection_.flush_gathered(); }

    private:
        stream_connection& connection_;
    };
    class hang_up final : public ring_completion {
    public:
        explicit hang_up(stream_connection& c) noexcept : connection_(c) {}
        void on_complete(std::int32_t events) noexcept override { connection_.peer_hung_up(events); }

    private:
        stream_connection& connection_;
    };
    class watchdog final : public timer {
    public:
        explicit watchdog(stream_connection& c) noexcept : connection_(c) {}
        void on_timer() noexcept override { connection_.look_at_limits(); }

    private:
        stream_connection& connection_;
    };
    struct limit {
        time_point when;
        stream_end cause;
    };

    // large_record_share
    bool take(std::size_t bytes) noexcept override;
    void give_back(std::size_t bytes) noexcept override;

    // listed_connection
    connection_report report() const override;
    connection_party party() const noexcept override
    {
        return {address_, peer_.client, calls_, state_ == stream_state::ended};
    }
    void end_now() noexcept override { end(stream_end::evicted); }

    // stream_reverse_link
    void send_reverse(lease bytes, std::size_t length) override;

    bool on_readable() noexcept override;
    /// Until want_read(true). If its peer goes meanwhile, its calls hear of it.
    void stop_reading() noexcept;
    void peer_hung_up(std::int32_t events) noexcept;
    void peer_sends_no_more() noexcept;
    void close_reverse() noexcept;
    void on_writable() noexcept override { flush(); }
    void parse() noexcept;
    void parse_calls() noexcept;
    void serve(record&& message) noexcept;
    void flush() noexcept;
    void flush_gathered() noexcept;
    void flush_later() noexcept;
    void queue(std::unique_ptr<stream_call> c);
    bool may_serve() const noexcept;
    /// Bytes of buffers for results, until they are sent.
    std::size_t result_bytes() const noexcept { return expected_results_ + output_memory_.bytes(); }
    void wait_for_room() noexcept;
    void wait_for_memory() noexcept;
    void wait_for_share() noexcept;
    bool take_turn() noexcept;
    void leave_share() noexcept;
    void charge_for_calls() noexcept;
    bool share_has_room() const noexcept;
    void share_results() noexcept;
    void wait_for_results() noexcept;
    void next_result_turn() noexcept;
    void end_result_turn() noexcept;
    void resume() noexcept;
    void end_if_finished() noexcept;
    limit next_limit() const noexcept;
    void look_at_limits() noexcept;
    void watch_until(time_point when) noexcept;

    server& server_;
    const bool stranger_;
    peer_charge charged_; // for the stream; once that has ended, for the memory of its calls
    net::unique_fd socket_;
    std::string address_;
    std::string name_;
    rpc::peer peer_;
    address_shares<server::host_share>::user share_; // of the peer
    record_reader reader_;
    stream_output output_;
    output_memory output_memory_;             // of output_
    std::shared_ptr<stream_reverse> reverse_; // when a program has asked for it
    server::member member_{*this};
    server::member waiter_{*this};        // for share_
    server::member result_waiter_{*this}; // likewise
    parser parser_{*this};
    flusher flusher_{*this};
    hang_up hang_up_{*this};
    watchdog watchdog_{*this};
    stop_source caller_gone_;
    std::size_t calls_ = 0;
    std::size_t call_bytes_ = 0;
    std::size_t expected_results_ = 0;        // of the calls being served
    std::size_t shared_results_ = 0;          // result_bytes() as share_ counts it
    std::size_t turn_used_ = 0;               // of stream_options::turn_share
    std::size_t wanted_ = 0;                  // of share_, since it was refused; 0: it was not
    std::size_t granted_ = 0;                 // of share_, to be taken: its turn has come
    const time_point since_;                  // the connect
    time_point last_call_;                    // or the connect
    time_point output_progress_;              // of the output that waits
    std::optional<time_point> record_begun_;  // of the record of which the rest must come; only while reading
    std::optional<time_point> sends_no_more_; // its peer, since then; in each state
    named_state<stream_state, stream_state_rules> state_{shard(), "stream of RPC"};
    bool any_call_ = false; // one has come, ever
    bool blocked_ = false;  // the socket took not all of the output; in each state but the last
    stream_end cause_ = stream_end::closed_by_peer;
};

} // namespace verbena::rpc
