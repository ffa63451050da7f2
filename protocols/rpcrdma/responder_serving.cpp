// SPDX-License-Identifier: Apache-2.0
// A call from its message to its answer: what it may take, the RDMA Reads of its arguments, its procedure.
#include "responder_connection.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/in_context.hpp>
#include <verbena/protocols/rpc/message.hpp>

#include <algorithm>
#include <functional>

namespace verbena::rpcrdma {

responder_call* responder_connection::take_call()
{
    if (!free_calls_.empty()) {
        responder_call* c = calls_[free_calls_.back()].get();
        free_calls_.pop_back();
        return c;
    }
    calls_.push_back(std::make_unique<responder_call>(*this));
    calls_.back()->index_ = static_cast<std::uint32_t>(calls_.size() - 1);
    calls_.back()->generation_ = first_generation_;
    free_calls_.reserve(calls_.size());
    return calls_.back().get();
}

void responder_connection::release(responder_call& c) noexcept
{
    if (!c.answered_)
        --unanswered_;
    if (c.chunk_bytes_ != 0) {
        chunk_bytes_ -= c.chunk_bytes_;
        share_->bytes -= c.chunk_bytes_;
        share_->freed.set();
    }
    c.clear();
    ++c.generation_;
    free_calls_.push_back(c.index_);
    if (!down())
        fill_receives();
    if (calls_in_use() == 0)
        commons_.idle.grown(*this);
    end_if_drained();
}

// It had nothing to do for a while: calls are made again when they come.
bool responder_connection::shrink() noexcept
{
    if (calls_in_use() != 0)
        return true; // it says so again when they are over
    if (provider_.shard().now() - heard_ < options_.credit_idle)
        return false;
    for (const auto& c : calls_)
        first_generation_ = std::max(first_generation_, c->generation_ + 1);
    calls_ = decltype(calls_)();
    free_calls_ = decltype(free_calls_)();
    if (handled_ == handling_.size()) {
        handling_ = decltype(handling_)();
        handled_ = 0;
    }
    if (arrived_.empty())
        arrived_ = decltype(arrived_)();
    return true;
}

responder_call* responder_connection::find(std::uint64_t id) noexcept
{
    const auto index = static_cast<std::uint32_t>(id);
    const auto generation = static_cast<std::uint32_t>(id >> 32) & 0xffffff;
    if (index >= calls_.size() || (calls_[index]->generation_ & 0xffffff) != generation)
        return nullptr;
    return calls_[index].get();
}

void responder_connection::overrun(std::size_t messages) noexcept
{
    stats_.credit_overruns.add();
    try {
        log_limited(stats_.refusals_logged, log_level::warning, "rpcrdma", "credits exceeded",
                    {{"peer", peer_name_}, {"messages", messages}});
    } catch (const std::bad_alloc&) { // what has to be done comes behind this
    }
    give_up(error(std::errc::protocol_error, "more messages than credits (RFC 8166 3.3.1)"));
}

// A message came. It has memory until it was looked at, also if it is one that uses no credit and that nobody answers: so no more of
// them wait than a requester that keeps to its credits may have sent.
void responder_connection::arrive(std::uint32_t slot, std::uint32_t length) noexcept
{
    const std::size_t waiting = arrived_.size() + handling_.size() - handled_;
    if (waiting >= most_messages() + options_.reverse_credits) {
        take_received(slot).reset();
        if (!state_.is_in(connection_state::given_up, connection_state::ended))
            overrun(waiting);
        return;
    }
    try {
        arrived_.push_back({slot, length});
    } catch (const std::bad_alloc&) {
        take_received(slot).reset();
        give_up(no_memory);
    }
}

void responder_connection::begin_call(lease message, std::uint32_t length)
{
    if (state_.is_in(connection_state::given_up, connection_state::ended))
        return;
    if (state_.is_in(connection_state::draining, connection_state::closing)) {
        stats_.refused_draining.add(); // the requester sends it again, to whoever serves it then
        return;
    }
    // Receives are posted again before their calls are served, so nothing else bounds a requester that
    // ignores its credits (RFC 8166 3.3.1). Answered calls whose Sends are not complete don't count, since
    // the requester can't see that: behind a slow RDMA Read there may be many. The send queue bounds them.
    if (unanswered_ >= most_messages()) {
        overrun(unanswered_);
        return;
    }
    responder_call& c = *take_call();
    c.begin(std::move(message), peer_, buffers_);
    ++unanswered_;
    const std::span<const std::byte> bytes(c.received_.data(), length);
    const decoded_header d = decode(bytes, c.transport_);
    const auto refuse = [&](const char* rule, error_kind kind) {
        log_refusal(c, rule);
        provider_.shard().requests().begin(c); // it may wait for the others of its host
        calls_scope_.spawn(&responder_connection::refuse_call, this, std::ref(c), kind);
    };
    switch (d.action) {
    case verdict::drop:
        stats_.dropped.add();
        release(c);
        return;
    case verdict::version_error: refuse(d.rule, error_kind::version); return;
    case verdict::chunk_error: refuse(d.rule, error_kind::chunk); return;
    case verdict::good: break;
    }
    const auto payload = bytes.subspan(d.offset);
    const auto prefix = rpc::peek(payload);
    const bool is_reply =
        reverse_ && c.transport_.proc == procedure::msg && prefix && prefix->type == rpc::message_type::reply;
    // RFC 8166 4.6.2. An error is for requesters, and a reply, where there is a reverse channel, answers a call whose time is over.
    if (c.transport_.proc == procedure::done || c.transport_.proc == procedure::error || is_reply) {
        if (is_reply)
            credits_.answered_back();
        stats_.dropped.add();
        release(c);
        return;
    }
    if (const char* rule = broken_call_rule(c.transport_, payload)) {
        refuse(rule, error_kind::chunk);
        return;
    }
    if (queue_pair_->max_reads() == 0 && total_length(c.transport_.reads.all()) != 0) {
        refuse("Read chunks of a requester that answers no RDMA Reads (IRD 0)", error_kind::chunk);
        return;
    }
    c.start_header(c.transport_.xid);
    provider_.shard().requests().begin(c);
    stats_.calls.add();
    stats_.credits_wanted.add(c.transport_.credits);
    count_call(c.transport_.credits);
    turn_used_ += chunk_bytes_of(c.transport_) / options_.turn_unit;
    // Not by a pointer to the member, which compilers do not see through: this is each call's way.
    calls_scope_.spawn([this, &c, offset = d.offset, length] { return serve(c, offset, length); });
}

task<bool> responder_connection::send_queue_room(std::uint32_t entries)
{
    while (!down() && send_queue_used_ + entries > send_depth) {
        send_queue_moved_.reset();
        const bool moved = co_await send_queue_moved_.wait("room in the send queue of its connection");
        if (!moved)
            co_return false;
    }
    co_return !down();
}

task<bool> responder_connection::read_chunk(responder_call& c, std::span<const read_segment> chunk,
                                            std::byte* place)
{
    c.reads_done_.reset();
    c.read_failed_ = false;
    // One more than posted until all are, so that an early completion doesn't look like the last.
    c.reads_pending_ = 1;
    std::exception_ptr failure; // which must wait until the device has let go of the memory
    try {
        for (const auto& s : chunk) {
            if (s.target.length == 0)
                continue;
            bool permit = reads_.try_acquire();
            if (!permit) {
                stats_.read_depth_waits.add();
                permit = co_await reads_.acquire();
            }
            bool room = false;
            if (permit)
                room = co_await send_queue_room(1);
            if (!room) {
                if (permit)
                    reads_.release();
                c.read_failed_ = true;
                break;
            }
            const verbs::segment local{place, s.target.length, 0};
            verbs::send_request w;
            w.id = make_id(operation::read, c.generation_, c.index_);
            w.opcode = verbs::opcode::rdma_read;
            w.segments = {&local, 1};
            w.remote_address = s.target.offset;
            w.remote_key = s.target.handle;
            ++c.reads_pending_;
            ++send_queue_used_;
            if (reads_out_++ == 0)
                note_read_progress();
            if (!timer::is_armed())
                provider_.shard().timers().arm(*this, read_progress_ + options_.read_limit);
            if (!queue_pair_->post_send({&w, 1})) {
                --c.reads_pending_;
                --send_queue_used_;
                --reads_out_;
                reads_.release();
                c.read_failed_ = true;
                break;
            }
            stats_.read_chunk_bytes.add(s.target.length);
            place += s.target.length;
        }
    } catch (...) {
        failure = std::current_exception();
        c.read_failed_ = true;
    }
    if (--c.reads_pending_ != 0)
        co_await c.reads_done_.wait_shielded(
            "RDMA Reads from the peer"); // the memory is the provider's until then
    if (failure)
        std::rethrow_exception(failure);
    if (c.read_failed_)
        stats_.failed_reads.add();
    co_return !c.read_failed_;
}

void responder_connection::note_read_progress() noexcept
{
    read_progress_ = provider_.shard().now();
    paused_ = queue_pair_->pauses().over;
}

// Armed once for many Reads, and again only while there are some: a Read costs no timer.
void responder_connection::on_timer() noexcept
{
    if (down() || reads_out_ == 0)
        return;
    // Where a message waits for our memory the answers stand behind it: that time is not the requester's. It has an end all the same,
    // since what is missing may be what the Reads hold.
    const verbs::receive_pauses pauses = queue_pair_->pauses();
    const time_point limit =
        (pauses.lasts ? std::max(read_progress_, pauses.begun) : read_progress_ + (pauses.over - paused_)) +
        options_.read_limit;
    if (provider_.shard().clock().now() < limit) {
        provider_.shard().timers().arm(*this, limit);
        return;
    }
    if (pauses.lasts) {
        stats_.starved_reads.add();
        give_up(error(std::errc::not_enough_memory,
                      "the answers to RDMA Reads stand behind a message for which there was no "
                      "memory for too long: raise [daemon] memory_mib"));
        return;
    }
    stats_.stalled_reads.add();
    give_up(error(std::errc::timed_out, "the requester does not answer RDMA Reads"));
}

// What a call may move through chunks. The lengths may be absurd; what is moved is bounded.
std::uint64_t responder_connection::chunk_bytes_of(const header& h) const noexcept
{
    const std::uint64_t limit = options_.max_call_size;
    return std::min(total_length(h.reads.all()), limit) +
           std::min(total_length(h.writes.segments()) + total_length(h.reply.all()), limit);
}

task<bool> responder_connection::chunk_room(responder_call& c, std::uint64_t wanted)
{
    while (rpc::exceeds_share(chunk_bytes_, wanted, options_.max_chunk_bytes) ||
           rpc::exceeds_share(share_->bytes, wanted, options_.max_address_chunk_bytes)) {
        stats_.chunk_waits.add();
        share_->freed.reset();
        const bool freed = co_await share_->freed.wait("other calls of its host that move data by RDMA");
        if (!freed || down())
            co_return false;
    }
    charge(c, wanted);
    co_return !down();
}

void responder_connection::charge(responder_call& c, std::uint64_t bytes) noexcept
{
    if (bytes <= c.chunk_bytes_)
        return;
    chunk_bytes_ += bytes - c.chunk_bytes_;
    share_->bytes += bytes - c.chunk_bytes_;
    c.chunk_bytes_ = bytes;
}

// The buffers of a set of credits are the connection's own, as its receives are. What comes on top waits for Sends to complete,
// which the requester can hold up by leaving an RDMA Read unanswered.
std::uint64_t responder_connection::least_charge() const noexcept
{
    return calls_in_use() > credits_.credits() + receive_slack ? receive_size() : 0;
}

// Has the call's stream where it can be decoded: it is inline, or in a Position-Zero chunk. Data items stay in their chunks.
task<responder_connection::assembly>
responder_connection::assemble(responder_call& c, std::size_t header_size, std::uint32_t length)
{
    const std::span<const std::byte> in_message(c.received_.data() + header_size, length - header_size);
    const auto zero = c.transport_.position_zero();
    if (c.transport_.reads.empty()) {
        c.args_ = xdr::decoder(in_message);
        co_return assembly::whole;
    }
    const std::uint64_t in_zero = total_length(zero);
    if (total_length(c.transport_.reads.all()) + in_message.size() > options_.max_call_size)
        co_return assembly::refused;
    const std::size_t size = zero.empty() ? in_message.size() : static_cast<std::size_t>(in_zero);
    if (!find_data_items(c.transport_, size, c.items_))
        co_return assembly::refused;
    if (zero.empty()) {
        c.args_ = xdr::decoder(in_message, c.items_.all());
        co_return assembly::whole;
    }
    lease memory = co_await buffers_.acquire(std::max<std::size_t>(size, 1), buffer_pool::call_patience);
    if (!memory) {
        end_unanswered(no_memory);
        co_return assembly::abandoned;
    }
    c.brought_ += memory.size();
    charge(c, c.brought_);
    const bool all_read = co_await read_chunk(c, zero, memory.data());
    if (!all_read)
        co_return assembly::abandoned;
    c.assembled_ = std::move(memory);
    c.args_ = xdr::decoder(std::span<const std::byte>(c.assembled_.data(), size), c.items_.all());
    // RFC 8166 4.2.1: the XID is that of the RPC message.
    xdr::decoder look = c.args_;
    if (look.u32() != c.transport_.xid || !look.ok())
        co_return assembly::refused;
    co_return assembly::whole;
}

task<void> responder_connection::refuse_call(responder_call& c, error_kind kind)
{
    served_by here(c);
    co_await here;
    const std::uint64_t bytes = least_charge();
    if (bytes != 0 && !co_await chunk_room(c, bytes)) {
        release(c);
        co_return;
    }
    co_await reply_error(c, kind);
}

task<void> responder_connection::serve(responder_call& c, std::size_t header_size, std::uint32_t length)
{
    served_by here(c);
    co_await here;
    const std::uint64_t chunk_bytes = std::max(chunk_bytes_of(c.transport_), least_charge());
    if (chunk_bytes != 0 && !co_await chunk_room(c, chunk_bytes)) {
        release(c);
        co_return;
    }
    const assembly assembled = co_await assemble(c, header_size, length);
    if (assembled == assembly::refused && !down()) {
        co_await reply_error(c, error_kind::chunk);
        co_return;
    }
    if (assembled != assembly::whole) {
        end_after_failed_read(c);
        release(c);
        co_return;
    }
    task_context traced = calls_scope_.context();
    traced.trace_id = c.trace();
    const task<bool> dispatching = dispatcher_.dispatch(c);
    verbena::detail::in_context<bool> with_trace(dispatching, traced);
    const bool answer = co_await with_trace;
    // RFC 8166 4.5.2: a Read chunk cuts the call's header, or what came is none.
    if (!answer && !c.is_call() && !down()) {
        log_refusal(c, c.args().failure().context());
        co_await reply_error(c, error_kind::chunk);
        co_return;
    }
    if (!answer || c.read_failed_ || down()) {
        end_after_failed_read(c);
        release(c);
        co_return;
    }
    co_await reply(c);
}

} // namespace verbena::rpcrdma
