// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include "context.hpp"
#include "shared_devices.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <rdma/rdma_cma.h>

namespace verbena::rdma {
namespace {

constexpr std::uint32_t siw_vendor = 0x626d74; // its own choice, no OUI
constexpr std::uint32_t rxe_vendor = 0xffffff;
constexpr int max_batches_per_poll = 8; // then others get their turn

// Some devices say that they have windows, and their provider makes none (cxgb4 of rdma-core 44).
bool makes_windows(ibv_context* verbs, ibv_mw_type type) noexcept
{
    ibv_pd* const pd = ::ibv_alloc_pd(verbs);
    if (pd == nullptr)
        return false;
    ibv_mw* const made = ::ibv_alloc_mw(pd, type);
    if (made != nullptr)
        ::ibv_dealloc_mw(made);
    ::ibv_dealloc_pd(pd);
    return made != nullptr;
}

bool has(ibv_context* verbs, const ibv_device_attr& a, grant_kind k) noexcept
{
    switch (k) {
    case grant_kind::region: return true;
    case grant_kind::type_1_window:
        return (a.device_cap_flags & IBV_DEVICE_MEM_WINDOW) != 0 && a.max_mw > 0 &&
               makes_windows(verbs, IBV_MW_TYPE_1);
    case grant_kind::type_2_window:
        return (a.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) != 0 &&
               a.max_mw > 0 && makes_windows(verbs, IBV_MW_TYPE_2);
    }
    return false;
}

} // namespace

result<device_limits> query(ibv_context* verbs, std::optional<grant_kind> wanted)
{
    device_limits l;
    if (const int failed = ::ibv_query_device(verbs, &l.attributes); failed != 0)
        return error::from_errno(failed, "ibv_query_device");
    const ibv_device_attr& a = l.attributes;
    l.iwarp = verbs->device->transport_type == IBV_TRANSPORT_IWARP;
    const bool siw = l.iwarp && a.vendor_id == siw_vendor;
    // libsiw takes the mapping key 0x90000 for "none", and fails without an errno when the kernel hands it out. A first
    // queue of 257 pages keeps that key for good.
    if (siw)
        l.usual_entries = 32768;
    l.lists_miscounted = a.vendor_id == rxe_vendor;
    if (a.vendor_id == rxe_vendor)
        l.invalidate_flags |= IBV_WC_IP_CSUM_OK;
    const bool type_1 = has(verbs, a, grant_kind::type_1_window);
    if (wanted && !has(verbs, a, *wanted))
        return error(std::errc::operation_not_supported,
                     "the device has no memory windows of this type; `verbena doctor` tells which it has");
    if (wanted)
        l.grants = *wanted;
    else if (has(verbs, a, grant_kind::type_2_window))
        l.grants = grant_kind::type_2_window;
    else if (type_1)
        l.grants = grant_kind::type_1_window;
    const bool type_2 = l.grants == grant_kind::type_2_window;
    l.read_sink_remote_write = l.iwarp && !siw;
    l.raises_sigpipe = siw;
    verbs::capabilities& c = l.can;
    c.provider = "rdma";
    // A window of type 1 is any queue pair's of its domain, and only a bind ends it.
    c.grant_per_queue_pair = type_2;
    // A peer may invalidate a type-2 window's key; at a region's rxe ends the connection. libsiw can't send it.
    c.remote_invalidate = type_2;
    c.local_invalidate = type_2;
    c.write_with_immediate = c.send_with_immediate = !l.iwarp;
    c.renewable_grants = type_1;
    c.shared_receives = a.max_srq > 0;
    c.domains_across_shards = true;
    c.needs_local_keys = true;
    c.read_sink_needs_remote_write = l.read_sink_remote_write;
    c.receive_not_ready_retry = !l.iwarp;
    c.completion_means_delivered = !l.iwarp;
    // siw looks at key, domain and range of what a Read Request names, and at no right (siw_check_sgl_tx).
    c.checks_read_rights = !siw;
    // rxe looks at the bounds of the region that a window is bound to, and not at the window's.
    c.checks_grant_bounds = a.vendor_id != rxe_vendor || l.grants == grant_kind::region;
    // Where it accepts, siw raises its depth to what the peer asks for (siw_accept, "relaxed" negotiation).
    c.bounds_peer_reads = !siw;
    c.max_inline = inline_bytes;
    c.max_send_segments = static_cast<std::uint32_t>(std::clamp(a.max_sge, 1, 4));
    c.max_read_segments = l.iwarp ? 1 : c.max_send_segments;
    c.max_outstanding_reads =
        static_cast<std::uint32_t>(std::clamp(std::min(a.max_qp_init_rd_atom, a.max_qp_rd_atom), 1, 128));
    c.max_message = 0x40000000;
    c.private_data_padded = !l.iwarp;
    c.max_private_data = l.iwarp ? 128 : 56; // IB: 92 in a request, 36 of them the connection manager's
    return l;
}

// What a device had on one shard, on its way out. Blocks; deletes itself.
class device::leaving final : public blocking_pool::job {
public:
    leaving(ibv_context* on, std::shared_ptr<notice_box> where) noexcept : on_(on), where_(std::move(where))
    {
    }
    void execute() noexcept override
    {
        for (ibv_srq* srq : shared)
            (void)::ibv_destroy_srq(srq);
        for (ibv_cq* cq : queues)
            (void)::ibv_destroy_cq(cq);
        if (channel != nullptr)
            (void)::ibv_destroy_comp_channel(channel);
        shared_devices::leave(on_, *where_);
    }
    void deliver() noexcept override { delete this; }

    std::vector<ibv_srq*> shared;
    std::vector<ibv_cq*> queues;
    ibv_comp_channel* channel = nullptr;

private:
    ibv_context* on_;
    std::shared_ptr<notice_box> where_;
};

device::device(context_impl& owner, ibv_context* verbs, const device_limits& limits,
               std::shared_ptr<notice_box> where)
    : owner_(owner), verbs_(verbs), limits_(limits), where_(std::move(where))
{
    const int flags = ::fcntl(verbs->async_fd, F_GETFL);
    ::fcntl(verbs->async_fd, F_SETFL, flags | O_NONBLOCK);
    listening_ = std::make_unique<listening>(*this, owner.shard(), verbs->async_fd);
    listening_->want_read(true);
}

device::~device()
{
    if (auto rest = take_all())
        rest->execute();
}

std::unique_ptr<device::leaving> device::take_all() noexcept
{
    if (where_ == nullptr)
        return nullptr;
    auto rest = std::make_unique<leaving>(verbs_, std::move(where_));
    listening_.reset();
    wake_up_.reset();
    while (device_resident* r = residents_.pop_front())
        rest->shared.push_back(r->surrender());
    for (auto& q : queues_) {
        if (q->cq != nullptr)
            rest->queues.push_back(std::exchange(q->cq, nullptr));
    }
    rest->channel = std::exchange(channel_, nullptr);
    return rest;
}

void device::set_gone() noexcept
{
    if (gone_.exchange(true))
        return;
    if (uses_ == 0)
        let_go();
}

void device::let_go() noexcept
{
    if (auto rest = take_all())
        owner_.pool().submit(*rest.release(), owner_.shard());
}

bool device::retire(std::uint64_t number) noexcept
{
    const auto found = std::ranges::find_if(queues_, [number](const auto& q) { return q->number == number; });
    if (found == queues_.end())
        return false;
    (*found)->retired = true;
    return true;
}

result<void> device::make(completion_queue& q, std::uint32_t entries) noexcept
{
    const auto most = static_cast<std::uint32_t>(std::max(limits_.attributes.max_cqe, 1));
    if (entries > most)
        return error(std::errc::invalid_argument, "queue depths beyond the device's completion queues", most);
    if (channel_ == nullptr) {
        channel_ = ::ibv_create_comp_channel(verbs_);
        if (channel_ == nullptr)
            return error::from_errno(errno, "ibv_create_comp_channel");
        const int flags = ::fcntl(channel_->fd, F_GETFL);
        ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK);
    }
    const int vector = verbs_->num_comp_vectors > 0
                           ? static_cast<int>(owner_.shard().index()) % verbs_->num_comp_vectors
                           : 0;
    const std::uint32_t wanted = std::clamp(limits_.usual_entries, entries, most);
    q.number = next_serial();
    q.cq = ::ibv_create_cq(verbs_, static_cast<int>(wanted), as_context(q.number), channel_, vector);
    if (q.cq == nullptr)
        return error::from_errno(errno, "ibv_create_cq", wanted);
    q.capacity = wanted;
    return {};
}

std::uint32_t completion_queue::needed_for(const queue_entries& e) const noexcept
{
    const bool is_counted =
        e.shared == nullptr || std::ranges::find(shared, e.shared, &sharing::queue) != shared.end();
    return e.own + (is_counted ? 0 : e.shared_depth);
}

void completion_queue::take(const queue_entries& e)
{
    const std::uint32_t needed = needed_for(e);
    if (e.shared != nullptr) {
        const auto at = std::ranges::find(shared, e.shared, &sharing::queue);
        if (at != shared.end())
            ++at->pairs;
        else
            shared.push_back({e.shared, 1});
    }
    used += needed;
}

void completion_queue::give_back(const queue_entries& e) noexcept
{
    used -= e.own;
    const auto at = std::ranges::find(shared, e.shared, &sharing::queue);
    if (at == shared.end() || --at->pairs != 0)
        return;
    shared.erase(at);
    used -= e.shared_depth;
}

task<result<completion_queue*>> device::take_room(queue_entries entries)
{
    for (;;) {
        const auto found = std::ranges::find_if(queues_, [&entries](const auto& q) {
            return !q->retired && q->capacity - q->used >= q->needed_for(entries);
        });
        if (found != queues_.end()) {
            (*found)->take(entries);
            co_return found->get();
        }
        if (!making_)
            break;
        co_await made_.wait_shielded(); // it may have room for both
    }
    making_ = true;
    made_.reset();
    auto made = std::make_unique<completion_queue>();
    auto create = [this, q = made.get(), size = made->needed_for(entries)] { return make(*q, size); };
    const result<void> done = co_await owner_.pool().run(std::move(create));
    making_ = false;
    if (!done) {
        made_.set();
        co_return done.error();
    }
    if (!wake_up_) {
        wake_up_ = std::make_unique<wake_up>(*this, owner_.shard(), channel_->fd);
        wake_up_->want_read(true);
    }
    made->take(entries);
    queues_.push_back(std::move(made));
    completion_queue* const q = queues_.back().get();
    made_.set();
    co_return q;
}

bool device::poll(bool all) noexcept
{
    std::array<ibv_wc, 32> found;
    bool any = false;
    if (gone())
        return false;
    for (auto& q : queues_) {
        // All that can have been there when this began, not what others keep adding.
        const auto most = all ? static_cast<int>(q->capacity / found.size()) + 1 : max_batches_per_poll;
        for (int batch = 0; batch < most; ++batch) {
            const int n = ::ibv_poll_cq(q->cq, static_cast<int>(found.size()), found.data());
            if (n <= 0)
                break;
            any = true;
            for (int i = 0; i < n; ++i)
                owner_.take(found[static_cast<std::size_t>(i)], *this);
            if (n < static_cast<int>(found.size()))
                break;
        }
    }
    return any;
}

// Drain, arm, drain again: what came between the first two would tell nobody.
bool device::arm() noexcept
{
    if (gone())
        return true;
    for (auto& q : queues_) {
        if (::ibv_req_notify_cq(q->cq, 0) != 0)
            return false;
    }
    return !poll(false);
}

namespace {

device_event kind_of(ibv_event_type t) noexcept
{
    switch (t) {
    case IBV_EVENT_PORT_ERR: return device_event::port_down;
    case IBV_EVENT_PORT_ACTIVE: return device_event::port_up;
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER: return device_event::address_change;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR: return device_event::queue_pair_error;
    case IBV_EVENT_CQ_ERR: return device_event::completion_queue_error;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: return device_event::shared_receive_event;
    case IBV_EVENT_DEVICE_FATAL: return device_event::device_fatal;
    default: return device_event::other; // COMM_EST, LAST_WQE_REACHED, SQ_DRAINED: nothing waits for them
    }
}

} // namespace

// The file is the process's: one of the shards that watch it gets each event, and tells all.
bool device::listening::on_readable() noexcept
{
    bool any = false;
    ibv_async_event e;
    while (::ibv_get_async_event(device_.verbs_, &e) == 0) {
        any = true;
        device_notice n{device_.verbs_, kind_of(e.event_type)};
        if (n.what == device_event::queue_pair_error)
            n.about = serial_of(e.element.qp->qp_context);
        else if (n.what == device_event::completion_queue_error)
            n.about = serial_of(e.element.cq->cq_context);
        // Whoever destroys what the event is about waits for this, so it can't wait for other shards. What it is about
        // may be gone, and its number another's, when they hear of it: hence the serial.
        ::ibv_ack_async_event(&e);
        add(device_.owner_.counts().device_events[std::size_t(n.what)], 1);
        if (n.what != device_event::other)
            shared_devices::tell(n);
    }
    return any;
}

bool device::wake_up::on_readable() noexcept
{
    bool any = false;
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    while (::ibv_get_cq_event(device_.channel_, &cq, &context) == 0) {
        ::ibv_ack_cq_events(cq, 1);
        any = true;
    }
    return any;
}

} // namespace verbena::rdma
