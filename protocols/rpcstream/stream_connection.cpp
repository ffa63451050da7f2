// SPDX-License-Identifier: Apache-2.0
#include "stream_connection.hpp"

#include <verbena/core/task/exception.hpp>

#include <algorithm>
#include <cerrno>
#include <coroutine>
#include <exception>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

namespace verbena::rpc {
namespace {

// Bytes of a call beside its message and its results, about: its record, and the frames of the tasks that answer it.
constexpr std::uint64_t call_itself = 4096;

/// The root of one call's tasks. It ends by itself; the connection stays until its calls are gone.
class call_runner {
public:
    class promise_type : public verbena::detail::root_record {
    public:
        explicit promise_type(stream_call& c) noexcept : root_record(c.connection().call_group(), c.context())
        {
            c.set_runner(this);
        }
        static void* operator new(std::size_t size) { return allocate_frame(size); }
        static void operator delete(void* frame, std::size_t size) noexcept { release_frame(frame, size); }
        call_runner get_return_object() const noexcept { return {}; }
        std::suspend_never initial_suspend() const noexcept { return {}; }
        std::suspend_never final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); } // run() lets none out
    };
};

call_runner run(stream_call& c)
{
    bool reply = false;
    try {
        reply = co_await c.connection().calls().dispatch(c);
    } catch (...) {
        c.connection().end_by(std::current_exception());
    }
    c.connection().complete(std::unique_ptr<stream_call>(&c), reply);
}

} // namespace

stream_connection::stream_connection(server& s, net::unique_fd socket, const net::endpoint& peer,
                                     std::string_view transport, peer_charge charged, bool stranger)
    : io_watch(s.shard, socket.get()),
      server_(s),
      stranger_(stranger),
      charged_(std::move(charged)),
      socket_(std::move(socket)),
      address_(peer.address()),
      name_(peer.to_string()),
      share_(s.shares, peer_group(address_, s.peers.options().v6_prefix)),
      reader_(s.pool, {.max_record = s.options.max_record, .share = this}),
      output_(s.pool, s.stats.payload_copied_bytes),
      since_(s.shard.now()),
      last_call_(since_)
{
    peer_.address = address_;
    peer_.name = name_;
    peer_.transport = transport;
    peer_.port = peer.port();
    peer_.connection = new_connection_number();
    // The first time needs a place among the shard's timers, later ones have it.
    watch_until(last_call_ + server_.options.first_call_limit);
}

stream_connection::~stream_connection()
{
    stop(); // before socket_ closes the descriptor
    shard().io().detach(hang_up_);
}

void stream_connection::start() noexcept
{
    server_.live.push_back(member_);
    join(server_.options.connections);
    want_read(true);
}

connection_report stream_connection::report() const
{
    return {peer_.connection, name_, peer_.transport, since_, last_call_, calls_, state_.name()};
}

bool stream_connection::on_readable() noexcept
{
    // What came before is looked at first: only then it is known where more belongs.
    if (parser_.is_linked())
        return true;
    const auto space = reader_.space();
    if (space.empty()) {
        wait_for_room();
        return true;
    }
    const ssize_t n = ::recv(fd(), space.data(), space.size(), MSG_DONTWAIT);
    if (n > 0) {
        reader_.received(static_cast<std::size_t>(n));
        server_.stats.received_bytes.add(static_cast<std::uint64_t>(n));
        server_.stats.receives.add();
        shard().post(parser_);
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        reader_.release_idle();
        return false;
    }
    if (n == 0)
        finish(stream_end::closed_by_peer);
    else
        end(stream_end::lost);
    return true;
}

// Asked for once, and left in the ring when reading goes on: a stream at a limit stops and goes on with each call.
void stream_connection::stop_reading() noexcept
{
    want_read(false);
    record_begun_.reset();
    if (calls_ != 0 && !sends_no_more_ && !shard().io().in_flight(hang_up_))
        (void)shard().io().poll_once(fd(), POLLRDHUP,
                                     hang_up_); // a full ring is asked again at the next stop
}

void stream_connection::peer_hung_up(std::int32_t events) noexcept
{
    if (events < 0)
        return;
    if ((events & POLLERR) != 0)
        return end(stream_end::lost);
    // Else its end is read, behind what it has sent before.
    if (!state_.is_in(stream_state::reading, stream_state::yielding))
        peer_sends_no_more();
}

void stream_connection::peer_sends_no_more() noexcept
{
    if (!sends_no_more_) {
        sends_no_more_ = shard().now();
        watch_until(*sends_no_more_ + server_.options.half_closed_limit);
    }
    caller_gone_.request_stop();
}

bool stream_connection::may_serve() const noexcept
{
    const stream_options& o = server_.options;
    return calls_ < o.max_calls && call_bytes_ < o.max_call_bytes && output_.queued() < o.max_queued_output &&
           result_bytes() < o.max_result_bytes;
}

void stream_connection::parse() noexcept
{
    parse_calls();
    end_result_turn();
}

void stream_connection::parse_calls() noexcept
{
    bool progress = false;
    record message;
    turn_used_ = 0;
    if (state_ == stream_state::yielding) {
        state_.to(stream_state::reading, "its turn");
        flush_later();
    }
    while (state_ == stream_state::reading) {
        if (!may_serve()) {
            state_.to(stream_state::at_limit, "calls under way, or their replies");
            server_.stats.pauses.add();
            stop_reading();
            return;
        }
        if (!share_has_room())
            return wait_for_results();
        // A stream that never runs dry must not keep the others waiting for longer than a few calls take.
        if (turn_used_ >= server_.options.turn_share && reader_.holds_bytes()) {
            state_.to(stream_state::yielding, "others are to have their turn");
            server_.stats.yields.add();
            want_read(false);
            record_begun_.reset();
            shard().post_last(parser_);
            return;
        }
        switch (reader_.next(message)) {
        case record_reader::status::record:
            progress = true;
            serve(std::move(message));
            end_result_turn();
            continue;
        case record_reader::status::incomplete: break;
        case record_reader::status::no_memory: return wait_for_room();
        case record_reader::status::too_long: return end(stream_end::record_too_long);
        case record_reader::status::too_many_fragments: return end(stream_end::too_many_fragments);
        }
        // The time for a record runs from its first bytes, however slowly more of them come.
        if (!reader_.holds_bytes()) {
            record_begun_.reset();
        } else if (!record_begun_ || progress) {
            record_begun_ = shard().now();
            watch_until(*record_begun_ + server_.options.record_limit);
        }
        want_read(true);
        return;
    }
}

void stream_connection::serve(record&& message) noexcept
{
    last_call_ = shard().now();
    if (reverse_) {
        const std::size_t size = message.size();
        if (reverse_->answered(message)) {
            turn_used_ += 1 + size / server_.options.turn_unit;
            return;
        }
    }
    std::unique_ptr<stream_call> made;
    try {
        made.reset(new stream_call(*this, std::move(message), server_.context_of_a_call(caller_gone_)));
    } catch (const std::bad_alloc&) {
        end_by(std::current_exception());
        return;
    }
    any_call_ = true;
    server_.stats.calls.add();
    server_.stats.calls_in_flight.add(1);
    ++calls_;
    call_bytes_ += made->size();
    turn_used_ += 1 + made->size() / server_.options.turn_unit;
    shard().requests().begin(*made);
    stream_call& c = *made.release(); // which its tasks own, unless they can't begin
    try {
        run(c);
    } catch (const std::bad_alloc&) {
        end_by(std::current_exception());
        complete(std::unique_ptr<stream_call>(&c), false);
    }
}

void stream_connection::complete(std::unique_ptr<stream_call> c, bool reply) noexcept
{
    c->leave();
    server_.stats.calls_in_flight.add(-1);
    --calls_;
    call_bytes_ -= c->size();
    expected_results_ -= c->expected_results();
    share_results();
    if (!reply)
        server_.stats.unanswered.add();
    if (state_ == stream_state::ended) {
        if (calls_ == 0)
            shard().at_turn_end(server_.reaper_);
        return;
    }
    if (reply) {
        const std::size_t waiting = output_.queued();
        if (waiting == 0)
            output_progress_ = shard().now();
        queue(std::move(c));
        turn_used_ += (output_.queued() - waiting) / server_.options.turn_unit;
        // Large results go out while the caches still hold them, and their buffers serve the next call.
        if (!blocked_ && output_.queued() >= server_.options.flush_at)
            flush();
        else
            flush_later();
    } else {
        c.reset();
        end_if_finished();
    }
    resume();
}

void stream_connection::queue(std::unique_ptr<stream_call> c)
{
    const std::size_t before = output_.queued();
    std::size_t memory = c->unused_results();
    const attachments& attached = c->attached();
    std::size_t in_files = 0;
    for (std::size_t i = 0; i < attached.size(); ++i)
        in_files += attached[i].file.size;
    // A short piece is copied, unless there is no buffer to copy it to; then its own goes. Of several all count.
    lease copied;
    std::size_t spared = 0;
    if (attached.size() == 1) {
        const payload& bytes = attached[0].bytes;
        if (bytes.pieces().size() == 1 && bytes.size() <= stream_output::max_copied_piece && bytes.owner(0)) {
            copied = bytes.owner(0).share();
            spared = copied.size() - std::min(copied.size(), bytes.size());
        }
    }
    memory -= output_.append(std::move(c));
    if (copied && copied.unique())
        memory -= spared;
    const std::size_t length = output_.queued() - before;
    output_memory_.append(length, memory + length - in_files);
    share_results();
}

std::shared_ptr<reverse_channel> stream_connection::reverse()
{
    if (!reverse_ && server_.options.max_reverse_calls != 0 &&
        !state_.is_in(stream_state::finishing, stream_state::ended))
        reverse_ = std::make_shared<stream_reverse>(static_cast<stream_reverse_link&>(*this), shard(),
                                                    server_.pool, server_.options, server_.stats, peer_);
    return reverse_;
}

void stream_connection::send_reverse(lease bytes, std::size_t length)
{
    if (output_.queued() == 0)
        output_progress_ = shard().now();
    const std::size_t memory = bytes.size();
    output_.append(std::move(bytes), length);
    output_memory_.append(length, memory);
    share_results();
    flush_later();
}

// Replies come by what is read.
void stream_connection::close_reverse() noexcept
{
    if (reverse_)
        std::exchange(reverse_, {})->closed();
}

void stream_connection::flush_later() noexcept
{
    if (output_.queued() != 0 && !blocked_)
        shard().at_turn_end(flusher_);
}

void stream_connection::flush_gathered() noexcept
{
    if (state_ != stream_state::yielding || output_.queued() >= server_.options.gather)
        flush();
}

void stream_connection::flush() noexcept
{
    if (state_ == stream_state::ended)
        return;
    std::size_t sent = 0;
    unsigned calls = 0;
    const auto status = output_.send(fd(), sent, calls);
    output_memory_.sent(sent);
    share_results();
    server_.stats.sent_bytes.add(sent);
    server_.stats.sends.add(calls);
    if (sent != 0)
        output_progress_ = shard().now();
    switch (status) {
    case stream_output::status::failed: return end(stream_end::lost);
    case stream_output::status::cut_short:
        log_limited(
            server_.cuts_logged, log_level::info, "rpc",
            "a file became shorter while it was sent: the connection ends, so that the client asks again",
            {{"peer", name_}});
        return end(stream_end::lost);
    case stream_output::status::blocked:
        blocked_ = true;
        want_write();
        watch_until(output_progress_ + server_.options.output_limit);
        break;
    case stream_output::status::drained:
        blocked_ = false;
        if (calls_ == 0)
            reader_.release_idle();
        end_if_finished();
        break;
    }
    resume();
}

void stream_connection::resume() noexcept
{
    if (state_ != stream_state::at_limit || !may_serve())
        return;
    state_.to(stream_state::reading, "below its limits");
    shard().post(parser_);
}

void stream_connection::wait_for_room() noexcept
{
    if (wanted_ != 0)
        wait_for_share();
    else
        wait_for_memory();
}

void stream_connection::wait_for_memory() noexcept
{
    stop_reading();
    state_.to(stream_state::waits_for_memory, "the pool has no buffer");
    server_.stats.memory_waits.add();
    server_.await_memory();
}

void stream_connection::memory_again() noexcept
{
    state_.to(stream_state::reading, "the pool may have a buffer");
    shard().post(parser_);
}

bool stream_connection::take(std::size_t bytes) noexcept
{
    if (const std::size_t granted = std::exchange(granted_, 0); granted != 0) {
        const bool enough = granted >= bytes;
        give_back(enough ? granted - bytes : granted);
        if (enough)
            return true;
    }
    const bool refused = !share_->waiting.empty() ||
                         exceeds_share(share_->bytes, bytes, server_.options.max_address_record_bytes);
    wanted_ = refused ? bytes : 0;
    if (!refused)
        share_->bytes += bytes;
    return !refused;
}

// The first in line waits until it fits, and so do those behind it: small messages would keep a large one out for ever.
// Who holds a part never asks for more, so the first fits at the latest when the others are done.
void stream_connection::give_back(std::size_t bytes) noexcept
{
    share_->bytes -= bytes;
    while (server::member* first = share_->waiting.front()) {
        if (!first->connection.take_turn())
            return;
    }
}

void stream_connection::wait_for_share() noexcept
{
    stop_reading();
    state_.to(stream_state::waits_for_share, "a large message");
    share_->waiting.push_back(waiter_);
    server_.stats.share_waits.add();
}

// What is granted counts from now on, whether its peer sends more or not: the limit of time for a record ends that.
bool stream_connection::take_turn() noexcept
{
    if (exceeds_share(share_->bytes, wanted_, server_.options.max_address_record_bytes))
        return false;
    share_->bytes += wanted_;
    granted_ = std::exchange(wanted_, 0);
    waiter_.unlink();
    state_.to(stream_state::reading, "its part of the share");
    shard().post(parser_);
    return true;
}

void stream_connection::leave_share() noexcept
{
    waiter_.unlink();
    wanted_ = 0;
    give_back(std::exchange(granted_, 0));
    result_waiter_.unlink();
    end_result_turn();
}

// Who waits is served first: a stream that is never out of calls would keep the others of its host waiting for ever.
bool stream_connection::share_has_room() const noexcept
{
    return share_->result_turn == &result_waiter_ ||
           (share_->result_waiting.empty() &&
            share_->result_bytes < server_.options.max_address_result_bytes);
}

void stream_connection::share_results() noexcept
{
    share_->result_bytes += result_bytes() - shared_results_; // which may be less than none, modulo 2^64
    shared_results_ = result_bytes();
    next_result_turn();
}

void stream_connection::wait_for_results() noexcept
{
    state_.to(stream_state::waits_for_results, "results of its host's other calls");
    server_.stats.pauses.add();
    stop_reading();
    share_->result_waiting.push_back(result_waiter_);
    next_result_turn();
}

// One at a time, so that what they exceed the share by is one call. It has one turn of the shard to begin it.
void stream_connection::next_result_turn() noexcept
{
    if (share_->result_turn != nullptr || share_->result_waiting.empty() ||
        share_->result_bytes >= server_.options.max_address_result_bytes)
        return;
    share_->result_turn = share_->result_waiting.pop_front();
    stream_connection& first = share_->result_turn->connection;
    first.state_.to(stream_state::reading, "its turn to serve a call");
    shard().post(first.parser_);
}

void stream_connection::end_result_turn() noexcept
{
    if (share_->result_turn != &result_waiter_)
        return;
    share_->result_turn = nullptr;
    next_result_turn();
}

void stream_connection::finish(stream_end cause) noexcept
{
    if (state_.is_in(stream_state::finishing, stream_state::ended))
        return;
    state_.to(stream_state::finishing, text_of(cause));
    close_reverse();
    cause_ = cause;
    if (cause == stream_end::closed_by_peer) {
        want_read(false);
        record_begun_.reset(); // the rest never comes
    } else {
        stop_reading();
    }
    leave_share();
    flush_later();
    if (cause == stream_end::closed_by_peer)
        peer_sends_no_more();
    end_if_finished();
}

void stream_connection::end_if_finished() noexcept
{
    if (state_ == stream_state::finishing && calls_ == 0 && output_.queued() == 0)
        end(cause_);
}

void stream_connection::end(stream_end cause) noexcept
{
    if (state_ == stream_state::ended)
        return;
    state_.to(stream_state::ended, text_of(cause));
    if (calls_ == 0)
        leave();             // else it is shown until they have ended
    result_waiter_.unlink(); // first: what it leaves there is for others
    caller_gone_.request_stop();
    close_reverse();
    server_.stats.ended[static_cast<std::size_t>(cause)].add();
    server_.stats.connections.add(-1);
    --server_.count;
    server_.strangers -= stranger_ ? 1 : 0;
    stop();
    shard().io().detach(hang_up_);
    watchdog_.cancel();
    output_.clear();
    output_memory_.clear();
    share_results();
    socket_.reset();
    charge_for_calls();
    leave_share();
    reader_.give_up();
    server_.dead.push_back(member_);
    shard().at_turn_end(server_.reaper_);
}

// A peer that has lost its connections may make as many again, however long its calls hang. Their memory is bounded by look_at().
void stream_connection::charge_for_calls() noexcept
{
    peer_charge left;
    if (calls_ != 0)
        left = charged_.also(peer_use::calls_left,
                             record_reader::options{}.receive_size + calls_ * call_itself + call_bytes_ +
                                 expected_results_,
                             UINT64_MAX);
    charged_ = std::move(left); // what it was goes with `left`
}

void stream_connection::end_by(const std::exception_ptr& e) noexcept
{
    log_limited(server_.exceptions_logged, log_level::error, "rpc", "connection ended by an exception",
                {{"peer", name_}, {"exception", what_of(e)}});
    end(stream_end::exception);
}

stream_connection::limit stream_connection::next_limit() const noexcept
{
    const stream_options& o = server_.options;
    limit next{time_point::max(), stream_end::idle};
    const auto consider = [&](time_point when, stream_end cause) {
        if (when < next.when)
            next = {when, cause};
    };
    if (output_.queued() != 0)
        consider(output_progress_ + o.output_limit, stream_end::output_not_taken);
    if (sends_no_more_)
        consider(std::max(*sends_no_more_, output_progress_) + o.half_closed_limit,
                 stream_end::closed_by_peer);
    if (record_begun_)
        consider(*record_begun_ + o.record_limit, stream_end::slow_record);
    if (!any_call_)
        consider(last_call_ + o.first_call_limit, stream_end::no_first_call);
    else if (calls_ == 0 && output_.queued() == 0 && !record_begun_)
        consider(last_call_ + (stranger_ ? o.first_call_limit : o.idle_limit), stream_end::idle);
    return next;
}

void stream_connection::look_at_limits() noexcept
{
    const limit next = next_limit();
    const time_point now = shard().now();
    if (next.when <= now)
        return end(next.cause);
    const duration often = stranger_ ? server_.options.first_call_limit : server_.options.idle_limit;
    watch_until(std::min(next.when, now + often));
}

// Arming is rare: a timer that is due earlier looks again by itself.
void stream_connection::watch_until(time_point when) noexcept
{
    if (!watchdog_.is_armed() || watchdog_.when() > when)
        shard().timers().arm(watchdog_, when);
}

} // namespace verbena::rpc
