// SPDX-License-Identifier: Apache-2.0
// A device that is none: what the provider over rdma-core asks of libibverbs and librdmacm is answered here. For one
// file of a program, since it defines functions of theirs.
#pragma once

#include "../../../transports/rdma/context.hpp"
#include "../../../transports/rdma/queue_pair.hpp"
#include "../../../transports/rdma/whole_domain.hpp"
#include "../creeping_clock.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace verbena::rdma_test {

using namespace verbena::rdma;
using namespace std::chrono_literals;

// One device. Its queue pairs all have the same address and number.
struct fake {
    ibv_device device{};
    std::deque<ibv_context> contexts; // each time that it comes back it is another
    ibv_device_attr attributes{};
    std::deque<ibv_async_event> events;
    unsigned acknowledged = 0;
    int vector = -1; // of the completion queue that was made last
    ibv_qp qp{};
    bool makes_extended = false; // queue pairs with ibv_wr_*
    ibv_qp_ex extended{};
    struct request {
        std::uint64_t id;
        bool signalled;
        ibv_wr_opcode what = IBV_WR_SEND;
        std::uint32_t key = 0;    // that is bound or invalidated
        std::uint64_t length = 0; // of the memory that is bound
        const void* at = nullptr; // where it begins
        unsigned rights = 0;
    };
    // What was posted by each, but by ibv_bind_mw. Nothing completes by itself.
    std::vector<std::vector<request>> doorbells;
    unsigned receives_taken = 0;                      // by ibv_post_recv, before it
    std::optional<unsigned> refuses_after_receives{}; // refuses with ENOMEM
    bool refused_receive = false;
    struct modification {
        int what;
        ibv_qp_attr to;
    };
    std::vector<modification> modifications;
    std::atomic<unsigned> states_set{0}; // by ibv_modify_qp; these two on pool threads
    std::atomic<unsigned> destroyed{0};  // queue pairs
    std::atomic<std::thread::id> destroyed_by{};
    std::atomic<int> lists{0};  // of rdma_get_devices() that were not given back
    std::uint32_t next_key = 0; // of a region or window; the last octet is the window's own
    int regions = 0;            // that are there
    std::atomic<const ibv_context*> registered_with{nullptr}; // the last one
    std::function<void()> before_taken_away;
    int stuck_regions = 0;             // so many ibv_dereg_mr fail
    const ibv_mr* stuck = nullptr;     // the last one
    std::function<void()> before_pair; // in rdma_create_qp, on a pool thread
    std::thread::id taken_away_by;     // of the region that went last
    std::optional<int> refused_region; // an errno of ibv_reg_mr
    int windows = 0;
    std::atomic<int> protection_domains{0};
    int windows_made = 0;
    ibv_mw_type made_type{};
    bool makes_windows = false;
    struct bind {
        std::uint64_t length;
        unsigned rights;
    };
    std::vector<bind> binds;
    int refused_bind = 0; // an errno of ibv_bind_mw
    ibv_wc_status bind_status = IBV_WC_SUCCESS;
    std::deque<ibv_wc> completions;
    std::optional<ibv_wc> just_before_arming; // completes when the queue looked empty and isn't armed yet
    std::atomic<const rdma_cm_id*> listening{nullptr}; // pool threads look at it
    unsigned rejected = 0;                             // peers
    int refused_migrate = 0;                           // an errno of rdma_migrate_id
    int refused_accept = 0;                            // of rdma_accept
    std::atomic<int> refused_connect{0};               // of rdma_connect, on a pool thread
    std::atomic<rdma_cm_id*> connecting{nullptr};      // by rdma_connect

    fake()
    {
        std::strcpy(device.name, "fake0");
        std::strcpy(device.dev_path, "/dev/null"); // so that it has not gone
        come_back();
        extended.wr_start = start;
        extended.wr_send = put_send;
        extended.wr_set_sge_list = [](ibv_qp_ex*, std::size_t, const ibv_sge*) {};
        extended.wr_complete = [](ibv_qp_ex*) { return 0; };
        attributes.max_sge = 4;
        attributes.max_cqe = 32768;
        attributes.max_mw = 16;
        attributes.max_qp_rd_atom = attributes.max_qp_init_rd_atom = 16;
    }
    ibv_context& verbs() { return contexts.back(); }
    void come_back()
    {
        ibv_context& c = contexts.emplace_back();
        c.device = &device;
        c.cmd_fd = ::eventfd(0, 0); // one that the provider may close
        c.async_fd = ::eventfd(0, EFD_NONBLOCK);
        c.num_comp_vectors = 4;
        c.ops.poll_cq = poll;
        c.ops.req_notify_cq = arm;
        c.ops.alloc_mw = make_window;
        c.ops.dealloc_mw = drop_window;
        c.ops.bind_mw = bind_window;
        c.ops.post_send = post;
        c.ops.post_recv = post_receive;
    }
    bool post_raises_sigpipe = false; // as siw's, where the peer has reset the connection
    static int poll(ibv_cq*, int most, ibv_wc* to);
    static int arm(ibv_cq*, int);
    static int post(ibv_qp*, ibv_send_wr* first, ibv_send_wr**);
    static int post_receive(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**);
    static void start(ibv_qp_ex*);
    static void put_send(ibv_qp_ex* q);
    static ibv_mw* make_window(ibv_pd* pd, ibv_mw_type type);
    static int drop_window(ibv_mw* w);
    static int bind_window(ibv_qp*, ibv_mw* w, ibv_mw_bind* b);
    void say(ibv_event_type what, ibv_qp* about)
    {
        ibv_async_event e{};
        e.event_type = what;
        e.element.qp = about;
        events.push_back(e);
        const std::uint64_t one = 1;
        BOOST_REQUIRE(::write(verbs().async_fd, &one, sizeof one) == ssize_t(sizeof one));
    }
};

inline fake& it()
{
    static auto* const f = new fake; // the provider keeps devices for the process
    return *f;
}

inline int fake::poll(ibv_cq*, int most, ibv_wc* to)
{
    int n = 0;
    for (; n < most && !it().completions.empty(); ++n) {
        to[n] = it().completions.front();
        it().completions.pop_front();
    }
    return n;
}

inline int fake::arm(ibv_cq*, int)
{
    if (it().just_before_arming)
        it().completions.push_back(*std::exchange(it().just_before_arming, std::nullopt));
    return 0;
}

inline int fake::post(ibv_qp*, ibv_send_wr* first, ibv_send_wr**)
{
    auto& posted = it().doorbells.emplace_back();
    for (const ibv_send_wr* w = first; w != nullptr; w = w->next) {
        request& r = posted.emplace_back();
        r.id = w->wr_id;
        r.signalled = (w->send_flags & IBV_SEND_SIGNALED) != 0;
        r.what = w->opcode;
        if (w->opcode == IBV_WR_BIND_MW) {
            r.key = w->bind_mw.rkey;
            r.length = w->bind_mw.bind_info.length;
            r.at = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(w->bind_mw.bind_info.addr));
            r.rights = w->bind_mw.bind_info.mw_access_flags;
        } else if (w->opcode == IBV_WR_LOCAL_INV) {
            r.key = w->invalidate_rkey;
        }
    }
    if (it().post_raises_sigpipe)
        BOOST_REQUIRE(::pthread_kill(::pthread_self(), SIGPIPE) == 0);
    return 0;
}

inline int fake::post_receive(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**)
{
    if (it().refuses_after_receives && it().receives_taken >= *it().refuses_after_receives) {
        // Nothing may be asked of the queue pair after this, since its end is under way.
        BOOST_TEST(!std::exchange(it().refused_receive, true));
        return ENOMEM;
    }
    ++it().receives_taken;
    return 0;
}

inline void fake::start(ibv_qp_ex*) { it().doorbells.emplace_back(); }

inline void fake::put_send(ibv_qp_ex* q)
{
    request& r = it().doorbells.back().emplace_back();
    r.id = q->wr_id;
    r.signalled = (q->wr_flags & IBV_SEND_SIGNALED) != 0;
}

inline ibv_mw* fake::make_window(ibv_pd* pd, ibv_mw_type type)
{
    if (!it().makes_windows) {
        errno = ENOMEM;
        return nullptr;
    }
    it().made_type = type;
    ++it().windows;
    ++it().windows_made;
    return new ibv_mw{pd->context, pd, it().next_key += 0x100, 0, type};
}

inline int fake::drop_window(ibv_mw* w)
{
    delete w;
    --it().windows;
    return 0;
}

inline int fake::bind_window(ibv_qp*, ibv_mw* w, ibv_mw_bind* b)
{
    if (it().refused_bind != 0)
        return it().refused_bind;
    it().binds.push_back({b->bind_info.length, b->bind_info.mw_access_flags});
    w->rkey = ibv_inc_rkey(w->rkey);
    if ((b->send_flags & IBV_SEND_SIGNALED) != 0) {
        ibv_wc c{};
        c.wr_id = b->wr_id;
        c.status = it().bind_status;
        it().completions.push_back(c);
    }
    return 0;
}

// On the shard.
inline void say(rdma_cm_id* id, rdma_cm_event_type what)
{
    cm_event e{what, 0, id, {}, 0, 0};
    static_cast<cm_handler*>(id->context)->on_cm_event(e);
}

} // namespace verbena::rdma_test

// It is registered by functions, not by what verbs.h makes of their names.
#undef ibv_reg_mr

extern "C" {

int ibv_query_device(ibv_context*, ibv_device_attr* to)
{
    *to = verbena::rdma_test::it().attributes;
    return 0;
}
ibv_pd* ibv_alloc_pd(ibv_context* c)
{
    auto* const pd = new ibv_pd{};
    pd->context = c;
    ++verbena::rdma_test::it().protection_domains;
    return pd;
}
int ibv_dealloc_pd(ibv_pd* pd)
{
    delete pd;
    --verbena::rdma_test::it().protection_domains;
    return 0;
}
ibv_comp_channel* ibv_create_comp_channel(ibv_context*)
{
    auto* const c = new ibv_comp_channel{};
    c->fd = ::eventfd(0, EFD_NONBLOCK);
    return c;
}
int ibv_destroy_comp_channel(ibv_comp_channel* c)
{
    ::close(c->fd);
    delete c;
    return 0;
}
ibv_cq* ibv_create_cq(ibv_context* c, int, void* context, ibv_comp_channel*, int vector)
{
    verbena::rdma_test::it().vector = vector;
    auto* const q = new ibv_cq{};
    q->context = c;
    q->cq_context = context;
    return q;
}
int ibv_destroy_cq(ibv_cq* q)
{
    delete q;
    return 0;
}
int ibv_get_cq_event(ibv_comp_channel*, ibv_cq**, void**) { return -1; }
int ibv_modify_qp(ibv_qp*, ibv_qp_attr* to, int what)
{
    if (what == IBV_QP_STATE)
        ++verbena::rdma_test::it().states_set;
    else
        verbena::rdma_test::it().modifications.push_back({what, *to});
    return 0;
}
ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp*) { return &verbena::rdma_test::it().extended; }
int ibv_get_async_event(ibv_context* c, ibv_async_event* e)
{
    std::uint64_t count = 0;
    if (verbena::rdma_test::it().events.empty()) {
        (void)!::read(c->async_fd, &count, sizeof count);
        return -1;
    }
    *e = verbena::rdma_test::it().events.front();
    verbena::rdma_test::it().events.pop_front();
    return 0;
}
void ibv_ack_async_event(ibv_async_event*) { ++verbena::rdma_test::it().acknowledged; }
ibv_context** rdma_get_devices(int* count)
{
    if (count != nullptr)
        *count = 1;
    ++verbena::rdma_test::it().lists;
    return new ibv_context*[2]{&verbena::rdma_test::it().verbs(), nullptr};
}
void rdma_free_devices(ibv_context** list)
{
    --verbena::rdma_test::it().lists;
    delete[] list;
}
rdma_event_channel* rdma_create_event_channel() { return new rdma_event_channel{::eventfd(0, EFD_NONBLOCK)}; }
void rdma_destroy_event_channel(rdma_event_channel* c)
{
    ::close(c->fd);
    delete c;
}
int rdma_get_cm_event(rdma_event_channel*, rdma_cm_event**) { return -1; }
int rdma_create_qp(rdma_cm_id* id, ibv_pd*, ibv_qp_init_attr*)
{
    if (verbena::rdma_test::it().before_pair)
        verbena::rdma_test::it().before_pair();
    verbena::rdma_test::it().qp.qp_num = 17;
    verbena::rdma_test::it().qp.context = id->verbs;
    id->qp = &verbena::rdma_test::it().qp;
    return 0;
}
int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex*)
{
    return verbena::rdma_test::it().makes_extended ? rdma_create_qp(id, nullptr, nullptr) : -1;
}
void rdma_destroy_qp(rdma_cm_id* id) { id->qp = nullptr; }
int ibv_destroy_qp(ibv_qp*)
{
    ++verbena::rdma_test::it().destroyed;
    verbena::rdma_test::it().destroyed_by = std::this_thread::get_id();
    return 0;
}
int rdma_disconnect(rdma_cm_id*) { return 0; }
int rdma_create_id(rdma_event_channel*, rdma_cm_id** id, void* context, rdma_port_space)
{
    *id = new rdma_cm_id{};
    (*id)->context = context;
    return 0;
}
int rdma_bind_addr(rdma_cm_id* id, sockaddr*)
{
    id->verbs = &verbena::rdma_test::it().verbs();
    return 0;
}
int rdma_listen(rdma_cm_id* id, int)
{
    verbena::rdma_test::it().listening = id;
    return 0;
}
int rdma_accept(rdma_cm_id*, rdma_conn_param*)
{
    errno = verbena::rdma_test::it().refused_accept;
    return errno == 0 ? 0 : -1;
}
int rdma_resolve_addr(rdma_cm_id* id, sockaddr*, sockaddr*, int)
{
    id->verbs = &verbena::rdma_test::it().verbs();
    id->port_num = 1;
    verbena::rdma_test::say(id, RDMA_CM_EVENT_ADDR_RESOLVED);
    return 0;
}
int rdma_resolve_route(rdma_cm_id* id, int)
{
    verbena::rdma_test::say(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return 0;
}
int rdma_connect(rdma_cm_id* id, rdma_conn_param*)
{
    errno = verbena::rdma_test::it().refused_connect;
    verbena::rdma_test::it().connecting = id;
    return errno == 0 ? 0 : -1;
}
int rdma_reject(rdma_cm_id*, const void*, std::uint8_t)
{
    ++verbena::rdma_test::it().rejected;
    return 0;
}
int rdma_migrate_id(rdma_cm_id*, rdma_event_channel*)
{
    errno = verbena::rdma_test::it().refused_migrate;
    return errno == 0 ? 0 : -1;
}
int rdma_destroy_id(rdma_cm_id* id)
{
    if (verbena::rdma_test::it().listening == id)
        verbena::rdma_test::it().listening = nullptr;
    delete id;
    return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t length, int)
{
    auto& f = verbena::rdma_test::it();
    if (f.refused_region) {
        errno = *f.refused_region;
        return nullptr;
    }
    auto* const mr = new ibv_mr{};
    mr->context = pd->context;
    mr->pd = pd;
    mr->addr = address;
    mr->length = length;
    mr->lkey = mr->rkey = f.next_key += 0x100;
    f.registered_with = pd->context;
    ++f.regions;
    return mr;
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t, unsigned rights)
{
    return ibv_reg_mr(pd, address, length, static_cast<int>(rights));
}
int ibv_dereg_mr(ibv_mr* mr)
{
    auto& f = verbena::rdma_test::it();
    if (f.before_taken_away)
        f.before_taken_away();
    if (f.stuck_regions > 0) {
        --f.stuck_regions;
        f.stuck = mr;
        return EBUSY;
    }
    delete mr;
    --f.regions;
    f.taken_away_by = std::this_thread::get_id();
    return 0;
}

} // extern "C"

namespace verbena::rdma_test {

template<class T>
std::string why(const result<T>& r)
{
    return r ? std::string() : r.error().message();
}

struct captured {
    captured()
    {
        set_log_capture(
            [](void* to, std::string_view line) { static_cast<captured*>(to)->lines.emplace_back(line); },
            this);
    }
    ~captured() { set_log_capture(nullptr, nullptr); }
    std::size_t with(std::string_view part) const
    {
        return static_cast<std::size_t>(std::ranges::count_if(
            lines, [part](const std::string& line) { return line.find(part) != std::string::npos; }));
    }
    std::vector<std::string> lines;
};

struct ends final : verbs::completion_handler {
    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        for (const auto& c : batch)
            completed.push_back(c.id);
    }
    void on_disconnected(const error& cause) noexcept override
    {
        ++count;
        last = cause;
    }
    std::vector<std::uint64_t> completed; // the ids of requests
    unsigned count = 0;
    error last;
};

struct fixture {
    /// `flags`: of the device's abilities, IBV_DEVICE_...
    explicit fixture(unsigned flags = 0, const options& choice = {}, unsigned shard_number = 0)
    {
        it().attributes.device_cap_flags = flags;
        reactor_options of_shard;
        of_shard.index = shard_number;
        of_shard.clock = &clock;
        clock.creeps = false;
        auto r = reactor::create(of_shard);
        BOOST_REQUIRE(r);
        shard = std::move(*r);
        far.emplace(*shard);
        auto c = make_context(*shard, {pool, pool}, choice);
        BOOST_REQUIRE_MESSAGE(c, why(c));
        context = std::move(*c);
        domain = std::move(*context->make_domain());
    }
    /// The pool's threads touch the shard after their last job has come home.
    ~fixture()
    {
        domain.reset();
        context.reset();
        pool.finish();
    }
    context_impl& impl() { return static_cast<context_impl&>(*context); }
    rdma::domain& impl_part() { return static_cast<whole_domain&>(*domain).at(impl()); }
    task<std::unique_ptr<rdma::queue_pair>> connected(ends& seen)
    {
        auto* const id = new rdma_cm_id{};
        id->verbs = &it().verbs();
        id->port_num = 1;
        const verbs::queue_pair_options o;
        auto made = co_await impl().make_pair(id, impl_part(), o, "peer:1", "peer");
        BOOST_REQUIRE_MESSAGE(made, why(made));
        (*made)->set_handler(&seen);
        (*made)->open(1);
        co_return std::move(*made);
    }
    /// Waits for what a thread of the pool or the kernel does: no time passes meanwhile, and the machine's matters only where it is never so.
    template<class F>
    static task<void> wait_until(F it_is_so)
    {
        for (const time_point limit = system_clock().now() + 60s; !it_is_so();) {
            BOOST_TEST_REQUIRE((system_clock().now() < limit));
            std::this_thread::yield();
            co_await sleep_for(0s);
        }
    }
    /// Of device_event::queue_pair_error a queue pair ends after so long, for the connection manager to say why.
    static constexpr auto managers_delay = 100ms;
    /// Has time pass, which stands still otherwise: a thread of the pool may be at work.
    task<void> pass(duration d)
    {
        clock.creeps = true;
        co_await sleep_for(d);
        clock.creeps = false;
    }

    test::creeping_clock clock;
    blocking_pool pool{1};
    std::unique_ptr<reactor> shard;
    std::optional<test::far_timer> far;
    std::unique_ptr<rdma::context> context;
    std::unique_ptr<verbs::protection_domain> domain;
};

} // namespace verbena::rdma_test
