// SPDX-License-Identifier: Apache-2.0
#include "queue_pair.hpp"

#include "context.hpp"
#include "whole_domain.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <csignal>

namespace verbena::rdma {
namespace {

constexpr auto manager_delay = std::chrono::milliseconds(100);

verbs::status status_of(ibv_wc_status s) noexcept
{
    switch (s) {
    case IBV_WC_SUCCESS: return verbs::status::success;
    case IBV_WC_LOC_LEN_ERR: return verbs::status::local_length_error;
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_MW_BIND_ERR: return verbs::status::local_protection_error;
    case IBV_WC_WR_FLUSH_ERR: return verbs::status::work_request_flushed;
    case IBV_WC_REM_INV_REQ_ERR: return verbs::status::remote_invalid_request;
    case IBV_WC_REM_ACCESS_ERR: return verbs::status::remote_access_error;
    case IBV_WC_REM_OP_ERR: return verbs::status::remote_operation_error;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR: return verbs::status::retry_exceeded;
    case IBV_WC_RNR_RETRY_EXC_ERR: return verbs::status::rnr_retry_exceeded;
    default: return verbs::status::fatal_error;
    }
}

} // namespace

sigpipe_guard::comes sigpipe_on_iwarp(const rdma_cm_id& id) noexcept
{
    struct sigaction pipe{};
    const bool may = id.verbs != nullptr && id.verbs->device->transport_type == IBV_TRANSPORT_IWARP &&
                     ::sigaction(SIGPIPE, nullptr, &pipe) == 0 && pipe.sa_handler != SIG_IGN;
    return may ? sigpipe_guard::comes::silently : sigpipe_guard::comes::never;
}

queue_pair::queue_pair(context_impl& owner, rdma::domain& d, std::size_t part, completion_queue& cq,
                       device::use hold, const verbs::queue_pair_options& o, std::string peer_name,
                       std::string peer_address)
    : owner_(owner),
      domain_(d),
      part_(part),
      home_(d.part(part)),
      cq_(cq),
      hold_(std::move(hold)),
      shared_(static_cast<shared_receives*>(o.shared_receives)),
      entries_(entries_of(o)),
      serial_(next_serial()),
      peer_name_(std::move(peer_name)),
      peer_address_(std::move(peer_address)),
      sends_(o.send_depth + internal_depth),
      send_depth_(o.send_depth),
      receives_(shared_ != nullptr ? 0 : o.receive_depth)
{
    sends_.preallocate();
    receives_.preallocate();
    owner_.add(*this, slot_, generation_);
}

verbs::protection_domain& queue_pair::domain() noexcept { return domain_.whole(); }

queue_pair::~queue_pair()
{
    handler_ = nullptr;
    end_now(end_cause::local, error(std::errc::connection_aborted, "queue pair destroyed"));
    owner_.remove(*this);
    cq_.give_back(entries_);
}

result<void> queue_pair::create(rdma_cm_id* id) noexcept
{
    id_ = id;
    ibv_qp_init_attr a{};
    a.qp_type = IBV_QPT_RC;
    a.send_cq = a.recv_cq = cq_.cq;
    a.srq = shared_ != nullptr ? shared_->handle() : nullptr;
    const device_limits& l = on().limits();
    const bool binds = l.grants != grant_kind::region || l.can.renewable_grants;
    a.cap.max_send_wr = send_depth_ + (binds ? internal_depth : 0);
    a.cap.max_recv_wr = shared_ != nullptr ? 0 : static_cast<std::uint32_t>(receives_.room());
    a.cap.max_send_sge = on().limits().can.max_send_segments;
    a.cap.max_recv_sge = 1;
    a.cap.max_inline_data = inline_bytes;
    if (!create_extended(a) && ::rdma_create_qp(id, home_.pd, &a) != 0)
        return error::from_errno(errno, "rdma_create_qp");
    id->qp->qp_context = as_context(serial_);
    number_ = id->qp->qp_num;
    if (on().limits().raises_sigpipe)
        sigpipe_ = sigpipe_on_iwarp(*id);
    return {};
}

// Whether the provider has ibv_wr_* shows only when it is asked for a queue pair with it.
bool queue_pair::create_extended(ibv_qp_init_attr& plain) noexcept
{
    const verbs::capabilities& can = on().limits().can;
    ibv_qp_init_attr_ex a{};
    a.send_cq = plain.send_cq;
    a.recv_cq = plain.recv_cq;
    a.srq = plain.srq;
    a.cap = plain.cap;
    a.qp_type = plain.qp_type;
    a.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    a.pd = home_.pd;
    a.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
                       flag_if(can.write_with_immediate, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) |
                       flag_if(can.send_with_immediate, IBV_QP_EX_WITH_SEND_WITH_IMM) |
                       flag_if(can.remote_invalidate, IBV_QP_EX_WITH_SEND_WITH_INV) |
                       flag_if(can.local_invalidate, IBV_QP_EX_WITH_LOCAL_INV) |
                       flag_if(can.renewable_grants || on().limits().grants == grant_kind::type_2_window,
                               IBV_QP_EX_WITH_BIND_MW);
    if (::rdma_create_qp_ex(id_, &a) != 0)
        return false;
    extended_ = ::ibv_qp_to_qp_ex(id_->qp);
    return true;
}

void queue_pair::give_up() noexcept
{
    extended_ = nullptr;
    ::rdma_destroy_qp(id_);
    id_ = nullptr;
}

void queue_pair::open(std::uint32_t ord) noexcept
{
    ord_ = ord;
    state_ = state::open;
    add(owner_.counts().connected, 1);
    add(owner_.counts().extended, extended_ != nullptr ? 1 : 0);
    add(owner_.counts().active, 1);
    home_.pairs.push_back(this);
    if (!on().limits().iwarp) {
        // The connection manager leaves 655 ms, for which a peer would wait after each "receiver not ready".
        ibv_qp_attr a{};
        a.min_rnr_timer = 12; // 0.64 ms
        (void)::ibv_modify_qp(id_->qp, &a, IBV_QP_MIN_RNR_TIMER);
    }
    // What came before the connection manager said so.
    if (!batch_.empty())
        owner_.ready(*this);
}

// --- completions ---

void queue_pair::take(const ibv_wc& wc, const work_id& id) noexcept
{
    if (state_ == state::closed) {
        add(owner_.counts().stale_completions, 1);
        return;
    }
    if (wc.status != IBV_WC_SUCCESS) {
        failed(wc);
        return;
    }
    if (id.what == work_id::kind::send) {
        take_send(id.index);
    } else if (id.what == work_id::kind::shared) {
        take_receive(wc, shared_->take(id.index));
    } else {
        // Receives complete in order.
        if (receives_.empty() || static_cast<std::uint32_t>(receives_.head()) != id.index) {
            add(owner_.counts().stale_completions, 1);
            return;
        }
        const std::uint64_t front = receives_.front();
        receives_.pop();
        take_receive(wc, front);
    }
}

// siw tells of a Send before the RDMA Read in front of it, so there each Read is signalled.
bool queue_pair::tells_itself(verbs::opcode o) noexcept
{
    return o == verbs::opcode::rdma_read && on().limits().iwarp;
}

// Unsignalled ones before it are over too. Each is told of when those before it are.
void queue_pair::take_send(std::uint32_t index) noexcept
{
    const auto ahead = static_cast<std::uint32_t>(index - static_cast<std::uint32_t>(sends_.head()));
    if (ahead >= sends_.size()) {
        add(owner_.counts().stale_completions, 1);
        return;
    }
    const std::uint64_t newest = sends_.head() + ahead;
    sends_.at(newest).done = true;
    newest_told_ = std::max(newest_told_, newest);
    while (!sends_.empty()) {
        const work w = sends_.front();
        const bool implied = sends_.head() < newest_told_ && !w.signalled && !tells_itself(w.op);
        if (!w.done && !implied)
            break;
        sends_.pop();
        retire_send(w, verbs::status::success);
    }
    if (state_ == state::draining && sends_.empty())
        end_soon(end_cause::orderly, end_error_);
}

void queue_pair::retire_send(const work& w, verbs::status s) noexcept
{
    const bool good = s == verbs::status::success;
    if (w.internal) {
        --internal_used_;
        if (w.outcome != nullptr) {
            w.outcome->good = good;
            w.outcome->done.set();
        }
        home_.moved.set();
        return;
    }
    if (good && w.op == verbs::opcode::local_invalidate)
        domain_.invalidated(w.key, part_);
    if (good && w.op == verbs::opcode::unbind && w.grant->key_ == w.key) // it was not bound again
        w.grant->standing_ = false;
    if (good && !w.signalled)
        return;
    verbs::completion c;
    c.id = w.id;
    c.opcode = w.op;
    c.status = s;
    c.length = good ? w.length : 0;
    if (!good && s != verbs::status::work_request_flushed)
        c.vendor_error = failed_vendor_;
    complete(c);
}

void queue_pair::take_receive(const ibv_wc& wc, std::uint64_t id) noexcept
{
    verbs::completion c;
    c.id = id;
    c.opcode = verbs::opcode::receive;
    c.length = wc.byte_len;
    if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        c.opcode = verbs::opcode::receive_immediate;
        c.immediate = ntohl(wc.imm_data);
    } else if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) {
        c.opcode = verbs::opcode::receive_with_immediate;
        c.immediate = ntohl(wc.imm_data);
    }
    if ((wc.wc_flags & on().limits().invalidate_flags) != 0) {
        c.invalidated_key = wc.invalidated_rkey;
        domain_.invalidated(wc.invalidated_rkey, part_);
    }
    complete(c);
}

// The first one names the cause. Its request is reported at the end, in its place, when nothing touches the memory of
// those around it any more.
void queue_pair::failed(const ibv_wc& wc) noexcept
{
    const work_id id(wc.wr_id);
    if (id.what == work_id::kind::shared) {
        verbs::completion c;
        c.id = shared_->take(id.index);
        c.opcode = verbs::opcode::receive;
        c.status = status_of(wc.status);
        complete(c);
    } else if (!first_failed_ && wc.status != IBV_WC_WR_FLUSH_ERR) {
        const bool receive = id.what != work_id::kind::send;
        first_failed_ = true;
        failed_receive_ = receive;
        failed_status_ = status_of(wc.status);
        failed_vendor_ = wc.vendor_err;
        const std::uint64_t head = receive ? receives_.head() : sends_.head();
        failed_index_ = head + static_cast<std::uint32_t>(id.index - static_cast<std::uint32_t>(head));
        if (state_ == state::ending)
            return;
        end_soon(end_cause::completion_error,
                 error(make_error_code(failed_status_), "a work request failed", wc.vendor_err));
        return;
    }
    broke();
}

void queue_pair::broke() noexcept
{
    // The flush of a queue pair that the peer closed may come before the connection manager tells of that (siw).
    if (state_ == state::open || state_ == state::starting) {
        if (!timer::is_armed())
            owner_.shard().timers().arm(*this, owner_.shard().clock().now() + manager_delay);
    } else if (state_ == state::draining) {
        end_soon(end_cause::orderly, end_error_);
    }
}

void queue_pair::complete(const verbs::completion& c)
{
    batch_.push_back(c);
    owner_.ready(*this);
}

// The handler may post. It may end the connection too: the flush then follows the batch that it is looking at.
void queue_pair::deliver() noexcept
{
    if (delivering_ || batch_.empty() || state_ == state::starting)
        return;
    const bool was_up = state_ != state::closed;
    delivering_ = true;
    std::vector<verbs::completion> batch;
    batch.swap(batch_);
    if (handler_ != nullptr)
        handler_->on_completions(batch);
    batch.clear();
    delivering_ = false;
    if (was_up && state_ == state::closed)
        tell_end();
    else if (batch_.empty())
        batch_.swap(batch); // keeps the capacity: no allocation in steady state
    else
        owner_.ready(*this);
}

// --- the end ---

void queue_pair::on_cm_event(cm_event& e) noexcept
{
    switch (e.what) {
    case RDMA_CM_EVENT_DISCONNECTED:
        // What the peer sent before lies in the completion queue.
        (void)on().poll(true);
        if (state_ == state::draining)
            end_soon(end_cause::orderly, end_error_);
        else
            end_soon(end_cause::orderly,
                     error(verbs::connection_end::orderly, "the peer closed the connection"));
        break;
    case RDMA_CM_EVENT_DEVICE_REMOVAL: owner_.lose(on().verbs()); break;
    default: break;
    }
}

void queue_pair::disconnect() noexcept
{
    if (state_ == state::starting) {
        end_soon(end_cause::local,
                 error(std::errc::connection_aborted, "disconnected before it was connected"));
        return;
    }
    if (state_ != state::open)
        return;
    state_ = state::draining;
    end_error_ = error(verbs::connection_end::orderly, "closed by this end");
    home_.moved.set();
    if (sends_.empty())
        end_soon(end_cause::orderly, end_error_);
    else
        owner_.shard().timers().arm(*this, owner_.shard().clock().now() + owner_.options().close_timeout);
}

// A close that takes too long, or a flush that nobody explained.
void queue_pair::on_timer() noexcept
{
    if (state_ == state::draining)
        end_soon(end_cause::orderly, end_error_);
    else
        end_soon(end_cause::completion_error, error(std::errc::connection_reset, "the queue pair broke"));
}

void queue_pair::begin_end(end_cause cause, const error& e) noexcept
{
    const bool stood = state_ != state::starting;
    if (stood)
        add(owner_.counts().active, std::uint64_t(-1));
    std::erase(home_.pairs, this);
    state_ = state::ending;
    end_ = stood || cause != end_cause::local ? cause : end_cause::setup_failed;
    end_error_ = e;
    timer::cancel();
    // Whoever heard of its events during set-up may go before the connection manager has said the last of them, and needs to
    // wait no longer.
    if (id_ != nullptr) {
        auto* const sets_up =
            static_cast<cm_handler*>(std::exchange(id_->context, static_cast<cm_handler*>(this)));
        cm_event over{RDMA_CM_EVENT_DISCONNECTED, 0, id_, {}, 0, 0};
        if (!stood && sets_up != nullptr && sets_up != this)
            sets_up->on_cm_event(over);
    }
    if (watcher_ != nullptr)
        *std::exchange(watcher_, nullptr) = nullptr;
    home_.moved.set();
    // Windows go before the queue pair that they are bound to: rxe counts references. Their grants stand until then.
    for (memory_grant* g = windows_.front(); g != nullptr; g = windows_.next(*g)) {
        if (g->window_ != nullptr)
            bound_.push_back(std::exchange(g->window_, nullptr));
    }
}

// On a pool thread: the kernel waits until the device has let go of the memory.
void queue_pair::end_soon(end_cause cause, const error& e) noexcept
{
    if (state_ == state::ending || state_ == state::closed)
        return;
    begin_end(cause, e);
    if (!lent_)
        take_down_on_pool();
}

void queue_pair::take_down_on_pool() noexcept
{
    detach();
    taking_down_ = new take_down(*this);
    owner_.pool().submit(*taking_down_, owner_.shard());
}

void queue_pair::lend_no_more() noexcept
{
    lent_ = false;
    if (state_ == state::ending)
        take_down_on_pool();
}

void queue_pair::end_now(end_cause cause, const error& e) noexcept
{
    if (state_ == state::closed)
        return;
    if (state_ == state::ending) {
        // Under way on a pool thread, which has no need of this shard.
        std::exchange(taking_down_, nullptr)->join();
    } else {
        begin_end(cause, e);
        detach();
        release();
    }
    finish();
}

void queue_pair::take_down::execute() noexcept
{
    if (taken_.exchange(true))
        return;
    queue_pair_->release();
    over_.release();
}

void queue_pair::take_down::wait() noexcept
{
    if (taken_.exchange(true))
        over_.acquire();
    else
        queue_pair_->release();
    over_.release();
}

void queue_pair::take_down::join() noexcept
{
    wait();
    queue_pair_ = nullptr;
}

void queue_pair::cut_off() noexcept
{
    if (taking_down_ != nullptr)
        taking_down_->wait();
}

void queue_pair::take_down::deliver() noexcept
{
    const std::unique_ptr<take_down> self(this);
    if (queue_pair_ == nullptr)
        return;
    queue_pair_->taking_down_ = nullptr;
    queue_pair_->finish();
}

// On the shard. Of a peer that rejects or answers late librdmacm changes the queue pair while it gets the event, here, and a
// pool thread destroys it meanwhile: so the id has none any more.
void queue_pair::detach() noexcept
{
    if (id_ != nullptr && id_->qp != nullptr)
        going_ = std::exchange(id_->qp, nullptr);
}

// Nobody touches the memory of this queue pair's requests when it returns.
void queue_pair::release() noexcept
{
    if (id_ == nullptr)
        return;
    const sigpipe_guard no_signal(sigpipe_);
    if (going_ != nullptr && !on().limits().iwarp) {
        // As rdma_disconnect() does to a queue pair that the id has. On iWARP the kernel's connection manager does it.
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_ERR;
        (void)::ibv_modify_qp(going_, &a, IBV_QP_STATE);
    }
    (void)::rdma_disconnect(id_);
    for (ibv_mw* w : bound_)
        (void)::ibv_dealloc_mw(w);
    bound_.clear();
    if (going_ != nullptr)
        (void)::ibv_destroy_qp(going_);
    going_ = nullptr;
    (void)::rdma_destroy_id(id_);
    id_ = nullptr;
}

void queue_pair::finish() noexcept
{
    if (state_ == state::closed)
        return;
    // What had finished before counts as finished.
    (void)on().poll(true);
    state_ = state::closed;
    while (memory_grant* g = windows_.pop_front()) {
        g->standing_ = false;
        g->scope_ = nullptr;
    }
    home_.moved.set();
    domain_.note_pair_over();
    hold_.end();
    owner_.count(end_);
    std::uint64_t index = sends_.head();
    for (; !sends_.empty(); ++index) {
        const work w = sends_.front();
        sends_.pop();
        const bool is_first = first_failed_ && !failed_receive_ && index == failed_index_;
        const bool before = first_failed_ && !failed_receive_ && index < failed_index_;
        verbs::status told = verbs::status::work_request_flushed;
        if (is_first)
            told = failed_status_;
        else if (w.done || (before && !w.signalled)) // unsignalled: as far as anybody can tell
            told = verbs::status::success;
        retire_send(w, told);
    }
    verbs::completion c;
    c.opcode = verbs::opcode::receive;
    for (index = receives_.head(); !receives_.empty(); ++index) {
        c.id = receives_.front();
        receives_.pop();
        c.status = first_failed_ && failed_receive_ && index == failed_index_
                       ? failed_status_
                       : verbs::status::work_request_flushed;
        complete(c);
    }
    if (!delivering_)
        tell_end();
}

void queue_pair::tell_end() noexcept
{
    deliver();
    if (handler_ != nullptr)
        handler_->on_disconnected(end_error_);
}

} // namespace verbena::rdma
