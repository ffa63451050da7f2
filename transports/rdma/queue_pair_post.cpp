// SPDX-License-Identifier: Apache-2.0
// What is posted to a queue pair.
#include "queue_pair.hpp"

#include "context.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <bit>
#include <cstring>

namespace verbena::rdma {
namespace {

constexpr std::size_t chain = 32; // requests of one doorbell

ibv_wr_opcode opcode_of(verbs::opcode o) noexcept
{
    switch (o) {
    case verbs::opcode::send_with_invalidate: return IBV_WR_SEND_WITH_INV;
    case verbs::opcode::rdma_write: return IBV_WR_RDMA_WRITE;
    case verbs::opcode::write_with_immediate: return IBV_WR_RDMA_WRITE_WITH_IMM;
    case verbs::opcode::send_with_immediate: return IBV_WR_SEND_WITH_IMM;
    case verbs::opcode::rdma_read: return IBV_WR_RDMA_READ;
    case verbs::opcode::local_invalidate: return IBV_WR_LOCAL_INV;
    case verbs::opcode::bind:
    case verbs::opcode::unbind: return IBV_WR_BIND_MW;
    default: return IBV_WR_SEND;
    }
}

void put_data(ibv_qp_ex& q, const ibv_send_wr& w) noexcept
{
    const std::span all(w.sg_list, static_cast<std::size_t>(w.num_sge));
    if ((w.send_flags & IBV_SEND_INLINE) == 0) {
        ::ibv_wr_set_sge_list(&q, all.size(), all.data());
        return;
    }
    // As one piece: rxe's provider (rdma-core 44) loses the length of a list. Taken before this returns.
    std::array<std::byte, inline_bytes> data;
    std::size_t filled = 0;
    for (const ibv_sge& s : all) {
        std::memcpy(data.data() + filled, std::bit_cast<const void*>(static_cast<std::uintptr_t>(s.addr)),
                    s.length);
        filled += s.length;
    }
    ::ibv_wr_set_inline_data(&q, data.data(), filled);
}

void put(ibv_qp_ex& q, const ibv_send_wr& w) noexcept
{
    q.wr_id = w.wr_id;
    q.wr_flags = w.send_flags;
    switch (w.opcode) {
    case IBV_WR_BIND_MW: ::ibv_wr_bind_mw(&q, w.bind_mw.mw, w.bind_mw.rkey, &w.bind_mw.bind_info); return;
    case IBV_WR_LOCAL_INV: ::ibv_wr_local_inv(&q, w.invalidate_rkey); return;
    case IBV_WR_RDMA_WRITE: ::ibv_wr_rdma_write(&q, w.wr.rdma.rkey, w.wr.rdma.remote_addr); break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        ::ibv_wr_rdma_write_imm(&q, w.wr.rdma.rkey, w.wr.rdma.remote_addr, w.imm_data);
        break;
    case IBV_WR_RDMA_READ: ::ibv_wr_rdma_read(&q, w.wr.rdma.rkey, w.wr.rdma.remote_addr); break;
    case IBV_WR_SEND_WITH_IMM: ::ibv_wr_send_imm(&q, w.imm_data); break;
    case IBV_WR_SEND_WITH_INV: ::ibv_wr_send_inv(&q, w.invalidate_rkey); break;
    default: ::ibv_wr_send(&q); break;
    }
    put_data(q, w);
}

} // namespace

int queue_pair::submit(ibv_send_wr* first) noexcept
{
    add(owner_.counts().doorbells, 1);
    const sigpipe_guard no_signal(sigpipe_);
    // rxe's provider (rdma-core 44) adds up lists of segments wrongly; the two ways may be mixed by the batch.
    bool lists = false;
    for (const ibv_send_wr* w = first; w != nullptr; w = w->next)
        lists = lists || (w->num_sge > 1 && (w->send_flags & IBV_SEND_INLINE) == 0);
    if (extended_ == nullptr || (lists && on().limits().lists_miscounted)) {
        ibv_send_wr* bad = nullptr;
        return ::ibv_post_send(id_->qp, first, &bad);
    }
    ::ibv_wr_start(extended_);
    for (const ibv_send_wr* w = first; w != nullptr; w = w->next)
        put(*extended_, *w);
    return ::ibv_wr_complete(extended_);
}

result<void> queue_pair::check(const verbs::send_request& r) const
{
    const verbs::capabilities& can = home_.on.limits().can;
    if (r.segments.size() > can.max_send_segments)
        return error(std::errc::argument_list_too_long, "segments of a work request", r.segments.size());
    if (is_receive(r.opcode))
        return error(std::errc::invalid_argument, "a receive is not for the send queue");
    if (r.opcode == verbs::opcode::rdma_read &&
        (r.segments.empty() || r.segments.size() > can.max_read_segments || ord_ == 0))
        return error(std::errc::invalid_argument,
                     "an RDMA Read takes 1 to max_read_segments segments and an ORD above 0");
    if ((r.opcode == verbs::opcode::write_with_immediate && !can.write_with_immediate) ||
        (r.opcode == verbs::opcode::send_with_immediate && !can.send_with_immediate) ||
        (r.opcode == verbs::opcode::local_invalidate && !can.local_invalidate) ||
        (r.opcode == verbs::opcode::send_with_invalidate && !can.remote_invalidate))
        return error(std::errc::operation_not_supported, "the device has no such work request");
    if (is_renewal(r.opcode) &&
        (r.grant == nullptr || r.grant->slot() == nullptr ||
         !static_cast<memory_grant*>(r.grant->slot())->is_renewable_in(domain_, home_)))
        return error(std::errc::invalid_argument, "bind and unbind are of a renewable grant of the domain");
    std::uint64_t length = 0;
    for (const auto& s : r.segments)
        length += s.length;
    if (length > can.max_message)
        return error(std::errc::message_size, "message length", length);
    if (r.inline_data && (length > can.max_inline || r.opcode == verbs::opcode::rdma_read))
        return error(std::errc::message_size, "inline data of a Send or Write, up to max_inline", length);
    return {};
}

result<void> queue_pair::post_send(std::span<const verbs::send_request> batch)
{
    if (state_ != state::open)
        return error(std::errc::not_connected, "post_send on a queue pair that is not connected");
    if (batch.size() > send_depth_ || sends_.size() - internal_used_ > send_depth_ - batch.size())
        return error(std::errc::no_buffer_space, "send queue is full", sends_.size());
    for (const auto& r : batch) {
        if (auto good = check(r); !good)
            return good;
    }
    std::array<ibv_send_wr, chain> requests;
    std::array<std::array<ibv_sge, 4>, chain> segments;
    for (std::size_t begin = 0; begin < batch.size(); begin += chain) {
        const auto part = batch.subspan(begin, std::min(chain, batch.size() - begin));
        std::size_t unreachable =
            part.size(); // names memory that is not registered: the queue pair ends with it
        for (std::size_t i = 0; i < part.size() && unreachable == part.size(); ++i) {
            const verbs::send_request& r = part[i];
            ibv_send_wr& w = requests[i];
            w = {};
            w.wr_id = next_send_id(i);
            w.next = i + 1 < part.size() ? &requests[i + 1] : nullptr;
            w.opcode = opcode_of(r.opcode);
            const bool told = r.signalled || tells_itself(r.opcode);
            w.send_flags = flag_if(told, IBV_SEND_SIGNALED) | flag_if(r.fence, IBV_SEND_FENCE);
            std::uint32_t length = 0;
            for (const auto& s : r.segments)
                length += s.length;
            const bool small = length <= inline_bytes && length != 0 && r.opcode != verbs::opcode::rdma_read;
            if (r.inline_data || small)
                w.send_flags |= IBV_SEND_INLINE;
            for (const auto& s : r.segments) {
                if (s.length == 0)
                    continue;
                ibv_sge& e = segments[i][static_cast<std::size_t>(w.num_sge++)];
                e = {reinterpret_cast<std::uint64_t>(s.address), s.length, 0};
                if (!domain_.find_key(s, part_, e.lkey) && !r.inline_data)
                    unreachable = i;
            }
            w.sg_list = segments[i].data();
            switch (r.opcode) {
            case verbs::opcode::rdma_write:
            case verbs::opcode::rdma_read:
            case verbs::opcode::write_with_immediate:
                w.wr.rdma.remote_addr = r.remote_address;
                w.wr.rdma.rkey = r.remote_key;
                w.imm_data = htonl(r.immediate);
                break;
            case verbs::opcode::bind:
            case verbs::opcode::unbind: {
                // By a bind of nothing, which names the region all the same: rxe's provider reads it.
                const auto& g = static_cast<const memory_grant&>(*r.grant->slot());
                const bool stands = r.opcode == verbs::opcode::bind;
                w.bind_mw.mw = g.window_;
                w.bind_mw.rkey = ::ibv_inc_rkey(g.window_->rkey);
                w.bind_mw.bind_info = {g.over_, reinterpret_cast<std::uint64_t>(g.memory_.data()),
                                       stands ? g.memory_.size() : 0, stands ? g.rights_ : 0};
                break;
            }
            case verbs::opcode::send_with_immediate: w.imm_data = htonl(r.immediate); break;
            case verbs::opcode::send_with_invalidate:
            case verbs::opcode::local_invalidate: w.invalidate_rkey = r.invalidate_key; break;
            default: break;
            }
        }
        int failed = 0;
        if (unreachable != 0) {
            if (unreachable != part.size())
                requests[unreachable - 1].next = nullptr;
            failed = submit(requests.data());
        }
        const std::uint64_t first = sends_.tail();
        const bool broken = failed != 0 || unreachable != part.size();
        // What the device has seen of a batch that fails can't be called back, so all of it counts as posted and is
        // flushed when the device has let go.
        for (const auto& r : broken ? batch.subspan(begin) : part) {
            work& w = sends_.push();
            w = {r.id, r.opcode, r.signalled, false, false, 0, r.invalidate_key, nullptr, nullptr};
            if (is_renewal(r.opcode)) {
                // The provider leaves the new key to us.
                memory_grant& g = *(w.grant = static_cast<memory_grant*>(r.grant->slot()));
                w.key = g.key_ = g.window_->rkey = ::ibv_inc_rkey(g.window_->rkey);
                g.standing_ = true; // of one that is unbound: until that is over
            }
            for (const auto& s : r.segments)
                w.length += s.length;
        }
        if (failed != 0) {
            end_soon(end_cause::local, error::from_errno(failed, "post a batch"));
            return {};
        }
        if (broken) {
            first_failed_ = true;
            failed_index_ = first + unreachable;
            failed_status_ = verbs::status::local_protection_error;
            end_soon(end_cause::completion_error,
                     error(std::errc::bad_address, "a segment outside of the memory that its key names"));
            return {};
        }
    }
    return {};
}

result<void> queue_pair::post_internal(std::span<ibv_send_wr> requests, internal_outcome* outcome)
{
    if (state_ != state::open)
        return error(std::errc::not_connected, "the queue pair is not connected");
    for (std::size_t i = 0; i < requests.size(); ++i) {
        const bool last = i + 1 == requests.size();
        requests[i].wr_id = next_send_id(i);
        requests[i].next = last ? nullptr : &requests[i + 1];
        requests[i].send_flags = flag_if(last, IBV_SEND_SIGNALED);
    }
    if (const int failed = submit(requests.data()); failed != 0) {
        const error e = error::from_errno(failed, "post a window's request");
        end_soon(end_cause::local, e);
        return e;
    }
    for (std::size_t i = 0; i < requests.size(); ++i)
        note_internal(i + 1 == requests.size(), outcome);
    return {};
}

// Each is a doorbell of its own: type 1 has no form that could stand in a list.
result<void> queue_pair::bind_type_1(std::span<const type_1_bind> binds, internal_outcome* outcome)
{
    for (std::size_t i = 0; i < binds.size(); ++i) {
        const bool last = i + 1 == binds.size();
        ibv_mw_bind b{};
        b.wr_id = next_send_id(0);
        b.send_flags = flag_if(last, IBV_SEND_SIGNALED);
        b.bind_info = binds[i].to;
        add(owner_.counts().doorbells, 1);
        const sigpipe_guard no_signal(sigpipe_);
        if (const int failed = ::ibv_bind_mw(id_->qp, binds[i].window, &b); failed != 0) {
            const error e = error::from_errno(failed, "ibv_bind_mw");
            end_soon(end_cause::local, e);
            return e;
        }
        note_internal(last, outcome);
    }
    return {};
}

std::uint64_t queue_pair::next_send_id(std::size_t ahead) const noexcept
{
    return work_id::make(work_id::kind::send, generation_, slot_,
                         static_cast<std::uint32_t>(sends_.tail() + ahead));
}

// `outcome` is that of the one that is signalled.
void queue_pair::note_internal(bool signalled, internal_outcome* outcome)
{
    sends_.push() = {0, verbs::opcode::local_invalidate, signalled, true, false, 0,
                     0, signalled ? outcome : nullptr,   nullptr};
    ++internal_used_;
}

result<void> queue_pair::post_receive(std::span<const verbs::receive_request> batch)
{
    if (state_ != state::open && state_ != state::starting)
        return error(std::errc::not_connected, "post_receive on a queue pair that has ended");
    if (shared_ != nullptr)
        return error(std::errc::invalid_argument, "this queue pair takes its receives from a shared queue");
    if (batch.size() > receives_.room())
        return error(std::errc::no_buffer_space, "receive queue is full", receives_.size());
    if (const auto known = domain_.check_receives(batch, part_); !known)
        return known.error();
    int failed = 0;
    for (const auto& r : batch) {
        if (failed != 0) { // flushed with the others
            receives_.push(r.id);
            continue;
        }
        ibv_sge sge{reinterpret_cast<std::uint64_t>(r.segment.address), r.segment.length, 0};
        if (r.segment.length != 0)
            (void)domain_.find_key(r.segment, part_, sge.lkey);
        ibv_recv_wr w{};
        w.wr_id = work_id::make(work_id::kind::receive, generation_, slot_,
                                static_cast<std::uint32_t>(receives_.tail()));
        w.sg_list = &sge;
        w.num_sge = r.segment.length != 0;
        ibv_recv_wr* bad = nullptr;
        failed = ::ibv_post_recv(id_->qp, &w, &bad);
        receives_.push(r.id);
    }
    // Last, since a pool thread destroys the queue pair from then on.
    if (failed != 0)
        end_soon(end_cause::local, error::from_errno(failed, "ibv_post_recv"));
    return {};
}

} // namespace verbena::rdma
