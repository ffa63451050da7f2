// SPDX-License-Identifier: Apache-2.0
#include "request.hpp"

#include "context.hpp"
#include "domain.hpp"
#include "queue_pair.hpp"
#include "whole_domain.hpp"

#include <verbena/core/log.hpp>

#include <algorithm>
#include <cerrno>

namespace verbena::rdma {

namespace {

// An errno or 0.
int accept_now(rdma_cm_id& id, rdma_conn_param& p) noexcept
{
    const sigpipe_guard no_signal(sigpipe_on_iwarp(id));
    return ::rdma_accept(&id, &p) != 0 ? errno : 0;
}

} // namespace

request::request(context_impl& c, std::unique_ptr<arrived_peer> peer)
    : context_(c), peer_(std::move(peer)), events_(c.shard())
{
    peer_->id.get()->context = static_cast<cm_handler*>(&events_);
    if (const auto where = peer_of(peer_->id.get())) {
        peer_name_ = where->to_string();
        peer_address_ = where->address();
    }
}

request::~request()
{
    // Not accepted: the queue pair, if there is one, hears for itself.
    if (made_ == nullptr)
        return;
    made_->watch(nullptr);
    events_.hand_over(made_->id(), *made_);
}

task<result<std::unique_ptr<verbs::queue_pair>>> request::make_queue_pair(verbs::protection_domain& d,
                                                                          const verbs::queue_pair_options& o)
{
    if (!context_.owns(d))
        co_return error(std::errc::invalid_argument, "a protection domain of another device");
    if (peer_->id.get() == nullptr)
        co_return error(std::errc::invalid_argument, "a connect request makes one queue pair");
    auto made = co_await context_.make_pair(peer_->id.get(), static_cast<whole_domain&>(d).at(context_), o,
                                            peer_name_, peer_address_);
    if (!made) {
        log_limited(context_.refusals().setup_failed, log_level::warning, "rdma",
                    "rejected a peer, since no queue pair could be made for it",
                    {{"peer", peer_name_}, {"cause", made.error().message()}});
        co_return made.error();
    }
    (void)peer_->id.release();
    made_ = made->get();
    made_->watch(&made_);
    co_return std::unique_ptr<verbs::queue_pair>(std::move(*made));
}

task<result<void>> request::accept(const verbs::connect_options& o)
{
    if (peer_->id.get() != nullptr)
        co_return error(std::errc::invalid_argument, "make_queue_pair() comes before accept()");
    if (made_ == nullptr)
        co_return error(std::errc::connection_aborted, "the queue pair has ended, or was accepted");
    queue_pair& q = *made_;
    // On a pool thread, as a peer can cause it.
    const auto fail = [&](const error& e) {
        q.end(end_cause::setup_failed, e);
        return e;
    };
    if (o.private_data.size() > context_.query().max_private_data)
        co_return fail(error(std::errc::message_size, "private data longer than the provider carries",
                             o.private_data.size()));
    const auto limit = q.on().limits().can.max_outstanding_reads;
    const std::uint32_t ord = std::min({o.initiator_depth, peer_->request.initiator_depth, limit});
    rdma_conn_param p = parameters(
        o.private_data, ord, std::min({o.responder_resources, peer_->request.responder_resources, limit}));
    if (const int failed = accept_now(*q.id(), p); failed != 0)
        co_return fail(error::from_errno(failed, "rdma_accept"));
    auto answered = co_await events_.next("accept", context_.shard().clock().now() + o.timeout);
    if (made_ == nullptr)
        co_return error(std::errc::connection_aborted, "the queue pair went meanwhile");
    if (!answered)
        co_return fail(answered.error());
    if (answered->what != RDMA_CM_EVENT_ESTABLISHED)
        co_return fail(error(std::errc::connection_aborted, "the peer has given up",
                             static_cast<std::uint64_t>(answered->what)));
    q.watch(nullptr);
    made_ = nullptr;
    q.open(ord);
    events_.hand_over(q.id(), q);
    co_return result<void>();
}

task<result<void>> request::reject(std::span<const std::byte> data)
{
    if (peer_->id.get() == nullptr)
        co_return error(std::errc::invalid_argument, "reject() takes a request without a queue pair");
    if (data.size() > context_.query().max_private_data)
        co_return error(std::errc::message_size, "private data longer than the provider carries",
                        data.size());
    context_.count(end_cause::rejected);
    const cm_id id(peer_->id.release());
    if (const int failed = reject_now(*id.get(), data); failed != 0)
        co_return error::from_errno(failed, "rdma_reject");
    co_return result<void>();
}

} // namespace verbena::rdma
