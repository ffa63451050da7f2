// SPDX-License-Identifier: Apache-2.0
#include "context.hpp"

#include "listener.hpp"
#include "queue_pair.hpp"
#include "whole_domain.hpp"

#include <verbena/core/log.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>

namespace verbena::rdma {
namespace {

// What both can do.
void narrow(verbs::capabilities& a, const verbs::capabilities& b) noexcept
{
    a.remote_invalidate &= b.remote_invalidate;
    a.grant_per_queue_pair &= b.grant_per_queue_pair;
    a.write_with_immediate &= b.write_with_immediate;
    a.send_with_immediate &= b.send_with_immediate;
    a.renewable_grants &= b.renewable_grants;
    a.shared_receives &= b.shared_receives;
    a.local_invalidate &= b.local_invalidate;
    a.read_sink_needs_remote_write |= b.read_sink_needs_remote_write;
    a.receive_not_ready_retry &= b.receive_not_ready_retry;
    a.notices_dead_peers &= b.notices_dead_peers;
    a.completion_means_delivered &= b.completion_means_delivered;
    a.checks_read_rights &= b.checks_read_rights;
    a.checks_grant_bounds &= b.checks_grant_bounds;
    a.bounds_peer_reads &= b.bounds_peer_reads;
    a.max_inline = std::min(a.max_inline, b.max_inline);
    a.max_send_segments = std::min(a.max_send_segments, b.max_send_segments);
    a.max_read_segments = std::min(a.max_read_segments, b.max_read_segments);
    a.max_outstanding_reads = std::min(a.max_outstanding_reads, b.max_outstanding_reads);
    a.max_message = std::min(a.max_message, b.max_message);
    a.private_data_padded |= b.private_data_padded;
    a.max_private_data = std::min(a.max_private_data, b.max_private_data);
}

// Whether a device that can do `there` keeps what query() said, on which requests, grants and what peers were told are
// built. Private data and the depth of Reads are each connection's own, and grants for no queue pair are regions where a
// device has windows of type 2.
bool keeps(const verbs::capabilities& promised, const verbs::capabilities& there) noexcept
{
    verbs::capabilities both = promised;
    narrow(both, there);
    both.private_data_padded = promised.private_data_padded;
    both.max_private_data = promised.max_private_data;
    both.max_outstanding_reads = promised.max_outstanding_reads;
    if (!promised.grant_per_queue_pair)
        both.checks_grant_bounds = promised.checks_grant_bounds;
    return both == promised;
}

class device_list {
public:
    device_list() : all_(::rdma_get_devices(&count_)) {}
    device_list(const device_list&) = delete;
    ~device_list()
    {
        if (all_ != nullptr)
            ::rdma_free_devices(all_);
    }
    std::span<ibv_context*> all() const noexcept
    {
        return {all_, all_ != nullptr ? static_cast<std::size_t>(count_) : 0};
    }

private:
    int count_ = 0;
    ibv_context** all_;
};

} // namespace

std::string_view to_string(end_cause c) noexcept
{
    switch (c) {
    case end_cause::orderly: return "orderly";
    case end_cause::completion_error: return "completion_error";
    case end_cause::device_removed: return "device_removed";
    case end_cause::rejected: return "rejected";
    case end_cause::other_device: return "other_device";
    case end_cause::waiting_crowded: return "waiting_crowded";
    case end_cause::setup_failed: return "setup_failed";
    case end_cause::local: return "local";
    case end_cause::count_: break;
    }
    return "unknown";
}

std::string_view to_string(grant_kind k) noexcept
{
    switch (k) {
    case grant_kind::region: return "region";
    case grant_kind::type_1_window: return "type_1_window";
    case grant_kind::type_2_window: return "type_2_window";
    }
    return "unknown";
}

std::string_view to_string(device_event e) noexcept
{
    switch (e) {
    case device_event::port_down: return "port_down";
    case device_event::port_up: return "port_up";
    case device_event::address_change: return "address_change";
    case device_event::queue_pair_error: return "queue_pair_error";
    case device_event::completion_queue_error: return "completion_queue_error";
    case device_event::shared_receive_event: return "shared_receive_event";
    case device_event::device_fatal: return "device_fatal";
    case device_event::removed: return "removed";
    case device_event::other: return "other";
    case device_event::count_: break;
    }
    return "unknown";
}

result<std::unique_ptr<context>> open_context(reactor& shard, lanes where, const options& o, host_impl& all,
                                              std::unique_ptr<host_impl> own)
{
    shared_devices::note_all();
    const device_list list;
    verbs::capabilities can;
    bool any = false;
    result<void> last;
    for (ibv_context* verbs : list.all()) {
        if (!o.device.empty() && o.device != ::ibv_get_device_name(verbs->device))
            continue;
        const auto limits = query(verbs, o.grants);
        if (!limits) {
            last = limits.error();
            continue;
        }
        if (!any)
            can = limits->can;
        else
            narrow(can, limits->can);
        any = true;
    }
    if (!any && !last)
        return last.error();
    if (!any)
        return error(std::errc::no_such_device,
                     o.device.empty()
                         ? "no RDMA device; `rdma link add rxe0 type rxe netdev IFACE` makes one in "
                           "software, and iwarp:// needs none"
                         : "no RDMA device of this name; `verbena doctor` lists them");
    rdma_event_channel* channel = ::rdma_create_event_channel();
    if (channel == nullptr)
        return error::from_errno(errno,
                                 "the kernel's RDMA connection manager; load it with `modprobe rdma_ucm`");
    const int flags = ::fcntl(channel->fd, F_GETFL);
    ::fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK);
    auto made = std::make_unique<context_impl>(all, shard, where, o, channel, can);
    made->own(std::move(own));
    return std::unique_ptr<context>(std::move(made));
}

context_impl::context_impl(host_impl& all, reactor& shard, lanes where, const rdma::options& o,
                           rdma_event_channel* channel, const verbs::capabilities& can)
    : host_(all),
      shard_(shard),
      lanes_(where),
      options_(o),
      capabilities_(can),
      channel_(shard, channel),
      notices_(std::make_shared<notice_box>(shard, *this)),
      removals_(removal_watch::open(shard, *this))
{
    shard.add(*this);
    host_.enter(*this);
}

context_impl::~context_impl()
{
    host_.leave(*this);
    notices_->close();
}

verbs::device& context_impl::device() noexcept { return host_; }

bool event_channel::on_readable() noexcept
{
    bool any = false;
    for (int i = 0; i < 64; ++i) {
        rdma_cm_event* found = nullptr;
        if (::rdma_get_cm_event(channel_, &found) != 0)
            return any;
        any = true;
        cm_event e{found->event, found->status, found->id, {}, 0, 0};
        auto* handler = static_cast<cm_handler*>(found->id->context);
        const rdma_conn_param& conn = found->param.conn;
        switch (e.what) {
        case RDMA_CM_EVENT_CONNECT_REQUEST:
        case RDMA_CM_EVENT_ESTABLISHED:
        case RDMA_CM_EVENT_REJECTED:
            if (conn.private_data != nullptr) {
                const auto* data = static_cast<const std::byte*>(conn.private_data);
                try {
                    e.private_data.assign(data, data + conn.private_data_len);
                } catch (const std::bad_alloc&) { // as if it brought none: the connection is not made
                }
            }
            e.responder_resources = conn.responder_resources;
            e.initiator_depth = conn.initiator_depth;
            break;
        default: break;
        }
        ::rdma_ack_cm_event(found);
        if (handler != nullptr)
            handler->on_cm_event(e);
    }
    return any;
}

// --- devices ---

result<rdma::device*> context_impl::note(ibv_context* verbs, const device_limits& limits)
{
    if (!keeps(capabilities_, limits.can))
        return error(std::errc::operation_not_supported,
                     "the device came later and can do less than those that were there at the start "
                     "(`verbena doctor` lists them); start again to use it");
    if (!shared_devices::enter(verbs, notices_))
        return error(std::errc::no_such_device, "the device was removed");
    devices_.push_back(std::make_unique<rdma::device>(*this, verbs, limits, notices_));
    return devices_.back().get();
}

rdma::device* context_impl::known(ibv_context* verbs) noexcept
{
    const auto i =
        std::ranges::find_if(devices_, [verbs](const auto& d) { return d->verbs() == verbs && !d->gone(); });
    return i != devices_.end() ? i->get() : nullptr;
}

task<result<rdma::device*>> context_impl::device_of(ibv_context* verbs)
{
    if (rdma::device* d = known(verbs))
        co_return d;
    auto ask = [verbs, grants = options_.grants] {
        shared_devices::note_all();
        return rdma::query(verbs, grants);
    };
    const auto limits = co_await lanes_.work.run(std::move(ask));
    if (!limits)
        co_return limits.error();
    if (rdma::device* d = known(verbs))
        co_return d;
    co_return note(verbs, *limits);
}

result<rdma::device*> context_impl::only_device(std::string_view name)
{
    shared_devices::note_all();
    const device_list list;
    ibv_context* found = nullptr;
    for (ibv_context* verbs : list.all()) {
        const std::string_view own = ::ibv_get_device_name(verbs->device);
        const std::string_view wanted = name.empty() ? std::string_view(options_.device) : name;
        if (!wanted.empty() && wanted != own)
            continue;
        if (found != nullptr)
            return error(std::errc::operation_not_supported,
                         "there are several RDMA devices, and nothing says which is meant");
        found = verbs;
    }
    if (found == nullptr)
        return error(std::errc::no_such_device, "no RDMA device");
    if (rdma::device* d = known(found))
        return d;
    const auto limits = rdma::query(found, options_.grants);
    if (!limits)
        return limits.error();
    return note(found, *limits);
}

// --- what devices say ---

// Queue pairs that stand or will; one whose making is under way on a pool thread looks for itself afterwards.
template<class F>
void context_impl::each_on(const rdma::device& d, F f) noexcept
{
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        queue_pair* const q = slots_[i].owner;
        if (q != nullptr && q->made() && &q->on() == &d)
            f(*q);
    }
}

template<class F>
void context_impl::each_of(const verbs::protection_domain& d, const ibv_context* on, F f) noexcept
{
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        queue_pair* const q = slots_[i].owner;
        if (q != nullptr && q->made() && q->on().verbs() == on && &q->domain() == &d)
            f(*q);
    }
}

void context_impl::end_pairs(const verbs::protection_domain& d, const ibv_context* on) noexcept
{
    each_of(d, on, [](queue_pair& q) {
        q.end(end_cause::local, error(std::errc::io_error, "a key of the peer could not be taken back"));
    });
}

bool context_impl::has_pairs(const verbs::protection_domain& d, const ibv_context* on) noexcept
{
    bool any = false;
    each_of(d, on, [&any](const queue_pair& q) { any = any || !q.over(); });
    return any;
}

void context_impl::lose(ibv_context* verbs) noexcept
{
    shared_devices::mark_removed(verbs);
    for (std::size_t i = 0; i < listeners_.size(); ++i)
        listeners_[i]->lose(verbs);
    rdma::device* const d = known(verbs);
    if (d == nullptr)
        return;
    log(log_level::warning, "rdma", "a device went, and its connections with it",
        {{"device", ::ibv_get_device_name(verbs->device)}});
    add(stats_.device_events[std::size_t(device_event::removed)], 1);
    d->set_gone();
    each_on(*d, [](queue_pair& q) {
        q.end(end_cause::device_removed, error(std::errc::no_such_device, "the device was removed"));
    });
}

void context_impl::on_device_removal() noexcept
{
    for (std::size_t i = 0; i < devices_.size(); ++i) {
        if (!devices_[i]->gone() && shared_devices::has_gone(devices_[i]->verbs()))
            lose(devices_[i]->verbs());
    }
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
        ibv_context* const on = listeners_[i]->bound_to();
        if (on != nullptr && shared_devices::has_gone(on))
            lose(on);
    }
    shared_devices::close_unused();
}

void context_impl::on_notice(const device_notice& n) noexcept
{
    rdma::device* const d = known(n.on);
    if (d == nullptr)
        return;
    const char* const name = ::ibv_get_device_name(n.on->device);
    switch (n.what) {
    case device_event::queue_pair_error:
        each_on(*d, [&n](queue_pair& q) {
            if (q.serial_number() == n.about)
                q.broke();
        });
        break;
    case device_event::completion_queue_error:
        if (!d->retire(n.about))
            break;
        log(log_level::error, "rdma", "a completion queue broke; its connections end", {{"device", name}});
        each_on(*d, [&n](queue_pair& q) {
            if (q.completes_at(n.about))
                q.end(end_cause::completion_error, error(std::errc::io_error, "the completion queue broke"));
        });
        break;
    case device_event::device_fatal:
        if (shared_devices::has_gone(n.on)) {
            lose(n.on);
            break;
        }
        log(log_level::error, "rdma", "the device reports a fatal error; its connections end",
            {{"device", name}});
        each_on(*d, [](queue_pair& q) {
            q.end(end_cause::device_removed, error(std::errc::io_error, "the device failed"));
        });
        break;
    case device_event::port_down:
    case device_event::port_up:
    case device_event::address_change:
        // Connections that suffer by it end by themselves: RC retries for a while.
        log(log_level::info, "rdma", "a device's port changed",
            {{"device", name}, {"event", to_string(n.what)}});
        break;
    default: break;
    }
}

bool context_impl::owns(const verbs::protection_domain& d) const noexcept
{
    return &static_cast<const whole_domain&>(d).of_host() == &host_;
}

// --- queue pairs ---

queue_entries entries_of(const verbs::queue_pair_options& o) noexcept
{
    const std::uint32_t sends = o.send_depth + internal_depth;
    if (o.shared_receives == nullptr)
        return {sends + o.receive_depth};
    const auto& shared = static_cast<const shared_receives&>(*o.shared_receives);
    return {sends, &shared, shared.depth()};
}

void context_impl::add(queue_pair& q, std::uint16_t& number, std::uint16_t& generation)
{
    if (free_slots_.empty()) {
        slots_.emplace_back();
        free_slots_.reserve(slots_.capacity()); // so that remove() needs no memory
        free_slots_.push_back(static_cast<std::uint16_t>(slots_.size() - 1));
    }
    number = free_slots_.back();
    free_slots_.pop_back();
    slots_[number].owner = &q;
    slots_[number].generation =
        static_cast<std::uint16_t>((slots_[number].generation + 1) & work_id::max_generation);
    generation = slots_[number].generation;
}

void context_impl::remove(queue_pair& q) noexcept
{
    slots_[q.slot()].owner = nullptr;
    free_slots_.push_back(q.slot());
    q.on().forget(q, q.number());
}

void context_impl::take(const ibv_wc& wc, const rdma::device& from) noexcept
{
    const work_id id(wc.wr_id);
    queue_pair* q = nullptr;
    if (id.what == work_id::kind::shared)
        q = from.numbered(wc.qp_num);
    else if (id.slot < slots_.size() && slots_[id.slot].generation == id.generation)
        q = slots_[id.slot].owner;
    if (q == nullptr)
        add(stats_.stale_completions, 1);
    else
        q->take(wc, id);
}

void context_impl::ready(queue_pair& q) noexcept
{
    if (!q.is_linked())
        ready_.push_back(q);
}

bool context_impl::poll() noexcept
{
    bool any = false;
    for (auto& d : devices_)
        any = d->poll(false) || any;
    // Those that become ready meanwhile have their turn in the next poll.
    intrusive_list<queue_pair> now;
    while (queue_pair* q = ready_.pop_front())
        now.push_back(*q);
    while (queue_pair* q = now.pop_front()) {
        q->deliver();
        any = true;
    }
    return any;
}

bool context_impl::try_arm() noexcept
{
    if (!ready_.empty())
        return false;
    bool quiet = true;
    for (auto& d : devices_)
        quiet = d->arm() && quiet;
    return quiet && ready_.empty();
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

namespace {

error stuck_domain() noexcept
{
    return error(
        std::errc::device_or_resource_busy,
        "the kernel does not take away a region of this domain, which a peer could reach by a queue pair");
}

} // namespace

task<result<std::unique_ptr<queue_pair>>> context_impl::make_pair(rdma_cm_id* id, domain& d,
                                                                  const verbs::queue_pair_options& o,
                                                                  std::string name, std::string address)
{
    // Once there is a queue pair, its own end is counted.
    const auto failed = [this](const error& e) {
        count(end_cause::setup_failed);
        return e;
    };
    if (const auto chosen = as_chosen(*id); !chosen)
        co_return failed(chosen.error());
    auto on = co_await device_of(id->verbs);
    if (!on)
        co_return failed(on.error());
    device::use hold(**on); // from here on: the device may be removed while this waits
    auto part = co_await d.part_on(**on);
    if (!part)
        co_return failed(part.error());
    if ((*on)->gone())
        co_return failed(error(std::errc::no_such_device, "the device was removed"));
    if (const auto* const shared = static_cast<const shared_receives*>(o.shared_receives);
        shared != nullptr && (&shared->of() != &d || shared->part() != *part))
        co_return failed(error(std::errc::invalid_argument,
                               "the shared receive queue is of another device, domain or shard", *part));
    if (slots_.size() - free_slots_.size() >= 0xffff)
        co_return failed(error(std::errc::not_enough_memory, "queue pairs of one shard", slots_.size()));
    auto room = co_await (*on)->take_room(entries_of(o));
    if (!room)
        co_return failed(room.error());
    auto q = std::make_unique<queue_pair>(*this, d, *part, **room, std::move(hold), o, std::move(name),
                                          std::move(address));
    auto work = [p = q.get(), id, all = &d.whole(), verbs = (*on)->verbs()]() -> result<void> {
        if (!all->settle(verbs))
            return stuck_domain();
        return p->create(id);
    };
    const result<void> made = co_await lanes_.work.run(std::move(work));
    if (!made) {
        q->disown();
        co_return made.error();
    }
    q->set_made();
    if ((*on)->gone()) {
        q->give_up(); // the id is the caller's
        co_return error(std::errc::no_such_device, "the device was removed");
    }
    if ((*room)->retired) {
        q->give_up();
        co_return error(std::errc::io_error, "the completion queue broke");
    }
    // From here on end_pairs() finds it.
    if (d.whole().is_stuck((*on)->verbs())) {
        q->give_up();
        co_return stuck_domain();
    }
    if (o.shared_receives != nullptr)
        (*on)->note(*q, q->number());
    co_return std::move(q);
}

} // namespace verbena::rdma
