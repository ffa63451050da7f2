// SPDX-License-Identifier: Apache-2.0
// One end of a loop connection: its queues, what is under way, and the end.
//
// A send-queue entry is posted, carried out at the peer when its time has come, and retired when the
// acknowledgement is back; three cursors walk the same ring. Entries keep their slots until a completion tells
// the user of them, as hardware does it: who never asks for one runs out of room.
#pragma once

#include "../common/bounded_ring.hpp"
#include "../common/shared_receives.hpp"
#include "../common/store_access.hpp"
#include "context.hpp"

#include <array>
#include <string>
#include <vector>

namespace verbena::loop {

class queue_pair final : public verbs::queue_pair,
                         public list_hook,
                         private timer,
                         private steering::store_user {
public:
    queue_pair(context_impl& owner, loop::domain& d, const verbs::queue_pair_options& o,
               std::string peer_name, std::string peer_address);
    ~queue_pair() override;

    void set_handler(verbs::completion_handler* handler) noexcept override { handler_ = handler; }
    result<void> post_send(std::span<const verbs::send_request> batch) override;
    result<void> post_receive(std::span<const verbs::receive_request> batch) override;
    void disconnect() noexcept override;
    void kill(const error& cause) noexcept override;
    bool connected() const noexcept override { return state_ == state::open; }
    verbs::protection_domain& domain() noexcept override { return domain_; }
    std::uint32_t max_reads() const noexcept override { return ord_; }
    std::string_view peer_name() const noexcept override { return peer_name_; }
    std::string_view peer_address() const noexcept override { return peer_address_; }

    /// The responder's end works from accept() on; what it posts waits until the initiator is there.
    void open(std::uint32_t ord) noexcept;
    /// Joins two open ends.
    static void link(queue_pair& a, queue_pair& b) noexcept;
    /// The connection ends at `when`, unless it does before. In the turn of any shard, as link() and watch().
    void end_at(time_point when, const error& cause) noexcept;
    /// Does what is due. From the poll of its port.
    void progress() noexcept;
    steering::scope_id scope() const noexcept { return scope_; }
    /// Set to nullptr when this queue pair ends, for a handshake that points at it.
    void watch(queue_pair** pointer) noexcept { watcher_ = pointer; }

private:
    enum class state : std::uint8_t { starting, open, draining, closed };
    struct work {
        std::uint64_t id;
        std::uint64_t remote;
        time_point due;  // arrives at the peer
        time_point done; // its acknowledgement is back
        std::uint32_t key;
        std::uint32_t length;
        verbs::opcode op;
        verbs::opcode told; // in its completion; of the second half of a Send with Immediate that one
        bool signalled;
        bool fence;
        bool lost; // on the way there, later: on the way back
        std::uint8_t segment_count;
        std::uint32_t waits; // times that no receive was ready
        std::array<verbs::segment, loop::options::max_segments> segments;
        std::uint32_t immediate;
        steering::record* grant; // bind, unbind
        bool is_inline;
        bool has_bytes; // a store had them, or gave them, before the request was carried out
        std::array<std::byte, loop::options::max_inline> inline_data;
    };
    struct receive {
        verbs::receive_request request;
        verbs::completion outcome;
        time_point visible;
    };
    enum class verdict : std::uint8_t { done, wait, over };
    // The peer's message waits for memory at this end.
    class waiter final : public receive_waiter {
    public:
        explicit waiter(queue_pair& q) noexcept : queue_pair_(q) {}
        void give(const verbs::receive_request& r) noexcept override;

    private:
        queue_pair& queue_pair_;
    };

    // A piece of what is carried out next waits for a buffer.
    class buffer_place final : public steering::store_buffer_waiter {
    public:
        explicit buffer_place(queue_pair& q) noexcept : queue_pair_(q) {}
        void give(steering::store_buffer b) noexcept override;

    private:
        queue_pair& queue_pair_;
    };

    void push(const verbs::send_request& r, verbs::opcode op);
    void carry_out_due() noexcept;
    verdict carry_out(work& w) noexcept;
    static void renew(const work& w) noexcept;
    verdict send(work& w) noexcept;
    verdict write(work& w) noexcept;
    verdict immediate(work& w) noexcept;
    /// A receive of the peer's that waits, filled next; nullptr if there is none.
    receive* next_receive() noexcept;
    /// From the shared queue, if a message of the peer's needs one.
    void want_receive() noexcept;
    bool is_supplied() const noexcept { return shared_ != nullptr && shared_->is_on_demand(); }
    /// Has the peer's store take the bytes of a Write, or give those of a Read, piece by piece, each through a buffer
    /// that it may have to wait for. Wait: go_on_with_store() is asked again.
    verdict ask_store(work& w) noexcept;
    verdict go_on_with_store(work& w) noexcept;
    /// The next piece begins.
    verdict begin_piece(work& w) noexcept;
    void access_over(steering::store_progress how) noexcept override;
    /// The piece of `w` that is in hand, between its segments and the buffer.
    template<class Copy>
    void copy_piece(const work& w, Copy copy) noexcept;
    bool read_back(work& w) noexcept;
    /// What a Read Request of the peer's names here.
    auto readable(const work& w) const noexcept
    {
        const bool checks = owner_.query().checks_read_rights;
        return owner_.table().check(w.key, w.remote, w.length,
                                    checks ? verbs::access::remote_read : verbs::access(0), domain_, scope_);
    }
    verdict not_ready(work& w) noexcept;
    /// Retires what is back; all that was carried out if `regardless` of the time. True if Reads were.
    bool retire(bool regardless) noexcept;
    void show_receives(bool regardless) noexcept;
    /// By the peer, whose time it is: this end's shard may have had no turn since.
    void fill(receive& r, const verbs::completion& c, time_point now) noexcept;
    verdict fail(std::uint64_t index, verbs::status s, const error& cause) noexcept;
    verdict refused_by_peer(std::uint64_t index, verbs::status s, const char* rule) noexcept;
    void finish(const error& cause, std::uint64_t failed, verbs::status s) noexcept;
    void complete(const verbs::completion& c);
    void deliver() noexcept;
    void tell_end() noexcept;
    void arm() noexcept;
    bool over(time_point now) const noexcept { return ending_ && end_when_ <= now; }
    void on_timer() noexcept override { owner_.port().ready(*this); }
    time_point now() const noexcept { return owner_.shard().now(); }

    static constexpr std::uint64_t none = ~std::uint64_t(0);
    /// Receives of a shared queue that are filled but not yet shown, for one queue pair.
    static constexpr std::uint32_t max_taken = 256;

    context_impl& owner_;
    loop::domain& domain_;
    const steering::scope_id scope_ = steering::new_scope();
    std::uint64_t number_; // on the fabric; for the trace
    queue_pair* peer_ = nullptr;
    queue_pair** watcher_ = nullptr;
    verbs::completion_handler* handler_ = nullptr;
    state state_ = state::starting;
    bool linked_ = false; // was joined once: without a peer now, it is alone for good
    std::uint32_t ord_ = 0;
    std::uint32_t reads_ = 0; // carried out, not back
    bool ord_waiting_ = false;
    steering::store_access::pointer access_; // to a store of the peer's, by what is carried out next
    steering::store_progress access_how_{};
    std::uint32_t access_done_ = 0; // octets of it
    std::uint32_t access_part_ = 0; // and of the piece in hand; 0: none has begun
    buffer_place buffer_place_{*this};
    bool breaks_ = false; // the queue pair breaks behind that
    std::string peer_name_;
    std::string peer_address_;

    bounded_ring<work> sends_;
    std::uint64_t executed_ = 0; // before it: carried out
    std::uint64_t retired_ = 0;  // before it: back; slots from sends_.head() on are still held
    time_point last_due_{};
    time_point last_done_{};
    shared_receives* const shared_;
    waiter waiter_{*this};
    bounded_ring<receive> receives_;
    std::uint64_t filled_ = 0;   // before it: filled by the peer
    bool wants_receive_ = false; // asked by the peer, on another shard
    time_point last_visible_{};

    bool ending_ = false;
    time_point end_when_{};
    error end_cause_;
    std::array<std::vector<verbs::completion>, 2>
        batches_; // one is filled while the handler looks at the other
    std::size_t filling_ = 0;
    bool delivering_ = false;
};

} // namespace verbena::loop
