// SPDX-License-Identifier: Apache-2.0
#include "connect.hpp"

#include "ports.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/task/exception.hpp>

#include <algorithm>
#include <cerrno>

namespace verbena::rdma {
namespace {

constexpr int backlog = 1024;
constexpr std::uint8_t retries = 7;
constexpr int held_ports = 8;                          // passed over before a connect fails
constexpr std::uint8_t receiver_not_ready_retries = 6; // 7 would be for ever
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

rdma_conn_param parameters(std::span<const std::byte> data, std::uint32_t initiator_depth,
                           std::uint32_t responder_resources) noexcept
{
    rdma_conn_param p{};
    p.private_data = data.data();
    p.private_data_len = static_cast<std::uint8_t>(data.size());
    p.initiator_depth = static_cast<std::uint8_t>(initiator_depth);
    p.responder_resources = static_cast<std::uint8_t>(responder_resources);
    p.retry_count = retries;
    p.rnr_retry_count = receiver_not_ready_retries;
    return p;
}

std::optional<net::endpoint> peer_of(rdma_cm_id* id) noexcept
{
    const sockaddr* from = ::rdma_get_peer_addr(id);
    const socklen_t size = from->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    const auto where = net::endpoint::from(from, size);
    return where ? std::optional(*where) : std::nullopt;
}

std::string name_of_peer(rdma_cm_id* id)
{
    const auto where = peer_of(id);
    return where ? where->to_string() : "unknown";
}

// Both: an errno or 0.
int accept_now(rdma_cm_id& id, rdma_conn_param& p) noexcept
{
    const sigpipe_guard no_signal(sigpipe_on_iwarp(id));
    return ::rdma_accept(&id, &p) != 0 ? errno : 0;
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

int reject_now(rdma_cm_id& id, std::span<const std::byte> data) noexcept
{
    const sigpipe_guard no_signal(sigpipe_on_iwarp(id));
    return ::rdma_reject(&id, data.data(), static_cast<std::uint8_t>(data.size())) != 0 ? errno : 0;
}

} // namespace

arrived_peer::~arrived_peer()
{
    if (id.get() != nullptr)
        (void)reject_now(*id.get(), {});
}

task<result<cm_event>> cm_events::next(const char* what, time_point deadline)
{
    expired_ = false;
    shard_.timers().arm(*this, deadline);
    while (waiting_.empty()) {
        changed_.reset();
        const bool woken = co_await changed_.wait();
        if (!woken || (expired_ && waiting_.empty())) {
            timer::cancel();
            co_return error(woken ? std::errc::timed_out : std::errc::operation_canceled, what);
        }
    }
    timer::cancel();
    cm_event e = std::move(waiting_.front());
    waiting_.pop_front();
    co_return std::move(e);
}

void cm_events::hand_over(rdma_cm_id* id, cm_handler& to) noexcept
{
    id->context = &to;
    for (cm_event& e : waiting_)
        to.on_cm_event(e);
    waiting_.clear();
}

// --- which device ---

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

result<void> context_impl::as_chosen(const rdma_cm_id& id) const
{
    if (!options_.device.empty() && options_.device != ::ibv_get_device_name(id.verbs->device))
        return error(std::errc::no_such_device, "the address leads to another device than the one chosen; "
                                                "`verbena doctor` tells which address leads to which");
    if (options_.port != 0 && options_.port != id.port_num)
        return error(std::errc::no_such_device,
                     "the address leads to another port than the one chosen; `verbena doctor` tells which "
                     "address leads to which",
                     id.port_num);
    return {};
}

// --- initiator ---

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

    auto made =
        co_await make_pair(raw, static_cast<domain&>(d), o.queue_pair, to->to_string(), to->address());
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

// --- request ---

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
    if (peer_->id.get() == nullptr)
        co_return error(std::errc::invalid_argument, "a connect request makes one queue pair");
    auto made =
        co_await context_.make_pair(peer_->id.get(), static_cast<domain&>(d), o, peer_name_, peer_address_);
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

// --- listener ---

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
        log_limited(context_.refusals().waiting_crowded, log_level::warning, "rdma",
                    "rejected a peer, since as many as may be are waiting for their connection",
                    {{"url", url_}, {"peer", name_of_peer(peer->id.get())}, {"waiting", waiting_.size()}});
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
