// SPDX-License-Identifier: Apache-2.0
#include "listener.hpp"

#include "arrived_peer.hpp"
#include "shared_devices.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/net/refusals.hpp>
#include <verbena/core/task/exception.hpp>

#include <algorithm>
#include <cerrno>
#include <new>

namespace verbena::rdma {

namespace {

constexpr int backlog = 1024;

} // namespace

result<void> listener::open(std::string_view address)
{
    const auto where = net::endpoint::parse(address);
    if (!where)
        return where.error();
    where_ = *where;
    if (auto bound = bind(); !bound)
        return bound;
    where_.set_port(ntohs(::rdma_get_src_port(id_.get())));
    url_ = "rdma://" + where_.to_string();
    return {};
}

result<void> listener::bind() noexcept
{
    rdma_cm_id* raw = nullptr;
    if (::rdma_create_id(context_.channel(), &raw, static_cast<cm_handler*>(this), RDMA_PS_TCP) != 0)
        return error::from_errno(errno, "rdma_create_id");
    cm_id id(raw);
    if (where_.family() == AF_INET6) {
        // As sockets do here: IPv4 has a listener of its own.
        int only = 1;
        (void)::rdma_set_option(raw, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof only);
    }
    if (::rdma_bind_addr(raw, const_cast<sockaddr*>(where_.data())) != 0)
        return error::from_errno(errno, "bind; an RDMA device must have this address (`rdma link`)");
    // Bound to no device, it takes peers by all; those that come by another than the chosen one are rejected.
    if (raw->verbs != nullptr) {
        if (const auto chosen = context_.as_chosen(*raw); !chosen)
            return chosen;
    }
    if (::rdma_listen(raw, backlog) != 0)
        return error::from_errno(errno, "rdma_listen");
    if (raw->verbs != nullptr) {
        shared_devices::note_all(); // one that goes before a peer comes would leave its address to the next
        log(log_level::info, "rdma", "an address leads to this device",
            {{"address", where_.address()},
             {"device", ::ibv_get_device_name(raw->verbs->device)},
             {"port", raw->port_num}});
    }
    std::swap(id_, id);
    return {};
}

void listener::on_cm_event(cm_event& e) noexcept
{
    if (e.what == RDMA_CM_EVENT_CONNECT_REQUEST) {
        rdma_cm_id* const id = e.id;
        std::unique_ptr<arrived_peer> peer;
        try {
            peer = std::make_unique<arrived_peer>(std::move(e));
        } catch (...) {
            const cm_id gone(id);
            (void)reject_now(*id, {});
            lose(std::current_exception());
            return;
        }
        try {
            on_peer(std::move(peer));
        } catch (...) {
            lose(std::current_exception());
        }
        return;
    }
    if (e.what == RDMA_CM_EVENT_DEVICE_REMOVAL && bound_to() != nullptr)
        context_.lose(bound_to());
}

void listener::on_peer(std::unique_ptr<arrived_peer> peer)
{
    if (!context_.as_chosen(*peer->id.get())) {
        refuse_device(*peer->id.get());
        return;
    }
    if (context_.options().divert) {
        std::unique_ptr<verbs::arrival> taken = std::move(peer);
        context_.options().divert(taken);
        peer.reset(static_cast<arrived_peer*>(taken.release()));
    }
    if (peer)
        take(std::move(peer));
}

void listener::lose(const std::exception_ptr& e) noexcept
{
    context_.count(end_cause::setup_failed);
    log_limited(context_.refusals().setup_failed, log_level::error, "rdma",
                "an exception kept a peer from being taken", {{"url", url_}, {"exception", what_of(e)}});
}

void listener::refuse_device(rdma_cm_id& peer) noexcept
{
    context_.count(end_cause::other_device);
    log_limited(
        context_.refusals().other_device, log_level::warning, "rdma",
        "rejected a peer that came by another device or port than the listener's; let it use an address "
        "of that one (`verbena doctor` tells them), or listen without device=",
        {{"url", url_},
         {"device", context_.options().device},
         {"port", context_.options().port},
         {"peer", name_of_peer(&peer)},
         {"came_by", ::ibv_get_device_name(peer.verbs->device)},
         {"by_port", peer.port_num}});
}

void listener::lose(const ibv_context* device) noexcept
{
    const std::size_t gone_with_it =
        std::erase_if(waiting_, [device](const auto& r) { return r->came_by() == device; });
    add(context_.counts().ends[std::size_t(end_cause::device_removed)], gone_with_it);
    if (bound_to() != device)
        return;
    log(log_level::warning, "rdma", "a device went; its listener waits for it", {{"url", url_}});
    cm_id gone;
    std::swap(id_, gone);
    context_.shard().timers().arm(*this, context_.shard().clock().now() + retry);
}

void listener::on_timer() noexcept
{
    if (closed_)
        return;
    if (bind())
        log(log_level::info, "rdma", "listening again", {{"url", url_}});
    else
        context_.shard().timers().arm(*this, context_.shard().clock().now() + retry);
}

void listener::take(std::unique_ptr<arrived_peer> peer) noexcept
{
    if (closed_) {
        context_.count(end_cause::rejected);
        return;
    }
    if (waiting_.size() >= context_.options().max_waiting) {
        context_.count(end_cause::waiting_crowded);
        try {
            const auto from = peer_of(peer->id.get());
            tell_refusal(refused::connection_waiting,
                         {.peer = from ? from->address() : std::string("unknown"),
                          .object = url_,
                          .most = context_.options().max_waiting});
        } catch (const std::bad_alloc&) {
            count_refusal(refused::connection_waiting);
        }
        return;
    }
    add(context_.counts().accepted, 1);
    try {
        waiting_.push_back(std::make_unique<request>(context_, std::move(peer)));
        changed_.set();
    } catch (...) {
        lose(std::current_exception());
    }
}

void listener::close() noexcept
{
    if (std::exchange(closed_, true))
        return;
    timer::cancel();
    cm_id gone;
    std::swap(id_, gone);
    add(context_.counts().ends[std::size_t(end_cause::rejected)], waiting_.size());
    waiting_.clear();
    changed_.set();
}

task<result<std::unique_ptr<verbs::connect_request>>> listener::next()
{
    for (;;) {
        if (closed_)
            co_return error(std::errc::operation_canceled, "the listener was closed");
        if (!waiting_.empty()) {
            std::unique_ptr<verbs::connect_request> r = std::move(waiting_.front());
            waiting_.pop_front();
            co_return r;
        }
        changed_.reset();
        const bool woken = co_await changed_.wait();
        if (!woken)
            co_return error(std::errc::operation_canceled, "the wait for a connection was stopped");
    }
}

result<std::unique_ptr<verbs::listener>> context_impl::listen(std::string_view address)
{
    auto made = std::make_unique<listener>(*this, std::string());
    if (auto opened = made->open(address); !opened)
        return opened.error();
    return std::unique_ptr<verbs::listener>(std::move(made));
}

result<std::unique_ptr<verbs::listener>> context_impl::listen_adopted(std::string_view url)
{
    return std::unique_ptr<verbs::listener>(std::make_unique<listener>(*this, std::string(url)));
}

void context_impl::adopt(std::unique_ptr<verbs::arrival> peer, verbs::listener& where) noexcept
{
    std::unique_ptr<arrived_peer> own(static_cast<arrived_peer*>(peer.release()));
    // Its events come to this shard's channel from now on.
    if (::rdma_migrate_id(own->id.get(), channel()) != 0) {
        const error why = error::from_errno(errno, "rdma_migrate_id");
        count(end_cause::setup_failed);
        try {
            log_limited(refusals_.setup_failed, log_level::warning, "rdma",
                        "rejected a peer, since its shard could not take it over",
                        {{"peer", name_of_peer(own->id.get())}, {"cause", why.message()}});
        } catch (const std::bad_alloc&) { // the count tells it
        }
        return;
    }
    static_cast<listener&>(where).take(std::move(own));
}

} // namespace verbena::rdma
