// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rpcrdma/responder.hpp>

#include "responder_connection.hpp"

#include <verbena/core/log.hpp>
#include <verbena/protocols/rpc/message.hpp>

#include <algorithm>
#include <cstring>
#include <functional>

namespace verbena::rpcrdma {
namespace {

// What all calls of a connection have for a trace.
task_context traced(reactor& shard) noexcept
{
    task_context context;
    context.trace_id = shard.next_trace_id();
    return context;
}

} // namespace

responder_connection::responder_connection(verbs::context& provider, buffer_pool& buffers,
                                           rpc::dispatcher& dispatcher, const responder_options& options,
                                           responder_stats& stats, chunk_shares::user share,
                                           receive_share& receives)
    : provider_(provider),
      buffers_(buffers),
      dispatcher_(dispatcher),
      options_(options),
      stats_(stats),
      trace_(traced(provider.shard())),
      calls_scope_(provider.shard(), &trace_, this, "calls of an RDMA connection"),
      share_(std::move(share)),
      receives_(receives),
      credits_(std::clamp<std::uint32_t>(options.initial_credits, 1, std::max(1u, options.credits)))
{
    batch_.reserve(max_reply_requests);
    local_.reserve(max_reply_requests + max_reply_stretches);
}

responder_connection::~responder_connection()
{
    if (reverse_)
        reverse_->closed();
    queue_pair_.reset();
    deferred::unlink();
    receives_.raised -= raised_;
    share_->raised -= raised_;
    if (chunk_bytes_ != 0) { // of calls whose Sends never completed
        share_->bytes -= chunk_bytes_;
        share_->freed.set();
    }
}

task<void> responder_connection::run(std::unique_ptr<verbs::connect_request> request,
                                     verbs::protection_domain& domain)
{
    const task_context& context = co_await current_context();
    server_stop_ = context.stop;
    bool accepted = false;
    try {
        accepted = co_await take(std::move(request), domain);
    } catch (...) {
        on_exception(std::current_exception());
    }
    if (accepted) {
        reads_.release(queue_pair_->max_reads());
        stats_.connections.add(1);
        accepted_ = true;
        heard_ = provider_.shard().now();
        if (!provider_.query().notices_dead_peers)
            provider_.shard().timers().arm(silence_, heard_ + options_.probe_after);
        end_if_drained();
        if (!co_await ended_.wait())
            queue_pair_->disconnect();
        // The provider forces an end that the peer delays, so this one is certain.
        co_await ended_.wait_shielded();
        stats_.connections.add(-1);
    } else if (queue_pair_) {
        // Destroyed when its end is over, which may take its time on a device.
        queue_pair_->abort(error(std::errc::connection_aborted, "the connection could not be set up"));
        co_await ended_.wait_shielded();
    }
    calls_scope_.request_stop();
    co_await calls_scope_.join();
    queue_pair_.reset();
}

// Sets the connection up; false if that failed.
task<bool> responder_connection::take(std::unique_ptr<verbs::connect_request> request,
                                      verbs::protection_domain& domain)
{
    peer_address_ = request->peer_address();
    peer_name_ = request->peer_name();
    peer_.address = peer_address_;
    peer_.name = peer_name_;
    peer_.transport = provider_.query().provider;

    private_message mine;
    mine.remote_invalidation = provider_.query().remote_invalidate;
    mine.send_size = mine.receive_size = options_.inline_size;
    terms_ = negotiate(mine, find_private_message(request->private_data()));
    const auto private_data = encode(mine);

    const std::uint32_t receives = options_.credits + receive_slack + options_.reverse_credits;
    verbs::connect_options o;
    o.private_data = private_data;
    o.initiator_depth = options_.read_depth;
    o.responder_resources = 0; // a requester has nothing to read here
    o.queue_pair.receive_depth = receives;
    o.queue_pair.send_depth = send_depth;
    auto made = co_await request->make_queue_pair(domain, o.queue_pair);
    if (!made)
        co_return false;
    queue_pair_ = std::move(*made);
    queue_pair_->set_handler(this);
    add_receive_slots(credits_ + receive_slack + options_.reverse_credits);
    // Before the answer: a Send that finds no receive ends the connection on iWARP.
    if (!post_receives())
        co_return false;
    const auto accepted = co_await request->accept(o);
    co_return accepted.has_value();
}

void responder_connection::on_exception(const std::exception_ptr& e) noexcept
{
    stats_.exceptions.add();
    log_limited(stats_.exceptions_logged, log_level::error, "rpcrdma", "connection ended by an exception",
                {{"peer", peer_name_}, {"exception", what_of(e)}});
    if (queue_pair_)
        end_unanswered(error_of(e, "an exception left a task of the connection"));
}

void responder_connection::drain() noexcept
{
    draining_ = true;
    end_if_drained();
}

void responder_connection::end_if_drained() noexcept
{
    if (draining_ && accepted_ && !down_ && calls_in_use() == 0)
        queue_pair_->disconnect();
}

void responder_connection::add_receive_slots(std::uint32_t more)
{
    const auto before = static_cast<std::uint32_t>(receive_slots_.size());
    const std::uint32_t all = before + more;
    empty_slots_.reserve(all);
    arrived_.reserve(all);
    handling_.reserve(all);
    receive_slots_.resize(all);
    for (std::uint32_t i = all; i > before; --i)
        empty_slots_.push_back(i - 1);
}

// A call came, whose requester wants so many. How many it has under way can't be seen here: it waits for credits where its calls are
// answered at once, too.
void responder_connection::raise_credits(std::uint32_t wanted)
{
    const std::uint32_t most = std::min({options_.credits, wanted, 2 * credits_});
    if (most <= credits_)
        return;
    const time_point now = provider_.shard().now();
    if (now - window_begun_ > options_.credit_window) {
        window_begun_ = now;
        window_calls_ = 0;
    }
    if (++window_calls_ < credits_)
        return;
    window_begun_ = now;
    window_calls_ = 0;
    const std::uint32_t more = most - credits_;
    const std::uint64_t bytes = more * receive_size();
    const bool is_only_one = share_->raised == raised_;
    if (receives_.raised + bytes > options_.max_raised_bytes ||
        (!is_only_one && share_->raised + bytes > options_.max_address_raised_bytes))
        return;
    receives_.raised += bytes;
    share_->raised += bytes;
    raised_ += bytes;
    stats_.credit_raises.add();
    credits_ = most;
    add_receive_slots(more);
    receive_again();
}

bool responder_connection::post_receive(lease memory) noexcept
{
    const std::uint32_t slot = empty_slots_.back();
    const verbs::receive_request r{
        make_id(operation::receive, 0, slot),
        {memory.data(), static_cast<std::uint32_t>(std::max<std::size_t>(options_.inline_size, 4096)), 0}};
    if (!queue_pair_->post_receive({&r, 1}))
        return false;
    receive_slots_[slot] = std::move(memory);
    empty_slots_.pop_back();
    return true;
}

bool responder_connection::post_receives() noexcept
{
    while (!empty_slots_.empty()) {
        lease memory = buffers_.try_acquire(receive_size());
        if (!memory) {
            stats_.receive_shortages.add();
            return false;
        }
        if (!post_receive(std::move(memory)))
            return false;
    }
    return true;
}

// What arrives and what completes makes up for receives that could not be posted. Where none stands, nothing arrives.
void responder_connection::receive_again() noexcept
{
    if (post_receives() || receive_awaited_ || empty_slots_.size() < receive_slots_.size())
        return;
    receive_awaited_ = true;
    try {
        calls_scope_.spawn(&responder_connection::await_receive, this);
    } catch (...) {
        on_exception(std::current_exception());
    }
}

task<void> responder_connection::await_receive()
{
    lease memory;
    // In turns: who waits for a large buffer holds up those behind it who would do with less.
    while (!memory && !calls_scope_.stop_requested())
        memory = co_await buffers_.acquire(receive_size(), buffer_pool::call_patience);
    receive_awaited_ = false;
    if (memory && !down_ && !empty_slots_.empty() && post_receive(std::move(memory)))
        post_receives();
}

void responder_connection::on_completions(std::span<const verbs::completion> batch) noexcept
{
    heard_ = provider_.shard().now();
    for (const auto& c : batch) {
        const auto op = operation(c.id >> 56);
        if (op == operation::receive) {
            const auto slot = static_cast<std::uint32_t>(c.id);
            if (verbs::has_immediate(c.opcode) && c.status == verbs::status::success) {
                // What else the batch holds is taken all the same: a Read's call waits for its completion.
                receive_slots_[slot].reset();
                give_up(error(std::errc::protocol_error, "an immediate, which RPC-over-RDMA does not have"));
                continue;
            }
            if (c.status == verbs::status::success)
                arrived_.push_back({slot, c.length});
            else
                receive_slots_[slot].reset();
            continue;
        }
        if (op == operation::reverse) {
            const auto slot = static_cast<std::uint32_t>(c.id);
            reverse_sends_[slot].reset();
            free_reverse_sends_.push_back(slot);
            --send_queue_used_;
            send_queue_freed();
            continue;
        }
        if (op == operation::probe) {
            probing_ = false;
            --send_queue_used_;
            send_queue_freed();
            continue;
        }
        responder_call* call = find(c.id);
        if (call == nullptr) {
            stats_.stale_completions.add();
            continue;
        }
        if (op == operation::read) {
            if (c.status != verbs::status::success)
                call->read_failed_ = true;
            reads_.release();
            --reads_out_;
            read_progress_ = provider_.shard().now();
            --send_queue_used_;
            if (--call->reads_pending_ == 0)
                call->reads_done_.set();
        } else {
            send_queue_used_ -= call->posted_;
            release(*call);
        }
        send_queue_freed();
    }
    if (!arrived_.empty() && handled_ == handling_.size())
        provider_.shard().post(static_cast<deferred&>(*this));
}

// Replies and Reads wait for the queue, and so do calls back.
void responder_connection::send_queue_freed() noexcept
{
    send_queue_moved_.set();
    if (reverse_)
        reverse_->progress();
}

void responder_connection::on_disconnected(const error& cause) noexcept
{
    down_ = true;
    const bool orderly = cause == verbs::connection_end::orderly;
    try {
        log_limited(stats_.ends_logged, orderly ? log_level::debug : log_level::info, "rpcrdma",
                    "connection ended", {{"peer", peer_name_}, {"cause", cause.message()}});
    } catch (const std::bad_alloc&) { // what has to be done comes behind this
    }
    calls_scope_.request_stop();
    send_queue_moved_.set(); // a call that goes on alone hears of no stop
    if (reverse_)
        reverse_->closed();
    ended_.set();
}

void responder_connection::run() noexcept
{
    turn_used_ = 0;
    for (;;) {
        if (handled_ == handling_.size()) {
            handled_ = 0;
            handling_.clear();
            handling_.swap(arrived_);
            if (handling_.empty())
                return;
        }
        // What came at once, up to all credits, must not keep other connections waiting.
        if (turn_used_ >= options_.turn_share) {
            stats_.yields.add();
            provider_.shard().post_last(static_cast<deferred&>(*this));
            return;
        }
        const arrival a = handling_[handled_++];
        ++turn_used_;
        lease message = std::move(receive_slots_[a.slot]);
        empty_slots_.push_back(a.slot);
        // First a receive for the next message, then this one.
        if (!down_)
            receive_again();
        if (!down_ && reverse_ && reverse_->answered(message, a.length))
            continue;
        try {
            begin_call(std::move(message), a.length);
        } catch (...) { // its requester would wait for the answer
            on_exception(std::current_exception());
        }
    }
}

responder_call* responder_connection::take_call()
{
    if (!free_calls_.empty()) {
        responder_call* c = calls_[free_calls_.back()].get();
        free_calls_.pop_back();
        return c;
    }
    calls_.push_back(std::make_unique<responder_call>(*this));
    calls_.back()->index_ = static_cast<std::uint32_t>(calls_.size() - 1);
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
    if (!down_ && !empty_slots_.empty())
        receive_again();
    end_if_drained();
}

responder_call* responder_connection::find(std::uint64_t id) noexcept
{
    const auto index = static_cast<std::uint32_t>(id);
    const auto generation = static_cast<std::uint32_t>(id >> 32) & 0xffffff;
    if (index >= calls_.size() || (calls_[index]->generation_ & 0xffffff) != generation)
        return nullptr;
    return calls_[index].get();
}

void responder_connection::log_refusal(const char* rule) noexcept
{
    log_limited(stats_.refusals_logged, log_level::warning, "rpcrdma", "message refused",
                {{"peer", peer_name_}, {"rule", rule}});
}

// On a device the end takes a while; what comes meanwhile is not served.
void responder_connection::give_up(const error& cause) noexcept
{
    given_up_ = true;
    queue_pair_->abort(cause);
}

void responder_connection::begin_call(lease message, std::uint32_t length)
{
    if (down_ || given_up_)
        return;
    if (draining_) {
        stats_.refused_draining.add(); // the requester sends it again, to whoever serves it then
        return;
    }
    // Receives are posted again before their calls are served, so nothing else bounds a requester that
    // ignores its credits (RFC 8166 3.3.1). Answered calls whose Sends are not complete don't count, since
    // the requester can't see that: behind a slow RDMA Read there may be many. The send queue bounds them.
    if (unanswered_ >= credits_ + receive_slack) {
        stats_.credit_overruns.add();
        log_limited(stats_.refusals_logged, log_level::warning, "rpcrdma", "credits exceeded",
                    {{"peer", peer_name_}, {"calls", unanswered_}});
        give_up(error(std::errc::protocol_error, "more calls than credits (RFC 8166 3.3.1)"));
        return;
    }
    responder_call& c = *take_call();
    c.begin(std::move(message), peer_, buffers_);
    ++unanswered_;
    const std::span<const std::byte> bytes(c.received_.data(), length);
    const decoded_header d = decode(bytes, c.transport_);
    const auto refuse = [&](const char* rule, error_kind kind) {
        log_refusal(rule);
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
    stats_.calls.add();
    stats_.credits_wanted.add(c.transport_.credits);
    raise_credits(c.transport_.credits);
    turn_used_ += chunk_bytes_of(c.transport_) / options_.turn_unit;
    // Not by a pointer to the member, which compilers do not see through: this is each call's way.
    calls_scope_.spawn([this, &c, offset = d.offset, length] { return serve(c, offset, length); });
}

bool responder_connection::reverse_room() const noexcept
{
    return !free_reverse_sends_.empty() && send_queue_used_ < send_depth;
}

result<void> responder_connection::send_reverse(lease message, std::uint32_t length)
{
    const verbs::segment local{message.data(), length, 0};
    const std::uint32_t slot = free_reverse_sends_.back();
    verbs::send_request w;
    w.id = make_id(operation::reverse, 0, slot);
    w.segments = {&local, 1};
    if (auto posted = queue_pair_->post_send({&w, 1}); !posted)
        return posted;
    free_reverse_sends_.pop_back();
    reverse_sends_[slot] = std::move(message);
    ++send_queue_used_;
    return {};
}

std::shared_ptr<rpc::reverse_channel> responder_call::reverse() { return connection_.reverse(); }

std::shared_ptr<rpc::reverse_channel> responder_connection::reverse()
{
    if (!reverse_ && options_.reverse_credits != 0 && !down_) {
        // More Sends than calls: a reply may come before the Send that it answers has completed.
        const std::uint32_t sends = 2 * options_.reverse_credits;
        reverse_sends_.resize(sends);
        for (std::uint32_t i = 0; i < sends; ++i)
            free_reverse_sends_.push_back(i);
        reverse_ = std::make_shared<reverse_requester>(static_cast<reverse_link&>(*this), provider_.shard(),
                                                       buffers_, options_, stats_, terms_.send_threshold);
    }
    return reverse_;
}

task<bool> responder_connection::send_queue_room(std::uint32_t entries)
{
    while (!down_ && send_queue_used_ + entries > send_depth) {
        send_queue_moved_.reset();
        const bool moved = co_await send_queue_moved_.wait();
        if (!moved)
            co_return false;
    }
    co_return !down_;
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
                read_progress_ = provider_.shard().now();
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
        co_await c.reads_done_.wait_shielded(); // the memory is the provider's until then
    if (failure)
        std::rethrow_exception(failure);
    if (c.read_failed_)
        stats_.failed_reads.add();
    co_return !c.read_failed_;
}

// Armed once for many Reads, and again only while there are some: a Read costs no timer.
void responder_connection::on_timer() noexcept
{
    if (down_ || reads_out_ == 0)
        return;
    const time_point limit = read_progress_ + options_.read_limit;
    if (provider_.shard().clock().now() < limit) {
        provider_.shard().timers().arm(*this, limit);
        return;
    }
    stats_.stalled_reads.add();
    give_up(error(std::errc::timed_out, "the requester does not answer RDMA Reads"));
}

void responder_connection::after_silence() noexcept
{
    if (down_)
        return;
    const time_point now = provider_.shard().clock().now();
    time_point next = heard_ + options_.probe_after;
    if (next <= now) {
        next = now + options_.probe_after;
        if (!probing_ && send_queue_used_ < send_depth) {
            verbs::send_request w;
            w.id = make_id(operation::probe, 0, 0);
            w.opcode = verbs::opcode::rdma_write; // of no bytes: neither end looks at the key
            probing_ = queue_pair_->post_send({&w, 1}).has_value();
            send_queue_used_ += probing_ ? 1 : 0;
            stats_.probes.add();
        }
    }
    provider_.shard().timers().arm(silence_, next);
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
        const bool freed = co_await share_->freed.wait();
        if (!freed || down_)
            co_return false;
    }
    charge(c, wanted);
    co_return !down_;
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
    return calls_in_use() > credits_ + receive_slack ? receive_size() : 0;
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
    const std::uint64_t bytes = least_charge();
    if (bytes != 0 && !co_await chunk_room(c, bytes)) {
        release(c);
        co_return;
    }
    co_await reply_error(c, kind);
}

task<void> responder_connection::serve(responder_call& c, std::size_t header_size, std::uint32_t length)
{
    const std::uint64_t chunk_bytes = std::max(chunk_bytes_of(c.transport_), least_charge());
    if (chunk_bytes != 0 && !co_await chunk_room(c, chunk_bytes)) {
        release(c);
        co_return;
    }
    const assembly assembled = co_await assemble(c, header_size, length);
    if (assembled == assembly::refused && !down_) {
        co_await reply_error(c, error_kind::chunk);
        co_return;
    }
    if (assembled != assembly::whole) {
        end_after_failed_read(c);
        release(c);
        co_return;
    }
    const bool answer = co_await dispatcher_.dispatch(c);
    // RFC 8166 4.5.2: a Read chunk cuts the call's header, or what came is none.
    if (!answer && !c.is_call() && !down_) {
        log_refusal(c.args().failure().context());
        co_await reply_error(c, error_kind::chunk);
        co_return;
    }
    if (!answer || c.read_failed_ || down_) {
        end_after_failed_read(c);
        release(c);
        co_return;
    }
    co_await reply(c);
}

} // namespace verbena::rpcrdma
