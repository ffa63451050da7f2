// SPDX-License-Identifier: Apache-2.0
#include "queue_pair.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace verbena::loop {
namespace {

// Gathers or scatters `size` bytes between one range and the segments.
template<class Copy>
void walk(std::span<const verbs::segment> segments, std::size_t size, Copy copy) noexcept
{
    std::size_t offset = 0;
    for (const verbs::segment& s : segments) {
        const std::size_t part = std::min<std::size_t>(s.length, size - offset);
        if (part != 0)
            copy(offset, s.address, part);
        offset += part;
    }
}

// What no peer sees.
constexpr bool is_local(verbs::opcode o) noexcept
{
    return o == verbs::opcode::local_invalidate || is_renewal(o);
}

bool is_renewable(const verbs::grant& g, const domain& d) noexcept
{
    const auto* const slot = static_cast<const steering::record*>(g.slot());
    return slot != nullptr && slot->is_renewable_of(d);
}

error closed_by_this_end() { return {verbs::connection_end::orderly, "closed by this end"}; }

} // namespace

queue_pair::queue_pair(context_impl& owner, loop::domain& d, const verbs::queue_pair_options& o,
                       std::string peer_name, std::string peer_address)
    : owner_(owner),
      domain_(d),
      number_(++owner.fabric().stats().connections),
      peer_name_(std::move(peer_name)),
      peer_address_(std::move(peer_address)),
      sends_(o.send_depth),
      shared_(static_cast<shared_receives*>(o.shared_receives)),
      receives_(shared_ != nullptr ? max_taken : o.receive_depth)
{
    sends_.preallocate();
    receives_.preallocate();
    owner.add(*this);
}

queue_pair::~queue_pair()
{
    handler_ = nullptr;
    finish(error(std::errc::connection_aborted, "queue pair destroyed"), none, {});
    owner_.remove(*this);
}

void queue_pair::open(std::uint32_t ord) noexcept
{
    ord_ = ord;
    state_ = state::open;
    ++owner_.fabric().stats().active;
    owner_.fabric().note(now(), fabric_impl::happening::connected, number_, 0, ord);
}

void queue_pair::link(queue_pair& a, queue_pair& b) noexcept
{
    a.peer_ = &b;
    b.peer_ = &a;
    a.linked_ = b.linked_ = true;
    a.owner_.port().ready(a);
    b.owner_.port().ready(b);
}

result<void> queue_pair::post_send(std::span<const verbs::send_request> batch)
{
    if (state_ != state::open)
        return error(std::errc::not_connected, "post_send on a queue pair that is not connected");
    const verbs::capabilities& can = owner_.query();
    const auto is_halved = [&can](const verbs::send_request& r) {
        return r.opcode == verbs::opcode::send_with_immediate && can.immediates_apart;
    };
    const auto entries = batch.size() + static_cast<std::size_t>(std::ranges::count_if(batch, is_halved));
    if (entries > sends_.room())
        return error(std::errc::no_buffer_space, "send queue is full", sends_.size());
    for (const auto& r : batch) {
        if (r.segments.size() > can.max_send_segments)
            return error(std::errc::argument_list_too_long, "segments of a work request", r.segments.size());
        if (r.opcode == verbs::opcode::rdma_read &&
            (r.segments.empty() || r.segments.size() > can.max_read_segments || ord_ == 0))
            return error(std::errc::invalid_argument,
                         "an RDMA Read takes 1 to max_read_segments segments and an ORD above 0");
        if (is_receive(r.opcode))
            return error(std::errc::invalid_argument, "a receive is not for the send queue");
        if (r.opcode == verbs::opcode::send_with_invalidate && !can.remote_invalidate)
            return error(std::errc::operation_not_supported, "the provider has no Send with Invalidate");
        if (r.opcode == verbs::opcode::local_invalidate && !can.local_invalidate)
            return error(std::errc::operation_not_supported, "the provider has no local invalidate");
        if (r.opcode == verbs::opcode::write_with_immediate && !can.write_with_immediate)
            return error(std::errc::operation_not_supported, "the provider has no Write with Immediate");
        if (r.opcode == verbs::opcode::send_with_immediate && !can.send_with_immediate)
            return error(std::errc::operation_not_supported, "the provider has no Send with Immediate");
        if (is_renewal(r.opcode) && !can.renewable_grants)
            return error(std::errc::operation_not_supported, "the provider can't renew a grant");
        if (is_renewal(r.opcode) && (r.grant == nullptr || !is_renewable(*r.grant, domain_)))
            return error(std::errc::invalid_argument,
                         "bind and unbind are of a renewable grant of the domain");
        std::uint64_t length = 0;
        for (const auto& s : r.segments)
            length += s.length;
        if (length > can.max_message)
            return error(std::errc::message_size, "message length", length);
        if (r.inline_data && (length > can.max_inline || r.opcode == verbs::opcode::rdma_read))
            return error(std::errc::message_size, "inline data of a Send or Write, up to max_inline", length);
    }
    for (const auto& r : batch) {
        if (!is_halved(r)) {
            push(r, r.opcode);
            continue;
        }
        verbs::send_request half = r;
        half.signalled = false;
        push(half, verbs::opcode::send);
        half.segments = {};
        half.signalled = r.signalled;
        push(half, verbs::opcode::write_with_immediate);
        sends_.at(sends_.tail() - 1).told = r.opcode;
    }
    owner_.port().ready(*this);
    return {};
}

void queue_pair::push(const verbs::send_request& r, verbs::opcode op)
{
    fabric_impl& f = owner_.fabric();
    work& w = sends_.push();
    w.id = r.id;
    w.op = w.told = op;
    w.signalled = r.signalled;
    w.fence = r.fence;
    w.lost = w.has_bytes = false;
    w.waits = 0;
    w.segment_count = static_cast<std::uint8_t>(r.segments.size());
    std::uint32_t length = 0;
    for (std::size_t i = 0; i < r.segments.size(); ++i) {
        w.segments[i] = r.segments[i];
        length += r.segments[i].length;
    }
    w.length = length;
    const bool invalidates =
        r.opcode == verbs::opcode::send_with_invalidate || r.opcode == verbs::opcode::local_invalidate;
    w.key = invalidates ? r.invalidate_key : r.remote_key;
    w.grant = is_renewal(op) ? static_cast<steering::record*>(r.grant->slot()) : nullptr;
    if (is_renewal(op) && owner_.query().renews_at_once)
        renew(w);
    w.remote = r.remote_address;
    w.immediate = r.immediate;
    w.is_inline = r.inline_data;
    if (r.inline_data) {
        walk(r.segments, w.length, [&w](std::size_t at, const std::byte* from, std::size_t n) {
            std::memcpy(&w.inline_data[at], from, n);
        });
        w.segment_count = 1;
        w.segments[0] = {w.inline_data.data(), w.length, 0};
    }
    duration d = duration::zero();
    if (!f.is_calm() && !is_local(op)) {
        d = f.path_delay();
        if (d < duration::zero()) {
            w.lost = true;
            d = f.conditions().retransmit_after * (f.conditions().retries + 1);
        }
    }
    w.due = last_due_ = std::max(last_due_, now() + d);
}

result<void> queue_pair::post_receive(std::span<const verbs::receive_request> batch)
{
    if (state_ != state::open && state_ != state::starting)
        return error(std::errc::not_connected, "post_receive on a queue pair that has ended");
    if (shared_ != nullptr)
        return error(std::errc::invalid_argument, "this queue pair takes its receives from a shared queue");
    if (batch.size() > receives_.room())
        return error(std::errc::no_buffer_space, "receive queue is full", receives_.size());
    for (const auto& r : batch)
        receives_.push().request = r;
    return {};
}

void queue_pair::disconnect() noexcept
{
    if (state_ == state::starting) {
        finish(error(std::errc::connection_aborted, "disconnected before it was connected"), none, {});
        return;
    }
    if (state_ != state::open)
        return;
    state_ = state::draining;
    if (!linked_)
        end_at(now(), closed_by_this_end());
    owner_.port().ready(*this);
}

void queue_pair::kill(const error& cause) noexcept { finish(cause, none, {}); }

void queue_pair::end_at(time_point when, const error& cause) noexcept
{
    if (state_ == state::closed || (ending_ && end_when_ <= when))
        return;
    ending_ = true;
    end_when_ = when;
    end_cause_ = cause;
    owner_.port().ready(*this);
}

void queue_pair::progress() noexcept
{
    if (state_ == state::closed)
        return;
    if (wants_receive_) {
        want_receive();
        if (peer_ != nullptr)
            peer_->owner_.port().ready(*peer_);
    }
    // A Read that is back makes room for one that waited for it.
    for (bool again = !over(now()); again;) {
        carry_out_due();
        again = state_ != state::closed && retire(false);
    }
    if (state_ == state::closed)
        return;
    show_receives(false);
    if (over(now())) {
        // What the peer took before the end came is acknowledged, as a stream's order has it.
        if (peer_ == nullptr && linked_)
            retire(true);
        if (state_ != state::closed)
            finish(end_cause_, none, {});
        return;
    }
    if (state_ == state::draining && linked_ && retired_ == sends_.tail()) {
        finish(closed_by_this_end(), none, {});
        return;
    }
    if (state_ != state::closed)
        arm();
    deliver();
}

// Carries out what has arrived, in order. What is on its way when a device or a connection goes does not
// arrive.
void queue_pair::carry_out_due() noexcept
{
    fabric_impl& f = owner_.fabric();
    while (executed_ != sends_.tail() && peer_ != nullptr && !peer_->over(now())) {
        work& w = sends_.at(executed_);
        if (w.due > now() || (w.fence && reads_ != 0))
            return;
        if (w.op == verbs::opcode::rdma_read && reads_ >= ord_) {
            f.stats().read_depth_waits += !std::exchange(ord_waiting_, true);
            return;
        }
        ord_waiting_ = false;
        if (carry_out(w) != verdict::done)
            return;
        ++executed_;
    }
}

queue_pair::verdict queue_pair::carry_out(work& w) noexcept
{
    fabric_impl& f = owner_.fabric();
    if (w.lost)
        return fail(executed_, verbs::status::retry_exceeded,
                    error(std::errc::timed_out, "the path to the peer is gone"));
    if (access_ != nullptr) {
        const verdict v = go_on_with_store(w);
        if (v != verdict::done)
            return v;
    } else {
        breaks_ = false;
    }
    if (!f.is_calm() && !w.has_bytes) {
        if (f.strikes(fault::device_removal)) {
            context_impl& victim = (f.next_seed() & 2) != 0 ? owner_ : peer_->owner_;
            victim.device().lose(owner_.shard(), f.conditions().removal);
            return verdict::over;
        }
        if (f.strikes(fault::disconnect)) {
            const error cause(std::errc::connection_reset, "the connection manager ended it");
            peer_->end_at(now(), cause);
            end_at(now(), cause);
            return verdict::over;
        }
        if (f.strikes(fault::flush)) {
            // Before or after the peer took the message: nobody can tell.
            const error cause(std::errc::io_error, "the queue pair broke");
            if ((f.next_seed() & 2) != 0)
                return fail(executed_, verbs::status::fatal_error, cause);
            breaks_ = true;
        }
    }
    const auto segments = std::span(w.segments).first(w.segment_count);
    for (const auto& s : segments) {
        if (!w.is_inline && !domain_.owns(s))
            return fail(executed_, verbs::status::local_protection_error,
                        error(std::errc::bad_address, "a segment outside of the memory that its key names"));
    }
    switch (w.op) {
    case verbs::opcode::bind:
    case verbs::opcode::unbind:
        if (!owner_.query().renews_at_once)
            renew(w);
        break;
    case verbs::opcode::local_invalidate:
        if (!owner_.table().invalidate(w.key, domain_, scope_))
            return fail(
                executed_, verbs::status::local_protection_error,
                error(std::errc::invalid_argument, "local invalidate of a key that is not valid here"));
        break;
    case verbs::opcode::rdma_write:
    case verbs::opcode::write_with_immediate: {
        const verdict v = w.op == verbs::opcode::rdma_write ? write(w) : immediate(w);
        if (v != verdict::done)
            return v;
        break;
    }
    case verbs::opcode::rdma_read: {
        const auto found = peer_->readable(w);
        if (w.length != 0 && found.rule != nullptr)
            return refused_by_peer(executed_, verbs::status::remote_access_error, found.rule);
        if (w.length != 0 && found.store != nullptr && !w.has_bytes) {
            const verdict v = ask_store(w);
            if (v != verdict::done)
                return v;
        }
        ++reads_;
        break;
    }
    default: {
        const verdict v = send(w);
        if (v != verdict::done)
            return v;
        break;
    }
    }
    if (!is_local(w.op)) {
        ++f.stats().messages;
        f.stats().bytes += w.length;
    }
    if (breaks_)
        return fail(executed_, verbs::status::fatal_error,
                    error(std::errc::io_error, "the queue pair broke"));
    duration back = duration::zero();
    if (!f.is_calm()) {
        back = f.path_delay();
        if (back < duration::zero()) {
            w.lost = true;
            back = f.conditions().retransmit_after * (f.conditions().retries + 1);
        }
        back += f.completion_delay();
    }
    w.done = last_done_ = std::max(last_done_, now() + back);
    return verdict::done;
}

void queue_pair::renew(const work& w) noexcept
{
    if (w.op == verbs::opcode::bind)
        w.grant->bind();
    else
        w.grant->unbind();
}

queue_pair::verdict queue_pair::not_ready(work& w) noexcept
{
    fabric_impl& f = owner_.fabric();
    ++f.stats().receiver_not_ready;
    // Until there is memory, however long that takes: as TCP holds a peer back.
    if (peer_->waiter_.is_linked() || peer_->wants_receive_)
        return verdict::wait;
    if (!owner_.query().receive_not_ready_retry || !peer_->owner_.query().receive_not_ready_retry)
        return refused_by_peer(executed_, verbs::status::remote_operation_error,
                               "Send without a posted receive");
    if (++w.waits > f.conditions().receiver_not_ready_retries)
        return fail(executed_, verbs::status::rnr_retry_exceeded,
                    error(std::errc::timed_out, "the peer posted no receive"));
    w.due = last_due_ =
        std::max(last_due_, now() + std::max(f.conditions().receiver_not_ready_wait, duration(1)));
    return verdict::wait;
}

queue_pair::verdict queue_pair::write(work& w) noexcept
{
    if (w.length == 0 || w.has_bytes)
        return verdict::done;
    const auto found = peer_->owner_.table().check(w.key, w.remote, w.length, verbs::access::remote_write,
                                                   peer_->domain_, peer_->scope_);
    if (found.rule != nullptr)
        return refused_by_peer(executed_, verbs::status::remote_access_error, found.rule);
    if (found.store != nullptr)
        return ask_store(w);
    walk(std::span(w.segments).first(w.segment_count), w.length,
         [&found](std::size_t at, const std::byte* from, std::size_t n) {
             std::memcpy(found.address + at, from, n);
         });
    return verdict::done;
}

template<class Copy>
void queue_pair::copy_piece(const work& w, Copy copy) noexcept
{
    const std::size_t begin = access_done_, end = begin + access_part_;
    std::byte* const buffer = access_->buffer().data();
    walk(std::span(w.segments).first(w.segment_count), w.length,
         [&](std::size_t at, std::byte* memory, std::size_t n) {
             const std::size_t from = std::max(at, begin), to = std::min(at + n, end);
             if (from < to)
                 copy(buffer + (from - begin), memory + (from - at), to - from);
         });
}

queue_pair::verdict queue_pair::ask_store(work& w) noexcept
{
    access_ = steering::store_access::make(owner_.shard(), *this);
    if (access_ == nullptr)
        return fail(executed_, verbs::status::fatal_error,
                    error(std::errc::not_enough_memory, "an access to a store"));
    access_done_ = access_part_ = 0;
    return begin_piece(w);
}

queue_pair::verdict queue_pair::begin_piece(work& w) noexcept
{
    const bool reads = w.op == verbs::opcode::rdma_read;
    // The grant may have gone since the last piece.
    const auto found =
        reads ? peer_->readable(w)
              : peer_->owner_.table().check(w.key, w.remote, w.length, verbs::access::remote_write,
                                            peer_->domain_, peer_->scope_);
    if (found.rule != nullptr || found.store == nullptr)
        return refused_by_peer(executed_, verbs::status::remote_access_error,
                               found.rule != nullptr ? found.rule : "a key that names something else by now");
    if (!access_->has_buffer()) {
        auto b = owner_.store_memory().take(w.length - access_done_, buffer_place_);
        if (!b)
            return verdict::wait;
        access_->put(std::move(b));
    }
    access_part_ =
        static_cast<std::uint32_t>(std::min<std::size_t>(w.length - access_done_, access_->buffer().size()));
    access_how_ = steering::store_progress::under_way;
    if (reads) {
        access_->read(*found.store, w.remote + access_done_, access_part_);
        return verdict::wait;
    }
    copy_piece(
        w, [](std::byte* buffer, const std::byte* memory, std::size_t n) { std::memcpy(buffer, memory, n); });
    access_->write(*found.store, w.remote + access_done_, access_part_);
    return verdict::wait;
}

// What the store could not take is dropped, and it remembers that.
queue_pair::verdict queue_pair::go_on_with_store(work& w) noexcept
{
    const bool reads = w.op == verbs::opcode::rdma_read;
    if (access_part_ == 0)
        return buffer_place_.is_linked() ? verdict::wait : begin_piece(w);
    if (access_how_ == steering::store_progress::under_way)
        return verdict::wait;
    if (access_how_ == steering::store_progress::lost)
        return fail(executed_, verbs::status::fatal_error,
                    error(std::errc::not_enough_memory, "an access to a store"));
    if (reads && access_how_ == steering::store_progress::failed)
        return refused_by_peer(executed_, verbs::status::remote_operation_error, "a store can't be read");
    if (reads)
        copy_piece(w, [](const std::byte* buffer, std::byte* memory, std::size_t n) {
            std::memcpy(memory, buffer, n);
        });
    access_->release();
    access_done_ += std::exchange(access_part_, 0);
    if (access_done_ != w.length)
        return begin_piece(w);
    access_.reset();
    w.has_bytes = true;
    return verdict::done;
}

void queue_pair::buffer_place::give(steering::store_buffer b) noexcept
{
    queue_pair_.access_->put(std::move(b));
    queue_pair_.owner_.port().ready(queue_pair_);
}

void queue_pair::access_over(steering::store_progress how) noexcept
{
    access_how_ = how;
    owner_.port().ready(*this);
}

queue_pair::receive* queue_pair::next_receive() noexcept
{
    queue_pair& to = *peer_;
    fabric_impl& f = owner_.fabric();
    // An injected one is worth a retry; where there is none it would only be another disconnect.
    const bool retries = owner_.query().receive_not_ready_retry && to.owner_.query().receive_not_ready_retry;
    if (!f.is_calm() && retries && f.strikes(fault::receiver_not_ready))
        return nullptr;
    // One that waits for a receive has asked.
    if (to.filled_ == to.receives_.tail() && to.shared_ != nullptr && to.receives_.room() != 0 &&
        !to.waiter_.is_linked()) {
        // Who supplies it has a shard.
        if (!to.is_supplied() || to.owner_.shard().is_here()) {
            to.want_receive();
        } else if (!std::exchange(to.wants_receive_, true)) {
            to.owner_.port().ready(to);
        }
    }
    return to.filled_ == to.receives_.tail() ? nullptr : &to.receives_.at(to.filled_);
}

void queue_pair::want_receive() noexcept
{
    wants_receive_ = false;
    if (filled_ != receives_.tail() || waiter_.is_linked())
        return;
    verbs::receive_request taken;
    if (shared_->take(taken))
        receives_.push().request = taken;
    else if (is_supplied())
        shared_->wait(waiter_);
}

void queue_pair::waiter::give(const verbs::receive_request& r) noexcept
{
    queue_pair_.receives_.push().request = r;
    if (queue_pair_.peer_ != nullptr)
        queue_pair_.peer_->owner_.port().ready(*queue_pair_.peer_);
}

queue_pair::verdict queue_pair::immediate(work& w) noexcept
{
    receive* r = next_receive();
    if (r == nullptr)
        return not_ready(w);
    const verdict v = write(w);
    if (v != verdict::done)
        return v;
    verbs::completion c;
    c.id = r->request.id;
    c.opcode = verbs::opcode::receive_immediate;
    c.length = w.length;
    c.immediate = w.immediate;
    peer_->fill(*r, c, now());
    return verdict::done;
}

queue_pair::verdict queue_pair::send(work& w) noexcept
{
    queue_pair& to = *peer_;
    receive* next = next_receive();
    if (next == nullptr)
        return not_ready(w);
    receive& r = *next;
    const verbs::segment& sink = r.request.segment;
    verbs::completion c;
    c.id = r.request.id;
    c.opcode = verbs::opcode::receive;
    if (w.length > sink.length) {
        c.status = verbs::status::local_length_error;
        to.fill(r, c, now());
        return refused_by_peer(executed_, verbs::status::remote_invalid_request,
                               "Send longer than the posted receive");
    }
    if (!to.domain_.owns(sink)) {
        c.status = verbs::status::local_protection_error;
        to.fill(r, c, now());
        return refused_by_peer(executed_, verbs::status::remote_operation_error,
                               "a receive outside of the memory that its key names");
    }
    if (w.op == verbs::opcode::send_with_invalidate) {
        // The tag is invalid before the Send is delivered (RFC 5040 5.3).
        if (!to.owner_.table().invalidate(w.key, to.domain_, to.scope_))
            return refused_by_peer(executed_, verbs::status::remote_access_error,
                                   "Send with Invalidate of a key that is not this connection's");
        c.invalidated_key = w.key;
    }
    walk(std::span(w.segments).first(w.segment_count), w.length,
         [&sink](std::size_t at, const std::byte* from, std::size_t n) {
             std::memcpy(sink.address + at, from, n);
         });
    c.length = w.length;
    if (w.op == verbs::opcode::send_with_immediate) {
        c.opcode = verbs::opcode::receive_with_immediate;
        c.immediate = w.immediate;
    }
    to.fill(r, c, now());
    return verdict::done;
}

void queue_pair::fill(receive& r, const verbs::completion& c, time_point now) noexcept
{
    fabric_impl& f = owner_.fabric();
    r.outcome = c;
    r.visible = last_visible_ = std::max(last_visible_, f.is_calm() ? now : now + f.completion_delay());
    ++filled_;
    owner_.port().ready(*this);
}

// The answer to a Read is back: the bytes are those that the peer's memory holds now, if it may still be read.
bool queue_pair::read_back(work& w) noexcept
{
    --reads_;
    if (w.length == 0 || w.has_bytes)
        return true;
    const auto found = peer_->readable(w);
    if (found.rule != nullptr) {
        refused_by_peer(retired_, verbs::status::remote_access_error, found.rule);
        return false;
    }
    walk(std::span(w.segments).first(w.segment_count), w.length,
         [&found](std::size_t at, std::byte* to, std::size_t n) { std::memcpy(to, found.address + at, n); });
    return true;
}

bool queue_pair::retire(bool regardless) noexcept
{
    bool any = false;
    while (retired_ != executed_) {
        work& w = sends_.at(retired_);
        if (!regardless && w.done > now())
            break;
        if (w.lost) {
            if (!regardless)
                fail(retired_, verbs::status::retry_exceeded,
                     error(std::errc::timed_out, "the peer's answers are lost"));
            return false;
        }
        if (w.op == verbs::opcode::rdma_read) {
            if (peer_ == nullptr || !read_back(w))
                return false;
            any = true;
        }
        ++retired_;
        if (!w.signalled)
            continue;
        verbs::completion c;
        c.id = w.id;
        c.opcode = w.told;
        c.length = w.length;
        while (sends_.head() != retired_)
            sends_.pop();
        complete(c);
    }
    return any;
}

void queue_pair::show_receives(bool regardless) noexcept
{
    while (receives_.head() != filled_ && (regardless || receives_.front().visible <= now())) {
        complete(receives_.front().outcome);
        receives_.pop();
    }
}

queue_pair::verdict queue_pair::refused_by_peer(std::uint64_t index, verbs::status s,
                                                const char* rule) noexcept
{
    const error cause(std::errc::protocol_error, rule);
    peer_->end_at(now(), cause);
    return fail(index, s, cause);
}

// Entry `index` fails, and the queue pair with it. What stands before it was answered before.
queue_pair::verdict queue_pair::fail(std::uint64_t index, verbs::status s, const error& cause) noexcept
{
    if (index != retired_) {
        retire(true);
        if (state_ == state::closed)
            return verdict::over;
    }
    finish(cause, index, s);
    return verdict::over;
}

void queue_pair::finish(const error& cause, std::uint64_t failed, verbs::status s) noexcept
{
    if (state_ == state::closed)
        return;
    const bool was_up = state_ != state::starting;
    state_ = state::closed;
    timer::cancel();
    list_hook::unlink();
    waiter_.unlink();
    buffer_place_.unlink();
    access_.reset(); // what is under way goes on, and nobody hears of it
    fabric_impl& f = owner_.fabric();
    if (was_up)
        --f.stats().active;
    if (watcher_ != nullptr)
        *watcher_ = nullptr;
    if (queue_pair* p = std::exchange(peer_, nullptr)) {
        p->peer_ = nullptr;
        p->end_at(now() + f.conditions().latency,
                  cause == verbs::connection_end::orderly
                      ? error(verbs::connection_end::orderly, "the peer closed the connection")
                      : error(std::errc::connection_reset, "the peer ended the connection"));
    }
    // The order of verbs: what had finished first, then the flush, one by one.
    show_receives(true);
    verbs::completion c;
    for (std::uint64_t i = retired_; i != sends_.tail(); ++i) {
        const work& w = sends_.at(i);
        c.id = w.id;
        c.opcode = w.told;
        c.status = i == failed ? s : verbs::status::work_request_flushed;
        complete(c);
    }
    while (!sends_.empty())
        sends_.pop();
    executed_ = retired_ = sends_.tail();
    c.opcode = verbs::opcode::receive;
    c.status = verbs::status::work_request_flushed;
    while (!receives_.empty()) {
        c.id = receives_.front().request.id;
        complete(c);
        receives_.pop();
    }
    filled_ = receives_.tail();
    f.note(now(), fabric_impl::happening::ended, number_, 0,
           static_cast<std::uint64_t>(cause.code().value()));
    end_cause_ = cause;
    if (!delivering_)
        tell_end();
}

void queue_pair::tell_end() noexcept
{
    deliver();
    if (handler_ != nullptr)
        handler_->on_disconnected(end_cause_);
}

void queue_pair::complete(const verbs::completion& c)
{
    batches_[filling_].push_back(c);
    owner_.fabric().note(now(), fabric_impl::happening::completion, number_,
                         std::uint64_t(c.opcode) << 4 | std::uint64_t(c.status), c.length);
}

// The handler may post. It may end the connection too: the flush then follows the batch that it is looking at.
void queue_pair::deliver() noexcept
{
    auto& batch = batches_[filling_];
    if (batch.empty())
        return;
    const bool was_open = state_ != state::closed;
    delivering_ = true;
    filling_ ^= 1;
    if (handler_ != nullptr)
        handler_->on_completions(batch);
    batch.clear(); // keeps the capacity: no allocation in steady state
    delivering_ = false;
    if (was_open && state_ == state::closed)
        tell_end();
}

void queue_pair::arm() noexcept
{
    time_point next = time_point::max();
    const auto at = [&](time_point t) {
        if (t > now())
            next = std::min(next, t);
    };
    if (executed_ != sends_.tail())
        at(sends_.at(executed_).due);
    if (retired_ != executed_)
        at(sends_.at(retired_).done);
    if (receives_.head() != filled_)
        at(receives_.front().visible);
    if (ending_)
        at(end_when_);
    if (next != time_point::max())
        owner_.shard().timers().arm(*this, next);
}

} // namespace verbena::loop
