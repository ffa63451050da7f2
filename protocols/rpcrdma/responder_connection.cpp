// SPDX-License-Identifier: Apache-2.0
// How a connection begins, hears what completes, and ends.
#include "responder_connection.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/net/peer_shares.hpp>

#include <algorithm>

namespace verbena::rpcrdma {
namespace {

// For dumps; what an error says of itself is a literal.
const char* why_of(const error& cause) noexcept
{
    return cause.context() != nullptr && *cause.context() != 0 ? cause.context() : "its queue pair ended";
}

} // namespace

responder_connection::responder_connection(verbs::context& provider, buffer_pool& buffers,
                                           rpc::dispatcher& dispatcher, const responder_options& options,
                                           responder_stats& stats, chunk_shares::user share,
                                           listener_commons& commons)
    : provider_(provider),
      buffers_(buffers),
      dispatcher_(dispatcher),
      options_(options),
      stats_(stats),
      calls_scope_(provider.shard(), nullptr, this, "calls of an RDMA connection"),
      share_(std::move(share)),
      commons_(commons),
      receives_(commons.receives),
      credits_(receives_.credits(), share_->raised),
      state_(provider.shard(), "RPC-over-RDMA connection"),
      batch_(commons.batch),
      local_(commons.local)
{
}

responder_connection::~responder_connection()
{
    if (reverse_)
        reverse_->closed();
    queue_pair_.reset();
    deferred::unlink();
    // Messages that came and were not looked at: their receives are the listener's.
    for (; handled_ < handling_.size(); ++handled_)
        take_received(handling_[handled_].slot).reset();
    for (const arrival& a : arrived_)
        take_received(a.slot).reset();
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
        if (state_ == connection_state::setting_up)
            state_.to(connection_state::serving, "accepted");
        else if (state_ == connection_state::setting_up_late)
            state_.to(connection_state::draining, "accepted");
        since_ = heard_ = provider_.shard().now();
        if (!provider_.query().notices_dead_peers)
            provider_.shard().timers().arm(silence_, heard_ + options_.probe_after);
        end_if_drained();
        if (!co_await ended_.wait())
            close("the server stops");
        // The provider forces an end that the peer delays, so this one is certain.
        co_await ended_.wait_shielded();
        stats_.connections.add(-1);
    } else if (queue_pair_) {
        // Destroyed when its end is over, which may take its time on a device.
        give_up(error(std::errc::connection_aborted, "the connection could not be set up"));
        co_await ended_.wait_shielded();
    }
    calls_scope_.request_stop();
    co_await calls_scope_.join();
    leave(); // it is shown until its calls have ended
    queue_pair_.reset();
}

void responder_connection::end_now() noexcept
{
    if (state_.is_in(connection_state::setting_up, connection_state::setting_up_late))
        give_up(error(std::errc::connection_aborted, "evicted"));
    else
        close("evicted");
    calls_scope_.request_stop();
}

connection_report responder_connection::report() const
{
    return {peer_.connection, peer_name_, peer_.transport, since_, heard_, calls_in_use(), state_.name()};
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
    peer_.connection = new_connection_number();

    private_message mine;
    mine.remote_invalidation = provider_.query().remote_invalidate;
    mine.send_size = mine.receive_size = options_.inline_size;
    terms_ = negotiate(mine, find_private_message(request->private_data()));
    const auto private_data = encode(mine);

    verbs::connect_options o;
    o.private_data = private_data;
    o.initiator_depth = options_.read_depth;
    o.responder_resources = 0; // a requester has nothing to read here
    o.queue_pair.shared_receives = receives_.queue();
    o.queue_pair.receive_depth = options_.credits + receive_slack + options_.reverse_credits;
    o.queue_pair.send_depth = send_depth;
    auto made = co_await request->make_queue_pair(domain, o.queue_pair);
    if (!made)
        co_return false;
    queue_pair_ = std::move(*made);
    queue_pair_->set_handler(this);
    // From here on it is found and ended, as calls may come before the answer to accept(), which a peer can delay. Until here
    // nobody found it, so it is asked again whether its peer is kept out.
    since_ = heard_ = provider_.shard().now();
    join(options_.connections);
    if (options_.peers != nullptr && options_.peers->evicted().has(peer_address_, since_))
        co_return false;
    if (receives_.queue() == nullptr)
        own_receives_ = receives_.own_receives();
    // Before the answer: a Send that finds no receive may end the connection.
    if (!fill_receives())
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
    if (state_ == connection_state::setting_up)
        state_.to(connection_state::setting_up_late, "the listener closed");
    else if (state_ == connection_state::serving)
        state_.to(connection_state::draining, "the listener closed");
    end_if_drained();
}

void responder_connection::end_if_drained() noexcept
{
    if (state_ == connection_state::draining && calls_in_use() == 0)
        close("its calls are over");
}

void responder_connection::close(const char* why) noexcept
{
    if (!state_.is_in(connection_state::serving, connection_state::draining))
        return; // its end is under way
    state_.to(connection_state::closing, why);
    queue_pair_->disconnect();
}

void responder_connection::on_completions(std::span<const verbs::completion> batch) noexcept
{
    heard_ = provider_.shard().now();
    for (const auto& c : batch) {
        const auto op = operation(c.id >> 56);
        if (op == operation::write)
            continue;
        if (op == operation::receive) {
            const auto slot = static_cast<std::uint32_t>(c.id);
            if (verbs::has_immediate(c.opcode) && c.status == verbs::status::success) {
                // What else the batch holds is taken all the same: a Read's call waits for its completion.
                take_received(slot).reset();
                give_up(error(std::errc::protocol_error, "an immediate, which RPC-over-RDMA does not have"));
                continue;
            }
            if (c.status == verbs::status::success)
                arrive(slot, c.length);
            else
                take_received(slot).reset();
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
            note_read_progress();
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
    if (!down())
        state_.to(connection_state::ended, why_of(cause));
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

void responder_connection::after_silence() noexcept
{
    if (down())
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

void responder_connection::log_refusal(const responder_call& c, const char* rule) noexcept
{
    log_limited(stats_.refusals_logged, log_level::warning, "rpcrdma", "message refused",
                {{"peer", peer_name_},
                 {"call", trace_name(trace_of(peer_.connection, c.transport_.xid))},
                 {"rule", rule}});
}

// On a device the end takes a while; what comes meanwhile is not served.
void responder_connection::give_up(const error& cause) noexcept
{
    if (!state_.is_in(connection_state::given_up, connection_state::ended))
        state_.to(connection_state::given_up, why_of(cause));
    queue_pair_->abort(cause);
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
    credits_.called_back(options_.reverse_credits);
    fill_receives();
    ++send_queue_used_;
    return {};
}

std::shared_ptr<rpc::reverse_channel> responder_call::reverse() { return connection_.reverse(); }

std::shared_ptr<rpc::reverse_channel> responder_connection::reverse()
{
    if (!reverse_ && options_.reverse_credits != 0 && !down()) {
        // More Sends than calls: a reply may come before the Send that it answers has completed.
        const std::uint32_t sends = 2 * options_.reverse_credits;
        reverse_sends_.resize(sends);
        for (std::uint32_t i = 0; i < sends; ++i)
            free_reverse_sends_.push_back(i);
        reverse_ =
            std::make_shared<reverse_requester>(static_cast<reverse_link&>(*this), provider_.shard(),
                                                buffers_, options_, stats_, terms_.send_threshold, peer_);
    }
    return reverse_;
}

} // namespace verbena::rpcrdma
