// SPDX-License-Identifier: Apache-2.0
// One iWARP connection in full operation: what is posted, what is being sent, what is being placed.
//
// receive.cpp places, transmit.cpp segments and sends, stores.cpp reads and writes what is no memory, queue_pair.cpp owns the queues and
// the end.
#pragma once

#include "connection_state.hpp"
#include "context.hpp"
#include "steering.hpp"
#include "wire.hpp"

#include "../common/bounded_ring.hpp"
#include "../common/shared_receives.hpp"
#include "../common/store_access.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/io_watch.hpp>
#include <verbena/core/reactor/ring.hpp>
#include <verbena/core/verbs/verbs.hpp>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <sys/uio.h>
#include <vector>

namespace verbena::iwarp {

/// What the two ends agreed on in MPA start-up.
struct agreement {
    bool initiator = false; ///< this end asked for the connection
    bool crc = false;
    std::uint32_t ord = 0; ///< Reads we may have outstanding
    std::uint32_t ird = 0; ///< Reads the peer may have outstanding
};

class connection final : public verbs::queue_pair,
                         private io_watch,
                         private deferred,
                         private timer,
                         private steering::passing,
                         private receive_waiter,
                         private grown_object {
public:
    static constexpr std::size_t max_segments = 4;

    connection(context_impl& owner, net::unique_fd fd, iwarp::domain& d, const verbs::queue_pair_options& o,
               std::string peer_name, std::string peer_address);
    ~connection() override;

    /// Set to nullptr when this queue pair ends, for a request that points at it.
    void watch(connection** pointer) noexcept { watcher_ = pointer; }
    /// While it has not ended.
    int socket() const noexcept { return fd_.get(); }
    /// Start-up is over: FPDUs flow from now on. The first is the initiator's; what the other end posts waits for it
    /// (RFC 5044 7.1.2).
    void open(const agreement& a);

    void set_handler(verbs::completion_handler* handler) noexcept override { handler_ = handler; }
    result<void> post_send(std::span<const verbs::send_request> batch) override;
    result<void> post_receive(std::span<const verbs::receive_request> batch) override;
    /// Bytes of memory whose tag is gone by now wait for its socket.
    bool owes_what_is_gone() const noexcept;
    const steering::lane& lane() const noexcept { return owner_.lane(); }
    /// What grants compare with.
    steering::scope_id scope() const noexcept { return scope_; }
    void disconnect() noexcept override;
    void kill(const error& cause) noexcept override;
    /// The end is told when no access to a store is under way.
    void abort(const error& cause) noexcept override;
    /// As kill(), counted as `cause` unless the connection was ending already.
    void finish(end_cause cause, const error& e) noexcept;
    bool connected() const noexcept override
    {
        return state_.is_in(connection_state::open, connection_state::parked);
    }
    verbs::receive_pauses pauses() const noexcept override { return pauses_; }
    verbs::protection_domain& domain() noexcept override { return domain_; }
    std::uint32_t max_reads() const noexcept override { return agreed_.ord; }
    std::string_view peer_name() const noexcept override { return peer_name_; }
    std::string_view peer_address() const noexcept override { return peer_address_; }

private:
    /// RFC 5044 7.1.2: the end that accepted sends no FPDU before it has one of the initiator's.
    enum class first_fpdu : std::uint8_t {
        awaited, ///< accepted: the initiator's has not come
        owed,    ///< initiator: nothing was sent, and the peer may wait for something
        passed,
    };
    struct work {
        std::uint64_t id;
        verbs::opcode op;
        bool signalled;
        bool fence;
        bool done;
        bool refused; // done, but not as asked: a local invalidate of what is not valid here
        std::uint8_t segment_count;
        std::uint32_t length;
        std::uint32_t key; // remote key, or the key to invalidate
        std::uint32_t immediate;
        std::uint64_t remote; // of a renewal: what steering::quiescence::begin() said
        std::array<verbs::segment, max_segments> segments;
    };
    struct outstanding_read {
        std::uint64_t work_index;
        std::byte* sink;
        std::uint32_t stag;
        std::uint32_t length;
        std::uint32_t placed;
        bool is_uneven = false; // its FPDUs are not what was foreseen
    };
    struct peer_read {
        wire::read_request request;
        bool is_of_store;
    };
    /// What the peer's accesses to stores need, from the first of them on.
    struct store_work {
        class over final : public steering::store_user {
        public:
            using step = void (connection::*)(steering::store_progress) noexcept;
            over(connection& c, step s) noexcept : connection_(c), step_(s) {}
            void access_over(steering::store_progress how) noexcept override { (connection_.*step_)(how); }
            void access_waits() noexcept override { connection_.store_waits(); }

        private:
            connection& connection_;
            const step step_;
        };
        /// Stands in line for a buffer of an access.
        class place final : public steering::store_buffer_waiter {
        public:
            using step = void (connection::*)(steering::store_buffer) noexcept;
            place(connection& c, step s) noexcept : connection_(c), step_(s) {}
            void give(steering::store_buffer b) noexcept override { (connection_.*step_)(std::move(b)); }

        private:
            connection& connection_;
            const step step_;
        };
        /// The reader's buffer has waited for the peer for long.
        class limit final : public timer {
        public:
            explicit limit(connection& c) noexcept : connection_(c) {}
            void on_timer() noexcept override { connection_.on_store_limit(); } // which may destroy this

        private:
            connection& connection_;
        };
        explicit store_work(connection& c)
            : share(c.owner_.store_share(c.peer_address_)),
              written(c, &connection::store_written),
              read(c, &connection::piece_read),
              to_write(c, &connection::give_to_write),
              to_read(c, &connection::give_to_read),
              held(c)
        {
        }
        bool is_writing() const noexcept { return writer != nullptr && writer->is_busy(); }
        bool is_reading() const noexcept { return reader != nullptr && reader->is_busy(); }

        const steering::store_buffer_share share;
        over written;
        over read;
        place to_write;
        place to_read;
        // Payload of Writes by one tag, side by side, in the writer's buffer: it is not in its store yet.
        steering::store_access::pointer writer;
        std::uint32_t stag = 0;
        std::uint64_t offset = 0;
        std::size_t size = 0;
        time_point staged_since{};
        // What was read ahead of the socket and stands behind a write that is under way.
        steering::store_buffer kept;
        std::span<const std::byte> left;
        // The part of the Read Response in hand, or of the next one, that the reader's buffer has.
        steering::store_access::pointer reader;
        std::uint64_t piece = 0;
        std::size_t piece_size = 0;
        bool is_in_batch = false; // octets of it stand in a batch
        limit held;
        time_point held_since{}; // the reader's buffer, while nothing is read
        bool is_used = false;    // since shrink() was asked
    };

    // --- queue_pair.cpp ---
    bool on_readable() noexcept override;
    void on_writable() noexcept override;
    void run() noexcept override; // end of the turn: the doorbell
    void on_timer() noexcept override;
    void passed() noexcept override; // keys that were taken away are used no more, on no shard
    void watch_fpdu() noexcept;
    void complete(const verbs::completion& c) { batch_.push_back(c); }
    /// What comes is placed, now or when there is memory for it.
    bool places() const noexcept
    {
        return state_.is_in(connection_state::open, connection_state::parked, connection_state::draining,
                            connection_state::draining_parked);
    }
    bool is_parked() const noexcept
    {
        return state_.is_in(connection_state::parked, connection_state::draining_parked);
    }
    bool is_draining() const noexcept
    {
        return state_.is_in(connection_state::draining, connection_state::draining_parked);
    }
    void cut(end_cause cause, const error& e) noexcept;
    void deliver() noexcept;
    void tell_end() noexcept;
    void retire() noexcept;
    void shut_sending() noexcept;
    bool shrink() noexcept override;
    void ring_doorbell() noexcept;

    // --- transmit.cpp ---
    void transmit() noexcept;
    bool build() noexcept;
    bool start_next() noexcept;
    void add_segment() noexcept;
    void add_immediate() noexcept;
    void size_fpdus() noexcept;
    std::uint32_t fpdu_of(std::size_t length) const noexcept;
    void end_fpdu(std::uint32_t crc_so_far, std::size_t ulpdu) noexcept;
    bool flush() noexcept;
    bool hold_back() noexcept;
    bool prepare_batches() noexcept;
    void go_on_later() noexcept;
    bool turn_is_over() const noexcept;
    void batch_is_out() noexcept;
    void add_terminate() noexcept;
    void add_ready() noexcept;
    void fail_response(const steering_check& check) noexcept;
    std::byte* scratch(std::size_t size) noexcept;
    void add_vector(const std::byte* data, std::size_t size);

    // --- stores.cpp ---
    /// Makes an access where there is none. False: there is no memory, and the connection has ended.
    bool prepare(steering::store_access::pointer store_work::* which) noexcept;
    /// Whether there is a buffer for the FPDU whose header stands, which begins what is staged. False: the connection
    /// is parked until there is one, or has ended.
    bool has_room_to_stage() noexcept;
    void give_to_write(steering::store_buffer b) noexcept;
    void give_to_read(steering::store_buffer b) noexcept;
    /// What it had read ahead stands behind a write, or waits for the buffer of one.
    bool waits_for_store() const noexcept
    {
        return stores_ != nullptr && (stores_->is_writing() || stores_->to_write.is_linked());
    }
    /// As steering_table::check(), of a tag that was found before: of a store if `is_of_store`, else of memory. The grant may have gone since,
    /// and its tag may have been drawn for a grant of the other kind.
    steering_check check_again(std::uint32_t stag, std::uint64_t offset, std::uint64_t size,
                               verbs::access want, bool is_of_store) const noexcept;
    bool is_writing_store() const noexcept { return stores_ != nullptr && stores_->is_writing(); }
    /// The FPDU whose header stands may begin: writes before it are in their stores, or it goes on with what is staged. False: it waits for
    /// them, or the connection has failed.
    bool is_behind_stores() noexcept;
    bool goes_on_with_staged() const noexcept;
    /// Has the payload that comes staged: there is room.
    void stage() noexcept;
    /// A whole FPDU is staged. False: the connection has failed.
    bool staged() noexcept;
    /// Begins to write what is staged. Likewise.
    bool write_staged() noexcept;
    void store_written(steering::store_progress how) noexcept;
    void store_waits() noexcept;
    /// An access has ended. False: the connection had ended before.
    bool note_access(steering::store_progress how) noexcept;
    /// Nothing that came is placed any more, and no response begins: buffers that nothing goes by go back.
    void stop_stores() noexcept;
    /// The reader's buffer likewise, when its octets are out of the batch.
    void drop_piece() noexcept;
    bool answers_by_store() const noexcept
    {
        return sending_.what == sending_message::kind::response && sending_.is_of_store;
    }
    /// The connection ends.
    void leave_stores() noexcept;
    void keep_left_over(std::span<const std::byte> bytes) noexcept;
    std::span<const std::byte> left_over() const noexcept;
    void drop_left_over() noexcept;
    /// Whether the octet at `offset` of the response to `r` is in the reader's buffer; else it is being read, or the connection has failed.
    bool has_piece(const wire::read_request& r, std::uint32_t offset) noexcept;
    void piece_read(steering::store_progress how) noexcept;
    bool waits_for_piece() noexcept;
    /// The octet at `at` of the store is in the reader's buffer.
    bool is_at_hand(std::uint64_t at) const noexcept
    {
        return !stores_->is_reading() && stores_->piece_size != 0 &&
               at - stores_->piece < stores_->piece_size;
    }
    void batch_had_piece() noexcept;
    /// From now on the reader's buffer waits for the peer.
    void watch_piece() noexcept;
    void on_store_limit() noexcept;
    bool shrink_stores() noexcept;

    // --- receive.cpp ---
    enum class phase : std::uint8_t { header, payload, trailer };
    bool receive(const error* broken = nullptr) noexcept;
    bool consume(const std::byte* data, std::size_t size) noexcept;
    bool advance(std::size_t size) noexcept;
    struct foreseen;
    struct scatter_list;
    void foresee(scatter_list& list) noexcept;
    bool settle(std::span<const foreseen> next, std::size_t size) noexcept;
    bool long_enough() noexcept;
    bool header_complete() noexcept;
    void judge_size() noexcept;
    bool begin_tagged() noexcept;
    bool begin_untagged() noexcept;
    bool begin_fpdu() noexcept;
    bool take_receive() noexcept;
    bool has_reserve() const noexcept { return receive_queue_.size() > (filling_ ? 1u : 0u); }
    bool is_supplied() const noexcept { return shared_ != nullptr && shared_->is_on_demand(); }
    bool take_reserve() noexcept;
    void return_reserve() noexcept;
    bool no_receive(const char* rule) noexcept;
    void give(const verbs::receive_request& r) noexcept override;
    void note_first() noexcept;
    void park(const char* why) noexcept;
    void unpark(const char* why) noexcept;
    void end_pause() noexcept;
    void watch_hang_up() noexcept;
    void peer_hung_up(std::int32_t events) noexcept;
    void go_on_receiving(const char* why) noexcept;
    void stop_waiting() noexcept;
    bool fpdu_complete() noexcept;
    bool end_of_message() noexcept;
    bool bulk_expected() const noexcept;
    bool reads_ahead() const noexcept;
    enum class quote : bool { nothing, header }; // of the FPDU being received
    bool refuse(const wire::terminate_code& code, end_cause cause, const char* rule,
                quote quoted = quote::header) noexcept;

    // The receive that a message waited for is there.
    class go_on final : public deferred {
    public:
        explicit go_on(connection& c) noexcept : connection_(c) {}
        void run() noexcept override { connection_.go_on_receiving("there may be a receive for it"); }

    private:
        connection& connection_;
    };
    // Its peer has gone, while nothing is read.
    class hang_up final : public ring_completion {
    public:
        explicit hang_up(connection& c) noexcept : connection_(c) {}
        void on_complete(std::int32_t events) noexcept override { connection_.peer_hung_up(events); }

    private:
        connection& connection_;
    };

    context_impl& owner_;
    net::unique_fd fd_;
    connection** watcher_ = nullptr;
    iwarp::domain& domain_;
    const steering::scope_id scope_ = steering::new_scope();
    verbs::completion_handler* handler_ = nullptr;
    named_state<connection_state, connection_state_rules> state_{owner_.shard(), "iWARP connection"};
    agreement agreed_;
    first_fpdu first_ = first_fpdu::awaited;
    std::string peer_name_;
    std::string peer_address_;
    std::vector<verbs::completion> batch_;
    bool delivering_ = false;
    end_cause end_ = end_cause::orderly;
    error end_error_;
    verbs::status first_receive_ =
        verbs::status::work_request_flushed; // of the receive that the end meets first

    // Sending: head_ .. next_to_send_ .. tail of the queue; done ones retire in order.
    bounded_ring<work> send_queue_;
    std::uint64_t next_to_send_ = 0;
    bounded_ring<outstanding_read> reads_;
    bounded_ring<peer_read> peer_reads_;
    std::uint64_t bulk_read_bytes_ = 0;
    std::uint32_t send_sequence_ = 0;
    std::uint32_t read_sequence_ = 0;
    bool turn_of_responses_ = false;
    bool ord_waiting_ = false;
    struct sending_message {
        // A Write or Send with immediate is two messages of one request, with nothing between them.
        enum class kind : std::uint8_t { none, work, response, immediate } what = kind::none;
        std::uint64_t work_index = 0;
        wire::read_request response{};
        bool is_of_store = false; // the response
        std::uint32_t offset = 0;
        std::uint32_t length = 0;
        std::uint32_t step = 0; // payload of each FPDU but the last: an even split wastes no small one
        std::uint8_t segment = 0;
        std::uint32_t segment_offset = 0;
    } sending_;
    static constexpr std::size_t large_fpdu = 8192; // payload from which one recvmsg per FPDU beats a copy
    std::size_t max_payload_ = 1024;
    std::uint64_t since_sizing_ = 0; // octets of messages begun since the segment size was looked at
    static constexpr std::size_t max_batch = 32; // FPDUs built before a sendmsg
    using scratch_memory = std::array<std::byte, max_batch*(wire::max_header + 8) + 128>;
    std::unique_ptr<scratch_memory> scratch_; // headers and trailers of the batch
    std::size_t scratch_used_ = 0;
    std::size_t batch_fpdus_ = 0;
    std::vector<std::uint32_t> response_tags_; // whose memory the batch reads
    std::vector<iovec> vectors_;
    std::size_t vectors_done_ = 0;
    bool built_ = false;             // since shrink() was asked
    std::uint64_t sent_through_ = 0; // work index: everything before is in vectors_ or sent
    unsigned turn_sends_ = 0;        // of this turn: calls
    std::size_t turn_bytes_ = 0;     // and bytes
    bool write_blocked_ = false;
    std::array<std::byte, wire::max_terminate> terminate_payload_{};
    std::size_t terminate_size_ = 0;
    bool blocked_registered_ = false;

    // Receiving.
    shared_receives* const shared_;
    // Of a shared queue: the one that is being filled, and behind it one in reserve while Reads are under way.
    bounded_ring<verbs::receive_request> receive_queue_;
    bool filling_ = false;            // an untagged message on queue 0 is in the front one, or begins
    std::size_t untold_messages_ = 0; // in batch_
    verbs::receive_pauses pauses_;
    go_on go_on_{*this};
    hang_up hang_up_{*this};
    bool watches_hang_up_ = false;
    phase phase_ = phase::header;
    std::array<std::byte, wire::max_header> header_{};
    std::array<std::byte, wire::tagged_size> next_header_{};
    std::size_t header_have_ = 0;
    std::size_t header_need_ = wire::tagged_size;
    std::byte* target_ = nullptr;
    bool is_staging_ = false; // the payload goes to a store
    std::uint32_t crc_ = 0;   // of the header and of the payload placed so far
    std::size_t payload_left_ = 0;
    std::size_t payload_size_ = 0;
    std::array<std::byte, 8> trailer_{};
    std::size_t trailer_have_ = 0;
    std::size_t trailer_need_ = 0;
    std::optional<time_point> fpdu_begun_; // of one that was not whole when the socket had no more
    bool small_fpdus_ = false;
    bool last_ = false;
    wire::opcode op_ = wire::opcode::write;
    std::uint32_t tagged_stag_ = 0;
    bool tagged_open_ = false; // a tagged message has more segments to come
    wire::opcode tagged_op_ = wire::opcode::write;
    std::uint64_t tagged_next_ = 0;
    std::uint32_t send_have_ = 0;
    std::uint32_t expected_send_ = 1;
    std::uint32_t expected_read_ = 1;
    std::uint32_t invalidate_ = 0;
    std::array<std::byte, 64> small_{}; // payload of a Terminate or of immediate data
    std::uint32_t written_ = 0; // octets of the Write that came last, for the immediate data behind it

    std::unique_ptr<store_work> stores_; // nullptr: the peer reaches memory alone
};

} // namespace verbena::iwarp
