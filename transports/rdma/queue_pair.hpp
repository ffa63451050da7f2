// SPDX-License-Identifier: Apache-2.0
// One connection: what is posted to its queue pair, and its end.
#pragma once

#include "../common/bounded_ring.hpp"
#include "connection_manager.hpp"
#include "domain.hpp"
#include "shared_receives.hpp"
#include "work_id.hpp"

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/sigpipe.hpp>
#include <verbena/transports/rdma.hpp>

#include <atomic>
#include <semaphore>
#include <string>
#include <vector>

namespace verbena::rdma {

/// How requests of our own (binds, invalidates) ended. Lives in the frame that waits.
struct internal_outcome {
    event done;
    bool good = false;
};

/// A window of type 1 and what it is bound to; length 0: to nothing any more.
struct type_1_bind {
    ibv_mw* window;
    ibv_mw_bind_info to;
};

/// siw sends in the thread that posts, connects, accepts or rejects, without MSG_NOSIGNAL: whether SIGPIPE may come there,
/// which it doesn't where the process ignores it.
sigpipe_guard::comes sigpipe_on_iwarp(const rdma_cm_id& id) noexcept;

class queue_pair final : public verbs::queue_pair, public list_hook, public cm_handler, private timer {
public:
    queue_pair(context_impl& owner, rdma::domain& d, std::size_t part, completion_queue& cq, device::use hold,
               const verbs::queue_pair_options& o, std::string peer_name, std::string peer_address);
    ~queue_pair() override;

    /// Makes the device's queue pair on `id`, which it owns from then on. Blocks; any thread.
    result<void> create(rdma_cm_id* id) noexcept;
    /// create() failed: `id` is the caller's again.
    void disown() noexcept { id_ = nullptr; }
    /// After create(): takes the device's queue pair from its id, which is the caller's again.
    void give_up() noexcept;
    /// create() is over, so that other than its thread may look.
    void set_made() noexcept { made_ = true; }
    bool made() const noexcept { return made_; }
    /// Another thread uses the id until lend_no_more(): an end in between takes nothing down before.
    void lend_id() noexcept { lent_ = true; }
    void lend_no_more() noexcept;
    /// Set to nullptr when this queue pair ends, for a request that points at it.
    void watch(queue_pair** pointer) noexcept { watcher_ = pointer; }
    /// The connection stands.
    void open(std::uint32_t ord) noexcept;
    rdma_cm_id* id() const noexcept { return id_; }

    void set_handler(verbs::completion_handler* handler) noexcept override { handler_ = handler; }
    result<void> post_send(std::span<const verbs::send_request> batch) override;
    result<void> post_receive(std::span<const verbs::receive_request> batch) override;
    void disconnect() noexcept override;
    void kill(const error& cause) noexcept override { end_now(end_cause::local, cause); }
    void abort(const error& cause) noexcept override { end_soon(end_cause::local, cause); }
    bool connected() const noexcept override { return state_ == state::open; }
    /// It is being taken down; until that is over, the peer may use what is granted to it.
    bool ending() const noexcept { return state_ == state::ending; }
    /// It is closed: its peer has no way to memory.
    bool over() const noexcept { return state_ == state::closed; }
    /// Waits, holding the shard, until the peer of an ending one has no way to memory any more. Its handler hears of
    /// the end as it would have.
    void cut_off() noexcept;
    verbs::protection_domain& domain() noexcept override;
    std::uint32_t max_reads() const noexcept override { return ord_; }
    std::string_view peer_name() const noexcept override { return peer_name_; }
    std::string_view peer_address() const noexcept override { return peer_address_; }

    device& on() noexcept { return home_.on; }
    const context_impl& owner() const noexcept { return owner_; }
    bool starting() const noexcept { return state_ == state::starting; }
    std::size_t part() const noexcept { return part_; }
    std::uint16_t slot() const noexcept { return slot_; }
    std::uint32_t number() const noexcept { return number_; }
    /// By which its asynchronous events know it.
    std::uint64_t serial_number() const noexcept { return serial_; }
    void add_window(memory_grant& g) noexcept
    {
        windows_.push_back(g);
        g.scope_ = this;
    }
    /// Posts requests of our own; the last one is signalled. `outcome`, if any, hears of it and must live until then.
    result<void> post_internal(std::span<ibv_send_wr> requests, internal_outcome* outcome);
    /// How many requests stand in the send queue, whoever's; and whether `entries` of our own have room beside them.
    std::size_t outstanding() const noexcept { return sends_.size(); }
    bool has_room(std::size_t entries) const noexcept
    {
        return state_ == state::open && internal_used_ + entries <= internal_depth;
    }
    /// Posts binds of type 1, for which has_room(); the last one is signalled, as in post_internal(). The windows have
    /// their new keys.
    result<void> bind_type_1(std::span<const type_1_bind> binds, internal_outcome* outcome);
    /// From the poll: a completion of this queue pair. Its handler hears of it in deliver().
    void take(const ibv_wc& wc, const work_id& id) noexcept;
    void deliver() noexcept;

    bool completes_at(std::uint64_t queue) const noexcept { return cq_.number == queue; }
    /// Something is wrong with it. It ends soon, if nobody says why before.
    void broke() noexcept;
    /// Ends it, on a pool thread; its handler hears of it.
    void end(end_cause cause, const error& e) noexcept { end_soon(cause, e); }

    void on_cm_event(cm_event& e) noexcept override;

private:
    enum class state : std::uint8_t { starting, open, draining, ending, closed };
    struct work {
        std::uint64_t id;
        verbs::opcode op;
        bool signalled;
        bool internal;
        bool done; // told of by the device, behind one that is not
        std::uint32_t length;
        std::uint32_t key; // local_invalidate, unbind
        internal_outcome* outcome;
        memory_grant* grant; // unbind
    };
    // Takes the connection and the queue pair down, where that may wait.
    class take_down final : public blocking_pool::job {
    public:
        explicit take_down(queue_pair& q) noexcept : queue_pair_(&q) {}
        void execute() noexcept override;
        /// Deletes itself.
        void deliver() noexcept override;
        /// Waits for execute(), or does it here if nobody has begun: rather than behind the work of others.
        void wait() noexcept;
        /// wait(); the queue pair has no part in what follows.
        void join() noexcept;

    private:
        queue_pair* queue_pair_;
        std::atomic<bool> taken_{false}; // by the pool's thread, or by who couldn't wait for it
        std::binary_semaphore over_{0};  // it is
    };

    void on_timer() noexcept override;
    bool tells_itself(verbs::opcode o) noexcept;
    void take_send(std::uint32_t index) noexcept;
    void take_receive(const ibv_wc& wc, std::uint64_t id) noexcept;
    void failed(const ibv_wc& wc) noexcept;
    void retire_send(const work& w, verbs::status s) noexcept;
    void complete(const verbs::completion& c);
    void end_soon(end_cause cause, const error& e) noexcept;
    void end_now(end_cause cause, const error& e) noexcept;
    void take_down_on_pool() noexcept;
    void begin_end(end_cause cause, const error& e) noexcept;
    void detach() noexcept;
    void release() noexcept;
    void finish() noexcept;
    void tell_end() noexcept;
    result<void> check(const verbs::send_request& r) const;
    bool create_extended(ibv_qp_init_attr& a) noexcept;
    /// One doorbell. An errno; 0: all of them are posted.
    int submit(ibv_send_wr* first) noexcept;
    std::uint64_t next_send_id(std::size_t ahead) const noexcept;
    void note_internal(bool signalled, internal_outcome* outcome);

    context_impl& owner_;
    rdma::domain& domain_;
    std::size_t part_;
    domain_part& home_;
    completion_queue& cq_;
    device::use hold_; // until the device's queue pair is gone
    shared_receives* const shared_;
    const queue_entries entries_; // of the completion queue
    rdma_cm_id* id_ = nullptr;
    ibv_qp* going_ = nullptr;       // id_'s queue pair while it is taken down
    ibv_qp_ex* extended_ = nullptr; // id_'s queue pair, where batches go by ibv_wr_*
    queue_pair** watcher_ = nullptr;
    const std::uint64_t serial_;
    std::uint32_t number_ = 0;
    bool made_ = false;
    bool lent_ = false;
    // Where posts may raise it, and the process did not ignore it when the queue pair was made.
    sigpipe_guard::comes sigpipe_ = sigpipe_guard::comes::never;
    std::uint16_t slot_ = 0;
    std::uint16_t generation_ = 0;
    verbs::completion_handler* handler_ = nullptr;
    state state_ = state::starting;
    std::uint32_t ord_ = 0;
    std::string peer_name_;
    std::string peer_address_;

    bounded_ring<work> sends_;
    std::uint64_t newest_told_ = 0; // the one furthest ahead of which the device has told
    std::uint32_t send_depth_;
    std::uint32_t internal_used_ = 0;
    bounded_ring<std::uint64_t> receives_;
    intrusive_list<memory_grant> windows_; // until the end is over
    std::vector<ibv_mw*> bound_;           // to take away with the queue pair

    end_cause end_ = end_cause::local;
    error end_error_;
    bool first_failed_ = false; // the failed one is reported as such, those behind it as flushed
    bool failed_receive_ = false;
    std::uint64_t failed_index_ = 0;
    verbs::status failed_status_ = verbs::status::work_request_flushed;
    std::uint32_t failed_vendor_ = 0;
    take_down* taking_down_ = nullptr; // its own
    std::vector<verbs::completion> batch_;
    bool delivering_ = false;
};

} // namespace verbena::rdma
