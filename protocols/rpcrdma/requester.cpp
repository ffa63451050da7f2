// SPDX-License-Identifier: Apache-2.0
#include "requester.hpp"
#include "rejection.hpp"

#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/protocols/rpc/message.hpp>

#include <algorithm>
#include <cassert>
#include <cstring>

namespace verbena::rpcrdma {

requester::requester(verbs::context& provider, buffer_pool& buffers, std::string_view address,
                     const requester_options& options, requester_stats* stats)
    : reconnecting_client(provider.shard(), options.client),
      provider_(provider),
      buffers_(buffers),
      address_(address),
      options_(options),
      stats_(stats != nullptr ? *stats : own_stats_),
      max_credits_(std::clamp<std::uint32_t>(options.client.max_calls, 1, rpc::max_outstanding_calls)),
      transfers_(rpc::max_outstanding_calls)
{
}

requester::~requester()
{
    drop();
    deferred::unlink();
}

task<result<void>> requester::open()
{
    if (!domain_) {
        auto made = provider_.make_domain();
        if (!made)
            co_return made.error();
        const auto added = co_await (*made)->add_pool(buffers_);
        if (!added)
            co_return added.error();
        domain_ = std::move(*made);
    }
    private_message mine;
    mine.remote_invalidation = provider_.query().remote_invalidate;
    mine.send_size = mine.receive_size = options_.inline_size;
    const auto private_data = encode(mine);
    verbs::connect_options o;
    o.private_data = private_data;
    o.initiator_depth = 0; // a requester never reads
    o.responder_resources = std::max<std::uint32_t>(options_.responder_resources, 1);
    const std::uint32_t callbacks = options_.callbacks != nullptr ? options_.callback_credits : 0;
    o.queue_pair.receive_depth = max_credits_ + callbacks + slack;
    const std::uint32_t sends = 2 * (max_credits_ + callbacks) + slack;
    o.queue_pair.send_depth = sends + 1; // what wakes the server
    o.timeout = options().connect_timeout;
    std::vector<std::byte> answer;
    auto connected = co_await provider_.connect(address_, *domain_, o, answer);
    if (!connected) {
        const char* const why = rejection_of(answer);
        co_return why == nullptr ? connected.error() : error(connected.error().code(), why);
    }
    queue_pair_ = std::move(*connected);
    queue_pair_->set_handler(this);
    terms_ = negotiate(mine, find_private_message(answer));
    credits_ = 1; // until the first reply (RFC 8166 3.3.3)
    in_flight_ = 0;
    // Where a Send's completion says that the peer's device has it, that need not be told twice.
    wakes_left_ = provider_.query().completion_means_delivered ? 0 : most_wakes;
    waking_ = false;
    ended_.reset();
    ++epoch_;
    callbacks_in_service_ = 0;
    peer_address_ = queue_pair_->peer_address();
    receives_.resize(o.queue_pair.receive_depth);
    sends_.resize(sends);
    abandoned_.reserve(max_credits_); // so that retract() needs no memory
    free_sends_.clear();
    for (std::uint32_t i = 0; i < sends; ++i)
        free_sends_.push_back(i);
    for (std::uint32_t i = 0; i < o.queue_pair.receive_depth; ++i) {
        if (post_receive(i))
            continue;
        const error why(std::errc::not_enough_memory, "receive buffers");
        queue_pair_->abort(why);
        co_await ended_.wait_shielded();
        co_return why;
    }
    co_return result<void>();
}

task<void> requester::hang_up()
{
    if (!queue_pair_ || !queue_pair_->connected())
        co_return;
    queue_pair_->disconnect();
    co_await ended_.wait_shielded();
}

void requester::drop() noexcept
{
    timer::cancel();
    while (outstanding* o = waiting_.front())
        o->unlink();
    // Before the queue pair that they are limited to.
    for (transfer& t : transfers_)
        t.clear();
    queue_pair_.reset();
    receives_.clear();
    sends_.clear();
    abandoned_.clear();
    callbacks_.clear();
}

void requester::fail_connection(const error& cause) noexcept
{
    queue_pair_->abort(cause);
    connection_lost(cause);
}

bool requester::post_receive(std::uint32_t slot) noexcept
{
    const std::uint32_t size = std::max(min_receive_size, terms_.receive_threshold);
    lease memory = buffers_.try_acquire(size);
    if (!memory)
        return false;
    const verbs::receive_request r{make_id(operation::receive, slot), {memory.data(), size, 0}};
    if (!queue_pair_->post_receive({&r, 1}))
        return false;
    receives_[slot] = std::move(memory);
    return true;
}

void requester::transmit(outstanding& o) noexcept
{
    waiting_.push_back(o);
    if (in_flight_ >= credits_)
        stats_.credit_waits.add();
    pump();
}

void requester::pump() noexcept
{
    // A Send completes late at times, after the reply to it: its slot is waited for as a credit is. What a queue
    // pair that has ended can't take goes out on the next one.
    while (connected() && queue_pair_->connected() && in_flight_ < credits_ && !free_sends_.empty()) {
        outstanding* o = waiting_.pop_front();
        if (o == nullptr)
            return;
        ++in_flight_;
        if (auto started = start(*o); !started) {
            --in_flight_;
            complete(*o, started.error());
        }
    }
}

void requester::retract(outstanding& o) noexcept
{
    o.unlink();
    transfer& t = transfer_of(o);
    if (t.sent)
        abandoned_.push_back(o.xid());
    t.sent = false;
    o.must_settle = t.exposes();
}

// From here on the server can't touch the call's memory (RFC 8166 4.4.1).
task<void> requester::settle(outstanding& o)
{
    transfer& t = transfer_of(o);
    if (t.exposing)
        co_await t.exposed.wait_shielded();
    // Out of drop()'s reach: grant, region and memory go in this order, after the revocation.
    std::array<exposure, max_grants + 2> taken;
    std::array<verbs::grant, max_grants + 2> grants;
    std::size_t count = 0;
    t.for_each([&](exposure& e) {
        taken[count] = std::move(e);
        grants[count] = std::move(taken[count].grant);
        ++count;
    });
    t.clear();
    // Also where there was no memory to wait by: then the grants are dropped, which is as good where their peer is of this shard.
    class settling {
    public:
        explicit settling(requester& r) noexcept : requester_(r) { ++r.settling_; }
        settling(const settling&) = delete;
        ~settling()
        {
            if (--requester_.settling_ == 0)
                requester_.settled_.set();
        }

    private:
        requester& requester_;
    };
    const settling under_way(*this);
    co_await domain_->revoke(std::span(grants).first(count));
}

task<void> requester::quiesce()
{
    // What waits for the queue pair hears of its end.
    if (queue_pair_)
        queue_pair_->abort(error(std::errc::connection_aborted, "the connection is given up"));
    for (transfer& t : transfers_) {
        if (t.exposing)
            co_await t.exposed.wait_shielded();
    }
    while (settling_ != 0) {
        settled_.reset();
        co_await settled_.wait_shielded();
    }
    if (queue_pair_)
        co_await ended_.wait_shielded(); // else drop() would hold the shard until it has
}

segment requester::segment_of(const exposure& e) noexcept
{
    if (!e.grant)
        return {};
    const verbs::remote_segment where = e.grant.where();
    return {where.key, where.length, where.address};
}

// As `t` plans it; without grants, of the right size only.
header requester::header_of(const outstanding& o, const transfer& t) const noexcept
{
    header h;
    h.xid = o.xid();
    h.credits = max_credits_;
    if (t.whole)
        h.proc = procedure::nomsg;
    bool room = true;
    for (std::size_t i = 0; i < t.read_count; ++i)
        room = h.reads.push_back({t.read_position, segment_of(t.reads[i])}) && room;
    if (t.result.planned())
        room = h.writes.add_chunk() && h.writes.add_segment(segment_of(t.result)) && room;
    h.has_reply_chunk = t.reply.planned();
    if (h.has_reply_chunk)
        room = h.reply.push_back(segment_of(t.reply)) && room;
    assert(room && "a plan has fewer segments than a header holds");
    return h;
}

result<void> requester::plan_new(exposure& e, std::size_t size, verbs::access rights)
{
    e.memory = buffers_.try_acquire(size);
    if (!e.memory)
        return error(std::errc::not_enough_memory, "memory for a chunk", size);
    e.bytes = e.memory.bytes().first(size);
    e.rights = rights;
    return {};
}

// Makes room for the reply, in the way that its largest size asks for.
result<void> requester::plan_replies(const rpc::request& call, transfer& t)
{
    constexpr auto written = verbs::access::local_write | verbs::access::remote_write;
    const std::size_t unreduced = call.max_reply + xdr::padded(call.max_result);
    if (min_header_size + unreduced <= terms_.receive_threshold)
        return {};
    header echoed; // what comes back with a Write chunk of one segment
    if (!echoed.writes.add_chunk() || !echoed.writes.add_segment({}))
        return error(std::errc::no_buffer_space, "Write list");
    if (call.max_result != 0 && encoded_size(echoed) + call.max_reply <= terms_.receive_threshold) {
        stats_.write_chunks.add();
        return plan_new(t.result, call.max_result, written);
    }
    stats_.reply_chunks.add();
    return plan_new(t.reply, unreduced, written);
}

// Decides which parts of the call go inline and which are exposed.
result<void> requester::plan_call(const rpc::request& call, transfer& t)
{
    const auto head = call.message().bytes();
    const auto items = call.message().payloads();
    const std::size_t whole = call.message().position();
    header h;
    if (t.result.planned() && (!h.writes.add_chunk() || !h.writes.add_segment({})))
        return error(std::errc::no_buffer_space, "Write list");
    h.has_reply_chunk = t.reply.planned();
    if (h.has_reply_chunk && !h.reply.push_back({}))
        return error(std::errc::no_buffer_space, "Reply chunk");
    if (encoded_size(h) + whole <= terms_.send_threshold) {
        stats_.inline_calls.add();
        return {};
    }
    if (!items.empty() && items[0].length != 0) {
        for (std::size_t i = 0; i < call.argument().pieces().size(); ++i) {
            if (!h.reads.push_back({static_cast<std::uint32_t>(items[0].position), {}}))
                return error(std::errc::no_buffer_space, "Read list");
        }
        if (encoded_size(h) + head.size() <= terms_.send_threshold) {
            // The segments' memory stands in the request, which outlives the transfer.
            for (auto piece : call.argument().pieces()) {
                exposure& e = t.reads[t.read_count];
                e.bytes = {const_cast<std::byte*>(piece.data()), piece.size()};
                e.rights = verbs::access::remote_read;
                t.read_count += e.planned();
            }
            t.read_position = static_cast<std::uint32_t>(items[0].position);
            stats_.read_chunk_calls.add();
            return {};
        }
    }
    exposure& e = t.reads[0];
    if (auto planned = plan_new(e, whole, verbs::access::remote_read); !planned)
        return planned;
    t.read_count = 1;
    t.read_position = 0;
    t.whole = true;
    stats_.long_calls.add();
    std::byte* to = e.bytes.data();
    const auto put = [&to](std::span<const std::byte> bytes) {
        if (!bytes.empty())
            std::memcpy(to, bytes.data(), bytes.size());
        to += bytes.size();
    };
    call.message().in_order(put, [&](std::size_t) {
        for (auto piece : call.argument().pieces())
            put(piece);
        std::memset(to, 0, xdr::pad_of(items[0].length));
        to += xdr::pad_of(items[0].length);
    });
    return {};
}

result<void> requester::start(outstanding& o)
{
    transfer& t = transfer_of(o);
    t.clear();
    if (!o.call.message().payloads().empty() &&
        o.call.argument().size() != o.call.message().payloads()[0].length)
        return error(std::errc::invalid_argument, "payload and its length word differ");
    if (auto planned = plan_replies(o.call, t); !planned)
        return planned;
    if (auto planned = plan_call(o.call, t); !planned)
        return planned;
    if (!t.exposes())
        return send(o);
    t.exposing = true;
    t.exposed.reset();
    try {
        spawn(already_made, expose_and_send(o));
    } catch (...) {
        t.exposing = false; // nobody waits for it
        t.exposed.set();
        return error_of(std::current_exception(), "memory could not be granted for a call");
    }
    return {};
}

task<result<void>> requester::expose(transfer& t)
{
    verbs::queue_pair* const scope = provider_.query().grant_per_queue_pair ? queue_pair_.get() : nullptr;
    std::array<verbs::grant_request, max_grants + 2> requests;
    std::array<exposure*, max_grants + 2> exposures;
    std::size_t count = 0;
    t.for_each([&](exposure& e) {
        exposures[count] = &e;
        requests[count].memory = e.bytes;
        requests[count].rights = e.rights;
        requests[count++].scope = scope;
    });
    for (std::size_t i = 0; i < count; ++i) {
        exposure& e = *exposures[i];
        if (domain_->is_registered(e.bytes))
            continue;
        auto region = co_await domain_->register_memory(e.bytes);
        if (!region)
            co_return region.error();
        e.region = std::move(*region);
    }
    const auto made = co_await domain_->make_grants(std::span(requests).first(count));
    if (!made)
        co_return made.error();
    for (std::size_t i = 0; i < count; ++i)
        exposures[i]->grant = std::move(requests[i].made);
    co_return result<void>();
}

task<void> requester::expose_and_send(outstanding& o)
{
    const std::uint32_t xid = o.xid();
    transfer& t = transfer_of(o);
    result<void> done;
    try {
        done = co_await expose(t);
    } catch (...) {
        done = error_of(std::current_exception(), "an exception left the granting of memory");
    }
    t.exposing = false;
    t.exposed.set();
    // drop() takes it all, and what is still wanted goes out on the next connection. A queue pair that has ended tells
    // so only later, as that of a device that went does, and its errors until then are none of the call's.
    if (!connected() || !queue_pair_->connected())
        co_return;
    const bool wanted = find(xid) == &o;
    if (wanted && done)
        done = send(o);
    if (!wanted || !done)
        --in_flight_;
    if (wanted && !done)
        complete(o, done.error());
    pump();
}

result<void> requester::send(outstanding& o)
{
    transfer& t = transfer_of(o);
    const bool with_payload = t.read_count == 0;
    auto posted = post_message(header_of(o, t), t.whole ? nullptr : &o.call.message(),
                               with_payload ? &o.call.arguments() : nullptr);
    t.sent = bool(posted);
    return posted;
}

result<void> requester::post_message(const header& h, const xdr::encoder* message,
                                     const rpc::attachments* payloads)
{
    if (free_sends_.empty())
        return error(std::errc::no_buffer_space, "send queue");
    lease memory = buffers_.try_acquire(terms_.send_threshold);
    if (!memory)
        return error(std::errc::not_enough_memory, "send buffer");
    xdr::encoder out(memory.bytes().first(terms_.send_threshold));
    encode(out, h);
    const auto put = [&out](std::span<const std::byte> bytes) {
        const std::span<std::byte> to = out.reserve(bytes.size());
        if (!to.empty())
            std::memcpy(to.data(), bytes.data(), bytes.size());
    };
    if (message != nullptr) {
        message->in_order(put, [&](std::size_t item) {
            if (payloads == nullptr)
                return;
            const rpc::payload& bytes = (*payloads)[item].bytes;
            for (auto piece : bytes.pieces())
                put(piece);
            out.pad(bytes.size());
        });
    }
    if (!out.ok())
        return error(std::errc::message_size, "a message exceeds the inline threshold");
    const verbs::segment local{memory.data(), static_cast<std::uint32_t>(out.size()), 0};
    const std::uint32_t slot = free_sends_.back();
    verbs::send_request request;
    request.id = make_id(operation::send, slot);
    request.segments = {&local, 1};
    if (auto posted = queue_pair_->post_send({&request, 1}); !posted)
        return posted;
    free_sends_.pop_back();
    sends_[slot] = std::move(memory);
    if (wakes_left_ != 0 && !timer::is_armed())
        wake_later();
    return {};
}

void requester::wake_later() noexcept
{
    const duration patience = std::min(wake_after, options_.client.timeout / 2);
    provider_.shard().timers().arm(*this, provider_.shard().now() + patience);
}

// A device may leave what comes while it sets a connection up where it is until more comes (siw, docs/internals/rdma.md), and
// both ends would wait. Of an RDMA Write of nothing neither end looks at the key, and the server sees nothing.
void requester::on_timer() noexcept
{
    if (wakes_left_ == 0 || !connected() || !queue_pair_->connected())
        return;
    if (!waking_) {
        verbs::send_request w;
        w.id = make_id(operation::wake, 0);
        w.opcode = verbs::opcode::rdma_write;
        waking_ = queue_pair_->post_send({&w, 1}).has_value();
        stats_.wakes.add(waking_);
    }
    if (--wakes_left_ != 0)
        wake_later();
}

void requester::on_completions(std::span<const verbs::completion> batch) noexcept
{
    bool freed = false;
    for (const verbs::completion& c : batch) {
        const auto slot = static_cast<std::uint32_t>(c.id);
        if (operation(c.id >> 32) == operation::send) {
            sends_[slot].reset();
            free_sends_.push_back(slot);
            freed = true;
            continue;
        }
        if (operation(c.id >> 32) == operation::wake) {
            waking_ = false;
            continue;
        }
        lease message = std::move(receives_[slot]);
        if (c.status != verbs::status::success || !connected())
            continue;
        if (verbs::has_immediate(c.opcode)) {
            fail_connection(
                error(std::errc::protocol_error, "an immediate, which RPC-over-RDMA does not have"));
            continue;
        }
        wakes_left_ = 0;
        if (c.invalidated_key != 0)
            stats_.remote_invalidations.add();
        const bool posted = post_receive(slot);
        on_message(std::move(message), c.length);
        // A queue pair whose end is under way takes none, and what it had received before is good.
        if (!posted && connected() && queue_pair_->connected()) {
            fail_connection(error(std::errc::not_enough_memory, "receive buffers"));
            continue;
        }
    }
    if (freed)
        pump();
}

void requester::on_disconnected(const error& cause) noexcept
{
    ended_.set();
    connection_lost(cause);
}

void requester::on_message(lease message, std::uint32_t length) noexcept
{
    const std::span<const std::byte> bytes(message.data(), length);
    header h;
    const decoded_header decoded = decode(bytes, h);
    if (decoded.action != verdict::good) {
        stats_.dropped.add();
        return;
    }
    const auto payload = bytes.subspan(decoded.offset);
    // A call of the server; its credits are of the other direction (RFC 8167 4.1).
    const auto prefix = rpc::peek(payload);
    if (h.proc == procedure::msg && prefix && prefix->type == rpc::message_type::call) {
        take_callback(std::move(message), length);
        return;
    }
    outstanding* o = find(h.xid);
    transfer* t = o != nullptr ? &transfer_of(*o) : nullptr;
    const bool answers = t != nullptr && t->sent;
    if (answers) {
        t->sent = false;
    } else if (const auto given_up = std::ranges::find(abandoned_, h.xid); given_up != abandoned_.end()) {
        abandoned_.erase(given_up);
    } else {
        stats_.dropped.add();
        return;
    }
    --in_flight_;
    if (h.proc == procedure::error)
        stats_.errors.add(); // whose direction nobody can tell: its credits count for nothing (RFC 8167 6)
    else
        credits_ = std::clamp<std::uint32_t>(h.credits, 1, max_credits_);
    if (answers)
        complete(*o, take_reply(*t, h, std::move(message), payload));
    pump();
}

// Puts the reply together from the message and the chunks, which settle() takes out of the server's reach before the
// caller decodes them.
result<rpc::reply> requester::take_reply(transfer& t, const header& h, lease message,
                                         std::span<const std::byte> payload)
{
    if (h.proc == procedure::error) {
        if (h.error == error_kind::version)
            return error(std::errc::protocol_not_supported, "server speaks other RPC-over-RDMA versions",
                         h.low_version);
        return error(std::errc::value_too_large, "server can't use the chunks that were offered (ERR_CHUNK)");
    }
    if (const char* rule = broken_reply_rule(h, payload))
        return error(std::errc::protocol_error, rule);
    if (h.writes.size() > (t.result.planned() ? 1u : 0u))
        return error(std::errc::protocol_error, "reply with more Write chunks than were offered");
    const std::uint64_t result_size = h.writes.empty() ? 0 : total_length(h.writes.chunk(0));
    const std::uint64_t reply_size = total_length(h.reply.all());
    if (result_size > t.result.bytes.size() || reply_size > t.reply.bytes.size())
        return error(std::errc::protocol_error, "reply tells of more bytes than its chunk holds");
    const bool chunk_offered = t.result.planned();
    rpc::payload data;
    if (result_size != 0) {
        const std::span<const std::byte> bytes(t.result.memory.data(), result_size);
        data = rpc::payload(std::move(t.result.memory), bytes);
    }
    if (h.proc == procedure::nomsg) {
        const std::span<const std::byte> bytes(t.reply.memory.data(), reply_size);
        const auto prefix = rpc::peek(bytes);
        if (!prefix || prefix->xid != h.xid || prefix->type != rpc::message_type::reply)
            return error(std::errc::protocol_error, "Reply chunk holds no reply to this call");
        return rpc::reply(std::move(t.reply.memory), bytes, std::move(data), chunk_offered);
    }
    return rpc::reply(std::move(message), payload, std::move(data), chunk_offered);
}

std::unique_ptr<rpc::client_transport> make_requester(verbs::context& provider, buffer_pool& buffers,
                                                      std::string_view address,
                                                      const requester_options& options,
                                                      requester_stats* stats)
{
    return std::make_unique<requester>(provider, buffers, address, options, stats);
}

} // namespace verbena::rpcrdma
