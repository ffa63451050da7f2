// SPDX-License-Identifier: Apache-2.0
#include "queue_pair.hpp"

#include <algorithm>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace verbena::iwarp {
namespace {

bool is_renewable(const verbs::grant& g, const domain& d) noexcept
{
    const auto* const slot = static_cast<const steering::record*>(g.slot());
    return slot != nullptr && slot->is_renewable_of(d);
}

} // namespace

connection::connection(context_impl& owner, net::unique_fd fd, iwarp::domain& d,
                       const verbs::queue_pair_options& o, std::string peer_name, std::string peer_address)
    : io_watch(owner.shard(), fd.get()),
      owner_(owner),
      fd_(std::move(fd)),
      domain_(d),
      peer_name_(std::move(peer_name)),
      peer_address_(std::move(peer_address)),
      send_queue_(o.send_depth),
      reads_(256),
      peer_reads_(256),
      shared_(static_cast<shared_receives*>(o.shared_receives)),
      receive_queue_(shared_ != nullptr ? 2 : o.receive_depth)
{
    domain_.used_at(owner_.lane());
}

connection::~connection()
{
    handler_ = nullptr;
    if (state_ != connection_state::closed)
        kill(error(std::errc::connection_aborted, "queue pair destroyed"));
}

void connection::open(const agreement& a)
{
    if (!state_.to(connection_state::open, "both ends have agreed"))
        return;
    agreed_ = a;
    reads_ = bounded_ring<outstanding_read>(std::max(1u, a.ord));
    peer_reads_ = bounded_ring<peer_read>(a.ird);
    size_fpdus();
    if (a.initiator) {
        first_ = first_fpdu::owed;
        ring_doorbell();
    }
    context_impl::add(owner_.stats().connected, 1);
    context_impl::add(owner_.stats().active, 1);
    want_read(true);
}

result<void> connection::post_send(std::span<const verbs::send_request> batch)
{
    if (!connected())
        return error(std::errc::not_connected, "post_send on a queue pair that is not connected");
    if (batch.size() > send_queue_.room())
        return error(std::errc::no_buffer_space, "send queue is full", send_queue_.size());
    for (const auto& r : batch) {
        if (r.segments.size() > max_segments)
            return error(std::errc::argument_list_too_long, "segments of a work request", r.segments.size());
        if (r.opcode == verbs::opcode::rdma_read && (r.segments.size() != 1 || agreed_.ord == 0))
            return error(std::errc::invalid_argument, "an RDMA Read takes one segment and an ORD above 0");
        if (is_receive(r.opcode))
            return error(std::errc::invalid_argument, "a receive is not for the send queue");
        if (r.inline_data)
            return error(std::errc::message_size, "inline data, of which this provider takes none");
        if (is_renewal(r.opcode) && (r.grant == nullptr || !is_renewable(*r.grant, domain_)))
            return error(std::errc::invalid_argument,
                         "bind and unbind are of a renewable grant of the domain");
        std::uint64_t length = 0;
        for (const auto& s : r.segments)
            length += s.length;
        if (length > owner_.query().max_message)
            return error(std::errc::message_size, "message length", length);
    }
    try { // before a key changes
        send_queue_.make_room(batch.size());
    } catch (const std::bad_alloc&) {
        return error(std::errc::not_enough_memory, "memory for the send queue", batch.size());
    }
    bool renews = false;
    for (const auto& r : batch) {
        if (!is_renewal(r.opcode))
            continue;
        renews = true;
        auto& slot = static_cast<steering::record&>(*r.grant->slot());
        if (r.opcode == verbs::opcode::bind)
            slot.bind();
        else
            slot.unbind();
    }
    // Peers of other shards may be at that memory still: then these requests wait for those.
    auto& shards = domain_.device().shards();
    const std::uint64_t epoch = renews && domain_.is_shared() ? shards.begin(&owner_.lane()) : 0;
    if (!connected()) // a peer was still owed bytes of such memory
        return error(std::errc::not_connected,
                     "the connection ended as a key was taken that it was reading by");
    for (const auto& r : batch) {
        work w{};
        w.id = r.id;
        w.op = r.opcode;
        w.signalled = r.signalled;
        w.fence = r.fence;
        w.segment_count = static_cast<std::uint8_t>(r.segments.size());
        std::copy(r.segments.begin(), r.segments.end(), w.segments.begin());
        for (const auto& s : r.segments)
            w.length += s.length;
        const bool invalidates =
            r.opcode == verbs::opcode::send_with_invalidate || r.opcode == verbs::opcode::local_invalidate;
        w.key = invalidates ? r.invalidate_key : r.remote_key;
        w.remote = is_renewal(r.opcode) ? epoch : r.remote_address;
        w.immediate = r.immediate;
        send_queue_.push(w);
    }
    ring_doorbell();
    return {};
}

result<void> connection::post_receive(std::span<const verbs::receive_request> batch)
{
    if (!connected() && state_ != connection_state::starting)
        return error(std::errc::not_connected, "post_receive on a queue pair that has ended");
    if (shared_ != nullptr)
        return error(std::errc::invalid_argument, "this queue pair takes its receives from a shared queue");
    if (batch.size() > receive_queue_.room())
        return error(std::errc::no_buffer_space, "receive queue is full", receive_queue_.size());
    for (const auto& r : batch)
        receive_queue_.push(r);
    return {};
}

void connection::ring_doorbell() noexcept
{
    if (!deferred::is_linked())
        shard().at_turn_end(*this);
}

void connection::run() noexcept
{
    if (!state_.is_in(connection_state::starting, connection_state::closing, connection_state::closed))
        transmit();
    deliver();
}

void connection::passed() noexcept { ring_doorbell(); }

bool connection::on_readable() noexcept
{
    const bool any = receive();
    watch_fpdu();
    deliver();
    return any;
}

void connection::on_writable() noexcept
{
    write_blocked_ = false;
    if (!state_.is_in(connection_state::closing, connection_state::closed))
        transmit();
    deliver();
}

void connection::disconnect() noexcept
{
    if (state_ == connection_state::starting) {
        finish(end_cause::local, error(std::errc::connection_aborted, "disconnected during start-up"));
        return;
    }
    if (!connected())
        return;
    state_.to(is_parked() ? connection_state::draining_parked : connection_state::draining, "disconnect()");
    end_ = end_cause::orderly;
    end_error_ = error(verbs::connection_end::orderly, "closed by this end");
    shard().timers().arm(*this, shard().clock().now() + owner_.options().close_timeout);
    ring_doorbell();
}

void connection::kill(const error& cause) noexcept
{
    cut(end_cause::local, cause);
    if (stores_ == nullptr)
        return;
    stores_.reset(); // what is under way goes on, and nobody hears of it
    if (!delivering_)
        tell_end();
}

void connection::abort(const error& cause) noexcept { cut(end_cause::local, cause); }

// With a reset: a FIN between two messages would tell the peer of an orderly end (RFC 5040 6.1), also where this end drains and what
// was posted has not gone out. Behind our FIN the peer has heard of the end.
void connection::cut(end_cause cause, const error& e) noexcept
{
    if (!state_.is_in(connection_state::starting, connection_state::closing, connection_state::closed)) {
        const linger at_once{1, 0};
        ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    finish(cause, e);
}

// Everything went out: say so with a FIN and wait for the peer's.
void connection::shut_sending() noexcept
{
    ::shutdown(fd_.get(), SHUT_WR);
    stop_waiting();
    state_.to(connection_state::closing, "everything is out");
}

// The timer is armed once for many FPDUs, and again only while one is unfinished: a whole one costs none.
// A message that holds a shared receive counts as one FPDU, so that nobody keeps a receive by sending little now and then.
void connection::watch_fpdu() noexcept
{
    const bool between = phase_ == phase::header && header_have_ == 0 && !(shared_ != nullptr && filling_);
    if (state_ != connection_state::open || fpdu_begun_ || between)
        return;
    fpdu_begun_ = shard().now();
    if (!timer::is_armed())
        shard().timers().arm(*this, *fpdu_begun_ + owner_.options().fpdu_limit);
}

void connection::on_timer() noexcept
{
    if (!connected()) {
        cut(end_, end_error_);
        return;
    }
    if (!fpdu_begun_) // or it waits for our memory
        return;
    const time_point limit = *fpdu_begun_ + owner_.options().fpdu_limit;
    if (shard().clock().now() < limit) {
        shard().timers().arm(*this, limit);
        return;
    }
    // Timers come before sockets: after a pause of this process, what ends the FPDU may wait there.
    receive();
    if (state_ == connection_state::open && fpdu_begun_) {
        cut(end_cause::slow_fpdu, error(std::errc::timed_out, "the peer began an FPDU and did not end it"));
        return;
    }
    watch_fpdu();
    deliver();
}

void connection::retire() noexcept
{
    while (!send_queue_.empty() && send_queue_.front().done) {
        const work& w = send_queue_.front();
        if (w.signalled || w.refused) {
            verbs::completion c;
            c.id = w.id;
            c.opcode = w.op;
            if (w.refused)
                c.status = verbs::status::local_protection_error;
            else
                c.length = w.length;
            complete(c);
        }
        send_queue_.pop();
    }
}

// Hands completions over. The handler may post more; what that completes waits for the next round. It may
// end the connection too: the flush then follows the batch that it is looking at.
void connection::deliver() noexcept
{
    if (delivering_ || batch_.empty())
        return;
    const bool was_up = state_ != connection_state::closed;
    delivering_ = true;
    std::vector<verbs::completion> batch;
    batch.swap(batch_);
    untold_messages_ = 0;
    if (handler_ != nullptr)
        handler_->on_completions(batch);
    batch.clear();
    delivering_ = false;
    if (was_up && state_ == connection_state::closed && stores_ == nullptr)
        tell_end();
    else if (batch_.empty())
        batch_.swap(batch); // keeps the capacity: no allocation in steady state
    else
        ring_doorbell();
}

// What sending takes, which it asks for again when it has something to send.
bool connection::shrink() noexcept
{
    const bool has_stores = stores_ != nullptr && !shrink_stores();
    if (std::exchange(built_, false) || has_stores)
        return false;
    if (!send_queue_.empty() || vectors_done_ < vectors_.size() || delivering_ || !batch_.empty())
        return true;
    send_queue_.shrink();
    reads_.shrink();
    peer_reads_.shrink();
    vectors_ = decltype(vectors_)();
    vectors_done_ = 0;
    response_tags_ = decltype(response_tags_)();
    scratch_.reset();
    batch_ = decltype(batch_)();
    return true;
}

void connection::tell_end() noexcept
{
    deliver();
    if (handler_ != nullptr)
        handler_->on_disconnected(end_error_);
}

void connection::finish(end_cause cause, const error& e) noexcept
{
    if (state_ == connection_state::closed)
        return;
    const bool was_up = state_ != connection_state::starting;
    // What made the end begin is the cause, not how the socket died afterwards. But a peer that says what is wrong has ended it,
    // though this end was about to.
    const bool ending = was_up && !connected() && cause != end_cause::peer_terminate;
    const end_cause counted = ending ? end_ : cause;
    const error told = ending ? end_error_ : e;
    stop_waiting();
    // Its texts are literals, which end with a zero. NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage)
    state_.to(connection_state::closed, to_string(counted).data());
    if (watcher_ != nullptr)
        *std::exchange(watcher_, nullptr) = nullptr;
    timer::cancel();
    io_watch::stop();
    deferred::unlink();
    steering::passing::unlink();
    if (std::exchange(blocked_registered_, false))
        owner_.clear_debt(*this);
    leave_stores();
    fd_.reset();
    owner_.count(counted);
    if (was_up)
        context_impl::add(owner_.stats().active, std::uint64_t(-1));

    // The order of verbs: what had finished first, then the flush, one by one.
    verbs::completion c;
    c.status = verbs::status::work_request_flushed;
    if (counted == end_cause::peer_terminate)
        c.vendor_error = static_cast<std::uint32_t>(told.detail());
    bool first_error = counted == end_cause::peer_terminate;
    while (!send_queue_.empty()) {
        const work& w = send_queue_.front();
        c.id = w.id;
        c.opcode = w.op;
        if (w.done && !w.refused) {
            if (w.signalled) {
                verbs::completion good;
                good.id = w.id;
                good.opcode = w.op;
                good.length = w.length;
                complete(good);
            }
        } else {
            c.status = std::exchange(first_error, false) ? verbs::status::remote_access_error
                                                         : verbs::status::work_request_flushed;
            complete(c);
        }
        send_queue_.pop();
    }
    c.opcode = verbs::opcode::receive;
    while (!receive_queue_.empty()) {
        c.id = receive_queue_.front().id;
        c.status = std::exchange(first_receive_, verbs::status::work_request_flushed);
        complete(c);
        receive_queue_.pop();
    }
    end_error_ = told;
    if (!delivering_ && stores_ == nullptr)
        tell_end();
}

} // namespace verbena::iwarp
