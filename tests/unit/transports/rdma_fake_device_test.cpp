// SPDX-License-Identifier: Apache-2.0
// The provider over rdma-core on a device that is none: what it asks of libibverbs and librdmacm is answered here.
#define BOOST_TEST_MODULE rdma_fake_device
#include <boost/test/unit_test.hpp>

#include "../../../transports/rdma/context.hpp"
#include "../../../transports/rdma/queue_pair.hpp"

#include <verbena/core/scope.hpp>
#include <verbena/core/sleep.hpp>

#include <cerrno>
#include <cstring>
#include <deque>
#include <sys/eventfd.h>
#include <unistd.h>

using namespace verbena;
using namespace verbena::rdma;
using namespace std::chrono_literals;

namespace {

// One device, and one queue pair at a time: each has the address and the number of the one before.
struct fake {
    ibv_device device{};
    ibv_context verbs{};
    ibv_device_attr attributes{};
    std::deque<ibv_async_event> events;
    unsigned acknowledged = 0;
    ibv_qp qp{};
    ibv_mw window{};
    ibv_mw_type made_type{};

    fake()
    {
        std::strcpy(device.name, "fake0");
        std::strcpy(device.dev_path, "/dev/null"); // so that it has not gone
        verbs.device = &device;
        window.context = &verbs;
        verbs.async_fd = ::eventfd(0, EFD_NONBLOCK);
        verbs.num_comp_vectors = 1;
        verbs.ops.poll_cq = [](ibv_cq*, int, ibv_wc*) { return 0; };
        verbs.ops.req_notify_cq = [](ibv_cq*, int) { return 0; };
        verbs.ops.alloc_mw = [](ibv_pd*, ibv_mw_type) -> ibv_mw* { return nullptr; };
        verbs.ops.dealloc_mw = [](ibv_mw*) { return 0; };
        attributes.max_sge = 4;
        attributes.max_cqe = 32768;
        attributes.max_mw = 16;
        attributes.max_qp_rd_atom = attributes.max_qp_init_rd_atom = 16;
    }
    void say(ibv_event_type what, ibv_qp* about)
    {
        ibv_async_event e{};
        e.event_type = what;
        e.element.qp = about;
        events.push_back(e);
        const std::uint64_t one = 1;
        BOOST_REQUIRE(::write(verbs.async_fd, &one, sizeof one) == ssize_t(sizeof one));
    }
};

fake& it()
{
    static auto* const f = new fake; // the provider keeps devices for the process
    return *f;
}

} // namespace

extern "C" {

int ibv_query_device(ibv_context*, ibv_device_attr* to)
{
    *to = it().attributes;
    return 0;
}
ibv_pd* ibv_alloc_pd(ibv_context* c)
{
    auto* const pd = new ibv_pd{};
    pd->context = c;
    return pd;
}
int ibv_dealloc_pd(ibv_pd* pd)
{
    delete pd;
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
ibv_cq* ibv_create_cq(ibv_context* c, int, void* context, ibv_comp_channel*, int)
{
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
int ibv_modify_qp(ibv_qp*, ibv_qp_attr*, int) { return 0; }
int ibv_get_async_event(ibv_context* c, ibv_async_event* e)
{
    std::uint64_t count = 0;
    if (it().events.empty()) {
        (void)!::read(c->async_fd, &count, sizeof count);
        return -1;
    }
    *e = it().events.front();
    it().events.pop_front();
    return 0;
}
void ibv_ack_async_event(ibv_async_event*) { ++it().acknowledged; }
ibv_context** rdma_get_devices(int* count)
{
    if (count != nullptr)
        *count = 1;
    return new ibv_context*[2]{&it().verbs, nullptr};
}
void rdma_free_devices(ibv_context** list) { delete[] list; }
rdma_event_channel* rdma_create_event_channel() { return new rdma_event_channel{::eventfd(0, EFD_NONBLOCK)}; }
void rdma_destroy_event_channel(rdma_event_channel* c)
{
    ::close(c->fd);
    delete c;
}
int rdma_get_cm_event(rdma_event_channel*, rdma_cm_event**) { return -1; }
int rdma_create_qp_ex(rdma_cm_id*, ibv_qp_init_attr_ex*) { return -1; }
int rdma_create_qp(rdma_cm_id* id, ibv_pd*, ibv_qp_init_attr*)
{
    it().qp.qp_num = 17;
    id->qp = &it().qp;
    return 0;
}
void rdma_destroy_qp(rdma_cm_id* id) { id->qp = nullptr; }
int rdma_disconnect(rdma_cm_id*) { return 0; }
int rdma_destroy_id(rdma_cm_id* id)
{
    delete id;
    return 0;
}

} // extern "C"

namespace {

template<class T>
std::string why(const result<T>& r)
{
    return r ? std::string() : r.error().message();
}

struct ends final : verbs::completion_handler {
    void on_completions(std::span<const verbs::completion>) noexcept override {}
    void on_disconnected(const error&) noexcept override { ++count; }
    unsigned count = 0;
};

struct fixture {
    fixture()
    {
        auto r = reactor::create({});
        BOOST_REQUIRE(r);
        shard = std::move(*r);
        auto c = make_context(*shard, pool);
        BOOST_REQUIRE_MESSAGE(c, why(c));
        context = std::move(*c);
        domain = std::move(*context->make_domain());
    }
    context_impl& impl() { return static_cast<context_impl&>(*context); }
    task<std::unique_ptr<rdma::queue_pair>> connected(ends& seen)
    {
        auto* const id = new rdma_cm_id{};
        id->verbs = &it().verbs;
        id->port_num = 1;
        const verbs::queue_pair_options o;
        auto made = co_await impl().make_pair(id, static_cast<rdma::domain&>(*domain), o, "peer:1", "peer");
        BOOST_REQUIRE_MESSAGE(made, why(made));
        (*made)->set_handler(&seen);
        (*made)->open(1);
        co_return std::move(*made);
    }
    // Of device_event::queue_pair_error a queue pair ends after 100 ms.
    static auto long_enough() { return sleep_for(400ms); }

    blocking_pool pool{1};
    std::unique_ptr<reactor> shard;
    std::unique_ptr<rdma::context> context;
    std::unique_ptr<verbs::protection_domain> domain;
};

} // namespace

BOOST_AUTO_TEST_CASE(an_event_of_a_queue_pair_ends_it)
{
    fixture f;
    auto body = [&f]() -> task<void> {
        ends seen;
        auto q = co_await f.connected(seen);
        const unsigned before = it().acknowledged;
        it().say(IBV_EVENT_QP_FATAL, &it().qp);
        co_await f.long_enough();
        BOOST_TEST(seen.count == 1U);
        BOOST_TEST(it().acknowledged == before + 1);
    };
    run_until_complete(*f.shard, body());
}

BOOST_AUTO_TEST_CASE(a_late_event_of_a_queue_pair_does_not_touch_the_next_of_its_number)
{
    fixture f;
    auto body = [&f]() -> task<void> {
        ends first_seen;
        ends seen;
        auto first = co_await f.connected(first_seen);
        const serial old = first->serial_number();
        const std::uint32_t number = first->number();
        first.reset();
        BOOST_TEST(first_seen.count == 0U); // destroyed: nobody is told
        auto q = co_await f.connected(seen);
        BOOST_TEST(q->number() == number);
        BOOST_TEST(q->serial_number() > old);
        // As it was told by the shard that read it, before the queue pair went.
        f.impl().on_notice({&it().verbs, device_event::queue_pair_error, old});
        // Nor one of a completion queue with a queue pair's serial.
        f.impl().on_notice({&it().verbs, device_event::completion_queue_error, old});
        f.impl().on_notice({&it().verbs, device_event::completion_queue_error, q->serial_number()});
        co_await f.long_enough();
        BOOST_TEST(q->connected());
        BOOST_TEST(seen.count == 0U);
        f.impl().on_notice({&it().verbs, device_event::queue_pair_error, q->serial_number()});
        co_await f.long_enough();
        BOOST_TEST(!q->connected());
        BOOST_TEST(seen.count == 1U);
    };
    run_until_complete(*f.shard, body());
}

BOOST_AUTO_TEST_CASE(an_event_of_a_completion_queue_ends_those_that_use_it)
{
    fixture f;
    auto body = [&f]() -> task<void> {
        ends seen;
        auto q = co_await f.connected(seen);
        serial queue = 1;
        while (!q->completes_at(queue))
            ++queue;
        f.impl().on_notice({&it().verbs, device_event::completion_queue_error, queue - 1});
        co_await f.long_enough();
        BOOST_TEST(seen.count == 0U);
        f.impl().on_notice({&it().verbs, device_event::completion_queue_error, queue});
        co_await f.long_enough();
        BOOST_TEST(seen.count == 1U);
        // It is used no more.
        ends next_seen;
        q.reset();
        auto next = co_await f.connected(next_seen);
        BOOST_TEST(!next->completes_at(queue));
    };
    run_until_complete(*f.shard, body());
}

BOOST_AUTO_TEST_CASE(grants_are_made_by_the_best_that_the_device_has)
{
    constexpr unsigned both = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    const auto kind = [](unsigned flags, std::optional<grant_kind> wanted = {}) {
        it().attributes.device_cap_flags = flags;
        return query(&it().verbs, wanted);
    };
    // Says so, and its provider makes none.
    BOOST_TEST((kind(both)->grants == grant_kind::region));
    it().verbs.ops.alloc_mw = [](ibv_pd*, ibv_mw_type type) {
        it().made_type = type;
        return &it().window;
    };
    BOOST_TEST((kind(0)->grants == grant_kind::region));
    const auto first = kind(IBV_DEVICE_MEM_WINDOW);
    BOOST_TEST((first->grants == grant_kind::type_1_window));
    BOOST_TEST((it().made_type == IBV_MW_TYPE_1));
    BOOST_TEST(!first->can.grant_per_queue_pair);
    BOOST_TEST(!first->can.remote_invalidate);
    BOOST_TEST(!first->can.local_invalidate);
    const auto second = kind(both);
    BOOST_TEST((second->grants == grant_kind::type_2_window));
    BOOST_TEST((it().made_type == IBV_MW_TYPE_2));
    BOOST_TEST(second->can.grant_per_queue_pair);
    BOOST_TEST(second->can.remote_invalidate);
    // What is asked for, or nothing.
    BOOST_TEST((kind(both, grant_kind::type_1_window)->grants == grant_kind::type_1_window));
    BOOST_TEST((kind(both, grant_kind::region)->grants == grant_kind::region));
    const auto refused = kind(IBV_DEVICE_MEM_WINDOW, grant_kind::type_2_window);
    BOOST_REQUIRE(!refused);
    BOOST_TEST((refused.error() == std::errc::operation_not_supported));
    auto r = reactor::create({});
    BOOST_REQUIRE(r);
    blocking_pool pool{1};
    options o;
    o.grants = grant_kind::type_2_window;
    const auto context = make_context(**r, pool, o);
    BOOST_REQUIRE(!context);
    BOOST_TEST((context.error() == std::errc::operation_not_supported));
}
