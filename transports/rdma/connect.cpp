// SPDX-License-Identifier: Apache-2.0
// The connecting side.
#include "cm_events.hpp"
#include "cm_id.hpp"
#include "context.hpp"
#include "domain.hpp"
#include "ports.hpp"
#include "queue_pair.hpp"
#include "whole_domain.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/core/task/event.hpp>

#include <algorithm>
#include <cerrno>

namespace verbena::rdma {
namespace {

constexpr int held_ports = 8; // passed over before a connect fails
constexpr duration resolve_step = std::chrono::milliseconds(500);

error cm_error(const char* what, const cm_event& e) noexcept
{
    switch (e.what) {
    case RDMA_CM_EVENT_REJECTED:
        return error(std::errc::connection_refused, "the peer rejected the connection");
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
        return error(std::errc::host_unreachable, "no RDMA device leads to this address",
                     static_cast<std::uint64_t>(-e.status));
    case RDMA_CM_EVENT_UNREACHABLE:
        return error(e.status == -ETIMEDOUT ? std::errc::timed_out : std::errc::host_unreachable, what);
    case RDMA_CM_EVENT_DEVICE_REMOVAL: return error(std::errc::no_such_device, "the device was removed");
    case RDMA_CM_EVENT_DISCONNECTED:
        return error(std::errc::connection_reset, "the peer ended the connection");
    case RDMA_CM_EVENT_CONNECT_ERROR:
        return e.status == -ECONNREFUSED || e.status == -ECONNRESET
                   ? error(std::errc::connection_refused, "the peer refused the connection")
                   : error::from_errno(e.status < -1 ? -e.status : EIO, what); // -1: librdmacm's own failure
    default: return error(std::errc::protocol_error, what, static_cast<std::uint64_t>(e.what));
    }
}

// Hears of the end of a queue pair that its maker never gets.
class set_up_watch final : public verbs::completion_handler {
public:
    void on_completions(std::span<const verbs::completion>) noexcept override {}
    void on_disconnected(const error&) noexcept override { over_.set(); }
    /// Ends `q`, whose handler this is, and returns when it may be destroyed without holding the shard.
    task<error> end_of(queue_pair& q, end_cause cause, error why)
    {
        q.end(cause, why);
        co_await over_.wait_shielded();
        co_return why;
    }

private:
    event over_;
};
} // namespace

// The connection manager has no other way to choose: an own address leads to device, port and GID.
task<result<std::optional<net::endpoint>>> context_impl::source_for(net::endpoint to)
{
    if (!options_.source.empty()) {
        const auto own = parse_source(options_.source);
        if (!own)
            co_return own.error();
        co_return std::optional(*own);
    }
    if (options_.device.empty())
        co_return std::optional<net::endpoint>();
    auto look = [this, to] { return own_address(options_.device, options_.port, to); };
    const auto own = co_await lanes_.work.run(std::move(look));
    if (!own)
        co_return own.error();
    co_return std::optional(*own);
}

// The connection manager chooses ports without asking TCP, which may still hold one for a connection that has ended; siw learns
// that when it connects. Each such port counts as a connection that could not be set up.
task<result<std::unique_ptr<verbs::queue_pair>>> context_impl::connect(std::string_view address,
                                                                       verbs::protection_domain& d,
                                                                       const verbs::connect_options& o,
                                                                       std::vector<std::byte>& reply)
{
    const time_point deadline = shard_.clock().now() + o.timeout;
    for (int more = held_ports;; --more) {
        bool held = false;
        auto made = co_await connect_once(address, d, o, deadline, reply, held);
        if (!held || more == 0)
            co_return std::move(made);
    }
}

task<result<std::unique_ptr<verbs::queue_pair>>>
context_impl::connect_once(std::string_view address, verbs::protection_domain& d,
                           const verbs::connect_options& o, time_point deadline,
                           std::vector<std::byte>& reply, bool& held)
{
    if (!owns(d))
        co_return error(std::errc::invalid_argument, "a protection domain of another device");
    if (o.private_data.size() > capabilities_.max_private_data)
        co_return error(std::errc::message_size, "private data longer than the provider carries",
                        o.private_data.size());
    const auto to = net::endpoint::parse(address);
    if (!to)
        co_return to.error();
    const auto own = co_await source_for(*to);
    if (!own)
        co_return own.error();
    sockaddr* const from = *own ? const_cast<sockaddr*>((*own)->data()) : nullptr;
    const auto left = [this, deadline](duration most) {
        const duration d = std::clamp(deadline - shard_.clock().now(), duration::zero(), most);
        return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(d).count());
    };
    cm_events events(shard_);
    cm_id id;
    // The kernel asks for the neighbour, up to three times in three seconds, and sleeps until it is told of a neighbour or the time is
    // over. An answer that comes before it sleeps tells nobody, and after the third it asks no more: so the time is given in
    // steps, and it looks anew. By an id of its own each: older kernels keep the request of the step before as well.
    for (bool resolved = false; !resolved;) {
        rdma_cm_id* made = nullptr;
        if (::rdma_create_id(channel(), &made, static_cast<cm_handler*>(&events), RDMA_PS_TCP) != 0)
            co_return error::from_errno(errno, "rdma_create_id");
        id = cm_id(made);
        if (::rdma_resolve_addr(made, from, const_cast<sockaddr*>(to->data()), left(resolve_step)) != 0)
            co_return error::from_errno(errno, from == nullptr ? "no RDMA device leads to this address"
                                                               : "no RDMA device has the source address");
        const auto said = co_await events.next("resolve the address", deadline);
        if (!said)
            co_return said.error();
        resolved = said->what == RDMA_CM_EVENT_ADDR_RESOLVED;
        const bool too_early = said->what == RDMA_CM_EVENT_ADDR_ERROR && said->status == -ETIMEDOUT;
        if (!resolved && !too_early)
            co_return cm_error("resolve the address", *said);
        if (!resolved && shard_.clock().now() >= deadline)
            co_return error(std::errc::timed_out, "resolve the address");
    }
    rdma_cm_id* const raw = id.get();
    if (::rdma_resolve_route(raw, left(std::chrono::hours(1))) != 0)
        co_return error::from_errno(errno, "resolve the route");
    auto routed = co_await events.next("resolve the route", deadline);
    if (!routed)
        co_return routed.error();
    if (routed->what != RDMA_CM_EVENT_ROUTE_RESOLVED)
        co_return cm_error("resolve the route", *routed);

    auto made = co_await make_pair(raw, static_cast<whole_domain&>(d).at(*this), o.queue_pair,
                                   to->to_string(), to->address());
    if (!made)
        co_return made.error();
    (void)id.release(); // the queue pair's
    std::unique_ptr<queue_pair> q = std::move(*made);
    const auto limit = q->on().limits().can.max_outstanding_reads;
    const std::uint32_t ord = std::min(o.initiator_depth, limit);
    rdma_conn_param p = parameters(o.private_data, ord, std::min(o.responder_resources, limit));
    // siw connects its TCP before it returns. On the shard that would hold up all others, and a completion on the shard's ring
    // meanwhile would break the connect off: the system call then begins anew, and its own port is taken (EADDRNOTAVAIL).
    auto begin = [raw, &p] {
        const sigpipe_guard no_signal(sigpipe_on_iwarp(*raw));
        return ::rdma_connect(raw, &p) != 0 ? errno : 0;
    };
    q->lend_id();
    set_up_watch watch;
    q->set_handler(&watch);
    const int failed = co_await lanes_.connects.run(std::move(begin));
    q->lend_no_more();
    held = failed == EADDRINUSE || failed == EADDRNOTAVAIL;
    if (failed != 0)
        co_return co_await watch.end_of(*q, end_cause::setup_failed,
                                        error::from_errno(failed, "rdma_connect"));
    const error ended(std::errc::connection_reset, "the connection ended while it was made");
    if (!q->starting())
        co_return co_await watch.end_of(*q, end_cause::setup_failed, ended);
    auto answered = co_await events.next("connect", deadline);
    if (!q->starting())
        co_return co_await watch.end_of(*q, end_cause::setup_failed, ended);
    if (!answered)
        co_return co_await watch.end_of(*q, end_cause::setup_failed, answered.error());
    if (answered->what != RDMA_CM_EVENT_ESTABLISHED) {
        reply = std::move(answered->private_data);
        const bool rejected = answered->what == RDMA_CM_EVENT_REJECTED;
        co_return co_await watch.end_of(*q, rejected ? end_cause::rejected : end_cause::setup_failed,
                                        cm_error("connect", *answered));
    }
    q->set_handler(nullptr);
    reply = std::move(answered->private_data);
    // What the peer answers at once; on iWARP the reply's fields are this end's own.
    q->open(
        std::min(ord, q->on().limits().iwarp ? answered->responder_resources : answered->initiator_depth));
    events.hand_over(raw, *q);
    co_return std::unique_ptr<verbs::queue_pair>(std::move(q));
}

} // namespace verbena::rdma
